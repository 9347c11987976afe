//! The stages, each a loop over the vector.
//!
//! A [`Pipeline`] is one worker's: the columns that the stages hand to each other, allocated once, and the worker's
//! counters. Between stages the verdicts say which packets are still to be sent.

use crate::cells::{Stage, WorkerCells};
use crate::counters::Count;
use crate::drop::DropReason;
use crate::random::Random;
use crate::snapshot::{Action, Decision, Route, Snapshot};
use crate::worker::{Cycles, VECTOR, Verdict};
use mmb_classify::{Keys, Parse, Scratch, prefetch};
use mmb_packet::{Class, Layout, Packet, PortId};
use mmb_policy::rule::DropRate;
use mmb_rewrite::{Editor, NotAppliedCounts};
use std::sync::Arc;

/// The port number in keys of packets that leave nowhere.
const NOWHERE: PortId = PortId(u16::MAX);

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
    /// Packets that matched a rule which rewrites, and are not dropped.
    rewrites: Vec<Rewrite>,
    editor: Editor,
    drops: [u64; DropReason::ALL.len()],
    not_applied: NotAppliedCounts,
}

/// A packet to be rewritten.
#[derive(Clone, Copy, Debug)]
struct Rewrite {
    packet: u8,
    /// The number of an edit, the only one if `alone`. Else the numbers of all of them, or 0, stand in the place of the
    /// handles of the rules that the packet matched.
    edit: u32,
    alone: bool,
}

impl Pipeline {
    pub(crate) fn new(worker: usize, cells: Arc<WorkerCells>, seed: u64) -> Pipeline {
        Pipeline {
            worker,
            cells,
            random: Random::new(seed, worker),
            keys: Keys::default(),
            layouts: Box::new([Layout::default(); VECTOR]),
            scratch: Scratch::default(),
            rewrites: Vec::with_capacity(VECTOR),
            editor: Editor::default(),
            drops: Default::default(),
            not_applied: NotAppliedCounts::default(),
        }
    }

    pub(crate) fn cells(&self) -> &WorkerCells {
        &self.cells
    }

    /// Makes the scratch fit a snapshot that the worker picked up.
    pub(crate) fn fit(&mut self, snapshot: &Snapshot) {
        self.scratch.fit(snapshot.classifier.most_matches());
    }

    /// The most packets of one [`Pipeline::run`] under the snapshot that it was made to fit.
    pub(crate) fn vector(&self) -> usize {
        self.scratch.vector()
    }

    /// Takes a vector through all stages. `verdicts` is as long as `packets`.
    pub(crate) fn run(
        &mut self,
        snapshot: &Snapshot,
        cycles: &impl Cycles,
        packets: &mut [Packet<'_>],
        verdicts: &mut [Verdict],
    ) {
        let start = cycles.now();
        let sound = self.parse(snapshot, packets, verdicts);
        let parsed = cycles.now();
        self.cells.stage(Stage::Parse, packets.len(), parsed.wrapping_sub(start));

        snapshot.classifier.classify(&self.keys, packets, &self.layouts[..packets.len()], &mut self.scratch);
        let classified = cycles.now();
        self.cells.stage(Stage::Classify, sound, classified.wrapping_sub(parsed));

        self.decide(snapshot, packets, verdicts);
        self.rewrite(snapshot, packets);
        let rewritten = cycles.now();
        self.cells.stage(Stage::Rewrite, sound, rewritten.wrapping_sub(classified));

        self.forward(snapshot, packets, verdicts);
        self.flush();
        let end = cycles.now();
        self.cells.stage(Stage::Forward, packets.len(), end.wrapping_sub(rewritten));
    }

    /// Finds headers, fills keys, and gives every packet its first verdict: where its wire leads. Returns how many
    /// packets were understood.
    fn parse(&mut self, snapshot: &Snapshot, packets: &[Packet<'_>], verdicts: &mut [Verdict]) -> usize {
        let Pipeline { keys, layouts, .. } = self;
        keys.clear();
        let mut start = 0;
        for run in packets.chunk_by(|a, b| a.port == b.port) {
            let port = run[0].port;
            let bytes = run.iter().map(|packet| packet.len() as u64).sum();
            self.cells.rx(usize::from(port.0), Count { packets: run.len() as u64, bytes });
            let route = snapshot.route(port);
            let verdict = match route.peer {
                Some((peer, _)) => Verdict::Send(peer),
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
            out: |at: usize| snapshot.route(packets[at].port).peer.map_or(NOWHERE, |(peer, _)| peer),
            malformed: |at: usize, why| verdicts[at] = Verdict::Drop(DropReason::Malformed(why)),
        })
    }

    /// Counts the matched rules, and lets accept and drop rules decide. A later stage may still drop what passes.
    fn decide(&mut self, snapshot: &Snapshot, packets: &[Packet<'_>], verdicts: &mut [Verdict]) {
        self.rewrites.clear();
        let cells = &snapshot.cells[self.worker];
        if cells.slots() > FEW_RULES {
            for &handle in self.scratch.all_handles() {
                prefetch(snapshot.actions.at(handle as usize));
                prefetch(cells.slot(handle));
            }
        }
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
                self.rewrites.push(Rewrite { packet: at, edit, alone: edits == 1 });
            }
        }
    }

    /// Applies the edits of all rules that a packet matched.
    fn rewrite(&mut self, snapshot: &Snapshot, packets: &mut [Packet<'_>]) {
        if self.rewrites.is_empty() {
            return;
        }
        let mut edits = [None; VECTOR];
        // A loop of its own: looking up is one load behind the other, for many packets at once.
        for (edit, rewrite) in edits.iter_mut().zip(&self.rewrites) {
            *edit = snapshot.edit(rewrite.edit);
        }
        let Pipeline { rewrites, editor, layouts, not_applied, scratch, .. } = self;
        for (&Rewrite { packet, alone, .. }, edit) in rewrites.iter().zip(edits) {
            let at = usize::from(packet);
            let (packet, layout) = (&mut packets[at], &mut layouts[at]);
            match edit {
                Some(edit) if alone => editor.apply(packet, layout, std::iter::once(edit), not_applied),
                _ => {
                    let edits = scratch.handles(at).iter().filter_map(|&edit| snapshot.edit(edit));
                    editor.apply(packet, layout, edits, not_applied);
                }
            }
        }
    }

    /// Checks what is to be sent against the MTU, and counts everything.
    fn forward(&mut self, snapshot: &Snapshot, packets: &[Packet<'_>], verdicts: &mut [Verdict]) {
        let mut sent = Run::default();
        for ((packet, verdict), layout) in packets.iter().zip(verdicts).zip(&self.layouts[..]) {
            if let Verdict::Send(_) = verdict
                && let Some((_, mtu)) = snapshot.route(packet.port).peer
                && l3_len(packet, layout) > mtu as usize
            {
                *verdict = Verdict::Drop(DropReason::MtuExceeded);
            }
            match *verdict {
                Verdict::Drop(reason) => self.drops[reason.index()] += 1,
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
        self.cells.not_applied_add(&self.not_applied.0);
        self.not_applied = NotAppliedCounts::default();
    }
}

impl Snapshot {
    /// Where packets of a port go.
    #[inline]
    fn route(&self, port: PortId) -> Route {
        self.routes.get(usize::from(port.0)).copied().unwrap_or(Route { peer: None, enabled: true })
    }
}

/// Puts the rules that a packet matched in order, hears them, and leaves the numbers of their edits in place of their
/// handles.
#[inline(never)]
fn in_order(snapshot: &Snapshot, handles: &mut [u32], random: &mut Random) -> Ballot {
    let action = |handle: u32| snapshot.actions.at(handle as usize);
    handles.sort_unstable_by_key(|&handle| action(handle).rank());
    let mut ballot = Ballot::default();
    for handle in handles {
        ballot.cast(action(*handle), || Some(random.draw()));
        *handle = action(*handle).edit_number();
    }
    ballot
}

/// What accept and drop rules say about a packet. The best priority among those that say something decides; accept wins
/// a tie. A rule that drops a share, and spares this packet, says nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Ballot {
    decided: Option<(u32, bool)>,
}

impl Ballot {
    /// Hears a rule. False if that takes a random number, which `draw` has not given.
    #[inline]
    fn cast(&mut self, action: &Action, draw: impl FnOnce() -> Option<u32>) -> bool {
        let drops = match action.decision() {
            Decision::None => return true,
            Decision::Accept => false,
            // No draw for `drop` without a percentage.
            Decision::Drop(rate) if rate == DropRate::ALL => true,
            Decision::Drop(rate) => match draw() {
                Some(drawn) if drawn < rate.0 => true,
                Some(_) => return true,
                None => return false,
            },
        };
        match &mut self.decided {
            Some((prio, decided)) if *prio == action.prio => *decided &= drops,
            Some((prio, _)) if *prio < action.prio => {}
            decided => *decided = Some((action.prio, drops)),
        }
        true
    }

    #[inline]
    fn drops(self) -> bool {
        self.decided.is_some_and(|(_, drops)| drops)
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
