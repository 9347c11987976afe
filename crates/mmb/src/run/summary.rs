//! The summary of `mmb run`: packets forwarded and dropped.

use super::wiring::PortWiring;
use crate::cli::Global;
use crate::output;
use mmb_control::Daemon;
use serde_json::{Map, Value, json};

/// Prints the counters after the packet threads have ended.
pub(super) fn print(daemon: &Daemon, wiring: &PortWiring, global: &Global) {
    let engine = daemon.engine();
    let counts = engine.port_counts();
    let names = wiring.devices.iter().map(|(name, _)| name);
    if global.json {
        let port = |(name, count): (&String, &mmb_engine::PortCount)| {
            json!({
                "name": name,
                "rx": { "packets": count.rx.packets, "bytes": count.rx.bytes },
                "tx": { "packets": count.tx.packets, "bytes": count.tx.bytes },
            })
        };
        let ports: Vec<Value> = names.zip(&counts).map(port).collect();
        let drops: Map<String, Value> = engine
            .drops()
            .into_iter()
            .map(|(reason, count)| (reason.name().to_owned(), count.into()))
            .collect();
        output::print_json(&json!({ "ports": ports, "drops": drops }));
        return;
    }
    for (name, count) in names.zip(&counts) {
        output::report_error(&format!(
            "port {name}: received {}, sent {}",
            count.rx.packets, count.tx.packets
        ));
    }
    for (reason, count) in engine.drops() {
        output::report_error(&format!("dropped ({}): {count}", reason.name()));
    }
}
