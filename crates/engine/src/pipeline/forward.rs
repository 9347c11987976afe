//! The last stage: checks the MTU and counts.

use crate::cells::WorkerCells;
use crate::compiled::Snapshot;
use crate::counters::Count;
use crate::drop::DropReason;
use crate::verdict::Verdict;
use mmb_packet::{Class, Layout, Packet, PortId};

/// Checks packets against the MTU and counts them, except the packets for which `waits` is true.
#[inline(always)]
pub(super) fn forward<'l>(
    snapshot: &Snapshot,
    (cells, drops): (&WorkerCells, &mut [u64; DropReason::ALL.len()]),
    packets: &[Packet<'_>],
    layouts: impl IntoIterator<Item = &'l Layout>,
    verdicts: &mut [Verdict],
    waits: impl Fn(usize) -> bool,
) {
    let mut sent = PortRun::default();
    let mut absorbed = 0;
    for (index, ((packet, verdict), layout)) in packets.iter().zip(verdicts).zip(layouts).enumerate() {
        if waits(index) {
            continue;
        }
        if let Verdict::Send(_) = verdict
            && let Some((_, mtu)) = snapshot.route(packet.port).egress
            && l3_len(packet, layout) > mtu as usize
        {
            *verdict = Verdict::Drop(DropReason::MtuExceeded);
        }
        match *verdict {
            Verdict::Drop(reason) => drops[reason.index()] += 1,
            Verdict::Hand(_) | Verdict::Held(_) => {}
            Verdict::Absorbed => absorbed += 1,
            Verdict::Send(port) => {
                if let Some((port, count)) = sent.add(port, packet.len()) {
                    cells.forwarded(port, count);
                }
            }
        }
    }
    let (port, count) = sent.end();
    cells.forwarded(port, count);
    if absorbed > 0 {
        cells.count_absorbed(absorbed);
    }
}

/// Counts of consecutive packets with the same port, so that counters are updated once per run.
#[derive(Clone, Copy, Debug, Default)]
struct PortRun {
    port: usize,
    count: Count,
}

impl PortRun {
    /// Adds a packet. Returns the previous run if the packet starts another one.
    #[inline]
    fn add(&mut self, port: PortId, bytes: usize) -> Option<(usize, Count)> {
        let port = usize::from(port.0);
        let one = Count { packets: 1, bytes: bytes as u64 };
        if self.port == port {
            self.count.packets += 1;
            self.count.bytes += one.bytes;
            return None;
        }
        let before = std::mem::replace(self, PortRun { port, count: one });
        Some((before.port, before.count))
    }

    /// The last run.
    fn end(self) -> (usize, Count) {
        (self.port, self.count)
    }
}

/// Bytes that count against an MTU: the IP packet; for other frames, everything after the link header.
#[inline]
pub(super) fn l3_len(packet: &Packet<'_>, layout: &Layout) -> usize {
    let end = if layout.class == Class::Other { packet.len() } else { layout.end as usize };
    end.saturating_sub(usize::from(layout.ip))
}
