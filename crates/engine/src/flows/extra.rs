//! What connections have beside their tuples: shifts of sequence numbers, chosen identifications and flow labels, and for
//! hairpins the Ethernet addresses of both ends.

use super::stateful::Stateful;
use mmb_conn::{Direction, Segment, Tuple, proto};
use mmb_rewrite::Translation;
use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::HashMap;
use std::sync::Arc;

/// Inside hosts whose Ethernet address is remembered, at most.
const NEIGHBOURS: usize = 65_536;

/// What one connection has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extra {
    /// What is added to the initiator's sequence numbers.
    seq: u32,
    /// What is added to the initiator's acknowledgment numbers.
    ack: u32,
    ip_id: Option<u16>,
    flow_label: Option<u32>,
    /// It goes back to the side that it came from: the addresses that forward packets and replies are sent to.
    pub(crate) hairpin: Option<[[u8; 6]; 2]>,
}

impl Extra {
    /// What is to be added to the acknowledgment numbers of one direction.
    #[inline]
    pub(crate) fn ack(&self, direction: Direction) -> u32 {
        match direction {
            Direction::Forward => self.ack,
            Direction::Reply => self.seq.wrapping_neg(),
        }
    }

    /// Completes the translation of one direction.
    #[inline]
    pub(crate) fn add_to(&self, translation: &mut Translation, direction: Direction) {
        translation.ack = self.ack(direction);
        match direction {
            Direction::Forward => {
                translation.seq = self.seq;
                translation.ip_id = self.ip_id;
                translation.flow_label = self.flow_label;
            }
            Direction::Reply => translation.seq = self.ack.wrapping_neg(),
        }
    }
}

/// The extras of a worker's connections, by number from 1; 0 is none.
#[derive(Debug)]
pub(crate) struct Extras {
    extras: Vec<Extra>,
    unused: Vec<u32>,
    random: SplitMix64,
    neighbours: HashMap<(u16, u128), [u8; 6]>,
}

impl Extras {
    pub(crate) fn new(seed: u64) -> Extras {
        Extras {
            extras: vec![Extra::default()],
            unused: Vec::new(),
            random: SplitMix64::seed_from_u64(seed ^ 0x6578_7472),
            neighbours: HashMap::new(),
        }
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> &Extra {
        self.extras.get(number as usize).unwrap_or(&self.extras[0])
    }

    /// The extra of a new connection of these rules, later ones before earlier ones; 0 if it needs none.
    pub(crate) fn make<'r>(
        &mut self,
        rules: impl Iterator<Item = &'r Arc<Stateful>>,
        tuple: &Tuple,
        segment: Option<&Segment>,
        hairpin: Option<[[u8; 6]; 2]>,
    ) -> u32 {
        let mut extra = Extra { hairpin, ..Extra::default() };
        // Numbers of a stream that is under way are known to both ends already.
        let begins = segment.filter(|segment| segment.flags & 0x12 == 0x02);
        for rule in rules {
            if let Some(choice) = &rule.ip_id
                && tuple.family == 4
            {
                extra.ip_id = Some(choice.draw(self.random.next_u64()) as u16);
            }
            if let Some(choice) = &rule.flow_label
                && tuple.family == 6
            {
                extra.flow_label = Some(choice.draw(self.random.next_u64()));
            }
            if let (Some(choice), Some(segment), proto::TCP) = (&rule.seq, begins, tuple.proto) {
                extra.seq = choice.draw(self.random.next_u64()).wrapping_sub(segment.seq);
            }
            if let (Some(choice), Some(_), proto::TCP) = (&rule.ack, begins, tuple.proto) {
                extra.ack = choice.draw(self.random.next_u64());
            }
        }
        if extra == Extra::default() {
            return 0;
        }
        let number = self.unused.pop().unwrap_or(self.extras.len() as u32);
        match self.extras.get_mut(number as usize) {
            Some(place) => *place = extra,
            None => self.extras.push(extra),
        }
        number
    }

    /// Gives a number back.
    pub(crate) fn free(&mut self, number: u32) {
        if number != 0 {
            self.unused.push(number);
        }
    }

    /// Remembers where an inside host is.
    pub(crate) fn learn(&mut self, wire: u16, address: u128, mac: [u8; 6]) {
        if self.neighbours.len() < NEIGHBOURS || self.neighbours.contains_key(&(wire, address)) {
            self.neighbours.insert((wire, address), mac);
        }
    }

    /// Where an inside host is.
    pub(crate) fn neighbour(&self, wire: u16, address: u128) -> Option<[u8; 6]> {
        self.neighbours.get(&(wire, address)).copied()
    }
}
