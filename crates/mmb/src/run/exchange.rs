//! Packets that workers hand to each other: each worker has a bounded ring that all others put packets into.
//!
//! A packet belongs to the worker that has its connection. Where a device sends it to another one's queue, that one puts it
//! here. A ring that is full refuses, and the packet is dropped and counted. A worker that sleeps has a bell, which is rung once.
//!
//! Who owns: all packet threads share one [`HandoverRings`]; each takes from its own ring only.

use crossbeam_queue::ArrayQueue;
use mmb_io::Mbuf;
use mmb_packet::PortId;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

/// Packets that wait for one worker, at most.
const WAITING: usize = 2048;

/// The rings of all workers.
#[derive(Debug)]
pub(super) struct HandoverRings(Vec<HandoverRing>);

#[derive(Debug)]
struct HandoverRing {
    packets: ArrayQueue<(Mbuf, PortId)>,
    sleeps: AtomicBool,
    /// Both ends of the bell.
    rings: UnixStream,
    hears: UnixStream,
}

impl HandoverRings {
    /// Rings for so many workers.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn new(workers: usize) -> std::io::Result<HandoverRings> {
        let ring = |_| {
            let (rings, hears) = UnixStream::pair()?;
            rings.set_nonblocking(true)?;
            hears.set_nonblocking(true)?;
            Ok(HandoverRing {
                packets: ArrayQueue::new(WAITING),
                sleeps: AtomicBool::new(false),
                rings,
                hears,
            })
        };
        (0..workers).map(ring).collect::<std::io::Result<_>>().map(HandoverRings)
    }

    /// Hands a packet that came in by a port to a worker. False, with the packet freed, if it has too many already.
    pub(super) fn give(&self, worker: u16, packet: Mbuf, port: PortId) -> bool {
        let Some(ring) = self.0.get(usize::from(worker)) else { return false };
        if ring.packets.push((packet, port)).is_err() {
            return false;
        }
        if ring.sleeps.swap(false, Ordering::SeqCst) {
            // A bell that is rung already is as good.
            let _ = (&ring.rings).write(&[0]);
        }
        true
    }

    /// The next packet for a worker.
    #[inline]
    pub(super) fn take(&self, worker: usize) -> Option<(Mbuf, PortId)> {
        self.0.get(worker)?.packets.pop()
    }

    /// What a worker that sleeps is to wait for as well.
    pub(super) fn bell(&self, worker: usize) -> Option<RawFd> {
        Some(self.0.get(worker)?.hears.as_raw_fd())
    }

    /// A worker goes to sleep; false if there is something for it after all.
    pub(super) fn sleep(&self, worker: usize) -> bool {
        let Some(ring) = self.0.get(worker) else { return true };
        ring.sleeps.store(true, Ordering::SeqCst);
        if ring.packets.is_empty() {
            return true;
        }
        ring.sleeps.store(false, Ordering::SeqCst);
        false
    }

    /// A worker has woken up.
    pub(super) fn wake(&self, worker: usize) {
        let Some(ring) = self.0.get(worker) else { return };
        ring.sleeps.store(false, Ordering::SeqCst);
        let mut rung = [0; 64];
        while matches!((&ring.hears).read(&mut rung), Ok(1..)) {}
    }
}
