//! Names of well-known values, and how the values of each field are printed.
//!
//! The lists belong to the rows of [`FIELDS`](crate::FIELDS), which alone refer to them.

/// The names that values of a field have, and how its values are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueNames {
    /// The format in which a value is printed.
    pub shown: ValueFormat,
    /// The names; a value with several is printed as the first.
    pub list: &'static [(&'static str, u64)],
}

/// The format in which the values of a field are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueFormat {
    /// In decimal.
    Decimal,
    /// In hexadecimal.
    Hex,
    /// By name if the value has one, else in decimal.
    Name,
}

impl ValueNames {
    const fn new(shown: ValueFormat, list: &'static [(&'static str, u64)]) -> ValueNames {
        ValueNames { shown, list }
    }

    /// The value that a name stands for; no name begins with a digit.
    pub fn value(&self, name: &str) -> Option<u64> {
        if name.starts_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        self.list.iter().find(|(n, _)| *n == name).map(|&(_, value)| value)
    }

    /// The first name of a value.
    pub fn name(&self, value: u128) -> Option<&'static str> {
        self.list.iter().find(|(_, v)| u128::from(*v) == value).map(|&(name, _)| name)
    }
}

pub(crate) const ETH_TYPES: ValueNames = ValueNames::new(
    ValueFormat::Hex,
    &[
        ("ip4", 0x0800),
        ("arp", 0x0806),
        ("ip6", 0x86dd),
        ("vlan", 0x8100),
        ("qinq", 0x88a8),
        ("mpls", 0x8847),
        ("pppoe-discovery", 0x8863),
        ("pppoe", 0x8864),
        ("eapol", 0x888e),
        ("lldp", 0x88cc),
        ("macsec", 0x88e5),
        ("ptp", 0x88f7),
    ],
);
pub(crate) const CT_STATES: ValueNames = ValueNames::new(
    ValueFormat::Name,
    &[("new", 0), ("established", 1), ("related", 2), ("reply", 3), ("invalid", 4)],
);
pub(crate) const FAMILIES: ValueNames =
    ValueNames::new(ValueFormat::Name, &[("ip4", 4), ("ip6", 6), ("ip", 4)]);
/// IP protocol numbers (IANA), for `ip-proto` and `ip6-next`.
pub(crate) const PROTOCOLS: ValueNames = ValueNames::new(
    ValueFormat::Name,
    &[
        ("icmp", 1),
        ("igmp", 2),
        ("ipip", 4),
        ("tcp", 6),
        ("udp", 17),
        ("dccp", 33),
        ("ip6", 41),
        ("rsvp", 46),
        ("gre", 47),
        ("esp", 50),
        ("ah", 51),
        ("icmp6", 58),
        ("eigrp", 88),
        ("ospf", 89),
        ("pim", 103),
        ("vrrp", 112),
        ("l2tp", 115),
        ("sctp", 132),
        ("udplite", 136),
    ],
);
pub(crate) const NEXT_HEADERS: ValueNames = ValueNames::new(
    ValueFormat::Name,
    &[
        ("hopbyhop", 0),
        ("tcp", 6),
        ("udp", 17),
        ("ip6", 41),
        ("routing", 43),
        ("fragment", 44),
        ("gre", 47),
        ("esp", 50),
        ("ah", 51),
        ("icmp6", 58),
        ("none", 59),
        ("ospf", 89),
        ("destopt", 60),
        ("sctp", 132),
        ("mobility", 135),
        ("hip", 139),
        ("shim6", 140),
    ],
);
/// Differentiated services codepoints (RFC 2474, 2597, 3246, 5865, 8622).
pub(crate) const DSCP: ValueNames = ValueNames::new(
    ValueFormat::Name,
    &[
        ("cs0", 0),
        ("le", 1),
        ("cs1", 8),
        ("af11", 10),
        ("af12", 12),
        ("af13", 14),
        ("cs2", 16),
        ("af21", 18),
        ("af22", 20),
        ("af23", 22),
        ("cs3", 24),
        ("af31", 26),
        ("af32", 28),
        ("af33", 30),
        ("cs4", 32),
        ("af41", 34),
        ("af42", 36),
        ("af43", 38),
        ("cs5", 40),
        ("voice-admit", 44),
        ("ef", 46),
        ("cs6", 48),
        ("cs7", 56),
    ],
);
pub(crate) const ECN: ValueNames =
    ValueNames::new(ValueFormat::Decimal, &[("non-ect", 0), ("ect1", 1), ("ect0", 2), ("ce", 3)]);
pub(crate) const IP_FLAGS: ValueNames =
    ValueNames::new(ValueFormat::Decimal, &[("mf", 1), ("df", 2), ("res", 4)]);
pub(crate) const ICMP_TYPES: ValueNames = ValueNames::new(
    ValueFormat::Name,
    &[
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
    ],
);
pub(crate) const ICMP6_TYPES: ValueNames = ValueNames::new(
    ValueFormat::Name,
    &[
        ("destination-unreachable", 1),
        ("packet-too-big", 2),
        ("time-exceeded", 3),
        ("parameter-problem", 4),
        ("echo-request", 128),
        ("echo-reply", 129),
        ("mld-query", 130),
        ("mld-report", 131),
        ("mld-done", 132),
        ("router-solicitation", 133),
        ("router-advertisement", 134),
        ("neighbor-solicitation", 135),
        ("neighbor-advertisement", 136),
        ("redirect", 137),
        ("mld2-report", 143),
    ],
);
/// Transport port numbers (IANA service names).
pub(crate) const SERVICES: ValueNames = ValueNames::new(
    ValueFormat::Decimal,
    &[
        ("ftp-data", 20),
        ("ftp", 21),
        ("ssh", 22),
        ("telnet", 23),
        ("smtp", 25),
        ("dns", 53),
        ("dhcp-server", 67),
        ("dhcp-client", 68),
        ("tftp", 69),
        ("http", 80),
        ("kerberos", 88),
        ("pop3", 110),
        ("ntp", 123),
        ("imap", 143),
        ("snmp", 161),
        ("bgp", 179),
        ("ldap", 389),
        ("https", 443),
        ("smb", 445),
        ("ike", 500),
        ("syslog", 514),
        ("submission", 587),
        ("ldaps", 636),
        ("dot", 853),
        ("imaps", 993),
        ("pop3s", 995),
        ("openvpn", 1194),
        ("mysql", 3306),
        ("rdp", 3389),
        ("stun", 3478),
        ("ipsec-nat-t", 4500),
        ("vxlan", 4789),
        ("sip", 5060),
        ("mdns", 5353),
        ("postgresql", 5432),
        ("http-alt", 8080),
        ("wireguard", 51820),
    ],
);
pub(crate) const TCP_FLAGS: ValueNames = ValueNames::new(
    ValueFormat::Name,
    &[
        ("fin", 0x01),
        ("syn", 0x02),
        ("rst", 0x04),
        ("push", 0x08),
        ("ack", 0x10),
        ("urg", 0x20),
        ("ece", 0x40),
        ("cwr", 0x80),
        ("syn-ack", 0x12),
        ("fin-ack", 0x11),
        ("rst-ack", 0x14),
        ("push-ack", 0x18),
        ("null", 0x00),
        ("xmas", 0x29),
    ],
);
pub(crate) const NONE: ValueNames = ValueNames::new(ValueFormat::Decimal, &[]);
pub(crate) const HEX: ValueNames = ValueNames::new(ValueFormat::Hex, &[]);
