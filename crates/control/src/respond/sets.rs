//! The answers about named sets.

use super::{AnswerResult, Responder};
use mmb_policy::sets::NEVER;
use mmb_policy::{NamedSet, Policy};
use mmb_protocol::answer::{Answer, ElementLine, SetChangeLine, SetLine};
use std::io;
use std::sync::Arc;

/// The sets of a policy.
pub(super) fn lines(policy: &Policy) -> Vec<Answer> {
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

impl Responder<'_> {
    /// Writes the elements of a set. The set is shared until it is sent.
    pub(super) fn elements(&mut self, name: &str) -> io::Result<AnswerResult> {
        let (policy, now_ms) = {
            let daemon = self.daemon();
            (Arc::clone(daemon.policy()), daemon.now_ms())
        };
        let Some(set) = policy.sets.get(name) else {
            let known = policy.sets.keys().map(String::as_str);
            let meant = mmb_language::nearest(name, known).map(|meant| format!("; did you mean `{meant}`?"));
            return Ok(Err(format!("there is no set called '{name}'{}", meant.unwrap_or_default())));
        };
        set.each(|element, expires_ms| {
            let left_ms = (expires_ms != NEVER).then(|| expires_ms.saturating_sub(now_ms));
            let expires_s = left_ms.map(|left_ms| left_ms.div_ceil(1000).max(1));
            self.send(&Answer::Element(ElementLine { element: element.to_string(), expires_s }))
        })
        .map(Ok)
    }
}
