//! Properties of the language as a whole.

use crate::{Command, Print, parse_command, parse_policy, parse_policy_with};
use mmb_policy::arbitrary::{RuleOptions, rule};
use mmb_policy::field::Writable;
use mmb_policy::{
    FieldId, PatternList, Policy, RuleId, ServerCommand, ServerName, ServerOrder, Target, Test,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use std::collections::HashSet;
use std::mem::discriminant;

/// Rules over the whole language.
fn whole() -> RuleOptions {
    let lists = vec!["bad".to_owned(), "x-1".to_owned()];
    RuleOptions { stateful: true, streams: true, edits: true, limits: true, lists, ..RuleOptions::default() }
}

/// The list of a file that has its own name in it.
fn list(file: &str) -> Result<PatternList, String> {
    Ok(PatternList::new(file.to_owned(), vec![file.as_bytes().to_vec()]))
}

proptest! {
    /// Every rule that some packet matches is taken, and a printed rule parses to itself.
    #[test]
    fn printed_rules_parse_to_themselves(rule in rule(whole())) {
        let text = rule.text().to_string();
        match parse_command(&text) {
            Ok((Command::Add(parsed), notes)) => {
                prop_assert_eq!(*parsed, rule, "{}", text);
                prop_assert!(notes.iter().all(|note| note.message.contains("was a value meant?")), "{}", text);
            }
            other => prop_assert!(false, "{}: {:?}", text, other),
        }
    }

    /// A printed command about a server parses to itself, whatever the reason.
    #[test]
    fn printed_server_commands_parse_to_themselves(
        order in prop::sample::select(ServerOrder::ALL.map(|(order, _)| order).to_vec()),
        server in prop_oneof![any::<std::net::IpAddr>().prop_map(ServerName::Address), any::<u16>().prop_map(ServerName::Port)],
        rule in prop::option::of((1_u32..).prop_map(RuleId)),
        reason in prop::option::of(".{0,20}"),
        kill in any::<bool>(),
    ) {
        let kill = kill && !matches!(order, ServerOrder::Up | ServerOrder::Healthy);
        let command = Command::Server(ServerCommand { order, server, rule, reason, kill });
        let text = command.to_string();
        let (parsed, _) = parse_command(&text).map_err(|errors| TestCaseError::fail(format!("{text}: {errors:?}")))?;
        prop_assert_eq!(parsed, command, "{}", text);
    }

    /// A printed policy parses to itself.
    #[test]
    fn printed_policies_parse_to_themselves(rules in prop::collection::vec(rule(whole()), 0..6), file in "[ -~é]{1,12}") {
        let mut policy = Policy::default();
        for (name, file) in [("bad", &*file), ("x-1", "/etc/mmb/x")] {
            policy.set_list(name, list(file).expect("a list")).expect("it is small");
        }
        for rule in rules {
            policy.add(&rule).expect("numbers are left");
        }
        let text = policy.text().to_string();
        let (parsed, _) = parse_policy_with(&text, &list).map_err(|errors| TestCaseError::fail(format!("{text}{errors:?}")))?;
        prop_assert_eq!(parsed, policy);
    }

    /// No text makes the parser panic, and what it says about it can be rendered.
    #[test]
    fn any_text_gets_an_answer(text in any_text()) {
        if let Err(errors) = parse_policy(&text) {
            prop_assert!(!errors.is_empty());
            for error in errors {
                prop_assert!(error.render("file", &text).contains('^'));
                prop_assert!(error.span.start <= error.span.end && error.span.end <= text.len());
            }
        }
        if let Ok((command, _)) = parse_command(&text) {
            let again = parse_command(&command.to_string()).map(|(command, _)| command);
            prop_assert_eq!(again, Ok(command));
        }
    }
}

/// Drawn rules hold every field, every kind of target and every comparison.
#[test]
fn rules_are_drawn_over_the_whole_language() {
    let mut runner = TestRunner::deterministic();
    let strategy = rule(whole());
    let (mut matched, mut written) = (HashSet::new(), HashSet::new());
    let (mut targets, mut tests) = (HashSet::new(), HashSet::new());
    let (mut target_words, mut edits) = (HashSet::new(), HashSet::new());
    for _ in 0..20_000 {
        let rule = strategy.new_tree(&mut runner).expect("draws").current();
        matched.extend(rule.matches.iter().map(|m| (m.field.id, m.negated)));
        tests.extend(rule.matches.iter().map(|m| match &m.test {
            Test::Number(cond, _) => (discriminant(&m.test), Some(*cond)),
            Test::Present | Test::Port(..) | Test::Bytes(..) => (discriminant(&m.test), None),
            Test::Patterns(_) | Test::Header(..) => (discriminant(&m.test), None),
            Test::NamedSet(..) => panic!("these rules name no sets"),
        }));
        targets.extend(rule.targets.iter().map(discriminant));
        let word =
            |target: &Target| target.text().to_string().split(' ').next().unwrap_or_default().to_owned();
        target_words.extend(rule.targets.iter().map(word));
        written.extend(rule.targets.iter().filter_map(|target| match target {
            Target::Mod(field, _) => Some(field.id),
            Target::Edit(edit) => Some(edit.field().id),
            _ => None,
        }));
        edits.extend(rule.targets.iter().filter_map(|target| match target {
            Target::Edit(edit) => Some(discriminant(edit)),
            _ => None,
        }));
    }
    // What a packet is to connections does not stand in it.
    for info in mmb_policy::FIELDS.iter().filter(|info| info.id != mmb_policy::FieldId::Ct) {
        // Streams and bodies are searched for what is there.
        let is_negated = !matches!(
            info.id,
            FieldId::Stream
                | FieldId::StreamForward
                | FieldId::StreamReply
                | FieldId::Http
                | FieldId::HttpBody
        );
        assert!(matched.contains(&(info.id, false)), "{}", info.name);
        assert_eq!(matched.contains(&(info.id, true)), is_negated, "{}", info.name);
        assert_eq!(written.contains(&info.id), !matches!(info.writable, Writable::No(_)), "{}", info.name);
    }
    for target in crate::target::TARGETS {
        assert!(target_words.contains(target.name), "no rule is drawn with `{}`", target.name);
    }
    assert_eq!((targets.len(), tests.len(), edits.len()), (18, 11, 9));
}

/// Words of the language, and anything else, in any order.
fn any_text() -> impl Strategy<Value = String> {
    let words: Vec<String> = mmb_policy::FIELDS
        .iter()
        .map(|info| info.name)
        .chain(crate::verb::COMMANDS.iter().map(|info| info.name))
        .chain(crate::target::TARGETS.iter().map(|info| info.name))
        .chain([
            "all", "id", "prio", "name", "!", "==", "!=", "<", ">=", "{", "}", ",", "\"a\"", "|00 ff|",
            "/a/i", "/b", "@bad", "\"a\\m\"",
        ])
        .chain([
            "1",
            "80",
            "0x1f",
            "10.0.0.0/8",
            "::1",
            "1-5",
            "tcp",
            "ef",
            "12.5",
            "\n",
            "\\\n",
            "#",
            "\"",
            "|",
            "\\",
        ])
        .map(str::to_owned)
        .collect();
    let word = prop_oneof![
        8 => prop::sample::select(words),
        1 => any::<String>(),
        1 => "[ -~]{0,6}",
    ];
    (prop::collection::vec(word, 0..14), any::<bool>()).prop_map(|(words, add)| {
        let separator = if words.len() % 5 == 4 { "" } else { " " };
        format!("{}{}", if add { "add " } else { "" }, words.join(separator))
    })
}

#[test]
fn printed_filters_of_packets_parse_to_themselves() {
    for text in [
        "trace",
        "trace all count 7",
        "trace in lan ip-saddr 10.0.0.0/8 ! tcp-syn count 1000",
        "trace tcp-syn count 3",
        "capture",
        "capture all",
        "capture tcp-opt-mss at rx at drop reason rule count 9 snaplen 96",
        "capture ! ip-mf at tx",
    ] {
        match parse_command(text) {
            Ok((command @ (Command::Trace(_) | Command::Capture(_)), _)) => {
                assert_eq!(command.to_string(), text);
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    // Options may stand anywhere, and constraints are in the words of rules.
    let parsed = |text| parse_command(text).map(|(command, _)| command.to_string()).unwrap_or_default();
    assert_eq!(parsed("mmb trace count 2 tcp-dport http"), "trace tcp-dport 80 count 2");
    assert_eq!(parsed("capture at drop udp-dport {53, 67} # why"), "capture udp-dport {53, 67} at drop");
}

#[test]
fn places_are_chosen_by_reason() {
    let points = |text| match parse_command(text) {
        Ok((Command::Capture(request), _)) => {
            let points = request.points();
            (points.rx, points.tx, points.drop)
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(points("capture"), (true, true, false));
    assert_eq!(points("capture reason rule"), (false, false, true));
    assert_eq!(points("capture reason rule at rx"), (true, false, false));
    assert_eq!(points("capture at tx"), (false, true, false));
}
