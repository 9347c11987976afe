//! Limits and settings of a table.

/// What becomes of urgent data under guard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Urgent {
    /// The flag is cleared: all receivers find the bytes in their place in the stream.
    #[default]
    Clear,
    /// It stays: receivers may take a byte out of the stream.
    Pass,
    /// Segments with urgent data are dropped.
    Drop,
}

/// Which bytes the receivers of edited bytes acknowledge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AckSpace {
    /// Those that they get: receivers on a wire.
    #[default]
    Wire,
    /// Those that were sent: the packets of a capture answer what was sent then.
    Original,
}

/// Limits of one worker's streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Streams.
    pub streams: usize,
    /// Bytes for payload, of all streams.
    pub memory: usize,
    /// Unacknowledged bytes that are kept in a direction; windows are clamped to it.
    pub window: u64,
    /// Early bytes that are kept in a direction.
    pub reorder: usize,
    /// What becomes of urgent data.
    pub urgent: Urgent,
    /// For how many milliseconds bytes are held back before the editor is asked again.
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
