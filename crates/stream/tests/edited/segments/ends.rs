//! FIN, RST and keep-alives.

use super::*;
use mmb_stream::{StreamDrop, flag};

#[test]
fn a_fin_goes_with_the_last_byte_of_output() {
    let mut conn = conn();
    assert_eq!(conn.send(seg(0, 0, b"-up").fin()), ["> 0 \"-UPPER\" ack 0 fin"]);
    // The FIN is output byte 6, input byte 3.
    assert_eq!(conn.send(ack(1, 0, 7)), ["< 0 \"\" ack 4"]);
    assert_eq!(conn.send(seg(1, 0, b"bye").ack(7).fin()), ["< 0 \"bye\" ack 4 fin"]);
    assert_eq!(conn.send(ack(0, 4, 4)), ["> 7 \"\" ack 4"]);
    assert_eq!(conn.info().buffered, [0, 0]);
    conn.end();
}

#[test]
fn a_fin_ends_every_hold() {
    let mut conn = conn();
    assert_eq!(conn.send(seg(0, 0, b"ab cu")), ["> 0 \"ab \" ack 0"]);
    assert_eq!(conn.send(seg(0, 5, b"").fin()), ["> 3 \"cu\" ack 0 fin"]);
    let asked = conn.editor.asked.last().expect("a question");
    assert!(asked.is_end && asked.bytes == "cu" && asked.known == 2);
    assert_eq!(conn.send(ack(1, 0, 6)), ["< 0 \"\" ack 6"]);
    conn.end();
}

#[test]
fn a_fin_comes_again_when_its_sender_sends_it_again() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"up").fin());
    assert_eq!(conn.send(seg(0, 0, b"up").fin()), ["> 0 \"UPPER\" ack 0 fin"]);
    assert_eq!(conn.send(seg(0, 2, b"").fin()), ["> 5 \"\" ack 0 fin"]);
    // The last bytes without the FIN: it follows them.
    assert_eq!(conn.send(seg(0, 0, b"up")), ["> 0 \"UPPER\" ack 0 fin"]);
    conn.send(ack(1, 0, 5));
    assert_eq!(conn.send(seg(0, 2, b"").fin()), ["> 5 \"\" ack 0 fin"]);
    conn.send(ack(1, 0, 6));
    // The receiver has it: it only has to say so again.
    assert_eq!(conn.send(seg(0, 2, b"").fin()), ["> 5 \"\" ack 0"]);
    assert_eq!(conn.send(seg(0, 0, b"up").fin()), ["> 5 \"\" ack 0"]);
    conn.end();
}

#[test]
fn a_fin_whose_bytes_are_all_removed_goes_alone() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"ab"));
    let went = conn.send(seg(0, 2, b"cut").fin());
    // The receiver has not acknowledged the bytes before: nothing is acknowledged.
    assert_eq!(went, ["> 2 \"\" ack 0 fin"]);
    assert_eq!(conn.send(seg(0, 2, b"cut").fin()), ["> 2 \"\" ack 0 fin"], "lost, and sent again");
    // Behind its acknowledgment of 2, all input but the FIN is.
    assert_eq!(conn.send(ack(1, 0, 2)), ["< 0 \"\" ack 5"]);
    assert_eq!(conn.send(seg(0, 5, b"").fin()), ["> 2 \"\" ack 0 fin"]);
    assert_eq!(conn.send(ack(1, 0, 3)), ["< 0 \"\" ack 6"]);
    conn.end();
}

#[test]
fn a_stream_of_which_nothing_is_left_ends() {
    let mut conn = conn();
    assert_eq!(conn.send(seg(0, 0, b"cutcut").fin()), ["> 0 \"\" ack 0 fin", "+< 0 \"\" ack 6"]);
    assert_eq!(conn.send(ack(1, 0, 1)), ["< 0 \"\" ack 7"]);
    conn.end();
}

#[test]
fn a_fin_waits_behind_output_that_waits() {
    let mut conn = EditedConn::established_with(LIMITS, &WORDS, &|segment| segment.window(4));
    // Five bytes of output, for four of window.
    assert_eq!(conn.send(seg(0, 0, b"up").fin()), ["> 0 \"UPPE\" ack 0"]);
    assert_eq!(conn.info().edits[0].unsent, 1);
    // Nothing is acknowledged: the receiver does not have the last byte of the edit. An advertised window is
    // not taken back, so nothing is forwarded.
    assert_eq!(conn.send(ack(1, 0, 4).window(0)), NOTHING);
    assert_eq!(conn.send(ack(1, 0, 4).window(9)), ["< 0 \"\" ack 0", "+> 4 \"R\" ack 0 fin"]);
    assert_eq!(conn.send(ack(1, 0, 6)), ["< 0 \"\" ack 3"]);
    conn.end();
}

#[test]
fn an_early_fin_waits_for_the_hole() {
    let mut conn = conn();
    assert_eq!(conn.send(seg(0, 2, b"zz").fin()), ["+< 0 \"\" ack 0 sack 2-4"]);
    assert_eq!(conn.send(seg(0, 4, b"").fin()), NOTHING);
    assert_eq!(conn.send(seg(0, 0, b"up")), ["> 0 \"UPPERzz\" ack 0 fin"]);
    assert_eq!(conn.send(ack(1, 0, 8)), ["< 0 \"\" ack 5"]);
    conn.end();
}

#[test]
fn nothing_comes_behind_a_fin() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"up").fin());
    conn.drops(seg(0, 2, b"x"), StreamDrop::OutOfWindow);
    conn.drops(seg(0, 3, b"x"), StreamDrop::OutOfWindow);
    conn.drops(seg(0, 0, b"upx"), StreamDrop::OutOfWindow);
    conn.drops(seg(0, 0, b"u").fin(), StreamDrop::OutOfWindow);
    conn.drops(ack(1, 0, 7), StreamDrop::OutOfWindow);
    assert_eq!(conn.send(ack(0, 3, 0)), ["> 6 \"\" ack 0"], "an acknowledgment comes behind it");
    conn.end();
}

#[test]
fn a_keep_alive_asks_for_what_the_receiver_has() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"up"));
    conn.send(ack(1, 0, 5));
    assert_eq!(conn.send(ack(0, 1, 0)), ["> 4 \"\" ack 0"]);
    // The byte of some is garbage (RFC 9293 section 3.8.4).
    assert_eq!(conn.send(seg(0, 1, b"\0")), ["> 4 \"\" ack 0"]);
    // The answer is an acknowledgment of the same number.
    assert_eq!(conn.send(ack(1, 0, 5)), ["< 0 \"\" ack 2"]);
    conn.end();
}

#[test]
fn a_keep_alive_before_the_first_byte_is_in_the_place_of_the_syn() {
    let mut conn = conn();
    assert_eq!(conn.send(ack(0, -1, 0)), ["> -1 \"\" ack 0"]);
    assert_eq!(conn.send(seg(0, -1, b"\0")), ["> -1 \"\" ack 0"]);
    conn.end();
}

#[test]
fn a_keep_alive_behind_a_fin_is_no_data() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"up").fin());
    conn.drops(seg(0, 2, b"\0"), StreamDrop::OutOfWindow);
    conn.send(ack(1, 0, 6));
    assert_eq!(conn.send(seg(0, 2, b"\0")), ["> 5 \"\" ack 0"]);
    assert_eq!(conn.send(ack(0, 2, 0)), ["> 5 \"\" ack 0"]);
    conn.end();
}

/// A RST of the initiator at an offset.
fn reset(at: i64) -> Seg {
    ack(0, at, 0).flags(flag::RST | flag::ACK)
}

#[test]
fn a_reset_that_is_believed_has_the_number_of_what_was_let_go() {
    let mut conn = EditedConn::established_with(LIMITS, &WORDS, &|segment| segment.window(13));
    conn.send(seg(0, 0, b"-up-up"));
    // Twelve bytes of output went on. The sender has sent six.
    assert_eq!(conn.send(reset(6)), ["> 12 \"\" ack 0 rst"]);
    conn.send(seg(0, 6, b"up u"));
    // One byte of UPPER was sent. The rest and a blank wait, and the last byte is held. The receiver expects
    // 13, its sender is at 10.
    assert_eq!(conn.send(reset(10)), ["> 13 \"\" ack 0 rst"]);
    // Or it answers the acknowledgment of all that is decided.
    assert_eq!(conn.send(reset(9)), ["> 13 \"\" ack 0 rst"]);
    conn.end();
}

#[test]
fn a_reset_of_an_acknowledged_number_has_it() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"-up-up-"));
    conn.send(ack(1, 0, 7));
    assert_eq!(conn.send(reset(4)), ["> 7 \"\" ack 0 rst"], "what the receiver told last");
    assert_eq!(conn.send(reset(6)), ["> 12 \"\" ack 0 rst"]);
    conn.end();
}

#[test]
fn a_reset_behind_a_fin() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"up").fin());
    assert_eq!(conn.send(reset(3)), ["> 6 \"\" ack 0 rst"]);
    assert_eq!(conn.send(reset(2)), ["> 5 \"\" ack 0 rst"]);
    conn.end();
}

#[test]
fn a_guessed_reset_does_not_get_the_right_number() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"-up-up u"));
    conn.send(ack(1, 0, 7));
    // The receiver accepts only the number that it expects next (RFC 5961 section 3.2): 13, and 7 until all
    // of it has arrived.
    let believed = ["> 13 \"\" ack 0 rst", "> 7 \"\" ack 0 rst"];
    let exact = [4, 7, 8];
    let guesses = (-300..300).chain((-30..30).map(|million| million * 70_000_000));
    for at in guesses.filter(|at| !exact.contains(at)) {
        let went = conn.send(reset(at));
        assert_eq!(went.len(), 1);
        assert!(!believed.contains(&went[0].as_str()), "{at}: {went:?}");
    }
    conn.end();
}

#[test]
fn a_guessed_acknowledgment_resets_no_connection_that_begins() {
    let mut conn = EditedConn::new([mmb_stream::Level::Edit; 2], LIMITS, Words::new(&WORDS));
    conn.send(syn(b""));
    for guess in [-5, -1, 1, 7, 100_000, i64::from(i32::MAX), i64::from(i32::MIN)] {
        let went = conn.send(ack(1, 0, guess).flags(flag::RST | flag::ACK));
        assert!(went.iter().all(|went| !went.contains("ack 0")), "{guess}: {went:?}");
    }
    assert_eq!(conn.send(ack(1, 0, 0).flags(flag::RST | flag::ACK)).len(), 1);
    assert_eq!(conn.offset(0, conn.last.ack), 0, "the answer to the SYN is believed");
    conn.end();
}

#[test]
fn the_target_of_a_reset_is_what_each_end_expects() {
    let mut conn = EditedConn::established_with(LIMITS, &WORDS, &|segment| segment.window(7));
    assert_eq!((conn.reset(0), conn.reset(1)), (Some((0, Some(0))), Some((0, Some(0)))));
    conn.send(seg(0, 0, b"up up"));
    conn.send(seg(1, 0, b"hello").ack(5).window(2));
    // The responder got seven of eleven bytes, the initiator was told that two arrived.
    assert_eq!(conn.reset(1), Some((7, Some(0))));
    assert_eq!(conn.reset(0), Some((5, Some(2))));
    conn.send(ack(0, 5, 5));
    assert_eq!(conn.reset(1), Some((7, Some(5))));
    conn.send(ack(1, 5, 7).window(100));
    conn.send(seg(0, 5, b"").ack(5).fin());
    assert_eq!(conn.reset(1), Some((12, Some(5))));
    conn.end();
}
