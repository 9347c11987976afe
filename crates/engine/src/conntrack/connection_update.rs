//! Updates connections for packets that pass: TCP state, windows, counters, timeouts.

use super::flow_state::NatTransform;
use super::key;
use super::tracking::Conntrack;
use mmb_conn::fragment::Complete;
use mmb_conn::{ConnId, ConnState, Direction, Invalid, TcpSegment, TrackOutcome, TrackedHeader, proto};
use mmb_packet::checksum::{Soundness, transport_soundness};
use mmb_packet::{Layout, Packet};

/// The effect of a valid packet on its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Touched {
    /// The packet updated the state of the connection.
    Tracked,
    /// The packet was only counted: see [`TrackOutcome::Noted`]. An off-path sender may have forged it.
    Noted,
}

impl Conntrack {
    /// Updates a connection for a packet that passes.
    ///
    /// # Errors
    /// The packet is out of window or otherwise invalid. It changed no state and is only counted by kind: see
    /// [`Conntrack::pass_invalid`].
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
        if self.table.touch_if_ordinary(id, direction, now, segment.as_ref()) {
            self.table.record_arrival(id, direction, packet.port);
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
            TrackOutcome::Invalid(kind) => {
                self.state.cells.count_invalid(kind);
                Err(kind)
            }
            outcome @ (TrackOutcome::Moves(_) | TrackOutcome::Stays) => {
                if let TrackOutcome::Moves(next) = outcome {
                    self.note_move((id, direction), next);
                }
                self.table.record_arrival(id, direction, packet.port);
                self.end_flows_if_over(id);
                Ok(Touched::Tracked)
            }
            TrackOutcome::Reopens | TrackOutcome::Noted => Ok(Touched::Noted),
        }
    }

    /// Must be called after a packet of this direction has moved a connection to state `next`. If the
    /// connection is closed or reset in that state, it no longer counts as open.
    fn note_move(&mut self, (id, direction): (ConnId, Direction), next: ConnState) {
        // The initiator's RST may be lost, and then the connection may continue.
        if next == ConnState::TimeWait || next == ConnState::Reset && direction == Direction::Reply {
            self.close_at_server(id);
            self.uncount_source(id);
        }
    }

    /// Records that RSTs from mmb have reset a connection. Has no effect for protocols other than TCP.
    pub(super) fn reset(&mut self, id: ConnId) {
        self.table.reset(id);
        if self.table.state(id).is_closed() {
            self.close_at_server(id);
            self.uncount_source(id);
        }
    }

    /// Removes a closed connection from the count of its source. The connection is kept only for late
    /// packets, so it must not block new ones.
    #[cold]
    fn uncount_source(&mut self, id: ConnId) {
        if self.table.is_counted(id) {
            self.state.end_source(&self.table.get(id));
            self.table.set_counted(id, false);
        }
    }

    /// Counts a packet that passes although it is invalid for its connection.
    pub(super) fn pass_invalid(&mut self, (id, direction): (ConnId, Direction), packet: &Packet<'_>) {
        self.table.count_invalid(id, direction, packet.len());
    }

    /// Updates a connection for a fragment without a transport header that passes. The fragment may complete
    /// its datagram.
    ///
    /// A fragment of TCP or SCTP is only counted, because it has no sequence number or tag to check. If it
    /// completes a TCP datagram with a valid header, the datagram advances the highest sequence number of its
    /// sender. Fragments of other protocols keep their connection alive but do not count as a reply, because
    /// the checksum covers the whole datagram.
    pub(super) fn touch_fragment(
        &mut self,
        (id, direction): (ConnId, Direction),
        (index, complete): (usize, Option<Complete>),
        packet: &Packet<'_>,
        layout: &Layout,
    ) {
        let proto = self.table.proto(id);
        if matches!(proto, proto::TCP | proto::SCTP) {
            if let Some(Complete { len, seq }) = complete
                && let Some(seq) = seq.or_else(|| self.seq_of(index, packet, layout))
                && proto == proto::TCP
            {
                self.table.extend_sent(id, direction, seq, len);
            }
            return self.table.count_invalid(id, direction, packet.len());
        }
        let now = (self.state.now_ms, packet.len());
        self.table.touch_if_sound(id, direction, now, None, || Soundness::Unknown);
    }

    /// The header that connection tracking inspects. The acknowledgment number of TCP is in the sequence
    /// space of the end that sent the acknowledged bytes.
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

    /// Adds the shift of a connection that shifts sequence numbers to the acknowledgment number of a segment.
    /// The result is in the sequence space of the end that sent the acknowledged bytes, apart from edits.
    #[inline(always)]
    pub(super) fn shifted(&self, id: ConnId, direction: Direction, mut segment: TcpSegment) -> TcpSegment {
        if let Some(extension) = self.table.ids(id).extension {
            segment.ack = segment.ack.wrapping_add(self.state.extensions.get(extension).ack(direction));
        }
        segment
    }

    /// A segment as connection tracking needs it: its acknowledgment number is in the sequence space of the
    /// end that sent the acknowledged bytes, even if these were edited.
    #[inline(always)]
    fn in_input(&self, id: ConnId, direction: Direction, segment: TcpSegment) -> TcpSegment {
        let mut shifted = self.shifted(id, direction, segment);
        shifted.ack = self.input_of(id, direction, shifted.ack);
        shifted
    }

    /// Converts an acknowledgment number of `direction` from the output of an edited stream to its input: the
    /// sequence space of the end that sent the acknowledged bytes.
    #[inline(always)]
    pub(super) fn input_of(&self, id: ConnId, direction: Direction, number: u32) -> u32 {
        let stream = self.state.stream_of(self.table.ids(id).extension);
        if let Some(stream) = stream.filter(|stream| stream.is_edited)
            && let Some(stream) = self.state.streams.stream_id(stream)
        {
            return self.state.streams.table.seq_to_input(stream, direction.opposite() as usize, number);
        }
        number
    }

    /// Whether packets of a connection are rewritten, or belong to a stream.
    #[inline]
    pub(crate) fn translates(&self, id: ConnId) -> bool {
        self.table.is_translated(id) || self.table.ids(id).extension.is_some()
    }

    /// How a connection changes packets of one direction, and their stream.
    #[inline]
    pub(crate) fn transform(&self, (id, direction): (ConnId, Direction)) -> NatTransform {
        let mut transform = NatTransform::default();
        if self.table.is_translated(id) {
            let tuples = self.table.tuples(id);
            let from = tuples[direction as usize];
            let to = tuples[direction.opposite() as usize].reversed();
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
