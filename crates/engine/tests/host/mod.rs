//! A host for tests: hands frames to a worker and keeps what it gives back.

#![allow(dead_code, reason = "each test program uses a part")]

use mmb_engine::{Engine, NoCycles, PortSpec, PortTable, Verdict, Worker};
use mmb_packet::{LinkType, Packet, PortId};
use mmb_policy::Policy;

/// Ports `a` and `b`, a wire without an MTU; `c`, without a wire; `d`, whose wire leads to `b`, but not back.
pub(crate) fn ports() -> PortTable {
    let port = |name: &str, mtu, peer| PortSpec { name: name.to_owned(), mtu, peer };
    PortTable(vec![
        port("a", None, Some(PortId(1))),
        port("b", Some(100), Some(PortId(0))),
        port("c", None, None),
        port("d", None, Some(PortId(1))),
    ])
}

/// The policy that a text is.
pub(crate) fn policy(text: &str) -> Policy {
    match Policy::parse(text) {
        Ok((policy, _)) => policy,
        Err(errors) => panic!("{text}: {errors:?}"),
    }
}

/// An engine under a policy, with one worker.
pub(crate) fn engine(text: &str) -> (Engine, Worker) {
    let (mut engine, mut workers) = Engine::new(ports(), 1, 1);
    engine.publish(&policy(text)).expect("the policy can be put in force");
    (engine, workers.remove(0))
}

/// Takes frames that come in by `port` through a worker in one call; returns what becomes of each, with its bytes.
pub(crate) fn pass(worker: &mut Worker, port: u16, frames: &[Vec<u8>]) -> Vec<(Verdict, Vec<u8>)> {
    const HEADROOM: usize = 64;
    let mut buffers: Vec<Vec<u8>> = frames.iter().map(|frame| [&[0; HEADROOM][..], frame].concat()).collect();
    let mut packets: Vec<Packet<'_>> = buffers
        .iter_mut()
        .zip(frames)
        .filter_map(|(buffer, frame)| {
            Packet::new(buffer, HEADROOM, frame.len(), PortId(port), LinkType::Ethernet)
        })
        .collect();
    let mut verdicts = vec![Verdict::Send(PortId(u16::MAX)); packets.len()];
    worker.process(0, &NoCycles, &mut packets, &mut verdicts);
    verdicts.into_iter().zip(&packets).map(|(verdict, packet)| (verdict, packet.bytes().to_vec())).collect()
}
