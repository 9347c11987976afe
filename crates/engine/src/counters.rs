//! Counters as read by the control side: plain values, summed over the workers.

use mmb_classify::BypassReason;

/// Packets and bytes (whole frames as received).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

impl std::ops::Add for Count {
    type Output = Count;

    fn add(self, more: Count) -> Count {
        Count { packets: self.packets.wrapping_add(more.packets), bytes: self.bytes.wrapping_add(more.bytes) }
    }
}

impl Count {
    /// Subtracts a baseline, which is below zero if counters of an earlier run were added. A difference below zero is zero.
    pub(crate) fn since(self, baseline: Count) -> Count {
        let Count { packets, bytes } = self - baseline;
        let [packets, bytes] = [packets, bytes].map(|since| if since.cast_signed() < 0 { 0 } else { since });
        Count { packets, bytes }
    }
}

impl std::ops::Sub for Count {
    type Output = Count;

    fn sub(self, less: Count) -> Count {
        Count { packets: self.packets.wrapping_sub(less.packets), bytes: self.bytes.wrapping_sub(less.bytes) }
    }
}

/// The packets of one rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCount {
    /// Those that it matched.
    pub matched: Count,
    /// Of these, those that were dropped because of it: its verdict decided. Every packet dropped by rules is counted at one rule.
    pub dropped: Count,
    /// Matches of its constraints on streams.
    pub hits: u64,
}

impl std::ops::Add for RuleCount {
    type Output = RuleCount;

    fn add(self, more: RuleCount) -> RuleCount {
        RuleCount {
            matched: self.matched + more.matched,
            dropped: self.dropped + more.dropped,
            hits: self.hits.wrapping_add(more.hits),
        }
    }
}

impl std::ops::Sub for RuleCount {
    type Output = RuleCount;

    fn sub(self, less: RuleCount) -> RuleCount {
        RuleCount {
            matched: self.matched - less.matched,
            dropped: self.dropped - less.dropped,
            hits: self.hits.wrapping_sub(less.hits),
        }
    }
}

/// The traffic of one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCount {
    /// Received, before any verdict.
    pub rx: Count,
    /// Handed to the port for sending, as sent.
    pub tx: Count,
}

impl std::ops::Add for PortCount {
    type Output = PortCount;

    fn add(self, more: PortCount) -> PortCount {
        PortCount { rx: self.rx + more.rx, tx: self.tx + more.tx }
    }
}

impl PortCount {
    /// Subtracts a baseline. A packet that the host failed to send after the baseline was read counts as not sent: then it may be the
    /// greater one.
    pub(crate) fn since(self, baseline: PortCount) -> PortCount {
        PortCount { rx: self.rx.since(baseline.rx), tx: self.tx.since(baseline.tx) }
    }
}

/// What became of classified packets in the flow cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCacheCount {
    /// Packets whose rules it knew.
    pub hits: u64,
    /// Packets that were searched for since it did not know them.
    pub misses: u64,
    /// Packets that passed it by, by the number of the reason in [`BypassReason::ALL`].
    pub bypassed: [u64; BypassReason::ALL.len()],
}

impl FlowCacheCount {
    /// Adds another worker's count.
    pub(crate) fn add(&mut self, more: FlowCacheCount) {
        self.hits += more.hits;
        self.misses += more.misses;
        self.bypassed.iter_mut().zip(more.bypassed).for_each(|(sum, more)| *sum += more);
    }

    /// Subtracts a baseline.
    pub(crate) fn since(self, baseline: FlowCacheCount) -> FlowCacheCount {
        FlowCacheCount {
            hits: self.hits - baseline.hits,
            misses: self.misses - baseline.misses,
            bypassed: std::array::from_fn(|reason| self.bypassed[reason] - baseline.bypassed[reason]),
        }
    }

    /// Packets that passed it by, by reason, those above zero.
    pub fn bypasses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = BypassReason::ALL.into_iter().map(BypassReason::name).zip(self.bypassed);
        all.filter(|(_, packets)| *packets > 0)
    }
}

/// The work of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCount {
    /// `parse`, `classify`, `connections`, `streams`, `rewrite`, `forward`.
    pub name: &'static str,
    /// How often the stage was called.
    pub calls: u64,
    /// How often it was called with at least one packet.
    pub vectors: u64,
    /// Packets that it processed.
    pub packets: u64,
    /// Cycles that it took.
    pub cycles: u64,
}

impl StageCount {
    /// Adds another worker's count of the same stage.
    pub(crate) fn add(&mut self, more: StageCount) {
        self.calls += more.calls;
        self.vectors += more.vectors;
        self.packets += more.packets;
        self.cycles += more.cycles;
    }

    /// Subtracts a baseline.
    pub(crate) fn since(self, baseline: StageCount) -> StageCount {
        StageCount {
            name: self.name,
            calls: self.calls - baseline.calls,
            vectors: self.vectors - baseline.vectors,
            packets: self.packets - baseline.packets,
            cycles: self.cycles.wrapping_sub(baseline.cycles),
        }
    }
}
