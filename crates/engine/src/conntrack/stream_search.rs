//! Applies matches in a stream to the rules of its connection.
//!
//! A match counts only for rules that the connection has. A rule with one constraint fires at each match. A
//! rule with several constraints fires once, when all of them have been met. Of the rules that end the
//! connection, the one whose match ends first decides.

use super::helper::HelperId;
use super::helper_control::ControlConnection;
use super::stream_event::UnfitMessage;
use super::stream_http::HttpId;
use super::streams::{FoundConstraints, SearchState, SearchTools};
use crate::cells::{RuleCells, WorkerCells};
use crate::compiled::{Snapshot, StatefulRule, StreamRule};
use arrayvec::ArrayVec;
use mmb_classify::RuleSlot;
use mmb_http::HelloProgress;
use mmb_scan::{PatternSet, Scanner};
use mmb_stream::InOrder;
use std::ops::ControlFlow;

/// The most events for the bytes of one packet. Further ones are only counted as hits.
const FIRED: usize = 8;

/// A rule that has fired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fired {
    pub(super) slot: RuleSlot,
    pub(super) direction: usize,
    /// The number of bytes of the direction up to the end of the match.
    pub(super) end: u64,
}

/// A rule that ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decided {
    pub(super) fired: Fired,
    /// The rule closes the connection: both ends of a TCP connection get a RST.
    pub(super) closes: bool,
}

/// The search of one packet's bytes.
pub(super) struct StreamSearch<'s> {
    pub(super) rules: Rules<'s>,
    search: &'s mut SearchState,
    /// Whether the bytes of each direction are searched.
    searches: [bool; 2],
    pub(super) tools: &'s mut SearchTools,
    /// There was no memory for a search: the bytes must not pass.
    pub(super) has_no_room: bool,
    /// The last search has found a pattern of a rule that edits.
    pub(super) has_edits_found: bool,
    /// `Some` if the next bytes to edit were searched already. Contains the place where a match may have
    /// begun in them, if any.
    pub(super) read: Option<Option<usize>>,
    /// The last message that is not read as HTTP, whether its connection passes or not.
    pub(super) unfit_message: Option<UnfitMessage>,
    pub(super) counters: &'s WorkerCells,
    pub(super) control: ControlConnection<'s>,
    /// The number of connections that a helper newly expects.
    pub(super) expected: u32,
}

/// The findings in the bytes of one packet.
pub(super) struct FoundInBytes {
    /// The rules with `alert` that fired.
    pub(super) fired: ArrayVec<Fired, FIRED>,
    pub(super) decided: Option<Decided>,
    pub(super) unfit_message: Option<UnfitMessage>,
    pub(super) has_no_room: bool,
    /// The number of connections that a helper newly expects. Each uses the rules of this connection.
    pub(super) expected: u32,
}

impl FoundInBytes {
    /// Whether the connection must end because of a message that is not read as HTTP.
    pub(super) fn is_unfit(&self) -> bool {
        self.unfit_message.is_some_and(|message| !message.passes)
    }
}

/// The rules of a connection, and those that have fired.
pub(super) struct Rules<'s> {
    snapshot: &'s Snapshot,
    cells: &'s RuleCells,
    /// The connection's rules that the policy still contains.
    live: &'s [RuleSlot],
    fired: ArrayVec<Fired, FIRED>,
    decided: Option<Decided>,
}

impl<'s> StreamSearch<'s> {
    pub(super) fn new(
        (snapshot, cells, live): (&'s Snapshot, &'s RuleCells, &'s [RuleSlot]),
        (search, searches): (&'s mut SearchState, [bool; 2]),
        (tools, counters): (&'s mut SearchTools, &'s WorkerCells),
        control: ControlConnection<'s>,
    ) -> StreamSearch<'s> {
        let rules = Rules { snapshot, cells, live, fired: ArrayVec::new(), decided: None };
        StreamSearch {
            rules,
            search,
            searches,
            tools,
            has_no_room: false,
            has_edits_found: false,
            read: None,
            unfit_message: None,
            counters,
            control,
            expected: 0,
        }
    }

    /// The policy in force.
    pub(super) fn snapshot(&self) -> &'s Snapshot {
        self.rules.snapshot
    }

    /// The HTTP messages of the connection, if it has rules on HTTP.
    pub(super) fn http(&self) -> Option<HttpId> {
        self.search.http
    }

    /// The helper's state for the connection, if it has one.
    pub(super) fn helper_id(&self) -> Option<HelperId> {
        self.search.helper
    }

    /// Records that a rule ends the connection. The first such rule decides.
    pub(super) fn decide_for(&mut self, decided: Decided) {
        self.rules.decided.get_or_insert(decided);
    }

    /// The connection's rules.
    pub(super) fn live(&self) -> &'s [RuleSlot] {
        self.rules.live
    }

    /// The working memory of searches and edits.
    pub(super) fn tools(&mut self) -> &mut SearchTools {
        self.tools
    }

    /// The byte before the undecided bytes of a direction.
    pub(super) fn last(&self, direction: usize) -> Option<u8> {
        self.search.last[direction]
    }

    /// Records the last byte that was decided.
    pub(super) fn note_last(&mut self, direction: usize, decided: &[u8]) {
        if let Some(last) = decided.last() {
            self.search.last[direction] = Some(*last);
        }
    }

    /// Counts an edit as a hit, and records an event if the rule has `alert`.
    pub(super) fn count_edit(&mut self, fired: Fired) {
        self.rules.count_edit(fired);
    }

    /// Whether there is something to report, or the bytes must not pass.
    #[inline]
    pub(super) fn has_news(&self) -> bool {
        let Rules { fired, decided, .. } = &self.rules;
        !fired.is_empty()
            || decided.is_some()
            || self.unfit_message.is_some()
            || self.has_no_room
            || self.expected > 0
            || self.tools.trace.is_some()
    }

    /// Returns the findings.
    pub(super) fn into_found(self) -> FoundInBytes {
        let StreamSearch { rules, unfit_message, has_no_room, expected, .. } = self;
        let Rules { fired, decided, .. } = rules;
        FoundInBytes { fired, decided, unfit_message, has_no_room, expected }
    }

    /// Searches bytes that are in order. Breaks if they must not pass.
    pub(super) fn search(&mut self, in_order: InOrder<'_>) -> ControlFlow<()> {
        let direction = in_order.direction;
        if self.search.helper.is_some() {
            self.note_first_bytes(in_order);
        }
        if direction == 0 && self.search.hello.is_some() {
            self.read_hello(in_order)?;
        }
        if !self.searches[direction] || self.tools.set.is_none() {
            return ControlFlow::Continue(());
        }
        if self.search.set != self.tools.set_number {
            // Other patterns are in force now: incomplete matches of the earlier ones are dropped.
            self.search.set = self.tools.set_number;
            self.search.scans = [None, None];
        }
        self.scan(in_order)
    }

    fn scan(&mut self, in_order: InOrder<'_>) -> ControlFlow<()> {
        let InOrder { direction, offset, follows_gap, bytes } = in_order;
        let StreamSearch { rules, search, tools, has_edits_found, .. } = self;
        let SearchTools { scanner, set, found, .. } = &mut **tools;
        let (Some(scanner), Some(set)) = (scanner, set) else {
            self.has_no_room = true;
            return ControlFlow::Break(());
        };
        let state = &mut search.scans[direction];
        if state.is_none() {
            *state = scanner.open(set);
            search.scan_starts[direction] = offset;
        }
        let Some(state) = state else {
            self.has_no_room = true;
            return ControlFlow::Break(());
        };
        if follows_gap {
            scanner.restart(state);
            search.scan_starts[direction] = offset;
        }
        let scan_start = search.scan_starts[direction];
        let mut result = ControlFlow::Continue(());
        let patterns = &*rules.snapshot.streams;
        let found_id = &mut search.found;
        let mut on_match = |pattern, end: u64| {
            for pattern_use in
                patterns.uses(pattern).iter().filter(|pattern_use| pattern_use.directions[direction])
            {
                let fired = Fired { slot: pattern_use.slot, direction, end: scan_start + end };
                if pattern_use.edits {
                    *has_edits_found = true;
                    continue;
                }
                let mut constraints = ConstraintRecord { found_id, found };
                if rules.hit(fired, pattern_use.constraint, &mut constraints).is_break() {
                    result = ControlFlow::Break(());
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        };
        let _ = scanner.scan(state, bytes, &mut on_match);
        result
    }

    /// Continues to read the TLS hello. When the server name is known, decides the constraints on it.
    fn read_hello(&mut self, InOrder { offset, follows_gap, bytes, .. }: InOrder<'_>) -> ControlFlow<()> {
        let StreamSearch { rules, search, tools, .. } = self;
        let Some(id) = search.hello else { return ControlFlow::Continue(()) };
        let SearchTools { hellos, found, names, .. } = &mut **tools;
        let hello = &mut hellos[id];
        let progress = if follows_gap { HelloProgress::Invalid } else { hello.feed(bytes) };
        if progress == HelloProgress::More {
            return ControlFlow::Continue(());
        }
        let name = hello.server_name();
        let by_regex = name.map(|name| regexes(rules, names.as_mut(), name)).unwrap_or_default();
        let end = offset + bytes.len() as u64;
        let mut result = ControlFlow::Continue(());
        for &slot in rules.live {
            let Some(stream) = rules.rule(slot).and_then(|rule| rule.stream.as_deref()) else { continue };
            for constraint in &stream.names {
                let is_met = |name| {
                    let mut by_text = rules.snapshot.streams.uses_of_name(name);
                    by_text.any(|name_use| (name_use.slot, name_use.constraint) == (slot, constraint.number))
                        || by_regex.contains(&(slot, constraint.number))
                };
                let holds = match (progress, name) {
                    (_, Some(name)) => is_met(name) != constraint.negated,
                    (HelloProgress::Nameless, _) => constraint.negated,
                    // A server may read another name in an invalid hello than mmb does: a rule that ends
                    // connections ends this one.
                    (HelloProgress::Invalid, _) => constraint.negated || stream.ends(),
                    _ => false,
                };
                let fired = Fired { slot, direction: 0, end };
                let mut constraints = ConstraintRecord { found_id: &mut search.found, found };
                if holds && rules.hit(fired, constraint.number, &mut constraints).is_break() {
                    result = ControlFlow::Break(());
                }
            }
        }
        search.hello = None;
        hellos.free(id);
        result
    }
}

/// The constraints of a connection's rules that a server name meets by a regex.
fn regexes(
    rules: &Rules<'_>,
    names: Option<&mut (Scanner, PatternSet)>,
    name: &[u8],
) -> ArrayVec<(RuleSlot, u8), 64> {
    let mut met = ArrayVec::new();
    let Some((scanner, set)) = names else { return met };
    let Some(mut state) = scanner.open(set) else { return met };
    let mut on_match = |pattern, _| {
        let uses = rules.snapshot.streams.name_uses(pattern).iter();
        for name_use in uses.filter(|name_use| rules.live.contains(&name_use.slot)) {
            let one = (name_use.slot, name_use.constraint);
            if !met.contains(&one) {
                // A connection has at most 64 rules. Of rules with several constraints, some constraints may
                // not fit.
                let _ = met.try_push(one);
            }
        }
        ControlFlow::Continue(())
    };
    let _ = scanner.scan(&mut state, name, &mut on_match);
    let _ = scanner.finish(state, &mut on_match);
    met
}

/// Where a connection records the constraints that it has met.
struct ConstraintRecord<'f> {
    found_id: &'f mut Option<super::streams::FoundId>,
    found: &'f mut mmb_base::Slab<
        super::streams::FoundId,
        FoundConstraints,
        mmb_base::Chunks<FoundConstraints, 64>,
    >,
}

impl ConstraintRecord<'_> {
    /// Records that a constraint of a rule is met. Returns whether now, for the first time, all constraints
    /// of the rule are met.
    fn completes(&mut self, rule: &StatefulRule, stream: &StreamRule, constraint: u8) -> bool {
        let id = match *self.found_id {
            Some(id) => id,
            None => {
                if self.found.try_reserve().is_err() {
                    return false;
                }
                let id = self.found.insert_reusing(|before| before);
                *self.found_id = Some(id);
                id
            }
        };
        let found = &mut self.found[id];
        let place = found.iter().position(|(version, _)| *version == rule.version);
        // Rules that were replaced may occupy the places.
        if place.is_none() && found.try_push((rule.version, 0)).is_err() {
            return false;
        }
        let place = place.unwrap_or(found.len() - 1);
        let met = &mut found[place].1;
        let before = *met;
        *met |= 1 << constraint;
        *met != before && u32::from(stream.constraints) == met.count_ones()
    }
}

impl<'s> Rules<'s> {
    fn rule(&self, slot: RuleSlot) -> Option<&'s StatefulRule> {
        let snapshot = self.snapshot;
        snapshot.stateful(slot).map(std::convert::AsRef::as_ref)
    }

    /// Counts an edit as a hit, and records an event if the rule has `alert`.
    pub(super) fn count_edit(&mut self, fired: Fired) {
        self.cells.hits(fired.slot).into_iter().for_each(|hits| hits.add(1));
        let rule = self.rule(fired.slot).and_then(|rule| rule.stream.as_deref());
        if rule.is_some_and(|rule| rule.alert.is_some()) {
            let _ = self.fired.try_push(fired);
        }
    }

    /// Processes a match of a constraint of a rule. Breaks if the rule ends the connection.
    fn hit(&mut self, fired: Fired, constraint: u8, found: &mut ConstraintRecord<'_>) -> ControlFlow<()> {
        if !self.live.contains(&fired.slot) {
            return ControlFlow::Continue(());
        }
        let Some(rule) = self.rule(fired.slot) else { return ControlFlow::Continue(()) };
        let Some(stream) = rule.stream.as_deref() else { return ControlFlow::Continue(()) };
        if stream.constraints > 1 && !found.completes(rule, stream, constraint) {
            return ControlFlow::Continue(());
        }
        self.cells.hits(fired.slot).into_iter().for_each(|hits| hits.add(1));
        if stream.alert.is_some() {
            let _ = self.fired.try_push(fired);
        }
        if stream.ends() {
            self.decided.get_or_insert(Decided { fired, closes: stream.closes });
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}
