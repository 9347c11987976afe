//! Handshakes: data in a SYN, options, urgent data.

use super::*;
use mmb_stream::{Level, StreamDrop, StreamLimits, StreamVerdict, Urgent, flag};

/// A connection of which nothing was taken.
fn fresh() -> EditedConn {
    EditedConn::new([Level::Edit, Level::None], LIMITS, Words::new(&WORDS))
}

#[test]
fn data_of_a_syn_are_edited_and_accepted() {
    let mut conn = fresh();
    assert_eq!(conn.send(syn(b"up")), ["> -1 \"UPPER\" syn"]);
    // The responder has the SYN and five bytes, the initiator sent two.
    assert_eq!(conn.send(syn_ack().ack(5)), ["< -1 \"\" ack 2 syn"]);
    assert_eq!(conn.send(seg(0, 2, b"x")), ["> 5 \"x\" ack 0"]);
    conn.end();
}

#[test]
fn data_of_a_syn_that_are_refused_come_again() {
    let mut conn = fresh();
    conn.send(syn(b"up"));
    assert_eq!(conn.send(syn_ack().ack(0)), ["< -1 \"\" ack 0 syn"]);
    assert_eq!(conn.send(ack(0, 0, 0)), ["> 5 \"\" ack 0"]);
    assert_eq!(conn.send(seg(0, 0, b"up")), ["> 0 \"UPPER\" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 5)), ["< 0 \"\" ack 2"]);
    conn.end();
}

#[test]
fn data_of_a_syn_of_which_the_responder_takes_a_part() {
    let mut conn = fresh();
    conn.send(syn(b"-up"));
    // Inside the edit: the initiator keeps all of it.
    assert_eq!(conn.send(syn_ack().ack(3)), ["< -1 \"\" ack 1 syn"]);
    assert_eq!(conn.send(seg(0, 1, b"up")), ["> 3 \"PER\" ack 0"]);
    conn.end();
}

#[test]
fn data_of_a_syn_that_are_all_removed_are_acknowledged_with_it() {
    let mut conn = fresh();
    assert_eq!(conn.send(syn(b"cut")), ["> -1 \"\" syn"]);
    assert_eq!(conn.send(syn_ack().ack(0)), ["< -1 \"\" ack 3 syn"]);
    assert_eq!(conn.send(seg(0, 3, b"x")), ["> 0 \"x\" ack 0"]);
    conn.end();
}

#[test]
fn a_syn_again_carries_the_first_bytes_or_none() {
    let word = "w".repeat(1200);
    let mut conn = EditedConn::new([Level::Edit, Level::None], LIMITS, Words::new(&[("up", &word)]));
    let first = format!("> -1 {:?} syn", &word[..500]);
    // More than the packet carries: the rest waits for the responder.
    assert_eq!(conn.send(syn(b"up")), [first.as_str()]);
    // Linux sends the SYN again without the data.
    assert_eq!(conn.send(syn(b"")), ["> -1 \"\" syn"]);
    assert_eq!(conn.send(syn(b"up")), [first.as_str()]);
    assert_eq!(conn.send(syn_ack().ack(500)), ["< -1 \"\" ack 0 syn"]);
    // The SYN-ACK was lost.
    assert_eq!(conn.send(syn(b"up")), ["> -1 \"\" syn"]);
    assert_eq!(conn.send(syn_ack().ack(500)), ["< -1 \"\" ack 0 syn"]);
    let went = conn.send(ack(0, 0, 0));
    // The acknowledgment of the handshake lets the rest go.
    assert_eq!(went.iter().map(|packet| packet.matches('w').count()).sum::<usize>(), 700);
    assert!(went[0].starts_with("> 500 \"w"), "{went:?}");
    conn.end();
}

#[test]
fn nothing_is_made_of_an_end_that_has_not_answered() {
    let mut conn = EditedConn::new([Level::Edit; 2], LIMITS, Words::new(&WORDS));
    conn.send(syn(b""));
    conn.send(syn_ack());
    // The responder sends at once. Its word is removed. No generated packet may complete the handshake for
    // the initiator.
    assert_eq!(conn.send(seg(1, 0, b"cut")), NOTHING);
    assert_eq!(conn.send(ack(0, 0, 0)), ["> 0 \"\" ack 3"]);
    conn.end();
}

#[test]
fn a_syn_with_a_fin_beyond_the_window_makes_no_packets_without_end() {
    let mut conn = fresh();
    assert_eq!(conn.send(syn(&[b'a'; 3000]).flags(flag::SYN | flag::FIN)).len(), 1);
    conn.send(syn_ack().ack(0).window(100));
    conn.send(ack(0, 3001, 0));
    conn.drops(seg(0, 0, &[b'a'; 3000]).fin(), StreamDrop::OutOfWindow);
    // All was let go, and is sent again no farther than the receiver allows.
    assert_eq!(conn.send(seg(0, 0, &[b'a'; 100])), [format!("> 0 {:?} ack 0", "a".repeat(100))]);
    assert_eq!(conn.send(ack(1, 0, 100).window(3000)), ["< 0 \"\" ack 100"]);
    assert_eq!(conn.send(seg(0, 3000, b"").fin()), ["> 3000 \"\" ack 0 fin"]);
    conn.end();
}

#[test]
fn a_syn_with_another_number_begins_anew_before_the_answer() {
    let mut conn = fresh();
    conn.send(syn(b"").mss(700));
    conn.isn[0] = 77;
    assert_eq!(conn.send(syn(b"").mss(900)), ["> -1 \"\" syn"]);
    assert_eq!(conn.send(syn_ack()), ["< -1 \"\" ack 0 syn"]);
    assert_eq!(conn.send(seg(0, 0, b"up")), ["> 0 \"UPPER\" ack 0"]);
    conn.end();
}

#[test]
fn a_syn_that_begins_anew_behind_one_with_a_fin_is_open() {
    let mut conn = fresh();
    assert_eq!(conn.send(syn(b"").flags(flag::SYN | flag::FIN)), ["> -1 \"\" syn fin"]);
    conn.isn[0] = 77;
    assert_eq!(conn.send(syn(b"")), ["> -1 \"\" syn"]);
    conn.send(syn_ack());
    assert_eq!(conn.send(seg(0, 0, b"up")), ["> 0 \"UPPER\" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 5)), ["< 0 \"\" ack 2"]);
    conn.end();
}

#[test]
fn a_syn_again_with_bytes_behind_its_fin_is_not_taken() {
    let mut conn = fresh();
    conn.send(syn(b"").flags(flag::SYN | flag::FIN));
    conn.drops(syn(b"up"), StreamDrop::OutOfWindow);
    conn.drops(syn(b"up").flags(flag::SYN | flag::FIN), StreamDrop::OutOfWindow);
    assert_eq!(conn.send(syn(b"").flags(flag::SYN | flag::FIN)), ["> -1 \"\" syn fin"]);
    conn.end();
}

#[test]
fn a_foreign_syn_goes_on_for_its_answer() {
    let mut conn = conn();
    conn.send(seg(0, 0, b"up"));
    let before = conn.isn[0];
    conn.isn[0] = before.wrapping_add(5000);
    assert_eq!(conn.send(syn(b"")), ["> -1 \"\" syn"]);
    conn.drops(syn(b"data"), StreamDrop::OutOfWindow);
    conn.isn[0] = before;
    assert_eq!(conn.send(seg(0, 2, b"up")), ["> 5 \"UPPER\" ack 0"]);
    conn.end();
}

#[test]
fn multipath_is_blanked() {
    let mut conn = fresh();
    let mut first = syn(b"");
    first.header.is_multipath = true;
    conn.send(first);
    assert!(conn.outcome.blank_multipath);
    conn.end();
}

#[test]
fn urgent_data_follow_the_setting() {
    let urgent = |at| seg(0, at, b"up").flags(flag::ACK | flag::URG);
    for (setting, expected) in [
        (Urgent::Clear, Some("> 0 \"UPPER\" ack 0")),
        (Urgent::Pass, Some("> 0 \"UPPER\" ack 0 urg")),
        (Urgent::Drop, None),
    ] {
        let limits = StreamLimits { urgent: setting, ..LIMITS };
        let mut conn = EditedConn::established_with(limits, &WORDS, &|segment| segment);
        assert_eq!(conn.take(urgent(0)).as_deref(), expected);
        if setting == Urgent::Drop {
            assert_eq!(conn.outcome.verdict, StreamVerdict::Drop(StreamDrop::Urgent));
        }
        conn.end();
    }
}

#[test]
fn signed_connections_and_those_picked_up_midway_are_unfit() {
    let mut table = mmb_stream::StreamTable::default();
    assert!(table.configure(LIMITS));
    let mut signed = syn(b"").header;
    signed.is_signed = true;
    let levels = [Level::Edit, Level::None];
    assert_eq!(table.open(levels, false, Some(&signed), 0), Err(mmb_stream::Unfit::Signed));
    assert_eq!(table.open(levels, false, Some(&seg(0, 0, b"x").header), 0), Err(mmb_stream::Unfit::Midway));
    assert_eq!(table.edit_records(), 0);
}

#[test]
fn the_window_of_a_made_packet_is_scaled_as_those_behind_the_handshake() {
    let scaled = |segment: Seg| match segment.header.has(flag::SYN) {
        true => segment.scale(4).window(1600),
        false => segment.window(90),
    };
    let mut conn = EditedConn::new([Level::Edit; 2], LIMITS, Words::new(&WORDS));
    for segment in [syn(b""), syn_ack(), ack(0, 0, 0)] {
        conn.send(scaled(segment));
    }
    assert_eq!(conn.send(seg(1, 0, b"cut").window(1600 / 16)), ["+> 0 \"\" ack 3"]);
    // The initiator offered 1,600 bytes with its SYN, in which windows are not scaled. Removed bytes use up
    // none of them.
    assert_eq!(conn.last.window, 1600 / 16);
    conn.end();
}
