//! Frames between a host inside and a server outside, for tests of translated connections.

#![allow(dead_code, reason = "each test program uses a part")]

use mmb_testkit::{Ip4, Tcp, Udp, Upper};
use std::net::Ipv4Addr;

pub(crate) const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
pub(crate) const OUTSIDE: Ipv4Addr = Ipv4Addr::new(200, 0, 0, 1);
pub(crate) const A: u16 = 0;
pub(crate) const B: u16 = 1;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const FIN: u8 = 0x01;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const RST: u8 = 0x04;

pub(crate) fn ip4(source: Ipv4Addr, destination: Ipv4Addr, upper: Upper) -> Vec<u8> {
    Ip4 { source, destination, ..Ip4::new(upper) }.frame().bytes()
}

pub(crate) fn tcp(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16), flags: u8) -> Vec<u8> {
    // Numbers of a handshake and what follows it; servers are at ports below 1024.
    let (seq, ack) = match (source.1 < 1024, flags) {
        (true, _) => (200, 101),
        (false, SYN) => (100, 0),
        (false, _) => (101, 201),
    };
    let segment = Tcp { sport: source.1, dport: destination.1, flags, seq, ack, ..Tcp::default() };
    ip4(source.0, destination.0, Upper::Tcp(segment))
}

pub(crate) fn udp(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16)) -> Vec<u8> {
    let datagram =
        Udp { sport: source.1, dport: destination.1, payload: b"hello".to_vec(), ..Udp::default() };
    ip4(source.0, destination.0, Upper::Udp(datagram))
}

/// Source port of a TCP or UDP frame over IPv4 without options.
pub(crate) fn sport(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[34], frame[35]])
}
