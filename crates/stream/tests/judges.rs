//! The tests of streams: scripts of segments, two TCP ends, hostile senders, and strategies of evasion.

mod segments;
mod support;
