//! What is still to be done to packets that were decided on, where the host has them rewritten later, in a stage of its own.
//!
//! A vector's work is laid up as a whole, without copying it, and a job is a packet's number in it.

use super::work::Work;
use super::{Pipeline, forward};
use crate::cells::Stage;
use crate::snapshot::Snapshot;
use crate::worker::{Cycles, VECTOR, Verdict};
use mmb_packet::Packet;
use std::num::NonZeroU32;

/// So many vectors' work there is room for ahead of any; a host that lets more wait has room made.
const LAID_UP: usize = 4;

/// What a packet still gets: see [`Worker::decide`](crate::Worker::decide).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job(NonZeroU32);

impl Job {
    /// The job as a number above 0, to be kept beside a packet.
    #[inline]
    pub fn number(self) -> u32 {
        self.0.get()
    }

    /// The job of a number that [`Job::number`] gave; none for 0.
    #[inline]
    pub fn of(number: u32) -> Option<Job> {
        NonZeroU32::new(number).map(Job)
    }

    #[inline]
    fn new(shelf: usize, packet: u8) -> Job {
        Job(NonZeroU32::MIN.saturating_add((shelf * VECTOR) as u32 + u32::from(packet)))
    }

    #[inline]
    fn shelf(self) -> usize {
        (self.0.get() - 1) as usize / VECTOR
    }

    #[inline]
    fn packet(self) -> usize {
        (self.0.get() - 1) as usize % VECTOR
    }
}

/// Work that waits, all of it decided under one snapshot.
#[derive(Default)]
pub(super) struct Jobs {
    shelves: Vec<Shelf>,
    free: Vec<usize>,
}

/// A vector's work.
struct Shelf {
    work: Work,
    undone: usize,
}

impl Jobs {
    pub(super) fn new() -> Jobs {
        let shelf = |_| Shelf { work: Work::new(), undone: 0 };
        Jobs { shelves: (0..LAID_UP).map(shelf).collect(), free: (0..LAID_UP).collect() }
    }
}

impl Pipeline {
    /// Whether packets wait to be rewritten, under the snapshot by which they were decided on.
    pub(crate) fn has_jobs(&self) -> bool {
        self.jobs.free.len() < self.jobs.shelves.len()
    }

    /// Forgets jobs that nobody will ask for.
    pub(crate) fn forget_jobs(&mut self) {
        if self.has_jobs() {
            let Jobs { shelves, free } = &mut self.jobs;
            shelves.iter_mut().for_each(|shelf| shelf.undone = 0);
            free.clear();
            free.extend(0..shelves.len());
        }
    }

    /// Tells which jobs the vector's work makes, and which shelf it will be laid on, if it makes any. `jobs` is as long as the vector.
    pub(super) fn number_jobs(&mut self, jobs: &mut [Option<Job>]) -> Option<usize> {
        jobs.fill(None);
        let Work { turned, rewrites, .. } = &self.work;
        if turned.is_empty() && rewrites.is_empty() {
            return None;
        }
        let shelf = self.jobs.free.pop().unwrap_or_else(|| {
            self.jobs.shelves.push(Shelf { work: Work::new(), undone: 0 });
            self.jobs.shelves.len() - 1
        });
        let packets = turned.iter().map(|turned| turned.packet);
        for packet in packets.chain(rewrites.iter().map(|rewrite| rewrite.packet)) {
            jobs[usize::from(packet)] = Some(Job::new(shelf, packet));
        }
        Some(shelf)
    }

    /// Lays the vector's work on a shelf.
    pub(super) fn lay_up(&mut self, shelf: usize, jobs: &[Option<Job>]) {
        let room = self.work.listed.capacity();
        let shelf = &mut self.jobs.shelves[shelf];
        shelf.undone = jobs.iter().filter(|job| job.is_some()).count();
        std::mem::swap(&mut self.work, &mut shelf.work);
        self.work.clear();
        self.work.listed.reserve(room);
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
        // Apart from the rest as long as it is worked on; that copies six words.
        let mut held = std::mem::take(&mut self.jobs);
        let mut done = 0;
        for run in jobs.chunk_by(|a, b| a.shelf() == b.shelf()) {
            let end = done + run.len();
            if let Some(shelf) = held.shelves.get_mut(run[0].shelf()).filter(|shelf| shelf.undone > 0) {
                self.run_shelf(snapshot, shelf, &mut packets[done..end], run, &mut verdicts[done..end]);
                if shelf.undone == 0 {
                    held.free.push(run[0].shelf());
                }
            }
            done = end;
        }
        self.jobs = held;
        self.flush();
        // These packets were counted when they were decided on.
        self.cells.stage(Stage::Rewrite, 0, cycles.now().wrapping_sub(start));
    }

    /// Rewrites packets of one shelf.
    fn run_shelf(
        &mut self,
        snapshot: &Snapshot,
        shelf: &mut Shelf,
        packets: &mut [Packet<'_>],
        jobs: &[Job],
        verdicts: &mut [Verdict],
    ) {
        // By the packets' numbers when they were decided on.
        let mut places = [u16::MAX; VECTOR];
        for (at, job) in (0..).zip(jobs) {
            places[job.packet()] = at;
        }
        let place = |packet: u8| match places[usize::from(packet)] {
            u16::MAX => None,
            at => Some(usize::from(at)),
        };
        shelf.work.apply(snapshot, packets, (&mut self.editor, &mut self.not_applied), place);
        let layouts = jobs.iter().map(|job| &shelf.work.layouts[job.packet()]);
        forward(snapshot, (&*self.cells, &mut self.drops), packets, layouts, verdicts, |_| false);
        shelf.undone = shelf.undone.saturating_sub(jobs.len());
    }
}
