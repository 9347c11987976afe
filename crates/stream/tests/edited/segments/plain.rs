//! Streams in which nothing was edited yet have recorded header values, and no edit state.

use super::*;
use mmb_stream::{StreamDrop, flag};

/// The records of a plain stream, and of one that is edited.
const PLAIN: usize = 1;
const EDITED: usize = 2;

#[test]
fn a_stream_is_plain_until_something_is_held_or_edited() {
    let mut conn = conn();
    assert_eq!(conn.table.edit_records(), PLAIN);
    assert_eq!(conn.send(seg(0, 0, b"abd")), ["> 0 \"abd\" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 3)), ["< 0 \"\" ack 3"]);
    assert_eq!(conn.table.edit_records(), PLAIN);
    // What is held goes on as it is, and all of it was let go.
    assert_eq!(conn.send(seg(0, 3, b"dc")), ["> 3 \"d\" ack 0"]);
    assert_eq!(conn.table.edit_records(), EDITED);
    assert_eq!(conn.send(seg(0, 5, b"xyz")), ["> 4 \"cxyz\" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 3)), ["< 0 \"\" ack 3"]);
    assert_eq!(conn.table.edit_records(), PLAIN);
    assert_eq!(conn.info().buffered[0], 5, "what is not acknowledged");
    // Sent again, it comes from what is kept.
    assert_eq!(conn.send(seg(0, 3, b"dcx?z")), ["> 3 \"dcxyz\" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 8)), ["< 0 \"\" ack 8"]);
    assert_eq!(conn.table.edit_records(), PLAIN);
    // An edit stays, and its list until it is acknowledged.
    assert_eq!(conn.send(seg(0, 8, b"one")), ["> 8 \"two\" ack 0"]);
    assert_eq!(conn.table.edit_records(), EDITED + 1);
    assert_eq!(conn.send(ack(1, 0, 11)), ["< 0 \"\" ack 11"]);
    assert_eq!(conn.table.edit_records(), EDITED);
    assert_eq!(conn.info().edits[0].edits, 1);
    conn.end();
}

#[test]
fn a_plain_stream_is_checked_as_a_guarded_one() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"abd"));
    // Behind the window, an acknowledgment of what was not sent, no ACK.
    conn.drops(seg(0, 70_000, b"x"), StreamDrop::OutOfWindow);
    conn.drops(ack(1, 0, 4), StreamDrop::OutOfWindow);
    let mut bare = seg(0, 3, b"x");
    bare.header.flags &= !flag::ACK;
    conn.drops(bare, StreamDrop::OutOfWindow);
    // Beyond a hole: early bytes wait, and the hole is told.
    assert_eq!(conn.send(seg(0, 5, b"fgh")), NOTHING);
    assert_eq!(conn.table.edit_records(), EDITED);
    assert_eq!(conn.send(ack(1, 0, 3)), ["< 0 \"\" ack 3", "+< 0 \"\" ack 3 sack 5-8"]);
    assert_eq!(conn.send(seg(0, 3, b"de")), ["> 3 \"defgh\" ack 0"]);
    assert_eq!(conn.table.edit_records(), PLAIN);
    conn.end();
}

#[test]
fn a_stream_whose_reader_never_lets_bytes_pass_is_not_plain_again() {
    let mut conn = conn();
    conn.editor.cannot_scan = true;
    assert_eq!(conn.table.edit_records(), PLAIN, "behind the handshake");
    assert_eq!(conn.send(seg(0, 0, b"abd")), ["> 0 \"abd\" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 3)), ["< 0 \"\" ack 3"]);
    assert_eq!(conn.table.edit_records(), EDITED);
    conn.end();
}

#[test]
fn a_plain_stream_whose_reader_stops_stays_stopped() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"abd"));
    conn.editor.stop = Some(b"stop".to_vec());
    conn.drops(seg(0, 3, b"stop"), StreamDrop::Stopped);
    conn.drops(ack(1, 0, 3), StreamDrop::Stopped);
    conn.end();
}
