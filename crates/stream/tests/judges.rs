//! The tests of streams: scripts of segments, two TCP ends, hostile senders, and strategies of evasion.

mod edited;
mod geneva;
mod hostile;
mod segments;
mod support;
mod two_ends;
