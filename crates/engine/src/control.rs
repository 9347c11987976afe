//! The control side of connections: listing, ending, watching, saving, restoring.
//!
//! Connections belong to workers. [`Connections`] is a handle for other threads. A request is sent as tasks
//! that a worker runs between two vectors. Each task processes at most some thousand connections, so that
//! packets are hardly delayed. A worker that does not answer within some seconds has stopped. Totals are read
//! from counters, without a task.

mod servers;

use crate::baseline::ConnectionTotals;
use crate::cells::WorkerCells;
use crate::compiled::{AffectedConnections, RuleLineage, Snapshot, StatefulChange};
use crate::conntrack::{
    ConnectionInfo, Conntrack, EncodedConnections, LeftOutConnection, LoadSummary, RestoreRequest,
    SavedConnection, SavedState, SharedState, StateMap, StateWriter, StreamSummary, WatchedEvent, Watcher,
};
use crate::drop::DropReason;
use crate::pipeline::Pipeline;
use crate::worker::WorkerTask;
use mmb_base::Id;
use mmb_conn::{CloseReason, ConnId, Invalid, RuleSetId};
use mmb_policy::{ConnectionFilter, RuleId};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::time::Duration;

/// Connections that one task processes before the worker returns to packets.
const CHUNK: usize = 1024;
/// The longest time that a worker may take for a chunk.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// The most events queued for a watcher. Further events are lost, and counted. Events own no memory outside
/// the queue, so a queue takes 4 MB at most.
const WATCH_QUEUE_LEN: usize = 16_384;
const _: () = assert!(WATCH_QUEUE_LEN * size_of::<WatchedEvent>() <= 4 << 20);

/// Totals over all workers' connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectionSummary {
    /// Current connections.
    pub connections: u64,
    /// Of these, the half-open ones.
    pub half_open: u64,
    /// Connection records that the workers have allocated: the most simultaneous connections so far.
    pub places: u64,
    /// The connection limit.
    pub max: u64,
    /// Connections created since the counters were cleared.
    pub created: u64,
    /// Connections closed since then, by reason, without zero counts.
    pub closed: Vec<(&'static str, u64)>,
    /// Invalid packets since then, by kind, without zero counts.
    pub invalid: Vec<(&'static str, u64)>,
    /// Events that were lost because a watcher read too slowly.
    pub events_lost: u64,
    /// Packets that arrived at a worker that does not own their connection, and were handed over.
    pub handed: u64,
    /// Fragments that currently wait for the first fragment of their datagram: received, and neither sent nor
    /// dropped.
    pub held: u64,
}

/// A worker has not answered: it has stopped or is stalled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("worker {0} does not answer")]
pub struct NoAnswer(pub usize);

/// Makes the worker with this number run its tasks soon.
pub type WorkerDrive = Arc<dyn Fn(usize) + Send + Sync>;

/// A handle on all workers' connections.
#[derive(Clone)]
pub struct Connections {
    workers: Vec<(Sender<WorkerTask>, Arc<WorkerCells>)>,
    common: Arc<SharedState>,
    max: u64,
    baseline: ConnectionTotals,
    /// Makes a worker run its tasks: wakes its thread, or runs the worker if it has no thread.
    drive: Option<WorkerDrive>,
}

impl Connections {
    pub(crate) fn new(
        workers: Vec<(Sender<WorkerTask>, Arc<WorkerCells>)>,
        common: Arc<SharedState>,
        max: u64,
        baseline: ConnectionTotals,
        drive: Option<WorkerDrive>,
    ) -> Connections {
        Connections { workers, common, max, baseline, drive }
    }

    /// A handle for a host whose workers run on the calling thread. `drive` makes a worker process an empty
    /// vector, so that the worker answers.
    #[must_use]
    pub fn driven_by(self, drive: WorkerDrive) -> Connections {
        Connections { drive: Some(drive), ..self }
    }

    /// Totals over all workers' connections.
    pub fn summary(&self) -> ConnectionSummary {
        let mut now = ConnectionTotals::default();
        self.workers.iter().for_each(|(_, cells)| now.add(cells));
        let (counts, before) = (now.counts, &self.baseline);
        let closed = |reason: CloseReason| now.closed[reason as usize] - before.closed[reason as usize];
        let closed = CloseReason::ALL.into_iter().map(|reason| (reason.name(), closed(reason)));
        let invalid = |kind: Invalid| now.invalid[kind as usize] - before.invalid[kind as usize];
        let invalid = Invalid::ALL.into_iter().map(|kind| (kind.name(), invalid(kind)));
        ConnectionSummary {
            connections: counts.now,
            half_open: counts.half_open,
            places: counts.places,
            max: self.max,
            created: counts.created - before.counts.created,
            closed: closed.filter(|(_, count)| *count > 0).collect(),
            invalid: invalid.filter(|(_, count)| *count > 0).collect(),
            events_lost: counts.events_lost - before.counts.events_lost,
            handed: counts.handed - before.counts.handed,
            held: counts.held,
        }
    }

    /// Adds the packets that connections have counted until now to the counters of their rules. Under load,
    /// these counters otherwise lag by up to a second. To be called before counters are read or
    /// cleared.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn fold_counters(&self) -> Result<(), NoAnswer> {
        self.collect_flows()?;
        for (worker, (_, cells)) in self.workers.iter().enumerate() {
            let mut wanted = None;
            while cells.has_unfolded() {
                let (folded, left) = self.ask(worker, |conntrack, _| conntrack.fold_chunk(CHUNK))?;
                // Packets that arrive meanwhile may be missing.
                if folded >= *wanted.get_or_insert(folded + left as u64) {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Adds the packets of flows that the host has forwarded to the counters of connections, rules and ports.
    fn collect_flows(&self) -> Result<(), NoAnswer> {
        for (worker, (_, cells)) in self.workers.iter().enumerate() {
            if cells.has_flows() {
                self.ask(worker, |conntrack, _| conntrack.collect_flows())?;
            }
        }
        Ok(())
    }

    /// Passes every connection that a filter matches to `each`, in no particular order. A connection that is
    /// created meanwhile may be missing. Stops when `each` returns false.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn list(
        &self,
        filter: &ConnectionFilter,
        each: &mut dyn FnMut(ConnectionInfo) -> bool,
    ) -> Result<(), NoAnswer> {
        self.collect_flows()?;
        for worker in 0..self.workers.len() {
            let mut from = Some(ConnId::FIRST);
            while let Some(first) = from {
                let filter = *filter;
                let (next, found) =
                    self.ask(worker, move |conntrack, _| conntrack.list(&filter, first, CHUNK))?;
                for info in found {
                    if !each(info) {
                        return Ok(());
                    }
                }
                from = next;
            }
        }
        Ok(())
    }

    /// Totals over the streams, by worker.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn stream_summary(&self) -> Result<Vec<StreamSummary>, NoAnswer> {
        let mut summaries = Vec::new();
        for worker in 0..self.workers.len() {
            let mut summary = StreamSummary::default();
            let mut from = Some(ConnId::FIRST);
            while let Some(first) = from {
                let (next, counted) =
                    self.ask(worker, move |conntrack, _| conntrack.count_streams(first, CHUNK))?;
                summary.add(counted);
                from = next;
            }
            summaries.push(summary);
        }
        Ok(summaries)
    }

    /// Ends every connection that a filter matches. Returns their number.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn kill(&self, filter: &ConnectionFilter) -> Result<u64, NoAnswer> {
        let mut killed = 0;
        for worker in 0..self.workers.len() {
            let mut from = Some(ConnId::FIRST);
            while let Some(first) = from {
                let filter = *filter;
                let (next, ended) =
                    self.ask(worker, move |conntrack, _| conntrack.kill(&filter, first, CHUNK))?;
                killed += ended;
                from = next;
            }
        }
        Ok(killed)
    }

    /// Ends the connections that have a rule which a change of the policy removes. Returns their number.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn kill_removed(&self, change: &StatefulChange) -> Result<u64, NoAnswer> {
        let change = Arc::new(change.clone());
        let mut killed = 0;
        for worker in 0..self.workers.len() {
            let mut from = Some(ConnId::FIRST);
            while let Some(first) = from {
                let change = Arc::clone(&change);
                let (next, ended) =
                    self.ask(worker, move |conntrack, _| conntrack.kill_removed(&change, first, CHUNK))?;
                killed += ended;
                from = next;
            }
        }
        Ok(killed)
    }

    /// Counts the connections that a change of the policy affects. Connections that begin or end meanwhile
    /// may be counted or not.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn affected(&self, change: &StatefulChange) -> Result<AffectedConnections, NoAnswer> {
        let change = Arc::new(change.clone());
        let mut affected = AffectedConnections::default();
        for worker in 0..self.workers.len() {
            let mut from = Some(RuleSetId::FIRST);
            while let Some(first) = from {
                let change = Arc::clone(&change);
                let (next, found) = self.ask(worker, move |conntrack, snapshot| {
                    conntrack.affected(snapshot, &change, first, CHUNK as u32)
                })?;
                affected.add(found);
                from = next;
            }
        }
        Ok(affected)
    }

    /// Writes all connections, for [`Connections::load`]. Returns their number, and how many of them cannot
    /// continue after a restore: edits of their bytes are in flight, or a rule has ended them. Packets are
    /// processed meanwhile, so the state is not of one moment.
    ///
    /// # Errors
    /// An error of the writer, or a worker does not answer.
    pub fn save(&self, writer: &mut StateWriter<'_>) -> io::Result<(u64, u64)> {
        let mut over = 0;
        for worker in 0..self.workers.len() {
            let ask = |first, mut found: EncodedConnections| {
                let task = move |pipeline: &mut Pipeline, snapshot: &Snapshot| {
                    let (next, over) = pipeline.conntrack().save(snapshot, first, CHUNK, &mut found);
                    (next, over, found)
                };
                self.begin(worker, task).map_err(io::Error::other)
            };
            let mut asked = Some(ask(ConnId::FIRST, EncodedConnections::default())?);
            let mut written = EncodedConnections::default();
            while let Some(answer) = asked {
                let (next, others, found) = answer.wait().map_err(io::Error::other)?;
                // The worker encodes the next connections while these are written.
                asked = next.map(|next| ask(next, std::mem::take(&mut written))).transpose()?;
                over += others;
                writer.records(&found)?;
                written = found;
            }
        }
        Ok((writer.end_connections()?, over))
    }

    /// Restores the connections of a saved state. Each connection keeps those of its rules that the current
    /// policy has. `map` is called after the rules in force were read, so no connection gets a rule that is
    /// added later or was removed before. `left_out` receives the connections that are left out, except those
    /// for which the table has no room.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn load(
        &self,
        state: &SavedState,
        map: impl FnOnce() -> StateMap,
        left_out: &mut dyn FnMut(LeftOutConnection),
    ) -> Result<LoadSummary, NoAnswer> {
        let rules = self.ask(0, |_, snapshot| snapshot.stateful_lineages().collect::<HashMap<_, _>>())?;
        let map = &map();
        let line = |(before, now): (&RuleId, &RuleId)| Some((*before, *rules.get(now)?));
        let rules = map.rules.iter().filter_map(line).collect();
        let mut restoring = Restoring {
            connections: self,
            map,
            rules,
            left_out,
            summary: LoadSummary::default(),
            waiting: self.workers.iter().map(|_| RestoreBatch::default()).collect(),
            restored: self.workers.iter().map(|_| None).collect(),
        };
        restoring.summary.leave_out(DropReason::ConnFull.name(), state.surplus);
        // Live connections first: another connection may have taken the port of a closed one, which needs no
        // port.
        for is_closed in [false, true] {
            restoring.all(state.connections(is_closed))?;
        }
        Ok(restoring.summary)
    }

    /// Distributes new connections, and the table capacity, evenly among these workers. Existing connections
    /// stay with their workers, and other workers hand over their packets. Must not be called concurrently.
    ///
    /// # Errors
    /// A worker does not answer. The distribution stays as it is.
    ///
    /// # Panics
    /// If `workers` is empty or contains a worker that may not own connections.
    pub fn share_among(&self, workers: &[u16]) -> Result<(), NoAnswer> {
        let owners = &self.common.owners;
        assert!(!workers.is_empty() && workers.iter().all(|&worker| usize::from(worker) < owners.owning()));
        owners.prepare(workers);
        for worker in 0..owners.owning() {
            let mut from = Some(ConnId::FIRST);
            while let Some(first) = from {
                from = self.ask(worker, move |conntrack, _| conntrack.claim_moved(first, CHUNK))?;
            }
        }
        owners.switch(workers);
        for worker in 0..owners.owning() {
            self.ask(worker, |conntrack, snapshot| conntrack.configure_share(snapshot))?;
        }
        Ok(())
    }

    /// Watches events until the returned watch is dropped.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn watch(&self) -> Result<ConnectionWatch, NoAnswer> {
        self.watch_with_capacity(WATCH_QUEUE_LEN)
    }

    /// [`Connections::watch`] with a queue of this many events.
    ///
    /// # Errors
    /// A worker does not answer.
    pub fn watch_with_capacity(&self, events: usize) -> Result<ConnectionWatch, NoAnswer> {
        let (sender, events) = sync_channel(events);
        let tasks = self.workers.iter().map(|(tasks, _)| tasks.clone()).collect();
        let watch = ConnectionWatch { events, lost: Arc::default(), tasks };
        for worker in 0..self.workers.len() {
            let watcher = Watcher { events: sender.clone(), lost: Arc::clone(&watch.lost) };
            self.ask(worker, move |conntrack, _| conntrack.watch(watcher))?;
        }
        Ok(watch)
    }

    /// Runs a task on a worker's connections, and waits for its result.
    fn ask<R: Send + 'static>(
        &self,
        worker: usize,
        task: impl FnOnce(&mut Conntrack, &Snapshot) -> R + Send + 'static,
    ) -> Result<R, NoAnswer> {
        self.run(worker, move |pipeline, snapshot| task(pipeline.conntrack(), snapshot))
    }

    /// The number of workers.
    pub(crate) fn workers(&self) -> usize {
        self.workers.len()
    }

    /// Runs a task on a worker, and waits for its result.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        worker: usize,
        task: impl FnOnce(&mut Pipeline, &Snapshot) -> R + Send + 'static,
    ) -> Result<R, NoAnswer> {
        self.begin(worker, task)?.wait()
    }

    /// Sends a task to a worker, without waiting for the result.
    fn begin<R: Send + 'static>(
        &self,
        worker: usize,
        task: impl FnOnce(&mut Pipeline, &Snapshot) -> R + Send + 'static,
    ) -> Result<PendingAnswer<R>, NoAnswer> {
        let (answer, answered) = channel();
        let task: WorkerTask = Box::new(move |pipeline, snapshot| {
            // The caller may have stopped waiting.
            let _ = answer.send(task(pipeline, snapshot));
        });
        self.workers[worker].0.send(task).map_err(|_| NoAnswer(worker))?;
        if let Some(drive) = &self.drive {
            drive(worker);
        }
        Ok(PendingAnswer { worker, answered })
    }
}

/// The result of a task that a worker has not run yet.
struct PendingAnswer<R> {
    worker: usize,
    answered: Receiver<R>,
}

impl<R> PendingAnswer<R> {
    fn wait(self) -> Result<R, NoAnswer> {
        self.answered.recv_timeout(ANSWER_TIMEOUT).map_err(|_| NoAnswer(self.worker))
    }
}

/// Connections for a worker to restore. The worker returns the batch, so that its vectors are reused.
#[derive(Default)]
struct RestoreBatch {
    requests: Vec<RestoreRequest>,
    /// The number of current requests, from the front. The requests after them are old, and kept only for
    /// their vectors.
    len: usize,
}

impl RestoreBatch {
    fn requests(&self) -> &[RestoreRequest] {
        &self.requests[..self.len]
    }

    /// Adds a request. Returns the vectors of the old request that it overwrites, for reuse.
    fn push(&mut self, request: RestoreRequest) -> (Vec<RuleId>, Vec<RuleLineage>) {
        self.len += 1;
        match self.requests.get_mut(self.len - 1) {
            Some(place) => {
                let (saved, rules) = std::mem::replace(place, request);
                (saved.rules, rules)
            }
            None => {
                self.requests.push(request);
                Default::default()
            }
        }
    }
}

/// The answer of a worker that has restored a batch.
type Restored = (LoadSummary, Vec<LeftOutConnection>, RestoreBatch);

/// A restore in progress: distributes the connections of a saved state to their workers.
struct Restoring<'r> {
    connections: &'r Connections,
    map: &'r StateMap,
    /// The stateful rules in force when the map was made, by their ids in the state.
    rules: HashMap<RuleId, RuleLineage>,
    left_out: &'r mut dyn FnMut(LeftOutConnection),
    summary: LoadSummary,
    /// By worker: connections that were not sent to the worker yet.
    waiting: Vec<RestoreBatch>,
    /// By worker: its pending answer.
    restored: Vec<Option<PendingAnswer<Restored>>>,
}

impl Restoring<'_> {
    /// Restores the connection of each record, on its worker.
    fn all<'s>(&mut self, records: impl Iterator<Item = &'s [u8]>) -> Result<(), NoAnswer> {
        let (mut ids, mut rules) = (Vec::new(), Vec::new());
        for record in records {
            let Some(mut saved) = SavedConnection::decode(record, ids) else {
                // `SavedState::read` has checked each record, so this does not happen.
                ids = Vec::new();
                continue;
            };
            if !self.map.translate(&mut saved.connection) {
                self.summary.leave_out(LeftOutConnection::NO_PORT, 1);
                (self.left_out)(saved.left_out(LeftOutConnection::NO_PORT));
                ids = saved.rules;
                continue;
            }
            let worker = self.connections.common.owner(&saved.connection.tuples[0]);
            rules.clear();
            rules.extend(saved.rules.iter().filter_map(|rule| self.rules.get(rule).copied()));
            (ids, rules) = self.waiting[worker].push((saved, rules));
            if self.waiting[worker].len == CHUNK {
                self.begin(worker)?;
            }
        }
        (0..self.waiting.len()).try_for_each(|worker| self.begin(worker))?;
        (0..self.restored.len()).try_for_each(|worker| self.finish(worker))
    }

    /// Sends a worker its waiting connections. The caller prepares the next ones while the worker restores
    /// these.
    fn begin(&mut self, worker: usize) -> Result<(), NoAnswer> {
        let batch = std::mem::take(&mut self.waiting[worker]);
        self.finish(worker)?;
        let restored = self.connections.begin(worker, move |pipeline, snapshot| {
            let (summary, left_out) = pipeline.conntrack().restore_all(snapshot, batch.requests());
            (summary, left_out, batch)
        })?;
        self.restored[worker] = Some(restored);
        Ok(())
    }

    /// Waits until a worker has restored its batch. The next batch reuses the memory.
    fn finish(&mut self, worker: usize) -> Result<(), NoAnswer> {
        if let Some(restored) = self.restored[worker].take() {
            let (summary, left_out, mut batch) = restored.wait()?;
            self.summary.add(summary);
            left_out.into_iter().for_each(&mut self.left_out);
            batch.len = 0;
            self.waiting[worker] = batch;
        }
        Ok(())
    }
}

/// A watch on connection events. Its queue is bounded. Dropping the watch frees its memory, even if no
/// further event happens.
pub struct ConnectionWatch {
    events: Receiver<WatchedEvent>,
    lost: Arc<AtomicU64>,
    tasks: Vec<Sender<WorkerTask>>,
}

impl ConnectionWatch {
    /// Waits for the next event, at most this long.
    ///
    /// # Errors
    /// No event came in time, or the workers have stopped.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<WatchedEvent, RecvTimeoutError> {
        self.events.recv_timeout(timeout)
    }

    /// The queued events.
    pub fn try_iter(&self) -> impl Iterator<Item = WatchedEvent> {
        self.events.try_iter()
    }

    /// Events that were lost since the last call.
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

impl Drop for ConnectionWatch {
    fn drop(&mut self) {
        for tasks in &self.tasks {
            let lost = Arc::clone(&self.lost);
            // A worker that has stopped has no list of watchers.
            let _ = tasks.send(Box::new(move |pipeline, _| {
                pipeline.conntrack().unwatch(&lost);
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, NoCycles, PortTable};
    use mmb_conn::ConnState;
    use std::sync::atomic::AtomicBool;

    /// The memory of clients that have disconnected must be freed without traffic.
    #[test]
    fn the_queue_of_one_who_no_longer_watches_is_freed_though_nothing_happens() {
        let (engine, mut workers) =
            Engine::new(PortTable::default(), 2, &mmb_random::SeedTree::repeatable(1));
        let connections = engine.connections();
        let stop = AtomicBool::new(false);
        let watch = std::thread::scope(|scope| {
            for worker in &mut workers {
                let stop = &stop;
                scope.spawn(move || {
                    while !stop.load(Ordering::SeqCst) {
                        worker.process(0, &NoCycles, &mut [], &mut []);
                    }
                });
            }
            let watch = connections.watch();
            stop.store(true, Ordering::SeqCst);
            watch.expect("the workers answer")
        });
        let watchers = Arc::downgrade(&watch.lost);
        assert_eq!(watchers.strong_count(), 3, "its own, and each worker's");
        drop(watch);
        workers.iter_mut().for_each(|worker| worker.process(0, &NoCycles, &mut [], &mut []));
        assert_eq!(watchers.strong_count(), 0);
    }

    #[test]
    fn the_language_knows_every_state() {
        let known: Vec<_> = mmb_policy::filter::STATES.iter().map(|(name, _)| *name).collect();
        assert_eq!(known, ConnState::ALL.map(ConnState::name));
    }
}
