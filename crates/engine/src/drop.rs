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
    /// The port that it came in by, or should leave by, is down or gone (counted by the host).
    PortDown,
    /// A frame that a kernel port should have cut into segments, but cannot (counted by the host).
    Oversized,
    /// No packet buffer was free (counted by the host).
    NoBuffer,
    /// There are as many connections as there may be, none of them half-open.
    ConnFull,
    /// A TCP segment of no connection that can begin none, where a rule would make one that maps it, or under `set conn pickup strict`.
    ConnNotSyn,
    /// A packet that connection tracking does not believe, under `set conn invalid drop`, or where a rule would make a connection that
    /// maps it.
    ConnInvalid,
    /// No outside address was left.
    NatNoAddress,
    /// No outside port was left.
    NatNoPort,
    /// The inside address holds as many outside ports as it may (`set nat ports-per-host`).
    NatHostLimit,
    /// The source address has begun as many connections as it may (`set conn per-source`).
    ConnPerSource,
    /// The outside end that a rule asks for is another connection's.
    NatClash,
    /// An ICMP error that quotes a connection's ends, but no packet of it that can be on its way.
    IcmpUnrelated,
    /// A packet that a rule would map, but that is of no connection and begins none: it would leave as it came.
    NatUnsolicited,
    /// A later fragment whose datagram's first one did not come in time.
    FragmentEarly,
    /// A later fragment that waited for its datagram's first one, and made room for others.
    FragmentNoRoom,
    /// A fragment that says bytes again (RFC 5722).
    FragmentOverlap,
    /// A fragment that was seen before.
    FragmentDuplicate,
    /// A fragment that is empty, ends amid 8 bytes though more follows, or reaches beyond what a datagram may have.
    FragmentBadLength,
    /// The datagram has come in more pieces than are counted.
    FragmentTooMany,
    /// A fragment of a datagram whose first one was refused or dropped by a rule.
    FragmentRefused,
    /// Another worker's connection, and too many packets waited for that worker (counted by the host).
    HandoverFull,
    /// There is no memory for one more connection, and none makes room.
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

    /// The reason's place in [`DropReason::ALL`].
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

    /// The reason's name in counters: stable.
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
