//! A worker that processes packets from memory, with what it gives back: packets that edits make and release.

use crate::tsc::Tsc;
use mmb_engine::{AckSpace, Cycles, DropReason, ReturnedPacket, VECTOR, Verdict, Worker};
use mmb_packet::{LinkType, Packet, PortId};
use std::time::Duration;

/// A copy of a packet that a worker gave back.
struct ReturnedCopy {
    buffer: Vec<u8>,
    len: usize,
    port: PortId,
    link: LinkType,
}

impl ReturnedCopy {
    fn new() -> ReturnedCopy {
        ReturnedCopy { buffer: Vec::new(), len: 0, port: PortId(0), link: LinkType::Ethernet }
    }

    /// Bytes in front of the packet, for edits.
    const HEADROOM: usize = 64;

    fn put(&mut self, ReturnedPacket { port, link, bytes, .. }: &ReturnedPacket<'_>) {
        let needed = ReturnedCopy::HEADROOM + bytes.len();
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
        self.buffer[ReturnedCopy::HEADROOM..needed].copy_from_slice(bytes);
        (self.len, self.port, self.link) = (bytes.len(), *port, *link);
    }

    fn packet(&mut self) -> Option<Packet<'_>> {
        Packet::new(&mut self.buffer, ReturnedCopy::HEADROOM, self.len, self.port, self.link)
    }
}

/// A worker and its time.
pub(super) struct BenchWorker {
    worker: Worker,
    verdicts: [Verdict; VECTOR],
    /// Packets that the worker gave back.
    returned: Vec<ReturnedCopy>,
    /// The engine's time, and its step between rounds.
    now_ns: u64,
    step_ns: u64,
}

impl BenchWorker {
    /// The time advances by `step` between rounds.
    pub(super) fn new(mut worker: Worker, step: Duration) -> BenchWorker {
        // What packets acknowledge does not depend on the policy.
        worker.set_ack_space(AckSpace::Original);
        let verdicts = [Verdict::Drop(DropReason::NoBuffer); VECTOR];
        BenchWorker { worker, verdicts, returned: Vec::new(), now_ns: 0, step_ns: step.as_nanos() as u64 }
    }

    /// Begins a round.
    pub(super) fn begin_round(&mut self) {
        self.now_ns += self.step_ns;
    }

    /// Brings the counters of rules up to date.
    pub(super) fn fold_counters(&mut self) {
        self.worker.fold_counters();
    }

    /// Returns the verdicts of the last vector.
    pub(super) fn verdicts(&self) -> &[Verdict; VECTOR] {
        &self.verdicts
    }

    /// Processes a vector and what the worker gives back for it. Returns the cycles.
    pub(super) fn process(&mut self, packets: &mut [Packet<'_>]) -> u64 {
        let begin = Tsc.now();
        self.worker.process(self.now_ns, &Tsc, packets, &mut self.verdicts);
        self.process_returned();
        Tsc.now().wrapping_sub(begin)
    }

    fn process_returned(&mut self) {
        let BenchWorker { worker, returned, now_ns, .. } = self;
        loop {
            let mut count = 0;
            let origin = worker.return_packets(|packet| {
                if returned.len() == count {
                    returned.push(ReturnedCopy::new());
                }
                returned[count].put(&packet);
                count += 1;
                true
            });
            let Some(origin) = origin else { return };
            let views = returned[..count].iter_mut().filter_map(ReturnedCopy::packet);
            worker.process_views(origin, *now_ns, &Tsc, views);
        }
    }
}
