//! What is still to be done to packets that were decided on, where the host has them rewritten later, in a stage of its own.

use super::{Edits, Pipeline, Rewrite, Turned};
use crate::cells::Stage;
use crate::flows::{QuotedAt, Turn};
use crate::snapshot::Snapshot;
use crate::worker::{Cycles, VECTOR, Verdict};
use mmb_packet::{Layout, Packet};
use std::num::NonZeroU32;

/// So many jobs there is room for ahead of any; a host that lets more wait has room made.
const JOBS: usize = 16 * VECTOR;

/// What a packet still gets: see [`Worker::decide`](crate::Worker::decide).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job(NonZeroU32);

impl Job {
    /// The job as a number above 0, to be kept beside a packet.
    pub fn number(self) -> u32 {
        self.0.get()
    }

    /// The job of a number that [`Job::number`] gave; none for 0.
    pub fn of(number: u32) -> Option<Job> {
        NonZeroU32::new(number).map(Job)
    }

    fn place(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// Jobs that wait, all under one snapshot. Their places are used again when none is left.
pub(crate) struct Jobs {
    waiting: Vec<Waiting>,
    turned: Vec<(Turn, Option<QuotedAt>)>,
    /// Numbers of edits of packets that get several.
    listed: Vec<u32>,
    undone: usize,
}

struct Waiting {
    layout: Layout,
    edits: Option<Edits>,
    /// Its place among those that their connection turns.
    turned: Option<u32>,
}

impl Jobs {
    pub(super) fn new() -> Jobs {
        Jobs {
            waiting: Vec::with_capacity(JOBS),
            turned: Vec::with_capacity(JOBS),
            // As many as one vector can have; memory that is never touched costs nothing.
            listed: Vec::with_capacity(mmb_classify::MATCHES),
            undone: 0,
        }
    }

    fn push(&mut self, layout: Layout) -> Job {
        self.undone += 1;
        self.waiting.push(Waiting { layout, edits: None, turned: None });
        Job(NonZeroU32::MIN.saturating_add(self.waiting.len() as u32 - 1))
    }

    fn clear(&mut self) {
        self.waiting.clear();
        self.turned.clear();
        self.listed.clear();
        self.undone = 0;
    }

    fn done(&mut self, jobs: usize) {
        self.undone = self.undone.saturating_sub(jobs);
        if self.undone == 0 {
            self.clear();
        }
    }
}

impl Pipeline {
    /// Whether packets wait to be rewritten, under the snapshot by which they were decided on.
    pub(crate) fn has_jobs(&self) -> bool {
        self.jobs.undone > 0
    }

    /// Forgets jobs that nobody will ask for.
    pub(crate) fn forget_jobs(&mut self) {
        self.jobs.clear();
    }

    /// Lays up what the vector's packets are to get, and tells which jobs that makes; `jobs` is as long as the vector.
    pub(super) fn lay_up(&mut self, jobs: &mut [Option<Job>]) {
        jobs.fill(None);
        let Pipeline { jobs: held, turned, rewrites, layouts, listed, .. } = self;
        for Turned { packet, turn, quoted } in turned.drain(..) {
            let at = usize::from(packet);
            let job = held.push(layouts[at]);
            held.waiting[job.place()].turned = Some(held.turned.len() as u32);
            held.turned.push((turn, quoted));
            jobs[at] = Some(job);
        }
        for &Rewrite { packet, edits } in &*rewrites {
            let at = usize::from(packet);
            let job = *jobs[at].get_or_insert_with(|| held.push(layouts[at]));
            held.waiting[job.place()].edits = Some(match edits {
                Edits::Alone(_) => edits,
                Edits::Listed(start, end) => copied(&mut held.listed, &listed[start as usize..end as usize]),
            });
        }
    }

    /// Rewrites a vector of packets that were decided on. `jobs` and `verdicts` are as long as `packets`.
    pub(crate) fn run_jobs(
        &mut self,
        snapshot: &Snapshot,
        cycles: &impl Cycles,
        packets: &mut [Packet<'_>],
        jobs: &[Job],
        verdicts: &mut [Verdict],
    ) {
        let start = cycles.now();
        self.take_up(jobs);
        self.rewrite(snapshot, packets);
        let rewritten = cycles.now();
        // These packets were counted when they were decided on.
        self.cells.stage(Stage::Rewrite, 0, rewritten.wrapping_sub(start));
        self.forward(snapshot, packets, verdicts, |_| false);
        self.flush();
        let end = cycles.now();
        self.cells.stage(Stage::Forward, 0, end.wrapping_sub(rewritten));
    }

    /// Puts jobs back to where deciding on a vector leaves them.
    fn take_up(&mut self, jobs: &[Job]) {
        let Pipeline { jobs: held, turned, rewrites, layouts, listed, .. } = self;
        turned.clear();
        rewrites.clear();
        listed.clear();
        for (at, job) in jobs.iter().enumerate() {
            let Some(waiting) = held.waiting.get(job.place()) else { continue };
            layouts[at] = waiting.layout;
            // A vector's packets are numbered in a byte.
            let packet = at as u8;
            if let Some(&(turn, quoted)) = waiting.turned.and_then(|place| held.turned.get(place as usize)) {
                turned.push(Turned { packet, turn, quoted });
            }
            if let Some(edits) = waiting.edits {
                let edits = match edits {
                    Edits::Alone(_) => edits,
                    Edits::Listed(start, end) => copied(listed, &held.listed[start as usize..end as usize]),
                };
                rewrites.push(Rewrite { packet, edits });
            }
        }
        held.done(jobs.len());
    }
}

/// Numbers of edits at the end of another list.
fn copied(to: &mut Vec<u32>, numbers: &[u32]) -> Edits {
    let start = to.len() as u32;
    to.extend_from_slice(numbers);
    Edits::Listed(start, to.len() as u32)
}
