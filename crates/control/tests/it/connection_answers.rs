//! Connections as clients see them: lists, ends, events; and clients that do not read or disconnect meanwhile.

use crate::common::{FOREVER, Running, answer, ask, raw, start, start_with};
use mmb_control::{Housekeeper, ServerLimits};
use mmb_protocol::ClientError;
use mmb_protocol::answer::{
    AffectedLine, Answer, AnswerBegin, ConnectionLine, CountLine, EventKind, EventLine, StreamSummaryLine,
    SummaryLine, Topic,
};
use mmb_protocol::request::{ConnectionFate, Request, encode};
use mmb_testkit::{Frame, Tcp, Udp};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

/// A policy whose rules 1 and 2 create connections.
const STATEFUL: &str =
    "add-stateful id 1 ip-proto udp accept\nadd-stateful id 2 ip-proto tcp mod tcp-sport 7000\n";

/// The number of connections whose list does not fit into the buffers of a socket.
const MANY: u16 = 4_000;

fn udp(sport: u16) -> Frame {
    Udp { sport, ..Udp::default() }.over_ip4()
}

fn many() -> Vec<Frame> {
    (1..=MANY).map(udp).collect()
}

fn syn() -> Frame {
    Tcp { sport: 4000, flags: 2, ..Tcp::default() }.dport(80).over_ip4()
}

fn lines(answers: Vec<Answer>) -> Vec<ConnectionLine> {
    let line = |answer| match answer {
        Answer::Connection(line) => Some(line),
        _ => None,
    };
    answers.into_iter().filter_map(line).collect()
}

fn listed(mmb: &Running, filter: &str) -> Vec<ConnectionLine> {
    lines(mmb.run(&format!("show connections {filter}")))
}

fn summary(mmb: &Running) -> SummaryLine {
    match &mmb.run("show conn summary")[..] {
        [Answer::Begin(_), Answer::Summary(line)] => line.clone(),
        other => panic!("{other:?}"),
    }
}

fn killed(mmb: &Running, command: &str) -> u64 {
    let killed = mmb.run(command).into_iter().find_map(|answer| match answer {
        Answer::Killed(line) => Some(line.connections),
        _ => None,
    });
    killed.expect("it says how many")
}

fn wire(commands: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let commands = commands.iter().map(|command| (*command).to_owned()).collect();
    encode(&Request::Run(commands), &mut bytes).expect("a vector takes everything");
    bytes
}

/// Returns a client after its `monitor` has begun.
fn watcher(mmb: &Running) -> BufReader<UnixStream> {
    let stream = mmb.stream();
    (&stream).write_all(&wire(&["monitor"])).expect("writes");
    let mut watcher = BufReader::new(stream);
    assert_eq!(next(&mut watcher), json!({"begin": {"command": 0, "topic": "monitor"}}));
    watcher
}

fn next(watcher: &mut BufReader<UnixStream>) -> Value {
    let mut line = String::new();
    watcher.read_line(&mut line).expect("a line");
    serde_json::from_str(&line).expect("JSON")
}

/// Begins `monitor` and ends it with another request; returns the error otherwise.
fn watched(mmb: &Running) -> Result<(), String> {
    let lines = raw(&mmb.stream(), &[wire(&["monitor"]), wire(&["list"])].concat());
    match &lines[..] {
        [_, error, _] => Err(error["error"]["error"].to_string()),
        [_, _] => Ok(()),
        other => panic!("{other:?}"),
    }
}

/// Waits for an effect of another thread.
fn wait_until(what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + FOREVER;
    while !is() {
        assert!(Instant::now() < deadline, "{what}");
        thread::yield_now();
    }
}

#[test]
fn a_connection_is_shown_with_all_members() {
    let mmb = start(STATEFUL);
    let _packets = mmb.packets();
    assert_eq!(listed(&mmb, ""), []);
    mmb.feed(&[syn(), udp(5)]);
    let tcp = listed(&mmb, "ip-proto tcp");
    let length = syn().bytes().len();
    assert_eq!(
        json!(tcp),
        json!([{
            "proto": "tcp", "state": "syn-sent",
            "arrived": {"src": "10.0.0.1", "sport": 4000, "dst": "10.0.0.2", "dport": 80},
            "sent": {"src": "10.0.0.1", "sport": 7000, "dst": "10.0.0.2", "dport": 80},
            "age_ms": 0, "idle_ms": 0, "expires_ms": 240_000,
            "forward": {"packets": 1, "bytes": length}, "reply": {"packets": 0, "bytes": 0}, "rules": [2]
        }])
    );
    let verbose = &mmb.run("show connections ip-proto udp verbose")[1];
    assert_eq!(json!(verbose)["connection"]["worker"], 0);
    assert_eq!(json!(verbose)["connection"]["wire"], 0);
}

fn stream_summary(mmb: &Running) -> StreamSummaryLine {
    match &mmb.run("show streams summary")[..] {
        [Answer::Begin(AnswerBegin { topic: Topic::StreamSummary, .. }), Answer::StreamSummary(line)] => {
            line.clone()
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn streams_are_counted_and_their_limit_warns() {
    let mmb = start("set stream max 2\nadd-stateful tcp-dport 80 stream \"x\" close\n");
    let _packets = mmb.packets();
    let none = stream_summary(&mmb);
    assert_eq!((none.unfit, none.warnings.len(), none.levels.len()), (0, 0, 0));
    let packet = |sport, flags| Tcp { sport, flags, ..Tcp::default() }.dport(80).over_ip4();
    // A SYN begins a stream; a connection that is picked up midway cannot be guarded.
    mmb.feed(&[packet(1, 2), packet(2, 16)]);
    let one = stream_summary(&mmb);
    assert_eq!(json!(one.levels), json!({"guard": 1}));
    assert_eq!(json!(one.states), json!({"syn-sent": 1}));
    assert_eq!((one.unfit, one.warnings.len()), (1, 0));
    assert_eq!((one.workers[0].streams, one.workers[0].max, one.workers[0].memory_max), (1, 2, 256 << 20));
    mmb.feed(&[packet(3, 2), packet(4, 2)]);
    let full = stream_summary(&mmb);
    assert_eq!(json!(full.levels), json!({"guard": 2}));
    assert_eq!(full.unfit, 2, "the fourth found no room");
    let warning = "`stream max` is reached (2): new connections pass without stream rules (`stream unfit`)";
    assert_eq!(full.warnings, [warning]);
}

#[test]
fn a_list_of_streams_says_whether_it_was_asked_for_in_particular() {
    let mmb = start("add-stateful tcp-dport 80 stream \"x\" close\n");
    let _packets = mmb.packets();
    for (command, selected) in
        [("show streams", false), ("show streams verbose", true), ("show streams state reset", true)]
    {
        let begin = AnswerBegin { command: 0, topic: Topic::Streams, selected };
        assert_eq!(mmb.run(command), [Answer::Begin(begin)], "{command}");
    }
}

#[test]
fn filters_choose() {
    let mmb = start(STATEFUL);
    let _packets = mmb.packets();
    mmb.feed(&[syn(), udp(5), udp(6), udp(7)]);
    let count = |filter: &str| listed(&mmb, filter).len();
    for (filter, expected) in [
        ("", 4),
        ("ip-proto udp", 3),
        ("udp-sport 5-6", 2),
        ("udp-dport dns", 3),
        ("tcp-sport 4000", 1),
        ("tcp-sport 7000", 1),
        ("tcp-sport 7001", 0),
        ("ip-saddr 10.0.0.0/8", 4),
        ("ip-daddr 10.0.0.1", 0),
        ("net-proto ip6", 0),
        ("state syn-sent", 1),
        ("state unreplied rule 1", 3),
        ("rule 2", 1),
        ("rule 3", 0),
    ] {
        assert_eq!(count(filter), expected, "{filter}");
    }
    let [error] = &mmb.refused(&["show connections ip-sadr 10.0.0.1"])[..] else { panic!("one error") };
    assert_eq!((error.column, error.suggestion.as_deref()), (Some(18), Some("ip-saddr")));
}

#[test]
fn connections_are_ended_on_request() {
    let mmb = start(STATEFUL);
    let _packets = mmb.packets();
    mmb.feed(&many());
    mmb.feed(&[syn()]);
    assert_eq!(summary(&mmb).connections, u64::from(MANY) + 1);
    assert_eq!(killed(&mmb, "conn kill udp-sport 1-1000"), 1000);
    assert_eq!(killed(&mmb, "conn kill udp-sport 1-1000"), 0);
    assert_eq!(killed(&mmb, "conn kill ip-proto tcp"), 1);
    assert_eq!(killed(&mmb, "conn kill all"), u64::from(MANY) - 1000);
    let summary = summary(&mmb);
    assert_eq!((summary.connections, summary.half_open), (0, 0));
    assert_eq!(summary.created, u64::from(MANY) + 1);
    assert_eq!(json!(summary.closed), json!({"killed": MANY + 1}));
}

#[test]
fn a_rule_is_deleted_with_its_connections_or_without() {
    let mmb = start(STATEFUL);
    let _packets = mmb.packets();
    mmb.feed(&[syn(), udp(5)]);
    let (answers, end) = mmb.ask(&Request::Run(vec!["del 1 --kill".into(), "show connections".into()]));
    assert!(matches!(&answers[0], Answer::Removed(rule) if rule.id == 1), "{answers:?}");
    assert_eq!(end.change.map(|change| change.removed), Some(1));
    assert!(answers.iter().any(|answer| matches!(answer, Answer::Killed(line) if line.connections == 1)));
    assert_eq!(lines(answers).len(), 1, "the other rule's stays");
    assert!(mmb.refused(&["del 1 --kill"])[0].message.contains("no rule 1"));
    mmb.run("del 2");
    assert_eq!(listed(&mmb, "").len(), 1);
    assert_eq!(json!(summary(&mmb).closed), json!({"rule-deleted": 1}));
}

#[test]
fn a_change_reports_the_connections_that_it_affects() {
    let mmb = start(STATEFUL);
    let _packets = mmb.packets();
    mmb.feed(&[udp(5), udp(6), syn()]);
    let affected = |request: &Request| {
        let (answers, end) = mmb.ask(request);
        assert!(end.ok, "{answers:?}");
        answers.into_iter().find_map(|answer| match answer {
            Answer::Affected(line) => Some((line.handed_over, line.lose_rules, line.lose_accept)),
            _ => None,
        })
    };
    let run = |command: &str| Request::Run(vec![command.into()]);
    assert_eq!(affected(&run("add udp-dport 9 drop")), None);
    // The same rules, but for a value, without ids. A dry run says the same and changes nothing.
    let changed = "add-stateful ip-proto udp accept\nadd-stateful ip-proto tcp mod tcp-sport 7001\n";
    assert_eq!(affected(&Request::DryRun(changed.into(), ConnectionFate::Release)), Some((1, 0, 0)));
    assert_eq!(affected(&Request::DryRun(String::new(), ConnectionFate::Release)), Some((0, 3, 2)));
    let (answers, end) = mmb.ask(&Request::DryRun("add all mod ip-ttl 9".into(), ConnectionFate::Release));
    assert_eq!(
        end.change.map(|change| (change.added, change.removed, change.kept, change.dry_run)),
        Some((1, 3, 0, true))
    );
    assert_eq!(answers.iter().filter(|answer| matches!(answer, Answer::Removed(_))).count(), 3);
    assert!(!mmb.ask(&Request::DryRun("add in nowhere drop".into(), ConnectionFate::Release)).1.ok);
    assert!(!mmb.ask(&Request::DryRun("add tcp-dport".into(), ConnectionFate::Release)).1.ok);
    assert_eq!(affected(&Request::Apply(changed.into(), ConnectionFate::Release)), Some((1, 0, 0)));
    assert_eq!(listed(&mmb, "ip-proto tcp")[0].rules, [2]);
    assert_eq!(affected(&run("del 1")), Some((0, 2, 2)));
    assert_eq!(affected(&run("del 2 --kill")), None, "they end");
}

#[test]
fn connections_of_removed_rules_keep_them_or_end_on_request() {
    let affected = |mmb: &Running, request: &Request| {
        let (answers, end) = mmb.ask(request);
        assert!(end.ok, "{answers:?}");
        let line = |answer: &Answer| if let Answer::Affected(line) = answer { Some(*line) } else { None };
        answers.iter().find_map(line).unwrap_or_default()
    };
    let keeps = AffectedLine { kept: 2, ..AffectedLine::default() };
    let run = |command: &str| Request::Run(vec![command.into()]);
    let started = || {
        let mmb = start(STATEFUL);
        mmb.feed(&[udp(5), udp(6)]);
        mmb
    };
    let tcp = "add-stateful id 2 ip-proto tcp mod tcp-sport 7000\n";
    let keep = Request::Apply(tcp.into(), ConnectionFate::Keep);
    for request in [run("del 1 --keep"), keep] {
        let mmb = started();
        let _packets = mmb.packets();
        assert_eq!(affected(&mmb, &request), keeps);
        assert!(mmb.rules()[0].starts_with("1 add-stateful draining"), "{:?}", mmb.rules());
        // A file without it leaves it to its connections.
        assert_eq!(
            affected(&mmb, &Request::Apply(tcp.into(), ConnectionFate::Release)),
            AffectedLine::default()
        );
        mmb.daemon.lock().expect("not poisoned").reclaim();
        Housekeeper::new(&mmb.daemon).look();
        assert_eq!(mmb.rules().len(), 2);
        assert_eq!(listed(&mmb, "rule 1").len(), 2);
        mmb.run("conn kill udp-sport 5");
        mmb.daemon.lock().expect("not poisoned").reclaim();
        Housekeeper::new(&mmb.daemon).look();
        assert_eq!(mmb.rules().len(), 2);
        mmb.run("conn kill udp-sport 6");
        let begun = Instant::now();
        while mmb.rules().len() > 1 {
            assert!(begun.elapsed() < FOREVER, "it is still there");
            mmb.daemon.lock().expect("not poisoned").reclaim();
            Housekeeper::new(&mmb.daemon).look();
        }
    }
    let mmb = started();
    let _packets = mmb.packets();
    let ends = AffectedLine { ended: 2, ..AffectedLine::default() };
    assert_eq!(affected(&mmb, &Request::DryRun(tcp.into(), ConnectionFate::Kill)), ends);
    assert_eq!(affected(&mmb, &Request::DryRun(tcp.into(), ConnectionFate::Keep)), keeps);
    assert_eq!((mmb.rules().len(), listed(&mmb, "").len()), (2, 2));
    let (answers, _) = mmb.ask(&Request::Apply(tcp.into(), ConnectionFate::Kill));
    assert!(answers.contains(&Answer::Killed(CountLine { connections: 2 })), "{answers:?}");
    assert_eq!(listed(&mmb, "").len(), 0);
    let refused = mmb.refused(&["add id 9 all drop", "del 9 --keep"]);
    assert!(refused[0].message.contains("rule 9 is not stateful"), "{refused:?}");
}

#[test]
fn a_limit_below_the_number_of_connections_is_noted() {
    let mmb = start(STATEFUL);
    let _packets = mmb.packets();
    mmb.feed(&[udp(5), udp(6), udp(7)]);
    let notes = |max: u32| -> Vec<String> {
        let note = |answer| if let Answer::Note(note) = answer { Some(note.message) } else { None };
        mmb.run(&format!("set conn max {max}")).into_iter().filter_map(note).collect()
    };
    let [note] = &notes(2)[..] else { panic!("one note") };
    assert!(note.starts_with("3 connections exist, more than `conn max` 2: they stay"), "{note}");
    assert_eq!((notes(3).len(), notes(1000).len(), notes(500).len()), (0, 0, 0));
    assert_eq!(summary(&mmb).connections, 3);
}

#[test]
fn refused_connections_are_counted_by_reason() {
    let mmb = start(&format!("set conn max 1\nset conn pickup strict\n{STATEFUL}"));
    let _packets = mmb.packets();
    let ack = Tcp { sport: 4001, flags: 0x10, ..Tcp::default() }.over_ip4();
    mmb.feed(&[ack]);
    let summary = summary(&mmb);
    assert_eq!((summary.connections, summary.max), (0, 1));
    assert_eq!(json!(summary.refused), json!({"conn-not-syn": 1}));
}

#[test]
fn a_worker_that_does_not_answer_is_reported() {
    let mmb = start(STATEFUL);
    mmb.feed(&[udp(5)]);
    let (answers, end) =
        mmb.ask(&Request::Run(vec!["del 2".into(), "show connections".into(), "list".into()]));
    let Some(Answer::Error(error)) = answers.last() else { panic!("{answers:?}") };
    assert_eq!((error.message.as_str(), error.command), ("worker 0 does not answer", Some(1)));
    assert!(!end.ok && end.change.is_some(), "what was changed stays so");
    assert_eq!(mmb.rules().len(), 1);
    assert_eq!(summary(&mmb).connections, 1, "this asks nobody");
}

#[test]
fn monitor_shows_events_with_reasons() {
    let mmb = start(STATEFUL);
    let _packets = mmb.packets();
    let mut watcher = watcher(&mmb);
    mmb.feed(&[udp(5)]);
    let event = |line: Value| serde_json::from_value::<EventLine>(line["event"].clone()).expect("an event");
    let first = event(next(&mut watcher));
    assert_eq!((first.what, first.connection.arrived.sport), (EventKind::Created, 5));
    mmb.run("conn kill udp-sport 5");
    let second = event(next(&mut watcher));
    assert_eq!((second.what, second.reason.as_deref()), (EventKind::Closed, Some("killed")));
    // Any request ends `monitor`, and is answered after it.
    watcher.get_ref().write_all(&wire(&["show version"])).expect("writes");
    assert_eq!(next(&mut watcher), json!({"end": {"v": 1, "ok": true}}));
    assert_eq!(next(&mut watcher), json!({"begin": {"command": 0, "topic": "version"}}));
}

#[test]
fn a_request_sent_ahead_ends_monitor_at_once() {
    let mmb = start(STATEFUL);
    let _packets = mmb.packets();
    let stream = mmb.stream();
    let first = raw(&stream, &[wire(&["monitor", "show conn summary"]), wire(&["list"])].concat());
    assert_eq!(first.last(), Some(&json!({"end": {"v": 1, "ok": true}})));
    assert!(
        first.iter().any(|line| line.get("summary").is_some()),
        "what is behind it is answered: {first:?}"
    );
}

#[test]
fn the_number_of_monitors_is_limited_and_recovers() {
    let mmb = start_with(STATEFUL, ServerLimits { monitors: 2, ..ServerLimits::default() });
    let _packets = mmb.packets();
    let first = watcher(&mmb);
    let _second = watcher(&mmb);
    let third = || watched(&mmb);
    let refused = third().expect_err("two watch");
    assert!(refused.contains("the limit of clients that run"), "{refused}");
    drop(first);
    wait_until("a place is never given back", || third().is_ok());
}

#[test]
fn a_client_that_dies_during_monitor_leaves_nothing() {
    let mmb = start(STATEFUL);
    let _packets = mmb.packets();
    for _ in 0..100 {
        drop(watcher(&mmb));
    }
    wait_until("places are never given back", || watched(&mmb).is_ok());
    mmb.feed(&many());
    assert_eq!(summary(&mmb).connections, u64::from(MANY));
    mmb.assert_alive();
}

#[test]
fn a_monitor_that_does_not_read_is_disconnected_and_loses_only_its_own_events() {
    let limits =
        ServerLimits { grace: Duration::from_millis(200), bytes_per_s: 1 << 30, ..ServerLimits::default() };
    let mmb = start_with(STATEFUL, limits);
    let _packets = mmb.packets();
    let mut sleeper = watcher(&mmb);
    wait_until("it is never let go", || {
        mmb.feed(&many());
        mmb.run("conn kill all");
        let mut fds = [rustix::event::PollFd::new(sleeper.get_ref(), rustix::event::PollFlags::empty())];
        rustix::event::poll(&mut fds, Some(&rustix::event::Timespec::default())) == Ok(1)
    });
    let mut rest = Vec::new();
    let _ = sleeper.read_to_end(&mut rest);
    assert!(rest.len() < 100 << 20, "what it did not read is not kept");
    mmb.assert_alive();
}

/// Returns the first packets of the connections of one round.
fn round(number: u16) -> Vec<Frame> {
    (1..=MANY).map(|sport| Udp { sport, ..Udp::default() }.dport(1000 + number).over_ip4()).collect()
}

#[test]
fn a_slow_monitor_receives_the_number_of_lost_events_and_another_one_loses_none() {
    const ROUNDS: u16 = if cfg!(debug_assertions) { 10 } else { 25 };
    let all = u64::from(ROUNDS) * u64::from(MANY);
    // The slow client is not disconnected in this test.
    let mmb = start_with(STATEFUL, ServerLimits { grace: FOREVER * 10, ..ServerLimits::default() });
    let _packets = mmb.packets();
    let (mut deaf, mut reader) = (watcher(&mmb), watcher(&mmb));
    for number in 0..ROUNDS {
        mmb.feed(&round(number));
        for _ in 0..MANY {
            let line = next(&mut reader);
            assert_eq!(line["event"]["what"], "created", "nothing is lost that is read: {line}");
        }
    }
    assert_eq!(summary(&mmb).created, all);
    let (mut told, mut lost) = (0, 0);
    while told + lost < all {
        let line = next(&mut deaf);
        match line.get("lost") {
            Some(number) => lost += number.as_u64().expect("a number"),
            None => told += u64::from(line["event"].is_object()),
        }
    }
    assert_eq!(told + lost, all);
    // The events that waited: those in the queue, in the socket and in the buffer before it.
    assert!(told < 20_000, "{told} events were kept for one who did not read");
    assert_eq!(summary(&mmb).events_lost, lost);
}

#[test]
fn a_list_that_is_not_read_delays_no_other_client() {
    let limits =
        ServerLimits { grace: Duration::from_millis(500), bytes_per_s: 1 << 30, ..ServerLimits::default() };
    let mmb = start_with(STATEFUL, limits);
    let _packets = mmb.packets();
    mmb.feed(&many());
    let sleeper = mmb.stream();
    (&sleeper).write_all(&wire(&["show connections"])).expect("writes");
    let mut some = [0; 100];
    (&sleeper).read_exact(&mut some).expect("an answer begins");
    let dying = mmb.stream();
    (&dying).write_all(&wire(&["show connections"])).expect("writes");
    drop(dying);
    assert_eq!(listed(&mmb, "").len(), usize::from(MANY));
    assert_eq!(killed(&mmb, "conn kill all"), u64::from(MANY));
    let mut fds = [rustix::event::PollFd::new(&sleeper, rustix::event::PollFlags::empty())];
    let forever = rustix::event::Timespec { tv_sec: FOREVER.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut fds, Some(&forever)), Ok(1), "it is let go");
}

#[test]
fn a_shutdown_ends_monitor() {
    let mut mmb = start(STATEFUL);
    let _packets = mmb.packets();
    let watcher = watcher(&mmb);
    mmb.server.take().expect("running").shutdown();
    let rest = answer(watcher.get_ref());
    assert!(rest.is_empty() || rest.last() == Some(&json!({"end": {"v": 1, "ok": true}})), "{rest:?}");
    assert_eq!(std::sync::Arc::strong_count(&mmb.daemon), 1, "no thread is left that knows the daemon");
}

#[test]
fn a_client_follows_until_it_is_interrupted() {
    let mmb = start(STATEFUL);
    let _packets = mmb.packets();
    let seen = std::cell::Cell::new(0);
    let monitor = Request::Run(vec!["monitor".into()]);
    let followed = mmb.client().follow::<ClientError>(
        &monitor,
        || seen.get() >= 10,
        |answer| {
            match answer {
                // From here on the client gets events.
                Answer::Begin(_) => _ = mmb.feed(&many()[..100]),
                Answer::Event(_) => seen.set(seen.get() + 1),
                _ => {}
            }
            Ok(())
        },
    );
    assert!(followed.is_ok_and(|end| end.ok));
    assert_eq!(seen.get(), 10);
    // The end of the daemon is no end of the answer.
    let (answers, end) = ask(&mut mmb.client(), &Request::Run(vec!["show conn summary".into()]));
    assert!(end.ok && answers.len() == 2);
}
