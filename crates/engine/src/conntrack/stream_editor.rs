//! Edits of streams: decides about undecided bytes by the rules of their connection.
//!
//! Of all matches of a connection's rules, the leftmost is edited. Of several that start at the same byte,
//! the longest is edited. Of rules with the same match, the first by (priority, id) applies. Bytes are held
//! back while more bytes could complete a match or make it longer.
//!
//! The patterns of edits are also in the one set of all patterns, so one pass finds out whether any pattern
//! matches. Usually none does. Then only the beginnings of matches are searched for.

use super::rule_sets::MAX_RULES;
use super::stream_search::{Fired, StreamSearch};
use crate::compiled::StreamEditRule;
use arrayvec::ArrayVec;
use mmb_http::{FtpEnd, FtpForm, FtpStep};
use mmb_policy::RuleId;
use mmb_policy::rule::Prio;
use mmb_policy::settings::StreamHoldOver;
use mmb_rewrite::NotApplied;
use mmb_scan::EditStep;
use mmb_stream::{EditSink, HoldTime, InOrder, LONG_HOLD_MS, ScanAnswer, StreamReader, Undecided};
use std::ops::ControlFlow;

/// The results of all rules that edit a direction of one connection.
type EditSearches<'r> = ArrayVec<EditSearch<'r>, MAX_RULES>;

/// A rule that edits a direction, and the first place that it has found.
struct EditSearch<'r> {
    rule: &'r StreamEditRule,
    step: Option<EditStep>,
}

/// Bytes to replace.
#[derive(Clone, Copy)]
struct Found<'r> {
    start: usize,
    end: usize,
    replacer: Replacer<'r>,
}

/// The source of a replacement.
#[derive(Clone, Copy)]
enum Replacer<'r> {
    /// A rule: replaces its match.
    Rule(&'r StreamEditRule),
    /// A helper: replaces the argument of a command.
    Helper(FtpEnd, FtpForm),
}

impl Replacer<'_> {
    /// If two replace the same bytes, the one with the lower order applies.
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

    fn scan_plain(&mut self, new: InOrder<'_>) -> ControlFlow<(), ScanAnswer> {
        let InOrder { direction, bytes, .. } = new;
        if self.http().is_some() {
            return ControlFlow::Continue(ScanAnswer::CannotScan);
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
            return ControlFlow::Continue(ScanAnswer::AskToEdit);
        }
        self.note_last(direction, bytes);
        ControlFlow::Continue(ScanAnswer::PassAll)
    }

    fn edit(&mut self, undecided: Undecided<'_>, sink: &mut EditSink<'_>) -> ControlFlow<()> {
        let Undecided { direction, offset, bytes, known, is_end, waited_ms } = undecided;
        let read = self.read.take();
        self.has_edits_found &= read.is_some();
        if known < bytes.len() && read.is_none() {
            let offset = offset + known as u64;
            self.search(InOrder { direction, offset, follows_gap: false, bytes: &bytes[known..] })?;
        }
        if let Some(http) = self.http() {
            return self.edit_messages(http, undecided, sink);
        }
        let snapshot = self.snapshot();
        let settings = &snapshot.stream_settings;
        let is_over = waited_ms.is_some();
        let closes = is_over && settings.hold_over == StreamHoldOver::Close;
        let is_final = is_end || settings.hold_ms == 0 || is_over && !closes;
        // Nothing can be edited without a match in the new bytes, bytes that were held before, or a
        // helper.
        let position = match self.has_edits_found || known > 0 || self.has_helper(direction) {
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
        self.note_last(direction, &bytes[..position]);
        if is_over && !closes && !is_end {
            self.counters.count_not_applied(NotApplied::StreamHoldOver);
        }
        if closes && position < bytes.len() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

impl<'s> StreamSearch<'s> {
    /// The rules of the connection that edit a direction.
    fn edits(&self, direction: usize) -> impl Iterator<Item = &'s StreamEditRule> + use<'s> {
        let patterns = &self.snapshot().streams;
        let edits = self.live().iter().filter_map(|slot| patterns.edit(*slot));
        edits.filter(move |edit| edit.directions[direction])
    }

    /// In bytes without a match: the first place where a match may have begun.
    fn first_begun(&mut self, direction: usize, bytes: &[u8]) -> Option<usize> {
        let (edits, last_byte) = (self.edits(direction), self.last(direction));
        let scratch = &mut self.tools().edit_scratch;
        edits.filter_map(|edit| edit.patterns.begun(scratch, bytes, 0, last_byte)).min()
    }

    /// Replaces the matches in undecided bytes, and the arguments of commands. Returns the offset of the
    /// first byte that stays undecided, or the number of bytes.
    fn edit_matches(&mut self, undecided: Undecided<'_>, is_final: bool, sink: &mut EditSink<'_>) -> usize {
        let Undecided { direction, offset, bytes, is_end, waited_ms, .. } = undecided;
        let mut searches: EditSearches<'s> = ArrayVec::new();
        // All rules fit: a connection has at most `MAX_RULES`.
        self.edits(direction).for_each(|rule| drop(searches.try_push(EditSearch { rule, step: None })));
        // An incomplete command may be held for as long as the head of an HTTP message.
        let is_complete = is_end || waited_ms.is_some_and(|waited_ms| waited_ms >= LONG_HOLD_MS);
        let mut command = None;
        let mut position = 0;
        while position < bytes.len() {
            let (found, begun) = self.first(&mut searches, bytes, (position, direction), is_final);
            let command = self.command(&mut command, bytes, (position, direction), is_complete);
            let begun = match (*command, begun) {
                (FtpStep::Begun { start }, begun) if begun.is_none_or(|begun| start <= begun) => {
                    sink.set_hold_time(HoldTime::Long);
                    Some(start)
                }
                (_, begun) => begun,
            };
            let found = match *command {
                FtpStep::Command { start, end, announced, form } => {
                    Some(earlier(found, Found { start, end, replacer: Replacer::Helper(announced, form) }))
                }
                FtpStep::Nothing | FtpStep::Begun { .. } => found,
            };
            let Some(Found { start, end, replacer }) =
                found.filter(|found| begun.is_none_or(|begun| found.start < begun))
            else {
                let start = begun.unwrap_or(bytes.len());
                sink.pass(start - position);
                return start;
            };
            sink.pass(start - position);
            position = end;
            let matched = &bytes[start..end];
            let place = (direction, offset + start as u64);
            match replacer {
                Replacer::Rule(rule) => self.replace_match(rule, place, matched, sink),
                Replacer::Helper(announced, form) => {
                    self.replace_argument((announced, form), place, matched, sink);
                }
            }
        }
        position
    }

    /// Replaces a match by the text of a rule.
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

    /// Replaces the address and port that the initiator announces by those that the responder has to use.
    fn replace_argument(
        &mut self,
        (announced, form): (FtpEnd, FtpForm),
        (direction, offset): (usize, u64),
        matched: &[u8],
        sink: &mut EditSink<'_>,
    ) {
        let Some(argument) = self.take_command(announced, form) else { return sink.pass(matched.len()) };
        if argument.bytes() == matched {
            sink.pass(matched.len());
        } else {
            sink.replace(matched.len(), argument.bytes());
            if let Some(trace) = &mut self.tools().trace {
                let rule = std::iter::once(argument.rule);
                trace.note(rule, (direction, offset), matched, argument.bytes());
            }
        }
        self.count_edit(Fired { slot: argument.rule, direction, end: offset + matched.len() as u64 });
    }

    /// The first command at or after an offset. `known` caches the result until the offset has passed it.
    fn command<'c>(
        &mut self,
        known: &'c mut Option<FtpStep>,
        bytes: &[u8],
        (position, direction): (usize, usize),
        is_complete: bool,
    ) -> &'c FtpStep {
        let is_behind = match *known {
            Some(FtpStep::Nothing) => true,
            Some(FtpStep::Begun { start } | FtpStep::Command { start, .. }) => start >= position,
            None => false,
        };
        if !is_behind {
            let next = self.next_command(direction, bytes, position);
            *known = Some(if is_complete && matches!(next, FtpStep::Begun { .. }) {
                FtpStep::Nothing
            } else {
                next
            });
        }
        known.get_or_insert(FtpStep::Nothing)
    }

    /// The first match to edit at or after an offset, and the first place where a match may have begun. The
    /// result of each rule is cached until the offset has passed it. Otherwise, for each match of one rule,
    /// all other rules would repeat the search of the same bytes.
    fn first(
        &mut self,
        searches: &mut EditSearches<'s>,
        bytes: &[u8],
        (position, direction): (usize, usize),
        is_final: bool,
    ) -> (Option<Found<'s>>, Option<usize>) {
        let last_byte = self.last(direction);
        let scratch = &mut self.tools().edit_scratch;
        let (mut first, mut begun): (Option<Found<'_>>, Option<usize>) = (None, None);
        for EditSearch { rule, step } in searches {
            let is_behind = |step: &EditStep| match *step {
                EditStep::Nothing => true,
                EditStep::Begun { start } | EditStep::Match { start, .. } => start >= position,
            };
            let known = step.filter(is_behind);
            let next =
                known.unwrap_or_else(|| rule.patterns.next(scratch, bytes, position, last_byte, is_final));
            *step = Some(next);
            match next {
                EditStep::Nothing => {}
                EditStep::Begun { start } => begun = Some(begun.map_or(start, |begun| begun.min(start))),
                EditStep::Match { start, end, .. } => {
                    first = Some(earlier(first, Found { start, end, replacer: Replacer::Rule(rule) }));
                }
            }
        }
        (first, begun)
    }
}

/// Selects the replacement that applies: the first to start, then the longer, then that of lower order.
fn earlier<'r>(one: Option<Found<'r>>, other: Found<'r>) -> Found<'r> {
    let key = |found: &Found<'_>| (found.start, usize::MAX - found.end, found.replacer.order());
    one.filter(|one| key(one) <= key(&other)).unwrap_or(other)
}
