//! The flow offload against workers that see every packet, on random policies and flows.
//!
//! A case is a policy and some packets, each the first one of a flow, whose later packets differ from it in all that may differ within a flow. One
//! engine gets all of them. The other one has a host that forwards flows by itself, a plain model of what the kernel does. Verdicts, bytes and
//! counters must be equal.

use mmb_differential::packet_spec;
use mmb_differential::stateless::{Incoming, ports};
use mmb_engine::{
    Engine, FlowKey, FlowOffload, FlowUsage, FlowWrites, NoCycles, OffloadEpoch, OffloadedFlow, Verdict,
    Worker,
};
use mmb_language::{Print, parse_command};
use mmb_packet::checksum::{ChecksumSum, pseudo_header};
use mmb_packet::parse::parse;
use mmb_packet::proto::{ICMP, ICMP6, TCP, UDP};
use mmb_packet::{Class, Layout, LinkType, Packet, ParserLimits, PortId};
use mmb_policy::arbitrary::{self, RuleOptions};
use mmb_policy::field::FieldId;
use mmb_policy::{Policy, Rule, RuleId};
use mmb_random::SeedTree;
use mmb_testkit::{Tcp, Udp, strategy};
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A host's table of flows.
#[derive(Default)]
struct Table {
    epoch: u32,
    index: HashMap<FlowKey, u32>,
    flows: HashMap<u32, (OffloadedFlow, FlowUsage)>,
}

#[derive(Clone, Default)]
struct Model(Arc<Mutex<Table>>);

impl Model {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OffloadEpoch for Model {
    fn set_epoch(&self, epoch: u32) {
        self.table().epoch = epoch;
    }
}

impl FlowOffload for Model {
    fn capacity(&self) -> u32 {
        64
    }

    fn can_forward(&self, _: PortId, _: Option<PortId>) -> bool {
        true
    }

    fn install(&mut self, place: u32, flow: &OffloadedFlow) -> bool {
        let mut table = self.table();
        table.index.insert(flow.key, place);
        table.flows.insert(place, (*flow, FlowUsage::default()));
        true
    }

    fn enable(&mut self, _: u32) {}

    fn end(&mut self, place: u32) {
        self.table().index.retain(|_, of| *of != place);
    }

    fn usage(&self, place: u32) -> FlowUsage {
        self.table().flows.get(&place).map_or_else(FlowUsage::default, |(_, usage)| *usage)
    }

    fn update_numbers(&mut self, _: u32, _: mmb_engine::EndNumbers) {}
}

fn layout(bytes: &mut [u8]) -> Option<Layout> {
    let len = bytes.len();
    let packet = Packet::new(bytes, 0, len, PortId(0), LinkType::Ethernet)?;
    parse(&packet, &ParserLimits::default()).ok()
}

/// What the kernel's program reads of a frame: `read_packet` of flow.bpf.c.
fn key(port: PortId, bytes: &[u8]) -> Option<(FlowKey, Layout)> {
    let mut copy = bytes.to_vec();
    let layout = layout(&mut copy)?;
    let vlan = match layout.vlan_tags {
        0 => None,
        1 if bytes[12..14] == [0x81, 0] => Some(u16::from_be_bytes([bytes[14], bytes[15]]) & 0xfff),
        _ => return None,
    };
    let (ip, l4) = (usize::from(layout.ip), usize::from(layout.l4));
    let number =
        |at: usize, len: usize| bytes[at..at + len].iter().fold(0, |all, byte| all << 8 | u128::from(*byte));
    let half = |at: usize| bytes.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
    let (family, addresses) = match layout.class {
        Class::Ip4 if l4 - ip == 20 => (4, [number(ip + 12, 4), number(ip + 16, 4)]),
        Class::Ip6 if l4 - ip == 40 => (6, [number(ip + 8, 16), number(ip + 24, 16)]),
        _ => return None,
    };
    let ports = match (layout.proto, family) {
        _ if layout.is_fragment() => return None,
        (TCP, _) if bytes[l4 + 13] & 0x17 != 0x10 => return None,
        (TCP | UDP, _) => [half(l4)?, half(l4 + 2)?],
        (ICMP, 4) if matches!(bytes[l4], 0 | 8) => [half(l4)?, half(l4 + 4)?],
        (ICMP6, 6) if matches!(bytes[l4], 128 | 129) => [half(l4)?, half(l4 + 4)?],
        _ => return None,
    };
    Some((FlowKey { port, vlan, family, proto: layout.proto, addresses, ports }, layout))
}

/// A checksum field after bytes that it covers have changed (RFC 1624).
fn updated(field: &mut [u8], before: &[u8], after: &[u8], is_udp: bool) {
    let old = u16::from_be_bytes([field[0], field[1]]);
    if is_udp && old == 0 || before == after {
        return;
    }
    let mut sum = u64::from(!old);
    for (before, after) in before.chunks(2).zip(after.chunks(2)) {
        let word = |two: &[u8]| u64::from(u16::from_be_bytes([two[0], two[1]]));
        sum += u64::from(!(word(before) as u16)) + word(after);
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let new = match !(sum as u16) {
        0 if is_udp => 0xffff,
        new => new,
    };
    field.copy_from_slice(&new.to_be_bytes());
}

/// What the kernel's program writes: `rewrite` of flow.bpf.c.
fn write(bytes: &mut [u8], layout: &Layout, family: u8, writes: &FlowWrites) {
    let (ip, l4) = (usize::from(layout.ip), usize::from(layout.l4));
    let (header, places) = if family == 4 { (20, [12, 16]) } else { (40, [8, 24]) };
    let size = if family == 4 { 4 } else { 16 };
    let before = bytes.to_vec();
    if let Some(addresses) = writes.addresses {
        for (address, place) in addresses.iter().zip(places) {
            bytes[ip + place..ip + place + size].copy_from_slice(&address.to_be_bytes()[16 - size..]);
        }
    }
    if let Some(ports) = writes.ports {
        bytes[l4..l4 + 2].copy_from_slice(&ports[0].to_be_bytes());
        bytes[l4 + 2..l4 + 4].copy_from_slice(&ports[1].to_be_bytes());
    }
    let class = writes.traffic_class;
    if family == 4 {
        bytes[ip + 1] = bytes[ip + 1] & !class.mask | class.value;
        writes.ttl.into_iter().for_each(|ttl| bytes[ip + 8] = ttl);
    } else {
        let mut word = u32::from_be_bytes([bytes[ip], bytes[ip + 1], bytes[ip + 2], bytes[ip + 3]]);
        word = word & !(u32::from(class.mask) << 20) | u32::from(class.value) << 20;
        if let Some(label) = writes.label {
            word = word & !0xf_ffff | label;
        }
        bytes[ip..ip + 4].copy_from_slice(&word.to_be_bytes());
        writes.ttl.into_iter().for_each(|ttl| bytes[ip + 7] = ttl);
    }
    let after = bytes.to_vec();
    if family == 4 {
        updated(&mut bytes[ip + 10..ip + 12], &before[ip..ip + header], &after[ip..ip + header], false);
    }
    let sum_at = match layout.proto {
        TCP => 16,
        UDP => 6,
        _ => return,
    };
    let covered = |all: &[u8]| [&all[ip + places[0]..ip + places[1] + size], &all[l4..l4 + 4]].concat();
    updated(
        &mut bytes[l4 + sum_at..l4 + sum_at + 2],
        &covered(&before),
        &covered(&after),
        layout.proto == UDP,
    );
}

impl Model {
    /// Does with a packet what the kernel does; `None`: it goes to a worker.
    fn forward(&self, packet: &Incoming, mtu: u32) -> Option<(Option<PortId>, Vec<u8>)> {
        if packet.link != LinkType::Ethernet {
            return None;
        }
        let (key, layout) = key(packet.port, &packet.bytes)?;
        let mut table = self.table();
        let place = *table.index.get(&key)?;
        let epoch = table.epoch;
        let (flow, usage) = table.flows.get_mut(&place)?;
        let long = layout.end - u32::from(layout.ip);
        if flow.epoch != epoch
            || long > flow.max_len
            || (flow.egress.is_some() && long > mtu && flow.max_len > mtu)
        {
            return None;
        }
        assert!(flow.tcp.is_none(), "no connection");
        usage.count.packets += 1;
        usage.count.bytes += packet.bytes.len() as u64;
        let mut bytes = packet.bytes.clone();
        if flow.egress.is_some() {
            write(&mut bytes, &layout, key.family, &flow.writes);
        }
        Some((flow.egress, bytes))
    }
}

/// A later packet of the flow of another one.
fn varied(first: &Incoming, [a, b, c, d]: [u8; 4], more: Vec<u8>) -> Incoming {
    let mut bytes = first.bytes.clone();
    let Some(layout) = layout(&mut bytes.clone()) else { return first.clone() };
    let (ip, l4) = (usize::from(layout.ip), usize::from(layout.l4));
    if layout.is_fragment() || layout.class == Class::Other || layout.payload_end != layout.end {
        return first.clone();
    }
    let tail = bytes.split_off(layout.payload_range().start.max(l4));
    if matches!(layout.l4_kind, TCP | UDP) && a & 1 == 0 {
        bytes.extend(&more);
    } else {
        bytes.extend(&tail);
    }
    let len = (bytes.len() - ip) as u16;
    let put = |bytes: &mut [u8], at: usize, number: u16| {
        if let Some(place) = bytes.get_mut(at..at + 2) {
            place.copy_from_slice(&number.to_be_bytes());
        }
    };
    match layout.class {
        Class::Ip4 => {
            bytes[ip + 1] = b;
            put(&mut bytes, ip + 2, len);
            put(&mut bytes, ip + 4, u16::from_be_bytes([c, d]));
            bytes[ip + 8] = a;
        }
        _ => {
            bytes[ip] = 0x60 | b & 0x0f;
            bytes[ip + 1] = c;
            bytes[ip + 2] = d;
            put(&mut bytes, ip + 4, len - 40);
            bytes[ip + 7] = a;
        }
    }
    match layout.l4_kind {
        TCP => {
            for (at, byte) in (4..12).zip([a, b, c, d].into_iter().cycle()) {
                bytes[l4 + at] = byte;
            }
            bytes[l4 + 13] = 0x10 | b & 0xe8;
            put(&mut bytes, l4 + 14, u16::from_be_bytes([d, a]));
        }
        UDP => {
            let len = (bytes.len() - l4) as u16;
            put(&mut bytes, l4 + 4, len);
        }
        _ => {}
    }
    // Right checksums.
    if layout.class == Class::Ip4 {
        put(&mut bytes, ip + 10, 0);
        let header = usize::from(bytes[ip] & 0x0f) * 4;
        let sum = ChecksumSum::default().bytes(&bytes[ip..ip + header]).checksum();
        put(&mut bytes, ip + 10, sum);
    }
    let sum_at = match layout.l4_kind {
        TCP => l4 + 16,
        UDP => l4 + 6,
        _ => return Incoming { bytes, ..first.clone() },
    };
    put(&mut bytes, sum_at, 0);
    if let Some(layout) = self::layout(&mut bytes.clone())
        && let Some(pseudo) = pseudo_header(&bytes, &layout)
    {
        let sum = pseudo.bytes(&bytes[l4..layout.end as usize]).checksum();
        put(&mut bytes, sum_at, if sum == 0 { 0xffff } else { sum });
    }
    Incoming { bytes, ..first.clone() }
}

/// The first packet of a flow: a plain one, or any.
fn first() -> impl Strategy<Value = Incoming> {
    let ends = (0u8..3, 0u8..3, 0u16..4, 0u16..4);
    let plain = (0u8..4, ends).prop_map(|(kind, (from, to, sport, dport))| {
        let tcp = || Tcp { sport: 1000 + sport, dport: 80 + dport, flags: 0x10, ..Tcp::default() };
        let udp = || Udp { sport: 1000 + sport, dport: 80 + dport, ..Udp::default() };
        let (frame, addresses) = match kind {
            0 => (tcp().over_ip4(), [29, 33]),
            1 => (tcp().over_ip6(), [37, 53]),
            2 => (udp().over_ip4(), [29, 33]),
            _ => (udp().over_ip6(), [37, 53]),
        };
        let mut bytes = frame.bytes();
        // The last bytes of both addresses; `varied` sets the checksums.
        bytes[addresses[0]] = from;
        bytes[addresses[1]] = to;
        bytes
    });
    let plain = plain.prop_map(|bytes| (LinkType::Ethernet, bytes));
    let any = strategy::wire().prop_map(|wire| (wire.link, wire.bytes));
    (prop_oneof![3 => plain, 1 => any], 0u16..2).prop_map(|((link, bytes), port)| Incoming {
        port: PortId(port),
        link,
        headroom: 64,
        bytes,
    })
}

/// Whether a rule looks at nothing but what packets of a flow have in common.
fn is_pure(rule: &Rule) -> bool {
    use FieldId::{In, Ip6Daddr, Ip6Saddr, IpDaddr, IpProto, IpSaddr, NetProto, Out};
    use FieldId::{TcpDport, TcpSport, UdpDport, UdpSport, VlanId};
    let pure = [In, Out, NetProto, IpProto, IpSaddr, IpDaddr, Ip6Saddr, Ip6Daddr];
    let ports = [UdpSport, UdpDport, TcpSport, TcpDport, VlanId];
    rule.matches.iter().all(|of| pure.contains(&of.field.id) || ports.contains(&of.field.id))
}

/// Rules that match packets, and others, without state; and packets of flows.
fn case() -> impl Strategy<Value = (Vec<String>, Vec<Incoming>)> {
    let variation = (any::<[u8; 4]>(), vec(any::<u8>(), 0..40));
    let flow = (first(), vec(variation, 8..24));
    (strategy::policy(), vec(flow, 1..5), proptest::bool::weighted(0.7)).prop_flat_map(
        |(policy, flows, is_pure_policy)| {
            let aimed: Vec<_> = flows
                .iter()
                .filter_map(|(first, _)| packet_spec(first, &ports(1500)))
                .map(|spec| vec(arbitrary::rule_for(spec, RuleOptions::default()), 3))
                .collect();
            let packets: Vec<Vec<Incoming>> = flows
                .iter()
                .map(|(first, variations)| {
                    variations.iter().map(|(bytes, more)| varied(first, *bytes, more.clone())).collect()
                })
                .collect();
            (Just(policy), aimed, any::<u8>()).prop_map(move |(policy, aimed, taken)| {
                let policy = policy
                    .into_iter()
                    .zip(0..8)
                    .filter(|(_, number)| taken >> number & 3 == 3 && !is_pure_policy);
                let aimed = aimed.into_iter().flatten().filter(|rule| !is_pure_policy || is_pure(rule));
                let aimed = aimed.map(|rule| rule.text().to_string());
                let lines = policy
                    .map(|(line, _)| line)
                    .chain(aimed)
                    .filter(|line| !line.starts_with("add-stateful"));
                let max = packets.iter().map(Vec::len).max().unwrap_or(0);
                let in_turn =
                    (0..max).flat_map(|at| packets.iter().filter_map(move |flow| flow.get(at).cloned()));
                (lines.collect(), in_turn.collect())
            })
        },
    )
}

fn load(lines: &[String]) -> Policy {
    let mut policy = Policy::default();
    for line in lines {
        if let Ok((command, _)) = parse_command(line) {
            let _ = command.run(&mut policy);
        }
    }
    policy
}

fn work(worker: &mut Worker, packet: &Incoming, now_ns: u64) -> (Verdict, Vec<u8>) {
    let mut buffer = vec![0; packet.headroom];
    buffer.extend(&packet.bytes);
    buffer.extend([0; 64]);
    let mut verdicts = [Verdict::Drop(mmb_engine::DropReason::NoWire)];
    let len = packet.bytes.len();
    let view = Packet::new(&mut buffer, packet.headroom, len, packet.port, packet.link).expect("it fits");
    let mut views = [view];
    worker.process(now_ns, &NoCycles, &mut views, &mut verdicts);
    let bytes = views[0].bytes().to_vec();
    (verdicts[0], bytes)
}

/// A second of the workers' clock.
const SECOND_NS: u64 = 1_000_000_000;

fn compare(lines: &[String], packets: &[Incoming]) -> Result<usize, TestCaseError> {
    let mtu = 1500;
    let policy = load(lines);
    let make = || Engine::new(ports(mtu), 1, &SeedTree::repeatable(7));
    let ((mut plain, mut plain_workers), (mut engine, mut workers)) = (make(), make());
    let model = Model::default();
    engine.set_offload(Box::new(model.clone()));
    workers[0].set_offload(Box::new(model.clone()));
    let mut forwarded = 0;
    // Under the policy, under none, and under the policy again, when the flows of before have been given up.
    let rounds = [(&policy, 0), (&Policy::default(), SECOND_NS), (&policy, 40 * SECOND_NS)];
    for (policy, now_ns) in rounds {
        prop_assume!(plain.publish(policy).is_ok());
        engine.publish(policy).expect("it was published before");
        // Each visits some of the flows.
        (0..100)
            .for_each(|step| workers[0].process(now_ns + step * SECOND_NS / 50, &NoCycles, &mut [], &mut []));
        let now_ns = now_ns + 2 * SECOND_NS;
        for packet in packets {
            let expected = work(&mut plain_workers[0], packet, now_ns);
            let by_model = model.forward(packet, mtu);
            forwarded += usize::from(by_model.is_some());
            let (verdict, bytes) = match by_model {
                Some((Some(to), bytes)) => (Verdict::Send(to), bytes),
                Some((None, bytes)) => (Verdict::Drop(mmb_engine::DropReason::Rule), bytes),
                None => work(&mut workers[0], packet, now_ns),
            };
            prop_assert_eq!(verdict, expected.0, "{:?}", packet);
            if matches!(verdict, Verdict::Send(_)) {
                prop_assert_eq!(bytes, expected.1, "{:?}", packet);
            }
        }
    }
    for worker in plain_workers.iter_mut().chain(&mut workers) {
        worker.fold_counters();
    }
    for number in 1..=policy.rules.len() as u32 {
        prop_assert_eq!(
            engine.rule_count(RuleId(number)),
            plain.rule_count(RuleId(number)),
            "rule {}",
            number
        );
    }
    prop_assert_eq!(engine.drops(), plain.drops());
    prop_assert_eq!(engine.port_counts(), plain.port_counts());
    let summary = engine.offload();
    prop_assert_eq!(summary.packets, forwarded as u64);
    Ok(forwarded)
}

#[test]
fn offloaded_flows_are_those_of_the_workers() {
    let cases = std::env::var("MMB_ORACLE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1500);
    let mut runner =
        proptest::test_runner::TestRunner::new(ProptestConfig { cases, ..ProptestConfig::default() });
    let forwarded = std::cell::Cell::new(0);
    let result = runner.run(&case(), |(lines, packets)| {
        forwarded.set(forwarded.get() + compare(&lines, &packets)?);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
    assert!(forwarded.get() > cases as usize, "only {} packets were offloaded", forwarded.get());
}
