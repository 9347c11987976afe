//! The queues of a port, as a packet thread uses them: the traits that each driver implements, and what its calls return.

use crate::mbuf::Burst;
use std::fmt;

/// Lost frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostFrames {
    /// Their number.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl LostFrames {
    /// Adds a frame of that many bytes.
    #[inline]
    pub fn add(&mut self, bytes: usize) {
        self.frames += 1;
        self.bytes += bytes as u64;
    }

    /// Adds others.
    pub fn and(&mut self, others: LostFrames) {
        self.frames += others.frames;
        self.bytes += others.bytes;
    }
}

/// The result of receiving, beside the frames that were appended to the burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedFrames {
    /// Frames appended.
    pub frames: usize,
    /// Frames larger than a buffer that could not be cut.
    pub oversized: LostFrames,
    /// Frames for which there were no buffers.
    pub no_buffer: LostFrames,
}

/// The result of sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SentFrames {
    /// Frames sent.
    pub frames: usize,
    /// Frames that are too long for the device.
    pub oversized: LostFrames,
    /// Frames for which there was no room at the last try.
    pub lost: LostFrames,
    /// The device is down: another try soon does not help.
    pub down: bool,
}

/// One worker's receiving queues of a port.
pub(crate) trait ReceiveQueue: fmt::Debug + Send {
    /// Appends frames that have arrived to the burst, as many as fit. Each frame must be as a wire would carry it: with its tags, with
    /// finished checksums, no longer than the sender's MTU.
    fn receive(&mut self, burst: &mut Burst) -> ReceivedFrames;

    /// All frames that were received have been sent or dropped.
    fn sent(&mut self) {}

    /// Whether the thread should look again soon, even if there are no frames.
    fn is_urgent(&self) -> bool {
        false
    }

    /// The number of queues, for each of which a thread that waits needs a descriptor.
    fn queues(&self) -> usize;
}

/// One worker's sending queue of a port.
pub(crate) trait SendQueue: fmt::Debug + Send {
    /// Sends the burst from its front, and removes the frames that are sent or can never be. The others found no room; another try soon
    /// may succeed.
    fn send(&mut self, burst: &mut Burst) -> SentFrames;

    /// As [`SendQueue::send`], for the last time: a driver that knows which frame found no room drops that one, and tries the next ones.
    fn send_last(&mut self, burst: &mut Burst) -> SentFrames {
        self.send(burst)
    }
}

/// The queue of a port whose interface is gone.
#[derive(Debug)]
pub(crate) struct ClosedQueue;

impl ReceiveQueue for ClosedQueue {
    fn receive(&mut self, _burst: &mut Burst) -> ReceivedFrames {
        ReceivedFrames::default()
    }

    fn queues(&self) -> usize {
        0
    }
}

impl SendQueue for ClosedQueue {
    fn send(&mut self, _burst: &mut Burst) -> SentFrames {
        SentFrames { down: true, ..SentFrames::default() }
    }
}
