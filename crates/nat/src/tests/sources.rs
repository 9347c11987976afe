//! Source translation, each guarantee by itself.

use super::*;
use mmb_conn::Vlans;
use mmb_random::SeedTree;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn one_outside_endpoint_for_all_destinations() {
    let mut nat = filtering(NatFiltering::EndpointIndependent);
    let first = nat.translate(RuleVersion(1), &snat(4), &udp(1, 5000, 1), &free).expect("free");
    let second = nat.translate(RuleVersion(1), &snat(4), &udp(1, 5000, 2), &free).expect("free");
    assert_eq!((outside(&first), first.lease), (outside(&second), second.lease));
    nat.release(first.lease);
    assert_eq!(nat.owner(proto::UDP, 4, Wire::default(), outside(&first).0, 5000), Some((INSIDE + 1, 5000)));
    nat.release(second.lease);
    assert_nothing_left(&nat);
}

#[test]
fn rules_that_ask_for_the_same_share_bindings() {
    let mut nat = Nat::new(&SeedTree::repeatable(1));
    let first = nat.translate(RuleVersion(1), &snat(4), &udp(1, 5000, 1), &free).expect("free");
    let second = nat.translate(RuleVersion(2), &snat(4), &udp(1, 5000, 2), &free).expect("free");
    assert_eq!(outside(&first), outside(&second));
    // Another pool has another binding, with another outside endpoint.
    let third = nat.translate(RuleVersion(3), &snat(1), &udp(1, 5000, 3), &free).expect("free");
    assert_ne!(third.lease, first.lease);
    assert_ne!(outside(&third), outside(&first));
}

#[test]
fn a_small_pool_is_exhausted_exactly_and_recovers() {
    let mut nat = Nat::new(&SeedTree::repeatable(3));
    let mapping = Mapping { sport: Some(PortMapping::shuffled(7000, 7099)), ..snat(3) };
    let mut open: Vec<Translated> = (0..300)
        .map(|host| nat.translate(RuleVersion(1), &mapping, &udp(host, 9, 1), &free).expect("a port is free"))
        .collect();
    let ends: BTreeSet<_> = open.iter().map(outside).collect();
    assert_eq!(ends.len(), 300);
    assert_eq!(nat.translate(RuleVersion(1), &mapping, &udp(900, 9, 1), &free), Err(NatError::NoPort));
    // The same endpoints are free for another protocol, and on another wire.
    assert!(nat.translate(RuleVersion(1), &mapping, &packet(proto::TCP, 900, 9, 1), &free).is_ok());
    assert!(
        nat.translate(
            RuleVersion(1),
            &mapping,
            &Tuple { wire: Wire { port: 2, vlans: Vlans::NONE }, ..udp(900, 9, 1) },
            &free
        )
        .is_ok()
    );
    for round in 0..50 {
        let gone = open.swap_remove(round * 5);
        nat.release(gone.lease);
        let next = nat
            .translate(RuleVersion(1), &mapping, &udp(1000 + round as u128, 9, 1), &free)
            .expect("one is free");
        assert_eq!(outside(&next), outside(&gone));
        open.push(next);
        assert_eq!(nat.translate(RuleVersion(1), &mapping, &udp(900, 9, 1), &free), Err(NatError::NoPort));
    }
}

/// A mapping's pool is exhausted because another mapping has all of its ports. A later mapping must not
/// inherit that.
#[test]
fn exhaustion_is_not_taken_for_another_mappings() {
    let mut nat = Nat::new(&SeedTree::repeatable(3));
    let within = |low, high, addresses| Mapping {
        sport: Some(PortMapping::within(&[(low, high)])),
        ..snat(addresses)
    };
    let full = [1, 2]
        .map(|host| nat.translate(RuleVersion(1), &within(7, 8, 1), &udp(host, 9, 1), &free).expect("free"));
    assert_eq!(nat.translate(RuleVersion(2), &within(7, 7, 1), &udp(3, 9, 1), &free), Err(NatError::NoPort));
    let other = nat
        .translate(RuleVersion(3), &within(20, 29, 16), &udp(4, 9, 1), &free)
        .expect("nothing of it is used");
    full.iter().chain([&other]).for_each(|translated| nat.release(translated.lease));
    assert!(nat.translate(RuleVersion(2), &within(7, 7, 1), &udp(3, 9, 1), &free).is_ok_and(|again| {
        nat.release(again.lease);
        true
    }));
    assert_nothing_left(&nat);
}

#[test]
fn all_ports_of_a_class_are_used_before_one_is_refused() {
    let mut nat = filtering(NatFiltering::EndpointIndependent);
    let mapping = snat(1);
    let mut seen = BTreeSet::new();
    for end in 0..64_512_u32 {
        let arrived = udp(u128::from(end), 50_000, 1);
        assert!(seen.insert(
            outside(&nat.translate(RuleVersion(1), &mapping, &arrived, &free).expect("a port is free")).1
        ));
    }
    assert!(seen.first() == Some(&1024) && seen.len() == 64_512);
    assert_eq!(
        nat.translate(RuleVersion(1), &mapping, &udp(1 << 20, 50_000, 1), &free),
        Err(NatError::NoPort)
    );
    // Well-known ports are only for sources with a well-known port.
    let low =
        nat.translate(RuleVersion(1), &mapping, &udp(1 << 20, 123, 1), &free).expect("a class by itself");
    assert_eq!(outside(&low).1, 123);
    assert!(nat.memory() < 64_512 * 256, "{} bytes", nat.memory());
}

#[test]
fn an_inside_address_keeps_its_outside_address() {
    let mut nat = Nat::new(&SeedTree::repeatable(5));
    let mut of_host: BTreeMap<u128, BTreeSet<u128>> = BTreeMap::new();
    for (host, port) in (0..200).flat_map(|host| (1..9).map(move |port| (host, port * 1000))) {
        for proto in [proto::UDP, proto::TCP, proto::ICMP] {
            let translated =
                nat.translate(RuleVersion(1), &snat(16), &packet(proto, host, port, 1), &free).expect("free");
            of_host.entry(host).or_default().insert(outside(&translated).0);
        }
    }
    assert!(of_host.values().all(|addresses| addresses.len() == 1));
    let used: BTreeSet<_> = of_host.values().flatten().collect();
    assert_eq!(used.len(), 16, "and hosts are spread over the pool");
}

#[test]
fn a_port_that_is_used_gives_one_of_its_class_and_parity() {
    let mut nat = Nat::new(&SeedTree::repeatable(6));
    for (host, port) in (0..40).flat_map(|host| [53, 54, 5004, 5005, u16::MAX].map(|port| (host, port))) {
        let (_, got) =
            outside(&nat.translate(RuleVersion(1), &snat(1), &udp(host, port, 1), &free).expect("free"));
        assert_eq!((got < 1024, got % 2), (port < 1024, port % 2));
        assert!(host > 0 || got == port);
    }
}

#[test]
fn parity_can_be_switched_off() {
    let mut nat = Nat::new(&SeedTree::repeatable(7));
    nat.configure(&ConnectionSettings {
        nat_parity: false,
        nat_contiguity: false,
        ..ConnectionSettings::default()
    });
    let odd = (0..100).filter(|host| {
        outside(&nat.translate(RuleVersion(1), &snat(1), &udp(*host, 5004, 1), &free).expect("free")).1 % 2
            == 1
    });
    assert!((20..80).contains(&odd.count()));
}

#[test]
fn neighbours_stay_neighbours() {
    let mut nat = Nat::new(&SeedTree::repeatable(8));
    for host in 0..50 {
        let (_, even) =
            outside(&nat.translate(RuleVersion(1), &snat(1), &udp(host, 5004, 1), &free).expect("free"));
        let (_, odd) =
            outside(&nat.translate(RuleVersion(1), &snat(1), &udp(host, 5005, 1), &free).expect("free"));
        assert_eq!(odd, even + 1);
    }
}

#[test]
fn the_type_of_a_query_stays() {
    let mut nat = Nat::new(&SeedTree::repeatable(9));
    for host in 0..3 {
        let sent = nat
            .translate(RuleVersion(1), &snat(1), &packet(proto::ICMP, host, 7, 1), &free)
            .expect("free")
            .sent;
        assert_eq!(sent.ports[DESTINATION], 8);
        assert_eq!(sent.ports[SOURCE] == 7, host == 0);
    }
}

#[test]
fn a_port_is_kept_if_it_is_within_and_fixed_ones_clash() {
    let mut nat = Nat::new(&SeedTree::repeatable(10));
    let within = Mapping { sport: Some(PortMapping::within(&[(10, 12), (5000, 5001)])), ..snat(1) };
    assert_eq!(
        outside(&nat.translate(RuleVersion(1), &within, &udp(1, 5001, 1), &free).expect("free")).1,
        5001
    );
    let (_, other) = outside(&nat.translate(RuleVersion(1), &within, &udp(2, 6000, 1), &free).expect("free"));
    assert!([10, 11, 12, 5000].contains(&other));
    let fixed = Mapping { sport: Some(PortMapping::fixed(9)), ..snat(2) };
    assert!(nat.translate(RuleVersion(2), &fixed, &udp(1, 1, 1), &free).is_ok());
    assert!(nat.translate(RuleVersion(2), &fixed, &udp(2, 1, 1), &free).is_ok(), "on the other address");
    assert_eq!(nat.translate(RuleVersion(2), &fixed, &udp(3, 1, 1), &free), Err(NatError::Clash));
    assert_eq!(nat.translate(RuleVersion(2), &fixed, &udp(1, 2, 1), &free), Err(NatError::Clash));
}

#[test]
fn ends_that_connections_without_a_binding_use_are_left_alone() {
    let mut nat = Nat::new(&SeedTree::repeatable(11));
    // A host that has the outside address itself talks to the same server from port 5000.
    let taken = |reply: &Tuple| reply.ports[DESTINATION] == 5000;
    let translated = nat.translate(RuleVersion(1), &snat(1), &udp(1, 5000, 1), &taken).expect("another port");
    assert_ne!(outside(&translated).1, 5000);
    assert_eq!(nat.translate(RuleVersion(1), &snat(1), &udp(2, 5000, 2), &|_| true), Err(NatError::NoPort));
    nat.release(translated.lease);
    assert_nothing_left(&nat);
}

/// Formerly such a connection was dropped as a clash. Only this connection gets another port: the mapping of
/// all others stays endpoint-independent.
#[test]
fn a_server_where_the_outside_end_is_taken_is_reached_from_another_port() {
    let mut nat = Nat::new(&SeedTree::repeatable(11));
    let bound = nat.translate(RuleVersion(1), &snat(1), &udp(1, 5000, 1), &free).expect("free");
    let taken = |reply: &Tuple| reply.ports[DESTINATION] == 5000 && reply.addresses[SOURCE] == 0xC000_0202;
    let apart =
        nat.translate(RuleVersion(1), &snat(1), &udp(1, 5000, 2), &taken).expect("another port would do");
    assert_ne!(outside(&apart).1, 5000);
    assert_eq!(
        nat.owner(proto::UDP, 4, Wire::default(), OUTSIDE, outside(&apart).1),
        Some((INSIDE + 1, 5000))
    );
    let other = nat.translate(RuleVersion(1), &snat(1), &udp(1, 5000, 3), &taken).expect("free there");
    assert_eq!(outside(&other), outside(&bound), "endpoint-independent");
    // Whichever connection ends first releases only its own endpoint.
    nat.release(bound.lease);
    nat.release(other.lease);
    assert_eq!(nat.owner(proto::UDP, 4, Wire::default(), OUTSIDE, 5000), None);
    let again = nat.translate(RuleVersion(1), &snat(1), &udp(1, 5000, 4), &taken).expect("free");
    assert_eq!(outside(&again), outside(&bound), "the port is kept again");
    nat.release(apart.lease);
    assert_eq!(nat.owner(proto::UDP, 4, Wire::default(), OUTSIDE, 5000), Some((INSIDE + 1, 5000)));
    nat.release(again.lease);
    // If the rule allows only one port, there is no other.
    let fixed = Mapping { sport: Some(PortMapping::fixed(5000)), ..snat(1) };
    let bound = nat.translate(RuleVersion(2), &fixed, &udp(1, 5000, 1), &taken).expect("free");
    assert_eq!(nat.translate(RuleVersion(2), &fixed, &udp(1, 5000, 2), &taken), Err(NatError::Clash));
    nat.release(bound.lease);
    assert_nothing_left(&nat);
}

#[test]
fn sources_without_ports_are_distinguished_by_address() {
    let mut nat = Nat::new(&SeedTree::repeatable(12));
    let gre = |host| Tuple { ports: [0; 2], ..packet(47, host, 0, 1) };
    let first = nat.translate(RuleVersion(1), &snat(2), &gre(1), &free).expect("free");
    assert_eq!((first.lease, first.sent.ports), (None, [0; 2]));
    let reply = first.sent.reversed();
    let second = nat
        .translate(RuleVersion(1), &snat(2), &gre(2), &|other| *other == reply)
        .expect("the other address");
    assert_ne!(second.sent, first.sent);
    assert_eq!(nat.translate(RuleVersion(1), &snat(2), &gre(3), &|_| true), Err(NatError::Clash));
}

#[test]
fn an_empty_pool_has_no_address() {
    let mut nat = Nat::new(&SeedTree::repeatable(13));
    let none = || Some(ValueSet::new(Vec::new()));
    for mapping in
        [Mapping { saddr: none(), ..Mapping::default() }, Mapping { daddr: none(), ..Mapping::default() }]
    {
        assert_eq!(nat.translate(RuleVersion(1), &mapping, &udp(1, 1, 1), &free), Err(NatError::NoAddress));
        assert_eq!(
            nat.translate(RuleVersion(1), &mapping, &packet(47, 1, 0, 1), &free),
            Err(NatError::NoAddress)
        );
    }
    let no_port = Mapping { sport: Some(PortMapping::within(&[])), ..snat(2) };
    assert_eq!(nat.translate(RuleVersion(2), &no_port, &udp(1, 1, 1), &free), Err(NatError::NoPort));
}

#[test]
fn a_large_pool_costs_what_is_used() {
    let mut nat = filtering(NatFiltering::EndpointIndependent);
    let before = nat.memory();
    let mapping = snat(1 << 24);
    for host in 0..10_000 {
        nat.translate(RuleVersion(1), &mapping, &udp(host, 5000, 1), &free).expect("free");
    }
    assert!(nat.memory() - before < 10_000 * 400, "{}", nat.memory() - before);
    let six = ValueSet::new(vec![(1 << 64, u128::MAX)]);
    let arrived = Tuple { family: 6, ..udp(1, 5000, 1) };
    assert!(
        nat.translate(RuleVersion(2), &Mapping { saddr: Some(six), ..Mapping::default() }, &arrived, &free)
            .is_ok()
    );
}

#[test]
fn ports_of_two_seeds_and_of_one_after_the_other_are_unrelated() {
    let ports = |seed| {
        let mut nat = Nat::new(&SeedTree::repeatable(seed));
        let mapping = Mapping { sport: Some(PortMapping::shuffled(1024, u16::MAX)), ..snat(1) };
        (0..1000)
            .map(|host| {
                outside(&nat.translate(RuleVersion(1), &mapping, &udp(host, 9, 1), &free).expect("free")).1
            })
            .collect::<Vec<_>>()
    };
    let (one, other) = (ports(1), ports(2));
    assert_eq!(one, ports(1));
    assert!(one.iter().zip(&other).filter(|(one, other)| one == other).count() < 10);
    let near = one.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) < 100).count();
    assert!(near < 20, "{near}");
    let upper = one.iter().filter(|port| **port >= 33_280).count();
    assert!((400..600).contains(&upper));
}

#[test]
fn rules_that_change_or_go_leave_their_bindings() {
    let mut nat = Nat::new(&SeedTree::repeatable(15));
    let first = nat.translate(RuleVersion(1), &snat(1), &udp(1, 5000, 1), &free).expect("free");
    nat.forget(RuleVersion(1));
    assert_eq!(nat.owner(proto::UDP, 4, Wire::default(), OUTSIDE, 5000), Some((INSIDE + 1, 5000)));
    let moved = Mapping { saddr: Some(ValueSet::new(vec![(5, 5)])), ..Mapping::default() };
    let second = nat.translate(RuleVersion(1), &moved, &udp(1, 5000, 2), &free).expect("free");
    assert_eq!(outside(&second), (5, 5000));
    nat.release(first.lease);
    nat.release(second.lease);
    assert_nothing_left(&nat);
}
