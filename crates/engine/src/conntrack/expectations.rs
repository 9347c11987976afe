//! The connections that a worker's helpers expect.
//!
//! Purpose: a control connection has announced that its responder will begin a connection, whose source port
//! is not known. The first SYN that matches creates the connection and uses up the expectation.
//!
//! Life-cycle: [`Expectations::insert`] adds an expectation when a command was read. [`Expectations::take`]
//! removes it when the SYN arrives. Otherwise [`Expectations::take_expired`] removes it after
//! [`LIFETIME_MS`], or soon after [`Expectations::cancel`]. An expectation is cancelled at the latest when
//! its control connection ends. The caller that removes an expectation owns its resources, and passes them on
//! or releases them: a NAT lease, a use of the rule set, and the claim of its tuple among workers.
//!
//! The table belongs to one worker, which also owns the control connections. Its memory is allocated once,
//! when the worker is created.

use arrayvec::ArrayVec;
use hashbrown::HashTable;
use mmb_conn::{DESTINATION, LeaseId, RuleSetId, Tuple, TupleHasher};
use mmb_random::Seed;

/// How long a connection is expected, in milliseconds. A server connects when the client's next command
/// requests a transfer.
pub(super) const LIFETIME_MS: u64 = 60_000;
/// The most expected connections of a worker.
pub(super) const MAX_EXPECTED: usize = 1024;
/// The most expected connections of one client.
const MAX_PER_CLIENT: usize = 128;
/// The interval of the search for expired expectations, in milliseconds, and how many are removed at once.
const SWEEP_MS: u64 = 1000;
const REMOVED_AT_ONCE: usize = 32;

/// An expected connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expectation {
    /// The tuple of its first packet as it arrives, with source port 0: the source port is not known.
    pub(super) arrives: Tuple,
    /// The same tuple as the packet leaves.
    pub(super) leaves: Tuple,
    /// The lease of its outside port, if the control connection is translated.
    pub(super) lease: Option<LeaseId>,
    /// The rules of the control connection.
    pub(super) rule_set: Option<RuleSetId>,
}

/// A reference to an expectation. It is no longer valid after the expectation was removed or refreshed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExpectedRef {
    hash: u64,
    serial: u32,
}

/// Counts of expected connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpectedCounts {
    /// Expected now.
    pub now: u64,
    /// All that were expected since the start.
    pub inserted: u64,
    /// Of these, those that began.
    pub used: u64,
    /// Of these, those that did not begin in time, or whose control connection has ended.
    pub expired: u64,
}

/// Why an expectation is not inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occupied {
    /// The same expectation exists. Its lifetime restarts.
    Same(ExpectedRef),
    /// Another expectation has the tuple, or there are too many expectations.
    Other,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    expectation: Expectation,
    hash: u64,
    serial: u32,
    /// 0 if it was cancelled.
    expires_ms: u64,
}

impl Entry {
    fn is(&self, reference: ExpectedRef) -> bool {
        (self.hash, self.serial) == (reference.hash, reference.serial)
    }
}

/// The expected connections of a worker.
#[derive(Debug)]
pub(super) struct Expectations {
    /// By the hash of `arrives`.
    entries: HashTable<Entry>,
    hasher: TupleHasher,
    serials: u32,
    /// The time of the next search for expired expectations.
    sweep_ms: u64,
    counts: ExpectedCounts,
}

impl Expectations {
    pub(super) fn new(seed: Seed) -> Expectations {
        Expectations {
            entries: HashTable::with_capacity(MAX_EXPECTED),
            hasher: TupleHasher::new(seed),
            serials: 0,
            sweep_ms: 0,
            counts: ExpectedCounts::default(),
        }
    }

    /// The counts of this worker's expected connections.
    pub(super) fn counts(&self) -> ExpectedCounts {
        ExpectedCounts { now: self.entries.len() as u64, ..self.counts }
    }

    /// Whether no connection is expected.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether there is room for another expectation.
    pub(super) fn has_room(&self) -> bool {
        self.entries.len() < MAX_EXPECTED.min(self.entries.capacity())
    }

    /// Checks whether an expectation may be inserted. If the same expectation exists, its lifetime
    /// restarts.
    ///
    /// # Errors
    /// The same expectation exists, or this one must not be inserted.
    pub(super) fn admit_or_refresh(&mut self, new: &Expectation, now_ms: u64) -> Result<(), Occupied> {
        let hash = self.hasher.hash(&new.arrives);
        let same = |entry: &Entry| entry.expectation.arrives == new.arrives;
        let Some(entry) = self.entries.find_mut(hash, same) else {
            let client = |tuple: &Tuple| tuple.addresses[DESTINATION];
            let of_client =
                self.entries.iter().filter(|entry| client(&entry.expectation.leaves) == client(&new.leaves));
            let admits = self.has_room() && of_client.count() < MAX_PER_CLIENT;
            return if admits { Ok(()) } else { Err(Occupied::Other) };
        };
        if entry.expectation.leaves != new.leaves || entry.expires_ms <= now_ms {
            return Err(Occupied::Other);
        }
        self.serials = self.serials.wrapping_add(1);
        (entry.serial, entry.expires_ms) = (self.serials, now_ms + LIFETIME_MS);
        Err(Occupied::Same(ExpectedRef { hash, serial: self.serials }))
    }

    /// Inserts an expectation that [was admitted](Expectations::admit_or_refresh).
    pub(super) fn insert(&mut self, expectation: Expectation, now_ms: u64) -> ExpectedRef {
        let hash = self.hasher.hash(&expectation.arrives);
        self.serials = self.serials.wrapping_add(1);
        let serial = self.serials;
        if self.entries.is_empty() {
            self.sweep_ms = now_ms + SWEEP_MS;
        }
        let entry = Entry { expectation, hash, serial, expires_ms: now_ms + LIFETIME_MS };
        self.entries.insert_unique(hash, entry, |entry| entry.hash);
        self.counts.inserted += 1;
        ExpectedRef { hash, serial }
    }

    /// The expectation of a connection whose first packet arrives with this tuple.
    pub(super) fn find(&self, arrived: &Tuple, now_ms: u64) -> Option<&Expectation> {
        let arrives = arrived.from_any_port();
        let same = |entry: &Entry| entry.expectation.arrives == arrives && entry.expires_ms > now_ms;
        self.entries.find(self.hasher.hash(&arrives), same).map(|entry| &entry.expectation)
    }

    /// Removes the expectation of a connection whose first packet arrives with this tuple, and returns it.
    pub(super) fn take(&mut self, arrived: &Tuple, now_ms: u64) -> Option<Expectation> {
        let arrives = arrived.from_any_port();
        let same = |entry: &Entry| entry.expectation.arrives == arrives && entry.expires_ms > now_ms;
        let (entry, _) = self.entries.find_entry(self.hasher.hash(&arrives), same).ok()?.remove();
        self.counts.used += 1;
        Some(entry.expectation)
    }

    /// Cancels an expectation if it still exists. It is removed at the next search for expired ones.
    pub(super) fn cancel(&mut self, reference: ExpectedRef) {
        if let Some(entry) = self.entries.find_mut(reference.hash, |entry| entry.is(reference)) {
            (entry.expires_ms, self.sweep_ms) = (0, 0);
        }
    }

    /// Whether it is time to search for expired expectations.
    #[inline]
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        !self.entries.is_empty() && now_ms >= self.sweep_ms
    }

    /// Removes and returns some of the expired expectations, at most [`REMOVED_AT_ONCE`]. Returns an
    /// empty vector if no expired expectation is left.
    pub(super) fn take_expired(&mut self, now_ms: u64) -> ArrayVec<Expectation, REMOVED_AT_ONCE> {
        let is_over = |entry: &mut Entry| entry.expires_ms <= now_ms;
        let expired: ArrayVec<Expectation, REMOVED_AT_ONCE> =
            self.entries.extract_if(is_over).take(REMOVED_AT_ONCE).map(|entry| entry.expectation).collect();
        self.counts.expired += expired.len() as u64;
        if expired.is_empty() {
            self.sweep_ms = now_ms + SWEEP_MS;
        }
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expectation(port: u16) -> Expectation {
        let arrives = Tuple { addresses: [1, 2], ports: [0, port], proto: 6, family: 4, ..Tuple::default() };
        Expectation { arrives, leaves: arrives, lease: None, rule_set: None }
    }

    fn of_client(port: u16, client: u16) -> Expectation {
        let mut expectation = expectation(port);
        expectation.leaves.addresses[DESTINATION] = client.into();
        expectation
    }

    fn table() -> Expectations {
        Expectations::new(Seed::repeatable(1))
    }

    fn from_port(port: u16) -> Tuple {
        Tuple { ports: [20, port], ..expectation(port).arrives }
    }

    #[test]
    fn each_is_used_once() {
        let mut table = table();
        table.insert(expectation(2000), 0);
        assert!(table.find(&from_port(2000), 1).is_some());
        assert!(table.find(&from_port(2001), 1).is_none());
        assert!(table.take(&from_port(2000), 1).is_some());
        assert!(table.take(&from_port(2000), 1).is_none());
        assert_eq!(table.counts(), ExpectedCounts { inserted: 1, used: 1, ..ExpectedCounts::default() });
    }

    #[test]
    fn they_expire_or_are_cancelled() {
        let mut table = table();
        let first = table.insert(expectation(2000), 0);
        table.insert(expectation(2001), 10);
        assert!(!table.is_due(SWEEP_MS - 1));
        table.cancel(first);
        assert!(table.is_due(11) && table.find(&from_port(2000), 11).is_none());
        assert_eq!(table.take_expired(11).len(), 1);
        assert!(table.take_expired(11).is_empty() && !table.is_due(12));
        assert!(table.find(&from_port(2001), LIFETIME_MS + 9).is_some());
        assert!(table.find(&from_port(2001), LIFETIME_MS + 10).is_none(), "before it is given up");
        assert_eq!(table.take_expired(LIFETIME_MS + 10).len(), 1);
        assert_eq!(table.counts(), ExpectedCounts { inserted: 2, expired: 2, ..ExpectedCounts::default() });
    }

    #[test]
    fn one_client_leaves_room_for_others() {
        let mut table = table();
        for port in 1..=MAX_PER_CLIENT as u16 {
            assert_eq!(table.admit_or_refresh(&of_client(port, 7), 1), Ok(()));
            table.insert(of_client(port, 7), 1);
        }
        assert_eq!(table.admit_or_refresh(&of_client(5000, 7), 1), Err(Occupied::Other));
        assert_eq!(table.admit_or_refresh(&of_client(5000, 8), 1), Ok(()));
    }

    #[test]
    fn the_same_one_lives_on_and_there_are_not_too_many() {
        let mut table = table();
        let first = table.insert(expectation(1024), 0);
        assert!(
            matches!(table.admit_or_refresh(&expectation(1024), 50_000), Err(Occupied::Same(now)) if now != first)
        );
        table.cancel(first);
        assert!(table.find(&from_port(1024), LIFETIME_MS + 1).is_some(), "who announced it first has no say");
        let leaves = expectation(5).arrives;
        let other = Expectation { leaves, ..expectation(1024) };
        assert_eq!(table.admit_or_refresh(&other, 1), Err(Occupied::Other));
        let capacity = table.entries.capacity();
        for port in 1025..1024 + MAX_EXPECTED as u16 {
            let of_client = of_client(port, port / 100);
            assert_eq!(table.admit_or_refresh(&of_client, 1), Ok(()));
            table.insert(of_client, 1);
        }
        assert_eq!(table.admit_or_refresh(&expectation(9999), 1), Err(Occupied::Other));
        assert_eq!(table.entries.capacity(), capacity);
        assert!(table.find(&from_port(1500), 2).is_some());
    }
}
