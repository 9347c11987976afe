//! The keys of a vector, one lane a packet class.
//!
//! The parse stage fills them, one key after the other; the classifier reads them. They belong to a worker and are
//! allocated once.

use crate::VECTOR;
use mmb_packet::key::Key;

/// The keys of a vector's packets of one class, side by side. Keys and packets are numbered in a byte: a number is
/// always inside an array of [`VECTOR`].
#[derive(Clone, Debug)]
pub struct Lane<const N: usize> {
    keys: Box<[Key<N>; VECTOR]>,
    /// Which packet of the vector each key is of.
    packets: Box<[u8; VECTOR]>,
    len: usize,
}

impl<const N: usize> Default for Lane<N> {
    fn default() -> Self {
        Lane { keys: Box::new([Key::default(); VECTOR]), packets: Box::new([0; VECTOR]), len: 0 }
    }
}

impl<const N: usize> Lane<N> {
    /// The place for the key of packet `packet` of the vector; it holds an older key still.
    ///
    /// # Panics
    /// If the lane holds [`VECTOR`] keys.
    #[inline]
    pub fn push(&mut self, packet: u8) -> &mut Key<N> {
        let at = self.len;
        self.packets[at] = packet;
        self.len = at + 1;
        &mut self.keys[at]
    }

    /// The places that were given, with the packets that they are for.
    #[inline]
    pub fn places(&mut self) -> impl Iterator<Item = (u8, &mut Key<N>)> {
        self.packets.iter().copied().zip(&mut *self.keys).take(self.len)
    }

    /// Keys of the vector; they stand first in [`Lane::keys`].
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The places of the keys.
    #[inline]
    pub(crate) fn keys(&self) -> &[Key<N>; VECTOR] {
        &self.keys
    }

    /// The packets that they are of.
    #[inline]
    pub(crate) fn packets(&self) -> &[u8; VECTOR] {
        &self.packets
    }
}

/// The keys of a vector.
#[derive(Clone, Debug, Default)]
pub struct Keys {
    /// IPv4 packets.
    pub ip4: Lane<64>,
    /// IPv6 packets.
    pub ip6: Lane<80>,
    /// Frames that are not IP.
    pub other: Lane<64>,
}

impl Keys {
    /// Makes room for the next vector.
    #[inline]
    pub fn clear(&mut self) {
        self.ip4.len = 0;
        self.ip6.len = 0;
        self.other.len = 0;
    }
}
