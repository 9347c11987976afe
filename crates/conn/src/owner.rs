//! The interface of a table to its owner.

use crate::{CloseReason, ConnId, Connection, ResourceIds};

/// The maximum number of connections that end together.
pub const CLOSE_BATCH: usize = 32;

/// The steps of [`TableOwner::prefetch`].
pub(crate) const STEPS: usize = 4;

/// The calls by which a table reports to its owner that connections end.
pub trait TableOwner {
    /// Prefetches what [`TableOwner::closed`] will read for connections that end together. Each step reads
    /// what the step before it has prefetched.
    fn prefetch(&self, step: usize, ending: &mut dyn Iterator<Item = (ConnId, ResourceIds)>);

    /// A connection has ended.
    fn closed(&mut self, connection: &Connection, reason: CloseReason);

    /// Some connections end together, at most [`CLOSE_BATCH`]. Each one ends when the iterator returns it.
    fn closed_batch(&mut self, ended: impl Iterator<Item = (Connection, CloseReason)>)
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
