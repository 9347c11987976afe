//! Packets as the control thread sees them: a tap gives copies of those that a filter selects, with what became of them.

use crate::compiled::PacketSelector;
use crate::control::{Connections, NoAnswer};
use crate::pipeline::{TapQueue, TapWants, TappedPacket, WorkerTap};
use std::sync::Arc;

/// Packets that wait for whoever looks; further ones are left out, and counted. They take 12 MB.
const WAITING: usize = 4096;

/// Why packets cannot be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TapError {
    /// Each worker has as many taps as it can.
    #[error("packets are being traced and captured by as many clients as there may be; end one of them")]
    TooMany,
    /// A worker has stopped or is stalled.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
}

/// A tap. It ends when it is dropped; its memory is then freed by this thread and not by a worker.
///
/// A host that forwards flows by itself must have them decided again ([`Engine::renew_flows`](crate::Engine::renew_flows)) behind the beginning, so that it forwards
/// none that the tap is about, and behind the end.
pub struct PacketTap {
    queue: Arc<TapQueue>,
    connections: Connections,
}

impl Connections {
    /// Begins to look at packets, on all workers.
    ///
    /// # Errors
    /// There are too many taps, or a worker does not answer; nobody looks then.
    pub fn tap(&self, selector: PacketSelector, wants: TapWants) -> Result<PacketTap, TapError> {
        self.tap_with_room(selector, wants, WAITING)
    }

    /// [`Connections::tap`] with a queue of this many packets.
    ///
    /// # Errors
    /// As for [`Connections::tap`].
    pub fn tap_with_room(
        &self,
        selector: PacketSelector,
        wants: TapWants,
        packets: usize,
    ) -> Result<PacketTap, TapError> {
        let (queue, selector) = (Arc::new(TapQueue::new(packets)), Arc::new(selector));
        // It ends the tap on those that have it, if another does not answer.
        let tap = PacketTap { queue: Arc::clone(&queue), connections: self.clone() };
        for worker in 0..self.workers() {
            let of_worker = WorkerTap::new(Arc::clone(&queue), Arc::clone(&selector), wants);
            let refused = self.run(worker, move |pipeline, _| pipeline.add_tap(of_worker))?;
            if refused.is_some() {
                return Err(TapError::TooMany);
            }
        }
        Ok(tap)
    }
}

impl PacketTap {
    /// The next packet, if there is one: this does not wait. Packets of one worker come in their order.
    pub fn take(&self) -> Option<TappedPacket> {
        self.queue.take()
    }

    /// Selected packets that were left out since the last call, since this tap was read too slowly.
    pub fn take_left_out(&self) -> u64 {
        self.queue.take_left_out()
    }
}

impl Drop for PacketTap {
    fn drop(&mut self) {
        for worker in 0..self.connections.workers() {
            let queue = Arc::clone(&self.queue);
            // It is freed here. A worker that has stopped has none.
            drop(self.connections.run(worker, move |pipeline, _| pipeline.remove_tap(&queue)));
        }
    }
}
