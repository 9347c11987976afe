//! The state to which connections refer: the part that all workers share, and the part of each worker.

use super::extension::Extensions;
use super::info::ConnectionInfo;
use super::offloaded_flows::OffloadedFlows;
use super::owner_map::{ClaimError, OwnerMap};
use super::rule_sets::{SetAllocError, StatefulRuleSets};
use super::sources::{self, SourceCounts, SourceRefusal};
use super::stream_pools::PoolExchange;
use super::streams::Streams;
use super::verdict_cache::VerdictCache;
use super::watched_events::{ConnectionEvent, WatchedEvent, Watcher};
use crate::cells::{RuleCells, WorkerCells};
use crate::compiled::Snapshot;
use crate::drop::DropReason;
use crate::rate::RateCell;
use crate::server_cells::ServerCells;
use arrayvec::ArrayVec;
use mmb_base::lock_soon;
use mmb_classify::RuleSlot;
use mmb_conn::{
    CLOSE_BATCH, CloseReason, ConnId, Connection, ConnectionTable, LeaseId, ResourceIds, TableOwner, Tuple,
    Unfolded,
};
use mmb_nat::{Nat, OpenServers, RuleVersion};
use mmb_random::SeedTree;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::TrySendError;
use std::sync::{Arc, Mutex, MutexGuard};

/// State that the workers of an engine share. A worker locks it when a translated connection starts or ends,
/// and for packets without a connection in its own table. It is never locked for packets of the worker's own
/// connections.
pub(crate) struct SharedState {
    pub(super) nat: Mutex<Nat>,
    /// Whether there are NAT bindings.
    has_bindings: AtomicBool,
    /// The number of workers that have connections.
    pub(super) busy: AtomicUsize,
    pub(crate) owners: OwnerMap,
    /// The limit of connections that the available memory imposes, whatever policies say.
    pub(crate) memory: AtomicUsize,
    sources: SourceCounts,
    /// By worker that owns connections: the exchange of stream memory with the control side.
    pub(crate) pools: Box<[PoolExchange]>,
    /// The rates of the answers of all workers, one for each kind: rejects, RSTs of connections that stream
    /// rules end, and ICMP errors about the MTU.
    pub(crate) reject_rate: RateCell,
    pub(super) reset: RateCell,
    pub(crate) mtu_error_rate: RateCell,
}

impl SharedState {
    /// Creates the state. The first `owning` workers own connections.
    pub(crate) fn new(owning: usize, seeds: &SeedTree) -> SharedState {
        SharedState {
            nat: Mutex::new(Nat::new(seeds)),
            has_bindings: AtomicBool::new(false),
            busy: AtomicUsize::new(0),
            memory: AtomicUsize::new(usize::MAX),
            sources: SourceCounts::new(),
            pools: (0..owning).map(|_| PoolExchange::default()).collect(),
            reject_rate: RateCell::default(),
            reset: RateCell::default(),
            mtu_error_rate: RateCell::default(),
            owners: OwnerMap::new(owning, seeds),
        }
    }

    /// See [`crate::Engine::reseed`].
    pub(crate) fn reseed(&self, fresh: &SeedTree) {
        self.nat().reseed(fresh);
    }

    pub(super) fn nat(&self) -> MutexGuard<'_, Nat> {
        lock_soon(&self.nat)
    }

    /// Releases the lease of a connection at the NAT.
    pub(super) fn release(&self, lease: Option<LeaseId>) {
        if lease.is_some() {
            let mut nat = self.nat();
            nat.release(lease);
            self.note_bindings(&nat);
        }
    }

    /// Publishes whether there are bindings now. Workers read this flag for each new connection, so it is
    /// written only if it changes.
    pub(super) fn note_bindings(&self, nat: &Nat) {
        let has_bindings = !nat.is_empty();
        if self.has_bindings() != has_bindings {
            self.has_bindings.store(has_bindings, Ordering::Relaxed);
        }
    }

    /// Whether there are NAT bindings.
    #[inline]
    pub(super) fn has_bindings(&self) -> bool {
        self.has_bindings.load(Ordering::Relaxed)
    }

    /// Publishes the owner of a connection to all workers, if the hash of its tuples does not determine the
    /// owner.
    ///
    /// # Errors
    /// The owner cannot be published. Nothing is changed.
    pub(super) fn claim(&self, table: &ConnectionTable, id: ConnId, worker: usize) -> Result<(), ClaimError> {
        let is_elsewhere = table.is_translated(id) || table.is_expected(id);
        if !self.is_shared_tuple(is_elsewhere) {
            return Ok(());
        }
        let [forward, reply] = table.tuples(id);
        if !is_elsewhere && !self.owners.is_elsewhere(&forward, worker) {
            return Ok(());
        }
        self.owners.claim(&forward, worker)?;
        self.owners.claim(&reply, worker).inspect_err(|_| self.owners.release(&forward, worker))
    }

    /// Withdraws the claims of a connection that ended.
    fn release_tuples(&self, connection: &Connection, worker: usize) {
        if self.is_shared_tuple(connection.is_translated() || connection.is_expected) {
            connection.tuples().iter().for_each(|tuple| self.owners.release(tuple, worker));
        }
    }

    /// Whether packets of a connection may arrive at a worker that does not own it. They may if the
    /// connection is translated, if a helper expected it (`is_elsewhere`), or if the distribution of hashes
    /// has changed. The forward tuple is claimed too: replies of another worker's connection must not have
    /// the same tuple.
    fn is_shared_tuple(&self, is_elsewhere: bool) -> bool {
        self.owners.owning() > 1 && (is_elsewhere || self.owners.has_changed())
    }

    /// The worker that owns a connection with this tuple.
    pub(crate) fn owner(&self, tuple: &Tuple) -> usize {
        self.owners.owner(tuple)
    }

    /// Sets which servers of rules accept new connections; `None` means all.
    pub(crate) fn set_open_servers(&self, changes: Vec<(RuleVersion, Option<OpenServers>)>) {
        if !changes.is_empty() {
            let mut nat = self.nat();
            changes.into_iter().for_each(|(rule, open)| nat.set_open_servers(rule, open));
        }
    }

    /// Deletes the NAT state of a rule that was removed.
    pub(crate) fn forget(&self, version: RuleVersion) {
        self.nat().forget(version);
    }
}

/// A worker's state to which connections refer, and which they release when they end.
pub(crate) struct WorkerState {
    pub(crate) worker: usize,
    pub(crate) sets: StatefulRuleSets,
    pub(super) shared: Arc<SharedState>,
    pub(crate) extensions: Extensions,
    pub(super) cells: Arc<WorkerCells>,
    pub(super) cache: VerdictCache,
    /// This worker's counters of rules.
    pub(super) rule_cells: RuleCells,
    /// This worker's counters of servers.
    pub(super) server_cells: ServerCells,
    pub(crate) watchers: Vec<Watcher>,
    pub(super) streams: Streams,
    /// The flows that the host forwards by itself.
    pub(super) flows: OffloadedFlows,
    /// The most connections that a source may open.
    pub(super) per_source: Option<u32>,
    /// The time of the last call, which never goes back.
    pub(crate) now_ns: u64,
    /// The same time in ms.
    pub(crate) now_ms: u64,
}

impl WorkerState {
    /// Reserves memory for the state of one more connection with these rules, so that creating the connection
    /// cannot fail for lack of memory.
    ///
    /// # Errors
    /// There is not enough memory.
    pub(super) fn reserve(&mut self, snapshot: &Snapshot, slots: &[RuleSlot]) -> Result<(), DropReason> {
        self.sets.reserve(snapshot, slots).map_err(|SetAllocError| DropReason::ConnNoMemory)?;
        self.extensions.reserve().map_err(|_| DropReason::ConnNoMemory)
    }

    /// Counts a new connection for the source of its first packet, if sources are counted. The new connection
    /// replaces the connection `replaced`.
    ///
    /// # Errors
    /// The source has reached its limit, or there is no memory to count it.
    pub(super) fn reserve_source(
        &self,
        arrived: &Tuple,
        replaced: Option<&Connection>,
    ) -> Result<(), DropReason> {
        let Some(max) = self.per_source else { return Ok(()) };
        let is_same_source = replaced.is_some_and(|connection| sources::counts_for(connection, arrived));
        self.shared.sources.begin(arrived, max.saturating_add(is_same_source.into())).map_err(|why| match why
        {
            SourceRefusal::Limit => DropReason::ConnPerSource,
            SourceRefusal::NoMemory => DropReason::ConnNoMemory,
        })
    }

    /// After [`WorkerState::reserve_source`]: keeps the count if the connection was created, otherwise
    /// reverts it. Returns whether the connection is counted.
    pub(super) fn commit_source(&self, arrived: &Tuple, is_created: bool) -> bool {
        let is_counted = self.per_source.is_some();
        if is_counted && !is_created {
            self.shared.sources.end(arrived);
        }
        is_counted && is_created
    }

    /// Removes a connection from the count of its source, if it is counted.
    pub(super) fn end_source(&self, connection: &Connection) {
        if let Some(source) = sources::counted(connection) {
            self.shared.sources.end(&source);
        }
    }

    /// Adds packets of a connection to the counters of its rules, after folding.
    #[inline]
    pub(super) fn credit(&self, unfolded: Option<Unfolded>) {
        unfolded.into_iter().for_each(|unfolded| self.cache.credit(&self.rule_cells, unfolded));
    }

    /// Whether events are sent.
    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        !self.watchers.is_empty()
    }

    /// Sends an event about a connection to all watchers. `expires_ms` is the time after which the connection
    /// ends without a packet.
    pub(super) fn notify(&mut self, connection: &Connection, expires_ms: u64, closed: Option<CloseReason>) {
        let event = ConnectionEvent {
            at_ns: self.now_ns,
            created: closed.is_none(),
            reason: closed.map(CloseReason::name),
            info: self.info(None, connection, expires_ms),
        };
        self.send(&WatchedEvent::Connection(event));
    }

    /// Sends an event to all watchers.
    pub(super) fn send(&self, event: &WatchedEvent) {
        let cells = &self.cells;
        for watcher in &self.watchers {
            // A disconnected watcher is soon removed from the list.
            if let Err(TrySendError::Full(_)) = watcher.events.try_send(event.clone()) {
                watcher.lost.fetch_add(1, Ordering::Relaxed);
                cells.event_lost();
            }
        }
    }

    /// A connection as shown in listings.
    pub(crate) fn info(
        &self,
        id: Option<ConnId>,
        connection: &Connection,
        expires_ms: u64,
    ) -> ConnectionInfo {
        let info = ConnectionInfo::new(
            self.worker,
            id,
            connection,
            (self.now_ms, expires_ms),
            connection.ids.rule_set.map(|set| self.sets.ids(set)).unwrap_or_default(),
        );
        ConnectionInfo { stream: self.stream_info(connection).map(Box::new), ..info }
    }
}

impl TableOwner for WorkerState {
    fn prefetch(&self, step: usize, ending: &mut dyn Iterator<Item = (ConnId, ResourceIds)>) {
        let nat = self.shared.has_bindings().then(|| self.shared.nat());
        for (id, ResourceIds { rule_set, lease, .. }) in ending {
            if step == 0 {
                self.cache.prefetch(id);
            }
            rule_set.into_iter().for_each(|set| self.sets.prefetch(set, step));
            if let (Some(nat), Some(lease)) = (&nat, lease) {
                nat.prefetch_release(lease, step);
            }
        }
    }

    fn closed(&mut self, connection: &Connection, reason: CloseReason) {
        self.release_own(connection, reason);
        self.shared.release(connection.ids.lease);
    }

    /// Locks the NAT once for all connections.
    fn closed_batch(&mut self, ended: impl Iterator<Item = (Connection, CloseReason)>) {
        let mut leases = ArrayVec::<LeaseId, CLOSE_BATCH>::new();
        for (connection, reason) in ended {
            self.release_own(&connection, reason);
            leases.extend(connection.ids.lease);
        }
        if !leases.is_empty() {
            let mut nat = self.shared.nat();
            leases.into_iter().for_each(|lease| nat.release(Some(lease)));
            self.shared.note_bindings(&nat);
        }
    }
}

impl WorkerState {
    /// Releases the worker's own state of a connection that has ended; the lease at the NAT remains.
    fn release_own(&mut self, connection: &Connection, reason: CloseReason) {
        self.end_source(connection);
        self.credit(connection.unfolded);
        connection.offloaded.into_iter().for_each(|id| self.end_flows(id));
        if self.is_watched() {
            self.notify(connection, 0, Some(reason));
        }
        self.shared.release_tuples(connection, self.worker);
        self.send_digests(connection);
        self.leave_server(connection);
        self.free_extension(connection.ids.extension);
        if let Some(set) = connection.ids.rule_set {
            self.sets.leave(set);
        }
        self.cells.connection_closed(reason);
    }
}
