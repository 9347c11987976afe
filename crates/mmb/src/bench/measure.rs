//! Rounds over all packets, and what they cost.
//!
//! A round takes every packet once, in vectors. What a vector costs is the median over the rounds, so that neither an
//! interrupt nor a neighbour on the machine gets into it, and the figures are the sums over all vectors. Before the
//! first round one is run that does not count. Packets are made again as they were between rounds, which is not
//! measured.

use super::arena::Arena;
use crate::tsc::Tsc;
use mmb_engine::{Cycles, VECTOR};
use mmb_engine::{DropReason, Engine, StageCount, Verdict, Worker};
use mmb_io::cycles;
use mmb_packet::{Packet, PortId};
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

/// Something that takes vectors of packets, in stages.
pub(super) trait Stages {
    /// What the stages are called.
    fn names(&self) -> Vec<&'static str>;

    /// A round begins.
    fn begin(&mut self) {}

    /// Takes what became of a vector as the other ends would answer it.
    fn answer(&mut self, _packets: &mut [Packet<'_>]) {}

    /// Takes a vector; `spent` gets the cycles of each stage. Returns those of the whole.
    fn take(&mut self, packets: &mut [Packet<'_>], spent: &mut [u64]) -> u64;
}

/// Cycles per packet.
pub(super) struct Measured {
    pub(super) tsc_hz: u64,
    /// Packets of a round.
    pub(super) packets: usize,
    pub(super) rounds: usize,
    /// Packets of all rounds, those that did not count as well.
    pub(super) taken: usize,
    /// Of each stage: over all packets, whether the stage had work with them or not.
    pub(super) stages: Vec<(&'static str, f64)>,
    /// Of all stages and what is between them.
    pub(super) cycles: f64,
}

impl Measured {
    /// Millions of packets a second that one worker could do if it did nothing else.
    pub(super) fn mpps(&self) -> f64 {
        self.tsc_hz as f64 / self.cycles.max(f64::MIN_POSITIVE) / 1e6
    }
}

/// Measures. `changes`: packets may be changed on the way.
pub(super) fn run(subject: &mut impl Stages, arena: &mut Arena, changes: bool, effort: Effort) -> Measured {
    let names = subject.names();
    let vectors = arena.len().div_ceil(VECTOR);
    let mut stages = vec![Samples::new(vectors); names.len()];
    let mut all = Samples::new(vectors);
    arena.restore();
    round(subject, arena, names.len(), |_, _, _| ());
    arena.vectors(|packets| subject.answer(packets));
    arena.restore();
    let (mut rounds, began) = (0, Instant::now());
    while goes_on(effort, rounds, began) {
        if changes {
            arena.restore();
        }
        round(subject, arena, names.len(), |vector, spent, whole| {
            all.0[vector].push(whole);
            stages.iter_mut().zip(spent).for_each(|(stage, &spent)| stage.0[vector].push(spent));
        });
        rounds += 1;
    }
    let per_packet = |samples: &mut Samples| samples.sum_of_medians() as f64 / arena.len() as f64;
    Measured {
        tsc_hz: cycles::hz(),
        packets: arena.len(),
        rounds,
        taken: arena.len() * (rounds + 1),
        stages: names.into_iter().zip(stages.iter_mut().map(per_packet)).collect(),
        cycles: per_packet(&mut all),
    }
}

fn goes_on(effort: Effort, rounds: usize, began: Instant) -> bool {
    match effort {
        Effort::Rounds(wanted) => rounds < wanted.clamp(1, MOST_ROUNDS),
        Effort::Time(time) => rounds < FEWEST_ROUNDS || rounds < MOST_ROUNDS && began.elapsed() < time,
    }
}

/// Takes every packet once; `note` gets the vector's number and what it has cost.
fn round(
    subject: &mut impl Stages,
    arena: &mut Arena,
    stages: usize,
    mut note: impl FnMut(usize, &[u64], u64),
) {
    subject.begin();
    let (mut spent, mut number) = (vec![0; stages], 0);
    arena.vectors(|packets| {
        let whole = subject.take(packets, &mut spent);
        note(number, &spent, whole);
        number += 1;
    });
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

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// The engine with one worker.
pub(super) struct MeasuredPipeline<'a> {
    engine: &'a Engine,
    worker: Worker,
    verdicts: [Verdict; VECTOR],
    before: Vec<StageCount>,
    /// The engine's time, and how far it goes on between rounds.
    now_ns: u64,
    step_ns: u64,
}

impl<'a> MeasuredPipeline<'a> {
    /// The pipeline of an engine's only worker. `step`: the time goes on by so much between rounds.
    pub(super) fn new(engine: &'a Engine, worker: Worker, step: Duration) -> MeasuredPipeline<'a> {
        let verdicts = [Verdict::Drop(DropReason::NoBuffer); VECTOR];
        let step_ns = step.as_nanos() as u64;
        MeasuredPipeline { engine, worker, verdicts, before: engine.stage_counts(), now_ns: 0, step_ns }
    }
}

impl Stages for MeasuredPipeline<'_> {
    fn names(&self) -> Vec<&'static str> {
        self.before.iter().map(|stage| stage.name).collect()
    }

    fn begin(&mut self) {
        self.now_ns += self.step_ns;
    }

    fn answer(&mut self, packets: &mut [Packet<'_>]) {
        if self.engine.connections().summary().connections == 0 {
            return;
        }
        packets.iter_mut().for_each(turn);
        self.worker.process(self.now_ns, &Tsc, packets, &mut self.verdicts);
        self.before = self.engine.stage_counts();
    }

    fn take(&mut self, packets: &mut [Packet<'_>], spent: &mut [u64]) -> u64 {
        let begin = Tsc.now();
        self.worker.process(self.now_ns, &Tsc, packets, &mut self.verdicts);
        let whole = Tsc.now().wrapping_sub(begin);
        let now = self.engine.stage_counts();
        for ((spent, now), before) in spent.iter_mut().zip(&now).zip(&self.before) {
            *spent = now.cycles.wrapping_sub(before.cycles);
        }
        self.before = now;
        whole
    }
}

/// Makes a plain packet of UDP or TCP one that answers it: ends are changed for each other, which no checksum minds.
pub(super) fn turn(packet: &mut Packet<'_>) {
    const ETHERNET: usize = 14;
    packet.port = PortId(1);
    let bytes = packet.bytes_mut();
    let (addresses, length, ports) = match bytes.get(ETHERNET).map(|byte| byte >> 4) {
        Some(4) => (ETHERNET + 12, 4, ETHERNET + 20),
        Some(6) => (ETHERNET + 8, 16, ETHERNET + 40),
        _ => return,
    };
    for (at, length) in [(addresses, length), (ports, 2)] {
        if let Some(ends) = bytes.get_mut(at..at + 2 * length) {
            ends.rotate_left(length);
        }
    }
}
