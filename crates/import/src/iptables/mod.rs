//! `mmb import iptables`: a chain of the filter table as an ordered policy.
//!
//! In iptables the first rule that matches and has a verdict decides, and chains call each other. A `ChainWalk` follows the chain
//! with the packets that still reach each rule, as cubes: a jump moves the packets that match to the other chain, and `RETURN`
//! and `-g` remove packets from the rest. Each rule with a verdict becomes rules of the policy for exactly the packets that reach
//! and match it, in the same order; the chain's policy comes last.
//!
//! If a rule matches connection states, all packets that pass are tracked, as in conntrack: the last rule creates connections
//! and, after the chain's policy, decides about nothing. A dropped packet creates no connection, as in the kernel.
//!
//! The effect of an omitted rule can be computed: see `ChainWalk::effect`.

mod matches;
mod names;
mod save;

use super::cube::{Dim, Family, PacketCube};
use super::draft::{Effect, ImportVerdict, LeftOut, PolicyDraft, Remarks, count, is_plain};
use super::language;
pub use save::SyntaxError;
use save::{Chain, IptablesRule, IptablesTable, IptablesTarget, Save};
use std::collections::{BTreeMap, BTreeSet};

/// The most cubes for the packets at one place: with more, a chain of exceptions is too complex.
const MAX_CUBES: usize = 4096;

/// The most rules of the resulting policy.
const MAX_RULES: u32 = 1 << 20;

/// The most nested calls of chains. Real dumps have a few.
const MAX_DEPTH: usize = 256;

/// The most rules that are evaluated, counted once per call of their chain: chains that call others twice double the work.
const MAX_STEPS: u32 = 1 << 20;

/// Targets that only write to a log. The rules of a policy have no equivalent except their counters.
const LOGGING: [&str; 5] = ["LOG", "NFLOG", "ULOG", "TRACE", "AUDIT"];

/// Targets that change a packet or its metadata and pass it to the next rule.
const GOING_ON: [&str; 16] = [
    "MARK",
    "CONNMARK",
    "CONNSECMARK",
    "SECMARK",
    "CLASSIFY",
    "SET",
    "TCPMSS",
    "TCPOPTSTRIP",
    "DSCP",
    "TOS",
    "ECN",
    "TTL",
    "HL",
    "CHECKSUM",
    "TEE",
    "RATEEST",
];

/// Why a dump cannot become a policy.
#[derive(Debug, thiserror::Error)]
pub enum IptablesError {
    /// A line is wrong.
    #[error(transparent)]
    Line(#[from] SyntaxError),
    /// The requested chain does not exist.
    #[error("there is no chain {0} in a table filter")]
    NoChain(String),
    /// A chain calls itself.
    #[error("line {0}: the chain {1} comes back to itself")]
    Loop(usize, String),
    /// Too many nested calls of chains.
    #[error("line {0}: the chain {1} is called through more than {MAX_DEPTH} others")]
    TooDeep(usize, String),
    /// The evaluation takes too many rules.
    #[error("line {0}: the chains that lead here call each other too often")]
    TooLong(usize),
    /// The policy would be too large.
    #[error("line {0}: the exceptions before this rule take too many rules")]
    TooMany(usize),
}

/// Translates a chain of a dump; without a family it determines the family from the dump.
///
/// # Errors
/// What is wrong with the dump.
pub fn translate(
    text: &str,
    chain: &str,
    family: Option<Family>,
    draft: &mut PolicyDraft,
) -> Result<(), IptablesError> {
    let save = save::read(text)?;
    let family = family.unwrap_or_else(|| family_of(&save));
    let missing = || IptablesError::NoChain(chain.to_owned());
    let table = save.table("filter").ok_or_else(missing)?;
    let base = table.chain(chain).filter(|chain| chain.policy.is_some()).ok_or_else(missing)?;
    let version = if family == Family::Ip4 { "IPv4" } else { "IPv6" };
    draft.comment(&format!("chain {chain} of table filter, {version}"));
    for other in save.tables.iter().filter(|table| table.name != "filter") {
        leave_out_table(other, draft);
    }
    let mut walk = ChainWalk {
        table,
        family,
        draft,
        path: Vec::new(),
        steps: 0,
        seen: BTreeSet::new(),
        remarks: BTreeMap::new(),
        left_out: BTreeSet::new(),
        matched: BTreeSet::new(),
        unmatched: BTreeSet::new(),
        asks_state: false,
    };
    walk.chain(base, vec![PacketCube::all(family)], base.line)?;
    walk.policy(base);
    walk.finish(chain);
    Ok(())
}

/// The family of a dump: that of its comments, or else that of its contents.
fn family_of(save: &Save) -> Family {
    let rules = save.tables.iter().flat_map(|table| &table.chains).flat_map(|chain| &chain.rules);
    let six = |rule: &IptablesRule| {
        rule.options.iter().any(|option| {
            let addresses = matches!(option.name.as_str(), "source" | "destination");
            let has_colon = || option.values.iter().any(|value| value.contains(':'));
            addresses && has_colon() || option.name == "icmpv6-type" || option.name.starts_with("hl-")
        })
    };
    let is_six = save.written_by_ip6tables.unwrap_or_else(|| rules.into_iter().any(six));
    if is_six { Family::Ip6 } else { Family::Ip4 }
}

/// Lists a table other than filter, if it has rules.
fn leave_out_table(table: &IptablesTable, draft: &mut PolicyDraft) {
    let rules: usize = table.chains.iter().map(|chain| chain.rules.len()).sum();
    let drops =
        table.chains.iter().any(|chain| chain.policy.as_deref().is_some_and(|policy| policy != "ACCEPT"));
    if rules > 0 || drops {
        draft.leave_out(LeftOut {
            line: table.line,
            text: format!("*{}", table.name),
            reason: format!("only the table filter is translated, and this one has {}", count(rules, "rule")),
            effect: Effect::Either,
        });
    }
}

/// A translation in progress.
struct ChainWalk<'a> {
    table: &'a IptablesTable,
    family: Family,
    draft: &'a mut PolicyDraft,
    /// The chains of the current call stack.
    path: Vec<&'a str>,
    /// The number of evaluated rules.
    steps: u32,
    /// The chains that some rule calls.
    seen: BTreeSet<&'a str>,
    /// Remarks that are listed once, for all their lines.
    remarks: BTreeMap<&'static str, BTreeSet<usize>>,
    /// Lines that are listed already: each is listed once, however often its chain is called.
    left_out: BTreeSet<(usize, String)>,
    /// Lines that some packet reaches and matches, in some call of their chain.
    matched: BTreeSet<usize>,
    /// Lines that no packet reaches and matches in some call of their chain. Another call may have such packets.
    unmatched: BTreeSet<usize>,
    /// Some rule matches connection states.
    asks_state: bool,
}

impl<'a> ChainWalk<'a> {
    /// Follows a chain with the packets that reach it; `from` is the line that calls it.
    fn chain(
        &mut self,
        chain: &'a Chain,
        mut packets: Vec<PacketCube>,
        from: usize,
    ) -> Result<(), IptablesError> {
        if self.path.contains(&chain.name.as_str()) {
            return Err(IptablesError::Loop(from, chain.name.clone()));
        }
        if self.path.len() > MAX_DEPTH {
            return Err(IptablesError::TooDeep(from, chain.name.clone()));
        }
        self.path.push(&chain.name);
        self.seen.insert(&chain.name);
        for (index, rule) in chain.rules.iter().enumerate() {
            if packets.len() > MAX_CUBES || self.draft.rules > MAX_RULES {
                return Err(IptablesError::TooMany(rule.line));
            }
            self.steps += 1;
            if self.steps > MAX_STEPS {
                return Err(IptablesError::TooLong(rule.line));
            }
            match matches::cubes(self.family, rule) {
                Ok(cubes) => {
                    self.asks_state |= cubes.iter().any(|cube| cube.asked(Dim::State).is_some());
                    self.rule(rule, &cubes, &mut packets)?;
                }
                Err(reasons) => {
                    let effect = self.effect(chain, index);
                    self.leave_out(rule, reasons.join("; "), effect);
                }
            }
        }
        self.path.pop();
        Ok(())
    }

    /// Applies a rule to the packets that match it. Packets that leave the chain are removed from `packets`.
    fn rule(
        &mut self,
        rule: &'a IptablesRule,
        cubes: &[PacketCube],
        packets: &mut Vec<PacketCube>,
    ) -> Result<(), IptablesError> {
        let matching: Vec<PacketCube> =
            packets.iter().flat_map(|have| cubes.iter().filter_map(|cube| have.and(cube))).collect();
        if matching.is_empty() {
            self.unmatched.insert(rule.line);
            return Ok(());
        }
        self.matched.insert(rule.line);
        let (name, goes_back) = match &rule.target {
            IptablesTarget::None => {
                self.remark("the rule has no target and only counts", rule.line);
                return Ok(());
            }
            IptablesTarget::Jump(name) => (name.as_str(), false),
            IptablesTarget::Goto(name) => (name.as_str(), true),
        };
        if let Some(chain) = self.table.chain(name) {
            self.chain(chain, matching, rule.line)?;
            if goes_back {
                take_away(packets, cubes);
            }
            return Ok(());
        }
        match name {
            "ACCEPT" => self.decide(rule, &matching, ImportVerdict::Accept),
            "DROP" => self.decide(rule, &matching, ImportVerdict::Drop),
            "REJECT" => {
                self.remark("REJECT becomes drop: nobody is told", rule.line);
                self.decide(rule, &matching, ImportVerdict::Drop);
            }
            "RETURN" => take_away(packets, cubes),
            name if LOGGING.contains(&name) => self.remark("nothing is logged, but rules count", rule.line),
            name if GOING_ON.contains(&name) => {
                self.leave_out(rule, format!("a filter has no target {name}"), Effect::None);
            }
            name => self.leave_out(rule, format!("the target {name} is not known"), Effect::Either),
        }
        Ok(())
    }

    /// Adds the rules of a verdict.
    fn decide(&mut self, rule: &IptablesRule, matching: &[PacketCube], verdict: ImportVerdict) {
        let comment = rule.options.iter().find(|option| option.name == "comment");
        let comment = comment.map(|option| option.values.join(" "));
        let name = comment.as_deref().filter(|comment| is_plain(comment));
        let remark = match &comment {
            Some(comment) if name.is_none() => format!("line {}: {comment}", rule.line),
            _ => format!("line {}", rule.line),
        };
        let remarks = Remarks { name, comment: Some(&remark) };
        for cube in matching {
            let added =
                language::constraints(cube).and_then(|rules| self.draft.add(&rules, verdict.text(), remarks));
            if let Err(reason) = added {
                let effect = verdict.if_left_out();
                let some = if matching.len() > 1 { "for a part of its packets, " } else { "" };
                self.leave_out(rule, format!("{some}{reason}"), effect);
            }
        }
    }

    /// Adds the rule for the policy of the chain.
    fn policy(&mut self, chain: &Chain) {
        let accepts = chain.policy.as_deref() == Some("ACCEPT");
        let verdict = if accepts { ImportVerdict::Accept } else { ImportVerdict::Drop };
        let remark = format!("line {}: policy of {}", chain.line, chain.name);
        let rules = language::constraints(&PacketCube::all(self.family));
        let remarks = Remarks { name: None, comment: Some(&remark) };
        if let Err(reason) = rules.and_then(|rules| self.draft.add(&rules, verdict.text(), remarks)) {
            let effect = verdict.if_left_out();
            let (line, text) = (chain.line, format!(":{}", chain.name));
            self.draft.leave_out(LeftOut { line, text, reason, effect });
        }
        if self.asks_state {
            self.track(chain);
        }
    }

    fn track(&mut self, chain: &Chain) {
        let all = language::constraints(&PacketCube::all(self.family));
        if let Err(reason) = all.and_then(|all| all.iter().try_for_each(|rule| self.draft.track(rule))) {
            let (line, text) = (chain.line, "connections".to_owned());
            self.draft.leave_out(LeftOut { line, text, reason, effect: Effect::Either });
        }
    }

    fn remark(&mut self, text: &'static str, line: usize) {
        self.remarks.entry(text).or_default().insert(line);
    }

    fn leave_out(&mut self, rule: &IptablesRule, reason: String, effect: Effect) {
        if self.left_out.insert((rule.line, reason.clone())) {
            self.draft.leave_out(LeftOut { line: rule.line, text: rule.text.clone(), reason, effect });
        }
    }

    /// The effect of an omitted rule. Its packets continue to the next rule, where the original would have
    ///
    /// - decided: without an ACCEPT the policy can only be stricter, without a DROP only looser;
    /// - called another chain: the same for each verdict in it;
    /// - skipped the rest of the chain (`RETURN`): the rest decides about packets that it should not see, so each ACCEPT in it
    ///   makes the policy looser, and each DROP stricter;
    /// - done both (`-g`): either.
    fn effect(&self, chain: &Chain, index: usize) -> Effect {
        match &chain.rules[index].target {
            IptablesTarget::None => Effect::None,
            IptablesTarget::Goto(_) => Effect::Either,
            IptablesTarget::Jump(name) => match (self.table.chain(name), name.as_str()) {
                (Some(called), _) => self.verdicts(&called.rules).effect(),
                (None, "ACCEPT") => Effect::Stricter,
                (None, "DROP" | "REJECT") => Effect::Looser,
                (None, "RETURN") => {
                    let rest = self.verdicts(&chain.rules[index + 1..]);
                    Verdicts { accept: rest.drop, drop: rest.accept }.effect()
                }
                (None, name) if LOGGING.contains(&name) || GOING_ON.contains(&name) => Effect::None,
                (None, _) => Effect::Either,
            },
        }
    }

    /// The possible verdicts of rules, including those of the chains that they call.
    fn verdicts(&self, rules: &[IptablesRule]) -> Verdicts {
        let mut found = Verdicts::default();
        let (mut visited, mut waiting) = (BTreeSet::new(), vec![rules]);
        while let Some(rule) = next_rule(&mut waiting) {
            let (IptablesTarget::Jump(name) | IptablesTarget::Goto(name)) = &rule.target else { continue };
            match (self.table.chain(name), name.as_str()) {
                (Some(chain), name) => {
                    if visited.insert(name) {
                        waiting.push(&chain.rules);
                    }
                }
                (None, "ACCEPT") => found.accept = true,
                (None, "DROP" | "REJECT") => found.drop = true,
                (None, "RETURN") => {}
                (None, name) if LOGGING.contains(&name) || GOING_ON.contains(&name) => {}
                (None, _) => found = Verdicts { accept: true, drop: true },
            }
        }
        found
    }

    /// Lists the remarks that are listed once, and the chains that the policy does not contain.
    fn finish(mut self, base: &str) {
        for line in self.unmatched.difference(&self.matched).copied().collect::<Vec<_>>() {
            self.remark("no packet gets to the rule and matches it", line);
        }
        for (text, lines) in std::mem::take(&mut self.remarks) {
            let lines: Vec<String> = lines.iter().map(usize::to_string).collect();
            let word = if lines.len() == 1 { "line" } else { "lines" };
            self.draft.note(format!("{word} {}: {text}", lines.join(", ")));
        }
        for chain in &self.table.chains {
            if !self.seen.contains(chain.name.as_str()) && !chain.rules.is_empty() {
                let rules = count(chain.rules.len(), "rule");
                let (line, name) = (chain.line, &chain.name);
                self.draft.note(format!("line {line}: chain {name} with {rules} does not belong to {base}"));
            }
        }
    }
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
fn next_rule<'r>(pieces: &mut Vec<&'r [IptablesRule]>) -> Option<&'r IptablesRule> {
    loop {
        let (rule, rest) = match pieces.pop()? {
            [] => continue,
            [rule, rest @ ..] => (rule, rest),
        };
        pieces.push(rest);
        return Some(rule);
    }
}

/// Subtracts the packets of some cubes from others.
fn take_away(packets: &mut Vec<PacketCube>, cubes: &[PacketCube]) {
    for cube in cubes {
        *packets = packets.iter().flat_map(|have| have.minus(cube)).collect();
    }
}

#[cfg(test)]
mod tests;
