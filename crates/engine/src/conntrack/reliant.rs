//! The unreplied connections on which cached verdicts of a vector rely.

use mmb_base::Id;
use mmb_conn::ConnId;

/// A superset of the unreplied connections with cached verdicts in this vector: their packets are not classified, so no other connection may
/// take their ports before these packets were processed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReliantConnections([u64; 4]);

impl ReliantConnections {
    /// Its word and bit.
    fn place(id: ConnId) -> (usize, u32) {
        (id.index() / 64 % 4, id.index() as u32 % 64)
    }

    /// Adds a connection.
    pub(super) fn add(&mut self, id: ConnId) {
        let (word, bit) = ReliantConnections::place(id);
        self.0[word] |= 1 << bit;
    }

    /// Whether a connection may be one of them.
    pub(super) fn may_have(self, id: ConnId) -> bool {
        let (word, bit) = ReliantConnections::place(id);
        self.0[word] >> bit & 1 == 1
    }
}
