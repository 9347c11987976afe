//! How many ports of a pool one inside address may hold (RFC 6888 REQ-4).

use super::*;
use mmb_policy::settings::PortsPerHost;
use mmb_random::SeedTree;

fn limited(nat_ports_per_host: PortsPerHost) -> Nat {
    let mut nat = Nat::new(&SeedTree::repeatable(30));
    nat.configure(&ConnectionSettings { nat_ports_per_host, ..ConnectionSettings::default() });
    nat
}

/// Opens connections of a host from new ports until one is refused: the ports that it got, and the error.
fn exhaust(nat: &mut Nat, mapping: &Mapping, proto: u8, host: u128) -> (Vec<Translated>, NatError) {
    let mut open = Vec::new();
    for port in 1024..=u16::MAX {
        match nat.translate(RuleVersion(1), mapping, &packet(proto, host, port, 1), &free) {
            Ok(translated) => open.push(translated),
            Err(refused) => return (open, refused),
        }
    }
    panic!("one host has all of {} ports", open.len());
}

fn release(nat: &mut Nat, open: Vec<Translated>) {
    open.into_iter().for_each(|translated| nat.release(translated.lease));
}

#[test]
fn one_host_gets_half_of_an_address_and_leaves_others_theirs() {
    let mut nat = Nat::new(&SeedTree::repeatable(1));
    let mapping = snat(1);
    let (first, why) = exhaust(&mut nat, &mapping, proto::UDP, 1);
    assert_eq!((first.len(), why), (64_512 / 2, NatError::HostLimit));
    // The limit holds for each protocol and each class of ports separately.
    assert_eq!(exhaust(&mut nat, &mapping, proto::TCP, 1).0.len(), 64_512 / 2);
    assert!(nat.translate(RuleVersion(1), &mapping, &udp(1, 123, 1), &free).is_ok());
    assert!(nat.translate(RuleVersion(1), &mapping, &packet(proto::ICMP, 1, 5, 1), &free).is_ok());
    // Each following host gets half of what is left, so that a new host always gets some ports.
    assert_eq!(exhaust(&mut nat, &mapping, proto::UDP, 2).0.len(), 64_512 / 4);
    for host in 3..8 {
        assert!(exhaust(&mut nat, &mapping, proto::UDP, host).0.len() >= 64_512 / 128);
    }
    for port in 1024..1074 {
        assert!(nat.translate(RuleVersion(1), &mapping, &udp(99, port, 1), &free).is_ok());
    }
    // A released port is available to all hosts, its former holder included.
    release(&mut nat, first);
    assert!(nat.translate(RuleVersion(1), &mapping, &udp(1, 5000, 1), &free).is_ok());
}

#[test]
fn a_small_range_is_for_whoever_comes() {
    let mut nat = Nat::new(&SeedTree::repeatable(2));
    for (ports, expected) in [(4, 4), (64, 64), (100, 64), (128, 64), (500, 250)] {
        let sport = Some(PortMapping::within(&[(30_000, 30_000 + ports - 1)]));
        let mapping = Mapping { sport, ..snat(1) };
        let (open, _) = exhaust(&mut nat, &mapping, proto::UDP, 1);
        assert_eq!(open.len(), expected, "of {ports}");
        release(&mut nat, open);
    }
    let fixed = Mapping { sport: Some(PortMapping::fixed(7)), ..snat(1) };
    assert!(nat.translate(RuleVersion(1), &fixed, &udp(1, 5000, 1), &free).is_ok());
}

#[test]
fn a_number_is_the_most_that_a_host_holds() {
    for max in [1, 5, 200, 65_536] {
        let mut nat = limited(PortsPerHost::AtMost(max));
        for host in 1..3 {
            let sport = Some(PortMapping::within(&[(1024, 9999)]));
            let mapping = Mapping { sport, ..snat(4) };
            let (open, why) = exhaust(&mut nat, &mapping, proto::UDP, host);
            let expected =
                if max < 8976 { (max as usize, NatError::HostLimit) } else { (8976, NatError::NoPort) };
            assert_eq!((open.len(), why), expected);
            // Further connections of an endpoint that has a port need no other port.
            let other = Tuple { ports: [1024, 80], ..udp(host, 1024, 1) };
            let same = nat.translate(RuleVersion(1), &mapping, &other, &free).expect("it has one");
            nat.release(same.lease);
            release(&mut nat, open);
        }
        assert_nothing_left(&nat);
    }
}

/// The packet of an address of an IPv6 network, both given by number.
fn of_network(network: u128, address: u128, port: u16) -> Tuple {
    let source = 0x2001_0db8 << 96 | network << 64 | address;
    Tuple { addresses: [source, 9], ports: [port, 443], proto: proto::UDP, family: 6, ..Tuple::default() }
}

/// A host has 2^64 addresses. Formerly each address had a separate share.
#[test]
fn a_host_of_ipv6_is_a_network_of_64_bits() {
    let mut nat = Nat::new(&SeedTree::repeatable(3));
    let mut open = Vec::new();
    for address in 0..64_512 {
        match nat.translate(RuleVersion(1), &snat(1), &of_network(1, address, 5000), &free) {
            Ok(translated) => open.push(translated),
            Err(why) => {
                assert_eq!(why, NatError::HostLimit);
                break;
            }
        }
    }
    assert_eq!(open.len(), 64_512 / 2);
    assert!(
        nat.translate(RuleVersion(1), &snat(1), &of_network(2, 7, 5000), &free).is_ok(),
        "another network"
    );
    let mut nat = limited(PortsPerHost::AtMost(10));
    let given = (0..20).filter(|address| {
        nat.translate(RuleVersion(1), &snat(4), &of_network(1, *address, 5000), &free).is_ok()
    });
    assert_eq!(given.count(), 10);
    let given = (0..20).filter(|port| {
        nat.translate(RuleVersion(1), &snat(4), &of_network(2, 0, 5000 + port), &free).is_ok()
    });
    assert_eq!(given.count(), 10);
}

/// If many hosts are in one network, for example behind one router, one of them does not use up the share of
/// all.
#[test]
fn one_address_of_a_network_leaves_ports_to_its_neighbours() {
    let mut nat = Nat::new(&SeedTree::repeatable(4));
    let mut ports =
        (1024..=u16::MAX).map(|port| nat.translate(RuleVersion(1), &snat(1), &of_network(1, 1, port), &free));
    let given = ports.by_ref().take_while(Result::is_ok).count();
    assert!((64_512 / 3 - 1..=64_512 / 3 + 1).contains(&given), "{given}");
    for neighbour in 2..20 {
        for port in 5000..5050 {
            assert!(nat.translate(RuleVersion(1), &snat(1), &of_network(1, neighbour, port), &free).is_ok());
        }
    }
}

#[test]
fn another_setting_holds_for_connections_to_come() {
    let mut nat = limited(PortsPerHost::AtMost(10));
    let (open, _) = exhaust(&mut nat, &snat(1), proto::UDP, 1);
    nat.configure(&ConnectionSettings {
        nat_ports_per_host: PortsPerHost::AtMost(3),
        ..ConnectionSettings::default()
    });
    assert_eq!(nat.translate(RuleVersion(1), &snat(1), &udp(1, 9, 1), &free), Err(NatError::HostLimit));
    assert!(nat.translate(RuleVersion(1), &snat(1), &packet(proto::TCP, 1, 9, 1), &free).is_ok());
    nat.configure(&ConnectionSettings::default());
    assert!(nat.translate(RuleVersion(1), &snat(1), &udp(1, 9, 1), &free).is_ok());
    release(&mut nat, open);
}

/// A host's own address is not a pool: using up its ports harms no other host.
#[test]
fn own_addresses_have_no_limit() {
    let mut nat = limited(PortsPerHost::AtMost(2));
    let mapping = Mapping { sport: Some(PortMapping::shuffled(6000, 6099)), ..Mapping::default() };
    let (open, why) = exhaust(&mut nat, &mapping, proto::UDP, 1);
    assert_eq!((open.len(), why), (100, NatError::NoPort));
}
