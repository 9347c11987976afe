//! A host that decides on packets first and rewrites them later.

use mmb_engine::{NoCycles, Origin, PacketTrace, RewriteTicket, Verdict, Worker};
use mmb_packet::Packet;

/// Processes packets as [`Worker::process`] does, in two steps. The second half of the pending rewrites is carried out first. Returns
/// the trace of each packet.
pub(crate) fn process<'p>(
    worker: &mut Worker,
    (origin, now_ns): (Origin, u64),
    packets: &mut Vec<Packet<'p>>,
    verdicts: &mut [Verdict],
) -> Vec<PacketTrace> {
    let mut tickets = vec![None; packets.len()];
    let mut traces = Vec::new();
    let mut record = |trace| traces.push(trace);
    worker.decide(origin, now_ns, &NoCycles, packets, verdicts, &mut tickets, Some(&mut record));
    let waiting: Vec<(usize, RewriteTicket)> =
        tickets.iter().enumerate().filter_map(|(at, ticket)| Some((at, (*ticket)?))).collect();
    let mut all: Vec<Option<Packet<'p>>> = packets.drain(..).map(Some).collect();
    let (first, last) = waiting.split_at(waiting.len() / 2);
    for part in [last, first] {
        let (places, tickets): (Vec<usize>, Vec<RewriteTicket>) = part.iter().copied().unzip();
        let mut taken: Vec<Packet<'p>> = places.iter().filter_map(|at| all[*at].take()).collect();
        let mut decided: Vec<Verdict> = places.iter().map(|at| verdicts[*at]).collect();
        worker.rewrite(&NoCycles, &mut taken, &tickets, &mut decided);
        for ((at, packet), verdict) in places.into_iter().zip(taken).zip(decided) {
            all[at] = Some(packet);
            verdicts[at] = verdict;
        }
    }
    packets.extend(all.into_iter().flatten());
    traces
}
