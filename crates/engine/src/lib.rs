//! The vector pipeline: parse, classify, verdict, rewrite, forward.
//!
//! The engine has two sides. [`Engine`] belongs to the control thread: it compiles a policy, publishes it,
//! reads counters, and frees snapshots that no worker uses any more. A [`Worker`] belongs to one packet
//! thread: it takes vectors of packets and the time, and returns verdicts. The two sides share counters, each
//! of which has one worker as its only writer, and the published policy. A worker picks up a new policy
//! between two vectors, without a lock.
//!
//! The engine uses no DPDK, VPP, socket or clock. Time, randomness and the cycle counter are arguments.
#![forbid(unsafe_code)]

mod answer;
mod baseline;
mod cells;
mod compiled;
mod conntrack;
mod control;
mod counters;
mod drop;
mod engine;
mod generated;
pub mod host;
mod offload;
mod offload_writes;
mod pipeline;
mod port;
mod random;
mod rate;
mod server_cells;
mod tap;
mod verdict;
mod worker;

pub use compiled::{
    AffectedConnections, CompiledPatterns, PacketSelector, PublishError, StatefulChange, UnknownFilterPort,
    UnknownServer, compile_patterns,
};
pub use conntrack::{
    CONNECTION_BYTES, ConnectionEvent, ConnectionInfo, ConnectionStream, CounterKind, EDIT_RECORD_BYTES,
    EDITED_STREAM_BYTES, EditTotals, EditedBytes, Endpoints, ExpectedCounts, IpHeaderInfo, LeftOutConnection,
    LoadSummary, PacketEvent, STREAM_BYTES, SavedCounter, SavedPort, SavedRule, SavedState, StateHeader,
    StateMap, StateWriter, StreamEvent, StreamEventKind, StreamNeed, StreamSummary, StreamTaken,
    SuppressedEvent, TracedEdit, WatchedEvent,
};
pub use control::{ConnectionSummary, ConnectionWatch, Connections, NoAnswer, WorkerDrive};
pub use counters::{Count, FlowCacheCount, PortCount, RuleCount, StageCount};
pub use drop::DropReason;
pub use engine::Engine;
pub use generated::GeneratedKind;
pub use host::{PacketHost, drive, drive_returned};
pub use mmb_classify::{TableStats, Tuning};
pub use mmb_conn::{CloseReason, Invalid, Side, Vlans, Wire};
pub use mmb_rewrite::NotApplied;
pub use mmb_scan::{SetCache, SetSource};
pub use mmb_stream::{AckSpace, EditStats, Level, SideStats, StreamInfo, StreamUsage};
pub use offload::{
    EndNumbers, FlowKey, FlowOffload, FlowUsage, FlowWrites, NotOffloadedReason, OffloadEpoch,
    OffloadSummary, OffloadedFlow, TrafficClass,
};
pub use pipeline::{
    MAX_TAPPED_BYTES, PacketTrace, RewriteTicket, TapOptions, TappedBytes, TappedPacket, TracedConnection,
};
pub use port::{Forward, PortSpec, PortTable};
pub use random::DropRandom;
pub use server_cells::{OrderedServer, ServerConnections, ServerInfo, ServerState, ServerTraffic};
pub use tap::{PacketTap, TapError};
pub use verdict::{
    Cycles, NoCycles, Origin, ProcessedPacket, ReturnedPacket, TranslatedPackets, VECTOR, Verdict,
};
pub use worker::Worker;
