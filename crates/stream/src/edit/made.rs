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
use super::side::EditSide;
use super::work::Work;
use crate::early::EarlyBytes;
use crate::id::StreamId;
use crate::rope::ChunkPool;
use crate::segment::flag;
use crate::side::{EarlyTable, Level, Side};
use arrayvec::ArrayVec;

/// PSH
const PSH: u8 = 0x08;

/// The most SACK blocks in a packet with timestamps (RFC 2018 section 3).
const BLOCKS: usize = 3;

/// The least credit that a packet uses up, so that the number of small packets is bounded.
const LEAST_COST: u32 = 512;

/// The purpose of a generated packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeFor {
    /// The packet carries bytes or a FIN, or probes the receiver's window.
    Data,
    /// The packet is an acknowledgment.
    Acknowledgment,
    /// The packet is a UDP datagram, which has no numbers.
    Datagram {
        /// Number of later datagrams that are still to be generated.
        behind: usize,
    },
}

/// A segment or a datagram that mmb generates as if an end had sent it. Numbers are in the receiver's
/// sequence space.
#[derive(Debug, PartialEq, Eq)]
pub struct MadeSegment<'b> {
    /// The stream.
    pub stream: StreamId,
    /// The caller's identifier of the stream.
    pub owner: u32,
    /// The end that seems to have sent it: 0 for the initiator, 1 for the responder.
    pub direction: usize,
    /// The purpose.
    pub purpose: MadeFor,
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
    pub sack: ArrayVec<[u32; 2], BLOCKS>,
    /// The packet gets the ECN mark CE.
    pub is_marked: bool,
    /// The payload.
    pub payload: &'b [u8],
}

/// The state to generate a packet from. `direction` is the direction whose bytes are sent or acknowledged.
pub(crate) struct Maker<'m> {
    pub(crate) pool: &'m mut ChunkPool,
    pub(crate) lists: &'m mut EditLists,
    pub(crate) early: &'m EarlyTable,
    pub(crate) sides: &'m mut [Side; 2],
    pub(crate) edits: &'m mut [EditSide; 2],
    /// The stream, and the caller's identifier of it.
    pub(crate) stream: (StreamId, u32),
    pub(crate) direction: usize,
    /// The most bytes to buffer in a direction.
    pub(crate) window: u64,
    pub(crate) buffer: &'m mut Vec<u8>,
}

impl<'m> Maker<'m> {
    /// Generates a packet.
    pub(crate) fn make(mut self, work: Work) -> MadeSegment<'m> {
        match work {
            Work::Acknowledgment => self.acknowledgment(),
            Work::Probe => self.probe(),
            Work::Datagram => {
                let made = self.datagram();
                MadeSegment { payload: self.buffer, ..made }
            }
            Work::Data(from, to) => {
                let made = self.data(from, to);
                MadeSegment { payload: self.buffer, ..made }
            }
        }
    }

    /// Generates an acknowledgment to the sender of the direction.
    fn acknowledgment(&mut self) -> MadeSegment<'m> {
        let [own, other] = split(self.sides, self.direction);
        let [edit, from] = split(self.edits, self.direction);
        let mut sack = ArrayVec::new();
        if edit.duplicates > 0 {
            edit.duplicates -= 1;
            if edit.noted.knows_sack
                && from.noted.knows_sack
                && let Some(early) = own.early.map(|early| &self.early[early])
            {
                sack = blocks(own, early, edit.latest_early);
            }
        }
        edit.owes_ack = false;
        own.acked = own.acked.max(edit.acked_input(own, self.lists, edit.acked));
        let told = edit.told_acked(own);
        let ack = own.seq(told);
        other.tell(ack);
        // If edits have shortened the bytes, there is room for more input.
        own.edge = own.edge.max(edit.room_edge().min(own.widest(self.window)));
        let scale = other.scale.filter(|_| own.scale.is_some()).unwrap_or(0);
        from.noted.window = (own.edge.saturating_sub(told) >> scale).min(u64::from(u16::MAX)) as u16;
        MadeSegment {
            stream: self.stream.0,
            owner: self.stream.1,
            direction: 1 - self.direction,
            purpose: MadeFor::Acknowledgment,
            seq: next_number(other, from),
            ack,
            flags: flag::ACK,
            window: from.noted.window,
            timestamps: from
                .noted
                .timestamps
                .map(|[value, echo]| [value, own.timestamp_value().unwrap_or(echo)]),
            sack,
            is_marked: false,
            payload: &[],
        }
    }

    /// Generates a window probe: a segment without bytes, with a number that the receiver has already
    /// acknowledged. The receiver answers with its window (RFC 9293 section 3.8.6.1, as Linux does it).
    fn probe(&mut self) -> MadeSegment<'m> {
        let [own, other] = split(self.sides, self.direction);
        let [edit, _] = split(self.edits, self.direction);
        edit.owes_probe = false;
        MadeSegment {
            stream: self.stream.0,
            owner: self.stream.1,
            direction: self.direction,
            purpose: MadeFor::Data,
            seq: own.seq(edit.acked.wrapping_sub(1)),
            ack: own.told().unwrap_or_else(|| other.seq(0)),
            flags: flag::ACK,
            window: edit.noted.window,
            timestamps: edit.noted.timestamps,
            sack: ArrayVec::new(),
            is_marked: false,
            payload: &[],
        }
    }

    /// Generates the first datagram in the queue.
    fn datagram(&mut self) -> MadeSegment<'m> {
        let own = (&mut self.sides[self.direction], &mut self.edits[self.direction]);
        pop_datagram(own, self.pool, self.lists, self.buffer);
        MadeSegment {
            stream: self.stream.0,
            owner: self.stream.1,
            direction: self.direction,
            purpose: MadeFor::Datagram { behind: self.edits[self.direction].datagrams_behind() },
            seq: 0,
            ack: 0,
            flags: 0,
            window: 0,
            timestamps: None,
            sack: ArrayVec::new(),
            is_marked: false,
            payload: &[],
        }
    }

    /// Generates a segment with output, as if the sender of the direction had sent it.
    fn data(&mut self, from: u64, to: u64) -> MadeSegment<'m> {
        let [own, other] = split(self.sides, self.direction);
        let [edit, _] = split(self.edits, self.direction);
        let len = (to - from) as usize;
        edit.again.remove_before(if from < edit.sent_data() { to } else { 0 });
        edit.credit = edit.credit.saturating_sub((len as u32).max(LEAST_COST));
        edit.sent = edit.sent.max(to);
        self.buffer.clear();
        for slice in edit.kept.slices(self.pool, from.saturating_sub(edit.acked) as usize, len) {
            self.buffer.extend_from_slice(slice);
        }
        debug_assert_eq!(self.buffer.len(), len);
        let is_last = to == edit.out_next;
        let mut flags = flag::ACK;
        if edit.has_ended && is_last {
            edit.sent = edit.out_next + 1;
            flags |= flag::FIN;
        }
        if len > 0 && is_last {
            flags |= PSH;
        }
        MadeSegment {
            stream: self.stream.0,
            owner: self.stream.1,
            direction: self.direction,
            purpose: MadeFor::Data,
            seq: own.seq(from),
            ack: own.told().unwrap_or_else(|| other.seq(0)),
            flags,
            window: edit.noted.window,
            timestamps: edit.noted.timestamps,
            sack: ArrayVec::new(),
            is_marked: std::mem::take(&mut edit.is_marked),
            payload: &[],
        }
    }
}

/// The next sequence number of a direction, in the receiver's sequence space.
fn next_number(side: &Side, edit: &EditSide) -> u32 {
    match side.level {
        Level::Edit => side.seq(edit.sent),
        _ => side.seq(side.sent),
    }
}

/// The element with index `which`, and the other one.
fn split<T>(both: &mut [T; 2], which: usize) -> [&mut T; 2] {
    let [first, second] = both;
    if which == 0 { [first, second] } else { [second, first] }
}

/// The SACK blocks of the out-of-order bytes. The block with the latest bytes comes first (RFC 2018 section
/// 4).
fn blocks(side: &Side, early: &EarlyBytes, latest: u64) -> ArrayVec<[u32; 2], BLOCKS> {
    let is_latest = |range: &std::ops::Range<u64>| range.contains(&latest);
    let first = early.ranges().find(is_latest);
    let others = early.ranges().filter(|range| !is_latest(range));
    first
        .into_iter()
        .chain(others)
        .take(BLOCKS)
        .map(|range| [side.seq(range.start), side.seq(range.end)])
        .collect()
}
