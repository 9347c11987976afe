//! Constraints on streams and on HTTP for drawn rules, and their targets. Whether a stream satisfies them is not drawn.

use super::draw::{Draw, RuleOptions};
use super::packet::compare;
use crate::field::{Field, FieldId, StreamPart};
use crate::http::{HeaderName, Replacement, ReplacementPart};
use crate::pattern::{PatternItem, Regex};
use crate::rule::{DropRate, Helper, Match, StreamEdit, Target, Test};
use std::collections::HashSet;
use std::mem::discriminant;

/// Regexes of several forms.
const REGEXES: [&str; 7] = ["cmd\\.exe", "a/b#\"", "[^>]{0,9}x", "\\xff.\\\\", "^GET ", "a|b+", "\\{,\\}"];
/// Of these regexes a match may have any length.
const UNBOUNDED: &str = "a|b+";
/// Names of header fields that rules may write.
const HEADERS: [&str; 4] = ["Server", "X-By", "set-cookie", "!#$%&'*+-.^_`|~9"];
/// A status that all drawn constraints on one allow.
const STATUS: u128 = 200;

/// Has the constraints and targets of a rule fit each other.
pub(super) fn fit(matches: &mut Vec<Match>, targets: &mut Vec<Target>) {
    of_one_connection(matches);
    if matches.iter().any(Match::is_of_stream) {
        fit_edits(matches, targets);
    }
    if !matches.iter().any(Match::is_of_stream) {
        targets.retain(|target| !matches!(target, Target::Alert(_) | Target::Close | Target::Edit(_)));
        return;
    }
    let is_apart = |target: &Target| {
        matches!(
            target,
            Target::Accept | Target::Reject(_) | Target::Log(_) | Target::Limit(_) | Target::Helper(_)
        )
    };
    targets.retain(|target| !is_apart(target));
    for target in targets.iter_mut().filter(|target| matches!(target, Target::Drop(_))) {
        *target = Target::Drop(DropRate::ALL);
    }
    let acts = |target: &Target| {
        matches!(target, Target::Alert(_) | Target::Close | Target::Drop(_) | Target::Edit(_))
    };
    if !targets.iter().any(acts) {
        targets.push(Target::Alert(None));
    }
}

/// Removes constraints that no connection satisfies beside others.
fn of_one_connection(matches: &mut Vec<Match>) {
    if matches.iter().any(|m| m.field.stream_part().is_some_and(StreamPart::is_http)) {
        matches.retain(|m| m.field.stream_part() != Some(StreamPart::ServerName));
    }
    let opposes = |m: &Match, other: &Match| {
        m.is_of_stream() && m.field == other.field && m.test == other.test && m.negated != other.negated
    };
    let mut kept: Vec<Match> = Vec::new();
    for m in matches.drain(..) {
        if !kept.iter().any(|other| opposes(&m, other)) {
            kept.push(m);
        }
    }
    *matches = kept;
}

/// Has the edits of a rule fit each other and the constraints, of which some go. Of both plain bytes and messages of HTTP, those that the first
/// edit is about are edited.
fn fit_edits(matches: &mut Vec<Match>, targets: &mut Vec<Target>) {
    let edited =
        |target: &Target| if let Target::Edit(edit) = target { edit.field().stream_part() } else { None };
    let Some(first) = targets.iter().find_map(edited) else { return };
    let has = |is: fn(StreamPart) -> bool| matches.iter().any(|m| m.field.stream_part().is_some_and(is));
    let is_http = match (has(StreamPart::is_http), has(StreamPart::is_bytes)) {
        (true, true) => first.is_http(),
        (false, false) => return targets.retain(|target| !matches!(target, Target::Edit(_))),
        (has_http, _) => has_http,
    };
    if is_http {
        matches.retain(|m| m.field.stream_part().is_none_or(StreamPart::is_http));
        keep_first(matches, |part| part == StreamPart::HttpBody);
    } else {
        matches.retain(|m| m.field.stream_part().is_none_or(StreamPart::is_bytes));
        keep_first(matches, StreamPart::is_bytes);
    }
    let found = |is: fn(StreamPart) -> bool| {
        matches.iter().map(|m| m.field).find(|field| field.stream_part().is_some_and(is))
    };
    let found = found(if is_http { |part| part == StreamPart::HttpBody } else { StreamPart::is_bytes });
    let is_late = matches.iter().any(|m| {
        let is_absent = m.negated && m.field.id == FieldId::HttpHeader;
        is_absent || matches!(m.field.id, FieldId::HttpStatus | FieldId::HttpBody)
    });
    let (mut done, mut selection) = (HashSet::new(), None);
    targets.retain_mut(|target| {
        let Target::Edit(edit) = target else { return true };
        let is_kind = edit.field().stream_part().is_some_and(|part| part.is_http() == is_http);
        let fits = match edit {
            StreamEdit::Mask(field, _) | StreamEdit::Mod(field, _) | StreamEdit::Strip(field) => {
                *field = found.unwrap_or(*field);
                found.is_some()
            }
            StreamEdit::ModHttp(..) => !is_late,
            StreamEdit::StripHeader(_) | StreamEdit::KeepHeader(_) => {
                *selection.get_or_insert(discriminant(edit)) == discriminant(edit)
            }
            StreamEdit::ModHeader(..) | StreamEdit::AddHeader(..) | StreamEdit::AddBody(_) => true,
        };
        is_kind && fits && place(edit).is_none_or(|place| done.insert(place))
    });
    if targets.iter().any(|target| matches!(target, Target::Edit(_))) {
        targets.retain(|target| !matches!(target, Target::Close | Target::Drop(_)));
        bound(matches, found);
    }
}

/// Keeps one of the constraints on some parts.
fn keep_first(matches: &mut Vec<Match>, is: fn(StreamPart) -> bool) {
    let mut is_first = true;
    matches.retain(|m| !m.field.stream_part().is_some_and(is) || std::mem::take(&mut is_first));
}

/// The place of an edit that a rule has once; `None` for edits of which it may have several.
fn place(edit: &StreamEdit) -> Option<(FieldId, String)> {
    let name = match edit {
        StreamEdit::ModHeader(name, _) | StreamEdit::StripHeader(name) => name.as_str().to_ascii_lowercase(),
        StreamEdit::AddHeader(..) | StreamEdit::KeepHeader(_) => return None,
        StreamEdit::AddBody(_) => "end".to_owned(),
        StreamEdit::Mask(..) | StreamEdit::Mod(..) | StreamEdit::Strip(_) => String::new(),
        StreamEdit::ModHttp(..) => String::new(),
    };
    Some((edit.field().id, name))
}

/// Has the matches of the regexes of a field be bounded.
fn bound(matches: &mut [Match], field: Option<Field>) {
    for m in matches.iter_mut().filter(|m| Some(m.field) == field) {
        let Test::Patterns(items) = &mut m.test else { continue };
        for item in items {
            if let PatternItem::Regex(regex) = item
                && regex.source == UNBOUNDED
            {
                regex.source = "a|b{1,4096}".to_owned();
            }
        }
    }
}

impl Draw {
    /// A constraint on a stream.
    pub(super) fn stream_constraint(&self, field: Field, options: &RuleOptions) -> Match {
        let number = 1 + self.small[2] % 3;
        let part = field.stream_part().unwrap_or(StreamPart::Both);
        let items = || -> Vec<PatternItem> {
            (0..number).map(|at| self.pattern(self.small[0].wrapping_add(at), part, options)).collect()
        };
        let (test, negated) = match part {
            StreamPart::Http => (Test::Present, false),
            StreamPart::HttpStatus => {
                let test = self.number_test(field.info(), STATUS);
                let Test::Number(cond, set) = &test else { return Match { negated: false, field, test } };
                let negated = !compare(STATUS, *cond, set, field.info().width().unwrap_or(128));
                (test, negated)
            }
            StreamPart::HttpHeader if self.form >= 128 => {
                (Test::Header(self.header_name(), Vec::new()), self.negated)
            }
            StreamPart::HttpHeader => (Test::Header(self.header_name(), items()), self.negated),
            StreamPart::ServerName | StreamPart::HttpHost => (Test::Patterns(items()), self.negated),
            StreamPart::HttpMethod | StreamPart::HttpUri => (Test::Patterns(items()), self.negated),
            StreamPart::Both | StreamPart::Forward | StreamPart::Reply | StreamPart::HttpBody => {
                (Test::Patterns(items()), false)
            }
        };
        Match { negated, field, test }
    }

    fn header_name(&self) -> HeaderName {
        let name = HEADERS[usize::from(self.small[1]) % HEADERS.len()];
        HeaderName::of_record(name)
    }

    fn pattern(&self, which: u8, part: StreamPart, options: &RuleOptions) -> PatternItem {
        match which % 4 {
            0 if !options.lists.is_empty() => {
                PatternItem::List(options.lists[usize::from(which / 4) % options.lists.len()].clone())
            }
            0 | 1 => {
                let source = REGEXES[usize::from(which / 4) % REGEXES.len()].to_owned();
                PatternItem::Regex(Regex { source, ignores_case: self.negated })
            }
            _ => PatternItem::Text(self.text(which, part)),
        }
    }

    /// A text that a part is compared with or searched for.
    fn text(&self, which: u8, part: StreamPart) -> Vec<u8> {
        let dot = if which & 4 == 0 { "." } else { "" };
        match part {
            StreamPart::ServerName | StreamPart::HttpHost => format!("{dot}w-{which}.Example").into_bytes(),
            StreamPart::HttpMethod => format!("GET{which}").into_bytes(),
            StreamPart::HttpUri => format!("/{which}?\"\\").into_bytes(),
            StreamPart::HttpHeader => format!("v\t{which} \u{e9}").into_bytes(),
            StreamPart::Both
            | StreamPart::Forward
            | StreamPart::Reply
            | StreamPart::Http
            | StreamPart::HttpStatus
            | StreamPart::HttpBody => match &self.bytes[..] {
                [] => vec![which],
                bytes => bytes.to_vec(),
            },
        }
    }

    /// A target that acts on a stream, for TCP or for any protocol.
    pub(super) fn stream_target(&self, is_tcp: bool) -> Target {
        match self.small[0] % 5 {
            0 => Target::Close,
            1 => Target::Digest,
            2 if is_tcp => Target::Helper(Helper::Ftp),
            _ => Target::Alert(self.told_text()),
        }
    }

    /// The text of a target that tells of something.
    pub(super) fn told_text(&self) -> Option<String> {
        let is_plain = |byte: &u8| matches!(byte, b' '..=b'~');
        let is_text = !self.bytes.is_empty() && self.bytes.iter().all(is_plain);
        is_text.then(|| String::from_utf8_lossy(&self.bytes).into_owned())
    }

    /// A target that edits a stream or HTTP.
    pub(super) fn edit_target(&self) -> Target {
        let fields = [FieldId::Stream, FieldId::StreamForward, FieldId::StreamReply, FieldId::HttpBody];
        let field = Field::new(fields[usize::from(self.small[1]) % fields.len()]);
        let some = || if self.bytes.is_empty() { vec![self.small[2]] } else { self.bytes.clone() };
        let value = || -> Vec<u8> { some().into_iter().filter(|byte| !byte.is_ascii_control()).collect() };
        let line = [FieldId::HttpHost, FieldId::HttpUri][usize::from(self.small[1]) % 2];
        Target::Edit(match self.small[0] % 9 {
            0 => StreamEdit::Mask(field, if self.negated { Vec::new() } else { some() }),
            1 => StreamEdit::Mod(field, self.replacement(some())),
            2 => StreamEdit::Strip(field),
            3 => StreamEdit::ModHeader(self.header_name(), self.replacement(value())),
            4 => StreamEdit::AddHeader(self.header_name(), value()),
            5 => StreamEdit::StripHeader(self.header_name()),
            6 => StreamEdit::KeepHeader(self.header_name()),
            7 => StreamEdit::ModHttp(Field::new(line), self.replacement(self.whole(line))),
            _ => StreamEdit::AddBody(some()),
        })
    }

    /// Bytes that may stand in the place of a request's host or target.
    fn whole(&self, field: FieldId) -> Vec<u8> {
        if field == FieldId::HttpHost {
            return format!("w-{}.example:80", self.small[2]).into_bytes();
        }
        b"/".iter().chain(&self.bytes).copied().filter(u8::is_ascii_graphic).collect()
    }

    /// A replacement with these bytes, in which what was matched may stand.
    fn replacement(&self, bytes: Vec<u8>) -> Replacement {
        let (first, last) = bytes.split_at(bytes.len() / 2);
        let part = |bytes: &[u8]| ReplacementPart::Bytes(bytes.to_vec());
        match self.form % 3 {
            0 => Replacement::new([part(first), ReplacementPart::Matched, part(last)]),
            1 => Replacement::new([ReplacementPart::Matched, part(&bytes), ReplacementPart::Matched]),
            _ => Replacement::of_bytes(bytes),
        }
    }
}
