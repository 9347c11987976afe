//! Fragments that came before their datagram's first one: copies of them, until that comes or they are too old.
//!
//! Purpose: a fragment without ports is of nobody's connection yet. [`HeldFragments`] keeps such packets in two rings, one of records and one
//! of bytes, in the order in which they came. Both are bounded, and so is what one datagram may have of them. Whoever comes when a ring
//! is full takes the place of the oldest: a flood of stray fragments shortens how long each may wait, and keeps nobody out.
//!
//! Life-cycle: a packet *waits* from [`HeldFragments::hold`] until [`HeldFragments::release`] names its datagram; then it is *released* until
//! [`HeldFragments::take`] gives it out. What waits for too long is lost ([`HeldFragments::age`]). The rings get their memory once, in
//! [`HeldFragments::prepare`]; nothing else here allocates. A worker owns its [`HeldFragments`].

use super::{FragmentDrop, FragmentKey, PIECES};
use crate::Tuple;
use crate::hash::TupleHasher;
use hashbrown::HashTable;
use mmb_packet::{LinkType, Packet, PortId};
use mmb_random::Seed;

/// A packet that is given out again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released<'h> {
    /// What [`HeldFragments::hold`] said of it.
    pub place: u16,
    /// The port that it came in by.
    pub port: PortId,
    /// What it begins with.
    pub link: LinkType,
    /// It, as it came.
    pub bytes: &'h [u8],
}

/// Packets that were held and never given out again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldLosses {
    /// The first fragment did not come in time.
    pub aged: u64,
    /// They made room for others.
    pub crowded_out: u64,
}

/// A packet that is held.
#[derive(Clone, Copy, Debug)]
struct HeldRecord {
    key: Tuple,
    /// It waits or is released.
    is_there: bool,
    port: PortId,
    link: LinkType,
    /// Where its bytes lie.
    at: usize,
    len: usize,
    came_ms: u64,
    /// The place of the next one of its datagram.
    next: u16,
    /// Of a datagram's oldest one: the place of its youngest, and how many there are.
    last: u16,
    pieces: u16,
}

/// No place.
const NONE: u16 = u16::MAX;

/// Places in a word of bits.
const BITS: usize = u64::BITS as usize;

/// So many of one value, if there is memory.
fn filled<T: Clone>(value: T, many: usize) -> Option<Box<[T]>> {
    let mut all = Vec::new();
    all.try_reserve_exact(many).ok()?;
    all.resize(many, value);
    Some(all.into())
}

/// The bit of a place in its word.
fn bit(place: u16) -> u64 {
    1 << (usize::from(place) % BITS)
}

/// The early fragments of a worker.
pub struct HeldFragments {
    hasher: TupleHasher,
    max_age_ms: u64,
    /// How large the rings are to be.
    places: u16,
    room: usize,
    records: Box<[HeldRecord]>,
    bytes: Box<[u8]>,
    /// The number of the oldest record, and of the one that comes next. A record's place is the rest of its number.
    oldest: u64,
    next: u64,
    /// Where in `bytes` the next packet goes, if there is room.
    end: usize,
    /// The place of each datagram's oldest waiting packet.
    datagrams: HashTable<u16>,
    waiting: usize,
    released: usize,
    /// A bit for each place, set if its packet is released: whatever comes in which order, the next one is found by a few words.
    ready: Box<[u64]>,
    losses: HeldLosses,
}

impl HeldFragments {
    /// Room for `places` packets, 65,534 at most, of `room` bytes together, each for `max_age_ms`; but none before
    /// [`HeldFragments::prepare`].
    pub fn new(seed: Seed, max_age_ms: u64, places: u16, room: usize) -> HeldFragments {
        HeldFragments {
            hasher: TupleHasher::new(seed),
            max_age_ms,
            places: places.clamp(1, NONE - 1),
            room,
            records: Box::default(),
            bytes: Box::default(),
            oldest: 0,
            next: 0,
            end: 0,
            datagrams: HashTable::new(),
            waiting: 0,
            released: 0,
            ready: Box::default(),
            losses: HeldLosses::default(),
        }
    }

    /// Has room for less than [`HeldFragments::new`] said, if called before [`HeldFragments::prepare`].
    pub fn limit(&mut self, places: u16, room: usize) {
        (self.places, self.room) = (self.places.min(places.max(1)), self.room.min(room));
    }

    /// Gets the memory, once. Where there is none, it is asked for again with the next call, and nothing is held until then.
    pub fn prepare(&mut self) {
        if !self.records.is_empty() {
            return;
        }
        let nobody = HeldRecord {
            key: Tuple::default(),
            is_there: false,
            port: PortId(0),
            link: LinkType::Ethernet,
            at: 0,
            len: 0,
            came_ms: 0,
            next: NONE,
            last: NONE,
            pieces: 0,
        };
        let places = usize::from(self.places);
        let mut datagrams = HashTable::new();
        let (records, bytes, ready) =
            (filled(nobody, places), filled(0, self.room), filled(0, places.div_ceil(BITS)));
        // A table that is never more than half full clears away its traces of what was removed without growing.
        let reserved = datagrams.try_reserve(2 * places, |_| 0).is_ok();
        if let (Some(records), Some(bytes), Some(ready), true) = (records, bytes, ready, reserved) {
            (self.records, self.bytes, self.ready, self.datagrams) = (records, bytes, ready, datagrams);
        }
    }

    /// How many packets are held.
    pub fn len(&self) -> usize {
        self.waiting + self.released
    }

    /// Whether none is.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many of them are to be taken.
    #[inline]
    pub fn released(&self) -> usize {
        self.released
    }

    /// What was lost since this was asked last.
    pub fn losses(&mut self) -> HeldLosses {
        std::mem::take(&mut self.losses)
    }

    /// Keeps a copy of a packet; the oldest ones make room for it. Returns its place, which no other has while it is held.
    ///
    /// # Errors
    /// [`FragmentDrop::TooMany`] of one datagram; [`FragmentDrop::NoRoom`] for a packet larger than all there is.
    pub fn hold(&mut self, now_ms: u64, key: &FragmentKey, packet: &Packet<'_>) -> Result<u16, FragmentDrop> {
        let (bytes, key) = (packet.bytes(), key.packed());
        if self.records.is_empty() || bytes.len() > self.bytes.len() {
            return Err(FragmentDrop::NoRoom);
        }
        let hash = self.hasher.hash(&key);
        let known = self.datagrams.find(hash, |place| self.records[usize::from(*place)].key == key);
        if known.is_some_and(|place| usize::from(self.records[usize::from(*place)].pieces) >= PIECES) {
            return Err(FragmentDrop::TooMany);
        }
        let at = self.make_room(bytes.len());
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.end = at + bytes.len();
        let place = self.place(self.next);
        self.next += 1;
        self.waiting += 1;
        self.records[usize::from(place)] = HeldRecord {
            key,
            is_there: true,
            port: packet.port,
            link: packet.link,
            at,
            len: bytes.len(),
            came_ms: now_ms,
            next: NONE,
            last: place,
            pieces: 1,
        };
        self.join(hash, place);
        Ok(place)
    }

    /// The first fragment of a datagram has come: what waits for it is to be taken.
    pub fn release(&mut self, key: &FragmentKey) {
        if self.waiting == 0 {
            return;
        }
        let key = key.packed();
        let same = |place: &u16| self.records[usize::from(*place)].key == key;
        let Ok(entry) = self.datagrams.find_entry(self.hasher.hash(&key), same) else { return };
        let (mut place, _) = entry.remove();
        while let Some(record) = self.records.get(usize::from(place)) {
            self.ready[usize::from(place) / BITS] |= bit(place);
            (self.waiting, self.released) = (self.waiting - 1, self.released + 1);
            place = record.next;
        }
    }

    /// Nobody has to wait any more: all is to be taken.
    pub fn release_all(&mut self) {
        self.datagrams.clear();
        for number in self.oldest..self.next {
            let place = self.place(number);
            if self.records[usize::from(place)].is_there {
                self.ready[usize::from(place) / BITS] |= bit(place);
            }
        }
        (self.released, self.waiting) = (self.len(), 0);
    }

    /// Gives out one of the packets that are released, the oldest first. False if there is none.
    pub fn take(&mut self, out: impl FnOnce(Released<'_>)) -> bool {
        if self.released == 0 {
            return false;
        }
        let Some(place) = self.first_ready() else { return false };
        let record = &mut self.records[usize::from(place)];
        record.is_there = false;
        let HeldRecord { port, link, at, len, .. } = *record;
        out(Released { place, port, link, bytes: &self.bytes[at..at + len] });
        self.ready[usize::from(place) / BITS] &= !bit(place);
        self.released -= 1;
        self.let_go();
        true
    }

    /// The place of the oldest packet that is released.
    fn first_ready(&self) -> Option<u16> {
        let from = self.place(self.oldest);
        let start = usize::from(from) / BITS;
        let younger = !(bit(from) - 1);
        // All the way around: what is older than `from` in its own word comes last.
        let first = (start, self.ready[start] & younger);
        let others = (start + 1..self.ready.len()).chain(0..=start).map(|word| (word, self.ready[word]));
        let mut words = std::iter::once(first).chain(others);
        words
            .find(|(_, bits)| *bits != 0)
            .map(|(word, bits)| (word * BITS) as u16 + bits.trailing_zeros() as u16)
    }

    /// Lets go of what is too old.
    #[inline]
    pub fn age(&mut self, now_ms: u64) {
        while !self.is_empty() {
            let (oldest, max_age_ms) = (self.oldest, self.max_age_ms);
            if now_ms.saturating_sub(self.record(oldest).came_ms) <= max_age_ms {
                break;
            }
            self.losses.aged += 1;
            self.drop_oldest();
        }
    }

    /// Lets go of everything: nothing more will come.
    pub fn give_up(&mut self) {
        while !self.is_empty() {
            self.losses.aged += 1;
            self.drop_oldest();
        }
    }

    fn place(&self, number: u64) -> u16 {
        (number % u64::from(self.places)) as u16
    }

    fn record(&mut self, number: u64) -> &mut HeldRecord {
        let place = self.place(number);
        &mut self.records[usize::from(place)]
    }

    /// Where so many bytes are free, if need be because the oldest went.
    fn make_room(&mut self, len: usize) -> usize {
        loop {
            if self.is_empty() {
                return 0;
            }
            let (oldest, end) = (self.oldest, self.end);
            let begin = self.record(oldest).at;
            let is_free = self.next - self.oldest < u64::from(self.places);
            // Free is what lies from the end to the beginning, around the ring's own end; nothing if both are one.
            match end > begin {
                true if is_free && end + len <= self.bytes.len() => return end,
                true if is_free && len <= begin => return 0,
                false if is_free && end + len <= begin => return end,
                _ => {
                    self.losses.crowded_out += 1;
                    self.drop_oldest();
                }
            }
        }
    }

    /// Hangs a new packet behind those of its datagram.
    fn join(&mut self, hash: u64, place: u16) {
        let (records, hasher) = (&mut self.records, &self.hasher);
        let key = records[usize::from(place)].key;
        match self.datagrams.find(hash, |other| records[usize::from(*other)].key == key) {
            Some(&first) => {
                let first = &mut records[usize::from(first)];
                let last = std::mem::replace(&mut first.last, place);
                first.pieces += 1;
                records[usize::from(last)].next = place;
            }
            None => {
                self.datagrams
                    .insert_unique(hash, place, |place| hasher.hash(&records[usize::from(*place)].key));
            }
        }
    }

    /// Lets go of the oldest packet that is held; it is the first of its datagram.
    fn drop_oldest(&mut self) {
        let place = self.place(self.oldest);
        let HeldRecord { key, next, last, pieces, .. } = self.records[usize::from(place)];
        self.records[usize::from(place)].is_there = false;
        let ready = &mut self.ready[usize::from(place) / BITS];
        if *ready & bit(place) != 0 {
            *ready &= !bit(place);
            self.released -= 1;
        } else {
            self.waiting -= 1;
            if let Ok(mut entry) = self.datagrams.find_entry(self.hasher.hash(&key), |other| *other == place)
            {
                match self.records.get_mut(usize::from(next)) {
                    Some(second) => {
                        (second.last, second.pieces) = (last, pieces - 1);
                        *entry.get_mut() = next;
                    }
                    None => _ = entry.remove(),
                }
            }
        }
        self.let_go();
    }

    /// Forgets records that are gone, as far as none that is not stands before them.
    fn let_go(&mut self) {
        while self.oldest < self.next && !self.record(self.oldest).is_there {
            self.oldest += 1;
        }
    }
}

#[cfg(test)]
mod tests;
