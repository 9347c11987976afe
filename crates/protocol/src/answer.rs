//! The lines of answers. Each is one JSON object with one member, named after the variant.
//!
//! The daemon writes lines one by one and the client reads them as they arrive: a line holds at most one rule, one port, or one piece of a
//! policy file. With the feature `schema`, every type of a line has a schema, for the OpenAPI document of `mmb web`.

mod connections;
mod counters;
mod history;
mod log;
mod offload;
mod packets;
mod rates;
mod servers;
mod sets;

pub use connections::{
    ConnectionLine, ConnectionPlace, CountLine, DigestLine, EndsLine, EventKind, EventLine, ExpectedLine,
    LeftOutLine, LoadedLine, StreamEditsLine, StreamEventLine, StreamLine, StreamSideLine, StreamSummaryLine,
    StreamUsageLine, SummaryLine,
};
pub use counters::{
    FlowCacheLine, LinkLine, PortLine, PortLossLine, ReasonLine, StageLine, TrafficLine, WorkerLine,
};
pub use history::{DiffVersions, DifferenceLine, DifferenceSign, HistoryLine, UnconfirmedLine};
pub use log::{LogLine, LogSinkLine, SuppressedLine};
pub use offload::{KeptFlowsLine, OffloadLine, PortOffloadLine};
pub use packets::{
    CapturedLine, EditedFieldLine, EndLine, HeadersLine, OutcomeLine, TapLine, TracedConnectionLine,
    TracedLine, TracedRuleLine,
};
pub use rates::{
    ConnectionRate, DropRate, MomentLine, PortRate, Rate, RateLine, RateLines, RuleRate, WorkerRate,
};
pub use servers::{ServerLine, ServerStateLine};
pub use sets::{ElementLine, SetChangeLine, SetLine};

use crate::VERSION;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One line of an answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
    /// The memory of the tables.
    TableMemory(TableMemoryLine),
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
    /// What the flow caches of all workers did, after the stages.
    FlowCache(FlowCacheLine),
    /// The packets that the host forwarded or dropped before any stage, after the stages, if the host has a flow offload.
    Offloaded(TrafficLine),
    /// The flows that the host forwards by itself.
    Offload(OffloadLine),
    /// The flow offload of a port. A host without flow offload has none of these lines.
    PortOffload(PortOffloadLine),
    /// Flows that stay with the workers for a reason.
    KeptFlows(KeptFlowsLine),
    /// What happened within a moment, per second.
    Rate(RateLine),
    /// A sink of the log.
    LogSink(LogSinkLine),
    /// A setting in force, or a setting that was changed.
    Setting(SettingLine),
    /// A list of patterns that was changed.
    Patterns(PatternsLine),
    /// A named set.
    Set(SetLine),
    /// An element of a set.
    Element(ElementLine),
    /// A set that was made, changed or deleted.
    SetChanged(SetChangeLine),
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
    /// A packet that a rule tells of.
    Log(LogLine),
    /// Packets that a rule did not tell of.
    Suppressed(SuppressedLine),
    /// What `trace` or `capture` looks at, before the first packet.
    Tap(TapLine),
    /// A packet that `trace` saw.
    Traced(Box<TracedLine>),
    /// A packet that `capture` saw.
    Captured(Box<CapturedLine>),
    /// The number of events, or of packets, that were lost because this client read too slowly.
    Lost(u64),
    /// The numbers of connections whose rules were removed or replaced.
    Affected(AffectedLine),
    /// A server of a rule that balances.
    Server(ServerLine),
    /// A server whose state a command sets.
    ServerState(ServerStateLine),
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
    /// A change that waits for its confirmation.
    Unconfirmed(UnconfirmedLine),
    /// The version of the policy that was confirmed.
    Confirmed(u64),
    /// An entry of the history.
    HistoryEntry(HistoryLine),
    /// The versions that the following differences are between.
    DiffOf(DiffVersions),
    /// A line that one of two versions has and the other has not.
    Difference(DifferenceLine),
    /// The name of a port, for completion.
    PortName(String),
    /// The name of a list of patterns, for completion.
    ListName(String),
    /// The name of a set, for completion.
    SetName(String),
    /// A note, which is no error.
    Note(ErrorLine),
    /// An error of the request: nothing was changed.
    Error(ErrorLine),
    /// The end of the answer.
    End(AnswerEnd),
}

/// The command that the following lines answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
    /// `show offload`
    Offload,
    /// `show rates`
    Rates,
    /// `show log`
    Log,
    /// `show sets`
    Sets,
    /// `show set`
    Elements,
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
    /// `show servers`
    Servers,
    /// `monitor`
    Monitor,
    /// `history`
    History,
    /// `diff`
    Diff,
    /// `trace`
    Trace,
    /// `capture`
    Capture,
}

/// A rule in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RuleText {
    /// Its id.
    pub id: u32,
    /// The command that adds it, without its id.
    pub rule: String,
}

/// A table of the classifier: the rules of one packet class that fix the same bits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TableLine {
    /// The packet class, for instance `ip4`.
    pub class: String,
    /// The fields of the mask, as text.
    pub mask: String,
    /// Tuples (distinct masks of rules) in the table.
    #[serde(default)]
    pub tuples: u64,
    /// Rules in the table, each counted once for each of its keys: a set of values is several, and a rule for both IP versions has a key for each.
    pub rules: u64,
    /// Distinct keys of these rules.
    pub entries: u64,
    /// Buckets of its hash index; 0 if its rules are compared one by one.
    pub buckets: u64,
    /// The used share of the buckets' entries.
    pub load: f64,
}

/// The memory of a policy in the engine: tables and their filters, actions and counters of rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TableMemoryLine {
    /// Bytes.
    pub bytes: u64,
    /// Bytes for which the kernel is asked for huge pages.
    pub huge_bytes: u64,
    /// Bytes of all of the daemon's memory that are in huge pages; missing if the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub daemon_huge_bytes: Option<u64>,
}

/// A setting.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct SettingLine {
    /// Its name.
    pub name: String,
    /// Its value: a number, or a word.
    pub value: Value,
}

/// A list of patterns.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct VersionLine {
    /// The version of the daemon.
    pub version: String,
    /// The version of the protocol.
    pub protocol: u32,
    /// The version of the policy in force.
    #[serde(default)]
    pub policy: u64,
    /// The SIMD level of the rule lookup: `avx512`, `avx2` or `scalar`.
    #[serde(default)]
    pub instructions: String,
}

/// An error or a note, and its position.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct AnswerEnd {
    /// The protocol's version.
    pub v: u32,
    /// The request succeeded; `false`: nothing was changed, and error lines have the reasons.
    pub ok: bool,
    /// The number of added, removed and kept rules, if the request had a change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<ChangeCount>,
    /// The version of the policy that the change has made; absent if the policy is as it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
}

/// The numbers of rules that a change added, removed and kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
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
        AnswerEnd { v: VERSION, ok, change: None, version: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn decoded_lines_of_the_flow_offload_are_the_encoded_ones() {
        let hits = TrafficLine { packets: 900, bytes: 90_000 };
        let line = OffloadLine {
            setting: "auto".to_owned(),
            flows: 3,
            capacity: 1024,
            installed: 7,
            evicted: 2,
            hits,
            misses: 50,
        };
        let port = |how: Option<&str>, reason: Option<&str>| {
            let [how, reason] = [how, reason].map(|text| text.map(str::to_owned));
            Answer::PortOffload(PortOffloadLine { port: "lan".to_owned(), how, reason })
        };
        let kept =
            KeptFlowsLine { reason: "full".to_owned(), count: 4, meaning: "the table is full".to_owned() };
        let lines: [(Answer, Value); 5] = [
            (Answer::Offloaded(hits), json!({"offloaded": {"packets": 900, "bytes": 90_000}})),
            (
                Answer::Offload(line),
                json!({"offload": {
                    "setting": "auto", "flows": 3, "capacity": 1024, "installed": 7, "evicted": 2,
                    "hits": {"packets": 900, "bytes": 90_000}, "misses": 50
                }}),
            ),
            (port(Some("tcx"), None), json!({"port_offload": {"port": "lan", "how": "tcx"}})),
            (port(None, Some("no BPF")), json!({"port_offload": {"port": "lan", "reason": "no BPF"}})),
            (
                Answer::KeptFlows(kept),
                json!({"kept_flows": {"reason": "full", "count": 4, "meaning": "the table is full"}}),
            ),
        ];
        for (line, text) in lines {
            assert_eq!(serde_json::to_value(&line).expect("encodes"), text);
            assert_eq!(serde_json::from_value::<Answer>(text).expect("decodes"), line);
        }
    }
}
