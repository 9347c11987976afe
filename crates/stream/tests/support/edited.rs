//! A connection whose bytes are edited, in a notation that is easy to write and to compare.
//!
//! Segments are those of [`Seg`], with the offsets of their sender. A forwarded packet is shown as text, with
//! the offsets of its receiver: `> 5 "abc" ack 0` is a segment of the initiator with three bytes from offset
//! 5 on, which acknowledges nothing. `<` marks a segment of the responder. `+` comes before generated
//! packets. `fin`, `rst`, `syn`, `ce` and `sack 3-6` come at the end.

use super::{Seg, ack, syn, syn_ack};
use mmb_stream::{
    EditSink, EditedPayload, InOrder, Level, MadeSegment, Outcome, Passes, Segment, StreamDrop, StreamId,
    StreamInfo, StreamLimits, StreamReader, StreamTable, StreamVerdict, Undecided, Unfit, flag,
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
    pub(crate) never_passes: bool,
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
        Words { words: words.iter().map(|(word, by)| (bytes(word), bytes(by))).collect(), ..Words::default() }
    }

    /// What becomes of a whole stream.
    pub(crate) fn edited(&self, mut bytes: &[u8]) -> Vec<u8> {
        let mut edited = Vec::new();
        while let Some((first, rest)) = bytes.split_first() {
            match self.words.iter().find(|(word, _)| bytes.starts_with(word)) {
                Some((word, by)) => {
                    edited.extend(by);
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

    fn passes(&mut self, InOrder { direction, offset, bytes, .. }: InOrder<'_>) -> ControlFlow<(), Passes> {
        let begins = |(word, _): &(Vec<u8>, Vec<u8>)| {
            (0..bytes.len()).any(|at| {
                let rest = &bytes[at..];
                rest.starts_with(word) || word.starts_with(rest)
            })
        };
        if self.never_passes {
            return ControlFlow::Continue(Passes::Never);
        }
        if self.stop.as_ref().is_some_and(|stop| super::contains(bytes, stop)) {
            return ControlFlow::Break(());
        }
        if self.words.iter().any(begins) {
            return ControlFlow::Continue(Passes::Asks);
        }
        assert_eq!(offset, self.input[direction].len() as u64, "bytes are asked about again, or left out");
        let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(100)]).into_owned();
        self.asked.push(Asked { offset, bytes: shown, known: 0, is_end: false, waited_ms: None });
        self.input[direction].extend_from_slice(bytes);
        self.output[direction].extend_from_slice(bytes);
        ControlFlow::Continue(Passes::All)
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
            let (count, by) = match self.words.iter().find(|(word, _)| rest.starts_with(word)) {
                Some((word, by)) => {
                    sink.replace(word.len(), by);
                    (word.len(), by.as_slice())
                }
                None => {
                    sink.pass(1);
                    (1, &rest[..1])
                }
            };
            self.input[direction].extend_from_slice(&rest[..count]);
            self.output[direction].extend_from_slice(by);
        }
        ControlFlow::Continue(())
    }
}

/// A packet that went on, or was made. Numbers are offsets as its receiver counts.
#[derive(Clone, Debug)]
pub(crate) struct Went {
    pub(crate) segment: Seg,
    pub(crate) sack: Vec<[i64; 2]>,
    pub(crate) is_made: bool,
}

impl Went {
    fn shown(&self) -> String {
        let Went { segment: Seg { from, at, ack, header, data }, sack, is_made } = self;
        let made = if *is_made { "+" } else { "" };
        let data = String::from_utf8_lossy(data);
        let mut shown = format!("{made}{} {at} {data:?}", [">", "<"][*from]);
        if header.has(flag::ACK) {
            shown += &format!(" ack {ack}");
        }
        for (bit, name) in [(flag::SYN, "syn"), (flag::FIN, "fin"), (flag::RST, "rst"), (flag::URG, "urg")] {
            if header.has(bit) {
                shown += &format!(" {name}");
            }
        }
        if header.is_marked {
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
    /// The header of the last packet that went on or was made.
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
            (segment.header.mss, segment.header.knows_sack) = (Some(1000), true);
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

    /// Takes a segment. Returns it as it goes on, and the packets that are made.
    pub(crate) fn send(&mut self, segment: Seg) -> Vec<String> {
        self.through(segment).iter().map(Went::shown).collect()
    }

    /// Takes a segment. Returns it as it goes on.
    pub(crate) fn take(&mut self, segment: Seg) -> Option<String> {
        self.pass(segment).map(|went| went.shown())
    }

    /// Takes a segment. Returns it as it goes on, and the packets that are made.
    pub(crate) fn through(&mut self, segment: Seg) -> Vec<Went> {
        let mut went: Vec<Went> = self.pass(segment).into_iter().collect();
        while let Some(made) = self.make() {
            went.push(made);
            assert!(went.len() < 5000, "packets without end");
        }
        went
    }

    fn pass(&mut self, segment: Seg) -> Option<Went> {
        let Seg { from, at, ack, mut header, mut data } = segment;
        header.seq = self.seq(from, at);
        if header.has(flag::ACK) {
            header.ack = self.seq(1 - from, ack);
        }
        let outcome = self.table.take(self.id, from, &header, &mut data, self.now_ms, &mut self.editor);
        self.outcome = outcome;
        if outcome.verdict != StreamVerdict::Pass {
            return None;
        }
        let edited = outcome.edited(&header);
        if let EditedPayload::Kept { offset, len } = edited.payload {
            data = vec![0; len];
            self.table.copy_kept(self.id, from, offset, &mut data);
        }
        (header.seq, header.ack) = (edited.seq, edited.ack);
        header.window = outcome.window.unwrap_or(header.window);
        header.flags = header.flags & !flag::FIN | if edited.has_fin { flag::FIN } else { 0 };
        if outcome.clear_urgent {
            header.flags &= !flag::URG;
        }
        self.last = header;
        Some(self.went(from, header, data, &[], false))
    }

    fn went(&self, from: usize, header: Segment, data: Vec<u8>, sack: &[[u32; 2]], is_made: bool) -> Went {
        let (at, ack) = (self.offset(from, header.seq), self.offset(1 - from, header.ack));
        let sack = sack.iter().map(|block| block.map(|edge| self.offset(1 - from, edge))).collect();
        Went { segment: Seg { from, at, ack, header, data }, sack, is_made }
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

    /// The packets that are made.
    pub(crate) fn made(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.make()).map(|went| went.shown()).collect()
    }

    fn make(&mut self) -> Option<Went> {
        let made = self.table.make()?;
        let MadeSegment { direction, seq, ack, flags, window, timestamps, sack, is_marked, payload, .. } =
            made;
        let (payload, stream) = (payload.to_vec(), made.stream);
        assert_eq!(stream, self.id);
        let header = Segment { seq, ack, flags, window, timestamps, is_marked, ..Segment::default() };
        self.last = header;
        Some(self.went(direction, header, payload, &sack, true))
    }

    /// Asks about all that is due at a time. Returns the packets that are made.
    pub(crate) fn release(&mut self, now_ms: u64) -> Vec<String> {
        self.now_ms = now_ms;
        while let Some((id, direction)) = self.table.next_due(now_ms) {
            self.table.release(id, direction, now_ms, &mut self.editor).expect("memory");
        }
        self.made()
    }

    /// A SACK block for the initiator, as offsets, of one of its receiver.
    pub(crate) fn sack(&self, [left, right]: [i64; 2]) -> Option<[i64; 2]> {
        let block = self.table.sack_of(self.id, 0, [self.seq(0, left), self.seq(0, right)])?;
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
        assert!(self.table.make().is_none());
        assert_eq!(self.table.next_due(u64::MAX), None);
    }
}
