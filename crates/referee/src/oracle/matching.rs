//! Matches a rule against a packet: every constraint in turn.

use super::dissect::Dissection;
use super::{OraclePacket, fields, options};
use mmb_engine::PortTable;
use mmb_policy::rule::{Cond, Equality, NumberItem, NumberSet};
use mmb_policy::{Field, FieldId, Match, Rule, Test};

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
}

impl MatchSubject<'_> {
    /// Whether all constraints of `rule` hold. Frames that are not IP only match rules that name an EtherType.
    pub(super) fn matches(&self, rule: &Rule) -> bool {
        let names_ether_type = rule.matches.iter().any(|m| m.field.id == FieldId::EthType);
        (self.packet.ip.is_some() || names_ether_type) && rule.matches.iter().all(|m| self.satisfies(m))
    }

    fn satisfies(&self, constraint: &Match) -> bool {
        match self.read(constraint.field) {
            Reading::Foreign => false,
            reading => reading.passes(constraint.field, &constraint.test) != constraint.negated,
        }
    }

    fn read(&self, field: Field) -> Reading<'_> {
        use FieldId::*;
        let bytes = self.received.bytes;
        let packet = self.packet;
        match field.id {
            In => Reading::Port(self.port_name(Some(self.received.port.0))),
            Out => {
                let spec = self.ports.0.get(usize::from(self.received.port.0));
                Reading::Port(self.port_name(spec.and_then(|s| s.forward.peer()).map(|peer| peer.0)))
            }
            EthType => Reading::Number(u128::from(packet.eth_type), 16),
            NetProto => match &packet.ip {
                Some(ip) => Reading::Number(u128::from(ip.version), 8),
                None => Reading::Foreign,
            },
            VlanId if packet.vlan.is_none() => Reading::Absent,
            IpNonEct | IpEct0 | IpEct1 | IpCe => match fields::bits(field.id, packet) {
                Some(bits) => Reading::Flag(bits.read(bytes) == ecn_codepoint(field.id)),
                None => Reading::Foreign,
            },
            TcpOpt | TcpOptMss | TcpOptWscale | TcpOptSackp | TcpOptSack | TcpOptTimestamp
            | TcpOptFastOpen | TcpOptMptcp | TcpOptKind => self.read_options(field),
            _ => {
                if let Some(bits) = fields::bits(field.id, packet) {
                    Reading::Number(bits.read(bytes), bits.width)
                } else if let Some(range) = fields::payload(field.id, packet) {
                    Reading::Payload(&bytes[range])
                } else if let Some(present) = fields::extension_header(field.id, packet) {
                    Reading::Flag(present)
                } else {
                    Reading::Foreign
                }
            }
        }
    }

    fn read_options(&self, field: Field) -> Reading<'_> {
        let Some(area) = self.packet.tcp_options() else { return Reading::Foreign };
        let wanted = |kind| match options::kind(field) {
            Some(named) => kind == named,
            // Any option but padding.
            None => kind != options::END && kind != options::NOP,
        };
        let list = options::OracleOptionList::read(&self.received.bytes[area]);
        Reading::Options(list.options.into_iter().filter(|o| wanted(o.kind)).map(|o| o.data).collect())
    }

    fn port_name(&self, number: Option<u16>) -> Option<&str> {
        Some(&self.ports.0.get(usize::from(number?))?.name)
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
            _ => {
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
        _ => 0,
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

/// RFC 3168 section 5.
fn ecn_codepoint(id: FieldId) -> u128 {
    match id {
        FieldId::IpEct1 => 1,
        FieldId::IpEct0 => 2,
        FieldId::IpCe => 3,
        _ => 0,
    }
}
