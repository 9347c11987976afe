//! Which ICMP errors are believed to be about a packet of the connection whose ends they quote.
//!
//! Whoever knows that two hosts talk can write an error that quotes their ends. A connection's rules let errors in, and its translation
//! leads them to an inside host, so an error counts as the connection's only if it agrees with all that is known (RFC 5927 section 4):
//! it goes to whom the quoted packet came from (CVE-2019-5598), its own checksum is right (RFC 5508 REQ-3), and the quoted packet can be
//! one that was sent: a TCP segment in flight, an echo request from whom began it. What does not agree is dropped as `icmp-unrelated`.
//!
//! Addresses are compared as they stand on the wire where the error arrives. There the error goes to the very address that the quoted
//! packet came from, translated or not: whoever translated that packet later translates both back.
//!
//! An error in fragments cannot be summed up, and routers send none: RFC 1812 section 4.3.2.3 and RFC 4443 section 2.4 keep them below
//! every link's MTU. It is about nothing.

use super::{Conntrack, QuotedOffsets, key};
use mmb_conn::{ConnId, DESTINATION, Direction, icmp_query, proto};
use mmb_packet::{Layout, Packet, checksum};

/// Where a TCP header has its sequence number.
const TCP_SEQ: usize = 4;

impl Conntrack {
    /// Whether an error, the packet `at` of the vector, is about a packet that a connection sent the other way. `direction` is the one in
    /// which the error goes.
    pub(crate) fn is_related(
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
            && !layout.routed
            && self.was_sent((id, direction), quoted, bytes).unwrap_or(false)
            && checksum::transport_sum(bytes, layout).is_some_and(|sum| sum.fold() == 0xffff)
    }

    /// Whether the quoted packet can be one of the connection's; `None` if what tells is not quoted.
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
                // As the sender counts: the other direction acknowledges what it shifted.
                let shift = self.state.extras.get(connection.extra).ack(direction);
                connection.tracker().is_in_flight(connection.state, sender, seq.wrapping_add(shift))
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
