//! Any text is translated, left out or refused: nothing panics, and nothing takes long.

use mmb_import::iptables::{self, IpSets, IptablesOptions};
use mmb_import::nftables::{self, NftablesOptions};
use mmb_import::{HostAddresses, PolicyDraft};
use proptest::prelude::*;
use serde_json::{Value, json};

/// The words of lines of iptables-save, in places where they mean something and where they do not.
const WORDS: &[&str] = &[
    "-A FORWARD",
    "-A own",
    "-A POSTROUTING",
    "-A PREROUTING",
    "!",
    "-s",
    "-d",
    "10.0.0.0/8",
    "::/0",
    "0.0.0.0/0",
    "-p",
    "tcp",
    "udp",
    "icmp",
    "-m",
    "conntrack",
    "--ctstate",
    "NEW,DNAT",
    "ESTABLISHED",
    "--ctdir",
    "REPLY",
    "set",
    "--match-set",
    "a",
    "b",
    "src,dst",
    "dst",
    "addrtype",
    "--dst-type",
    "LOCAL",
    "--dport",
    "0:65535",
    "99999999999",
    "-j",
    "-g",
    "own",
    "ACCEPT",
    "DROP",
    "RETURN",
    "DNAT",
    "--to-destination",
    "1.2.3.4:0-70000",
    "1.2.3.9-1.2.3.4",
    "MASQUERADE",
    "TCPMSS",
    "--set-mss",
    "0",
    "\"",
];

const HEAD: &str = ":PREROUTING ACCEPT\n:FORWARD DROP\n:POSTROUTING ACCEPT\n:own -\n";

const SETS: &str = "create a hash:net\nadd a 10.0.0.0/8 nomatch\nadd a 0.0.0.0/0\ncreate b hash:ip,port\nadd b 10.0.0.1,udp:1-9\n\
    create c list:set\nadd c c\nadd c a\n";

fn hosts() -> HostAddresses {
    let mut hosts = HostAddresses::default();
    for (port, address) in [("lan", "10.0.0.1"), ("wan", "2001:db8::1"), ("wan", "203.0.113.1")] {
        hosts.add(port, address.parse().expect("an address"), Some(8));
    }
    hosts
}

/// Values of all shapes with the words of nftables.
fn expression() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(
        &[
            "tcp",
            "udp",
            "@s",
            "@m",
            "lan",
            "*",
            "established",
            "dnat",
            "1.2.3.4",
            "::1",
            "syn",
            "echo-request",
            "arp",
            "local",
            "==",
            "in",
        ][..],
    );
    let leaf = prop_oneof![
        word.prop_map(|word| json!(word)),
        any::<u64>().prop_map(|n| json!(n)),
        (0u64..70_000).prop_map(|n| json!(n)),
        Just(Value::Null),
        Just(json!({"meta": {"key": "iifname"}})),
        Just(json!({"ct": {"key": "state"}})),
        Just(json!({"payload": {"protocol": "tcp", "field": "dport"}})),
        Just(json!({"payload": {"protocol": "icmp", "field": "code"}})),
        Just(json!({"payload": {"protocol": "ip", "field": "saddr"}})),
        Just(json!({"prefix": {"addr": "10.0.0.0", "len": 200}})),
        Just(json!({"fib": {"result": "type", "flags": ["daddr"]}})),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        let tag = prop::sample::select(&["concat", "set", "range", "&", "|", "elem", "map", "unheard"][..]);
        prop_oneof![
            (tag, prop::collection::vec(inner.clone(), 0..4)).prop_map(|(tag, list)| json!({ tag: list })),
            (inner.clone(), inner.clone()).prop_map(|(key, data)| json!({"map": {"key": key, "data": data}})),
            prop::collection::vec(inner, 0..3).prop_map(Value::from),
        ]
    })
}

fn statement() -> impl Strategy<Value = Value> {
    let op = prop::sample::select(&["==", "!=", "<", ">=", "in", "~"][..]);
    prop_oneof![
        (op, expression(), expression())
            .prop_map(|(op, left, right)| json!({"match": {"op": op, "left": left, "right": right}})),
        (expression(), expression()).prop_map(|(key, data)| json!({"vmap": {"key": key, "data": data}})),
        (expression(), expression()).prop_map(|(key, value)| json!({"mangle": {"key": key, "value": value}})),
        (expression(), expression()).prop_map(|(addr, port)| json!({"dnat": {"addr": addr, "port": port}})),
        prop::sample::select(&["f", "g", "none"][..]).prop_map(|target| json!({"jump": {"target": target}})),
        prop::sample::select(&["accept", "drop", "return", "masquerade", "redirect", "limit", "unheard"][..])
            .prop_map(|word| json!({ word: null })),
        expression(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn words_of_iptables(
        tables in prop::collection::vec(
            (prop::sample::select(&["raw", "mangle", "nat", "filter", "own"][..]),
             prop::collection::vec(prop::collection::vec(prop::sample::select(WORDS), 1..9), 0..6)), 1..4),
    ) {
        let mut text = String::new();
        for (table, lines) in tables {
            text += &format!("*{table}\n{HEAD}");
            for line in lines {
                text += &format!("-A FORWARD {}\n", line.join(" "));
            }
        }
        let sets = IpSets::read(SETS).expect("sets");
        let options = IptablesOptions { family: None, addresses: hosts(), sets: Some(sets), path_mtu: Some(1500) };
        let _ = iptables::translate(&text, "FORWARD", &options, &mut PolicyDraft::default());
    }

    #[test]
    fn expressions_of_nftables(
        family in prop::sample::select(&["ip", "ip6", "inet", "bridge", "netdev"][..]),
        rules in prop::collection::vec(prop::collection::vec(statement(), 0..4), 0..6),
        elements in prop::collection::vec(expression(), 0..4),
    ) {
        let chain = |name: &str, kind: &str, hook: &str| json!({"chain": {"family": family, "table": "t", "name": name,
            "handle": 1, "type": kind, "hook": hook, "prio": 0, "policy": "drop"}});
        let mut objects = vec![
            chain("f", "filter", "forward"),
            chain("n", "nat", "prerouting"),
            json!({"chain": {"family": family, "table": "t", "name": "g", "handle": 2}}),
            json!({"set": {"family": family, "table": "t", "name": "s", "type": "ipv4_addr", "elem": elements}}),
        ];
        for (index, expr) in rules.into_iter().enumerate() {
            let chain = ["f", "n", "g"][index % 3];
            objects.push(json!({"rule": {"family": family, "table": "t", "chain": chain, "handle": index, "expr": expr}}));
        }
        let text = json!({ "nftables": objects }).to_string();
        let options = NftablesOptions { addresses: hosts(), path_mtu: Some(1500), ..NftablesOptions::default() };
        let _ = nftables::translate(&text, &options, &mut PolicyDraft::default());
    }

    #[test]
    fn any_text(text in ".{0,200}") {
        let _ = iptables::translate(&text, "FORWARD", &IptablesOptions::default(), &mut PolicyDraft::default());
        let _ = nftables::translate(&text, &NftablesOptions::default(), &mut PolicyDraft::default());
        let _ = IpSets::read(&text);
    }
}

/// Chains that call each other twice, and exceptions that split in every dimension, end with an error instead of a flood.
#[test]
fn verdict_maps_that_multiply_end() {
    let mut objects =
        vec![json!({"chain": {"family": "ip", "table": "t", "name": "c0", "handle": 1, "type": "filter",
        "hook": "forward", "prio": 0, "policy": "drop"}})];
    for n in 1..=40 {
        objects.push(json!({"chain": {"family": "ip", "table": "t", "name": format!("c{n}"), "handle": n}}));
        let jump = json!({"jump": {"target": format!("c{n}")}});
        let data = json!({"set": [["lan", jump], ["wan", {"drop": null}], ["*", jump]]});
        let expr = json!([{"vmap": {"key": {"meta": {"key": "oifname"}}, "data": data}}]);
        for handle in [100, 200] {
            objects.push(json!({"rule": {"family": "ip", "table": "t", "chain": format!("c{}", n - 1), "handle": n + handle,
                "expr": expr}}));
        }
    }
    let text = json!({ "nftables": objects }).to_string();
    let result = nftables::translate(&text, &NftablesOptions::default(), &mut PolicyDraft::default());
    assert!(result.is_err());
}
