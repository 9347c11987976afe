//! Who may be connected: the places of clients, by user.
//!
//! Root and the daemon's own user are *trusted*: places are reserved for them, and what other users take is theirs alone
//! (places, memory for requests, places to watch). So whoever may talk to the daemon, all its places taken or not, root can still
//! ask it what is going on. One other user cannot take all places of the rest either. A user to whom subordinate numbers are given
//! (`/etc/subuid`) connects from user namespaces under 65,536 of these and more: all numbers from [`SUBORDINATE`] on count as one
//! user, those of a directory's users too.

use crate::limits::ServerLimits;
use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// From here on user numbers are subordinate ones (`SUB_UID_MIN` of login.defs, useradd's default).
const SUBORDINATE: u32 = 100_000;

/// The user at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerUser {
    /// Root, or the user that the daemon runs as.
    Trusted,
    /// Another one, by number; all of [`SUBORDINATE`] and above are that one. `None`: the system does not tell.
    Other(Option<u32>),
}

impl PeerUser {
    /// Who connected, as the kernel has noted it then.
    pub(crate) fn of(stream: &UnixStream) -> PeerUser {
        match rustix::net::sockopt::socket_peercred(stream) {
            Ok(peer) if peer.uid.is_root() || peer.uid == rustix::process::geteuid() => PeerUser::Trusted,
            Ok(peer) => PeerUser::numbered(peer.uid.as_raw()),
            Err(_) => PeerUser::Other(None),
        }
    }

    fn numbered(uid: u32) -> PeerUser {
        PeerUser::Other(Some(uid.min(SUBORDINATE)))
    }
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SlotRefusal {
    #[error("{0} clients are connected and busy; try again")]
    Everybody(usize),
    #[error("{0} clients of this user are connected and busy; try again")]
    User(usize),
}

/// The places that are taken.
#[derive(Debug, Default)]
pub(crate) struct ClientSlots {
    next: u64,
    taken: BTreeMap<u64, ClientSlot>,
}

#[derive(Debug)]
struct ClientSlot {
    stream: Arc<UnixStream>,
    peer: PeerUser,
    /// Since when its client has asked nothing; `None` while it is asking or being answered.
    idle_since: Option<Instant>,
}

impl ClientSlots {
    /// Gives a client a place, if need be that of the client that has asked nothing for longest. Returns its number.
    pub(crate) fn take(
        &mut self,
        stream: &Arc<UnixStream>,
        peer: PeerUser,
        limits: &ServerLimits,
    ) -> Result<u64, SlotRefusal> {
        let places = match peer {
            PeerUser::Trusted => limits.clients + limits.reserved,
            PeerUser::Other(_) => {
                let of_user = self.taken.values().filter(|slot| slot.peer == peer).count();
                let may_go = |slot: &ClientSlot| slot.peer == peer;
                if of_user >= limits.clients_per_user && !self.evict(limits.idle, may_go) {
                    return Err(SlotRefusal::User(limits.clients_per_user));
                }
                limits.clients
            }
        };
        // Nobody else makes a trusted client go.
        let may_go = |slot: &ClientSlot| peer == PeerUser::Trusted || slot.peer != PeerUser::Trusted;
        if self.taken.len() >= places && !self.evict(limits.idle, may_go) {
            return Err(SlotRefusal::Everybody(places));
        }
        let number = self.next;
        self.next += 1;
        self.taken.insert(number, ClientSlot { stream: Arc::clone(stream), peer, idle_since: None });
        Ok(number)
    }

    /// Ends the conversation of the client that was idle longest, of those that may go.
    fn evict(&mut self, at_least: Duration, may_go: impl Fn(&ClientSlot) -> bool) -> bool {
        let slots = self.taken.iter().filter(|(_, slot)| may_go(slot));
        let idle = slots.filter_map(|(number, slot)| Some((slot.idle_since?, *number))).min();
        let gone = idle.filter(|(since, _)| since.elapsed() >= at_least);
        match gone.and_then(|(_, number)| self.taken.remove(&number)) {
            Some(slot) => {
                let _ = slot.stream.shutdown(Shutdown::Both);
                true
            }
            None => false,
        }
    }

    /// A client has gone; its place may have been given away before.
    pub(crate) fn free(&mut self, number: u64) {
        self.taken.remove(&number);
    }

    /// A client begins to ask nothing, or asks.
    pub(crate) fn set_idle(&mut self, number: u64, idle: bool) {
        if let Some(slot) = self.taken.get_mut(&number) {
            slot.idle_since = idle.then(Instant::now);
        }
    }

    /// Ends one or both ways of every connection.
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

        fn come(&mut self, peer: PeerUser) -> Result<u64, SlotRefusal> {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            self.others.push(theirs);
            self.slots.take(&Arc::new(ours), peer, &self.limits)
        }
    }

    #[test]
    fn root_gets_in_when_every_place_is_taken_and_busy() {
        let mut world = SlotTest::new(LIMITS);
        (0..4).for_each(|_| assert!(world.come(ALICE).is_ok()));
        (0..2).for_each(|_| assert!(world.come(BOB).is_ok()));
        assert_eq!(world.come(BOB), Err(SlotRefusal::Everybody(6)));
        assert!(world.come(PeerUser::Trusted).is_ok(), "a place is reserved");
        assert_eq!(world.come(BOB), Err(SlotRefusal::Everybody(6)), "and not for others");
        assert_eq!(world.come(PeerUser::Trusted), Err(SlotRefusal::Everybody(7)), "it is one place");
    }

    #[test]
    fn one_user_does_not_take_all_places() {
        let mut world = SlotTest::new(LIMITS);
        let first = world.come(ALICE).expect("a place");
        (0..3).for_each(|_| assert!(world.come(ALICE).is_ok()));
        assert_eq!(world.come(ALICE), Err(SlotRefusal::User(4)));
        assert!(world.come(BOB).is_ok());
        world.slots.free(first);
        assert!(world.come(ALICE).is_ok(), "a place that is free again is theirs");
        assert_eq!(world.come(ALICE), Err(SlotRefusal::User(4)));
    }

    /// Sixty-five thousand subordinate numbers of one user took every place.
    #[test]
    fn subordinate_users_share_the_places_of_one() {
        let mut world = SlotTest::new(LIMITS);
        (0..4).for_each(|number| assert!(world.come(PeerUser::numbered(165_536 + number)).is_ok()));
        assert_eq!(world.come(PeerUser::numbered(231_072)), Err(SlotRefusal::User(4)));
        assert!(
            world.come(PeerUser::numbered(1000)).is_ok() && world.come(PeerUser::numbered(65_534)).is_ok()
        );
    }

    #[test]
    fn at_its_bound_a_user_loses_its_own_idle_client_and_nobody_elses() {
        let mut world = SlotTest::new(ServerLimits { idle: Duration::ZERO, ..LIMITS });
        let bob = world.come(BOB).expect("a place");
        world.slots.set_idle(bob, true);
        let alice = world.come(ALICE).expect("a place");
        (0..3).for_each(|_| assert!(world.come(ALICE).is_ok()));
        assert_eq!(world.come(ALICE), Err(SlotRefusal::User(4)), "bob's is idle, and stays");
        world.slots.set_idle(alice, true);
        assert!(world.come(ALICE).is_ok());
        assert!(!world.slots.taken.contains_key(&alice) && world.slots.taken.contains_key(&bob));
    }

    #[test]
    fn users_do_not_send_root_away() {
        let mut world = SlotTest::new(ServerLimits { idle: Duration::ZERO, clients: 1, ..LIMITS });
        let root = world.come(PeerUser::Trusted).expect("a place");
        world.slots.set_idle(root, true);
        assert_eq!(world.come(ALICE), Err(SlotRefusal::Everybody(1)));
        let second = world.come(PeerUser::Trusted).expect("the reserved one");
        assert!(world.come(PeerUser::Trusted).is_ok(), "root's idle client makes room for root");
        assert!(!world.slots.taken.contains_key(&root) && world.slots.taken.contains_key(&second));
    }

    #[test]
    fn the_user_at_the_other_end_is_told_by_the_kernel() {
        let (ours, _theirs) = UnixStream::pair().expect("a pair");
        assert_eq!(PeerUser::of(&ours), PeerUser::Trusted, "this process itself");
    }
}
