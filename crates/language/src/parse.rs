//! Text to commands and policies: the lexer, the parser and the checker one after the other.

use crate::check;
use crate::command::{Change, Command, CommandRefusal, Deletion, Replacement, Show};
use crate::diagnostic::{Diagnostic, Errors, MAX_REPORTED, Note, Notes, TextSpan};
use crate::lexer::{Lexer, Token};
use crate::nearest::nearest;
use crate::notes::{self, SourceLine};
use crate::parser;
use crate::parser::keyword::FILE;
use crate::print::file_name::file_name;
use crate::report::CheckReport;
use crate::syntax::{CommandSyntax, ElementsSyntax, PatternsSyntax, RuleSyntax, SetSyntax};
use mmb_policy::{ElementList, PatternList, Policy, PolicyError};
use std::borrow::Cow;
use std::ops::Range;

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
        match run_line(&mut policy, command, span, commands.errors.is_empty()) {
            Ok(change) => notes::add(&mut policy, &commands.line(), change),
            Err(error) => {
                let error = commands.locate(*error);
                commands.errors.push(error);
            }
        }
    }
    if commands.errors.is_empty() {
        notes::add_end(&mut policy, commands.behind_last());
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
fn run_line(
    policy: &mut Policy,
    command: Command,
    span: TextSpan,
    complete: bool,
) -> Result<Option<Change>, Box<LineError>> {
    let info = command.info();
    if !info.in_file {
        let message = format!("`{}` has no place in a policy file: it changes nothing", info.name);
        return Err(Diagnostic::new(span, message).into());
    }
    let option = match &command {
        Command::DelKill(_) | Command::DelNamed(_, Deletion::Kill) => {
            Some("`--kill` has no place in a policy file: it ends connections of a running mmb")
        }
        Command::Replace(replacement) if replacement.kill => {
            Some("`--kill` has no place in a policy file: it ends connections of a running mmb")
        }
        Command::DelKeep(_) | Command::DelNamed(_, Deletion::Drain) => {
            Some("`--keep` has no place in a policy file: it is about connections of a running mmb")
        }
        _ => None,
    };
    if let Some(message) = option {
        return Err(Diagnostic::new(span, message).into());
    }
    match command.run(policy) {
        Ok(change) => Ok(Some(change)),
        // The rule may be one that had errors.
        Err(CommandRefusal::Policy(PolicyError::NoSuchRule(_))) if !complete => Ok(None),
        // Likewise the command that reads the list.
        Err(CommandRefusal::Policy(PolicyError::NoSuchList { .. })) if !complete => Ok(None),
        // Likewise the command that makes the set.
        Err(CommandRefusal::Policy(PolicyError::NoSuchSet { .. })) if !complete => Ok(None),
        Err(error) => Err(Box::new(run_error(span, &error))),
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
        CommandRefusal::Policy(_) | CommandRefusal::NoChange(_) | CommandRefusal::OtherKind { .. } => {
            refusal.into()
        }
    }
}

/// The most commands of a batch. A policy file may have more.
pub const MAX_BATCH_COMMANDS: usize = 100_000;

/// A command of a batch, and the bytes of the text that it takes.
pub type BatchCommand = (Command, Range<usize>);

/// Parses and checks the commands of a batch, one a line, each of which changes a policy. Of more than 200 notes the first ones are told.
///
/// # Errors
/// Everything that is wrong with it, in the order of its lines; of more than 200 errors the first ones.
pub fn parse_batch_with(
    text: &str,
    reader: &dyn FileReader,
) -> Result<(Vec<BatchCommand>, Vec<Note>), Vec<Diagnostic>> {
    let (mut found, mut commands) = (Vec::new(), CommandIter::new(text, reader));
    while let Some((command, span)) = commands.next() {
        let info = command.info();
        if !info.in_file {
            let message = format!("`{}` has no place in a batch: it changes no policy", info.name);
            commands.errors.push(Diagnostic::new(span, message));
        } else if found.len() == MAX_BATCH_COMMANDS {
            let message = format!("a batch has at most {MAX_BATCH_COMMANDS} commands");
            commands.errors.push(Diagnostic::new(span, message).expected("several batches, or `apply`"));
            break;
        } else {
            found.push((command, span.start..commands.lexer.at()));
        }
    }
    if commands.errors.is_empty() {
        return Ok((found, commands.notes.located(text)));
    }
    Err(commands.errors.located(text))
}

/// An error of a line that was run.
struct LineError {
    error: Diagnostic,
    /// The word of the line that it is about: the first of these.
    about: Vec<String>,
}

impl From<Diagnostic> for Box<LineError> {
    fn from(error: Diagnostic) -> Box<LineError> {
        Box::new(error.into())
    }
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
    source: &'a str,
    /// The byte behind the command before the last one, and that behind the last one.
    ends: [usize; 2],
}

impl<'a> CommandIter<'a> {
    fn new(source: &'a str, reader: &'a dyn FileReader) -> CommandIter<'a> {
        let (errors, notes) = (Errors::default(), Notes::default());
        let (lexer, tokens, ends) = (Lexer::new(source), Vec::new(), [0, 0]);
        CommandIter { lexer, tokens, errors, notes, is_typed: false, reader, source, ends }
    }

    /// The error of the last command, at the word that it is about.
    fn locate(&self, line: LineError) -> Diagnostic {
        let word = line.about.iter().find_map(|word| self.tokens.iter().find(|token| token.word() == word));
        Diagnostic { span: word.map_or(line.error.span, |token| token.span), ..line.error }
    }

    /// The text of the last command, and what stands around it.
    fn line(&self) -> SourceLine<'a, '_> {
        SourceLine { source: self.source, tokens: &self.tokens, begin: self.ends[0], end: self.ends[1] }
    }

    /// What stands behind the last command.
    fn behind_last(&self) -> &'a str {
        &self.source[self.ends[1]..]
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
                CommandSyntax::Replace(rule, kill) => replacement(rule, kill, &mut report),
                CommandSyntax::Connections(filter, verbose) => check::filter::check(&filter, &mut report)
                    .map(|filter| Command::Show(Show::Connections { filter, verbose })),
                CommandSyntax::Streams(filter, verbose) => check::filter::check(&filter, &mut report)
                    .map(|filter| Command::Show(Show::Streams { filter, verbose })),
                CommandSyntax::Look(look) => check::look::check(&look, &mut report),
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
                self.ends = [self.ends[1], self.lexer.at()];
                return Some((command, self.tokens[0].span));
            }
        }
        None
    }
}

/// Checks a rule that is to replace one of which only the policy knows whether it is stateful: as both. If it is neither, the errors of the
/// reading that has fewer of them are reported.
fn replacement(mut syntax: RuleSyntax<'_>, kill: bool, report: &mut CheckReport<'_>) -> Option<Command> {
    let id = syntax.id?;
    let is_typed = report.is_typed;
    let mut read_as = |stateful| {
        let (mut errors, mut notes) = (Errors::default(), Notes::default());
        syntax.stateful = stateful;
        let rule =
            check::rule(&syntax, &mut CheckReport { errors: &mut errors, notes: &mut notes, is_typed });
        rule.map(|rule| (rule, notes)).ok_or(errors)
    };
    let (stateless, stateful) = match (read_as(false), read_as(true)) {
        (Err(stateless), Err(stateful)) => {
            let fewer = if stateful.len() < stateless.len() { stateful } else { stateless };
            report.errors.append(fewer);
            return None;
        }
        (Ok((rule, notes)), stateful) => {
            report.notes.append(notes);
            (Ok(rule), stateful.map(|(rule, _)| rule).map_err(|errors| errors.first_message()))
        }
        (Err(errors), Ok((rule, notes))) => {
            report.notes.append(notes);
            (Err(errors.first_message()), Ok(rule))
        }
    };
    Some(Command::Replace(Box::new(Replacement { id, stateless, stateful, kill })))
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
