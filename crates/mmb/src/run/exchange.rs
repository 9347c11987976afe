//! Handover of packets between workers: each worker has a bounded ring, to which all others send.
//!
//! A packet belongs to the worker that owns its connection. A worker that receives it from a device hands it over here. If the ring is full,
//! the packet is dropped and counted. A worker that sleeps waits for an event descriptor, which is signalled once.
//!
//! Ownership: all packet threads share one [`HandoverRings`]; each takes packets from its own ring only.

use crossbeam_queue::ArrayQueue;
use mmb_io::Mbuf;
use mmb_packet::PortId;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

/// The capacity of a ring.
const WAITING: usize = 2048;

/// The rings of all workers.
#[derive(Debug)]
pub(super) struct HandoverRings(Vec<HandoverRing>);

#[derive(Debug)]
struct HandoverRing {
    packets: ArrayQueue<(Mbuf, PortId)>,
    sleeps: AtomicBool,
    /// Both ends of the wake-up descriptor.
    wake_sender: UnixStream,
    wake_receiver: UnixStream,
}

impl HandoverRings {
    /// Creates rings for so many workers.
    ///
    /// # Errors
    /// The system refused.
    pub(super) fn new(workers: usize) -> std::io::Result<HandoverRings> {
        let ring = |_| {
            let (wake_sender, wake_receiver) = UnixStream::pair()?;
            wake_sender.set_nonblocking(true)?;
            wake_receiver.set_nonblocking(true)?;
            Ok(HandoverRing {
                packets: ArrayQueue::new(WAITING),
                sleeps: AtomicBool::new(false),
                wake_sender,
                wake_receiver,
            })
        };
        (0..workers).map(ring).collect::<std::io::Result<_>>().map(HandoverRings)
    }

    /// Hands a packet that arrived at a port to a worker. Returns false, and frees the packet, if the ring is full.
    pub(super) fn give(&self, worker: u16, packet: Mbuf, port: PortId) -> bool {
        let Some(ring) = self.0.get(usize::from(worker)) else { return false };
        if ring.packets.push((packet, port)).is_err() {
            return false;
        }
        ring.wake();
        true
    }

    /// Wakes a worker if it sleeps, for a task of the control side.
    pub(super) fn wake(&self, worker: usize) {
        if let Some(ring) = self.0.get(worker) {
            ring.wake();
        }
    }

    /// Returns the next packet for a worker.
    #[inline]
    pub(super) fn take(&self, worker: usize) -> Option<(Mbuf, PortId)> {
        self.0.get(worker)?.packets.pop()
    }

    /// Returns the descriptor that a sleeping worker waits for.
    pub(super) fn wake_descriptor(&self, worker: usize) -> Option<RawFd> {
        Some(self.0.get(worker)?.wake_receiver.as_raw_fd())
    }

    /// Marks a worker as sleeping; false if its ring has packets.
    pub(super) fn sleep(&self, worker: usize) -> bool {
        let Some(ring) = self.0.get(worker) else { return true };
        ring.sleeps.store(true, Ordering::SeqCst);
        if ring.packets.is_empty() {
            return true;
        }
        ring.sleeps.store(false, Ordering::SeqCst);
        false
    }

    /// Marks a worker as awake.
    pub(super) fn mark_awake(&self, worker: usize) {
        let Some(ring) = self.0.get(worker) else { return };
        ring.sleeps.store(false, Ordering::SeqCst);
        let mut wake_ups = [0; 64];
        while matches!((&ring.wake_receiver).read(&mut wake_ups), Ok(1..)) {}
    }
}

impl HandoverRing {
    /// Wakes the worker if it sleeps.
    fn wake(&self) {
        if self.sleeps.swap(false, Ordering::SeqCst) {
            // A full pipe wakes the worker as well.
            let _ = (&self.wake_sender).write(&[0]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_sleeps_is_woken_once() {
        let rings = HandoverRings::new(1).expect("rings");
        let wake_ups = || {
            let mut bytes = [0; 8];
            (&rings.0[0].wake_receiver).read(&mut bytes).unwrap_or(0)
        };
        rings.wake(0);
        assert_eq!(wake_ups(), 0, "it is awake");
        assert!(rings.sleep(0));
        (0..3).for_each(|_| rings.wake(0));
        assert_eq!(wake_ups(), 1);
    }
}
