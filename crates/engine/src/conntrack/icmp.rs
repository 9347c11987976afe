//! Decides which ICMP errors are related to the connection whose tuple they quote.
//!
//! A sender who knows that two hosts communicate can forge an error that quotes their tuple. A connection's rules let errors in, and its
//! translation forwards them to an inside host, so an error is related to the connection only if it agrees with all that is known (RFC 5927
//! section 4): it goes to the source of the quoted packet (CVE-2019-5598), its own checksum is right (RFC 5508 REQ-3), and the quoted
//! packet may have been sent: a TCP segment in flight, or an echo request from the initiator. Errors that do not agree are dropped as
//! `icmp-unrelated`.
//!
//! Addresses are compared as they are on the wire where the error arrives. There the error's destination equals the quoted packet's source,
//! translated or not: a router that translated that packet later reverses both.
//!
//! The checksum of a fragmented error cannot be verified, and routers send none: RFC 1812 section 4.3.2.3 and RFC 4443 section 2.4 keep
//! errors below every link's MTU. A fragmented error is never related.

use super::flow_state::QuotedOffsets;
use super::key;
use super::tracking::Conntrack;
use mmb_conn::{ConnId, DESTINATION, Direction, icmp_query, proto};
use mmb_packet::{Layout, Packet, checksum};

/// The offset of the sequence number in a TCP header.
const TCP_SEQ: usize = 4;

impl Conntrack {
    /// Whether the ICMP error `at` this index of the vector quotes a packet that the connection sent the other way. `direction` is the
    /// direction of the error.
    pub(super) fn is_related(
        &self,
        at: usize,
        (id, direction): (ConnId, Direction),
        quoted: QuotedOffsets,
        packet: &Packet<'_>,
        layout: &Layout,
    ) -> bool {
        let bytes = packet.bytes();
        let Some(key) = self.tuple(at) else { return false };
        let goes_back = key::addresses(bytes, layout, key::Ingress::of(&key))
            .is_some_and(|own| own.addresses[DESTINATION] == key.addresses[DESTINATION]);
        goes_back
            && !layout.is_fragment()
            && !layout.is_routed()
            && self.was_sent((id, direction), quoted, bytes).unwrap_or(false)
            && checksum::transport_sum(bytes, layout).is_some_and(|sum| sum.fold() == 0xffff)
    }

    /// What is added to the sequence number of a quoted packet, beside the connection's offset, if the bytes of its direction are edited. `direction` is that
    /// of the error.
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

    /// Lets the stream of a connection make no packets that the path has no room for, if an error says so: `direction` is that of the error.
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
        let Some(stream) = self.state.streams.edited(stream) else { return };
        let header = packet.bytes().get(usize::from(layout.l4)..).and_then(|rest| rest.first_chunk::<8>());
        let mtu = match (layout.l4_kind, header) {
            // Fragmentation needed (RFC 1191 section 4).
            (proto::ICMP, Some([3, 4, .., high, low])) => u32::from(u16::from_be_bytes([*high, *low])),
            // Packet too big (RFC 4443 section 3.2).
            (proto::ICMP6, Some([2, _, _, _, mtu @ ..])) => u32::from_be_bytes(*mtu),
            _ => return,
        };
        // Below what every path carries it is an old router's (RFC 1191 section 5), or a forgery that would make many packets of one.
        let mtu = mtu.max(if layout.l4_kind == proto::ICMP6 { 1280 } else { 576 });
        let headers = u32::from(quoted.l4 - quoted.ip) + TCP_HEADER;
        let most = u16::try_from(mtu.saturating_sub(headers)).unwrap_or(u16::MAX);
        self.state.streams.table.bound_payload(stream, direction.turned() as usize, most);
    }

    /// Whether the quoted packet can be one of the connection's; `None` if too little of it is quoted.
    fn was_sent(
        &self,
        (id, direction): (ConnId, Direction),
        quoted: QuotedOffsets,
        bytes: &[u8],
    ) -> Option<bool> {
        let header: &[u8; 8] = bytes.get(usize::from(quoted.l4)..)?.first_chunk()?;
        let connection = self.table.get(id);
        let sender = direction.turned();
        Some(match quoted.proto {
            proto::TCP => {
                let seq = u32::from_be_bytes(*header[TCP_SEQ..].first_chunk()?);
                // In the sender's numbers, as the other direction's acknowledgments are.
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
