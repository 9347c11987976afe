//! Rules of tuples too small for a table: every one is compared with every key, many keys at a time.

use crate::lane_mask::LaneMask;
use crate::simd;
use crate::simd::Equal;
use mmb_base::simd::SimdLevel;
use mmb_packet::columns::Column;

/// The most entries of a tuple here; with more, a table is cheaper.
pub(crate) const MAX_PER_TUPLE: usize = 12;
/// The most entries in all.
pub(crate) const MAX_ENTRIES: usize = 96;

/// Whether tuples of `entries` in all may be rows beside so many rows.
pub(crate) fn has_room(rows: usize, entries: usize) -> bool {
    entries <= MAX_PER_TUPLE && rows + entries <= MAX_ENTRIES
}

/// One entry.
#[derive(Clone, Debug)]
struct FlatRow {
    mask: LaneMask,
    key: LaneMask,
    terms: Vec<Equal>,
    value: u32,
}

/// The entries.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flat {
    rows: Vec<FlatRow>,
}

impl Flat {
    fn place(&self, mask: &LaneMask, key: &LaneMask) -> Option<usize> {
        self.rows.iter().position(|row| row.key == *key && row.mask == *mask)
    }

    /// The value of a key of the tuple `mask`.
    pub(crate) fn value(&self, mask: &LaneMask, key: &LaneMask) -> Option<u32> {
        self.place(mask, key).map(|index| self.rows[index].value)
    }

    /// Adds a key, or gives it another value.
    pub(crate) fn set(&mut self, mask: &LaneMask, key: &LaneMask, value: u32) {
        if let Some(index) = self.place(mask, key) {
            self.rows[index].value = value;
            return;
        }
        let lanes = (0..).zip(mask.iter().zip(key)).filter(|(_, (mask, _))| **mask != 0);
        let terms = lanes.map(|(lane, (&mask, &value))| Equal { lane, mask, value }).collect();
        self.rows.push(FlatRow { mask: *mask, key: *key, terms, value });
    }

    /// Removes a key; returns the value that it had.
    pub(crate) fn remove(&mut self, mask: &LaneMask, key: &LaneMask) -> Option<u32> {
        self.place(mask, key).map(|index| self.rows.remove(index).value)
    }

    /// Keys and values of a tuple.
    pub(crate) fn entries(&self, mask: &LaneMask) -> impl Iterator<Item = (LaneMask, u32)> {
        self.rows.iter().filter(move |row| row.mask == *mask).map(|row| (row.key, row.value))
    }

    /// Entries in all.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Calls `hit` with key and value wherever one of the first `len` keys has an entry.
    #[inline]
    pub(crate) fn find(&self, level: SimdLevel, lanes: &[Column], len: usize, mut hit: impl FnMut(u8, u32)) {
        for row in &self.rows {
            for (word, mut bits) in simd::equal(level, lanes, len, &row.terms).into_iter().enumerate() {
                while bits != 0 {
                    hit((word * 64) as u8 + bits.trailing_zeros() as u8, row.value);
                    bits &= bits - 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VECTOR;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// Masks of two bits in each of three lanes.
    fn mask(bits: u8) -> LaneMask {
        let mut mask = LaneMask::default();
        (0..3).for_each(|lane| mask[lane * 9] = u32::from(bits >> (2 * lane)) & 3);
        mask
    }

    fn key(bits: u8, own_mask: &LaneMask) -> LaneMask {
        let key = mask(bits);
        std::array::from_fn(|lane| key[lane] & own_mask[lane])
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn rows_come_and_go_and_every_level_finds_them(
            steps in prop::collection::vec((0..64u8, 0..64u8, any::<Option<u16>>()), 0..60),
            packets in prop::collection::vec(0..64u8, 1..=VECTOR),
        ) {
            let (mut flat, mut model) = (Flat::default(), BTreeMap::new());
            for &(bits, number, value) in &steps {
                let mask = mask(bits);
                let key = key(number, &mask);
                match value {
                    Some(value) => {
                        flat.set(&mask, &key, value.into());
                        model.insert((mask, key), u32::from(value));
                    }
                    None => prop_assert_eq!(flat.remove(&mask, &key), model.remove(&(mask, key))),
                }
                prop_assert_eq!(flat.value(&mask, &key), model.get(&(mask, key)).copied());
            }
            prop_assert_eq!(flat.len(), model.len());
            for (mask, _) in model.keys() {
                let entries: BTreeMap<_, _> = flat.entries(mask).collect();
                let expected: BTreeMap<_, _> =
                    model.iter().filter(|((of, _), _)| of == mask).map(|((_, key), value)| (*key, *value)).collect();
                prop_assert_eq!(entries, expected);
            }
            let mut lanes = vec![[u32::MAX; VECTOR]; 20];
            for (at, &packet) in packets.iter().enumerate() {
                (0..20).for_each(|lane| lanes[lane][at] = mask(packet)[lane]);
            }
            let agrees = |packet: u8, mask: &LaneMask, its: &LaneMask| key(packet, mask) == *its;
            let mut expected: Vec<(u8, u32)> = Vec::new();
            for (at, &packet) in (0..=u8::MAX).zip(&packets) {
                let found = model.iter().filter(|((mask, key), _)| agrees(packet, mask, key));
                expected.extend(found.map(|(_, &value)| (at, value)));
            }
            expected.sort_unstable();
            for level in SimdLevel::available() {
                let mut found = Vec::new();
                flat.find(level, &lanes, packets.len(), |key, value| found.push((key, value)));
                found.sort_unstable();
                prop_assert_eq!(&found, &expected, "{}", level.name());
            }
        }
    }
}
