//! Invariants under any mappings, any settings, and clashes with other connections.

use super::*;
use mmb_policy::settings::PortsPerHost;
use mmb_random::SeedTree;
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Debug)]
enum Step {
    Open {
        rule: u32,
        arrived: Tuple,
    },
    Enter {
        arrived: Tuple,
    },
    Close(usize),
    /// A closed connection releases its binding, and stays in the table.
    Detach(usize),
    Forget(u32),
    Settings(ConnectionSettings),
}

fn ports() -> impl Strategy<Value = Option<PortMapping>> {
    let port = || prop_oneof![0_u16..12, 1020_u16..1028, Just(u16::MAX)];
    prop_oneof![
        3 => Just(None),
        1 => port().prop_map(|port| Some(PortMapping::fixed(port))),
        1 => (port(), port()).prop_map(|(low, high)| Some(PortMapping::shuffled(low, high))),
        2 => proptest::collection::vec((port(), port()), 0..4).prop_map(|ranges| Some(PortMapping::within(&ranges))),
    ]
}

fn addresses() -> impl Strategy<Value = Option<ValueSet>> {
    let range = (0_u128..20, 0_u128..4).prop_map(|(low, more)| (OUTSIDE + low, OUTSIDE + low + more));
    prop_oneof![
        1 => Just(None),
        2 => proptest::collection::vec(range, 0..4).prop_map(|ranges| Some(ValueSet::new(ranges))),
    ]
}

fn mapping() -> impl Strategy<Value = Mapping> {
    let balance = prop_oneof![
        Just(None),
        Just(Some(Balance::RoundRobin)),
        Just(Some(Balance::Hash)),
        Just(Some(Balance::Least)),
    ];
    (addresses(), addresses(), ports(), ports(), balance).prop_map(|(saddr, daddr, sport, dport, method)| {
        let over = if daddr.is_some() { BalancedPart::Address } else { BalancedPart::Port };
        let balance = method.map(|method| Balancing { method, over, rule: RuleVersion(1) });
        Mapping { saddr, daddr, sport, dport, balance }
    })
}

fn settings() -> impl Strategy<Value = ConnectionSettings> {
    let filtering = prop_oneof![
        Just(NatFiltering::EndpointIndependent),
        Just(NatFiltering::AddressDependent),
        Just(NatFiltering::AddressAndPortDependent),
    ];
    let limit = prop_oneof![Just(PortsPerHost::Share), (1_u32..6).prop_map(PortsPerHost::AtMost)];
    (filtering, limit, any::<bool>(), any::<bool>()).prop_map(
        |(nat_filtering, nat_ports_per_host, nat_parity, nat_contiguity)| ConnectionSettings {
            nat_filtering,
            nat_ports_per_host,
            nat_parity,
            nat_contiguity,
            ..ConnectionSettings::default()
        },
    )
}

/// Packets between few endpoints, some of them in the pools.
fn arrived() -> impl Strategy<Value = Tuple> {
    let address = || prop_oneof![INSIDE..INSIDE + 3, OUTSIDE..OUTSIDE + 6];
    let port = || prop_oneof![0_u16..6, Just(1024_u16)];
    let proto =
        prop_oneof![3 => Just(proto::UDP), 1 => Just(proto::TCP), 1 => Just(proto::ICMP), 1 => Just(47)];
    (address(), address(), port(), port(), proto).prop_map(|(from, to, sport, dport, proto)| {
        let ports = match proto {
            proto::ICMP => [sport, 8 + 5 * (dport & 1)],
            47 => [0; 2],
            _ => [sport, dport],
        };
        Tuple { addresses: [from, to], ports, proto, family: 4, ..Tuple::default() }
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0_u32..4, arrived()).prop_map(|(rule, arrived)| Step::Open { rule, arrived }),
        3 => arrived().prop_map(|arrived| Step::Enter { arrived }),
        4 => any::<prop::sample::Index>().prop_map(|index| Step::Close(index.index(1 << 20))),
        2 => any::<prop::sample::Index>().prop_map(|index| Step::Detach(index.index(1 << 20))),
        1 => (0_u32..4).prop_map(Step::Forget),
        1 => settings().prop_map(Step::Settings),
    ]
}

/// Protocol, address and port of an outside endpoint.
type Outer = (u8, u128, u16);
/// Address and port of an inside endpoint.
type Inner = (u128, u16);

/// The outside endpoint of a source and its inside endpoint, if there is a binding.
fn end(nat: &Nat, arrived: &Tuple, sent: &Tuple) -> Option<(Outer, Inner)> {
    let (address, port) = (sent.addresses[SOURCE], sent.ports[SOURCE]);
    let owner = nat.owner(sent.proto, 4, Wire::default(), address, port)?;
    let inside = (arrived.addresses[SOURCE], arrived.ports[SOURCE]);
    (owner == inside).then_some(((sent.proto, address, port), inside))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn no_two_connections_have_one_reply_and_nothing_is_left(
        seed: u64,
        mappings in proptest::collection::vec(mapping(), 4),
        steps in proptest::collection::vec(step(), 1..150),
        hindrance in 0_u64..4,
    ) {
        let mut nat = Nat::new(&SeedTree::repeatable(seed));
        // Forward and reply tuples: the keys of a connection table.
        let mut live: Vec<[Tuple; 2]> = Vec::new();
        let mut leases: Vec<Option<LeaseId>> = Vec::new();
        let mut owners: BTreeMap<Outer, Inner> = BTreeMap::new();
        for step in steps {
            let made = match step {
                Step::Settings(settings) => {
                    nat.configure(&settings);
                    None
                }
                Step::Forget(rule) => {
                    nat.forget(RuleVersion(rule.into()));
                    None
                }
                Step::Close(index) => {
                    if !live.is_empty() {
                        let index = index % live.len();
                        live.swap_remove(index);
                        nat.release(leases.swap_remove(index));
                    }
                    None
                }
                Step::Detach(index) => {
                    if !leases.is_empty() {
                        let index = index % leases.len();
                        nat.release(std::mem::take(&mut leases[index]));
                    }
                    None
                }
                Step::Enter { arrived } => Some((arrived, Translated { sent: arrived, lease: None })),
                Step::Open { rule, arrived } => {
                    // Some endpoints are always in use by other connections.
                    let stands = |tuple: &Tuple| hindrance > 0 && u64::from(tuple.ports[DESTINATION]) % 4 < hindrance - 1;
                    let taken = |tuple: &Tuple| stands(tuple) || live.iter().flatten().any(|key| key == tuple);
                    let translated = nat.translate(RuleVersion(rule.into()), &mappings[rule as usize], &arrived, &taken);
                    if let Ok(translated) = translated {
                        prop_assert!(!taken(&translated.sent.reversed()));
                        if let Some((outside, inside)) = end(&nat, &arrived, &translated.sent) {
                            let before = owners.insert(outside, inside);
                            let still = before.is_none_or(|before| before == inside);
                            prop_assert!(still, "an end changed hands while it was bound");
                        }
                    }
                    translated.ok().map(|translated| (arrived, translated))
                }
            };
            if let Some((arrived, translated)) = made {
                let entered = nat.enter(translated).expect("there is memory");
                let keys = [arrived, entered.sent.reversed()];
                // Like a table, refuse a connection whose key is in use: it is released at once.
                if live.iter().flatten().any(|key| keys.contains(key)) {
                    nat.release(entered.lease);
                } else {
                    live.push(keys);
                    leases.push(entered.lease);
                }
            }
            owners.retain(|(proto, address, port), inside| nat.owner(*proto, 4, Wire::default(), *address, *port) == Some(*inside));
        }
        leases.into_iter().for_each(|lease| nat.release(lease));
        (0..4).for_each(|rule| nat.forget(RuleVersion(rule)));
        assert_nothing_left(&nat);
        prop_assert_eq!(nat.destinations.sets(), 0);
        prop_assert_eq!(nat.leases.len(), 0);
    }
}
