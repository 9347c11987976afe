//! `mmb replay`: captures through a policy, without DPDK.
//!
//! One engine with one worker stands between two ports, `a` and `b` or those of `--port`. What a port's input holds
//! enters there, in vectors and in the order of time, and what the engine sends leaves through the output of the
//! other port. Files are read and written as streams; memory does not grow with them. Nothing depends on a clock or
//! on chance: the same input and seed give the same bytes.
//!
//! A capture that breaks off is processed as far as it goes; the error comes last, and with exit status 1.

mod files;
mod pump;
mod summary;
mod wiring;

use crate::cli::{Global, ReplayArgs};
use crate::output::Terminal;
use anyhow::Context;
use mmb_client::policy_file;
use mmb_engine::{Engine, Forward, PortSpec, PortTable};
use mmb_packet::PortId;
use mmb_random::SeedTree;
use pump::Pump;
use std::process::ExitCode;
use summary::Summary;
use wiring::ReplayWiring;

/// Runs captures through a policy.
///
/// # Errors
/// A policy or a capture that cannot be used from its beginning, or an output that cannot be written.
pub(crate) fn main(args: &ReplayArgs, global: &Global) -> anyhow::Result<ExitCode> {
    let wiring = ReplayWiring::from_args(args).unwrap_or_else(|message| crate::bad_usage(&message));
    let Some(mut policy) = policy_file::load(&args.rules, global.json, &Terminal)? else {
        return Ok(ExitCode::FAILURE);
    };
    // One capture holds what both ends sent.
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
    let worker = workers.into_iter().next().context("the engine has no worker")?;
    engine.publish(&policy).with_context(|| args.rules.display().to_string())?;

    let streams = files::open(&wiring, &args.rules, policy.rewrites())?;
    let done = Pump::new(worker, streams).run()?;

    let summary = Summary::collect(&done, &engine, &policy);
    summary.print(global.json, wiring.writes_standard_output());
    for note in done.notes() {
        crate::output::complain(&note);
    }
    Ok(if summary.error.is_none() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
