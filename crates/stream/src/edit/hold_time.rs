//! For how long undecided bytes are held.

/// For how long undecided bytes are held if no more bytes arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HoldTime {
    /// For [`StreamLimits::hold_ms`](crate::StreamLimits::hold_ms). Then the editor is asked again, as often
    /// as it leaves the bytes undecided.
    #[default]
    Configured,
    /// For [`LONG_HOLD_MS`].
    Long,
    /// Until [`StreamTable::release`](crate::StreamTable::release): only the editor knows when.
    Unbounded,
}

/// For how long undecided bytes with [`HoldTime::Long`] are held, in milliseconds.
pub const LONG_HOLD_MS: u32 = 5000;
