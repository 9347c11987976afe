//! Connections that one end makes up of others, of which its peer sees a single one: no guard misses what is cut in two by them.

use crate::host::Middlebox;
use crate::tcp_ends::{A, ACK, B, CLIENT, FIN, RST, SERVER, SYN, one, segment};
use mmb_engine::{DropReason, Verdict};
use mmb_packet::PortId;

/// The first numbers of both ends.
const OURS: u32 = 1000;
const THEIRS: u32 = 5000;

/// What becomes of a packet of the client: numbers are offsets behind the SYNs of both ends.
fn client(mmb: &mut Middlebox, flags: u8, offset: u32, payload: &[u8]) -> Verdict {
    let ack = if flags & ACK == 0 { 0 } else { THEIRS + 1 };
    verdict(mmb, A, segment(CLIENT, SERVER, flags, ((OURS + 1).wrapping_add(offset), ack), payload))
}

fn server(mmb: &mut Middlebox, flags: u8, (offset, acked): (u32, u32), payload: &[u8]) -> Verdict {
    let numbers = ((THEIRS + 1).wrapping_add(offset), OURS + 1 + acked);
    verdict(mmb, B, segment(SERVER, CLIENT, flags, numbers, payload))
}

fn verdict(mmb: &mut Middlebox, port: u16, frame: Vec<u8>) -> Verdict {
    one(mmb, port, frame)[0].0
}

const SENT: Verdict = Verdict::Send(PortId(B));
const BACK: Verdict = Verdict::Send(PortId(A));
const REFUSED: Verdict = Verdict::Drop(DropReason::StreamOutOfWindow);
/// The offset of a SYN whose first byte has the offset 0.
const BEFORE: u32 = u32::MAX;

const GUARDS: [&str; 4] = [
    "add-stateful tcp-dport 80 stream-forward \"ATTACK\" close",
    "add-stateful tcp-dport 80 stream \"ATTACK\" close",
    "add-stateful tcp-dport 80 stream-forward \"ATTACK\" mask stream-forward",
    "add-stateful tcp-dport 80 http-uri \"/ATTACK\" close",
];

fn connected(rule: &str) -> Middlebox {
    let mut mmb = Middlebox::new(rule);
    assert_eq!(client(&mut mmb, SYN, BEFORE, b""), SENT);
    assert_eq!(server(&mut mmb, SYN | ACK, (BEFORE, 0), b""), BACK);
    assert_eq!(client(&mut mmb, ACK, 0, b""), SENT);
    mmb
}

#[test]
fn an_answer_to_the_connection_before_completes_no_other() {
    for rule in GUARDS {
        for flags in [RST, RST | ACK] {
            let mut mmb = connected(rule);
            client(&mut mmb, ACK, 0, b"ATT");
            assert_eq!(client(&mut mmb, flags, 3, b""), SENT, "{rule}");
            // The SYN may repeat the number, or go on behind the bytes.
            for offset in [BEFORE, 2] {
                client(&mut mmb, SYN, offset, b"");
                assert_eq!(server(&mut mmb, SYN | ACK, (BEFORE, 0), b""), REFUSED, "{rule}");
                let rest = client(&mut mmb, ACK, 3, b"ACK");
                assert!(matches!(rest, Verdict::Drop(_)), "{rule}: {rest:?}");
                client(&mut mmb, RST, 3, b"");
            }
        }
    }
}

#[test]
fn packets_of_the_connection_before_begin_no_direction() {
    for rule in GUARDS {
        let mut mmb = connected(rule);
        client(&mut mmb, ACK, 0, b"ATT");
        client(&mut mmb, RST, 3, b"");
        client(&mut mmb, SYN, 2, b"");
        // The server's late acknowledgment, and bytes of it.
        server(&mut mmb, ACK, (0, 3), b"");
        server(&mut mmb, ACK, (0, 3), b"late");
        let rest = client(&mut mmb, ACK, 3, b"ACK");
        assert!(matches!(rest, Verdict::Drop(_)), "{rule}: {rest:?}");
    }
}

#[test]
fn another_connection_begins_behind_a_reset() {
    for rule in GUARDS {
        let mut mmb = connected(rule);
        assert_eq!(server(&mut mmb, RST, (0, 0), b""), BACK);
        assert_eq!(client(&mut mmb, SYN, 99_999, b""), SENT, "{rule}");
        // With another number of the server.
        assert_eq!(server(&mut mmb, SYN | ACK, (77_777, 100_000), b""), BACK, "{rule}");
    }
}

#[test]
fn data_in_a_syn_that_nobody_answered_are_not_followed_by_another_syn() {
    let mut mmb = Middlebox::new(GUARDS[0]);
    assert_eq!(client(&mut mmb, SYN, BEFORE, b"ATT"), SENT);
    client(&mut mmb, RST, 3, b"");
    assert_eq!(client(&mut mmb, SYN, 2, b""), REFUSED);
    // It answers the first one, and would complete the second one.
    server(&mut mmb, SYN | ACK, (BEFORE, 3), b"");
    let rest = client(&mut mmb, ACK, 3, b"ACK");
    assert!(matches!(rest, Verdict::Drop(_)), "{rest:?}");
}

#[test]
fn behind_its_end_a_connection_has_no_syn_ack() {
    for rule in &GUARDS[..3] {
        let mut mmb = connected(rule);
        assert_eq!(client(&mut mmb, FIN | ACK, 0, b""), SENT);
        assert_eq!(server(&mut mmb, FIN | ACK, (0, 1), b""), BACK);
        verdict(&mut mmb, A, segment(CLIENT, SERVER, ACK, (OURS + 2, THEIRS + 2), b""));
        // A number far below.
        let low = OURS.wrapping_sub(1_000_000_000);
        let answer = segment(SERVER, CLIENT, SYN | ACK, (THEIRS + 900_000, low.wrapping_add(1)), b"");
        assert_eq!(verdict(&mut mmb, B, answer.clone()), REFUSED, "{rule}");
        // A SYN begins another connection, which is guarded as the first one was.
        assert_eq!(verdict(&mut mmb, A, segment(CLIENT, SERVER, SYN, (low, 0), b"")), SENT, "{rule}");
        assert_eq!(verdict(&mut mmb, B, answer), BACK, "{rule}");
        let listed = mmb.list();
        assert!(listed.len() == 1 && listed[0].stream.is_some(), "{rule}: {listed:?}");
    }
}

#[test]
fn a_reset_gives_its_place_to_others() {
    for rule in GUARDS {
        let mut mmb = Middlebox::new(&format!("set stream max 1\nset stream unfit close\n{rule}"));
        for port in 5000..5020 {
            let from = (CLIENT.0, port);
            assert_eq!(verdict(&mut mmb, A, segment(from, SERVER, SYN, (OURS, 0), b"")), SENT, "{rule}");
            let answer = segment(SERVER, from, SYN | ACK, (THEIRS, OURS + 1), b"");
            assert_eq!(verdict(&mut mmb, B, answer), BACK);
            let reset = segment(from, SERVER, RST, (OURS + 1, 0), b"");
            assert_eq!(verdict(&mut mmb, A, reset), SENT);
            let late = segment(SERVER, from, ACK, (THEIRS + 1, OURS + 1), b"late");
            assert_eq!(verdict(&mut mmb, B, late), REFUSED, "what comes behind a reset goes nowhere");
            assert!(mmb.list().iter().all(|info| info.stream.is_none()), "{rule}");
        }
    }
}

#[test]
fn half_open_connections_give_way() {
    let mut mmb = Middlebox::new(&format!("set stream max 4\nset stream unfit close\n{}", GUARDS[0]));
    let open = |mmb: &mut Middlebox, port| {
        let syn = segment((CLIENT.0, port), SERVER, SYN, (OURS, 0), b"");
        verdict(mmb, A, syn)
    };
    (6000..6004).for_each(|port| assert_eq!(open(&mut mmb, port), SENT));
    // Not at once: they may be answered.
    assert_eq!(open(&mut mmb, 7000), Verdict::Drop(DropReason::StreamUnfit));
    mmb.now_ms += 2000;
    (7001..7005).for_each(|port| assert_eq!(open(&mut mmb, port), SENT, "{port}"));
    // One that was answered does not.
    let answered = (CLIENT.0, 7001);
    assert_eq!(verdict(&mut mmb, B, segment(SERVER, answered, SYN | ACK, (THEIRS, OURS + 1), b"")), BACK);
    mmb.now_ms += 2000;
    for port in 7006..7016 {
        open(&mut mmb, port);
    }
    let data = segment(answered, SERVER, ACK, (OURS + 1, THEIRS + 1), b"data");
    assert_eq!(verdict(&mut mmb, A, data), SENT);
}
