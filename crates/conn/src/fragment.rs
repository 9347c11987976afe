//! Virtual reassembly: later fragments get the ports of their datagram's first fragment.
//!
//! Nothing is reassembled. The table stores the header fields of a datagram and the ranges of bytes that were
//! seen. With them, later fragments find their connection, and overlapping fragments are detected (RFC 1858,
//! RFC 5722). A later fragment that arrives before the first one is [`LaterFragment::Unknown`];
//! [`HeldFragments`] can hold it.
//!
//! Life-cycle: a datagram is tracked from its first fragment until all its bytes were seen, or until it is
//! too old. The number of tracked datagrams is limited: a new one evicts the oldest. Each worker owns its
//! [`FragmentTable`].

mod held;
mod key;

pub use held::{HeldFragments, HeldLosses, Released};
pub use key::{FragmentDrop, FragmentKey};

use crate::hash::TupleHasher;
use crate::{Tuple, proto};
use hashbrown::HashTable;
use key::MAX_FRAGMENTS;
use mmb_base::{Slab, id_types};
use mmb_random::Seed;

id_types! {
    /// The id of a tracked datagram; valid while the datagram is tracked.
    struct DatagramId;
}

/// The fields of a first fragment that later fragments use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramHead {
    /// The upper-layer protocol. The fragment header of a later IPv6 fragment may name an extension header
    /// instead.
    pub proto: u8,
    /// The datagram's ports.
    pub ports: [u16; 2],
}

/// A datagram whose bytes were all seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Complete {
    /// Its length in bytes, from the origin of fragment offsets.
    pub len: u32,
    /// The sequence number that [`FragmentTable::record_seq`] recorded.
    pub seq: Option<u32>,
}

/// The verdict for a first fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentVerdict {
    /// It passes.
    Pass,
    /// It is dropped.
    Drop(FragmentDrop),
}

/// The verdict for a later fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaterFragment {
    /// The fragment belongs to the datagram with this head. The second field is `Some` if the datagram is now
    /// complete.
    Known(DatagramHead, Option<Complete>),
    /// The first fragment was not seen, or was seen too long ago.
    Unknown,
    /// It is dropped.
    Drop(FragmentDrop),
}

/// After this time without a fragment, a first fragment with the same identification starts a new datagram.
const REUSED_MS: u64 = 1000;
/// The maximum number of datagrams that one call removes because of their age.
const MAX_AGED: usize = 16;

/// A datagram whose first fragment was seen.
#[derive(Default)]
struct Datagram {
    key: Tuple,
    head: DatagramHead,
    seq: Option<u32>,
    /// An overlap was seen, so all further fragments are dropped.
    poisoned: bool,
    /// The first fragment was refused, so later fragments have no connection and are dropped.
    refused: bool,
    /// The length of the datagram, once its last fragment was seen.
    total: Option<u32>,
    /// Number of bytes seen.
    seen: u32,
    /// The ranges of seen bytes, ends excluded, in order.
    ranges: Vec<(u32, u32)>,
    first_ms: u64,
    last_ms: u64,
    /// The neighbours in the list of datagrams, which is sorted by age.
    older: Option<DatagramId>,
    younger: Option<DatagramId>,
}

/// The incomplete datagrams of a worker.
pub struct FragmentTable {
    hasher: TupleHasher,
    max_age_ms: u64,
    max: usize,
    datagrams: Slab<DatagramId, Datagram>,
    index: HashTable<DatagramId>,
    oldest: Option<DatagramId>,
    youngest: Option<DatagramId>,
}

impl FragmentTable {
    /// A table that tracks at most `max_datagrams`, each for at most `max_age_ms`.
    pub fn new(seed: Seed, max_datagrams: usize, max_age_ms: u64) -> FragmentTable {
        FragmentTable {
            hasher: TupleHasher::new(seed),
            max_age_ms,
            max: max_datagrams.clamp(1, u32::MAX as usize),
            datagrams: Slab::default(),
            index: HashTable::new(),
            oldest: None,
            youngest: None,
        }
    }

    /// Number of tracked datagrams.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether no datagram is tracked.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Checks a first fragment, and tracks its datagram if it passes. `payload_end` is the offset at which
    /// the fragment's payload ends. Offsets count from the end of the IPv4 header, or of the IPv6 fragment
    /// header.
    pub fn first(
        &mut self,
        now_ms: u64,
        key: FragmentKey,
        head: DatagramHead,
        payload_end: u32,
    ) -> FragmentVerdict {
        self.age(now_ms);
        if payload_end < key.header() {
            return FragmentVerdict::Drop(FragmentDrop::Tiny);
        }
        if let Err(reason) = check_length(0, payload_end, false) {
            return FragmentVerdict::Drop(reason);
        }
        let packed = key.packed();
        if let Some(id) = self.find(&packed) {
            let known = &mut self.datagrams[id];
            let reused = !known.poisoned && now_ms.saturating_sub(known.last_ms) >= REUSED_MS;
            if !reused && now_ms.saturating_sub(known.first_ms) <= self.max_age_ms {
                let is_duplicate =
                    known.head.ports == head.ports && known.ranges.first() == Some(&(0, payload_end));
                known.poisoned |= !is_duplicate;
                let reason = if known.poisoned { FragmentDrop::Overlap } else { FragmentDrop::Duplicate };
                return FragmentVerdict::Drop(reason);
            }
            self.remove(id);
        }
        self.add(now_ms, packed, head, payload_end);
        FragmentVerdict::Pass
    }

    /// Checks a later fragment with this offset and length. `last` means that the more-fragments flag is
    /// clear.
    pub fn later(
        &mut self,
        now_ms: u64,
        key: FragmentKey,
        offset_bytes: u32,
        len: u32,
        last: bool,
    ) -> LaterFragment {
        self.age(now_ms);
        if key.proto == proto::TCP && offset_bytes < key.header() {
            return LaterFragment::Drop(FragmentDrop::Tiny);
        }
        if let Err(reason) = check_length(offset_bytes, len, last) {
            return LaterFragment::Drop(reason);
        }
        let Some(id) = self.find(&key.packed()) else { return LaterFragment::Unknown };
        let datagram = &mut self.datagrams[id];
        if now_ms.saturating_sub(datagram.first_ms) > self.max_age_ms {
            return LaterFragment::Unknown;
        }
        datagram.last_ms = now_ms;
        if datagram.refused {
            return LaterFragment::Drop(FragmentDrop::Refused);
        }
        match datagram.add(offset_bytes, offset_bytes + len, last) {
            Err(reason) => LaterFragment::Drop(reason),
            Ok(()) => {
                let Datagram { head, seq, seen, total, .. } = *datagram;
                let complete = (total == Some(seen)).then_some(Complete { len: seen, seq });
                if complete.is_some() {
                    self.remove(id);
                }
                LaterFragment::Known(head, complete)
            }
        }
    }

    /// Refuses a datagram whose first fragment has passed this table: its later fragments are dropped.
    pub fn refuse(&mut self, key: &FragmentKey) {
        if let Some(id) = self.find(&key.packed()) {
            self.datagrams[id].refused = true;
        }
    }

    /// Records the sequence number of the datagram's byte at offset 0, which its first fragment contains.
    pub fn record_seq(&mut self, key: &FragmentKey, seq: u32) {
        if let Some(id) = self.find(&key.packed()) {
            self.datagrams[id].seq = Some(seq);
        }
    }

    fn find(&self, key: &Tuple) -> Option<DatagramId> {
        self.index.find(self.hasher.hash(key), |id| self.datagrams[*id].key == *key).copied()
    }

    /// Removes datagrams that are too old, the oldest first, a limited number at a time.
    fn age(&mut self, now_ms: u64) {
        for _ in 0..MAX_AGED {
            let Some(oldest) = self.oldest else { break };
            if now_ms.saturating_sub(self.datagrams[oldest].first_ms) <= self.max_age_ms {
                break;
            }
            self.remove(oldest);
        }
    }

    fn add(&mut self, now_ms: u64, key: Tuple, head: DatagramHead, end: u32) {
        if self.len() == self.max
            && let Some(oldest) = self.oldest
        {
            self.remove(oldest);
        }
        let older = self.youngest;
        let id = self.datagrams.insert_reusing(|Datagram { mut ranges, .. }| {
            ranges.clear();
            ranges.push((0, end));
            Datagram {
                key,
                head,
                seen: end,
                ranges,
                first_ms: now_ms,
                last_ms: now_ms,
                older,
                ..Datagram::default()
            }
        });
        match older {
            Some(older) => self.datagrams[older].younger = Some(id),
            None => self.oldest = Some(id),
        }
        self.youngest = Some(id);
        let (hasher, datagrams) = (&self.hasher, &self.datagrams);
        self.index.insert_unique(hasher.hash(&key), id, |id| hasher.hash(&datagrams[*id].key));
    }

    fn remove(&mut self, id: DatagramId) {
        let Datagram { key, older, younger, .. } = self.datagrams[id];
        match older {
            Some(older) => self.datagrams[older].younger = younger,
            None => self.oldest = younger,
        }
        match younger {
            Some(younger) => self.datagrams[younger].older = older,
            None => self.youngest = older,
        }
        if let Ok(entry) = self.index.find_entry(self.hasher.hash(&key), |other| *other == id) {
            entry.remove();
            // The slot keeps the memory of `ranges` for the next datagram.
            self.datagrams.free(id);
        }
    }
}

impl Datagram {
    fn add(&mut self, start: u32, end: u32, last: bool) -> Result<(), FragmentDrop> {
        if self.poisoned {
            return Err(FragmentDrop::Overlap);
        }
        let index = self.ranges.partition_point(|range| range.0 < start);
        if self.ranges.get(index) == Some(&(start, end)) && last == (self.total == Some(end)) {
            return Err(FragmentDrop::Duplicate);
        }
        let over_before = index.checked_sub(1).is_some_and(|before| self.ranges[before].1 > start);
        let over_after = self.ranges.get(index).is_some_and(|after| after.0 < end);
        let furthest = self.ranges.last().map_or(0, |range| range.1);
        let end_moved = match self.total {
            Some(total) => last || end > total,
            None => last && end < furthest,
        };
        if over_before || over_after || end_moved {
            self.poisoned = true;
            return Err(FragmentDrop::Overlap);
        }
        if self.ranges.len() == MAX_FRAGMENTS {
            return Err(FragmentDrop::TooMany);
        }
        self.ranges.insert(index, (start, end));
        self.seen += end - start;
        if last {
            self.total = Some(end);
        }
        Ok(())
    }
}

/// Checks that a fragment ends within the maximum length of 65,535 bytes: the length field has 16 bits.
fn check_length(start: u32, len: u32, last: bool) -> Result<(), FragmentDrop> {
    let fits = len > 0 && len <= 65_535 && start <= 65_535 && start + len <= 65_535;
    if fits && (last || len.is_multiple_of(8)) { Ok(()) } else { Err(FragmentDrop::BadLength) }
}

#[cfg(test)]
mod tests;
