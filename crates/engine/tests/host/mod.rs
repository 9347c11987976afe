//! A host for tests: hands frames to a worker and keeps what it gives back.

#![allow(dead_code, reason = "each test program uses a part")]

use mmb_engine::{
    ConnectionInfo, Connections, DropReason, Engine, Forward, NoCycles, PortSpec, PortTable, Verdict, Worker,
};
use mmb_packet::{LinkType, Packet, PortId};
use mmb_policy::{ConnectionFilter, Policy};
use mmb_random::SeedTree;

/// Ports `a` and `b`, a wire without an MTU; `c`, without a wire; `d`, whose wire leads to `b`, but not back.
pub(crate) fn ports() -> PortTable {
    let port = |name: &str, mtu, peer| PortSpec { name: name.to_owned(), mtu, forward: Forward::from(peer) };
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
    let (mut engine, mut workers) = Engine::new(ports(), 1, &SeedTree::repeatable(1));
    engine.publish(&policy(text)).expect("the policy can be put in force");
    (engine, workers.remove(0))
}

/// Takes frames that come in by `port` through a worker in one call; returns what becomes of each, with its bytes.
pub(crate) fn pass(worker: &mut Worker, port: u16, frames: &[Vec<u8>]) -> Vec<(Verdict, Vec<u8>)> {
    process(port, frames, |packets, verdicts| worker.process(0, &NoCycles, packets, verdicts))
}

/// Takes frames that come in by `port` at the first of the workers to where they belong, and then what they released; returns what
/// becomes of each, in this order.
pub(crate) fn pass_among(
    workers: &mut [Worker],
    (first, now_ms): (usize, u64),
    port: u16,
    frames: &[Vec<u8>],
) -> Vec<(Verdict, Vec<u8>)> {
    let now_ns = now_ms * 1_000_000;
    let came = process(port, frames, |packets, verdicts| {
        workers[first].process(now_ns, &NoCycles, packets, verdicts);
    });
    let mut passed: Vec<_> =
        came.into_iter().map(|came| hand_on(workers, (first, now_ns), port, came)).collect();
    for worker in 0..workers.len() {
        for (port, frame) in released(&mut workers[worker]) {
            let again = process(port, &[frame], |packets, verdicts| {
                workers[worker].process_released(now_ns, &NoCycles, packets, verdicts);
            });
            passed.extend(again.into_iter().map(|again| hand_on(workers, (worker, now_ns), port, again)));
        }
    }
    passed
}

/// What a worker held and gives out, with the ports that it came in by.
pub(crate) fn released(worker: &mut Worker) -> Vec<(u16, Vec<u8>)> {
    let mut all = Vec::new();
    while worker.release(|released| {
        all.push((released.port.0, released.bytes.to_vec()));
        true
    }) > 0
    {}
    all
}

/// Takes a packet from worker to worker until one decides.
fn hand_on(
    workers: &mut [Worker],
    (mut from, now_ns): (usize, u64),
    port: u16,
    (mut verdict, mut frame): (Verdict, Vec<u8>),
) -> (Verdict, Vec<u8>) {
    for _ in 0..2 {
        let Verdict::Hand(to) = verdict else { break };
        assert_ne!(usize::from(to), from);
        from = usize::from(to);
        let handed = process(port, &[frame], |packets, verdicts| {
            workers[from].process_handed(now_ns, &NoCycles, packets, verdicts);
        });
        (verdict, frame) = handed.into_iter().next().expect("it is one packet");
    }
    (verdict, frame)
}

/// Has frames processed that came in by `port`.
pub(crate) fn process(
    port: u16,
    frames: &[Vec<u8>],
    process: impl FnOnce(&mut [Packet<'_>], &mut [Verdict]),
) -> Vec<(Verdict, Vec<u8>)> {
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
    process(&mut packets, &mut verdicts);
    verdicts.into_iter().zip(&packets).map(|(verdict, packet)| (verdict, packet.bytes().to_vec())).collect()
}

/// An engine with one worker and a clock.
pub(crate) struct Middlebox {
    pub(crate) engine: Engine,
    pub(crate) worker: Worker,
    pub(crate) now_ms: u64,
}

impl Middlebox {
    /// Between [`ports`].
    pub(crate) fn new(text: &str) -> Middlebox {
        Middlebox::between(ports(), text)
    }

    pub(crate) fn between(ports: PortTable, text: &str) -> Middlebox {
        let (mut engine, mut workers) = Engine::new(ports, 1, &SeedTree::repeatable(1));
        engine.publish(&policy(text)).expect("the policy can be put in force");
        Middlebox { engine, worker: workers.remove(0), now_ms: 1000 }
    }

    /// What becomes of a frame.
    pub(crate) fn pass(&mut self, port: u16, frame: &[u8]) -> (Verdict, Vec<u8>) {
        let now_ns = self.now_ms * 1_000_000;
        let worker = &mut self.worker;
        process(port, &[frame.to_vec()], |packets, verdicts| {
            worker.process(now_ns, &NoCycles, packets, verdicts);
        })
        .remove(0)
    }

    pub(crate) fn passes(&mut self, port: u16, frame: &[u8]) -> bool {
        matches!(self.pass(port, frame).0, Verdict::Send(_))
    }

    /// The frame that leaves by the other port of the wire.
    #[track_caller]
    pub(crate) fn through(&mut self, port: u16, frame: &[u8]) -> Vec<u8> {
        let (verdict, bytes) = self.pass(port, frame);
        assert_eq!(verdict, Verdict::Send(PortId(1 - port)));
        bytes
    }

    #[track_caller]
    pub(crate) fn dropped(&mut self, port: u16, frame: &[u8]) -> DropReason {
        match self.pass(port, frame).0 {
            Verdict::Drop(reason) => reason,
            sent => panic!("{sent:?}"),
        }
    }

    pub(crate) fn wait(&mut self, seconds: u64) {
        self.now_ms += seconds * 1000;
        self.worker.process(self.now_ms * 1_000_000, &NoCycles, &mut [], &mut []);
    }

    /// Asks about connections, with the worker answering meanwhile.
    pub(crate) fn ask<R: Send>(&mut self, ask: impl FnOnce(&Connections) -> R + Send) -> R {
        let connections = self.engine.connections();
        let (worker, now_ns) = (&mut self.worker, self.now_ms * 1_000_000);
        std::thread::scope(|scope| {
            let asking = scope.spawn(move || ask(&connections));
            while !asking.is_finished() {
                worker.process(now_ns, &NoCycles, &mut [], &mut []);
                std::thread::yield_now();
            }
            asking.join().expect("it does not panic")
        })
    }

    pub(crate) fn list(&mut self) -> Vec<ConnectionInfo> {
        self.ask(|connections| {
            let mut all = Vec::new();
            let listed = connections.list(&ConnectionFilter::ALL, &mut |info| {
                all.push(info);
                true
            });
            listed.map(|()| all).expect("the worker answers")
        })
    }
}
