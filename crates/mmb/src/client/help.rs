//! Help and completion at the prompt: what the language allows at a place, with the names that the daemon knows and
//! the words that only the shell knows.

use super::names::Names;
use mmb_policy::complete::{Candidate, CandidateKind, CompletionContext, complete};
use mmb_policy::help::{HelpLine, help_at};

/// Words of the shell itself, and what they do.
const SHELL_WORDS: &[(&str, &str)] = &[
    ("help", "shows what may follow the words behind it; so does ? anywhere"),
    ("exit", "leaves the shell"),
];

/// Names of the daemon that are shown.
const MOST_NAMES: usize = 20;

/// The widest column of words; a longer word has its line to itself.
const WIDEST: usize = 40;

/// What may stand at byte `at` of a line, a line each.
pub(crate) fn at(line: &str, at: usize, known: &Names) -> String {
    let mut lines = help_at(line, at);
    let candidates =
        words(line, at, known).into_iter().filter(|candidate| candidate.kind == CandidateKind::Word);
    let mut names = 0;
    for candidate in candidates {
        let is_new = !lines.iter().any(|line| line.word.split(' ').next() == Some(&candidate.text));
        if is_new && names < MOST_NAMES {
            names += 1;
            let rule = candidate.text.parse().ok().and_then(|id| known.rule(id)).map(str::to_owned);
            lines.push(HelpLine { word: candidate.text, help: rule.unwrap_or(candidate.help) });
        }
    }
    if lines.is_empty() {
        return "nothing that is known fits here\n".to_owned();
    }
    let width = lines.iter().map(|line| line.word.chars().count()).filter(|width| *width <= WIDEST).max();
    let width = width.unwrap_or(WIDEST);
    lines
        .iter()
        .map(|line| format!("  {:<width$}  {}", line.word, line.help).trim_end().to_owned() + "\n")
        .collect()
}

/// What may follow these words.
pub(crate) fn about(words: &str, known: &Names) -> String {
    let line = if words.is_empty() { String::new() } else { format!("{words} ") };
    at(&line, line.len(), known)
}

/// The words that may stand at byte `at` of a line and begin with what is there.
pub(crate) fn words(line: &str, at: usize, known: &Names) -> Vec<Candidate> {
    let context = CompletionContext {
        ids: known.rules.iter().map(|(id, _)| *id).collect(),
        ports: known.ports.clone(),
    };
    let mut candidates = complete(line, at, &context);
    let before = &line[..at];
    let first = before.trim_start();
    let shell = SHELL_WORDS.iter().filter(|(word, _)| word.starts_with(first));
    candidates.extend(shell.map(|(word, help)| Candidate {
        start: before.len() - first.len(),
        text: (*word).to_owned(),
        help: (*help).to_owned(),
        kind: CandidateKind::Word,
    }));
    candidates
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Names {
        Names { rules: vec![(3, "add all drop".to_owned())], ports: vec!["lan".to_owned(), "wan".to_owned()] }
    }

    fn help(line: &str) -> String {
        at(line, line.len(), &known())
    }

    #[test]
    fn an_empty_line_may_become_any_command() {
        let help = help("");
        for command in ["add ", "list ", "show ", "apply ", "help ", "exit "] {
            assert!(
                help.contains(&format!("\n  {command}")) || help.starts_with(&format!("  {command}")),
                "{help}"
            );
        }
        assert_eq!(about("", &known()), help);
    }

    #[test]
    fn names_of_the_daemon_are_shown_where_they_fit() {
        assert!(help("del ").contains("3") && help("del ").contains("add all drop"));
        assert!(help("disable ").contains("lan"));
        assert!(help("add in w").contains("wan") && !help("add in w").contains("lan"));
        assert!(!help("add ").contains("exit"), "the shell's words begin a line");
    }

    #[test]
    fn what_is_unknown_is_no_secret() {
        assert_eq!(help("show bogus "), "nothing that is known fits here\n".to_owned());
    }
}
