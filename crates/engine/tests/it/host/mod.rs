//! A host for tests: hands frames to a worker and keeps what it gives back.

#![allow(dead_code, reason = "each test program uses a part")]

use mmb_engine::{
    ConnectionInfo, Connections, DropReason, Engine, Forward, NoCycles, Origin, PacketHost, PortSpec,
    PortTable, ProcessedPacket, ReturnedPacket, VECTOR, Verdict, Worker, drive, drive_returned,
};
use mmb_language::parse_policy;
use mmb_packet::{LinkType, Packet, PortId};
use mmb_policy::{ConnectionFilter, Policy};
use mmb_random::SeedTree;
use std::collections::VecDeque;
use std::convert::Infallible;

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
    match parse_policy(text) {
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
    let mut host = TestHost { now_ns: now_ms * 1_000_000, ..TestHost::default() };
    for frames in frames.chunks(VECTOR) {
        frames.iter().for_each(|frame| host.push(PortId(port), frame.clone()));
        host.drive(workers, first, Origin::Wire);
        host.deliver_handed(workers);
    }
    for worker in 0..workers.len() {
        let Ok(()) = drive_returned(&mut workers[worker], &mut host);
        host.deliver_handed(workers);
    }
    host.passed
}

/// A host whose workers share a thread.
#[derive(Default)]
struct TestHost {
    now_ns: u64,
    /// The next vector.
    vector: Vec<TestPacket>,
    /// Packets for other workers.
    handed: VecDeque<(u16, TestPacket)>,
    /// The last verdict on each packet, and its bytes.
    passed: Vec<(Verdict, Vec<u8>)>,
}

struct TestPacket {
    /// Its index in `passed`.
    number: usize,
    port: PortId,
    frame: Vec<u8>,
}

impl TestHost {
    fn push(&mut self, port: PortId, frame: Vec<u8>) {
        self.vector.push(TestPacket { number: self.passed.len(), port, frame });
        self.passed.push((Verdict::Send(PortId(u16::MAX)), Vec::new()));
    }

    fn drive(&mut self, workers: &mut [Worker], worker: usize, origin: Origin) {
        let before = self.handed.len();
        let Ok(()) = drive(&mut workers[worker], self, origin);
        assert!(self.handed.range(before..).all(|(to, _)| usize::from(*to) != worker), "handed to itself");
    }

    /// Takes packets from worker to worker until one decides.
    fn deliver_handed(&mut self, workers: &mut [Worker]) {
        let mut hops = 0;
        while let Some((to, packet)) = self.handed.pop_front() {
            hops += 1;
            assert!(hops <= 2 * self.passed.len(), "a packet is handed on without end");
            self.vector.push(packet);
            self.drive(workers, usize::from(to), Origin::Worker);
        }
    }
}

impl PacketHost for TestHost {
    type Error = Infallible;

    fn process(&mut self, worker: &mut Worker, origin: Origin) -> Result<(), Infallible> {
        let vector = std::mem::take(&mut self.vector);
        let mut buffers: Vec<Vec<u8>> = vector.iter().map(|packet| with_headroom(&packet.frame)).collect();
        let views = buffers.iter_mut().zip(&vector).filter_map(|(buffer, packet)| {
            Packet::new(buffer, HEADROOM, packet.frame.len(), packet.port, LinkType::Ethernet)
        });
        let processed = worker.process_views(origin, self.now_ns, &NoCycles, views);
        for ((packet, buffer), ProcessedPacket { verdict, headroom, len }) in
            vector.into_iter().zip(buffers).zip(processed)
        {
            let frame = buffer[headroom..headroom + len].to_vec();
            self.passed[packet.number] = (verdict, frame.clone());
            if let Verdict::Hand(to) = verdict {
                self.handed.push_back((to, TestPacket { frame, ..packet }));
            }
        }
        Ok(())
    }

    fn accept_returned(&mut self, returned: ReturnedPacket<'_>) -> bool {
        self.push(returned.port, returned.bytes.to_vec());
        true
    }
}

/// What a worker held and gives back, with the ports that it came in by.
pub(crate) fn released(worker: &mut Worker) -> Vec<(u16, Vec<u8>)> {
    let mut all = Vec::new();
    while let Some(Origin::Held) = worker.return_packets(|returned| {
        all.push((returned.port.0, returned.bytes.to_vec()));
        true
    }) {}
    all
}

/// Bytes in front of each packet.
const HEADROOM: usize = 64;

fn with_headroom(frame: &[u8]) -> Vec<u8> {
    [&[0; HEADROOM][..], frame].concat()
}

/// Has frames processed that came in by `port`.
pub(crate) fn process(
    port: u16,
    frames: &[Vec<u8>],
    process: impl FnOnce(&mut [Packet<'_>], &mut [Verdict]),
) -> Vec<(Verdict, Vec<u8>)> {
    let mut buffers: Vec<Vec<u8>> = frames.iter().map(|frame| with_headroom(frame)).collect();
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

    /// The number of packets that were classified under all rules.
    pub(crate) fn classified(&self) -> u64 {
        self.engine.stage_counts()[1].packets
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
