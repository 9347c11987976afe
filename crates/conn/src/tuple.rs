//! Five-tuples: the keys by which connections are found.

use mmb_packet::{PortId, proto};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The scope of a connection: a wire, or one VLAN of it. On a host that routes, all ports are one wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct Wire {
    /// The smaller number of its two ports; [`Wire::ROUTED`] if the host routes.
    pub port: u16,
    /// The outermost VLAN tags, if they are part of the scope.
    pub vlans: Vlans,
}

impl Wire {
    /// The wire of all ports whose packets the host routes, without tags.
    pub const ROUTED: Wire = Wire { port: u16::MAX, vlans: Vlans::NONE };

    /// The wire of a port and its peer.
    pub fn for_port(port: PortId, peer: Option<PortId>) -> Wire {
        Wire { port: peer.map_or(port.0, |peer| peer.0.min(port.0)), vlans: Vlans::NONE }
    }

    /// Whether the host's routing decides by which port packets leave.
    #[inline]
    pub fn is_routed(self) -> bool {
        self.port == Wire::ROUTED.port
    }
}

/// The VLAN identifiers of the outermost two tags (802.1ad, 802.1Q); 0 for no tag, or a priority tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(C)]
pub struct Vlans {
    /// Of the outermost tag.
    pub outer: u16,
    /// Of the inner tag.
    pub inner: u16,
}

impl Vlans {
    /// Untagged.
    pub const NONE: Vlans = Vlans { outer: 0, inner: 0 };
}

/// The port of its wire on which a packet arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Side {
    /// The port with the smaller number.
    #[default]
    Low,
    /// The port with the greater number.
    High,
    /// Sides are not distinguished: the host routes, or one capture holds packets of both sides.
    Any,
}

impl Side {
    /// All of them, in the order of their numbers.
    pub const ALL: [Side; 3] = [Side::Low, Side::High, Side::Any];

    /// The side of a port on its wire.
    pub fn for_port(port: PortId, peer: Option<PortId>) -> Side {
        if peer.is_some_and(|peer| peer.0 < port.0) { Side::High } else { Side::Low }
    }

    /// The side on which packets from this side leave, and on which replies arrive.
    #[inline]
    #[must_use]
    pub fn other(self) -> Side {
        match self {
            Side::Low => Side::High,
            Side::High => Side::Low,
            Side::Any => Side::Any,
        }
    }
}

/// Source and destination of a packet, its protocol, and its ingress.
///
/// Addresses are numbers; those of IPv4 are below 2^32. Ports are in host order; protocols without ports have
/// zeros. The ports of ICMP queries are the identifier and the type of the request. The ports of GRE are the
/// halves of the key, the upper half first. Both are the same in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Tuple {
    /// Source and destination address.
    pub addresses: [u128; 2],
    /// Source and destination port.
    pub ports: [u16; 2],
    /// The wire: connections do not span wires.
    pub wire: Wire,
    /// The side of the wire on which it arrived.
    pub side: Side,
    /// The protocol.
    pub proto: u8,
    /// 4 or 6.
    pub family: u8,
}

/// The ends of a tuple, as indices of its arrays.
pub const SOURCE: usize = 0;
/// See [`SOURCE`].
pub const DESTINATION: usize = 1;

impl Tuple {
    /// The tuple of replies: source and destination swapped, from the wire's other port.
    #[must_use]
    pub fn reversed(self) -> Tuple {
        Tuple { side: self.side.other(), ..self.hairpinned() }
    }

    /// The tuple of replies that arrive on the same port: those to a hairpinned connection.
    #[must_use]
    pub fn hairpinned(self) -> Tuple {
        let ([from, to], [sport, dport]) = (self.addresses, self.ports);
        let ports = if has_common_ports(self.proto) { self.ports } else { [dport, sport] };
        Tuple { addresses: [to, from], ports, ..self }
    }

    /// The tuple with the source port 0, which stands for any port: for a connection whose source port is not
    /// known yet.
    #[must_use]
    pub fn from_any_port(self) -> Tuple {
        Tuple { ports: [0, self.ports[DESTINATION]], ..self }
    }

    /// The tuple with the ingress of another one.
    #[must_use]
    pub fn with_ingress(self, other: &Tuple) -> Tuple {
        Tuple { wire: other.wire, side: other.side, ..self }
    }

    /// The smaller of the tuple and its [reverse](Tuple::reversed). It identifies a connection in either
    /// direction.
    #[inline]
    #[must_use]
    pub fn in_order(self) -> Tuple {
        let source = |tuple: &Tuple| (tuple.addresses[SOURCE], tuple.ports[SOURCE], tuple.side);
        let reversed = self.reversed();
        if source(&self) <= source(&reversed) { self } else { reversed }
    }

    /// Number of bytes of [`Tuple::to_bytes`].
    pub const BYTES: usize = 45;

    /// The tuple as bytes, for a [`Prf`](mmb_random::Prf).
    pub fn to_bytes(&self) -> [u8; Tuple::BYTES] {
        let Tuple { addresses: [from, to], ports: [sport, dport], wire, side, proto, family } = *self;
        let mut bytes = [0; Tuple::BYTES];
        bytes[..16].copy_from_slice(&from.to_le_bytes());
        bytes[16..32].copy_from_slice(&to.to_le_bytes());
        bytes[32..34].copy_from_slice(&sport.to_le_bytes());
        bytes[34..36].copy_from_slice(&dport.to_le_bytes());
        bytes[36..38].copy_from_slice(&wire.port.to_le_bytes());
        bytes[38..40].copy_from_slice(&wire.vlans.outer.to_le_bytes());
        bytes[40..42].copy_from_slice(&wire.vlans.inner.to_le_bytes());
        bytes[42..].copy_from_slice(&[side as u8, proto, family]);
        bytes
    }

    /// The port of an end; the identifier of an ICMP query belongs to both.
    #[inline]
    pub fn port(&self, side: usize) -> u16 {
        self.ports[if self.is_query() { SOURCE } else { side }]
    }

    /// Whether the protocol is ICMP or ICMPv6, whose connections are queries and their replies.
    #[inline]
    pub fn is_query(&self) -> bool {
        matches!(self.proto, proto::ICMP | proto::ICMP6)
    }

    /// An address for display.
    pub fn address(&self, side: usize) -> IpAddr {
        match self.family {
            6 => IpAddr::V6(Ipv6Addr::from(self.addresses[side])),
            _ => IpAddr::V4(Ipv4Addr::from(self.addresses[side] as u32)),
        }
    }

    /// Whether connections of its protocol are distinguished by ports, an identifier or a key.
    pub fn has_ports(&self) -> bool {
        self.may_map_ports() || matches!(self.proto, proto::SCTP | proto::GRE)
    }

    /// Whether NAT may choose another port or identifier. SCTP keeps its ports. Its checksum would have to be
    /// recomputed, which is impossible for fragments. Also, a multi-homed end must have the same port at all
    /// its addresses (RFC 9260 section 6.4). A GRE key belongs to both ends.
    pub fn may_map_ports(&self) -> bool {
        matches!(
            self.proto,
            proto::TCP | proto::UDP | proto::ICMP | proto::ICMP6 | proto::UDP_LITE | proto::DCCP
        )
    }
}

/// Whether a protocol's `ports` are the same in both directions of a connection.
#[inline]
pub(crate) fn has_common_ports(proto: u8) -> bool {
    matches!(proto, proto::GRE | proto::ICMP | proto::ICMP6)
}

/// Types of ICMP requests (RFC 792, RFC 950), and of their replies.
const REQUESTS: [(u8, u8); 4] = [(8, 0), (13, 14), (15, 16), (17, 18)];
/// The same for ICMPv6 (RFC 4443).
const REQUESTS6: [(u8, u8); 1] = [(128, 129)];

/// The type of the request that an ICMP message is or answers, and whether it is the request. `None` for
/// other messages.
#[inline]
pub fn icmp_query(proto: u8, icmp_type: u8) -> Option<(u8, bool)> {
    let requests = if proto == proto::ICMP { &REQUESTS[..] } else { &REQUESTS6[..] };
    let mut found = requests.iter().filter(|(asks, answers)| [*asks, *answers].contains(&icmp_type));
    found.next().map(|(asks, _)| (*asks, *asks == icmp_type))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(wire: Wire, side: Side) -> Tuple {
        Tuple { addresses: [1, 2], ports: [3, 4], wire, side, proto: proto::UDP, family: 4 }
    }

    #[test]
    fn replies_come_in_by_the_other_port_of_a_wire() {
        let forward = tuple(Wire::for_port(PortId(4), Some(PortId(2))), Side::Low);
        let sides = [PortId(4), PortId(2)].map(|port| Side::for_port(port, Some(PortId(6 - port.0))));
        assert_eq!((forward.wire.port, sides), (2, [Side::High, Side::Low]));
        assert_eq!((forward.reversed().side, forward.hairpinned().side), (Side::High, Side::Low));
        assert_eq!(forward.reversed().reversed(), forward);
        assert_eq!(
            tuple(Wire::ROUTED, Side::Any).reversed().side,
            Side::Any,
            "any port may be the other one"
        );
    }

    #[test]
    fn both_ends_of_gre_use_one_key() {
        let gre = Tuple { proto: proto::GRE, ..tuple(Wire::ROUTED, Side::Any) };
        assert_eq!((gre.reversed().ports, gre.reversed().addresses), ([3, 4], [2, 1]));
    }

    #[test]
    fn both_directions_have_one_order() {
        for side in Side::ALL {
            let tuple = tuple(Wire::default(), side);
            let land = Tuple { addresses: [1, 1], ports: [3, 3], ..tuple };
            for tuple in [tuple, land] {
                for proto in [proto::UDP, proto::GRE] {
                    for ports in [[3, 4], [4, 3]] {
                        let tuple = Tuple { proto, ports, ..tuple };
                        assert_eq!(tuple.in_order(), tuple.reversed().in_order());
                    }
                }
            }
        }
    }
}
