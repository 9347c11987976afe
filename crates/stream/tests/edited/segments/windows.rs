//! Windows: waiting output, advertised windows, probes.

use super::*;
use mmb_stream::{Level, StreamDrop, StreamLimits, flag};

/// A connection whose receiver offers so many bytes.
fn narrow(window: u16) -> EditedConn {
    EditedConn::established_with(LIMITS, &WORDS, &|segment| match segment.direction {
        0 => segment,
        _ => segment.window(window),
    })
}

#[test]
fn output_that_finds_no_room_waits() {
    let mut conn = narrow(6);
    // Ten bytes of output for six of window.
    assert_eq!(conn.send(seg(0, 0, b"upup")), ["> 0 \"UPPERU\" ack 0"]);
    assert_eq!((conn.info().edits[0].unsent, conn.info().buffered[0]), (4, 10));
    // The initiator's four bytes end at the receiver's byte 10, which is four beyond its window. So no window
    // is left of the six bytes that were advertised. An advertised window is not taken back.
    assert_eq!(conn.send(ack(1, 0, 5).window(1)), ["< 0 \"\" ack 2"]);
    assert_eq!(conn.last.window, 4);
    assert_eq!(conn.send(ack(1, 0, 6).window(2)), ["+> 6 \"PP\" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 8).window(10)), ["< 0 \"\" ack 2", "+> 8 \"ER\" ack 0"]);
    // Eight of the ten are free behind the two.
    assert_eq!(conn.last.window, u16::MAX, "the initiator's own field");
    assert_eq!(conn.window(ack(1, 0, 10).window(8)), 8);
    assert_eq!(conn.info().buffered[0], 0);
    conn.end();
}

#[test]
fn the_sender_is_told_the_room_behind_what_is_decided() {
    let mut conn = EditedConn::established_with(LIMITS, &WORDS, &|segment| segment.window(100));
    // Five of output for two of input.
    conn.send(seg(0, 0, b"up"));
    // The receiver has room up to 105. Behind the edit that is input byte 102.
    assert_eq!(conn.window(ack(1, 0, 5).window(100)), 100);
    // It removes three: room up to 125 of output, and all but the edit is input: 15 + 3 less, 102 + 20.
    conn.send(seg(0, 2, b"cut"));
    assert_eq!(conn.window(ack(1, 0, 5).window(120)), 120);
    conn.end();
}

#[test]
fn the_edge_never_moves_left_without_scale() {
    let mut conn = EditedConn::established_with(LIMITS, &WORDS, &|segment| segment.window(200));
    let (mut edge, mut at, mut out) = (200, 0, 0);
    // The receiver reads nothing: its window closes. Each segment grows.
    while out + 10 <= 200 {
        conn.send(seg(0, at, b"upup"));
        (at, out) = (at + 4, out + 10);
        let window = i64::from(conn.window(ack(1, 0, out).window((200 - out) as u16)));
        assert!(at + window >= edge, "{} behind {edge}", at + window);
        edge = at + window;
    }
    // It was told 200 in the beginning.
    assert_eq!((edge, out), (200, 200));
    // What it sends now waits.
    assert_eq!(conn.send(seg(0, at, b"up"))[..], [format!("> {} \"\" ack 0", out - 1)]);
    conn.end();
}

#[test]
fn a_scaled_window_closes_when_the_receivers_does() {
    let scaled = |segment: Seg| match segment.header.has(flag::SYN) {
        true => segment.scale(7),
        false => segment,
    };
    let limits = StreamLimits { window: 1 << 20, ..LIMITS };
    let mut conn = EditedConn::established_with(limits, &[("up", "UP")], &scaled);
    // 65,535 bytes were offered with the SYN-ACK, and are the edge for good: the receiver reads nothing.
    let mut at = 0;
    while at < 65_535 {
        let count = 1000.min(65_535 - at);
        conn.send(seg(0, at, &vec![b'a'; count as usize]));
        at += count;
        let own = ((65_535 - at) >> 7) as u16;
        let told = conn.window(ack(1, 0, at).window(own));
        // Never more than there is room for, and less only because the field is rounded (RFC 7323 section
        // 2.4).
        assert!(told == own, "{told} at {at}, the receiver tells {own}");
    }
    assert_eq!(conn.window(ack(1, 0, at).window(0)), 0);
    conn.end();
}

/// A receiver from which all is removed has room all the time: its sender is never told otherwise.
#[test]
fn removed_bytes_leave_their_room() {
    let mut conn = narrow(300);
    for segment in 0..20 {
        let at = 90 * segment;
        assert_eq!(
            conn.send(seg(0, at, "cut".repeat(30).as_bytes())),
            [format!("+< 0 \"\" ack {}", at + 90)]
        );
        assert_eq!(conn.last.window, 300, "{segment}");
    }
    conn.end();
}

#[test]
fn a_window_is_clamped_to_what_is_kept() {
    let limits = StreamLimits { window: 1000, ..LIMITS };
    let mut conn = EditedConn::established_with(limits, &WORDS, &|segment| segment);
    assert_eq!(conn.window(ack(1, 0, 0)), 1000);
    conn.send(seg(0, 0, &[b'a'; 600]));
    assert_eq!(conn.window(ack(1, 0, 0)), 400 + 600);
    assert_eq!(conn.window(ack(1, 0, 600)), 1000);
    conn.drops(seg(0, 1600, b"xx"), StreamDrop::OutOfWindow);
    conn.end();
}

#[test]
fn a_probe_reaches_the_receiver_of_a_closed_window() {
    let mut conn = narrow(4);
    conn.send(seg(0, 0, b"abxy"));
    assert_eq!(conn.send(ack(1, 0, 4).window(0)), ["< 0 \"\" ack 4"]);
    assert_eq!(conn.last.window, 0);
    // A byte beyond the window (RFC 9293 section 3.8.6.1): it is taken and finds no room, and the receiver is
    // probed.
    assert_eq!(conn.send(seg(0, 4, b"z")), ["> 3 \"\" ack 0"]);
    assert_eq!(conn.send(seg(0, 4, b"z")), ["> 3 \"\" ack 0"]);
    // Linux' form: the number before the first that is not acknowledged, and no byte.
    assert_eq!(conn.send(ack(0, 3, 0)), ["> 3 \"\" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 4).window(0)), ["< 0 \"\" ack 4"]);
    // The window opens: what waits goes.
    assert_eq!(conn.send(ack(1, 0, 4).window(9)), ["< 0 \"\" ack 4", "+> 4 \"z\" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 5).window(8)), ["< 0 \"\" ack 5"]);
    conn.end();
}

#[test]
fn a_sender_whose_bytes_wait_drives_the_receiver_by_sending_again() {
    let mut conn = narrow(5);
    // The receiver acknowledges the first of two words. The other one waits.
    assert_eq!(conn.send(seg(0, 0, b"upup")), ["> 0 \"UPPER\" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 5).window(0)), ["< 0 \"\" ack 2"]);
    for _ in 0..3 {
        assert_eq!(conn.send(seg(0, 2, b"up")), ["> 4 \"\" ack 0"]);
        // The receiver answers that its window is closed.
        assert_eq!(conn.send(ack(1, 0, 5).window(0)), ["< 0 \"\" ack 2"]);
    }
    // Its update was lost; the sender comes again, and the receiver answers.
    assert_eq!(conn.send(seg(0, 2, b"up")), ["> 4 \"\" ack 0"]);
    let went = conn.send(ack(1, 0, 5).window(50));
    assert_eq!(went, ["< 0 \"\" ack 2", "+> 5 \"UPPER\" ack 0"]);
    conn.end();
}

#[test]
fn a_fin_behind_output_that_waits_drives_the_receiver() {
    let mut conn = narrow(5);
    conn.send(seg(0, 0, b"upup"));
    conn.send(ack(1, 0, 5).window(0));
    assert_eq!(conn.send(seg(0, 4, b"").fin()), ["> 4 \"\" ack 0"]);
    assert_eq!(conn.send(ack(1, 0, 5).window(5)), ["< 0 \"\" ack 2", "+> 5 \"UPPER\" ack 0 fin"]);
    conn.end();
}

/// A connection that holds the beginning of a word back, and whose receiver has no room any more.
fn shut() -> EditedConn {
    let mut conn = narrow(5);
    assert_eq!(conn.send(seg(0, 0, b"upu")), ["> 0 \"UPPER\" ack 0"]);
    conn.now_ms = 50;
    assert_eq!(conn.window(ack(1, 0, 5).window(0)), 2, "what was told is not taken back");
    conn
}

#[test]
fn a_hold_lasts_while_the_receiver_has_no_room() {
    let mut conn = shut();
    assert_eq!(conn.release(1000), NOTHING);
    conn.now_ms = 1060;
    assert_eq!(conn.send(ack(1, 0, 5).window(1000)), ["< 0 \"\" ack 3"]);
    // There is as much time as ever when the sender may.
    assert_eq!(conn.release(1159), NOTHING);
    assert_eq!(conn.send(seg(0, 3, b"p")), ["> 5 \"UPPER\" ack 0"]);
    conn.end();
}

#[test]
fn a_hold_ends_in_time_when_the_receiver_has_room_again() {
    let mut conn = shut();
    assert_eq!(conn.release(1000), NOTHING);
    conn.now_ms = 1060;
    conn.send(ack(1, 0, 5).window(1000));
    conn.release(1100);
    assert_eq!(conn.release(1160), ["+> 5 \"u\" ack 0"]);
    conn.end();
}

#[test]
fn a_hold_lasts_longer_while_the_receiver_has_little_room() {
    let mut conn = shut();
    conn.now_ms = 1060;
    conn.send(ack(1, 0, 5).window(50));
    for now_ms in (1100..=3000).step_by(100) {
        assert_eq!(conn.release(now_ms), NOTHING, "{now_ms}");
    }
    conn.release(3050);
    assert_eq!(conn.release(3160), ["+> 5 \"u\" ack 0"]);
    conn.end();
}

#[test]
fn growth_beyond_the_largest_segment_makes_more_of_them() {
    let word = "w".repeat(900);
    let limits = StreamLimits { window: 1 << 20, ..LIMITS };
    let mut conn = EditedConn::established_with(limits, &[("up", &word)], &|segment| segment);
    let lengths = |went: &[String]| {
        went.iter().map(|packet| packet.split('"').nth(1).map_or(0, str::len)).collect::<Vec<_>>()
    };
    // 700 bytes become 698 + 900. The sender has put 700 into a segment.
    let payload = [&[b'a'; 698][..], b"up"].concat();
    assert_eq!(lengths(&conn.send(seg(0, 0, &payload))), [700, 700, 198]);
    // Now 1,000: the receiver takes no more.
    let payload = [&[b'a'; 998][..], b"up"].concat();
    assert_eq!(lengths(&conn.send(seg(0, 700, &payload))), [1000, 898]);
    // Sent again, it is cut in the same manner.
    assert_eq!(lengths(&conn.send(seg(0, 700, &payload))), [1000, 898]);
    // Merged segments of 3,000 bytes may pass as they are, and are cut for the receiver when they change.
    let payload = [b'a'; 3000];
    assert_eq!(lengths(&conn.send(seg(0, 1700, &payload))), [3000]);
    let payload = [&[b'a'; 2998][..], b"up"].concat();
    assert_eq!(lengths(&conn.send(seg(0, 4700, &payload))), [1000, 1000, 1000, 898]);
    conn.end();
}

#[test]
fn options_beside_the_usual_ones_leave_less_room() {
    // Of 1,000 bytes that the receiver takes timestamps leave 988, and two SACK blocks 968.
    let limits = StreamLimits { window: 1 << 20, ..LIMITS };
    let lengths = |went: &[String]| {
        went.iter().map(|packet| packet.split('"').nth(1).map_or(0, str::len)).collect::<Vec<_>>()
    };
    let with_sack = |mut segment: Seg| {
        (segment.header.options, segment.header.has_sack) = (32, true);
        segment
    };
    let mut conn = EditedConn::established_with(limits, &[("up", "UPPER")], &|segment| segment.times(100, 0));
    assert_eq!(lengths(&conn.send(seg(0, 0, &[b'a'; 988]).times(100, 0))), [988]);
    assert_eq!(lengths(&conn.send(seg(0, 988, &[b'b'; 988]).times(100, 0))), [988]);
    // What is sent again brings all that it may carry.
    assert_eq!(lengths(&conn.send(with_sack(seg(0, 0, &[b'a'; 968]).times(100, 0)))), [968]);
    let again = conn.send(with_sack(seg(0, 960, &[b'b'; 968]).times(100, 0)));
    assert_eq!(lengths(&again)[0], 968);
    let payload = [&[b'c'; 966][..], b"up"].concat();
    assert_eq!(lengths(&conn.send(with_sack(seg(0, 1976, &payload).times(100, 0)))), [968, 3]);
    conn.end();
}

#[test]
fn the_first_segment_with_bytes_is_not_cut_for_its_edit() {
    let mut conn = conn();
    let payload = [&[b'a'; 900][..], b"one"].concat();
    let went = conn.send(seg(0, 0, &payload));
    assert_eq!(went.len(), 1);
    conn.end();
}

#[test]
fn small_segments_grow_to_what_any_path_carries() {
    let word = "w".repeat(700);
    let mut conn = EditedConn::established(&[("up", &word)]);
    let went = conn.send(seg(0, 0, b"up"));
    let lengths: Vec<_> = went.iter().map(|packet| packet.matches('w').count()).collect();
    assert_eq!(lengths, [500, 200]);
    conn.end();
}

#[test]
fn timestamps_take_their_part_of_the_receivers_segments() {
    let word = "w".repeat(2500);
    let timed = |segment: Seg| segment.times(1, 1);
    let mut conn = EditedConn::established_with(LIMITS, &[("up", &word)], &timed);
    conn.send(seg(0, 0, &[b'a'; 1000]).times(1, 1));
    let went = conn.send(seg(0, 1000, b"up").times(1, 1));
    let lengths: Vec<_> = went.iter().map(|packet| packet.matches('w').count()).collect();
    assert_eq!(lengths, [988, 988, 524]);
    conn.end();
}

#[test]
fn a_tiny_segment_size_makes_no_flood() {
    let word = "w".repeat(1000);
    let tiny = |segment: Seg| segment.mss(1);
    let mut conn = EditedConn::established_with(LIMITS, &[("up", &word)], &tiny);
    // 64 bytes in each packet.
    assert_eq!(conn.send(seg(0, 0, b"up")).len(), 1000_usize.div_ceil(64));
    conn.end();
}

#[test]
fn a_path_with_a_smaller_mtu_bounds_what_is_cut() {
    let word = "w".repeat(2000);
    let mut conn = EditedConn::established(&[("up", &word)]);
    conn.send(seg(0, 0, &[b'a'; 1000]));
    conn.table.limit_payload(conn.id, 0, 600);
    conn.table.limit_payload(conn.id, 0, 800);
    let went = conn.send(seg(0, 1000, b"up"));
    let lengths: Vec<_> = went.iter().map(|packet| packet.matches('w').count()).collect();
    assert_eq!(lengths, [600, 600, 600, 200]);
    conn.end();
}

#[test]
fn a_packet_that_comes_makes_a_bounded_number() {
    let word = "w".repeat(200_000);
    let limits = StreamLimits { window: 1 << 20, ..LIMITS };
    let scaled = |segment: Seg| match segment.header.has(flag::SYN) {
        true => segment.scale(7),
        false => segment,
    };
    let mut conn = EditedConn::established_with(limits, &[("up", &word)], &scaled);
    conn.send(ack(1, 0, 0));
    conn.send(seg(0, 0, &[b'a'; 1000]));
    let (mut at, mut packets) = (1000, 0);
    let mut went = conn.send(seg(0, 1000, b"up"));
    while at < 201_000 {
        // 64 KiB, and the last packet may exceed them; and the packet at hand.
        assert!(went.len() <= 1 + 65_536_usize.div_ceil(1000), "{}", went.len());
        let bytes: usize = went.iter().map(|packet| packet.matches('w').count()).sum();
        assert!(bytes > 0, "each acknowledgment lets more go");
        (at, packets) = (at + bytes, packets + went.len());
        went = conn.send(ack(1, 0, at as i64));
    }
    assert_eq!((at, went.len()), (201_000, 1));
    // All of it again, for one byte of an attacker.
    conn.send(seg(0, 1002, b"up"));
    let went = conn.send(seg(0, 1003, b"p"));
    assert!(went.len() <= 1 + 65_536_usize.div_ceil(1000), "{}", went.len());
    conn.end();
}

#[test]
fn many_streams_make_packets_in_turns() {
    let word = "w".repeat(60_000);
    let mut first = EditedConn::established(&[("up", &word)]);
    let mut other = EditedConn::new([Level::Edit, Level::None], LIMITS, Words::new(&[("up", "UPPER")]));
    // Both in one table.
    other.table = std::mem::take(&mut first.table);
    other.id = other.table.open([Level::Edit, Level::None], false, Some(&syn(b"").header), 0).unwrap();
    for segment in [syn(b""), syn_ack(), ack(0, 0, 0)] {
        other.send(segment);
    }
    first.table = std::mem::take(&mut other.table);
    assert!(first.take(seg(0, 0, b"up")).is_some());
    other.table = std::mem::take(&mut first.table);
    other.take(seg(0, 0, b"u"));
    let (id, direction) = other.table.next_due(100).expect("held bytes");
    assert_eq!(id, other.id);
    other.table.release(id, direction, 100, &mut other.editor).expect("memory");
    let mut streams = Vec::new();
    while let Some(generated) = other.table.generate() {
        streams.push(generated.stream);
    }
    let place = streams.iter().position(|stream| *stream == other.id).expect("its packet");
    assert!(place <= 16 && streams.len() > 100, "{place} of {}", streams.len());
    first.table = std::mem::take(&mut other.table);
    first.table.end(other.id);
    first.end();
}
