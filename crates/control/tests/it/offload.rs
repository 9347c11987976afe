//! The flow offload as clients see it, on a host that invents one.

use crate::common::{Running, start};
use mmb_engine::{NoCycles, Verdict};
use mmb_packet::PortId;
use mmb_policy::RuleId;
use mmb_protocol::answer::{Answer, AnswerBegin, OffloadLine, PortOffloadLine, Topic, TrafficLine};
use mmb_testkit::{Ip4, Tcp, Udp, Upper};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

/// What follows the beginning of an answer to `show offload`: the numbers and the ports.
fn offload(mmb: &Running) -> (OffloadLine, Vec<PortOffloadLine>) {
    let answers = mmb.run("show offload");
    let [Answer::Begin(AnswerBegin { topic: Topic::Offload, .. }), Answer::Offload(line), ports @ ..] =
        &answers[..]
    else {
        panic!("{answers:?}")
    };
    let port = |answer: &Answer| match answer {
        Answer::PortOffload(line) => line.clone(),
        other => panic!("{other:?}"),
    };
    (line.clone(), ports.iter().map(port).collect())
}

fn offloaded(mmb: &Running) -> Option<TrafficLine> {
    let answers = mmb.run("show runtime");
    answers.into_iter().find_map(|answer| match answer {
        Answer::Offloaded(line) => Some(line),
        _ => None,
    })
}

#[test]
fn a_host_without_offload_has_no_ports_with_it() {
    let mmb = start("");
    mmb.feed(&[Udp::default().over_ip4()]);
    let nothing = OffloadLine { setting: "auto".to_owned(), ..OffloadLine::default() };
    assert_eq!(offload(&mmb), (nothing, vec![]));
    assert_eq!(offloaded(&mmb), None);
}

#[test]
fn ports_say_how_they_offload_or_why_not() {
    let mmb = start("set offload off");
    mmb.offload_lan();
    mmb.feed(&[Udp::default().over_ip4(), Tcp::default().over_ip4()]);
    let port = |port: &str, how: Option<&str>, reason: Option<&str>| {
        let [how, reason] = [how, reason].map(|text| text.map(str::to_owned));
        PortOffloadLine { port: port.to_owned(), how, reason }
    };
    let (line, ports) = offload(&mmb);
    assert_eq!(ports, [port("lan", Some("tcx"), None), port("wan", None, Some("it is no kernel interface"))]);
    assert_eq!((line.setting.as_str(), line.misses, line.hits), ("off", 0, TrafficLine::default()));
    assert_eq!(offloaded(&mmb), Some(TrafficLine::default()), "the host could");
    mmb.run("set offload auto");
    mmb.run("clear counters");
    let (line, _) = offload(&mmb);
    assert_eq!((line.setting.as_str(), line.misses), ("auto", 0));
}

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// Has the worker process segments of one connection, which arrive at `lan` or are the answers at `wan`.
fn segments(mmb: &Running, port: u16, flags: u8, count: usize) {
    let (client, server) = (([10, 0, 0, 1].into(), 1001), ([192, 0, 2, 80].into(), 80));
    let ((source, sport), (destination, dport)) = if port == 0 { (client, server) } else { (server, client) };
    let seq = [100, 200][usize::from(port)] + u32::from(flags & SYN == 0);
    let ack = if flags == SYN { 0 } else { [201, 101][usize::from(port)] };
    let upper = Upper::Tcp(Tcp { sport, dport, flags, seq, ack, ..Tcp::default() });
    let mut frames = vec![Ip4 { source, destination, ..Ip4::new(upper) }.frame().bytes(); count];
    let verdicts = mmb.feed_bytes_at(PortId(port), &mut frames);
    assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Send(_))), "{verdicts:?}");
}

/// A daemon whose connection has 200 packets, some of which are not counted for its rule yet, and no thread that runs the worker.
fn with_packets_to_count() -> Running {
    let mmb = start("add-stateful all accept");
    for (port, flags, count) in
        [(0, SYN, 1), (1, SYN | ACK, 1), (0, ACK, 2), (1, ACK, 2), (0, ACK, 94), (0, ACK, 100)]
    {
        segments(&mmb, port, flags, count);
    }
    assert!(counted(&mmb) < 200, "all are counted");
    mmb
}

fn counted(mmb: &Running) -> u64 {
    mmb.daemon.lock().expect("no panic").engine().rule_count(RuleId(1)).matched.packets
}

#[test]
fn every_question_about_counters_asks_the_workers_for_them() {
    let questions = ["list", "show ports", "show errors", "show runtime", "show offload", "clear counters"];
    thread::scope(|scope| {
        for question in questions {
            scope.spawn(move || {
                let mmb = with_packets_to_count();
                let worker = Arc::clone(&mmb.worker);
                // An answer that waits for no worker is there before the worker runs.
                let answers = thread::spawn(move || {
                    thread::sleep(Duration::from_millis(500));
                    worker.lock().expect("not poisoned").process(0, &NoCycles, &mut [], &mut []);
                });
                mmb.run(question);
                let all = if question == "clear counters" { 0 } else { 200 };
                assert_eq!(counted(&mmb), all, "{question}");
                answers.join().expect("no panic");
            });
        }
    });
}

#[test]
fn questions_without_counters_wait_for_no_worker() {
    let mmb = with_packets_to_count();
    let (asked, done) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            for question in
                ["show settings", "show version", "show tables", "show conn summary", "list --terse"]
            {
                mmb.run(question);
            }
            asked.send(()).expect("somebody waits");
        });
        // A task for the worker would wait for longer.
        assert_eq!(done.recv_timeout(Duration::from_secs(4)), Ok(()));
    });
    assert!(counted(&mmb) < 200);
}
