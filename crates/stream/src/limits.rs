//! Limits and settings of a table.

/// How urgent data are treated in a guarded or edited direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgent {
    /// The URG flag is cleared: every receiver finds the bytes in their place in the stream.
    #[default]
    Clear,
    /// The URG flag stays: a receiver may take a byte out of the stream.
    Pass,
    /// Segments with urgent data are dropped.
    Drop,
}

/// The sequence space in which the receivers of edited bytes acknowledge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckSpace {
    /// Output, the bytes that they receive: receivers on a live wire.
    #[default]
    Wire,
    /// Input, the bytes that were sent: receivers in a capture acknowledge what was sent when it was
    /// recorded.
    Original,
}

/// Limits of one worker's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Number of streams.
    pub streams: usize,
    /// Bytes of payload memory for all streams.
    pub memory: usize,
    /// Unacknowledged bytes to buffer in each direction. Advertised windows are clamped to it.
    pub window: u64,
    /// Out-of-order bytes to buffer in each direction.
    pub reorder: usize,
    /// How urgent data are treated.
    pub urgent: Urgent,
    /// Milliseconds for which undecided bytes are held before the editor is asked again.
    pub hold_ms: u32,
}

impl Default for StreamLimits {
    fn default() -> Self {
        StreamLimits {
            streams: 100_000,
            memory: 256 << 20,
            window: 1 << 20,
            reorder: 1 << 20,
            urgent: Urgent::Clear,
            hold_ms: 100,
        }
    }
}
