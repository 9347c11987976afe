//! Matches a rule against a packet: every constraint in turn.

use super::dissect::Dissection;
use super::fields::{OraclePlace, Start};
use super::packet::OraclePacket;
use super::{fields, options};
use mmb_engine::PortTable;
use mmb_policy::rule::{Cond, Equality, NumberItem, NumberSet};
use mmb_policy::sets::Elements;
use mmb_policy::{Field, FieldId, Match, NamedSet, Rule, Test};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The value of a field in a packet.
enum Reading<'a> {
    /// The field does not apply to the packet: no constraint on the field holds, negated or not.
    Foreign,
    /// The field applies to the packet, but is absent.
    Absent,
    /// The field is present or not; it has no value.
    Flag(bool),
    /// A number of this many bits.
    Number(u128, usize),
    /// The name of a port; `None` if there is no port.
    Port(Option<&'a str>),
    /// The data of each TCP option that the field selects.
    Options(Vec<Vec<u8>>),
    /// A payload, perhaps empty.
    Payload(&'a [u8]),
}

/// A packet with its ports and headers.
pub(super) struct MatchSubject<'a> {
    pub(super) received: &'a OraclePacket<'a>,
    pub(super) packet: &'a Dissection,
    pub(super) ports: &'a PortTable,
    pub(super) sets: &'a BTreeMap<String, Arc<NamedSet>>,
}

impl MatchSubject<'_> {
    /// Whether all constraints of `rule` hold. Frames that are not IP only match rules that name an EtherType.
    pub(super) fn matches(&self, rule: &Rule) -> bool {
        let names_ether_type = rule.matches.iter().any(|m| m.field.id == FieldId::EthType);
        (self.packet.ip.is_some() || names_ether_type) && rule.matches.iter().all(|m| self.satisfies(m))
    }

    fn satisfies(&self, constraint: &Match) -> bool {
        let reading = self.read(constraint.field);
        !matches!(reading, Reading::Foreign) && self.passes(&reading, constraint) != constraint.negated
    }

    fn passes(&self, reading: &Reading<'_>, constraint: &Match) -> bool {
        match (&constraint.test, reading) {
            (Test::NamedSet(equality, name), Reading::Number(number, _)) => {
                let set = self.sets.get(name);
                let has = set.is_some_and(|set| has_element(set, constraint.field, *number));
                has == (*equality == Equality::Eq)
            }
            (Test::NamedSet(..), Reading::Absent) => false,
            (test, reading) => reading.passes(constraint.field, test),
        }
    }

    fn read(&self, field: Field) -> Reading<'_> {
        let bytes = self.received.bytes;
        let packet = self.packet;
        match fields::place(field) {
            OraclePlace::InPort => Reading::Port(self.port_name(Some(self.received.port.0))),
            OraclePlace::OutPort => {
                let spec = self.ports.0.get(usize::from(self.received.port.0));
                Reading::Port(self.port_name(spec.and_then(|s| s.forward.peer()).map(|peer| peer.0)))
            }
            OraclePlace::Connection => Reading::Foreign,
            OraclePlace::EtherType => Reading::Number(u128::from(packet.eth_type), 16),
            OraclePlace::IpVersion => {
                packet.ip.as_ref().map_or(Reading::Foreign, |ip| Reading::Number(u128::from(ip.version), 8))
            }
            OraclePlace::Bits { start: Start::Tag, .. } if packet.vlan.is_none() => Reading::Absent,
            OraclePlace::Bits { start, first, width, .. } => {
                let bits = fields::bits(start, first, width, packet);
                bits.map_or(Reading::Foreign, |bits| Reading::Number(bits.read(bytes), bits.width))
            }
            OraclePlace::Codepoint(codepoint) => {
                let bits = fields::ecn(packet);
                bits.map_or(Reading::Foreign, |bits| Reading::Flag(bits.read(bytes) == codepoint))
            }
            OraclePlace::Extension(number) => {
                fields::extension_header(number, packet).map_or(Reading::Foreign, Reading::Flag)
            }
            OraclePlace::Option(kind) => self.read_options(kind),
            OraclePlace::Payload(behind) => {
                let range = fields::payload(behind, packet);
                range.map_or(Reading::Foreign, |range| Reading::Payload(&bytes[range]))
            }
        }
    }

    /// The data of the options of a kind; `None`: of any but padding.
    fn read_options(&self, kind: Option<u8>) -> Reading<'_> {
        let Some(area) = self.packet.tcp_options() else { return Reading::Foreign };
        let wanted = |of: u8| kind.map_or(of != options::END && of != options::NOP, |kind| of == kind);
        let list = options::OracleOptionList::read(&self.received.bytes[area]);
        Reading::Options(list.options.into_iter().filter(|o| wanted(o.kind)).map(|o| o.data).collect())
    }

    fn port_name(&self, number: Option<u16>) -> Option<&str> {
        Some(&self.ports.0.get(usize::from(number?))?.name)
    }
}

/// Whether some element of a set has a number of a field.
fn has_element(set: &NamedSet, field: Field, number: u128) -> bool {
    let narrow = |elements: &Elements<u32>| {
        elements.iter().any(|one| (u128::from(one.first)..=u128::from(one.last)).contains(&number))
    };
    if [FieldId::IpSaddr, FieldId::IpDaddr].contains(&field.id) {
        narrow(set.ip4())
    } else if [FieldId::Ip6Saddr, FieldId::Ip6Daddr].contains(&field.id) {
        set.ip6().iter().any(|one| (one.first..=one.last).contains(&number))
    } else {
        narrow(set.numbers())
    }
}

impl Reading<'_> {
    /// Whether a value passes a test. The checker has verified that field and test fit.
    fn passes(&self, field: Field, test: &Test) -> bool {
        match (self, test) {
            (Reading::Flag(present), Test::Present) => *present,
            (Reading::Number(number, 1), Test::Present) => *number == 1,
            (Reading::Number(..) | Reading::Port(_), Test::Present) => true,
            (Reading::Options(found), Test::Present) => !found.is_empty(),
            (Reading::Payload(bytes), Test::Present) => !bytes.is_empty(),

            (Reading::Number(number, width), Test::Number(cond, set)) => compare(*number, *cond, set, *width),
            (Reading::Options(found), Test::Number(cond, set)) => found
                .iter()
                .filter(|data| (1..=8).contains(&data.len()))
                .any(|data| compare(big_endian(data), *cond, set, 64)),

            (Reading::Port(name), Test::Port(equality, names)) => {
                let named = name.is_some_and(|name| names.iter().any(|n| n == name));
                named == (*equality == Equality::Eq)
            }
            (Reading::Options(found), Test::Bytes(equality, strings)) => {
                found.iter().any(|data| strings.contains(data) == (*equality == Equality::Eq))
            }
            (Reading::Payload(bytes), Test::Bytes(equality, strings)) => {
                let begins = strings.iter().any(|s| bytes.starts_with(s));
                !bytes.is_empty() && begins == (*equality == Equality::Eq)
            }
            (Reading::Absent | Reading::Foreign, _) => false,
            (
                Reading::Flag(_)
                | Reading::Number(..)
                | Reading::Port(_)
                | Reading::Options(_)
                | Reading::Payload(_),
                Test::Number(..)
                | Test::NamedSet(..)
                | Test::Port(..)
                | Test::Bytes(..)
                | Test::Patterns(_)
                | Test::Header(..),
            ) => {
                debug_assert!(false, "{field} cannot be asked {test:?}");
                false
            }
        }
    }
}

fn compare(number: u128, cond: Cond, set: &NumberSet, width: usize) -> bool {
    let member = set.0.iter().any(|item| contains(*item, number, width));
    // Order tests have exactly one number.
    let one = match set.0.first() {
        Some(NumberItem::One(one)) => *one,
        Some(NumberItem::Range(..) | NumberItem::Prefix(..)) | None => 0,
    };
    match cond {
        Cond::Eq => member,
        Cond::Ne => !member,
        Cond::Lt => number < one,
        Cond::Le => number <= one,
        Cond::Gt => number > one,
        Cond::Ge => number >= one,
    }
}

fn contains(item: NumberItem, number: u128, width: usize) -> bool {
    match item {
        NumberItem::One(one) => number == one,
        NumberItem::Range(first, last) => first <= number && number <= last,
        NumberItem::Prefix(_, 0) => true,
        NumberItem::Prefix(prefix, len) => {
            let host_bits = width - usize::from(len);
            number >> host_bits == prefix >> host_bits
        }
    }
}

fn big_endian(data: &[u8]) -> u128 {
    data.iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}
