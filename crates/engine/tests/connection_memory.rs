//! What a connection takes: what is promised as its most holds, with all that can hang on it.

mod counting;
#[path = "it/host/mod.rs"]
mod host;

use counting::{LIVE, PEAK};
use host::{policy, ports};
use mmb_engine::{CONNECTION_BYTES, Engine, NoCycles, Origin, Verdict, Worker};
use mmb_packet::{LinkType, Packet, PortId};
use mmb_random::SeedTree;
use mmb_testkit::{Ip4, Ip6, Udp, Upper};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering::Relaxed;

/// From so many connections on what tables take in any case is little beside them.
const MEASURED_FROM: usize = 56_000;
/// Tables that double do so at 57,344.
const MANY: usize = if cfg!(debug_assertions) { 58_000 } else { 1_500_000 };
/// So many make all workers take what they take for any.
const FIRST: usize = 64;

/// The first packet of a connection by its number.
type First = fn(u32) -> Vec<u8>;

fn ip4(number: u32) -> Vec<u8> {
    let upper = Upper::Udp(Udp { sport: 5000, dport: 53, ..Udp::default() });
    let source = Ipv4Addr::from(0x0a00_0000 + number);
    Ip4 { source, destination: Ipv4Addr::new(192, 0, 2, 1), ..Ip4::new(upper) }.frame().bytes()
}

/// Each of a network of its own.
fn ip6(number: u32) -> Vec<u8> {
    let upper = Upper::Udp(Udp { sport: 5000, dport: 53, ..Udp::default() });
    let [high, low] = [(number >> 16) as u16, number as u16];
    let source = Ipv6Addr::new(0xfd00, 0, high, low, 0, 0, 0, 1);
    let destination = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    Ip6 { source, destination, ..Ip6::new(upper) }.frame().bytes()
}

fn begins(workers: &mut [Worker], frame: &mut [u8]) -> bool {
    let len = frame.len();
    let mut packets = [Packet::new(frame, 0, len, PortId(0), LinkType::Ethernet).expect("a frame")];
    let mut verdicts = [Verdict::Send(PortId(0))];
    workers[0].process(1_000_000_000, &NoCycles, &mut packets, &mut verdicts);
    if let Verdict::Hand(to) = verdicts[0] {
        workers[usize::from(to)].process_from(
            Origin::Worker,
            1_000_000_000,
            &NoCycles,
            &mut packets,
            &mut verdicts,
        );
    }
    verdicts[0] == Verdict::Send(PortId(1))
}

/// The most bytes that a connection has taken at any time, under rules and with so many workers.
fn peak_per_connection(text: &str, workers: usize, frame: First) -> usize {
    let (mut engine, mut workers) = Engine::new(ports(), workers, &SeedTree::repeatable(1));
    let text = format!("set conn max 100000000\nset conn per-source 9\n{text}");
    engine.publish(&policy(&text)).expect("it can be put in force");
    assert!((0..FIRST).all(|number| begins(&mut workers, &mut frame(number as u32))));
    let before = LIVE.load(Relaxed);
    PEAK.store(before, Relaxed);
    let mut peak = 0;
    for number in 1..=MANY {
        assert!(begins(&mut workers, &mut frame((FIRST + number) as u32)), "{number}");
        if number >= MEASURED_FROM {
            peak = peak.max((PEAK.load(Relaxed) - before).div_ceil(number));
        }
    }
    peak
}

#[test]
fn a_connection_takes_no_more_than_documented() {
    let nat = "add-stateful in a map ip-saddr 200.0.0.0/24 shuffle ip-id";
    let nat6 = "add-stateful in a map ip6-saddr 2001:db8:1::-2001:db8:1::ff shuffle ip6-flow-label";
    // Each connection has an outside address of its own; with a server that is counted, or so few ports that addresses run out of them.
    let balanced = "set nat filtering address-dependent\nadd-stateful in a map ip6-saddr 2001:db8:1::/64 \
        lb ip6-daddr {2001:db8:2::1, 2001:db8:2::2} least shuffle ip6-flow-label";
    let few_ports = "set nat filtering address-dependent\nadd-stateful in a map ip6-saddr 2001:db8:1::/111 \
        map udp-sport 5000-5001 shuffle ip6-flow-label";
    let cases: [(&str, &str, First); 5] = [
        ("plain", "add-stateful in a accept", ip4),
        ("NAT", nat, ip4),
        ("NAT of IPv6", nat6, ip6),
        ("NAT of IPv6 and balancing", balanced, ip6),
        ("NAT of IPv6 with two ports", few_ports, ip6),
    ];
    // With two workers a connection takes more on the whole, and there is no time for both without optimization.
    let workers: &[usize] = if cfg!(debug_assertions) { &[2] } else { &[1, 2] };
    let measured = cases.map(|(name, text, frame)| {
        (name, workers.iter().map(|workers| peak_per_connection(text, *workers, frame)).max())
    });
    let promised = CONNECTION_BYTES as usize;
    assert!(measured.iter().all(|(_, peak)| peak.is_some_and(|peak| peak <= promised)), "{measured:?}");
    println!("{measured:?}");
}
