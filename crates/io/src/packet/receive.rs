//! Receiving from a socket, many frames a system call, straight into packet buffers.
//!
//! A frame larger than a buffer (merged segments) extends into memory of the receiver's own, is
//! joined there and cut. Frames that the burst has no room for wait in the receiver.

use super::finish::{self, NotCut, VirtioNetHdr};
use super::socket::PacketSocket;
use crate::mbuf::{Burst, HEADROOM, Mbuf, MbufPool};
use crate::queue::{ReceiveQueue, ReceivedFrames};
use arrayvec::ArrayVec;
use std::sync::Arc;

/// Frames of one system call.
const BATCH: usize = 64;
/// The largest frame that runs over: 64 KiB and a link header.
const OVERFLOW: usize = 65_536 + 64;
/// Room for the control message with the VLAN tag.
const CONTROL: usize = 64;

/// A control message's memory, aligned as its header asks.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug)]
struct ControlMessage([u8; CONTROL]);

/// One worker's receiving side of an interface.
#[derive(Debug)]
pub(crate) struct Receiver {
    socket: Arc<PacketSocket>,
    pool: MbufPool,
    /// Buffers that the next frames are received into.
    slots: ArrayVec<Mbuf, BATCH>,
    /// A buffer in place of each that is handed on.
    spare: Burst,
    headers: Box<[VirtioNetHdr; BATCH]>,
    controls: Box<[ControlMessage; BATCH]>,
    vectors: Box<[[libc::iovec; 3]; BATCH]>,
    messages: Box<[libc::mmsghdr; BATCH]>,
    /// For each slot room for a whole large frame: a place for what is in the buffer, then what ran over.
    large: Vec<u8>,
    /// The bytes of a frame that fit a buffer.
    room: usize,
    /// Frames received and not yet handed on: the slots from `next` to `end`. There are as many spare buffers.
    next: usize,
    end: usize,
}

// SAFETY: the pointers are filled in before each call and point to nothing between calls.
unsafe impl Send for Receiver {}

impl Receiver {
    pub(super) fn new(socket: Arc<PacketSocket>, pool: MbufPool) -> Receiver {
        let room = usize::from(pool.data_room()) - HEADROOM;
        // SAFETY: all zeros is a valid value of these plain structures.
        let (vectors, messages) = unsafe { (Box::new(std::mem::zeroed()), Box::new(std::mem::zeroed())) };
        Receiver {
            socket,
            pool,
            slots: ArrayVec::new(),
            spare: Burst::new(),
            headers: Box::new([VirtioNetHdr::default(); BATCH]),
            controls: Box::new([ControlMessage([0; CONTROL]); BATCH]),
            vectors,
            messages,
            large: vec![0; BATCH * (room + OVERFLOW)],
            room,
            next: 0,
            end: 0,
        }
    }

    /// Receives with one system call; returns the number of frames.
    fn fetch(&mut self) -> usize {
        self.next = 0;
        self.end = 0;
        if !self.refill() {
            return 0;
        }
        for i in 0..BATCH {
            self.prepare(i);
        }
        // SAFETY: every message points to memory of this value and of the buffers in its slots, of the lengths given,
        // none of which overlap.
        let got = unsafe {
            let messages = self.messages.as_mut_ptr();
            let count = BATCH as libc::c_uint;
            libc::recvmmsg(
                self.socket.descriptor(),
                messages,
                count,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        self.end = usize::try_from(got).unwrap_or(0).min(BATCH);
        self.end
    }

    /// Gets a buffer for every slot, and another for every slot that will be emptied. False if the pool has none: the
    /// frames then wait in the socket.
    fn refill(&mut self) -> bool {
        let empty = BATCH - self.slots.len();
        let missing = (BATCH + empty).saturating_sub(self.spare.len());
        if missing > 0 && !self.pool.alloc(&mut self.spare, missing) {
            return false;
        }
        let kept = self.spare.len() - empty;
        self.slots.extend(self.spare.drain(kept..));
        true
    }

    fn prepare(&mut self, i: usize) {
        let whole = self.room + OVERFLOW;
        let large = &mut self.large[i * whole + self.room..(i + 1) * whole];
        let buffer = &mut self.slots[i].buffer()[HEADROOM..HEADROOM + self.room];
        let vector =
            |bytes: &mut [u8]| libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        self.vectors[i] = [vector(self.headers[i].bytes_mut()), vector(buffer), vector(large)];
        let message = &mut self.messages[i].msg_hdr;
        message.msg_iov = self.vectors[i].as_mut_ptr();
        message.msg_iovlen = 3;
        message.msg_control = self.controls[i].0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL;
        message.msg_flags = 0;
    }

    /// Hands on the frame in a slot. False if it has to wait for room in the burst.
    fn hand_on(&mut self, i: usize, burst: &mut Burst, received: &mut ReceivedFrames) -> bool {
        let message = &self.messages[i];
        let header = self.headers[i];
        let len = (message.msg_len as usize).saturating_sub(VirtioNetHdr::SIZE);
        let truncated = message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
        let tag = finish::tag(&message.msg_hdr);
        if header.is_merged() && !truncated {
            let whole = self.room + OVERFLOW;
            let place = &mut self.large[i * whole..(i + 1) * whole];
            let frame = whole_frame(place, &self.slots[i].buffer()[HEADROOM..HEADROOM + self.room], len);
            let result = finish::cut(frame, &header, tag, &self.pool, burst);
            match result {
                Ok(()) => {}
                Err(NotCut::NoRoom) => return false,
                Err(NotCut::NoBuffer) => received.no_buffer.add(len),
                Err(NotCut::Oversized) => received.oversized.add(len),
            }
            return true;
        }
        if truncated || len > self.room {
            received.oversized.add(len);
            return true;
        }
        if burst.is_full() {
            return false;
        }
        let Some(fresh) = self.spare.pop() else {
            // `refill` got one for every frame of a call.
            unreachable!("a spare buffer for every slot");
        };
        let mut mbuf = std::mem::replace(&mut self.slots[i], fresh);
        mbuf.place(HEADROOM, len);
        finish::checksum(mbuf.frame_mut(), &header);
        finish::insert_tag(&mut mbuf, tag);
        burst.push(mbuf);
        true
    }
}

impl ReceiveQueue for Receiver {
    fn receive(&mut self, burst: &mut Burst) -> ReceivedFrames {
        let mut received = ReceivedFrames::default();
        let before = burst.len();
        loop {
            while self.next < self.end {
                if !self.hand_on(self.next, burst, &mut received) {
                    received.frames = burst.len() - before;
                    return received;
                }
                self.next += 1;
            }
            // A call that was not filled has emptied the socket.
            let emptied = self.end > 0 && self.end < BATCH;
            self.end = 0;
            if emptied || burst.is_full() || self.fetch() == 0 {
                received.frames = burst.len() - before;
                return received;
            }
        }
    }

    fn queues(&self) -> usize {
        1
    }
}

/// A frame of that length as one piece: what is in its buffer is put in front of what ran over.
fn whole_frame<'a>(place: &'a mut [u8], buffer: &[u8], len: usize) -> &'a mut [u8] {
    let first = len.min(buffer.len());
    place[..first].copy_from_slice(&buffer[..first]);
    let end = len.min(place.len());
    &mut place[..end]
}
