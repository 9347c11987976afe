//! From the policy in force to another one, with as many rules as possible staying what they are.
//!
//! A file whose rules have no numbers still means "these rules": those that are in force already keep their number
//! and so their counters. A [`Plan`] is made by whoever applies a file, shown, and its policy put in force.
//!
//! Numbers are not only names: where two rules of one priority write the same field, the one with the greater
//! number wins. So a rule keeps an old number only if it stays on the right side of the rules that it competes with;
//! else it gets a fresh one.

use crate::field::{Field, FieldId, Implies, Place};
use crate::policy::Policy;
use crate::rule::{Prio, Rule, RuleId, Target};
use mmb_packet::key;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hasher};

/// What putting a policy in force changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The policy to put in force: the new one, its rules under their final numbers.
    pub policy: Policy,
    /// Rules of the new policy that are not in force, by their final numbers.
    pub added: Vec<RuleId>,
    /// Rules in force that are not in the new policy. A number may also be among the added ones, for another rule.
    pub removed: Vec<RuleId>,
    /// Rules of both.
    pub kept: Vec<RuleId>,
}

impl Plan {
    /// Goes from `old`, which is in force, to `new`, for instance a file just parsed.
    pub fn new(old: &Policy, new: Policy) -> Plan {
        let policy = match renumber(old, &new) {
            Some((numbers, last)) => new.renumbered(&numbers, last),
            None => new.above(old),
        };
        let stays = |id: &RuleId| policy.rules.get(id).is_some_and(|rule| old.rules.get(id) == Some(rule));
        let (kept, added) = policy.rules.keys().partition(|id| stays(id));
        let removed = old.rules.keys().copied().filter(|id| !stays(id)).collect();
        Plan { policy, added, removed, kept }
    }
}

/// Final numbers of the new policy's rules, and the greatest number used; `None` if rules that compete would change
/// their order, so that the new policy's own numbers must stand.
fn renumber(old: &Policy, new: &Policy) -> Option<(BTreeMap<RuleId, RuleId>, u32)> {
    let in_force = same_rules(old, new);
    let mut last =
        old.last_id().max(new.rules.keys().filter(|id| !new.is_numbered(**id)).max().map_or(0, |id| id.0));
    let mut floors: HashMap<(Prio, Prize), RuleId> = HashMap::new();
    let mut numbers = BTreeMap::new();
    for (&id, rule) in &new.rules {
        let prizes = prizes(rule);
        let floor = prizes.iter().filter_map(|&prize| floors.get(&(rule.prio, prize))).max().copied();
        let fits = |id: RuleId| floor.is_none_or(|floor| floor < id);
        let number = match in_force.get(&id) {
            _ if !new.is_numbered(id) && fits(id) => id,
            _ if !new.is_numbered(id) => return None,
            Some(&number) if fits(number) => number,
            _ => {
                last = last.checked_add(1)?;
                RuleId(last)
            }
        };
        for prize in prizes {
            floors.insert((rule.prio, prize), number);
        }
        numbers.insert(id, number);
    }
    Some((numbers, last))
}

/// For rules of `new` that were numbered by the policy and are in force under a number that no rule of `new` asks for:
/// that number.
fn same_rules(old: &Policy, new: &Policy) -> HashMap<RuleId, RuleId> {
    let asked = |id: &RuleId| new.rules.contains_key(id) && !new.is_numbered(*id);
    let old_rules = by_content(old.rules.iter().filter(|(id, _)| !asked(id)));
    let new_rules = by_content(new.rules.iter().filter(|(id, _)| new.is_numbered(**id)));
    let (mut olds, mut news) = (old_rules.iter().peekable(), new_rules.iter().peekable());
    let mut same = HashMap::new();
    while let (Some((old_hash, old_id)), Some((new_hash, new_id))) = (olds.peek(), news.peek()) {
        match old_hash.cmp(new_hash) {
            std::cmp::Ordering::Less => _ = olds.next(),
            std::cmp::Ordering::Greater => _ = news.next(),
            std::cmp::Ordering::Equal => {
                if same_content(&old.rules[old_id], &new.rules[new_id]) {
                    same.insert(*new_id, *old_id);
                }
                olds.next();
                news.next();
            }
        }
    }
    same
}

/// Rules by a hash of their text, equal ones by number.
fn by_content<'r>(rules: impl Iterator<Item = (&'r RuleId, &'r Rule)>) -> Vec<(u64, RuleId)> {
    let mut hashes: Vec<_> = rules.map(|(id, rule)| (content_hash(rule), *id)).collect();
    hashes.sort_unstable();
    hashes
}

fn content_hash(rule: &Rule) -> u64 {
    struct Text(DefaultHasher);
    impl std::fmt::Write for Text {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            self.0.write(text.as_bytes());
            Ok(())
        }
    }
    let mut text = Text(DefaultHasher::new());
    // Writing to a hash does not fail.
    let _ = write!(text, "{rule}");
    text.0.finish()
}

/// Whether two rules are the same but for their number.
fn same_content(a: &Rule, b: &Rule) -> bool {
    a.prio == b.prio
        && a.name == b.name
        && a.stateful == b.stateful
        && a.matches == b.matches
        && a.targets == b.targets
}

/// What rewriting rules compete for: of two that write it, the later one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Prize {
    /// The byte of the header key where a field begins, in packets of a sort: fields that overlap begin in one byte.
    Header(Implies, u16),
    /// The TCP options, which share one area.
    Options,
    /// The payload.
    Payload,
}

fn prizes(rule: &Rule) -> Vec<Prize> {
    let mut prizes: Vec<Prize> = rule.targets.iter().filter_map(prize).collect();
    prizes.dedup();
    prizes
}

fn prize(target: &Target) -> Option<Prize> {
    let of_field = |field: &Field| match field.info().place {
        // On packets without extension headers this is the byte that `ip-proto` writes.
        _ if field.id == FieldId::Ip6Next => Prize::Header(Implies::Ip, key::PROTO as u16),
        Place::Key { bit, .. } => Prize::Header(field.info().implies, bit / 8),
        Place::AnyOption | Place::Option(_) | Place::NamedOption => Prize::Options,
        Place::Payload(_) => Prize::Payload,
    };
    match target {
        Target::Mod(field, _) | Target::Map(field, _) | Target::Shuffle(field, _) | Target::Lb(field, ..) => {
            Some(of_field(field))
        }
        Target::AddOption(..) | Target::Strip(_) | Target::Keep(_) | Target::StripAll => Some(Prize::Options),
        Target::Drop(_) | Target::Accept => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Policy {
        Policy::parse(text).expect("parses").0
    }

    fn ids(ids: &[RuleId]) -> Vec<u32> {
        ids.iter().map(|id| id.0).collect()
    }

    fn plan(old: &str, new: &str) -> (Vec<u32>, Vec<u32>, Vec<u32>, String) {
        let plan = Plan::new(&policy(old), policy(new));
        (ids(&plan.kept), ids(&plan.added), ids(&plan.removed), plan.policy.to_text())
    }

    #[test]
    fn rules_that_stay_keep_their_numbers() {
        let old = "add id 7 tcp-dport 80 drop\nadd id 9 udp-dport 53 accept\nadd id 12 all mod ip-ecn 0\n";
        let (kept, added, removed, text) =
            plan(old, "add all mod ip-ecn 0\nadd tcp-dport 81 drop\nadd tcp-dport 80 drop\n");
        assert_eq!((kept, added, removed), (vec![7, 12], vec![13], vec![9]));
        assert_eq!(
            text,
            "add id 7 tcp-dport 80 drop\nadd id 12 all mod ip-ecn 0\nadd id 13 tcp-dport 81 drop\n"
        );
    }

    #[test]
    fn the_same_file_again_changes_nothing() {
        let file = "add all mod ip-ecn 0\nadd tcp-dport 80 drop\nadd tcp-dport 80 drop\n";
        let (kept, added, removed, _) = plan(file, file);
        assert_eq!((kept, added, removed), (vec![1, 2, 3], vec![], vec![]));
    }

    #[test]
    fn what_save_wrote_changes_nothing() {
        let old =
            policy("add id 7 tcp-dport 80 drop\nadd id 9 udp-dport 53 accept\nset poll spin\ndisable wan\n");
        let plan = Plan::new(&old, policy(&old.to_text()));
        assert_eq!(plan.policy, old);
        assert_eq!((ids(&plan.kept), ids(&plan.added), ids(&plan.removed)), (vec![7, 9], vec![], vec![]));
    }

    #[test]
    fn numbers_that_the_file_asks_for_are_given() {
        let old = "add id 1 tcp-dport 80 drop\nadd id 2 tcp-dport 81 drop\n";
        let (kept, added, removed, text) = plan(old, "add id 1 tcp-dport 82 drop\nadd tcp-dport 80 drop\n");
        assert_eq!((kept, added, removed), (vec![], vec![1, 3], vec![1, 2]));
        assert_eq!(text, "add id 1 tcp-dport 82 drop\nadd id 3 tcp-dport 80 drop\n");
    }

    #[test]
    fn rules_that_write_one_field_keep_the_order_of_the_file() {
        let old = "add tcp-dport 80 mod ip-dscp 1\nadd tcp-dport 80 mod ip-dscp 2\n";
        let (kept, added, removed, text) =
            plan(old, "add tcp-dport 80 mod ip-dscp 2\nadd tcp-dport 80 mod ip-dscp 1\n");
        assert_eq!((kept, added, removed), (vec![2], vec![3], vec![1]));
        assert_eq!(text, "add id 2 tcp-dport 80 mod ip-dscp 2\nadd id 3 tcp-dport 80 mod ip-dscp le\n");
    }

    #[test]
    fn where_the_file_fixes_numbers_between_competing_rules_they_all_stand() {
        let old = "add id 5 tcp-dport 80 mod ip-dscp ef\n";
        let new = "add tcp-dport 80 mod ip-dscp ef\nadd id 3 tcp-dport 80 mod ip-dscp cs1\n";
        let (kept, added, removed, text) = plan(old, new);
        assert_eq!((kept, added, removed), (vec![], vec![1, 3], vec![5]));
        assert_eq!(text, "add id 1 tcp-dport 80 mod ip-dscp ef\nadd id 3 tcp-dport 80 mod ip-dscp cs1\n");
    }

    #[test]
    fn numbers_of_removed_rules_do_not_come_back() {
        let mut policy = Plan::new(&policy("add id 40 all drop\n"), policy("add all accept\n")).policy;
        assert_eq!(policy.rules.keys().map(|id| id.0).collect::<Vec<_>>(), [41]);
        let rule = policy.rules.values().next().cloned().map(|rule| Rule { id: None, ..rule }).expect("one");
        assert_eq!(policy.add(rule), Ok(RuleId(42)));
    }
}
