//! A connection of HTTP through a middlebox, for tests: its ends acknowledge all that they get.

#![allow(dead_code, reason = "each test program uses a part")]

use crate::host::{Middlebox, pass_among};
use mmb_engine::{NoCycles, Verdict};
use mmb_packet::PortId;
use mmb_testkit::{Ip4, Tcp, Upper};
use std::net::Ipv4Addr;

const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(192, 0, 2, 80)];
/// Bytes of a segment: the port has an MTU of 100.
pub(crate) const SIZE: usize = 50;
pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;

/// A connection whose ends acknowledge all that they get.
pub(crate) struct Site {
    pub(crate) mmb: Middlebox,
    ports: [u16; 2],
    /// The next number that each end sends, and what it has got of the other one.
    pub(crate) next: [u32; 2],
    pub(crate) got: [Vec<u8>; 2],
    first: [u32; 2],
    pub(crate) resets: usize,
    pub(crate) last: Option<Verdict>,
}

impl Site {
    pub(crate) fn new(policy: &str) -> Site {
        let mmb = Middlebox::new(policy);
        let mut site = Site {
            mmb,
            ports: [5000, 80],
            next: [100, 200],
            got: [Vec::new(), Vec::new()],
            first: [101, 201],
            resets: 0,
            last: None,
        };
        site.connect();
        site
    }

    /// The ends connect.
    pub(crate) fn connect(&mut self) {
        self.segment(0, SYN, b"");
        self.next[0] += 1;
        self.segment(1, SYN | ACK, b"");
        self.next[1] += 1;
        self.segment(0, ACK, b"");
    }

    /// Goes on with another connection, from this port of the client.
    pub(crate) fn begin_from(&mut self, port: u16) {
        self.got.iter_mut().for_each(Vec::clear);
        (self.ports, self.next, self.first) = ([port, 80], [100, 200], [101, 201]);
        self.connect();
    }

    /// Another connection of the client, from this port, sends a request; then goes on with the one before.
    pub(crate) fn ask_beside(&mut self, port: u16) {
        let before = (self.ports, self.next, self.first, std::mem::take(&mut self.got));
        (self.ports, self.next, self.first) = ([port, 80], [100, 200], [101, 201]);
        self.connect();
        self.send(0, REQUEST, SIZE);
        assert!(self.got[1].starts_with(b"GET"));
        (self.ports, self.next, self.first, self.got) = before;
    }

    /// Puts a policy in force.
    pub(crate) fn publish(&mut self, text: &str) {
        self.mmb.engine.publish(&crate::host::policy(text)).expect("a policy");
    }

    pub(crate) fn segment(&mut self, end: usize, flags: u8, payload: &[u8]) {
        let [source, destination] = [end, 1 - end].map(|end| ADDRESSES[end]);
        let ack = self.first[1 - end].wrapping_add(self.got[end].len() as u32);
        let tcp = Tcp {
            sport: self.ports[end],
            dport: self.ports[1 - end],
            flags,
            seq: self.next[end],
            ack: if flags & ACK == 0 { 0 } else { ack },
            payload: payload.to_vec(),
            ..Tcp::default()
        };
        let frame = Ip4 { source, destination, ..Ip4::new(Upper::Tcp(tcp)) }.frame();
        let worker = std::slice::from_mut(&mut self.mmb.worker);
        let done = pass_among(worker, (0, self.mmb.now_ms), end as u16, &[frame.bytes()]);
        self.last = done.first().map(|(verdict, _)| *verdict);
        self.next[end] = self.next[end].wrapping_add(payload.len() as u32);
        self.take(&done);
    }

    /// Delivers what the middlebox has sent, in order.
    fn take(&mut self, done: &[(Verdict, Vec<u8>)]) {
        for (verdict, frame) in done {
            let Verdict::Send(PortId(port)) = verdict else { continue };
            let end = usize::from(*port);
            let long =
                |at: usize| u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
            self.resets += usize::from(frame[47] & RST != 0);
            let total = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
            let payload = &frame[34 + usize::from(frame[46] >> 4) * 4..total];
            let offset = long(38).wrapping_sub(self.first[1 - end]) as usize;
            if !payload.is_empty() && offset <= self.got[end].len() {
                let new = self.got[end].len() - offset;
                self.got[end].extend_from_slice(payload.get(new..).unwrap_or_default());
            }
        }
    }

    /// An end sends bytes, in segments of this size; the other one acknowledges each.
    pub(crate) fn send(&mut self, end: usize, bytes: &str, size: usize) {
        for piece in bytes.as_bytes().chunks(size) {
            self.segment(end, ACK, piece);
            self.segment(1 - end, ACK, b"");
        }
    }

    pub(crate) fn later(&mut self, ms: u64) {
        self.mmb.now_ms += ms;
        self.mmb.worker.process(self.mmb.now_ms * 1_000_000, &NoCycles, &mut [], &mut []);
        let worker = std::slice::from_mut(&mut self.mmb.worker);
        let done = pass_among(worker, (0, self.mmb.now_ms), 0, &[]);
        self.take(&done);
    }

    /// When the middlebox is to be called next.
    pub(crate) fn due_ms(&mut self) -> Option<u64> {
        self.mmb.worker.due_ns().map(|due_ns| due_ns / 1_000_000)
    }

    /// What an end has got since the last call.
    pub(crate) fn text(&mut self, end: usize) -> String {
        String::from_utf8_lossy(&self.got[end]).into_owned()
    }
}

pub(crate) const REQUEST: &str =
    "GET /page HTTP/1.1\r\nHost: www.example.org\r\nAccept-Encoding: gzip\r\nCookie: a=b\r\n\r\n";
pub(crate) const RESPONSE: &str =
    "HTTP/1.1 200 OK\r\nServer: nginx\r\nContent-Length: 20\r\n\r\n<body>hello </body>\n";
