//! The names that iptables knows for protocols, ICMP types, TCP flags and the type of service.

use crate::cube::Family;
use mmb_policy::{CtState, FieldId};

/// Protocols by the names of iptables and of the usual `/etc/protocols`. Some differ from the names of the rule language: `ipip`
/// is 94 there.
const PROTOCOLS: &[(&str, u8)] = &[
    ("all", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ggp", 3),
    ("ipencap", 4),
    ("st", 5),
    ("tcp", 6),
    ("egp", 8),
    ("igp", 9),
    ("pup", 12),
    ("udp", 17),
    ("hmp", 20),
    ("xns-idp", 22),
    ("rdp", 27),
    ("iso-tp4", 29),
    ("dccp", 33),
    ("xtp", 36),
    ("ddp", 37),
    ("idpr-cmtp", 38),
    ("ipv6", 41),
    ("ipv6-route", 43),
    ("ipv6-frag", 44),
    ("idrp", 45),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ipv6-crypt", 50),
    ("ah", 51),
    ("ipv6-auth", 51),
    ("skip", 57),
    ("ipv6-icmp", 58),
    ("icmpv6", 58),
    ("ipv6-nonxt", 59),
    ("ipv6-opts", 60),
    ("rspf", 73),
    ("vmtp", 81),
    ("eigrp", 88),
    ("ospf", 89),
    ("ax.25", 93),
    ("ipip", 94),
    ("etherip", 97),
    ("encap", 98),
    ("pim", 103),
    ("ipcomp", 108),
    ("vrrp", 112),
    ("l2tp", 115),
    ("isis", 124),
    ("sctp", 132),
    ("fc", 133),
    ("mobility-header", 135),
    ("ipv6-mh", 135),
    ("mh", 135),
    ("udplite", 136),
    ("mpls-in-ip", 137),
    ("hip", 139),
    ("shim6", 140),
    ("wesp", 141),
    ("rohc", 142),
];

/// ICMP types; with a code if the name includes one.
type IcmpNames = &'static [(&'static str, u8, Option<u8>)];

const ICMP: IcmpNames = &[
    ("echo-reply", 0, None),
    ("pong", 0, None),
    ("destination-unreachable", 3, None),
    ("network-unreachable", 3, Some(0)),
    ("host-unreachable", 3, Some(1)),
    ("protocol-unreachable", 3, Some(2)),
    ("port-unreachable", 3, Some(3)),
    ("fragmentation-needed", 3, Some(4)),
    ("source-route-failed", 3, Some(5)),
    ("network-unknown", 3, Some(6)),
    ("host-unknown", 3, Some(7)),
    ("network-prohibited", 3, Some(9)),
    ("host-prohibited", 3, Some(10)),
    ("TOS-network-unreachable", 3, Some(11)),
    ("TOS-host-unreachable", 3, Some(12)),
    ("communication-prohibited", 3, Some(13)),
    ("host-precedence-violation", 3, Some(14)),
    ("precedence-cutoff", 3, Some(15)),
    ("source-quench", 4, None),
    ("redirect", 5, None),
    ("network-redirect", 5, Some(0)),
    ("host-redirect", 5, Some(1)),
    ("TOS-network-redirect", 5, Some(2)),
    ("TOS-host-redirect", 5, Some(3)),
    ("echo-request", 8, None),
    ("ping", 8, None),
    ("router-advertisement", 9, None),
    ("router-solicitation", 10, None),
    ("time-exceeded", 11, None),
    ("ttl-exceeded", 11, None),
    ("ttl-zero-during-transit", 11, Some(0)),
    ("ttl-zero-during-reassembly", 11, Some(1)),
    ("parameter-problem", 12, None),
    ("ip-header-bad", 12, Some(0)),
    ("required-option-missing", 12, Some(1)),
    ("timestamp-request", 13, None),
    ("timestamp-reply", 14, None),
    ("address-mask-request", 17, None),
    ("address-mask-reply", 18, None),
];

const ICMP6: IcmpNames = &[
    ("destination-unreachable", 1, None),
    ("no-route", 1, Some(0)),
    ("communication-prohibited", 1, Some(1)),
    ("beyond-scope", 1, Some(2)),
    ("address-unreachable", 1, Some(3)),
    ("port-unreachable", 1, Some(4)),
    ("failed-policy", 1, Some(5)),
    ("reject-route", 1, Some(6)),
    ("packet-too-big", 2, None),
    ("time-exceeded", 3, None),
    ("ttl-exceeded", 3, None),
    ("ttl-zero-during-transit", 3, Some(0)),
    ("ttl-zero-during-reassembly", 3, Some(1)),
    ("parameter-problem", 4, None),
    ("bad-header", 4, Some(0)),
    ("unknown-header-type", 4, Some(1)),
    ("unknown-option", 4, Some(2)),
    ("echo-request", 128, None),
    ("ping", 128, None),
    ("echo-reply", 129, None),
    ("pong", 129, None),
    ("mld-listener-query", 130, None),
    ("mld-listener-report", 131, None),
    ("mld-listener-done", 132, None),
    ("router-solicitation", 133, None),
    ("router-advertisement", 134, None),
    ("neighbour-solicitation", 135, None),
    ("neighbor-solicitation", 135, None),
    ("neighbour-advertisement", 136, None),
    ("neighbor-advertisement", 136, None),
    ("redirect", 137, None),
];

const TCP_FLAGS: &[(&str, u8)] = &[
    ("FIN", 0x01),
    ("SYN", 0x02),
    ("RST", 0x04),
    ("PSH", 0x08),
    ("ACK", 0x10),
    ("URG", 0x20),
    ("ECE", 0x40),
    ("CWR", 0x80),
    ("ALL", 0x3f),
    ("NONE", 0x00),
];

/// Types of service, with a mask that excludes the lowest bit and the upper two.
const SERVICES: &[(&str, u8)] = &[
    ("Minimize-Delay", 0x10),
    ("Maximize-Throughput", 0x08),
    ("Maximize-Reliability", 0x04),
    ("Minimize-Cost", 0x02),
    ("Normal-Service", 0x00),
];

/// A protocol by name or number; 0 matches any protocol.
pub(crate) fn protocol(word: &str) -> Option<u8> {
    let named = PROTOCOLS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|&(_, n)| n);
    named.or_else(|| word.parse().ok())
}

/// An ICMP type, with its code if it is given.
pub(crate) fn icmp(family: Family, word: &str) -> Option<(u8, Option<u8>)> {
    let names = if family == Family::Ip4 { ICMP } else { ICMP6 };
    if let Some(&(_, of_type, code)) = names.iter().find(|(name, ..)| name.eq_ignore_ascii_case(word)) {
        return Some((of_type, code));
    }
    match word.split_once('/') {
        Some((of_type, code)) => Some((of_type.parse().ok()?, Some(code.parse().ok()?))),
        None => Some((word.parse().ok()?, None)),
    }
}

/// TCP flags, separated by commas or as a number.
pub(crate) fn tcp_flags(word: &str) -> Option<u8> {
    if let Some(n) = number(word) {
        return u8::try_from(n).ok();
    }
    let flag =
        |word: &str| TCP_FLAGS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|&(_, n)| n);
    word.split(',').try_fold(0, |flags, word| Some(flags | flag(word)?))
}

/// A type of service and the mask under which it is compared.
pub(crate) fn service(word: &str) -> Option<(u8, u8)> {
    if let Some(&(_, value)) = SERVICES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)) {
        return Some((value, 0x3f));
    }
    let (value, mask) = word.split_once('/').unwrap_or((word, "0xff"));
    Some((u8::try_from(number(value)?).ok()?, u8::try_from(number(mask)?).ok()?))
}

/// A DSCP class.
pub(crate) fn dscp(word: &str) -> Option<u64> {
    let word = word.to_ascii_lowercase();
    let known = || FieldId::IpDscp.info().names.value(&word);
    if word == "be" { Some(0) } else { known() }
}

/// A port by number, or by a name that the rule language has too.
pub(crate) fn port(word: &str) -> Option<u16> {
    let named = || FieldId::TcpDport.info().names.value(word).and_then(|n| n.try_into().ok());
    word.parse().ok().or_else(named)
}

/// The states that a word of conntrack stands for.
pub(crate) fn state(word: &str) -> Option<&'static [CtState]> {
    Some(match word.to_ascii_uppercase().as_str() {
        "NEW" => &[CtState::New],
        "ESTABLISHED" => &[CtState::Established, CtState::EstablishedReply],
        "RELATED" => &[CtState::Related, CtState::RelatedReply],
        "INVALID" => &[CtState::Invalid],
        "UNTRACKED" => &[CtState::Untracked],
        _ => return None,
    })
}

/// A number, in hexadecimal after `0x`.
pub(crate) fn number(word: &str) -> Option<u32> {
    match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}
