//! Limits of clients: their number, memory and time. All resources are bounded, so that no client can harm the daemon or other clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The limits of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Clients at the same time. A further one replaces the client that has been idle longest; if none is idle, it is refused.
    pub clients: usize,
    /// The share of these clients that one user may have, other than root and the daemon's own user.
    pub clients_per_user: usize,
    /// Clients beyond [`ServerLimits::clients`] for root and the daemon's own user.
    pub reserved: usize,
    /// The time within which a client must send its first valid request.
    pub greeting: Duration,
    /// The time without a request after which a client may be replaced.
    pub idle: Duration,
    /// The longest request in bytes.
    pub request_bytes: usize,
    /// Bytes of requests that are read or executed, over all clients of root and the daemon's own user, and again over those of other users.
    /// Requests of at most [`ServerLimits::small_request_bytes`] are not counted.
    pub pending_bytes: usize,
    /// Requests up to this length are accepted whatever is pending.
    pub small_request_bytes: usize,
    /// Clients that run `monitor` at the same time, of root and the daemon's own user, and again of other users.
    pub monitors: usize,
    /// Clients that run `trace` or `capture` at the same time, likewise.
    pub taps: usize,
    /// Clients that compare versions of the policy (`diff`) at the same time, likewise.
    pub differences: usize,
    /// The time that a request may take to arrive, and a full buffer of an answer to be read,
    pub grace: Duration,
    /// and the bytes that a client must transfer for each second beyond that.
    pub bytes_per_s: u32,
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits::DEFAULT
    }
}

impl ServerLimits {
    /// The limits of a daemon by default.
    pub const DEFAULT: ServerLimits = ServerLimits {
        clients: 256,
        clients_per_user: 64,
        reserved: 8,
        greeting: Duration::from_secs(10),
        idle: Duration::from_secs(2),
        request_bytes: 256 << 20,
        pending_bytes: 256 << 20,
        small_request_bytes: 64 << 10,
        monitors: 16,
        taps: 4,
        differences: 2,
        grace: Duration::from_secs(10),
        bytes_per_s: 64 << 10,
    };

    /// Returns the time that the transfer of so many bytes may take.
    pub(crate) fn time_for(&self, bytes: usize) -> Duration {
        self.grace + Duration::from_secs_f64(bytes as f64 / f64::from(self.bytes_per_s.max(1)))
    }
}

/// An amount that all clients share: bytes, or a number of clients.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<AtomicUsize>);

impl Budget {
    /// Creates a budget of that amount.
    pub(crate) fn new(amount: usize) -> Budget {
        Budget(Arc::new(AtomicUsize::new(amount)))
    }

    /// Returns an empty share of the budget.
    pub(crate) fn share(&self) -> BudgetShare {
        BudgetShare { budget: self.clone(), taken: 0 }
    }
}

/// The budgets of a group of clients.
#[derive(Clone, Debug)]
pub(crate) struct BudgetPools {
    /// Bytes of requests.
    pub(crate) pending: Budget,
    /// Clients that run `monitor`.
    pub(crate) monitors: Budget,
    /// Clients that run `trace` or `capture`.
    pub(crate) taps: Budget,
    /// Clients that compare versions of the policy.
    pub(crate) differences: Budget,
}

impl BudgetPools {
    pub(crate) fn new(limits: &ServerLimits) -> BudgetPools {
        BudgetPools {
            pending: Budget::new(limits.pending_bytes),
            monitors: Budget::new(limits.monitors),
            taps: Budget::new(limits.taps),
            differences: Budget::new(limits.differences),
        }
    }
}

/// The amount that one request has taken; returned on drop.
#[derive(Debug)]
pub(crate) struct BudgetShare {
    budget: Budget,
    taken: usize,
}

impl BudgetShare {
    /// Takes more, up to `amount` in all. Returns whether there was enough; if not, nothing is taken.
    pub(crate) fn grow_to(&mut self, amount: usize) -> bool {
        let more = amount.saturating_sub(self.taken);
        let is_enough = self
            .budget
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(more))
            .is_ok();
        if is_enough {
            self.taken += more;
        }
        is_enough
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.taken, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_bounded_together_and_returned() {
        let budget = Budget::new(100);
        let (mut a, mut b) = (budget.share(), budget.share());
        assert!(a.grow_to(60));
        assert!(!b.grow_to(50));
        assert!(b.grow_to(40));
        assert!(a.grow_to(30), "growing to less is nothing");
        drop(a);
        assert!(b.grow_to(100));
        drop(b);
        assert!(budget.share().grow_to(100));
    }
}
