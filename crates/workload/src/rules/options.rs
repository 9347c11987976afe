//! Rules on TCP options of random kinds and values.

use super::{RuleIter, rule};
use mmb_policy::rule::{Cond, NumberItem, NumberSet};
use mmb_policy::{Field, Match, Test};
use mmb_random::RepeatableRandom;

/// Kinds of rules and packets, without the few that nearly every packet has.
pub(crate) const KINDS: (u128, u128) = (9, 253);

/// `size` rules, each `tcp-opt KIND VALUE` with a value of 16 bits.
pub(crate) fn rules(size: usize, mut random: RepeatableRandom) -> RuleIter {
    Box::new((0..size).map(move |_| {
        let field = Field::option(random.within(KINDS.0, KINDS.1) as u8);
        let value = NumberSet(vec![NumberItem::One(random.below(1 << 16).into())]);
        rule(vec![Match { negated: false, field, test: Test::Number(Cond::Eq, value) }])
    }))
}
