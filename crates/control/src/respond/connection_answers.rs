//! Answers about connections. The daemon is locked only to get the handle on them. The client's thread sends tasks to the workers, for a
//! thousand connections at a time, so that a client that reads slowly delays only itself.

use super::{AnswerResult, Responder};
use crate::history::entry::{Entry, EntryAction};
use crate::memory::MONITOR_BYTES;
use crate::stream_summary::stream_summary_line;
use mmb_engine::{AffectedConnections, ConnectionInfo, Connections, StatefulChange, WatchedEvent};
use mmb_language::Command;
use mmb_log::WorkerClock;
use mmb_log::lines::{connection_line, event_line};
use mmb_policy::{ConnectionFilter, Policy, RuleId};
use mmb_protocol::answer::{AffectedLine, Answer, CountLine, ErrorLine};
use mmb_protocol::request::ConnectionFate;
use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// The interval at which the client of a `monitor` without events is checked.
const CLIENT_CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Events that are written before the client is checked again.
const EVENTS_AT_ONCE: usize = 1_000;

impl Responder<'_> {
    /// Returns the handle on all connections.
    pub(super) fn table(&self) -> Connections {
        self.daemon().engine().connections()
    }

    /// Brings the counters of rules, and of packets that the host forwards by itself, up to date. If a worker does not answer, they lack what it still has.
    pub(super) fn fold_counters(&self) {
        _ = self.table().fold_counters();
    }

    /// Lists connections. Each worker lists those that exist when it runs its task.
    pub(super) fn connections(
        &mut self,
        filter: &ConnectionFilter,
        verbose: bool,
        is_meant: fn(&ConnectionInfo) -> bool,
    ) -> io::Result<AnswerResult> {
        let mut written = Ok(());
        let listed = self.table().list(filter, &mut |info| {
            if !is_meant(&info) {
                return true;
            }
            written = self.send(&Answer::Connection(connection_line(&info, verbose)));
            written.is_ok()
        });
        written.map(|()| listed.map_err(|error| error.to_string()))
    }

    /// Tells the streams in numbers.
    pub(super) fn stream_summary(&mut self) -> io::Result<AnswerResult> {
        match self.table().stream_summary() {
            Ok(workers) => {
                let unfit = self.daemon().policy().settings.streams.unfit;
                self.send(&Answer::StreamSummary(stream_summary_line(&workers, unfit))).map(Ok)
            }
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    /// Tells how many connections a change affects; `fate` is that of the connections of removed rules. That they cannot be counted is no
    /// error, since the change may be in force.
    pub(super) fn affected(
        &mut self,
        change: &StatefulChange,
        fate: ConnectionFate,
        is_dry_run: bool,
    ) -> io::Result<()> {
        match self.table().affected(change) {
            Ok(AffectedConnections { handed_over, kept, lose_rules, lose_accept }) => {
                let stay = AffectedLine { handed_over, kept, ..AffectedLine::default() };
                let line = match fate {
                    ConnectionFate::Release | ConnectionFate::Keep => {
                        AffectedLine { lose_rules, lose_accept, ..stay }
                    }
                    ConnectionFate::Kill if is_dry_run => AffectedLine { ended: lose_rules, ..stay },
                    // They are counted when they end.
                    ConnectionFate::Kill => stay,
                };
                if line == AffectedLine::default() { Ok(()) } else { self.send(&Answer::Affected(line)) }
            }
            Err(error) => {
                let note = format!("the connections that this change affects were not counted: {error}");
                self.send(&Answer::Note(ErrorLine::new(note)))
            }
        }
    }

    /// The note on a change that lowers `conn max` below the number of connections.
    pub(super) fn connections_above(&self, before: &Policy, after: &Policy) -> Option<ErrorLine> {
        let max = after.settings.connections.max;
        let open = self.table().summary().connections;
        let is_above = max < before.settings.connections.max && open > u64::from(max);
        is_above.then(|| {
            ErrorLine::new(format!(
                "{open} connections exist, more than `conn max` {max}: they stay. A new one is accepted only if it can evict a closed or \
                 half-open one; otherwise it is dropped (conn-full) until fewer than {max} exist"
            ))
        })
    }

    /// Ends the connections of the rules that a change in force has removed.
    pub(super) fn kill_removed(&mut self, change: &StatefulChange) -> io::Result<()> {
        match self.table().kill_removed(change) {
            Ok(connections) => self.send(&Answer::Killed(CountLine { connections })),
            Err(error) => {
                let note = format!("the connections of removed rules were not ended: {error}");
                self.send(&Answer::Note(ErrorLine::new(note)))
            }
        }
    }

    /// Ends the connections of rules by their ids. A rule that replaces another one has its id and its connections.
    pub(super) fn kill_rules(&mut self, rules: &BTreeSet<RuleId>) -> io::Result<()> {
        let mut connections = 0;
        for rule in rules {
            match self.table().kill(&ConnectionFilter { rule: Some(*rule), ..ConnectionFilter::ALL }) {
                Ok(ended) => connections += ended,
                Err(error) => {
                    let note = format!("the connections of rule {rule} were not ended: {error}");
                    self.send(&Answer::Note(ErrorLine::new(note)))?;
                }
            }
        }
        self.send(&Answer::Killed(CountLine { connections }))
    }

    /// Ends connections.
    pub(super) fn kill(&mut self, filter: &ConnectionFilter) -> io::Result<AnswerResult> {
        match self.table().kill(filter) {
            Ok(connections) => {
                let command = Command::Kill(*filter).to_string();
                let entry = Entry::new(self.context.author, EntryAction::Kill, command);
                self.daemon().record(Entry { connections: Some(connections), ..entry });
                self.send(&Answer::Killed(CountLine { connections })).map(Ok)
            }
            Err(error) => Ok(Err(error.to_string())),
        }
    }

    /// Writes events of connections until the client sends something or disconnects.
    pub(super) fn monitor(&mut self) -> io::Result<AnswerResult> {
        let mut share = self.context.monitors.share();
        if !share.grow_to(1) {
            return Ok(Err("the limit of clients that run `monitor` is reached; try again".to_owned()));
        }
        let watched = self.watch();
        // The queue of events is freed by now, however the watch ended.
        self.daemon().request_trim();
        watched
    }

    fn watch(&mut self) -> io::Result<AnswerResult> {
        // The whole queue of events is reserved at once.
        if let Err(shortage) = self.daemon().check_memory_now(MONITOR_BYTES) {
            return Ok(Err(shortage.to_string()));
        }
        let events = match self.table().watch() {
            Ok(events) => events,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let (clock, mut names) = (WorkerClock::new(self.daemon().time_origin()), Vec::new());
        // Tells the client that it misses no event from now on.
        self.out.flush()?;
        while !self.others_wait && !self.following.has_arrived() {
            match events.recv_timeout(CLIENT_CHECK_INTERVAL) {
                Ok(event) => self.event(&event, clock, &mut names)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(Err("the workers have stopped".to_owned())),
            }
            for event in events.try_iter().take(EVENTS_AT_ONCE) {
                self.event(&event, clock, &mut names)?;
            }
            names.clear();
            let lost = events.take_lost();
            if lost > 0 {
                self.send(&Answer::Lost(lost))?;
            }
            self.out.flush()?;
        }
        Ok(Ok(()))
    }

    /// Writes an event. `names` are those of the ports, read if they are needed.
    fn event(&mut self, event: &WatchedEvent, clock: WorkerClock, names: &mut Vec<String>) -> io::Result<()> {
        if names.is_empty() && matches!(event, WatchedEvent::Packet(_)) {
            names.extend(self.daemon().engine().ports().0.iter().map(|port| port.name.clone()));
        }
        self.send(&event_line(event, clock, names))
    }
}
