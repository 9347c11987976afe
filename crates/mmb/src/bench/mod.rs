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
mod setup;
mod source;
mod streams;
mod updates;

use crate::cli::{BenchArgs, ClassifierArg, Global, WorkloadArg};
use linear::Linear;
use measure::MeasuredPipeline;
use report::{BenchReport, PolicyLoad};
use setup::{effort, pattern, started_alone, step};
use source::BenchSet;
use std::process::ExitCode;

/// The fewest packets to generate: more than caches and branch predictors can hold.
const MIN_GENERATED: u32 = 65_536;
/// The most rules for the linear baseline: with more, a measurement takes minutes and gives no new information.
const MAX_LINEAR_RULES: usize = 10_000;

/// Measures a policy.
///
/// # Errors
/// A policy, a set or a capture cannot be used.
pub(crate) fn main(args: &BenchArgs, global: &Global) -> anyhow::Result<ExitCode> {
    let writes = args.write_rules.is_some() || args.write_pcap.is_some();
    if args.pcap.is_none() && !writes && args.packets < MIN_GENERATED {
        crate::cli::bad_usage(&format!("fewer than {MIN_GENERATED} generated packets would measure caches"));
    }
    if !(args.seconds > 0.0 && args.seconds <= 3600.0) {
        crate::cli::bad_usage("--seconds takes a time above 0, of at most an hour");
    }
    if args.workers > 1 && args.classifier == ClassifierArg::Linear {
        crate::cli::bad_usage("--workers needs a classifier of the engine's, which the linear one is not");
    }
    if args.flow_cache && args.classifier == ClassifierArg::Linear {
        crate::cli::bad_usage("--flow-cache needs a classifier of the engine's, which the linear one is not");
    }
    if args.updates && args.classifier == ClassifierArg::Linear {
        crate::cli::bad_usage(
            "--updates needs a classifier that is changed rule by rule, which the linear one is not",
        );
    }
    if args.source.workload == Some(WorkloadArg::Streams) {
        streams::main(args, global)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.flows.is_some() || args.only.is_some() {
        crate::cli::bad_usage("--flows and --only are for --workload streams");
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
            anyhow::ensure!(
                rules <= MAX_LINEAR_RULES,
                "{rules} rules are too many to compare with every packet"
            );
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
