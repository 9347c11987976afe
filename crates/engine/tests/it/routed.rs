//! A host that routes: ports that come when they come, and packets that are rewritten in a stage of their own.

use crate::host::{policy, process};
use mmb_engine::{
    Connections, Engine, Forward, NoCycles, Origin, PortSpec, PublishError, RewriteTicket, Verdict, Worker,
};
use mmb_packet::{LinkType, Packet, PortId};
use mmb_policy::ConnectionFilter;
use mmb_random::SeedTree;
use mmb_testkit::{Ip4, Tcp, Udp, Upper};
use std::sync::{Arc, Mutex};

fn routed(name: &str) -> PortSpec {
    PortSpec { name: name.to_owned(), mtu: None, forward: Forward::Routed }
}

fn with_ports(names: &[&str], room: usize) -> (Engine, Worker) {
    let (mut engine, mut workers) = Engine::with_max_ports(room, 1, 0, &SeedTree::repeatable(1));
    names.iter().for_each(|name| assert!(engine.add_port(routed(name)).is_some()));
    (engine, workers.remove(0))
}

fn pass(worker: &mut Worker, port: u16, frame: Vec<u8>) -> (Verdict, Vec<u8>) {
    process(port, &[frame], |packets, verdicts| worker.process(0, &NoCycles, packets, verdicts)).remove(0)
}

fn udp(source: [u8; 4], sport: u16, destination: [u8; 4], dport: u16) -> Vec<u8> {
    let udp = Udp { sport, ..Udp::default() }.dport(dport);
    let (source, destination) = (source.into(), destination.into());
    Ip4 { source, destination, ..Ip4::new(Upper::Udp(udp)) }.frame().bytes()
}

#[test]
fn ports_come_one_by_one_and_rules_name_those_that_are_there() {
    let (mut engine, mut worker) = with_ports(&["left"], 2);
    let drops = policy("add in right drop");
    assert!(matches!(engine.publish(&drops), Err(PublishError::UnknownPort { .. })));
    assert_eq!(engine.add_port(routed("right")), Some(PortId(1)));
    assert_eq!(engine.add_port(routed("third")), None, "there is no room");
    engine.publish(&drops).expect("now there is one");
    let frame = Tcp::default().over_ip4().bytes();
    assert_eq!(pass(&mut worker, 0, frame.clone()).0, Verdict::Send(PortId(0)), "where routes lead");
    assert!(matches!(pass(&mut worker, 1, frame).0, Verdict::Drop(_)));
    let counts = engine.port_counts();
    assert_eq!((counts[0].tx.packets, counts[1].rx.packets, counts[1].tx.packets), (1, 1, 0));
}

#[test]
fn routed_ports_share_their_connections() {
    let (mut engine, mut worker) = with_ports(&["inside", "outside"], 2);
    engine.publish(&policy("add-stateful in inside ip-proto udp map ip-saddr 192.0.2.1")).expect("good");
    let (_, sent) = pass(&mut worker, 0, udp([10, 0, 0, 1], 1000, [198, 51, 100, 1], 53));
    assert_eq!(sent[26..30], [192, 0, 2, 1]);
    let back = udp([198, 51, 100, 1], 53, [192, 0, 2, 1], u16::from_be_bytes([sent[34], sent[35]]));
    let (_, returned) = pass(&mut worker, 1, back);
    assert_eq!((&returned[30..34], &returned[36..38]), (&[10, 0, 0, 1][..], &1000u16.to_be_bytes()[..]));
}

#[test]
fn a_packet_to_the_outside_endpoint_of_another_host_reaches_it() {
    let (mut engine, mut worker) = with_ports(&["inside"], 1);
    engine.publish(&policy("add-stateful in inside ip-proto udp map ip-saddr 192.0.2.1")).expect("good");
    let (_, sent) = pass(&mut worker, 0, udp([10, 0, 0, 1], 1000, [198, 51, 100, 1], 53));
    let outside = u16::from_be_bytes([sent[34], sent[35]]);
    let (verdict, turned) = pass(&mut worker, 0, udp([10, 0, 0, 2], 2000, [192, 0, 2, 1], outside));
    assert_eq!(verdict, Verdict::Send(PortId(0)));
    assert_eq!(turned[26..30], [192, 0, 2, 1], "from an outside end (RFC 4787 REQ-9)");
    assert_eq!((&turned[30..34], &turned[36..38]), (&[10, 0, 0, 1][..], &1000u16.to_be_bytes()[..]));
    assert_eq!(
        turned[..12],
        udp([10, 0, 0, 2], 2000, [192, 0, 2, 1], outside)[..12],
        "the host knows the way"
    );
}

/// What deciding on a frame leaves to be done.
fn decide(worker: &mut Worker, frame: &mut [u8]) -> (Verdict, Option<RewriteTicket>) {
    let len = frame.len();
    let packet = Packet::new(frame, 0, len, PortId(0), LinkType::Ethernet).expect("it fits");
    let (mut verdicts, mut tickets) = ([Verdict::Send(PortId(9))], [None]);
    worker.decide(Origin::Wire, 0, &NoCycles, &mut [packet], &mut verdicts, &mut tickets, None);
    (verdicts[0], tickets[0])
}

fn rewrite(worker: &mut Worker, frame: &mut [u8], ticket: RewriteTicket) {
    let len = frame.len();
    let packet = Packet::new(frame, 0, len, PortId(0), LinkType::Ethernet).expect("it fits");
    worker.rewrite(&NoCycles, &mut [packet], &[ticket], &mut [Verdict::Send(PortId(0))]);
}

#[test]
fn a_policy_stays_in_use_until_its_packets_are_rewritten() {
    let (mut engine, mut worker) = with_ports(&["inside"], 1);
    engine.publish(&policy("add all mod ip-ttl 9")).expect("good");
    let mut frame = Tcp::default().over_ip4().bytes();
    let (_, ticket) = decide(&mut worker, &mut frame);
    engine.publish(&policy("add all drop")).expect("good");
    let mut other = Tcp::default().over_ip4().bytes();
    let (verdict, other_ticket) = decide(&mut worker, &mut other);
    assert_eq!(verdict, Verdict::Send(PortId(0)), "the one before is in use");
    assert_eq!(engine.port_counts()[0].tx.packets, 0, "what waits is not sent yet");
    for (frame, ticket) in [(&mut other, other_ticket), (&mut frame, ticket)] {
        rewrite(&mut worker, frame, ticket.expect("there is a ticket"));
        assert_eq!(frame[22], 9);
    }
    assert_eq!(engine.port_counts()[0].tx.packets, 2);
    assert_eq!(decide(&mut worker, &mut Tcp::default().over_ip4().bytes()).1, None);
    assert_eq!(engine.reclaim(), 0, "nobody uses the old policy");
}

#[test]
fn tickets_that_are_not_redeemed_are_discarded() {
    let (mut engine, mut worker) = with_ports(&["inside"], 1);
    engine.publish(&policy("add all mod ip-ttl 9")).expect("good");
    let mut frame = Tcp::default().over_ip4().bytes();
    let ticket = decide(&mut worker, &mut frame).1.expect("there is a ticket");
    worker.discard_tickets();
    let before = frame.clone();
    rewrite(&mut worker, &mut frame, ticket);
    assert_eq!(frame, before, "an old ticket does nothing");
    engine.publish(&policy("add all drop")).expect("good");
    assert!(matches!(decide(&mut worker, &mut frame).0, Verdict::Drop(_)));
}

#[test]
fn a_thread_without_input_owns_no_connection() {
    for owning in 1..4usize {
        let (mut engine, mut workers) = Engine::with_max_ports(1, owning, 1, &SeedTree::repeatable(1));
        assert!(engine.add_port(routed("inside")).is_some());
        engine.publish(&policy("add-stateful all accept")).expect("good");
        for number in 0..200u16 {
            let (client, server) = ([10, 0, 0, number as u8], [198, 51, 100, 1]);
            let frame = udp(client, 1000, server, 53);
            let (verdict, _) = pass(&mut workers[owning], 0, frame.clone());
            let Verdict::Hand(owner) = verdict else { panic!("it keeps {client:?}: {verdict:?}") };
            assert!(usize::from(owner) < owning);
            for (first, worker) in workers.iter_mut().take(owning).enumerate() {
                let expected =
                    if first == usize::from(owner) { Verdict::Send(PortId(0)) } else { Verdict::Hand(owner) };
                assert_eq!(pass(worker, 0, frame.clone()).0, expected);
                assert_eq!(pass(worker, 0, udp(server, 53, client, 1000)).0, expected, "the answer");
            }
        }
        let summary = engine.connections().summary();
        assert_eq!(summary.connections, 200);
        let others = owning as u64 - 1;
        assert_eq!(summary.handed, 200 + 400 * others, "a worker that is alone hands nothing over");
    }
}

/// Two threads with input and one without, which share connections anew as `shares` says.
struct Shared {
    workers: Arc<Vec<Mutex<Worker>>>,
    engine: Engine,
}

impl Shared {
    fn new(rules: &str) -> Shared {
        let (mut engine, workers) = Engine::with_max_ports(2, 2, 1, &SeedTree::repeatable(1));
        ["inside", "outside"].iter().for_each(|name| assert!(engine.add_port(routed(name)).is_some()));
        engine.publish(&policy(rules)).expect("good");
        Shared { workers: Arc::new(workers.into_iter().map(Mutex::new).collect()), engine }
    }

    fn connections(&self) -> Connections {
        let workers = Arc::clone(&self.workers);
        self.engine.connections().driven_by(Arc::new(move |number| {
            workers[number].lock().expect("whole").process(0, &NoCycles, &mut [], &mut []);
        }))
    }

    fn pass(&self, worker: usize, port: u16, frame: Vec<u8>) -> (Verdict, Vec<u8>) {
        pass(&mut self.workers[worker].lock().expect("whole"), port, frame)
    }

    /// The only worker that keeps a packet, to whom the other ones hand it over, and the packet as it leaves.
    fn owner(&self, port: u16, frame: &[u8]) -> (u16, Vec<u8>) {
        let Verdict::Hand(owner) = self.pass(2, port, frame.to_vec()).0 else { panic!("it owns none") };
        assert_eq!(self.pass(usize::from(1 - owner), port, frame.to_vec()).0, Verdict::Hand(owner));
        let (verdict, left) = self.pass(usize::from(owner), port, frame.to_vec());
        assert_eq!(verdict, Verdict::Send(PortId(port)));
        (owner, left)
    }
}

#[test]
fn connections_stay_where_they_are_when_their_workers_change() {
    for rule in ["accept", "map ip-saddr 192.0.2.1 accept"] {
        let shared =
            Shared::new(&format!("set conn max 260\nadd-stateful in inside {rule}\nadd in outside drop"));
        let server = [198, 51, 100, 1];
        let ask = |number: u16| udp([10, 0, (number >> 8) as u8, number as u8], 1000, server, 53);
        let answer = |left: &[u8]| {
            udp(server, 53, left[26..30].try_into().expect("four"), u16::from_be_bytes([left[34], left[35]]))
        };
        let mut there = Vec::new();
        for (round, (sharing, numbers)) in
            [(&[0u16, 1][..], 0..60), (&[1][..], 60..200), (&[0][..], 200..260), (&[1, 0][..], 260..320)]
                .into_iter()
                .enumerate()
        {
            shared.connections().share_among(sharing).expect("they answer");
            for (number, owner, _) in &there {
                assert_eq!(shared.owner(0, &ask(*number)).0, *owner, "{rule}, {round}: {number} moved");
            }
            if round == 3 {
                shared.connections().kill(&ConnectionFilter::ALL).expect("they answer");
                there.clear();
            }
            for number in numbers {
                let (owner, left) = shared.owner(0, &ask(number));
                assert!(sharing.contains(&owner), "{rule}, {round}: {owner} has no share");
                there.push((number, owner, left));
            }
            for (number, owner, left) in &there {
                let (of_answer, returned) = shared.owner(1, &answer(left));
                assert_eq!((of_answer, returned[33]), (*owner, *number as u8), "{rule}, {round}");
            }
        }
        assert!(
            there.iter().any(|(_, owner, _)| *owner == 0) && there.iter().any(|(_, owner, _)| *owner == 1)
        );
    }
}
