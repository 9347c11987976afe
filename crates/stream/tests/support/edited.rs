//! A connection whose bytes are edited, in a notation that is easy to write and to compare.
//!
//! Segments are those of [`Seg`], with the offsets of their sender. A forwarded packet is shown as text, with
//! the offsets of its receiver: `> 5 "abc" ack 0` is a segment of the initiator with three bytes from offset
//! 5 on, which acknowledges nothing. `<` marks a segment of the responder. `+` comes before generated
//! packets. `fin`, `rst`, `syn`, `ce` and `sack 3-6` come at the end.

use super::{Seg, ack, syn, syn_ack};
use mmb_stream::{
    EditSink, EditedPayload, GeneratedSegment, InOrder, Level, Outcome, ScanAnswer, Segment, StreamDrop,
    StreamId, StreamInfo, StreamLimits, StreamReader, StreamTable, StreamVerdict, Undecided, Unfit, flag,
};
use std::ops::ControlFlow;

/// Limits with little memory.
pub(crate) const LIMITS: StreamLimits = StreamLimits { memory: 1 << 20, ..super::LIMITS };

/// What an editor was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) offset: u64,
    pub(crate) bytes: String,
    pub(crate) known: usize,
    pub(crate) is_end: bool,
    pub(crate) waited_ms: Option<u32>,
}

/// Replaces words: the first one that begins at a place. A word that is begun at the end is held.
#[derive(Clone, Debug, Default)]
pub(crate) struct Words {
    words: Vec<(Vec<u8>, Vec<u8>)>,
    /// Holds on, also when time has passed.
    pub(crate) is_patient: bool,
    /// Tells nothing before it is asked to edit.
    pub(crate) cannot_scan: bool,
    /// Breaks when this is among the bytes.
    pub(crate) stop: Option<Vec<u8>>,
    pub(crate) asked: Vec<Asked>,
    /// What was decided, by direction.
    pub(crate) input: [Vec<u8>; 2],
    pub(crate) output: [Vec<u8>; 2],
}

impl Words {
    pub(crate) fn new(words: &[(&str, &str)]) -> Words {
        let bytes = |text: &str| text.as_bytes().to_vec();
        Words {
            words: words.iter().map(|(word, new_word)| (bytes(word), bytes(new_word))).collect(),
            ..Words::default()
        }
    }

    /// What becomes of a whole stream.
    pub(crate) fn edited(&self, mut bytes: &[u8]) -> Vec<u8> {
        let mut edited = Vec::new();
        while let Some((first, rest)) = bytes.split_first() {
            match self.words.iter().find(|(word, _)| bytes.starts_with(word)) {
                Some((word, new_word)) => {
                    edited.extend(new_word);
                    bytes = &bytes[word.len()..];
                }
                None => {
                    edited.push(*first);
                    bytes = rest;
                }
            }
        }
        edited
    }
}

impl StreamReader for Words {
    fn scan(&mut self, in_order: InOrder<'_>) -> ControlFlow<()> {
        for decided in [&mut self.input, &mut self.output] {
            decided[in_order.direction].extend_from_slice(in_order.bytes);
        }
        ControlFlow::Continue(())
    }

    fn scan_plain(
        &mut self,
        InOrder { direction, offset, bytes, .. }: InOrder<'_>,
    ) -> ControlFlow<(), ScanAnswer> {
        let begins = |(word, _): &(Vec<u8>, Vec<u8>)| {
            (0..bytes.len()).any(|index| {
                let rest = &bytes[index..];
                rest.starts_with(word) || word.starts_with(rest)
            })
        };
        if self.cannot_scan {
            return ControlFlow::Continue(ScanAnswer::CannotScan);
        }
        if self.stop.as_ref().is_some_and(|stop| super::contains(bytes, stop)) {
            return ControlFlow::Break(());
        }
        if self.words.iter().any(begins) {
            return ControlFlow::Continue(ScanAnswer::AskToEdit);
        }
        assert_eq!(offset, self.input[direction].len() as u64, "bytes are asked about again, or left out");
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(100)]).into_owned();
        self.asked.push(Asked { offset, bytes: shown, known: 0, is_end: false, waited_ms: None });
        self.input[direction].extend_from_slice(bytes);
        self.output[direction].extend_from_slice(bytes);
        ControlFlow::Continue(ScanAnswer::PassAll)
    }

    fn edit(&mut self, undecided: Undecided<'_>, sink: &mut EditSink<'_>) -> ControlFlow<()> {
        let Undecided { direction, offset, bytes, known, is_end, waited_ms } = undecided;
        assert_eq!(offset, self.input[direction].len() as u64, "bytes are asked about again, or left out");
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(100)]).into_owned();
        self.asked.push(Asked { offset, bytes: shown, known, is_end, waited_ms });
        if self.stop.as_ref().is_some_and(|stop| super::contains(bytes, stop)) {
            return ControlFlow::Break(());
        }
        let may_hold = !is_end && (waited_ms.is_none() || self.is_patient);
        while let Some(rest) = Some(sink.rest().to_vec()).filter(|rest| !rest.is_empty()) {
            let begun = |word: &[u8]| word.len() > rest.len() && word.starts_with(&rest);
            if may_hold && self.words.iter().any(|(word, _)| begun(word)) {
                break;
            }
            let (count, new_word) = match self.words.iter().find(|(word, _)| rest.starts_with(word)) {
                Some((word, new_word)) => {
                    sink.replace(word.len(), new_word);
                    (word.len(), new_word.as_slice())
                }
                None => {
                    sink.pass(1);
                    (1, &rest[..1])
                }
            };
            self.input[direction].extend_from_slice(&rest[..count]);
            self.output[direction].extend_from_slice(new_word);
        }
        ControlFlow::Continue(())
    }
}

/// A packet that went on, or was generated. Numbers are offsets as its receiver counts.
#[derive(Clone, Debug)]
pub(crate) struct Went {
    pub(crate) segment: Seg,
    pub(crate) sack: Vec<[i64; 2]>,
    pub(crate) is_generated: bool,
}

impl Went {
    fn shown(&self) -> String {
        let Went { segment: Seg { direction, offset, ack, header, data }, sack, is_generated } = self;
        let generated = if *is_generated { "+" } else { "" };
        let data = String::from_utf8_lossy(data);
        let mut shown = format!("{generated}{} {offset} {data:?}", [">", "<"][*direction]);
        if header.has(flag::ACK) {
            shown += &format!(" ack {ack}");
        }
        for (bit, name) in [(flag::SYN, "syn"), (flag::FIN, "fin"), (flag::RST, "rst"), (flag::URG, "urg")] {
            if header.has(bit) {
                shown += &format!(" {name}");
            }
        }
        if header.has_ce_mark {
            shown += " ce";
        }
        sack.iter().for_each(|[left, right]| shown += &format!(" sack {left}-{right}"));
        shown
    }
}

/// A table with one connection with edits.
pub(crate) struct EditedConn {
    pub(crate) table: StreamTable,
    pub(crate) id: StreamId,
    /// The initial sequence numbers.
    pub(crate) isn: [u32; 2],
    pub(crate) now_ms: u64,
    pub(crate) editor: Words,
    /// The header of the last packet that went on or was generated.
    pub(crate) last: Segment,
    /// What the last packet was answered with.
    pub(crate) outcome: Outcome,
}

impl EditedConn {
    /// A connection of which no segment was taken.
    pub(crate) fn new(levels: [Level; 2], limits: StreamLimits, editor: Words) -> EditedConn {
        EditedConn::open(levels, limits, editor, &syn(b"")).expect("a fit connection")
    }

    /// The same with any first segment.
    pub(crate) fn open(
        levels: [Level; 2],
        limits: StreamLimits,
        editor: Words,
        first: &Seg,
    ) -> Result<EditedConn, Unfit> {
        let mut table = StreamTable::default();
        assert!(table.configure(limits));
        let id = table.open(levels, true, Some(&first.header), 0)?;
        let isn = [u32::MAX - 20, 1000];
        let (last, outcome) = (Segment::default(), Outcome::PASS);
        Ok(EditedConn { table, id, isn, now_ms: 0, editor, last, outcome })
    }

    /// A connection after its handshake, in which the initiator's bytes are edited. Both ends know SACK and
    /// accept 1,000 bytes in a segment.
    pub(crate) fn established(words: &[(&str, &str)]) -> EditedConn {
        EditedConn::established_with(LIMITS, words, &|segment| segment)
    }

    /// The same under limits, with a changed handshake.
    pub(crate) fn established_with(
        limits: StreamLimits,
        words: &[(&str, &str)],
        change: &dyn Fn(Seg) -> Seg,
    ) -> EditedConn {
        let mut conn = EditedConn::new([Level::Edit, Level::None], limits, Words::new(words));
        for segment in [syn(b""), syn_ack(), ack(0, 0, 0)] {
            let mut segment = segment;
            (segment.header.mss, segment.header.sack_permitted) = (Some(1000), true);
            conn.send(change(segment));
        }
        conn.editor.asked.clear();
        conn
    }

    /// The sequence number of an offset of a direction.
    pub(crate) fn seq(&self, direction: usize, offset: i64) -> u32 {
        self.isn[direction].wrapping_add(1).wrapping_add(offset as u32)
    }

    /// The offset of a sequence number, near zero.
    pub(crate) fn offset(&self, direction: usize, seq: u32) -> i64 {
        i64::from(seq.wrapping_sub(self.seq(direction, 0)).cast_signed())
    }

    /// Takes a segment. Returns it as forwarded, and the generated packets.
    pub(crate) fn send(&mut self, segment: Seg) -> Vec<String> {
        self.through(segment).iter().map(Went::shown).collect()
    }

    /// Takes a segment. Returns it as it goes on.
    pub(crate) fn take(&mut self, segment: Seg) -> Option<String> {
        self.pass(segment).map(|went| went.shown())
    }

    /// Takes a segment. Returns it as forwarded, and the generated packets.
    pub(crate) fn through(&mut self, segment: Seg) -> Vec<Went> {
        let mut went: Vec<Went> = self.pass(segment).into_iter().collect();
        while let Some(generated) = self.generate() {
            went.push(generated);
            assert!(went.len() < 5000, "packets without end");
        }
        went
    }

    fn pass(&mut self, segment: Seg) -> Option<Went> {
        let Seg { direction, offset, ack, mut header, mut data } = segment;
        header.seq = self.seq(direction, offset);
        if header.has(flag::ACK) {
            header.ack = self.seq(1 - direction, ack);
        }
        let outcome = self.table.take(self.id, direction, &header, &mut data, self.now_ms, &mut self.editor);
        self.outcome = outcome;
        if outcome.verdict != StreamVerdict::Pass {
            return None;
        }
        let edited = outcome.edited(&header);
        if let EditedPayload::Buffered { offset, len } = edited.payload {
            data = vec![0; len];
            self.table.copy_buffered(self.id, direction, offset, &mut data);
        }
        (header.seq, header.ack) = (edited.seq, edited.ack);
        header.window = outcome.window.unwrap_or(header.window);
        header.flags = header.flags & !flag::FIN | if edited.has_fin { flag::FIN } else { 0 };
        if outcome.clear_urgent {
            header.flags &= !flag::URG;
        }
        self.last = header;
        Some(self.went(direction, header, data, &[], false))
    }

    fn went(
        &self,
        direction: usize,
        header: Segment,
        data: Vec<u8>,
        sack: &[[u32; 2]],
        is_generated: bool,
    ) -> Went {
        let (offset, ack) = (self.offset(direction, header.seq), self.offset(1 - direction, header.ack));
        let sack = sack.iter().map(|block| block.map(|edge| self.offset(1 - direction, edge))).collect();
        Went { segment: Seg { direction, offset, ack, header, data }, sack, is_generated }
    }

    /// Takes a segment that must be dropped.
    #[track_caller]
    pub(crate) fn drops(&mut self, segment: Seg, why: StreamDrop) {
        let shown = format!("{segment:?}");
        assert_eq!(self.take(segment), None, "{shown}");
        assert_eq!(self.outcome.verdict, StreamVerdict::Drop(why), "{shown}");
    }

    /// Takes a segment that must go on alone. Returns the window that it tells.
    #[track_caller]
    pub(crate) fn window(&mut self, segment: Seg) -> u16 {
        let went = self.send(segment);
        assert_eq!(went.len(), 1, "{went:?}");
        self.last.window
    }

    /// The generated packets.
    pub(crate) fn generated(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.generate()).map(|went| went.shown()).collect()
    }

    fn generate(&mut self) -> Option<Went> {
        let generated = self.table.generate()?;
        let GeneratedSegment {
            direction,
            seq,
            ack,
            flags,
            window,
            timestamps,
            sack,
            has_ce_mark,
            payload,
            ..
        } = generated;
        let (payload, stream) = (payload.to_vec(), generated.stream);
        assert_eq!(stream, self.id);
        let header = Segment { seq, ack, flags, window, timestamps, has_ce_mark, ..Segment::default() };
        self.last = header;
        Some(self.went(direction, header, payload, &sack, true))
    }

    /// Handles everything that is due at a time. Returns the generated packets.
    pub(crate) fn release(&mut self, now_ms: u64) -> Vec<String> {
        self.now_ms = now_ms;
        while let Some((id, direction)) = self.table.next_due(now_ms) {
            self.table.release(id, direction, now_ms, &mut self.editor).expect("memory");
        }
        self.generated()
    }

    /// A SACK block for the initiator, as offsets, of one of its receiver.
    pub(crate) fn sack(&self, [left, right]: [i64; 2]) -> Option<[i64; 2]> {
        let block = self.table.sack_to_input(self.id, 0, [self.seq(0, left), self.seq(0, right)])?;
        Some(block.map(|edge| self.offset(0, edge)))
    }

    /// The target of a RST for an end, as offsets: of the other direction, and of the end's own.
    pub(crate) fn reset(&self, end: usize) -> Option<(i64, Option<i64>)> {
        let target = self.table.reset_target(self.id, end)?;
        Some((self.offset(1 - end, target.seq), target.ack.map(|ack| self.offset(end, ack))))
    }

    /// The end of the initiator's output that was let go.
    pub(crate) fn last_output(&self) -> i64 {
        self.reset(1).map_or(0, |(next, _)| next)
    }

    pub(crate) fn info(&self) -> StreamInfo {
        self.table.info(self.id)
    }

    /// Ends the stream: all memory is free again.
    #[track_caller]
    pub(crate) fn end(mut self) {
        self.table.end(self.id);
        assert_eq!((self.table.payload_memory(), self.table.len()), (0, 0));
        assert_eq!((self.table.edit_records(), self.table.due_ms()), (0, None));
        assert!(self.table.generate().is_none());
        assert_eq!(self.table.next_due(u64::MAX), None);
    }
}
