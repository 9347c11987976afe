//! Records: what the sinks of the log write, each with its time of day.

use crate::audit::AuditEvent;
use mmb_engine::WatchedEvent;
use std::time::SystemTime;

/// An event with the time at which it happened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    /// When.
    pub(crate) time: SystemTime,
    /// What.
    pub(crate) event: RecordedEvent,
}

/// What a record is about.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum RecordedEvent {
    /// A worker tells of a connection, a stream or a packet.
    Worker(WatchedEvent),
    /// Somebody changed the policy.
    Audit(AuditEvent),
    /// Events that the sink did not get, since a queue was full.
    Lost(u64),
}

/// A kind of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// Connections begin and end.
    Connections,
    /// Rules with `log` tell of packets.
    Log,
    /// Matches in streams and what came of them.
    Streams,
    /// The policy was changed.
    Audit,
}

impl EventKind {
    /// All kinds.
    pub const ALL: [EventKind; 4] =
        [EventKind::Connections, EventKind::Log, EventKind::Streams, EventKind::Audit];

    /// Its name in `--log`.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Connections => "connections",
            EventKind::Log => "log",
            EventKind::Streams => "streams",
            EventKind::Audit => "audit",
        }
    }
}

/// Kinds of events, those that a sink wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventKinds(u8);

impl EventKinds {
    /// All of them.
    pub const ALL: EventKinds = EventKinds(0xff);

    /// These kinds.
    pub fn of(kinds: impl IntoIterator<Item = EventKind>) -> EventKinds {
        EventKinds(kinds.into_iter().fold(0, |bits, kind| bits | 1 << kind as u8))
    }

    /// Whether a kind is among them.
    pub fn contains(self, kind: EventKind) -> bool {
        self.0 >> kind as u8 & 1 == 1
    }
}

impl RecordedEvent {
    /// Its kind; none of a number of lost events, which every sink wants.
    pub(crate) fn kind(&self) -> Option<EventKind> {
        match self {
            RecordedEvent::Worker(WatchedEvent::Connection(_)) => Some(EventKind::Connections),
            RecordedEvent::Worker(WatchedEvent::Stream(_)) => Some(EventKind::Streams),
            RecordedEvent::Worker(WatchedEvent::Packet(_) | WatchedEvent::Suppressed(_)) => {
                Some(EventKind::Log)
            }
            RecordedEvent::Audit(_) => Some(EventKind::Audit),
            RecordedEvent::Lost(_) => None,
        }
    }

    /// Whether a sink for these kinds wants it.
    pub(crate) fn is_wanted(&self, kinds: EventKinds) -> bool {
        self.kind().is_none_or(|kind| kinds.contains(kind))
    }

    /// How many events it stands for.
    pub(crate) fn events(&self) -> u64 {
        match self {
            RecordedEvent::Worker(_) | RecordedEvent::Audit(_) => 1,
            RecordedEvent::Lost(_) => 0,
        }
    }
}
