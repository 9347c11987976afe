//! Rules on streams from outside: which packets go on, which packets are made, and what is counted. Expected packets are built anew.

use crate::host::{Middlebox, engine, pass_among, policy, released};
use crate::tcp_ends::{A, ACK, B, CLIENT, End, FIN, FORWARD, REPLY, RST, SERVER, SYN, one, request, segment};
use mmb_engine::{DropReason, GeneratedKind, Level, StreamEvent, StreamEventKind, Verdict, WatchedEvent};
use mmb_packet::PortId;
use mmb_policy::RuleId;
use mmb_testkit::{Ip4, Tcp, Udp, Upper};
use std::net::Ipv4Addr;

const OUTSIDE: Ipv4Addr = Ipv4Addr::new(200, 0, 0, 1);
/// The handshake between two ends; `seen` is the client as the server sees it.
fn handshake(mmb: &mut Middlebox, client: End, server: End, outside: Option<Ipv4Addr>) -> End {
    let sent = mmb.through(A, &segment(client, server, SYN, (FORWARD - 1, 0), b""));
    let seen = match outside {
        Some(outside) => (outside, u16::from_be_bytes([sent[34], sent[35]])),
        None => client,
    };
    mmb.through(B, &segment(server, seen, SYN | ACK, (REPLY - 1, FORWARD), b""));
    mmb.through(A, &segment(client, server, ACK, (FORWARD, REPLY), b""));
    seen
}

/// The fields of a TCP frame over IPv4: its ends, flags, sequence and acknowledgment number.
fn read(frame: &[u8]) -> (End, End, u8, u32, u32) {
    let end = |address: usize, port: usize| {
        let address: [u8; 4] = std::array::from_fn(|byte| frame[address + byte]);
        (Ipv4Addr::from(address), u16::from_be_bytes([frame[port], frame[port + 1]]))
    };
    let long = |at: usize| u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    (end(26, 34), end(30, 36), frame[47], long(38), long(42))
}

/// Asserts that a frame is a RST with right checksums: those of one that is built anew.
fn assert_reset(frame: &[u8], (source, destination): (End, End), seq: u32, ack: Option<u32>) {
    let flags = if ack.is_some() { RST | ACK } else { RST };
    assert_eq!(read(frame), (source, destination, flags, seq, ack.unwrap_or(0)));
    assert_eq!(frame.len(), 54);
    let sum = |bytes: &[u8]| {
        let mut sum: u32 =
            bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum
    };
    assert_eq!(sum(&frame[14..34]), 0xffff, "the checksum of the IP header");
    let pseudo = [&frame[26..34], &[0, 6, 0, 20], &frame[34..54]].concat();
    assert_eq!(sum(&pseudo), 0xffff, "the checksum of TCP");
}

#[test]
fn close_drops_the_packet_and_resets_both_ends() {
    let mut mmb = Middlebox::new("add-stateful tcp-dport 80 stream \"ATTACK\" close");
    handshake(&mut mmb, CLIENT, SERVER, None);
    let first = request(0, b"an ATT");
    assert_eq!(mmb.through(A, &first), first);
    let done = one(&mut mmb, A, request(6, b"ACK!"));
    let [(verdict, _), (to_server, forward), (to_client, reply)] = &done[..] else { panic!("{done:?}") };
    assert_eq!(*verdict, Verdict::Drop(DropReason::Rule));
    assert_eq!((*to_server, *to_client), (Verdict::Send(PortId(B)), Verdict::Send(PortId(A))));
    // The server expects the byte that was dropped; the client that behind the SYN-ACK.
    assert_reset(forward, (CLIENT, SERVER), FORWARD + 6, Some(REPLY));
    assert_reset(reply, (SERVER, CLIENT), REPLY, Some(FORWARD));
    assert_eq!(mmb.engine.generated(), vec![(GeneratedKind::Reset, 2)]);
    let count = mmb.engine.rule_count(RuleId(1));
    assert_eq!((count.hits, count.dropped.packets), (1, 1));
    let [info] = &mmb.list()[..] else { panic!("one connection") };
    assert_eq!((info.state, info.stream.as_ref().and_then(|stream| stream.ended)), ("reset", Some("rule")));
}

#[test]
fn packets_after_close_are_dropped_and_answered() {
    let mut mmb = Middlebox::new("add-stateful tcp-dport 80 stream \"ATTACK\" close");
    handshake(&mut mmb, CLIENT, SERVER, None);
    one(&mut mmb, A, request(0, b"ATTACK"));
    let done = one(&mut mmb, B, segment(SERVER, CLIENT, ACK, (REPLY, FORWARD), b"late"));
    let [(Verdict::Drop(DropReason::Rule), _), (to_server, answer), (to_client, again)] = &done[..] else {
        panic!("{done:?}")
    };
    assert_eq!((*to_server, *to_client), (Verdict::Send(PortId(B)), Verdict::Send(PortId(A))));
    assert_reset(answer, (CLIENT, SERVER), FORWARD, None);
    // Its first RST may have been lost. The number is that of the first one, whatever the packet says.
    assert_reset(again, (SERVER, CLIENT), REPLY, None);
    let done = one(&mut mmb, A, request(3, b"ACK once more"));
    let [_, (_, answer), (_, again)] = &done[..] else { panic!("{done:?}") };
    assert_reset(answer, (SERVER, CLIENT), REPLY, None);
    assert_reset(again, (CLIENT, SERVER), FORWARD, None);
    assert_eq!(one(&mut mmb, A, request(3, b"")).len(), 2, "no bytes wait for their acknowledgment");
    let done = one(&mut mmb, A, segment(CLIENT, SERVER, RST, (FORWARD, 0), b""));
    assert_eq!(done.len(), 1, "a RST is not answered: {done:?}");
    // A new connection of the same ends is a new stream.
    mmb.now_ms += 1000;
    let syn = segment(CLIENT, SERVER, SYN, (7_000_000, 0), b"");
    assert_eq!(mmb.through(A, &syn), syn);
    let [info] = &mmb.list()[..] else { panic!("one connection") };
    assert_eq!(info.stream.as_ref().and_then(|stream| stream.ended), None);
}

#[test]
fn resets_go_through_the_translation() {
    let mut mmb = Middlebox::new(
        "add-stateful tcp-dport 80 stream \"ATTACK\" map ip-saddr 200.0.0.1 shuffle tcp-sport shuffle tcp-seq-num close",
    );
    let sent = mmb.through(A, &segment(CLIENT, SERVER, SYN, (FORWARD - 1, 0), b""));
    let (seen, _, _, isn, _) = read(&sent);
    assert_eq!(seen.0, OUTSIDE);
    let shift = isn.wrapping_sub(FORWARD - 1);
    mmb.through(B, &segment(SERVER, seen, SYN | ACK, (REPLY - 1, isn.wrapping_add(1)), b""));
    mmb.through(A, &segment(CLIENT, SERVER, ACK, (FORWARD, REPLY), b""));
    mmb.through(A, &request(0, b"12345"));
    let done = one(&mut mmb, A, request(5, b"ATTACK"));
    let [_, (Verdict::Send(PortId(B)), forward), (Verdict::Send(PortId(A)), reply)] = &done[..] else {
        panic!("{done:?}")
    };
    assert_reset(forward, (seen, SERVER), (FORWARD + 5).wrapping_add(shift), Some(REPLY));
    assert_reset(reply, (SERVER, CLIENT), REPLY, Some(FORWARD));
}

#[test]
fn resets_get_the_edits_of_rules_that_are_matched_for_each_packet() {
    let mut mmb = Middlebox::new(
        "add-stateful tcp-dport 80 stream \"ATTACK\" close
         add tcp-rst mod ip-ttl 9
         add eth-type 0-0xffff tcp-flags 0-0xff mod ip-dscp 10",
    );
    handshake(&mut mmb, CLIENT, SERVER, None);
    one(&mut mmb, A, request(0, b"an "));
    let done = one(&mut mmb, A, request(3, b"ATTACK"));
    let [_, made @ ..] = &done[..] else { panic!("{done:?}") };
    let edited: Vec<_> = made.iter().map(|(_, frame)| (frame[15] >> 2, frame[22])).collect();
    assert_eq!(edited, [(10, 9), (10, 9)]);
}

#[test]
fn a_syn_with_the_text_is_refused() {
    let mut mmb = Middlebox::new("add-stateful tcp-dport 80 stream \"ATTACK\" close");
    let done = one(&mut mmb, A, segment(CLIENT, SERVER, SYN, (FORWARD - 1, 0), b"ATTACK"));
    let [(Verdict::Drop(DropReason::Rule), _), .., (Verdict::Send(PortId(A)), reply)] = &done[..] else {
        panic!("{done:?}")
    };
    // An end that waits for a SYN-ACK believes a RST that acknowledges its SYN.
    assert_reset(reply, (SERVER, CLIENT), 0, Some(FORWARD));
}

#[test]
fn watch_changes_nothing() {
    let mut mmb = Middlebox::new("add-stateful tcp-dport 80 stream \"ATTACK\" alert \"seen\"");
    let events = mmb.ask(|connections| connections.watch().expect("the worker answers"));
    handshake(&mut mmb, CLIENT, SERVER, None);
    let frames = [
        request(0, b"ATT"),
        request(20, b"early"),
        request(3, b"ACK"),
        request(0, b"other bytes"),
        request(0, b"ATTACK"),
    ];
    for frame in frames {
        assert_eq!(mmb.through(A, &frame), frame);
    }
    let told: Vec<StreamEvent> = events
        .try_iter()
        .filter_map(|event| match event {
            WatchedEvent::Stream(event) => Some(event),
            WatchedEvent::Connection(_) | WatchedEvent::Packet(_) | WatchedEvent::Suppressed(_) => None,
        })
        .collect();
    let [event] = &told[..] else { panic!("{told:?}") };
    assert_eq!(event.kind, StreamEventKind::Alert { text: "seen".into() });
    assert_eq!((event.rule, event.offset, event.is_reply), (Some(RuleId(1)), 6, false));
    let [info] = &mmb.list()[..] else { panic!("one connection") };
    let stream = info.stream.as_ref().and_then(|stream| stream.info).expect("a stream");
    assert_eq!(stream.levels, [Level::Watch; 2]);
    assert_eq!((stream.stats[0].bytes, stream.stats[0].out_of_order), (11, 1));
}

#[test]
fn guard_gives_the_receiver_the_first_copy() {
    let mut mmb = Middlebox::new("add-stateful tcp-dport 80 stream \"ATTACK\" close");
    handshake(&mut mmb, CLIENT, SERVER, None);
    mmb.through(A, &request(0, b"harmless"));
    let forged = mmb.through(A, &request(2, b"ATTACK"));
    assert_eq!(forged, request(2, b"rmless"));
    // Bytes beyond a hole, sent twice.
    mmb.through(A, &request(12, b"ABCD"));
    assert_eq!(mmb.through(A, &request(10, b"xxATTACK")), request(10, b"xxABCDCK"));
    assert_eq!(mmb.engine.rule_count(RuleId(1)).hits, 0);
}

#[test]
fn guard_clamps_the_window() {
    let mut mmb =
        Middlebox::new("set stream window 64\nadd-stateful tcp-dport 80 stream-forward \"ATTACK\" close");
    let with = |source: End, destination: End, flags, numbers: (u32, u32), window| {
        let options = if flags & SYN != 0 { vec![1, 3, 3, 7] } else { Vec::new() };
        let segment = Tcp {
            sport: source.1,
            dport: destination.1,
            flags,
            seq: numbers.0,
            ack: numbers.1,
            window,
            options,
            ..Tcp::default()
        };
        Ip4 { source: source.0, destination: destination.0, ..Ip4::new(Upper::Tcp(segment)) }.frame().bytes()
    };
    mmb.through(A, &with(CLIENT, SERVER, SYN, (FORWARD - 1, 0), 65_535));
    mmb.through(B, &with(SERVER, CLIENT, SYN | ACK, (REPLY - 1, FORWARD), 65_535));
    mmb.through(A, &with(CLIENT, SERVER, ACK, (FORWARD, REPLY), 1000));
    let wide = with(SERVER, CLIENT, ACK, (REPLY, FORWARD), 4096);
    assert_eq!(
        mmb.through(B, &wide),
        with(SERVER, CLIENT, ACK, (REPLY, FORWARD), 512),
        "64 KiB in units of 128"
    );
    assert_eq!(mmb.dropped(A, &request(70_000, b"beyond")), DropReason::StreamOutOfWindow);
}

#[test]
fn fragments_of_a_guarded_stream_are_dropped() {
    let fragment = |flags: u16, id: u16| {
        let datagram = Udp { sport: 5000, dport: 53, payload: vec![7; 16], ..Udp::default() };
        let mut frame = Ip4 { source: CLIENT.0, destination: SERVER.0, id, ..Ip4::new(Upper::Udp(datagram)) }
            .frame()
            .bytes();
        frame[20..22].copy_from_slice(&flags.to_be_bytes());
        frame[24..26].fill(0);
        let sum: u32 =
            frame[14..34].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
        let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    const MORE: u16 = 0x2000;
    for (target, expected) in [("drop", Some(DropReason::StreamFragment)), ("alert", None)] {
        let mut mmb = Middlebox::new(&format!("add-stateful udp-dport 53 stream \"ATTACK\" {target}"));
        let whole = fragment(0, 1);
        assert_eq!(mmb.through(A, &whole), whole);
        let first = fragment(MORE, 2);
        match expected {
            Some(reason) => assert_eq!(mmb.dropped(A, &first), reason),
            None => assert_eq!(mmb.through(A, &first), first),
        }
    }
}

#[test]
fn the_packet_of_a_connection_that_ends_in_its_vector_does_not_pass_unseen() {
    let mut mmb = Middlebox::new("add-stateful tcp-dport 80 stream \"ATTACK\" close");
    handshake(&mut mmb, CLIENT, SERVER, None);
    mmb.through(A, &request(0, b"ATT"));
    let frames = [
        request(3, b"ACK"),
        segment(CLIENT, SERVER, RST | ACK, (FORWARD + 3, REPLY), b""),
        segment(CLIENT, SERVER, SYN, (90_000_000, 0), b""),
    ];
    let worker = std::slice::from_mut(&mut mmb.worker);
    let done = pass_among(worker, (0, 1000), A, &frames);
    assert!(matches!(done[0].0, Verdict::Drop(_)), "{done:?}");
}

#[test]
fn without_room_a_connection_is_unfit() {
    let rule = "set stream max 1\nadd-stateful tcp-dport 80 stream \"ATTACK\" close\n";
    let other = (CLIENT.0, 5001);
    for (setting, is_dropped) in [("pass", false), ("close", true), ("drop", true)] {
        let mut mmb = Middlebox::new(&format!("set stream unfit {setting}\n{rule}"));
        handshake(&mut mmb, CLIENT, SERVER, None);
        let syn = segment(other, SERVER, SYN, (FORWARD - 1, 0), b"");
        let done = one(&mut mmb, A, syn.clone());
        match is_dropped {
            true => assert_eq!(done[0].0, Verdict::Drop(DropReason::StreamUnfit)),
            false => assert_eq!(done[0], (Verdict::Send(PortId(B)), syn)),
        }
        let resets =
            done.iter().filter(|(_, frame)| frame.get(47).is_some_and(|flags| flags & RST != 0)).count();
        assert_eq!(resets > 0, setting == "close", "{done:?}");
        let passed = mmb.engine.not_applied();
        assert_eq!(passed.iter().any(|(why, _)| why.name() == "stream-unfit"), !is_dropped);
    }
}

#[test]
fn the_memory_of_streams_is_given_back() {
    let mut mmb = Middlebox::new("set stream max 10\nadd-stateful tcp-dport 80 stream \"ATTACK\" close");
    for round in 0..200u16 {
        let client = (CLIENT.0, 6000 + round);
        handshake(&mut mmb, client, SERVER, None);
        mmb.through(A, &segment(client, SERVER, ACK, (FORWARD, REPLY), b"kept"));
        mmb.through(A, &segment(client, SERVER, FIN | ACK, (FORWARD + 4, REPLY), b""));
        mmb.ask(|connections| connections.kill(&mmb_policy::ConnectionFilter::ALL).expect("it answers"));
    }
    assert!(mmb.list().is_empty());
    handshake(&mut mmb, CLIENT, SERVER, None);
    assert_eq!(mmb.list().iter().filter(|info| info.stream.is_some()).count(), 1);
}

#[test]
fn a_new_policy_keeps_what_an_unchanged_set_has_begun() {
    let rule = "add-stateful id 1 tcp-dport 80 stream \"ATTACK\" close\n";
    let mut mmb = Middlebox::new(rule);
    handshake(&mut mmb, CLIENT, SERVER, None);
    mmb.through(A, &request(0, b"ATT"));
    mmb.engine.publish(&policy(&format!("{rule}add id 2 udp-dport 9 drop"))).expect("it can be put in force");
    assert_eq!(mmb.dropped(A, &request(3, b"ACK")), DropReason::Rule);
    // Another pattern: what was begun is forgotten, and what follows is found.
    let mut mmb = Middlebox::new(rule);
    handshake(&mut mmb, CLIENT, SERVER, None);
    mmb.through(A, &request(0, b"ATT"));
    let other = "add-stateful id 2 udp-dport 9 stream \"more\" alert";
    mmb.engine.publish(&policy(&format!("{rule}{other}"))).expect("it can be put in force");
    mmb.through(A, &request(3, b"ACK"));
    let events = mmb.ask(|connections| connections.watch().expect("the worker answers"));
    assert_eq!(mmb.dropped(A, &request(6, b"ATTACK")), DropReason::Rule);
    let offsets = events.try_iter().filter_map(|event| match event {
        WatchedEvent::Stream(event) => Some(event.offset),
        WatchedEvent::Connection(_) | WatchedEvent::Packet(_) | WatchedEvent::Suppressed(_) => None,
    });
    assert_eq!(offsets.collect::<Vec<_>>(), [12], "counted from the connection's first byte");
}

#[test]
fn a_rule_that_comes_and_goes_is_searched_for_each_time() {
    let mut mmb = Middlebox::new("");
    for round in 0..40u16 {
        let rule = "add-stateful tcp-dport 80 stream \"ATTACK\" close";
        mmb.engine.publish(&policy(rule)).expect("it can be put in force");
        let client = (CLIENT.0, 7000 + round);
        handshake(&mut mmb, client, SERVER, None);
        mmb.through(A, &segment(client, SERVER, ACK, (FORWARD, REPLY), b"begins "));
        let found = segment(client, SERVER, ACK, (FORWARD + 7, REPLY), b"ATTACK");
        assert_eq!(mmb.dropped(A, &found), DropReason::Rule, "round {round}");
        // Its stream is still there, so that its set cannot be given up.
        let idle = (CLIENT.0, 8000 + round);
        handshake(&mut mmb, idle, SERVER, None);
        mmb.through(A, &segment(idle, SERVER, ACK, (FORWARD, REPLY), b"idles"));
        mmb.engine.publish(&policy("")).expect("it can be put in force");
        mmb.through(A, &segment(idle, SERVER, ACK, (FORWARD + 5, REPLY), b"x"));
    }
}

#[test]
fn patterns_that_cannot_be_searched_for_are_refused_with_the_rule() {
    let (mut engine, _) = engine("add-stateful id 3 tcp-dport 80 stream \"a\" close");
    let text = "add-stateful id 3 tcp-dport 80 stream \"a\" close\nadd-stateful id 5 tcp-dport 80 stream /(a{1,4000}){1,4000}b/ alert";
    match mmb_language::parse_policy(text) {
        Ok((policy, _)) => {
            let refused = engine.publish(&policy).expect_err("it is too large").to_string();
            assert!(refused.starts_with("rule 5: "), "{refused}");
        }
        Err(errors) => assert!(!errors.is_empty()),
    }
}

#[test]
fn made_packets_are_given_out_once() {
    let mut mmb = Middlebox::new("add-stateful tcp-dport 80 stream \"ATTACK\" close");
    handshake(&mut mmb, CLIENT, SERVER, None);
    one(&mut mmb, A, request(0, b"ATTACK"));
    assert!(released(&mut mmb.worker).is_empty());
}
