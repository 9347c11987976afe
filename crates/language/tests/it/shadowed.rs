//! Rules that never decide.

use mmb_language::{ShadowedRule, parse_policy, shadowed};

/// The shadowed rules of a policy, each with the rule that decides instead; the rules are numbered from 1.
fn found(text: &str) -> Vec<(u32, u32)> {
    let (policy, _) = parse_policy(text).unwrap_or_else(|errors| panic!("{text}: {errors:?}"));
    let found = shadowed(&policy.rules, 1 << 20);
    found.iter().map(|ShadowedRule { id, by }| (id.0, by.0)).collect()
}

#[test]
fn a_rule_behind_a_better_one_with_all_its_packets_is_found() {
    for (better, worse) in [
        ("prio 1 all accept", "tcp-dport 80 drop"),
        ("prio 1 ip-proto tcp accept", "tcp-dport 80 drop"),
        ("prio 1 tcp-dport 80-90 drop", "tcp-dport {80, 85-90} drop"),
        ("prio 1 ip-saddr 10.0.0.0/8 drop", "ip-saddr 10.1.2.0/24 ip-proto udp accept"),
        ("prio 1 in lan drop", "in lan tcp-dport 80 drop 50%"),
        ("prio 1 in {lan, dmz} drop", "in lan accept"),
        ("prio 1 ! tcp-dport 80 drop", "tcp-dport 81-90 drop"),
        ("prio 1 ! ip-saddr 10.0.0.0/8 drop", "ip-saddr 192.0.2.1 tcp-dport 80 accept"),
        ("prio 1 tcp-opt-mss > 1400 drop", "tcp-opt-mss > 1400 tcp-syn drop"),
        ("prio 1 payload \"GET\" drop", "payload \"GET\" tcp-dport 80 drop"),
        ("prio 1 ct {new, invalid} drop", "ct new tcp-dport 80 accept"),
        // Of the same priority, `accept` decides, and then the first rule.
        ("tcp-dport 80 drop", "tcp-dport 80 drop"),
        ("tcp-dport 80 accept", "tcp-dport 80 drop"),
        ("all drop", "tcp-dport 80 drop 10%"),
        ("ip-proto udp accept", "udp-dport 53 accept"),
    ] {
        assert_eq!(found(&format!("add {better}\nadd {worse}")), [(2, 1)], "{better}: {worse}");
        if better.starts_with("prio") {
            assert_eq!(found(&format!("add {worse}\nadd {better}")), [(1, 2)], "{better}: {worse}");
        }
    }
    assert_eq!(
        found("add prio 1 tcp-dport 80 drop\nadd-stateful tcp-dport 80 ip-saddr 10.0.0.0/8 accept"),
        [(2, 1)]
    );
    let chain = "add prio 5 all drop\nadd prio 9 ip-proto tcp accept\nadd prio 12 tcp-dport 80 drop\nadd prio 20 udp-dport 1 drop";
    assert_eq!(found(chain).len(), 3);
}

#[test]
fn a_rule_that_decides_for_some_packet_is_not_found() {
    for (better, worse) in [
        ("prio 1 tcp-dport 80 drop", "tcp-dport 80-81 drop"),
        ("prio 9999999 all accept", "tcp-dport 80 drop"),
        ("prio 1 all drop 99%", "tcp-dport 80 drop"),
        ("prio 1 all mod ip-ttl 9", "tcp-dport 80 drop"),
        ("prio 1 tcp-dport 80 drop", "tcp-dport 80 mod ip-ttl 9"),
        // Frames that are not IP, later fragments, and the other version of IP.
        ("prio 1 all drop", "eth-type 0x0806 drop"),
        ("prio 1 tcp-dport 0-65535 drop", "ip-proto tcp drop"),
        ("prio 1 ip-saddr 0.0.0.0/0 drop", "ip-proto tcp drop"),
        ("prio 1 ! tcp-dport 80 drop", "udp-dport 53 drop"),
        ("prio 1 ! tcp-opt-mss drop", "tcp-dport 80 drop"),
        ("prio 1 ct established drop", "tcp-dport 80 drop"),
        ("prio 1 ct new drop", "ct {new, established} drop"),
        ("prio 1 in lan drop", "tcp-dport 80 drop"),
        ("prio 1 payload \"GET /\" drop", "payload \"GET\" drop"),
        ("tcp-dport 80 accept", "ip-proto tcp drop"),
    ] {
        assert_eq!(found(&format!("add {better}\nadd {worse}")), [], "{better}: {worse}");
    }
    // Of the same priority, `accept` decides.
    assert_eq!(found("add tcp-dport 80 drop\nadd tcp-dport 80 accept"), [(1, 2)]);
    // Replies of connections do not match the better rule; a stateful rule does not apply to all packets that match it.
    assert_eq!(found("add prio 1 tcp-dport 80 accept\nadd-stateful tcp-dport 80 drop"), []);
    assert_eq!(found("add-stateful prio 1 tcp-dport 80 accept\nadd tcp-dport 80 drop"), []);
}

#[test]
fn a_rule_that_decides_by_a_stream_neither_hides_others_nor_is_hidden() {
    for (one, other) in [
        ("add-stateful prio 1 tcp-dport 80 stream \"a\" drop", "add tcp-dport 80 accept"),
        ("add-stateful prio 1 stream \"a\" drop", "add-stateful stream \"a\" tcp-dport 80 drop"),
        ("add prio 1 all accept", "add-stateful tcp-dport 80 stream \"a\" drop"),
        ("add prio 1 all accept", "add-stateful tcp-dport 443 tls-sni \"a.org\" close"),
    ] {
        assert_eq!(found(&format!("{one}\n{other}")), [], "{one}: {other}");
    }
}

#[test]
fn the_search_is_bounded() {
    let rules: String = (0..3000).map(|n| format!("add prio {} tcp-dport {n} drop\n", n + 2)).collect();
    let (policy, _) = parse_policy(&format!("add prio 1 ip-proto tcp accept\n{rules}")).expect("a policy");
    assert_eq!(shadowed(&policy.rules, 1 << 24).len(), 3000);
    assert_eq!(shadowed(&policy.rules, 100), []);
    assert!(shadowed(&policy.rules, 1 << 14).len() < 3000);
}
