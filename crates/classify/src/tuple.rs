//! One tuple: a mask, and the hash table of the rules that fix exactly its bits.

use crate::VECTOR;
use crate::classifier::SOLE;
use crate::cube::{self, KeyWords};
use crate::matches::{Found, Probe};
use crate::table::{self, MAX_WORDS, Seeds, Table};
use mmb_packet::key::Key;

/// Eight bytes of a key, under a mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Window {
    at: usize,
    mask: u64,
}

/// The mask of a tuple over a key of `N` bytes, as the fewest windows of eight bytes that cover it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mask<const N: usize> {
    windows: Vec<Window>,
}

impl<const N: usize> Mask<N> {
    pub(crate) fn new(words: &KeyWords) -> Mask<N> {
        let mut left = cube::bytes(words);
        let mut windows = Vec::with_capacity(MAX_WORDS);
        while let Some(first) = left[..N].iter().position(|&byte| byte != 0) {
            let at = first.min(N - 8);
            let mut mask = [0; 8];
            mask.copy_from_slice(&left[at..at + 8]);
            left[at..at + 8].fill(0);
            windows.push(Window { at, mask: u64::from_le_bytes(mask) });
        }
        Mask { windows }
    }

    /// Words of a masked key.
    pub(crate) fn words(&self) -> usize {
        self.windows.len()
    }

    /// The masked key of key words.
    pub(crate) fn apply(&self, words: &KeyWords) -> Vec<u64> {
        let bytes = cube::bytes(words);
        self.windows.iter().map(|window| window.read(&bytes[..N])).collect()
    }
}

impl Window {
    #[inline(always)]
    fn read(self, key: &[u8]) -> u64 {
        match key.get(self.at..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => u64::from_le_bytes(*bytes) & self.mask,
            None => 0,
        }
    }
}

/// A tuple for keys of `N` bytes.
#[derive(Clone, Debug)]
pub(crate) struct Tuple<const N: usize> {
    mask: Mask<N>,
    seeds: Seeds,
    table: Table,
    /// The value of the only entry, if the mask is empty: every key has it.
    always: u32,
    /// Every value is the rank of a sole rule.
    pub(crate) plain: bool,
}

impl<const N: usize> Tuple<N> {
    /// A tuple of `entries`: cube values and what they stand for.
    pub(crate) fn build(
        mask: &KeyWords,
        entries: &[(KeyWords, u32)],
        random: impl FnMut() -> u64,
    ) -> Tuple<N> {
        let mask = Mask::new(mask);
        let keys: Vec<_> = entries.iter().map(|(value, _)| mask.apply(value)).collect();
        let pairs = keys.iter().zip(entries).map(|(key, (_, value))| (&key[..], *value));
        let (table, seeds) = Table::build(mask.words(), pairs, random);
        let always = entries.first().map_or(0, |&(_, value)| value);
        let plain = entries.iter().all(|&(_, value)| value & SOLE != 0);
        Tuple { mask, seeds, table, always, plain }
    }

    /// Finds the keys of `keys` that the first `picked` items of `probe.picked` number; the first items of
    /// `probe.found` are then those that were found, with their values. Returns how many.
    #[inline]
    pub(crate) fn probe(&self, keys: &[Key<N>; VECTOR], picked: usize, probe: &mut Probe) -> usize {
        match self.mask.words() {
            0 => self.probe_always(picked, probe),
            1 => self.probe_words::<1>(keys, picked, probe),
            2 => self.probe_words::<2>(keys, picked, probe),
            3 => self.probe_words::<3>(keys, picked, probe),
            4 => self.probe_words::<4>(keys, picked, probe),
            5 => self.probe_words::<5>(keys, picked, probe),
            6 => self.probe_words::<6>(keys, picked, probe),
            7 => self.probe_words::<7>(keys, picked, probe),
            8 => self.probe_words::<8>(keys, picked, probe),
            9 => self.probe_words::<9>(keys, picked, probe),
            _ => self.probe_words::<10>(keys, picked, probe),
        }
    }

    fn probe_always(&self, picked: usize, probe: &mut Probe) -> usize {
        for (found, &key) in probe.found.iter_mut().zip(&probe.picked[..picked]) {
            *found = Found { key, value: self.always };
        }
        picked
    }

    fn probe_words<const W: usize>(
        &self,
        keys: &[Key<N>; VECTOR],
        picked: usize,
        probe: &mut Probe,
    ) -> usize {
        let Some(Ok(windows)) = self.mask.windows.get(..W).map(<&[Window; W]>::try_from) else { return 0 };
        let Probe { hashes, tags, picked: picks, found } = probe;
        for (hash, &key) in hashes.iter_mut().zip(&picks[..picked]) {
            *hash = table::hash(&self.seeds, &masked(windows, &keys[usize::from(key)]));
        }
        // Nothing here waits for anything else, so that many of these loads are under way at once.
        for (tags, &hash) in tags.iter_mut().zip(&hashes[..picked]) {
            *tags = self.table.tags::<W>(hash);
        }
        // `found` holds candidates first, by their place among the picked, and then keys: never more of them than
        // places looked at, so that what is still to be read is not written over and numbers fit a byte.
        let mut candidates = 0;
        for (at, (&tags, &hash)) in tags[..picked].iter().zip(&hashes[..picked]).enumerate() {
            found[usize::from(candidates as u8)].key = at as u8;
            candidates += usize::from(table::may_hold(tags, hash) != 0);
        }
        let mut len = 0;
        for candidate in 0..candidates {
            let at = usize::from(found[candidate].key);
            let key = picks[at];
            if let Some(value) = self.table.find(hashes[at], &masked(windows, &keys[usize::from(key)])) {
                found[len] = Found { key, value };
                len += 1;
            }
        }
        len
    }

    /// The table, for statistics.
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }
}

#[inline(always)]
fn masked<const N: usize, const W: usize>(windows: &[Window; W], key: &Key<N>) -> [u64; W] {
    windows.map(|window| window.read(&key.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_windows_cover_a_mask() {
        let mut words = KeyWords::default();
        let mut five_tuple = [0u8; 80];
        five_tuple[1] = 0xff;
        five_tuple[16..20].fill(0xff);
        five_tuple[52..60].fill(0xff);
        for (word, chunk) in words.iter_mut().zip(five_tuple.chunks_exact(16)) {
            *word = u128::from_be_bytes(chunk.try_into().unwrap());
        }
        let mask = Mask::<64>::new(&words);
        assert_eq!(mask.windows.iter().map(|w| w.at).collect::<Vec<_>>(), [1, 16, 52]);
        assert_eq!(mask.windows[1].mask, 0xffff_ffff);
        assert_eq!(Mask::<80>::new(&[u128::MAX; 5]).words(), 10);
        assert_eq!(Mask::<64>::new(&[0; 5]).words(), 0);
        assert_eq!(Mask::<64>::new(&[0, 0, 0, 1, 0]).windows, [Window { at: 56, mask: 1 << 56 }]);
    }
}
