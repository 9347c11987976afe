//! What rules with `log` tell: every packet that counts for the rule, as it arrived, with its verdict; of a stateful rule, the packets that begin
//! connections. A limit holds for each rule.

use crate::host::{Middlebox, policy};
use crate::inside_frames::{A, ACK, B, INSIDE, OUTSIDE, SERVER, SYN, ip4, tcp, udp};
use mmb_engine::{
    ConnectionWatch, DropReason, Endpoints, IpHeaderInfo, PacketEvent, SuppressedEvent, Verdict, WatchedEvent,
};
use mmb_packet::PortId;
use mmb_policy::RuleId;
use mmb_testkit::{Frame, Icmp, Ip4, Ip6, Tcp, Udp, Upper};

const CLIENT: (std::net::Ipv4Addr, u16) = (INSIDE, 5000);
const WEB: (std::net::Ipv4Addr, u16) = (SERVER, 80);
const PASSES: Verdict = Verdict::Send(PortId(1));
const RETURNS: Verdict = Verdict::Send(PortId(0));
const DROPPED: Verdict = Verdict::Drop(DropReason::Rule);

/// A middlebox whose events are watched, without a limit.
fn watched(text: &str) -> (Middlebox, ConnectionWatch) {
    let mut mmb = Middlebox::new(&format!("set log rate unlimited\n{text}"));
    let watch = mmb.ask(|connections| connections.watch().expect("the worker answers"));
    (mmb, watch)
}

/// The packets that were logged since the last call.
fn packets(watch: &ConnectionWatch) -> Vec<PacketEvent> {
    let packet = |event| if let WatchedEvent::Packet(event) = event { Some(event) } else { None };
    watch.try_iter().filter_map(packet).collect()
}

/// Their rules and verdicts.
fn logged(watch: &ConnectionWatch) -> Vec<(u32, Verdict)> {
    packets(watch).iter().map(|event| (event.rule.0, event.verdict)).collect()
}

#[test]
fn a_packet_is_told_as_it_arrived() {
    let (mut mmb, watch) = watched("add name seen in a mod ip-ttl 3 log \"a packet\"");
    let frame = tcp(CLIENT, WEB, SYN | ACK);
    mmb.through(A, &frame);
    let expected = PacketEvent {
        at_ns: 1_000_000_000,
        rule: RuleId(1),
        name: Some("seen".into()),
        text: Some("a packet".into()),
        worker: 0,
        port: PortId(A),
        len: frame.len() as u32,
        vlans: [0; 2],
        eth_type: 0x0800,
        ip: Some(IpHeaderInfo {
            proto: 6,
            ends: Endpoints { src: INSIDE.into(), sport: 5000, dst: SERVER.into(), dport: 80 },
            is_later_fragment: false,
            tcp_flags: Some(SYN | ACK),
            icmp: None,
        }),
        verdict: PASSES,
    };
    assert_eq!(packets(&watch), [expected]);
    mmb.through(B, &tcp(WEB, CLIENT, ACK));
    assert_eq!(packets(&watch), []);
}

#[test]
fn other_protocols_are_told_with_what_they_have() {
    let (mut mmb, watch) = watched("add eth-type arp log\nadd all log");
    let icmp = ip4(INSIDE, SERVER, Upper::Icmp(Icmp { icmp_type: 8, code: 0, ..Icmp::default() }));
    let upper = Upper::Raw(17, b"the rest of a datagram".to_vec());
    let later = Ip4 { frag_offset: 4, ..Ip4::new(upper) }.frame().bytes();
    let tagged = Udp::default().over_ip4().vlan(10).service_vlan(20).bytes();
    let ip6 = Ip6::new(Upper::Udp(Udp { sport: 7, dport: 9, ..Udp::default() })).frame().bytes();
    for frame in [&icmp, &later, &tagged, &ip6, &Frame::arp().bytes()] {
        mmb.through(A, frame);
    }
    let events = packets(&watch);
    let [icmp, later, tagged, ip6, arp] = &events[..] else { panic!("{events:?}") };
    let ip = |event: &PacketEvent| event.ip.expect("an IP packet");
    assert_eq!((ip(icmp).icmp, ip(icmp).ends.sport, ip(icmp).tcp_flags), (Some([8, 0]), 0, None));
    assert_eq!((ip(later).is_later_fragment, ip(later).ends.sport, ip(later).proto), (true, 0, 17));
    assert_eq!(tagged.vlans, [20, 10], "the outermost first");
    assert_eq!((ip6.eth_type, ip(ip6).ends.sport, ip(ip6).ends.dport), (0x86dd, 7, 9));
    assert_eq!((arp.eth_type, arp.ip, arp.rule), (0x0806, None, RuleId(1)));
}

#[test]
fn every_packet_that_counts_is_told_with_and_without_connections() {
    for stateful in ["", "add-stateful ip-proto tcp accept", "add-stateful in a map ip-saddr 200.0.0.1"] {
        let rules = "add tcp-dport 80 log\nadd udp-dport 53 drop log\nadd in b log";
        let (mut mmb, watch) = watched(&format!("{rules}\n{stateful}"));
        for flags in [SYN, ACK, ACK, ACK] {
            mmb.through(A, &tcp(CLIENT, WEB, flags));
        }
        assert_eq!(logged(&watch), [(1, PASSES); 4], "{stateful}");
        for _ in 0..3 {
            mmb.dropped(A, &udp(CLIENT, (SERVER, 53)));
        }
        assert_eq!(logged(&watch), [(2, DROPPED); 3], "{stateful}");
        let outside = if stateful.contains("map") { OUTSIDE } else { INSIDE };
        for flags in [SYN | ACK, ACK, ACK] {
            mmb.through(B, &tcp(WEB, (outside, 5000), flags));
        }
        assert_eq!(logged(&watch), [(3, RETURNS); 3], "{stateful}");
        for (rule, packets) in [(1, 4), (2, 3), (3, 3)] {
            assert_eq!(mmb.engine.rule_count(RuleId(rule)).matched.packets, packets, "{stateful}: {rule}");
        }
    }
}

#[test]
fn a_stateful_rule_tells_of_packets_that_begin_connections() {
    let (mut mmb, watch) = watched("set conn max 1\nadd-stateful in a log \"new\" accept");
    for (port, flags) in [(A, SYN), (B, SYN | ACK), (A, ACK), (A, ACK), (A, ACK)] {
        let (from, to) = if port == A { (CLIENT, WEB) } else { (WEB, CLIENT) };
        mmb.through(port, &tcp(from, to, flags));
    }
    assert_eq!(logged(&watch), [(1, PASSES)]);
    // The one that there is no room for.
    assert_eq!(mmb.dropped(A, &tcp((INSIDE, 5001), WEB, SYN)), DropReason::ConnFull);
    assert_eq!(logged(&watch), [(1, Verdict::Drop(DropReason::ConnFull))]);
}

#[test]
fn rules_on_the_state_of_connections_tell_of_packets_in_it() {
    let (mut mmb, watch) =
        watched("add-stateful in a ip-proto tcp accept\nadd ct new log\nadd ct established log");
    mmb.through(A, &tcp(CLIENT, WEB, SYN));
    assert_eq!(logged(&watch), [(2, PASSES)]);
    mmb.through(B, &tcp(WEB, CLIENT, SYN | ACK));
    (0..3).for_each(|_| _ = mmb.through(A, &tcp(CLIENT, WEB, ACK)));
    assert_eq!(logged(&watch), [(3, RETURNS), (3, PASSES), (3, PASSES), (3, PASSES)]);
}

#[test]
fn a_limit_holds_for_each_rule_and_the_rest_is_a_number() {
    let mut mmb = Middlebox::new("add tcp-dport 80 log\nadd name dns udp-dport 53 log \"q\"");
    let watch = mmb.ask(|connections| connections.watch().expect("the worker answers"));
    for _ in 0..100 {
        mmb.through(A, &tcp(CLIENT, WEB, ACK));
        mmb.through(A, &udp(CLIENT, (SERVER, 53)));
    }
    let events: Vec<WatchedEvent> = watch.try_iter().collect();
    let of =
        |rule| events.iter().filter(move |e| matches!(e, WatchedEvent::Packet(e) if e.rule == RuleId(rule)));
    // `set log burst` is 20.
    assert_eq!([of(1).count(), of(2).count(), events.len()], [20, 20, 40]);
    mmb.wait(1);
    let suppressed = |event| if let WatchedEvent::Suppressed(event) = event { Some(event) } else { None };
    let events: Vec<SuppressedEvent> = watch.try_iter().filter_map(suppressed).collect();
    let numbers: Vec<_> = events.iter().map(|event| (event.rule.0, event.packets)).collect();
    assert_eq!(numbers, [(1, 80), (2, 80)]);
    assert_eq!((events[1].name.as_deref(), events[1].text.as_deref()), (Some("dns"), Some("q")));
    // `set log rate` is 10: after the second there is room for ten.
    (0..15).for_each(|_| _ = mmb.through(A, &tcp(CLIENT, WEB, ACK)));
    assert_eq!(logged(&watch), [(1, PASSES); 10]);
    mmb.wait(1);
    let events: Vec<SuppressedEvent> = watch.try_iter().filter_map(suppressed).collect();
    assert_eq!(events.iter().map(|event| (event.rule.0, event.packets)).collect::<Vec<_>>(), [(1, 5)]);
}

#[test]
fn nobody_listens_and_nothing_is_counted_as_told() {
    let mut mmb = Middlebox::new("add all log");
    (0..100).for_each(|_| _ = mmb.through(A, &udp(CLIENT, WEB)));
    mmb.wait(1);
    let watch = mmb.ask(|connections| connections.watch().expect("the worker answers"));
    (0..20).for_each(|_| _ = mmb.through(A, &udp(CLIENT, WEB)));
    assert_eq!(logged(&watch), [(1, PASSES); 20]);
    assert_eq!(mmb.engine.connections().summary().events_lost, 0);
}

#[test]
fn a_rule_that_goes_tells_what_it_had_left_out() {
    let mut mmb = Middlebox::new("add all log");
    let watch = mmb.ask(|connections| connections.watch().expect("the worker answers"));
    (0..30).for_each(|_| _ = mmb.through(A, &udp(CLIENT, WEB)));
    assert_eq!(logged(&watch).len(), 20);
    mmb.engine.publish(&policy("add id 9 all accept")).expect("a policy");
    mmb.wait(1);
    (0..30).for_each(|_| _ = mmb.through(A, &udp(CLIENT, WEB)));
    let events: Vec<WatchedEvent> = watch.try_iter().collect();
    assert!(
        matches!(&events[..], [WatchedEvent::Suppressed(event)] if (event.rule, event.packets) == (RuleId(1), 10)),
        "{events:?}"
    );
}

#[test]
fn a_full_queue_loses_events_and_counts_them() {
    let mut mmb = Middlebox::new("set log rate unlimited\nadd all log");
    let watch = mmb.ask(|connections| connections.watch_with_capacity(8).expect("the worker answers"));
    (0..20).for_each(|_| _ = mmb.through(A, &udp(CLIENT, WEB)));
    assert_eq!((packets(&watch).len(), watch.take_lost()), (8, 12));
    assert_eq!(mmb.engine.connections().summary().events_lost, 12);
}

#[test]
fn segments_without_flags_have_none() {
    let (mut mmb, watch) = watched("add all log");
    mmb.through(A, &Tcp { flags: 0, ..Tcp::default() }.over_ip4().bytes());
    assert_eq!(packets(&watch)[0].ip.map(|ip| ip.tcp_flags), Some(Some(0)));
}
