//! Searching tables for a vector of keys, in steps that each go over many keys before the next begins.
//!
//! 1. All keys are hashed, and their filter words fetched. They are read when the next table's keys have been hashed.
//! 2. Keys that the filter lets pass become *candidates*, and their buckets are fetched. A filter that let most keys pass is not asked for
//!    some vectors: each answer would cost a cache line to save few.
//! 3. When there are enough candidates, of one table or of several, buckets are compared.
//!
//! One worker owns a [`ProbeColumns`].

use crate::VECTOR;
use crate::key_rules::Found;
use crate::segment::{NONE, SegmentShape};
use crate::simd::Hashes;
use crate::table::TupleTable;
use mmb_base::prefetch;
use mmb_base::simd::{Kernel, SimdLevel};
use mmb_packet::columns::Column;

/// Candidates that there is room for: those of any table behind as many as make a verification worth while.
const ROOM: usize = 2 * VECTOR;
/// The approximate number of candidates that are verified at once.
const VERIFY_THRESHOLD: usize = VECTOR;
/// A filter of more words is fetched before it is read: it does not fit the nearer caches.
const LARGE_FILTER: usize = 1 << 15;
/// After most keys of a vector passed a filter, it is not asked for so many times as many keys.
const SKIP_FACTOR: u32 = 63;
/// Fewer keys say nothing about the next ones.
const MIN_SAMPLE: usize = 64;
/// The number of tables for which that is noted, about.
const SKIPS: usize = 512;

/// A key that a filter let pass: it may be in the table.
#[derive(Clone, Copy, Debug, Default)]
struct ProbeCandidate {
    hash: u32,
    key: u8,
}

/// A table whose keys are hashed, and whose filter is to be asked.
#[derive(Clone, Copy, Debug)]
struct PendingTable {
    number: u32,
    /// The number of keys.
    len: usize,
    /// All keys are candidates.
    unfiltered: bool,
}

/// Candidates of one table.
#[derive(Clone, Copy, Debug, Default)]
struct TableRun {
    table: u32,
    /// Behind its last candidate.
    end: usize,
}

/// Columns of a vector while tables are searched.
#[derive(Clone, Debug)]
pub(crate) struct ProbeColumns {
    /// The keys' hashes under the table that is pending, and room for those under the next one.
    hashes: Hashes,
    next_hashes: Hashes,
    pending: Option<PendingTable>,
    /// For how many more keys tables are searched without their filters, by [`skips_of`].
    skips: Box<[u32; SKIPS]>,
    /// Whether the filter lets a key pass.
    passes: Box<[u8; VECTOR]>,
    candidates: Box<[ProbeCandidate; ROOM]>,
    len: usize,
    runs: Vec<TableRun>,
    first: Box<FirstBuckets>,
}

/// What candidates of one table found in their first buckets.
#[derive(Clone, Debug)]
struct FirstBuckets {
    /// By candidate: as many values as a key can have in a bucket, [`NONE`] in place of those that it has not.
    values: [u32; FOUND],
    /// By candidate: whether the search goes on in the next bucket.
    continues: [u8; VECTOR],
    /// Keys with their values.
    found: [Found; FOUND],
    /// The candidates whose search goes on.
    unfinished: [u8; VECTOR],
}

/// Room for what a vector's candidates find: no bucket has more places.
const FOUND: usize = 4 * VECTOR;

impl Default for FirstBuckets {
    fn default() -> FirstBuckets {
        FirstBuckets {
            values: [NONE; FOUND],
            continues: [0; VECTOR],
            found: [Found::default(); FOUND],
            unfinished: [0; VECTOR],
        }
    }
}

impl Default for ProbeColumns {
    fn default() -> Self {
        ProbeColumns {
            hashes: Hashes::default(),
            next_hashes: Hashes::default(),
            pending: None,
            skips: Box::new([0; SKIPS]),
            passes: Box::new([0; VECTOR]),
            candidates: Box::new([ProbeCandidate::default(); ROOM]),
            len: 0,
            runs: Vec::with_capacity(ROOM),
            first: Box::default(),
        }
    }
}

impl ProbeColumns {
    /// Begins the search of a table for the first `len` keys; `number` is the table's, and `table` returns it. Finds the candidates of the table
    /// before; those of the last table are found by [`ProbeColumns::finish`]. There are not [enough](ProbeColumns::should_verify) candidates yet.
    #[inline]
    pub(crate) fn filter<'t>(
        &mut self,
        level: SimdLevel,
        table: impl Fn(u32) -> &'t TupleTable,
        lanes: &[Column],
        len: usize,
        number: u32,
    ) {
        let its = table(number);
        let skips = &mut self.skips[skips_of(its)];
        let unfiltered = *skips > 0;
        *skips = skips.saturating_sub(len as u32);
        let fetches = !unfiltered && its.filter_words() > LARGE_FILTER;
        level.run(HashStep { hashes: &mut self.next_hashes, table: its, lanes, len, fetches });
        self.finish(level, table);
        std::mem::swap(&mut self.hashes, &mut self.next_hashes);
        self.pending = Some(PendingTable { number, len, unfiltered });
    }

    /// Finds the candidates of the table that was begun last. There are not enough candidates yet.
    #[inline]
    pub(crate) fn finish<'t>(&mut self, level: SimdLevel, table: impl Fn(u32) -> &'t TupleTable) {
        let Some(PendingTable { number, len, unfiltered }) = self.pending.take() else { return };
        let (its, before) = (table(number), self.len);
        level.run(FilterStep { probe: self, table: its, len, unfiltered });
        let found = self.len - before;
        if found > 0 {
            self.runs.push(TableRun { table: number, end: self.len });
        }
        if !unfiltered && len >= MIN_SAMPLE && found * 4 > len * 3 {
            self.skips[skips_of(its)] = SKIP_FACTOR * len as u32;
        }
    }

    /// Whether there are so many candidates that they should be verified now: there is room for one table's more at
    /// least.
    #[inline]
    pub(crate) fn should_verify(&self) -> bool {
        self.len > VERIFY_THRESHOLD || self.runs.len() == ROOM
    }

    /// Compares all candidates with what is in their tables, calls `hit` with key and value of those that agree, and
    /// forgets them.
    #[inline]
    pub(crate) fn verify<'t>(
        &mut self,
        level: SimdLevel,
        table: impl Fn(u32) -> &'t TupleTable,
        lanes: &[Column],
        mut hit: impl FnMut(u8, u32),
    ) {
        let mut start = 0;
        for &TableRun { table: number, end } in &self.runs {
            let table = table(number);
            let candidates = &self.candidates[start..end];
            let first = &mut self.first;
            match table.shape {
                SegmentShape::SMALL => {
                    verify_run::<4, 3, 1>(level, table, lanes, candidates, first, &mut hit)
                }
                SegmentShape::MIDDLE => {
                    verify_run::<6, 2, 1>(level, table, lanes, candidates, first, &mut hit)
                }
                SegmentShape::LARGE => {
                    verify_run::<14, 1, 1>(level, table, lanes, candidates, first, &mut hit)
                }
                _ => verify_run::<20, 1, 2>(level, table, lanes, candidates, first, &mut hit),
            }
            start = end;
        }
        self.runs.clear();
        self.len = 0;
    }
}

/// The place of a table in [`ProbeColumns::skips`]: a random one.
#[inline]
fn skips_of(table: &TupleTable) -> usize {
    table.seeds.fold[0] as usize >> 8 & (SKIPS - 1)
}

/// The first step.
struct HashStep<'a> {
    hashes: &'a mut Hashes,
    table: &'a TupleTable,
    lanes: &'a [Column],
    len: usize,
    fetches: bool,
}

impl Kernel for HashStep<'_> {
    #[inline(always)]
    fn run(self) {
        let HashStep { hashes, table, lanes, len, fetches } = self;
        Hashes::fill(hashes, lanes, len, &table.terms, &table.seeds);
        if fetches {
            hashes.hashes[..len].iter().for_each(|&hash| prefetch(table.filter(hash)));
        }
    }
}

/// The second step.
struct FilterStep<'a> {
    probe: &'a mut ProbeColumns,
    table: &'a TupleTable,
    len: usize,
    unfiltered: bool,
}

impl Kernel for FilterStep<'_> {
    #[inline(always)]
    fn run(self) {
        let FilterStep {
            probe: ProbeColumns { hashes, passes, candidates, len: end, .. },
            table,
            len,
            unfiltered,
        } = self;
        let start = *end;
        let Some(room) = candidates.get_mut(start..).and_then(|room| room.first_chunk_mut::<VECTOR>()) else {
            return;
        };
        let mut kept = 0;
        if unfiltered {
            for (key, (candidate, &hash)) in room.iter_mut().zip(&hashes.hashes[..len]).enumerate() {
                *candidate = ProbeCandidate { hash, key: key as u8 };
            }
            kept = len;
        } else {
            let hashed = hashes.hashes[..len].iter().zip(&hashes.marks[..len]);
            for (pass, (&hash, &marks)) in passes.iter_mut().zip(hashed) {
                *pass = u8::from(*table.filter(hash) & marks == marks);
            }
            for (key, (&pass, &hash)) in passes[..len].iter().zip(&hashes.hashes[..len]).enumerate() {
                // At most as many are kept as were looked at.
                room[kept & (VECTOR - 1)] = ProbeCandidate { hash, key: key as u8 };
                kept += usize::from(pass);
            }
        }
        for candidate in &room[..kept] {
            prefetch(table.reader(candidate.hash).line(table.shape, candidate.hash));
        }
        *end = start + kept;
    }
}

/// The third step, for the candidates of one table: at most as many as a vector has keys.
#[inline]
fn verify_run<const LANES: usize, const PLACES: usize, const LINES: usize>(
    level: SimdLevel,
    table: &TupleTable,
    lanes: &[Column],
    candidates: &[ProbeCandidate],
    first: &mut FirstBuckets,
    hit: &mut impl FnMut(u8, u32),
) {
    let mut columns: [&Column; LANES] = [&lanes[0]; LANES];
    for (column, &lane) in columns.iter_mut().zip(&table.lanes) {
        *column = &lanes[usize::from(lane)];
    }
    // Lanes beyond the table's are compared under masks of zeros.
    let masks = table.masks.as_chunks::<LANES>().0;
    let (mut found, mut unfinished) = (0, 0);
    let len = (&mut found, &mut unfinished);
    if masks.len() == 1 {
        level.run(CompareFirst::<LANES, PLACES, LINES, 1> { table, columns, masks, candidates, first, len });
    } else {
        level.run(CompareFirst::<LANES, PLACES, LINES, PLACES> {
            table,
            columns,
            masks,
            candidates,
            first,
            len,
        });
    }
    for &Found { key, rules } in first.found.iter().take(found) {
        hit(key, rules);
    }
    for &at in first.unfinished.iter().take(unfinished) {
        let ProbeCandidate { hash, key } = candidates[usize::from(at)];
        let packet = columns.map(|column| column[usize::from(key)]);
        table.reader(hash).find_beyond::<LANES, PLACES, LINES>(hash, &packet, masks, |value| hit(key, value));
    }
}

/// Compares every candidate with its first bucket, in which a key can have `VALUES` values: under a single mask one, else as many as there are
/// places. Under several masks the next bucket may have more of them. What a candidate finds is not to be predicted: nothing branches on it,
/// and no candidate waits for what the one before found.
struct CompareFirst<'a, const LANES: usize, const PLACES: usize, const LINES: usize, const VALUES: usize> {
    table: &'a TupleTable,
    columns: [&'a Column; LANES],
    masks: &'a [[u32; LANES]],
    candidates: &'a [ProbeCandidate],
    first: &'a mut FirstBuckets,
    /// The number of finds, and of candidates whose search goes on.
    len: (&'a mut usize, &'a mut usize),
}

impl<const LANES: usize, const PLACES: usize, const LINES: usize, const VALUES: usize> Kernel
    for CompareFirst<'_, LANES, PLACES, LINES, VALUES>
{
    #[inline(always)]
    fn run(self) {
        let CompareFirst { table, columns, masks, candidates, first, len } = self;
        let FirstBuckets { values, continues, found, unfinished } = first;
        // No two entries agree with one key.
        let alone = masks.len() == 1;
        let values = &mut values.as_chunks_mut::<VALUES>().0[..candidates.len()];
        let continues = &mut continues[..candidates.len()];
        for ((candidate, values), continues) in candidates.iter().zip(&mut *values).zip(&mut *continues) {
            let packet = columns.map(|column| column[usize::from(candidate.key)]);
            let reader = table.reader(candidate.hash);
            let bucket = reader.compare::<LANES, PLACES, LINES>(candidate.hash, &packet, masks);
            if VALUES == 1 {
                values[0] = bucket.only();
                *continues = u8::from(bucket.continues() & !(alone & (values[0] != NONE)));
            } else {
                for (place, value) in values.iter_mut().enumerate() {
                    *value = bucket.value(place);
                }
                *continues = u8::from(bucket.continues());
            }
        }
        let (mut end, mut left) = (0, 0);
        for (at, ((candidate, values), &continues)) in
            candidates.iter().zip(values).zip(&*continues).enumerate()
        {
            for &mut rules in values {
                found[end % FOUND] = Found { key: candidate.key, rules };
                end += usize::from(rules != NONE);
            }
            unfinished[left % VECTOR] = at as u8;
            left += usize::from(continues);
        }
        for &at in unfinished.iter().take(left) {
            // The next buckets are on their way while the first ones' finds are looked at.
            let hash = candidates[usize::from(at)].hash;
            prefetch(table.reader(hash).line(table.shape, hash.wrapping_add(1)));
        }
        (*len.0, *len.1) = (end, left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane_mask::LaneMask;
    use mmb_random::RepeatableRandom;

    /// An entry as a plain search sees it.
    type Plain = (LaneMask, LaneMask, u32);

    /// A table of keys of `lanes` lanes under several masks, its entries, and keys that suit them.
    struct Sample {
        table: TupleTable,
        plain: Vec<Plain>,
    }

    impl Sample {
        /// `members` masks: all fix the first lane's lower half, each what it draws of the others. Lanes have `bits` bits, so
        /// that keys agree.
        fn new(
            lanes: usize,
            members: usize,
            entries: usize,
            bits: u32,
            first: u32,
            state: &mut RepeatableRandom,
        ) -> Sample {
            let (mut relaxed, mut span) = (LaneMask::default(), LaneMask::default());
            relaxed[0] = 0xffff;
            span[..lanes].fill(u32::MAX);
            let mut table = TupleTable::new(&relaxed, &span, 0, || state.word());
            let mut masks: Vec<LaneMask> = (0..members)
                .map(|_| {
                    let mut mask = relaxed;
                    for lane in &mut mask[..lanes] {
                        *lane |= [0, 0xff, u32::MAX][state.word() as usize % 3];
                    }
                    mask
                })
                .collect();
            masks.sort_unstable();
            masks.dedup();
            masks.iter().for_each(|mask| _ = table.join(mask));
            let mut plain: Vec<Plain> = Vec::new();
            for value in first..first + entries as u32 {
                let member = state.word() as usize % masks.len();
                let key = key(state, bits);
                let key = std::array::from_fn(|lane| key[lane] & masks[member][lane]);
                if table.value(member as u8, &key).is_none()
                    && table.insert(member as u8, &key, value).is_ok()
                {
                    plain.push((masks[member], key, value));
                }
            }
            // Some go again: free places keep old keys.
            for at in (0..plain.len() / 5).rev() {
                let (mask, key, value) = plain.swap_remove(at);
                let member = masks.iter().position(|its| *its == mask).expect("it is one of them") as u8;
                assert_eq!(table.remove(member, &key), Some(value));
            }
            Sample { table, plain }
        }
    }

    fn key(state: &mut RepeatableRandom, bits: u32) -> LaneMask {
        std::array::from_fn(|lane| {
            if lane == 0 { state.word() as u32 % 97 } else { state.word() as u32 >> (32 - bits) }
        })
    }

    /// A vector of keys: some random, some that entries have.
    fn vector(samples: &[Sample], state: &mut RepeatableRandom, bits: u32) -> Vec<Column> {
        let mut lanes = vec![[0; VECTOR]; 20];
        for at in 0..VECTOR {
            let mut packet = key(state, bits);
            let plain = &samples[state.word() as usize % samples.len()].plain;
            if at % 4 > 0 && !plain.is_empty() {
                let (mask, its, _) = plain[state.word() as usize % plain.len()];
                packet = std::array::from_fn(|lane| packet[lane] & !mask[lane] | its[lane]);
            }
            lanes.iter_mut().zip(packet).for_each(|(column, lane)| column[at] = lane);
        }
        lanes
    }

    fn expected(samples: &[Sample], lanes: &[Column], len: usize) -> Vec<(u8, u32)> {
        let mut expected = Vec::new();
        for at in 0..len {
            for (mask, key, value) in samples.iter().flat_map(|sample| &sample.plain) {
                if lanes.iter().zip(mask).zip(key).all(|((column, mask), key)| column[at] & mask == *key) {
                    expected.push((at as u8, *value));
                }
            }
        }
        expected.sort_unstable();
        expected
    }

    /// Searches all tables as `search` does, and tells how many times candidates were verified. The second search leaves out the filters that
    /// most keys passed in the first one.
    fn found(samples: &[Sample], level: SimdLevel, lanes: &[Column], len: usize) -> (Vec<(u8, u32)>, usize) {
        let mut probe = ProbeColumns::default();
        let first = search(&mut probe, samples, level, lanes, len);
        let second = search(&mut probe, samples, level, lanes, len);
        assert_eq!(first.0, second.0, "{}", level.name());
        first
    }

    fn search(
        probe: &mut ProbeColumns,
        samples: &[Sample],
        level: SimdLevel,
        lanes: &[Column],
        len: usize,
    ) -> (Vec<(u8, u32)>, usize) {
        let (mut found, mut verified) = (Vec::new(), 1);
        let numbered = |number: u32| &samples[number as usize].table;
        for number in 0..samples.len() as u32 {
            probe.filter(level, numbered, lanes, len, number);
            if probe.should_verify() {
                probe.verify(level, numbered, lanes, |key, value| found.push((key, value)));
                verified += 1;
            }
        }
        probe.finish(level, numbered);
        probe.verify(level, numbered, lanes, |key, value| found.push((key, value)));
        found.sort_unstable();
        (found, verified)
    }

    #[test]
    fn tables_of_every_shape_find_what_a_loop_finds() {
        let mut state = RepeatableRandom::new(11);
        for (lanes, shape) in [
            (3, SegmentShape::SMALL),
            (4, SegmentShape::SMALL),
            (6, SegmentShape::MIDDLE),
            (9, SegmentShape::LARGE),
            (20, SegmentShape::WHOLE),
        ] {
            for members in [1, 2, 7] {
                let sample = [Sample::new(lanes, members, 400, 2, 0, &mut state)];
                assert_eq!(sample[0].table.shape, shape);
                let columns = vector(&sample, &mut state, 2);
                for len in [0, 1, 15, 100, VECTOR] {
                    let expected = expected(&sample, &columns, len);
                    assert!(len < 100 || expected.len() > len / 2);
                    for level in SimdLevel::available() {
                        let (found, _) = found(&sample, level, &columns, len);
                        assert!(found == expected, "{lanes} lanes, {members} members, {}", level.name());
                    }
                }
            }
        }
    }

    /// Of buckets with one place the second entry of a packet lies in the next bucket. It was once not found.
    #[test]
    fn entries_of_several_masks_are_found_in_the_next_buckets() {
        let mut state = RepeatableRandom::new(14);
        for lanes in [3, 6, 9, 20] {
            let mut sample = Sample::new(lanes, 1, 0, 2, 0, &mut state);
            let masks: Vec<LaneMask> = (0..5)
                .map(|fixed| {
                    let mut mask = sample.table.relaxed();
                    mask[1..lanes].iter_mut().take(fixed).for_each(|lane| *lane = u32::MAX);
                    mask
                })
                .filter(|mask| mask[..lanes].iter().any(|lane| *lane != 0))
                .collect();
            let packet: LaneMask = std::array::from_fn(|lane| 7 * (lane as u32 + 1));
            for (value, mask) in (0..).zip(&masks) {
                let member = sample.table.join(mask);
                let key = std::array::from_fn(|lane| packet[lane] & mask[lane]);
                if sample.table.value(member, &key).is_none() {
                    sample.table.insert(member, &key, value).expect("there is room");
                    sample.plain.push((*mask, key, value));
                }
            }
            assert!(sample.plain.len() > 2);
            let columns: Vec<Column> = packet.iter().map(|lane| [*lane; VECTOR]).collect();
            let sample = [sample];
            let expected = expected(&sample, &columns, 100);
            assert_eq!(expected.len(), 100 * sample[0].plain.len());
            for level in SimdLevel::available() {
                assert!(
                    found(&sample, level, &columns, 100).0 == expected,
                    "{lanes} lanes, {}",
                    level.name()
                );
            }
        }
    }

    #[test]
    fn candidates_of_several_tables_are_verified_together() {
        let mut state = RepeatableRandom::new(12);
        // Tables of all shapes, whose candidates are far more than there is room for at once.
        let samples: Vec<Sample> = (0..24)
            .map(|number| {
                Sample::new([3, 6, 10, 18][number % 4], 3, 300, 1, number as u32 * 1000, &mut state)
            })
            .collect();
        let columns = vector(&samples, &mut state, 1);
        let expected = expected(&samples, &columns, VECTOR);
        assert!(expected.len() > 2 * ROOM, "{}", expected.len());
        for level in SimdLevel::available() {
            let (found, verified) = found(&samples, level, &columns, VECTOR);
            assert!(verified > 3);
            assert!(found == expected, "{}", level.name());
        }
    }

    #[test]
    fn a_vector_of_which_every_key_passes_every_filter_fits() {
        let mut state = RepeatableRandom::new(13);
        let full = |first: u32, state: &mut RepeatableRandom| {
            let mut sample = Sample::new(2, 1, 0, 1, 0, state);
            let mask = sample.table.relaxed();
            let member = sample.table.join(&mask);
            for number in 0..97 {
                let mut key = LaneMask::default();
                key[0] = number;
                sample.table.insert(member, &key, first + number).expect("room");
                sample.plain.push((mask, key, first + number));
            }
            sample
        };
        let samples: Vec<Sample> = (0..5).map(|number| full(number * 1000, &mut state)).collect();
        let columns = vector(&samples, &mut state, 1);
        let expected = expected(&samples, &columns, VECTOR);
        assert_eq!(expected.len(), 5 * VECTOR);
        for level in SimdLevel::available() {
            assert!(found(&samples, level, &columns, VECTOR).0 == expected, "{}", level.name());
        }
    }
}
