//! Named sets as lines of answers.

use mmb_policy::{NamedSet, Policy};
use mmb_protocol::answer::{Answer, SetChangeLine, SetLine};
use std::sync::Arc;

/// The sets of a policy.
pub(super) fn all(policy: &Policy) -> Vec<Answer> {
    let uses = policy.set_uses();
    let line = |((name, set), (_, rules)): ((&String, &Arc<NamedSet>), (&str, usize))| {
        Answer::Set(SetLine {
            name: name.clone(),
            elements: set.len() as u64,
            ip4: set.ip4().len() as u64,
            ip6: set.ip6().len() as u64,
            numbers: set.numbers().len() as u64,
            bytes: set.bytes() as u64,
            rules: rules as u64,
        })
    };
    // Both are in the order of names.
    policy.sets.iter().zip(uses).map(line).collect()
}

/// The sets that a change made, changed or deleted.
pub(super) fn changes(before: &Policy, after: &Policy) -> Vec<SetChangeLine> {
    let len = |policy: &Policy, name: &String| policy.sets.get(name).map(|set| set.len() as u64);
    let line = |name: &String| SetChangeLine {
        name: name.clone(),
        before: len(before, name),
        elements: len(after, name),
    };
    let is_same = |name: &String, set: &Arc<NamedSet>| {
        before.sets.get(name).is_some_and(|before| Arc::ptr_eq(before, set) || before == set)
    };
    let removed = before.sets.keys().filter(|name| !after.sets.contains_key(*name));
    let changed = after.sets.iter().filter(|(name, set)| !is_same(name, set)).map(|(name, _)| name);
    removed.chain(changed).map(line).collect()
}
