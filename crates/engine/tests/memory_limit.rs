//! Connections where memory ends before `conn max` does: new ones are refused and counted, and those that are there go on. Policies
//! whose pools do not fit: they are refused. And engines that are created with as much as their bound says.
//!
//! A test runs its program again, which limits its own address space (as `ulimit -v` does): an allocation that fails and is not expected
//! to aborts it.

#[path = "it/host/mod.rs"]
mod host;

use host::engine;
use mmb_engine::{DropReason, Engine, NoCycles, Origin, Verdict, Worker};
use mmb_packet::{LinkType, Packet, PortId};
use mmb_random::SeedTree;
use mmb_testkit::{Ip4, Udp, Upper};
use std::net::Ipv4Addr;
use std::process::Command;

/// What runs in such a program, and the bytes of address space that it has beyond what it takes before it makes connections: records
/// end first, or what hangs on them.
const TESTS: [(&str, u64); 6] = [
    ("an_engine_of_one_worker_fits_its_bound", Engine::start_bytes(1)),
    ("an_engine_of_eight_workers_fits_its_bound", Engine::start_bytes(8)),
    ("connections_until_memory_ends", 20 << 20),
    ("connections_until_memory_ends", 28 << 20),
    ("translations_until_memory_ends", 32 << 20),
    ("pools_that_do_not_fit", 64 << 20),
];

/// Tells the program that is run again how much it has.
const VARIABLE: &str = "MMB_TEST_ROOM";

/// Packets that are tried after the first one was refused.
const MORE: u32 = 2000;

fn verdict(worker: &mut Worker, port: u16, frame: &mut [u8]) -> Verdict {
    let len = frame.len();
    let packet = Packet::new(frame, 0, len, PortId(port), LinkType::Ethernet).expect("a frame");
    let mut verdicts = [Verdict::Send(PortId(u16::MAX))];
    worker.process(1_000_000_000, &NoCycles, &mut [packet], &mut verdicts);
    verdicts[0]
}

/// A datagram of a client by its number, or the answer to it.
fn frame(number: u32, is_answer: bool) -> Vec<u8> {
    let ends = [Ipv4Addr::from(0x0a00_0000 + (number >> 4)), Ipv4Addr::new(192, 0, 2, 1)];
    let ports = [1024 + (number & 15) as u16, 53];
    let [from, to] = if is_answer { [1, 0] } else { [0, 1] };
    let datagram = Udp { sport: ports[from], dport: ports[to], ..Udp::default() };
    Ip4 { source: ends[from], destination: ends[to], ..Ip4::new(Upper::Udp(datagram)) }.frame().bytes()
}

#[test]
#[ignore = "runs in a process of its own"]
fn connections_until_memory_ends() {
    let (engine, mut worker) =
        engine("set conn max 100000000\nadd-stateful in a ip-proto udp shuffle ip-id accept\nadd all drop");
    limit_address_space();
    let refused = Verdict::Drop(DropReason::ConnNoMemory);
    // Both ends want what is answered at once, so that it makes no room for others.
    let mut made = 0;
    while verdict(&mut worker, 0, &mut frame(made, false)) != refused {
        assert_eq!(verdict(&mut worker, 1, &mut frame(made, true)), Verdict::Send(PortId(0)));
        made += 1;
    }
    assert!(made > 10_000, "{made} connections");
    let others =
        (made..made + MORE).filter(|other| verdict(&mut worker, 0, &mut frame(*other, false)) == refused);
    let others = others.count();
    let summary = engine.connections().summary();
    assert_eq!(summary.created + others as u64, u64::from(made + MORE), "each is made or refused");
    for number in (0..made).step_by(1000) {
        for (port, is_answer) in [(0, false), (1, true)] {
            let verdict = verdict(&mut worker, port, &mut frame(number, is_answer));
            assert_eq!(verdict, Verdict::Send(PortId(1 - port)), "{number} goes on");
        }
    }
    println!("done: {made} connections were made");
}

/// Takes a frame to the worker that it belongs to.
fn verdict_among(workers: &mut [Worker; 2], port: u16, frame: &mut [u8]) -> Verdict {
    let len = frame.len();
    let mut packets = [Packet::new(frame, 0, len, PortId(port), LinkType::Ethernet).expect("a frame")];
    let mut verdicts = [Verdict::Send(PortId(u16::MAX))];
    workers[0].process(1_000_000_000, &NoCycles, &mut packets, &mut verdicts);
    if verdicts[0] == Verdict::Hand(1) {
        workers[1].process_from(Origin::Worker, 1_000_000_000, &NoCycles, &mut packets, &mut verdicts);
    }
    verdicts[0]
}

/// Bindings, peers, servers' counts and owners end too; what there is no memory for does not pass untranslated.
#[test]
#[ignore = "runs in a process of its own"]
fn translations_until_memory_ends() {
    let (mut engine, workers) = Engine::new(host::ports(), 2, &SeedTree::repeatable(1));
    let text = "set conn max 100000000\n\
                add-stateful in a ip-proto udp map ip-saddr 200.0.0.0/12 lb ip-daddr {10.128.0.0/9} least\n";
    engine.publish(&host::policy(text)).expect("it can be put in force");
    let Ok(mut workers) = <[Worker; 2]>::try_from(workers) else { panic!("two workers") };
    assert_eq!(verdict_among(&mut workers, 0, &mut frame(0, false)), Verdict::Send(PortId(1)));
    limit_address_space();
    let refused = Verdict::Drop(DropReason::ConnNoMemory);
    let mut made = 1;
    let mut ends = [(Ipv4Addr::UNSPECIFIED, 0); 2];
    loop {
        let mut sent = frame(made, false);
        match verdict_among(&mut workers, 0, &mut sent) {
            Verdict::Send(PortId(1)) => made += 1,
            verdict => break assert_eq!(verdict, refused),
        }
        // Both ends want it: the server that was chosen answers.
        ends = [end_of(&sent, 1), end_of(&sent, 0)];
        assert_eq!(verdict_among(&mut workers, 1, &mut answer(ends)), Verdict::Send(PortId(0)));
    }
    assert!(made > 5_000, "{made} connections");
    for other in made..made + MORE {
        let mut sent = frame(other, false);
        let verdict = verdict_among(&mut workers, 0, &mut sent);
        let is_translated = verdict == Verdict::Send(PortId(1)) && sent[26] == 200;
        assert!(is_translated || verdict == refused, "{other}: {verdict:?}");
        // Another port of the same server, whom address-dependent filtering lets in.
        let mut stranger = answer([(ends[0].0, other as u16 | 1 << 15), ends[1]]);
        let verdict = verdict_among(&mut workers, 1, &mut stranger);
        assert!(
            verdict == Verdict::Send(PortId(0)) && stranger[30] == 10 || verdict == refused,
            "{other}: {verdict:?}"
        );
    }
    let drops = engine.drops();
    assert!(drops.iter().all(|(reason, _)| *reason == DropReason::ConnNoMemory), "{drops:?}");
    println!("done: {made} connections were made");
}

/// The source or destination of a frame, with its port.
fn end_of(frame: &[u8], side: usize) -> (Ipv4Addr, u16) {
    let address: [u8; 4] = frame[26 + 4 * side..][..4].try_into().expect("four bytes");
    (address.into(), u16::from_be_bytes([frame[34 + 2 * side], frame[35 + 2 * side]]))
}

fn answer([from, to]: [(Ipv4Addr, u16); 2]) -> Vec<u8> {
    let datagram = Udp { sport: from.1, dport: to.1, ..Udp::default() };
    Ip4 { source: from.0, destination: to.0, ..Ip4::new(Upper::Udp(datagram)) }.frame().bytes()
}

/// Leaves this program as much as it was told.
fn limit_address_space() {
    let room: u64 = std::env::var(VARIABLE).ok().and_then(|room| room.parse().ok()).expect("how much it has");
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a line of it");
    let taken: u64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
    let limit = format!("--as={}", (taken << 10) + room);
    let limited = Command::new("prlimit").args(["--pid", &std::process::id().to_string(), &limit]).status();
    assert!(limited.expect("util-linux is installed").success());
}

#[test]
#[ignore = "runs in a process of its own"]
fn an_engine_of_one_worker_fits_its_bound() {
    create_within_the_limit(1);
}

#[test]
#[ignore = "runs in a process of its own"]
fn an_engine_of_eight_workers_fits_its_bound() {
    create_within_the_limit(8);
}

/// Hosts compare the bound with what there is before they create an engine.
fn create_within_the_limit(workers: usize) {
    limit_address_space();
    let (_engine, created) = Engine::new(host::ports(), workers, &SeedTree::repeatable(1));
    assert_eq!(created.len(), workers);
    println!("done");
}

/// Pools were made by the worker, which aborted without memory.
#[test]
#[ignore = "runs in a process of its own"]
fn pools_that_do_not_fit() {
    let (mut engine, mut worker) = engine("add all accept");
    limit_address_space();
    let [searched, edited] =
        ["stream {\"GET\", /a[0-9]{1,9}b/} close", "http-body /secret [0-9]{1,9}/ strip http-body"];
    for (settings, rule) in [
        ("set stream memory 100000", searched),
        ("set stream memory 100000", edited),
        ("set stream memory 1048576", searched),
        ("set stream memory 128", searched),
        ("set stream memory 1\nset stream max 10000000", searched),
    ] {
        let text = format!("{settings}\nadd-stateful tcp-dport 80 {rule}");
        let Err(refused) = engine.publish(&host::policy(&text)) else { panic!("{text} fits") };
        assert!(refused.to_string().contains("no memory for streams"), "{refused}");
        assert_eq!(verdict(&mut worker, 0, &mut frame(1, false)), Verdict::Send(PortId(1)));
    }
    let text = "set stream memory 4\nset stream max 1000\nadd-stateful tcp-dport 80 stream \"GET\" close";
    engine.publish(&host::policy(text)).expect("this fits");
    assert_eq!(verdict(&mut worker, 0, &mut frame(1, false)), Verdict::Send(PortId(1)));
    println!("done");
}

#[test]
fn where_memory_ends_connections_are_refused_and_nothing_aborts() {
    for (test, room) in TESTS {
        let program = std::env::current_exe().expect("this program");
        let output = Command::new(program)
            .env(VARIABLE, room.to_string())
            // As hosts do under such a limit: with a heap for each thread, the room varies by their 64 MB.
            .env("MALLOC_ARENA_MAX", "1")
            // Without memory there is none for telling where it panicked either.
            .env("RUST_BACKTRACE", "0")
            .args(["--ignored", "--exact", "--nocapture", "--test-threads", "1", test])
            .output()
            .expect("it can be started");
        let told = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "{test}, {room} bytes: {}\n{told}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(told.contains("done"), "{told}");
    }
}
