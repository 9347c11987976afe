//! Rates that rules match by. In mmb what exceeds a rate is dropped, so a rate is translated where the rule set drops it: by the rule itself, or by those
//! behind it.

use super::super::ruleset::{Action, Chain, MAX_AHEAD, MAX_DEPTH, Reason, Rule, Step};
use super::super::view::subtract;
use super::{ChainWalk, RateUse, actions, actions_of, only_tells};
use crate::cube::PacketCube;
use crate::draft::{ImportVerdict, Place};

const ONE_RATE: &str = "limit: only rules whose one rate is their last match are translated";
const NOT_DROPPED: &str = "limit: a rate is translated where what exceeds it is dropped";
const NO_LOG: &str = "limit: mmb does not log what exceeds a rate";
const TOO_MANY: &str = "limit: the rule set has too many rates to find what drops the packets beyond them";

impl<'a> ChainWalk<'a, '_> {
    /// How the rate of a rule becomes one of the policy, in which what exceeds it is dropped; `Err`: why it does not.
    pub(super) fn rate_use(
        &mut self,
        chain: &'a Chain,
        index: usize,
        packets: &[PacketCube],
    ) -> Result<RateUse, Reason> {
        let rule = &chain.rules[index];
        let Some(place) = rule.steps.iter().position(|step| matches!(step, Step::Rate(_))) else {
            return Ok(RateUse::Ignored);
        };
        let (before, after) = rule.steps.split_at(place);
        let [Step::Rate(rate), after @ ..] = after else { return Ok(RateUse::Ignored) };
        let mut last = None;
        for step in after {
            match step {
                Step::Act(action) if only_tells(action) => {}
                Step::Act(action) => last = Some(action),
                Step::Match(_) | Step::Rate(_) | Step::Branch(_) => return Err(ONE_RATE.to_owned()),
                Step::Unknown(_) => {}
            }
        }
        let logs = |step: &Step| matches!(step, Step::Act(Action::Edit(edit)) if edit.logs);
        match last {
            None if rate.is_beyond && after.iter().any(logs) => Err(NO_LOG.to_owned()),
            // Logs have a limit of their own.
            None => Ok(RateUse::Ignored),
            Some(_) if self.kind.translates() => Err("translations have no rate".to_owned()),
            Some(Action::Drop | Action::Reject(_)) if rate.is_beyond => {
                self.report_differences(after, &rule.place);
                Ok(RateUse::Drops)
            }
            Some(action) if !rate.is_beyond && action.ends_rule() => {
                let cubes = self.narrowed(packets.to_vec(), before);
                let rest = &chain.rules[index + 1..];
                match cubes.and_then(|cubes| self.dropped_by(rest, cubes, self.path.len())) {
                    Some(dropping) => {
                        for rule in dropping {
                            self.report.matched.insert(rule.place.clone());
                            self.report_differences(&rule.steps, &rule.place);
                        }
                        Ok(RateUse::Passes)
                    }
                    None if self.pairs_ahead > MAX_AHEAD => Err(TOO_MANY.to_owned()),
                    None => Err(NOT_DROPPED.to_owned()),
                }
            }
            Some(_) => Err(NOT_DROPPED.to_owned()),
        }
    }

    /// The rules of the rest of a chain that tell of some packets or drop them, if it drops all of them. `depth` is the number of chains on the way there.
    fn dropped_by(
        &mut self,
        rest: &'a [Rule],
        mut packets: Vec<PacketCube>,
        depth: usize,
    ) -> Option<Vec<&'a Rule>> {
        let mut concerned = Vec::new();
        for rule in rest {
            if packets.is_empty() {
                return Some(concerned);
            }
            let cubes = self.narrowed(self.all(), &rule.steps)?;
            self.look_at(packets.len() * cubes.len())?;
            if !packets.iter().any(|have| cubes.iter().any(|cube| have.overlaps(cube))) {
                continue;
            }
            concerned.push(rule);
            let is_known = self.unknown(rule).is_empty()
                && rule.steps.iter().all(|step| matches!(step, Step::Match(_) | Step::Act(_)));
            match actions(rule).find(|action| !only_tells(action)) {
                None => {}
                Some(Action::Drop | Action::Reject(_)) if is_known => {
                    for cube in &cubes {
                        self.look_at(packets.len())?;
                        subtract(&mut packets, cube);
                    }
                }
                Some(Action::Jump(called) | Action::Goto(called)) if is_known && depth < MAX_DEPTH => {
                    self.look_at(packets.len() * cubes.len())?;
                    let inside =
                        packets.iter().flat_map(|have| cubes.iter().filter_map(|cube| have.and(cube)));
                    let called = &self.ruleset.chains[*called].rules;
                    concerned.extend(self.dropped_by(called, inside.collect(), depth + 1)?);
                    for cube in &cubes {
                        self.look_at(packets.len())?;
                        subtract(&mut packets, cube);
                    }
                }
                Some(_) => return None,
            }
        }
        let policy_drops = depth == 1 && self.policy == ImportVerdict::Drop;
        (packets.is_empty() || policy_drops).then_some(concerned)
    }

    /// The packets that match all of some steps, as far as these are known.
    fn narrowed(&mut self, mut packets: Vec<PacketCube>, steps: &[Step]) -> Option<Vec<PacketCube>> {
        for step in steps {
            if let Step::Match(parts) = step {
                self.look_at(packets.len() * parts.len())?;
                packets =
                    packets.iter().flat_map(|cube| parts.iter().filter_map(|part| cube.and(part))).collect();
            }
        }
        Some(packets)
    }

    /// Counts pairs of cubes that are compared in looking ahead; `None`: it takes too long, and the rate is left out.
    fn look_at(&mut self, pairs: usize) -> Option<()> {
        self.pairs_ahead += pairs as u64;
        (self.pairs_ahead <= MAX_AHEAD).then_some(())
    }

    /// Reports what some steps do with packets beyond a rate besides dropping them.
    fn report_differences(&mut self, steps: &[Step], place: &Place) {
        for action in actions_of(steps) {
            match action {
                Action::Edit(edit) if edit.logs => {
                    self.report.remark("what exceeds the rate is dropped, and not logged", place);
                }
                Action::Reject(_) => {
                    self.report.remark("what exceeds the rate is dropped, and not answered", place);
                }
                Action::Accept
                | Action::Drop
                | Action::Return
                | Action::Jump(_)
                | Action::Goto(_)
                | Action::Translate(_)
                | Action::Edit(_)
                | Action::Remark(_)
                | Action::Unknown(..) => {}
            }
        }
    }
}
