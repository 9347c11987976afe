//! Changes of the policy: which rules existing connections keep, lose or get, and how many connections a change affects.

use crate::host::{Middlebox, policy};
use crate::inside_frames::{A, ACK, B, INSIDE, OUTSIDE, SERVER, SYN, tcp, udp};
use mmb_engine::{AffectedConnections, DropReason};
use mmb_policy::{ConnectionFilter, RuleId};
use std::net::Ipv4Addr;

#[test]
fn a_policy_that_goes_takes_its_rules_and_leaves_translations() {
    let nat =
        "add id 1 ip-proto tcp drop\nadd-stateful id 2 ip-saddr 10.0.0.0/24 accept mod ip-saddr 200.0.0.1";
    let mut mmb = Middlebox::new(&format!("{nat}\n"));
    let (client, server) = ((INSIDE, 5000), (SERVER, 80));
    assert_eq!(mmb.through(A, &tcp(client, server, SYN)), tcp((OUTSIDE, 5000), server, SYN));
    // The same policy again changes nothing.
    mmb.engine.publish(&policy(nat)).expect("it can be put in force");
    assert_eq!(mmb.through(A, &tcp(client, server, SYN)), tcp((OUTSIDE, 5000), server, SYN));
    // Without its rule the connection is not accepted any more.
    mmb.engine.publish(&policy("add id 1 ip-proto tcp drop")).expect("it can be put in force");
    assert_eq!(mmb.dropped(A, &tcp(client, server, ACK)), DropReason::Rule);
    // A later rule with the id of a removed one is not its successor.
    let other = "add id 1 ip-proto tcp drop\nadd-stateful id 2 ip-saddr 10.9.0.0/24 accept";
    mmb.engine.publish(&policy(other)).expect("it can be put in force");
    assert_eq!(mmb.dropped(A, &tcp(client, server, ACK)), DropReason::Rule);
    mmb.engine.publish(&policy("")).expect("it can be put in force");
    assert_eq!(mmb.through(A, &tcp(client, server, ACK)), tcp((OUTSIDE, 5000), server, ACK));
}

#[test]
fn a_rule_that_is_replaced_under_its_id_hands_over_its_connections() {
    let rules = |pool: &str, ttl: u8| {
        let nat = format!("ip-saddr 10.0.0.0/24 map ip-saddr {pool} mod ip-ttl {ttl} accept");
        policy(&format!("add id 1 ip-proto tcp drop\nadd-stateful id 2 {nat}"))
    };
    let mut mmb = Middlebox::new("");
    mmb.engine.publish(&rules("200.0.0.1", 64)).expect("it can be put in force");
    let (client, server) = ((INSIDE, 5000), (SERVER, 80));
    let outside = mmb.through(A, &tcp(client, server, SYN));
    mmb.through(B, &tcp(server, (OUTSIDE, 5000), SYN | ACK));
    assert_eq!(mmb.engine.rule_count(RuleId(2)).matched.packets, 2);
    let replaced = |mmb: &mut Middlebox, pool: &str| {
        mmb.engine.publish(&rules(pool, 9)).expect("it can be put in force");
        assert_eq!(mmb.engine.rule_count(RuleId(2)).matched.packets, 0, "the new rule has matched nothing");
        let left = mmb.through(A, &tcp(client, server, ACK));
        let returned = mmb.through(B, &tcp(server, (OUTSIDE, 5000), ACK));
        let ttl = |frame: &[u8]| frame[14 + 8];
        assert_eq!(&left[26..36], &outside[26..36], "addresses and ports stay");
        assert_eq!((ttl(&left), ttl(&returned)), (9, 9), "the other targets are the new rule's");
        assert_eq!(mmb.engine.rule_count(RuleId(2)).matched.packets, 2);
    };
    replaced(&mut mmb, "200.0.0.2");
    replaced(&mut mmb, "200.0.0.3-200.0.0.4");
    assert_eq!(mmb.list().len(), 1);
    // A stateless rule does not inherit connections.
    let stateless = policy("add id 1 ip-proto tcp drop\nadd id 2 udp-dport 1 accept");
    mmb.engine.publish(&stateless).expect("it can be put in force");
    assert_eq!(mmb.dropped(A, &tcp(client, server, ACK)), DropReason::Rule);
}

#[test]
fn the_connections_that_a_change_affects_are_counted() {
    let drop = "add id 1 ip-proto tcp drop\n";
    let nat = |ttl: u8| format!("add-stateful id 2 ip-saddr 10.0.0.0/24 mod ip-ttl {ttl} accept\n");
    let web = "add-stateful id 3 tcp-dport 80 mod ip-dscp 1\n";
    let mut mmb = Middlebox::new(&format!("{drop}{}{web}", nat(64)));
    let before = policy(&format!("{drop}{}{web}", nat(64)));
    (0..3000u16).for_each(|n| _ = mmb.through(A, &tcp((INSIDE, 2000 + n), (SERVER, 80), SYN)));
    (0..20u16).for_each(|n| _ = mmb.through(A, &tcp((INSIDE, 2000 + n), (SERVER, 81), SYN)));
    let mut affected = |after: &str| {
        let change = mmb.engine.stateful_change(&before, &policy(after));
        let affected = mmb.ask(|connections| connections.affected(&change)).expect("the worker answers");
        (affected.handed_over, affected.lose_rules, affected.lose_accept)
    };
    assert_eq!(affected(&format!("{drop}{}{web}", nat(64))), (0, 0, 0));
    assert_eq!(affected(&format!("{}{web}", nat(64))), (0, 0, 0), "a stateless rule goes");
    assert_eq!(affected(&format!("{drop}{}{web}", nat(9))), (3020, 0, 0));
    assert_eq!(affected(&format!("{drop}{}", nat(64))), (0, 3000, 0));
    assert_eq!(affected(&format!("{drop}{web}")), (0, 3020, 3020));
    let silent = "add-stateful id 2 ip-saddr 10.0.0.0/24 mod ip-ttl 9\n";
    assert_eq!(affected(&format!("{drop}{silent}{web}")), (3020, 0, 3020), "the successor does not accept");
    let accepts = "add-stateful id 3 tcp-dport 80 accept\n";
    assert_eq!(affected(&format!("{drop}{accepts}")), (3000, 3020, 20), "another rule's successor does");
    // The same numbers when the workers know the new policy already.
    let after = policy(&format!("{drop}{accepts}"));
    let change = mmb.engine.stateful_change(&before, &after);
    mmb.engine.publish(&after).expect("it can be put in force");
    let affected = mmb.ask(|connections| connections.affected(&change)).expect("the worker answers");
    assert_eq!((affected.handed_over, affected.lose_rules, affected.lose_accept), (3000, 3020, 20));
}

#[test]
fn connections_keep_a_rule_that_drains_until_they_end() {
    let rules = |draining: &str| {
        let nat = format!("add-stateful id 2 {draining}ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.1 accept");
        policy(&format!("add id 1 ip-proto tcp drop\n{nat}"))
    };
    for is_answered in [false, true] {
        let mut mmb = Middlebox::new("");
        mmb.engine.publish(&rules("")).expect("it can be put in force");
        let (client, server) = ((INSIDE, 5000), (SERVER, 80));
        let reply = |flags| tcp(server, (OUTSIDE, 5000), flags);
        let outside = mmb.through(A, &tcp(client, server, SYN));
        if is_answered {
            mmb.through(B, &reply(SYN | ACK));
            mmb.through(A, &tcp(client, server, ACK));
        }
        let change = mmb.engine.stateful_change(&rules(""), &rules("draining "));
        let affected = mmb.ask(|connections| connections.affected(&change)).expect("the worker answers");
        assert_eq!(affected, AffectedConnections { kept: 1, ..AffectedConnections::default() });
        mmb.engine.publish(&rules("draining ")).expect("it can be put in force");
        mmb.wait(0);
        assert!(mmb.engine.drained().is_empty(), "it has a connection");
        if is_answered {
            mmb.through(A, &tcp(client, server, ACK));
            mmb.through(B, &reply(ACK));
        } else {
            assert_eq!(mmb.through(A, &tcp(client, server, SYN)), outside, "a repeated SYN is its own");
            mmb.through(B, &reply(SYN | ACK));
        }
        assert_eq!(mmb.dropped(A, &tcp((INSIDE, 5001), server, SYN)), DropReason::Rule, "no new connection");
        assert_eq!(mmb.list()[0].rules[..], [RuleId(2)]);
        // Without `draining` it takes connections again, and keeps these.
        mmb.engine.publish(&rules("")).expect("it can be put in force");
        mmb.through(A, &tcp((INSIDE, 5001), server, SYN));
        mmb.through(B, &reply(ACK));
        assert!(mmb.engine.drained().is_empty(), "it does not drain");
        mmb.engine.publish(&rules("draining ")).expect("it can be put in force");
        mmb.ask(|connections| {
            connections.kill(&ConnectionFilter { sport: Some((5000, 5000)), ..ConnectionFilter::ALL })
        })
        .expect("the worker answers");
        assert!(mmb.engine.drained().is_empty(), "one is left");
        mmb.ask(|connections| connections.kill(&ConnectionFilter::ALL)).expect("the worker answers");
        assert_eq!(mmb.engine.drained(), [RuleId(2)]);
        // A policy of many changes is compiled at once.
        let many: String = (10..6000).map(|id| format!("add id {id} udp-dport {id} drop\n")).collect();
        let draining = "add-stateful id 2 draining ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.1 accept\n";
        mmb.engine.publish(&policy(&(many + draining))).expect("it can be put in force");
        mmb.through(A, &tcp(client, server, SYN));
        assert_eq!(mmb.list(), []);
    }
}

#[test]
fn a_rule_drains_on_a_port_that_is_gone() {
    let mut mmb = Middlebox::new("");
    let rule = |draining: &str| policy(&format!("add-stateful id 2 {draining}in nowhere accept"));
    assert!(mmb.engine.publish(&rule("")).is_err());
    mmb.engine.publish(&rule("draining ")).expect("it matches no packets");
    assert!(mmb.engine.publish(&rule("")).is_err());
}

#[test]
fn the_connections_of_removed_rules_are_ended() {
    let both = "add-stateful id 2 ip-proto tcp accept\nadd-stateful id 3 ip-proto udp accept";
    let mut mmb = Middlebox::new(both);
    (0..3000u16).for_each(|n| _ = mmb.through(A, &tcp((INSIDE, 2000 + n), (SERVER, 80), SYN)));
    mmb.through(A, &udp((INSIDE, 2000), (SERVER, 53)));
    let after = policy("add-stateful id 3 ip-proto udp mod ip-ttl 5 accept");
    let change = mmb.engine.stateful_change(&policy(both), &after);
    mmb.engine.publish(&after).expect("it can be put in force");
    assert_eq!(mmb.ask(|connections| connections.kill_removed(&change)), Ok(3000));
    assert_eq!(mmb.list().len(), 1);
}

#[test]
fn an_unanswered_beginning_is_decided_anew_by_a_replaced_rule() {
    let rules = |pool: &str| policy(&format!("add-stateful id 2 ip-saddr 10.0.0.0/24 map ip-saddr {pool}"));
    let mut mmb = Middlebox::new("");
    mmb.engine.publish(&rules("200.0.0.1")).expect("it can be put in force");
    let (client, server) = ((INSIDE, 5000), (SERVER, 80));
    assert_eq!(mmb.through(A, &tcp(client, server, SYN)), tcp((OUTSIDE, 5000), server, SYN));
    mmb.engine.publish(&rules("200.0.0.2")).expect("it can be put in force");
    let other = Ipv4Addr::new(200, 0, 0, 2);
    assert_eq!(mmb.through(A, &tcp(client, server, SYN)), tcp((other, 5000), server, SYN));
}
