//! One direction of a stream.

use crate::early::EarlyBytes;
use crate::reader::StreamReader;
use crate::rope::{ChunkPool, Rope};
use crate::segment::InOrder;
use crc_fast::{CrcAlgorithm, Digest};
use mmb_base::{Chunks, Slab, id_types};
use std::ops::ControlFlow;

/// How closely the bytes of a direction are followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Not at all.
    #[default]
    None,
    /// They are scanned; nothing is changed.
    Watch,
    /// What is scanned is what the receiver gets.
    Guard,
    /// The receiver gets what an editor makes of it.
    Edit,
}

impl Level {
    /// Its name: stable.
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
    /// The early bytes of a direction; valid while there are some.
    pub(crate) struct EarlyId;
}

/// The early bytes of directions that have some.
pub(crate) type EarlyTable = Slab<EarlyId, EarlyBytes, Chunks<EarlyBytes, 64>>;

/// The counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideStats {
    /// Bytes that were scanned: in order, each once.
    pub bytes: u64,
    /// Bytes that were sent again.
    pub repeated: u64,
    /// Segments that came before the bytes in front of them.
    pub early: u32,
    /// Holes that were never filled: their bytes were not scanned.
    pub gaps: u32,
    /// Their bytes.
    pub gap_bytes: u64,
    /// Bytes that differed from the first copy, and were overwritten.
    pub overwritten: u64,
}

/// One direction. Offsets count its bytes; sequence number `base` has the offset 0.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Side {
    pub(crate) level: Level,
    /// That of the stream, the same in both directions: here it takes no room.
    proto: StreamProto,
    /// 0 for the initiator's bytes, 1 for the responder's.
    direction: u8,
    /// A segment of it was seen.
    pub(crate) has_begun: bool,
    pub(crate) digests: bool,
    /// Its SYN was seen.
    pub(crate) has_syn: bool,
    /// No SYN begins it with the sequence number `base`: that is one of a connection before.
    refuses_base: bool,
    /// Its SYNs had different sequence numbers.
    pub(crate) has_renumbered: bool,
    /// The next bytes come behind a gap.
    is_behind_gap: bool,
    /// `told` and `timestamp` are known.
    has_told: bool,
    has_timestamp: bool,
    /// The scale of the windows that this end advertises, if its SYN had one.
    pub(crate) scale: Option<u8>,
    base: u32,
    /// The next byte to be scanned.
    pub(crate) next: u64,
    /// The end of the bytes in order that went on.
    pub(crate) passed: u64,
    /// The highest end of a segment that went on.
    pub(crate) sent: u64,
    /// What the receiver has acknowledged.
    pub(crate) acked: u64,
    /// The end of the widest window that the sender was told.
    pub(crate) edge: u64,
    /// The offset behind its FIN; 0 without.
    fin_end: u64,
    /// The highest acknowledgment number that this end has sent.
    told: u32,
    /// The timestamp of the last segment in order, and the time in seconds.
    timestamp: (u32, u32),
    /// The bytes from `acked` to `next`, if they are kept: of a direction that is edited, while its stream is plain.
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

/// A reader of bytes that are in order.
pub(crate) type Scan<'s> = dyn StreamReader + 's;

/// Why bytes were not taken.
#[derive(Debug)]
pub(crate) enum NotTaken {
    NoRoom,
    Stopped,
}

/// The time for which a timestamp is comparable (RFC 7323 section 5.5: 24 days).
const TIMESTAMP_AGE_S: u32 = 24 * 24 * 60 * 60;

impl Side {
    pub(crate) fn new(proto: StreamProto, direction: u8, level: Level, digests: bool) -> Side {
        Side { proto, level, direction, digests, ..Side::default() }
    }

    pub(crate) fn proto(&self) -> StreamProto {
        self.proto
    }

    /// Whether what no receiver would take must not go on.
    pub(crate) fn is_guarded(&self) -> bool {
        self.level >= Level::Guard
    }

    /// 0 for the initiator's bytes, 1 for the responder's.
    pub(crate) fn direction(&self) -> usize {
        usize::from(self.direction)
    }

    /// TSval of the last segment in order.
    pub(crate) fn timestamp_value(&self) -> Option<u32> {
        self.has_timestamp.then_some(self.timestamp.0)
    }

    /// Takes the next bytes of a direction that is edited; the editor has seen them.
    pub(crate) fn take_input(&mut self, bytes: &[u8]) {
        if self.digests {
            self.crc32c = crc32c(self.crc32c, bytes);
        }
        self.next += bytes.len() as u64;
    }

    /// Begins with the byte of a sequence number.
    pub(crate) fn begin(&mut self, base: u32) {
        (self.base, self.has_begun) = (base, true);
    }

    /// Refuses a SYN whose first byte has this sequence number.
    pub(crate) fn refuse(&mut self, base: u32) {
        (self.base, self.refuses_base) = (base, true);
    }

    /// Whether a SYN whose first byte has this sequence number is one of a connection before.
    pub(crate) fn refuses(&self, base: u32) -> bool {
        self.refuses_base && !self.has_begun && self.base == base
    }

    /// The sequence number of its first byte, or the one that it refuses.
    pub(crate) fn known_base(&self) -> Option<u32> {
        (self.has_begun || self.refuses_base).then_some(self.base)
    }

    /// Begins anew with the byte of a sequence number.
    pub(crate) fn begin_anew(&mut self, pool: &mut ChunkPool, base: u32) {
        self.kept.clear(pool);
        let Side { level, proto, direction, digests, early, .. } = *self;
        *self = Side { level, proto, direction, digests, early, has_renumbered: true, ..Side::default() };
        self.begin(base);
    }

    /// The offset of its FIN.
    pub(crate) fn fin(&self) -> Option<u64> {
        self.fin_end.checked_sub(1)
    }

    /// Records where its FIN is, or that it has none.
    pub(crate) fn set_fin(&mut self, fin: Option<u64>) {
        self.fin_end = fin.map_or(0, |fin| fin + 1);
    }

    /// The highest acknowledgment number that this end has sent.
    pub(crate) fn told(&self) -> Option<u32> {
        self.has_told.then_some(self.told)
    }

    /// Records an acknowledgment number that this end has sent.
    pub(crate) fn tell(&mut self, ack: u32) {
        if !self.has_told || ack.wrapping_sub(self.told).cast_signed() > 0 {
            (self.told, self.has_told) = (ack, true);
        }
    }

    /// What was counted.
    pub(crate) fn stats(&self) -> SideStats {
        let SideCounts { repeated, gap_bytes, overwritten, early, gaps } = self.counts;
        let bytes = if self.level == Level::None { 0 } else { self.next.saturating_sub(gap_bytes) };
        SideStats { bytes, repeated, early, gaps, gap_bytes, overwritten }
    }

    /// The offset of a sequence number, near the next one; below 0 for what lies before the first byte.
    pub(crate) fn offset(&self, seq: u32) -> i64 {
        let next = self.base.wrapping_add(self.next as u32);
        self.next.cast_signed() + i64::from(seq.wrapping_sub(next).cast_signed())
    }

    /// The sequence number of an offset.
    pub(crate) fn seq(&self, offset: u64) -> u32 {
        self.base.wrapping_add(offset as u32)
    }

    /// The end of what was sent, its FIN included.
    pub(crate) fn end(&self) -> u64 {
        if self.fin_end == self.next + 1 { self.fin_end } else { self.next }
    }

    /// The sequence number that the receiver expects next, as far as is known.
    pub(crate) fn expected(&self) -> u32 {
        let passed = self.passed.max(self.acked);
        self.seq(passed + u64::from(self.fin_end == passed + 1 && self.sent > passed))
    }

    /// Keeps bytes until the receiver acknowledges them. False if there is no room.
    pub(crate) fn keep(&mut self, pool: &mut ChunkPool, bytes: &[u8]) -> bool {
        self.kept.push(pool, bytes)
    }

    /// Gives the bytes that are kept to edits, which keep the output in their place.
    pub(crate) fn end_guard(&mut self) -> Rope {
        std::mem::take(&mut self.kept)
    }

    /// Takes them back.
    pub(crate) fn resume_guard(&mut self, kept: Rope) {
        debug_assert_eq!(kept.len() as u64, self.next - self.acked);
        self.kept = kept;
    }

    /// The bytes that are kept, and the offset of the first one.
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

    /// Records the timestamp of a segment that is in order.
    pub(crate) fn note_timestamp(&mut self, timestamps: Option<[u32; 2]>, now_ms: u64) {
        if let Some([value, _]) = timestamps {
            (self.timestamp, self.has_timestamp) = ((value, (now_ms / 1000) as u32), true);
        }
    }

    /// The receiver acknowledges the bytes before an offset.
    pub(crate) fn acknowledge(&mut self, pool: &mut ChunkPool, offset: u64) {
        if offset > self.acked {
            self.kept.pop(pool, (offset - self.acked) as usize);
            self.acked = offset;
        }
    }

    /// Watch: the receiver has all bytes before an offset. Those that were not seen in order are taken from the early ones, or passed over.
    /// `goes_on` takes the early bytes that follow, too.
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

    /// Goes on behind bytes that were never seen.
    fn skip(&mut self, offset: u64) {
        self.is_behind_gap = true;
        self.counts.gaps += 1;
        self.counts.gap_bytes += offset - self.next;
        self.next = offset;
    }

    /// Gives a payload the bytes of the first copies of them, which the guard keeps.
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

    /// Takes the bytes of a payload from `next` on, and the early ones that follow. The payload reaches from an offset at or before `next`
    /// beyond it.
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

    /// Takes early bytes up to an offset.
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
            // Makes room for the copies that are kept.
            early.remove_before(pool, self.next);
        }
        Ok(())
    }

    /// Scans the next bytes, and keeps them under guard.
    fn pass_on(&mut self, pool: &mut ChunkPool, bytes: &[u8], scan: &mut Scan<'_>) -> Result<(), NotTaken> {
        if self.is_guarded() && !self.keep(pool, bytes) {
            return Err(NotTaken::NoRoom);
        }
        self.scan(bytes, scan)
    }

    /// A datagram: its bytes follow those of the one before.
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

    /// The end of the widest window that the receiver may advertise when it acknowledges the bytes before an offset. What was offered once is
    /// not taken back (RFC 9293 section 3.8.6).
    pub(crate) fn widest(&self, window: u64) -> u64 {
        self.edge.max(self.acked + window)
    }

    /// Gives all memory back.
    pub(crate) fn clear(&mut self, pool: &mut ChunkPool) {
        self.kept.clear(pool);
    }
}

/// The CRC-32C of bytes behind others that have this one (RFC 3720 appendix B.4).
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
