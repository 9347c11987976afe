//! Rules and rule sets by example.

use super::*;
use serde_json::json;
use std::slice;

/// The policy of a chain at the hook forward in a table of a family, with a rule for each list of statements, and further objects.
fn import(family: &str, statements: &[serde_json::Value], others: &[serde_json::Value]) -> PolicyDraft {
    let mut objects =
        vec![json!({"chain": {"family": family, "table": "t", "name": "f", "handle": 1, "type": "filter",
        "hook": "forward", "prio": 0, "policy": "accept"}})];
    objects.extend(others.iter().cloned());
    for (index, expr) in statements.iter().enumerate() {
        objects.push(json!({"rule": {"family": family, "table": "t", "chain": "f", "handle": index + 10, "expr": expr}}));
    }
    translated(&objects)
}

fn translated(objects: &[serde_json::Value]) -> PolicyDraft {
    let mut addresses = HostAddresses::default();
    addresses.add("lan", "10.0.0.1".parse().expect("an address"), Some(24));
    addresses.add("wan", "203.0.113.1".parse().expect("an address"), Some(24));
    let options = NftablesOptions { path: PacketPath::Forward, addresses, path_mtu: Some(1492) };
    let mut draft = PolicyDraft::default();
    let text = json!({ "nftables": objects }).to_string();
    translate(&text, &options, &mut draft).expect("a rule set");
    draft
}

/// The rules of a policy with a word, without comments.
fn rules(draft: &PolicyDraft, word: &str) -> Vec<String> {
    let lines = draft.text().lines().filter(|line| line.starts_with("add") && line.contains(word));
    let plain = lines.map(|line| line.split("  #").next().unwrap_or(line));
    plain.map(|line| line.splitn(4, ' ').last().unwrap_or(line).to_owned()).collect()
}

fn matched(op: &str, left: serde_json::Value, right: serde_json::Value) -> serde_json::Value {
    json!({"match": {"op": op, "left": left, "right": right}})
}

fn payload(protocol: &str, field: &str) -> serde_json::Value {
    json!({"payload": {"protocol": protocol, "field": field}})
}

#[track_caller]
fn is(family: &str, op: &str, left: serde_json::Value, right: serde_json::Value, expected: &[&str]) {
    let draft = import(family, &[json!([matched(op, left, right), {"drop": null}])], &[]);
    assert_eq!(draft.left_out, []);
    let expected: Vec<String> = expected.iter().map(|rule| format!("{rule} drop")).collect();
    // The first rule drops packets to the host itself.
    let found = rules(&draft, " drop").split_off(usize::from(!matches!(family, "ip6" | "bridge")));
    assert_eq!(found, expected);
}

#[test]
fn fields_become_constraints() {
    let meta = |key: &str| json!({"meta": {"key": key}});
    is("inet", "==", meta("iifname"), json!("lan"), &["net-proto in lan"]);
    is("ip", "!=", meta("oifname"), json!({"set": ["lan", "dmz"]}), &["net-proto ip4 out != {dmz, lan}"]);
    is("inet", "==", meta("iif"), json!("lo"), &[]);
    is("inet", "==", meta("l4proto"), json!({"set": ["tcp", 89]}), &["net-proto ip-proto {tcp, ospf}"]);
    is("inet", "==", meta("nfproto"), json!("ipv6"), &["net-proto ip6"]);
    is(
        "ip",
        "==",
        payload("ip", "saddr"),
        json!({"prefix": {"addr": "10.0.0.0", "len": 8}}),
        &["ip-saddr 10.0.0.0/8"],
    );
    is(
        "inet",
        "!=",
        payload("ip", "daddr"),
        json!({"range": ["10.0.0.4", "10.0.0.6"]}),
        &["ip-daddr != 10.0.0.4-10.0.0.6"],
    );
    is(
        "inet",
        "==",
        payload("tcp", "dport"),
        json!({"set": [22, {"range": [80, 90]}]}),
        &["net-proto tcp-dport {22, 80-90}"],
    );
    is("ip", ">", payload("udp", "sport"), json!(1023), &["net-proto ip4 udp-sport 1024-65535"]);
    is("ip", "in", payload("tcp", "flags"), json!("syn"), &["net-proto ip4 tcp-syn"]);
    is(
        "ip",
        "==",
        json!({"&": [payload("tcp", "flags"), ["fin", "syn"]]}),
        json!("syn"),
        &["net-proto ip4 ! tcp-fin tcp-syn"],
    );
    is("ip", "==", payload("icmp", "type"), json!("echo-request"), &["icmp-type 8"]);
    is("inet", "==", payload("icmpv6", "type"), json!("nd-redirect"), &["icmp6-type 137"]);
    is("ip", "==", payload("ip", "dscp"), json!("ef"), &["ip-dscp 46"]);
    is("ip6", "==", payload("ip6", "length"), json!(100), &["ip6-len 100"]);
    is(
        "ip",
        "==",
        json!({"fib": {"result": "type", "flags": ["daddr"]}}),
        json!("local"),
        &["ip-daddr {10.0.0.1, 203.0.113.1}"],
    );
    is("bridge", "==", payload("ether", "type"), json!("arp"), &["eth-type 2054"]);
}

#[test]
fn states_become_constraints() {
    let state = json!({"ct": {"key": "state"}});
    is(
        "inet",
        "in",
        state.clone(),
        json!(["established", "related"]),
        &["net-proto ct {established, related}"],
    );
    is("inet", "!=", state, json!("new"), &["net-proto ct != new"]);
    is("ip", "==", json!({"ct": {"key": "direction"}}), json!("reply"), &["net-proto ip4 ct reply"]);
    is("ip", "in", json!({"ct": {"key": "status"}}), json!("dnat"), &[]);
}

#[test]
fn sets_and_maps_have_elements() {
    let sets = [
        json!({"set": {"family": "inet", "table": "t", "name": "s", "type": ["ipv4_addr", "inet_service"],
            "elem": [{"concat": ["1.2.3.4", 22]}, {"concat": ["1.2.3.4", 23]}, {"concat": [{"prefix": {"addr": "10.0.0.0", "len": 8}}, 80]}]}}),
        json!({"set": {"family": "inet", "table": "t", "name": "six", "type": "ipv6_addr", "flags": ["timeout"],
            "elem": [{"elem": {"val": "2001:db8::1", "timeout": 60}}]}}),
        json!({"map": {"family": "inet", "table": "t", "name": "v", "type": "ifname", "map": "verdict",
            "elem": [["lan", {"jump": {"target": "one"}}], ["wan", {"accept": null}], ["*", {"drop": null}]]}}),
        json!({"chain": {"family": "inet", "table": "t", "name": "one", "handle": 2}}),
        json!({"rule": {"family": "inet", "table": "t", "chain": "one", "handle": 9,
            "expr": [matched("==", payload("udp", "dport"), json!(53)), {"accept": null}]}}),
    ];
    let key = json!({"concat": [payload("ip", "saddr"), payload("tcp", "dport")]});
    let draft = import(
        "inet",
        &[
            json!([matched("==", key, json!("@s")), {"accept": null}]),
            json!([matched("==", payload("ip6", "saddr"), json!("@six")), {"accept": null}]),
            json!([{"vmap": {"key": {"meta": {"key": "iifname"}}, "data": "@v"}}]),
        ],
        &sets,
    );
    assert_eq!(draft.left_out, []);
    assert_eq!(
        rules(&draft, "")[1..],
        [
            "ip-saddr 1.2.3.4 tcp-dport 22-23 accept",
            "ip-saddr 10.0.0.0/8 tcp-dport 80 accept",
            "ip6-saddr @six accept",
            "net-proto in lan udp-dport 53 accept",
            "net-proto in wan accept",
            "net-proto in != {lan, wan} drop",
            "all accept",
        ]
    );
}

#[test]
fn translations_and_changes() {
    let nat = |name: &str, hook: &str, prio: i64| {
        json!({"chain": {"family": "inet", "table": "t", "name": name, "handle": 3, "type": "nat", "hook": hook,
            "prio": prio, "policy": "accept"}})
    };
    let rule = |chain: &str, handle: u64, expr: serde_json::Value| json!({"rule": {"family": "inet", "table": "t", "chain": chain, "handle": handle, "expr": expr}});
    let wan = matched("==", json!({"meta": {"key": "iifname"}}), json!("wan"));
    let to = json!({"map": {"key": payload("tcp", "dport"), "data": {"set": [[80, "10.0.0.2"], [443, "10.0.0.3"]]}}});
    let syn = matched("in", payload("tcp", "flags"), json!("syn"));
    let size = json!({"mangle": {"key": {"tcp option": {"name": "maxseg", "field": "size"}}, "value": {"rt": {"key": "mtu"}}}});
    let draft = translated(&[
        nat("pre", "prerouting", -100),
        nat("post", "postrouting", 100),
        json!({"chain": {"family": "inet", "table": "t", "name": "f", "handle": 1, "type": "filter", "hook": "forward",
            "prio": 0, "policy": "drop"}}),
        rule("pre", 20, json!([wan, {"dnat": {"family": "ip", "addr": to}}])),
        rule(
            "post",
            21,
            json!([
                matched("==", json!({"meta": {"key": "nfproto"}}), json!("ipv4")),
                matched("==", json!({"meta": {"key": "oifname"}}), json!("wan")),
                {"masquerade": null},
            ]),
        ),
        rule("f", 22, json!([syn, size])),
        rule(
            "f",
            23,
            json!([matched("in", json!({"ct": {"key": "state"}}), json!(["established", "related"])), {"accept": null}]),
        ),
        rule(
            "f",
            24,
            json!([matched("in", json!({"ct": {"key": "status"}}), json!("dnat")), {"accept": null}]),
        ),
        rule("f", 25, json!([{"reject": null}])),
    ]);
    assert_eq!(draft.left_out, []);
    assert_eq!(
        rules(&draft, " map "),
        [
            "net-proto ip4 in wan tcp-dport 80 map ip-daddr 10.0.0.2",
            "net-proto ip4 in wan tcp-dport 443 map ip-daddr 10.0.0.3",
            "net-proto ip4 out wan map ip-saddr 203.0.113.1",
        ]
    );
    assert_eq!(
        rules(&draft, "mss"),
        [
            "net-proto ip4 tcp-syn tcp-opt-mss > 1452 mod tcp-opt-mss 1452",
            "net-proto ip6 tcp-syn tcp-opt-mss > 1432 mod tcp-opt-mss 1432",
        ]
    );
    // Packets that have the new destination already are not translated.
    let forwarded =
        "in wan ct {new, established, related} ct != reply ip-daddr != 10.0.0.3 tcp-dport 443 accept"
            .to_owned();
    assert!(rules(&draft, "accept").contains(&forwarded), "{}", draft.text());
}

#[test]
fn rejects_answer_and_logs_tell() {
    let ports = [80, 81, 82, 83, 84].map(|port| matched("==", payload("udp", "dport"), json!(port)));
    let [no_route, unreachable, of_six, unknown, log] = ports;
    let draft = import(
        "inet",
        &[
            json!([no_route, {"reject": {"type": "icmpx", "expr": "no-route"}}]),
            json!([unreachable, {"reject": null}]),
            json!([of_six, {"reject": {"type": "icmpv6", "expr": "policy-fail"}}]),
            json!([unknown, {"reject": {"type": "icmp", "expr": "frag-needed"}}]),
            json!([log, {"log": {"prefix": "x: ", "level": "info"}}, {"drop": null}]),
        ],
        &[],
    );
    assert_eq!(draft.left_out, []);
    assert_eq!(
        rules(&draft, "udp-dport"),
        [
            "net-proto udp-dport 84 log \"x:\"",
            "net-proto ip4 udp-dport 80 reject icmp net-unreachable",
            "net-proto ip6 udp-dport 80 reject icmp6 no-route",
            "net-proto udp-dport 81 reject icmp port-unreachable",
            "net-proto ip6 udp-dport 82 reject icmp6 policy-fail",
            "net-proto ip4 udp-dport 83 drop",
            "net-proto udp-dport 84 drop",
        ]
    );
    assert!(
        draft.notes.iter().any(|note| note.contains("mmb does not know the answer")),
        "{:?}",
        draft.notes
    );
}

#[test]
fn what_cannot_be_translated_is_listed_by_its_handle() {
    let meta = |key: &str| json!({"meta": {"key": key}});
    for (statement, reason) in [
        (json!({"limit": {"rate": 1, "per": "second"}}), "what exceeds it is dropped"),
        (json!({"limit": {"rate": 1, "per": "week", "inv": true}}), "the rate is not known"),
        (json!({"limit": "none"}), "the limit none is not known"),
        (
            json!({"set": {"op": "add", "elem": 1, "set": "@s", "stmt": [{"limit": {"rate": 1, "per": "second"}}]}}),
            "rates are of one address",
        ),
        (
            json!({"set": {"op": "add", "elem": 1, "set": "@s", "stmt": [{"ct count": {"val": 1}}]}}),
            "an element of a set",
        ),
        (json!({"xt": {"type": "match", "name": "limit"}}), "iptables-save"),
        (matched("==", meta("mark"), json!(1)), "packets have no marks"),
        (matched("==", meta("iifname"), json!("eth*")), "whole names of ports"),
        (matched("==", payload("ether", "saddr"), json!("02:00:00:00:00:01")), "link-layer addresses"),
        (matched("==", payload("sctp", "dport"), json!(1)), "no ports for this protocol"),
        (matched("==", payload("th", "dport"), json!(1)), "no ports for all protocols"),
        (matched("==", payload("tcp", "dport"), json!("@none")), "the set none is not known"),
        (matched("==", json!({"numgen": {"mode": "random", "mod": 2}}), json!(0)), "nothing like it"),
    ] {
        let draft = import("inet", &[json!([statement, {"drop": null}])], &[]);
        let [left_out] = &draft.left_out[..] else { panic!("{statement}: {:?}", draft.left_out) };
        assert!(left_out.reason.contains(reason), "{left_out}");
        assert_eq!(left_out.place, Place::Handle { chain: "inet t f".to_owned(), handle: 10 });
        assert_eq!(left_out.effect, Effect::Looser);
    }
}

#[test]
fn what_may_be_a_verdict_is_listed_as_one() {
    for statement in [
        json!({"queue": {"num": 1}}),
        json!({"xt": {"type": "target", "name": "REJECT"}}),
        json!({"xt": null}),
        json!({"tproxy": {"port": 1}}),
    ] {
        let draft =
            import("inet", &[json!([matched("==", payload("tcp", "dport"), json!(23)), statement])], &[]);
        let [left_out] = &draft.left_out[..] else { panic!("{statement}: {:?}", draft.left_out) };
        assert_eq!(left_out.effect, Effect::Either, "{left_out}");
    }
    let matches = json!([{"xt": {"type": "match", "name": "limit"}}, {"counter": null}]);
    assert_eq!(import("inet", &[matches], &[]).left_out[0].effect, Effect::None);
}

#[test]
fn bridges_filter_frames() {
    let draft = import(
        "bridge",
        &[
            json!([matched("==", payload("ether", "type"), json!("arp")), {"accept": null}]),
            json!([matched("==", payload("ip", "saddr"), json!("10.0.0.9")), {"accept": null}]),
            json!([{"drop": null}]),
        ],
        &[],
    );
    assert_eq!(draft.left_out, []);
    assert_eq!(
        rules(&draft, "")[..4],
        ["eth-type 2054 accept", "ip-saddr 10.0.0.9 accept", "all drop", "eth-type != {2048, 34525} drop"]
    );
}

#[test]
fn several_tables_all_have_to_accept() {
    let chain = |family: &str, table: &str, prio: i64, policy: &str| {
        json!({"chain": {"family": family, "table": table, "name": "f", "handle": 1, "type": "filter", "hook": "forward",
            "prio": prio, "policy": policy}})
    };
    let rule = |family: &str, table: &str, expr: serde_json::Value| json!({"rule": {"family": family, "table": table, "chain": "f", "handle": 5, "expr": expr}});
    let from = |address: &str| matched("==", payload("ip", "saddr"), json!(address));
    let draft = translated(&[
        chain("ip", "a", 0, "drop"),
        chain("inet", "b", 10, "accept"),
        rule("ip", "a", json!([from("10.0.0.2"), {"accept": null}])),
        rule("ip", "a", json!([from("10.0.0.3"), {"accept": null}])),
        rule("inet", "b", json!([from("10.0.0.2"), {"drop": null}])),
    ]);
    assert_eq!(
        rules(&draft, "")[1..],
        [
            "ip-saddr 10.0.0.2 drop",
            "ip-saddr 10.0.0.2 accept",
            "ip-saddr 10.0.0.3 accept",
            "net-proto ip4 drop",
            "net-proto ip6 accept",
        ]
    );
}

#[test]
fn texts_that_are_no_rule_sets_are_refused() {
    for (text, message) in [
        ("hello", "no output of `nft -j list ruleset`"),
        ("{}", "no output of `nft -j list ruleset`"),
        ("{\"nftables\": []}", "no base chain at the hook forward"),
        (
            "{\"nftables\": [{\"rule\": {\"family\": \"ip\", \"table\": \"t\", \"chain\": \"c\", \"handle\": 4, \"expr\": []}}]}",
            "ip t c handle 4: its chain is not in the rule set",
        ),
    ] {
        let error =
            translate(text, &NftablesOptions::default(), &mut PolicyDraft::default()).expect_err(text);
        assert!(error.to_string().contains(message), "{error}");
    }
    let deep = format!("{{\"nftables\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(translate(&deep, &NftablesOptions::default(), &mut PolicyDraft::default()).is_err());
}

#[test]
fn rates_beyond_which_rules_drop_are_limits() {
    let limit = |value: serde_json::Value| json!([value, {"drop": null}]);
    let saddr = payload("ip", "saddr");
    let over = json!({"rate": 10, "burst": 5, "per": "second", "inv": true});
    let element = |elem: serde_json::Value, set: &str| {
        limit(json!({"set": {"op": "add", "elem": elem, "set": set, "stmt": [{"limit": over}]}}))
    };
    let draft = import(
        "inet",
        &[
            limit(json!({"limit": over})),
            limit(json!({"limit": {"rate": 2, "burst": 9000, "per": "minute", "inv": true,
                                   "rate_unit": "mbytes", "burst_unit": "kbytes"}})),
            element(saddr.clone(), "@a"),
            element(json!({"&": [saddr, "255.255.255.0"]}), "@b"),
            limit(json!({"meter": {"name": "m", "key": {"elem": {"val": {"&":
                [payload("ip6", "daddr"), "ffff:ffff:ffff::"]}, "timeout": 60}}, "stmt": {"limit": over}}})),
            limit(json!({"limit": "named"})),
        ],
        &[
            json!({"limit": {"family": "inet", "table": "t", "name": "named", "rate": 3, "per": "day", "burst": 8, "inv": true}}),
        ],
    );
    assert_eq!(draft.left_out, []);
    assert_eq!(
        rules(&draft, " limit "),
        [
            "all limit 10/s burst 5",
            "all limit 2097152B/m burst 11313152B",
            "net-proto ip4 limit 10/s burst 5 per ip-saddr",
            "net-proto ip4 limit 10/s burst 5 per ip-saddr/24",
            "net-proto ip6 limit 10/s burst 5 per ip6-daddr/48",
            "all limit 3/d burst 8",
        ]
    );
}

#[test]
fn rates_that_cannot_be_limits_are_listed() {
    let port = matched("==", payload("tcp", "dport"), json!(80));
    let within = json!({"limit": {"rate": 10, "burst": 5, "per": "second"}});
    let over = json!({"limit": {"rate": 10, "burst": 5, "per": "second", "inv": true}});
    let draft = import(
        "ip",
        &[
            // Packets to other ports count too.
            json!([over, port, {"drop": null}]),
            json!([over, within, {"drop": null}]),
            json!([within, {"drop": null}]),
            json!([port, within, {"accept": null}]),
        ],
        &[],
    );
    let reasons: Vec<&str> = draft.left_out.iter().map(|left_out| left_out.reason.as_str()).collect();
    let [first, second, third, fourth] = reasons[..] else { panic!("{reasons:?}") };
    assert!(first.contains("their last match") && second.contains("their last match"));
    assert!(third.contains("what exceeds it is dropped") && fourth.contains("what exceeds it is dropped"));
    assert!(!draft.text().contains(" limit 10/s"), "{}", draft.text());
}

/// `nft` may not say that a set is dynamic.
#[test]
fn a_set_that_rules_change_is_not_taken_as_it_is() {
    let set = json!({"set": {"family": "ip", "table": "t", "name": "s", "type": "ipv4_addr", "flags": ["timeout"],
        "elem": ["1.2.3.4"]}});
    let of_set = json!([matched("==", payload("ip", "saddr"), json!("@s")), {"drop": null}]);
    let add = json!([{"set": {"op": "add", "elem": payload("ip", "saddr"), "set": "@s"}}]);
    assert!(import("ip", slice::from_ref(&of_set), slice::from_ref(&set)).left_out.is_empty());
    let draft = import("ip", &[add, of_set], &[set]);
    assert_eq!(draft.left_out.len(), 2, "{:?}", draft.left_out);
    assert!(rules(&draft, " drop").iter().all(|rule| !rule.contains("ip-saddr")), "{}", draft.text());
}

/// The kernel ends a rule for packets of which a statement cannot do its work.
#[test]
fn statements_that_fail_end_their_rule() {
    let of_map = json!({"map": {"key": payload("ip", "saddr"), "data": {"set": [["10.0.0.4", "c1"]]}}});
    let accept = json!({"accept": null});
    for (statement, reason) in [
        (json!({"counter": of_map}), "a map decides on packets"),
        (json!({"limit": of_map}), "a map decides on packets"),
        (json!({"mangle": {"key": {"meta": {"key": "mark"}}, "value": of_map}}), "a map decides on packets"),
        (
            matched(
                "==",
                json!({"payload": {"protocol": "ip", "field": "saddr", "tunnel": "vxlan"}}),
                json!("10.0.0.4"),
            ),
            "an expression",
        ),
    ] {
        let draft = import("ip", &[json!([statement, accept])], &[]);
        assert_eq!(draft.left_out.len(), 1, "{statement}: {:?}", draft.left_out);
        assert!(draft.left_out[0].reason.contains(reason), "{statement}: {}", draft.left_out[0]);
        assert_eq!(draft.left_out[0].effect, Effect::Stricter, "{statement}");
    }
    let size = json!({"mangle": {"key": {"tcp option": {"name": "maxseg", "field": "size"}}, "value": 1400}});
    let dscp = json!({"mangle": {"key": payload("ip", "dscp"), "value": 8}});
    let draft = import("inet", &[json!([size, accept]), json!([dscp, accept])], &[]);
    assert_eq!(draft.left_out, []);
    assert_eq!(
        rules(&draft, " accept"),
        ["net-proto tcp-dport accept", "net-proto ip4 accept", "all accept"]
    );
}

#[test]
fn elements_that_decide_leave_out_the_rules_of_their_set() {
    let set = json!({"set": {"family": "ip", "table": "t", "name": "s", "type": "ipv4_addr",
        "elem": [{"elem": {"val": "1.2.3.4", "limit": {"rate": 1, "burst": 1, "per": "minute"}}}],
        "stmt": [{"limit": {"rate": 1, "burst": 1, "per": "minute"}}]}});
    let asks = json!([matched("==", payload("ip", "saddr"), json!("@s")), {"accept": null}]);
    let adds =
        json!([{"set": {"op": "update", "elem": payload("ip", "saddr"), "set": "@s"}}, {"accept": null}]);
    for rule in [asks, adds] {
        let draft = import("ip", slice::from_ref(&rule), slice::from_ref(&set));
        assert_eq!(draft.left_out.len(), 1, "{rule}: {:?}", draft.left_out);
        assert_eq!(draft.left_out[0].effect, Effect::Stricter, "{}", draft.left_out[0]);
    }
}

#[test]
fn what_continues_in_a_map_goes_on_in_its_rule() {
    let continuing = json!({"vmap": {"key": payload("icmp", "type"),
        "data": {"set": [["echo-request", {"continue": null}], ["echo-reply", {"accept": null}]]}}});
    let draft = import("ip", &[json!([continuing, {"drop": null}])], &[]);
    assert_eq!(draft.left_out, []);
    assert_eq!(rules(&draft, "icmp-type"), ["icmp-type 0 accept".to_owned(), "icmp-type 8 drop".to_owned()]);
}

#[test]
fn a_dormant_table_does_nothing() {
    let objects = |flags: serde_json::Value| {
        let chain = json!({"chain": {"family": "ip", "table": "d", "name": "f", "handle": 1, "type": "filter",
            "hook": "forward", "prio": 0, "policy": "drop"}});
        let table = json!({"table": {"family": "ip", "name": "d", "handle": 9, "flags": flags}});
        import("ip", &[json!([{"accept": null}])], &[table, chain])
    };
    let drops = |draft: &PolicyDraft| rules(draft, "net-proto ip4 drop").len();
    let dormant = objects(json!(["dormant"]));
    assert_eq!((drops(&dormant), dormant.left_out.len()), (0, 0));
    assert_eq!(dormant.notes, ["table ip d is dormant: it does nothing"]);
    let owned = objects(json!("owner"));
    assert_eq!((drops(&owned), owned.left_out.len()), (1, 0));
    let unknown = objects(json!("ip"));
    assert_eq!((drops(&unknown), unknown.left_out.len()), (1, 1));
}
