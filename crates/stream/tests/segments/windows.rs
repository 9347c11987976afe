//! Windows, and the end of a direction.

use super::*;
use mmb_stream::{StreamDrop, StreamLimits, flag};

/// Limits with a window of this many bytes.
fn narrow(window: u64) -> StreamLimits {
    StreamLimits { window, ..LIMITS }
}

#[test]
fn a_window_is_clamped_to_what_is_kept() {
    let mut conn = Conn::new(GUARD, narrow(1000), [7, 9]);
    assert_eq!(conn.window(syn(b"")), 1000);
    assert_eq!(conn.window(syn_ack().window(900)), 900);
    conn.passes(ack(0, 0, 0));
    conn.passes(seg(0, 0, &[b'a'; 900]));
    assert_eq!(conn.window(ack(1, 0, 400)), 1000);
    conn.drops(seg(0, 1300, &[b'b'; 101]), StreamDrop::OutOfWindow);
    conn.passes(seg(0, 1300, &[b'b'; 100]));
    conn.end();
}

#[test]
fn windows_of_watched_connections_stay() {
    let mut conn = Conn::established_with(WATCH, narrow(1000));
    assert_eq!(conn.window(ack(1, 0, 0)), u16::MAX);
    let mut conn = Conn::established_with([Guard, Watch], narrow(1000));
    assert_eq!(conn.window(ack(0, 0, 0)), u16::MAX, "it is for the watched direction");
    assert_eq!(conn.window(ack(1, 0, 0)), 1000);
}

#[test]
fn a_clamped_window_is_scaled() {
    let mut conn = Conn::new(GUARD, narrow(5000), [7, 9]);
    assert_eq!(conn.window(syn(b"").scale(3)), 5000, "a SYN's window is not scaled");
    assert_eq!(conn.window(syn_ack().scale(4)), 5000);
    assert_eq!(conn.window(ack(0, 0, 0)), 5000 >> 3);
    assert_eq!(conn.window(ack(1, 0, 0)), 5000_u16.div_ceil(16), "it told 5000 before");
    conn.passes(seg(0, 0, &[b'a'; 1600]));
    assert_eq!(conn.window(ack(1, 0, 1600)), 5000 >> 4);
    assert_eq!(conn.window(ack(1, 0, 1600).window(10)), 10);
}

#[test]
fn without_scale_on_both_sides_no_window_is_scaled() {
    let mut conn = Conn::new(GUARD, narrow(5000), [7, 9]);
    conn.shake([syn(b"").scale(3), syn_ack()]);
    assert_eq!(conn.window(ack(0, 0, 0)), 5000);
    assert_eq!(conn.window(ack(1, 0, 0).window(4000)), 4000);
    conn.drops(seg(0, 5000, b"xx"), StreamDrop::OutOfWindow);
}

#[test]
fn scales_above_14_count_as_14() {
    let mut conn = Conn::new(GUARD, narrow(1 << 20), [7, 9]);
    conn.shake([syn(b"").scale(15), syn_ack().scale(15)]);
    assert_eq!(conn.window(ack(0, 0, 0)), 1 << 6);
}

#[test]
fn the_edge_never_moves_left() {
    let mut conn = Conn::new(GUARD, narrow(5000), [7, 9]);
    conn.shake([syn(b"").scale(0), syn_ack().scale(7)]);
    conn.passes(seg(0, 0, &[b'a'; 3000]));
    // What the SYN-ACK told.
    let mut edge = 5000;
    // One byte at a time: the offered edge is that of the clamped window, rounded to its scale.
    for acked in 0..3000 {
        let told = acked + (i64::from(conn.window(ack(1, 0, acked))) << 7);
        assert!(told >= edge, "{told} at {acked}, after {edge}");
        assert!(told <= acked + 5000 + 127, "{told} at {acked}");
        edge = told;
    }
}

#[test]
fn acknowledgments_that_were_overtaken_do_not_move_the_edge() {
    let mut conn = Conn::new(GUARD, narrow(5000), [7, 9]);
    conn.shake([syn(b"").scale(0), syn_ack().scale(2)]);
    conn.passes(seg(0, 0, &[b'a'; 3000]));
    conn.window(ack(1, 0, 2998));
    // The acknowledgment numbers differ by less than the unit of the window field. So no edge is a whole
    // number of units after all of them.
    for acked in [2998, 2995, 2997, 2996].into_iter().cycle().take(400) {
        let told = acked + (i64::from(conn.window(ack(1, 0, acked))) << 2);
        assert!(told <= 2998 + 5000 + 3, "{told} at {acked}");
    }
    conn.drops(seg(0, 3000, &[b'a'; 5003]), StreamDrop::OutOfWindow);
    conn.end();
}

#[test]
fn the_receiver_may_take_its_own_window_back() {
    let mut conn = Conn::established(GUARD);
    assert_eq!(conn.window(ack(1, 0, 0).window(10)), 10);
    // The sender may have sent before it knew.
    conn.passes(seg(0, 0, &[b'a'; 100]));
    conn.end();
}

#[test]
fn a_late_acknowledgment_does_not_move_the_edge() {
    let mut conn = Conn::established_with(GUARD, narrow(1000));
    conn.passes(seg(0, 0, &[b'a'; 600]));
    assert_eq!(conn.window(ack(1, 0, 600)), 1000);
    // It was sent before the one above. Its edge is not beyond what was told.
    assert!(conn.window(ack(1, 0, 200)) <= 1400);
    conn.drops(seg(0, 1600, b"xx"), StreamDrop::OutOfWindow);
    conn.passes(seg(0, 1599, b"x"));
    conn.end();
}

#[test]
fn a_probe_of_a_closed_window_passes() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::new(levels, LIMITS, [7, 9]);
        conn.shake([syn(b""), syn_ack().window(4)]);
        conn.passes(seg(0, 0, b"abcd"));
        assert_eq!(conn.window(ack(1, 0, 4).window(0)), 0);
        match levels {
            GUARD => conn.drops(seg(0, 4, b"ef"), StreamDrop::OutOfWindow),
            _ => drop(conn.passes(seg(0, 4, b"xx"))),
        }
        conn.passes(seg(0, 4, b"e"));
        conn.passes(seg(0, 4, b"e"));
        conn.passes(ack(0, 4, 0));
        conn.passes(ack(0, 5, 0));
        assert_eq!(conn.scanned(0), b"abcde");
        conn.passes(ack(1, 0, 5).window(10));
        conn.passes(seg(0, 5, b"f"));
        assert_eq!(conn.scanned(0), b"abcdef");
        conn.end();
    }
}

#[test]
fn little_memory_keeps_windows_from_growing() {
    let limits = StreamLimits { memory: 64 << 10, window: 64 << 10, ..LIMITS };
    let mut conn = Conn::established_with(GUARD, limits);
    conn.passes(seg(0, 0, &[b'a'; 57 << 10]));
    assert_eq!(conn.window(ack(1, 0, 0)), u16::MAX, "what was offered stays");
    assert_eq!(i64::from(conn.window(ack(1, 0, 1000))), 65_535 - 1000);
    conn.passes(ack(1, 0, 57 << 10));
    assert_eq!(conn.window(ack(1, 0, 57 << 10)), u16::MAX);
    conn.end();
}

#[test]
fn a_guard_without_memory_drops() {
    let limits = StreamLimits { memory: 8 << 10, window: 64 << 10, ..LIMITS };
    let mut conn = Conn::established_with(GUARD, limits);
    conn.passes(seg(0, 0, &[b'a'; 6 << 10]));
    conn.drops(seg(0, 6 << 10, &[b'a'; 4 << 10]), StreamDrop::NoRoom);
    conn.passes(ack(1, 0, 6 << 10));
    conn.passes(seg(0, 6 << 10, &[b'a'; 4 << 10]));
    assert_eq!(conn.scanned(0), [b'a'; 10 << 10]);
    conn.end();
}

#[test]
fn a_fin_ends_a_direction() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::established(levels);
        conn.passes(seg(0, 0, b"abc").fin());
        conn.passes(ack(1, 0, 4));
        conn.passes(seg(1, 0, b"xyz").ack(4));
        conn.passes(ack(0, 4, 3));
        conn.passes(seg(1, 3, b"").ack(4).fin());
        conn.passes(ack(0, 4, 4));
        // Its repetition, and the acknowledgment again.
        conn.passes(seg(1, 3, b"").ack(4).fin());
        conn.passes(ack(0, 4, 4));
        assert_eq!((conn.scanned(0), conn.scanned(1)), (b"abc".to_vec(), b"xyz".to_vec()));
        assert_eq!(conn.info().buffered, [0, 0]);
        conn.end();
    }
}

#[test]
fn a_keep_alive_behind_a_fin_passes() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::established(levels);
        conn.passes(seg(0, 0, b"abc").fin());
        if levels == GUARD {
            // The receiver may have lost the FIN, and would take the byte.
            conn.drops(seg(0, 3, b"\0"), StreamDrop::OutOfWindow);
        }
        conn.passes(ack(1, 0, 4));
        conn.passes(seg(0, 3, b"\0"));
        assert_eq!(conn.scanned(0), b"abc");
        conn.end();
    }
}

#[test]
fn a_lost_fin_comes_behind_its_acknowledgments() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::established(levels);
        conn.passes(seg(0, 0, b"abc"));
        // Lost: the bytes to 6 with a FIN.
        conn.passes(ack(0, 7, 0));
        conn.passes(seg(0, 3, b"def").fin());
        conn.passes(ack(1, 0, 7));
        assert_eq!(conn.scanned(0), b"abcdef");
        conn.end();
    }
}

#[test]
fn data_behind_a_fin_are_not_taken() {
    let mut conn = Conn::established(GUARD);
    conn.passes(seg(0, 0, b"abc").fin());
    conn.drops(seg(0, 3, b"d"), StreamDrop::OutOfWindow);
    conn.drops(seg(0, 0, b"abcd"), StreamDrop::OutOfWindow);
    conn.drops(seg(0, 4, b"d"), StreamDrop::OutOfWindow);
    assert_eq!(conn.passes(seg(0, 0, b"aXc").fin()), b"abc");
    conn.end();
}

#[test]
fn a_fin_at_another_place_is_not_taken() {
    let mut conn = Conn::established(GUARD);
    conn.passes(seg(0, 0, b"abcdef"));
    conn.drops(seg(0, 2, b"cd").fin(), StreamDrop::OutOfWindow);
    conn.passes(seg(0, 8, b"ij"));
    conn.drops(seg(0, 6, b"gh").fin(), StreamDrop::OutOfWindow);
    conn.passes(seg(0, 10, b"").fin());
    conn.drops(seg(0, 6, b"gh").fin(), StreamDrop::OutOfWindow);
    conn.drops(seg(0, 11, b"").fin(), StreamDrop::OutOfWindow);
    conn.passes(seg(0, 6, b"gh"));
    conn.passes(ack(1, 0, 11));
    assert_eq!(conn.scanned(0), b"abcdefghij");
    conn.end();
}

#[test]
fn a_fin_before_a_hole_waits() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::established(levels);
        conn.passes(seg(0, 3, b"def").fin());
        if levels == GUARD {
            conn.drops(ack(1, 0, 7), StreamDrop::OutOfWindow);
        }
        conn.passes(seg(0, 0, b"abc"));
        conn.passes(ack(1, 0, 7));
        assert_eq!(conn.scanned(0), b"abcdef");
        assert_eq!(conn.stats(0).gaps, 0);
        conn.end();
    }
}

#[test]
fn a_false_fin_does_not_end_a_watched_direction() {
    let mut conn = Conn::established(WATCH);
    conn.passes(seg(0, 0, b"abc"));
    conn.passes(seg(0, 5, b"").fin());
    conn.passes(seg(0, 6, b"lost and found").flags(flag::ACK));
    conn.passes(ack(1, 0, 6));
    conn.passes(ack(1, 0, 20));
    assert_eq!(conn.runs(0), [(0, b"abc".to_vec()), (6, b"lost and found".to_vec())]);
    conn.passes(seg(0, 20, b"more"));
    assert_eq!(conn.runs(0)[1].1, b"lost and foundmore");
}

#[test]
fn a_reset_passes() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::established(levels);
        conn.passes(seg(0, 0, b"abc"));
        conn.passes(ack(0, 3, 0).flags(flag::RST));
        conn.passes(ack(1, 0, 3).flags(flag::RST | flag::ACK));
        assert_eq!(conn.scanned(0), b"abc");
        conn.end();
    }
}
