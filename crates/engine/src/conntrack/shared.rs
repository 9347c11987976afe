//! What hangs on connections: what workers share, and what each keeps beside its table.

use super::Watcher;
use super::extension::Extensions;
use super::owner_map::{ClaimError, OwnerMap};
use super::rule_sets::{SetAllocError, StatefulRuleSets};
use super::sources::{self, SourceCounts, SourceRefusal};
use crate::cells::WorkerCells;
use crate::drop::DropReason;
use mmb_base::lock;
use mmb_conn::nat::Nat;
use mmb_conn::{CloseReason, ConnId, Connection, Direction, Tuple};
use mmb_random::{Purpose, SeedTree};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::TrySendError;
use std::sync::{Arc, Mutex, MutexGuard};

/// What the workers of an engine share. It is locked when a connection with a translation begins or ends, and for packets that
/// belong elsewhere: never for those of a worker's own connections.
pub(crate) struct SharedState {
    pub(super) nat: Mutex<Nat>,
    /// How many inside ends have an outside end.
    pub(super) bindings: AtomicUsize,
    /// How many workers have connections.
    pub(super) busy: AtomicUsize,
    pub(crate) owners: OwnerMap,
    /// How many connections there is memory for, whatever policies say.
    pub(crate) memory: AtomicUsize,
    sources: SourceCounts,
}

impl SharedState {
    /// What workers share of which so many, the first ones, own connections.
    pub(crate) fn new(owning: usize, seeds: &SeedTree) -> SharedState {
        SharedState {
            nat: Mutex::new(Nat::new(seeds)),
            bindings: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            memory: AtomicUsize::new(usize::MAX),
            sources: SourceCounts::new(),
            owners: OwnerMap::new(owning, seeds.shared(Purpose::Owners)),
        }
    }

    /// See [`crate::Engine::reseed`].
    pub(crate) fn reseed(&self, fresh: &SeedTree) {
        self.nat().reseed(fresh);
    }

    pub(super) fn nat(&self) -> MutexGuard<'_, Nat> {
        lock(&self.nat)
    }

    /// What a connection held is not held any more.
    pub(super) fn release(&self, binding: u32) {
        if binding != 0 {
            let mut nat = self.nat();
            nat.release(binding);
            self.bindings.store(nat.len(), Ordering::Relaxed);
        }
    }

    /// Tells all workers whose a connection is, where its tuples do not say so.
    ///
    /// # Errors
    /// They cannot be told. Nothing is changed.
    pub(super) fn claim(&self, connection: &Connection, worker: usize) -> Result<(), ClaimError> {
        let [forward, reply] = connection.tuples();
        let is_told = self.is_shared_tuple(connection)
            && (is_translated(connection) || self.owners.is_stray(&forward, worker));
        if !is_told {
            return Ok(());
        }
        self.owners.claim(&forward, worker)?;
        self.owners.claim(&reply, worker).inspect_err(|_| self.owners.release(&forward, worker))
    }

    /// The connection has ended.
    fn release_tuples(&self, connection: &Connection, worker: usize) {
        if self.is_shared_tuple(connection) {
            connection.tuples().iter().for_each(|tuple| self.owners.release(tuple, worker));
        }
    }

    /// Whether there are workers to whom packets of a connection could go wrong. Its forward tuple is claimed too: nobody else's replies
    /// may have it.
    fn is_shared_tuple(&self, connection: &Connection) -> bool {
        self.owners.owning() > 1 && (is_translated(connection) || self.owners.has_changed())
    }

    /// The worker that a connection with this tuple belongs to.
    pub(crate) fn owner(&self, tuple: &Tuple) -> usize {
        self.owners.of(tuple)
    }

    /// Forgets a rule that is gone.
    pub(crate) fn forget(&self, stamp: u64) {
        self.nat().forget(stamp as u32);
    }
}

fn is_translated(connection: &Connection) -> bool {
    connection.translated(Direction::Forward).is_some()
}

/// What hangs on connections, and is let go of when they end.
pub(crate) struct WorkerState {
    pub(crate) worker: usize,
    pub(crate) sets: StatefulRuleSets,
    pub(super) shared: Arc<SharedState>,
    pub(crate) extras: Extensions,
    pub(super) cells: Arc<WorkerCells>,
    pub(crate) watchers: Vec<Watcher>,
    /// The most connections that a source may begin.
    pub(super) per_source: Option<u32>,
    pub(crate) now_ms: u64,
}

impl WorkerState {
    /// Memory for what hangs on one connection more, of so many rules: what is taken for it then is there.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn reserve(&mut self, rules: usize) -> Result<(), DropReason> {
        self.sets.reserve(rules).map_err(|SetAllocError| DropReason::ConnNoMemory)?;
        self.extras.reserve().map_err(|_| DropReason::ConnNoMemory)
    }

    /// Counts a connection to come for the source of its first packet, if sources are counted. `ends` ends when it begins.
    ///
    /// # Errors
    /// The source has begun as many as it may, or there is no memory to count them.
    pub(super) fn reserve_source(
        &self,
        arrived: &Tuple,
        ends: Option<&Connection>,
    ) -> Result<(), DropReason> {
        let Some(most) = self.per_source else { return Ok(()) };
        let replaced = ends.is_some_and(|connection| sources::counts_for(connection, arrived));
        self.shared.sources.begin(arrived, most.saturating_add(replaced.into())).map_err(|why| match why {
            SourceRefusal::Limit => DropReason::ConnPerSource,
            SourceRefusal::NoMemory => DropReason::ConnNoMemory,
        })
    }

    /// Keeps or takes back what [`WorkerState::reserve_source`] counted.
    pub(super) fn commit_source(&self, arrived: &Tuple, connection: Option<&mut Connection>) {
        match (self.per_source, connection) {
            (None, _) => {}
            (Some(_), Some(connection)) => sources::mark(connection),
            (Some(_), None) => self.shared.sources.end(arrived),
        }
    }

    /// A connection has ended.
    pub(super) fn closed(&mut self, connection: &Connection, reason: CloseReason) {
        if let Some(source) = sources::counted(connection) {
            self.shared.sources.end(&source);
        }
        self.notify(connection, Some(reason));
        self.shared.release(connection.binding);
        self.shared.release_tuples(connection, self.worker);
        self.extras.free(connection.extra);
        self.sets.leave(sources::rule_set(connection));
        self.cells.connection_closed(reason);
    }

    /// Tells whoever watches.
    pub(super) fn notify(&mut self, connection: &Connection, closed: Option<CloseReason>) {
        if self.watchers.is_empty() {
            return;
        }
        let event = crate::connections::ConnectionEvent {
            created: closed.is_none(),
            reason: closed.map(CloseReason::name),
            info: self.info(ConnId(0), connection, 0),
        };
        let cells = &self.cells;
        for watcher in &self.watchers {
            // One that has gone is soon taken off the list.
            if let Err(TrySendError::Full(_)) = watcher.events.try_send(event.clone()) {
                watcher.lost.fetch_add(1, Ordering::Relaxed);
                cells.event_lost();
            }
        }
    }

    /// A connection for people.
    pub(crate) fn info(
        &self,
        id: ConnId,
        connection: &Connection,
        expires_ms: u64,
    ) -> crate::connections::ConnectionInfo {
        crate::connections::ConnectionInfo::new(
            self.worker,
            id,
            connection,
            (self.now_ms, expires_ms),
            self.sets.ids(sources::rule_set(connection)),
        )
    }
}
