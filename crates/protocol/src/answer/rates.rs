//! The lines of `show rates`: what happened within a moment, per second.

use super::connections::ConnectionLine;
use serde::{Deserialize, Serialize};

/// One line of `show rates`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RateLine {
    /// The moment, and connections as a whole; the first line.
    Moment(MomentLine),
    /// A port.
    Port(PortRate),
    /// A packet thread.
    Worker(WorkerRate),
    /// A reason for drops that occurred.
    Drop(DropRate),
    /// A rule that matched packets, of those that matched the most.
    Rule(RuleRate),
    /// A connection that had packets, of those that had the most.
    Connection(Box<ConnectionRate>),
}

/// Traffic per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct Rate {
    /// Packets per second.
    pub packets_per_s: f64,
    /// Bytes per second, link headers included.
    pub bytes_per_s: f64,
}

/// The moment that the rates are about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct MomentLine {
    /// Its length in seconds.
    pub seconds: f64,
    /// Connections at its end.
    pub connections: u64,
    /// Connections made per second.
    pub made_per_s: f64,
    /// Connections ended per second.
    pub ended_per_s: f64,
    /// There are too many connections to compare them one by one: none is listed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub too_many_connections: bool,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct PortRate {
    /// Its name in rules.
    pub name: String,
    /// Received.
    pub rx: Rate,
    /// Sent.
    pub tx: Rate,
}

/// A packet thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct WorkerRate {
    /// Its number.
    pub worker: u16,
    /// The core that it is pinned to.
    pub core: Option<u32>,
    /// Packets per second that it parsed.
    pub packets_per_s: f64,
    /// The share of its time that the stages took, 0 to 1; missing on hosts that do not measure it. Receiving and sending are not part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<f64>,
}

/// Drops for a reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct DropRate {
    /// The reason's name.
    pub reason: String,
    /// Packets per second.
    pub packets_per_s: f64,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RuleRate {
    /// Its id.
    pub id: u32,
    /// The command that adds it, without its id.
    pub rule: String,
    /// What it matched.
    pub matched: Rate,
    /// Of these, the packets per second that it dropped.
    pub dropped_per_s: f64,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct ConnectionRate {
    /// The initiator's packets.
    pub forward: Rate,
    /// The responder's packets.
    pub reply: Rate,
    /// The connection at the end of the moment.
    pub connection: ConnectionLine,
}

/// All lines of an answer to `show rates`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct RateLines {
    /// The moment.
    #[serde(flatten)]
    pub moment: MomentLine,
    /// The ports, by number.
    pub ports: Vec<PortRate>,
    /// The packet threads, by number.
    pub workers: Vec<WorkerRate>,
    /// Reasons for drops, the most frequent first.
    pub drops: Vec<DropRate>,
    /// Rules, those that matched the most packets first.
    pub rules: Vec<RuleRate>,
    /// Connections, those with the most bytes first.
    pub top_connections: Vec<ConnectionRate>,
}

impl RateLines {
    /// Adds a line.
    pub fn add(&mut self, line: RateLine) {
        match line {
            RateLine::Moment(line) => self.moment = line,
            RateLine::Port(line) => self.ports.push(line),
            RateLine::Worker(line) => self.workers.push(line),
            RateLine::Drop(line) => self.drops.push(line),
            RateLine::Rule(line) => self.rules.push(line),
            RateLine::Connection(line) => self.top_connections.push(*line),
        }
    }
}
