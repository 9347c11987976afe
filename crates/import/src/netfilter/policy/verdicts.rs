//! The verdicts and limits of lists as rules.

use super::super::ruleset::{MAX_CUBES, MAX_RULES, Rate, RulesetError};
use super::super::view::{PacketClass, Received, is_among, subtract};
use super::super::walk::{Entry, HookList, Item, Outcome};
use super::{Extent, LimitRules, PolicyWriter};
use crate::cube::{Dim, Family, PacketCube};
use crate::draft::{Effect, ImportVerdict};
use crate::language;
use mmb_language::Print;
use mmb_policy::Target;

/// With more cubes, the packets that no entry has decided about are not tracked further: they only tell which omissions matter.
const MAX_UNDECIDED: usize = 64;

/// What a rule decides.
#[derive(Clone, Copy)]
enum Decision<'a> {
    Verdict(ImportVerdict),
    Limit(&'a Rate),
}

impl<'a> Decision<'a> {
    /// The decision of an entry, if it decides whether packets pass.
    fn of(entry: &Entry<'a>) -> Option<Decision<'a>> {
        match entry.outcome {
            Outcome::Verdict(verdict) => Some(Decision::Verdict(verdict)),
            Outcome::Limit(rate) => Some(Decision::Limit(rate)),
            Outcome::Translate(_) | Outcome::Edit(_) => None,
        }
    }

    /// The target for packets of a family.
    fn target(self, family: Family) -> String {
        match self {
            Decision::Verdict(verdict) => verdict.target(family).to_owned(),
            Decision::Limit(rate) => Target::Limit(rate.limit).text().to_string(),
        }
    }

    fn if_left_out(self) -> Effect {
        match self {
            Decision::Verdict(verdict) => verdict.if_left_out(),
            Decision::Limit(_) => Effect::Looser,
        }
    }

    /// Whether what it says needs a field that the packets of a class do not have as the hook sees it.
    fn is_hidden(self, class: &PacketClass) -> bool {
        match self {
            Decision::Verdict(_) => false,
            Decision::Limit(rate) => rate.limit.per.is_some_and(|key| {
                let dim = if key.is_source() { Dim::Source } else { Dim::Destination };
                class.seen.iter().any(|(seen, _)| *seen == dim)
            }),
        }
    }
}

impl<'a> PolicyWriter<'a, '_> {
    /// Adds the drops before destinations are translated, which come before everything else.
    pub(super) fn received_drops(
        &mut self,
        lists: &[&HookList<'_>],
        general: &[PacketClass],
    ) -> Result<(), RulesetError> {
        for list in lists {
            self.drops(list, general, Extent::All, &mut Vec::new())?;
        }
        Ok(())
    }

    /// Adds the verdicts of lists for classes of packets. Lists about different families have a policy for each.
    pub(super) fn verdicts(
        &mut self,
        lists: &[&HookList<'_>],
        classes: &[PacketClass],
        extent: Extent,
    ) -> Result<(), RulesetError> {
        let alike = lists.windows(2).all(|two| two[0].families == two[1].families);
        if alike {
            return self.verdicts_of(lists, classes, extent);
        }
        for class in classes {
            let of_family: Vec<&HookList<'_>> =
                lists.iter().copied().filter(|list| list.families.contains(&class.cube.family)).collect();
            self.verdicts_of(&of_family, std::slice::from_ref(class), extent)?;
        }
        Ok(())
    }

    /// Adds the verdicts and limits of lists: the drops of all but the longest list, and then the longest one.
    fn verdicts_of(
        &mut self,
        lists: &[&HookList<'_>],
        classes: &[PacketClass],
        extent: Extent,
    ) -> Result<(), RulesetError> {
        let longest = (0..lists.len()).max_by_key(|&index| lists[index].items.len());
        if let Some(longest) = longest {
            self.report_order(lists, longest)?;
        }
        let mut undecided: Vec<PacketCube> = classes.iter().map(|class| class.cube.clone()).collect();
        for (index, list) in lists.iter().enumerate() {
            if Some(index) != longest {
                self.drops(list, classes, extent, &mut undecided)?;
            }
        }
        let Some(longest) = longest else { return Ok(()) };
        for item in &lists[longest].items {
            match item {
                Item::LeftOut(omission) => self.leave_out_item(omission, classes, extent, &undecided)?,
                Item::Entry(entry) => {
                    let Some(decision) = Decision::of(entry) else { continue };
                    self.decide(entry, &entry.cubes, decision, classes, extent, &mut undecided)?;
                }
            }
        }
        Ok(())
    }

    /// Lists the limits that count other packets than in the kernel, where a chain has its drops before those of an earlier chain.
    fn report_order(&mut self, lists: &[&HookList<'_>], longest: usize) -> Result<(), RulesetError> {
        for (at, list) in lists.iter().enumerate() {
            for limit in list.entries().filter(|entry| matches!(entry.outcome, Outcome::Limit(_))) {
                for (other, dropping) in lists.iter().enumerate() {
                    let is_before = other != longest && (at == longest || other < at);
                    if other == at || is_before == (other < at) {
                        continue;
                    }
                    let drops = |entry: &&Entry<'_>| matches!(entry.outcome, Outcome::Verdict(verdict) if verdict != ImportVerdict::Accept);
                    let mut is_shared = false;
                    for entry in dropping.entries().filter(drops) {
                        self.count(limit.cubes.len() * entry.cubes.len(), limit.place)?;
                        is_shared |= entry.cubes.iter().any(|cube| is_among(cube, &limit.cubes));
                    }
                    let (reason, effect) = match other < at {
                        true => ("packets that an earlier chain drops count for the rate", Effect::Stricter),
                        false => {
                            ("packets that a later chain drops do not count for the rate", Effect::Looser)
                        }
                    };
                    if is_shared {
                        self.leave_out(limit, format!("the order of chains: {reason}"), effect);
                    }
                }
            }
        }
        Ok(())
    }

    /// Adds the drops and limits of a list, without the packets that it accepts before.
    fn drops(
        &mut self,
        list: &HookList<'_>,
        classes: &[PacketClass],
        extent: Extent,
        undecided: &mut Vec<PacketCube>,
    ) -> Result<(), RulesetError> {
        let mut accepted: Vec<PacketCube> = Vec::new();
        for item in &list.items {
            let entry = match item {
                Item::LeftOut(omission) => {
                    self.leave_out_item(omission, classes, extent, undecided)?;
                    continue;
                }
                Item::Entry(entry) => entry,
            };
            let Some(decision) = Decision::of(entry) else { continue };
            if let Decision::Verdict(ImportVerdict::Accept) = decision {
                accepted.extend(entry.cubes.iter().cloned());
                continue;
            }
            let mut cubes = entry.cubes.clone();
            for before in &accepted {
                self.count(cubes.len(), entry.place)?;
                subtract(&mut cubes, before);
                if cubes.len() > MAX_CUBES {
                    return Err(RulesetError::TooMany(entry.place.clone()));
                }
            }
            self.decide(entry, &cubes, decision, classes, extent, undecided)?;
        }
        Ok(())
    }

    /// Adds the rules of a decision about some packets, as a hook sees them, for classes of received packets.
    fn decide(
        &mut self,
        entry: &Entry<'_>,
        cubes: &[PacketCube],
        decision: Decision<'_>,
        classes: &[PacketClass],
        extent: Extent,
        undecided: &mut Vec<PacketCube>,
    ) -> Result<(), RulesetError> {
        self.count(cubes.len() * classes.len(), entry.place)?;
        if !cubes.is_empty() && cubes.iter().all(|cube| self.is_of_later_fragments(cube)) {
            self.report.remark("no packet matches: the kernel reassembles datagrams before", entry.place);
            return Ok(());
        }
        let mut exact: Vec<PacketCube> = Vec::new();
        let parts = cubes.iter().flat_map(|cube| {
            classes.iter().flat_map(move |class| {
                let hidden = move |part: Received| match part {
                    Received::All(part) if decision.is_hidden(class) => Received::Some(part, HIDDEN_KEY),
                    part => part,
                };
                class.received(cube).into_iter().map(hidden)
            })
        });
        for part in parts {
            match part {
                Received::All(part) if self.is_of_later_fragments(&part) => {}
                Received::All(part) if extent == Extent::All || is_among(&part, undecided) => {
                    exact.push(part)
                }
                Received::Some(part, reason) if is_among(&part, undecided) => {
                    let reason = format!("for a part of its packets, {reason}");
                    self.leave_out(entry, reason, decision.if_left_out());
                }
                Received::All(_) | Received::Some(..) => {}
            }
        }
        // The families may be answered differently.
        let mut rules: Vec<(String, Vec<String>)> = Vec::new();
        for part in &exact {
            match language::constraints(part, &self.ruleset.sets) {
                Ok(constraints) => add_to(&mut rules, decision.target(part.family), constraints),
                Err(reason) => self.leave_out_part(entry, &exact, reason, decision.if_left_out()),
            }
        }
        for (target, rules) in rules {
            for rule in language::of_both_families(rules) {
                let added = entry.with_remarks(|remarks| self.draft.add(&[rule], &target, remarks));
                if let (Ok(()), Decision::Limit(rate)) = (&added, decision) {
                    self.count_limit(entry, rate);
                }
                if let Err(reason) = added {
                    self.leave_out_part(entry, &exact, reason, decision.if_left_out());
                }
            }
        }
        let decided: &[PacketCube] = match decision {
            Decision::Verdict(_) => &exact,
            Decision::Limit(_) => &[],
        };
        for part in decided {
            let mut left = undecided.clone();
            subtract(&mut left, part);
            if left.len() <= MAX_UNDECIDED {
                *undecided = left;
            }
        }
        if self.draft.rules > MAX_RULES {
            return Err(RulesetError::TooMany(entry.place.clone()));
        }
        Ok(())
    }

    /// Whether lists decide alike about the packets of a class whether they see them translated or as they arrive, up to the rule that
    /// decides about all of them.
    pub(super) fn is_seen_as_received(lists: &[&HookList<'_>], class: &PacketClass) -> bool {
        let asks = |cube: &PacketCube| {
            let translated = class.seen.iter().any(|(dim, _)| cube.asked(*dim).is_some());
            translated || cube.asked(Dim::Translated).is_some()
        };
        for list in lists {
            let mut left = vec![class.cube.clone()];
            for entry in list.entries() {
                let Some(decision) = Decision::of(entry) else { continue };
                for cube in &entry.cubes {
                    let as_seen = class.received(cube);
                    let decides = |part: &Received| match part {
                        Received::All(part) | Received::Some(part, _) => is_among(part, &left),
                    };
                    if !is_among(cube, &left) && !as_seen.iter().any(decides) {
                        continue;
                    }
                    if asks(cube) || decision.is_hidden(class) {
                        return false;
                    }
                    if matches!(decision, Decision::Verdict(_)) {
                        subtract(&mut left, cube);
                    }
                }
                if left.is_empty() || left.len() > MAX_UNDECIDED {
                    break;
                }
            }
            if left.len() > MAX_UNDECIDED {
                return false;
            }
        }
        true
    }

    /// Counts a rule for the rate of an entry.
    fn count_limit(&mut self, entry: &Entry<'_>, rate: &Rate) {
        let name = rate.table.clone().unwrap_or_else(|| entry.place.to_string());
        let first = || LimitRules { place: entry.place.clone(), text: entry.text.to_owned(), rules: 0 };
        self.limits.entry(name).or_insert_with(first).rules += 1;
    }

    /// Lists the rates that are those of several rules.
    pub(super) fn report_limits(&mut self) {
        for LimitRules { place, text, rules } in std::mem::take(&mut self.limits).into_values() {
            let reason = format!("the rate of all together: {rules} rules have this rate each");
            if rules > 1
                && let Some(left_out) = self.report.leave_out(&place, &text, reason, Effect::Looser)
            {
                self.draft.leave_out(left_out);
            }
        }
    }
}

/// The reason for leaving out a limit whose key is translated.
const HIDDEN_KEY: &str = "the translation hides the address that has the rate";

/// Adds the constraints of rules to those of a target.
fn add_to(rules: &mut Vec<(String, Vec<String>)>, target: String, constraints: Vec<String>) {
    match rules.iter_mut().find(|(known, _)| *known == target) {
        Some((_, have)) => have.extend(constraints),
        None => rules.push((target, constraints)),
    }
}
