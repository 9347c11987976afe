//! The keys of a vector, one lane a packet class.
//!
//! The parse stage fills them, one key after the other; the classifier reads them. They belong to a worker and are
//! allocated once.

use crate::VECTOR;
use mmb_packet::key::Key;

/// The keys of a vector's packets of one class, side by side.
#[derive(Clone, Debug)]
pub struct Lane<const N: usize> {
    keys: Box<[Key<N>]>,
    /// Which packet of the vector each key is of.
    packets: Box<[u16]>,
    len: usize,
}

impl<const N: usize> Default for Lane<N> {
    fn default() -> Self {
        Lane {
            keys: vec![Key::default(); VECTOR].into_boxed_slice(),
            packets: vec![0; VECTOR].into_boxed_slice(),
            len: 0,
        }
    }
}

impl<const N: usize> Lane<N> {
    /// The place for the key of packet `packet` of the vector; it holds an older key still.
    ///
    /// # Panics
    /// If the lane holds [`VECTOR`] keys.
    #[inline]
    pub fn push(&mut self, packet: usize) -> &mut Key<N> {
        let at = self.len;
        self.packets[at] = packet as u16;
        self.len = at + 1;
        &mut self.keys[at]
    }

    /// The keys of the vector.
    #[inline]
    pub fn keys(&self) -> &[Key<N>] {
        &self.keys[..self.len]
    }

    /// The packets that they are of, in the same order.
    #[inline]
    pub fn packets(&self) -> &[u16] {
        &self.packets[..self.len]
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
