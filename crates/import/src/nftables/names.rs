//! The names that nftables knows for values, and what they are.

use crate::cube::Family;
use crate::iptables::names;

const ICMP_TYPES: &[(&str, u8)] = &[
    ("echo-reply", 0),
    ("destination-unreachable", 3),
    ("source-quench", 4),
    ("redirect", 5),
    ("echo-request", 8),
    ("router-advertisement", 9),
    ("router-solicitation", 10),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
    ("timestamp-request", 13),
    ("timestamp-reply", 14),
    ("info-request", 15),
    ("info-reply", 16),
    ("address-mask-request", 17),
    ("address-mask-reply", 18),
];

const ICMP6_TYPES: &[(&str, u8)] = &[
    ("destination-unreachable", 1),
    ("packet-too-big", 2),
    ("time-exceeded", 3),
    ("parameter-problem", 4),
    ("echo-request", 128),
    ("echo-reply", 129),
    ("mld-listener-query", 130),
    ("mld-listener-report", 131),
    ("mld-listener-done", 132),
    ("mld-listener-reduction", 132),
    ("nd-router-solicit", 133),
    ("nd-router-advert", 134),
    ("nd-neighbor-solicit", 135),
    ("nd-neighbor-advert", 136),
    ("nd-redirect", 137),
    ("router-renumbering", 138),
    ("ind-neighbor-solicit", 141),
    ("ind-neighbor-advert", 142),
    ("mld2-listener-report", 143),
];

const ICMP_CODES: &[(&str, u8)] = &[
    ("net-unreachable", 0),
    ("host-unreachable", 1),
    ("prot-unreachable", 2),
    ("port-unreachable", 3),
    ("frag-needed", 4),
    ("net-prohibited", 9),
    ("host-prohibited", 10),
    ("admin-prohibited", 13),
];

const ICMP6_CODES: &[(&str, u8)] = &[
    ("no-route", 0),
    ("admin-prohibited", 1),
    ("addr-unreachable", 3),
    ("port-unreachable", 4),
    ("policy-fail", 5),
    ("reject-route", 6),
];

const TCP_FLAGS: &[(&str, u8)] = &[
    ("fin", 0x01),
    ("syn", 0x02),
    ("rst", 0x04),
    ("psh", 0x08),
    ("ack", 0x10),
    ("urg", 0x20),
    ("ecn", 0x40),
    ("cwr", 0x80),
];

const ECN: &[(&str, u8)] = &[("not-ect", 0), ("ect1", 1), ("ect0", 2), ("ce", 3)];

/// What the values of a field are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValueNames {
    None,
    Ports,
    Protocols,
    IcmpTypes(Family),
    IcmpCodes(Family),
    TcpFlags,
    Dscp,
    Ecn,
    EtherTypes,
}

/// The value of a name.
pub(super) fn number(word: &str, of: ValueNames) -> Option<u128> {
    let listed = |names: &[(&str, u8)]| names.iter().find(|(name, _)| *name == word).map(|&(_, n)| n.into());
    let named = match of {
        ValueNames::None => None,
        ValueNames::Ports => names::port(word).map(u128::from),
        ValueNames::Protocols => names::protocol(word).map(u128::from),
        ValueNames::IcmpTypes(Family::Ip6) => listed(ICMP6_TYPES),
        ValueNames::IcmpTypes(Family::Ip4 | Family::Frame) => listed(ICMP_TYPES),
        ValueNames::IcmpCodes(Family::Ip6) => listed(ICMP6_CODES),
        ValueNames::IcmpCodes(Family::Ip4 | Family::Frame) => listed(ICMP_CODES),
        ValueNames::TcpFlags => listed(TCP_FLAGS),
        ValueNames::Dscp => names::dscp(word).map(u128::from),
        ValueNames::Ecn => listed(ECN),
        ValueNames::EtherTypes => match word {
            "ip" => Some(0x0800),
            "arp" => Some(0x0806),
            "ip6" => Some(0x86dd),
            _ => None,
        },
    };
    named.or_else(|| names::number(word).map(u128::from))
}
