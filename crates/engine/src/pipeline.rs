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
use mmb_classify::{Keys, Scratch};
use mmb_packet::parse::parse_into;
use mmb_packet::{Class, Layout, Packet, PortId};
use mmb_policy::rule::DropRate;
use mmb_rewrite::{Editor, NotAppliedCounts};
use std::sync::Arc;

/// The port number in keys of packets that leave nowhere.
const NOWHERE: PortId = PortId(u16::MAX);

/// Columns and counters of one worker.
pub(crate) struct Pipeline {
    worker: usize,
    cells: Arc<WorkerCells>,
    random: Random,
    keys: Keys,
    layouts: Box<[Layout; VECTOR]>,
    scratch: Scratch,
    /// Packets that matched a rule which rewrites, and are not dropped.
    rewrites: Vec<u8>,
    editor: Editor,
    drops: [u64; DropReason::ALL.len()],
    not_applied: NotAppliedCounts,
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
        self.keys.clear();
        let mut sound = 0;
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
                sound += self.find_headers(snapshot, start, run, &mut verdicts[start..end]);
            } else {
                self.layouts[start..end].fill(unparsed());
            }
            start = end;
        }
        let out = |at: usize| match verdicts[at] {
            Verdict::Send(peer) => peer,
            Verdict::Drop(_) => NOWHERE,
        };
        // A loop of its own: it reads layouts in other widths than they were written in, which is slow right after the
        // writing.
        self.keys.fill(snapshot.classifier.wanted(), packets, &self.layouts[..packets.len()], out);
        sound
    }

    /// Finds the headers of packets that follow each other, the first of them number `start` of the vector, and gives
    /// those that some rule could match a place for their key.
    fn find_headers(
        &mut self,
        snapshot: &Snapshot,
        start: usize,
        packets: &[Packet<'_>],
        verdicts: &mut [Verdict],
    ) -> usize {
        let Pipeline { keys, layouts, .. } = self;
        let [wants_ip4, wants_ip6, wants_other] =
            [Class::Ip4, Class::Ip6, Class::Other].map(|class| snapshot.classifier.wants(class));
        let mut sound = 0;
        let places = layouts[start..].iter_mut().zip(verdicts);
        for (at, (packet, (layout, verdict))) in (start..).zip(packets.iter().zip(places)) {
            if let Err(why) = parse_into(packet, &snapshot.limits, layout) {
                *verdict = Verdict::Drop(DropReason::Malformed(why));
                continue;
            }
            sound += 1;
            match layout.class {
                Class::Ip4 if wants_ip4 => keys.ip4.push(at as u8),
                Class::Ip6 if wants_ip6 => keys.ip6.push(at as u8),
                Class::Other if wants_other => keys.other.push(at as u8),
                _ => {}
            }
        }
        sound
    }

    /// Counts the matched rules, and lets accept and drop rules decide. A later stage may still drop what passes.
    fn decide(&mut self, snapshot: &Snapshot, packets: &[Packet<'_>], verdicts: &mut [Verdict]) {
        self.rewrites.clear();
        let cells = &snapshot.cells[self.worker];
        for number in 0..self.scratch.matched().len() {
            let at = self.scratch.matched()[number];
            let packet = usize::from(at);
            let count = Count { packets: 1, bytes: packets[packet].len() as u64 };
            let handles = self.scratch.handles_mut(packet);
            if handles.len() > 1 {
                handles.sort_unstable_by_key(|&handle| snapshot.actions.at(handle as usize).rank());
            }
            let mut ballot = Ballot::default();
            let mut rewrites = false;
            for &handle in &*handles {
                let action = snapshot.actions.at(handle as usize);
                cells.slot(handle).add(count);
                ballot.cast(action, &mut self.random);
                rewrites |= action.edit().is_some();
            }
            if ballot.drops() {
                verdicts[packet] = Verdict::Drop(DropReason::Rule);
            } else if rewrites {
                self.rewrites.push(at);
            }
        }
    }

    /// Applies the edits of all rules that a packet matched.
    fn rewrite(&mut self, snapshot: &Snapshot, packets: &mut [Packet<'_>]) {
        for &at in &self.rewrites {
            let at = usize::from(at);
            let edit = |&handle: &u32| snapshot.edit(snapshot.actions.at(handle as usize));
            let edits = self.scratch.handles(at).iter().filter_map(edit);
            self.editor.apply(&mut packets[at], &mut self.layouts[at], edits, &mut self.not_applied);
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

/// What accept and drop rules say about a packet, heard by priority, then number. The best priority among those
/// that say something decides; accept wins a tie. A rule that drops a share, and spares this packet, says nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Ballot {
    decided: Option<(u32, bool)>,
}

impl Ballot {
    #[inline]
    fn cast(&mut self, action: &Action, random: &mut Random) {
        let drops = match action.decision() {
            Decision::None => return,
            Decision::Accept => false,
            // No draw for `drop` without a percentage.
            Decision::Drop(rate) if rate == DropRate::ALL || random.draw() < rate.0 => true,
            Decision::Drop(_) => return,
        };
        match &mut self.decided {
            None => self.decided = Some((action.prio, drops)),
            Some((prio, decided)) if *prio == action.prio => *decided &= drops,
            Some(_) => {}
        }
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
