//! Connection tracking: finds the connection of each packet, creates, updates and ends connections, and
//! determines how packets are translated.
//!
//! Purpose: [`Conntrack`] is a worker's connection table and the state that belongs to it. A vector passes
//! its calls in this order:
//!
//! - [`Conntrack::advance`] advances the clock: connections time out, held fragments expire.
//! - [`Conntrack::lookup`] determines the flow state of each packet of a vector, and finds cached verdicts.
//!   Packets with a cached verdict are not classified.
//! - [`Conntrack::apply_cached`] applies a packet's cached verdict if it is still valid. For a packet without
//!   one, [`Conntrack::assess`] returns the flow state and the validity, and [`Conntrack::ct_state`] the
//!   state on which rules match.
//! - [`Conntrack::commit`] updates or creates the connection of a packet that passes, and returns its
//!   translation. [`Conntrack::refuse`] records a packet that is dropped.
//!
//! Between vectors, tasks of the control thread list, end, save and restore connections (`tasks`).
//!
//! A connection refers to the stateful rules that its first packet matched (`rule_sets`). These rules
//! determine its translation. Translated addresses and ports are in the reply tuple, which then differs from
//! the reversed forward tuple. Other changes (sequence numbers, IP identification, flow label) are in an
//! extension. A later policy may remove rules from connections, but never a translation: without it, the two
//! ends could no longer communicate.
//!
//! Ownership: a [`Conntrack`] belongs to one worker. The state that workers share ([`SharedState`]) is locked
//! when a translated connection begins or ends, and when a packet has no connection at this worker.

mod apply_cached;
mod assess;
mod backoff;
mod cached_unreplied;
mod checked;
mod commit;
mod connection_update;
mod create;
mod create_expected;
mod edit_trace;
mod edited_connections;
mod expectations;
mod extension;
mod flow_state;
mod fold_rounds;
mod folding;
mod fragments;
mod helper;
mod helper_control;
mod helper_ftp;
mod http_generations;
mod icmp;
mod info;
mod isn;
mod key;
mod lookup;
mod lookup_keys;
mod nat_ports;
mod offload;
mod offloaded_flows;
mod owner_map;
mod packet_event;
mod packet_log;
mod rule_sets;
mod saved_bytes;
mod saved_connection;
mod servers;
mod shared;
mod sources;
mod state_file;
mod state_map;
mod stream_editor;
mod stream_event;
mod stream_finish;
mod stream_follow;
mod stream_header;
mod stream_http;
mod stream_messages;
mod stream_packets;
mod stream_pools;
mod stream_ref;
mod stream_search;
mod stream_shares;
mod stream_sizes;
mod stream_state;
mod stream_summary;
mod stream_tracing;
mod streams;
mod tasks;
mod tracking;
mod verdict_cache;
mod watched_events;

pub(crate) use apply_cached::{CachedOutcome, Traced};
pub(crate) use assess::Assessment;
pub(crate) use commit::{Committed, PacketRules};
pub use edit_trace::{EditTotals, EditedBytes, TracedEdit};
pub use expectations::ExpectedCounts;
pub(crate) use flow_state::{NatTransform, QuotedOffsets};
pub use info::{
    CONNECTION_BYTES, ConnectionInfo, ConnectionStream, EDIT_RECORD_BYTES, EDITED_STREAM_BYTES, Endpoints,
    STREAM_BYTES,
};
pub(crate) use key::{Ingress, addresses, ports};
pub(crate) use lookup::BLOCK;
pub(crate) use offload::FlowSample;
pub use packet_event::{IpHeaderInfo, PacketEvent, SuppressedEvent};
pub use saved_connection::LeftOutConnection;
pub(crate) use saved_connection::SavedConnection;
pub(crate) use shared::SharedState;
pub(crate) use state_file::EncodedConnections;
pub use state_file::{CounterKind, SavedCounter, SavedPort, SavedRule, SavedState, StateHeader, StateWriter};
pub use state_map::StateMap;
pub(crate) use state_map::saved_ports;
pub use stream_event::{StreamEvent, StreamEventKind};
pub(crate) use stream_follow::{Followed, StreamPacket, StreamRefusal};
pub(crate) use stream_pools::{AllocatedPools, StreamPools};
pub(crate) use stream_sizes::StreamSizes;
pub use stream_sizes::{StreamNeed, StreamTaken};
pub use stream_summary::StreamSummary;
pub use tasks::LoadSummary;
pub(crate) use tasks::RestoreRequest;
pub(crate) use tracking::Conntrack;
pub(crate) use verdict_cache::VerdictId;
pub(crate) use watched_events::Watcher;
pub use watched_events::{ConnectionEvent, WatchedEvent};
