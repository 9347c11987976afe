//! VPP's threads as the engine's workers.
//!
//! VPP's thread 0 is the main one, thread `n + 1` is VPP's worker `n`. Where there are workers, they alone have input that is polled:
//! the main thread sleeps. So the engine's worker `n` is VPP's worker `n`, and these own the connections; the main thread has the
//! number behind theirs, owns none, and hands over what comes to it. Without workers the main thread is the only one, and owns all.
//! Of VPP's workers, those share the connections to come that have receive queues of interfaces.

/// How many threads there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadMap {
    /// VPP's workers.
    workers: usize,
}

impl ThreadMap {
    /// From the number of threads that run nodes, the main one among them.
    pub(crate) fn new(all: usize) -> ThreadMap {
        ThreadMap { workers: all.saturating_sub(1) }
    }

    /// All, the main one among them.
    pub(crate) fn all(self) -> usize {
        self.workers + 1
    }

    /// How many own connections: the engine's first workers.
    pub(crate) fn owning(self) -> usize {
        self.workers.max(1)
    }

    /// The engine's workers that share the connections to come, by which threads of VPP's have receive queues: all that may own
    /// connections where none of them has one, as before the first interface, since packets may come otherwise.
    pub(crate) fn sharing(self, have_queues: &[bool]) -> Vec<u16> {
        let has_queue = |worker: &u16| have_queues.get(usize::from(self.thread(*worker))) == Some(&true);
        let all = 0..self.owning() as u16;
        let sharing: Vec<u16> = all.clone().filter(has_queue).collect();
        if sharing.is_empty() { all.collect() } else { sharing }
    }

    /// How many only hand over.
    pub(crate) fn others(self) -> usize {
        self.all() - self.owning()
    }

    /// The engine's worker of a thread of VPP's.
    #[inline]
    pub(crate) fn worker(self, thread: u16) -> usize {
        usize::from(thread).checked_sub(1).unwrap_or(self.workers)
    }

    /// The thread of VPP's that a worker of the engine is.
    #[inline]
    pub(crate) fn thread(self, worker: u16) -> u16 {
        if usize::from(worker) == self.workers { 0 } else { worker + 1 }
    }
}
