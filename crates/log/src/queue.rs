//! The queue in front of a sink: bounded, so that a sink that does not keep up loses events, which are counted, and delays nobody.

use crate::record::{EventKinds, Record};
use mmb_base::lock;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The most events that wait for a sink: some 20 MB.
pub(crate) const MAX_EVENTS: usize = 1 << 16;

/// Records that are queued together, shared by the sinks that want all of them.
pub(crate) type Batch = Arc<[Record]>;

/// A queue of records for one sink.
#[derive(Debug)]
pub(crate) struct SinkQueue {
    kinds: EventKinds,
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    batches: VecDeque<Batch>,
    /// Records in `batches`.
    records: usize,
    /// Events that were lost, and that the sink does not know of.
    lost: u64,
    /// All events that were lost.
    lost_in_all: u64,
    /// The sink is to open its file again.
    reopens: bool,
    /// No more records come.
    closed: bool,
}

/// What a sink finds in its queue.
#[derive(Debug, PartialEq)]
pub(crate) enum Queued {
    /// These records, and before them the number of events that were lost.
    Records(u64, Batch),
    /// Nothing yet.
    Nothing,
    /// Nothing, and no more will come.
    End,
}

impl SinkQueue {
    pub(crate) fn new(kinds: EventKinds) -> SinkQueue {
        SinkQueue { kinds, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Queues those of the records that the sink wants, if there is room for them.
    pub(crate) fn push(&self, batch: &Batch) {
        let wanted = batch.iter().filter(|record| record.event.is_wanted(self.kinds));
        let batch = match wanted.clone().count() {
            0 => return,
            all if all == batch.len() => Arc::clone(batch),
            _ => wanted.cloned().collect(),
        };
        let mut state = self.state();
        if state.records + batch.len() > MAX_EVENTS {
            state.lose(batch.iter().map(|record| record.event.events()).sum());
            return;
        }
        state.records += batch.len();
        state.batches.push_back(batch);
        drop(state);
        self.changed.notify_one();
    }

    /// Waits for records, at most this long.
    pub(crate) fn next(&self, timeout: Duration) -> Queued {
        let is_empty = |state: &mut QueueState| state.batches.is_empty() && !state.reopens && !state.closed;
        let waited = self.changed.wait_timeout_while(self.state(), timeout, is_empty);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match state.batches.pop_front() {
            Some(batch) => {
                state.records -= batch.len();
                Queued::Records(std::mem::take(&mut state.lost), batch)
            }
            None if state.closed => Queued::End,
            None => Queued::Nothing,
        }
    }

    /// Waits before a sink that failed tries again. Returns false if no more records come.
    pub(crate) fn wait_to_retry(&self, pause: Duration) -> bool {
        let goes_on = |state: &mut QueueState| !state.reopens && !state.closed;
        let waited = self.changed.wait_timeout_while(self.state(), pause, goes_on);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !state.closed
    }

    /// Counts events that the sink gave up.
    pub(crate) fn lose(&self, events: u64) {
        self.state().lose(events);
    }

    /// Asks the sink to open its file again.
    pub(crate) fn reopen(&self) {
        self.state().reopens = true;
        self.changed.notify_one();
    }

    /// Whether the sink is to open its file again; asked once.
    pub(crate) fn take_reopen(&self) -> bool {
        std::mem::take(&mut self.state().reopens)
    }

    /// No more records come.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.changed.notify_one();
    }

    /// Events that wait, and all that were lost.
    pub(crate) fn counts(&self) -> (usize, u64) {
        let state = self.state();
        (state.records, state.lost_in_all)
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        lock(&self.state)
    }
}

impl QueueState {
    fn lose(&mut self, events: u64) {
        self.lost += events;
        self.lost_in_all += events;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{EventKind, RecordedEvent};
    use crate::tests::{audit, packet};
    use std::time::SystemTime;

    fn batch(events: Vec<RecordedEvent>) -> Batch {
        events.into_iter().map(|event| Record { time: SystemTime::UNIX_EPOCH, event }).collect()
    }

    fn next(queue: &SinkQueue) -> Queued {
        queue.next(Duration::ZERO)
    }

    #[test]
    fn a_sink_gets_what_it_wants_in_order() {
        let queue = SinkQueue::new(EventKinds::of([EventKind::Audit]));
        let both = batch(vec![packet(), audit("one"), packet(), audit("two")]);
        queue.push(&batch(vec![packet()]));
        queue.push(&both);
        queue.push(&batch(vec![RecordedEvent::Lost(3), audit("three")]));
        assert_eq!(next(&queue), Queued::Records(0, batch(vec![audit("one"), audit("two")])));
        assert_eq!(next(&queue), Queued::Records(0, batch(vec![RecordedEvent::Lost(3), audit("three")])));
        assert_eq!(next(&queue), Queued::Nothing);
        queue.push(&both);
        queue.close();
        assert!(matches!(next(&queue), Queued::Records(0, _)), "what is queued is written before the end");
        assert_eq!(next(&queue), Queued::End);
    }

    #[test]
    fn a_full_queue_loses_what_comes_and_says_how_much() {
        let queue = SinkQueue::new(EventKinds::ALL);
        let many = batch(vec![packet(); 1000]);
        (0..70).for_each(|_| queue.push(&many));
        // 65 batches fit.
        assert_eq!(queue.counts(), (65_000, 5_000));
        assert!(matches!(next(&queue), Queued::Records(5_000, _)), "told once");
        assert!(matches!(next(&queue), Queued::Records(0, _)));
        assert_eq!(queue.counts(), (63_000, 5_000));
    }

    #[test]
    fn a_file_is_opened_again_once_also_while_nothing_comes() {
        let queue = SinkQueue::new(EventKinds::ALL);
        assert!(!queue.take_reopen());
        queue.reopen();
        assert_eq!(queue.next(Duration::from_secs(60)), Queued::Nothing);
        assert!(queue.wait_to_retry(Duration::from_secs(60)), "nor is a pause waited out");
        assert!(queue.take_reopen() && !queue.take_reopen());
    }
}
