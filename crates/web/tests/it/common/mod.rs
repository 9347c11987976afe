//! A daemon with a real engine and an invented host, a web server beside it, and a plain client of HTTP.

#![allow(dead_code, reason = "each test program uses a part")]

use mmb_control::{Daemon, Host, PortLosses, PortStatus, Server, WorkerStatus};
use mmb_engine::{DropReason, Engine, Forward, NoCycles, PortSpec, PortTable, Verdict, Worker};
use mmb_language::parse_policy;
use mmb_packet::{LinkType, Packet, PortId};
use mmb_policy::Policy;
use mmb_policy::settings::Poll;
use mmb_protocol::answer::LinkLine;
use mmb_random::SeedTree;
use mmb_testkit::Frame;
use mmb_web::{Listen, WebOptions, WebServer};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tempfile::TempDir;

/// A timeout longer than any step of the tests, so that a hang is a failure.
const FOREVER: Duration = Duration::from_secs(60);

/// A host with two ports.
struct FakeHost;

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

    fn set_poll(&self, _: Poll) {}

    fn workers(&self) -> Vec<WorkerStatus> {
        vec![WorkerStatus { worker: 0, core: Some(1) }]
    }
}

/// A daemon and a web server.
pub(crate) struct Site {
    server: Option<Server>,
    daemon: Arc<Mutex<Daemon>>,
    worker: Arc<Mutex<Worker>>,
    /// Ends the packet thread.
    stopped: Arc<AtomicBool>,
    packets: Option<JoinHandle<()>>,
    pub(crate) web: Web,
    pub(crate) directory: TempDir,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::SeqCst);
        self.packets.take().map(JoinHandle::join);
        self.server.take();
    }
}

/// A running web server.
pub(crate) struct Web {
    pub(crate) address: Address,
    pub(crate) token: Option<String>,
}

pub(crate) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// An answer of the web server.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// By names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Refuses one pattern, as if it took too long.
fn check_patterns(policy: &Policy, _: &dyn Fn() -> bool) -> Result<(), String> {
    let is_costly = |rule: mmb_policy::Rule| mmb_language::with_id(&rule).to_string().contains("costly");
    if policy.rules.iter().any(is_costly) { Err("too costly".to_owned()) } else { Ok(()) }
}

/// What the tests have for `mmb explain`: it tells what it was given.
fn explain(policy: Policy, constraints: &str, why_not: &[u32]) -> Result<Value, String> {
    if constraints.is_empty() {
        return Err("no packet".to_owned());
    }
    Ok(json!({ "rules": policy.rules.len(), "packet": constraints, "why_not": why_not }))
}

/// The options of a server for a control socket: on any port of this machine.
pub(crate) fn options(socket: PathBuf) -> WebOptions {
    WebOptions {
        listen: Listen::Tcp("127.0.0.1:0".parse().expect("an address")),
        group: None,
        socket,
        tls: None,
        token_file: None,
        metrics_token_file: None,
        hosts: Vec::new(),
        read_only: false,
        metrics_rules: 100,
        explain,
        check_patterns,
    }
}

/// Starts a web server, which runs until the test ends.
pub(crate) fn serve(options: &WebOptions) -> Web {
    let server = WebServer::bind(options).expect("listens");
    let url = server.url();
    let address = match url.strip_prefix("http://") {
        Some(address) => Address::Tcp(address.trim_end_matches('/').parse().expect("an address")),
        None => Address::Unix(url.strip_prefix("unix:").expect("a path").into()),
    };
    let token = server.token().map(|token| token.reveal().to_owned());
    thread::spawn(move || server.run_until(std::future::pending()));
    Web { address, token }
}

/// Starts both, with a policy.
pub(crate) fn start(policy: &str) -> Site {
    start_with(policy, |options| options)
}

/// Starts both, with a policy and other options.
pub(crate) fn start_with(policy: &str, change: impl FnOnce(WebOptions) -> WebOptions) -> Site {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("mmb.sock");
    let spec = |name: &str, peer| PortSpec {
        name: name.into(),
        mtu: Some(1500),
        forward: Forward::Wire(PortId(peer)),
    };
    let ports = PortTable(vec![spec("lan", 1), spec("wan", 0)]);
    let (engine, mut workers) = Engine::new(ports, 1, &SeedTree::repeatable(1));
    let (policy, _) = parse_policy(policy).expect("a policy");
    let daemon = Daemon::new(engine, policy, Box::new(FakeHost)).expect("a daemon");
    let daemon = Arc::new(Mutex::new(daemon));
    let server = Server::bind(&path, Arc::clone(&daemon)).expect("binds");
    let worker = Arc::new(Mutex::new(workers.pop().expect("one worker")));
    let stopped = Arc::new(AtomicBool::new(false));
    let (its_worker, its_end) = (Arc::clone(&worker), Arc::clone(&stopped));
    let packets = thread::spawn(move || {
        while !its_end.load(Ordering::SeqCst) {
            its_worker.lock().expect("not poisoned").process(0, &NoCycles, &mut [], &mut []);
            thread::sleep(Duration::from_millis(1));
        }
    });
    let web = serve(&change(options(path)));
    Site { server: Some(server), daemon, worker, stopped, packets: Some(packets), web, directory }
}

fn packet(bytes: &mut [u8]) -> Packet<'_> {
    let length = bytes.len();
    Packet::new(bytes, 0, length, PortId(0), LinkType::Ethernet).expect("fits")
}

impl Site {
    /// Has the worker process packets that arrive at `lan`.
    pub(crate) fn feed(&self, frames: &[Frame]) {
        let mut buffers: Vec<Vec<u8>> = frames.iter().map(Frame::bytes).collect();
        let mut packets: Vec<Packet<'_>> = buffers.iter_mut().map(|bytes| packet(bytes)).collect();
        let mut verdicts = vec![Verdict::Drop(DropReason::Rule); packets.len()];
        self.worker.lock().expect("not poisoned").process(0, &NoCycles, &mut packets, &mut verdicts);
    }

    /// Ends the daemon; the web server stays.
    pub(crate) fn stop_daemon(&mut self) {
        self.server.take();
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.web.authorized("GET", path, None)
    }

    /// Sends a request with a body in JSON.
    pub(crate) fn send(&self, method: &str, path: &str, body: &Value) -> Reply {
        self.web.authorized(method, path, Some(body))
    }

    /// The answer of a request that must succeed.
    pub(crate) fn json(&self, path: &str) -> Value {
        let reply = self.get(path);
        assert_eq!(reply.status, 200, "{path}: {reply:?}");
        reply.json()
    }
}

impl Web {
    /// Sends a request with the token.
    pub(crate) fn authorized(&self, method: &str, path: &str, body: Option<&Value>) -> Reply {
        let mut head = String::new();
        if let Some(token) = &self.token {
            head += &format!("Authorization: Bearer {token}\r\n");
        } else {
            head += "X-Mmb-Request: 1\r\n";
        }
        if body.is_some() {
            head += "Content-Type: application/json\r\n";
        }
        self.request(method, path, &head, &body.map(Value::to_string).unwrap_or_default())
    }

    /// Sends a request with these lines in its head, and a `Host` if there is none among them.
    pub(crate) fn request(&self, method: &str, path: &str, head: &str, body: &str) -> Reply {
        let host = if head.contains("Host:") { "" } else { "Host: localhost\r\n" };
        let length = if head.contains("Content-Length:") {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        let request =
            format!("{method} {path} HTTP/1.1\r\n{host}{length}Connection: close\r\n{head}\r\n{body}");
        parse(&self.raw(request.as_bytes()))
    }

    /// Sends bytes, and returns what comes until the connection closes.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Vec<u8> {
        let mut reply = Vec::new();
        match &self.address {
            Address::Tcp(address) => {
                let mut stream = TcpStream::connect(address).expect("connects");
                stream.set_read_timeout(Some(FOREVER)).expect("sets");
                exchange(&mut stream, bytes, &mut reply);
            }
            Address::Unix(path) => {
                let mut stream = UnixStream::connect(path).expect("connects");
                stream.set_read_timeout(Some(FOREVER)).expect("sets");
                exchange(&mut stream, bytes, &mut reply);
            }
        }
        reply
    }
}

fn exchange(stream: &mut (impl Read + Write), bytes: &[u8], reply: &mut Vec<u8>) {
    // A server that refuses a request may not have read all of it, and then resets the connection behind its answer.
    let _ = stream.write_all(bytes);
    let _ = stream.read_to_end(reply);
}

fn parse(reply: &[u8]) -> Reply {
    let text = String::from_utf8(reply.to_vec()).expect("a text");
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {text:?}"));
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status");
    let headers = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    Reply { status, headers: headers.collect(), body: body.to_owned() }
}
