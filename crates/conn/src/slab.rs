//! Storage for a table's records, with a mark on those that are free.

use crate::{ConnId, Connection};
use mmb_base::{Chunks, Id, Slab};
use std::collections::TryReserveError;

/// Records in a chunk: 12 MiB, of which only used parts take memory.
const CHUNK: usize = 1 << 16;

/// The queue of a free record.
const FREE: u8 = u8::MAX;

/// There is no memory for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AllocError;

impl From<TryReserveError> for AllocError {
    fn from(_: TryReserveError) -> AllocError {
        AllocError
    }
}

/// Records by id.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSlab(Slab<ConnId, Connection, Chunks<Connection, CHUNK>>);

impl ConnectionSlab {
    #[inline]
    pub(crate) fn at(&self, id: ConnId) -> &Connection {
        &self.0[id]
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, id: ConnId) -> &mut Connection {
        &mut self.0[id]
    }

    /// The connection with an id, if there is one.
    pub(crate) fn live(&self, id: ConnId) -> Option<&Connection> {
        self.0.get(id).filter(|record| record.queue != FREE)
    }

    /// Stores a connection.
    ///
    /// # Errors
    /// There is no memory for more records.
    pub(crate) fn insert(&mut self, connection: Connection) -> Result<ConnId, AllocError> {
        self.0.try_reserve()?;
        Ok(self.0.insert(connection))
    }

    pub(crate) fn remove(&mut self, id: ConnId) -> Connection {
        let record = self.at_mut(id);
        let connection = *record;
        record.queue = FREE;
        self.0.free(id);
        connection
    }

    /// The ids of at most `most` records from `first` on, free ones included, and the id after them unless that was the last.
    pub(crate) fn ids(
        &self,
        first: ConnId,
        most: usize,
    ) -> (impl Iterator<Item = ConnId> + use<>, Option<ConnId>) {
        let end =
            first.number().saturating_add(u32::try_from(most).unwrap_or(u32::MAX)).min(self.0.highest() + 1);
        let next = ConnId::new(end).filter(|_| end <= self.0.highest());
        ((first.number()..end).filter_map(ConnId::new), next)
    }

    /// The most records that were ever in use at once.
    pub(crate) fn highest(&self) -> usize {
        self.0.highest() as usize
    }

    /// Bytes in use.
    pub(crate) fn memory(&self) -> usize {
        self.0.memory()
    }
}
