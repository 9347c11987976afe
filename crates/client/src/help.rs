//! Help and completion: the words that the language allows at a position, with the names that the daemon knows and the caller's own
//! commands.

use crate::daemon_names::DaemonNames;
use mmb_language::complete::{Completion, CompletionContext, CompletionKind, complete};
use mmb_language::help::{HelpLine, help_at};
use mmb_policy::FIELDS;

/// The caller's own commands, which the language does not have, and their descriptions.
pub type ProgramWords<'a> = &'a [(&'a str, &'a str)];

/// Names of the daemon that are shown at most.
const MAX_NAMES: usize = 20;

/// The widest column of words; the description of a longer word is not aligned.
const WIDEST: usize = 40;

/// Fields that are shown with descriptions; if there are more, only their names are shown.
const MAX_EXPLAINED: usize = 24;

/// Characters in a line of names.
const LINE: usize = 96;

/// Returns help for byte `at` of a line.
pub fn at(line: &str, at: usize, known: &DaemonNames, program: ProgramWords<'_>) -> String {
    let mut lines = help_at(line, at);
    let candidates = words(line, at, known, program)
        .into_iter()
        .filter(|candidate| candidate.kind == CompletionKind::Word);
    let mut names = 0;
    for candidate in candidates {
        let is_new = !lines.iter().any(|line| line.word.split(' ').next() == Some(&candidate.text));
        if is_new && names < MAX_NAMES {
            names += 1;
            let rule = candidate.text.parse().ok().and_then(|id| known.rule(id)).map(str::to_owned);
            lines.push(HelpLine { word: candidate.text, help: rule.unwrap_or(candidate.help) });
        }
    }
    if lines.is_empty() {
        return "nothing that is known fits here\n".to_owned();
    }
    let (fields, others): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| is_field(&line.word));
    if fields.len() <= MAX_EXPLAINED {
        return explained(&fields) + &explained(&others);
    }
    let names: Vec<&str> = fields.iter().map(|line| line.word.as_str()).collect();
    format!(
        "{}fields; ? after the first letters of one shows its description\n{}",
        explained(&others),
        grid(&names)
    )
}

fn is_field(word: &str) -> bool {
    FIELDS.iter().any(|info| info.name == word)
}

/// Formats words with their descriptions, one on each line.
fn explained(lines: &[HelpLine]) -> String {
    let width = lines.iter().map(|line| line.word.chars().count()).filter(|width| *width <= WIDEST).max();
    let width = width.unwrap_or(WIDEST);
    lines
        .iter()
        .map(|line| format!("  {:<width$}  {}", line.word, line.help).trim_end().to_owned() + "\n")
        .collect()
}

/// Formats words in columns, which are read downwards.
fn grid(words: &[&str]) -> String {
    let width = words.iter().map(|word| word.len()).max().unwrap_or(1) + 2;
    let rows = words.len().div_ceil((LINE / width).max(1));
    let mut text = String::new();
    for row in 0..rows {
        let line: String =
            words.iter().skip(row).step_by(rows).map(|word| format!("{word:<width$}")).collect();
        text.push_str(&format!("  {}\n", line.trim_end()));
    }
    text
}

/// Returns help for the position after these words.
pub(crate) fn about(words: &str, known: &DaemonNames, program: ProgramWords<'_>) -> String {
    let line = if words.is_empty() { String::new() } else { format!("{words} ") };
    at(&line, line.len(), known, program)
}

/// Returns the words that complete the one at byte `at` of a line.
pub fn words(line: &str, at: usize, known: &DaemonNames, program: ProgramWords<'_>) -> Vec<Completion> {
    let context = CompletionContext {
        ids: known.rules.iter().map(|(id, _)| *id).collect(),
        ports: known.ports.clone(),
        lists: known.lists.clone(),
        sets: known.sets.clone(),
    };
    let mut candidates = complete(line, at, &context);
    let before = &line[..at];
    let first = before.trim_start();
    let program = program.iter().filter(|(word, _)| word.starts_with(first));
    candidates.extend(program.map(|(word, help)| Completion {
        start: before.len() - first.len(),
        text: (*word).to_owned(),
        help: (*help).to_owned(),
        kind: CompletionKind::Word,
    }));
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> DaemonNames {
        DaemonNames {
            rules: vec![(3, "add all drop".to_owned())],
            lists: vec!["bad".to_owned()],
            sets: Vec::new(),
            ports: vec!["lan".to_owned(), "wan".to_owned()],
        }
    }

    const PROGRAM: ProgramWords<'_> = &[("exit", "leaves")];

    fn help(line: &str) -> String {
        at(line, line.len(), &known(), PROGRAM)
    }

    #[test]
    fn an_empty_line_may_become_any_command() {
        let help = help("");
        for command in ["add ", "list ", "show ", "apply ", "exit "] {
            assert!(
                help.contains(&format!("\n  {command}")) || help.starts_with(&format!("  {command}")),
                "{help}"
            );
        }
        assert_eq!(about("", &known(), PROGRAM), help);
    }

    #[test]
    fn names_of_the_daemon_are_shown_where_they_fit() {
        assert!(help("del ").contains("3") && help("del ").contains("add all drop"));
        assert!(help("disable ").contains("lan"));
        assert!(help("add in w").contains("wan") && !help("add in w").contains("lan"));
        assert!(!help("add ").contains("exit"), "the caller's words begin a line");
    }

    #[test]
    fn many_fields_are_named_and_few_explained() {
        let all = help("add tcp-opt ");
        assert!(
            all.contains("tcp-opt-mptcp")
                && !all.contains("RFC 8684")
                && all.contains("appends a TCP option")
        );
        assert!(all.lines().count() < 50 && all.lines().all(|line| line.chars().count() < 110), "{all}");
        assert!(help("add tcp-opt-m").contains("RFC 8684"));
    }

    #[test]
    fn words_in_columns_are_read_downwards() {
        let words: Vec<String> = (0..20).map(|n| format!("word-{n:02}")).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let text = grid(&words);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.starts_with("  word-00  word-02"), "{text}");
    }

    #[test]
    fn an_unknown_word_is_reported() {
        assert_eq!(help("bogus "), "nothing that is known fits here\n".to_owned());
    }
}
