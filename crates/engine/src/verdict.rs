//! Types of the contract between a host and a worker: the origin of packets, and the verdicts on them.

pub use mmb_base::VECTOR;

use crate::drop::DropReason;
use mmb_packet::{LinkType, PortId};

/// What the host must do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send the packet on this port.
    Send(PortId),
    /// Drop the packet. The worker has already counted it.
    Drop(DropReason),
    /// Pass the packet to this worker, with [`Origin::Worker`]. That worker owns the packet's connection, or
    /// tracks the fragments of its datagram.
    Hand(u16),
    /// Free the packet's buffer, and count the packet neither as sent nor as dropped. The packet is a
    /// fragment that arrived before the first fragment of its datagram, and the worker keeps a copy.
    /// [`Worker::return_packets`](crate::Worker::return_packets) returns the copy under this number, unless the worker
    /// drops it first and counts the drop. Until then, no other packet has this number.
    Held(u16),
    /// Free the packet's buffer, and count the packet neither as sent nor as dropped. The stream of its
    /// connection took over its content, and the worker has already counted it as absorbed.
    Absorbed,
}

/// The verdict on a packet, and where the packet is in its buffer after rewriting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessedPacket {
    /// What the host must do with the packet.
    pub verdict: Verdict,
    /// Bytes of the buffer before the packet.
    pub headroom: usize,
    /// The packet's length in bytes.
    pub len: usize,
}

/// The packets that a call of [`Worker::decide`](crate::Worker::decide) has already rewritten, among the
/// first [`VECTOR`] packets of the call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TranslatedPackets([u64; VECTOR / 64]);

impl TranslatedPackets {
    /// Whether the packet with this index was rewritten.
    #[inline]
    pub fn has(&self, index: usize) -> bool {
        self.0.get(index / 64).is_some_and(|word| word >> (index % 64) & 1 == 1)
    }

    #[inline]
    pub(crate) fn add(&mut self, index: usize) {
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    /// Adds the packets of another vector, whose first packet has the index `first` here.
    pub(crate) fn add_all(&mut self, first: usize, others: TranslatedPackets) {
        if first == 0 {
            *self = others;
        } else {
            (0..VECTOR).filter(|index| others.has(*index)).for_each(|index| self.add(first + index));
        }
    }
}

/// The source of a vector's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Ports received the packets.
    Wire,
    /// Another worker handed the packets over. The receiving worker hands over only fragments, and only once
    /// more: from the worker that tracks their datagram to the owner of its connection.
    Worker,
    /// The worker held the packets, and [`Worker::return_packets`](crate::Worker::return_packets) returned them.
    Held,
    /// The worker generated the packets, and [`Worker::return_packets`](crate::Worker::return_packets) returned them.
    Generated,
    /// The worker generated the packets as answers to other packets, and
    /// [`Worker::return_packets`](crate::Worker::return_packets) returned them. An answer leaves on the port on which
    /// the answered packet arrived, and no rules apply to it.
    Answer,
}

/// A packet that a worker held or generated.
#[derive(Clone, Copy, Debug)]
pub struct ReturnedPacket<'p> {
    /// The number of [`Verdict::Held`]; `None` for a packet that the worker generated.
    pub held: Option<u16>,
    /// The port on which the packet arrived, or appears to have arrived. For an answer, the port on which it
    /// leaves.
    pub port: PortId,
    /// The type of the packet's link header.
    pub link: LinkType,
    /// The packet's bytes: of a held packet, as they arrived.
    pub bytes: &'p [u8],
}

/// Reads a cycle counter; the engine has no clock of its own.
pub trait Cycles {
    /// The current value of the counter; a constant if nothing is measured.
    fn now(&self) -> u64;
}

/// A cycle counter that measures nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCycles;

impl Cycles for NoCycles {
    fn now(&self) -> u64 {
        0
    }
}
