//! What one host may take of what all share: outside ports, and connections.

use crate::host::{engine, pass, pass_among, policy, ports};
use mmb_engine::{DropReason, Engine, Verdict, Worker};
use mmb_packet::PortId;
use mmb_testkit::{Ip4, Ip6, Tcp, Udp, Upper};
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const A: u16 = 0;
const B: u16 = 1;
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
const NAT: &str = "add-stateful in a ip-saddr 10.0.0.0/8 map ip-saddr 200.0.0.1";
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

fn inside(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, host)
}

fn udp(source: Ipv4Addr, sport: u16, dport: u16) -> Vec<u8> {
    let upper = Upper::Udp(Udp { sport, dport, payload: vec![7; 4], ..Udp::default() });
    Ip4 { source, destination: SERVER, ..Ip4::new(upper) }.frame().bytes()
}

fn syn(source: Ipv4Addr, sport: u16, dport: u16) -> Vec<u8> {
    let upper = Upper::Tcp(Tcp { sport, dport, flags: SYN, ..Tcp::default() });
    Ip4 { source, destination: SERVER, ..Ip4::new(upper) }.frame().bytes()
}

/// How many of these frames are sent.
fn sent(worker: &mut Worker, frames: &[Vec<u8>]) -> usize {
    let sent = |(verdict, _): &(Verdict, Vec<u8>)| *verdict == Verdict::Send(PortId(1));
    frames
        .chunks(256)
        .map(|frames| pass(worker, A, frames).iter().filter(|passed| sent(passed)).count())
        .sum()
}

fn dropped(engine: &Engine, reason: DropReason) -> u64 {
    engine.drops().iter().find(|(of, _)| *of == reason).map_or(0, |(_, count)| *count)
}

/// One host took every port: others' new flows were dropped as nat-no-port until the first one's timed out. Linux passes 50 of 50.
#[test]
fn others_get_ports_after_one_host_has_sent_66_000_flows() {
    type Flow = fn(Ipv4Addr, u16, u16) -> Vec<u8>;
    // By the share of the default, and where a host may take all by what nobody answered.
    for (flow, setting) in [(udp as Flow, ""), (syn, ""), (udp, "set nat ports-per-host 65536\n")] {
        let (engine, mut worker) = engine(&format!("{setting}{NAT}"));
        let flood: Vec<_> = (0..66_000_u32)
            .map(|n| flow(inside(9), (n % 60_000 + 1024) as u16, 53 + (n / 60_000) as u16))
            .collect();
        sent(&mut worker, &flood);
        for host in 20..25 {
            let flows: Vec<_> = (5000..5050).map(|port| flow(inside(host), port, 443)).collect();
            assert_eq!(sent(&mut worker, &flows), 50, "host {host}");
        }
        assert_eq!(dropped(&engine, DropReason::NatHostLimit) > 0, setting.is_empty());
        assert_eq!(dropped(&engine, DropReason::NatNoPort), 0);
    }
}

#[test]
fn a_number_of_ports_is_kept_to() {
    let (engine, mut worker) = engine(&format!("set nat ports-per-host 10\n{NAT}"));
    let flows: Vec<_> = (5000..5050).map(|port| udp(inside(9), port, 443)).collect();
    assert_eq!(sent(&mut worker, &flows), 10);
    assert_eq!(sent(&mut worker, &flows), 10, "flows that have a port go on");
    assert_eq!(dropped(&engine, DropReason::NatHostLimit), 80);
    let others: Vec<_> = (5000..5010).map(|port| udp(inside(10), port, 443)).collect();
    assert_eq!(sent(&mut worker, &others), 10);
}

/// An outside end that is the inside end itself needs nothing to be led to it, and holds nothing then.
#[test]
fn packets_to_an_end_that_is_its_own_outside_end_hold_no_port() {
    let text = "set nat ports-per-host 1\nset nat filtering endpoint-independent\n\
                add-stateful in a map ip-saddr 10.0.0.1 map udp-sport 1024-65535";
    let mut middlebox = crate::host::Middlebox::new(text);
    let sent = middlebox.through(A, &udp(inside(1), 5000, 53));
    assert_eq!(sent, udp(inside(1), 5000, 53));
    for sport in 6000..6100 {
        let upper = Upper::Udp(Udp { sport, dport: 5000, ..Udp::default() });
        let stranger = Ip4 { source: SERVER, destination: inside(1), ..Ip4::new(upper) }.frame().bytes();
        assert_eq!(middlebox.through(B, &stranger), stranger);
    }
    middlebox.wait(600);
    middlebox.wait(600);
    assert!(middlebox.list().is_empty());
    middlebox.through(A, &udp(inside(1), 5001, 53));
}

#[test]
fn a_source_begins_as_many_connections_as_it_may() {
    let text = "set timeout udp-unreplied 10\nset conn per-source 5\nadd-stateful all accept";
    let (engine, mut worker) = engine(text);
    let flows = |host| -> Vec<_> { (5000..5008).map(|port| udp(inside(host), port, 443)).collect() };
    assert_eq!(sent(&mut worker, &flows(1)), 5);
    assert_eq!(sent(&mut worker, &flows(1)), 5, "those that there are go on");
    assert_eq!(sent(&mut worker, &flows(2)), 5);
    assert_eq!(dropped(&engine, DropReason::ConnPerSource), 9);
    // What ended makes room.
    let mut later = |frames: &[Vec<u8>]| {
        let passed = crate::host::process(A, frames, |packets, verdicts| {
            worker.process(20_000_000_000, &mmb_engine::NoCycles, packets, verdicts);
        });
        passed.iter().filter(|(verdict, _)| *verdict == Verdict::Send(PortId(1))).count()
    };
    assert_eq!(later(&flows(1)), 5);
}

#[test]
fn a_source_of_ipv6_is_a_network_of_64_bits() {
    let (_, mut worker) = engine("set conn per-source 5\nadd-stateful all accept");
    let flow = |network: u16, host: u16| {
        let upper = Upper::Udp(Udp { sport: 5000, dport: 443, payload: vec![7; 4], ..Udp::default() });
        let source = Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host);
        let destination = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);
        Ip6 { source, destination, ..Ip6::new(upper) }.frame().bytes()
    };
    let frames = |network| -> Vec<_> { (1..9).map(|host| flow(network, host)).collect() };
    assert_eq!(sent(&mut worker, &frames(1)), 5);
    assert_eq!(sent(&mut worker, &frames(2)), 5);
}

#[test]
fn connections_of_a_source_are_counted_over_all_workers() {
    let (mut engine, mut workers) = Engine::new(ports(), 4, &mmb_random::SeedTree::repeatable(1));
    engine
        .publish(&policy("set conn per-source 20\nadd-stateful all accept"))
        .expect("it can be put in force");
    let flows: Vec<_> = (5000..5100).map(|port| udp(inside(1), port, 443)).collect();
    let passed = pass_among(&mut workers, (0, 1000), A, &flows);
    assert_eq!(passed.iter().filter(|(verdict, _)| *verdict == Verdict::Send(PortId(1))).count(), 20);
    // Without the setting nothing is counted; set again, it counts those that are counted still and new ones.
    engine.publish(&policy("add-stateful all accept")).expect("it can be put in force");
    let more: Vec<_> = (6000..6100).map(|port| udp(inside(1), port, 443)).collect();
    let passed = pass_among(&mut workers, (0, 1000), A, &more);
    assert_eq!(passed.iter().filter(|(verdict, _)| *verdict == Verdict::Send(PortId(1))).count(), 100);
    engine
        .publish(&policy("set conn per-source 25\nadd-stateful all accept"))
        .expect("it can be put in force");
    let last: Vec<_> = (7000..7100).map(|port| udp(inside(1), port, 443)).collect();
    let passed = pass_among(&mut workers, (0, 1000), A, &last);
    assert_eq!(passed.iter().filter(|(verdict, _)| *verdict == Verdict::Send(PortId(1))).count(), 5);
}

/// A TCP segment of host 9 to a server, or back to the outside end, whose sequence numbers each count from 100.
struct Ends {
    inside: (Ipv4Addr, u16),
    outside: (Ipv4Addr, u16),
    server: (Ipv4Addr, u16),
}

impl Ends {
    /// Opens and closes a connection; the worker sees the same segments as a router in its place would.
    fn open_and_close(worker: &mut Worker, inside: (Ipv4Addr, u16), server: (Ipv4Addr, u16)) -> Ends {
        let first = segment(inside, server, (SYN, 100, 0));
        let (verdict, frame) = pass(worker, A, &[first]).remove(0);
        assert_eq!(verdict, Verdict::Send(PortId(1)));
        let outside = (Ipv4Addr::new(200, 0, 0, 1), u16::from_be_bytes([frame[34], frame[35]]));
        let ends = Ends { inside, outside, server };
        for (is_out, flags, seq, ack) in [
            (false, SYN | ACK, 500, 101),
            (true, ACK, 101, 501),
            (true, FIN | ACK, 101, 501),
            (false, FIN | ACK, 501, 102),
            (true, ACK, 102, 502),
        ] {
            assert!(ends.passes(worker, is_out, (flags, seq, ack)));
        }
        ends
    }

    /// Whether a segment arrives where it should.
    fn passes(&self, worker: &mut Worker, is_out: bool, header: (u8, u32, u32)) -> bool {
        let (port, sent, arrives) = if is_out {
            (A, segment(self.inside, self.server, header), segment(self.outside, self.server, header))
        } else {
            (B, segment(self.server, self.outside, header), segment(self.server, self.inside, header))
        };
        pass(worker, port, &[sent]) == [(Verdict::Send(PortId(1 - port)), arrives)]
    }
}

fn segment(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), (flags, seq, ack): (u8, u32, u32)) -> Vec<u8> {
    let upper = Tcp { sport: from.1, dport: to.1, flags, seq, ack, window: 1000, ..Tcp::default() };
    Ip4 { source: from.0, destination: to.0, ..Ip4::new(Upper::Tcp(upper)) }.frame().bytes()
}

/// A connection that both ends have closed, or the responder has reset, is kept for late packets, and counts no more.
#[test]
fn connections_that_are_over_do_not_count_for_their_source() {
    let (engine, mut worker) =
        engine("set conn per-source 2\nset conn pickup strict\nadd-stateful in a map ip-saddr 200.0.0.1\n");
    let server = (Ipv4Addr::new(203, 0, 113, 5), 443);
    for port in 5000..5010 {
        Ends::open_and_close(&mut worker, (inside(9), port), server);
    }
    for port in 6000..6010 {
        let (_, frame) = pass(&mut worker, A, &[segment((inside(9), port), server, (SYN, 100, 0))]).remove(0);
        let outside = (Ipv4Addr::new(200, 0, 0, 1), u16::from_be_bytes([frame[34], frame[35]]));
        let ends = Ends { inside: (inside(9), port), outside, server };
        assert!(ends.passes(&mut worker, false, (RST | ACK, 0, 101)), "{port}");
    }
    assert_eq!(connections_of(&engine, &mut worker, inside(9)), 20);
    let syns = |ports: std::ops::Range<u16>| -> Vec<_> {
        ports.map(|port| segment((inside(9), port), server, (SYN, 100, 0))).collect()
    };
    assert_eq!(sent(&mut worker, &syns(7000..7010)), 2);
    assert_eq!(dropped(&engine, DropReason::ConnPerSource), 8);
    // A RST of the initiator may not arrive: more of it would pass.
    let resets = [7000, 7001].map(|port| segment((inside(9), port), server, (RST, 101, 0)));
    assert_eq!(sent(&mut worker, &resets), 2);
    assert_eq!(sent(&mut worker, &syns(8000..8010)), 0);
    // One of those that are over begins anew, in its own place.
    let again = segment((inside(9), 5000), server, (SYN, 1_000_000, 0));
    assert_eq!(sent(&mut worker, &[again]), 0);
}

/// A hundred ports, which one host may take all.
fn hundred_ports(more: &str) -> String {
    format!(
        "set nat ports-per-host 65536\n{more}\n\
         add-stateful in a ip-saddr 10.0.0.0/8 ip-proto udp map ip-saddr 200.0.0.1 map udp-sport 30000-30099\n\
         add-stateful in a ip-saddr 10.0.0.0/8 ip-proto tcp map ip-saddr 200.0.0.1 map tcp-sport 30000-30099\n"
    )
}

/// A flood that nobody answers held every port for two minutes.
#[test]
fn an_unreplied_connection_gives_its_port_to_a_new_flow() {
    for flow in [udp as fn(Ipv4Addr, u16, u16) -> Vec<u8>, syn] {
        let (engine, mut worker) = engine(&hundred_ports(""));
        // Someone has a few ports before; they are not whom it is taken from.
        let before: Vec<_> = (6000..6010).map(|port| flow(inside(8), port, 443)).collect();
        assert_eq!(sent(&mut worker, &before), 10);
        let flood: Vec<_> = (2000..4000).map(|port| flow(inside(9), port, 443)).collect();
        sent(&mut worker, &flood);
        let others: Vec<_> = (5000..5025).map(|port| flow(inside(20), port, 443)).collect();
        let more: Vec<_> = (5000..5025).map(|port| flow(inside(21), port, 443)).collect();
        assert_eq!((sent(&mut worker, &others), sent(&mut worker, &more)), (25, 25));
        for host in [8, 20, 21] {
            let connections = connections_of(&engine, &mut worker, inside(host));
            assert_eq!(connections, if host == 8 { 10 } else { 25 }, "of host {host}");
        }
        assert_eq!(dropped(&engine, DropReason::NatNoPort), 0);
    }
}

/// How many of these frames, one after the other, are sent at a time.
fn sent_at(worker: &mut Worker, now_ms: u64, frames: &[Vec<u8>]) -> usize {
    let sends = |frame: &&Vec<u8>| {
        let passed = crate::host::process(A, &[frame.to_vec()], |packets, verdicts| {
            worker.process(now_ms * 1_000_000, &mmb_engine::NoCycles, packets, verdicts);
        });
        passed[0].0 == Verdict::Send(PortId(1))
    };
    frames.iter().filter(sends).count()
}

/// Flows of so many hosts of one port each.
fn of_many_hosts(count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|host| udp(Ipv4Addr::from(0x0a80_0000 + host), 5000, 443)).collect()
}

/// Opens a flow and answers it.
fn open_and_answer(worker: &mut Worker, host: Ipv4Addr, port: u16) -> bool {
    let (_, frame) = pass(worker, A, &[udp(host, port, 443)]).remove(0);
    let dport = u16::from_be_bytes([frame[34], frame[35]]);
    let upper = Upper::Udp(Udp { sport: 443, dport, payload: vec![8; 4], ..Udp::default() });
    let destination = Ipv4Addr::new(200, 0, 0, 1);
    let answer = Ip4 { source: SERVER, destination, ..Ip4::new(upper) }.frame().bytes();
    pass(worker, B, &[answer])[0].0 == Verdict::Send(PortId(0))
}

/// Made-up hosts of one port each kept a busy host from any further port: it takes none from hosts that hold fewer.
#[test]
fn a_busy_host_takes_ports_back_from_made_up_hosts_of_one() {
    let (engine, mut worker) = engine(&hundred_ports(""));
    assert!((6000..6030).all(|port| open_and_answer(&mut worker, inside(8), port)));
    assert_eq!(sent(&mut worker, &of_many_hosts(70)), 70);
    let more: Vec<_> = (7000..7020).map(|port| udp(inside(8), port, 443)).collect();
    assert_eq!(sent(&mut worker, &more), 20);
    assert_eq!(dropped(&engine, DropReason::NatNoPort), 0);
}

/// Who holds many ports takes from others what nobody answered for some seconds only.
#[test]
fn a_long_unreplied_connection_gives_its_port_to_any_other() {
    let (_, mut worker) = engine(&hundred_ports(""));
    assert!((6000..6070).all(|port| open_and_answer(&mut worker, inside(8), port)));
    assert_eq!(sent(&mut worker, &of_many_hosts(30)), 30);
    let more: Vec<_> = (7000..7020).map(|port| udp(inside(8), port, 443)).collect();
    assert_eq!(sent_at(&mut worker, 1000, &more), 0);
    assert_eq!(sent_at(&mut worker, 6000, &more), 20);
}

/// A short burst of made-up hosts took the whole pool: a host that held more than 64 ports had no share left until they timed out.
#[test]
fn a_burst_that_is_over_leaves_busy_hosts_their_share() {
    let (engine, mut worker) = engine(NAT);
    assert!((6000..6300).all(|port| open_and_answer(&mut worker, inside(250), port)));
    let flood = (0..66_000_u32).map(|n| udp(inside((n % 245) as u8), (n / 245 + 1024) as u16, 53));
    sent(&mut worker, &flood.collect::<Vec<_>>());
    let more: Vec<_> = (7000..7100).map(|port| udp(inside(250), port, 443)).collect();
    assert!(sent_at(&mut worker, 1000, &more) < 100, "the pool is full");
    assert_eq!(sent_at(&mut worker, 24_000, &more), 100);
    let held = connections_of(&engine, &mut worker, inside(250));
    assert_eq!(held, 400, "what was answered has not ended");
}

/// One host that kept asking for what it does not get kept all others of the worker from taking ports back.
#[test]
fn a_host_that_keeps_asking_in_vain_does_not_slow_others_down() {
    let (engine, mut worker) = engine(&hundred_ports("set nat ports-per-host 50"));
    // Each of two hosts is at its limit, one of them by connections that are over.
    assert!((6000..6050).all(|port| open_and_answer(&mut worker, inside(9), port)));
    let asking: Vec<_> = (7000..7256).map(|port| udp(inside(9), port, 443)).collect();
    for port in 2000..2050 {
        Ends::open_and_close(&mut worker, (inside(20), port), (SERVER, 443));
    }
    for round in 0..30 {
        assert_eq!(sent(&mut worker, &asking), 0);
        assert_eq!(sent(&mut worker, &[syn(inside(20), 3000 + round, 443)]), 1, "round {round}");
    }
    // Nor does one that holds many ports, and finds none in the pool that it may take, others that hold few.
    assert_eq!(sent(&mut worker, &of_many_hosts(50)), 50);
    let few: Vec<_> = (0..30).map(|host| udp(inside(30 + host), 5000, 443)).collect();
    for flow in few {
        assert_eq!(sent(&mut worker, &asking), 0);
        assert_eq!(sent(&mut worker, &[flow]), 1);
    }
    assert_eq!(dropped(&engine, DropReason::NatNoPort), 0);
}

/// RFC 4787 REQ-3: what is in use is not overloaded, nor ended for another.
#[test]
fn what_was_answered_keeps_its_port() {
    let (engine, mut worker) = engine(&hundred_ports(""));
    let mut answers = Vec::new();
    for port in 2000..2100 {
        let (_, frame) = pass(&mut worker, A, &[udp(inside(9), port, 443)]).remove(0);
        let upper = Upper::Udp(Udp {
            sport: 443,
            dport: u16::from_be_bytes([frame[34], frame[35]]),
            payload: vec![8; 4],
            ..Udp::default()
        });
        let destination = Ipv4Addr::new(200, 0, 0, 1);
        answers.push(Ip4 { source: SERVER, destination, ..Ip4::new(upper) }.frame().bytes());
    }
    let answered = |worker: &mut Worker| {
        let passed = pass(worker, B, &answers);
        passed.iter().all(|(verdict, _)| *verdict == Verdict::Send(PortId(0)))
    };
    assert!(answered(&mut worker));
    assert_eq!(sent(&mut worker, &[udp(inside(20), 5000, 443)]), 0);
    assert_eq!(dropped(&engine, DropReason::NatNoPort), 1);
    assert!(answered(&mut worker), "old ones go on");
}

/// Connections in TIME-WAIT held their ports for four minutes against everybody.
#[test]
fn what_is_over_lends_its_port_and_still_translates_stragglers() {
    let (engine, mut worker) = engine(&hundred_ports(""));
    let over: Vec<Ends> = (2000..2100)
        .map(|port| Ends::open_and_close(&mut worker, (inside(9), port), (SERVER, 443)))
        .collect();
    assert_eq!(over.iter().map(|ends| ends.outside.1).collect::<BTreeSet<_>>().len(), 100);
    // Others reach another server from the same ports.
    let new: Vec<Ends> = (2000..2050)
        .map(|port| Ends::open_and_close(&mut worker, (inside(20), port), (SERVER, 80)))
        .collect();
    for ends in over.iter().chain(&new) {
        assert!(ends.passes(&mut worker, false, (FIN | ACK, 501, 102)), "again, since its ACK was lost");
        assert!(ends.passes(&mut worker, true, (ACK, 102, 502)));
    }
    assert_eq!(connections_of(&engine, &mut worker, inside(9)), 100, "none has ended");
    // The same server would mix them up: there the old one ends.
    for port in 3000..3100 {
        Ends::open_and_close(&mut worker, (inside(21), port), (SERVER, 443));
    }
    assert_eq!(dropped(&engine, DropReason::NatNoPort), 0);
}

/// A SYN from outside ended what was over, whether or not it began anything, and its port was another's.
#[test]
fn a_syn_that_begins_nothing_ends_nothing() {
    let (engine, mut worker) = engine(&format!("set nat filtering address-and-port-dependent\n{NAT}"));
    let ends = Ends::open_and_close(&mut worker, (inside(9), 2000), (SERVER, 443));
    let syn = segment(ends.server, ends.outside, (SYN, 70_000, 0));
    let passed = pass(&mut worker, B, std::slice::from_ref(&syn));
    assert_eq!(passed, [(Verdict::Send(PortId(0)), syn)], "as it came");
    assert!(ends.passes(&mut worker, false, (FIN | ACK, 501, 102)), "a straggler");
    assert_eq!(connections_of(&engine, &mut worker, inside(9)), 1);
}

#[test]
fn a_source_that_may_begin_no_more_ends_nothing_of_others() {
    let (engine, mut worker) = engine(&format!("set conn per-source 1\n{NAT}"));
    let ends = Ends::open_and_close(&mut worker, (inside(9), 2000), (SERVER, 443));
    // The server has begun one already, to another port of the outside address.
    let other = Ends::open_and_close(&mut worker, (inside(10), 2001), (SERVER, 443));
    assert!(other.passes(&mut worker, false, (SYN, 70_000, 0)));
    let syn = segment(ends.server, ends.outside, (SYN, 70_000, 0));
    assert_eq!(pass(&mut worker, B, &[syn])[0].0, Verdict::Drop(DropReason::ConnPerSource));
    assert_eq!(connections_of(&engine, &mut worker, inside(9)), 1);
    assert!(ends.passes(&mut worker, true, (SYN, 70_000, 0)), "the host itself replaces what it began");
}

/// Half of the numbers are lower than the last one of the closed connection. Linux takes them all.
#[test]
fn a_closed_connection_is_reopened_from_either_end() {
    for (is_out, number) in [(true, 70_000), (false, 70_000), (true, 90), (false, 90)] {
        let (_, mut worker) = engine(NAT);
        let ends = Ends::open_and_close(&mut worker, (inside(9), 2000), (SERVER, 443));
        assert!(ends.passes(&mut worker, false, (FIN | ACK, 501, 102)), "a straggler");
        assert!(ends.passes(&mut worker, is_out, (SYN, number, 0)));
        assert!(ends.passes(&mut worker, !is_out, (SYN | ACK, 90_000, number + 1)));
        assert!(ends.passes(&mut worker, is_out, (ACK, number + 1, 90_001)));
    }
}

/// A host that closes what it opens is not at its limit for minutes after.
#[test]
fn what_is_over_does_not_count_against_its_host() {
    let (engine, mut worker) = engine(&format!("set nat ports-per-host 5\n{NAT}"));
    for port in 2000..2020 {
        Ends::open_and_close(&mut worker, (inside(9), port), (SERVER, 443));
    }
    assert_eq!(dropped(&engine, DropReason::NatHostLimit), 0);
    let open: Vec<_> = (3000..3010).map(|port| syn(inside(9), port, 443)).collect();
    assert_eq!(sent(&mut worker, &open), 5);
    assert_eq!(dropped(&engine, DropReason::NatHostLimit), 5);
}

/// How many connections a host has begun.
fn connections_of(engine: &Engine, worker: &mut Worker, host: Ipv4Addr) -> usize {
    let connections = engine.connections();
    let count = move || {
        let mut all = 0;
        let mut each = |info: mmb_engine::ConnectionInfo| {
            all += usize::from(info.arrived.src == IpAddr::V4(host));
            true
        };
        connections.list(&mmb_policy::ConnectionFilter::ALL, &mut each).expect("the worker answers");
        all
    };
    std::thread::scope(|scope| {
        let asking = scope.spawn(count);
        while !asking.is_finished() {
            worker.process(0, &mmb_engine::NoCycles, &mut [], &mut []);
        }
        asking.join().expect("it does not panic")
    })
}
