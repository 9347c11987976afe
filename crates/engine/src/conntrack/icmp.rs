//! Decides which ICMP errors are related to the connection whose tuple they quote.
//!
//! A sender who knows that two hosts communicate can forge an error that quotes their tuple. The rules of the
//! connection would let the error pass, and its translation would forward it to an inside host. So an error
//! is related to the connection only if all of these conditions are true (RFC 5927 section 4):
//!
//! - It goes to the source of the quoted packet (CVE-2019-5598).
//! - Its own checksum is right (RFC 5508 REQ-3).
//! - It has no source route or routing header with hops left.
//! - The connection may have sent the quoted packet: a TCP segment in flight, or an echo request from the
//!   initiator.
//!
//! Other errors are dropped as `icmp-unrelated`.
//!
//! Addresses are compared as they are on the wire where the error arrives. There the destination of the error
//! equals the source of the quoted packet, translated or not: a router that translated the quoted packet
//! after that wire has reversed both.
//!
//! A fragmented error is never related. Its checksum cannot be verified, and routers send no fragmented
//! errors: RFC 1812 section 4.3.2.3 and RFC 4443 section 2.4 keep errors below the MTU of every link.

use super::flow_state::QuotedOffsets;
use super::key;
use super::tracking::Conntrack;
use mmb_conn::{ConnId, DESTINATION, Direction, icmp_query, proto};
use mmb_packet::{Layout, Packet, checksum};

/// The offset of the sequence number in a TCP header.
const TCP_SEQ: usize = 4;

impl Conntrack {
    /// Whether the ICMP error at `index` of the vector is related to a connection. `direction` is the
    /// direction of the error.
    pub(super) fn is_related(
        &self,
        index: usize,
        (id, direction): (ConnId, Direction),
        quoted: QuotedOffsets,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> bool {
        let bytes = packet.bytes();
        let Some(key) = self.tuple(index) else { return false };
        let goes_back = key::addresses(bytes, layout, key::Ingress::from_tuple(&key))
            .is_some_and(|own| own.addresses[DESTINATION] == key.addresses[DESTINATION]);
        goes_back
            && !layout.is_fragment()
            && !layout.is_routed()
            && self.was_sent((id, direction), quoted, bytes).unwrap_or(false)
            && checksum::transport_sum(bytes, layout).is_some_and(|sum| sum.fold() == 0xffff)
    }

    /// The number to add to the sequence number of a quoted packet, besides the connection's offset, if the
    /// bytes of the quoted packet's direction are edited; otherwise 0. `direction` is that of the error.
    pub(crate) fn quoted_shift(
        &self,
        (id, direction): (ConnId, Direction),
        quoted: QuotedOffsets,
        packet: &Packet<'_>,
    ) -> u32 {
        let header =
            packet.bytes().get(usize::from(quoted.l4) + TCP_SEQ..).and_then(|rest| rest.first_chunk());
        match header {
            Some(seq) if quoted.proto == proto::TCP => {
                let seq = u32::from_be_bytes(*seq).wrapping_add(self.ack_shift(id, direction));
                self.input_of(id, direction, seq).wrapping_sub(seq)
            }
            _ => 0,
        }
    }

    /// Bounds the packets that mmb generates on an edited stream if an ICMP error reports the MTU of the
    /// path. `direction` is that of the error.
    pub(crate) fn note_mtu(
        &mut self,
        (id, direction): (ConnId, Direction),
        quoted: QuotedOffsets,
        packet: &Packet<'_>,
        layout: &Layout,
    ) {
        /// Bytes of a TCP header with timestamps.
        const TCP_HEADER: u32 = 32;
        let stream = self.state.stream_of(self.table.ids(id).extension);
        let Some(stream) = stream.filter(|stream| stream.is_edited) else { return };
        let Some(stream) = self.state.streams.stream_id(stream) else { return };
        let header = packet.bytes().get(usize::from(layout.l4)..).and_then(|rest| rest.first_chunk::<8>());
        let mtu = match (layout.l4_kind, header) {
            // Fragmentation needed (RFC 1191 section 4).
            (proto::ICMP, Some([3, 4, .., high, low])) => u32::from(u16::from_be_bytes([*high, *low])),
            // Packet too big (RFC 4443 section 3.2).
            (proto::ICMP6, Some([2, _, _, _, mtu @ ..])) => u32::from_be_bytes(*mtu),
            _ => return,
        };
        // Every path carries at least this MTU. A smaller value comes from an old router (RFC 1191 section
        // 5), or is forged to split one packet into many.
        let mtu = mtu.max(if layout.l4_kind == proto::ICMP6 { 1280 } else { 576 });
        let headers = u32::from(quoted.l4 - quoted.ip) + TCP_HEADER;
        let max = u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX);
        self.state.streams.table.limit_payload(stream, direction.opposite() as usize, max);
    }

    /// Whether the connection may have sent the quoted packet; `None` if too little of it is quoted.
    fn was_sent(
        &self,
        (id, direction): (ConnId, Direction),
        quoted: QuotedOffsets,
        bytes: &[u8],
    ) -> Option<bool> {
        let header: &[u8; 8] = bytes.get(usize::from(quoted.l4)..)?.first_chunk()?;
        let connection = self.table.get(id);
        let sender = direction.opposite();
        Some(match quoted.proto {
            proto::TCP => {
                let seq = u32::from_be_bytes(*header[TCP_SEQ..].first_chunk()?);
                // Converts the number to the sender's sequence space, like the acknowledgments of the other
                // direction.
                let seq = seq.wrapping_add(self.ack_shift(id, direction));
                let seq = self.input_of(id, direction, seq);
                connection.tracker().is_in_flight(connection.state, sender, seq)
            }
            proto::SCTP => {
                let packet = bytes.get(usize::from(quoted.l4)..)?;
                connection.tracker().may_have_sent(sender, packet)
            }
            proto::ICMP | proto::ICMP6 => {
                let asks = icmp_query(quoted.proto, header[0]).is_some_and(|(_, asks)| asks);
                asks == (sender == Direction::Forward)
            }
            _ => true,
        })
    }
}
