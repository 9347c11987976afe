//! Hostile senders and receivers at level edit.
//!
//! The tests check these properties for all senders:
//!
//! - No receiver gets the text that is replaced.
//! - A receiver gets the output of the editor.
//! - The bytes for one number are always the same.
//!
//! They check these properties for all receivers:
//!
//! - Memory is bounded, and so is the number of generated packets for each packet that arrives.
//! - No byte is acknowledged to the sender whose output was not acknowledged.
//! - No byte is acknowledged that the sender has not sent.

use crate::hostile::{PATTERN, Sender, limits};
use crate::support::edited::{EditedConn, Words};
use crate::support::receiver::{Habits, OVERLAPS, Overlap, Receiver};
use crate::support::{Seg, ack, contains, seeds, seg, syn, syn_ack};
use mmb_random::RepeatableRandom;
use mmb_stream::{
    Level::{Edit, Guard, Watch},
    StreamDrop, StreamLimits, StreamVerdict, flag,
};
use std::collections::BTreeMap;

/// Scripts of each kind, if nothing else is asked for.
const SCRIPTS: u64 = 2500;

/// The replacements for the pattern: nothing, a shorter text, one of the same length, longer ones. Some of
/// them look like the start of another pattern.
const REPLACED: [&str; 5] = ["", "(-)", "ATT-CK", "BLOCKED.BY.A.RULE", "ATTATTATT"];

/// The connection between a sender and a receiver.
struct Middle {
    conn: EditedConn,
    /// The bytes that went on for each number.
    sent: BTreeMap<i64, u8>,
    is_over: bool,
}

impl Middle {
    /// Takes a segment. Returns what goes on to its receiver, and what goes to its sender.
    fn pass(&mut self, segment: Seg) -> [Vec<Seg>; 2] {
        let mut went = [Vec::new(), Vec::new()];
        if self.is_over {
            return went;
        }
        let direction = segment.direction;
        let packets = self.conn.through(segment);
        let verdict = self.conn.outcome.verdict;
        // The caller ends such a connection.
        let ends = [StreamDrop::Stopped, StreamDrop::Broken].map(StreamVerdict::Drop);
        self.is_over = ends.contains(&verdict);
        assert!(packets.len() <= 4 + 2 * (64 << 10) / 64, "{} packets of one", packets.len());
        for packet in packets.into_iter().map(|went| went.segment) {
            if packet.direction == 0 {
                self.check(&packet);
            }
            went[usize::from(packet.direction != direction)].push(packet);
        }
        went
    }

    fn check(&mut self, packet: &Seg) {
        let at = packet.offset + i64::from(packet.header.has(flag::SYN));
        if packet.header.has(flag::RST) {
            return;
        }
        let output = &self.conn.editor.output[0];
        for (offset, byte) in (at..).zip(&packet.data) {
            let expected = usize::try_from(offset).ok().and_then(|offset| output.get(offset));
            assert_eq!(Some(byte), expected, "at {offset}");
            assert_eq!(self.sent.entry(offset).or_insert(*byte), byte, "at {offset}");
        }
    }
}

/// Runs a script of a sender against a receiver. Returns what the receiver got, and what was replaced.
fn run(seed: u64, overlap: Overlap) -> (Vec<u8>, u64) {
    let mut random = RepeatableRandom::for_purpose(seed, "hostile edits");
    let habits = Habits::random(&mut random, overlap);
    let levels = [Edit, random.of(&[Edit, Guard, Watch])];
    let limits = StreamLimits { memory: random.of(&[32 << 10, 512 << 10]), ..limits(&mut random) };
    let words = Words::new(&[("ATTACK", random.of(&REPLACED))]);
    let conn = EditedConn::new(levels, limits, words);
    let mut middle = Middle { conn, sent: BTreeMap::new(), is_over: false };
    let mut receiver = Receiver::new(habits);
    let (mut sender, first, loss) = Sender::begin(random);
    middle.pass(first)[0].iter().for_each(|packet| receiver.receive(packet));
    let to_syn_ack = |taken: Seg| syn_ack().ack(taken.ack).window(taken.header.window);
    let mut answer = receiver.acknowledgment().map(to_syn_ack);
    for _ in 0..80 {
        if let Some(answer) = answer {
            let [to_sender, to_receiver] = middle.pass(answer);
            sender.place = to_sender.last().map_or(sender.place, |told| told.ack);
            to_receiver.iter().for_each(|packet| receiver.receive(packet));
        }
        for _ in 0..1 + sender.random.below(4) {
            let segment = sender.segment();
            for packet in &middle.pass(segment)[0] {
                if !sender.random.chance(loss) {
                    receiver.receive(packet);
                }
            }
        }
        answer = receiver.acknowledgment();
    }
    let edits = middle.conn.info().edits[0].edits;
    let output = std::mem::take(&mut middle.conn.editor.output[0]);
    assert!(output.starts_with(&receiver.delivered), "script {seed}");
    assert!(!contains(&output, PATTERN) && !contains(&receiver.delivered, PATTERN), "script {seed}");
    middle.conn.end();
    (receiver.delivered, edits)
}

#[test]
fn no_receiver_gets_what_is_replaced() {
    for overlap in OVERLAPS {
        let (mut delivered, mut edits) = (0, 0);
        for seed in seeds(SCRIPTS) {
            let (bytes, replaced) = std::panic::catch_unwind(|| run(seed, overlap))
                .unwrap_or_else(|_| panic!("script {seed} of {overlap:?}"));
            (delivered, edits) = (delivered + u64::from(bytes.len() > 10), edits + replaced);
        }
        // The scripts test something.
        let count = seeds(SCRIPTS).count() as u64;
        assert!(5 * delivered > count && 10 * edits > count, "{delivered} and {edits}");
    }
}

/// A sender that does as TCP asks, and goes back to what is not acknowledged.
struct Honest {
    stream: Vec<u8>,
    acked: i64,
    sent: i64,
    edge: i64,
}

impl Honest {
    /// Takes a packet that comes to it.
    fn receive(&mut self, packet: &Seg) {
        let Seg { ack, header, .. } = packet;
        if !header.has(flag::ACK) || header.has(flag::RST) {
            return;
        }
        assert!(*ack <= self.sent, "acknowledges {ack} of {}", self.sent);
        self.acked = self.acked.max(*ack);
        self.edge = self.edge.max(ack + i64::from(header.window));
    }

    fn segment(&mut self, random: &mut RepeatableRandom) -> Seg {
        let at = match random.below(4) {
            0 => self.acked,
            _ => self.sent,
        };
        let at = at.min(self.stream.len() as i64);
        let max = (self.edge - at).min(self.stream.len() as i64 - at).clamp(0, 700);
        let count = random.below(max as u64 + 1) as i64;
        // A probe of a closed window.
        let count = if self.edge <= at && random.chance(0.3) { 1 } else { count };
        let end = (at + count).min(self.stream.len() as i64);
        let data = &self.stream[at as usize..end as usize];
        let is_last = end == self.stream.len() as i64;
        self.sent = self.sent.max(end + i64::from(is_last));
        let segment = seg(0, at, data);
        if is_last { segment.fin() } else { segment }
    }
}

/// A segment of a receiver that says anything.
fn lie(random: &mut RepeatableRandom, went: i64) -> Seg {
    let acked = match random.below(8) {
        0 => went + random.below(5000) as i64,
        1 => random.below(1 << 32) as i64 - (1 << 31),
        2 => random.below(went as u64 + 1) as i64,
        _ => went - random.below(40.min(went as u64 + 1)) as i64,
    };
    let mut segment = ack(1, 0, acked).window(random.of(&[0, 0, 1, 7, 100, 3000, u16::MAX]));
    segment.header.has_sack = random.chance(0.3);
    if random.chance(0.02) {
        segment.header.flags |= random.of(&[flag::SYN, flag::RST, flag::FIN, flag::URG]);
    }
    segment
}

/// Runs a script of a receiver that lies.
fn run_receiver(seed: u64) {
    let mut random = RepeatableRandom::for_purpose(seed, "hostile receivers");
    let (memory, window) = (random.of(&[128 << 10, 1 << 20]), random.of(&[100, 3000, 60_000]));
    let limits = StreamLimits { memory, window, ..crate::support::edited::LIMITS };
    let new_text = "Z".repeat(random.of(&[0, 1, 3, 50, 2000]));
    let words = Words::new(&[("ATTACK", &new_text), ("up", "UPPER")]);
    let conn = EditedConn::new([Edit, random.of(&[Edit, Guard, Watch])], limits, words);
    let mut middle = Middle { conn, sent: BTreeMap::new(), is_over: false };
    let pieces = [&b"ATTACK"[..], b"up", b"some other bytes ", b"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"];
    let stream: Vec<u8> = (0..200).flat_map(|_| random.of(&pieces).to_vec()).collect();
    let mut sender = Honest { stream, acked: 0, sent: 0, edge: 0 };
    let mss = random.of(&[1, 100, 1000]);
    middle.pass(syn(b"").mss(1000));
    for packet in &middle.pass(syn_ack().mss(mss).window(random.of(&[0, 10, 5000, u16::MAX])))[0] {
        sender.receive(packet);
    }
    middle.pass(ack(0, 0, 0));
    let mut went = 0;
    for _ in 0..400 {
        let is_sender = random.chance(0.5);
        let segment = if is_sender { sender.segment(&mut random) } else { lie(&mut random, went) };
        let [on, back] = middle.pass(segment);
        let (to_receiver, to_sender) = if is_sender { (on, back) } else { (back, on) };
        for packet in &to_receiver {
            went =
                went.max(packet.offset + packet.data.len() as i64 + i64::from(packet.header.has(flag::FIN)));
        }
        to_sender.iter().for_each(|packet| sender.receive(packet));
        for _ in 0..2 {
            let block = [random.word() as u32, random.word() as u32];
            middle.conn.table.sack_to_input(middle.conn.id, 0, block);
        }
        let info = middle.conn.info();
        // Twice the window, and the output of one packet.
        let grown = 700 / 6 * new_text.len().max(6) + 2000;
        assert!(info.buffered[0] as u64 <= 2 * window + grown as u64, "script {seed}: {info:?}");
        assert!(middle.conn.table.payload_memory() <= memory);
        if middle.is_over {
            break;
        }
    }
    middle.conn.end();
}

#[test]
fn a_receiver_that_lies_gets_no_memory_and_no_flood() {
    for seed in seeds(SCRIPTS) {
        std::panic::catch_unwind(|| run_receiver(seed)).unwrap_or_else(|_| panic!("script {seed}"));
    }
}

#[test]
fn a_window_that_stays_closed_costs_no_more_with_time() {
    let limits = StreamLimits { window: 3000, ..crate::support::edited::LIMITS };
    let mut conn = EditedConn::established_with(limits, &[("up", "UPPER")], &|segment| segment.window(1000));
    let stream = b"up".repeat(5000);
    let (mut at, mut memory) = (0, 0);
    for round in 0..2000 {
        // It sends whenever it may, and probes when it may not.
        let room = (3000 - at).clamp(0, 500);
        let data = &stream[at as usize..(at + room.max(1)) as usize];
        let before = conn.info().stats[0].bytes;
        let went = conn.send(seg(0, at, data));
        assert!(went.len() <= 2, "{went:?}");
        at += (conn.info().stats[0].bytes - before) as i64;
        let acked = conn.last_output();
        assert!(conn.send(ack(1, 0, acked.min(1000)).window(0)).len() <= 1);
        if round == 100 {
            memory = conn.table.payload_memory();
        }
    }
    assert!(conn.table.payload_memory() <= memory.max(8 << 10), "{}", conn.table.payload_memory());
    conn.end();
}
