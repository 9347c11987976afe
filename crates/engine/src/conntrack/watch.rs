//! What watches tell: events of connections and of streams.

use super::info::ConnectionInfo;
use super::stream_event::StreamEvent;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::SyncSender;

/// The creation or the end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionEvent {
    /// It was created; otherwise it has ended.
    pub created: bool,
    /// Why it ended.
    pub reason: Option<&'static str>,
    /// Its state at that moment; `id` is meaningless.
    pub info: ConnectionInfo,
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchedEvent {
    /// A connection begins or ends.
    Connection(ConnectionEvent),
    /// Something happened in a stream.
    Stream(StreamEvent),
}

/// A subscriber to events.
pub(crate) struct Watcher {
    pub(crate) events: SyncSender<WatchedEvent>,
    /// Events lost because its queue was full. The pointer also identifies the watcher.
    pub(crate) lost: Arc<AtomicU64>,
}
