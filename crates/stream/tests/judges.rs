//! The tests of streams: scripts of segments, two TCP ends, hostile senders, and evasion strategies.

mod edited;
mod geneva;
mod hostile;
mod segments;
mod support;
mod two_ends;
