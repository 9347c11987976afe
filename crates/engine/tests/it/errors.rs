//! ICMP errors: which are of a connection, and what else of ICMP may leave through a NAT. Expectations are from RFC 5508, RFC 5927 and
//! RFC 4890; expected packets are built anew.

use crate::host::{engine, pass};
use mmb_engine::{DropReason, Verdict, Worker};
use mmb_packet::PortId;
use mmb_testkit::{Extension, FragmentHeader, Icmp, Ip4, Ip6, Tcp, Udp, Upper};
use std::net::{Ipv4Addr, Ipv6Addr};

const A: u16 = 0;
const B: u16 = 1;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(200, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
const ROUTER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const INSIDE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const OTHER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 0x80);
const ROUTER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 2, 0, 0, 0, 9);
const REFLEXIVE: &str = "add-stateful in a accept\nadd in b drop";
const NAT: &str = "add-stateful in a ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.1";

fn one(worker: &mut Worker, port: u16, frame: &[u8]) -> (Verdict, Vec<u8>) {
    pass(worker, port, &[frame.to_vec()]).remove(0)
}

#[track_caller]
fn through(worker: &mut Worker, port: u16, frame: &[u8]) -> Vec<u8> {
    let (verdict, bytes) = one(worker, port, frame);
    assert_eq!(verdict, Verdict::Send(PortId(1 - port)));
    bytes
}

#[track_caller]
fn dropped(worker: &mut Worker, port: u16, frame: &[u8], reason: DropReason) {
    assert_eq!(one(worker, port, frame).0, Verdict::Drop(reason));
}

fn ip4(source: Ipv4Addr, destination: Ipv4Addr, upper: Upper) -> Vec<u8> {
    Ip4 { source, destination, ..Ip4::new(upper) }.frame().bytes()
}

fn ip6(source: Ipv6Addr, destination: Ipv6Addr, upper: Upper) -> Vec<u8> {
    Ip6 { source, destination, ..Ip6::new(upper) }.frame().bytes()
}

fn udp(sport: u16, dport: u16) -> Upper {
    Upper::Udp(Udp { sport, dport, payload: b"hello".to_vec(), ..Udp::default() })
}

fn tcp(sport: u16, dport: u16, flags: u8, seq: u32, ack: u32) -> Upper {
    Upper::Tcp(Tcp { sport, dport, flags, seq, ack, ..Tcp::default() })
}

fn icmp(icmp_type: u8, rest: [u8; 4], payload: &[u8]) -> Upper {
    Upper::Icmp(Icmp { icmp_type, rest, payload: payload.to_vec(), ..Icmp::default() })
}

/// An error about a frame, of which so many bytes of the IP packet are quoted.
fn error(to: Ipv4Addr, about: &[u8], quoted: usize) -> Vec<u8> {
    ip4(ROUTER, to, icmp(3, [0; 4], &about[14..14 + quoted]))
}

fn error6(to: Ipv6Addr, about: &[u8], quoted: usize) -> Vec<u8> {
    ip6(ROUTER6, to, icmp(2, [0, 0, 5, 0], &about[14..14 + quoted]))
}

#[test]
fn an_error_goes_to_the_sender_of_the_quoted_packet() {
    // CVE-2019-5598: pf let an error in to any host if it quoted a state.
    let (_engine, mut mmb) = engine(REFLEXIVE);
    let sent = through(&mut mmb, A, &ip4(INSIDE, SERVER, udp(5000, 53)));
    dropped(&mut mmb, B, &error(OTHER, &sent, 28), DropReason::IcmpUnrelated);
    through(&mut mmb, B, &error(INSIDE, &sent, 28));
    let sent = through(&mut mmb, A, &ip6(INSIDE6, SERVER6, udp(5000, 53)));
    dropped(&mut mmb, B, &error6(OTHER6, &sent, 48), DropReason::IcmpUnrelated);
    through(&mut mmb, B, &error6(INSIDE6, &sent, 48));
}

#[test]
fn every_kind_of_error_is_held_to_its_destination() {
    let (_engine, mut mmb) = engine(REFLEXIVE);
    let sent = through(&mut mmb, A, &ip4(INSIDE, SERVER, udp(5000, 53)));
    let sent6 = through(&mut mmb, A, &ip6(INSIDE6, SERVER6, udp(5000, 53)));
    let error = |to, number| ip4(ROUTER, to, icmp(number, [0; 4], &sent[14..42]));
    let error6 = |to, number| ip6(ROUTER6, to, icmp(number, [0; 4], &sent6[14..62]));
    for number in [3, 4, 11, 12] {
        dropped(&mut mmb, B, &error(OTHER, number), DropReason::IcmpUnrelated);
        through(&mut mmb, B, &error(INSIDE, number));
    }
    for number in [1, 2, 3, 4] {
        dropped(&mut mmb, B, &error6(OTHER6, number), DropReason::IcmpUnrelated);
        through(&mut mmb, B, &error6(INSIDE6, number));
    }
    // A redirect is no error about a packet's fate.
    dropped(&mut mmb, B, &error(INSIDE, 5), DropReason::Rule);
    dropped(&mut mmb, B, &error6(INSIDE6, 137), DropReason::Rule);
}

#[test]
fn through_nat_an_error_goes_to_the_outside_address_and_to_no_inside_one() {
    let (_engine, mut mmb) = engine(NAT);
    let sent = through(&mut mmb, A, &ip4(INSIDE, SERVER, udp(5000, 53)));
    for to in [INSIDE, OTHER, Ipv4Addr::new(200, 0, 0, 2)] {
        dropped(&mut mmb, B, &error(to, &sent, 28), DropReason::IcmpUnrelated);
    }
    let inside = ip4(INSIDE, SERVER, udp(5000, 53));
    assert_eq!(through(&mut mmb, B, &error(OUTSIDE, &sent, 28)), error(INSIDE, &inside, 28));
}

#[test]
fn an_error_whose_checksum_is_wrong_is_dropped() {
    let (_engine, mut mmb) = engine(NAT);
    let sent = through(&mut mmb, A, &ip4(INSIDE, SERVER, udp(5000, 53)));
    let mut wrong = error(OUTSIDE, &sent, 28);
    *wrong.last_mut().expect("a byte") ^= 1;
    dropped(&mut mmb, B, &wrong, DropReason::IcmpUnrelated);
    // The quoted packet's own checksum is not looked at (RFC 5508 REQ-3c): more than eight bytes of it need not be there.
    let mut about = sent;
    about[40] ^= 1;
    through(&mut mmb, B, &error(OUTSIDE, &about, 28));
}

/// A connection whose client has sent 100 to 160, of which nothing is acknowledged; what the client sent last, as it left.
fn in_flight(mmb: &mut Worker) -> Vec<u8> {
    let data = |seq| {
        let payload = vec![7; 60];
        Upper::Tcp(Tcp { sport: 5000, dport: 80, flags: ACK, seq, ack: 901, payload, ..Tcp::default() })
    };
    through(mmb, A, &ip4(INSIDE, SERVER, tcp(5000, 80, SYN, 99, 0)));
    through(mmb, B, &ip4(SERVER, INSIDE, tcp(80, 5000, SYN | ACK, 900, 100)));
    through(mmb, A, &ip4(INSIDE, SERVER, data(100)))
}

#[test]
fn the_quoted_sequence_number_is_one_in_flight() {
    let (_engine, mut mmb) = engine(REFLEXIVE);
    let sent = in_flight(&mut mmb);
    let quoting = |seq: u32| {
        let mut about = sent.clone();
        about[38..42].copy_from_slice(&seq.to_be_bytes());
        error(INSIDE, &about, 28)
    };
    for seq in [100, 130, 160] {
        through(&mut mmb, B, &quoting(seq));
    }
    for seq in [0, 98, 161, 100 + (1 << 20), 100 + (1 << 31)] {
        dropped(&mut mmb, B, &quoting(seq), DropReason::IcmpUnrelated);
    }
    through(&mut mmb, B, &ip4(SERVER, INSIDE, tcp(80, 5000, ACK, 901, 160)));
    dropped(&mut mmb, B, &quoting(100), DropReason::IcmpUnrelated);
}

#[test]
fn a_shuffled_sequence_number_is_compared_as_its_sender_counts() {
    let (_engine, mut mmb) =
        engine("add-stateful in a ip-proto tcp shuffle tcp-seq-num accept\nadd in b drop");
    let syn = ip4(INSIDE, SERVER, tcp(5000, 80, SYN, 99, 0));
    let sent = through(&mut mmb, A, &syn);
    assert_ne!(sent[38..42], syn[38..42], "the number that is shown outside");
    dropped(&mut mmb, B, &error(INSIDE, &syn, 28), DropReason::IcmpUnrelated);
    assert_eq!(through(&mut mmb, B, &error(INSIDE, &sent, 28)), error(INSIDE, &syn, 28));
}

#[test]
fn an_error_about_an_echo_is_about_one_that_was_sent() {
    let (_engine, mut mmb) = engine(REFLEXIVE);
    let asked = through(&mut mmb, A, &ip4(INSIDE, SERVER, icmp(8, [0, 7, 0, 1], &[])));
    through(&mut mmb, B, &error(INSIDE, &asked, 28));
    let never = ip4(INSIDE, SERVER, icmp(0, [0, 7, 0, 1], &[]));
    dropped(&mut mmb, B, &error(INSIDE, &never, 28), DropReason::IcmpUnrelated);
}

#[test]
fn errors_neither_keep_nor_end_a_connection() {
    let (_engine, mut mmb) = engine(REFLEXIVE);
    let sent = in_flight(&mut mmb);
    let mut wrong = sent.clone();
    wrong[38] ^= 0x40;
    dropped(&mut mmb, B, &error(INSIDE, &wrong, 28), DropReason::IcmpUnrelated);
    through(&mut mmb, B, &error(INSIDE, &sent, 28));
    through(&mut mmb, B, &ip4(SERVER, INSIDE, tcp(80, 5000, ACK, 901, 160)));
}

#[test]
fn an_error_about_no_connection_is_for_the_stateless_rules() {
    let (_engine, mut mmb) = engine(REFLEXIVE);
    let never = ip4(INSIDE, SERVER, udp(5000, 54));
    dropped(&mut mmb, B, &error(INSIDE, &never, 28), DropReason::Rule);
    // Flows that no rule tracks find their path's MTU.
    let (_engine, mut mmb) = engine("add-stateful in a ip-proto tcp accept");
    through(&mut mmb, B, &error(INSIDE, &never, 28));
    // Nothing can be found by a quotation that is too short for ports, or of a later fragment.
    let (_engine, mut mmb) = engine(REFLEXIVE);
    let sent = through(&mut mmb, A, &ip4(INSIDE, SERVER, udp(5000, 53)));
    dropped(&mut mmb, B, &error(INSIDE, &sent, 27), DropReason::Rule);
    let later = Ip4 { source: INSIDE, destination: SERVER, frag_offset: 3, ..Ip4::new(udp(5000, 53)) };
    dropped(&mut mmb, B, &error(INSIDE, &later.frame().bytes(), 28), DropReason::Rule);
}

#[test]
fn an_error_may_quote_extension_headers() {
    let (_engine, mut mmb) = engine(REFLEXIVE);
    let datagram = |offset| {
        let header = Extension::Fragment(FragmentHeader { offset, more: true });
        let whole = Udp { sport: 5000, dport: 53, payload: vec![0; 16], ..Udp::default() };
        let ip = Ip6 { source: INSIDE6, destination: SERVER6, ..Ip6::new(Upper::Udp(whole)) };
        ip.extension(header).frame().bytes()
    };
    let sent = through(&mut mmb, A, &datagram(0));
    dropped(&mut mmb, B, &error6(OTHER6, &sent, 56), DropReason::IcmpUnrelated);
    through(&mut mmb, B, &error6(INSIDE6, &sent, 56));
    dropped(&mut mmb, B, &error6(INSIDE6, &datagram(9), 56), DropReason::Rule);
}

#[test]
fn an_error_in_fragments_is_about_nothing() {
    let (_engine, mut mmb) = engine(NAT);
    let sent = through(&mut mmb, A, &ip4(INSIDE, SERVER, udp(5000, 53)));
    let whole = error(OUTSIDE, &sent, 32);
    let piece = Upper::Raw(1, whole[34..].to_vec());
    let first = Ip4 { source: ROUTER, destination: OUTSIDE, id: 9, flags: 1, ..Ip4::new(piece) };
    dropped(&mut mmb, B, &first.frame().bytes(), DropReason::IcmpUnrelated);
}

#[test]
fn an_error_in_fragments_corrupts_no_datagram_of_the_quoted_sender() {
    // Both have one identification; the error was taken for a piece of the datagram.
    let (_engine, mut mmb) = engine("add-stateful ip-proto udp accept");
    let sent = through(&mut mmb, A, &ip4(INSIDE, SERVER, udp(5000, 53)));
    let piece = |source, destination, upper, frag_offset, flags| {
        Ip4 { source, destination, id: 9, frag_offset, flags, ..Ip4::new(upper) }.frame().bytes()
    };
    let answer = Udp { sport: 53, dport: 5000, payload: vec![1; 24], ..Udp::default() };
    let whole = Ip4 { source: SERVER, destination: INSIDE, ..Ip4::new(Upper::Udp(answer)) }.bytes();
    through(&mut mmb, B, &piece(SERVER, INSIDE, Upper::Raw(17, whole[20..36].to_vec()), 0, 1));
    let about = error(INSIDE, &sent, 32);
    let first = piece(ROUTER, INSIDE, Upper::Raw(1, about[34..].to_vec()), 0, 1);
    dropped(&mut mmb, B, &first, DropReason::IcmpUnrelated);
    through(&mut mmb, B, &piece(SERVER, INSIDE, Upper::Raw(17, whole[36..].to_vec()), 2, 0));
}

#[test]
fn what_a_rule_maps_and_is_of_no_connection_does_not_leave() {
    let (engine, mut mmb) =
        engine(&format!("{NAT}\nadd-stateful in b ip-daddr 200.0.0.9 map ip-daddr 10.0.0.9"));
    let never = ip4(INSIDE, SERVER, udp(1, 2));
    for message in [
        icmp(0, [0, 7, 0, 1], &[]),
        icmp(14, [0, 7, 0, 1], &[0; 12]),
        icmp(3, [0; 4], &never[14..42]),
        icmp(3, [0; 4], &never[14..40]),
        icmp(5, [192, 0, 2, 1], &never[14..42]),
        icmp(42, [0; 4], &[]),
        icmp(200, [0; 4], &[]),
    ] {
        dropped(&mut mmb, A, &ip4(INSIDE, SERVER, message.clone()), DropReason::NatUnsolicited);
        dropped(
            &mut mmb,
            B,
            &ip4(SERVER, Ipv4Addr::new(200, 0, 0, 9), message.clone()),
            DropReason::NatUnsolicited,
        );
        // Whom no rule maps.
        through(&mut mmb, A, &ip4(Ipv4Addr::new(10, 0, 1, 1), SERVER, message));
    }
    assert_eq!(engine.rule_count(mmb_policy::RuleId(1)).matched.packets, 0, "the rule did nothing");
    // Other frames than IP match no rule on addresses.
    let arp = mmb_testkit::Frame::new(mmb_testkit::Network::Other(0x0806, vec![0; 28]));
    through(&mut mmb, A, &arp.bytes());
}

#[test]
fn a_rule_that_drops_goes_before_what_is_unsolicited() {
    let (_engine, mut mmb) = engine(&format!("{NAT}\nadd ip-proto icmp drop"));
    dropped(&mut mmb, A, &ip4(INSIDE, SERVER, icmp(0, [0, 7, 0, 1], &[])), DropReason::Rule);
    // A rule that maps nothing hides nothing.
    let (_engine, mut mmb) = engine("add-stateful in a accept");
    through(&mut mmb, A, &ip4(INSIDE, SERVER, icmp(0, [0, 7, 0, 1], &[])));
}

#[test]
fn messages_for_the_link_pass_a_rule_that_maps_their_address() {
    let (_engine, mut mmb) = engine("add-stateful in a map ip6-saddr 2001:db8:f::1");
    let local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 0x80);
    let sent = |source, destination, hop_limit, number| {
        let upper = icmp(number, [0; 4], &[0; 16]);
        Ip6 { source, destination, hop_limit, ..Ip6::new(upper) }.frame().bytes()
    };
    for number in 133..=137 {
        for (source, destination) in [(INSIDE6, SERVER6), (local, group), (Ipv6Addr::UNSPECIFIED, group)] {
            let frame = sent(source, destination, 255, number);
            assert_eq!(through(&mut mmb, A, &frame), frame, "{number}");
        }
        // It came from beyond a router (RFC 4861 section 7.1.1): nobody on the link sends so.
        dropped(&mut mmb, A, &sent(INSIDE6, SERVER6, 64, number), DropReason::NatUnsolicited);
    }
    for number in [130, 131, 132, 143] {
        let frame = sent(local, group, 1, number);
        assert_eq!(through(&mut mmb, A, &frame), frame, "{number}");
        dropped(&mut mmb, A, &sent(INSIDE6, SERVER6, 64, number), DropReason::NatUnsolicited);
    }
    dropped(&mut mmb, A, &sent(INSIDE6, SERVER6, 255, 129), DropReason::NatUnsolicited);
}
