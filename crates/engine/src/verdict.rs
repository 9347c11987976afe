//! The types of the contract between a host and a worker: the origin of packets, and the verdicts on them.

pub use mmb_base::VECTOR;

use crate::drop::DropReason;
use mmb_packet::{LinkType, PortId};

/// The host's instruction for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it by this port.
    Send(PortId),
    /// Drop it; it is counted already.
    Drop(DropReason),
    /// Pass it to this worker, with [`Origin::Worker`]: that worker owns its connection, or is the home of its datagram's fragments.
    Hand(u16),
    /// Free its buffer, and count it neither as sent nor as dropped: it is a fragment that came before the first one of its datagram, and
    /// the worker keeps a copy. [`Worker::give_back`](crate::Worker::give_back) gives it out again under this number, which is unique until then, unless it is counted
    /// as dropped first.
    Held(u16),
    /// Free its buffer, and count it neither as sent nor as dropped: its bytes live on in the stream of its connection, and it is counted as absorbed
    /// already.
    Absorbed,
}

/// The result for a packet: its verdict, and its place in its buffer after rewriting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessedPacket {
    /// The host's instruction.
    pub verdict: Verdict,
    /// Bytes of the buffer in front of it.
    pub headroom: usize,
    /// Its bytes.
    pub len: usize,
}

/// The packets that a call of [`Worker::decide`](crate::Worker::decide) rewrote at once, among its first [`VECTOR`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TranslatedPackets([u64; VECTOR / 64]);

impl TranslatedPackets {
    /// Whether a packet is one of them.
    #[inline]
    pub fn has(&self, at: usize) -> bool {
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    #[inline]
    pub(crate) fn add(&mut self, at: usize) {
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    /// Adds those of a vector whose first packet is the one at `first`.
    pub(crate) fn add_all(&mut self, first: usize, others: TranslatedPackets) {
        if first == 0 {
            *self = others;
        } else {
            (0..VECTOR).filter(|at| others.has(*at)).for_each(|at| self.add(first + at));
        }
    }
}

/// The source of a vector's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Ports.
    Wire,
    /// Another worker handed them over. Only fragments are handed on, once: from the home of their datagram to the owner of its
    /// connection.
    Worker,
    /// They were held, and [`Worker::give_back`](crate::Worker::give_back) gave them out.
    Held,
    /// The worker made them, and [`Worker::give_back`](crate::Worker::give_back) gave them out.
    Made,
    /// The worker made them to answer other packets, and [`Worker::give_back`](crate::Worker::give_back) gave them out. They leave by the port
    /// that those came in by, and pass no rules.
    Answer,
}

/// A packet that a worker held or made.
#[derive(Clone, Copy, Debug)]
pub struct ReturnedPacket<'p> {
    /// The number of [`Verdict::Held`]; none of a packet that the worker made.
    pub held: Option<u16>,
    /// The port that it came in by, or seems to come in by; of an answer the one by which it leaves.
    pub port: PortId,
    /// Its link header type.
    pub link: LinkType,
    /// Its bytes as they arrived.
    pub bytes: &'p [u8],
}

/// Reads a cycle counter; the engine has no clock of its own.
pub trait Cycles {
    /// The counter now. Constant if nothing is to be measured.
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
