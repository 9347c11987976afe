//! Port ranges and inequalities in random combination: each rule has a port range, most have more.

use super::{RuleIter, TRANSPORTS, between, compare, ports_of, rule};
use mmb_policy::rule::{Cond, NumberItem};
use mmb_policy::{FieldId, Match};
use mmb_random::RepeatableRandom;

/// The number of ports in a range, with equal probability for all orders of magnitude: a packet matches few of a thousand rules,
/// as in real rule sets.
const WIDTHS: (u64, u64) = (16, 4096);

/// `size` rules.
pub(crate) fn rules(size: usize, mut random: RepeatableRandom) -> RuleIter {
    Box::new((0..size).map(move |_| rule(matches(&mut random))))
}

fn matches(random: &mut RepeatableRandom) -> Vec<Match> {
    let (sport, dport) = ports_of(random.of(&TRANSPORTS));
    let (one, other) = if random.chance(0.25) { (sport, dport) } else { (dport, sport) };
    let width = random.log_uniform(WIDTHS.0, WIDTHS.1);
    let first = random.below((1 << 16) - width);
    let mut matches = vec![between(one, first.into(), (first + width - 1).into())];
    if random.chance(0.5) {
        let cond = random.of(&[Cond::Gt, Cond::Ge]);
        matches.push(compare(other, cond, NumberItem::One(random.of(&[1023, 1024, 32_767, 49_151]))));
    }
    if random.chance(0.5) {
        let (cond, bound) =
            random.of(&[(Cond::Gt, 1400), (Cond::Ge, 576), (Cond::Lt, 128), (Cond::Le, 1280)]);
        let bound = bound + random.below(32) as u128;
        matches.push(compare(FieldId::IpLen, cond, NumberItem::One(bound)));
    }
    if random.chance(0.5) {
        let (cond, bound) = random.of(&[(Cond::Lt, 5), (Cond::Le, 32), (Cond::Gt, 64), (Cond::Ge, 128)]);
        matches.push(compare(FieldId::IpTtl, cond, NumberItem::One(bound)));
    }
    random.shuffle(&mut matches);
    matches
}
