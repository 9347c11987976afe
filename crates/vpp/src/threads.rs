//! VPP's threads as the engine's workers.
//!
//! VPP's thread 0 is the main one, thread `n + 1` is VPP's worker `n`. If there are workers, they alone poll interfaces, and the main thread
//! sleeps. So the engine's worker `n` is VPP's worker `n`, and these own the connections; the main thread is the worker behind them, owns
//! none, and hands its packets over. Without workers the main thread owns all connections. New connections are shared among VPP's workers
//! that have receive queues of interfaces.

/// The mapping between VPP's threads and the engine's workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ThreadMap {
    /// The number of VPP's workers.
    workers: usize,
}

impl ThreadMap {
    /// The mapping for a number of threads that run nodes, with the main one.
    pub(crate) fn new(all: usize) -> ThreadMap {
        ThreadMap { workers: all.saturating_sub(1) }
    }

    /// The number of threads, with the main one.
    pub(crate) fn all(self) -> usize {
        self.workers + 1
    }

    /// The number of workers that own connections, which are the first ones.
    pub(crate) fn owning(self) -> usize {
        self.workers.max(1)
    }

    /// The workers that share new connections, given the threads that have receive queues. If no worker has one, as before the first
    /// interface, all that may own connections share, since packets may come another way.
    pub(crate) fn sharing(self, have_queues: &[bool]) -> Vec<u16> {
        let has_queue = |worker: &u16| have_queues.get(usize::from(self.thread(*worker))) == Some(&true);
        let all = 0..self.owning() as u16;
        let sharing: Vec<u16> = all.clone().filter(has_queue).collect();
        if sharing.is_empty() { all.collect() } else { sharing }
    }

    /// The number of workers that only hand over.
    pub(crate) fn others(self) -> usize {
        self.all() - self.owning()
    }

    /// The worker of a thread.
    #[inline]
    pub(crate) fn worker(self, thread: u16) -> usize {
        usize::from(thread).checked_sub(1).unwrap_or(self.workers)
    }

    /// The thread of a worker.
    #[inline]
    pub(crate) fn thread(self, worker: u16) -> u16 {
        if usize::from(worker) == self.workers { 0 } else { worker + 1 }
    }
}
