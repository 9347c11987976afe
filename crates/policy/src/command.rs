//! Commands: what one line of the language asks for.

use crate::check::{self, CheckReport};
use crate::diagnostic::{Diagnostic, Errors, Note, Notes, TextSpan};
use crate::filter::ConnectionFilter;
use crate::lexer::{Lexer, Token};
use crate::parser;
use crate::rule::{Rule, RuleId};
use crate::setting::Setting;
use crate::syntax::CommandSyntax;
use crate::verb::{CommandInfo, SHOWS};

/// One checked command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// `add …`, `add-stateless …`, `add-stateful …`
    Add(Box<Rule>),
    /// `del ID`
    Del(RuleId),
    /// `del ID --kill`: the rule's connections end too.
    DelKill(RuleId),
    /// `flush`
    Flush,
    /// `list [--terse]`
    List {
        /// Rules only, without counters.
        terse: bool,
    },
    /// `show WHAT`
    Show(Show),
    /// `enable PORT`
    Enable(String),
    /// `disable PORT`
    Disable(String),
    /// `set NAME VALUE`
    Set(Setting),
    /// `conn kill FILTER…`
    Kill(ConnectionFilter),
    /// `monitor`
    Monitor,
}

/// What `show` shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Tuples of the classifier.
    Tables,
    /// Ports and their counters.
    Ports,
    /// Drops by reason, and edits that were not applied.
    Errors,
    /// Stages: calls, vectors, packets, cycles.
    Runtime,
    /// Settings in force.
    Settings,
    /// Version and build.
    Version,
    /// Connections, one by one.
    Connections {
        /// Which.
        filter: ConnectionFilter,
        /// Where each is kept, too.
        verbose: bool,
    },
    /// How many connections there are, were and were refused.
    ConnSummary,
}

impl Command {
    /// The command's row in the table of commands.
    pub fn info(&self) -> &'static CommandInfo {
        let name = match self {
            Command::Add(rule) if rule.stateful => "add-stateful",
            Command::Add(_) => "add",
            Command::Del(_) | Command::DelKill(_) => "del",
            Command::Flush => "flush",
            Command::List { .. } => "list",
            Command::Show(_) => "show",
            Command::Enable(_) => "enable",
            Command::Disable(_) => "disable",
            Command::Set(_) => "set",
            Command::Kill(_) => "conn",
            Command::Monitor => "monitor",
        };
        crate::verb::named(name).expect("the table has every command, a test checks it")
    }
}

impl std::fmt::Display for Command {
    /// The canonical text, which parses to the same command.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Command::Add(rule) => write!(f, "{}", rule.display_with_id()),
            Command::Del(id) => write!(f, "del {id}"),
            Command::DelKill(id) => write!(f, "del {id} --kill"),
            Command::Flush => f.write_str("flush"),
            Command::List { terse: false } => f.write_str("list"),
            Command::List { terse: true } => f.write_str("list --terse"),
            Command::Show(show) => write!(f, "show {show}"),
            Command::Enable(port) => write!(f, "enable {port}"),
            Command::Disable(port) => write!(f, "disable {port}"),
            Command::Set(setting) => write!(f, "set {setting}"),
            Command::Kill(ConnectionFilter::ALL) => f.write_str("conn kill all"),
            Command::Kill(filter) => write!(f, "conn kill {filter}"),
            Command::Monitor => f.write_str("monitor"),
        }
    }
}

impl Show {
    /// The words that ask for it, but for a filter.
    fn name(&self) -> &'static str {
        let row =
            SHOWS.iter().find(|(_, show, _)| std::mem::discriminant(show) == std::mem::discriminant(self));
        row.map_or("", |(name, ..)| name)
    }
}

impl std::fmt::Display for Show {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())?;
        match self {
            Show::Connections { filter: ConnectionFilter::ALL, verbose } => {
                write!(f, "{}", verbosity(*verbose))
            }
            Show::Connections { filter, verbose } => write!(f, " {filter}{}", verbosity(*verbose)),
            _ => Ok(()),
        }
    }
}

fn verbosity(verbose: bool) -> &'static str {
    if verbose { " verbose" } else { "" }
}

/// Parses and checks one command. Comments and joined lines are understood, a leading `mmb` is skipped. Of more than
/// 200 notes the first ones are told.
///
/// # Errors
/// Everything that is wrong with it, in the order of the text; of more than 200 errors the first ones.
pub fn parse_command(line: &str) -> Result<(Command, Vec<Note>), Vec<Diagnostic>> {
    let mut commands = CommandIter::new(line);
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
}

impl<'a> CommandIter<'a> {
    pub(crate) fn new(source: &'a str) -> CommandIter<'a> {
        let (errors, notes) = (Errors::default(), Notes::default());
        CommandIter { lexer: Lexer::new(source), tokens: Vec::new(), errors, notes }
    }

    /// The next command that is right, and where its first word stands.
    pub(crate) fn next(&mut self) -> Option<(Command, TextSpan)> {
        while !self.lexer.is_done() && !self.errors.is_full() {
            let before = self.errors.len();
            self.lexer.command(&mut self.tokens, &mut self.errors);
            let Some(syntax) = parser::parse(&self.tokens, &mut self.errors, before) else { continue };
            let mut report = CheckReport { errors: &mut self.errors, notes: &mut self.notes };
            let command = match syntax {
                CommandSyntax::Rule(rule) => {
                    check::rule(&rule, &mut report).map(|rule| Command::Add(Box::new(rule)))
                }
                CommandSyntax::Connections(filter, verbose) => check::filter(&filter, &mut report)
                    .map(|filter| Command::Show(Show::Connections { filter, verbose })),
                CommandSyntax::Kill(filter) => check::filter(&filter, &mut report).map(Command::Kill),
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
