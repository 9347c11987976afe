//! `mmb replay`: captures through a policy, without DPDK.
//!
//! One engine with one worker connects two ports, `a` and `b` or those of `--port`. The packets of a port's input enter
//! there, in vectors and in the order of time, and packets that leave by a port are written to its output. Files are
//! read and written as streams, so that memory does not grow with them. The result depends on no clock and no entropy:
//! the same input and seed give the same bytes.
//!
//! Edits of streams are told one by one in the JSON summary, so that it explains which rule changed which bytes.
//!
//! A damaged capture is processed up to the damage; the error is reported last, with exit status 1.

mod edits;
mod files;
mod pump;
mod summary;
mod wiring;

use crate::cli::{Global, ReplayArgs};
use crate::output::Terminal;
use anyhow::Context;
use mmb_client::policy_file;
use mmb_engine::{AckSpace, Engine, Forward, PortSpec, PortTable};
use mmb_packet::PortId;
use mmb_policy::{Rule, Target};
use mmb_random::SeedTree;
use pump::{Pump, VECTOR_SPAN_NS};
use std::process::ExitCode;
use summary::Summary;
use wiring::ReplayWiring;

/// Runs captures through a policy.
///
/// # Errors
/// A policy or a capture cannot be used at all, or an output cannot be written.
pub(crate) fn main(args: &ReplayArgs, global: &Global) -> anyhow::Result<ExitCode> {
    let wiring = ReplayWiring::from_args(args).unwrap_or_else(|message| crate::cli::bad_usage(&message));
    let Some(mut policy) = policy_file::load(&args.rules, global.json, &Terminal)? else {
        return Ok(ExitCode::FAILURE);
    };
    // A single capture has the packets of both ends.
    policy.settings.connections.same_port |= wiring.is_one_way();
    let ports = PortTable(
        [(0, 1), (1, 0)]
            .map(|(port, peer)| PortSpec {
                name: wiring.names[port].clone(),
                mtu: args.mtu,
                forward: Forward::Wire(PortId(peer)),
            })
            .to_vec(),
    );
    let (mut engine, workers) = Engine::new(ports, 1, &SeedTree::repeatable(args.seed));
    let mut worker = workers.into_iter().next().context("the engine has no worker")?;
    worker.set_ack_space(AckSpace::Original);
    worker.trace_edits(edits::MAX_REPORTED);
    crate::compile::publish(&mut engine, &policy).with_context(|| args.rules.display().to_string())?;

    let streams = files::open(&wiring, &args.rules, policy.rewrites())?;
    let span_ns = if policy.rules.iter().any(asks_each_time) { 0 } else { VECTOR_SPAN_NS };
    let done = Pump::new(worker, streams, span_ns).run()?;

    let summary = Summary::collect(&done, &engine, &policy);
    summary.print(global.json, wiring.writes_standard_output());
    for note in done.notes() {
        crate::output::report_error(&note);
    }
    Ok(if summary.error.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether the time of each packet matters to a rule: for a rate, for that of answers, or since what a helper lets in comes soon behind the command that
/// announces it, which must have been seen.
fn asks_each_time(rule: Rule) -> bool {
    let asks = |target: &Target| matches!(target, Target::Helper(_) | Target::Limit(_) | Target::Reject(_));
    rule.targets.iter().any(asks)
}
