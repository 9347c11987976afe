//! The control side of taps. A tap delivers copies of the packets that a filter selects, with their verdicts
//! and traces.

use crate::compiled::PacketSelector;
use crate::control::{Connections, NoAnswer};
use crate::pipeline::{TapOptions, TapQueue, TappedPacket, WorkerTap};
use std::sync::Arc;

/// Packets that wait for the reader of a tap. Further packets are left out and counted. The queue takes 12
/// MB.
const QUEUE_LEN: usize = 4096;

/// Why a tap could not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TapError {
    /// A worker already has the maximum number of taps.
    #[error("packets are being traced and captured by as many clients as there may be; end one of them")]
    TooMany,
    /// A worker has stopped or is stalled.
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
}

/// A tap on packets. Dropping it ends the tap and frees its memory on the calling thread, never on a worker.
///
/// A host that offloads flows must call [`Engine::renew_flows`](crate::Engine::renew_flows) after the tap
/// starts and after it ends. The first call ends offloaded flows that the tap selects; the second lets the
/// host forward them again.
pub struct PacketTap {
    queue: Arc<TapQueue>,
    connections: Connections,
}

impl Connections {
    /// Starts a tap on all workers.
    ///
    /// # Errors
    /// There are too many taps, or a worker does not answer. No tap remains then.
    pub fn tap(&self, selector: PacketSelector, options: TapOptions) -> Result<PacketTap, TapError> {
        self.tap_with_capacity(selector, options, QUEUE_LEN)
    }

    /// [`Connections::tap`] with a queue of this many packets.
    ///
    /// # Errors
    /// As for [`Connections::tap`].
    pub fn tap_with_capacity(
        &self,
        selector: PacketSelector,
        options: TapOptions,
        packets: usize,
    ) -> Result<PacketTap, TapError> {
        let (queue, selector) = (Arc::new(TapQueue::new(packets)), Arc::new(selector));
        // If a worker below refuses or does not answer, dropping this ends the tap on the workers that have
        // it.
        let tap = PacketTap { queue: Arc::clone(&queue), connections: self.clone() };
        for worker in 0..self.workers() {
            let worker_tap = WorkerTap::new(Arc::clone(&queue), Arc::clone(&selector), options);
            let refused = self.run(worker, move |pipeline, _| pipeline.add_tap(worker_tap))?;
            if refused.is_some() {
                return Err(TapError::TooMany);
            }
        }
        Ok(tap)
    }
}

impl PacketTap {
    /// Takes the next packet from the queue, without waiting. Packets of one worker are in order.
    pub fn take(&self) -> Option<TappedPacket> {
        self.queue.take()
    }

    /// The number of selected packets that were left out since the last call because the tap was read too
    /// slowly.
    pub fn take_left_out(&self) -> u64 {
        self.queue.take_left_out()
    }
}

impl Drop for PacketTap {
    fn drop(&mut self) {
        for worker in 0..self.connections.workers() {
            let queue = Arc::clone(&self.queue);
            // The worker returns its part of the tap, which is freed here. A worker that has stopped has no
            // tap.
            drop(self.connections.run(worker, move |pipeline, _| pipeline.remove_tap(&queue)));
        }
    }
}
