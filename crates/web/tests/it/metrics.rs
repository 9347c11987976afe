//! The metrics, read by the rules of OpenMetrics 1.0, and the Grafana board that shows them.

use crate::common::{start, start_with};
use mmb_testkit::{Frame, Tcp, Udp};
use mmb_web::WebOptions;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

const POLICY: &str = "\
add id 1 prio 10 name dns udp-dport 53 accept
add id 2 prio 20 ip-proto udp drop
add-stateful id 7 ip-proto tcp accept
add id 8 name last tcp-dport 9 drop
";

fn datagram(dport: u16) -> Frame {
    Udp { dport, ..Udp::default() }.over_ip4()
}

/// A line of a series: its name, its labels, its value.
type Sample = (String, BTreeMap<String, String>, f64);

/// A metric family.
#[derive(Debug, Default)]
struct Family {
    kind: String,
    help: String,
    unit: Option<String>,
    samples: Vec<Sample>,
}

fn is_name(name: &str) -> bool {
    let first = |c: char| c.is_ascii_alphabetic() || c == '_';
    name.starts_with(first) && name.chars().all(|c| first(c) || c.is_ascii_digit())
}

/// The labels and what follows their closing brace.
fn labels(mut text: &str) -> (BTreeMap<String, String>, &str) {
    let mut labels = BTreeMap::new();
    loop {
        if let Some(rest) = text.strip_prefix('}') {
            return (labels, rest);
        }
        let (name, rest) = text.split_once("=\"").expect("a label");
        assert!(is_name(name), "{name}");
        let (mut value, mut chars) = (String::new(), rest.char_indices());
        let end = loop {
            match chars.next().expect("a closed label") {
                (at, '"') => break at,
                (_, '\\') => match chars.next().expect("an escape").1 {
                    'n' => value.push('\n'),
                    escaped @ ('"' | '\\') => value.push(escaped),
                    other => panic!("escape {other}"),
                },
                (_, other) => value.push(other),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none(), "{name} twice");
        text = rest[end + 1..].trim_start_matches(',');
    }
}

/// Reads an exposition and holds it to the format: <https://prometheus.io/docs/specs/om/open_metrics_spec/>.
fn parse(text: &str) -> BTreeMap<String, Family> {
    let text = text.strip_suffix("# EOF\n").expect("it ends with EOF");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let [keyword, name, rest] = comment.splitn(3, ' ').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            assert!(is_name(name), "{line}");
            if name != current {
                assert!(!families.contains_key(name), "{name} is not in one piece");
                current = name.to_owned();
            }
            let family = families.entry(current.clone()).or_default();
            assert!(family.samples.is_empty(), "{line}: behind samples");
            let into = match keyword {
                "HELP" => &mut family.help,
                "TYPE" => &mut family.kind,
                "UNIT" => family.unit.get_or_insert_default(),
                other => panic!("{other}"),
            };
            assert!(into.is_empty(), "{line}: twice");
            *into = rest.to_owned();
            continue;
        }
        let end = line.find(['{', ' ']).expect("a sample");
        let (name, rest) = line.split_at(end);
        let (labels, value) = rest.strip_prefix('{').map_or((BTreeMap::new(), rest), labels);
        let value: f64 = value.strip_prefix(' ').expect("a value").parse().expect("a number");
        let family = families.get_mut(&current).expect("a described family");
        let suffix = match family.kind.as_str() {
            "counter" => "_total",
            "info" => "_info",
            "gauge" => "",
            other => panic!("{other}"),
        };
        assert_eq!(name, format!("{current}{suffix}"), "{line}");
        assert!(value >= 0.0 && value.is_finite(), "{line}");
        assert!(!family.samples.iter().any(|(_, others, _)| *others == labels), "{line}: twice");
        family.samples.push((name.to_owned(), labels, value));
    }
    for (name, family) in &families {
        assert!(!family.help.is_empty() && !family.kind.is_empty() && !family.samples.is_empty(), "{name}");
        assert!(family.unit.as_ref().is_none_or(|unit| name.ends_with(&format!("_{unit}"))), "{name}");
        assert!(name.starts_with("mmb_"), "{name}");
    }
    families
}

fn value(families: &BTreeMap<String, Family>, name: &str, wanted: &[(&str, &str)]) -> f64 {
    let samples = &families.get(name).unwrap_or_else(|| panic!("no {name}: {:?}", families.keys())).samples;
    let found = samples.iter().find(|(_, labels, _)| {
        wanted.iter().all(|(name, value)| labels.get(*name).is_some_and(|found| found == value))
    });
    found.unwrap_or_else(|| panic!("{name} {wanted:?}: {samples:?}")).2
}

#[test]
fn metrics_are_the_counters_of_the_daemon() {
    let mmb = start(POLICY);
    mmb.feed(&[datagram(53), datagram(54), datagram(55), Tcp::default().over_ip4()]);
    let reply = mmb.get("/metrics");
    assert_eq!(reply.headers["content-type"], "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let all = parse(&reply.body);
    for (name, labels, expected) in [
        ("mmb_up", &[][..], 1.0),
        ("mmb_build", &[("version", env!("CARGO_PKG_VERSION")), ("protocol", "1")], 1.0),
        ("mmb_port_up", &[("port", "lan")], 1.0),
        ("mmb_port_up", &[("port", "wan")], 0.0),
        ("mmb_port_mtu_bytes", &[("port", "wan")], 1500.0),
        ("mmb_packets_received", &[("port", "lan")], 4.0),
        ("mmb_packets_sent", &[("port", "wan")], 2.0),
        ("mmb_packets_lost", &[("port", "wan"), ("kind", "rx-missed")], 3.0),
        ("mmb_drops", &[("reason", "rule")], 2.0),
        ("mmb_drops", &[("reason", "conn-full")], 0.0),
        ("mmb_packets_made", &[("kind", "reset")], 0.0),
        ("mmb_packets_invalid", &[("kind", "out-of-window")], 0.0),
        ("mmb_targets_not_applied", &[("reason", "option-space")], 0.0),
        ("mmb_connections_ended", &[("reason", "timeout")], 0.0),
        ("mmb_connections", &[], 1.0),
        ("mmb_connections_made", &[], 1.0),
        ("mmb_worker_packets", &[("worker", "0"), ("stage", "classify")], 4.0),
        ("mmb_rules", &[], 4.0),
        ("mmb_rule_packets", &[("rule", "1"), ("name", "dns")], 1.0),
        ("mmb_rule_dropped_packets", &[("rule", "8"), ("name", "last")], 0.0),
    ] {
        assert_eq!(value(&all, name, labels), expected, "{name}");
    }
    let bytes = value(&all, "mmb_received_bytes", &[("port", "lan")]);
    assert_eq!(bytes, value(&all, "mmb_received_bytes", &[("port", "lan")]).max(4.0 * 42.0));
    assert_eq!(all["mmb_rule_packets"].samples.len(), 2, "only rules with a name");
}

#[test]
fn series_of_rules_are_bounded_and_off_on_request() {
    let mmb = start_with(POLICY, |options| WebOptions { metrics_rules: 1, ..options });
    let all = parse(&mmb.get("/metrics").body);
    assert_eq!(all["mmb_rule_packets"].samples.len(), 1);
    assert_eq!(value(&all, "mmb_rules", &[]), 4.0);
    let mmb = start_with(POLICY, |options| WebOptions { metrics_rules: 0, ..options });
    let all = parse(&mmb.get("/metrics").body);
    assert!(!all.contains_key("mmb_rule_packets") && !all.contains_key("mmb_rules"));
}

#[test]
fn a_daemon_that_does_not_answer_is_down() {
    let mut mmb = start(POLICY);
    mmb.stop_daemon();
    let reply = mmb.get("/metrics");
    assert_eq!(reply.status, 200);
    let all = parse(&reply.body);
    assert_eq!(value(&all, "mmb_up", &[]), 0.0);
    assert_eq!(all.len(), 1);
}

/// The names of metrics in an expression of PromQL, or in a query of a variable.
fn names(expression: &str, into: &mut BTreeSet<String>) {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    into.extend(words.filter(|word| word.starts_with("mmb_")).map(str::to_owned));
}

#[test]
fn the_board_shows_metrics_that_exist() {
    let board: Value = serde_json::from_str(include_str!("../../../../dist/grafana-mmb.json")).expect("JSON");
    let mut shown = BTreeSet::new();
    for panel in board["panels"].as_array().expect("panels") {
        let targets = panel["targets"].as_array().expect("targets");
        assert!(!targets.is_empty());
        for target in targets {
            names(target["expr"].as_str().expect("an expression"), &mut shown);
        }
    }
    names(&board["templating"].to_string(), &mut shown);
    let source = include_str!("../../src/metrics.rs");
    let mmb = start(POLICY);
    mmb.feed(&[datagram(54)]);
    let exported: BTreeSet<String> = parse(&mmb.get("/metrics").body)
        .into_values()
        .flat_map(|family| family.samples.into_iter().map(|(name, ..)| name))
        .collect();
    // Some exist only when something has happened, or the host has a flow offload.
    let sometimes = [
        "mmb_offload_packets_total",
        "mmb_offload_missed_packets_total",
        "mmb_targets_not_applied_total",
        "mmb_packets_invalid_total",
        "mmb_connections_ended_total",
    ];
    for name in &shown {
        let base = name.trim_start_matches("mmb_").trim_end_matches("_total");
        let is_rare = sometimes.contains(&name.as_str()) && source.contains(&format!("\"{base}\""));
        assert!(exported.contains(name) || is_rare, "{name} is not exported");
    }
    assert!(shown.len() > 15);
}
