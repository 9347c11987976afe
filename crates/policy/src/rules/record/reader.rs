//! Reads records.

use super::forms::{
    ACCEPT, ADD_BODY, ADD_HEADER, ADD_OPTION, ALERT, ALERT_TEXT, BYTES, CLOSE, CONDS, DIGEST, DROP, DROP_ALL,
    FIRST_TEST, HAS_BURST, HAS_KEY, HAS_NAME, HAS_PRIO, HEADER, HELPER, KEEP, KEEP_HEADER, LIMIT, LIST, LOG,
    LOG_TEXT, MAP, MASK, MOD_BYTES, MOD_HEADER, MOD_HTTP, MOD_NUMBER, MOD_STREAM, NAMED_SET, NEGATED,
    NUMBERS, PART_BYTES, PATTERNS, PERIOD, PORT, PREFIX, PRESENT, RANGE, REGEX_OF_EITHER_CASE, REJECT,
    REJECT_ICMP, REJECT_ICMP6, REJECT_RST, SHUFFLE, SHUFFLE_RANGE, STRIP, STRIP_ALL, STRIP_HEADER,
    STRIP_STREAM, TEXT, WEIGHTED,
};
use crate::field::{FIELDS, Field, FieldId, FieldPlace};
use crate::http::{HeaderName, Replacement, ReplacementPart};
use crate::limit::{Limit, LimitKey, LimitPeriod, LimitUnit};
use crate::pattern::{PatternItem, Regex};
use crate::rule::{
    Cond, DEFAULT_PRIO, DropRate, Equality, Helper, LbMethod, Match, NumberItem, NumberSet, Prio, Reject,
    ServerList, StreamEdit, Target, Test, Write,
};

/// The rest of a record.
pub(super) struct RecordReader<'r>(pub(super) &'r [u8]);

impl<'r> RecordReader<'r> {
    fn take(&mut self, len: usize) -> &'r [u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    pub(super) fn byte(&mut self) -> u8 {
        self.take(1)[0]
    }

    fn count(&mut self) -> usize {
        let (mut count, mut shift) = (0, 0);
        loop {
            let byte = self.byte();
            count |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return count;
            }
        }
    }

    fn bytes(&mut self) -> &'r [u8] {
        let len = self.count();
        self.take(len)
    }

    pub(super) fn several<T>(&mut self, one: impl Fn(&mut Self) -> T) -> Vec<T> {
        (0..self.count()).map(|_| one(self)).collect()
    }

    pub(super) fn prio(&mut self, flags: u8) -> Prio {
        if flags & HAS_PRIO != 0 { self.count() as Prio } else { DEFAULT_PRIO }
    }

    pub(super) fn name(&mut self, flags: u8) -> Option<&'r [u8]> {
        (flags & HAS_NAME != 0).then(|| self.bytes())
    }

    fn number(&mut self, len: u8) -> u128 {
        self.take(len.into()).iter().fold(0, |n, &byte| n << 8 | u128::from(byte))
    }

    fn item(&mut self, form: u8) -> NumberItem {
        match form {
            ..RANGE => NumberItem::One(self.number(form)),
            RANGE..PREFIX => {
                let first = self.number(form - RANGE);
                let len = self.byte();
                NumberItem::Range(first, self.number(len))
            }
            _ => {
                let first = self.number(form - PREFIX);
                NumberItem::Prefix(first, self.byte())
            }
        }
    }

    fn items(&mut self) -> NumberSet {
        NumberSet(self.several(|reader| {
            let form = reader.byte();
            reader.item(form)
        }))
    }

    /// A field, and whether [`NEGATED`] stood beside it.
    fn field(&mut self) -> (Field, bool) {
        let byte = self.byte();
        let id: FieldId = FIELDS[usize::from(byte & !NEGATED)].id;
        let kind = if id.info().place == FieldPlace::NamedOption { self.byte() } else { 0 };
        (Field { id, kind }, byte & NEGATED != 0)
    }

    pub(super) fn constraint(&mut self) -> Match {
        let (field, negated) = self.field();
        let equality = |ne: bool| if ne { Equality::Ne } else { Equality::Eq };
        let test = match self.byte() {
            form @ ..FIRST_TEST => Test::Number(Cond::Eq, NumberSet(vec![self.item(form)])),
            PRESENT => Test::Present,
            form @ PORT..BYTES => {
                Test::Port(equality(form != PORT), self.several(|reader| text(reader.bytes())))
            }
            form @ BYTES..NUMBERS => {
                Test::Bytes(equality(form != BYTES), self.several(|reader| reader.bytes().to_vec()))
            }
            PATTERNS => Test::Patterns(self.several(RecordReader::pattern)),
            HEADER => {
                let name = self.header_name();
                Test::Header(name, self.several(RecordReader::pattern))
            }
            form @ NAMED_SET.. => Test::NamedSet(equality(form != NAMED_SET), text(self.bytes())),
            form => Test::Number(CONDS[usize::from(form - NUMBERS)], self.items()),
        };
        Match { negated, field, test }
    }

    fn pattern(&mut self) -> PatternItem {
        let kind = self.byte();
        let bytes = self.bytes();
        match kind {
            TEXT => PatternItem::Text(bytes.to_vec()),
            LIST => PatternItem::List(text(bytes)),
            kind => {
                PatternItem::Regex(Regex { source: text(bytes), ignores_case: kind == REGEX_OF_EITHER_CASE })
            }
        }
    }

    pub(super) fn target(&mut self) -> Target {
        match self.byte() {
            DROP_ALL => Target::Drop(DropRate::ALL),
            DROP => Target::Drop(DropRate(self.count() as u32)),
            ACCEPT => Target::Accept,
            ADD_OPTION => Target::AddOption(self.byte(), self.bytes().to_vec()),
            STRIP => Target::Strip(self.byte()),
            KEEP => Target::Keep(self.byte()),
            STRIP_ALL => Target::StripAll,
            LOG => Target::Log(None),
            LOG_TEXT => Target::Log(Some(text(self.bytes()))),
            ALERT => Target::Alert(None),
            ALERT_TEXT => Target::Alert(Some(text(self.bytes()))),
            CLOSE => Target::Close,
            DIGEST => Target::Digest,
            REJECT => Target::Reject(Reject::Usual),
            REJECT_RST => Target::Reject(Reject::TcpRst),
            REJECT_ICMP => Target::Reject(Reject::Icmp(self.byte())),
            REJECT_ICMP6 => Target::Reject(Reject::Icmp6(self.byte())),
            LIMIT => Target::Limit(self.limit()),
            HELPER => Target::Helper(Helper::ALL[usize::from(self.byte())]),
            form @ MASK..=ADD_BODY => Target::Edit(self.edit(form)),
            form => self.field_target(form),
        }
    }

    fn limit(&mut self) -> Limit {
        let form = self.byte();
        let (unit, period) = (usize::from(form & 3), usize::from(form >> PERIOD & 3));
        let amount = self.count() as u64;
        let burst = (form & HAS_BURST != 0).then(|| self.count() as u64);
        let per = (form & HAS_KEY != 0).then(|| (self.field().0.id, self.byte()));
        let per = per.and_then(|(field, prefix)| LimitKey::new(field, Some(prefix)));
        Limit { amount, unit: LimitUnit::ALL[unit], period: LimitPeriod::ALL[period], burst, per }
    }

    fn edit(&mut self, form: u8) -> StreamEdit {
        let (field, _) = self.field();
        match form {
            MASK => StreamEdit::Mask(field, self.bytes().to_vec()),
            MOD_STREAM => StreamEdit::Mod(field, self.replacement()),
            STRIP_STREAM => StreamEdit::Strip(field),
            MOD_HTTP => StreamEdit::ModHttp(field, self.replacement()),
            MOD_HEADER => StreamEdit::ModHeader(self.header_name(), self.replacement()),
            ADD_HEADER => StreamEdit::AddHeader(self.header_name(), self.bytes().to_vec()),
            STRIP_HEADER => StreamEdit::StripHeader(self.header_name()),
            KEEP_HEADER => StreamEdit::KeepHeader(self.header_name()),
            _ => StreamEdit::AddBody(self.bytes().to_vec()),
        }
    }

    fn header_name(&mut self) -> HeaderName {
        HeaderName::of_record(&text(self.bytes()))
    }

    fn replacement(&mut self) -> Replacement {
        Replacement::new(self.several(|reader| match reader.byte() {
            PART_BYTES => ReplacementPart::Bytes(reader.bytes().to_vec()),
            _ => ReplacementPart::Matched,
        }))
    }

    fn field_target(&mut self, form: u8) -> Target {
        let (field, _) = self.field();
        match form {
            MOD_NUMBER => {
                let len = self.byte();
                Target::Mod(field, Write::Number(self.number(len)))
            }
            MOD_BYTES => Target::Mod(field, Write::Bytes(self.bytes().to_vec())),
            MAP => Target::Map(field, self.items()),
            SHUFFLE => Target::Shuffle(field, None),
            SHUFFLE_RANGE => {
                let len = self.byte() - RANGE;
                let first = self.number(len);
                let len = self.byte();
                Target::Shuffle(field, Some((first, self.number(len))))
            }
            _ => {
                let method = self.byte();
                let items = self.items();
                let weights = if method & WEIGHTED == 0 { 0 } else { items.0.len() };
                let weights = (0..weights).map(|_| self.byte()).collect();
                let method = LbMethod::ALL[usize::from(method & !WEIGHTED)];
                Target::Lb(field, ServerList::new(items, weights), method)
            }
        }
    }
}

/// Reads a `String`.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
