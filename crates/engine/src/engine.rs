//! The control side of the engine.

mod servers;

use crate::baseline::Baseline;
use crate::cells::{STAGES, WorkerCells};
use crate::compiled::{
    CompiledPatterns, PacketSelector, PolicyCompiler, PublishError, Snapshot, StatefulChange,
    UnknownFilterPort,
};
use crate::conntrack::{
    AllocatedPools, CounterKind, SavedCounter, SharedState, StateHeader, StateMap, StreamNeed, StreamPools,
    StreamSizes, StreamTaken, saved_ports,
};
use crate::control::{Connections, WorkerDrive};
use crate::counters::{Count, FlowCacheCount, PortCount, RuleCount, StageCount};
use crate::drop::DropReason;
use crate::generated::GeneratedKind;
use crate::offload::{OffloadEpoch, OffloadSummary};
use crate::port::{PortSpec, PortTable};
use crate::worker::Worker;
use crate::worker::WorkerTask;
use arc_swap::ArcSwap;
use mmb_base::start_supplier;
use mmb_classify::{TableStats, Tuning};
use mmb_packet::PortId;
use mmb_policy::{PacketFilter, Policy, RuleId};
use mmb_random::{Purpose, SeedTree};
use mmb_rewrite::NotApplied;
use mmb_scan::SetCache;
use std::collections::HashMap;
use std::ops::Add;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::sync::mpsc::{Sender, channel};

/// Address space in bytes that an engine reserves for all workers together, as an upper bound.
const SHARED_BYTES: u64 = 24 << 20;
/// Address space in bytes that an engine reserves for each worker, as an upper bound. Most of it is tables
/// whose pages are touched only as they are used.
const WORKER_BYTES: u64 = 360 << 20;

/// The control side: compiles and publishes policies, reads counters.
pub struct Engine {
    ports: PortTable,
    compiler: PolicyCompiler,
    published: Arc<ArcSwap<Snapshot>>,
    current: Arc<Snapshot>,
    /// Snapshots before the current one, the oldest first, kept until no worker uses them, so that they are
    /// freed here.
    retired: Vec<Arc<Snapshot>>,
    workers: Vec<Arc<WorkerCells>>,
    /// Subtracted from the workers' counters, modulo 2^64, when they are read.
    baseline: Baseline,
    /// Queues of tasks for the workers.
    tasks: Vec<Sender<WorkerTask>>,
    common: Arc<SharedState>,
    stream_pools: StreamPools,
    /// The maximum number of ports.
    max_ports: usize,
    /// Sets the epoch of offloaded flows at the host.
    epoch: Option<Box<dyn OffloadEpoch>>,
    /// Wakes a worker that sleeps.
    waker: Option<WorkerDrive>,
}

impl Engine {
    /// Creates an engine with an empty policy, and its workers. All of its random and secret values derive
    /// from `seeds`.
    pub fn new(ports: PortTable, workers: usize, seeds: &SeedTree) -> (Engine, Vec<Worker>) {
        Engine::with_tuning(ports, workers, seeds, Tuning::default())
    }

    /// An upper bound of the address space, in bytes, that [`Engine::new`] takes for this number of workers.
    pub const fn start_bytes(workers: usize) -> u64 {
        SHARED_BYTES + workers as u64 * WORKER_BYTES
    }

    /// [`Engine::new`] with another tuning of the classifier's tables, for comparison.
    pub fn with_tuning(
        ports: PortTable,
        workers: usize,
        seeds: &SeedTree,
        tuning: Tuning,
    ) -> (Engine, Vec<Worker>) {
        let max_ports = ports.0.len();
        Engine::build(ports, max_ports, [workers, 0], seeds, tuning)
    }

    /// [`Engine::new`] without ports, but with room for `max_ports` ports: see [`Engine::add_port`]. The
    /// first `owning` workers share the connections. The `others` after them own no connections, and hand
    /// over packets that may belong to one. They are for threads that seldom receive packets.
    pub fn with_max_ports(
        max_ports: usize,
        owning: usize,
        others: usize,
        seeds: &SeedTree,
    ) -> (Engine, Vec<Worker>) {
        Engine::build(PortTable::default(), max_ports, [owning, others], seeds, Tuning::default())
    }

    fn build(
        ports: PortTable,
        max_ports: usize,
        [owning, others]: [usize; 2],
        seeds: &SeedTree,
        tuning: Tuning,
    ) -> (Engine, Vec<Worker>) {
        start_supplier(|| ());
        let workers = owning + others;
        let compiler = PolicyCompiler::new(&ports, workers, seeds, tuning);
        let current = Arc::new(compiler.snapshot(0, &ports));
        let published = Arc::new(ArcSwap::new(Arc::clone(&current)));
        let cells: Vec<_> = (0..workers).map(|_| Arc::new(WorkerCells::new(max_ports))).collect();
        let (tasks, asked): (Vec<_>, Vec<_>) = cells.iter().map(|_| channel()).unzip();
        let common = Arc::new(SharedState::new(owning, seeds));
        let packet_side = cells.iter().zip(asked).enumerate().map(|(worker, (cells, asked))| {
            Worker::new(&published, worker, Arc::clone(&common), Arc::clone(cells), asked, seeds)
        });
        let packet_side = packet_side.collect();
        let engine = Engine {
            ports,
            compiler,
            published,
            current,
            retired: Vec::new(),
            workers: cells,
            baseline: Baseline::default(),
            tasks,
            common,
            stream_pools: StreamPools::default(),
            max_ports,
            epoch: None,
            waker: None,
        };
        (engine, packet_side)
    }

    /// Adds a port. From now on, packets may arrive on it and rules may name it. Ports are never removed; a
    /// port that is gone receives no packets. Returns the port's number, or `None` if the engine has its
    /// maximum number of ports.
    pub fn add_port(&mut self, port: PortSpec) -> Option<PortId> {
        if self.ports.0.len() >= self.max_ports {
            return None;
        }
        let number = PortId(self.ports.0.len() as u16);
        self.compiler.push_port(&port.name);
        self.ports.0.push(port);
        self.publish_snapshot();
        Some(number)
    }

    /// Renames a port. The host's port with the old name must be gone, and no rule may name it. With an empty
    /// name, which no rule can contain, the port is free for the host's next port.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn rename_port(&mut self, port: PortId, name: &str) {
        let spec = &mut self.ports.0[usize::from(port.0)];
        self.compiler.rename_port(port, name);
        name.clone_into(&mut spec.name);
    }

    /// Sets the MTU of a port.
    ///
    /// # Panics
    /// If there is no such port.
    pub fn set_port_mtu(&mut self, port: PortId, mtu: u32) {
        self.ports.0[usize::from(port.0)].mtu = Some(mtu);
        self.publish_snapshot();
    }

    /// Checks the changes from `before`, which was checked, to `after`.
    ///
    /// # Errors
    /// Why the engine cannot use the policy.
    pub fn check(&self, before: &Policy, after: &Policy) -> Result<(), PublishError> {
        if let Some((port, &enables)) = after.ports.iter().find(|(name, _)| self.ports.id(name).is_none()) {
            let (port, known) = (port.clone(), self.ports.known());
            return Err(PublishError::UnknownSwitchedPort { enables, port, known });
        }
        self.compiler.check(before, after, &self.ports)
    }

    /// An upper bound, in bytes, for the rules that a change adds: their memory beyond that of rules with one
    /// key and no conditions.
    pub fn extra_bytes(&self, before: &Policy, after: &Policy) -> u64 {
        self.compiler.extra_bytes(before, after)
    }

    /// The part of [`Engine::extra_bytes`] that the key tables of limits take.
    pub fn limit_bytes(&self, before: &Policy, after: &Policy) -> u64 {
        self.compiler.limit_bytes(before, after)
    }

    /// From now on, the engine refuses a policy whose patterns are not in its cache
    /// ([`PublishError::NotCompiled`]) instead of compiling them. For a host whose other threads wait for the
    /// thread that publishes. The cache has the patterns in force and those of recent policies.
    pub fn expect_compiled_patterns(&mut self) {
        self.compiler.expect_compiled();
    }

    /// The cache of compiled patterns of this engine. [`compile_patterns`](crate::compile_patterns) adds to
    /// it.
    pub fn pattern_sets(&self) -> &Arc<SetCache> {
        self.compiler.sets()
    }

    /// The patterns in force.
    pub fn patterns(&self) -> CompiledPatterns {
        self.compiler.patterns()
    }

    /// Publishes a policy atomically: each worker uses it from its next vector on. Counters of rules whose id
    /// and content stay are kept. The cost depends on the differences from the current policy, not on its
    /// number of rules.
    ///
    /// # Errors
    /// Why the engine cannot use the policy. The current policy stays in force.
    pub fn publish(&mut self, policy: &Policy) -> Result<(), PublishError> {
        self.check(self.compiler.policy(), policy)?;
        self.reclaim();
        let generation = self.current.generation + 1;
        let pools = self.allocate_pools(policy, generation)?;
        let gone = self.compiler.change(policy, generation);
        let oldest = self.retired.first().unwrap_or(&self.current).generation;
        self.stream_pools.offer(pools, oldest, self.common.pools.iter());
        self.send_open_servers();
        self.publish_snapshot();
        gone.into_iter().for_each(|stamp| self.common.forget(stamp));
        self.reclaim();
        Ok(())
    }

    /// An upper bound of the memory that the streams of a policy take. The policy must have been
    /// [checked](Engine::check) as the successor of the current one.
    pub fn stream_need(&self, policy: &Policy) -> StreamNeed {
        let owners = &self.common.owners;
        let (owning, sharing) = (owners.owning(), owners.sharing());
        let settings = &policy.settings.streams;
        self.compiler.with_patterns(policy, |patterns, rules| {
            let sizes = StreamSizes::new(settings, patterns, sharing);
            let new_pools = self.stream_pools.missing_bytes(&sizes);
            let need = StreamNeed::new(settings, patterns, [owning, sharing], new_pools);
            StreamNeed { is_used: rules > 0, ..need }
        })
    }

    /// The memory that streams have taken so far. `record` is the size of a record: see
    /// [`StreamNeed::record`].
    pub fn stream_taken(&self, record: u64) -> StreamTaken {
        let mut taken = StreamTaken::default();
        for [places, pools] in self.workers.iter().map(|cells| cells.streams()) {
            taken.records += places * record;
            taken.pools += pools;
        }
        taken
    }

    /// Allocates the memory that workers lack for the streams of a policy.
    fn allocate_pools(&self, policy: &Policy, generation: u64) -> Result<AllocatedPools, PublishError> {
        let owners = &self.common.owners;
        let settings = &policy.settings.streams;
        let allocated = self.compiler.with_patterns(policy, |patterns, rules| {
            let sizes = StreamSizes::new(settings, patterns, owners.sharing());
            let wanted = (rules > 0).then_some((&sizes, patterns));
            self.stream_pools.allocate(wanted, owners.owning(), generation)
        });
        allocated.map_err(|error| PublishError::StreamMemory { reason: error.to_string() })
    }

    /// The stateful rules of the current policy that a change from `before` to `after` removes or replaces,
    /// for [`Connections::affected`]. To be called before [`Engine::publish`].
    pub fn stateful_change(&self, before: &Policy, after: &Policy) -> StatefulChange {
        self.compiler.stateful_change(before, after)
    }

    /// Sets a function that wakes a worker. The engine calls it when it sends a task to the worker, because
    /// an idle worker may sleep.
    pub fn set_waker(&mut self, waker: WorkerDrive) {
        self.waker = Some(waker);
    }

    /// Turns flow offload on. From now on, the engine passes the epoch of each policy to the host before it
    /// publishes the policy.
    pub fn set_offload(&mut self, epoch: Box<dyn OffloadEpoch>) {
        self.compiler.begin_offload();
        self.epoch = Some(epoch);
        self.publish_snapshot();
    }

    /// Makes the workers decide again on all offloaded flows. To be called after ports have changed, and
    /// after a tap has started or ended.
    pub fn renew_flows(&mut self) {
        if self.epoch.is_some() {
            self.publish_snapshot();
        }
    }

    /// Compiles a filter of packets for [`Connections::tap`].
    ///
    /// # Errors
    /// The filter names a port that does not exist.
    pub fn selector(&mut self, filter: &PacketFilter) -> Result<PacketSelector, UnknownFilterPort> {
        let current = &self.current;
        let peers: Vec<_> =
            (0..self.ports.0.len()).map(|port| current.route(PortId(port as u16)).out_port).collect();
        self.compiler.selector(filter, &self.ports, &peers)
    }

    /// Turns flow offload off at the host: it forwards no more packets, so that the next counts that workers
    /// read are the last ones.
    pub fn stop_flows(&self) {
        self.set_epoch(0);
    }

    fn set_epoch(&self, epoch: u32) {
        self.epoch.iter().for_each(|host| host.set_epoch(epoch));
    }

    fn publish_snapshot(&mut self) {
        let generation = self.current.generation + 1;
        let mut snapshot = self.compiler.snapshot(generation, &self.ports);
        snapshot.follows(&self.current);
        // The host must not use flows of the previous policy once this one is published.
        self.set_epoch(snapshot.epoch());
        let snapshot = Arc::new(snapshot);
        self.published.store(Arc::clone(&snapshot));
        self.retired.push(std::mem::replace(&mut self.current, snapshot));
    }

    /// Frees snapshots that no worker uses any more. Returns how many old snapshots are still in use.
    /// [`Engine::publish`] does this as well.
    pub fn reclaim(&mut self) -> usize {
        // A replaced snapshot gets no new users: a count of one stays one.
        self.retired.retain(|snapshot| Arc::strong_count(snapshot) > 1);
        // Makes the workers' last counts under a freed snapshot visible before its slots are assigned again.
        fence(Ordering::Acquire);
        let oldest = self.retired.first().unwrap_or(&self.current);
        self.compiler.reclaim(oldest.generation);
        self.stream_pools.reclaim(self.common.pools.iter());
        self.send_open_servers();
        self.retired.len()
    }

    /// The draining rules of the current policy that no connection has. Empty until every worker uses that
    /// policy.
    pub fn drained(&self) -> Vec<RuleId> {
        let is_current = self.retired.iter().all(|snapshot| Arc::strong_count(snapshot) == 1);
        if is_current { self.compiler.drained() } else { Vec::new() }
    }

    /// Reseeds the generators, in case their state leaked: future ports, sequence numbers and other random
    /// choices are then independent of earlier ones. Workers follow between two vectors. Keys stay for the
    /// engine's lifetime, because two things depend on them: index positions, and choices that must be the
    /// same for the same connection.
    pub fn reseed(&self, fresh: &SeedTree) {
        self.common.reseed(fresh);
        for (worker, tasks) in self.tasks.iter().enumerate() {
            let seed = |purpose| fresh.of_worker(purpose, worker);
            let (drops, choices) = (seed(Purpose::DropShares), seed(Purpose::HeaderChoices));
            // A worker that has stopped needs no seeds.
            let _ = tasks.send(Box::new(move |pipeline, _| pipeline.reseed(drops, choices)));
        }
    }

    /// Informs the workers that packets may have been missed until now, for instance because a link was down.
    /// TCP connections without a valid packet since then resume (docs/nat.md).
    pub fn resync(&self) {
        for tasks in &self.tasks {
            // A worker that has stopped has no connections.
            let _ = tasks.send(Box::new(|pipeline, _| pipeline.conntrack().resync()));
        }
    }

    /// Limits the number of connections over all workers to `max`, even if a policy allows more. Applies
    /// from the next policy on.
    pub fn bound_connections(&self, max: usize) {
        self.common.memory.store(max, Ordering::Relaxed);
    }

    /// The bound that [`Engine::bound_connections`] set.
    pub fn connection_bound(&self) -> usize {
        self.common.memory.load(Ordering::Relaxed)
    }

    /// A handle on the connections of all workers. It is independent of the engine; the workers must be
    /// running.
    pub fn connections(&self) -> Connections {
        let workers = self.tasks.iter().cloned().zip(self.workers.iter().map(Arc::clone)).collect();
        let max = (self.current.connections.max as usize).min(self.connection_bound());
        let (common, waker) = (Arc::clone(&self.common), self.waker.clone());
        Connections::new(workers, common, max as u64, self.baseline.connections, waker)
    }

    /// The header of a saved state. `now_ms` is the time since 1970.
    pub fn state_header(&self, now_ms: u64) -> StateHeader {
        StateHeader { saved_at_ms: now_ms, ports: saved_ports(&self.ports, &self.current.routes) }
    }

    /// The map that [`Connections::load`] needs for a state with this header. `rules` maps the ids of the
    /// state's stateful rules to ids in the current policy. `now_ms` is the time since 1970.
    pub fn state_map(&self, header: &StateHeader, now_ms: u64, rules: HashMap<RuleId, RuleId>) -> StateMap {
        StateMap::new(header, now_ms, &self.ports, &self.current.routes, rules)
    }

    /// The ports.
    pub fn ports(&self) -> &PortTable {
        &self.ports
    }

    /// The counters of a rule of the current policy.
    pub fn rule_count(&self, id: RuleId) -> RuleCount {
        self.compiler.count(id)
    }

    /// The packets that removed rules dropped. Together with the packets that the current rules dropped, they
    /// are the packets dropped for one of the reasons [`DropReason::OF_RULES`].
    pub fn dropped_by_former_rules(&self) -> Count {
        self.compiler.dropped_before()
    }

    /// Adds the counters of an earlier run to those of a rule of the current policy. Returns false if
    /// the rule does not exist.
    pub fn restore_rule_count(&mut self, id: RuleId, earlier: RuleCount) -> bool {
        let is_restored = self.compiler.restore_count(id, earlier);
        if is_restored {
            self.restore_drops(self.compiler.drop_reason(id), earlier.dropped.packets);
        }
        is_restored
    }

    /// Adds packets of an earlier run that removed rules dropped.
    pub fn restore_former_drops(&mut self, earlier: Count) {
        self.compiler.restore_dropped_before(earlier);
        self.restore_drops(DropReason::Rule, earlier.packets);
    }

    fn restore_drops(&mut self, reason: DropReason, packets: u64) {
        let baseline = &mut self.baseline.drops[reason.index()];
        *baseline = baseline.wrapping_sub(packets);
    }

    /// The counters of drops, generated packets, absorbed packets and ports, for a saved state. Of the drops
    /// by rules, they include only those by removed rules: the state has the others with their rules.
    pub fn saved_counters(&self) -> Vec<SavedCounter> {
        let reasons = self.drops().into_iter().filter(|(reason, _)| !DropReason::OF_RULES.contains(reason));
        let drops = reasons.map(|(reason, packets)| SavedCounter {
            kind: CounterKind::Drop,
            name: reason.name().to_owned(),
            count: Count { packets, bytes: 0 },
        });
        let generated = self.generated().into_iter().map(|(kind, packets)| SavedCounter {
            kind: CounterKind::Generated,
            name: kind.name().to_owned(),
            count: Count { packets, bytes: 0 },
        });
        let absorbed = Some(self.absorbed()).filter(|packets| *packets > 0).map(|packets| SavedCounter {
            kind: CounterKind::Absorbed,
            name: String::new(),
            count: Count { packets, bytes: 0 },
        });
        let ports = self.ports.0.iter().zip(self.port_counts()).filter(|(port, _)| !port.name.is_empty());
        let ports = ports.flat_map(|(port, PortCount { rx, tx })| {
            [(CounterKind::Rx, rx), (CounterKind::Tx, tx)].map(|(kind, count)| SavedCounter {
                kind,
                name: port.name.clone(),
                count,
            })
        });
        let name = DropReason::Rule.name().to_owned();
        let former = SavedCounter { kind: CounterKind::Drop, name, count: self.dropped_by_former_rules() };
        drops.chain([former]).chain(generated).chain(absorbed).chain(ports).collect()
    }

    /// Adds the counters of drops, generated packets, absorbed packets and ports of an earlier run to those
    /// of this one. Ignores names that are unknown here.
    pub fn restore_counters(&mut self, earlier: &[SavedCounter]) {
        self.baseline.ports.resize(self.ports.0.len(), PortCount::default());
        for SavedCounter { kind, name, count } in earlier {
            let port = || self.ports.id(name).map(|port| usize::from(port.0));
            match kind {
                CounterKind::Drop => {
                    let reason = DropReason::ALL.into_iter().find(|reason| reason.name() == name);
                    match reason {
                        Some(DropReason::Rule) => self.restore_former_drops(*count),
                        Some(reason) => self.restore_drops(reason, count.packets),
                        None => {}
                    }
                }
                CounterKind::Generated => {
                    if let Some(kind) = GeneratedKind::ALL.into_iter().find(|kind| kind.name() == name) {
                        let generated = &mut self.baseline.generated[kind as usize];
                        *generated = generated.wrapping_sub(count.packets);
                    }
                }
                CounterKind::Absorbed => {
                    self.baseline.absorbed = self.baseline.absorbed.wrapping_sub(count.packets);
                }
                CounterKind::Rx => {
                    if let Some(port) = port() {
                        let rx = &mut self.baseline.ports[port].rx;
                        *rx = *rx - *count;
                    }
                }
                CounterKind::Tx => {
                    if let Some(port) = port() {
                        let tx = &mut self.baseline.ports[port].tx;
                        *tx = *tx - *count;
                    }
                }
            }
        }
    }

    /// Clears all counters as they are read here; the workers' own counters do not change. Packets that a
    /// worker is processing may be counted partly before and partly after that.
    pub fn clear_counters(&mut self) {
        let by_rule = self.compiler.clear_counts();
        let [rule, others @ ..] = DropReason::OF_RULES.map(DropReason::index);
        let sum = |drops: &[u64]| others.iter().fold(0, |sum: u64, other| sum.wrapping_add(drops[*other]));
        let before = self.baseline.drops[rule].wrapping_add(sum(&self.baseline.drops));
        self.baseline = Baseline::read(&self.workers, self.ports.0.len());
        // The baseline for the drops by rules follows from the counters of the rules, so both start at the
        // same packet: a worker counts a drop by reason later than by rule.
        let others = sum(&self.baseline.drops);
        self.baseline.drops[rule] = before.wrapping_add(by_rule).wrapping_sub(others);
    }

    /// Drops by reason, without zero counts.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        self.above_zero(
            DropReason::ALL,
            |worker, reason| worker.drops(reason),
            |baseline, reason| baseline.drops[reason.index()],
        )
    }

    /// Packets that workers generated, by kind, without zero counts. In the balance of all packets, received
    /// and generated packets equal sent, dropped, absorbed and held packets
    /// ([`ConnectionSummary::held`](crate::ConnectionSummary::held)).
    pub fn generated(&self) -> Vec<(GeneratedKind, u64)> {
        self.above_zero(
            GeneratedKind::ALL,
            |worker, kind| worker.generated(kind),
            |baseline, kind| baseline.generated[kind as usize],
        )
    }

    /// Packets that were absorbed: the streams of their connections took over their content.
    pub fn absorbed(&self) -> u64 {
        let now: u64 = self.workers.iter().map(|worker| worker.absorbed()).sum();
        now.wrapping_sub(self.baseline.absorbed)
    }

    /// Targets that were not applied, by reason, without zero counts.
    pub fn not_applied(&self) -> Vec<(NotApplied, u64)> {
        self.above_zero(
            NotApplied::ALL,
            |worker, reason| worker.not_applied(reason),
            |baseline, reason| baseline.not_applied[reason as usize],
        )
    }

    fn above_zero<R: Copy>(
        &self,
        reasons: impl IntoIterator<Item = R>,
        read: impl Fn(&WorkerCells, R) -> u64,
        baseline: impl Fn(&Baseline, R) -> u64,
    ) -> Vec<(R, u64)> {
        let sum = |reason| {
            let sum: u64 = self.workers.iter().map(|worker| read(worker, reason)).sum();
            // The baseline of drops by rules may exceed their counter for a moment.
            let since = sum.wrapping_sub(baseline(&self.baseline, reason));
            if since.cast_signed() < 0 { 0 } else { since }
        };
        reasons.into_iter().map(|reason| (reason, sum(reason))).filter(|&(_, count)| count > 0).collect()
    }

    /// Traffic of the ports, by number.
    pub fn port_counts(&self) -> Vec<PortCount> {
        let sum = |port| {
            let counts = self.workers.iter().map(|worker| worker.port(port));
            let sum = counts.fold(PortCount::default(), Add::add);
            sum.since(self.baseline.ports.get(port).copied().unwrap_or_default())
        };
        (0..self.ports.0.len()).map(sum).collect()
    }

    /// The state of flow offload, over all workers.
    pub fn offload(&self) -> OffloadSummary {
        let mut now = OffloadSummary::default();
        self.workers.iter().for_each(|worker| worker.add_offload(&mut now));
        let before = &self.baseline.offload;
        for (number, (_, count)) in now.not_offloaded.iter_mut().enumerate() {
            *count -= before.not_offloaded.get(number).map_or(0, |(_, before)| *before);
        }
        now.not_offloaded.retain(|(_, count)| *count > 0);
        OffloadSummary {
            installed: now.installed - before.installed,
            evicted: now.evicted - before.evicted,
            packets: now.packets - before.packets,
            bytes: now.bytes - before.bytes,
            missed: now.missed - before.missed,
            ..now
        }
    }

    /// Counts of the stages, in the order of the pipeline.
    pub fn stage_counts(&self) -> Vec<StageCount> {
        let mut sums = vec![StageCount::default(); STAGES.len()];
        for worker in 0..self.workers.len() {
            for (sum, more) in sums.iter_mut().zip(self.worker_stage_counts(worker)) {
                sum.add(more);
            }
        }
        sums.iter_mut().zip(STAGES).for_each(|(sum, name)| sum.name = name);
        sums
    }

    /// Counts of one worker's stages, in the order of the pipeline; empty for a worker that does not exist.
    pub fn worker_stage_counts(&self, worker: usize) -> Vec<StageCount> {
        let now = self.workers.get(worker).map(|worker| worker.stages());
        let baseline = self.baseline.stages.get(worker).copied().unwrap_or_default();
        now.into_iter().flatten().zip(baseline).map(|(now, baseline)| now.since(baseline)).collect()
    }

    /// Classified packets, by what the flow caches did for them.
    pub fn flow_cache_count(&self) -> FlowCacheCount {
        let mut sum = FlowCacheCount::default();
        (0..self.workers.len()).for_each(|worker| sum.add(self.worker_flow_cache_count(worker)));
        sum
    }

    /// One worker's classified packets, by what its flow cache did for them.
    pub fn worker_flow_cache_count(&self, worker: usize) -> FlowCacheCount {
        let now = self.workers.get(worker).map(|worker| worker.flow_cache_counts()).unwrap_or_default();
        now.since(self.baseline.flow_caches.get(worker).copied().unwrap_or_default())
    }

    /// The instruction set of rule lookups: `avx512`, `avx2` or `scalar`.
    pub fn instructions(&self) -> &'static str {
        self.current.classifier.instructions()
    }

    /// The classifier's tables, for display. Tables of one class are combined.
    pub fn tables(&self) -> Vec<TableStats> {
        self.compiler.tables()
    }
}
