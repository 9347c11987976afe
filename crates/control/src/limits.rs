//! What clients may take: places, memory and time. All of it is bounded, so that no client can hurt the
//! daemon or the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The bounds of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerLimits {
    /// Clients at once. Beyond, the one that has asked nothing for longest makes room; if none is idle, the
    /// new one is refused.
    pub clients: usize,
    /// Of these, those of one user that is neither root nor the daemon's own.
    pub clients_per_user: usize,
    /// Places beyond [`ServerLimits::clients`] for root and the daemon's own user.
    pub reserved: usize,
    /// How long a client may be connected without having made a request that is one.
    pub greeting: Duration,
    /// How long a client must have asked nothing before it may be made to go.
    pub idle: Duration,
    /// The longest request in bytes.
    pub request_bytes: usize,
    /// Bytes of requests that are read or worked on, over all clients of root and the daemon's own user, and as many over
    /// those of other users; what fits [`ServerLimits::small_request_bytes`] is not counted.
    pub pending_bytes: usize,
    /// Requests up to this length are taken however much is pending.
    pub small_request_bytes: usize,
    /// Clients that watch connections at once, of root and the daemon's own user, and as many of other users.
    pub monitors: usize,
    /// How long a request may take to arrive, and a full buffer of an answer to be read,
    pub grace: Duration,
    /// and how many bytes a client must move for each second beyond that.
    pub bytes_per_s: u32,
}

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits::DEFAULT
    }
}

impl ServerLimits {
    /// What a daemon grants unless told otherwise.
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
        grace: Duration::from_secs(10),
        bytes_per_s: 64 << 10,
    };

    /// How long moving so many bytes may take.
    pub(crate) fn time_for(&self, bytes: usize) -> Duration {
        self.grace + Duration::from_secs_f64(bytes as f64 / f64::from(self.bytes_per_s.max(1)))
    }
}

/// Something that all clients draw on: bytes, places.
#[derive(Clone, Debug)]
pub(crate) struct Budget(Arc<AtomicUsize>);

impl Budget {
    /// A budget of so much.
    pub(crate) fn new(much: usize) -> Budget {
        Budget(Arc::new(AtomicUsize::new(much)))
    }

    /// A share of the budget, empty yet.
    pub(crate) fn share(&self) -> BudgetShare {
        BudgetShare { budget: self.clone(), drawn: 0 }
    }
}

/// What some clients draw on together.
#[derive(Clone, Debug)]
pub(crate) struct BudgetPools {
    /// Bytes of requests.
    pub(crate) pending: Budget,
    /// Places for clients that watch.
    pub(crate) monitors: Budget,
}

impl BudgetPools {
    pub(crate) fn new(limits: &ServerLimits) -> BudgetPools {
        BudgetPools { pending: Budget::new(limits.pending_bytes), monitors: Budget::new(limits.monitors) }
    }
}

/// What one request has drawn; given back when dropped.
#[derive(Debug)]
pub(crate) struct BudgetShare {
    budget: Budget,
    drawn: usize,
}

impl BudgetShare {
    /// Draws more, up to `much` in all. Says whether there was enough; if not, nothing is drawn.
    pub(crate) fn grow_to(&mut self, much: usize) -> bool {
        let more = much.saturating_sub(self.drawn);
        let taken = self
            .budget
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(more))
            .is_ok();
        if taken {
            self.drawn += more;
        }
        taken
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.drawn, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_bounded_together_and_given_back() {
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
