//! Rules that ask for the state of a packet in connection tracking (`ct`). Expectations are those of Linux's conntrack.

use crate::host::Middlebox;
use crate::one_connection::{A, ACK, B, FIN, RST, SYN, corrupted, echo, ip4, ip6, segment, udp};
use crate::witnessed::Witnessed;
use mmb_engine::{DropReason, Verdict};
use mmb_testkit::{Icmp, Upper};

/// As Linux's `ctstate` and `ctdir` say of the same packets. Rules that rewrite more than the ends have each packet classified; else what
/// was decided for a connection goes for its later packets.
#[test]
fn rules_see_how_packets_stand_to_connections() {
    for more in ["add-stateful in a accept", "add-stateful in a accept\nadd ip-ttl 3 drop"] {
        let mut mmb = Witnessed::new(more);
        assert_eq!(mmb.states(A, &segment(true, SYN, 100, 0)), ["new"]);
        assert_eq!(mmb.states(A, &segment(true, SYN, 100, 0)), ["new"], "not answered");
        assert_eq!(mmb.states(B, &segment(false, SYN | ACK, 500, 101)), ["established", "reply"]);
        for _ in 0..3 {
            assert_eq!(mmb.states(A, &segment(true, ACK, 101, 501)), ["established"]);
            assert_eq!(mmb.states(B, &segment(false, ACK, 501, 101)), ["established", "reply"]);
            assert_eq!(mmb.states(A, &segment(true, ACK, 9_000_000, 501)), ["invalid"]);
            assert_eq!(mmb.states(B, &segment(false, SYN | FIN, 501, 101)), ["invalid"]);
            assert_eq!(mmb.states(A, &corrupted(segment(true, FIN | ACK, 101, 501))), ["invalid"]);
        }
        assert_eq!(mmb.states(A, &ip4(true, udp(true))), ["new"]);
        assert_eq!(mmb.states(A, &ip4(true, udp(true))), ["new"]);
        assert_eq!(mmb.states(B, &ip4(false, udp(false))), ["established", "reply"]);
        for _ in 0..3 {
            assert_eq!(mmb.states(A, &ip4(true, udp(true))), ["established"]);
        }
        let sent = ip4(true, udp(true));
        let about =
            Upper::Icmp(Icmp { icmp_type: 3, code: 1, payload: sent[14..].to_vec(), ..Icmp::default() });
        assert_eq!(mmb.states(B, &ip4(false, about)), ["related", "reply"]);
        assert_eq!(mmb.states(A, &ip4(true, echo(8))), ["new"]);
        assert_eq!(mmb.states(B, &ip4(false, echo(0))), ["established", "reply"]);
    }
}

/// Without a stateful rule nobody makes connections; what could begin one is new all the same.
#[test]
fn packets_of_no_connection_are_new_or_invalid() {
    for (pickup, ack) in [("loose", "new"), ("strict", "invalid")] {
        let mut mmb = Witnessed::new(&format!("set conn pickup {pickup}"));
        assert_eq!(mmb.states(A, &segment(true, SYN, 100, 0)), ["new"]);
        assert_eq!(mmb.states(A, &segment(true, ACK, 100, 1)), [ack]);
        for flags in [RST, FIN | ACK, SYN | ACK, 0, SYN | FIN] {
            assert_eq!(mmb.states(A, &segment(true, flags, 100, 1)), ["invalid"], "{flags:#x}");
        }
        assert_eq!(mmb.states(A, &ip4(true, udp(true))), ["new"]);
        assert_eq!(mmb.states(A, &ip4(true, echo(8))), ["new"]);
        assert_eq!(mmb.states(A, &ip4(true, echo(0))), ["invalid"], "an answer to nothing");
        assert!(
            mmb.states(A, &ip4(true, echo(9))).is_empty(),
            "a router's advertisement is followed by nobody"
        );
        assert!(mmb.states(A, &ip6(true, echo(135))).is_empty(), "nor is neighbour discovery");
        let mut arp = vec![0xff; 12];
        arp.extend([0x08, 0x06]);
        arp.resize(60, 0);
        assert!(mmb.states(A, &arp).is_empty());
    }
}

#[test]
fn a_firewall_of_states_lets_in_what_was_asked_for() {
    let mut mmb = Middlebox::new(
        "add prio 10 ct invalid drop\nadd-stateful in a ct new accept\nadd in b ct {established, related} accept\n\
         add prio 200 in b drop",
    );
    assert_eq!(mmb.dropped(B, &segment(false, SYN, 1, 0)), DropReason::Rule);
    assert_eq!(mmb.dropped(A, &segment(true, RST, 1, 0)), DropReason::Rule);
    mmb.open();
    assert_eq!(mmb.dropped(B, &segment(false, RST, 90_000, 0)), DropReason::Rule);
    assert_eq!(mmb.dropped(B, &segment(false, SYN | RST, 501, 101)), DropReason::Rule);
    for _ in 0..3 {
        assert!(mmb.passes(B, &segment(false, ACK, 501, 101)));
        assert_eq!(mmb.dropped(B, &segment(false, ACK, 9_000_000, 101)), DropReason::Rule);
    }
    assert_eq!(mmb.state(), "established");
}

/// A vector is classified before its first packet made the connection that the others are of.
#[test]
fn states_within_a_vector_follow_its_packets() {
    let mut mmb = Middlebox::new(
        "add-stateful all accept\nadd prio 10 ct reply mod ip-ttl 9\nadd prio 10 ct invalid drop",
    );
    let mut frames = vec![
        segment(true, SYN, 100, 0),
        segment(false, SYN | ACK, 500, 101),
        segment(true, ACK, 101, 501),
        segment(false, RST, 700_000, 0),
        segment(false, ACK, 501, 101),
    ];
    let verdicts = mmb.pass_all(&[A, B, A, B, B], &mut frames);
    let ttls: Vec<u8> = frames.iter().map(|frame| frame[14 + 8]).collect();
    assert_eq!(verdicts[3], Verdict::Drop(DropReason::Rule));
    assert_eq!([ttls[1], ttls[4]], [9, 9]);
    assert!([ttls[0], ttls[2]].iter().all(|ttl| *ttl != 9));
}
