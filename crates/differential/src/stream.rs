//! Segments of a connection through a stream table, against a plain record of what was scanned and what passed.
//!
//! An input is two bytes of choices and steps of eight bytes. The first byte of choices has the levels (bits 0–1 and 2–3), the kind of
//! connection (bit 4) and what becomes of urgent data (bits 5–6); the second one has the limits (bits 0–5) and whether the scanner breaks (bits
//! 6–7). `Step` tells the bytes of a step.

use mmb_stream::{
    InOrder, Level, Outcome, Segment, StreamDrop, StreamId, StreamLimits, StreamTable, StreamVerdict, Urgent,
    flag,
};
use std::collections::BTreeMap;
use std::ops::ControlFlow;

/// The most steps: more would take the fuzzer's time.
const MAX_STEPS: usize = 200;
/// The initial sequence numbers: one wraps around soon.
const ISN: [u32; 2] = [u32::MAX - 300, 5];
/// The largest scale of a window.
const MAX_SCALE: u32 = 14;
/// The most bytes of a step.
const MAX_BYTES: u64 = 4 * 255;

/// Runs an input.
///
/// # Errors
/// An invariant does not hold.
pub fn stream(data: &[u8]) -> Result<(), String> {
    let [levels, limits, steps @ ..] = data else { return Ok(()) };
    let level = |bits: u8| [Level::None, Level::Watch, Level::Guard, Level::Guard][usize::from(bits & 3)];
    let is_datagrams = levels & 0x10 != 0;
    let urgent = [Urgent::Clear, Urgent::Pass, Urgent::Drop, Urgent::Clear][usize::from(levels >> 5 & 3)];
    let breaks_at = [u64::MAX, u64::MAX, 100, 1000][usize::from(limits >> 6)];
    let levels = [level(*levels), level(levels >> 2)];
    let limits = StreamLimits {
        streams: 1,
        memory: [0, 8 << 10, 32 << 10, 256 << 10][usize::from(limits & 3)],
        window: [1, 100, 2000, 1 << 17][usize::from(limits >> 2 & 3)],
        reorder: [0, 50, 1500, 1 << 16][usize::from(limits >> 4 & 3)],
        urgent,
        hold_ms: 100,
    };
    let mut steps =
        steps.chunks_exact(8).take(MAX_STEPS).map(|bytes| Step(bytes.try_into().unwrap_or([0; 8])));
    let mut table = StreamTable::default();
    if !table.configure(limits) {
        return Err("no memory".to_owned());
    }
    let Some(first) = steps.next() else { return Ok(()) };
    let mut run = Run {
        sides: levels.map(Record::new),
        limits,
        is_datagrams,
        breaks_at,
        now_ms: 0,
        times: 0,
        is_over: false,
    };
    let (header, payload) = run.first(first);
    let Ok(id) = table.open(levels, true, (!is_datagrams).then_some(&header), 0) else { return Ok(()) };
    run.step(&mut table, id, 0, &header, payload)?;
    for step in steps {
        if run.is_over {
            break;
        }
        let (direction, header, payload) = run.segment(step);
        run.step(&mut table, id, direction, &header, payload)?;
    }
    table.end(id);
    match (table.payload_memory(), table.len()) {
        (0, 0) => Ok(()),
        left => Err(format!("left at the end: {left:?}")),
    }
}

/// Eight bytes of a segment.
///
/// 0: direction (bit 0), where its place counts from (bits 1–2), whether its place and length count in larger units (bits 3 and 4), corrupt
/// (bit 5), timestamps (bit 6), window scale or MP_CAPABLE in a SYN (bit 7). 1: flags; the ACK flag inverted. 2: place. 3: acknowledgment. 4:
/// window. 5: length. 6: which of several contents. 7: time.
#[derive(Clone, Copy)]
struct Step([u8; 8]);

impl Step {
    fn has(self, bit: u8) -> bool {
        self.0[0] >> bit & 1 != 0
    }

    fn signed(self, byte: usize) -> i64 {
        i64::from(self.0[byte].cast_signed())
    }
}

/// What is known of one direction.
struct Record {
    level: Level,
    /// The number of the first byte.
    base: Option<u32>,
    scanned: BTreeMap<u64, u8>,
    /// The end of what was scanned.
    next: u64,
    /// Bytes of segments that passed.
    passed: BTreeMap<u64, u8>,
    /// The end of what passed.
    sent: u64,
    acked: i64,
}

impl Record {
    fn new(level: Level) -> Record {
        let (scanned, passed) = (BTreeMap::new(), BTreeMap::new());
        Record { level, base: None, scanned, next: 0, passed, sent: 0, acked: 0 }
    }

    fn is_guarded(&self) -> bool {
        self.level == Level::Guard
    }

    fn offset(&self, seq: u32) -> Option<i64> {
        let next = self.base?.wrapping_add(self.next as u32);
        Some(self.next.cast_signed() + i64::from(seq.wrapping_sub(next).cast_signed()))
    }

    /// Bytes go to the scanner.
    fn scan(&mut self, InOrder { offset, bytes, .. }: InOrder<'_>) -> Result<(), String> {
        let is_gap = offset > self.next;
        if offset < self.next || (is_gap && self.is_guarded()) {
            return Err(format!("scanned at {offset} behind {}", self.next));
        }
        self.scanned.extend((offset..).zip(bytes.iter().copied()));
        self.next = offset + bytes.len() as u64;
        Ok(())
    }

    /// A segment passes, with this payload.
    fn pass(&mut self, header: &Segment, payload: &[u8]) -> Result<(), String> {
        let begin = header.seq.wrapping_add(u32::from(header.has(flag::SYN)));
        // A connection that was not answered may begin anew.
        if self.base.is_none() || (header.has(flag::SYN) && self.next == 0 && self.offset(begin) != Some(0)) {
            self.base = Some(begin);
            (self.acked, self.sent) = (0, 0);
            self.passed.clear();
        }
        let at = self.offset(begin).unwrap_or(0);
        self.sent = self.sent.max((at + payload.len() as i64).max(0).cast_unsigned());
        if !self.is_guarded() {
            return Ok(());
        }
        for (offset, byte) in (at..).zip(payload).filter(|(offset, _)| *offset >= self.acked.max(0)) {
            let offset = offset.cast_unsigned();
            let first = *self.passed.entry(offset).or_insert(*byte);
            if first != *byte || self.scanned.get(&offset).is_some_and(|scanned| scanned != byte) {
                return Err(format!("another byte at {offset}"));
            }
        }
        Ok(())
    }
}

/// One run.
struct Run {
    sides: [Record; 2],
    limits: StreamLimits,
    is_datagrams: bool,
    /// The scanner breaks behind so many bytes.
    breaks_at: u64,
    now_ms: u64,
    /// The next timestamp.
    times: u32,
    is_over: bool,
}

impl Run {
    /// The first segment: a SYN.
    fn first(&mut self, step: Step) -> (Segment, Vec<u8>) {
        let (_, header, payload) = self.segment(step);
        let seq = ISN[0].wrapping_sub(1);
        (Segment { seq, flags: flag::SYN, is_corrupt: false, ..header }, payload)
    }

    /// The segment of a step.
    fn segment(&mut self, step: Step) -> (usize, Segment, Vec<u8>) {
        let direction = usize::from(step.has(0));
        let (ours, theirs) = (&self.sides[direction], &self.sides[1 - direction]);
        let unit = |bit, large: i64| if step.has(bit) { large } else { 1 };
        let from = [0, ours.next.cast_signed(), ours.sent.cast_signed(), ours.acked]
            [usize::from(step.0[0] >> 1 & 3)];
        let at = from + step.signed(2) * unit(3, 16);
        let number = |direction: usize, offset: i64| {
            self.sides[direction].base.unwrap_or(ISN[direction]).wrapping_add(offset as u32)
        };
        let flags = (step.0[1] ^ flag::ACK) & (flag::FIN | flag::SYN | flag::RST | flag::ACK | flag::URG);
        let is_syn = flags & flag::SYN != 0;
        let ack = if is_syn { 0 } else { theirs.next.cast_signed() } + step.signed(3);
        let seq = number(direction, if is_syn { step.signed(2) / 64 - 1 } else { at });
        self.times =
            self.times.wrapping_add(u32::from(step.0[7] & 3)).wrapping_sub(u32::from(step.0[7] >> 2 & 3));
        self.now_ms += u64::from(step.0[7] >> 4) * 1000;
        let header = Segment {
            seq,
            ack: number(1 - direction, ack),
            flags,
            window: u16::from(step.0[4]) * 50,
            scale: (is_syn && step.has(7)).then_some(step.0[4] % 16),
            timestamps: step.has(6).then_some([self.times, 0]),
            is_multipath: is_syn && step.has(7),
            is_signed: false,
            is_corrupt: step.has(5),
            ..Segment::default()
        };
        let len = i64::from(step.0[5]) * unit(4, 4);
        let content = u32::from(step.0[6] & 3);
        let byte =
            |offset: i64| (seq.wrapping_add(offset as u32).wrapping_mul(31) >> 2).wrapping_add(content) as u8;
        (direction, header, (0..len).map(byte).collect())
    }

    fn step(
        &mut self,
        table: &mut StreamTable,
        id: StreamId,
        direction: usize,
        header: &Segment,
        mut payload: Vec<u8>,
    ) -> Result<(), String> {
        let sent = payload.clone();
        let (mut broken, mut is_over) = (Ok(()), false);
        let (sides, breaks_at) = (&mut self.sides, self.breaks_at);
        let outcome =
            table.take(id, direction, header, &mut payload, self.now_ms, &mut |bytes: InOrder<'_>| {
                let record = &mut sides[bytes.direction];
                let scanned = record.scan(bytes);
                is_over |= record.next >= breaks_at;
                broken = std::mem::replace(&mut broken, Ok(())).and(scanned);
                if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
        self.is_over = is_over;
        broken?;
        self.check_outcome(&outcome, header, sent != payload)?;
        let is_segment = !self.is_datagrams && !header.is_corrupt && !header.has(flag::RST);
        if is_segment && outcome.verdict == StreamVerdict::Pass {
            self.sides[direction].pass(header, &payload)?;
        }
        // What its sender acknowledges, it has, even if the acknowledgment goes no further.
        let is_taken =
            matches!(outcome.verdict, StreamVerdict::Pass | StreamVerdict::Drop(StreamDrop::NoRoom));
        if is_segment && is_taken {
            let theirs = &mut self.sides[1 - direction];
            if let Some(acked) = theirs.offset(header.ack).filter(|_| header.has(flag::ACK)) {
                theirs.acked = theirs.acked.max(acked);
            }
        }
        self.check_memory(table, id)
    }

    fn check_outcome(&self, outcome: &Outcome, header: &Segment, is_changed: bool) -> Result<(), String> {
        let passes = outcome.verdict == StreamVerdict::Pass;
        if passes && outcome.is_changed != is_changed {
            return Err(format!("changed, or not: {outcome:?}"));
        }
        let has_guard = self.sides.iter().any(Record::is_guarded);
        let touches =
            is_changed || outcome.window.is_some() || outcome.clear_urgent || outcome.blank_multipath;
        if !has_guard && (touches || !passes && !self.is_over) {
            return Err(format!("a watcher does {outcome:?}"));
        }
        match outcome.window.is_some_and(|window| window >= header.window) {
            true => Err(format!("a window of {} becomes {outcome:?}", header.window)),
            false => Ok(()),
        }
    }

    fn check_memory(&self, table: &mut StreamTable, id: StreamId) -> Result<(), String> {
        let info = table.info(id);
        // The edge is rounded up to the scale of windows; SYNs bring bytes before there is a window.
        let max = self.limits.window + (1 << MAX_SCALE) + MAX_BYTES;
        let is_bounded = table.payload_memory() <= self.limits.memory
            && info.buffered.iter().all(|buffered| *buffered as u64 <= max)
            && info.out_of_order.iter().all(|out_of_order| *out_of_order <= self.limits.reorder);
        let numbers = [0, 1].map(|end| table.reset_target(id, end));
        if self.is_datagrams && numbers != [None; 2] {
            return Err(format!("datagrams are reset: {numbers:?}"));
        }
        table.longest_idle(self.now_ms);
        if is_bounded { Ok(()) } else { Err(format!("too much memory: {info:?}")) }
    }
}
