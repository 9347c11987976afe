//! Edits of streams: decides what becomes of undecided bytes, by the rules of their connection.
//!
//! Of all matches of a connection's rules the leftmost is edited; of those that start there the longest; of these the one of the rule that comes
//! first by (priority, id). A match that is only begun, or that more bytes could make longer, is waited for. The patterns of edits are in the one set of patterns
//! too, so that one pass tells whether there is any match, which there mostly is not: then only what is begun is looked for.

use super::stream_search::{Fired, StreamSearch};
use crate::compiled::StreamEditRule;
use arrayvec::ArrayVec;
use mmb_policy::settings::StreamHoldOver;
use mmb_scan::EditStep;
use mmb_stream::{EditSink, InOrder, StreamReader, Undecided};
use std::ops::ControlFlow;

/// The rules of one connection that edit a direction; further ones do nothing.
const MOST_EDITS: usize = 64;

/// A match that an edit replaces.
#[derive(Clone, Copy)]
struct Found<'r> {
    start: usize,
    end: usize,
    rule: &'r StreamEditRule,
}

impl StreamReader for StreamSearch<'_> {
    fn scan(&mut self, in_order: InOrder<'_>) -> ControlFlow<()> {
        self.search(in_order)
    }

    fn edit(&mut self, undecided: Undecided<'_>, sink: &mut EditSink<'_>) -> ControlFlow<()> {
        let Undecided { direction, offset, bytes, known, is_end, waited_ms } = undecided;
        self.has_edits_found = false;
        if known < bytes.len() {
            let offset = offset + known as u64;
            self.search(InOrder { direction, offset, is_behind_gap: false, bytes: &bytes[known..] })?;
        }
        if let Some(http) = self.http() {
            return self.edit_messages(http, undecided, sink);
        }
        let snapshot = self.snapshot();
        let live = self.live();
        let edits = snapshot.streams.edits().iter();
        let edits = edits.filter(|edit| edit.directions[direction] && live.contains(&edit.slot));
        let edits: ArrayVec<&StreamEditRule, MOST_EDITS> = edits.take(MOST_EDITS).collect();
        let settings = &snapshot.stream_settings;
        let is_over = waited_ms.is_some();
        let closes = is_over && settings.hold_over == StreamHoldOver::Close;
        let is_final = is_end || settings.hold_ms == 0 || is_over && !closes;
        // Without a match in the new bytes there is one only in those that were begun.
        let may_match = self.has_edits_found || known > 0;
        let mut steps: ArrayVec<Option<EditStep>, MOST_EDITS> = edits.iter().map(|_| None).collect();
        let mut at = 0;
        while at < bytes.len() {
            let asked = (is_final, may_match);
            let (found, begun) = self.first((&edits, &mut steps), bytes, (at, direction), asked);
            let Some(Found { start, end, rule }) =
                found.filter(|found| begun.is_none_or(|begun| found.start < begun))
            else {
                let start = begun.unwrap_or(bytes.len());
                sink.pass(start - at);
                at = start;
                break;
            };
            sink.pass(start - at);
            let matched = &bytes[start..end];
            let tools = self.tools();
            tools.replaced.clear();
            rule.action.write(matched, &mut tools.replaced);
            sink.replace(matched.len(), &tools.replaced);
            if let Some(trace) = &mut tools.trace {
                let place = (direction, offset + start as u64);
                trace.note(std::iter::once(rule.slot), place, matched, &tools.replaced);
            }
            self.count_edit(Fired { slot: rule.slot, direction, end: offset + end as u64 });
            at = end;
        }
        self.note_last(direction, &bytes[..at]);
        if closes && at < bytes.len() {
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }
}

impl StreamSearch<'_> {
    /// The match that is edited first at or behind a place, and the first place at which one is begun. `steps` has what each rule found before,
    /// which holds until the place is behind it: else many matches of one rule would make all others search the same bytes as often.
    fn first<'r>(
        &mut self,
        (edits, steps): (&[&'r StreamEditRule], &mut [Option<EditStep>]),
        bytes: &[u8],
        (at, direction): (usize, usize),
        (is_final, may_match): (bool, bool),
    ) -> (Option<Found<'r>>, Option<usize>) {
        let before = self.last(direction);
        let scratch = &mut self.tools().edit_scratch;
        let (mut first, mut begun): (Option<Found<'r>>, Option<usize>) = (None, None);
        for (rule, known) in edits.iter().zip(steps) {
            let is_behind = |step: &EditStep| match *step {
                EditStep::Nothing => true,
                EditStep::Begun { start } | EditStep::Match { start, .. } => start >= at,
            };
            let step = known.filter(is_behind).unwrap_or_else(|| match may_match {
                true => rule.patterns.next(scratch, bytes, at, before, is_final),
                false if is_final => EditStep::Nothing,
                false => match rule.patterns.begun(scratch, bytes, at, before) {
                    Some(start) => EditStep::Begun { start },
                    None => EditStep::Nothing,
                },
            });
            *known = Some(step);
            match step {
                EditStep::Nothing => {}
                EditStep::Begun { start } => begun = Some(begun.map_or(start, |begun| begun.min(start))),
                EditStep::Match { start, end, .. } => {
                    let found = Found { start, end, rule };
                    let key = |found: &Found<'_>| (found.start, usize::MAX - found.end, found.rule.order);
                    first = Some(
                        first.map_or(found, |first| if key(&found) < key(&first) { found } else { first }),
                    );
                }
            }
        }
        (first, begun)
    }
}
