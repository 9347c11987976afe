//! The throughput of several workers together, compared with each of them alone.
//!
//! Packets are distributed as by a network card that knows the engine's hash: each worker gets those of its own connections, or an equal share
//! if there are no connections. Each worker is measured alone, and then all at the same time, on cores of their own; only the time in which
//! the engine processes packets counts.

use super::arena::Arena;
use super::report::{BenchOutput, rounded, to_thousands};
use super::setup::{pattern, started, step};
use super::source::BenchSet;
use crate::cli::BenchArgs;
use crate::tsc::Tsc;
use anyhow::ensure;
use mmb_engine::{Cycles, VECTOR};
use mmb_engine::{DropReason, Verdict, Worker};
use mmb_io::{cycles, kernel};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// The results, by worker.
pub(super) struct Scaling {
    rules: usize,
    lanes: Vec<Speed>,
}

/// Millions of packets per second.
#[derive(Clone, Copy)]
struct Speed {
    packets: usize,
    alone: f64,
    together: f64,
}

/// A worker with its packets.
struct Lane {
    worker: Worker,
    arena: Arena,
    verdicts: [Verdict; VECTOR],
    /// The policy may change packets.
    changes: bool,
    now_ns: u64,
    step_ns: u64,
}

/// Measures the requested number of workers.
///
/// # Errors
/// The policy or the packets cannot be used, or there are fewer cores than workers.
pub(super) fn run(set: &BenchSet, args: &BenchArgs) -> anyhow::Result<Scaling> {
    let count = usize::from(args.workers);
    let cores = kernel::cores();
    ensure!(cores.len() >= count, "{count} workers need a core each, and there are {}", cores.len());
    let (engine, mut workers, load) = started(set, args)?;
    let arenas = deal(&mut workers[0], set.packets(args)?, count);
    ensure!(arenas.iter().all(|arena| arena.len() > 0), "there are no packets for some worker");
    let lane = |(worker, arena)| Lane {
        worker,
        arena,
        verdicts: [Verdict::Drop(DropReason::NoBuffer); VECTOR],
        changes: set.policy.rewrites(),
        now_ns: 0,
        step_ns: step(args).as_nanos() as u64,
    };
    let mut lanes: Vec<Lane> = workers.into_iter().zip(arenas).map(lane).collect();
    for lane in &mut lanes {
        lane.arena.restore();
        lane.round();
    }
    let has_connections = engine.connections().summary().connections > 0;
    let pattern = pattern(args);
    for Lane { worker, arena, verdicts, now_ns, .. } in &mut lanes {
        pattern.prepare(arena, has_connections, |packets| worker.process(*now_ns, &Tsc, packets, verdicts));
    }
    let time = Duration::from_secs_f64(args.seconds);
    let alone: Vec<f64> =
        lanes.chunks_mut(1).zip(&cores).flat_map(|(lane, core)| at_once(lane, &[*core], time)).collect();
    let together = at_once(&mut lanes, &cores, time);
    let speeds = lanes.iter().zip(alone).zip(together);
    let lanes = speeds.map(|((lane, alone), together)| Speed { packets: lane.arena.len(), alone, together });
    Ok(Scaling { rules: load.rules, lanes: lanes.collect() })
}

/// Distributes packets: to the owners that a worker would hand them over to, or in turn if it hands none over.
fn deal(worker: &mut Worker, mut all: Arena, count: usize) -> Vec<Arena> {
    let mut verdicts = [Verdict::Drop(DropReason::NoBuffer); VECTOR];
    let mut owners = Vec::with_capacity(all.len());
    all.restore();
    all.vectors(|packets| {
        worker.process(0, &Tsc, packets, &mut verdicts);
        owners.extend(verdicts[..packets.len()].iter().map(|verdict| match verdict {
            Verdict::Hand(owner) => usize::from(*owner),
            _ => 0,
        }));
    });
    let are_owned = owners.iter().any(|&owner| owner > 0);
    all.deal(count, |number| if are_owned { owners[number] } else { number % count })
}

/// Measures lanes at the same time, each on its core. Returns the millions of packets per second of each.
fn at_once(lanes: &mut [Lane], cores: &[usize], time: Duration) -> Vec<f64> {
    let barrier = &Barrier::new(lanes.len());
    std::thread::scope(|scope| {
        let run = move |(lane, &core): (&mut Lane, &usize)| {
            // If the system refuses, it chooses the core itself.
            kernel::pin(core);
            barrier.wait();
            lane.measure(time)
        };
        let start = |lane| scope.spawn(move || run(lane));
        let threads: Vec<_> = lanes.iter_mut().zip(cores).map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_default()).collect()
    })
}

impl Lane {
    /// Processes every packet once, and returns the cycles.
    fn round(&mut self) -> u64 {
        self.now_ns += self.step_ns;
        if self.changes {
            self.arena.restore();
        }
        let Lane { worker, arena, verdicts, now_ns, .. } = self;
        let mut spent = 0;
        arena.vectors(|packets| {
            let begin = Tsc.now();
            worker.process(*now_ns, &Tsc, packets, verdicts);
            spent += Tsc.now().wrapping_sub(begin);
        });
        spent
    }

    /// Processes all packets repeatedly for about `time`; returns the millions of packets per second.
    fn measure(&mut self, time: Duration) -> f64 {
        let (began, mut rounds, mut spent) = (Instant::now(), 0, 0);
        while rounds == 0 || began.elapsed() < time {
            spent += self.round();
            rounds += 1;
        }
        let seconds = spent as f64 / cycles::hz() as f64;
        (rounds * self.arena.len()) as f64 / seconds.max(f64::MIN_POSITIVE) / 1e6
    }
}

impl Scaling {
    /// Returns the throughput of all workers together, as a multiple of one worker's.
    fn scaling(&self) -> f64 {
        let sum = |speed: fn(&Speed) -> f64| self.lanes.iter().map(speed).sum::<f64>();
        let one = sum(|lane| lane.alone) / self.lanes.len() as f64;
        sum(|lane| lane.together) / one.max(f64::MIN_POSITIVE)
    }
}

impl BenchOutput for Scaling {
    fn json(&self) -> Value {
        let workers = self.lanes.iter().map(|lane| {
            json!({
                "packets": lane.packets,
                "mpps_alone": to_thousands(lane.alone),
                "mpps_together": to_thousands(lane.together),
            })
        });
        json!({
            "rules": self.rules,
            "workers": workers.collect::<Vec<_>>(),
            "scaling": rounded(self.scaling()),
        })
    }

    fn text(&self) -> String {
        let mut text = format!("{} rules\n", self.rules);
        for (number, Speed { packets, alone, together }) in self.lanes.iter().enumerate() {
            let _ = writeln!(
                text,
                "worker {number}: {packets} packets, {alone:.2} Mpps alone, {together:.2} Mpps beside the others"
            );
        }
        let _ = writeln!(text, "together {:.2} times what one does alone", self.scaling());
        text
    }
}
