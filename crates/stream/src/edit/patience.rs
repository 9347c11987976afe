//! For how long bytes wait that the editor does not decide.

/// For how long undecided bytes wait, unless more come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EditPatience {
    /// For [`StreamLimits::hold_ms`](crate::StreamLimits::hold_ms); then the editor is asked again, as often as it leaves them undecided.
    #[default]
    Hold,
    /// For [`LONG_MS`].
    Long,
    /// Until [`StreamTable::release`](crate::StreamTable::release): for what only the editor knows.
    Unbounded,
}

/// How long undecided bytes wait that have [long patience](EditPatience::Long), in milliseconds.
pub const LONG_MS: u32 = 5000;
