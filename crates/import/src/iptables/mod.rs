//! `mmb import iptables`: the output of `iptables-save` and `ip6tables-save` as a policy.
//!
//! The tables become the hooks of a `Ruleset`, in the order in which a forwarded packet passes them: `raw` and `mangle` before the
//! destination is translated, `nat`, the chains behind it, and `nat` again for the source. Packets to the host itself pass `INPUT`
//! instead of `FORWARD`.

mod ipset;
mod matches;
pub(crate) mod names;
mod rates;
mod save;
mod targets;

use super::cube::Family;
use super::draft::{Effect, ImportVerdict, LeftOut, Place, PolicyDraft, count};
use super::netfilter::{
    self, Chain, ChainId, Hook, HookKind, HostAddresses, Rule, Ruleset, RulesetError, Step,
};
pub use ipset::{IpSetError, IpSets};
use matches::MatchContext;
pub use save::SyntaxError;
use save::{IptablesRule, IptablesTable, Save};
use std::collections::{BTreeMap, HashMap};
use targets::TargetContext;

/// The built-in chains of forwarded packets, in the order of the kernel.
const FORWARD: [(&str, &str, HookKind); 8] = [
    ("raw", "PREROUTING", HookKind::FilterReceived),
    ("mangle", "PREROUTING", HookKind::FilterReceived),
    ("nat", "PREROUTING", HookKind::Destination),
    ("mangle", "FORWARD", HookKind::Filter),
    ("filter", "FORWARD", HookKind::Filter),
    ("security", "FORWARD", HookKind::Filter),
    ("mangle", "POSTROUTING", HookKind::Filter),
    ("nat", "POSTROUTING", HookKind::Source),
];

/// Those of packets to the host.
const INPUT: [(&str, &str, HookKind); 7] = [
    ("raw", "PREROUTING", HookKind::FilterReceived),
    ("mangle", "PREROUTING", HookKind::FilterReceived),
    ("nat", "PREROUTING", HookKind::Destination),
    ("mangle", "INPUT", HookKind::Filter),
    ("filter", "INPUT", HookKind::Filter),
    ("security", "INPUT", HookKind::Filter),
    ("nat", "INPUT", HookKind::Source),
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
    /// The chains are too complex.
    #[error(transparent)]
    Ruleset(#[from] RulesetError),
}

/// What a dump does not contain.
#[derive(Debug, Default)]
pub struct IptablesOptions {
    /// Its family; without it, it is that of its comments, or else of its contents.
    pub family: Option<Family>,
    /// The addresses of the host.
    pub addresses: HostAddresses,
    /// The sets that its rules name.
    pub sets: Option<IpSets>,
    /// The MTU of the paths, for `--clamp-mss-to-pmtu`.
    pub path_mtu: Option<u16>,
}

/// Translates the way of packets through the tables of a dump: of forwarded packets if `chain` is `FORWARD`, of packets to the host if
/// it is `INPUT`.
///
/// # Errors
/// What is wrong with the dump.
pub fn translate(
    text: &str,
    chain: &str,
    options: &IptablesOptions,
    draft: &mut PolicyDraft,
) -> Result<(), IptablesError> {
    let save = save::read(text)?;
    let family = options.family.unwrap_or_else(|| family_of(&save));
    let missing = || IptablesError::NoChain(chain.to_owned());
    let table = save.table("filter").ok_or_else(missing)?;
    table.chain(chain).filter(|chain| chain.policy.is_some()).ok_or_else(missing)?;
    let version = if family == Family::Ip4 { "IPv4" } else { "IPv6" };
    draft.comment(&format!("chain {chain} of table filter, {version}"));
    for other in save.tables.iter().filter(|table| !FORWARD.iter().any(|(name, ..)| *name == table.name)) {
        leave_out_table(other, draft);
    }
    let ruleset = ruleset(&save, family, chain, options);
    netfilter::translate(&ruleset, draft)?;
    Ok(())
}

/// The rule set of a dump.
fn ruleset(save: &Save, family: Family, chain: &str, options: &IptablesOptions) -> Ruleset {
    let mut chains: Vec<Chain> = Vec::new();
    let mut ids: BTreeMap<(&str, &str), ChainId> = BTreeMap::new();
    for table in &save.tables {
        let first = chains.len();
        let of_table: HashMap<&str, ChainId> = table
            .chains
            .iter()
            .enumerate()
            .map(|(index, chain)| (chain.name.as_str(), first + index))
            .collect();
        let matching = MatchContext { family, addresses: &options.addresses, sets: options.sets.as_ref() };
        let path_mtu = options.path_mtu;
        let targets = TargetContext { family, chains: &of_table, path_mtu, table };
        for chain in &table.chains {
            ids.insert((&table.name, &chain.name), chains.len());
            chains.push(Chain {
                name: chain.name.clone(),
                table: table.name.clone(),
                place: Place::line(chain.line),
                rules: chain.rules.iter().map(|source| rule(matching, &targets, source)).collect(),
            });
        }
    }
    let hook = |&(table, name, kind): &(&str, &str, HookKind)| {
        let source = save.table(table)?.chain(name)?;
        let is_accept = source.policy.as_deref() == Some("ACCEPT");
        Some(Hook {
            chain: *ids.get(&(table, name))?,
            kind,
            families: vec![family],
            device: None,
            policy: if is_accept { ImportVerdict::Accept } else { ImportVerdict::Drop },
        })
    };
    let input = INPUT.iter().filter(|(_, name, _)| *name == "INPUT");
    let (hooks, local_hooks) = if chain == "INPUT" {
        (INPUT.iter().filter_map(hook).collect(), Vec::new())
    } else {
        let filters = input.filter(|(.., kind)| *kind == HookKind::Filter);
        (FORWARD.iter().filter_map(hook).collect(), filters.filter_map(hook).collect())
    };
    let is_forwarding = chain != "INPUT";
    Ruleset {
        chains,
        hooks,
        local_hooks,
        is_forwarding,
        families: vec![family],
        addresses: options.addresses.clone(),
        sets: options.sets.as_ref().map(|sets| sets.imported(family)).unwrap_or_default(),
        about: chain.to_owned(),
    }
}

fn rule(matching: MatchContext<'_>, targets: &TargetContext<'_>, source: &IptablesRule) -> Rule {
    let comment = source.options.iter().find(|option| option.name == "comment");
    let (cubes, reasons) = matches::cubes(matching, source);
    let mut steps = vec![Step::Match(cubes)];
    steps.extend(reasons.into_iter().map(Step::Unknown));
    match rates::rate(matching.family, source) {
        Ok(None) => {}
        Ok(Some(rate)) if rates::is_last_match(source) => steps.push(Step::Rate(rate)),
        // Before the matches that the kernel asks behind it.
        Ok(Some(rate)) => steps.insert(0, Step::Rate(rate)),
        Err(reason) => steps.push(Step::Unknown(reason)),
    }
    steps.extend(targets::step(targets, source));
    Rule {
        place: Place::line(source.line),
        text: source.text.clone(),
        comment: comment.map(|option| option.values.join(" ")),
        steps,
    }
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

/// Lists a table that is not known, if it has rules.
fn leave_out_table(table: &IptablesTable, draft: &mut PolicyDraft) {
    let rules: usize = table.chains.iter().map(|chain| chain.rules.len()).sum();
    let drops =
        table.chains.iter().any(|chain| chain.policy.as_deref().is_some_and(|policy| policy != "ACCEPT"));
    if rules > 0 || drops {
        draft.leave_out(LeftOut {
            place: Place::line(table.line),
            text: format!("*{}", table.name),
            reason: format!("the table is not known, and has {}", count(rules, "rule")),
            effect: Effect::Either,
        });
    }
}

#[cfg(test)]
mod nat_tests;
#[cfg(test)]
mod tests;
