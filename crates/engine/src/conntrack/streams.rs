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
use super::stream_ref::{FollowedId, StreamRef};
use super::stream_trace::EditTrace;
use crate::compiled::{MOST_REPLACED, Snapshot, StatefulRule, StreamPatterns};
use crate::drop::DropReason;
use crate::verdict::VECTOR;
use arrayvec::ArrayVec;
use mmb_base::{Chunks, Id, Slab, id_types, prefetch_all};
use mmb_classify::RuleSlot;
use mmb_conn::nat::RuleVersion;
use mmb_conn::{ConnId, proto};
use mmb_http::ClientHello;
use mmb_policy::settings::{StreamSettings, StreamUnfit, StreamUrgent};
use mmb_random::Seed;
use mmb_scan::{EditScratch, PatternSet, ScanState, Scanner};
use mmb_stream::{
    AckSpace, FinishedEnds, Level, Predecessor, Segment, StreamId, StreamInfo, StreamLimits, StreamTable,
    Unfit, Urgent,
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
    serials: u32,
    unfit: StreamUnfit,
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
    /// Bytes of the scanner's pool.
    pool_bytes: usize,
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
            serials: 0,
            unfit: StreamUnfit::default(),
            acks: AckSpace::default(),
            events: StreamEvents::default(),
            closed: Vec::new(),
        }
    }

    /// Applies the settings and patterns of a policy. `workers` share the limits.
    pub(super) fn configure(&mut self, snapshot: &Snapshot, workers: usize) {
        let StreamSettings { max, memory_mib, window_kib, reorder_kib, hold_ms, unfit, urgent, .. } =
            snapshot.stream_settings;
        self.unfit = unfit;
        if snapshot.stream_rules == 0 {
            if self.followed.is_empty() {
                (self.table, self.tools.scanner, self.tools.pool_bytes) = (StreamTable::default(), None, 0);
                self.table.set_ack_space(self.acks);
            }
            self.tools.set = None;
            self.tools.http.configure(None, 0, &mut self.tools.edit_scratch);
            return;
        }
        let limits = StreamLimits {
            streams: (max as usize).div_ceil(workers.max(1)),
            memory: ((memory_mib as usize) << 20) / workers.max(1),
            window: u64::from(window_kib) << 10,
            reorder: (reorder_kib as usize) << 10,
            hold_ms,
            urgent: match urgent {
                StreamUrgent::Clear => Urgent::Clear,
                StreamUrgent::Pass => Urgent::Pass,
                StreamUrgent::Drop => Urgent::Drop,
            },
        };
        if !self.table.is_configured(&limits) {
            // Without memory no stream is guarded.
            self.table.configure(limits);
        }
        self.closed.reserve_exact(VECTOR - self.closed.len());
        let is_all_closed = self.tools.configure(&snapshot.streams, limits.streams);
        if !is_all_closed {
            self.close_old_scans();
        }
    }

    /// Gives up the searches with sets that are not in force any more, for the memory of a new one.
    fn close_old_scans(&mut self) {
        for number in 1..=self.followed.highest() {
            if let Some(id) = FollowedId::new(number).filter(|id| self.followed.get(*id).is_some())
                && let StreamPhase::Searched(search) = &mut self.followed[id].phase
            {
                search.scans = [None, None];
            }
        }
        self.tools.adopt_set();
    }

    /// Begins the stream of a new connection.
    pub(super) fn begin(
        &mut self,
        wanted: &Wanted,
        (first, before): (Option<&Segment>, Predecessor),
        now_ms: u64,
    ) -> Result<Option<StreamRef>, DropReason> {
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
        let mut end = None;
        let stream = match self.open(wanted, first, now_ms) {
            Ok(stream) => {
                self.table.succeed(stream, before);
                Some(stream)
            }
            Err(Unfit::NoRoom | Unfit::Midway | Unfit::Signed) => {
                let answers = match self.unfit {
                    StreamUnfit::Pass => return Ok(None),
                    StreamUnfit::Close => true,
                    StreamUnfit::Drop => false,
                };
                end = Some(StreamEnd {
                    reason: DropReason::StreamUnfit,
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
        let id = self.followed.insert(FollowedStream { serial, stream, phase, digests, searches, edited });
        stream.into_iter().for_each(|stream| self.table.set_owner(stream, id.number()));
        Ok(Some(StreamRef { id, serial, is_edited }))
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

    /// Opens a stream; in the place of a half-open one if there are too many.
    fn open(&mut self, wanted: &Wanted, first: Option<&Segment>, now_ms: u64) -> Result<StreamId, Unfit> {
        let opened = self.table.open(wanted.levels, wanted.digests, first, now_ms);
        if opened != Err(Unfit::NoRoom) {
            return opened;
        }
        let Some(victim) = self.table.half_open(now_ms) else { return opened };
        let Some(id) = FollowedId::new(self.table.owner(victim)) else { return opened };
        let reason = DropReason::StreamNoRoom;
        self.stop(id, StreamEnd { reason, by: None, answers: true, tells: ReceiverReset::Never });
        self.table.open(wanted.levels, wanted.digests, first, now_ms)
    }

    /// Gives back what a record holds.
    fn release(&mut self, id: FollowedId) {
        let followed = &mut self.followed[id];
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
            pool_bytes: 0,
            names: None,
            hellos: Slab::default(),
            found: Slab::default(),
            http: HttpWork::default(),
            edit_scratch: EditScratch::default(),
            replaced: Vec::new(),
            trace: None,
            helpers: Helpers::new(seed),
        }
    }

    /// Gets what the patterns of a policy need. Returns false if too many states of sets before are open to do so.
    fn configure(&mut self, patterns: &StreamPatterns, streams: usize) -> bool {
        let digest = |set: &PatternSet| set.digest();
        if self.set.as_ref().map(digest) != patterns.bytes.as_ref().map(digest) {
            // One that rules had before may still be prepared: an equal set takes no second place.
            let mut prepared = self.scanner.iter().flat_map(Scanner::sets);
            let wanted = patterns.bytes.as_ref();
            self.set = wanted.map(|wanted| {
                let known = prepared.find(|known| known.digest() == wanted.digest());
                known.unwrap_or(wanted).clone()
            });
            self.set_number = self.set_number.wrapping_add(1);
        }
        self.http.configure(patterns.http.as_ref(), streams, &mut self.edit_scratch);
        if !patterns.edits().is_empty() {
            self.replaced.reserve(MOST_REPLACED);
        }
        patterns.edits().iter().for_each(|edit| self.edit_scratch.prepare(&edit.patterns));
        if patterns.has_helpers {
            self.helpers.expected.reserve();
        }
        self.names = patterns.names.as_ref().and_then(|set| {
            let mut scanner = Scanner::new(set.pool_bytes(1)).ok()?;
            scanner.prepare(set).ok()?;
            Some((scanner, set.clone()))
        });
        let Some(set) = &self.set else { return true };
        let wanted = set.pool_bytes(2 * streams);
        if wanted > self.pool_bytes {
            self.scanner = Scanner::new(wanted).ok();
            self.pool_bytes = wanted;
            self.set_number = self.set_number.wrapping_add(1);
        }
        self.adopt_set()
    }

    /// Prepares the set in force, and gives up those before that no stream uses. Returns whether it is prepared.
    fn adopt_set(&mut self) -> bool {
        let (Some(scanner), Some(set)) = (&mut self.scanner, &self.set) else { return true };
        let others: Vec<PatternSet> =
            scanner.sets().filter(|other| other.digest() != set.digest()).cloned().collect();
        others.iter().for_each(|other| drop(scanner.release(other)));
        scanner.prepare(set).is_ok()
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
