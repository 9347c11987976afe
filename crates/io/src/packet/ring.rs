//! The memory that the kernel receives frames into (`PACKET_RX_RING`, `TPACKET_V2`): slots of equal size, each of which belongs to the kernel until a
//! frame is in it, and again when the receiver is done with it. Frames are received without a system call and, in the kernel, without memory for
//! each.
//!
//! Version 2 and not 3: version 3 delivers blocks of frames, of which a receiver sees the first frame only when the block is full or after a
//! millisecond. A frame longer than a slot also waits whole in the socket, from which it is received as usual.
//!
//! Life-cycle: made with its socket, before the socket is bound; then it belongs to one worker's receiver.

use super::finish::{Tag, VirtioNetHdr, tag_of};
use super::socket::PacketSocket;
use crate::error::PortError;
use crate::mapping::Mapping;
use std::sync::atomic::{AtomicU32, Ordering};

/// Slots of a ring: what waits in it delays the frames behind it, but while another process runs on the worker's core, more than a thousand frames may
/// arrive.
const SLOTS: usize = 2048;
/// The most bytes of a ring: it has fewer slots if they are large.
const MAX_RING_BYTES: usize = 4 << 20;
/// The smallest slot: for frames of an Ethernet's MTU.
const SMALLEST_SLOT: usize = 2048;
/// The largest slot. Frames of larger MTUs come by the socket.
const LARGEST_SLOT: usize = 16 << 10;
/// What the kernel puts in front of a frame in its slot: the slot's header, an address, headers of offloads, and padding.
const IN_FRONT: usize = 96;
/// The kernel gets memory by pieces of this size, each of which holds whole slots.
const BLOCK: usize = 64 << 10;

/// A ring of slots.
#[derive(Debug)]
pub(super) struct FrameRing {
    memory: Mapping,
    slot: usize,
    slots: usize,
    /// The slot of the next frame.
    next: usize,
}

/// A frame in the ring.
#[derive(Debug)]
pub(super) enum RingFrame<'a> {
    /// A whole frame.
    Whole { frame: &'a mut [u8], header: VirtioNetHdr, tag: Option<Tag> },
    /// The next frame that waits in the socket.
    InSocket,
    /// A frame that fits neither a slot nor the socket's memory.
    Missed,
}

impl FrameRing {
    /// A ring for a socket that is not bound yet. Most frames have `longest` bytes at most.
    pub(super) fn new(socket: &PacketSocket, longest: usize) -> Result<FrameRing, PortError> {
        let failed = |()| PortError::system("making a ring for received frames");
        let slot = (longest + IN_FRONT).next_power_of_two().clamp(SMALLEST_SLOT, LARGEST_SLOT);
        let slots = SLOTS.min(MAX_RING_BYTES / slot);
        let version = libc::tpacket_versions::TPACKET_V2 as libc::c_int;
        socket.set(libc::SOL_PACKET, libc::PACKET_VERSION, &version).map_err(failed)?;
        // Any number but 0: longer frames wait in the socket too.
        socket.set(libc::SOL_PACKET, libc::PACKET_COPY_THRESH, &1).map_err(failed)?;
        let request = libc::tpacket_req {
            tp_block_size: BLOCK as u32,
            tp_block_nr: (slots * slot / BLOCK) as u32,
            tp_frame_size: slot as u32,
            tp_frame_nr: slots as u32,
        };
        socket.set(libc::SOL_PACKET, libc::PACKET_RX_RING, &request).map_err(failed)?;
        let memory = Mapping::new(socket.as_fd(), slots * slot).map_err(|_| failed(()))?;
        Ok(FrameRing { memory, slot, slots, next: 0 })
    }

    /// The next frame, if one has arrived. It stays the next until it is [`FrameRing::release`]d.
    #[inline]
    pub(super) fn next(&mut self) -> Option<RingFrame<'_>> {
        let status = self.status().load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        if status & libc::TP_STATUS_COPY != 0 {
            return Some(RingFrame::InSocket);
        }
        // SAFETY: the status says that the slot is ours until `release`, which needs this value while nothing borrows from it. A slot
        // begins with its header and has `slot` bytes.
        let (header, slot) = unsafe {
            let start = self.memory.start().add(self.next * self.slot);
            let header = start.cast::<libc::tpacket2_hdr>().read();
            (header, std::slice::from_raw_parts_mut(start.as_ptr(), self.slot))
        };
        let (mac, len) = (usize::from(header.tp_mac), header.tp_snaplen as usize);
        if header.tp_len != header.tp_snaplen {
            return Some(RingFrame::Missed);
        }
        let mut offloads = VirtioNetHdr::default();
        // The kernel writes the headers of offloads right in front of the frame.
        let Some(from) = mac.checked_sub(VirtioNetHdr::SIZE).and_then(|start| slot.get(start..mac)) else {
            return Some(RingFrame::Missed);
        };
        offloads.bytes_mut().copy_from_slice(from);
        let Some(frame) = slot.get_mut(mac..mac + len) else { return Some(RingFrame::Missed) };
        let tag = tag_of(status, header.tp_vlan_tpid, header.tp_vlan_tci);
        Some(RingFrame::Whole { frame, header: offloads, tag })
    }

    /// Gives the slot of the next frame back to the kernel.
    #[inline]
    pub(super) fn release(&mut self) {
        self.status().store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = if self.next + 1 == self.slots { 0 } else { self.next + 1 };
    }

    /// The number of frames that wait in slots.
    pub(super) fn waiting(&self) -> usize {
        // They follow each other from the next one on.
        let is_taken = |number: usize| {
            let status = self.status_of((self.next + number) % self.slots).load(Ordering::Relaxed);
            status & libc::TP_STATUS_USER != 0
        };
        let (mut taken, mut free) = (0, self.slots);
        while taken < free {
            let middle = taken.midpoint(free);
            if is_taken(middle) { taken = middle + 1 } else { free = middle }
        }
        taken
    }

    fn status(&self) -> &AtomicU32 {
        self.status_of(self.next)
    }

    fn status_of(&self, number: usize) -> &AtomicU32 {
        assert!(number < self.slots, "a slot of the ring");
        // SAFETY: the number is below that of the slots; a slot begins with its status, which the kernel too writes as a whole.
        unsafe { self.memory.start().add(number * self.slot).cast().as_ref() }
    }
}
