//! A connection whose segments are written with offsets instead of sequence numbers.

pub(crate) mod edited;
pub(crate) mod receiver;

use mmb_stream::{
    InOrder, Level, Outcome, ResetTarget, Segment, SideStats, StreamDrop, StreamId, StreamInfo, StreamLimits,
    StreamTable, StreamVerdict, Unfit, flag,
};
use std::ops::{ControlFlow, Range};

/// The seeds of a test's scripts: `MMB_STREAM_SCRIPTS` of them, from `MMB_STREAM_FIRST` on, so that a long
/// run can be split.
pub(crate) fn seeds(scripts: u64) -> Range<u64> {
    let asked = |name| std::env::var(name).ok().map(|text| text.parse().expect("a number of scripts"));
    let first = asked("MMB_STREAM_FIRST").unwrap_or(0);
    first..first + asked("MMB_STREAM_SCRIPTS").unwrap_or(scripts)
}

/// Limits with little memory, so that a table costs nothing.
pub(crate) const LIMITS: StreamLimits = StreamLimits {
    streams: 4,
    memory: 512 << 10,
    window: 64 << 10,
    reorder: 16 << 10,
    urgent: mmb_stream::Urgent::Clear,
    hold_ms: 100,
};

/// A segment of the initiator (0) or of the responder (1). Numbers are offsets: 0 is the byte behind the SYN.
#[derive(Clone, Debug)]
pub(crate) struct Seg {
    pub(crate) direction: usize,
    pub(crate) offset: i64,
    pub(crate) ack: i64,
    pub(crate) header: Segment,
    pub(crate) data: Vec<u8>,
}

/// A segment with an acknowledgment of 0 and a window of 65,535.
pub(crate) fn seg(direction: usize, offset: i64, data: &[u8]) -> Seg {
    let header = Segment { flags: flag::ACK, window: u16::MAX, ..Segment::default() };
    Seg { direction, offset, ack: 0, header, data: data.to_vec() }
}

/// A segment without data.
pub(crate) fn ack(direction: usize, offset: i64, ack: i64) -> Seg {
    seg(direction, offset, b"").ack(ack)
}

/// A SYN.
pub(crate) fn syn(data: &[u8]) -> Seg {
    seg(0, -1, data).flags(flag::SYN)
}

/// A SYN-ACK.
pub(crate) fn syn_ack() -> Seg {
    seg(1, -1, b"").flags(flag::SYN | flag::ACK)
}

impl Seg {
    pub(crate) fn ack(self, ack: i64) -> Seg {
        Seg { ack, ..self }
    }

    pub(crate) fn flags(mut self, flags: u8) -> Seg {
        self.header.flags = flags;
        self
    }

    pub(crate) fn fin(mut self) -> Seg {
        self.header.flags |= flag::FIN;
        self
    }

    pub(crate) fn window(mut self, window: u16) -> Seg {
        self.header.window = window;
        self
    }

    pub(crate) fn scale(mut self, scale: u8) -> Seg {
        self.header.scale = Some(scale);
        self
    }

    pub(crate) fn time(mut self, value: u32) -> Seg {
        self.header.timestamps = Some([value, 0]);
        self
    }

    pub(crate) fn times(mut self, value: u32, echo: u32) -> Seg {
        self.header.timestamps = Some([value, echo]);
        self
    }

    pub(crate) fn marked(mut self) -> Seg {
        self.header.has_ce_mark = true;
        self
    }

    pub(crate) fn mss(mut self, mss: u16) -> Seg {
        self.header.mss = Some(mss);
        self
    }

    pub(crate) fn corrupt(mut self) -> Seg {
        self.header.is_corrupt = true;
        self
    }
}

/// A table with one connection, and a scanner that records what it gets.
pub(crate) struct Conn {
    pub(crate) table: StreamTable,
    pub(crate) id: StreamId,
    /// The initial sequence numbers.
    pub(crate) isn: [u32; 2],
    pub(crate) now_ms: u64,
    /// What was scanned, with its offset, by direction.
    pub(crate) scanned: [Vec<(u64, Vec<u8>)>; 2],
    /// The scanner breaks when this text is in the scanned bytes.
    pub(crate) stop: Option<Vec<u8>>,
    /// The scanner broke: the caller ends the connection.
    pub(crate) is_over: bool,
}

impl Conn {
    /// A connection of which only the first segment is known, which is not taken yet.
    pub(crate) fn new(levels: [Level; 2], limits: StreamLimits, isn: [u32; 2]) -> Conn {
        Conn::open(levels, limits, isn, &syn(b"")).expect("a fit connection")
    }

    /// The same with any first segment.
    pub(crate) fn open(
        levels: [Level; 2],
        limits: StreamLimits,
        isn: [u32; 2],
        first: &Seg,
    ) -> Result<Conn, Unfit> {
        let mut table = StreamTable::default();
        assert!(table.configure(limits));
        let id = table.open(levels, true, Some(&first.header), 0)?;
        Ok(Conn { table, id, isn, now_ms: 0, scanned: Default::default(), stop: None, is_over: false })
    }

    /// A connection behind its handshake.
    pub(crate) fn established(levels: [Level; 2]) -> Conn {
        Conn::established_with(levels, LIMITS)
    }

    /// A connection behind its handshake, under limits. Sequence numbers wrap around soon.
    pub(crate) fn established_with(levels: [Level; 2], limits: StreamLimits) -> Conn {
        let mut conn = Conn::new(levels, limits, [u32::MAX - 20, 1000]);
        conn.shake([syn(b""), syn_ack()]);
        conn
    }

    /// Takes a SYN and a SYN-ACK, and acknowledges the latter.
    pub(crate) fn shake(&mut self, handshake: [Seg; 2]) {
        for segment in handshake.into_iter().chain([ack(0, 0, 0)]) {
            self.passes(segment);
        }
    }

    /// The sequence number of an offset of a direction.
    pub(crate) fn seq(&self, direction: usize, offset: i64) -> u32 {
        self.isn[direction].wrapping_add(1).wrapping_add(offset as u32)
    }

    /// Takes a segment. Returns the outcome and the payload as it goes on.
    pub(crate) fn take(&mut self, segment: Seg) -> (Outcome, Vec<u8>) {
        let Seg { direction, offset, ack, mut header, mut data } = segment;
        header.seq = self.seq(direction, offset);
        if header.has(flag::ACK) {
            header.ack = self.seq(1 - direction, ack);
        }
        let outcome = self.take_header(direction, &header, &mut data);
        (outcome, data)
    }

    /// Takes a segment with its numbers as they are.
    pub(crate) fn take_header(&mut self, direction: usize, header: &Segment, data: &mut [u8]) -> Outcome {
        let Conn { table, id, scanned, stop, .. } = self;
        let outcome = table.take(*id, direction, header, data, self.now_ms, &mut |found: InOrder<'_>| {
            let before = &mut scanned[found.direction];
            let end = before.last().map_or(0, |(offset, bytes)| offset + bytes.len() as u64);
            assert!(found.offset >= end, "bytes are scanned again: {} after {end}", found.offset);
            before.push((found.offset, found.bytes.to_vec()));
            let all: Vec<u8> = before.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
            match stop {
                Some(stop) if contains(&all, stop) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        });
        let no_room = StreamVerdict::Drop(StreamDrop::NoRoom);
        let changes = outcome.is_changed || outcome.window.is_some() || outcome.clear_urgent;
        assert!(outcome.verdict != no_room || !changes, "a dropped segment needs no changes");
        outcome
    }

    /// Takes a segment that must pass. Returns its payload as it goes on.
    #[track_caller]
    pub(crate) fn passes(&mut self, segment: Seg) -> Vec<u8> {
        let shown = format!("{segment:?}");
        let (outcome, data) = self.take(segment);
        assert_eq!(outcome.verdict, StreamVerdict::Pass, "{shown}");
        data
    }

    /// Takes a segment that must be dropped.
    #[track_caller]
    pub(crate) fn drops(&mut self, segment: Seg, why: StreamDrop) {
        let shown = format!("{segment:?}");
        assert_eq!(self.take(segment).0.verdict, StreamVerdict::Drop(why), "{shown}");
    }

    /// Takes a segment, and returns the window that goes on.
    pub(crate) fn window(&mut self, segment: Seg) -> u16 {
        let before = segment.header.window;
        let (outcome, _) = self.take(segment);
        assert_eq!(outcome.verdict, StreamVerdict::Pass);
        outcome.window.unwrap_or(before)
    }

    /// Takes a segment, and returns it with the changes, if it goes on.
    pub(crate) fn through(&mut self, mut segment: Seg) -> Option<Seg> {
        let (outcome, data) = self.take(segment.clone());
        self.is_over |= outcome.verdict == StreamVerdict::Drop(StreamDrop::Stopped);
        if outcome.verdict != StreamVerdict::Pass || self.is_over {
            return None;
        }
        segment.data = data;
        segment.header.window = outcome.window.unwrap_or(segment.header.window);
        if outcome.clear_urgent {
            segment.header.flags &= !flag::URG;
        }
        Some(segment)
    }

    /// All scanned bytes of a direction, gaps left out.
    pub(crate) fn scanned(&self, direction: usize) -> Vec<u8> {
        self.scanned[direction].iter().flat_map(|(_, bytes)| bytes.clone()).collect()
    }

    /// The scanned bytes of a direction by consecutive runs.
    pub(crate) fn runs(&self, direction: usize) -> Vec<(u64, Vec<u8>)> {
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        for (offset, bytes) in &self.scanned[direction] {
            match runs.last_mut() {
                Some((start, run)) if *start + run.len() as u64 == *offset => run.extend(bytes),
                _ => runs.push((*offset, bytes.clone())),
            }
        }
        runs
    }

    pub(crate) fn info(&self) -> StreamInfo {
        self.table.info(self.id)
    }

    pub(crate) fn stats(&self, direction: usize) -> SideStats {
        self.info().stats[direction]
    }

    /// The target of a RST for an end, as offsets: of the other direction, and of the end's own.
    pub(crate) fn reset(&self, end: usize) -> Option<(i64, Option<i64>)> {
        let offset =
            |direction: usize, seq: u32| i64::from(seq.wrapping_sub(self.seq(direction, 0)).cast_signed());
        let ResetTarget { seq, ack } = self.table.reset_target(self.id, end)?;
        Some((offset(1 - end, seq), ack.map(|ack| offset(end, ack))))
    }

    /// Ends the stream: all memory for payload is free again.
    #[track_caller]
    pub(crate) fn end(mut self) {
        self.table.end(self.id);
        assert_eq!((self.table.payload_memory(), self.table.len()), (0, 0));
    }
}

/// Whether bytes hold a text.
pub(crate) fn contains(bytes: &[u8], text: &[u8]) -> bool {
    bytes.windows(text.len()).any(|window| window == text)
}
