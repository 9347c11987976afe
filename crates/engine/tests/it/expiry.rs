//! Connections that end at once are gone soon, however seldom a host calls.

use crate::host::engine;
use mmb_engine::{NoCycles, Verdict, Worker};
use mmb_packet::{LinkType, Packet, PortId};
use mmb_testkit::{Ip4, Udp, Upper};
use std::net::Ipv4Addr;

/// A twentieth of a million: the million has five seconds.
const MANY: u32 = 50_000;
const WITHIN_MS: u64 = 250;

/// Timeouts in milliseconds, from the policy here.
const UNREPLIED_MS: u64 = 10_000;

fn make(worker: &mut Worker, many: u32) {
    let mut buffer = Vec::new();
    for number in 0..many {
        let datagram = Udp { sport: number as u16, dport: 53, ..Udp::default() };
        let source = Ipv4Addr::from(0x0a00_0000 + (number >> 16));
        let destination = Ipv4Addr::new(192, 0, 2, 1);
        buffer.clear();
        buffer.extend(Ip4 { source, destination, ..Ip4::new(Upper::Udp(datagram)) }.frame().bytes());
        let len = buffer.len();
        let packet = Packet::new(&mut buffer, 0, len, PortId(0), LinkType::Ethernet).expect("a frame");
        let mut verdicts = [Verdict::Send(PortId(u16::MAX))];
        worker.process(0, &NoCycles, &mut [packet], &mut verdicts);
        assert_eq!(verdicts, [Verdict::Send(PortId(1))]);
    }
}

const POLICY: &str = "set timeout udp-unreplied 10\nadd-stateful ip-proto udp accept";

/// `mmb run` sleeps 20 ms where nothing comes, VPP calls every 50 ms.
#[test]
fn a_host_that_only_ticks_is_rid_of_a_million_within_five_seconds() {
    for tick_ms in [20, 50] {
        let (engine, mut worker) = engine(POLICY);
        make(&mut worker, MANY);
        let connections = || engine.connections().summary().connections;
        assert_eq!(connections(), u64::from(MANY));
        let mut now_ms = 0;
        while now_ms < UNREPLIED_MS + WITHIN_MS {
            now_ms += tick_ms;
            worker.process(now_ms * 1_000_000, &NoCycles, &mut [], &mut []);
            assert!(now_ms >= UNREPLIED_MS || connections() == u64::from(MANY), "ended early");
        }
        assert_eq!(connections(), 0, "ticks of {tick_ms} ms");
    }
}

/// A host that would sleep asks first whether there is more to do.
#[test]
fn a_worker_is_behind_while_more_connections_expire() {
    let (engine, mut worker) = engine(POLICY);
    make(&mut worker, 20_000);
    worker.process(UNREPLIED_MS * 1_000_000 - 1_000_000, &NoCycles, &mut [], &mut []);
    assert!(!worker.is_behind());
    let mut calls = 0;
    loop {
        let before = engine.connections().summary().connections;
        worker.process(UNREPLIED_MS * 1_000_000, &NoCycles, &mut [], &mut []);
        let ended = before - engine.connections().summary().connections;
        assert!(ended <= 1000, "{ended} ended in one call right behind another");
        calls += 1;
        if !worker.is_behind() {
            break;
        }
    }
    assert_eq!(engine.connections().summary().connections, 0, "after {calls} calls");
    assert!(calls > 10);
}
