//! The pipeline stages, each a loop over the vector.
//!
//! A [`Pipeline`] belongs to one worker: the columns that stages pass to each other, allocated once, and the worker's counters. Between
//! stages the verdicts tell which packets are still to be sent.

mod connections;
mod resolver;
mod tickets;
mod trace;
mod work;

use crate::cells::{Stage, WorkerCells};
use crate::compiled::Snapshot;
use crate::conntrack::{Conntrack, SharedState};
use crate::counters::Count;
use crate::drop::DropReason;
use crate::random::DropRandom;
use crate::verdict::{Cycles, Origin, VECTOR, Verdict};
use mmb_base::prefetch;
use mmb_classify::{ParseVector, Scratch, VectorKeys};
use mmb_packet::{Class, Layout, Packet, PortId};
use mmb_random::{Purpose, Seed, SeedTree};
use mmb_rewrite::{NotAppliedCounts, PacketEditor};
use resolver::{VerdictResolver, resolve_in_order};
use std::sync::Arc;
pub use tickets::RewriteTicket;
use tickets::TicketBatches;
pub use trace::{PacketTrace, TracedConnection};
use work::{EditList, PacketEdits, RewriteWork};

/// Up to this many rules, their actions and counters stay in the cache without prefetching.
const FEW_RULES: usize = 4096;

/// Columns and counters of one worker.
pub(crate) struct Pipeline {
    worker: usize,
    cells: Arc<WorkerCells>,
    random: DropRandom,
    keys: VectorKeys,
    scratch: Scratch,
    conntrack: Conntrack,
    /// The rules that apply to a packet: those that it matched, and those of its connection.
    matched: Vec<u32>,
    work: RewriteWork,
    tickets: TicketBatches,
    editor: PacketEditor,
    drops: [u64; DropReason::ALL.len()],
    /// Packets that were handed over to other workers.
    handed: u64,
    not_applied: NotAppliedCounts,
}

/// The result of deciding on a vector.
struct Decided {
    /// Number of packets that were parsed without error.
    sound: usize,
    /// The cycle count at the end of the last stage.
    at: u64,
    /// Connections were looked up.
    tracked: bool,
}

impl Pipeline {
    pub(crate) fn new(
        worker: usize,
        common: Arc<SharedState>,
        cells: Arc<WorkerCells>,
        seeds: &SeedTree,
    ) -> Pipeline {
        Pipeline {
            worker,
            conntrack: Conntrack::new(worker, common, Arc::clone(&cells), seeds),
            matched: Vec::with_capacity(VECTOR),
            cells,
            random: DropRandom::new(seeds.of_worker(Purpose::DropShares, worker)),
            keys: VectorKeys::default(),
            scratch: Scratch::default(),
            work: RewriteWork::new(),
            tickets: TicketBatches::new(),
            editor: PacketEditor::default(),
            drops: [0; DropReason::ALL.len()],
            handed: 0,
            not_applied: NotAppliedCounts::default(),
        }
    }

    pub(crate) fn cells(&self) -> &WorkerCells {
        &self.cells
    }

    /// Reseeds the generators: their future numbers are independent of earlier ones.
    pub(crate) fn reseed(&mut self, drops: Seed, choices: Seed) {
        self.random.reseed(drops);
        self.conntrack.state.extras.reseed(choices);
    }

    /// The worker's connections.
    pub(crate) fn conntrack(&mut self) -> &mut Conntrack {
        &mut self.conntrack
    }

    /// Sizes the scratch memory for a snapshot that the worker picked up.
    pub(crate) fn configure(&mut self, snapshot: &Snapshot) {
        self.conntrack.configure(snapshot);
        let most = snapshot.classifier.most_matches();
        self.scratch.fit(most);
        self.work.clear();
        self.work.listed.reserve(self.scratch.vector() * most);
    }

    /// The most packets of one [`Pipeline::run`] under the configured snapshot.
    pub(crate) fn vector(&self) -> usize {
        self.scratch.vector()
    }

    /// Processes a vector in all stages. `verdicts` is as long as `packets`.
    pub(crate) fn run(
        &mut self,
        origin: Origin,
        snapshot: &Snapshot,
        cycles: &impl Cycles,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        let Decided { sound, at, .. } = self.decide_on(origin, snapshot, cycles, packets, verdicts);
        let tools = (&mut self.editor, &mut self.not_applied);
        self.work.apply(snapshot, packets, tools, |packet| Some(usize::from(packet)));
        let rewritten = cycles.now();
        self.cells.stage(Stage::Rewrite, sound, rewritten.wrapping_sub(at));
        self.finish(snapshot, cycles, rewritten, packets, verdicts, |_| false);
    }

    /// Processes a vector in all stages except rewriting, for which it issues tickets. `verdicts` and `tickets` are as long as `packets`.
    /// `tell` receives each packet's trace.
    pub(crate) fn run_to_tickets(
        &mut self,
        (origin, snapshot): (Origin, &Snapshot),
        cycles: &impl Cycles,
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
        tickets: &mut [Option<RewriteTicket>],
        tell: Option<&mut dyn FnMut(PacketTrace)>,
    ) {
        let Decided { sound, at, tracked: concerned } =
            self.decide_on(origin, snapshot, cycles, packets, verdicts);
        let shelf = self.issue_tickets(tickets);
        if let Some(tell) = tell {
            (0..packets.len()).for_each(|at| tell(self.trace(snapshot, at, concerned)));
        }
        let numbered = cycles.now();
        self.cells.stage(Stage::Rewrite, sound, numbered.wrapping_sub(at));
        self.finish(snapshot, cycles, numbered, packets, verdicts, |at| tickets[at].is_some());
        if let Some(shelf) = shelf {
            self.park(shelf, tickets);
        }
    }

    /// Decides on a vector, and leaves the pending rewrites in `work`.
    fn decide_on(
        &mut self,
        origin: Origin,
        snapshot: &Snapshot,
        cycles: &impl Cycles,
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
    ) -> Decided {
        let start = cycles.now();
        let sound = self.parse(snapshot, packets, verdicts, origin);
        let parsed = cycles.now();
        self.cells.stage(Stage::Parse, packets.len(), parsed.wrapping_sub(start));

        let concerned = self.conntrack.is_needed(snapshot);
        let mut related = parsed;
        if concerned {
            let layouts = &self.work.layouts[..packets.len()];
            self.conntrack.lookup(snapshot, packets, layouts, verdicts, origin);
            if self.conntrack.lookup_cache(snapshot, packets) {
                let flows = &self.conntrack;
                self.keys.retain(|packet| !flows.needs_no_rules(usize::from(packet)));
            }
            related = cycles.now();
        }
        snapshot.classifier.classify(
            &self.keys,
            packets,
            &self.work.layouts[..packets.len()],
            &mut self.scratch,
        );
        let classified = cycles.now();
        self.cells.stage(Stage::Classify, sound, classified.wrapping_sub(related));

        let mut decided = classified;
        if concerned {
            self.decide_by_connection(snapshot, packets, verdicts);
            decided = cycles.now();
            let spent = related.wrapping_sub(parsed).wrapping_add(decided.wrapping_sub(classified));
            self.cells.stage(Stage::Connections, sound, spent);
        } else {
            self.decide(snapshot, packets, verdicts);
        }
        Decided { sound, at: decided, tracked: concerned }
    }

    /// Forwards and counts a vector, except packets that wait to be rewritten.
    fn finish(
        &mut self,
        snapshot: &Snapshot,
        cycles: &impl Cycles,
        start: u64,
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
        waits: impl Fn(usize) -> bool,
    ) {
        let counters = (&*self.cells, &mut self.drops);
        forward(snapshot, counters, packets, &*self.work.layouts, verdicts, waits);
        self.flush();
        self.cells.stage(Stage::Forward, packets.len(), cycles.now().wrapping_sub(start));
    }

    /// Parses headers, fills classifier keys, and sets every packet's initial verdict from its port's route. Returns the number of packets
    /// that were parsed without error.
    fn parse(
        &mut self,
        snapshot: &Snapshot,
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
        origin: Origin,
    ) -> usize {
        let Pipeline { keys, work: RewriteWork { layouts, .. }, .. } = self;
        keys.clear();
        let mut start = 0;
        for run in packets.chunk_by(|a, b| a.port == b.port) {
            let port = run[0].port;
            if origin == Origin::Wire {
                let bytes = run.iter().map(|packet| packet.len() as u64).sum();
                self.cells.rx(usize::from(port.0), Count { packets: run.len() as u64, bytes });
            }
            let route = snapshot.route(port);
            let verdict = match route.to {
                Some((to, _)) => Verdict::Send(to),
                None => Verdict::Drop(DropReason::NoWire),
            };
            let end = start + run.len();
            verdicts[start..end].fill(verdict);
            if route.enabled {
                // A vector's packets are numbered in a byte.
                keys.take(start as u8, run);
            } else {
                layouts[start..end].fill(unparsed());
            }
            start = end;
        }
        keys.parse(ParseVector {
            wanted: snapshot.classifier.wanted(),
            limits: snapshot.limits,
            packets,
            layouts,
            out: |at: usize| snapshot.route(packets[at].port).out,
            malformed: |at: usize, why| verdicts[at] = Verdict::Drop(DropReason::Malformed(why)),
        })
    }

    /// Counts the matched rules, and applies accept and drop rules. A later stage may still drop a packet that passes.
    fn decide(&mut self, snapshot: &Snapshot, packets: &[Packet<'_>], verdicts: &mut [Verdict]) {
        self.work.clear();
        self.fetch_rules(snapshot);
        let cells = &snapshot.cells[self.worker];
        for number in 0..self.scratch.matched().len() {
            let at = self.scratch.matched()[number];
            let packet = usize::from(at);
            let count = Count { packets: 1, bytes: packets[packet].len() as u64 };
            let handles = self.scratch.handles_mut(packet);
            let mut resolver = VerdictResolver::default();
            let (mut edits, mut edit, mut draws) = (0, 0, false);
            for &handle in &*handles {
                let action = snapshot.actions.at(handle as usize);
                cells.slot(handle).add(count);
                draws |= !resolver.resolve(action, || None);
                if action.edit_number() > 0 {
                    edits += 1;
                    edit = action.edit_number();
                }
            }
            if draws || edits > 1 {
                resolver = resolve_in_order(snapshot, handles, &mut self.random);
            }
            if resolver.drops() {
                verdicts[packet] = Verdict::Drop(DropReason::Rule);
            } else if edits > 0 {
                let edits = if edits == 1 {
                    EditList::Alone(edit)
                } else {
                    let start = self.work.listed.len() as u32;
                    let numbers =
                        handles.iter().map(|&slot| snapshot.actions.at(slot as usize).edit_number());
                    self.work.listed.extend(numbers);
                    EditList::Listed(start, self.work.listed.len() as u32)
                };
                self.work.rewrites.push(PacketEdits { packet: at, edits });
            }
        }
    }

    /// Prefetches the actions and counters of the matched rules.
    fn fetch_rules(&self, snapshot: &Snapshot) {
        let cells = &snapshot.cells[self.worker];
        if cells.slots() > FEW_RULES {
            for &slot in self.scratch.all_handles() {
                prefetch(snapshot.actions.at(slot as usize));
                prefetch(cells.slot(slot));
            }
        }
    }

    fn flush(&mut self) {
        for (reason, drops) in DropReason::ALL.into_iter().zip(&mut self.drops) {
            if *drops > 0 {
                self.cells.count_drop(reason, std::mem::take(drops));
            }
        }
        if self.handed > 0 {
            self.cells.handed(std::mem::take(&mut self.handed));
        }
        self.cells.not_applied_add(&self.not_applied.0);
        self.not_applied = NotAppliedCounts::default();
    }
}

/// Checks packets against the MTU, and counts all but those that wait.
#[inline(always)]
fn forward<'l>(
    snapshot: &Snapshot,
    (cells, drops): (&WorkerCells, &mut [u64; DropReason::ALL.len()]),
    packets: &[Packet<'_>],
    layouts: impl IntoIterator<Item = &'l Layout>,
    verdicts: &mut [Verdict],
    waits: impl Fn(usize) -> bool,
) {
    let mut sent = PortRun::default();
    for (at, ((packet, verdict), layout)) in packets.iter().zip(verdicts).zip(layouts).enumerate() {
        if waits(at) {
            continue;
        }
        if let Verdict::Send(_) = verdict
            && let Some((_, mtu)) = snapshot.route(packet.port).to
            && l3_len(packet, layout) > mtu as usize
        {
            *verdict = Verdict::Drop(DropReason::MtuExceeded);
        }
        match *verdict {
            Verdict::Drop(reason) => drops[reason.index()] += 1,
            Verdict::Hand(_) | Verdict::Held(_) => {}
            Verdict::Send(port) => {
                if let Some((port, count)) = sent.add(port, packet.len()) {
                    cells.forwarded(port, count);
                }
            }
        }
    }
    let (port, count) = sent.end();
    cells.forwarded(port, count);
}

/// Counts of consecutive packets with the same port, so that counters are updated once per run.
#[derive(Clone, Copy, Debug, Default)]
struct PortRun {
    port: usize,
    count: Count,
}

impl PortRun {
    /// Adds a packet. Returns the previous run if the packet begins another.
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

/// The layout of a packet that is not parsed: length 0 for the MTU check.
fn unparsed() -> Layout {
    Layout { class: Class::Ip4, ..Layout::default() }
}

/// Bytes that count against an MTU: the IP packet; for other frames, everything after the link header.
#[inline]
fn l3_len(packet: &Packet<'_>, layout: &Layout) -> usize {
    let end = if layout.class == Class::Other { packet.len() } else { layout.end as usize };
    end.saturating_sub(usize::from(layout.ip))
}
