//! Connections from outside: what packets of both directions look like, and what the control side sees. Expected packets are
//! built anew with the addresses that they should have, checksums and all.

use crate::host::{Middlebox, engine, policy};
use crate::inside_frames::{A, ACK, B, FIN, INSIDE, OUTSIDE, RST, SERVER, SYN, ip4, sport, tcp, udp};
use mmb_engine::{ConnectionEvent, DropReason, NoCycles, Verdict, WatchedEvent};
use mmb_packet::{LinkType, Packet, PortId};
use mmb_policy::{ConnectionFilter, RuleId};
use mmb_testkit::frame::tcp_option;
use mmb_testkit::{Frame, Icmp, Ip4, Ip6, Network, Tcp, Udp, Upper};
use std::net::{Ipv4Addr, Ipv6Addr};

#[test]
fn a_reflexive_rule_lets_replies_in_and_nothing_else() {
    let mut mmb =
        Middlebox::new("add-stateful ip-proto tcp ip-saddr 10.0.0.0/24 accept\nadd ip-proto tcp drop");
    let (client, server) = ((INSIDE, 5000), (SERVER, 80));
    assert_eq!(mmb.dropped(B, &tcp(server, client, SYN | ACK)), DropReason::Rule);
    let syn = tcp(client, server, SYN);
    assert_eq!(mmb.through(A, &syn), syn);
    let answer = tcp(server, client, SYN | ACK);
    assert_eq!(mmb.through(B, &answer), answer);
    assert_eq!(mmb.dropped(B, &tcp((SERVER, 81), client, ACK)), DropReason::Rule);
    assert_eq!(mmb.dropped(B, &tcp(server, (INSIDE, 5001), SYN)), DropReason::Rule);
    // Both directions count for the rule, and the other rule saw all of them.
    assert_eq!(mmb.engine.rule_count(RuleId(1)).matched.packets, 2);
    assert_eq!(mmb.engine.rule_count(RuleId(2)).matched.packets, 5);
    let [info] = &mmb.list()[..] else { panic!("one connection") };
    assert_eq!((info.packets, info.state, &info.rules[..]), ([1, 1], "syn-received", &[RuleId(1)][..]));
}

#[test]
fn the_papers_source_nat_works_as_printed() {
    let mut mmb = Middlebox::new(
        "mmb add-stateful ip-saddr 10.0.0.0/24 ip-proto tcp tcp-syn shuffle tcp-sport mod ip-saddr 200.0.0.1",
    );
    let (client, server) = ((INSIDE, 5000), (SERVER, 80));
    let sent = mmb.through(A, &tcp(client, server, SYN));
    let outside = (OUTSIDE, sport(&sent));
    assert!(outside.1 >= 1024);
    assert_eq!(sent, tcp(outside, server, SYN));
    assert_eq!(mmb.through(B, &tcp(server, outside, SYN | ACK)), tcp(server, client, SYN | ACK));
    // The rule asks for a SYN; the connection does not.
    assert_eq!(mmb.through(A, &tcp(client, server, ACK)), tcp(outside, server, ACK));
    let [info] = &mmb.list()[..] else { panic!("one connection") };
    assert_eq!((info.sent.src, info.sent.sport, info.state), (OUTSIDE.into(), outside.1, "established"));
    assert_eq!((info.arrived.src, info.arrived.sport), (INSIDE.into(), 5000));
}

#[test]
fn destinations_are_mapped_and_come_back() {
    let mut mmb = Middlebox::new(
        "add-stateful ip-daddr 200.0.0.1 udp-dport 53 map ip-daddr 10.0.0.1 map udp-dport 5353",
    );
    let (client, resolver) = ((SERVER, 4000), (INSIDE, 5353));
    assert_eq!(mmb.through(B, &udp(client, (OUTSIDE, 53))), udp(client, resolver));
    assert_eq!(mmb.through(A, &udp(resolver, client)), udp((OUTSIDE, 53), client));
    assert_eq!(mmb.through(A, &udp((INSIDE, 5354), client)), udp((INSIDE, 5354), client));
}

#[test]
fn ipv6_is_translated_too() {
    let [inside, outside, server]: [Ipv6Addr; 3] =
        ["2001:db8::1", "2001:db8:f::1", "2001:db8:5::80"].map(|text| text.parse().expect("an address"));
    let frame = |source, destination, sport, dport| {
        let upper = Upper::Udp(Udp { sport, dport, payload: vec![7; 9], ..Udp::default() });
        Ip6 { source, destination, ..Ip6::new(upper) }.frame().bytes()
    };
    let mut mmb = Middlebox::new("add-stateful ip6-saddr 2001:db8::/64 mod ip6-saddr 2001:db8:f::1");
    assert_eq!(mmb.through(A, &frame(inside, server, 4000, 53)), frame(outside, server, 4000, 53));
    assert_eq!(mmb.through(B, &frame(server, outside, 53, 4000)), frame(server, inside, 53, 4000));
}

/// An ICMP echo request (8) or reply (0).
fn echo(source: Ipv4Addr, destination: Ipv4Addr, icmp_type: u8, id: u16) -> Vec<u8> {
    let [a, b] = id.to_be_bytes();
    ip4(source, destination, Upper::Icmp(Icmp { icmp_type, rest: [a, b, 0, 1], ..Icmp::default() }))
}

#[test]
fn pings_keep_apart_by_identifier() {
    let other = Ipv4Addr::new(10, 0, 0, 2);
    let mut mmb = Middlebox::new("add-stateful ip-saddr 10.0.0.0/24 mod ip-saddr 200.0.0.1");
    let mut ids = Vec::new();
    for host in [INSIDE, other] {
        let sent = mmb.through(A, &echo(host, SERVER, 8, 77));
        let id = u16::from_be_bytes([sent[38], sent[39]]);
        assert_eq!(sent, echo(OUTSIDE, SERVER, 8, id));
        ids.push((host, id));
    }
    assert_ne!(ids[0].1, ids[1].1);
    for (host, id) in ids {
        assert_eq!(mmb.through(B, &echo(SERVER, OUTSIDE, 0, id)), echo(SERVER, host, 0, 77));
    }
}

#[test]
fn a_request_is_no_answer_to_one_of_the_same_identifier() {
    let mut mmb = Middlebox::new("add-stateful in a ip-proto icmp accept\nadd ip-proto icmp drop");
    assert_eq!(mmb.dropped(A, &echo(INSIDE, SERVER, 0, 7)), DropReason::Rule);
    mmb.through(A, &echo(INSIDE, SERVER, 8, 7));
    assert_eq!(mmb.dropped(B, &echo(SERVER, INSIDE, 8, 7)), DropReason::Rule);
    mmb.through(B, &echo(SERVER, INSIDE, 0, 7));
}

#[test]
fn what_was_closed_is_not_opened_again_from_the_other_side() {
    const FIN: u8 = 0x11;
    let mut mmb =
        Middlebox::new("add-stateful ip-proto tcp ip-saddr 10.0.0.0/24 accept\nadd ip-proto tcp drop");
    let ends = [(INSIDE, 5000), (SERVER, 80)];
    let segment = |forward: bool, flags, seq, ack| {
        let [source, destination] = if forward { ends } else { [ends[1], ends[0]] };
        let upper = Tcp { sport: source.1, dport: destination.1, flags, seq, ack, ..Tcp::default() };
        ip4(source.0, destination.0, Upper::Tcp(upper))
    };
    for (forward, flags, seq, ack) in [
        (true, SYN, 100, 0),
        (false, SYN | ACK, 500, 101),
        (true, ACK, 101, 501),
        (true, FIN, 101, 501),
        (false, FIN, 501, 102),
        (true, ACK, 102, 502),
    ] {
        mmb.through(if forward { A } else { B }, &segment(forward, flags, seq, ack));
    }
    assert_eq!(mmb.list()[0].state, "time-wait");
    assert_eq!(mmb.dropped(B, &segment(false, SYN, 9000, 0)), DropReason::Rule);
    assert_eq!(mmb.list()[0].state, "time-wait");
    mmb.through(A, &segment(true, SYN, 70_000, 0));
    assert_eq!(mmb.list()[0].state, "syn-sent");
    // The rule counts all packets that it lets pass, each once; the other one all packets.
    assert_eq!([1, 2].map(|id| mmb.engine.rule_count(RuleId(id)).matched.packets), [7, 8]);
}

/// An ICMP error over IPv4 from a router about a packet, of which the IP header and 8 bytes are quoted.
fn unreachable(router: Ipv4Addr, to: Ipv4Addr, about: &[u8], quoted: usize) -> Vec<u8> {
    let payload = about[14..14 + 20 + quoted].to_vec();
    ip4(router, to, Upper::Icmp(Icmp { icmp_type: 11, rest: [0; 4], payload, ..Icmp::default() }))
}

#[test]
fn icmp_errors_are_translated_inside_and_out() {
    let router = Ipv4Addr::new(203, 0, 113, 9);
    let mut mmb =
        Middlebox::new("add-stateful ip-saddr 10.0.0.0/24 mod ip-saddr 200.0.0.1 shuffle udp-sport");
    let (client, server) = ((INSIDE, 5000), (SERVER, 33434));
    let before = udp(client, server);
    let after = mmb.through(A, &before);
    for quoted in [8, 13] {
        // What comes back quotes what was sent outside; what arrives inside quotes what was sent there.
        let error = mmb.through(B, &unreachable(router, OUTSIDE, &after, quoted));
        assert_eq!(error, unreachable(router, INSIDE, &before, quoted), "{quoted} bytes");
    }
    // An error of an inside router about a reply leaves under the outside address (RFC 5508 REQ-5).
    let reply = udp(server, (OUTSIDE, sport(&after)));
    let inside = mmb.through(B, &reply);
    let gateway = Ipv4Addr::new(10, 0, 0, 254);
    let error = mmb.through(A, &unreachable(gateway, SERVER, &inside, 8));
    assert_eq!(error, unreachable(OUTSIDE, SERVER, &reply, 8));
    // One about nobody's packet stays as it is.
    let stray = unreachable(router, OUTSIDE, &udp((OUTSIDE, 1), (SERVER, 2)), 8);
    assert_eq!(mmb.through(B, &stray), stray);
}

#[test]
fn fragments_follow_their_first_one() {
    let mut mmb = Middlebox::new(
        "add-stateful ip-saddr 10.0.0.0/24 ip-proto udp mod ip-saddr 200.0.0.1 shuffle udp-sport",
    );
    let datagram = Udp { sport: 5000, dport: 9, payload: vec![1; 24], ..Udp::default() };
    let whole = Ip4 { source: INSIDE, destination: SERVER, ..Ip4::new(Upper::Udp(datagram)) }.bytes();
    let fragment = |source, bytes: &[u8], frag_offset, flags| {
        let upper = Upper::Raw(17, bytes.to_vec());
        Ip4 { source, destination: SERVER, id: 9, frag_offset, flags, ..Ip4::new(upper) }.frame().bytes()
    };
    let first = mmb.through(A, &fragment(INSIDE, &whole[20..36], 0, 1));
    let later = mmb.through(A, &fragment(INSIDE, &whole[36..], 2, 0));
    assert_eq!(later, fragment(OUTSIDE, &whole[36..], 2, 0));
    // Together they are the datagram with its new source, checksum included.
    let sent = Udp { sport: sport(&first), dport: 9, payload: vec![1; 24], ..Udp::default() };
    let expected = Ip4 { source: OUTSIDE, destination: SERVER, ..Ip4::new(Upper::Udp(sent)) }.bytes();
    assert_eq!([&first[34..], &later[34..]].concat(), expected[20..]);
    // The same piece again is one too many; the datagram goes on.
    let more = Udp { sport: 5000, dport: 9, payload: vec![1; 40], ..Udp::default() };
    let whole = Ip4 { source: INSIDE, destination: SERVER, ..Ip4::new(Upper::Udp(more)) }.bytes();
    let piece = |bytes: &[u8], frag_offset, flags| {
        let upper = Upper::Raw(17, bytes.to_vec());
        Ip4 { source: INSIDE, destination: SERVER, id: 11, frag_offset, flags, ..Ip4::new(upper) }
            .frame()
            .bytes()
    };
    mmb.through(A, &piece(&whole[20..36], 0, 1));
    mmb.through(A, &piece(&whole[36..52], 2, 1));
    assert_eq!(mmb.dropped(A, &piece(&whole[36..52], 2, 1)), DropReason::FragmentDuplicate);
    mmb.through(A, &piece(&whole[52..], 4, 0));
}

#[test]
fn shuffled_sequence_numbers_are_mapped_in_acknowledgments_and_sack() {
    let mut mmb = Middlebox::new("add-stateful ip-saddr 10.0.0.0/24 ip-proto tcp shuffle tcp-seq-num");
    let segment = |forward: bool, flags, seq: u32, ack: u32, sack: Option<[u32; 2]>| {
        let (source, destination) = if forward { (INSIDE, SERVER) } else { (SERVER, INSIDE) };
        let (sport, dport) = if forward { (5000, 80) } else { (80, 5000) };
        let edges = sack.map(|edges| edges.map(u32::to_be_bytes).concat());
        let options = edges.map_or(Vec::new(), |edges| [vec![1, 1], tcp_option(5, &edges)].concat());
        let upper = Upper::Tcp(Tcp { sport, dport, flags, seq, ack, options, ..Tcp::default() });
        ip4(source, destination, upper)
    };
    let sent = mmb.through(A, &segment(true, SYN, 1000, 0, None));
    let shift = u32::from_be_bytes([sent[38], sent[39], sent[40], sent[41]]).wrapping_sub(1000);
    assert_eq!(sent, segment(true, SYN, 1000u32.wrapping_add(shift), 0, None));
    let seen = |seq: u32| seq.wrapping_add(shift);
    let reply = mmb.through(B, &segment(false, SYN | ACK, 7000, seen(1001), None));
    assert_eq!(reply, segment(false, SYN | ACK, 7000, 1001, None));
    let sent = mmb.through(A, &segment(true, ACK, 1001, 7001, None));
    assert_eq!(sent, segment(true, ACK, seen(1001), 7001, None));
    let reply = mmb.through(B, &segment(false, ACK, 7001, seen(1001), Some([seen(1101), seen(1201)])));
    assert_eq!(reply, segment(false, ACK, 7001, 1001, Some([1101, 1201])));
}

#[test]
fn identifications_are_hidden_without_fragmentation() {
    let frame = |id, flags| {
        let upper = Upper::Udp(Udp { sport: 5000, dport: 53, ..Udp::default() });
        Ip4 { source: INSIDE, destination: SERVER, id, flags, ..Ip4::new(upper) }.frame().bytes()
    };
    const DF: u8 = 2;
    let mut mmb = Middlebox::new("add-stateful ip-saddr 10.0.0.0/24 mod ip-id 7");
    assert_eq!(mmb.through(A, &frame(100, DF)), frame(7, DF));
    // RFC 6864 section 4.1: what a router may fragment needs its own.
    assert_eq!(mmb.through(A, &frame(101, 0)), frame(101, 0));
}

#[test]
fn two_inside_hosts_reach_each_other_by_their_outside_addresses() {
    let mut mmb = Middlebox::new(
        "set nat filtering address-and-port-dependent\nadd-stateful ip-saddr 10.0.0.0/24 ip-proto udp map ip-saddr 200.0.0.1-200.0.0.2",
    );
    let other = Ipv4Addr::new(10, 0, 0, 2);
    let from = |mac: u8, source, destination| {
        let upper = Upper::Udp(Udp { sport: 5000, dport: 5000, ..Udp::default() });
        let mut bytes = Frame::new(Network::Ip4(Ip4 { source, destination, ..Ip4::new(upper) })).bytes();
        bytes[6..12].copy_from_slice(&[2, 0, 0, 0, 0, mac]);
        bytes
    };
    // Both have an outside end.
    let outside = [(1, INSIDE), (2, other)].map(|(mac, host)| {
        let sent = mmb.through(A, &from(mac, host, SERVER));
        (Ipv4Addr::new(sent[26], sent[27], sent[28], sent[29]), sport(&sent))
    });
    let dport = |mut frame: Vec<u8>, port: u16| {
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        frame[40..42].fill(0);
        frame
    };
    let (verdict, bytes) = mmb.pass(A, &dport(from(1, INSIDE, outside[1].0), outside[1].1));
    assert_eq!(verdict, Verdict::Send(PortId(A)));
    // It goes to the other host, under the first one's outside address (RFC 4787 REQ-9).
    assert_eq!(bytes[..6], [2, 0, 0, 0, 0, 2]);
    assert_eq!(bytes[26..30], outside[0].0.octets());
    assert_eq!(
        (sport(&bytes), &bytes[30..34], u16::from_be_bytes([bytes[36], bytes[37]])),
        (outside[0].1, &other.octets()[..], 5000)
    );
    let reply = dport(from(2, other, outside[0].0), outside[0].1);
    let (verdict, bytes) = mmb.pass(A, &reply);
    assert_eq!((verdict, &bytes[..6]), (Verdict::Send(PortId(A)), &[2, 0, 0, 0, 0, 1][..]));
    assert_eq!((&bytes[26..30], &bytes[30..34]), (&outside[1].0.octets()[..], &INSIDE.octets()[..]));
}

#[test]
fn what_was_idle_for_too_long_ends_and_its_port_is_free_again() {
    let mut mmb = Middlebox::new(
        "set timeout udp-unreplied 30\nadd-stateful ip-proto udp mod ip-saddr 200.0.0.1 mod udp-sport 7777",
    );
    let server = (SERVER, 53);
    mmb.through(A, &udp((INSIDE, 5000), server));
    assert_eq!(mmb.dropped(A, &udp((INSIDE, 5001), server)), DropReason::NatClash);
    mmb.wait(29);
    assert_eq!(mmb.list().len(), 1);
    mmb.wait(3);
    assert_eq!(mmb.list().len(), 0);
    assert_eq!(mmb.engine.connections().summary().closed, [("timeout", 1)]);
    assert_eq!(mmb.through(A, &udp((INSIDE, 5001), server)), udp((OUTSIDE, 7777), server));
}

#[test]
fn a_reset_outside_the_window_ends_nothing() {
    let mut mmb = Middlebox::new("add-stateful ip-saddr 10.0.0.0/24 accept\nadd ip-proto tcp drop");
    mmb.through(A, &segment(true, SYN, 100, 0));
    mmb.through(B, &segment(false, SYN | ACK, 500, 101));
    mmb.through(A, &segment(true, ACK, 101, 501));
    mmb.through(B, &segment(false, RST, 500_000, 0));
    assert_eq!(mmb.list()[0].state, "established");
    assert_eq!(mmb.engine.connections().summary().invalid, [("out-of-window", 1)]);
    mmb.through(B, &segment(false, RST, 501, 0));
    assert_ne!(mmb.list()[0].state, "established");
}

/// A segment between the client and the server, with a window of a thousand.
fn segment(forward: bool, flags: u8, seq: u32, ack: u32) -> Vec<u8> {
    let ends = [(INSIDE, 5000), (SERVER, 80)];
    let [source, destination] = if forward { ends } else { [ends[1], ends[0]] };
    let upper =
        Tcp { sport: source.1, dport: destination.1, flags, seq, ack, window: 1000, ..Tcp::default() };
    ip4(source.0, destination.0, Upper::Tcp(upper))
}

#[test]
fn a_tcp_connection_resumes_after_packets_that_were_missed() {
    let rules = "set conn invalid drop\nadd-stateful ip-saddr 10.0.0.0/24 accept\nadd ip-proto tcp drop";
    let established = || {
        let mut mmb = Middlebox::new(rules);
        mmb.through(A, &segment(true, SYN, 100, 0));
        mmb.through(B, &segment(false, SYN | ACK, 500, 101));
        mmb.through(A, &segment(true, ACK, 101, 501));
        mmb
    };
    let resumes = |mut mmb: Middlebox| {
        mmb.wait(1);
        assert_eq!(mmb.dropped(B, &segment(false, RST, 9_000_000, 0)), DropReason::ConnInvalid);
        mmb.through(B, &segment(false, ACK, 9_000_000, 7_000_000));
        mmb.through(A, &segment(true, ACK, 7_000_000, 9_000_000));
        assert_eq!(mmb.list()[0].idle_ms, 0);
        assert_eq!(mmb.dropped(A, &segment(true, ACK, 101, 501)), DropReason::ConnInvalid);
        mmb.through(B, &segment(false, FIN | ACK, 9_000_000, 7_000_000));
        assert_eq!(mmb.list()[0].state, "fin-wait");
    };
    let mut mmb = established();
    assert_eq!(mmb.dropped(B, &segment(false, ACK, 9_000_000, 7_000_000)), DropReason::ConnInvalid);
    mmb.wait(61);
    resumes(mmb);
    let mut mmb = established();
    let publish = |mmb: &mut Middlebox, ports: &str| {
        mmb.engine.publish(&policy(&format!("{rules}\n{ports}"))).expect("it can be put in force");
    };
    publish(&mut mmb, "disable a");
    assert_eq!(mmb.through(A, &segment(true, ACK, 8_000_000, 1)), segment(true, ACK, 8_000_000, 1));
    mmb.wait(1);
    publish(&mut mmb, "enable a");
    resumes(mmb);
    let mmb = established();
    mmb.engine.resync();
    resumes(mmb);
    // A change that enables no port misses no packet.
    let mut mmb = established();
    publish(&mut mmb, "add udp-dport 1 drop");
    assert_eq!(mmb.dropped(B, &segment(false, ACK, 9_000_000, 7_000_000)), DropReason::ConnInvalid);
}

/// The event of a connection.
fn connection_event(event: WatchedEvent) -> Option<ConnectionEvent> {
    match event {
        WatchedEvent::Connection(event) => Some(event),
        WatchedEvent::Stream(_) | WatchedEvent::Packet(_) | WatchedEvent::Suppressed(_) => None,
    }
}

#[test]
fn connections_are_ended_on_request_and_watched() {
    let mut mmb = Middlebox::new("add-stateful ip-proto udp accept\nadd-stateful ip-proto tcp accept");
    let events = mmb.ask(|connections| connections.watch().expect("the worker answers"));
    (0..2500u16).for_each(|n| _ = mmb.through(A, &udp((INSIDE, 2000 + n), (SERVER, 53))));
    mmb.through(A, &tcp((INSIDE, 2000), (SERVER, 80), SYN));
    assert_eq!(mmb.list().len(), 2501);
    let filter = ConnectionFilter { rule: Some(RuleId(1)), ..ConnectionFilter::ALL };
    assert_eq!(mmb.ask(|connections| connections.kill(&filter)), Ok(2500));
    assert_eq!(mmb.list().len(), 1);
    let told: Vec<ConnectionEvent> = events.try_iter().filter_map(connection_event).collect();
    assert_eq!(told.iter().filter(|event| event.created).count(), 2501);
    assert_eq!(told.iter().filter(|event| event.reason == Some("rule-deleted")).count(), 2500);
    // The timeouts of unanswered connections (RFC 4787 REQ-5, RFC 5382 REQ-5); a connection that has ended has none.
    let timeout = |event: &ConnectionEvent| match (event.created, event.info.proto) {
        (true, 17) => 120_000,
        (true, _) => 240_000,
        (false, _) => 0,
    };
    assert!(told.iter().all(|event| event.info.expires_ms == timeout(event)), "{:?}", told[0]);
    let summary = mmb.engine.connections().summary();
    assert_eq!((summary.connections, summary.created, summary.half_open), (1, 2501, 1));
}

#[test]
fn packets_of_one_vector_find_the_connection_that_the_first_one_makes() {
    let (_engine, mut worker) = engine("add-stateful in a ip-proto udp accept\nadd in b drop");
    let router = Ipv4Addr::new(203, 0, 113, 9);
    let (client, server) = ((INSIDE, 5000), (SERVER, 53));
    let first = udp(client, server);
    let frames = [(A, first.clone()), (B, udp(server, client)), (B, unreachable(router, INSIDE, &first, 8))];
    let mut buffers: Vec<Vec<u8>> = frames.iter().map(|(_, frame)| frame.clone()).collect();
    let mut packets: Vec<Packet<'_>> = buffers
        .iter_mut()
        .zip(&frames)
        .filter_map(|(buffer, (port, frame))| {
            Packet::new(buffer, 0, frame.len(), PortId(*port), LinkType::Ethernet)
        })
        .collect();
    let mut verdicts = [Verdict::Send(PortId(9)); 3];
    worker.process(1_000_000, &NoCycles, &mut packets, &mut verdicts);
    assert_eq!(verdicts, [B, A, A].map(|port| Verdict::Send(PortId(port))));
}

#[test]
fn strict_pickup_wants_a_syn() {
    let mut mmb = Middlebox::new("set conn pickup strict\nadd-stateful ip-proto tcp accept");
    let (client, server) = ((INSIDE, 5000), (SERVER, 80));
    assert_eq!(mmb.dropped(A, &tcp(client, server, ACK)), DropReason::ConnNotSyn);
    mmb.through(A, &tcp(client, server, SYN));
    mmb.engine.publish(&policy("add-stateful ip-proto tcp accept")).expect("it can be put in force");
    mmb.through(A, &tcp((INSIDE, 5001), server, ACK));
    assert_eq!(mmb.list().len(), 2);
}

#[test]
fn a_full_table_lets_half_open_connections_go_first() {
    let mut mmb = Middlebox::new("set conn max 2\nadd-stateful ip-proto udp accept");
    let server = (SERVER, 53);
    mmb.through(A, &udp((INSIDE, 1), server));
    mmb.through(B, &udp(server, (INSIDE, 1)));
    for port in 2..50 {
        mmb.through(A, &udp((INSIDE, port), server));
    }
    let ports: Vec<u16> = mmb.list().iter().map(|info| info.arrived.sport).collect();
    assert_eq!(ports.len(), 2);
    assert!(ports.contains(&1) && ports.contains(&49));
    mmb.through(B, &udp(server, (INSIDE, 49)));
    assert_eq!(mmb.dropped(A, &udp((INSIDE, 50), server)), DropReason::ConnFull);
}

#[test]
fn an_admitted_packet_without_room_is_refused() {
    let nat = "add-stateful in a ip-proto udp map ip-saddr 200.0.0.1";
    let mut mmb = Middlebox::new(&format!("set nat filtering endpoint-independent\n{nat}"));
    let sent = mmb.through(A, &udp((INSIDE, 5000), (SERVER, 53)));
    mmb.through(B, &udp((SERVER, 53), (OUTSIDE, sport(&sent))));
    let stranger = Ipv4Addr::new(203, 0, 113, 7);
    let came = mmb.through(B, &udp((stranger, 9), (OUTSIDE, sport(&sent))));
    assert_eq!(came, udp((stranger, 9), (INSIDE, 5000)));
    mmb.through(A, &udp((INSIDE, 5000), (stranger, 9)));
    // Both are answered: nobody makes room for another stranger, who must not come in untranslated either.
    mmb.engine
        .publish(&policy(&format!("set nat filtering endpoint-independent\nset conn max 2\n{nat}")))
        .expect("it can be put in force");
    let frame = udp((stranger, 10), (OUTSIDE, sport(&sent)));
    assert_eq!(mmb.dropped(B, &frame), DropReason::ConnFull);
}

#[test]
fn an_answer_that_comes_too_late_ends_its_query() {
    let mut mmb = Middlebox::new("add-stateful in a ip-proto icmp map ip-saddr 200.0.0.1");
    mmb.through(A, &echo(INSIDE, SERVER, 8, 7));
    let answer = echo(SERVER, OUTSIDE, 0, 7);
    assert_eq!(mmb.through(B, &answer), echo(SERVER, INSIDE, 0, 7));
    mmb.now_ms += 60_000;
    assert_eq!(mmb.through(B, &answer), answer, "it is of no connection any more");
    assert!(mmb.list().is_empty());
}
