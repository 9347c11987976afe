//! Bytes that are in order, held, out of order or retransmitted.

use super::*;
use mmb_stream::{StreamDrop, StreamLimits};

#[test]
fn bytes_in_order_pass_and_numbers_follow_the_edits() {
    let mut conn = conn();
    assert_eq!(conn.send(seg(0, 0, b"abx")), ["> 0 \"abx\" ack 0"]);
    assert_eq!(conn.send(seg(0, 3, b"-up-")), ["> 3 \"-UPPER-\" ack 0"]);
    assert_eq!(conn.send(seg(0, 7, b"one")), ["> 10 \"two\" ack 0"]);
    assert_eq!(conn.send(seg(0, 10, b"a cut")), ["> 13 \"a \" ack 0"]);
    // The initiator has sent 15 bytes, the responder gets 15: +3 and -3.
    assert_eq!(conn.send(seg(0, 15, b"z")), ["> 15 \"z\" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 16)), ["< 0 \"\" ack 16"]);
    assert_eq!(conn.info().buffered, [0, 0]);
    conn.end();
}

#[test]
fn both_directions_are_edited_on_their_own() {
    let mut conn = EditedConn::new([mmb_stream::Level::Edit; 2], LIMITS, Words::new(&WORDS));
    conn.send(syn(b""));
    conn.send(syn_ack());
    conn.send(ack(0, 0, 0));
    assert_eq!(conn.send(seg(0, 0, b"up")), ["> 0 \"UPPER\" ack 0"]);
    // The responder counts 5 bytes, the initiator sent 2.
    assert_eq!(conn.send(seg(1, 0, b"up up").ack(5)), ["< 0 \"UPPER UPPER\" ack 2"]);
    // The initiator counts 11 bytes, the responder sent 5.
    assert_eq!(conn.send(seg(0, 2, b"x").ack(11)), ["> 5 \"x\" ack 5"]);
    conn.end();
}

#[test]
fn a_begun_match_is_held_until_it_is_decided() {
    let mut conn = conn();
    assert_eq!(conn.send(seg(0, 0, b"ab u")), ["> 0 \"ab \" ack 0"]);
    assert_eq!(conn.info().edits[0].held, 1);
    // What is held is acknowledged when the receiver has all before it.
    assert_eq!(conn.send(ack(1, 0, 3)), ["< 0 \"\" ack 4"]);
    assert_eq!(conn.send(seg(0, 4, b"p!")), ["> 3 \"UPPER!\" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 9)), ["< 0 \"\" ack 6"]);
    // It was none.
    assert_eq!(conn.send(seg(0, 6, b"c")), ["+< 0 \"\" ack 7"]);
    assert_eq!(conn.send(seg(0, 7, b"u")), ["+< 0 \"\" ack 8"]);
    assert_eq!(conn.send(seg(0, 8, b"rl")), ["> 9 \"curl\" ack 0"]);
    let known: Vec<_> = conn.editor.asked.iter().map(|asked| (asked.offset, asked.known)).collect();
    assert_eq!(known, [(0, 0), (3, 1), (6, 0), (6, 1), (6, 2)]);
    conn.end();
}

#[test]
fn a_held_segment_whose_acknowledgment_is_news_goes_on_without_bytes() {
    let mut conn = conn();
    conn.send(seg(1, 0, b"hello"));
    assert_eq!(conn.send(seg(0, 0, b"u").ack(5)), ["> 0 \"\" ack 5", "+< 5 \"\" ack 1"]);
    assert_eq!(conn.send(seg(0, 1, b"p").ack(5)), ["> 0 \"UPPER\" ack 5"]);
    conn.end();
}

#[test]
fn held_bytes_are_let_go_when_their_time_is_over() {
    let mut conn = conn();
    conn.now_ms = 1000;
    conn.send(seg(0, 0, b"ab u"));
    assert_eq!(conn.table.due_ms(), Some(1100));
    assert_eq!(conn.table.next_due(1099), None);
    assert_eq!(conn.release(1100), ["+> 3 \"u\" ack 0"]);
    let asked = Asked { offset: 3, bytes: "u".to_owned(), known: 1, is_end: false, waited_ms: Some(100) };
    assert_eq!(conn.editor.asked.last(), Some(&asked));
    assert_eq!((conn.table.due_ms(), conn.info().edits[0].held), (None, 0));
    // The rest of the word comes too late.
    assert_eq!(conn.send(seg(0, 4, b"p!")), ["> 4 \"p!\" ack 0"]);
    conn.end();
}

#[test]
fn a_patient_editor_is_asked_again() {
    let mut conn = conn();
    conn.editor.is_patient = true;
    conn.send(seg(0, 0, b"u"));
    assert_eq!(conn.release(100), NOTHING);
    assert_eq!(conn.table.due_ms(), Some(200));
    assert_eq!(conn.release(199), NOTHING);
    assert_eq!(conn.release(200), NOTHING);
    let waited: Vec<_> = conn.editor.asked.iter().map(|asked| asked.waited_ms).collect();
    assert_eq!(waited, [None, Some(100), Some(200)]);
    assert_eq!(conn.send(seg(0, 1, b"p")), ["> 0 \"UPPER\" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 5)), ["< 0 \"\" ack 2"]);
    assert_eq!(conn.table.due_ms(), None);
    conn.end();
}

#[test]
fn the_time_of_held_bytes_begins_with_the_first_of_them() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"c"));
    conn.now_ms = 60;
    conn.send(seg(0, 1, b"u"));
    // A sender that goes on byte by byte does not hold back for longer.
    assert_eq!(conn.table.due_ms(), Some(100));
    conn.now_ms = 90;
    // These begin anew: what was held is decided.
    assert_eq!(conn.send(seg(0, 2, b"t cu")), ["> 0 \" \" ack 0", "+< 0 \"\" ack 3"]);
    assert_eq!(conn.release(150), NOTHING);
    assert_eq!(conn.release(190), ["+> 1 \"cu\" ack 0"]);
    conn.end();
}

#[test]
fn without_a_time_to_hold_the_host_is_not_asked_without_end() {
    let limits = StreamLimits { hold_ms: 0, ..LIMITS };
    let mut conn = EditedConn::established_with(limits, &WORDS, &|segment| segment);
    conn.editor.is_patient = true;
    conn.send(seg(0, 0, b"u"));
    assert_eq!(conn.release(5), NOTHING);
    assert_eq!(conn.editor.asked.len(), 2);
    conn.end();
}

#[test]
fn more_held_bytes_than_an_editor_may_hold_are_let_go() {
    let word = "w".repeat(200_000);
    let limits = StreamLimits { window: 1 << 20, ..LIMITS };
    let scaled = |mut segment: Seg| {
        segment.header.scale = segment.header.has(mmb_stream::flag::SYN).then_some(7);
        segment
    };
    let mut conn = EditedConn::established_with(limits, &[(&word, "x")], &scaled);
    conn.send(ack(1, 0, 0));
    for number in 0..2 {
        let went = conn.send(seg(0, number * 40_000, &word.as_bytes()[..40_000]));
        assert_eq!(went, [format!("+< 0 \"\" ack {}", (number + 1) * 40_000)]);
    }
    // 80,000 of at most 81,920 bytes are held. These are too many: all go.
    let went = conn.send(seg(0, 80_000, &word.as_bytes()[..10_000]));
    assert!(went[0].starts_with("> 0 \"www") && !went.is_empty());
    assert_eq!(conn.info().edits[0].held, 0);
    assert_eq!(conn.editor.asked.last().and_then(|asked| asked.waited_ms), Some(u32::MAX));
    conn.end();
}

#[test]
fn early_bytes_are_absorbed_and_told_when_the_receiver_has_all() {
    let mut conn = EditedConn::established_with(LIMITS, &WORDS, &|segment| segment.window(700));
    conn.send(seg(0, 0, b"abx"));
    conn.send(ack(1, 0, 3).window(700));
    // A receiver would say: I expect 3, and have 6 to 9.
    assert_eq!(conn.send(seg(0, 6, b"ghi")), ["+< 0 \"\" ack 3 sack 6-9"]);
    assert_eq!(conn.last.window, 700, "a duplicate has the window of the last one");
    // The latest block first.
    assert_eq!(conn.send(seg(0, 12, b"mno")), ["+< 0 \"\" ack 3 sack 12-15 sack 6-9"]);
    assert_eq!(conn.send(seg(0, 18, b"stu")), ["+< 0 \"\" ack 3 sack 18-21 sack 6-9 sack 12-15"]);
    assert_eq!(conn.send(seg(0, 24, b"y")), ["+< 0 \"\" ack 3 sack 24-25 sack 6-9 sack 12-15"]);
    assert_eq!(conn.send(seg(0, 3, b"def")), ["> 3 \"defghi\" ack 0"]);
    assert_eq!(conn.info().out_of_order[0], 7);
    conn.end();
}

#[test]
fn without_sack_on_both_sides_duplicates_have_no_blocks() {
    for refuser in [0, 1] {
        let change = |mut segment: Seg| {
            segment.header.sack_permitted &= segment.direction != refuser;
            segment
        };
        let mut conn = EditedConn::established_with(LIMITS, &WORDS, &change);
        assert_eq!(conn.send(seg(0, 3, b"def")), ["+< 0 \"\" ack 0"]);
        conn.end();
    }
}

#[test]
fn duplicates_are_owed_while_the_receiver_has_not_all() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"abx"));
    for at in [6, 8, 10, 12, 14] {
        assert_eq!(conn.send(seg(0, at, b"x")), NOTHING, "the receiver may have lost the first bytes");
    }
    // Five came, three are owed.
    let duplicate = "+< 0 \"\" ack 3 sack 14-15 sack 6-7 sack 8-9";
    assert_eq!(conn.send(ack(1, 0, 3)), ["< 0 \"\" ack 3", duplicate, duplicate, duplicate]);
    assert_eq!(conn.send(ack(1, 0, 3)), ["< 0 \"\" ack 3"]);
    conn.end();
}

#[test]
fn a_hole_that_is_filled_leaves_no_duplicates() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"abx"));
    assert_eq!(conn.send(seg(0, 6, b"ghi")), NOTHING);
    assert_eq!(conn.send(seg(0, 3, b"def")), ["> 3 \"defghi\" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 9)), ["< 0 \"\" ack 9"]);
    // The next hole is another one.
    assert_eq!(conn.send(seg(0, 10, b"k")), ["+< 0 \"\" ack 9 sack 10-11"]);
    // So are those that were not generated yet.
    assert_eq!(conn.take(seg(0, 12, b"m")), None);
    assert_eq!(conn.take(seg(0, 9, b"jkl")), Some("> 9 \"jklm\" ack 0".to_owned()));
    assert_eq!(conn.generated(), NOTHING);
    conn.end();
}

#[test]
fn a_duplicate_has_the_timestamps_that_a_receiver_would_send() {
    let timed = |segment: Seg| match segment.direction {
        0 => segment.times(100, 0),
        _ => segment.times(7000, 100),
    };
    let mut conn = EditedConn::established_with(LIMITS, &WORDS, &timed);
    conn.send(seg(0, 0, b"abx").times(110, 7000));
    conn.send(ack(1, 0, 3).times(7010, 110));
    // TSval is the receiver's last; TSecr that of the last segment in order (RFC 7323 section 4.3).
    conn.send(seg(0, 6, b"ghi").times(130, 7010));
    assert_eq!(conn.last.timestamps, Some([7010, 110]));
    conn.end();
}

#[test]
fn holes_that_are_filled_let_all_go_that_is_in_order() {
    let mut conn = conn();
    let early = [b'e'; 1000];
    for number in 1..4 {
        conn.send(seg(0, 1000 * number, &early));
    }
    let went = conn.send(seg(0, 0, &[b'f'; 1000]));
    let heads: Vec<&str> = went.iter().map(|packet| packet.split('"').next().unwrap_or_default()).collect();
    assert_eq!(heads, ["> 0 ", "+> 1000 ", "+> 2000 ", "+> 3000 "]);
    assert_eq!(conn.info().out_of_order[0], 0);
    conn.end();
}

#[test]
fn a_match_over_a_hole_is_found() {
    let mut conn = conn();
    assert_eq!(conn.send(seg(0, 1, b"p")), ["+< 0 \"\" ack 0 sack 1-2"]);
    assert_eq!(conn.send(seg(0, 0, b"u")), ["> 0 \"UPPER\" ack 0"]);
    conn.end();
}

#[test]
fn the_first_copy_of_early_bytes_wins() {
    let mut conn = conn();
    conn.send(seg(0, 3, b"def"));
    conn.send(seg(0, 2, b"XXXXXX"));
    assert_eq!(conn.send(seg(0, 0, b"ab")), ["> 0 \"abXdefXX\" ack 0"]);
    conn.end();
}

/// The output that holds the bytes of input from `from` to `to`, by the lengths of pieces: (input, output).
fn range(pieces: &[(usize, usize)], from: usize, to: usize) -> (usize, usize) {
    let (mut at, mut out) = (0, 0);
    let mut bounds: Option<(usize, usize)> = None;
    for (len, out_len) in pieces {
        if at < to && from < at + len {
            bounds = Some((bounds.map_or(out, |(start, _)| start), out + out_len));
        }
        (at, out) = (at + len, out + out_len);
    }
    bounds.unwrap_or((0, 0))
}

#[test]
fn old_bytes_are_sent_from_the_copy_however_they_are_cut() {
    let (pieces, output) = (pieces(), Words::new(&WORDS).edited(TEXT));
    for from in 0..TEXT.len() {
        for to in from + 1..=TEXT.len() {
            let mut conn = conn();
            conn.send(seg(0, 0, TEXT));
            // Other bytes than before: the first copy wins.
            let went = conn.send(seg(0, from as i64, &vec![b'X'; to - from]));
            let (start, end) = range(&pieces, from, to);
            let bytes = String::from_utf8_lossy(&output[start..end]).into_owned();
            // Bytes that all were removed only ask the receiver what it expects.
            let expected = match bytes.is_empty() {
                true => "> -1 \"\" ack 0".to_owned(),
                false => format!("> {start} {bytes:?} ack 0"),
            };
            assert_eq!(went, [expected], "{from}..{to}");
            conn.end();
        }
    }
}

#[test]
fn old_bytes_begin_where_the_receiver_is() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"-up-up-"));
    // Inside the first edit: the initiator has to keep it all.
    assert_eq!(conn.send(ack(1, 0, 3)), ["< 0 \"\" ack 1"]);
    assert_eq!(conn.send(seg(0, 0, b"-up-up-")), ["> 3 \"PER-UPPER-\" ack 0"]);
    assert_eq!(conn.send(seg(0, 1, b"up")), ["> 3 \"PER\" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 7)), ["< 0 \"\" ack 4"]);
    assert_eq!(conn.send(seg(0, 0, b"-up-")), ["> 6 \"\" ack 0"], "it has them: it is asked for its number");
    conn.end();
}

#[test]
fn what_is_partly_old_goes_on_with_what_is_new() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"-up"));
    assert_eq!(conn.send(seg(0, 1, b"up one")), ["> 1 \"UPPER two\" ack 0"]);
    conn.send(ack(1, 0, 10));
    // The receiver has the old part.
    assert_eq!(conn.send(seg(0, 4, b"one!")), ["> 10 \"!\" ack 0"]);
    // A match begins in the old part, and was held.
    conn.send(seg(0, 8, b"au"));
    assert_eq!(conn.send(seg(0, 8, b"aup")), ["> 11 \"aUPPER\" ack 0"]);
    conn.end();
}

#[test]
fn held_bytes_again_ask_the_receiver() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"ab u"));
    conn.send(ack(1, 0, 3));
    // The sender gets to know that it is heard, and that the byte is not acknowledged.
    assert_eq!(conn.send(seg(0, 3, b"u")), ["> 2 \"\" ack 0"]);
    assert_eq!(conn.send(seg(0, 3, b"up")), ["> 3 \"UPPER\" ack 0"]);
    conn.end();
}

#[test]
fn what_no_receiver_takes_is_dropped() {
    let timed = |segment: Seg| segment.times(100, 0);
    let mut conn = EditedConn::established_with(LIMITS, &WORDS, &timed);
    conn.send(seg(0, 0, b"abx").times(100, 0));
    // The receiver offered 64 KiB - 1.
    conn.drops(seg(0, 65_530, b"xxxxxx").times(101, 0), StreamDrop::OutOfWindow);
    conn.drops(seg(0, 3, b"x").ack(1).times(101, 0).corrupt(), StreamDrop::BadChecksum);
    conn.drops(seg(0, 3, b"x").times(99, 0), StreamDrop::OutOfWindow);
    conn.drops(seg(0, 3, b"x").times(101, 0).flags(0), StreamDrop::OutOfWindow);
    conn.drops(ack(1, 0, 4).times(101, 0), StreamDrop::OutOfWindow);
    conn.drops(ack(1, 0, -65_537).times(101, 0), StreamDrop::OutOfWindow);
    assert_eq!(conn.send(seg(0, 3, b"d").times(101, 0)), ["> 3 \"d\" ack 0"]);
    conn.end();
}

#[test]
fn what_is_dropped_changes_nothing_of_made_packets() {
    let timed = |segment: Seg| segment.times(100, 0);
    let mut conn = EditedConn::established_with(LIMITS, &WORDS, &timed);
    conn.send(seg(0, 0, b"ab u").times(110, 5).window(500));
    // Old duplicates, foreign SYNs and resets come from anybody.
    conn.send(seg(0, 0, b"ab u").times(90, 4).window(9));
    conn.isn[0] = conn.isn[0].wrapping_add(77_777);
    conn.send(syn(b"").times(9000, 0).mss(64));
    conn.send(ack(0, 1, 0).flags(mmb_stream::flag::RST).times(9000, 0).window(3));
    conn.isn[0] = conn.isn[0].wrapping_sub(77_777);
    assert_eq!(conn.release(100), ["+> 3 \"u\" ack 0"]);
    assert_eq!((conn.last.timestamps, conn.last.window), (Some([110, 5]), 500));
    conn.end();
}

#[test]
fn the_mark_of_an_absorbed_packet_is_carried_on() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"ab u").marked());
    assert_eq!(conn.release(100), ["+> 3 \"u\" ack 0"], "it went on itself, with its mark");
    assert_eq!(conn.send(seg(0, 4, b"u").marked()), NOTHING);
    assert_eq!(conn.release(200), ["+> 4 \"u\" ack 0 ce"]);
    conn.send(seg(0, 1000, &[b'e'; 1000]).marked());
    let went = conn.send(seg(0, 5, &[b'f'; 995]));
    assert!(went.len() == 2 && went[1].ends_with("ack 0 ce"), "{}", went[1]);
    // Once.
    conn.send(seg(0, 2000, b"u"));
    assert_eq!(conn.release(300), ["+> 2000 \"u\" ack 0"]);
    conn.end();
}

#[test]
fn an_editor_that_stops_drops_the_packet() {
    let mut conn = conn();
    conn.editor.stop = Some(b"bad".to_vec());
    conn.send(seg(0, 0, b"up"));
    conn.drops(seg(0, 2, b"a bad one"), StreamDrop::Stopped);
    // The connection is to be reset: the receiver expects 5 (UPPER), the sender was told nothing.
    assert_eq!(conn.reset(1), Some((5, Some(0))));
    conn.end();
}
