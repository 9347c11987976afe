//! Rounds over all packets, and what they cost.
//!
//! A round takes every packet once. The figure of a stage is the median over the rounds, so that an interrupt or a
//! neighbour on the machine does not get into it. Before the first round one is run that does not count. Packets are
//! made again as they were between rounds, which is not measured.

use super::arena::Arena;
use crate::tsc::Tsc;
use arrayvec::ArrayVec;
use mmb_engine::worker::{Cycles, VECTOR};
use mmb_engine::{DropReason, Engine, Verdict, Worker};
use mmb_io::cycles;
use mmb_packet::Packet;
use std::time::{Duration, Instant};

/// The fewest rounds of which a median is taken.
const FEWEST_ROUNDS: usize = 5;

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effort {
    /// For about so long.
    Time(Duration),
    /// So many rounds.
    Rounds(u64),
}

/// Cycles per packet.
pub(super) struct Result {
    pub(super) tsc_hz: u64,
    /// Distinct packets; each went through once a round.
    pub(super) packets: usize,
    pub(super) rounds: usize,
    /// By stage, in the order of the pipeline, over all packets whether the stage had work with them or not.
    pub(super) stages: Vec<(&'static str, f64)>,
    /// Of all stages and what is between them.
    pub(super) cycles: f64,
}

impl Result {
    /// Millions of packets a second that one worker could do if it did nothing else.
    pub(super) fn mpps(&self) -> f64 {
        self.tsc_hz as f64 / self.cycles.max(f64::MIN_POSITIVE) / 1e6
    }
}

/// Measures. `changes`: the policy may change packets.
pub(super) fn run(
    engine: &Engine,
    mut worker: Worker,
    mut arena: Arena,
    changes: bool,
    effort: Effort,
) -> Result {
    arena.restore();
    round(&mut worker, &mut arena);
    let names: Vec<&'static str> = engine.stage_counts().iter().map(|stage| stage.name).collect();
    let mut by_stage: Vec<Vec<u64>> = vec![Vec::new(); names.len()];
    let mut totals = Vec::new();
    let began = Instant::now();
    while goes_on(effort, totals.len(), began) {
        if changes {
            arena.restore();
        }
        let before = engine.stage_counts();
        totals.push(round(&mut worker, &mut arena));
        for ((cycles, now), before) in by_stage.iter_mut().zip(engine.stage_counts()).zip(before) {
            cycles.push(now.cycles.wrapping_sub(before.cycles));
        }
    }
    let packets = arena.len();
    let per_packet = |cycles: &mut Vec<u64>| median(cycles) as f64 / packets as f64;
    Result {
        tsc_hz: cycles::hz(),
        packets,
        rounds: totals.len(),
        stages: names.into_iter().zip(by_stage.iter_mut().map(per_packet)).collect(),
        cycles: per_packet(&mut totals),
    }
}

fn goes_on(effort: Effort, rounds: usize, began: Instant) -> bool {
    match effort {
        Effort::Rounds(wanted) => (rounds as u64) < wanted.max(1),
        Effort::Time(time) => rounds < FEWEST_ROUNDS || began.elapsed() < time,
    }
}

/// Takes every packet once; returns the cycles inside the engine.
fn round(worker: &mut Worker, arena: &mut Arena) -> u64 {
    let mut spent = 0;
    let mut verdicts = [Verdict::Drop(DropReason::NoBuffer); VECTOR];
    let mut packets = arena.packets();
    loop {
        let mut vector: ArrayVec<Packet<'_>, VECTOR> = packets.by_ref().take(VECTOR).collect();
        if vector.is_empty() {
            return spent;
        }
        let begin = Tsc.now();
        worker.process(0, &Tsc, &mut vector, &mut verdicts);
        spent += Tsc.now().wrapping_sub(begin);
    }
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}
