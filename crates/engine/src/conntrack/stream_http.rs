//! HTTP in streams: each connection with rules on HTTP has an editor, which decides about all of its bytes.
//!
//! A message keeps the rules with which it began. After a change of policy, a connection keeps its rules
//! until no message is in progress ([`HttpGenerations`]).

use super::http_generations::{GenerationTools, HttpGenerations};
use super::info::HTTP_RECORD_BYTES;
use super::rule_sets::MAX_RULES;
use super::stream_pools::Exchanged;
use arrayvec::ArrayVec;
use mmb_base::{Chunks, Id, Slab, id_types};
use mmb_classify::RuleSlot;
use mmb_httpedit::{Held, HttpEditor, HttpMemory, HttpNote, HttpRules};
use mmb_rewrite::NotApplied;
use mmb_scan::Scanner;
use std::collections::TryReserveError;
use std::sync::Arc;

id_types! {
    /// The HTTP state of a connection with rules on HTTP.
    pub(super) struct HttpId;
}

const _: () = assert!(size_of::<HttpMessages>() as u64 <= HTTP_RECORD_BYTES);

/// The HTTP state of one connection.
#[derive(Debug, Default)]
pub(super) struct HttpMessages {
    pub(super) editor: Option<HttpEditor>,
    /// The generation of its rules, and the indexes of its rules in that generation.
    generation: u32,
    own: ArrayVec<u32, MAX_RULES>,
    /// By direction: the reason for which bytes are held.
    pub(super) held: [Option<Held>; 2],
    /// By direction: the editor's count of message borders when `held` was set.
    borders: [u32; 2],
}

/// What all connections of a worker share.
#[derive(Debug, Default)]
pub(super) struct HttpWork {
    messages: Slab<HttpId, HttpMessages, Chunks<HttpMessages, 16>>,
    generations: HttpGenerations,
    memory: Option<Box<HttpMemory>>,
}

/// What one call of an editor works with.
pub(super) struct EditorCall<'w> {
    pub(super) editor: &'w mut HttpEditor,
    pub(super) held: &'w mut [Option<Held>; 2],
    pub(super) borders: &'w mut [u32; 2],
    pub(super) rules: &'w HttpRules,
    /// The connection's rules.
    pub(super) own: &'w [u32],
    pub(super) scanner: &'w mut Scanner,
    pub(super) memory: &'w mut HttpMemory,
    /// Messages in progress have lost their rules.
    pub(super) has_lost_rules: bool,
}

impl HttpWork {
    /// Adopts the rules of a policy, and the memory for them.
    pub(super) fn configure(
        &mut self,
        rules: Option<&Arc<HttpRules>>,
        generation: u64,
        exchanged: &mut Exchanged,
    ) {
        if self.memory.is_none() {
            self.memory = exchanged.offer.http_memory.take();
        }
        self.generations.configure(rules, !self.messages.is_empty(), generation, exchanged);
    }

    /// The used bytes of the pools of its scanners.
    pub(super) fn touched(&self) -> u64 {
        self.generations.touched()
    }

    /// Reserves memory for one more connection.
    pub(super) fn reserve(&mut self) -> Result<(), TryReserveError> {
        self.messages.try_reserve()
    }

    /// Adds a connection. The memory must have been reserved.
    pub(super) fn open(&mut self) -> HttpId {
        self.messages.insert(HttpMessages::default())
    }

    /// Removes a connection.
    pub(super) fn close(&mut self, id: HttpId) {
        let messages = self.messages.remove(id);
        if let Some(mut editor) = messages.editor {
            self.generations.leave(messages.generation).into_iter().for_each(|scanner| editor.close(scanner));
        }
    }

    /// Whether the policy has rules on HTTP, or connections still use rules on HTTP of an earlier policy.
    pub(super) fn has_rules(&self) -> bool {
        self.generations.has_rules()
    }

    /// What a call of a connection's editor works with. `live` are the rules of the policy that the
    /// connection has. With `must_decide`, no byte may be held until other messages end. Returns `None` if
    /// memory is exhausted.
    pub(super) fn editor_call(
        &mut self,
        id: HttpId,
        live: &[RuleSlot],
        must_decide: bool,
    ) -> Option<EditorCall<'_>> {
        let HttpWork { messages, generations, memory } = self;
        let messages = &mut messages[id];
        let mut has_lost_rules = false;
        match &mut messages.editor {
            Some(editor) if !generations.is_current(messages.generation) => {
                let is_between = editor.is_between_messages();
                match generations.rules(messages.generation).filter(|_| !is_between) {
                    Some(rules) => {
                        let is_gone = |index: &u32| {
                            let slot = rules.number(*index).and_then(RuleSlot::new);
                            slot.is_none_or(|slot| !live.contains(&slot))
                        };
                        let gone = messages.own.iter().map(is_gone).enumerate();
                        let gone = gone.fold(0, |bits, (place, gone)| bits | u128::from(gone) << place);
                        editor.expire(gone, !must_decide);
                    }
                    None => {
                        has_lost_rules = !is_between && !messages.own.is_empty();
                        generations.leave(messages.generation);
                        (messages.generation, messages.own) = generations.enter(live)?;
                        editor.change_rules(messages.own.len());
                    }
                }
            }
            Some(_) => {}
            None => {
                (messages.generation, messages.own) = generations.enter(live)?;
                let rules = generations.rules(messages.generation)?;
                messages.editor = Some(HttpEditor::new(rules, messages.own.len()));
            }
        }
        let HttpMessages { editor: Some(editor), generation, own, held, borders } = messages else {
            return None;
        };
        let GenerationTools { rules, scanner } = generations.tools(*generation)?;
        let memory = memory.as_deref_mut()?;
        Some(EditorCall { editor, held, borders, rules, own, scanner, memory, has_lost_rules })
    }

    /// Whether a message leaves in another framing than it arrived.
    pub(super) fn has_own_framing(&self, id: HttpId) -> bool {
        self.messages[id].editor.as_ref().is_some_and(HttpEditor::has_own_framing)
    }

    /// Whether a direction waits for the other one, and a message border in the other one has passed since.
    pub(super) fn may_resume(&self, id: HttpId, direction: usize) -> bool {
        let HttpMessages { editor, held, borders, .. } = &self.messages[id];
        held[direction] == Some(Held::Other)
            && editor.as_ref().is_some_and(|editor| editor.may_resume(borders[direction]))
    }
}

/// The counter of a note.
pub(super) fn not_applied(note: HttpNote) -> NotApplied {
    match note {
        HttpNote::UnfitPassed(_) => NotApplied::HttpUnfit,
        HttpNote::NoRoom => NotApplied::HttpNoRoom,
        HttpNote::EncodedBody => NotApplied::HttpEncodedBody,
        HttpNote::PartialBody => NotApplied::HttpPartialBody,
        HttpNote::NoTransform => NotApplied::HttpNoTransform,
        HttpNote::LongBody => NotApplied::HttpLongBody,
        HttpNote::SlowBody => NotApplied::HttpSlowBody,
        HttpNote::LostTail => NotApplied::HttpLostTail,
        HttpNote::Surplus => NotApplied::HttpSurplus,
        HttpNote::RulesChanged => NotApplied::HttpRulesChanged,
        HttpNote::LongHead => NotApplied::HttpLongHead,
        HttpNote::BadValue => NotApplied::HttpBadValue,
    }
}
