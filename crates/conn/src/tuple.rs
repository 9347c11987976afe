//! Five-tuples: what a connection is found by.

use mmb_packet::PortId;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Protocol numbers that have a tuple of their own kind.
pub mod proto {
    /// ICMP.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMPv6.
    pub const ICMP6: u8 = 58;
}

/// Both ends of a packet, its protocol, and the wire that it came by.
///
/// Addresses are numbers, those of IPv4 below 2^32. Ports are in host order; of ICMP queries both are the identifier;
/// protocols without ports have zeros.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(C)]
pub struct Tuple {
    /// Source and destination address.
    pub addresses: [u128; 2],
    /// Source and destination port.
    pub ports: [u16; 2],
    /// The wire: the smaller number of its two ports. Wires do not share connections.
    pub wire: u16,
    /// The protocol.
    pub proto: u8,
    /// 4 or 6.
    pub family: u8,
}

/// The sides of a tuple, as places in its arrays.
pub const SOURCE: usize = 0;
/// See [`SOURCE`].
pub const DESTINATION: usize = 1;

impl Tuple {
    /// The tuple with its ends changed for each other.
    #[must_use]
    pub fn reversed(self) -> Tuple {
        let ([from, to], [sport, dport]) = (self.addresses, self.ports);
        Tuple { addresses: [to, from], ports: [dport, sport], ..self }
    }

    /// The tuple or its [reverse](Tuple::reversed), the same one of both: a connection's, whichever way a packet goes.
    #[inline]
    #[must_use]
    pub fn in_order(self) -> Tuple {
        let end = |side: usize| (self.addresses[side], self.ports[side]);
        if end(SOURCE) <= end(DESTINATION) { self } else { self.reversed() }
    }

    /// An address for people.
    pub fn address(&self, side: usize) -> IpAddr {
        match self.family {
            6 => IpAddr::V6(Ipv6Addr::from(self.addresses[side])),
            _ => IpAddr::V4(Ipv4Addr::from(self.addresses[side] as u32)),
        }
    }

    /// Whether ports tell connections of one protocol apart.
    pub fn has_ports(&self) -> bool {
        matches!(self.proto, proto::TCP | proto::UDP | proto::ICMP | proto::ICMP6)
    }

    /// The wire of a port and its peer.
    pub fn wire(port: PortId, peer: Option<PortId>) -> u16 {
        peer.map_or(port.0, |peer| peer.0.min(port.0))
    }
}
