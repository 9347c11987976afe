//! The engine against the linear oracle where connections have cached verdicts: random stateless rules, many of which match some packets of a
//! connection and not others, beside stateful rules that change no packet.
//!
//! Datagrams of few connections come again and again under a few policies, so that most of them take a cached verdict. For the oracle, the
//! stateful rules are stateless: they match all datagrams of both directions.

use mmb_differential::stateless::{DifferentialTest, Incoming, ports};
use mmb_language::parse_command;
use mmb_packet::{LinkType, PortId};
use mmb_policy::Policy;
use mmb_testkit::{Ip4, Ip6, Udp, Upper, strategy};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// A datagram of one of a few connections.
fn datagram() -> impl Strategy<Value = Incoming> {
    let fields = (
        0..3u16,
        any::<bool>(),
        any::<bool>(),
        select(&[1u8, 2, 63, 64][..]),
        select(&[0u8, 32, 36][..]),
        0..3usize,
    );
    fields.prop_map(|(connection, is_reply, is_ip6, ttl, tos, len)| {
        let (sport, dport) = if is_reply { (53, 5000 + connection) } else { (5000 + connection, 53) };
        let upper = Upper::Udp(Udp { sport, dport, payload: vec![7; 10 * len], ..Udp::default() });
        let bytes = if is_ip6 {
            let mut ip = Ip6 { hop_limit: ttl, ..Ip6::new(upper) };
            if is_reply {
                std::mem::swap(&mut ip.source, &mut ip.destination);
            }
            ip.frame().bytes()
        } else {
            let mut ip = Ip4 { ttl, tos, ..Ip4::new(upper) };
            if is_reply {
                std::mem::swap(&mut ip.source, &mut ip.destination);
            }
            ip.frame().bytes()
        };
        Incoming { port: PortId(u16::from(is_reply)), link: LinkType::Ethernet, headroom: 64, bytes }
    })
}

/// Parts of rules that may match them: what all packets of a direction have in common, and the rest.
const CONSTANT: [&str; 6] =
    ["udp-dport 53", "udp-sport 5000-5001", "in a", "net-proto ip6", "ip-proto udp", "ip-saddr 10.0.0.0/8"];
const PER_PACKET: [&str; 6] =
    ["ip-ttl 1", "ip-ttl > 2", "ip6-hop-limit 64", "ip-dscp 8", "udp-len 18", "ip-len < 40"];
const TARGETS: [&str; 8] = [
    "drop",
    "drop 50%",
    "drop 10% mod ip-ttl 7",
    "accept",
    "mod ip-ttl 9",
    "mod ip-dscp 3",
    "mod udp-dport 54",
    "mod ip6-hop-limit 5 accept",
];

/// A rule that may match them, if the checker allows it.
fn rule() -> impl Strategy<Value = String> {
    let prio = select(&["", "prio 1 ", "prio 99 ", "prio 100 ", "prio 4294967295 "][..]);
    let constant = prop_oneof![2 => Just("all"), 6 => select(&CONSTANT[..])];
    let per_packet = prop_oneof![1 => Just(None), 6 => select(&PER_PACKET[..]).prop_map(Some)];
    let aimed = (prio, constant, per_packet, select(&TARGETS[..])).prop_map(
        |(prio, constant, per_packet, target)| match (constant, per_packet) {
            (matches, None) | ("all", Some(matches)) => format!("add {prio}{matches} {target}"),
            (constant, Some(per_packet)) => format!("add {prio}{constant} {per_packet} {target}"),
        },
    );
    prop_oneof![9 => aimed, 1 => strategy::rule()]
}

/// Stateful rules that match all of them, without mappings.
const STATEFUL: [&str; 3] = [
    "add-stateful id 1 ip-proto udp accept",
    "add-stateful id 1 prio 50 ip-proto udp drop 20%",
    "add-stateful id 1 all mod ip-dscp 4",
];

fn load(stateful: &str, rules: &[(usize, &String)]) -> Policy {
    let mut policy = Policy::default();
    let numbered = rules.iter().map(|(id, rule)| rule.replacen("add", &format!("add id {}", id + 2), 1));
    for line in std::iter::once(stateful.to_owned()).chain(numbered) {
        if let Ok((command, _)) = parse_command(&line) {
            // A command that cannot be run here is left out like one that cannot be parsed.
            let _ = command.run(&mut policy);
        }
    }
    policy
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("MMB_ORACLE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(200),
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn engine_and_oracle_agree_on_packets_of_connections(
        stateful in select(&STATEFUL[..]),
        rules in vec(rule(), 1..8),
        rounds in vec((vec(any::<bool>(), 8), vec(vec(datagram(), 1..24), 2..5)), 1..5),
        seed in any::<u64>(),
    ) {
        let mut test = DifferentialTest::new(ports(1500), seed);
        for (takes, vectors) in &rounds {
            let taken: Vec<_> = rules.iter().enumerate().filter(|(at, _)| takes[*at]).collect();
            let published = test.publish(&load(stateful, &taken));
            prop_assert!(published.is_ok(), "{published:?}");
            for vector in vectors {
                if let Err(difference) = test.run(vector) {
                    prop_assert!(false, "{difference}");
                }
            }
        }
    }
}

#[test]
fn the_parts_of_rules_can_be_parsed() {
    for matches in CONSTANT.iter().chain(&PER_PACKET) {
        assert!(parse_command(&format!("add {matches} drop")).is_ok(), "{matches}");
    }
    for target in TARGETS {
        assert!(parse_command(&format!("add all {target}")).is_ok(), "{target}");
    }
    assert!(STATEFUL.iter().all(|line| parse_command(line).is_ok()));
}
