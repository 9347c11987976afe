//! Counters as the control side reads them: plain values, summed over the workers.

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
    /// Subtracts a baseline, modulo 2^64. The baseline is negative if counters of an earlier run were
    /// restored. A negative difference becomes zero.
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

/// The counters of one rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCount {
    /// Packets that the rule matched.
    pub matched: Count,
    /// Matched packets that were dropped because this rule decided the verdict. Each packet that rules drop
    /// is counted at exactly one rule.
    pub dropped: Count,
    /// Matches of the rule's constraints on streams.
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
    /// Packets received on the port, before any verdict.
    pub rx: Count,
    /// Packets that the port sent, with their lengths after rewriting.
    pub tx: Count,
}

impl std::ops::Add for PortCount {
    type Output = PortCount;

    fn add(self, more: PortCount) -> PortCount {
        PortCount { rx: self.rx + more.rx, tx: self.tx + more.tx }
    }
}

impl PortCount {
    /// Subtracts a baseline. A packet that the host fails to send is subtracted from the sent packets only
    /// then. If the baseline was read before that, it may exceed the counter; the difference is then zero.
    pub(crate) fn since(self, baseline: PortCount) -> PortCount {
        PortCount { rx: self.rx.since(baseline.rx), tx: self.tx.since(baseline.tx) }
    }
}

/// Classified packets, by what the flow cache did for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCacheCount {
    /// Packets whose matching rules were in the flow cache.
    pub hits: u64,
    /// Packets whose matching rules were not in the flow cache, so that the classifier's tables were
    /// searched.
    pub misses: u64,
    /// Packets that bypassed the flow cache, by the reason's index in [`BypassReason::ALL`].
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

    /// Packets that bypassed the flow cache, by reason, without zero counts.
    pub fn bypasses(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let all = BypassReason::ALL.into_iter().map(BypassReason::name).zip(self.bypassed);
        all.filter(|(_, packets)| *packets > 0)
    }
}

/// The counters of one pipeline stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCount {
    /// The stage: `parse`, `classify`, `connections`, `streams`, `rewrite` or `forward`.
    pub name: &'static str,
    /// How often the stage was called.
    pub calls: u64,
    /// How often it was called with at least one packet.
    pub vectors: u64,
    /// Packets that the stage processed.
    pub packets: u64,
    /// Cycles that the stage took.
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
