//! Rules on HTTP in the life of streams: each connection with such rules has an editor, which decides about all of its bytes.

use super::stream_search::{Fired, StreamSearch};
use arrayvec::ArrayVec;
use mmb_base::{Chunks, Id, Slab, id_types};
use mmb_classify::RuleSlot;
use mmb_http::HttpDirection;
use mmb_httpedit::{
    EditOutput, Held, HttpEditor, HttpInput, HttpMemory, HttpNote, HttpProgress, HttpRules, HttpTools,
    MOST_LIVE_RULES,
};
use mmb_rewrite::NotApplied;
use mmb_scan::Scanner;
use mmb_stream::{EditSink, Undecided};
use std::ops::ControlFlow;
use std::sync::Arc;

id_types! {
    /// The messages of a connection with rules on HTTP.
    pub(super) struct HttpId;
}

/// For how long a head, or a message whose length must be known before it leaves, is waited for.
const WHOLE_MS: u32 = 5000;

/// The messages of one connection.
#[derive(Debug, Default)]
pub(super) struct HttpMessages {
    editor: Option<HttpEditor>,
    /// The rules that it has, by the number of their set.
    rules: u32,
    /// What each direction is held for.
    held: [Option<Held>; 2],
}

/// What the connections of a worker share.
#[derive(Debug, Default)]
pub(super) struct HttpWork {
    pub(super) messages: Slab<HttpId, HttpMessages, Chunks<HttpMessages, 16>>,
    rules: Option<Arc<HttpRules>>,
    /// Grows when the rules change.
    number: u32,
    scanner: Option<Scanner>,
    pool_bytes: usize,
    memory: Option<Box<HttpMemory>>,
}

impl HttpWork {
    /// Gets what the rules of a policy need: not for the packet path.
    pub(super) fn configure(
        &mut self,
        rules: Option<&Arc<HttpRules>>,
        streams: usize,
        scratch: &mut mmb_scan::EditScratch,
    ) {
        let is_same = match (&self.rules, rules) {
            (Some(before), Some(rules)) => Arc::ptr_eq(before, rules),
            (before, rules) => before.is_none() && rules.is_none(),
        };
        if is_same {
            return;
        }
        self.number = self.number.wrapping_add(1);
        if rules.is_none() && !self.messages.is_empty() {
            // A body that leaves in other framing goes on so.
            return;
        }
        self.rules = rules.cloned();
        let Some(rules) = &self.rules else { return };
        self.memory.get_or_insert_default();
        rules.edit_patterns().for_each(|patterns| scratch.prepare(patterns));
        let wanted = rules.sets().map(|set| set.pool_bytes(2 * streams)).sum::<usize>().max(1);
        if wanted > self.pool_bytes || self.scanner.is_none() {
            self.scanner = Scanner::new(wanted).ok();
            self.pool_bytes = wanted;
        }
        let Some(scanner) = &mut self.scanner else { return };
        let old: Vec<_> = scanner
            .sets()
            .filter(|old| rules.sets().all(|set| set.digest() != old.digest()))
            .cloned()
            .collect();
        old.iter().for_each(|set| drop(scanner.release(set)));
        // Without memory for a set, bodies are refused when they are scanned.
        rules.sets().for_each(|set| drop(scanner.prepare(set)));
    }

    /// Begins with a connection; `None` without memory.
    pub(super) fn open(&mut self) -> Option<HttpId> {
        self.messages.try_reserve().ok()?;
        Some(self.messages.insert(HttpMessages::default()))
    }

    /// Ends with a connection.
    pub(super) fn close(&mut self, id: HttpId) {
        let messages = self.messages.remove(id);
        if let (Some(mut editor), Some(scanner)) = (messages.editor, &mut self.scanner) {
            editor.close(scanner);
        }
    }

    /// Whether a message leaves in another framing than it came in.
    pub(super) fn is_within_message(&self, id: HttpId) -> bool {
        self.messages[id].editor.as_ref().is_some_and(HttpEditor::has_own_framing)
    }

    /// Whether a direction waits for what the other one brings.
    pub(super) fn waits_for_other(&self, id: HttpId, direction: usize) -> bool {
        self.messages[id].held[direction] == Some(Held::Other)
    }
}

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
        let HttpWork { messages, rules, number, scanner, memory, .. } = &mut tools.http;
        let (Some(rules), Some(scanner), Some(memory)) =
            (rules.as_deref(), scanner.as_mut(), memory.as_deref_mut())
        else {
            // The policy has no rules on HTTP any more.
            sink.pass(bytes.len());
            return ControlFlow::Continue(());
        };
        let mut own: ArrayVec<u32, MOST_LIVE_RULES> =
            live.iter().filter_map(|slot| rules.index_of(slot.number())).take(MOST_LIVE_RULES).collect();
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
        let mut out = HttpSink { sink, hits: ArrayVec::new(), notes: ArrayVec::new() };
        let progress = editor.edit(&mut http, input, &mut out);
        let HttpSink { hits, notes, .. } = out;
        messages.held[direction] = if let HttpProgress::Held(held) = progress { Some(held) } else { None };
        notes.into_iter().for_each(|note| self.count_note(note));
        for (rule, end) in hits {
            if let Some(slot) = RuleSlot::new(rule) {
                self.count_edit(Fired { slot, direction, end: offset + end as u64 });
            }
        }
        match progress {
            HttpProgress::All | HttpProgress::Opaque => ControlFlow::Continue(()),
            // Nothing is undecided for longer: what was not read must not pass.
            HttpProgress::Held(_) if is_end || waited_ms == Some(u32::MAX) => {
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

/// How a note is counted.
pub(super) fn not_applied(note: HttpNote) -> NotApplied {
    match note {
        HttpNote::UnfitPassed(_) => NotApplied::HttpUnfit,
        HttpNote::EncodedBody => NotApplied::HttpEncodedBody,
        HttpNote::PartialBody => NotApplied::HttpPartialBody,
        HttpNote::NoTransform => NotApplied::HttpNoTransform,
        HttpNote::LongBody => NotApplied::HttpLongBody,
        HttpNote::SlowBody => NotApplied::HttpSlowBody,
        HttpNote::LostTail => NotApplied::HttpLostTail,
        HttpNote::LongHead => NotApplied::HttpLongHead,
        HttpNote::BadValue => NotApplied::HttpBadValue,
    }
}
