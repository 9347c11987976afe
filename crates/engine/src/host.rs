//! The contract between a worker and its host, which carries packets to the worker and carries its verdicts out.
//!
//! A host of a packet thread repeats this:
//!
//! 1. It gathers a vector: packets of one [`Origin`], at most [`VECTOR`](crate::VECTOR). Packets that it had to drop before are counted
//!    with [`Worker::count_unprocessed`]. It may also be an empty vector: a worker without packets still picks up policies, ends
//!    connections and runs tasks, so that an idle host calls [`drive`] regularly, and does not sleep while [`Worker::is_behind`].
//! 2. It calls [`drive`], which has the host process the vector ([`PacketHost::process`]): the worker decides, and the host carries out
//!    every [`Verdict`](crate::Verdict) before it returns.
//! 3. [`drive`] then moves the packets that the worker held and that can go on, and those that it made, into buffers of the host
//!    ([`PacketHost::take_back`]) and has those processed too, until the worker gives back no more.
//!
//! Handing over: a packet with the verdict [`Hand`](crate::Verdict::Hand) goes to the named worker, whose host drives it with the origin
//! [`Origin::Worker`]. If that worker's queue is full, the host drops the packet and counts it as
//! [`HandoverFull`](crate::DropReason::HandoverFull) with [`Worker::count_dropped`].
//!
//! At the end, when no packet will come any more, the host calls [`Worker::drop_held`]. By then every packet that was counted as
//! received or made is counted as sent or as dropped.
//!
//! A host that rewrites in a later stage (VPP) uses [`Worker::decide`] in its [`PacketHost::process`], and [`Worker::rewrite`] in that stage.

use crate::verdict::{Origin, ReturnedPacket};
use crate::worker::Worker;

/// Carries packets to a worker and carries its verdicts out; the [module](self) describes the contract.
pub trait PacketHost {
    /// The reason for which the host cannot go on; [`Infallible`](std::convert::Infallible) without such reasons.
    type Error;

    /// Has the worker decide on the vector that the host has gathered, carries out all verdicts, and leaves the vector empty.
    ///
    /// # Errors
    /// The host cannot go on: [`drive`] returns the error at once.
    fn process(&mut self, worker: &mut Worker, origin: Origin) -> Result<(), Self::Error>;

    /// Appends a copy of a packet to the vector, which has room for it. False if there is no free buffer: a packet that was held is counted as
    /// dropped then.
    fn take_back(&mut self, returned: ReturnedPacket<'_>) -> bool;
}

/// Processes the vector that the host has gathered, and then the packets that the worker gives back.
///
/// # Errors
/// The host cannot go on.
#[inline]
pub fn drive<H: PacketHost>(worker: &mut Worker, host: &mut H, origin: Origin) -> Result<(), H::Error> {
    host.process(worker, origin)?;
    drive_returned(worker, host)
}

/// The second half of [`drive`], for a host that processed its vector in another call: processes the packets that the worker gives
/// back.
///
/// # Errors
/// The host cannot go on.
#[inline]
pub fn drive_returned<H: PacketHost>(worker: &mut Worker, host: &mut H) -> Result<(), H::Error> {
    while let Some(origin) = worker.give_back(|returned| host.take_back(returned)) {
        host.process(worker, origin)?;
    }
    Ok(())
}
