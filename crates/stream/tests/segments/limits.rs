//! Limits of a table.

use super::*;
use mmb_stream::{InOrder, Segment, StreamLimits, StreamTable, Unfit, flag};
use std::ops::ControlFlow;

fn continues(_: InOrder<'_>) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// A table under limits, and the SYN of a connection.
fn table(limits: StreamLimits) -> (StreamTable, Segment) {
    let mut table = StreamTable::default();
    assert!(table.configure(limits));
    (table, Segment { flags: flag::SYN, window: u16::MAX, ..Segment::default() })
}

#[test]
fn streams_are_bounded() {
    let (mut table, first) = table(LIMITS);
    let ids: Vec<_> = (0..4).map(|_| table.open(GUARD, false, Some(&first), 0).unwrap()).collect();
    assert_eq!(table.open(WATCH, false, Some(&first), 0), Err(Unfit::NoRoom));
    assert_eq!(table.len(), 4);
    table.end(ids[2]);
    assert!(table.open(WATCH, false, Some(&first), 0).is_ok());
}

#[test]
fn a_table_without_memory_only_watches() {
    let (mut table, first) = table(StreamLimits { memory: 0, ..LIMITS });
    assert_eq!(table.open(GUARD, false, Some(&first), 0), Err(Unfit::NoRoom));
    let id = table.open(WATCH, false, Some(&first), 0).unwrap();
    table.take(id, 0, &first, &mut [b'a'; 10], 0, &mut continues);
    assert_eq!(table.payload_memory(), 0);
    table.end(id);
}

#[test]
fn little_memory_makes_new_guards_unfit() {
    let (mut table, first) = table(StreamLimits { memory: 32 << 10, ..LIMITS });
    let id = table.open(GUARD, false, Some(&first), 0).unwrap();
    table.take(id, 0, &first, &mut [b'a'; 28 << 10], 0, &mut continues);
    assert_eq!(table.open(GUARD, false, Some(&first), 0), Err(Unfit::NoRoom));
    assert!(table.open(WATCH, false, Some(&first), 0).is_ok());
    table.end(id);
    assert!(table.open(GUARD, false, Some(&first), 0).is_ok());
}

#[test]
fn memory_in_use_is_not_replaced() {
    let (mut table, first) = table(LIMITS);
    let id = table.open(GUARD, false, Some(&first), 0).unwrap();
    table.take(id, 0, &first, &mut b"abc".to_vec(), 0, &mut continues);
    let other = StreamLimits { memory: 1 << 20, window: 100, ..LIMITS };
    assert!(table.configure(other) && !table.is_configured(&other), "it is for the next time");
    let mut again = b"xyz".to_vec();
    assert!(table.take(id, 0, &first, &mut again, 0, &mut continues).is_changed);
    assert_eq!(again, b"abc");
    table.end(id);
    assert!(table.configure(other) && table.is_configured(&other));
}

#[test]
fn the_longest_idle_stream_is_the_one_to_give_up() {
    let (mut table, first) = table(LIMITS);
    let ids: Vec<_> = (0..3).map(|_| table.open(GUARD, false, Some(&first), 0).unwrap()).collect();
    assert_eq!(table.longest_idle(1_000_000), None, "none keeps bytes");
    for (id, at_ms) in ids.iter().zip([20_000, 10_000, 50_000]) {
        table.take(*id, 0, &first, &mut b"abc".to_vec(), at_ms, &mut continues);
    }
    assert_eq!(table.longest_idle(19_000), None, "none was idle for long");
    assert_eq!(table.longest_idle(60_000), Some(ids[1]));
    table.end(ids[1]);
    assert_eq!(table.longest_idle(60_000), Some(ids[0]));
    table.end(ids[0]);
    table.end(ids[2]);
    assert_eq!((table.longest_idle(1_000_000), table.payload_memory()), (None, 0));
}

#[test]
fn a_stream_with_early_bytes_gives_its_memory_back() {
    for levels in [WATCH, GUARD] {
        let mut conn = Conn::established(levels);
        for at in 0..20 {
            conn.passes(seg(0, 100 * at, &[b'a'; 50]));
            conn.passes(seg(1, 100 * at + 50, &[b'b'; 50]));
        }
        assert!(conn.table.payload_memory() > 0);
        conn.end();
    }
}

#[test]
fn ranges_are_reused_empty() {
    let mut conn = Conn::established(GUARD);
    for round in 0..10 {
        let at = 20 * round;
        conn.passes(seg(0, at + 10, b"early bytes"[..10].as_ref()));
        conn.passes(seg(0, at, b"0123456789"));
        conn.passes(ack(1, 0, at + 20));
        assert_eq!((conn.info().out_of_order[0], conn.info().buffered[0]), (0, 0));
        assert_eq!(conn.table.payload_memory(), 0);
    }
    conn.end();
}

#[test]
fn early_bytes_leave_room_for_those_that_fill_holes() {
    let limits = StreamLimits { memory: 64 << 10, reorder: 64 << 10, ..LIMITS };
    let mut conn = Conn::established_with(GUARD, limits);
    let mut at = 1000;
    while conn.take(seg(0, at, &[b'e'; 1000])).0.verdict == mmb_stream::StreamVerdict::Pass {
        at += 1000;
    }
    assert!(at < 60_000, "{at}");
    conn.passes(seg(0, 0, &[b'a'; 1000]));
    assert_eq!(conn.scanned(0).len() as i64, at);
    conn.passes(ack(1, 0, at));
    conn.passes(seg(0, at, &[b'e'; 1000]));
    conn.end();
}
