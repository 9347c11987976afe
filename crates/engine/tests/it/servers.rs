//! Servers of rules that balance: states, counters, and edits of the list.

use crate::host::{Middlebox, pass_among, policy, ports};
use mmb_engine::{DropReason, Engine, OrderedServer, ServerInfo, ServerState, UnknownServer, Verdict};
use mmb_packet::PortId;
use mmb_policy::{ConnectionFilter, RuleId, ServerCommand, ServerName, ServerOrder};
use mmb_random::SeedTree;
use mmb_testkit::{Ip4, Tcp, Upper};
use std::net::Ipv4Addr;

const A: u16 = 0;
const B: u16 = 1;
const VIRTUAL: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SYN: u8 = 0x02;
const SYN_ACK: u8 = 0x12;
const FIN: u8 = 0x01;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

fn lb(servers: &str, method: &str) -> String {
    format!("add-stateful id 5 in a ip-daddr 192.0.2.1 tcp-dport 80 lb ip-daddr {{{servers}}} {method}")
}

fn client(number: u16) -> Ipv4Addr {
    Ipv4Addr::new(198, 51, (number >> 8) as u8, number as u8)
}

fn segment(source: Ipv4Addr, destination: Ipv4Addr, [sport, dport]: [u16; 2], flags: u8) -> Vec<u8> {
    let upper = Upper::Tcp(Tcp { sport, dport, flags, seq: 7, ack: 8, ..Tcp::default() });
    Ip4 { source, destination, ..Ip4::new(upper) }.frame().bytes()
}

fn syn(number: u16) -> Vec<u8> {
    segment(client(number), VIRTUAL, [4000, 80], SYN)
}

/// The destination of a frame.
fn destination(frame: &[u8]) -> Ipv4Addr {
    let bytes: [u8; 4] = frame[30..34].try_into().expect("it has an IPv4 header");
    bytes.into()
}

fn named(server: &str) -> ServerName {
    server.parse().expect("it is an address or a port")
}

fn order(order: ServerOrder, server: &str) -> ServerCommand {
    let server = named(server);
    ServerCommand { order, server, rule: None, reason: Some("a test".to_owned()), kill: false }
}

/// The server that gets the connection of a client, or why none does.
fn connect(mmb: &mut Middlebox, number: u16) -> Result<u8, DropReason> {
    match mmb.pass(A, &syn(number)) {
        (Verdict::Send(port), frame) if port == PortId(B) => Ok(destination(&frame).octets()[3]),
        (Verdict::Drop(reason), _) => Err(reason),
        other => panic!("{other:?}"),
    }
}

fn servers(mmb: &mut Middlebox) -> Vec<ServerInfo> {
    let live = mmb.ask(|connections| connections.server_traffic()).expect("the worker answers");
    mmb.engine.servers(&live)
}

/// Address, state, connections now and in all, packets of each server.
fn shown(mmb: &mut Middlebox) -> Vec<(String, ServerState, u64, u64, u64)> {
    let servers = servers(mmb).into_iter();
    servers
        .map(|of| (of.server.to_string(), of.state, of.connections, of.total, of.traffic.packets))
        .collect()
}

fn row(server: u8, state: ServerState, counts: [u64; 3]) -> (String, ServerState, u64, u64, u64) {
    (format!("10.0.0.{server}"), state, counts[0], counts[1], counts[2])
}

use ServerState::{Down, Drain, Failed, Removed, Up};

#[test]
fn connections_and_packets_of_servers_are_counted() {
    let mut mmb = Middlebox::new(&lb("10.0.0.1, 10.0.0.2, 10.0.0.3", "rr"));
    let first = servers(&mut mmb);
    assert_eq!(first.iter().map(|server| server.rule).collect::<Vec<_>>(), [RuleId(5); 3]);
    assert!(first.iter().all(|server| server.is_open && server.since_ms.is_none()));
    let got: Vec<u8> = (0..9).map(|number| connect(&mut mmb, number).expect("all are up")).collect();
    for (number, server) in (0..9).zip(&got) {
        let server = Ipv4Addr::new(10, 0, 0, *server);
        mmb.through(B, &segment(server, client(number), [80, 4000], SYN_ACK));
    }
    let bytes = syn(0).len() as u64;
    assert_eq!(shown(&mut mmb), [1, 2, 3].map(|server| row(server, Up, [3, 3, 6])));
    assert!(servers(&mut mmb).iter().all(|server| server.traffic.bytes == 6 * bytes));
    // Connections that end leave their packets.
    let up = mmb.engine.order_server(1, &order(ServerOrder::Up, "10.0.0.2")).expect("there is such a server");
    assert_eq!(up, [OrderedServer { rule: RuleId(5), state: Up, is_open: true }]);
    let server = mmb.engine.server_connections(named("10.0.0.2"), &up);
    assert_eq!(mmb.ask(|connections| connections.kill_server_connections(&server)), Ok(3));
    let rows = [row(1, Up, [3, 3, 6]), row(2, Up, [0, 3, 6]), row(3, Up, [3, 3, 6])];
    assert_eq!(shown(&mut mmb), rows);
    let live = mmb.ask(|connections| connections.server_traffic()).expect("the worker answers");
    mmb.engine.clear_server_counters(&live);
    let rows = [row(1, Up, [3, 0, 0]), row(2, Up, [0, 0, 0]), row(3, Up, [3, 0, 0])];
    assert_eq!(shown(&mut mmb), rows);
    connect(&mut mmb, 100).expect("all are up");
    mmb.ask(|connections| connections.kill(&ConnectionFilter::ALL)).expect("the worker answers");
    let sums = shown(&mut mmb)
        .into_iter()
        .fold([0; 3], |sum, (_, _, now, total, packets)| [sum[0] + now, sum[1] + total, sum[2] + packets]);
    assert_eq!(sums, [0, 1, 1]);
}

/// How a connection ends: its segments as (from the client, flags, number, acknowledgement).
const ENDS: [&[(bool, u8, u32, u32)]; 2] =
    [&[(true, FIN | ACK, 8, 8), (false, FIN | ACK, 8, 9), (true, ACK, 9, 9)], &[(false, RST, 8, 0)]];

/// Takes the connection of a client at a server through its life.
fn live(mmb: &mut Middlebox, number: u16, server: u8, end: &[(bool, u8, u32, u32)]) {
    let open = [(false, SYN_ACK, 7, 8), (true, ACK, 8, 8)];
    for &(forward, flags, seq, ack) in open.iter().chain(end) {
        let server = Ipv4Addr::new(10, 0, 0, server);
        let (port, source, destination, [sport, dport]) = match forward {
            true => (A, client(number), VIRTUAL, [4000, 80]),
            false => (B, server, client(number), [80, 4000]),
        };
        let upper = Upper::Tcp(Tcp { sport, dport, flags, seq, ack, ..Tcp::default() });
        mmb.through(port, &Ip4 { source, destination, ..Ip4::new(upper) }.frame().bytes());
    }
}

/// A connection that both ends have closed, or the server has reset, is only kept for late packets: its server has room for another one.
#[test]
fn a_server_has_its_open_connections_only() {
    for end in ENDS {
        let mut mmb = Middlebox::new(&lb("10.0.0.1, 10.0.0.2", "least"));
        let busy = connect(&mut mmb, 0).expect("both are up");
        live(&mut mmb, 0, busy, &[]);
        let idle = 3 - busy;
        for number in 1..5 {
            assert_eq!(connect(&mut mmb, number), Ok(idle), "the other one has a connection");
            live(&mut mmb, number, idle, end);
            assert_eq!(mmb.list().len(), 1 + usize::from(number), "it is kept");
        }
        let packets = 4 * (3 + end.len() as u64);
        let mut rows = [row(busy, Up, [1, 1, 3]), row(idle, Up, [0, 4, packets])];
        rows.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(shown(&mut mmb), rows);
        // The place of a server that has left belongs to it until the last of its connections is forgotten.
        for servers in [format!("10.0.0.{busy}"), format!("10.0.0.{busy}, 10.0.0.9")] {
            mmb.engine.publish(&policy(&lb(&servers, "least"))).expect("the policy can be put in force");
            mmb.wait(0);
            mmb.engine.reclaim();
        }
        mmb.wait(600);
        assert_eq!(shown(&mut mmb), [row(busy, Up, [1, 1, 3]), row(9, Up, [0, 0, 0])]);
    }
}

/// The initiator's RST may never reach the server: a client could send it with a small TTL and go on.
#[test]
fn a_connection_that_its_client_resets_stays_open_at_its_server() {
    let mut mmb = Middlebox::new(&lb("10.0.0.1, 10.0.0.2", "least"));
    let first = connect(&mut mmb, 0).expect("both are up");
    live(&mut mmb, 0, first, &[(true, RST, 8, 0)]);
    assert_eq!(connect(&mut mmb, 1), Ok(3 - first), "the other server has no connection");
    assert_eq!(shown(&mut mmb).iter().map(|of| of.2).collect::<Vec<_>>(), [1, 1]);
}

#[test]
fn operators_and_checks_take_servers_out() {
    for method in ["rr", "hash", "least"] {
        let mut mmb = Middlebox::new(&lb("10.0.0.1, 10.0.0.2, 10.0.0.3", method));
        let mut next = 0;
        let mut got = |mmb: &mut Middlebox| {
            mmb.ask(|connections| connections.kill(&ConnectionFilter::ALL)).expect("the worker answers");
            let mut got: Vec<_> = (0..40)
                .map(|_| {
                    next += 1;
                    connect(mmb, next)
                })
                .collect();
            got.sort_unstable_by_key(|server| server.unwrap_or(0));
            got.dedup();
            got
        };
        let say = |mmb: &mut Middlebox, what, server: &str| {
            mmb.engine.order_server(77, &order(what, server)).expect("there is such a server");
        };
        let states = |mmb: &mut Middlebox| -> Vec<_> {
            servers(mmb).iter().map(|of| (of.state, of.is_open)).collect()
        };
        assert_eq!(got(&mut mmb), [Ok(1), Ok(2), Ok(3)], "{method}");
        say(&mut mmb, ServerOrder::Drain, "10.0.0.2");
        assert_eq!(got(&mut mmb), [Ok(1), Ok(3)], "{method}");
        // A check does not overrule the operator, nor the operator the check.
        say(&mut mmb, ServerOrder::Healthy, "10.0.0.2");
        say(&mut mmb, ServerOrder::Failed, "10.0.0.3");
        say(&mut mmb, ServerOrder::Up, "10.0.0.3");
        assert_eq!(got(&mut mmb), [Ok(1)], "{method}");
        assert_eq!(states(&mut mmb), [(Up, true), (Drain, false), (Failed, false)]);
        let third = servers(&mut mmb).remove(2);
        assert_eq!((third.since_ms, third.checked), (Some(77), Some((true, 77))));
        assert_eq!(third.reason.as_deref(), Some("a test"));
        // Where only checks have taken servers out, none is better than another.
        say(&mut mmb, ServerOrder::Failed, "10.0.0.1");
        assert_eq!(got(&mut mmb), [Ok(1), Ok(3)], "{method}");
        assert_eq!(states(&mut mmb), [(Failed, true), (Drain, false), (Failed, true)]);
        say(&mut mmb, ServerOrder::Healthy, "10.0.0.3");
        assert_eq!(got(&mut mmb), [Ok(3)], "{method}");
        say(&mut mmb, ServerOrder::Down, "10.0.0.1");
        say(&mut mmb, ServerOrder::Down, "10.0.0.3");
        assert_eq!(got(&mut mmb), [Err(DropReason::LbNoServer)], "{method}");
        assert_eq!(states(&mut mmb), [(Down, false), (Drain, false), (Down, false)]);
        for server in ["10.0.0.1", "10.0.0.2", "10.0.0.3"] {
            say(&mut mmb, ServerOrder::Up, server);
            say(&mut mmb, ServerOrder::Healthy, server);
        }
        assert_eq!(got(&mut mmb), [Ok(1), Ok(2), Ok(3)], "{method}");
        assert_eq!(states(&mut mmb), [(Up, true); 3]);
    }
}

#[test]
fn connections_of_a_server_that_is_out_stay() {
    let mut mmb = Middlebox::new(&lb("10.0.0.1, 10.0.0.2", "hash"));
    let got: Vec<u8> = (0..50).map(|number| connect(&mut mmb, number).expect("both are up")).collect();
    mmb.engine.order_server(1, &order(ServerOrder::Down, "10.0.0.2")).expect("there is such a server");
    for (number, server) in (0..50).zip(&got) {
        assert_eq!(connect(&mut mmb, number), Ok(*server), "a SYN that is sent again is of its connection");
    }
    // Those of the other server do not move either, and those that did come back with the server.
    mmb.ask(|connections| connections.kill(&ConnectionFilter::ALL)).expect("the worker answers");
    for (number, server) in (0..50).zip(&got) {
        assert!(*server == 2 || connect(&mut mmb, number) == Ok(*server));
    }
    mmb.engine.order_server(2, &order(ServerOrder::Up, "10.0.0.2")).expect("there is such a server");
    for (number, server) in (0..50).zip(&got).filter(|(_, server)| **server == 2) {
        assert_eq!(connect(&mut mmb, number), Ok(*server));
    }
}

#[test]
fn states_and_counters_stay_when_the_list_is_edited() {
    let mut mmb = Middlebox::new(&lb("10.0.0.1, 10.0.0.2, 10.0.0.3", "rr"));
    let publish = |mmb: &mut Middlebox, text: &str| {
        mmb.engine.publish(&policy(text)).expect("the policy can be put in force");
        mmb.wait(0);
        mmb.engine.reclaim();
    };
    (0..9).for_each(|number| _ = connect(&mut mmb, number).expect("all are up"));
    mmb.engine.order_server(1, &order(ServerOrder::Drain, "10.0.0.3")).expect("there is such a server");
    // One goes, one comes, and another gets more.
    publish(&mut mmb, &lb("10.0.0.4, 10.0.0.3, 10.0.0.1 weight 3", "rr"));
    let rows =
        [row(1, Up, [3, 3, 3]), row(3, Drain, [3, 3, 3]), row(4, Up, [0, 0, 0]), row(2, Removed, [3, 3, 3])];
    assert_eq!(shown(&mut mmb), rows);
    (10..18).for_each(|number| assert_ne!(connect(&mut mmb, number), Ok(3)));
    assert_eq!(shown(&mut mmb)[0], row(1, Up, [9, 9, 9]));
    // It comes back, and goes on counting.
    publish(&mut mmb, &lb("10.0.0.1, 10.0.0.2", "least"));
    assert_eq!(shown(&mut mmb)[1], row(2, Up, [3, 3, 3]));
    // A server that has left its list is shown until its last connection ends.
    let left: Vec<_> = shown(&mut mmb).split_off(2);
    assert_eq!(left, [row(3, Removed, [3, 3, 3]), row(4, Removed, [2, 2, 2])]);
    mmb.ask(|connections| connections.kill(&ConnectionFilter::ALL)).expect("the worker answers");
    mmb.engine.reclaim();
    assert_eq!(shown(&mut mmb), [row(1, Up, [0, 9, 9]), row(2, Up, [0, 3, 3])]);
    // A rule without balancing has no servers; nor has one that is gone, and its slots are used again.
    publish(&mut mmb, "add-stateful id 5 in a ip-daddr 192.0.2.1 tcp-dport 80 map ip-daddr 10.0.0.1");
    assert_eq!(shown(&mut mmb), []);
    for _ in 0..3 {
        publish(&mut mmb, "add all accept");
        publish(&mut mmb, &lb("10.0.0.1, 10.0.0.2", "least"));
        assert_eq!(shown(&mut mmb), [row(1, Up, [0, 0, 0]), row(2, Up, [0, 0, 0])]);
        connect(&mut mmb, 90).expect("both are up");
        mmb.ask(|connections| connections.kill(&ConnectionFilter::ALL)).expect("the worker answers");
    }
}

#[test]
fn an_order_to_a_server_that_is_none_is_refused() {
    let ports = "add-stateful id 6 in a tcp-dport 90 lb tcp-dport {8001 weight 0, 8002}\n\
                 add-stateful id 7 in a tcp-dport 91 lb ip-daddr 10.0.0.0/8";
    let mut mmb = Middlebox::new(&format!("{}\n{ports}", lb("10.0.0.1, 10.0.0.2", "rr")));
    let refused = |mmb: &mut Middlebox, server: &str, rule: Option<u32>| {
        let command = ServerCommand { rule: rule.map(RuleId), ..order(ServerOrder::Drain, server) };
        mmb.engine.order_server(1, &command).expect_err("there is no such server")
    };
    assert_eq!(refused(&mut mmb, "10.0.0.9", None), UnknownServer::NoRule(named("10.0.0.9")));
    let not_in_rule = UnknownServer::NotInRule(RuleId(6), named("10.0.0.1"));
    assert_eq!(refused(&mut mmb, "10.0.0.1", Some(6)), not_in_rule);
    assert!(refused(&mut mmb, "10.0.0.1", Some(9)).to_string().contains("rule 9"));
    assert_eq!(refused(&mut mmb, "10.0.0.1", Some(7)), UnknownServer::TooMany(RuleId(7)));
    let states: Vec<_> = servers(&mut mmb).into_iter().map(|of| (of.server.to_string(), of.state)).collect();
    let expected = [("10.0.0.1", Up), ("10.0.0.2", Up), ("8001", Drain), ("8002", Up)];
    assert_eq!(states, expected.map(|(server, state)| (server.to_owned(), state)));
    let down = OrderedServer { rule: RuleId(6), state: Down, is_open: false };
    assert_eq!(mmb.engine.order_server(1, &order(ServerOrder::Down, "8002")), Ok(vec![down]));
}

/// Connections of several workers, some of which carry packets that another one received.
#[test]
fn counters_are_exact_over_workers() {
    let (mut engine, mut workers) = Engine::new(ports(), 3, &SeedTree::repeatable(1));
    engine.publish(&policy(&lb("10.0.0.1, 10.0.0.2 weight 2", "rr"))).expect("it can be put in force");
    for number in 0..300_u16 {
        let worker = usize::from(number % 3);
        let passed = pass_among(&mut workers, (worker, 1000), A, &[syn(number)]);
        let server = destination(&passed[0].1);
        let reply = segment(server, client(number), [80, 4000], SYN_ACK);
        let passed = pass_among(&mut workers, (usize::from(number % 2), 1000), B, &[reply]);
        assert_eq!(passed[0].0, Verdict::Send(PortId(A)));
    }
    let connections = engine.connections();
    let live = std::thread::scope(|scope| {
        let asking = scope.spawn(|| connections.server_traffic());
        while !asking.is_finished() {
            (0..3).for_each(|worker| drop(pass_among(&mut workers, (worker, 1000), A, &[])));
            workers.iter_mut().for_each(|worker| worker.process(0, &mmb_engine::NoCycles, &mut [], &mut []));
            std::thread::yield_now();
        }
        asking.join().expect("it does not panic").expect("the workers answer")
    });
    let counts: Vec<_> =
        engine.servers(&live).iter().map(|of| (of.connections, of.total, of.traffic.packets)).collect();
    assert_eq!(counts, [(100, 100, 200), (200, 200, 400)]);
}
