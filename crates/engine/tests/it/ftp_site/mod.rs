//! A client and a server of FTP on both sides of a middlebox, for tests.

#![allow(dead_code, reason = "each test program uses a part")]

use crate::host::{pass_among, policy};
use mmb_engine::{
    ConnectionInfo, Connections, Engine, ExpectedCounts, Forward, NoCycles, PortSpec, PortTable, SavedState,
    StateWriter, Verdict, Worker,
};
use mmb_packet::PortId;
use mmb_policy::{ConnectionFilter, RuleId};
use mmb_random::SeedTree;
use mmb_testkit::{Ip4, Ip6, Tcp, Upper};
use std::net::{IpAddr, SocketAddr};

pub(crate) const A: u16 = 0;
pub(crate) const B: u16 = 1;
pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const ACK: u8 = 0x10;
/// The first numbers behind the SYNs of a control connection.
const FORWARD: u32 = 101;
const REPLY: u32 = 201;

/// A segment as it leaves the middlebox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    pub(crate) flags: u8,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) payload: Vec<u8>,
}

/// A control connection.
#[derive(Clone, Debug)]
pub(crate) struct Control {
    pub(crate) client: SocketAddr,
    pub(crate) server: SocketAddr,
    /// The client as the server sees it.
    pub(crate) seen: SocketAddr,
    /// Bytes that the client has sent, and that the server has.
    sent: u32,
    got: u32,
}

/// The middlebox.
pub(crate) struct Site {
    pub(crate) engine: Engine,
    pub(crate) workers: Vec<Worker>,
    pub(crate) now_ms: u64,
    /// The worker that packets come to first.
    pub(crate) first: usize,
}

pub(crate) fn end(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

pub(crate) fn frame(
    [source, destination]: [SocketAddr; 2],
    flags: u8,
    (seq, ack): (u32, u32),
    payload: &[u8],
) -> Vec<u8> {
    let payload = payload.to_vec();
    let (sport, dport) = (source.port(), destination.port());
    let segment = Upper::Tcp(Tcp { sport, dport, flags, seq, ack, payload, ..Tcp::default() });
    match (source.ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            Ip4 { source, destination, ..Ip4::new(segment) }.frame().bytes()
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            Ip6 { source, destination, ..Ip6::new(segment) }.frame().bytes()
        }
        _ => panic!("two families"),
    }
}

/// Reads a frame without VLAN tags and extension headers.
pub(crate) fn read(frame: &[u8]) -> Seen {
    let address = |at: usize, len: usize| match len {
        4 => IpAddr::from(<[u8; 4]>::try_from(&frame[at..at + 4]).expect("four bytes")),
        _ => IpAddr::from(<[u8; 16]>::try_from(&frame[at..at + 16]).expect("sixteen bytes")),
    };
    let (addresses, tcp) = match frame[12] {
        0x08 => ([address(26, 4), address(30, 4)], 34),
        _ => ([address(22, 16), address(38, 16)], 54),
    };
    let short = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let long = |at: usize| u32::from(short(at)) << 16 | u32::from(short(at + 2));
    let len = if tcp == 34 { 14 + usize::from(short(16)) } else { 54 + usize::from(short(18)) };
    Seen {
        source: SocketAddr::new(addresses[0], short(tcp)),
        destination: SocketAddr::new(addresses[1], short(tcp + 2)),
        flags: frame[tcp + 13],
        seq: long(tcp + 4),
        ack: long(tcp + 8),
        payload: frame[tcp + usize::from(frame[tcp + 12] >> 4) * 4..len].to_vec(),
    }
}

impl Site {
    pub(crate) fn new(text: &str) -> Site {
        Site::with_workers(text, 1)
    }

    pub(crate) fn with_workers(text: &str, workers: usize) -> Site {
        let spec = |name: &str, peer| PortSpec {
            name: name.into(),
            mtu: None,
            forward: Forward::Wire(PortId(peer)),
        };
        let ports = PortTable(vec![spec("a", 1), spec("b", 0)]);
        let (mut engine, workers) = Engine::new(ports, workers, &SeedTree::repeatable(7));
        engine.publish(&policy(text)).expect("the policy can be put in force");
        Site { engine, workers, now_ms: 1000, first: 0 }
    }

    /// What becomes of frames that come in by a port, and of what is made.
    pub(crate) fn pass(&mut self, port: u16, frames: &[Vec<u8>]) -> Vec<(Verdict, Vec<u8>)> {
        pass_among(&mut self.workers, (self.first, self.now_ms), port, frames)
    }

    /// The segments that leave by a port for frames that come in by the other one.
    pub(crate) fn leaving(&mut self, port: u16, frames: &[Vec<u8>]) -> Vec<Seen> {
        let done = self.pass(1 - port, frames);
        let to = Verdict::Send(PortId(port));
        done.iter().filter(|(verdict, _)| *verdict == to).map(|(_, frame)| read(frame)).collect()
    }

    pub(crate) fn wait(&mut self, ms: u64) {
        self.now_ms += ms;
        for worker in &mut self.workers {
            worker.process(self.now_ms * 1_000_000, &NoCycles, &mut [], &mut []);
        }
    }

    /// A client connects to a server.
    pub(crate) fn connect(&mut self, client: SocketAddr, server: SocketAddr) -> Control {
        let seen = match &self.leaving(B, &[frame([client, server], SYN, (FORWARD - 1, 0), b"")])[..] {
            [Seen { source, .. }] => *source,
            other => panic!("{other:?}"),
        };
        let answered = self.leaving(A, &[frame([server, seen], SYN | ACK, (REPLY - 1, FORWARD), b"")]);
        assert_eq!(answered.len(), 1);
        self.leaving(B, &[frame([client, server], ACK, (FORWARD, REPLY), b"")]);
        Control { client, server, seen, sent: 0, got: 0 }
    }

    /// The client sends bytes in one segment. Returns what the server gets, which acknowledges it.
    pub(crate) fn say(&mut self, control: &mut Control, bytes: &str) -> String {
        self.say_at(control, control.sent, bytes)
    }

    /// The same at an offset of what the client has sent: bytes may be sent again.
    pub(crate) fn say_at(&mut self, control: &mut Control, offset: u32, bytes: &str) -> String {
        let Control { client, server, seen, .. } = *control;
        let segment = frame([client, server], ACK, (FORWARD + offset, REPLY), bytes.as_bytes());
        control.sent = control.sent.max(offset + bytes.len() as u32);
        let got = self.take(control, B, &[segment]);
        if !got.is_empty() {
            self.pass(B, &[frame([server, seen], ACK, (REPLY, FORWARD + control.got), b"")]);
        }
        got
    }

    /// What the server gets that is new, of what leaves for frames that come in, or for nothing.
    fn take(&mut self, control: &mut Control, port: u16, frames: &[Vec<u8>]) -> String {
        let mut got = String::new();
        for Seen { seq, payload, .. } in self.leaving(port, frames) {
            let known = (FORWARD + control.got).checked_sub(seq).expect("no hole") as usize;
            let new = payload.get(known..).unwrap_or_default();
            got.push_str(std::str::from_utf8(new).expect("text"));
            control.got += new.len() as u32;
        }
        got
    }

    /// What the server gets when time has passed.
    pub(crate) fn later(&mut self, control: &mut Control, ms: u64) -> String {
        self.wait(ms);
        self.take(control, B, &[])
    }

    /// The client or the server ends a control connection at once.
    pub(crate) fn reset(&mut self, control: &Control) {
        let Control { client, server, sent, .. } = *control;
        self.pass(A, &[frame([client, server], RST | ACK, (FORWARD + sent, REPLY), b"")]);
        self.wait(1);
    }

    /// The first segment of a connection from outside as it arrives inside, if it does.
    pub(crate) fn dial(&mut self, from: SocketAddr, to: SocketAddr) -> Option<Seen> {
        self.leaving(A, &[frame([from, to], SYN, (7000, 0), b"")]).pop()
    }

    pub(crate) fn ask<R: Send>(&mut self, ask: impl FnOnce(&Connections) -> R + Send) -> R {
        let connections = self.engine.connections();
        let (workers, now_ns) = (&mut self.workers, self.now_ms * 1_000_000);
        std::thread::scope(|scope| {
            let asking = scope.spawn(move || ask(&connections));
            while !asking.is_finished() {
                workers.iter_mut().for_each(|worker| worker.process(now_ns, &NoCycles, &mut [], &mut []));
            }
            asking.join().expect("it does not panic")
        })
    }

    pub(crate) fn list(&mut self) -> Vec<ConnectionInfo> {
        self.ask(|connections| {
            let mut all = Vec::new();
            let listed = connections.list(&ConnectionFilter::ALL, &mut |info| {
                all.push(info);
                true
            });
            listed.map(|()| all).expect("the workers answer")
        })
    }

    /// A state of the connections, and what another middlebox loads of it: connections, and those that it leaves out.
    pub(crate) fn moved(&mut self, policy: &str, workers: usize) -> (Site, u64, usize) {
        let header = self.engine.state_header(1_700_000_000_000);
        let state = self.ask(|connections| {
            let mut state = Vec::new();
            let mut writer = StateWriter::new(&mut state, &header).expect("memory takes it");
            connections.save(&mut writer).expect("the workers answer");
            writer.end(&[]).expect("memory takes it");
            state
        });
        let mut other = Site::with_workers(policy, workers);
        other.now_ms = self.now_ms;
        let state = SavedState::read(&mut &state[..], 1000).expect("it is sound");
        let rules = (1..10).map(|id| (RuleId(id), RuleId(id))).collect();
        let map = other.engine.state_map(&state.header, 1_700_000_000_000, rules);
        let mut left_out = 0;
        let loaded = other.ask(|connections| connections.load(&state, || map, &mut |_| left_out += 1));
        (other, loaded.expect("the workers answer").connections, left_out)
    }

    /// What became of expected connections, over all workers.
    pub(crate) fn expected(&mut self) -> ExpectedCounts {
        let of_workers = self.ask(|connections| connections.stream_summary().expect("the workers answer"));
        of_workers.iter().map(|summary| summary.expected).fold(ExpectedCounts::default(), |sum, of| {
            ExpectedCounts {
                now: sum.now + of.now,
                inserted: sum.inserted + of.inserted,
                used: sum.used + of.used,
                expired: sum.expired + of.expired,
            }
        })
    }
}

/// `PORT` with an end.
pub(crate) fn port_command(end: SocketAddr) -> String {
    let IpAddr::V4(address) = end.ip() else { panic!("of IPv4") };
    let [a, b, c, d] = address.octets();
    let [high, low] = end.port().to_be_bytes();
    format!("PORT {a},{b},{c},{d},{high},{low}\r\n")
}

/// The end that `PORT` names.
pub(crate) fn end_of_port(command: &str) -> SocketAddr {
    let numbers = command.strip_prefix("PORT ").and_then(|rest| rest.strip_suffix("\r\n"));
    let numbers: Vec<u8> = numbers
        .unwrap_or_else(|| panic!("{command:?}"))
        .split(',')
        .map(|n| n.parse().expect("a byte"))
        .collect();
    let address: [u8; 4] = numbers[..4].try_into().expect("six numbers");
    SocketAddr::new(address.into(), u16::from_be_bytes([numbers[4], numbers[5]]))
}
