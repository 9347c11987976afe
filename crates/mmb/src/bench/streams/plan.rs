//! The connections and the payload that all measured policies have in common, and how one policy is measured with them.

use super::super::measure::{Effort, Measured, MeasuredPipeline, Recorder, Stages};
use super::super::memory;
use super::super::setup::{BETWEEN_ROUNDS, wire};
use super::chain::{self, Chain};
use super::report::IdleMemory;
use super::traffic::{self, Flow, Round, SEGMENT, TRAINS, Trains};
use anyhow::Context;
use mmb_engine::{Engine, Worker};
use mmb_random::SeedTree;

/// What an idle connection has sent before. Its bytes are all acknowledged.
const BEFORE_IDLE: Trains = Trains { segments: 2, in_flight: 0 };
/// Connections that are made at a time before they idle.
const AT_ONCE: usize = 1000;

/// What all policies have in common.
pub(super) struct Plan {
    pub(super) flows: Vec<Flow>,
    /// The payload of a round.
    pub(super) text: Vec<u8>,
    literals: Vec<Vec<u8>>,
    pub(super) seed: u64,
}

impl Plan {
    pub(super) fn new(count: usize, seed: u64) -> Plan {
        let text = traffic::text(count * TRAINS.segments, seed);
        let max = chain::CHAINS.iter().map(|chain| chain.literals).max().unwrap_or_default();
        let literals = chain::literals(max, &text, TRAINS.segments * SEGMENT, seed);
        Plan { flows: traffic::flows(count, seed), text, literals, seed }
    }

    /// An engine with a policy in force, and its workers.
    pub(super) fn start(
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
    pub(super) fn start_alone(&self, chain: &Chain, connections: usize) -> anyhow::Result<(Engine, Worker)> {
        let (engine, workers) = self.start(chain, connections, 1)?;
        Ok((engine, workers.into_iter().next().context("the engine has no worker")?))
    }

    /// Measures rounds of all connections.
    pub(super) fn measure(
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
    pub(super) fn idle(&self, count: usize) -> anyhow::Result<IdleMemory> {
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
