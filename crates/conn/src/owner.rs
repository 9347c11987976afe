//! What the owner of a table does for it.

use crate::{CloseReason, ConnId, Connection, ResourceIds};

/// Connections that end together, at most.
pub const TOGETHER: usize = 32;

/// The steps of [`TableOwner::prefetch`].
pub(crate) const STEPS: usize = 4;

/// What a table tells its owner of connections that end.
pub trait TableOwner {
    /// Prefetches what [`TableOwner::closed`] will read for connections that end together: each step what the one before has prefetched leads to.
    fn prefetch(&self, step: usize, ending: &mut dyn Iterator<Item = (ConnId, ResourceIds)>);

    /// A connection has ended.
    fn closed(&mut self, connection: &Connection, reason: CloseReason);

    /// Some connections end together: each when the iterator returns it, at most [`TOGETHER`].
    fn closed_together(&mut self, ended: impl Iterator<Item = (Connection, CloseReason)>)
    where
        Self: Sized,
    {
        ended.for_each(|(connection, reason)| self.closed(&connection, reason));
    }
}

impl<F: FnMut(&Connection, CloseReason)> TableOwner for F {
    fn prefetch(&self, _: usize, _: &mut dyn Iterator<Item = (ConnId, ResourceIds)>) {}

    fn closed(&mut self, connection: &Connection, reason: CloseReason) {
        self(connection, reason);
    }
}
