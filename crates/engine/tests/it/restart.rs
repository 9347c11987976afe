//! Connections from one engine to another: what a transfer through a translation sees of a restart is nothing.

use crate::host::{engine, pass_among, policy};
use mmb_engine::{
    ConnectionInfo, Connections, Engine, Forward, LeftOutConnection, LoadSummary, NoCycles, PortSpec,
    PortTable, SavedState, StateWriter, Verdict, Worker,
};
use mmb_packet::PortId;
use mmb_policy::{ConnectionFilter, RuleId};
use mmb_random::SeedTree;
use mmb_testkit::{Dccp, Ip4, Ip6, Sctp, Tcp, Udp, UdpLite, Upper, gre};
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};

const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(200, 0, 0, 1);
const NOW_NS: u64 = 2_000_000_000;
/// Milliseconds since 1970 when a state is saved.
const SAVED_MS: u64 = 1_700_000_000_000;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
const NAT: &str = "add-stateful id 1 in a ip-saddr 10.0.0.0/8 ip-proto tcp map ip-saddr 200.0.0.1 shuffle tcp-sport \
                   shuffle tcp-seq-num\nadd-stateful id 2 in a ip-proto udp map ip-saddr 200.0.0.1";

/// An engine and its packet threads.
struct Middlebox {
    engine: Engine,
    workers: Vec<Worker>,
}

impl Middlebox {
    fn new(text: &str) -> Middlebox {
        let (engine, worker) = engine(text);
        Middlebox { engine, workers: vec![worker] }
    }

    /// With another seed than [`Middlebox::new`] has, and as many workers.
    fn with_workers(text: &str, workers: usize) -> Middlebox {
        let spec = |name: &str, peer| PortSpec {
            name: name.into(),
            mtu: None,
            forward: Forward::Wire(PortId(peer)),
        };
        let ports = PortTable(vec![spec("a", 1), spec("b", 0)]);
        let (mut engine, workers) = Engine::new(ports, workers, &SeedTree::repeatable(99));
        engine.publish(&policy(text)).expect("publishes");
        Middlebox { engine, workers }
    }

    /// What becomes of a frame that comes in by a port, at the worker that it belongs to.
    fn pass(&mut self, port: u16, frame: &[u8]) -> (Verdict, Vec<u8>) {
        pass_among(&mut self.workers, (0, NOW_NS / 1_000_000), port, &[frame.to_vec()]).remove(0)
    }

    fn through(&mut self, port: u16, frame: &[u8]) -> Vec<u8> {
        let (verdict, bytes) = self.pass(port, frame);
        assert_eq!(verdict, Verdict::Send(PortId(1 - port)));
        bytes
    }

    /// Asks about connections, with the workers answering meanwhile.
    fn ask<R: Send>(&mut self, ask: impl FnOnce(&Connections) -> R + Send) -> R {
        let connections = self.engine.connections();
        let workers = &mut self.workers;
        std::thread::scope(|scope| {
            let asking = scope.spawn(move || ask(&connections));
            while !asking.is_finished() {
                workers.iter_mut().for_each(|worker| worker.process(NOW_NS, &NoCycles, &mut [], &mut []));
            }
            asking.join().expect("it does not panic")
        })
    }

    fn list(&mut self) -> Vec<ConnectionInfo> {
        let mut all = self.ask(|connections| {
            let mut all = Vec::new();
            let listed = connections.list(&ConnectionFilter::ALL, &mut |info| {
                all.push(info);
                true
            });
            listed.map(|()| all).expect("the workers answer")
        });
        all.sort_by_key(|info| (info.proto, info.arrived.src, info.arrived.sport));
        all
    }

    fn save(&mut self) -> Vec<u8> {
        let header = self.engine.state_header(SAVED_MS);
        self.ask(|connections| {
            let mut state = Vec::new();
            let mut writer = StateWriter::new(&mut state, &header).expect("memory takes it");
            connections.save(&mut writer).expect("the workers answer");
            writer.end(&[]).expect("memory takes it");
            state
        })
    }

    /// The number of connections that were restored from a state.
    fn load(&mut self, state: &[u8]) -> Result<u64, String> {
        self.load_counted(state).map(|summary| summary.connections)
    }

    fn load_counted(&mut self, state: &[u8]) -> Result<LoadSummary, String> {
        self.load_later(state, 0).map(|(summary, _)| summary)
    }

    /// Loads a state so many milliseconds after it was saved; its rules have their ids here.
    fn load_later(
        &mut self,
        mut state: &[u8],
        gap_ms: u64,
    ) -> Result<(LoadSummary, Vec<LeftOutConnection>), String> {
        let max = self.engine.connections().summary().max;
        let state = SavedState::read(&mut state, max)?;
        let rules = (1..10).map(|id| (RuleId(id), RuleId(id))).collect();
        let map = self.engine.state_map(&state.header, SAVED_MS + gap_ms, rules);
        let mut left_out = Vec::new();
        let loaded = self.ask(|connections| connections.load(&state, || map, &mut |one| left_out.push(one)));
        Ok((loaded.expect("the workers answer"), left_out))
    }
}

fn load_summary(connections: u64, left_out: &[(&'static str, u64)]) -> LoadSummary {
    LoadSummary { connections, lost_rules: 0, left_out: left_out.iter().copied().collect() }
}

fn ip4(source: Ipv4Addr, destination: Ipv4Addr, upper: Upper) -> Vec<u8> {
    Ip4 { source, destination, ..Ip4::new(upper) }.frame().bytes()
}

fn tcp(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16), flags: u8, seq: u32, ack: u32) -> Vec<u8> {
    let segment = Tcp { sport: source.1, dport: destination.1, flags, seq, ack, ..Tcp::default() };
    ip4(source.0, destination.0, Upper::Tcp(segment))
}

fn udp(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16)) -> Vec<u8> {
    ip4(source.0, destination.0, Upper::Udp(Udp { sport: source.1, dport: destination.1, ..Udp::default() }))
}

fn sport(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[34], frame[35]])
}

fn number(frame: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]])
}

/// Offsets of the sequence and acknowledgment numbers in a frame over IPv4.
const SEQ: usize = 38;
const ACKED: usize = 42;

#[test]
fn a_transfer_through_a_translation_goes_on_behind_a_restart() {
    let mut before = Middlebox::new(NAT);
    let (inside, server) = ((INSIDE, 4000), (SERVER, 80));
    let syn = before.through(0, &tcp(inside, server, SYN, 100, 0));
    let (port, shifted) = (sport(&syn), number(&syn, SEQ));
    before.through(1, &tcp(server, (OUTSIDE, port), SYN | ACK, 500, shifted.wrapping_add(1)));
    let ack = before.through(0, &tcp(inside, server, ACK, 101, 501));
    let state = before.save();
    let was = before.list();

    for mut after in [Middlebox::with_workers(NAT, 1), Middlebox::with_workers(NAT, 3)] {
        assert_eq!(after.load(&state), Ok(1));
        let [now] = &after.list()[..] else { panic!("one connection") };
        let was = ConnectionInfo { worker: now.worker, id: now.id, ..was[0].clone() };
        assert_eq!((now, now.state), (&was, "established"));
        assert_eq!(after.through(0, &tcp(inside, server, ACK, 101, 501)), ack, "the same frame as before");
        let reply = after.through(1, &tcp(server, (OUTSIDE, port), ACK, 501, shifted.wrapping_add(1)));
        assert_eq!(number(&reply, ACKED), 101);
        assert_eq!(reply, tcp(server, inside, ACK, 501, 101));
        assert_eq!(after.load(&state), Ok(0), "it is there already");
        assert_eq!(after.list().len(), 1);
    }
}

#[test]
fn invalid_answers_are_saved_too() {
    let mut before = Middlebox::new("add-stateful in a accept");
    before.through(0, &udp((INSIDE, 4000), (SERVER, 53)));
    let mut answer = udp((SERVER, 53), (INSIDE, 4000));
    *answer.last_mut().expect("it has bytes") ^= 1;
    before.through(1, &answer);
    let (was, state) = (before.list().remove(0), before.save());
    assert_eq!((was.state, was.packets), ("unreplied", [1, 1]));
    let mut after = Middlebox::with_workers("add-stateful in a accept", 1);
    assert_eq!(after.load(&state), Ok(1));
}

#[test]
fn an_inside_endpoint_keeps_its_outside_endpoint_exclusively() {
    let mut before = Middlebox::new(NAT);
    let port = sport(&before.through(0, &udp((INSIDE, 4000), (SERVER, 53))));
    let state = before.save();
    let mut after = Middlebox::with_workers(NAT, 1);
    assert_eq!(after.load(&state), Ok(1));
    let elsewhere = (Ipv4Addr::new(198, 51, 100, 7), 53);
    assert_eq!(sport(&after.through(0, &udp((INSIDE, 4000), elsewhere))), port, "RFC 4787 REQ-1");
    let another = Ipv4Addr::new(10, 0, 0, 2);
    assert_ne!(sport(&after.through(0, &udp((another, port), elsewhere))), port);
}

/// A connection that is over lends its port, and lies before the one that has it in the file.
#[test]
fn a_shared_port_is_kept_across_a_restart() {
    let nat = "add-stateful id 1 in a ip-proto tcp map ip-saddr 200.0.0.1 shuffle tcp-sport 2000-2001";
    let mut before = Middlebox::new(nat);
    let begin = |before: &mut Middlebox, host: u8, server: (Ipv4Addr, u16)| {
        let syn = before.through(0, &tcp((Ipv4Addr::new(10, 0, 0, host), 4000), server, SYN, 100, 0));
        before.through(1, &tcp(server, (OUTSIDE, sport(&syn)), SYN | ACK, 500, 101));
        sport(&syn)
    };
    for host in 1..3 {
        let port = begin(&mut before, host, (SERVER, 80));
        before.through(1, &tcp((SERVER, 80), (OUTSIDE, port), RST | ACK, 501, 101));
    }
    let ports = [3, 4].map(|host| begin(&mut before, host, (SERVER, 443)));
    let state = before.save();
    let mut after = Middlebox::with_workers(nat, 1);
    assert_eq!(after.load(&state), Ok(4));
    for (host, port) in [3, 4].into_iter().zip(ports) {
        let ack = tcp((Ipv4Addr::new(10, 0, 0, host), 4000), (SERVER, 443), ACK, 101, 501);
        assert_eq!(sport(&after.through(0, &ack)), port);
    }
}

#[test]
fn a_connection_whose_rule_is_gone_keeps_its_translation() {
    let mut before = Middlebox::new(NAT);
    let port = sport(&before.through(0, &udp((INSIDE, 4000), (SERVER, 53))));
    let state = before.save();
    let mut after = Middlebox::with_workers("add-stateful id 9 ip-proto icmp accept", 1);
    assert_eq!(after.load(&state), Ok(1));
    assert!(after.list()[0].rules.is_empty());
    let reply = after.through(1, &udp((SERVER, 53), (OUTSIDE, port)));
    assert_eq!(reply, udp((SERVER, 53), (INSIDE, 4000)));
}

#[test]
fn thousands_of_connections_survive_over_ipv6_too() {
    let mut before = Middlebox::new("add-stateful id 5 ip-proto udp accept");
    let (a, b) =
        (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2));
    for port in 1..=3000 {
        before.through(0, &udp((INSIDE, port), (SERVER, 53)));
        let datagram = Upper::Udp(Udp { sport: port, dport: 53, ..Udp::default() });
        before.through(0, &Ip6 { source: a, destination: b, ..Ip6::new(datagram) }.frame().bytes());
    }
    let state = before.save();
    let mut after = Middlebox::with_workers("add-stateful id 5 ip-proto udp accept", 2);
    assert_eq!(after.load(&state), Ok(6000));
    let place = |info: ConnectionInfo| ConnectionInfo { worker: 0, id: 0, ..info };
    let now: Vec<_> = after.list().into_iter().map(place).collect();
    let was: Vec<_> = before.list().into_iter().map(place).collect();
    assert_eq!(now, was);
    assert!(state.len() < 6000 * 220, "{} bytes", state.len());

    let mut small = Middlebox::with_workers("set conn max 100\nadd-stateful id 5 ip-proto udp accept", 1);
    assert_eq!(small.load_counted(&state), Ok(load_summary(100, &[("conn-full", 5900)])));
    assert_eq!(small.list().len(), 100);
    let again = small.load_counted(&state);
    assert_eq!(again, Ok(load_summary(0, &[("conn-full", 5900), ("nat-clash", 100)])), "they exist already");
}

#[test]
fn protocols_with_ports_or_a_key_go_on_too() {
    const ALL: &str = "add-stateful id 1 in a ip-saddr 10.0.0.0/8 map ip-saddr 200.0.0.1";
    let build = |sport: u16, dport: u16| {
        [
            Upper::UdpLite(UdpLite { sport, dport, ..UdpLite::default() }),
            Upper::Dccp(Dccp { sport, dport, ..Dccp::default() }),
            Sctp { sport, dport, tag: 7, ..Sctp::default() }.chunk(0, 3, &[1; 12]).upper(),
            gre(Some(sport.max(dport).into())),
        ]
    };
    let mut before = Middlebox::new(ALL);
    for upper in build(5000, 80).into_iter().chain(build(5001, 80)) {
        before.through(0, &ip4(INSIDE, SERVER, upper));
    }
    let state = before.save();
    let place = |info: ConnectionInfo| ConnectionInfo { worker: 0, id: 0, ..info };
    let was: Vec<_> = before.list().into_iter().map(place).collect();
    for mut after in [Middlebox::with_workers(ALL, 1), Middlebox::with_workers(ALL, 3)] {
        assert_eq!(after.load(&state), Ok(8));
        let now: Vec<_> = after.list().into_iter().map(place).collect();
        assert!(was.iter().all(|info| now.contains(info)), "{now:#?} and {was:#?}");
        for port in [5000, 5001] {
            for (came, left) in build(80, port).into_iter().zip(build(80, port)) {
                let answer = after.through(1, &ip4(SERVER, OUTSIDE, came));
                assert_eq!(answer, ip4(SERVER, INSIDE, left));
            }
        }
        assert!(after.list().iter().all(|info| info.packets == [1, 1]));
        let summary = after.engine.connections().summary();
        assert_eq!(summary.invalid, [], "the tags are known too");
        let other = Sctp { sport: 80, dport: 5000, tag: 8, ..Sctp::default() }.chunk(0, 3, &[1; 12]);
        after.through(1, &ip4(SERVER, OUTSIDE, other.upper()));
        assert_eq!(after.engine.connections().summary().invalid, [("bad-vtag", 1)]);
    }
}

#[test]
fn of_what_is_no_state_or_only_the_beginning_of_one_nothing_is_made() {
    let mut before = Middlebox::new(NAT);
    for port in 1..=250 {
        before.through(0, &udp((INSIDE, port), (SERVER, 53)));
    }
    let state = before.save();
    let mut after = Middlebox::with_workers(NAT, 1);
    for (wrong, why) in [(&b"#!/bin/sh"[..], "no state"), (b"", "ends"), (&state[..8], "ends")] {
        let refused = after.load(wrong).expect_err("it is no state");
        assert!(refused.contains(why), "{refused}");
    }
    assert_eq!(after.list().len(), 0);
    assert!(after.load(&state[..state.len() / 2]).is_err(), "cut off");
    assert_eq!(after.list().len(), 0);
    assert_eq!(after.load(&state), Ok(250), "the whole of it may come behind");
}

#[test]
fn what_timed_out_meanwhile_is_left_out() {
    let mut before = Middlebox::new(NAT);
    before.through(0, &udp((INSIDE, 4000), (SERVER, 53)));
    let (inside, server) = ((INSIDE, 4000), (SERVER, 80));
    let port = sport(&before.through(0, &tcp(inside, server, SYN, 100, 0)));
    let acked = number(&before.through(0, &tcp(inside, server, SYN, 100, 0)), SEQ).wrapping_add(1);
    before.through(1, &tcp(server, (OUTSIDE, port), SYN | ACK, 500, acked));
    before.through(0, &tcp(inside, server, ACK, 101, 501));
    let state = before.save();
    let later = |gap_ms| Middlebox::with_workers(NAT, 1).load_later(&state, gap_ms).expect("it is whole");
    assert_eq!(later(10_000), (load_summary(2, &[]), vec![]));
    let (summary, left_out) = later(1_000_000);
    assert_eq!(summary, load_summary(1, &[("timeout", 1)]));
    let [LeftOutConnection { info, reason: LeftOutConnection::TIMEOUT }] = &left_out[..] else {
        panic!("{left_out:?}")
    };
    assert_eq!((info.proto, info.sent.src, info.state), (17, OUTSIDE.into(), "unreplied"));
    assert_eq!((info.idle_ms, &info.rules[..]), (1_000_000, &[RuleId(2)][..]));
    assert_eq!(later(1_000_000_000).0, load_summary(0, &[("timeout", 2)]));
}

/// They were found by number: behind a restart with its ports the other way round, a connection's packets came from the wrong side.
#[test]
fn ports_are_found_by_name() {
    let mut before = Middlebox::new("add-stateful id 1 in a accept\nadd in b drop");
    before.through(0, &udp((INSIDE, 4000), (SERVER, 53)));
    let state = before.save();
    let turned = |names: [&str; 2]| {
        let spec = |(name, peer): (&str, u16)| PortSpec {
            name: name.into(),
            mtu: None,
            forward: Forward::Wire(PortId(peer)),
        };
        let ports = PortTable(names.into_iter().zip([1, 0]).map(spec).collect());
        let (mut engine, workers) = Engine::new(ports, 1, &SeedTree::repeatable(99));
        let last = names[0];
        let text = format!("add-stateful id 1 in a accept\nadd in {last} drop");
        engine.publish(&policy(&text)).expect("publishes");
        Middlebox { engine, workers }
    };
    let mut after = turned(["b", "a"]);
    assert_eq!(after.load(&state), Ok(1));
    let reply = udp((SERVER, 53), (INSIDE, 4000));
    assert_eq!(after.pass(0, &reply).0, Verdict::Send(PortId(1)), "accepted, as its connection was");
    let mut other = turned(["c", "a"]);
    assert_eq!(other.load_counted(&state), Ok(load_summary(0, &[("no-port", 1)])));
}

#[test]
fn connections_do_not_get_a_rule_with_the_id_of_a_removed_one() {
    let other = "add-stateful id 1 in a ip-saddr 10.9.0.0/16 mod ip-ttl 9";
    let mut before = Middlebox::new("add-stateful id 1 in a ip-saddr 10.0.0.0/24 accept");
    before.through(0, &udp((INSIDE, 4000), (SERVER, 53)));
    for text in ["", other] {
        before.engine.publish(&policy(text)).expect("publishes");
    }
    let state = before.save();
    let mut after = Middlebox::with_workers(other, 1);
    assert_eq!(after.load_counted(&state), Ok(load_summary(1, &[])));
    assert!(after.list()[0].rules.is_empty());
    let again = udp((INSIDE, 4000), (SERVER, 53));
    assert_eq!(after.through(0, &again), again, "not with the other rule's TTL");
}

/// The slot of a rule that goes while a state loads may be another rule's by then.
#[test]
fn a_rule_that_comes_while_a_state_loads_is_no_connections() {
    let mut before = Middlebox::new("add-stateful id 1 in a ip-proto udp accept");
    (1..=3000).for_each(|port| _ = before.through(0, &udp((INSIDE, port), (SERVER, 53))));
    let state = SavedState::read(&mut &before.save()[..], 3000).expect("it is whole");
    let Middlebox { mut engine, mut workers } =
        Middlebox::with_workers("add-stateful id 1 in a ip-proto udp accept", 1);
    let map = engine.state_map(&state.header, SAVED_MS, HashMap::from([(RuleId(1), RuleId(1))]));
    let connections = engine.connections();
    let other = [policy(""), policy("add-stateful id 77 in b tcp-dport 22 accept")];
    std::thread::scope(|scope| {
        // The policy changes when the rules are known, and before the first connection comes.
        let (go, gone) = std::sync::mpsc::channel();
        let (ask, asked) = std::sync::mpsc::channel();
        let loading = scope.spawn(move || {
            let map = || {
                ask.send(()).expect("the test waits");
                gone.recv().expect("the policy has changed");
                map
            };
            connections.load(&state, map, &mut |_| {}).expect("the worker answers")
        });
        let mut turn = || workers[0].process(NOW_NS, &NoCycles, &mut [], &mut []);
        while asked.try_recv().is_err() {
            turn();
            std::thread::yield_now();
        }
        for policy in &other {
            engine.publish(policy).expect("publishes");
            turn();
            engine.reclaim();
        }
        go.send(()).expect("it waits");
        while !loading.is_finished() {
            turn();
            std::thread::yield_now();
        }
        let summary = loading.join().expect("it does not panic");
        assert_eq!((summary.connections, summary.lost_rules), (3000, 3000));
    });
}

#[test]
fn connections_that_lost_a_rule_are_counted() {
    let mut before = Middlebox::new(NAT);
    before.through(0, &udp((INSIDE, 4000), (SERVER, 53)));
    let state = before.save();
    let mut after = Middlebox::with_workers("add-stateful id 1 in a accept", 1);
    let summary = LoadSummary { lost_rules: 1, ..load_summary(1, &[]) };
    assert_eq!(after.load_counted(&state), Ok(summary));
}

#[test]
fn a_count_that_a_record_has_no_room_for_does_not_damage_the_next_state() {
    let mut before = Middlebox::new("add-stateful in a accept");
    for _ in 0..3 {
        before.through(0, &udp((INSIDE, 4000), (SERVER, 53)));
    }
    let mut state = before.save();
    let counts = [3u64.to_be_bytes(), 0u64.to_be_bytes()].concat();
    let at = state.windows(16).position(|bytes| bytes == counts).expect("the counts of both directions");
    state[at..at + 8].copy_from_slice(&(1u64 << 48).to_be_bytes());
    let mut after = Middlebox::with_workers("add-stateful in a accept", 1);
    assert_eq!(after.load(&state), Ok(1));
    let again = after.save();
    let mut third = Middlebox::with_workers("add-stateful in a accept", 1);
    assert_eq!(third.load(&again), Ok(1));
}
