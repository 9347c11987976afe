//! The values of settings, as `set` changes them and as the rooms that obey them take them.

mod answers;
mod connections;
mod http;
mod limits;
mod log;
mod streams;

pub use answers::AnswerSettings;
pub use connections::{
    ConnectionSettings, InvalidPackets, NatFiltering, Pickup, PortsPerHost, Timeouts, Zone,
};
pub use http::{HttpEncodings, HttpNoTransform, HttpSettings, HttpUnfit};
pub use limits::LimitSettings;
pub use log::LogSettings;
pub use streams::{StreamHoldOver, StreamSettings, StreamUnfit, StreamUrgent, StreamsPerSource};

/// The values that `set NAME VALUE` changes. [`crate::setting_table`] holds the table of names and ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `ip6-max-headers`: the most IPv6 extension headers walked in one packet.
    pub ip6_max_headers: u8,
    /// `poll`: how an idle worker waits.
    pub poll: Poll,
    /// `offload`: whether a host forwards settled flows by itself.
    pub offload: Offload,
    /// `flow-cache`: whether workers remember what the packets of flows matched.
    pub flow_cache: FlowCacheUse,
    /// `answer …`, `mtu-errors`: how packets are answered.
    pub answers: AnswerSettings,
    /// `conn …`, `timeout …`, `nat …`: how connections are kept.
    pub connections: ConnectionSettings,
    /// `stream …`: how the bytes of connections are followed.
    pub streams: StreamSettings,
    /// `http …`: how messages of HTTP are followed and changed.
    pub http: HttpSettings,
    /// `log …`: how many packets are told.
    pub log: LogSettings,
    /// `limit …`: how many keys limits keep apart.
    pub limits: LimitSettings,
}

/// The way in which an idle worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Poll {
    /// Sleeps for longer and longer, up to a bound.
    #[default]
    Adaptive,
    /// Never sleeps.
    Spin,
}

impl Poll {
    /// In the order of their words in the table of settings.
    pub const ALL: [Poll; 2] = [Poll::Adaptive, Poll::Spin];
}

/// Whether a host forwards settled flows by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Offload {
    /// Where it can.
    #[default]
    Auto,
    /// Never: workers see every packet.
    Off,
}

impl Offload {
    /// In the order of their words in the table of settings.
    pub const ALL: [Offload; 2] = [Offload::Auto, Offload::Off];
}

/// Whether workers remember what the packets of flows matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FlowCacheUse {
    /// Where that is cheaper than the search.
    #[default]
    Auto,
    /// Never: each packet is searched for.
    Off,
}

impl FlowCacheUse {
    /// In the order of their words in the table of settings.
    pub const ALL: [FlowCacheUse; 2] = [FlowCacheUse::Auto, FlowCacheUse::Off];
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            ip6_max_headers: 16,
            poll: Poll::default(),
            offload: Offload::default(),
            flow_cache: FlowCacheUse::default(),
            answers: AnswerSettings::default(),
            connections: ConnectionSettings::default(),
            streams: StreamSettings::default(),
            http: HttpSettings::default(),
            log: LogSettings::default(),
            limits: LimitSettings::default(),
        }
    }
}
