//! `mmb bench --workload streams`: the cost of rules on the bytes of TCP connections.
//!
//! Constant packets, as the other sets have them, are no streams: their sequence numbers would stand still. Here connections send
//! ([`traffic`]), and each of several policies ([`chain`]) processes the same packets. All packets must pass. With several workers, each has
//! connections of its own ([`workers`]). What the figures exclude is what [`super`] excludes.

mod chain;
mod report;
mod traffic;
mod workers;

use super::measure::{Effort, Measured, MeasuredPipeline, Recorder, Stages};
use super::{BETWEEN_ROUNDS, effort, memory, wire};
use crate::cli::{BenchArgs, ClassifierArg, Global};
use anyhow::Context;
use chain::Chain;
use mmb_engine::{Engine, Worker};
use mmb_random::SeedTree;
use report::{IdleMemory, MeasuredChain, StreamReport};
use traffic::{Flow, Round, SEGMENT, TRAINS, Trains};

/// Connections, unless the command line says how many.
const FLOWS: u32 = 1000;
/// Idle connections for each connection that sends.
const IDLE: usize = 100;
/// The most idle connections.
const MOST_IDLE: usize = 100_000;
/// What an idle connection has sent before. Its bytes are all acknowledged.
const BEFORE_IDLE: Trains = Trains { segments: 2, in_flight: 0 };
/// Connections that are made at a time before they idle.
const AT_ONCE: usize = 1000;

/// Measures every policy.
///
/// # Errors
/// A policy cannot be used, or a packet does not pass.
pub(super) fn main(args: &BenchArgs, global: &Global) -> anyhow::Result<()> {
    refuse_others(args);
    let count = args.flows.unwrap_or(FLOWS) as usize;
    let plan = Plan::new(count, args.seed);
    let only = args.only.as_deref().unwrap_or_default();
    if args.workers > 1 {
        let report = workers::run(&plan, only, usize::from(args.workers), effort(args))?;
        super::report::show(global, &report);
        return Ok(());
    }
    let is_known = |name: &str| name.contains(only);
    if !report::IDLE.contains(only) && !chain::CHAINS.iter().any(|chain| is_known(chain.name)) {
        crate::bad_usage(&format!("no row has '{only}' in its name"));
    }
    let mut chains = Vec::new();
    let mut instructions = "";
    for chain in chain::CHAINS.iter().filter(|chain| chain.name.contains(only)) {
        let (engine, worker) = plan.start_alone(chain, count)?;
        if !engine.instructions().is_empty() {
            instructions = engine.instructions();
        }
        let measured = plan.measure(chain, &engine, worker, effort(args)).context(chain.name)?;
        chains.push(MeasuredChain { chain, measured });
    }
    let idle = match report::IDLE.contains(only) {
        true => Some(plan.idle((count * IDLE).min(MOST_IDLE))?),
        false => None,
    };
    let payload = plan.text.len();
    super::report::show(global, &StreamReport { flows: count, payload, instructions, chains, idle });
    Ok(())
}

/// Ends the program if there are options that these packets do not have.
fn refuse_others(args: &BenchArgs) {
    let others = [
        (args.size.is_some(), "--size"),
        (args.tuples.is_some(), "--tuples"),
        (args.distinct_prio, "--distinct-prio"),
        (args.pcap.is_some(), "--pcap"),
        (args.traffic.is_some(), "--traffic"),
        (args.hit.is_some(), "--hit"),
        (!args.with.is_empty(), "--with"),
        (args.locality, "--locality"),
        (args.zipf.is_some(), "--zipf"),
        (args.order.is_some(), "--order"),
        (args.one_way, "--one-way"),
        (args.half_replies, "--half-replies"),
        (args.new_connections, "--new-connections"),
        (args.classifier != ClassifierArg::Merged, "--classifier"),
        (args.updates, "--updates"),
        (args.write_rules.is_some(), "--write-rules"),
        (args.write_pcap.is_some(), "--write-pcap"),
    ];
    if let Some((_, name)) = others.into_iter().find(|(is_given, _)| *is_given) {
        crate::bad_usage(&format!("--workload streams has rules and packets of its own: leave out {name}"));
    }
}

/// What all policies have in common.
struct Plan {
    flows: Vec<Flow>,
    /// The payload of a round.
    text: Vec<u8>,
    literals: Vec<Vec<u8>>,
    seed: u64,
}

impl Plan {
    fn new(count: usize, seed: u64) -> Plan {
        let text = traffic::text(count * TRAINS.segments, seed);
        let most = chain::CHAINS.iter().map(|chain| chain.literals).max().unwrap_or_default();
        let literals = chain::literals(most, &text, TRAINS.segments * SEGMENT, seed);
        Plan { flows: traffic::flows(count, seed), text, literals, seed }
    }

    /// An engine with a policy in force, and its workers.
    fn start(
        &self,
        chain: &Chain,
        connections: usize,
        workers: usize,
    ) -> anyhow::Result<(Engine, Vec<Worker>)> {
        let policy = chain.policy(&self.literals, connections)?;
        let (mut engine, workers) = Engine::new(wire(), workers, &SeedTree::repeatable(self.seed));
        engine.publish(&policy).context(chain.name)?;
        Ok((engine, workers))
    }

    /// The same with one worker.
    fn start_alone(&self, chain: &Chain, connections: usize) -> anyhow::Result<(Engine, Worker)> {
        let (engine, workers) = self.start(chain, connections, 1)?;
        Ok((engine, workers.into_iter().next().context("the engine has no worker")?))
    }

    /// Measures rounds of all connections.
    fn measure(
        &self,
        chain: &Chain,
        engine: &Engine,
        worker: Worker,
        effort: Effort,
    ) -> anyhow::Result<Measured> {
        let mut pipeline = MeasuredPipeline::new(engine, worker, BETWEEN_ROUNDS);
        let mut flows = self.flows.clone();
        traffic::establish(&mut flows, &mut pipeline)?;
        let mut round = Round::new(&flows, TRAINS, &chain.text(&self.text));
        traffic::pass(&mut pipeline, &mut round.arena, |_, _, _| ())?;
        let mut recorder = Recorder::new(pipeline.names(), round.arena.len());
        while recorder.goes_on(effort) {
            if chain.changes_payload() {
                round.arena.restore();
            }
            round.advance();
            let note = |vector, spent: &[u64], whole| recorder.note(vector, spent, whole);
            traffic::pass(&mut pipeline, &mut round.arena, note)?;
            recorder.rounds += 1;
        }
        Ok(recorder.finish())
    }

    /// Measures the memory of streams that have sent and are idle: that of connections with streams, without that of the same connections
    /// alone.
    fn idle(&self, count: usize) -> anyhow::Result<IdleMemory> {
        // What the process needs once must not count.
        let (engine, worker) = self.start_alone(&chain::WITHOUT_STREAMS, AT_ONCE)?;
        self.grow(&engine, worker, AT_ONCE.min(count))?;
        let (engine, worker) = self.start_alone(&chain::WITHOUT_STREAMS, count)?;
        let (alone, _without) = self.grow(&engine, worker, count)?;
        let (engine, worker) = self.start_alone(&chain::WITH_STREAMS, count)?;
        let (with, _with) = self.grow(&engine, worker, count)?;
        Ok(IdleMemory {
            streams: count,
            bytes: with.saturating_sub(alone) as f64 / count as f64,
            connection_bytes: alone as f64 / count as f64,
        })
    }

    /// Makes connections that are idle afterwards, and returns the growth of the process in bytes, and what holds the memory: while it lives,
    /// the next measurement reuses none of it.
    fn grow<'e>(
        &self,
        engine: &'e Engine,
        worker: Worker,
        count: usize,
    ) -> anyhow::Result<(u64, MeasuredPipeline<'e>)> {
        let mut flows = traffic::flows(count, self.seed);
        let before = memory::resident();
        let mut pipeline = MeasuredPipeline::new(engine, worker, BETWEEN_ROUNDS);
        let at_once = AT_ONCE.min(self.text.len() / (BEFORE_IDLE.segments * SEGMENT));
        for flows in flows.chunks_mut(at_once) {
            traffic::establish(flows, &mut pipeline)?;
            let mut round = Round::new(flows, BEFORE_IDLE, &self.text);
            traffic::pass(&mut pipeline, &mut round.arena, |_, _, _| ())?;
        }
        Ok((memory::resident().saturating_sub(before), pipeline))
    }
}
