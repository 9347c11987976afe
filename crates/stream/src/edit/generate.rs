//! Packets that mmb generates on a stream with edits: output that the current packet could not carry, and
//! acknowledgments to senders.
//!
//! A packet is generated when the caller asks for it, from the state that the stream has then: the queue
//! holds directions, not packets. If a generated packet is lost, its output is retransmitted when the sender
//! retransmits.
//!
//! The number of generated packets is bounded:
//!
//! - Each absorbed datagram becomes one generated datagram.
//! - For each TCP packet that arrives, each direction sends at most [`CREDIT`](super::side::CREDIT) bytes of
//!   output in generated packets, and one packet more. The rest waits for the next packet. That is the
//!   receiver's acknowledgment of these packets, or the sender's retransmission.
//! - For each TCP packet that arrives, there is at most one other generated acknowledgment, and one duplicate
//!   acknowledgment for each out-of-order packet.
//! - A generated packet does not pass through the table again.

use super::datagram::pop_datagram;
use super::map::EditLists;
use super::next_packet::NextPacket;
use super::side::EditSide;
use crate::id::StreamId;
use crate::out_of_order::OutOfOrderBytes;
use crate::rope::ChunkPool;
use crate::segment::flag;
use crate::side::{Level, OutOfOrderTable, Side};
use arrayvec::ArrayVec;

/// PSH
const PSH: u8 = 0x08;

/// The most SACK blocks in a packet with timestamps (RFC 2018 section 3).
const MAX_SACK_BLOCKS: usize = 3;

/// The least credit that a packet uses up, so that the number of small packets is bounded.
const MIN_COST: u32 = 512;

/// The purpose of a generated packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentPurpose {
    /// The packet carries bytes or a FIN, or probes the receiver's window.
    Data,
    /// The packet is an acknowledgment.
    Acknowledgment,
    /// The packet is a UDP datagram, which has no numbers.
    Datagram {
        /// Number of later datagrams that are still to be generated.
        pending: usize,
    },
}

/// A segment or a datagram that mmb generates as if an end had sent it. Numbers are in the receiver's
/// sequence space.
#[derive(Debug, PartialEq, Eq)]
pub struct GeneratedSegment<'b> {
    /// The stream.
    pub stream: StreamId,
    /// The caller's identifier of the stream.
    pub owner: u32,
    /// The end that seems to have sent it: 0 for the initiator, 1 for the responder.
    pub direction: usize,
    /// The purpose.
    pub purpose: SegmentPurpose,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Flags, including ACK.
    pub flags: u8,
    /// The window field.
    pub window: u16,
    /// TSval and TSecr, if the end uses timestamps.
    pub timestamps: Option<[u32; 2]>,
    /// SACK blocks: left and right edges.
    pub sack: ArrayVec<[u32; 2], MAX_SACK_BLOCKS>,
    /// The packet gets the ECN mark CE.
    pub has_ce_mark: bool,
    /// The payload.
    pub payload: &'b [u8],
}

/// The state to generate a packet from. `direction` is the direction whose bytes are sent or acknowledged.
pub(crate) struct PacketGenerator<'m> {
    pub(crate) pool: &'m mut ChunkPool,
    pub(crate) lists: &'m mut EditLists,
    pub(crate) out_of_order: &'m OutOfOrderTable,
    pub(crate) sides: &'m mut [Side; 2],
    pub(crate) edits: &'m mut [EditSide; 2],
    /// The stream, and the caller's identifier of it.
    pub(crate) stream: (StreamId, u32),
    pub(crate) direction: usize,
    /// The most bytes to buffer in a direction.
    pub(crate) window: u64,
    pub(crate) buffer: &'m mut Vec<u8>,
}

impl<'m> PacketGenerator<'m> {
    /// Generates a packet.
    pub(crate) fn generate(mut self, packet: NextPacket) -> GeneratedSegment<'m> {
        match packet {
            NextPacket::Acknowledgment => self.acknowledgment(),
            NextPacket::Probe => self.probe(),
            NextPacket::Datagram => {
                let generated = self.datagram();
                GeneratedSegment { payload: self.buffer, ..generated }
            }
            NextPacket::Data(start, end) => {
                let generated = self.data(start, end);
                GeneratedSegment { payload: self.buffer, ..generated }
            }
        }
    }

    /// Generates an acknowledgment to the sender of the direction.
    fn acknowledgment(&mut self) -> GeneratedSegment<'m> {
        let [own, other] = split(self.sides, self.direction);
        let [edit, other_edit] = split(self.edits, self.direction);
        let mut sack = ArrayVec::new();
        if edit.duplicate_acks > 0 {
            edit.duplicate_acks -= 1;
            if edit.header_values.sack_permitted
                && other_edit.header_values.sack_permitted
                && let Some(out_of_order) =
                    own.out_of_order.map(|out_of_order| &self.out_of_order[out_of_order])
            {
                sack = sack_blocks(own, out_of_order, edit.latest_out_of_order);
            }
        }
        edit.is_ack_due = false;
        own.snd_una = own.snd_una.max(edit.acked_input(own, self.lists, edit.snd_una));
        let acked = edit.acked_to_sender(own);
        let ack = own.seq(acked);
        other.record_ack_sent(ack);
        // If edits have shortened the bytes, there is room for more input.
        own.window_edge = own.window_edge.max(edit.input_window_edge().min(own.max_window_edge(self.window)));
        let scale = other.scale.filter(|_| own.scale.is_some()).unwrap_or(0);
        other_edit.header_values.window =
            (own.window_edge.saturating_sub(acked) >> scale).min(u64::from(u16::MAX)) as u16;
        GeneratedSegment {
            stream: self.stream.0,
            owner: self.stream.1,
            direction: 1 - self.direction,
            purpose: SegmentPurpose::Acknowledgment,
            seq: next_seq(other, other_edit),
            ack,
            flags: flag::ACK,
            window: other_edit.header_values.window,
            timestamps: other_edit
                .header_values
                .timestamps
                .map(|[value, echo]| [value, own.timestamp_value().unwrap_or(echo)]),
            sack,
            has_ce_mark: false,
            payload: &[],
        }
    }

    /// Generates a window probe: a segment without bytes, with a number that the receiver has already
    /// acknowledged. The receiver answers with its window (RFC 9293 section 3.8.6.1, as Linux does it).
    fn probe(&mut self) -> GeneratedSegment<'m> {
        let [own, other] = split(self.sides, self.direction);
        let [edit, _] = split(self.edits, self.direction);
        edit.is_probe_due = false;
        GeneratedSegment {
            stream: self.stream.0,
            owner: self.stream.1,
            direction: self.direction,
            purpose: SegmentPurpose::Data,
            seq: own.seq(edit.snd_una.wrapping_sub(1)),
            ack: own.last_ack_sent().unwrap_or_else(|| other.seq(0)),
            flags: flag::ACK,
            window: edit.header_values.window,
            timestamps: edit.header_values.timestamps,
            sack: ArrayVec::new(),
            has_ce_mark: false,
            payload: &[],
        }
    }

    /// Generates the first datagram in the queue.
    fn datagram(&mut self) -> GeneratedSegment<'m> {
        let own = (&mut self.sides[self.direction], &mut self.edits[self.direction]);
        pop_datagram(own, self.pool, self.lists, self.buffer);
        GeneratedSegment {
            stream: self.stream.0,
            owner: self.stream.1,
            direction: self.direction,
            purpose: SegmentPurpose::Datagram { pending: self.edits[self.direction].pending_datagrams() },
            seq: 0,
            ack: 0,
            flags: 0,
            window: 0,
            timestamps: None,
            sack: ArrayVec::new(),
            has_ce_mark: false,
            payload: &[],
        }
    }

    /// Generates a segment with output, as if the sender of the direction had sent it.
    fn data(&mut self, start: u64, end: u64) -> GeneratedSegment<'m> {
        let [own, other] = split(self.sides, self.direction);
        let [edit, _] = split(self.edits, self.direction);
        let len = (end - start) as usize;
        edit.retransmit.remove_before(if start < edit.sent_end() { end } else { 0 });
        edit.credit = edit.credit.saturating_sub((len as u32).max(MIN_COST));
        edit.snd_nxt = edit.snd_nxt.max(end);
        self.buffer.clear();
        for slice in edit.buffered.slices(self.pool, start.saturating_sub(edit.snd_una) as usize, len) {
            self.buffer.extend_from_slice(slice);
        }
        debug_assert_eq!(self.buffer.len(), len);
        let is_last = end == edit.out_end;
        let mut flags = flag::ACK;
        if edit.has_ended && is_last {
            edit.snd_nxt = edit.out_end + 1;
            flags |= flag::FIN;
        }
        if len > 0 && is_last {
            flags |= PSH;
        }
        GeneratedSegment {
            stream: self.stream.0,
            owner: self.stream.1,
            direction: self.direction,
            purpose: SegmentPurpose::Data,
            seq: own.seq(start),
            ack: own.last_ack_sent().unwrap_or_else(|| other.seq(0)),
            flags,
            window: edit.header_values.window,
            timestamps: edit.header_values.timestamps,
            sack: ArrayVec::new(),
            has_ce_mark: std::mem::take(&mut edit.has_ce_mark),
            payload: &[],
        }
    }
}

/// The next sequence number of a direction, in the receiver's sequence space.
fn next_seq(side: &Side, edit: &EditSide) -> u32 {
    match side.level {
        Level::Edit => side.seq(edit.snd_nxt),
        _ => side.seq(side.snd_nxt),
    }
}

/// The element at `index`, and the other one.
fn split<T>(both: &mut [T; 2], index: usize) -> [&mut T; 2] {
    let [first, second] = both;
    if index == 0 { [first, second] } else { [second, first] }
}

/// The SACK blocks of the out-of-order bytes. The block with the latest bytes comes first (RFC 2018 section
/// 4).
fn sack_blocks(
    side: &Side,
    out_of_order: &OutOfOrderBytes,
    latest: u64,
) -> ArrayVec<[u32; 2], MAX_SACK_BLOCKS> {
    let is_latest = |range: &std::ops::Range<u64>| range.contains(&latest);
    let first = out_of_order.ranges().find(is_latest);
    let others = out_of_order.ranges().filter(|range| !is_latest(range));
    first
        .into_iter()
        .chain(others)
        .take(MAX_SACK_BLOCKS)
        .map(|range| [side.seq(range.start), side.seq(range.end)])
        .collect()
}
