//! Settings of streams: how many there are, the memory that they take, and the treatment of what cannot be followed.
//!
//! Plain values, which the rooms that follow streams read. [`crate::setting_table`] holds the table of names and ranges.

/// `set stream …`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamSettings {
    /// `stream max`: the most streams at once, over all workers.
    pub max: u32,
    /// `stream per-source`: the most of them whose connections one source has begun.
    pub per_source: StreamsPerSource,
    /// `stream memory`: the memory for kept and early bytes in MiB, over all workers.
    pub memory_mib: u32,
    /// `stream window`: the most unacknowledged bytes that are kept of a direction in KiB; advertised windows are clamped to it.
    pub window_kib: u32,
    /// `stream reorder`: the most bytes behind a hole that are kept of a direction in KiB.
    pub reorder_kib: u32,
    /// `stream hold`: how long what may become a match is held back of a direction that a rule edits, in ms; 0: not at all.
    pub hold_ms: u32,
    /// `stream hold-over`: the treatment of what was held so long.
    pub hold_over: StreamHoldOver,
    /// `stream unfit`: the treatment of connections whose streams cannot be followed.
    pub unfit: StreamUnfit,
    /// `stream urgent`: the treatment of urgent data.
    pub urgent: StreamUrgent,
}

impl Default for StreamSettings {
    fn default() -> Self {
        StreamSettings {
            max: 100_000,
            per_source: StreamsPerSource::default(),
            memory_mib: 256,
            window_kib: 1024,
            reorder_kib: 1024,
            hold_ms: 100,
            hold_over: StreamHoldOver::default(),
            unfit: StreamUnfit::default(),
            urgent: StreamUrgent::default(),
        }
    }
}

/// The most streams of one source. A source is an IPv4 address, or all IPv6 addresses with the same first 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum StreamsPerSource {
    /// 64, or a 256th of `stream max`, whichever is more; beyond that another one only while it has fewer than there are free places: see
    /// [`PortsPerHost::Share`](super::PortsPerHost::Share).
    #[default]
    Share,
    /// A fixed number of streams.
    AtMost(u32),
}

/// The treatment of bytes that were held back for `stream hold`, since they may be the beginning of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum StreamHoldOver {
    /// They pass unedited.
    #[default]
    Pass,
    /// Their connection is closed: both ends get a RST.
    Close,
}

impl StreamHoldOver {
    /// In the order of their words in the table of settings.
    pub const ALL: [StreamHoldOver; 2] = [StreamHoldOver::Pass, StreamHoldOver::Close];
}

/// The treatment of connections whose streams cannot be followed: picked up midway, with TCP-AO or MD5, or without room for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum StreamUnfit {
    /// They pass, and no stream rule sees their bytes.
    #[default]
    Pass,
    /// Both ends get a RST.
    Close,
    /// Their packets are dropped.
    Drop,
}

impl StreamUnfit {
    /// In the order of their words in the table of settings.
    pub const ALL: [StreamUnfit; 3] = [StreamUnfit::Pass, StreamUnfit::Close, StreamUnfit::Drop];
}

/// The treatment of urgent data (RFC 6093), which receivers may deliver outside the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum StreamUrgent {
    /// URG flag and pointer are cleared, so that every receiver takes the data as a part of the stream.
    #[default]
    Clear,
    /// They stay as they are.
    Pass,
    /// Segments with them are dropped.
    Drop,
}

impl StreamUrgent {
    /// In the order of their words in the table of settings.
    pub const ALL: [StreamUrgent; 3] = [StreamUrgent::Clear, StreamUrgent::Pass, StreamUrgent::Drop];
}
