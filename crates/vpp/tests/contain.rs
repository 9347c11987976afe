//! A panic within a node costs the packets that were not sent on yet, each once.

#[path = "../src/sys/contain.rs"]
mod contain;

use contain::SentCount;

const FRAME: [u32; 5] = [10, 11, 12, 13, 14];

/// Sends a frame on in pieces, with a panic before the piece of that number or while VPP has it; returns what was dropped.
fn dropped(pieces: &[usize], panic_at: usize) -> Vec<u32> {
    let sent = SentCount::default();
    let mut dropped = Vec::new();
    let work = |_: &mut Vec<u32>| {
        for (number, &piece) in pieces.iter().enumerate() {
            assert_ne!(number, panic_at, "a fault of ours");
            sent.add(piece);
        }
    };
    sent.contain(&mut dropped, &FRAME, work, |dropped, left| dropped.extend_from_slice(left));
    dropped
}

#[test]
fn a_panic_drops_what_was_not_sent() {
    assert_eq!(dropped(&[2, 3], 0), FRAME);
    assert_eq!(dropped(&[2, 3], 1), FRAME[2..]);
    assert_eq!(dropped(&[2, 3], 2), [0; 0], "nothing is wrong");
    assert_eq!(dropped(&[5, 0], 1), [0; 0], "all is sent, and what comes then fails");
}

#[test]
fn a_panic_while_packets_are_dropped_ends_there() {
    SentCount::default().contain(
        &mut (),
        &FRAME,
        |()| panic!("a fault of ours"),
        |(), _| panic!("and another"),
    );
}
