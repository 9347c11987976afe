//! Streams: the bytes of connections that have rules on them.
//!
//! Purpose: [`Streams`] contains a worker's streams. For each stream, the engine adds the states of its
//! searches, and what its rules have found. [`stream_follow`](super::stream_follow) processes packets;
//! [`stream_search`](super::stream_search) decides what matches mean.
//!
//! Life-cycle: if a connection has a rule on streams, the connection's stream is opened with the connection
//! and ends with it. The extension of the connection refers to the stream. Packets of the quick pass are
//! processed here too.
//!
//! After a rule has closed or silenced a connection, its record stays until the connection times out, and all
//! later packets are dropped.

use super::edit_trace::EditTrace;
use super::edited_connections::{EditedConnection, EditedConnections, EditedId};
use super::helper::{HelperId, Helpers};
use super::rule_sets::MAX_RULES;
use super::saved_connection::SavedEnd;
use super::stream_event::StreamEvents;
use super::stream_http::{HttpId, HttpWork};
use super::stream_pools::{Exchanged, RetiredPools};
use super::stream_ref::{FollowedId, StreamRef};
use super::stream_shares::{StreamShares, StreamSource};
use super::stream_sizes::stream_limits;
use crate::compiled::{MAX_REPLACEMENT_BYTES, Snapshot, StatefulRule, StreamPatterns};
use crate::drop::DropReason;
use crate::verdict::VECTOR;
use arrayvec::ArrayVec;
use mmb_base::{Chunks, Id, Slab, id_types, prefetch_all};
use mmb_classify::RuleSlot;
use mmb_conn::{ConnId, Tuple, proto};
use mmb_http::ClientHello;
use mmb_nat::RuleVersion;
use mmb_policy::settings::StreamUnfit;
use mmb_random::Seed;
use mmb_rewrite::NotApplied;
use mmb_scan::{EditScratch, PatternSet, ScanState, Scanner};
use mmb_stream::{
    AckSpace, ChunkPool, FinishedEnds, Level, Predecessor, Segment, StreamId, StreamInfo, StreamTable, Unfit,
};
use std::sync::Arc;

id_types! {
    /// A TLS hello that is being read.
    pub(super) struct HelloId;
    /// For rules with several constraints: the constraints that a connection has met.
    pub(super) struct FoundId;
}

/// How the packets of a connection are treated after a rule, or the lack of a stream, has ended the
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamEnd {
    /// The reason for which its packets are dropped.
    pub(super) reason: DropReason,
    /// The rule that ended the connection.
    pub(super) rule: Option<RuleSlot>,
    /// Packets other than RSTs are answered with a RST.
    pub(super) answers: bool,
    /// Whether the receiver of such a packet gets a RST too.
    pub(super) receiver_reset: ReceiverReset,
}

/// Which packets of an ended connection also cause a RST to their receiver, since the receiver no longer gets
/// the packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiverReset {
    /// None.
    Never,
    /// The next packet. The RSTs have the sequence numbers before and after its payload, because no others
    /// are known.
    Once,
    /// Every packet with payload, until its receiver has been answered itself. The RST has the sequence
    /// number of the packet, because no others are known. By direction: whether the sender has been answered.
    Unknown([bool; 2]),
    /// Every packet with data, SYN or FIN, since the network may lose a RST. By direction: the sequence
    /// number that the receiver expects.
    Each([Option<u32>; 2]),
}

/// The engine's record of a stream.
#[derive(Debug, Default)]
pub(super) struct FollowedStream {
    serial: u32,
    pub(super) stream: Option<StreamId>,
    /// The source for which `stream` is counted.
    source: StreamSource,
    pub(super) phase: StreamPhase,
    pub(super) digests: bool,
    /// Whether the bytes of each direction are searched.
    pub(super) searches: [bool; 2],
    /// Header templates for the packets that mmb generates on an edited stream.
    pub(super) edited: Option<EditedId>,
}

/// How the engine treats the packets of a stream.
#[derive(Debug)]
pub(super) enum StreamPhase {
    /// The engine searches their bytes.
    Searched(SearchState),
    /// The engine drops all of them.
    Ended(StreamEnd),
    /// Both ends have closed. The engine drops packets with data that their receiver does not have.
    Finished(FinishedEnds),
    /// An end has reset the connection, and a direction was guarded. The engine drops all packets.
    Reset(Predecessor),
}

impl Default for StreamPhase {
    fn default() -> Self {
        StreamPhase::Searched(SearchState::default())
    }
}

impl FollowedStream {
    /// How the connection was ended, if all its packets are dropped.
    #[inline]
    pub(super) fn end(&self) -> Option<StreamEnd> {
        match self.phase {
            StreamPhase::Searched(_) | StreamPhase::Finished(_) => None,
            StreamPhase::Ended(end) => Some(end),
            StreamPhase::Reset(_) => Some(StreamEnd {
                reason: DropReason::StreamOutOfWindow,
                rule: None,
                answers: true,
                receiver_reset: ReceiverReset::Never,
            }),
        }
    }

    /// The HTTP messages of the stream, if it has rules on HTTP.
    pub(super) fn http(&self) -> Option<HttpId> {
        match &self.phase {
            StreamPhase::Searched(search) => search.http,
            StreamPhase::Ended(_) | StreamPhase::Finished(_) | StreamPhase::Reset(_) => None,
        }
    }
}

/// The states of the searches of a stream.
#[derive(Debug, Default)]
pub(super) struct SearchState {
    /// The number of the set to which `scans` belong.
    pub(super) set: u32,
    pub(super) scans: [Option<ScanState>; 2],
    /// The offsets at which `scans` started.
    pub(super) scan_starts: [u64; 2],
    pub(super) hello: Option<HelloId>,
    pub(super) found: Option<FoundId>,
    pub(super) http: Option<HttpId>,
    pub(super) helper: Option<HelperId>,
    /// For each direction with edits: the byte before the undecided bytes.
    pub(super) last: [Option<u8>; 2],
}

/// Which constraints of rules with several constraints a connection has met: one bit for each constraint.
pub(super) type FoundConstraints = ArrayVec<(RuleVersion, u16), MAX_RULES>;

/// The streams of a worker.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(super) table: StreamTable,
    pub(super) followed: Slab<FollowedId, FollowedStream, Chunks<FollowedStream, 256>>,
    pub(super) edited: EditedConnections,
    pub(super) tools: SearchTools,
    /// The number of streams of each source.
    shares: StreamShares,
    serials: u32,
    unfit: StreamUnfit,
    /// The worker has adopted pools for a policy with rules on streams.
    pub(super) has_pools: bool,
    /// A pool for payload is offered. It cannot be adopted while streams buffer payload in the old pool.
    awaits_payload: bool,
    pub(super) acks: AckSpace,
    pub(super) events: StreamEvents,
    /// Streams whose connection has closed with a packet of this vector. At most one entry per packet.
    pub(super) closed: Vec<(ConnId, StreamRef)>,
}

/// What all searches share: the set of patterns in force, and working memory.
#[derive(Debug)]
pub(super) struct SearchTools {
    pub(super) scanner: Option<Scanner>,
    pub(super) set: Option<PatternSet>,
    /// Is incremented when the set changes.
    pub(super) set_number: u32,
    /// The scanner and patterns for regexes of server names.
    pub(super) names: Option<(Scanner, PatternSet)>,
    pub(super) hellos: Slab<HelloId, ClientHello, Chunks<ClientHello, 64>>,
    pub(super) found: Slab<FoundId, FoundConstraints, Chunks<FoundConstraints, 64>>,
    pub(super) http: HttpWork,
    pub(super) edit_scratch: EditScratch,
    /// The replacement of the current match.
    pub(super) replaced: Vec<u8>,
    /// The trace of edits, for hosts that explain what edits change.
    pub(super) trace: Option<Box<EditTrace>>,
    pub(super) helpers: Helpers,
}

/// Whether the stream of a new connection is followed.
pub(super) enum BegunStream {
    /// The stream is followed, or all packets of the connection are dropped.
    Followed(StreamRef),
    /// The connection passes without its rules on streams, for this reason.
    Passes(NotApplied),
}

/// Why a new connection gets no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Unfit,
    /// The source of the connection already has its share of streams.
    Share,
}

/// What the rules of a new connection need of its stream.
#[derive(Default)]
pub(super) struct WantedStream {
    levels: [Level; 2],
    searches: [bool; 2],
    digests: bool,
    reads_name: bool,
    reads_http: bool,
    has_helper: bool,
}

impl WantedStream {
    /// What the rules of a connection of this protocol need; `None` if they need no stream.
    pub(super) fn new<'r>(
        rules: impl Iterator<Item = &'r Arc<StatefulRule>>,
        proto: u8,
    ) -> Option<WantedStream> {
        let mut wanted: Option<WantedStream> = None;
        for rule in rules.filter_map(|rule| rule.stream.as_deref()) {
            let levels = rule.levels_of(proto);
            if levels == [Level::None; 2] {
                continue;
            }
            let wanted = wanted.get_or_insert_default();
            for (direction, level) in levels.into_iter().enumerate() {
                wanted.levels[direction] = wanted.levels[direction].max(level);
                wanted.searches[direction] |= rule.searches[direction];
            }
            wanted.digests |= rule.digests;
            wanted.reads_name |= !rule.names.is_empty();
            wanted.reads_http |= rule.is_http;
            wanted.has_helper |= rule.helper.is_some();
        }
        wanted
    }
}

impl Streams {
    pub(super) fn new(seed: Seed) -> Streams {
        Streams {
            table: StreamTable::default(),
            followed: Slab::default(),
            edited: EditedConnections::default(),
            tools: SearchTools::new(seed),
            shares: StreamShares::new(),
            serials: 0,
            unfit: StreamUnfit::default(),
            has_pools: false,
            awaits_payload: false,
            acks: AckSpace::default(),
            events: StreamEvents::default(),
            closed: Vec::with_capacity(VECTOR),
        }
    }

    /// Applies the settings and patterns of a policy, whose limits `workers` workers share. Adopts the memory
    /// for them from `exchanged`, and retires there the memory that is no longer used.
    pub(super) fn configure(&mut self, snapshot: &Snapshot, workers: usize, exchanged: &mut Exchanged) {
        let settings = &snapshot.stream_settings;
        self.unfit = settings.unfit;
        self.awaits_payload = false;
        if snapshot.stream_rules == 0 {
            if self.has_pools && self.followed.is_empty() {
                self.retire_pools(&mut exchanged.retired);
            }
            self.tools.set = None;
            self.tools.http.configure(None, snapshot.generation, exchanged);
            return;
        }
        self.has_pools = true;
        self.table.set_limits(stream_limits(settings, workers));
        self.shares.configure(settings.per_source, workers);
        self.adopt_payload(exchanged);
        let is_prepared = self.tools.configure(&snapshot.streams, snapshot.generation, exchanged);
        if !is_prepared {
            self.close_old_scans(snapshot.generation, exchanged);
        }
    }

    /// Retires the pools, after the last stream has ended under a policy without rules on streams.
    fn retire_pools(&mut self, retired: &mut RetiredPools) {
        if let Ok(payload) = self.table.adopt(ChunkPool::default()) {
            retired.payload(payload);
        }
        retired.table = std::mem::take(&mut self.table);
        self.table.set_ack_space(self.acks);
        let names = self.tools.names.take().map(|(scanner, _)| scanner);
        self.tools.scanner.take().into_iter().chain(names).for_each(|scanner| retired.scanner(scanner));
        self.has_pools = false;
    }

    /// Adopts the offered pool for payload, unless streams buffer payload in the old pool.
    pub(super) fn adopt_payload(&mut self, Exchanged { offer, retired }: &mut Exchanged) {
        self.awaits_payload = false;
        let Some(offered) = offer.payload.take() else { return };
        match self.table.adopt(offered) {
            Ok(previous) => retired.payload(previous),
            Err(offered) => {
                offer.payload = Some(offered);
                self.awaits_payload = true;
            }
        }
    }

    /// Whether a pool for payload is offered and no stream buffers payload in the old pool.
    #[inline]
    pub(super) fn can_adopt_payload(&self) -> bool {
        self.awaits_payload && self.table.payload_memory() == 0
    }

    /// The highest number of simultaneous streams so far, and the used bytes of the pools.
    pub(super) fn taken(&self) -> [u64; 2] {
        let states = self.tools.scanner.as_ref().map_or(0, Scanner::touched) + self.tools.http.touched();
        [u64::from(self.table.peak_streams()), self.table.payload_pool().touched() + states]
    }

    /// Drops all open searches, which use earlier sets of patterns, and adopts the set in force.
    fn close_old_scans(&mut self, generation: u64, exchanged: &mut Exchanged) {
        for number in 1..=self.followed.highest() {
            if let Some(id) = FollowedId::new(number).filter(|id| self.followed.get(*id).is_some())
                && let StreamPhase::Searched(search) = &mut self.followed[id].phase
            {
                search.scans = [None, None];
            }
        }
        self.tools.adopt_set(generation, exchanged);
    }

    /// Opens the stream of a new connection. `arrived` is the tuple of its first packet, `first` the TCP
    /// segment of that packet. `predecessor` describes the stream of the connection between the same ends
    /// that the new one replaces.
    pub(super) fn begin(
        &mut self,
        wanted: &WantedStream,
        arrived: &Tuple,
        (first, predecessor): (Option<&Segment>, Predecessor),
        now_ms: u64,
    ) -> Result<BegunStream, DropReason> {
        if predecessor.has_unanswered_data && wanted.levels.iter().any(|level| *level >= Level::Guard) {
            return Err(DropReason::StreamOutOfWindow);
        }
        self.followed.try_reserve().map_err(|_| DropReason::ConnNoMemory)?;
        self.edited.try_reserve().map_err(|_| DropReason::ConnNoMemory)?;
        if wanted.has_helper {
            self.tools.helpers.reserve().map_err(|_| DropReason::ConnNoMemory)?;
        }
        if wanted.reads_http {
            self.tools.http.reserve().map_err(|_| DropReason::ConnNoMemory)?;
        }
        let source = self.shares.source(arrived);
        let mut end = None;
        let stream = match self.open(wanted, source, first, now_ms) {
            Ok(stream) => {
                self.table.set_predecessor(stream, predecessor);
                self.shares.begin(source);
                Some(stream)
            }
            Err(refused) => {
                let (passes, reason) = match refused {
                    Refused::Unfit => (NotApplied::StreamUnfit, DropReason::StreamUnfit),
                    Refused::Share => (NotApplied::StreamPerSource, DropReason::StreamPerSource),
                };
                let answers = match self.unfit {
                    StreamUnfit::Pass => return Ok(BegunStream::Passes(passes)),
                    StreamUnfit::Close => true,
                    StreamUnfit::Drop => false,
                };
                end = Some(StreamEnd {
                    reason,
                    rule: None,
                    answers,
                    receiver_reset: if answers { ReceiverReset::Once } else { ReceiverReset::Never },
                });
                None
            }
        };
        let is_edited = stream.is_some_and(|stream| self.table.is_edited(stream));
        let edited = is_edited.then(|| self.edited.insert(EditedConnection::default()));
        let mut search = SearchState::default();
        if wanted.reads_name && stream.is_some() && self.tools.hellos.try_reserve().is_ok() {
            search.hello = Some(self.tools.hellos.insert(ClientHello::default()));
        }
        if wanted.reads_http && stream.is_some() {
            search.http = Some(self.tools.http.open());
        }
        if wanted.has_helper && stream.is_some() {
            search.helper = Some(self.tools.helpers.begin());
        }
        self.serials = self.serials.wrapping_add(1);
        let (serial, digests, searches) = (self.serials, wanted.digests, wanted.searches);
        let phase = end.map_or(StreamPhase::Searched(search), StreamPhase::Ended);
        let id =
            self.followed.insert(FollowedStream { serial, stream, source, phase, digests, searches, edited });
        stream.into_iter().for_each(|stream| self.table.set_owner(stream, id.number()));
        Ok(BegunStream::Followed(StreamRef { id, serial, is_edited }))
    }

    /// The record of a stream; `None` if the record has been removed.
    #[inline]
    pub(super) fn live(&self, StreamRef { id, serial, .. }: StreamRef) -> Option<FollowedId> {
        self.followed.get(id).filter(|followed| followed.serial == serial).map(|_| id)
    }

    /// The stream in the table of streams; `None` if it has ended.
    pub(super) fn stream_id(&self, stream: StreamRef) -> Option<StreamId> {
        self.followed[self.live(stream)?].stream
    }

    /// Whether both ends count the same sequence numbers, so that tracking may use numbers as they arrive.
    pub(super) fn is_unshifted(&self, stream: StreamRef) -> bool {
        let stream = if stream.is_edited { self.stream_id(stream) } else { None };
        stream.is_none_or(|stream| self.table.is_unshifted(stream))
    }

    /// What a stream adds to the sequence numbers of each direction, for a connection that is saved.
    ///
    /// # Errors
    /// The connection must not continue elsewhere: what is added is not a constant, a message leaves in
    /// another framing than it arrived, or the connection was ended. Returns how its packets are to be
    /// treated.
    pub(super) fn shifts(&self, stream: StreamRef, proto: u8) -> Result<[u32; 2], SavedEnd> {
        let Some(id) = self.live(stream) else { return Ok([0; 2]) };
        let followed = &self.followed[id];
        if let Some(end) = followed.end() {
            return Err(if end.answers { SavedEnd::Answered } else { SavedEnd::Silent });
        }
        if followed.http().is_some_and(|http| self.tools.http.has_own_framing(http)) {
            return Err(SavedEnd::Answered);
        }
        match followed.stream {
            Some(stream) if proto == proto::TCP => {
                self.table.constant_shifts(stream).ok_or(SavedEnd::Answered)
            }
            _ => Ok([0; 2]),
        }
    }

    /// Whether a rule has ended a connection.
    pub(super) fn is_ended_by_rule(&self, stream: StreamRef) -> bool {
        let end = self.live(stream).and_then(|id| self.followed[id].end());
        end.is_some_and(|end| end.rule.is_some())
    }

    /// Creates the record of a restored connection that must not continue.
    pub(super) fn begin_ended(&mut self, saved_end: SavedEnd) -> Result<StreamRef, DropReason> {
        self.followed.try_reserve().map_err(|_| DropReason::ConnNoMemory)?;
        self.serials = self.serials.wrapping_add(1);
        let (serial, answers) = (self.serials, saved_end == SavedEnd::Answered);
        let receiver_reset = if answers { ReceiverReset::Unknown([false; 2]) } else { ReceiverReset::Never };
        let end = StreamEnd { reason: DropReason::StreamLost, rule: None, answers, receiver_reset };
        let followed = FollowedStream { serial, phase: StreamPhase::Ended(end), ..FollowedStream::default() };
        Ok(StreamRef { id: self.followed.insert(followed), serial, is_edited: false })
    }

    /// Prefetches the record of a stream.
    #[inline]
    pub(super) fn prefetch(&self, stream: StreamRef) {
        self.followed.get(stream.id).into_iter().for_each(prefetch_all);
    }

    /// Prefetches the entry in the table of streams to which the record of a stream refers.
    #[inline]
    pub(super) fn prefetch_records(&self, stream: StreamRef) {
        let followed = self.followed.get(stream.id).and_then(|followed| followed.stream);
        followed.into_iter().for_each(|stream| self.table.prefetch(stream));
    }

    /// Prefetches what edits need of a stream, and the header template of a direction.
    #[inline]
    pub(super) fn prefetch_edit(&self, stream: StreamRef, direction: usize) {
        let Some(followed) = self.followed.get(stream.id) else { return };
        followed.stream.into_iter().for_each(|stream| self.table.prefetch_edit(stream));
        let edited = followed.edited.and_then(|edited| self.edited.get(edited));
        edited.into_iter().for_each(|edited| prefetch_all(&edited.headers[direction]));
    }

    /// Frees the stream of a record and keeps the record. All later packets are dropped.
    pub(super) fn stop(&mut self, id: FollowedId, end: StreamEnd) {
        self.release(id);
        self.followed[id].phase = StreamPhase::Ended(end);
    }

    /// Frees a stream whose directions have both ended. The record keeps only where they ended.
    pub(super) fn finish(&mut self, id: FollowedId, ends: FinishedEnds) {
        self.release(id);
        self.followed[id].phase = StreamPhase::Finished(ends);
    }

    /// Frees the stream of a connection that an end has reset. If a direction was guarded, all later packets
    /// are dropped.
    pub(super) fn reset(&mut self, id: FollowedId, stream: StreamId) {
        let levels = self.table.levels(stream);
        let predecessor = self.table.predecessor(stream);
        self.release(id);
        self.followed[id].phase = match levels.iter().any(|level| *level >= Level::Guard) {
            true => StreamPhase::Reset(predecessor),
            false => StreamPhase::Finished(FinishedEnds::default()),
        };
    }

    /// What a new stream between the same ends must know of this stream.
    pub(super) fn predecessor(&self, stream: StreamRef) -> Predecessor {
        let Some(id) = self.live(stream) else { return Predecessor::default() };
        match (self.followed[id].stream, &self.followed[id].phase) {
            (Some(stream), _) => self.table.predecessor(stream),
            (None, StreamPhase::Reset(predecessor)) => *predecessor,
            (None, _) => Predecessor::default(),
        }
    }

    /// Opens a stream for a source. If all places are taken, replaces a half-open stream. If the source has
    /// its share, replaces a half-open stream of the same source.
    fn open(
        &mut self,
        wanted: &WantedStream,
        source: StreamSource,
        first: Option<&Segment>,
        now_ms: u64,
    ) -> Result<StreamId, Refused> {
        let places = self.table.max_streams();
        let free = places.saturating_sub(self.table.len());
        if !self.shares.admits(source, (places, free)).map_err(|_| Refused::Unfit)? {
            let is_replaced = self.replace_half_open(now_ms, DropReason::StreamPerSource, Some(source));
            // The memory for the count was reserved when the other streams of the source were opened.
            if !is_replaced || self.shares.admits(source, (places, free + 1)) != Ok(true) {
                return Err(Refused::Share);
            }
        }
        let unfit = |_: Unfit| Refused::Unfit;
        let opened = self.table.open(wanted.levels, wanted.digests, first, now_ms);
        if opened != Err(Unfit::NoRoom) {
            return opened.map_err(unfit);
        }
        if free > 0 || !self.replace_half_open(now_ms, DropReason::StreamNoRoom, None) {
            return opened.map_err(unfit);
        }
        self.table.open(wanted.levels, wanted.digests, first, now_ms).map_err(unfit)
    }

    /// Ends a stream whose SYN has no answer yet, of `source` or of any source. Returns false if none was
    /// found.
    fn replace_half_open(&mut self, now_ms: u64, reason: DropReason, source: Option<StreamSource>) -> bool {
        let followed = &self.followed;
        let is_eligible = |owner| match (FollowedId::new(owner), source) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(id), Some(source)) => followed[id].source == source,
        };
        let Some(victim) = self.table.half_open(now_ms, is_eligible) else { return false };
        let Some(id) = FollowedId::new(self.table.owner(victim)) else { return false };
        self.stop(id, StreamEnd { reason, rule: None, answers: true, receiver_reset: ReceiverReset::Never });
        true
    }

    /// Frees what a record refers to.
    fn release(&mut self, id: FollowedId) {
        let followed = &mut self.followed[id];
        if followed.stream.is_some() {
            self.shares.end(followed.source);
        }
        let (stream, phase) = (followed.stream.take(), std::mem::take(&mut followed.phase));
        followed.edited.take().into_iter().for_each(|edited| self.edited.free(edited));
        stream.into_iter().for_each(|stream| self.table.end(stream));
        if let StreamPhase::Searched(search) = phase {
            self.tools.close(search);
        }
    }

    /// Removes the record of a connection that has ended, and frees its stream.
    pub(super) fn remove(&mut self, stream: StreamRef) {
        if let Some(id) = self.live(stream) {
            self.release(id);
            self.followed.remove(id);
        }
    }

    /// The state of a stream, or how it was ended. `None` if the ends of the connection have closed or reset
    /// it.
    pub(super) fn info(&self, stream: StreamRef) -> Option<(Option<StreamInfo>, Option<StreamEnd>)> {
        let FollowedStream { stream, phase, .. } = &self.followed[self.live(stream)?];
        match phase {
            StreamPhase::Ended(end) => Some((None, Some(*end))),
            StreamPhase::Searched(_) => Some((stream.map(|stream| self.table.info(stream)), None)),
            StreamPhase::Finished(_) | StreamPhase::Reset(_) => None,
        }
    }
}

impl SearchTools {
    fn new(seed: Seed) -> SearchTools {
        SearchTools {
            scanner: None,
            set: None,
            set_number: 0,
            names: None,
            hellos: Slab::default(),
            found: Slab::default(),
            http: HttpWork::default(),
            edit_scratch: EditScratch::default(),
            replaced: Vec::with_capacity(MAX_REPLACEMENT_BYTES),
            trace: None,
            helpers: Helpers::new(seed),
        }
    }

    /// Adopts the sets and scanners for the patterns of a policy. Returns false if the set in force could not
    /// be adopted, because earlier sets still have open states.
    fn configure(&mut self, patterns: &StreamPatterns, generation: u64, exchanged: &mut Exchanged) -> bool {
        let digest = |set: &PatternSet| set.digest();
        let Exchanged { offer, retired } = &mut *exchanged;
        let scanner = offer.bytes.take_larger(self.scanner.as_ref(), retired);
        let is_new = scanner.is_some();
        if let Some(scanner) = scanner {
            self.scanner.replace(scanner).into_iter().for_each(|previous| retired.scanner(previous));
        }
        if is_new || self.set.as_ref().map(digest) != patterns.bytes.as_ref().map(digest) {
            self.set.clone_from(&patterns.bytes);
            self.set_number = self.set_number.wrapping_add(1);
        }
        if let Some(scratch) = offer.edit_scratch.take() {
            let unused = match scratch.memory() > self.edit_scratch.memory() {
                true => std::mem::replace(&mut self.edit_scratch, scratch),
                false => scratch,
            };
            retired.scratch(unused);
        }
        let names = offer.take_names(generation, patterns.names.as_ref(), retired);
        if names.is_some() || patterns.names.is_none() {
            let previous = std::mem::replace(&mut self.names, names);
            previous.into_iter().for_each(|(scanner, _)| retired.scanner(scanner));
        }
        self.http.configure(patterns.http.as_ref(), generation, exchanged);
        self.adopt_set(generation, exchanged)
    }

    /// Adopts the offered set that is in force, and releases earlier sets that no stream uses. Returns false
    /// if the scanner lacks the set in force.
    fn adopt_set(&mut self, generation: u64, Exchanged { offer, retired }: &mut Exchanged) -> bool {
        let (Some(scanner), Some(set)) = (&mut self.scanner, &mut self.set) else {
            offer.bytes.take_sets(generation, retired, Some);
            return true;
        };
        let digest = set.digest();
        scanner.release_unless(|other| other.digest() == digest, |released| retired.set(released));
        if scanner.sets().all(|known| known.digest() != digest) && scanner.is_full() {
            return false;
        }
        offer.bytes.take_sets(generation, retired, |prepared| {
            // The scanner may already have an equal set.
            let is_lacking = scanner.sets().all(|known| known.digest() != digest);
            match is_lacking && prepared.set().digest() == digest {
                true => scanner.adopt(prepared).err(),
                false => Some(prepared),
            }
        });
        match scanner.sets().find(|known| known.digest() == digest) {
            Some(known) => {
                *set = known.clone();
                true
            }
            None => false,
        }
    }

    /// Frees the memory of the searches of a stream.
    fn close(&mut self, search: SearchState) {
        if let Some(scanner) = &mut self.scanner {
            search.scans.into_iter().flatten().for_each(|scan| scanner.close(scan));
        }
        if let Some(hello) = search.hello {
            self.hellos.free(hello);
        }
        search.http.into_iter().for_each(|http| self.http.close(http));
        search.helper.into_iter().for_each(|helper| self.helpers.end(helper));
        if let Some(found) = search.found {
            self.found[found].clear();
            self.found.free(found);
        }
    }
}
