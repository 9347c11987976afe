//! The contract between a worker and its host. The host passes packets to the worker and carries out the
//! verdicts.
//!
//! A host of a packet thread repeats this:
//!
//! 1. It gathers a vector: at most [`VECTOR`](crate::VECTOR) packets of one [`Origin`]. It counts packets
//!    that it had to drop before that with [`Worker::count_unprocessed`]. The vector may be empty: a worker
//!    without packets still picks up policies, ends connections and runs tasks. Therefore an idle host calls
//!    [`drive`] regularly, and does not sleep while [`Worker::is_behind`].
//! 2. It calls [`drive`], which calls [`PacketHost::process`]: the worker decides, and the host carries out
//!    every [`Verdict`](crate::Verdict) before it returns.
//! 3. [`drive`] then takes the packets that the worker returns: held packets that may continue, and generated
//!    packets. It copies them to buffers of the host ([`PacketHost::accept_returned`]) and has the host
//!    process them, until the worker returns no more.
//!
//! Handing over: a packet with the verdict [`Hand`](crate::Verdict::Hand) goes to the named worker. That
//! worker's host drives it with the origin [`Origin::Worker`]. If the worker's queue is full, the host drops
//! the packet and counts it as [`HandoverFull`](crate::DropReason::HandoverFull) with
//! [`Worker::count_dropped`].
//!
//! When no more packets will arrive, the host calls [`Worker::drop_held`]. After that, every packet that was
//! counted as received or generated is counted as sent, dropped or absorbed.
//!
//! A host that rewrites in a later stage (VPP) uses [`Worker::decide`] in its [`PacketHost::process`], and
//! [`Worker::rewrite`] in that stage.

use crate::verdict::{Origin, ReturnedPacket};
use crate::worker::Worker;

/// Passes packets to a worker and carries out the verdicts. The [module](self) describes the contract.
pub trait PacketHost {
    /// Why the host cannot continue; [`Infallible`](std::convert::Infallible) if it always can.
    type Error;

    /// Passes the gathered vector to the worker, carries out all verdicts, and leaves the vector empty.
    ///
    /// # Errors
    /// The host cannot continue. [`drive`] returns the error at once.
    fn process(&mut self, worker: &mut Worker, origin: Origin) -> Result<(), Self::Error>;

    /// Appends a copy of a packet to the vector, which has room for it. Returns false if no buffer is free;
    /// the worker then counts a held packet as dropped.
    fn accept_returned(&mut self, returned: ReturnedPacket<'_>) -> bool;
}

/// Processes the vector that the host has gathered, and then the packets that the worker returns.
///
/// # Errors
/// The host cannot continue.
#[inline]
pub fn drive<H: PacketHost>(worker: &mut Worker, host: &mut H, origin: Origin) -> Result<(), H::Error> {
    host.process(worker, origin)?;
    drive_returned(worker, host)
}

/// The second half of [`drive`], for a host that processed its vector in another call: processes the packets
/// that the worker returns.
///
/// # Errors
/// The host cannot continue.
#[inline]
pub fn drive_returned<H: PacketHost>(worker: &mut Worker, host: &mut H) -> Result<(), H::Error> {
    while let Some(origin) = worker.return_packets(|returned| host.accept_returned(returned)) {
        host.process(worker, origin)?;
    }
    Ok(())
}
