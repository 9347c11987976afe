//! A port as one packet thread holds it: queues of its own for receiving and sending.

use crate::condition::{Condition, Health};
use crate::dpdk::EthQueue;
use crate::mbuf::{Burst, Mbuf, MbufPool};
use crate::packet::{Receiver, Sender};
use crate::wait::Waiter;
use mmb_packet::{ParserLimits, PortId, finish_checksum, parse::parse};
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

/// Frames that are lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostFrames {
    /// How many.
    pub frames: u64,
    /// Bytes of them.
    pub bytes: u64,
}

impl LostFrames {
    /// Adds a frame of that many bytes.
    #[inline]
    pub fn add(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes as u64;
    }
}

/// What came in, besides the frames that were appended to the burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedFrames {
    /// Frames appended.
    pub frames: usize,
    /// Frames larger than a buffer that could not be cut.
    pub oversized: LostFrames,
    /// Frames for which there were no buffers.
    pub no_buffer: LostFrames,
}

/// What went out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentFrames {
    /// Frames sent.
    pub frames: usize,
    /// Frames that the device cannot send for their length.
    pub oversized: LostFrames,
    /// The device is down: trying again soon does not help.
    pub down: bool,
}

/// One worker's receiving queues of a port.
#[derive(Debug)]
pub(crate) enum ReceiveQueues {
    /// Queues of a DPDK port, some or none.
    Eth(Vec<EthQueue>),
    /// A socket.
    Packet(Box<Receiver>),
}

/// One worker's sending queue of a port.
#[derive(Debug)]
pub(crate) enum SendQueue {
    /// A queue of a DPDK port, and what to hold meanwhile if others use it as well.
    Eth(EthQueue, Option<Arc<Mutex<()>>>),
    /// A socket.
    Packet(Sender),
}

/// One worker's end of a port.
#[derive(Debug)]
pub struct PortLink {
    pub(crate) receive: ReceiveQueues,
    pub(crate) send: SendQueue,
    /// What becomes readable when something arrives.
    pub(crate) descriptors: Vec<RawFd>,
    /// It is a kernel interface: its senders leave checksums to their devices, and it says itself when it is down.
    pub(crate) kernel: bool,
    /// The longest frame that may be sent, in bytes.
    pub(crate) largest: usize,
    /// Where its buffers come from.
    pub(crate) pool: MbufPool,
    pub(crate) condition: Arc<Condition>,
}

impl PortLink {
    /// How a thread with these links waits for packets.
    pub fn waiter(links: &[PortLink]) -> Waiter {
        let blind = |link: &PortLink| matches!(&link.receive, ReceiveQueues::Eth(queues) if link.descriptors.len() < queues.len());
        Waiter::new(links.iter().flat_map(|link| link.descriptors.iter().copied()), links.iter().any(blind))
    }

    /// How the device is.
    #[inline]
    pub fn health(&self) -> Health {
        self.condition.health()
    }

    /// The longest frame that may be sent, in bytes.
    #[inline]
    pub fn largest(&self) -> usize {
        self.largest
    }

    /// A copy of a frame that came in by the port, in a buffer of its own; `None` if there is no buffer for it.
    pub fn copy(&self, frame: &[u8]) -> Option<Mbuf> {
        self.pool.copy(frame)
    }

    /// Appends what has arrived to the burst, as far as there is room. Every frame is then as a wire would carry
    /// it: with its tags, with whole checksums, no longer than the sender's MTU.
    #[inline]
    pub fn receive(&mut self, burst: &mut Burst) -> ReceivedFrames {
        if self.health() == Health::Gone {
            return ReceivedFrames::default();
        }
        match &mut self.receive {
            ReceiveQueues::Packet(receiver) => receiver.receive(burst),
            ReceiveQueues::Eth(queues) => {
                let first = burst.len();
                let frames: usize = queues.iter_mut().map(|queue| queue.receive(burst)).sum();
                if frames == 0 { ReceivedFrames::default() } else { set_right(burst, first, self.kernel) }
            }
        }
    }

    /// Sends the burst from its front and takes what was sent, or can never be, out of it. What stays found no room;
    /// trying again soon may help.
    #[inline]
    pub fn send(&mut self, burst: &mut Burst) -> SentFrames {
        // Some drivers would keep the frames until the device is up again.
        if self.kernel && self.health() != Health::Up {
            return SentFrames { down: true, ..SentFrames::default() };
        }
        match &mut self.send {
            SendQueue::Packet(sender) => sender.send(burst),
            SendQueue::Eth(queue, None) => SentFrames { frames: queue.send(burst), ..SentFrames::default() },
            SendQueue::Eth(queue, Some(lock)) => {
                let _held = lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
                SentFrames { frames: queue.send(burst), ..SentFrames::default() }
            }
        }
    }
}

/// Looks over the frames from `first` on that a DPDK driver handed out.
fn set_right(burst: &mut Burst, first: usize, kernel: bool) -> ReceivedFrames {
    let mut received = ReceivedFrames::default();
    let mut i = first;
    while i < burst.len() {
        if burst[i].is_partial() {
            received.oversized.add(burst.swap_remove(i).whole_len());
            continue;
        }
        if kernel {
            finish(&mut burst[i]);
        }
        restore_tag(&mut burst[i]);
        i += 1;
    }
    received.frames = burst.len() - first;
    received
}

/// Finishes a checksum that a sender left to its device.
fn finish(mbuf: &mut Mbuf) {
    let mut packet = mbuf.packet(PortId(0));
    if let Ok(layout) = parse(&packet, &ParserLimits::default()) {
        finish_checksum(&mut packet, &layout);
    }
}

/// Puts a VLAN tag that the driver took out of a frame back into it.
fn restore_tag(mbuf: &mut Mbuf) {
    let Some(tci) = mbuf.take_vlan() else { return };
    let [high, low] = tci.to_be_bytes();
    mbuf.insert(12, &[0x81, 0x00, high, low]);
}
