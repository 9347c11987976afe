//! Changes that need more memory than is available are refused; the daemon and its policy stay.

use crate::common::{Running, start, start_bounded};
use mmb_protocol::Request;
use mmb_protocol::answer::{Answer, ErrorLine};
use mmb_protocol::request::ConnectionFate;

fn have(mmb: &Running, megabytes: u64) {
    *mmb.memory.lock().expect("not poisoned") = Some(megabytes << 20);
}

/// Returns the error of a request that is refused.
fn refused(mmb: &Running, request: &Request) -> ErrorLine {
    let (answers, end) = mmb.ask(request);
    assert!(!end.ok && end.change.is_none(), "{answers:?}");
    match answers.into_iter().next() {
        Some(Answer::Error(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn rules(number: usize) -> Request {
    Request::Apply(rule_lines(number), ConnectionFate::Release)
}

fn rule_lines(number: usize) -> String {
    (0..number).map(|n| format!("add ip-saddr 10.{}.{}.1 drop\n", n / 256, n % 256)).collect()
}

#[test]
fn a_policy_that_does_not_fit_the_memory_is_refused_and_the_old_one_stays() {
    let mmb = start("add all accept");
    have(&mmb, 36);
    let error = refused(&mmb, &rules(10_000));
    assert_eq!(
        error.message,
        "not enough memory: this may need 7 MB, but only 4 MB are available (a test's)"
    );
    assert_eq!(mmb.rules(), ["1 add all accept"]);
    have(&mmb, 40);
    assert!(mmb.ask(&rules(10_000)).1.ok);
}

/// Each of 16 keys of these rules has its conditions. They were counted as rules of one key, and the daemon ended when memory was used up.
#[test]
fn rules_of_several_keys_with_conditions_count_for_what_they_take() {
    let mmb = start("");
    have(&mmb, 40);
    let ports = "{1,3,5,7,9,11,13,15,17,19,21,23,25,27,29,31}";
    let heavy = |number: usize| -> String {
        (0..number)
            .map(|n| {
                format!(
                    "add ip-saddr 10.0.{}.{} tcp-dport {ports} ip-ttl>3 tcp-win>1 drop\n",
                    n / 256,
                    n % 256
                )
            })
            .collect()
    };
    let error = refused(&mmb, &Request::Apply(heavy(2000), ConnectionFate::Release));
    assert!(error.message.starts_with("not enough memory: this may need "), "{}", error.message);
    assert!(mmb.rules().is_empty());
    // As many simple rules fit, and some of these.
    assert!(mmb.ask(&Request::Apply(heavy(100), ConnectionFate::Release)).1.ok);
    assert!(mmb.ask(&rules(2000)).1.ok);
}

#[test]
fn a_change_that_frees_memory_needs_none() {
    let mmb = start("");
    assert!(mmb.ask(&rules(10_000)).1.ok);
    have(&mmb, 0);
    mmb.run("del 1");
    mmb.run("add tcp-dport 80 drop");
    mmb.run("flush");
    assert!(mmb.rules().is_empty());
}

#[test]
fn more_connections_than_fit_are_refused_with_the_number_that_fits() {
    let mmb = start("");
    have(&mmb, 4128);
    let error = refused(&mmb, &Request::Run(vec!["set conn max 100000000".into()]));
    let told = "set conn max 100000000: not enough memory: this may need 97657 MB, but only 4096 MB are available (a test's); \
                4194304 would fit";
    assert_eq!(error.message, told);
    assert_eq!(error.span.map(|span| span.0), Some(13), "the number is shown");
    mmb.run("set conn max 4194304");
    have(&mmb, 0);
    mmb.run("set conn max 1000000");
}

/// Returns the limit of connections.
fn max_connections(mmb: &Running) -> u64 {
    match &mmb.run("show conn summary")[..] {
        [Answer::Begin(_), Answer::Summary(line)] => line.max,
        other => panic!("{other:?}"),
    }
}

/// Three quarters of 32 MB, or all of it, at 1,024 bytes each.
const CUT: u64 = 24_576;
const FITS: u64 = 32_768;

/// The default was cut only at the start, and rules then took memory that connections needed.
#[test]
fn the_default_of_connections_is_cut_to_the_memory_and_again_for_rules() {
    let mmb = start_bounded("add all accept", Some(64 << 20)).expect("it fits");
    assert_eq!(max_connections(&mmb), CUT);
    // 20 MB.
    assert!(mmb.ask(&rules(32_768)).1.ok);
    assert_eq!(max_connections(&mmb), CUT * 12 / 32);
    mmb.run("flush");
    assert_eq!(max_connections(&mmb), CUT, "the rules' room");
    have(&mmb, 96);
    mmb.run("add all accept");
    // Three quarters of 64 MB.
    assert_eq!(max_connections(&mmb), 49_152, "more memory");
    have(&mmb, 48);
    mmb.run("flush");
    assert_eq!(max_connections(&mmb), 49_152, "small changes take nothing away");
}

/// A number below the default was accepted without a check.
#[test]
fn memory_for_a_set_number_of_connections_is_reserved_or_refused() {
    let mmb = start_bounded("", Some(64 << 20)).expect("it fits");
    let error = refused(&mmb, &Request::Run(vec!["set conn max 40000".into()]));
    assert!(error.message.ends_with(&format!("; {FITS} would fit")), "{}", error.message);
    assert_eq!(max_connections(&mmb), CUT);
    // 26 MB, more than the default was cut to.
    let asked = "set conn max 26000";
    mmb.run(asked);
    assert_eq!(max_connections(&mmb), 26_000);
    let error =
        refused(&mmb, &Request::Apply(format!("{asked}\n{}", rule_lines(12_000)), ConnectionFate::Release));
    let told = "not enough memory: this may need 8 MB, but only 6 MB are available (a test's; 26 MB are reserved for connections)";
    assert_eq!(error.message, told);
    assert!(
        mmb.ask(&Request::Apply(format!("{asked}\n{}", rule_lines(8_000)), ConnectionFate::Release)).1.ok
    );
    let refused = start_bounded("set conn max 40000", Some(64 << 20)).err().expect("it does not fit");
    assert!(refused.contains(&format!("{FITS} would fit")), "{refused}");
}

/// Each change was too small for a check.
#[test]
fn rules_of_many_small_changes_are_counted_together() {
    let mmb = start("");
    assert!(mmb.ask(&rules(20_000)).1.ok);
    have(&mmb, 32);
    let more = |batch: usize| {
        let line = |n: usize| format!("add ip-saddr 11.{batch}.{}.{} drop", n / 256, n % 256);
        Request::Run((0..1_000).map(line).collect())
    };
    (0..4).for_each(|batch| assert!(mmb.ask(&more(batch)).1.ok));
    let error = refused(&mmb, &more(4));
    assert!(error.message.starts_with("not enough memory: "), "{}", error.message);
    mmb.run("del 1");
    have(&mmb, 64);
    assert!(mmb.ask(&more(4)).1.ok);
}

const STREAM_RULE: &str = "add-stateful tcp-dport 80 stream \"ATTACK\" close";

/// The worker made the pools, and the process aborted if the memory was short.
/// The default of `conn max` was reduced at the start, and every later change was compared with all that streams may still take.
#[test]
fn small_changes_pass_although_streams_may_still_take_more_than_there_is() {
    let mmb = start_bounded(STREAM_RULE, Some(400 << 20)).expect("it fits");
    have(&mmb, 100);
    mmb.run("add tcp-dport 81 drop");
    mmb.run("set timeout udp 31");
    mmb.run("del 1");
    assert_eq!(mmb.rules().len(), 1);
}

#[test]
fn streams_that_do_not_fit_are_refused_with_the_number_that_fits() {
    let mmb = start("");
    have(&mmb, 1056);
    let run = |command: &str| refused(&mmb, &Request::Run(vec![command.to_owned()]));
    for (command, value) in [("set stream memory", "100000"), ("set stream max", "10000000")] {
        let error = run(&format!("{command} {value}"));
        let told = format!("{command} {value}: not enough memory: this may need ");
        assert!(error.message.starts_with(&told), "{}", error.message);
        assert!(error.message.contains(", but only 1024 MB are available (a test's); "), "{}", error.message);
        assert_eq!(error.span.map(|span| span.0), Some(command.len() + 1), "the number is shown");
        let fits = error.message.strip_suffix(" would fit").and_then(|text| text.rsplit(' ').next());
        let fits: u64 = fits.and_then(|fits| fits.parse().ok()).expect("a number that fits");
        assert!(fits > 0, "{}", error.message);
        mmb.run(&format!("{command} {fits}"));
        run(&format!("{command} {}", fits + fits / 20));
        mmb.run(&format!("{command} {}", fits / 4));
    }
    mmb.run(STREAM_RULE);
    let file = format!("set stream memory 100000\n{STREAM_RULE}");
    let error = refused(&mmb, &Request::Apply(file.clone(), ConnectionFate::Release));
    assert!(error.message.starts_with("set stream memory 100000: not enough memory: "), "{}", error.message);
    let error = start_bounded(&file, Some(1056 << 20)).err().expect("it does not fit");
    assert!(error.contains("set stream memory 100000: not enough memory: "), "{error}");
}

/// The error named neither the setting nor the value that fits.
#[test]
fn tables_of_limits_that_do_not_fit_are_refused_with_the_number_of_keys_that_fits() {
    let mmb = start("");
    have(&mmb, 132);
    let rules = |keys: u64| {
        let limits = "add udp-dport 53 limit 10/s per ip-saddr\n".repeat(4);
        Request::Apply(format!("set limit keys {keys}\n{limits}"), ConnectionFate::Release)
    };
    let error = refused(&mmb, &rules(1_000_000));
    // 64 bytes a key; 100 MB fit.
    let told = "set limit keys 1000000: not enough memory: this may need 257 MB, but only 100 MB are available (a test's); \
                262144 would fit";
    assert_eq!(error.message, told);
    assert_eq!(error.line, Some(1), "the number is shown");
    assert!(mmb.ask(&rules(262_144)).1.ok);
    // Smaller tables would not help.
    have(&mmb, 36);
    let error = refused(
        &mmb,
        &Request::Apply(
            format!("add udp-dport 53 limit 10/s per ip-saddr\n{}", rule_lines(10_000)),
            ConnectionFate::Release,
        ),
    );
    assert!(error.message.starts_with("not enough memory: "), "{}", error.message);
}

/// Rules are what makes the pools of the default settings.
#[test]
fn the_first_rule_on_streams_needs_the_memory_of_its_pools() {
    let mmb = start("");
    have(&mmb, 200);
    let error = refused(&mmb, &Request::Run(vec![STREAM_RULE.to_owned()]));
    assert!(error.message.starts_with("set stream memory 256: not enough memory: "), "{}", error.message);
    mmb.run("set stream memory 16");
    mmb.run("set stream max 10000");
    mmb.run(STREAM_RULE);
    // Memory that streams may still take is not there for others.
    have(&mmb, 54);
    let settings = "set stream memory 16\nset stream max 10000";
    let more = format!("{settings}\n{STREAM_RULE}\n{}", rule_lines(10_000));
    let error = refused(&mmb, &Request::Apply(more, ConnectionFate::Release));
    assert!(error.message.starts_with("not enough memory: "), "{}", error.message);
    have(&mmb, 0);
    mmb.run("set stream max 100");
    // A policy without rules on streams needs nothing for them.
    have(&mmb, 54);
    assert!(mmb.ask(&rules(10_000)).1.ok);
}
