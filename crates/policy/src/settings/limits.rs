//! Settings of the target `limit`.
//!
//! Plain values, which the engine reads. [`crate::setting_table`] holds the table of names and ranges.

/// `set limit …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitSettings {
    /// `limit keys`: the keys that each rule with `per` keeps apart, up to the next power of two.
    pub keys: u32,
}

impl LimitSettings {
    /// The least value of `limit keys`.
    pub const MIN_KEYS: u32 = 1 << 10;
}

impl Default for LimitSettings {
    fn default() -> Self {
        LimitSettings { keys: 1 << 16 }
    }
}
