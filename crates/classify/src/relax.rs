//! Rules under looser masks: what a relaxed key leaves open becomes conditions.
//!
//! In a merged table, entries with one relaxed key stand in one chain. Where real rules cluster, such a chain would
//! be long. Its rules then become one list under the relaxed key itself, and the bits that the relaxed mask leaves open
//! become ranges, which lists find their rules by without looking at each.

use crate::batch::Placed;
use crate::check::RuleCheck;
use crate::lane_fields::numbers;
use crate::lane_mask::{LaneMask, common};
use mmb_packet::Class;
use mmb_policy::Intervals;
use std::collections::{HashMap, HashSet};

/// Entries with one relaxed key up to which a chain is as good as a list: about a bucket.
pub(crate) const SHORT_CHAIN: usize = 3;

/// The relaxed keys of a class whose rules are in one list. Set when a classifier is built, so that a rule that goes is
/// looked for where it came.
#[derive(Clone, Debug, Default)]
pub(crate) struct RelaxedKeys {
    /// The relaxed mask of each tuple that has such keys.
    masks: HashMap<LaneMask, LaneMask>,
    keys: HashSet<(LaneMask, LaneMask)>,
}

impl RelaxedKeys {
    /// Remembers that rules of these tuples are stored under their relaxed key where `keys` has it.
    pub(crate) fn add(
        &mut self,
        relaxed: &LaneMask,
        tuples: impl Iterator<Item = LaneMask>,
        keys: impl Iterator<Item = LaneMask>,
    ) {
        self.masks.extend(tuples.map(|mask| (mask, *relaxed)));
        self.keys.extend(keys.map(|key| (*relaxed, key)));
    }

    /// A rule under the key that its list is found by: its own, or a relaxed one.
    pub(crate) fn apply(&self, class: Class, mut placed: Placed) -> Placed {
        let Some(relaxed) = self.masks.get(&placed.mask) else { return placed };
        let key = common(&placed.key, relaxed);
        if !self.keys.contains(&(*relaxed, key)) {
            return placed;
        }
        let mut checks = conditions(class, &placed.mask, &placed.key, relaxed);
        // Tests of options stay last.
        checks.append(&mut placed.rule.checks);
        placed.rule.checks = checks;
        Placed { mask: *relaxed, key, ..placed }
    }
}

/// The constraints of `mask` and `key` beyond `relaxed`, as conditions on the fields of the lanes.
fn conditions(class: Class, mask: &LaneMask, key: &LaneMask, relaxed: &LaneMask) -> Vec<RuleCheck> {
    let mut checks = Vec::new();
    for lane in 0..mask.len() {
        let (mask, key) = (u32::from_be(mask[lane]), u32::from_be(key[lane]));
        let open = mask & !u32::from_be(relaxed[lane]);
        for &(shift, width) in numbers(class, lane) {
            let ones = u32::MAX >> (32 - width);
            if open >> shift & ones == 0 {
                continue;
            }
            let (own, value) = (mask >> shift & ones, key >> shift & ones);
            // A prefix of the field is a range of its values.
            let free = !own & ones;
            if free & free.wrapping_add(1) == 0 {
                checks.push(range(lane, shift, width, value, value | free));
            } else {
                runs(own).for_each(|(from, bits)| {
                    let part = value >> from & (u32::MAX >> (32 - bits));
                    checks.push(range(lane, shift + from, bits, part, part));
                });
            }
        }
    }
    checks
}

/// Runs of one bits: the bits behind each and its width.
fn runs(mut bits: u32) -> impl Iterator<Item = (u32, u32)> {
    std::iter::from_fn(move || {
        let from = (bits != 0).then(|| bits.trailing_zeros())?;
        let width = (bits >> from).trailing_ones();
        bits &= !((u32::MAX >> (32 - width)) << from);
        Some((from, width))
    })
}

fn range(lane: usize, shift: u32, width: u32, first: u32, last: u32) -> RuleCheck {
    let bit = lane as u32 * 32 + 32 - shift - width;
    let bounds = Intervals::range(first.into(), last.into());
    RuleCheck::number(bit as u16, width as u8, &bounds, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::CheckedPacket;
    use crate::ids::RuleSlot;
    use crate::list::ListEntry;
    use crate::names::SetTable;
    use crate::set_lookup::{SetContext, SetResults};
    use mmb_base::Id;
    use mmb_packet::{Layout, LinkType, Packet, PortId};
    use proptest::prelude::*;

    fn lanes() -> impl Strategy<Value = LaneMask> {
        // Few bits, so that keys agree often.
        let lane = prop_oneof![
            4 => Just(0u32),
            1 => any::<u32>(),
            1 => (0..32u32).prop_map(|free| (u32::MAX << free).to_be()),
            1 => Just(u32::MAX),
        ];
        proptest::collection::vec(lane, 20).prop_map(|lanes| std::array::from_fn(|at| lanes[at]))
    }

    proptest! {
        #[test]
        fn a_relaxation_rule_holds_where_it_held(
            mask in lanes(), relaxed in lanes(), key in lanes(), packet in lanes(), flip in 0..20usize, ip6: bool,
        ) {
            let class = if ip6 { Class::Ip6 } else { Class::Ip4 };
            let (relaxed, key) = (common(&relaxed, &mask), common(&key, &mask));
            // A packet that agrees but for one lane perhaps.
            let near: LaneMask = std::array::from_fn(|lane| {
                if lane == flip { packet[lane] } else { key[lane] | packet[lane] & !mask[lane] }
            });
            let mut relaxation = RelaxedKeys::default();
            relaxation.add(&relaxed, [mask].into_iter(), [common(&key, &relaxed)].into_iter());
            let rule = ListEntry { slot: RuleSlot::FIRST, option: None, checks: Vec::new() };
            let placed = relaxation.apply(class, Placed { mask, key, rule });
            prop_assert_eq!(placed.mask, relaxed);
            let columns: Vec<_> = near.iter().map(|lane| [*lane; crate::VECTOR]).collect();
            let mut buffer = [0; 0];
            let packet = Packet::new(&mut buffer, 0, 0, PortId(0), LinkType::RawIp).expect("an empty packet fits");
            let (layout, table, results) = (Layout::default(), SetTable::default(), SetResults::default());
            let sets = SetContext { table: &table, results: &results };
            let subject = CheckedPacket { lanes: &columns, key: 0, packet: &packet, layout: &layout, sets };
            let found = common(&near, &placed.mask) == placed.key
                && placed.rule.checks.iter().all(|check| check.holds(&subject));
            prop_assert_eq!(found, common(&near, &mask) == key);
        }
    }
}
