//! The lists of all hooks as one policy.
//!
//! In the kernel a packet passes if it passes every hook; in a policy the best priority decides. So the drops of every list but the
//! longest come first, without the packets that the list accepts before, and then the longest list as it is. Packets of a translated
//! destination look otherwise to the hooks than when they arrive: they have lists of their own before the list of all others.
//!
//! If a rule asks for connections, or translates, all packets that pass are tracked, as in conntrack: the last rule creates
//! connections and, behind the policy of the chain, decides about nothing. A dropped packet creates no connection, as in the kernel.

mod verdicts;

use super::nat::{self, MapRule};
use super::report::Report;
use super::ruleset::{EditRule, Hook, HookKind, MAX_PAIRS, Ruleset, RulesetError};
use super::view::{PacketClass, Received, is_among, received_exactly, subtract};
use super::walk::{ChainWalk, Entry, HookList, Item, Omission, Outcome};
use crate::cube::{Dim, Family, PacketCube, states};
use crate::draft::{Effect, LeftOut, Place, PolicyDraft, Remarks};
use crate::language;
use mmb_policy::{CtState, Intervals};
use std::collections::{BTreeMap, BTreeSet};

/// The most cubes of packets that one change of packets is about.
const MAX_EDITED: usize = 256;

/// The most cubes of packets that one log is about: a policy is to be read by people.
const MAX_LOGGED: usize = 8;
const TOO_MANY_TO_LOG: &str = "nothing is logged: the decisions before it leave it too many kinds of packets";

/// Adds the translation of a rule set to a policy.
///
/// # Errors
/// Why the rule set cannot become a policy.
pub(crate) fn translate(ruleset: &Ruleset, draft: &mut PolicyDraft) -> Result<(), RulesetError> {
    let mut report = Report::default();
    let mut walk = ChainWalk::new(ruleset, &mut report);
    let lists = walked(&mut walk, &ruleset.hooks)?;
    let destination = map_rules(ruleset, &lists, HookKind::Destination)?;
    let is_local = |rule: &MapRule| {
        let host = ruleset.addresses.all(rule.cube.family);
        rule.addresses.as_ref().is_some_and(|new| new.minus(&host).is_empty())
    };
    let to_host = ruleset.is_forwarding;
    let any_local = to_host && destination.iter().flat_map(|mapped| &mapped.rules).any(is_local);
    let local_lists = if any_local { walked(&mut walk, &ruleset.local_hooks)? } else { Vec::new() };

    let has = |kind: HookKind| lists.iter().any(|list| list.kind == kind && translates(list));
    let (sources, destinations) = (has(HookKind::Source), has(HookKind::Destination));
    let asks_translation =
        |entry: &Entry<'_>| entry.cubes.iter().any(|cube| cube.asked(Dim::Translated).is_some());
    let is_asked = lists.iter().chain(&local_lists).flat_map(HookList::entries).any(asks_translation);
    let special = |rule: &MapRule| rule.classes(sources, to_host && is_local(rule), is_asked);
    let classes = destination.iter().flat_map(|mapped| &mapped.rules).flat_map(special).collect();
    let untranslated = |&family: &Family| PacketClass::untranslated(family, destinations, sources);
    let general: Vec<PacketClass> = ruleset.families.iter().map(untranslated).collect();
    let is_tracked = report.asks_state || sources || destinations;
    let rules = draft.text().len();
    let mut writer = PolicyWriter { ruleset, draft, report, pairs: 0, is_tracked, limits: BTreeMap::new() };
    writer.write(&lists, &local_lists, &destination, classes, &general)?;
    let PolicyWriter { draft, report, .. } = writer;
    draft.insert(rules, &ruleset.sets.lines());
    report.finish(ruleset, draft);
    Ok(())
}

fn walked<'a>(walk: &mut ChainWalk<'a, '_>, hooks: &'a [Hook]) -> Result<Vec<HookList<'a>>, RulesetError> {
    hooks.iter().map(|hook| walk.hook(hook)).collect()
}

fn translates(list: &HookList<'_>) -> bool {
    list.entries().any(|entry| matches!(entry.outcome, Outcome::Translate(_)))
}

/// The rules of an entry that translates.
struct Mapped {
    rules: Vec<MapRule>,
    /// Why some of its packets have no rule.
    reasons: Vec<String>,
}

/// The rules of the entries that translate, in the hooks of a kind, for packets as these hooks see them.
fn map_rules(ruleset: &Ruleset, lists: &[HookList<'_>], kind: HookKind) -> Result<Vec<Mapped>, RulesetError> {
    let lists: Vec<&HookList<'_>> = lists.iter().filter(|list| list.kind == kind).collect();
    let entries = nat::disjoint(&lists)?;
    let mapped = entries.iter().map(|nat| {
        let (rules, reasons) = nat::rules(nat.translation, &nat.cubes, &ruleset.addresses);
        Mapped { rules, reasons }
    });
    Ok(mapped.collect())
}

/// A policy in progress.
struct PolicyWriter<'a, 'd> {
    ruleset: &'a Ruleset,
    draft: &'d mut PolicyDraft,
    report: Report,
    /// The number of pairs of cubes that were compared.
    pairs: u64,
    is_tracked: bool,
    /// The rules for rates, by what has the rate.
    limits: BTreeMap<String, LimitRules>,
}

/// The packets for which a list is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// All packets: omissions have their place in it.
    All,
    /// A class: rules that none of its packets gets to are not written.
    Class,
}

/// The rules that one rate became.
#[derive(Debug)]
struct LimitRules {
    /// Its place, and the original there.
    place: Place,
    text: String,
    rules: usize,
}

impl<'a> PolicyWriter<'a, '_> {
    fn write(
        &mut self,
        lists: &[HookList<'a>],
        local_lists: &[HookList<'a>],
        destination: &[Mapped],
        classes: Vec<PacketClass>,
        general: &[PacketClass],
    ) -> Result<(), RulesetError> {
        let of = |kind: HookKind| -> Vec<&HookList<'a>> {
            lists.iter().filter(|list| list.kind == kind).collect()
        };
        let (received, filters) = (of(HookKind::FilterReceived), of(HookKind::Filter));
        let before = self.draft.rules;
        self.destinations(&of(HookKind::Destination), destination);
        let sources = self.sources(&of(HookKind::Source), &classes, general)?;
        if self.draft.rules > before {
            self.draft.set("nat filtering address-and-port-dependent", "as in the kernel");
        }
        let mut special = classes;
        special.extend(nat::replies(&sources, &self.ruleset.addresses));
        let rules: Vec<&MapRule> = destination.iter().flat_map(|mapped| &mapped.rules).collect();
        special.extend(self.ruleset.families.iter().filter_map(|&family| nat::errors(&rules, family)));

        self.later_fragments();
        self.edits(&received, &[], general);
        self.edits(&filters, &special, general);
        self.received_drops(&received, general)?;
        for class in &special {
            let lists: Vec<&HookList<'_>> =
                if class.is_local { local_lists.iter().collect() } else { filters.clone() };
            if class.is_local || self.is_to_host(class) || !Self::is_seen_as_received(&lists, class) {
                self.verdicts(&lists, std::slice::from_ref(class), Extent::Class)?;
            }
        }
        self.drop_to_host();
        self.verdicts(&filters, general, Extent::All)?;
        if self.is_tracked {
            self.track();
        }
        self.report_limits();
        Ok(())
    }

    /// Adds the rules that translate destinations, and lists what their chains leave out.
    fn destinations(&mut self, lists: &[&HookList<'_>], mapped: &[Mapped]) {
        let mut mapped = mapped.iter();
        for item in lists.iter().flat_map(|list| &list.items) {
            match item {
                Item::LeftOut(omission) => self.leave_out_once(&omission.told),
                Item::Entry(entry) if matches!(entry.outcome, Outcome::Translate(_)) => {
                    let Some(mapped) = mapped.next() else { continue };
                    for reason in &mapped.reasons {
                        self.leave_out(entry, reason.clone(), HookKind::Destination.effect_of_translation());
                    }
                    self.map(entry, &mapped.rules, HookKind::Destination);
                }
                Item::Entry(_) => {}
            }
        }
    }

    /// Adds the rules that translate sources, and returns them.
    fn sources(
        &mut self,
        lists: &[&HookList<'_>],
        classes: &[PacketClass],
        general: &[PacketClass],
    ) -> Result<Vec<MapRule>, RulesetError> {
        let mut all = Vec::new();
        let effect = HookKind::Source.effect_of_translation();
        let entries = nat::disjoint(lists)?;
        let mut entries = entries.iter();
        for item in lists.iter().flat_map(|list| &list.items) {
            match item {
                Item::LeftOut(omission) => self.leave_out_once(&omission.told),
                Item::Entry(entry) if matches!(entry.outcome, Outcome::Translate(_)) => {
                    let Some(nat) = entries.next() else { continue };
                    let mut hidden = BTreeSet::new();
                    let cubes = received_exactly(&nat.cubes, classes, general, &mut hidden);
                    let (rules, reasons) = nat::rules(nat.translation, &cubes, &self.ruleset.addresses);
                    for reason in hidden {
                        self.leave_out(entry, format!("for a part of its packets, {reason}"), effect);
                    }
                    for reason in reasons {
                        self.leave_out(
                            entry,
                            format!("{reason}; without it, packets keep their source"),
                            effect,
                        );
                    }
                    self.map(entry, &rules, HookKind::Source);
                    all.extend(rules);
                }
                Item::Entry(_) => {}
            }
        }
        Ok(all)
    }

    fn map(&mut self, entry: &Entry<'_>, rules: &[MapRule], kind: HookKind) {
        for rule in rules {
            // Rules that map are about connections, which only their first packets begin.
            let cube = rule.cube.clone().without(Dim::State);
            let added = language::constraints(&cube, &self.ruleset.sets).and_then(|constraints| {
                entry.with_remarks(|remarks| self.draft.add_stateful(&constraints, &rule.target, remarks))
            });
            if let Err(reason) = added {
                let reason = format!("for a part of its packets, {reason}");
                self.leave_out(entry, reason, kind.effect_of_translation());
            }
        }
    }

    /// Adds the rules that change packets. All that match apply, in their order, as in the kernel.
    fn edits(&mut self, lists: &[&HookList<'_>], special: &[PacketClass], general: &[PacketClass]) {
        for list in lists {
            let mut decided: Vec<PacketCube> = Vec::new();
            for entry in list.entries() {
                let edit = match entry.outcome {
                    Outcome::Edit(edit) => edit,
                    // Packets that a list accepts do not get to its later rules; nor do others, which do not matter.
                    Outcome::Verdict(_) | Outcome::Translate(_) => {
                        decided.extend(entry.cubes.iter().cloned());
                        continue;
                    }
                    Outcome::Limit(_) => continue,
                };
                let mut cubes = entry.cubes.clone();
                for before in &decided {
                    subtract(&mut cubes, before);
                    if cubes.len() > MAX_EDITED {
                        break;
                    }
                }
                if edit.logs && cubes.len() > MAX_LOGGED {
                    self.report.remark(TOO_MANY_TO_LOG, entry.place);
                    continue;
                }
                if cubes.len() > MAX_EDITED {
                    let reason = "the decisions before it leave it too many kinds of packets";
                    self.leave_out(entry, reason.to_owned(), Effect::None);
                    continue;
                }
                let mut hidden = BTreeSet::new();
                let cubes = received_exactly(&cubes, special, general, &mut hidden);
                for reason in hidden {
                    self.leave_out(entry, format!("for a part of its packets, {reason}"), Effect::None);
                }
                for rule in &edit.rules {
                    self.edit(entry, rule, &cubes);
                }
            }
        }
    }

    fn edit(&mut self, entry: &Entry<'_>, rule: &EditRule, cubes: &[PacketCube]) {
        let narrow = |cube: &PacketCube| {
            rule.only.iter().try_fold(cube.clone(), |cube, (dim, values)| cube.with(*dim, values))
        };
        let mut rules: Vec<String> = Vec::new();
        for cube in cubes.iter().filter_map(narrow) {
            match language::constraints(&cube, &self.ruleset.sets) {
                Ok(constraints) => rules.extend(constraints),
                Err(reason) => self.leave_out(entry, reason, Effect::None),
            }
        }
        for mut words in language::of_both_families(rules) {
            if !rule.condition.is_empty() {
                words = format!("{words} {}", rule.condition);
            }
            if let Err(reason) = entry.with_remarks(|remarks| self.draft.add(&[words], &rule.target, remarks))
            {
                self.leave_out(entry, reason, Effect::None);
            }
        }
    }

    /// Later fragments go where the first one of their datagram goes: the kernel reassembles datagrams before it tracks them, and mmb
    /// drops fragments whose first one is dropped.
    fn later_fragments(&mut self) {
        if !self.reassembles(Family::Ip4) {
            return;
        }
        let later = PacketCube::all(Family::Ip4).with(Dim::Later, &Intervals::one(1));
        let remarks = Remarks { name: None, comment: Some("later fragments go where the first one goes") };
        let rules = later.map_or(Ok(Vec::new()), |later| language::constraints(&later, &self.ruleset.sets));
        if let Err(reason) = rules.and_then(|rules| self.draft.add(&rules, "accept", remarks)) {
            self.leave_out_whole(&reason, "later fragments", Effect::Stricter);
        }
    }

    /// Whether hooks see whole datagrams.
    fn reassembles(&self, family: Family) -> bool {
        // The language cannot tell later fragments of IPv6 from first ones.
        self.is_tracked && family == Family::Ip4 && self.ruleset.families.contains(&family)
    }

    fn is_of_later_fragments(&self, cube: &PacketCube) -> bool {
        self.reassembles(cube.family) && cube.allowed(Dim::Later).single() == Some(1)
    }

    /// Drops what goes to the host itself: it is not forwarded.
    fn drop_to_host(&mut self) {
        if !self.ruleset.is_forwarding {
            return;
        }
        for &family in &self.ruleset.families {
            let host = self.ruleset.addresses.all(family);
            let unrelated = states(&[CtState::Untracked, CtState::New, CtState::Invalid]);
            let of_host = PacketCube::all(family).with(Dim::Destination, &host);
            let cube = match self.is_tracked {
                // Replies to translated connections, and errors about them, go on.
                true => of_host.and_then(|cube| cube.with(Dim::State, &unrelated)),
                false => of_host,
            };
            let Some(cube) = cube else { continue };
            let remarks = Remarks { name: None, comment: Some("to the host itself: not forwarded") };
            let added = language::constraints(&cube, &self.ruleset.sets)
                .and_then(|rules| self.draft.add(&rules, "drop", remarks));
            if let Err(reason) = added {
                self.leave_out_whole(&reason, "packets to the host itself", Effect::Looser);
            }
        }
    }

    /// Adds the rule that creates connections.
    fn track(&mut self) {
        let all = |&family: &Family| language::constraints(&PacketCube::all(family), &self.ruleset.sets);
        let rules: Result<Vec<Vec<String>>, String> =
            self.ruleset.families.iter().filter(|&&family| family != Family::Frame).map(all).collect();
        let added = rules.and_then(|rules| {
            let rules = language::of_both_families(rules.concat());
            rules.iter().try_for_each(|rule| self.draft.track(rule))
        });
        if let Err(reason) = added {
            self.leave_out_whole(&reason, "connections", Effect::Either);
        }
    }

    /// Whether some packets of a class arrive with an address of the host.
    fn is_to_host(&self, class: &PacketClass) -> bool {
        let new = states(&[CtState::New]);
        let host = self.ruleset.addresses.all(class.cube.family);
        let to_host =
            class.cube.clone().with(Dim::State, &new).and_then(|cube| cube.with(Dim::Destination, &host));
        self.ruleset.is_forwarding && to_host.is_some()
    }

    /// Lists an omission of a list, once though the list is written for each family.
    fn leave_out_once(&mut self, told: &LeftOut) {
        let LeftOut { place, text, reason, effect } = told;
        if let Some(left_out) = self.report.leave_out(place, text, reason.clone(), *effect) {
            self.draft.leave_out(left_out);
        }
    }

    /// Lists an omission of a list that is written for classes of packets. Where these are not all packets, the list of the others tells what is left
    /// out, unless the packets are for the host itself.
    fn leave_out_item(
        &mut self,
        omission: &Omission,
        classes: &[PacketClass],
        extent: Extent,
        undecided: &[PacketCube],
    ) -> Result<(), RulesetError> {
        if extent == Extent::All {
            self.leave_out_once(&omission.told);
            return Ok(());
        }
        for class in classes.iter().filter(|class| class.is_local) {
            self.count(omission.cubes.len() * undecided.len(), &omission.told.place)?;
            let mut parts = omission.cubes.iter().flat_map(|cube| class.received(cube));
            if parts.any(|(Received::All(part) | Received::Some(part, _))| is_among(&part, undecided)) {
                self.leave_out_once(&omission.told);
            }
        }
        Ok(())
    }

    fn leave_out(&mut self, entry: &Entry<'_>, reason: String, effect: Effect) {
        if let Some(left_out) = self.report.leave_out(entry.place, entry.text, reason, effect) {
            self.draft.leave_out(left_out);
        }
    }

    fn leave_out_part(&mut self, entry: &Entry<'_>, parts: &[PacketCube], reason: String, effect: Effect) {
        let some = if parts.len() > 1 { "for a part of its packets, " } else { "" };
        self.leave_out(entry, format!("{some}{reason}"), effect);
    }

    /// An omission that belongs to no rule.
    fn leave_out_whole(&mut self, reason: &str, what: &str, effect: Effect) {
        let Some(place) = self.ruleset.hooks.first().map(|hook| &self.ruleset.chains[hook.chain].place)
        else {
            return;
        };
        if let Some(left_out) = self.report.leave_out(place, what, reason.to_owned(), effect) {
            self.draft.leave_out(left_out);
        }
    }

    /// Counts pairs at a place.
    fn count(&mut self, pairs: usize, place: &Place) -> Result<(), RulesetError> {
        self.pairs += pairs as u64;
        if self.pairs > MAX_PAIRS { Err(RulesetError::TooLong(place.clone())) } else { Ok(()) }
    }
}
