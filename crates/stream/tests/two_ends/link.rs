//! A link that loses, delays, duplicates, damages and resegments packets, with a seeded generator.

use super::wire::Datagram;
use mmb_random::RepeatableRandom;
use mmb_stream::flag;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How bad a link is: probabilities a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quality {
    pub(crate) loss: f64,
    pub(crate) late: f64,
    pub(crate) twice: f64,
    pub(crate) damage: f64,
    pub(crate) cut: f64,
    pub(crate) delay_ms: u64,
}

impl Quality {
    /// Any quality, for a script.
    pub(crate) fn random(random: &mut RepeatableRandom) -> Quality {
        let mut rate = |rates: &[f64]| random.of(rates);
        Quality {
            loss: rate(&[0.0, 0.01, 0.05, 0.15]),
            late: rate(&[0.0, 0.05, 0.3]),
            twice: rate(&[0.0, 0.02, 0.2]),
            damage: rate(&[0.0, 0.0, 0.02]),
            cut: rate(&[0.0, 0.1, 0.5]),
            delay_ms: 1 + random.below(40),
        }
    }
}

/// Where a packet arrives: at the middle, or behind it at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Middle,
    End,
}

struct Travelling {
    at_ms: u64,
    number: u64,
    stop: Stop,
    packet: Datagram,
}

impl Travelling {
    fn key(&self) -> Reverse<(u64, u64)> {
        Reverse((self.at_ms, self.number))
    }
}

impl PartialEq for Travelling {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Travelling {}

impl PartialOrd for Travelling {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Travelling {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

/// The packets between the ends and the middle.
pub(crate) struct Link {
    quality: Quality,
    random: RepeatableRandom,
    travelling: BinaryHeap<Travelling>,
    number: u64,
    /// What each end sends, from the beginning.
    streams: [Vec<u8>; 2],
    /// The number of each end's first byte, and the highest offset that it sent.
    sent: [Option<(u32, usize)>; 2],
}

impl Link {
    pub(crate) fn new(quality: Quality, random: RepeatableRandom, streams: [Vec<u8>; 2]) -> Link {
        Link { quality, random, travelling: BinaryHeap::new(), number: 0, streams, sent: [None; 2] }
    }

    /// When the next packet arrives.
    pub(crate) fn next_ms(&self) -> Option<u64> {
        self.travelling.peek().map(|packet| packet.at_ms)
    }

    /// The next packet that has arrived.
    pub(crate) fn arrived(&mut self, now_ms: u64) -> Option<(Stop, Datagram)> {
        self.travelling.peek().filter(|packet| packet.at_ms <= now_ms)?;
        self.travelling.pop().map(|packet| (packet.stop, packet.packet))
    }

    /// Sends a packet of an end to the middle.
    pub(crate) fn send(&mut self, now_ms: u64, packet: Datagram) {
        for piece in self.cut_anew(packet) {
            self.travel(now_ms, Stop::Middle, piece);
        }
    }

    /// Sends a packet that the middle passed to its end.
    pub(crate) fn forward(&mut self, now_ms: u64, packet: Datagram) {
        self.travel(now_ms, Stop::End, packet);
    }

    fn travel(&mut self, now_ms: u64, stop: Stop, packet: Datagram) {
        let Quality { loss, late, twice, damage, delay_ms, .. } = self.quality;
        if self.random.chance(loss) {
            return;
        }
        for _ in 0..1 + usize::from(self.random.chance(twice)) {
            let mut packet = packet.clone();
            if self.random.chance(damage) && !packet.payload().is_empty() {
                let last = packet.0.len() - 1;
                // Damage behind the middle does not undo that before it.
                packet.0[last] ^= if stop == Stop::Middle { 0x10 } else { 0x20 };
            }
            let extra_ms = if self.random.chance(late) { self.random.below(4 * delay_ms + 20) } else { 0 };
            self.number += 1;
            let at_ms = now_ms + delay_ms + extra_ms;
            self.travelling.push(Travelling { at_ms, number: self.number, stop, packet });
        }
    }

    /// Splits a segment, or sends bytes again with other borders.
    fn cut_anew(&mut self, packet: Datagram) -> Vec<Datagram> {
        let segment = packet.segment();
        let direction = packet.direction();
        if segment.has(flag::SYN) {
            self.sent[direction] = Some((segment.seq.wrapping_add(1), 0));
        }
        let Some((first, highest)) = &mut self.sent[direction] else { return vec![packet] };
        let (at, len) = (segment.seq.wrapping_sub(*first) as usize, packet.payload().len());
        let is_repeated = at < *highest;
        // The byte of a keep-alive is none of the stream.
        if len == 0 || segment.has(flag::SYN) || at + len > self.streams[direction].len() {
            return vec![packet];
        }
        *highest = (*highest).max(at + len);
        let (first, highest) = (*first, *highest);
        if !self.random.chance(self.quality.cut) {
            return vec![packet];
        }
        let fin = segment.has(flag::FIN);
        let seq = |at: usize| first.wrapping_add(at as u32);
        let stream = &self.streams[direction];
        if is_repeated && self.random.chance(0.7) {
            let start = at - (self.random.below(300) as usize).min(at);
            let max = if fin { at + len } else { highest.min(at + len + self.random.below(300) as usize) };
            return vec![packet.rebuilt(seq(start), &stream[start..max], fin)];
        }
        let middle = at + self.random.below(len as u64) as usize;
        let pieces = [(at, middle, false), (middle, at + len, fin)];
        pieces.map(|(start, end, fin)| packet.rebuilt(seq(start), &stream[start..end], fin)).to_vec()
    }
}
