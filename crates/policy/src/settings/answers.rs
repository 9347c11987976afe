//! Settings of the packets with which mmb answers others.
//!
//! Plain values, which the engine reads. [`crate::setting_table`] holds the table of names and ranges.

/// `set answer …`, `set mtu-errors …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerSettings {
    /// `answer rate`: the most answers a second of all workers; `None`: no limit.
    pub rate: Option<u32>,
    /// `mtu-errors`: whether the sender of a packet that is too large for the next link is told the MTU.
    pub mtu_errors: bool,
}

impl Default for AnswerSettings {
    fn default() -> Self {
        AnswerSettings { rate: Some(1000), mtu_errors: true }
    }
}
