//! The methods of a table for its streams with edits.

use super::datagram::{edit_datagram, end_datagram};
use super::decide::Decider;
use super::early_ack::RETRY_MS;
use super::generate::{GeneratedSegment, PacketGenerator};
use super::hold_time::{HoldTime, LONG_HOLD_MS};
use super::links::{DirectionId, EditId};
use super::queue::DirectionQueue;
use super::side::{CREDIT, EditSide, EditStream, EditStreams};
use super::sink::Undecided;
use super::table::EditTable;
use crate::id::StreamId;
use crate::limits::AckSpace;
use crate::reader::StreamReader;
use crate::segment::{EditedPayload, EditedSegment, Outcome, Segment, StreamDrop, StreamVerdict};
use crate::side::{Level, Side, StreamProto};
use crate::table::{Stream, StreamSlab, StreamTable};

/// Packets that a direction generates before other directions have their turn.
const MAX_PER_TURN: u32 = 16;

impl StreamTable {
    /// Takes a datagram of an edited direction.
    pub(crate) fn take_edited_datagram(
        &mut self,
        (id, direction): (StreamId, usize),
        (segment, payload): (&Segment, &[u8]),
        is_short: bool,
        reader: &mut dyn StreamReader,
    ) -> Outcome {
        let Some(edit) = self.streams[id].edit else { return Outcome::PASS };
        let Some((decider, _)) = self.decider(id, direction, self.now_ms) else { return Outcome::PASS };
        let outcome = edit_datagram(decider, (segment, payload), is_short, reader);
        match outcome.verdict {
            StreamVerdict::Drop(why @ (StreamDrop::Stopped | StreamDrop::Broken)) => {
                self.edit.stop(edit, why)
            }
            StreamVerdict::Absorb => self.update_queues(id, None),
            StreamVerdict::Pass | StreamVerdict::Drop(_) => {
                let has_output = self.edit.streams[edit].sides[direction & 1].buffered.len() > 0;
                let queued =
                    DirectionId::new(edit, direction).filter(|_| has_output && outcome.edited.is_some());
                self.edit.datagram = queued.map(|queued| (id, queued));
            }
        }
        outcome
    }

    /// Frees the output of the last datagram.
    pub(crate) fn forget_last_datagram(&mut self) {
        if let Some((id, direction)) = self.edit.datagram.take()
            && let Some((decider, _)) = self.decider(id, direction.direction(), 0)
        {
            decider.forget_output();
        }
    }

    /// The state to decide about a direction, and the other direction.
    fn decider(&mut self, id: StreamId, direction: usize, now_ms: u64) -> Option<(Decider<'_>, &Side)> {
        let StreamTable { pool, streams, edit, .. } = self;
        let Stream { sides: [first, second], edit: edit_id, .. } = &mut streams[id];
        let (side, other) = if direction & 1 == 0 { (first, second) } else { (second, first) };
        let EditTable { streams, lists, scratch, .. } = edit;
        let edit = &mut streams[(*edit_id)?].sides[direction & 1];
        Some((Decider { side, edit, pool, lists, scratch, now_ms, datagrams: None }, other))
    }

    /// Updates the queues after a packet was taken or the editor was asked about held bytes. Stops the stream
    /// if that has failed.
    pub(crate) fn update_queues(&mut self, id: StreamId, failure: Option<StreamDrop>) {
        let Stream { sides, edit: Some(edit_id), .. } = &self.streams[id] else { return };
        if let Some(failure) = failure {
            return self.edit.stop(*edit_id, failure);
        }
        let EditStream { sides: edits, .. } = &mut self.edit.streams[*edit_id];
        for (edit, side) in edits.iter_mut().zip(sides) {
            edit.credit = CREDIT;
            edit.assert_sound(side, &self.edit.lists);
        }
        self.edit.queue_due(*edit_id, sides, (self.limits.hold_ms, self.now_ms));
    }

    /// The next direction that needs [`StreamTable::release`], for one of two reasons:
    ///
    /// - Its held bytes have waited for [`StreamLimits::hold_ms`](crate::StreamLimits::hold_ms), or for the
    ///   same time since the editor was asked last. `release` asks the editor again.
    /// - Its receiver does not acknowledge early-acknowledged bytes. `release` returns the error.
    ///
    /// Also queues output of early-acknowledged bytes that is to be retransmitted.
    pub fn next_due(&mut self, now_ms: u64) -> Option<(StreamId, usize)> {
        self.forget_last_datagram();
        self.now_ms = now_ms;
        self.poll_early_acked(now_ms).or_else(|| {
            let hold_ms = u64::from(self.limits.hold_ms.max(1));
            let StreamTable {
                streams: table, edit: EditTable { streams, waiting, waiting_long, .. }, ..
            } = self;
            let held = next_held((waiting, streams), table, now_ms, hold_ms, EditSide::hold_time_factor);
            held.or_else(|| next_held((waiting_long, streams), table, now_ms, u64::from(LONG_HOLD_MS), |_| 1))
        })
    }

    /// Polls the directions whose retransmission timers have expired. Returns a direction whose receiver does
    /// not answer.
    fn poll_early_acked(&mut self, now_ms: u64) -> Option<(StreamId, usize)> {
        while let Some(id) = self.edit.polled.first() {
            let StreamTable { streams, edit: EditTable { streams: edits, polled, ready, .. }, .. } = self;
            let EditStream { sides, stream, .. } = &mut edits[id.edit()];
            let mss = sides[1 - id.direction()].header_values.mss;
            let edit = &mut sides[id.direction()];
            if edit.next_poll_ms > now_ms {
                return None;
            }
            edit.next_poll_ms = now_ms + RETRY_MS;
            let stream = *stream;
            let is_answering = edit.poll(mss);
            polled.remove(edits, id);
            let Some(stream) = stream else { continue };
            if !is_answering {
                self.edit.stop(id.edit(), StreamDrop::Stopped);
                return Some((stream, id.direction()));
            }
            let (sides, direction) = (&streams[stream].sides, id.direction());
            let edit = &edits[id.edit()].sides;
            if edit[direction].needs_retransmit_timer(&sides[direction]) {
                polled.push(edits, id);
            }
            let edit = &edits[id.edit()].sides;
            if edit[direction].next_packet(&sides[direction], &sides[1 - direction], mss).is_some() {
                ready.push(edits, id);
            }
        }
        None
    }

    /// The time at which [`StreamTable::next_due`] has something; `None` while nothing is held or
    /// acknowledged early.
    pub fn due_ms(&self) -> Option<u64> {
        let EditTable { streams, waiting, waiting_long, polled, .. } = &self.edit;
        let side = |id: DirectionId| &streams[id.edit()].sides[id.direction()];
        let held = [waiting.first(), waiting_long.first()].into_iter().flatten().map(|id| side(id).due_ms);
        held.chain(polled.first().map(|id| side(id).next_poll_ms)).min()
    }

    /// Asks the editor again about the held bytes of a direction.
    ///
    /// # Errors
    /// The reader breaks, or memory is exhausted. The caller ends the connection.
    pub fn release(
        &mut self,
        id: StreamId,
        direction: usize,
        now_ms: u64,
        reader: &mut dyn StreamReader,
    ) -> Result<(), StreamDrop> {
        if let Some(why) = self.edit.failure(self.streams[id].edit) {
            return Err(why);
        }
        self.now_ms = now_ms;
        let hold_ms = u64::from(self.limits.hold_ms.max(1));
        let is_datagram = self.streams[id].proto() == StreamProto::Udp;
        let Some((mut decider, other)) = self.decider(id, direction, now_ms) else { return Ok(()) };
        let last_ack_sent = other.last_ack_sent();
        let (since_ms, old_decided) = (decider.edit.held_since_ms, decider.edit.decided);
        let waited_ms = Some(now_ms.saturating_sub(since_ms).min(u64::from(u32::MAX - 1)) as u32);
        let asked = Undecided { waited_ms, ..decider.question() };
        if is_datagram {
            decider.record_datagrams(0);
        }
        let mut released = decider.decide(&[], asked, reader);
        if released.is_ok() && is_datagram && decider.edit.held.len() == 0 {
            released = end_datagram(&mut decider);
        }
        let Decider { edit, side, lists, .. } = decider;
        if edit.decided == old_decided {
            edit.held_since_ms = since_ms;
        }
        if !is_datagram {
            edit.update_ack_due(side, lists, last_ack_sent);
        }
        self.update_queues(id, released.err());
        // The editor is asked again after the same time.
        if let Some(edit) = self.streams[id].edit {
            let edit = &mut self.edit.streams[edit].sides[direction & 1];
            if edit.hold_time == HoldTime::Configured || edit.due_ms <= now_ms {
                edit.due_ms = now_ms + hold_ms;
            }
        }
        released
    }

    /// Generates the next packet; `None` if no stream has a packet to generate. The caller sends the packet
    /// as if one of the two ends had sent it.
    pub fn generate(&mut self) -> Option<GeneratedSegment<'_>> {
        let window = if self.is_short() { 0 } else { self.limits.window };
        let StreamTable { pool, streams, out_of_order, edit: table, .. } = self;
        let (stream, direction, packet) = loop {
            let first = table.ready.first()?;
            let EditStream { sides: edits, stream, .. } = &table.streams[first.edit()];
            let (direction, stream) = (first.direction(), *stream);
            let packet = stream.and_then(|stream| {
                let sides = &streams[stream].sides;
                edits[direction].next_packet(
                    &sides[direction],
                    &sides[1 - direction],
                    edits[1 - direction].header_values.mss,
                )
            });
            if let (Some(stream), Some(packet)) = (stream, packet)
                && table.generated < MAX_PER_TURN
            {
                table.generated += 1;
                break (stream, first, packet);
            }
            table.generated = 0;
            table.ready.remove(&mut table.streams, first);
            if packet.is_some() {
                table.ready.push(&mut table.streams, first);
            }
        };
        let Stream { sides, owner, .. } = &mut streams[stream];
        let EditTable { streams, lists, payload, .. } = table;
        let edits = &mut streams[direction.edit()].sides;
        let (stream, direction) = ((stream, *owner), direction.direction());
        Some(
            PacketGenerator {
                pool,
                lists,
                out_of_order,
                sides,
                edits,
                stream,
                direction,
                window,
                buffer: payload,
            }
            .generate(packet),
        )
    }

    /// Requeues the contents of `edited`, because a TCP segment could not carry them. Packets are
    /// generated for these contents.
    pub fn requeue(&mut self, id: StreamId, direction: usize, edited: &EditedSegment) {
        let Some(edit_id) =
            self.convert_to_edited(id).filter(|edit| self.edit.failure(Some(*edit)).is_none())
        else {
            return;
        };
        let edit = &mut self.edit.streams[edit_id].sides[direction & 1];
        if let EditedPayload::Buffered { offset, len } = edited.payload {
            edit.retransmit.add(offset, offset + len as u64);
        }
        if edited.has_fin {
            edit.snd_nxt = edit.sent_end();
        }
        self.update_queues(id, None);
    }

    /// Copies the payload of a forwarded packet that has changed. `offset` and the length of `buffer` are
    /// those of the outcome. Must be called before the next packet is taken.
    pub fn copy_buffered(&self, id: StreamId, direction: usize, offset: u64, buffer: &mut [u8]) {
        let Stream { sides, edit, .. } = &self.streams[id];
        let (buffered, acked) = match edit {
            Some(edit) => {
                let edit = &self.edit.streams[*edit].sides[direction & 1];
                (&edit.buffered, edit.snd_una)
            }
            None => sides[direction & 1].guarded(),
        };
        let mut filled = 0;
        for slice in buffered.slices(&self.pool, offset.saturating_sub(acked) as usize, buffer.len()) {
            buffer[filled..filled + slice.len()].copy_from_slice(slice);
            filled += slice.len();
        }
        debug_assert_eq!(filled, buffer.len());
    }

    /// Bounds the payload of packets that are generated for a direction. An ICMP error has reported that
    /// longer packets do not fit the path.
    pub fn limit_payload(&mut self, id: StreamId, direction: usize, max_payload: u16) {
        let Stream { edit, header_values, .. } = self.streams[id];
        let header_values = match (edit, header_values) {
            (Some(edit), _) => &mut self.edit.streams[edit].sides[direction & 1].header_values,
            (None, Some(header_values)) => &mut self.edit.header_values[header_values][direction & 1],
            (None, None) => return,
        };
        header_values.path_payload =
            Some(header_values.path_payload.map_or(max_payload, |path| path.min(max_payload)));
    }

    /// Translates an output sequence number to input. The number comes from an acknowledgment of the
    /// direction's receiver, or from a packet of the direction that an ICMP error quotes.
    pub fn seq_to_input(&self, id: StreamId, direction: usize, seq: u32) -> u32 {
        match self.edited(id, direction) {
            Some((side, edit)) => edit.output_to_input(side, &self.edit.lists, edit.output_offset(side, seq)),
            None => seq,
        }
    }

    /// Translates a SACK block from output to input. `None` if the block has no whole byte of input, or
    /// begins in bytes that were acknowledged early.
    pub fn sack_to_input(&self, id: StreamId, direction: usize, [left, right]: [u32; 2]) -> Option<[u32; 2]> {
        let Some((side, edit)) = self.edited(id, direction) else { return Some([left, right]) };
        let lists = &self.edit.lists;
        let offset = |number| edit.output_offset(side, number).max(0).cast_unsigned().min(edit.out_end);
        let (left, right) = (offset(left), offset(right));
        let [left, right] = [edit.map.input_ceil(lists, left), edit.input_floor(lists, right)];
        // The sender would take a block that begins where its acknowledgment ends as a sign that its receiver
        // has discarded bytes.
        let is_early_acked = edit.has_early_acked(side) && left <= edit.early_acked;
        (left < right && !is_early_acked).then(|| [side.seq(left), side.seq(right)])
    }

    /// The states of an edited direction whose receiver acknowledges output; `None` for a direction of a
    /// plain stream.
    fn edited(&self, id: StreamId, direction: usize) -> Option<(&Side, &EditSide)> {
        self.states(id, direction).filter(|_| self.ack_space == AckSpace::Wire)
    }

    /// The states of an edited direction; `None` for a direction of a plain stream.
    pub(crate) fn states(&self, id: StreamId, direction: usize) -> Option<(&Side, &EditSide)> {
        let stream = &self.streams[id];
        let side = &stream.sides[direction & 1];
        let edit = stream.edit.filter(|_| side.level == Level::Edit && side.has_begun)?;
        Some((side, &self.edit.streams[edit].sides[direction & 1]))
    }

    /// For each direction: what to add to the sender's sequence numbers to get the receiver's, if that is
    /// constant. It is constant if nothing is held, buffered or out of order, and no edit is unacknowledged.
    /// Once it is constant and no rule edits the stream, a connection needs only its shifts.
    pub fn constant_shifts(&self, id: StreamId) -> Option<[u32; 2]> {
        let stream = &self.streams[id];
        let edits = stream.edit.map(|edit| &self.edit.streams[edit].sides);
        let mut shifts = [0; 2];
        for (direction, side) in stream.sides.iter().enumerate() {
            if side.level != Level::Edit {
                continue;
            }
            let (buffered, shift) = match edits.map(|edits| &edits[direction]) {
                Some(edit) => (edit.buffered.len() + edit.held.len(), edit.map.constant_shift()?),
                None => (side.buffered(), 0),
            };
            if buffered > 0 || side.out_of_order.is_some() {
                return None;
            }
            shifts[direction] = shift as u32;
        }
        Some(shifts)
    }

    /// Whether sender and receiver use the same sequence numbers in both directions: the stream has no edits,
    /// or no edit changed a length, or the protocol is UDP.
    #[inline]
    pub fn is_unshifted(&self, id: StreamId) -> bool {
        let stream = &self.streams[id];
        let is_shifted = |edit: EditId| self.edit.streams[edit].sides.iter().any(|side| side.is_shifted);
        stream.proto() == StreamProto::Udp || !stream.edit.is_some_and(is_shifted)
    }

    /// Whether a direction of a stream is edited.
    pub fn is_edited(&self, id: StreamId) -> bool {
        self.streams[id].header_values.is_some()
    }

    /// Number of records for edits: one for each stream with edits, another one for each stream that is not
    /// plain, and one for each direction with unacknowledged edits.
    pub fn edit_records(&self) -> usize {
        self.edit.streams.len() + self.edit.header_values.len() + self.edit.lists.len()
    }

    /// Converts a plain stream to an edited one. `None` if the stream has no edits, or memory is exhausted.
    fn convert_to_edited(&mut self, id: StreamId) -> Option<EditId> {
        let StreamTable { streams, edit: table, limits, ack_space, .. } = self;
        let Stream { sides, edit, header_values, .. } = &mut streams[id];
        if edit.is_none() {
            let header_values = (*header_values)?;
            *edit = table
                .convert_to_edited((id, header_values), sides.each_mut(), limits.window, *ack_space)
                .ok();
        }
        *edit
    }

    /// Converts a stream that may be plain to a plain one, and frees its edit state.
    pub(crate) fn convert_to_plain(&mut self, id: StreamId) {
        let Stream { sides, edit, header_values, .. } = &mut self.streams[id];
        if let (Some(edit), Some(header_values)) = (edit.take(), *header_values) {
            self.edit.convert_to_plain(edit, header_values, sides);
        }
    }

    /// Frees the edit state of a stream.
    pub(crate) fn end_edit(&mut self, edit: EditId) {
        self.edit.close(edit, &mut self.pool);
    }
}

/// The next direction of a queue whose bytes were held for long enough: for `hold_ms`, multiplied by
/// `factor`.
fn next_held<const QUEUE: usize>(
    (queue, streams): (&mut DirectionQueue<QUEUE>, &mut EditStreams),
    table: &StreamSlab,
    now_ms: u64,
    hold_ms: u64,
    factor: impl Fn(&EditSide) -> u64,
) -> Option<(StreamId, usize)> {
    while let Some(id) = queue.first() {
        let EditStream { sides, stream, .. } = &streams[id.edit()];
        let (edit, stream) = (&sides[id.direction()], *stream);
        if edit.due_ms > now_ms {
            return None;
        }
        // The missing bytes may already be buffered out of order, after bytes that were lost.
        let is_out_of_order =
            stream.is_some_and(|stream| table[stream].sides[id.direction()].out_of_order.is_some());
        let due_ms = match is_out_of_order || edit.is_window_closed() {
            true => now_ms + hold_ms,
            false => (edit.held_since_ms + hold_ms * factor(edit)).min(now_ms + hold_ms),
        };
        queue.remove(streams, id);
        if let Some(stream) = stream.filter(|_| due_ms <= now_ms) {
            return Some((stream, id.direction()));
        }
        // Earlier bytes were decided in the meantime, or the sender cannot have sent the missing bytes.
        queue.push(streams, id);
        streams[id.edit()].sides[id.direction()].due_ms = due_ms;
    }
    None
}
