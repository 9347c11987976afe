//! A host that decides on packets first and has them rewritten then.

use mmb_engine::{NoCycles, Origin, PacketTrace, RewriteTicket, Verdict, Worker};
use mmb_packet::Packet;

/// What [`Worker::process`] and its like do, in two steps: of what is to be rewritten the last half comes first. Returns an account of
/// each packet.
pub(crate) fn process<'p>(
    worker: &mut Worker,
    (origin, now_ns): (Origin, u64),
    packets: &mut Vec<Packet<'p>>,
    verdicts: &mut [Verdict],
) -> Vec<PacketTrace> {
    let mut jobs = vec![None; packets.len()];
    let mut accounts = Vec::new();
    let mut tell = |account| accounts.push(account);
    worker.decide(origin, now_ns, &NoCycles, packets, verdicts, &mut jobs, Some(&mut tell));
    let waiting: Vec<(usize, RewriteTicket)> =
        jobs.iter().enumerate().filter_map(|(at, job)| Some((at, (*job)?))).collect();
    let mut all: Vec<Option<Packet<'p>>> = packets.drain(..).map(Some).collect();
    let (first, last) = waiting.split_at(waiting.len() / 2);
    for part in [last, first] {
        let (places, jobs): (Vec<usize>, Vec<RewriteTicket>) = part.iter().copied().unzip();
        let mut taken: Vec<Packet<'p>> = places.iter().filter_map(|at| all[*at].take()).collect();
        let mut decided: Vec<Verdict> = places.iter().map(|at| verdicts[*at]).collect();
        worker.rewrite(&NoCycles, &mut taken, &jobs, &mut decided);
        for ((at, packet), verdict) in places.into_iter().zip(taken).zip(decided) {
            all[at] = Some(packet);
            verdicts[at] = verdict;
        }
    }
    packets.extend(all.into_iter().flatten());
    accounts
}
