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

mod assess;
mod backoff;
mod cache;
mod cached;
mod checked;
mod commit;
mod create;
mod edited;
mod expectations;
mod expected;
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
mod lookups;
mod nat_ports;
mod offload;
mod offloaded_flows;
mod owner_map;
mod packet_event;
mod packet_log;
mod reliant;
mod rule_sets;
mod save;
mod saved;
mod saved_bytes;
mod servers;
mod shared;
mod sources;
mod state_map;
mod stream_editor;
mod stream_edits;
mod stream_event;
mod stream_finish;
mod stream_follow;
mod stream_header;
mod stream_http;
mod stream_messages;
mod stream_pools;
mod stream_ref;
mod stream_search;
mod stream_shares;
mod stream_sizes;
mod stream_state;
mod stream_summary;
mod stream_trace;
mod stream_traced;
mod streams;
mod tasks;
mod touch;
mod tracking;
mod watch;

pub(crate) use assess::Assessment;
pub(crate) use cache::VerdictId;
pub(crate) use cached::{CachedOutcome, Traced};
pub(crate) use commit::{Committed, PacketRules};
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
pub(crate) use save::EncodedConnections;
pub use save::{CounterKind, SavedCounter, SavedPort, SavedRule, SavedState, StateHeader, StateWriter};
pub use saved::LeftOutConnection;
pub(crate) use saved::SavedConnection;
pub(crate) use shared::SharedState;
pub use state_map::StateMap;
pub(crate) use state_map::saved_ports;
pub use stream_event::{StreamEvent, StreamEventKind};
pub(crate) use stream_follow::{Followed, StreamPacket, StreamRefusal};
pub(crate) use stream_pools::{MadePools, StreamPools};
pub(crate) use stream_sizes::StreamSizes;
pub use stream_sizes::{StreamNeed, StreamTaken};
pub use stream_summary::StreamSummary;
pub use stream_trace::{EditTotals, EditedBytes, TracedEdit};
pub use tasks::LoadSummary;
pub(crate) use tasks::RestoreRequest;
pub(crate) use tracking::Conntrack;
pub(crate) use watch::Watcher;
pub use watch::{ConnectionEvent, WatchedEvent};
