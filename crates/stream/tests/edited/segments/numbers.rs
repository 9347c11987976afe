//! Acknowledgments, SACK, and numbers that wrap around.

use super::*;
use mmb_stream::{Level, StreamLimits, flag};

#[test]
fn removed_segments_are_acknowledged_when_all_before_them_is() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"ab"));
    assert_eq!(conn.send(seg(0, 2, b"cut")), NOTHING);
    assert_eq!(conn.send(ack(1, 0, 2).window(900)), ["< 0 \"\" ack 5"]);
    // Now at once: no acknowledgment of the receiver will come for them.
    assert_eq!(conn.send(seg(0, 5, b"cutcut")), ["+< 0 \"\" ack 11"]);
    // Its last acknowledgment again acknowledges them too.
    assert_eq!(conn.send(ack(1, 0, 2).window(900)), ["< 0 \"\" ack 11"]);
    assert_eq!(conn.info().edits[0].removed, 9);
    conn.end();
}

#[test]
fn a_made_acknowledgment_has_the_receivers_numbers_and_the_senders_time() {
    let timed = |segment: Seg| match segment.direction {
        0 => segment.times(100, 7000),
        _ => segment.times(7000, 100),
    };
    let mut conn = EditedConn::established_with(LIMITS, &WORDS, &timed);
    conn.send(seg(1, 0, b"hello").times(7020, 100).window(500));
    assert_eq!(conn.send(seg(0, 0, b"cut").ack(5).times(150, 7020))[1], "+< 5 \"\" ack 3");
    assert_eq!(conn.last.timestamps, Some([7020, 150]));
    assert_eq!(conn.last.flags, flag::ACK);
    conn.end();
}

#[test]
fn an_acknowledgment_is_made_once() {
    let mut conn = conn();
    assert_eq!(conn.send(seg(0, 0, b"cut")), ["+< 0 \"\" ack 3"]);
    assert_eq!(conn.generated(), NOTHING);
    // The same bytes again: the receiver is asked, and answers itself.
    assert_eq!(conn.send(seg(0, 0, b"cut")), ["> -1 \"\" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 0)), ["< 0 \"\" ack 3"]);
    conn.end();
}

#[test]
fn an_acknowledgment_inside_an_edit_is_rounded_down_and_no_duplicate() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"-up-"));
    assert_eq!(conn.send(ack(1, 0, 1).window(1000)), ["< 0 \"\" ack 1"]);
    // Bytes 1 to 6 are the word. An acknowledgment of a part of it is no news to the sender, and must not
    // look like a loss.
    for acked in 2..6 {
        assert_eq!(conn.send(ack(1, 0, acked).window(1000)), NOTHING, "{acked}");
    }
    // The same number again is a true duplicate: something was lost behind it.
    for _ in 0..3 {
        assert_eq!(conn.send(ack(1, 0, 5).window(1000)), ["< 0 \"\" ack 1"]);
    }
    assert_eq!(conn.send(ack(1, 0, 6)), ["< 0 \"\" ack 3"]);
    assert_eq!(conn.send(ack(1, 0, 7)), ["< 0 \"\" ack 4"]);
    conn.end();
}

#[test]
fn a_partial_acknowledgment_with_bytes_goes_on() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"-up-"));
    assert_eq!(conn.send(seg(1, 0, b"data").ack(3)), ["< 0 \"data\" ack 1"]);
    conn.end();
}

#[test]
fn an_old_acknowledgment_stays_old() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"abxy"));
    conn.send(seg(0, 4, b"up"));
    assert_eq!(conn.send(ack(1, 0, 9)), ["< 0 \"\" ack 6"]);
    // It was overtaken. As one of 6 it would be a duplicate.
    assert_eq!(conn.send(ack(1, 0, 4)), ["< 0 \"\" ack 5"]);
    conn.end();
}

#[test]
fn acknowledgments_of_all_that_is_in_flight_are_exact_or_rounded_down() {
    let (pieces, output) = (pieces(), Words::new(&WORDS).edited(TEXT));
    for acked in 0..=output.len() {
        let mut conn = conn();
        conn.send(seg(0, 0, TEXT));
        // The pieces all of whose output is acknowledged.
        let (mut input, mut out) = (0, 0);
        for (len, out_len) in &pieces {
            if out + out_len > acked {
                break;
            }
            (input, out) = (input + len, out + out_len);
        }
        let went = conn.send(ack(1, 0, acked as i64));
        match went.as_slice() {
            [] => assert_eq!(input, 0, "{acked}"),
            _ => assert_eq!(went, [format!("< 0 \"\" ack {input}")], "{acked}"),
        }
        conn.end();
    }
}

#[test]
fn selective_acknowledgments_are_rounded_inwards() {
    let mut conn = conn();
    // Input: 0-2 "ab", 2-4 up, 4-6 "xy", 6-9 cut, 9-11 "pq", 11-13 up.
    conn.send(seg(0, 0, b"abupxycutpqup"));
    // Output: 0-2, 2-7 UPPER, 7-9, (9), 9-11, 11-16 UPPER.
    for (block, expected) in [
        ([7, 9], Some([4, 9])),
        // The left edge in a word: the word is not acknowledged.
        ([3, 9], Some([4, 9])),
        ([2, 7], Some([2, 4])),
        ([2, 8], Some([2, 5])),
        ([1, 6], Some([1, 2])),
        // Nothing whole is left.
        ([3, 6], None),
        ([12, 16], None),
        ([11, 16], Some([11, 13])),
        ([8, 10], Some([5, 10])),
        ([5, 5], None),
        ([9, 7], None),
        // Beyond what was let go.
        ([9, 99], Some([6, 13])),
    ] {
        assert_eq!(conn.sack(block), expected, "{block:?}");
    }
    conn.end();
}

#[test]
fn a_left_edge_behind_removed_bytes_leaves_them_out() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"ab"));
    conn.send(seg(0, 2, b"cut"));
    conn.send(seg(0, 5, b"xy"));
    // The receiver lacks the first two bytes. The removed bytes belong to neither block: they are
    // acknowledged with the bytes before them.
    assert_eq!(conn.sack([2, 4]), Some([2, 7]));
    conn.end();
}

#[test]
fn duplicate_selective_acknowledgments_stay_before_the_acknowledgment() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"upupabxyup"));
    conn.send(ack(1, 0, 14));
    // RFC 2883: a block below the acknowledgment tells what came twice. Input: 8 bytes are acknowledged.
    for from in 0..14 {
        for to in from..=14 {
            if let Some([left, right]) = conn.sack([from, to]) {
                assert!(left < right && right <= 8, "{from}-{to}: {left}-{right}");
            }
        }
    }
    assert_eq!(conn.sack([10, 14]), Some([4, 8]));
    conn.end();
}

#[test]
fn a_selective_acknowledgment_is_news() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"-up-"));
    conn.send(ack(1, 0, 1).window(1000));
    let mut partial = ack(1, 0, 3).window(1000);
    partial.header.has_sack = true;
    assert_eq!(conn.send(partial), ["< 0 \"\" ack 1"]);
    conn.end();
}

#[test]
fn numbers_wrap_around() {
    let mut conn = conn();
    // The initial sequence number is 21 below the wrap, and each round adds more to the output than to the
    // input.
    let (mut at, mut out) = (0, 0);
    for round in 0..40 {
        assert_eq!(conn.send(seg(0, at, b"a up")), [format!("> {out} \"a UPPER\" ack 0")], "{round}");
        assert_eq!(conn.send(seg(0, at, b"a up")), [format!("> {out} \"a UPPER\" ack 0")], "{round}");
        assert_eq!(conn.sack([out, out + 7]), Some([at, at + 4]));
        (at, out) = (at + 4, out + 7);
        assert_eq!(conn.send(ack(1, 0, out)), [format!("< 0 \"\" ack {at}")]);
    }
    conn.end();
}

#[test]
fn streams_of_more_than_4_gib_go_on() {
    let limits = StreamLimits { window: 1 << 20, memory: 4 << 20, ..LIMITS };
    let scaled = |segment: Seg| match segment.header.has(flag::SYN) {
        true => segment.scale(8).mss(60_000),
        false => segment.window(u16::MAX),
    };
    /// Passes what has no capital letter, in one piece; each `B` becomes two bytes.
    struct Plain;
    impl mmb_stream::StreamReader for Plain {
        fn scan(&mut self, _: mmb_stream::InOrder<'_>) -> std::ops::ControlFlow<()> {
            std::ops::ControlFlow::Continue(())
        }

        fn edit(
            &mut self,
            undecided: mmb_stream::Undecided<'_>,
            sink: &mut mmb_stream::EditSink<'_>,
        ) -> std::ops::ControlFlow<()> {
            match undecided.bytes.split_first() {
                Some((b'B', rest)) => {
                    sink.replace(1, b"bb");
                    sink.pass(rest.len());
                }
                _ => sink.pass(undecided.bytes.len()),
            }
            std::ops::ControlFlow::Continue(())
        }
    }
    let mut conn = EditedConn::established_with(limits, &[], &scaled);
    let mut payload = vec![b'a'; 60_000];
    payload[0] = b'B';
    let (mut at, mut out) = (0_u64, 0_u64);
    while at < (1 << 32) + 500_000 {
        let numbers = |seq, ack| mmb_stream::Segment {
            seq,
            ack,
            flags: flag::ACK,
            window: u16::MAX,
            ..mmb_stream::Segment::default()
        };
        let data = numbers(conn.seq(0, at.cast_signed()), conn.seq(1, 0));
        let mut bytes = payload.clone();
        let outcome = conn.table.take(conn.id, 0, &data, &mut bytes, 0, &mut Plain);
        let edited = outcome.edited.expect("numbers");
        assert_eq!(edited.seq, conn.seq(0, out.cast_signed()), "{at}");
        while conn.table.generate().is_some() {}
        let (next, out_next) = (at + 60_000, out + 60_001);
        let acked = numbers(conn.seq(1, 0), conn.seq(0, out_next.cast_signed()));
        let outcome = conn.table.take(conn.id, 1, &acked, &mut [], 0, &mut Plain);
        let told = outcome.edited.expect("numbers").ack;
        assert_eq!(told, conn.seq(0, next.cast_signed()), "{at}");
        (at, out) = (next, out_next);
    }
    assert_eq!(conn.info().stats[0].bytes, at);
    assert_eq!(conn.info().edits[0].added, 2 * (at / 60_000));
    conn.end();
}

#[test]
fn more_edits_than_are_recorded_are_coarse_and_never_early() {
    let mut conn = EditedConn::established(&WORDS);
    // 300 words in as many segments, none acknowledged.
    let text = b"ab up xyzw";
    let output = Words::new(&WORDS).edited(text);
    let (inputs, outputs) = (text.len() as i64, output.len() as i64);
    for number in 0..300 {
        conn.send(seg(0, number * inputs, text));
    }
    // Any of them again, at any place: the right bytes for the right numbers.
    let all = output.repeat(300);
    for number in (0..300).step_by(7) {
        for (from, to) in [(0, inputs), (3, 5), (4, 9)] {
            let went = conn.send(seg(0, number * inputs + from, &vec![b'X'; (to - from) as usize]));
            for packet in &went {
                let mut parts = packet.trim_start_matches('+').split(' ');
                let at: usize = parts.nth(1).and_then(|at| at.parse().ok()).expect("a number");
                let bytes = packet.split('"').nth(1).expect("bytes");
                assert_eq!(&all[at..at + bytes.len()], bytes.as_bytes());
            }
            // They hold what was asked for.
            let first: i64 = went[0].split(' ').nth(1).and_then(|at| at.parse().ok()).expect("a number");
            let bytes: i64 =
                went.iter().map(|packet| packet.split('"').nth(1).map_or(0, str::len) as i64).sum();
            let exact =
                |at: i64| at / inputs * outputs + if at % inputs > 4 { at % inputs + 3 } else { at % inputs };
            assert!(first <= exact(number * inputs + from), "{went:?}");
            assert!(first + bytes >= exact(number * inputs + to), "{went:?}");
        }
    }
    // Acknowledgments are never early. The sender gets an acknowledgment at least for each 16 edits that are
    // acknowledged.
    let mut told_before = 0;
    for acked in 0..=300 * outputs {
        conn.send(ack(1, 0, acked).window(60_000 - acked as u16));
        let told = conn.offset(0, conn.last.ack);
        let exact = acked / outputs * inputs
            + match acked % outputs {
                rest @ 0..3 => rest,
                3..8 => 3,
                rest => rest - 3,
            };
        assert!(told <= exact, "{told} for {acked}");
        assert!(told >= told_before && exact - told <= 16 * inputs, "{told} for {acked}: {exact}");
        told_before = told;
    }
    assert_eq!(told_before, 300 * inputs);
    assert_eq!(conn.info().buffered, [0, 0]);
    conn.end();
}

#[test]
fn a_constant_difference_is_told() {
    let mut conn = EditedConn::new([Level::Edit; 2], LIMITS, Words::new(&WORDS));
    conn.send(syn(b""));
    conn.send(syn_ack());
    conn.send(ack(0, 0, 0));
    assert_eq!(conn.table.constant_shifts(conn.id), Some([0, 0]));
    conn.send(seg(0, 0, b"up"));
    assert_eq!(conn.table.constant_shifts(conn.id), None);
    conn.send(seg(1, 0, b"cutcut").ack(5));
    conn.send(ack(0, 2, 0));
    assert_eq!(conn.table.constant_shifts(conn.id), Some([3, 6_u32.wrapping_neg()]));
    conn.send(seg(0, 2, b"u"));
    assert_eq!(conn.table.constant_shifts(conn.id), None, "a byte is held");
    conn.end();
}

#[test]
fn quoted_numbers_are_those_of_the_sender() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"ab up xy"));
    // An ICMP error quotes the segment at 8, which the sender knows as 5.
    let input = conn.table.seq_to_input(conn.id, 0, conn.seq(0, 8));
    assert_eq!(conn.offset(0, input), 5);
    // Of the direction that is not edited numbers stay.
    assert_eq!(conn.table.seq_to_input(conn.id, 1, 12_345), 12_345);
    conn.end();
}
