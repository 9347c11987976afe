//! Decisions about the messages of a connection with rules on HTTP.

use super::stream_http::{HttpId, HttpTurn};
use super::stream_search::{Fired, StreamSearch};
use arrayvec::ArrayVec;
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_http::HttpDirection;
use mmb_httpedit::{EditOutput, Held, HttpInput, HttpNote, HttpProgress, HttpTools};
use mmb_stream::{EditPatience, EditSink, LONG_MS, Undecided};
use std::ops::ControlFlow;

impl StreamSearch<'_> {
    /// Decides about bytes of a connection with rules on HTTP.
    pub(super) fn edit_messages(
        &mut self,
        id: HttpId,
        undecided: Undecided<'_>,
        sink: &mut EditSink<'_>,
    ) -> ControlFlow<()> {
        let Undecided { direction, offset, bytes, is_end, waited_ms, .. } = undecided;
        let live = self.live();
        let hold_ms = self.snapshot().stream_settings.hold_ms;
        let tools = self.tools();
        if !tools.http.has_rules() {
            sink.pass(bytes.len());
            return ControlFlow::Continue(());
        }
        let must_decide = is_end || waited_ms == Some(u32::MAX);
        let Some(turn) = tools.http.turn(id, live, must_decide) else {
            self.has_no_room = true;
            return ControlFlow::Break(());
        };
        let HttpTurn { editor, held, rules, own, scanner, memory, has_lost_rules } = turn;
        let limit_ms = match held[direction] {
            // A head, or a message whose length must be known before it leaves.
            Some(Held::Head | Held::Whole) => LONG_MS,
            Some(Held::Match) | None => hold_ms,
            Some(Held::Other) => u32::MAX,
        };
        let release =
            hold_ms == 0 && limit_ms == 0 || waited_ms.is_some_and(|waited_ms| waited_ms >= limit_ms);
        let input = HttpInput {
            direction: if direction == 0 { HttpDirection::Requests } else { HttpDirection::Responses },
            bytes,
            is_end,
            release,
        };
        let mut http = HttpTools { rules, live: own, scanner, scratch: &mut tools.edit_scratch, memory };
        let mut out = HttpSink { sink, hits: ArrayVec::new(), notes: ArrayVec::new() };
        let progress = editor.edit(&mut http, input, &mut out);
        let HttpSink { hits, notes, .. } = out;
        held[direction] = if let HttpProgress::Held(held) = progress { Some(held) } else { None };
        sink.wait(match held[direction] {
            Some(Held::Head | Held::Whole) => EditPatience::Long,
            Some(Held::Other) => EditPatience::Unbounded,
            Some(Held::Match) | None => EditPatience::Hold,
        });
        let lost = has_lost_rules.then_some(HttpNote::RulesChanged);
        notes.into_iter().chain(lost).for_each(|note| self.count_note(note));
        for (rule, end) in hits {
            if let Some(slot) = RuleSlot::new(rule) {
                self.count_edit(Fired { slot, direction, end: offset + end as u64 });
            }
        }
        match progress {
            HttpProgress::All | HttpProgress::Opaque => ControlFlow::Continue(()),
            // Nothing is undecided for longer: what was not read must not pass.
            HttpProgress::Held(_) if must_decide => {
                self.is_unfit = true;
                ControlFlow::Break(())
            }
            HttpProgress::Held(_) => ControlFlow::Continue(()),
            HttpProgress::Ended(rule) => {
                if let Some(slot) = RuleSlot::new(rule) {
                    self.decide_for(Fired { slot, direction, end: offset + bytes.len() as u64 });
                }
                ControlFlow::Break(())
            }
            HttpProgress::Unfit(_) => {
                self.is_unfit = true;
                ControlFlow::Break(())
            }
            HttpProgress::NoRoom => {
                self.has_no_room = true;
                ControlFlow::Break(())
            }
        }
    }
}

/// Hits and notes of one call; more are not told.
const TOLD: usize = 64;

/// Gives decisions to a stream, and gathers what is to be counted.
struct HttpSink<'h, 's> {
    sink: &'h mut EditSink<'s>,
    hits: ArrayVec<(u32, usize), TOLD>,
    notes: ArrayVec<HttpNote, TOLD>,
}

impl EditOutput for HttpSink<'_, '_> {
    fn pass(&mut self, count: usize) {
        self.sink.pass(count);
    }

    fn replace(&mut self, count: usize, by: &[u8]) {
        self.sink.replace(count, by);
    }

    fn hit(&mut self, rule: u32, offset: usize) {
        let _ = self.hits.try_push((rule, offset));
    }

    fn note(&mut self, note: HttpNote) {
        let _ = self.notes.try_push(note);
    }
}
