//! Where secrets of live hosts come from: the operating system's generator.

use mmb_random::SeedTree;
use rustix::rand::{GetRandomFlags, getrandom};
use std::time::{Duration, Instant};

/// The operating system gives no random numbers: nothing that must be secret would be.
#[derive(Debug, thiserror::Error)]
#[error("cannot get random numbers from the operating system (getrandom): {0}")]
pub struct EntropyError(#[from] rustix::io::Errno);

/// A tree of secrets that nobody knows and that no other call gives again.
///
/// # Errors
/// There are no random numbers.
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

/// How long generators go on with the same entropy.
const RESEEDED: Duration = Duration::from_secs(600);

/// When generators are to get fresh entropy.
#[derive(Debug)]
pub(crate) struct ReseedTimer {
    due: Instant,
}

impl ReseedTimer {
    /// They have just got some.
    pub(crate) fn begin(now: Instant) -> ReseedTimer {
        ReseedTimer { due: now + RESEEDED }
    }

    /// Fresh entropy, if it is time. Without any to be had, generators go on as they are, and this is tried again.
    pub(crate) fn fresh(&mut self, now: Instant) -> Option<SeedTree> {
        if now < self.due {
            return None;
        }
        let fresh = seed_tree().ok()?;
        self.due = now + RESEEDED;
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
