//! Holds fragments that arrive before their datagram's first fragment, until that arrives or they are too
//! old.
//!
//! Purpose: a fragment without ports cannot be attributed to a connection yet. [`HeldFragments`] copies such
//! packets, in the order of their arrival, to two rings: one of records and one of bytes. Both rings are
//! bounded, and so is the number of packets of one datagram. If a ring is full, a new packet evicts the
//! oldest. A flood of stray fragments therefore shortens the time for which packets are held, but does not
//! keep new packets out.
//!
//! Life-cycle: a packet *waits* from [`HeldFragments::hold`] until [`HeldFragments::release`] is called for
//! its datagram. Then it is *released* until [`HeldFragments::take`] passes it to the caller. A packet that
//! is held for too long is dropped ([`HeldFragments::age`]). [`HeldFragments::prepare`] allocates the rings
//! once; nothing else here allocates. Each worker owns its [`HeldFragments`].

use super::key::{FragmentDrop, FragmentKey, MAX_FRAGMENTS};
use crate::Tuple;
use crate::hash::TupleHasher;
use hashbrown::HashTable;
use mmb_packet::{LinkType, Packet, PortId};
use mmb_random::Seed;

/// A released packet, as [`HeldFragments::take`] passes it to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Released<'h> {
    /// The slot that [`HeldFragments::hold`] returned for it.
    pub slot: u16,
    /// The port on which it arrived.
    pub port: PortId,
    /// Its link header type.
    pub link: LinkType,
    /// Its bytes as they arrived.
    pub bytes: &'h [u8],
}

/// Numbers of held packets that were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldLosses {
    /// Packets that became too old, or that [`HeldFragments::drop_all`] dropped.
    pub aged: u64,
    /// Packets that were evicted for newer ones.
    pub evicted: u64,
}

/// A held packet.
#[derive(Clone, Copy, Debug)]
struct HeldRecord {
    key: Tuple,
    /// Whether the slot contains a packet, which waits or is released.
    is_occupied: bool,
    port: PortId,
    link: LinkType,
    /// The offset of its bytes.
    offset: usize,
    len: usize,
    arrived_ms: u64,
    /// The slot of the next packet of its datagram.
    next: u16,
    /// In the oldest packet of a datagram: the slot of the youngest, and the number of packets.
    last: u16,
    fragments: u16,
}

/// No slot.
const NONE: u16 = u16::MAX;

/// Slots per word of `ready`.
const BITS: usize = u64::BITS as usize;

/// A slice of `count` copies of a value. `None` if memory is exhausted.
fn filled<T: Clone>(value: T, count: usize) -> Option<Box<[T]>> {
    let mut all = Vec::new();
    all.try_reserve_exact(count).ok()?;
    all.resize(count, value);
    Some(all.into())
}

/// The bit of a slot in its word.
fn bit(slot: u16) -> u64 {
    1 << (usize::from(slot) % BITS)
}

/// The held fragments of a worker.
pub struct HeldFragments {
    hasher: TupleHasher,
    max_age_ms: u64,
    /// The configured number of slots, and of bytes in the ring.
    slots: u16,
    max_bytes: usize,
    records: Box<[HeldRecord]>,
    bytes: Box<[u8]>,
    /// The numbers of the oldest record and of the next one. A record's slot is its number modulo the number
    /// of slots.
    oldest: u64,
    next: u64,
    /// The offset in `bytes` of the next packet, if it fits.
    end: usize,
    /// The slot of each datagram's oldest waiting packet.
    datagrams: HashTable<u16>,
    waiting: usize,
    released: usize,
    /// A bit for each slot, set if its packet is released. Packets may be released in any order: the next one
    /// is found by scanning a few words.
    ready: Box<[u64]>,
    losses: HeldLosses,
}

impl HeldFragments {
    /// Holds at most `slots` packets (65,534 or fewer) of `max_bytes` bytes in total, each for `max_age_ms`.
    /// Nothing is held before [`HeldFragments::prepare`].
    pub fn new(seed: Seed, max_age_ms: u64, slots: u16, max_bytes: usize) -> HeldFragments {
        HeldFragments {
            hasher: TupleHasher::new(seed),
            max_age_ms,
            slots: slots.clamp(1, NONE - 1),
            max_bytes,
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

    /// Lowers the limits of [`HeldFragments::new`]. Must be called before [`HeldFragments::prepare`].
    pub fn limit(&mut self, slots: u16, max_bytes: usize) {
        (self.slots, self.max_bytes) = (self.slots.min(slots.max(1)), self.max_bytes.min(max_bytes));
    }

    /// Allocates the rings, once. If memory is exhausted, the next call retries, and no packet is held until
    /// then.
    pub fn prepare(&mut self) {
        if !self.records.is_empty() {
            return;
        }
        let empty = HeldRecord {
            key: Tuple::default(),
            is_occupied: false,
            port: PortId(0),
            link: LinkType::Ethernet,
            offset: 0,
            len: 0,
            arrived_ms: 0,
            next: NONE,
            last: NONE,
            fragments: 0,
        };
        let slots = usize::from(self.slots);
        let mut datagrams = HashTable::new();
        let (records, bytes, ready) =
            (filled(empty, slots), filled(0, self.max_bytes), filled(0, slots.div_ceil(BITS)));
        // A table that is at most half full removes its tombstones without growing.
        let reserved = datagrams.try_reserve(2 * slots, |_| 0).is_ok();
        if let (Some(records), Some(bytes), Some(ready), true) = (records, bytes, ready, reserved) {
            (self.records, self.bytes, self.ready, self.datagrams) = (records, bytes, ready, datagrams);
        }
    }

    /// Number of held packets.
    pub fn len(&self) -> usize {
        self.waiting + self.released
    }

    /// Whether no packet is held.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of held packets that are released.
    #[inline]
    pub fn released(&self) -> usize {
        self.released
    }

    /// The losses since the last call.
    pub fn losses(&mut self) -> HeldLosses {
        std::mem::take(&mut self.losses)
    }

    /// Stores a copy of a packet, and evicts the oldest packets to make room. Returns its slot, which no
    /// other held packet has.
    ///
    /// # Errors
    /// [`FragmentDrop::TooMany`] if its datagram has too many packets. [`FragmentDrop::NoRoom`] if the packet
    /// is larger than the ring, or if the rings are not allocated.
    pub fn hold(&mut self, now_ms: u64, key: &FragmentKey, packet: &Packet<'_>) -> Result<u16, FragmentDrop> {
        let (bytes, key) = (packet.bytes(), key.packed());
        if self.records.is_empty() || bytes.len() > self.bytes.len() {
            return Err(FragmentDrop::NoRoom);
        }
        let hash = self.hasher.hash(&key);
        let known = self.datagrams.find(hash, |slot| self.records[usize::from(*slot)].key == key);
        if known.is_some_and(|slot| usize::from(self.records[usize::from(*slot)].fragments) >= MAX_FRAGMENTS)
        {
            return Err(FragmentDrop::TooMany);
        }
        let offset = self.make_room(bytes.len());
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.end = offset + bytes.len();
        let slot = self.slot(self.next);
        self.next += 1;
        self.waiting += 1;
        self.records[usize::from(slot)] = HeldRecord {
            key,
            is_occupied: true,
            port: packet.port,
            link: packet.link,
            offset,
            len: bytes.len(),
            arrived_ms: now_ms,
            next: NONE,
            last: slot,
            fragments: 1,
        };
        self.join(hash, slot);
        Ok(slot)
    }

    /// Releases the packets of a datagram whose first fragment has arrived.
    pub fn release(&mut self, key: &FragmentKey) {
        if self.waiting == 0 {
            return;
        }
        let key = key.packed();
        let same = |slot: &u16| self.records[usize::from(*slot)].key == key;
        let Ok(entry) = self.datagrams.find_entry(self.hasher.hash(&key), same) else { return };
        let (mut slot, _) = entry.remove();
        while let Some(record) = self.records.get(usize::from(slot)) {
            self.ready[usize::from(slot) / BITS] |= bit(slot);
            (self.waiting, self.released) = (self.waiting - 1, self.released + 1);
            slot = record.next;
        }
    }

    /// Releases all packets.
    pub fn release_all(&mut self) {
        self.datagrams.clear();
        for number in self.oldest..self.next {
            let slot = self.slot(number);
            if self.records[usize::from(slot)].is_occupied {
                self.ready[usize::from(slot) / BITS] |= bit(slot);
            }
        }
        (self.released, self.waiting) = (self.len(), 0);
    }

    /// Passes the oldest released packet to `out`, and frees its slot. Returns false if no packet is
    /// released.
    pub fn take(&mut self, out: impl FnOnce(Released<'_>)) -> bool {
        if self.released == 0 {
            return false;
        }
        let Some(slot) = self.first_ready() else { return false };
        let record = &mut self.records[usize::from(slot)];
        record.is_occupied = false;
        let HeldRecord { port, link, offset, len, .. } = *record;
        out(Released { slot, port, link, bytes: &self.bytes[offset..offset + len] });
        self.ready[usize::from(slot) / BITS] &= !bit(slot);
        self.released -= 1;
        self.advance_oldest();
        true
    }

    /// The slot of the oldest released packet.
    fn first_ready(&self) -> Option<u16> {
        let from = self.slot(self.oldest);
        let start = usize::from(from) / BITS;
        let younger = !(bit(from) - 1);
        // Scans the whole ring. Slots before `from` in the same word are the youngest, so this word is
        // scanned a second time at the end.
        let first = (start, self.ready[start] & younger);
        let others = (start + 1..self.ready.len()).chain(0..=start).map(|word| (word, self.ready[word]));
        let mut words = std::iter::once(first).chain(others);
        words
            .find(|(_, bits)| *bits != 0)
            .map(|(word, bits)| (word * BITS) as u16 + bits.trailing_zeros() as u16)
    }

    /// Drops packets that are too old.
    #[inline]
    pub fn age(&mut self, now_ms: u64) {
        while !self.is_empty() {
            let (oldest, max_age_ms) = (self.oldest, self.max_age_ms);
            if now_ms.saturating_sub(self.record(oldest).arrived_ms) <= max_age_ms {
                break;
            }
            self.losses.aged += 1;
            self.drop_oldest();
        }
    }

    /// Drops all packets, for a caller that expects no more fragments.
    pub fn drop_all(&mut self) {
        while !self.is_empty() {
            self.losses.aged += 1;
            self.drop_oldest();
        }
    }

    fn slot(&self, number: u64) -> u16 {
        (number % u64::from(self.slots)) as u16
    }

    fn record(&mut self, number: u64) -> &mut HeldRecord {
        let slot = self.slot(number);
        &mut self.records[usize::from(slot)]
    }

    /// The offset of `len` free bytes. Evicts the oldest packets if necessary.
    fn make_room(&mut self, len: usize) -> usize {
        loop {
            if self.is_empty() {
                return 0;
            }
            let (oldest, end) = (self.oldest, self.end);
            let begin = self.record(oldest).offset;
            let is_free = self.next - self.oldest < u64::from(self.slots);
            // The free range is from `end` to `begin`, across the end of the ring. It is empty if both are
            // equal.
            match end > begin {
                true if is_free && end + len <= self.bytes.len() => return end,
                true if is_free && len <= begin => return 0,
                false if is_free && end + len <= begin => return end,
                _ => {
                    self.losses.evicted += 1;
                    self.drop_oldest();
                }
            }
        }
    }

    /// Appends a new packet to those of its datagram.
    fn join(&mut self, hash: u64, slot: u16) {
        let (records, hasher) = (&mut self.records, &self.hasher);
        let key = records[usize::from(slot)].key;
        match self.datagrams.find(hash, |other| records[usize::from(*other)].key == key) {
            Some(&first) => {
                let first = &mut records[usize::from(first)];
                let last = std::mem::replace(&mut first.last, slot);
                first.fragments += 1;
                records[usize::from(last)].next = slot;
            }
            None => {
                self.datagrams
                    .insert_unique(hash, slot, |slot| hasher.hash(&records[usize::from(*slot)].key));
            }
        }
    }

    /// Drops the oldest held packet, which is also the oldest of its datagram.
    fn drop_oldest(&mut self) {
        let slot = self.slot(self.oldest);
        let HeldRecord { key, next, last, fragments, .. } = self.records[usize::from(slot)];
        self.records[usize::from(slot)].is_occupied = false;
        let ready = &mut self.ready[usize::from(slot) / BITS];
        if *ready & bit(slot) != 0 {
            *ready &= !bit(slot);
            self.released -= 1;
        } else {
            self.waiting -= 1;
            if let Ok(mut entry) = self.datagrams.find_entry(self.hasher.hash(&key), |other| *other == slot) {
                match self.records.get_mut(usize::from(next)) {
                    Some(second) => {
                        (second.last, second.fragments) = (last, fragments - 1);
                        *entry.get_mut() = next;
                    }
                    None => _ = entry.remove(),
                }
            }
        }
        self.advance_oldest();
    }

    /// Advances `oldest` past records without a packet.
    fn advance_oldest(&mut self) {
        while self.oldest < self.next && !self.record(self.oldest).is_occupied {
            self.oldest += 1;
        }
    }
}

#[cfg(test)]
mod tests;
