//! Why packets are dropped. Every drop has one of these, and a counter.

use mmb_packet::Malformed;

/// Makes [`DropReason`] of one row for each reason: what it means, the variant, its name in counters. The first row comes before the
/// reasons of the parser, the others behind them.
macro_rules! drop_reasons {
    (
        $(#[doc = $first_text:literal])+ $first:ident $first_name:literal;
        $($(#[doc = $text:literal])+ $reason:ident $name:literal;)+
    ) => {
        /// A reason for a drop.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum DropReason {
            $(#[doc = $first_text])+
            $first,
            /// The packet cannot be parsed.
            Malformed(Malformed),
            $($(#[doc = $text])+ $reason,)+
        }

        /// The order of the reasons behind those of the parser.
        enum LaterReason {
            $($reason),+
        }

        impl DropReason {
            /// Every reason, in the order in which counters are shown.
            pub const ALL: [DropReason; BEHIND + [$($name),+].len()] = {
                let mut all = [DropReason::$first; _];
                let mut place = 0;
                while place < Malformed::ALL.len() {
                    all[1 + place] = DropReason::Malformed(Malformed::ALL[place]);
                    place += 1;
                }
                $(all[BEHIND + LaterReason::$reason as usize] = DropReason::$reason;)+
                all
            };

            /// The reason's place in [`DropReason::ALL`].
            #[inline]
            pub fn index(self) -> usize {
                match self {
                    DropReason::$first => 0,
                    DropReason::Malformed(why) => 1 + why as usize,
                    $(DropReason::$reason => BEHIND + LaterReason::$reason as usize,)+
                }
            }

            /// The reason's name in counters: stable.
            pub const fn name(self) -> &'static str {
                match self {
                    DropReason::$first => $first_name,
                    DropReason::Malformed(why) => why.name(),
                    $(DropReason::$reason => $name,)+
                }
            }
        }
    };
}

/// The place of the first reason behind those of the parser.
const BEHIND: usize = 1 + Malformed::ALL.len();

drop_reasons! {
    /// A drop rule matched.
    Rule "rule";
    /// Larger than the MTU of the port that it should leave by.
    MtuExceeded "mtu-exceeded";
    /// The port that it came in by has no wire.
    NoWire "no-wire";
    /// The sending port's queue was full (counted by the host).
    TxFull "tx-full";
    /// The port that it came in by, or should leave by, is down or gone (counted by the host).
    PortDown "port-down";
    /// A frame that a kernel port should have cut into segments, but cannot (counted by the host).
    Oversized "oversized";
    /// No packet buffer was free (counted by the host).
    NoBuffer "no-buffer";
    /// The connection limit is reached, and no half-open connection can be evicted.
    ConnFull "conn-full";
    /// A TCP segment that cannot begin a connection, where a rule would create and map one, or under `set conn pickup strict`.
    ConnNotSyn "conn-not-syn";
    /// A packet that is invalid for its connection, under `set conn invalid drop`, or where a rule would create a connection that maps it.
    ConnInvalid "conn-invalid";
    /// No outside address was left.
    NatNoAddress "nat-no-address";
    /// No outside port was left.
    NatNoPort "nat-no-port";
    /// The inside address holds as many outside ports as it may (`set nat ports-per-host`).
    NatHostLimit "nat-host-limit";
    /// The source address has begun as many connections as it may (`set conn per-source`).
    ConnPerSource "conn-per-source";
    /// The outside endpoint that a rule requires belongs to another connection.
    NatClash "nat-clash";
    /// An ICMP error that quotes a connection's tuple, but no packet that the connection can have in flight.
    IcmpUnrelated "icmp-unrelated";
    /// A packet that a rule would map, but that is of no connection and begins none: it would leave untranslated.
    NatUnsolicited "nat-unsolicited";
    /// A later fragment that timed out before the first one of its datagram came.
    FragmentEarly "fragment-early";
    /// A later fragment that was held for the first one of its datagram, and evicted for others.
    FragmentNoRoom "fragment-no-room";
    /// A fragment that overlaps another one (RFC 5722).
    FragmentOverlap "fragment-overlap";
    /// A fragment that was seen before.
    FragmentDuplicate "fragment-duplicate";
    /// A fragment that is empty, has a length that is no multiple of 8 though more follow, or extends beyond the maximum datagram.
    FragmentBadLength "fragment-bad-length";
    /// The datagram has more fragments than are tracked.
    FragmentTooMany "fragment-too-many";
    /// A fragment of a datagram whose first one was refused or dropped by a rule.
    FragmentRefused "fragment-refused";
    /// Too many packets wait for the worker that owns the connection (counted by the host).
    HandoverFull "handover-full";
    /// There is no memory for one more connection, and none can be evicted.
    ConnNoMemory "conn-no-memory";
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
