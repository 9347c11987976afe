//! Filters of packets in compiled form: the packets that somebody wants to see, and the flows that they may be of.
//!
//! A filter is evaluated as a rule with its constraints would be, by a classifier of its own with that one rule, so that a constraint means the
//! same in both. Packet threads ask it only while somebody looks.

use super::blocker::relaxed;
use mmb_base::Id;
use mmb_classify::{Classifier, ClassifierIndex, RuleNames, RuleSlot, Tuning, UnknownPort};
use mmb_packet::PortId;
use mmb_policy::rule::{DEFAULT_PRIO, Equality};
use mmb_policy::{FieldId, Match, PacketFilter, Rule, Target, Test};
use mmb_random::Seed;

/// Why a filter of packets is impossible here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no port is called '{port}'; the ports are {known}")]
pub struct UnknownFilterPort {
    /// The name.
    pub port: String,
    /// The ports that there are.
    pub known: String,
}

/// A compiled [`PacketFilter`].
#[derive(Debug)]
pub struct PacketSelector {
    /// `None`: every frame.
    pub(crate) packets: Option<Classifier>,
    /// Finds packets whose flows may have packets that are selected; `None`: there are no such flows.
    pub(crate) flows: Option<Classifier>,
    /// By ingress port: whether frames are selected that cannot be parsed. They satisfy constraints on ports only.
    malformed: Box<[bool]>,
}

impl PacketSelector {
    /// Compiles a filter. `peers` are the egress ports by ingress port.
    ///
    /// # Errors
    /// The name of a port that does not exist.
    pub(crate) fn new(
        filter: &PacketFilter,
        ports: &RuleNames,
        peers: &[PortId],
        seed: Seed,
    ) -> Result<PacketSelector, UnknownPort> {
        let classifier = |matches: Vec<Match>| {
            let rule = [(RuleSlot::FIRST, selecting(matches))].into_iter();
            let index = ClassifierIndex::build(rule, ports.clone(), seed.clone(), Tuning::default());
            index.map(|index| index.classifier()).map_err(|(_, unknown)| unknown)
        };
        let packets = match filter.is_empty() {
            true => None,
            false => Some(classifier(filter.matches.clone())?),
        };
        let flows = relaxed(&filter.matches).map(|(matches, _)| classifier(matches)).transpose()?;
        let holds = |constraint: &Match, port: usize| match &constraint.test {
            Test::Port(equality, names) => {
                let is_egress = constraint.field.id == FieldId::Out;
                let port = if is_egress { peers[port].0 } else { port as u16 };
                let is_named = names.iter().any(|name| ports.number(name) == Ok(port));
                (is_named == (*equality == Equality::Eq)) != constraint.negated
            }
            Test::Present | Test::Number(..) | Test::NamedSet(..) | Test::Bytes(..) => false,
            Test::Patterns(_) | Test::Header(..) => false,
        };
        let all_hold = |port| filter.matches.iter().all(|constraint| holds(constraint, port));
        Ok(PacketSelector { packets, flows, malformed: (0..peers.len()).map(all_hold).collect() })
    }

    /// Whether frames of a port are selected that cannot be parsed.
    pub(crate) fn takes_malformed(&self, port: PortId) -> bool {
        self.malformed.get(usize::from(port.0)).copied().unwrap_or_default()
    }
}

/// A rule with these constraints.
fn selecting(matches: Vec<Match>) -> Rule {
    Rule {
        id: None,
        prio: DEFAULT_PRIO,
        name: None,
        stateful: false,
        draining: false,
        matches,
        targets: vec![Target::Accept],
    }
}
