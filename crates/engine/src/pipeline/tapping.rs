//! Passes the packets of a vector to the taps.

use super::state::{MAX_TAPS, Pipeline};
use super::tap::{TapQueue, TappedPacket, WorkerTap};
use crate::compiled::Snapshot;
use crate::verdict::{Origin, Verdict};
use mmb_packet::Packet;
use std::sync::Arc;

impl Pipeline {
    /// Whether there are taps.
    #[inline]
    pub(super) fn is_tapped(&self) -> bool {
        !self.taps.is_empty()
    }

    /// Adds a tap. Returns it if there is no room.
    pub(crate) fn add_tap(&mut self, tap: WorkerTap) -> Option<WorkerTap> {
        if self.taps.len() == MAX_TAPS {
            return Some(tap);
        }
        self.taps.push(tap);
        None
    }

    /// Removes the tap with this queue, and returns it.
    pub(crate) fn remove_tap(&mut self, queue: &Arc<TapQueue>) -> Option<WorkerTap> {
        let index = self.taps.iter().position(|tap| tap.belongs_to(queue))?;
        Some(self.taps.remove(index))
    }

    /// Lets the taps select packets of a vector. Returns whether some are selected.
    #[cold]
    pub(super) fn begin_taps(&mut self, snapshot: &Snapshot, origin: Origin, packets: &[Packet<'_>]) -> bool {
        let mut some = false;
        for tap in &mut self.taps {
            some |= tap.begin(snapshot, origin, packets);
        }
        some
    }

    /// Lets the taps record the selected packets of a vector after the stages.
    #[cold]
    pub(super) fn end_taps(
        &mut self,
        snapshot: &Snapshot,
        (origin, tracked): (Origin, bool),
        packets: &[Packet<'_>],
        verdicts: &[Verdict],
    ) {
        for (index, packet) in packets.iter().enumerate() {
            if !self.taps.iter().any(|tap| tap.is_selected(index)) {
                continue;
            }
            let tapped = TappedPacket {
                worker: self.worker as u16,
                time_ns: self.conntrack.now_ns(),
                origin,
                port: packet.port,
                link: packet.link,
                verdict: verdicts[index],
                trace: self.trace(snapshot, index, tracked, verdicts[index]),
                received: None,
                last: None,
            };
            self.taps.iter_mut().for_each(|tap| tap.end(index, &tapped, packet.bytes()));
        }
    }

    /// Whether a tap may select packets of a packet's flow. If the host forwarded that flow, the tap would
    /// miss its packets.
    #[inline]
    pub(super) fn is_flow_tapped(&mut self, snapshot: &Snapshot, packet: &Packet<'_>) -> bool {
        self.taps.iter_mut().any(|tap| tap.concerns_flow(snapshot, packet))
    }
}
