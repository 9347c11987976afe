//! The lines of answers. Each is one JSON object with one member, named after the variant.
//!
//! The daemon writes lines one by one and the client reads them as they arrive: a line holds at most one rule, one port, or one piece of a
//! policy file.

use crate::VERSION;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::net::IpAddr;

/// One line of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The following lines answer this command.
    Begin(AnswerBegin),
    /// A rule in force, with its counters if they were requested.
    Rule(RuleLine),
    /// Packets that were dropped by rules that are gone, if there are any, after the rules with counters.
    DroppedByFormerRules(TrafficLine),
    /// A table of the classifier.
    Table(TableLine),
    /// A port.
    Port(PortLine),
    /// The number of packets dropped for a reason.
    Drop(ReasonLine),
    /// The number of packets of a kind that mmb made.
    Made(ReasonLine),
    /// The number of packets that were absorbed: what they said lives on in the streams of their connections.
    Absorbed(u64),
    /// The number of targets not applied for a reason.
    NotApplied(ReasonLine),
    /// The packets that the device of a port lost, if there are any.
    PortLoss(PortLossLine),
    /// A packet thread and its stages.
    Worker(WorkerLine),
    /// A stage, summed over all workers.
    Stage(StageLine),
    /// A setting in force, or a setting that was changed.
    Setting(SettingLine),
    /// A list of patterns that was changed.
    Patterns(PatternsLine),
    /// The daemon's version.
    Version(VersionLine),
    /// A rule that was added.
    Added(RuleText),
    /// A rule that was removed.
    Removed(RuleText),
    /// A port that was enabled: the rules apply to its packets.
    Enabled(String),
    /// A port that was disabled: its packets pass unchanged.
    Disabled(String),
    /// A connection.
    Connection(ConnectionLine),
    /// The totals of all connections.
    Summary(SummaryLine),
    /// The streams of all connections in numbers.
    StreamSummary(StreamSummaryLine),
    /// An event of a connection.
    Event(EventLine),
    /// An event of a stream.
    StreamEvent(StreamEventLine),
    /// The number of events that were lost because this client read too slowly.
    Lost(u64),
    /// The numbers of connections whose rules were removed or replaced.
    Affected(AffectedLine),
    /// The number of connections that were ended.
    Killed(CountLine),
    /// What begins at zero again: `counters`.
    Cleared(String),
    /// A piece of the connections' state, in hexadecimal.
    State(String),
    /// The number of connections in the state that the daemon sent.
    Saved(CountLine),
    /// A connection of the state that was left out.
    LeftOut(LeftOutLine),
    /// The number of connections that were restored from the state that the client sent.
    Loaded(LoadedLine),
    /// Lines of a policy file.
    Policy(String),
    /// The name of a port, for completion.
    PortName(String),
    /// The name of a list of patterns, for completion.
    ListName(String),
    /// A note, which is no error.
    Note(ErrorLine),
    /// An error of the request: nothing was changed.
    Error(ErrorLine),
    /// The end of the answer.
    End(AnswerEnd),
}

/// The command that the following lines answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerBegin {
    /// The index of the command in its request.
    pub command: usize,
    /// The topic of the lines.
    pub topic: Topic,
    /// Of `streams`: a filter or `verbose` asks for these lines. Otherwise those of connections that have ended are of less interest.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub selected: bool,
}

/// The topic of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topic {
    /// `list`
    Rules,
    /// `show tables`
    Tables,
    /// `show ports`
    Ports,
    /// `show errors`
    Errors,
    /// `show runtime`
    Runtime,
    /// `show settings`
    Settings,
    /// `show version`
    Version,
    /// `show connections`
    Connections,
    /// `show streams`
    Streams,
    /// `show streams summary`
    StreamSummary,
    /// `show conn summary`
    ConnSummary,
    /// `monitor`
    Monitor,
}

/// A rule in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleLine {
    /// Its id.
    pub id: u32,
    /// The command that adds it, without its id.
    pub rule: String,
    /// Packets that matched; absent if only the rules were requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Bytes of these packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Of these packets, those that this rule dropped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_packets: Option<u64>,
    /// Bytes of the dropped packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped_bytes: Option<u64>,
    /// How often a rule on streams has found what it looks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
    /// The rule that decides in its place for all of its packets, if one was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadowed_by: Option<u32>,
}

/// The numbers of connections that a change affected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AffectedLine {
    /// Connections with a rule that was replaced: the new rule applies to them.
    pub handed_over: u64,
    /// Connections with a rule that drains now: they keep it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub kept: u64,
    /// Connections with a rule that was removed.
    pub lose_rules: u64,
    /// Connections that one of their rules accepted, and now none.
    pub lose_accept: u64,
    /// Connections that end with their rules. They are not among those that lose something.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub ended: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A rule that was added or removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleText {
    /// Its id.
    pub id: u32,
    /// The command that adds it, without its id.
    pub rule: String,
}

/// A table of the classifier: the rules of one packet class that fix the same bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableLine {
    /// The packet class, for instance `ip4`.
    pub class: String,
    /// The fields of the mask, as text.
    pub mask: String,
    /// Tuples (distinct masks of rules) in the table.
    #[serde(default)]
    pub tuples: u64,
    /// Rules in the table.
    pub rules: u64,
    /// Distinct keys of these rules.
    pub entries: u64,
    /// Buckets of its hash index; 0 if its rules are compared one by one.
    pub buckets: u64,
    /// The used share of the buckets' entries.
    pub load: f64,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficLine {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortLine {
    /// Its name in rules.
    pub name: String,
    /// The device behind it.
    pub device: String,
    /// The driver of the device.
    pub driver: String,
    /// Its Ethernet address.
    pub mac: String,
    /// The largest IP packet that may leave by it, in bytes.
    pub mtu: u32,
    /// `up` or `down`.
    pub link: LinkLine,
    /// The port at the other end of its wire.
    pub peer: Option<String>,
    /// The rules apply to its packets.
    pub enabled: bool,
    /// Received.
    pub rx: TrafficLine,
    /// Sent.
    pub tx: TrafficLine,
    /// Packets that were lost because the receive queue was full.
    pub rx_missed: u64,
    /// Packets that arrived damaged.
    pub rx_errors: u64,
    /// Packets that the device failed to send.
    pub tx_errors: u64,
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkLine {
    /// The link transmits packets.
    Up,
    /// The link transmits no packets.
    Down,
    /// The device does not exist any more.
    Gone,
}

/// A reason, or the kind of a made packet, and its count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonLine {
    /// The reason's name.
    pub reason: String,
    /// The count.
    pub count: u64,
}

/// The packets that the device of a port lost. They are not among the dropped packets: those that it lost on receive are not counted as
/// received, and those that it failed to send are counted as sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortLossLine {
    /// The port's name in rules.
    pub port: String,
    /// Packets that were lost because the receive queue was full, or no packet buffer was free.
    pub rx_missed: u64,
    /// Packets that arrived damaged.
    pub rx_errors: u64,
    /// Packets that the device failed to send.
    pub tx_errors: u64,
}

/// A packet thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerLine {
    /// Its number.
    pub worker: u16,
    /// The core that it is pinned to.
    pub core: Option<u32>,
    /// The counters of its stages.
    pub stages: Vec<StageLine>,
}

/// The counters of a stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageLine {
    /// Its name.
    pub name: String,
    /// The number of calls.
    pub calls: u64,
    /// The number of calls with at least one packet.
    pub vectors: u64,
    /// Packets that it processed.
    pub packets: u64,
    /// The average number of packets in a vector.
    pub packets_per_vector: f64,
    /// The average number of cycles for a packet.
    pub cycles_per_packet: f64,
}

/// A setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingLine {
    /// Its name.
    pub name: String,
    /// Its value: a number, or a word.
    pub value: Value,
}

/// A list of patterns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatternsLine {
    /// Its name.
    pub name: String,
    /// The file that it was read from.
    pub file: String,
    /// The number of its patterns; 0: there is no such list any more.
    pub patterns: u64,
    /// A digest of the patterns, in hexadecimal.
    pub digest: String,
}

/// A version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionLine {
    /// The version of the daemon.
    pub version: String,
    /// The version of the protocol.
    pub protocol: u32,
    /// The SIMD level of the rule lookup: `avx512`, `avx2` or `scalar`.
    #[serde(default)]
    pub instructions: String,
}

/// A connection at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionLine {
    /// Its protocol, by name if it has one.
    pub proto: String,
    /// Its state, `established` for instance.
    pub state: String,
    /// The tuple of the initiator's packets as they arrive.
    pub arrived: EndsLine,
    /// The tuple of the same packets as they leave.
    pub sent: EndsLine,
    /// Milliseconds since its creation.
    pub age_ms: u64,
    /// Milliseconds since its last packet.
    pub idle_ms: u64,
    /// Milliseconds until it times out without a packet.
    pub expires_ms: u64,
    /// Traffic of the initiator.
    pub forward: TrafficLine,
    /// Traffic of the responder.
    pub reply: TrafficLine,
    /// The stateful rules that it has.
    pub rules: Vec<u32>,
    /// The outermost two VLAN identifiers of its packets, outermost first; empty without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<u16>,
    /// The key, for GRE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<u32>,
    /// The type of the request, for ICMP queries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<u8>,
    /// Its stream, if rules follow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamLine>,
    /// Its location, if that was requested.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub place: Option<ConnectionPlace>,
}

/// The stream of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamLine {
    /// Why all packets are dropped now: the name of the drop reason. Its directions are no longer known then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// The bytes of the initiator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<StreamSideLine>,
    /// The bytes of the responder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<StreamSideLine>,
}

/// One direction of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSideLine {
    /// `none`, `watch`, `guard` or `edit`.
    pub level: String,
    /// Bytes in order, each counted once: the useful ones.
    pub bytes: u64,
    /// Bytes that were sent again.
    pub repeated: u64,
    /// Segments that came before the bytes in front of them.
    pub early: u32,
    /// Holes that were never filled.
    pub gaps: u32,
    /// Bytes of these holes, which were not searched.
    pub gap_bytes: u64,
    /// Bytes that were sent again with another value, and got the first one back.
    pub overwritten: u64,
    /// Bytes that are kept until the receiver acknowledges them.
    pub kept: u64,
    /// Bytes behind a hole that are kept.
    pub waiting: u64,
    /// Edits, of level `edit` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edits: Option<StreamEditsLine>,
}

/// The edits of one direction of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEditsLine {
    /// Places that were edited.
    pub edits: u64,
    /// How many bytes more than the sender sent the receiver gets; below 0 for fewer.
    pub delta: i64,
    /// Bytes that are held back since they may be the beginning of a match, or of a message's head.
    pub held: u64,
    /// Edited bytes that wait until the receiver's window has room for them.
    pub unsent: u64,
}

/// An event of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamEventLine {
    /// `alert`, `close`, `drop`, `http-unfit-closed`, `http-unfit-passed` or `digest`.
    pub what: String,
    /// The rule; none for messages that are not read as HTTP/1.x.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<u32>,
    /// Why a message is not read: a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The text of its `alert`, or the meaning of the reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The protocol, by name if it has one.
    pub proto: String,
    /// The tuple of the initiator's packets as they arrive.
    pub arrived: EndsLine,
    /// Whose bytes matched: `forward` for those of the initiator, `reply` for those of the responder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<String>,
    /// Bytes of this direction up to the end of the match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// `digest`: the bytes of the initiator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<DigestLine>,
    /// `digest`: the bytes of the responder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<DigestLine>,
}

/// The bytes of one direction of a connection that has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestLine {
    /// Bytes in order, each counted once.
    pub bytes: u64,
    /// Their CRC-32C, in hexadecimal.
    pub crc32c: String,
}

/// The location of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionPlace {
    /// The worker that owns it.
    pub worker: u16,
    /// Its id at the worker, while it exists.
    pub id: u32,
    /// Its wire: the smaller number of its two ports.
    pub wire: u16,
}

/// Addresses and ports of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndsLine {
    /// Source address.
    pub src: IpAddr,
    /// Source port, or the identifier of an ICMP query; 0 for protocols without.
    pub sport: u16,
    /// Destination address.
    pub dst: IpAddr,
    /// Destination port, or the identifier of an ICMP query; 0 for protocols without.
    pub dport: u16,
}

/// An event of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventLine {
    /// The kind of the event.
    pub what: EventKind,
    /// The reason for the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The connection at the time of the event.
    pub connection: ConnectionLine,
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The connection was created.
    Created,
    /// The connection ended.
    Closed,
}

/// A number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountLine {
    /// The number.
    pub connections: u64,
}

/// The number of connections that were restored from a state, and of those that were left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedLine {
    /// Connections that were restored.
    pub connections: u64,
    /// Those of them that have lost a rule.
    #[serde(default)]
    pub lost_rules: u64,
    /// Connections that were left out, by reason.
    #[serde(default)]
    pub left_out: Map<String, Value>,
}

/// A connection of a state that was left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutLine {
    /// The reason.
    pub reason: String,
    /// The connection as it would have been restored; its rules have the ids of the state.
    pub connection: ConnectionLine,
}

/// The totals of all connections.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryLine {
    /// Connections that exist.
    pub connections: u64,
    /// Connections without an answer of the responder.
    pub half_open: u64,
    /// The limit of connections.
    pub max: u64,
    /// Connections created since the start.
    pub created: u64,
    /// Connections ended since the start, by reason.
    pub closed: Map<String, Value>,
    /// First packets and fragments that were dropped, by reason.
    pub refused: Map<String, Value>,
    /// Invalid packets, by kind.
    #[serde(default)]
    pub invalid: Map<String, Value>,
    /// Events that were lost because a client read too slowly.
    pub events_lost: u64,
    /// Packets that arrived at another worker than their connection's owner.
    #[serde(default)]
    pub handed: u64,
    /// Fragments that wait for the first fragment of their datagram.
    #[serde(default)]
    pub held: u64,
}

/// The streams of all connections in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSummaryLine {
    /// Streams that are followed, by the higher of the levels of their directions.
    pub levels: Map<String, Value>,
    /// The same by the state of their connections.
    pub states: Map<String, Value>,
    /// Connections whose packets are all dropped, by the drop reason.
    pub ended: Map<String, Value>,
    /// Connections that pass although they have rules on streams, since they cannot be followed.
    pub unfit: u64,
    /// Bytes that are kept until the receivers acknowledge them.
    pub kept: u64,
    /// Bytes behind a hole that are kept.
    pub waiting: u64,
    /// Bytes that are held back since they may be the beginning of a match, or of a message's head.
    pub held: u64,
    /// Edited bytes that wait until the receivers have room for them.
    pub unsent: u64,
    /// What each worker with connections has of the limits, which are equal parts of the settings.
    pub workers: Vec<StreamUsageLine>,
    /// The limits that are reached, and what becomes of new connections.
    pub warnings: Vec<String>,
}

/// What a worker's streams use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamUsageLine {
    /// The worker.
    pub worker: u16,
    /// Streams.
    pub streams: u64,
    /// Their limit.
    pub max: u64,
    /// Bytes for what is kept, in chunks of 2 KiB.
    pub memory: u64,
    /// Their limit.
    pub memory_max: u64,
}

/// An error or a note, and its position.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorLine {
    /// The message.
    #[serde(rename = "error")]
    pub message: String,
    /// The index of the command in the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<usize>,
    /// The line in the command or the file, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The first character in the line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// The range of bytes in the command or the file: the first byte, and the byte after the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<(usize, usize)>,
    /// The expected text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// The most similar known word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

impl ErrorLine {
    /// Creates an error without a position.
    pub fn new(message: impl Into<String>) -> ErrorLine {
        ErrorLine { message: message.into(), ..ErrorLine::default() }
    }
}

/// The end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerEnd {
    /// The protocol's version.
    pub v: u32,
    /// The request succeeded; `false`: nothing was changed, and error lines have the reasons.
    pub ok: bool,
    /// The number of added, removed and kept rules, if the request had a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<ChangeCount>,
}

/// The numbers of rules that a change added, removed and kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeCount {
    /// Added rules.
    pub added: u64,
    /// Removed rules.
    pub removed: u64,
    /// Rules that stayed, with their ids and counters.
    pub kept: u64,
    /// Nothing was changed: the request was a dry run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

impl AnswerEnd {
    /// Creates the end of an answer without a change.
    pub fn new(ok: bool) -> AnswerEnd {
        AnswerEnd { v: VERSION, ok, change: None }
    }
}
