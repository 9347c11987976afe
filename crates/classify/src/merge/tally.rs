//! Counts the sampled keys of each relaxed key, in a hash table that is reused for every mask.

use super::group::{MergeLimits, MergedTuple};
use crate::lane_mask::LaneMask;

/// Counts by relaxed key.
pub(super) struct KeyCounts {
    keys: Vec<u64>,
    counts: Vec<u32>,
    used: Vec<usize>,
    /// Keys that were ever counted.
    pub(super) counted: usize,
}

impl KeyCounts {
    /// An empty table with room for all sampled keys of the tuples.
    pub(super) fn new(tuples: &[MergedTuple]) -> KeyCounts {
        let max: usize = tuples.iter().map(|tuple| tuple.sample.len()).sum();
        let size = (max * 2 + 2).next_power_of_two();
        KeyCounts { keys: vec![0; size], counts: vec![0; size], used: Vec::new(), counted: 0 }
    }

    /// Sets all counts to zero.
    pub(super) fn clear(&mut self) {
        self.used.drain(..).for_each(|index| self.counts[index] = 0);
    }

    fn place(&self, key: u64) -> usize {
        let mut index = key as usize & (self.keys.len() - 1);
        while self.counts[index] != 0 && self.keys[index] != key {
            index = (index + 1) & (self.keys.len() - 1);
        }
        index
    }

    /// Counts what a mask leaves of a key; returns its place, and its count before.
    pub(super) fn add(&mut self, key: &LaneMask, mask: &LaneMask) -> (usize, u32) {
        let key = relaxed_hash(key, mask);
        let index = self.place(key);
        let before = self.counts[index];
        if before == 0 {
            self.keys[index] = key;
            self.used.push(index);
        }
        self.counts[index] = before + 1;
        (index, before)
    }

    /// The count of a key under a mask.
    pub(super) fn count(&self, key: &LaneMask, mask: &LaneMask) -> u32 {
        self.counts[self.place(relaxed_hash(key, mask))]
    }

    /// Relaxed keys that were counted.
    pub(super) fn distinct(&self) -> usize {
        self.used.len()
    }

    /// Adds a tuple's keys if that keeps the limits.
    pub(super) fn take_in(
        &mut self,
        sample: &[LaneMask],
        mask: &LaneMask,
        share: f64,
        limits: MergeLimits,
    ) -> bool {
        let before = self.used.len();
        let max_shared = limits.mean * share * sample.len() as f64;
        // One or two that meet in a small sample are chance.
        let longest = limits.max * share;
        let longest = if share < 1.0 { longest.max(3.0) } else { longest };
        let (mut shared, mut fits) = (0.0, true);
        let mut placed = Vec::with_capacity(sample.len());
        for key in sample {
            let (index, others) = self.add(key, mask);
            placed.push(index);
            shared += f64::from(others);
            fits = shared <= max_shared && f64::from(others) <= longest;
            if !fits {
                break;
            }
        }
        self.counted += placed.len();
        if fits {
            return true;
        }
        // Backwards, so that what was empty before is empty again.
        placed.into_iter().rev().for_each(|index| self.counts[index] -= 1);
        self.used.truncate(before);
        false
    }
}

/// Two relaxed keys have one hash by chance so seldom that it is taken for the key.
fn relaxed_hash(key: &LaneMask, mask: &LaneMask) -> u64 {
    key.iter().zip(mask).fold(0x9e37_79b9_7f4a_7c15, |hash: u64, (lane, mask)| {
        let mixed = (hash ^ u64::from(lane & mask)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^ mixed >> 32
    })
}
