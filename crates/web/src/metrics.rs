//! The counters for Prometheus, in the text format of OpenMetrics.
//!
//! Names follow the conventions of Prometheus: base units, `_total` for counters, a label for what differs within one name. The number of
//! series is bounded: ports, workers, reasons and kinds are few, and of rules only the first ones with a name have series.

use crate::rules::{self, RuleList};
use crate::state::State;
use mmb_engine::{CloseReason, DropReason, GeneratedKind, Invalid, NotApplied};
use mmb_protocol::answer::{LinkLine, PortLine, SummaryLine};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// The media type of the text.
pub(crate) const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Labels of a series.
type Labels = Vec<(&'static str, String)>;

/// A metric and its series.
#[derive(Debug)]
struct Metric {
    /// Without `mmb_`, the unit and `_total`.
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    series: Series,
}

#[derive(Debug)]
enum Series {
    Counter(Vec<(Labels, u64)>),
    Gauge(Vec<(Labels, f64)>),
}

/// All metrics of one scrape.
#[derive(Debug)]
struct Scrape {
    build: Vec<(&'static str, String)>,
    metrics: Vec<Metric>,
}

/// The metrics of a state and of the first `max_rules` rules with a name; of `None`, that no daemon answers.
pub(crate) fn text(state: Option<&State>, list: Option<&RuleList>, max_rules: usize) -> String {
    let up = gauge(
        "up",
        "1: the daemon answers, 0: it does not, and there are no other metrics",
        vec![(Vec::new(), if state.is_some() { 1.0 } else { 0.0 })],
    );
    let mut metrics = vec![up];
    let mut build = Vec::new();
    if let Some(state) = state {
        build = version(state);
        metrics.extend(of_ports(&state.ports));
        metrics.extend(of_packets(state));
        metrics.extend(of_workers(state));
        metrics.extend(state.connections.iter().flat_map(of_connections));
        metrics.extend(of_offload(state));
    }
    if let Some(list) = list {
        metrics.extend(of_rules(list, max_rules));
    }
    let mut registry = Registry::with_prefix("mmb");
    registry.register_collector(Box::new(Scrape { build, metrics }));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, &registry);
    text
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        if !self.build.is_empty() {
            let info = Info::new(self.build.clone());
            let help = "The version of the daemon, of its protocol, and the SIMD level of its rule lookup";
            let metric = encoder.encode_descriptor("build", help, None, info.metric_type())?;
            info.encode(metric)?;
        }
        self.metrics.iter().try_for_each(|metric| metric.encode(&mut encoder))
    }
}

impl Metric {
    /// Writes the metric, unless it has no series.
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        match &self.series {
            Series::Counter(series) => self.encode_as(encoder, series, |count| ConstCounter::new(*count)),
            Series::Gauge(series) => self.encode_as(encoder, series, |value| ConstGauge::new(*value)),
        }
    }

    fn encode_as<T, M: EncodeMetric>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        series: &[(Labels, T)],
        metric: impl Fn(&T) -> M,
    ) -> fmt::Result {
        let Some((_, first)) = series.first() else { return Ok(()) };
        let kind = metric(first).metric_type();
        let mut family = encoder.encode_descriptor(self.name, self.help, self.unit.as_ref(), kind)?;
        for (labels, value) in series {
            metric(value).encode(family.encode_family(labels)?)?;
        }
        Ok(())
    }
}

fn counter(name: &'static str, help: &'static str, series: Vec<(Labels, u64)>) -> Metric {
    Metric { name, help, unit: None, series: Series::Counter(series) }
}

fn gauge(name: &'static str, help: &'static str, series: Vec<(Labels, f64)>) -> Metric {
    Metric { name, help, unit: None, series: Series::Gauge(series) }
}

fn bytes(metric: Metric) -> Metric {
    Metric { unit: Some(Unit::Bytes), ..metric }
}

/// The series of a metric without labels.
fn one(value: u64) -> Vec<(Labels, u64)> {
    vec![(Vec::new(), value)]
}

/// A series for each name that there is, so that also the first event is a difference, and for others that were counted.
fn by<'c>(
    label: &'static str,
    names: impl Iterator<Item = &'static str>,
    counts: impl Iterator<Item = (&'c str, u64)>,
) -> Vec<(Labels, u64)> {
    let mut series: BTreeMap<&str, u64> = names.map(|name| (name, 0)).collect();
    series.extend(counts);
    series.into_iter().map(|(name, count)| (vec![(label, name.to_owned())], count)).collect()
}

/// The counts of an object.
fn counts_of(object: &Map<String, Value>) -> impl Iterator<Item = (&str, u64)> {
    object.iter().map(|(name, count)| (name.as_str(), count.as_u64().unwrap_or_default()))
}

fn version(state: &State) -> Vec<(&'static str, String)> {
    let Some(version) = &state.version else { return Vec::new() };
    vec![
        ("version", version.version.clone()),
        ("protocol", version.protocol.to_string()),
        ("instructions", version.instructions.clone()),
    ]
}

fn of_ports(ports: &[PortLine]) -> Vec<Metric> {
    let each = |value: fn(&PortLine) -> u64| -> Vec<(Labels, u64)> {
        ports.iter().map(|port| (vec![("port", port.name.clone())], value(port))).collect()
    };
    let state = |value: fn(&PortLine) -> u64| -> Vec<(Labels, f64)> {
        each(value).into_iter().map(|(labels, value)| (labels, value as f64)).collect()
    };
    let losses = ports.iter().flat_map(|port| {
        let kinds =
            [("rx-missed", port.rx_missed), ("rx-errors", port.rx_errors), ("tx-errors", port.tx_errors)];
        kinds.map(|(kind, count)| (vec![("port", port.name.clone()), ("kind", kind.to_owned())], count))
    });
    vec![
        gauge("port_up", "1: the link of the port is up", state(|port| (port.link == LinkLine::Up).into())),
        gauge("port_enabled", "1: rules apply to the packets of the port", state(|port| port.enabled.into())),
        bytes(gauge(
            "port_mtu",
            "The largest IP packet that may leave by the port",
            state(|port| port.mtu.into()),
        )),
        counter("packets_received", "Packets that arrived at the port", each(|port| port.rx.packets)),
        bytes(counter("received", "Bytes of packets that arrived at the port", each(|port| port.rx.bytes))),
        counter("packets_sent", "Packets that left by the port", each(|port| port.tx.packets)),
        bytes(counter("sent", "Bytes of packets that left by the port", each(|port| port.tx.bytes))),
        counter(
            "packets_lost",
            "Packets that the device of the port lost: no room on receipt, damaged on receipt, failed to send",
            losses.collect(),
        ),
    ]
}

fn of_packets(state: &State) -> Vec<Metric> {
    let drops = state.drops.iter().map(|drop| (drop.reason.as_str(), drop.count));
    let made = state.made.iter().map(|line| (line.reason.as_str(), line.count));
    let not_applied = state.not_applied.iter().map(|line| (line.reason.as_str(), line.count));
    vec![
        counter(
            "drops",
            "Packets that were dropped, by drop reason",
            by("reason", DropReason::ALL.iter().map(|reason| reason.name()), drops),
        ),
        counter(
            "packets_made",
            "Packets that mmb made",
            by("kind", GeneratedKind::ALL.iter().map(|kind| kind.name()), made),
        ),
        counter(
            "packets_absorbed",
            "Packets whose bytes live on in the streams of their connections",
            one(state.absorbed),
        ),
        counter(
            "targets_not_applied",
            "Targets that could not be applied to a packet",
            by("reason", NotApplied::ALL.iter().map(|reason| reason.name()), not_applied),
        ),
    ]
}

fn of_workers(state: &State) -> Vec<Metric> {
    let mut series = [const { Vec::new() }; 3];
    for worker in &state.workers {
        for stage in &worker.stages {
            let labels = vec![("worker", worker.worker.to_string()), ("stage", stage.name.clone())];
            for (series, count) in series.iter_mut().zip([stage.calls, stage.vectors, stage.packets]) {
                series.push((labels.clone(), count));
            }
        }
    }
    let [calls, vectors, packets] = series;
    let cycles =
        state.stages.iter().map(|stage| (vec![("stage", stage.name.clone())], stage.cycles_per_packet));
    let mut metrics = vec![
        counter("worker_calls", "Calls of a stage of a worker", calls),
        counter("worker_busy_calls", "Calls of a stage of a worker that had packets", vectors),
        counter("worker_packets", "Packets that a stage of a worker processed", packets),
        gauge(
            "stage_cycles_per_packet",
            "Cycles of the processor that a packet took in a stage, on average since the counters were cleared",
            cycles.collect(),
        ),
    ];
    if let Some(cache) = &state.flow_cache {
        let bypassed = cache.bypassed.values().sum();
        let results = [("hit", cache.hits), ("miss", cache.misses), ("bypass", bypassed)];
        metrics.push(counter(
            "flow_cache_packets",
            "Packets by what the flow cache did for them",
            results.map(|(result, count)| (vec![("result", result.to_owned())], count)).into(),
        ));
    }
    metrics
}

fn of_connections(line: &SummaryLine) -> Vec<Metric> {
    let now = |value: u64| vec![(Vec::new(), value as f64)];
    vec![
        gauge("connections", "Connections that exist", now(line.connections)),
        gauge("connections_half_open", "Connections without an answer of the responder", now(line.half_open)),
        gauge("connections_max", "The limit of connections", now(line.max)),
        counter("connections_made", "Connections that were made", one(line.created)),
        counter(
            "connections_ended",
            "Connections that ended, by reason",
            by("reason", CloseReason::ALL.iter().map(|reason| reason.name()), counts_of(&line.closed)),
        ),
        counter(
            "packets_invalid",
            "Packets that were invalid for their connection, by kind",
            by("kind", Invalid::ALL.iter().map(|kind| kind.name()), counts_of(&line.invalid)),
        ),
        counter(
            "packets_handed_over",
            "Packets that arrived at another worker than their connection's",
            one(line.handed),
        ),
        counter(
            "connection_events_lost",
            "Events that were lost because a client of monitor read too slowly",
            one(line.events_lost),
        ),
        gauge("fragments_held", "Fragments that wait for the first one of their datagram", now(line.held)),
    ]
}

fn of_offload(state: &State) -> Vec<Metric> {
    let Some(offload) = &state.offload else { return Vec::new() };
    let now = |value: u64| vec![(Vec::new(), value as f64)];
    let kept = state.kept_flows.iter().map(|line| (vec![("reason", line.reason.clone())], line.count));
    vec![
        gauge("offload_flows", "Flows that the host forwards by itself", now(offload.flows)),
        gauge("offload_flows_max", "The most flows that the host forwards by itself", now(offload.capacity)),
        counter("offload_flows_installed", "Flows that were given to the host", one(offload.installed)),
        counter("offload_flows_evicted", "Flows whose places were given to others", one(offload.evicted)),
        counter(
            "offload_packets",
            "Packets that the host forwarded or dropped by itself",
            one(offload.hits.packets),
        ),
        bytes(counter(
            "offload",
            "Bytes that the host forwarded or dropped by itself",
            one(offload.hits.bytes),
        )),
        counter(
            "offload_missed_packets",
            "Packets that came to the workers by ports with the offload",
            one(offload.misses),
        ),
        counter(
            "offload_flows_kept",
            "Flows that were to be given to the host and stayed, by reason",
            kept.collect(),
        ),
    ]
}

fn of_rules(list: &RuleList, max: usize) -> Vec<Metric> {
    let named = list.rules.iter().filter_map(|rule| Some((rule, rules::name(&rule.rule)?)));
    let mut series = [const { Vec::new() }; 3];
    for (rule, name) in named.take(max) {
        let labels = vec![("rule", rule.id.to_string()), ("name", name.to_owned())];
        let counts = [rule.packets, rule.bytes, rule.dropped_packets].map(Option::unwrap_or_default);
        for (series, count) in series.iter_mut().zip(counts) {
            series.push((labels.clone(), count));
        }
    }
    let [packets, rule_bytes, dropped] = series;
    vec![
        gauge("rules", "Rules in force", vec![(Vec::new(), list.rules.len() as f64)]),
        counter("rule_packets", "Packets that a rule with a name matched", packets),
        bytes(counter("rule", "Bytes of packets that a rule with a name matched", rule_bytes)),
        counter("rule_dropped_packets", "Packets that a rule with a name dropped", dropped),
    ]
}
