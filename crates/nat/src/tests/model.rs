//! Random connections, compared with a plain model of bindings.

use super::*;
use mmb_conn::Vlans;
use mmb_policy::settings::PortsPerHost;
use mmb_random::SeedTree;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug)]
enum Step {
    Open { rule: u32, proto: u8, wire: Wire, host: u128, port: u16, peer: u128 },
    Close(usize),
}

/// Source mappings of each kind, over pools that are soon exhausted.
fn mappings() -> Vec<Mapping> {
    let ports = |sport| Mapping { sport: Some(sport), ..snat(2) };
    vec![
        snat(1),
        snat(3),
        ports(PortMapping::within(&[(2000, 2003), (3001, 3001)])),
        ports(PortMapping::shuffled(500, 505)),
        ports(PortMapping::fixed(77)),
        Mapping { sport: Some(PortMapping::shuffled(6000, 6002)), ..Mapping::default() },
        // Shares its addresses and ports with the third one.
        Mapping { sport: Some(PortMapping::within(&[(2002, 2005)])), ..snat(3) },
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let proto = prop_oneof![Just(proto::TCP), Just(proto::UDP), Just(proto::ICMP)];
    let port = prop_oneof![Just(80_u16), Just(1023), 2000_u16..2006, 40_000_u16..40_003];
    let vlans = [Vlans::NONE, Vlans { outer: 7, inner: 0 }];
    let wires = [(0, 0), (2, 0), (0, 1)].map(|(port, tag)| Wire { port, vlans: vlans[tag] });
    let wire = prop::sample::select(wires.to_vec());
    let open = (0_u32..7, proto, wire, 0_u128..5, port, 0_u128..3)
        .prop_map(|(rule, proto, wire, host, port, peer)| Step::Open { rule, proto, wire, host, port, peer });
    prop_oneof![3 => open, 1 => any::<prop::sample::Index>().prop_map(|index| Step::Close(index.index(1 << 20)))]
}

/// A connection that is open.
struct Live {
    rule: u32,
    arrived: Tuple,
    translated: Translated,
}

impl Live {
    fn inside(&self) -> (u32, Wire, u8, u128, u16) {
        (
            self.rule,
            self.arrived.wire,
            self.arrived.proto,
            self.arrived.addresses[SOURCE],
            self.arrived.ports[SOURCE],
        )
    }
}

/// Ports in use by wire, protocol and outside address.
type InUse = BTreeMap<(Wire, u8, u128), BTreeSet<u16>>;

fn in_use(live: &[Live]) -> InUse {
    let mut used = InUse::new();
    for Live { arrived, translated, .. } in live {
        let (address, port) = outside(translated);
        used.entry((arrived.wire, arrived.proto, address)).or_default().insert(port);
    }
    used
}

/// The outside addresses and the port ranges that a connection may get.
fn allowed(mapping: &Mapping, rule: u32, arrived: &Tuple, live: &[Live]) -> (Vec<u128>, Vec<(u16, u16)>) {
    let host = arrived.addresses[SOURCE];
    let paired = live.iter().find(|other| {
        (other.rule, other.arrived.wire, other.arrived.addresses[SOURCE]) == (rule, arrived.wire, host)
    });
    let addresses = match (paired, &mapping.saddr) {
        (Some(other), _) => vec![outside(&other.translated).0],
        (None, Some(addresses)) => (0..addresses.len()).map(|index| addresses.nth(index)).collect(),
        (None, None) => vec![host],
    };
    let ranges = match &mapping.sport {
        Some(ports) => ports.ranges().to_vec(),
        None if arrived.proto == proto::ICMP => vec![(0, u16::MAX)],
        None if arrived.ports[SOURCE] < 1024 => vec![(1, 1023)],
        None => vec![(1024, u16::MAX)],
    };
    (addresses, ranges)
}

fn check_opened(mapping: &Mapping, live: &[Live], new: &Live) {
    let (address, port) = outside(&new.translated);
    let twin = live.iter().find(|other| other.inside() == new.inside());
    if let Some(twin) = twin {
        assert_eq!(outside(&twin.translated), (address, port), "endpoint-independent");
        return;
    }
    let (addresses, ranges) = allowed(mapping, new.rule, &new.arrived, live);
    assert!(addresses.contains(&address), "paired, and of the pool");
    assert!(ranges.iter().any(|(low, high)| (*low..=*high).contains(&port)), "of the class or the ranges");
    let used = in_use(live);
    let none = BTreeSet::new();
    let used = used.get(&(new.arrived.wire, new.arrived.proto, address)).unwrap_or(&none);
    assert!(!used.contains(&port), "free");
    let own = new.arrived.ports[SOURCE];
    let inside_ranges = ranges.iter().any(|(low, high)| (*low..=*high).contains(&own));
    if mapping.sport.as_ref().is_some_and(PortMapping::is_shuffled) {
        return;
    }
    if inside_ranges && !used.contains(&own) {
        assert_eq!(port, own, "preserved");
    } else if new.arrived.proto != proto::ICMP && port % 2 != own % 2 {
        let same = |port: &u16| port % 2 == own % 2 && !used.contains(port);
        assert!(
            !ranges.iter().any(|(low, high)| (*low..=*high).any(|port| same(&port))),
            "parity where there is a choice"
        );
    }
}

/// How many ports of its pool a host holds.
fn held(rule: u32, arrived: &Tuple, live: &[Live]) -> usize {
    let host = |(rule, wire, proto, address, _)| (rule, wire, proto, address);
    let Tuple { wire, proto, addresses, .. } = *arrived;
    let ends: BTreeSet<_> = live.iter().map(Live::inside).collect();
    ends.into_iter().filter(|end| host(*end) == (rule, wire, proto, addresses[SOURCE])).count()
}

fn check_refused(mapping: &Mapping, rule: u32, arrived: &Tuple, live: &[Live], refused: NatError) {
    let expected = if mapping.sport.as_ref().is_some_and(PortMapping::is_fixed) {
        NatError::Clash
    } else {
        NatError::NoPort
    };
    assert_eq!(refused, expected);
    let (addresses, ranges) = allowed(mapping, rule, arrived, live);
    let used = in_use(live);
    for address in addresses {
        let used = used.get(&(arrived.wire, arrived.proto, address));
        let all_used = ranges
            .iter()
            .all(|(low, high)| (*low..=*high).all(|port| used.is_some_and(|used| used.contains(&port))));
        assert!(all_used, "a port was free on {address:x}");
    }
}

fn check_bijection(nat: &Nat, live: &[Live]) {
    let mut owners = BTreeMap::new();
    for Live { arrived, translated, .. } in live {
        let (address, port) = outside(translated);
        let inside = (arrived.addresses[SOURCE], arrived.ports[SOURCE]);
        let before = owners.insert((arrived.wire, arrived.proto, address, port), inside);
        assert!(before.is_none_or(|before| before == inside), "two inside ends share an outside end");
        assert_eq!(nat.owner(arrived.proto, 4, arrived.wire, address, port), Some(inside));
    }
    let ends: BTreeSet<_> = live.iter().map(Live::inside).collect();
    assert_eq!(nat.len(), ends.len());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn connections_come_and_go(
        seed: u64,
        max in proptest::option::of(1_u32..5),
        steps in proptest::collection::vec(step(), 1..160),
    ) {
        let (mut nat, mappings) = (Nat::new(&SeedTree::repeatable(seed)), mappings());
        let nat_ports_per_host = max.map_or(PortsPerHost::Share, PortsPerHost::AtMost);
        nat.configure(&ConnectionSettings { nat_ports_per_host, ..ConnectionSettings::default() });
        let mut live: Vec<Live> = Vec::new();
        for step in steps {
            match step {
                Step::Close(_) if live.is_empty() => {}
                Step::Close(index) => {
                    let gone = live.swap_remove(index % live.len());
                    nat.release(gone.translated.lease);
                    let (address, port) = outside(&gone.translated);
                    let Tuple { wire, proto, .. } = gone.arrived;
                    let remains = live.iter().any(|other| other.inside() == gone.inside());
                    prop_assert_eq!(nat.owner(proto, 4, wire, address, port).is_some(), remains);
                }
                Step::Open { rule, proto, wire, host, port, peer } => {
                    let arrived = Tuple { wire, ..packet(proto, host, port, peer) };
                    if live.iter().any(|other| other.arrived == arrived) {
                        continue;
                    }
                    let mapping = &mappings[rule as usize];
                    let replies: BTreeSet<_> = live.iter().map(|other| key(&other.translated.sent.reversed())).collect();
                    let taken = |reply: &Tuple| replies.contains(&key(reply));
                    let host_limit = max.is_some_and(|max| held(rule, &arrived, &live) >= max as usize);
                    let host_limit = host_limit && mapping.saddr.is_some();
                    match nat.translate(RuleVersion(rule.into()), mapping, &arrived, &taken) {
                        Err(NatError::HostLimit) => prop_assert!(host_limit),
                        Ok(translated) => {
                            prop_assert!(!taken(&translated.sent.reversed()));
                            let new = Live { rule, arrived, translated };
                            let has_end = live.iter().any(|other| other.inside() == new.inside());
                            prop_assert!(has_end || !host_limit, "more than its limit");
                            check_opened(mapping, &live, &new);
                            live.push(new);
                        }
                        Err(refused) => check_refused(mapping, rule, &arrived, &live, refused),
                    }
                }
            }
            check_bijection(&nat, &live);
        }
        for gone in live {
            nat.release(gone.translated.lease);
        }
        assert_nothing_left(&nat);
    }
}

fn key(tuple: &Tuple) -> ([u128; 2], [u16; 2], Wire, u8) {
    (tuple.addresses, tuple.ports, tuple.wire, tuple.proto)
}
