//! The quick pass: the same packets, verdicts, states and counters as without it, and its counters in all situations.

use crate::host::{Middlebox, policy, process};
use mmb_engine::{Forward, NoCycles, Origin, PortSpec, PortTable, RuleCount, Verdict};
use mmb_policy::RuleId;
use mmb_testkit::{Ip4, Tcp, Udp, Upper};
use proptest::prelude::*;
use std::net::Ipv4Addr;

const A: u16 = 0;
const B: u16 = 1;
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const PSH: u8 = 0x08;
const ACK: u8 = 0x10;

/// Policies that follow each other. Stateful rules keep their ids, so that connections keep them.
const POLICIES: [&str; 8] = [
    "add-stateful id 1 all accept\nadd id 9 all drop",
    "add-stateful id 1 in a map ip-saddr 200.0.0.1 accept\nadd id 9 all drop",
    "add-stateful id 1 in a map ip-daddr 10.9.9.9 accept\nadd id 9 all drop",
    "add-stateful id 1 in a map ip-saddr 200.0.0.1 map ip-daddr 10.9.9.9 accept\nadd id 9 all drop",
    "set conn invalid drop\nadd-stateful id 1 all accept\nadd id 7 ct invalid accept\nadd id 9 all drop",
    "add id 5 prio 1 ip-ttl < 5 drop\nadd-stateful id 1 all accept",
    "add id 6 prio 1 tcp-dport 80 mod ip-dscp 8\nadd-stateful id 1 all accept",
    "set conn max 6\nadd-stateful id 1 all accept\nadd id 8 udp-sport 1001 drop",
];

/// A packet of a script.
#[derive(Clone, Copy, Debug)]
struct Step {
    client: u8,
    is_tcp: bool,
    is_reply: bool,
    flags: u8,
    /// Offsets of sequence and acknowledgment number from those that are expected.
    seq: i32,
    ack: i32,
    len: u8,
    ttl: u8,
    /// 0: plain; 1: VLAN tag; 2: IP options; 3: first fragment; 4: malformed; 5: priority tag.
    form: u8,
}

fn step() -> impl Strategy<Value = Step> {
    let flags = prop_oneof![
        12 => Just(ACK),
        4 => Just(ACK | PSH),
        3 => Just(SYN),
        3 => Just(SYN | ACK),
        1 => Just(FIN | ACK),
        1 => Just(RST),
        1 => Just(RST | ACK),
        1 => any::<u8>(),
    ];
    let offset = prop_oneof![12 => Just(0), 2 => -30..30i32, 1 => Just(-100_000), 1 => Just(2_000_000)];
    let form = prop_oneof![20 => Just(0), 2 => 0..6u8];
    let numbers = (flags, offset.clone(), offset, 0..40u8, prop_oneof![9 => Just(64), 1 => Just(3)]);
    (0..4u8, any::<bool>(), any::<bool>(), numbers, form).prop_map(
        |(client, is_tcp, is_reply, (flags, seq, ack, len, ttl), form)| Step {
            client,
            is_tcp,
            is_reply,
            flags,
            seq,
            ack,
            len,
            ttl,
            form,
        },
    )
}

/// The ends of a flow's packets as they left last, and the next numbers of both ends.
#[derive(Clone, Copy, Debug)]
struct Flow {
    leaving: [(Ipv4Addr, u16); 2],
    next: [u32; 2],
}

impl Flow {
    fn new(client: u8) -> Flow {
        Flow { leaving: [Flow::source(client), (SERVER, 80)], next: [1000, 5000] }
    }

    fn source(client: u8) -> (Ipv4Addr, u16) {
        (Ipv4Addr::new(10, 0, 0, client), 1000 + u16::from(client % 2))
    }

    fn frame(&mut self, step: Step) -> Vec<u8> {
        let from = usize::from(step.is_reply);
        let [source, destination] = match step.is_reply {
            false => [Flow::source(step.client), (SERVER, 80)],
            true => [self.leaving[1], self.leaving[0]],
        };
        let upper = if step.is_tcp {
            let seq = self.next[from].wrapping_add_signed(step.seq);
            let ack = self.next[1 - from].wrapping_add_signed(step.ack);
            let flags = step.flags;
            if step.seq == 0 {
                let numbered = u32::from(flags & (SYN | FIN) != 0);
                self.next[from] = self.next[from].wrapping_add(u32::from(step.len) + numbered);
            }
            let payload = vec![7; usize::from(step.len)];
            Upper::Tcp(Tcp {
                sport: source.1,
                dport: destination.1,
                seq,
                ack,
                flags,
                payload,
                ..Tcp::default()
            })
        } else {
            let payload = vec![7; usize::from(step.len)];
            Upper::Udp(Udp { sport: source.1, dport: destination.1, payload, ..Udp::default() })
        };
        let mut packet =
            Ip4 { source: source.0, destination: destination.0, ttl: step.ttl, ..Ip4::new(upper) };
        match step.form {
            2 => packet.options = vec![1; 4],
            3 => packet.flags = 1,
            _ => {}
        }
        let frame = packet.frame();
        let mut bytes = match step.form {
            1 => frame.vlan(7).bytes(),
            5 => frame.vlan(0).bytes(),
            _ => frame.bytes(),
        };
        if step.form == 4 {
            bytes.truncate(30);
        }
        bytes
    }

    /// Notes with which ends a packet of the initiator left.
    fn left(&mut self, frame: &[u8]) {
        let at =
            |offset: usize| frame.get(offset..offset + 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        if let (Some(source), Some(destination), Some([a, b, c, d])) = (at(26), at(30), at(34)) {
            let ports = [[a, b], [c, d]].map(u16::from_be_bytes);
            self.leaving = [(source.into(), ports[0]), (destination.into(), ports[1])];
        }
    }
}

/// How a vector is processed.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    AtOnce,
    /// Decided on first, and then rewritten.
    InSteps,
    /// As in steps, and each packet is traced: without the quick pass.
    Traced,
}

impl Middlebox {
    fn vector(&mut self, port: u16, frames: &[Vec<u8>], way: Way) -> Vec<(Verdict, Vec<u8>)> {
        let now_ns = self.now_ms * 1_000_000;
        let worker = &mut self.worker;
        process(port, frames, |packets, verdicts| {
            if way == Way::AtOnce {
                return worker.process(now_ns, &NoCycles, packets, verdicts);
            }
            let mut tickets = vec![None; packets.len()];
            let mut hook = |_| {};
            let hook: Option<&mut dyn FnMut(_)> = if way == Way::Traced { Some(&mut hook) } else { None };
            let translated =
                worker.decide(Origin::Wire, now_ns, &NoCycles, packets, verdicts, &mut tickets, hook);
            for (at, ((packet, verdict), ticket)) in packets.iter_mut().zip(verdicts).zip(tickets).enumerate()
            {
                if let Some(ticket) = ticket {
                    assert!(!translated.has(at), "rewritten once");
                    let packet = std::slice::from_mut(packet);
                    worker.rewrite(&NoCycles, packet, &[ticket], std::slice::from_mut(verdict));
                }
            }
        })
    }

    fn counts(&mut self) -> Vec<RuleCount> {
        self.worker.fold_counters();
        (1..10).map(|id| self.engine.rule_count(RuleId(id))).collect()
    }

    fn matched(&self, id: u32) -> u64 {
        self.engine.rule_count(RuleId(id)).matched.packets
    }

    fn change(&mut self, text: &str) {
        self.engine.publish(&policy(text)).expect("it can be put in force");
    }

    /// A TCP connection with packets of both directions in its middle.
    fn connected(text: &str) -> Middlebox {
        let mut mmb = Middlebox::new(text);
        for (port, flags) in [(A, SYN), (B, SYN | ACK), (A, ACK), (A, ACK), (B, ACK), (B, ACK)] {
            mmb.pass(port, &segment(port, flags));
        }
        mmb
    }
}

fn segment(from: u16, flags: u8) -> Vec<u8> {
    let client = Ipv4Addr::new(10, 0, 0, 1);
    let (source, destination, sport, dport) = match from {
        A => (client, SERVER, 1001, 80),
        _ => (SERVER, client, 80, 1001),
    };
    let begins = u32::from(flags & SYN == 0);
    let ack = if flags == SYN {
        0
    } else {
        [201, 100 + u32::from(flags & SYN != 0 || from == B)][usize::from(from)]
    };
    let seq = [100, 200][usize::from(from)] + begins;
    let upper = Upper::Tcp(Tcp { sport, dport, flags, seq, ack, ..Tcp::default() });
    Ip4 { source, destination, ..Ip4::new(upper) }.frame().bytes()
}

fn datagram(client: u8, sport: u16, reply: bool) -> Vec<u8> {
    let client = Ipv4Addr::new(10, 0, 0, client);
    let (source, destination, sport, dport) =
        if reply { (SERVER, client, 80, sport) } else { (client, SERVER, sport, 80) };
    let upper = Upper::Udp(Udp { sport, dport, ..Udp::default() });
    Ip4 { source, destination, ..Ip4::new(upper) }.frame().bytes()
}

/// Vectors of a script: their packets, the time before them, and whether the policy changes before them.
type Script = Vec<(Vec<Step>, u64, Option<u8>)>;

fn script() -> impl Strategy<Value = Script> {
    let pause = prop_oneof![6 => Just(0), 3 => 1..200u64, 1 => Just(35_000), 1 => Just(200_000)];
    let change = prop_oneof![8 => Just(None), 1 => (0..POLICIES.len() as u8).prop_map(Some)];
    prop::collection::vec((prop::collection::vec(step(), 1..60), pause, change), 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_quick_pass_changes_nothing(first in 0..POLICIES.len(), script in script()) {
        let ways = [Way::AtOnce, Way::InSteps, Way::Traced];
        let mut all = ways.map(|way| (Middlebox::new(POLICIES[first]), way));
        let mut flows = [[0, 1].map(|_| Flow::new(0)); 4];
        for (client, flows) in (0..).zip(&mut flows) {
            *flows = [Flow::new(client); 2];
        }
        for (steps, pause_ms, change) in script {
            for is_reply in [false, true] {
                // A vector of each port, in the order of the script.
                let steps: Vec<Step> = steps.iter().copied().filter(|step| step.is_reply == is_reply).collect();
                let frames: Vec<Vec<u8>> = steps
                    .iter()
                    .map(|step| flows[usize::from(step.client)][usize::from(step.is_tcp)].frame(*step))
                    .collect();
                let results = all.each_mut().map(|(mmb, way)| mmb.vector(u16::from(is_reply), &frames, *way));
                let [quick, in_steps, full] = &results;
                prop_assert_eq!(quick, full);
                prop_assert_eq!(in_steps, full);
                for (step, (verdict, frame)) in steps.iter().zip(quick) {
                    if !is_reply && step.form == 0 && matches!(verdict, Verdict::Send(_)) {
                        flows[usize::from(step.client)][usize::from(step.is_tcp)].left(frame);
                    }
                }
            }
            for (mmb, _) in &mut all {
                mmb.now_ms += pause_ms;
                if let Some(change) = change {
                    mmb.change(POLICIES[usize::from(change)]);
                }
            }
        }
        let [counts, in_steps, expected] = all.each_mut().map(|(mmb, _)| mmb.counts());
        prop_assert_eq!(&counts, &expected);
        prop_assert_eq!(&in_steps, &expected);
        let [listed, in_steps, expected] = all.each_mut().map(|(mmb, _)| mmb.list());
        prop_assert_eq!(&listed, &expected);
        prop_assert_eq!(&in_steps, &expected);
    }
}

/// Packets of a vector under load: more than a quiet link has.
const LOAD: usize = 100;

#[test]
fn counters_of_rules_lag_under_load_and_are_exact_on_request_and_at_rest() {
    let mut mmb = Middlebox::connected("add-stateful id 1 all accept");
    let before = mmb.matched(1);
    let frames = vec![segment(A, ACK); LOAD];
    mmb.vector(A, &frames, Way::AtOnce);
    assert!(mmb.matched(1) < before + LOAD as u64, "the quick pass took them");
    mmb.ask(|connections| connections.fold_counters().expect("the worker answers"));
    assert_eq!(mmb.matched(1), before + LOAD as u64);
    mmb.vector(A, &frames, Way::AtOnce);
    mmb.wait(0);
    assert_eq!(mmb.matched(1), before + 2 * LOAD as u64);
    mmb.vector(A, &frames, Way::AtOnce);
    mmb.now_ms += 1000;
    mmb.vector(B, &vec![segment(B, ACK); LOAD], Way::AtOnce);
    assert!(mmb.matched(1) >= before + 3 * LOAD as u64, "none waits for a second");
}

#[test]
fn counts_that_wait_at_a_change_are_not_the_successors() {
    let mut mmb = Middlebox::connected("add-stateful id 1 all accept");
    mmb.vector(A, &vec![segment(A, ACK); LOAD], Way::AtOnce);
    mmb.change("add-stateful id 1 ip-proto tcp accept");
    mmb.worker.fold_counters();
    assert_eq!(mmb.matched(1), 0);
}

#[test]
fn no_counter_lags_by_a_second_when_fewer_connections_go_on() {
    const FLOWS: u16 = 20_000;
    let mut mmb = Middlebox::new("add-stateful id 1 all accept");
    let datagrams = |reply: bool, numbers: std::ops::Range<u16>| -> Vec<Vec<u8>> {
        numbers.map(|number| datagram(1, 1 + number, reply)).collect()
    };
    for reply in [false, true, false, true, false, true, false] {
        for first in (0..FLOWS).step_by(200) {
            mmb.vector(u16::from(reply), &datagrams(reply, first..first + 200), Way::AtOnce);
        }
    }
    let sent = 7 * u64::from(FLOWS);
    assert!(mmb.matched(1) < sent, "the quick pass took some");
    for _ in 0..1000 {
        mmb.now_ms += 1;
        mmb.vector(A, &vec![datagram(1, 1, false); 33], Way::AtOnce);
    }
    assert!(mmb.matched(1) >= sent, "{} of {sent}", mmb.matched(1));
}

#[test]
fn a_successor_counts_from_zero() {
    let mut mmb = Middlebox::connected("add-stateful id 1 all accept");
    for _ in 0..10 {
        mmb.vector(A, &vec![segment(A, ACK); LOAD], Way::AtOnce);
    }
    mmb.change("add-stateful id 1 ip-proto tcp accept");
    mmb.wait(0);
    mmb.worker.fold_counters();
    assert_eq!(mmb.matched(1), 0);
    mmb.vector(A, &vec![segment(A, ACK); LOAD], Way::AtOnce);
    mmb.worker.fold_counters();
    assert_eq!(mmb.matched(1), LOAD as u64);
}

#[test]
fn a_packet_by_another_port_does_not_take_the_counts() {
    let port = |name: &str| PortSpec { name: name.into(), mtu: None, forward: Forward::Routed };
    let text = "add-stateful id 1 all accept\nadd id 2 prio 1 in a accept\nadd id 3 prio 1 in c drop";
    let results = [Way::AtOnce, Way::Traced].map(|way| {
        let mut mmb = Middlebox::between(PortTable(vec![port("a"), port("b"), port("c")]), text);
        for reply in [false, true, false, true, false, false] {
            mmb.vector(u16::from(reply), &[datagram(1, 1000, reply)], way);
        }
        let dropped = mmb.vector(2, &[datagram(1, 1000, false)], way);
        assert!(matches!(dropped[0].0, Verdict::Drop(_)));
        for _ in 0..10 {
            mmb.vector(A, &vec![datagram(1, 1000, false); LOAD], way);
        }
        mmb.counts()
    });
    assert_eq!(results[0], results[1]);
}

#[test]
fn a_priority_tag_does_not_change_the_order() {
    let text = "set conn invalid drop\nadd-stateful id 1 all accept\nadd id 9 all drop";
    let results = [Way::AtOnce, Way::Traced].map(|way| {
        let mut mmb = Middlebox::connected(text);
        let from_client = |seq, flags, len| {
            let payload = vec![7; len];
            let segment = Tcp { sport: 1001, dport: 80, flags, seq, ack: 201, payload, ..Tcp::default() };
            let source = Ipv4Addr::new(10, 0, 0, 1);
            Ip4 { source, destination: SERVER, ..Ip4::new(Upper::Tcp(segment)) }.frame()
        };
        mmb.vector(A, &[from_client(101, ACK, 20).bytes()], way);
        let frames = [from_client(121, RST | ACK, 0).vlan(0).bytes(), from_client(121, ACK, 20).bytes()];
        let verdicts: Vec<Verdict> =
            mmb.vector(A, &frames, way).into_iter().map(|(verdict, _)| verdict).collect();
        (verdicts, mmb.list().iter().map(|info| info.state).collect::<Vec<_>>())
    });
    assert_eq!(results[0], results[1]);
}

#[test]
fn packets_are_counted_for_the_rules_of_their_time() {
    let mut mmb = Middlebox::connected("add-stateful id 1 all accept\nadd id 2 prio 1 ip-proto tcp accept");
    let before = [1, 2].map(|id| mmb.matched(id));
    let load = LOAD as u64;
    mmb.vector(A, &vec![segment(A, ACK); LOAD], Way::AtOnce);
    mmb.change("add-stateful id 1 all accept");
    assert!(mmb.engine.reclaim() > 0, "the worker has not used the new policy");
    // Quick packets before and after the connection's verdict is known again.
    mmb.vector(A, &vec![segment(A, ACK); LOAD], Way::AtOnce);
    assert!(mmb.engine.reclaim() > 0, "the slot of rule 2 is still counted for");
    mmb.change("add-stateful id 1 all accept\nadd id 3 prio 1 ip-proto udp drop");
    mmb.vector(A, &vec![segment(A, ACK); LOAD], Way::AtOnce);
    mmb.worker.fold_counters();
    mmb.wait(0);
    assert_eq!(mmb.engine.reclaim(), 0);
    assert_eq!([1, 3].map(|id| mmb.matched(id)), [before[0] + 3 * load, 0]);
}

#[test]
fn an_ending_connection_is_counted_for_its_rules() {
    for flags in [RST, RST | ACK] {
        let mut mmb = Middlebox::connected("set timeout tcp-reset 1\nadd-stateful id 1 all accept");
        let before = mmb.matched(1);
        let mut frames = vec![segment(A, ACK); LOAD];
        frames.push(segment(A, flags));
        mmb.vector(A, &frames, Way::AtOnce);
        mmb.wait(5);
        assert!(mmb.list().is_empty());
        assert_eq!(mmb.matched(1), before + LOAD as u64 + 1);
    }
}

#[test]
fn a_connection_counts_more_packets_than_its_flow_line_has_room_for() {
    let mut mmb = Middlebox::connected("add-stateful id 1 all accept");
    let before = mmb.matched(1);
    let vectors = (1 << 16) / 250 + 9;
    let frames = vec![segment(A, ACK); 250];
    (0..vectors).for_each(|_| _ = mmb.vector(A, &frames, Way::AtOnce));
    let sent = 250 * vectors as u64;
    mmb.worker.fold_counters();
    assert_eq!(mmb.matched(1), before + sent);
    let [info] = &mmb.list()[..] else { panic!("one connection") };
    assert_eq!(info.packets.iter().sum::<u64>(), before + sent);
}

#[test]
fn a_verdict_is_forgotten_before_its_epoch_comes_again() {
    let accepts = "add-stateful id 1 all accept";
    let mut mmb = Middlebox::connected(accepts);
    // Twelve bits of epochs: the next one would be that of the known verdict.
    for round in 0..4094 {
        mmb.change(if round % 2 == 0 {
            "add-stateful id 1 all accept\nadd id 2 ip-proto udp drop"
        } else {
            accepts
        });
        mmb.wait(0);
    }
    mmb.change("add-stateful id 1 all accept\nadd id 2 prio 1 ip-proto tcp drop");
    assert!(!mmb.passes(A, &segment(A, ACK)));
    mmb.change(accepts);
    assert!(mmb.passes(A, &segment(A, ACK)));
}
