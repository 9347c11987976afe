//! Completion in shells: `mmb completions SHELL` prints a script; the script for bash calls `mmb complete`.
//!
//! Options and subcommands come from the definitions of the command line. The words of a command of the rule language come from the language,
//! as at the prompt, with the names that the daemon knows.

use crate::cli::{self, CompleteArgs, CompletionsArgs, Global, LanguageLine, ShellArg};
use crate::output;
use mmb_client::{daemon_names, help};
use mmb_language::complete::CompletionKind;
use mmb_language::verb::COMMANDS;
use mmb_protocol::{Client, DEFAULT_SOCKET};
use std::path::Path;
use std::process::ExitCode;

/// The line that stands for any file; no word of the language.
const FILES: &str = "/";

/// Replaces the registration of the script of clap, whose function it calls for what `mmb complete` leaves to it. Bash splits words at `=`
/// and `:`, too; `mmb complete` expects that.
const BASH: &str = r#"
_mmb_complete() {
    local words
    if words=$(mmb complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null); then
        if [[ $words == / || $words == /$'\n'* ]]; then
            compopt -o default 2>/dev/null
            words=${words#/}
        fi
        mapfile -t COMPREPLY < <(printf '%s' "${words#$'\n'}")
    else
        compopt -o bashdefault -o default 2>/dev/null
        _mmb "$@"
    fi
}
complete -F _mmb_complete mmb
"#;

/// Prints the script for a shell.
pub(crate) fn script(args: &CompletionsArgs) -> ExitCode {
    let shell = match args.shell {
        ShellArg::Bash => clap_complete::Shell::Bash,
        ShellArg::Zsh => clap_complete::Shell::Zsh,
        ShellArg::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::command(), "mmb", &mut script);
    output::print(&String::from_utf8_lossy(&script));
    if args.shell == ShellArg::Bash {
        output::print(BASH);
    }
    ExitCode::SUCCESS
}

/// Prints the words that may replace the last of `args`, one on each line, after [`FILES`] if a file may, too. Fails if the line is no command
/// of the rule language.
pub(crate) fn main(args: &CompleteArgs) -> ExitCode {
    match candidates(&args.words) {
        Some(candidates) => {
            candidates.iter().for_each(|word| output::print(&format!("{word}\n")));
            ExitCode::SUCCESS
        }
        None => ExitCode::FAILURE,
    }
}

/// Returns the words that may replace the last one; `None` if the line is no command of the language, or the last word is the value of an
/// option.
fn candidates(words: &[String]) -> Option<Vec<String>> {
    let (current, before) = words.split_last()?;
    let before: Vec<String> = before.iter().map(|word| unquoted(word)).collect();
    let (command, after, mut global) = command(&before)?;
    // The parser of the command's line removes `--json` and `--socket` from it.
    let line = LanguageLine::new(command, after, std::mem::take(&mut global)).ok()?;
    let socket = line.global.socket.as_deref().unwrap_or(Path::new(DEFAULT_SOCKET));
    let mut text = line.words.join(" ");
    text.push(' ');
    let begin = text.len();
    text.push_str(current);
    let known = daemon_names::query(&|| Client::connect(socket), &text);
    let mut found = Vec::new();
    for candidate in help::words(&text, text.len(), &known, &[]) {
        match candidate.kind {
            CompletionKind::File => found.insert(0, FILES.to_owned()),
            CompletionKind::Word => {
                // The word of the language may begin within the word of the shell.
                let kept = text.get(begin..candidate.start).unwrap_or_default();
                found.push(format!("{kept}{}", candidate.text));
            }
        }
    }
    if current.starts_with('-') {
        for option in options(command) {
            if option.starts_with(current.as_str()) && !found.contains(&option) {
                found.push(option);
            }
        }
    }
    Some(found)
}

/// Returns the command of the language, the words after it, and the options before it.
fn command(words: &[String]) -> Option<(&'static str, Vec<String>, Global)> {
    let words = joined(words);
    let mut global = Global::default();
    let mut rest = words.into_iter();
    loop {
        let word = rest.next()?;
        match word.as_str() {
            "--json" => global.json = true,
            "--socket" => global.socket = Some(rest.next()?.into()),
            _ => match word.strip_prefix("--socket=") {
                Some(path) => global.socket = Some(path.into()),
                None => {
                    let info = COMMANDS.iter().find(|info| info.name == word)?;
                    return Some((info.name, rest.collect(), global));
                }
            },
        }
    }
}

/// Joins `--socket`, `=` and the path, which bash splits.
fn joined(words: &[String]) -> Vec<String> {
    let mut joined: Vec<String> = Vec::new();
    for word in words {
        match joined.last_mut() {
            Some(last) if last == "--socket" && word == "=" => last.push('='),
            Some(last) if last == "--socket=" => last.push_str(word),
            _ => joined.push(word.clone()),
        }
    }
    joined
}

/// Returns the long options of a subcommand.
fn options(command: &str) -> Vec<String> {
    let mut all = cli::command();
    all.build();
    let Some(sub) = all.find_subcommand(command) else { return Vec::new() };
    let long = sub.get_arguments().filter(|argument| !argument.is_hide_set()).filter_map(clap::Arg::get_long);
    long.map(|name| format!("--{name}")).collect()
}

/// Removes the shell's single quotes.
fn unquoted(word: &str) -> String {
    word.chars().filter(|&character| character != '\'').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The candidates with a daemon that does not exist.
    fn found(line: &str) -> Option<Vec<String>> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        candidates(&[vec!["--socket".to_owned(), "/nonexistent/mmb.sock".to_owned()], words].concat())
    }

    fn has(line: &str, word: &str) -> bool {
        found(line).expect(line).iter().any(|found| found == word)
    }

    #[test]
    fn words_of_the_language_are_offered() {
        assert!(has("show ", "errors"));
        assert_eq!(found("show ru").expect("a command"), ["runtime"]);
        assert_eq!(found("show conn sum").expect("a command"), ["summary"]);
        assert!(has("set ", "timeout"));
        assert_eq!(found("set poll s").expect("a command"), ["spin"]);
        assert_eq!(found("add tcp-dp").expect("a command"), ["tcp-dport"]);
        assert!(has("add tcp-dport 80 ", "drop") && !has("add tcp-dport 80 ", "lb"));
        assert!(has("add-stateful all l", "lb"));
        assert!(has("add --json ip-proto '!= ud", "udp"));
        assert_eq!(found("add ip-proto!=udpl").expect("a command"), ["ip-proto!=udplite"]);
    }

    #[test]
    fn options_and_files_are_offered() {
        assert!(has("apply --", "--dry-run") && has("apply --", "--socket"));
        assert!(has("load-state --v", "--verbose"));
        assert!(has("list --", "--terse") && has("list --", "--json"));
        assert!(has("apply poli", FILES));
    }

    #[test]
    fn ids_need_a_daemon() {
        assert_eq!(found("del "), Some(vec!["name".to_owned(), "set".to_owned()]));
    }

    #[test]
    fn other_lines_are_left_to_the_script() {
        for line in ["ru", "run --po", "replay --rules ", "bogus x", "show --socket "] {
            assert_eq!(found(line), None, "{line}");
        }
    }

    #[test]
    fn an_option_that_bash_splits_is_one() {
        let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        assert_eq!(joined(&words(&["--socket", "=", "/x", "show"])), words(&["--socket=/x", "show"]));
    }
}
