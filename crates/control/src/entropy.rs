//! The source of secrets of live hosts: the operating system's random number generator.

use mmb_random::SeedTree;
use rustix::rand::{GetRandomFlags, getrandom};
use std::time::{Duration, Instant};

/// The operating system gives no random numbers.
#[derive(Debug, thiserror::Error)]
#[error("cannot get random numbers from the operating system (getrandom): {0}")]
pub struct EntropyError(#[from] rustix::io::Errno);

/// Creates a tree of secrets from the system's entropy, different at each call.
///
/// # Errors
/// The system gives no random numbers.
pub fn seed_tree() -> Result<SeedTree, EntropyError> {
    let mut entropy = [0; 32];
    let mut filled = 0;
    while filled < entropy.len() {
        match getrandom(&mut entropy[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(SeedTree::new(entropy))
}

/// The interval at which generators get fresh entropy.
const RESEED_INTERVAL: Duration = Duration::from_secs(600);

/// The time at which generators get fresh entropy.
#[derive(Debug)]
pub(crate) struct ReseedTimer {
    due: Instant,
}

impl ReseedTimer {
    /// Starts the timer; generators have just got entropy.
    pub(crate) fn begin(now: Instant) -> ReseedTimer {
        ReseedTimer { due: now + RESEED_INTERVAL }
    }

    /// Returns fresh entropy if it is time. If the system gives none, generators keep theirs, and the next call tries again.
    pub(crate) fn fresh(&mut self, now: Instant) -> Option<SeedTree> {
        if now < self.due {
            return None;
        }
        let fresh = seed_tree().ok()?;
        self.due = now + RESEED_INTERVAL;
        Some(fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_random::{Generator, Purpose};

    #[test]
    fn two_hosts_share_no_secret() {
        let word = || {
            let tree = seed_tree().expect("Linux has a generator");
            Generator::new(tree.shared(Purpose::NatChoices)).word()
        };
        assert_ne!(word(), word());
    }

    #[test]
    fn fresh_entropy_comes_when_it_is_due() {
        let start = Instant::now();
        let mut reseeding = ReseedTimer::begin(start);
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(reseeding.fresh(after(599)).is_none());
        assert!(reseeding.fresh(after(600)).is_some());
        assert!(reseeding.fresh(after(1199)).is_none());
        assert!(reseeding.fresh(after(1200)).is_some());
    }
}
