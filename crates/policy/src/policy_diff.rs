//! The difference between the policy in force and another one, in which as many rules as possible keep their numbers.
//!
//! A file whose rules have no numbers still means "these rules": those that are in force already keep their number
//! and so their counters. A rule that differs from one in force only in its name and in the values of its targets takes that
//! rule's number and so, if it is stateful, its connections. Rules that drain stay. A [`PolicyDiff`] is made by whoever applies a file, shown, and its policy put in force.
//!
//! Numbers are not only names: where two rules of one priority write the same field, the one with the greater
//! number wins, and where one drops a packet and another rejects it, the one with the smaller number does. So a rule keeps an old number only if it stays on the right side of the rules that it competes with;
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
        let policy = match renumber(old, &new) {
            Some((numbers, last)) => new.renumbered(&numbers, last),
            None => new.above(old),
        };
        PolicyDiff::to(old, policy)
    }

    /// Goes from `old`, which is in force, to an earlier policy, whose rules keep the numbers that they have.
    pub fn restoring(old: &Policy, earlier: Policy) -> PolicyDiff {
        PolicyDiff::to(old, earlier.above(old))
    }

    fn to(old: &Policy, mut policy: Policy) -> PolicyDiff {
        policy.keep_draining(old);
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
        if added.len() + removed.len() <= policy.rules.len() / MAX_CHANGED_PART {
            policy.rules = sharing(&old.rules, &policy.rules, &added, &removed);
        }
        PolicyDiff { policy, added, removed, kept }
    }
}

/// One rule of so many may change, and the policy is still made from the one in force.
const MAX_CHANGED_PART: usize = 4;

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

/// The rules of `now` that rules of another policy have become, by their numbers there: the rule of the same number if the two differ only in
/// their names and the values of their targets; otherwise the same rule under another number, or one that differs only so. A number alone
/// does not make two rules the same.
pub fn successors(before: &RuleStore, now: &RuleStore) -> HashMap<RuleId, RuleId> {
    let in_place = |entry: &ChunkEntry<'_>| {
        now.entry(entry.id).is_some_and(|now| now.record == entry.record || now.outline() == entry.outline())
    };
    let (same, moved): (Vec<_>, Vec<_>) = before.entries().partition(in_place);
    let mut successors: HashMap<_, _> = same.iter().map(|entry| (entry.id, entry.id)).collect();
    if moved.is_empty() {
        return successors;
    }
    let free = now.entries().filter(|entry| !successors.contains_key(&entry.id)).collect();
    let (pairs, olds, news) = paired(moved, free, |entry| hash(entry.record));
    let (changed, ..) = paired(olds, news, |entry| hash(&entry.outline()));
    successors.extend(pairs.into_iter().chain(changed).map(|(new, old)| (old, new)));
    successors
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
        let competing = write_keys.iter().flat_map(WriteKey::competing);
        let floor = competing.filter_map(|&key| floors.get(&(prio, key))).max().copied();
        let fits = |id: RuleId| floor.is_none_or(|floor| floor < id);
        let alike_entry =
            |old: ChunkEntry<'_>| old.record == entry.record || old.outline() == entry.outline();
        let same = |number| old.rules.entry(number).is_some_and(alike_entry);
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
            let floor = floors.entry((prio, key)).or_insert(number);
            *floor = number.max(*floor);
        }
        numbers.push(number);
    }
    Some((numbers, last))
}

/// Rules of `new` that were numbered by the policy, in order, each with the number of a rule in force that no rule of `new` asks for: of the
/// same rule if there is one, otherwise of one with the same outline. Only hashes were compared.
fn alike(old: &Policy, new: &Policy) -> Vec<(RuleId, RuleId)> {
    let asked = |id: RuleId| new.rules.entry(id).is_some_and(|entry| !entry.numbered);
    let olds: Vec<_> = old.rules.entries().filter(|entry| !asked(entry.id)).collect();
    let news: Vec<_> = new.rules.entries().filter(|entry| entry.numbered).collect();
    let (mut pairs, olds, news) = paired(olds, news, |entry| hash(entry.record));
    let (changed, ..) = paired(olds, news, |entry| hash(&entry.outline()));
    pairs.extend(changed);
    pairs.sort_unstable();
    pairs
}

/// Pairs rules of `new` and `old` whose keys are equal, several of one key in the order of their numbers; returns also the others of both.
fn paired<'r>(
    olds: Vec<ChunkEntry<'r>>,
    news: Vec<ChunkEntry<'r>>,
    key: impl Fn(&ChunkEntry<'r>) -> u64,
) -> (Vec<(RuleId, RuleId)>, Vec<ChunkEntry<'r>>, Vec<ChunkEntry<'r>>) {
    let by_key = |entries: Vec<ChunkEntry<'r>>| {
        let mut keyed: Vec<_> = entries.into_iter().map(|entry| (key(&entry), entry)).collect();
        keyed.sort_unstable_by_key(|(key, entry)| (*key, entry.id));
        keyed.into_iter().peekable()
    };
    let (mut olds, mut news) = (by_key(olds), by_key(news));
    let (mut pairs, mut left_olds, mut left_news) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let order = match (olds.peek(), news.peek()) {
            (None, None) => return (pairs, left_olds, left_news),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((old, _)), Some((new, _))) => old.cmp(new),
        };
        let old = olds.next_if(|_| order.is_le()).map(|(_, entry)| entry);
        let new = news.next_if(|_| order.is_ge()).map(|(_, entry)| entry);
        match (old, new) {
            (Some(old), Some(new)) => pairs.push((new.id, old.id)),
            (old, new) => {
                left_olds.extend(old);
                left_news.extend(new);
            }
        }
    }
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// What rules compete for, so that their order counts: of two rules that write a part of a packet, the later one wins; of two that drop a packet in
/// different ways, the earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum WriteKey {
    /// The byte of the header key where a field begins, in packets of a sort: fields that overlap begin in one byte.
    Header(Implies, u16),
    /// The TCP options, which share one area.
    Options,
    /// The payload.
    Payload,
    /// The bytes of connections: edits of one place take it in the order of their rules.
    Stream,
    /// Whether a packet is dropped without an answer.
    Drop,
    /// How a packet is answered.
    Reject,
    /// Which limit counts a packet first.
    Limit,
}

impl WriteKey {
    /// The keys of the rules that a rule with this one competes with.
    fn competing(&self) -> &[WriteKey] {
        match self {
            WriteKey::Header(..) | WriteKey::Options | WriteKey::Payload | WriteKey::Stream => {
                std::slice::from_ref(self)
            }
            WriteKey::Drop => &[WriteKey::Reject],
            WriteKey::Reject => &[WriteKey::Drop, WriteKey::Reject],
            WriteKey::Limit => &[WriteKey::Limit],
        }
    }
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
        FieldPlace::Payload(_) | FieldPlace::Connection => WriteKey::Payload,
        FieldPlace::Stream(_) => WriteKey::Stream,
    };
    match target {
        Target::Mod(field, _) | Target::Map(field, _) | Target::Shuffle(field, _) | Target::Lb(field, ..) => {
            Some(of_field(field))
        }
        Target::AddOption(..) | Target::Strip(_) | Target::Keep(_) | Target::StripAll => {
            Some(WriteKey::Options)
        }
        Target::Edit(_) | Target::Helper(_) => Some(WriteKey::Stream),
        Target::Drop(_) => Some(WriteKey::Drop),
        Target::Reject(_) => Some(WriteKey::Reject),
        Target::Limit(_) => Some(WriteKey::Limit),
        Target::Accept | Target::Log(_) => None,
        Target::Alert(_) | Target::Close | Target::Digest => None,
    }
}
