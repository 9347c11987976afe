//! What the owner of a table reports about packets that pass without the table.

/// The sequence numbers of one end of a TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndNumbers {
    /// The number after the highest number that it sent.
    pub snd_nxt: u32,
    /// The highest number that it acknowledged.
    pub ack: u32,
    /// The largest window that it announced, shifted right by its scale.
    pub window: u16,
    /// The window scale of the end.
    pub scale: u8,
}

/// Valid packets of one direction of a connection that have passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffloadedPackets {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// When the last one passed, in milliseconds.
    pub last_ms: u64,
    /// For TCP: the sequence numbers of their sender after the last one.
    pub numbers: Option<EndNumbers>,
}
