//! Decides about the messages of a connection with rules on HTTP.

use super::edit_trace::EditTrace;
use super::stream_event::UnfitMessage;
use super::stream_http::{EditorCall, HttpId, not_applied};
use super::stream_search::{Decided, Fired, Rules, StreamSearch};
use crate::cells::WorkerCells;
use arrayvec::ArrayVec;
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_http::{HttpDirection, HttpUnfit};
use mmb_httpedit::{
    EditOutput, Held, HttpEnd, HttpInput, HttpNote, HttpProgress, HttpTools, MAX_NAMED_RULES,
};
use mmb_policy::settings::StreamHoldOver;
use mmb_rewrite::NotApplied;
use mmb_stream::{EditSink, HoldTime, LONG_HOLD_MS, Undecided};
use std::ops::ControlFlow;

impl StreamSearch<'_> {
    /// Decides about undecided bytes of a connection with rules on HTTP. Breaks if the connection must end.
    pub(super) fn edit_messages(
        &mut self,
        id: HttpId,
        undecided: Undecided<'_>,
        sink: &mut EditSink<'_>,
    ) -> ControlFlow<()> {
        let Undecided { direction, offset, bytes, is_end, waited_ms, .. } = undecided;
        let live = self.live();
        let settings = &self.snapshot().stream_settings;
        let (hold_ms, is_strict) = (settings.hold_ms, settings.hold_over == StreamHoldOver::Close);
        let StreamSearch { rules: connection_rules, tools, counters, unfit_message, .. } = self;
        if !tools.http.has_rules() {
            sink.pass(bytes.len());
            return ControlFlow::Continue(());
        }
        let must_decide = is_end || waited_ms == Some(u32::MAX);
        let Some(call) = tools.http.editor_call(id, live, must_decide) else {
            self.has_no_room = true;
            return ControlFlow::Break(());
        };
        let EditorCall { editor, held, borders, rules, own, scanner, memory, has_lost_rules } = call;
        let limit_ms = match held[direction] {
            // A head, or a message whose length must be known before it is forwarded.
            Some(Held::Head | Held::Whole) => LONG_HOLD_MS,
            Some(Held::Match | Held::Last) | None => hold_ms,
            Some(Held::Other) => u32::MAX,
        };
        let is_over = waited_ms.is_some_and(|waited_ms| waited_ms >= limit_ms);
        // With `set stream hold-over close`, bytes that may be the beginning of a match end the connection
        // instead.
        let is_match_over = is_over && held[direction] == Some(Held::Match);
        let closes = is_strict && is_match_over;
        if is_match_over && !closes {
            counters.count_not_applied(NotApplied::StreamHoldOver);
        }
        let release = hold_ms == 0 && limit_ms == 0 || is_over && !closes;
        let input = HttpInput {
            direction: if direction == 0 { HttpDirection::Requests } else { HttpDirection::Responses },
            bytes,
            is_end,
            release,
        };
        let mut http = HttpTools { rules, live: own, scanner, scratch: &mut tools.edit_scratch, memory };
        let end = offset + bytes.len() as u64;
        let mut out = HttpSink {
            sink,
            rules: connection_rules,
            counters,
            unfit_message,
            place: (direction, offset, end),
            trace: tools.trace.as_deref_mut(),
            replacement_rules: ArrayVec::new(),
        };
        let mut progress = editor.edit(&mut http, input, &mut out);
        if let HttpProgress::Held(held) = progress
            && must_decide
        {
            // Bytes cannot be held any longer. Unread bytes must not pass, unless the rules only report.
            let reason = held_too_long(held, is_end);
            progress = match editor.stop_looking(&http, (input.direction, reason), &mut out) {
                true => {
                    let rest = out.sink.rest().len();
                    out.pass(rest);
                    HttpProgress::Opaque
                }
                false => HttpProgress::Unfit(reason),
            };
        }
        held[direction] = if let HttpProgress::Held(held) = progress { Some(held) } else { None };
        borders[direction] = editor.borders();
        sink.set_hold_time(match held[direction] {
            Some(Held::Head | Held::Whole) => HoldTime::Long,
            Some(Held::Other) => HoldTime::Unbounded,
            Some(Held::Match | Held::Last) | None => HoldTime::Configured,
        });
        if has_lost_rules {
            counters.count_not_applied(not_applied(HttpNote::RulesChanged));
        }
        match progress {
            HttpProgress::All | HttpProgress::Opaque => ControlFlow::Continue(()),
            HttpProgress::Held(Held::Match) if closes => ControlFlow::Break(()),
            HttpProgress::Held(_) => ControlFlow::Continue(()),
            HttpProgress::Ended(HttpEnd { rule, closes }) => {
                if let Some(slot) = RuleSlot::new(rule) {
                    self.decide_for(Decided { fired: Fired { slot, direction, end }, closes });
                }
                ControlFlow::Break(())
            }
            HttpProgress::Unfit(reason) => {
                self.refuse_message(UnfitMessage { direction, end, reason, passes: false })
            }
            HttpProgress::NoRoom => {
                self.has_no_room = true;
                ControlFlow::Break(())
            }
        }
    }
}

impl StreamSearch<'_> {
    /// Ends the connection because of a message.
    fn refuse_message(&mut self, message: UnfitMessage) -> ControlFlow<()> {
        self.unfit_message = Some(message);
        ControlFlow::Break(())
    }
}

/// Why mmb stops reading a connection whose bytes cannot be held any longer.
fn held_too_long(held: Held, is_end: bool) -> HttpUnfit {
    match held {
        Held::Other => HttpUnfit::TooManyRequests,
        Held::Head | Held::Whole | Held::Match | Held::Last if is_end => HttpUnfit::UnfinishedHead,
        Held::Head | Held::Whole | Held::Match | Held::Last => HttpUnfit::HeadTooLong,
    }
}

/// Passes the editor's decisions to the stream, and counts and reports them.
struct HttpSink<'h, 's, 'r> {
    sink: &'h mut EditSink<'s>,
    rules: &'h mut Rules<'r>,
    counters: &'h WorkerCells,
    unfit_message: &'h mut Option<UnfitMessage>,
    /// The direction, the offset of the first undecided byte, and the offset of the end of the undecided
    /// bytes.
    place: (usize, u64, u64),
    trace: Option<&'h mut EditTrace>,
    /// If edits are traced: the rules of the next replacement.
    replacement_rules: ArrayVec<u32, MAX_NAMED_RULES>,
}

impl EditOutput for HttpSink<'_, '_, '_> {
    fn pass(&mut self, count: usize) {
        self.sink.pass(count);
    }

    fn replace(&mut self, count: usize, replacement: &[u8]) {
        if let Some(trace) = &mut self.trace {
            let (direction, _, end) = self.place;
            let rest = self.sink.rest();
            let rules = self.replacement_rules.drain(..).filter_map(RuleSlot::new);
            trace.note(
                rules,
                (direction, end - rest.len() as u64),
                &rest[..count.min(rest.len())],
                replacement,
            );
        }
        self.sink.replace(count, replacement);
    }

    fn set_rules(&mut self, rules: &[u32]) {
        if self.trace.is_some() {
            self.replacement_rules.clear();
            self.replacement_rules.extend(rules.iter().copied());
        }
    }

    fn hit(&mut self, rule: u32, end: usize) {
        let (direction, offset, _) = self.place;
        if let Some(slot) = RuleSlot::new(rule) {
            self.rules.count_edit(Fired { slot, direction, end: offset + end as u64 });
        }
    }

    fn note(&mut self, note: HttpNote) {
        self.counters.count_not_applied(not_applied(note));
        if let HttpNote::UnfitPassed(reason) = note {
            let (direction, _, end) = self.place;
            *self.unfit_message = Some(UnfitMessage { direction, end, reason, passes: true });
        }
    }
}
