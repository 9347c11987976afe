//! Filters of connections as text.
//!
//! A filter is pairs of a word and a value. The words are fields of rules, which [`TERMS`] lists, and a few that only
//! connections have; a value is written as in a rule.

use crate::print::value::{Print, number_item};
use mmb_packet::proto::{TCP, UDP};
use mmb_policy::field::{FieldId, ones};
use mmb_policy::filter::{ConnectionFilter, STATES};
use mmb_policy::rule::{NumberItem, RuleId};
use std::fmt::{Formatter, Result};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The subject of a word of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterTerm {
    /// The IP version.
    Family,
    /// The protocol.
    Proto,
    /// The source address.
    Source,
    /// The destination address.
    Destination,
    /// The source port.
    SourcePort,
    /// The destination port.
    DestinationPort,
    /// The state.
    State,
    /// A rule.
    Rule,
}

/// A word of a filter.
#[derive(Debug)]
pub struct TermInfo {
    /// The word.
    pub name: &'static str,
    /// Its subject.
    pub subject: FilterTerm,
    /// The field whose values it takes.
    pub(crate) field: Option<FieldId>,
    /// The IP version that it implies.
    family: Option<u8>,
    /// The protocol that it implies.
    proto: Option<u8>,
    /// One line of help.
    pub help: &'static str,
}

/// Every word of a filter.
pub static TERMS: &[TermInfo] = &[
    field("net-proto", FilterTerm::Family, FieldId::NetProto, None, None, "IPv4 or IPv6"),
    field("ip-proto", FilterTerm::Proto, FieldId::IpProto, None, None, "the protocol"),
    field("ip-saddr", FilterTerm::Source, FieldId::IpSaddr, Some(4), None, "the address of the initiator"),
    field(
        "ip-daddr",
        FilterTerm::Destination,
        FieldId::IpDaddr,
        Some(4),
        None,
        "the address of the responder",
    ),
    field("ip6-saddr", FilterTerm::Source, FieldId::Ip6Saddr, Some(6), None, "the address of the initiator"),
    field(
        "ip6-daddr",
        FilterTerm::Destination,
        FieldId::Ip6Daddr,
        Some(6),
        None,
        "the address of the responder",
    ),
    field(
        "tcp-sport",
        FilterTerm::SourcePort,
        FieldId::TcpSport,
        None,
        Some(TCP),
        "the port of the initiator",
    ),
    field(
        "tcp-dport",
        FilterTerm::DestinationPort,
        FieldId::TcpDport,
        None,
        Some(TCP),
        "the port of the responder",
    ),
    field(
        "udp-sport",
        FilterTerm::SourcePort,
        FieldId::UdpSport,
        None,
        Some(UDP),
        "the port of the initiator",
    ),
    field(
        "udp-dport",
        FilterTerm::DestinationPort,
        FieldId::UdpDport,
        None,
        Some(UDP),
        "the port of the responder",
    ),
    field(
        "sport",
        FilterTerm::SourcePort,
        FieldId::UdpSport,
        None,
        None,
        "the port of the initiator, of any protocol; the identifier of an ICMP query",
    ),
    field(
        "dport",
        FilterTerm::DestinationPort,
        FieldId::UdpDport,
        None,
        None,
        "the port of the responder, of any protocol; the identifier of an ICMP query",
    ),
    TermInfo {
        name: "state",
        subject: FilterTerm::State,
        field: None,
        family: None,
        proto: None,
        help: "the state",
    },
    TermInfo {
        name: "rule",
        subject: FilterTerm::Rule,
        field: None,
        family: None,
        proto: None,
        help: "the id of a stateful rule of the connection",
    },
];

const fn field(
    name: &'static str,
    subject: FilterTerm,
    field: FieldId,
    family: Option<u8>,
    proto: Option<u8>,
    help: &'static str,
) -> TermInfo {
    TermInfo { name, subject, field: Some(field), family, proto, help }
}

/// The term of that name.
pub(crate) fn term_named(name: &str) -> Option<&'static TermInfo> {
    TERMS.iter().find(|info| info.name == name)
}

/// The name of a state, if it is one.
pub(crate) fn state_named(name: &str) -> Option<&'static str> {
    STATES.iter().map(|(state, _)| *state).find(|state| *state == name)
}

/// The reason why a term contradicts those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FilterError {
    /// The term was given before.
    Twice,
    /// No connection is of two IP versions.
    Families,
    /// No connection is of two protocols.
    Protocols,
    /// It takes one value.
    Several,
}

/// Adds a term that takes a field's values.
pub(crate) fn add(
    filter: &mut ConnectionFilter,
    term: &TermInfo,
    value: NumberItem,
) -> std::result::Result<(), FilterError> {
    let width = term.field.and_then(|id| id.info().width()).unwrap_or(128);
    let (first, last) = value.bounds(width);
    agree(&mut filter.family, term.family, FilterError::Families)?;
    agree(&mut filter.proto, term.proto, FilterError::Protocols)?;
    let one = |value: u128| if first == last { Ok(value as u8) } else { Err(FilterError::Several) };
    let address = |value: u128| match term.family {
        Some(4) => IpAddr::V4(Ipv4Addr::from_bits(value as u32)),
        _ => IpAddr::V6(Ipv6Addr::from_bits(value)),
    };
    let (addresses, ports) = ((address(first), address(last)), (first as u16, last as u16));
    match term.subject {
        FilterTerm::Family => agree(&mut filter.family, Some(one(first)?), FilterError::Families),
        FilterTerm::Proto => agree(&mut filter.proto, Some(one(first)?), FilterError::Protocols),
        FilterTerm::Source => once(&mut filter.src, addresses),
        FilterTerm::Destination => once(&mut filter.dst, addresses),
        FilterTerm::SourcePort => once(&mut filter.sport, ports),
        FilterTerm::DestinationPort => once(&mut filter.dport, ports),
        FilterTerm::State | FilterTerm::Rule => Ok(()),
    }
}

/// Adds the state.
pub(crate) fn set_state(
    filter: &mut ConnectionFilter,
    state: &'static str,
) -> std::result::Result<(), FilterError> {
    once(&mut filter.state, state)
}

/// Adds the rule.
pub(crate) fn set_rule(filter: &mut ConnectionFilter, rule: RuleId) -> std::result::Result<(), FilterError> {
    once(&mut filter.rule, rule)
}

/// Sets a value that may be given again if it is the same.
fn agree(
    known: &mut Option<u8>,
    said: Option<u8>,
    error: FilterError,
) -> std::result::Result<(), FilterError> {
    if said.is_some() && known.is_some() && *known != said {
        return Err(error);
    }
    *known = known.or(said);
    Ok(())
}

/// Sets a value that may be given once.
fn once<T>(known: &mut Option<T>, said: T) -> std::result::Result<(), FilterError> {
    match known {
        Some(_) => Err(FilterError::Twice),
        None => {
            *known = Some(said);
            Ok(())
        }
    }
}

impl Print for ConnectionFilter {
    /// Nothing for every connection.
    fn print(&self, f: &mut Formatter<'_>) -> Result {
        let mut before = "";
        for (subject, item) in numbers(self) {
            let fits = |term: &&TermInfo| {
                term.subject == subject
                    && term.family.is_none_or(|family| self.family == Some(family))
                    && term.proto.is_none_or(|proto| self.proto == Some(proto))
            };
            if let Some((term, id)) = TERMS.iter().find(fits).and_then(|term| Some((term, term.field?))) {
                write!(f, "{before}{} {}", term.name, number_item(id.info(), item))?;
                before = " ";
            }
        }
        if let Some(state) = self.state {
            write!(f, "{before}state {state}")?;
            before = " ";
        }
        match self.rule {
            Some(rule) => write!(f, "{before}rule {rule}"),
            None => Ok(()),
        }
    }
}

/// The values of the filter's fields, without those that the names of other terms imply.
fn numbers(filter: &ConnectionFilter) -> impl Iterator<Item = (FilterTerm, NumberItem)> {
    let ports = |ports: Option<(u16, u16)>| ports.map(|(first, last)| item(first.into(), last.into(), None));
    let addresses = |addresses: Option<(IpAddr, IpAddr)>| {
        addresses.map(|(first, last)| {
            let bits = |address| match address {
                IpAddr::V4(address) => (u128::from(address.to_bits()), 32),
                IpAddr::V6(address) => (address.to_bits(), 128),
            };
            let ((first, width), (last, _)) = (bits(first), bits(last));
            item(first, last, Some(width))
        })
    };
    let one = |value: Option<u8>, implied: bool| {
        value.filter(|_| !implied).map(|value| NumberItem::One(value.into()))
    };
    let has_address = filter.src.is_some() || filter.dst.is_some();
    let has_port =
        matches!(filter.proto, Some(TCP | UDP)) && (filter.sport.is_some() || filter.dport.is_some());
    [
        (FilterTerm::Family, one(filter.family, has_address)),
        (FilterTerm::Proto, one(filter.proto, has_port)),
        (FilterTerm::Source, addresses(filter.src)),
        (FilterTerm::Destination, addresses(filter.dst)),
        (FilterTerm::SourcePort, ports(filter.sport)),
        (FilterTerm::DestinationPort, ports(filter.dport)),
    ]
    .into_iter()
    .filter_map(|(subject, item)| Some((subject, item?)))
}

/// A range as it is written: one value, a prefix of a field of `width` bits, a range.
fn item(first: u128, last: u128, width: Option<u8>) -> NumberItem {
    let host = (first ^ last).count_ones() as u8;
    match width {
        _ if first == last => NumberItem::One(first),
        Some(width) if first ^ last == ones(host) && first & ones(host) == 0 => {
            NumberItem::Prefix(first, width - host)
        }
        _ => NumberItem::Range(first, last),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Show;
    use crate::{Command, parse_command};

    fn parsed(text: &str) -> ConnectionFilter {
        match parse_command(&format!("show connections {text}")) {
            Ok((Command::Show(Show::Connections { filter, verbose: false }), _)) => filter,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn each_word_says_what_it_is_about() {
        let ip4 = |a, b| IpAddr::V4(Ipv4Addr::new(10, 0, a, b));
        let filter = parsed(
            "ip-proto tcp ip-saddr 10.0.0.0/24 ip-daddr 10.0.1.7 tcp-dport 80-90 state established rule 3",
        );
        assert_eq!(
            filter,
            ConnectionFilter {
                family: Some(4),
                proto: Some(6),
                src: Some((ip4(0, 0), ip4(0, 255))),
                dst: Some((ip4(1, 7), ip4(1, 7))),
                sport: None,
                dport: Some((80, 90)),
                state: Some("established"),
                rule: Some(RuleId(3)),
            }
        );
        assert_eq!(parsed(""), ConnectionFilter::ALL);
        assert_eq!(parsed("udp-sport == dns").sport, Some((53, 53)));
        assert_eq!(parsed("net-proto ip6").family, Some(6));
        let whole = parsed("ip6-saddr ::/0").src.expect("a range");
        assert_eq!(whole.1, IpAddr::V6(Ipv6Addr::from_bits(u128::MAX)));
    }

    #[test]
    fn filters_are_printed_as_they_are_read() {
        for text in [
            "",
            "net-proto ip6",
            "ip-proto udp",
            "ip-proto 200",
            "ip-saddr 10.0.0.0/8",
            "ip-saddr 10.0.0.1 ip-daddr 10.0.0.1-10.0.0.9",
            "ip-proto icmp ip-saddr 0.0.0.0/0",
            "ip6-saddr 2001:db8::/32 ip6-daddr ::1",
            "tcp-sport 1024-65535 tcp-dport 80",
            "udp-dport 53 state unreplied",
            "sport 5000",
            "ip-proto sctp sport 5000 dport 80-90",
            "state time-wait rule 4294967295",
        ] {
            let filter = parsed(text);
            assert_eq!(parsed(&filter.text().to_string()), filter, "{text}");
            // Names of services are printed as numbers or words, as in rules.
            if !text.contains("port") {
                assert_eq!(filter.text().to_string(), text);
            }
        }
    }

    #[test]
    fn every_term_can_stand_in_a_filter_and_has_help() {
        for term in TERMS {
            assert!(!term.help.is_empty());
            let value = match (term.subject, term.family) {
                (FilterTerm::State, _) => STATES[0].0,
                (FilterTerm::Source | FilterTerm::Destination, Some(4)) => "192.0.2.1",
                (FilterTerm::Source | FilterTerm::Destination, _) => "2001:db8::1",
                _ => "6",
            };
            let filter = parsed(&format!("{} {value}", term.name));
            assert_ne!(filter, ConnectionFilter::ALL, "{}", term.name);
            if let Some(field) = term.field {
                let name = field.info().name;
                assert!(name == term.name || name.strip_prefix("udp-") == Some(term.name), "{name}");
            }
        }
    }
}
