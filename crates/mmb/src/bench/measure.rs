//! Rounds over all packets, and what they cost.
//!
//! A round takes every packet once, in vectors. What a vector costs is the median over the rounds, so that neither an
//! interrupt nor a neighbour on the machine gets into it, and the figures are the sums over all vectors. Before the
//! first round one is run that does not count. Packets are made again as they were between rounds, which is not
//! measured.

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
/// More do not make a median better.
const MOST_ROUNDS: usize = 1000;

/// How much to measure.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effort {
    /// For about so long.
    Time(Duration),
    /// So many rounds.
    Rounds(usize),
}

/// Cycles per packet.
pub(super) struct Result {
    pub(super) tsc_hz: u64,
    /// Packets of a round.
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
    worker: Worker,
    mut arena: Arena,
    changes: bool,
    effort: Effort,
) -> Result {
    let names: Vec<&'static str> = engine.stage_counts().iter().map(|stage| stage.name).collect();
    let vectors = arena.len().div_ceil(VECTOR);
    let mut meter = Meter {
        engine,
        worker,
        stages: vec![Samples::new(vectors); names.len()],
        all: Samples::new(vectors),
    };
    arena.restore();
    meter.round(&mut arena, false);
    let (mut rounds, began) = (0, Instant::now());
    while goes_on(effort, rounds, began) {
        if changes {
            arena.restore();
        }
        meter.round(&mut arena, true);
        rounds += 1;
    }
    let per_packet = |samples: &mut Samples| samples.sum_of_medians() as f64 / arena.len() as f64;
    Result {
        tsc_hz: cycles::hz(),
        packets: arena.len(),
        rounds,
        stages: names.into_iter().zip(meter.stages.iter_mut().map(per_packet)).collect(),
        cycles: per_packet(&mut meter.all),
    }
}

fn goes_on(effort: Effort, rounds: usize, began: Instant) -> bool {
    match effort {
        Effort::Rounds(wanted) => rounds < wanted.clamp(1, MOST_ROUNDS),
        Effort::Time(time) => rounds < FEWEST_ROUNDS || rounds < MOST_ROUNDS && began.elapsed() < time,
    }
}

/// What each vector has cost in each round.
#[derive(Clone)]
struct Samples(Vec<Vec<u64>>);

impl Samples {
    fn new(vectors: usize) -> Samples {
        Samples(vec![Vec::new(); vectors])
    }

    fn sum_of_medians(&mut self) -> u64 {
        self.0.iter_mut().map(|costs| median(costs)).sum()
    }
}

/// The worker that is measured, and what has been measured.
struct Meter<'a> {
    engine: &'a Engine,
    worker: Worker,
    /// By stage.
    stages: Vec<Samples>,
    all: Samples,
}

impl Meter<'_> {
    /// Takes every packet once.
    fn round(&mut self, arena: &mut Arena, counts: bool) {
        let mut verdicts = [Verdict::Drop(DropReason::NoBuffer); VECTOR];
        let mut packets = arena.packets();
        let mut before = self.engine.stage_counts();
        for number in 0.. {
            let mut vector: ArrayVec<Packet<'_>, VECTOR> = packets.by_ref().take(VECTOR).collect();
            if vector.is_empty() {
                return;
            }
            let begin = Tsc.now();
            self.worker.process(0, &Tsc, &mut vector, &mut verdicts);
            let spent = Tsc.now().wrapping_sub(begin);
            let now = self.engine.stage_counts();
            if counts {
                self.all.0[number].push(spent);
                for ((stage, now), before) in self.stages.iter_mut().zip(&now).zip(&before) {
                    stage.0[number].push(now.cycles.wrapping_sub(before.cycles));
                }
            }
            before = now;
        }
    }
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}
