//! The health of a port's device: the control thread writes it, the packet threads read it.

use std::sync::atomic::{AtomicU8, Ordering};

/// The state of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It works.
    Up,
    /// Its link is down, or it is disabled.
    Down,
    /// It does not exist any more; this is final.
    Gone,
}

/// The health of one device, as last seen.
#[derive(Debug, Default)]
pub(crate) struct Condition(AtomicU8);

impl Condition {
    #[inline]
    pub(crate) fn health(&self) -> Health {
        match self.0.load(Ordering::Relaxed) {
            0 => Health::Up,
            1 => Health::Down,
            _ => Health::Gone,
        }
    }

    /// Stores a new state; returns true if it differs from the last one. A device that is gone stays gone.
    pub(crate) fn note(&self, health: Health) -> bool {
        let before = self.health();
        if before == Health::Gone || before == health {
            return false;
        }
        self.0.store(health as u8, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_stays_gone() {
        let condition = Condition::default();
        assert_eq!(condition.health(), Health::Up);
        assert!(!condition.note(Health::Up));
        assert!(condition.note(Health::Down));
        assert!(condition.note(Health::Up));
        assert!(condition.note(Health::Gone));
        assert!(!condition.note(Health::Up));
        assert_eq!(condition.health(), Health::Gone);
    }
}
