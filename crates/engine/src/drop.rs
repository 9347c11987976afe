//! The reasons for drops. Every dropped packet has one reason, and each reason has a counter.

use mmb_packet::Malformed;

/// Defines [`DropReason`] from one row per reason: the variant, its name in counters, and its meaning and
/// remedy in docs/operations.md. The first row comes before the reasons of the parser, the others come after
/// them.
macro_rules! drop_reasons {
    (
        $first:ident $first_name:literal: $first_meaning:literal, $first_remedy:literal;
        $($reason:ident $name:literal: $meaning:literal, $remedy:literal;)+
    ) => {
        /// A reason for a drop.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum DropReason {
            #[doc = $first_meaning]
            $first,
            /// The packet cannot be parsed.
            Malformed(Malformed),
            $(#[doc = $meaning] $reason,)+
        }

        /// The reasons after those of the parser, in order.
        enum ReasonAfterParser {
            $($reason),+
        }

        impl DropReason {
            /// Every reason, in the order in which counters are shown.
            pub const ALL: [DropReason; AFTER_PARSER + [$($name),+].len()] = {
                let mut all = [DropReason::$first; _];
                let mut place = 0;
                while place < Malformed::ALL.len() {
                    all[1 + place] = DropReason::Malformed(Malformed::ALL[place]);
                    place += 1;
                }
                $(all[AFTER_PARSER + ReasonAfterParser::$reason as usize] = DropReason::$reason;)+
                all
            };

            /// The reason's index in [`DropReason::ALL`].
            #[inline]
            pub fn index(self) -> usize {
                match self {
                    DropReason::$first => 0,
                    DropReason::Malformed(why) => 1 + why as usize,
                    $(DropReason::$reason => AFTER_PARSER + ReasonAfterParser::$reason as usize,)+
                }
            }

            /// The reason's name in counters. Names are stable.
            pub const fn name(self) -> &'static str {
                match self {
                    DropReason::$first => $first_name,
                    DropReason::Malformed(why) => why.name(),
                    $(DropReason::$reason => $name,)+
                }
            }

            /// The meaning and the remedy of the reason, for documents; the remedy may be empty.
            pub const fn explanation(self) -> (&'static str, &'static str) {
                match self {
                    DropReason::$first => ($first_meaning, $first_remedy),
                    DropReason::Malformed(why) => why.explanation(),
                    $(DropReason::$reason => ($meaning, $remedy),)+
                }
            }
        }
    };
}

impl DropReason {
    /// The reasons for drops by rules, the most common one first.
    pub const OF_RULES: [DropReason; 3] = [DropReason::Rule, DropReason::RuleReject, DropReason::RuleLimit];
}

/// The index of the first reason after those of the parser.
const AFTER_PARSER: usize = 1 + Malformed::ALL.len();

drop_reasons! {
    Rule "rule":
        "a rule drops the packet",
        "`mmb list` shows which";
    RuleReject "rule-reject":
        "a rule rejects the packet",
        "`mmb list` shows which; `mmb show errors` counts the answers (`reject`) and why others were not made";
    RuleLimit "rule-limit":
        "the packet exceeds the rate of a rule with `limit`",
        "`mmb list` shows which";
    MtuExceeded "mtu-exceeded":
        "the packet is larger than the MTU of the output port",
        "set equal MTUs on both sides; rules that add options enlarge packets";
    NoWire "no-wire":
        "the input port has no partner",
        "`--wire`";
    TxFull "tx-full":
        "the queue of the sending device is full, or a filter at its egress drops the frame",
        "the device is slower than the traffic; `tc filter show dev … egress`, `nft list ruleset`";
    PortDown "port-down":
        "the sending port is down or gone; in VPP: mmb was disabled on the interface while the packet waited",
        "`ip link`; mmb continues with the other ports";
    Oversized "oversized":
        "a frame is too large and cannot be segmented",
        "set equal MTUs on both sides, and start mmb again if `mmb show ports` has a smaller one than the interface; the sender may send more than 64 KB in one frame (`ip link … gso_max_size`)";
    NoBuffer "no-buffer":
        "no packet buffer is free",
        "";
    ConnFull "conn-full":
        "the table has its maximum number of connections (`show conn summary`), and none of them can be evicted",
        "`set conn max`; where memory limits the number, more memory";
    ConnNotSyn "conn-not-syn":
        "a TCP segment without a connection: a RST, FIN or SYN-ACK that a stateful rule would map, or under `set conn pickup strict` any segment except a SYN",
        "late packets of closed connections; connections from before the start of mmb";
    ConnInvalid "conn-invalid":
        "a packet that is invalid for its connection, under `set conn invalid drop`; a first packet with impossible flags or a wrong checksum that a stateful rule would map",
        "`mmb show conn summary` counts the kinds ([nat.md](nat.md)); scans, forgeries, asymmetric paths";
    NatNoAddress "nat-no-address":
        "the range of a mapping has no free address, and no closed or unanswered connection can give one up",
        "a larger range, shorter timeouts";
    LbNoServer "lb-no-server":
        "every server of an `lb` is taken out of service by `server drain` or `server down`, or has the weight 0",
        "`mmb show servers`; `mmb server up`";
    NatNoPort "nat-no-port":
        "the range of a mapping has no free port, and no closed or unanswered connection can give one up",
        "a larger range, shorter timeouts";
    NatHostLimit "nat-host-limit":
        "a host (an inside address, of IPv6 a /64 network) holds its maximum number of outside ports and needs another one",
        "inspect the host (`mmb show connections ip-saddr …`); `set nat ports-per-host`";
    ConnPerSource "conn-per-source":
        "a source address has begun its maximum number of connections",
        "`set conn per-source`";
    NatClash "nat-clash":
        "the only binding that a rule allows (a fixed port, or an address for a protocol without ports) belongs to another connection",
        "a range instead of one value";
    IcmpUnrelated "icmp-unrelated":
        "an ICMP error quotes a connection, but goes to another host than the sender of the quoted packet, has a wrong checksum, is fragmented, or quotes a packet that cannot be in flight ([nat.md](nat.md), \"ICMP errors\")",
        "forged errors; another NAT on the path that does not translate the quoted packet";
    NatUnsolicited "nat-unsolicited":
        "a rule would map the packet, but the packet belongs to no connection and begins none: it would reveal the address that the rule hides",
        "unsolicited ICMP replies and errors; harmless";
    FragmentEarly "fragment-early":
        "the first fragment of the datagram did not arrive within 15 seconds, while stateful rules are in force",
        "packet loss on the path";
    FragmentNoRoom "fragment-no-room":
        "the fragment waited for the first fragment of its datagram and was evicted by others",
        "a flood of fragments, or heavy loss on the path";
    FragmentOverlap "fragment-overlap":
        "a fragment overlaps another one (RFC 5722)",
        "broken or hostile senders";
    FragmentDuplicate "fragment-duplicate":
        "the fragment was received before",
        "broken or hostile senders";
    FragmentBadLength "fragment-bad-length":
        "a fragment is empty, has a length that is no multiple of 8 though more follow, or extends beyond the maximum datagram",
        "broken or hostile senders";
    FragmentTooMany "fragment-too-many":
        "the datagram has more fragments than are tracked",
        "broken or hostile senders";
    FragmentRefused "fragment-refused":
        "a rule dropped the first fragment of the datagram, or mmb refused it for one of the reasons above",
        "see that reason";
    HandoverFull "handover-full":
        "the ring to the worker that owns the connection is full",
        "fewer workers: with one worker, no packet is handed over";
    ConnNoMemory "conn-no-memory":
        "the system has no memory for another connection, and none can be evicted",
        "more memory (`ulimit`, the control group), or a lower `set conn max`";
    StreamBadChecksum "stream-bad-checksum":
        "a packet of a guarded stream has a wrong transport checksum, or is shorter than its UDP header says",
        "broken hardware, or a sender that tries to show mmb bytes which its receiver ignores";
    StreamNoRoom "stream-no-room":
        "there is no room to keep the bytes of a guarded stream: the memory for streams is full, or too many bytes arrived out of order; the sender sends them again",
        "`set stream memory`, `set stream reorder`";
    StreamOutOfWindow "stream-out-of-window":
        "a segment of a guarded stream that no receiver should accept: beyond the window, behind a FIN or a RST, with an acknowledgment of bytes that were not sent, an old timestamp or no ACK flag",
        "segments in flight when their receiver reset the connection; broken or hostile senders; packets that reach the receiver around mmb";
    StreamUrgent "stream-urgent":
        "urgent data in a guarded stream, under `set stream urgent drop`",
        "`set stream urgent`";
    StreamFragment "stream-fragment":
        "a fragment of a guarded stream: its bytes cannot be searched",
        "a lower MTU on the path; TCP senders avoid fragments by themselves";
    StreamHeld "stream-held":
        "the begin of a match was held back for longer than `stream hold`, under `set stream hold-over close`; or a receiver did not take bytes for 100 s that mmb had acknowledged while it held them back: the connection is closed",
        "`set stream hold`, `set stream hold-over`; the receiver, the path to it";
    StreamLost "stream-lost":
        "a connection that cannot go on: it was killed behind edits of its bytes, or it is of a saved state and edits were in flight or a rule had ended it; its packets are answered with a RST",
        "a restart of mmb, `conn kill`, `del --kill`; the ends begin anew";
    HttpUnfit "http-unfit":
        "a message of a connection with rules on HTTP that do more than report is not understood for certain, or its head is too long or too slow, under `set http unfit close`: the connection is closed",
        "`set http unfit`, `set http head`";
    StreamUnfit "stream-unfit":
        "a connection whose stream cannot be followed (picked up midway, with signed segments, or without room), under `set stream unfit close` or `drop`",
        "`set stream unfit`, `set stream max`, `set stream memory`";
    StreamPerSource "stream-per-source":
        "a connection whose stream is not followed, since its source has its share of the streams already, under `set stream unfit close` or `drop`",
        "`set stream per-source`, `set stream max`";
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
