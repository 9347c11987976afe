//! The state of one direction of a stream.

use crate::early::EarlyBytes;
use crate::reader::StreamReader;
use crate::rope::{ChunkPool, Rope};
use crate::segment::InOrder;
use crc_fast::{CrcAlgorithm, Digest};
use mmb_base::{Chunks, Slab, id_types};
use std::ops::ControlFlow;

/// How closely a direction is followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Not at all.
    #[default]
    None,
    /// The bytes are scanned; nothing is changed.
    Watch,
    /// The receiver gets exactly the bytes that were scanned.
    Guard,
    /// The receiver gets the output of an editor.
    Edit,
}

impl Level {
    /// The stable name of the level.
    pub const fn name(self) -> &'static str {
        match self {
            Level::None => "none",
            Level::Watch => "watch",
            Level::Guard => "guard",
            Level::Edit => "edit",
        }
    }
}

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StreamProto {
    /// TCP.
    #[default]
    Tcp,
    /// UDP: datagrams in the order in which they arrive.
    Udp,
}

id_types! {
    /// The out-of-order bytes of a direction; valid while there are any.
    pub(crate) struct EarlyId;
}

/// The out-of-order bytes of all directions that have any.
pub(crate) type EarlyTable = Slab<EarlyId, EarlyBytes, Chunks<EarlyBytes, 64>>;

/// The counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideStats {
    /// Bytes that were scanned: in order, each once.
    pub bytes: u64,
    /// Bytes that were retransmitted.
    pub repeated: u64,
    /// Segments that arrived before the bytes preceding them.
    pub early: u32,
    /// Holes that were never filled: their bytes were not scanned.
    pub gaps: u32,
    /// Bytes in these holes.
    pub gap_bytes: u64,
    /// Bytes that differed from the first copy and were overwritten.
    pub overwritten: u64,
}

/// One direction. Offsets count its bytes: the byte with sequence number `base` has offset 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Side {
    pub(crate) level: Level,
    /// The protocol of the stream, the same in both directions. It adds nothing to the size of this record.
    proto: StreamProto,
    /// 0 for the initiator's bytes, 1 for the responder's.
    direction: u8,
    /// A segment was seen, so `base` is known.
    pub(crate) has_begun: bool,
    pub(crate) digests: bool,
    /// The SYN was seen.
    pub(crate) has_syn: bool,
    /// A SYN whose first byte has sequence number `base` belongs to the previous connection and is refused.
    refuses_base: bool,
    /// SYNs with different sequence numbers were seen.
    pub(crate) has_renumbered: bool,
    /// The next bytes follow a gap.
    is_behind_gap: bool,
    /// `told` is valid, and `timestamp` is valid.
    has_told: bool,
    has_timestamp: bool,
    /// The window scale that this end announced, if its SYN had one.
    pub(crate) scale: Option<u8>,
    base: u32,
    /// Offset of the next byte to scan.
    pub(crate) next: u64,
    /// End of the in-order bytes that were forwarded.
    pub(crate) passed: u64,
    /// Highest end of a forwarded segment, its FIN included.
    pub(crate) sent: u64,
    /// End of the bytes that the receiver has acknowledged.
    pub(crate) acked: u64,
    /// Right edge of the widest window that was advertised to the sender.
    pub(crate) edge: u64,
    /// Offset after the FIN; 0 if there is none.
    fin_end: u64,
    /// The highest acknowledgment number that this end has sent.
    told: u32,
    /// TSval of the last in-order segment, and the time of its arrival in seconds.
    timestamp: (u32, u32),
    /// The bytes from `acked` to `next`, buffered until they are acknowledged. Used in guarded directions,
    /// and in edited ones while their stream is plain.
    kept: Rope,
    pub(crate) early: Option<EarlyId>,
    pub(crate) crc32c: u32,
    pub(crate) counts: SideCounts,
}

/// The counters of one direction that do not follow from other numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SideCounts {
    pub(crate) repeated: u64,
    pub(crate) gap_bytes: u64,
    pub(crate) overwritten: u64,
    pub(crate) early: u32,
    pub(crate) gaps: u32,
}

/// A reader of in-order bytes.
pub(crate) type Scan<'s> = dyn StreamReader + 's;

/// Why bytes were not taken.
#[derive(Debug)]
pub(crate) enum NotTaken {
    NoRoom,
    Stopped,
}

/// For how long a timestamp is comparable (RFC 7323 section 5.5: 24 days).
const TIMESTAMP_AGE_S: u32 = 24 * 24 * 60 * 60;

impl Side {
    pub(crate) fn new(proto: StreamProto, direction: u8, level: Level, digests: bool) -> Side {
        Side { proto, level, direction, digests, ..Side::default() }
    }

    pub(crate) fn proto(&self) -> StreamProto {
        self.proto
    }

    /// Whether segments that no receiver would accept must be dropped.
    pub(crate) fn is_guarded(&self) -> bool {
        self.level >= Level::Guard
    }

    /// 0 for the initiator's bytes, 1 for the responder's.
    pub(crate) fn direction(&self) -> usize {
        usize::from(self.direction)
    }

    /// TSval of the last in-order segment.
    pub(crate) fn timestamp_value(&self) -> Option<u32> {
        self.has_timestamp.then_some(self.timestamp.0)
    }

    /// Records the next input bytes of an edited direction, which the editor has seen.
    pub(crate) fn take_input(&mut self, bytes: &[u8]) {
        if self.digests {
            self.crc32c = crc32c(self.crc32c, bytes);
        }
        self.next += bytes.len() as u64;
    }

    /// Starts the direction: the byte with sequence number `base` gets offset 0.
    pub(crate) fn begin(&mut self, base: u32) {
        (self.base, self.has_begun) = (base, true);
    }

    /// Refuses a SYN whose first byte has sequence number `base`.
    pub(crate) fn refuse(&mut self, base: u32) {
        (self.base, self.refuses_base) = (base, true);
    }

    /// Whether a SYN whose first byte has sequence number `base` belongs to the previous connection.
    pub(crate) fn refuses(&self, base: u32) -> bool {
        self.refuses_base && !self.has_begun && self.base == base
    }

    /// The sequence number of the first byte, or the number that is refused.
    pub(crate) fn known_base(&self) -> Option<u32> {
        (self.has_begun || self.refuses_base).then_some(self.base)
    }

    /// Discards the state of the direction and starts it with sequence number `base`.
    pub(crate) fn begin_anew(&mut self, pool: &mut ChunkPool, base: u32) {
        self.kept.clear(pool);
        let Side { level, proto, direction, digests, early, .. } = *self;
        *self = Side { level, proto, direction, digests, early, has_renumbered: true, ..Side::default() };
        self.begin(base);
    }

    /// The offset of the FIN.
    pub(crate) fn fin(&self) -> Option<u64> {
        self.fin_end.checked_sub(1)
    }

    /// Records the offset of the FIN, or that there is none.
    pub(crate) fn set_fin(&mut self, fin: Option<u64>) {
        self.fin_end = fin.map_or(0, |fin| fin + 1);
    }

    /// The highest acknowledgment number that this end has sent.
    pub(crate) fn told(&self) -> Option<u32> {
        self.has_told.then_some(self.told)
    }

    /// Records an acknowledgment number that this end has sent, if it is the highest so far.
    pub(crate) fn tell(&mut self, ack: u32) {
        if !self.has_told || ack.wrapping_sub(self.told).cast_signed() > 0 {
            (self.told, self.has_told) = (ack, true);
        }
    }

    /// The counters.
    pub(crate) fn stats(&self) -> SideStats {
        let SideCounts { repeated, gap_bytes, overwritten, early, gaps } = self.counts;
        let bytes = if self.level == Level::None { 0 } else { self.next.saturating_sub(gap_bytes) };
        SideStats { bytes, repeated, early, gaps, gap_bytes, overwritten }
    }

    /// The offset of a sequence number within 2^31 of `next`. Negative for numbers before the first byte.
    pub(crate) fn offset(&self, seq: u32) -> i64 {
        let next = self.base.wrapping_add(self.next as u32);
        self.next.cast_signed() + i64::from(seq.wrapping_sub(next).cast_signed())
    }

    /// The sequence number of an offset.
    pub(crate) fn seq(&self, offset: u64) -> u32 {
        self.base.wrapping_add(offset as u32)
    }

    /// End of the in-order bytes, including the FIN if it follows them directly.
    pub(crate) fn end(&self) -> u64 {
        if self.fin_end == self.next + 1 { self.fin_end } else { self.next }
    }

    /// The sequence number that the receiver expects next (`rcv_nxt`), as far as is known.
    pub(crate) fn expected(&self) -> u32 {
        let passed = self.passed.max(self.acked);
        self.seq(passed + u64::from(self.fin_end == passed + 1 && self.sent > passed))
    }

    /// Buffers bytes until the receiver acknowledges them. Returns false if there is no room.
    pub(crate) fn keep(&mut self, pool: &mut ChunkPool, bytes: &[u8]) -> bool {
        self.kept.push(pool, bytes)
    }

    /// Returns the buffered bytes to the edit state when the stream becomes edited. The edit state buffers
    /// output instead.
    pub(crate) fn end_guard(&mut self) -> Rope {
        std::mem::take(&mut self.kept)
    }

    /// Takes the buffered bytes back when the stream becomes plain.
    pub(crate) fn resume_guard(&mut self, kept: Rope) {
        debug_assert_eq!(kept.len() as u64, self.next - self.acked);
        self.kept = kept;
    }

    /// The buffered bytes, and the offset of the first one.
    pub(crate) fn guarded(&self) -> (&Rope, u64) {
        (&self.kept, self.acked)
    }

    pub(crate) fn kept(&self) -> usize {
        self.kept.len()
    }

    /// Whether a timestamp shows that a segment is an old duplicate (PAWS, RFC 7323 section 5).
    pub(crate) fn is_old(&self, timestamps: Option<[u32; 2]>, now_ms: u64) -> bool {
        let (Some([value, _]), true) = (timestamps, self.has_timestamp) else { return false };
        let (last, at_s) = self.timestamp;
        let age_s = ((now_ms / 1000) as u32).wrapping_sub(at_s);
        value.wrapping_sub(last).cast_signed() < 0 && age_s < TIMESTAMP_AGE_S
    }

    /// Records the timestamp of an in-order segment.
    pub(crate) fn note_timestamp(&mut self, timestamps: Option<[u32; 2]>, now_ms: u64) {
        if let Some([value, _]) = timestamps {
            (self.timestamp, self.has_timestamp) = ((value, (now_ms / 1000) as u32), true);
        }
    }

    /// Records that the receiver has acknowledged the bytes before `offset`, and frees them.
    pub(crate) fn acknowledge(&mut self, pool: &mut ChunkPool, offset: u64) {
        if offset > self.acked {
            self.kept.pop(pool, (offset - self.acked) as usize);
            self.acked = offset;
        }
    }

    /// At level watch: the receiver has all bytes before `offset`. Scans those that were buffered out of
    /// order, and skips the others as gaps. With `goes_on`, also scans buffered bytes that continue after
    /// `offset`.
    pub(crate) fn catch_up(
        &mut self,
        pool: &mut ChunkPool,
        mut early: Option<&mut EarlyBytes>,
        offset: u64,
        goes_on: bool,
        scan: &mut Scan<'_>,
    ) -> Result<(), NotTaken> {
        loop {
            let range = early.as_ref().and_then(|early| early.first_behind(self.next));
            match (range, &mut early) {
                (Some(range), Some(early)) if range.start <= self.next && (goes_on || self.next < offset) => {
                    let end = if goes_on { range.end } else { range.end.min(offset) };
                    self.pass_on_early(pool, early, end, scan)?;
                }
                _ if self.next >= offset => return Ok(()),
                (range, _) => self.skip(range.map_or(offset, |range| range.start.min(offset))),
            }
        }
    }

    /// Skips bytes that were never seen.
    fn skip(&mut self, offset: u64) {
        self.is_behind_gap = true;
        self.counts.gaps += 1;
        self.counts.gap_bytes += offset - self.next;
        self.next = offset;
    }

    /// Overwrites a payload at offset `at` with the first copies of its bytes that the guard has buffered.
    /// Returns whether a byte changed.
    pub(crate) fn overwrite(
        &mut self,
        pool: &ChunkPool,
        early: Option<&EarlyBytes>,
        at: i64,
        payload: &mut [u8],
    ) -> bool {
        let end = at + payload.len() as i64;
        let mut changed = 0;
        let mut put = |offset: u64, bytes: &[u8]| {
            let start = (offset.cast_signed() - at) as usize;
            let place = &mut payload[start..start + bytes.len()];
            if place != bytes {
                changed += place.iter().zip(bytes).filter(|(new, old)| new != old).count() as u64;
                place.copy_from_slice(bytes);
            }
        };
        let old_end = end.min(self.next.cast_signed());
        let old_start = at.max(self.acked.cast_signed());
        if old_start < old_end {
            let mut offset = old_start.cast_unsigned();
            let skipped = (offset - self.acked) as usize;
            for bytes in self.kept.slices(pool, skipped, (old_end - old_start) as usize) {
                put(offset, bytes);
                offset += bytes.len() as u64;
            }
        }
        if let Some(early) = early {
            let mut offset = at.max(self.next.cast_signed()).max(0).cast_unsigned();
            let end = end.max(0).cast_unsigned();
            while offset < end
                && let Some(range) = early.first_behind(offset)
                && range.start < end
            {
                let mut from = range.start.max(offset);
                for bytes in early.slices(pool, from, (range.end.min(end) - from) as usize) {
                    put(from, bytes);
                    from += bytes.len() as u64;
                }
                offset = range.end;
            }
        }
        self.counts.overwritten += changed;
        changed > 0
    }

    /// Takes the bytes of a payload from `next` on, and the out-of-order bytes that follow. The payload
    /// begins at offset `at`, at or before `next`, and ends after `next`.
    pub(crate) fn take(
        &mut self,
        pool: &mut ChunkPool,
        mut early: Option<&mut EarlyBytes>,
        (at, payload): (i64, &[u8]),
        scan: &mut Scan<'_>,
    ) -> Result<(), NotTaken> {
        let end = (at + payload.len() as i64).cast_unsigned();
        let Some(early) = early.as_mut().filter(|early| !early.is_empty()) else {
            let new = &payload[(self.next.cast_signed() - at) as usize..];
            return self.pass_on(pool, new, scan);
        };
        loop {
            let next = self.next;
            match early.first_behind(next) {
                Some(range) if range.start <= next => self.pass_on_early(pool, early, range.end, scan)?,
                range => {
                    let until = range.map_or(end, |range| range.start.min(end));
                    if next >= until {
                        break;
                    }
                    let offset = |offset: u64| (offset.cast_signed() - at) as usize;
                    self.pass_on(pool, &payload[offset(next)..offset(until)], scan)?;
                }
            }
        }
        early.remove_before(pool, self.next);
        Ok(())
    }

    /// Takes out-of-order bytes up to offset `end`.
    fn pass_on_early(
        &mut self,
        pool: &mut ChunkPool,
        early: &mut EarlyBytes,
        end: u64,
        scan: &mut Scan<'_>,
    ) -> Result<(), NotTaken> {
        let mut copy = [0; 512];
        while self.next < end {
            let count = ((end - self.next) as usize).min(copy.len());
            let mut filled = 0;
            for bytes in early.slices(pool, self.next, count) {
                copy[filled..filled + bytes.len()].copy_from_slice(bytes);
                filled += bytes.len();
            }
            self.pass_on(pool, &copy[..filled], scan)?;
            // Frees chunks for the bytes that a guard buffers.
            early.remove_before(pool, self.next);
        }
        Ok(())
    }

    /// Scans the next bytes. A guard also buffers them.
    fn pass_on(&mut self, pool: &mut ChunkPool, bytes: &[u8], scan: &mut Scan<'_>) -> Result<(), NotTaken> {
        if self.is_guarded() && !self.keep(pool, bytes) {
            return Err(NotTaken::NoRoom);
        }
        self.scan(bytes, scan)
    }

    /// Takes a datagram. Its bytes follow those of the datagram before.
    pub(crate) fn take_datagram(&mut self, bytes: &[u8], scan: &mut Scan<'_>) -> Result<(), NotTaken> {
        self.has_begun = true;
        self.scan(bytes, scan)
    }

    fn scan(&mut self, bytes: &[u8], scan: &mut Scan<'_>) -> Result<(), NotTaken> {
        if self.digests {
            self.crc32c = crc32c(self.crc32c, bytes);
        }
        let is_behind_gap = std::mem::take(&mut self.is_behind_gap);
        let in_order =
            InOrder { direction: usize::from(self.direction), offset: self.next, is_behind_gap, bytes };
        self.next += bytes.len() as u64;
        match scan.scan(in_order) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(NotTaken::Stopped),
        }
    }

    /// Right edge of the widest window that the receiver may advertise, for a window of `window` bytes after
    /// what it has acknowledged. An edge that was advertised is not taken back (RFC 9293 section 3.8.6).
    pub(crate) fn widest(&self, window: u64) -> u64 {
        self.edge.max(self.acked + window)
    }

    /// Frees the buffered bytes.
    pub(crate) fn clear(&mut self, pool: &mut ChunkPool) {
        self.kept.clear(pool);
    }
}

/// The CRC-32C of bytes that follow bytes with the CRC-32C `before` (RFC 3720 appendix B.4).
fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!before));
    digest.update(bytes);
    digest.finalize() as u32
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn checksums_go_on_behind_others() {
        // The check value of the catalogue, and of RFC 3720: 32 bytes of zeros.
        assert_eq!(crc32c(0, b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(crc32c(0, b"1234"), b"56789"), 0xe306_9283);
        assert_eq!(crc32c(0, &[0; 32]), 0x8a91_36aa);
        let long: Vec<u8> = (0..=255).cycle().take(5000).collect();
        assert_eq!(crc32c(crc32c(0, &long[..1448]), &long[1448..]), crc32c(0, &long));
    }
}
