//! The engine against the linear oracle on random policies and packets.
//!
//! A case is a few policies, one after the other, each with a vector of packets. Verdicts, bytes and counters are
//! compared after every vector. A failing case shrinks and prints as policy text and hexadecimal packets.
//! `MMB_ORACLE_CASES` sets how many cases are tried.

use mmb_differential::oracle::evaluate;
use mmb_differential::packet_spec;
use mmb_differential::stateless::{DifferentialTest, Incoming, ports};
use mmb_language::{Print, parse_command};
use mmb_packet::PortId;
use mmb_policy::Policy;
use mmb_policy::arbitrary;
use mmb_policy::arbitrary::RuleOptions;
use mmb_testkit::strategy;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// A policy and what comes in under it.
#[derive(Clone, Debug)]
struct Round {
    policy: Vec<String>,
    packets: Vec<Incoming>,
}

fn incoming() -> impl Strategy<Value = Incoming> {
    let headroom = prop_oneof![8 => Just(64usize), 1 => 0usize..8];
    let port = select(&[0u16, 0, 0, 1, 1, 2][..]).prop_map(PortId);
    (strategy::wire(), port, headroom).prop_map(|(wire, port, headroom)| Incoming {
        port,
        link: wire.link,
        headroom,
        bytes: wire.bytes,
    })
}

/// Policies in a row that share rules: each line has a number of its own, and each round takes some of the lines.
fn rounds() -> impl Strategy<Value = Vec<Round>> {
    let round = (vec(proptest::bool::weighted(0.7), 14), vec(incoming(), 1..24));
    (strategy::policy(), vec(round, 1..4)).prop_map(|(lines, rounds)| {
        let numbered =
            |(number, line): (usize, &String)| line.replacen("add", &format!("add id {}", number + 1), 1);
        let lines: Vec<String> = lines.iter().enumerate().map(numbered).collect();
        let taken = |takes: Vec<bool>| {
            lines.iter().zip(takes).filter(|(_, take)| *take).map(|(line, _)| line.clone())
        };
        rounds.into_iter().map(|(takes, packets)| Round { policy: taken(takes).collect(), packets }).collect()
    })
}

/// Packets, each with a rule that it matches, over every field and form of value; malformed ones have none.
fn aimed_at() -> impl Strategy<Value = Vec<(Incoming, Option<String>)>> {
    vec(incoming(), 1..16).prop_flat_map(|packets| {
        let pairs = packets.into_iter().map(|packet| match packet_spec(&packet, &ports(1500)) {
            Some(spec) => arbitrary::rule_for(spec, RuleOptions::default())
                .prop_map(move |rule| (packet.clone(), Some(rule.text().to_string())))
                .boxed(),
            None => Just((packet, None)).boxed(),
        });
        pairs.collect::<Vec<_>>()
    })
}

/// More rules than fit a few tables, and more packets than fit a vector.
fn large_round() -> impl Strategy<Value = Round> {
    (vec(strategy::rule(), 50..300), vec(aimed_at(), 4..12), vec(incoming(), 1..300)).prop_map(
        |(mut policy, aimed, mut packets)| {
            let (targets, rules): (Vec<_>, Vec<_>) = aimed.concat().into_iter().unzip();
            policy.extend(rules.into_iter().flatten());
            policy.splice(0..0, strategy::sets::FIXED.map(str::to_owned));
            packets.extend(targets);
            Round { policy, packets }
        },
    )
}

/// The lines that are accepted, as one policy.
fn load<'l>(lines: impl IntoIterator<Item = &'l String>) -> Policy {
    let mut policy = Policy::default();
    for line in lines {
        if let Ok((command, _)) = parse_command(line) {
            // A command that cannot be run here is left out like one that cannot be parsed.
            let _ = command.run(&mut policy);
        }
    }
    policy
}

fn run(rounds: &[Round], mtu: u32, seed: u64) -> Result<(), TestCaseError> {
    let mut test = DifferentialTest::new(ports(mtu), seed);
    for round in rounds {
        let published = test.publish(&load(&round.policy));
        prop_assert!(published.is_ok(), "{published:?}");
        if let Err(difference) = test.run(&round.packets) {
            prop_assert!(false, "{difference}");
        }
    }
    Ok(())
}

fn mtu() -> impl Strategy<Value = u32> {
    prop_oneof![4 => Just(1500), 1 => 20u32..80]
}

fn cases() -> u32 {
    std::env::var("MMB_ORACLE_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(1500)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases(),
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn engine_and_oracle_agree(
        rounds in rounds(),
        mtu in mtu(),
        seed in any::<u64>(),
    ) {
        run(&rounds, mtu, seed)?;
    }

    #[test]
    fn rules_made_for_a_packet_match_it(pairs in aimed_at(), mtu in mtu(), seed in any::<u64>()) {
        let (packets, rules): (Vec<_>, Vec<_>) = pairs.iter().cloned().unzip();
        run(&[Round { policy: rules.into_iter().flatten().collect(), packets }], mtu, seed)?;
        for (packet, rule) in &pairs {
            let policy = load(rule);
            let matched = evaluate(&policy, &ports(mtu), &packet.received(), &mut || 0).matched;
            prop_assert_eq!(matched.len(), policy.rules.len(), "{:?} and {:?}", rule, packet);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: cases().div_ceil(50),
        max_shrink_iters: 2_000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn many_rules_on_many_packets(rounds in vec(large_round(), 1..3), seed in any::<u64>()) {
        run(&rounds, 1500, seed)?;
    }
}
