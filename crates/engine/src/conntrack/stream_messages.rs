//! Decisions about the messages of a connection with rules on HTTP.

use super::stream_event::UnfitMessage;
use super::stream_http::{HttpId, HttpWork};
use super::stream_search::{Fired, StreamSearch};
use super::stream_trace::EditTrace;
use arrayvec::ArrayVec;
use mmb_base::Id;
use mmb_classify::RuleSlot;
use mmb_http::{HttpDirection, HttpUnfit};
use mmb_httpedit::{
    EditOutput, Held, HttpEditor, HttpInput, HttpNote, HttpProgress, HttpTools, MOST_LIVE_RULES, MOST_NAMED,
};
use mmb_stream::{EditSink, Undecided};
use std::ops::ControlFlow;

/// For how long a head, or a message whose length must be known before it leaves, is waited for.
const WHOLE_MS: u32 = 5000;

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
        let has_rules = self.snapshot().streams.http.is_some();
        let tools = self.tools();
        let HttpWork { messages, rules, number, scanner, memory, .. } = &mut tools.http;
        let Some(rules) = rules.as_deref() else {
            sink.pass(bytes.len());
            return ControlFlow::Continue(());
        };
        let (Some(scanner), Some(memory)) = (scanner.as_mut(), memory.as_deref_mut()) else {
            self.has_no_room = true;
            return ControlFlow::Break(());
        };
        // Rules that are kept for the framing of bodies only, match nothing.
        let mut own: ArrayVec<u32, MOST_LIVE_RULES> = match has_rules {
            true => {
                live.iter().filter_map(|slot| rules.index_of(slot.number())).take(MOST_LIVE_RULES).collect()
            }
            false => ArrayVec::new(),
        };
        own.sort_unstable();
        let messages = &mut messages[id];
        let editor = messages.editor.get_or_insert_with(|| HttpEditor::new(rules, own.len()));
        if std::mem::replace(&mut messages.rules, *number) != *number {
            editor.change_rules(own.len());
        }
        let limit_ms = match messages.held[direction] {
            Some(Held::Head | Held::Whole) => WHOLE_MS,
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
        let mut http = HttpTools { rules, live: &own, scanner, scratch: &mut tools.edit_scratch, memory };
        let traced = tools.trace.as_deref_mut().map(|trace| HttpTrace {
            trace,
            direction,
            offset,
            bytes,
            at: 0,
            by: ArrayVec::new(),
        });
        let mut out = HttpSink { sink, hits: ArrayVec::new(), notes: ArrayVec::new(), traced };
        let progress = editor.edit(&mut http, input, &mut out);
        let HttpSink { hits, notes, .. } = out;
        messages.held[direction] = if let HttpProgress::Held(held) = progress { Some(held) } else { None };
        let end = offset + bytes.len() as u64;
        for note in notes {
            self.count_note(note);
            if let HttpNote::UnfitPassed(reason) = note {
                self.unfit_message = Some(UnfitMessage { direction, end, reason, passes: true });
            }
        }
        for (rule, place) in hits {
            if let Some(slot) = RuleSlot::new(rule) {
                self.count_edit(Fired { slot, direction, end: offset + place as u64 });
            }
        }
        match progress {
            HttpProgress::All | HttpProgress::Opaque => ControlFlow::Continue(()),
            // Nothing is undecided for longer: what was not read must not pass.
            HttpProgress::Held(held) if is_end || waited_ms == Some(u32::MAX) => {
                let reason = match held {
                    Held::Other => HttpUnfit::TooManyRequests,
                    Held::Head | Held::Whole | Held::Match if is_end => HttpUnfit::UnfinishedHead,
                    Held::Head | Held::Whole | Held::Match => HttpUnfit::HeadTooLong,
                };
                self.refuse_message(UnfitMessage { direction, end, reason, passes: false })
            }
            HttpProgress::Held(_) => ControlFlow::Continue(()),
            HttpProgress::Ended(rule) => {
                if let Some(slot) = RuleSlot::new(rule) {
                    self.decide_for(Fired { slot, direction, end });
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
    /// A message must not go on.
    fn refuse_message(&mut self, message: UnfitMessage) -> ControlFlow<()> {
        self.is_unfit = true;
        self.unfit_message = Some(message);
        ControlFlow::Break(())
    }
}

/// Hits and notes of one call; more are not told.
const TOLD: usize = 64;

/// Gives decisions to a stream, and gathers what is to be counted.
struct HttpSink<'h, 's> {
    sink: &'h mut EditSink<'s>,
    hits: ArrayVec<(u32, usize), TOLD>,
    notes: ArrayVec<HttpNote, TOLD>,
    traced: Option<HttpTrace<'h>>,
}

/// Tells the edits of one call.
struct HttpTrace<'h> {
    trace: &'h mut EditTrace,
    direction: usize,
    offset: u64,
    bytes: &'h [u8],
    /// Bytes that are decided.
    at: usize,
    /// The rules of the next replacement.
    by: ArrayVec<u32, MOST_NAMED>,
}

impl HttpTrace<'_> {
    fn replace(&mut self, count: usize, by: &[u8]) {
        let removed = self.bytes.get(self.at..self.at + count).unwrap_or_default();
        let rules = self.by.drain(..).filter_map(RuleSlot::new);
        self.trace.note(rules, (self.direction, self.offset + self.at as u64), removed, by);
        self.at += count;
    }
}

impl EditOutput for HttpSink<'_, '_> {
    fn pass(&mut self, count: usize) {
        self.sink.pass(count);
        if let Some(traced) = &mut self.traced {
            traced.at += count;
        }
    }

    fn replace(&mut self, count: usize, by: &[u8]) {
        self.sink.replace(count, by);
        if let Some(traced) = &mut self.traced {
            traced.replace(count, by);
        }
    }

    fn made_by(&mut self, rules: &[u32]) {
        if let Some(traced) = &mut self.traced {
            traced.by.clear();
            traced.by.extend(rules.iter().copied());
        }
    }

    fn hit(&mut self, rule: u32, offset: usize) {
        let _ = self.hits.try_push((rule, offset));
    }

    fn note(&mut self, note: HttpNote) {
        let _ = self.notes.try_push(note);
    }
}
