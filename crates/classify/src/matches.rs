//! The rules that a vector's packets matched, and the scratch memory of the search. One worker owns and writes it.

use crate::VECTOR;
use crate::ids::RuleSlot;
use crate::pairs::Pairs;
use crate::probe::ProbeColumns;
use crate::ranged::LazyOptions;
use mmb_base::Id;

/// The most matches of one vector that there is room for ahead of any policy; memory that is never touched costs nothing.
/// A policy under which a packet can match so many rules that a full vector would pass this gets shorter vectors (see
/// [`Scratch::vector`]).
pub const MATCHES: usize = 4 << 20;

/// Scratch of a worker for [`Classifier::classify`](crate::Classifier::classify), and its result: the slots of the
/// rules that each packet matched.
#[derive(Clone, Debug)]
pub struct Scratch {
    pub(crate) probe: ProbeColumns,
    /// What keys of the class led to, still to be looked at.
    pub(crate) found: Vec<Found>,
    pub(crate) options: LazyOptions,
    pub(crate) pairs: Pairs,
    /// Matches in the order of finding.
    log: Vec<Hit>,
    /// Matches of each packet.
    counts: Box<[u32; VECTOR]>,
    /// The end of each packet's matches in `slots`.
    ends: Box<[u32; VECTOR]>,
    /// Matches by packet, as many as there are in `log`; what follows is of earlier vectors.
    slots: Vec<RuleSlot>,
    /// Packets with at least one match, in order: the first `matched_len`.
    matched: Box<[u8; VECTOR]>,
    matched_len: usize,
    vector: usize,
}

/// One packet matched one rule.
#[derive(Clone, Copy, Debug)]
struct Hit {
    packet: u8,
    slot: RuleSlot,
}

/// A key, and the packed [`KeyRules`](crate::ids::KeyRules) that it led to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub(crate) key: u8,
    pub(crate) rules: u32,
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch {
            probe: ProbeColumns::default(),
            found: Vec::with_capacity(MATCHES + AT_ONCE),
            options: LazyOptions::default(),
            pairs: Pairs::default(),
            log: Vec::with_capacity(MATCHES + AT_ONCE),
            counts: Box::new([0; VECTOR]),
            ends: Box::new([0; VECTOR]),
            slots: Vec::with_capacity(MATCHES),
            matched: Box::new([0; VECTOR]),
            matched_len: 0,
            vector: VECTOR,
        }
    }
}

impl Scratch {
    /// Makes the scratch fit a classifier under which one packet matches at most `most` rules. Allocates only if
    /// that is more than any classifier before, and more than some million.
    pub fn fit(&mut self, most: usize) {
        self.clear();
        self.slots.clear();
        self.found.clear();
        self.found.reserve(most + AT_ONCE);
        self.log.clear();
        self.log.reserve(most + AT_ONCE);
        self.slots.reserve(most);
        let room = (self.found.capacity().min(self.log.capacity()) - AT_ONCE).min(self.slots.capacity());
        self.vector = (room / most.max(1)).clamp(1, VECTOR);
    }

    /// The most packets of one vector under the classifier that the scratch was made to fit.
    pub fn vector(&self) -> usize {
        self.vector
    }

    /// The slots of the rules that a packet of the vector matched, each once, in no order.
    #[inline]
    pub fn slots(&self, packet: usize) -> &[RuleSlot] {
        let end = self.ends[packet] as usize;
        &self.slots[end - self.counts[packet] as usize..end]
    }

    /// [`Scratch::slots`], to be put in order.
    #[inline]
    pub fn slots_mut(&mut self, packet: usize) -> &mut [RuleSlot] {
        let end = self.ends[packet] as usize;
        &mut self.slots[end - self.counts[packet] as usize..end]
    }

    /// The slots of all packets.
    #[inline]
    pub fn all_slots(&self) -> &[RuleSlot] {
        &self.slots[..self.log.len()]
    }

    /// The packets that matched at least one rule, in order.
    #[inline]
    pub fn matched(&self) -> &[u8] {
        &self.matched[..self.matched_len]
    }

    /// Forgets the vector before.
    pub(crate) fn clear(&mut self) {
        // Without a match nothing was written.
        if self.matched_len > 0 {
            self.log.clear();
            self.counts.fill(0);
            self.ends.fill(0);
            self.matched_len = 0;
        }
    }

    /// The parts that searching tables needs.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut ProbeColumns, &mut Vec<Found>, Log<'_>) {
        let Scratch { probe, found, log, .. } = self;
        (probe, found, Log { log })
    }

    /// The parts that matching against lists needs.
    #[inline]
    pub(crate) fn list_parts(&mut self) -> (&mut ProbeColumns, &mut Pairs, &mut LazyOptions, Log<'_>) {
        let Scratch { probe, pairs, options, log, .. } = self;
        (probe, pairs, options, Log { log })
    }

    /// Puts the matches in order of packets: a counting sort.
    pub(crate) fn sort_by_packet(&mut self) {
        if self.log.is_empty() {
            return;
        }
        for hit in &self.log {
            self.counts[usize::from(hit.packet)] += 1;
        }
        let (mut start, mut matched) = (0, 0);
        for (packet, (end, &count)) in self.ends.iter_mut().zip(&self.counts[..]).enumerate() {
            *end = start;
            start += count;
            // No more packets matched than came before this one, so that the place fits a byte.
            self.matched[usize::from(matched as u8)] = packet as u8;
            matched += usize::from(count > 0);
        }
        self.matched_len = matched;
        if self.slots.len() < self.log.len() {
            self.slots.resize(self.log.len(), RuleSlot::FIRST);
        }
        for hit in &self.log {
            let end = &mut self.ends[usize::from(hit.packet)];
            self.slots[*end as usize] = hit.slot;
            *end += 1;
        }
    }
}

/// Records matches.
pub(crate) struct Log<'a> {
    log: &'a mut Vec<Hit>,
}

/// Matches that are written at once, whether they count or not: the log has room for so many more.
const AT_ONCE: usize = 2;

impl Log<'_> {
    /// Notes a match.
    #[inline(always)]
    pub(crate) fn hit(&mut self, packet: u8, slot: RuleSlot) {
        self.log.push(Hit { packet, slot });
    }

    /// Notes a match if it is one, without a branch.
    #[inline(always)]
    pub(crate) fn hit_if(&mut self, matches: bool, packet: u8, slot: RuleSlot) {
        let len = self.log.len();
        self.log.push(Hit { packet, slot });
        self.log.truncate(len + usize::from(matches));
    }

    /// Notes a match with each of eight rules that has a bit; for up to two without a branch.
    #[inline(always)]
    pub(crate) fn hits(&mut self, packet: u8, mut bits: u32, slots: &[u32; 8]) {
        let slot = |bits: u32| {
            RuleSlot::new(slots[bits.trailing_zeros() as usize % slots.len()]).unwrap_or(RuleSlot::FIRST)
        };
        let matches = bits.count_ones();
        let len = self.log.len();
        let second = bits & bits.wrapping_sub(1);
        self.log.extend_from_slice(&[Hit { packet, slot: slot(bits) }, Hit { packet, slot: slot(second) }]);
        self.log.truncate(len + (matches as usize).min(2));
        if matches > 2 {
            bits = second & second.wrapping_sub(1);
            while bits != 0 {
                self.log.push(Hit { packet, slot: slot(bits) });
                bits &= bits - 1;
            }
        }
    }
}
