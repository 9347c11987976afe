//! Servers of load balancers as clients see them.

use crate::common::{Running, start};
use mmb_engine::Verdict;
use mmb_packet::PortId;
use mmb_protocol::answer::{Answer, AnswerBegin, CountLine, ServerLine, ServerStateLine, Topic};
use mmb_testkit::{Frame, Tcp};

const POLICY: &str = "add-stateful id 5 tcp-dport 80 lb ip-daddr {10.0.0.1, 10.0.0.2 weight 2} rr\n\
                      add-stateful id 6 tcp-dport 81 lb ip-daddr {10.0.0.1, 10.0.0.3} least\n";

fn syn(sport: u16) -> Frame {
    Tcp { sport, flags: 2, ..Tcp::default() }.dport(80).over_ip4()
}

fn servers(mmb: &Running, command: &str) -> Vec<ServerLine> {
    let mut answers = mmb.run(command).into_iter();
    let begin = answers.next();
    assert!(matches!(begin, Some(Answer::Begin(AnswerBegin { topic: Topic::Servers, .. }))), "{begin:?}");
    let line = |answer| match answer {
        Answer::Server(line) => line,
        other => panic!("{other:?}"),
    };
    answers.map(line).collect()
}

fn ordered(rule: u32, server: &str, state: &str) -> Answer {
    let (server, state, open) = (server.to_owned(), state.to_owned(), state == "up");
    Answer::ServerState(ServerStateLine { rule, server, state, open })
}

#[test]
fn servers_are_shown_with_what_they_have() {
    let mmb = start(POLICY);
    let _packets = mmb.packets();
    let frames: Vec<_> = (1..=6).map(syn).collect();
    assert_eq!(mmb.feed(&frames), [Verdict::Send(PortId(1)); 6]);
    let all = servers(&mmb, "show servers");
    let found: Vec<_> = all
        .iter()
        .map(|line| (line.rule, &*line.server, line.weight, line.connections, line.packets))
        .collect();
    let expected = [
        (5, "10.0.0.1", Some(1), 2, Some(2)),
        (5, "10.0.0.2", Some(2), 4, Some(4)),
        (6, "10.0.0.1", Some(1), 0, Some(0)),
        (6, "10.0.0.3", Some(1), 0, Some(0)),
    ];
    assert_eq!(found, expected);
    assert!(all.iter().all(|line| line.open && line.state == "up" && line.since_ms.is_none()));
    assert_eq!(all[1].bytes, all[0].bytes.map(|bytes| bytes * 2));
    let terse = servers(&mmb, "show servers --terse");
    assert_eq!((terse[1].total, terse[1].packets, terse[1].bytes), (4, None, None));
    mmb.run("clear counters");
    let cleared = servers(&mmb, "show servers");
    assert_eq!((cleared[1].connections, cleared[1].total, cleared[1].packets), (4, 0, Some(0)));
}

#[test]
fn servers_are_taken_out_and_put_back() {
    let mmb = start(POLICY);
    let _packets = mmb.packets();
    let frames: Vec<_> = (1..=6).map(syn).collect();
    mmb.feed(&frames);
    // All rules that have it, or one.
    assert_eq!(
        mmb.run("server drain 10.0.0.1"),
        [ordered(5, "10.0.0.1", "drain"), ordered(6, "10.0.0.1", "drain")]
    );
    assert_eq!(mmb.run("server up 10.0.0.1 in 6"), [ordered(6, "10.0.0.1", "up")]);
    mmb.run("server failed 10.0.0.3 because \"it \\\"burns\\\"\"");
    let all = servers(&mmb, "show servers");
    assert_eq!(all.iter().map(|line| &*line.state).collect::<Vec<_>>(), ["drain", "up", "up", "failed"]);
    assert!(all[0].since_ms.is_some() && all[0].reason.is_none() && all[0].checked_ms.is_none());
    let failed = &all[3];
    assert_eq!((failed.reason.as_deref(), failed.health.as_deref()), (Some("it \"burns\""), Some("failed")));
    assert!(failed.checked_ms.is_some());
    let killed = Answer::Killed(CountLine { connections: 4 });
    assert_eq!(
        mmb.run("server down 10.0.0.2 because maintenance --kill"),
        [ordered(5, "10.0.0.2", "down"), killed]
    );
    assert_eq!(servers(&mmb, "show servers")[1].connections, 0);
    // A state is no part of the policy.
    assert_eq!(mmb.rules().len(), 2);
    assert!(!mmb.rules().concat().contains("drain"));
    let refused = mmb.refused(&["server down 10.0.0.9"]);
    assert!(refused[0].message.starts_with("no rule balances over 10.0.0.9"), "{refused:?}");
    let refused = mmb.refused(&["server down 10.0.0.3 in 5"]);
    assert!(refused[0].message.starts_with("rule 5 does not balance over 10.0.0.3"), "{refused:?}");
}
