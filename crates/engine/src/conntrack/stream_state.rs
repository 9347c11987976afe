//! Streams in the life of connections: they begin and end with them, listings and events show them.

use super::info::{ConnectionStream, Endpoints};
use super::key;
use super::shared::WorkerState;
use super::stream_event::{StreamEvent, StreamEventKind};
use super::stream_header::stream_segment;
use super::stream_ref::StreamRef;
use super::streams::{BegunStream, Wanted};
use super::watch::WatchedEvent;
use crate::compiled::StatefulRule;
use crate::drop::DropReason;
use mmb_conn::{Connection, ExtensionId, Tuple, proto};
use mmb_packet::{Layout, Packet};
use mmb_policy::RuleId;
use mmb_stream::{Predecessor, Segment, StreamInfo};
use std::sync::Arc;

impl WorkerState {
    /// Begins the stream of a connection with these rules, if they want one; `arrived` is the tuple of its first packet. `before` is that of a connection of the same ends, which it replaces.
    ///
    /// # Errors
    /// There is no memory for its record, or it must not follow that.
    pub(super) fn begin_stream<'r>(
        &mut self,
        rules: impl Iterator<Item = &'r Arc<StatefulRule>>,
        arrived: &Tuple,
        (packet, layout): (&Packet<'_>, &Layout),
        before: Predecessor,
    ) -> Result<Option<StreamRef>, DropReason> {
        let Some(wanted) = Wanted::of(rules, layout.l4_kind) else { return Ok(None) };
        let first = key::segment(packet, layout).map(|segment| stream_segment(&segment, packet, layout));
        self.begin_wanted(&wanted, arrived, (first.as_ref(), before))
    }

    /// Begins the stream of a connection that was saved: its bytes so far are not known.
    ///
    /// # Errors
    /// There is no memory for its record.
    pub(super) fn resume_stream<'r>(
        &mut self,
        rules: impl Iterator<Item = &'r Arc<StatefulRule>>,
        arrived: &Tuple,
    ) -> Result<Option<StreamRef>, DropReason> {
        let Some(wanted) = Wanted::of(rules, arrived.proto) else { return Ok(None) };
        let first = (arrived.proto == proto::TCP).then(Segment::default);
        self.begin_wanted(&wanted, arrived, (first.as_ref(), Predecessor::default()))
    }

    fn begin_wanted(
        &mut self,
        wanted: &Wanted,
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

    /// Frees the extension of a connection, and its stream.
    pub(super) fn free_extension(&mut self, id: Option<ExtensionId>) {
        self.stream_of(id).into_iter().for_each(|stream| self.streams.remove(stream));
        self.extensions.free(id);
    }

    /// What a connection that replaces another one has to know of its stream.
    pub(super) fn predecessor(&self, extension: Option<ExtensionId>) -> Predecessor {
        self.stream_of(extension).map_or(Predecessor::default(), |stream| self.streams.predecessor(stream))
    }

    /// The stream of a connection with this extension, if it has one.
    #[inline]
    pub(super) fn stream_of(&self, extension: Option<ExtensionId>) -> Option<StreamRef> {
        self.extensions.get(extension?).stream
    }

    /// Whether a connection has a stream, or had one until its ends closed or reset it.
    pub(super) fn has_stream(&self, connection: &Connection) -> bool {
        self.stream_of(connection.ids.extension).is_some_and(|stream| self.streams.live(stream).is_some())
    }

    /// What is known of the stream of a connection.
    pub(super) fn stream_info(&self, connection: &Connection) -> Option<ConnectionStream> {
        let (info, end) = self.streams.info(self.stream_of(connection.ids.extension)?)?;
        Some(ConnectionStream::new(info, end.map(|end| end.reason)))
    }

    /// Tells the checksums of the streams of a connection that ends, for the rules that ask for them.
    pub(super) fn tell_digests(&mut self, connection: &Connection) {
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
            self.tell_stream(connection, Some(rule.id), (false, 0), kind.clone());
        }
    }

    /// Tells an event of a connection's stream: the bytes are the responder's or not, and end at an offset.
    pub(super) fn tell_stream(
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
        let arrived = Endpoints::of(&forward);
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
