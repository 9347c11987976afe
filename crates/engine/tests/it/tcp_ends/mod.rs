//! Two ends of TCP, a client and a server, and the frames between them, for tests.

#![allow(dead_code, reason = "each test program uses a part")]

use crate::host::{Middlebox, pass_among};
use mmb_engine::Verdict;
use mmb_packet::PortId;
use mmb_testkit::{Ip4, Tcp, Upper};
use std::net::Ipv4Addr;

pub(crate) type End = (Ipv4Addr, u16);

pub(crate) const CLIENT: End = (Ipv4Addr::new(10, 0, 0, 1), 5000);
pub(crate) const SERVER: End = (Ipv4Addr::new(192, 0, 2, 80), 80);
/// The middlebox's ports on the sides of the client and of the server.
pub(crate) const A: u16 = 0;
pub(crate) const B: u16 = 1;
pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;
/// The first number behind each end's SYN.
pub(crate) const FORWARD: u32 = 101;
pub(crate) const REPLY: u32 = 201;

pub(crate) fn segment(
    source: End,
    destination: End,
    flags: u8,
    (seq, ack): (u32, u32),
    payload: &[u8],
) -> Vec<u8> {
    let payload = payload.to_vec();
    let segment = Tcp { sport: source.1, dport: destination.1, flags, seq, ack, payload, ..Tcp::default() };
    Ip4 { source: source.0, destination: destination.0, ..Ip4::new(Upper::Tcp(segment)) }.frame().bytes()
}

/// The client's bytes from an offset on.
pub(crate) fn request(offset: u32, payload: &[u8]) -> Vec<u8> {
    segment(CLIENT, SERVER, ACK, (FORWARD + offset, REPLY), payload)
}

/// What becomes of the frames of a vector, and of what the middlebox makes of them.
pub(crate) fn all(mmb: &mut Middlebox, port: u16, frames: &[Vec<u8>]) -> Vec<(Verdict, Vec<u8>)> {
    pass_among(std::slice::from_mut(&mut mmb.worker), (0, mmb.now_ms), port, frames)
}

/// The same for one frame.
pub(crate) fn one(mmb: &mut Middlebox, port: u16, frame: Vec<u8>) -> Vec<(Verdict, Vec<u8>)> {
    all(mmb, port, &[frame])
}

/// The ends connect; these are the first numbers behind their SYNs.
pub(crate) fn connect(mmb: &mut Middlebox, [ours, theirs]: [u32; 2]) {
    one(mmb, A, segment(CLIENT, SERVER, SYN, (ours.wrapping_sub(1), 0), b""));
    one(mmb, B, segment(SERVER, CLIENT, SYN | ACK, (theirs.wrapping_sub(1), ours), b""));
    one(mmb, A, segment(CLIENT, SERVER, ACK, (ours, theirs), b""));
}

/// Those that are sent by a port, in order.
pub(crate) fn sent(done: &[(Verdict, Vec<u8>)], port: u16) -> Vec<Read> {
    let to = Verdict::Send(PortId(port));
    done.iter().filter(|(verdict, _)| *verdict == to).map(|(_, frame)| read(frame)).collect()
}

/// The fields of a TCP frame over IPv4.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) flags: u8,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) payload: Vec<u8>,
}

fn sum(bytes: &[u8]) -> u32 {
    let pair = |pair: &[u8]| u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    let mut sum: u32 = bytes.chunks(2).map(pair).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Reads a frame whose checksums are right.
pub(crate) fn read(frame: &[u8]) -> Read {
    let long = |at: usize| u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    let end = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let tcp = &frame[34..end];
    assert_eq!(sum(&frame[14..34]), 0xffff, "the checksum of the IP header");
    let pseudo = [&frame[26..34], &[0, 6], &(tcp.len() as u16).to_be_bytes(), tcp].concat();
    assert_eq!(sum(&pseudo), 0xffff, "the checksum of TCP");
    let header = usize::from(tcp[12] >> 4) * 4;
    Read { flags: frame[47], seq: long(38), ack: long(42), payload: tcp[header..].to_vec() }
}
