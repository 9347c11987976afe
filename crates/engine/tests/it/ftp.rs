//! `helper ftp`: the data connections of active FTP come in, with the addresses and ports that the server was told, and nothing else does.

use crate::ftp_site::{A, ACK, B, Control, SYN, Seen, Site, end, end_of_port, frame, port_command};
use mmb_engine::{DropReason, ExpectedCounts, Verdict};
use mmb_packet::PortId;
use mmb_policy::RuleId;
use mmb_rewrite::NotApplied;
use mmb_testkit::{Ip4, Udp, Upper};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// A translating gateway that lets nothing in.
const NAT: &str = "add-stateful id 1 in a ip-saddr 10.0.0.0/8 map ip-saddr 200.0.0.1 shuffle tcp-sport accept\n\
                   add-stateful id 2 in a tcp-dport 21 helper ftp\n\
                   add id 3 in b drop";
/// A firewall that lets nothing in.
const PLAIN: &str =
    "add-stateful id 1 in a accept\nadd-stateful id 2 in a tcp-dport 21 helper ftp\nadd id 3 in b drop";

fn client() -> SocketAddr {
    end("10.0.0.5:4000")
}

fn server() -> SocketAddr {
    end("192.0.2.21:21")
}

/// The server's end of data connections.
fn data() -> SocketAddr {
    end("192.0.2.21:20")
}

/// A client that has logged in.
fn control(site: &mut Site) -> Control {
    let mut control = site.connect(client(), server());
    assert_eq!(site.say(&mut control, "USER anonymous\r\n"), "USER anonymous\r\n");
    control
}

/// Ends the data connection's handshake and sends something each way, as the ends see it.
fn transfer(site: &mut Site, from: SocketAddr, told: SocketAddr, listening: SocketAddr) {
    let syn = site.dial(from, told).expect("it is expected");
    assert_eq!((syn.source, syn.destination, syn.flags), (from, listening, SYN));
    let answer = site.leaving(B, &[frame([listening, from], SYN | ACK, (9000, 7001), b"")]);
    assert_eq!((answer[0].source, answer[0].destination), (told, from));
    let bytes = site.leaving(A, &[frame([from, told], ACK, (7001, 9001), b"content")]);
    assert_eq!(
        (bytes[0].source, bytes[0].destination, &bytes[0].payload[..]),
        (from, listening, &b"content"[..])
    );
}

#[test]
fn a_translated_client_gets_its_data_connection() {
    let mut site = Site::new(NAT);
    let mut control = control(&mut site);
    let listening = end("10.0.0.5:40001");
    let told = end_of_port(&site.say(&mut control, &port_command(listening)));
    assert_eq!(told.ip(), control.seen.ip(), "the address that the server knows");
    assert_ne!(told.port(), control.seen.port());
    assert_eq!(site.say(&mut control, "LIST\r\n"), "LIST\r\n", "the numbers follow");
    assert_eq!(site.engine.rule_count(RuleId(2)).hits, 1);
    assert_eq!(site.expected(), ExpectedCounts { now: 1, inserted: 1, used: 0, expired: 0 });
    transfer(&mut site, data(), told, listening);
    assert_eq!(site.expected(), ExpectedCounts { now: 0, inserted: 1, used: 1, expired: 0 });
    let list = site.list();
    let info = list.iter().find(|info| info.arrived.sport == 20).expect("it is listed");
    assert_eq!((&info.rules[..], info.state), (&[RuleId(1), RuleId(2)][..], "established"));
    assert_eq!((info.arrived.dport, info.sent.dport), (told.port(), listening.port()));
    // It is expected once.
    assert_eq!(site.dial(end("192.0.2.21:30000"), told), None);
    assert_eq!(site.dial(data(), control.seen), None);
}

#[test]
fn without_translation_the_command_stays_and_the_connection_comes_in() {
    let mut site = Site::new(PLAIN);
    let mut control = control(&mut site);
    let listening = end("10.0.0.5:40001");
    assert_eq!(site.dial(data(), listening), None, "nothing is expected");
    let command = port_command(listening);
    assert_eq!(site.say(&mut control, &command), command);
    assert_eq!(site.dial(end("192.0.2.22:20"), listening), None, "another host");
    assert_eq!(site.dial(data(), end("10.0.0.5:40002")), None, "another port");
    assert_eq!(site.dial(data(), end("10.0.0.6:40001")), None, "another client");
    // A server may use any port.
    transfer(&mut site, end("192.0.2.21:51234"), listening, listening);
    assert!(site.engine.not_applied().is_empty());
}

#[test]
fn extended_commands_name_both_families() {
    let mut site = Site::new(NAT);
    let mut control = control(&mut site);
    let got = site.say(&mut control, "eprt |1|10.0.0.5|40001|\r\n");
    let parts: Vec<&str> = got.split('|').collect();
    assert_eq!((parts.len(), parts[0], parts[1], parts[2], parts[4]), (5, "eprt ", "1", "200.0.0.1", "\r\n"));
    let told = SocketAddr::new(control.seen.ip(), parts[3].parse().expect("a port"));
    transfer(&mut site, data(), told, end("10.0.0.5:40001"));
    let other = "EPRT |2|2001:db8::5|40001|\r\n";
    assert_eq!(site.say(&mut control, other), other);
    assert_eq!(site.engine.not_applied(), [(NotApplied::HelperRefused, 1)]);

    let (client, server) = (end("[2001:db8::5]:4000"), end("[2001:db8:1::21]:21"));
    let translated = "add-stateful in a map ip6-saddr 2001:db8:f::1 shuffle tcp-sport accept\n\
                      add-stateful in a tcp-dport 21 helper ftp\nadd in b drop";
    for policy in [translated, PLAIN] {
        let mut site = Site::new(policy);
        let mut control = site.connect(client, server);
        site.say(&mut control, "USER a\r\n");
        let got = site.say(&mut control, "EPRT |2|2001:db8::5|40001|\r\n");
        let parts: Vec<&str> = got.split('|').collect();
        assert_eq!(parts[2], control.seen.ip().to_string());
        let told = SocketAddr::new(control.seen.ip(), parts[3].parse().expect("a port"));
        transfer(&mut site, end("[2001:db8:1::21]:20"), told, end("[2001:db8::5]:40001"));
    }
}

#[test]
fn the_server_is_seen_as_the_client_called_it() {
    // Clients outside of balanced servers: the connection comes from inside then.
    let mut site = Site::new(
        "add-stateful in a ip-daddr 198.51.100.1 tcp-dport 21 lb ip-daddr {192.0.2.21, 192.0.2.22} helper ftp accept\n\
         add in b drop",
    );
    let called = end("198.51.100.1:21");
    let syn = site.leaving(B, &[frame([client(), called], SYN, (100, 0), b"")]);
    let real = syn[0].destination;
    site.pass(B, &[frame([real, client()], SYN | ACK, (200, 101), b"")]);
    let bytes = b"USER a\r\nPORT 10,0,0,5,156,65\r\n";
    let got = site.leaving(B, &[frame([client(), called], ACK, (101, 201), bytes)]);
    assert_eq!((got[0].destination, &got[0].payload[..]), (real, &bytes[..]));
    let from = SocketAddr::new(real.ip(), 20);
    let syn = site.dial(from, end("10.0.0.5:40001")).expect("it is expected");
    assert_eq!((syn.source, syn.destination), (end("198.51.100.1:20"), end("10.0.0.5:40001")));
    let answer = site.leaving(B, &[frame([syn.destination, syn.source], SYN | ACK, (1, 7001), b"")]);
    assert_eq!((answer[0].source, answer[0].destination), (syn.destination, from));
}

#[test]
fn hostile_commands_announce_nothing() {
    let mut site = Site::new(NAT);
    let mut control = control(&mut site);
    let commands = [
        "PORT 10,0,0,6,156,65\r\n",
        "PORT 192,0,2,99,156,65\r\n",
        "PORT 200,0,0,1,156,65\r\n",
        "PORT 10,0,0,5,0,22\r\n",
        "PORT 10,0,0,5,3,255\r\n",
        "EPRT |1|127.0.0.1|40001|\r\n",
        "EPRT |1|10.0.0.5|1023|\r\n",
    ];
    for command in commands {
        assert_eq!(site.say(&mut control, command), command);
    }
    assert_eq!(site.engine.not_applied(), [(NotApplied::HelperRefused, commands.len() as u64)]);
    assert_eq!(site.expected(), ExpectedCounts::default());
    // In the middle of a line, or of another direction.
    let command = "SITE PORT 10,0,0,5,156,65\r\n";
    assert_eq!(site.say(&mut control, command), command);
    site.pass(B, &[frame([server(), control.seen], ACK, (201, 101), b"PORT 10,0,0,5,156,65\r\n")]);
    assert_eq!(site.expected(), ExpectedCounts::default());
}

#[test]
fn a_form_that_a_browser_sends_announces_nothing() {
    let mut site = Site::new(PLAIN);
    let mut control = site.connect(client(), server());
    let form = "POST / HTTP/1.1\r\nHost: a\r\n\r\nPORT 10,0,0,5,156,65\r\n";
    assert_eq!(site.say(&mut control, form), form);
    assert_eq!(site.say(&mut control, "PORT 10,0,0,5,156,65\r\n"), "PORT 10,0,0,5,156,65\r\n");
    assert_eq!(site.expected(), ExpectedCounts::default());
    // Other ports have no helper.
    let mut control = site.connect(client(), end("192.0.2.21:2121"));
    site.say(&mut control, "USER a\r\nPORT 10,0,0,5,156,65\r\n");
    assert_eq!(site.expected(), ExpectedCounts::default());
}

#[test]
fn a_retransmission_announces_nothing_again_and_says_the_same() {
    let mut site = Site::new(NAT);
    let mut control = control(&mut site);
    let offset = "USER anonymous\r\n".len() as u32;
    let command = port_command(end("10.0.0.5:40001"));
    let segment = frame([client(), server()], ACK, (101 + offset, 201), command.as_bytes());
    let [first, again] = [(); 2].map(|()| site.leaving(B, std::slice::from_ref(&segment)));
    assert_eq!((&first, first.len()), (&again, 1));
    assert_eq!(site.expected().inserted, 1);
    let told = site.say(&mut control, &command);
    assert_eq!(told.as_bytes(), first[0].payload, "the server had lost it");
    // Another command for the same port is the same announcement.
    assert_eq!(site.say(&mut control, &command), told);
    assert_eq!(site.expected(), ExpectedCounts { now: 1, inserted: 1, used: 0, expired: 0 });
}

#[test]
fn a_begun_command_is_waited_for() {
    let mut site = Site::new(NAT);
    let mut control = control(&mut site);
    assert_eq!(site.say(&mut control, "NOOP\r\nPO"), "NOOP\r\n");
    assert_eq!(site.later(&mut control, 4000), "", "longer than `stream hold`");
    assert_ne!(site.say(&mut control, "RT 10,0,0,5,156,65\r\n"), "");
    assert_eq!(site.expected().inserted, 1);
    assert_eq!(site.say(&mut control, "PO"), "");
    assert_eq!(site.later(&mut control, 5001), "PO");
    assert_eq!(site.say(&mut control, "RT 10,0,0,5,156,66\r\n"), "RT 10,0,0,5,156,66\r\n");
    assert_eq!(site.expected().inserted, 1);
}

#[test]
fn the_last_eight_of_a_client_are_expected() {
    let mut site = Site::new(PLAIN);
    let mut control = control(&mut site);
    let ports: Vec<SocketAddr> =
        (0..10).map(|number| SocketAddr::new(client().ip(), 40_000 + number)).collect();
    let commands: String = ports.iter().map(|port| port_command(*port)).collect();
    assert_eq!(site.say(&mut control, &commands), commands, "in one segment");
    assert_eq!(site.dial(data(), ports[0]), None);
    assert_eq!(site.dial(data(), ports[1]), None);
    assert!(ports[2..].iter().all(|port| site.dial(data(), *port).is_some()));
    assert_eq!(site.expected(), ExpectedCounts { now: 0, inserted: 10, used: 8, expired: 2 });
}

#[test]
fn it_is_expected_for_a_minute_and_not_longer_than_its_control_connection() {
    // One port, so that it shows whether it is given back.
    let policy = "add-stateful in a map ip-saddr 200.0.0.1 map tcp-sport 5000-5001 accept\n\
                  add-stateful in a tcp-dport 21 helper ftp\nadd in b drop";
    let mut site = Site::new(policy);
    let mut control = control(&mut site);
    let told = end_of_port(&site.say(&mut control, &port_command(end("10.0.0.5:40001"))));
    // Another port of the client has none.
    let other = port_command(end("10.0.0.5:40002"));
    assert_eq!(site.say(&mut control, &other), other);
    assert_eq!(site.engine.not_applied(), [(NotApplied::HelperNoRoom, 1)]);
    site.wait(59_999);
    assert_eq!(site.expected().now, 1);
    site.wait(1001);
    assert_eq!(site.expected(), ExpectedCounts { now: 0, inserted: 1, used: 0, expired: 1 });
    assert_eq!(site.dial(data(), told), None);
    let again = end_of_port(&site.say(&mut control, &other));
    assert_eq!(again, told);
    site.reset(&control);
    site.wait(1);
    assert_eq!(site.dial(data(), told), None);
    assert_eq!(site.expected(), ExpectedCounts { now: 0, inserted: 2, used: 0, expired: 2 });
}

#[test]
fn a_data_connection_outlives_its_control_connection() {
    let mut site = Site::new(NAT);
    let mut control = control(&mut site);
    let listening = end("10.0.0.5:40001");
    let told = end_of_port(&site.say(&mut control, &port_command(listening)));
    transfer(&mut site, data(), told, listening);
    site.reset(&control);
    site.wait(400_000);
    assert_eq!(site.list().len(), 1);
    let more = site.leaving(A, &[frame([data(), told], ACK, (7008, 9001), b"more")]);
    assert_eq!(more[0].destination, listening);
}

#[test]
fn a_first_packet_that_is_sent_again_belongs_to_its_connection() {
    let mut site = Site::new(NAT);
    let mut control = control(&mut site);
    let told = end_of_port(&site.say(&mut control, &port_command(end("10.0.0.5:40001"))));
    let first = site.dial(data(), told).expect("it is expected");
    site.wait(1000);
    assert_eq!(site.dial(data(), told), Some(first));
    // A wrong checksum makes no connection.
    let told = end_of_port(&site.say(&mut control, &port_command(end("10.0.0.5:40002"))));
    let mut wrong = frame([data(), told], SYN, (7000, 0), b"");
    let last = wrong.len() - 1;
    wrong[last] ^= 0xff;
    let frames = [wrong, frame([data(), told], ACK, (7000, 1), b"")];
    assert!(site.leaving(A, &frames).is_empty(), "nor does a packet from the middle");
    assert!(site.dial(data(), told).is_some());
}

#[test]
fn rules_see_it_as_related() {
    let policy = |states: &str| {
        format!(
            "add-stateful in a map ip-saddr 200.0.0.1\nadd-stateful in a tcp-dport 21 helper ftp\n\
             add prio 10 in b ct {states} accept\nadd prio 20 in b drop"
        )
    };
    for (states, passes) in [("{established, related}", true), ("{established, new}", false)] {
        let mut site = Site::new(&policy(states));
        let mut control = control(&mut site);
        let told = end_of_port(&site.say(&mut control, &port_command(end("10.0.0.5:40001"))));
        assert_eq!(site.dial(data(), told).is_some(), passes);
        site.wait(500);
        assert_eq!(site.dial(data(), told).is_some(), passes, "once more");
    }
}

#[test]
fn rules_of_its_own_do_not_make_it() {
    // A rule for servers behind the gateway, which would translate it.
    let mut site = Site::new(&format!("{NAT}\nadd-stateful id 4 in b tcp-syn map ip-daddr 10.9.9.9 accept"));
    let mut control = control(&mut site);
    let told = end_of_port(&site.say(&mut control, &port_command(end("10.0.0.5:40001"))));
    let syn = site.dial(data(), told).expect("it passes");
    assert_eq!(syn.destination, end("10.0.0.5:40001"));
    assert_eq!(site.engine.rule_count(RuleId(4)).matched.packets, 0);
}

#[test]
fn the_table_is_bounded() {
    let mut site = Site::new(PLAIN);
    let mut refused = 0;
    for number in 0..130_u16 {
        // Sixteen of a client.
        let IpAddr::V4(first) = client().ip() else { panic!("an address of IPv4") };
        let address = Ipv4Addr::from_bits(first.to_bits() + u32::from(number) / 16);
        let client = SocketAddr::new(address.into(), 10_000 + number);
        let mut control = site.connect(client, server());
        site.say(&mut control, "USER a\r\n");
        for port in 0..8 {
            site.say(&mut control, &port_command(SocketAddr::new(client.ip(), 20_000 + 8 * number + port)));
            refused += u64::from(8 * number + port >= 1024);
        }
    }
    assert_eq!(site.expected(), ExpectedCounts { now: 1024, inserted: 1024, used: 0, expired: 0 });
    assert_eq!(site.engine.not_applied(), [(NotApplied::HelperNoRoom, refused)]);
    site.wait(61_000);
    assert_eq!(site.expected(), ExpectedCounts { now: 0, inserted: 1024, used: 0, expired: 1024 });
}

#[test]
fn every_worker_takes_packets_to_the_right_one() {
    for policy in [NAT, PLAIN] {
        let mut site = Site::with_workers(policy, 4);
        for number in 0..40_u16 {
            site.first = usize::from(number % 4);
            let client = SocketAddr::new(client().ip(), 10_000 + number);
            let mut control = site.connect(client, server());
            site.say(&mut control, "USER a\r\n");
            let listening = SocketAddr::new(client.ip(), 20_000 + number);
            let told = end_of_port(&site.say(&mut control, &port_command(listening)));
            site.first = usize::from(number / 4 % 4);
            transfer(&mut site, SocketAddr::new(server().ip(), 30_000 + number), told, listening);
        }
        assert_eq!(site.expected(), ExpectedCounts { now: 0, inserted: 40, used: 40, expired: 0 });
        assert_eq!(site.list().len(), 80);
    }
}

#[test]
fn a_data_connection_goes_on_behind_a_restart() {
    // Two ports: that of the control connection, and that of the data connection.
    let policy = "add-stateful id 1 in a ip-saddr 10.0.0.0/8 map ip-saddr 200.0.0.1 map tcp-sport 5000-5001 accept\n\
                  add-stateful id 2 in a tcp-dport 21 helper ftp\nadd id 3 in b drop";
    let mut site = Site::new(policy);
    let mut control = control(&mut site);
    let [listening, later] = [end("10.0.0.5:40001"), end("10.0.0.5:40002")];
    let told = end_of_port(&site.say(&mut control, &port_command(listening)));
    transfer(&mut site, data(), told, listening);
    for workers in [1, 3] {
        let (mut after, loaded, left_out) = site.moved(policy, workers);
        assert_eq!((loaded, left_out), (2, 0));
        let more = after.leaving(A, &[frame([data(), told], ACK, (7008, 9001), b"more")]);
        assert_eq!((more[0].source, more[0].destination), (data(), listening));
        let back = after.leaving(B, &[frame([listening, data()], ACK, (9001, 7012), b"")]);
        assert_eq!((back[0].source, back[0].destination), (told, data()));
        // Its outside port is its own still.
        let other = frame([end("10.0.0.6:1234"), end("192.0.2.99:80")], SYN, (1, 0), b"");
        let refused = after.pass(A, &[other]);
        assert_eq!(refused[0].0, Verdict::Drop(DropReason::NatNoPort));
        assert!(after.list().iter().all(|info| info.stream.is_none() || info.arrived.dport == 21));
        // What the client says now is not understood from the beginning.
        after.say(&mut control.clone(), &port_command(later));
        assert_eq!(after.expected(), ExpectedCounts::default());
    }
}

#[test]
fn a_rule_that_goes_takes_its_helper_along() {
    let mut site = Site::new(NAT);
    let mut control = control(&mut site);
    let told = end_of_port(&site.say(&mut control, &port_command(end("10.0.0.5:40001"))));
    let without = NAT.lines().filter(|line| !line.contains("helper")).collect::<Vec<_>>().join("\n");
    site.engine.publish(&crate::host::policy(&without)).expect("the policy can be put in force");
    let command = port_command(end("10.0.0.5:40002"));
    assert_eq!(site.say(&mut control, &command), command);
    // What is expected still is, with the rule that stays.
    assert!(site.dial(data(), told).is_some());
    assert_eq!(site.dial(data(), end("200.0.0.1:40002")), None);
}

#[test]
fn datagrams_are_no_commands() {
    let mut site = Site::new("add-stateful in a helper ftp");
    let udp = Udp { sport: 4000, dport: 21, payload: b"PO".to_vec(), ..Udp::default() };
    let datagram = Ip4::new(Upper::Udp(udp)).frame().bytes();
    let done = site.pass(A, std::slice::from_ref(&datagram));
    assert_eq!(done, [(Verdict::Send(PortId(B)), datagram)]);
    assert!(site.engine.not_applied().is_empty());
}

#[test]
fn edits_of_the_same_bytes_go_together() {
    let mut site = Site::new(
        "add-stateful id 1 in a map ip-saddr 200.0.0.1 accept\nadd-stateful id 2 in a tcp-dport 21 helper ftp\n\
         add-stateful id 3 in a tcp-dport 21 stream-forward \"secret\" mod stream-forward \"(gone away)\"\nadd in b drop",
    );
    let mut control = control(&mut site);
    let got = site
        .say(&mut control, "PASS secret\r\nPORT 10,0,0,5,156,65\r\nCWD secret\r\nPORT 10,0,0,5,156,66\r\n");
    let lines: Vec<&str> = got.split_inclusive("\r\n").collect();
    assert_eq!((lines.len(), lines[0], lines[2]), (4, "PASS (gone away)\r\n", "CWD (gone away)\r\n"));
    for (line, port) in [(lines[1], 40_001), (lines[3], 40_002)] {
        let syn = site.dial(data(), end_of_port(line)).expect("it is expected");
        assert_eq!(syn.destination.port(), port);
    }
}

/// What a server gets, and the ends at which the client is reached, of bytes that are cut into these pieces. Pieces may be sent again.
fn outcome(
    policy: &str,
    bytes: &str,
    cuts: &[usize],
    again: bool,
) -> (String, Vec<Option<Seen>>, ExpectedCounts) {
    let mut site = Site::new(policy);
    let mut control = control(&mut site);
    let mut got = String::new();
    let mut at = 0;
    let offset = "USER anonymous\r\n".len();
    for cut in cuts.iter().copied().chain([bytes.len()]).filter(|cut| *cut <= bytes.len()) {
        if cut <= at {
            continue;
        }
        got.push_str(&site.say_at(&mut control, (offset + at) as u32, &bytes[at..cut]));
        if again {
            let from = at / 2;
            got.push_str(&site.say_at(&mut control, (offset + from) as u32, &bytes[from..cut]));
        }
        at = cut;
    }
    got.push_str(&site.later(&mut control, 6000));
    let reached = got.split_inclusive("\r\n").filter(|line| line.starts_with("PORT "));
    let reached: Vec<SocketAddr> = reached.map(end_of_port).collect();
    let reached = reached.into_iter().map(|told| site.dial(data(), told)).collect();
    (got, reached, site.expected())
}

const DIALOGUE: &str = "CWD a\r\nPORT 10,0,0,5,156,65\r\nRETR PORT\r\nPORT 10,0,0,6,156,65\r\nPORTS\r\nPORT 10,0,0,5,200,1\r\nQUIT\r\n";

#[test]
fn one_cut_makes_no_difference() {
    for policy in [NAT, PLAIN] {
        let whole = outcome(policy, DIALOGUE, &[], false);
        assert_eq!(whole.2, ExpectedCounts { now: 0, inserted: 2, used: 2, expired: 0 });
        for cut in 1..DIALOGUE.len() {
            assert_eq!(outcome(policy, DIALOGUE, &[cut], false), whole, "{cut}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn cuts_make_no_difference(mut cuts in prop::collection::vec(1..DIALOGUE.len(), 0..12), again: bool, maps: bool) {
        cuts.sort_unstable();
        let policy = if maps { NAT } else { PLAIN };
        prop_assert_eq!(outcome(policy, DIALOGUE, &cuts, again), outcome(policy, DIALOGUE, &[], false));
    }
}

#[test]
fn an_invalid_race_is_dropped() {
    // Two first packets of one vector: one makes the connection, the other has none.
    let mut site = Site::new(PLAIN);
    let mut control = control(&mut site);
    let listening = end("10.0.0.5:40001");
    site.say(&mut control, &port_command(listening));
    let frames = [20, 30_000]
        .map(|port| frame([SocketAddr::new(server().ip(), port), listening], SYN, (7000, 0), b""));
    let done = site.pass(B, &frames);
    assert!(matches!(done[0].0, Verdict::Send(_)));
    assert_eq!(done[1].0, Verdict::Drop(DropReason::Rule));
}
