//! Masks over the lanes of a key, and keys under them, as they stand in memory: what tables hash and compare.

use crate::cube::{KeyWords, bytes};
use crate::segment::SegmentShape;
use mmb_packet::key::{LANE, Lanes};

/// A mask over the lanes of a key, or the key's bits under one.
pub(crate) type LaneMask = [u32; SegmentShape::WHOLE.lanes];

/// Key words as lanes.
pub(crate) fn lanes_of(words: &KeyWords) -> LaneMask {
    let bytes = bytes(words);
    let mut lanes = LaneMask::default();
    for (lane, four) in lanes.iter_mut().zip(bytes.as_chunks::<LANE>().0) {
        *lane = u32::from_ne_bytes(*four);
    }
    lanes
}

/// Lanes as key words.
pub(crate) fn words_of(lanes: &LaneMask) -> KeyWords {
    let mut words = KeyWords::default();
    for (word, four) in words.iter_mut().zip(lanes.as_chunks::<4>().0) {
        *word = four.iter().fold(0, |word, lane| word << 32 | u128::from(u32::from_be(*lane)));
    }
    words
}

/// The lanes in which a mask has bits.
pub(crate) fn lane_set(mask: &LaneMask) -> Lanes {
    let nonzero = (0..mask.len()).filter(|&lane| mask[lane] != 0);
    Lanes(nonzero.fold(0, |set, lane| set | 1 << lane))
}

/// Number of lanes that a mask has bits in.
pub(crate) fn lane_count(mask: &LaneMask) -> usize {
    mask.iter().filter(|lane| **lane != 0).count()
}

/// The bits of a mask.
pub(crate) fn bits(mask: &LaneMask) -> u32 {
    mask.iter().map(|lane| lane.count_ones()).sum()
}

/// Whether `other` has all bits of `mask`.
pub(crate) fn within(mask: &LaneMask, other: &LaneMask) -> bool {
    mask.iter().zip(other).all(|(mask, other)| mask & other == *mask)
}

/// The bits that either has.
pub(crate) fn union(a: &LaneMask, b: &LaneMask) -> LaneMask {
    std::array::from_fn(|lane| a[lane] | b[lane])
}

/// The bits that both have; of a key, those that a mask covers.
pub(crate) fn common(a: &LaneMask, b: &LaneMask) -> LaneMask {
    std::array::from_fn(|lane| a[lane] & b[lane])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lanes_are_the_bytes_of_words(words: KeyWords) {
            let lanes = lanes_of(&words);
            prop_assert_eq!(words_of(&lanes), words);
            let joined: Vec<u8> = lanes.iter().flat_map(|lane| lane.to_ne_bytes()).collect();
            prop_assert_eq!(joined, bytes(&words));
        }
    }

    #[test]
    fn masks_are_counted_and_compared() {
        let (mut few, mut many) = (LaneMask::default(), LaneMask::default());
        (few[3], many[3], many[19]) = (0xff00, 0xffff, 1);
        assert!(within(&few, &many) && !within(&many, &few) && within(&few, &few));
        assert_eq!((union(&few, &many), common(&few, &many)), (many, few));
        assert_eq!((bits(&many), lane_count(&many), lane_set(&many)), (17, 2, Lanes(1 << 19 | 1 << 3)));
    }
}
