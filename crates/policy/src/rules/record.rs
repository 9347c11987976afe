//! Rules as bytes: all of a rule but its number, in as few bytes as it needs.
//!
//! A record is: flags, then priority and name if the flags say so, the number of targets and the targets, the number of
//! constraints and the constraints. Targets stand first since some readers want only them. A constraint `tcp-dport 80`
//! is three bytes: field, form of the test, value.
//!
//! Every value has exactly one record, so that records are equal where rules are. Records are made here and never leave
//! the process: reading one trusts it.

use crate::field::{FIELDS, Field, FieldId, FieldPlace};
use crate::http::{HeaderName, Replacement, ReplacementPart};
use crate::limit::{Limit, LimitKey, LimitPeriod, LimitUnit};
use crate::pattern::{PatternItem, Regex};
use crate::rule::{
    Cond, DEFAULT_PRIO, DropRate, Equality, Helper, LbMethod, Match, NumberItem, NumberSet, Prio, Reject,
    Rule, RuleId, ServerList, StreamEdit, Target, Test, Write,
};

const STATEFUL: u8 = 1;
const HAS_PRIO: u8 = 2;
const HAS_NAME: u8 = 4;
const DRAINING: u8 = 8;
const NAMES_SETS: u8 = 16;

/// Set beside a field's number in constraints with `!`.
const NEGATED: u8 = 0x80;
const _: () = assert!(FIELDS.len() <= NEGATED as usize);

/// Forms of tests below this are the equality with a single item whose form it is.
const FIRST_TEST: u8 = PREFIX + 17;
const PRESENT: u8 = FIRST_TEST;
const PORT: u8 = FIRST_TEST + 1;
const BYTES: u8 = FIRST_TEST + 3;
const NUMBERS: u8 = FIRST_TEST + 5;
const PATTERNS: u8 = NUMBERS + 6;
const HEADER: u8 = PATTERNS + 1;
const NAMED_SET: u8 = HEADER + 1;

/// Forms of items: the kind, plus how many bytes of the first number follow.
const ONE: u8 = 0;
const RANGE: u8 = ONE + 17;
const PREFIX: u8 = RANGE + 17;

/// Kinds of patterns.
const TEXT: u8 = 0;
const REGEX: u8 = 1;
const REGEX_OF_EITHER_CASE: u8 = 2;
const LIST: u8 = 3;

const CONDS: [Cond; 6] = [Cond::Eq, Cond::Ne, Cond::Lt, Cond::Le, Cond::Gt, Cond::Ge];

const DROP_ALL: u8 = 0;
const DROP: u8 = 1;
const ACCEPT: u8 = 2;
const MOD_NUMBER: u8 = 3;
const MOD_BYTES: u8 = 4;
const ADD_OPTION: u8 = 5;
const STRIP: u8 = 6;
const KEEP: u8 = 7;
const STRIP_ALL: u8 = 8;
const MAP: u8 = 9;
const SHUFFLE: u8 = 10;
const SHUFFLE_RANGE: u8 = 11;
const LB: u8 = 12;
const ALERT: u8 = 13;
const ALERT_TEXT: u8 = 14;
const CLOSE: u8 = 15;
const DIGEST: u8 = 16;
const MASK: u8 = 17;
const MOD_STREAM: u8 = 18;
const STRIP_STREAM: u8 = 19;
const MOD_HTTP: u8 = 20;
const MOD_HEADER: u8 = 21;
const ADD_HEADER: u8 = 22;
const STRIP_HEADER: u8 = 23;
const KEEP_HEADER: u8 = 24;
const ADD_BODY: u8 = 25;
const LOG: u8 = 26;
const LOG_TEXT: u8 = 27;
const REJECT: u8 = 28;
const REJECT_RST: u8 = 29;
const REJECT_ICMP: u8 = 30;
const REJECT_ICMP6: u8 = 31;
const LIMIT: u8 = 32;
const HELPER: u8 = 33;

/// A limit's unit and period, and whether it has a burst and a key.
const PERIOD: u32 = 2;
const HAS_BURST: u8 = 0x10;
const HAS_KEY: u8 = 0x20;

/// Parts of replacements.
const PART_BYTES: u8 = 0;
const PART_MATCHED: u8 = 1;

/// Set beside the method of an `lb` whose items have weights, which follow the items.
const WEIGHTED: u8 = 0x80;

/// Appends the record of a rule.
pub(super) fn write(rule: &Rule, out: &mut Vec<u8>) {
    let has_prio = if rule.prio == DEFAULT_PRIO { 0 } else { HAS_PRIO };
    let has_name = if rule.name.is_some() { HAS_NAME } else { 0 };
    let stateful = if rule.stateful { STATEFUL } else { 0 };
    let names_sets = if rule.sets().next().is_some() { NAMES_SETS } else { 0 };
    out.push(has_prio | has_name | stateful | names_sets | if rule.draining { DRAINING } else { 0 });
    if has_prio != 0 {
        write_count(rule.prio as usize, out);
    }
    if let Some(name) = &rule.name {
        write_bytes(name.as_bytes(), out);
    }
    write_count(rule.targets.len(), out);
    rule.targets.iter().for_each(|target| write_target(target, out));
    write_count(rule.matches.len(), out);
    rule.matches.iter().for_each(|constraint| write_match(constraint, out));
}

/// Seven bits a byte, the lowest first; all but the last byte have the top bit set.
fn write_count(mut count: usize, out: &mut Vec<u8>) {
    while count >= 0x80 {
        out.push(count as u8 | 0x80);
        count >>= 7;
    }
    out.push(count as u8);
}

fn write_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    write_count(bytes.len(), out);
    out.extend_from_slice(bytes);
}

/// `form` plus the number's length in bytes, then the number without leading zero bytes.
fn write_number(form: u8, number: u128, out: &mut Vec<u8>) {
    let bytes = number.to_be_bytes();
    let zeros = number.leading_zeros() as usize / 8;
    out.push(form + (bytes.len() - zeros) as u8);
    out.extend_from_slice(&bytes[zeros..]);
}

fn write_item(item: NumberItem, out: &mut Vec<u8>) {
    match item {
        NumberItem::One(n) => write_number(ONE, n, out),
        NumberItem::Range(first, last) => {
            write_number(RANGE, first, out);
            write_number(ONE, last, out);
        }
        NumberItem::Prefix(first, len) => {
            write_number(PREFIX, first, out);
            out.push(len);
        }
    }
}

fn write_items(set: &NumberSet, out: &mut Vec<u8>) {
    write_count(set.0.len(), out);
    set.0.iter().for_each(|item| write_item(*item, out));
}

fn write_field(field: Field, beside: u8, out: &mut Vec<u8>) {
    out.push(field.id as u8 | beside);
    if field.info().place == FieldPlace::NamedOption {
        out.push(field.kind);
    }
}

fn write_match(constraint: &Match, out: &mut Vec<u8>) {
    write_field(constraint.field, if constraint.negated { NEGATED } else { 0 }, out);
    match &constraint.test {
        Test::Present => out.push(PRESENT),
        Test::Number(Cond::Eq, set) if set.0.len() == 1 => write_item(set.0[0], out),
        Test::Number(cond, set) => {
            out.push(NUMBERS + *cond as u8);
            write_items(set, out);
        }
        Test::NamedSet(equality, name) => {
            out.push(NAMED_SET + *equality as u8);
            write_bytes(name.as_bytes(), out);
        }
        Test::Port(equality, names) => {
            out.push(PORT + *equality as u8);
            write_count(names.len(), out);
            names.iter().for_each(|name| write_bytes(name.as_bytes(), out));
        }
        Test::Bytes(equality, strings) => {
            out.push(BYTES + *equality as u8);
            write_count(strings.len(), out);
            strings.iter().for_each(|string| write_bytes(string, out));
        }
        Test::Patterns(items) => {
            out.push(PATTERNS);
            write_count(items.len(), out);
            items.iter().for_each(|item| write_pattern(item, out));
        }
        Test::Header(name, items) => {
            out.push(HEADER);
            write_bytes(name.as_str().as_bytes(), out);
            write_count(items.len(), out);
            items.iter().for_each(|item| write_pattern(item, out));
        }
    }
}

fn write_pattern(item: &PatternItem, out: &mut Vec<u8>) {
    let (kind, bytes) = match item {
        PatternItem::Text(text) => (TEXT, &text[..]),
        PatternItem::Regex(Regex { source, ignores_case: false }) => (REGEX, source.as_bytes()),
        PatternItem::Regex(Regex { source, ignores_case: true }) => (REGEX_OF_EITHER_CASE, source.as_bytes()),
        PatternItem::List(name) => (LIST, name.as_bytes()),
    };
    out.push(kind);
    write_bytes(bytes, out);
}

fn write_target(target: &Target, out: &mut Vec<u8>) {
    let of_field = |form: u8, field: &Field, out: &mut Vec<u8>| {
        out.push(form);
        write_field(*field, 0, out);
    };
    match target {
        Target::Drop(DropRate::ALL) => out.push(DROP_ALL),
        Target::Drop(rate) => {
            out.push(DROP);
            write_count(rate.0 as usize, out);
        }
        Target::Reject(Reject::Usual) => out.push(REJECT),
        Target::Reject(Reject::TcpRst) => out.push(REJECT_RST),
        Target::Reject(Reject::Icmp(code)) => out.extend([REJECT_ICMP, *code]),
        Target::Reject(Reject::Icmp6(code)) => out.extend([REJECT_ICMP6, *code]),
        Target::Accept => out.push(ACCEPT),
        Target::Limit(limit) => write_limit(limit, out),
        Target::Mod(field, Write::Number(n)) => {
            of_field(MOD_NUMBER, field, out);
            write_number(ONE, *n, out);
        }
        Target::Mod(field, Write::Bytes(bytes)) => {
            of_field(MOD_BYTES, field, out);
            write_bytes(bytes, out);
        }
        Target::AddOption(kind, data) => {
            out.extend([ADD_OPTION, *kind]);
            write_bytes(data, out);
        }
        Target::Strip(kind) => out.extend([STRIP, *kind]),
        Target::Keep(kind) => out.extend([KEEP, *kind]),
        Target::StripAll => out.push(STRIP_ALL),
        Target::Map(field, set) => {
            of_field(MAP, field, out);
            write_items(set, out);
        }
        Target::Shuffle(field, None) => of_field(SHUFFLE, field, out),
        Target::Shuffle(field, Some((first, last))) => {
            of_field(SHUFFLE_RANGE, field, out);
            write_item(NumberItem::Range(*first, *last), out);
        }
        Target::Lb(field, servers, method) => {
            of_field(LB, field, out);
            let weighted = if servers.weights().is_empty() { 0 } else { WEIGHTED };
            out.push(*method as u8 | weighted);
            write_items(&servers.items, out);
            out.extend(servers.weights());
        }
        Target::Log(None) => out.push(LOG),
        Target::Log(Some(text)) => {
            out.push(LOG_TEXT);
            write_bytes(text.as_bytes(), out);
        }
        Target::Alert(None) => out.push(ALERT),
        Target::Alert(Some(text)) => {
            out.push(ALERT_TEXT);
            write_bytes(text.as_bytes(), out);
        }
        Target::Close => out.push(CLOSE),
        Target::Digest => out.push(DIGEST),
        Target::Helper(helper) => out.extend([HELPER, *helper as u8]),
        Target::Edit(edit) => {
            write_edit(edit, out);
            match edit {
                StreamEdit::Mask(_, bytes) | StreamEdit::AddHeader(_, bytes) | StreamEdit::AddBody(bytes) => {
                    write_bytes(bytes, out);
                }
                StreamEdit::Mod(_, replacement)
                | StreamEdit::ModHeader(_, replacement)
                | StreamEdit::ModHttp(_, replacement) => write_replacement(replacement, out),
                StreamEdit::Strip(_) | StreamEdit::StripHeader(_) | StreamEdit::KeepHeader(_) => {}
            }
        }
    }
}

fn write_limit(limit: &Limit, out: &mut Vec<u8>) {
    let form = limit.unit as u8 | (limit.period as u8) << PERIOD;
    let has_burst = if limit.burst.is_some() { HAS_BURST } else { 0 };
    let has_key = if limit.per.is_some() { HAS_KEY } else { 0 };
    out.extend([LIMIT, form | has_burst | has_key]);
    write_count(limit.amount as usize, out);
    limit.burst.into_iter().for_each(|burst| write_count(burst as usize, out));
    if let Some(key) = limit.per {
        write_field(Field::new(key.field()), 0, out);
        out.push(key.prefix());
    }
}

/// Appends what an edit does, without its value.
fn write_edit(edit: &StreamEdit, out: &mut Vec<u8>) {
    let (form, name) = match edit {
        StreamEdit::Mask(..) => (MASK, None),
        StreamEdit::Mod(..) => (MOD_STREAM, None),
        StreamEdit::Strip(_) => (STRIP_STREAM, None),
        StreamEdit::ModHttp(..) => (MOD_HTTP, None),
        StreamEdit::ModHeader(name, _) => (MOD_HEADER, Some(name)),
        StreamEdit::AddHeader(name, _) => (ADD_HEADER, Some(name)),
        StreamEdit::StripHeader(name) => (STRIP_HEADER, Some(name)),
        StreamEdit::KeepHeader(name) => (KEEP_HEADER, Some(name)),
        StreamEdit::AddBody(_) => (ADD_BODY, None),
    };
    out.push(form);
    write_field(edit.field(), 0, out);
    if let Some(name) = name {
        write_bytes(name.as_str().as_bytes(), out);
    }
}

fn write_replacement(replacement: &Replacement, out: &mut Vec<u8>) {
    write_count(replacement.parts().len(), out);
    for part in replacement.parts() {
        match part {
            ReplacementPart::Bytes(bytes) => {
                out.push(PART_BYTES);
                write_bytes(bytes, out);
            }
            ReplacementPart::Matched => out.push(PART_MATCHED),
        }
    }
}

/// Appends what a target does, without its value.
fn write_outline(target: &Target, out: &mut Vec<u8>) {
    let of_field = |form: u8, field: &Field, out: &mut Vec<u8>| {
        out.push(form);
        write_field(*field, 0, out);
    };
    match target {
        Target::Drop(_) => out.push(DROP),
        Target::Reject(_) => out.push(REJECT),
        Target::Accept => out.push(ACCEPT),
        Target::Mod(field, _) => of_field(MOD_NUMBER, field, out),
        Target::AddOption(kind, _) => out.extend([ADD_OPTION, *kind]),
        Target::Strip(kind) => out.extend([STRIP, *kind]),
        Target::Keep(kind) => out.extend([KEEP, *kind]),
        Target::StripAll => out.push(STRIP_ALL),
        Target::Map(field, _) => of_field(MAP, field, out),
        Target::Shuffle(field, _) => of_field(SHUFFLE, field, out),
        Target::Lb(field, ..) => of_field(LB, field, out),
        Target::Log(_) => out.push(LOG),
        Target::Limit(_) => out.push(LIMIT),
        Target::Alert(_) => out.push(ALERT),
        Target::Close => out.push(CLOSE),
        Target::Digest => out.push(DIGEST),
        Target::Helper(helper) => out.extend([HELPER, *helper as u8]),
        Target::Edit(edit) => write_edit(edit, out),
    }
}

/// What rules have in common that differ only in their names, in the values of their targets, and in whether they drain.
pub(super) fn outline(record: &[u8]) -> Vec<u8> {
    let rule = read(record, RuleId(0));
    let mut outline = Vec::new();
    write(&Rule { name: None, draining: false, targets: Vec::new(), ..rule.clone() }, &mut outline);
    rule.targets.iter().for_each(|target| write_outline(target, &mut outline));
    outline
}

/// The rule of a record, under its number.
pub(super) fn read(record: &[u8], id: RuleId) -> Rule {
    let mut reader = RecordReader(record);
    let flags = reader.byte();
    let prio = reader.prio(flags);
    let name = reader.name(flags).map(text);
    let targets = reader.several(RecordReader::target);
    let matches = reader.several(RecordReader::constraint);
    let (stateful, draining) = (flags & STATEFUL != 0, flags & DRAINING != 0);
    Rule { id: Some(id), prio, name, stateful, draining, matches, targets }
}

/// Whether a record's rule is stateful, and whether it drains.
pub(super) fn read_stateful(record: &[u8]) -> (bool, bool) {
    let flags = RecordReader(record).byte();
    (flags & STATEFUL != 0, flags & DRAINING != 0)
}

/// The name of a record's rule.
pub(super) fn read_name(record: &[u8]) -> Option<&[u8]> {
    let mut reader = RecordReader(record);
    let flags = reader.byte();
    reader.prio(flags);
    reader.name(flags)
}

/// Whether a record's rule names sets.
pub(super) fn names_sets(record: &[u8]) -> bool {
    RecordReader(record).byte() & NAMES_SETS != 0
}

/// Priority and targets of a record's rule.
pub(super) fn read_targets(record: &[u8]) -> (Prio, Vec<Target>) {
    let mut reader = RecordReader(record);
    let flags = reader.byte();
    let prio = reader.prio(flags);
    reader.name(flags);
    (prio, reader.several(RecordReader::target))
}

/// Reads a `String`.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The rest of a record.
struct RecordReader<'r>(&'r [u8]);

impl<'r> RecordReader<'r> {
    fn take(&mut self, len: usize) -> &'r [u8] {
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        taken
    }

    fn byte(&mut self) -> u8 {
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

    fn several<T>(&mut self, one: impl Fn(&mut Self) -> T) -> Vec<T> {
        (0..self.count()).map(|_| one(self)).collect()
    }

    fn prio(&mut self, flags: u8) -> Prio {
        if flags & HAS_PRIO != 0 { self.count() as Prio } else { DEFAULT_PRIO }
    }

    fn name(&mut self, flags: u8) -> Option<&'r [u8]> {
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

    fn constraint(&mut self) -> Match {
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

    fn target(&mut self) -> Target {
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
