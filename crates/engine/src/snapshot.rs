//! A policy as workers use it: compiled as a whole, never changed, shared by all of them.
//!
//! Life-cycle: the control side compiles it and publishes it; every worker picks it up between two vectors and lets go
//! of the one before; the control side, which holds a reference until then, frees it.

use crate::cells::RuleCells;
use crate::engine::PublishError;
use crate::port::PortTable;
use crate::slots::Slots;
use mmb_classify::{Classifier, Ports};
use mmb_packet::{Limits, PortId};
use mmb_policy::rule::{DropRate, Prio};
use mmb_policy::{Policy, Rule, RuleId, Target};
use mmb_rewrite::Edit;
use std::num::NonZeroU32;

/// A compiled policy.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Counts up from publish to publish.
    pub(crate) generation: u64,
    pub(crate) classifier: Classifier,
    /// What rules do, by rank.
    pub(crate) actions: Box<[Action]>,
    pub(crate) edits: Box<[Edit]>,
    pub(crate) limits: Limits,
    pub(crate) routes: Box<[Route]>,
    /// Rule counters, by worker.
    pub(crate) cells: Box<[RuleCells]>,
}

/// What a rule does: 16 bytes, four to a cache line, since matched rules are looked up at random.
#[derive(Clone, Copy, Debug)]
#[repr(align(16))]
pub(crate) struct Action {
    pub(crate) prio: Prio,
    /// Where it counts.
    pub(crate) slot: u32,
    /// The number of its edit, from 1.
    edit: Option<NonZeroU32>,
    vote: Vote,
}

/// What a rule says about dropping, in 4 bytes: 0 nothing, 1 accept, else 2 more than the rate of drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Vote(u32);

/// What a rule says about dropping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    None,
    Accept,
    Drop(DropRate),
}

/// Where packets of a port go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// The other end of its wire, and the MTU there.
    pub(crate) peer: Option<(PortId, u32)>,
    /// Packets that come in by it are looked at.
    pub(crate) enabled: bool,
}

/// A policy's rules in the order of their ranks: by priority, then id.
pub(crate) fn ranked(policy: &Policy) -> Vec<(RuleId, Rule)> {
    let mut rules: Vec<_> = policy.rules.keys().zip(policy.rules.iter()).collect();
    rules.sort_by_key(|(id, rule)| (rule.prio, *id));
    rules
}

/// Refuses what the engine cannot do yet.
pub(crate) fn check_available(policy: &Policy) -> Result<(), PublishError> {
    for (id, rule) in policy.rules.keys().zip(policy.rules.iter()) {
        let target = rule.targets.iter().find_map(|target| match target {
            Target::Map(..) => Some("map"),
            Target::Shuffle(..) => Some("shuffle"),
            Target::Lb(..) => Some("lb"),
            _ => None,
        });
        if let Some(what) = target.or(rule.stateful.then_some("add-stateful")) {
            return Err(PublishError::NotAvailable { rule: id, what });
        }
    }
    Ok(())
}

/// Compiles the rules. `seed` keys the hash tables.
pub(crate) fn classifier(
    ranked: &[(RuleId, Rule)],
    ports: &PortTable,
    seed: u64,
) -> Result<Classifier, PublishError> {
    let names = Ports::new(ports.0.iter().map(|port| port.name.as_str()));
    Classifier::build(ranked.iter().map(|(_, rule)| rule), &names, seed).map_err(|(rank, unknown)| {
        PublishError::UnknownPort { rule: ranked[rank].0, port: unknown.0, known: ports.known() }
    })
}

impl Snapshot {
    /// A snapshot of rules whose slots are assigned.
    pub(crate) fn new(
        generation: u64,
        policy: &Policy,
        ranked: &[(RuleId, Rule)],
        classifier: Classifier,
        ports: &PortTable,
        slots: &Slots,
    ) -> Snapshot {
        let mut edits = Vec::new();
        let actions = ranked.iter().map(|(id, rule)| {
            let edit = Edit::compile(&rule.targets).and_then(|edit| {
                edits.push(edit);
                NonZeroU32::new(edits.len() as u32)
            });
            Action { prio: rule.prio, slot: slots.number(*id).unwrap_or(0), edit, vote: Vote::of(rule) }
        });
        let actions = actions.collect();
        Snapshot {
            generation,
            classifier,
            actions,
            edits: edits.into(),
            limits: Limits { ip6_headers: policy.settings.ip6_max_headers },
            routes: routes(policy, ports),
            cells: slots.cells().into(),
        }
    }
}

impl Action {
    /// What it says about dropping.
    #[inline]
    pub(crate) fn decision(&self) -> Decision {
        match self.vote.0 {
            0 => Decision::None,
            1 => Decision::Accept,
            rate => Decision::Drop(DropRate(rate - 2)),
        }
    }

    /// Its edit's place in [`Snapshot::edits`].
    #[inline]
    pub(crate) fn edit(&self) -> Option<usize> {
        self.edit.map(|number| number.get() as usize - 1)
    }
}

impl Vote {
    fn of(rule: &Rule) -> Vote {
        let mut votes = rule.targets.iter().filter_map(|target| match target {
            Target::Accept => Some(Vote(1)),
            Target::Drop(rate) => Some(Vote(2 + rate.0)),
            _ => None,
        });
        // The checker lets a rule have one at most.
        votes.next_back().unwrap_or(Vote(0))
    }
}

fn routes(policy: &Policy, ports: &PortTable) -> Box<[Route]> {
    let peer = |id: PortId| ports.0.get(usize::from(id.0)).map(|peer| (id, peer.mtu.unwrap_or(u32::MAX)));
    let route = |port: &crate::port::PortSpec| Route {
        peer: port.peer.and_then(peer),
        enabled: !policy.disabled.contains(&port.name),
    };
    ports.0.iter().map(route).collect()
}
