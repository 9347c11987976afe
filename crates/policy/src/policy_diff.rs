//! The difference between the policy in force and another one, in which as many rules as possible keep their numbers.
//!
//! A file whose rules have no numbers still means "these rules": those that are in force already keep their number
//! and so their counters. A [`PolicyDiff`] is made by whoever applies a file, shown, and its policy put in force.
//!
//! Numbers are not only names: where two rules of one priority write the same field, the one with the greater
//! number wins. So a rule keeps an old number only if it stays on the right side of the rules that it competes with;
//! else it gets a fresh one.

use crate::field::{Field, FieldId, FieldPlace, Implies};
use crate::policy::Policy;
use crate::rule::{Prio, RuleId, Target};
use crate::rules::{ChunkEntry, EntryChange, RuleStore};
use mmb_packet::key;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

/// The changes that put a policy in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDiff {
    /// The policy to put in force: the new one, its rules under their final numbers.
    pub policy: Policy,
    /// Rules of the new policy that are not in force, by their final numbers.
    pub added: Vec<RuleId>,
    /// Rules in force that are not in the new policy. A number may also be among the added ones, for another rule.
    pub removed: Vec<RuleId>,
    /// Rules of both.
    pub kept: Vec<RuleId>,
}

impl PolicyDiff {
    /// Goes from `old`, which is in force, to `new`, for instance a file just parsed.
    pub fn new(old: &Policy, new: Policy) -> PolicyDiff {
        let mut policy = match renumber(old, &new) {
            Some((numbers, last)) => new.renumbered(&numbers, last),
            None => new.above(old),
        };
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        let mut diff = RuleStore::diff(&old.rules, &policy.rules);
        while let Some(change) = diff.next_entry() {
            match change {
                EntryChange::Added(entry) => added.push(entry.id),
                EntryChange::Removed(entry) => removed.push(entry.id),
            }
        }
        let mut new = added.iter().peekable();
        let kept = policy.rules.keys().filter(|id| new.next_if_eq(&id).is_none()).collect();
        if added.len() + removed.len() <= policy.rules.len() / FEW {
            policy.rules = sharing(&old.rules, &policy.rules, &added, &removed);
        }
        PolicyDiff { policy, added, removed, kept }
    }
}

/// One rule of so many may change, and the policy is still made from the one in force.
const FEW: usize = 4;

/// The rules of `new`, made of `old`, so that the two share what stays and whoever compares them has little to do.
fn sharing(old: &RuleStore, new: &RuleStore, added: &[RuleId], removed: &[RuleId]) -> RuleStore {
    let mut rules = old.clone();
    for id in removed {
        rules.remove(*id);
    }
    for entry in added.iter().filter_map(|id| new.entry(*id)) {
        rules.insert_entry(entry);
    }
    rules
}

/// Final numbers of the new policy's rules, in their order, and the greatest number used; `None` if rules that compete
/// would change their order, so that the new policy's own numbers must stand.
fn renumber(old: &Policy, new: &Policy) -> Option<(Vec<RuleId>, u32)> {
    let given = new.rules.entries().filter(|entry| !entry.numbered).last();
    let mut last = old.last_id().max(given.map_or(0, |entry| entry.id.0));
    let alike = alike(old, new);
    let mut alike = alike.iter().peekable();
    let mut floors: HashMap<(Prio, WriteKey), RuleId> = HashMap::new();
    let mut numbers = Vec::with_capacity(new.rules.len());
    for entry in new.rules.entries() {
        let (prio, targets) = entry.targets();
        let write_keys = write_keys(&targets);
        let floor = write_keys.iter().filter_map(|&key| floors.get(&(prio, key))).max().copied();
        let fits = |id: RuleId| floor.is_none_or(|floor| floor < id);
        let same = |number| old.rules.entry(number).is_some_and(|old| old.record == entry.record);
        let number = match alike.next_if(|(new, _)| *new == entry.id) {
            _ if !entry.numbered && fits(entry.id) => entry.id,
            _ if !entry.numbered => return None,
            Some(&(_, number)) if same(number) && fits(number) => number,
            _ => {
                last = last.checked_add(1)?;
                RuleId(last)
            }
        };
        for key in write_keys {
            floors.insert((prio, key), number);
        }
        numbers.push(number);
    }
    Some((numbers, last))
}

/// Rules of `new` that were numbered by the policy and seem to be in force under a number that no rule of `new` asks for:
/// their numbers in order, each with that number. That their hashes are equal is all that was seen.
fn alike(old: &Policy, new: &Policy) -> Vec<(RuleId, RuleId)> {
    let asked = |id: RuleId| new.rules.entry(id).is_some_and(|entry| !entry.numbered);
    let old_rules = by_content(old.rules.entries().filter(|entry| !asked(entry.id)));
    let new_rules = by_content(new.rules.entries().filter(|entry| entry.numbered));
    let (mut olds, mut news) = (old_rules.iter().peekable(), new_rules.iter().peekable());
    let mut alike = Vec::new();
    while let (Some((old_hash, old_id)), Some((new_hash, new_id))) = (olds.peek(), news.peek()) {
        match old_hash.cmp(new_hash) {
            Ordering::Less => _ = olds.next(),
            Ordering::Greater => _ = news.next(),
            Ordering::Equal => {
                alike.push((*new_id, *old_id));
                olds.next();
                news.next();
            }
        }
    }
    alike.sort_unstable();
    alike
}

/// Rules by a hash of what they are, equal ones by number.
fn by_content<'r>(rules: impl Iterator<Item = ChunkEntry<'r>>) -> Vec<(u64, RuleId)> {
    let hash = |record: &[u8]| {
        let mut hasher = DefaultHasher::new();
        hasher.write(record);
        hasher.finish()
    };
    let mut hashes: Vec<_> = rules.map(|entry| (hash(entry.record), entry.id)).collect();
    hashes.sort_unstable();
    hashes
}

/// The part of a packet that rewriting rules compete for: of two rules that write it, the later one wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum WriteKey {
    /// The byte of the header key where a field begins, in packets of a sort: fields that overlap begin in one byte.
    Header(Implies, u16),
    /// The TCP options, which share one area.
    Options,
    /// The payload.
    Payload,
}

fn write_keys(targets: &[Target]) -> Vec<WriteKey> {
    let mut write_keys: Vec<WriteKey> = targets.iter().filter_map(key).collect();
    write_keys.dedup();
    write_keys
}

fn key(target: &Target) -> Option<WriteKey> {
    let of_field = |field: &Field| match field.info().place {
        // On packets without extension headers this is the byte that `ip-proto` writes.
        _ if field.id == FieldId::Ip6Next => WriteKey::Header(Implies::Ip, key::PROTO as u16),
        FieldPlace::Key { bit, .. } => WriteKey::Header(field.info().implies, bit / 8),
        FieldPlace::AnyOption | FieldPlace::Option(_) | FieldPlace::NamedOption => WriteKey::Options,
        // Nothing writes it.
        FieldPlace::Payload(_) | FieldPlace::Connection => WriteKey::Payload,
    };
    match target {
        Target::Mod(field, _) | Target::Map(field, _) | Target::Shuffle(field, _) | Target::Lb(field, ..) => {
            Some(of_field(field))
        }
        Target::AddOption(..) | Target::Strip(_) | Target::Keep(_) | Target::StripAll => {
            Some(WriteKey::Options)
        }
        Target::Drop(_) | Target::Accept => None,
    }
}
