//! Sets of numbers from masks and prefixes, and their decomposition where one field of a filter is two fields of the language.

use mmb_policy::Intervals;
use mmb_policy::field::ones;

/// The numbers of `bits` bits that agree with `value` in the bits of `mask`.
pub(crate) fn masked(value: u128, mask: u128, bits: u8) -> Intervals {
    let all = ones(bits);
    let (value, mask) = (value & mask & all, mask & all);
    // Bits below the lowest one of the mask are free and form an interval; free bits above it give several intervals.
    let low = ones(u8::try_from(mask.trailing_zeros()).unwrap_or(bits).min(bits));
    let free = all & !mask & !low;
    let mut intervals = Vec::new();
    let mut part = 0;
    loop {
        intervals.push((value | part, value | part | low));
        // The next number that consists of free bits only.
        part = (part | !free).wrapping_add(1) & free;
        if part == 0 {
            return intervals.into_iter().collect();
        }
    }
}

/// The numbers of a prefix: an address of `bits` bits with the prefix length `len`.
pub(crate) fn prefix(address: u128, len: u8, bits: u8) -> Intervals {
    masked(address, !ones(bits.saturating_sub(len)), bits)
}

/// The set with `n` subtracted from each number; none of them may be less.
pub(crate) fn lowered(set: &Intervals, n: u128) -> Intervals {
    set.as_slice().iter().map(|&(first, last)| (first - n, last - n)).collect()
}

/// A set as products: numbers are split above their lowest `bits` bits, and upper parts with the same set of lower parts are
/// grouped.
pub(crate) fn factors(set: &Intervals, bits: u8) -> Vec<(Intervals, Intervals)> {
    let low = ones(bits);
    let mut factors: Vec<(Intervals, Intervals)> = Vec::new();
    let mut add =
        |upper: Intervals, lower: Intervals| match factors.iter_mut().find(|(_, other)| *other == lower) {
            Some((uppers, _)) => *uppers = uppers.union(&upper),
            None => factors.push((upper, lower)),
        };
    // An upper part at which an interval begins or ends may have its own lower parts; the upper parts between have all.
    let parts = || set.as_slice().iter().map(|&(first, last)| (first >> bits, last >> bits));
    let mut edges: Vec<u128> = parts().flat_map(|(first, last)| [first, last]).collect();
    edges.dedup();
    for &upper in &edges {
        let inside = set.intersect(&Intervals::range(upper << bits, upper << bits | low));
        add(Intervals::one(upper), lowered(&inside, upper << bits));
    }
    for (first, last) in parts().filter(|(first, last)| last - first > 1) {
        add(Intervals::range(first + 1, last - 1), Intervals::of_width(bits));
    }
    factors
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn masks_fix_their_bits(value in 0u128..256, mask in 0u128..256) {
            let set = masked(value, mask, 8);
            for n in 0..=300 {
                prop_assert_eq!(set.contains(n), n < 256 && n & mask == value & mask);
            }
        }

        #[test]
        fn factors_multiply_to_the_set(pairs in prop::collection::vec((0u128..=63, 0u128..=63), 0..5)) {
            let set: Intervals = pairs.into_iter().map(|(a, b)| (a.min(b), a.max(b))).collect();
            let factors = factors(&set, 2);
            for n in 0..=64 {
                let holds = |(upper, lower): &&(Intervals, Intervals)| upper.contains(n >> 2) && lower.contains(n & 3);
                prop_assert_eq!(factors.iter().filter(holds).count(), usize::from(set.contains(n)));
            }
        }

        #[test]
        fn lowered_sets_move(first in 40u128..100, len in 0u128..100, n in 0u128..=40) {
            let set = lowered(&Intervals::range(first, first + len), n);
            prop_assert_eq!(set, Intervals::range(first - n, first + len - n));
        }
    }

    #[test]
    fn prefixes_of_both_ends() {
        assert_eq!(prefix(0x0a01_0203, 8, 32), Intervals::range(0x0a00_0000, 0x0aff_ffff));
        assert_eq!(prefix(7, 32, 32), Intervals::one(7));
        assert_eq!(prefix(7, 0, 128), Intervals::of_width(128));
    }
}
