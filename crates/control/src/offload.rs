//! The answer to `show offload`: flows that the host forwards by itself, the state of its ports, and why other flows stay with the workers.

use crate::daemon::Daemon;
use crate::host::PortOffload;
use mmb_engine::{Count, OffloadSummary};
use mmb_protocol::answer::{Answer, KeptFlowsLine, OffloadLine, PortOffloadLine, TrafficLine};

/// Returns the answer to `show offload`.
pub(crate) fn lines(daemon: &Daemon) -> Vec<Answer> {
    let engine = daemon.engine();
    let setting = daemon.policy().settings.all().find(|setting| setting.info().name == "offload");
    let setting = setting.map(|setting| setting.value()).unwrap_or_default();
    answer(setting, &engine.offload(), daemon.host().offload())
}

/// Returns the packets that the host forwarded by itself, if one of its ports has the offload, or has had it.
pub(crate) fn forwarded(daemon: &Daemon) -> Option<Count> {
    let OffloadSummary { packets, bytes, .. } = daemon.engine().offload();
    let is_there = packets > 0 || daemon.host().offload().iter().any(|port| port.state.is_ok());
    is_there.then_some(Count { packets, bytes })
}

/// Makes the lines of these numbers.
fn answer(setting: String, summary: &OffloadSummary, ports: Vec<PortOffload>) -> Vec<Answer> {
    let OffloadSummary { flows, capacity, installed, evicted, packets, bytes, missed, ref not_offloaded } =
        *summary;
    let line = OffloadLine {
        setting,
        flows,
        capacity,
        installed,
        evicted,
        hits: TrafficLine { packets, bytes },
        misses: missed,
    };
    let ports = ports.into_iter().map(|PortOffload { port, state }| {
        let (how, reason) = match state {
            Ok(how) => (Some(how), None),
            Err(reason) => (None, Some(reason)),
        };
        Answer::PortOffload(PortOffloadLine { port, how, reason })
    });
    let kept = not_offloaded.iter().map(|(reason, count)| {
        Answer::KeptFlows(KeptFlowsLine {
            reason: reason.name().to_owned(),
            count: *count,
            meaning: reason.meaning().to_owned(),
        })
    });
    std::iter::once(Answer::Offload(line)).chain(ports).chain(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mmb_engine::NotOffloadedReason;

    fn port(port: &str, state: Result<&str, &str>) -> PortOffload {
        PortOffload {
            port: port.to_owned(),
            state: state.map(str::to_owned).map_err(|reason| reason.to_owned()),
        }
    }

    fn summary() -> OffloadSummary {
        OffloadSummary {
            flows: 3,
            capacity: 1024,
            installed: 7,
            evicted: 2,
            packets: 900,
            bytes: 90_000,
            missed: 50,
            not_offloaded: vec![(NotOffloadedReason::Stream, 4), (NotOffloadedReason::Full, 1)],
        }
    }

    #[test]
    fn every_number_port_and_reason_has_its_place() {
        let ports = vec![port("lan", Ok("clsact")), port("wan", Err("no privileges"))];
        let answers = answer("off".to_owned(), &summary(), ports);
        let port = |port: &str, how: Option<&str>, reason: Option<&str>| {
            let [how, reason] = [how, reason].map(|text| text.map(str::to_owned));
            Answer::PortOffload(PortOffloadLine { port: port.to_owned(), how, reason })
        };
        let kept = |reason: NotOffloadedReason, count| {
            let (reason, meaning) = (reason.name().to_owned(), reason.meaning().to_owned());
            Answer::KeptFlows(KeptFlowsLine { reason, count, meaning })
        };
        let line = OffloadLine {
            setting: "off".to_owned(),
            flows: 3,
            capacity: 1024,
            installed: 7,
            evicted: 2,
            hits: TrafficLine { packets: 900, bytes: 90_000 },
            misses: 50,
        };
        assert_eq!(
            answers,
            [
                Answer::Offload(line),
                port("lan", Some("clsact"), None),
                port("wan", None, Some("no privileges")),
                kept(NotOffloadedReason::Stream, 4),
                kept(NotOffloadedReason::Full, 1),
            ]
        );
    }
}
