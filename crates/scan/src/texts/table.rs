//! A hash table with numbers as keys.

use crate::filter::MULTIPLIER;
use mmb_base::{Block, prefetch};
use std::fmt;

/// Values by a number that is not zero. It does not change after it is built.
#[derive(Debug)]
pub(super) struct Table<T> {
    /// By the high bits of the number; a slot that is taken by another one sends on to the next. Half of all are free.
    slots: Block<Slot<T>>,
    shift: u32,
}

/// A number with its value. Free if the number is zero.
#[derive(Clone, Copy, Debug, Default)]
struct Slot<T> {
    number: u64,
    value: T,
}

impl<T: Copy + Default + fmt::Debug> Table<T> {
    /// `None` without memory.
    pub(super) fn new(values: impl ExactSizeIterator<Item = (u64, T)>) -> Option<Table<T>> {
        let count = (2 * values.len()).next_power_of_two().max(2);
        let mut slots = Block::try_new(count).ok()?;
        (0..count).for_each(|_| slots.push(Slot::default()));
        let mut table = Table { slots, shift: 64 - count.trailing_zeros() };
        for (number, value) in values {
            let place = table.place(number);
            table.slots[place] = Slot { number, value };
        }
        Some(table)
    }

    /// The value of a number.
    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<&T> {
        let slot = &self.slots[self.place(number)];
        (slot.number == number).then_some(&slot.value)
    }

    /// Fetches what [`Table::get`] will read.
    #[inline]
    pub(super) fn prefetch(&self, number: u64) {
        if let Some(slot) = self.slots.get(self.first_place(number)) {
            prefetch(slot);
        }
    }

    #[inline]
    fn first_place(&self, number: u64) -> usize {
        (number.wrapping_mul(MULTIPLIER) >> self.shift) as usize
    }

    /// The slot of a number, or the free one where it is missing.
    #[inline]
    fn place(&self, number: u64) -> usize {
        let mut place = self.first_place(number);
        while ![0, number].contains(&self.slots[place].number) {
            place = (place + 1) & (self.slots.len() - 1);
        }
        place
    }
}
