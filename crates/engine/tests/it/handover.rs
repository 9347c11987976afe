//! Workers in threads of their own that share one NAT, hand packets to each other and are asked about connections meanwhile.
//!
//! Each worker's inside hosts ask a server, through a pool that all workers share. Answers come in at the next worker, which mostly has to
//! hand them over. An answer has the ends of who asked in its text, so that everybody who gets one knows whether it is meant for it.
//! `scripts/tsan` runs this under ThreadSanitizer.

use crate::host::{policy, ports, process};
use mmb_engine::{Engine, NoCycles, Origin, Verdict, Worker};
use mmb_packet::PortId;
use mmb_policy::ConnectionFilter;
use mmb_random::SeedTree;
use mmb_testkit::{Ip4, Udp, Upper};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

const WORKERS: usize = 3;
/// Inside hosts of each worker, and ports of each host.
const HOSTS: u8 = 24;
const PORTS: u16 = 12;
const ALL: usize = WORKERS * HOSTS as usize * PORTS as usize;
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 80);
const A: u16 = 0;
const B: u16 = 1;
const POLICY: &str = "add-stateful in a ip-saddr 10.0.0.0/8 map ip-saddr 200.0.0.1-200.0.0.2 shuffle udp-sport accept\n\
                      add in b drop";

/// A packet for a worker.
struct Arrival {
    port: u16,
    frame: Vec<u8>,
    handed: bool,
}

fn udp(source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16), text: &[u8]) -> Vec<u8> {
    let datagram = Udp { sport: source.1, dport: destination.1, payload: text.to_vec(), ..Udp::default() };
    Ip4 { source: source.0, destination: destination.0, ..Ip4::new(Upper::Udp(datagram)) }.frame().bytes()
}

/// Source and destination of a frame of UDP over IPv4, and its text.
fn parts(frame: &[u8]) -> ((Ipv4Addr, u16), (Ipv4Addr, u16), &[u8]) {
    let address = |at: usize| Ipv4Addr::new(frame[at], frame[at + 1], frame[at + 2], frame[at + 3]);
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    ((address(26), port(34)), (address(30), port(36)), &frame[42..])
}

/// What an inside end writes: its own address and port.
fn text(end: (Ipv4Addr, u16)) -> Vec<u8> {
    [&end.0.octets()[..], &end.1.to_be_bytes()].concat()
}

struct Thread<'a> {
    number: usize,
    worker: Worker,
    to: Vec<Sender<Arrival>>,
    from: Receiver<Arrival>,
    answered: &'a AtomicUsize,
}

/// Lets the others go when their thread fails.
struct Release<'a>(&'a AtomicUsize);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fetch_add(ALL, Ordering::Release);
        }
    }
}

impl Thread<'_> {
    /// Asks for all hosts of the worker, and serves the others until all are answered.
    fn run(mut self) -> Worker {
        let _release = Release(self.answered);
        for host in 0..HOSTS {
            for port in 0..PORTS {
                let end = (Ipv4Addr::new(10, self.number as u8, 0, host), 5000 + port);
                let frame = udp(end, (SERVER, 53), &text(end));
                self.pass(Arrival { port: A, frame, handed: false });
                self.serve();
            }
        }
        while self.answered.load(Ordering::Acquire) < ALL {
            self.serve();
            std::thread::yield_now();
        }
        self.worker
    }

    fn serve(&mut self) {
        self.worker.process(1_000_000, &NoCycles, &mut [], &mut []);
        while let Ok(arrival) = self.from.try_recv() {
            self.pass(arrival);
        }
    }

    fn pass(&mut self, Arrival { port, frame, handed }: Arrival) {
        let worker = &mut self.worker;
        let origin = if handed { Origin::Worker } else { Origin::Wire };
        let passed = process(port, &[frame], |packets, verdicts| {
            worker.process_from(origin, 1_000_000, &NoCycles, packets, verdicts);
        });
        let (verdict, frame) = passed.into_iter().next().expect("it is one packet");
        let (source, destination, said) = parts(&frame);
        match verdict {
            Verdict::Hand(to) => {
                assert!(!handed, "it is handed on once");
                self.send(usize::from(to), Arrival { port, frame, handed: true });
            }
            Verdict::Send(PortId(B)) => {
                assert!(source.0.octets()[0] == 200, "{source:?} shows itself");
                let frame = udp(destination, source, said);
                self.send((self.number + 1) % WORKERS, Arrival { port: B, frame, handed: false });
            }
            Verdict::Send(PortId(A)) => {
                assert_eq!(text(destination), said, "an answer came to somebody else");
                self.answered.fetch_add(1, Ordering::Release);
            }
            other => panic!("{other:?} of {source:?} to {destination:?}"),
        }
    }

    fn send(&self, to: usize, arrival: Arrival) {
        // Who was told that all is done may have gone.
        let _ = self.to[to].send(arrival);
    }
}

#[test]
fn workers_in_threads_share_one_nat_and_hand_packets_over() {
    let (mut engine, workers) = Engine::new(ports(), WORKERS, &SeedTree::repeatable(7));
    engine.publish(&policy(POLICY)).expect("the policy can be put in force");
    let (to, from): (Vec<_>, Vec<_>) = (0..WORKERS).map(|_| channel()).unzip();
    let answered = AtomicUsize::new(0);
    let connections = engine.connections();
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers.into_iter().zip(from).enumerate().collect();
        for (number, (worker, from)) in threads {
            let thread = Thread { number, worker, to: to.clone(), from, answered: &answered };
            scope.spawn(move || thread.run());
        }
        // Meanwhile policies change, and connections are listed.
        while answered.load(Ordering::Acquire) < ALL {
            let change = format!("{POLICY}\nadd ip-ttl {} drop", 2 + answered.load(Ordering::Relaxed) % 2);
            engine.publish(&policy(&change)).expect("the policy can be put in force");
            let mut outside = HashMap::new();
            // The last worker may have gone before it was asked.
            let _ = connections.list(&ConnectionFilter::ALL, &mut |info| {
                let inside = (info.arrived.src, info.arrived.sport);
                let before = outside.insert((info.sent.src, info.sent.sport), inside);
                assert_eq!(before, None, "two inside ends have one outside end");
                assert_ne!(info.sent.src, IpAddr::from([10, 0, 0, 0]));
                true
            });
        }
    });
    let summary = connections.summary();
    assert_eq!((answered.into_inner(), summary.created), (ALL, ALL as u64));
    assert!(summary.handed > 0, "{summary:?}");
    let received: u64 = engine.port_counts().iter().map(|port| port.rx.packets).sum();
    let sent: u64 = engine.port_counts().iter().map(|port| port.tx.packets).sum();
    assert_eq!((received, sent), (2 * ALL as u64, 2 * ALL as u64), "{:?}", engine.drops());
}
