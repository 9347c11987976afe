//! Edits of streams: decides what becomes of undecided bytes, by the rules of their connection.
//!
//! Of all matches of a connection's rules the leftmost is edited; of those that start there the longest; of these the one of the rule that comes
//! first by (priority, id). A match that is only begun, or that more bytes could make longer, is waited for. The patterns of edits are in the one set of patterns
//! too, so that one pass tells whether there is any match, which there mostly is not: then only what is begun is looked for.

use super::rule_sets::MOST_RULES;
use super::stream_search::{Fired, StreamSearch};
use crate::compiled::StreamEditRule;
use arrayvec::ArrayVec;
use mmb_http::{FtpEnd, FtpForm, FtpStep};
use mmb_policy::RuleId;
use mmb_policy::rule::Prio;
use mmb_policy::settings::StreamHoldOver;
use mmb_rewrite::NotApplied;
use mmb_scan::EditStep;
use mmb_stream::{EditPatience, EditSink, InOrder, LONG_MS, Passes, StreamReader, Undecided};
use std::ops::ControlFlow;

/// What the rules of one connection that edit a direction find.
type EditSearches<'r> = ArrayVec<EditSearch<'r>, MOST_RULES>;

/// A rule that edits a direction, and what it has found first.
struct EditSearch<'r> {
    rule: &'r StreamEditRule,
    step: Option<EditStep>,
}

/// Bytes that are replaced.
#[derive(Clone, Copy)]
struct Found<'r> {
    start: usize,
    end: usize,
    by: Replacer<'r>,
}

/// What replaces bytes.
#[derive(Clone, Copy)]
enum Replacer<'r> {
    /// A rule, its match.
    Rule(&'r StreamEditRule),
    /// A helper, the argument of a command.
    Helper(FtpEnd, FtpForm),
}

impl Replacer<'_> {
    /// Of two that replace the same bytes, the one with the lower order does.
    fn order(&self) -> Option<(Prio, RuleId)> {
        match self {
            Replacer::Rule(rule) => Some(rule.order),
            Replacer::Helper(..) => None,
        }
    }
}

impl StreamReader for StreamSearch<'_> {
    fn scan(&mut self, in_order: InOrder<'_>) -> ControlFlow<()> {
        self.search(in_order)
    }

    fn passes(&mut self, new: InOrder<'_>) -> ControlFlow<(), Passes> {
        let InOrder { direction, bytes, .. } = new;
        if self.http().is_some() {
            return ControlFlow::Continue(Passes::Never);
        }
        self.has_edits_found = false;
        self.search(new)?;
        let holds = self.snapshot().stream_settings.hold_ms > 0;
        let mut begun =
            if holds && !self.has_edits_found { self.first_begun(direction, bytes) } else { None };
        match self.next_command(direction, bytes, 0) {
            FtpStep::Nothing => {}
            FtpStep::Begun { start } => begun = Some(begun.map_or(start, |begun| begun.min(start))),
            FtpStep::Command { .. } => self.has_edits_found = true,
        }
        if self.has_edits_found || begun.is_some() {
            self.read = Some(begun);
            return ControlFlow::Continue(Passes::Asks);
        }
        self.note_last(direction, bytes);
        ControlFlow::Continue(Passes::All)
    }

    fn edit(&mut self, undecided: Undecided<'_>, sink: &mut EditSink<'_>) -> ControlFlow<()> {
        let Undecided { direction, offset, bytes, known, is_end, waited_ms } = undecided;
        let read = self.read.take();
        self.has_edits_found &= read.is_some();
        if known < bytes.len() && read.is_none() {
            let offset = offset + known as u64;
            self.search(InOrder { direction, offset, is_behind_gap: false, bytes: &bytes[known..] })?;
        }
        if let Some(http) = self.http() {
            return self.edit_messages(http, undecided, sink);
        }
        let snapshot = self.snapshot();
        let settings = &snapshot.stream_settings;
        let is_over = waited_ms.is_some();
        let closes = is_over && settings.hold_over == StreamHoldOver::Close;
        let is_final = is_end || settings.hold_ms == 0 || is_over && !closes;
        // Without a match in the new bytes there is one only in those that were begun.
        let at = match self.has_edits_found || known > 0 || self.has_helper(direction) {
            true => self.edit_matches(undecided, is_final, sink),
            false => {
                let begun = match read {
                    _ if is_final => None,
                    Some(begun) => begun,
                    None => self.first_begun(direction, bytes),
                };
                let end = begun.unwrap_or(bytes.len());
                sink.pass(end);
                end
            }
        };
        self.note_last(direction, &bytes[..at]);
        if is_over && !closes && !is_end {
            self.counters.count_not_applied(NotApplied::StreamHoldOver);
        }
        if closes && at < bytes.len() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

impl<'s> StreamSearch<'s> {
    /// The connection's rules that edit a direction.
    fn edits(&self, direction: usize) -> impl Iterator<Item = &'s StreamEditRule> + use<'s> {
        let patterns = &self.snapshot().streams;
        let edits = self.live().iter().filter_map(|slot| patterns.edit(*slot));
        edits.filter(move |edit| edit.directions[direction])
    }

    /// The first place at which a match is begun, in bytes without one.
    fn first_begun(&mut self, direction: usize, bytes: &[u8]) -> Option<usize> {
        let (edits, before) = (self.edits(direction), self.last(direction));
        let scratch = &mut self.tools().edit_scratch;
        edits.filter_map(|edit| edit.patterns.begun(scratch, bytes, 0, before)).min()
    }

    /// Replaces the matches in undecided bytes, and the arguments of commands. Returns where the begun ones start, or the end.
    fn edit_matches(&mut self, undecided: Undecided<'_>, is_final: bool, sink: &mut EditSink<'_>) -> usize {
        let Undecided { direction, offset, bytes, is_end, waited_ms, .. } = undecided;
        let mut searches: EditSearches<'s> = ArrayVec::new();
        // A connection has no more rules.
        self.edits(direction).for_each(|rule| drop(searches.try_push(EditSearch { rule, step: None })));
        // A command that is begun has as much time as a head of HTTP.
        let is_complete = is_end || waited_ms.is_some_and(|waited_ms| waited_ms >= LONG_MS);
        let mut command = None;
        let mut at = 0;
        while at < bytes.len() {
            let (found, begun) = self.first(&mut searches, bytes, (at, direction), is_final);
            let command = self.command(&mut command, bytes, (at, direction), is_complete);
            let begun = match (*command, begun) {
                (FtpStep::Begun { start }, begun) if begun.is_none_or(|begun| start <= begun) => {
                    sink.wait(EditPatience::Long);
                    Some(start)
                }
                (_, begun) => begun,
            };
            let found = match *command {
                FtpStep::Command { start, end, announced, form } => {
                    Some(earlier(found, Found { start, end, by: Replacer::Helper(announced, form) }))
                }
                FtpStep::Nothing | FtpStep::Begun { .. } => found,
            };
            let Some(Found { start, end, by }) =
                found.filter(|found| begun.is_none_or(|begun| found.start < begun))
            else {
                let start = begun.unwrap_or(bytes.len());
                sink.pass(start - at);
                return start;
            };
            sink.pass(start - at);
            at = end;
            let matched = &bytes[start..end];
            let place = (direction, offset + start as u64);
            match by {
                Replacer::Rule(rule) => self.replace_match(rule, place, matched, sink),
                Replacer::Helper(announced, form) => {
                    self.replace_argument((announced, form), place, matched, sink);
                }
            }
        }
        at
    }

    /// Puts the text of a rule in the place of a match.
    fn replace_match(
        &mut self,
        rule: &StreamEditRule,
        (direction, offset): (usize, u64),
        matched: &[u8],
        sink: &mut EditSink<'_>,
    ) {
        let tools = self.tools();
        tools.replaced.clear();
        rule.action.write(matched, &mut tools.replaced);
        if !sink.replace(matched.len(), &tools.replaced) {
            self.counters.count_not_applied(NotApplied::NoRoom);
            return;
        }
        if let Some(trace) = &mut tools.trace {
            trace.note(std::iter::once(rule.slot), (direction, offset), matched, &tools.replaced);
        }
        self.count_edit(Fired { slot: rule.slot, direction, end: offset + matched.len() as u64 });
    }

    /// Puts the end that the responder is told in the place of the one that the initiator announces.
    fn replace_argument(
        &mut self,
        (announced, form): (FtpEnd, FtpForm),
        (direction, offset): (usize, u64),
        matched: &[u8],
        sink: &mut EditSink<'_>,
    ) {
        let Some(command) = self.take_command(announced, form) else { return sink.pass(matched.len()) };
        if command.argument() == matched {
            sink.pass(matched.len());
        } else {
            sink.replace(matched.len(), command.argument());
            if let Some(trace) = &mut self.tools().trace {
                let rule = std::iter::once(command.rule);
                trace.note(rule, (direction, offset), matched, command.argument());
            }
        }
        self.count_edit(Fired { slot: command.rule, direction, end: offset + matched.len() as u64 });
    }

    /// The command that comes first at or behind a place. What was found before holds until the place is behind it.
    fn command<'c>(
        &mut self,
        known: &'c mut Option<FtpStep>,
        bytes: &[u8],
        (at, direction): (usize, usize),
        is_complete: bool,
    ) -> &'c FtpStep {
        let is_behind = match *known {
            Some(FtpStep::Nothing) => true,
            Some(FtpStep::Begun { start } | FtpStep::Command { start, .. }) => start >= at,
            None => false,
        };
        if !is_behind {
            let next = self.next_command(direction, bytes, at);
            *known = Some(if is_complete && matches!(next, FtpStep::Begun { .. }) {
                FtpStep::Nothing
            } else {
                next
            });
        }
        known.get_or_insert(FtpStep::Nothing)
    }

    /// The match that is edited first at or behind a place, and the first place at which one is begun. What each rule found before holds until
    /// the place is behind it: else many matches of one rule would make all others search the same bytes as often.
    fn first(
        &mut self,
        searches: &mut EditSearches<'s>,
        bytes: &[u8],
        (at, direction): (usize, usize),
        is_final: bool,
    ) -> (Option<Found<'s>>, Option<usize>) {
        let before = self.last(direction);
        let scratch = &mut self.tools().edit_scratch;
        let (mut first, mut begun): (Option<Found<'_>>, Option<usize>) = (None, None);
        for EditSearch { rule, step } in searches {
            let is_behind = |step: &EditStep| match *step {
                EditStep::Nothing => true,
                EditStep::Begun { start } | EditStep::Match { start, .. } => start >= at,
            };
            let known = step.filter(is_behind);
            let next = known.unwrap_or_else(|| rule.patterns.next(scratch, bytes, at, before, is_final));
            *step = Some(next);
            match next {
                EditStep::Nothing => {}
                EditStep::Begun { start } => begun = Some(begun.map_or(start, |begun| begun.min(start))),
                EditStep::Match { start, end, .. } => {
                    first = Some(earlier(first, Found { start, end, by: Replacer::Rule(rule) }));
                }
            }
        }
        (first, begun)
    }
}

/// The one of two that replaces its bytes: that which starts first, of those that start there the longer one.
fn earlier<'r>(one: Option<Found<'r>>, other: Found<'r>) -> Found<'r> {
    let key = |found: &Found<'_>| (found.start, usize::MAX - found.end, found.by.order());
    one.filter(|one| key(one) <= key(&other)).unwrap_or(other)
}
