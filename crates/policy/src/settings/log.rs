//! Settings of the target `log`: how many packets of a rule are told.
//!
//! Plain values, which the rooms that tell of packets read. [`crate::setting_table`] holds the table of names and ranges.

/// `set log …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// `log rate`: the most packets of a rule that are told in a second, over all workers, in the long run; 0: no limit.
    pub rate: u32,
    /// `log burst`: how many of them may be told at once.
    pub burst: u32,
}

impl Default for LogSettings {
    fn default() -> Self {
        LogSettings { rate: 10, burst: 20 }
    }
}
