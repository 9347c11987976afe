//! Text to commands and policies: the lexer, the parser and the checker one after the other.

use crate::check;
use crate::command::{Command, CommandRefusal, Show};
use crate::diagnostic::{Diagnostic, Errors, MAX_REPORTED, Note, Notes, TextSpan};
use crate::lexer::{Lexer, Token};
use crate::nearest::nearest;
use crate::parser;
use crate::parser::sets::FILE;
use crate::print::command::file_name;
use crate::report::CheckReport;
use crate::syntax::{CommandSyntax, ElementsSyntax, PatternsSyntax, SetSyntax};
use mmb_policy::{ElementList, PatternList, Policy, PolicyError};
use std::borrow::Cow;

/// Reads the files that `patterns` and `set` commands name. An error is the reason, which the name of the file stands before.
pub trait FileReader {
    /// Reads a file of patterns.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    fn patterns(&self, file: &str) -> Result<PatternList, String>;

    /// Reads a file of elements: see [`read_elements`](crate::read_elements).
    ///
    /// # Errors
    /// The reason why it cannot be read.
    fn elements(&self, file: &str) -> Result<ElementList, String>;
}

/// Reads patterns only.
impl<F: Fn(&str) -> Result<PatternList, String>> FileReader for F {
    fn patterns(&self, file: &str) -> Result<PatternList, String> {
        self(file)
    }

    fn elements(&self, _: &str) -> Result<ElementList, String> {
        Err("files of elements are not read here".to_owned())
    }
}

/// Where there are no files.
fn no_files(_: &str) -> Result<PatternList, String> {
    Err("files of patterns are not read here".to_owned())
}

/// [`parse_policy_with`] without files of patterns.
///
/// # Errors
/// As for [`parse_policy_with`]; the file has a `patterns` command.
pub fn parse_policy(text: &str) -> Result<(Policy, Vec<Note>), Vec<Diagnostic>> {
    parse_policy_with(text, &no_files)
}

/// Parses and checks a policy file: one command a line, run one after the other on an empty policy. Of more than 200
/// notes the first ones are told.
///
/// # Errors
/// Everything that is wrong with the file, in the order of its lines; of more than 200 errors the first ones.
pub fn parse_policy_with(
    text: &str,
    reader: &dyn FileReader,
) -> Result<(Policy, Vec<Note>), Vec<Diagnostic>> {
    let mut policy = Policy::default();
    let mut commands = CommandIter::new(text, reader);
    while let Some((command, span)) = commands.next() {
        let error = run_line(&mut policy, command, span, commands.errors.is_empty());
        if let Some(error) = error {
            let error = commands.locate(error);
            commands.errors.push(error);
        }
    }
    if commands.errors.is_empty() {
        policy.rules.shrink();
        let mut notes = commands.notes.located(text);
        if let Some(last) = notes.get_mut(MAX_REPORTED - 1) {
            last.message = format!("too many notes: only the first {} are told", MAX_REPORTED - 1);
        }
        return Ok((policy, notes));
    }
    let mut errors = commands.errors.located(text);
    if let Some(last) = errors.get_mut(MAX_REPORTED - 1) {
        last.message = format!("too many errors: only the first {} are told", MAX_REPORTED - 1);
        (last.expected, last.suggestion) = (None, None);
    }
    Err(errors)
}

/// Runs one command of a file. `complete`: no command before had errors, so that the policy is what it would be.
fn run_line(policy: &mut Policy, command: Command, span: TextSpan, complete: bool) -> Option<LineError> {
    let info = command.info();
    if !info.in_file {
        let message = format!("`{}` has no place in a policy file: it changes nothing", info.name);
        return Some(Diagnostic::new(span, message).into());
    }
    let option = match &command {
        Command::DelKill(_) => {
            Some("`--kill` has no place in a policy file: it ends connections of a running mmb")
        }
        Command::DelKeep(_) => {
            Some("`--keep` has no place in a policy file: it is about connections of a running mmb")
        }
        _ => None,
    };
    if let Some(message) = option {
        return Some(Diagnostic::new(span, message).into());
    }
    match command.run(policy) {
        Ok(_) => None,
        // The rule may be one that had errors.
        Err(CommandRefusal::Policy(PolicyError::NoSuchRule(_))) if !complete => None,
        // Likewise the command that reads the list.
        Err(CommandRefusal::Policy(PolicyError::NoSuchList { .. })) if !complete => None,
        // Likewise the command that makes the set.
        Err(CommandRefusal::Policy(PolicyError::NoSuchSet { .. })) if !complete => None,
        Err(error) => Some(run_error(span, &error)),
    }
}

/// The error of a command that was refused.
fn run_error(span: TextSpan, error: &CommandRefusal) -> LineError {
    let refusal = Diagnostic::new(span, error.to_string());
    let about = |name: &String| vec![format!("@{name}"), name.clone()];
    match error {
        CommandRefusal::Policy(
            PolicyError::NoSuchList { name, known } | PolicyError::NoSuchSet { name, known },
        ) => {
            let meant = nearest(name, known.iter().map(String::as_str)).map(|known| format!("@{known}"));
            LineError { error: refusal.suggest(meant), about: about(name) }
        }
        CommandRefusal::Policy(
            PolicyError::SetDoesNotFit { name, .. }
            | PolicyError::SetInUse { name, .. }
            | PolicyError::Set { name, .. },
        ) => LineError { error: refusal, about: about(name) },
        CommandRefusal::Policy(_) | CommandRefusal::NoChange(_) => refusal.into(),
    }
}

/// An error of a line that was run.
struct LineError {
    error: Diagnostic,
    /// The word of the line that it is about: the first of these.
    about: Vec<String>,
}

impl From<Diagnostic> for LineError {
    fn from(error: Diagnostic) -> LineError {
        LineError { error, about: Vec::new() }
    }
}

/// [`parse_command_with`] without files of patterns.
///
/// # Errors
/// As for [`parse_command_with`]; the command is `patterns`.
pub fn parse_command(line: &str) -> Result<(Command, Vec<Note>), Vec<Diagnostic>> {
    parse_command_with(line, &no_files)
}

/// Parses and checks one command. Comments and joined lines are understood, a leading `mmb` is skipped. Of more than
/// 200 notes the first ones are told.
///
/// # Errors
/// Everything that is wrong with it, in the order of the text; of more than 200 errors the first ones.
pub fn parse_command_with(
    line: &str,
    reader: &dyn FileReader,
) -> Result<(Command, Vec<Note>), Vec<Diagnostic>> {
    let mut commands = CommandIter { is_typed: true, ..CommandIter::new(line, reader) };
    let mut first = None;
    while let Some((command, span)) = commands.next() {
        if first.is_none() {
            first = Some(command);
        } else {
            commands
                .errors
                .push(Diagnostic::new(span, "one command at a time").expected("the end of the text"));
        }
    }
    if first.is_none() && commands.errors.is_empty() {
        let error = Diagnostic::new(TextSpan::default(), "nothing to do").expected("a command");
        commands.errors.push(error);
    }
    match first {
        Some(command) if commands.errors.is_empty() => Ok((command, commands.notes.located(line))),
        _ => Err(commands.errors.located(line)),
    }
}

/// The commands of a text one after the other, until there are too many errors. A command that has some is left out.
pub(crate) struct CommandIter<'a> {
    lexer: Lexer<'a>,
    tokens: Vec<Token<'a>>,
    pub(crate) errors: Errors,
    pub(crate) notes: Notes,
    is_typed: bool,
    reader: &'a dyn FileReader,
}

impl<'a> CommandIter<'a> {
    fn new(source: &'a str, reader: &'a dyn FileReader) -> CommandIter<'a> {
        let (errors, notes) = (Errors::default(), Notes::default());
        CommandIter { lexer: Lexer::new(source), tokens: Vec::new(), errors, notes, is_typed: false, reader }
    }

    /// The error of the last command, at the word that it is about.
    fn locate(&self, line: LineError) -> Diagnostic {
        let word = line.about.iter().find_map(|word| self.tokens.iter().find(|token| token.word() == word));
        Diagnostic { span: word.map_or(line.error.span, |token| token.span), ..line.error }
    }

    /// The next command that is right, and where its first word stands.
    pub(crate) fn next(&mut self) -> Option<(Command, TextSpan)> {
        while !self.lexer.is_done() && !self.errors.is_full() {
            let before = self.errors.len();
            self.lexer.command(&mut self.tokens, &mut self.errors);
            let CommandIter { tokens, errors, notes, is_typed, reader, .. } = self;
            let Some(syntax) = parser::parse(tokens, (&mut *errors, &mut *notes), before) else { continue };
            let mut report = CheckReport { errors, notes, is_typed: *is_typed };
            let command = match syntax {
                CommandSyntax::Rule(rule) => {
                    check::rule(&rule, &mut report).map(|rule| Command::Add(Box::new(rule)))
                }
                CommandSyntax::Connections(filter, verbose) => check::filter::check(&filter, &mut report)
                    .map(|filter| Command::Show(Show::Connections { filter, verbose })),
                CommandSyntax::Streams(filter, verbose) => check::filter::check(&filter, &mut report)
                    .map(|filter| Command::Show(Show::Streams { filter, verbose })),
                CommandSyntax::Kill(filter) => check::filter::check(&filter, &mut report).map(Command::Kill),
                // A file is read only for a command without errors.
                CommandSyntax::Patterns(_) | CommandSyntax::Set(_) if report.errors.len() > before => None,
                CommandSyntax::Patterns(PatternsSyntax { name, file, span }) => match reader.patterns(file) {
                    Ok(list) => Some(Command::Patterns(name.to_owned(), list)),
                    Err(reason) => {
                        report.error(Diagnostic::new(span, format!("{file}: {reason}")));
                        None
                    }
                },
                CommandSyntax::Set(SetSyntax { name, operation, elements }) => match elements {
                    ElementsSyntax::List(list) => Some(list),
                    ElementsSyntax::File(file, span) => {
                        let read = reader.elements(file);
                        let refused = |reason| Diagnostic::new(span, format!("{file}: {reason}"));
                        read.map_err(|reason| report.error(refused(reason))).ok()
                    }
                }
                .map(|list| Command::ChangeSet(name.to_owned(), operation, list)),
                CommandSyntax::Other(command) => Some(command),
            };
            if let Some(command) = command
                && self.errors.len() == before
            {
                return Some((command, self.tokens[0].span));
            }
        }
        None
    }
}

/// The text with other names for the files of its `patterns` and `set` commands, for whoever reads them elsewhere. `rename` gets the name
/// and what the file is.
pub fn with_files<'t>(text: &'t str, rename: &dyn Fn(&str, NamedFile) -> String) -> Cow<'t, str> {
    // Policies are long, and most have none.
    if !text.contains("patterns") && !text.contains(FILE) {
        return Cow::Borrowed(text);
    }
    let (mut renamed, mut copied) = (String::new(), 0);
    let (mut lexer, mut tokens) = (Lexer::new(text), Vec::new());
    while !lexer.is_done() {
        let mut errors = Errors::default();
        lexer.command(&mut tokens, &mut errors);
        let (file, span, named) = match command_with_file(&tokens, &mut errors) {
            Some(CommandSyntax::Patterns(command)) => (command.file, command.span, NamedFile::Patterns),
            Some(CommandSyntax::Set(SetSyntax { elements: ElementsSyntax::File(file, span), .. })) => {
                (file, span, NamedFile::Elements)
            }
            _ => continue,
        };
        renamed += &text[copied..span.start];
        renamed += &file_name(&rename(file, named));
        copied = span.end;
    }
    if copied == 0 { Cow::Borrowed(text) } else { Cow::Owned(renamed + &text[copied..]) }
}

/// The command, if it is one that may name a file.
fn command_with_file<'t>(tokens: &'t [Token<'_>], errors: &mut Errors) -> Option<CommandSyntax<'t>> {
    let has_file = |token: &Token<'_>| token.word() == "patterns";
    let is_set = tokens.iter().take(2).any(|token| token.word() == "set");
    // Long lists of elements are not read twice.
    let names_file = is_set && tokens.iter().take(6).any(|token| token.word() == FILE);
    let may = names_file || tokens.iter().take(2).any(has_file);
    may.then(|| parser::parse(tokens, (errors, &mut Notes::default()), 0)).flatten()
}

/// What a file is that a command names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedFile {
    /// Patterns.
    Patterns,
    /// Elements of a set.
    Elements,
}
