//! `mmb bench`: the cost of a policy, in cycles per packet and stage.
//!
//! Rules come from a file or are generated, and so do packets ([`source`]). The packets are in memory ([`arena`]), and one worker processes
//! them in vectors, in rounds over all of them; the stages' counters tell the cost of each ([`measure`]). [`linear`] is a baseline without an
//! index. [`updates`] changes the policy at the same time, [`scaling`] measures several workers, [`streams`] has rules and packets of its
//! own. No port is opened: the figures exclude reception and transmission.

mod arena;
mod bench_worker;
mod linear;
mod measure;
mod memory;
mod report;
mod scaling;
mod source;
mod streams;
mod updates;

use crate::cli::{BenchArgs, ClassifierArg, Global, OrderArg, WorkloadArg};
use anyhow::Context;
use linear::Linear;
use measure::{Answers, Effort, MeasuredPipeline, TrafficPattern};
use mmb_classify::Tuning;
use mmb_engine::{Engine, Forward, PortSpec, PortTable, Worker};
use mmb_packet::PortId;
use mmb_random::SeedTree;
use report::{BenchReport, PolicyLoad};
use source::BenchSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// The fewest packets to generate: more than caches and branch predictors can hold.
const FEWEST_GENERATED: u32 = 65_536;
/// The most rules for the linear baseline: with more, a measurement takes minutes and gives no new information.
const MOST_LINEAR: usize = 10_000;

/// The engine's time between rounds: shorter than any timeout, or longer than all of them.
const BETWEEN_ROUNDS: Duration = Duration::from_millis(10);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(100_000);

/// Measures a policy.
///
/// # Errors
/// A policy, a set or a capture cannot be used.
pub(crate) fn main(args: &BenchArgs, global: &Global) -> anyhow::Result<ExitCode> {
    let writes = args.write_rules.is_some() || args.write_pcap.is_some();
    if args.pcap.is_none() && !writes && args.packets < FEWEST_GENERATED {
        crate::bad_usage(&format!("fewer than {FEWEST_GENERATED} generated packets would measure caches"));
    }
    if !(args.seconds > 0.0 && args.seconds <= 3600.0) {
        crate::bad_usage("--seconds takes a time above 0, of at most an hour");
    }
    if args.workers > 1 && args.classifier == ClassifierArg::Linear {
        crate::bad_usage("--workers needs a classifier of the engine's, which the linear one is not");
    }
    if args.flow_cache && args.classifier == ClassifierArg::Linear {
        crate::bad_usage("--flow-cache needs a classifier of the engine's, which the linear one is not");
    }
    if args.updates && args.classifier == ClassifierArg::Linear {
        crate::bad_usage(
            "--updates needs a classifier that is changed rule by rule, which the linear one is not",
        );
    }
    if args.source.workload == Some(WorkloadArg::Streams) {
        streams::main(args, global)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.flows.is_some() || args.only.is_some() {
        crate::bad_usage("--flows and --only are for --workload streams");
    }
    let before = memory::resident();
    let Some(set) = BenchSet::load(args, global)? else {
        return Ok(ExitCode::FAILURE);
    };
    if writes {
        set.write(args)?;
        return Ok(ExitCode::SUCCESS);
    }
    let policy_bytes = memory::resident().saturating_sub(before);
    let report = match args.classifier {
        ClassifierArg::Linear => {
            let rules = set.policy.rules.len();
            anyhow::ensure!(rules <= MOST_LINEAR, "{rules} rules are too many to compare with every packet");
            let mut linear = Linear::new(&set.policy)?;
            let measured = measure::run(
                &mut linear,
                &mut set.packets(args)?,
                pattern(args),
                set.policy.rewrites(),
                effort(args),
            );
            let matches = linear.matches_per_packet();
            BenchReport {
                load: PolicyLoad { rules, policy_bytes, ..PolicyLoad::default() },
                measured,
                matches,
                flow_cache: None,
            }
        }
        ClassifierArg::Merged | ClassifierArg::EveryTuple if args.updates => {
            let (engine, worker, _) = started_alone(&set, args)?;
            let report = updates::run(&set, engine, worker, set.packets(args)?, args)?;
            report::show(global, &report);
            return Ok(ExitCode::SUCCESS);
        }
        ClassifierArg::Merged | ClassifierArg::EveryTuple if args.workers > 1 => {
            report::show(global, &scaling::run(&set, args)?);
            return Ok(ExitCode::SUCCESS);
        }
        ClassifierArg::Merged | ClassifierArg::EveryTuple => {
            let (engine, worker, load) = started_alone(&set, args)?;
            let mut pipeline = MeasuredPipeline::new(&engine, worker, step(args));
            let measured = measure::run(
                &mut pipeline,
                &mut set.packets(args)?,
                pattern(args),
                set.policy.rewrites(),
                effort(args),
            );
            pipeline.fold_counters();
            let matched: u64 = set.policy.rules.keys().map(|id| engine.rule_count(id).matched.packets).sum();
            let matches = matched as f64 / measured.taken.max(1) as f64;
            let flow_cache = args.flow_cache.then(|| engine.flow_cache_count());
            BenchReport { load: PolicyLoad { policy_bytes, ..load }, measured, matches, flow_cache }
        }
    };
    report::show(global, &report);
    Ok(ExitCode::SUCCESS)
}

/// Returns what follows the first round. Trains and captures have an order of their own, which is kept unless the user asks for another.
fn pattern(args: &BenchArgs) -> TrafficPattern {
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
fn step(args: &BenchArgs) -> Duration {
    if args.new_connections { LONGEST_TIMEOUT } else { BETWEEN_ROUNDS }
}

/// Creates an engine with one worker.
fn started_alone(set: &BenchSet, args: &BenchArgs) -> anyhow::Result<(Engine, Worker, PolicyLoad)> {
    let (engine, workers, load) = started(set, args)?;
    Ok((engine, workers.into_iter().next().context("the engine has no worker")?, load))
}

/// Creates an engine with the policy in force; returns the cost too.
fn started(set: &BenchSet, args: &BenchArgs) -> anyhow::Result<(Engine, Vec<Worker>, PolicyLoad)> {
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
fn wire() -> PortTable {
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

fn effort(args: &BenchArgs) -> Effort {
    match args.rounds {
        Some(rounds) => Effort::Rounds(rounds.into()),
        None => Effort::Time(Duration::from_secs_f64(args.seconds)),
    }
}
