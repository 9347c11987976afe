//! Text to commands and policies: the lexer, the parser and the checker one after the other.

use crate::check;
use crate::command::{Command, CommandRefusal, Show};
use crate::diagnostic::{Diagnostic, Errors, MAX_REPORTED, Note, Notes, TextSpan};
use crate::lexer::{Lexer, Token};
use crate::parser;
use crate::report::CheckReport;
use crate::syntax::CommandSyntax;
use mmb_policy::{Policy, PolicyError};

/// Parses and checks a policy file: one command a line, run one after the other on an empty policy. Of more than 200
/// notes the first ones are told.
///
/// # Errors
/// Everything that is wrong with the file, in the order of its lines; of more than 200 errors the first ones.
pub fn parse_policy(text: &str) -> Result<(Policy, Vec<Note>), Vec<Diagnostic>> {
    let mut policy = Policy::default();
    let mut commands = CommandIter::new(text);
    while let Some((command, span)) = commands.next() {
        if let Some(error) = run_line(&mut policy, command, span, commands.errors.is_empty()) {
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
fn run_line(policy: &mut Policy, command: Command, span: TextSpan, complete: bool) -> Option<Diagnostic> {
    let info = command.info();
    if !info.in_file {
        let message = format!("`{}` has no place in a policy file: it changes nothing", info.name);
        return Some(Diagnostic::new(span, message));
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
        return Some(Diagnostic::new(span, message));
    }
    match command.run(policy) {
        Ok(_) => None,
        // The rule may be one that had errors.
        Err(CommandRefusal::Policy(PolicyError::NoSuchRule(_))) if !complete => None,
        Err(error) => Some(Diagnostic::new(span, error.to_string())),
    }
}

/// Parses and checks one command. Comments and joined lines are understood, a leading `mmb` is skipped. Of more than
/// 200 notes the first ones are told.
///
/// # Errors
/// Everything that is wrong with it, in the order of the text; of more than 200 errors the first ones.
pub fn parse_command(line: &str) -> Result<(Command, Vec<Note>), Vec<Diagnostic>> {
    let mut commands = CommandIter { is_typed: true, ..CommandIter::new(line) };
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
}

impl<'a> CommandIter<'a> {
    pub(crate) fn new(source: &'a str) -> CommandIter<'a> {
        let (errors, notes) = (Errors::default(), Notes::default());
        CommandIter { lexer: Lexer::new(source), tokens: Vec::new(), errors, notes, is_typed: false }
    }

    /// The next command that is right, and where its first word stands.
    pub(crate) fn next(&mut self) -> Option<(Command, TextSpan)> {
        while !self.lexer.is_done() && !self.errors.is_full() {
            let before = self.errors.len();
            self.lexer.command(&mut self.tokens, &mut self.errors);
            let Some(syntax) = parser::parse(&self.tokens, &mut self.errors, before) else { continue };
            let CommandIter { errors, notes, is_typed, .. } = self;
            let mut report = CheckReport { errors, notes, is_typed: *is_typed };
            let command = match syntax {
                CommandSyntax::Rule(rule) => {
                    check::rule(&rule, &mut report).map(|rule| Command::Add(Box::new(rule)))
                }
                CommandSyntax::Connections(filter, verbose) => check::filter::check(&filter, &mut report)
                    .map(|filter| Command::Show(Show::Connections { filter, verbose })),
                CommandSyntax::Kill(filter) => check::filter::check(&filter, &mut report).map(Command::Kill),
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
