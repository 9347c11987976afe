//! Storage for a table's records, with a mark on those that are free.

use crate::alloc_error::AllocError;
use crate::connection::age_ms;
use crate::ids::WideId;
use crate::record::{ColdLine, FlowLine, Record};
use crate::timeouts::StateTimeouts;
use crate::wide::{WideTuples, wide_tuples};
use crate::{ConnId, Connection, Direction, Tuple};
use mmb_base::{Chunks, Id, Slab, SlabStorage, prefetch};

/// Records per chunk: 4 MiB of flow lines and 4 MiB of cold lines, of which only the used part takes memory.
const CHUNK: usize = 1 << 16;

/// The queue of a free record.
const FREE: u8 = u8::MAX;

/// Stores the parts of records by id.
#[derive(Debug, Default)]
pub(crate) struct ConnectionSlab {
    lines: Slab<ConnId, FlowLine, Chunks<FlowLine, CHUNK>>,
    /// By the index of the id, as `lines`.
    cold: Chunks<ColdLine, CHUNK>,
    wide: Slab<WideId, WideTuples, Chunks<WideTuples, CHUNK>>,
}

impl ConnectionSlab {
    #[inline]
    pub(crate) fn line(&self, id: ConnId) -> &FlowLine {
        &self.lines[id]
    }

    #[inline]
    pub(crate) fn line_mut(&mut self, id: ConnId) -> &mut FlowLine {
        &mut self.lines[id]
    }

    #[inline]
    pub(crate) fn cold(&self, id: ConnId) -> &ColdLine {
        self.cold.at(id.index())
    }

    #[inline]
    pub(crate) fn cold_mut(&mut self, id: ConnId) -> &mut ColdLine {
        self.cold.at_mut(id.index())
    }

    /// The parts of a record.
    #[inline]
    pub(crate) fn record(&self, id: ConnId) -> Record<'_> {
        let line = self.line(id);
        Record { line, cold: self.cold(id), wide: line.wide().map(|wide| &self.wide[wide]) }
    }

    /// The connection with an id.
    #[inline]
    pub(crate) fn get(&self, id: ConnId) -> Connection {
        self.record(id).unpack(id)
    }

    /// The tuple of packets of a direction, as they arrive.
    #[inline]
    pub(crate) fn tuple(&self, id: ConnId, direction: Direction) -> Tuple {
        self.record(id).tuple(direction)
    }

    /// Whether there is a connection with an id.
    pub(crate) fn is_live(&self, id: ConnId) -> bool {
        id.number() <= self.lines.highest() && self.cold(id).queue != FREE
    }

    /// The connection with an id, if there is one.
    pub(crate) fn live(&self, id: ConnId) -> Option<Connection> {
        self.is_live(id).then(|| self.get(id))
    }

    /// Milliseconds until a connection times out if no packet comes.
    #[inline]
    pub(crate) fn expires_ms(&self, id: ConnId, now_ms: u64, limits: &StateTimeouts) -> u64 {
        let line = self.line(id);
        limits.ms(line.proto, line.state()).saturating_sub(line.idle_ms(now_ms))
    }

    /// Milliseconds since a connection was created.
    pub(crate) fn age_ms(&self, id: ConnId, now_ms: u64) -> u64 {
        age_ms(self.cold(id).created, now_ms).max(self.line(id).idle_ms(now_ms))
    }

    /// The ids that connections are stored under next, at most this number of them.
    pub(crate) fn next_ids(&self, max: usize) -> impl Iterator<Item = ConnId> {
        self.lines.next_ids(max)
    }

    /// Prefetches a record.
    #[inline]
    pub(crate) fn prefetch(&self, id: ConnId) {
        prefetch(self.line(id));
        prefetch(self.cold(id));
    }

    /// Stores a connection.
    ///
    /// # Errors
    /// There is no memory for more records.
    pub(crate) fn insert(&mut self, connection: &Connection) -> Result<ConnId, AllocError> {
        self.lines.try_reserve()?;
        // One cold line for each flow line, including the first one, which has no id.
        while self.cold.count() <= self.lines.highest() as usize + 1 {
            self.cold.try_reserve()?;
            self.cold.push(ColdLine::default());
        }
        let wide = match wide_tuples(connection) {
            Some(tuples) => {
                self.wide.try_reserve()?;
                Some(self.wide.insert(tuples))
            }
            None => None,
        };
        let line = FlowLine::new(connection, wide);
        let id = self.lines.insert_reusing(|mut before| {
            before.replace(line);
            before
        });
        *self.cold_mut(id) = ColdLine::new(connection);
        Ok(id)
    }

    /// Moves the counts of a flow line to the totals.
    pub(crate) fn fold(&mut self, id: ConnId) {
        self.lines[id].fold(self.cold.at_mut(id.index()));
    }

    /// Removes a connection, with the counts that were not folded.
    pub(crate) fn remove(&mut self, id: ConnId) -> Connection {
        let connection = self.get(id);
        let line = &mut self.lines[id];
        line.clear_verdicts();
        let wide = line.wide();
        self.cold_mut(id).queue = FREE;
        self.fold(id);
        self.lines.free(id);
        if let Some(wide) = wide {
            self.wide.free(wide);
        }
        connection
    }

    /// The ids of at most `max` records from `first` on, free ones included. Also the id of the record after
    /// them, if it exists.
    pub(crate) fn ids(
        &self,
        first: ConnId,
        max: usize,
    ) -> (impl Iterator<Item = ConnId> + use<>, Option<ConnId>) {
        let highest = self.lines.highest();
        let end = first.number().saturating_add(u32::try_from(max).unwrap_or(u32::MAX)).min(highest + 1);
        let next = ConnId::new(end).filter(|_| end <= highest);
        ((first.number()..end).filter_map(ConnId::new), next)
    }

    /// The largest number of records that were in use at once.
    pub(crate) fn highest(&self) -> usize {
        self.lines.highest() as usize
    }

    /// Bytes in use.
    pub(crate) fn memory(&self) -> usize {
        self.lines.memory() + self.cold.memory() + self.wide.memory()
    }
}
