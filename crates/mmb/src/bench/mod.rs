//! `mmb bench`: what a policy costs, in cycles per packet and stage.
//!
//! Packets lie in memory ([`arena`]), generated ([`generate`]) or read from a capture. They go through one worker in
//! vectors, round after round over all of them, and the worker's own stage counters are read after each round
//! ([`measure`]). No port is opened: receiving and sending are not in the figures.

mod arena;
mod generate;
mod measure;

use crate::cli::{BenchArgs, Global};
use crate::{output, policy_file};
use anyhow::{Context, bail, ensure};
use arena::Arena;
use measure::{Effort, Result};
use mmb_engine::worker::VECTOR;
use mmb_engine::{Engine, PortSpec, PortTable};
use mmb_io::pcap::{CaptureReader, Item};
use mmb_packet::PortId;
use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// The fewest packets that are generated: more than caches and branch predictors can learn by heart.
const FEWEST_GENERATED: u32 = 65_536;

/// Measures a policy.
///
/// # Errors
/// A policy or a capture that cannot be used.
pub(crate) fn main(args: &BenchArgs, global: &Global) -> anyhow::Result<ExitCode> {
    if args.pcap.is_none() && args.packets < FEWEST_GENERATED {
        crate::bad_usage(&format!("fewer than {FEWEST_GENERATED} generated packets would measure caches"));
    }
    if !(args.seconds > 0.0 && args.seconds <= 3600.0) {
        crate::bad_usage("--seconds takes a time above 0, of at most an hour");
    }
    let Some(policy) = policy_file::load(&args.rules, global)? else {
        return Ok(ExitCode::FAILURE);
    };
    let ports = PortTable(
        [("a", 1), ("b", 0)]
            .map(|(name, peer)| PortSpec { name: name.into(), mtu: None, peer: Some(PortId(peer)) })
            .to_vec(),
    );
    let (mut engine, workers) = Engine::new(ports, 1, args.seed);
    let worker = workers.into_iter().next().context("the engine has no worker")?;
    engine.publish(&policy).with_context(|| args.rules.display().to_string())?;
    let arena = match &args.pcap {
        None => generate::packets(args.packets, args.traffic, args.seed),
        Some(path) => captured(path, args.packets).with_context(|| path.display().to_string())?,
    };
    let effort = match args.rounds {
        Some(rounds) => Effort::Rounds(rounds.into()),
        None => Effort::Time(Duration::from_secs_f64(args.seconds)),
    };
    let result = measure::run(&engine, worker, arena, policy_file::rewrites(&policy), effort);
    if global.json {
        output::print_json(&as_json(&result));
    } else {
        output::print(&as_text(&result));
    }
    Ok(ExitCode::SUCCESS)
}

/// The first packets of a capture.
fn captured(path: &Path, most: u32) -> anyhow::Result<Arena> {
    let mut reader = CaptureReader::open(File::open(path)?)?;
    let mut arena = Arena::default();
    loop {
        match reader.next_item() {
            Ok(Some(Item::Packet(packet))) => arena.push(packet.data, packet.meta.link),
            Ok(Some(Item::Block(_))) => {}
            Ok(None) => break,
            // What is before the damage is as good to measure with as any capture.
            Err(error) if arena.len() > 0 => {
                output::complain(&format!("{}: note: {error}", path.display()));
                break;
            }
            Err(error) => bail!(error),
        }
        if arena.len() == most as usize {
            break;
        }
    }
    ensure!(arena.len() > 0, "it holds no packets");
    Ok(arena)
}

fn as_json(result: &Result) -> serde_json::Value {
    let stages = result
        .stages
        .iter()
        .map(|(name, cycles)| serde_json::json!({ "name": name, "cycles_per_packet": rounded(*cycles) }));
    serde_json::json!({
        "tsc_hz": result.tsc_hz,
        "vector": VECTOR,
        "packets": result.packets,
        "rounds": result.rounds,
        "stages": stages.collect::<Vec<_>>(),
        "cycles_per_packet": rounded(result.cycles),
        "mpps": (result.mpps() * 1000.0).round() / 1000.0,
    })
}

fn as_text(result: &Result) -> String {
    let mut text = format!(
        "{} packets, {} rounds in vectors of {VECTOR}; cycles of {:.3} GHz\n",
        result.packets,
        result.rounds,
        result.tsc_hz as f64 / 1e9
    );
    for (name, cycles) in &result.stages {
        text += &format!("{name:<14}{cycles:>10.1} cycles per packet\n");
    }
    text + &format!("{:<14}{:>10.1} cycles per packet, {:.2} Mpps\n", "all", result.cycles, result.mpps())
}

fn rounded(cycles: f64) -> f64 {
    (cycles * 100.0).round() / 100.0
}
