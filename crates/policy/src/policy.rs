//! A whole policy: rules under their numbers, settings, and the switches of ports.
//!
//! A [`Policy`] is a plain value. A file is run against an empty one, a command against a copy of the one in
//! force; only what checked as a whole is handed to the engine.

use crate::field::Field;
use crate::notes::{NoteKey, PolicyNotes};
use crate::pattern::PatternList;
use crate::rule::{Rule, RuleId, Target};
use crate::rules::{ChunkEntry, EntryChange, RuleStore};
use crate::sets::{NamedSet, SetError};
use crate::settings::Settings;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Rules, settings, port switches, lists of patterns and named sets. A copy shares the rules and the sets, so that it is cheap, and so is a
/// change to it.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    /// The rules by number.
    pub rules: RuleStore,
    /// The settings.
    pub settings: Settings,
    /// The last `enable PORT` or `disable PORT` of each port, by name: the rules apply to its packets, or its packets pass untouched. The host
    /// decides about the other ports.
    pub ports: BTreeMap<String, bool>,
    /// The lists of patterns by name, among them those that rules name.
    pub lists: BTreeMap<String, PatternList>,
    /// Comments and wording of the file that the policy came from.
    pub notes: Arc<PolicyNotes>,
    /// The sets by name, among them those that rules name, which fit their fields.
    pub sets: BTreeMap<String, Arc<NamedSet>>,
    /// The time at which timeouts of elements begin that commands give, and by which remaining times are printed; whoever puts the policy in
    /// force has a clock and sets it. Equal policies may differ in it.
    pub now_ms: u64,
    /// The greatest number that a rule has had, so that numbers of deleted rules do not come back.
    last_id: u32,
}

/// The reason why a policy refuses a change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// `add id N` where N is taken.
    #[error("there is a rule {0} already; delete it first or leave the id to mmb")]
    IdTaken(RuleId),
    /// `del N` without such a rule.
    #[error("there is no rule {0}")]
    NoSuchRule(RuleId),
    /// `del name WORD` without such a rule.
    #[error("there is no rule called '{0}'")]
    NoSuchName(String),
    /// A rule is to drain that makes no connections.
    #[error("rule {0} is not stateful: it has no connections to keep")]
    NotStateful(RuleId),
    /// A rule names a list that there is not.
    #[error("there is no list of patterns called '{name}'; read it before the rule: patterns {name} FILE")]
    NoSuchList {
        /// The name.
        name: String,
        /// The lists that exist.
        known: Vec<String>,
    },
    /// The lists are too large together.
    #[error(
        "all lists together would have more than {} patterns or {} MiB; leave some out",
        Policy::MAX_PATTERNS,
        Policy::MAX_PATTERN_BYTES >> 20
    )]
    ListsTooLarge,
    /// A rule or a command names a set that there is not.
    #[error("there is no set called '{name}'; make it before: set {name} {{…}}")]
    NoSuchSet {
        /// The name.
        name: String,
        /// The sets that exist.
        known: Vec<String>,
    },
    /// A field cannot be compared with the elements of a set.
    #[error("@{name} has {has}, which `{field}`{} cannot be compared with", OfRule(*.rule))]
    SetDoesNotFit {
        /// The name of the set.
        name: String,
        /// The field.
        field: Field,
        /// The elements that the set has or would have.
        has: String,
        /// The rule that names both, if it is in force.
        rule: Option<RuleId>,
    },
    /// A set is to be deleted that rules name.
    #[error("{} @{name}; delete {} first", UsedBy(.rules), if .rules.len() == 1 { "it" } else { "them" })]
    SetInUse {
        /// The name of the set.
        name: String,
        /// The rules.
        rules: Vec<RuleId>,
    },
    /// A set refuses a change.
    #[error("set {name}: {error}")]
    Set {
        /// The name of the set.
        name: String,
        /// The reason.
        error: SetError,
    },
    /// The sets are too large together.
    #[error("all sets together would have more than {} elements; leave some out", Policy::MAX_ELEMENTS)]
    SetsTooLarge,
    /// Every greater number is taken.
    #[error("no id is left above the last rule's; give the rule a free one with `id N`")]
    NoIdLeft,
}

/// The rule of a field, in messages.
struct OfRule(Option<RuleId>);

impl std::fmt::Display for OfRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |id| write!(f, " of rule {id}"))
    }
}

/// Some of the rules that name a set, in messages.
struct UsedBy<'r>(&'r [RuleId]);

impl std::fmt::Display for UsedBy<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const SHOWN: usize = 10;
        let ids: Vec<_> = self.0.iter().take(SHOWN).map(RuleId::to_string).collect();
        match self.0.len() {
            1 => write!(f, "rule {} names", ids.concat()),
            len @ ..=SHOWN => write!(f, "rules {} and {} name", ids[..len - 1].join(", "), ids[len - 1]),
            len => write!(f, "rules {} and {} others name", ids.join(", "), len - SHOWN),
        }
    }
}

impl Policy {
    /// The most patterns of all lists together.
    pub const MAX_PATTERNS: usize = 4_000_000;
    /// The most bytes of the patterns of all lists together.
    pub const MAX_PATTERN_BYTES: usize = 256 << 20;
    /// The most elements of all sets together.
    pub const MAX_ELEMENTS: usize = 16_000_000;

    /// Adds a rule under its number, or under the next one above all that were used.
    ///
    /// # Errors
    /// The number is taken, or none is left; or the rule names a list or a set that there is not, or a set that does not fit the field.
    pub fn add(&mut self, rule: &Rule) -> Result<RuleId, PolicyError> {
        self.check_lists(rule)?;
        rule.sets().try_for_each(|(name, field)| self.set_fits(name, field))?;
        let id = match rule.id {
            Some(id) if self.rules.contains(id) => return Err(PolicyError::IdTaken(id)),
            Some(id) => id,
            None => RuleId(self.last_id.checked_add(1).ok_or(PolicyError::NoIdLeft)?),
        };
        self.last_id = self.last_id.max(id.0);
        self.rules.insert_numbered(id, rule, rule.id.is_none());
        self.forget_note(id);
        Ok(id)
    }

    /// Checks that there is a set of that name, which a field can be compared with.
    ///
    /// # Errors
    /// There is none, or it has other elements.
    pub fn set_fits(&self, name: &str, field: Field) -> Result<(), PolicyError> {
        let Some(set) = self.sets.get(name) else {
            let known = self.sets.keys().cloned().collect();
            return Err(PolicyError::NoSuchSet { name: name.to_owned(), known });
        };
        let has = || match set.too_large(field) {
            Some(number) => format!("the number {number}"),
            None => set.kinds().to_owned(),
        };
        let error = || PolicyError::SetDoesNotFit { name: name.to_owned(), field, has: has(), rule: None };
        if set.fits(field) { Ok(()) } else { Err(error()) }
    }

    /// Deletes the rule of that number.
    ///
    /// # Errors
    /// There is none.
    pub fn delete(&mut self, id: RuleId) -> Result<Rule, PolicyError> {
        // What is noted about it stays, and means nothing: a number comes back only by `add id N`.
        self.rules.remove(id).ok_or(PolicyError::NoSuchRule(id))
    }

    /// Puts another rule in the place of the one of that number, and returns that one.
    ///
    /// # Errors
    /// There is no rule of that number; or the new one names a list that there is not.
    pub fn replace(&mut self, id: RuleId, rule: &Rule) -> Result<Rule, PolicyError> {
        let entry = self.rules.entry(id).ok_or(PolicyError::NoSuchRule(id))?;
        let (before, numbered) = (entry.rule(), entry.numbered);
        self.check_lists(rule)?;
        self.rules.insert_numbered(id, rule, numbered);
        if self.notes.has(id) {
            Arc::make_mut(&mut self.notes).forget_wording(id);
        }
        Ok(before)
    }

    /// The numbers of the rules of that name.
    pub fn named(&self, name: &str) -> Vec<RuleId> {
        let entries = self.rules.entries().filter(|entry| entry.name() == Some(name.as_bytes()));
        entries.map(|entry| entry.id).collect()
    }

    /// Forgets what is noted about a rule.
    fn forget_note(&mut self, id: RuleId) {
        if self.notes.has(id) {
            Arc::make_mut(&mut self.notes).remove(&NoteKey::Rule(id));
        }
    }

    /// Refuses a rule that names a list that there is not.
    fn check_lists(&self, rule: &Rule) -> Result<(), PolicyError> {
        match rule.lists().find(|name| !self.lists.contains_key(*name)) {
            None => Ok(()),
            Some(name) => {
                let known = self.lists.keys().cloned().collect();
                Err(PolicyError::NoSuchList { name: name.to_owned(), known })
            }
        }
    }

    /// Has the stateful rule of that number drain: it matches no packets any more, and the connections that it has made keep it.
    ///
    /// # Errors
    /// There is no such rule, or it is not stateful.
    pub fn drain(&mut self, id: RuleId) -> Result<(), PolicyError> {
        let entry = self.rules.entry(id).ok_or(PolicyError::NoSuchRule(id))?;
        let (rule, numbered) = (entry.rule(), entry.numbered);
        if !rule.stateful {
            return Err(PolicyError::NotStateful(id));
        }
        self.rules.insert_numbered(id, &Rule { draining: true, ..rule }, numbered);
        if self.notes.has(id) {
            Arc::make_mut(&mut self.notes).forget_wording(id);
        }
        Ok(())
    }

    /// Adds a list of patterns under a name, or replaces the one that has it: rules that name it have the new patterns. Returns the list before.
    ///
    /// # Errors
    /// The lists would be too large together.
    pub fn set_list(&mut self, name: &str, list: PatternList) -> Result<Option<PatternList>, PolicyError> {
        let others = self.lists.iter().filter(|(other, _)| *other != name).map(|(_, list)| list);
        let (mut patterns, mut bytes) = (0, 0);
        for list in others.chain([&list]) {
            patterns += list.patterns.len();
            bytes += list.patterns.iter().map(Vec::len).sum::<usize>();
        }
        if patterns > Policy::MAX_PATTERNS || bytes > Policy::MAX_PATTERN_BYTES {
            return Err(PolicyError::ListsTooLarge);
        }
        Ok(self.lists.insert(name.to_owned(), list))
    }

    /// Adds the lists and sets that a rule of another policy names, where this policy has none of their names.
    fn keep_named(&mut self, rule: &Rule, before: &Policy) {
        for name in rule.lists() {
            if let (false, Some(list)) = (self.lists.contains_key(name), before.lists.get(name)) {
                self.lists.insert(name.to_owned(), list.clone());
            }
        }
        for (name, _) in rule.sets() {
            // A set of that name stays what it is, even if it has elements of another kind now: the rule matches no packets.
            if let (false, Some(set)) = (self.sets.contains_key(name), before.sets.get(name)) {
                self.sets.insert(name.to_owned(), Arc::clone(set));
            }
        }
    }

    /// Adds the draining rules of another policy under their numbers, where this policy has no rule. A policy file does not mention them: they
    /// go with their last connections.
    pub fn keep_draining(&mut self, before: &Policy) {
        for entry in before.rules.entries().filter(ChunkEntry::is_draining) {
            if !self.rules.contains(entry.id) {
                self.keep_named(&entry.rule(), before);
                self.rules.insert_entry(entry);
                self.last_id = self.last_id.max(entry.id.0);
            }
        }
    }

    /// Has the stateful rules of another policy drain whose number this policy does not have.
    pub fn drain_removed(&mut self, before: &Policy) {
        let mut removed = Vec::new();
        let mut diff = RuleStore::diff(&before.rules, &self.rules);
        while let Some(change) = diff.next_entry() {
            if let EntryChange::Removed(entry) = change
                && entry.is_stateful()
                && !self.rules.contains(entry.id)
            {
                removed.push((entry.rule(), entry.numbered));
            }
        }
        for (rule, numbered) in removed {
            let Some(id) = rule.id else { continue };
            self.keep_named(&rule, before);
            self.rules.insert_numbered(id, &Rule { draining: true, ..rule }, numbered);
            self.last_id = self.last_id.max(id.0);
        }
    }

    /// Deletes every rule; returns how many there were. Their numbers do not come back.
    pub fn flush(&mut self) -> usize {
        if *self.notes != PolicyNotes::default() {
            Arc::make_mut(&mut self.notes).forget_rules();
        }
        std::mem::take(&mut self.rules).len()
    }

    /// Has the rules see the packets of a port, or lets its packets pass untouched. Returns whether that is a change.
    pub fn switch_port(&mut self, port: &str, enabled: bool) -> bool {
        self.ports.insert(port.to_owned(), enabled) != Some(enabled)
    }

    /// Whether the policy has given a rule its id, because the text had none.
    pub fn has_assigned_ids(&self) -> bool {
        self.rules.entries().any(|entry| entry.numbered)
    }

    /// The greatest number that a rule has had.
    pub(crate) fn last_id(&self) -> u32 {
        self.last_id
    }

    /// The policy with other numbers for its rules, one for each in their order, all different, none above `last`.
    pub(crate) fn renumbered(self, numbers: &[RuleId], last: u32) -> Policy {
        if self.rules.keys().eq(numbers.iter().copied()) {
            return Policy { last_id: last, ..self };
        }
        let notes = self.notes.renumbered(self.rules.keys().zip(numbers.iter().copied()));
        let mut entries: Vec<ChunkEntry<'_>> = self.rules.entries().collect();
        entries.iter_mut().zip(numbers).for_each(|(entry, id)| entry.id = *id);
        entries.sort_unstable_by_key(|entry| entry.id);
        Policy { rules: RuleStore::of_entries(entries), notes: Arc::new(notes), last_id: last, ..self }
    }

    /// The policy, with numbers to come above those that `other` used.
    pub(crate) fn above(self, other: &Policy) -> Policy {
        Policy { last_id: self.last_id.max(other.last_id), ..self }
    }

    /// Returns whether some rule may change a packet.
    pub fn rewrites(&self) -> bool {
        let mut targets = self.rules.iter().flat_map(|rule| rule.targets);
        targets.any(|target| match target {
            Target::Mod(..) | Target::AddOption(..) | Target::Strip(_) | Target::Keep(_) => true,
            Target::StripAll | Target::Map(..) | Target::Shuffle(..) | Target::Lb(..) => true,
            Target::Edit(_) | Target::Helper(_) => true,
            Target::Drop(_) | Target::Reject(_) | Target::Accept | Target::Log(_) | Target::Limit(_) => false,
            Target::Alert(_) | Target::Close | Target::Digest => false,
        })
    }
}

impl PartialEq for Policy {
    /// Compares rules by number, settings, ports, lists and sets. The origin of the numbers and the notes do not count.
    fn eq(&self, other: &Policy) -> bool {
        self.rules == other.rules
            && self.settings == other.settings
            && self.ports == other.ports
            && self.lists == other.lists
            && self.sets == other.sets
    }
}

impl Eq for Policy {}
