//! The index compared with a plain map, with hashes as an adversary would choose them.

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

impl TupleIndex {
    /// Checks the invariants of every segment.
    fn check(&self) {
        for (number, info) in self.segment_info.iter().enumerate() {
            let buckets = &self.segment(number as u32).buckets;
            let full = |bucket: &IndexBucket| bucket.entries.iter().filter(|entry| **entry != EMPTY).count();
            assert_eq!(buckets.iter().map(full).sum::<usize>(), usize::from(info.entries));
            let mut overflowed = [0; BUCKETS];
            for (at, bucket) in buckets.iter().enumerate() {
                for way in (0..WAYS).filter(|way| bucket.is_in_second(*way)) {
                    assert_ne!(bucket.entries[way], EMPTY);
                    overflowed[other(at, bucket.print(way))] += 1;
                }
            }
            assert!(buckets.iter().zip(overflowed).all(|(bucket, count)| bucket.overflowed() == count));
            let places = self.directory.iter().filter(|segment| **segment == number as u32).count();
            assert_eq!(places, 1 << (self.depth - info.depth), "each segment has its part of the directory");
        }
    }
}

/// The lowest entry.
const FIRST: u32 = ABSENT + 1;

/// Keys whose hashes a function returns for the entries.
struct Hashed<F>(F);

impl<F: Fn(u32) -> u64> IndexKeys for Hashed<F> {
    fn hash(&self, entry: u32) -> u64 {
        (self.0)(entry)
    }

    fn prefetch(&self, _: u32) {}
}

/// A well distributed hash.
fn spread(number: u32) -> u64 {
    let mut mixed = u64::from(number) + 1;
    for shift in [31, 29, 33] {
        mixed = mixed.wrapping_mul(0xd6e8_feb8_6659_fd93);
        mixed ^= mixed >> shift;
    }
    mixed
}

#[test]
fn the_other_bucket_of_the_other_is_the_first() {
    for bucket in 0..BUCKETS {
        for print in 0..=u16::MAX {
            let second = other(bucket, print);
            assert!(second != bucket && second < BUCKETS);
            assert_eq!(other(second, print), bucket);
        }
    }
}

#[test]
fn segments_are_split_while_few_entries_are_in_their_second_bucket() {
    let mut index = TupleIndex::new();
    let mut entries = FIRST;
    while index.segment_info.len() < 65 {
        index.insert(spread(entries), entries, &Hashed(spread)).unwrap();
        entries += 1;
    }
    // The mean fill of all segments when about half of them were split.
    let fill = f64::from(entries) / (64 * BUCKETS * WAYS) as f64;
    assert!((0.5..0.7).contains(&fill), "{fill} after {entries}");
    let segments = (0..index.segments.count()).map(|number| index.segments.at(number));
    let buckets = segments.flat_map(|segment| &segment.buckets);
    let overflowed: u32 = buckets.map(|bucket| u32::from(bucket.overflowed())).sum();
    assert!(overflowed < entries / 25, "{overflowed} of {entries}");
    index.check();
}

#[test]
fn segments_are_not_split_all_at_once() {
    let mut index = TupleIndex::new();
    let mut splits = Vec::new();
    for entry in FIRST..200_000 {
        let before = index.segment_info.len();
        index.insert(spread(entry), entry, &Hashed(spread)).unwrap();
        if index.segment_info.len() > before {
            splits.push(entry);
        }
    }
    // Within a hundredth of the time, fewer than a tenth of a generation's segments are split.
    let counts = (0..splits.len())
        .map(|at| splits[at..].iter().take_while(|later| **later - splits[at] < 2000).count());
    assert!(splits.len() > 300 && counts.max() < Some(30), "{} splits", splits.len());
}

#[test]
fn a_directory_does_not_grow_for_hashes_that_choose_one_segment() {
    let mut index = TupleIndex::new();
    let alike = |entry: u32| spread(entry) >> 40;
    let mut kept = FIRST;
    while index.insert(alike(kept), kept, &Hashed(alike)).is_ok() {
        kept += 1;
        assert!(kept < 100_000);
    }
    assert!(index.directory.len() <= 32 * index.segment_info.len(), "{}", index.directory.len());
    index.check();
    for entry in FIRST..kept {
        assert_eq!(index.find(alike(entry), |other| other == entry), Some(entry));
        index.remove(alike(entry), entry);
    }
    assert!(index.stash.is_empty() && index.segment_info.iter().all(|info| info.entries == 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Entries with hashes of which many are equal, in part or completely.
    #[test]
    fn the_index_is_a_plain_map(
        mask in prop::sample::select(vec![u64::MAX, 0xffff, 0xf, 0, 0xff << 56, 0xffff_0000_0000_003f]),
        steps in prop::collection::vec((FIRST..3000, 0u8..10), 1..4000),
    ) {
        let hash = |entry: u32| spread(entry) & mask;
        let (mut index, mut plain) = (TupleIndex::new(), HashMap::new());
        for (entry, kind) in steps {
            let is_in = plain.contains_key(&entry);
            prop_assert_eq!(index.find(hash(entry), |other| other == entry), is_in.then_some(entry));
            if is_in && kind < 3 {
                index.remove(hash(entry), entry);
                plain.remove(&entry);
            } else if !is_in && kind >= 2 && index.insert(hash(entry), entry, &Hashed(hash)).is_ok() {
                plain.insert(entry, ());
            }
        }
        index.check();
        for entry in FIRST..3000 {
            prop_assert_eq!(index.find(hash(entry), |other| other == entry).is_some(), plain.contains_key(&entry));
        }
    }
}
