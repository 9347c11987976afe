//! The addresses and ports of an IPv4 packet, laid out as in its headers.

use crate::{Direction, Tuple};

/// Addresses and ports of an IPv4 packet in network byte order, the source first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) addresses: u64,
    pub(crate) ports: u32,
}

impl Ends {
    /// The ends of a packet with this tuple.
    pub(crate) fn from_tuple(tuple: &Tuple) -> Ends {
        let [[a, b, c, d], [e, f, g, h]] = tuple.addresses.map(|address| (address as u32).to_be_bytes());
        let [[i, j], [k, l]] = tuple.ports.map(u16::to_be_bytes);
        Ends {
            addresses: u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            ports: u32::from_ne_bytes([i, j, k, l]),
        }
    }

    /// Source and destination exchanged.
    #[inline(always)]
    pub(crate) fn swapped(self) -> Ends {
        Ends { addresses: self.addresses.rotate_left(32), ports: self.ports.rotate_left(16) }
    }

    /// Exchanges source and destination if the direction is the responder's, without a branch.
    #[inline(always)]
    pub(crate) fn swapped_if_reply(self, direction: Direction) -> Ends {
        let rotation = u32::from(direction as u8) * 16;
        Ends { addresses: self.addresses.rotate_left(2 * rotation), ports: self.ports.rotate_left(rotation) }
    }

    /// The ends XOR `bits`.
    #[inline(always)]
    pub(crate) fn changed(self, bits: Ends) -> Ends {
        Ends { addresses: self.addresses ^ bits.addresses, ports: self.ports ^ bits.ports }
    }

    /// The tuple of packets with these ends. The other fields are those of `others`.
    pub(crate) fn tuple(self, others: &Tuple) -> Tuple {
        let [a, b, c, d, e, f, g, h] = self.addresses.to_ne_bytes();
        let [i, j, k, l] = self.ports.to_ne_bytes();
        let addresses = [[a, b, c, d], [e, f, g, h]].map(|address| u128::from(u32::from_be_bytes(address)));
        Tuple { addresses, ports: [[i, j], [k, l]].map(u16::from_be_bytes), ..*others }
    }
}
