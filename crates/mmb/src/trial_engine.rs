//! An engine without live ports, for commands that try a policy: `explain`, `check`.

use anyhow::Context;
use mmb_engine::{AckSpace, Engine, Forward, PortSpec, PortTable, Worker};
use mmb_packet::PortId;
use mmb_policy::{Policy, Test};
use mmb_random::SeedTree;

/// The ports that a policy names, some several times.
pub(crate) fn named_ports(policy: &Policy) -> impl Iterator<Item = String> {
    let constraints = policy.rules.iter().flat_map(|rule| rule.matches);
    let named = constraints.filter_map(|constraint| match constraint.test {
        Test::Port(_, names) => Some(names),
        _ => None,
    });
    named.flatten().chain(policy.ports.keys().cloned())
}

/// An engine with these ports, each wired to its neighbour.
pub(crate) fn engine(ports: &[String]) -> anyhow::Result<(Engine, Worker)> {
    let spec = |(number, name): (usize, &String)| {
        let peer = (number ^ 1).min(ports.len() - 1);
        PortSpec { name: name.clone(), mtu: None, forward: Forward::Wire(PortId(peer as u16)) }
    };
    let table = PortTable(ports.iter().enumerate().map(spec).collect());
    let (engine, workers) = Engine::new(table, 1, &SeedTree::repeatable(0));
    let mut worker = workers.into_iter().next().context("the engine has no worker")?;
    worker.set_ack_space(AckSpace::Original);
    Ok((engine, worker))
}
