//! Commands back to their text.

use super::value::{Printed, bytes};
use super::{Print, sets, with_id};
use crate::command::{Command, Show};
use crate::lexer::is_word;
use crate::verb::SHOWS;
use mmb_policy::{ConnectionFilter, PatternList};

impl std::fmt::Display for Command {
    /// The canonical text, which parses to the same command.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Command::Add(rule) => write!(f, "{}", with_id(rule)),
            Command::Del(id) => write!(f, "del {id}"),
            Command::DelKill(id) => write!(f, "del {id} --kill"),
            Command::DelKeep(id) => write!(f, "del {id} --keep"),
            Command::Flush => f.write_str("flush"),
            Command::List { terse: false } => f.write_str("list"),
            Command::List { terse: true } => f.write_str("list --terse"),
            Command::Show(show) => write!(f, "show {show}"),
            Command::Enable(port) => write!(f, "enable {port}"),
            Command::Disable(port) => write!(f, "disable {port}"),
            Command::Set(setting) => write!(f, "set {setting}"),
            Command::ChangeSet(name, operation, list) => sets::change(f, name, *operation, list),
            Command::DelSet(name) => write!(f, "del set {name}"),
            Command::ShowSet(name) => write!(f, "show set {name}"),
            Command::Patterns(name, list) => f.write_str(&pattern_list(name, list)),
            Command::Kill(ConnectionFilter::ALL) => f.write_str("conn kill all"),
            Command::Kill(filter) => write!(f, "conn kill {}", filter.text()),
            Command::ClearCounters => f.write_str("clear counters"),
            Command::Monitor => f.write_str("monitor"),
        }
    }
}

/// The command that reads a list.
pub(super) fn pattern_list(name: &str, list: &PatternList) -> String {
    format!("patterns {name} {}", file_name(&list.file))
}

/// The name of a file as `patterns` takes it: a word, or in quotes.
pub fn file_name(file: &str) -> String {
    if is_word(file) {
        return file.to_owned();
    }
    Printed(|f: &mut std::fmt::Formatter<'_>| bytes(f, file.as_bytes())).to_string()
}

impl Show {
    /// The words that ask for it, but for a filter.
    fn name(&self) -> &'static str {
        if *self == Show::StreamSummary {
            return "streams summary";
        }
        let row =
            SHOWS.iter().find(|(_, show, _)| std::mem::discriminant(show) == std::mem::discriminant(self));
        row.map_or("", |(name, ..)| name)
    }
}

impl std::fmt::Display for Show {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())?;
        match self {
            Show::Connections { filter: ConnectionFilter::ALL, verbose }
            | Show::Streams { filter: ConnectionFilter::ALL, verbose } => {
                write!(f, "{}", verbosity(*verbose))
            }
            Show::Connections { filter, verbose } | Show::Streams { filter, verbose } => {
                write!(f, " {}{}", filter.text(), verbosity(*verbose))
            }
            _ => Ok(()),
        }
    }
}

fn verbosity(verbose: bool) -> &'static str {
    if verbose { " verbose" } else { "" }
}
