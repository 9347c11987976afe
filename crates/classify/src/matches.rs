//! What a vector's packets matched, and the scratch that finding it needs. One worker owns and writes it.

use crate::VECTOR;
use mmb_packet::options::OptionTable;

/// The most matches of one vector that scratch is made for ahead of any policy. A policy under which a packet can
/// match so many rules that a full vector would pass this gets shorter vectors (see [`Scratch::vector`]).
const MATCHES: usize = 256 * 1024;

/// Scratch of a worker for [`Classifier::classify`](crate::Classifier::classify), and its result: the ranks of the
/// rules that each packet matched.
#[derive(Clone, Debug)]
pub struct Scratch {
    pub(crate) probe: Probe,
    pub(crate) options: OptionTable,
    /// Lists with option tests that some packet is to be held against, once all tuples are probed.
    pub(crate) deferred: Vec<Deferred>,
    /// Matches in the order of finding.
    log: Vec<Hit>,
    /// Matches of each packet.
    counts: Box<[u32; VECTOR]>,
    /// Where each packet's matches end in `ranks`.
    ends: Box<[u32; VECTOR]>,
    /// Matches by packet and rank.
    ranks: Vec<u32>,
    /// Packets with at least one match, in order: the first `matched_len`.
    matched: Box<[u8; VECTOR]>,
    matched_len: usize,
    vector: usize,
}

/// One packet matched one rule.
#[derive(Clone, Copy, Debug)]
struct Hit {
    packet: u8,
    rank: u32,
}

/// A packet, its key's number in its lane, and a list that it hit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deferred {
    pub(crate) packet: u8,
    pub(crate) key: u8,
    pub(crate) list: u32,
}

/// A key of a lane and the value that a tuple has for it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Found {
    pub(crate) key: u8,
    pub(crate) value: u32,
}

/// Columns of a vector while one tuple is probed.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    pub(crate) hashes: Box<[u64; VECTOR]>,
    pub(crate) tags: Box<[u64; VECTOR]>,
    /// Keys of the lane that the tuple is probed for.
    pub(crate) picked: Box<[u8; VECTOR]>,
    /// Keys whose tag was found, and then keys that were found with their values.
    pub(crate) found: Box<[Found; VECTOR]>,
}

impl Default for Scratch {
    fn default() -> Self {
        Scratch {
            probe: Probe {
                hashes: Box::new([0; VECTOR]),
                tags: Box::new([0; VECTOR]),
                picked: Box::new(std::array::from_fn(|i| i as u8)),
                found: Box::new([Found::default(); VECTOR]),
            },
            options: OptionTable::default(),
            deferred: Vec::with_capacity(MATCHES),
            log: Vec::with_capacity(MATCHES),
            counts: Box::new([0; VECTOR]),
            ends: Box::new([0; VECTOR]),
            ranks: Vec::with_capacity(MATCHES),
            matched: Box::new([0; VECTOR]),
            matched_len: 0,
            vector: VECTOR,
        }
    }
}

impl Scratch {
    /// Makes the scratch fit a classifier under which one packet matches at most `most` rules. Allocates only if
    /// that is more than any classifier before, and more than some hundred thousand.
    pub fn fit(&mut self, most: usize) {
        self.clear();
        self.deferred.reserve(most);
        self.log.reserve(most);
        self.ranks.reserve(most);
        let room = self.deferred.capacity().min(self.log.capacity()).min(self.ranks.capacity());
        self.vector = (room / most.max(1)).clamp(1, VECTOR);
    }

    /// The most packets of one vector under the classifier that the scratch was made to fit.
    pub fn vector(&self) -> usize {
        self.vector
    }

    /// The ranks of the rules that a packet of the vector matched, ascending.
    #[inline]
    pub fn ranks(&self, packet: usize) -> &[u32] {
        let end = self.ends[packet] as usize;
        &self.ranks[end - self.counts[packet] as usize..end]
    }

    /// The packets that matched at least one rule, in order.
    #[inline]
    pub fn matched(&self) -> &[u8] {
        &self.matched[..self.matched_len]
    }

    /// Forgets the vector before.
    pub(crate) fn clear(&mut self) {
        self.deferred.clear();
        self.log.clear();
        self.ranks.clear();
        self.counts.fill(0);
        self.ends.fill(0);
        self.matched_len = 0;
    }

    /// Notes a match.
    #[inline]
    pub(crate) fn hit(&mut self, packet: u8, rank: u32) {
        self.counts[usize::from(packet)] += 1;
        self.log.push(Hit { packet, rank });
    }

    /// Notes that the first `found` keys of the last probe matched the rules whose ranks are their values, but for
    /// the bits of `mask`.
    #[inline]
    pub(crate) fn hit_found(&mut self, found: usize, packets: &[u8; VECTOR], mask: u32) {
        let Scratch { probe, log, counts, .. } = self;
        log.extend(probe.found[..found].iter().map(|found| {
            let packet = packets[usize::from(found.key)];
            counts[usize::from(packet)] += 1;
            Hit { packet, rank: found.value & !mask }
        }));
    }

    /// Puts the matches in order of packet and rank: a counting sort.
    pub(crate) fn settle(&mut self) {
        if self.log.is_empty() {
            return;
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
        self.ranks.resize(self.log.len(), 0);
        for hit in &self.log {
            let end = &mut self.ends[usize::from(hit.packet)];
            self.ranks[*end as usize] = hit.rank;
            *end += 1;
        }
        if self.log.len() == matched {
            return;
        }
        for &packet in &self.matched[..matched] {
            let packet = usize::from(packet);
            let (count, end) = (self.counts[packet] as usize, self.ends[packet] as usize);
            if count > 1 {
                self.ranks[end - count..end].sort_unstable();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_shorten_where_a_packet_can_match_very_much() {
        let mut scratch = Scratch::default();
        let mut vector = |most| {
            scratch.fit(most);
            scratch.vector()
        };
        assert_eq!([0, 1, 1000, 1024].map(&mut vector), [VECTOR; 4]);
        assert!((128..VECTOR).contains(&vector(2000)));
        assert_eq!(vector(MATCHES), 1);
        assert_eq!(vector(2 * MATCHES), 1);
    }

    #[test]
    fn matches_come_by_packet_and_rank() {
        let mut scratch = Scratch::default();
        for (packet, rank) in [(255, 9), (3, 7), (255, 2), (3, 8), (0, 1), (255, 4)] {
            scratch.hit(packet, rank);
        }
        scratch.settle();
        assert_eq!(scratch.matched(), [0, 3, 255]);
        assert_eq!([0, 3, 255, 1].map(|packet| scratch.ranks(packet)), [&[1][..], &[7, 8], &[2, 4, 9], &[]]);
        scratch.clear();
        scratch.settle();
        assert!(scratch.matched().is_empty() && scratch.ranks(255).is_empty());
    }
}
