//! The columns that stages pass to each other, which are allocated once, and the counters of a worker.

use super::search::PacketSearch;
use super::tap::WorkerTap;
use super::tickets::TicketBatches;
use super::work::RewriteWork;
use crate::answer::Answers;
use crate::cells::WorkerCells;
use crate::compiled::{ActionMark, Snapshot};
use crate::conntrack::{Conntrack, SharedState};
use crate::drop::DropReason;
use crate::random::DropRandom;
use crate::verdict::VECTOR;
use mmb_base::Id;
use mmb_base::prefetch;
use mmb_classify::{Classifier, FlowCache, RuleSlot, Scratch};
use mmb_packet::parse::vector::VectorKeys;
use mmb_random::{Purpose, Seed, SeedTree};
use mmb_rewrite::{NotAppliedCounts, PacketEditor};
use std::sync::Arc;

/// Up to this many rules, their actions and counters stay in the cache without prefetching.
pub(super) const MAX_RULES_IN_CACHE: usize = 4096;

/// The most taps at once.
pub(super) const MAX_TAPS: usize = 8;

/// Columns and counters of one worker.
pub(crate) struct Pipeline {
    pub(super) worker: usize,
    pub(super) cells: Arc<WorkerCells>,
    pub(super) random: DropRandom,
    pub(super) keys: VectorKeys,
    pub(super) scratch: Scratch,
    pub(super) flow_cache: FlowCache,
    /// The per-packet rules that packets match, if connections are looked up.
    pub(super) per_packet: Scratch,
    pub(super) blockers: PacketSearch,
    /// The active taps.
    pub(super) taps: Vec<WorkerTap>,
    /// The packets of the vector are traced.
    pub(super) is_traced: bool,
    pub(super) conntrack: Conntrack,
    pub(super) answers: Answers,
    /// Packets of the vector may exceed an MTU, so that errors for them are prepared.
    pub(super) may_exceed_mtu: bool,
    /// The rules that apply to a packet: those that it matched, and those of its connection.
    pub(super) matched: Vec<RuleSlot>,
    /// The rules in `matched` that are not per-packet rules.
    pub(super) constant: Vec<RuleSlot>,
    pub(super) work: RewriteWork,
    pub(super) tickets: TicketBatches,
    pub(super) editor: PacketEditor,
    pub(super) drops: [u64; DropReason::ALL.len()],
    /// Packets that were handed over to other workers.
    pub(super) handed: u64,
    pub(super) not_applied: NotAppliedCounts,
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
            answers: Answers::new(Arc::clone(&common)),
            may_exceed_mtu: false,
            conntrack: Conntrack::new(worker, common, Arc::clone(&cells), seeds),
            matched: Vec::with_capacity(VECTOR),
            constant: Vec::with_capacity(VECTOR),
            cells,
            random: DropRandom::new(seeds.of_worker(Purpose::DropShares, worker)),
            keys: VectorKeys::default(),
            scratch: Scratch::default(),
            flow_cache: FlowCache::new(seeds.of_worker(Purpose::FlowCache, worker)),
            per_packet: Scratch::default(),
            blockers: PacketSearch::new(),
            taps: Vec::with_capacity(MAX_TAPS),
            is_traced: false,
            work: RewriteWork::new(),
            tickets: TicketBatches::new(),
            editor: PacketEditor::default(),
            drops: [0; DropReason::ALL.len()],
            handed: 0,
            not_applied: NotAppliedCounts::default(),
        }
    }

    /// Prefaults the fixed-size tables.
    pub(crate) fn populate(&mut self) {
        self.flow_cache.populate();
    }

    pub(crate) fn cells(&self) -> &WorkerCells {
        &self.cells
    }

    /// Reseeds the generators: their future numbers are independent of earlier ones.
    pub(crate) fn reseed(&mut self, drops: Seed, choices: Seed) {
        self.random.reseed(drops);
        self.conntrack.reseed(choices);
    }

    /// The worker's answers.
    pub(crate) fn answers(&mut self) -> &mut Answers {
        &mut self.answers
    }

    /// The worker's connections.
    pub(crate) fn conntrack(&mut self) -> &mut Conntrack {
        &mut self.conntrack
    }

    /// Sizes the scratch memory for a snapshot that the worker picked up.
    pub(crate) fn configure(&mut self, snapshot: &Arc<Snapshot>, before: Option<Arc<Snapshot>>) {
        self.conntrack.configure(snapshot, before);
        self.answers.configure(snapshot);
        let max = snapshot.classifier.max_matches();
        self.scratch.fit(max);
        self.per_packet.fit(snapshot.per_packet.as_ref().map_or(0, Classifier::max_matches));
        self.blockers.fit(snapshot.blockers.as_ref());
        self.work.clear();
        self.work.listed.reserve(self.scratch.vector() * max);
    }

    /// The most packets of one [`Pipeline::run`] under the configured snapshot.
    pub(crate) fn vector(&self) -> usize {
        self.scratch.vector().min(self.per_packet.vector())
    }

    /// Prefetches the counters of the matched rules. Also prefetches the actions, except those that the mark
    /// of a slot already determines.
    pub(super) fn prefetch_rules(&self, snapshot: &Snapshot) {
        let cells = &snapshot.cells[self.worker];
        if cells.slots() <= MAX_RULES_IN_CACHE {
            return;
        }
        let slots = self.scratch.all_slots();
        let alone = slots.len() == self.scratch.matched().len();
        for &slot in slots {
            prefetch(cells.slot(slot));
            if !alone || ActionMark::from_slot(slot) == ActionMark::NotSimple {
                prefetch(snapshot.actions.at(slot.index()));
            }
        }
    }

    /// Adds the counts of the stages to the worker's counters, which other threads read.
    pub(super) fn flush(&mut self) {
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
