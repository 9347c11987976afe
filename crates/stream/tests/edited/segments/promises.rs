//! mmb acknowledges held bytes to their sender, which does not retransmit them.

use super::*;
use mmb_stream::{AckSpace, Level, StreamDrop, flag};

/// A connection behind a word in two segments: the first one was held and acknowledged.
fn promised() -> EditedConn {
    let mut conn = conn();
    assert_eq!(conn.send(seg(0, 0, b"u")), ["+< 0 \"\" ack 1"]);
    assert_eq!(conn.send(seg(0, 1, b"p")), ["> 0 \"UPPER\" ack 0"]);
    conn
}

#[test]
fn what_is_held_behind_output_that_is_not_acknowledged_is_not_promised() {
    let mut conn = conn();
    assert_eq!(conn.send(seg(0, 0, b"ab u")), ["> 0 \"ab \" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 2)), ["< 0 \"\" ack 2"]);
    assert_eq!(conn.send(ack(1, 0, 3)), ["< 0 \"\" ack 4"]);
    // More of it.
    assert_eq!(conn.send(seg(0, 4, b"p c")), ["> 3 \"UPPER \" ack 0"]);
    assert_eq!(conn.send(seg(0, 7, b"u")), NOTHING);
    assert_eq!(conn.send(ack(1, 0, 9)), ["< 0 \"\" ack 8"]);
    conn.end();
}

#[test]
fn promised_output_that_is_lost_is_sent_again() {
    let mut conn = promised();
    assert_eq!(conn.release(199), NOTHING);
    for now_ms in [200, 400, 800, 1600] {
        assert_eq!(conn.release(now_ms), ["+> 0 \"UPPER\" ack 0"], "{now_ms}");
        for polled in (now_ms..).step_by(200).skip(1).take_while(|at| *at < 2 * now_ms) {
            assert_eq!(conn.release(polled), NOTHING, "{polled}");
        }
    }
    assert_eq!(conn.send(ack(1, 0, 5)), ["< 0 \"\" ack 2"]);
    assert_eq!((conn.table.due_ms(), conn.release(10_000)), (None, Vec::new()));
    conn.end();
}

#[test]
fn what_is_held_is_not_sent_again() {
    let mut conn = conn();
    conn.editor.is_patient = true;
    conn.send(seg(0, 0, b"u"));
    for now_ms in (0..100_000).step_by(50) {
        assert_eq!(conn.release(now_ms), NOTHING);
    }
    assert_eq!(conn.send(seg(0, 1, b"p")), ["> 0 \"UPPER\" ack 0"]);
    conn.end();
}

/// A sender without window space sends a probe with the number before the last acknowledgment. The receiver
/// may not have the byte with that number.
#[test]
fn a_sender_that_asks_for_room_behind_a_promise_drives_the_receiver() {
    let mut conn = conn();
    assert_eq!(conn.send(seg(0, 0, b"u")), ["+< 0 \"\" ack 1"]);
    assert_eq!(conn.send(seg(0, 0, b"")), ["> -1 \"\" ack 0"]);
    conn.end();
}

#[test]
fn a_receiver_that_does_not_answer_is_given_up() {
    let mut conn = promised();
    let mut sent = 0;
    let mut broken = None;
    for now_ms in (0..120_000).step_by(100) {
        conn.now_ms = now_ms;
        broken = broken.or(conn.table.next_due(now_ms).map(|due| (due, now_ms)));
        sent += conn.generated().len();
    }
    assert_eq!((broken, sent), (Some(((conn.id, 0), 100_000)), 35));
    let ended = conn.table.release(conn.id, 0, 120_000, &mut conn.editor);
    assert_eq!(ended, Err(StreamDrop::Stopped));
    conn.table.end(conn.id);
    assert_eq!((conn.table.payload_memory(), conn.table.due_ms()), (0, None));
}

#[test]
fn progress_keeps_a_promise_alive() {
    let mut conn = promised();
    // A receiver that takes a byte at a time.
    for number in 1..5 {
        let from = conn.now_ms;
        for now_ms in (from..from + 40_000).step_by(200) {
            conn.release(now_ms);
        }
        let went = conn.send(ack(1, 0, number));
        assert!(went.iter().all(|went| went.ends_with("ack 1")), "{number}: {went:?}");
    }
    assert_eq!(conn.send(ack(1, 0, 5)), ["< 0 \"\" ack 2"]);
    assert_eq!(conn.table.due_ms(), None);
    conn.end();
}

/// A receiver that has room for two of five bytes, and is full.
fn full() -> EditedConn {
    let mut conn = EditedConn::established_with(LIMITS, &WORDS, &|segment| match segment.direction {
        0 => segment,
        _ => segment.window(2),
    });
    assert_eq!(conn.send(seg(0, 0, b"u")), ["+< 0 \"\" ack 1"]);
    assert_eq!(conn.send(seg(0, 1, b"p")), ["> 0 \"UP\" ack 0"]);
    conn.send(ack(1, 0, 2).window(0));
    conn
}

#[test]
fn a_receiver_without_room_for_promised_output_is_asked() {
    let mut conn = full();
    // Its sender has nothing more to say: nobody else asks.
    assert_eq!(conn.release(200), ["+> 1 \"\" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 2).window(3)), ["< 0 \"\" ack 1", "+> 2 \"PER\" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 5).window(2)), ["< 0 \"\" ack 2"]);
    assert_eq!(conn.table.due_ms(), None);
    conn.end();
}

#[test]
fn a_receiver_that_answers_that_it_is_full_is_asked_without_end() {
    let (mut conn, mut asked) = (full(), 0);
    for now_ms in (200..200_000).step_by(200) {
        for went in conn.release(now_ms) {
            assert_eq!(went, "+> 1 \"\" ack 0");
            asked += 1;
            conn.send(ack(1, 0, 2).window(0));
        }
    }
    assert!((40..80).contains(&asked), "{asked}: with pauses of three seconds");
    conn.send(ack(1, 0, 2).window(3));
    conn.send(ack(1, 0, 5));
    conn.end();
}

#[test]
fn a_fin_behind_promised_output_is_its_senders() {
    let mut conn = promised();
    assert_eq!(conn.send(seg(0, 2, b"").fin()), ["> 5 \"\" ack 0 fin"]);
    assert_eq!(conn.release(200), ["+> 0 \"UPPER\" ack 0 fin"]);
    assert_eq!(conn.send(ack(1, 0, 5)), ["< 0 \"\" ack 2"]);
    assert_eq!((conn.table.due_ms(), conn.release(10_000)), (None, Vec::new()));
    assert_eq!(conn.send(seg(0, 2, b"").fin()), ["> 5 \"\" ack 0 fin"]);
    assert_eq!(conn.send(ack(1, 0, 6)), ["< 0 \"\" ack 3"]);
    conn.end();
}

#[test]
fn removed_bytes_that_were_promised_are_settled() {
    let mut conn = conn();
    assert_eq!(conn.send(seg(0, 0, b"cu")), ["+< 0 \"\" ack 2"]);
    assert_eq!(conn.send(seg(0, 2, b"t")), ["+< 0 \"\" ack 3"]);
    assert_eq!(conn.table.due_ms(), None);
    conn.end();
}

#[test]
fn a_block_that_begins_where_a_promise_ends_is_not_told() {
    let mut conn = conn();
    assert_eq!(conn.send(seg(0, 0, b"c")), ["+< 0 \"\" ack 1"]);
    assert_eq!(conn.send(seg(0, 1, b"dxyz")), ["> 0 \"cdxyz\" ack 0"]);
    assert_eq!((conn.sack([1, 3]), conn.sack([2, 3])), (None, Some([2, 3])));
    conn.end();
}

#[test]
fn nothing_is_promised_where_acknowledgments_are_those_of_the_original() {
    let mut conn = EditedConn::new([Level::Edit, Level::None], LIMITS, Words::new(&WORDS));
    conn.table.end(conn.id);
    conn.table.set_ack_space(AckSpace::Original);
    conn.id = conn.table.open([Level::Edit, Level::None], true, Some(&syn(b"").header), 0).expect("a stream");
    for segment in [syn(b""), syn_ack(), ack(0, 0, 0)] {
        conn.send(segment);
    }
    assert_eq!(conn.send(seg(0, 0, b"u")), NOTHING);
    assert_eq!(conn.last.flags & flag::FIN, 0);
    conn.end();
}
