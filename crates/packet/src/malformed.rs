//! Why a packet cannot be parsed.

/// Makes [`Malformed`] of one row for each reason: the variant, its name in counters, its meaning and remedy in the documents.
macro_rules! malformed_reasons {
    ($($reason:ident $name:literal: $meaning:literal, $remedy:literal;)+) => {
        /// Why a packet cannot be parsed. Each is a drop reason of the same name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Malformed {
            $(#[doc = $meaning] $reason,)+
        }

        impl Malformed {
            /// Every reason.
            pub const ALL: [Malformed; [$($name),+].len()] = [$(Malformed::$reason),+];

            /// The reason's name in counters: stable.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Malformed::$reason => $name,)+
                }
            }

            /// The meaning and the remedy of the reason, for documents; the remedy may be empty.
            pub const fn explanation(self) -> (&'static str, &'static str) {
                match self {
                    $(Malformed::$reason => ($meaning, $remedy),)+
                }
            }
        }
    };
}

malformed_reasons! {
    LinkTruncated "link-truncated":
        "the frame ends inside its link header or a VLAN tag",
        "broken or hostile senders; in captures: a snap length (`tcpdump -s 0`)";
    VlanStackTooDeep "vlan-stack-too-deep":
        "more than four VLAN tags",
        "";
    IpBadVersion "ip-bad-version":
        "the IP version differs from the one that the ether type (or the link type of a capture) promises",
        "broken or hostile senders";
    Ip4Truncated "ip4-truncated":
        "the IPv4 header, or the packet that it announces, is longer than the frame",
        "broken or hostile senders; in captures: a snap length (`tcpdump -s 0`)";
    Ip4BadLength "ip4-bad-length":
        "the IPv4 header length is below 20 bytes, or above the total length",
        "broken or hostile senders";
    Ip4BadChecksum "ip4-bad-checksum":
        "the IPv4 header checksum is wrong",
        "broken or hostile senders";
    Ip6Truncated "ip6-truncated":
        "the IPv6 header, or the packet that it announces, is longer than the frame",
        "broken or hostile senders; in captures: a snap length (`tcpdump -s 0`)";
    Ip6HeaderTruncated "ip6-header-truncated":
        "an IPv6 extension header runs past the end of the packet",
        "broken or hostile senders";
    Ip6ChainTooLong "ip6-chain-too-long":
        "more extension headers than `set ip6-max-headers`",
        "raise the setting if the packets are legitimate";
    L4Truncated "l4-truncated":
        "the packet ends inside its transport header",
        "broken or hostile senders; in captures: a snap length (`tcpdump -s 0`)";
    TcpBadOffset "tcp-bad-offset":
        "the TCP data offset is below 5, or above the length of the segment",
        "broken or hostile senders";
    TinyFragment "tiny-fragment":
        "a first fragment does not contain the whole transport header (RFC 1858, RFC 7112)",
        "hostile senders";
}
