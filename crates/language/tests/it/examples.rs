//! The commands of the original user guide and of the papers parse and mean what they say.

use mmb_language::{Command, parse_command};
use mmb_policy::rule::{Cond, DropRate, NumberItem, NumberSet, Write};
use mmb_policy::{Field, FieldId, Match, Rule, Target, Test};

fn rule(line: &str) -> Rule {
    match parse_command(line) {
        Ok((Command::Add(rule), _)) => *rule,
        Ok((other, _)) => panic!("{line}: {other:?}"),
        Err(errors) => {
            panic!("{}", errors.iter().map(|error| error.render("example", line)).collect::<String>())
        }
    }
}

fn field(id: FieldId) -> Field {
    Field::new(id)
}

fn present(id: FieldId) -> Match {
    Match { negated: false, field: field(id), test: Test::Present }
}

fn absent(id: FieldId) -> Match {
    Match { negated: true, ..present(id) }
}

fn compare(id: FieldId, cond: Cond, item: NumberItem) -> Match {
    Match { negated: false, field: field(id), test: Test::Number(cond, NumberSet(vec![item])) }
}

fn is(id: FieldId, n: u128) -> Match {
    compare(id, Cond::Eq, NumberItem::One(n))
}

fn is_not(id: FieldId, n: u128) -> Match {
    compare(id, Cond::Ne, NumberItem::One(n))
}

fn write(id: FieldId, n: u128) -> Target {
    Target::Mod(field(id), Write::Number(n))
}

const DROP: Target = Target::Drop(DropRate::ALL);
const NET_10: NumberItem = NumberItem::Prefix(0x0a00_0000, 24);

#[track_caller]
fn means(line: &str, matches: &[Match], targets: &[Target]) {
    let rule = rule(line);
    assert_eq!(rule.matches, matches, "{line}");
    assert_eq!(rule.targets, targets, "{line}");
    assert_eq!(rule.stateful, line.contains("add-stateful"), "{line}");
    assert_eq!((rule.id, rule.prio, rule.name), (None, 100, None), "{line}");
}

#[test]
fn the_user_guide() {
    use FieldId::{IpEcn, IpProto, TcpDport, TcpOpt, TcpOptMss, TcpOptTimestamp, TcpOptWscale};
    means("add all mod ip-ecn 0", &[], &[write(IpEcn, 0)]);
    means("add ip-proto udp drop", &[is(IpProto, 17)], &[DROP]);
    means("add ip-proto != tcp drop", &[is_not(IpProto, 6)], &[DROP]);
    means("add ip-proto != udp ip-proto != tcp drop", &[is_not(IpProto, 17), is_not(IpProto, 6)], &[DROP]);
    means("add tcp-dport 80 mod tcp-dport 443", &[is(TcpDport, 80)], &[write(TcpDport, 443)]);
    means("add tcp-opt-mss strip tcp-opt-mss", &[present(TcpOptMss)], &[Target::Strip(2)]);
    means(
        "add tcp-opt-mss > 1500 mod tcp-opt-mss 1460",
        &[compare(TcpOptMss, Cond::Gt, NumberItem::One(1500))],
        &[write(TcpOptMss, 1460)],
    );
    means("add tcp-opt strip ! tcp-opt-mss", &[present(TcpOpt)], &[Target::Keep(2)]);
    means("add tcp-opt-timestamp strip all", &[present(TcpOptTimestamp)], &[Target::StripAll]);
    means(
        "add tcp-opt strip tcp-opt-mss strip tcp-opt-wscale",
        &[present(TcpOpt)],
        &[Target::Strip(2), Target::Strip(3)],
    );
    means(
        "add tcp-opt ! tcp-opt-mss ! tcp-opt-wscale drop",
        &[present(TcpOpt), absent(TcpOptMss), absent(TcpOptWscale)],
        &[DROP],
    );
    means("add ! tcp-opt-mss ! tcp-opt-wscale drop", &[absent(TcpOptMss), absent(TcpOptWscale)], &[DROP]);
    let kind_22 = Match { negated: false, field: Field::option(22), test: Test::Present };
    means("add tcp-opt 22 drop", &[kind_22], &[DROP]);
}

#[test]
fn the_papers() {
    use FieldId::{IpProto, IpSaddr, TcpDport, TcpOptTimestamp, TcpSport, TcpSyn};
    means("mmb add tcp-dport 80 mod tcp-dport 443", &[is(TcpDport, 80)], &[write(TcpDport, 443)]);
    // As copied from a typeset page, with its minus signs.
    means(
        "mmb add tcp\u{2212}dport 80 mod tcp\u{2212}dport 443",
        &[is(TcpDport, 80)],
        &[write(TcpDport, 443)],
    );
    means(
        "mmb add tcp-opt-timestamp strip ! tcp-opt-mss strip ! tcp-opt-wscale",
        &[present(TcpOptTimestamp)],
        &[Target::Keep(2), Target::Keep(3)],
    );
    means(
        "mmb add-stateful ip-saddr 10.0.0.0/24 ip-proto tcp tcp-syn shuffle tcp-sport mod ip-saddr 200.0.0.1",
        &[compare(IpSaddr, Cond::Eq, NET_10), is(IpProto, 6), present(TcpSyn)],
        &[Target::Shuffle(field(TcpSport), None), write(IpSaddr, 0xc800_0001)],
    );
}

#[test]
fn host_bits_under_a_prefix_are_masked_with_a_note() {
    use FieldId::{IpProto, IpSaddr};
    let line = "add-stateful ip-proto tcp ip-saddr 10.0.0.10/24 accept";
    means(line, &[is(IpProto, 6), compare(IpSaddr, Cond::Eq, NET_10)], &[Target::Accept]);
    let (_, notes) = parse_command(line).expect("parses");
    let rendered: String = notes.iter().map(|note| note.render("line", line)).collect();
    assert_eq!(
        rendered,
        "\
note: `10.0.0.10/24` has host bits set; taken as `10.0.0.0/24`
 --> line:1:36
  |
1 | add-stateful ip-proto tcp ip-saddr 10.0.0.10/24 accept
  |                                    ^^^^^^^^^^^^
"
    );
}

#[test]
fn every_form_of_value() {
    let items = |text: &str| match rule(&format!("add {text} drop")).matches.remove(0).test {
        Test::Number(_, set) => set.0,
        other => panic!("{other:?}"),
    };
    use NumberItem::{One, Prefix, Range};
    for text in ["tcp-dport 443", "tcp-dport 0x1bb", "tcp-dport x1bb", "tcp-dport X1BB", "tcp-dport https"] {
        assert_eq!(items(text), [One(443)], "{text}");
    }
    assert_eq!(items("tcp-dport {80, http-alt,0x10-20}"), [One(80), One(8080), Range(16, 20)]);
    assert_eq!(items("ip-dscp af11-ef"), [Range(10, 46)]);
    assert_eq!(items("ip-saddr 10.0.0.1-10.0.0.9"), [Range(0x0a00_0001, 0x0a00_0009)]);
    assert_eq!(items("ip-saddr {10.0.0.1, 10.1.0.0/16}"), [One(0x0a00_0001), Prefix(0x0a01_0000, 16)]);
    assert_eq!(items("ip6-saddr 2001:db8::/32"), [Prefix(0x2001_0db8 << 96, 32)]);
    assert_eq!(items("ip6-daddr ::1-::ff"), [Range(1, 255)]);
    assert_eq!(items("tcp-opt-timestamp 18446744073709551615"), [One(u128::from(u64::MAX))]);
    assert_eq!(items("tcp-flags syn-ack"), [One(0x12)]);
    assert_eq!(items("icmp6-type echo-request"), [One(128)]);
    let strings = |text: &str| match rule(&format!("add {text} drop")).matches.remove(0).test {
        Test::Bytes(_, strings) => strings,
        other => panic!("{other:?}"),
    };
    assert_eq!(strings("payload \"GET # \\\"\\\\\\x00\\n\""), [b"GET # \"\\\0\n"]);
    assert_eq!(strings("udp-payload |de ad beef|"), [[0xde, 0xad, 0xbe, 0xef]]);
    assert_eq!(strings("payload {\"a\", |62|}"), [b"a", b"b"]);
    assert_eq!(strings("tcp-opt-fast-open ||"), [b""]);
}

#[test]
fn blanks_comments_and_joined_lines() {
    let plain = rule("add tcp-dport > 80 ! tcp-syn tcp-sport != 80 drop 12.5");
    assert_eq!(rule("mmb add-stateless tcp-dport>80 !tcp-syn tcp-sport!=80 drop 12.5% # why"), plain);
    assert_eq!(rule("add tcp-dport > 80 \\\n ! tcp-syn \\ \r\n\ttcp-sport != 80 drop 12.5\r\n"), plain);
    assert_eq!(rule("\u{feff}# first\n\nadd tcp-dport>80 !tcp-syn tcp-sport!=80 drop 12.500#\n"), plain);
}

#[test]
fn options_by_kind_are_the_named_ones() {
    assert_eq!(rule("add tcp-opt 2 5 strip tcp-opt 3"), rule("add tcp-opt-mss 5 strip tcp-opt-wscale"));
    assert_eq!(rule("add tcp-opt x16 > 5 drop").matches[0].field, Field::option(22));
}

#[test]
fn added_options_have_the_width_of_their_kind() {
    let data = |text: &str| match rule(&format!("add all {text}")).targets.remove(0) {
        Target::AddOption(kind, data) => (kind, data),
        other => panic!("{other:?}"),
    };
    assert_eq!(data("add tcp-opt-mss 5"), (2, vec![0, 5]));
    assert_eq!(data("add tcp-opt-wscale 7"), (3, vec![7]));
    assert_eq!(data("add tcp-opt-sackp"), (4, vec![]));
    assert_eq!(data("add tcp-opt-timestamp 1"), (8, vec![0, 0, 0, 0, 0, 0, 0, 1]));
    assert_eq!(data("add tcp-opt-fast-open"), (34, vec![]));
    assert_eq!(data("add tcp-opt 253 256"), (253, vec![1, 0]));
    assert_eq!(data("add tcp-opt 253 |00 07|"), (253, vec![0, 7]));
    assert_eq!(data("add tcp-opt-mss |01|"), (2, vec![1]));
}

#[test]
fn attributes_and_percentages() {
    let full = rule("add name web-1 prio 0 id 4294967295 all drop 0.001");
    assert_eq!((full.id.map(|id| id.0), full.prio, full.name.as_deref()), (Some(u32::MAX), 0, Some("web-1")));
    assert_eq!(full.targets, [Target::Drop(DropRate(1))]);
    for (text, rate) in
        [("drop", 100_000), ("drop 100", 100_000), ("drop 12.5%", 12_500), ("drop .5", 500), ("drop 0", 0)]
    {
        assert_eq!(rule(&format!("add all {text}")).targets, [Target::Drop(DropRate(rate))], "{text}");
    }
}
