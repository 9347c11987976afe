//! The keys of a vector, one lane group a packet class, as columns of 32-bit lanes.
//!
//! A column holds one lane of every key of the vector side by side, so that eight or sixteen keys are hashed or
//! compared at once, and only lanes that some rule asks for are filled and take room in the cache. Columns belong to a
//! worker and are allocated once. The parse stage says which packets have keys and fills them; the classifier reads.

use crate::VECTOR;
use mmb_packet::key::{LANE, Lanes};
use mmb_packet::{Layout, Packet, PortId, fill_lanes4, fill_lanes6};

/// Lanes of a key for IPv4 packets and frames that are not IP.
pub(crate) const LANES4: usize = 64 / LANE;
/// Lanes of a key for IPv6 packets.
pub(crate) const LANES6: usize = 80 / LANE;

/// One lane of all keys of a vector.
pub(crate) type Column = [u32; VECTOR];

/// The keys of a vector's packets of one class. Keys and packets are numbered in a byte: a number is always inside an
/// array of [`VECTOR`].
#[derive(Clone, Debug)]
pub struct Columns<const L: usize> {
    lanes: Box<[Column; L]>,
    /// Which packet of the vector each key is of.
    packets: Box<[u8; VECTOR]>,
    len: usize,
}

impl<const L: usize> Default for Columns<L> {
    fn default() -> Self {
        Columns { lanes: Box::new([[0; VECTOR]; L]), packets: Box::new([0; VECTOR]), len: 0 }
    }
}

impl<const L: usize> Columns<L> {
    /// Gives packet `packet` of the vector a key, which [`Keys::fill`] is to fill.
    ///
    /// # Panics
    /// If there are [`VECTOR`] keys already.
    #[inline]
    pub fn push(&mut self, packet: u8) {
        self.packets[self.len] = packet;
        self.len += 1;
    }

    /// Keys of the vector; they stand first in every column.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The columns by lane.
    #[inline]
    pub(crate) fn lanes(&self) -> &[Column] {
        &self.lanes[..]
    }

    /// The packets that the keys are of.
    #[inline]
    pub(crate) fn packets(&self) -> &[u8; VECTOR] {
        &self.packets
    }
}

/// The lanes that a policy asks for, by packet class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub(crate) ip4: Lanes,
    pub(crate) ip6: Lanes,
    pub(crate) other: Lanes,
}

/// The keys of a vector.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// IPv4 packets.
    pub ip4: Columns<LANES4>,
    /// IPv6 packets.
    pub ip6: Columns<LANES6>,
    /// Frames that are not IP.
    pub other: Columns<LANES4>,
}

/// What most policies ask for: the kind of the transport header, its ports, both IPv4 addresses.
const FIVE_TUPLE: Lanes = Lanes(1 | 1 << 4 | 1 << 13 | 1 << 14);

impl Keys {
    /// Makes room for the next vector.
    #[inline]
    pub fn clear(&mut self) {
        self.ip4.len = 0;
        self.ip6.len = 0;
        self.other.len = 0;
    }

    /// Fills the wanted lanes of the keys that were given out. `out` tells the port that a packet leaves by.
    #[inline]
    pub fn fill(
        &mut self,
        wanted: Wanted,
        packets: &[Packet<'_>],
        layouts: &[Layout],
        out: impl Fn(usize) -> PortId,
    ) {
        if FIVE_TUPLE.with(wanted.ip4) == FIVE_TUPLE {
            // Known when compiled, so that nothing is asked per lane.
            fill4(&mut self.ip4, FIVE_TUPLE, packets, layouts, &out);
        } else {
            fill4(&mut self.ip4, wanted.ip4, packets, layouts, &out);
        }
        fill4(&mut self.other, wanted.other, packets, layouts, &out);
        let Columns { lanes, packets: of, len } = &mut self.ip6;
        for (key, &packet) in of[..*len].iter().enumerate() {
            let at = usize::from(packet);
            let (packet, layout) = (&packets[at], &layouts[at]);
            fill_lanes6(packet, layout, [packet.port, out(at)], wanted.ip6, |lane, value| {
                lanes[lane][key] = value;
            });
        }
    }
}

#[inline(always)]
fn fill4(
    columns: &mut Columns<LANES4>,
    wanted: Lanes,
    packets: &[Packet<'_>],
    layouts: &[Layout],
    out: &impl Fn(usize) -> PortId,
) {
    let Columns { lanes, packets: of, len } = columns;
    for (key, &packet) in of[..*len].iter().enumerate() {
        let at = usize::from(packet);
        let (packet, layout) = (&packets[at], &layouts[at]);
        fill_lanes4(packet, layout, [packet.port, out(at)], wanted, |lane, value| lanes[lane][key] = value);
    }
}
