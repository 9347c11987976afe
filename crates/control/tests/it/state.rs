//! The state of connections is saved and loaded in pieces; and clients that send something else, or a part of a state.

use crate::common::{Running, answer, raw, start, start_with};
use mmb_control::ServerLimits;
use mmb_engine::SavedState;
use mmb_language::parse_policy;
use mmb_protocol::ClientError;
use mmb_protocol::answer::{Answer, CountLine, LoadedLine};
use mmb_protocol::hex;
use mmb_protocol::request::{Request, encode};
use mmb_testkit::{Frame, Udp};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::time::Duration;

const LOAD: Request = Request::LoadState { verbose: false };
const STATEFUL: &str = "add-stateful id 1 ip-proto udp accept\n";

/// The number of connections whose state has many pieces.
const MANY: u16 = 4_000;

fn many() -> Vec<Frame> {
    (1..=MANY).map(|sport| Udp { sport, ..Udp::default() }.over_ip4()).collect()
}

fn save(mmb: &Running) -> Vec<u8> {
    let (answers, end) = mmb.ask(&Request::SaveState);
    assert!(end.ok, "{answers:?}");
    let Some((Answer::Saved(CountLine { connections }), pieces)) = answers.split_last() else {
        panic!("a count")
    };
    assert_eq!(*connections, now(mmb));
    let piece = |piece: &Answer| match piece {
        Answer::State(piece) => hex::decode(piece).expect("hexadecimal"),
        other => panic!("{other:?}"),
    };
    assert!(pieces.len() > 10, "in pieces");
    pieces.iter().flat_map(piece).collect()
}

fn now(mmb: &Running) -> u64 {
    match &mmb.run("show conn summary")[..] {
        [Answer::Begin(_), Answer::Summary(line)] => line.connections,
        other => panic!("{other:?}"),
    }
}

fn wire(requests: &[Request]) -> Vec<u8> {
    let mut bytes = Vec::new();
    requests.iter().for_each(|request| encode(request, &mut bytes).expect("a vector takes everything"));
    bytes
}

fn piece(bytes: &[u8]) -> Request {
    Request::Piece(hex::encode(bytes))
}

/// Returns the requests of a state, with its end.
fn pieces(state: &[u8], size: usize) -> Vec<Request> {
    let pieces = state.chunks(size).map(piece);
    [LOAD].into_iter().chain(pieces).chain([piece(&[])]).collect()
}

fn error(lines: &[Value]) -> &str {
    assert_eq!(lines.last(), Some(&json!({"end": {"v": 1, "ok": false}})), "{lines:?}");
    lines[0]["error"]["error"].as_str().expect("a message")
}

/// Returns the state of many connections.
fn state() -> Vec<u8> {
    let mmb = start(STATEFUL);
    let _packets = mmb.packets();
    mmb.feed(&many());
    save(&mmb)
}

#[test]
fn connections_move_from_one_daemon_to_another() {
    let state = state();
    let mmb = start(STATEFUL);
    let _packets = mmb.packets();
    let mut loaded = Vec::new();
    let end = mmb.client().load(&mut &state[..], false, |answer| {
        loaded.push(answer);
        Ok::<(), ClientError>(())
    });
    assert!(end.expect("an answer").ok);
    assert_eq!(loaded, [Answer::Loaded(LoadedLine { connections: MANY.into(), ..LoadedLine::default() })]);
    assert_eq!(now(&mmb), u64::from(MANY));
    // The size of pieces does not matter.
    mmb.run("conn kill all");
    let stream = mmb.stream();
    let mut requests = pieces(&state[..5_000], 1);
    requests.pop();
    requests.extend(pieces(&state[5_000..], 100_000).split_off(1));
    let mut writer = stream.try_clone().expect("clones");
    let sender = std::thread::spawn(move || writer.write_all(&wire(&requests)).expect("writes"));
    let lines = answer(&stream);
    sender.join().expect("sends");
    assert_eq!(lines[0], json!({"loaded": {"connections": MANY, "lost_rules": 0, "left_out": {}}}));
    let listed = raw(&stream, &wire(&[Request::Run(vec!["list".into()])]));
    assert_eq!(listed[0]["begin"]["topic"], "rules", "the conversation goes on");
}

/// Connections that were left out were missing without a word.
#[test]
fn the_number_of_connections_left_out_is_reported_by_reason() {
    let state = state();
    let mmb = start(&format!("set conn max 1000\n{STATEFUL}"));
    let _packets = mmb.packets();
    let (stream, requests) = (mmb.stream(), wire(&pieces(&state, 10_000)));
    let full = u64::from(MANY) - 1000;
    for (made, left_out) in
        [(1000, json!({"conn-full": full})), (0, json!({"conn-full": full, "nat-clash": 1000}))]
    {
        let (mut writer, requests) = (stream.try_clone().expect("clones"), requests.clone());
        let sender = std::thread::spawn(move || writer.write_all(&requests).expect("writes"));
        assert_eq!(
            answer(&stream)[0],
            json!({"loaded": {"connections": made, "lost_rules": 0, "left_out": left_out}})
        );
        sender.join().expect("sends");
    }
}

/// A state was read to its end without a check of memory.
#[test]
fn a_state_that_does_not_fit_the_memory_is_refused_and_the_session_continues() {
    let state = state();
    let mmb = start(STATEFUL);
    let _packets = mmb.packets();
    let stream = mmb.stream();
    for (megabytes, fits) in [(32, false), (40, true)] {
        *mmb.memory.lock().expect("not poisoned") = Some(megabytes << 20);
        let mut writer = stream.try_clone().expect("clones");
        let requests = wire(&pieces(&state, 10_000));
        let sender = std::thread::spawn(move || writer.write_all(&requests).expect("writes"));
        let lines = answer(&stream);
        sender.join().expect("all of it is taken");
        if fits {
            assert_eq!(lines[0], json!({"loaded": {"connections": MANY, "lost_rules": 0, "left_out": {}}}));
        } else {
            assert!(error(&lines).contains("not enough memory"), "{lines:?}");
            assert_eq!(now(&mmb), 0);
        }
    }
}

#[test]
fn a_piece_without_load_state_is_refused() {
    let mmb = start(STATEFUL);
    assert!(error(&raw(&mmb.stream(), &wire(&[piece(b"abc")]))).contains("follows 'load-state'"));
}

#[test]
fn a_damaged_state_is_refused_and_the_session_continues() {
    let mmb = start(STATEFUL);
    let _packets = mmb.packets();
    let stream = mmb.stream();
    let long = vec![b'x'; 1 << 20];
    let mut writer = stream.try_clone().expect("clones");
    let sender = std::thread::spawn(move || writer.write_all(&wire(&pieces(&long, 10_000))).expect("writes"));
    assert!(error(&answer(&stream)).contains("no state"));
    sender.join().expect("all of it is taken");
    assert!(error(&raw(&stream, &wire(&pieces(b"", 1)))).contains("ends"));
    let not_hex = [LOAD, Request::Piece("0g".into())];
    assert!(error(&raw(&stream, &wire(&not_hex))).contains("hexadecimal"));
    let other = [LOAD, Request::Save];
    assert!(error(&raw(&stream, &wire(&other))).contains("without its last piece"));
    assert_eq!(raw(&stream, &wire(&[Request::Save])).last(), Some(&json!({"end": {"v": 1, "ok": true}})));
    assert_eq!(now(&mmb), 0);
}

/// A state was refused only at its end, so that an endless input was read without end.
#[test]
fn a_damaged_state_is_refused_before_its_end() {
    let mmb = start(STATEFUL);
    let _packets = mmb.packets();
    let stream = mmb.stream();
    (&stream).write_all(&wire(&[LOAD, piece(&[b'x'; 100])])).expect("writes");
    let mut reader = BufReader::new(&stream);
    let mut line = String::new();
    reader.read_line(&mut line).expect("reads");
    assert!(line.contains("no state"), "{line}");
    let rest = raw(&stream, &wire(&[piece(b"more"), piece(&[])]));
    assert_eq!(rest, [json!({"end": {"v": 1, "ok": false}})]);
    assert_eq!(raw(&stream, &wire(&[Request::Save])).last(), Some(&json!({"end": {"v": 1, "ok": true}})));

    let mut zeroes = std::io::repeat(0).take(1 << 32);
    let mut said = Vec::new();
    let end = mmb.client().load(&mut zeroes, false, |answer| {
        said.push(answer);
        Ok::<(), ClientError>(())
    });
    assert!(!end.expect("an answer").ok);
    assert!(matches!(&said[..], [Answer::Error(error)] if error.message.contains("no state")), "{said:?}");
    assert!(zeroes.limit() > 0, "all of it was sent");
}

/// The additional data was skipped.
#[test]
fn a_state_with_data_after_its_end_is_refused() {
    let state = state();
    let mmb = start(STATEFUL);
    let _packets = mmb.packets();
    let longer = [&state[..], b"x"].concat();
    let (mut said, mut client) = (Vec::new(), mmb.client());
    let end = client.load(&mut &longer[..], false, |answer| {
        said.push(answer);
        Ok::<(), ClientError>(())
    });
    assert!(!end.expect("an answer").ok);
    assert!(
        matches!(&said[..], [Answer::Error(error)] if error.message.contains("more behind the end")),
        "{said:?}"
    );
    assert_eq!(now(&mmb), 0);
    assert!(
        client.load(&mut &state[..], false, |_| Ok::<(), ClientError>(())).expect("an answer").ok,
        "the conversation goes on"
    );
    assert_eq!(now(&mmb), u64::from(MANY));
}

#[test]
fn a_client_that_stops_within_a_state_is_disconnected() {
    let state = state();
    let limits = ServerLimits { grace: Duration::from_millis(200), ..ServerLimits::default() };
    let mmb = start_with(STATEFUL, limits);
    let _packets = mmb.packets();
    let mut half = pieces(&state, 10_000);
    half.truncate(half.len() / 2);
    // It waits,
    let mut stream = mmb.stream();
    stream.write_all(&wire(&half)).expect("writes");
    assert!(error(&answer(&stream)).contains("did not come"));
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    // it ends,
    mmb.run("conn kill all");
    let mut stream = mmb.stream();
    stream.write_all(&wire(&half)).expect("writes");
    stream.shutdown(Shutdown::Write).expect("shuts");
    assert!(error(&answer(&stream)).contains("did not come"));
    // or it dies.
    for _ in 0..10 {
        mmb.stream().write_all(&wire(&half)).expect("writes");
    }
    mmb.assert_alive();
    assert!(now(&mmb) < u64::from(MANY));
}

#[test]
fn a_client_that_does_not_read_its_state_is_disconnected() {
    let limits =
        ServerLimits { grace: Duration::from_secs(2), bytes_per_s: 1 << 30, ..ServerLimits::default() };
    let mmb = start_with(STATEFUL, limits);
    let _packets = mmb.packets();
    mmb.feed(&many());
    let sleeper = mmb.stream();
    (&sleeper).write_all(&wire(&[Request::SaveState])).expect("writes");
    let mut fds = [rustix::event::PollFd::new(&sleeper, rustix::event::PollFlags::empty())];
    let forever = rustix::event::Timespec { tv_sec: 30, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut fds, Some(&forever)), Ok(1), "it is never let go");
    assert_eq!(save(&mmb).len(), state().len());
}

#[test]
fn a_worker_that_does_not_answer_is_reported() {
    let mmb = start(STATEFUL);
    let (answers, end) = mmb.ask(&Request::SaveState);
    assert!(!end.ok && matches!(answers.last(), Some(Answer::Error(_))), "{answers:?}");
}

/// A rule was found by its number, which another rule may have by now.
#[test]
fn rules_of_a_state_are_found_by_their_text() {
    let state = state();
    let mmb = start("add-stateful id 1 ip-proto tcp accept\nadd-stateful id 7 ip-proto udp accept\n");
    let _packets = mmb.packets();
    assert!(mmb.client().load(&mut &state[..], false, |_| Ok::<(), ClientError>(())).expect("an answer").ok);
    let connections = mmb.run("show connections udp-sport 7");
    let [_, Answer::Connection(connection)] = &connections[..] else { panic!("{connections:?}") };
    assert_eq!(connection.rules, [7]);
    let other = start("add-stateful id 1 ip-proto tcp accept\n");
    let _packets = other.packets();
    let mut loaded = Vec::new();
    let end = other.client().load(&mut &state[..], false, |answer| {
        loaded.push(answer);
        Ok::<(), ClientError>(())
    });
    assert!(end.expect("an answer").ok);
    let many = u64::from(MANY);
    let line = LoadedLine { connections: many, lost_rules: many, ..LoadedLine::default() };
    assert_eq!(loaded, [Answer::Loaded(line)]);
}

#[test]
fn connections_that_are_left_out_are_listed_on_request() {
    let state = state();
    let mmb = start(STATEFUL);
    let _packets = mmb.packets();
    mmb.feed(&many()[..3]);
    for (verbose, listed) in [(true, 3), (false, 0)] {
        let mut answers = Vec::new();
        let end = mmb.client().load(&mut &state[..], verbose, |answer| {
            answers.push(answer);
            Ok::<(), ClientError>(())
        });
        assert!(end.expect("an answer").ok);
        let Some((Answer::Loaded(loaded), left_out)) = answers.split_last() else { panic!("{answers:?}") };
        assert_eq!(left_out.len(), listed);
        assert!(
            left_out.iter().all(|line| matches!(line, Answer::LeftOut(line) if line.reason == "nat-clash"))
        );
        assert_eq!(loaded.left_out, json!({"nat-clash": 3}).as_object().expect("an object").clone());
        mmb.run("conn kill udp-sport 4-65535");
    }
}

#[test]
fn rules_without_ids_get_those_that_they_had() {
    let mmb = start("add-stateful id 4 ip-proto udp accept\nadd id 9 tcp-dport 80 drop\n");
    let _packets = mmb.packets();
    let (answers, _) = mmb.ask(&Request::SaveState);
    let pieces: Vec<u8> = answers
        .iter()
        .filter_map(|answer| if let Answer::State(piece) = answer { hex::decode(piece) } else { None })
        .flatten()
        .collect();
    let state = SavedState::read(&mut &pieces[..], 0).expect("whole");
    let ids = |text: &str| {
        let file = parse_policy(text).expect("parses").0;
        mmb_control::state::followed(&state, file).rules.keys().map(|id| id.0).collect::<Vec<_>>()
    };
    assert_eq!(
        ids("add udp-dport 53 drop\nadd tcp-dport 80 drop\nadd-stateful ip-proto udp accept\n"),
        [4, 9, 10]
    );
    assert_eq!(ids("add id 2 tcp-dport 80 drop\n"), [2], "a file has the last word");
}
