//! Changes that have to be confirmed: what waits, what is refused meanwhile, and the ways in which the wait ends.

mod common;

use common::{Running, start};
use mmb_control::{History, HistoryLimits, take_back_unconfirmed};
use mmb_language::parse_policy;
use mmb_protocol::Request;
use mmb_protocol::answer::{Answer, AnswerEnd, UnconfirmedLine};
use mmb_protocol::request::{ChangeOptions, ConnectionFate};
use std::thread;
use std::time::Duration;

/// Applies a policy that has to be confirmed; returns what waits.
fn apply(mmb: &Running, policy: &str, seconds: u32) -> (Vec<Answer>, AnswerEnd) {
    let options = ChangeOptions { source: Some("edge.mmb".into()), confirm: Some(seconds) };
    let request = Request::Apply(policy.into(), ConnectionFate::Release);
    mmb.ask(&Request::WithOptions(options, Box::new(request)))
}

fn waiting(answers: &[Answer]) -> Option<&UnconfirmedLine> {
    answers.iter().find_map(|answer| match answer {
        Answer::Unconfirmed(line) => Some(line),
        _ => None,
    })
}

/// Does what the daemon's thread does, until no change waits.
fn expire(mmb: &Running) {
    while waiting(&mmb.run("show version")).is_some() {
        take_back_unconfirmed(&mmb.daemon);
        thread::sleep(Duration::from_millis(20));
    }
}

const BEFORE: &str = "add id 1 tcp-dport 80 drop\nset conn pickup strict\n";
const AFTER: &str = "add id 1 tcp-dport 81 drop\nadd id 2 all accept\ndisable lan\n";

#[test]
fn a_change_that_is_not_confirmed_is_taken_back() {
    let mmb = start(BEFORE);
    let (answers, end) = apply(&mmb, AFTER, 1);
    let line = waiting(&answers).expect("it waits");
    assert_eq!((line.version, line.before, line.seconds, line.pid), (2, 1, 1, Some(std::process::id())));
    assert_eq!((end.version, mmb.rules().len()), (Some(2), 2));
    expire(&mmb);
    assert_eq!(mmb.rules(), ["1 add tcp-dport 80 drop"]);
    let text = mmb.run("history 1");
    let Some(Answer::HistoryEntry(entry)) = text.last() else { panic!("{text:?}") };
    assert_eq!((entry.version, entry.in_force, entry.action.as_str()), (Some(3), true, "rollback"));
    assert_eq!(entry.command, "rollback 1 (version 2 was not confirmed within 1 s)");
    assert!(mmb.refused(&["confirm"])[0].message.contains("no change waits"));
    assert_eq!(mmb.run("diff 1").len(), 2, "settings and ports too");
    mmb.run("add all drop");
}

#[test]
fn other_changes_are_refused_while_one_waits() {
    let mmb = start(BEFORE);
    let _packets = mmb.packets();
    apply(&mmb, AFTER, 1000);
    let refused = |command: &str| mmb.refused(&[command])[0].message.clone();
    for command in
        ["add all drop", "flush", "set poll spin", "enable lan", "rollback 2", "del 1", "replace 1 all drop"]
    {
        let message = refused(command);
        assert!(
            message.contains("version 2 of the policy waits for its confirmation, for another "),
            "{message}"
        );
        assert!(
            message.contains("apply edge.mmb")
                && message.contains(&format!("process {}", std::process::id())),
            "{message}"
        );
    }
    assert!(!apply(&mmb, BEFORE, 5).1.ok);
    assert!(mmb.ask(&Request::DryRun(BEFORE.into(), ConnectionFate::Release)).1.ok, "that is no change");
    assert!(!mmb.ask(&Request::Batch { text: "flush".into(), dry_run: false }).1.ok);
    let (file, _) = parse_policy(BEFORE).expect("a policy");
    let reloaded = mmb.daemon.lock().expect("not poisoned").apply_file(file, "SIGHUP".into());
    assert!(reloaded.expect_err("refused").to_string().contains("waits for its confirmation"));
    // What is no change of the policy goes on.
    mmb.run("conn kill all");
    mmb.run("clear counters");
    mmb.run("list");
    assert!(waiting(&mmb.run("show version")).is_some() && waiting(&mmb.run("show runtime")).is_some());
    take_back_unconfirmed(&mmb.daemon);
    let other = mmb.refused(&["confirm 1"]);
    assert!(
        other[0].message.contains("version 1 does not wait") && other[0].message.contains("version 2"),
        "{other:?}"
    );
    assert_eq!(mmb.run("confirm 2"), [Answer::Confirmed(2)]);
    assert_eq!(mmb.rules().len(), 2);
    mmb.run("flush");
}

#[test]
fn a_rollback_ends_the_wait_at_once() {
    let mmb = start(BEFORE);
    apply(&mmb, AFTER, 1000);
    let (_, end) = mmb.ask(&Request::Run(vec!["rollback".into()]));
    assert_eq!((end.ok, end.version), (true, Some(3)));
    assert_eq!(mmb.rules(), ["1 add tcp-dport 80 drop"]);
    assert!(waiting(&mmb.run("show version")).is_none());
    let options = ChangeOptions { source: None, confirm: Some(1000) };
    let batch = Request::Batch { text: "flush\nadd all drop\n".into(), dry_run: false };
    let (answers, _) = mmb.ask(&Request::WithOptions(options.clone(), Box::new(batch)));
    assert_eq!(waiting(&answers).map(|line| (line.version, line.command.as_str())), Some((4, "batch")));
    mmb.run("rollback 3");
    // Nothing is changed, nothing waits.
    let same = Request::Batch { text: "set conn pickup strict\n".into(), dry_run: false };
    let (answers, end) = mmb.ask(&Request::WithOptions(options, Box::new(same)));
    assert!(end.ok && waiting(&answers).is_none(), "{answers:?}");
    mmb.run("add all drop");
}

/// What a restart puts in force, if the policy file is this one.
fn restarted(directory: &std::path::Path, file: &str) -> Option<String> {
    let history = History::open(directory, HistoryLimits::DIRECTORY).expect("a directory");
    let (file, _) = parse_policy(file).expect("a policy");
    history.instead_of(&file).map(|(policy, _)| {
        let rules: Vec<_> =
            policy.rules.iter().map(|rule| mmb_language::with_id(&rule).to_string()).collect();
        rules.join("; ")
    })
}

#[test]
fn a_restart_makes_no_unconfirmed_policy_permanent() {
    let directory = tempfile::tempdir().expect("a directory");
    let kept = |policy: &str| {
        let mmb = start(policy);
        let history = History::open(directory.path(), HistoryLimits::DIRECTORY).expect("a directory");
        mmb.daemon.lock().expect("not poisoned").keep_history(history, "start".into());
        mmb
    };
    let before = Some("add id 1 tcp-dport 80 drop".to_owned());
    let mmb = kept(BEFORE);
    apply(&mmb, AFTER, 1000);
    drop(mmb);
    assert_eq!(restarted(directory.path(), AFTER), before, "during the wait");
    assert_eq!(restarted(directory.path(), BEFORE), None, "the file has another policy");

    // Also after it was taken back, until it is confirmed or applied for good.
    let mmb = kept(BEFORE);
    apply(&mmb, AFTER, 1000);
    mmb.run("rollback");
    drop(mmb);
    assert_eq!(restarted(directory.path(), AFTER), before);
    let mmb = kept(BEFORE);
    mmb.apply(AFTER);
    drop(mmb);
    assert_eq!(restarted(directory.path(), AFTER), None, "applied");
    let mmb = kept(BEFORE);
    apply(&mmb, AFTER, 1000);
    mmb.run("confirm");
    drop(mmb);
    assert_eq!(restarted(directory.path(), AFTER), None, "confirmed");
}
