//! A table that is full, from outside: who gets through.

use crate::host::{Middlebox, policy};
use mmb_engine::{DropReason, Verdict};
use mmb_packet::PortId;
use mmb_testkit::{Ip4, Tcp, Upper};
use std::net::Ipv4Addr;

const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(200, 0, 0, 1);
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// The two ends of a connection, as they see each other.
type Ends = [(Ipv4Addr, u16); 2];

fn ends(port: u16) -> Ends {
    [(CLIENT, port), (SERVER, 80)]
}

impl Middlebox {
    /// A segment from inside to outside, or the other way. Returns what becomes of it, and the port that it comes from then.
    fn segment(
        &mut self,
        outward: bool,
        [inside, outside]: Ends,
        (flags, seq, ack): (u8, u32, u32),
    ) -> (Verdict, u16) {
        let (from, to) = if outward { (inside, outside) } else { (outside, inside) };
        let segment = Tcp { sport: from.1, dport: to.1, flags, seq, ack, ..Tcp::default() };
        let frame =
            Ip4 { source: from.0, destination: to.0, ..Ip4::new(Upper::Tcp(segment)) }.frame().bytes();
        let (verdict, bytes) = self.pass(u16::from(!outward), &frame);
        (verdict, u16::from_be_bytes([bytes[34], bytes[35]]))
    }

    fn syn(&mut self, port: u16) -> (Verdict, u16) {
        self.segment(true, ends(port), (SYN, 100, 0))
    }

    fn answer(&mut self, ends: Ends) -> Verdict {
        self.segment(false, ends, (SYN | ACK, 500, 101)).0
    }

    /// Both ends open a connection; outside, the inside one is seen as `seen`.
    fn open_as(&mut self, port: u16, seen: Ends) {
        assert!(is_sent(self.syn(port).0));
        assert!(is_sent(self.answer(seen)));
        assert!(is_sent(self.segment(true, ends(port), (ACK, 101, 501)).0));
    }

    /// And close it: TIME-WAIT.
    fn close(&mut self, port: u16, seen: Ends) {
        for (outward, flags, seq, ack) in
            [(true, FIN | ACK, 101, 501), (false, FIN | ACK, 501, 102), (true, ACK, 102, 502)]
        {
            let ends = if outward { ends(port) } else { seen };
            assert!(is_sent(self.segment(outward, ends, (flags, seq, ack)).0));
        }
    }

    fn connections(&self) -> u64 {
        self.engine.connections().summary().connections
    }
}

fn is_sent(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Send(_))
}

/// 100 connections a second, each answered after 40 ms and reset, where all places are taken by what is over.
#[test]
fn closed_connections_in_a_full_table_leave_room_for_new_ones() {
    let mut mmb = Middlebox::new(
        "set conn max 300\nadd-stateful ip-saddr 10.0.0.0/24 ip-proto tcp accept\nadd ip-proto tcp drop",
    );
    for port in 1024..1324 {
        mmb.open_as(port, ends(port));
        if port % 2 == 0 {
            mmb.close(port, ends(port));
        } else {
            assert!(is_sent(mmb.segment(true, ends(port), (RST, 101, 0)).0));
        }
    }
    assert_eq!(mmb.connections(), 300);
    let mut through = 0;
    for tick in 0..504 {
        mmb.now_ms += 10;
        if tick < 500 {
            assert!(is_sent(mmb.syn(2000 + tick).0));
        }
        if tick >= 4 {
            let ends = ends(2000 + tick - 4);
            through += usize::from(is_sent(mmb.answer(ends)));
            mmb.segment(true, ends, (ACK, 101, 501));
            mmb.segment(true, ends, (RST, 101, 0));
        }
    }
    assert_eq!((through, mmb.connections()), (500, 300));
}

/// Its own place is enough for it, and its own translation: there is no other.
#[test]
fn a_closed_connection_is_reopened_where_table_and_pool_are_full() {
    let mut mmb = Middlebox::new(
        "set conn max 2\nadd-stateful in a ip-proto tcp map ip-saddr 200.0.0.1 map tcp-sport 7000-7001",
    );
    let outside = [5000, 5001].map(|port| {
        let (verdict, outside) = mmb.syn(port);
        assert!(is_sent(verdict));
        let seen = [(OUTSIDE, outside), (SERVER, 80)];
        mmb.open_as(port, seen);
        seen
    });
    assert!(matches!(mmb.syn(5002).0, Verdict::Drop(_)), "both are open");
    mmb.close(5000, outside[0]);
    for _ in 0..3 {
        let (verdict, again) = mmb.segment(true, ends(5000), (SYN, 70_000, 0));
        assert_eq!((verdict, again), (Verdict::Send(PortId(1)), outside[0][0].1));
        assert!(is_sent(mmb.segment(false, outside[0], (SYN | ACK, 90_000, 70_001)).0));
        assert!(is_sent(mmb.segment(true, ends(5000), (RST, 70_001, 0)).0));
    }
    assert_eq!(mmb.connections(), 2);
    assert!(is_sent(mmb.segment(false, outside[1], (ACK, 501, 101)).0), "the other one lasts");
}

/// Whatever a policy says, what the host has no memory for is refused.
#[test]
fn a_host_bounds_connections_below_the_policys_limit() {
    let text = "set conn max 100\nadd-stateful ip-proto tcp accept";
    let mut mmb = Middlebox::new(text);
    mmb.engine.bound_connections(2);
    mmb.engine.publish(&policy(text)).expect("it can be put in force");
    (5000..5002).for_each(|port| mmb.open_as(port, ends(port)));
    assert_eq!(mmb.syn(5002).0, Verdict::Drop(DropReason::ConnFull));
    assert_eq!(mmb.connections(), 2);
}
