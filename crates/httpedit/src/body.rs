//! Content of bodies: what rules find in it, and what becomes of it.

use crate::limits::{MAX_GATHERED_BYTES, MAX_MATCHES, MAX_RUNS, MAX_WRITTEN_BYTES};
use crate::mend::mend_framing;
use crate::output::Emitter;
use crate::plan::{RuleBits, places};
use crate::rule::{BodyAction, BodyEdit, HttpRule, HttpRules};
use arrayvec::ArrayVec;
use mmb_http::{BodyPlace, FramingKind, HeadBuffer, HttpConnection, HttpDirection, HttpPiece, HttpUnfit};
use mmb_policy::ReplacementPart;
use mmb_scan::{EditScratch, EditStep};

/// Content without framing in it, in the bytes of a direction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// A match that is edited, by places in the content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// The place of its rule among the connection's.
    place: u8,
}

/// How the framing around content leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Drops,
    Keeps,
    /// It is mended: it leaves as the grammar demands.
    Mends,
}

/// Why no more content was gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// More bytes must come.
    More,
    /// There is more content than is looked at together.
    Full,
    /// The content has ended with the last chunk's line, of so many bytes.
    LastChunk(usize),
    /// The message has ended.
    End,
    /// The sender has closed; so many bytes of framing are left.
    Truncated(usize),
    /// What follows is refused.
    Refused,
}

impl Ending {
    /// Whether no content follows.
    pub(crate) fn ends_body(self) -> bool {
        match self {
            Ending::LastChunk(_) | Ending::End | Ending::Truncated(_) | Ending::Refused => true,
            Ending::More | Ending::Full => false,
        }
    }

    /// Whether the content is complete.
    pub(crate) fn is_complete(self) -> bool {
        matches!(self, Ending::LastChunk(_) | Ending::End)
    }
}

/// The content that was gathered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gathered {
    pub(crate) ending: Ending,
    /// Bytes up to the end of all pieces, the last chunk's line among them.
    pub(crate) end: usize,
    /// Bytes of content.
    pub(crate) len: usize,
    /// The reader before them.
    begin: BodyPlace,
    /// The reader has read more than was gathered.
    is_cut: bool,
}

/// Gathers the content of the body that `bytes` go on with. If it lies in several runs it is copied into `content`.
pub(crate) fn gather(
    (connection, direction): (&mut HttpConnection, HttpDirection),
    bytes: &[u8],
    is_end: bool,
    buffer: &mut HeadBuffer,
    (runs, content): (&mut Vec<Run>, &mut Vec<u8>),
) -> Result<Gathered, HttpUnfit> {
    runs.clear();
    content.clear();
    let begin = connection.place(direction);
    let (mut at, mut len, mut is_cut) = (0, 0, false);
    let ending = loop {
        if runs.len() == MAX_RUNS || (runs.len() > 1 && len >= MAX_GATHERED_BYTES) {
            break Ending::Full;
        }
        match connection.next(direction, &bytes[at..], is_end, buffer) {
            HttpPiece::Body { len: run } => {
                let max = if runs.is_empty() { run } else { MAX_GATHERED_BYTES.saturating_sub(len) };
                is_cut = max < run;
                if max > 0 {
                    runs.push(Run { start: at, len: run.min(max) });
                }
                len += run.min(max);
                at += run.min(max);
                if is_cut {
                    break Ending::Full;
                }
            }
            HttpPiece::Framing { len, kind: FramingKind::LastChunk } => {
                at += len;
                break Ending::LastChunk(len);
            }
            HttpPiece::Framing { len, .. } => at += len,
            HttpPiece::End => break Ending::End,
            HttpPiece::Truncated { len } => {
                at += len;
                break Ending::Truncated(len);
            }
            HttpPiece::Unfit(reason) if at == 0 => return Err(reason),
            // What comes before it is still content.
            HttpPiece::Unfit(_) => break Ending::Refused,
            HttpPiece::More | HttpPiece::Wait | HttpPiece::Opaque => break Ending::More,
            HttpPiece::Request(_) | HttpPiece::Response(_) | HttpPiece::Trailers(_) => break Ending::More,
        }
    };
    if let [_, _, ..] = runs[..] {
        for run in &*runs {
            content.extend_from_slice(&bytes[run.start..run.start + run.len]);
        }
    }
    Ok(Gathered { ending, end: at, len, begin, is_cut })
}

impl Gathered {
    /// The content, in a row.
    pub(crate) fn content<'c>(&self, bytes: &'c [u8], runs: &[Run], copied: &'c [u8]) -> &'c [u8] {
        match runs {
            [] => &[],
            [run] => &bytes[run.start..run.start + run.len],
            _ => copied,
        }
    }

    /// The bytes that are decided with the first `count` of the content: all if that is all content.
    pub(crate) fn decided(&self, runs: &[Run], count: usize) -> usize {
        if count == self.len {
            return self.end;
        }
        place_behind(runs, count)
    }

    /// Takes the reader behind the `decided` bytes, which are fewer than it has read unless `count` is all content.
    pub(crate) fn rewind(
        &self,
        (connection, direction): (&mut HttpConnection, HttpDirection),
        bytes: &[u8],
        (count, decided): (usize, usize),
        buffer: &mut HeadBuffer,
    ) {
        if (count == self.len && !self.is_cut) || self.ending == Ending::Refused {
            return;
        }
        connection.set_place(direction, self.begin);
        let mut at = 0;
        while at < decided {
            let consumed = connection.next(direction, &bytes[at..decided], false, buffer).consumed();
            if consumed == 0 {
                debug_assert!(false, "decided within a piece of framing");
                return;
            }
            at += consumed;
        }
    }
}

/// The place behind the first `count` bytes of content; 0 for none.
fn place_behind(runs: &[Run], mut count: usize) -> usize {
    for run in runs {
        if count <= run.len {
            return if count == 0 { 0 } else { run.start + count };
        }
        count -= run.len;
    }
    0
}

/// The rules that edit a body.
pub(crate) struct Editing<'e> {
    pub(crate) rules: &'e HttpRules,
    pub(crate) live: &'e [u32],
    pub(crate) bits: RuleBits,
}

impl<'e> Editing<'e> {
    fn edit(&self, place: u8) -> Option<(u32, &'e BodyEdit)> {
        let rule = self.rules.rules.get(*self.live.get(usize::from(place))? as usize)?;
        Some((rule.number, rule.body_edit.as_ref()?))
    }

    fn rules(&self) -> impl Iterator<Item = (usize, &'e HttpRule)> {
        places(self.bits)
            .filter_map(|place| Some((place, self.rules.rules.get(*self.live.get(place)? as usize)?)))
    }

    /// Whether a rule may add something at the end.
    pub(crate) fn may_add(&self) -> bool {
        self.rules().any(|(_, rule)| !rule.tail.is_empty())
    }

    /// What the rules that are met add at the end, in their order.
    pub(crate) fn tails<'s>(&'s self, slots: &'s [u16]) -> impl Iterator<Item = &'e [u8]> + 's {
        let is_met = |place: usize, rule: &HttpRule| slots.get(place) == Some(&rule.met());
        self.rules().filter(move |(place, rule)| is_met(*place, rule)).map(|(_, rule)| &rule.tail[..])
    }

    /// Writes what the rules that are met add at the end.
    pub(crate) fn emit_tails(&self, emitter: &mut Emitter<'_>, slots: &[u16]) {
        for (place, rule) in self.rules().filter(|(_, rule)| !rule.tail.is_empty()) {
            if slots.get(place) == Some(&rule.met()) {
                emitter.add_rule(rule.number);
                emitter.insert(&rule.tail);
            }
        }
    }

    /// Finds the matches that are edited: of all matches the leftmost, of those that start there the longest, of these the one of the first
    /// rule; then on behind it. Returns how many bytes of content are decided. `is_final`: what is only begun is no match.
    pub(crate) fn find(
        &self,
        scratch: &mut EditScratch,
        content: &[u8],
        before: Option<u8>,
        is_final: bool,
        found: &mut Vec<Found>,
    ) -> usize {
        found.clear();
        let mut steps: ArrayVec<(u8, &BodyEdit, Option<EditStep>), { RuleBits::BITS as usize }> = self
            .rules()
            .filter_map(|(place, rule)| Some((place as u8, rule.body_edit.as_ref()?, None)))
            .collect();
        let (mut from, mut written) = (0, 0);
        loop {
            let mut begun = content.len();
            let mut first: Option<(Found, &BodyEdit)> = None;
            for (place, edit, step) in &mut steps {
                let is_behind = match step {
                    Some(EditStep::Nothing) => true,
                    Some(EditStep::Begun { start } | EditStep::Match { start, .. }) => *start >= from,
                    None => false,
                };
                if !is_behind {
                    *step = Some(edit.patterns.next(scratch, content, from, before, is_final));
                }
                match *step {
                    Some(EditStep::Begun { start }) => begun = begun.min(start),
                    Some(EditStep::Match { start, end, .. }) => {
                        let is_better =
                            first.is_none_or(|(first, _)| (start, first.end) < (first.start, end));
                        if is_better {
                            first = Some((Found { start, end, place: *place }, edit));
                        }
                    }
                    Some(EditStep::Nothing) | None => {}
                }
            }
            let Some((match_, edit)) = first.filter(|(first, _)| first.start < begun) else { return begun };
            from = match_.end;
            written += edit.action.len_for(match_.end - match_.start);
            found.push(match_);
            if found.len() == MAX_MATCHES || written > MAX_WRITTEN_BYTES {
                return from;
            }
        }
    }

    /// The length of the first `count` bytes of content with their edits.
    pub(crate) fn len(&self, found: &[Found], count: usize) -> usize {
        found.iter().fold(count, |len, found| {
            let matched = found.end - found.start;
            len - matched + self.edit(found.place).map_or(matched, |(_, edit)| edit.action.len_for(matched))
        })
    }

    /// Notes in slots that the constraints are met whose matches were found.
    pub(crate) fn note_found(&self, found: &[Found], slots: &mut [u16]) {
        for found in found {
            let place = usize::from(found.place);
            let rule = self.live.get(place).and_then(|index| self.rules.rules.get(*index as usize));
            if let (Some(rule), Some(slot)) = (rule, slots.get_mut(place)) {
                *slot |= rule.edit_bit;
            }
        }
    }

    /// Writes the first `count` bytes of content with their edits. `framing` says what becomes of what lies between runs; `offset` is the place of the
    /// bytes among those that the editor was shown.
    pub(crate) fn emit(
        &self,
        emitter: &mut Emitter<'_>,
        (content, runs, count): (&[u8], &[Run], usize),
        found: &[Found],
        framing: Framing,
        offset: usize,
    ) {
        let origin = emitter.at();
        let mut writer = Writer { emitter, runs, at: 0, run: 0, rule: 0, origin, framing };
        for found in found {
            writer.keep(found.start - writer.at);
            let Some((number, edit)) = self.edit(found.place) else { continue };
            writer.rule = number;
            writer.replace(&edit.action, &content[found.start..found.end]);
            writer.emitter.hit(number, offset + place_behind(runs, found.end));
        }
        writer.keep(count - writer.at);
    }
}

/// Writes content that lies in runs.
struct Writer<'w, 'e> {
    emitter: &'w mut Emitter<'e>,
    runs: &'w [Run],
    /// Bytes of content that are written.
    at: usize,
    /// The run that is written.
    run: usize,
    /// The rule that edits.
    rule: u32,
    /// Where the runs' places count from.
    origin: usize,
    framing: Framing,
}

impl Writer<'_, '_> {
    fn keep(&mut self, count: usize) {
        self.each(count, |emitter, _, count| emitter.keep(count));
    }

    fn drop(&mut self, count: usize) {
        self.each(count, |emitter, rule, count| {
            emitter.add_rule(rule);
            emitter.drop(count);
        });
    }

    fn replace(&mut self, action: &BodyAction, matched: &[u8]) {
        match action {
            // Each run keeps its length.
            BodyAction::Mask(text) => {
                for byte in text.iter().cycle().take(matched.len()) {
                    self.drop(1);
                    self.emitter.insert(&[*byte]);
                }
            }
            BodyAction::Replace(replacement) => {
                self.drop(matched.len());
                for part in replacement.parts() {
                    self.emitter.insert(match part {
                        ReplacementPart::Bytes(bytes) => bytes,
                        ReplacementPart::Matched => matched,
                    });
                }
            }
        }
    }

    fn each(&mut self, mut count: usize, write: fn(&mut Emitter<'_>, u32, usize)) {
        self.at += count;
        while count > 0
            && let Some(run) = self.runs.get(self.run)
        {
            let at = self.emitter.at() - self.origin;
            if let Some(gap) = run.start.checked_sub(at).filter(|gap| *gap > 0) {
                match self.framing {
                    Framing::Drops => self.emitter.drop(gap),
                    Framing::Keeps => self.emitter.keep(gap),
                    Framing::Mends => mend_framing(self.emitter, gap),
                }
                continue;
            }
            let part = count.min(run.start + run.len - at);
            if part == 0 {
                self.run += 1;
                continue;
            }
            write(self.emitter, self.rule, part);
            count -= part;
        }
    }
}
