//! What is subtracted from the counters when they are read, modulo 2^64: their values when they were cleared, less the counters of an earlier run.
//! Only their workers write the counters.
//!
//! Belongs to the control side. `compiled/slots` has the baselines of rules.

use crate::cells::{ConnectionCounts, STAGES, WorkerCells};
use crate::counters::{FlowCacheCount, PortCount, StageCount};
use crate::drop::DropReason;
use crate::made::MadeKind;
use crate::offload::OffloadSummary;
use mmb_conn::{CloseReason, Invalid};
use mmb_rewrite::NotApplied;
use std::sync::Arc;

/// The counters of all workers at one moment, except those of rules.
#[derive(Clone, Debug)]
pub(crate) struct Baseline {
    /// By the index of the reason.
    pub(crate) drops: [u64; DropReason::ALL.len()],
    /// By kind.
    pub(crate) made: [u64; MadeKind::ALL.len()],
    pub(crate) absorbed: u64,
    pub(crate) not_applied: [u64; NotApplied::ALL.len()],
    /// By number; those beyond the end are zero.
    pub(crate) ports: Vec<PortCount>,
    /// By worker; those beyond the end are zero.
    pub(crate) stages: Vec<[StageCount; STAGES.len()]>,
    /// By worker; those beyond the end are zero.
    pub(crate) flow_caches: Vec<FlowCacheCount>,
    pub(crate) connections: ConnectionTotals,
    /// All reasons are there, or none.
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
            made: Default::default(),
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
    /// The counters now, with those of this number of ports.
    pub(crate) fn read(workers: &[Arc<WorkerCells>], ports: usize) -> Baseline {
        let mut now = Baseline { ports: vec![PortCount::default(); ports], ..Baseline::default() };
        for worker in workers {
            for reason in DropReason::ALL {
                now.drops[reason.index()] += worker.drops(reason);
            }
            for kind in MadeKind::ALL {
                now.made[kind as usize] += worker.made(kind);
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
    /// Adds those of a worker.
    pub(crate) fn add(&mut self, worker: &WorkerCells) {
        self.counts = self.counts + worker.connections();
        CloseReason::ALL.into_iter().for_each(|reason| self.closed[reason as usize] += worker.closed(reason));
        Invalid::ALL.into_iter().for_each(|kind| self.invalid[kind as usize] += worker.invalid(kind));
    }
}
