//! Payload: its offsets, its copies, and invalid segments.

use super::*;
use mmb_stream::{StreamDrop, Urgent, flag};

#[test]
fn bytes_in_order_pass_and_are_scanned() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::established(levels);
        assert_eq!(conn.passes(seg(0, 0, b"abc")), b"abc");
        assert_eq!(conn.passes(seg(0, 3, b"def")), b"def");
        assert_eq!(conn.passes(seg(1, 0, b"xyz").ack(6)), b"xyz");
        assert_eq!((conn.scanned(0), conn.scanned(1)), (b"abcdef".to_vec(), b"xyz".to_vec()));
        let guarded = usize::from(levels == GUARD);
        assert_eq!(conn.info().buffered, [0, 3 * guarded], "the receiver has the others");
        assert_eq!(conn.info().crc32c[0], crc32c::crc32c(b"abcdef"));
        assert_eq!((conn.stats(0).bytes, conn.stats(0).retransmitted), (6, 0));
        conn.end();
    }
}

#[test]
fn a_direction_without_a_level_is_not_scanned() {
    let mut conn = Conn::established([Level::None, Guard]);
    conn.passes(seg(0, 0, b"abc"));
    conn.passes(seg(0, 0, b"xyz"));
    conn.passes(seg(1, 0, b"answer").ack(3));
    assert_eq!((conn.scanned(0), conn.scanned(1)), (vec![], b"answer".to_vec()));
    conn.end();
}

#[test]
fn a_wrong_checksum_is_not_taken() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::established(levels);
        match levels {
            GUARD => conn.drops(seg(0, 0, b"bad").corrupt(), StreamDrop::BadChecksum),
            _ => assert_eq!(conn.passes(seg(0, 0, b"bad").corrupt()), b"bad"),
        }
        conn.passes(seg(0, 0, b"abc"));
        assert_eq!(conn.scanned(0), b"abc");
        conn.end();
    }
}

#[test]
fn early_bytes_pass_and_are_scanned_behind_the_hole() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::established(levels);
        assert_eq!(conn.passes(seg(0, 3, b"def")), b"def");
        assert_eq!(conn.passes(seg(0, 9, b"jkl")), b"jkl");
        assert!(conn.scanned(0).is_empty());
        assert_eq!((conn.info().out_of_order[0], conn.stats(0).out_of_order), (6, 2));
        conn.passes(seg(0, 0, b"abc"));
        assert_eq!(conn.scanned(0), b"abcdef");
        conn.passes(seg(0, 6, b"ghi"));
        assert_eq!(conn.scanned(0), b"abcdefghijkl");
        assert_eq!(conn.info().out_of_order[0], 0);
        conn.end();
    }
}

#[test]
fn early_bytes_without_room_are_dropped_or_become_a_gap() {
    let max = LIMITS.reorder as i64;
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::established(levels);
        for piece in 0..max / 1024 {
            conn.passes(seg(0, 100 + piece * 1024, &[b'e'; 1024]));
        }
        if levels == GUARD {
            conn.drops(seg(0, 100 + max, b"more"), StreamDrop::NoRoom);
        } else {
            conn.passes(seg(0, 100 + max, b"more"));
        }
        conn.passes(seg(0, 0, &[b'a'; 100]));
        assert_eq!(conn.scanned(0).len() as i64, 100 + max);
        // The receiver has them all the same: under watch only.
        if levels == WATCH {
            conn.passes(ack(1, 0, 104 + max));
            assert_eq!((conn.stats(0).gaps, conn.stats(0).gap_bytes), (1, 4));
        } else {
            conn.drops(ack(1, 0, 104 + max), StreamDrop::OutOfWindow);
        }
        conn.end();
    }
}

#[test]
fn too_many_ranges_have_no_room() {
    let mut conn = Conn::established(GUARD);
    for range in 0..64 {
        conn.passes(seg(0, 10 + 10 * range, b"early"));
    }
    conn.drops(seg(0, 5000, b"early"), StreamDrop::NoRoom);
    conn.passes(seg(0, 0, b"0123456789early01234"));
    conn.end();
}

#[test]
fn old_bytes_again_carry_the_first_copy() {
    let mut conn = Conn::established(GUARD);
    conn.passes(seg(0, 0, b"abcdef"));
    assert_eq!(conn.passes(seg(0, 2, b"XXX")), b"cde");
    assert_eq!(conn.stats(0).overwritten, 3);
    assert_eq!(conn.stats(0).retransmitted, 3);
    conn.passes(ack(1, 0, 3));
    // The receiver never takes what it has acknowledged.
    assert_eq!(&conn.passes(seg(0, 0, b"XXXXXX"))[3..], b"def");
    assert_eq!(conn.scanned(0), b"abcdef");
    conn.end();

    let mut conn = Conn::established(WATCH);
    conn.passes(seg(0, 0, b"abcdef"));
    assert_eq!(conn.passes(seg(0, 2, b"XXX")), b"XXX");
    assert_eq!(conn.scanned(0), b"abcdef");
    conn.end();
}

#[test]
fn of_partly_old_bytes_the_new_ones_are_taken() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::established(levels);
        conn.passes(seg(0, 0, b"abcd"));
        let guarded = levels == GUARD;
        assert_eq!(conn.passes(seg(0, 2, b"XXef")), if guarded { b"cdef" } else { b"XXef" });
        assert_eq!(conn.scanned(0), b"abcdef");
        conn.end();
    }
}

#[test]
fn of_overlapping_early_bytes_the_first_copy_wins() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::established(levels);
        conn.passes(seg(0, 4, b"4567"));
        conn.passes(seg(0, 10, b"ab"));
        let between = conn.passes(seg(0, 2, b"XXXXXXXXXXXX"));
        assert_eq!(between, if levels == GUARD { b"XX4567XXabXX" } else { b"XXXXXXXXXXXX" });
        let all = conn.passes(seg(0, 0, b"01YYYYYYYYYYYYYYYY"));
        assert_eq!(all, if levels == GUARD { b"01XX4567XXabXXYYYY" } else { b"01YYYYYYYYYYYYYYYY" });
        assert_eq!(conn.scanned(0), b"01XX4567XXabXXYYYY");
        conn.end();
    }
}

#[test]
fn bytes_beyond_the_window_are_not_taken() {
    let edge = 65_535;
    let mut conn = Conn::established(GUARD);
    conn.drops(seg(0, edge + 1, b"x"), StreamDrop::OutOfWindow);
    conn.drops(seg(0, edge - 1, b"xy"), StreamDrop::OutOfWindow);
    conn.passes(seg(0, edge - 1, b"x"));
    conn.drops(ack(0, edge + 100, 0), StreamDrop::OutOfWindow);
    conn.end();

    let mut conn = Conn::established(WATCH);
    assert_eq!(conn.passes(seg(0, edge, b"xy")), b"xy");
    assert_eq!(conn.info().out_of_order[0], 0, "the receiver does not take them");
    conn.passes(seg(0, edge - 2, b"xy"));
    assert_eq!(conn.info().out_of_order[0], 2);
    conn.end();
}

#[test]
fn an_acknowledgment_of_what_was_not_sent_is_not_taken() {
    let mut conn = Conn::established(GUARD);
    conn.passes(seg(0, 0, b"abc"));
    conn.passes(seg(0, 6, b"ghi"));
    conn.drops(seg(1, 0, b"bad").ack(4), StreamDrop::OutOfWindow);
    assert_eq!(conn.info().buffered[0], 3);
    conn.passes(ack(1, 0, 3));
    assert!(conn.scanned(1).is_empty());
    conn.end();

    let mut conn = Conn::established(WATCH);
    conn.passes(seg(0, 0, b"abc"));
    conn.passes(seg(1, 0, b"bad").ack(4));
    assert!(conn.scanned(1).is_empty());
    assert_eq!(conn.stats(0).gaps, 0);
    conn.passes(seg(1, 0, b"yes").ack(3));
    assert_eq!(conn.scanned(1), b"yes");
    conn.end();
}

#[test]
fn an_acknowledgment_of_long_ago_is_not_taken() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::established(levels);
        conn.passes(seg(0, 0, b"abc"));
        // RFC 5961 section 5.2.
        let late = i64::from(u16::MAX);
        conn.passes(seg(1, 0, b"ok.").ack(-late));
        match levels {
            GUARD => conn.drops(seg(1, 3, b"bad").ack(-2 * late), StreamDrop::OutOfWindow),
            _ => drop(conn.passes(seg(1, 3, b"bad").ack(-1_100_000_000))),
        }
        conn.passes(seg(1, 3, b"def").ack(3));
        assert_eq!(conn.scanned(1), b"ok.def");
        conn.end();
    }
}

#[test]
fn bytes_before_the_first_one_do_not_pass_a_guard() {
    let mut conn = Conn::established(GUARD);
    conn.drops(seg(0, -2, b"x"), StreamDrop::OutOfWindow);
    conn.drops(seg(0, -2000, b"old bytes"), StreamDrop::OutOfWindow);
    conn.drops(seg(0, -3, b"xxxabc"), StreamDrop::OutOfWindow);
    conn.passes(seg(0, -1, b"x"));
    conn.end();
}

#[test]
fn an_old_timestamp_is_not_taken() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::new(levels, LIMITS, [7, 9]);
        conn.shake([syn(b"").time(u32::MAX - 5), syn_ack()]);
        conn.passes(seg(0, 0, b"abc").time(10));
        match levels {
            GUARD => conn.drops(seg(0, 3, b"old").time(9), StreamDrop::OutOfWindow),
            _ => drop(conn.passes(seg(0, 3, b"old").time(9))),
        }
        conn.passes(seg(0, 3, b"def").time(10));
        assert_eq!(conn.scanned(0), b"abcdef");
        // Timestamps are comparable for 24 days.
        conn.now_ms += 25 * 24 * 60 * 60 * 1000;
        conn.passes(seg(0, 6, b"ghi").time(5));
        assert_eq!(conn.scanned(0), b"abcdefghi");
        conn.end();
    }
}

#[test]
fn only_a_segment_that_the_receiver_may_take_sets_the_timestamp() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::new(levels, LIMITS, [7, 9]);
        conn.shake([syn(b"").time(5), syn_ack()]);
        conn.passes(seg(0, 0, b"abc").time(10));
        conn.passes(ack(1, 0, 3));
        // RFC 7323 section 5.3: before the window, or with an acknowledgment of what was not sent.
        conn.take(seg(0, -2, b"x").time(1000));
        conn.take(seg(0, 3, b"x").ack(50).time(1000));
        conn.take(seg(0, 300_000, b"x").time(1000));
        conn.passes(seg(0, 3, b"def").time(11));
        assert_eq!(conn.scanned(0), b"abcdef");
        conn.end();
    }
}

#[test]
fn early_bytes_do_not_set_the_timestamp() {
    let mut conn = Conn::new(GUARD, LIMITS, [7, 9]);
    conn.shake([syn(b"").time(5), syn_ack()]);
    conn.passes(seg(0, 3, b"def").time(20));
    conn.passes(seg(0, 0, b"abc").time(10));
    assert_eq!(conn.scanned(0), b"abcdef");
    conn.end();
}

#[test]
fn a_segment_without_the_ack_flag_is_not_taken() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::established(levels);
        match levels {
            GUARD => conn.drops(seg(0, 0, b"bad").flags(0), StreamDrop::OutOfWindow),
            _ => drop(conn.passes(seg(0, 0, b"bad").flags(0))),
        }
        conn.passes(seg(0, 0, b"abc"));
        assert_eq!(conn.scanned(0), b"abc");
        conn.end();
    }
}

#[test]
fn urgent_data_follow_the_setting() {
    let urgent = |setting| {
        let limits = mmb_stream::StreamLimits { urgent: setting, ..LIMITS };
        let mut conn = Conn::established_with(GUARD, limits);
        conn.take(seg(0, 0, b"abc").flags(flag::ACK | flag::URG)).0
    };
    assert!(urgent(Urgent::Clear).clear_urgent);
    assert!(!urgent(Urgent::Pass).clear_urgent);
    let dropped = mmb_stream::StreamVerdict::Drop(StreamDrop::Urgent);
    assert_eq!(urgent(Urgent::Drop).verdict, dropped);

    let limits = mmb_stream::StreamLimits { urgent: Urgent::Drop, ..LIMITS };
    let mut conn = Conn::established_with(WATCH, limits);
    let (outcome, _) = conn.take(seg(0, 0, b"abc").flags(flag::ACK | flag::URG));
    assert_eq!(outcome.verdict, mmb_stream::StreamVerdict::Pass);
    assert!(!outcome.clear_urgent);
    assert_eq!(conn.scanned(0), b"abc");

    let mut conn = Conn::new(GUARD, LIMITS, [7, 9]);
    let (outcome, _) = conn.take(syn(b"abc").flags(flag::SYN | flag::URG));
    assert!(outcome.clear_urgent, "the SYN's too");
}

#[test]
fn a_keep_alive_passes() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::established(levels);
        conn.passes(seg(0, -1, b"\0"));
        conn.passes(seg(0, 0, b"abc"));
        conn.passes(ack(1, 0, 3));
        conn.passes(seg(0, 2, b"\0"));
        conn.passes(seg(0, 2, b""));
        assert_eq!(conn.scanned(0), b"abc");
        conn.passes(seg(0, 3, b"def"));
        assert_eq!(conn.scanned(0), b"abcdef");
        conn.end();
    }
}

#[test]
fn numbers_wrap_around() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::new(levels, LIMITS, [u32::MAX - 1500, u32::MAX]);
        conn.shake([syn(b""), syn_ack()]);
        let all: Vec<u8> = (0..4000u32).map(|byte| byte as u8).collect();
        for at in [1000, 0, 2000, 3000] {
            conn.passes(seg(0, at, &all[at as usize..][..1000]));
            assert_eq!(conn.passes(seg(0, at, &all[at as usize..][..1000])), &all[at as usize..][..1000]);
        }
        conn.passes(ack(1, 0, 1700));
        conn.passes(ack(1, 0, 4000));
        assert_eq!((conn.scanned(0), conn.info().buffered), (all, [0, 0]));
        conn.end();
    }
}

#[test]
fn more_than_4_gib_keep_their_offsets() {
    let limits = mmb_stream::StreamLimits { window: 64 << 10, ..LIMITS };
    let mut conn = Conn::established_with([Level::None, Level::None], limits);
    for step in 1..5i64 {
        conn.passes(seg(0, step << 30, b"x"));
        conn.passes(ack(1, 0, (step << 30) + 1));
    }
    assert_eq!(conn.reset(1), Some(((4i64 << 30) as u32 as i32 as i64 + 1, Some(0))));
    conn.end();
}
