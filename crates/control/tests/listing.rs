//! A listing of many connections that no client reads. The test is a program of its own, since it measures the memory of the process.

#[path = "it/common/mod.rs"]
mod common;

use common::start;
use mmb_engine::Verdict;
use mmb_packet::PortId;
use mmb_protocol::answer::Answer;
use mmb_protocol::request::{Request, encode};
use mmb_testkit::{Frame, Udp};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;

/// The number of connections whose listing does not fit into sockets: some ten megabytes.
const MANY: u16 = 40_000;
/// The number of clients, each with a listing.
const CLIENTS: usize = 8;
/// The memory that they may take together; their answers are ten times as long.
const MAX_BYTES: u64 = 16 << 20;

fn ask(commands: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let commands = commands.iter().map(|command| (*command).to_owned()).collect();
    encode(&Request::Run(commands), &mut bytes).expect("a vector takes everything");
    bytes
}

fn datagram(sport: u16) -> Frame {
    Udp { sport, ..Udp::default() }.over_ip4()
}

fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line of it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") << 10
}

#[test]
fn a_listing_that_is_not_read_costs_little_and_delays_no_other_client() {
    let mmb = start("add-stateful id 1 ip-proto udp accept\n");
    let _packets = mmb.packets();
    let all: Vec<Frame> = (1..=MANY).map(datagram).collect();
    assert!(mmb.feed(&all).iter().all(|verdict| *verdict == Verdict::Send(PortId(1))));
    drop(all);
    let listing = ask(&["show connections"]);
    // One listing before the measurement, for memory that is allocated once.
    let length = answer_length(&mmb.stream(), &listing);
    assert!(length > 8 << 20, "{length} bytes");
    let before = resident();
    let deaf: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let stream = mmb.stream();
            (&stream).write_all(&listing).expect("writes");
            stream
        })
        .collect();
    for sport in 0..3 {
        // Other clients list, change the policy and end connections, and packets are processed.
        assert!(answer_length(&mmb.stream(), &listing) > 8 << 20);
        mmb.run("add id 2 tcp-dport 80 drop");
        mmb.run("del 2");
        let frames = [datagram(MANY + 1 + sport)];
        assert_eq!(mmb.feed(&frames), [Verdict::Send(PortId(1))]);
        let killed = mmb.run(&format!("conn kill udp-sport {}", MANY + 1 + sport));
        assert!(matches!(&killed[..], [.., Answer::Killed(line)] if line.connections == 1), "{killed:?}");
    }
    let more = resident().saturating_sub(before);
    assert!(more < MAX_BYTES, "{more} bytes more than before");
    drop(deaf);
    mmb.assert_alive();
}

/// Reads an answer; returns its length in bytes without its last line.
fn answer_length(stream: &UnixStream, request: &[u8]) -> usize {
    let mut writer = stream;
    writer.write_all(request).expect("writes");
    let lines = BufReader::new(stream).lines().map(|line| line.expect("reads"));
    lines.take_while(|line| !line.starts_with("{\"end\"")).map(|line| line.len()).sum()
}
