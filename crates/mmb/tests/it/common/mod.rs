//! A daemon without devices in the test's process, and the program as its client.

#![allow(dead_code, reason = "each test program uses a part")]

use mmb_control::{Daemon, Host, PortLosses, PortStatus, Server, WorkerStatus};
use mmb_engine::{Engine, Forward, NoCycles, PortSpec, PortTable, Verdict, Worker};
use mmb_language::parse_policy;
use mmb_packet::{LinkType, Packet, PortId};
use mmb_policy::settings::Poll;
use mmb_protocol::answer::LinkLine;
use mmb_random::SeedTree;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use tempfile::TempDir;

/// A host with two ports without devices.
struct NoPackets;

impl Host for NoPackets {
    fn ports(&self) -> Vec<PortStatus> {
        let port = |name: &str, peer: &str| PortStatus {
            name: name.into(),
            device: format!("eth-{name}"),
            driver: "net_none".into(),
            mac: "02:00:00:00:00:01".into(),
            mtu: 1500,
            link: LinkLine::Up,
            peer: Some(peer.into()),
            losses: PortLosses::default(),
        };
        vec![port("lan", "wan"), port("wan", "lan")]
    }

    fn set_poll(&self, _: Poll) {}

    fn workers(&self) -> Vec<WorkerStatus> {
        vec![WorkerStatus { worker: 0, core: None }]
    }
}

/// The daemon and a directory for its socket and files.
pub(crate) struct Site {
    pub(crate) server: Option<Server>,
    daemon: Arc<Mutex<Daemon>>,
    directory: TempDir,
    worker: Arc<Mutex<Worker>>,
    stop: Arc<AtomicBool>,
    packets: Option<JoinHandle<()>>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.packets.take().map(JoinHandle::join);
    }
}

/// Starts a packet thread, which runs the worker's tasks.
fn answering(worker: Arc<Mutex<Worker>>, stop: Arc<AtomicBool>) -> JoinHandle<()> {
    thread::spawn(move || {
        while !stop.load(Ordering::SeqCst) {
            worker.lock().expect("not poisoned").process(0, &NoCycles, &mut [], &mut []);
            thread::yield_now();
        }
    })
}

impl Site {
    pub(crate) fn new(policy: &str) -> Site {
        let directory = tempfile::tempdir().expect("a directory");
        let spec = |name: &str, peer| PortSpec {
            name: name.into(),
            mtu: None,
            forward: Forward::Wire(PortId(peer)),
        };
        let (engine, mut workers) =
            Engine::new(PortTable(vec![spec("lan", 1), spec("wan", 0)]), 1, &SeedTree::repeatable(1));
        let policy = parse_policy(policy).expect("a policy").0;
        let daemon = Daemon::new(engine, policy, Box::new(NoPackets)).expect("a policy for these ports");
        let daemon = Arc::new(Mutex::new(daemon));
        let worker = Arc::new(Mutex::new(workers.pop().expect("one worker")));
        let stop = Arc::new(AtomicBool::new(false));
        let packets = Some(answering(Arc::clone(&worker), Arc::clone(&stop)));
        let mut site = Site { server: None, daemon, directory, worker, stop, packets };
        site.listen();
        site
    }

    /// Has the worker process a packet that arrives at `lan`.
    pub(crate) fn feed_packet(&self, mut frame: Vec<u8>) {
        let length = frame.len();
        let packet = Packet::new(&mut frame, 0, length, PortId(0), LinkType::Ethernet).expect("fits");
        let mut worker = self.worker.lock().expect("not poisoned");
        worker.process(0, &NoCycles, &mut [packet], &mut [Verdict::Send(PortId(1))]);
    }

    /// Starts the server, also again after it was stopped.
    pub(crate) fn listen(&mut self) {
        self.server = Some(Server::bind(&self.path("s"), Arc::clone(&self.daemon)).expect("binds"));
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> String {
        std::fs::write(self.path(name), text).expect("writes");
        self.path(name).display().to_string()
    }

    /// Returns a command of the program for this daemon.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mmb"));
        command.arg("--socket").arg(self.path("s")).args(words);
        command.env("XDG_STATE_HOME", self.directory.path());
        command
    }
}
