//! A daemon with a real engine and an invented host, on a socket in a directory of its own.

#![allow(dead_code, reason = "each test program uses a part")]

use mmb_compile::PatternCompiler;
use mmb_control::memory::{AvailableMemory, MemoryBound};
use mmb_control::{
    Daemon, Host, PortLosses, PortOffload, PortStatus, Server, ServerLimits, ServerOptions, WorkerStatus,
};
use mmb_engine::{DropReason, Engine, Forward, NoCycles, PortSpec, PortTable, Verdict, Worker};
use mmb_language::parse_policy;
use mmb_packet::{LinkType, Packet, PortId};
use mmb_policy::settings::Poll;
use mmb_protocol::Request;
use mmb_protocol::answer::LinkLine;
use mmb_protocol::answer::{Answer, AnswerEnd, ErrorLine};
use mmb_protocol::request::ConnectionFate;
use mmb_protocol::{Client, ClientError};
use mmb_random::SeedTree;
use mmb_testkit::Frame;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tempfile::TempDir;

/// A timeout longer than any step of the tests, so that a hang is a failure.
pub(crate) const FOREVER: Duration = Duration::from_secs(30);

/// A host with two ports that records its settings.
pub(crate) struct FakeHost {
    pub(crate) polls: Arc<Mutex<Vec<Poll>>>,
    /// The available memory; `None`: more than enough.
    pub(crate) memory: Arc<Mutex<Option<u64>>>,
    /// The state of the ports' flow offload; empty: the host has none.
    pub(crate) offload: Arc<Mutex<Vec<PortOffload>>>,
}

impl Host for FakeHost {
    fn ports(&self) -> Vec<PortStatus> {
        let port = |name: &str, peer: &str, number: u8| PortStatus {
            name: name.into(),
            device: format!("eth{number}"),
            driver: "net_fake".into(),
            mac: format!("02:00:00:00:00:0{number}"),
            mtu: 1500,
            link: if number == 1 { LinkLine::Up } else { LinkLine::Down },
            peer: Some(peer.into()),
            losses: PortLosses { rx_missed: 3, rx_errors: 0, tx_errors: 1 },
        };
        vec![port("lan", "wan", 1), port("wan", "lan", 2)]
    }

    fn memory(&self) -> Option<AvailableMemory> {
        let left = *self.memory.lock().expect("not poisoned");
        AvailableMemory::new(vec![MemoryBound { bytes: left?, name: "a test's", is_of_space: false }])
    }

    fn set_poll(&self, poll: Poll) {
        self.polls.lock().expect("not poisoned").push(poll);
    }

    fn offload(&self) -> Vec<PortOffload> {
        self.offload.lock().expect("not poisoned").clone()
    }

    fn workers(&self) -> Vec<WorkerStatus> {
        vec![WorkerStatus { worker: 0, core: Some(1) }]
    }
}

/// The running daemon.
pub(crate) struct Running {
    pub(crate) server: Option<Server>,
    pub(crate) daemon: Arc<Mutex<Daemon>>,
    pub(crate) worker: Arc<Mutex<Worker>>,
    pub(crate) polls: Arc<Mutex<Vec<Poll>>>,
    pub(crate) memory: Arc<Mutex<Option<u64>>>,
    pub(crate) offload: Arc<Mutex<Vec<PortOffload>>>,
    pub(crate) path: PathBuf,
    directory: TempDir,
}

/// Starts a daemon with this policy and these limits.
pub(crate) fn start_with(policy: &str, limits: ServerLimits) -> Running {
    start_on(policy, limits, None).expect("a policy for these ports")
}

/// Starts a daemon with so much memory; returns the error if it does not start.
pub(crate) fn start_bounded(policy: &str, memory: Option<u64>) -> Result<Running, String> {
    start_on(policy, ServerLimits::default(), memory)
}

/// Starts a daemon with this compiler of patterns.
pub(crate) fn start_compiling(policy: &str, compiler: PatternCompiler) -> Running {
    start_as(policy, ServerLimits::default(), None, compiler).expect("a policy for these ports")
}

fn start_on(policy: &str, limits: ServerLimits, memory: Option<u64>) -> Result<Running, String> {
    start_as(policy, limits, memory, PatternCompiler::default())
}

fn start_as(
    policy: &str,
    limits: ServerLimits,
    memory: Option<u64>,
    compiler: PatternCompiler,
) -> Result<Running, String> {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("run/mmb.sock");
    let spec = |name: &str, peer| PortSpec {
        name: name.into(),
        mtu: Some(1500),
        forward: Forward::Wire(PortId(peer)),
    };
    let ports = PortTable(vec![spec("lan", 1), spec("wan", 0)]);
    let (engine, mut workers) = Engine::new(ports, 1, &SeedTree::repeatable(1));
    let (polls, memory, offload) = (Arc::default(), Arc::new(Mutex::new(memory)), Arc::default());
    let host =
        FakeHost { polls: Arc::clone(&polls), memory: Arc::clone(&memory), offload: Arc::clone(&offload) };
    let (policy, _) = parse_policy(policy).expect("a policy");
    let daemon = Daemon::with_compiler(engine, policy, Box::new(host), Arc::new(compiler));
    let daemon = daemon.map_err(|refusal| refusal.to_string())?;
    let daemon = Arc::new(Mutex::new(daemon));
    let options = ServerOptions { limits, ..ServerOptions::default() };
    let server = Server::bind_with(&path, Arc::clone(&daemon), options).expect("binds");
    let worker = Arc::new(Mutex::new(workers.pop().expect("one worker")));
    Ok(Running { server: Some(server), daemon, worker, polls, memory, offload, path, directory })
}

pub(crate) fn start(policy: &str) -> Running {
    start_with(policy, ServerLimits::default())
}

/// A packet thread, which runs tasks until this is dropped.
pub(crate) struct Packets {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Packets {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().map(JoinHandle::join);
    }
}

fn packet(port: PortId, bytes: &mut [u8]) -> Packet<'_> {
    let length = bytes.len();
    Packet::new(bytes, 0, length, port, LinkType::Ethernet).expect("fits")
}

impl Running {
    /// Runs the worker on a thread of its own.
    pub(crate) fn packets(&self) -> Packets {
        let stop = Arc::new(AtomicBool::new(false));
        let (worker, stopped) = (Arc::clone(&self.worker), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::SeqCst) {
                worker.lock().expect("not poisoned").process(0, &NoCycles, &mut [], &mut []);
                thread::yield_now();
            }
        });
        Packets { stop, thread: Some(thread) }
    }

    /// Has the worker process packets that arrive at `lan`.
    pub(crate) fn feed(&self, frames: &[Frame]) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        for frames in frames.chunks(256) {
            let mut buffers: Vec<Vec<u8>> = frames.iter().map(Frame::bytes).collect();
            verdicts.extend(self.feed_bytes(&mut buffers));
        }
        verdicts
    }

    /// Has the worker process frames as bytes, which are the departing frames afterwards.
    pub(crate) fn feed_bytes(&self, frames: &mut [Vec<u8>]) -> Vec<Verdict> {
        self.feed_bytes_at(PortId(0), frames)
    }

    /// The same for frames that arrive at any port.
    pub(crate) fn feed_bytes_at(&self, port: PortId, frames: &mut [Vec<u8>]) -> Vec<Verdict> {
        let mut packets: Vec<Packet<'_>> = frames.iter_mut().map(|frame| packet(port, frame)).collect();
        let mut verdicts = vec![Verdict::Drop(DropReason::Rule); packets.len()];
        let mut worker = self.worker.lock().expect("not poisoned");
        worker.process(0, &NoCycles, &mut packets, &mut verdicts);
        verdicts
    }

    /// Gives `lan` a flow offload, and `wan` a reason for none.
    pub(crate) fn offload_lan(&self) {
        let lan = PortOffload { port: "lan".into(), state: Ok("tcx".into()) };
        let wan = PortOffload { port: "wan".into(), state: Err("it is no kernel interface".into()) };
        *self.offload.lock().expect("not poisoned") = vec![lan, wan];
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(&self.path).expect("connects")
    }

    /// Connects without the protocol.
    pub(crate) fn stream(&self) -> UnixStream {
        let stream = UnixStream::connect(&self.path).expect("connects");
        stream.set_read_timeout(Some(FOREVER)).expect("sets");
        stream.set_write_timeout(Some(FOREVER)).expect("sets");
        stream
    }

    /// Returns all lines of an answer.
    pub(crate) fn ask(&self, request: &Request) -> (Vec<Answer>, AnswerEnd) {
        ask(&mut self.client(), request)
    }

    /// Runs one command that must succeed; returns its answer.
    pub(crate) fn run(&self, command: &str) -> Vec<Answer> {
        let (answers, end) = self.ask(&Request::Run(vec![command.into()]));
        assert!(end.ok, "{command}: {answers:?}");
        answers
    }

    /// Runs commands that must be refused; returns the errors.
    pub(crate) fn refused(&self, commands: &[&str]) -> Vec<ErrorLine> {
        let commands = commands.iter().map(|command| (*command).to_owned()).collect();
        let (answers, end) = self.ask(&Request::Run(commands));
        assert!(!end.ok, "{answers:?}");
        errors(answers)
    }

    pub(crate) fn apply(&self, text: &str) -> (Vec<Answer>, AnswerEnd) {
        self.ask(&Request::Apply(text.into(), ConnectionFate::Release))
    }

    /// Returns the rules in force: `1 add all drop`.
    pub(crate) fn rules(&self) -> Vec<String> {
        rules(&self.run("list"))
    }

    /// Checks that the daemon still answers.
    pub(crate) fn assert_alive(&self) {
        assert!(matches!(self.run("show version")[..], [Answer::Begin(_), Answer::Version(_)]));
    }
}

pub(crate) fn ask(client: &mut Client, request: &Request) -> (Vec<Answer>, AnswerEnd) {
    let mut answers = Vec::new();
    let end = client.ask(request, |answer| {
        answers.push(answer);
        Ok::<(), ClientError>(())
    });
    (answers, end.expect("an answer"))
}

pub(crate) fn errors(answers: Vec<Answer>) -> Vec<ErrorLine> {
    let error = |answer| match answer {
        Answer::Error(error) => Some(error),
        _ => None,
    };
    answers.into_iter().filter_map(error).collect()
}

pub(crate) fn rules(answers: &[Answer]) -> Vec<String> {
    let rule = |answer: &Answer| match answer {
        Answer::Rule(line) => Some(format!("{} {}", line.id, line.rule)),
        _ => None,
    };
    answers.iter().filter_map(rule).collect()
}

/// Sends bytes as they are and reads the lines of one answer.
pub(crate) fn raw(stream: &UnixStream, bytes: &[u8]) -> Vec<Value> {
    let mut writer = stream;
    // A daemon that refuses a request may not have read all of it.
    let _ = writer.write_all(bytes);
    answer(stream)
}

/// Returns the lines of one answer, up to its end or that of the connection.
pub(crate) fn answer(stream: &UnixStream) -> Vec<Value> {
    let mut lines = Vec::new();
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { break };
        let value: Value = serde_json::from_str(&line).expect("JSON");
        let end = value.get("end").is_some();
        lines.push(value);
        if end {
            break;
        }
    }
    lines
}
