//! Prepares a measurement: the engine, the order of packets, the time between rounds, the effort.

use super::measure::{Answers, Effort, TrafficPattern};
use super::memory;
use super::report::PolicyLoad;
use super::source::BenchSet;
use crate::cli::{BenchArgs, ClassifierArg, OrderArg};
use anyhow::Context;
use mmb_classify::Tuning;
use mmb_engine::{Engine, Forward, PortSpec, PortTable, Worker};
use mmb_packet::PortId;
use mmb_random::SeedTree;
use std::time::{Duration, Instant};

/// The engine's time between two rounds: shorter than any timeout.
pub(super) const BETWEEN_ROUNDS: Duration = Duration::from_millis(10);
/// The same for `--new-connections`: longer than any timeout, so that each round begins new connections.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(100_000);

/// Returns the order of packets, and which connections are answered, after the first round. Trains and captures have an order of their own, which is kept unless the user asks for another.
pub(super) fn pattern(args: &BenchArgs) -> TrafficPattern {
    let own_order = args.locality || args.pcap.is_some();
    let order = args.order.unwrap_or(if own_order { OrderArg::Creation } else { OrderArg::Random });
    TrafficPattern {
        shuffle: (order == OrderArg::Random).then_some(args.seed),
        answers: match (args.one_way, args.half_replies) {
            (true, _) => Answers::Never,
            (false, true) => Answers::Half,
            (false, false) => Answers::Once,
        },
    }
}

/// Returns the step of the time between rounds.
pub(super) fn step(args: &BenchArgs) -> Duration {
    if args.new_connections { LONGEST_TIMEOUT } else { BETWEEN_ROUNDS }
}

/// Creates an engine with one worker.
pub(super) fn started_alone(
    set: &BenchSet,
    args: &BenchArgs,
) -> anyhow::Result<(Engine, Worker, PolicyLoad)> {
    let (engine, workers, load) = started(set, args)?;
    Ok((engine, workers.into_iter().next().context("the engine has no worker")?, load))
}

/// Creates an engine with the policy in force; returns the cost too.
pub(super) fn started(set: &BenchSet, args: &BenchArgs) -> anyhow::Result<(Engine, Vec<Worker>, PolicyLoad)> {
    let tuning =
        if args.classifier == ClassifierArg::EveryTuple { Tuning::EveryTuple } else { Tuning::Merged };
    let (mut engine, workers) =
        Engine::with_tuning(wire(), usize::from(args.workers), &SeedTree::repeatable(args.seed), tuning);
    let (before, began) = (memory::resident(), Instant::now());
    crate::compile::publish(&mut engine, &set.policy).with_context(|| set.name.clone())?;
    let load = PolicyLoad {
        rules: set.policy.rules.len(),
        tables: engine.tables().len(),
        instructions: engine.instructions(),
        publish: began.elapsed(),
        engine_bytes: memory::resident().saturating_sub(before),
        ..PolicyLoad::default()
    };
    Ok((engine, workers, load))
}

/// Returns two ports that form a wire.
pub(super) fn wire() -> PortTable {
    let ports = [("a", 1), ("b", 0)];
    PortTable(
        ports
            .map(|(name, peer)| PortSpec {
                name: name.into(),
                mtu: None,
                forward: Forward::Wire(PortId(peer)),
            })
            .to_vec(),
    )
}

/// Returns for how long to measure.
pub(super) fn effort(args: &BenchArgs) -> Effort {
    match args.rounds {
        Some(rounds) => Effort::Rounds(rounds.into()),
        None => Effort::Time(Duration::from_secs_f64(args.seconds)),
    }
}
