//! Random policies, as text of the language.
//!
//! A rule has a theme (a network protocol and a transport protocol), so that its constraints can hold together. The checker
//! nevertheless refuses some lines (`ip-ttl > 255`, a value out of range for its option); the caller omits those.

use super::pool;
use super::sets;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// The text of a policy: named sets, a few rules, sometimes a setting or a disabled port. Rules may name sets that there are not.
pub fn policy() -> BoxedStrategy<Vec<String>> {
    let line = prop_oneof![
        40 => rule(),
        1 => (1u8..20).prop_map(|n| format!("set ip6-max-headers {n}")),
        1 => select(&["a", "b"][..]).prop_map(|port| format!("disable {port}")),
    ];
    (vec(sets::change(), 0..4), vec(line, 0..10)).prop_map(|(sets, lines)| [sets, lines].concat()).boxed()
}

/// The theme of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    Any,
    Ip4,
    Ip6,
}

/// One `add` command.
pub fn rule() -> BoxedStrategy<String> {
    let network = select(&[Network::Any, Network::Any, Network::Ip4, Network::Ip6][..]);
    let upper = prop_oneof![3 => Just("tcp"), 2 => Just("udp"), 1 => Just("icmp"), 2 => Just("none")];
    let rule = (network, upper).prop_flat_map(|(network, upper)| {
        let matches = prop_oneof![
            1 => Just(vec!["all".to_owned()]),
            9 => vec(constraint(network, upper), 1..4),
        ];
        let targets = prop_oneof![
            2 => verdict().prop_map(|verdict| vec![verdict]),
            5 => (vec(write(network, upper), 1..4), prop_oneof![4 => Just(None), 1 => verdict().prop_map(Some)])
                .prop_map(|(mut writes, verdict)| {
                    writes.extend(verdict);
                    writes
                }),
            3 => (option_edits(), vec(write(network, upper), 0..2)).prop_map(|(edits, writes)| [edits, writes].concat()),
        ];
        (prio(), matches, targets)
            .prop_map(|(prio, matches, targets)| format!("add{prio} {} {}", matches.join(" "), targets.join(" ")))
    });
    let others = prop_oneof![2 => link_constraint(), 1 => constraint(Network::Any, "none"), 1 => constraint(Network::Any, "tcp")];
    let frame_rule = (prio(), frame_constraint(), vec(others, 0..3), verdict()).prop_map(
        |(prio, ether, others, verdict)| format!("add{prio} {ether} {} {verdict}", others.join(" ")),
    );
    prop_oneof![12 => rule, 1 => frame_rule].boxed()
}

fn prio() -> BoxedStrategy<&'static str> {
    prop_oneof![3 => Just(""), 1 => select(&[" prio 0", " prio 1", " prio 99", " prio 4294967295"][..])]
        .boxed()
}

fn verdict() -> BoxedStrategy<String> {
    select(
        &[
            "drop",
            "accept",
            "drop 50",
            "drop 0.001",
            "drop 99.999",
            "drop 0",
            "drop 100",
            "accept",
            "log",
            "log \"seen\" drop",
        ][..],
    )
    .prop_map(str::to_owned)
    .boxed()
}

fn constraint(network: Network, upper: &'static str) -> BoxedStrategy<String> {
    let about_network = match network {
        Network::Any => any_constraint(),
        Network::Ip4 => ip4_constraint(),
        Network::Ip6 => ip6_constraint(),
    };
    let about_upper = match (upper, network) {
        ("tcp", _) => prop_oneof![tcp_constraint(), option_constraint()].boxed(),
        ("udp", _) => udp_constraint(),
        ("icmp", Network::Ip6) => icmp_constraint("icmp6"),
        ("icmp", _) => icmp_constraint("icmp"),
        _ => any_constraint(),
    };
    let positive = prop_oneof![3 => about_network, 4 => about_upper, 1 => link_constraint()];
    (select(&["", "", "", "! "][..]), positive).prop_map(|(not, rest)| format!("{not}{rest}")).boxed()
}

/// A number field with a suitable condition.
fn number(name: &'static str, values: BoxedStrategy<u64>) -> BoxedStrategy<String> {
    let range = (values.clone(), values.clone()).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b)));
    let set = vec(prop_oneof![values.clone().prop_map(|n| n.to_string()), range.clone()], 1..4)
        .prop_map(|items| format!("{{{}}}", items.join(", ")));
    let asked = prop_oneof![
        6 => (select(&["", "== ", "== ", "!= ", "< ", "<= ", "> ", ">= "][..]), values).prop_map(|(c, v)| format!("{c}{v}")),
        1 => (select(&["", "!= "][..]), range).prop_map(|(c, v)| format!("{c}{v}")),
        1 => (select(&["", "!= "][..]), set).prop_map(|(c, v)| format!("{c}{v}")),
        1 => select(&["", "== ", "!= "][..]).prop_map(|c| format!("{c}@{}", sets::NUMBERS)),
    ];
    asked.prop_map(move |asked| format!("{name} {asked}")).boxed()
}

fn of<T: Into<u64> + Copy + std::fmt::Debug + 'static>(values: &'static [T]) -> BoxedStrategy<u64> {
    select(values).prop_map(Into::into).boxed()
}

fn words() -> BoxedStrategy<u64> {
    pool::word().prop_map(u64::from).boxed()
}

fn bytes() -> BoxedStrategy<u64> {
    pool::byte().prop_map(u64::from).boxed()
}

fn address(
    name: &'static str,
    addresses: &'static [&str],
    prefixes: &'static [&str],
) -> BoxedStrategy<String> {
    let set = Just(format!("@{}", sets::ADDRESSES));
    let value = prop_oneof![
        2 => select(addresses).prop_map(str::to_owned),
        1 => select(prefixes).prop_map(str::to_owned),
        1 => set,
    ];
    (select(&["", "== ", "!= "][..]), value).prop_map(move |(c, v)| format!("{name} {c}{v}")).boxed()
}

fn flag(names: &'static [&str]) -> BoxedStrategy<String> {
    (select(names), select(&["", " 0", " 1", " != 1"][..])).prop_map(|(name, v)| format!("{name}{v}")).boxed()
}

fn name(names: &'static [&str]) -> BoxedStrategy<String> {
    select(names).prop_map(str::to_owned).boxed()
}

/// Bytes in the syntax of the language.
pub fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("|{}|", digits.join(" "))
}

fn payload(name: &'static str) -> BoxedStrategy<String> {
    let value = select(pool::PAYLOADS).prop_filter("no empty string", |p| !p.is_empty());
    prop_oneof![
        1 => Just(name.to_owned()),
        3 => (select(&["", "== ", "!= "][..]), value).prop_map(move |(c, v)| format!("{name} {c}{}", hex(v))),
    ]
    .boxed()
}

fn link_constraint() -> BoxedStrategy<String> {
    prop_oneof![
        select(&["in a", "in b", "out a", "out != b", "in {a, b}", "in != a"][..]).prop_map(str::to_owned),
        Just("vlan-id".to_owned()),
        number("vlan-id", of(pool::VLANS)),
    ]
    .boxed()
}

fn frame_constraint() -> BoxedStrategy<String> {
    prop_oneof![
        select(&["eth-type arp", "eth-type lldp", "eth-type != ip4", "! eth-type ip6"][..])
            .prop_map(str::to_owned),
        number("eth-type", of(&[0x0800u16, 0x86dd, 0x0806, 0x88cc, 60])),
    ]
    .boxed()
}

fn any_constraint() -> BoxedStrategy<String> {
    prop_oneof![
        number("ip-proto", of(&[1u8, 6, 17, 47, 50, 58, 59, 132])),
        name(&["net-proto ip4", "net-proto ip6", "net-proto != ip4"]),
        payload("payload"),
        link_constraint(),
    ]
    .boxed()
}

fn ip4_constraint() -> BoxedStrategy<String> {
    prop_oneof![
        number("ip-dscp", of(&[0u8, 1, 46, 63])),
        number("ip-ecn", of(&[0u8, 1, 2, 3])),
        name(&["ip-non-ect", "ip-ect0", "ip-ect1", "ip-ce"]),
        number("ip-ihl", of(&[5u8, 6, 7, 15])),
        number("ip-len", of(&[20u16, 28, 40, 44, 60])),
        number("ip-id", words()),
        number("ip-flags", of(&[0u8, 1, 2, 3, 6])),
        flag(&["ip-res", "ip-df", "ip-mf"]),
        number("ip-frag-offset", of(&[0u16, 1, 185, 8191])),
        number("ip-ttl", of(&[0u8, 1, 64, 255])),
        number("ip-checksum", words()),
        address("ip-saddr", pool::IP4, pool::IP4_PREFIXES),
        address("ip-daddr", pool::IP4, pool::IP4_PREFIXES),
        payload("ip-payload"),
    ]
    .boxed()
}

fn ip6_constraint() -> BoxedStrategy<String> {
    const EXTENSIONS: &[&str] = &[
        "ip6-eh",
        "ip6-eh-hopbyhop",
        "ip6-eh-routing",
        "ip6-eh-fragment",
        "ip6-eh-esp",
        "ip6-eh-ah",
        "ip6-eh-destopt",
        "ip6-eh-mobility",
        "ip6-eh-hip",
        "ip6-eh-shim6",
    ];
    prop_oneof![
        number("ip6-traffic-class", bytes()),
        number("ip6-flow-label", of(&[0u32, 1, 0xf_ffff, 0xa_aaaa])),
        number("ip6-len", of(&[0u16, 8, 20, 24, 60])),
        number("ip6-next", of(&[0u8, 6, 17, 43, 44, 51, 58, 60])),
        number("ip6-hop-limit", of(&[0u8, 1, 64, 255])),
        address("ip6-saddr", pool::IP6, pool::IP6_PREFIXES),
        address("ip6-daddr", pool::IP6, pool::IP6_PREFIXES),
        payload("ip6-payload"),
        name(EXTENSIONS),
    ]
    .boxed()
}

fn tcp_constraint() -> BoxedStrategy<String> {
    prop_oneof![
        number("tcp-sport", of(pool::PORTS)),
        number("tcp-dport", of(pool::PORTS)),
        number("tcp-seq-num", of(&[0u32, 1, 0xffff, 0x1_0000, 0x8000_0000, 0xffff_ffff])),
        number("tcp-ack-num", of(&[0u32, 1, 0xffff, 0xffff_ffff])),
        number("tcp-offset", of(&[5u8, 6, 7, 10, 15])),
        number("tcp-reserved", of(&[0u8, 1, 15])),
        number("tcp-flags", of(&[0x02u8, 0x12, 0x10, 0x18, 0])),
        flag(&["tcp-cwr", "tcp-ece", "tcp-urg", "tcp-ack", "tcp-push", "tcp-rst", "tcp-syn", "tcp-fin"]),
        number("tcp-win", words()),
        number("tcp-checksum", words()),
        number("tcp-urg-ptr", words()),
        payload("tcp-payload"),
    ]
    .boxed()
}

fn udp_constraint() -> BoxedStrategy<String> {
    prop_oneof![
        number("udp-sport", of(pool::PORTS)),
        number("udp-dport", of(pool::PORTS)),
        number("udp-len", of(&[0u8, 8, 9, 11, 13])),
        number("udp-checksum", words()),
        payload("udp-payload"),
    ]
    .boxed()
}

fn icmp_constraint(prefix: &'static str) -> BoxedStrategy<String> {
    let strip = move |rest: String| format!("{prefix}{rest}");
    prop_oneof![
        number("-type", of(&[0u8, 1, 3, 8, 128, 135])).prop_map(strip),
        number("-code", of(&[0u8, 1, 3])).prop_map(strip),
        number("-checksum", words()).prop_map(strip),
        payload("-payload").prop_map(strip),
    ]
    .boxed()
}

/// An option in the syntax of the language.
fn option_name(kind: u8) -> String {
    match kind {
        2 => "tcp-opt-mss".to_owned(),
        3 => "tcp-opt-wscale".to_owned(),
        4 => "tcp-opt-sackp".to_owned(),
        5 => "tcp-opt-sack".to_owned(),
        8 => "tcp-opt-timestamp".to_owned(),
        30 => "tcp-opt-mptcp".to_owned(),
        34 => "tcp-opt-fast-open".to_owned(),
        _ => format!("tcp-opt {kind}"),
    }
}

/// The data of an option as a number or as bytes.
fn option_value(kind: u8) -> BoxedStrategy<String> {
    (pool::option_data(kind), any::<bool>())
        .prop_map(|(data, as_bytes)| match data.len() {
            1..=8 if !as_bytes => data.iter().fold(0u64, |n, byte| n << 8 | u64::from(*byte)).to_string(),
            _ => hex(&data),
        })
        .boxed()
}

fn option_constraint() -> BoxedStrategy<String> {
    let with_value = select(pool::OPTION_KINDS).prop_flat_map(|kind| {
        (select(&["", "== ", "!= ", "> ", "<= "][..]), option_value(kind))
            .prop_map(move |(cond, value)| format!("{} {cond}{value}", option_name(kind)))
    });
    prop_oneof![
        1 => name(&["tcp-opt", "tcp-opt 0", "tcp-opt 1"]),
        3 => select(pool::OPTION_KINDS).prop_map(option_name),
        3 => with_value,
    ]
    .boxed()
}

fn option_edits() -> BoxedStrategy<Vec<String>> {
    let kind = || select(pool::OPTION_KINDS);
    let change = || {
        (select(&["mod", "add"][..]), kind())
            .prop_flat_map(|(verb, kind)| {
                option_value(kind).prop_map(move |value| match kind {
                    4 if verb == "add" => format!("add {}", option_name(kind)),
                    _ => format!("{verb} {} {value}", option_name(kind)),
                })
            })
            .boxed()
    };
    let strip = prop_oneof![8 => kind().prop_map(option_name), 1 => name(&["tcp-opt 0", "tcp-opt 1", "all"])]
        .prop_map(|option| format!("strip {option}"));
    let keep = kind().prop_map(|kind| format!("strip ! {}", option_name(kind)));
    prop_oneof![
        4 => vec(change(), 1..3),
        4 => vec(prop_oneof![2 => strip, 1 => change()], 1..4),
        2 => vec(prop_oneof![2 => keep, 1 => change()], 1..4),
    ]
    .boxed()
}

/// `mod` of a field with values from a strategy.
fn set(name: &'static str, values: BoxedStrategy<u64>) -> BoxedStrategy<String> {
    values.prop_map(move |value| format!("mod {name} {value}")).boxed()
}

fn set_address(names: &'static [&str], addresses: &'static [&str]) -> BoxedStrategy<String> {
    (select(names), select(addresses)).prop_map(|(name, value)| format!("mod {name} {value}")).boxed()
}

fn set_bytes(name: &'static str) -> BoxedStrategy<String> {
    select(pool::PAYLOADS)
        .prop_filter("no empty string", |p| !p.is_empty())
        .prop_map(move |value| format!("mod {name} {}", hex(value)))
        .boxed()
}

fn write(network: Network, upper: &'static str) -> BoxedStrategy<String> {
    let about_network = match network {
        Network::Any => prop_oneof![ip4_write(), ip6_write(), any_write()].boxed(),
        Network::Ip4 => ip4_write(),
        Network::Ip6 => ip6_write(),
    };
    let about_upper = match (upper, network) {
        ("tcp", _) => tcp_write(),
        ("udp", _) => udp_write(),
        ("icmp", Network::Ip6) => icmp_write("icmp6"),
        ("icmp", _) => icmp_write("icmp"),
        _ => any_write(),
    };
    prop_oneof![2 => about_network, 3 => about_upper, 1 => any_write()].boxed()
}

fn any_write() -> BoxedStrategy<String> {
    prop_oneof![
        set("vlan-id", of(pool::VLANS)),
        set("ip-proto", of(&[0u8, 6, 17, 58, 255])),
        set_bytes("payload"),
    ]
    .boxed()
}

fn ip4_write() -> BoxedStrategy<String> {
    prop_oneof![
        3 => set_address(&["ip-saddr", "ip-daddr"], pool::IP4),
        1 => set("ip-dscp", of(&[0u8, 46, 63])),
        1 => set("ip-ecn", of(&[0u8, 1, 2, 3])),
        1 => set("ip-id", words()),
        1 => set("ip-flags", of(&[0u8, 1, 2, 7])),
        1 => set("ip-df", of(&[0u8, 1])),
        1 => set("ip-frag-offset", of(&[0u16, 1, 8191])),
        1 => set("ip-ttl", of(&[0u8, 1, 64, 255])),
        1 => set("ip-ver", of(&[4u8, 6])),
        1 => set("ip-ihl", of(&[0u8, 5, 15])),
        1 => set("ip-len", words()),
        1 => set("ip-checksum", words()),
        1 => set_bytes("ip-payload"),
    ]
    .boxed()
}

fn ip6_write() -> BoxedStrategy<String> {
    prop_oneof![
        3 => set_address(&["ip6-saddr", "ip6-daddr"], pool::IP6),
        1 => set("ip6-traffic-class", bytes()),
        1 => set("ip6-flow-label", of(&[0u32, 1, 0xf_ffff])),
        1 => set("ip6-next", of(&[0u8, 6, 17, 59])),
        1 => set("ip6-hop-limit", of(&[0u8, 1, 64, 255])),
        1 => set("ip6-ver", of(&[4u8, 6])),
        1 => set("ip6-len", words()),
        1 => set_bytes("ip6-payload"),
    ]
    .boxed()
}

fn tcp_write() -> BoxedStrategy<String> {
    prop_oneof![
        2 => set("tcp-sport", of(pool::PORTS)),
        2 => set("tcp-dport", of(pool::PORTS)),
        1 => set("tcp-seq-num", of(&[0u32, 1, 0xffff, 0x1_0000, 0xffff_ffff])),
        1 => set("tcp-ack-num", of(&[0u32, 1, 0xffff_ffff])),
        1 => set("tcp-offset", of(&[0u8, 5, 15])),
        1 => set("tcp-reserved", of(&[0u8, 1, 15])),
        1 => set("tcp-flags", bytes()),
        1 => set("tcp-ece", of(&[0u8, 1])),
        1 => set("tcp-syn", of(&[0u8, 1])),
        1 => set("tcp-fin", of(&[0u8, 1])),
        1 => set("tcp-win", words()),
        1 => set("tcp-checksum", words()),
        1 => set("tcp-urg-ptr", words()),
        1 => set_bytes("tcp-payload"),
    ]
    .boxed()
}

fn udp_write() -> BoxedStrategy<String> {
    prop_oneof![
        2 => set("udp-sport", of(pool::PORTS)),
        2 => set("udp-dport", of(pool::PORTS)),
        1 => set("udp-len", words()),
        1 => set("udp-checksum", words()),
        1 => set_bytes("udp-payload"),
    ]
    .boxed()
}

fn icmp_write(prefix: &'static str) -> BoxedStrategy<String> {
    let with_prefix = move |name: &str, value: u64| format!("mod {prefix}-{name} {value}");
    prop_oneof![
        bytes().prop_map(move |n| with_prefix("type", n)),
        bytes().prop_map(move |n| with_prefix("code", n)),
        words().prop_map(move |n| with_prefix("checksum", n)),
        select(pool::PAYLOADS)
            .prop_filter("no empty string", |p| !p.is_empty())
            .prop_map(move |value| format!("mod {prefix}-payload {}", hex(value))),
    ]
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_language::parse_command;
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    #[test]
    fn most_rules_are_accepted() {
        let mut runner = TestRunner::deterministic();
        let strategy = rule();
        let refused: Vec<String> = (0..1000)
            .map(|_| strategy.new_tree(&mut runner).expect("no filter is that narrow").current())
            .filter(|line| parse_command(line).is_err())
            .collect();
        assert!(refused.len() < 300, "{} of 1000 refused: {refused:#?}", refused.len());
    }
}
