//! The queues of a DPDK port.

use super::ethdev::EthQueue;
use crate::flows::FlowQueue;
use crate::mbuf::{Burst, Mbuf};
use crate::pools::DESCRIPTORS;
use crate::queue::{ReceiveQueue, ReceivedFrames, SendQueue, SentFrames};
use mmb_packet::{ParserLimits, PortId, finish_checksum, parse::parse};
use std::sync::{Arc, Mutex};

/// The receiving queues of a worker, some or none.
#[derive(Debug)]
pub(crate) struct EthReceive {
    pub(crate) queues: Vec<EthQueue>,
    /// The port is a kernel interface, whose senders leave checksums to their devices.
    pub(crate) kernel: bool,
    /// Keeps packets of flows in order, if the kernel forwards some.
    pub(crate) flows: Option<Box<FlowQueue>>,
}

/// The sending queue of a worker.
#[derive(Debug)]
pub(crate) struct EthSend {
    pub(crate) queue: EthQueue,
    /// Locked while sending if other workers use the queue too.
    pub(crate) lock: Option<Arc<Mutex<()>>>,
}

impl ReceiveQueue for EthReceive {
    #[inline]
    fn receive(&mut self, burst: &mut Burst) -> ReceivedFrames {
        let first = burst.len();
        let rings = self.queues.len() * usize::from(DESCRIPTORS);
        self.flows.iter_mut().for_each(|flows| flows.begin(|| rings));
        let frames: usize = self.queues.iter_mut().map(|queue| queue.receive(burst)).sum();
        if let Some(flows) = &mut self.flows {
            flows.took(frames, frames == 0 && !burst.is_full());
            if frames == 0 {
                flows.sent();
            }
        }
        if frames == 0 { ReceivedFrames::default() } else { normalize(burst, first, self.kernel) }
    }

    fn sent(&mut self) {
        self.flows.iter_mut().for_each(|flows| flows.sent());
    }

    #[inline]
    fn is_urgent(&self) -> bool {
        self.flows.as_ref().is_some_and(|flows| flows.waits_for_batch())
    }

    fn queues(&self) -> usize {
        self.queues.len()
    }
}

impl SendQueue for EthSend {
    #[inline]
    fn send(&mut self, burst: &mut Burst) -> SentFrames {
        let _held =
            self.lock.as_ref().map(|lock| lock.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        SentFrames { frames: self.queue.send(burst), ..SentFrames::default() }
    }
}

/// Brings the frames from `first` on, which a DPDK driver received, into the form of a wire.
fn normalize(burst: &mut Burst, first: usize, kernel: bool) -> ReceivedFrames {
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

/// Finishes a checksum that the sender left to its device.
fn finish(mbuf: &mut Mbuf) {
    let mut packet = mbuf.packet(PortId(0));
    if let Ok(layout) = parse(&packet, &ParserLimits::default()) {
        finish_checksum(&mut packet, &layout);
    }
}

/// Inserts the VLAN tag that the driver removed from a frame.
fn restore_tag(mbuf: &mut Mbuf) {
    let Some(tci) = mbuf.take_vlan() else { return };
    let [high, low] = tci.to_be_bytes();
    mbuf.insert(12, &[0x81, 0x00, high, low]);
}
