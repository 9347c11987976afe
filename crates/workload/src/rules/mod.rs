//! Rules, one after the other: a file for each family of sets.

pub(crate) mod clustered;
pub(crate) mod filters;
pub(crate) mod options;
pub(crate) mod ranges;
pub(crate) mod tuples;

use mmb_packet::proto::{TCP, UDP};
use mmb_policy::field::ones;
use mmb_policy::rule::{Cond, DEFAULT_PRIO, DropRate, NumberItem, NumberSet};
use mmb_policy::{Field, FieldId, Match, Rule, Target, Test};

/// Rules in their order.
pub(crate) type RuleIter = Box<dyn Iterator<Item = Rule> + Send>;

/// A rule that drops the packets that it matches.
pub(crate) fn rule(matches: Vec<Match>) -> Rule {
    let targets = vec![Target::Drop(DropRate::ALL)];
    Rule { id: None, prio: DEFAULT_PRIO, name: None, stateful: false, draining: false, matches, targets }
}

/// `FIELD COND NUMBER`
pub(crate) fn compare(id: FieldId, cond: Cond, item: NumberItem) -> Match {
    let test = Test::Number(cond, NumberSet(vec![item]));
    Match { negated: false, field: Field::new(id), test }
}

/// `FIELD NUMBER`
pub(crate) fn equal(id: FieldId, number: u128) -> Match {
    compare(id, Cond::Eq, NumberItem::One(number))
}

/// `FIELD FIRST-LAST`; one number if both are equal.
pub(crate) fn between(id: FieldId, first: u128, last: u128) -> Match {
    let item = if first == last { NumberItem::One(first) } else { NumberItem::Range(first, last) };
    compare(id, Cond::Eq, item)
}

/// `FIELD ADDRESS/LEN` of an address of `width` bits; nothing for a length of 0.
pub(crate) fn prefix(id: FieldId, address: u128, len: u8, width: u8) -> Option<Match> {
    let network = address & !ones(width - len);
    match len {
        0 => None,
        _ if len == width => Some(equal(id, network)),
        _ => Some(compare(id, Cond::Eq, NumberItem::Prefix(network, len))),
    }
}

/// The port fields of TCP or UDP, source first.
pub(crate) fn ports_of(proto: u8) -> (FieldId, FieldId) {
    if proto == TCP { (FieldId::TcpSport, FieldId::TcpDport) } else { (FieldId::UdpSport, FieldId::UdpDport) }
}

/// The protocols of most rules.
pub(crate) const TRANSPORTS: [u8; 2] = [TCP, UDP];
