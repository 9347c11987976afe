//! The other end of the control socket, for whatever program a user sits at: errands are understood, done and told about.
//!
//! A [`UserCommand`] is made of what was typed. A [`CommandRunner`] does it: it asks the daemon (a connection for
//! each errand, so that a daemon that was restarted is simply there again) and shows the answer for people
//! or as JSON. Only `check` needs no daemon. How the daemon is reached is the caller's to say ([`Connector`]), and so is where
//! words go ([`OutputSink`]): to a terminal, or to whatever a program with a command line of its own has. An errand of its own
//! accord ends no process, catches no signal and, unless it is allowed to, touches neither standard input nor output.
//!
//! [`names`] and [`help`] tell what may be typed at a place, [`policy_file`] reads policies where no daemon is asked.
#![forbid(unsafe_code)]

mod connections;
mod file;
pub mod help;
mod human;
mod json;
pub mod names;
pub mod policy_file;
mod report;
mod run;
mod screen;
mod sink;
mod table;
mod user_command;

pub use report::failure;
pub use run::{CommandFailed, CommandRunner, Connector};
pub use sink::{ColorChoice, OutputSink, SinkClosed};
pub use user_command::{CommandAction, UsageError, UserCommand};
