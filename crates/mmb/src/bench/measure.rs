//! Rounds over all packets, and their cost.
//!
//! A round processes every packet once, in vectors. The cost of a vector is the median over the rounds, which excludes interrupts and other
//! load of the machine, and the figures are the sums over all vectors. A round before the first one is not counted. The packets' original
//! bytes are restored between rounds, which is not measured.

use super::arena::Arena;
use crate::tsc::Tsc;
use mmb_engine::{Cycles, VECTOR};
use mmb_engine::{DropReason, Engine, StageCount, Verdict, Worker};
use mmb_io::cycles;
use mmb_packet::{Packet, PortId};
use std::time::{Duration, Instant};

/// The fewest rounds for a median.
const FEWEST_ROUNDS: usize = 5;
/// The most rounds: more do not improve the median.
const MOST_ROUNDS: usize = 1000;

/// The extent of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effort {
    /// An approximate time.
    Time(Duration),
    /// A number of rounds.
    Rounds(usize),
}

/// A processor of vectors of packets, in stages.
pub(super) trait Stages {
    /// Returns the names of the stages.
    fn names(&self) -> Vec<&'static str>;

    /// Begins a round.
    fn begin(&mut self) {}

    /// Processes the answers of the other ends to a vector.
    fn answer(&mut self, _packets: &mut [Packet<'_>]) {}

    /// Processes a vector; `spent` gets the cycles of each stage. Returns the total.
    fn take(&mut self, packets: &mut [Packet<'_>], spent: &mut [u64]) -> u64;
}

/// Cycles per packet.
pub(super) struct Measured {
    pub(super) tsc_hz: u64,
    /// Packets of a round.
    pub(super) packets: usize,
    pub(super) rounds: usize,
    /// Packets of all rounds, also of those that are not counted.
    pub(super) taken: usize,
    /// Cycles of each stage, per packet of all packets, whether the stage processes them or not.
    pub(super) stages: Vec<(&'static str, f64)>,
    /// Cycles of all stages and of the code between them.
    pub(super) cycles: f64,
}

impl Measured {
    /// Returns the millions of packets per second of one worker that does nothing else.
    pub(super) fn mpps(&self) -> f64 {
        self.tsc_hz as f64 / self.cycles.max(f64::MIN_POSITIVE) / 1e6
    }
}

/// Measures a processor. `changes`: it may change packets.
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

/// Processes every packet once; `note` gets the index and the cost of each vector.
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

/// The cost of each vector in each round.
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
    /// The engine's time, and its step between rounds.
    now_ns: u64,
    step_ns: u64,
}

impl<'a> MeasuredPipeline<'a> {
    /// Creates the pipeline of an engine's only worker. The time advances by `step` between rounds.
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

/// Turns a plain packet of UDP or TCP into its answer: source and destination are exchanged, which keeps the checksums.
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
