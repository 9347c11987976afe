//! Totals over a worker's streams.

use super::expectations::ExpectedCounts;
use super::info::ConnectionStream;
use super::tracking::Conntrack;
use crate::compiled::StreamRule;
use mmb_conn::{ConnId, Connection};
use mmb_stream::{Level, StreamInfo, StreamUsage};
use std::collections::BTreeMap;

/// Totals over a worker's streams. They do not describe one moment, since packets are processed while streams
/// are counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamSummary {
    /// The number of streams and the memory in use, with their limits.
    pub usage: StreamUsage,
    /// The number of followed streams by level; the higher level of both directions counts.
    pub levels: BTreeMap<&'static str, u64>,
    /// The number of followed streams by the state of their connections.
    pub states: BTreeMap<&'static str, u64>,
    /// The number of connections whose packets are all dropped, by the name of the reason.
    pub ended: BTreeMap<&'static str, u64>,
    /// The number of connections that have rules on streams, but pass because they cannot be followed.
    pub unfit: u64,
    /// Bytes that are buffered until the receiver acknowledges them.
    pub kept: u64,
    /// Bytes that arrived out of order and are buffered.
    pub waiting: u64,
    /// Bytes that are held because they may be the beginning of a match or of a message's head.
    pub held: u64,
    /// Edited bytes that wait until the receiver's window has room for them.
    pub unsent: u64,
    /// The numbers of connections that helpers expect.
    pub expected: ExpectedCounts,
}

impl StreamSummary {
    /// Adds the counts of further connections of the worker. `usage` and `expected` are replaced by the newer
    /// values.
    pub fn add(&mut self, other: StreamSummary) {
        (self.usage, self.expected) = (other.usage, other.expected);
        for (sums, counts) in [
            (&mut self.levels, other.levels),
            (&mut self.states, other.states),
            (&mut self.ended, other.ended),
        ] {
            counts.into_iter().for_each(|(name, count)| *sums.entry(name).or_default() += count);
        }
        self.unfit += other.unfit;
        self.kept += other.kept;
        self.waiting += other.waiting;
        self.held += other.held;
        self.unsent += other.unsent;
    }

    fn count(&mut self, state: &'static str, stream: &ConnectionStream) {
        let ConnectionStream { info, ended } = stream;
        if let Some(reason) = ended {
            *self.ended.entry(reason).or_default() += 1;
        }
        let Some(StreamInfo { levels: [forward, reply], buffered, out_of_order, edits, .. }) = info else {
            return;
        };
        *self.levels.entry((*forward).max(*reply).name()).or_default() += 1;
        *self.states.entry(state).or_default() += 1;
        let sum = |counts: [usize; 2]| counts.into_iter().sum::<usize>() as u64;
        self.kept += sum(*buffered);
        self.waiting += sum(*out_of_order);
        self.held += sum(edits.map(|edits| edits.held));
        self.unsent += edits.iter().map(|edits| edits.unsent).sum::<u64>();
    }
}

impl Conntrack {
    /// Counts the streams of the connections in `max` slots from `first`. Also returns where to continue.
    pub(crate) fn count_streams(&self, first: ConnId, max: usize) -> (Option<ConnId>, StreamSummary) {
        let streams = &self.state.streams;
        let mut summary = StreamSummary {
            usage: streams.table.usage(),
            expected: streams.tools.helpers.expectations.counts(),
            ..StreamSummary::default()
        };
        let next =
            self.table.scan(first, max, &mut |_, connection| match self.state.stream_info(connection) {
                Some(stream) => summary.count(connection.state.name(), &stream),
                // The connection had a stream, which its ends have closed or reset.
                None if self.state.has_stream(connection) => {}
                None => summary.unfit += u64::from(self.has_stream_rules(connection)),
            });
        (next, summary)
    }

    fn has_stream_rules(&self, connection: &Connection) -> bool {
        let follows = |stream: &StreamRule| stream.levels_of(connection.proto()) != [Level::None; 2];
        let mut rules = self.state.sets.rules(connection.ids.rule_set);
        !connection.is_expected && rules.any(|rule| rule.stream.as_deref().is_some_and(follows))
    }
}
