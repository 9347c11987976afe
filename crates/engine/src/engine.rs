//! The control side of the engine.

use crate::cells::{STAGES, WorkerCells};
use crate::connections::{Connections, Task};
use crate::counters::{Count, PortCount, StageCount};
use crate::drop::DropReason;
use crate::flows::Common;
use crate::port::{PortSpec, PortTable};
use crate::rulebook::Rulebook;
use crate::snapshot::Snapshot;
use crate::worker::Worker;
use arc_swap::ArcSwap;
use mmb_classify::{TableStats, Tuning};
use mmb_packet::PortId;
use mmb_policy::{Policy, RuleId};
use mmb_random::{Purpose, SeedTree};
use mmb_rewrite::NotApplied;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::sync::mpsc::{Sender, channel};

/// Why a policy could not be put in force.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    /// A rule names a port that does not exist.
    #[error("rule {}: no port is called '{port}'; the ports are {known}", .rule.0)]
    UnknownPort {
        /// The rule.
        rule: RuleId,
        /// The name.
        port: String,
        /// The names that exist.
        known: String,
    },
    /// `enable` or `disable` names a port that does not exist.
    #[error("{} {port}: no port is called '{port}'; the ports are {known}", if *.enables { "enable" } else { "disable" })]
    UnknownSwitchedPort {
        /// The command is `enable`.
        enables: bool,
        /// The name.
        port: String,
        /// The names that exist.
        known: String,
    },
}

/// The control side: compiles and publishes policies, reads counters.
pub struct Engine {
    ports: PortTable,
    rulebook: Rulebook,
    published: Arc<ArcSwap<Snapshot>>,
    current: Arc<Snapshot>,
    /// Snapshots before the current one, the oldest first, kept until no worker uses them, so that they are freed here.
    retired: Vec<Arc<Snapshot>>,
    workers: Vec<Arc<WorkerCells>>,
    /// Where workers are asked about connections.
    tasks: Vec<Sender<Task>>,
    common: Arc<Common>,
    /// The most ports.
    room: usize,
}

impl Engine {
    /// An engine with an empty policy and its workers. All that is random or secret in it is made from `seeds`.
    pub fn new(ports: PortTable, workers: usize, seeds: &SeedTree) -> (Engine, Vec<Worker>) {
        Engine::with_tuning(ports, workers, seeds, Tuning::default())
    }

    /// [`Engine::new`] with another way of putting rules into tables, to compare with.
    pub fn with_tuning(
        ports: PortTable,
        workers: usize,
        seeds: &SeedTree,
        tuning: Tuning,
    ) -> (Engine, Vec<Worker>) {
        let room = ports.0.len();
        Engine::build(ports, room, [workers, 0], seeds, tuning)
    }

    /// [`Engine::new`] without ports, but with room for so many: see [`Engine::add_port`]. The first `owning` workers share the
    /// connections; `others`, behind them, own none and hand over what may be of one: for threads that packets seldom come to.
    pub fn with_room(room: usize, owning: usize, others: usize, seeds: &SeedTree) -> (Engine, Vec<Worker>) {
        Engine::build(PortTable::default(), room, [owning, others], seeds, Tuning::default())
    }

    fn build(
        ports: PortTable,
        room: usize,
        [owning, others]: [usize; 2],
        seeds: &SeedTree,
        tuning: Tuning,
    ) -> (Engine, Vec<Worker>) {
        let workers = owning + others;
        let rulebook = Rulebook::new(&ports, workers, seeds, tuning);
        let current = Arc::new(rulebook.snapshot(0, &ports));
        let published = Arc::new(ArcSwap::new(Arc::clone(&current)));
        let cells: Vec<_> = (0..workers).map(|_| Arc::new(WorkerCells::new(room))).collect();
        let (tasks, asked): (Vec<_>, Vec<_>) = cells.iter().map(|_| channel()).unzip();
        let common = Arc::new(Common::new(owning, seeds));
        let packet_side = cells.iter().zip(asked).enumerate().map(|(worker, (cells, asked))| {
            Worker::new(&published, worker, Arc::clone(&common), Arc::clone(cells), asked, seeds)
        });
        let packet_side = packet_side.collect();
        let engine = Engine {
            ports,
            rulebook,
            published,
            current,
            retired: Vec::new(),
            workers: cells,
            tasks,
            common,
            room,
        };
        (engine, packet_side)
    }

    /// One more port, by which packets may come and that rules may name from now on. Ports do not go: of one that does, no packet
    /// comes. Returns its number; `None`: there is no room for it.
    pub fn add_port(&mut self, port: PortSpec) -> Option<PortId> {
        if self.ports.0.len() >= self.room {
            return None;
        }
        let number = PortId(self.ports.0.len() as u16);
        self.rulebook.push_port(&port.name);
        self.ports.0.push(port);
        self.publish_snapshot();
        Some(number)
    }

    /// Gives a port another name: the host's port of the old one is gone, and no rule names it. With an empty name, which no rule can
    /// write, it waits for the next.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn rename_port(&mut self, port: PortId, name: &str) {
        let spec = &mut self.ports.0[usize::from(port.0)];
        self.rulebook.rename_port(port, name);
        name.clone_into(&mut spec.name);
    }

    /// Checks what a policy adds to another that was checked.
    ///
    /// # Errors
    /// What makes the policy impossible here.
    pub fn check(&self, before: &Policy, after: &Policy) -> Result<(), PublishError> {
        if let Some((port, &enables)) = after.ports.iter().find(|(name, _)| self.ports.id(name).is_none()) {
            let (port, known) = (port.clone(), self.ports.known());
            return Err(PublishError::UnknownSwitchedPort { enables, port, known });
        }
        self.rulebook.check(before, after, &self.ports)
    }

    /// Puts a policy in force as a whole: each worker's next vector is decided by it. Counters of rules whose number
    /// and content stay are kept. It costs about what differs from the policy in force, however many rules that has.
    ///
    /// # Errors
    /// What makes the policy impossible here; the policy in force stays.
    pub fn publish(&mut self, policy: &Policy) -> Result<(), PublishError> {
        self.check(self.rulebook.policy(), policy)?;
        self.reclaim();
        let generation = self.current.generation + 1;
        let gone = self.rulebook.change(policy, generation);
        self.publish_snapshot();
        gone.into_iter().for_each(|stamp| self.common.forget(stamp));
        self.reclaim();
        Ok(())
    }

    fn publish_snapshot(&mut self) {
        let generation = self.current.generation + 1;
        let snapshot = Arc::new(self.rulebook.snapshot(generation, &self.ports));
        self.published.store(Arc::clone(&snapshot));
        self.retired.push(std::mem::replace(&mut self.current, snapshot));
    }

    /// Frees policies that no worker uses any more; returns how many wait for a worker still. [`Engine::publish`]
    /// does it as well.
    pub fn reclaim(&mut self) -> usize {
        // Once published and replaced, a snapshot gets no new users: a count of one stays one.
        self.retired.retain(|snapshot| Arc::strong_count(snapshot) > 1);
        // What workers counted under a snapshot that is gone is seen before its slots are given away.
        fence(Ordering::Acquire);
        let oldest = self.retired.first().unwrap_or(&self.current);
        self.rulebook.reclaim(oldest.generation);
        self.retired.len()
    }

    /// Makes ports, sequence numbers and other random choices to come independent of those before, should somebody have learned what
    /// they are made from. Workers follow between two vectors. Keys stay for as long as the engine: places in an index, and choices
    /// that are to be the same for the same connection, hang on them.
    pub fn reseed(&self, fresh: &SeedTree) {
        self.common.reseed(fresh);
        for (worker, tasks) in self.tasks.iter().enumerate() {
            let seed = |purpose| fresh.of_worker(purpose, worker);
            let (drops, choices) = (seed(Purpose::DropShares), seed(Purpose::HeaderChoices));
            // A worker that is gone needs none.
            let _ = tasks.send(Box::new(move |pipeline, _| pipeline.reseed(drops, choices)));
        }
    }

    /// Lets there be no more connections than that, over all workers, though a policy may say more: from the next policy on.
    pub fn bound_connections(&self, most: usize) {
        self.common.memory.store(most, Ordering::Relaxed);
    }

    /// What [`Engine::bound_connections`] has said.
    pub fn connection_bound(&self) -> usize {
        self.common.memory.load(Ordering::Relaxed)
    }

    /// The connections of all workers. The handle may be used while the engine is not at hand; the workers have to be running.
    pub fn connections(&self) -> Connections {
        let workers = self.tasks.iter().cloned().zip(self.workers.iter().map(Arc::clone)).collect();
        let max = (self.current.connections.max as usize).min(self.connection_bound());
        Connections::new(workers, Arc::clone(&self.common), max as u64)
    }

    /// The ports.
    pub fn ports(&self) -> &PortTable {
        &self.ports
    }

    /// What a rule of the policy in force has matched since it is there.
    pub fn rule_count(&self, id: RuleId) -> Count {
        self.rulebook.count(id)
    }

    /// Drops by reason, those above zero.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        self.above_zero(DropReason::ALL, |worker, reason| worker.drops(reason))
    }

    /// Targets not applied, those above zero.
    pub fn not_applied(&self) -> Vec<(NotApplied, u64)> {
        self.above_zero(NotApplied::ALL, |worker, reason| worker.not_applied(reason))
    }

    fn above_zero<R: Copy>(
        &self,
        reasons: impl IntoIterator<Item = R>,
        read: impl Fn(&WorkerCells, R) -> u64,
    ) -> Vec<(R, u64)> {
        let sum = |reason| self.workers.iter().map(|worker| read(worker, reason)).sum();
        reasons.into_iter().map(|reason| (reason, sum(reason))).filter(|&(_, count)| count > 0).collect()
    }

    /// What went through the ports, by number.
    pub fn port_counts(&self) -> Vec<PortCount> {
        let sum = |port| {
            let counts = self.workers.iter().map(|worker| worker.port(port));
            counts.fold(PortCount::default(), |sum, more| PortCount {
                rx: sum.rx + more.rx,
                tx: sum.tx + more.tx,
            })
        };
        (0..self.ports.0.len()).map(sum).collect()
    }

    /// What the stages did, in the order of the pipeline.
    pub fn stage_counts(&self) -> Vec<StageCount> {
        let mut sums = vec![StageCount::default(); STAGES.len()];
        for worker in &self.workers {
            for (sum, more) in sums.iter_mut().zip(worker.stages()) {
                sum.add(more);
            }
        }
        sums.iter_mut().zip(STAGES).for_each(|(sum, name)| sum.name = name);
        sums
    }

    /// What the stages of one worker did, in the order of the pipeline; nothing for a worker that does not exist.
    pub fn worker_stage_counts(&self, worker: usize) -> Vec<StageCount> {
        self.workers.get(worker).map(|worker| worker.stages().to_vec()).unwrap_or_default()
    }

    /// The instructions that rules are looked up with: `avx512`, `avx2` or `scalar`.
    pub fn instructions(&self) -> &'static str {
        self.current.classifier.instructions()
    }

    /// The classifier's tables, for people to look at, those of a class together.
    pub fn tables(&self) -> Vec<TableStats> {
        self.rulebook.tables()
    }
}
