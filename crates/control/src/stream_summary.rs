//! The streams of all workers in numbers, as lines of answers describe them.

use mmb_engine::{ExpectedCounts, StreamSummary, StreamUsage};
use mmb_policy::settings::StreamUnfit;
use mmb_protocol::answer::{ExpectedLine, StreamSummaryLine, StreamUsageLine};
use std::collections::BTreeMap;

/// Describes the streams of all workers in numbers. `unfit` is what becomes of connections that cannot be followed.
pub(crate) fn stream_summary_line(workers: &[StreamSummary], unfit: StreamUnfit) -> StreamSummaryLine {
    let mut total = StreamSummary::default();
    workers.iter().for_each(|worker| total.add(worker.clone()));
    let StreamSummary { levels, states, ended, unfit: passing, kept, waiting, held, unsent, .. } = total;
    let usage = workers.iter().zip(0..).map(|(summary, worker)| {
        let StreamUsage { streams, max_streams, memory, max_memory, .. } = summary.usage;
        StreamUsageLine {
            worker,
            streams: streams as u64,
            max: max_streams as u64,
            memory: memory as u64,
            memory_max: max_memory as u64,
        }
    });
    let expected = workers.iter().fold(ExpectedLine::default(), |sum, summary| {
        let ExpectedCounts { now, inserted, used, expired } = summary.expected;
        ExpectedLine {
            now: sum.now + now,
            made: sum.made + inserted,
            used: sum.used + used,
            expired: sum.expired + expired,
        }
    });
    let named = |counts: BTreeMap<&str, u64>| {
        counts.into_iter().map(|(name, count)| (name.to_owned(), count.into())).collect()
    };
    StreamSummaryLine {
        levels: named(levels),
        states: named(states),
        ended: named(ended),
        unfit: passing,
        kept,
        waiting,
        held,
        unsent,
        expected,
        // A worker that was never asked to follow streams has no memory for them.
        workers: usage.filter(|usage| usage.memory_max > 0).collect(),
        warnings: warnings(workers, unfit),
    }
}

/// The limits that are reached.
fn warnings(workers: &[StreamSummary], unfit: StreamUnfit) -> Vec<String> {
    let fate = match unfit {
        StreamUnfit::Pass => "pass without stream rules",
        StreamUnfit::Close => "are closed",
        StreamUnfit::Drop => "are dropped",
    };
    let mut warnings = Vec::new();
    for (StreamSummary { usage, .. }, worker) in workers.iter().zip(0_u16..) {
        let of = if workers.len() > 1 { format!(" of worker {worker}") } else { String::new() };
        if usage.max_memory > 0 && usage.streams >= usage.max_streams {
            warnings.push(format!(
                "`stream max`{of} is reached ({}): new connections {fate} (`stream unfit`)",
                usage.max_streams
            ));
        }
        if usage.is_short {
            warnings.push(format!(
                "less than an eighth of `stream memory`{of} is left: new connections that rules close, drop or edit {fate} (`stream unfit`)"
            ));
        }
    }
    warnings
}
