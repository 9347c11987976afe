//! Commands back to their text.

use super::value::bytes;
use super::{Print, pattern_list, sets, with_id};
use crate::command::{CapturePoints, Command, Deletion, Replacement, Show};
use crate::verb::SHOWS;
use mmb_policy::{ConnectionFilter, PacketFilter};

impl std::fmt::Display for Command {
    /// The canonical text, which parses to the same command.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Command::Add(rule) => write!(f, "{}", with_id(rule)),
            Command::Del(id) => write!(f, "del {id}"),
            Command::DelKill(id) => write!(f, "del {id} --kill"),
            Command::DelKeep(id) => write!(f, "del {id} --keep"),
            Command::DelNamed(name, deletion) => write!(f, "del name {name}{}", deletion_option(*deletion)),
            Command::Confirm(version) => write!(f, "confirm{}", number(*version)),
            Command::Rollback(version, deletion) => {
                write!(f, "rollback{}{}", number(*version), deletion_option(*deletion))
            }
            Command::History(last) => write!(f, "history{}", number(*last)),
            Command::Diff(from, to) => write!(f, "diff{}{}", number(*from), number(*to)),
            Command::Replace(replacement) => print_replacement(f, replacement),
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
            Command::Server(command) => {
                write!(f, "server {} {}", command.order.word(), command.server)?;
                command.rule.map_or(Ok(()), |rule| write!(f, " in {rule}"))?;
                if let Some(reason) = &command.reason {
                    f.write_str(" because ")?;
                    bytes(f, reason.as_bytes())?;
                }
                f.write_str(if command.kill { " --kill" } else { "" })
            }
            Command::ClearCounters => f.write_str("clear counters"),
            Command::Monitor => f.write_str("monitor"),
            Command::Trace(request) => {
                f.write_str("trace")?;
                packet_filter(f, &request.filter)?;
                option(f, "count", request.count.as_ref())
            }
            Command::Capture(request) => {
                f.write_str("capture")?;
                packet_filter(f, &request.filter)?;
                let CapturePoints { rx, tx, drop } = request.points;
                for (point, is_given) in [("rx", rx), ("tx", tx), ("drop", drop)] {
                    option(f, "at", is_given.then_some(&point))?;
                }
                option(f, "reason", request.reason.as_ref())?;
                option(f, "count", request.count.as_ref())?;
                option(f, "snaplen", request.snaplen.as_ref())
            }
        }
    }
}

fn deletion_option(deletion: Deletion) -> &'static str {
    match deletion {
        Deletion::Plain => "",
        Deletion::Kill => " --kill",
        Deletion::Drain => " --keep",
    }
}

fn number(number: Option<u64>) -> String {
    number.map(|number| format!(" {number}")).unwrap_or_default()
}

/// `replace`, the number, and what stands behind the first word of the rule.
fn print_replacement(f: &mut std::fmt::Formatter<'_>, replacement: &Replacement) -> std::fmt::Result {
    let text = replacement.either().map(|rule| rule.text().to_string()).unwrap_or_default();
    let (_, rest) = text.split_once(' ').unwrap_or_default();
    write!(f, "replace {} {rest}{}", replacement.id, if replacement.kill { " --kill" } else { "" })
}

/// The constraints of a filter, each behind a blank.
fn packet_filter(f: &mut std::fmt::Formatter<'_>, filter: &PacketFilter) -> std::fmt::Result {
    if filter.all {
        f.write_str(" all")?;
    }
    filter.matches.iter().try_for_each(|constraint| write!(f, " {}", constraint.text()))
}

/// An option and its value, if it is given.
fn option(
    f: &mut std::fmt::Formatter<'_>,
    name: &str,
    value: Option<&impl std::fmt::Display>,
) -> std::fmt::Result {
    value.map_or(Ok(()), |value| write!(f, " {name} {value}"))
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
            Show::Servers { terse: true } => f.write_str(" --terse"),
            _ => Ok(()),
        }
    }
}

fn verbosity(verbose: bool) -> &'static str {
    if verbose { " verbose" } else { "" }
}
