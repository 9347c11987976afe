//! Exchanges of a connection that are not over: which constraints of which rules are met in each.
//!
//! An exchange has a *slot* for each of the connection's rules, in which a bit stands for each constraint that is met. All slots lie in one
//! array: many rules leave room for few exchanges, and further requests wait.

use crate::plan::{FAILED, RuleBits, places};

/// Slots of all exchanges, with one of flags for each.
const SLOTS: usize = 128;
/// The most rules of one connection.
pub const MAX_LIVE_RULES: usize = SLOTS - 1;
/// The most exchanges, as a reader has them at most.
const MAX_EXCHANGES: usize = mmb_http::MAX_OUTSTANDING;

/// The flag of an exchange whose request forbids changes.
const NO_TRANSFORM: u16 = 1;

/// The exchanges, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Exchanges {
    slots: [u16; SLOTS],
    /// Slots of an exchange.
    stride: u8,
    first: u8,
    count: u8,
    /// Exchanges before the first one whose rules were changed: nothing is known of them.
    stale: u8,
    /// The response of the only exchange is complete, its request is not.
    is_answered: bool,
}

/// An exchange that is not over, by its age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ExchangeId(u8);

impl Exchanges {
    pub(crate) fn new(rules: usize) -> Exchanges {
        let stride = rules.min(MAX_LIVE_RULES) as u8 + 1;
        Exchanges { slots: [0; SLOTS], stride, first: 0, count: 0, stale: 0, is_answered: false }
    }

    /// Whether the slots are for so many rules.
    pub(crate) fn fits(&self, rules: usize) -> bool {
        usize::from(self.stride) == rules + 1
    }

    /// Forgets what is known of exchanges: their rules are others now.
    pub(crate) fn change_rules(&mut self, rules: usize) {
        let (stale, is_answered) = (self.stale + self.count, self.is_answered);
        *self = Exchanges { stale, is_answered, ..Exchanges::new(rules) };
    }

    /// Whether no exchange is under way.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0 && self.stale == 0
    }

    /// The rules at these places are met by no exchange that has begun.
    pub(crate) fn fail(&mut self, gone: RuleBits) {
        for id in (0..self.count).map(ExchangeId) {
            let slots = self.live_slots_mut(id);
            let rules = slots.len();
            places(gone).filter(|place| *place < rules).for_each(|place| slots[place] = FAILED);
        }
    }

    fn capacity(&self) -> usize {
        (SLOTS / usize::from(self.stride)).min(MAX_EXCHANGES)
    }

    /// Whether another exchange has room.
    pub(crate) fn has_room(&self) -> bool {
        usize::from(self.count) < self.capacity()
    }

    /// Begins an exchange, if there is room.
    pub(crate) fn begin(&mut self, slots: &[u16], forbids_changes: bool) {
        if !self.has_room() {
            return;
        }
        let id = ExchangeId(self.count);
        self.count += 1;
        let own = self.slots_mut(id);
        own[0] = if forbids_changes { NO_TRANSFORM } else { 0 };
        for (own, new) in own[1..].iter_mut().zip(slots) {
            *own = *new;
        }
    }

    /// The exchange whose response comes; `None` if nothing is known of it.
    pub(crate) fn oldest(&self) -> Option<ExchangeId> {
        (self.stale == 0 && self.count > 0).then_some(ExchangeId(0))
    }

    /// The exchange whose request came last; `None` if nothing is known of it.
    pub(crate) fn newest(&self) -> Option<ExchangeId> {
        self.count.checked_sub(1).map(ExchangeId)
    }

    /// The slot of each rule.
    pub(crate) fn slots(&self, id: ExchangeId) -> &[u16] {
        let start = self.start(id);
        &self.slots[start + 1..start + usize::from(self.stride)]
    }

    pub(crate) fn live_slots_mut(&mut self, id: ExchangeId) -> &mut [u16] {
        &mut self.slots_mut(id)[1..]
    }

    /// Whether the request forbids changes.
    pub(crate) fn forbids_changes(&self, id: ExchangeId) -> bool {
        self.slots[self.start(id)] & NO_TRANSFORM != 0
    }

    /// The response of the oldest exchange is complete. `is_asked` says that its request is complete too.
    pub(crate) fn answered(&mut self, is_asked: bool) {
        if is_asked || self.count + self.stale > 1 {
            self.pop();
        } else {
            self.is_answered = true;
        }
    }

    /// The request of the newest exchange is complete.
    pub(crate) fn asked(&mut self) {
        if std::mem::take(&mut self.is_answered) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if self.stale > 0 {
            self.stale -= 1;
        } else if self.count > 0 {
            self.count -= 1;
            self.first = ((usize::from(self.first) + 1) % self.capacity()) as u8;
        }
    }

    fn start(&self, id: ExchangeId) -> usize {
        (usize::from(self.first) + usize::from(id.0)) % self.capacity() * usize::from(self.stride)
    }

    fn slots_mut(&mut self, id: ExchangeId) -> &mut [u16] {
        let start = self.start(id);
        &mut self.slots[start..start + usize::from(self.stride)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rules_leave_room_for_few_exchanges() {
        for (rules, room) in [(0, 64), (1, 64), (3, 32), (63, 2), (MAX_LIVE_RULES, 1)] {
            let mut exchanges = Exchanges::new(rules);
            assert!(exchanges.fits(rules));
            let mut begun = 0;
            while exchanges.has_room() {
                exchanges.begin(&vec![begun; rules], false);
                begun += 1;
            }
            assert_eq!(begun, room, "{rules}");
            for number in 0..room {
                let oldest = exchanges.oldest().expect("an exchange");
                assert!(exchanges.slots(oldest).iter().all(|slot| *slot == number));
                exchanges.answered(true);
                exchanges.begin(&vec![number + room; rules], false);
            }
            assert!(!exchanges.has_room());
        }
    }

    #[test]
    fn an_exchange_ends_with_both_messages() {
        let mut exchanges = Exchanges::new(1);
        exchanges.begin(&[1], true);
        exchanges.answered(false);
        let newest = exchanges.newest().expect("its request is not complete");
        assert!(exchanges.forbids_changes(newest));
        exchanges.live_slots_mut(newest)[0] = 3;
        assert_eq!(exchanges.slots(newest), [3]);
        exchanges.asked();
        assert_eq!(exchanges.newest(), None);
    }

    #[test]
    fn exchanges_of_other_rules_are_passed_over() {
        let mut exchanges = Exchanges::new(1);
        exchanges.begin(&[1], false);
        exchanges.change_rules(2);
        assert_eq!((exchanges.oldest(), exchanges.newest()), (None, None));
        exchanges.begin(&[5, 6], false);
        assert_eq!(exchanges.oldest(), None);
        exchanges.answered(true);
        let oldest = exchanges.oldest().expect("the new one");
        assert_eq!(exchanges.slots(oldest), [5, 6]);
    }
}
