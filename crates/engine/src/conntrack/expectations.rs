//! The connections that a worker's helpers expect.
//!
//! Purpose: a control connection has announced that its responder will begin a connection; which source port that has is not known. The first SYN that
//! fits makes the connection, and the expectation is over.
//!
//! Life-cycle: [`Expectations::insert`] when a command was read, [`Expectations::take`] with the SYN, otherwise [`Expectations::take_expired`] after
//! [`LIFETIME_MS`], or soon after [`Expectations::cancel`], with the control connection at the latest. Whoever takes one has what it holds, and
//! passes it on or releases it: a NAT lease, a use of the rule set, the claim of its tuple among workers.
//!
//! The table belongs to one worker, that of the control connections. Its memory is got when a policy with helpers comes into force.

use arrayvec::ArrayVec;
use hashbrown::HashTable;
use mmb_conn::nat::LeaseId;
use mmb_conn::{DESTINATION, RuleSetId, Tuple, TupleHasher};
use mmb_random::Seed;

/// How long a connection is expected: a server connects when the next command asks it to.
pub(super) const LIFETIME_MS: u64 = 60_000;
/// Expected connections of a worker.
pub(super) const MOST_EXPECTED: usize = 1024;
/// Of these, those of one client.
const MOST_OF_CLIENT: usize = 128;
/// How often expired ones are looked for, and how many of them are given up at once.
const SWEEP_MS: u64 = 1000;
const TOGETHER: usize = 32;

/// A connection that is expected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expectation {
    /// The tuple of its packets as they arrive, from any port.
    pub(super) arrives: Tuple,
    /// The same as they leave.
    pub(super) leaves: Tuple,
    /// The outside port that it has.
    pub(super) lease: Option<LeaseId>,
    /// The rules of the control connection.
    pub(super) rule_set: Option<RuleSetId>,
}

/// An expectation, as long as it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExpectedRef {
    hash: u64,
    serial: u32,
}

/// What became of expected connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExpectedCounts {
    /// Expected now.
    pub now: u64,
    /// Ever expected.
    pub made: u64,
    /// Of these, those that began.
    pub used: u64,
    /// Of these, those that did not begin in time, or whose control connection has ended.
    pub expired: u64,
}

/// Why an expectation is not recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occupied {
    /// The same one is there, and has its whole time again.
    Same(ExpectedRef),
    /// Another one has its tuple, or there are too many.
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
    fn is(&self, of: ExpectedRef) -> bool {
        (self.hash, self.serial) == (of.hash, of.serial)
    }
}

/// The expected connections of a worker.
#[derive(Debug)]
pub(super) struct Expectations {
    /// By the hash of `arrives`.
    entries: HashTable<Entry>,
    hasher: TupleHasher,
    serials: u32,
    /// When to look for expired ones again.
    sweep_ms: u64,
    counts: ExpectedCounts,
}

impl Expectations {
    pub(super) fn new(seed: Seed) -> Expectations {
        Expectations {
            entries: HashTable::with_capacity(MOST_EXPECTED),
            hasher: TupleHasher::new(seed),
            serials: 0,
            sweep_ms: 0,
            counts: ExpectedCounts::default(),
        }
    }

    /// What became of them.
    pub(super) fn counts(&self) -> ExpectedCounts {
        ExpectedCounts { now: self.entries.len() as u64, ..self.counts }
    }

    /// Whether there are none.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Whether another one has room.
    pub(super) fn has_room(&self) -> bool {
        self.entries.len() < MOST_EXPECTED.min(self.entries.capacity())
    }

    /// Whether one may be recorded. One that is there already has its whole time again.
    ///
    /// # Errors
    /// It is there already, or it has no place.
    pub(super) fn admit_or_refresh(&mut self, new: &Expectation, now_ms: u64) -> Result<(), Occupied> {
        let hash = self.hasher.hash(&new.arrives);
        let same = |entry: &Entry| entry.expectation.arrives == new.arrives;
        let Some(entry) = self.entries.find_mut(hash, same) else {
            let client = |of: &Tuple| of.addresses[DESTINATION];
            let of_client =
                self.entries.iter().filter(|entry| client(&entry.expectation.leaves) == client(&new.leaves));
            let admits = self.has_room() && of_client.count() < MOST_OF_CLIENT;
            return if admits { Ok(()) } else { Err(Occupied::Other) };
        };
        if entry.expectation.leaves != new.leaves || entry.expires_ms <= now_ms {
            return Err(Occupied::Other);
        }
        self.serials = self.serials.wrapping_add(1);
        (entry.serial, entry.expires_ms) = (self.serials, now_ms + LIFETIME_MS);
        Err(Occupied::Same(ExpectedRef { hash, serial: self.serials }))
    }

    /// Records an expectation that [is admitted](Expectations::admit_or_refresh).
    pub(super) fn insert(&mut self, expectation: Expectation, now_ms: u64) -> ExpectedRef {
        let hash = self.hasher.hash(&expectation.arrives);
        self.serials = self.serials.wrapping_add(1);
        let serial = self.serials;
        if self.entries.is_empty() {
            self.sweep_ms = now_ms + SWEEP_MS;
        }
        let entry = Entry { expectation, hash, serial, expires_ms: now_ms + LIFETIME_MS };
        self.entries.insert_unique(hash, entry, |entry| entry.hash);
        self.counts.made += 1;
        ExpectedRef { hash, serial }
    }

    /// The expectation of a connection whose first packet arrives with this tuple.
    pub(super) fn find(&self, arrived: &Tuple, now_ms: u64) -> Option<&Expectation> {
        let arrives = arrived.from_any_port();
        let same = |entry: &Entry| entry.expectation.arrives == arrives && entry.expires_ms > now_ms;
        self.entries.find(self.hasher.hash(&arrives), same).map(|entry| &entry.expectation)
    }

    /// Takes the expectation of a connection that begins with this tuple.
    pub(super) fn take(&mut self, arrived: &Tuple, now_ms: u64) -> Option<Expectation> {
        let arrives = arrived.from_any_port();
        let same = |entry: &Entry| entry.expectation.arrives == arrives && entry.expires_ms > now_ms;
        let (entry, _) = self.entries.find_entry(self.hasher.hash(&arrives), same).ok()?.remove();
        self.counts.used += 1;
        Some(entry.expectation)
    }

    /// Ends an expectation, if it is still there: it is given up with the next ones that expire.
    pub(super) fn cancel(&mut self, of: ExpectedRef) {
        if let Some(entry) = self.entries.find_mut(of.hash, |entry| entry.is(of)) {
            (entry.expires_ms, self.sweep_ms) = (0, 0);
        }
    }

    /// Whether some may have expired.
    #[inline]
    pub(super) fn is_due(&self, now_ms: u64) -> bool {
        !self.entries.is_empty() && now_ms >= self.sweep_ms
    }

    /// Takes some of those that have expired; none if there are no more.
    pub(super) fn take_expired(&mut self, now_ms: u64) -> ArrayVec<Expectation, TOGETHER> {
        let is_over = |entry: &mut Entry| entry.expires_ms <= now_ms;
        let expired: ArrayVec<Expectation, TOGETHER> =
            self.entries.extract_if(is_over).take(TOGETHER).map(|entry| entry.expectation).collect();
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
        assert_eq!(table.counts(), ExpectedCounts { made: 1, used: 1, ..ExpectedCounts::default() });
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
        assert_eq!(table.counts(), ExpectedCounts { made: 2, expired: 2, ..ExpectedCounts::default() });
    }

    #[test]
    fn one_client_leaves_room_for_others() {
        let mut table = table();
        for port in 1..=MOST_OF_CLIENT as u16 {
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
        for port in 1025..1024 + MOST_EXPECTED as u16 {
            let of_client = of_client(port, port / 100);
            assert_eq!(table.admit_or_refresh(&of_client, 1), Ok(()));
            table.insert(of_client, 1);
        }
        assert_eq!(table.admit_or_refresh(&expectation(9999), 1), Err(Occupied::Other));
        assert_eq!(table.entries.capacity(), capacity);
        assert!(table.find(&from_port(1500), 2).is_some());
    }
}
