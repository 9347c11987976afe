//! Streams: the bytes of connections that have rules on them.
//!
//! Purpose: [`Streams`] has a worker's streams, and for each what the engine adds to it: the states of its searches, and what its rules have
//! found. [`stream_follow`](super::stream_follow) takes the packets; [`stream_search`](super::stream_search) decides what matches mean.
//!
//! Life-cycle: a stream begins with the connection, if one of its rules is on streams, and ends with it. A connection refers to it by its
//! extension. Packets that take the quick pass come here too.
//!
//! Once a rule has closed or silenced a connection, the record stays until the connection times out: all later packets are dropped.

use super::edited::{EditedConnection, EditedConnections, EditedId};
use super::helper::{HelperId, Helpers};
use super::rule_sets::MOST_RULES;
use super::saved::SavedEnd;
use super::stream_event::StreamEvents;
use super::stream_http::{HttpId, HttpWork};
use super::stream_pools::{Exchanged, RetiredPools};
use super::stream_ref::{FollowedId, StreamRef};
use super::stream_shares::{StreamShares, StreamSource};
use super::stream_sizes::stream_limits;
use super::stream_trace::EditTrace;
use crate::compiled::{MOST_REPLACED, Snapshot, StatefulRule, StreamPatterns};
use crate::drop::DropReason;
use crate::verdict::VECTOR;
use arrayvec::ArrayVec;
use mmb_base::{Chunks, Id, Slab, id_types, prefetch_all};
use mmb_classify::RuleSlot;
use mmb_conn::nat::RuleVersion;
use mmb_conn::{ConnId, Tuple, proto};
use mmb_http::ClientHello;
use mmb_policy::settings::StreamUnfit;
use mmb_random::Seed;
use mmb_rewrite::NotApplied;
use mmb_scan::{EditScratch, PatternSet, ScanState, Scanner};
use mmb_stream::{
    AckSpace, ChunkPool, FinishedEnds, Level, Predecessor, Segment, StreamId, StreamInfo, StreamTable, Unfit,
};
use std::sync::Arc;

id_types! {
    /// A hello of TLS that is being read.
    pub(super) struct HelloId;
    /// The constraints that a connection has met of rules with several.
    pub(super) struct FoundId;
}

/// How a rule, or the lack of a stream, has ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamEnd {
    /// Why its packets are dropped.
    pub(super) reason: DropReason,
    /// The rule that ended it.
    pub(super) by: Option<RuleSlot>,
    /// Packets are answered with a RST.
    pub(super) answers: bool,
    /// How the receiver of such a packet is told.
    pub(super) tells: ReceiverReset,
}

/// Whether the end that no longer gets packets of a connection gets a RST for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReceiverReset {
    /// It does not.
    Never,
    /// For the next packet, with its number: no other is known.
    Once,
    /// It does not: no numbers are known. Tells which ends have had an answer to a packet of theirs.
    Unknown([bool; 2]),
    /// For each packet with data, SYN or FIN, since the network may lose a RST: the number that the receiver expects, a direction.
    Each([Option<u32>; 2]),
}

/// A stream as the engine follows it.
#[derive(Debug, Default)]
pub(super) struct FollowedStream {
    serial: u32,
    pub(super) stream: Option<StreamId>,
    /// The source that `stream` is counted for.
    source: StreamSource,
    pub(super) phase: StreamPhase,
    pub(super) digests: bool,
    /// Whether the bytes of each direction are searched.
    pub(super) searches: [bool; 2],
    /// What made packets need, of a stream with edits.
    pub(super) edited: Option<EditedId>,
}

/// What the engine does with the packets of a stream.
#[derive(Debug)]
pub(super) enum StreamPhase {
    /// It searches them.
    Searched(SearchState),
    /// It drops them.
    Ended(StreamEnd),
    /// Both ends have closed. It drops those that bring what their receiver cannot have.
    Finished(FinishedEnds),
    /// An end has reset the connection, of which a direction was guarded. It drops what else comes.
    Reset(Predecessor),
}

impl Default for StreamPhase {
    fn default() -> Self {
        StreamPhase::Searched(SearchState::default())
    }
}

impl FollowedStream {
    /// How it has ended.
    #[inline]
    pub(super) fn end(&self) -> Option<StreamEnd> {
        match self.phase {
            StreamPhase::Searched(_) | StreamPhase::Finished(_) => None,
            StreamPhase::Ended(end) => Some(end),
            StreamPhase::Reset(_) => Some(StreamEnd {
                reason: DropReason::StreamOutOfWindow,
                by: None,
                answers: true,
                tells: ReceiverReset::Never,
            }),
        }
    }

    /// Its messages, if it has rules on HTTP.
    pub(super) fn http(&self) -> Option<HttpId> {
        match &self.phase {
            StreamPhase::Searched(search) => search.http,
            StreamPhase::Ended(_) | StreamPhase::Finished(_) | StreamPhase::Reset(_) => None,
        }
    }
}

/// Where the searches of a stream are.
#[derive(Debug, Default)]
pub(super) struct SearchState {
    /// The set that `scans` are of, by its number.
    pub(super) set: u32,
    pub(super) scans: [Option<ScanState>; 2],
    /// The offsets at which they began.
    pub(super) begun: [u64; 2],
    pub(super) hello: Option<HelloId>,
    pub(super) found: Option<FoundId>,
    pub(super) http: Option<HttpId>,
    pub(super) helper: Option<HelperId>,
    /// The byte before those that are undecided, of each direction with edits.
    pub(super) last: [Option<u8>; 2],
}

/// Which constraints of rules with several constraints a connection has met: one bit each.
pub(super) type FoundConstraints = ArrayVec<(RuleVersion, u16), MOST_RULES>;

/// The streams of a worker.
#[derive(Debug)]
pub(crate) struct Streams {
    pub(super) table: StreamTable,
    pub(super) followed: Slab<FollowedId, FollowedStream, Chunks<FollowedStream, 256>>,
    pub(super) edited: EditedConnections,
    pub(super) tools: SearchTools,
    /// The streams of each source.
    shares: StreamShares,
    serials: u32,
    unfit: StreamUnfit,
    /// The worker has adopted pools for a policy with rules on streams.
    pub(super) has_pools: bool,
    /// A pool for payload is offered. It cannot be adopted while streams keep payload in the old pool.
    awaits_payload: bool,
    pub(super) acks: AckSpace,
    pub(super) events: StreamEvents,
    /// Streams whose connection has closed with a packet of this vector: at most one each.
    pub(super) closed: Vec<(ConnId, StreamRef)>,
}

/// What searches use: one set of patterns, and the memory of all searches.
#[derive(Debug)]
pub(super) struct SearchTools {
    pub(super) scanner: Option<Scanner>,
    pub(super) set: Option<PatternSet>,
    /// Grows when the set changes.
    pub(super) set_number: u32,
    /// For regexes of server names.
    pub(super) names: Option<(Scanner, PatternSet)>,
    pub(super) hellos: Slab<HelloId, ClientHello, Chunks<ClientHello, 64>>,
    pub(super) found: Slab<FoundId, FoundConstraints, Chunks<FoundConstraints, 64>>,
    pub(super) http: HttpWork,
    pub(super) edit_scratch: EditScratch,
    /// What stands in the place of a match.
    pub(super) replaced: Vec<u8>,
    /// For hosts that explain what edits do.
    pub(super) trace: Option<Box<EditTrace>>,
    pub(super) helpers: Helpers,
}

/// Whether the bytes of a new connection are followed.
pub(super) enum BegunStream {
    /// The stream is followed, or the packets of the connection are dropped.
    Followed(StreamRef),
    /// The connection passes without its rules on bytes, for this reason.
    Passes(NotApplied),
}

/// Why a new connection gets no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Unfit,
    /// The source of the connection has its share of streams already.
    Share,
}

/// What the rules of a new connection ask of its stream.
#[derive(Default)]
pub(super) struct Wanted {
    levels: [Level; 2],
    searches: [bool; 2],
    digests: bool,
    reads_name: bool,
    reads_http: bool,
    has_helper: bool,
}

impl Wanted {
    /// What the rules of a connection of this protocol ask; `None` if nothing.
    pub(super) fn of<'r>(rules: impl Iterator<Item = &'r Arc<StatefulRule>>, proto: u8) -> Option<Wanted> {
        let mut wanted: Option<Wanted> = None;
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

    /// Applies the settings and patterns of a policy, whose limits `workers` workers share. Adopts the memory for them
    /// from `exchanged`, and retires the memory that is no longer used into it.
    pub(super) fn configure(&mut self, snapshot: &Snapshot, workers: usize, exchanged: &mut Exchanged) {
        let settings = &snapshot.stream_settings;
        self.unfit = settings.unfit;
        self.awaits_payload = false;
        if snapshot.stream_rules == 0 {
            if self.has_pools && self.followed.is_empty() {
                self.give_up(&mut exchanged.retired);
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

    /// Retires the pools. The policy has no rules on streams, and no stream exists.
    fn give_up(&mut self, retired: &mut RetiredPools) {
        if let Ok(payload) = self.table.adopt(ChunkPool::default()) {
            retired.payload(payload);
        }
        retired.table = std::mem::take(&mut self.table);
        self.table.set_ack_space(self.acks);
        let names = self.tools.names.take().map(|(scanner, _)| scanner);
        self.tools.scanner.take().into_iter().chain(names).for_each(|scanner| retired.scanner(scanner));
        self.has_pools = false;
    }

    /// Adopts the offered pool for payload, unless streams keep payload in the old pool.
    pub(super) fn adopt_payload(&mut self, Exchanged { offer, retired }: &mut Exchanged) {
        self.awaits_payload = false;
        let Some(offered) = offer.payload.take() else { return };
        match self.table.adopt(offered) {
            Ok(before) => retired.payload(before),
            Err(offered) => {
                offer.payload = Some(offered);
                self.awaits_payload = true;
            }
        }
    }

    /// Whether a pool for payload is offered and can be adopted now.
    #[inline]
    pub(super) fn can_adopt_payload(&self) -> bool {
        self.awaits_payload && self.table.payload_memory() == 0
    }

    /// The highest number of simultaneous streams, and the used bytes of the pools.
    pub(super) fn taken(&self) -> [u64; 2] {
        let states = self.tools.scanner.as_ref().map_or(0, Scanner::touched) + self.tools.http.touched();
        [u64::from(self.table.most_at_once()), self.table.payload_pool().touched() + states]
    }

    /// Gives up the searches with sets that are not in force any more, for the memory of a new one.
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

    /// Begins the stream of a new connection, whose first packet has the tuple `arrived`.
    pub(super) fn begin(
        &mut self,
        wanted: &Wanted,
        arrived: &Tuple,
        (first, before): (Option<&Segment>, Predecessor),
        now_ms: u64,
    ) -> Result<BegunStream, DropReason> {
        if before.has_unanswered_data && wanted.levels.iter().any(|level| *level >= Level::Guard) {
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
                self.table.succeed(stream, before);
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
                    by: None,
                    answers,
                    tells: if answers { ReceiverReset::Once } else { ReceiverReset::Never },
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

    /// The record of a stream that has not ended.
    #[inline]
    pub(super) fn live(&self, StreamRef { id, serial, .. }: StreamRef) -> Option<FollowedId> {
        self.followed.get(id).filter(|followed| followed.serial == serial).map(|_| id)
    }

    /// The stream of bytes of a connection, if it has not ended.
    pub(super) fn edited(&self, stream: StreamRef) -> Option<StreamId> {
        self.followed[self.live(stream)?].stream
    }

    /// Whether tracking sees the numbers that both ends have.
    pub(super) fn is_unshifted(&self, stream: StreamRef) -> bool {
        let stream = if stream.is_edited { self.edited(stream) } else { None };
        stream.is_none_or(|stream| self.table.is_unshifted(stream))
    }

    /// What a stream adds to the numbers of each direction of a connection.
    ///
    /// # Errors
    /// That is no constant, or a rule has ended the connection: how it must not go on elsewhere.
    pub(super) fn shifts(&self, stream: StreamRef, proto: u8) -> Result<[u32; 2], SavedEnd> {
        let Some(id) = self.live(stream) else { return Ok([0; 2]) };
        let followed = &self.followed[id];
        if let Some(end) = followed.end() {
            return Err(if end.answers { SavedEnd::Answered } else { SavedEnd::Silent });
        }
        if followed.http().is_some_and(|http| self.tools.http.is_within_message(http)) {
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
        end.is_some_and(|end| end.by.is_some())
    }

    /// Begins the record of a connection that must not go on.
    pub(super) fn begin_over(&mut self, over: SavedEnd) -> Result<StreamRef, DropReason> {
        self.followed.try_reserve().map_err(|_| DropReason::ConnNoMemory)?;
        self.serials = self.serials.wrapping_add(1);
        let (serial, answers) = (self.serials, over == SavedEnd::Answered);
        let tells = if answers { ReceiverReset::Unknown([false; 2]) } else { ReceiverReset::Never };
        let end = StreamEnd { reason: DropReason::StreamLost, by: None, answers, tells };
        let followed = FollowedStream { serial, phase: StreamPhase::Ended(end), ..FollowedStream::default() };
        Ok(StreamRef { id: self.followed.insert(followed), serial, is_edited: false })
    }

    /// Prefetches the record of a stream.
    #[inline]
    pub(super) fn prefetch(&self, stream: StreamRef) {
        self.followed.get(stream.id).into_iter().for_each(prefetch_all);
    }

    /// Prefetches what the record of a stream refers to.
    #[inline]
    pub(super) fn prefetch_records(&self, stream: StreamRef) {
        let followed = self.followed.get(stream.id).and_then(|followed| followed.stream);
        followed.into_iter().for_each(|stream| self.table.prefetch(stream));
    }

    /// Prefetches what edits need of a stream, and the headers of a direction.
    #[inline]
    pub(super) fn prefetch_edit(&self, stream: StreamRef, direction: usize) {
        let Some(followed) = self.followed.get(stream.id) else { return };
        followed.stream.into_iter().for_each(|stream| self.table.prefetch_edit(stream));
        let edited = followed.edited.and_then(|edited| self.edited.get(edited));
        edited.into_iter().for_each(|edited| prefetch_all(&edited.headers[direction]));
    }

    /// Ends the following of a stream, and keeps its record: all later packets are dropped.
    pub(super) fn stop(&mut self, id: FollowedId, end: StreamEnd) {
        self.release(id);
        self.followed[id].phase = StreamPhase::Ended(end);
    }

    /// Ends the following of a stream of which no more than its ends is left.
    pub(super) fn finish(&mut self, id: FollowedId, ends: FinishedEnds) {
        self.release(id);
        self.followed[id].phase = StreamPhase::Finished(ends);
    }

    /// Gives up the stream of a connection that an end has reset.
    pub(super) fn reset(&mut self, id: FollowedId, of: StreamId) {
        let levels = self.table.levels(of);
        let before = self.table.predecessor(of);
        self.release(id);
        self.followed[id].phase = match levels.iter().any(|level| *level >= Level::Guard) {
            true => StreamPhase::Reset(before),
            false => StreamPhase::Finished(FinishedEnds::default()),
        };
    }

    /// What a stream that takes the place of another one has to know of it.
    pub(super) fn predecessor(&self, stream: StreamRef) -> Predecessor {
        let Some(id) = self.live(stream) else { return Predecessor::default() };
        match (self.followed[id].stream, &self.followed[id].phase) {
            (Some(stream), _) => self.table.predecessor(stream),
            (None, StreamPhase::Reset(before)) => *before,
            (None, _) => Predecessor::default(),
        }
    }

    /// Opens a stream of a source. If all places are taken, replaces a half-open stream; if the source has its share, one
    /// of the source.
    fn open(
        &mut self,
        wanted: &Wanted,
        source: StreamSource,
        first: Option<&Segment>,
        now_ms: u64,
    ) -> Result<StreamId, Refused> {
        let places = self.table.places();
        let free = places.saturating_sub(self.table.len());
        if !self.shares.admits(source, (places, free)).map_err(|_| Refused::Unfit)? {
            let is_replaced = self.replace_half_open(now_ms, DropReason::StreamPerSource, Some(source));
            // Memory for the count was reserved when the source's other streams began.
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

    /// Gives up a stream whose SYN has no answer, of one source or of any; false if none was found.
    fn replace_half_open(&mut self, now_ms: u64, reason: DropReason, source: Option<StreamSource>) -> bool {
        let followed = &self.followed;
        let is_meant = |owner| match (FollowedId::new(owner), source) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(id), Some(source)) => followed[id].source == source,
        };
        let Some(victim) = self.table.half_open(now_ms, is_meant) else { return false };
        let Some(id) = FollowedId::new(self.table.owner(victim)) else { return false };
        self.stop(id, StreamEnd { reason, by: None, answers: true, tells: ReceiverReset::Never });
        true
    }

    /// Gives back what a record holds.
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

    /// Removes the record of a connection that has ended.
    pub(super) fn remove(&mut self, stream: StreamRef) {
        if let Some(id) = self.live(stream) {
            self.release(id);
            self.followed.remove(id);
        }
    }

    /// What is known of a stream, or how it was ended; `None` if its own ends have closed or reset it.
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
            replaced: Vec::with_capacity(MOST_REPLACED),
            trace: None,
            helpers: Helpers::new(seed),
        }
    }

    /// Adopts the sets and the scanner for the patterns of a policy. Returns false if too many sets of earlier policies
    /// still have open states.
    fn configure(&mut self, patterns: &StreamPatterns, generation: u64, exchanged: &mut Exchanged) -> bool {
        let digest = |set: &PatternSet| set.digest();
        let Exchanged { offer, retired } = &mut *exchanged;
        let scanner = offer.bytes.take_larger(self.scanner.as_ref(), retired);
        let is_new = scanner.is_some();
        if let Some(scanner) = scanner {
            self.scanner.replace(scanner).into_iter().for_each(|before| retired.scanner(before));
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
            let before = std::mem::replace(&mut self.names, names);
            before.into_iter().for_each(|(scanner, _)| retired.scanner(scanner));
        }
        self.http.configure(patterns.http.as_ref(), generation, exchanged);
        self.adopt_set(generation, exchanged)
    }

    /// Adopts the offered set that is in force, and releases earlier sets that no stream uses. Returns false if the set
    /// in force is not prepared.
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
            // The scanner may have an equal set already.
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

    /// Frees what the searches of a stream hold.
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
