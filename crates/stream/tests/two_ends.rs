//! Two TCP ends of smoltcp, whose segments pass a table over a bad link.
//!
//! The tests check these properties:
//!
//! - Each end receives what the other end sent.
//! - The scanner gets the same bytes, in order and once.
//! - No acknowledgment is forwarded for bytes that the receiver does not have.
//! - Both ends close.
//! - The table buffers no more than its limits, and nothing at the end.
//!
//! `MMB_STREAM_SCRIPTS` is the number of scripts for each pair of levels, `MMB_STREAM_FIRST` the seed of the
//! first script.

pub(crate) mod end;
pub(crate) mod link;
pub(crate) mod model;
pub(crate) mod wire;

use self::end::{End, Manner};
use self::link::{Link, Quality, Stop};
use self::wire::Datagram;
use crate::support::seeds;
use mmb_random::RepeatableRandom;
use mmb_stream::{
    InOrder,
    Level::{self, Guard, Watch},
    StreamId, StreamLimits, StreamTable, StreamVerdict, flag,
};
use smoltcp::wire::Ipv4Address;
use std::ops::ControlFlow;

/// The addresses of the ends.
pub(crate) const ADDRESSES: [Ipv4Address; 2] = [Ipv4Address::new(10, 0, 0, 1), Ipv4Address::new(10, 0, 0, 2)];

/// Scripts for each pair of levels, if nothing else is asked for.
const SCRIPTS: u64 = 100;
/// A script that is not over by then never ends.
const MAX_MS: u64 = 3_000_000;
/// One stall is allowed per this many scripts: smoltcp does not always probe a closed window, whatever is
/// between its ends.
const SCRIPTS_TO_A_STALL: u64 = 200;

/// What a script chooses.
#[derive(Debug)]
struct Script {
    levels: [Level; 2],
    limits: StreamLimits,
    quality: Quality,
    manner: [Manner; 2],
    lengths: [usize; 2],
}

impl Script {
    fn random(levels: [Level; 2], random: &mut RepeatableRandom) -> Script {
        let window = random.of(&[1500, 5000, 64 << 10, 1 << 20]);
        let mut limits = StreamLimits { streams: 1, memory: 2 << 20, window, ..StreamLimits::default() };
        let mut manner = [Manner::random(random), Manner::random(random)];
        if levels.contains(&Watch) {
            // The ends know no PAWS, so that they take segments that a watcher does not.
            manner.iter_mut().for_each(|manner| manner.timestamps = false);
            // A watcher does not take what begins beyond the window.
            manner.iter_mut().for_each(|manner| manner.overshoots = false);
            // A watcher loses bytes behind more than 64 holes: no two pieces of a window are farther apart.
            let max = 60 * (manner[0].mtu.min(manner[1].mtu) - 40);
            manner.iter_mut().for_each(|manner| manner.receive_buffer = manner.receive_buffer.min(max));
        } else if random.chance(0.3) {
            // Little memory, for what the ends may have on the way.
            (limits.memory, limits.reorder) = (64 << 10, 16 << 10);
        }
        let mut length = || random.log_uniform(1, 60_000) as usize * usize::from(random.chance(0.9));
        let lengths = [length(), length()];
        Script { levels, limits, quality: Quality::random(random), manner, lengths }
    }
}

/// The table between the ends, and what passed it.
struct Middle {
    table: StreamTable,
    levels: [Level; 2],
    window: u64,
    id: Option<StreamId>,
    streams: [Vec<u8>; 2],
    scanned: [usize; 2],
    /// The number of each direction's first byte.
    first: [Option<u32>; 2],
    /// Which bytes and the FIN have reached the receiver, and how many of them are in order.
    has: [Vec<bool>; 2],
    in_order: [usize; 2],
    /// An end was reset, as its peer forgot the connection while the last acknowledgments were lost.
    is_reset: bool,
}

impl Middle {
    fn new(script: &Script, streams: [Vec<u8>; 2]) -> Middle {
        let mut table = StreamTable::default();
        assert!(table.configure(script.limits));
        let has = streams.each_ref().map(|stream| vec![false; stream.len() + 1]);
        let (levels, window) = (script.levels, script.limits.window);
        Middle {
            table,
            levels,
            window,
            id: None,
            streams,
            scanned: [0; 2],
            first: [None; 2],
            has,
            in_order: [0; 2],
            is_reset: false,
        }
    }

    /// Takes a packet. Returns it as it goes on.
    fn take(&mut self, mut packet: Datagram, now_ms: u64) -> Option<Datagram> {
        let (segment, direction) = (packet.segment(), packet.direction());
        let id = match self.id {
            Some(id) => id,
            None => self.table.open(self.levels, false, Some(&segment), now_ms).expect("a fit connection"),
        };
        self.id = Some(id);
        let mut payload = packet.payload().to_vec();
        let (streams, scanned) = (&self.streams, &mut self.scanned);
        let mut scan = |InOrder { direction, offset, bytes, .. }: InOrder<'_>| {
            assert_eq!(offset, scanned[direction] as u64, "a gap, or bytes again");
            scanned[direction] += bytes.len();
            assert_eq!(&streams[direction][offset as usize..scanned[direction]], bytes);
            ControlFlow::Continue(())
        };
        let outcome = self.table.take(id, direction, &segment, &mut payload, now_ms, &mut scan);
        self.check_memory();
        if outcome.verdict != StreamVerdict::Pass {
            assert!(self.levels.contains(&Guard), "a watcher drops nothing: {outcome:?}");
            return None;
        }
        assert!(self.levels.contains(&Guard) || outcome.window.is_none() && !outcome.is_changed);
        packet.apply(&outcome, &payload);
        self.is_reset |= segment.has(flag::RST);
        if !segment.is_corrupt {
            self.check_acknowledgment(&packet, direction);
        }
        Some(packet)
    }

    fn check_memory(&self) {
        let info = self.table.info(self.id.expect("a stream"));
        for direction in [0, 1] {
            // The edge is rounded up to the window's scale, and a probe is one byte beyond it.
            assert!(info.buffered[direction] as u64 <= self.window + 16, "{info:?}");
        }
    }

    fn check_acknowledgment(&mut self, packet: &Datagram, direction: usize) {
        let segment = packet.segment();
        if segment.has(flag::SYN) {
            self.first[direction] = Some(segment.seq.wrapping_add(1));
        }
        if let Some(first) = self.first[1 - direction].filter(|_| segment.has(flag::ACK)) {
            let acked = segment.ack.wrapping_sub(first) as usize;
            assert!(acked <= self.in_order[1 - direction], "acknowledges what is not there");
        }
    }

    /// A packet reaches its end.
    fn delivered(&mut self, packet: &Datagram) {
        let (segment, direction) = (packet.segment(), packet.direction());
        let Some(first) = self.first[direction].filter(|_| !segment.is_corrupt && !segment.has(flag::SYN))
        else {
            return;
        };
        let at = segment.seq.wrapping_sub(first).cast_signed();
        let payload = packet.payload();
        for (offset, byte) in (i64::from(at)..).zip(payload) {
            // Before the first byte, and behind the last one, comes the byte of a keep-alive.
            if let Ok(offset) = usize::try_from(offset)
                && self.streams[direction].get(offset) == Some(byte)
            {
                self.has[direction][offset] = true;
            }
        }
        if segment.has(flag::FIN) {
            self.has[direction][at as usize + payload.len()] = true;
        }
        let in_order = &mut self.in_order[direction];
        while self.has[direction].get(*in_order) == Some(&true) {
            *in_order += 1;
        }
    }

    /// The connection has ended.
    fn end(mut self) {
        let id = self.id.expect("a stream");
        assert_eq!(self.scanned, self.streams.each_ref().map(Vec::len), "all is scanned");
        let info = self.table.info(id);
        let is_acknowledged = (info.buffered, info.out_of_order) == ([0, 0], [0, 0]);
        assert!(is_acknowledged || self.is_reset, "{info:?}");
        assert_eq!(info.stats.map(|side| side.gaps), [0, 0]);
        self.table.end(id);
        assert_eq!((self.table.payload_memory(), self.table.len()), (0, 0));
    }
}

/// The bytes of a stream. No byte is the one of a keep-alive.
fn stream(length: usize, random: &mut RepeatableRandom) -> Vec<u8> {
    (0..length).map(|_| 1 + random.below(255) as u8).collect()
}

/// Runs a script. Returns whether it ended.
fn run(script: &Script, mut random: RepeatableRandom) -> bool {
    let streams = script.lengths.map(|length| stream(length, &mut random));
    let mut end = |number: usize| {
        let manner = script.manner[number];
        End::new(number, random.word(), manner, streams[number].clone())
    };
    let mut ends = [end(0), end(1)];
    let mut middle = Middle::new(script, streams.clone());
    let mut link = Link::new(script.quality, random, streams.clone());
    let mut now_ms = 0;
    while !ends.iter().all(End::is_closed) {
        while let Some((stop, packet)) = link.arrived(now_ms) {
            match stop {
                Stop::Middle => {
                    if let Some(packet) = middle.take(packet, now_ms) {
                        link.forward(now_ms, packet);
                    }
                }
                Stop::End => {
                    middle.delivered(&packet);
                    ends[1 - packet.direction()].receive(packet, now_ms);
                }
            }
        }
        for end in &mut ends {
            for packet in end.poll(now_ms) {
                link.send(now_ms, packet);
            }
        }
        let next = ends.iter_mut().filter_map(|end| end.next_ms(now_ms)).chain(link.next_ms()).min();
        now_ms = next.unwrap_or(MAX_MS).max(now_ms + 1);
        if now_ms >= MAX_MS && !ends.iter().all(End::is_closed) {
            return false;
        }
    }
    for (end, stream) in ends.iter_mut().zip([&streams[1], &streams[0]]) {
        // The application may not have read all.
        for _ in 0..5000 {
            if end.received().len() < stream.len() {
                end.poll(now_ms);
            }
        }
        assert!(end.received() == *stream, "received {} of {} bytes", end.received().len(), stream.len());
    }
    middle.end();
    true
}

fn runs(levels: [Level; 2]) {
    let (scripts, mut stalls) = (seeds(SCRIPTS), 0);
    let max_stalls = (scripts.end - scripts.start) / SCRIPTS_TO_A_STALL;
    for number in scripts.clone() {
        let mut random = RepeatableRandom::for_purpose(number, "two ends");
        let script = Script::random(levels, &mut random);
        let is_over = std::panic::catch_unwind(|| run(&script, random.clone()))
            .unwrap_or_else(|_| panic!("script {number}: {script:?}"));
        if !is_over {
            let may_stall = !script.manner.iter().all(|manner| manner.is_model);
            assert!(may_stall, "script {number} does not end: {script:?}");
            stalls += 1;
            println!("script {number} does not end: {script:?}");
        }
        assert!(stalls <= max_stalls, "of scripts {scripts:?} {stalls} do not end");
    }
    println!("{levels:?}: scripts {scripts:?} passed, {stalls} of them did not end");
}

#[test]
fn guarded_ends_receive_what_was_sent() {
    runs([Guard; 2]);
}

#[test]
fn watched_ends_receive_what_was_sent() {
    runs([Watch; 2]);
}

#[test]
fn ends_guarded_in_one_direction_receive_what_was_sent() {
    runs([Guard, Watch]);
    runs([Watch, Guard]);
}
