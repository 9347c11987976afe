//! The streams of a worker.
//!
//! Life-cycle of the table: call [`StreamTable::set_limits`], and [`StreamTable::adopt`] with the payload
//! memory. Call `adopt` again when the limits have changed and no stream buffers bytes. The crate
//! documentation has the life-cycle of a stream.

use crate::edit::context::PlainContext;
use crate::edit::links::EditId;
use crate::edit::side::EditStats;
use crate::edit::table::{EditTable, HeaderValuesId};
use crate::id::StreamId;
use crate::limits::{AckSpace, StreamLimits};
use crate::reader::StreamReader;
use crate::rope::ChunkPool;
use crate::segment::{Outcome, ResetTarget, Segment, StreamDrop, StreamVerdict, flag};
use crate::side::{Level, NotTaken, OutOfOrderTable, Reader, Side, SideStats, StreamProto};
use crate::tcp::TcpContext;
use mmb_base::{Chunks, Slab, prefetch_all};

/// Why a connection cannot be guarded, or not even watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// There are too many streams or too little memory.
    NoRoom,
    /// The start of the connection was not seen.
    Midway,
    /// The segments are signed (TCP-AO, MD5), so none of them may be changed.
    Signed,
}

/// The state and the counters of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// Level of each direction.
    pub levels: [Level; 2],
    /// Counters of each direction.
    pub stats: [SideStats; 2],
    /// Bytes in each direction that are buffered until the receiver acknowledges them.
    pub buffered: [usize; 2],
    /// Out-of-order bytes that are buffered in each direction.
    pub out_of_order: [usize; 2],
    /// CRC-32C of the scanned bytes of each direction, if requested.
    pub crc32c: [u32; 2],
    /// Edits in each direction.
    pub edits: [EditStats; 2],
}

/// How much of a table's limits is in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamUsage {
    /// Number of streams.
    pub streams: usize,
    /// Limit of `streams`.
    pub max_streams: usize,
    /// Bytes of payload memory in use, in whole chunks.
    pub memory: usize,
    /// Limit of `memory`.
    pub max_memory: usize,
    /// So little memory is left that no further stream is guarded.
    pub is_short: bool,
}

/// The stream of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stream {
    pub(crate) sides: [Side; 2],
    /// The edit state, if the stream has edits and is not plain.
    pub(crate) edit: Option<EditId>,
    /// Header values of both ends, if the stream has edits.
    pub(crate) header_values: Option<HeaderValuesId>,
    pub(crate) owner: u32,
    /// When the last segment was taken, in seconds.
    pub(crate) last_s: u32,
}

impl Stream {
    pub(crate) fn proto(&self) -> StreamProto {
        self.sides[0].proto()
    }
}

/// The records of streams.
pub(crate) type StreamSlab = Slab<StreamId, Stream, Chunks<Stream, 256>>;

/// The streams of one worker. The crate documentation has an overview.
#[derive(Debug, Default)]
pub struct StreamTable {
    pub(crate) limits: StreamLimits,
    pub(crate) pool: ChunkPool,
    pub(crate) streams: StreamSlab,
    pub(crate) out_of_order: OutOfOrderTable,
    pub(crate) edit: EditTable,
    pub(crate) ack_space: AckSpace,
    /// The time of the last call that had a time.
    pub(crate) now_ms: u64,
    /// Where the next search for a stream to evict starts.
    pub(crate) scan_position: u32,
}

impl StreamTable {
    /// Sets the limits. The payload memory stays: see [`StreamTable::adopt`].
    pub fn set_limits(&mut self, limits: StreamLimits) {
        self.limits = limits;
    }

    /// Replaces the payload memory with memory that was allocated elsewhere. Returns the old memory. Calls no
    /// allocator.
    ///
    /// # Errors
    /// Returns the new memory if a stream has buffered payload.
    pub fn adopt(&mut self, pool: ChunkPool) -> Result<ChunkPool, ChunkPool> {
        match self.pool.taken() {
            0 => Ok(std::mem::replace(&mut self.pool, pool)),
            _ => Err(pool),
        }
    }

    /// Sets the limits. Allocates the payload memory if no stream has buffered payload. This is for callers
    /// without a control side, which allocates the memory for [`StreamTable::adopt`]. Returns false if the
    /// allocation fails.
    pub fn configure(&mut self, limits: StreamLimits) -> bool {
        if !self.pool.is_for(limits.memory) && self.pool.taken() == 0 {
            let Some(pool) = ChunkPool::new(limits.memory) else { return false };
            self.pool = pool;
        }
        self.limits = limits;
        true
    }

    /// Whether the table has these limits and the payload memory that they require.
    pub fn is_configured(&self, limits: &StreamLimits) -> bool {
        self.limits == *limits && self.pool.is_for(limits.memory)
    }

    /// The payload memory.
    pub fn payload_pool(&self) -> &ChunkPool {
        &self.pool
    }

    /// The highest number of simultaneous streams so far.
    pub fn peak_streams(&self) -> u32 {
        self.streams.highest()
    }

    /// Sets the sequence space of acknowledgments from receivers of edited bytes.
    pub fn set_ack_space(&mut self, ack_space: AckSpace) {
        self.ack_space = ack_space;
    }

    /// The most streams that the limits allow.
    pub fn max_streams(&self) -> usize {
        self.limits.streams
    }

    /// Number of streams.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether the table has no streams.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Bytes of payload memory in use, in whole chunks.
    pub fn payload_memory(&self) -> usize {
        self.pool.taken() * crate::rope::CHUNK
    }

    /// Bytes of all records.
    pub fn record_memory(&self) -> usize {
        self.streams.memory() + self.out_of_order.memory() + self.edit.memory()
    }

    /// How much of the limits is in use.
    pub fn usage(&self) -> StreamUsage {
        StreamUsage {
            streams: self.len(),
            max_streams: self.limits.streams,
            memory: self.payload_memory(),
            max_memory: self.pool.chunks() * crate::rope::CHUNK,
            is_short: self.pool.chunks() > 0 && self.is_short(),
        }
    }

    /// Whether at most an eighth of the payload memory is left. If so, no window grows, and no further stream
    /// is guarded.
    pub fn is_short(&self) -> bool {
        self.pool.taken() >= self.pool.chunks() - self.pool.chunks() / 8
    }

    /// Opens a stream with the first packet of a connection: with a segment of the initiator, or with `None`
    /// for UDP. [`StreamTable::take`] must take that packet too.
    ///
    /// # Errors
    /// The stream cannot be followed at all ([`Unfit::NoRoom`]), or it cannot be guarded.
    pub fn open(
        &mut self,
        levels: [Level; 2],
        digests: bool,
        first: Option<&Segment>,
        now_ms: u64,
    ) -> Result<StreamId, Unfit> {
        let guards = levels.iter().any(|level| *level >= Level::Guard);
        if let Some(first) = first
            && guards
        {
            if !first.has(flag::SYN) || first.has(flag::ACK) {
                return Err(Unfit::Midway);
            }
            if first.is_signed {
                return Err(Unfit::Signed);
            }
        }
        // Datagrams are buffered only in edited directions.
        let keeps = guards && first.is_some() || levels.contains(&Level::Edit);
        let is_full = self.streams.len() >= self.limits.streams || keeps && self.is_short();
        if is_full || self.streams.try_reserve().is_err() {
            return Err(Unfit::NoRoom);
        }
        let allows_early_acks = first.is_some() && self.ack_space == AckSpace::Wire;
        let (edit, header_values) = match levels.contains(&Level::Edit) {
            true => match self.edit.open(self.limits.window, allows_early_acks) {
                Ok((edit, header_values)) => (Some(edit), Some(header_values)),
                Err(_) => return Err(Unfit::NoRoom),
            },
            false => (None, None),
        };
        let proto = if first.is_some() { StreamProto::Tcp } else { StreamProto::Udp };
        let sides =
            [0, 1].map(|direction| Side::new(proto, direction, levels[usize::from(direction)], digests));
        let last_s = (now_ms / 1000) as u32;
        let id = self.streams.insert(Stream { sides, edit, header_values, owner: 0, last_s });
        edit.into_iter().for_each(|edit| self.edit.streams[edit].stream = Some(id));
        Ok(id)
    }

    /// Takes a packet of a connection that would pass. `reader` gets the in-order bytes. If `reader` breaks,
    /// the packet is dropped, and the caller should end the connection. For UDP, only [`Segment::is_corrupt`]
    /// and [`Segment::max_payload`] of `segment` are read. The caller must update the checksum of a changed
    /// payload.
    pub fn take(
        &mut self,
        id: StreamId,
        direction: usize,
        segment: &Segment,
        payload: &mut [u8],
        now_ms: u64,
        reader: &mut dyn StreamReader,
    ) -> Outcome {
        self.forget_last_datagram();
        self.now_ms = now_ms;
        if let Some(why) = self.edit.failure(self.streams[id].edit) {
            return Outcome::drop(why);
        }
        let is_short = self.is_short();
        let direction = direction & 1;
        let stream = &mut self.streams[id];
        stream.last_s = (now_ms / 1000) as u32;
        if stream.proto() == StreamProto::Udp {
            let side = &mut stream.sides[direction];
            return match side.level {
                Level::Edit => {
                    self.take_edited_datagram((id, direction), (segment, payload), is_short, reader)
                }
                Level::None | Level::Watch | Level::Guard => {
                    take_datagram(side, payload, segment.is_corrupt, reader)
                }
            };
        }
        let StreamTable { limits, pool, out_of_order, edit: table, ack_space, .. } = self;
        let Stream { sides: [first, second], edit: edit_id, header_values, .. } = stream;
        let (ours, theirs) = if direction == 0 { (first, second) } else { (second, first) };
        let segment = Segment { payload: payload.len() as u32, ..*segment };
        let plain = header_values.map(|header_values| {
            let window = limits.window;
            PlainContext { table, edit: edit_id, stream: id, header_values, window, ack_space: *ack_space }
        });
        // If memory is exhausted, the segment is dropped: the sender may retransmit it.
        let Ok((edit, plain)) = PlainContext::begin(plain, ours, theirs, &segment) else {
            return Outcome::drop(StreamDrop::NoRoom);
        };
        let mut context = TcpContext {
            limits,
            pool,
            out_of_order,
            ours,
            theirs,
            edit,
            plain,
            is_short,
            now_ms,
            acked_output: None,
            is_partial: false,
        };
        let outcome = context.take(&segment, payload, reader);
        if context.edit.is_some() {
            match outcome.verdict {
                StreamVerdict::Drop(why @ (StreamDrop::Stopped | StreamDrop::Broken)) => {
                    self.update_queues(id, Some(why));
                }
                StreamVerdict::Drop(_) | StreamVerdict::Pass | StreamVerdict::Absorb => {
                    if !context.update_due() {
                        self.update_queues(id, None);
                    } else if context.can_be_plain() {
                        self.convert_to_plain(id);
                    }
                }
            }
        }
        outcome
    }

    /// The numbers of a RST that an end accepts: `end` is 0 for the initiator, 1 for the responder. `None` if
    /// the end has nothing to reset.
    pub fn reset_target(&self, id: StreamId, end: usize) -> Option<ResetTarget> {
        let stream = &self.streams[id];
        if stream.proto() == StreamProto::Udp {
            return None;
        }
        let sides = &stream.sides;
        let (own, other) = (&sides[end & 1], &sides[1 - (end & 1)]);
        if let Some((other, edit)) = self.states(id, 1 - (end & 1)) {
            return Some(ResetTarget { seq: other.seq(edit.snd_nxt), ack: other.last_ack_sent() });
        }
        if other.has_begun {
            return Some(ResetTarget { seq: other.expected_seq(), ack: other.last_ack_sent() });
        }
        // The end waits for an answer to its SYN: a RST is valid only if it acknowledges that SYN.
        own.has_begun.then(|| ResetTarget { seq: 0, ack: Some(own.seq(0)) })
    }

    /// Ends a stream and frees its memory.
    pub fn end(&mut self, id: StreamId) {
        let mut stream = self.streams.remove(id);
        if let Some(edit) = stream.edit {
            self.end_edit(edit);
        }
        if let Some(header_values) = stream.header_values {
            self.edit.header_values.free(header_values);
        }
        for side in &mut stream.sides {
            side.clear(&mut self.pool);
            if let Some(out_of_order) = side.out_of_order.take() {
                self.out_of_order[out_of_order].clear(&mut self.pool);
                self.out_of_order.free(out_of_order);
            }
        }
    }

    /// Prefetches the record of a stream whose next packet is about to be taken.
    #[inline]
    pub fn prefetch(&self, id: StreamId) {
        prefetch_all(&self.streams[id]);
    }

    /// Prefetches the edit state of a stream whose record is already in the cache.
    #[inline]
    pub fn prefetch_edit(&self, id: StreamId) {
        let Stream { edit, header_values, .. } = self.streams[id];
        match (edit, header_values) {
            (Some(edit), _) => prefetch_all(&self.edit.streams[edit]),
            (None, Some(header_values)) => prefetch_all(&self.edit.header_values[header_values]),
            (None, None) => {}
        }
    }

    /// Records the caller's identifier of a stream.
    pub fn set_owner(&mut self, id: StreamId, owner: u32) {
        self.streams[id].owner = owner;
    }

    /// The caller's identifier of a stream.
    pub fn owner(&self, id: StreamId) -> u32 {
        self.streams[id].owner
    }

    /// The level of each direction.
    #[inline]
    pub fn levels(&self, id: StreamId) -> [Level; 2] {
        let sides = &self.streams[id].sides;
        [sides[0].level, sides[1].level]
    }

    /// The state and the counters of a stream.
    pub fn info(&self, id: StreamId) -> StreamInfo {
        let sides = &self.streams[id].sides;
        let edits = self.streams[id].edit.map(|edit| &self.edit.streams[edit]);
        StreamInfo {
            levels: [sides[0].level, sides[1].level],
            stats: [sides[0].stats(), sides[1].stats()],
            buffered: [0, 1].map(|direction| {
                sides[direction].buffered() + edits.map_or(0, |edit| edit.sides[direction].buffered.len())
            }),
            out_of_order: sides.map(|side| {
                side.out_of_order.map_or(0, |out_of_order| self.out_of_order[out_of_order].len())
            }),
            crc32c: [sides[0].crc32c, sides[1].crc32c],
            edits: [0, 1].map(|direction| {
                edits.map_or_else(EditStats::default, |edits| edits.sides[direction].stats())
            }),
        }
    }
}

fn take_datagram(side: &mut Side, payload: &[u8], is_corrupt: bool, reader: &mut Reader<'_>) -> Outcome {
    if is_corrupt {
        return if side.is_guarded() { Outcome::drop(StreamDrop::BadChecksum) } else { Outcome::PASS };
    }
    if side.level == Level::None {
        return Outcome::PASS;
    }
    match side.take_datagram(payload, reader) {
        Ok(()) => Outcome::PASS,
        Err(NotTaken::Stopped | NotTaken::NoRoom) => Outcome::drop(StreamDrop::Stopped),
    }
}
