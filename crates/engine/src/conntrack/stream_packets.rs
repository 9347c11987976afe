//! Packets of edited streams: changes packets, generates packets, and decides on bytes that were held
//! for the maximum time.
//!
//! A generated packet has the headers that the last packet of the same end had on arrival
//! ([`EditedConnection`]). The stream provides its numbers and bytes.

use super::edited_connections::EditedConnection;
use super::helper_control::ControlConnection;
use super::stream_follow::{Followed, StreamPacket};
use super::stream_header::edit_segment;
use super::stream_ref::FollowedId;
use super::stream_search::{Decided, Fired, StreamSearch};
use super::streams::{FollowedStream, ReceiverReset, StreamEnd, StreamPhase, Streams};
use super::tracking::Conntrack;
use crate::compiled::Snapshot;
use crate::drop::DropReason;
use crate::generated::{GeneratedKind, HeaderTemplate, ResetNumbers};
use crate::verdict::ReturnedPacket;
use mmb_base::Id;
use mmb_conn::{CloseReason, ConnId, Direction};
use mmb_packet::{Layout, Packet, proto};
use mmb_rewrite::NotApplied;
use mmb_stream::{AckSpace, Outcome, ResetTarget, Segment, SegmentPurpose, StreamDrop, StreamId};

impl Conntrack {
    /// See [`Worker::set_ack_space`](crate::Worker::set_ack_space).
    pub(crate) fn set_ack_space(&mut self, acks: AckSpace) {
        self.state.streams.acks = acks;
        self.state.streams.table.set_ack_space(acks);
    }

    /// Writes the numbers and the payload that its stream provides into a packet. If a TCP payload does not
    /// fit, the packet is absorbed and the stream generates packets instead.
    pub(super) fn edit_packet(
        &mut self,
        stream_packet: StreamPacket,
        stream: StreamId,
        (segment, outcome): (&Segment, &Outcome),
        packet: &mut Packet<'_>,
        layout: &mut Layout,
    ) -> Followed {
        if outcome.leaves_unchanged(segment) {
            return Followed::Passes;
        }
        let (id, direction) = stream_packet.member;
        let shift = self.ack_shift(id, direction);
        let table = &mut self.state.streams.table;
        let back = 1 - direction as usize;
        let has_room = edit_segment(
            (outcome, shift),
            packet,
            layout,
            |offset, bytes| table.copy_buffered(stream, direction as usize, offset, bytes),
            |block| table.sack_to_input(stream, back, block),
        );
        if has_room {
            return Followed::Passes;
        }
        if layout.l4_kind != proto::TCP {
            // A datagram cannot be split, so it passes unchanged.
            self.state.cells.count_not_applied(NotApplied::NoRoom);
            return Followed::Passes;
        }
        if let Some(edited) = &outcome.edited {
            table.requeue(stream, direction as usize, edited);
        }
        Followed::Absorbed
    }

    /// The number to add to the acknowledgment numbers and SACK edges of a direction, to convert them to the
    /// sequence space of the end that sent the acknowledged bytes. Does not consider edits.
    pub(super) fn ack_shift(&self, id: ConnId, direction: Direction) -> u32 {
        self.table.ids(id).extension.map_or(0, |id| self.state.extensions.get(id).ack(direction))
    }

    /// Stores the headers of a packet as the template for packets that an edited stream generates.
    #[inline]
    pub(super) fn note_headers(
        &mut self,
        stream_packet: &StreamPacket,
        id: FollowedId,
        packet: &Packet<'_>,
        layout: &Layout,
    ) {
        let Streams { followed, edited, .. } = &mut self.state.streams;
        let Some(edited) = followed[id].edited.map(|id| &mut edited[id]) else { return };
        let (member, direction) = stream_packet.member;
        edited.member = Some(member);
        HeaderTemplate::store(&mut edited.headers[direction as usize], packet, layout);
    }

    /// Passes the next packet that a stream generates to `out`. Returns `None` if no packet is left, and
    /// `Some(None)` if a packet was generated and not sent. `out` returns false if no buffer is free: the
    /// packet is then lost as if the network had lost it, and not counted.
    pub(crate) fn return_segment(
        &mut self,
        out: &mut impl FnMut(ReturnedPacket<'_>) -> bool,
    ) -> Option<Option<GeneratedKind>> {
        let Conntrack { table, state, generated_bytes, .. } = self;
        let Streams { table: streams, followed, edited, .. } = &mut state.streams;
        let made = streams.generate()?;
        let kind = match made.purpose {
            SegmentPurpose::Data | SegmentPurpose::Datagram { .. } => GeneratedKind::Data,
            SegmentPurpose::Acknowledgment => GeneratedKind::Acknowledgment,
        };
        let direction = if made.direction == 0 { Direction::Forward } else { Direction::Reply };
        let known = FollowedId::new(made.owner).and_then(|id| followed[id].edited).map(|id| edited[id]);
        let Some((EditedConnection { headers, .. }, member)) =
            known.and_then(|known| known.member.map(|member| (known, member)))
        else {
            return Some(None);
        };
        // Streams generate packets only after both ends have sent something.
        let Some(headers) = headers[direction as usize] else { return Some(None) };
        let ports = table.tuples(member)[direction as usize].ports;
        let shift = table.ids(member).extension.map_or(0, |id| state.extensions.get(id).ack(direction));
        headers.segment(ports, shift, &made, generated_bytes);
        let returned =
            ReturnedPacket { held: None, port: headers.port(), link: headers.link(), bytes: generated_bytes };
        Some(out(returned).then_some(kind))
    }

    /// Decides again on the bytes that streams have held for the maximum time. Queues retransmissions
    /// that are due, and ends connections whose receiver no longer answers.
    pub(crate) fn release_streams(&mut self, snapshot: &Snapshot) {
        self.trace_packet(None);
        while let Some((stream, direction)) = self.state.streams.table.next_due(self.state.now_ms) {
            let id = FollowedId::new(self.state.streams.table.owner(stream));
            self.release_stream(snapshot, stream, direction);
            // The other direction may wait for the end of a message in this direction.
            id.into_iter().for_each(|id| self.release_other(snapshot, id, direction));
        }
    }

    /// The time at which [`Conntrack::release_streams`] has something to do.
    pub(crate) fn streams_due_ms(&self) -> Option<u64> {
        self.state.streams.table.due_ms()
    }

    /// If edits have changed a length, makes the quick pass leave the packets of the connection: the quick
    /// pass compares numbers as they arrive.
    pub(super) fn forget_numbers(&mut self, member: ConnId, stream: StreamId) {
        if !self.state.streams.table.is_unshifted(stream) {
            [Direction::Forward, Direction::Reply]
                .into_iter()
                .for_each(|known| self.table.clear_verdict(member, known));
        }
    }

    /// Decides again on the bytes of the other direction, if they wait for the content of a packet of this
    /// direction.
    pub(super) fn release_other(&mut self, snapshot: &Snapshot, id: FollowedId, direction: usize) {
        let Streams { followed, tools, .. } = &self.state.streams;
        let Some(stream) = followed[id].stream else { return };
        if followed[id].http().is_some_and(|http| tools.http.may_resume(http, 1 - direction)) {
            self.release_stream(snapshot, stream, 1 - direction);
        }
    }

    fn release_stream(&mut self, snapshot: &Snapshot, stream: StreamId, direction: usize) {
        let Conntrack { table: connections, state, .. } = self;
        let Some(id) = FollowedId::new(state.streams.table.owner(stream)) else { return };
        let member = state.streams.followed[id].edited.and_then(|id| state.streams.edited[id].member);
        let Some(member) = member else { return };
        let live = match connections.ids(member).rule_set {
            Some(set) => state.sets.live(snapshot, set),
            None => &[],
        };
        let Streams { table, followed, tools, .. } = &mut state.streams;
        let rules = (snapshot, &snapshot.cells[state.worker], live);
        let FollowedStream { phase: StreamPhase::Searched(search), searches, .. } = &mut followed[id] else {
            return;
        };
        let searches = *searches;
        let control = ControlConnection {
            connections,
            shared: &state.shared,
            id: member,
            worker: state.worker,
            now_ms: state.now_ms,
        };
        let mut search = StreamSearch::new(rules, (search, searches), (tools, &state.cells), control);
        let released = table.release(stream, direction, state.now_ms, &mut search);
        let found = search.into_found();
        self.send_found_events(snapshot, member, &found);
        self.forget_numbers(member, stream);
        let end = match (released, found.decided) {
            (Ok(()), _) => return,
            (Err(_), Some(decided)) => {
                self.send_end(snapshot, member, decided);
                let Decided { fired: Fired { slot, .. }, closes } = decided;
                let receiver_reset = match closes {
                    true => ReceiverReset::Each(self.reset_both_by_headers(member, id)),
                    false => ReceiverReset::Never,
                };
                StreamEnd { reason: DropReason::Rule, rule: Some(slot), answers: closes, receiver_reset }
            }
            (Err(why), None) => {
                let reason = match why {
                    StreamDrop::Broken => DropReason::StreamNoRoom,
                    _ if found.is_unfit() => DropReason::HttpUnfit,
                    _ if found.has_no_room => DropReason::StreamNoRoom,
                    _ => DropReason::StreamHeld,
                };
                let receiver_reset = ReceiverReset::Each(self.reset_both_by_headers(member, id));
                StreamEnd { reason, rule: None, answers: true, receiver_reset }
            }
        };
        self.state.streams.stop(id, end);
    }

    /// Makes a RST for each end, with the stored headers of the connection's packets. Returns the sequence
    /// numbers of the RSTs, by direction.
    pub(super) fn reset_both_by_headers(&mut self, member: ConnId, id: FollowedId) -> [Option<u32>; 2] {
        let mut targets = [None; 2];
        let FollowedStream { stream: Some(stream), edited: Some(edited), .. } =
            self.state.streams.followed[id]
        else {
            return [None; 2];
        };
        let headers = self.state.streams.edited[edited].headers;
        for direction in [Direction::Forward, Direction::Reply] {
            let target = self.state.streams.table.reset_target(stream, direction.opposite() as usize);
            targets[direction as usize] =
                headers[direction as usize].and_then(|headers| Some((headers, target?)));
        }
        if self.may_reset(targets.iter().flatten().count()) {
            for direction in [Direction::Forward, Direction::Reply] {
                let Some((headers, ResetTarget { seq, ack })) = targets[direction as usize] else { continue };
                let shift = self.ack_shift(member, direction);
                let ports = self.table.tuples(member)[direction as usize].ports;
                let numbers = ResetNumbers { seq, ack: ack.map(|ack| ack.wrapping_sub(shift)) };
                self.generated.push(headers.reset(ports, numbers));
            }
        }
        self.reset(member);
        targets.map(|target| Some(target?.1.seq))
    }

    /// Ends a connection. If an edit has changed a length, resets the connection instead: its ends do not
    /// understand each other without the stream. It then stays as long as other connections that were reset.
    pub(super) fn end_or_close(&mut self, member: ConnId, reason: CloseReason) {
        let streams = &self.state.streams;
        let stream = self.state.stream_of(self.table.ids(member).extension);
        let followed = stream.and_then(|stream| streams.live(stream));
        let is_shifted = |id: FollowedId| {
            streams.followed[id].stream.is_some_and(|stream| !streams.table.is_unshifted(stream))
        };
        let Some(id) = followed.filter(|id| is_shifted(*id)) else { return self.end(member, reason) };
        let receiver_reset = ReceiverReset::Each(self.reset_both_by_headers(member, id));
        self.state.streams.stop(
            id,
            StreamEnd { reason: DropReason::StreamLost, rule: None, answers: true, receiver_reset },
        );
    }
}
