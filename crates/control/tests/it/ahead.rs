//! Requests sent ahead, and clients that change the policy at the same time.

use crate::common::{answer, start};
use mmb_protocol::request::{ConnectionFate, Request, encode};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

/// Writes all requests at once and reads the lines of all answers.
fn ahead(stream: &UnixStream, requests: &[Request]) -> Vec<Vec<Value>> {
    let mut bytes = Vec::new();
    requests.iter().for_each(|request| encode(request, &mut bytes).expect("a vector takes everything"));
    let mut writer = stream;
    writer.write_all(&bytes).expect("writes");
    let mut lines = BufReader::new(stream).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next()?.ok()?).ok();
    let answer = |_| {
        let mut answer = vec![next().expect("a line")];
        while answer.last().is_some_and(|line| line.get("end").is_none()) {
            answer.push(next().expect("a line"));
        }
        answer
    };
    requests.iter().map(answer).collect()
}

fn run(commands: &[&str]) -> Request {
    Request::Run(commands.iter().map(|command| (*command).to_owned()).collect())
}

fn ok(answer: &[Value]) -> bool {
    answer.last().is_some_and(|end| end["end"]["ok"] == json!(true))
}

#[test]
fn one_wrong_request_affects_no_other() {
    let mmb = start("add id 1 all mod ip-ttl 9");
    let stream = mmb.stream();
    let answers = ahead(
        &stream,
        &[
            run(&["add id 10 tcp-dport 1 drop"]),
            run(&["add id 11 in nowhere drop"]),
            run(&["add id 12 tcp-dport 2 drop", "del 99"]),
            run(&["add id 13 tcp-dprot 3 drop"]),
            run(&["del 10", "add id 10 tcp-dport 4 drop"]),
            Request::Names("1".into()),
            run(&["del 1"]),
            run(&["add id 10 tcp-dport 5 drop"]),
            Request::Apply(
                "add id 20 udp-dport 1 drop\nadd id 10 tcp-dport 4 drop".into(),
                ConnectionFate::Release,
            ),
            run(&["disable lan"]),
            run(&["disable nowhere"]),
        ],
    );
    let right: Vec<bool> = answers.iter().map(|answer| ok(answer)).collect();
    assert_eq!(right, [true, false, false, false, true, true, true, false, true, true, false]);
    assert!(answers[1][0]["error"]["error"].as_str().is_some_and(|text| text.contains("'nowhere'")));
    assert_eq!(answers[2][0]["error"]["command"], json!(1));
    assert_eq!(answers[4][0], json!({"removed": {"id": 10, "rule": "add tcp-dport 1 drop"}}));
    assert_eq!(answers[4][1], json!({"added": {"id": 10, "rule": "add tcp-dport 4 drop"}}));
    // A query between changes sees those before it and not those after it.
    let named: Vec<_> = answers[5].iter().filter_map(|line| line["rule"]["id"].as_u64()).collect();
    assert_eq!(named, [1, 10]);
    assert_eq!(
        answers[8].last().expect("an end")["end"]["change"],
        json!({"added": 1, "removed": 0, "kept": 1})
    );
    assert_eq!(mmb.rules(), ["10 add tcp-dport 4 drop", "20 add udp-dport 1 drop"]);
    assert!(mmb.run("show ports").iter().any(|line| format!("{line:?}").contains("enabled: false")));
}

#[test]
fn thousands_of_changes_sent_ahead_are_answered_one_by_one() {
    let mmb = start("");
    let adds: Vec<Request> =
        (1..=4000).map(|id| Request::Run(vec![format!("add id {id} tcp-dport {id} drop")])).collect();
    let writer = mmb.stream();
    let reader = writer.try_clone().expect("clones");
    let reading = std::thread::spawn(move || {
        let lines = BufReader::new(reader).lines().map_while(Result::ok);
        let mut added = 0;
        for line in lines {
            let value: Value = serde_json::from_str(&line).expect("JSON");
            if value.get("end").is_some() {
                assert_eq!(value["end"]["change"]["added"], json!(1));
                continue;
            }
            added += 1;
            assert_eq!(value["added"]["id"], json!(added));
            if added == 4000 {
                break;
            }
        }
        added
    });
    for request in &adds {
        encode(request, &writer).expect("writes");
    }
    assert_eq!(reading.join().expect("reads"), 4000);
    assert_eq!(mmb.rules().len(), 4000);
}

#[test]
fn clients_that_change_the_policy_at_the_same_time_each_get_their_own_answer() {
    let mmb = start("");
    std::thread::scope(|scope| {
        for client in 0..8 {
            let stream = mmb.stream();
            scope.spawn(move || {
                for round in 0..50 {
                    let id = 1 + client * 100 + round;
                    let add = run(&[&format!("add id {id} tcp-dport {id} drop")]);
                    let other = run(&[&format!("add id {id} udp-dport {id} drop")]);
                    let answers = ahead(&stream, &[add, other]);
                    assert!(ok(&answers[0]) && !ok(&answers[1]), "{answers:?}");
                    assert_eq!(answers[0][0]["added"]["id"], json!(id));
                    if round % 2 == 1 {
                        let [gone] = &ahead(&stream, &[run(&[&format!("del {id}")])])[..] else {
                            panic!("one answer")
                        };
                        assert_eq!(gone[0]["removed"]["rule"], json!(format!("add tcp-dport {id} drop")));
                    }
                }
            });
        }
    });
    assert_eq!(mmb.rules().len(), 8 * 25);
}

#[test]
fn an_answer_does_not_wait_for_the_rest_of_the_next_request() {
    let mmb = start("");
    let stream = mmb.stream();
    let mut bytes = Vec::new();
    encode(&run(&["add all drop"]), &mut bytes).expect("a vector takes everything");
    let second = bytes.clone();
    bytes.extend_from_slice(&second[..10]);
    (&stream).write_all(&bytes).expect("writes");
    assert!(ok(&answer(&stream)));
    (&stream).write_all(&second[10..]).expect("writes");
    assert!(ok(&answer(&stream)));
}
