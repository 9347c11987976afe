//! Packets of one connection, each by its direction, and what a middlebox knows of it, for tests.

#![allow(dead_code, reason = "each test program uses a part")]

use crate::host::Middlebox;
use mmb_engine::{NoCycles, Verdict};
use mmb_packet::{LinkType, Packet, PortId};
use mmb_testkit::{Icmp, Ip4, Ip6, Tcp, Udp, Upper};
use std::net::{Ipv4Addr, Ipv6Addr};

pub(crate) const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
pub(crate) const A: u16 = 0;
pub(crate) const B: u16 = 1;
pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;

/// What lets the inside begin connections, and nobody else.
pub(crate) const REFLEXIVE: &str = "add-stateful in a accept\nadd in b drop";

impl Middlebox {
    /// Takes frames through in one vector, each by its port.
    pub(crate) fn pass_all(&mut self, ports: &[u16], frames: &mut [Vec<u8>]) -> Vec<Verdict> {
        let link = LinkType::Ethernet;
        let packets = frames.iter_mut().zip(ports).map(|(frame, port)| {
            let len = frame.len();
            Packet::new(frame, 0, len, PortId(*port), link).expect("it fits")
        });
        let mut packets: Vec<Packet<'_>> = packets.collect();
        let mut verdicts = vec![Verdict::Send(PortId(u16::MAX)); packets.len()];
        self.worker.process(self.now_ms * 1_000_000, &NoCycles, &mut packets, &mut verdicts);
        verdicts
    }

    pub(crate) fn state(&mut self) -> &'static str {
        let list = self.list();
        assert_eq!(list.len(), 1, "one connection");
        list[0].state
    }

    pub(crate) fn invalid(&self) -> Vec<(&'static str, u64)> {
        self.engine.connections().summary().invalid
    }

    /// Opens a TCP connection from inside to the server.
    pub(crate) fn open(&mut self) {
        assert!(self.passes(A, &segment(true, SYN, 100, 0)));
        assert!(self.passes(B, &segment(false, SYN | ACK, 500, 101)));
        assert!(self.passes(A, &segment(true, ACK, 101, 501)));
        assert_eq!(self.state(), "established");
    }
}

pub(crate) fn tcp(forward: bool, flags: u8, seq: u32, ack: u32, payload: usize) -> Upper {
    let (sport, dport) = if forward { (5000, 80) } else { (80, 5000) };
    let payload = vec![9; payload];
    Upper::Tcp(Tcp { sport, dport, flags, seq, ack, window: 1000, payload, ..Tcp::default() })
}

pub(crate) fn ip4(forward: bool, upper: Upper) -> Vec<u8> {
    let (source, destination) = if forward { (INSIDE, SERVER) } else { (SERVER, INSIDE) };
    Ip4 { source, destination, ..Ip4::new(upper) }.frame().bytes()
}

pub(crate) fn ip6(forward: bool, upper: Upper) -> Vec<u8> {
    let ends = [1, 2].map(|n| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n));
    let (source, destination) = if forward { (ends[0], ends[1]) } else { (ends[1], ends[0]) };
    Ip6 { source, destination, ..Ip6::new(upper) }.frame().bytes()
}

pub(crate) fn segment(forward: bool, flags: u8, seq: u32, ack: u32) -> Vec<u8> {
    ip4(forward, tcp(forward, flags, seq, ack, 0))
}

pub(crate) fn udp(forward: bool) -> Upper {
    let (sport, dport) = if forward { (5000, 53) } else { (53, 5000) };
    Upper::Udp(Udp { sport, dport, payload: vec![1; 24], ..Udp::default() })
}

pub(crate) fn echo(icmp_type: u8) -> Upper {
    Upper::Icmp(Icmp { icmp_type, rest: [0, 7, 0, 1], payload: vec![1; 8], ..Icmp::default() })
}

/// The frame with its last byte changed: the transport checksum is wrong.
pub(crate) fn corrupted(mut frame: Vec<u8>) -> Vec<u8> {
    *frame.last_mut().expect("it has bytes") ^= 1;
    frame
}
