//! Finds the words that a refusal is about. What a policy cannot be in this daemon turns out only after it
//! was parsed, when places in the text are forgotten; the word is known, and is found again.

use crate::daemon::CommitError;
use mmb_engine::PublishError;
use mmb_language::{CommandRefusal, nearest};
use mmb_policy::PolicyError;
use mmb_protocol::answer::ErrorLine;

/// The refusal of commands, placed in the one that it is about.
pub(crate) fn in_commands(refusal: &CommitError, commands: &[String]) -> ErrorLine {
    let error = messages(refusal);
    let (word, at) = match refusal {
        CommitError::Command { index, .. } => (word(refusal), *index..*index + 1),
        CommitError::Publish(_)
        | CommitError::Memory(_)
        | CommitError::Connections { .. }
        | CommitError::Host(_)
        | CommitError::Lost => (word(refusal), 0..commands.len()),
    };
    let found = word.and_then(|word| {
        at.clone().find_map(|index| Some((index, place(&error, commands.get(index)?, &word)?)))
    });
    match found {
        Some((index, placed)) => ErrorLine { command: Some(index), ..placed },
        None => ErrorLine { command: (at.len() == 1).then_some(at.start), ..error },
    }
}

/// The refusal of a file, placed in its text.
pub(crate) fn in_file(refusal: &CommitError, text: &str) -> ErrorLine {
    let error = messages(refusal);
    word(refusal).and_then(|word| place(&error, text, &word)).unwrap_or(error)
}

fn messages(refusal: &CommitError) -> ErrorLine {
    let suggestion = match refusal {
        CommitError::Publish(
            PublishError::UnknownPort { port, known, .. }
            | PublishError::UnknownSwitchedPort { port, known, .. },
        ) => nearest(port, known.split(", ")).map(str::to_owned),
        _ => None,
    };
    ErrorLine { suggestion, ..ErrorLine::new(refusal.to_string()) }
}

/// The word of the text that is not right.
fn word(refusal: &CommitError) -> Option<String> {
    match refusal {
        CommitError::Command {
            error: CommandRefusal::Policy(PolicyError::IdTaken(id) | PolicyError::NoSuchRule(id)),
            ..
        } => Some(id.to_string()),
        CommitError::Connections { max, .. } => Some(max.to_string()),
        CommitError::Command { .. } | CommitError::Memory(_) | CommitError::Lost => None,
        CommitError::Host(unfit) => Some(unfit.word.clone()),
        CommitError::Publish(
            PublishError::UnknownPort { port, .. } | PublishError::UnknownSwitchedPort { port, .. },
        ) => Some(port.clone()),
    }
}

/// The error, placed where the word first stands as a word of the language.
fn place(error: &ErrorLine, text: &str, word: &str) -> Option<ErrorLine> {
    let start = words(text).find(|(_, found)| *found == word)?.0;
    let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
    Some(ErrorLine {
        line: Some(text[..start].matches('\n').count() + 1),
        column: Some(text[line_start..start].chars().count() + 1),
        span: Some((start, start + word.len())),
        ..error.clone()
    })
}

/// The words outside of quotes and comments, with the byte at which they begin.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = &text[at..];
            let next = rest.chars().next()?;
            let length = match next {
                '#' => rest.find('\n').unwrap_or(rest.len()),
                '"' => quoted(rest),
                _ if is_between(next) => next.len_utf8(),
                _ => {
                    let length = rest.find(|c| is_between(c) || c == '"').unwrap_or(rest.len());
                    at += length;
                    return Some((at - length, &rest[..length]));
                }
            };
            at += length;
        }
    })
}

fn is_between(character: char) -> bool {
    character.is_whitespace() || matches!(character, '{' | '}' | ',')
}

/// The length of a string with its quotes, or of what there is of it.
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
    fn a_port_is_found_where_it_is_meant() {
        let text = "# lann\nadd payload \"lann \\\" lann\" drop\nadd name é in {wan, lann} drop\n";
        let error = in_file(&unknown("lann"), text);
        assert_eq!((error.line, error.column), (Some(3), Some(21)));
        let (start, end) = error.span.expect("a place");
        assert_eq!(&text[start..end], "lann");
        assert_eq!(error.suggestion.as_deref(), Some("lan"));
    }

    #[test]
    fn a_command_is_found_among_several() {
        let commands = ["flush".to_owned(), "add in lann drop".to_owned()];
        let error = in_commands(&unknown("lann"), &commands);
        assert_eq!((error.command, error.column), (Some(1), Some(8)));
        let refusal = CommitError::Command { index: 1, error: PolicyError::NoSuchRule(RuleId(7)).into() };
        let error = in_commands(&refusal, &["add id 7 all drop".to_owned(), "del 7".to_owned()]);
        assert_eq!((error.command, error.column), (Some(1), Some(5)));
    }

    #[test]
    fn what_is_not_found_is_told_all_the_same() {
        let error = in_file(&unknown("lann"), "\"lann");
        assert_eq!((error.line, error.span), (None, None));
        assert!(error.message.contains("lann"));
    }
}
