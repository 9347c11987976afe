//! Commands of a user of mmb: reading them, running them against a daemon, showing the answers.
//!
//! A [`UserCommand`] is read from what a user typed. A [`CommandRunner`] runs it: it asks the daemon, over a new connection for each
//! command, so that a daemon that was restarted answers the next one, and shows the answer for people or as JSON. Only `check` needs no
//! daemon. The caller decides how to reach the daemon ([`Connector`]) and where output goes ([`OutputSink`]): to a terminal, or to a
//! program with a command line of its own. Running a command ends no process, catches no signal and, unless
//! [`CommandRunner::standard_streams`] is set, uses neither standard input nor standard output.
//!
//! [`help`] lists the words that may follow at a position, [`daemon_names`] asks the daemon for the names among them, and
//! [`policy_file`] reads policies without a daemon.
#![forbid(unsafe_code)]

mod capture;
mod connector;
pub mod daemon_names;
pub mod file;
pub mod help;
mod pcapng;
pub mod policy_file;
mod printer;
mod regular_file;
mod report;
mod runner;
mod screen;
mod sink;
mod user_command;

pub use connector::Connector;
pub use printer::{left_out, rate_text, traced_text};
pub use report::{failure, loaded};
pub use runner::{CommandFailed, CommandRunner};
pub use sink::{ColorChoice, OutputSink, SinkClosed};
pub use user_command::{ApplyCommand, CaptureCommand, CommandAction, UsageError, UserCommand};
