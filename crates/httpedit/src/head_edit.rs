//! Changes of a head: a table of its lines that rules change one after the other, and what then becomes of the head's bytes.

use crate::mend::{DIGESTS, empty_line_len, is_odd, mend_framing, mend_line, mend_line_end};
use crate::output::{EditOutput, Emitter, HttpNote};
use arrayvec::ArrayVec;
use mmb_http::{
    HeaderLine, Headers, MAX_HEADERS, RequestHead, Span, is_folded, is_host_and_port, list_items, unfold,
};
use mmb_policy::Replacement;
use mmb_policy::field::FieldId;
use mmb_policy::http::{HeaderName, fixed_header};
use mmb_policy::rule::StreamEdit;

/// The most bytes of all new texts of a head.
const MAX_TEXT_BYTES: usize = 64 << 10;
/// The longest replaced value.
const MAX_VALUE_BYTES: usize = 64 << 10;

/// A place of bytes: in the head, or in the table's texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Head(Span),
    Text(Span),
}

/// A header while it is changed.
#[derive(Clone, Copy, Debug)]
struct Line {
    /// Its line in the head; `None` if it was added.
    line: Option<HeaderLine>,
    name: Place,
    value: Place,
    is_removed: bool,
    /// The rule that changed it last; 0 for none.
    rule: u32,
}

/// A head while it is changed. Its memory is used again for the next one.
#[derive(Debug)]
pub(crate) struct HeadTable {
    /// One more than a head has at most: for Transfer-Encoding.
    lines: ArrayVec<Line, { MAX_HEADERS + 1 }>,
    /// A part of the first line, what stands in its place, and the rule that wrote it.
    target: Option<(Span, Place, u32)>,
    /// The host within an absolute target.
    authority: Option<(Span, Place, u32)>,
    text: Vec<u8>,
    /// A value that is replaced.
    old: Vec<u8>,
}

impl Default for HeadTable {
    fn default() -> Self {
        HeadTable {
            lines: ArrayVec::new(),
            target: None,
            authority: None,
            text: Vec::with_capacity(MAX_TEXT_BYTES),
            old: Vec::with_capacity(MAX_VALUE_BYTES),
        }
    }
}

/// A head and its table.
pub(crate) struct HeadEdit<'h> {
    headers: Headers<'h>,
    table: &'h mut HeadTable,
    /// The rule that changes the head now; 0 for none.
    rule: u32,
    /// The head is mended.
    mends: bool,
    notes: ArrayVec<HttpNote, 4>,
}

impl<'h> HeadEdit<'h> {
    /// Begins with a head as it is.
    pub(crate) fn new(headers: Headers<'h>, mends: bool, table: &'h mut HeadTable) -> HeadEdit<'h> {
        table.lines.clear();
        table.text.clear();
        (table.target, table.authority) = (None, None);
        for line in headers.lines {
            let (name, value) = (Place::Head(line.name), Place::Head(line.value));
            let _ = table.lines.try_push(Line { line: Some(*line), name, value, is_removed: false, rule: 0 });
        }
        let mut edit = HeadEdit { headers, table, rule: 0, mends, notes: ArrayVec::new() };
        for index in 0..if mends { edit.table.lines.len() } else { 0 } {
            if is_folded(edit.value(index)) {
                let len = edit.value(index).len();
                edit.set_value(index, unfold, len);
            }
        }
        edit
    }

    /// Whether the head is mended.
    pub(crate) fn mends(&self) -> bool {
        self.mends
    }

    /// The next changes are those of a rule, by the caller's number; 0 for those that no rule asks for.
    pub(crate) fn set_rule(&mut self, rule: u32) {
        self.rule = rule;
    }

    /// Applies an edit of a rule, of all of whose edits some may be of headers that stay. Targets are edited in heads of requests only.
    pub(crate) fn apply(
        &mut self,
        edit: &StreamEdit,
        keeps: &[StreamEdit],
        request: Option<&RequestHead<'_>>,
    ) {
        match edit {
            StreamEdit::ModHeader(name, replacement) => self.modify_all(name, replacement),
            StreamEdit::AddHeader(name, value) => self.add(name.as_str().as_bytes(), value),
            StreamEdit::StripHeader(name) => self.strip(name.as_str().as_bytes()),
            // All that stay are named by edits of the rule, of which the first does the work.
            StreamEdit::KeepHeader(_) if std::ptr::eq(edit, first_keep(keeps)) => self.keep_only(keeps),
            StreamEdit::ModHttp(field, replacement) => {
                match request.filter(|head| head.method() != b"CONNECT") {
                    Some(head) if field.id == FieldId::HttpHost => self.modify_host(head, replacement),
                    Some(head) => self.modify_uri(head, replacement),
                    None => {}
                }
            }
            StreamEdit::KeepHeader(_) | StreamEdit::AddBody(_) => {}
            StreamEdit::Mask(..) | StreamEdit::Mod(..) | StreamEdit::Strip(_) => {}
        }
    }

    /// Removes all headers of a name.
    pub(crate) fn strip(&mut self, name: &[u8]) {
        for index in 0..self.table.lines.len() {
            if self.is_called(index, name) {
                self.remove(index);
            }
        }
    }

    /// Removes the headers of a name but for the first.
    pub(crate) fn strip_repeated(&mut self, name: &[u8]) {
        let is_called = |index: &usize| self.is_called(*index, name);
        let first = (0..self.table.lines.len()).find(is_called);
        for index in first.map_or(0, |first| first + 1)..self.table.lines.len() {
            if self.is_called(index, name) {
                self.remove(index);
            }
        }
    }

    /// Appends a header.
    pub(crate) fn add(&mut self, name: &[u8], value: &[u8]) {
        if self.table.lines.len() >= MAX_HEADERS
            || self.table.text.len() + name.len() + value.len() > MAX_TEXT_BYTES
        {
            return self.note(HttpNote::LongHead);
        }
        let (name, value) = (self.new_text(name), self.new_text(value));
        let _ =
            self.table.lines.try_push(Line { line: None, name, value, is_removed: false, rule: self.rule });
    }

    /// Appends the header that says that the body is in chunks. There always is room: what rules add comes behind it.
    pub(crate) fn add_chunked(&mut self) {
        let (name, value) = (self.new_text(b"Transfer-Encoding"), self.new_text(b"chunked"));
        let _ =
            self.table.lines.try_push(Line { line: None, name, value, is_removed: false, rule: self.rule });
    }

    /// Writes another value into all headers of a name.
    pub(crate) fn set(&mut self, name: &[u8], value: &[u8]) {
        for index in 0..self.table.lines.len() {
            if self.is_called(index, name) {
                self.set_value(index, |_, text| text.extend_from_slice(value), value.len());
            }
        }
    }

    /// What is true of a body that is changed: its entity tag is weak, for bodies of one tag may now differ; nothing is known of its digest.
    pub(crate) fn body_changes(&mut self) {
        for name in DIGESTS {
            self.strip(name);
        }
        for index in 0..self.table.lines.len() {
            if self.is_called(index, b"etag") && !self.value(index).starts_with(b"W/") {
                let len = self.value(index).len() + 2;
                self.set_value(
                    index,
                    |old, text| {
                        text.extend_from_slice(b"W/");
                        text.extend_from_slice(old);
                    },
                    len,
                );
            }
        }
    }

    /// Takes the offer of HTTP/2 from a request (RFC 7540, section 3.2), since what follows its acceptance could not be read.
    pub(crate) fn strip_http2(&mut self, head: &RequestHead<'_>) {
        if head.http2_lines().next().is_none() {
            return;
        }
        self.strip(b"http2-settings");
        self.strip_items(b"upgrade", &[b"h2c"]);
        let has_upgrade = (0..self.table.lines.len()).any(|index| self.is_called(index, b"upgrade"));
        let gone: &[&[u8]] =
            if has_upgrade { &[b"http2-settings"] } else { &[b"http2-settings", b"upgrade"] };
        self.strip_items(b"connection", gone);
    }

    /// Takes from a request the wish that the server keeps the connection (RFC 9112, section 9.3).
    pub(crate) fn strip_keep_alive(&mut self) {
        self.strip_items(b"connection", &[b"keep-alive"]);
        self.strip(b"keep-alive");
    }

    /// Writes the head with its changes.
    pub(crate) fn emit(&self, emitter: &mut Emitter<'_>) {
        let start = emitter.at();
        let mut at = 0;
        let mut first_line: ArrayVec<(Span, Place, u32), 2> = ArrayVec::new();
        first_line.extend(self.table.authority);
        first_line.extend(self.table.target);
        if self.mends {
            at = mend_line_end(emitter, self.headers.bytes);
        }
        for (span, place, rule) in first_line {
            emitter.keep(span.range().start.saturating_sub(at));
            emitter.add_rule(rule);
            emitter.drop(span.range().len());
            emitter.insert(self.text(place));
            at = span.range().end;
        }
        for line in &self.table.lines {
            let Some(own) = line.line else { continue };
            let (whole, value) = (own.line.range(), own.value.range());
            if self.mends && !line.is_removed && is_odd(&self.headers, &own) {
                emitter.keep(whole.start - at);
                emitter.add_rule(line.rule);
                mend_line(emitter, &own, |emitter| emitter.insert(self.text(line.value)));
                at = whole.end;
            } else if line.is_removed {
                emitter.keep(whole.start - at);
                emitter.add_rule(line.rule);
                emitter.drop(whole.len());
                at = whole.end;
            } else if let Place::Text(_) = line.value {
                emitter.keep(value.start - at);
                emitter.add_rule(line.rule);
                emitter.drop(value.len());
                if value.is_empty() && self.headers.bytes.get(value.start.wrapping_sub(1)) == Some(&b':') {
                    emitter.insert(b" ");
                }
                emitter.insert(self.text(line.value));
                at = value.end;
            }
        }
        let empty_line = empty_line_len(&self.headers);
        emitter.keep(self.headers.len() - empty_line - at);
        for line in self.table.lines.iter().filter(|line| line.line.is_none() && !line.is_removed) {
            emitter.add_rule(line.rule);
            emitter.insert(self.text(line.name));
            emitter.insert(b": ");
            emitter.insert(self.text(line.value));
            emitter.insert(b"\r\n");
        }
        match self.mends {
            true => mend_framing(emitter, empty_line),
            false => emitter.keep(empty_line),
        }
        debug_assert_eq!(emitter.at() - start, self.headers.len());
    }

    /// Tells what was left out.
    pub(crate) fn tell(&self, out: &mut dyn EditOutput) {
        self.notes.iter().for_each(|note| out.note(*note));
    }

    fn modify_all(&mut self, name: &HeaderName, replacement: &Replacement) {
        for index in 0..self.table.lines.len() {
            if self.is_called(index, name.as_str().as_bytes()) {
                let len = replacement.len_for(self.value(index).len());
                self.set_value(index, |old, text| replacement.write(old, text), len);
            }
        }
    }

    fn keep_only(&mut self, keeps: &[StreamEdit]) {
        for index in 0..self.table.lines.len() {
            let name = self.text(self.table.lines[index].name);
            let is_named = |edit: &StreamEdit| matches!(edit, StreamEdit::KeepHeader(kept) if kept.is(name));
            if !self.table.lines[index].is_removed
                && fixed_header(name).is_none()
                && !keeps.iter().any(is_named)
            {
                self.remove(index);
            }
        }
    }

    /// Replaces the host in Host and in an absolute target. A port stays, unless the new text has one.
    fn modify_host(&mut self, head: &RequestHead<'_>, replacement: &Replacement) {
        for index in 0..self.table.lines.len() {
            if !self.is_called(index, b"host") {
                continue;
            }
            let value = self.value(index);
            let (host_len, port_len) = host_and_port(value);
            let max = replacement.len_for(host_len) + port_len;
            self.set_value(index, |old, text| write_host(old, replacement, text), max);
            if !is_host_and_port(self.value(index)) {
                let line = &mut self.table.lines[index];
                line.value = line.line.map_or(line.value, |line| Place::Head(line.value));
                return self.note(HttpNote::BadValue);
            }
        }
        let target = self.headers.text(head.target);
        if head.path.start > head.target.start && head.host.start >= head.target.start && !target.is_empty() {
            let authority = Span { start: head.host.start, end: head.path.start };
            let old = self.headers.text(authority);
            let max = replacement.len_for(old.len()) + old.len();
            if self.table.text.len() + max > MAX_TEXT_BYTES {
                return self.note(HttpNote::LongHead);
            }
            let start = self.table.text.len();
            write_host(old, replacement, &mut self.table.text);
            let place = Place::Text(self.written_from(start));
            self.table.authority = Some((authority, place, self.rule));
        }
    }

    /// Replaces the target; of an absolute one what follows scheme and authority.
    fn modify_uri(&mut self, head: &RequestHead<'_>, replacement: &Replacement) {
        let old = self.table.target.map_or(Place::Head(head.path), |(_, place, _)| place);
        self.copy_old(old);
        if self.table.old.is_empty() {
            self.table.old.push(b'/');
        }
        if self.table.text.len() + replacement.len_for(self.table.old.len()) > MAX_TEXT_BYTES {
            return self.note(HttpNote::LongHead);
        }
        let start = self.table.text.len();
        replacement.write(&self.table.old, &mut self.table.text);
        let place = Place::Text(self.written_from(start));
        let new = self.text(place);
        let is_good = new.iter().all(u8::is_ascii_graphic)
            && (new.starts_with(b"/") || new == b"*" && head.method() == b"OPTIONS");
        if !is_good {
            return self.note(HttpNote::BadValue);
        }
        self.table.target = Some((head.path, place, self.rule));
    }

    /// Takes items from the lists of all headers of a name, and headers that become empty.
    fn strip_items(&mut self, name: &[u8], gone: &[&[u8]]) {
        for index in 0..self.table.lines.len() {
            if !self.is_called(index, name) {
                continue;
            }
            let is_gone = |item: &[u8]| gone.iter().any(|gone| gone.eq_ignore_ascii_case(item));
            let value = self.value(index);
            if !list_items(value).any(is_gone) {
                continue;
            }
            if list_items(value).all(is_gone) {
                self.remove(index);
                continue;
            }
            let max = value.len() * 2;
            self.set_value(
                index,
                |old, text| {
                    for (number, item) in list_items(old).filter(|item| !is_gone(item)).enumerate() {
                        text.extend_from_slice(if number > 0 { b", " } else { b"" });
                        text.extend_from_slice(item);
                    }
                },
                max,
            );
        }
    }

    /// Writes a new value, of at most so many bytes, from the old one.
    fn set_value(&mut self, index: usize, write: impl FnOnce(&[u8], &mut Vec<u8>), max: usize) {
        let old = self.table.lines[index].value;
        self.copy_old(old);
        if self.table.text.len() + max > MAX_TEXT_BYTES {
            return self.note(HttpNote::LongHead);
        }
        let start = self.table.text.len();
        write(&self.table.old, &mut self.table.text);
        let value = Place::Text(self.written_from(start));
        let line = &mut self.table.lines[index];
        (line.value, line.rule) = (value, self.rule);
    }

    fn copy_old(&mut self, place: Place) {
        let HeadTable { old, text, .. } = &mut *self.table;
        old.clear();
        let bytes = match place {
            Place::Head(span) => self.headers.text(span),
            Place::Text(span) => text.get(span.range()).unwrap_or_default(),
        };
        old.extend_from_slice(&bytes[..bytes.len().min(MAX_VALUE_BYTES)]);
    }

    fn new_text(&mut self, bytes: &[u8]) -> Place {
        let start = self.table.text.len();
        self.table.text.extend_from_slice(bytes);
        Place::Text(self.written_from(start))
    }

    fn written_from(&self, start: usize) -> Span {
        Span { start: start as u32, end: self.table.text.len() as u32 }
    }

    fn text(&self, place: Place) -> &[u8] {
        match place {
            Place::Head(span) => self.headers.text(span),
            Place::Text(span) => self.table.text.get(span.range()).unwrap_or_default(),
        }
    }

    fn value(&self, index: usize) -> &[u8] {
        self.table.lines.get(index).map_or(&[], |line| self.text(line.value))
    }

    /// Whether a line is there and has this name.
    fn is_called(&self, index: usize, name: &[u8]) -> bool {
        let line = self.table.lines.get(index).filter(|line| !line.is_removed);
        line.is_some_and(|line| self.text(line.name).eq_ignore_ascii_case(name))
    }

    fn remove(&mut self, index: usize) {
        if let Some(line) = self.table.lines.get_mut(index) {
            (line.is_removed, line.rule) = (true, self.rule);
        }
    }

    fn note(&mut self, note: HttpNote) {
        if !self.notes.contains(&note) {
            let _ = self.notes.try_push(note);
        }
    }
}

fn first_keep(edits: &[StreamEdit]) -> *const StreamEdit {
    let first = edits.iter().find(|edit| matches!(edit, StreamEdit::KeepHeader(_)));
    first.map_or(std::ptr::null(), std::ptr::from_ref)
}

/// The lengths of a host and of the port behind it, with its colon.
fn host_and_port(value: &[u8]) -> (usize, usize) {
    let start =
        if value.starts_with(b"[") { value.iter().position(|byte| *byte == b']').unwrap_or(0) } else { 0 };
    let len = value[start..].iter().position(|byte| *byte == b':').map_or(value.len(), |at| start + at);
    (len, value.len() - len)
}

/// Writes a host in the place of that of `old`, with the old port unless the text has one.
fn write_host(old: &[u8], replacement: &Replacement, text: &mut Vec<u8>) {
    let (host_len, _) = host_and_port(old);
    let start = text.len();
    replacement.write(&old[..host_len], text);
    if host_and_port(&text[start..]).1 == 0 {
        text.extend_from_slice(&old[host_len..]);
    }
}
