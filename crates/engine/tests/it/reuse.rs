//! Connections whose ends and ports are those of one before: each has its own stream.

use crate::host::Middlebox;
use crate::tcp_ends::{A, ACK, B, CLIENT, End, FIN, Read, SERVER, SYN, all, connect, segment, sent};
use mmb_engine::{DropReason, Verdict};
use mmb_packet::PortId;

const RULE: &str = "add-stateful tcp-dport 80 stream \"ATTACK\" mod stream \"(gone)(gone)\"";

/// A connection from these first numbers, whose bytes are edited.
#[track_caller]
fn assert_edited(mmb: &mut Middlebox, [ours, theirs]: [u32; 2]) {
    connect(mmb, [ours + 1, theirs + 1]);
    let done = all(mmb, A, &[segment(CLIENT, SERVER, ACK, (ours + 1, theirs + 1), b"an ATTACK")]);
    let payload = b"an (gone)(gone)".to_vec();
    assert_eq!(sent(&done, B), [Read { flags: ACK, seq: ours + 1, ack: theirs + 1, payload }]);
    let done = all(mmb, B, &[segment(SERVER, CLIENT, ACK, (theirs + 1, ours + 16), b"ok")]);
    let payload = b"ok".to_vec();
    assert_eq!(sent(&done, A), [Read { flags: ACK, seq: theirs + 1, ack: ours + 10, payload }]);
    assert_eq!(mmb.list().len(), 1);
}

/// Both ends close it.
fn close(mmb: &mut Middlebox, [ours, theirs]: [u32; 2]) {
    all(mmb, A, &[segment(CLIENT, SERVER, FIN | ACK, (ours + 10, theirs + 3), b"")]);
    all(mmb, B, &[segment(SERVER, CLIENT, FIN | ACK, (theirs + 3, ours + 17), b"")]);
    all(mmb, A, &[segment(CLIENT, SERVER, ACK, (ours + 11, theirs + 4), b"")]);
}

#[test]
fn what_was_picked_up_and_never_answered_gives_way() {
    for payload in [&b""[..], b"late bytes"] {
        let mut mmb = Middlebox::new(RULE);
        all(&mut mmb, A, &[segment(CLIENT, SERVER, ACK, (77_000, 99_000), payload)]);
        assert_eq!(mmb.list()[0].state, "unreplied");
        assert_edited(&mut mmb, [4_000_000_000, 5000]);
    }
}

#[test]
fn so_does_what_the_server_was_picked_up_with() {
    let mut mmb =
        Middlebox::new("add-stateful tcp-dport 1-65535 stream \"ATTACK\" mod stream \"(gone)(gone)\"");
    all(&mut mmb, B, &[segment(SERVER, CLIENT, ACK, (99_000, 77_000), b"late")]);
    assert_eq!(mmb.list()[0].state, "unreplied");
    assert_edited(&mut mmb, [4_000_000_000, 5000]);
}

#[test]
fn a_syn_without_an_answer_gives_way() {
    let mut mmb = Middlebox::new(RULE);
    all(&mut mmb, A, &[segment(CLIENT, SERVER, SYN, (100, 0), b"")]);
    mmb.wait(3);
    assert_edited(&mut mmb, [4_000_000_000, 5000]);
}

/// While there is no rule, a SYN passes without a connection. The one before it is over all the same: the answer is not held to its numbers.
#[test]
fn a_syn_that_no_rule_is_about_ends_what_was_there() {
    for policy in ["", "add-stateful tcp-dport 443 accept"] {
        let mut mmb = Middlebox::new(RULE);
        let numbers = [1000, 2000];
        assert_edited(&mut mmb, numbers);
        close(&mut mmb, numbers);
        for text in [policy, RULE] {
            mmb.engine.publish(&crate::host::policy(text)).expect("a policy");
            let [ours, theirs] = numbers.map(|number| number + 1_000_000);
            let syn = segment(CLIENT, SERVER, SYN, (ours, 0), b"");
            let answer = segment(SERVER, CLIENT, SYN | ACK, (theirs, ours + 1), b"");
            if text == policy {
                assert_eq!(all(&mut mmb, A, std::slice::from_ref(&syn)), [(Verdict::Send(PortId(B)), syn)]);
                assert_eq!(mmb.list(), []);
            }
            assert_eq!(all(&mut mmb, B, std::slice::from_ref(&answer)), [(Verdict::Send(PortId(A)), answer)]);
        }
        let count = |(why, count): &(&str, u64)| if *why == "out-of-window" { *count } else { 0 };
        let summary = mmb.engine.connections().summary();
        assert_eq!(summary.invalid.iter().map(count).sum::<u64>(), 0, "{:?}", summary.invalid);
    }
}

/// A connection in time-wait has no stream: far more connections than there may be streams are edited, one after the other.
#[test]
fn what_is_closed_counts_as_no_stream() {
    for target in ["mod stream \"(gone)(gone)\"", "mask stream", "close"] {
        let text = if target == "close" { "BAD" } else { "ATTACK" };
        let mut mmb = Middlebox::new(&format!(
            "set stream max 2\nadd-stateful tcp-dport 80 stream \"{text}\" {target}"
        ));
        let grown = if target.starts_with("mod") { 6 } else { 0 };
        for port in 5000..5020 {
            let client = (CLIENT.0, port);
            exchange(&mut mmb, client, grown, target != "close");
            mmb.wait(0);
        }
        let listed = mmb.list();
        assert_eq!((listed.len(), listed.iter().filter(|info| info.stream.is_some()).count()), (20, 0));
        assert!(listed.iter().all(|info| info.state == "time-wait"));
        let summary = mmb.ask(|connections| connections.stream_summary()).expect("the worker answers");
        assert_eq!(
            (summary[0].usage.streams, summary[0].unfit),
            (0, 0),
            "closed ones are followed to their end"
        );
        assert_eq!(mmb.engine.not_applied().iter().map(|(_, count)| count).sum::<u64>(), 0);
    }
}

/// A connection with an exchange, closed by both ends. `grown` is what its edit adds.
fn exchange(mmb: &mut Middlebox, client: End, grown: u32, is_edited: bool) {
    let [ours, theirs] = [1000, 2000];
    let near = |flags, seq, ack, payload: &[u8]| segment(client, SERVER, flags, (seq, ack), payload);
    let far = |flags, seq, ack, payload: &[u8]| segment(SERVER, client, flags, (seq, ack), payload);
    all(mmb, A, &[near(SYN, ours - 1, 0, b"")]);
    all(mmb, B, &[far(SYN | ACK, theirs - 1, ours, b"")]);
    all(mmb, A, &[near(ACK, ours, theirs, b"")]);
    let done = all(mmb, A, &[near(ACK, ours, theirs, b"an ATTACK")]);
    assert_eq!(sent(&done, B)[0].payload == b"an ATTACK", !is_edited);
    all(mmb, B, &[far(FIN | ACK, theirs, ours + 9 + grown, b"bye")]);
    all(mmb, A, &[near(FIN | ACK, ours + 9, theirs + 4, b"")]);
    let done = all(mmb, B, &[far(ACK, theirs + 4, ours + 10 + grown, b"")]);
    assert_eq!((sent(&done, A)[0].ack, sent(&done, A)[0].seq), (ours + 10, theirs + 4));
}

/// The last acknowledgment was lost: what is sent again has the right numbers, and what is new does not pass.
#[test]
fn what_is_closed_is_closed() {
    let mut mmb = Middlebox::new(RULE);
    exchange(&mut mmb, CLIENT, 6, true);
    let near = |flags, seq, payload: &[u8]| segment(CLIENT, SERVER, flags, (seq, 2004), payload);
    for _ in 0..3 {
        let done = all(&mut mmb, A, &[near(FIN | ACK, 1009, b"")]);
        assert_eq!(sent(&done, B), [Read { flags: FIN | ACK, seq: 1015, ack: 2004, payload: vec![] }]);
        let done = all(&mut mmb, A, &[near(FIN | ACK, 1003, b"ATTACK")]);
        assert_eq!(sent(&done, B)[0].seq, 1009);
        let done = all(&mut mmb, B, &[segment(SERVER, CLIENT, ACK, (2004, 1016), b"")]);
        assert_eq!(sent(&done, A), [Read { flags: ACK, seq: 2004, ack: 1010, payload: vec![] }]);
        let done = all(&mut mmb, A, &[near(ACK, 1010, b"an ATTACK")]);
        assert_eq!(done[0].0, Verdict::Drop(DropReason::StreamOutOfWindow));
        let done = all(&mut mmb, B, &[segment(SERVER, CLIENT, SYN | ACK, (9000, 1010), b"")]);
        assert_eq!(done[0].0, Verdict::Drop(DropReason::StreamOutOfWindow));
    }
    assert_edited(&mut mmb, [1_000_000, 5000]);
}

#[test]
fn a_connection_follows_one_that_was_closed() {
    let mut mmb = Middlebox::new(RULE);
    let mut numbers = [1000, 2000];
    for round in 0..20 {
        assert_edited(&mut mmb, numbers);
        close(&mut mmb, numbers);
        assert_eq!(mmb.list()[0].state, "time-wait", "{round}");
        mmb.wait(round % 3);
        numbers = numbers.map(|number| number + 100_000);
    }
}
