//! The packet side of the engine.

use crate::drop::DropReason;
use mmb_packet::{Packet, PortId};

/// The most packets of one vector.
pub const VECTOR: usize = 256;

/// What is to become of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Send it by that port.
    Send(PortId),
    /// Drop it; it is counted already.
    Drop(DropReason),
}

/// Reads a cycle counter; the engine has no clock of its own.
pub trait Cycles {
    /// The counter now. Constant where nothing is to be measured.
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

/// One packet thread's part of the engine.
pub struct Worker {}

impl Worker {
    /// Decides on a vector of at most [`VECTOR`] packets and rewrites them. `verdicts[i]` is for `packets[i]`.
    pub fn process(
        &mut self,
        now_ns: u64,
        cycles: &impl Cycles,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        let _ = (now_ns, cycles, packets, verdicts);
    }

    /// Counts a drop that the host had to make after [`Worker::process`] said to send, or before it saw the
    /// packet.
    pub fn count_host_drop(&mut self, reason: DropReason, packets: u64) {
        let _ = (reason, packets);
    }
}
