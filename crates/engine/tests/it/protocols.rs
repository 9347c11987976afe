//! Connections of SCTP, DCCP, UDP-Lite, GRE and ICMP queries: told apart by ports and keys, translated, reported errors about. Expected packets are
//! built anew.

use crate::host::{engine, pass};
use mmb_engine::{DropReason, Verdict, Worker};
use mmb_packet::{Malformed, PortId};
use mmb_testkit::{Checksum, Dccp, Icmp, Ip4, Ip6, Sctp, UdpLite, Upper, gre};
use std::net::{Ipv4Addr, Ipv6Addr};

const A: u16 = 0;
const B: u16 = 1;
const INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const OTHER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(200, 0, 0, 1);
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
const ROUTER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);
const INSIDE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const OUTSIDE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 7, 0, 0, 0, 1);
const SERVER6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 1, 0, 0, 0, 0x80);
const REFLEXIVE: &str = "add-stateful in a accept\nadd in b drop";
const NAT: &str = "add-stateful in a ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.1 accept\nadd in b drop\n\
                   add-stateful in a ip6-saddr 2001:db8::/64 map ip6-saddr 2001:db8:0:7::1 accept";

/// A packet of a protocol between two ports.
type Build = fn(u16, u16) -> Upper;

/// An answer whose checksum is right or not.
type Answer = fn(bool) -> Upper;

const WITH_PORTS: [(&str, Build); 3] = [("UDP-Lite", udp_lite), ("DCCP", dccp), ("SCTP", sctp)];

fn udp_lite(sport: u16, dport: u16) -> Upper {
    Upper::UdpLite(UdpLite {
        sport,
        dport,
        coverage: 12,
        payload: b"covered in part".to_vec(),
        ..UdpLite::default()
    })
}

fn dccp(sport: u16, dport: u16) -> Upper {
    Upper::Dccp(Dccp { sport, dport, coverage: 2, payload: b"covered in part".to_vec(), ..Dccp::default() })
}

/// Data under a tag that both ends use.
fn sctp(sport: u16, dport: u16) -> Upper {
    Sctp { sport, dport, tag: 7, ..Sctp::default() }.chunk(0, 3, b"twelve bytes and data").upper()
}

fn ip4(source: Ipv4Addr, destination: Ipv4Addr, upper: Upper) -> Vec<u8> {
    Ip4 { source, destination, ..Ip4::new(upper) }.frame().bytes()
}

fn ip6(source: Ipv6Addr, destination: Ipv6Addr, upper: Upper) -> Vec<u8> {
    Ip6 { source, destination, ..Ip6::new(upper) }.frame().bytes()
}

/// An error about a frame, of which so many bytes of the IP packet are quoted.
fn error(to: Ipv4Addr, about: &[u8], quoted: usize) -> Vec<u8> {
    let payload = about[14..14 + quoted].to_vec();
    ip4(ROUTER, to, Upper::Icmp(Icmp { icmp_type: 3, rest: [0; 4], payload, ..Icmp::default() }))
}

#[track_caller]
fn through(worker: &mut Worker, port: u16, frame: &[u8]) -> Vec<u8> {
    let (verdict, bytes) = pass(worker, port, &[frame.to_vec()]).remove(0);
    assert_eq!(verdict, Verdict::Send(PortId(1 - port)));
    bytes
}

#[track_caller]
fn dropped(worker: &mut Worker, port: u16, frame: &[u8], reason: DropReason) {
    assert_eq!(pass(worker, port, &[frame.to_vec()]).remove(0).0, Verdict::Drop(reason));
}

fn source_port(frame: &[u8]) -> u16 {
    u16::from_be_bytes([frame[34], frame[35]])
}

#[test]
fn only_an_answer_to_the_same_ports_is_one() {
    for (name, build) in WITH_PORTS {
        let (engine, mut mmb) = engine(REFLEXIVE);
        through(&mut mmb, A, &ip4(INSIDE, SERVER, build(5000, 80)));
        through(&mut mmb, B, &ip4(SERVER, INSIDE, build(80, 5000)));
        for (sport, dport) in [(81, 5000), (80, 5001), (5000, 80)] {
            dropped(&mut mmb, B, &ip4(SERVER, INSIDE, build(sport, dport)), DropReason::Rule);
        }
        through(&mut mmb, A, &ip4(INSIDE, SERVER, build(5001, 80)));
        through(&mut mmb, B, &ip4(SERVER, INSIDE, build(80, 5001)));
        assert_eq!(engine.connections().summary().created, 2, "{name}");
    }
}

/// The types of ICMP requests and their answers.
const QUERIES: [[u8; 2]; 4] = [[8, 0], [13, 14], [15, 16], [17, 18]];

/// A query with an identifier, or an answer.
fn query(icmp_type: u8, id: u16) -> Upper {
    let [high, low] = id.to_be_bytes();
    Upper::Icmp(Icmp { icmp_type, rest: [high, low, 0, 1], payload: vec![3; 12], ..Icmp::default() })
}

#[test]
fn a_query_is_answered_by_its_own_kind_alone() {
    let (engine, mut mmb) = engine(REFLEXIVE);
    for (number, [asks, answers]) in QUERIES.into_iter().enumerate() {
        through(&mut mmb, A, &ip4(INSIDE, SERVER, query(asks, 7)));
        assert_eq!(engine.connections().summary().created, number as u64 + 1);
        for [_, other] in &QUERIES[number + 1..] {
            dropped(&mut mmb, B, &ip4(SERVER, INSIDE, query(*other, 7)), DropReason::Rule);
        }
        through(&mut mmb, B, &ip4(SERVER, INSIDE, query(answers, 7)));
    }
}

#[test]
fn queries_of_all_kinds_share_an_identifier_through_nat() {
    let (engine, mut mmb) = engine(NAT);
    let identifier = |frame: &[u8]| u16::from_be_bytes([frame[38], frame[39]]);
    through(&mut mmb, A, &ip4(OTHER, SERVER, query(8, 7)));
    for [asks, answers] in QUERIES {
        let came = ip4(INSIDE, SERVER, query(asks, 7));
        let left = through(&mut mmb, A, &came);
        let id = identifier(&left);
        assert_ne!(id, 7, "another's");
        assert_eq!(left, ip4(OUTSIDE, SERVER, query(asks, id)));
        let told = through(&mut mmb, B, &error(OUTSIDE, &left, 28));
        assert_eq!(told, error(INSIDE, &came, 28), "the query is quoted as it came");
        let answer = through(&mut mmb, B, &ip4(SERVER, OUTSIDE, query(answers, id)));
        assert_eq!(answer, ip4(SERVER, INSIDE, query(answers, 7)));
        let about_answer = error(OUTSIDE, &ip4(OUTSIDE, SERVER, query(answers, id)), 28);
        dropped(&mut mmb, B, &about_answer, DropReason::IcmpUnrelated);
    }
    assert_eq!(engine.connections().summary().created, 5);
}

#[test]
fn both_ends_of_a_gre_flow_use_its_key() {
    let (engine, mut mmb) = engine(REFLEXIVE);
    for key in [Some(0x0102_0304), Some(0x0304_0102), None] {
        through(&mut mmb, A, &ip4(INSIDE, SERVER, gre(key)));
        through(&mut mmb, B, &ip4(SERVER, INSIDE, gre(key)));
    }
    dropped(&mut mmb, B, &ip4(SERVER, INSIDE, gre(Some(0x0102_0305))), DropReason::Rule);
    assert_eq!(engine.connections().summary().created, 3);
    // The call identifiers of PPTP differ in each direction.
    let enhanced = |call: u8| Upper::Raw(47, vec![0x20, 1, 0x88, 0x0b, 0, 4, 0, call, 1, 2, 3, 4]);
    through(&mut mmb, B, &ip4(SERVER, INSIDE, enhanced(9)));
    assert_eq!(engine.connections().summary().created, 3, "of the connection without a key");
}

#[test]
fn a_key_that_is_not_there_is_of_no_connection() {
    let (_engine, mut mmb) = engine(NAT);
    let cut = Upper::Raw(47, vec![0x20, 0, 8, 0, 1, 2]);
    dropped(&mut mmb, A, &ip4(INSIDE, SERVER, cut), DropReason::NatUnsolicited);
}

#[test]
fn checksums_follow_translated_addresses() {
    for (name, build) in WITH_PORTS.into_iter().chain([("GRE", (|_, _| gre(Some(5))) as Build)]) {
        let (_engine, mut mmb) = engine(NAT);
        let sent = through(&mut mmb, A, &ip4(INSIDE, SERVER, build(5000, 80)));
        assert_eq!(sent, ip4(OUTSIDE, SERVER, build(5000, 80)), "{name}");
        let answer = through(&mut mmb, B, &ip4(SERVER, OUTSIDE, build(80, 5000)));
        assert_eq!(answer, ip4(SERVER, INSIDE, build(80, 5000)), "{name}");
        let sent = through(&mut mmb, A, &ip6(INSIDE6, SERVER6, build(5000, 80)));
        assert_eq!(sent, ip6(OUTSIDE6, SERVER6, build(5000, 80)), "{name}");
        let answer = through(&mut mmb, B, &ip6(SERVER6, OUTSIDE6, build(80, 5000)));
        assert_eq!(answer, ip6(SERVER6, INSIDE6, build(80, 5000)), "{name}");
    }
}

#[test]
fn a_checksum_over_all_follows_too_and_a_wrong_one_stays_wrong() {
    let (_engine, mut mmb) = engine(NAT);
    let lite =
        |checksum| Upper::UdpLite(UdpLite { checksum, payload: b"odd".to_vec(), ..UdpLite::default() });
    let dccp = |checksum| Upper::Dccp(Dccp { checksum, payload: b"odd".to_vec(), ..Dccp::default() });
    for build in [lite as fn(Checksum) -> Upper, dccp] {
        let pass = |mmb: &mut Worker, checksum| through(mmb, A, &ip4(INSIDE, SERVER, build(checksum)));
        let right = pass(&mut mmb, Checksum::Right);
        assert_eq!(right, ip4(OUTSIDE, SERVER, build(Checksum::Right)));
        assert_eq!(pass(&mut mmb, Checksum::Off(9)), ip4(OUTSIDE, SERVER, build(Checksum::Off(9))));
    }
    // There is no UDP-Lite without a checksum (RFC 3828 section 3.1): none appears either.
    let none = lite(Checksum::Is(0));
    assert_eq!(through(&mut mmb, A, &ip4(INSIDE, SERVER, none.clone())), ip4(OUTSIDE, SERVER, none));
}

#[test]
fn two_inside_hosts_with_one_port_get_two_outside_ports() {
    for (name, build) in &WITH_PORTS[..2] {
        let (_engine, mut mmb) = engine(NAT);
        through(&mut mmb, A, &ip4(INSIDE, SERVER, build(5000, 80)));
        let sent = through(&mut mmb, A, &ip4(OTHER, SERVER, build(5000, 80)));
        let port = source_port(&sent);
        assert_ne!(port, 5000, "{name}");
        assert_eq!(sent, ip4(OUTSIDE, SERVER, build(port, 80)), "{name}");
        for (host, outside) in [(INSIDE, 5000), (OTHER, port)] {
            let answer = through(&mut mmb, B, &ip4(SERVER, OUTSIDE, build(80, outside)));
            assert_eq!(answer, ip4(SERVER, host, build(80, 5000)), "{name}");
        }
    }
}

#[test]
fn what_must_keep_its_port_or_key_clashes_with_the_same() {
    let (_engine, mut mmb) = engine(NAT);
    through(&mut mmb, A, &ip4(INSIDE, SERVER, sctp(5000, 80)));
    dropped(&mut mmb, A, &ip4(OTHER, SERVER, sctp(5000, 80)), DropReason::NatClash);
    through(&mut mmb, A, &ip4(OTHER, SERVER, sctp(5001, 80)));
    through(&mut mmb, A, &ip4(INSIDE, SERVER, gre(Some(1))));
    dropped(&mut mmb, A, &ip4(OTHER, SERVER, gre(Some(1))), DropReason::NatClash);
    through(&mut mmb, A, &ip4(OTHER, SERVER, gre(Some(2))));
}

#[test]
fn errors_about_eight_bytes_find_their_connection() {
    let keyed = |key: u16, _| gre(Some(u32::from(key)));
    for (name, build) in WITH_PORTS.into_iter().chain([("GRE", keyed as Build)]) {
        let (_engine, mut mmb) = engine(NAT);
        let inside = ip4(INSIDE, SERVER, build(5000, 80));
        let sent = through(&mut mmb, A, &inside);
        for quoted in [28, sent.len() - 14] {
            let told = through(&mut mmb, B, &error(OUTSIDE, &sent, quoted));
            assert_eq!(told, error(INSIDE, &inside, quoted), "{name}, {quoted} bytes");
        }
        let never = ip4(OUTSIDE, SERVER, build(5001, 80));
        dropped(&mut mmb, B, &error(OUTSIDE, &never, 28), DropReason::Rule);
        dropped(&mut mmb, B, &error(INSIDE, &sent, 28), DropReason::IcmpUnrelated);
    }
}

#[test]
fn errors_about_a_port_of_our_choice_name_the_inside_port() {
    for (name, build) in &WITH_PORTS[..2] {
        let (_engine, mut mmb) = engine(NAT);
        through(&mut mmb, A, &ip4(INSIDE, SERVER, build(5000, 80)));
        let inside = ip4(OTHER, SERVER, build(5000, 80));
        let sent = through(&mut mmb, A, &inside);
        let told = through(&mut mmb, B, &error(OUTSIDE, &sent, 28));
        assert_eq!(told, error(OTHER, &inside, 28), "{name}");
    }
}

#[test]
fn a_damaged_answer_does_not_count_as_one() {
    let build: [(&str, Answer); 3] = [
        ("UDP-Lite", |is_right| {
            Upper::UdpLite(UdpLite { sport: 80, dport: 5000, checksum: sum(is_right), ..UdpLite::default() })
        }),
        ("DCCP", |is_right| {
            Upper::Dccp(Dccp { sport: 80, dport: 5000, checksum: sum(is_right), ..Dccp::default() })
        }),
        ("SCTP", |is_right| {
            let damage = u32::from(!is_right);
            Sctp { sport: 80, dport: 5000, tag: 9, damage, ..Sctp::default() }.chunk(3, 0, &[0; 12]).upper()
        }),
    ];
    for ((name, first), (_, answer)) in WITH_PORTS.into_iter().zip(build) {
        let (engine, mut mmb) = engine(REFLEXIVE);
        through(&mut mmb, A, &ip4(INSIDE, SERVER, first(5000, 80)));
        for (is_right, half_open) in [(false, 1), (true, 0)] {
            through(&mut mmb, B, &ip4(SERVER, INSIDE, answer(is_right)));
            // Counters are told with the next vector.
            through(&mut mmb, A, &ip4(INSIDE, SERVER, first(5000, 80)));
            let summary = engine.connections().summary();
            assert_eq!(
                (summary.half_open, summary.invalid),
                (half_open, vec![("bad-checksum", 1)]),
                "{name}"
            );
        }
    }
}

fn sum(is_right: bool) -> Checksum {
    if is_right { Checksum::Right } else { Checksum::Off(1) }
}

#[test]
fn what_covers_less_than_its_header_or_more_than_there_is_begins_nothing() {
    let (engine, mut mmb) = engine(REFLEXIVE);
    for coverage in [1, 7, 13] {
        let payload = vec![1; 4];
        let lite = UdpLite { coverage, payload, ..UdpLite::default() };
        through(&mut mmb, A, &ip4(INSIDE, SERVER, Upper::UdpLite(lite)));
    }
    let payload = vec![1; 4];
    let dccp = Dccp { coverage: 3, payload, ..Dccp::default() };
    through(&mut mmb, A, &ip4(INSIDE, SERVER, Upper::Dccp(dccp)));
    let summary = engine.connections().summary();
    assert_eq!((summary.created, summary.invalid), (0, vec![("bad-checksum", 4)]));
}

#[test]
fn fragments_are_of_the_connection_that_the_first_one_names() {
    let (_engine, mut mmb) = engine(NAT);
    let whole = Ip4 { source: INSIDE, destination: SERVER, id: 9, ..Ip4::new(sctp(5000, 80)) };
    let Upper::Raw(proto, bytes) = whole.upper.clone() else { panic!("bytes") };
    let piece = |source, from: usize, to: usize, more: bool| {
        let upper = Upper::Raw(proto, bytes[from..to].to_vec());
        let ip = Ip4 { source, flags: u8::from(more), frag_offset: (from / 8) as u16, ..whole.clone() };
        Ip4 { upper, ..ip }.frame().bytes()
    };
    for (from, to, more) in [(0, 16, true), (16, bytes.len(), false)] {
        assert_eq!(through(&mut mmb, A, &piece(INSIDE, from, to, more)), piece(OUTSIDE, from, to, more));
    }
}

/// A packet of an association between the inside host and the server.
fn associated(forward: bool, tag: u32, chunks: impl Fn(Sctp) -> Sctp) -> Vec<u8> {
    let (sport, dport) = if forward { (5000, 80) } else { (80, 5000) };
    let (source, destination) = if forward { (INSIDE, SERVER) } else { (SERVER, INSIDE) };
    ip4(source, destination, chunks(Sctp { sport, dport, tag, ..Sctp::default() }).upper())
}

fn data(forward: bool, tag: u32) -> Vec<u8> {
    associated(forward, tag, |packet| packet.chunk(0, 3, &[5; 16]))
}

/// Opens an association with the tags 0x22 to the server and 0x11 to the client.
fn associate(mmb: &mut Worker) {
    through(mmb, A, &associated(true, 0, |packet| packet.init(1, 0x11)));
    through(mmb, B, &associated(false, 0x11, |packet| packet.init(2, 0x22)));
    through(mmb, A, &associated(true, 0x22, |packet| packet.chunk(10, 0, &[1; 8]).chunk(0, 3, &[5; 16])));
    through(mmb, B, &associated(false, 0x11, |packet| packet.chunk(11, 0, &[]).chunk(0, 3, &[5; 16])));
}

#[test]
fn a_packet_with_another_tag_is_invalid() {
    let (engine, mut mmb) = engine(&format!("set conn invalid drop\nset conn pickup strict\n{REFLEXIVE}"));
    associate(&mut mmb);
    for (port, forward, tag) in [(A, true, 0x22), (B, false, 0x11)] {
        through(&mut mmb, port, &data(forward, tag));
        dropped(&mut mmb, port, &data(forward, tag ^ 1), DropReason::ConnInvalid);
    }
    dropped(&mut mmb, B, &associated(false, 9, |packet| packet.chunk(6, 0, &[])), DropReason::ConnInvalid);
    assert_eq!(engine.connections().summary().invalid, [("bad-vtag", 3)]);
    through(&mut mmb, B, &data(false, 0x11));
    through(&mut mmb, B, &associated(false, 0x22, |packet| packet.chunk(6, 1, &[])));
    // It is over now, and an INIT begins another.
    through(&mut mmb, A, &associated(true, 0, |packet| packet.init(1, 0x33)));
    assert_eq!(engine.connections().summary().created, 2);
}

#[test]
fn under_strict_pickup_only_an_init_begins_an_association() {
    let (engine, mut mmb) = engine(&format!("set conn pickup strict\n{REFLEXIVE}"));
    dropped(&mut mmb, A, &data(true, 0x22), DropReason::ConnNotSyn);
    dropped(&mut mmb, B, &associated(false, 0, |packet| packet.init(1, 9)), DropReason::Rule);
    assert_eq!(engine.connections().summary().created, 0);
    associate(&mut mmb);
    assert_eq!(engine.connections().summary().created, 1);
}

#[test]
fn a_damaged_init_begins_nothing() {
    let (engine, mut mmb) = engine(REFLEXIVE);
    let damaged = |packet: Sctp| Sctp { damage: 1, ..packet }.init(1, 0x11);
    through(&mut mmb, A, &associated(true, 0, damaged));
    let summary = engine.connections().summary();
    assert_eq!((summary.created, summary.invalid), (0, vec![("bad-checksum", 1)]));
}

#[test]
fn an_error_about_an_association_quotes_its_tag() {
    let (_engine, mut mmb) = engine(REFLEXIVE);
    let init = associated(true, 0, |packet| packet.init(1, 0x11));
    through(&mut mmb, A, &init);
    through(&mut mmb, B, &error(INSIDE, &init, 48));
    // Without the initiate tag, anybody could have written it (RFC 9260 section 10).
    dropped(&mut mmb, B, &error(INSIDE, &init, 28), DropReason::IcmpUnrelated);
    let other = associated(true, 0, |packet| packet.init(1, 0x12));
    dropped(&mut mmb, B, &error(INSIDE, &other, 48), DropReason::IcmpUnrelated);
    through(&mut mmb, B, &associated(false, 0x11, |packet| packet.init(2, 0x22)));
    through(&mut mmb, B, &error(INSIDE, &data(true, 0x22), 28));
    dropped(&mut mmb, B, &error(INSIDE, &data(true, 0x23), 28), DropReason::IcmpUnrelated);
}

/// What an IP packet carries, cut off behind so many bytes.
fn cut(upper: Upper, len: usize) -> Upper {
    let whole = Ip4::new(upper).bytes();
    Upper::Raw(whole[9], whole[20..][..len].to_vec())
}

#[test]
fn what_ends_inside_its_header_is_no_answer() {
    let truncated = DropReason::Malformed(Malformed::L4Truncated);
    for (invalid, (name, build)) in ["", "set conn invalid drop\n"]
        .into_iter()
        .flat_map(|invalid| WITH_PORTS.into_iter().map(move |with| (invalid, with)))
    {
        let (engine, mut mmb) = engine(&format!("{invalid}{REFLEXIVE}"));
        through(&mut mmb, A, &ip4(INSIDE, SERVER, build(5000, 80)));
        let header = if name == "UDP-Lite" { 8 } else { 12 };
        for len in [0, 3, 4, 7, 8, 11].into_iter().filter(|len| *len < header) {
            dropped(&mut mmb, B, &ip4(SERVER, INSIDE, cut(build(80, 5000), len)), truncated);
            dropped(&mut mmb, A, &ip4(INSIDE, SERVER, cut(build(5001, 80), len)), truncated);
        }
        through(&mut mmb, A, &ip4(INSIDE, SERVER, build(5000, 80)));
        let summary = engine.connections().summary();
        assert_eq!((summary.created, summary.half_open), (1, 1), "{name}");
        through(&mut mmb, B, &ip4(SERVER, INSIDE, build(80, 5000)));
    }
}

#[test]
fn what_ends_inside_its_header_does_not_leave_untranslated() {
    for (name, build) in WITH_PORTS {
        let (engine, mut mmb) = engine(NAT);
        let first = cut(build(5000, 80), 4);
        dropped(&mut mmb, A, &ip4(INSIDE, SERVER, first), DropReason::Malformed(Malformed::L4Truncated));
        assert_eq!(engine.connections().summary().created, 0, "{name}");
    }
}
