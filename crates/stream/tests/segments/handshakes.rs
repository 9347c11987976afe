//! The start of a connection: data in a SYN, options, and connections that were first seen midway. Also the
//! numbers of a RST.

use super::*;
use mmb_stream::{StreamDrop, StreamVerdict, Unfit};

#[test]
fn data_of_a_syn_that_the_responder_takes() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::new(levels, LIMITS, [7, 9]);
        conn.shake([syn(b"abc"), syn_ack().ack(3)]);
        conn.passes(seg(0, 3, b"def"));
        assert_eq!(conn.scanned(0), b"abcdef");
        assert_eq!(conn.stats(0).gaps, 0);
        conn.end();
    }
}

#[test]
fn data_of_a_syn_that_the_responder_does_not_take() {
    let mut conn = Conn::new(WATCH, LIMITS, [7, 9]);
    conn.shake([syn(b"abc"), syn_ack()]);
    assert!(conn.scanned(0).is_empty());
    conn.passes(seg(0, 0, b"xyz"));
    assert_eq!(conn.scanned(0), b"xyz");
    conn.end();

    let mut conn = Conn::new(GUARD, LIMITS, [7, 9]);
    conn.shake([syn(b"abc"), syn_ack()]);
    assert_eq!(conn.passes(seg(0, 0, b"xyz")), b"abc", "the guard holds the sender to them");
    assert_eq!(conn.scanned(0), b"abc");
    conn.end();
}

#[test]
fn data_of_a_syn_of_which_the_responder_takes_a_part() {
    let mut conn = Conn::new(WATCH, LIMITS, [7, 9]);
    conn.shake([syn(b"abcdef"), syn_ack().ack(2)]);
    assert_eq!(conn.scanned(0), b"ab");
    conn.passes(seg(0, 2, b"CD"));
    assert_eq!(conn.scanned(0), b"abCD");
    conn.end();
}

#[test]
fn a_syn_ack_again_forgets_no_early_bytes() {
    let mut conn = Conn::established(WATCH);
    conn.passes(seg(0, 3, b"def"));
    conn.passes(syn_ack());
    conn.passes(seg(0, 0, b"abc"));
    assert_eq!(conn.scanned(0), b"abcdef");
    conn.end();
}

#[test]
fn a_syn_again_brings_a_watcher_no_data_behind_the_handshake() {
    let mut conn = Conn::new(WATCH, LIMITS, [7, 9]);
    conn.shake([syn(b"abc"), syn_ack().ack(3)]);
    conn.passes(syn(b"abcXYZ"));
    conn.passes(seg(0, 3, b"def"));
    assert_eq!(conn.scanned(0), b"abcdef");
    conn.end();
}

#[test]
fn data_of_a_syn_again() {
    let mut conn = Conn::new(GUARD, LIMITS, [7, 9]);
    conn.passes(syn(b"abc"));
    assert_eq!(conn.passes(syn(b"xyz12")), b"abc12");
    // Another connection with the same ports, while the first one may go on.
    let mut other = syn(b"other");
    other.offset = 1000;
    conn.drops(other, StreamDrop::OutOfWindow);
    conn.passes(syn_ack().ack(5));
    assert_eq!(conn.scanned(0), b"abc12");
    conn.end();
}

#[test]
fn a_syn_with_another_number_begins_anew() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::new(levels, LIMITS, [7, 9]);
        let mut first = syn(b"");
        first.offset = 5000;
        conn.passes(first);
        conn.shake([syn(b""), syn_ack()]);
        conn.passes(seg(0, 0, b"abc"));
        assert_eq!(conn.scanned(0), b"abc");
        conn.end();
    }
}

/// The responder could get the second SYN only: its stream would begin in the middle of what was scanned.
#[test]
fn a_syn_behind_the_data_of_another_one_is_not_taken_before_the_answer() {
    let mut conn = Conn::new(GUARD, LIMITS, [7, 9]);
    conn.passes(syn(b"junk"));
    let mut second = syn(b"");
    second.offset = 3;
    conn.drops(second.clone(), StreamDrop::OutOfWindow);
    conn.passes(syn_ack().ack(4));
    // Now the responder answers with its acknowledgment.
    conn.passes(second);
    assert_eq!(conn.scanned(0), b"junk");
    conn.end();
}

#[test]
fn a_syn_ack_of_another_syn_is_not_taken() {
    for other in [-400, 400] {
        // The guard knows the second SYN, the responder the first one.
        let mut conn = Conn::new(GUARD, LIMITS, [7, 9]);
        let mut second = syn(b"");
        second.offset = other;
        conn.passes(syn(b""));
        conn.passes(second.clone());
        conn.drops(syn_ack(), StreamDrop::OutOfWindow);
        conn.drops(seg(0, 0, b"abc"), StreamDrop::OutOfWindow);
        // With bytes, it could be a part of them that the SYN-ACK covers.
        second.data = vec![b'x'; 500];
        conn.drops(second, StreamDrop::OutOfWindow);
        conn.drops(syn_ack(), StreamDrop::OutOfWindow);
        conn.end();

        let mut conn = Conn::new(WATCH, LIMITS, [7, 9]);
        let mut second = syn(b"evil");
        second.offset = other;
        conn.passes(syn(b""));
        conn.passes(second);
        conn.passes(syn_ack());
        conn.passes(seg(0, 0, b"abc"));
        conn.passes(seg(1, 0, b"xyz").ack(3));
        assert_eq!((conn.scanned(0), conn.scanned(1)), (b"abc".to_vec(), b"xyz".to_vec()));
        conn.end();
    }
}

/// A filter of SYN floods answers with a number that the initiator has not sent. It waits for the initiator's
/// RST, and accepts the SYN when it is retransmitted.
#[test]
fn a_challenge_of_the_initiator_passes_and_brings_nothing() {
    for levels in [WATCH, GUARD] {
        for number in [-400, 400] {
            let mut conn = Conn::new(levels, LIMITS, [7, 9]);
            conn.passes(syn(b""));
            let mut challenge = syn_ack().ack(number);
            challenge.offset = 70_000;
            conn.passes(challenge.clone());
            if levels == GUARD {
                // With bytes it could be more than a challenge; and the connection has not begun.
                challenge.data = b"evil".to_vec();
                conn.drops(challenge, StreamDrop::OutOfWindow);
                conn.drops(seg(1, 70_000, b"evil").ack(0), StreamDrop::OutOfWindow);
            }
            conn.shake([syn(b""), syn_ack()]);
            conn.passes(seg(0, 0, b"abc"));
            conn.passes(seg(1, 0, b"xyz").ack(3));
            assert_eq!((conn.scanned(0), conn.scanned(1)), (b"abc".to_vec(), b"xyz".to_vec()));
            conn.end();
        }
    }
}

#[test]
fn nothing_goes_on_before_the_syn_is_answered() {
    let mut conn = Conn::new(GUARD, LIMITS, [7, 9]);
    conn.passes(syn(b""));
    // One byte could be the probe of a closed window.
    for early in [&b"abc"[..], b"a", b""] {
        conn.drops(seg(0, 0, early), StreamDrop::OutOfWindow);
    }
    assert!(conn.scanned(0).is_empty());
    conn.end();
}

#[test]
fn a_syn_within_a_connection_is_not_taken() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::established(levels);
        conn.passes(seg(0, 0, b"abc"));
        let mut other = syn(b"evil");
        other.offset = 500;
        match levels {
            GUARD => conn.drops(other, StreamDrop::OutOfWindow),
            _ => drop(conn.passes(other)),
        }
        let mut other = syn_ack();
        other.offset = 500;
        match levels {
            GUARD => conn.drops(other, StreamDrop::OutOfWindow),
            _ => drop(conn.passes(other)),
        }
        conn.passes(seg(0, 3, b"def"));
        conn.passes(seg(1, 0, b"xyz").ack(6));
        assert_eq!((conn.scanned(0), conn.scanned(1)), (b"abcdef".to_vec(), b"xyz".to_vec()));
        conn.end();
    }
}

#[test]
fn multipath_is_stripped_under_guard() {
    let blanked = |levels| {
        let mut conn = Conn::new(levels, LIMITS, [7, 9]);
        let mut first = syn(b"");
        first.header.is_multipath = true;
        conn.take(first).0.blank_multipath
    };
    assert!(blanked(GUARD));
    assert!(blanked([Guard, Watch]) && blanked([Watch, Guard]));
    assert!(!blanked(WATCH));
    let mut conn = Conn::new(GUARD, LIMITS, [7, 9]);
    assert!(!conn.take(syn(b"")).0.blank_multipath);
}

#[test]
fn signed_connections_are_unfit_for_guards() {
    let mut first = syn(b"");
    first.header.is_signed = true;
    assert_eq!(Conn::open(GUARD, LIMITS, [7, 9], &first).err(), Some(Unfit::Signed));
    assert_eq!(Conn::open([Watch, Guard], LIMITS, [7, 9], &first).err(), Some(Unfit::Signed));
    assert!(Conn::open(WATCH, LIMITS, [7, 9], &first).is_ok());
}

#[test]
fn connections_picked_up_midway_are_watched_only() {
    for first in [seg(0, 700, b"abc").ack(50), syn_ack()] {
        assert_eq!(Conn::open(GUARD, LIMITS, [7, 9], &first).err(), Some(Unfit::Midway));
    }
    let first = seg(0, 700, b"abc").ack(50);
    let mut conn = Conn::open(WATCH, LIMITS, [7, 9], &first).unwrap();
    conn.passes(first);
    conn.passes(seg(1, 50, b"xyz").ack(703));
    conn.passes(seg(0, 703, b"def").ack(53));
    conn.passes(seg(0, 600, b"before").ack(53));
    // Whether windows are scaled is not known.
    conn.passes(seg(0, 800_000, b"far"));
    assert_eq!((conn.scanned(0), conn.scanned(1)), (b"abcdef".to_vec(), b"xyz".to_vec()));
    assert_eq!(conn.info().out_of_order[0], 3);
    conn.end();
}

#[test]
fn a_watch_goes_on_behind_a_gap() {
    let mut conn = Conn::established(WATCH);
    conn.passes(seg(0, 0, b"abc"));
    conn.passes(seg(0, 10, b"klm"));
    conn.passes(seg(0, 20, b"uvw"));
    // The receiver has what went another way.
    conn.passes(ack(1, 0, 13));
    assert_eq!(conn.runs(0), [(0, b"abc".to_vec()), (10, b"klm".to_vec())]);
    conn.passes(seg(1, 0, b"").ack(23));
    conn.passes(seg(0, 23, b"xyz"));
    let expected = [(0, b"abc".to_vec()), (10, b"klm".to_vec()), (20, b"uvwxyz".to_vec())];
    assert_eq!(conn.runs(0), expected);
    assert_eq!((conn.stats(0).gaps, conn.stats(0).gap_bytes), (2, 14));
    conn.end();
}

#[test]
fn the_scanner_drops_what_it_stops_at() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::established(levels);
        conn.stop = Some(b"ATTACK".to_vec());
        conn.passes(seg(0, 0, b"ATT"));
        conn.passes(seg(0, 5, b"K"));
        conn.drops(seg(0, 3, b"AC"), StreamDrop::Stopped);
        conn.end();
    }
    // Under watch an acknowledgment shows what is in order.
    let mut conn = Conn::established(WATCH);
    conn.stop = Some(b"ATTACK".to_vec());
    conn.passes(seg(0, 3, b"ATTACK"));
    conn.drops(ack(1, 0, 9), StreamDrop::Stopped);
    conn.end();
}

#[test]
fn a_reset_has_the_numbers_that_its_receiver_expects() {
    let mut conn = Conn::new(GUARD, LIMITS, [u32::MAX - 2, u32::MAX]);
    assert_eq!((conn.reset(0), conn.reset(1)), (None, None));
    conn.passes(syn(b""));
    assert_eq!(conn.table.reset_target(conn.id, 0).map(|target| target.seq), Some(0));
    assert_eq!(conn.reset(0).unwrap().1, Some(0), "it acknowledges the SYN");
    assert_eq!(conn.reset(1), Some((0, None)));
    conn.passes(syn_ack());
    assert_eq!((conn.reset(0), conn.reset(1)), (Some((0, Some(0))), Some((0, None))));
    conn.passes(ack(0, 0, 0));
    conn.passes(seg(0, 0, b"abc"));
    conn.passes(seg(0, 6, b"ghi"));
    conn.passes(seg(1, 0, b"xy").ack(3));
    assert_eq!((conn.reset(0), conn.reset(1)), (Some((2, Some(3))), Some((3, Some(0)))));
    conn.passes(seg(0, 3, b"def").ack(2));
    assert_eq!((conn.reset(0), conn.reset(1)), (Some((2, Some(3))), Some((9, Some(2)))));
    conn.passes(seg(0, 9, b"").ack(2).fin());
    assert_eq!(conn.reset(1), Some((10, Some(2))), "a FIN counts");
    conn.passes(seg(1, 2, b"").ack(10).fin());
    assert_eq!(conn.reset(0), Some((3, Some(10))));
    // An old acknowledgment does not count.
    conn.passes(ack(1, 2, 3));
    assert_eq!(conn.reset(0), Some((3, Some(10))));
    conn.end();
}

#[test]
fn a_reset_counts_only_what_went_on() {
    let mut conn = Conn::established(GUARD);
    conn.stop = Some(b"ATTACK".to_vec());
    conn.passes(seg(0, 0, b"abc"));
    conn.passes(seg(0, 9, b"ghi"));
    conn.drops(seg(0, 3, b"ATTACK"), StreamDrop::Stopped);
    assert_eq!((conn.reset(0), conn.reset(1)), (Some((0, Some(0))), Some((3, Some(0)))));
    conn.end();

    let mut conn = Conn::established(WATCH);
    conn.passes(seg(0, 10, b"klm"));
    conn.passes(ack(1, 0, 13));
    conn.passes(seg(0, 13, b"nop"));
    assert_eq!(conn.reset(1), Some((16, Some(0))), "behind a gap");
    conn.end();
}

#[test]
fn datagrams_are_scanned_in_order_of_arrival() {
    for levels in [WATCH, GUARD] {
        let mut table = mmb_stream::StreamTable::default();
        assert!(table.configure(LIMITS));
        let id = table.open(levels, false, None, 0).unwrap();
        let mut found = Vec::new();
        let mut take = |direction, payload: &str, is_corrupt| {
            let header = mmb_stream::Segment { is_corrupt, ..Default::default() };
            let mut scan = |bytes: mmb_stream::InOrder<'_>| {
                found.push((bytes.direction, bytes.offset, bytes.bytes.to_vec()));
                if bytes.bytes == b"stop" {
                    std::ops::ControlFlow::Break(())
                } else {
                    std::ops::ControlFlow::Continue(())
                }
            };
            table.take(id, direction, &header, &mut payload.as_bytes().to_vec(), 0, &mut scan).verdict
        };
        assert_eq!(take(0, "abc", false), StreamVerdict::Pass);
        assert_eq!(take(1, "x", false), StreamVerdict::Pass);
        let corrupt = take(0, "bad", true);
        assert_eq!(corrupt == StreamVerdict::Pass, levels == WATCH);
        assert_eq!(take(0, "abc", false), StreamVerdict::Pass);
        assert_eq!(take(0, "stop", false), StreamVerdict::Drop(StreamDrop::Stopped));
        let expected = [(0, 0, "abc"), (1, 0, "x"), (0, 3, "abc"), (0, 6, "stop")];
        assert_eq!(found, expected.map(|(direction, at, text)| (direction, at, text.as_bytes().to_vec())));
        assert_eq!(table.payload_memory(), 0);
        assert_eq!([0, 1].map(|end| table.reset_target(id, end)), [None; 2]);
        table.end(id);
    }
}
