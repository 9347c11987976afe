//! Steps of an editor behind a head.

use crate::body::{Editing, Ending, Found, Framing, Run, gather};
use crate::memory::Work;
use crate::mend::{emit_trailers, mend_framing};
use crate::output::{EditOutput, Emitter, HttpNote};
use crate::plan::{BodyPlan, chunk_line};
use crate::state::{Body, Held, HttpEditor, HttpInput, Kit, Refusal, Step};
use mmb_http::{HeadBuffer, HttpDirection, HttpPiece, HttpUnfit};

/// The end of a body in chunks.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

impl HttpEditor {
    /// A body about which nothing is to be decided.
    pub(crate) fn pass_body(
        &mut self,
        kit: &mut Kit<'_>,
        buffer: &mut HeadBuffer,
        input: HttpInput<'_>,
        body: Body,
        out: &mut dyn EditOutput,
    ) -> Result<Step, Refusal> {
        let HttpInput { direction, bytes, is_end, .. } = input;
        let piece = self.connection.next(direction, bytes, is_end, buffer);
        let count = piece.consumed();
        match piece {
            HttpPiece::End => self.message_ends(direction),
            HttpPiece::Unfit(reason) => return Err(Refusal::Unfit(reason)),
            HttpPiece::Opaque => self.become_opaque(),
            HttpPiece::More | HttpPiece::Wait => return incomplete_line(input),
            HttpPiece::Truncated { len: 0 } => return Ok(Step::held(Held::Head)),
            HttpPiece::Framing { .. } if body.mends => {
                let mut emitter = Emitter::new(&bytes[..count], &mut kit.work.text, out);
                mend_framing(&mut emitter, count);
                emitter.flush();
            }
            HttpPiece::Trailers(headers) if body.mends => {
                let mut emitter = Emitter::new(bytes, &mut kit.work.text, out);
                emit_trailers(&headers, body.plan, &mut emitter);
                emitter.flush();
            }
            HttpPiece::Request(_) | HttpPiece::Response(_) | HttpPiece::Body { .. } => out.pass(count),
            HttpPiece::Framing { .. } | HttpPiece::Trailers(_) | HttpPiece::Truncated { .. } => {
                out.pass(count)
            }
        }
        Ok(Step::decided(count))
    }

    /// The trailer section behind a body that may have changed.
    pub(crate) fn trailers(
        &mut self,
        kit: &mut Kit<'_>,
        buffer: &mut HeadBuffer,
        input: HttpInput<'_>,
        out: &mut dyn EditOutput,
    ) -> Result<Step, Refusal> {
        match self.connection.next(input.direction, input.bytes, input.is_end, buffer) {
            HttpPiece::Trailers(headers) => {
                let mut emitter = Emitter::new(input.bytes, &mut kit.work.text, out);
                emit_trailers(&headers, BodyPlan::Chunks, &mut emitter);
                emitter.flush();
                let decided = headers.len();
                // The message ends like any other.
                if let Some(body) = &mut self.bodies[input.direction as usize] {
                    (body.plan, body.detects) = (BodyPlan::Pass, false);
                }
                Ok(Step::decided(decided))
            }
            HttpPiece::Truncated { len } if len > 0 => {
                out.pass(len);
                Ok(Step::decided(len))
            }
            HttpPiece::Unfit(reason) => Err(Refusal::Unfit(reason)),
            _ => incomplete_line(input),
        }
    }

    /// A body that is searched or edited.
    pub(crate) fn body(
        &mut self,
        kit: &mut Kit<'_>,
        buffer: &mut HeadBuffer,
        (input, offset): (HttpInput<'_>, usize),
        body: Body,
        out: &mut dyn EditOutput,
    ) -> Result<Step, Refusal> {
        let HttpInput { direction, bytes, is_end, release } = input;
        let Kit { rules, live, scanner, scratch, work, .. } = kit;
        let Work { runs, content: copied, found, text, .. } = &mut **work;
        let gathered = gather((&mut self.connection, direction), bytes, is_end, buffer, (runs, copied));
        let gathered = gathered.map_err(Refusal::Unfit)?;
        let mut ending = gathered.ending;
        if gathered.end == 0 && !ending.ends_body() {
            return incomplete_line(input);
        }
        let content = gathered.content(bytes, runs, copied);
        if body.detects {
            let fresh = content.get(body.searched..).unwrap_or_default();
            let offset_of = |end: usize| offset + gathered.decided(runs, body.searched + end);
            self.detect((rules, live, scanner), direction, fresh, &offset_of, out)?;
        }
        let editing = Editing { rules, live, bits: body.editing };
        let is_final = ending.ends_body() || (release && ending == Ending::More);
        let mut count = editing.find(scratch, content, body.before, is_final, found);
        if is_final && count < content.len() {
            // There are more matches than are edited together.
            ending = Ending::Full;
        }
        let exchange = self.exchange(direction);
        if let Some(id) = exchange {
            editing.note_found(found, self.exchanges.live_slots_mut(id));
        }
        let needs_last = body.is_until_close && !is_final && count == content.len() && editing.may_add();
        if needs_last {
            // What is added at the end needs a byte to which it is added.
            count = match found.pop_if(|found| found.end == count) {
                Some(found) => found.start,
                None => count.saturating_sub(1),
            };
        }
        let decided = if count == 0 && !content.is_empty() { 0 } else { gathered.decided(runs, count) };
        let slots = exchange.filter(|_| ending.is_complete()).map_or(&[][..], |id| self.exchanges.slots(id));
        if decided > 0 {
            let part = Part { body, content, runs, count, found, ending, slots, offset };
            part.emit(&editing, &mut Emitter::new(&bytes[..decided], text, out));
        } else if editing.tails(slots).any(|tail| !tail.is_empty()) {
            out.note(HttpNote::LostTail);
        }
        let undecided = content.len() - count;
        let last = count.checked_sub(1).and_then(|last| content.get(last)).copied();
        gathered.rewind((&mut self.connection, direction), bytes, (count, decided), buffer);
        self.go_on(direction, (ending, undecided), last);
        let is_held = undecided > 0 && ending == Ending::More;
        let is_over = matches!(ending, Ending::Truncated(_));
        if is_over && body.plan == BodyPlan::UntilClose {
            // The end of the connection would tell the client that the body is complete.
            return Err(Refusal::Unfit(HttpUnfit::UnfinishedBody));
        }
        let held = match is_held {
            true if needs_last => Some(Held::Last),
            true => Some(Held::Match),
            false => is_over.then_some(Held::Head),
        };
        Ok(Step { decided, held })
    }

    /// Notes what is decided.
    fn go_on(&mut self, direction: HttpDirection, (ending, undecided): (Ending, usize), last: Option<u8>) {
        if ending == Ending::End {
            return self.message_ends(direction);
        }
        let Some(body) = &mut self.bodies[direction as usize] else { return };
        body.searched = undecided;
        body.before = last.or(body.before);
        body.is_behind_content |= matches!(ending, Ending::LastChunk(_));
    }
}

/// More bytes must come. If they were waited for too long, the line is refused.
fn incomplete_line(input: HttpInput<'_>) -> Result<Step, Refusal> {
    let is_slow = input.release && !input.bytes.is_empty();
    if is_slow { Err(Refusal::Unfit(HttpUnfit::SlowHead)) } else { Ok(Step::held(Held::Head)) }
}

/// Content of which a part is decided.
struct Part<'p> {
    body: Body,
    content: &'p [u8],
    runs: &'p [Run],
    /// The bytes of content that are decided.
    count: usize,
    found: &'p [Found],
    ending: Ending,
    /// The slots of the exchange if the content is complete: what rules add at the end follows.
    slots: &'p [u16],
    offset: usize,
}

impl Part<'_> {
    fn emit(&self, editing: &Editing<'_>, emitter: &mut Emitter<'_>) {
        let end = emitter.input_len();
        let content = (self.content, self.runs, self.count);
        match self.body.plan {
            BodyPlan::Chunks => {
                let added: usize = editing.tails(self.slots).map(<[u8]>::len).sum();
                let len = editing.len(self.found, self.count) + added;
                if len > 0 {
                    emitter.insert(&chunk_line(len));
                }
                editing.emit(emitter, content, self.found, Framing::Drops, self.offset);
                editing.emit_tails(emitter, self.slots);
                if len > 0 {
                    emitter.insert(b"\r\n");
                }
                let last_line = if let Ending::LastChunk(len) = self.ending { len } else { 0 };
                emitter.drop(end - emitter.at() - last_line);
                mend_framing(emitter, last_line);
                if self.ending == Ending::End {
                    emitter.insert(LAST_CHUNK);
                }
            }
            BodyPlan::Pass
            | BodyPlan::InPlace
            | BodyPlan::UntilClose
            | BodyPlan::Whole(_)
            | BodyPlan::Empty => {
                let framing = if self.body.mends { Framing::Mends } else { Framing::Keeps };
                editing.emit(emitter, content, self.found, framing, self.offset);
                editing.emit_tails(emitter, self.slots);
                // Framing, if anything.
                match self.body.mends {
                    true => mend_framing(emitter, end - emitter.at()),
                    false => emitter.keep(end - emitter.at()),
                }
            }
        }
        emitter.flush();
    }
}
