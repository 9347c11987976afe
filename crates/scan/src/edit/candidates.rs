//! Places at which a match can begin, by its first byte; and whether bytes can end within a match, by their last two.

use super::dfa::MatchDfa;
use memchr::{memchr, memchr2, memchr3};
use std::ops::Range;

/// The first bytes of matches.
#[derive(Debug)]
pub(super) enum FirstBytes {
    One(u8),
    Two(u8, u8),
    Three(u8, u8, u8),
    Many(Box<[bool; 256]>),
}

impl FirstBytes {
    pub(super) fn of(dfa: &MatchDfa) -> FirstBytes {
        let bytes: Vec<u8> = (0..=255).filter(|byte| dfa.can_begin_with(*byte)).collect();
        match bytes[..] {
            [one] => FirstBytes::One(one),
            [one, two] => FirstBytes::Two(one, two),
            [one, two, three] => FirstBytes::Three(one, two, three),
            _ => {
                let mut is_first = Box::new([false; 256]);
                bytes.iter().for_each(|byte| is_first[usize::from(*byte)] = true);
                FirstBytes::Many(is_first)
            }
        }
    }

    /// The first place in a range that has one.
    #[inline]
    pub(super) fn find(&self, bytes: &[u8], range: Range<usize>) -> Option<usize> {
        let start = range.start;
        let bytes = bytes.get(range)?;
        let found = match self {
            FirstBytes::One(one) => memchr(*one, bytes),
            FirstBytes::Two(one, two) => memchr2(*one, *two, bytes),
            FirstBytes::Three(one, two, three) => memchr3(*one, *two, *three, bytes),
            FirstBytes::Many(is_first) => bytes.iter().position(|byte| is_first[usize::from(*byte)]),
        };
        found.map(|index| start + index)
    }
}

/// Whether bytes can end within a match, by their last two.
#[derive(Debug)]
pub(super) struct LastBytes {
    /// Bytes that begin a match, and are not the whole of it.
    begin: [bool; 256],
    /// Bits of pairs that are in a match, but not at its end. The number of a pair is the first byte and, shifted by 8, the second.
    pairs: Vec<u64>,
}

impl LastBytes {
    pub(super) fn of(dfa: &MatchDfa) -> LastBytes {
        let mut begin = [false; 256];
        for byte in 0..=255_u8 {
            begin[usize::from(byte)] = dfa.is_open_behind(byte);
        }
        let mut pairs = vec![0; (1 << 16) / 64];
        let is_pair = dfa.open_pairs();
        for number in (0..1 << 16).filter(|number| is_pair(*number as u8, (*number >> 8) as u8)) {
            pairs[number / 64] |= 1 << (number % 64);
        }
        LastBytes { begin, pairs }
    }

    /// Whether the bytes can end within a match that begins in them.
    #[inline]
    pub(super) fn may_be_inside(&self, bytes: &[u8]) -> bool {
        match bytes {
            [] => false,
            [last] => self.begin[usize::from(*last)],
            [.., first, second] => {
                let number = usize::from(*first) | usize::from(*second) << 8;
                self.begin[usize::from(*second)] || self.pairs[number / 64] >> (number % 64) & 1 != 0
            }
        }
    }
}
