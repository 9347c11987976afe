//! Commands of a user, read from a line or from the words of a command line.

use mmb_language::file_word;
use mmb_language::verb;
use mmb_language::verb::Argument;
use mmb_protocol::request::{ChangeOptions, ConnectionFate};

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
    /// `batch [FILE]`
    Batch(BatchCommand),
    /// `monitor` and `trace`: commands of the rule language whose answers have no end of their own, or a late one.
    Monitor(String),
    /// `capture … -w FILE`
    Capture(CaptureCommand),
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

/// `capture … -w FILE`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaptureCommand {
    /// The command without its file, in the words of the rule language.
    pub command: String,
    /// The file; `-` is standard output. None: packets are printed, as JSON.
    pub file: Option<String>,
}

/// `apply FILE [--dry-run] [--confirm SECONDS] [--keep|--kill]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ApplyCommand {
    /// The policy file.
    pub file: String,
    /// Nothing is changed.
    pub dry_run: bool,
    /// The fate of the connections of rules that the file removes.
    pub fate: ConnectionFate,
    /// The change is taken back after so many seconds, unless it was confirmed.
    pub confirm: Option<u32>,
}

/// `batch [FILE] [--dry-run] [--confirm SECONDS]`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchCommand {
    /// The file of commands; `-` is standard input.
    pub file: String,
    /// Nothing is changed.
    pub dry_run: bool,
    /// The change is taken back after so many seconds, unless it was confirmed.
    pub confirm: Option<u32>,
}

impl CommandAction {
    /// Returns the name of the file that the action reads or writes.
    pub(crate) fn file(&self) -> Option<&str> {
        match self {
            CommandAction::Apply(ApplyCommand { file: name, .. })
            | CommandAction::Batch(BatchCommand { file: name, .. })
            | CommandAction::Save(name)
            | CommandAction::Capture(CaptureCommand { file: Some(name), .. })
            | CommandAction::SaveState(name)
            | CommandAction::LoadState(name, _)
            | CommandAction::Check(name) => Some(name),
            CommandAction::Language(_)
            | CommandAction::Monitor(_)
            | CommandAction::Capture(CaptureCommand { file: None, .. })
            | CommandAction::Help(_)
            | CommandAction::Exit
            | CommandAction::Nothing => None,
        }
    }
}

/// Words with a dash that commands take; `-` is standard input or output.
const KNOWN_OPTIONS: &[&str] = &["-", "--json", "--terse", KEEP, KILL, DRY_RUN, CONFIRM, VERBOSE, WRITE];

/// Options of `apply`; those of connections also of `del`.
const DRY_RUN: &str = "--dry-run";
const KEEP: &str = "--keep";
const KILL: &str = "--kill";

/// The option of `apply` and `batch` that has a value, a number of seconds.
const CONFIRM: &str = "--confirm";

/// The option of `capture` that a file follows.
const WRITE: &str = "-w";

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
                let (options, files) = options_among(words, &APPLY_OPTIONS);
                let [file] = files[..] else { return Err(usage(command)) };
                Ok(UserCommand { action: apply(file.to_owned(), &options)?, json: false })
            }
            [command, words @ ..] if command == "batch" => {
                let (options, files) = options_among(words, &BATCH_OPTIONS);
                let file = match files[..] {
                    [] => "-",
                    [file] => file,
                    [..] => return Err(usage(command)),
                };
                Ok(UserCommand { action: batch(file.to_owned(), &options)?, json: false })
            }
            [command, file] if takes_file(command) => {
                Ok(UserCommand { action: file_action(command, file.clone()), json: false })
            }
            [command, file, option] | [command, option, file]
                if command == "load-state" && option == VERBOSE =>
            {
                Ok(UserCommand { action: CommandAction::LoadState(file.clone(), true), json: false })
            }
            [command, words @ ..] if command == "capture" && words.iter().any(|word| word == WRITE) => {
                let at = words.iter().position(|word| word == WRITE).unwrap_or_default();
                let Some((file, behind)) = words[at + 1..].split_first() else { return Err(usage(command)) };
                let words: Vec<&str> = std::iter::once(command.as_str())
                    .chain(words[..at].iter().chain(behind).map(String::as_str))
                    .collect();
                let capture = CaptureCommand { command: words.join(" "), file: Some(file.clone()) };
                Ok(UserCommand { action: CommandAction::Capture(capture), json: false })
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
                let (options, rest) = options_around(rest, &APPLY_OPTIONS);
                if rest.is_empty() {
                    return Err(usage(first));
                }
                apply(file_name(first, rest)?, &options)?
            }
            "batch" => {
                let (options, rest) = options_around(rest, &BATCH_OPTIONS);
                batch(if rest.is_empty() { "-".to_owned() } else { file_name(first, rest)? }, &options)?
            }
            "load-state" if let Some(file) = without_option(rest, VERBOSE) => {
                CommandAction::LoadState(file_name(first, file)?, true)
            }
            command if takes_file(command) => file_action(command, file_name(command, rest)?),
            "monitor" | "trace" => CommandAction::Monitor(line.trim().to_owned()),
            "capture" => {
                let (before, file) = match format!(" {rest}").split_once(" -w ") {
                    Some((before, file)) => (before.to_owned(), Some(file.trim().to_owned())),
                    None => (rest.to_owned(), None),
                };
                let file = file.map(|file| file_name(first, &file)).transpose()?;
                CommandAction::Capture(CaptureCommand { command: format!("capture {}", before.trim()), file })
            }
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

const APPLY_OPTIONS: [&str; 4] = [DRY_RUN, CONFIRM, KEEP, KILL];
const BATCH_OPTIONS: [&str; 2] = [DRY_RUN, CONFIRM];

/// An option, and its value if it has one.
type OptionWord<'w> = (&'w str, Option<&'w str>);

/// Separates these options, and their values, from the other words of a command line.
fn options_among<'w>(words: &'w [String], known: &[&str]) -> (Vec<OptionWord<'w>>, Vec<&'w str>) {
    let (mut options, mut others) = (Vec::new(), Vec::new());
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            CONFIRM if known.contains(&CONFIRM) => options.push((word, words.next())),
            word if known.contains(&word) => options.push((word, None)),
            word => others.push(word),
        }
    }
    (options, others)
}

/// Takes these options, and their values, from the beginning and the end of a line; returns them and the rest.
fn options_around<'r>(line: &'r str, known: &[&str]) -> (Vec<OptionWord<'r>>, &'r str) {
    let (mut options, mut rest) = (Vec::new(), line.trim());
    loop {
        let (first, behind) = split_word(rest);
        let (before, last) = rest.rsplit_once(char::is_whitespace).unwrap_or(("", rest));
        let (before, last_but_one) = match before.trim().rsplit_once(char::is_whitespace) {
            Some((before, word)) => (before.trim(), word),
            None => ("", before.trim()),
        };
        if first == CONFIRM && known.contains(&CONFIRM) {
            let (value, behind) = split_word(behind);
            options.push((first, Some(value).filter(|value| !value.is_empty())));
            rest = behind;
        } else if known.contains(&first) {
            options.push((first, None));
            rest = behind;
        } else if last_but_one == CONFIRM && known.contains(&CONFIRM) {
            options.push((last_but_one, Some(last)));
            rest = before;
        } else if known.contains(&last) {
            options.push((last, None));
            rest = rest[..rest.len() - last.len()].trim();
        } else {
            return (options, rest);
        }
    }
}

/// Reads the value of `--confirm`.
fn seconds(value: Option<&str>) -> Result<u32, UsageError> {
    let max = ChangeOptions::MAX_CONFIRM_S;
    let seconds = value.and_then(|value| value.parse().ok()).filter(|seconds| (1..=max).contains(seconds));
    seconds.ok_or_else(|| UsageError(format!("{CONFIRM} takes a number of seconds, 1 to {max}")))
}

fn apply(file: String, options: &[OptionWord<'_>]) -> Result<CommandAction, UsageError> {
    let mut command = ApplyCommand { file, ..ApplyCommand::default() };
    for &(option, value) in options {
        match (option, command.fate) {
            (DRY_RUN, _) => command.dry_run = true,
            (CONFIRM, _) => command.confirm = Some(seconds(value)?),
            (KEEP, ConnectionFate::Release | ConnectionFate::Keep) => command.fate = ConnectionFate::Keep,
            (KILL, ConnectionFate::Release | ConnectionFate::Kill) => command.fate = ConnectionFate::Kill,
            _ => return Err(UsageError("--keep and --kill contradict each other".to_owned())),
        }
    }
    Ok(CommandAction::Apply(command))
}

fn batch(file: String, options: &[OptionWord<'_>]) -> Result<CommandAction, UsageError> {
    let mut command = BatchCommand { file, ..BatchCommand::default() };
    for &(option, value) in options {
        match option {
            CONFIRM => command.confirm = Some(seconds(value)?),
            _ => command.dry_run = true,
        }
    }
    Ok(CommandAction::Batch(command))
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
        CommandAction::Apply(ApplyCommand { file: file.to_owned(), dry_run, fate, confirm: None })
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
    fn a_batch_is_read_from_a_file_or_from_standard_input() {
        let batch = |file: &str, dry_run| {
            CommandAction::Batch(BatchCommand { file: file.to_owned(), dry_run, confirm: None })
        };
        for (typed, action) in [
            ("batch", batch("-", false)),
            ("batch x", batch("x", false)),
            ("batch --dry-run", batch("-", true)),
            ("batch x --dry-run", batch("x", true)),
            ("batch --dry-run x", batch("x", true)),
        ] {
            assert_eq!(line(typed).action, action, "{typed}");
            assert_eq!(words(&typed.split(' ').collect::<Vec<_>>()), action, "{typed}");
        }
        assert_eq!(line("batch \"a b\" --dry-run").action, batch("a b", true));
        assert!(UserCommand::from_line("batch a b").is_err());
        assert!(UserCommand::from_words(&["batch".into(), "a".into(), "b".into()]).is_err());
    }

    #[test]
    fn a_change_may_have_to_be_confirmed() {
        let file = "x".to_owned();
        let fate = ConnectionFate::Kill;
        let apply = CommandAction::Apply(ApplyCommand {
            file: file.clone(),
            dry_run: false,
            fate,
            confirm: Some(60),
        });
        for typed in
            ["apply x --confirm 60 --kill", "apply --kill --confirm 60 x", "apply --confirm 60 x --kill"]
        {
            assert_eq!(line(typed).action, apply, "{typed}");
            assert_eq!(words(&typed.split(' ').collect::<Vec<_>>()), apply, "{typed}");
        }
        let batch = |file: &str| {
            CommandAction::Batch(BatchCommand { file: file.to_owned(), dry_run: false, confirm: Some(5) })
        };
        for (typed, file) in
            [("batch --confirm 5", "-"), ("batch x --confirm 5", "x"), ("batch --confirm 5 x", "x")]
        {
            assert_eq!(line(typed).action, batch(file), "{typed}");
            assert_eq!(words(&typed.split(' ').collect::<Vec<_>>()), batch(file), "{typed}");
        }
        for wrong in
            ["apply x --confirm", "apply x --confirm 0", "apply --confirm x", "batch --confirm 86401"]
        {
            assert!(UserCommand::from_line(wrong).is_err(), "{wrong}");
            let words: Vec<_> = wrong.split(' ').map(str::to_owned).collect();
            assert!(UserCommand::from_words(&words).is_err(), "{wrong}");
        }
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
