//! How long undecided bytes wait.

/// How long undecided bytes wait if no more bytes arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EditPatience {
    /// For [`StreamLimits::hold_ms`](crate::StreamLimits::hold_ms). Then the editor is asked again, as often
    /// as it leaves the bytes undecided.
    #[default]
    Hold,
    /// For [`LONG_MS`].
    Long,
    /// Until [`StreamTable::release`](crate::StreamTable::release): only the editor knows when.
    Unbounded,
}

/// How long undecided bytes with [long patience](EditPatience::Long) wait, in milliseconds.
pub const LONG_MS: u32 = 5000;
