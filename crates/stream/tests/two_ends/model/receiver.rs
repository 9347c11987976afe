//! The receiving half of the model: delayed acknowledgments, SACK with D-SACK (RFC 2018, 2883), and windows
//! that avoid the silly window syndrome (RFC 9293 section 3.8.6.2.2).

use std::collections::BTreeMap;

/// A delayed acknowledgment waits for as long: Linux' least.
const DELAYED_MS: u64 = 40;
/// SACK blocks that are told beside timestamps.
const BLOCKS: usize = 3;

/// See the module. Offsets count the bytes of the stream that comes; the FIN is the one behind the last.
#[derive(Debug)]
pub(super) struct Receiver {
    pub(super) bytes: Vec<u8>,
    pub(super) read: usize,
    buffer: i64,
    pub(super) next: i64,
    out_of_order: BTreeMap<i64, Vec<u8>>,
    fin: Option<i64>,
    /// The ranges beyond holes, that of the latest segment first; before them what came twice.
    blocks: Vec<(i64, i64)>,
    twice: Option<(i64, i64)>,
    /// The end of the window that was told.
    edge: i64,
    mss: i64,
    /// Segments that are not acknowledged, and when they have to be.
    pending: u32,
    pub(super) due_ms: Option<u64>,
}

impl Receiver {
    pub(super) fn new(buffer: usize, mss: i64) -> Receiver {
        let buffer = buffer as i64;
        Receiver {
            bytes: Vec::new(),
            read: 0,
            buffer,
            next: 0,
            out_of_order: BTreeMap::new(),
            fin: None,
            blocks: Vec::new(),
            twice: None,
            edge: buffer,
            mss,
            pending: 0,
            due_ms: None,
        }
    }

    /// The FIN and all before it have come.
    pub(super) fn is_done(&self) -> bool {
        self.fin.is_some_and(|fin| self.next > fin)
    }

    /// Whether a segment between these offsets may be taken.
    pub(super) fn is_acceptable(&self, at: i64, end: i64) -> bool {
        match at == end {
            true => self.next <= at && at <= self.edge,
            false => end > self.next && at < self.edge,
        }
    }

    /// An acknowledgment is due.
    pub(super) fn ask(&mut self, now_ms: u64) {
        self.due_ms = Some(now_ms);
    }

    /// Takes an acceptable segment.
    pub(super) fn take(&mut self, at: i64, data: &[u8], has_fin: bool, now_ms: u64) {
        let end = at + data.len() as i64;
        if has_fin && end <= self.edge {
            self.fin = self.fin.or(Some(end));
        }
        let had_holes = !self.out_of_order.is_empty();
        if at < self.next && !data.is_empty() {
            self.twice = Some((at, end.min(self.next)));
        }
        let (from, to) = (at.max(self.next), end.min(self.edge));
        if from < to {
            let new = &data[(from - at) as usize..(to - at) as usize];
            if from > self.next {
                self.add_early(from, new);
                return self.ask(now_ms);
            }
            self.bytes.extend_from_slice(new);
            self.next = to;
            self.take_early();
            self.pending += 1;
        }
        if self.fin == Some(self.next) {
            self.next += 1;
        }
        let is_due = had_holes || self.pending >= 2 || has_fin || self.twice.is_some() || data.is_empty();
        if is_due && (has_fin || !data.is_empty()) {
            self.ask(now_ms);
        } else if self.pending > 0 {
            self.due_ms = self.due_ms.or(Some(now_ms + DELAYED_MS));
        }
    }

    fn add_early(&mut self, at: i64, bytes: &[u8]) {
        let (mut left, mut right) = (at, at + bytes.len() as i64);
        if self.blocks.iter().any(|(from, to)| *from <= left && right <= *to) {
            self.twice = Some((left, right));
        }
        self.blocks.retain(|(from, to)| {
            let touches = *from <= right && left <= *to;
            if touches {
                (left, right) = (left.min(*from), right.max(*to));
            }
            !touches
        });
        self.blocks.insert(0, (left, right));
        let longest = self.out_of_order.entry(at).or_default();
        if longest.len() < bytes.len() {
            *longest = bytes.to_vec();
        }
    }

    fn take_early(&mut self) {
        while let Some(entry) = self.out_of_order.first_entry().filter(|entry| *entry.key() <= self.next) {
            let (at, bytes) = entry.remove_entry();
            let old = ((self.next - at) as usize).min(bytes.len());
            self.bytes.extend_from_slice(&bytes[old..]);
            self.next += (bytes.len() - old) as i64;
        }
        let next = self.next;
        self.blocks.retain(|(_, to)| *to > next);
    }

    /// Lets the application read. An acknowledgment is due if the window opens much.
    pub(super) fn read(&mut self, max: usize, now_ms: u64) {
        self.read = (self.read + max).min(self.bytes.len());
        let opens = self.read as i64 + self.buffer - self.edge;
        if opens >= (2 * self.mss).min(self.buffer / 2).max(1) {
            self.ask(now_ms);
        }
    }

    pub(super) fn can_read(&self) -> bool {
        self.read < self.bytes.len()
    }

    /// What an acknowledgment carries now: number, window field and SACK blocks. No acknowledgment is due
    /// after it.
    pub(super) fn tell(&mut self, scale: u8) -> (i64, u16, Vec<(i64, i64)>) {
        let open = self.read as i64 + self.buffer;
        if open - self.edge >= self.mss.min(self.buffer / 2).max(1) {
            self.edge = open;
        }
        (self.pending, self.due_ms) = (0, None);
        let blocks = self.twice.take().into_iter().chain(self.blocks.iter().copied()).take(BLOCKS).collect();
        // The FIN is no byte of the window.
        let window = ((self.edge - self.next).max(0) >> scale).min(i64::from(u16::MAX));
        (self.next, window as u16, blocks)
    }

    /// The end of the window was told by a field that is not scaled.
    pub(super) fn told_unscaled(&mut self) {
        self.edge = self.edge.min(i64::from(u16::MAX));
    }
}
