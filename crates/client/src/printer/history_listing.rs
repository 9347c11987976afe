//! The history of the policy for people: a table of entries, and the lines that differ between versions.

use super::text_table::{Align, TextTable};
use crate::report::counted;
use crate::screen::{Color, Screen};
use mmb_policy::printable::printable;
use mmb_protocol::answer::{DiffVersions, DifferenceLine, DifferenceSign, HistoryLine, UnconfirmedLine};

/// The columns of the table.
const COLUMNS: [(&str, Align); 7] = [
    ("VERSION", Align::Right),
    ("TIME", Align::Left),
    ("USER", Align::Left),
    ("PROCESS", Align::Right),
    ("+", Align::Right),
    ("-", Align::Right),
    ("COMMAND", Align::Left),
];

/// The entries of the history while they are printed.
#[derive(Debug)]
pub(super) struct HistoryListing(TextTable);

impl Default for HistoryListing {
    fn default() -> HistoryListing {
        HistoryListing(TextTable::new(&COLUMNS))
    }
}

impl HistoryListing {
    /// Prints an entry.
    pub(super) fn row(&mut self, screen: &mut Screen<'_>, line: HistoryLine) {
        let number = |number: Option<u64>| number.map(|number| number.to_string()).unwrap_or_default();
        let uid = line.uid.map(|uid| uid.to_string()).unwrap_or_default();
        let count = |count: u64| number(Some(count).filter(|count| *count > 0));
        let mut remarks = Vec::new();
        if line.in_force {
            remarks.push("in force".to_owned());
        }
        if let Some(connections) = line.connections {
            remarks.push(format!("{} ended", counted(connections, "connection")));
        }
        if let Some(reason) = line.refused {
            remarks.push(format!("refused: {reason}"));
        }
        if line.version.is_some() && !line.kept {
            remarks.push("not kept".to_owned());
        }
        let remarks = if remarks.is_empty() { String::new() } else { format!("  ({})", remarks.join(", ")) };
        let cells = vec![
            number(line.version),
            line.time,
            line.user.unwrap_or(uid),
            number(line.pid.map(u64::from)),
            count(line.added),
            count(line.removed),
            format!("{}{remarks}", printable(&line.command)),
        ];
        self.0.row(screen, cells);
    }

    /// Prints what is left.
    pub(super) fn end(self, screen: &mut Screen<'_>) {
        self.0.end(screen, None);
    }
}

/// Tells which versions are compared.
pub(super) fn versions(screen: &mut Screen<'_>, DiffVersions { from, to }: DiffVersions) {
    screen.color(Color::Red, &format!("--- version {from}\n"));
    screen.color(Color::Green, &format!("+++ version {to}\n"));
}

/// Prints a line that one of them has.
pub(super) fn difference(screen: &mut Screen<'_>, line: &DifferenceLine) {
    match line.sign {
        DifferenceSign::Added => screen.color(Color::Green, &format!("+ {}\n", line.line)),
        DifferenceSign::Removed => screen.color(Color::Red, &format!("- {}\n", line.line)),
    }
}

/// Tells that a change waits for its confirmation.
pub(super) fn unconfirmed(screen: &mut Screen<'_>, line: &UnconfirmedLine) {
    let UnconfirmedLine { version, before, seconds, command, .. } = line;
    let user = match (&line.user, line.uid) {
        (Some(user), _) => user.clone(),
        (None, uid) => uid.map_or_else(String::new, |uid| format!("user {uid}")),
    };
    screen.bold(&format!(
        "version {version} of the policy waits for its confirmation: without `confirm`, version {before} is in force again in {seconds} s\n"
    ));
    screen.text(&format!(
        "it was made by {user}, process {}: {}\n",
        line.pid.unwrap_or_default(),
        printable(command)
    ));
}
