//! Help at the prompt: what may stand where the cursor is, and the words that only the shell knows.

use mmb_policy::verb::COMMANDS;

/// Words of the shell itself, and what they do.
const SHELL_WORDS: &[(&str, &str)] = &[
    ("help", "shows what may follow the words behind it; so does ? anywhere"),
    ("exit", "leaves the shell"),
];

/// What may stand at byte `at` of a line.
pub(crate) fn at(line: &str, at: usize) -> String {
    let mut text = String::new();
    for command in COMMANDS.iter().filter(|command| command.name.starts_with(line[..at].trim())) {
        text.push_str(&format!("  {:<14} {}\n", command.name, command.help));
    }
    for (word, meaning) in shell_words(&line[..at]) {
        text.push_str(&format!("  {word:<14} {meaning}\n"));
    }
    text
}

/// What may follow these words.
pub(crate) fn about(words: &str) -> String {
    if words.is_empty() { at("", 0) } else { at(&format!("{words} "), words.len() + 1) }
}

/// The shell's words that a line may become.
pub(crate) fn shell_words(before: &str) -> impl Iterator<Item = (&'static str, &'static str)> + '_ {
    let word = before.trim_start();
    SHELL_WORDS.iter().copied().filter(move |(name, _)| name.starts_with(word))
}
