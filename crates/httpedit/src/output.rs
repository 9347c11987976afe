//! What an editor decides, and how changes become replacements of input bytes.

use arrayvec::ArrayVec;
use mmb_http::HttpUnfit;

/// The rules that are named of one replacement; further ones are not.
pub const MAX_NAMED_RULES: usize = 8;

/// Takes what an editor decides about the undecided bytes of a direction, from the first one on.
pub trait EditOutput {
    /// The next `count` bytes go on as they are.
    fn pass(&mut self, count: usize);

    /// The next `count` bytes, at least one, are replaced by others, which may be none.
    fn replace(&mut self, count: usize, replacement: &[u8]);

    /// The rules, by the caller's numbers, that make the replacement that is told next: each one once, at most [`MAX_NAMED_RULES`]. Not called for
    /// changes that no rule asks for, as those of framing.
    fn set_rules(&mut self, _rules: &[u32]) {}

    /// A rule, by the caller's number, is met by bytes that end at `offset` of those that the editor was shown; or edits them.
    fn hit(&mut self, rule: u32, offset: usize);

    /// Something is to be counted.
    fn note(&mut self, note: HttpNote);
}

/// What an editor tells besides edits, to be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HttpNote {
    /// A connection whose bytes are not read as HTTP/1.x passes from there on, by `http unfit pass` or since its rules only report.
    UnfitPassed(HttpUnfit),
    /// The memory for the state of a scan is used up: a connection whose rules only report passes from here on.
    NoRoom,
    /// A body passes unedited: it has a content coding.
    EncodedBody,
    /// A body passes unedited: it is a part of another one.
    PartialBody,
    /// A body passes unedited: `Cache-Control: no-transform`.
    NoTransform,
    /// A body passes unedited: its length must be known before, and it is longer than can be held, or would become so.
    LongBody,
    /// A body passes unedited: its length must be known before, and it came too slowly.
    SlowBody,
    /// What `add http-body` adds is left out: the last byte of a body without a length had left before its end was known.
    LostTail,
    /// Bytes come after the response that ends the connection: they pass unsearched if the rules only report, else they are removed.
    /// Noted once a connection.
    Surplus,
    /// Messages of which a part has passed go on unedited, because their rules were removed. The caller of
    /// [`change_rules`](crate::HttpEditor::change_rules) reports it, not the editor.
    RulesChanged,
    /// A change of a head is left out: the head would become too long.
    LongHead,
    /// A change of a head is left out: the new value cannot stand there.
    BadValue,
}

impl HttpNote {
    /// A name for counters; notes about unfit connections have one name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            HttpNote::UnfitPassed(_) => "http-unfit-passed",
            HttpNote::NoRoom => "http-no-room",
            HttpNote::EncodedBody => "http-encoded-body",
            HttpNote::PartialBody => "http-partial-body",
            HttpNote::NoTransform => "http-no-transform",
            HttpNote::LongBody => "http-long-body",
            HttpNote::SlowBody => "http-slow-body",
            HttpNote::LostTail => "http-lost-tail",
            HttpNote::Surplus => "http-surplus",
            HttpNote::RulesChanged => "http-rules-changed",
            HttpNote::LongHead => "http-long-head",
            HttpNote::BadValue => "http-bad-value",
        }
    }
}

/// Makes decisions about input bytes of changes: bytes that are kept, dropped or inserted, in the order of the input. Neighbouring changes become one
/// replacement. An insertion is anchored to the byte before it, at the start to the one behind it.
pub(crate) struct Emitter<'e> {
    input: &'e [u8],
    /// Input bytes that are accounted for.
    at: usize,
    /// Of these, the last ones that are kept and not yet told.
    kept: usize,
    /// The last ones behind those that are replaced by `text`, and not yet told.
    replaced: usize,
    text: &'e mut Vec<u8>,
    /// The rules that ask for these changes.
    rules: ArrayVec<u32, MAX_NAMED_RULES>,
    out: &'e mut dyn EditOutput,
}

impl<'e> Emitter<'e> {
    /// Begins with the first byte of `input`. `text` is working memory.
    pub(crate) fn new(input: &'e [u8], text: &'e mut Vec<u8>, out: &'e mut dyn EditOutput) -> Emitter<'e> {
        text.clear();
        Emitter { input, at: 0, kept: 0, replaced: 0, text, rules: ArrayVec::new(), out }
    }

    /// The next input bytes stay.
    pub(crate) fn keep(&mut self, mut count: usize) {
        if count > 0 && self.replaced == 0 && !self.text.is_empty() {
            // Inserted in front of all bytes.
            self.text.push(self.input[self.at]);
            (self.at, self.replaced, count) = (self.at + 1, 1, count - 1);
        }
        if count > 0 {
            self.tell_replaced();
            self.at += count;
            self.kept += count;
        }
    }

    /// The next input bytes go.
    pub(crate) fn drop(&mut self, count: usize) {
        if count > 0 {
            self.tell_kept();
            self.at += count;
            self.replaced += count;
        }
    }

    /// These bytes come in front of the next input byte.
    pub(crate) fn insert(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.kept > 0 {
            self.kept -= 1;
            self.tell_kept();
            self.replaced = 1;
            self.text.push(self.input[self.at - 1]);
        }
        self.text.extend_from_slice(bytes);
    }

    /// A rule asks for the next change; 0 for none.
    pub(crate) fn add_rule(&mut self, rule: u32) {
        if rule != 0 && !self.rules.contains(&rule) {
            let _ = self.rules.try_push(rule);
        }
    }

    /// Tells what is not yet told.
    pub(crate) fn flush(&mut self) {
        self.tell_kept();
        self.tell_replaced();
        debug_assert!(self.text.is_empty(), "inserted without a byte to be anchored to");
    }

    /// The next input bytes.
    pub(crate) fn rest(&self) -> &'e [u8] {
        &self.input[self.at..]
    }

    /// The number of input bytes.
    pub(crate) fn input_len(&self) -> usize {
        self.input.len()
    }

    /// Input bytes that are accounted for.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// A rule edits, up to this place.
    pub(crate) fn hit(&mut self, rule: u32, offset: usize) {
        self.out.hit(rule, offset);
    }

    fn tell_kept(&mut self) {
        if self.kept > 0 {
            self.out.pass(self.kept);
            self.kept = 0;
        }
    }

    fn tell_replaced(&mut self) {
        if self.replaced > 0 {
            self.tell_kept();
            if !self.rules.is_empty() {
                self.out.set_rules(&self.rules);
                self.rules.clear();
            }
            self.out.replace(self.replaced, self.text);
            self.replaced = 0;
            self.text.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Record(Vec<(usize, Option<Vec<u8>>)>, Vec<Vec<u32>>);

    impl EditOutput for Record {
        fn pass(&mut self, count: usize) {
            self.0.push((count, None));
        }
        fn replace(&mut self, count: usize, replacement: &[u8]) {
            self.0.push((count, Some(replacement.to_vec())));
        }
        fn set_rules(&mut self, rules: &[u32]) {
            self.1.push(rules.to_vec());
        }
        fn hit(&mut self, _: u32, _: usize) {}
        fn note(&mut self, _: HttpNote) {}
    }

    fn emitted(edit: impl FnOnce(&mut Emitter<'_>)) -> Vec<(usize, Option<Vec<u8>>)> {
        let (mut record, mut text) = (Record::default(), Vec::new());
        let mut emitter = Emitter::new(b"abcdef", &mut text, &mut record);
        edit(&mut emitter);
        emitter.flush();
        record.0
    }

    #[test]
    fn insertions_are_anchored_to_bytes() {
        let between = emitted(|emitter| {
            emitter.keep(2);
            emitter.insert(b"X");
            emitter.keep(4);
        });
        assert_eq!(between, [(1, None), (1, Some(b"bX".to_vec())), (4, None)]);
        let before = emitted(|emitter| {
            emitter.insert(b"X");
            emitter.keep(6);
        });
        assert_eq!(before, [(1, Some(b"Xa".to_vec())), (5, None)]);
    }

    #[test]
    fn neighbouring_changes_are_one() {
        let changed = emitted(|emitter| {
            emitter.keep(1);
            emitter.drop(1);
            emitter.insert(b"X");
            emitter.drop(2);
            emitter.insert(b"Y");
            emitter.keep(2);
        });
        assert_eq!(changed, [(1, None), (3, Some(b"XY".to_vec())), (2, None)]);
        let all = emitted(|emitter| {
            emitter.insert(b"X");
            emitter.drop(6);
        });
        assert_eq!(all, [(6, Some(b"X".to_vec()))]);
    }

    #[test]
    fn replacements_name_their_rules() {
        let (mut record, mut text) = (Record::default(), Vec::new());
        let mut emitter = Emitter::new(b"abcdef", &mut text, &mut record);
        emitter.keep(1);
        for rule in [7, 9, 7] {
            emitter.add_rule(rule);
            emitter.drop(1);
        }
        emitter.keep(1);
        emitter.add_rule(0);
        emitter.insert(b"X");
        emitter.flush();
        assert_eq!(record.0, [(1, None), (3, Some(Vec::new())), (1, Some(b"eX".to_vec()))]);
        assert_eq!(record.1, [[7, 9]]);
    }

    #[test]
    fn what_goes_before_an_insertion_takes_it() {
        let changed = emitted(|emitter| {
            emitter.drop(2);
            emitter.keep(4);
        });
        assert_eq!(changed, [(2, Some(Vec::new())), (4, None)]);
    }
}
