//! Hostile senders against models of receivers.
//!
//! A sender sends bytes of several texts for the same sequence numbers: in any order, with false headers, and
//! repeatedly. Packets that the guard passes may be lost after it. The tests check two properties for every
//! receiver: it never gets the whole pattern, and it gets exactly what the scanner saw. `MMB_STREAM_SCRIPTS`
//! is the number of scripts, `MMB_STREAM_FIRST` the seed of the first script. `edited/hostile.rs` uses the
//! same senders at level edit.

use crate::support::receiver::{Habits, OVERLAPS, Overlap, Receiver};
use crate::support::{Conn, LIMITS, Seg, contains, seeds, seg, syn, syn_ack};
use mmb_random::RepeatableRandom;
use mmb_stream::{
    Level::{Guard, Watch},
    StreamLimits, Urgent, flag,
};

pub(crate) const PATTERN: &[u8] = b"ATTACK";
/// Scripts, if nothing else is asked for.
const SCRIPTS: u64 = 2500;

/// What a sender mixes: texts of one length, of which only the first one has the pattern.
const TEXTS: [&[u8]; 4] = [
    b"some.words.ATTACK.and.more.of.it",
    b"some.words.xxxxxx.and.more.of.it",
    b"SOME,WORDS,ATxxCK,AND,MORE,OF,IT",
    &[b'-'; 32],
];

pub(crate) fn limits(random: &mut RepeatableRandom) -> StreamLimits {
    StreamLimits {
        memory: random.of(&[16 << 10, 512 << 10]),
        window: random.of(&[5, 12, 24, 1 << 16]),
        reorder: random.of(&[4, 16, 1 << 14]),
        urgent: random.of(&[Urgent::Clear, Urgent::Drop]),
        ..LIMITS
    }
}

/// A hostile sender. It mostly wants one text to arrive, and sends others for the same numbers.
pub(crate) struct Sender {
    pub(crate) random: RepeatableRandom,
    time: u32,
    /// The probability of each false header field.
    falsehood: f64,
    /// Goes on where the receiver is, so that connections make progress.
    pub(crate) place: i64,
}

impl Sender {
    /// A sender of some habits, its SYN, and the probability that one of its packets is lost.
    pub(crate) fn begin(mut random: RepeatableRandom) -> (Sender, Seg, f64) {
        let falsehood = random.of(&[0.0, 0.02, 0.1]);
        let loss = random.of(&[0.0, 0.1, 0.4]);
        let mut sender = Sender { random, time: u32::MAX - 30, falsehood, place: 0 };
        let first = match sender.random.chance(0.3) {
            true => syn(&sender.bytes(0, 15)),
            false => syn(b""),
        };
        (sender, first, loss)
    }

    pub(crate) fn bytes(&mut self, at: i64, len: usize) -> Vec<u8> {
        let text = self.random.weighted(&[(TEXTS[0], 5), (TEXTS[1], 2), (TEXTS[2], 1), (TEXTS[3], 1)]);
        (at..at + len as i64)
            .map(|offset| usize::try_from(offset).ok().and_then(|at| text.get(at)).map_or(b'?', |byte| *byte))
            .collect()
    }

    pub(crate) fn segment(&mut self) -> Seg {
        let len = self.random.of(&[0, 1, 1, 2, 3, 5, 8, 13, 32]);
        let at = match self.random.below(4) {
            0 => self.random.below(36) as i64 - 2,
            1 => self.place + self.random.below(7) as i64 - 3,
            _ => self.place + self.random.below(3) as i64,
        };
        let data = self.bytes(at, len);
        self.time = self.time.wrapping_add(self.random.below(3) as u32);
        let mut segment = seg(0, at, &data);
        if self.random.chance(0.7) {
            segment = segment.time(self.time);
        }
        self.falsify(segment)
    }

    fn falsify(&mut self, mut segment: Seg) -> Seg {
        let falsehood = self.falsehood;
        let mut lies = || self.random.chance(falsehood);
        if lies() {
            segment.header.timestamps = Some([self.time.wrapping_sub(5), 0]);
        }
        if lies() {
            segment = segment.corrupt();
        }
        if lies() {
            segment.ack = 7;
        }
        for flags in [flag::FIN, flag::URG, flag::SYN, flag::RST] {
            if lies() && lies() {
                segment.header.flags |= flags;
            }
        }
        if lies() {
            segment.header.flags &= !flag::ACK;
        }
        segment
    }
}

/// What one script did.
struct Fate {
    delivered: Vec<u8>,
    scanned: Vec<u8>,
}

/// Runs a script of a sender against a receiver, with or without a middle.
fn run(seed: u64, overlap: Overlap, has_middle: bool) -> Fate {
    let mut random = RepeatableRandom::for_purpose(seed, "hostile");
    let habits = Habits::random(&mut random, overlap);
    let levels = [Guard, random.of(&[Guard, Watch])];
    let mut conn = Conn::new(levels, limits(&mut random), [u32::MAX - 8, 77]);
    conn.stop = Some(PATTERN.to_vec());
    let mut receiver = Receiver::new(habits);
    let (mut sender, first, loss) = Sender::begin(random);
    let pass = |conn: &mut Conn, segment: Seg| if has_middle { conn.through(segment) } else { Some(segment) };
    if let Some(first) = pass(&mut conn, first) {
        receiver.receive(&first);
    }
    let syn_ack = |taken: Seg| syn_ack().ack(taken.ack).window(taken.header.window);
    let mut answer = receiver.acknowledgment().map(syn_ack);
    for _ in 0..80 {
        if conn.is_over {
            break;
        }
        if let Some(answer) = answer.and_then(|answer| pass(&mut conn, answer)) {
            sender.place = answer.ack;
        }
        for _ in 0..1 + sender.random.below(4) {
            let segment = sender.segment();
            let passed = if conn.is_over { None } else { pass(&mut conn, segment) };
            if let Some(segment) = passed.filter(|_| !sender.random.chance(loss)) {
                receiver.receive(&segment);
            }
        }
        answer = receiver.acknowledgment();
        if let Some(answer) = answer.as_ref().filter(|_| sender.random.chance(0.5)) {
            sender.place = answer.ack;
        }
    }
    let scanned = conn.scanned(0);
    conn.end();
    Fate { delivered: receiver.delivered, scanned }
}

fn holds(overlap: Overlap) {
    for seed in seeds(SCRIPTS) {
        let Fate { delivered, scanned } = run(seed, overlap, true);
        let shown = format!(
            "script {seed}: {:?} of {:?}",
            delivered.escape_ascii().to_string(),
            scanned.escape_ascii().to_string()
        );
        assert!(scanned.starts_with(&delivered), "{shown}");
        assert!(!contains(&delivered, PATTERN), "{shown}");
    }
}

#[test]
fn a_receiver_that_keeps_the_first_copy_never_gets_the_pattern() {
    holds(Overlap::First);
}

#[test]
fn a_receiver_that_keeps_the_last_copy_never_gets_the_pattern() {
    holds(Overlap::Last);
}

#[test]
fn a_bsd_receiver_never_gets_the_pattern() {
    holds(Overlap::Bsd);
}

#[test]
fn a_linux_receiver_never_gets_the_pattern() {
    holds(Overlap::Linux);
}

#[test]
fn a_windows_receiver_never_gets_the_pattern() {
    holds(Overlap::Windows);
}

/// The scripts are such that receivers differ, get the pattern without a guard, and get something with it.
#[test]
fn the_scripts_test_something() {
    let fates = |has_middle| {
        OVERLAPS.map(|overlap| {
            (0..300).map(move |seed| run(seed, overlap, has_middle).delivered).collect::<Vec<_>>()
        })
    };
    let (alone, guarded) = (fates(false), fates(true));
    for (number, delivered) in alone.iter().enumerate() {
        let found = delivered.iter().filter(|delivered| contains(delivered, PATTERN)).count();
        assert!(found > 30, "{:?} gets it {found} times", OVERLAPS[number]);
        assert!(alone[..number].iter().all(|other| other != delivered), "{:?}", OVERLAPS[number]);
    }
    let progress = guarded.iter().flatten().filter(|delivered| delivered.len() > 10).count();
    assert!(progress > 300, "{progress}");
}
