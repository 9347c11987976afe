//! The flow cache: what the keys of a worker's packets matched before, beside the tables and never instead of them.
//!
//! A line has a key, masked by the bits that any rule of the class reads ([`Classifier::read`]), and the slots of the rules that it matched.
//! Packets whose key is in a line get these; the others are searched for in the tables, and then they have a line too. A key whose search read
//! options or payload gets none. All lines are of one snapshot: with another generation, which is a number of 64 bits that does not come
//! back, the cache begins empty.
//!
//! [`places`] are the lines, in fixed memory; [`gauge`] decides whether they are worth it: if not, packets pass them by.
//!
//! Ownership: a worker has one, and only it reads and writes it. Results never depend on it.

mod gauge;
mod places;
#[cfg(test)]
mod tests;

use crate::VECTOR;
use crate::classifier::Classifier;
use crate::lane_mask::{LaneMask, lane_set};
use crate::matches::Scratch;
use crate::simd::{Hashes, Seeds, Term};
pub use gauge::BypassReason;
use gauge::Gauge;
use mmb_base::simd::{Kernel, SimdLevel};
use mmb_packet::columns::{Column, KeyColumns};
use mmb_packet::key::Lanes;
use mmb_packet::parse::vector::VectorKeys;
use mmb_packet::{Layout, Packet};
use mmb_random::{Generator, Seed};
use places::{FlowPlaces, KeyShape, NO_PLACE};

/// A worker's flow cache.
#[derive(Debug)]
pub struct FlowCache {
    places: FlowPlaces,
    gauge: Gauge,
    /// The classifier whose results it has.
    generation: Option<u64>,
    /// Ip4, Ip6, Other.
    classes: [ClassFlows; 3],
}

/// What the cache knows of a class, and what it found for the keys of a vector.
#[derive(Debug)]
struct ClassFlows {
    shape: KeyShape,
    lanes: Lanes,
    seeds: Seeds,
    hashes: Hashes,
    /// Keys that are in no line, ascending.
    misses: Box<[u8; VECTOR]>,
    /// How many these are.
    missed: usize,
}

/// What became of a vector's keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Keys whose matches a line had.
    pub hits: usize,
    /// Keys that were in no line.
    pub misses: usize,
    /// Keys that passed the cache by, and why.
    pub bypassed: Option<(usize, BypassReason)>,
}

impl FlowCounts {
    /// So many keys passed the cache by.
    pub fn bypassed(keys: usize, reason: BypassReason) -> FlowCounts {
        FlowCounts { bypassed: Some((keys, reason)), ..FlowCounts::default() }
    }
}

impl FlowCache {
    /// An empty cache. Its hashes are keyed by the seed.
    pub fn new(seed: Seed) -> FlowCache {
        let mut random = Generator::new(seed);
        FlowCache {
            places: FlowPlaces::new(),
            gauge: Gauge::default(),
            generation: None,
            classes: [0, 1, 2].map(|class| ClassFlows::new(class, &mut random)),
        }
    }

    /// Has the kernel give all of its memory now: a packet thread would wait for it, for some milliseconds where huge pages have to be made.
    pub fn populate(&mut self) {
        self.places.populate();
    }

    /// [`Classifier::classify`], with the help of the cache. `generation` stands for this classifier and for no other one, and `now` for the
    /// cycles that have passed, or always the same number. Takes keys away from `keys`.
    pub fn classify(
        &mut self,
        (generation, classifier): (u64, &Classifier),
        keys: &mut VectorKeys,
        (packets, layouts): (&[Packet<'_>], &[Layout]),
        scratch: &mut Scratch,
        now: impl Fn() -> u64,
    ) -> FlowCounts {
        let count = keys.count();
        if count == 0 || classifier.max_matches() == 0 {
            classifier.classify(keys, packets, layouts, scratch);
            return FlowCounts::default();
        }
        if self.generation != Some(generation) {
            self.begin(generation, classifier);
        }
        let start = now();
        if let Some(reason) = self.gauge.bypass() {
            classifier.classify(keys, packets, layouts, scratch);
            self.gauge.note_tables(count, now().wrapping_sub(start));
            return FlowCounts::bypassed(count, reason);
        }
        scratch.clear();
        let level = classifier.level();
        let [ip4, ip6, other] = &mut self.classes;
        let mut looked_up = ip4.find(level, &mut self.places, &mut keys.ip4, scratch);
        looked_up += ip6.find(level, &mut self.places, &mut keys.ip6, scratch);
        looked_up += other.find(level, &mut self.places, &mut keys.other, scratch);
        if keys.count() > 0 {
            classifier.find(keys, packets, layouts, scratch);
        }
        scratch.sort_by_packet();
        let misses = ip4.missed + ip6.missed + other.missed;
        let mut beyond = 0;
        if misses > 0 {
            beyond += ip4.remember(&mut self.places, searched(&keys.ip4), scratch);
            beyond += ip6.remember(&mut self.places, searched(&keys.ip6), scratch);
            beyond += other.remember(&mut self.places, searched(&keys.other), scratch);
        }
        self.gauge.note(looked_up, (misses, beyond), now().wrapping_sub(start));
        FlowCounts { hits: looked_up - misses, misses, bypassed: None }
    }

    /// Begins anew for another classifier.
    fn begin(&mut self, generation: u64, classifier: &Classifier) {
        self.generation = Some(generation);
        self.places.clear();
        self.gauge.policy_changed();
        self.classes.iter_mut().zip(classifier.read()).for_each(|(class, read)| class.begin(read));
    }
}

/// The keys that are left, and their packets.
fn searched<const L: usize>(keys: &KeyColumns<L>) -> (&[Column], &[u8]) {
    (keys.lanes(), &keys.packets()[..keys.count()])
}

impl ClassFlows {
    fn new(class: u32, random: &mut Generator) -> ClassFlows {
        ClassFlows {
            shape: KeyShape::new(class),
            lanes: Lanes::default(),
            seeds: Seeds::draw(|| random.word()),
            hashes: Hashes::default(),
            misses: Box::new([0; VECTOR]),
            missed: 0,
        }
    }

    fn begin(&mut self, read: &LaneMask) {
        self.lanes = lane_set(read);
        self.shape.terms.clear();
        let terms = (0..).zip(read).filter(|(_, mask)| **mask != 0);
        self.shape.terms.extend(terms.map(|(lane, &mask)| Term { lane, mask }));
    }

    /// Notes the matches of the keys that are in lines, and takes these keys away. Returns how many keys it looked for: none where rules read
    /// no bit of them.
    #[inline]
    fn find<const L: usize>(
        &mut self,
        level: SimdLevel,
        places: &mut FlowPlaces,
        keys: &mut KeyColumns<L>,
        scratch: &mut Scratch,
    ) -> usize {
        self.missed = 0;
        if keys.count() == 0 || self.shape.terms.is_empty() {
            return 0;
        }
        let (lanes, len, packets) = (keys.lanes(), keys.count(), keys.packets());
        level.run(FindFlows { class: self, places, lanes, len, packets, scratch });
        let misses = &self.misses[..self.missed];
        for (to, &from) in misses.iter().enumerate() {
            self.hashes.hashes[to] = self.hashes.hashes[usize::from(from)];
        }
        keys.keep(misses, self.lanes);
        len
    }

    /// Gives lines to the keys that were searched for. Returns how many of them cannot have one.
    fn remember(
        &mut self,
        places: &mut FlowPlaces,
        (lanes, packets): (&[Column], &[u8]),
        scratch: &Scratch,
    ) -> usize {
        let mut beyond = 0;
        let looked_up = packets.iter().zip(&self.hashes.hashes[..self.missed]);
        for (key, (&packet, &hash)) in looked_up.enumerate() {
            if scratch.is_of_key(packet) {
                places.insert(hash, &self.shape, (lanes, key), scratch.slots(packet.into()));
            } else {
                beyond += 1;
            }
        }
        beyond
    }
}

/// How many keys ahead the rest of a place is asked for.
const AHEAD: usize = 6;

/// The search for a vector's keys of a class, which is compiled for each level.
struct FindFlows<'a> {
    class: &'a mut ClassFlows,
    places: &'a mut FlowPlaces,
    lanes: &'a [Column],
    len: usize,
    /// The packet of each key.
    packets: &'a [u8; VECTOR],
    scratch: &'a mut Scratch,
}

impl Kernel for FindFlows<'_> {
    #[inline(always)]
    fn run(self) {
        let FindFlows { class, places, lanes, len, packets, scratch } = self;
        let ClassFlows { shape, seeds, hashes, misses, missed: missed_len, .. } = class;
        hashes.fill(lanes, len, &shape.terms, seeds);
        let mut places = places.view(shape, lanes);
        let mut candidates = [(0u8, 0u32); VECTOR];
        let (mut count, mut missed) = (0, 0);
        for key in 0..len.min(VECTOR) {
            let place = places.candidate(hashes.hashes[key]);
            // No more than keys before this one, so that the numbers fit a byte.
            candidates[usize::from(count as u8)] = (key as u8, place);
            misses[usize::from(missed as u8)] = key as u8;
            count += usize::from(place != NO_PLACE);
            missed += usize::from(place == NO_PLACE);
        }
        for &(_, place) in &candidates[..count.min(VECTOR)] {
            places.fetch(place);
        }
        let mut known = scratch.known();
        let mut differ = 0;
        for index in 0..count.min(VECTOR) {
            let (key, place) = candidates[index];
            let number = usize::from(key);
            if index + AHEAD < count {
                places.fetch_rest(candidates[(index + AHEAD) % VECTOR].1);
            }
            match places.slots(hashes.hashes[number], place, key) {
                Some((slots, count)) => known.note(packets[number], slots, count),
                None => {
                    misses[usize::from((missed + differ) as u8)] = key;
                    differ += 1;
                }
            }
        }
        if differ > 0 {
            missed += differ;
            misses[..missed].sort_unstable();
        }
        *missed_len = missed;
    }
}
