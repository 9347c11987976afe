//! The messages about wrong commands, and the rules that their remedies show, for tests.

#![allow(dead_code, reason = "each test program uses a part")]

use mmb_language::parse_command;
use mmb_policy::field::{FIELDS, FieldPlace};

/// The first lines of errors, with what was expected and what was meant.
#[track_caller]
pub(crate) fn brief(line: &str) -> Vec<String> {
    match parse_command(line) {
        Ok((command, _)) => panic!("taken: {command}"),
        Err(errors) => errors.iter().map(|error| format!("{}: {error}", error.column)).collect(),
    }
}

/// Checks everything that is said about these commands: column and message.
#[track_caller]
pub(crate) fn assert_words(mistakes: &[(&str, &[&str])]) {
    for (line, expected) in mistakes {
        assert_eq!(brief(line), *expected, "{line}");
    }
}

/// The rule that a remedy shows a part of: constraints get a target, and targets a constraint.
fn shown_rule(piece: &str) -> Option<String> {
    let words: Vec<&str> = piece.split_whitespace().collect();
    let is_target = |word: &str| ["alert", "close", "mask", "mod", "strip", "add", "drop"].contains(&word);
    let is_constraint = |word: &str| {
        FIELDS.iter().any(|info| info.name == word && matches!(info.place, FieldPlace::Stream(_)))
    };
    // A name alone, what follows a name, and forms such as `[^>]{0,200}` are no parts of rules.
    let [first, second, ..] = words[..] else { return None };
    Some(match (is_constraint(first), is_target(first)) {
        (true, _) if words.iter().any(|word| is_target(word)) => format!("add-stateful {piece}"),
        (true, _) if piece.contains('"') => format!("add-stateful {piece} alert"),
        (_, true) if is_constraint(second) && piece.contains('"') => format!("add-stateful http {piece}"),
        (_, true) if second.starts_with("stream") || second == "http-body" && first != "add" => {
            format!("add-stateful {second} \"TEXT\" {piece}")
        }
        _ => return None,
    })
}

/// Checks that the rules in the remedies for these commands are taken; returns their number.
#[track_caller]
pub(crate) fn assert_remedies_taken(mistakes: &[(&str, &[&str])]) -> usize {
    let mut shown = 0;
    for (line, _) in mistakes {
        for error in parse_command(line).expect_err("a mistake") {
            let expected = error.expected.unwrap_or_default();
            for rule in expected.split('`').skip(1).step_by(2).filter_map(shown_rule) {
                shown += 1;
                if let Err(errors) = parse_command(&rule) {
                    panic!("{line}: the remedy `{rule}` is refused: {}", errors[0]);
                }
            }
        }
    }
    shown
}
