//! A rule set as data: chains, rules and their steps, hooks, translations and changes of packets.

use crate::cube::{Dim, Family, PacketCube};
use crate::draft::{Effect, ImportVerdict, Place, Rejection};
use crate::named_set::ImportedSets;
use mmb_policy::Intervals;
use mmb_policy::limit::Limit;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The most cubes for the packets at one place: with more, a chain of exceptions is too complex.
pub(super) const MAX_CUBES: usize = 4096;

/// The most rules of the resulting policy.
pub(super) const MAX_RULES: u32 = 1 << 20;

/// The most nested calls of chains. Real rule sets have a few.
pub(super) const MAX_DEPTH: usize = 256;

/// The most steps of the evaluation: pairs of cubes that are compared. Chains that call others twice double them.
pub(super) const MAX_STEPS: u64 = 1 << 20;

/// The most steps that put the lists of the hooks together: pairs of a cube and a class of packets.
pub(super) const MAX_PAIRS: u64 = 1 << 22;

/// The most pairs of cubes that are compared in looking for what drops the packets beyond a rate.
pub(super) const MAX_AHEAD: u64 = 1 << 21;

/// Why something cannot be translated.
pub(crate) type Reason = String;

/// The place of a chain in [`Ruleset::chains`].
pub(crate) type ChainId = usize;

/// Why a rule set cannot become a policy.
#[derive(Debug, thiserror::Error)]
pub enum RulesetError {
    /// A chain calls itself.
    #[error("{0}: the chain {1} comes back to itself")]
    Loop(Place, String),
    /// Too many nested calls of chains.
    #[error("{0}: the chain {1} is called through more than {MAX_DEPTH} others")]
    TooDeep(Place, String),
    /// The evaluation takes too long.
    #[error("{0}: the chains that lead here call each other too often")]
    TooLong(Place),
    /// The policy would be too large.
    #[error("{0}: the exceptions before this rule take too many rules")]
    TooMany(Place),
}

/// A rule set.
#[derive(Debug)]
pub(crate) struct Ruleset {
    /// All chains.
    pub(crate) chains: Vec<Chain>,
    /// The hooks that a packet passes, in order.
    pub(crate) hooks: Vec<Hook>,
    /// The hooks that packets to the host itself pass instead, behind the translation of destinations.
    pub(crate) local_hooks: Vec<Hook>,
    /// The policy is about forwarded packets, not about those to the host itself.
    pub(crate) is_forwarding: bool,
    /// The families of the rule set.
    pub(crate) families: Vec<Family>,
    /// The sets that stay sets of the policy.
    pub(crate) sets: ImportedSets,
    /// The addresses of the host.
    pub(crate) addresses: HostAddresses,
    /// The chain that the policy is about, in words.
    pub(crate) about: String,
}

/// A chain with its rules.
#[derive(Debug)]
pub(crate) struct Chain {
    /// Its name.
    pub(crate) name: String,
    /// The name of its table.
    pub(crate) table: String,
    /// Its place.
    pub(crate) place: Place,
    /// Its rules, in order.
    pub(crate) rules: Vec<Rule>,
}

/// A chain that the kernel calls.
#[derive(Debug)]
pub(crate) struct Hook {
    /// The chain.
    pub(crate) chain: ChainId,
    /// What its verdicts are about.
    pub(crate) kind: HookKind,
    /// The families whose packets it sees.
    pub(crate) families: Vec<Family>,
    /// The port whose packets it sees, if it does not see those of all.
    pub(crate) device: Option<String>,
    /// The verdict at its end.
    pub(crate) policy: ImportVerdict,
}

/// What the verdicts of a hook are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HookKind {
    /// Whether packets pass, before destinations are translated.
    FilterReceived,
    /// The translation of destinations.
    Destination,
    /// Whether packets pass, behind the translation of destinations.
    Filter,
    /// The translation of sources.
    Source,
}

/// A rule: what happens to a packet, step by step.
#[derive(Debug)]
pub(crate) struct Rule {
    /// Its place.
    pub(crate) place: Place,
    /// The original.
    pub(crate) text: String,
    /// Its comment.
    pub(crate) comment: Option<String>,
    /// Its steps, in order.
    pub(crate) steps: Vec<Step>,
}

/// A step of a rule.
#[derive(Debug)]
pub(crate) enum Step {
    /// Only these packets go on to the next step.
    Match(Vec<PacketCube>),
    /// Only packets within a rate, or only those beyond it, go on to the next step.
    Rate(Rate),
    /// A step that cannot be translated, so that the rule cannot.
    Unknown(Reason),
    /// Something is done with the packet.
    Act(Action),
    /// An action by the value of fields. The rule ends for packets with other values.
    Branch(Vec<(Vec<PacketCube>, Action)>),
}

/// A rate that a rule matches by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    /// The rate.
    pub(crate) limit: Limit,
    /// The packets beyond the rate match, not those within.
    pub(crate) is_beyond: bool,
    /// What counts for the rate, if rules may share it.
    pub(crate) table: Option<String>,
}

/// What a rule does with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The packet passes the hook.
    Accept,
    /// The packet is dropped.
    Drop,
    /// The packet is dropped, and its sender is told in this way; `None`: in a way that mmb does not know.
    Reject(Option<Rejection>),
    /// The next rule is that behind the call of the chain.
    Return,
    /// A chain is called.
    Jump(ChainId),
    /// A chain is called, and the rest of this one is left out.
    Goto(ChainId),
    /// The connection is translated.
    Translate(Translation),
    /// The packet is changed, and goes on.
    Edit(Edit),
    /// Nothing that a policy has to do, with a remark.
    Remark(&'static str),
    /// Something that cannot be translated: packets go on.
    Unknown(Reason, Effect),
}

/// A translation of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Translation {
    /// To another source.
    Source(Pool),
    /// To the address of the port that the packet leaves by.
    Masquerade(Pool),
    /// To another destination.
    Destination(Pool),
    /// To the address of the port that the packet arrives on.
    Redirect(Pool),
}

/// Addresses and ports to choose from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    /// The addresses, if the address is translated; `Masquerade` and `Redirect` have none.
    pub(crate) addresses: Option<(IpAddr, IpAddr)>,
    /// The ports, if the choice is limited to some.
    pub(crate) ports: Option<(u16, u16)>,
    /// Whether ports are chosen at random.
    pub(crate) is_random: bool,
}

/// A change of packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    /// The dimension that it writes, if it is one.
    pub(crate) writes: Option<Dim>,
    /// It tells of packets, and changes none.
    pub(crate) logs: bool,
    /// The rules that make it.
    pub(crate) rules: Vec<EditRule>,
}

/// A rule that is a part of an edit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EditRule {
    /// It is about packets with these values only.
    pub(crate) only: Vec<(Dim, Intervals)>,
    /// Further constraints, in the rule language.
    pub(crate) condition: String,
    /// The target, in the rule language.
    pub(crate) target: String,
}

/// The addresses of the host whose rules are translated, by port. The rule set does not contain them.
#[derive(Clone, Debug, Default)]
pub struct HostAddresses {
    by_port: BTreeMap<String, Vec<(IpAddr, Option<u8>)>>,
}

impl HostAddresses {
    /// Adds an address of a port, with the length of its prefix if it is known.
    pub fn add(&mut self, port: &str, address: IpAddr, prefix: Option<u8>) {
        self.by_port.entry(port.to_owned()).or_default().push((address, prefix));
    }

    /// The first address of each port in a family: the one that packets from the host have.
    pub(crate) fn of_ports(&self, family: Family) -> Vec<(&str, u128)> {
        let first = |addresses: &[(IpAddr, Option<u8>)]| {
            addresses.iter().find_map(|&(address, _)| bits_in(address, family))
        };
        self.by_port.iter().filter_map(|(port, list)| Some((port.as_str(), first(list)?))).collect()
    }

    /// All addresses in a family.
    pub(crate) fn all(&self, family: Family) -> Intervals {
        let listed = self.by_port.values().flatten();
        listed
            .filter_map(|&(address, _)| bits_in(address, family))
            .map(|address| (address, address))
            .collect()
    }

    /// The broadcast addresses of IPv4; `None` if the length of a prefix is not known.
    pub(crate) fn broadcast(&self) -> Option<Intervals> {
        let mut all = Intervals::one(u32::MAX.into());
        for &(address, prefix) in self.by_port.values().flatten() {
            let Some(address) = bits_in(address, Family::Ip4) else { continue };
            let host = mmb_policy::field::ones(32 - prefix?.min(32));
            // Networks of one or two addresses have no broadcast address (RFC 3021).
            if host > 1 {
                all = all.union(&Intervals::one(address | host));
            }
        }
        Some(all)
    }
}

/// The number of an address, if it is of a family.
pub(crate) fn bits_in(address: IpAddr, family: Family) -> Option<u128> {
    match (address, family) {
        (IpAddr::V4(address), Family::Ip4) => Some(address.to_bits().into()),
        (IpAddr::V6(address), Family::Ip6) => Some(address.to_bits()),
        (IpAddr::V4(_), Family::Ip6 | Family::Frame) | (IpAddr::V6(_), Family::Ip4 | Family::Frame) => None,
    }
}

impl Action {
    /// Whether packets do not go on to the next step.
    pub(crate) fn ends_rule(&self) -> bool {
        match self {
            Action::Accept
            | Action::Drop
            | Action::Reject(_)
            | Action::Return
            | Action::Jump(_)
            | Action::Goto(_)
            | Action::Translate(_) => true,
            Action::Edit(_) | Action::Remark(_) | Action::Unknown(..) => false,
        }
    }
}

impl HookKind {
    /// Whether its chains translate.
    pub(crate) fn translates(self) -> bool {
        matches!(self, HookKind::Destination | HookKind::Source)
    }

    /// The effect of a translation, or of an exception from one, that is left out.
    pub(crate) fn effect_of_translation(self) -> Effect {
        match self {
            // Behind it, hooks see other destinations.
            HookKind::Destination => Effect::Either,
            HookKind::Source | HookKind::FilterReceived | HookKind::Filter => Effect::None,
        }
    }
}
