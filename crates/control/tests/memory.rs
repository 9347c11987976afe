//! Changes that need more memory than there is are refused; the daemon and its policy stay.

mod common;

use common::{Running, start};
use mmb_control::answer::{Answer, ErrorLine};
use mmb_control::protocol::Request;

fn have(mmb: &Running, megabytes: u64) {
    *mmb.memory.lock().expect("not poisoned") = Some(megabytes << 20);
}

/// Why a request was refused.
fn refused(mmb: &Running, request: &Request) -> ErrorLine {
    let (answers, end) = mmb.ask(request);
    assert!(!end.ok && end.change.is_none(), "{answers:?}");
    match answers.into_iter().next() {
        Some(Answer::Error(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn rules(number: usize) -> Request {
    let lines = (0..number).map(|n| format!("add ip-saddr 10.{}.{}.1 drop\n", n / 256, n % 256));
    Request::Apply(lines.collect())
}

#[test]
fn a_policy_that_memory_does_not_suffice_for_is_refused_and_the_old_one_stays() {
    let mmb = start("add all accept");
    have(&mmb, 36);
    let error = refused(&mmb, &rules(10_000));
    assert_eq!(error.message, "not enough memory: this may take 7 MB, and 4 MB can be had (a test's)");
    assert_eq!(mmb.rules(), ["1 add all accept"]);
    have(&mmb, 40);
    assert!(mmb.ask(&rules(10_000)).1.ok);
}

#[test]
fn what_makes_room_needs_none() {
    let mmb = start("");
    assert!(mmb.ask(&rules(10_000)).1.ok);
    have(&mmb, 0);
    mmb.run("del 1");
    mmb.run("add tcp-dport 80 drop");
    mmb.run("flush");
    assert!(mmb.rules().is_empty());
}

#[test]
fn more_connections_than_memory_holds_are_refused_with_the_number_that_fits() {
    let mmb = start("");
    have(&mmb, 4128);
    let error = refused(&mmb, &Request::Run(vec!["set conn max 100000000".into()]));
    let told = "set conn max 100000000: not enough memory: this may take 128174 MB, and 4096 MB can be had (a test's); \
                3195660 would fit";
    assert_eq!(error.message, told);
    assert_eq!(error.span.map(|span| span.0), Some(13), "the number is shown");
    mmb.run("set conn max 3195660");
    have(&mmb, 0);
    mmb.run("set conn max 1000000");
}
