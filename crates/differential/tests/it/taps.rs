//! Taps: they see what the host sees, change nothing, and select what rules with the same constraints match.

use mmb_differential::oracle::evaluate;
use mmb_differential::packet_spec;
use mmb_differential::stateless::{Incoming, ports};
use mmb_engine::{
    DropReason, Engine, NoCycles, Origin, PacketTrace, TapOptions, TappedBytes, TappedPacket, Verdict, Worker,
};
use mmb_language::parse_command;
use mmb_packet::parse::parse;
use mmb_packet::{LinkType, Packet, ParserLimits, PortId};
use mmb_policy::arbitrary::{self, RuleOptions};
use mmb_policy::field::FieldPlace;
use mmb_policy::{PacketFilter, Policy, Rule, RuleId, Target, Test};
use mmb_random::SeedTree;
use mmb_testkit::{Tcp, strategy};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a packet, and its length.
const ALL: TapOptions =
    TapOptions { received: true, sent: true, dropped: true, all: true, reason: None, snaplen: 16_384 };

/// A verdict, and the bytes that the packet has then.
type Passed = (Verdict, Vec<u8>);

/// A worker that shares its thread with the one that asks it.
#[derive(Clone)]
struct SharedWorker(Arc<Mutex<Worker>>);

impl SharedWorker {
    fn lock(&self) -> MutexGuard<'_, Worker> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes packets through the worker as one vector; returns verdicts and bytes.
    fn pass(&self, packets: &[Incoming]) -> Vec<Passed> {
        let mut buffers = buffers(packets);
        let mut views = views(packets, &mut buffers);
        let mut verdicts = vec![Verdict::Drop(DropReason::NoWire); packets.len()];
        self.lock().process(5_000_000_000, &NoCycles, &mut views, &mut verdicts);
        views.iter().zip(verdicts).map(|(view, verdict)| (verdict, view.bytes().to_vec())).collect()
    }

    /// Traces packets one by one, as `explain` does.
    fn explain(&self, packets: &[Incoming]) -> Vec<PacketTrace> {
        let mut traces = Vec::new();
        for packet in packets {
            let mut buffers = buffers(std::slice::from_ref(packet));
            let mut views = views(std::slice::from_ref(packet), &mut buffers);
            let (mut verdicts, mut tickets) = ([Verdict::Drop(DropReason::NoWire)], [const { None }]);
            let mut hook = |trace| traces.push(trace);
            let mut worker = self.lock();
            worker.decide(
                Origin::Wire,
                5_000_000_000,
                &NoCycles,
                &mut views,
                &mut verdicts,
                &mut tickets,
                Some(&mut hook),
            );
            if let [Some(ticket)] = tickets {
                worker.rewrite(&NoCycles, &mut views, &[ticket], &mut verdicts);
            }
        }
        traces
    }
}

fn buffers(packets: &[Incoming]) -> Vec<Vec<u8>> {
    let room = |packet: &Incoming| [&vec![0; packet.headroom][..], &packet.bytes, &[0; 64]].concat();
    packets.iter().map(room).collect()
}

fn views<'b>(packets: &[Incoming], buffers: &'b mut [Vec<u8>]) -> Vec<Packet<'b>> {
    let view = |(buffer, packet): (&'b mut Vec<u8>, &Incoming)| {
        Packet::new(buffer, packet.headroom, packet.bytes.len(), packet.port, packet.link).expect("it fits")
    };
    buffers.iter_mut().zip(packets).map(view).collect()
}

fn engine(policy: &Policy) -> Option<(Engine, SharedWorker)> {
    let (mut engine, mut workers) = Engine::new(ports(1500), 1, &SeedTree::repeatable(3));
    engine.publish(policy).ok()?;
    Some((engine, SharedWorker(Arc::new(Mutex::new(workers.remove(0))))))
}

/// The packets that a tap sees of a vector, those that it leaves out, and what the host sees.
fn tapped(
    (engine, worker): &mut (Engine, SharedWorker),
    filter: &PacketFilter,
    (options, room): (TapOptions, usize),
    packets: &[Incoming],
) -> (Vec<TappedPacket>, u64, Vec<Passed>) {
    let driven = worker.clone();
    let drive = move |_| driven.lock().process(0, &NoCycles, &mut [], &mut []);
    let connections = engine.connections().driven_by(Arc::new(drive));
    let selector = engine.selector(filter).expect("the ports are there");
    let tap = connections.tap_with_capacity(selector, options, room).expect("it answers");
    let passed = worker.pass(packets);
    let seen = std::iter::from_fn(|| tap.take()).collect();
    (seen, tap.take_left_out(), passed)
}

fn load(lines: &[String]) -> Policy {
    let mut policy = Policy::default();
    for line in lines {
        if let Ok((command, _)) = parse_command(line) {
            // One that cannot be run here is left out like one that cannot be parsed.
            let _ = command.run(&mut policy);
        }
    }
    policy
}

fn incoming() -> impl Strategy<Value = Incoming> {
    let port = select(&[0u16, 0, 1, 2][..]).prop_map(PortId);
    (strategy::wire(), port).prop_map(|(wire, port)| Incoming {
        port,
        link: wire.link,
        headroom: 64,
        bytes: wire.bytes,
    })
}

fn is_of_packet(rule: &Rule) -> bool {
    let is_of_packet = |place: FieldPlace| !matches!(place, FieldPlace::Connection | FieldPlace::Stream(_));
    rule.matches.iter().all(|constraint| is_of_packet(constraint.field.info().place))
}

/// Packets, and a filter that one of them satisfies.
fn filtered() -> impl Strategy<Value = (Vec<Incoming>, PacketFilter)> {
    (vec(incoming(), 1..24), any::<prop::sample::Index>()).prop_flat_map(|(packets, at)| {
        let spec = packet_spec(at.get(&packets), &ports(1500));
        let filter = match spec {
            Some(spec) => arbitrary::rule_for(spec, RuleOptions::default())
                .prop_filter("it is about packets", is_of_packet)
                .prop_map(|rule| PacketFilter { all: rule.matches.is_empty(), matches: rule.matches })
                .boxed(),
            None => any::<bool>().prop_map(|all| PacketFilter { matches: Vec::new(), all }).boxed(),
        };
        (Just(packets), filter)
    })
}

/// Whether a filter selects a packet, by the oracle: a rule with its constraints matches it.
fn is_selected(filter: &PacketFilter, packet: &Incoming) -> bool {
    let mut policy = Policy::default();
    let rule = Rule {
        id: None,
        prio: 100,
        name: None,
        stateful: false,
        draining: false,
        matches: filter.matches.clone(),
        targets: vec![Target::Accept],
    };
    policy.add(&rule).expect("it is the first");
    let verdict = evaluate(&policy, &ports(1500), &packet.received(), &mut || 0);
    let is_of_ports = filter.matches.iter().all(|constraint| matches!(constraint.test, Test::Port(..)));
    // Constraints on ports are all that such a frame can satisfy.
    let (mut buffers, one) = (buffers(std::slice::from_ref(packet)), std::slice::from_ref(packet));
    let is_malformed = parse(&views(one, &mut buffers)[0], &ParserLimits::default()).is_err();
    filter.is_empty()
        || !verdict.matched.is_empty()
        || is_malformed && is_of_ports && holds_for_port(filter, packet)
}

/// Whether constraints on ports hold: of ARP, which always can be parsed, by the same port.
fn holds_for_port(filter: &PacketFilter, packet: &Incoming) -> bool {
    let arp = Tcp::default().over_ip4().bytes();
    let sound = Incoming { link: LinkType::Ethernet, bytes: arp, headroom: 64, port: packet.port };
    is_selected(filter, &sound)
}

fn same(bytes: &Option<TappedBytes>, expected: &[u8]) -> bool {
    bytes.as_ref().is_some_and(|tapped| tapped.bytes == expected && tapped.len == expected.len())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 500, ..ProptestConfig::default() })]

    #[test]
    fn a_tap_sees_what_came_and_what_became_of_it_and_changes_nothing(
        lines in strategy::policy(),
        packets in vec(incoming(), 1..32),
    ) {
        let policy = load(&lines);
        let (Some(mut looked_at), Some(plain), Some(explained)) =
            (engine(&policy), engine(&policy), engine(&policy)) else { return Ok(()) };
        let expected = plain.1.pass(&packets);
        let (seen, left_out, passed) = tapped(&mut looked_at, &PacketFilter::default(), (ALL, 4096), &packets);
        prop_assert_eq!(&passed, &expected);
        prop_assert_eq!((seen.len(), left_out), (packets.len(), 0));
        let traces = explained.1.explain(&packets);
        for (((seen, packet), (verdict, bytes)), trace) in seen.iter().zip(&packets).zip(&passed).zip(&traces) {
            prop_assert!(same(&seen.received, &packet.bytes), "{:?} of {:?}", seen, packet);
            prop_assert!(same(&seen.last, bytes), "{:?}, and sent was {:02x?}", seen, bytes);
            prop_assert_eq!((seen.verdict, seen.port, seen.link), (*verdict, packet.port, packet.link));
            let told = |trace: &PacketTrace| {
                let connection = trace.connection.map(|of| (of.is_new, of.is_reply, of.state, of.arrived));
                (trace.rules().collect::<Vec<_>>(), trace.count, trace.decisive, connection)
            };
            prop_assert_eq!(told(&seen.trace), told(trace), "{:?}", packet);
        }
        looked_at.1.lock().fold_counters();
        plain.1.lock().fold_counters();
        prop_assert_eq!(looked_at.0.drops(), plain.0.drops());
        prop_assert_eq!(looked_at.0.port_counts(), plain.0.port_counts());
        for id in policy.rules.iter().filter_map(|rule| rule.id) {
            prop_assert_eq!(looked_at.0.rule_count(id), plain.0.rule_count(id), "{:?}", id);
        }
    }

    #[test]
    fn a_filter_selects_the_packets_that_a_rule_with_its_constraints_matches((packets, filter) in filtered()) {
        let mut engine = engine(&Policy::default()).expect("an empty policy");
        let (seen, left_out, _) = tapped(&mut engine, &filter, (ALL, 4096), &packets);
        let seen: Vec<Vec<u8>> = seen.into_iter().filter_map(|seen| Some(seen.received?.bytes)).collect();
        let expected = packets.iter().filter(|packet| is_selected(&filter, packet));
        prop_assert_eq!(seen, expected.map(|packet| packet.bytes.clone()).collect::<Vec<_>>());
        prop_assert_eq!(left_out, 0);
    }

    #[test]
    fn what_a_full_queue_has_no_room_for_is_counted(packets in vec(incoming(), 1..32), room in 1usize..20) {
        let mut engine = engine(&Policy::default()).expect("an empty policy");
        let (seen, left_out, passed) = tapped(&mut engine, &PacketFilter::default(), (ALL, room), &packets);
        prop_assert_eq!(seen.len() as u64 + left_out, packets.len() as u64);
        prop_assert_eq!(passed.len(), packets.len());
        // Each needs a piece of memory for each of its byte strings.
        prop_assert!(seen.len() <= room);
    }
}

#[test]
fn only_what_is_wanted_is_seen() {
    let policy =
        load(&["add id 7 tcp-dport 80 drop".into(), "add id 8 tcp-dport 81 mod tcp-dport 8081".into()]);
    let packet = |dport| Incoming {
        port: PortId(0),
        link: LinkType::Ethernet,
        headroom: 64,
        bytes: Tcp { dport, payload: vec![7; 3000], ..Tcp::default() }.over_ip4().bytes(),
    };
    let packets = [packet(80), packet(81), packet(82)];
    let none = TapOptions { received: false, sent: false, dropped: false, all: false, ..ALL };
    let see = |options: TapOptions| {
        let mut engine = engine(&policy).expect("a good policy");
        let (seen, left_out, _) = tapped(&mut engine, &PacketFilter::default(), (options, 100), &packets);
        assert_eq!(left_out, 0);
        let len = |bytes: &Option<TappedBytes>| bytes.as_ref().map(|bytes| (bytes.bytes.len(), bytes.len));
        let rule = |seen: &TappedPacket| seen.trace.rules().map(|RuleId(id)| id).next();
        seen.iter().map(|seen| (rule(seen), len(&seen.received), len(&seen.last))).collect::<Vec<_>>()
    };
    let whole = Some((3054, 3054));
    assert_eq!(see(TapOptions { sent: true, ..none }), []);
    let small = TapOptions { snaplen: 60, ..none };
    assert_eq!(
        see(TapOptions { received: true, ..none }),
        [(Some(7), whole, None), (Some(8), whole, None), (None, whole, None)]
    );
    assert_eq!(see(TapOptions { dropped: true, ..small }).len(), 3, "two of them are too long for the port");
    assert_eq!(
        see(TapOptions { dropped: true, reason: Some(DropReason::Rule), ..small }),
        [(Some(7), None, Some((60, 3054)))]
    );
    assert_eq!(
        see(TapOptions { received: true, reason: Some(DropReason::MtuExceeded), ..small }),
        [(Some(8), Some((60, 3054)), None), (None, Some((60, 3054)), None)]
    );
}
