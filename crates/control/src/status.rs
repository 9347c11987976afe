//! The state of the daemon as lines of answers: tables, ports, drops, stages, settings, versions. The caller has locked the daemon, so each
//! function reads counters and formats little.

use crate::convert;
use crate::daemon::Daemon;
use crate::host::{PortLosses, PortStatus};
use crate::huge_pages;
use crate::offload;
use mmb_engine::{Count, FlowCacheCount, PortCount, StageCount, TableStats};
use mmb_language::command::Show;
use mmb_log::SinkStatus;
use mmb_protocol::VERSION;
use mmb_protocol::answer::{
    Answer, ErrorLine, FlowCacheLine, LogSinkLine, PortLine, PortLossLine, ReasonLine, StageLine,
    SummaryLine, TableLine, TrafficLine, VersionLine, WorkerLine,
};

/// A packet class with more tables than this gets a note.
const MANY_TABLES: usize = 64;
/// The cycles that a packet without a match in a table costs. Filters of few tables stay in the cache.
const TABLE_CYCLES: &str = "4 to 9";

/// Returns the answer to `show`, except what takes time: what the workers are asked for (lists of connections and servers, the numbers of streams),
/// rates and sets.
pub(crate) fn of(daemon: &Daemon, show: Show) -> Vec<Answer> {
    match show {
        Show::Tables => tables(daemon),
        Show::Ports => ports(daemon),
        Show::Errors => errors(daemon),
        Show::Runtime => runtime(daemon).into_iter().chain(unconfirmed(daemon)).collect(),
        Show::Offload => offload::lines(daemon),
        Show::Log => log_sinks(daemon),
        Show::Settings => settings(daemon),
        Show::Version => std::iter::once(version(daemon)).chain(unconfirmed(daemon)).collect(),
        Show::ConnSummary => vec![connections(daemon)],
        Show::Connections { .. } | Show::Streams { .. } | Show::StreamSummary => Vec::new(),
        Show::Rates | Show::Servers { .. } | Show::Sets => Vec::new(),
    }
}

/// Returns whether an answer has counters that lag behind until they are folded: those that the host's own forwarding adds to.
pub(crate) fn has_counters(show: Show) -> bool {
    match show {
        Show::Ports | Show::Errors | Show::Runtime | Show::Offload => true,
        Show::Tables
        | Show::Log
        | Show::Settings
        | Show::Sets
        | Show::Version
        | Show::ConnSummary
        | Show::Connections { .. }
        | Show::Streams { .. }
        | Show::StreamSummary
        | Show::Rates
        | Show::Servers { .. } => false,
    }
}

fn log_sinks(daemon: &Daemon) -> Vec<Answer> {
    let line = |SinkStatus { spec, written, queued, lost, errors, error }| {
        Answer::LogSink(LogSinkLine { log: spec, written, queued, lost, errors, error })
    };
    daemon.host().log_sinks().into_iter().map(line).collect()
}

fn ports(daemon: &Daemon) -> Vec<Answer> {
    let mut counts = daemon.engine().port_counts().into_iter();
    let ports = daemon.ports().into_iter();
    ports
        .map(|port| {
            let PortCount { rx, tx } = counts.next().unwrap_or_default();
            Answer::Port(PortLine {
                enabled: daemon.is_enabled(daemon.policy(), &port.name),
                name: port.name,
                device: port.device,
                driver: port.driver,
                mac: port.mac,
                mtu: port.mtu,
                link: port.link,
                peer: port.peer,
                rx: traffic(rx),
                tx: traffic(tx),
                rx_missed: port.losses.rx_missed,
                rx_errors: port.losses.rx_errors,
                tx_errors: port.losses.tx_errors,
            })
        })
        .collect()
}

fn errors(daemon: &Daemon) -> Vec<Answer> {
    let engine = daemon.engine();
    let line = |reason: &str, count| ReasonLine { reason: reason.to_owned(), count };
    let drops = engine.drops().into_iter().map(|(reason, count)| Answer::Drop(line(reason.name(), count)));
    let made = engine.generated().into_iter().map(|(kind, count)| Answer::Made(line(kind.name(), count)));
    let absorbed = Some(engine.absorbed()).filter(|count| *count > 0).map(Answer::Absorbed);
    let others =
        engine.not_applied().into_iter().map(|(why, count)| Answer::NotApplied(line(why.name(), count)));
    let lossy = daemon.ports().into_iter().filter(|port| port.losses != PortLosses::default());
    let losses = lossy.map(|PortStatus { name, losses, .. }| {
        let PortLosses { rx_missed, rx_errors, tx_errors } = losses;
        Answer::PortLoss(PortLossLine { port: name, rx_missed, rx_errors, tx_errors })
    });
    drops.chain(made).chain(absorbed).chain(others).chain(losses).collect()
}

fn tables(daemon: &Daemon) -> Vec<Answer> {
    let tables = daemon.engine().tables();
    let notes = notes(&tables).into_iter().map(Answer::Note);
    let line = |table: &TableStats| {
        Answer::Table(TableLine {
            class: table.class.name().to_owned(),
            mask: table.mask.clone(),
            tuples: table.tuples as u64,
            rules: table.rules as u64,
            entries: table.entries as u64,
            buckets: table.buckets as u64,
            load: table.load,
        })
    };
    let memory = std::iter::once(Answer::TableMemory(huge_pages::table_memory()));
    tables.iter().map(line).chain(memory).chain(notes).collect()
}

/// Returns notes about packet classes with very many tables.
fn notes(tables: &[TableStats]) -> Vec<ErrorLine> {
    let note = |class: &[TableStats]| {
        let looked_up = class.iter().filter(|table| table.buckets > 0).count();
        (looked_up > MANY_TABLES).then(|| {
            ErrorLine::new(format!(
                "{}: each packet is looked up in {looked_up} tables, at {TABLE_CYCLES} cycles each; fewer \
                 combinations of fields and prefix lengths in rules would make fewer tables",
                class[0].class.name()
            ))
        })
    };
    tables.chunk_by(|a, b| a.class == b.class).filter_map(note).collect()
}

fn runtime(daemon: &Daemon) -> Vec<Answer> {
    let engine = daemon.engine();
    let workers = daemon.host().workers().into_iter().map(|worker| {
        let stages = engine.worker_stage_counts(usize::from(worker.worker)).into_iter().map(stage).collect();
        let flow_cache = flow_cache(engine.worker_flow_cache_count(usize::from(worker.worker)));
        Answer::Worker(WorkerLine { worker: worker.worker, core: worker.core, stages, flow_cache })
    });
    let totals = engine.stage_counts().into_iter().map(|count| Answer::Stage(stage(count)));
    let caches = Answer::FlowCache(flow_cache(engine.flow_cache_count()));
    let offloaded = offload::forwarded(daemon).map(|count| Answer::Offloaded(traffic(count)));
    workers.chain(totals).chain([caches]).chain(offloaded).collect()
}

fn settings(daemon: &Daemon) -> Vec<Answer> {
    convert::settings(&daemon.policy().settings).into_iter().map(Answer::Setting).collect()
}

/// Drop reasons of connections begin with one of these.
const REFUSALS: [&str; 4] = ["conn-", "lb-", "nat-", "fragment-"];

fn connections(daemon: &Daemon) -> Answer {
    let summary = daemon.engine().connections().summary();
    let map = |counts: &mut dyn Iterator<Item = (&'static str, u64)>| {
        counts.map(|(reason, count)| (reason.to_owned(), count.into())).collect()
    };
    let drops = daemon.engine().drops().into_iter().map(|(reason, count)| (reason.name(), count));
    let mut refused = drops.filter(|(reason, _)| REFUSALS.iter().any(|begin| reason.starts_with(begin)));
    Answer::Summary(SummaryLine {
        connections: summary.connections,
        half_open: summary.half_open,
        max: summary.max,
        created: summary.created,
        closed: map(&mut summary.closed.into_iter()),
        refused: map(&mut refused),
        invalid: map(&mut summary.invalid.into_iter()),
        events_lost: summary.events_lost,
        handed: summary.handed,
        held: summary.held,
    })
}

fn unconfirmed(daemon: &Daemon) -> Option<Answer> {
    daemon.unconfirmed().map(Answer::Unconfirmed)
}

fn version(daemon: &Daemon) -> Answer {
    Answer::Version(VersionLine {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: VERSION,
        policy: daemon.version(),
        instructions: daemon.engine().instructions().to_owned(),
    })
}

pub(crate) fn traffic(count: Count) -> TrafficLine {
    TrafficLine { packets: count.packets, bytes: count.bytes }
}

fn flow_cache(count: FlowCacheCount) -> FlowCacheLine {
    let bypassed = count.bypasses().map(|(reason, packets)| (reason.to_owned(), packets)).collect();
    FlowCacheLine { hits: count.hits, misses: count.misses, bypassed }
}

fn stage(count: StageCount) -> StageLine {
    let per =
        |sum: u64, of: u64| if of == 0 { 0.0 } else { (sum as f64 / of as f64 * 100.0).round() / 100.0 };
    StageLine {
        name: count.name.to_owned(),
        calls: count.calls,
        vectors: count.vectors,
        packets: count.packets,
        packets_per_vector: per(count.packets, count.vectors),
        cycles_per_packet: per(count.cycles, count.packets),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_packet::Class;

    #[test]
    fn very_many_tables_of_a_class_get_a_note() {
        let table = |class, buckets| TableStats {
            class,
            mask: String::new(),
            tuples: 1,
            rules: 1,
            entries: 1,
            buckets,
            load: 0.5,
        };
        let tables = |ip4, rows, ip6| {
            let ip4 = vec![table(Class::Ip4, 16); ip4];
            [ip4, vec![table(Class::Ip4, 0); rows], vec![table(Class::Ip6, 16); ip6]].concat()
        };
        assert_eq!(notes(&[]), []);
        // Rules that are compared one by one are in no table that is looked up.
        assert_eq!(notes(&tables(64, 100, 64)), []);
        let [note] = &notes(&tables(3, 0, 65))[..] else { panic!("one class has many") };
        assert!(note.message.starts_with("ip6: each packet is looked up in 65 tables"), "{note:?}");
        assert_eq!(notes(&tables(65, 1, 70)).len(), 2);
    }
}
