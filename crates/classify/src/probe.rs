//! Searching tables for a vector of keys, in steps that each go over many keys before the next begins.
//!
//! 1. All keys are hashed, and their filter words loaded. Nothing here waits for anything else, so that many loads are
//!    under way at once.
//! 2. Keys that the filter lets pass become *candidates*, and their buckets are asked for ahead.
//! 3. When there are enough candidates, of this table or of several, buckets are compared.
//!
//! One worker owns a [`Probe`].

use crate::VECTOR;
use crate::keys::Column;
use crate::segment::{Glance, NONE, Shape};
use crate::simd::{Hashes, Kernel, Level, prefetch};
use crate::table::Table;

/// Candidates that there is room for: those of any table behind as many as make a verification worth while.
const ROOM: usize = 2 * VECTOR;
/// So many candidates are verified at once, about.
const ENOUGH: usize = VECTOR;

/// A key that a filter let pass: it may be in the table.
#[derive(Clone, Copy, Debug, Default)]
struct Candidate {
    hash: u32,
    key: u8,
}

/// Candidates of one table.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    table: u32,
    /// Behind its last candidate.
    end: usize,
}

/// Columns of a vector while tables are searched.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    hashes: Hashes,
    /// Whether the filter lets a key pass.
    passes: Box<[u8; VECTOR]>,
    candidates: Box<[Candidate; ROOM]>,
    len: usize,
    runs: Vec<Run>,
    /// What the candidates' first buckets told: a value, [`NOTHING`] or [`MORE`].
    values: Box<[u32; ROOM]>,
}

/// The key is not there. No list and no rule has such a number.
const NOTHING: u32 = NONE;
/// It takes a longer look.
const MORE: u32 = NONE - 1;

impl Default for Probe {
    fn default() -> Self {
        Probe {
            hashes: Hashes::default(),
            passes: Box::new([0; VECTOR]),
            candidates: Box::new([Candidate::default(); ROOM]),
            len: 0,
            runs: Vec::with_capacity(ROOM),
            values: Box::new([NOTHING; ROOM]),
        }
    }
}

impl Probe {
    /// Finds candidates of a table among the first `len` keys; `number` is the table's.
    #[inline]
    pub(crate) fn sift(&mut self, level: Level, table: &Table, lanes: &[Column], len: usize, number: u32) {
        let before = self.len;
        level.run(Sift { probe: self, table, lanes, len });
        if self.len > before {
            self.runs.push(Run { table: number, end: self.len });
        }
    }

    /// Whether there are so many candidates that they should be verified now: there is room for one table's more at
    /// least.
    #[inline]
    pub(crate) fn has_enough(&self) -> bool {
        self.len > ENOUGH || self.runs.len() == ROOM
    }

    /// Compares all candidates with what is in their tables, calls `hit` with key and value of those that agree, and
    /// forgets them.
    #[inline]
    pub(crate) fn verify<'t>(
        &mut self,
        level: Level,
        table: impl Fn(u32) -> &'t Table,
        lanes: &[Column],
        mut hit: impl FnMut(u8, u32),
    ) {
        let mut start = 0;
        for &Run { table: number, end } in &self.runs {
            let table = table(number);
            let candidates = &self.candidates[start..end];
            let values = &mut self.values[start..end];
            match table.shape {
                Shape::SMALL => verify_run::<4, 3, 1>(level, table, lanes, candidates, values, &mut hit),
                Shape::MIDDLE => verify_run::<6, 2, 1>(level, table, lanes, candidates, values, &mut hit),
                Shape::LARGE => verify_run::<14, 1, 1>(level, table, lanes, candidates, values, &mut hit),
                _ => verify_run::<20, 1, 2>(level, table, lanes, candidates, values, &mut hit),
            }
            start = end;
        }
        self.runs.clear();
        self.len = 0;
    }
}

/// The first two steps.
struct Sift<'a> {
    probe: &'a mut Probe,
    table: &'a Table,
    lanes: &'a [Column],
    len: usize,
}

impl Kernel for Sift<'_> {
    #[inline(always)]
    fn run(self) {
        let Sift { probe: Probe { hashes, passes, candidates, len: end, .. }, table, lanes, len } = self;
        Hashes::fill(hashes, lanes, len, &table.terms, &table.seeds);
        let hashed = hashes.hashes[..len].iter().zip(&hashes.marks[..len]);
        for (pass, (&hash, &marks)) in passes.iter_mut().zip(hashed) {
            *pass = u8::from(table.filter(hash) & marks == marks);
        }
        let start = *end;
        let Some(room) = candidates.get_mut(start..).and_then(|room| room.first_chunk_mut::<VECTOR>()) else {
            return;
        };
        let mut kept = 0;
        for (key, (&pass, &hash)) in passes[..len].iter().zip(&hashes.hashes[..len]).enumerate() {
            // At most as many are kept as were looked at.
            room[kept & (VECTOR - 1)] = Candidate { hash, key: key as u8 };
            kept += usize::from(pass);
        }
        for candidate in &room[..kept] {
            prefetch(table.reader(candidate.hash).line(table.shape, candidate.hash));
        }
        *end = start + kept;
    }
}

/// The third step, for the candidates of one table.
#[inline]
fn verify_run<const LANES: usize, const PLACES: usize, const LINES: usize>(
    level: Level,
    table: &Table,
    lanes: &[Column],
    candidates: &[Candidate],
    values: &mut [u32],
    hit: &mut impl FnMut(u8, u32),
) {
    let mut columns: [&Column; LANES] = [&lanes[0]; LANES];
    for (column, &lane) in columns.iter_mut().zip(&table.lanes) {
        *column = &lanes[usize::from(lane)];
    }
    // Lanes beyond the table's are compared under masks of zeros.
    let masks = table.masks.as_chunks::<LANES>().0;
    level.run(Glances::<LANES, PLACES, LINES> { table, columns, masks, candidates, values });
    for (&Candidate { hash, key }, &value) in candidates.iter().zip(&*values) {
        match value {
            NOTHING => {}
            MORE => {
                let packet = columns.map(|column| column[usize::from(key)]);
                let reader = table.reader(hash);
                reader.find::<LANES, PLACES, LINES>(hash, &packet, masks, |value| hit(key, value));
            }
            value => hit(key, value),
        }
    }
}

/// A look at every candidate's first bucket.
struct Glances<'a, const LANES: usize, const PLACES: usize, const LINES: usize> {
    table: &'a Table,
    columns: [&'a Column; LANES],
    masks: &'a [[u32; LANES]],
    candidates: &'a [Candidate],
    values: &'a mut [u32],
}

impl<const LANES: usize, const PLACES: usize, const LINES: usize> Kernel
    for Glances<'_, LANES, PLACES, LINES>
{
    #[inline(always)]
    fn run(self) {
        let Glances { table, columns, masks, candidates, values } = self;
        let alone = masks.len() == 1;
        for (&Candidate { hash, key }, value) in candidates.iter().zip(values) {
            let packet = columns.map(|column| column[usize::from(key)]);
            *value = match table.reader(hash).glance::<LANES, PLACES, LINES>(hash, &packet, masks, alone) {
                Glance::Nothing => NOTHING,
                Glance::One(value) => value,
                Glance::More => MORE,
            };
        }
    }
}
