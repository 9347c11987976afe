//! Rounds over all packets, and their cost.
//!
//! A round processes every packet once, in vectors. The cost of a vector is the median over the rounds, which excludes interrupts and other
//! load of the machine, and the figures are the sums over all vectors. A round before the first one is not counted. The packets' original
//! bytes are restored between rounds, which is not measured.

use super::arena::Arena;
use super::bench_worker::BenchWorker;
use mmb_engine::{Engine, StageCount, VECTOR, Verdict, Worker};
use mmb_io::cycles;
use mmb_packet::{Packet, PortId};
use mmb_random::RepeatableRandom;
use std::time::{Duration, Instant};

/// The fewest rounds for a median.
const MIN_ROUNDS: usize = 5;
/// The port of the other ends.
const PEER: PortId = PortId(1);
/// The most rounds: more do not improve the median.
const MAX_ROUNDS: usize = 1000;

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

    /// Tells whether there are connections, whose other ends may answer.
    fn has_connections(&self) -> bool {
        false
    }

    /// Processes the answers of the other ends, a vector of them.
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
    /// The cost of a vector in cycles: of the median one, and of the most expensive one.
    pub(super) median_vector: u64,
    pub(super) worst_vector: u64,
    /// The cost in cycles of the most expensive vector of the first round, in which tables grow; 0 if it was not measured.
    pub(super) worst_first: u64,
}

impl Measured {
    /// Returns the cycles for each byte of a round's payload.
    pub(super) fn cycles_per_byte(&self, payload: usize) -> f64 {
        self.cycles * self.packets as f64 / payload.max(1) as f64
    }

    /// Returns the gigabits of payload per second of one worker that does nothing else; a round has `payload` bytes.
    pub(super) fn gbit_s(&self, payload: usize) -> f64 {
        self.tsc_hz as f64 * 8.0 / self.cycles_per_byte(payload).max(f64::MIN_POSITIVE) / 1e9
    }

    /// Returns the millions of packets per second of one worker that does nothing else.
    pub(super) fn mpps(&self) -> f64 {
        self.tsc_hz as f64 / self.cycles.max(f64::MIN_POSITIVE) / 1e6
    }

    /// Microseconds of the most expensive vector of the first round.
    pub(super) fn worst_first_us(&self) -> f64 {
        self.worst_first as f64 / self.tsc_hz as f64 * 1e6
    }
}

/// What follows the first round, which creates the connections.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrafficPattern {
    /// The seed of the order of the measured rounds; without one, they have the order of the first round.
    pub(super) shuffle: Option<u64>,
    pub(super) answers: Answers,
}

/// The packets of the other ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// None.
    Never,
    /// One for each packet of the first round, before the measurement.
    Once,
    /// The same, and every second packet of the measured rounds is such an answer.
    Half,
}

impl TrafficPattern {
    /// Answers the packets of the first round, which the arena holds as the processor left them, and prepares those of the measured rounds.
    pub(super) fn prepare(
        self,
        arena: &mut Arena,
        has_connections: bool,
        mut answer: impl FnMut(&mut [Packet<'_>]),
    ) {
        if has_connections && self.answers != Answers::Never {
            arena.vectors(|packets| packets.iter_mut().for_each(turn));
            if self.answers == Answers::Half {
                arena.keep_every_second(PEER);
            }
            arena.vectors(|packets| {
                packets.iter_mut().for_each(|packet| packet.port = PEER);
                answer(packets);
            });
        }
        if let Some(seed) = self.shuffle {
            arena.shuffle(&mut RepeatableRandom::for_purpose(seed, "order"));
        }
        arena.restore();
    }
}

/// Measures a processor. `changes`: it may change packets.
pub(super) fn run(
    subject: &mut impl Stages,
    arena: &mut Arena,
    pattern: TrafficPattern,
    changes: bool,
    effort: Effort,
) -> Measured {
    let names = subject.names();
    let stages = names.len();
    arena.restore();
    let mut worst_first = 0;
    round(subject, arena, stages, |_, _, whole| worst_first = worst_first.max(whole));
    pattern.prepare(arena, subject.has_connections(), |packets| subject.answer(packets));
    let mut recorder = Recorder::new(names, arena.len());
    while recorder.goes_on(effort) {
        if changes {
            arena.restore();
        }
        round(subject, arena, stages, |vector, spent, whole| recorder.note(vector, spent, whole));
        recorder.rounds += 1;
    }
    Measured { worst_first, ..recorder.finish() }
}

/// The cost of the vectors of the measured rounds.
pub(super) struct Recorder {
    names: Vec<&'static str>,
    stages: Vec<Samples>,
    all: Samples,
    /// Packets of a round.
    packets: usize,
    /// Complete rounds.
    pub(super) rounds: usize,
    began: Instant,
}

impl Recorder {
    /// Begins a measurement of stages with these names.
    pub(super) fn new(names: Vec<&'static str>, packets: usize) -> Recorder {
        let all = Samples::new(packets.div_ceil(VECTOR));
        let stages = vec![all.clone(); names.len()];
        Recorder { names, stages, all, packets, rounds: 0, began: Instant::now() }
    }

    /// Tells whether another round is due.
    pub(super) fn goes_on(&self, effort: Effort) -> bool {
        let rounds = self.rounds;
        match effort {
            Effort::Rounds(wanted) => rounds < wanted.clamp(1, MAX_ROUNDS),
            Effort::Time(time) => rounds < MIN_ROUNDS || rounds < MAX_ROUNDS && self.began.elapsed() < time,
        }
    }

    /// Records the cost of a vector: of its stages, and of all.
    pub(super) fn note(&mut self, vector: usize, spent: &[u64], whole: u64) {
        self.all.0[vector].push(whole);
        self.stages.iter_mut().zip(spent).for_each(|(stage, &spent)| stage.0[vector].push(spent));
    }

    /// Returns the medians.
    pub(super) fn finish(mut self) -> Measured {
        let Recorder { packets, rounds, .. } = self;
        let per_packet =
            |samples: &mut Samples| samples.medians().iter().sum::<u64>() as f64 / packets as f64;
        let mut vectors = self.all.medians();
        Measured {
            tsc_hz: cycles::hz(),
            packets,
            rounds,
            taken: packets * (rounds + 1),
            stages: self.names.into_iter().zip(self.stages.iter_mut().map(per_packet)).collect(),
            cycles: per_packet(&mut self.all),
            worst_vector: vectors.iter().copied().max().unwrap_or_default(),
            median_vector: median(&mut vectors),
            worst_first: 0,
        }
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

    /// The cost of each vector: the median over the rounds.
    fn medians(&mut self) -> Vec<u64> {
        self.0.iter_mut().map(|costs| median(costs)).collect()
    }
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// The engine with one worker.
pub(super) struct MeasuredPipeline<'a> {
    engine: &'a Engine,
    worker: BenchWorker,
    before: Vec<StageCount>,
}

impl<'a> MeasuredPipeline<'a> {
    /// Brings the counters of rules up to date.
    pub(super) fn fold_counters(&mut self) {
        self.worker.fold_counters();
    }

    /// Creates the pipeline of an engine's only worker. The time advances by `step` between rounds.
    pub(super) fn new(engine: &'a Engine, worker: Worker, step: Duration) -> MeasuredPipeline<'a> {
        MeasuredPipeline { engine, worker: BenchWorker::new(worker, step), before: engine.stage_counts() }
    }

    /// Returns the verdicts of the last vector.
    pub(super) fn verdicts(&self) -> &[Verdict; VECTOR] {
        self.worker.verdicts()
    }
}

impl Stages for MeasuredPipeline<'_> {
    fn names(&self) -> Vec<&'static str> {
        self.before.iter().map(|stage| stage.name).collect()
    }

    fn begin(&mut self) {
        self.worker.begin_round();
    }

    fn has_connections(&self) -> bool {
        self.engine.connections().summary().connections > 0
    }

    fn answer(&mut self, packets: &mut [Packet<'_>]) {
        self.worker.process(packets);
        self.before = self.engine.stage_counts();
    }

    fn take(&mut self, packets: &mut [Packet<'_>], spent: &mut [u64]) -> u64 {
        let whole = self.worker.process(packets);
        let now = self.engine.stage_counts();
        for ((spent, now), before) in spent.iter_mut().zip(&now).zip(&self.before) {
            *spent = now.cycles.wrapping_sub(before.cycles);
        }
        self.before = now;
        whole
    }
}

/// Turns a plain packet of UDP or TCP into its answer: source and destination are exchanged, which keeps the checksums.
fn turn(packet: &mut Packet<'_>) {
    const ETHERNET: usize = 14;
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

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_engine::ConnectionSummary;
    use mmb_packet::LinkType;
    use mmb_random::SeedTree;
    use mmb_workload::{FlowPattern, Traffic, Workload, WorkloadKind, establish};

    const PACKETS: usize = 1000;

    /// Counts packets by ingress port, beside the engine's work.
    struct CountedPipeline<'a> {
        pipeline: MeasuredPipeline<'a>,
        answers: usize,
        by_port: [usize; 2],
        dropped: usize,
    }

    impl Stages for CountedPipeline<'_> {
        fn names(&self) -> Vec<&'static str> {
            self.pipeline.names()
        }

        fn has_connections(&self) -> bool {
            self.pipeline.has_connections()
        }

        fn answer(&mut self, packets: &mut [Packet<'_>]) {
            self.answers += packets.len();
            self.pipeline.answer(packets);
        }

        fn take(&mut self, packets: &mut [Packet<'_>], spent: &mut [u64]) -> u64 {
            packets.iter().for_each(|packet| self.by_port[usize::from(packet.port.0)] += 1);
            let cycles = self.pipeline.take(packets, spent);
            let verdicts = &self.pipeline.verdicts()[..packets.len()];
            self.dropped += verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Drop(_))).count();
            cycles
        }
    }

    /// The answers, the packets of two measured rounds and the first one by ingress port, and the connections at the end.
    fn measured(kind: WorkloadKind, answers: Answers) -> (usize, [usize; 2], u64) {
        let workload = Workload::new(kind, None, None, 3).expect("a set of that kind");
        let policy = workload.policy().expect("numbers enough");
        let traffic = Traffic {
            background: workload.background(),
            hit: kind.hit(),
            flows: FlowPattern::Distinct,
            seed: 3,
        };
        let mut arena = Arena::default();
        for mut frame in traffic.frames(PACKETS, workload.rules(), workload.size()).frames {
            establish(&mut frame);
            arena.push(&frame, LinkType::Ethernet);
        }
        let (mut engine, workers) = Engine::new(super::super::setup::wire(), 1, &SeedTree::repeatable(3));
        engine.publish(&policy).expect("a valid policy");
        let worker = workers.into_iter().next().expect("one worker");
        let pipeline = MeasuredPipeline::new(&engine, worker, Duration::from_millis(10));
        let mut counted = CountedPipeline { pipeline, answers: 0, by_port: [0; 2], dropped: 0 };
        let pattern = TrafficPattern { shuffle: Some(3), answers };
        run(&mut counted, &mut arena, pattern, policy.rewrites(), Effort::Rounds(2));
        assert_eq!(counted.dropped, 0, "{kind:?} {answers:?}");
        let ConnectionSummary { connections, created, .. } = engine.connections().summary();
        assert_eq!(created, connections, "{kind:?} {answers:?}");
        (counted.answers, counted.by_port, connections)
    }

    #[test]
    fn answers_belong_to_the_connections() {
        for kind in [WorkloadKind::Stateful, WorkloadKind::SourceNat] {
            let all = 3 * PACKETS;
            let replies = PACKETS;
            let (answers, by_port, connections) = measured(kind, Answers::Never);
            assert_eq!((answers, by_port), (0, [all, 0]), "{kind:?}");
            // Some packets may have been drawn from the same rule.
            assert!(connections > PACKETS as u64 * 9 / 10, "{kind:?}: {connections}");
            assert_eq!(measured(kind, Answers::Once), (PACKETS, [all, 0], connections), "{kind:?}");
            let half = (PACKETS, [all - replies, replies], connections);
            assert_eq!(measured(kind, Answers::Half), half, "{kind:?}");
        }
    }
}
