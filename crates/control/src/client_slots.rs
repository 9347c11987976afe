//! Slots of connected clients, by user.
//!
//! Root and the daemon's own user are *trusted*: slots are reserved for them, and other users have budgets of their own (slots, memory for
//! requests, `monitor`). So root can always query the daemon, however many clients other users connect. One other user cannot take all slots
//! of the rest either. A user with subordinate ids (`/etc/subuid`) can connect from user namespaces under 65,536 of them and more: all ids
//! from [`SUBORDINATE`] on count as one user, also those of a directory's users.

use crate::limits::ServerLimits;
use mmb_compile::Applicant;
use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The first subordinate user id (`SUB_UID_MIN` of login.defs, the default of useradd).
const SUBORDINATE: u32 = 100_000;

/// The user at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerUser {
    /// Root, or the user that the daemon runs as.
    Trusted,
    /// Another user, by id; [`SUBORDINATE`] stands for all ids from there on. `None`: the system does not tell.
    Other(Option<u32>),
}

impl PeerUser {
    /// Returns the user that connected, as the kernel recorded it.
    pub(crate) fn of(stream: &UnixStream) -> PeerUser {
        match rustix::net::sockopt::socket_peercred(stream) {
            Ok(peer) if peer.uid.is_root() || peer.uid == rustix::process::geteuid() => PeerUser::Trusted,
            Ok(peer) => PeerUser::with_id(peer.uid.as_raw()),
            Err(_) => PeerUser::Other(None),
        }
    }

    /// The applicant for which the compiler of patterns takes this user.
    pub(crate) fn applicant(self) -> Applicant {
        match self {
            PeerUser::Trusted => Applicant::Trusted,
            PeerUser::Other(uid) => Applicant::User(uid),
        }
    }

    fn with_id(uid: u32) -> PeerUser {
        PeerUser::Other(Some(uid.min(SUBORDINATE)))
    }
}

/// The reason why there is no slot for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SlotRefusal {
    #[error("{0} clients are connected and busy; try again")]
    AllSlots(usize),
    #[error("{0} clients of this user are connected and busy; try again")]
    User(usize),
}

/// The slots that are taken.
#[derive(Debug, Default)]
pub(crate) struct ClientSlots {
    next: u64,
    taken: BTreeMap<u64, ClientSlot>,
}

#[derive(Debug)]
struct ClientSlot {
    stream: Arc<UnixStream>,
    peer: PeerUser,
    /// The time since which the client is idle; `None` while a request is read or answered.
    idle_since: Option<Instant>,
}

impl ClientSlots {
    /// Gives a client a slot, if necessary that of the client that has been idle longest. Returns the number of the slot.
    pub(crate) fn take(
        &mut self,
        stream: &Arc<UnixStream>,
        peer: PeerUser,
        limits: &ServerLimits,
    ) -> Result<u64, SlotRefusal> {
        let slots = match peer {
            PeerUser::Trusted => limits.clients + limits.reserved,
            PeerUser::Other(_) => {
                let of_user = self.taken.values().filter(|slot| slot.peer == peer).count();
                let is_evictable = |slot: &ClientSlot| slot.peer == peer;
                if of_user >= limits.clients_per_user && !self.evict(limits.idle, is_evictable) {
                    return Err(SlotRefusal::User(limits.clients_per_user));
                }
                limits.clients
            }
        };
        // Only a trusted client evicts a trusted client.
        let is_evictable = |slot: &ClientSlot| peer == PeerUser::Trusted || slot.peer != PeerUser::Trusted;
        if self.taken.len() >= slots && !self.evict(limits.idle, is_evictable) {
            return Err(SlotRefusal::AllSlots(slots));
        }
        let number = self.next;
        self.next += 1;
        self.taken.insert(number, ClientSlot { stream: Arc::clone(stream), peer, idle_since: None });
        Ok(number)
    }

    /// Disconnects the client that has been idle longest, of those that are evictable, if it was idle for `min_idle`.
    fn evict(&mut self, min_idle: Duration, is_evictable: impl Fn(&ClientSlot) -> bool) -> bool {
        let slots = self.taken.iter().filter(|(_, slot)| is_evictable(slot));
        let idle = slots.filter_map(|(number, slot)| Some((slot.idle_since?, *number))).min();
        let evicted = idle.filter(|(since, _)| since.elapsed() >= min_idle);
        match evicted.and_then(|(_, number)| self.taken.remove(&number)) {
            Some(slot) => {
                let _ = slot.stream.shutdown(Shutdown::Both);
                true
            }
            None => false,
        }
    }

    /// Frees the slot of a client, unless it was evicted before.
    pub(crate) fn free(&mut self, number: u64) {
        self.taken.remove(&number);
    }

    /// Marks a client as idle or active.
    pub(crate) fn set_idle(&mut self, number: u64, idle: bool) {
        if let Some(slot) = self.taken.get_mut(&number) {
            slot.idle_since = idle.then(Instant::now);
        }
    }

    /// Shuts down one or both directions of every connection.
    pub(crate) fn shut(&self, how: Shutdown) {
        for slot in self.taken.values() {
            let _ = slot.stream.shutdown(how);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ServerLimits =
        ServerLimits { clients: 6, clients_per_user: 4, reserved: 1, ..ServerLimits::DEFAULT };
    const ALICE: PeerUser = PeerUser::Other(Some(1000));
    const BOB: PeerUser = PeerUser::Other(Some(1001));

    struct SlotTest {
        slots: ClientSlots,
        limits: ServerLimits,
        others: Vec<UnixStream>,
    }

    impl SlotTest {
        fn new(limits: ServerLimits) -> SlotTest {
            SlotTest { slots: ClientSlots::default(), limits, others: Vec::new() }
        }

        fn connect(&mut self, peer: PeerUser) -> Result<u64, SlotRefusal> {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            self.others.push(theirs);
            self.slots.take(&Arc::new(ours), peer, &self.limits)
        }
    }

    #[test]
    fn root_connects_when_all_slots_are_taken_and_active() {
        let mut test = SlotTest::new(LIMITS);
        (0..4).for_each(|_| assert!(test.connect(ALICE).is_ok()));
        (0..2).for_each(|_| assert!(test.connect(BOB).is_ok()));
        assert_eq!(test.connect(BOB), Err(SlotRefusal::AllSlots(6)));
        assert!(test.connect(PeerUser::Trusted).is_ok(), "a slot is reserved");
        assert_eq!(test.connect(BOB), Err(SlotRefusal::AllSlots(6)), "and not for other users");
        assert_eq!(test.connect(PeerUser::Trusted), Err(SlotRefusal::AllSlots(7)), "it is one slot");
    }

    #[test]
    fn one_user_does_not_take_all_slots() {
        let mut test = SlotTest::new(LIMITS);
        let first = test.connect(ALICE).expect("a slot");
        (0..3).for_each(|_| assert!(test.connect(ALICE).is_ok()));
        assert_eq!(test.connect(ALICE), Err(SlotRefusal::User(4)));
        assert!(test.connect(BOB).is_ok());
        test.slots.free(first);
        assert!(test.connect(ALICE).is_ok(), "a freed slot can be taken again");
        assert_eq!(test.connect(ALICE), Err(SlotRefusal::User(4)));
    }

    /// The 65,536 subordinate ids of one user took all slots.
    #[test]
    fn subordinate_users_share_the_places_of_one() {
        let mut test = SlotTest::new(LIMITS);
        (0..4).for_each(|number| assert!(test.connect(PeerUser::with_id(165_536 + number)).is_ok()));
        assert_eq!(test.connect(PeerUser::with_id(231_072)), Err(SlotRefusal::User(4)));
        assert!(
            test.connect(PeerUser::with_id(1000)).is_ok() && test.connect(PeerUser::with_id(65_534)).is_ok()
        );
    }

    #[test]
    fn at_its_limit_a_user_loses_its_own_idle_client_only() {
        let mut test = SlotTest::new(ServerLimits { idle: Duration::ZERO, ..LIMITS });
        let bob = test.connect(BOB).expect("a slot");
        test.slots.set_idle(bob, true);
        let alice = test.connect(ALICE).expect("a slot");
        (0..3).for_each(|_| assert!(test.connect(ALICE).is_ok()));
        assert_eq!(test.connect(ALICE), Err(SlotRefusal::User(4)), "bob's is idle, and stays");
        test.slots.set_idle(alice, true);
        assert!(test.connect(ALICE).is_ok());
        assert!(!test.slots.taken.contains_key(&alice) && test.slots.taken.contains_key(&bob));
    }

    #[test]
    fn other_users_do_not_evict_root() {
        let mut test = SlotTest::new(ServerLimits { idle: Duration::ZERO, clients: 1, ..LIMITS });
        let root = test.connect(PeerUser::Trusted).expect("a slot");
        test.slots.set_idle(root, true);
        assert_eq!(test.connect(ALICE), Err(SlotRefusal::AllSlots(1)));
        let second = test.connect(PeerUser::Trusted).expect("the reserved one");
        assert!(test.connect(PeerUser::Trusted).is_ok(), "root's idle client makes room for root");
        assert!(!test.slots.taken.contains_key(&root) && test.slots.taken.contains_key(&second));
    }

    #[test]
    fn the_kernel_tells_the_user_at_the_other_end() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        assert_eq!(PeerUser::of(&ours), PeerUser::Trusted, "this process itself");
    }
}
