//! Baselines of counters: the values that are subtracted, modulo 2^64, when counters are read. A baseline is
//! the counter's value when it was last cleared, minus the restored counter of an earlier run. Clearing never
//! writes a counter, because only its worker writes it.
//!
//! Belongs to the control side. `compiled/slots` has the baselines of rules.

use crate::cells::{ConnectionCounts, STAGES, WorkerCells};
use crate::counters::{FlowCacheCount, PortCount, StageCount};
use crate::drop::DropReason;
use crate::generated::GeneratedKind;
use crate::offload::OffloadSummary;
use mmb_conn::{CloseReason, Invalid};
use mmb_rewrite::NotApplied;
use std::sync::Arc;

/// The counters of all workers at one moment, except those of rules.
#[derive(Clone, Debug)]
pub(crate) struct Baseline {
    /// By the reason's index in [`DropReason::ALL`].
    pub(crate) drops: [u64; DropReason::ALL.len()],
    /// By the kind's index in [`GeneratedKind::ALL`].
    pub(crate) generated: [u64; GeneratedKind::ALL.len()],
    pub(crate) absorbed: u64,
    pub(crate) not_applied: [u64; NotApplied::ALL.len()],
    /// By port number. Ports beyond the end have the baseline zero.
    pub(crate) ports: Vec<PortCount>,
    /// By worker. Workers beyond the end have the baseline zero.
    pub(crate) stages: Vec<[StageCount; STAGES.len()]>,
    /// By worker. Workers beyond the end have the baseline zero.
    pub(crate) flow_caches: Vec<FlowCacheCount>,
    pub(crate) connections: ConnectionTotals,
    /// `not_offloaded` has all reasons, or none.
    pub(crate) offload: OffloadSummary,
}

/// The counters of connections, summed over workers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ConnectionTotals {
    pub(crate) counts: ConnectionCounts,
    pub(crate) closed: [u64; CloseReason::ALL.len()],
    pub(crate) invalid: [u64; Invalid::ALL.len()],
}

impl Default for Baseline {
    fn default() -> Baseline {
        Baseline {
            drops: [0; DropReason::ALL.len()],
            generated: Default::default(),
            absorbed: 0,
            not_applied: Default::default(),
            ports: Vec::new(),
            stages: Vec::new(),
            flow_caches: Vec::new(),
            connections: ConnectionTotals::default(),
            offload: OffloadSummary::default(),
        }
    }
}

impl Baseline {
    /// Reads the current counters of all workers, with those of the first `ports` ports.
    pub(crate) fn read(workers: &[Arc<WorkerCells>], ports: usize) -> Baseline {
        let mut now = Baseline { ports: vec![PortCount::default(); ports], ..Baseline::default() };
        for worker in workers {
            for reason in DropReason::ALL {
                now.drops[reason.index()] += worker.drops(reason);
            }
            for kind in GeneratedKind::ALL {
                now.generated[kind as usize] += worker.generated(kind);
            }
            now.absorbed += worker.absorbed();
            for reason in NotApplied::ALL {
                now.not_applied[reason as usize] += worker.not_applied(reason);
            }
            for (port, sum) in now.ports.iter_mut().enumerate() {
                *sum = *sum + worker.port(port);
            }
            now.stages.push(worker.stages());
            now.flow_caches.push(worker.flow_cache_counts());
            now.connections.add(worker);
            worker.add_offload(&mut now.offload);
        }
        now
    }
}

impl ConnectionTotals {
    /// Adds the counters of a worker.
    pub(crate) fn add(&mut self, worker: &WorkerCells) {
        self.counts = self.counts + worker.connections();
        CloseReason::ALL.into_iter().for_each(|reason| self.closed[reason as usize] += worker.closed(reason));
        Invalid::ALL.into_iter().for_each(|kind| self.invalid[kind as usize] += worker.invalid(kind));
    }
}
