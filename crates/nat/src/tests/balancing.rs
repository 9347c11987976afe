//! Destinations: servers by each method, pools, and endpoints that are in use.

use super::*;
use mmb_random::SeedTree;
use std::collections::BTreeMap;

fn servers(count: u128, balance: Balance) -> Mapping {
    Mapping { daddr: Some(pool(count)), balance: over(BalancedPart::Address, balance), ..Mapping::default() }
}

fn over(over: BalancedPart, method: Balance) -> Option<Balancing> {
    Some(Balancing { method, over, rule: RuleVersion(1) })
}

fn server(translated: &Translated) -> u128 {
    translated.sent.addresses[DESTINATION] - OUTSIDE
}

/// How many of `connections` connections each server gets.
fn spread(nat: &mut Nat, mapping: &Mapping, connections: u128) -> BTreeMap<u128, u32> {
    let mut counts = BTreeMap::new();
    for number in 0..connections {
        let arrived = udp(number >> 4, 5000 + (number & 15) as u16, 1);
        *counts
            .entry(server(&nat.translate(RuleVersion(1), mapping, &arrived, &free).expect("free")))
            .or_insert(0) += 1;
    }
    counts
}

#[test]
fn round_robin_is_even() {
    let counts = spread(&mut Nat::new(&SeedTree::repeatable(1)), &servers(7, Balance::RoundRobin), 700);
    assert_eq!(counts.values().copied().collect::<Vec<_>>(), [100; 7]);
}

#[test]
fn hashing_is_the_same_for_every_rule_and_connection() {
    let mapping = servers(7, Balance::Hash);
    let mut nat = Nat::new(&SeedTree::repeatable(1));
    for host in 0..100 {
        let arrived = udp(host, 5000, 1);
        let first = nat.translate(RuleVersion(1), &mapping, &arrived, &free).expect("free");
        nat.reseed(&SeedTree::repeatable(host as u64));
        assert_eq!(first, nat.translate(RuleVersion(9), &mapping, &arrived, &free).expect("free"));
        assert_eq!(first.lease, None);
    }
    let counts = spread(&mut nat, &mapping, 7000);
    assert!(counts.len() == 7 && counts.values().all(|count| (850..1150).contains(count)), "{counts:?}");
}

/// A sender that could predict the server could direct all connections to one.
#[test]
fn which_server_a_hash_gives_is_known_to_one_process_only() {
    let mapping = servers(7, Balance::Hash);
    let mut processes = [1, 2].map(|number| Nat::new(&SeedTree::repeatable(number)));
    let same = (0..7000).filter(|host| {
        let arrived = udp(*host, 5000, 1);
        let [one, other] = &mut processes;
        one.translate(RuleVersion(1), &mapping, &arrived, &free)
            == other.translate(RuleVersion(1), &mapping, &arrived, &free)
    });
    // By chance, one of seven is the same: the mean is 1000, the standard deviation 30.
    assert!((850..1150).contains(&same.count()));
}

#[test]
fn the_server_with_the_fewest_connections_is_next() {
    let mut nat = Nat::new(&SeedTree::repeatable(3));
    let mapping = servers(3, Balance::Least);
    let mut open: Vec<Translated> = (0..9)
        .map(|host| nat.translate(RuleVersion(1), &mapping, &udp(host, 1, 1), &free).expect("free"))
        .collect();
    let count = |open: &[Translated], wanted| open.iter().filter(|other| server(other) == wanted).count();
    assert!((0..3).all(|wanted| count(&open, wanted) == 3));
    // All connections of server 1 end: the next three go there.
    open.retain(|translated| {
        let stays = server(translated) != 1;
        if !stays {
            nat.release(translated.lease);
        }
        stays
    });
    for host in 100..103 {
        let next = nat.translate(RuleVersion(1), &mapping, &udp(host, 1, 1), &free).expect("free");
        assert_eq!(server(&next), 1);
        open.push(next);
    }
    open.iter().for_each(|translated| nat.release(translated.lease));
    assert_nothing_left(&nat);
}

#[test]
fn rules_with_the_same_servers_see_each_others_connections() {
    let mut nat = Nat::new(&SeedTree::repeatable(3));
    let least = servers(3, Balance::Least);
    let with_source = Mapping { sport: Some(PortMapping::shuffled(1, 9)), ..least.clone() };
    let open: Vec<_> = (0..60_u32)
        .map(|number| {
            let mapping = if number % 2 == 0 { &least } else { &with_source };
            nat.translate(RuleVersion((number % 3).into()), mapping, &udp(u128::from(number), 1, 1), &free)
                .expect("free")
        })
        .collect();
    assert!((0..3).all(|wanted| open.iter().filter(|other| server(other) == wanted).count() == 20));
    // The set of servers is kept while a rule or a connection uses it.
    assert_eq!(nat.destinations.sets(), 1);
    (0..3).for_each(|rule| nat.forget(RuleVersion(rule)));
    assert_eq!(nat.destinations.sets(), 1);
    open.iter().for_each(|translated| nat.release(translated.lease));
    assert_eq!(nat.destinations.sets(), 0);
    assert_nothing_left(&nat);
    // Rules with the same set also take turns together.
    let turns = servers(4, Balance::RoundRobin);
    let given: Vec<_> = (0..8_u32)
        .map(|number| {
            server(&nat.translate(RuleVersion(number.into()), &turns, &udp(1, 1, 1), &free).expect("free"))
        })
        .collect();
    assert!(given.windows(2).all(|pair| (pair[0] + 1) % 4 == pair[1]));
    (0..8).for_each(|rule| nat.forget(RuleVersion(rule)));
    assert_eq!(nat.destinations.sets(), 0);
}

#[test]
fn many_servers_cost_what_is_used() {
    for balance in [Balance::RoundRobin, Balance::Hash, Balance::Least] {
        let counts = spread(&mut Nat::new(&SeedTree::repeatable(4)), &servers(1 << 24, balance), 1000);
        assert!(counts.len() > 990, "{balance:?}");
    }
}

#[test]
fn one_source_keeps_its_address_of_a_pool() {
    let mut nat = Nat::new(&SeedTree::repeatable(5));
    let mapping = Mapping { daddr: Some(pool(8)), ..Mapping::default() };
    for host in 0..20 {
        let first = server(&nat.translate(RuleVersion(1), &mapping, &udp(host, 1, 1), &free).expect("free"));
        assert_eq!(
            server(&nat.translate(RuleVersion(1), &mapping, &udp(host, 2, 1), &free).expect("free")),
            first
        );
    }
}

#[test]
fn ports_are_forwarded_and_balanced() {
    let mut nat = Nat::new(&SeedTree::repeatable(6));
    let forward =
        Mapping { daddr: Some(pool(1)), dport: Some(PortMapping::fixed(8080)), ..Mapping::default() };
    let sent = nat.translate(RuleVersion(1), &forward, &udp(1, 1, 1), &free).expect("free").sent;
    assert_eq!((sent.addresses, sent.ports), ([INSIDE + 1, OUTSIDE], [1, 8080]));
    let query =
        nat.translate(RuleVersion(1), &forward, &packet(proto::ICMP, 1, 7, 1), &free).expect("free").sent;
    assert_eq!(query.ports, [7, 8], "a query has no port to forward to");
    let balanced = Mapping {
        dport: Some(PortMapping::within(&[(8080, 8081), (9090, 9090)])),
        balance: over(BalancedPart::Port, Balance::RoundRobin),
        ..Mapping::default()
    };
    let mut counts = BTreeMap::new();
    for host in 0..30 {
        *counts
            .entry(
                nat.translate(RuleVersion(2), &balanced, &udp(host, 1, 1), &free).expect("free").sent.ports
                    [1],
            )
            .or_insert(0) += 1;
    }
    assert_eq!(counts, BTreeMap::from([(8080, 10), (8081, 10), (9090, 10)]));
    let kept = Mapping { dport: Some(PortMapping::within(&[(440, 450)])), ..Mapping::default() };
    assert_eq!(nat.translate(RuleVersion(3), &kept, &udp(1, 1, 1), &free).expect("free").sent.ports[1], 443);
    let random = Mapping { dport: Some(PortMapping::shuffled(440, 450)), ..Mapping::default() };
    let port = nat.translate(RuleVersion(4), &random, &udp(1, 1, 1), &free).expect("free").sent.ports[1];
    assert!((440..=450).contains(&port));
}

#[test]
fn a_destination_whose_replies_are_anothers_is_refused_or_changed() {
    let mut nat = Nat::new(&SeedTree::repeatable(7));
    let forward = Mapping { daddr: Some(pool(1)), ..Mapping::default() };
    let reply = nat.translate(RuleVersion(1), &forward, &udp(1, 1, 1), &free).expect("free").sent.reversed();
    let taken = |other: &Tuple| *other == reply;
    // Another source port resolves the clash, whether a rule maps ports or none does (as in Linux); so does
    // another server.
    let beside = nat.translate(RuleVersion(1), &forward, &udp(1, 1, 2), &taken).expect("another port");
    assert_eq!(beside.sent.addresses, [INSIDE + 1, OUTSIDE]);
    assert!(!taken(&beside.sent.reversed()) && beside.sent.ports[SOURCE] != 1);
    nat.release(beside.lease);
    assert_nothing_left(&nat);
    let gre = packet(47, 1, 0, 2);
    assert_eq!(
        nat.translate(RuleVersion(1), &forward, &gre, &|_| true),
        Err(NatError::Clash),
        "it has no port"
    );
    let with_port = Mapping { sport: Some(PortMapping::within(&[(1, 9)])), ..forward };
    assert_ne!(
        nat.translate(RuleVersion(2), &with_port, &udp(1, 1, 2), &taken).expect("another port").sent.ports[0],
        1
    );
    for (rule, balance) in [(3, Balance::RoundRobin), (4, Balance::Least), (5, Balance::Hash)] {
        for host in 0..20 {
            let busy = |other: &Tuple| other.addresses[SOURCE] == OUTSIDE;
            let result = nat.translate(RuleVersion(rule), &servers(64, balance), &udp(host, 1, 2), &busy);
            assert!(result.is_ok_and(|translated| server(&translated) != 0), "{balance:?}");
        }
        assert_eq!(
            nat.translate(RuleVersion(rule), &servers(64, balance), &udp(1, 1, 2), &|_| true),
            Err(NatError::Clash)
        );
    }
}

#[test]
fn source_and_destination_are_translated_together() {
    let mut nat = Nat::new(&SeedTree::repeatable(8));
    let both = Mapping { saddr: Some(ValueSet::new(vec![(5, 5)])), ..servers(3, Balance::Least) };
    let made: Vec<_> = (0..6)
        .map(|host| nat.translate(RuleVersion(1), &both, &udp(host, 1, 1), &free).expect("free"))
        .collect();
    assert_eq!(nat.len(), 6);
    assert!(made.iter().all(|translated| translated.sent.addresses[SOURCE] == 5));
    made.iter().for_each(|translated| nat.release(translated.lease));
    assert_nothing_left(&nat);
}

/// Servers that are out of service get no new connections by any method; the others share them.
#[test]
fn servers_that_are_out_get_no_connections() {
    for balance in [Balance::RoundRobin, Balance::Hash, Balance::Least] {
        let mut nat = Nat::new(&SeedTree::repeatable(9));
        let mapping = servers(7, balance);
        let list = mapping.servers().expect("it balances").clone();
        let mut next = 0;
        let mut connect = |nat: &mut Nat, rule: u64| {
            next += 1;
            let balance = mapping.balance.map(|balance| Balancing { rule: RuleVersion(rule), ..balance });
            let mapping = Mapping { balance, ..mapping.clone() };
            nat.translate(RuleVersion(rule), &mapping, &udp(next, 1, 1), &free)
        };
        nat.set_open_servers(RuleVersion(1), Some(OpenServers::new(&list, |index| index != 2 && index != 5)));
        let mut counts = [0; 7];
        (0..500).for_each(|_| counts[server(&connect(&mut nat, 1).expect("five are open")) as usize] += 1);
        assert_eq!((counts[2], counts[5]), (0, 0), "{balance:?}");
        assert!(
            counts.iter().filter(|count| (60..140).contains(*count)).count() == 5,
            "{balance:?} {counts:?}"
        );
        // Another rule with the same servers has its own open servers.
        let others: Vec<_> = (0..200).map(|_| server(&connect(&mut nat, 2).expect("all are open"))).collect();
        assert!(others.contains(&2) && others.contains(&5), "{balance:?}");
        nat.set_open_servers(RuleVersion(1), Some(OpenServers::new(&list, |_| false)));
        assert_eq!(connect(&mut nat, 1), Err(NatError::NoServer));
        nat.set_open_servers(RuleVersion(1), None);
        assert!((0..200).any(|_| server(&connect(&mut nat, 1).expect("all are open")) == 5), "{balance:?}");
    }
}

/// A later rule that maps another part does not end the balancing.
#[test]
fn a_later_rule_that_maps_the_port_leaves_the_balancing_of_addresses() {
    let mut merged = servers(3, Balance::Least);
    let port = Mapping { dport: Some(PortMapping::fixed(8080)), ..Mapping::default() };
    merged.merge(&port);
    assert_eq!(merged.balance, over(BalancedPart::Address, Balance::Least));
    assert_eq!(merged.servers().map(ValueSet::len), Some(3));
    merged.merge(&servers(2, Balance::Hash));
    assert_eq!(merged.balance, over(BalancedPart::Address, Balance::Hash));
    merged.merge(&Mapping { daddr: Some(pool(1)), ..Mapping::default() });
    assert_eq!((merged.balance, merged.servers()), (None, None));
}
