//! Receiving from a ring, and from its socket what is longer than a slot of the ring.
//!
//! A frame is copied from its slot into a packet buffer. Merged segments are cut where they lie: in their slot, or in the receiver's memory for one
//! long frame. A frame that the burst has no room for waits there.

use super::finish::{self, NotCut, Tag, VirtioNetHdr};
use super::ring::{FrameRing, RingFrame};
use super::socket::PacketSocket;
use crate::flows::FlowQueue;
use crate::mbuf::{Burst, HEADROOM, Mbuf, MbufPool};
use crate::queue::{ReceiveQueue, ReceivedFrames};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Packet buffers that are taken from the pool at a time.
const REFILL: usize = 64;
/// The longest frame: 64 KiB and a link header.
const LONGEST: usize = 65_536 + 64;
/// Room for the control message with the VLAN tag.
const CONTROL: usize = 64;
/// An interface that goes down leaves an error, which the next calls return instead of a frame.
const RECEIVE_TRIES: usize = 3;

/// A control message's memory, aligned as its header asks.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
struct ControlMessage([u8; CONTROL]);

/// One worker's receiving side of an interface.
#[derive(Debug)]
pub(crate) struct Receiver {
    socket: Arc<PacketSocket>,
    ring: FrameRing,
    /// Keeps packets of flows in order, if the kernel forwards some.
    flows: Option<FlowQueue>,
    pool: MbufPool,
    /// Buffers for the next frames.
    spare: Burst,
    long: Box<LongFrame>,
    /// The frame in `long` waits for room in the burst.
    waits: bool,
    /// Frames that found no room in the socket, which the kernel does not count.
    missed: Arc<AtomicU64>,
}

/// A frame from the socket.
#[derive(Debug)]
struct LongFrame {
    bytes: [u8; LONGEST],
    len: usize,
    /// It is longer than `bytes`.
    truncated: bool,
    header: VirtioNetHdr,
    tag: Option<Tag>,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handed {
    /// It is in the burst, or lost and counted.
    Done,
    /// It has to wait for room in the burst, or for buffers.
    Waits,
}

impl Receiver {
    pub(super) fn new(
        socket: Arc<PacketSocket>,
        (ring, flows): (FrameRing, Option<FlowQueue>),
        missed: Arc<AtomicU64>,
        pool: MbufPool,
    ) -> Receiver {
        let header = VirtioNetHdr::default();
        let long = Box::new(LongFrame { bytes: [0; LONGEST], len: 0, truncated: false, header, tag: None });
        Receiver { socket, ring, flows, pool, spare: Burst::new(), long, waits: false, missed }
    }

    /// Hands on the next frame; `None` if none has arrived.
    #[inline]
    fn hand_on_next(&mut self, burst: &mut Burst, received: &mut ReceivedFrames) -> Option<Handed> {
        if self.waits {
            let LongFrame { bytes, len, truncated, header, tag } = &mut *self.long;
            let handed = if *truncated {
                received.oversized.add(*len);
                Handed::Done
            } else {
                let frame = &mut bytes[..*len];
                hand_on((frame, header, *tag), (&self.pool, &mut self.spare), burst, received)
            };
            self.waits = handed == Handed::Waits;
            return Some(handed);
        }
        let handed = match self.ring.next()? {
            RingFrame::Whole { frame, header, tag } => {
                hand_on((frame, &header, tag), (&self.pool, &mut self.spare), burst, received)
            }
            RingFrame::InSocket => {
                self.waits = self.long.receive(&self.socket);
                if !self.waits {
                    self.missed.fetch_add(1, Ordering::Relaxed);
                }
                Handed::Done
            }
            RingFrame::Missed => {
                self.missed.fetch_add(1, Ordering::Relaxed);
                Handed::Done
            }
        };
        if handed == Handed::Done {
            self.ring.release();
        }
        Some(handed)
    }
}

impl ReceiveQueue for Receiver {
    fn receive(&mut self, burst: &mut Burst) -> ReceivedFrames {
        let mut received = ReceivedFrames::default();
        let before = burst.len();
        // The frames of the last call have been sent.
        let (ring, waits) = (&self.ring, self.waits);
        self.flows.iter_mut().for_each(|flows| flows.begin(|| ring.waiting() + usize::from(waits)));
        let (mut taken, mut is_empty) = (0, false);
        while !burst.is_full() {
            match self.hand_on_next(burst, &mut received) {
                Some(Handed::Done) => taken += 1,
                Some(Handed::Waits) => break,
                None => {
                    is_empty = true;
                    break;
                }
            }
        }
        if let Some(flows) = &mut self.flows {
            flows.took(taken, is_empty);
            if taken == 0 {
                flows.sent();
            }
        }
        received.frames = burst.len() - before;
        received
    }

    fn sent(&mut self) {
        self.flows.iter_mut().for_each(FlowQueue::sent);
    }

    fn queues(&self) -> usize {
        1
    }
}

/// Hands on a frame that fits a buffer or is to be cut.
#[inline]
fn hand_on(
    (frame, header, tag): (&mut [u8], &VirtioNetHdr, Option<Tag>),
    (pool, spare): (&MbufPool, &mut Burst),
    burst: &mut Burst,
    received: &mut ReceivedFrames,
) -> Handed {
    if header.is_merged() {
        match finish::cut(frame, header, tag, pool, burst) {
            Ok(()) => {}
            Err(NotCut::NoRoom) => return Handed::Waits,
            Err(NotCut::NoBuffer) => received.no_buffer.add(frame.len()),
            Err(NotCut::Oversized) => received.oversized.add(frame.len()),
        }
        return Handed::Done;
    }
    let Some(mut mbuf) = take(pool, spare) else { return Handed::Waits };
    let (start, end) = (HEADROOM, HEADROOM + frame.len());
    let Some(place) = mbuf.buffer().get_mut(start..end) else {
        received.oversized.add(frame.len());
        spare.push(mbuf);
        return Handed::Done;
    };
    place.copy_from_slice(frame);
    mbuf.place(HEADROOM, frame.len());
    finish::checksum(mbuf.frame_mut(), header);
    finish::insert_tag(&mut mbuf, tag);
    burst.push(mbuf);
    Handed::Done
}

/// A buffer; `None` if the pool has none: the frames then wait where they are.
#[inline]
fn take(pool: &MbufPool, spare: &mut Burst) -> Option<Mbuf> {
    if spare.is_empty() && !pool.alloc(spare, REFILL) {
        pool.alloc(spare, 1);
    }
    spare.pop()
}

impl LongFrame {
    /// Receives the next frame from the socket. False if there is none.
    fn receive(&mut self, socket: &PacketSocket) -> bool {
        let vector =
            |bytes: &mut [u8]| libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        let mut control = ControlMessage([0; CONTROL]);
        let mut vectors = [vector(self.header.bytes_mut()), vector(&mut self.bytes)];
        for _ in 0..RECEIVE_TRIES {
            // SAFETY: all zeros is a valid message. It points to memory of this value and of this function, of the lengths given, none of
            // which overlap.
            let (len, message) = unsafe {
                let mut message: libc::msghdr = std::mem::zeroed();
                message.msg_iov = vectors.as_mut_ptr();
                message.msg_iovlen = vectors.len();
                message.msg_control = control.0.as_mut_ptr().cast();
                message.msg_controllen = CONTROL;
                (libc::recvmsg(socket.descriptor(), &raw mut message, libc::MSG_DONTWAIT), message)
            };
            if let Ok(len) = usize::try_from(len) {
                self.len = len.saturating_sub(VirtioNetHdr::SIZE);
                self.truncated = message.msg_flags & libc::MSG_TRUNC != 0;
                self.tag = finish::tag(&message);
                return true;
            }
        }
        false
    }
}
