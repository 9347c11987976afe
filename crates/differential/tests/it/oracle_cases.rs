//! The oracle against cases worked out by hand: what goes in and what must come out are both built field by field.
//! The engine has to agree on each of them.

use mmb_differential::oracle::{OraclePacket, OracleVerdict, evaluate};
use mmb_differential::{DifferentialTest, Incoming};
use mmb_engine::{DropReason, Forward, PortSpec, PortTable, Verdict};
use mmb_language::parse_policy;
use mmb_packet::{LinkType, Malformed, PortId};
use mmb_policy::{Policy, RuleId};
use mmb_rewrite::NotApplied;
use mmb_testkit::frame::tcp_option;
use mmb_testkit::{Checksum, Extension, FragmentHeader, Frame, Icmp, Ip4, Ip6, Network, Tcp, Udp, Upper};

const MSS_1460: [u8; 4] = [2, 4, 0x05, 0xb4];
const MSS_1400: [u8; 4] = [2, 4, 0x05, 0x78];

fn ports() -> PortTable {
    let port =
        |name: &str, peer| PortSpec { name: name.to_owned(), mtu: Some(100), forward: Forward::from(peer) };
    PortTable(vec![port("a", Some(PortId(1))), port("b", Some(PortId(0))), port("c", None)])
}

fn policy(text: &str) -> Policy {
    match parse_policy(text) {
        Ok((policy, _)) => policy,
        Err(errors) => panic!("{text}: {errors:?}"),
    }
}

/// A draw that no percentage below 100 drops at.
fn spared() -> u32 {
    99_999
}

/// The verdict of the oracle. The engine must return the same one.
fn evaluate_bytes(text: &str, bytes: &[u8], link: LinkType) -> OracleVerdict {
    evaluate_with_headroom(text, bytes, link, 64)
}

fn evaluate_with_headroom(text: &str, bytes: &[u8], link: LinkType, headroom: usize) -> OracleVerdict {
    let policy = policy(text);
    let incoming = Incoming { port: PortId(0), link, headroom, bytes: bytes.to_vec() };
    let mut test = DifferentialTest::new(ports(), 0);
    assert_eq!(test.publish(&policy), Ok(()), "{text}");
    if let Err(difference) = test.run(std::slice::from_ref(&incoming)) {
        panic!("{difference}");
    }
    evaluate(&policy, &ports(), &incoming.received(), &mut spared)
}

fn evaluate_frame(text: &str, frame: &Frame) -> OracleVerdict {
    evaluate_bytes(text, &frame.bytes(), frame.link)
}

/// Whether a rule with these constraints matches.
fn matches(constraints: &str, frame: &Frame) -> bool {
    !evaluate_frame(&format!("add {constraints} accept"), frame).matched.is_empty()
}

fn assert_becomes(text: &str, before: &Frame, after: &Frame) {
    let actual = evaluate_frame(text, before);
    assert_eq!(actual.verdict, Verdict::Send(PortId(1)), "{text}");
    assert_eq!(actual.bytes, after.bytes(), "{text}");
    assert_eq!(actual.not_applied, [], "{text}");
}

fn assert_not_applied(text: &str, frame: &Frame, reason: NotApplied) {
    let actual = evaluate_frame(text, frame);
    assert_eq!(actual.bytes, frame.bytes(), "{text}");
    assert_eq!(actual.not_applied, [reason], "{text}");
}

fn ip4(upper: Upper, change: impl FnOnce(&mut Ip4)) -> Frame {
    let mut ip = Ip4::new(upper);
    change(&mut ip);
    ip.frame()
}

fn ip6(upper: Upper, change: impl FnOnce(&mut Ip6)) -> Frame {
    let mut ip = Ip6::new(upper);
    change(&mut ip);
    ip.frame()
}

fn tcp() -> Upper {
    Upper::Tcp(Tcp::default())
}

fn udp() -> Upper {
    Upper::Udp(Udp::default())
}

/// TCP with these options.
fn tcp_with(area: &[u8]) -> Tcp {
    Tcp::default().raw_options(area)
}

// What rules match.

#[test]
fn a_field_implies_its_protocol_negated_or_not() {
    let (tcp, udp) = (Tcp::default().over_ip4(), Udp::default().over_ip4());
    assert!(matches("tcp-dport 80", &tcp));
    assert!(!matches("! tcp-dport 80", &tcp));
    assert!(matches("! tcp-dport 443", &tcp));
    assert!(!matches("! tcp-dport 443", &udp));
    assert!(!matches("tcp-dport != 443", &udp));
    assert!(!matches("! ip-saddr 192.168.0.0/16", &Tcp::default().over_ip6()));
}

#[test]
fn frames_that_are_not_ip_are_for_rules_that_name_an_ether_type() {
    let arp = Frame::arp().vlan(5);
    assert!(matches("eth-type arp", &arp));
    assert!(matches("eth-type arp vlan-id 5", &arp));
    assert!(matches("eth-type != ip4", &arp));
    for about_ip in ["all", "in a", "vlan-id 5", "! vlan-id 6", "eth-type != ip4 net-proto != ip4"] {
        assert!(!matches(about_ip, &arp), "{about_ip}");
    }
    assert!(matches("eth-type ip4", &Udp::default().over_ip4()));
}

#[test]
fn vlan_tests_are_about_the_outermost_tag() {
    let untagged = Udp::default().over_ip4();
    let tagged = Udp::default().over_ip4().vlan(5).service_vlan(7);
    for (constraint, of_untagged, of_tagged) in [
        ("vlan-id", false, true),
        ("! vlan-id", true, false),
        ("vlan-id 7", false, true),
        ("vlan-id 5", false, false),
        ("! vlan-id 7", true, false),
        ("! vlan-id 5", true, true),
        ("vlan-id != 7", false, false),
        ("vlan-id != 5", false, true),
    ] {
        assert_eq!(matches(constraint, &untagged), of_untagged, "{constraint} on an untagged frame");
        assert_eq!(matches(constraint, &tagged), of_tagged, "{constraint} on a tagged frame");
    }
}

#[test]
fn option_tests_hold_where_any_instance_passes() {
    let none = Tcp::default().over_ip4();
    let one = tcp_with(&MSS_1460).over_ip4();
    let two = tcp_with(&[MSS_1460, MSS_1400].concat()).over_ip4();
    for (constraint, of_none, of_one, of_two) in [
        ("tcp-opt", false, true, true),
        ("tcp-opt-mss", false, true, true),
        ("! tcp-opt-mss", true, false, false),
        ("tcp-opt-mss 1460", false, true, true),
        ("tcp-opt-mss != 1460", false, false, true),
        ("! tcp-opt-mss 1460", true, false, false),
        ("! tcp-opt-mss 1400", true, true, false),
        ("tcp-opt-mss < 1460", false, false, true),
        ("tcp-opt-mss |05 78|", false, false, true),
        ("tcp-opt 2", false, true, true),
        ("tcp-opt 22", false, false, false),
    ] {
        assert_eq!(matches(constraint, &none), of_none, "{constraint} without an option");
        assert_eq!(matches(constraint, &one), of_one, "{constraint} on one");
        assert_eq!(matches(constraint, &two), of_two, "{constraint} on two");
    }
}

#[test]
fn option_data_of_no_or_many_bytes_is_no_number() {
    for data in [&[][..], &[5; 9]] {
        let frame = Tcp::default().option(22, data).over_ip4();
        assert!(matches("tcp-opt 22", &frame));
        assert!(!matches("tcp-opt 22 5", &frame));
        assert!(!matches("tcp-opt 22 != 5", &frame));
    }
    assert!(matches("tcp-opt 22 5", &Tcp::default().option(22, &[0, 0, 5]).over_ip4()));
}

#[test]
fn options_behind_an_end_or_a_bad_length_do_not_count() {
    let behind_end = tcp_with(&[1, 0, 2, 4, 5, 0xb4, 0, 0]).over_ip4();
    assert!(!matches("tcp-opt-mss", &behind_end));
    assert!(!matches("tcp-opt", &behind_end));
    assert!(matches("tcp-opt 0", &behind_end));
    assert!(matches("tcp-opt 1", &behind_end));
    let behind_bad = tcp_with(&[3, 3, 7, 8, 1, 2, 4, 5]).over_ip4();
    assert!(matches("tcp-opt-wscale 7", &behind_bad));
    assert!(!matches("tcp-opt-timestamp", &behind_bad));
    assert!(!matches("tcp-opt 0", &behind_bad));
}

#[test]
fn payloads_end_where_ip_or_udp_say() {
    let tcp = Tcp::default().payload(b"GET /").over_ip4().trailer(b"xx");
    assert!(matches("tcp-payload \"GET\"", &tcp));
    assert!(matches("tcp-payload != \"PUT\"", &tcp));
    assert!(!matches("tcp-payload \"GET /x\"", &tcp));
    let empty = Tcp::default().over_ip4().trailer(b"GET");
    assert!(!matches("tcp-payload", &empty));
    assert!(matches("! tcp-payload", &empty));
    assert!(!matches("tcp-payload != \"PUT\"", &empty));
    let short = Udp { len: Some(9), ..Udp::default().payload(b"ab") }.over_ip4();
    assert!(matches("udp-payload \"a\"", &short));
    assert!(!matches("udp-payload \"ab\"", &short));
    assert!(matches("payload |61|", &short));
    let lie = Udp { len: Some(3), ..Udp::default().payload(b"ab") }.over_ip4();
    assert!(!matches("udp-payload", &lie));
    let gre = ip4(Upper::Raw(47, vec![0, 0, 8, 0]), |_| {});
    assert!(matches("payload |00 00 08|", &gre));
}

#[test]
fn a_later_fragment_has_no_transport_header() {
    let later = ip4(Upper::Raw(6, b"GET".to_vec()), |ip| ip.frag_offset = 185);
    for constraint in ["tcp-dport 80", "! tcp-dport 80", "payload", "! payload", "tcp-opt", "! tcp-opt-mss"] {
        assert!(!matches(constraint, &later), "{constraint}");
    }
    for constraint in ["ip-proto tcp", "ip-frag-offset 185", "ip-payload \"GET\"", "all"] {
        assert!(matches(constraint, &later), "{constraint}");
    }
    let fragment = |offset, more| vec![Extension::Fragment(FragmentHeader { offset, more })];
    let later6 = ip6(Upper::Raw(17, vec![0; 8]), |ip| ip.extensions = fragment(2, true));
    assert!(matches("ip-proto udp ip6-eh-fragment", &later6));
    assert!(!matches("udp-sport 0", &later6));
    let atomic = ip6(udp(), |ip| ip.extensions = fragment(0, false));
    assert!(matches("udp-dport 53 ip6-eh-fragment", &atomic));
}

#[test]
fn extension_headers_are_walked_to_the_transport_header() {
    let chain = vec![
        Extension::Plain(0, vec![]),
        Extension::Plain(60, vec![1; 20]),
        Extension::Authentication(3),
        Extension::Plain(135, vec![]),
    ];
    let frame = ip6(tcp(), |ip| ip.extensions = chain);
    let all = "tcp-dport 80 ip6-next 0 ip-proto tcp ip6-eh ip6-eh-ah ip6-eh-mobility ! ip6-eh-routing";
    assert!(matches(all, &frame));
    let esp = ip6(Upper::Raw(6, vec![0; 20]), |ip| ip.extensions = vec![Extension::EncapsulatingSecurity]);
    assert!(matches("ip-proto esp ip6-eh-esp", &esp));
    assert!(!matches("tcp-sport 0", &esp));
    assert!(!matches("ip6-eh", &Tcp::default().over_ip6()));
    assert!(!matches("! ip6-eh", &Tcp::default().over_ip4()));
}

// Verdicts.

#[test]
fn the_best_priority_decides_and_accept_wins_a_tie() {
    let frame = Tcp::default().over_ip4();
    let dropped = |text| evaluate_frame(text, &frame).verdict == Verdict::Drop(DropReason::Rule);
    assert!(dropped("add all drop"));
    assert!(!dropped("add all drop\nadd tcp-dport 80 accept"));
    assert!(!dropped("add tcp-dport 80 accept\nadd all drop"));
    assert!(dropped("add prio 5 all drop\nadd prio 6 all accept"));
    assert!(!dropped("add prio 6 all drop\nadd prio 5 all accept"));
    assert!(!dropped("add tcp-dport 443 drop"));
}

#[test]
fn all_matching_rules_count_even_on_a_drop() {
    let text = "add id 7 prio 9 all drop\nadd id 9 all accept\nadd id 3 udp-dport 1 drop";
    assert_eq!(evaluate_frame(text, &Tcp::default().over_ip4()).matched, [RuleId(7), RuleId(9)]);
}

#[test]
fn a_percentage_that_spares_leaves_the_decision_to_worse_rules() {
    let text =
        "add prio 1 all drop 50\nadd prio 2 all drop 0.001\nadd prio 3 all accept\nadd prio 4 all drop";
    let frame = Tcp::default().over_ip4().bytes();
    let received = OraclePacket { bytes: &frame, headroom: 0, port: PortId(0), link: LinkType::Ethernet };
    let with = |draws: [u32; 2]| {
        let mut draws = draws.into_iter();
        let mut draw = || draws.next().expect("two percentages, two draws");
        let verdict = evaluate(&policy(text), &ports(), &received, &mut draw).verdict;
        assert_eq!(draws.next(), None, "each percentage draws");
        verdict
    };
    assert_eq!(with([49_999, 1]), Verdict::Drop(DropReason::Rule));
    assert_eq!(with([50_000, 0]), Verdict::Drop(DropReason::Rule));
    assert_eq!(with([50_000, 1]), Verdict::Send(PortId(1)));
}

#[test]
fn where_packets_cannot_go() {
    let long = Udp::default().payload(&[0; 73]).over_ip4();
    assert_eq!(evaluate_frame("add all mod ip-ttl 9", &long).verdict, Verdict::Drop(DropReason::MtuExceeded));
    let fits = Udp::default().payload(&[0; 72]).over_ip4().vlan(1).trailer(&[0; 50]);
    assert_eq!(evaluate_frame("", &fits).verdict, Verdict::Send(PortId(1)));
    let bytes = fits.bytes();
    let received = OraclePacket { bytes: &bytes, headroom: 0, port: PortId(2), link: LinkType::Ethernet };
    let verdict = |text: &str| evaluate(&policy(text), &ports(), &received, &mut spared).verdict;
    assert_eq!(verdict(""), Verdict::Drop(DropReason::NoWire));
    assert_eq!(verdict("add in c drop"), Verdict::Drop(DropReason::Rule));
}

#[test]
fn a_disabled_port_lets_everything_by() {
    let actual = evaluate_bytes("disable a\nadd all drop", &[1, 2, 3], LinkType::Ethernet);
    assert_eq!(actual.verdict, Verdict::Send(PortId(1)));
    assert_eq!(actual.matched, []);
    assert_eq!(actual.bytes, [1, 2, 3]);
}

#[test]
fn malformed_packets_have_a_reason() {
    use Malformed::*;
    let with_offset = |offset| Upper::Tcp(Tcp { offset: Some(offset), ..Tcp::default() });
    let first4 = |upper| ip4(upper, |ip| ip.flags = 1);
    let fragment = Extension::Fragment(FragmentHeader { offset: 0, more: true });
    for (frame, expected) in [
        (Frame::arp().vlan(1).vlan(2).vlan(3).vlan(4).vlan(5), VlanStackTooDeep),
        (ip4(tcp(), |ip| ip.version = 5), IpBadVersion),
        (ip4(tcp(), |ip| ip.ihl = Some(4)), Ip4BadLength),
        (ip4(tcp(), |ip| ip.total_len = Some(19)), Ip4BadLength),
        (ip4(tcp(), |ip| ip.total_len = Some(41)), Ip4Truncated),
        (ip4(tcp(), |ip| ip.checksum = Checksum::Off(1)), Ip4BadChecksum),
        (ip4(Upper::Raw(6, vec![0; 19]), |_| {}), L4Truncated),
        (ip4(Upper::Raw(1, vec![0; 7]), |_| {}), L4Truncated),
        (ip4(with_offset(4), |_| {}), TcpBadOffset),
        (ip4(with_offset(6), |_| {}), TcpBadOffset),
        (first4(Upper::Raw(17, vec![0; 7])), TinyFragment),
        (first4(with_offset(6)), TinyFragment),
        (ip6(Upper::Raw(58, vec![0; 7]), |ip| ip.extensions.push(fragment)), TinyFragment),
        (ip6(udp(), |ip| ip.version = 4), IpBadVersion),
        (ip6(udp(), |ip| ip.payload_len = Some(9)), Ip6Truncated),
        (ip6(Upper::Raw(60, vec![6, 1, 0, 0, 0, 0, 0, 0]), |_| {}), Ip6HeaderTruncated),
        (ip6(Upper::Raw(0, vec![6]), |_| {}), Ip6HeaderTruncated),
        (ip6(udp(), |ip| ip.extensions = vec![Extension::Plain(60, vec![]); 17]), Ip6ChainTooLong),
    ] {
        let verdict = evaluate_frame("add all accept", &frame).verdict;
        assert_eq!(verdict, Verdict::Drop(DropReason::Malformed(expected)), "{frame:?}");
    }
    let whole = ip6(udp(), |ip| ip.extensions = vec![Extension::Plain(60, vec![]); 3]);
    assert_eq!(evaluate_frame("set ip6-max-headers 3", &whole).verdict, Verdict::Send(PortId(1)));
    let cut =
        |len: usize| evaluate_bytes("", &Frame::arp().vlan(1).bytes()[..len], LinkType::Ethernet).verdict;
    assert_eq!(cut(13), Verdict::Drop(DropReason::Malformed(LinkTruncated)));
    assert_eq!(cut(17), Verdict::Drop(DropReason::Malformed(LinkTruncated)));
    assert_eq!(cut(18), Verdict::Send(PortId(1)));
}

// Rewriting.

#[test]
fn fields_are_written_with_their_checksums() {
    let with_tos = |tos| ip4(tcp(), |ip| ip.tos = tos);
    assert_becomes("add all mod ip-ecn 0", &with_tos(0xbb), &with_tos(0xb8));
    assert_becomes(
        "add tcp-dport 80 mod tcp-dport 443 mod tcp-ece 1",
        &Tcp::default().payload(b"odd").over_ip6(),
        &Tcp::default().dport(443).flags(0x42).payload(b"odd").over_ip6(),
    );
    let to4 = |address: &str| ip4(udp(), |ip| ip.destination = address.parse().expect("an address"));
    assert_becomes("add all mod ip-daddr 192.168.1.1", &to4("10.0.0.2"), &to4("192.168.1.1"));
    let to6 = |address: &str| ip6(udp(), |ip| ip.destination = address.parse().expect("an address"));
    assert_becomes("add all mod ip6-daddr fe80::1", &to6("2001:db8::2"), &to6("fe80::1"));
    let echo = |icmp_type| Icmp { icmp_type, ..Icmp::default() };
    assert_becomes("add all mod icmp-type 0", &echo(8).over_ip4(), &echo(0).over_ip4());
    assert_becomes("add all mod icmp6-type 129", &echo(128).over_ip6(), &echo(129).over_ip6());
    assert_becomes("add all mod vlan-id 9", &Frame::lldp().vlan(2), &Frame::lldp().vlan(2));
    let tagged = |outer| Udp::default().over_ip4().vlan(1).vlan(outer);
    assert_becomes("add all mod vlan-id 9", &tagged(2), &tagged(9));
    assert_becomes("add all mod vlan-id 9", &tagged(2).link(LinkType::Sll), &tagged(9).link(LinkType::Sll));
}

#[test]
fn a_target_about_a_field_that_is_not_there_does_nothing() {
    let udp = Udp::default().over_ip4();
    assert_becomes("add all mod tcp-dport 1 mod ip6-hop-limit 3 mod vlan-id 4 strip all", &udp, &udp);
    let later = ip4(Upper::Raw(6, vec![0; 8]), |ip| ip.frag_offset = 1);
    assert_becomes("add all mod tcp-dport 1 mod payload |ff|", &later, &later);
}

#[test]
fn a_later_rule_wins() {
    let text = "add prio 2 all mod tcp-dport 1\n\
                add id 9 prio 3 all mod tcp-dport 2\n\
                add id 8 prio 3 all mod tcp-dport 3 mod tcp-dport 4";
    assert_becomes(text, &Tcp::default().over_ip4(), &Tcp::default().dport(2).over_ip4());
}

#[test]
fn corrupt_checksums_stay_corrupt_by_as_much() {
    let tcp = |dport| Tcp { dport, checksum: Checksum::Off(0x1234), ..Tcp::default() }.over_ip4();
    assert_becomes("add all mod tcp-dport 81", &tcp(80), &tcp(81));
    let none = |dport| Udp { dport, checksum: Checksum::Is(0), ..Udp::default() };
    assert_becomes("add all mod udp-dport 54", &none(53).over_ip4(), &none(54).over_ip4());
    assert_becomes("add all mod udp-dport 54", &none(53).over_ip6(), &none(54).over_ip6());
}

#[test]
fn a_udp_checksum_never_becomes_zero() {
    let before = Udp { checksum: Checksum::Is(80 - 53), ..Udp::default() };
    let after = Udp { dport: 80, checksum: Checksum::Is(0xffff), ..Udp::default() };
    assert_becomes("add all mod udp-dport 80", &before.clone().over_ip4(), &after.clone().over_ip4());
    assert_becomes("add all mod udp-dport 80", &before.over_ip6(), &after.over_ip6());
    let tcp = |dport, checksum| Tcp { dport, checksum: Checksum::Is(checksum), ..Tcp::default() }.over_ip4();
    assert_becomes("add all mod tcp-dport 443", &tcp(80, 443 - 80), &tcp(443, 0));
}

#[test]
fn a_value_that_is_there_already_changes_nothing() {
    let odd_zero = Tcp { checksum: Checksum::Is(0xffff), ..Tcp::default() }.over_ip4();
    assert_becomes("add all mod tcp-dport 80 mod ip-ttl 64", &odd_zero, &odd_zero);
}

#[test]
fn changes_that_cancel_out_leave_a_checksum_of_all_ones() {
    let tcp =
        |sport, dport| Tcp { sport, dport, checksum: Checksum::Is(0xffff), ..Tcp::default() }.over_ip4();
    assert_becomes("add all mod tcp-sport 80 mod tcp-dport 1000", &tcp(1000, 80), &tcp(80, 1000));
}

#[test]
fn the_udp_length_is_in_the_checksum_twice() {
    let udp = |len, checksum| {
        let udp = Udp { len: Some(len), checksum: Checksum::Is(checksum), ..Udp::default() };
        udp.payload(b"abcd").over_ip4()
    };
    assert_becomes("add all mod udp-len 10", &udp(12, 0x1000), &udp(10, 0x1000 + 2 * 2));
    // Bytes 4 and 5 of the IP payload are the UDP length.
    let ports = "03 e8 00 35";
    let text = format!("add all mod ip-payload |{ports} 00 0a|");
    assert_becomes(&text, &udp(12, 0x1000), &udp(10, 0x1000 + 2 * 2));
}

#[test]
fn the_protocol_is_part_of_the_checksum() {
    let before = ip6(udp(), |ip| ip.extensions = vec![Extension::Plain(60, vec![])]).bytes();
    let mut after = before.clone();
    after[14 + 40] = 136;
    let checksum = u16::from_be_bytes([before[68], before[69]]) - (136 - 17);
    after[68..70].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(evaluate_bytes("add all mod ip-proto udplite", &before, LinkType::Ethernet).bytes, after);
}

#[test]
fn an_address_on_a_source_route_is_not_in_the_checksum() {
    let routed = |left, to: &str| {
        ip6(udp(), |ip| {
            ip.extensions = vec![Extension::Routing(0, left)];
            ip.destination = to.parse().expect("an address");
        })
    };
    assert_becomes("add all mod ip6-daddr fe80::1", &routed(1, "2001:db8::2"), &routed(1, "fe80::1"));
    assert_becomes("add all mod ip6-daddr fe80::1", &routed(0, "2001:db8::2"), &routed(0, "fe80::1"));
}

#[test]
fn raw_fields_are_written_last_and_as_they_are() {
    let after = ip4(Upper::Tcp(Tcp { checksum: Checksum::Is(9), ..Tcp::default() }), |ip| {
        ip.ttl = 1;
        ip.checksum = Checksum::Is(7);
    });
    let text = "add all mod ip-checksum 7 mod tcp-checksum 9 mod ip-ttl 1";
    assert_becomes(text, &Tcp::default().over_ip4(), &after);
    let text = "add all mod ip-len 30 strip tcp-opt-mss";
    assert_becomes(text, &tcp_with(&MSS_1460).over_ip4(), &ip4(tcp(), |ip| ip.total_len = Some(30)));
}

#[test]
fn payloads_are_overwritten_from_their_start() {
    assert_becomes(
        "add all mod tcp-payload \"PUT\"",
        &Tcp::default().payload(b"GET /").over_ip4().trailer(b"trail"),
        &Tcp::default().payload(b"PUT /").over_ip4().trailer(b"trail"),
    );
    let short = Udp::default().payload(b"ab").over_ip4().trailer(b"cd");
    assert_not_applied("add all mod udp-payload \"abc\"", &short, NotApplied::PayloadShort);
}

// Options.

#[test]
fn options_are_stripped_added_and_changed() {
    let both = [&MSS_1460[..], &[1, 3, 3, 7]].concat();
    for (targets, before, after) in [
        ("strip tcp-opt-mss", &both[..], &[3, 3, 7, 0][..]),
        ("strip ! tcp-opt-mss", &both, &MSS_1460),
        ("strip all", &both, &[]),
        ("strip tcp-opt 1", &both, &[2, 4, 5, 0xb4, 3, 3, 7, 0]),
        ("strip tcp-opt 22", &both, &both),
        ("mod tcp-opt-mss 1400", &[1, 2, 4, 5, 0xb4, 0, 9, 9], &[1, 2, 4, 5, 0x78, 0, 9, 9]),
        ("add tcp-opt-mss 1400", &[1, 1, 0, 9], &MSS_1400),
        ("mod tcp-opt 22 |09|", &[22, 4, 1, 1, 1, 3, 3, 7], &[22, 3, 9, 3, 3, 7, 0, 0]),
        ("strip tcp-opt-mss add tcp-opt 22 |aa bb|", &both, &[3, 3, 7, 22, 4, 0xaa, 0xbb, 0]),
        ("strip ! tcp-opt-wscale strip ! tcp-opt-mss", &both, &both),
    ] {
        let frame = |area: &[u8]| tcp_with(area).payload(b"data").over_ip4().trailer(b"t");
        assert_becomes(&format!("add all {targets}"), &frame(before), &frame(after));
    }
}

#[test]
fn a_malformed_tail_survives_all_but_a_whitelist() {
    let area = [&MSS_1460[..], &[3, 3, 7, 22, 9, 1, 1, 1]].concat();
    let frame = |area: &[u8]| tcp_with(area).over_ip4();
    assert_becomes("add all strip tcp-opt-mss", &frame(&area), &frame(&[3, 3, 7, 22, 9, 1, 1, 1]));
    assert_becomes("add all strip tcp-opt 22", &frame(&area), &frame(&area));
    assert_becomes("add all strip ! tcp-opt-mss", &frame(&area), &frame(&MSS_1460));
    assert_becomes("add all strip all", &frame(&area), &frame(&[]));
}

#[test]
fn options_that_do_not_fit_are_not_written() {
    let full = tcp_with(&tcp_option(253, &[7; 36])).over_ip4();
    assert_not_applied("add all add tcp-opt-mss 1400", &full, NotApplied::OptionSpace);
    let one_byte = tcp_with(&[22, 3, 9]).over_ip4();
    assert_not_applied("add all mod tcp-opt 22 256", &one_byte, NotApplied::OptionWidth);
    let bytes = tcp_with(&MSS_1460).over_ip4().bytes();
    let actual = evaluate_with_headroom("add all add tcp-opt-wscale 7", &bytes, LinkType::Ethernet, 3);
    assert_eq!((actual.bytes, actual.not_applied), (bytes.clone(), vec![NotApplied::NoRoom]));
}

#[test]
fn the_options_of_a_fragment_keep_their_room() {
    let area = [&MSS_1460[..], &[1, 3, 3, 7]].concat();
    // A fragment's checksum covers what is not here, so the builder cannot know it.
    let first = |area: &[u8]| {
        let tcp = Tcp { checksum: Checksum::Is(0x1000), ..tcp_with(area) };
        ip4(Upper::Tcp(tcp), |ip| ip.flags = 1)
    };
    let actual = evaluate_frame("add all strip tcp-opt-mss", &first(&area));
    let mut expected = first(&[3, 3, 7, 0, 0, 0, 0, 0]).bytes();
    // What went was 2 4 5 b4 1 3 3 7 as words, what came 3 3 7 0 0 0 0 0.
    let by = 0x0204 + 0x05b4 + 0x0103 + 0x0307 - (0x0303 + 0x0700);
    expected[50..52].copy_from_slice(&(0x1000u16 + by).to_be_bytes());
    assert_eq!(actual.bytes, expected);
    assert_not_applied("add all add tcp-opt-mss 1400", &first(&area), NotApplied::Fragment);
}

#[test]
fn every_link_header_is_left_in_place() {
    for link in [LinkType::Ethernet, LinkType::RawIp, LinkType::Sll, LinkType::Sll2] {
        let before = tcp_with(&MSS_1460).over_ip4().link(link);
        assert_becomes("add all strip tcp-opt-mss", &before, &Tcp::default().over_ip4().link(link));
    }
    let other = Frame::new(Network::Other(0x88b5, vec![1]));
    assert_becomes("add all mod ip-ttl 1", &other, &other);
}
