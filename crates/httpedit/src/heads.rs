//! Steps of an editor at heads.

use crate::body::{Editing, Framing, Run};
use crate::head_edit::HeadEdit;
use crate::judge::{Judge, NoRoom};
use crate::output::{EditOutput, Emitter, HttpNote};
use crate::plan::{BodyPlan, FAILED, Message, RuleBits, decimal, forbids_changes, places, plan};
use crate::rule::RuleEffect;
use crate::state::{Body, Held, HttpEditor, HttpInput, Kit, Refusal, Step};
use mmb_http::{
    BodyFraming, FramingKind, HeadBuffer, Headers, HttpDirection, HttpPiece, HttpUnfit, HttpVersion,
    RequestHead, ResponseHead,
};
use mmb_policy::settings::HttpEncodings;

/// Headers by which a client asks for an encoded response or a part of one.
const ENCODINGS: [&[u8]; 3] = [b"accept-encoding", b"range", b"if-range"];

/// A head, and what is known of its message.
#[derive(Clone, Copy)]
enum MessageHead<'h> {
    Request(RequestHead<'h>),
    Response(ResponseHead<'h>),
}

impl<'h> MessageHead<'h> {
    fn headers(&self) -> Headers<'h> {
        match self {
            MessageHead::Request(head) => head.headers,
            MessageHead::Response(head) => head.headers,
        }
    }

    /// How the body ends.
    fn body(&self) -> BodyFraming {
        match self {
            MessageHead::Request(head) => head.body,
            MessageHead::Response(head) => head.body,
        }
    }

    /// Whether the server says that it closes behind it.
    fn closes_connection(&self) -> bool {
        matches!(self, MessageHead::Response(head) if head.closes_connection)
    }

    fn message(&self, forbids_changes: bool) -> Message<'h> {
        match self {
            MessageHead::Request(head) => Message {
                headers: head.headers,
                body: head.body,
                version: head.version,
                is_partial: false,
                closes_connection: false,
                forbids_changes,
            },
            MessageHead::Response(head) => {
                // The headers of a response to HEAD, and of 304, are those of the response with the body.
                let stands_for_body = head.status == 304 || (head.to_head && head.status != 204);
                Message {
                    headers: head.headers,
                    body: if stands_for_body { announced(&head.headers) } else { head.body },
                    version: head.version.min(head.request_version),
                    is_partial: head.status == 206,
                    closes_connection: self.closes_connection(),
                    forbids_changes,
                }
            }
        }
    }
}

/// The framing of the body that headers announce.
fn announced(headers: &Headers<'_>) -> BodyFraming {
    if headers.first(b"transfer-encoding").is_some() {
        return BodyFraming::Chunked;
    }
    let length =
        headers.first(b"content-length").and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
    length.map_or(BodyFraming::UntilClose, BodyFraming::Length)
}

impl HttpEditor {
    /// The step at the place of a head.
    pub(crate) fn head(
        &mut self,
        kit: &mut Kit<'_>,
        buffer: &mut HeadBuffer,
        (input, offset): (HttpInput<'_>, usize),
        out: &mut dyn EditOutput,
    ) -> Result<Step, Refusal> {
        let HttpInput { direction, bytes, is_end, release } = input;
        if bytes.is_empty() {
            return Ok(Step::held(Held::Head));
        }
        let awaits_end = self.awaits_end && !self.exchanges.is_empty();
        if direction == HttpDirection::Requests && (awaits_end || !self.exchanges.has_room()) {
            return Ok(Step::held(Held::Other));
        }
        if bytes.len() < self.whole[direction as usize] && !is_end && !release {
            return Ok(Step::held(Held::Whole));
        }
        let is_request = direction == HttpDirection::Requests && bytes.first() != Some(&b'\r');
        if is_request && self.asks_to_close {
            return Ok(Step::held(Held::Other));
        }
        let before = self.connection.clone();
        let head = match self.connection.next(direction, bytes, is_end, buffer) {
            HttpPiece::Request(head) => MessageHead::Request(head),
            HttpPiece::Response(head) => MessageHead::Response(head),
            HttpPiece::More if release => return Err(Refusal::Unfit(HttpUnfit::SlowHead)),
            HttpPiece::More => return Ok(Step::held(Held::Head)),
            HttpPiece::Wait => return Ok(Step::held(Held::Other)),
            HttpPiece::Opaque => {
                self.become_opaque();
                return Ok(Step::decided(0));
            }
            HttpPiece::Unfit(reason) => return Err(Refusal::Unfit(reason)),
            HttpPiece::Framing { len, kind: FramingKind::BehindLast } => {
                if !std::mem::replace(&mut self.has_surplus, true) {
                    out.note(HttpNote::Surplus);
                }
                match kit.effect {
                    RuleEffect::Report => out.pass(len),
                    // A client that reads them all the same would read bytes that were not searched.
                    _ => out.replace(len, &[]),
                }
                return Ok(Step::decided(len));
            }
            piece => {
                let count = piece.consumed();
                out.pass(count);
                return Ok(Step::decided(count));
            }
        };
        if let MessageHead::Response(response) = head
            && !response.is_final()
        {
            // Nothing is asked of responses that answer nothing.
            let count = response.headers.len();
            let edit = HeadEdit::new(response.headers, kit.mends(direction), &mut kit.work.table);
            let mut emitter = Emitter::new(&bytes[..count], &mut kit.work.text, out);
            edit.emit(&mut emitter);
            emitter.flush();
            self.bodies[direction as usize] = Some(Body::passes(false));
            return Ok(Step::decided(count));
        }
        let forbids = self.judge(kit, &head)?;
        let message = head.message(forbids);
        let (mut body_plan, mut editing, mut note) = plan(&message, kit.rules, kit.live, &kit.work.slots);
        if let (BodyPlan::Whole(length), BodyFraming::Length(_)) = (body_plan, head.body()) {
            let whole = head.headers().len() + length as usize;
            if bytes.len() < whole && !is_end && !release {
                self.whole[direction as usize] = whole;
                self.connection = before;
                return Ok(Step::held(Held::Whole));
            }
            if bytes.len() < whole {
                (body_plan, editing, note) = (BodyPlan::Pass, 0, Some(HttpNote::SlowBody));
            }
        }
        self.whole[direction as usize] = 0;
        if let Some(note) = note {
            out.note(note);
        }
        self.tell_met(kit, direction, offset + head.headers().len(), out)?;
        self.leave(kit, (input, offset), &head, (forbids, body_plan, editing), out)
    }

    /// Works out which constraints the head meets, into the slots of the memory. Whether the request forbids changes.
    fn judge(&mut self, kit: &mut Kit<'_>, head: &MessageHead<'_>) -> Result<bool, Refusal> {
        let work = &mut *kit.work;
        let mut judge = Judge {
            rules: kit.rules,
            live: kit.live,
            scanner: kit.scanner,
            found: &mut work.found_regexes,
            unfolded: &mut work.unfolded,
        };
        let refused = |_: NoRoom| Refusal::NoRoom;
        match head {
            MessageHead::Request(head) => {
                judge.request(head, &mut work.slots).map_err(refused)?;
                let gone = places(self.gone).filter(|place| *place < kit.live.len());
                gone.for_each(|place| work.slots[place] = FAILED);
                Ok(forbids_changes(&head.headers))
            }
            MessageHead::Response(head) => {
                work.slots.clear();
                let Some(id) = self.exchanges.oldest() else {
                    work.slots.resize(kit.live.len(), FAILED);
                    return Ok(false);
                };
                work.slots.extend_from_slice(self.exchanges.slots(id));
                judge.response(head, &mut work.slots).map_err(refused)?;
                Ok(self.exchanges.forbids_changes(id))
            }
        }
    }

    /// Tells the rules that the head makes met.
    fn tell_met(
        &mut self,
        kit: &Kit<'_>,
        direction: HttpDirection,
        offset: usize,
        out: &mut dyn EditOutput,
    ) -> Result<(), Refusal> {
        let id = self.exchanges.oldest().filter(|_| direction == HttpDirection::Responses);
        let before = id.map_or(&[][..], |id| self.exchanges.slots(id));
        let mut ended = None;
        for (place, (rule, slot)) in kit.live_rules().zip(&kit.work.slots).enumerate() {
            if *slot == rule.met() && before.get(place) != Some(slot) {
                out.hit(rule.number, offset);
                ended = ended.or(rule.end);
            }
        }
        ended.map_or(Ok(()), |end| Err(Refusal::Ended(end)))
    }

    /// Lets a head go, with its edits; with its whole body if so planned.
    fn leave(
        &mut self,
        kit: &mut Kit<'_>,
        (input, offset): (HttpInput<'_>, usize),
        head: &MessageHead<'_>,
        (forbids, body_plan, editing): (bool, BodyPlan, RuleBits),
        out: &mut dyn EditOutput,
    ) -> Result<Step, Refusal> {
        let HttpInput { direction, bytes, .. } = input;
        let slots = std::mem::take(&mut kit.work.slots);
        let detects = head.body() != BodyFraming::None && self.begin_detection(kit, direction, &slots)?;
        self.bodies[direction as usize] = Some(Body {
            plan: body_plan,
            editing,
            detects,
            mends: kit.mends(direction),
            is_until_close: head.body() == BodyFraming::UntilClose,
            ..Body::passes(true)
        });
        match direction {
            HttpDirection::Requests => self.exchanges.begin(&slots, forbids),
            HttpDirection::Responses => {
                self.asks_to_close &= head.closes_connection() || self.connection.outstanding() > 0;
                if let Some(id) = self.exchanges.oldest() {
                    self.exchanges.live_slots_mut(id).copy_from_slice(&slots);
                }
            }
        }
        kit.work.slots = slots;
        let len = head.headers().len();
        self.ends_with_connection |= body_plan == BodyPlan::UntilClose && head.body() != BodyFraming::None;
        match (body_plan, head.body()) {
            (BodyPlan::Whole(length), BodyFraming::Length(_)) => {
                self.leave_whole(kit, (&bytes[..len + length as usize], offset), head, direction, out)
            }
            _ => {
                let editing = Editing { rules: kit.rules, live: kit.live, bits: editing };
                let has_body = head.body() != BodyFraming::None;
                let tail: usize = editing.tails(&kit.work.slots).map(<[u8]>::len).sum();
                let new_length = if body_plan == BodyPlan::Empty { Some(tail as u64) } else { None };
                let mends = kit.mends(direction);
                let work = &mut *kit.work;
                let mut edit = HeadEdit::new(head.headers(), mends, &mut work.table);
                mend_head(&mut edit, head);
                // First, while there is room for it: without it nobody would find the end of the body.
                frame(&mut edit, head, body_plan, new_length);
                self.asks_to_close |= edit_head(&mut edit, (kit.rules, kit.live, &work.slots), head);
                let mut emitter = Emitter::new(&bytes[..len], &mut work.text, out);
                edit.emit(&mut emitter);
                if body_plan == BodyPlan::Empty && has_body {
                    editing.emit_tails(&mut emitter, &work.slots);
                }
                emitter.flush();
                edit.tell(out);
                if !has_body || body_plan == BodyPlan::Empty {
                    self.bodies[direction as usize] = Some(Body::passes(true));
                }
                Ok(Step::decided(len))
            }
        }
    }

    /// Lets a message go whose body is there, with a right length.
    fn leave_whole(
        &mut self,
        kit: &mut Kit<'_>,
        (bytes, offset): (&[u8], usize),
        head: &MessageHead<'_>,
        direction: HttpDirection,
        out: &mut dyn EditOutput,
    ) -> Result<Step, Refusal> {
        let Some(body) = self.bodies[direction as usize] else { return Ok(Step::decided(0)) };
        let head_len = head.headers().len();
        let content = &bytes[head_len..];
        let runs = [Run { start: 0, len: content.len() }];
        if body.detects {
            let offset_of = |end: usize| offset + head_len + end;
            self.detect((kit.rules, kit.live, kit.scanner), direction, content, &offset_of, out)?;
        }
        let editing = Editing { rules: kit.rules, live: kit.live, bits: body.editing };
        let work = &mut *kit.work;
        let count = editing.find(kit.scratch, content, None, true, &mut work.found);
        let exchange = self.exchange(direction);
        if let Some(id) = exchange {
            editing.note_found(&work.found, self.exchanges.live_slots_mut(id));
        }
        let slots = exchange.map_or(&[][..], |id| self.exchanges.slots(id));
        let tail: usize = editing.tails(slots).map(<[u8]>::len).sum();
        let is_long = count < content.len();
        if is_long {
            out.note(HttpNote::LongBody);
        }
        let is_changed = !is_long && (tail > 0 || !work.found.is_empty());
        let new_length = is_changed.then(|| (editing.len(&work.found, count) + tail) as u64);
        let mut edit = HeadEdit::new(head.headers(), kit.effect == RuleEffect::Edit, &mut work.table);
        mend_head(&mut edit, head);
        // First, while there is room for it: see `leave`.
        if is_changed {
            frame(&mut edit, head, BodyPlan::Whole(content.len() as u64), new_length);
        }
        self.asks_to_close |= edit_head(&mut edit, (kit.rules, kit.live, &work.slots), head);
        let mut emitter = Emitter::new(bytes, &mut work.text, out);
        edit.emit(&mut emitter);
        if is_changed {
            editing.emit(
                &mut emitter,
                (content, &runs, count),
                &work.found,
                Framing::Keeps,
                offset + head_len,
            );
            editing.emit_tails(&mut emitter, slots);
        }
        emitter.keep(bytes.len() - emitter.at());
        emitter.flush();
        edit.tell(out);
        self.bodies[direction as usize] = Some(Body::passes(true));
        // The reader goes over the content, of which all is there.
        let read = self.connection.next(direction, content, false, &mut HeadBuffer::default()).consumed();
        debug_assert_eq!(read, content.len());
        Ok(Step::decided(bytes.len()))
    }
}

/// If heads are mended, removes headers of a response that repeat or contradict where the response ends (RFC 9110,
/// section 8.6; RFC 9112, section 6.3).
fn mend_head(edit: &mut HeadEdit<'_>, head: &MessageHead<'_>) {
    let MessageHead::Response(response) = head else { return };
    if !edit.mends() {
        return;
    }
    if response.headers.first(b"transfer-encoding").is_some() {
        edit.strip(b"content-length");
    }
    edit.strip_repeated(b"content-length");
    if response.status == 204 {
        edit.strip(b"transfer-encoding");
        if response.headers.first(b"content-length").is_some_and(|length| length != b"0") {
            edit.strip(b"content-length");
        }
    }
}

/// Applies what rules that are met change in a head, and what all heads lose. Whether the server is asked to close, which would else stay.
fn edit_head(
    edit: &mut HeadEdit<'_>,
    (rules, live, slots): (&crate::rule::HttpRules, &[u32], &[u16]),
    head: &MessageHead<'_>,
) -> bool {
    let live_rules = || live.iter().filter_map(|index| rules.rules.get(*index as usize)).zip(slots);
    if let MessageHead::Request(request) = head {
        edit.strip_http2(request);
    }
    let request = if let MessageHead::Request(head) = head { Some(head) } else { None };
    for (rule, slot) in live_rules() {
        if *slot == rule.met() {
            edit.set_rule(rule.number);
            rule.head_edits.iter().for_each(|change| edit.apply(change, &rule.head_edits, request));
        }
    }
    edit.set_rule(0);
    let Some(request) = request else { return false };
    let strips = rules.settings.encodings == HttpEncodings::Strip;
    if strips && live_rules().any(|(rule, slot)| *slot != FAILED && rule.is_about_bodies()) {
        ENCODINGS.into_iter().for_each(|name| edit.strip(name));
    }
    // The length of a body that changes as it flows is not known, and this client knows no chunks: the server is asked to close behind it.
    let has_body = ![&b"HEAD"[..], b"CONNECT"].contains(&request.method());
    let asks_to_close = request.version == HttpVersion::Http10
        && has_body
        && request.headers.has_token(b"connection", b"keep-alive")
        && live_rules().any(|(rule, slot)| *slot != FAILED && rule.changes_lengths());
    if asks_to_close {
        edit.strip_keep_alive();
    }
    asks_to_close
}

/// Changes the headers of a message whose body may be changed.
fn frame(edit: &mut HeadEdit<'_>, head: &MessageHead<'_>, body_plan: BodyPlan, new_length: Option<u64>) {
    if body_plan == BodyPlan::Pass {
        return;
    }
    edit.body_changes();
    let has_no_body = head.body() == BodyFraming::None;
    let is_not_modified = matches!(head, MessageHead::Response(head) if head.status == 304);
    match (body_plan, new_length) {
        (BodyPlan::InPlace | BodyPlan::Pass, _) => {}
        (BodyPlan::UntilClose, _) => edit.strip(b"content-length"),
        (_, Some(length)) => edit.set(b"content-length", &decimal(length)),
        // Of a HEAD, the length of what GET would bring is not known.
        (BodyPlan::Whole(_) | BodyPlan::Empty, None) => {
            if has_no_body {
                edit.strip(b"content-length");
            }
        }
        (BodyPlan::Chunks, None) => {
            edit.strip(b"content-length");
            if !is_not_modified && head.headers().first(b"transfer-encoding").is_none() {
                edit.add_chunked();
            }
        }
    }
}
