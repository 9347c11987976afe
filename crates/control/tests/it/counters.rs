//! Counters as clients see them, after a worker has processed packets.

use crate::common::{Running, start};
use mmb_engine::{Count, CounterKind, SavedCounter, SavedRule, SavedState, Verdict};
use mmb_packet::PortId;
use mmb_policy::RuleId;
use mmb_protocol::answer::{Answer, PortLine, PortLossLine, RuleLine, StageLine};
use mmb_testkit::{Frame, Tcp, Udp};

fn listed(mmb: &Running) -> Vec<RuleLine> {
    let line = |answer| match answer {
        Answer::Rule(line) => Some(line),
        _ => None,
    };
    mmb.run("list").into_iter().filter_map(line).collect()
}

fn counted(mmb: &Running) -> Vec<(u32, Option<u64>)> {
    listed(mmb).into_iter().map(|line| (line.id, line.packets)).collect()
}

fn web() -> Frame {
    Tcp::default().dport(80).over_ip4()
}

fn dns() -> Frame {
    Udp::default().dport(53).over_ip4()
}

#[test]
fn rules_ports_drops_and_stages_count() {
    let mmb = start("add tcp-dport 80 drop\nadd ip-proto udp mod ip-ttl 9\nadd all accept\n");
    let verdicts = mmb.feed(&[web(), dns(), dns()]);
    assert_eq!(verdicts[1..], [Verdict::Send(PortId(1)); 2]);
    let rules = listed(&mmb);
    assert_eq!(rules.iter().map(|rule| rule.packets).collect::<Vec<_>>(), [Some(1), Some(2), Some(3)]);
    let length = |frame: &Frame| frame.bytes().len() as u64;
    assert_eq!(rules[1].bytes, Some(2 * length(&dns())));

    let ports: Vec<PortLine> = mmb
        .run("show ports")
        .into_iter()
        .filter_map(|answer| if let Answer::Port(line) = answer { Some(line) } else { None })
        .collect();
    assert_eq!((ports[0].rx.packets, ports[0].rx.bytes), (3, length(&web()) + 2 * length(&dns())));
    assert_eq!(ports[1].rx.packets, 0);

    let stage: Vec<StageLine> = mmb
        .run("show runtime")
        .into_iter()
        .filter_map(|answer| if let Answer::Stage(line) = answer { Some(line) } else { None })
        .collect();
    assert_eq!((stage[0].name.as_str(), stage[0].vectors, stage[0].packets), ("parse", 1, 3));
    assert_eq!(stage[0].packets_per_vector, 3.0);
}

#[test]
fn the_drops_of_rules_add_up_to_their_reason() {
    let mmb = start("add id 1 tcp-dport 80 drop\nadd id 2 ip-proto udp drop\nadd id 3 all drop\n");
    mmb.feed(&[web(), dns(), dns(), Tcp::default().dport(81).over_ip4()]);
    let of_rules =
        |mmb: &Running| -> Vec<_> { listed(mmb).iter().map(|rule| rule.dropped_packets).collect() };
    assert_eq!(of_rules(&mmb), [Some(1), Some(2), Some(1)]);
    assert_eq!(listed(&mmb)[1].dropped_bytes, Some(2 * dns().bytes().len() as u64));
    let former = |mmb: &Running| {
        mmb.run("list").into_iter().find_map(|answer| match answer {
            Answer::DroppedByFormerRules(traffic) => Some(traffic.packets),
            _ => None,
        })
    };
    assert_eq!(former(&mmb), None);
    mmb.run("del 2");
    assert_eq!((of_rules(&mmb), former(&mmb)), (vec![Some(1), Some(1)], Some(2)));
    assert!(listed(&mmb).iter().all(|rule| rule.dropped_bytes.is_some()));
    assert_eq!(mmb.run("list --terse").len(), 3, "no counters, and no line about former rules");
}

#[test]
fn counters_are_restored_to_the_same_rules() {
    let count = |packets| Count { packets, bytes: 60 * packets };
    let saved =
        [(1, "tcp-dport 80 drop"), (2, "udp-dport 53 drop"), (3, "all mod ip-ttl 9")].map(|(id, rule)| {
            let text = format!("add id {id} {rule}");
            SavedRule { id: RuleId(id), matched: count(1), dropped: count(1), text }
        });
    let later = start("add id 1 tcp-dport 80 drop\nadd id 2 udp-dport 54 drop\nadd id 4 all mod ip-ttl 9\n");
    let counter =
        |kind, name: &str, packets| SavedCounter { kind, name: name.to_owned(), count: count(packets) };
    let mut state = SavedState::default();
    state.rules.extend(saved);
    state.counters.extend([
        counter(CounterKind::Drop, "rule", 5),
        counter(CounterKind::Drop, "no-buffer", 7),
        counter(CounterKind::Drop, "of-a-later-version", 7),
        counter(CounterKind::Rx, "lan", 20),
        counter(CounterKind::Tx, "wan", 4),
        counter(CounterKind::Rx, "gone", 9),
    ]);
    later.daemon.lock().expect("no panic").restore_counters(&state);
    later.feed(&[web()]);
    let daemon = later.daemon.lock().expect("no panic");
    let ports = daemon.engine().port_counts();
    assert_eq!(
        ports.iter().map(|port| (port.rx.packets, port.tx.packets)).collect::<Vec<_>>(),
        [(21, 0), (0, 4)]
    );
    assert_eq!(daemon.engine().drops().iter().map(|(_, count)| count).sum::<u64>(), 7 + (1 + 5 + 2 + 1));
    assert_eq!(daemon.engine().dropped_by_former_rules().packets, 5 + 2);
    let saved = daemon.engine().saved_counters();
    assert!(saved.contains(&counter(CounterKind::Drop, "rule", 7)) && saved.len() == 2 + 4, "{saved:?}");
    drop(daemon);
    let dropped: Vec<_> = listed(&later).iter().map(|rule| (rule.packets, rule.dropped_packets)).collect();
    assert_eq!(dropped, [(Some(2), Some(2)), (Some(0), Some(0)), (Some(1), Some(0))]);
    assert!(shows_drops_by_rules(&later, 1 + 5 + 2 + 1));
}

fn shows_drops_by_rules(mmb: &Running, packets: u64) -> bool {
    let by_rules = |answer: &Answer| matches!(answer, Answer::Drop(line) if line.reason == "rule" && line.count == packets);
    mmb.run("show errors").iter().any(by_rules)
}

#[test]
fn losses_of_devices_are_among_the_errors() {
    let mmb = start("");
    let losses = || {
        let line = |answer| if let Answer::PortLoss(line) = answer { Some(line) } else { None };
        mmb.run("show errors").into_iter().filter_map(line).collect::<Vec<_>>()
    };
    let of_lan = PortLossLine { port: "lan".to_owned(), rx_missed: 3, rx_errors: 0, tx_errors: 1 };
    assert_eq!((losses().len(), &losses()[0]), (2, &of_lan));
    mmb.run("clear counters");
    assert_eq!(losses(), []);
}

#[test]
fn cleared_counters_begin_at_zero() {
    let mmb = start("add tcp-dport 80 drop\nadd ip-proto udp mod ip-ttl 9\n");
    let before = ["list", "show errors", "show ports", "show runtime", "show conn summary"];
    let shown = |mmb: &Running| before.map(|command| format!("{:?}", mmb.run(command)));
    mmb.run("clear counters");
    let nothing = shown(&mmb);
    mmb.feed(&[web(), dns(), dns()]);
    let something = shown(&mmb);
    assert_eq!(mmb.run("clear counters"), [Answer::Cleared("counters".to_owned())]);
    assert_eq!(shown(&mmb)[..3], nothing[..3]);
    assert_ne!(nothing[..3], something[..3]);
    mmb.feed(&[web(), dns(), dns()]);
    assert_eq!(shown(&mmb)[..3], something[..3]);
}

#[test]
fn drops_are_shown_by_their_reason() {
    let mmb = start("add tcp-dport 80 drop\n");
    let mut bytes = web().bytes();
    // The version of the IP header.
    bytes[14] = 0x95;
    mmb.feed_bytes(&mut [bytes]);
    mmb.feed(&[web(), web(), dns()]);
    let mut drops: Vec<_> = mmb
        .run("show errors")
        .into_iter()
        .filter_map(
            |answer| if let Answer::Drop(line) = answer { Some((line.reason, line.count)) } else { None },
        )
        .collect();
    drops.sort();
    assert_eq!(drops, [("ip-bad-version".to_owned(), 1), ("rule".to_owned(), 2)]);
}

#[test]
fn tables_say_which_fields_the_rules_fix() {
    let mmb = start("add tcp-dport 80 drop\nadd tcp-dport 81 drop\nadd ip-saddr 10.0.0.0/8 drop\n");
    let tables: Vec<_> = mmb
        .run("show tables")
        .into_iter()
        .filter_map(|answer| if let Answer::Table(line) = answer { Some(line) } else { None })
        .filter(|table| table.class == "ip4")
        .collect();
    let ports = tables.iter().find(|table| table.mask.contains("tcp-dport")).expect("a table of ports");
    assert_eq!((ports.rules, ports.entries), (2, 2));
    assert!((0.0..=1.0).contains(&ports.load));
    assert_eq!(tables.iter().map(|table| table.rules).sum::<u64>(), 3);
    let memory = mmb.run("show tables").into_iter().find_map(|answer| match answer {
        Answer::TableMemory(line) => Some(line),
        _ => None,
    });
    let memory = memory.expect("the memory follows the tables");
    assert!(memory.bytes > 0 && memory.huge_bytes <= memory.bytes, "{memory:?}");
    let empty = start("");
    let is_memory = |answer: &Answer| matches!(answer, Answer::TableMemory(_));
    assert!(empty.run("show tables").iter().any(is_memory), "what earlier rules left is told too");
}

#[test]
fn a_rule_that_stays_keeps_its_counters_and_a_new_one_starts_at_nothing() {
    let mmb = start("add tcp-dport 80 drop\nadd ip-proto udp accept\n");
    mmb.feed(&[web(), dns(), dns()]);
    assert_eq!(counted(&mmb), [(1, Some(1)), (2, Some(2))]);
    mmb.run("add all accept");
    assert!(mmb.apply("add ip-proto udp accept\nadd tcp-dport 443 drop\nadd all accept\n").1.ok);
    assert_eq!(counted(&mmb), [(2, Some(2)), (3, Some(0)), (4, Some(0))]);
    mmb.feed(&[dns()]);
    assert_eq!(counted(&mmb), [(2, Some(3)), (3, Some(1)), (4, Some(0))]);
    mmb.refused(&["del 99"]);
    assert!(!mmb.apply("add bogus").1.ok);
    assert_eq!(counted(&mmb), [(2, Some(3)), (3, Some(1)), (4, Some(0))], "a refusal touches no counter");
    mmb.run("flush");
    mmb.run("add id 2 ip-proto udp accept");
    assert_eq!(counted(&mmb), [(2, Some(0))]);
}
