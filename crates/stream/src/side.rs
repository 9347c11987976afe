//! The state of one direction of a stream.

use crate::out_of_order::OutOfOrderBytes;
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
    pub(crate) struct OutOfOrderId;
}

/// The out-of-order bytes of all directions that have any.
pub(crate) type OutOfOrderTable = Slab<OutOfOrderId, OutOfOrderBytes, Chunks<OutOfOrderBytes, 64>>;

/// The counters of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideStats {
    /// Bytes that were scanned: in order, each once.
    pub bytes: u64,
    /// Bytes that were retransmitted.
    pub retransmitted: u64,
    /// Segments that arrived out of order.
    pub out_of_order: u32,
    /// Holes that were never filled: their bytes were not scanned.
    pub gaps: u32,
    /// Bytes in these holes.
    pub gap_bytes: u64,
    /// Bytes that differed from the first copy and were overwritten.
    pub overwritten: u64,
}

/// One direction. Offsets count its bytes: the byte with sequence number `base` has offset 0.
///
/// The state variables of RFC 9293 section 3.3.1 are `base` plus an offset, modulo 2^32, as far as mmb knows
/// them. `forwarded` ≤ `rcv_nxt` and `snd_una` ≤ [`Side::end`] are always true.
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
    follows_gap: bool,
    /// `last_ack_sent` is valid, and `timestamp` is valid.
    has_ack_sent: bool,
    has_timestamp: bool,
    /// The window scale that this end announced, if its SYN had one.
    pub(crate) scale: Option<u8>,
    base: u32,
    /// RCV.NXT of mmb: offset of the next byte to scan.
    pub(crate) rcv_nxt: u64,
    /// End of the in-order bytes that were forwarded.
    pub(crate) forwarded: u64,
    /// SND.NXT of the sender: highest end of a forwarded segment, its FIN included.
    pub(crate) snd_nxt: u64,
    /// SND.UNA of the sender: end of the bytes that the receiver has acknowledged.
    pub(crate) snd_una: u64,
    /// Right edge of the widest window that was advertised to the sender:
    /// the maximum of SEG.ACK + SEG.WND.
    pub(crate) window_edge: u64,
    /// Offset after the FIN; 0 without a FIN.
    fin_end: u64,
    /// The highest acknowledgment number that this end has sent (Last.ACK.sent, RFC 7323).
    last_ack_sent: u32,
    /// TSval of the last in-order segment, and the time of its arrival in seconds.
    timestamp: (u32, u32),
    /// The bytes from `snd_una` to `rcv_nxt`, buffered until they are acknowledged. Used in guarded
    /// directions, and in edited ones while their stream is plain.
    buffered: Rope,
    pub(crate) out_of_order: Option<OutOfOrderId>,
    pub(crate) crc32c: u32,
    pub(crate) counts: SideCounts,
}

/// The counters of one direction that do not follow from other numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SideCounts {
    pub(crate) retransmitted: u64,
    pub(crate) gap_bytes: u64,
    pub(crate) overwritten: u64,
    pub(crate) out_of_order: u32,
    pub(crate) gaps: u32,
}

/// A reader of in-order bytes.
pub(crate) type Reader<'s> = dyn StreamReader + 's;

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
        self.rcv_nxt += bytes.len() as u64;
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
    pub(crate) fn restart(&mut self, pool: &mut ChunkPool, base: u32) {
        self.buffered.clear(pool);
        let Side { level, proto, direction, digests, out_of_order, .. } = *self;
        *self =
            Side { level, proto, direction, digests, out_of_order, has_renumbered: true, ..Side::default() };
        self.begin(base);
    }

    /// The offset of the FIN.
    pub(crate) fn fin(&self) -> Option<u64> {
        self.fin_end.checked_sub(1)
    }

    /// Records the offset of the FIN, or `None` without a FIN.
    pub(crate) fn set_fin(&mut self, fin: Option<u64>) {
        self.fin_end = fin.map_or(0, |fin| fin + 1);
    }

    /// The highest acknowledgment number that this end has sent.
    pub(crate) fn last_ack_sent(&self) -> Option<u32> {
        self.has_ack_sent.then_some(self.last_ack_sent)
    }

    /// Records an acknowledgment number that this end has sent, if it is the highest so far.
    pub(crate) fn record_ack_sent(&mut self, ack: u32) {
        if !self.has_ack_sent || ack.wrapping_sub(self.last_ack_sent).cast_signed() > 0 {
            (self.last_ack_sent, self.has_ack_sent) = (ack, true);
        }
    }

    /// The counters.
    pub(crate) fn stats(&self) -> SideStats {
        let SideCounts { retransmitted, gap_bytes, overwritten, out_of_order, gaps } = self.counts;
        let bytes = if self.level == Level::None { 0 } else { self.rcv_nxt.saturating_sub(gap_bytes) };
        SideStats { bytes, retransmitted, out_of_order, gaps, gap_bytes, overwritten }
    }

    /// The offset of a sequence number within 2^31 of `rcv_nxt`. Negative for numbers before the first byte.
    pub(crate) fn offset(&self, seq: u32) -> i64 {
        let next = self.base.wrapping_add(self.rcv_nxt as u32);
        self.rcv_nxt.cast_signed() + i64::from(seq.wrapping_sub(next).cast_signed())
    }

    /// The sequence number of an offset.
    pub(crate) fn seq(&self, offset: u64) -> u32 {
        self.base.wrapping_add(offset as u32)
    }

    /// End of the in-order bytes, including the FIN if it follows them directly.
    pub(crate) fn end(&self) -> u64 {
        if self.fin_end == self.rcv_nxt + 1 { self.fin_end } else { self.rcv_nxt }
    }

    /// The sequence number that the receiver expects next (its RCV.NXT), as far as is known.
    pub(crate) fn expected_seq(&self) -> u32 {
        let next = self.forwarded.max(self.snd_una);
        self.seq(next + u64::from(self.fin_end == next + 1 && self.snd_nxt > next))
    }

    /// Buffers bytes until the receiver acknowledges them. Returns false if the pool cannot store them.
    pub(crate) fn buffer(&mut self, pool: &mut ChunkPool, bytes: &[u8]) -> bool {
        self.buffered.push(pool, bytes)
    }

    /// Returns the buffered bytes to the edit state when the stream becomes edited. The edit state buffers
    /// output instead.
    pub(crate) fn end_guard(&mut self) -> Rope {
        std::mem::take(&mut self.buffered)
    }

    /// Takes the buffered bytes back when the stream becomes plain.
    pub(crate) fn resume_guard(&mut self, buffered: Rope) {
        debug_assert_eq!(buffered.len() as u64, self.rcv_nxt - self.snd_una);
        self.buffered = buffered;
    }

    /// The buffered bytes, and the offset of the first one.
    pub(crate) fn guarded(&self) -> (&Rope, u64) {
        (&self.buffered, self.snd_una)
    }

    pub(crate) fn buffered(&self) -> usize {
        self.buffered.len()
    }

    /// Whether a timestamp shows that a segment is an old duplicate (PAWS, RFC 7323 section 5).
    pub(crate) fn is_old(&self, timestamps: Option<[u32; 2]>, now_ms: u64) -> bool {
        let (Some([value, _]), true) = (timestamps, self.has_timestamp) else { return false };
        let (last, arrived_s) = self.timestamp;
        let age_s = ((now_ms / 1000) as u32).wrapping_sub(arrived_s);
        value.wrapping_sub(last).cast_signed() < 0 && age_s < TIMESTAMP_AGE_S
    }

    /// Records the timestamp of an in-order segment.
    pub(crate) fn record_timestamp(&mut self, timestamps: Option<[u32; 2]>, now_ms: u64) {
        if let Some([value, _]) = timestamps {
            (self.timestamp, self.has_timestamp) = ((value, (now_ms / 1000) as u32), true);
        }
    }

    /// Records that the receiver has acknowledged the bytes before `offset`, and frees them.
    pub(crate) fn acknowledge(&mut self, pool: &mut ChunkPool, offset: u64) {
        if offset > self.snd_una {
            self.buffered.pop(pool, (offset - self.snd_una) as usize);
            self.snd_una = offset;
        }
    }

    /// At level watch: the receiver has all bytes before `offset`. Scans those that were buffered out of
    /// order, and skips the others as gaps. With `continues`, also scans buffered bytes that continue after
    /// `offset`.
    pub(crate) fn catch_up(
        &mut self,
        pool: &mut ChunkPool,
        mut out_of_order: Option<&mut OutOfOrderBytes>,
        offset: u64,
        continues: bool,
        reader: &mut Reader<'_>,
    ) -> Result<(), NotTaken> {
        loop {
            let range =
                out_of_order.as_ref().and_then(|out_of_order| out_of_order.first_ending_after(self.rcv_nxt));
            match (range, &mut out_of_order) {
                (Some(range), Some(out_of_order))
                    if range.start <= self.rcv_nxt && (continues || self.rcv_nxt < offset) =>
                {
                    let end = if continues { range.end } else { range.end.min(offset) };
                    self.deliver_out_of_order(pool, out_of_order, end, reader)?;
                }
                _ if self.rcv_nxt >= offset => return Ok(()),
                (range, _) => self.skip(range.map_or(offset, |range| range.start.min(offset))),
            }
        }
    }

    /// Skips bytes that were never seen.
    fn skip(&mut self, offset: u64) {
        self.follows_gap = true;
        self.counts.gaps += 1;
        self.counts.gap_bytes += offset - self.rcv_nxt;
        self.rcv_nxt = offset;
    }

    /// Overwrites a payload at offset `start` with the first copies of its bytes that the guard has buffered.
    /// Returns whether a byte changed.
    pub(crate) fn overwrite(
        &mut self,
        pool: &ChunkPool,
        out_of_order: Option<&OutOfOrderBytes>,
        start: i64,
        payload: &mut [u8],
    ) -> bool {
        let end = start + payload.len() as i64;
        let mut changed = 0;
        let mut put = |offset: u64, bytes: &[u8]| {
            let index = (offset.cast_signed() - start) as usize;
            let target = &mut payload[index..index + bytes.len()];
            if target != bytes {
                changed += target.iter().zip(bytes).filter(|(new, old)| new != old).count() as u64;
                target.copy_from_slice(bytes);
            }
        };
        let old_end = end.min(self.rcv_nxt.cast_signed());
        let old_start = start.max(self.snd_una.cast_signed());
        if old_start < old_end {
            let mut offset = old_start.cast_unsigned();
            let skipped = (offset - self.snd_una) as usize;
            for bytes in self.buffered.slices(pool, skipped, (old_end - old_start) as usize) {
                put(offset, bytes);
                offset += bytes.len() as u64;
            }
        }
        if let Some(out_of_order) = out_of_order {
            let mut offset = start.max(self.rcv_nxt.cast_signed()).max(0).cast_unsigned();
            let end = end.max(0).cast_unsigned();
            while offset < end
                && let Some(range) = out_of_order.first_ending_after(offset)
                && range.start < end
            {
                let mut position = range.start.max(offset);
                for bytes in out_of_order.slices(pool, position, (range.end.min(end) - position) as usize) {
                    put(position, bytes);
                    position += bytes.len() as u64;
                }
                offset = range.end;
            }
        }
        self.counts.overwritten += changed;
        changed > 0
    }

    /// Takes the bytes of a payload from `rcv_nxt` on, and the out-of-order bytes that follow. The payload
    /// begins at offset `start`, at or before `rcv_nxt`, and ends after `rcv_nxt`.
    pub(crate) fn take(
        &mut self,
        pool: &mut ChunkPool,
        mut out_of_order: Option<&mut OutOfOrderBytes>,
        (start, payload): (i64, &[u8]),
        reader: &mut Reader<'_>,
    ) -> Result<(), NotTaken> {
        let end = (start + payload.len() as i64).cast_unsigned();
        let Some(out_of_order) = out_of_order.as_mut().filter(|out_of_order| !out_of_order.is_empty()) else {
            let new = &payload[(self.rcv_nxt.cast_signed() - start) as usize..];
            return self.deliver(pool, new, reader);
        };
        loop {
            let next = self.rcv_nxt;
            match out_of_order.first_ending_after(next) {
                Some(range) if range.start <= next => {
                    self.deliver_out_of_order(pool, out_of_order, range.end, reader)?
                }
                range => {
                    let until = range.map_or(end, |range| range.start.min(end));
                    if next >= until {
                        break;
                    }
                    let index = |offset: u64| (offset.cast_signed() - start) as usize;
                    self.deliver(pool, &payload[index(next)..index(until)], reader)?;
                }
            }
        }
        out_of_order.remove_before(pool, self.rcv_nxt);
        Ok(())
    }

    /// Delivers out-of-order bytes up to offset `end`.
    fn deliver_out_of_order(
        &mut self,
        pool: &mut ChunkPool,
        out_of_order: &mut OutOfOrderBytes,
        end: u64,
        reader: &mut Reader<'_>,
    ) -> Result<(), NotTaken> {
        let mut copy = [0; 512];
        while self.rcv_nxt < end {
            let count = ((end - self.rcv_nxt) as usize).min(copy.len());
            let mut filled = 0;
            for bytes in out_of_order.slices(pool, self.rcv_nxt, count) {
                copy[filled..filled + bytes.len()].copy_from_slice(bytes);
                filled += bytes.len();
            }
            self.deliver(pool, &copy[..filled], reader)?;
            // Frees chunks for the bytes that a guard buffers.
            out_of_order.remove_before(pool, self.rcv_nxt);
        }
        Ok(())
    }

    /// Delivers the next bytes to the scanner. A guard also buffers them.
    fn deliver(
        &mut self,
        pool: &mut ChunkPool,
        bytes: &[u8],
        reader: &mut Reader<'_>,
    ) -> Result<(), NotTaken> {
        if self.is_guarded() && !self.buffer(pool, bytes) {
            return Err(NotTaken::NoRoom);
        }
        self.scan(bytes, reader)
    }

    /// Takes a datagram. Its bytes follow those of the datagram before.
    pub(crate) fn take_datagram(&mut self, bytes: &[u8], reader: &mut Reader<'_>) -> Result<(), NotTaken> {
        self.has_begun = true;
        self.scan(bytes, reader)
    }

    fn scan(&mut self, bytes: &[u8], reader: &mut Reader<'_>) -> Result<(), NotTaken> {
        if self.digests {
            self.crc32c = crc32c(self.crc32c, bytes);
        }
        let follows_gap = std::mem::take(&mut self.follows_gap);
        let in_order =
            InOrder { direction: usize::from(self.direction), offset: self.rcv_nxt, follows_gap, bytes };
        self.rcv_nxt += bytes.len() as u64;
        match reader.scan(in_order) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(NotTaken::Stopped),
        }
    }

    /// Right edge of the widest window that the receiver may advertise, for a window of `window` bytes after
    /// what it has acknowledged. An edge that was advertised is not taken back (RFC 9293 section 3.8.6).
    pub(crate) fn max_window_edge(&self, window: u64) -> u64 {
        self.window_edge.max(self.snd_una + window)
    }

    /// Frees the buffered bytes.
    pub(crate) fn clear(&mut self, pool: &mut ChunkPool) {
        self.buffered.clear(pool);
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
