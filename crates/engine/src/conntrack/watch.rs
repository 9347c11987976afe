//! What watches tell: events of connections, of streams and of packets.

use super::info::ConnectionInfo;
use super::packet_event::{PacketEvent, SuppressedEvent};
use super::stream_event::StreamEvent;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::SyncSender;

/// The creation or the end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionEvent {
    /// When, by the clock of the worker.
    pub at_ns: u64,
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
    /// A rule tells of a packet.
    Packet(PacketEvent),
    /// A rule did not tell of packets.
    Suppressed(SuppressedEvent),
}

impl WatchedEvent {
    /// When it happened, by the clock of its worker.
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
    /// Events lost because its queue was full. The pointer also identifies the watcher.
    pub(crate) lost: Arc<AtomicU64>,
}
