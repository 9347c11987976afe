//! Counters as read by the control side: plain values, sums over the workers.

/// Packets and bytes (whole frames as received).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// What went through one port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortCount {
    /// Received, before anything was decided.
    pub rx: Count,
    /// Handed to the port for sending, as sent.
    pub tx: Count,
}

/// What one stage did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageCount {
    /// `parse`, `classify`, `connections`, `rewrite`, `forward`.
    pub name: &'static str,
    /// How often the stage was entered.
    pub calls: u64,
    /// How often it had at least one packet to work on.
    pub vectors: u64,
    /// Packets that went through it.
    pub packets: u64,
    /// Cycles that it took.
    pub cycles: u64,
}
