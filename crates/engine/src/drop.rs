//! Reasons for drops. Every drop has one of these, and a counter.

use mmb_packet::Malformed;

/// A reason for a drop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DropReason {
    /// A drop rule matched.
    Rule,
    /// The packet is malformed.
    Malformed(Malformed),
    /// Larger than the MTU of the port that it should leave by.
    MtuExceeded,
    /// The port that it came in by has no wire.
    NoWire,
    /// The sending port's queue was full (counted by the host).
    TxFull,
    /// The port that it came in by, or should leave by, is down or gone (counted by the host).
    PortDown,
    /// A frame that a kernel port should have cut into segments, but cannot (counted by the host).
    Oversized,
    /// No packet buffer was free (counted by the host).
    NoBuffer,
    /// The connection limit is reached, and no half-open connection can be evicted.
    ConnFull,
    /// A TCP segment that cannot begin a connection, where a rule would create and map one, or under `set conn pickup strict`.
    ConnNotSyn,
    /// A packet that is invalid for its connection, under `set conn invalid drop`, or where a rule would create a connection that maps it.
    ConnInvalid,
    /// No outside address was left.
    NatNoAddress,
    /// No outside port was left.
    NatNoPort,
    /// The inside address holds as many outside ports as it may (`set nat ports-per-host`).
    NatHostLimit,
    /// The source address has begun as many connections as it may (`set conn per-source`).
    ConnPerSource,
    /// The outside endpoint that a rule requires belongs to another connection.
    NatClash,
    /// An ICMP error that quotes a connection's tuple, but no packet that the connection can have in flight.
    IcmpUnrelated,
    /// A packet that a rule would map, but that is of no connection and begins none: it would leave untranslated.
    NatUnsolicited,
    /// A later fragment that timed out before the first one of its datagram came.
    FragmentEarly,
    /// A later fragment that was held for the first one of its datagram, and evicted for others.
    FragmentNoRoom,
    /// A fragment that overlaps another one (RFC 5722).
    FragmentOverlap,
    /// A fragment that was seen before.
    FragmentDuplicate,
    /// A fragment that is empty, has a length that is no multiple of 8 though more follow, or extends beyond the maximum datagram.
    FragmentBadLength,
    /// The datagram has more fragments than are tracked.
    FragmentTooMany,
    /// A fragment of a datagram whose first one was refused or dropped by a rule.
    FragmentRefused,
    /// Too many packets wait for the worker that owns the connection (counted by the host).
    HandoverFull,
    /// There is no memory for one more connection, and none can be evicted.
    ConnNoMemory,
}

impl DropReason {
    /// Every reason, in the order in which counters are shown.
    pub const ALL: [DropReason; 38] = [
        DropReason::Rule,
        DropReason::Malformed(Malformed::LinkTruncated),
        DropReason::Malformed(Malformed::VlanStackTooDeep),
        DropReason::Malformed(Malformed::IpBadVersion),
        DropReason::Malformed(Malformed::Ip4Truncated),
        DropReason::Malformed(Malformed::Ip4BadLength),
        DropReason::Malformed(Malformed::Ip4BadChecksum),
        DropReason::Malformed(Malformed::Ip6Truncated),
        DropReason::Malformed(Malformed::Ip6HeaderTruncated),
        DropReason::Malformed(Malformed::Ip6ChainTooLong),
        DropReason::Malformed(Malformed::L4Truncated),
        DropReason::Malformed(Malformed::TcpBadOffset),
        DropReason::Malformed(Malformed::TinyFragment),
        DropReason::MtuExceeded,
        DropReason::NoWire,
        DropReason::TxFull,
        DropReason::PortDown,
        DropReason::Oversized,
        DropReason::NoBuffer,
        DropReason::ConnFull,
        DropReason::ConnNotSyn,
        DropReason::ConnInvalid,
        DropReason::NatNoAddress,
        DropReason::NatNoPort,
        DropReason::NatHostLimit,
        DropReason::ConnPerSource,
        DropReason::NatClash,
        DropReason::IcmpUnrelated,
        DropReason::NatUnsolicited,
        DropReason::FragmentEarly,
        DropReason::FragmentNoRoom,
        DropReason::FragmentOverlap,
        DropReason::FragmentDuplicate,
        DropReason::FragmentBadLength,
        DropReason::FragmentTooMany,
        DropReason::FragmentRefused,
        DropReason::HandoverFull,
        DropReason::ConnNoMemory,
    ];

    /// The reason's index in [`DropReason::ALL`].
    #[inline]
    pub fn index(self) -> usize {
        match self {
            DropReason::Rule => 0,
            DropReason::Malformed(why) => 1 + why as usize,
            DropReason::MtuExceeded => 13,
            DropReason::NoWire => 14,
            DropReason::TxFull => 15,
            DropReason::PortDown => 16,
            DropReason::Oversized => 17,
            DropReason::NoBuffer => 18,
            DropReason::ConnFull => 19,
            DropReason::ConnNotSyn => 20,
            DropReason::ConnInvalid => 21,
            DropReason::NatNoAddress => 22,
            DropReason::NatNoPort => 23,
            DropReason::NatHostLimit => 24,
            DropReason::ConnPerSource => 25,
            DropReason::NatClash => 26,
            DropReason::IcmpUnrelated => 27,
            DropReason::NatUnsolicited => 28,
            DropReason::FragmentEarly => 29,
            DropReason::FragmentNoRoom => 30,
            DropReason::FragmentOverlap => 31,
            DropReason::FragmentDuplicate => 32,
            DropReason::FragmentBadLength => 33,
            DropReason::FragmentTooMany => 34,
            DropReason::FragmentRefused => 35,
            DropReason::HandoverFull => 36,
            DropReason::ConnNoMemory => 37,
        }
    }

    /// The reason's stable name in counters.
    pub const fn name(self) -> &'static str {
        match self {
            DropReason::Rule => "rule",
            DropReason::Malformed(why) => malformed_name(why),
            DropReason::MtuExceeded => "mtu-exceeded",
            DropReason::NoWire => "no-wire",
            DropReason::TxFull => "tx-full",
            DropReason::PortDown => "port-down",
            DropReason::Oversized => "oversized",
            DropReason::NoBuffer => "no-buffer",
            DropReason::ConnFull => "conn-full",
            DropReason::ConnNotSyn => "conn-not-syn",
            DropReason::ConnInvalid => "conn-invalid",
            DropReason::NatNoAddress => "nat-no-address",
            DropReason::NatNoPort => "nat-no-port",
            DropReason::NatHostLimit => "nat-host-limit",
            DropReason::ConnPerSource => "conn-per-source",
            DropReason::NatClash => "nat-clash",
            DropReason::IcmpUnrelated => "icmp-unrelated",
            DropReason::NatUnsolicited => "nat-unsolicited",
            DropReason::FragmentEarly => "fragment-early",
            DropReason::FragmentNoRoom => "fragment-no-room",
            DropReason::FragmentOverlap => "fragment-overlap",
            DropReason::FragmentDuplicate => "fragment-duplicate",
            DropReason::FragmentBadLength => "fragment-bad-length",
            DropReason::FragmentTooMany => "fragment-too-many",
            DropReason::FragmentRefused => "fragment-refused",
            DropReason::HandoverFull => "handover-full",
            DropReason::ConnNoMemory => "conn-no-memory",
        }
    }
}

const fn malformed_name(why: Malformed) -> &'static str {
    match why {
        Malformed::LinkTruncated => "link-truncated",
        Malformed::VlanStackTooDeep => "vlan-stack-too-deep",
        Malformed::IpBadVersion => "ip-bad-version",
        Malformed::Ip4Truncated => "ip4-truncated",
        Malformed::Ip4BadLength => "ip4-bad-length",
        Malformed::Ip4BadChecksum => "ip4-bad-checksum",
        Malformed::Ip6Truncated => "ip6-truncated",
        Malformed::Ip6HeaderTruncated => "ip6-header-truncated",
        Malformed::Ip6ChainTooLong => "ip6-chain-too-long",
        Malformed::L4Truncated => "l4-truncated",
        Malformed::TcpBadOffset => "tcp-bad-offset",
        Malformed::TinyFragment => "tiny-fragment",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_reason_has_its_place_and_name() {
        let names: HashSet<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), DropReason::ALL.len());
        for (place, reason) in DropReason::ALL.into_iter().enumerate() {
            assert_eq!(reason.index(), place, "{}", reason.name());
        }
    }
}
