//! The unreplied connections on which cached verdicts of a vector rely.

use mmb_base::Id;
use mmb_conn::ConnId;

/// A set of unreplied connections with cached verdicts in this vector, which may contain other connections
/// too. Their packets are not classified, so no other connection may take their ports until these packets are
/// processed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CachedUnreplied([u64; 4]);

impl CachedUnreplied {
    /// The word and the bit of a connection.
    fn word_and_bit(id: ConnId) -> (usize, u32) {
        (id.index() / 64 % 4, id.index() as u32 % 64)
    }

    /// Adds a connection.
    pub(super) fn add(&mut self, id: ConnId) {
        let (word, bit) = CachedUnreplied::word_and_bit(id);
        self.0[word] |= 1 << bit;
    }

    /// Whether a connection may be in the set. May be true for a connection that was not added.
    pub(super) fn may_have(self, id: ConnId) -> bool {
        let (word, bit) = CachedUnreplied::word_and_bit(id);
        self.0[word] >> bit & 1 == 1
    }
}
