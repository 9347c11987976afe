//! The rules that a vector's packets matched, and the scratch memory of the search. One worker owns and writes it.

use crate::VECTOR;
use crate::ids::RuleSlot;
use crate::key_rules::{Found, KeyRules};
use crate::option_lookups::OptionLookups;
use crate::probe::ProbeColumns;
use crate::ranged::{LazyOptions, ListShape};
use crate::set_lookup::SetResults;
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
    kinds: FoundKinds,
    results: SetResults,
    pub(crate) options: LazyOptions,
    pub(crate) option_lookups: OptionLookups,
    /// Matches in the order of finding.
    log: Vec<Hit>,
    /// Matches of each packet.
    counts: Box<[u32; VECTOR]>,
    /// The end of each packet's matches in `slots`.
    ends: Box<[u32; VECTOR]>,
    /// Matches by packet: `known` of them, then as many as there are in `log`; what follows is of earlier vectors.
    slots: Vec<RuleSlot>,
    /// Matches that were known without a search.
    known: usize,
    /// The packets that they are of, and other packets without a search.
    unsearched: PacketBits,
    /// Packets whose matches do not follow from their keys alone.
    beyond: PacketBits,
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

/// Finds that are looked at together: the first lines of their lists fit the smallest cache.
pub(crate) const FOUND_AT_ONCE: usize = 128;

/// Finds by kind, each kind in the order of finding.
#[derive(Clone, Debug)]
pub(crate) struct FoundKinds {
    found: Box<[[Found; FOUND_AT_ONCE]; FoundKinds::ROOM]>,
    len: [usize; FoundKinds::ROOM],
}

impl Default for FoundKinds {
    fn default() -> FoundKinds {
        FoundKinds {
            found: Box::new([[Found::default(); FOUND_AT_ONCE]; FoundKinds::ROOM]),
            len: [0; FoundKinds::ROOM],
        }
    }
}

const _: () = assert!(2 + ListShape::COUNT <= FoundKinds::ROOM);

impl FoundKinds {
    /// Rules with conditions, lists, short lists by shape, and room.
    const ROOM: usize = 16;

    /// The place of each kind and shape. Rules without conditions are not looked at.
    const PLACES: [u8; 4 << KeyRules::SHAPE_BITS] = {
        let mut places = [0; 4 << KeyRules::SHAPE_BITS];
        let mut index = 0;
        while index < places.len() {
            places[index] = match (index >> KeyRules::SHAPE_BITS) as u32 {
                KeyRules::LIST => 1,
                KeyRules::SHORT => 2 + index as u8 % (1 << KeyRules::SHAPE_BITS),
                _ => 0,
            };
            index += 1;
        }
        places
    };

    /// Replaces them by others, at most [`FOUND_AT_ONCE`].
    #[inline]
    pub(crate) fn sort(&mut self, found: &[Found]) {
        self.len = [0; FoundKinds::ROOM];
        for &found in found {
            // Which kind it is is a coin toss: an index, not a branch. No word has the number behind the last shape.
            let place =
                usize::from(FoundKinds::PLACES[KeyRules::kind_and_shape(found.rules)]) % FoundKinds::ROOM;
            self.found[place][self.len[place] % FOUND_AT_ONCE] = found;
            self.len[place] += 1;
        }
    }

    fn found_of_kind(&self, kind: usize) -> &[Found] {
        self.found[kind].get(..self.len[kind]).unwrap_or_default()
    }

    /// Rules with conditions that are alone under their keys.
    pub(crate) fn singles(&self) -> &[Found] {
        self.found_of_kind(0)
    }

    /// Lists.
    pub(crate) fn lists(&self) -> &[Found] {
        self.found_of_kind(1)
    }

    /// Short lists of a shape: keys, and the numbers of the lists.
    #[inline(always)]
    pub(crate) fn shorts(&self, shape: ListShape) -> impl Iterator<Item = (u8, usize)> {
        self.found_of_kind(2 + shape.index())
            .iter()
            .map(|found| (found.key, KeyRules::short_index(found.rules)))
    }
}

/// What looking at finds writes to.
pub(crate) struct MatchParts<'a> {
    pub(crate) probe: &'a mut ProbeColumns,
    pub(crate) option_lookups: &'a mut OptionLookups,
    pub(crate) options: &'a mut LazyOptions,
    pub(crate) log: Log<'a>,
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch {
            probe: ProbeColumns::default(),
            found: Vec::with_capacity(MATCHES + AT_ONCE),
            kinds: FoundKinds::default(),
            results: SetResults::default(),
            options: LazyOptions::default(),
            option_lookups: OptionLookups::default(),
            log: Vec::with_capacity(MATCHES + AT_ONCE),
            counts: Box::new([0; VECTOR]),
            ends: Box::new([0; VECTOR]),
            slots: Vec::with_capacity(MATCHES),
            known: 0,
            unsearched: PacketBits::default(),
            beyond: PacketBits::default(),
            matched: Box::new([0; VECTOR]),
            matched_len: 0,
            vector: VECTOR,
        }
    }
}

impl Scratch {
    /// Makes the scratch fit a classifier under which one packet matches at most `max` rules. Allocates only if
    /// that is more than any classifier before, and more than some million.
    pub fn fit(&mut self, max: usize) {
        self.clear();
        self.slots.clear();
        self.found.clear();
        self.found.reserve(max + AT_ONCE);
        self.log.clear();
        self.log.reserve(max + AT_ONCE);
        self.slots.reserve(max);
        let room = (self.found.capacity().min(self.log.capacity()) - AT_ONCE).min(self.slots.capacity());
        self.vector = (room / max.max(1)).clamp(1, VECTOR);
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
        &self.slots[..self.known + self.log.len()]
    }

    /// The packets that matched at least one rule, in order.
    #[inline]
    pub fn matched(&self) -> &[u8] {
        &self.matched[..self.matched_len]
    }

    /// Forgets the vector before.
    pub(crate) fn clear(&mut self) {
        (self.unsearched, self.beyond) = Default::default();
        // Without a match nothing else was written.
        if self.matched_len > 0 {
            self.log.clear();
            self.counts.fill(0);
            self.ends.fill(0);
            (self.matched_len, self.known) = (0, 0);
        }
    }

    /// The parts that searching tables needs.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut ProbeColumns, &mut Vec<Found>, Log<'_>) {
        let Scratch { probe, found, log, beyond, .. } = self;
        (probe, found, Log { log, beyond })
    }

    /// What was found, and the parts that looking at it needs.
    #[inline]
    pub(crate) fn match_parts(&mut self) -> (&[Found], &mut FoundKinds, &mut SetResults, MatchParts<'_>) {
        let Scratch { probe, found, kinds, results, option_lookups, options, log, beyond, .. } = self;
        (found, kinds, results, MatchParts { probe, option_lookups, options, log: Log { log, beyond } })
    }

    /// Room to note matches that are known without a search, at most [`MAX_KNOWN`] of a packet.
    #[inline]
    pub(crate) fn known(&mut self) -> Known<'_> {
        let room = VECTOR * MAX_KNOWN;
        if self.slots.len() < room {
            self.slots.resize(room, RuleSlot::FIRST);
        }
        let Scratch { slots, known, counts, ends, unsearched, .. } = self;
        Known { slots: &mut slots[..room], len: known, counts, ends, packets: unsearched }
    }

    /// Whether the matches of a packet that was searched for follow from its key alone.
    #[inline]
    pub(crate) fn is_of_key(&self, packet: u8) -> bool {
        !self.beyond.has(packet)
    }

    /// Puts the matches in order of packets: a counting sort.
    pub(crate) fn sort_by_packet(&mut self) {
        if self.log.is_empty() && self.known == 0 {
            return;
        }
        if !self.log.is_empty() {
            self.place_searched();
        }
        let mut matched = 0;
        for (packet, &count) in (0..=u8::MAX).zip(&self.counts[..]) {
            // No more packets matched than came before this one, so that the place fits a byte.
            self.matched[usize::from(matched as u8)] = packet;
            matched += usize::from(count > 0);
        }
        self.matched_len = matched;
    }

    /// Places the matches of the log behind those that were known.
    fn place_searched(&mut self) {
        for hit in &self.log {
            self.counts[usize::from(hit.packet)] += 1;
        }
        let mut start = self.known as u32;
        for (packet, (end, &count)) in (0..=u8::MAX).zip(self.ends.iter_mut().zip(&self.counts[..])) {
            let is_known = self.unsearched.has(packet);
            *end = if is_known { *end } else { start };
            start += if is_known { 0 } else { count };
        }
        let len = self.known + self.log.len();
        if self.slots.len() < len {
            self.slots.resize(len, RuleSlot::FIRST);
        }
        for hit in &self.log {
            let end = &mut self.ends[usize::from(hit.packet)];
            self.slots[*end as usize] = hit.slot;
            *end += 1;
        }
    }
}

/// A bit for each packet of a vector.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PacketBits([u64; VECTOR / 64]);

impl PacketBits {
    #[inline(always)]
    pub(crate) fn add(&mut self, packet: u8) {
        self.0[usize::from(packet / 64)] |= 1 << (packet % 64);
    }

    #[inline(always)]
    pub(crate) fn has(self, packet: u8) -> bool {
        self.0[usize::from(packet / 64)] >> (packet % 64) & 1 == 1
    }
}

/// The most matches of a packet that can be known without a search.
pub(crate) const MAX_KNOWN: usize = 96;

/// Matches that are known without a search.
pub(crate) struct Known<'a> {
    slots: &'a mut [RuleSlot],
    len: &'a mut usize,
    counts: &'a mut [u32; VECTOR],
    ends: &'a mut [u32; VECTOR],
    packets: &'a mut PacketBits,
}

impl Known<'_> {
    /// Notes the matches of a packet, given as the words of slots: the first `count` of these.
    #[inline(always)]
    pub(crate) fn note(&mut self, packet: u8, numbers: &[u32], count: usize) {
        // In steps of a fixed size, some for nothing.
        const STEP: usize = 8;
        let start = *self.len;
        let (room, numbers) =
            (&mut self.slots[start..], &numbers[..count.next_multiple_of(STEP).min(numbers.len())]);
        let (from, rest) = numbers.as_chunks::<STEP>();
        for (to, from) in room.as_chunks_mut::<STEP>().0.iter_mut().zip(from) {
            for index in 0..STEP {
                to[index] = RuleSlot::from_word(from[index]).unwrap_or(RuleSlot::FIRST);
            }
        }
        for (to, from) in room[from.len() * STEP..].iter_mut().zip(rest) {
            *to = RuleSlot::from_word(*from).unwrap_or(RuleSlot::FIRST);
        }
        *self.len = start + count;
        self.counts[usize::from(packet)] = count as u32;
        self.ends[usize::from(packet)] = (start + count) as u32;
        self.packets.add(packet);
    }
}

/// Records matches.
pub(crate) struct Log<'a> {
    log: &'a mut Vec<Hit>,
    beyond: &'a mut PacketBits,
}

/// Matches that are written at once, whether they count or not: the log has room for so many more.
const AT_ONCE: usize = 2;

impl Log<'_> {
    /// Notes that the matches of a packet do not follow from its key alone.
    #[inline]
    pub(crate) fn read_beyond_key(&mut self, packet: u8) {
        self.beyond.add(packet);
    }

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
            RuleSlot::from_word(slots[bits.trailing_zeros() as usize % slots.len()])
                .unwrap_or(RuleSlot::FIRST)
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
