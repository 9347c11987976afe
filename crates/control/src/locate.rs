//! Locates the word that a refusal is about. A commit fails after the text was parsed, when positions in the text are no longer known; the
//! word is known, and is searched for in the text.

use crate::change::CommitError;
use mmb_engine::PublishError;
use mmb_language::{CommandRefusal, nearest};
use mmb_policy::PolicyError;
use mmb_protocol::answer::ErrorLine;
use std::ops::Range;

/// Makes an error of the refusal of commands, with the command and the position in it.
pub(crate) fn in_commands(refusal: &CommitError, commands: &[String]) -> ErrorLine {
    let error = without_position(refusal);
    let (word, at) = match refusal {
        CommitError::Command { index, .. } => (word(refusal), *index..*index + 1),
        CommitError::Publish(_)
        | CommitError::Memory(_)
        | CommitError::Sized { .. }
        | CommitError::Host(_)
        | CommitError::Unconfirmed(_)
        | CommitError::Uncompiled(_)
        | CommitError::Compile(_)
        | CommitError::Internal => (word(refusal), 0..commands.len()),
    };
    let found = word.and_then(|word| {
        at.clone().find_map(|index| Some((index, with_position(&error, commands.get(index)?, &word)?)))
    });
    match found {
        Some((index, placed)) => ErrorLine { command: Some(index), ..placed },
        None => ErrorLine { command: (at.len() == 1).then_some(at.start), ..error },
    }
}

/// Makes an error of the refusal of a batch, with the position in its text: of the word, or of the command.
pub(crate) fn in_batch(refusal: &CommitError, text: &str, places: &[Range<usize>]) -> ErrorLine {
    let error = without_position(refusal);
    let CommitError::Command { index, .. } = refusal else { return in_file(refusal, text) };
    let Some(place) = places.get(*index).cloned() else { return error };
    let first = words(&text[place.clone()]).next().map(|(_, first)| first.to_owned());
    let found = word(refusal).and_then(|word| with_position_in(&error, text, place.clone(), &word));
    found.or_else(|| with_position_in(&error, text, place, &first?)).unwrap_or(error)
}

/// Makes an error of the refusal of a policy file, with the position in its text.
pub(crate) fn in_file(refusal: &CommitError, text: &str) -> ErrorLine {
    let error = without_position(refusal);
    word(refusal).and_then(|word| with_position(&error, text, &word)).unwrap_or(error)
}

fn without_position(refusal: &CommitError) -> ErrorLine {
    let suggestion = match refusal {
        CommitError::Publish(
            PublishError::UnknownPort { port, known, .. }
            | PublishError::UnknownSwitchedPort { port, known, .. },
        ) => nearest(port, known.split(", ")).map(str::to_owned),
        CommitError::Command {
            error:
                CommandRefusal::Policy(
                    PolicyError::NoSuchList { name, known } | PolicyError::NoSuchSet { name, known },
                ),
            ..
        } => nearest(name, known.iter().map(String::as_str)).map(|known| format!("@{known}")),
        _ => None,
    };
    ErrorLine { suggestion, ..ErrorLine::new(refusal.to_string()) }
}

/// Returns the word of the text that the refusal is about.
fn word(refusal: &CommitError) -> Option<String> {
    match refusal {
        CommitError::Command {
            error: CommandRefusal::Policy(PolicyError::IdTaken(id) | PolicyError::NoSuchRule(id)),
            ..
        } => Some(id.to_string()),
        CommitError::Command { error: CommandRefusal::OtherKind { id, .. }, .. } => Some(id.to_string()),
        CommitError::Command { error: CommandRefusal::Policy(PolicyError::NoSuchName(name)), .. } => {
            Some(name.clone())
        }
        CommitError::Command {
            error:
                CommandRefusal::Policy(
                    PolicyError::NoSuchList { name, .. }
                    | PolicyError::NoSuchSet { name, .. }
                    | PolicyError::SetDoesNotFit { name, rule: None, .. },
                ),
            ..
        } => Some(format!("@{name}")),
        // The command is about the set itself.
        CommitError::Command {
            error:
                CommandRefusal::Policy(
                    PolicyError::Set { name, .. }
                    | PolicyError::SetInUse { name, .. }
                    | PolicyError::SetDoesNotFit { name, .. },
                ),
            ..
        } => Some(name.clone()),
        CommitError::Sized { value, .. } => Some(value.to_string()),
        CommitError::Command { .. } | CommitError::Memory(_) => None,
        CommitError::Unconfirmed(_) | CommitError::Internal => None,
        CommitError::Uncompiled(_) | CommitError::Compile(_) => None,
        CommitError::Publish(
            PublishError::Patterns { .. }
            | PublishError::StreamConstraints(_)
            | PublishError::StreamMemory { .. }
            | PublishError::NotCompiled,
        ) => None,
        CommitError::Host(unsupported) => Some(unsupported.word.clone()),
        CommitError::Publish(
            PublishError::UnknownPort { port, .. } | PublishError::UnknownSwitchedPort { port, .. },
        ) => Some(port.clone()),
    }
}

/// Adds to the error the first position of the word, outside of quotes and comments.
fn with_position(error: &ErrorLine, text: &str, word: &str) -> Option<ErrorLine> {
    with_position_in(error, text, 0..text.len(), word)
}

/// [`with_position`] of a word among these bytes of the text.
fn with_position_in(error: &ErrorLine, text: &str, place: Range<usize>, word: &str) -> Option<ErrorLine> {
    let start = place.start + words(&text[place.clone()]).find(|(_, found)| *found == word)?.0;
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    Some(ErrorLine {
        line: Some(text[..start].matches('\n').count() + 1),
        column: Some(text[line_start..start].chars().count() + 1),
        span: Some((start, start + word.len())),
        ..error.clone()
    })
}

/// Returns the words outside of quotes and comments, with the byte at which each begins.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = &text[at..];
            let next = rest.chars().next()?;
            let length = match next {
                '#' => rest.find('\n').unwrap_or(rest.len()),
                '"' => quoted(rest),
                _ if is_separator(next) => next.len_utf8(),
                _ => {
                    let length = rest.find(|c| is_separator(c) || c == '"').unwrap_or(rest.len());
                    at += length;
                    return Some((at - length, &rest[..length]));
                }
            };
            at += length;
        }
    })
}

fn is_separator(character: char) -> bool {
    character.is_whitespace() || matches!(character, '{' | '}' | ',')
}

/// Returns the length of a string with its quotes, or to the end of its line if it has no closing quote.
fn quoted(rest: &str) -> usize {
    let mut escaped = false;
    for (at, character) in rest.char_indices().skip(1) {
        match character {
            '"' if !escaped => return at + 1,
            '\n' => return at,
            _ => escaped = character == '\\' && !escaped,
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_policy::RuleId;

    fn unknown(port: &str) -> CommitError {
        CommitError::Publish(PublishError::UnknownPort {
            rule: RuleId(2),
            port: port.to_owned(),
            known: "lan, wan".to_owned(),
        })
    }

    #[test]
    fn a_port_is_located_outside_of_quotes_and_comments() {
        let text = "# lann\nadd payload \"lann \\\" lann\" drop\nadd name é in {wan, lann} drop\n";
        let error = in_file(&unknown("lann"), text);
        assert_eq!((error.line, error.column), (Some(3), Some(21)));
        let (start, end) = error.span.expect("a place");
        assert_eq!(&text[start..end], "lann");
        assert_eq!(error.suggestion.as_deref(), Some("lan"));
    }

    #[test]
    fn a_command_is_located_among_several() {
        let commands = ["flush".to_owned(), "add in lann drop".to_owned()];
        let error = in_commands(&unknown("lann"), &commands);
        assert_eq!((error.command, error.column), (Some(1), Some(8)));
        let refusal = CommitError::Command { index: 1, error: PolicyError::NoSuchRule(RuleId(7)).into() };
        let error = in_commands(&refusal, &["add id 7 all drop".to_owned(), "del 7".to_owned()]);
        assert_eq!((error.command, error.column), (Some(1), Some(5)));
    }

    #[test]
    fn an_error_of_a_batch_is_located_in_its_command() {
        let text = "# del 7\nadd id 7 all drop\ndel 7\nflush\n";
        let places = [8..26, 26..32, 32..38];
        let refusal = |index, error| CommitError::Command { index, error };
        let error = in_batch(&refusal(1, PolicyError::NoSuchRule(RuleId(7)).into()), text, &places);
        assert_eq!((error.line, error.column, error.span), (Some(3), Some(5), Some((30, 31))));
        let error = in_batch(&refusal(2, PolicyError::NoIdLeft.into()), text, &places);
        assert_eq!((error.line, error.column, error.span), (Some(4), Some(1), Some((32, 37))));
        let error = in_batch(&unknown("lann"), "add all drop\nadd in lann drop\n", &[0..13, 13..30]);
        assert_eq!((error.line, error.column), (Some(2), Some(8)));
    }

    #[test]
    fn an_error_without_a_position_is_reported() {
        let error = in_file(&unknown("lann"), "\"lann");
        assert_eq!((error.line, error.span), (None, None));
        assert!(error.message.contains("lann"));
    }
}
