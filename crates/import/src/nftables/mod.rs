//! `mmb import nftables`: the output of `nft -j list ruleset` as a policy.
//!
//! The base chains of all tables are the hooks of a `Ruleset`, in the order of their hooks and priorities. Tables of `inet` see packets
//! of both families; those of `bridge` become a policy if no table of an IP family filters the same packets.

mod json;
mod matches;
mod names;
mod rates;
mod statements;
mod values;

use super::cube::Family;
use super::draft::{Effect, ImportVerdict, LeftOut, Place, PolicyDraft, count};
use super::named_set::ImportedSets;
use super::netfilter::{self, Chain, ChainId, Hook, HookKind, HostAddresses, Rule, Ruleset, RulesetError};
use json::{ChainObject, Expr, KnownObject, LimitStatement, Listing, Object, RuleObject, SetObject};
use matches::{MatchContext, NamedSet};
use statements::StatementContext;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The priority of the translation of destinations (`NF_IP_PRI_NAT_DST`).
const DESTINATION_PRIORITY: i64 = -100;

/// The priority of the translation of sources (`NF_IP_PRI_NAT_SRC`).
const SOURCE_PRIORITY: i64 = 100;

/// Why a rule set cannot become a policy.
#[derive(Debug, thiserror::Error)]
pub enum NftablesError {
    /// The text is not the output of nft.
    #[error("this is no output of `nft -j list ruleset`")]
    Json(#[from] serde_json::Error),
    /// A rule belongs to no chain.
    #[error("{0}: its chain is not in the rule set")]
    NoChain(Place),
    /// No chain filters or translates forwarded packets, or packets to the host.
    #[error("there is no base chain at the hook {0}")]
    NoHook(&'static str),
    /// The chains are too complex.
    #[error(transparent)]
    Ruleset(#[from] RulesetError),
}

/// The packets that a policy is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PacketPath {
    /// Forwarded ones.
    #[default]
    Forward,
    /// Those to the host itself.
    Input,
}

/// What a rule set does not contain.
#[derive(Debug, Default)]
pub struct NftablesOptions {
    /// The packets that the policy is about.
    pub path: PacketPath,
    /// The addresses of the host.
    pub addresses: HostAddresses,
    /// The MTU of the paths, for `rt mtu`.
    pub path_mtu: Option<u16>,
}

/// A table: its family and its name.
type TableName<'a> = (&'a str, &'a str);

/// Translates a rule set.
///
/// # Errors
/// What is wrong with it.
pub fn translate(
    text: &str,
    options: &NftablesOptions,
    draft: &mut PolicyDraft,
) -> Result<(), NftablesError> {
    let listing: Listing = serde_json::from_str(text)?;
    let mut tables: BTreeMap<TableName<'_>, TableObjects<'_>> = BTreeMap::new();
    let mut chains: Vec<&ChainObject> = Vec::new();
    let dormant = dormant_tables(&listing, draft);
    for object in &listing.nftables {
        let Object::Known(object) = object else { continue };
        if dormant.contains(&object.table()) {
            continue;
        }
        match &**object {
            KnownObject::Table(_) => {}
            KnownObject::Chain(chain) => {
                let table = tables.entry((&chain.family, &chain.table)).or_default();
                table.chains.insert(&chain.name, chains.len());
                chains.push(chain);
            }
            KnownObject::Rule(rule) => {
                tables.entry((&rule.family, &rule.table)).or_default().rules.push(rule);
            }
            KnownObject::Set(set) | KnownObject::Map(set) => {
                tables.entry((&set.family, &set.table)).or_default().add_set(set);
            }
            KnownObject::Limit(limit) => {
                let table = tables.entry((&limit.family, &limit.table)).or_default();
                table.limits.insert(&limit.name, &limit.limit);
            }
        }
    }
    for table in tables.values_mut() {
        for name in table.rules.iter().flat_map(|rule| changed_sets(rule)) {
            if let Some(set) = table.sets.get_mut(name) {
                set.is_dynamic = true;
            }
        }
    }
    let rules = rules(&tables, options)?;
    let mut ruleset = ruleset(&chains, rules, options, draft)?;
    for object in &listing.nftables {
        if let Object::Known(object) = object
            && let KnownObject::Set(set) = &**object
            && tables.get(&object.table()).is_some_and(|table| table.is_constant(&set.name))
            && let Some((of, members)) = values::members(set)
        {
            let values = members.iter().flat_map(|(values, _)| values.as_slice().iter().copied()).collect();
            ruleset.sets.add(&set.name, of, values, &members);
        }
    }
    netfilter::translate(&ruleset, draft)?;
    Ok(())
}

/// The tables whose base chains see no packets. They are noted, and so are those with flags that are not known.
fn dormant_tables<'a>(listing: &'a Listing, draft: &mut PolicyDraft) -> BTreeSet<TableName<'a>> {
    let mut dormant = BTreeSet::new();
    for object in &listing.nftables {
        let Object::Known(object) = object else { continue };
        let KnownObject::Table(table) = &**object else { continue };
        let name = format!("{} {}", table.family, table.name);
        for flag in table.flags.iter().flat_map(Expr::texts) {
            match flag {
                "owner" | "persist" => {}
                "dormant" => {
                    draft.note(format!("table {name} is dormant: it does nothing"));
                    dormant.insert(object.table());
                }
                // nft 1.0.6 writes the family in place of the flags.
                flag => draft.leave_out(LeftOut {
                    place: Place::Handle { chain: format!("table {name}"), handle: table.handle },
                    text: format!("table {name} {{ flags {flag}; … }}"),
                    reason: "its flags are not known: if it is dormant, it does nothing in the kernel"
                        .to_owned(),
                    effect: Effect::Either,
                }),
            }
        }
    }
    dormant
}

impl KnownObject {
    /// The table that it is or belongs to.
    fn table(&self) -> TableName<'_> {
        match self {
            KnownObject::Table(table) => (&table.family, &table.name),
            KnownObject::Chain(chain) => (&chain.family, &chain.table),
            KnownObject::Rule(rule) => (&rule.family, &rule.table),
            KnownObject::Set(set) | KnownObject::Map(set) => (&set.family, &set.table),
            KnownObject::Limit(limit) => (&limit.family, &limit.table),
        }
    }
}

/// The objects of a table.
#[derive(Default)]
struct TableObjects<'a> {
    chains: HashMap<&'a str, ChainId>,
    rules: Vec<&'a RuleObject>,
    sets: HashMap<&'a str, NamedSet<'a>>,
    limits: HashMap<&'a str, &'a LimitStatement>,
}

impl<'a> TableObjects<'a> {
    fn add_set(&mut self, set: &'a SetObject) {
        let is_dynamic = set.flags.iter().any(|flag| flag == "dynamic");
        self.sets.insert(&set.name, NamedSet { elements: &set.elem, is_dynamic, decides: set.decides() });
    }

    /// Whether no rule adds to a set.
    fn is_constant(&self, set: &str) -> bool {
        self.sets.get(set).is_some_and(|set| !set.is_dynamic)
    }
}

/// The sets to which a rule adds, or from which it takes. The JSON of nft 1.0.6 has no flag `dynamic`.
fn changed_sets(rule: &RuleObject) -> impl Iterator<Item = &str> {
    rule.expr.iter().filter_map(|statement| statement.get("set")?.get("set")?.as_str()?.strip_prefix('@'))
}

/// The translated rules, with their chains.
fn rules(
    tables: &BTreeMap<TableName<'_>, TableObjects<'_>>,
    options: &NftablesOptions,
) -> Result<Vec<(ChainId, Rule)>, NftablesError> {
    let mut rules = Vec::new();
    for (&(family, name), table) in tables {
        let families = families_of(family);
        let matching = MatchContext { families: &families, sets: &table.sets, addresses: &options.addresses };
        let context = StatementContext {
            matching,
            chains: &table.chains,
            table: (family, name),
            limits: &table.limits,
            path_mtu: options.path_mtu,
        };
        for source in &table.rules {
            let chain = format!("{} {} {}", source.family, source.table, source.chain);
            let place = Place::Handle { chain, handle: source.handle };
            let Some(&id) = table.chains.get(source.chain.as_str()) else {
                return Err(NftablesError::NoChain(place));
            };
            rules.push((id, statements::rule(context, source, place)));
        }
    }
    Ok(rules)
}

/// The families that the tables of a family see.
fn families_of(family: &str) -> Vec<Family> {
    match family {
        "ip" => vec![Family::Ip4],
        "ip6" => vec![Family::Ip6],
        "inet" => vec![Family::Ip4, Family::Ip6],
        "bridge" | "netdev" => vec![Family::Ip4, Family::Ip6, Family::Frame],
        _ => Vec::new(),
    }
}

fn ruleset(
    sources: &[&ChainObject],
    rules: Vec<(ChainId, Rule)>,
    options: &NftablesOptions,
    draft: &mut PolicyDraft,
) -> Result<Ruleset, NftablesError> {
    let mut chains: Vec<Chain> = sources.iter().map(|source| chain(source)).collect();
    for (id, rule) in rules {
        chains[id].rules.push(rule);
    }
    let is_forwarding = options.path == PacketPath::Forward;
    let main = if is_forwarding { "forward" } else { "input" };
    let is_ip = |source: &&&ChainObject| matches!(source.family.as_str(), "ip" | "ip6" | "inet");
    let at_main = |source: &&&ChainObject| source.hook.as_deref() == Some(main);
    let routes = sources
        .iter()
        .filter(is_ip)
        .any(|source| source.hook.as_deref() == Some(main) || source.kind.as_deref() == Some("nat"));
    if !routes && !sources.iter().any(|source| at_main(&source)) {
        return Err(NftablesError::NoHook(main));
    }
    let mut placed = PlacedHooks::default();
    for (id, source) in sources.iter().enumerate() {
        let Some(hook) = source.hook.as_deref() else { continue };
        let is_empty = chains[id].rules.is_empty() && source.policy.as_deref() != Some("drop");
        if is_empty {
            continue;
        }
        match (source.family.as_str(), routes) {
            ("ip" | "ip6" | "inet", true) | ("bridge", false) | ("netdev", _) => {
                if let Err(reason) = placed.place(id, source, hook, is_forwarding) {
                    leave_out_chain(&chains[id], reason, draft);
                }
            }
            ("bridge", true) => {
                let reason = "tables of bridges are translated where no other table filters";
                leave_out_chain(&chains[id], reason, draft);
            }
            ("ip" | "ip6" | "inet", false) => {}
            (_, _) => leave_out_chain(&chains[id], "its family is not known", draft),
        }
    }
    placed.hooks.sort_by_key(|&(rank, _)| rank);
    placed.local.sort_by_key(|&(rank, _)| rank);
    let hooks: Vec<Hook> = placed.hooks.into_iter().map(|(_, hook)| hook).collect();
    let families = [Family::Ip4, Family::Ip6, Family::Frame];
    let seen = |family: &Family| hooks.iter().any(|hook| hook.families.contains(family));
    let families: Vec<Family> = families.into_iter().filter(seen).collect();
    draft.comment(&format!("hook {main}, {}", count(hooks.len(), "base chain")));
    Ok(Ruleset {
        chains,
        hooks,
        local_hooks: placed.local.into_iter().map(|(_, hook)| hook).collect(),
        is_forwarding: is_forwarding && routes,
        families,
        addresses: options.addresses.clone(),
        sets: ImportedSets::default(),
        about: format!("the hook {main}"),
    })
}

fn chain(source: &ChainObject) -> Chain {
    let table = format!("{} {}", source.family, source.table);
    let chain = format!("{table} {}", source.name);
    Chain {
        name: source.name.clone(),
        table,
        place: Place::Handle { chain, handle: source.handle },
        rules: Vec::new(),
    }
}

fn leave_out_chain(chain: &Chain, reason: &str, draft: &mut PolicyDraft) {
    draft.leave_out(LeftOut {
        place: chain.place.clone(),
        text: format!("chain {} with {}", chain.name, count(chain.rules.len(), "rule")),
        reason: reason.to_owned(),
        effect: Effect::Either,
    });
}

/// The hooks on the way of the packets, each with its order.
#[derive(Default)]
struct PlacedHooks {
    hooks: Vec<((u8, i64), Hook)>,
    /// Those of packets to the host itself, behind the translation of destinations.
    local: Vec<((u8, i64), Hook)>,
}

impl PlacedHooks {
    /// Places a base chain that has rules, or drops. The error is the reason for which it is left out.
    fn place(
        &mut self,
        chain: ChainId,
        source: &ChainObject,
        hook: &str,
        is_forwarding: bool,
    ) -> Result<(), &'static str> {
        let is_nat = source.kind.as_deref() == Some("nat");
        let kind = match (hook, is_nat) {
            ("ingress" | "prerouting", false) if source.prio < DESTINATION_PRIORITY || hook == "ingress" => {
                HookKind::FilterReceived
            }
            ("prerouting", true) => HookKind::Destination,
            ("postrouting", false) if source.prio >= SOURCE_PRIORITY => {
                return Err("it filters behind the translation of sources");
            }
            ("postrouting" | "input", true) => HookKind::Source,
            ("prerouting" | "forward" | "input" | "postrouting", _) => HookKind::Filter,
            // Packets of the host itself.
            _ => return Ok(()),
        };
        let devices: BTreeSet<&str> = source.dev.iter().flat_map(|dev| dev.texts()).collect();
        let devices: Vec<Option<String>> = match devices.len() {
            0 => vec![None],
            _ => devices.into_iter().map(|device| Some(device.to_owned())).collect(),
        };
        let on_way = match hook {
            "forward" | "postrouting" => is_forwarding,
            "input" => !is_forwarding,
            _ => true,
        };
        let rank = match hook {
            "ingress" => 0,
            "prerouting" => 1,
            "forward" | "input" => 2,
            _ => 3,
        };
        for device in devices {
            let is_drop = source.policy.as_deref() == Some("drop");
            let new = || Hook {
                chain,
                kind,
                families: families_of(&source.family),
                device: device.clone(),
                policy: if is_drop { ImportVerdict::Drop } else { ImportVerdict::Accept },
            };
            if on_way {
                self.hooks.push(((rank, source.prio), new()));
            }
            if is_forwarding && kind == HookKind::Filter && matches!(hook, "prerouting" | "input") {
                self.local.push(((rank, source.prio), new()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
