//! Streams as part of connections: opens and ends the stream of a connection, and shows streams in listings
//! and events.

use super::info::{ConnectionStream, Endpoints};
use super::key;
use super::shared::WorkerState;
use super::stream_event::{StreamEvent, StreamEventKind};
use super::stream_header::stream_segment;
use super::stream_ref::StreamRef;
use super::streams::{BegunStream, WantedStream};
use super::watched_events::WatchedEvent;
use crate::compiled::StatefulRule;
use crate::drop::DropReason;
use mmb_conn::{Connection, ExtensionId, Tuple, proto};
use mmb_packet::{Layout, Packet};
use mmb_policy::RuleId;
use mmb_stream::{Predecessor, Segment, StreamInfo};
use std::sync::Arc;

impl WorkerState {
    /// Opens the stream of a connection with these rules, if they need one. `arrived` is the tuple of the
    /// connection's first packet. `predecessor` describes the stream of the connection between the same ends
    /// that the new one replaces.
    ///
    /// # Errors
    /// Memory for the record is exhausted, or the connection must not follow its predecessor.
    pub(super) fn begin_stream<'r>(
        &mut self,
        rules: impl Iterator<Item = &'r Arc<StatefulRule>>,
        arrived: &Tuple,
        (packet, layout): (&Packet<'_>, &Layout),
        predecessor: Predecessor,
    ) -> Result<Option<StreamRef>, DropReason> {
        let Some(wanted) = WantedStream::new(rules, layout.l4_kind) else { return Ok(None) };
        let first = key::segment(packet, layout).map(|segment| stream_segment(&segment, packet, layout));
        self.begin_wanted(&wanted, arrived, (first.as_ref(), predecessor))
    }

    /// Opens the stream of a connection that is restored. The bytes before are unknown.
    ///
    /// # Errors
    /// Memory for the record is exhausted.
    pub(super) fn resume_stream<'r>(
        &mut self,
        rules: impl Iterator<Item = &'r Arc<StatefulRule>>,
        arrived: &Tuple,
    ) -> Result<Option<StreamRef>, DropReason> {
        let Some(wanted) = WantedStream::new(rules, arrived.proto) else { return Ok(None) };
        let first = (arrived.proto == proto::TCP).then(Segment::default);
        self.begin_wanted(&wanted, arrived, (first.as_ref(), Predecessor::default()))
    }

    fn begin_wanted(
        &mut self,
        wanted: &WantedStream,
        arrived: &Tuple,
        first: (Option<&Segment>, Predecessor),
    ) -> Result<Option<StreamRef>, DropReason> {
        match self.streams.begin(wanted, arrived, first, self.now_ms)? {
            BegunStream::Followed(stream) => Ok(Some(stream)),
            BegunStream::Passes(why) => {
                self.cells.count_not_applied(why);
                Ok(None)
            }
        }
    }

    /// Frees an extension of a connection and the stream that it refers to.
    pub(super) fn free_extension(&mut self, id: Option<ExtensionId>) {
        self.stream_of(id).into_iter().for_each(|stream| self.streams.remove(stream));
        self.extensions.free(id);
    }

    /// What a connection that replaces another one must know of the other one's stream.
    pub(super) fn predecessor(&self, extension: Option<ExtensionId>) -> Predecessor {
        self.stream_of(extension).map_or(Predecessor::default(), |stream| self.streams.predecessor(stream))
    }

    /// The stream of a connection with this extension, if it has one.
    #[inline]
    pub(super) fn stream_of(&self, extension: Option<ExtensionId>) -> Option<StreamRef> {
        self.extensions.get(extension?).stream
    }

    /// Whether a connection has a record of a stream. The record remains after the ends have closed or reset
    /// the connection.
    pub(super) fn has_stream(&self, connection: &Connection) -> bool {
        self.stream_of(connection.ids.extension).is_some_and(|stream| self.streams.live(stream).is_some())
    }

    /// The stream of a connection as shown in listings.
    pub(super) fn stream_info(&self, connection: &Connection) -> Option<ConnectionStream> {
        let (info, end) = self.streams.info(self.stream_of(connection.ids.extension)?)?;
        Some(ConnectionStream::new(info, end.map(|end| end.reason)))
    }

    /// When a connection ends, sends the checksums of its stream for the rules that ask for them.
    pub(super) fn send_digests(&mut self, connection: &Connection) {
        if !self.is_watched() {
            return;
        }
        let Some(stream) = self.stream_of(connection.ids.extension) else { return };
        let Some(id) = self.streams.live(stream).filter(|id| self.streams.followed[*id].digests) else {
            return;
        };
        let Some(stream) = self.streams.followed[id].stream else { return };
        let StreamInfo { stats, crc32c, .. } = self.streams.table.info(stream);
        let kind = StreamEventKind::Digest { bytes: stats.map(|side| side.bytes), crc32c };
        let rules: Vec<_> = self.sets.rules(connection.ids.rule_set).map(Arc::clone).collect();
        let asks = |rule: &&Arc<StatefulRule>| rule.stream.as_ref().is_some_and(|stream| stream.digests);
        for rule in rules.iter().filter(asks) {
            self.send_stream_event(connection, Some(rule.id), (false, 0), kind.clone());
        }
    }

    /// Sends an event about the stream of a connection. The bytes are those of the responder if `is_reply`,
    /// and end at `offset`.
    pub(super) fn send_stream_event(
        &mut self,
        connection: &Connection,
        rule: Option<RuleId>,
        (is_reply, offset): (bool, u64),
        kind: StreamEventKind,
    ) {
        if !self.is_watched() {
            return;
        }
        if !self.streams.events.admits(self.now_ms) {
            self.cells.event_lost();
            return;
        }
        let [forward, _] = connection.tuples();
        let arrived = Endpoints::from_tuple(&forward);
        let event = StreamEvent {
            at_ns: self.now_ns,
            kind,
            rule,
            worker: self.worker as u16,
            proto: forward.proto,
            family: forward.family,
            arrived,
            is_reply,
            offset,
        };
        self.send(&WatchedEvent::Stream(event));
    }
}
