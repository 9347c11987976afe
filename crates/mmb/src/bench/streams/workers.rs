//! The throughput of several workers on streams, compared with each of them alone.
//!
//! A network card that knows the engine's hash gives each worker the packets of its own connections, and so does this. Each worker is measured
//! alone, and then all at the same time, on cores of their own. As with one worker, the cost of a vector is the median over all rounds.

use super::super::bench_worker::BenchWorker;
use super::super::measure::{Effort, Measured, Recorder, Stages};
use super::super::report::{BenchOutput, rounded};
use super::super::setup::BETWEEN_ROUNDS;
use super::chain::{self, Chain};
use super::plan::Plan;
use super::traffic::{self, Flow, Round, StreamStages, TRAINS};
use anyhow::{Context, ensure};
use mmb_engine::{VECTOR, Verdict, Worker};
use mmb_io::kernel;
use mmb_packet::Packet;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::Barrier;

/// Connections that are drawn for each one that is measured, so that every worker has enough.
const DRAWN: usize = 2;

/// The results.
pub(super) struct ScaledStreams {
    flows: usize,
    rows: Vec<ScaledChain>,
}

/// Gigabits of payload a second of each worker under a policy.
struct ScaledChain {
    name: &'static str,
    alone: Vec<f64>,
    together: Vec<f64>,
}

/// A worker with its connections.
struct Lane {
    pipeline: LanePipeline,
    round: Round,
    /// The policy changes its packets.
    changes_payload: bool,
}

/// A worker, whose stages are not told apart: their counters are those of all workers.
struct LanePipeline(BenchWorker);

/// Measures the policies whose name contains a text.
///
/// # Errors
/// A policy cannot be used, a packet does not pass, or there are fewer cores than workers.
pub(super) fn run(plan: &Plan, only: &str, count: usize, effort: Effort) -> anyhow::Result<ScaledStreams> {
    let cores = kernel::cores();
    ensure!(cores.len() >= count, "{count} workers need a core each, and there are {}", cores.len());
    let dealt = deal(plan, count)?;
    let chains = chain::CHAINS.iter().filter(|chain| chain.name.contains(only));
    let rows = chains.map(|chain| row(plan, chain, &dealt, &cores, effort).context(chain.name));
    Ok(ScaledStreams { flows: plan.flows.len(), rows: rows.collect::<anyhow::Result<_>>()? })
}

/// Connections for each worker, as many as one worker has without others.
fn deal(plan: &Plan, count: usize) -> anyhow::Result<Vec<Vec<Flow>>> {
    let wanted = plan.flows.len();
    let drawn = traffic::flows(DRAWN * count * wanted, plan.seed);
    let (_engine, mut workers) = plan.start(&chain::WITHOUT_STREAMS, drawn.len(), count)?;
    let mut dealt: Vec<Vec<Flow>> = vec![Vec::new(); count];
    for (flow, owner) in drawn.iter().zip(traffic::owners(&drawn, &mut workers[0])) {
        if dealt[owner].len() < wanted {
            dealt[owner].push(*flow);
        }
    }
    ensure!(dealt.iter().all(|flows| flows.len() == wanted), "some worker owns too few connections");
    Ok(dealt)
}

/// Measures a policy.
fn row(
    plan: &Plan,
    chain: &Chain,
    dealt: &[Vec<Flow>],
    cores: &[usize],
    effort: Effort,
) -> anyhow::Result<ScaledChain> {
    let connections = dealt.len() * plan.flows.len();
    let (_engine, workers) = plan.start(chain, connections, dealt.len())?;
    let mut lanes = Vec::new();
    for (worker, flows) in workers.into_iter().zip(dealt) {
        lanes.push(Lane::new(chain, worker, flows.clone(), &plan.text)?);
    }
    let payload = plan.text.len();
    let mut alone = Vec::new();
    for (lane, core) in lanes.chunks_mut(1).zip(cores) {
        alone.extend(at_once(lane, &[*core], effort, payload)?);
    }
    let together = at_once(&mut lanes, cores, effort, payload)?;
    Ok(ScaledChain { name: chain.name, alone, together })
}

/// Measures lanes at the same time, each on its core. Returns the gigabits of payload a second of each.
fn at_once(lanes: &mut [Lane], cores: &[usize], effort: Effort, payload: usize) -> anyhow::Result<Vec<f64>> {
    let barrier = &Barrier::new(lanes.len());
    std::thread::scope(|scope| {
        let run = move |(lane, &core): (&mut Lane, &usize)| {
            // If the system refuses, it chooses the core itself.
            kernel::pin(core);
            barrier.wait();
            lane.measure(effort).map(|measured| measured.gbit_s(payload))
        };
        let start = |lane| scope.spawn(move || run(lane));
        let threads: Vec<_> = lanes.iter_mut().zip(cores).map(start).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|speed| speed.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    })
}

impl Lane {
    /// A worker with connections that have sent once.
    fn new(chain: &Chain, worker: Worker, mut flows: Vec<Flow>, text: &[u8]) -> anyhow::Result<Lane> {
        let mut pipeline = LanePipeline(BenchWorker::new(worker, BETWEEN_ROUNDS));
        traffic::establish(&mut flows, &mut pipeline)?;
        let mut round = Round::new(&flows, TRAINS, &chain.text(text));
        traffic::pass(&mut pipeline, &mut round.arena, |_, _, _| ())?;
        Ok(Lane { pipeline, round, changes_payload: chain.changes_payload() })
    }

    fn measure(&mut self, effort: Effort) -> anyhow::Result<Measured> {
        let Lane { pipeline, round, changes_payload } = self;
        let mut recorder = Recorder::new(Vec::new(), round.arena.len());
        while recorder.goes_on(effort) {
            if *changes_payload {
                round.arena.restore();
            }
            round.advance();
            let note = |vector, spent: &[u64], whole| recorder.note(vector, spent, whole);
            traffic::pass(pipeline, &mut round.arena, note)?;
            recorder.rounds += 1;
        }
        Ok(recorder.finish())
    }
}

impl Stages for LanePipeline {
    fn names(&self) -> Vec<&'static str> {
        Vec::new()
    }

    fn begin(&mut self) {
        self.0.begin_round();
    }

    fn take(&mut self, packets: &mut [Packet<'_>], _spent: &mut [u64]) -> u64 {
        self.0.process(packets)
    }
}

impl StreamStages for LanePipeline {
    fn verdicts(&self) -> &[Verdict; VECTOR] {
        self.0.verdicts()
    }
}

impl ScaledChain {
    /// What one worker does alone, and what all do together.
    fn sums(&self) -> (f64, f64) {
        (self.alone.iter().sum::<f64>() / self.alone.len() as f64, self.together.iter().sum())
    }

    /// The throughput of all workers together, as a multiple of one worker's.
    fn scaling(&self) -> f64 {
        let (alone, together) = self.sums();
        together / alone.max(f64::MIN_POSITIVE)
    }

    fn json(&self) -> Value {
        let each = |speeds: &[f64]| speeds.iter().map(|speed| rounded(*speed)).collect::<Vec<_>>();
        json!({
            "name": self.name,
            "gbit_s_alone": each(&self.alone),
            "gbit_s_together": each(&self.together),
            "scaling": (self.scaling() * 1000.0).round() / 1000.0,
        })
    }
}

impl BenchOutput for ScaledStreams {
    fn json(&self) -> Value {
        json!({ "flows": self.flows, "rows": self.rows.iter().map(ScaledChain::json).collect::<Vec<_>>() })
    }

    fn text(&self) -> String {
        let workers = self.rows.first().map_or(0, |row| row.alone.len());
        let mut text =
            format!("{workers} workers with {} TCP connections each; Gbit/s of payload\n", self.flows);
        let _ = writeln!(text, "{:<38}{:>11}{:>11}{:>11}", "", "one alone", "together", "times one");
        for row in &self.rows {
            let (alone, together) = row.sums();
            let _ = writeln!(text, "{:<38}{alone:>11.1}{together:>11.1}{:>11.2}", row.name, row.scaling());
        }
        text
    }
}
