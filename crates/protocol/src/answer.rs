//! The lines that answers are made of. Each is one JSON object with one member, named after the variant.
//!
//! The daemon writes them as it goes and the client reads them as they come: what is in a line is bounded by
//! one rule, one port, one piece of a policy file.

use crate::VERSION;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::net::IpAddr;

/// One line of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// What follows answers this question.
    Begin(AnswerBegin),
    /// A rule in force, with its counters unless they were not asked for.
    Rule(RuleLine),
    /// A table of the classifier.
    Table(TableLine),
    /// A port.
    Port(PortLine),
    /// Packets dropped under a reason.
    Drop(ReasonLine),
    /// Targets not applied, under a reason.
    NotApplied(ReasonLine),
    /// A packet thread and its stages.
    Worker(WorkerLine),
    /// A stage, over all workers.
    Stage(StageLine),
    /// A setting in force, or one that was changed.
    Setting(SettingLine),
    /// The daemon's version.
    Version(VersionLine),
    /// A rule that was added.
    Added(RuleText),
    /// A rule that was removed.
    Removed(RuleText),
    /// A port whose packets the rules see again.
    Enabled(String),
    /// A port whose packets pass untouched from now on.
    Disabled(String),
    /// A connection.
    Connection(ConnectionLine),
    /// Connections in numbers.
    Summary(SummaryLine),
    /// Something that happened to a connection.
    Event(EventLine),
    /// So many events, of all who watch, came faster than they were read.
    Lost(u64),
    /// Connections that were asked to end.
    Killed(CountLine),
    /// A piece of the connections' state, in hexadecimal.
    State(String),
    /// Connections in the state that was sent.
    Saved(CountLine),
    /// Connections that the state which was received made.
    Loaded(LoadedLine),
    /// Lines of a policy file.
    Policy(String),
    /// The name of a port, for completion.
    PortName(String),
    /// Something to know that is no error.
    Note(ErrorLine),
    /// Something wrong with the request: nothing was changed.
    Error(ErrorLine),
    /// The answer is complete.
    End(AnswerEnd),
}

/// The question that the following lines answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerBegin {
    /// The number of the command in its request, from 0.
    pub command: usize,
    /// What is listed or shown.
    pub topic: Topic,
}

/// What a question is about.
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
    /// `show conn summary`
    ConnSummary,
    /// `monitor`
    Monitor,
}

/// A rule in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleLine {
    /// Its number.
    pub id: u32,
    /// The command that adds it, without its number.
    pub rule: String,
    /// Packets that matched; absent where only the rules were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Bytes of these packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// A rule that came or went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleText {
    /// Its number.
    pub id: u32,
    /// The command that adds it, without its number.
    pub rule: String,
}

/// A table of the classifier: the rules of one packet class that fix the same bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableLine {
    /// The packet class, for instance `ip4`.
    pub class: String,
    /// The fields of the mask in words.
    pub mask: String,
    /// Tuples (distinct masks of rules) that share it.
    #[serde(default)]
    pub tuples: u64,
    /// Rules in it.
    pub rules: u64,
    /// Distinct keys of these rules.
    pub entries: u64,
    /// Buckets of its hash index; 0 for rules that are compared one by one.
    pub buckets: u64,
    /// Used share of the buckets' places.
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
    /// What drives the device.
    pub driver: String,
    /// Its Ethernet address.
    pub mac: String,
    /// The largest IP packet that may leave by it, in bytes.
    pub mtu: u32,
    /// `up` or `down`.
    pub link: LinkLine,
    /// The port at the other end of its wire.
    pub peer: Option<String>,
    /// The rules see its packets.
    pub enabled: bool,
    /// Received.
    pub rx: TrafficLine,
    /// Sent.
    pub tx: TrafficLine,
    /// Packets that arrived when no room was free for them.
    pub rx_missed: u64,
    /// Packets that arrived broken.
    pub rx_errors: u64,
    /// Packets that the device failed to send.
    pub tx_errors: u64,
}

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkLine {
    /// Carries packets.
    Up,
    /// Carries none.
    Down,
}

/// A reason and how often it applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonLine {
    /// The reason's name.
    pub reason: String,
    /// How often.
    pub count: u64,
}

/// A packet thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerLine {
    /// Its number.
    pub worker: u16,
    /// The core that it is pinned to.
    pub core: Option<u32>,
    /// What its stages did.
    pub stages: Vec<StageLine>,
}

/// What a stage did.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageLine {
    /// Its name.
    pub name: String,
    /// How often it was entered.
    pub calls: u64,
    /// How often it had a packet to work on.
    pub vectors: u64,
    /// Packets that went through it.
    pub packets: u64,
    /// Packets of a vector, on average.
    pub packets_per_vector: f64,
    /// Cycles that a packet took, on average.
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

/// A version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionLine {
    /// The daemon's.
    pub version: String,
    /// The protocol's.
    pub protocol: u32,
    /// The instructions that rules are looked up with: `avx512`, `avx2` or `scalar`.
    #[serde(default)]
    pub instructions: String,
}

/// A connection at some moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionLine {
    /// Its protocol, by name if it has one.
    pub proto: String,
    /// Its state, `established` for instance.
    pub state: String,
    /// The packets of the end that began, as they arrive.
    pub arrived: EndsLine,
    /// The same packets as they leave.
    pub sent: EndsLine,
    /// Milliseconds since it was made.
    pub age_ms: u64,
    /// Milliseconds since its last packet.
    pub idle_ms: u64,
    /// Milliseconds until it ends if no packet comes.
    pub expires_ms: u64,
    /// What the end that began has sent.
    pub forward: TrafficLine,
    /// What the other end has sent.
    pub reply: TrafficLine,
    /// The stateful rules that it has.
    pub rules: Vec<u32>,
    /// The outermost two VLAN identifiers of its packets, outermost first; empty without.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vlans: Vec<u16>,
    /// The key of GRE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<u32>,
    /// The type of an ICMP query's request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<u8>,
    /// Where it is kept, if that was asked for.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub place: Option<ConnectionPlace>,
}

/// Where a connection is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionPlace {
    /// The worker that has it.
    pub worker: u16,
    /// Its number there, while it lives.
    pub id: u32,
    /// The wire that it is seen on: the smaller number of its two ports.
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
    /// Destination port, likewise.
    pub dport: u16,
}

/// Something that happened to a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventLine {
    /// What.
    pub what: EventKind,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The connection, at that moment.
    pub connection: ConnectionLine,
}

/// What happens to connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// It was made.
    Created,
    /// It ended.
    Closed,
}

/// A number of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountLine {
    /// How many.
    pub connections: u64,
}

/// The number of connections that a state made, and of those that were left out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedLine {
    /// Connections that were made.
    pub connections: u64,
    /// Connections that were left out, by reason.
    #[serde(default)]
    pub left_out: Map<String, Value>,
}

/// All connections in numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryLine {
    /// Connections now.
    pub connections: u64,
    /// Of these, those that the other end has not answered yet.
    pub half_open: u64,
    /// The most that there may be.
    pub max: u64,
    /// Made so far.
    pub created: u64,
    /// Ended so far, by reason.
    pub closed: Map<String, Value>,
    /// First packets and fragments that were dropped, by reason.
    pub refused: Map<String, Value>,
    /// Packets that were not believed, by kind.
    #[serde(default)]
    pub invalid: Map<String, Value>,
    /// Events that came faster than they were read.
    pub events_lost: u64,
    /// Packets that came in at another worker than their connection's.
    #[serde(default)]
    pub handed: u64,
    /// Fragments that wait for their datagram's first one now.
    #[serde(default)]
    pub held: u64,
}

/// Something wrong, or worth knowing, and where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorLine {
    /// What.
    #[serde(rename = "error")]
    pub message: String,
    /// In which command of the request, from 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<usize>,
    /// In which line of the command or the file, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// From which character of the line on, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// The bytes of the command or the file that are meant: the first, and the first behind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub span: Option<(usize, usize)>,
    /// What was expected there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// The nearest known word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggestion: Option<String>,
}

impl ErrorLine {
    /// An error without a place.
    pub fn new(message: impl Into<String>) -> ErrorLine {
        ErrorLine { message: message.into(), ..ErrorLine::default() }
    }
}

/// The end of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswerEnd {
    /// The protocol's version.
    pub v: u32,
    /// What was asked is done; `false`: nothing was changed, and errors said why.
    pub ok: bool,
    /// How many rules were added, removed and kept, where something was to be changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<ChangeCount>,
}

/// Rules counted by what a change did to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeCount {
    /// Came.
    pub added: u64,
    /// Went.
    pub removed: u64,
    /// Stayed, with their numbers and counters.
    pub kept: u64,
}

impl AnswerEnd {
    /// The end of an answer without a change.
    pub fn new(ok: bool) -> AnswerEnd {
        AnswerEnd { v: VERSION, ok, change: None }
    }
}
