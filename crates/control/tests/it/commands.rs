//! Every command over a real socket: its effect and its answer.

use crate::common::{errors, rules, start};
use mmb_policy::settings::Poll;
use mmb_protocol::Request;
use mmb_protocol::answer::{Answer, ChangeCount, LinkLine, RuleText, Topic};
use serde_json::json;

#[test]
fn rules_are_added_listed_deleted_and_flushed() {
    let mmb = start("");
    let added = mmb.run("add tcp-dport 80 drop");
    assert_eq!(added, [Answer::Added(RuleText { id: 1, rule: "add tcp-dport 80 drop".into() })]);
    mmb.run("mmb add id 7 prio 5 name web ip-proto udp accept # and why");
    mmb.run("add all mod ip-ecn 0");
    assert_eq!(
        mmb.rules(),
        ["1 add tcp-dport 80 drop", "7 add prio 5 name web ip-proto udp accept", "8 add all mod ip-ecn 0"]
    );
    let removed = mmb.run("del 7");
    assert!(matches!(&removed[..], [Answer::Removed(rule)] if rule.id == 7), "{removed:?}");
    let (flushed, end) = mmb.ask(&Request::Run(vec!["flush".into()]));
    assert_eq!(flushed.len(), 2);
    assert_eq!(end.change, Some(ChangeCount { added: 0, removed: 2, kept: 0, dry_run: false }));
    assert_eq!(mmb.rules(), Vec::<String>::new());
    mmb.run("add all accept");
    assert_eq!(mmb.rules(), ["9 add all accept"], "numbers do not come back");
}

/// The daemon opens no file for a client.
#[test]
fn lists_of_patterns_are_made_of_what_the_client_sends() {
    let mmb = start("");
    let file = std::env::current_exe().expect("a file that there is").display().to_string();
    let command = Request::Run(vec![format!("patterns bad \"{file}\"")]);
    let (answers, end) = mmb.ask(&command);
    assert!(
        !end.ok && errors(answers.clone())[0].message.contains("its content did not come"),
        "{answers:?}"
    );
    let sent = |file: &str, content: &str| {
        Request::WithFiles(
            [(file.to_owned(), content.as_bytes().to_vec())].into(),
            Box::new(Request::Run(vec![format!("patterns bad {file}")])),
        )
    };
    let (answers, end) = mmb.ask(&sent("/x", "one\ntwo\n"));
    assert!(end.ok, "{answers:?}");
    let [Answer::Patterns(line)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((line.name.as_str(), line.file.as_str(), line.patterns), ("bad", "/x", 2));
    assert_eq!(mmb.ask(&sent("/x", "one\r\ntwo")).0, [], "the same patterns");
    let (answers, _) = mmb.ask(&sent("x", "one\n"));
    assert!(errors(answers.clone())[0].message.contains("not a whole path"), "{answers:?}");
}

#[test]
fn a_rule_is_replaced_under_its_number() {
    let mmb = start("add id 4 name web tcp-dport 80 drop\nadd-stateful id 5 ip-saddr 10.0.0.0/24 accept");
    let answers = mmb.run("replace 4 prio 7 tcp-dport 443 drop");
    let text = |rule: &str| RuleText { id: 4, rule: rule.into() };
    let expected = [
        Answer::Removed(text("add name web tcp-dport 80 drop")),
        Answer::Added(text("add prio 7 tcp-dport 443 drop")),
    ];
    assert_eq!(answers, expected);
    mmb.run("replace 5 ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1");
    assert_eq!(mmb.rules()[1], "5 add-stateful ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1");
    let refused = |command: &str| mmb.refused(&[command])[0].message.clone();
    assert!(
        refused("replace 4 all map ip-saddr 192.0.2.1")
            .starts_with("rule 4 is not stateful, and stays so: `map` needs")
    );
    assert!(refused("replace 9 all drop").contains("there is no rule 9"));
    mmb.run("add name web udp-dport 80 drop");
    mmb.run("add name web udp-dport 81 drop");
    assert_eq!(mmb.run("del name web").len(), 2);
    assert_eq!(refused("del name web"), "there is no rule called 'web'");
    assert_eq!(mmb.rules().len(), 2);
}

#[test]
fn a_terse_list_has_no_counters() {
    let mmb = start("add all drop");
    let Answer::Rule(line) = &mmb.run("list --terse")[1] else { panic!("a rule") };
    assert_eq!((line.packets, line.bytes), (None, None));
    let Answer::Rule(line) = &mmb.run("list")[1] else { panic!("a rule") };
    assert_eq!((line.packets, line.bytes), (Some(0), Some(0)));
}

#[test]
fn a_wrong_command_gets_a_position_and_a_suggestion() {
    let mmb = start("add all drop");
    let [error] = &mmb.refused(&["add tcp-dpotr 80 drop"])[..] else { panic!("one error") };
    assert_eq!((error.line, error.column, error.span), (Some(1), Some(5), Some((4, 13))));
    assert_eq!(error.suggestion.as_deref(), Some("tcp-dport"));
    assert_eq!(error.command, Some(0));
    assert_eq!(mmb.rules(), ["1 add all drop"]);
    assert!(mmb.refused(&[""])[0].message.contains("nothing"));
    assert!(mmb.refused(&["apply x"])[0].message.contains("apply"));
    assert!(mmb.refused(&["del 9"])[0].message.contains("no rule 9"));
    assert!(mmb.refused(&["add id 1 all drop"])[0].message.contains("rule 1"));
}

#[test]
fn an_unknown_port_is_reported_with_the_known_ones() {
    let mmb = start("");
    for command in ["add in lann drop", "disable lann"] {
        let message = mmb.refused(&[command]).remove(0).message;
        assert!(message.contains("lann") && message.contains("lan, wan"), "{command}: {message}");
    }
    assert_eq!(mmb.rules(), Vec::<String>::new());
}

#[test]
fn a_batch_is_committed_as_a_whole_or_not_at_all() {
    let mmb = start("add id 5 all drop");
    let errors = mmb.refused(&["add tcp-dport 80 drop", "flush", "del 77", "add all drop"]);
    assert_eq!(errors[0].command, Some(2));
    let errors = mmb.refused(&["add tcp-dport 80 drop", "add bogus drop", "add ip-ttl 999 drop"]);
    assert_eq!(
        errors.iter().map(|error| error.command).collect::<Vec<_>>(),
        [Some(1), Some(2)],
        "all are told"
    );
    assert_eq!(mmb.rules(), ["5 add all drop"]);

    let batch = ["del 5", "add tcp-dport 80 drop", "set poll spin", "list", "show settings"];
    let (answers, end) = mmb.ask(&Request::Run(batch.map(str::to_owned).to_vec()));
    assert_eq!(end.change, Some(ChangeCount { added: 1, removed: 1, kept: 0, dry_run: false }));
    assert_eq!(rules(&answers), ["6 add tcp-dport 80 drop"]);
    let begun = answers.iter().filter_map(|answer| match answer {
        Answer::Begin(begin) => Some((begin.command, begin.topic)),
        _ => None,
    });
    assert_eq!(begun.collect::<Vec<_>>(), [(3, Topic::Rules), (4, Topic::Settings)]);
    assert_eq!(*mmb.polls.lock().expect("not poisoned"), [Poll::Adaptive, Poll::Spin]);
}

#[test]
fn ports_are_shown_switched_off_and_on() {
    let mmb = start("");
    assert_eq!(mmb.run("disable wan"), [Answer::Disabled("wan".into())]);
    assert_eq!(mmb.run("disable wan"), [], "they were");
    let ports = mmb.run("show ports");
    let [Answer::Begin(_), Answer::Port(lan), Answer::Port(wan)] = &ports[..] else {
        panic!("two ports: {ports:?}")
    };
    assert_eq!((lan.name.as_str(), lan.enabled, lan.link), ("lan", true, LinkLine::Up));
    assert_eq!((wan.name.as_str(), wan.enabled, wan.link), ("wan", false, LinkLine::Down));
    assert_eq!(
        json!(lan),
        json!({
            "name": "lan", "device": "eth1", "driver": "net_fake", "mac": "02:00:00:00:00:01", "mtu": 1500,
            "link": "up", "peer": "wan", "enabled": true, "rx": {"packets": 0, "bytes": 0},
            "tx": {"packets": 0, "bytes": 0}, "rx_missed": 3, "rx_errors": 0, "tx_errors": 1
        })
    );
    assert_eq!(mmb.run("enable wan"), [Answer::Enabled("wan".into())]);
}

#[test]
fn settings_are_shown_and_set() {
    let mmb = start("");
    let values = |answers: Vec<Answer>| {
        let value = |answer| match answer {
            Answer::Setting(line) => Some((line.name, line.value)),
            _ => None,
        };
        answers.into_iter().filter_map(value).collect::<Vec<_>>()
    };
    assert_eq!(values(mmb.run("set ip6-max-headers 4")), [("ip6-max-headers".to_owned(), json!(4))]);
    let shown = values(mmb.run("show settings"));
    assert_eq!(
        shown[..2],
        [("ip6-max-headers".to_owned(), json!(4)), ("poll".to_owned(), json!("adaptive"))]
    );
    assert_eq!(values(mmb.run("set conn max 5000")), [("conn max".to_owned(), json!(5000))]);
    assert_eq!(values(mmb.run("set conn pickup strict")), [("conn pickup".to_owned(), json!("strict"))]);
    assert!(!mmb.refused(&["set ip6-max-headers 1000"]).is_empty());
    assert!(!mmb.refused(&["set pol spin"]).is_empty());
}

#[test]
fn stages_are_shown_for_each_worker_and_together() {
    let mmb = start("");
    let answers = mmb.run("show runtime");
    let Answer::Worker(worker) = &answers[1] else { panic!("a worker: {answers:?}") };
    assert_eq!((worker.worker, worker.core), (0, Some(1)));
    let names = |answer: &Answer| match answer {
        Answer::Stage(stage) => Some(stage.name.clone()),
        _ => None,
    };
    let totals: Vec<_> = answers.iter().filter_map(names).collect();
    assert_eq!(totals, ["parse", "classify", "connections", "streams", "rewrite", "forward"]);
    assert_eq!(worker.stages.iter().map(|stage| stage.name.clone()).collect::<Vec<_>>(), totals);
}

#[test]
fn a_file_is_applied_as_a_whole_and_rules_that_stay_keep_their_numbers() {
    let mmb = start("add tcp-dport 80 drop\nadd id 10 tcp-dport 81 drop\nadd ip-proto udp drop\n");
    let before = ["1 add tcp-dport 80 drop", "10 add tcp-dport 81 drop", "11 add ip-proto udp drop"];
    assert_eq!(mmb.rules(), before);

    let (answers, end) = mmb.apply("add tcp-dport 80 drop\nadd tcp-dport 8O drop\nadd ip-ttl 256 drop\n");
    assert!(!end.ok);
    let lines: Vec<_> = errors(answers).into_iter().map(|error| error.line).collect();
    assert_eq!(lines, [Some(2), Some(3)]);
    assert_eq!(mmb.rules(), before);

    // Another order, one rule removed, one added: the others keep their ids.
    let (answers, end) =
        mmb.apply("add ip-proto udp drop\nadd all mod ip-ecn 0\nadd tcp-dport 80 drop\ndisable lan\n");
    assert!(end.ok, "{answers:?}");
    assert_eq!(end.change, Some(ChangeCount { added: 1, removed: 1, kept: 2, dry_run: false }));
    assert_eq!(
        answers,
        [
            Answer::Removed(RuleText { id: 10, rule: "add tcp-dport 81 drop".into() }),
            Answer::Added(RuleText { id: 12, rule: "add all mod ip-ecn 0".into() }),
            Answer::Disabled("lan".into()),
        ]
    );
    assert_eq!(
        mmb.rules(),
        ["1 add tcp-dport 80 drop", "11 add ip-proto udp drop", "12 add all mod ip-ecn 0"]
    );
}

#[test]
fn a_saved_policy_applies_without_a_change() {
    let rules = "add id 4 prio 3 name x tcp-dport {80, 443} drop 12.5\nadd all mod ip-ecn 0";
    let policy = format!("set ip6-max-headers 3\ndisable wan\n{rules}");
    let mmb = start(&policy);
    let saved = || {
        let (answers, end) = mmb.ask(&Request::Save);
        assert!(end.ok);
        let text = |answer| match answer {
            Answer::Policy(text) => text,
            other => panic!("{other:?}"),
        };
        answers.into_iter().map(text).collect::<String>()
    };
    let text = saved();
    let (answers, end) = mmb.apply(&text);
    assert_eq!(
        (answers, end.change),
        (vec![], Some(ChangeCount { added: 0, removed: 0, kept: 2, dry_run: false }))
    );
    mmb.run("flush");
    mmb.run("enable wan");
    assert!(mmb.apply(&text).1.ok);
    assert_eq!(saved(), text);
}

#[test]
fn names_are_offered_for_completion() {
    let text: String = (1..=500).map(|port| format!("add tcp-dport {port} drop\n")).collect();
    let mmb = start(&text);
    let (answers, _) = mmb.ask(&Request::Names("49".into()));
    assert_eq!(answers[..2], [Answer::PortName("lan".into()), Answer::PortName("wan".into())]);
    let ids: Vec<_> =
        rules(&answers).iter().map(|rule| rule.split(' ').next().expect("an id").to_owned()).collect();
    assert_eq!(ids, ["49", "490", "491", "492", "493", "494", "495", "496", "497", "498", "499"]);
    for none in [
        "x",
        "-",
        "+4",
        "049",
        "0",
        "501",
        "4294967295",
        "4294967296",
        "18446744073709551615",
        "99999999999999999999",
    ] {
        assert_eq!(rules(&mmb.ask(&Request::Names(none.into())).0), Vec::<String>::new(), "{none}");
    }
    assert_eq!(rules(&mmb.ask(&Request::Names(String::new())).0).len(), 200, "some of them");
}

#[test]
fn a_long_list_is_complete_and_in_order() {
    let text: String =
        (1..=20_000).map(|id| format!("add id {id} tcp-sport {} tcp-dport 1 drop\n", id % 60_000)).collect();
    let mmb = start(&text);
    let listed = mmb.rules();
    assert_eq!(listed.len(), 20_000);
    assert!(listed.iter().enumerate().all(|(index, rule)| rule.starts_with(&format!("{} ", index + 1))));
}

#[test]
fn the_examples_of_the_document_are_true() {
    let document = include_str!("../../../../docs/protocol.md");
    let empty = start("");
    let connected = start("add-stateful ip-proto udp mod ip-saddr 198.51.100.1");
    let _packets = connected.packets();
    connected.feed(&[mmb_testkit::Udp::default().over_ip4()]);
    let mut examples = 0;
    for block in document.split("```").skip(1).step_by(2) {
        let (command, answer) = block.trim().split_once('\n').expect("a request and its answer");
        let request = command.split('\'').nth(1).expect("what printf writes").replace("\\n", "\n");
        let expected: Vec<serde_json::Value> =
            answer.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        let mmb = if request.contains("connections") { &connected } else { &empty };
        assert_eq!(crate::common::raw(&mmb.stream(), request.as_bytes()), expected, "{command}");
        examples += 1;
    }
    assert_eq!(examples, 3);
}
