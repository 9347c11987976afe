//! `mmb bench --workload streams`: the cost of rules on the bytes of TCP connections.
//!
//! Constant packets, as the other sets have them, are no streams: their sequence numbers would stand still. Here connections send
//! ([`traffic`]), and each of several policies ([`chain`]) processes the same packets. All packets must pass. With several workers, each has
//! connections of its own ([`workers`]). What the figures exclude is what [`super`] excludes.

mod chain;
mod plan;
mod report;
mod traffic;
mod workers;

use super::setup::effort;
use crate::cli::{BenchArgs, ClassifierArg, Global};
use anyhow::Context;
use plan::Plan;
use report::{MeasuredChain, StreamReport};

/// Connections, unless the command line says how many.
const FLOWS: u32 = 1000;
/// Idle connections for each connection that sends.
const IDLE: usize = 100;
/// The most idle connections.
const MAX_IDLE: usize = 100_000;
/// Measures every policy.
///
/// # Errors
/// A policy cannot be used, or a packet does not pass.
pub(super) fn main(args: &BenchArgs, global: &Global) -> anyhow::Result<()> {
    refuse_others(args);
    let count = args.flows.unwrap_or(FLOWS) as usize;
    let plan = Plan::new(count, args.seed);
    let only = args.only.as_deref().unwrap_or_default();
    if args.workers > 1 {
        let report = workers::run(&plan, only, usize::from(args.workers), effort(args))?;
        super::report::show(global, &report);
        return Ok(());
    }
    let is_known = |name: &str| name.contains(only);
    if !report::IDLE.contains(only) && !chain::CHAINS.iter().any(|chain| is_known(chain.name)) {
        crate::cli::bad_usage(&format!("no row has '{only}' in its name"));
    }
    let mut chains = Vec::new();
    let mut instructions = "";
    for chain in chain::CHAINS.iter().filter(|chain| chain.name.contains(only)) {
        let (engine, worker) = plan.start_alone(chain, count)?;
        if !engine.instructions().is_empty() {
            instructions = engine.instructions();
        }
        let measured = plan.measure(chain, &engine, worker, effort(args)).context(chain.name)?;
        chains.push(MeasuredChain { chain, measured });
    }
    let idle = match report::IDLE.contains(only) {
        true => Some(plan.idle((count * IDLE).min(MAX_IDLE))?),
        false => None,
    };
    let payload = plan.text.len();
    super::report::show(global, &StreamReport { flows: count, payload, instructions, chains, idle });
    Ok(())
}

/// Ends the program if there are options that these packets do not have.
fn refuse_others(args: &BenchArgs) {
    let others = [
        (args.size.is_some(), "--size"),
        (args.tuples.is_some(), "--tuples"),
        (args.distinct_prio, "--distinct-prio"),
        (args.pcap.is_some(), "--pcap"),
        (args.traffic.is_some(), "--traffic"),
        (args.hit.is_some(), "--hit"),
        (!args.with.is_empty(), "--with"),
        (args.locality, "--locality"),
        (args.zipf.is_some(), "--zipf"),
        (args.order.is_some(), "--order"),
        (args.one_way, "--one-way"),
        (args.half_replies, "--half-replies"),
        (args.new_connections, "--new-connections"),
        (args.classifier != ClassifierArg::Merged, "--classifier"),
        (args.updates, "--updates"),
        (args.write_rules.is_some(), "--write-rules"),
        (args.write_pcap.is_some(), "--write-pcap"),
    ];
    if let Some((_, name)) = others.into_iter().find(|(is_given, _)| *is_given) {
        crate::cli::bad_usage(&format!(
            "--workload streams has rules and packets of its own: leave out {name}"
        ));
    }
}
