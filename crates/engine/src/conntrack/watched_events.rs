//! Events for watchers: of connections, streams and packets.

use super::info::ConnectionInfo;
use super::packet_event::{PacketEvent, SuppressedEvent};
use super::stream_event::StreamEvent;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::SyncSender;

/// The creation or the end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionEvent {
    /// The time of the worker's clock.
    pub at_ns: u64,
    /// The connection was created; otherwise it has ended.
    pub created: bool,
    /// The reason for which it ended.
    pub reason: Option<&'static str>,
    /// The state of the connection at that moment; `id` is meaningless.
    pub info: ConnectionInfo,
}

/// An event for watchers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchedEvent {
    /// A connection was created or has ended.
    Connection(ConnectionEvent),
    /// Something happened in a stream.
    Stream(StreamEvent),
    /// A rule has logged a packet.
    Packet(PacketEvent),
    /// A rule has suppressed packets instead of logging them.
    Suppressed(SuppressedEvent),
}

impl WatchedEvent {
    /// The time of the event, by the clock of its worker.
    pub fn at_ns(&self) -> u64 {
        match self {
            WatchedEvent::Connection(event) => event.at_ns,
            WatchedEvent::Stream(event) => event.at_ns,
            WatchedEvent::Packet(event) => event.at_ns,
            WatchedEvent::Suppressed(event) => event.at_ns,
        }
    }
}

/// A subscriber to events.
pub(crate) struct Watcher {
    pub(crate) events: SyncSender<WatchedEvent>,
    /// The number of events lost because the queue was full. The pointer also identifies the watcher.
    pub(crate) lost: Arc<AtomicU64>,
}
