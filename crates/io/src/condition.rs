//! The health of a port's device and its longest frame: the control thread writes them, the packet threads read them.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// The state of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// It works.
    Up,
    /// Its link is down, or it is disabled.
    Down,
    /// It does not exist any more. This is final: a new device of the same name is opened again, with a condition of its own.
    Gone,
}

/// One device, as last seen.
#[derive(Debug)]
pub(crate) struct Condition {
    health: AtomicU8,
    largest: AtomicU32,
}

impl Condition {
    /// A device that is up; `largest` is the longest frame that may be sent, in bytes.
    pub(crate) fn new(largest: u32) -> Condition {
        Condition { health: AtomicU8::new(Health::Up as u8), largest: AtomicU32::new(largest) }
    }

    /// The longest frame that may be sent, in bytes.
    #[inline]
    pub(crate) fn largest(&self) -> usize {
        self.largest.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn set_largest(&self, largest: u32) {
        self.largest.store(largest, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn health(&self) -> Health {
        match self.health.load(Ordering::Relaxed) {
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
        self.health.store(health as u8, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_stays_gone() {
        let condition = Condition::new(1530);
        assert_eq!(condition.health(), Health::Up);
        assert!(!condition.note(Health::Up));
        assert!(condition.note(Health::Down));
        assert!(condition.note(Health::Up));
        assert!(condition.note(Health::Gone));
        assert!(!condition.note(Health::Up));
        assert_eq!(condition.health(), Health::Gone);
    }
}
