//! Rules that edit streams, from outside: the packets that go on and those that are made. Expected packets are built anew.

use crate::host::Middlebox;
use crate::tcp_ends::{
    A, ACK, B, CLIENT, End, FIN, FORWARD, PSH, REPLY, Read, SERVER, SYN, all, connect, request, segment, sent,
};
use mmb_engine::{DropReason, GeneratedKind, NoCycles, Verdict};
use mmb_packet::PortId;
use mmb_policy::RuleId;
use mmb_rewrite::NotApplied;
use mmb_testkit::{Ip4, Tcp, Udp, Upper};
use std::net::Ipv4Addr;

/// What the middlebox does when time has passed.
fn later(mmb: &mut Middlebox, ms: u64) -> Vec<(Verdict, Vec<u8>)> {
    mmb.now_ms += ms;
    mmb.worker.process(mmb.now_ms * 1_000_000, &NoCycles, &mut [], &mut []);
    all(mmb, A, &[])
}

fn handshake(mmb: &mut Middlebox) {
    connect(mmb, [FORWARD, REPLY]);
}

fn answer(ack: u32) -> Vec<u8> {
    segment(SERVER, CLIENT, ACK, (REPLY, FORWARD + ack), b"")
}

#[test]
fn a_mask_keeps_the_length() {
    let mut mmb = Middlebox::new("add-stateful tcp-dport 80 stream \"ATTACK\" mask stream");
    handshake(&mut mmb);
    let done = all(&mut mmb, A, &[request(0, b"an ATTACK here")]);
    let payload = b"an ****** here".to_vec();
    assert_eq!(sent(&done, B), [Read { flags: ACK, seq: FORWARD, ack: REPLY, payload }]);
    assert_eq!(mmb.engine.rule_count(RuleId(1)).hits, 1);
    // What is sent again is edited again, however it is cut.
    let done = all(&mut mmb, A, &[request(6, b"ACK h")]);
    assert_eq!(sent(&done, B)[0].payload, b"****** h");
    assert_eq!(mmb.engine.rule_count(RuleId(1)).hits, 1, "counted once");
}

#[test]
fn a_mask_has_a_text() {
    let mut mmb =
        Middlebox::new("add-stateful tcp-dport 80 stream-forward \"ATTACK\" mask stream-forward \"BLOCKED\"");
    handshake(&mut mmb);
    let done = all(&mut mmb, A, &[request(0, b"ATTACK")]);
    assert_eq!(sent(&done, B)[0].payload, b"BLOCKE");
}

#[test]
fn numbers_follow_what_grows() {
    let mut mmb = Middlebox::new(
        "add-stateful tcp-dport 80 stream-forward \"cat\" mod stream-forward \"elephant \\m\"",
    );
    handshake(&mut mmb);
    let done = all(&mut mmb, A, &[request(0, b"a cat ")]);
    assert_eq!(sent(&done, B)[0].payload, b"a elephant cat ");
    let done = all(&mut mmb, A, &[request(6, b"sat")]);
    let [next] = &sent(&done, B)[..] else { panic!("{done:?}") };
    assert_eq!((next.seq, &next.payload[..]), (FORWARD + 15, &b"sat"[..]));
    // The server acknowledges what it got.
    let done = all(&mut mmb, B, &[answer(15)]);
    assert_eq!(sent(&done, A)[0].ack, FORWARD + 6);
    let done = all(&mut mmb, B, &[answer(18)]);
    assert_eq!(sent(&done, A)[0].ack, FORWARD + 9);
    let [info] = &mmb.list()[..] else { panic!("one connection") };
    assert_eq!(info.state, "established");
}

#[test]
fn what_is_removed_is_acknowledged() {
    let mut mmb = Middlebox::new("add-stateful tcp-dport 80 stream \"ATTACK\" strip stream");
    handshake(&mut mmb);
    let done = all(&mut mmb, A, &[request(0, b"ATTACK")]);
    assert_eq!(sent(&done, B), []);
    let acknowledgment = Read { flags: ACK, seq: REPLY, ack: FORWARD + 6, payload: Vec::new() };
    assert_eq!(sent(&done, A), [acknowledgment]);
    assert_eq!(done[0].0, Verdict::Absorbed);
    assert_eq!(
        (mmb.engine.absorbed(), mmb.engine.generated()),
        (1, vec![(GeneratedKind::Acknowledgment, 1)])
    );
    let done = all(&mut mmb, A, &[request(6, b"rest")]);
    assert_eq!(sent(&done, B)[0].seq, FORWARD);
}

#[test]
fn what_is_begun_waits_for_its_time() {
    let mut mmb = Middlebox::new("add-stateful tcp-dport 80 stream \"ATTACK\" strip stream");
    handshake(&mut mmb);
    let done = all(&mut mmb, A, &[request(0, b"an ATT")]);
    assert_eq!(sent(&done, B)[0].payload, b"an ");
    assert_eq!(later(&mut mmb, 50), []);
    let done = later(&mut mmb, 60);
    assert_eq!(sent(&done, B)[0].payload, b"ATT");
    assert_eq!(mmb.engine.not_applied(), [(NotApplied::StreamHoldOver, 1)]);
    // It passed: the rest of it does too.
    let done = all(&mut mmb, A, &[request(6, b"ACK")]);
    assert_eq!(sent(&done, B)[0].payload, b"ACK");
}

#[test]
fn a_packet_that_is_refused_says_nothing_of_those_that_are_made() {
    let mut mmb = Middlebox::new("add-stateful tcp-dport 80 stream \"ATTACK\" strip stream");
    handshake(&mut mmb);
    all(&mut mmb, A, &[request(0, b"an ATT")]);
    // Far beyond the window: nobody has to guess a number for that.
    let segment = Tcp { sport: CLIENT.1, dport: SERVER.1, flags: ACK, seq: 1, ack: 1, ..Tcp::default() };
    let forged = Ip4 { source: CLIENT.0, destination: SERVER.0, ttl: 1, ..Ip4::new(Upper::Tcp(segment)) };
    let done = all(&mut mmb, A, &[forged.frame().bytes()]);
    assert!(matches!(done[0].0, Verdict::Drop(_)), "{done:?}");
    let [(_, made)] = &later(&mut mmb, 110)[..] else { panic!("one packet") };
    assert_eq!(
        (&made[54..], made[22]),
        (&b"ATT"[..], request(0, b"")[22]),
        "the life of the sender's packets"
    );
}

#[test]
fn what_is_begun_may_end_the_connection() {
    let policy = "set stream hold-over close\nadd-stateful tcp-dport 80 stream \"ATTACK\" strip stream";
    let mut mmb = Middlebox::new(policy);
    handshake(&mut mmb);
    all(&mut mmb, A, &[request(0, b"an ATT")]);
    let done = later(&mut mmb, 110);
    assert_eq!((sent(&done, A).len(), sent(&done, B).len()), (1, 1), "{done:?}");
    assert_eq!(sent(&done, B)[0].seq, FORWARD + 3, "the number that the server expects");
    let done = all(&mut mmb, A, &[request(6, b"ACK")]);
    assert_eq!(done[0].0, Verdict::Drop(DropReason::StreamHeld));
}

#[test]
fn a_fin_is_behind_all_bytes() {
    let mut mmb = Middlebox::new("add-stateful tcp-dport 80 stream \"ATTACK\" mod stream \"(gone)(gone)\"");
    handshake(&mut mmb);
    let done = all(
        &mut mmb,
        A,
        &[request(0, b"ATT"), segment(CLIENT, SERVER, FIN | ACK, (FORWARD + 3, REPLY), b"ACK")],
    );
    let got = sent(&done, B);
    let bytes: Vec<u8> = got.iter().flat_map(|segment| segment.payload.clone()).collect();
    assert_eq!(bytes, b"(gone)(gone)");
    assert_eq!(got.last().map(|last| last.flags & FIN), Some(FIN));
    let done = all(&mut mmb, B, &[answer(13)]);
    assert_eq!(sent(&done, A)[0].ack, FORWARD + 7, "six bytes and the FIN");
}

#[test]
fn what_does_not_fit_is_made() {
    let mut mmb = Middlebox::new(&format!(
        "add-stateful tcp-dport 80 stream \"x\" mod stream \"{}\"",
        "y".repeat(1000)
    ));
    handshake(&mut mmb);
    let done = all(&mut mmb, A, &[request(0, b"xx")]);
    let got = sent(&done, B);
    assert_eq!(got.iter().map(|segment| segment.payload.len()).sum::<usize>(), 2000);
    assert!(got.iter().all(|segment| segment.payload.len() <= 60), "the MTU of the port");
    assert_eq!(got.last().map(|last| last.flags), Some(ACK | PSH));
    let mut next = FORWARD;
    for segment in &got {
        assert_eq!(segment.seq, next);
        next += segment.payload.len() as u32;
    }
    assert!(mmb.engine.generated().iter().any(|(kind, _)| *kind == GeneratedKind::Data));
}

#[test]
fn the_longest_of_those_that_begin_first_is_edited_over_all_rules() {
    let mut mmb = Middlebox::new(
        "add-stateful tcp-dport 80 stream-forward \"bcd\" strip stream-forward\n\
         add-stateful tcp-dport 80 stream-forward {\"ab\", \"abcdef\"} mod stream-forward \"<\\m>\"",
    );
    handshake(&mut mmb);
    let done = all(&mut mmb, A, &[request(0, b"xabcd")]);
    assert_eq!(sent(&done, B)[0].payload, b"x", "it may become longer");
    let done = all(&mut mmb, A, &[request(5, b"ebcdz")]);
    assert_eq!(sent(&done, B)[0].payload, b"<ab>cdez");
    assert_eq!((mmb.engine.rule_count(RuleId(1)).hits, mmb.engine.rule_count(RuleId(2)).hits), (1, 1));
}

#[test]
fn close_beats_an_edit() {
    let mut mmb = Middlebox::new(
        "add-stateful tcp-dport 80 stream-forward \"ATTACK\" strip stream-forward\n\
         add-stateful tcp-dport 80 stream-forward \"TACK\" close",
    );
    handshake(&mut mmb);
    let done = all(&mut mmb, A, &[request(0, b"an ATTACK")]);
    assert_eq!(done[0].0, Verdict::Drop(DropReason::Rule));
    assert!(sent(&done, B).iter().all(|segment| segment.payload.is_empty()));
}

#[test]
fn translated_connections_are_edited() {
    let mut mmb = Middlebox::new(
        "add-stateful tcp-dport 80 stream \"ATTACK\" map ip-saddr 200.0.0.1 shuffle tcp-seq-num shuffle tcp-ack-num mod stream \"(gone)!\"",
    );
    let syn = &sent(&all(&mut mmb, A, &[segment(CLIENT, SERVER, SYN, (FORWARD - 1, 0), b"")]), B)[0];
    let outside = mmb.list()[0].clone();
    let port = outside.sent.sport;
    let seen = (Ipv4Addr::new(200, 0, 0, 1), port);
    let reply = segment(SERVER, seen, SYN | ACK, (REPLY - 1, syn.seq + 1), b"");
    let accepted = &sent(&all(&mut mmb, B, &[reply]), A)[0];
    let reply_seq = accepted.seq + 1;
    all(&mut mmb, A, &[segment(CLIENT, SERVER, ACK, (FORWARD, reply_seq), b"")]);
    let done = all(&mut mmb, A, &[segment(CLIENT, SERVER, ACK, (FORWARD, reply_seq), b"an ATTACK")]);
    let [got] = &sent(&done, B)[..] else { panic!("{done:?}") };
    assert_eq!((got.seq, got.ack, &got.payload[..]), (syn.seq + 1, REPLY, &b"an (gone)!"[..]));
    let done = all(&mut mmb, B, &[segment(SERVER, seen, ACK, (REPLY, syn.seq + 11), b"")]);
    assert_eq!(sent(&done, A)[0].ack, FORWARD + 9);
}

#[test]
fn what_a_guard_overwrites_beside_an_edit_has_a_right_checksum() {
    let mut mmb = Middlebox::new(
        "add-stateful tcp-dport 80 stream-forward \"ATTACK\" mask stream-forward\n\
         add-stateful tcp-dport 80 stream-reply \"secret\" close",
    );
    handshake(&mut mmb);
    let done = all(&mut mmb, A, &[request(0, b"an ATTACK")]);
    assert_eq!(sent(&done, B)[0].payload, b"an ******");
    let reply = |payload| segment(SERVER, CLIENT, ACK, (REPLY, FORWARD + 9), payload);
    let first = all(&mut mmb, B, &[reply(b"hello")]);
    assert_eq!(first[0], (Verdict::Send(PortId(A)), reply(b"hello")));
    // Other bytes in their place.
    assert_eq!(all(&mut mmb, B, &[reply(b"HELLO")]), first);
}

fn datagram(payload: &[u8]) -> Vec<u8> {
    let udp = Udp { sport: 5000, dport: 5000, payload: payload.to_vec(), ..Udp::default() };
    Ip4 { source: CLIENT.0, destination: SERVER.0, ..Ip4::new(Upper::Udp(udp)) }.frame().bytes()
}

#[test]
fn datagrams_are_edited() {
    let mut mmb = Middlebox::new("add-stateful udp-dport 5000 stream \"ATTACK\" strip stream");
    let done = all(&mut mmb, A, &[datagram(b"an ATTACK here"), datagram(b"nothing")]);
    assert_eq!(done[0], (Verdict::Send(PortId(B)), datagram(b"an  here")));
    assert_eq!(done[1], (Verdict::Send(PortId(B)), datagram(b"nothing")));
}

#[test]
fn a_match_over_two_datagrams_is_edited_in_the_first() {
    let mut mmb = Middlebox::new("add-stateful udp-dport 5000 stream \"ATTACK\" mod stream \"(gone!)\"");
    let payloads = |done: &[(Verdict, Vec<u8>)]| {
        let sent = done.iter().filter(|(verdict, _)| *verdict == Verdict::Send(PortId(B)));
        sent.map(|(_, frame)| String::from_utf8_lossy(&frame[42..]).into_owned()).collect::<Vec<_>>()
    };
    assert_eq!(payloads(&all(&mut mmb, A, &[datagram(b"an ATT")])), [""; 0]);
    assert_eq!((mmb.engine.absorbed(), mmb.engine.generated()), (1, vec![]));
    // What comes behind it is made too, in the same order.
    let done = all(&mut mmb, A, &[datagram(b"ACK here"), datagram(b"more")]);
    assert_eq!(payloads(&done), ["an (gone!)", " here", "more"]);
    assert_eq!((mmb.engine.absorbed(), mmb.engine.generated()), (3, vec![(GeneratedKind::Data, 3)]));
    for (behind, (_, made)) in done.iter().rev().take(3).enumerate() {
        // They may be fragmented as those that were absorbed, with the identifications that these had if their sender counts.
        let mut expected = datagram(&made[42..]);
        let id = u16::from_be_bytes([expected[18], expected[19]]).wrapping_sub(behind as u16);
        expected[18..20].copy_from_slice(&id.to_be_bytes());
        // RFC 1624, equation 3: one word was changed.
        let word = |at: usize| u32::from(u16::from_be_bytes([expected[at], expected[at + 1]]));
        let before = word(18) + behind as u32;
        let sum = (!word(24) & 0xffff) + (!before & 0xffff) + word(18);
        let sum = (sum & 0xffff) + (sum >> 16);
        let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
        expected[24..26].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(made, &expected, "with a right checksum");
    }
    // Nothing comes.
    assert_eq!(payloads(&all(&mut mmb, A, &[datagram(b"late ATT")])), [""; 0]);
    assert_eq!(payloads(&later(&mut mmb, 100)), ["late ATT"]);
    assert_eq!(payloads(&all(&mut mmb, A, &[datagram(b"ACK")])), ["ACK"]);
    assert_eq!(mmb.engine.rule_count(RuleId(1)).hits, 1);
    // More than two datagrams have no match.
    let done = all(&mut mmb, A, &[datagram(b"A"), datagram(b"TTAC"), datagram(b"K")]);
    assert_eq!(payloads(&done), ["A", "TTAC", "K"]);
    assert_eq!(mmb.engine.not_applied(), [(NotApplied::StreamHoldOver, 2)]);
    // Packets whose buffers are too short for it do not lose it.
    let long = format!("{}AT", "x".repeat(69));
    let done = all(&mut mmb, A, &[datagram(long.as_bytes()), datagram(b"h"), datagram(b"i")]);
    assert_eq!(payloads(&done), [long.as_str(), "h", "i"]);
    assert_eq!((mmb.engine.absorbed(), mmb.engine.generated()), (10, vec![(GeneratedKind::Data, 10)]));
    assert_eq!(mmb.engine.not_applied(), [(NotApplied::StreamHoldOver, 2)]);
}

#[test]
fn a_datagram_without_room_for_its_edit_passes_as_it_came() {
    let long = "y".repeat(70);
    let mut mmb = Middlebox::new(&format!("add-stateful udp-dport 5000 stream \"x\" mod stream \"{long}\""));
    // The buffer has 64 bytes in front.
    let frames = [&b"x"[..], b"x and more"].map(datagram);
    let done = all(&mut mmb, A, &frames);
    let sent = Verdict::Send(PortId(B));
    assert_eq!(done, frames.map(|frame| (sent, frame)));
    assert_eq!(mmb.engine.not_applied(), [(NotApplied::NoRoom, 2)]);
    assert_eq!((mmb.engine.absorbed(), mmb.engine.generated()), (0, vec![]));
}

#[test]
fn a_datagram_grows_to_what_its_link_takes() {
    let mut mmb = Middlebox::new("add-stateful udp-dport 5000 stream \"x\" mod stream \"yyyyyyyyyy\"");
    let frames = [&b"an x"[..], &[b'x'; 8], b"x again"].map(datagram);
    let done = all(&mut mmb, A, &frames);
    let sent = Verdict::Send(PortId(B));
    assert_eq!(done[0], (sent, datagram(b"an yyyyyyyyyy")));
    // 72 bytes behind the headers are the most.
    assert_eq!(done[1], (sent, datagram(&[&[b'y'; 70][..], b"x"].concat())));
    assert_eq!(done[2], (sent, datagram(b"yyyyyyyyyy again")), "the next one has its edit");
    assert_eq!(mmb.engine.not_applied(), [(NotApplied::NoRoom, 1)]);
    assert_eq!((mmb.engine.absorbed(), mmb.engine.generated()), (0, vec![]));
}

#[test]
fn a_sender_with_too_many_ranges_ends_nobody_else() {
    let mut mmb = Middlebox::new("add-stateful tcp-dport 80 stream \"ATTACK\" strip stream");
    const OTHER: End = (Ipv4Addr::new(10, 0, 0, 2), 5000);
    let early = |source, offset| segment(source, SERVER, ACK, (FORWARD + offset, REPLY), b"x");
    for source in [OTHER, CLIENT] {
        all(&mut mmb, A, &[segment(source, SERVER, SYN, (FORWARD - 1, 0), b"")]);
        all(&mut mmb, B, &[segment(SERVER, source, SYN | ACK, (REPLY - 1, FORWARD), b"")]);
        all(&mut mmb, A, &[segment(source, SERVER, ACK, (FORWARD, REPLY), b"")]);
    }
    // It keeps a byte, and rests for so long that it would be given up before others.
    all(&mut mmb, A, &[early(OTHER, 1)]);
    later(&mut mmb, 20_000);
    let ranges: Vec<_> = (1..=65).map(|number| early(CLIENT, 2 * number)).collect();
    let done = all(&mut mmb, A, &ranges);
    assert_eq!(done[64].0, Verdict::Drop(DropReason::StreamNoRoom), "one range too many");
    assert!(done[..64].iter().all(|(verdict, _)| *verdict == Verdict::Absorbed), "{done:?}");
    let done = all(&mut mmb, A, &[early(OTHER, 0)]);
    let got: Vec<u8> = sent(&done, B).into_iter().flat_map(|segment| segment.payload).collect();
    assert_eq!(got, b"xx");
    assert!(mmb.engine.generated().iter().all(|(kind, _)| *kind != GeneratedKind::Reset));
}
