//! Going over to a new policy renumbers rules; what they do to packets must not change by that.

use mmb_differential::oracle::evaluate;
use mmb_differential::stateless::{Incoming, ports};
use mmb_language::{Command, Print, parse_command};
use mmb_packet::PortId;
use mmb_policy::{Policy, PolicyDiff};
use mmb_testkit::strategy;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// Rules out of a few, in any order, some of them with numbers of their own.
fn load(lines: &[String], picks: &[(Index, Option<u32>)]) -> Policy {
    let mut policy = Policy::default();
    for (pick, number) in picks {
        let line = pick.get(lines);
        let line = match number {
            Some(number) => line.replacen("add", &format!("add id {number}"), 1),
            None => line.clone(),
        };
        if let Ok((command @ Command::Add(_), _)) = parse_command(&line) {
            // A number that is taken leaves the rule out.
            let _ = command.run(&mut policy);
        }
    }
    policy
}

fn incoming() -> impl Strategy<Value = Incoming> {
    strategy::wire().prop_map(|wire| Incoming {
        port: PortId(0),
        link: wire.link,
        headroom: 64,
        bytes: wire.bytes,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_means_what_the_new_policy_means(
        lines in vec(strategy::rule(), 2..8),
        old in vec((any::<Index>(), prop_oneof![2 => Just(None), 1 => select(&[1u32, 5, 9][..]).prop_map(Some)]), 0..8),
        new in vec((any::<Index>(), prop_oneof![4 => Just(None), 1 => select(&[1u32, 5, 9][..]).prop_map(Some)]), 0..8),
        packets in vec(incoming(), 1..24),
    ) {
        let (old, new) = (load(&lines, &old), load(&lines, &new));
        let plan = PolicyDiff::new(&old, new.clone());
        for packet in &packets {
            // Draws come in the order of numbers, which may change: all are the same here.
            let evaluated = |policy| evaluate(policy, &ports(1500), &packet.received(), &mut || 50_000);
            let (before, after) = (evaluated(&new), evaluated(&plan.policy));
            let context = || format!("{packet:?}\n{}--- planned from\n{}---\n{}", new.text(), old.text(), plan.policy.text());
            prop_assert_eq!(before.verdict, after.verdict, "{}", context());
            prop_assert_eq!(before.bytes, after.bytes, "{}", context());
            prop_assert_eq!(before.matched.len(), after.matched.len(), "{}", context());
        }
    }
}
