//! Properties of the language as a whole.

use crate::arbitrary::{Options, rule};
use crate::{Command, Policy, parse_command};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    /// Every rule that some packet matches is taken, and a printed rule parses to itself.
    #[test]
    fn printed_rules_parse_to_themselves(rule in rule(Options { stateful: true, ..Options::default() })) {
        let text = rule.to_string();
        match parse_command(&text) {
            Ok((Command::Add(parsed), notes)) => {
                prop_assert_eq!(*parsed, rule, "{}", text);
                prop_assert!(notes.is_empty(), "{}", text);
            }
            other => prop_assert!(false, "{}: {:?}", text, other),
        }
    }

    /// So does a policy of them.
    #[test]
    fn printed_policies_parse_to_themselves(rules in prop::collection::vec(rule(Options::default()), 0..6)) {
        let mut policy = Policy::default();
        for rule in rules {
            policy.add(rule).expect("numbers are left");
        }
        let text = policy.to_text();
        let (parsed, _) = Policy::parse(&text).map_err(|errors| TestCaseError::fail(format!("{text}{errors:?}")))?;
        prop_assert_eq!(parsed, policy);
    }

    /// No text makes the parser panic, and what it says about it can be rendered.
    #[test]
    fn any_text_gets_an_answer(text in any_text()) {
        if let Err(errors) = Policy::parse(&text) {
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

/// Words of the language, and anything else, in any order.
fn any_text() -> impl Strategy<Value = String> {
    let words: Vec<String> = crate::FIELDS
        .iter()
        .map(|info| info.name)
        .chain(crate::verb::COMMANDS.iter().map(|info| info.name))
        .chain(crate::verb::TARGETS.iter().map(|info| info.name))
        .chain(["all", "id", "prio", "name", "!", "==", "!=", "<", ">=", "{", "}", ",", "\"a\"", "|00 ff|"])
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
