//! The streams of a worker.
//!
//! Life-cycle of the table: [`StreamTable::configure`] gets the memory for payload, again when the limits change and no stream keeps
//! bytes. Life-cycle of a stream: see the crate.

use crate::edit::made::{MadeSegment, Maker};
use crate::edit::map::EditLists;
use crate::edit::side::{EditId, EditSide, EditStream, EditStreams, LEAST_PAYLOAD, MOST_HELD};
use crate::edit::sink::Undecided;
use crate::edit::take::{Decider, EditTake};
use crate::edit::wait::{WaitQueue, Waiting};
use crate::limits::{AckSpace, StreamLimits};
use crate::rope::ChunkPool;
use crate::segment::{
    EditedPayload, EditedSegment, Outcome, ResetTarget, Segment, StreamDrop, StreamReader, flag,
};
use crate::side::{EarlyTable, Level, NotTaken, Scan, Side, SideStats};
use crate::tcp::TcpTake;
use mmb_base::{Chunks, Slab, id_types};
use std::collections::VecDeque;

id_types! {
    /// A worker's stream.
    pub struct StreamId;
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamProto {
    /// TCP.
    #[default]
    Tcp,
    /// UDP: datagrams in the order in which they arrive.
    Udp,
}

/// Why a connection cannot be guarded, or not even watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// There are too many streams, or there is too little memory.
    NoRoom,
    /// Its begin was not seen.
    Midway,
    /// Its segments are signed (TCP-AO, MD5), so that none may be changed.
    Signed,
}

/// What is known of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamInfo {
    /// By direction.
    pub levels: [Level; 2],
    /// By direction.
    pub stats: [SideStats; 2],
    /// Bytes that are kept until the receiver acknowledges them, by direction.
    pub kept: [usize; 2],
    /// Early bytes by direction.
    pub early: [usize; 2],
    /// CRC-32C of the scanned bytes by direction, if it was asked for.
    pub crc32c: [u32; 2],
    /// What was edited, by direction.
    pub edits: [EditStats; 2],
}

/// What was edited in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EditStats {
    /// Places.
    pub edits: u64,
    /// Bytes of input in them.
    pub removed: u64,
    /// Bytes of output in them.
    pub added: u64,
    /// Bytes that are held back now.
    pub held: usize,
    /// Bytes of output that wait for the receiver's window.
    pub waiting: u64,
}

/// A connection's stream.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stream {
    pub(crate) sides: [Side; 2],
    proto: StreamProto,
    /// With edits.
    edit: Option<EditId>,
    owner: u32,
    /// When its last segment was taken.
    last_s: u32,
}

/// Undecided bytes that are asked about at once: those that are held, and a packet's.
const MOST_UNDECIDED: usize = MOST_HELD + (64 << 10);

/// Streams that are looked at for one that may be given up.
const VICTIMS: u32 = 64;
/// A stream is given up only if it was idle for as long.
const IDLE_S: u32 = 10;

/// The streams of one worker; see the crate.
#[derive(Debug, Default)]
pub struct StreamTable {
    limits: StreamLimits,
    pool: ChunkPool,
    streams: Slab<StreamId, Stream, Chunks<Stream, 256>>,
    early: EarlyTable,
    edits: EditStreams,
    lists: EditLists,
    waiting: WaitQueue,
    /// Streams that have packets to make, each once.
    ready: VecDeque<StreamId>,
    /// Undecided bytes in one piece, and the payload of the packet that is made.
    scratch: Vec<u8>,
    payload: Vec<u8>,
    acks: AckSpace,
    /// Where the search for a stream that may be given up goes on.
    hand: u32,
}

impl StreamTable {
    /// Sets the limits, and gets the memory for payload if none of it is in use; if some is, the table keeps what it has. Not for the packet
    /// path. Returns whether there is memory.
    pub fn configure(&mut self, limits: StreamLimits) -> bool {
        if self.pool.chunks() != limits.memory / crate::rope::CHUNK && self.pool.taken() == 0 {
            let Some(pool) = ChunkPool::new(limits.memory) else { return false };
            self.pool = pool;
        }
        self.limits = limits;
        true
    }

    /// Whether the table has these limits, and the memory that they ask for.
    pub fn is_configured(&self, limits: &StreamLimits) -> bool {
        self.limits == *limits && self.pool.chunks() == limits.memory / crate::rope::CHUNK
    }

    /// Sets which bytes acknowledgments are about.
    pub fn set_ack_space(&mut self, acks: AckSpace) {
        self.acks = acks;
    }

    /// Number of streams.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// Bytes of payload that are kept, in whole chunks.
    pub fn payload_memory(&self) -> usize {
        self.pool.taken() * crate::rope::CHUNK
    }

    /// Streams with edits, and directions with edits that are not acknowledged.
    pub fn edit_records(&self) -> usize {
        self.edits.len() + self.lists.len()
    }

    /// Bytes of all records.
    pub fn record_memory(&self) -> usize {
        self.streams.memory() + self.early.memory() + self.edits.memory() + self.lists.memory()
    }

    /// Whether less than an eighth of the memory for payload is left: no window grows, and no stream is guarded any more.
    fn is_short(&self) -> bool {
        self.pool.taken() >= self.pool.chunks() - self.pool.chunks() / 8
    }

    /// Begins a stream with the first packet of a connection: with a segment of the initiator, or for UDP with none. [`StreamTable::take`] takes
    /// that packet too.
    ///
    /// # Errors
    /// Nothing of it can be followed ([`Unfit::NoRoom`]), or it cannot be guarded.
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
        let is_full =
            self.streams.len() >= self.limits.streams || (guards && first.is_some() && self.is_short());
        if is_full || self.streams.try_reserve().is_err() {
            return Err(Unfit::NoRoom);
        }
        let edit = match levels.contains(&Level::Edit) {
            true => Some(self.open_edit().ok_or(Unfit::NoRoom)?),
            false => None,
        };
        let proto = if first.is_some() { StreamProto::Tcp } else { StreamProto::Udp };
        let sides = [Side::new(0, levels[0], digests), Side::new(1, levels[1], digests)];
        Ok(self.streams.insert(Stream { sides, proto, edit, owner: 0, last_s: (now_ms / 1000) as u32 }))
    }

    /// Gets what edits need of a stream; `None` without memory.
    fn open_edit(&mut self) -> Option<EditId> {
        let streams = self.edits.len() + 1;
        self.edits.try_reserve().ok()?;
        self.waiting.reserve(streams).ok()?;
        self.ready.try_reserve(streams).ok()?;
        self.scratch.try_reserve(MOST_UNDECIDED).ok()?;
        self.payload.try_reserve(usize::from(u16::MAX)).ok()?;
        Some(self.edits.insert(EditStream::default()))
    }

    /// Takes a packet of a connection that would pass. `reader` gets bytes that are in order; if it breaks, the packet is dropped, and the caller
    /// should end the connection. Of the `segment` of UDP only [`Segment::is_corrupt`] is looked at. The checksum of a changed payload is the caller's to mend.
    pub fn take(
        &mut self,
        id: StreamId,
        direction: usize,
        segment: &Segment,
        payload: &mut [u8],
        now_ms: u64,
        reader: &mut dyn StreamReader,
    ) -> Outcome {
        let is_short = self.is_short();
        let StreamTable { limits, pool, streams, early, edits, lists, scratch, acks, .. } = self;
        let stream = &mut streams[id];
        stream.last_s = (now_ms / 1000) as u32;
        let direction = direction & 1;
        let [first, second] = &mut stream.sides;
        let (ours, theirs) = if direction == 0 { (first, second) } else { (second, first) };
        let edit = stream.edit.map(|edit| {
            let [first, second] = &mut edits[edit].sides;
            let (ours, theirs) = if direction == 0 { (first, second) } else { (second, first) };
            EditTake { lists, ours, theirs, scratch, acks: *acks }
        });
        if stream.proto == StreamProto::Udp {
            return match edit.filter(|_| ours.level == Level::Edit) {
                Some(EditTake { lists, ours: edit, scratch, .. }) => {
                    let decider = Decider { side: ours, edit, pool, lists, scratch, now_ms };
                    edit_datagram(decider, payload, segment.is_corrupt, reader)
                }
                None => take_datagram(ours, payload, segment.is_corrupt, reader),
            };
        }
        let has_edit = edit.is_some();
        let segment = Segment { payload: payload.len() as u32, ..*segment };
        let mut take = TcpTake {
            limits,
            pool,
            early,
            ours,
            theirs,
            edit,
            is_short,
            now_ms,
            acked_output: None,
            is_partial: false,
        };
        let outcome = take.take(&segment, payload, reader);
        if has_edit {
            let is_ready = take.settle();
            self.note_edit(id, is_ready);
        }
        outcome
    }

    /// Queues a stream with edits for what is to be made, and for what it holds.
    fn note_edit(&mut self, id: StreamId, is_ready: bool) {
        let StreamTable { limits, streams, edits, waiting, ready, .. } = self;
        let Some(edit_id) = streams[id].edit else { return };
        let edit = &mut edits[edit_id];
        if is_ready && !edit.is_ready {
            edit.is_ready = true;
            ready.push_back(id);
        }
        for (direction, side) in edit.sides.iter_mut().enumerate() {
            if side.held.len() > 0 && !side.waits {
                side.waits = true;
                let due_ms = side.held_since_ms + u64::from(limits.hold_ms);
                waiting.push(Waiting { due_ms, stream: id, edit: edit_id, direction });
            }
        }
    }

    /// A direction that has held bytes back for the time of [`StreamLimits::hold_ms`], or for it once more: [`StreamTable::release`] asks about them
    /// again.
    pub fn next_due(&mut self, now_ms: u64) -> Option<(StreamId, usize)> {
        while let Some(Waiting { stream, edit: edit_id, direction, .. }) = self.waiting.pop_due(now_ms) {
            if self.streams.get(stream).is_none_or(|stream| stream.edit != Some(edit_id)) {
                continue;
            }
            let side = &mut self.edits[edit_id].sides[direction];
            side.waits = false;
            if side.held.len() == 0 {
                continue;
            }
            let due_ms = side.held_since_ms + u64::from(self.limits.hold_ms);
            if due_ms <= now_ms {
                return Some((stream, direction));
            }
            side.waits = true;
            self.waiting.push(Waiting { due_ms, stream, edit: edit_id, direction });
        }
        None
    }

    /// When [`StreamTable::next_due`] has something; `None` while nothing is held.
    pub fn due_ms(&self) -> Option<u64> {
        self.waiting.due_ms()
    }

    /// Asks again about the bytes that a direction holds back.
    ///
    /// # Errors
    /// The reader breaks, or there is no memory: the caller ends the connection.
    pub fn release(
        &mut self,
        id: StreamId,
        direction: usize,
        now_ms: u64,
        reader: &mut dyn StreamReader,
    ) -> Result<(), StreamDrop> {
        let StreamTable { limits, pool, streams, edits, lists, scratch, waiting, .. } = self;
        let stream = &mut streams[id];
        let Some(edit_id) = stream.edit else { return Ok(()) };
        let [first, second] = &mut stream.sides;
        let (side, other) = if direction == 0 { (first, second) } else { (second, first) };
        let edit = &mut edits[edit_id].sides[direction & 1];
        let since_ms = edit.held_since_ms;
        let waited_ms = Some(now_ms.saturating_sub(since_ms).min(u64::from(u32::MAX - 1)) as u32);
        let asked = Undecided { direction, offset: 0, bytes: &[], known: 0, is_end: false, waited_ms };
        let before = edit.decided;
        let released = Decider { side, edit, pool, lists, scratch, now_ms }.decide(&[], asked, reader);
        if edit.held.len() > 0 && !edit.waits && released.is_ok() {
            if edit.decided == before {
                edit.held_since_ms = since_ms;
            }
            edit.waits = true;
            waiting.push(Waiting {
                due_ms: now_ms + u64::from(limits.hold_ms),
                stream: id,
                edit: edit_id,
                direction,
            });
        }
        let is_ready = edit.settle(side, lists, other.told()) && other.has_begun;
        self.note_edit(id, is_ready);
        released
    }

    /// Makes the next packet of the streams that have some to make. It is the caller's to send it as if its end had sent it.
    pub fn make(&mut self) -> Option<MadeSegment<'_>> {
        let stream = loop {
            let id = *self.ready.front()?;
            let has_packets = |edit: &EditStream, sides: &[Side; 2]| {
                let has = |(edit, side): (&EditSide, &Side)| side.level == Level::Edit && edit.has_packets();
                sides.iter().all(|side| side.has_begun) && edit.sides.iter().zip(sides).any(has)
            };
            let stream = &self.streams[id];
            match stream.edit.map(|edit| &mut self.edits[edit]) {
                Some(edit) if edit.is_ready && has_packets(edit, &stream.sides) => break id,
                Some(edit) => edit.is_ready = false,
                None => {}
            }
            self.ready.pop_front();
        };
        let StreamTable { pool, streams, early, edits, lists, payload, .. } = self;
        let Stream { sides, edit, owner, .. } = &mut streams[stream];
        let edit = &mut edits[(*edit)?];
        Maker { pool, lists, early, sides, edit, stream, owner: *owner, buffer: payload }.make()
    }

    /// A packet could not carry what the outcome said: packets are made for it.
    pub fn take_back(&mut self, id: StreamId, direction: usize, edited: &EditedSegment) {
        let Some(edit_id) = self.streams[id].edit else { return };
        let edit = &mut self.edits[edit_id].sides[direction & 1];
        if let EditedPayload::Kept { offset, len } = edited.payload {
            edit.send_again(offset, offset + len as u64);
        }
        if edited.has_fin {
            edit.sent = edit.sent_data();
        }
        self.note_edit(id, true);
    }

    /// The path of a direction has room for no larger payloads than this: its sender sends smaller ones now, and so do packets that are made.
    pub fn limit_payload(&mut self, id: StreamId, direction: usize, most: u16) {
        let Some(edit) = self.streams[id].edit else { return };
        let side = &mut self.edits[edit].sides[direction & 1];
        side.largest = side.largest.min(most.max(LEAST_PAYLOAD));
    }

    /// Copies the payload of a packet that goes on changed: as many bytes as the outcome said.
    pub fn copy_kept(&self, id: StreamId, direction: usize, offset: u64, into: &mut [u8]) {
        let Some(edit) = self.streams[id].edit else { return };
        let edit = &self.edits[edit].sides[direction & 1];
        let mut filled = 0;
        for slice in edit.kept.slices(&self.pool, offset.saturating_sub(edit.acked) as usize, into.len()) {
            into[filled..filled + slice.len()].copy_from_slice(slice);
            filled += slice.len();
        }
    }

    /// The acknowledgment number of input that stands for one of output, which the receiver of a direction has sent.
    pub fn input_of(&self, id: StreamId, direction: usize, ack: u32) -> u32 {
        match self.edited(id, direction) {
            Some((side, edit)) => {
                side.seq(edit.acked_input(side, &self.lists, edit.output_offset(side, ack)))
            }
            None => ack,
        }
    }

    /// A SACK block of input for one of output; `None` if it holds no whole byte of input.
    pub fn sack_of(&self, id: StreamId, direction: usize, [left, right]: [u32; 2]) -> Option<[u32; 2]> {
        let Some((side, edit)) = self.edited(id, direction) else { return Some([left, right]) };
        let offset = |seq| edit.output_offset(side, seq).max(0).cast_unsigned().min(edit.out_next);
        let (left, right) = (offset(left), offset(right));
        let [left, right] = [edit.map.input_ceil(&self.lists, left), edit.input_floor(&self.lists, right)];
        (left < right).then(|| [side.seq(left), side.seq(right)])
    }

    /// Whether a direction is edited and its acknowledgments are about the output, and its states.
    fn edited(&self, id: StreamId, direction: usize) -> Option<(&Side, &EditSide)> {
        let stream = &self.streams[id];
        let side = &stream.sides[direction & 1];
        let is_edited = side.level == Level::Edit && side.has_begun && self.acks == AckSpace::Wire;
        let edit = stream.edit.filter(|_| is_edited)?;
        Some((side, &self.edits[edit].sides[direction & 1]))
    }

    /// Whether some direction of a stream is edited.
    pub fn is_edited(&self, id: StreamId) -> bool {
        self.streams[id].edit.is_some()
    }

    /// The numbers of a RST that an end accepts: 0 for the initiator, 1 for the responder. `None` if the end has nothing to reset.
    pub fn reset_target(&self, id: StreamId, end: usize) -> Option<ResetTarget> {
        let Stream { sides, proto, .. } = &self.streams[id];
        if *proto == StreamProto::Udp {
            return None;
        }
        let (own, other) = (&sides[end & 1], &sides[1 - (end & 1)]);
        if let Some(edit) = self.streams[id].edit.filter(|_| other.level == Level::Edit && other.has_begun) {
            let edit = &self.edits[edit].sides[1 - (end & 1)];
            return Some(ResetTarget { seq: other.seq(edit.sent), ack: other.told() });
        }
        if other.has_begun {
            return Some(ResetTarget { seq: other.expected(), ack: other.told() });
        }
        // The end waits for an answer to its SYN: the acknowledgment of that is what makes a RST valid.
        own.has_begun.then(|| ResetTarget { seq: 0, ack: Some(own.seq(0)) })
    }

    /// Ends a stream and gives back its memory.
    pub fn end(&mut self, id: StreamId) {
        let mut stream = self.streams.remove(id);
        if let Some(edit) = stream.edit {
            let EditStream { mut sides, is_ready } = self.edits.remove(edit);
            sides.iter_mut().for_each(|side| side.clear(&mut self.pool, &mut self.lists));
            if is_ready {
                self.ready.retain(|ready| *ready != id);
            }
        }
        for side in &mut stream.sides {
            side.clear(&mut self.pool);
            if let Some(early) = side.early.take() {
                self.early[early].clear(&mut self.pool);
                self.early.free(early);
            }
        }
    }

    /// Records what the caller knows a stream by.
    pub fn set_owner(&mut self, id: StreamId, owner: u32) {
        self.streams[id].owner = owner;
    }

    /// What the caller knows a stream by.
    pub fn owner(&self, id: StreamId) -> u32 {
        self.streams[id].owner
    }

    /// How closely each direction is followed.
    #[inline]
    pub fn levels(&self, id: StreamId) -> [Level; 2] {
        let sides = &self.streams[id].sides;
        [sides[0].level, sides[1].level]
    }

    /// What is known of a stream.
    pub fn info(&self, id: StreamId) -> StreamInfo {
        let sides = &self.streams[id].sides;
        let edits = self.streams[id].edit.map(|edit| &self.edits[edit]);
        StreamInfo {
            levels: [sides[0].level, sides[1].level],
            stats: [sides[0].stats(), sides[1].stats()],
            kept: [0, 1].map(|direction| {
                sides[direction].kept() + edits.map_or(0, |edit| edit.sides[direction].kept.len())
            }),
            early: sides.map(|side| side.early.map_or(0, |early| self.early[early].len())),
            crc32c: [sides[0].crc32c, sides[1].crc32c],
            edits: [0, 1].map(|direction| {
                edits.map_or_else(EditStats::default, |edit| edit_stats(&edit.sides[direction]))
            }),
        }
    }

    /// A stream that may be given up for memory: of some that keep bytes, the one that was idle for longest. The caller resets its connection.
    pub fn longest_idle(&mut self, now_ms: u64) -> Option<StreamId> {
        let now_s = (now_ms / 1000) as u32;
        let highest = self.streams.highest();
        let mut found: Option<(u32, StreamId)> = None;
        for _ in 0..VICTIMS.min(highest) {
            self.hand = if self.hand >= highest { 1 } else { self.hand + 1 };
            let Some(id) = <StreamId as mmb_base::Id>::new(self.hand) else { continue };
            let stream = &self.streams[id];
            let idle_s = now_s.saturating_sub(stream.last_s);
            let edit = stream.edit.map(|edit| &self.edits[edit]);
            let keeps = stream.sides.iter().any(|side| side.kept() > 0 || side.early.is_some())
                || edit
                    .is_some_and(|edit| edit.sides.iter().any(|side| side.kept.len() + side.held.len() > 0));
            if keeps && idle_s >= IDLE_S && found.is_none_or(|(longest, _)| idle_s > longest) {
                found = Some((idle_s, id));
            }
        }
        found.map(|(_, id)| id)
    }
}

fn take_datagram(side: &mut Side, payload: &[u8], is_corrupt: bool, scan: &mut Scan<'_>) -> Outcome {
    if is_corrupt {
        return if side.is_guarded() { Outcome::drop(StreamDrop::BadChecksum) } else { Outcome::PASS };
    }
    if side.level == Level::None {
        return Outcome::PASS;
    }
    match side.take_datagram(payload, scan) {
        Ok(()) => Outcome::PASS,
        Err(NotTaken::Stopped | NotTaken::NoRoom) => Outcome::drop(StreamDrop::Stopped),
    }
}

/// Edits a datagram. It is decided as a whole, and its output is kept until the next one.
fn edit_datagram(
    mut decider: Decider<'_>,
    payload: &[u8],
    is_corrupt: bool,
    reader: &mut dyn StreamReader,
) -> Outcome {
    if is_corrupt {
        return Outcome::drop(StreamDrop::BadChecksum);
    }
    decider.side.has_begun = true;
    let edits = decider.edit.edits;
    let kept = decider.edit.kept.len();
    decider.edit.kept.pop(decider.pool, kept);
    decider.edit.acked = decider.edit.out_next;
    let (direction, offset) = (decider.side.direction(), decider.edit.out_next);
    let asked = Undecided { direction, offset: 0, bytes: &[], known: 0, is_end: true, waited_ms: None };
    if let Err(why) = decider.decide(payload, asked, reader) {
        return Outcome::drop(why);
    }
    decider.edit.acknowledge_edits(decider.lists);
    let len = (decider.edit.out_next - offset) as usize;
    let edited = match decider.edit.edits == edits {
        true => EditedPayload::Same,
        false => EditedPayload::Kept { offset, len },
    };
    Outcome { edited: Some(EditedSegment { payload: edited, ..EditedSegment::default() }), ..Outcome::PASS }
}

fn edit_stats(edit: &EditSide) -> EditStats {
    let EditSide { edits, removed, added, .. } = *edit;
    EditStats { edits, removed, added, held: edit.held.len(), waiting: edit.out_next - edit.sent_data() }
}
