//! Virtual reassembly: the ports of a datagram's first fragment, lent to the later ones.
//!
//! Nothing is put together. What is kept of a datagram is its header and which bytes were seen, so that later fragments find its
//! connection and overlapping ones are noticed (RFC 1858, RFC 5722). A later fragment that comes before the first one is
//! [`Later::Unknown`]; [`Held`] is where such ones may wait.
//!
//! Life-cycle: a datagram is known from its first fragment until its last byte was seen, or until it is too old. There are
//! at most so many; one more takes the place of the oldest. A worker owns its [`Fragments`].

mod held;

pub use held::{Held, Losses, Released};

use crate::hash::Hasher;
use crate::{Side, Tuple, Wire, proto};
use hashbrown::HashTable;
use mmb_packet::flow::header_len;
use mmb_random::Seed;

/// What the fragments of one datagram have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentKey {
    /// Source and destination address, as they arrived.
    pub addresses: [u128; 2],
    /// The identification of the IPv4 header or of the IPv6 fragment header.
    pub id: u32,
    /// The upper-layer protocol. It does not tell datagrams of IPv6 apart (RFC 8200, section 4.5).
    pub proto: u8,
    /// 4 or 6.
    pub family: u8,
    /// The wire, as in [`Tuple`].
    pub wire: Wire,
    /// The side of the wire, as in [`Tuple`].
    pub side: Side,
}

impl FragmentKey {
    /// The key in the form that is hashed and compared.
    pub fn packed(&self) -> Tuple {
        let proto = if self.family == 6 { 0 } else { self.proto };
        let ports = [(self.id >> 16) as u16, self.id as u16];
        let FragmentKey { addresses, family, wire, side, .. } = *self;
        Tuple { addresses, ports, wire, side, proto, family }
    }

    /// The bytes of transport header that a first fragment must have, since rules look at them.
    fn header(&self) -> u32 {
        match self.proto {
            proto::TCP => 20,
            proto::UDP | proto::ICMP | proto::ICMP6 => 8,
            // The key behind a checksum.
            proto::GRE => 12,
            other => header_len(other).max(1) as u32,
        }
    }
}

/// Why a fragment is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentDrop {
    /// It overlaps another one, or the datagram's end moved. What follows of the datagram is dropped as well.
    Overlap,
    /// The same bytes were seen before. The datagram goes on.
    Duplicate,
    /// It is too short to hold the transport header, or lies where that belongs.
    Tiny,
    /// Its length is not a multiple of 8 though more follows, it is empty, or it reaches beyond what a datagram may have.
    BadLength,
    /// The datagram has come in more pieces than are counted.
    TooMany,
    /// It would have to wait for its first one, and there is no room for it.
    NoRoom,
    /// The first one was refused.
    Refused,
}

/// What the first fragment of a datagram tells of the later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The upper-layer protocol. In IPv6 later fragments name the header behind the fragment header, which may be another extension.
    pub proto: u8,
    /// The datagram's ports.
    pub ports: [u16; 2],
}

/// A datagram that is complete: all of its bytes were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Complete {
    /// Its bytes, counted from where offsets are counted from.
    pub len: u32,
    /// What [`Fragments::note_seq`] noted.
    pub seq: Option<u32>,
}

/// What becomes of a first fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentVerdict {
    /// It passes.
    Pass,
    /// It is dropped.
    Drop(FragmentDrop),
}

/// What becomes of a later fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Later {
    /// It belongs to the datagram that began so, which it may complete.
    Of(Head, Option<Complete>),
    /// The first fragment was not seen, or too long ago.
    Unknown,
    /// It is dropped.
    Drop(FragmentDrop),
}

/// The most fragments of one datagram: 64 KiB in the smallest ones that a link of IPv4 must carry take 1,400, but
/// 576 bytes, what every host takes, 120.
const PIECES: usize = 128;
/// A first fragment again after so long belongs to another datagram with the same identification.
const REUSED_MS: u64 = 1000;
/// The most datagrams that one call lets go for their age.
const AGED_AT_ONCE: usize = 16;
/// No place.
const NONE: u32 = u32::MAX;

/// A datagram of which the first fragment was seen.
struct Datagram {
    key: Tuple,
    head: Head,
    seq: Option<u32>,
    /// An overlap was seen: whatever comes is dropped.
    poisoned: bool,
    /// Its first fragment made no connection, though it should have: the others are nobody's.
    refused: bool,
    /// How many bytes the datagram has, once its last fragment was seen.
    total: Option<u32>,
    /// How many bytes were seen.
    seen: u32,
    /// First bytes and the bytes behind the last ones, in order.
    pieces: Vec<(u32, u32)>,
    first_ms: u64,
    last_ms: u64,
    /// Places of the datagrams that came before and after it.
    older: u32,
    younger: u32,
}

/// The datagrams of a worker that have come in part.
pub struct Fragments {
    hasher: Hasher,
    max_age_ms: u64,
    max: usize,
    datagrams: Vec<Datagram>,
    free: Vec<u32>,
    index: HashTable<u32>,
    oldest: u32,
    youngest: u32,
}

impl Fragments {
    /// Room for `max_datagrams` at a time, each for `max_age_ms` at most.
    pub fn new(seed: Seed, max_datagrams: usize, max_age_ms: u64) -> Fragments {
        Fragments {
            hasher: Hasher::new(seed),
            max_age_ms,
            max: max_datagrams.clamp(1, NONE as usize),
            datagrams: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            oldest: NONE,
            youngest: NONE,
        }
    }

    /// How many datagrams are known.
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Whether no datagram is known.
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// A first fragment. `payload_end`: how many bytes of the datagram it covers, counted from where
    /// offsets are counted from (behind the IPv4 header; behind the IPv6 fragment header).
    pub fn first(&mut self, now_ms: u64, key: FragmentKey, head: Head, payload_end: u32) -> FragmentVerdict {
        self.age(now_ms);
        if payload_end < key.header() {
            return FragmentVerdict::Drop(FragmentDrop::Tiny);
        }
        if let Err(reason) = check_length(0, payload_end, false) {
            return FragmentVerdict::Drop(reason);
        }
        let packed = key.packed();
        if let Some(place) = self.find(&packed) {
            let known = &mut self.datagrams[place as usize];
            let reused = !known.poisoned && now_ms.saturating_sub(known.last_ms) >= REUSED_MS;
            if !reused && now_ms.saturating_sub(known.first_ms) <= self.max_age_ms {
                let again = known.head.ports == head.ports && known.pieces.first() == Some(&(0, payload_end));
                known.poisoned |= !again;
                let reason = if known.poisoned { FragmentDrop::Overlap } else { FragmentDrop::Duplicate };
                return FragmentVerdict::Drop(reason);
            }
            self.remove(place);
        }
        self.add(now_ms, packed, head, payload_end);
        FragmentVerdict::Pass
    }

    /// A later fragment: where it begins, how many bytes it has, and whether it says that none follows.
    pub fn later(&mut self, now_ms: u64, key: FragmentKey, offset_bytes: u32, len: u32, last: bool) -> Later {
        self.age(now_ms);
        if key.proto == proto::TCP && offset_bytes < key.header() {
            return Later::Drop(FragmentDrop::Tiny);
        }
        if let Err(reason) = check_length(offset_bytes, len, last) {
            return Later::Drop(reason);
        }
        let Some(place) = self.find(&key.packed()) else { return Later::Unknown };
        let datagram = &mut self.datagrams[place as usize];
        if now_ms.saturating_sub(datagram.first_ms) > self.max_age_ms {
            return Later::Unknown;
        }
        datagram.last_ms = now_ms;
        if datagram.refused {
            return Later::Drop(FragmentDrop::Refused);
        }
        match datagram.add(offset_bytes, offset_bytes + len, last) {
            Err(reason) => Later::Drop(reason),
            Ok(()) => {
                let Datagram { head, seq, seen, total, .. } = *datagram;
                let complete = (total == Some(seen)).then_some(Complete { len: seen, seq });
                if complete.is_some() {
                    self.remove(place);
                }
                Later::Of(head, complete)
            }
        }
    }

    /// The first fragment, which has passed here, is refused after all: no other one of the datagram passes.
    pub fn refuse(&mut self, key: &FragmentKey) {
        if let Some(place) = self.find(&key.packed()) {
            self.datagrams[place as usize].refused = true;
        }
    }

    /// Notes the sequence number of a datagram's byte at offset 0, which its first fragment told.
    pub fn note_seq(&mut self, key: &FragmentKey, seq: u32) {
        if let Some(place) = self.find(&key.packed()) {
            self.datagrams[place as usize].seq = Some(seq);
        }
    }

    fn find(&self, key: &Tuple) -> Option<u32> {
        self.index.find(self.hasher.hash(key), |place| self.datagrams[*place as usize].key == *key).copied()
    }

    /// Lets go of what is too old, the oldest first, some at a time.
    fn age(&mut self, now_ms: u64) {
        for _ in 0..AGED_AT_ONCE {
            let Some(oldest) = self.datagrams.get(self.oldest as usize) else { break };
            if now_ms.saturating_sub(oldest.first_ms) <= self.max_age_ms {
                break;
            }
            self.remove(self.oldest);
        }
    }

    fn add(&mut self, now_ms: u64, key: Tuple, head: Head, end: u32) {
        if self.len() == self.max {
            self.remove(self.oldest);
        }
        let mut datagram = Datagram {
            key,
            head,
            seq: None,
            poisoned: false,
            refused: false,
            total: None,
            seen: end,
            pieces: Vec::new(),
            first_ms: now_ms,
            last_ms: now_ms,
            older: self.youngest,
            younger: NONE,
        };
        let place = match self.free.pop() {
            Some(place) => {
                let old = &mut self.datagrams[place as usize];
                // What a datagram of before needed for its pieces serves this one.
                datagram.pieces = std::mem::take(&mut old.pieces);
                datagram.pieces.clear();
                *old = datagram;
                place
            }
            None => {
                self.datagrams.push(datagram);
                self.datagrams.len() as u32 - 1
            }
        };
        self.datagrams[place as usize].pieces.push((0, end));
        match self.datagrams.get_mut(self.youngest as usize) {
            Some(before) => before.younger = place,
            None => self.oldest = place,
        }
        self.youngest = place;
        let (hasher, datagrams) = (&self.hasher, &self.datagrams);
        self.index
            .insert_unique(hasher.hash(&key), place, |place| hasher.hash(&datagrams[*place as usize].key));
    }

    fn remove(&mut self, place: u32) {
        let Datagram { key, older, younger, .. } = self.datagrams[place as usize];
        match self.datagrams.get_mut(older as usize) {
            Some(before) => before.younger = younger,
            None => self.oldest = younger,
        }
        match self.datagrams.get_mut(younger as usize) {
            Some(after) => after.older = older,
            None => self.youngest = older,
        }
        if let Ok(entry) = self.index.find_entry(self.hasher.hash(&key), |other| *other == place) {
            entry.remove();
            self.free.push(place);
        }
    }
}

impl Datagram {
    fn add(&mut self, start: u32, end: u32, last: bool) -> Result<(), FragmentDrop> {
        if self.poisoned {
            return Err(FragmentDrop::Overlap);
        }
        let at = self.pieces.partition_point(|piece| piece.0 < start);
        if self.pieces.get(at) == Some(&(start, end)) && last == (self.total == Some(end)) {
            return Err(FragmentDrop::Duplicate);
        }
        let over_before = at.checked_sub(1).is_some_and(|before| self.pieces[before].1 > start);
        let over_after = self.pieces.get(at).is_some_and(|after| after.0 < end);
        let furthest = self.pieces.last().map_or(0, |piece| piece.1);
        let end_moved = match self.total {
            Some(total) => last || end > total,
            None => last && end < furthest,
        };
        if over_before || over_after || end_moved {
            self.poisoned = true;
            return Err(FragmentDrop::Overlap);
        }
        if self.pieces.len() == PIECES {
            return Err(FragmentDrop::TooMany);
        }
        self.pieces.insert(at, (start, end));
        self.seen += end - start;
        if last {
            self.total = Some(end);
        }
        Ok(())
    }
}

/// The last byte of a datagram has the number 65,534 at most: its length has 16 bits.
fn check_length(start: u32, len: u32, last: bool) -> Result<(), FragmentDrop> {
    let fits = len > 0 && len <= 65_535 && start <= 65_535 && start + len <= 65_535;
    if fits && (last || len.is_multiple_of(8)) { Ok(()) } else { Err(FragmentDrop::BadLength) }
}

#[cfg(test)]
mod tests;
