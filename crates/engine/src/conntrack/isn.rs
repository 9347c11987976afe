//! Initial sequence numbers of TCP connections (RFC 6528): a clock that ticks every 4 µs plus a keyed
//! function of the connection's addresses and ports.
//!
//! The numbers of one connection reveal nothing about those of another, because their tuples differ. The
//! numbers of one tuple grow, so that an end in TIME-WAIT can distinguish a new connection from segments of
//! the old one (RFC 9293, section 3.6.1). All workers use the same key for the lifetime of the engine: with
//! another key, the numbers of a tuple would not grow.

use mmb_conn::Tuple;
use mmb_random::{Prf, Seed};

/// A tick of RFC 6528's clock.
const TICK_NS: u64 = 4000;

/// Generates initial sequence numbers.
#[derive(Debug)]
pub(crate) struct SequenceNumbers {
    prf: Prf,
    ticks: u64,
}

/// The end whose sequence numbers are chosen.
#[derive(Clone, Copy)]
enum IsnSide {
    Initiator,
    Responder,
}

impl SequenceNumbers {
    pub(crate) fn new(seed: Seed) -> SequenceNumbers {
        SequenceNumbers { prf: Prf::new(seed), ticks: 0 }
    }

    /// Advances the clock, which never goes back.
    #[inline]
    pub(crate) fn advance(&mut self, now_ns: u64) {
        self.ticks = self.ticks.max(now_ns / TICK_NS);
    }

    /// The initial sequence number of a connection's initiator, by the tuple that the responder sees.
    pub(crate) fn initial(&self, sent: &Tuple) -> u32 {
        self.keyed(sent, IsnSide::Initiator).wrapping_add(self.ticks as u32)
    }

    /// The offset that is added to the responder's sequence numbers, by the tuple that the initiator sees.
    /// The responder's own initial number is not known yet. Whatever it is, the number that the initiator
    /// sees grows at least as fast.
    pub(crate) fn responder_shift(&self, arrived: &Tuple) -> u32 {
        self.keyed(arrived, IsnSide::Responder).wrapping_add(self.ticks as u32)
    }

    fn keyed(&self, tuple: &Tuple, side: IsnSide) -> u32 {
        let tuple = tuple.to_bytes();
        let mut bytes = [0; 1 + Tuple::BYTES];
        bytes[0] = side as u8;
        bytes[1..=tuple.len()].copy_from_slice(&tuple);
        self.prf.hash(&bytes) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const SECOND_NS: u64 = 1_000_000_000;

    fn numbers(key: u64) -> SequenceNumbers {
        SequenceNumbers::new(Seed::repeatable(key))
    }

    fn tuple(port: u16) -> Tuple {
        Tuple {
            addresses: [0xc633_6401, 0xc000_0250],
            ports: [port, 443],
            proto: 6,
            family: 4,
            ..Tuple::default()
        }
    }

    /// RFC 6528, section 3: M ticks every 4 µs, so that the same ends get 250,000 more after a second.
    #[test]
    fn the_same_ends_get_larger_numbers_later() {
        let mut numbers = numbers(1);
        for side in [SequenceNumbers::initial, SequenceNumbers::responder_shift] {
            let first = side(&numbers, &tuple(5000));
            assert_eq!(side(&numbers, &tuple(5000)), first);
            let now_ns = (numbers.ticks + 250_000) * TICK_NS;
            numbers.advance(now_ns);
            assert_eq!(side(&numbers, &tuple(5000)).wrapping_sub(first), 250_000);
        }
    }

    #[test]
    fn numbers_do_not_fall_when_a_clock_goes_back() {
        let mut numbers = numbers(1);
        numbers.advance(2 * SECOND_NS);
        let later = numbers.initial(&tuple(5000));
        numbers.advance(SECOND_NS);
        assert_eq!(numbers.initial(&tuple(5000)), later);
    }

    /// With the clock alone, anyone who opens a connection would learn the next number of every other one.
    /// The keyed function separates them.
    #[test]
    fn other_ends_and_other_keys_get_unrelated_numbers() {
        let (one, other) = (numbers(1), numbers(2));
        let steps: HashSet<u32> = (1..1000)
            .map(|port| one.initial(&tuple(port + 1)).wrapping_sub(one.initial(&tuple(port))))
            .collect();
        assert!(steps.len() > 990, "{} different steps", steps.len());
        let same = (1..1000).filter(|port| one.initial(&tuple(*port)) == other.initial(&tuple(*port)));
        assert!(same.count() < 3);
    }

    #[test]
    fn both_ends_of_a_connection_get_unrelated_numbers() {
        let numbers = numbers(1);
        let distances: HashSet<u32> = (1..1000)
            .map(|port| numbers.initial(&tuple(port)).wrapping_sub(numbers.responder_shift(&tuple(port))))
            .collect();
        assert!(distances.len() > 990);
    }
}
