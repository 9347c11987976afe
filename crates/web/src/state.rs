//! The counters of a daemon at one moment, from one request.

use crate::daemon::Reply;
use mmb_engine::DropReason;
use mmb_protocol::answer::{
    Answer, FlowCacheLine, KeptFlowsLine, OffloadLine, PortLine, PortLossLine, PortOffloadLine, ReasonLine,
    StageLine, SummaryLine, TrafficLine, UnconfirmedLine, VersionLine, WorkerLine,
};
use serde::Serialize;

/// The commands whose answers make a [`State`].
pub(crate) const COMMANDS: [&str; 6] =
    ["show version", "show ports", "show runtime", "show errors", "show conn summary", "show offload"];

/// Ports, workers and all counters but those of rules.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
pub(crate) struct State {
    /// The versions of the daemon and of the protocol.
    pub(crate) version: Option<VersionLine>,
    /// The change that waits for its confirmation, if there is one.
    pub(crate) unconfirmed: Option<UnconfirmedLine>,
    /// Milliseconds on a clock that begins with this program, of when this was read: for rates.
    pub(crate) time_ms: u64,
    /// The ports and their counters.
    pub(crate) ports: Vec<PortLine>,
    /// The packet threads and their stages.
    pub(crate) workers: Vec<WorkerLine>,
    /// The stages, over all workers.
    pub(crate) stages: Vec<StageLine>,
    /// The flow caches of all workers.
    pub(crate) flow_cache: Option<FlowCacheLine>,
    /// Dropped packets by reason, those above zero.
    pub(crate) drops: Vec<DropCount>,
    /// Packets that mmb made.
    pub(crate) made: Vec<ReasonLine>,
    /// Packets that were absorbed.
    pub(crate) absorbed: u64,
    /// Targets that were not applied.
    pub(crate) not_applied: Vec<ReasonLine>,
    /// Packets that devices lost.
    pub(crate) port_losses: Vec<PortLossLine>,
    /// The totals of all connections.
    pub(crate) connections: Option<SummaryLine>,
    /// What the host forwarded by itself, if it has a flow offload.
    pub(crate) offloaded: Option<TrafficLine>,
    /// The flows that the host forwards by itself.
    pub(crate) offload: Option<OffloadLine>,
    /// Where the ports have the programs of the flow offload.
    pub(crate) port_offload: Vec<PortOffloadLine>,
    /// Flows that stay with the workers, by reason.
    pub(crate) kept_flows: Vec<KeptFlowsLine>,
}

/// Packets that were dropped for a reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub(crate) struct DropCount {
    /// The reason's name.
    pub(crate) reason: String,
    /// Packets.
    pub(crate) count: u64,
    /// What the reason means; empty if only a newer version knows it.
    pub(crate) meaning: &'static str,
    /// What helps; may be empty.
    pub(crate) remedy: &'static str,
}

impl State {
    /// The state in the answer to [`COMMANDS`].
    pub(crate) fn new(reply: Reply, time_ms: u64) -> State {
        let mut state = State { time_ms, ..State::default() };
        for line in reply.lines {
            state.take(line);
        }
        state
    }

    fn take(&mut self, line: Answer) {
        match line {
            Answer::Version(line) => self.version = Some(line),
            Answer::Unconfirmed(line) => self.unconfirmed = Some(line),
            Answer::Port(line) => self.ports.push(line),
            Answer::Worker(line) => self.workers.push(line),
            Answer::Stage(line) => self.stages.push(line),
            Answer::FlowCache(line) => self.flow_cache = Some(line),
            Answer::Offloaded(line) => self.offloaded = Some(line),
            Answer::Drop(line) if line.count > 0 => self.drops.push(DropCount::new(line)),
            Answer::Made(line) => self.made.push(line),
            Answer::Absorbed(count) => self.absorbed = count,
            Answer::NotApplied(line) => self.not_applied.push(line),
            Answer::PortLoss(line) => self.port_losses.push(line),
            Answer::Summary(line) => self.connections = Some(line),
            Answer::Offload(line) => self.offload = Some(line),
            Answer::PortOffload(line) => self.port_offload.push(line),
            Answer::KeptFlows(line) => self.kept_flows.push(line),
            // Other lines of these commands are for people: notes, and the begin of each answer.
            _ => {}
        }
    }
}

impl DropCount {
    fn new(line: ReasonLine) -> DropCount {
        let known = DropReason::ALL.iter().find(|reason| reason.name() == line.reason);
        let (meaning, remedy) = known.map_or(("", ""), |reason| reason.explanation());
        DropCount { reason: line.reason, count: line.count, meaning, remedy }
    }
}
