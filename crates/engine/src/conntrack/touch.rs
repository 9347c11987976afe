//! Packets that pass update their connection: TCP state, windows, counters, timeouts.

use super::flow_state::NatTransform;
use super::key;
use super::tracking::Conntrack;
use mmb_conn::fragment::Complete;
use mmb_conn::{ConnId, ConnState, Direction, Invalid, TcpOutcome, TcpSegment, TrackedHeader, proto};
use mmb_packet::checksum::{Soundness, transport_soundness};
use mmb_packet::{Layout, Packet};

/// The effect of a valid packet on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touched {
    /// The connection follows the packet.
    Tracked,
    /// The packet was only counted: see [`TcpOutcome::Noted`]. An off-path sender may have chosen its numbers.
    Noted,
}

impl Conntrack {
    /// Updates a connection for a packet that passes.
    ///
    /// # Errors
    /// The packet is out of window or otherwise invalid. It changed no state and is counted by kind only: see [`Conntrack::pass_invalid`].
    #[inline]
    pub(super) fn touch(
        &mut self,
        id: ConnId,
        direction: Direction,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<Touched, Invalid> {
        let now = (self.state.now_ms, packet.len());
        let segment = key::segment(packet, layout).map(|segment| self.in_input(id, direction, segment));
        if self.table.touch_if_goes_on(id, direction, now, segment.as_ref()) {
            self.table.note_arrival(id, direction, packet.port);
            return Ok(Touched::Tracked);
        }
        self.touch_if_sound((id, direction), packet, layout)
    }

    #[inline(never)]
    fn touch_if_sound(
        &mut self,
        (id, direction): (ConnId, Direction),
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Result<Touched, Invalid> {
        let signal = self.signal(id, direction, packet, layout);
        let now = (self.state.now_ms, packet.len());
        let soundness = || transport_soundness(packet.bytes(), layout);
        match self.table.touch_if_sound(id, direction, now, signal.as_ref(), soundness) {
            TcpOutcome::Invalid(kind) => {
                self.state.cells.count_invalid(kind);
                Err(kind)
            }
            outcome @ (TcpOutcome::Moves(_) | TcpOutcome::Stays) => {
                if let TcpOutcome::Moves(next) = outcome {
                    self.note_move((id, direction), next);
                }
                self.table.note_arrival(id, direction, packet.port);
                self.end_flows_if_over(id);
                Ok(Touched::Tracked)
            }
            TcpOutcome::Reopens | TcpOutcome::Noted => Ok(Touched::Noted),
        }
    }

    /// Called after a packet of this direction has moved a connection to state `next`. If that state is over, the
    /// connection no longer counts as open.
    fn note_move(&mut self, (id, direction): (ConnId, Direction), next: ConnState) {
        // The initiator's RST may be lost; the connection may then go on.
        if next == ConnState::TimeWait || next == ConnState::Reset && direction == Direction::Reply {
            self.close_at_server(id);
            self.uncount(id);
        }
    }

    /// Records that a connection was reset by packets that mmb made, if it is one of TCP.
    pub(super) fn reset(&mut self, id: ConnId) {
        self.table.reset(id);
        if self.table.state(id).is_closed() {
            self.close_at_server(id);
            self.uncount(id);
        }
    }

    /// Takes a connection that is over out of the count of its source: it is only kept for late packets, and makes room for others.
    #[cold]
    fn uncount(&mut self, id: ConnId) {
        if self.table.is_counted(id) {
            self.state.end_source(&self.table.get(id));
            self.table.set_counted(id, false);
        }
    }

    /// Counts a packet that passes although it is invalid for its connection.
    pub(super) fn pass_invalid(&mut self, (id, direction): (ConnId, Direction), packet: &Packet<'_>) {
        self.table.count_invalid(id, direction, packet.len());
    }

    /// Records that a fragment without a transport header passes; it may complete its datagram. A fragment of TCP or SCTP is only counted: it
    /// has no sequence number or tag to check. A complete TCP datagram tells how far its sender came, if its header was valid. Fragments of
    /// other protocols keep their connection alive, but do not count as a reply: their checksum is that of the datagram.
    pub(super) fn touch_fragment(
        &mut self,
        (id, direction): (ConnId, Direction),
        (at, complete): (usize, Option<Complete>),
        packet: &Packet<'_>,
        layout: &Layout,
    ) {
        let proto = self.table.proto(id);
        if matches!(proto, proto::TCP | proto::SCTP) {
            if let Some(Complete { len, seq }) = complete
                && let Some(seq) = seq.or_else(|| self.seq_of(at, packet, layout))
                && proto == proto::TCP
            {
                self.table.extend_sent(id, direction, seq, len);
            }
            return self.table.count_invalid(id, direction, packet.len());
        }
        let now = (self.state.now_ms, packet.len());
        self.table.touch_if_sound(id, direction, now, None, || Soundness::Unknown);
    }

    /// The header that tracking inspects. TCP numbers are as the sender of the bytes counts them.
    pub(super) fn signal(
        &self,
        id: ConnId,
        direction: Direction,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> Option<TrackedHeader> {
        Some(match key::signal(packet, layout)? {
            TrackedHeader::Tcp(segment) => TrackedHeader::Tcp(self.in_input(id, direction, segment)),
            other => other,
        })
    }

    /// A TCP header with the numbers that both ends count by: the acknowledgment is shifted back if the connection shifts sequence numbers.
    #[inline(always)]
    pub(super) fn shifted(&self, id: ConnId, direction: Direction, mut segment: TcpSegment) -> TcpSegment {
        if let Some(extension) = self.table.ids(id).extension {
            segment.ack = segment.ack.wrapping_add(self.state.extensions.get(extension).ack(direction));
        }
        segment
    }

    /// A TCP header as tracking has it: numbers are those of the end that has sent the bytes, also if these are edited on their way.
    #[inline(always)]
    fn in_input(&self, id: ConnId, direction: Direction, segment: TcpSegment) -> TcpSegment {
        let mut shifted = self.shifted(id, direction, segment);
        shifted.ack = self.input_of(id, direction, shifted.ack);
        shifted
    }

    /// The number that the sender of edited bytes has for one that packets of the other `direction` acknowledge.
    #[inline(always)]
    pub(super) fn input_of(&self, id: ConnId, direction: Direction, number: u32) -> u32 {
        let stream = self.state.stream_of(self.table.ids(id).extension);
        if let Some(stream) = stream.filter(|stream| stream.is_edited)
            && let Some(stream) = self.state.streams.edited(stream)
        {
            return self.state.streams.table.input_of(stream, direction.turned() as usize, number);
        }
        number
    }

    /// Whether packets of a connection are rewritten, or followed as a stream.
    #[inline]
    pub(crate) fn translates(&self, id: ConnId) -> bool {
        self.table.is_translated(id) || self.table.ids(id).extension.is_some()
    }

    /// What a connection does with packets of one direction.
    #[inline]
    pub(crate) fn transform(&self, (id, direction): (ConnId, Direction)) -> NatTransform {
        let mut transform = NatTransform::default();
        if self.table.is_translated(id) {
            let tuples = self.table.tuples(id);
            let from = tuples[direction as usize];
            let to = tuples[direction.turned() as usize].reversed();
            for side in 0..2 {
                transform.translation.addresses[side] =
                    (from.addresses[side] != to.addresses[side]).then_some(to.addresses[side]);
                transform.translation.ports[side] =
                    (from.ports[side] != to.ports[side]).then_some(to.ports[side]);
            }
        }
        if let Some(extension) = self.table.ids(id).extension {
            let extension = self.state.extensions.get(extension);
            extension.add_to(&mut transform.translation, direction);
            transform.hairpin = extension.hairpin.map(|macs| macs[direction as usize]);
            transform.stream = extension.stream;
        }
        transform
    }
}
