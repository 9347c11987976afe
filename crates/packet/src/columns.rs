//! The header keys of a vector as columns of 32-bit lanes.
//!
//! A column holds one lane of every key of the vector side by side, so that eight or sixteen keys are hashed or compared at once. Columns
//! belong to a worker and are allocated once; parsing fills them, and the classifier reads them.

use crate::key::{IP, L4, L4_KIND, LANE, LANES4, Lanes, PAYLOAD_LEN};
use mmb_base::VECTOR;

/// One lane of all keys of a vector.
pub type Column = [u32; VECTOR];

/// The keys of a vector's packets of one class. Keys and packets are numbered in a byte: a number is always inside an
/// array of [`VECTOR`].
#[derive(Clone, Debug)]
pub struct KeyColumns<const L: usize> {
    pub(crate) lanes: Box<[Column; L]>,
    /// Which packet of the vector each key is of.
    pub(crate) packets: Box<[u8; VECTOR]>,
    pub(crate) len: usize,
    /// The keys are not in the order of their packets.
    pub(crate) is_mixed: bool,
}

impl<const L: usize> Default for KeyColumns<L> {
    fn default() -> Self {
        KeyColumns {
            lanes: Box::new([[0; VECTOR]; L]),
            packets: Box::new([0; VECTOR]),
            len: 0,
            is_mixed: false,
        }
    }
}

impl<const L: usize> KeyColumns<L> {
    /// Gives a packet of the vector a key; its number. No more packets than [`VECTOR`] have one.
    #[inline(always)]
    pub(crate) fn push(&mut self, packet: u8) -> u8 {
        let key = self.len as u8;
        self.packets[usize::from(key)] = packet;
        self.len += 1;
        key
    }

    /// Takes a key away: the last one gets its number.
    pub(crate) fn swap_remove(&mut self, key: u8) {
        self.is_mixed = true;
        self.len -= 1;
        let (key, last) = (usize::from(key), self.len);
        self.packets[key] = self.packets[last];
        self.lanes.iter_mut().for_each(|column| column[key] = column[last]);
    }

    /// Keeps the keys of some packets, in their order.
    pub(crate) fn retain(&mut self, keep: impl Fn(u8) -> bool) {
        let (mut keys, mut kept) = ([0; VECTOR], 0);
        for (key, &packet) in (0..=u8::MAX).zip(&self.packets[..self.len]) {
            // No more are kept than came before this one.
            keys[kept % VECTOR] = key;
            kept += usize::from(keep(packet));
        }
        self.keep(&keys[..kept], Lanes::ALL);
    }

    /// Keeps some keys, given in ascending order, and of them some lanes; the other lanes are those of any keys.
    pub fn keep(&mut self, keys: &[u8], lanes: Lanes) {
        if keys.len() == self.len {
            return;
        }
        let places = || keys.iter().map(|key| usize::from(*key)).enumerate().take(VECTOR);
        places().for_each(|(to, from)| self.packets[to] = self.packets[from]);
        for lane in lanes.iter().take_while(|lane| *lane < L) {
            let column = &mut self.lanes[lane];
            places().for_each(|(to, from)| column[to] = column[from]);
        }
        self.len = keys.len();
    }

    /// Keys of the vector; they stand first in every column.
    #[inline]
    pub fn count(&self) -> usize {
        self.len
    }

    /// The columns by lane.
    #[inline]
    pub fn lanes(&self) -> &[Column] {
        &self.lanes[..]
    }

    /// Takes all keys away.
    #[inline]
    pub(crate) fn clear(&mut self) {
        (self.len, self.is_mixed) = (0, false);
    }

    /// Whether the keys are in the order of their packets.
    #[inline]
    pub fn is_in_order(&self) -> bool {
        !self.is_mixed
    }

    /// The packets that the keys are of.
    #[inline]
    pub fn packets(&self) -> &[u8; VECTOR] {
        &self.packets
    }
}

/// The lanes of [`FlowColumns`], which all IPv4 keys have.
pub(crate) const FLOW_LANES: Lanes =
    Lanes::range(ADDRESSES, ADDRESSES + 2).with(Lanes::range(TRANSPORT, TRANSPORT + 4)).with(FLOW_FACTS);
/// Those of them that are no words of a packet.
pub(crate) const FLOW_FACTS: Lanes = Lanes::range(HEAD, HEAD + 1).with(Lanes::range(PAYLOAD, PAYLOAD + 1));
const HEAD: usize = L4_KIND / LANE;
const PAYLOAD: usize = PAYLOAD_LEN / LANE;
const ADDRESSES: usize = IP / LANE + 3;
const TRANSPORT: usize = L4 / LANE;

/// The columns that connections are looked up and tracked by: addresses, ports, and of TCP the numbers and the word of offset, flags and
/// window. Words are as they stand in keys; those of a transport header are valid for packets that have one of TCP or UDP.
#[derive(Clone, Copy, Debug)]
pub struct FlowColumns<'k> {
    /// Family, kind of transport header, and [`flags`](crate::key::flags).
    pub heads: &'k Column,
    /// Bytes of payload.
    pub payloads: &'k Column,
    /// Source and destination address.
    pub addresses: [&'k Column; 2],
    /// Source and destination port.
    pub ports: &'k Column,
    /// Sequence and acknowledgment number.
    pub numbers: [&'k Column; 2],
    /// Data offset, flags and window.
    pub window: &'k Column,
}

impl KeyColumns<LANES4> {
    /// The columns that connections need.
    #[inline]
    pub fn flows(&self) -> FlowColumns<'_> {
        let [at, ports] = [ADDRESSES, TRANSPORT];
        FlowColumns {
            heads: &self.lanes[HEAD],
            payloads: &self.lanes[PAYLOAD],
            addresses: [&self.lanes[at], &self.lanes[at + 1]],
            ports: &self.lanes[ports],
            numbers: [&self.lanes[ports + 1], &self.lanes[ports + 2]],
            window: &self.lanes[ports + 3],
        }
    }
}

/// The lanes that a policy asks for, by packet class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WantedLanes {
    /// Of IPv4 packets.
    pub ip4: Lanes,
    /// Of IPv6 packets.
    pub ip6: Lanes,
    /// Of frames that are not IP.
    pub other: Lanes,
}
