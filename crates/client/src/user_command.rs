//! Commands of a user, read from a line or from the words of a command line.

use mmb_language::file_word;
use mmb_language::verb;
use mmb_language::verb::Argument;
use mmb_protocol::request::ConnectionFate;

/// A command of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserCommand {
    /// The action.
    pub action: CommandAction,
    /// The line contained `--json`.
    pub json: bool,
}

/// The action of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandAction {
    /// A command of the rule language, for the daemon.
    Language(String),
    /// `apply FILE`
    Apply(ApplyCommand),
    /// `monitor`: a command of the rule language whose answer has no end of its own.
    Monitor(String),
    /// `save FILE`
    Save(String),
    /// `save-state FILE`
    SaveState(String),
    /// `load-state FILE`, and whether `--verbose` is given.
    LoadState(String, bool),
    /// `check FILE`
    Check(String),
    /// `help [WORD…]`, with the words.
    Help(String),
    /// `exit`, `quit`
    Exit,
    /// An empty line or a comment.
    Nothing,
}

/// `apply FILE [--dry-run] [--keep|--kill]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplyCommand {
    /// The policy file.
    pub file: String,
    /// Nothing is changed.
    pub dry_run: bool,
    /// The fate of the connections of rules that the file removes.
    pub fate: ConnectionFate,
}

impl CommandAction {
    /// Returns the name of the file that the action reads or writes.
    pub(crate) fn file(&self) -> Option<&str> {
        match self {
            CommandAction::Apply(ApplyCommand { file: name, .. })
            | CommandAction::Save(name)
            | CommandAction::SaveState(name)
            | CommandAction::LoadState(name, _)
            | CommandAction::Check(name) => Some(name),
            CommandAction::Language(_)
            | CommandAction::Monitor(_)
            | CommandAction::Help(_)
            | CommandAction::Exit
            | CommandAction::Nothing => None,
        }
    }
}

/// Words with a dash that commands take; `-` is standard input or output.
const KNOWN_OPTIONS: &[&str] = &["-", "--json", "--terse", KEEP, KILL, DRY_RUN, VERBOSE];

/// Options of `apply`; those of connections also of `del`.
const DRY_RUN: &str = "--dry-run";
const KEEP: &str = "--keep";
const KILL: &str = "--kill";

/// The option of `load-state`.
const VERBOSE: &str = "--verbose";

/// The reason why a line is no command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageError(pub String);

impl UserCommand {
    /// Reads the words of a command line, the first of which is the command.
    ///
    /// # Errors
    /// The words are no command.
    pub fn from_words(words: &[String]) -> Result<UserCommand, UsageError> {
        if let Some(word) = words.iter().find(|word| word.contains('\n')) {
            return Err(UsageError(format!(
                "a command is one line, but this word is more than one: {word:?}"
            )));
        }
        let unknown = words
            .iter()
            .find(|word| word.starts_with('-') && *word != "-=" && !KNOWN_OPTIONS.contains(&word.as_str()));
        if let Some(option) = unknown {
            return Err(UsageError(format!("unknown option '{option}'; try mmb --help")));
        }
        match words {
            [command, words @ ..] if command == "apply" => {
                let (options, files): (Vec<&String>, Vec<&String>) =
                    words.iter().partition(|word| APPLY_OPTIONS.contains(&word.as_str()));
                let [file] = files[..] else { return Err(usage(command)) };
                let options = options.into_iter().map(String::as_str);
                Ok(UserCommand { action: apply(file.clone(), options)?, json: false })
            }
            [command, file] if takes_file(command) => {
                Ok(UserCommand { action: file_action(command, file.clone()), json: false })
            }
            [command, file, option] | [command, option, file]
                if command == "load-state" && option == VERBOSE =>
            {
                Ok(UserCommand { action: CommandAction::LoadState(file.clone(), true), json: false })
            }
            // One word of the shell is one of the language, whatever it has in it.
            [command, list, file] if command == "patterns" => {
                UserCommand::from_line(&format!("{command} {list} {}", file_word(file)))
            }
            [command, words @ .., before, file]
                if command == "set" && before == "file" && matches!(words.len(), 1 | 2) =>
            {
                UserCommand::from_line(&format!("{command} {} file {}", words.join(" "), file_word(file)))
            }
            [] => Ok(UserCommand { action: CommandAction::Nothing, json: false }),
            _ => UserCommand::from_line(&words.join(" ")),
        }
    }

    /// Reads a line as it was typed.
    ///
    /// # Errors
    /// The line is no command.
    pub fn from_line(line: &str) -> Result<UserCommand, UsageError> {
        let (line, json) = without_json(line);
        let (first, rest) = split_word(line.trim());
        let (first, rest) = if first == "mmb" && !rest.is_empty() { split_word(rest) } else { (first, rest) };
        let action = match first {
            "" => CommandAction::Nothing,
            comment if comment.starts_with('#') => CommandAction::Nothing,
            "exit" | "quit" if rest.is_empty() => CommandAction::Exit,
            "help" | "?" => CommandAction::Help(rest.to_owned()),
            "apply" => {
                let (mut rest, mut options) = (rest, Vec::new());
                while let Some((option, file)) =
                    APPLY_OPTIONS.iter().find_map(|option| Some((option, without_option(rest, option)?)))
                {
                    options.push(*option);
                    rest = file;
                }
                if APPLY_OPTIONS.contains(&rest) {
                    return Err(usage(first));
                }
                apply(file_name(first, rest)?, options.into_iter())?
            }
            "load-state" if let Some(file) = without_option(rest, VERBOSE) => {
                CommandAction::LoadState(file_name(first, file)?, true)
            }
            command if takes_file(command) => file_action(command, file_name(command, rest)?),
            "monitor" => CommandAction::Monitor(line.trim().to_owned()),
            _ => CommandAction::Language(line.trim().to_owned()),
        };
        Ok(UserCommand { action, json })
    }
}

/// Returns the rest of a command without an option, if that is its first or last word.
fn without_option<'r>(rest: &'r str, option: &str) -> Option<&'r str> {
    let after = rest.strip_prefix(option).filter(|file| file.starts_with(char::is_whitespace));
    let before = rest.strip_suffix(option).filter(|file| file.ends_with(char::is_whitespace));
    after.or(before).map(str::trim)
}

const APPLY_OPTIONS: [&str; 3] = [DRY_RUN, KEEP, KILL];

fn apply<'o>(file: String, options: impl Iterator<Item = &'o str>) -> Result<CommandAction, UsageError> {
    let mut command = ApplyCommand { file, ..ApplyCommand::default() };
    for option in options {
        match (option, command.fate) {
            (DRY_RUN, _) => command.dry_run = true,
            (KEEP, ConnectionFate::Release | ConnectionFate::Keep) => command.fate = ConnectionFate::Keep,
            (KILL, ConnectionFate::Release | ConnectionFate::Kill) => command.fate = ConnectionFate::Kill,
            _ => return Err(UsageError("--keep and --kill contradict each other".to_owned())),
        }
    }
    Ok(CommandAction::Apply(command))
}

fn takes_file(command: &str) -> bool {
    verb::named(command).is_some_and(|info| info.argument == Argument::File)
}

fn file_action(command: &str, file: String) -> CommandAction {
    match command {
        "save" => CommandAction::Save(file),
        "save-state" => CommandAction::SaveState(file),
        "load-state" => CommandAction::LoadState(file, false),
        _ => CommandAction::Check(file),
    }
}

/// Returns the file name that follows a command, without quotes around it and with `~/` replaced by the home directory.
fn file_name(command: &str, rest: &str) -> Result<String, UsageError> {
    let quoted = ['"', '\''].iter().find_map(|&quote| rest.strip_prefix(quote)?.strip_suffix(quote));
    let name = match quoted {
        Some(name) => name,
        None if rest.split_whitespace().count() == 1 => rest,
        None => return Err(usage(command)),
    };
    match (name.strip_prefix("~/"), std::env::var("HOME")) {
        _ if name.is_empty() => Err(usage(command)),
        (Some(below), Ok(home)) => Ok(format!("{home}/{below}")),
        _ => Ok(name.to_owned()),
    }
}

fn usage(command: &str) -> UsageError {
    let arguments = verb::named(command).map_or("FILE", |info| info.arguments);
    UsageError(format!("usage: {command} {arguments}"))
}

fn split_word(text: &str) -> (&str, &str) {
    let (first, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (first, rest.trim())
}

/// Removes the words `--json` outside of quotes and comments; also returns whether there were any.
fn without_json(line: &str) -> (String, bool) {
    const WORD: &str = "--json";
    let (mut kept, mut json, mut quoted, mut escaped) =
        (String::with_capacity(line.len()), false, false, false);
    let mut rest = line;
    while let Some(character) = rest.chars().next() {
        let begins = kept.is_empty() || kept.ends_with(char::is_whitespace);
        if begins && !quoted {
            if let Some(after) = rest.strip_prefix(WORD)
                && (after.is_empty() || after.starts_with(char::is_whitespace))
            {
                json = true;
                rest = after;
                continue;
            }
            if character == '#' {
                kept.push_str(rest);
                break;
            }
        }
        if character == '"' && !escaped {
            quoted = !quoted;
        }
        escaped = quoted && character == '\\' && !escaped;
        kept.push(character);
        rest = &rest[character.len_utf8()..];
    }
    (kept, json)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applies(file: &str, dry_run: bool, fate: ConnectionFate) -> CommandAction {
        CommandAction::Apply(ApplyCommand { file: file.to_owned(), dry_run, fate })
    }

    fn words(words: &[&str]) -> CommandAction {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        UserCommand::from_words(&words).expect("a command").action
    }

    fn line(line: &str) -> UserCommand {
        UserCommand::from_line(line).expect("a command")
    }

    #[test]
    fn words_may_be_split_in_any_way() {
        let rule =
            CommandAction::Language("add ! tcp-syn tcp-dport {80, 443} payload \"GET \" drop".to_owned());
        assert_eq!(
            words(&["add", "!", "tcp-syn", "tcp-dport", "{80,", "443}", "payload", "\"GET \"", "drop"]),
            rule
        );
        assert_eq!(words(&["add", "! tcp-syn", "tcp-dport", "{80, 443}", "payload \"GET \"", "drop"]), rule);
        assert_eq!(words(&["add ! tcp-syn tcp-dport {80, 443} payload \"GET \" drop"]), rule);
    }

    #[test]
    fn a_word_of_two_lines_is_refused() {
        assert!(UserCommand::from_words(&["add".to_owned(), "all drop\nflush".to_owned()]).is_err());
    }

    #[test]
    fn an_unknown_option_is_refused() {
        assert!(UserCommand::from_words(&["list".to_owned(), "--wide".to_owned()]).is_err());
        assert_eq!(words(&["list", "--terse"]), CommandAction::Language("list --terse".to_owned()));
        assert_eq!(words(&["check", "-"]), CommandAction::Check("-".to_owned()));
    }

    #[test]
    fn files_may_have_spaces_in_their_names() {
        assert_eq!(words(&["apply", "a b.mmb"]), applies("a b.mmb", false, ConnectionFate::Release));
        assert_eq!(line("save \"a b.mmb\"").action, CommandAction::Save("a b.mmb".to_owned()));
        assert_eq!(line("check  x ").action, CommandAction::Check("x".to_owned()));
        assert_eq!(
            words(&["apply", "a b.mmb", "--dry-run"]),
            applies("a b.mmb", true, ConnectionFate::Release)
        );
        assert_eq!(words(&["apply", "--dry-run", "x"]), applies("x", true, ConnectionFate::Release));
        assert_eq!(line("apply \"a b\" --dry-run").action, applies("a b", true, ConnectionFate::Release));
        assert_eq!(line("apply --dry-run x").action, applies("x", true, ConnectionFate::Release));
        for (options, dry_run, fate) in [
            ("x --keep", false, ConnectionFate::Keep),
            ("--kill x", false, ConnectionFate::Kill),
            ("--dry-run x --keep", true, ConnectionFate::Keep),
            ("x --kill --dry-run", true, ConnectionFate::Kill),
        ] {
            let typed = format!("apply {options}");
            assert_eq!(line(&typed).action, applies("x", dry_run, fate));
            assert_eq!(words(&typed.split(' ').collect::<Vec<_>>()), applies("x", dry_run, fate));
        }
        for wrong in ["apply x --keep --kill", "apply --keep", "apply x y", "apply"] {
            assert!(UserCommand::from_line(wrong).is_err(), "{wrong}");
            let words: Vec<_> = wrong.split(' ').map(str::to_owned).collect();
            assert!(UserCommand::from_words(&words).is_err(), "{wrong}");
        }
        assert_eq!(line("apply x--dry-run").action, applies("x--dry-run", false, ConnectionFate::Release));
        assert!(UserCommand::from_line("apply --dry-run a b").is_err());
        assert!(UserCommand::from_line("apply a b").is_err());
        assert!(UserCommand::from_line("apply").is_err());
        assert!(UserCommand::from_line("apply ''").is_err());
    }

    #[test]
    fn json_is_removed_wherever_it_is_a_word() {
        assert_eq!(
            line("--json list"),
            UserCommand { action: CommandAction::Language("list".to_owned()), json: true }
        );
        assert_eq!(line("list --json --terse").action, CommandAction::Language("list  --terse".to_owned()));
        let quoted = "add payload \"a \\\" --json b\" drop";
        assert_eq!(
            line(quoted),
            UserCommand { action: CommandAction::Language(quoted.to_owned()), json: false }
        );
        assert!(!line("add all drop # no --json here").json);
        assert!(!line("add all --jsonx").json);
    }

    #[test]
    fn comments_and_the_programs_name_are_no_commands() {
        assert_eq!(line("  # nothing").action, CommandAction::Nothing);
        assert_eq!(line("").action, CommandAction::Nothing);
        assert_eq!(line("mmb apply x").action, applies("x", false, ConnectionFate::Release));
        assert_eq!(line("mmb monitor").action, CommandAction::Monitor("mmb monitor".to_owned()));
        assert_eq!(line("save-state x").action, CommandAction::SaveState("x".to_owned()));
        assert_eq!(line("load-state -").action, CommandAction::LoadState("-".to_owned(), false));
        for verbose in ["load-state s --verbose", "load-state --verbose s"] {
            assert_eq!(line(verbose).action, CommandAction::LoadState("s".to_owned(), true));
            let typed: Vec<_> = verbose.split(' ').collect();
            assert_eq!(words(&typed), CommandAction::LoadState("s".to_owned(), true));
        }
        assert_eq!(words(&["del", "3", "--kill"]), CommandAction::Language("del 3 --kill".to_owned()));
        assert_eq!(line("mmb list").action, CommandAction::Language("mmb list".to_owned()));
        assert_eq!(line("quit").action, CommandAction::Exit);
        assert_eq!(line("? add").action, CommandAction::Help("add".to_owned()));
    }
}
