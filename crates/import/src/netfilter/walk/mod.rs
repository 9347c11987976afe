//! Chains as ordered lists.
//!
//! In netfilter the first rule that matches and has a verdict decides, and chains call each other. A [`ChainWalk`] follows the chain
//! of a hook with the packets that still reach each rule, as cubes: a jump moves the packets that match to the other chain, and
//! returns and gotos remove packets from the rest. Each rule that decides becomes an entry for exactly the packets that reach and
//! match it, in the same order; the policy of the hook comes last.

mod rates;

use super::report::Report;
use super::ruleset::{
    Action, Chain, ChainId, Edit, Hook, HookKind, MAX_CUBES, MAX_DEPTH, MAX_STEPS, Rate, Rule, Ruleset,
    RulesetError, Step, Translation,
};
use crate::cube::{Dim, Family, PacketCube, PortNameSet};
use crate::draft::{Effect, ImportVerdict, LeftOut, Place, Remarks, is_plain};
use std::collections::BTreeSet;

const TRANSLATED_ANYWAY: &str = "without it, later rules translate the source of its packets too";

/// The list of a hook.
#[derive(Debug)]
pub(super) struct HookList<'a> {
    /// What it decides.
    pub(super) kind: HookKind,
    /// The families of its packets.
    pub(super) families: &'a [Family],
    /// Its entries and omissions, in order.
    pub(super) items: Vec<Item<'a>>,
}

impl<'a> HookList<'a> {
    /// The decisions, in order.
    pub(super) fn entries(&self) -> impl Iterator<Item = &Entry<'a>> {
        self.items.iter().filter_map(|item| match item {
            Item::Entry(entry) => Some(entry),
            Item::LeftOut(_) => None,
        })
    }
}

/// An element of a list.
#[derive(Debug)]
pub(super) enum Item<'a> {
    /// A decision.
    Entry(Entry<'a>),
    /// An omission at its place.
    LeftOut(Omission),
}

/// A rule that is left out.
#[derive(Debug)]
pub(super) struct Omission {
    /// What is told about it.
    pub(super) told: LeftOut,
    /// The packets that may reach and match it, as the hook sees them.
    pub(super) cubes: Vec<PacketCube>,
}

/// A decision about the packets that no earlier entry decides about.
#[derive(Debug)]
pub(super) struct Entry<'a> {
    /// The packets, as the hook sees them.
    pub(super) cubes: Vec<PacketCube>,
    /// The decision.
    pub(super) outcome: Outcome<'a>,
    /// Its place.
    pub(super) place: &'a Place,
    /// The original.
    pub(super) text: &'a str,
    /// The comment of the original.
    comment: Option<&'a str>,
    /// It is the policy of a chain of this name.
    policy_of: Option<&'a str>,
}

/// What happens to packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome<'a> {
    /// They pass the hook, or are dropped.
    Verdict(ImportVerdict),
    /// They are translated; they pass the hook.
    Translate(&'a Translation),
    /// They are changed, and go on.
    Edit(&'a Edit),
    /// Those beyond a rate are dropped, and the others go on.
    Limit(&'a Rate),
}

impl Entry<'_> {
    /// Calls a function with what is told about its rules.
    pub(super) fn with_remarks<T>(&self, use_them: impl FnOnce(Remarks<'_>) -> T) -> T {
        let place = self.place;
        let name = self.comment.filter(|comment| is_plain(comment));
        let remark = match (self.policy_of, self.comment) {
            (Some(chain), _) => format!("{place}: policy of {chain}"),
            (None, Some(comment)) if name.is_none() => format!("{place}: {comment}"),
            (None, _) => place.to_string(),
        };
        use_them(Remarks { name, comment: Some(&remark) })
    }
}

/// A walk in progress. Its limits are for all hooks together.
pub(super) struct ChainWalk<'a, 'r> {
    ruleset: &'a Ruleset,
    report: &'r mut Report,
    /// The number of steps.
    steps: u64,
    /// The pairs of cubes that were compared in looking ahead.
    pairs_ahead: u64,
    /// Dimensions that some earlier rule writes.
    written: BTreeSet<Dim>,
    /// The chains of the current call stack.
    path: Vec<ChainId>,
    kind: HookKind,
    /// The verdict at the end of the hook's chain.
    policy: ImportVerdict,
    items: Vec<Item<'a>>,
}

impl<'a, 'r> ChainWalk<'a, 'r> {
    pub(super) fn new(ruleset: &'a Ruleset, report: &'r mut Report) -> Self {
        let kind = HookKind::Filter;
        let written = BTreeSet::new();
        let (path, policy) = (Vec::new(), ImportVerdict::Accept);
        ChainWalk {
            ruleset,
            report,
            steps: 0,
            pairs_ahead: 0,
            written,
            path,
            kind,
            policy,
            items: Vec::new(),
        }
    }

    /// The list of a hook.
    pub(super) fn hook(&mut self, hook: &'a Hook) -> Result<HookList<'a>, RulesetError> {
        let chain = &self.ruleset.chains[hook.chain];
        let device = hook.device.as_deref().map_or(PortNameSet::all(), PortNameSet::one);
        let all: Vec<PacketCube> =
            hook.families.iter().filter_map(|&family| PacketCube::all(family).entering(&device)).collect();
        (self.kind, self.policy) = (hook.kind, hook.policy);
        self.chain(hook.chain, all.clone(), &chain.place)?;
        self.items.push(Item::Entry(Entry {
            cubes: all,
            outcome: Outcome::Verdict(hook.policy),
            place: &chain.place,
            text: &chain.name,
            comment: None,
            policy_of: Some(&chain.name),
        }));
        Ok(HookList { kind: hook.kind, families: &hook.families, items: std::mem::take(&mut self.items) })
    }

    /// Counts steps at a place.
    fn count(&mut self, steps: usize, place: &Place) -> Result<(), RulesetError> {
        self.steps += steps as u64;
        if self.steps > MAX_STEPS { Err(RulesetError::TooLong(place.clone())) } else { Ok(()) }
    }

    /// Follows a chain with the packets that reach it; `from` is the place of the call.
    fn chain(&mut self, id: ChainId, mut packets: Vec<PacketCube>, from: &Place) -> Result<(), RulesetError> {
        let chain = &self.ruleset.chains[id];
        if self.path.contains(&id) {
            return Err(RulesetError::Loop(from.clone(), chain.name.clone()));
        }
        if self.path.len() > MAX_DEPTH {
            return Err(RulesetError::TooDeep(from.clone(), chain.name.clone()));
        }
        self.path.push(id);
        self.report.seen.insert(id);
        for (index, rule) in chain.rules.iter().enumerate() {
            if packets.len() > MAX_CUBES {
                return Err(RulesetError::TooMany(rule.place.clone()));
            }
            self.count(1, &rule.place)?;
            let mut reasons = self.unknown(rule);
            let mut rate_use = RateUse::Ignored;
            if reasons.is_empty() {
                match self.rate_use(chain, index, &packets) {
                    Ok(known) => rate_use = known,
                    Err(reason) => reasons.push(reason),
                }
            }
            if reasons.is_empty() {
                self.rule(rule, rate_use, &mut packets)?;
            } else if let Some(remark) = only_remarks(rule) {
                self.report.remark(remark, &rule.place);
            } else {
                if self.kind == HookKind::Source && self.may_end_hook(rule) {
                    reasons.push(TRANSLATED_ANYWAY.to_owned());
                }
                let (effect, cubes) = (self.effect(chain, index), self.may_match(rule, &packets)?);
                self.leave_out(rule, cubes, reasons.join("; "), effect);
            }
        }
        self.path.pop();
        Ok(())
    }

    /// The reasons for which a rule cannot be translated, each once.
    fn unknown(&self, rule: &Rule) -> Vec<String> {
        let mut reasons: Vec<String> = Vec::new();
        let writes = |cubes: &[PacketCube]| {
            let asked = |dim: &&Dim| cubes.iter().any(|cube| cube.asked(**dim).is_some());
            self.written.iter().any(|dim| asked(&dim))
        };
        for step in &rule.steps {
            let reason = match step {
                Step::Unknown(reason) => reason.clone(),
                Step::Match(cubes) if writes(cubes) => {
                    "an earlier rule writes the field that it matches, and mmb matches packets as they arrive"
                        .to_owned()
                }
                Step::Match(_) | Step::Rate(_) | Step::Act(_) | Step::Branch(_) => continue,
            };
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        reasons
    }

    /// The packets that reach a rule and that match it as far as it is known.
    fn may_match(&mut self, rule: &Rule, packets: &[PacketCube]) -> Result<Vec<PacketCube>, RulesetError> {
        let mut cubes = packets.to_vec();
        for step in &rule.steps {
            if let Step::Match(parts) = step {
                cubes = self.product(&cubes, parts, &rule.place)?;
            }
        }
        Ok(cubes)
    }

    /// Applies a rule to the packets that match it. Packets that leave the chain are removed from `packets`.
    fn rule(
        &mut self,
        rule: &'a Rule,
        rate_use: RateUse,
        packets: &mut Vec<PacketCube>,
    ) -> Result<(), RulesetError> {
        let mut cubes = self.all();
        let mut has_action = false;
        for (index, step) in rule.steps.iter().enumerate() {
            match step {
                Step::Match(parts) => {
                    self.report.asks_state |= parts.iter().any(asks_state);
                    cubes = self.product(&cubes, parts, &rule.place)?;
                }
                Step::Unknown(_) => {}
                Step::Rate(_) if rate_use == RateUse::Ignored => {}
                Step::Rate(rate) => {
                    let matching = self.matching(packets, &cubes, rule)?;
                    if !matching.is_empty() {
                        self.entry(rule, matching, Outcome::Limit(rate));
                    }
                    if rate_use == RateUse::Drops {
                        return Ok(());
                    }
                }
                Step::Act(action) => {
                    has_action = true;
                    self.act(rule, action, &cubes, packets)?;
                    if action.ends_rule() {
                        return Ok(());
                    }
                }
                Step::Branch(branches) => {
                    has_action = true;
                    let is_last = index + 1 == rule.steps.len();
                    let mut going_on: Vec<PacketCube> = Vec::new();
                    for (parts, action) in branches {
                        self.report.asks_state |= parts.iter().any(asks_state);
                        let cubes = self.product(&cubes, parts, &rule.place)?;
                        if is_last || action.ends_rule() {
                            self.act(rule, action, &cubes, packets)?;
                        } else {
                            going_on.extend(cubes);
                        }
                    }
                    cubes = going_on;
                }
            }
        }
        if !has_action && !self.matching(packets, &cubes, rule)?.is_empty() {
            self.report.remark("the rule has no target and only counts", &rule.place);
        }
        Ok(())
    }

    /// All packets.
    fn all(&self) -> Vec<PacketCube> {
        self.ruleset.families.iter().map(|&family| PacketCube::all(family)).collect()
    }

    /// The packets in one of some cubes and in one of others.
    fn product(
        &mut self,
        cubes: &[PacketCube],
        parts: &[PacketCube],
        place: &Place,
    ) -> Result<Vec<PacketCube>, RulesetError> {
        self.count(cubes.len() * parts.len(), place)?;
        let both: Vec<PacketCube> =
            cubes.iter().flat_map(|cube| parts.iter().filter_map(|part| cube.and(part))).collect();
        if both.len() > MAX_CUBES { Err(RulesetError::TooMany(place.clone())) } else { Ok(both) }
    }

    /// The packets that reach a rule and match it.
    fn matching(
        &mut self,
        packets: &[PacketCube],
        cubes: &[PacketCube],
        rule: &Rule,
    ) -> Result<Vec<PacketCube>, RulesetError> {
        let matching = self.product(packets, cubes, &rule.place)?;
        let known = if matching.is_empty() { &mut self.report.unmatched } else { &mut self.report.matched };
        known.insert(rule.place.clone());
        Ok(matching)
    }

    /// Does what a rule says with the packets that reach it and are in `cubes`.
    fn act(
        &mut self,
        rule: &'a Rule,
        action: &'a Action,
        cubes: &[PacketCube],
        packets: &mut Vec<PacketCube>,
    ) -> Result<(), RulesetError> {
        let matching = self.matching(packets, cubes, rule)?;
        if matching.is_empty() {
            return Ok(());
        }
        match action {
            Action::Accept => self.entry(rule, matching, Outcome::Verdict(ImportVerdict::Accept)),
            Action::Drop => self.entry(rule, matching, Outcome::Verdict(ImportVerdict::Drop)),
            Action::Reject(Some(rejection)) => {
                self.entry(rule, matching, Outcome::Verdict(ImportVerdict::Reject(*rejection)));
            }
            Action::Reject(None) => {
                self.report.remark("REJECT becomes drop: mmb does not know the answer", &rule.place);
                self.entry(rule, matching, Outcome::Verdict(ImportVerdict::Drop));
            }
            Action::Return => self.take_away(packets, cubes, &rule.place)?,
            Action::Jump(chain) => self.chain(*chain, matching, &rule.place)?,
            Action::Goto(chain) => {
                self.chain(*chain, matching, &rule.place)?;
                self.take_away(packets, cubes, &rule.place)?;
            }
            Action::Translate(translation) => self.entry(rule, matching, Outcome::Translate(translation)),
            Action::Edit(edit) if edit.logs && self.kind.translates() => {
                self.report.remark("nothing is logged in chains that translate", &rule.place);
            }
            Action::Edit(edit) => {
                self.written.extend(edit.writes);
                self.entry(rule, matching, Outcome::Edit(edit));
            }
            Action::Remark(text) => self.report.remark(text, &rule.place),
            Action::Unknown(reason, effect) => self.leave_out(rule, matching, reason.clone(), *effect),
        }
        Ok(())
    }

    fn entry(&mut self, rule: &'a Rule, cubes: Vec<PacketCube>, outcome: Outcome<'a>) {
        self.items.push(Item::Entry(Entry {
            cubes,
            outcome,
            place: &rule.place,
            text: &rule.text,
            comment: rule.comment.as_deref(),
            policy_of: None,
        }));
    }

    fn leave_out(&mut self, rule: &Rule, cubes: Vec<PacketCube>, reason: String, effect: Effect) {
        let told = LeftOut { place: rule.place.clone(), text: rule.text.clone(), reason, effect };
        self.items.push(Item::LeftOut(Omission { told, cubes }));
    }

    /// Subtracts the packets of some cubes from others.
    fn take_away(
        &mut self,
        packets: &mut Vec<PacketCube>,
        cubes: &[PacketCube],
        place: &Place,
    ) -> Result<(), RulesetError> {
        for cube in cubes {
            self.count(packets.len(), place)?;
            *packets = packets.iter().flat_map(|have| have.minus(cube)).collect();
            if packets.len() > MAX_CUBES {
                return Err(RulesetError::TooMany(place.clone()));
            }
        }
        Ok(())
    }

    /// The effect of an omitted rule. Its packets continue to the next rule, where the original would have
    ///
    /// - decided: without an accept the policy can only be stricter, without a drop only looser;
    /// - called another chain: the same for each verdict in it;
    /// - skipped the rest of the chain (a return): the rest decides about packets that it should not see, so each accept in it
    ///   makes the policy looser, and each drop stricter;
    /// - done both (a goto): either;
    /// - translated the packets: what their kind of hook says;
    /// - kept them from being translated: either.
    fn effect(&self, chain: &Chain, index: usize) -> Effect {
        match self.kind {
            HookKind::Source if self.may_end_hook(&chain.rules[index]) => return Effect::Either,
            HookKind::Destination | HookKind::Source => return self.kind.effect_of_translation(),
            HookKind::FilterReceived | HookKind::Filter => {}
        }
        let of = |action: &Action| match action {
            Action::Accept => Effect::Stricter,
            Action::Drop | Action::Reject(_) => Effect::Looser,
            Action::Goto(_) => Effect::Either,
            Action::Jump(called) => self.verdicts(&self.ruleset.chains[*called].rules).effect(),
            Action::Return => {
                let rest = self.verdicts(&chain.rules[index + 1..]);
                Verdicts { accept: rest.drop, drop: rest.accept }.effect()
            }
            Action::Edit(_) | Action::Remark(_) | Action::Translate(_) => Effect::None,
            Action::Unknown(_, effect) => *effect,
        };
        actions(&chain.rules[index]).map(of).fold(Effect::None, Effect::and)
    }

    /// The possible verdicts of rules, including those of the chains that they call.
    fn verdicts(&self, rules: &[Rule]) -> Verdicts {
        let mut found = Verdicts::default();
        for action in self.actions_within(rules) {
            match action {
                Action::Accept | Action::Translate(_) => found.accept = true,
                Action::Drop | Action::Reject(_) => found.drop = true,
                Action::Unknown(_, Effect::None)
                | Action::Jump(_)
                | Action::Goto(_)
                | Action::Return
                | Action::Edit(_)
                | Action::Remark(_) => {}
                Action::Unknown(..) => found = Verdicts { accept: true, drop: true },
            }
        }
        found
    }

    /// Whether a rule may keep packets from the rest of its hook, or of its chain, without a translation.
    fn may_end_hook(&self, rule: &Rule) -> bool {
        let skips = actions(rule).any(|action| matches!(action, Action::Return | Action::Goto(_)));
        skips || self.actions_within(std::slice::from_ref(rule)).contains(&&Action::Accept)
    }

    /// The actions of rules and of the chains that they call.
    fn actions_within<'c>(&'c self, rules: &'c [Rule]) -> Vec<&'c Action> {
        let mut found = Vec::new();
        let (mut visited, mut waiting) = (BTreeSet::new(), vec![rules]);
        while let Some(rule) = next_rule(&mut waiting) {
            for action in actions(rule) {
                found.push(action);
                if let Action::Jump(chain) | Action::Goto(chain) = action
                    && visited.insert(*chain)
                {
                    waiting.push(&self.ruleset.chains[*chain].rules);
                }
            }
        }
        found
    }
}

/// Whether a cube depends on connections.
fn asks_state(cube: &PacketCube) -> bool {
    cube.asked(Dim::State).is_some() || cube.asked(Dim::Translated).is_some()
}

/// The actions of a rule.
fn actions(rule: &Rule) -> impl Iterator<Item = &Action> {
    actions_of(&rule.steps)
}

fn actions_of(steps: &[Step]) -> impl Iterator<Item = &Action> {
    steps.iter().flat_map(|step| match step {
        Step::Act(action) => vec![action],
        Step::Branch(branches) => branches.iter().map(|(_, action)| action).collect(),
        Step::Match(_) | Step::Rate(_) | Step::Unknown(_) => Vec::new(),
    })
}

/// What becomes of the rate of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RateUse {
    /// The rule has none, or its rate is about what needs none here.
    Ignored,
    /// The rule drops what exceeds it.
    Drops,
    /// What is within goes on to the next step, and the rest of the chain drops what exceeds it.
    Passes,
}

/// Whether an action does nothing but tell of packets.
fn only_tells(action: &Action) -> bool {
    match action {
        Action::Remark(_) => true,
        Action::Edit(edit) => edit.logs,
        Action::Accept
        | Action::Drop
        | Action::Reject(_)
        | Action::Return
        | Action::Jump(_)
        | Action::Goto(_)
        | Action::Translate(_)
        | Action::Unknown(..) => false,
    }
}

/// The remark of a rule that does nothing but tell of packets.
fn only_remarks(rule: &Rule) -> Option<&'static str> {
    if !actions(rule).all(only_tells) {
        return None;
    }
    Some(match actions(rule).last()? {
        Action::Remark(text) => text,
        _log => "nothing is logged: the rule language cannot tell these packets",
    })
}

/// The possible verdicts of some rules.
#[derive(Clone, Copy, Debug, Default)]
struct Verdicts {
    accept: bool,
    drop: bool,
}

impl Verdicts {
    /// The effect of their omission on a policy.
    fn effect(self) -> Effect {
        match (self.accept, self.drop) {
            (false, false) => Effect::None,
            (true, false) => Effect::Stricter,
            (false, true) => Effect::Looser,
            (true, true) => Effect::Either,
        }
    }
}

/// The next of rules in several slices.
fn next_rule<'r>(pieces: &mut Vec<&'r [Rule]>) -> Option<&'r Rule> {
    loop {
        let (rule, rest) = match pieces.pop()? {
            [] => continue,
            [rule, rest @ ..] => (rule, rest),
        };
        pieces.push(rest);
        return Some(rule);
    }
}
