//! Packets that connections do not believe: what they change, what becomes of them. Expectations are Linux's conntrack's, but for
//! what is said otherwise.

use crate::host::{Middlebox, policy};
use crate::one_connection::{
    A, ACK, B, FIN, INSIDE, REFLEXIVE, RST, SERVER, SYN, corrupted, echo, ip4, ip6, segment, tcp, udp,
};
use mmb_engine::{DropReason, Verdict};
use mmb_testkit::{Ip4, Tcp, Udp, Upper};

/// The first column of Linux's table of TCP states.
#[test]
fn no_connection_begins_by_a_reset_a_fin_or_a_syn_ack() {
    for flags in [RST, RST | ACK, FIN | ACK, SYN | ACK, FIN, 0, SYN | RST, SYN | FIN, 0x29] {
        let mut mmb = Middlebox::new(REFLEXIVE);
        assert!(mmb.passes(A, &segment(true, flags, 100, 1)), "nothing forbids {flags:#x}");
        assert!(mmb.list().is_empty(), "{flags:#x}");
        let kind =
            if [RST, RST | ACK, FIN | ACK, SYN | ACK].contains(&flags) { "not-syn" } else { "bad-flags" };
        assert_eq!(mmb.invalid(), [(kind, 1)], "{flags:#x}");
    }
    let mut mmb = Middlebox::new(REFLEXIVE);
    assert!(mmb.passes(A, &segment(true, ACK, 100, 1)), "picked up in mid-flow");
    assert_eq!(mmb.state(), "unreplied");
}

/// Its rule's `accept` goes for connections.
#[test]
fn what_begins_no_connection_has_no_rule_of_one() {
    let mut mmb = Middlebox::new("add-stateful in a accept\nadd ip-proto tcp drop");
    assert_eq!(mmb.dropped(A, &segment(true, RST, 100, 1)), DropReason::Rule);
    assert!(mmb.passes(A, &segment(true, SYN, 100, 0)));
}

/// A RST whose connection is forgotten would tell the inside address.
#[test]
fn what_would_be_mapped_and_begins_no_connection_does_not_leave() {
    let mut mmb = Middlebox::new("add-stateful in a map ip-saddr 200.0.0.1");
    assert_eq!(mmb.dropped(A, &segment(true, RST, 100, 1)), DropReason::ConnNotSyn);
    assert_eq!(mmb.dropped(A, &segment(true, FIN | ACK, 100, 1)), DropReason::ConnNotSyn);
    assert_eq!(mmb.dropped(A, &segment(true, SYN | FIN, 100, 1)), DropReason::ConnInvalid);
    assert_eq!(mmb.dropped(A, &corrupted(segment(true, SYN, 100, 0))), DropReason::ConnInvalid);
    assert!(mmb.list().is_empty());
}

#[test]
fn flags_that_no_end_sends_change_nothing_of_an_open_connection() {
    for flags in [SYN | RST, SYN | FIN, 0, 0x29, 0x3f, RST | FIN, FIN] {
        let mut mmb = Middlebox::new(REFLEXIVE);
        mmb.open();
        mmb.now_ms += 60_000;
        for (port, forward, seq, ack) in [(A, true, 101, 501), (B, false, 501, 101)] {
            assert!(mmb.passes(port, &segment(forward, flags, seq, ack)), "{flags:#x}");
        }
        let after = mmb.list().remove(0);
        assert_eq!((after.state, after.idle_ms), ("established", 60_000), "{flags:#x}");
        assert_eq!(mmb.invalid(), [("bad-flags", 2)]);
        let mut strict = Middlebox::new(&format!("set conn invalid drop\n{REFLEXIVE}"));
        strict.open();
        assert_eq!(strict.dropped(A, &segment(true, flags, 101, 501)), DropReason::ConnInvalid);
    }
}

#[test]
fn segments_with_a_wrong_checksum_change_no_state() {
    for invalid in ["pass", "drop"] {
        let mut mmb = Middlebox::new(&format!("set conn invalid {invalid}\n{REFLEXIVE}"));
        let passes = invalid == "pass";
        assert_eq!(mmb.passes(A, &corrupted(segment(true, SYN, 100, 0))), passes);
        assert!(mmb.list().is_empty(), "no entry");
        mmb.passes(A, &segment(true, SYN, 100, 0));
        let syn_ack = segment(false, SYN | ACK, 500, 101);
        assert_eq!(mmb.passes(B, &corrupted(syn_ack.clone())), passes);
        assert_eq!(mmb.state(), "syn-sent");
        // Another first number, which the sender did not choose.
        assert_eq!(mmb.passes(A, &corrupted(segment(true, SYN, 90_000_000, 0))), passes);
        assert!(mmb.passes(B, &syn_ack));
        assert!(mmb.passes(A, &segment(true, ACK, 101, 501)));
        assert_eq!(mmb.passes(B, &corrupted(segment(false, RST, 501, 0))), passes);
        assert_eq!(mmb.passes(A, &corrupted(segment(true, FIN | ACK, 101, 501))), passes);
        assert_eq!(mmb.state(), "established");
        assert_eq!(mmb.invalid(), [("bad-checksum", 5)]);
        // Data changes no state: whoever gets it looks.
        assert!(mmb.passes(A, &corrupted(ip4(true, tcp(true, ACK, 101, 501, 30)))));
        assert_eq!(mmb.invalid(), [("bad-checksum", 5)]);
        mmb.passes(B, &segment(false, RST, 501, 0));
        assert_eq!(mmb.state(), "reset");
        assert_eq!(mmb.passes(A, &corrupted(segment(true, SYN, 9000, 0))), passes);
        assert_eq!(mmb.state(), "reset", "not opened anew");
        assert!(mmb.passes(A, &segment(true, SYN, 9000, 0)));
        assert_eq!(mmb.state(), "syn-sent");
    }
}

#[test]
fn datagrams_and_queries_with_a_wrong_checksum_begin_and_answer_nothing() {
    type Framed = fn(bool, Upper) -> Vec<u8>;
    let ways: [(Framed, [u8; 2]); 2] = [(ip4, [8, 0]), (ip6, [128, 129])];
    for (frame, [asks, answers]) in ways {
        for (request, answer) in [(udp(true), udp(false)), (echo(asks), echo(answers))] {
            let (request, answer) = (frame(true, request), frame(false, answer));
            let mut mmb = Middlebox::new(REFLEXIVE);
            mmb.passes(A, &corrupted(request.clone()));
            assert!(mmb.list().is_empty());
            mmb.passes(A, &request);
            mmb.passes(B, &corrupted(answer.clone()));
            assert_eq!(mmb.state(), "unreplied");
            assert_eq!(mmb.invalid(), [("bad-checksum", 2)]);
            mmb.passes(B, &answer);
            assert_eq!(mmb.state(), "replied");
        }
    }
}

/// RFC 768: a datagram may have none; over IPv6 those of tunnels have none (RFC 6935), and a middlebox forwards them (RFC 6936 section 4).
#[test]
fn datagrams_without_a_checksum_are_followed() {
    type Framed = fn(bool, Upper) -> Vec<u8>;
    let ways: [(Framed, usize, &str, &str); 2] = [
        (ip4, 14 + 20, "ip-saddr 10.0.0.1", "map ip-saddr 10.0.0.1"),
        (ip6, 14 + 40, "ip6-saddr 2001:db8::1", "map ip6-saddr 2001:db8::1"),
    ];
    for (frame, l4, source, map) in ways {
        let unsummed = |forward| {
            let mut frame = frame(forward, udp(forward));
            frame[l4 + 6..][..2].fill(0);
            frame
        };
        let rules = [REFLEXIVE.to_owned(), format!("add-stateful in a {source} {map} shuffle udp-sport")];
        for rules in rules {
            let mut mmb = Middlebox::new(&format!("set conn invalid drop\n{rules}"));
            let mut request = mmb.through(A, &unsummed(true));
            assert_eq!(request[l4 + 6..][..2], [0; 2], "it still has none");
            let [from, to] = [request[l4..][..2].to_vec(), request[l4 + 2..][..2].to_vec()];
            request = unsummed(false);
            request[l4..][..2].copy_from_slice(&to);
            request[l4 + 2..][..2].copy_from_slice(&from);
            let answer = mmb.through(B, &request);
            assert_eq!(answer[l4 + 2..][..2], 5000_u16.to_be_bytes());
            assert_eq!((mmb.state(), mmb.invalid()), ("replied", vec![]), "{rules}");
        }
        let mut mmb = Middlebox::new("add-stateful udp-dport 53 stream \"\\x01\\x01\\x01\" drop");
        assert_eq!(mmb.dropped(A, &unsummed(true)), DropReason::Rule, "it is searched");
    }
}

/// Fragments cannot be checked one by one.
#[test]
fn checksums_that_cannot_be_checked_are_not_wrong() {
    let Upper::Udp(datagram) = udp(true) else { unreachable!("it is one") };
    let first = Ip4 { source: INSIDE, destination: SERVER, flags: 1, ..Ip4::new(Upper::Udp(datagram)) };
    let mut mmb = Middlebox::new(REFLEXIVE);
    // The sum covers what is in the other fragments too.
    assert!(mmb.passes(A, &corrupted(first.frame().bytes())));
    assert_eq!(mmb.state(), "unreplied");
    assert!(mmb.invalid().is_empty());
}

#[test]
fn invalid_packets_are_dropped_if_it_is_set() {
    let beyond = ip4(true, tcp(true, ACK, 900_000, 501, 10));
    for (invalid, passes) in [("pass", true), ("drop", false)] {
        // A rule that asks for more than ends has packets classified each time.
        for more in ["", "add ip-ttl 3 drop"] {
            let mut mmb = Middlebox::new(&format!("set conn invalid {invalid}\n{REFLEXIVE}\n{more}"));
            mmb.open();
            let good = ip4(true, tcp(true, ACK, 101, 501, 10));
            for _ in 0..3 {
                assert!(mmb.passes(A, &good));
                assert_eq!(mmb.passes(A, &beyond), passes);
            }
            assert_eq!(mmb.invalid(), [("out-of-window", 3)]);
            let counted = mmb.list()[0].packets[0];
            assert_eq!(counted, 2 + if passes { 6 } else { 3 }, "what is dropped is not of the connection");
            let drops = mmb.engine.drops().into_iter().find(|(reason, _)| *reason == DropReason::ConnInvalid);
            assert_eq!(drops.map_or(0, |(_, count)| count), if passes { 0 } else { 3 });
            // In the place of the first one, it begins nothing that the drop would be about.
            assert!(mmb.passes(A, &segment(true, RST, 101, 0)));
        }
    }
    let mut mmb = Middlebox::new(&format!("set conn invalid drop\n{REFLEXIVE}"));
    assert_eq!(mmb.dropped(A, &segment(true, RST, 101, 0)), DropReason::ConnInvalid);
    assert_eq!(mmb.dropped(A, &segment(true, SYN | FIN, 101, 0)), DropReason::ConnInvalid);
    // Packets that no stateful rule tracks are not checked.
    let mut mmb = Middlebox::new("set conn invalid drop\nadd-stateful ip-proto udp accept");
    assert!(mmb.passes(A, &segment(true, RST, 101, 0)));
    assert!(mmb.invalid().is_empty());
    mmb.engine.publish(&policy("")).expect("it can be put in force");
}

#[test]
fn an_invalid_packet_counts_for_its_connection_only_if_it_passes() {
    let by_rule = "add-stateful all accept\nadd prio 10 ct invalid drop";
    let by_setting = "add-stateful all accept\nset conn invalid drop";
    for (text, passes) in [(by_rule, false), (by_setting, false), ("add-stateful all accept", true)] {
        let mut middlebox = Middlebox::new(text);
        middlebox.open();
        // The second one goes the way that was decided on.
        for n in 1..3 {
            assert_eq!(middlebox.passes(A, &segment(true, 0, 101, 501)), passes, "{text}");
            assert_eq!(middlebox.list()[0].packets, [2 + if passes { n } else { 0 }, 1], "{text}");
            assert_eq!(middlebox.invalid().iter().map(|(_, count)| count).sum::<u64>(), n, "{text}");
        }
    }
}

/// On Linux the entry of an unanswered SYN keeps the decision that made it.
#[test]
fn a_repeated_syn_is_classified_again_when_the_rules_changed() {
    let map = |to: &str| format!("add-stateful in a map ip-saddr {to}");
    let source = |frame: &[u8]| [frame[26], frame[27], frame[28], frame[29]];
    let syn = segment(true, SYN, 100, 0);
    let mut mmb = Middlebox::new(&map("200.0.0.1"));
    for _ in 0..2 {
        assert_eq!(source(&mmb.pass(A, &syn).1), [200, 0, 0, 1]);
    }
    assert_eq!(mmb.list().len(), 1);
    mmb.engine.publish(&policy(&map("200.0.0.2"))).expect("it can be put in force");
    assert_eq!(source(&mmb.pass(A, &corrupted(syn.clone())).1), [200, 0, 0, 1], "nobody would take this one");
    assert_eq!(source(&mmb.pass(A, &syn).1), [200, 0, 0, 2]);
    assert_eq!(mmb.state(), "syn-sent");
    mmb.engine.publish(&policy("add in a drop")).expect("it can be put in force");
    assert_eq!(mmb.dropped(A, &syn), DropReason::Rule);
    assert!(mmb.list().is_empty());
    // An answered connection keeps its rules.
    let mut mmb = Middlebox::new(REFLEXIVE);
    mmb.open();
    mmb.engine.publish(&policy(&map("200.0.0.2"))).expect("it can be put in force");
    assert_eq!(source(&mmb.pass(A, &segment(true, ACK, 101, 501)).1), [10, 0, 0, 1]);
}

/// A datagram that nobody has answered has no decision to keep either: the client that waits gets the port forward that was missing.
#[test]
fn an_unanswered_datagram_is_classified_again_when_the_rules_changed() {
    let map = |to: &str| format!("add-stateful in a map ip-saddr {to}");
    let source = |frame: &[u8]| [frame[26], frame[27], frame[28], frame[29]];
    for (request, answer) in [(udp(true), udp(false)), (echo(8), echo(0))] {
        let (request, answer) = (ip4(true, request), ip4(false, answer));
        for first in [REFLEXIVE, &map("200.0.0.1")] {
            let mut mmb = Middlebox::new(first);
            (0..3).for_each(|_| assert!(mmb.passes(A, &request)));
            assert_eq!((mmb.list().len(), mmb.engine.connections().summary().created), (1, 1));
            // A rule that it does not match changes nothing of it.
            mmb.engine.publish(&policy(&format!("{first}\nadd tcp-dport 99 drop"))).expect("a policy");
            (0..3).for_each(|_| assert!(mmb.passes(A, &request)));
            assert_eq!(mmb.engine.connections().summary().created, 1);
            mmb.engine.publish(&policy(&map("200.0.0.2"))).expect("it can be put in force");
            for _ in 0..3 {
                assert_eq!(source(&mmb.pass(A, &request).1), [200, 0, 0, 2]);
            }
            assert_eq!((mmb.state(), mmb.engine.connections().summary().created), ("unreplied", 2));
            mmb.engine.publish(&policy("add in a drop")).expect("it can be put in force");
            assert_eq!(mmb.dropped(A, &request), DropReason::Rule);
            assert!(mmb.list().is_empty());
        }
        // An answered connection keeps its rules.
        let mut mmb = Middlebox::new(REFLEXIVE);
        assert!(mmb.passes(A, &request) && mmb.passes(B, &answer));
        assert_eq!(mmb.state(), "replied");
        mmb.engine.publish(&policy(&map("200.0.0.2"))).expect("it can be put in force");
        assert_eq!(source(&mmb.pass(A, &request).1), [10, 0, 0, 1]);
    }
}

/// Only the first datagram must match the rule.
#[test]
fn an_unanswered_datagram_keeps_its_connection_if_it_differs_from_the_first() {
    let mut mmb =
        Middlebox::new("add-stateful in a ip-len 52 shuffle udp-sport\nadd-stateful in a ip-ttl 7 accept");
    let sport = |frame: &[u8]| [frame[34], frame[35]];
    let first = mmb.pass(A, &ip4(true, udp(true))).1;
    assert_eq!(mmb.list().len(), 1);
    for ttl in [64, 7] {
        let other = Ip4 {
            source: INSIDE,
            destination: SERVER,
            ttl,
            ..Ip4::new(Upper::Udp(Udp { sport: 5000, dport: 53, payload: vec![1; 99], ..Udp::default() }))
        };
        assert_eq!(sport(&mmb.pass(A, &other.frame().bytes()).1), sport(&first));
    }
    assert_eq!(mmb.engine.connections().summary().created, 1);
}

/// Under `conn per-source` a connection's record says more than its rules' number.
#[test]
fn a_repeated_syn_keeps_its_connection_where_sources_are_counted() {
    let mut mmb = Middlebox::new("set conn per-source 5\nadd-stateful in a shuffle tcp-sport");
    let syn = segment(true, SYN, 100, 0);
    let first = mmb.pass(A, &syn).1;
    for _ in 0..3 {
        assert_eq!(mmb.pass(A, &syn).1, first, "the same port as before");
    }
}

/// A connection's packets are looked up before the vector's first one ends it. Those behind its end reach neither the freed record
/// nor the connection that has its place.
#[test]
fn packets_behind_the_end_of_their_connection_reach_no_other_one() {
    for full in [false, true] {
        let mut mmb =
            Middlebox::new(if full { "set conn max 1\nadd-stateful in a accept" } else { REFLEXIVE });
        mmb.open();
        for _ in 0..2 {
            assert!(mmb.passes(B, &segment(false, ACK, 501, 101)), "what comes now has a plan");
        }
        let sport = if full { 5001 } else { 5000 };
        let begins = Tcp { sport, dport: 80, flags: SYN, seq: 900_000, window: 1000, ..Tcp::default() };
        let mut frames = vec![
            segment(false, RST, 501, 0),
            ip4(true, Upper::Tcp(begins)),
            segment(false, ACK, 501, 101),
            segment(false, ACK, 501, 101),
        ];
        let verdicts = mmb.pass_all(&[B, A, B, B], &mut frames);
        assert!(
            matches!(verdicts[0], Verdict::Send(_)) && matches!(verdicts[1], Verdict::Send(_)),
            "{verdicts:?}"
        );
        assert_eq!(verdicts[2..], [Verdict::Drop(DropReason::ConnInvalid); 2]);
        assert_eq!(mmb.state(), "syn-sent");
    }
}

/// RFC 5961 section 4: while the ends acknowledge each other's FIN, a SYN begins nothing.
#[test]
fn a_syn_does_not_end_a_connection_that_is_closing() {
    let mut mmb = Middlebox::new(REFLEXIVE);
    mmb.open();
    assert!(mmb.passes(A, &segment(true, FIN | ACK, 101, 501)));
    assert!(mmb.passes(B, &segment(false, FIN | ACK, 501, 101)));
    assert_eq!(mmb.state(), "closing");
    assert!(mmb.passes(A, &segment(true, SYN, 77, 0)));
    assert_eq!(mmb.state(), "closing");
}

/// RFC 9293 section 3.5, figure 8: both may open at once. A SYN with any number that comes before the server's answer must not keep that
/// out.
#[test]
fn a_blind_syn_does_not_keep_the_servers_answer_out() {
    let mut mmb = Middlebox::new(REFLEXIVE);
    assert!(mmb.passes(A, &segment(true, SYN, 100, 0)));
    assert!(mmb.passes(B, &segment(false, SYN, 99_999_999, 0)));
    assert!(mmb.passes(B, &segment(false, SYN | ACK, 500, 101)));
    assert!(mmb.passes(A, &segment(true, ACK, 101, 501)));
    assert_eq!(mmb.state(), "established");
    assert!(mmb.passes(B, &segment(false, ACK, 501, 101)));
    assert_eq!(mmb.invalid(), []);
}
