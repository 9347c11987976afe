//! Packets that connections do not believe: what they change, what becomes of them. Expectations are Linux's conntrack's, but for
//! what is said otherwise.

mod host;

use host::{Middlebox, policy};
use mmb_engine::{DropReason, NoCycles, Verdict};
use mmb_packet::{LinkType, Packet, PortId};
use mmb_testkit::{Icmp, Ip4, Ip6, Tcp, Udp, Upper};
use std::net::{Ipv4Addr, Ipv6Addr};

const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
const A: u16 = 0;
const B: u16 = 1;
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// What lets the inside begin connections, and nobody else.
const REFLEXIVE: &str = "add-stateful in a accept\nadd in b drop";

impl Middlebox {
    /// Takes frames through in one vector, each by its port.
    fn pass_all(&mut self, ports: &[u16], frames: &mut [Vec<u8>]) -> Vec<Verdict> {
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

    fn state(&mut self) -> &'static str {
        let list = self.list();
        assert_eq!(list.len(), 1, "one connection");
        list[0].state
    }

    fn invalid(&self) -> Vec<(&'static str, u64)> {
        self.engine.connections().summary().invalid
    }

    /// Opens a TCP connection from inside to the server.
    fn open(&mut self) {
        assert!(self.passes(A, &segment(true, SYN, 100, 0)));
        assert!(self.passes(B, &segment(false, SYN | ACK, 500, 101)));
        assert!(self.passes(A, &segment(true, ACK, 101, 501)));
        assert_eq!(self.state(), "established");
    }
}

fn tcp(forward: bool, flags: u8, seq: u32, ack: u32, payload: usize) -> Upper {
    let (sport, dport) = if forward { (5000, 80) } else { (80, 5000) };
    let payload = vec![9; payload];
    Upper::Tcp(Tcp { sport, dport, flags, seq, ack, window: 1000, payload, ..Tcp::default() })
}

fn ip4(forward: bool, upper: Upper) -> Vec<u8> {
    let (source, destination) = if forward { (INSIDE, SERVER) } else { (SERVER, INSIDE) };
    Ip4 { source, destination, ..Ip4::new(upper) }.frame().bytes()
}

fn ip6(forward: bool, upper: Upper) -> Vec<u8> {
    let ends = [1, 2].map(|n| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n));
    let (source, destination) = if forward { (ends[0], ends[1]) } else { (ends[1], ends[0]) };
    Ip6 { source, destination, ..Ip6::new(upper) }.frame().bytes()
}

fn segment(forward: bool, flags: u8, seq: u32, ack: u32) -> Vec<u8> {
    ip4(forward, tcp(forward, flags, seq, ack, 0))
}

fn udp(forward: bool) -> Upper {
    let (sport, dport) = if forward { (5000, 53) } else { (53, 5000) };
    Upper::Udp(Udp { sport, dport, payload: vec![1; 24], ..Udp::default() })
}

fn echo(icmp_type: u8) -> Upper {
    Upper::Icmp(Icmp { icmp_type, rest: [0, 7, 0, 1], payload: vec![1; 8], ..Icmp::default() })
}

/// The frame with its last byte changed: the transport checksum is wrong.
fn corrupted(mut frame: Vec<u8>) -> Vec<u8> {
    *frame.last_mut().expect("it has bytes") ^= 1;
    frame
}

/// The first column of Linux's table of TCP states.
#[test]
fn no_connection_begins_by_a_reset_a_fin_or_a_syn_ack() {
    for flags in [RST, RST | ACK, FIN | ACK, SYN | ACK, FIN, 0, SYN | RST, SYN | FIN, 0x29] {
        let mut mmb = Middlebox::new(REFLEXIVE);
        assert!(mmb.passes(A, &segment(true, flags, 100, 1)), "nothing forbids {flags:#x}");
        assert!(mmb.list().is_empty(), "{flags:#x}");
        let kind =
            if [RST, RST | ACK, FIN | ACK, SYN | ACK].contains(&flags) { "not-syn" } else { "bad-flags" };
        assert_eq!(mmb.invalid(), [(kind, 1)], "{flags:#x}");
    }
    let mut mmb = Middlebox::new(REFLEXIVE);
    assert!(mmb.passes(A, &segment(true, ACK, 100, 1)), "picked up in mid-flow");
    assert_eq!(mmb.state(), "unreplied");
}

/// Its rule's `accept` goes for connections.
#[test]
fn what_begins_no_connection_has_no_rule_of_one() {
    let mut mmb = Middlebox::new("add-stateful in a accept\nadd ip-proto tcp drop");
    assert_eq!(mmb.dropped(A, &segment(true, RST, 100, 1)), DropReason::Rule);
    assert!(mmb.passes(A, &segment(true, SYN, 100, 0)));
}

/// A RST whose connection is forgotten would tell the inside address.
#[test]
fn what_would_be_mapped_and_begins_no_connection_does_not_leave() {
    let mut mmb = Middlebox::new("add-stateful in a map ip-saddr 200.0.0.1");
    assert_eq!(mmb.dropped(A, &segment(true, RST, 100, 1)), DropReason::ConnNotSyn);
    assert_eq!(mmb.dropped(A, &segment(true, FIN | ACK, 100, 1)), DropReason::ConnNotSyn);
    assert_eq!(mmb.dropped(A, &segment(true, SYN | FIN, 100, 1)), DropReason::ConnInvalid);
    assert_eq!(mmb.dropped(A, &corrupted(segment(true, SYN, 100, 0))), DropReason::ConnInvalid);
    assert!(mmb.list().is_empty());
}

#[test]
fn flags_that_no_end_sends_change_nothing_of_an_open_connection() {
    for flags in [SYN | RST, SYN | FIN, 0, 0x29, 0x3f, RST | FIN, FIN] {
        let mut mmb = Middlebox::new(REFLEXIVE);
        mmb.open();
        mmb.now_ms += 60_000;
        for (port, forward, seq, ack) in [(A, true, 101, 501), (B, false, 501, 101)] {
            assert!(mmb.passes(port, &segment(forward, flags, seq, ack)), "{flags:#x}");
        }
        let after = mmb.list().remove(0);
        assert_eq!((after.state, after.idle_ms), ("established", 60_000), "{flags:#x}");
        assert_eq!(mmb.invalid(), [("bad-flags", 2)]);
        let mut strict = Middlebox::new(&format!("set conn invalid drop\n{REFLEXIVE}"));
        strict.open();
        assert_eq!(strict.dropped(A, &segment(true, flags, 101, 501)), DropReason::ConnInvalid);
    }
}

#[test]
fn segments_with_a_wrong_checksum_change_no_state() {
    for invalid in ["pass", "drop"] {
        let mut mmb = Middlebox::new(&format!("set conn invalid {invalid}\n{REFLEXIVE}"));
        let passes = invalid == "pass";
        assert_eq!(mmb.passes(A, &corrupted(segment(true, SYN, 100, 0))), passes);
        assert!(mmb.list().is_empty(), "no entry");
        mmb.passes(A, &segment(true, SYN, 100, 0));
        let syn_ack = segment(false, SYN | ACK, 500, 101);
        assert_eq!(mmb.passes(B, &corrupted(syn_ack.clone())), passes);
        assert_eq!(mmb.state(), "syn-sent");
        // Another first number, which the sender did not choose.
        assert_eq!(mmb.passes(A, &corrupted(segment(true, SYN, 90_000_000, 0))), passes);
        assert!(mmb.passes(B, &syn_ack));
        assert!(mmb.passes(A, &segment(true, ACK, 101, 501)));
        assert_eq!(mmb.passes(B, &corrupted(segment(false, RST, 501, 0))), passes);
        assert_eq!(mmb.passes(A, &corrupted(segment(true, FIN | ACK, 101, 501))), passes);
        assert_eq!(mmb.state(), "established");
        assert_eq!(mmb.invalid(), [("bad-checksum", 5)]);
        // Data changes no state: whoever gets it looks.
        assert!(mmb.passes(A, &corrupted(ip4(true, tcp(true, ACK, 101, 501, 30)))));
        assert_eq!(mmb.invalid(), [("bad-checksum", 5)]);
        mmb.passes(B, &segment(false, RST, 501, 0));
        assert_eq!(mmb.state(), "reset");
        assert_eq!(mmb.passes(A, &corrupted(segment(true, SYN, 9000, 0))), passes);
        assert_eq!(mmb.state(), "reset", "not opened anew");
        assert!(mmb.passes(A, &segment(true, SYN, 9000, 0)));
        assert_eq!(mmb.state(), "syn-sent");
    }
}

#[test]
fn datagrams_and_queries_with_a_wrong_checksum_begin_and_answer_nothing() {
    type Framed = fn(bool, Upper) -> Vec<u8>;
    let ways: [(Framed, [u8; 2]); 2] = [(ip4, [8, 0]), (ip6, [128, 129])];
    for (frame, [asks, answers]) in ways {
        for (request, answer) in [(udp(true), udp(false)), (echo(asks), echo(answers))] {
            let (request, answer) = (frame(true, request), frame(false, answer));
            let mut mmb = Middlebox::new(REFLEXIVE);
            mmb.passes(A, &corrupted(request.clone()));
            assert!(mmb.list().is_empty());
            mmb.passes(A, &request);
            mmb.passes(B, &corrupted(answer.clone()));
            assert_eq!(mmb.state(), "unreplied");
            assert_eq!(mmb.invalid(), [("bad-checksum", 2)]);
            mmb.passes(B, &answer);
            assert_eq!(mmb.state(), "replied");
        }
    }
}

/// RFC 768: a datagram over IPv4 may have none. Fragments cannot be checked one by one.
#[test]
fn checksums_that_cannot_be_checked_are_not_wrong() {
    let unsummed = |forward| {
        let mut frame = ip4(forward, udp(forward));
        frame[14 + 20 + 6..][..2].fill(0);
        frame
    };
    let mut mmb = Middlebox::new(REFLEXIVE);
    mmb.passes(A, &unsummed(true));
    mmb.passes(B, &unsummed(false));
    assert_eq!(mmb.state(), "replied");
    let Upper::Udp(datagram) = udp(true) else { unreachable!("it is one") };
    let first = Ip4 { source: INSIDE, destination: SERVER, flags: 1, ..Ip4::new(Upper::Udp(datagram)) };
    let mut mmb = Middlebox::new(REFLEXIVE);
    // The sum covers what is in the other fragments too.
    assert!(mmb.passes(A, &corrupted(first.frame().bytes())));
    assert_eq!(mmb.state(), "unreplied");
    assert!(mmb.invalid().is_empty());
}

/// The frame of a fragment that begins at a byte behind the IP header.
fn piece(forward: bool, proto: u8, bytes: &[u8], start: usize, more: bool) -> Vec<u8> {
    let (source, destination) = if forward { (INSIDE, SERVER) } else { (SERVER, INSIDE) };
    let frag_offset = (start / 8) as u16;
    let head =
        Ip4 { id: 7, frag_offset, flags: u8::from(more), ..Ip4::new(Upper::Raw(proto, bytes.to_vec())) };
    Ip4 { source, destination, ..head }.frame().bytes()
}

/// The frames of a packet in two pieces, the first with so many bytes behind the IP header.
fn pieces(forward: bool, upper: Upper, proto: u8, first: usize) -> [Vec<u8>; 2] {
    let whole = ip4(forward, upper);
    let (start, rest) = whole[34..].split_at(first);
    [piece(forward, proto, start, 0, true), piece(forward, proto, rest, first, false)]
}

/// Who writes half an answer, or one with a wrong checksum in pieces, would have its receiver drop it and the connection stay.
#[test]
fn an_answer_in_fragments_counts_and_changes_no_state() {
    for (proto, request, answer) in [(17, udp(true), udp(false)), (1, echo(8), echo(0))] {
        let mut mmb = Witnessed::new(REFLEXIVE);
        mmb.states(A, &ip4(true, request.clone()));
        mmb.0.now_ms += 1000;
        for piece in pieces(false, answer.clone(), proto, 8) {
            assert!(mmb.0.passes(B, &piece));
        }
        let now = mmb.0.list().remove(0);
        assert_eq!((now.state, now.packets, now.idle_ms), ("unreplied", [1, 2], 0), "{proto}");
        assert_eq!(mmb.states(A, &ip4(true, request)), ["new"]);
        mmb.0.passes(B, &ip4(false, answer));
        assert_eq!(mmb.0.state(), "replied", "{proto}");
        assert!(mmb.0.invalid().is_empty());
    }
    // Picked up in mid-flow.
    let mut mmb = Middlebox::new(REFLEXIVE);
    mmb.passes(A, &segment(true, ACK, 100, 500));
    for piece in pieces(false, tcp(false, ACK, 500, 100, 20), 6, 32) {
        assert!(mmb.passes(B, &piece));
    }
    assert_eq!(mmb.state(), "unreplied");
    mmb.passes(B, &segment(false, ACK, 520, 100));
    assert_eq!(mmb.state(), "established");
}

/// Only the first fragment has numbers; the other end acknowledges what all of them held.
#[test]
fn data_in_fragments_may_be_acknowledged() {
    for at_once in [false, true] {
        let mut mmb = Middlebox::new(&format!("set conn invalid drop\n{REFLEXIVE}"));
        mmb.open();
        let mut data = pieces(true, tcp(true, ACK, 101, 501, 60), 6, 40);
        if at_once {
            mmb.pass_all(&[A; 2], &mut data);
        } else {
            data.iter().for_each(|piece| assert!(mmb.passes(A, piece)));
        }
        assert!(mmb.passes(B, &segment(false, ACK, 501, 161)));
        assert_eq!(mmb.dropped(B, &segment(false, ACK, 501, 162)), DropReason::ConnInvalid);
    }
}

/// Of a connection that begins with a fragment too; and an acknowledgment may come in the vector of the data, as in a capture.
#[test]
fn data_in_fragments_that_begins_a_connection_may_be_acknowledged() {
    let mut mmb = Middlebox::new(&format!("set conn invalid drop\n{REFLEXIVE}"));
    let mut frames = pieces(true, tcp(true, ACK, 101, 501, 60), 6, 40).to_vec();
    frames.push(segment(false, ACK, 501, 161));
    frames.extend(pieces(true, tcp(true, ACK, 161, 501, 60), 6, 40));
    frames.push(segment(false, ACK, 501, 221));
    let verdicts = mmb.pass_all(&[A, A, B, A, A, B], &mut frames);
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Send(_))), "{verdicts:?}");
    assert_eq!(mmb.state(), "established");
}

/// Only a datagram that is complete says how far its sender came: another fragment of it may be anybody's.
#[test]
fn a_forged_fragment_of_a_datagram_changes_nothing() {
    let mut mmb = Middlebox::new(&format!("set conn invalid drop\n{REFLEXIVE}"));
    mmb.open();
    let [first, _] = pieces(true, tcp(true, ACK, 101, 501, 60), 6, 40);
    assert!(mmb.passes(A, &first));
    let far = piece(true, 6, &[9; 80], 800, true);
    assert!(mmb.passes(A, &far));
    assert_eq!(mmb.dropped(B, &segment(false, ACK, 501, 901)), DropReason::ConnInvalid);
    assert!(mmb.passes(A, &segment(true, FIN | ACK, 121, 501)));
    assert_eq!(mmb.state(), "fin-wait");
}

/// Who does not know what the other end sent cannot have a RST believed by making its number the one that is waited for.
#[test]
fn fragments_of_an_invalid_first_one_change_nothing() {
    let mut mmb = Middlebox::new(REFLEXIVE);
    mmb.open();
    for piece in pieces(true, tcp(true, ACK, 101, 900_000, 60), 6, 40) {
        assert!(mmb.passes(A, &piece));
    }
    // Beyond the window that the other end announced, and the last byte in it.
    for piece in pieces(true, tcp(true, ACK, 101 + 2000, 501, 60), 6, 40) {
        assert!(mmb.passes(A, &piece));
    }
    for seq in [161, 2161] {
        mmb.passes(A, &segment(true, RST, seq, 0));
        assert_eq!(mmb.state(), "established");
    }
    mmb.passes(A, &segment(true, RST, 101, 0));
    assert_eq!(mmb.state(), "reset");
}

/// The last data of a transfer come with a FIN, and may come in pieces.
#[test]
fn a_fin_in_fragments_passes_as_data_and_changes_no_state() {
    let mut mmb = Middlebox::new(&format!("set conn invalid drop\n{REFLEXIVE}"));
    mmb.open();
    for piece in pieces(true, tcp(true, FIN | ACK, 101, 501, 40), 6, 40) {
        assert!(mmb.passes(A, &piece));
    }
    assert_eq!(mmb.state(), "established");
    assert!(mmb.passes(B, &segment(false, ACK, 501, 142)), "its acknowledgment");
    for flags in [SYN, RST] {
        mmb.now_ms += 1000;
        let [first, _] = pieces(true, tcp(true, flags, 142, 501, 40), 6, 40);
        assert_eq!(mmb.dropped(A, &first), DropReason::ConnInvalid);
    }
    assert_eq!(mmb.state(), "established");
}

#[test]
fn invalid_packets_are_dropped_if_it_is_set() {
    let beyond = ip4(true, tcp(true, ACK, 900_000, 501, 10));
    for (invalid, passes) in [("pass", true), ("drop", false)] {
        // A rule that asks for more than ends has packets classified each time.
        for more in ["", "add ip-ttl 3 drop"] {
            let mut mmb = Middlebox::new(&format!("set conn invalid {invalid}\n{REFLEXIVE}\n{more}"));
            mmb.open();
            let good = ip4(true, tcp(true, ACK, 101, 501, 10));
            for _ in 0..3 {
                assert!(mmb.passes(A, &good));
                assert_eq!(mmb.passes(A, &beyond), passes);
            }
            assert_eq!(mmb.invalid(), [("out-of-window", 3)]);
            let counted = mmb.list()[0].packets[0];
            assert_eq!(counted, 2 + if passes { 6 } else { 3 }, "what is dropped is not of the connection");
            let drops = mmb.engine.drops().into_iter().find(|(reason, _)| *reason == DropReason::ConnInvalid);
            assert_eq!(drops.map_or(0, |(_, count)| count), if passes { 0 } else { 3 });
            // In the place of the first one, it begins nothing that the drop would be about.
            assert!(mmb.passes(A, &segment(true, RST, 101, 0)));
        }
    }
    let mut mmb = Middlebox::new(&format!("set conn invalid drop\n{REFLEXIVE}"));
    assert_eq!(mmb.dropped(A, &segment(true, RST, 101, 0)), DropReason::ConnInvalid);
    assert_eq!(mmb.dropped(A, &segment(true, SYN | FIN, 101, 0)), DropReason::ConnInvalid);
    // Packets that no stateful rule tracks are not checked.
    let mut mmb = Middlebox::new("set conn invalid drop\nadd-stateful ip-proto udp accept");
    assert!(mmb.passes(A, &segment(true, RST, 101, 0)));
    assert!(mmb.invalid().is_empty());
    mmb.engine.publish(&policy("")).expect("it can be put in force");
}

/// Which of the words of `ct` hold of a packet: each has a rule of its own, that counts.
struct Witnessed(Middlebox);

const WORDS: [&str; 5] = ["new", "established", "related", "reply", "invalid"];

impl Witnessed {
    fn new(more: &str) -> Witnessed {
        let rules = WORDS.iter().zip(1..).map(|(word, id)| format!("add id {id} ct {word} mod ip-ttl 9\n"));
        let rules: String = rules.collect();
        Witnessed(Middlebox::new(&format!("{rules}{more}")))
    }

    fn counts(&self) -> Vec<u64> {
        (1..=5).map(|id| self.0.engine.rule_count(mmb_policy::RuleId(id)).matched.packets).collect()
    }

    fn states(&mut self, port: u16, frame: &[u8]) -> Vec<&'static str> {
        let before = self.counts();
        self.0.pass(port, frame);
        let after = self.counts();
        let held = WORDS.iter().zip(before.iter().zip(&after));
        held.filter(|(_, (before, after))| after > before).map(|(word, _)| *word).collect()
    }
}

/// As Linux's `ctstate` and `ctdir` say of the same packets. Rules that rewrite more than the ends have each packet classified; else what
/// was decided for a connection goes for its later packets.
#[test]
fn rules_see_how_packets_stand_to_connections() {
    for more in ["add-stateful in a accept", "add-stateful in a accept\nadd ip-ttl 3 drop"] {
        let mut mmb = Witnessed::new(more);
        assert_eq!(mmb.states(A, &segment(true, SYN, 100, 0)), ["new"]);
        assert_eq!(mmb.states(A, &segment(true, SYN, 100, 0)), ["new"], "not answered");
        assert_eq!(mmb.states(B, &segment(false, SYN | ACK, 500, 101)), ["established", "reply"]);
        for _ in 0..3 {
            assert_eq!(mmb.states(A, &segment(true, ACK, 101, 501)), ["established"]);
            assert_eq!(mmb.states(B, &segment(false, ACK, 501, 101)), ["established", "reply"]);
            assert_eq!(mmb.states(A, &segment(true, ACK, 9_000_000, 501)), ["invalid"]);
            assert_eq!(mmb.states(B, &segment(false, SYN | FIN, 501, 101)), ["invalid"]);
            assert_eq!(mmb.states(A, &corrupted(segment(true, FIN | ACK, 101, 501))), ["invalid"]);
        }
        assert_eq!(mmb.states(A, &ip4(true, udp(true))), ["new"]);
        assert_eq!(mmb.states(A, &ip4(true, udp(true))), ["new"]);
        assert_eq!(mmb.states(B, &ip4(false, udp(false))), ["established", "reply"]);
        for _ in 0..3 {
            assert_eq!(mmb.states(A, &ip4(true, udp(true))), ["established"]);
        }
        let sent = ip4(true, udp(true));
        let about =
            Upper::Icmp(Icmp { icmp_type: 3, code: 1, payload: sent[14..].to_vec(), ..Icmp::default() });
        assert_eq!(mmb.states(B, &ip4(false, about)), ["related", "reply"]);
        assert_eq!(mmb.states(A, &ip4(true, echo(8))), ["new"]);
        assert_eq!(mmb.states(B, &ip4(false, echo(0))), ["established", "reply"]);
    }
}

/// Without a stateful rule nobody makes connections; what could begin one is new all the same.
#[test]
fn packets_of_no_connection_are_new_or_invalid() {
    for (pickup, ack) in [("loose", "new"), ("strict", "invalid")] {
        let mut mmb = Witnessed::new(&format!("set conn pickup {pickup}"));
        assert_eq!(mmb.states(A, &segment(true, SYN, 100, 0)), ["new"]);
        assert_eq!(mmb.states(A, &segment(true, ACK, 100, 1)), [ack]);
        for flags in [RST, FIN | ACK, SYN | ACK, 0, SYN | FIN] {
            assert_eq!(mmb.states(A, &segment(true, flags, 100, 1)), ["invalid"], "{flags:#x}");
        }
        assert_eq!(mmb.states(A, &ip4(true, udp(true))), ["new"]);
        assert_eq!(mmb.states(A, &ip4(true, echo(8))), ["new"]);
        assert_eq!(mmb.states(A, &ip4(true, echo(0))), ["invalid"], "an answer to nothing");
        assert!(
            mmb.states(A, &ip4(true, echo(9))).is_empty(),
            "a router's advertisement is followed by nobody"
        );
        assert!(mmb.states(A, &ip6(true, echo(135))).is_empty(), "nor is neighbour discovery");
        let mut arp = vec![0xff; 12];
        arp.extend([0x08, 0x06]);
        arp.resize(60, 0);
        assert!(mmb.states(A, &arp).is_empty());
    }
}

#[test]
fn a_firewall_of_states_lets_in_what_was_asked_for() {
    let mut mmb = Middlebox::new(
        "add prio 10 ct invalid drop\nadd-stateful in a ct new accept\nadd in b ct {established, related} accept\n\
         add prio 200 in b drop",
    );
    assert_eq!(mmb.dropped(B, &segment(false, SYN, 1, 0)), DropReason::Rule);
    assert_eq!(mmb.dropped(A, &segment(true, RST, 1, 0)), DropReason::Rule);
    mmb.open();
    assert_eq!(mmb.dropped(B, &segment(false, RST, 90_000, 0)), DropReason::Rule);
    assert_eq!(mmb.dropped(B, &segment(false, SYN | RST, 501, 101)), DropReason::Rule);
    for _ in 0..3 {
        assert!(mmb.passes(B, &segment(false, ACK, 501, 101)));
        assert_eq!(mmb.dropped(B, &segment(false, ACK, 9_000_000, 101)), DropReason::Rule);
    }
    assert_eq!(mmb.state(), "established");
}

/// A vector is classified before its first packet made the connection that the others are of.
#[test]
fn states_within_a_vector_follow_its_packets() {
    let mut mmb = Middlebox::new(
        "add-stateful all accept\nadd prio 10 ct reply mod ip-ttl 9\nadd prio 10 ct invalid drop",
    );
    let mut frames = vec![
        segment(true, SYN, 100, 0),
        segment(false, SYN | ACK, 500, 101),
        segment(true, ACK, 101, 501),
        segment(false, RST, 700_000, 0),
        segment(false, ACK, 501, 101),
    ];
    let verdicts = mmb.pass_all(&[A, B, A, B, B], &mut frames);
    let ttls: Vec<u8> = frames.iter().map(|frame| frame[14 + 8]).collect();
    assert_eq!(verdicts[3], Verdict::Drop(DropReason::Rule));
    assert_eq!([ttls[1], ttls[4]], [9, 9]);
    assert!([ttls[0], ttls[2]].iter().all(|ttl| *ttl != 9));
}

/// On Linux the entry of an unanswered SYN keeps the decision that made it.
#[test]
fn an_invalid_packet_counts_for_its_connection_only_if_it_passes() {
    let by_rule = "add-stateful all accept\nadd prio 10 ct invalid drop";
    let by_setting = "add-stateful all accept\nset conn invalid drop";
    for (text, passes) in [(by_rule, false), (by_setting, false), ("add-stateful all accept", true)] {
        let mut middlebox = Middlebox::new(text);
        middlebox.open();
        // The second one goes the way that was decided on.
        for n in 1..3 {
            assert_eq!(middlebox.passes(A, &segment(true, 0, 101, 501)), passes, "{text}");
            assert_eq!(middlebox.list()[0].packets, [2 + if passes { n } else { 0 }, 1], "{text}");
            assert_eq!(middlebox.invalid().iter().map(|(_, count)| count).sum::<u64>(), n, "{text}");
        }
    }
}

#[test]
fn a_repeated_syn_is_classified_again_when_the_rules_changed() {
    let map = |to: &str| format!("add-stateful in a map ip-saddr {to}");
    let source = |frame: &[u8]| [frame[26], frame[27], frame[28], frame[29]];
    let syn = segment(true, SYN, 100, 0);
    let mut mmb = Middlebox::new(&map("200.0.0.1"));
    for _ in 0..2 {
        assert_eq!(source(&mmb.pass(A, &syn).1), [200, 0, 0, 1]);
    }
    assert_eq!(mmb.list().len(), 1);
    mmb.engine.publish(&policy(&map("200.0.0.2"))).expect("it can be put in force");
    assert_eq!(source(&mmb.pass(A, &corrupted(syn.clone())).1), [200, 0, 0, 1], "nobody would take this one");
    assert_eq!(source(&mmb.pass(A, &syn).1), [200, 0, 0, 2]);
    assert_eq!(mmb.state(), "syn-sent");
    mmb.engine.publish(&policy("add in a drop")).expect("it can be put in force");
    assert_eq!(mmb.dropped(A, &syn), DropReason::Rule);
    assert!(mmb.list().is_empty());
    // An answered connection keeps what it has.
    let mut mmb = Middlebox::new(REFLEXIVE);
    mmb.open();
    mmb.engine.publish(&policy(&map("200.0.0.2"))).expect("it can be put in force");
    assert_eq!(source(&mmb.pass(A, &segment(true, ACK, 101, 501)).1), [10, 0, 0, 1]);
}

/// Under `conn per-source` a connection's record says more than its rules' number.
#[test]
fn a_repeated_syn_keeps_its_connection_where_sources_are_counted() {
    let mut mmb = Middlebox::new("set conn per-source 5\nadd-stateful in a shuffle tcp-sport");
    let syn = segment(true, SYN, 100, 0);
    let first = mmb.pass(A, &syn).1;
    for _ in 0..3 {
        assert_eq!(mmb.pass(A, &syn).1, first, "the same port as before");
    }
}

/// A connection's packets are looked up before the vector's first one ends it. Those behind its end reach neither the freed record
/// nor the connection that has its place.
#[test]
fn packets_behind_the_end_of_their_connection_reach_no_other_one() {
    for full in [false, true] {
        let mut mmb =
            Middlebox::new(if full { "set conn max 1\nadd-stateful in a accept" } else { REFLEXIVE });
        mmb.open();
        for _ in 0..2 {
            assert!(mmb.passes(B, &segment(false, ACK, 501, 101)), "what comes now has a plan");
        }
        let sport = if full { 5001 } else { 5000 };
        let begins = Tcp { sport, dport: 80, flags: SYN, seq: 900_000, window: 1000, ..Tcp::default() };
        let mut frames = vec![
            segment(false, RST, 501, 0),
            ip4(true, Upper::Tcp(begins)),
            segment(false, ACK, 501, 101),
            segment(false, ACK, 501, 101),
        ];
        let verdicts = mmb.pass_all(&[B, A, B, B], &mut frames);
        assert!(
            matches!(verdicts[0], Verdict::Send(_)) && matches!(verdicts[1], Verdict::Send(_)),
            "{verdicts:?}"
        );
        assert_eq!(verdicts[2..], [Verdict::Drop(DropReason::ConnInvalid); 2]);
        assert_eq!(mmb.state(), "syn-sent");
    }
}

/// RFC 5961 section 4: while the ends acknowledge each other's FIN, a SYN begins nothing.
#[test]
fn a_syn_does_not_end_a_connection_that_is_closing() {
    let mut mmb = Middlebox::new(REFLEXIVE);
    mmb.open();
    assert!(mmb.passes(A, &segment(true, FIN | ACK, 101, 501)));
    assert!(mmb.passes(B, &segment(false, FIN | ACK, 501, 101)));
    assert_eq!(mmb.state(), "closing");
    assert!(mmb.passes(A, &segment(true, SYN, 77, 0)));
    assert_eq!(mmb.state(), "closing");
}

/// RFC 9293 section 3.5, figure 8: both may open at once. A SYN with any number that comes before the server's answer must not keep that
/// out.
#[test]
fn a_blind_syn_does_not_keep_the_servers_answer_out() {
    let mut mmb = Middlebox::new(REFLEXIVE);
    assert!(mmb.passes(A, &segment(true, SYN, 100, 0)));
    assert!(mmb.passes(B, &segment(false, SYN, 99_999_999, 0)));
    assert!(mmb.passes(B, &segment(false, SYN | ACK, 500, 101)));
    assert!(mmb.passes(A, &segment(true, ACK, 101, 501)));
    assert_eq!(mmb.state(), "established");
    assert!(mmb.passes(B, &segment(false, ACK, 501, 101)));
    assert_eq!(mmb.invalid(), []);
}

/// A checksum over pieces that never come together cannot be verified, and no end sends such a RST.
#[test]
fn a_reset_in_pieces_ends_nothing() {
    let mut mmb = Middlebox::new(REFLEXIVE);
    mmb.open();
    let upper = tcp(false, RST, 501, 0, 12);
    let whole = Ip4 { source: SERVER, destination: INSIDE, ..Ip4::new(upper) };
    let piece = Ip4 { flags: 1, ..whole };
    assert!(mmb.passes(B, &piece.frame().bytes()));
    assert_eq!(mmb.state(), "established");
}
