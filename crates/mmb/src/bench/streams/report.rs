//! The table of policies, as text and as JSON.

use super::super::measure::Measured;
use super::super::report::{BenchOutput, rounded};
use super::chain::Chain;
use super::traffic::{SEGMENT, TRAINS};
use mmb_engine::VECTOR;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The name of the row of memory.
pub(super) const IDLE: &str = "idle streams";
/// Bytes that an idle stream may take.
const IDLE_TARGET: f64 = 512.0;

/// The results.
pub(super) struct StreamReport {
    pub(super) flows: usize,
    /// Payload bytes of a round.
    pub(super) payload: usize,
    pub(super) instructions: &'static str,
    pub(super) chains: Vec<MeasuredChain>,
    pub(super) idle: Option<IdleMemory>,
}

/// The result of a policy.
pub(super) struct MeasuredChain {
    pub(super) chain: &'static Chain,
    pub(super) measured: Measured,
}

/// The memory of idle connections.
pub(super) struct IdleMemory {
    pub(super) streams: usize,
    /// Bytes of a stream beside its connection.
    pub(super) bytes: f64,
    /// Bytes of a connection that has no stream.
    pub(super) connection_bytes: f64,
}

impl MeasuredChain {
    /// Cycles of the stage that follows streams, for each packet.
    fn in_streams(&self) -> f64 {
        self.measured.stages.iter().find(|(name, _)| *name == "streams").map_or(0.0, |(_, cycles)| *cycles)
    }

    fn json(&self, payload: usize) -> Value {
        let Measured { rounds, ref stages, cycles, .. } = self.measured;
        let stages = stages
            .iter()
            .map(|(name, cycles)| json!({ "name": name, "cycles_per_packet": rounded(*cycles) }));
        json!({
            "name": self.chain.name,
            "literals": self.chain.literals,
            "rounds": rounds,
            "cycles_per_byte": to_thousandths(self.measured.cycles_per_byte(payload)),
            "target_cycles_per_byte": self.chain.target,
            "cycles_per_packet": rounded(cycles),
            "gbit_s": rounded(self.measured.gbit_s(payload)),
            "stages": stages.collect::<Vec<_>>(),
        })
    }
}

fn to_thousandths(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

impl BenchOutput for StreamReport {
    fn json(&self) -> Value {
        let idle = self.idle.as_ref().map(|IdleMemory { streams, bytes, connection_bytes }| {
            json!({
                "streams": streams,
                "bytes_per_stream": rounded(*bytes),
                "target_bytes_per_stream": IDLE_TARGET,
                "bytes_per_connection": rounded(*connection_bytes),
            })
        });
        let first = self.chains.first().map(|row| &row.measured);
        json!({
            "tsc_hz": first.map(|measured| measured.tsc_hz),
            "vector": VECTOR,
            "instructions": self.instructions,
            "flows": self.flows,
            "packets": first.map(|measured| measured.packets),
            "payload_bytes": self.payload,
            "rows": self.chains.iter().map(|row| row.json(self.payload)).collect::<Vec<_>>(),
            "idle": idle,
        })
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{} TCP connections, trains of {} segments of {SEGMENT} bytes, an acknowledgment for every two",
            self.flows, TRAINS.segments
        );
        if let Some(MeasuredChain { measured, .. }) = self.chains.first() {
            let (packets, ghz) = (measured.packets, measured.tsc_hz as f64 / 1e9);
            let _ = write!(text, "\n{packets} packets a round, vectors of {VECTOR}; cycles of {ghz:.3} GHz");
        }
        if !self.instructions.is_empty() {
            let _ = write!(text, "; {} instructions", self.instructions);
        }
        text.push_str("\nc/B: cycles for a byte of payload; targets are those with AVX-512\n");
        let heads = ["c/B", "target", "c/packet", "in streams", "Gbit/s", "rounds"];
        let _ = write!(text, "{:<38}", "");
        heads.iter().for_each(|head| text.push_str(&format!("{head:>11}")));
        text.push('\n');
        for row in &self.chains {
            let (cycles, speed) =
                (row.measured.cycles_per_byte(self.payload), row.measured.gbit_s(self.payload));
            let target = row.chain.target.map(|target| format!("{target:.2}")).unwrap_or_default();
            let Measured { cycles: all, rounds, .. } = row.measured;
            let (name, streams) = (row.chain.name, row.in_streams());
            let _ = writeln!(
                text,
                "{name:<38}{cycles:>11.3}{target:>11}{all:>11.1}{streams:>11.1}{speed:>11.1}{rounds:>11}"
            );
        }
        if let Some(IdleMemory { streams, bytes, connection_bytes }) = &self.idle {
            let _ = writeln!(
                text,
                "{streams} {IDLE}: {bytes:.0} bytes each (target {IDLE_TARGET:.0}) beside {connection_bytes:.0} of the connection"
            );
        }
        text
    }
}
