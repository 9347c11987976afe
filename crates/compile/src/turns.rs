//! Whose turn it is to compile.
//!
//! Three turns exist: one for root and the daemon's own user, so that other users never delay them, one for all other
//! users, and one for the automatic rollback of an unconfirmed change, which must not wait for any of them. A turn goes to
//! the applicant whose user has had none for the longest time, so that users with many requests do not delay the others.

use mmb_base::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a waiting thread checks whether its result is still wanted.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// The number of users whose last turn is remembered.
const MAX_REMEMBERED: usize = 256;

/// The user for whom patterns are compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applicant {
    /// Root, the daemon's own user, or the daemon itself.
    Trusted,
    /// The daemon, which takes back an unconfirmed change.
    Rollback,
    /// Another user, by its id if that is known.
    User(Option<u32>),
}

/// The three turns.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    trusted: Arc<Queue>,
    rollback: Arc<Queue>,
    others: Arc<Queue>,
}

/// The right to compile, until the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Turn {
    _place: Arc<Place>,
    /// Another applicant had the turn, or waited for it, when this one asked.
    waited: bool,
}

impl Turn {
    /// Whether another applicant came first. That applicant may have changed the policy.
    pub fn has_waited(&self) -> bool {
        self.waited
    }
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<QueueState>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    is_taken: bool,
    /// The applicants that have had a turn, the last one at the end.
    served: Vec<Applicant>,
    waiting: VecDeque<(u64, Applicant)>,
    next_ticket: u64,
}

#[derive(Debug)]
struct Place(Arc<Queue>);

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.0.state).is_taken = false;
        self.0.freed.notify_all();
    }
}

impl Turns {
    /// Waits for a turn. Returns `None` when `is_over` returns true or the deadline has passed.
    pub(crate) fn take(
        &self,
        applicant: Applicant,
        deadline: Instant,
        is_over: &dyn Fn() -> bool,
    ) -> Option<Turn> {
        let queue = match applicant {
            Applicant::Trusted => &self.trusted,
            Applicant::Rollback => &self.rollback,
            Applicant::User(_) => &self.others,
        };
        let mut state = lock(&queue.state);
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.waiting.push_back((ticket, applicant));
        let waited = state.is_taken || state.waiting.len() > 1;
        let mut has_it = state.take(ticket);
        while !has_it && !is_over() && Instant::now() < deadline {
            // Nothing notifies this thread when `is_over` changes.
            let (again, _) = queue.freed.wait_timeout(state, LOOK).unwrap_or_else(PoisonError::into_inner);
            state = again;
            has_it = state.take(ticket);
        }
        state.waiting.retain(|(waiting, _)| *waiting != ticket);
        drop(state);
        if !has_it {
            // This ticket may have been the next one: the others check again.
            queue.freed.notify_all();
            return None;
        }
        Some(Turn { _place: Arc::new(Place(Arc::clone(queue))), waited })
    }
}

impl QueueState {
    /// Takes the turn if it is free and this ticket is the next one.
    fn take(&mut self, ticket: u64) -> bool {
        let last_turn = |applicant: &Applicant| self.served.iter().position(|served| served == applicant);
        let next = self.waiting.iter().min_by_key(|(ticket, applicant)| (last_turn(applicant), *ticket));
        let Some(&(_, applicant)) = next.filter(|(next, _)| !self.is_taken && *next == ticket) else {
            return false;
        };
        self.is_taken = true;
        self.served.retain(|served| *served != applicant);
        if self.served.len() == MAX_REMEMBERED {
            self.served.remove(0);
        }
        self.served.push(applicant);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[test]
    fn other_users_do_not_delay_root() {
        let turns = Turns::default();
        let other = turns.take(Applicant::User(Some(1000)), soon(), &|| false).expect("free");
        assert!(turns.take(Applicant::Trusted, soon(), &|| false).is_some_and(|turn| !turn.has_waited()));
        assert!(turns.take(Applicant::User(Some(1001)), soon(), &|| true).is_none(), "taken");
        drop(other);
        assert!(turns.take(Applicant::User(Some(1001)), soon(), &|| true).is_some(), "and free again");
    }

    #[test]
    fn two_users_with_many_requests_do_not_delay_a_third() {
        let mut queue = QueueState::default();
        let users = [1000, 1001, 1000, 1001, 1000, 1001, 1002].map(|user| Applicant::User(Some(user)));
        queue.waiting = (0..).zip(users).collect();
        let mut order = Vec::new();
        while let Some(&(ticket, _)) = (0..7)
            .find(|ticket| queue.take(*ticket))
            .and_then(|taken| queue.waiting.iter().find(|(ticket, _)| *ticket == taken))
        {
            queue.waiting.retain(|(waiting, _)| *waiting != ticket);
            queue.is_taken = false;
            order.push(ticket);
        }
        assert_eq!(order, [0, 1, 6, 2, 3, 4, 5]);
    }

    #[test]
    fn an_automatic_rollback_waits_for_nobody() {
        let turns = Turns::default();
        let _root = turns.take(Applicant::Trusted, soon(), &|| false).expect("free");
        let _other = turns.take(Applicant::User(Some(1000)), soon(), &|| false).expect("free");
        assert!(turns.take(Applicant::Rollback, soon(), &|| true).is_some_and(|turn| !turn.has_waited()));
    }

    #[test]
    fn a_turn_lasts_until_its_last_clone_is_dropped() {
        let turns = Turns::default();
        let turn = turns.take(Applicant::Trusted, soon(), &|| false).expect("free");
        let clone = turn.clone();
        drop(turn);
        assert!(turns.take(Applicant::Trusted, soon(), &|| true).is_none());
        assert!(turns.take(Applicant::Trusted, Instant::now(), &|| false).is_none(), "the deadline");
        drop(clone);
        assert!(turns.take(Applicant::Trusted, soon(), &|| true).is_some());
    }

    #[test]
    fn users_take_turns() {
        let (alice, bob) = (Applicant::User(Some(1000)), Applicant::User(Some(1001)));
        let mut state = QueueState { is_taken: true, served: vec![alice], ..QueueState::default() };
        state.waiting.extend([(0, alice), (1, alice), (2, bob), (3, bob)]);
        let mut order = Vec::new();
        while !state.waiting.is_empty() {
            state.is_taken = false;
            let next = (0..4).find(|ticket| state.take(*ticket)).expect("somebody is next");
            state.waiting.retain(|(ticket, _)| *ticket != next);
            order.push(next);
        }
        assert_eq!(order, [2, 0, 3, 1]);
    }
}
