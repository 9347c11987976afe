//! Connections as listings and events show them.

use crate::drop::DropReason;
use mmb_base::Id;
use mmb_conn::{ConnId, Connection, ConnectionSnapshot, DESTINATION, SOURCE, Side, Tuple, Wire, proto};
use mmb_policy::{ConnectionFilter, RuleId};
use mmb_stream::StreamInfo;
use std::net::IpAddr;
use std::sync::Arc;

/// The most memory in bytes that a connection takes with everything that belongs to it: its record, its index
/// entries while tables grow, the NAT binding of a host that has no other, a peer, an owner entry if there
/// are several workers, and a counted source. Measured (`connection_memory.rs` of the tests): 280 without
/// translation, up to 1,015 with it.
pub const CONNECTION_BYTES: u64 = 1024;

/// The most memory in bytes that an idle stream without edits takes besides its connection, with a search for
/// a hundred texts in one direction: its record, the engine's record of it, the extension of its connection,
/// free ids, the state of the search, and the count of its source. A search in the other direction takes a
/// second state: 64 bytes for a hundred texts. Measured by `stream_memory.rs` of the tests.
pub const STREAM_BYTES: u64 = 576;

/// The same for an idle stream with edits in the searched direction, before the first edit.
pub const EDITED_STREAM_BYTES: u64 = 832;

/// The most additional memory in bytes that a stream takes after an edit, when all of its bytes are
/// acknowledged. Measured: 720.
pub const EDIT_RECORD_BYTES: u64 = 768;

/// The most additional memory in bytes that the messages of a stream with HTTP rules take.
pub(super) const HTTP_RECORD_BYTES: u64 = 1280;

/// Source and destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoints {
    /// Source address.
    pub src: IpAddr,
    /// Source port, or an ICMP query's identifier; 0 for protocols without ports, and for GRE.
    pub sport: u16,
    /// Destination address.
    pub dst: IpAddr,
    /// Destination port.
    pub dport: u16,
}

impl Endpoints {
    pub(crate) fn from_tuple(tuple: &Tuple) -> Endpoints {
        let [sport, dport] = match tuple.proto {
            proto::GRE => [0; 2],
            _ => [SOURCE, DESTINATION].map(|side| tuple.port(side)),
        };
        Endpoints { src: tuple.address(SOURCE), sport, dst: tuple.address(DESTINATION), dport }
    }
}

/// The state of a connection at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// The worker that owns it.
    pub worker: u16,
    /// Its id at that worker, valid while the connection exists.
    pub id: u32,
    /// The IP protocol.
    pub proto: u8,
    /// 4 or 6.
    pub family: u8,
    /// The key of GRE (RFC 2890); 0 without one.
    pub key: u32,
    /// The type of an ICMP query's request; 0 for other protocols.
    pub icmp_type: u8,
    /// The wire: the smaller number of its two ports, and the VLAN of the initiator's packets.
    pub wire: Wire,
    /// The sides of the wire where the initiator's and the responder's packets come in.
    pub sides: [Side; 2],
    /// Endpoints of the initiator's packets as they arrive.
    pub arrived: Endpoints,
    /// Endpoints of the initiator's packets as they leave.
    pub sent: Endpoints,
    /// The name of its state.
    pub state: &'static str,
    /// Milliseconds since it was created.
    pub age_ms: u64,
    /// Milliseconds since its last packet.
    pub idle_ms: u64,
    /// Milliseconds until it times out if no packet comes.
    pub expires_ms: u64,
    /// Packets of the initiator, and of the responder.
    pub packets: [u64; 2],
    /// Their bytes, link headers included.
    pub bytes: [u64; 2],
    /// The stateful rules that created it.
    pub rules: Arc<[RuleId]>,
    /// Its stream, if rules follow it.
    pub stream: Option<Box<ConnectionStream>>,
}

/// The stream of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionStream {
    /// The state of the stream; `None` after it was ended.
    pub info: Option<StreamInfo>,
    /// The name of the drop reason of its packets, if they are dropped.
    pub ended: Option<&'static str>,
}

impl ConnectionStream {
    pub(super) fn new(info: Option<StreamInfo>, ended: Option<DropReason>) -> ConnectionStream {
        ConnectionStream { info, ended: ended.map(DropReason::name) }
    }
}

impl ConnectionInfo {
    /// Whether a filter matches it.
    pub fn matches(&self, filter: &ConnectionFilter) -> bool {
        fn within<T: PartialOrd + Copy>(range: Option<(T, T)>, values: [T; 2]) -> bool {
            range.is_none_or(|(first, last)| values.iter().any(|value| first <= *value && *value <= last))
        }
        let ConnectionInfo { arrived, sent, .. } = self;
        filter.proto.is_none_or(|proto| proto == self.proto)
            && filter.family.is_none_or(|family| family == self.family)
            && within(filter.src, [arrived.src, sent.src])
            && within(filter.dst, [arrived.dst, sent.dst])
            && within(filter.sport, [arrived.sport, sent.sport])
            && within(filter.dport, [arrived.dport, sent.dport])
            && filter.state.is_none_or(|state| state == self.state)
            && filter.rule.is_none_or(|rule| self.rules.contains(&rule))
    }

    pub(crate) fn new(
        worker: usize,
        id: Option<ConnId>,
        connection: &Connection,
        (now_ms, expires_ms): (u64, u64),
        rules: Arc<[RuleId]>,
    ) -> ConnectionInfo {
        let saved = connection.snapshot(now_ms);
        ConnectionInfo {
            worker: worker as u16,
            id: id.map_or(0, Id::number),
            expires_ms,
            ..ConnectionInfo::from_saved(&saved, rules)
        }
    }

    /// A connection that is in no table: its worker, id and expiry are 0.
    pub(crate) fn from_saved(saved: &ConnectionSnapshot, rules: Arc<[RuleId]>) -> ConnectionInfo {
        let [forward, reply] = &saved.tuples;
        let [high, low] = if forward.proto == proto::GRE { forward.ports } else { [0; 2] };
        ConnectionInfo {
            worker: 0,
            id: 0,
            proto: forward.proto,
            family: forward.family,
            key: u32::from(high) << 16 | u32::from(low),
            icmp_type: if forward.is_query() { forward.ports[DESTINATION] as u8 } else { 0 },
            wire: forward.wire,
            sides: [forward.side, reply.side],
            arrived: Endpoints::from_tuple(forward),
            sent: Endpoints::from_tuple(&reply.reversed()),
            state: saved.state.name(),
            age_ms: saved.age_ms,
            idle_ms: saved.idle_ms,
            expires_ms: 0,
            packets: saved.packets,
            bytes: saved.bytes,
            rules,
            stream: None,
        }
    }
}
