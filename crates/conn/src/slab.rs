//! Storage for a table's records: in chunks, so that growing copies none and touches memory only as it is used.

use crate::{ConnId, Connection};
use std::collections::TryReserveError;

/// Records in a chunk, as a shift: 12 MiB, of which only used parts take memory.
const CHUNK_SHIFT: u32 = 16;
const CHUNK: usize = 1 << CHUNK_SHIFT;

/// No record.
pub(crate) const NONE: u32 = u32::MAX;

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

/// Records by slot. A free one contains the next free slot in its links.
#[derive(Debug)]
pub(crate) struct ConnectionSlab {
    chunks: Vec<Vec<Connection>>,
    /// Slots that were ever used.
    used: u32,
    /// The first free slot of these.
    free: u32,
}

impl ConnectionSlab {
    pub(crate) fn new() -> ConnectionSlab {
        ConnectionSlab { chunks: Vec::new(), used: 0, free: NONE }
    }

    #[inline]
    pub(crate) fn at(&self, place: u32) -> &Connection {
        &self.chunks[(place >> CHUNK_SHIFT) as usize][place as usize % CHUNK]
    }

    #[inline]
    pub(crate) fn at_mut(&mut self, place: u32) -> &mut Connection {
        &mut self.chunks[(place >> CHUNK_SHIFT) as usize][place as usize % CHUNK]
    }

    /// The connection in a slot, if there is one.
    pub(crate) fn live(&self, place: u32) -> Option<&Connection> {
        Some(place)
            .filter(|place| *place < self.used)
            .map(|place| self.at(place))
            .filter(|at| at.queue != FREE)
    }

    /// Stores a connection.
    ///
    /// # Errors
    /// There is no memory for more records.
    pub(crate) fn insert(&mut self, connection: Connection) -> Result<ConnId, AllocError> {
        let place = self.free;
        if place != NONE {
            let record = self.at_mut(place);
            let next = record.links.next;
            *record = connection;
            self.free = next;
            return Ok(ConnId(place));
        }
        let place = self.used;
        if (place as usize).is_multiple_of(CHUNK) {
            let mut chunk = Vec::new();
            chunk.try_reserve_exact(CHUNK)?;
            self.chunks.try_reserve(1)?;
            self.chunks.push(chunk);
        }
        self.chunks[(place >> CHUNK_SHIFT) as usize].push(connection);
        self.used += 1;
        Ok(ConnId(place))
    }

    pub(crate) fn remove(&mut self, ConnId(place): ConnId) -> Connection {
        let next = self.free;
        let record = self.at_mut(place);
        let connection = *record;
        record.queue = FREE;
        record.links.next = next;
        self.free = place;
        connection
    }

    /// Number of slots that were ever used: the range to scan.
    pub(crate) fn used(&self) -> u32 {
        self.used
    }

    /// Bytes in use.
    pub(crate) fn memory(&self) -> usize {
        self.used as usize * size_of::<Connection>() + self.chunks.capacity() * size_of::<Vec<Connection>>()
    }
}
