//! Many clients at once, and clients that send garbage, stop within a request, do not read, or die: the daemon and the other clients
//! continue.

use crate::common::{FOREVER, answer, raw, rules, start, start_with};
use mmb_control::{BindError, Server, ServerLimits};
use mmb_protocol::request::{Request, encode};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

/// Limits of time that are soon reached.
fn impatient() -> ServerLimits {
    ServerLimits { grace: Duration::from_millis(200), ..tight() }
}

/// Limits of size that are soon reached.
fn tight() -> ServerLimits {
    ServerLimits { bytes_per_s: 1 << 30, request_bytes: 10_000, ..ServerLimits::default() }
}

fn error(lines: &[Value]) -> &str {
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert_eq!(lines[1], json!({"end": {"v": 1, "ok": false}}));
    lines[0]["error"]["error"].as_str().expect("a message")
}

/// The number of rules whose list does not fit into the buffers of a socket.
const RULES: usize = 8_000;

/// Returns a policy whose list does not fit into the buffers of a socket.
fn long_policy() -> String {
    (1..=RULES).map(|n| format!("add tcp-sport {n} tcp-dport {} drop\n", n % 7)).collect()
}

fn wire(request: &Request) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(request, &mut bytes).expect("a vector takes everything");
    bytes
}

fn list() -> Vec<u8> {
    wire(&Request::Run(vec!["list".into()]))
}

/// Reads until the daemon disconnects.
fn read_to_end(mut stream: &UnixStream) -> usize {
    let mut sink = Vec::new();
    let _ = stream.read_to_end(&mut sink);
    sink.len()
}

/// Waits until the daemon has closed the connection, without reading from it.
fn wait_for_hang_up(stream: &UnixStream) {
    let mut fds = [PollFd::new(stream, PollFlags::empty())];
    let forever = Timespec { tv_sec: FOREVER.as_secs() as i64, tv_nsec: 0 };
    let events = poll(&mut fds, Some(&forever)).expect("polls");
    assert_eq!(events, 1, "it is never let go");
}

/// Reads exactly one line.
fn read_line(mut stream: &UnixStream) {
    let mut byte = [0];
    while byte != *b"\n" {
        stream.read_exact(&mut byte).expect("an answer begins");
    }
}

#[test]
fn a_hundred_clients_at_once_are_all_served() {
    let mmb = start("");
    let together = Arc::new(Barrier::new(100));
    let clients: Vec<_> = (1..=100u32)
        .map(|number| {
            let (path, together) = (mmb.path.clone(), Arc::clone(&together));
            thread::spawn(move || {
                let mut client = mmb_protocol::Client::connect(&path).expect("connects");
                together.wait();
                for turn in 0..2 {
                    let command = format!("add id {} tcp-dport {number} drop", number * 10 + turn);
                    let (answers, end) =
                        crate::common::ask(&mut client, &Request::Run(vec![command, "list".into()]));
                    assert!(end.ok);
                    assert!(
                        rules(&answers)
                            .iter()
                            .any(|rule| rule.starts_with(&format!("{} ", number * 10 + turn)))
                    );
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().expect("served"));
    assert_eq!(mmb.rules().len(), 200);
}

#[test]
fn garbage_is_answered_and_the_session_continues() {
    let mmb = start("");
    let stream = mmb.stream();
    for garbage in [
        "GET / HTTP/1.1\n",
        "\n",
        "{}\n",
        "{\"v\":1,\"do\":\"run\"}\n",
        "[[[[[[[[\n",
        "\u{1}\u{2}\n",
        "null\n",
    ] {
        assert!(!error(&raw(&stream, garbage.as_bytes())).is_empty(), "{garbage}");
    }
    let not_text = [&b"{\"v\":1,\"do\":\"apply\",\"policy\":\""[..], &[0xff, 0xfe], b"\"}\n"].concat();
    assert!(!error(&raw(&stream, &not_text)).is_empty());
    assert!(error(&raw(&stream, b"{\"v\":2,\"do\":\"fly\",\"to\":\"moon\"}\n")).contains("version 2"));
    assert_eq!(raw(&stream, &list()).last(), Some(&json!({"end": {"v": 1, "ok": true}})));
}

#[test]
fn requests_may_be_sent_ahead_and_are_answered_in_order() {
    let mmb = start("");
    let stream = mmb.stream();
    let add = |port: u32| wire(&Request::Run(vec![format!("add tcp-dport {port} drop")]));
    let mut writer = &stream;
    writer.write_all(&[add(1), add(2), list()].concat()).expect("writes");
    writer.shutdown(Shutdown::Write).expect("shuts");
    let mut text = String::new();
    (&stream).read_to_string(&mut text).expect("reads");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines[0]["added"]["id"], 1);
    assert_eq!(lines[2]["added"]["id"], 2);
    assert_eq!(lines.iter().filter(|line| line.get("rule").is_some()).count(), 2);
    assert_eq!(lines.iter().filter(|line| line.get("end").is_some()).count(), 3);
}

#[test]
fn an_incomplete_request_times_out() {
    let mmb = start_with("", impatient());
    let stream = mmb.stream();
    assert!(error(&raw(&stream, b"{\"v\":1,")).contains("did not come in time"));
    assert_eq!(read_to_end(&stream), 0, "and the client is let go");

    let stream = mmb.stream();
    (&stream).write_all(b"{\"v\":1,").expect("writes");
    stream.shutdown(Shutdown::Write).expect("shuts");
    assert!(error(&answer(&stream)).contains("ends in the middle"));
    mmb.assert_alive();
}

#[test]
fn a_huge_request_is_refused_while_it_arrives() {
    let mmb = start_with("", tight());
    let stream = mmb.stream();
    assert!(error(&raw(&stream, &vec![b'x'; 1 << 20])).contains("longer than 10000 bytes"));
    assert_eq!(read_to_end(&stream), 0);
    let longest = "x".repeat(10_000 - 40);
    let lines = raw(&mmb.stream(), &wire(&Request::Run(vec![longest])));
    assert!(lines[0]["error"]["span"].is_array(), "one that is just short enough is looked at: {lines:?}");
}

#[test]
fn large_requests_share_a_budget_and_small_ones_need_none() {
    let limits =
        ServerLimits { pending_bytes: 1 << 20, small_request_bytes: 1 << 10, ..ServerLimits::default() };
    let mmb = start_with("", limits);
    let hog = mmb.stream();
    // Stops within a request, and holds most of the budget.
    (&hog).write_all(&vec![b'x'; 900 << 10]).expect("writes");
    let refused = || {
        let lines = raw(&mmb.stream(), &[vec![b'y'; 512 << 10], vec![b'\n']].concat());
        error(&lines).contains("all the memory")
    };
    // The daemon may not have read all of it yet.
    let deadline = std::time::Instant::now() + FOREVER;
    while !refused() {
        assert!(std::time::Instant::now() < deadline, "the hog's bytes are never counted");
    }
    mmb.assert_alive();
    drop(hog);
    while refused() {
        assert!(std::time::Instant::now() < deadline, "the hog's bytes are never given back");
    }
}

#[test]
fn a_client_that_does_not_read_is_disconnected_and_delays_no_other() {
    let mmb = start_with(&long_policy(), impatient());
    let sleeper = mmb.stream();
    (&sleeper).write_all(&list()).expect("writes");
    mmb.run("add all drop");
    mmb.assert_alive();
    // It is disconnected within its answer: the content of the socket's buffers arrives, and nothing after it.
    wait_for_hang_up(&sleeper);
    let received = read_to_end(&sleeper);
    assert!(received < list_bytes(&mmb), "{received}");
    assert_eq!(mmb.rules().len(), RULES + 1);
}

fn list_bytes(mmb: &crate::common::Running) -> usize {
    mmb.rules().iter().map(|rule| rule.len()).sum()
}

#[test]
fn a_client_that_dies_during_its_answer_leaves_nothing() {
    let mmb = start(&long_policy());
    for _ in 0..20 {
        let stream = mmb.stream();
        (&stream).write_all(&list()).expect("writes");
        let mut some = [0; 100];
        (&stream).read_exact(&mut some).expect("an answer begins");
    }
    for _ in 0..20 {
        (&mmb.stream()).write_all(b"{\"v\":1,\"do").expect("writes");
    }
    mmb.assert_alive();
}

#[test]
fn beyond_the_limit_idle_clients_are_evicted_and_active_ones_stay() {
    let limits = ServerLimits { clients: 3, reserved: 0, idle: Duration::ZERO, ..ServerLimits::default() };
    let mmb = start_with(&long_policy(), limits);
    let idle = mmb.stream();
    raw(&idle, &wire(&Request::Save));
    let busy: Vec<_> = (0..3)
        .map(|_| {
            let stream = mmb.stream();
            (&stream).write_all(&list()).expect("writes");
            read_line(&stream);
            stream
        })
        .collect();
    assert_eq!(read_to_end(&idle), 0, "the idle one had to go");
    let refused = mmb.stream();
    assert!(error(&answer(&refused)).contains("3 clients"));
    assert_eq!(read_to_end(&refused), 0);
    for stream in &busy {
        assert_eq!(raw(stream, b"").last(), Some(&json!({"end": {"v": 1, "ok": true}})), "whole");
    }
    mmb.assert_alive();
}

#[test]
fn a_client_without_a_request_is_disconnected() {
    let limits = ServerLimits { greeting: Duration::from_millis(100), ..ServerLimits::default() };
    let mmb = start_with("", limits);
    let known = mmb.stream();
    raw(&known, &wire(&Request::Save));
    // A client that sends nothing,
    let silent = mmb.stream();
    assert!(error(&answer(&silent)).contains("no request came"));
    assert_eq!(read_to_end(&silent), 0);
    // and a client that sends only garbage, without pauses.
    let garbage = mmb.stream();
    let mut writer = garbage.try_clone().expect("clones");
    let talker = thread::spawn(move || while writer.write_all(b"GET / HTTP/1.1\n").is_ok() {});
    read_to_end(&garbage);
    talker.join().expect("is told that nobody listens");
    assert_eq!(
        raw(&known, &wire(&Request::Save)).last(),
        Some(&json!({"end": {"v": 1, "ok": true}})),
        "stays"
    );
}

#[test]
fn slots_are_reserved_for_root_and_the_daemons_user() {
    // The user of this test is the daemon's user. The slots of other users: `client_slots.rs`, and tests/live.
    let limits = ServerLimits { clients: 2, reserved: 1, ..ServerLimits::default() };
    let mmb = start_with("", limits);
    let taken: Vec<_> = (0..2).map(|_| mmb.client()).collect();
    let reserved = mmb.stream();
    assert_eq!(raw(&reserved, &wire(&Request::Save)).last(), Some(&json!({"end": {"v": 1, "ok": true}})));
    assert!(error(&answer(&mmb.stream())).contains("3 clients"));
    drop(taken);
}

#[test]
fn the_socket_of_a_dead_daemon_is_replaced_and_a_live_ones_is_not() {
    let mut mmb = start("add all drop");
    let refused = Server::bind(&mmb.path, Arc::clone(&mmb.daemon)).expect_err("one is there");
    assert!(
        matches!(&refused, BindError::InUse(path, Some(process)) if *path == mmb.path && *process == std::process::id())
    );
    assert!(refused.to_string().contains("another mmb"));
    mmb.assert_alive();

    // The remains of kill -9: a socket without a listener.
    mmb.server.take().expect("running").shutdown();
    assert!(!mmb.path.exists(), "a daemon that ends takes its socket along");
    drop(std::os::unix::net::UnixListener::bind(&mmb.path).expect("binds"));
    mmb.server = Some(Server::bind(&mmb.path, Arc::clone(&mmb.daemon)).expect("takes over"));
    mmb.assert_alive();
}

#[test]
fn a_shutdown_disconnects_all_clients() {
    let mut mmb = start(&long_policy());
    let idle = mmb.stream();
    raw(&idle, &wire(&Request::Save));
    let half = mmb.stream();
    (&half).write_all(b"{").expect("writes");
    let sleeper = mmb.stream();
    (&sleeper).write_all(&list()).expect("writes");
    mmb.server.take().expect("running").shutdown();
    assert_eq!(read_to_end(&idle), 0);
    read_to_end(&half);
    read_to_end(&sleeper);
    assert!(UnixStream::connect(&mmb.path).is_err());
    assert_eq!(Arc::strong_count(&mmb.daemon), 1, "no thread is left that knows the daemon");
}

#[test]
fn the_daemon_survives_a_panic_with_its_lock() {
    let mmb = start("add all drop");
    let daemon = Arc::clone(&mmb.daemon);
    let panicked = thread::spawn(move || {
        let _held = daemon.lock();
        panic!("as told by a test");
    });
    assert!(panicked.join().is_err());
    assert_eq!(mmb.rules(), ["1 add all drop"]);
}
