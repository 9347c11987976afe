//! `set stream per-source`: one host cannot take all places of streams.

use crate::host::{engine, pass, pass_among};
use mmb_engine::{DropReason, Engine, Verdict, Worker};
use mmb_packet::PortId;
use mmb_testkit::{Ip4, Ip6, Tcp, Upper};
use std::net::{Ipv4Addr, Ipv6Addr};

const PASSES: Verdict = Verdict::Send(PortId(1));
const REFUSED: Verdict = Verdict::Drop(DropReason::StreamPerSource);

fn rules(settings: &str) -> String {
    format!("{settings}\nadd-stateful tcp-dport 80 stream \"ATTACK\" close")
}

fn syn(sport: u16) -> Upper {
    Upper::Tcp(Tcp { sport, dport: 80, flags: 0x02, ..Tcp::default() })
}

fn from(host: [u8; 4], sport: u16) -> Vec<u8> {
    Ip4 { source: Ipv4Addr::from(host), ..Ip4::new(syn(sport)) }.frame().bytes()
}

fn from6(host: Ipv6Addr, sport: u16) -> Vec<u8> {
    Ip6 { source: host, ..Ip6::new(syn(sport)) }.frame().bytes()
}

/// Opens connections; returns how many pass. The others are refused for the share of their source.
fn open(worker: &mut Worker, syns: impl Iterator<Item = Vec<u8>>) -> usize {
    let outcomes: Vec<Verdict> =
        pass(worker, 0, &syns.collect::<Vec<_>>()).into_iter().map(|(verdict, _)| verdict).collect();
    assert!(outcomes.iter().all(|verdict| [PASSES, REFUSED].contains(verdict)), "{outcomes:?}");
    outcomes.into_iter().filter(|verdict| *verdict == PASSES).count()
}

fn passed_without_stream(engine: &Engine) -> u64 {
    let passed = engine.not_applied();
    passed.iter().find(|(why, _)| why.name() == "stream-per-source").map_or(0, |(_, count)| *count)
}

#[test]
fn a_host_that_opens_connections_leaves_places_to_others() {
    let (_engine, mut worker) = engine(&rules("set stream max 512\nset stream unfit drop"));
    assert_eq!(open(&mut worker, (0..600).map(|n| from([10, 0, 0, 1], 1000 + n))), 256, "half of them");
    assert_eq!(open(&mut worker, (0..100).map(|n| from([10, 0, 0, 2], 1000 + n))), 100);
    for host in 3..5 {
        assert_eq!(open(&mut worker, (0..64).map(|n| from([10, 0, 0, host], 1000 + n))), 64, "its share");
    }
}

/// SYNs without an answer, which anybody can send in the name of a host, do not keep its connections from being followed.
#[test]
fn a_half_open_stream_of_a_source_gives_way_to_its_next_one() {
    let (_engine, mut worker) = engine(&rules("set stream max 512\nset stream unfit drop"));
    let mut passes_at = |now_ms: u64, ports: std::ops::Range<u16>| {
        let syns: Vec<_> = ports.map(|port| from([10, 0, 0, 1], port)).collect();
        let passed = pass_among(std::slice::from_mut(&mut worker), (0, now_ms), 0, &syns);
        passed.iter().filter(|(verdict, _)| *verdict == PASSES).count()
    };
    assert_eq!(passes_at(1, 1000..1300), 256);
    assert_eq!(passes_at(500, 2000..2001), 0, "its share is taken");
    assert_eq!(passes_at(3000, 3000..3010), 10);
}

#[test]
fn addresses_of_ipv6_share_by_their_network() {
    let (_engine, mut worker) = engine(&rules("set stream max 512\nset stream unfit drop"));
    let host = |network: u16, host: u16| Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, host);
    assert_eq!(open(&mut worker, (0..600).map(|n| from6(host(1, n), 1000))), 256, "hosts of one network");
    assert_eq!(open(&mut worker, (0..100).map(|n| from6(host(2, n), 1000))), 100);
}

#[test]
fn a_number_bounds_each_source_and_ended_streams_count_no_more() {
    let (engine, mut worker) = engine(&rules("set stream per-source 3\nset timeout tcp-syn 5"));
    let mut passed_at = |now_ms: u64, host: u8, ports: std::ops::Range<u16>| {
        let syns: Vec<_> = ports.map(|port| from([10, 0, 0, host], port)).collect();
        let passed = pass_among(std::slice::from_mut(&mut worker), (0, now_ms), 0, &syns);
        assert!(passed.iter().all(|(verdict, _)| *verdict == PASSES), "they pass, some of them unfit");
        passed_without_stream(&engine)
    };
    assert_eq!(passed_at(1, 1, 1000..1005), 2);
    assert_eq!(passed_at(1, 2, 1000..1003), 2, "another host");
    assert_eq!(passed_at(1, 2, 1003..1004), 3);
    // Until then the connections have timed out, and their streams ended with them.
    (2..200).for_each(|step| assert_eq!(passed_at(step * 100, 3, 0..0), 3));
    assert_eq!(passed_at(20_000, 1, 2000..2003), 3);
    assert_eq!(passed_at(20_000, 1, 2003..2004), 4);
}
