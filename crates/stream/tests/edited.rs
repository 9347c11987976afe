//! Two TCP ends over a bad link, with a table between them that edits what they send.
//!
//! The tests check these properties:
//!
//! - Each end receives the edited bytes of the other end.
//! - All packets that are forwarded for a number of the output have the same byte there.
//! - No acknowledgment of input is forwarded whose output the receiver does not have.
//! - Both ends close.
//! - At the end, nothing is buffered.
//!
//! `MMB_STREAM_SCRIPTS` is the number of scripts of each test, `MMB_STREAM_FIRST` the first script. With
//! `MMB_STREAM_TRACE`, each packet is shown.

mod editor;
mod goodput;
mod hostile;
mod middle;
mod segments;

use self::editor::{Editor, Replacement};
use self::middle::Middle;
use super::two_ends::end::{End, Manner};
use super::two_ends::link::{Link, Quality, Stop};
use mmb_random::RepeatableRandom;
use mmb_stream::{Level, StreamLimits};

/// A script that is not over by then never ends: output may be a hundred times as long as input.
const MAX_MS: u64 = 30_000_000;
/// Scripts for each test, if nothing else is asked for.
const SCRIPTS: u64 = 150;
/// One stall is allowed per this many scripts, plus two. smoltcp does not always probe a closed window, or
/// retransmit what is lost while its peer probes, whatever is between its ends.
const SCRIPTS_TO_A_STALL: u64 = 100;

/// What a script chooses.
#[derive(Clone, Debug)]
struct Script {
    levels: [Level; 2],
    limits: StreamLimits,
    quality: Quality,
    manner: [Manner; 2],
    lengths: [usize; 2],
    replacements: Vec<Replacement>,
    vectors: bool,
}

impl Script {
    fn random(levels: [Level; 2], hold_ms: u32, random: &mut RepeatableRandom) -> Script {
        let window = random.of(&[3000, 5000, 64 << 10, 1 << 20]);
        let limits = StreamLimits { streams: 1, memory: 4 << 20, window, hold_ms, ..StreamLimits::default() };
        let mut manner = [Manner::random(random), Manner::random(random)];
        if levels.contains(&Level::Watch) {
            manner.iter_mut().for_each(|manner| manner.timestamps = false);
            let max = 60 * (manner[0].mtu.min(manner[1].mtu) - 40);
            manner.iter_mut().for_each(|manner| manner.receive_buffer = manner.receive_buffer.min(max));
        }
        let mut length = || random.log_uniform(1, 40_000) as usize * usize::from(random.chance(0.9));
        let lengths = [length(), length()];
        let replacements = Replacement::several(random);
        let (quality, vectors) = (Quality::random(random), random.chance(0.5));
        Script { levels, limits, quality, manner, lengths, replacements, vectors }
    }
}

/// Lets two ends talk until both are closed. Returns the time at which they are; `None` if they never are, or
/// if mmb ended the connection because a receiver did not answer. With `vectors`, packets are generated after
/// all packets that arrive together, otherwise after each packet.
fn play(ends: &mut [End; 2], middle: &mut Middle, link: &mut Link, vectors: bool) -> Option<u64> {
    let traces = std::env::var_os("MMB_STREAM_TRACE").is_some();
    let mut now_ms = 0;
    loop {
        while let Some((stop, packet)) = link.arrived(now_ms) {
            if traces {
                println!("{now_ms} at {stop:?}: {}", packet.shown());
            }
            match stop {
                Stop::Middle => {
                    let mut passed = middle.take(packet, now_ms);
                    if !vectors {
                        passed.extend(middle.generated());
                    }
                    passed.into_iter().for_each(|packet| link.forward(now_ms, packet));
                }
                Stop::End => {
                    middle.delivered(&packet);
                    ends[1 - packet.direction()].receive(packet, now_ms);
                }
            }
        }
        middle.generated().into_iter().for_each(|packet| link.forward(now_ms, packet));
        middle.release(now_ms)?.into_iter().for_each(|packet| link.forward(now_ms, packet));
        for end in &mut *ends {
            for packet in end.poll(now_ms) {
                link.send(now_ms, packet);
            }
        }
        if ends.iter().all(End::is_closed) {
            return Some(now_ms);
        }
        let next = ends.iter_mut().filter_map(|end| end.next_ms(now_ms));
        let next = next.chain(link.next_ms()).chain(middle.due_ms()).min();
        now_ms = next.unwrap_or(MAX_MS).max(now_ms + 1);
        if now_ms >= MAX_MS {
            return None;
        }
    }
}

/// Runs a script. Returns whether it ended.
fn run(script: &Script, mut random: RepeatableRandom) -> bool {
    let streams = script.lengths.map(|length| editor::stream(length, &mut random));
    let mut end =
        |number: usize| End::new(number, random.word(), script.manner[number], streams[number].clone());
    let mut ends = [end(0), end(1)];
    let editor = Editor::new(script.replacements.clone(), streams.clone());
    let mut middle = Middle::new(script.levels, script.limits, editor);
    let mut link = Link::new(script.quality, random, streams.clone());
    let Some(now_ms) = play(&mut ends, &mut middle, &mut link, script.vectors) else { return false };
    for (number, end) in ends.iter_mut().enumerate() {
        let expected = middle.expected(1 - number);
        // The application may not have read all.
        for _ in 0..5000 {
            if end.received().len() < expected.len() {
                end.poll(now_ms);
            }
        }
        assert!(end.received() == expected, "received {} of {} bytes", end.received().len(), expected.len());
    }
    middle.end();
    true
}

fn runs(name: &str, levels: [Level; 2], hold_ms: u32) {
    run_all(name, levels, hold_ms, crate::support::seeds(SCRIPTS));
}

fn run_all(name: &str, levels: [Level; 2], hold_ms: u32, numbers: std::ops::Range<u64>) {
    let scripts = numbers.end - numbers.start;
    let mut stalls = 0;
    for number in numbers {
        let mut random = RepeatableRandom::for_purpose(number, name);
        let script = Script::random(levels, hold_ms, &mut random);
        match std::panic::catch_unwind(|| run(&script, random.clone())) {
            Ok(is_over) => {
                let may_stall = !script.manner.iter().all(|manner| manner.is_model);
                assert!(is_over || may_stall, "script {number} does not end: {script:?}");
                stalls += u64::from(!is_over);
            }
            Err(_) => panic!("script {number}: {script:?}"),
        }
        assert!(stalls <= 2 + scripts / SCRIPTS_TO_A_STALL, "script {number} does not end: {script:?}");
    }
}

/// So long that hardly any held bytes are sent because of time. The exception is where Nagle's algorithm (RFC
/// 9293 section 3.7.4) waits for the acknowledgment of held bytes.
const LONG_MS: u32 = 5000;

#[test]
fn ends_receive_what_the_editor_makes() {
    runs("edited ends", [Level::Edit; 2], LONG_MS);
}

#[test]
fn ends_receive_what_the_editor_makes_in_one_direction() {
    runs("edited forward", [Level::Edit, Level::Guard], LONG_MS);
    runs("edited reply", [Level::Watch, Level::Edit], LONG_MS);
}

#[test]
fn ends_receive_what_is_released() {
    runs("released", [Level::Edit; 2], 20);
}

/// Scripts that found defects which hardly any other script finds: probes after a promise, a window with an
/// acknowledgment that does not belong to it.
#[test]
fn ends_receive_what_is_made_of_rare_scripts() {
    for (name, levels, hold_ms, number) in [
        ("edited forward", [Level::Edit, Level::Guard], LONG_MS, 105_805),
        ("edited reply", [Level::Watch, Level::Edit], LONG_MS, 150_696),
        ("released", [Level::Edit; 2], 20, 159_796),
        ("released", [Level::Edit; 2], 20, 175_724),
        ("edited ends", [Level::Edit; 2], LONG_MS, 212_702),
    ] {
        let mut random = RepeatableRandom::for_purpose(number, name);
        let script = Script::random(levels, hold_ms, &mut random);
        assert!(run(&script, random), "{name} {number} does not end: {script:?}");
    }
}
