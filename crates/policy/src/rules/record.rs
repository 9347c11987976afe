//! Rules as bytes: all of a rule but its number, in as few bytes as it needs.
//!
//! A record is: flags, then priority and name if the flags say so, the number of targets and the targets, the number of
//! constraints and the constraints. Targets stand first since some readers want only them. A constraint `tcp-dport 80`
//! is three bytes: field, form of the test, value.
//!
//! Every value has exactly one record, so that records are equal where rules are. Records are made here and never leave
//! the process: reading one trusts it.

mod forms;
mod reader;

use crate::field::{Field, FieldPlace};
use crate::http::{Replacement, ReplacementPart};
use crate::limit::Limit;
use crate::pattern::{PatternItem, Regex};
use crate::rule::{
    Cond, DEFAULT_PRIO, DropRate, Match, NumberItem, NumberSet, Prio, Reject, Rule, RuleId, StreamEdit,
    Target, Test, Write,
};
use forms::{
    ACCEPT, ADD_BODY, ADD_HEADER, ADD_OPTION, ALERT, ALERT_TEXT, BYTES, CLOSE, DIGEST, DRAINING, DROP,
    DROP_ALL, HAS_BURST, HAS_KEY, HAS_NAME, HAS_PRIO, HEADER, HELPER, KEEP, KEEP_HEADER, LB, LIMIT, LIST,
    LOG, LOG_TEXT, MAP, MASK, MOD_BYTES, MOD_HEADER, MOD_HTTP, MOD_NUMBER, MOD_STREAM, NAMED_SET, NAMES_SETS,
    NEGATED, NUMBERS, ONE, PART_BYTES, PART_MATCHED, PATTERNS, PERIOD, PORT, PREFIX, PRESENT, RANGE, REGEX,
    REGEX_OF_EITHER_CASE, REJECT, REJECT_ICMP, REJECT_ICMP6, REJECT_RST, SHUFFLE, SHUFFLE_RANGE, STATEFUL,
    STRIP, STRIP_ALL, STRIP_HEADER, STRIP_STREAM, TEXT, WEIGHTED,
};
use reader::{RecordReader, text};

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
