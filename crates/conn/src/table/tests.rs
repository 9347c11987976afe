//! The guarantees of a table, case by case.

use super::expiry::{CHECKED, MAX_CHECKED};
use super::*;
use crate::flags::{ACK, FIN, RST, SYN};
use crate::wheel::SLOT_MS;
use crate::{ConnState, LONGEST_S, Side, TcpSegment, TrackOutcome, proto};
use mmb_packet::checksum::Soundness;
use mmb_random::Seed;
use std::collections::HashMap;

mod flood;
mod model;
mod reclaim;

/// For calls that must not end a connection.
fn nobody(connection: &Connection, reason: CloseReason) {
    panic!("{} ends: {}", connection.tuples()[0].address(0), reason.name());
}

/// The tuple of a client by its number.
fn client(number: u32, proto: u8) -> Tuple {
    let port = 1024 + (number % 50_000) as u16;
    Tuple {
        addresses: [0x0a00_0000 + u128::from(number), 0xc000_0201],
        ports: [port, 443],
        proto,
        family: 4,
        ..Tuple::default()
    }
}

/// The tuple of its replies: to another address, as after a translation.
fn answer(forward: &Tuple) -> Tuple {
    let mut reply = forward.reversed();
    reply.addresses[1] |= 0x0100_0000;
    reply
}

fn segment(flags: u8, seq: u32, ack: u32) -> TrackedHeader {
    TrackedHeader::Tcp(TcpSegment { flags, seq, ack, window: 1000, ..TcpSegment::default() })
}

impl ConnectionTable {
    fn add(&mut self, now_ms: u64, number: u32, proto: u8) -> Result<ConnId, InsertError> {
        let forward = client(number, proto);
        let syn = segment(SYN, 100, 0);
        let segment = (proto == proto::TCP).then_some(&syn);
        self.insert(now_ms, forward, answer(&forward), segment, &mut nobody)
    }

    /// Establishes a TCP connection.
    fn establish(&mut self, now_ms: u64, id: ConnId) {
        self.touch(id, Direction::Reply, now_ms, 60, Some(&segment(SYN | ACK, 500, 101)));
        self.touch(id, Direction::Forward, now_ms, 60, Some(&segment(ACK, 101, 501)));
        assert_eq!(self.get(id).state, ConnState::Established);
    }

    /// Advances time until no further connection ends.
    fn advance_fully(&mut self, now_ms: u64, closed: &mut impl FnMut(&Connection, CloseReason)) {
        for _ in 0..=(self.slab.highest() * 8 / CHECKED + 2) {
            self.advance(now_ms, closed);
        }
    }
}

#[test]
fn an_sctp_packet_without_a_tag_neither_begins_nor_answers() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    assert_eq!(table.add(0, 1, proto::SCTP), Err(InsertError::Invalid(Invalid::BadTag)));
    let data = TrackedHeader::Sctp(crate::SctpChunks { tag: 5, count: 1, ..crate::SctpChunks::default() });
    let forward = client(1, proto::SCTP);
    let id = table.insert(0, forward, answer(&forward), Some(&data), &mut nobody).unwrap();
    for direction in Direction::ALL {
        assert_eq!(table.touch(id, direction, 10, 60, None), TrackOutcome::Invalid(Invalid::BadTag));
    }
    assert_eq!(table.get(id).state, ConnState::Unreplied);
}

#[test]
fn an_init_keeps_no_association_alive() {
    use crate::{SctpChunks, sctp::chunk};
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    let data = |tag| TrackedHeader::Sctp(SctpChunks { tag, count: 1, ..SctpChunks::default() });
    let forward = client(1, proto::SCTP);
    let id = table.insert(0, forward, answer(&forward), Some(&data(5)), &mut nobody).unwrap();
    let init = SctpChunks { initiate_tag: 7, kinds: chunk::INIT, count: 1, ..SctpChunks::default() };
    for now_ms in [1000, 3000] {
        if now_ms == 3000 {
            table.touch(id, Direction::Reply, 2000, 60, Some(&data(6)));
        }
        let left_ms = table.expires_ms(id, 11_000);
        for direction in Direction::ALL {
            let outcome = table.touch(id, direction, now_ms, 60, Some(&TrackedHeader::Sctp(init)));
            assert_eq!(outcome, TrackOutcome::Noted);
        }
        assert_eq!(table.expires_ms(id, 11_000), left_ms);
    }
}

#[test]
fn a_connection_is_found_from_both_ends_until_it_ends() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    let forward = client(1, proto::UDP);
    let reply = answer(&forward);
    assert_eq!(table.find(&forward), None);
    let id = table.add(1000, 1, proto::UDP).unwrap();
    assert_eq!(table.add(1000, 1, proto::UDP), Err(InsertError::Taken));
    let mut found = [None; 4];
    table.find_all(&[forward, reply, Tuple { side: Side::Low, ..reply }, forward.reversed()], &mut found);
    assert_eq!(found, [Some((id, Direction::Forward)), Some((id, Direction::Reply)), None, None]);
    assert_eq!((table.len(), table.half_open()), (1, 1));

    assert_eq!(table.touch(id, Direction::Forward, 1000, 60, None), TrackOutcome::Stays);
    assert_eq!(table.touch(id, Direction::Reply, 2000, 70, None), TrackOutcome::Moves(ConnState::Replied));
    assert_eq!((table.len(), table.half_open()), (1, 0));
    assert_eq!((table.get(id).packets, table.get(id).bytes), ([1, 1], [60, 70]));

    table.advance(301_999, &mut nobody);
    assert_eq!(table.expires_ms(id, 301_999), 1);
    let mut ended = Vec::new();
    table.advance(302_000 + SLOT_MS, &mut |connection: &Connection, reason| {
        ended.push((connection.tuples()[0], reason))
    });
    assert_eq!(ended, [(forward, CloseReason::Timeout)]);
    assert!(table.is_empty() && table.find(&reply).is_none() && table.live(id).is_none());
}

#[test]
fn replies_that_are_anothers_are_taken() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    let first = client(1, proto::UDP);
    table.insert(0, first, answer(&first), None, &mut nobody).unwrap();
    let second = client(2, proto::UDP);
    assert_eq!(table.insert(0, second, answer(&first), None, &mut nobody), Err(InsertError::Taken));
    assert_eq!(table.insert(0, answer(&first), second, None, &mut nobody), Err(InsertError::Taken));
    assert_eq!(table.find(&second), None);
    table.insert(0, second, answer(&second), None, &mut nobody).unwrap();
}

/// Source and destination are the same, as in a LAND packet.
#[test]
fn both_ends_may_be_the_same() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    let land = Tuple { addresses: [7, 7], ports: [9, 9], proto: proto::UDP, family: 4, ..Tuple::default() };
    let id = table.insert(0, land, land.reversed(), None, &mut nobody).unwrap();
    assert_eq!(table.find(&land), Some((id, Direction::Forward)));
    table.remove(id);
    assert_eq!(table.find(&land), None);
}

#[test]
fn strict_tables_take_no_mid_flow() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    table.configure(10, Timeouts::default(), Pickup::Strict);
    let forward = client(1, proto::TCP);
    let ack = segment(ACK, 1, 1);
    for first in [Some(&ack), None] {
        let made = table.insert(0, forward, answer(&forward), first, &mut nobody);
        assert_eq!(made, Err(InsertError::Invalid(Invalid::NotSyn)));
    }
    assert!(table.is_empty() && table.find(&forward).is_none());
    table.add(0, 1, proto::TCP).unwrap();
}

#[test]
fn invalid_packets_do_not_refresh_the_timeout() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    let id = table.add(0, 1, proto::TCP).unwrap();
    table.establish(0, id);
    let out_of_window = segment(RST, 9_999_999, 0);
    assert_eq!(
        table.touch(id, Direction::Reply, 7_000_000, 60, Some(&out_of_window)),
        TrackOutcome::Invalid(Invalid::OutOfWindow)
    );
    assert_eq!(table.get(id).packets, [1, 1]);
    assert_eq!(table.get(id).idle_ms(7_000_000), 7_000_000);
    assert_eq!(table.get(id).state, ConnState::Established);
}

#[test]
fn a_connection_resumes_after_a_silence_or_when_packets_were_missed() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    let far = segment(ACK, 9_000_000, 7_000_000);
    let outcome = |table: &mut ConnectionTable, id, now_ms| {
        let seen = table.preview(id, Direction::Reply, now_ms, Some(&far), || Soundness::Right);
        let outcome = table.touch(id, Direction::Reply, now_ms, 60, Some(&far));
        assert_eq!(seen, outcome);
        outcome
    };
    let invalid = TrackOutcome::Invalid(Invalid::OutOfWindow);
    let ids = [1, 2].map(|client| table.add(0, client, proto::TCP).unwrap());
    ids.iter().for_each(|id| table.establish(0, *id));
    assert_eq!(outcome(&mut table, ids[0], 60_000), invalid);
    assert_eq!(outcome(&mut table, ids[0], 60_001), TrackOutcome::Stays);
    assert_eq!(table.get(ids[0]).idle_ms(60_001), 0);
    table.touch(ids[1], Direction::Forward, 60_001, 60, Some(&segment(ACK, 101, 501)));
    table.resync(61_000);
    assert_eq!(outcome(&mut table, ids[1], 61_000), TrackOutcome::Stays);
    // A connection with a valid packet since then has missed none.
    let id = table.add(61_000, 3, proto::TCP).unwrap();
    table.establish(61_000, id);
    assert_eq!(outcome(&mut table, id, 100_000), invalid);
}

#[test]
fn a_wrong_checksum_changes_no_state_and_is_not_asked_for_where_nothing_changes() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    let id = table.add(0, 1, proto::TCP).unwrap();
    table.establish(0, id);
    let mut asked = 0;
    let mut comes = |table: &mut ConnectionTable, direction, segment: TrackedHeader, is_right: bool| {
        table.touch_if_sound(id, direction, (1, 60), Some(&segment), || {
            asked += 1;
            is_right.into()
        })
    };
    assert_eq!(comes(&mut table, Direction::Forward, segment(ACK, 101, 501), false), TrackOutcome::Stays);
    let bad = TrackOutcome::Invalid(Invalid::BadChecksum);
    let fin = segment(FIN | ACK, 101, 501);
    assert_eq!(comes(&mut table, Direction::Forward, fin, false), bad);
    assert_eq!(comes(&mut table, Direction::Reply, segment(RST, 501, 0), false), bad);
    assert_eq!((table.get(id).state, table.get(id).packets), (ConnState::Established, [2, 1]));
    assert_eq!(comes(&mut table, Direction::Forward, fin, true), TrackOutcome::Moves(ConnState::FinWait));
    assert_eq!(asked, 3);

    let udp = table.add(1, 2, proto::UDP).unwrap();
    let answered = table.touch_if_sound(udp, Direction::Reply, (1, 60), None, || Soundness::Wrong);
    assert_eq!((answered, table.get(udp).state), (bad, ConnState::Unreplied));
    let answered = table.touch_if_sound(udp, Direction::Reply, (2, 60), None, || Soundness::Unknown);
    assert_eq!((answered, table.get(udp).state), (TrackOutcome::Stays, ConnState::Unreplied));
    assert_eq!((table.get(udp).packets, table.get(udp).idle_ms(2)), ([0, 1], 0));
}

#[test]
fn tags_of_an_association_are_not_taken_from_what_nobody_can_check() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    let forward = client(1, proto::SCTP);
    let chunks = |tag: u8| {
        let packet = [0, 1, 0, 2, 0, 0, 0, tag, 0, 0, 0, 0, 0, 3, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        TrackedHeader::Sctp(crate::SctpChunks::read(&packet).expect("it is whole"))
    };
    let id = table.insert(0, forward, answer(&forward), Some(&chunks(7)), &mut nobody).expect("it begins");
    let mut comes = |tag, soundness| {
        table.touch_if_sound(id, Direction::Reply, (1, 60), Some(&chunks(tag)), || soundness)
    };
    assert_eq!(comes(8, Soundness::Unknown), TrackOutcome::Stays);
    assert_eq!(comes(9, Soundness::Right), TrackOutcome::Moves(ConnState::Established));
    assert_eq!(comes(8, Soundness::Right), TrackOutcome::Invalid(Invalid::BadTag));
}

#[test]
fn packets_after_the_timeout_reopen_before_the_entry_is_removed() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    let id = table.add(0, 1, proto::UDP).unwrap();
    assert_eq!(table.touch(id, Direction::Forward, 119_999, 60, None), TrackOutcome::Stays);
    assert_eq!(table.touch(id, Direction::Forward, 239_999, 60, None), TrackOutcome::Reopens);
}

#[test]
fn a_syn_reopens_what_is_over() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    let id = table.add(0, 1, proto::TCP).unwrap();
    table.establish(0, id);
    table.touch(id, Direction::Forward, 1, 60, Some(&segment(FIN | ACK, 101, 501)));
    table.touch(id, Direction::Reply, 2, 60, Some(&segment(FIN | ACK, 501, 102)));
    let last = segment(ACK, 102, 502);
    assert_eq!(
        table.touch(id, Direction::Forward, 3, 60, Some(&last)),
        TrackOutcome::Moves(ConnState::TimeWait)
    );
    let syn = segment(SYN, 900, 0);
    assert_eq!(table.touch(id, Direction::Forward, 4, 60, Some(&syn)), TrackOutcome::Reopens);
    table.remove(id);
    table.add(4, 1, proto::TCP).unwrap();
}

#[test]
fn reasons_tell_how_a_connection_ended() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    let ids: Vec<ConnId> = (0..4).map(|number| table.add(0, number, proto::TCP).unwrap()).collect();
    ids[1..].iter().for_each(|id| table.establish(0, *id));
    table.touch(ids[1], Direction::Forward, 0, 60, Some(&segment(RST, 101, 0)));
    for id in &ids[2..] {
        table.touch(*id, Direction::Forward, 0, 60, Some(&segment(FIN | ACK, 101, 501)));
    }
    table.touch(ids[2], Direction::Reply, 0, 60, Some(&segment(FIN | ACK, 501, 102)));
    let mut reasons = HashMap::new();
    table.advance_fully(250_000, &mut |connection, reason| {
        reasons.insert(connection.tuples()[0], reason);
    });
    let expected = [CloseReason::Timeout, CloseReason::Reset, CloseReason::Finished, CloseReason::Timeout];
    for (number, reason) in (0..).zip(expected) {
        assert_eq!(reasons[&client(number, proto::TCP)], reason);
    }
}

/// A flood uses only the slots that other connections leave free, and evicts the oldest of its own. A
/// connection that is answered succeeds.
#[test]
fn a_flood_ends_no_established_connection_and_stops_no_responsive_client() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    table.configure(1000, Timeouts::default(), Pickup::Loose);
    for number in 0..900 {
        let id = table.add(0, number, proto::TCP).unwrap();
        table.establish(0, id);
    }
    let mut evicted = 0;
    for number in 0..20_000u32 {
        let forward = client(100_000 + number, proto::TCP);
        let syn = segment(SYN, number, 0);
        let now_ms = u64::from(number) / 100;
        let mut closed = |connection: &Connection, reason| {
            assert_eq!((connection.state, reason), (ConnState::SynSent, CloseReason::Evicted));
            assert_eq!(connection.tuples()[0], client(100_000 + evicted, proto::TCP), "the oldest goes");
            evicted += 1;
        };
        let id = table.insert(now_ms, forward, answer(&forward), Some(&syn), &mut closed).unwrap();
        assert_eq!(table.find(&forward), Some((id, Direction::Forward)));
        assert!(table.len() <= 1000);
    }
    assert_eq!((table.len(), table.half_open(), evicted), (1000, 100, 19_900));

    // A client during the flood is answered after ninety more packets of the flood.
    let id = table.insert_over(1, 0);
    for number in 2..92 {
        table.insert_over(number, 0);
    }
    table.establish(200, id);
    for number in 92..500 {
        table.insert_over(number, 0);
    }
    assert!(table.find(&client(200_001, proto::TCP)).is_some());
    assert!((0..900).all(|number| table.find(&client(number, proto::TCP)).is_some()));
}

impl ConnectionTable {
    fn insert_over(&mut self, number: u32, now_ms: u64) -> ConnId {
        let forward = client(200_000 + number, proto::TCP);
        let syn = segment(SYN, 100, 0);
        let closed = &mut |connection: &Connection, _| assert_eq!(connection.state, ConnState::SynSent);
        self.insert(now_ms, forward, answer(&forward), Some(&syn), closed).unwrap()
    }
}

#[test]
fn a_full_table_refuses_when_all_are_wanted() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    table.configure(3, Timeouts::default(), Pickup::Loose);
    let ids: Vec<ConnId> = (0..3).map(|number| table.add(0, number, proto::TCP).unwrap()).collect();
    ids.iter().for_each(|id| table.establish(0, *id));
    assert_eq!(table.add(1, 9, proto::TCP), Err(InsertError::Full));
    // One connection is closed, and is evicted.
    table.touch(ids[1], Direction::Reply, 2, 60, Some(&segment(RST, 501, 0)));
    let forward = client(9, proto::UDP);
    let mut gone = Vec::new();
    table
        .insert(3, forward, answer(&forward), None, &mut |connection: &Connection, reason| {
            gone.push((connection.tuples()[0], reason));
        })
        .unwrap();
    assert_eq!(gone, [(client(1, proto::TCP), CloseReason::Evicted)]);
}

#[test]
fn a_lower_bound_ends_nobody_established() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    for number in 0..100 {
        let id = table.add(0, number, proto::TCP).unwrap();
        if number < 50 {
            table.establish(0, id);
        }
    }
    table.configure(60, Timeouts::default(), Pickup::Loose);
    assert_eq!(table.len(), 100);
    let mut evicted = 0;
    for number in 200..260 {
        let forward = client(number, proto::UDP);
        let _ = table.insert(1, forward, answer(&forward), None, &mut |connection: &Connection, _| {
            assert!(connection.state.is_half_open());
            evicted += 1;
        });
    }
    assert_eq!(table.len(), 60);
    assert!((0..50).all(|number| table.find(&client(number, proto::TCP)).is_some()));
    assert!(evicted >= 40);
}

#[test]
fn shorter_timeouts_hold_for_connections_that_are_there() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    for number in 0..2000 {
        let id = table.add(0, number, proto::TCP).unwrap();
        table.establish(0, id);
    }
    table.advance(1000, &mut nobody);
    table.configure(1_000_000, Timeouts { tcp_established: 10, ..Timeouts::default() }, Pickup::Loose);
    table.advance_fully(9_999, &mut nobody);
    let mut ended = 0;
    table.advance_fully(10_000 + SLOT_MS, &mut |_: &Connection, _: CloseReason| ended += 1);
    assert_eq!(ended, 2000);
}

#[test]
fn longer_timeouts_hold_for_connections_that_are_there() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    let id = table.add(0, 1, proto::TCP).unwrap();
    table.establish(0, id);
    table.configure(10, Timeouts { tcp_established: u32::MAX, ..Timeouts::default() }, Pickup::Loose);
    for hours in 0..24 * 24 {
        table.advance_fully(hours * 3_600_000, &mut nobody);
    }
    let mut ended = 0;
    table.advance_fully(u64::from(LONGEST_S) * 1000 + SLOT_MS, &mut |_: &Connection, _: CloseReason| {
        ended += 1
    });
    assert_eq!(ended, 1);
}

#[test]
fn a_call_ends_no_more_than_some_hundred_and_calls_catch_up() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    for number in 0..50_000 {
        table.add(0, number, if number % 2 == 0 { proto::TCP } else { proto::UDP }).unwrap();
    }
    let (mut calls, mut ended) = (0, 0);
    while !table.is_empty() {
        let before = ended;
        table.advance(1_000_000, &mut |_: &Connection, _: CloseReason| ended += 1);
        assert!(ended > before && ended - before <= CHECKED);
        assert_eq!(table.is_behind(), !table.is_empty());
        calls += 1;
    }
    assert_eq!(ended, 50_000);
    assert!(calls <= 50_000 / CHECKED + 1);
}

#[test]
fn an_idle_call_after_a_pause_ends_more() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    for number in 0..50_000 {
        table.add(0, number, proto::UDP).unwrap();
    }
    for max in [MAX_CHECKED as usize, CHECKED] {
        let mut ended = 0;
        table.advance_idle(1_000_000, &mut |_: &Connection, _: CloseReason| ended += 1);
        assert_eq!(ended, max);
    }
}

#[test]
fn a_leap_of_time_ends_all_and_time_never_goes_back() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    for number in 0..2000 {
        table.add(5000, number, proto::UDP).unwrap();
    }
    table.advance(0, &mut nobody);
    table.add(0, 5000, proto::UDP).unwrap();
    let id = table.find(&client(5000, proto::UDP)).unwrap().0;
    assert_eq!(table.get(id).idle_ms(5000), 0, "made at the latest time that was passed");
    let mut ended = 0;
    table.advance(1 << 50, &mut |_: &Connection, _: CloseReason| ended += 1);
    assert_eq!((ended, table.len()), (2001, 0));
    table.add(0, 1, proto::UDP).unwrap();
    table.advance_fully((1 << 50) + 119_999, &mut nobody);
}

#[test]
fn connections_move_to_another_table() {
    let mut old = ConnectionTable::new(Seed::repeatable(1));
    let ids: Vec<ConnId> =
        (0..100).map(|number| old.add(u64::from(number), number, proto::TCP).unwrap()).collect();
    ids.iter().step_by(2).for_each(|id| old.establish(500, *id));
    let mut snapshots = Vec::new();
    assert_eq!(
        old.scan(ConnId::FIRST, usize::MAX, &mut |_, connection| snapshots.push(connection.snapshot(10_500))),
        None
    );
    let mut new = ConnectionTable::new(Seed::repeatable(2));
    for snapshot in &snapshots {
        new.restore(1_000_000_000_000, snapshot, &mut nobody).unwrap();
        assert_eq!(new.restore(0, snapshot, &mut nobody), Err(InsertError::Taken));
    }
    assert_eq!((new.len(), new.half_open()), (100, 50));
    let (id, _) = new.find(&client(2, proto::TCP)).unwrap();
    let was = new.get(id).snapshot(1_000_000_000_000);
    assert_eq!((was.idle_ms, was.age_ms / 16, was.state), (10_000, 10_498 / 16, ConnState::Established));
    let data =
        TcpSegment { flags: ACK, seq: 101, ack: 501, window: 1000, payload: 10, ..TcpSegment::default() };
    let data = TrackedHeader::Tcp(data);
    assert_eq!(new.touch(id, Direction::Forward, 0, 60, Some(&data)), TrackOutcome::Stays);
}

#[test]
fn a_scan_tells_each_once_however_it_is_cut() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    let ids: Vec<ConnId> = (0..1000).map(|number| table.add(0, number, proto::UDP).unwrap()).collect();
    for id in ids.iter().step_by(3) {
        table.remove(*id);
    }
    for max in [1, 7, 1000, usize::MAX] {
        let (mut seen, mut from) = (Vec::new(), Some(ConnId::FIRST));
        while let Some(id) = from {
            from = table.scan(id, max, &mut |id, _| seen.push(id));
        }
        let expected = ids.iter().enumerate().filter(|(at, _)| at % 3 != 0).map(|(_, id)| *id);
        assert!(seen.into_iter().eq(expected));
    }
}

#[test]
fn growing_loses_nobody_and_stays_within_its_bytes() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    let many = 1_000_000u32;
    let mut max = 0.0f64;
    for number in 0..many {
        table.add(0, number, proto::UDP).unwrap();
        if number >= 250_000 && number.is_multiple_of(1000) {
            max = max.max(table.memory() as f64 / f64::from(number + 1));
        }
        if number.is_power_of_two() || number == many - 1 {
            let tuples: Vec<Tuple> = (0..=number)
                .rev()
                .step_by(1 + number as usize / 3000)
                .flat_map(|number| [client(number, proto::UDP), answer(&client(number, proto::UDP))])
                .collect();
            let mut found = vec![None; tuples.len()];
            table.find_all(&tuples, &mut found);
            for (tuple, found) in tuples.iter().zip(found) {
                let (id, direction) = found.expect("found");
                assert_eq!(table.get(id).tuple(direction), *tuple);
            }
        }
    }
    let each = table.memory() as f64 / f64::from(many);
    println!("{each:.1} bytes a connection at {many}, {max:.1} at most from 250,000 on");
    assert!(each <= 224.0 && max <= 224.0, "{each:.1}, {max:.1} bytes a connection");
}

/// All IPv4 tuples have the same hash here, so that only two buckets and the stash are available.
#[test]
fn equal_hashes_are_refused_before_they_cost_much() {
    let mut table = ConnectionTable::new(Seed::repeatable(1));
    table.hasher = TupleHasher::weak();
    let mut made = 0;
    while table.add(0, made, proto::UDP).is_ok() {
        made += 1;
        assert!(made < 1000, "bounded");
    }
    assert!(made > 100);
    assert_eq!(table.len(), made as usize);
    assert!(table.memory() < 1_000_000);
    for number in 0..made {
        let forward = client(number, proto::UDP);
        let (id, direction) = table.find(&forward).unwrap();
        assert_eq!((table.find(&answer(&forward)).unwrap().0, direction), (id, Direction::Forward));
    }
    let refused = client(made, proto::UDP);
    assert!(table.find(&refused).is_none() && table.find(&answer(&refused)).is_none());
    for number in 0..made {
        let (id, _) = table.find(&client(number, proto::UDP)).unwrap();
        table.remove(id);
    }
    assert!(table.is_empty());
    assert!(table.add(0, made, proto::UDP).is_ok());
}
