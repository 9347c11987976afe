//! The summary of `mmb run`: packets forwarded and dropped.

use super::wiring::PortWiring;
use crate::cli::Global;
use crate::output;
use mmb_control::{Daemon, PortLosses};
use mmb_engine::{OffloadSummary, PortCount};
use serde_json::{Map, Value, json};
use std::fmt::Write;

/// Prints the counters after the packet threads have ended.
pub(super) fn print(daemon: &Daemon, wiring: &PortWiring, global: &Global) {
    let engine = daemon.engine();
    let counts = engine.port_counts();
    let losses = daemon.ports().into_iter().map(|port| port.losses);
    let names = wiring.devices.iter().map(|(name, _)| name);
    let ports = names.zip(&counts).zip(losses);
    let OffloadSummary { packets: offloaded, bytes: offloaded_bytes, .. } = engine.offload();
    if global.json {
        let port = |((name, count), losses): ((&String, &PortCount), PortLosses)| {
            json!({
                "name": name,
                "rx": { "packets": count.rx.packets, "bytes": count.rx.bytes },
                "tx": { "packets": count.tx.packets, "bytes": count.tx.bytes },
                "rx_missed": losses.rx_missed,
                "rx_errors": losses.rx_errors,
                "tx_errors": losses.tx_errors,
            })
        };
        let ports: Vec<Value> = ports.map(port).collect();
        let drops: Map<String, Value> = engine
            .drops()
            .into_iter()
            .map(|(reason, count)| (reason.name().to_owned(), count.into()))
            .collect();
        let made: Map<String, Value> = engine
            .generated()
            .into_iter()
            .map(|(kind, count)| (kind.name().to_owned(), count.into()))
            .collect();
        output::print_json(&json!({
            "ports": ports,
            "drops": drops,
            "made": made,
            "absorbed": engine.absorbed(),
            "offloaded": { "packets": offloaded, "bytes": offloaded_bytes },
        }));
        return;
    }
    for ((name, count), losses) in ports {
        let PortLosses { rx_missed, rx_errors, tx_errors } = losses;
        let mut line = format!("port {name}: received {}, sent {}", count.rx.packets, count.tx.packets);
        if losses != PortLosses::default() {
            let _ = write!(
                line,
                "; the device missed {rx_missed}, received {rx_errors} damaged, failed to send {tx_errors}"
            );
        }
        output::report_error(&line);
    }
    for (kind, count) in engine.generated() {
        output::report_error(&format!("made ({}): {count}", kind.name()));
    }
    if engine.absorbed() > 0 {
        output::report_error(&format!("absorbed: {}", engine.absorbed()));
    }
    if offloaded > 0 {
        output::report_error(&format!("offloaded: {offloaded} packets"));
    }
    for (reason, count) in engine.drops() {
        output::report_error(&format!("dropped ({}): {count}", reason.name()));
    }
}
