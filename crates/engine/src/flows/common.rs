//! What hangs on connections: what workers share, and what each keeps beside its table.

use super::Watcher;
use super::extra::Extras;
use super::owners::Owners;
use super::sets::RuleSets;
use crate::cells::WorkerCells;
use mmb_conn::nat::Nat;
use mmb_conn::{CloseReason, ConnId, Connection, Direction, Tuple};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What the workers of an engine share. It is locked when a connection with a translation begins or ends, and for packets that
/// belong elsewhere: never for those of a worker's own connections.
pub(crate) struct Common {
    pub(super) nat: Mutex<Nat>,
    /// How many inside ends have an outside end.
    pub(super) bindings: AtomicUsize,
    /// How many workers have connections.
    pub(super) busy: AtomicUsize,
    pub(super) owners: Owners,
}

impl Common {
    /// What so many workers share.
    pub(crate) fn new(workers: usize, seed: u64) -> Common {
        Common {
            nat: Mutex::new(Nat::new(seed)),
            bindings: AtomicUsize::new(0),
            busy: AtomicUsize::new(0),
            owners: Owners::new(workers, seed),
        }
    }

    pub(super) fn nat(&self) -> MutexGuard<'_, Nat> {
        self.nat.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a connection held is not held any more.
    pub(super) fn release(&self, binding: u32) {
        if binding != 0 {
            let mut nat = self.nat();
            nat.release(binding);
            self.bindings.store(nat.len(), Ordering::Relaxed);
        }
    }

    /// Tells all workers whose a connection is, where its tuples do not say so. False if a tuple is that of another worker's.
    pub(super) fn claim(&self, connection: &Connection, worker: usize) -> bool {
        let Some([forward, reply]) = self.to_be_told(connection) else { return true };
        let claimed = self.owners.claim(&forward, worker);
        if claimed && self.owners.claim(&reply, worker) {
            return true;
        }
        if claimed {
            self.owners.let_go(&forward, worker);
        }
        false
    }

    /// The connection has ended.
    fn let_go(&self, connection: &Connection, worker: usize) {
        if let Some(tuples) = self.to_be_told(connection) {
            tuples.iter().for_each(|tuple| self.owners.let_go(tuple, worker));
        }
    }

    /// The tuples of a connection if it is translated and there are workers to whom replies could go wrong. Its forward one belongs to
    /// them too: nobody else's replies may have it.
    fn to_be_told(&self, connection: &Connection) -> Option<[Tuple; 2]> {
        let is_told = self.owners.workers() > 1 && connection.translated(Direction::Forward).is_some();
        is_told.then(|| connection.tuples())
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

/// What hangs on connections, and is let go of when they end.
pub(crate) struct Keeper {
    pub(crate) worker: usize,
    pub(crate) sets: RuleSets,
    pub(super) common: Arc<Common>,
    pub(super) extras: Extras,
    pub(super) cells: Arc<WorkerCells>,
    pub(crate) watchers: Vec<Watcher>,
    pub(crate) now_ms: u64,
}

impl Keeper {
    /// A connection has ended.
    pub(super) fn closed(&mut self, connection: &Connection, reason: CloseReason) {
        self.tell(connection, Some(reason));
        self.common.release(connection.binding);
        self.common.let_go(connection, self.worker);
        self.extras.free(connection.extra);
        self.sets.leave(connection.rules);
        self.cells.connection_closed(reason);
    }

    /// Tells whoever watches.
    pub(super) fn tell(&mut self, connection: &Connection, closed: Option<CloseReason>) {
        if self.watchers.is_empty() {
            return;
        }
        let event = crate::connections::Event {
            created: closed.is_none(),
            reason: closed.map(CloseReason::name),
            info: self.info(ConnId(0), connection, 0),
        };
        let cells = &self.cells;
        self.watchers.retain(|watcher| match watcher.try_send(event.clone()) {
            Ok(()) => true,
            Err(std::sync::mpsc::TrySendError::Full(_)) => {
                cells.event_lost();
                true
            }
            Err(std::sync::mpsc::TrySendError::Disconnected(_)) => false,
        });
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
            self.sets.rules(connection.rules).map(|rule| rule.id).collect(),
        )
    }
}
