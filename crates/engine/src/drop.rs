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

impl DropReason {
    /// Every reason, in the order in which counters are shown.
    pub const ALL: [DropReason; 19] = [
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
        }
    }

    /// The reason's name in counters: stable.
    pub fn name(self) -> &'static str {
        match self {
            DropReason::Rule => "rule",
            DropReason::Malformed(why) => malformed_name(why),
            DropReason::MtuExceeded => "mtu-exceeded",
            DropReason::NoWire => "no-wire",
            DropReason::TxFull => "tx-full",
            DropReason::PortDown => "port-down",
            DropReason::Oversized => "oversized",
            DropReason::NoBuffer => "no-buffer",
        }
    }
}

fn malformed_name(why: Malformed) -> &'static str {
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
