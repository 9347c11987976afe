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
    /// More, or none: told by two bytes, and by one at the end.
    Many {
        first: Box<[bool; 256]>,
        pairs: PairSet,
    },
}

/// Pairs of bytes.
#[derive(Debug)]
pub(super) struct PairSet {
    /// The number of a pair is its first byte and, shifted by 8, its second.
    bits: Box<[u64; (1 << 16) / 64]>,
}

impl PairSet {
    fn new(is_in: impl Fn(u8, u8) -> bool) -> PairSet {
        let mut bits = Box::new([0; (1 << 16) / 64]);
        for number in (0..=u16::MAX).filter(|number| is_in(*number as u8, (*number >> 8) as u8)) {
            bits[usize::from(number / 64)] |= 1 << (number % 64);
        }
        PairSet { bits }
    }

    #[inline]
    fn has(&self, first: u8, second: u8) -> bool {
        let number = u16::from_le_bytes([first, second]);
        self.bits[usize::from(number / 64)] >> (number % 64) & 1 != 0
    }
}

impl FirstBytes {
    pub(super) fn of(dfa: &MatchDfa) -> FirstBytes {
        let bytes: Vec<u8> = (0..=255).filter(|byte| dfa.can_begin_with(&[*byte])).collect();
        match bytes[..] {
            [one] => FirstBytes::One(one),
            [one, two] => FirstBytes::Two(one, two),
            [one, two, three] => FirstBytes::Three(one, two, three),
            _ => {
                let mut first = Box::new([false; 256]);
                bytes.iter().for_each(|byte| first[usize::from(*byte)] = true);
                let pairs = PairSet::new(|one, two| dfa.can_begin_with(&[one, two]));
                FirstBytes::Many { first, pairs }
            }
        }
    }

    /// The first place in a range where a match may begin.
    #[inline]
    pub(super) fn find(&self, bytes: &[u8], range: Range<usize>) -> Option<usize> {
        let (start, end) = (range.start, range.end);
        let starts = bytes.get(range)?;
        let found = match self {
            FirstBytes::One(one) => memchr(*one, starts),
            FirstBytes::Two(one, two) => memchr2(*one, *two, starts),
            FirstBytes::Three(one, two, three) => memchr3(*one, *two, *three, starts),
            FirstBytes::Many { first, pairs } => {
                let seconds = bytes.get(start + 1..)?;
                let found = starts.iter().zip(seconds).position(|(one, two)| pairs.has(*one, *two));
                let is_last = |last: &&u8| end == bytes.len() && first[usize::from(**last)];
                found.or_else(|| starts.last().filter(is_last).map(|_| starts.len() - 1))
            }
        };
        found.map(|index| start + index)
    }
}

/// Whether bytes can end within a match, by their last two.
#[derive(Debug)]
pub(super) struct LastBytes {
    /// Bytes that begin a match, and are not the whole of it.
    begin: [bool; 256],
    /// Pairs that are in a match, but not at its end.
    pairs: PairSet,
}

impl LastBytes {
    pub(super) fn of(dfa: &MatchDfa) -> LastBytes {
        let mut begin = [false; 256];
        for byte in 0..=255_u8 {
            begin[usize::from(byte)] = dfa.is_open_behind(byte);
        }
        LastBytes { begin, pairs: PairSet::new(dfa.open_pairs()) }
    }

    /// Whether the bytes can end within a match that begins in them.
    #[inline]
    pub(super) fn may_be_inside(&self, bytes: &[u8]) -> bool {
        match bytes {
            [] => false,
            [last] => self.begin[usize::from(*last)],
            [.., first, last] => self.begin[usize::from(*last)] || self.pairs.has(*first, *last),
        }
    }
}
