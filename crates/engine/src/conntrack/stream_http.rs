//! Rules on HTTP in the life of streams: each connection with such rules has an editor, which decides about all of its bytes.
//!
//! Messages keep the rules that they began with: after a change, a connection goes on with the rules that it has until no message is under way
//! ([`HttpGenerations`]).

use super::http_generations::{HttpGenerations, InForce};
use super::info::HTTP_RECORD_BYTES;
use super::rule_sets::MOST_RULES;
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
    /// The messages of a connection with rules on HTTP.
    pub(super) struct HttpId;
}

const _: () = assert!(size_of::<HttpMessages>() as u64 <= HTTP_RECORD_BYTES);

/// The messages of one connection.
#[derive(Debug, Default)]
pub(super) struct HttpMessages {
    pub(super) editor: Option<HttpEditor>,
    /// The rules that it has: their generation, and which of these.
    generation: u32,
    own: ArrayVec<u32, MOST_RULES>,
    /// What each direction is held for.
    pub(super) held: [Option<Held>; 2],
    /// The borders of messages when that was found.
    borders: [u32; 2],
}

/// What the connections of a worker share.
#[derive(Debug, Default)]
pub(super) struct HttpWork {
    messages: Slab<HttpId, HttpMessages, Chunks<HttpMessages, 16>>,
    generations: HttpGenerations,
    memory: Option<Box<HttpMemory>>,
}

/// What one call of an editor works with.
pub(super) struct HttpTurn<'w> {
    pub(super) editor: &'w mut HttpEditor,
    pub(super) held: &'w mut [Option<Held>; 2],
    pub(super) borders: &'w mut [u32; 2],
    pub(super) rules: &'w HttpRules,
    /// The connection's rules.
    pub(super) own: &'w [u32],
    pub(super) scanner: &'w mut Scanner,
    pub(super) memory: &'w mut HttpMemory,
    /// Messages that were under way have lost their rules.
    pub(super) has_lost_rules: bool,
}

impl HttpWork {
    /// Adopts what the rules of a policy need.
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

    /// Bytes of the pools of its scanners that were used.
    pub(super) fn touched(&self) -> u64 {
        self.generations.touched()
    }

    /// Gets the memory for one more connection.
    pub(super) fn reserve(&mut self) -> Result<(), TryReserveError> {
        self.messages.try_reserve()
    }

    /// Begins with a connection; memory was reserved.
    pub(super) fn open(&mut self) -> HttpId {
        self.messages.insert(HttpMessages::default())
    }

    /// Ends with a connection.
    pub(super) fn close(&mut self, id: HttpId) {
        let messages = self.messages.remove(id);
        if let Some(mut editor) = messages.editor {
            self.generations.leave(messages.generation).into_iter().for_each(|scanner| editor.close(scanner));
        }
    }

    /// Whether there are, or were, rules.
    pub(super) fn has_rules(&self) -> bool {
        self.generations.has_rules()
    }

    /// What a connection works with that has these rules of the policy. `must_decide` says that no byte may be held for other messages. `None` without
    /// memory.
    pub(super) fn turn(&mut self, id: HttpId, live: &[RuleSlot], must_decide: bool) -> Option<HttpTurn<'_>> {
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
        let InForce { rules, scanner } = generations.of(*generation)?;
        let memory = memory.as_deref_mut()?;
        Some(HttpTurn { editor, held, borders, rules, own, scanner, memory, has_lost_rules })
    }

    /// Whether a message leaves in another framing than it came in.
    pub(super) fn is_within_message(&self, id: HttpId) -> bool {
        self.messages[id].editor.as_ref().is_some_and(HttpEditor::has_own_framing)
    }

    /// Whether a direction waits for what the other one brings, and that has brought a border of messages since.
    pub(super) fn may_go_on(&self, id: HttpId, direction: usize) -> bool {
        let HttpMessages { editor, held, borders, .. } = &self.messages[id];
        held[direction] == Some(Held::Other)
            && editor.as_ref().is_some_and(|editor| editor.may_go_on(borders[direction]))
    }
}

/// How a note is counted.
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
