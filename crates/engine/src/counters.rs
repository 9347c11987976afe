//! Counters as read by the control side: plain values, summed over the workers.

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

impl std::ops::Sub for Count {
    type Output = Count;

    fn sub(self, less: Count) -> Count {
        Count { packets: self.packets.wrapping_sub(less.packets), bytes: self.bytes.wrapping_sub(less.bytes) }
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

/// The work of one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCount {
    /// `parse`, `classify`, `connections`, `rewrite`, `forward`.
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
}
