//! Packets of connections with streams: passes each packet to its stream, and does what the rules that match
//! demand.
//!
//! `close` drops the packet that completes the match and sends a RST to each end. Each RST looks as if the
//! other end had sent it. Every later packet other than a RST is dropped and answered with a RST that its
//! sender accepts (RFC 5961, section 3.2). This covers the loss of one of the first two RSTs, and the case
//! that a RST does not have the number that its receiver expects. RSTs count against `answer rate`. If the
//! rate is used up, no RST is sent, and the next packet of the connection is answered.

use super::helper_control::ControlConnection;
use super::key;
use super::stream_event::{StreamEventKind, UnfitMessage};
use super::stream_header::{change_segment, stream_segment};
use super::stream_ref::{FollowedId, StreamRef};
use super::stream_search::{Decided, Fired, FoundInBytes, StreamSearch};
use super::streams::{FollowedStream, ReceiverReset, StreamEnd, StreamPhase, Streams};
use super::tracking::Conntrack;
use crate::compiled::Snapshot;
use crate::drop::DropReason;
use crate::generated::{HeaderTemplate, ResetNumbers};
use crate::rate::Ticks;
use crate::verdict::Verdict;
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_conn::{ConnId, Direction, TcpSegment};
use mmb_packet::checksum::{Soundness, transport_soundness};
use mmb_packet::{Layout, Packet, PortId};
use mmb_rewrite::NotApplied;
use mmb_stream::{Level, Outcome, ResetTarget, Segment, StreamDrop, StreamVerdict, flag};

/// A packet of a stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamPacket {
    pub(crate) stream: StreamRef,
    pub(crate) member: (ConnId, Direction),
    /// The egress port of the packet.
    pub(crate) out: PortId,
}

/// What happens to a packet of a stream that is not dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Followed {
    /// It is forwarded.
    Passes,
    /// It is not forwarded, because the stream has taken over its bytes.
    Absorbed,
}

/// Why a packet of a stream is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamRefusal {
    pub(crate) reason: DropReason,
    /// The rule that drops it.
    pub(crate) rule: Option<RuleSlot>,
}

impl StreamRefusal {
    fn new(reason: DropReason) -> StreamRefusal {
        StreamRefusal { reason, rule: None }
    }
}

impl From<StreamEnd> for StreamRefusal {
    fn from(end: StreamEnd) -> StreamRefusal {
        StreamRefusal { reason: end.reason, rule: end.rule }
    }
}

impl Conntrack {
    /// The packets that the quick pass processed and that belong to streams, with their egress ports.
    pub(crate) fn quick_streams(&self, verdicts: &[Verdict]) -> impl Iterator<Item = (u8, StreamPacket)> {
        self.quick.followed.iter().filter_map(|&(packet, id, direction)| {
            let stream = self.state.stream_of(self.table.ids(id).extension)?;
            let Verdict::Send(out) = verdicts[usize::from(packet)] else { return None };
            Some((packet, StreamPacket { stream, member: (id, direction), out }))
        })
    }

    /// Prefetches what [`Conntrack::follow_stream`] reads first.
    #[inline]
    pub(crate) fn prefetch_stream(&self, stream_packet: &StreamPacket) {
        self.state.streams.prefetch(stream_packet.stream);
    }

    /// Prefetches what [`Conntrack::follow_stream`] reads next, after [`Conntrack::prefetch_stream`].
    #[inline]
    pub(crate) fn prefetch_records(&self, stream_packet: &StreamPacket) {
        self.state.streams.prefetch_records(stream_packet.stream);
    }

    /// Prefetches what edits need, after [`Conntrack::prefetch_records`].
    #[inline]
    pub(crate) fn prefetch_edit(&self, stream_packet: &StreamPacket) {
        if stream_packet.stream.is_edited {
            self.state.streams.prefetch_edit(stream_packet.stream, stream_packet.member.1 as usize);
        }
    }

    /// Passes a packet to its stream. May change the packet's payload and TCP header, and then updates
    /// `layout`.
    ///
    /// # Errors
    /// The packet must be dropped, for this reason.
    pub(crate) fn follow_stream(
        &mut self,
        snapshot: &Snapshot,
        stream_packet: StreamPacket,
        packet: &mut Packet<'_>,
        layout: &mut Layout,
    ) -> Result<Followed, StreamRefusal> {
        let (id, direction) = stream_packet.member;
        // The verdict on a later packet of the vector may have ended the connection.
        let Some(followed) = self.state.streams.live(stream_packet.stream) else {
            return Err(StreamRefusal::new(DropReason::ConnInvalid));
        };
        let segment = key::segment(packet, layout).map(|segment| self.shifted(id, direction, segment));
        if let Some(end) = self.state.streams.followed[followed].end() {
            if let Some(segment) = segment.filter(|segment| end.answers && segment.flags & flag::RST == 0) {
                self.answer_ended((stream_packet, followed), end, &segment, packet, layout);
            }
            return Err(end.into());
        }
        let Some(stream) = self.state.streams.followed[followed].stream else {
            let StreamPhase::Finished(ends) = self.state.streams.followed[followed].phase else {
                return Ok(Followed::Passes);
            };
            let passes = match segment {
                Some(TcpSegment { seq, flags, payload, .. }) => {
                    ends.pass(direction as usize, &Segment { seq, flags, payload, ..Segment::default() })
                }
                // A later fragment has no TCP header to check.
                None => !ends.are_guarded(),
            };
            return match passes {
                true => Ok(Followed::Passes),
                false if layout.is_fragment() => Err(StreamRefusal::new(DropReason::StreamFragment)),
                false => Err(StreamRefusal::new(DropReason::StreamOutOfWindow)),
            };
        };
        let guards = self.state.streams.table.levels(stream)[direction as usize] >= Level::Guard;
        if layout.is_fragment() {
            return match guards {
                true => Err(StreamRefusal::new(DropReason::StreamFragment)),
                false => Ok(Followed::Passes),
            };
        }
        let mut segment = segment.map(|segment| stream_segment(&segment, packet, layout)).unwrap_or_default();
        if stream_packet.stream.is_edited {
            segment.max_payload = max_payload(snapshot, packet, layout);
        }
        segment.is_corrupt = transport_soundness(packet.bytes(), layout) == Soundness::Wrong;
        let outcome = self.take_in(snapshot, (stream_packet, followed), &segment, packet, layout)?;
        if stream_packet.stream.is_edited {
            self.note_headers(&stream_packet, followed, packet, layout);
        }
        self.note_closed(id, stream_packet.stream);
        if stream_packet.stream.is_edited {
            let done = match outcome.verdict {
                StreamVerdict::Absorb => Followed::Absorbed,
                StreamVerdict::Pass | StreamVerdict::Drop(_) => {
                    self.edit_packet(stream_packet, stream, (&segment, &outcome), packet, layout)
                }
            };
            self.forget_numbers(id, stream);
            self.release_other(snapshot, followed, direction as usize);
            return Ok(done);
        }
        change_segment(&outcome, packet, layout);
        Ok(Followed::Passes)
    }

    /// Passes a packet to its stream, which searches the bytes that are in order now.
    fn take_in(
        &mut self,
        snapshot: &Snapshot,
        (stream_packet, id): (StreamPacket, FollowedId),
        segment: &Segment,
        packet: &mut Packet<'_>,
        layout: &Layout,
    ) -> Result<Outcome, StreamRefusal> {
        let direction = stream_packet.member.1 as usize;
        let Conntrack { table: connections, state, .. } = self;
        let live = match connections.ids(stream_packet.member.0).rule_set {
            Some(set) => state.sets.live(snapshot, set),
            None => &[],
        };
        let Streams { table, followed, tools, .. } = &mut state.streams;
        let followed = &mut followed[id];
        let FollowedStream { stream: Some(stream), phase: StreamPhase::Searched(search), searches, .. } =
            followed
        else {
            return Ok(Outcome::PASS);
        };
        let (stream, searches) = (*stream, *searches);
        let rules = (snapshot, &snapshot.cells[state.worker], live);
        let control = ControlConnection {
            connections,
            shared: &state.shared,
            id: stream_packet.member.0,
            worker: state.worker,
            now_ms: state.now_ms,
        };
        let mut search = StreamSearch::new(rules, (search, searches), (tools, &state.cells), control);
        let payload = packet.bytes_mut().get_mut(layout.payload_range()).unwrap_or_default();
        let outcome = table.take(stream, direction, segment, payload, state.now_ms, &mut search);
        let passes = matches!(outcome.verdict, StreamVerdict::Pass | StreamVerdict::Absorb);
        if passes && !search.has_news() {
            return Ok(outcome);
        }
        let found = search.into_found();
        self.send_found_events(snapshot, stream_packet.member.0, &found);
        let reason = match outcome.verdict {
            StreamVerdict::Pass | StreamVerdict::Absorb => return Ok(outcome),
            StreamVerdict::Drop(StreamDrop::BadChecksum) => DropReason::StreamBadChecksum,
            StreamVerdict::Drop(StreamDrop::OutOfWindow) => DropReason::StreamOutOfWindow,
            StreamVerdict::Drop(StreamDrop::Urgent) => DropReason::StreamUrgent,
            StreamVerdict::Drop(StreamDrop::NoRoom) => {
                // Other streams are ended only if memory is short: the cause may also be one sender, for
                // example one with too many ranges out of order.
                if self.state.streams.table.is_short() {
                    self.reset_idle();
                }
                DropReason::StreamNoRoom
            }
            StreamVerdict::Drop(StreamDrop::Broken) => {
                let end = self.reset_stream(stream_packet, id, DropReason::StreamNoRoom, packet, layout);
                return Err(end.into());
            }
            StreamVerdict::Drop(StreamDrop::Stopped) if found.is_unfit() => {
                let end = self.reset_stream(stream_packet, id, DropReason::HttpUnfit, packet, layout);
                return Err(end.into());
            }
            StreamVerdict::Drop(StreamDrop::Stopped)
                if found.has_no_room && stream_packet.stream.is_edited =>
            {
                let end = self.reset_stream(stream_packet, id, DropReason::StreamNoRoom, packet, layout);
                return Err(end.into());
            }
            StreamVerdict::Drop(StreamDrop::Stopped) if found.has_no_room => DropReason::StreamNoRoom,
            // Bytes that may be the beginning of a match were held for too long (`set stream hold-over
            // close`).
            StreamVerdict::Drop(StreamDrop::Stopped)
                if found.decided.is_none() && stream_packet.stream.is_edited =>
            {
                let end = self.reset_stream(stream_packet, id, DropReason::StreamHeld, packet, layout);
                return Err(end.into());
            }
            StreamVerdict::Drop(StreamDrop::Stopped) => {
                let end = found
                    .decided
                    .map(|decided| self.decide(snapshot, (stream_packet, id), decided, packet, layout));
                return Err(end.map_or(StreamRefusal::new(DropReason::Rule), StreamRefusal::from));
            }
        };
        Err(StreamRefusal::new(reason))
    }

    /// Reports what was found and edited in the bytes of a connection.
    #[cold]
    pub(super) fn send_found_events(&mut self, snapshot: &Snapshot, member: ConnId, found: &FoundInBytes) {
        self.settle_edits(snapshot, member);
        if let Some(set) = self.table.ids(member).rule_set {
            (0..found.expected).for_each(|_| self.state.sets.add_user(set));
        }
        found.unfit_message.into_iter().for_each(|message| self.send_unfit(member, message));
        found.fired.iter().for_each(|fired| self.send_alert(snapshot, member, *fired));
    }

    /// Sends an event for a match of a rule with `alert`.
    fn send_alert(&mut self, snapshot: &Snapshot, member: ConnId, fired: Fired) {
        let Some(rule) = snapshot.stateful(fired.slot).filter(|_| self.state.is_watched()) else { return };
        let Some(text) = rule.stream.as_ref().and_then(|stream| stream.alert.clone()) else { return };
        let connection = self.table.get(member);
        let place = (fired.direction == 1, fired.end);
        self.state.send_stream_event(&connection, Some(rule.id), place, StreamEventKind::Alert { text });
    }

    /// Sends an event for a message that is not read as HTTP/1.x.
    #[cold]
    fn send_unfit(&mut self, member: ConnId, message: UnfitMessage) {
        let UnfitMessage { direction, end, reason, passes } = message;
        let connection = self.table.get(member);
        let kind = StreamEventKind::HttpUnfit { reason, passes };
        self.state.send_stream_event(&connection, None, (direction == 1, end), kind);
    }

    /// Ends a connection because of a rule that has matched.
    fn decide(
        &mut self,
        snapshot: &Snapshot,
        (stream_packet, id): (StreamPacket, FollowedId),
        decided: Decided,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> StreamEnd {
        self.send_end(snapshot, stream_packet.member.0, decided);
        let Decided { fired: Fired { slot, .. }, closes } = decided;
        let receiver_reset = match closes && layout.l4_kind == mmb_packet::proto::TCP {
            true => ReceiverReset::Each(self.reset_both(stream_packet, id, packet, layout)),
            false => ReceiverReset::Never,
        };
        let end = StreamEnd { reason: DropReason::Rule, rule: Some(slot), answers: closes, receiver_reset };
        self.state.streams.stop(id, end);
        end
    }

    /// Sends an event for a connection that a rule ends.
    pub(super) fn send_end(&mut self, snapshot: &Snapshot, member: ConnId, decided: Decided) {
        let Decided { fired, closes } = decided;
        let Some(rule) = snapshot.stateful(fired.slot).filter(|_| self.state.is_watched()) else { return };
        let kind = if closes { StreamEventKind::Close } else { StreamEventKind::Drop };
        let connection = self.table.get(member);
        self.state.send_stream_event(&connection, Some(rule.id), (fired.direction == 1, fired.end), kind);
    }

    /// Ends a connection whose stream cannot continue.
    #[cold]
    fn reset_stream(
        &mut self,
        stream_packet: StreamPacket,
        id: FollowedId,
        reason: DropReason,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> StreamEnd {
        let receiver_reset = ReceiverReset::Each(self.reset_both(stream_packet, id, packet, layout));
        let end = StreamEnd { reason, rule: None, answers: true, receiver_reset };
        self.state.streams.stop(id, end);
        end
    }

    /// Makes a RST for each end of a connection, with the headers of a packet of either end. Returns the
    /// sequence numbers of the RSTs, by direction.
    fn reset_both(
        &mut self,
        stream_packet: StreamPacket,
        id: FollowedId,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> [Option<u32>; 2] {
        let mut targets = [None; 2];
        let Some(stream) = self.state.streams.followed[id].stream else { return [None; 2] };
        let directions = [Direction::Forward, Direction::Reply];
        for direction in directions {
            // A RST of this direction goes to the end that receives the direction.
            let end = direction.opposite() as usize;
            targets[direction as usize] = self.state.streams.table.reset_target(stream, end);
        }
        if self.may_reset(targets.iter().flatten().count()) {
            for direction in directions {
                if let Some(target) = targets[direction as usize] {
                    self.make_reset(stream_packet, direction, target, packet, layout);
                }
            }
        }
        self.reset(stream_packet.member.0);
        targets.map(|target| Some(target?.seq))
    }

    /// Whether `answer rate` allows `count` RSTs for one packet now. If not, the connection has ended
    /// nevertheless: each end that still sends is answered as soon as the rate allows it.
    pub(super) fn may_reset(&mut self, count: usize) -> bool {
        let Some(limit) = self.reset_limit.filter(|_| count > 0) else { return true };
        let now = Ticks::from_ns(self.state.now_ns);
        let may = self.state.shared.reset.take_units(&limit, count as u64, now);
        if !may {
            self.state.cells.count_not_applied(NotApplied::AnswerRate);
        }
        may
    }

    /// Answers a packet of an ended connection with a RST. Also makes RSTs for the packet's receiver, as
    /// `end.receiver_reset` demands.
    fn answer_ended(
        &mut self,
        (stream_packet, id): (StreamPacket, FollowedId),
        end: StreamEnd,
        segment: &TcpSegment,
        packet: &Packet<'_>,
        layout: &Layout,
    ) {
        let direction = stream_packet.member.1;
        let next_seq = segment.seq.wrapping_add(segment.payload);
        let seqs = match end.receiver_reset {
            ReceiverReset::Never => [None; 2],
            // The receiver may not send anything by itself. It answers a RST in its window with the number
            // that it expects (RFC 5961, section 3.2), and then gets a RST with that number.
            ReceiverReset::Unknown(answered) => {
                let is_needed = !answered[direction.opposite() as usize] && segment.payload > 0;
                [is_needed.then_some(segment.seq), None]
            }
            // The receiver expects the segment, or has already received it and expects the next one.
            ReceiverReset::Once => [Some(segment.seq), (segment.payload > 0).then_some(next_seq)],
            ReceiverReset::Each(seqs) => {
                let occupies = segment.payload > 0 || segment.flags & (flag::SYN | flag::FIN) != 0;
                [seqs[direction as usize].filter(|_| occupies), None]
            }
        };
        if !self.may_reset(1 + seqs.iter().flatten().count()) {
            return;
        }
        self.answer(stream_packet, segment, packet, layout);
        for seq in seqs.into_iter().flatten() {
            self.make_reset(stream_packet, direction, ResetTarget { seq, ack: None }, packet, layout);
        }
        let receiver_reset = match end.receiver_reset {
            ReceiverReset::Never | ReceiverReset::Each(_) => return,
            ReceiverReset::Unknown(mut answered) => {
                answered[direction as usize] = true;
                ReceiverReset::Unknown(answered)
            }
            ReceiverReset::Once => ReceiverReset::Never,
        };
        self.state.streams.followed[id].phase = StreamPhase::Ended(StreamEnd { receiver_reset, ..end });
        if matches!(receiver_reset, ReceiverReset::Never | ReceiverReset::Unknown([true, true])) {
            self.reset(stream_packet.member.0);
        }
    }

    /// Answers a packet of an ended connection with a RST that the packet's sender accepts: RFC 9293, section
    /// 3.10.7.1.
    fn answer(
        &mut self,
        stream_packet: StreamPacket,
        segment: &TcpSegment,
        packet: &Packet<'_>,
        layout: &Layout,
    ) {
        let target = match segment.flags & flag::ACK != 0 {
            true => ResetTarget { seq: segment.ack, ack: None },
            false => {
                let numbered = (segment.flags & (flag::SYN | flag::FIN)).count_ones();
                let taken = segment.payload + numbered;
                ResetTarget { seq: 0, ack: Some(segment.seq.wrapping_add(taken)) }
            }
        };
        self.make_reset(stream_packet, stream_packet.member.1.opposite(), target, packet, layout);
    }

    /// Whether a packet is a SYN with which an end replaces a restored connection that must not continue. The
    /// end was answered with a RST before.
    pub(super) fn reopens_lost(
        &self,
        (id, direction): (ConnId, Direction),
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> bool {
        let streams = &self.state.streams;
        let stream = self.state.stream_of(self.table.ids(id).extension);
        let end = stream.and_then(|stream| streams.followed[streams.live(stream)?].end());
        matches!(end, Some(StreamEnd { receiver_reset: ReceiverReset::Unknown(answered), .. }) if answered[direction as usize])
            && key::begins_connection(packet, layout)
    }

    /// Generates a RST of a direction, with the headers of `packet` (of either direction).
    fn make_reset(
        &mut self,
        stream_packet: StreamPacket,
        direction: Direction,
        target: ResetTarget,
        packet: &Packet<'_>,
        layout: &Layout,
    ) {
        let (id, own) = stream_packet.member;
        let tuple = self.table.tuples(id)[direction as usize];
        let Some(headers) = HeaderTemplate::from_packet(packet, layout) else { return };
        let headers = match direction == own {
            true => headers,
            false => {
                let port = self.table.arrival_port(id, direction).unwrap_or(stream_packet.out);
                headers.reversed(port, tuple.addresses)
            }
        };
        // Translation adds the shift to the acknowledgment number later.
        let shift = self.ack_shift(id, direction);
        let numbers = ResetNumbers { seq: target.seq, ack: target.ack.map(|ack| ack.wrapping_sub(shift)) };
        self.generated.push(headers.reset(tuple.ports, numbers));
    }

    /// Ends a stream that was idle for long, to free its memory. The next packet of its connection is
    /// answered with a RST.
    #[cold]
    fn reset_idle(&mut self) {
        let streams = &mut self.state.streams;
        let Some(stream) = streams.table.longest_idle(self.state.now_ms) else { return };
        if let Some(id) = FollowedId::new(streams.table.owner(stream)) {
            let edited = streams.followed[id].edited.and_then(|edited| streams.edited[edited].member());
            let receiver_reset = match edited {
                // Only the stream knows the numbers that its receivers expect, so the RSTs are generated now.
                Some(member) => ReceiverReset::Each(self.reset_both_by_headers(member, id)),
                None => ReceiverReset::Once,
            };
            let reason = DropReason::StreamNoRoom;
            self.state.streams.stop(id, StreamEnd { reason, rule: None, answers: true, receiver_reset });
        }
    }
}

/// The most bytes of payload of a packet with these headers on its egress link. `None` if the policy does not
/// know the MTU.
fn max_payload(snapshot: &Snapshot, packet: &Packet<'_>, layout: &Layout) -> Option<u16> {
    let (_, mtu) = snapshot.route(packet.port).egress?;
    u16::try_from(mtu.saturating_sub(u32::from(layout.payload - layout.ip))).ok()
}
