//! How long a transfer takes over a link that loses packets, with a table that edits it and without. Time is
//! virtual, so each run gives the same result.

use super::editor::{Editor, Replacement};
use super::middle::Middle;
use super::play;
use crate::two_ends::end::{End, Manner};
use crate::two_ends::link::{Link, Quality};
use mmb_random::RepeatableRandom;
use mmb_stream::{Level, StreamLimits};

/// Bytes of a transfer.
const BYTES: usize = 1_000_000;
/// Transfers of a kind.
const TRANSFERS: u64 = 16;
/// The word that grows.
const WORD: &[u8] = b"MATCH";

/// Ends as most are: Ethernet, SACK, timestamps, enough room.
const MANNER: Manner = Manner {
    mtu: 1500,
    receive_buffer: 1 << 20,
    send_buffer: 1 << 20,
    timestamps: true,
    keep_alive: false,
    reads: 1 << 20,
    overshoots: false,
    is_model: true,
    sack: true,
    bundle: 1,
};

/// The time in milliseconds that transfers take, with a word in every `distance` bytes. Half of the loss is
/// before the table, half after it.
fn time_ms(level: Level, distance: usize, loss: f64, manner: Manner) -> u64 {
    let transfer = |seed: u64| {
        let mut random = RepeatableRandom::for_purpose(seed, "goodput");
        let mut stream = vec![b'x'; BYTES];
        for at in (distance / 2..BYTES - WORD.len()).step_by(distance) {
            stream[at..at + WORD.len()].copy_from_slice(WORD);
        }
        let streams = [stream, Vec::new()];
        let mut ends =
            [0, 1].map(|number: usize| End::new(number, random.word(), manner, streams[number].clone()));
        let replacement = Replacement { text: WORD.to_vec(), new_text: b"MATCHING".to_vec() };
        let editor = Editor::new(vec![replacement], streams.clone());
        let limits = StreamLimits { streams: 1, memory: 8 << 20, ..StreamLimits::default() };
        let mut middle = Middle::new([level, Level::None], limits, editor);
        let quality =
            Quality { loss: loss / 2.0, late: 0.0, twice: 0.0, damage: 0.0, cut: 0.0, delay_ms: 10 };
        let mut link = Link::new(quality, random, streams);
        let took_ms = play(&mut ends, &mut middle, &mut link, true).expect("an end");
        assert!(ends[1].received() == middle.expected(0));
        took_ms
    };
    (0..TRANSFERS).map(transfer).sum()
}

/// The goodput with edits relative to that without a middle.
fn ratio(distance: usize, loss: f64, manner: Manner) -> f64 {
    let (with_ms, without_ms) =
        (time_ms(Level::Edit, distance, loss, manner), time_ms(Level::None, distance, loss, manner));
    let ratio = without_ms as f64 / with_ms as f64;
    println!(
        "{loss} lost, a word in {distance} bytes: {ratio:.3} ({without_ms} ms without, {with_ms} ms with)"
    );
    ratio
}

/// The design asks for 0.80 of the goodput without the rule, under 1 % loss.
const MIN_RATIO: f64 = 0.80;

#[test]
fn loss_costs_an_edited_connection_little_more_than_another() {
    // No word, one in 10 KB, one in every segment.
    for distance in [BYTES, 10_000, 1000] {
        assert!(ratio(distance, 0.01, MANNER) >= MIN_RATIO);
    }
}

#[test]
fn an_edited_connection_without_loss_is_as_fast() {
    for distance in [BYTES, 1000] {
        assert!(ratio(distance, 0.0, MANNER) >= 0.95);
    }
}

#[test]
fn loss_costs_connections_without_sack_little_more() {
    let manner = Manner { sack: false, timestamps: false, ..MANNER };
    for distance in [BYTES, 1000] {
        assert!(ratio(distance, 0.01, manner) >= MIN_RATIO);
    }
}
