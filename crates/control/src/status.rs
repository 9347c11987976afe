//! The state of the daemon as lines of answers: tables, ports, drops, stages, settings, versions. Each
//! function reads what it needs while the caller holds the daemon, and formats as little as it can.

use crate::answer::{
    Answer, Link, PortLine, ReasonLine, StageLine, TableLine, Traffic, VersionLine, WorkerLine,
};
use crate::daemon::Daemon;
use crate::language;
use crate::protocol::VERSION;
use mmb_engine::{Count, PortCount, StageCount};

pub(crate) fn ports(daemon: &Daemon) -> Vec<Answer> {
    let mut counts = daemon.engine().port_counts().into_iter();
    let disabled = &daemon.policy().disabled;
    let ports = daemon.host().ports().into_iter();
    ports
        .map(|port| {
            let PortCount { rx, tx } = counts.next().unwrap_or_default();
            Answer::Port(PortLine {
                enabled: !disabled.contains(&port.name),
                name: port.name,
                device: port.device,
                driver: port.driver,
                mac: port.mac,
                mtu: port.mtu,
                link: if port.link { Link::Up } else { Link::Down },
                peer: port.peer,
                rx: traffic(rx),
                tx: traffic(tx),
                rx_missed: port.rx_missed,
                rx_errors: port.rx_errors,
                tx_errors: port.tx_errors,
            })
        })
        .collect()
}

pub(crate) fn errors(daemon: &Daemon) -> Vec<Answer> {
    let engine = daemon.engine();
    let line = |reason: &str, count| ReasonLine { reason: reason.to_owned(), count };
    let drops = engine.drops().into_iter().map(|(reason, count)| Answer::Drop(line(reason.name(), count)));
    let others =
        engine.not_applied().into_iter().map(|(why, count)| Answer::NotApplied(line(why.name(), count)));
    drops.chain(others).collect()
}

pub(crate) fn tables(daemon: &Daemon) -> Vec<Answer> {
    let tables = daemon.engine().tables().into_iter();
    tables
        .map(|table| {
            Answer::Table(TableLine {
                class: table.class.to_string(),
                mask: table.mask,
                rules: table.rules as u64,
                entries: table.entries as u64,
                buckets: table.buckets as u64,
                load: table.load,
            })
        })
        .collect()
}

pub(crate) fn runtime(daemon: &Daemon) -> Vec<Answer> {
    let engine = daemon.engine();
    let workers = daemon.host().workers().into_iter().map(|worker| {
        let stages = engine.worker_stage_counts(usize::from(worker.worker)).into_iter().map(stage).collect();
        Answer::Worker(WorkerLine { worker: worker.worker, core: worker.core, stages })
    });
    let totals = engine.stage_counts().into_iter().map(|count| Answer::Stage(stage(count)));
    workers.chain(totals).collect()
}

pub(crate) fn settings(daemon: &Daemon) -> Vec<Answer> {
    language::settings(&daemon.policy().settings).into_iter().map(Answer::Setting).collect()
}

pub(crate) fn version() -> Answer {
    Answer::Version(VersionLine { version: env!("CARGO_PKG_VERSION").to_owned(), protocol: VERSION })
}

fn traffic(count: Count) -> Traffic {
    Traffic { packets: count.packets, bytes: count.bytes }
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
