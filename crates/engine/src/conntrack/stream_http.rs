//! Rules on HTTP in the life of streams: each connection with such rules has an editor, which decides about all of its bytes.

use mmb_base::{Chunks, Slab, id_types};
use mmb_httpedit::{Held, HttpEditor, HttpMemory, HttpNote, HttpRules};
use mmb_rewrite::NotApplied;
use mmb_scan::Scanner;
use std::collections::TryReserveError;
use std::sync::Arc;

id_types! {
    /// The messages of a connection with rules on HTTP.
    pub(super) struct HttpId;
}

/// The messages of one connection.
#[derive(Debug, Default)]
pub(super) struct HttpMessages {
    pub(super) editor: Option<HttpEditor>,
    /// The rules that it has, by the number of their set.
    pub(super) rules: u32,
    /// What each direction is held for.
    pub(super) held: [Option<Held>; 2],
}

/// What the connections of a worker share.
#[derive(Debug, Default)]
pub(super) struct HttpWork {
    pub(super) messages: Slab<HttpId, HttpMessages, Chunks<HttpMessages, 16>>,
    pub(super) rules: Option<Arc<HttpRules>>,
    /// Grows when the rules change.
    pub(super) number: u32,
    pub(super) scanner: Option<Scanner>,
    pool_bytes: usize,
    pub(super) memory: Option<Box<HttpMemory>>,
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
