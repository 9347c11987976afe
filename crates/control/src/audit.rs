//! The audit: a line for every change of the policy, and for everything else that a client does to traffic, on the standard error.
//!
//! A line is `audit ` and an object of JSON ([`EntryHeader`]). A service of systemd marks its priority for the journal: `notice`, and
//! `warning` for what was refused. The thread of the history writes the lines, so that a standard error that nobody reads delays no change.

use crate::history::entry::EntryAction;
use crate::history::record::EntryHeader;
use mmb_log::LogHandle;
use mmb_log::audit::AuditEvent;
use mmb_log::clock::read_rfc3339;
use mmb_policy::printable::{printable, printable_json};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::time::SystemTime;

/// Writes the lines of entries, and messages about the history itself.
pub(crate) fn write(entries: &[EntryHeader], left_out: u64, notes: &[String]) {
    let mut text = Vec::new();
    // A start is no change of a running mmb.
    for entry in entries.iter().filter(|entry| entry.action != EntryAction::Start) {
        let priority = if entry.refused.is_some() { Priority::Warning } else { Priority::Notice };
        // A vector takes everything.
        let line = serde_json::to_string(&EntryHeader { content: None, ..entry.clone() }).unwrap_or_default();
        let _ = writeln!(text, "{}audit {}", mark(priority), printable_json(&line));
    }
    if left_out > 0 {
        let _ = writeln!(
            text,
            "{}mmb: {left_out} changes are neither in the audit nor in the history",
            mark(Priority::Warning)
        );
    }
    for note in notes {
        let _ = writeln!(text, "{}mmb: {}", mark(Priority::Warning), printable(note));
    }
    // There is nobody to tell that nobody reads it.
    let _ = io::stderr().lock().write_all(&text);
}

/// Hands entries to the sinks of a log.
pub(crate) fn log(entries: &[EntryHeader], log: &LogHandle) {
    for entry in entries.iter().filter(|entry| entry.action != EntryAction::Start) {
        let event = AuditEvent {
            action: entry.action.name().to_owned(),
            command: entry.command.clone(),
            uid: entry.uid,
            user: entry.user.clone(),
            pid: entry.pid,
            version: entry.version,
            added: entry.added,
            removed: entry.removed,
            connections: entry.connections,
            refused: entry.refused.clone(),
        };
        log.audit(read_rfc3339(&entry.time).unwrap_or_else(SystemTime::now), event);
    }
}

#[derive(Clone, Copy, Debug)]
enum Priority {
    Warning,
    Notice,
}

/// Returns what the journal reads a priority from, if it reads the standard error (systemd.exec(5), `$JOURNAL_STREAM`; sd-daemon(3)).
fn mark(priority: Priority) -> &'static str {
    static IS_JOURNAL: OnceLock<bool> = OnceLock::new();
    match (IS_JOURNAL.get_or_init(is_journal), priority) {
        (false, _) => "",
        (true, Priority::Warning) => "<4>",
        (true, Priority::Notice) => "<5>",
    }
}

/// Returns whether the standard error is the stream that `$JOURNAL_STREAM` names by device and inode.
fn is_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    let stderr = std::fs::metadata("/proc/self/fd/2");
    stderr.is_ok_and(|file| stream == format!("{}:{}", file.dev(), file.ino()))
}
