//! Why packets are dropped. Every drop has one of these, and a counter.

use mmb_packet::Malformed;

/// A reason for a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// A rule said so.
    Rule,
    /// The packet cannot be understood.
    Malformed(Malformed),
    /// Larger than the MTU of the port that it should leave by.
    MtuExceeded,
    /// The port that it came in by has no wire.
    NoWire,
    /// The sending port's queue was full (counted by the host).
    TxFull,
    /// The sending port is down or gone (counted by the host).
    PortDown,
    /// A frame that a kernel port should have cut into segments, but cannot (counted by the host).
    Oversized,
    /// No packet buffer was free (counted by the host).
    NoBuffer,
}
