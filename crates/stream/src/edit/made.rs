//! Packets that a stream with edits makes: output that the packet at hand could not carry, and acknowledgments to senders.
//!
//! They are made when they are asked for, from what the stream then knows: the queue has directions, not packets. A packet that is lost on its way
//! is sent again when its sender sends again.
//!
//! How many: datagrams are made one for one. A packet of TCP that comes lets at most [`CREDIT`](super::side::CREDIT) bytes of output of each
//! direction go in packets that are made, and one packet more; what is left waits for the next packet, which is the receiver's acknowledgment of
//! these, or the sender's retransmission. Beside them there is at most one acknowledgment for it, and one duplicate for each early packet. No made
//! packet comes back.

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

/// SACK blocks of a packet with timestamps (RFC 2018 section 3).
const BLOCKS: usize = 3;

/// What a packet takes of a direction's credit at least, so that small ones are not many.
const LEAST_COST: u32 = 512;

/// What a made packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MadeFor {
    /// It carries bytes or a FIN, or asks the receiver for its window.
    Data,
    /// It acknowledges.
    Acknowledgment,
    /// It is a datagram of UDP: it has no numbers.
    Datagram {
        /// How many have come behind it and are to be made too.
        behind: usize,
    },
}

/// A segment or a datagram that a stream makes, as if an end had sent it. Numbers are as its receiver counts them.
#[derive(Debug, PartialEq, Eq)]
pub struct MadeSegment<'b> {
    /// The stream.
    pub stream: StreamId,
    /// What the caller knows it by.
    pub owner: u32,
    /// Whose segment it seems to be: 0 for the initiator's.
    pub direction: usize,
    /// Its purpose.
    pub purpose: MadeFor,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgment number.
    pub ack: u32,
    /// Flags, ACK among them.
    pub flags: u8,
    /// The window field.
    pub window: u16,
    /// TSval and TSecr, if its end uses them.
    pub timestamps: Option<[u32; 2]>,
    /// SACK blocks: left and right edges.
    pub sack: ArrayVec<[u32; 2], BLOCKS>,
    /// Its packet gets the congestion mark CE.
    pub is_marked: bool,
    /// Its bytes.
    pub payload: &'b [u8],
}

/// What packets are made of: the direction whose bytes are sent or acknowledged, and the other one.
pub(crate) struct Maker<'m> {
    pub(crate) pool: &'m mut ChunkPool,
    pub(crate) lists: &'m mut EditLists,
    pub(crate) early: &'m EarlyTable,
    pub(crate) sides: &'m mut [Side; 2],
    pub(crate) edits: &'m mut [EditSide; 2],
    /// The stream, and what the caller knows it by.
    pub(crate) stream: (StreamId, u32),
    pub(crate) direction: usize,
    /// The most bytes that are kept of a direction.
    pub(crate) window: u64,
    pub(crate) buffer: &'m mut Vec<u8>,
}

impl<'m> Maker<'m> {
    /// Makes a packet.
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

    /// An acknowledgment to the sender of the direction.
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
        // Bytes that became fewer have left their room to others.
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

    /// A segment without bytes, with a number that the receiver has: it answers with its window (RFC 9293 section 3.8.6.1, as Linux does it).
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

    /// The first datagram that is to be made.
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

    /// Output, in the place of the sender of the direction.
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

/// The number of the next byte of a direction, as its receiver counts.
fn next_number(side: &Side, edit: &EditSide) -> u32 {
    match side.level {
        Level::Edit => side.seq(edit.sent),
        _ => side.seq(side.sent),
    }
}

/// One of two, and the other.
fn split<T>(both: &mut [T; 2], which: usize) -> [&mut T; 2] {
    let [first, second] = both;
    if which == 0 { [first, second] } else { [second, first] }
}

/// The SACK blocks of early bytes: the one with the latest first (RFC 2018 section 4).
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
