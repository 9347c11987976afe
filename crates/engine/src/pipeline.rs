//! The stages, each a loop over the vector.
//!
//! A [`Pipeline`] is one worker's: the columns that the stages hand to each other, allocated once, and the worker's
//! counters. Between stages the verdicts say which packets are still to be sent.

mod account;
mod ballot;
mod connections;
mod jobs;

use crate::cells::{Stage, WorkerCells};
use crate::counters::Count;
use crate::drop::DropReason;
use crate::flows::{Common, Flows, QuotedAt, Turn};
use crate::random::Random;
use crate::snapshot::Snapshot;
use crate::worker::{Cycles, Origin, VECTOR, Verdict};
pub use account::{Account, Membership};
use ballot::{Ballot, in_order};
pub use jobs::Job;
use jobs::Jobs;
use mmb_classify::{Keys, Parse, Scratch, prefetch};
use mmb_packet::{Class, Layout, Packet, PortId};
use mmb_rewrite::{Editor, NotAppliedCounts};
use std::sync::Arc;

/// So few rules that what they do and count stays in the cache by itself.
const FEW_RULES: usize = 4096;

/// Columns and counters of one worker.
pub(crate) struct Pipeline {
    worker: usize,
    cells: Arc<WorkerCells>,
    random: Random,
    keys: Keys,
    layouts: Box<[Layout; VECTOR]>,
    scratch: Scratch,
    flows: Flows,
    /// The rules that a packet gets: what it matched, and its connection's.
    due: Vec<u32>,
    /// Numbers of edits of packets that get several.
    listed: Vec<u32>,
    /// Packets that their connection turns.
    turned: Vec<Turned>,
    /// Packets that matched a rule which rewrites, and are not dropped.
    rewrites: Vec<Rewrite>,
    jobs: Jobs,
    editor: Editor,
    drops: [u64; DropReason::ALL.len()],
    /// Packets that belong to other workers.
    handed: u64,
    not_applied: NotAppliedCounts,
}

/// What deciding on a vector gave.
struct Decided {
    /// Packets that were understood.
    sound: usize,
    /// When the last stage that was counted ended.
    at: u64,
    /// Connections were asked.
    concerned: bool,
}

/// A packet to be rewritten.
#[derive(Clone, Copy, Debug)]
struct Rewrite {
    packet: u8,
    edits: Edits,
}

/// The edits of a packet.
#[derive(Clone, Copy, Debug)]
enum Edits {
    /// The one of this number.
    Alone(u32),
    /// Their numbers, or 0, stand in `listed`, from one place to another.
    Listed(u32, u32),
}

/// A packet that its connection turns.
#[derive(Clone, Copy, Debug)]
struct Turned {
    packet: u8,
    turn: Turn,
    quoted: Option<QuotedAt>,
}

impl Pipeline {
    pub(crate) fn new(worker: usize, common: Arc<Common>, cells: Arc<WorkerCells>, seed: u64) -> Pipeline {
        Pipeline {
            worker,
            flows: Flows::new(worker, common, Arc::clone(&cells), seed),
            due: Vec::with_capacity(VECTOR),
            // Memory that is never touched costs nothing.
            listed: Vec::with_capacity(mmb_classify::MATCHES),
            turned: Vec::with_capacity(VECTOR),
            cells,
            random: Random::new(seed, worker),
            keys: Keys::default(),
            layouts: Box::new([Layout::default(); VECTOR]),
            scratch: Scratch::default(),
            rewrites: Vec::with_capacity(VECTOR),
            jobs: Jobs::new(),
            editor: Editor::default(),
            drops: Default::default(),
            handed: 0,
            not_applied: NotAppliedCounts::default(),
        }
    }

    pub(crate) fn cells(&self) -> &WorkerCells {
        &self.cells
    }

    /// The worker's connections.
    pub(crate) fn flows(&mut self) -> &mut Flows {
        &mut self.flows
    }

    /// Makes the scratch fit a snapshot that the worker picked up.
    pub(crate) fn fit(&mut self, snapshot: &Snapshot) {
        self.flows.fit(snapshot);
        let most = snapshot.classifier.most_matches();
        self.scratch.fit(most);
        self.listed.clear();
        self.listed.reserve(self.scratch.vector() * most);
    }

    /// The most packets of one [`Pipeline::run`] under the snapshot that it was made to fit.
    pub(crate) fn vector(&self) -> usize {
        self.scratch.vector()
    }

    /// Takes a vector through all stages. `verdicts` is as long as `packets`.
    pub(crate) fn run(
        &mut self,
        origin: Origin,
        snapshot: &Snapshot,
        cycles: &impl Cycles,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        let Decided { sound, at, .. } = self.decide_on(origin, snapshot, cycles, packets, verdicts);
        self.rewrite(snapshot, packets);
        let rewritten = cycles.now();
        self.cells.stage(Stage::Rewrite, sound, rewritten.wrapping_sub(at));
        self.finish(snapshot, cycles, rewritten, packets, verdicts, |_| false);
    }

    /// Takes a vector through all stages but rewriting; what is left to do is laid up as jobs. `verdicts` and `jobs` are as long as
    /// `packets`. `tell` hears about each packet.
    pub(crate) fn run_to_jobs(
        &mut self,
        (origin, snapshot): (Origin, &Snapshot),
        cycles: &impl Cycles,
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
        jobs: &mut [Option<Job>],
        tell: Option<&mut dyn FnMut(Account)>,
    ) {
        let Decided { sound, at, concerned } = self.decide_on(origin, snapshot, cycles, packets, verdicts);
        self.lay_up(jobs);
        if let Some(tell) = tell {
            (0..packets.len()).for_each(|at| tell(self.account(snapshot, at, concerned)));
        }
        let laid_up = cycles.now();
        self.cells.stage(Stage::Rewrite, sound, laid_up.wrapping_sub(at));
        self.finish(snapshot, cycles, laid_up, packets, verdicts, |at| jobs[at].is_some());
    }

    /// Decides on a vector, and leaves what is to be rewritten in `turned`, `rewrites` and `listed`.
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

        let concerned = self.flows.concerns(snapshot);
        let mut related = parsed;
        if concerned {
            let layouts = &self.layouts[..packets.len()];
            self.flows.relate(snapshot, packets, layouts, verdicts, origin);
            if self.flows.plan(snapshot, packets) {
                let flows = &self.flows;
                self.keys.retain(|packet| !flows.is_settled(usize::from(packet)));
            }
            related = cycles.now();
        }
        snapshot.classifier.classify(&self.keys, packets, &self.layouts[..packets.len()], &mut self.scratch);
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
        Decided { sound, at: decided, concerned }
    }

    /// Ends the work on a vector, but for packets that wait to be rewritten.
    fn finish(
        &mut self,
        snapshot: &Snapshot,
        cycles: &impl Cycles,
        start: u64,
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
        waits: impl Fn(usize) -> bool,
    ) {
        self.forward(snapshot, packets, verdicts, waits);
        self.flush();
        self.cells.stage(Stage::Forward, packets.len(), cycles.now().wrapping_sub(start));
    }

    /// Finds headers, fills keys, and gives every packet its first verdict: where its wire leads. Returns how many
    /// packets were understood.
    fn parse(
        &mut self,
        snapshot: &Snapshot,
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
        origin: Origin,
    ) -> usize {
        let Pipeline { keys, layouts, .. } = self;
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
        keys.parse(Parse {
            wanted: snapshot.classifier.wanted(),
            limits: snapshot.limits,
            packets,
            layouts,
            out: |at: usize| snapshot.route(packets[at].port).out,
            malformed: |at: usize, why| verdicts[at] = Verdict::Drop(DropReason::Malformed(why)),
        })
    }

    /// Counts the matched rules, and lets accept and drop rules decide. A later stage may still drop what passes.
    fn decide(&mut self, snapshot: &Snapshot, packets: &[Packet<'_>], verdicts: &mut [Verdict]) {
        self.rewrites.clear();
        self.listed.clear();
        self.fetch_rules(snapshot);
        let cells = &snapshot.cells[self.worker];
        for number in 0..self.scratch.matched().len() {
            let at = self.scratch.matched()[number];
            let packet = usize::from(at);
            let count = Count { packets: 1, bytes: packets[packet].len() as u64 };
            let handles = self.scratch.handles_mut(packet);
            let mut ballot = Ballot::default();
            let (mut edits, mut edit, mut draws) = (0, 0, false);
            for &handle in &*handles {
                let action = snapshot.actions.at(handle as usize);
                cells.slot(handle).add(count);
                draws |= !ballot.cast(action, || None);
                if action.edit_number() > 0 {
                    edits += 1;
                    edit = action.edit_number();
                }
            }
            if draws || edits > 1 {
                ballot = in_order(snapshot, handles, &mut self.random);
            }
            if ballot.drops() {
                verdicts[packet] = Verdict::Drop(DropReason::Rule);
            } else if edits > 0 {
                let edits = if edits == 1 {
                    Edits::Alone(edit)
                } else {
                    let start = self.listed.len() as u32;
                    let numbers =
                        handles.iter().map(|&slot| snapshot.actions.at(slot as usize).edit_number());
                    self.listed.extend(numbers);
                    Edits::Listed(start, self.listed.len() as u32)
                };
                self.rewrites.push(Rewrite { packet: at, edits });
            }
        }
    }

    /// Asks for what the matched rules do and count.
    fn fetch_rules(&self, snapshot: &Snapshot) {
        let cells = &snapshot.cells[self.worker];
        if cells.slots() > FEW_RULES {
            for &slot in self.scratch.all_handles() {
                prefetch(snapshot.actions.at(slot as usize));
                prefetch(cells.slot(slot));
            }
        }
    }

    /// Applies what connections do, and then the edits of all rules that a packet gets.
    fn rewrite(&mut self, snapshot: &Snapshot, packets: &mut [Packet<'_>]) {
        for Turned { packet, turn, quoted } in self.turned.drain(..) {
            let at = usize::from(packet);
            let (packet, layout) = (&mut packets[at], &self.layouts[at]);
            match quoted {
                Some(QuotedAt { proto, ip, l4 }) => {
                    turn.translation.apply_to_quoted(packet, layout, proto, ip.into(), l4.into());
                }
                None => turn.translation.apply(packet, layout),
            }
            if let Some(to) = turn.hairpin {
                turn_back(packet, to);
            }
        }
        if self.rewrites.is_empty() {
            return;
        }
        let mut edits = [None; VECTOR];
        // A loop of its own: looking up is one load behind the other, for many packets at once.
        for (edit, rewrite) in edits.iter_mut().zip(&self.rewrites) {
            if let Edits::Alone(number) = rewrite.edits {
                *edit = snapshot.edit(number);
            }
        }
        let Pipeline { rewrites, editor, layouts, not_applied, listed, .. } = self;
        for (&Rewrite { packet, edits }, edit) in rewrites.iter().zip(edits) {
            let at = usize::from(packet);
            let (packet, layout) = (&mut packets[at], &mut layouts[at]);
            let numbers = match (edits, edit) {
                (Edits::Alone(_), Some(edit)) => {
                    editor.apply(packet, layout, std::iter::once(edit), not_applied);
                    continue;
                }
                (Edits::Alone(_), None) => continue,
                (Edits::Listed(start, end), _) => &listed[start as usize..end as usize],
            };
            let edits = numbers.iter().filter_map(|&edit| snapshot.edit(edit));
            editor.apply(packet, layout, edits, not_applied);
        }
    }

    /// Checks what is to be sent against the MTU, and counts everything but packets that wait.
    fn forward(
        &mut self,
        snapshot: &Snapshot,
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
        waits: impl Fn(usize) -> bool,
    ) {
        let mut sent = Run::default();
        for (at, ((packet, verdict), layout)) in
            packets.iter().zip(verdicts).zip(&self.layouts[..]).enumerate()
        {
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
                Verdict::Drop(reason) => self.drops[reason.index()] += 1,
                Verdict::Hand(_) | Verdict::Held(_) => {}
                Verdict::Send(port) => {
                    if let Some((port, count)) = sent.add(port, packet.len()) {
                        self.cells.forwarded(port, count);
                    }
                }
            }
        }
        let (port, count) = sent.end();
        self.cells.forwarded(port, count);
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

/// Has an Ethernet frame go back to the side that it came from, as from where it was sent to.
fn turn_back(packet: &mut Packet<'_>, to: [u8; 6]) {
    if let Some(addresses) = packet.bytes_mut().first_chunk_mut::<12>() {
        addresses.copy_within(..6, 6);
        addresses[..6].copy_from_slice(&to);
    }
}

/// Counts of neighbours with the same port, so that counters are touched once a run.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    port: usize,
    count: Count,
}

impl Run {
    /// Adds a packet. Returns the run before if the packet begins another.
    #[inline]
    fn add(&mut self, port: PortId, bytes: usize) -> Option<(usize, Count)> {
        let port = usize::from(port.0);
        let one = Count { packets: 1, bytes: bytes as u64 };
        if self.port == port {
            self.count.packets += 1;
            self.count.bytes += one.bytes;
            return None;
        }
        let before = std::mem::replace(self, Run { port, count: one });
        Some((before.port, before.count))
    }

    /// The last run.
    fn end(self) -> (usize, Count) {
        (self.port, self.count)
    }
}

/// The layout of a packet that is not looked at: nothing of it counts against an MTU.
fn unparsed() -> Layout {
    Layout { class: Class::Ip4, ..Layout::default() }
}

/// Bytes that count against an MTU: the IP packet; of other frames, all behind the link header.
#[inline]
fn l3_len(packet: &Packet<'_>, layout: &Layout) -> usize {
    let end = if layout.class == Class::Other { packet.len() } else { layout.end as usize };
    end.saturating_sub(usize::from(layout.ip))
}
