//! What the owner of a table tells of packets that pass without the table.

/// The numbers of one end of a TCP connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndNumbers {
    /// The number after the last one that it sent.
    pub end: u32,
    /// The last one that it acknowledged.
    pub ack: u32,
    /// The largest window that it announced, shifted right by its scale.
    pub window: u16,
    /// The shift of its windows.
    pub scale: u8,
}

/// Valid packets of one direction of a connection that have passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnseenPackets {
    /// Their number.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When the last one passed, in milliseconds.
    pub last_ms: u64,
    /// Of TCP: how far their sender has come.
    pub numbers: Option<EndNumbers>,
}
