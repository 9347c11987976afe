//! Connections with rules on streams from one engine to another: those that cannot go on there are ended, and not passed on.

use crate::host::Middlebox;
use crate::tcp_ends::{A, ACK, B, CLIENT, FORWARD, REPLY, RST, SERVER, SYN, connect, one, request, segment};
use mmb_engine::{DropReason, SavedState, StateWriter, Verdict};
use mmb_packet::PortId;
use mmb_policy::RuleId;
use mmb_testkit::{Ip4, Udp, Upper};

/// The flags, the sequence and the acknowledgment number of a frame.
fn read(frame: &[u8]) -> (u8, u32, u32) {
    let read = crate::tcp_ends::read(frame);
    (read.flags, read.seq, read.ack)
}

/// Milliseconds since 1970 when a state is saved.
const SAVED_MS: u64 = 1_700_000_000_000;
const GROWS: &str = "add-stateful id 1 tcp-dport 80 stream \"ATTACK\" mod stream \"(gone)(gone)\"";

/// Another engine under a policy with the connections of this one, and how many of them are over.
fn restarted(before: &mut Middlebox, policy: &str) -> (Middlebox, u64) {
    let header = before.engine.state_header(SAVED_MS);
    let (state, over) = before.ask(|connections| {
        let mut state = Vec::new();
        let mut writer = StateWriter::new(&mut state, &header).expect("memory takes it");
        let (_, over) = connections.save(&mut writer).expect("the worker answers");
        writer.end(&[]).expect("memory takes it");
        (state, over)
    });
    let mut after = Middlebox::new(policy);
    let state = SavedState::read(&mut &state[..], 100).expect("a state");
    let rules = [(RuleId(1), RuleId(1))].into();
    let map = after.engine.state_map(&state.header, SAVED_MS, rules);
    let loaded = after.ask(|connections| connections.load(&state, || map, &mut |_| {}));
    assert_eq!(loaded.expect("the worker answers").connections, 1);
    (after, over)
}

/// A packet of a connection that is over is dropped and answered: its sender gets a RST with the number that it acknowledged. As long as its receiver
/// was not told, that gets one with the packet's number, to which it may answer.
#[track_caller]
fn assert_answered(mmb: &mut Middlebox, port: u16, frame: &[u8], tells_receiver: bool) {
    let done = one(mmb, port, frame.to_vec());
    assert_eq!(done.len(), 2 + usize::from(tells_receiver), "{done:?}");
    assert_eq!(done[0].0, Verdict::Drop(DropReason::StreamLost));
    let (_, seq, ack) = read(frame);
    assert_eq!((done[1].0, read(&done[1].1)), (Verdict::Send(PortId(port)), (RST, ack, 0)));
    if tells_receiver {
        assert_eq!((done[2].0, read(&done[2].1)), (Verdict::Send(PortId(A + B - port)), (RST, seq, 0)));
    }
}

#[test]
fn a_connection_with_edits_in_flight_is_over() {
    for policy in [GROWS, "add-stateful id 1 tcp-dport 80 accept", "set conn invalid pass"] {
        let mut before = Middlebox::new(GROWS);
        connect(&mut before, [FORWARD, REPLY]);
        one(&mut before, A, request(0, b"an ATTACK"));
        let (mut after, over) = restarted(&mut before, policy);
        assert_eq!(over, 1);
        // The server acknowledges what it got: nothing that the client sent.
        assert_answered(&mut after, B, &segment(SERVER, CLIENT, ACK, (REPLY, FORWARD + 15), b"reply"), true);
        assert_answered(&mut after, A, &request(0, b"an ATTACK"), false);
        assert_answered(&mut after, A, &request(0, b"an ATTACK"), false);
        let done = one(&mut after, A, segment(CLIENT, SERVER, RST, (FORWARD, 0), b""));
        assert_eq!(done.len(), 1, "a RST is not answered: {done:?}");
        assert_ne!(done[0].0, Verdict::Send(PortId(B)));
    }
}

#[test]
fn an_end_that_was_told_may_begin_anew() {
    let mut before = Middlebox::new(GROWS);
    connect(&mut before, [FORWARD, REPLY]);
    one(&mut before, A, request(0, b"an ATTACK"));
    let (mut after, _) = restarted(&mut before, GROWS);
    let [ours, theirs] = [1_000_000_000, 500];
    let done = one(&mut after, A, segment(CLIENT, SERVER, SYN, (ours - 1, 0), b""));
    let [(Verdict::Drop(DropReason::StreamLost), _), (Verdict::Send(PortId(A)), answer)] = &done[..] else {
        panic!("{done:?}")
    };
    assert_eq!(read(answer), (RST | ACK, 0, ours));
    after.now_ms += 1000;
    connect(&mut after, [ours, theirs]);
    let done = one(&mut after, A, segment(CLIENT, SERVER, ACK, (ours, theirs), b"an ATTACK"));
    assert_eq!(done[0].0, Verdict::Send(PortId(B)));
    assert!(done[0].1.windows(12).any(|bytes| bytes == b"(gone)(gone)"));
    assert_eq!(after.list().len(), 1);
}

#[test]
fn what_a_rule_has_ended_stays_so() {
    for (target, answers) in [("close", 2), ("drop", 0)] {
        let mut before =
            Middlebox::new(&format!("add-stateful id 1 tcp-dport 80 stream \"ATTACK\" {target}"));
        connect(&mut before, [FORWARD, REPLY]);
        one(&mut before, A, request(0, b"an ATTACK"));
        let (mut after, over) = restarted(&mut before, "add-stateful id 1 tcp-dport 80 accept");
        assert_eq!(over, 1);
        let done = one(&mut after, A, request(9, b"more"));
        assert_eq!((done[0].0, done.len()), (Verdict::Drop(DropReason::StreamLost), 1 + answers), "{done:?}");
    }
}

#[test]
fn what_an_end_has_reset_is_not_told_as_lost() {
    let policy = "add-stateful id 1 tcp-dport 80 stream \"ATTACK\" close";
    let mut before = Middlebox::new(policy);
    connect(&mut before, [FORWARD, REPLY]);
    one(&mut before, A, request(0, b"harmless"));
    one(&mut before, A, segment(CLIENT, SERVER, RST, (FORWARD + 8, 0), b""));
    // It was sent before the RST came.
    let done = one(&mut before, B, segment(SERVER, CLIENT, ACK, (REPLY, FORWARD + 8), b"late"));
    assert!(matches!(done[0].0, Verdict::Drop(_)), "{done:?}");
    let (_, over) = restarted(&mut before, policy);
    assert_eq!(over, 0);
}

#[test]
fn others_go_on() {
    let mut before = Middlebox::new(GROWS);
    connect(&mut before, [FORWARD, REPLY]);
    one(&mut before, A, request(0, b"an ATTACK"));
    one(&mut before, B, segment(SERVER, CLIENT, ACK, (REPLY, FORWARD + 15), b""));
    let (mut after, over) = restarted(&mut before, GROWS);
    assert_eq!(over, 0);
    let done = one(&mut after, A, request(9, b"more"));
    assert_eq!((done[0].0, read(&done[0].1)), (Verdict::Send(PortId(B)), (ACK, FORWARD + 15, REPLY)));
    // Datagrams have no numbers.
    let udp = |payload: &[u8]| {
        let udp = Udp { sport: 5000, dport: 53, payload: payload.to_vec(), ..Udp::default() };
        Ip4 { source: CLIENT.0, destination: SERVER.0, ..Ip4::new(Upper::Udp(udp)) }.frame().bytes()
    };
    let policy = "add-stateful id 1 udp-dport 53 stream \"ATTACK\" mod stream \"(gone)(gone)\"";
    let mut before = Middlebox::new(policy);
    one(&mut before, A, udp(b"an ATTACK"));
    let (mut after, over) = restarted(&mut before, policy);
    assert_eq!((over, one(&mut after, A, udp(b"more"))[0].0), (0, Verdict::Send(PortId(B))));
}

#[test]
fn ends_of_a_killed_connection_with_edits_are_told() {
    let mut mmb = Middlebox::new(GROWS);
    connect(&mut mmb, [FORWARD, REPLY]);
    one(&mut mmb, A, request(0, b"an ATTACK"));
    let killed = mmb.ask(|connections| connections.kill(&mmb_policy::ConnectionFilter::ALL));
    assert_eq!(killed.ok(), Some(1));
    // What was made is given out with the next packet, which is the server's acknowledgment.
    let done = one(&mut mmb, B, segment(SERVER, CLIENT, ACK, (REPLY, FORWARD + 15), b""));
    assert_eq!(done[0].0, Verdict::Drop(DropReason::StreamLost));
    let resets: Vec<_> = done[1..].iter().map(|(verdict, frame)| (*verdict, read(frame))).collect();
    // The client has the number 9 bytes behind its first one, the server 15.
    let to_client = |seq, ack, flags| (Verdict::Send(PortId(A)), (flags, seq, ack));
    assert!(resets.contains(&(Verdict::Send(PortId(B)), (RST | ACK, FORWARD + 15, REPLY))), "{resets:?}");
    assert!(resets.contains(&to_client(REPLY, FORWARD, RST | ACK)), "{resets:?}");
}
