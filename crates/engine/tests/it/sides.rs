//! Each direction of a connection belongs to the port that its packets came in by: who is on one side of a wire answers nobody of
//! that side, whatever addresses it writes.

use crate::host::Middlebox;
use mmb_engine::{ConnectionInfo, Forward, NoCycles, PortSpec, PortTable, Verdict};
use mmb_packet::{LinkType, Packet, PortId};
use mmb_testkit::{Icmp, Ip4, Tcp, Udp, Upper};
use std::net::Ipv4Addr;

const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(200, 0, 0, 1);
/// The ports, of the wire and of a host that routes.
const LAN: u16 = 0;
const WAN: u16 = 1;
const BACKUP: u16 = 2;
const THIRD: u16 = 3;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const REFLEXIVE: &str = "add-stateful ip-saddr 10.0.0.0/24 accept\nadd all drop";

impl Middlebox {
    /// Interfaces of a host that routes.
    fn routed(text: &str) -> Middlebox {
        let port = |name: &&str| PortSpec { name: (*name).to_owned(), mtu: None, forward: Forward::Routed };
        let names = ["lan", "wan", "backup", "third"];
        let enabled = names.map(|name| format!("enable {name}\n")).concat();
        Middlebox::between(PortTable(names.iter().map(port).collect()), &format!("{enabled}{text}"))
    }

    fn states(&mut self) -> Vec<&'static str> {
        let mut states: Vec<_> = self.list().iter().map(|info| info.state).collect();
        states.sort_unstable();
        states
    }
}

fn ip4(source: Ipv4Addr, destination: Ipv4Addr, upper: Upper) -> Vec<u8> {
    Ip4 { source, destination, ..Ip4::new(upper) }.frame().bytes()
}

fn udp(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16)) -> Vec<u8> {
    let upper = Udp { sport: source.1, dport: destination.1, payload: b"hello".to_vec(), ..Udp::default() };
    ip4(source.0, destination.0, Upper::Udp(upper))
}

/// SYN, SYN-ACK and ACK between the inside host and the server.
fn handshake() -> [Vec<u8>; 3] {
    let [client, server] = [(INSIDE, 5000), (SERVER, 80)];
    let segment = |from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), flags, seq, ack| {
        let upper = Tcp { sport: from.1, dport: to.1, flags, seq, ack, ..Tcp::default() };
        ip4(from.0, to.0, Upper::Tcp(upper))
    };
    [
        segment(client, server, SYN, 100, 0),
        segment(server, client, SYN | ACK, 200, 101),
        segment(client, server, ACK, 101, 201),
    ]
}

const QUERY: ((Ipv4Addr, u16), (Ipv4Addr, u16)) = ((INSIDE, 5000), (SERVER, 53));

fn query() -> Vec<u8> {
    udp(QUERY.0, QUERY.1)
}

fn response() -> Vec<u8> {
    udp(QUERY.1, QUERY.0)
}

#[test]
fn an_inside_host_does_not_answer_itself_in_tcp() {
    for mut site in [Middlebox::new(REFLEXIVE), Middlebox::routed(REFLEXIVE)] {
        let [syn, answer, ack] = handshake();
        assert!(site.passes(LAN, &syn));
        assert!(!site.passes(LAN, &answer), "it is not the reply");
        site.passes(LAN, &ack);
        assert!(site.states().iter().all(|state| *state != "established"), "{:?}", site.states());
        assert_eq!(site.list()[0].packets[1], 0);
        // The server itself is answered to as ever.
        assert!(site.passes(WAN, &answer) && site.passes(LAN, &ack));
        assert_eq!(site.states(), ["established"]);
    }
}

#[test]
fn an_inside_host_does_not_answer_itself_in_udp_or_icmp() {
    let echo = |from, to, icmp_type| {
        ip4(from, to, Upper::Icmp(Icmp { icmp_type, rest: [0, 7, 0, 1], ..Icmp::default() }))
    };
    for mut site in [Middlebox::new(REFLEXIVE), Middlebox::routed(REFLEXIVE)] {
        let pairs = [(query(), response()), (echo(INSIDE, SERVER, 8), echo(SERVER, INSIDE, 0))];
        for (ask, answer) in pairs {
            assert!(site.passes(LAN, &ask) && !site.passes(LAN, &answer));
            assert!(site.states().contains(&"unreplied"), "{:?}", site.states());
            assert!(site.passes(WAN, &answer));
        }
        assert_eq!(site.states(), ["replied", "replied"]);
    }
}

/// The outside end lets in anybody from outside; who is inside and has none himself would leave by the other port.
#[test]
fn inside_hosts_without_an_outside_end_are_led_to_none() {
    let mut site = Middlebox::new(
        "set nat filtering endpoint-independent\n\
         add-stateful in a ip-saddr 10.0.0.0/24 udp-dport 53 map ip-saddr 200.0.0.1",
    );
    let sent = site.through(LAN, &query());
    let outside = (OUTSIDE, u16::from_be_bytes([sent[34], sent[35]]));
    for host in [INSIDE, Ipv4Addr::new(10, 0, 0, 7)] {
        let frame = udp((host, 6000), outside);
        assert_eq!(site.through(LAN, &frame), frame, "it goes on to the router");
    }
    let stranger = (Ipv4Addr::new(198, 51, 100, 1), 6000);
    assert_eq!(site.through(WAN, &udp(stranger, outside)), udp(stranger, QUERY.0));
}

#[test]
fn what_an_end_sends_does_not_come_in_where_the_other_one_is() {
    for mut site in [Middlebox::new(REFLEXIVE), Middlebox::routed(REFLEXIVE)] {
        assert!(site.passes(LAN, &query()) && site.passes(WAN, &response()));
        // Behind the other port, somebody writes the inside host's address.
        site.pass(WAN, &query());
        let counted: Vec<[u64; 2]> = site.list().iter().map(|info| info.packets).collect();
        assert!(counted.contains(&[1, 1]) && !counted.contains(&[2, 1]), "{counted:?}");
    }
}

#[test]
fn a_packet_from_the_wrong_side_of_a_wire_may_begin_a_connection_of_its_own() {
    let mut site = Middlebox::new("add-stateful ip-proto udp accept\nadd all drop");
    assert!(site.passes(LAN, &query()) && site.passes(LAN, &response()));
    assert_eq!(site.states(), ["unreplied", "unreplied"]);
    assert!(site.passes(WAN, &response()), "the first one is answered");
    assert_eq!(site.states(), ["replied", "unreplied"]);
}

#[test]
fn fragments_and_errors_from_the_wrong_side_are_of_no_connection() {
    let piece = |from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), first: bool| {
        let datagram = [&from.1.to_be_bytes()[..], &to.1.to_be_bytes(), &[0, 24, 0, 0], &[7; 16]].concat();
        let bytes = if first { &datagram[..16] } else { &datagram[16..] };
        let (frag_offset, flags) = if first { (0, 1) } else { (2, 0) };
        let upper = Upper::Raw(17, bytes.to_vec());
        let ip = Ip4 { source: from.0, destination: to.0, id: 9, frag_offset, flags, ..Ip4::new(upper) };
        ip.frame().bytes()
    };
    let error = {
        let quoted = query()[14..].to_vec();
        ip4(
            SERVER,
            INSIDE,
            Upper::Icmp(Icmp { icmp_type: 3, rest: [0; 4], payload: quoted, ..Icmp::default() }),
        )
    };
    for mut site in [Middlebox::new(REFLEXIVE), Middlebox::routed(REFLEXIVE)] {
        assert!(site.passes(LAN, &query()));
        assert!(!site.passes(LAN, &error));
        assert!(site.passes(WAN, &error));
        let [first, later] = [true, false].map(|first| piece(QUERY.1, QUERY.0, first));
        assert!(!site.passes(LAN, &first) && !site.passes(LAN, &later));
        assert_eq!(site.states(), ["unreplied"]);
    }
    let mut site = Middlebox::new(REFLEXIVE);
    assert!(site.passes(LAN, &query()));
    let [first, later] = [true, false].map(|first| piece(QUERY.1, QUERY.0, first));
    assert!(site.passes(WAN, &first) && site.passes(WAN, &later));
    assert_eq!(site.list()[0].packets, [1, 2]);
}

#[test]
fn a_translated_reply_comes_in_by_the_other_port() {
    let nat = "add-stateful in a ip-saddr 10.0.0.0/24 ip-proto udp map ip-saddr 200.0.0.1";
    let mut site = Middlebox::new(nat);
    let (_, sent) = site.pass(LAN, &query());
    assert_eq!(sent[26..30], OUTSIDE.octets());
    let reply = udp(QUERY.1, (OUTSIDE, 5000));
    site.pass(LAN, &reply);
    let of_query = |info: &&ConnectionInfo| info.arrived.src == INSIDE;
    assert_eq!(site.list().iter().find(of_query).expect("it is there").packets, [1, 0]);
    assert_eq!(site.pass(WAN, &reply).1, response());
    assert_eq!(site.list().iter().find(of_query).expect("it is there").packets, [1, 1]);
}

#[test]
fn a_host_that_routes_lets_each_direction_move_once() {
    let mut site = Middlebox::routed(REFLEXIVE);
    let [syn, answer, ack] = handshake();
    assert!(site.passes(LAN, &syn) && site.passes(WAN, &answer) && site.passes(LAN, &ack));
    assert!(site.passes(BACKUP, &answer), "routes changed");
    assert!(site.passes(WAN, &answer), "and changed back");
    assert!(!site.passes(THIRD, &answer), "a third port");
    assert!(!site.passes(LAN, &answer), "never the port of the other end");
    assert!(!site.passes(BACKUP, &ack));
    assert!(site.passes(THIRD, &ack), "the other direction moves by itself");
    assert!(!site.passes(THIRD, &answer));
}

/// Both are admitted when the vector is looked up: there is room for one more port.
#[test]
fn two_new_ports_in_one_vector_are_one_move_and_one_invalid_packet() {
    let mut site = Middlebox::routed(REFLEXIVE);
    let [syn, answer, ack] = handshake();
    assert!(site.passes(LAN, &syn) && site.passes(WAN, &answer) && site.passes(LAN, &ack));
    let mut frames = [BACKUP, THIRD].map(|port| (port, [&[0; 64][..], &answer].concat()));
    let mut packets: Vec<_> = frames
        .iter_mut()
        .map(|(port, frame)| {
            Packet::new(frame, 64, answer.len(), PortId(*port), LinkType::Ethernet).expect("it fits")
        })
        .collect();
    let mut verdicts = [Verdict::Send(PortId(9)); 2];
    site.worker.process(site.now_ms * 1_000_000, &NoCycles, &mut packets, &mut verdicts);
    assert!(matches!(verdicts, [Verdict::Send(_), Verdict::Drop(_)]), "{verdicts:?}");
    assert!(site.passes(BACKUP, &answer) && !site.passes(THIRD, &answer));
}

/// A segment out of the window came in by a third port while there was room for one, and left a plan for it: what came there once that
/// room was gone met no rule at all.
#[test]
fn an_invalid_packet_caches_no_verdict_for_its_port() {
    let mut site = Middlebox::routed("add-stateful ip-saddr 10.0.0.0/24 ip-proto tcp accept\nadd all drop");
    let [syn, answer, ack] = handshake();
    assert!(site.passes(LAN, &syn) && site.passes(WAN, &answer) && site.passes(LAN, &ack));
    let upper = Tcp { sport: 80, dport: 5000, flags: ACK, seq: 0x7000_0000, ack: 101, ..Tcp::default() };
    let stray = ip4(SERVER, INSIDE, Upper::Tcp(upper));
    assert!(site.passes(THIRD, &stray), "the ends know better");
    assert!(site.passes(
        BACKUP,
        &ip4(
            SERVER,
            INSIDE,
            Upper::Tcp(Tcp { sport: 80, dport: 5000, flags: ACK, seq: 201, ack: 101, ..Tcp::default() })
        )
    ));
    assert!(!site.passes(THIRD, &stray), "a third port");
}

#[test]
fn an_invalid_packet_moves_no_side() {
    let mut site = Middlebox::routed(REFLEXIVE);
    let [syn, answer, ack] = handshake();
    assert!(site.passes(LAN, &syn) && site.passes(WAN, &answer) && site.passes(LAN, &ack));
    let upper = Tcp { sport: 80, dport: 5000, flags: ACK, seq: 0x7000_0000, ack: 101, ..Tcp::default() };
    site.pass(THIRD, &ip4(SERVER, INSIDE, Upper::Tcp(upper)));
    assert!(site.passes(BACKUP, &answer), "the room for a move is there still");
}

#[test]
fn sides_do_not_count_with_conn_same_port() {
    let policy = format!("set conn same-port on\n{REFLEXIVE}");
    for mut site in [Middlebox::new(&policy), Middlebox::routed(&policy)] {
        assert!(site.passes(LAN, &query()) && site.passes(LAN, &response()));
        assert_eq!(site.states(), ["replied"]);
        let [syn, answer, ack] = handshake();
        assert!(site.passes(LAN, &syn) && site.passes(LAN, &answer) && site.passes(LAN, &ack));
    }
}

#[test]
fn hosts_behind_one_port_of_a_router_answer_each_other_by_their_outside_addresses() {
    let mut site = Middlebox::routed("add-stateful in lan ip-proto udp map ip-saddr 200.0.0.1");
    let other = (Ipv4Addr::new(10, 0, 0, 2), 6000);
    site.pass(LAN, &query());
    let (_, turned) = site.pass(LAN, &udp(other, (OUTSIDE, 5000)));
    assert_eq!(turned[30..34], INSIDE.octets());
    let (_, answered) = site.pass(LAN, &udp((INSIDE, 5000), (OUTSIDE, 6000)));
    assert_eq!((&answered[26..30], &answered[30..34]), (&OUTSIDE.octets()[..], &other.0.octets()[..]));
}
