//! A model of a receiver: how it accepts bytes that overlap, and bytes outside of its window.
//!
//! The policies are those of Novak and Sturges, "Target-Based TCP Stream Reassembly" (2007), after Shankar
//! and Paxson, "Active Mapping" (2003).

use super::{Seg, ack};
use mmb_random::RepeatableRandom;
use mmb_stream::flag;
use std::collections::BTreeMap;

/// Which of two copies of an early byte a receiver keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlap {
    /// The first copy.
    First,
    /// The last copy.
    Last,
    /// The first one, but for a segment that begins before the first one's.
    Bsd,
    /// As BSD, and but for a segment that begins with the first one's and is longer.
    Linux,
    /// The first one, but for a segment that begins before the first one's and ends behind it.
    Windows,
}

pub(crate) const OVERLAPS: [Overlap; 5] =
    [Overlap::First, Overlap::Last, Overlap::Bsd, Overlap::Linux, Overlap::Windows];

/// How a receiver differs from others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    pub(crate) overlap: Overlap,
    /// Refuses old timestamps.
    pub(crate) checks_timestamps: bool,
    /// Takes segments without the ACK flag, as some do.
    pub(crate) takes_without_ack: bool,
    /// Takes segments that acknowledge what was not sent.
    pub(crate) takes_false_acks: bool,
    /// Takes all of a segment of which a part lies in the window.
    pub(crate) takes_beyond_window: bool,
    /// Takes the data of a SYN.
    pub(crate) takes_syn_data: bool,
    /// Refuses segments with a signature, as it has no key.
    pub(crate) refuses_signed: bool,
    /// Takes the urgent byte out of the stream.
    pub(crate) takes_urgent_out: bool,
    pub(crate) window: u16,
}

/// A byte that is not delivered yet, and the segment that brought it.
#[derive(Clone, Copy)]
struct Held {
    byte: u8,
    start: i64,
    end: i64,
}

/// A receiver of the initiator's bytes.
pub(crate) struct Receiver {
    habits: Habits,
    /// The place of the first byte, by the SYN that it answers.
    first: Option<i64>,
    next: i64,
    edge: i64,
    held: BTreeMap<i64, Held>,
    fin: Option<i64>,
    time: Option<u32>,
    is_closed: bool,
    /// What the application got.
    pub(crate) delivered: Vec<u8>,
}

impl Habits {
    /// Any habits.
    pub(crate) fn random(random: &mut RepeatableRandom, overlap: Overlap) -> Habits {
        Habits {
            overlap,
            checks_timestamps: random.chance(0.5),
            takes_without_ack: random.chance(0.3),
            takes_false_acks: random.chance(0.3),
            takes_beyond_window: random.chance(0.3),
            takes_syn_data: random.chance(0.5),
            refuses_signed: random.chance(0.8),
            takes_urgent_out: random.chance(0.5),
            window: random.of(&[3, 8, 20, 40, 1000]),
        }
    }
}

impl Receiver {
    /// A receiver that waits for a SYN.
    pub(crate) fn new(habits: Habits) -> Receiver {
        let edge = i64::from(habits.window);
        Receiver {
            habits,
            first: None,
            next: 0,
            edge,
            held: BTreeMap::new(),
            fin: None,
            time: None,
            is_closed: false,
            delivered: Vec::new(),
        }
    }

    /// A segment arrives.
    pub(crate) fn receive(&mut self, segment: &Seg) {
        let Seg { offset: start, data, header, .. } = segment;
        let is_refused = header.is_corrupt || (header.is_signed && self.habits.refuses_signed);
        if is_refused || self.is_closed {
            return;
        }
        let is_syn = header.has(flag::SYN);
        let is_first = self.first.is_none();
        if is_first && is_syn && !header.has(flag::ACK | flag::RST) {
            self.first = Some(start + 1);
        }
        // Data of a SYN come once, before all others.
        let Some(first) = self.first.filter(|_| !is_syn || (is_first && self.habits.takes_syn_data)) else {
            return;
        };
        let start = start - first + i64::from(is_syn);
        if header.has(flag::RST) {
            self.is_closed |= start == self.next;
            return;
        }
        let end = start + data.len() as i64;
        let is_acceptable = end >= self.next && start <= self.edge && (data.is_empty() || start < self.edge);
        let is_acked = header.has(flag::ACK) || self.habits.takes_without_ack || is_syn;
        // RFC 5961 section 5.2.
        let is_false_ack = !(-65_535..=0).contains(&segment.ack) && !self.habits.takes_false_acks;
        if !is_acceptable || !is_acked || (is_false_ack && !is_syn) || self.is_old(segment, start) {
            return;
        }
        let max = if self.habits.takes_beyond_window { end } else { end.min(self.edge) };
        let out = header.has(flag::URG) && self.habits.takes_urgent_out;
        for offset in start.max(self.next)..max {
            // The urgent byte's place: the last one of the segment.
            let byte = if out && offset == end - 1 { b' ' } else { data[(offset - start) as usize] };
            self.hold(offset, Held { byte, start, end });
        }
        if header.has(flag::FIN) && max == end && self.fin.is_none() {
            self.fin = Some(end);
        }
        self.deliver();
    }

    fn is_old(&mut self, segment: &Seg, start: i64) -> bool {
        let Some([value, _]) = segment.header.timestamps.filter(|_| self.habits.checks_timestamps) else {
            return false;
        };
        if self.time.is_some_and(|last| value.wrapping_sub(last).cast_signed() < 0) {
            return true;
        }
        if start <= self.next {
            self.time = Some(value);
        }
        false
    }

    fn hold(&mut self, offset: i64, new: Held) {
        let wins = self.held.get(&offset).is_none_or(|old| match self.habits.overlap {
            Overlap::First => false,
            Overlap::Last => true,
            Overlap::Bsd => new.start < old.start,
            Overlap::Linux => new.start < old.start || (new.start == old.start && new.end > old.end),
            Overlap::Windows => new.start < old.start && new.end > old.end,
        });
        if wins {
            self.held.insert(offset, new);
        }
    }

    fn deliver(&mut self) {
        while self.fin != Some(self.next)
            && let Some(held) = self.held.remove(&self.next)
        {
            self.delivered.push(held.byte);
            self.next += 1;
        }
        if self.fin == Some(self.next) {
            self.next += 1;
            self.is_closed = true;
        }
    }

    /// Its acknowledgment, with its window, if it has got a SYN.
    pub(crate) fn acknowledgment(&mut self) -> Option<Seg> {
        self.edge = self.edge.max(self.next + i64::from(self.habits.window));
        Some(ack(1, 0, self.first? + self.next).window(self.habits.window))
    }
}
