//! The index from hashes to entries: extendible hashing (Fagin et al., TODS 1979) over segments of 64
//! buckets. A bucket is a cache line.
//!
//! Some bits of a hash select a segment, others select two buckets in the segment. An entry goes to its first
//! bucket or, if that is full, to its second. If both are full, it displaces an entry of one of them to that
//! entry's other bucket. The first bucket counts its entries that are in their second bucket, so that most
//! misses read one line. A full segment is split in two: at most 640 entries move, and the rest of the index
//! is not touched.
//!
//! Hashes are keyed, so a sender cannot cause collisions by its choice of tuples. If equal hashes fill a
//! bucket nevertheless, splitting would never end. Such entries go to a small stash, which is searched last.
//! An entry is refused if the stash is full, or if memory is exhausted when a segment must
//! split or the stash must grow.

use crate::alloc_error::AllocError;
use mmb_base::simd::equal_lanes;
use mmb_base::{Chunks, SlabStorage};

/// Entries per bucket.
const WAYS: usize = 10;

/// Buckets per segment, as a shift.
const BUCKET_BITS: u32 = 6;
const BUCKETS: usize = 1 << BUCKET_BITS;

/// A segment with fewer entries than this is not split: only some of its buckets are crowded, and a split
/// would not help.
const MIN_SPLIT_ENTRIES: u16 = (BUCKETS * WAYS / 2) as u16;

/// A segment with this many entries is split although it has room. In a fuller segment, more than a few per
/// cent of the entries would be in their second bucket, where each lookup costs a cache miss.
const FULL: u16 = (BUCKETS * WAYS * 3 / 4) as u16;

/// The thresholds at which segments are split are spread over this many entries below [`FULL`]. Hashes fill
/// all segments equally: with one threshold, all segments would be split within a short time.
const SPREAD: u16 = FULL / 4;

/// During a split, the key of an entry is prefetched this number of entries before the entry is hashed.
const AHEAD: usize = 16;

/// The number of entries at which a segment is split.
fn split_threshold(number: u32, depth: u8) -> u16 {
    let scattered = (number ^ u32::from(depth) << 24).wrapping_mul(0x9e37_79b1) >> 16;
    FULL - scattered as u16 % SPREAD
}

/// The access of a [`TupleIndex`] to the keys of its entries.
pub trait IndexKeys {
    /// The hash of an entry.
    fn hash(&self, entry: u32) -> u64;

    /// Prefetches what [`IndexKeys::hash`] reads.
    fn prefetch(&self, entry: u32);
}

/// The stash accepts no new entry if it has this many.
const STASH: usize = 256;

/// Segments per chunk of 4 MB, of which only the used part takes memory.
const CHUNK: usize = 1 << 10;

/// No entry.
pub const EMPTY: u32 = 0;

/// Why an entry was not added.
#[derive(Debug, PartialEq, Eq)]
pub enum IndexError {
    /// Equal hashes fill both buckets of the entry and the stash.
    StashFull,
    /// Memory for more segments or for the stash is exhausted.
    NoMemory,
}

/// No entry, and neither bucket has an entry with this hash.
pub const ABSENT: u32 = 1;

/// Ten entries and their fingerprints: one cache line.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct IndexBucket {
    /// The fingerprints of the entries, then the words [`OVERFLOWED`] and [`IN_SECOND`].
    head: [u16; WAYS + 2],
    entries: [u32; WAYS],
}

/// The word of `head` with the number of entries that have this first bucket and are in their second one.
const OVERFLOWED: usize = WAYS;
/// The word of `head` with a bit for each way, set if the bucket is the second one of the way's entry.
const IN_SECOND: usize = WAYS + 1;
/// A bit for each way of a bucket.
const ALL_WAYS: u32 = (1 << WAYS) - 1;

const _: () = assert!(size_of::<IndexBucket>() == 64);

/// A bit for each way of a bucket, set if its fingerprint matches.
#[derive(Clone, Copy)]
struct WayMatches(u32);

impl WayMatches {
    #[inline(always)]
    fn first(self) -> Option<usize> {
        (self.0 != 0).then_some(self.0.trailing_zeros() as usize)
    }

    #[inline(always)]
    fn others(self) -> WayMatches {
        WayMatches(self.0 & self.0.wrapping_sub(1))
    }
}

impl IndexBucket {
    pub(crate) const NEW: IndexBucket = IndexBucket { head: [0; WAYS + 2], entries: [EMPTY; WAYS] };

    /// The likely entry of a hash whose first bucket this is: the first entry with the hash's fingerprint. If
    /// there is none, [`EMPTY`] means that the second bucket may have the entry, and [`ABSENT`] that it does
    /// not.
    #[inline(always)]
    pub fn likely(&self, hash: u64) -> u32 {
        match self.matches(parts(hash).print).first() {
            // The way always exists. `unwrap_or` avoids the code of a panic.
            Some(way) => self.entries.get(way).copied().unwrap_or(EMPTY),
            None if self.overflowed() == 0 => ABSENT,
            None => EMPTY,
        }
    }

    /// The ways with a fingerprint. Empty ways may be among them.
    #[inline(always)]
    fn matches(&self, print: u16) -> WayMatches {
        WayMatches(equal_lanes(&self.head, print) & ALL_WAYS)
    }

    #[inline]
    fn find(&self, print: u16, is: &mut impl FnMut(u32) -> bool) -> Option<u32> {
        let mut matches = self.matches(print);
        while let Some(way) = matches.first() {
            let entry = self.entries[way];
            if entry != EMPTY && is(entry) {
                return Some(entry);
            }
            matches = matches.others();
        }
        None
    }

    fn print(&self, way: usize) -> u16 {
        self.head[way]
    }

    /// Number of entries that have this first bucket and are in their second one.
    fn overflowed(&self) -> u16 {
        self.head[OVERFLOWED]
    }

    fn way_of(&self, entry: u32) -> Option<usize> {
        self.entries.iter().position(|other| *other == entry)
    }

    fn is_in_second(&self, way: usize) -> bool {
        self.head[IN_SECOND] >> way & 1 == 1
    }

    fn put(&mut self, way: usize, print: u16, entry: u32, is_in_second: bool) {
        self.entries[way] = entry;
        self.head[way] = print;
        self.head[IN_SECOND] = self.head[IN_SECOND] & !(1 << way) | u16::from(is_in_second) << way;
    }
}

/// The parts of a hash.
#[derive(Clone, Copy)]
struct HashParts {
    first: usize,
    print: u16,
}

#[inline]
fn parts(hash: u64) -> HashParts {
    HashParts { first: hash as usize % BUCKETS, print: (hash >> 16) as u16 }
}

/// The other bucket of an entry: the second one from the first, and the first one from the second (after
/// cuckoo filters, Fan et al., CoNEXT 2014). So entries can move to their other bucket without their hash.
#[inline]
fn other(bucket: usize, print: u16) -> usize {
    bucket ^ (1 + usize::from(print) % (BUCKETS - 1))
}

#[derive(Clone, Debug)]
struct IndexSegment {
    buckets: [IndexBucket; BUCKETS],
}

impl IndexSegment {
    fn new() -> IndexSegment {
        IndexSegment { buckets: [IndexBucket::NEW; BUCKETS] }
    }

    fn insert(&mut self, hash: u64, entry: u32) -> bool {
        let HashParts { first, print } = parts(hash);
        let second = other(first, print);
        let free =
            |segment: &IndexSegment, bucket: usize| Some((bucket, segment.buckets[bucket].way_of(EMPTY)?));
        let room = free(self, first)
            .or_else(|| free(self, second))
            .or_else(|| Some((first, self.make_room(first)?)))
            .or_else(|| Some((second, self.make_room(second)?)));
        let Some((bucket, way)) = room else { return false };
        self.buckets[bucket].put(way, print, entry, bucket == second);
        self.buckets[first].head[OVERFLOWED] += u16::from(bucket == second);
        true
    }

    /// Frees a way of a full bucket by moving an entry to its other bucket, if one of these has room.
    fn make_room(&mut self, bucket: usize) -> Option<usize> {
        let full = &self.buckets[bucket];
        let (way, target, room) = (0..WAYS).find_map(|way| {
            let target = other(bucket, full.print(way));
            Some((way, target, self.buckets[target].way_of(EMPTY)?))
        })?;
        let (print, entry, moves_to_first) = (full.print(way), full.entries[way], full.is_in_second(way));
        self.buckets[target].put(room, print, entry, !moves_to_first);
        if moves_to_first {
            self.buckets[target].head[OVERFLOWED] -= 1;
        } else {
            self.buckets[bucket].head[OVERFLOWED] += 1;
        }
        Some(way)
    }

    fn remove(&mut self, hash: u64, entry: u32) -> bool {
        let HashParts { first, print } = parts(hash);
        for bucket in [first, other(first, print)] {
            if let Some(way) = self.buckets[bucket].way_of(entry) {
                self.buckets[first].head[OVERFLOWED] -= u16::from(self.buckets[bucket].is_in_second(way));
                self.buckets[bucket].put(way, 0, EMPTY, false);
                return true;
            }
        }
        false
    }
}

/// The data of a segment outside its buckets.
#[derive(Clone, Copy, Debug)]
struct SegmentInfo {
    /// How many of the bits that select a segment are equal in all its entries.
    depth: u8,
    entries: u16,
}

/// The index. An entry is a number above [`ABSENT`] with a meaning that the caller defines.
#[derive(Debug)]
pub struct TupleIndex {
    /// The segment for each value of the lowest `depth` of the selecting bits. One more bit doubles the
    /// directory, which is one copy.
    directory: Vec<u32>,
    depth: u8,
    /// The last index of `directory`, as a mask.
    mask: usize,
    segments: Chunks<IndexSegment, CHUNK>,
    segment_info: Vec<SegmentInfo>,
    stash: Vec<(u64, u32)>,
    /// Scratch memory for splitting.
    moving: Vec<(u64, u32)>,
}

impl Default for TupleIndex {
    fn default() -> TupleIndex {
        TupleIndex::new()
    }
}

impl TupleIndex {
    /// An index that rarely has more than some thousand entries.
    pub fn new() -> TupleIndex {
        TupleIndex::with(Chunks::small())
    }

    /// An index that is fast to read when it is large. It takes at least two megabytes.
    pub(crate) fn large() -> TupleIndex {
        TupleIndex::with(Chunks::default())
    }

    fn with(segments: Chunks<IndexSegment, CHUNK>) -> TupleIndex {
        let mut index = TupleIndex {
            directory: vec![0],
            depth: 0,
            mask: 0,
            segments,
            segment_info: Vec::new(),
            stash: Vec::new(),
            moving: Vec::new(),
        };
        index.reserve(0).expect("memory for the first segment");
        index.push_segment(0);
        index
    }

    /// Reserves memory for one more segment, whose entries share `depth` bits, and for splitting one.
    fn reserve(&mut self, depth: u8) -> Result<(), AllocError> {
        self.segments.try_reserve()?;
        self.segment_info.try_reserve(1)?;
        self.moving.try_reserve(BUCKETS * WAYS)?;
        // The stash gets the entries that find no room after a split, in addition to those that it has.
        self.stash.try_reserve(BUCKETS * WAYS)?;
        if depth > self.depth {
            self.directory.try_reserve(self.directory.len())?;
        }
        Ok(())
    }

    /// Adds a segment, for which memory was reserved.
    fn push_segment(&mut self, depth: u8) -> u32 {
        let number = self.segment_info.len();
        self.segments.push(IndexSegment::new());
        self.segment_info.push(SegmentInfo { depth, entries: 0 });
        number as u32
    }

    #[inline]
    fn segment_of(&self, hash: u64) -> u32 {
        self.directory[(hash >> 32) as usize & self.mask]
    }

    #[inline]
    fn segment(&self, number: u32) -> &IndexSegment {
        self.segments.at(number as usize)
    }

    fn segment_mut(&mut self, number: u32) -> &mut IndexSegment {
        self.segments.at_mut(number as usize)
    }

    /// The bucket where the search for a hash begins.
    #[inline]
    pub fn first(&self, hash: u64) -> &IndexBucket {
        &self.segment(self.segment_of(hash)).buckets[parts(hash).first]
    }

    /// Whether some entries are in the stash, in neither of their buckets.
    #[inline]
    pub(crate) fn has_stash(&self) -> bool {
        !self.stash.is_empty()
    }

    /// The entry of a hash for which `is` returns true.
    #[inline]
    pub fn find(&self, hash: u64, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let HashParts { first, print } = parts(hash);
        let segment = self.segment(self.segment_of(hash));
        let bucket = &segment.buckets[first];
        let mut found = bucket.find(print, &mut is);
        if found.is_none() && bucket.overflowed() > 0 {
            found = segment.buckets[other(first, print)].find(print, &mut is);
        }
        if found.is_none() && !self.stash.is_empty() {
            let mut stashed = self.stash.iter().filter(|(other, _)| *other == hash);
            found = stashed.find(|(_, entry)| is(*entry)).map(|(_, entry)| *entry);
        }
        found
    }

    /// Adds an entry. Other entries may move.
    pub fn insert(&mut self, hash: u64, entry: u32, keys: &impl IndexKeys) -> Result<(), IndexError> {
        loop {
            let number = self.segment_of(hash);
            let SegmentInfo { depth, entries } = self.segment_info[number as usize];
            if entries >= split_threshold(number, depth)
                && self.may_split(number)
                && self.reserve(depth + 1).is_ok()
            {
                self.split(number, keys);
                continue;
            }
            if self.segment_mut(number).insert(hash, entry) {
                self.segment_info[number as usize].entries += 1;
                return Ok(());
            }
            if self.segment_info[number as usize].entries >= MIN_SPLIT_ENTRIES && self.may_split(number) {
                let depth = self.segment_info[number as usize].depth + 1;
                self.reserve(depth).map_err(|AllocError| IndexError::NoMemory)?;
                self.split(number, keys);
                continue;
            }
            return self.stash(hash, entry);
        }
    }

    /// Removes an entry that was added with this hash.
    pub fn remove(&mut self, hash: u64, entry: u32) {
        let number = self.segment_of(hash);
        if self.segment_mut(number).remove(hash, entry) {
            self.segment_info[number as usize].entries -= 1;
        } else if let Some(position) = self.stash.iter().position(|(_, other)| *other == entry) {
            self.stash.swap_remove(position);
        }
    }

    /// Whether a segment may be split: the directory doubles only while its size is in proportion to the
    /// number of segments.
    fn may_split(&self, number: u32) -> bool {
        self.segment_info[number as usize].depth < self.depth
            || self.directory.len() < 16 * self.segment_info.len().max(4)
    }

    /// Splits a segment, for which memory was reserved.
    fn split(&mut self, number: u32, keys: &impl IndexKeys) {
        let depth = self.segment_info[number as usize].depth + 1;
        if depth > self.depth {
            self.directory.extend_from_within(..);
            (self.depth, self.mask) = (depth, self.directory.len() - 1);
        }
        self.segment_info[number as usize] = SegmentInfo { depth, entries: 0 };
        let sibling = self.push_segment(depth);

        let old = std::mem::replace(self.segment_mut(number), IndexSegment::new());
        let mut moving = std::mem::take(&mut self.moving);
        let entries = old.buckets.iter().flat_map(|bucket| bucket.entries);
        moving.extend(entries.filter(|entry| *entry != EMPTY).map(|entry| (0, entry)));
        for position in 0..moving.len() {
            moving.get(position + AHEAD).into_iter().for_each(|(_, ahead)| keys.prefetch(*ahead));
            let (hash, entry) = &mut moving[position];
            *hash = keys.hash(*entry);
        }

        // The sibling gets those directory entries of the old segment whose index has the new bit set.
        let (any, _) = moving[0];
        let last = 1usize << (depth - 1);
        let places = (directory_index(any, depth) | last..self.directory.len()).step_by(2 * last);
        places.for_each(|place| self.directory[place] = sibling);

        for (hash, entry) in moving.drain(..) {
            let goes = if directory_index(hash, depth) & last != 0 { sibling } else { number };
            if self.segment_mut(goes).insert(hash, entry) {
                self.segment_info[goes as usize].entries += 1;
            } else {
                // These entries had room in another order of insertion. This is rare, and the stash may
                // exceed its limit by them.
                self.stash.push((hash, entry));
            }
        }
        self.moving = moving;
    }

    fn stash(&mut self, hash: u64, entry: u32) -> Result<(), IndexError> {
        if self.stash.len() >= STASH {
            return Err(IndexError::StashFull);
        }
        self.stash.try_reserve(1).map_err(|_| IndexError::NoMemory)?;
        self.stash.push((hash, entry));
        Ok(())
    }

    /// Bytes in use.
    pub fn memory(&self) -> usize {
        self.segments.memory()
            + self.segment_info.capacity() * size_of::<SegmentInfo>()
            + self.directory.capacity() * size_of::<u32>()
            + (self.stash.capacity() + self.moving.capacity()) * size_of::<(u64, u32)>()
    }
}

/// The bits of a hash that select a segment. They are from the upper half, since the lower half selects
/// buckets.
#[inline]
fn directory_index(hash: u64, bits: u8) -> usize {
    (hash >> 32) as usize & ((1 << bits) - 1)
}

#[cfg(test)]
mod tests;
