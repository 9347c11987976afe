//! Compiled filters of taps: they find the selected packets, and the flows to which selected packets may
//! belong.
//!
//! A filter is compiled to a separate classifier, with one rule that has the filter's constraints. So a
//! constraint means the same in a filter as in a rule. Packet threads evaluate the filter only while there is
//! a tap.

use super::blocker::relaxed;
use mmb_base::Id;
use mmb_classify::{Classifier, ClassifierIndex, RuleNames, RuleSlot, Tuning, UnknownPort};
use mmb_packet::PortId;
use mmb_policy::rule::{DEFAULT_PRIO, Equality};
use mmb_policy::{FieldId, Match, PacketFilter, Rule, Target, Test};
use mmb_random::Seed;

/// A filter of packets names a port that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no port is called '{port}'; the ports are {known}")]
pub struct UnknownFilterPort {
    /// The name.
    pub port: String,
    /// The names of the existing ports.
    pub known: String,
}

/// A compiled [`PacketFilter`].
#[derive(Debug)]
pub struct PacketSelector {
    /// Finds the selected packets; `None`: every frame is selected.
    pub(crate) packets: Option<Classifier>,
    /// Finds packets whose flows may have selected packets; `None`: no flow may have any.
    pub(crate) flows: Option<Classifier>,
    /// By ingress port: whether frames that cannot be parsed are selected. Such frames satisfy only
    /// constraints on ports.
    malformed: Box<[bool]>,
}

impl PacketSelector {
    /// Compiles a filter. `peers` are the egress ports by ingress port.
    ///
    /// # Errors
    /// The filter names a port that does not exist.
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

    /// Whether frames of a port that cannot be parsed are selected.
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
