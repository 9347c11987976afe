//! Changes that have to be confirmed: what waits, what is refused meanwhile, and the ways in which the wait ends.

use crate::common::{Running, start, start_bounded};
use mmb_control::{Daemon, History, HistoryLimits, Housekeeper};
use mmb_language::parse_policy;
use mmb_protocol::Request;
use mmb_protocol::answer::{Answer, AnswerEnd, UnconfirmedLine};
use mmb_protocol::request::{ChangeOptions, ConnectionFate};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Applies a policy that has to be confirmed; returns what waits.
fn apply(mmb: &Running, policy: &str, seconds: u32) -> (Vec<Answer>, AnswerEnd) {
    let options =
        ChangeOptions { source: Some("edge.mmb".into()), confirm: Some(seconds), ..ChangeOptions::default() };
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
        Housekeeper::new(&mmb.daemon).look();
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

/// Connections got the memory of streams that the change had freed, and the policy before did not fit any more.
#[test]
fn a_change_is_taken_back_whatever_memory_is_left() {
    let streams = "add-stateful id 1 tcp-dport 80 stream \"x\" close\n";
    let mmb = start_bounded(streams, Some(400 << 20)).expect("it fits");
    let max = || mmb.daemon.lock().expect("not poisoned").engine().connections().summary().max;
    let before = max();
    *mmb.memory.lock().expect("not poisoned") = Some(4000 << 20);
    apply(&mmb, AFTER, 1);
    assert_eq!(max(), before, "what is free belongs to the policy before");
    *mmb.memory.lock().expect("not poisoned") = Some(33 << 20);
    expire(&mmb);
    assert_eq!(mmb.rules(), ["1 add-stateful tcp-dport 80 stream \"x\" close"]);
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
    let reloaded = Daemon::apply_file(&mmb.daemon, file, "SIGHUP".into());
    assert!(reloaded.expect_err("refused").to_string().contains("waits for its confirmation"));
    // What is no change of the policy goes on.
    mmb.run("conn kill all");
    mmb.run("clear counters");
    mmb.run("list");
    assert!(waiting(&mmb.run("show version")).is_some() && waiting(&mmb.run("show runtime")).is_some());
    Housekeeper::new(&mmb.daemon).look();
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
    let options = ChangeOptions { confirm: Some(1000), ..ChangeOptions::default() };
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
        let policy = policy.expect("is kept");
        let rules: Vec<_> =
            policy.rules.iter().map(|rule| mmb_language::with_id(&rule).to_string()).collect();
        rules.join("; ")
    })
}

fn kept(directory: &Path, policy: &str) -> Running {
    let mmb = start(policy);
    let history = History::open(directory, HistoryLimits::DIRECTORY).expect("a directory");
    mmb.daemon.lock().expect("not poisoned").keep_history(history, "start".into());
    mmb
}

#[test]
fn a_restart_makes_no_unconfirmed_policy_permanent() {
    let directory = tempfile::tempdir().expect("a directory");
    let kept = |policy: &str| kept(directory.path(), policy);
    let before = Some("add id 1 tcp-dport 80 drop".to_owned());
    let mmb = kept(BEFORE);
    apply(&mmb, AFTER, 1000);
    drop(mmb);
    assert_eq!(restarted(directory.path(), AFTER), before, "during the wait");
    assert_eq!(restarted(directory.path(), BEFORE), None, "the file has another policy");

    // Also after it was taken back, until it is confirmed or in force for good.
    let taken_back = || {
        let mmb = kept(BEFORE);
        let (_, end) = apply(&mmb, AFTER, 1000);
        mmb.run("rollback");
        mmb.run("add tcp-dport 82 drop");
        (mmb, end.version.expect("a version"))
    };
    drop(taken_back());
    let since = Some("add id 1 tcp-dport 80 drop; add id 3 tcp-dport 82 drop".to_owned());
    assert_eq!(restarted(directory.path(), AFTER), since);
    let (file, _) = parse_policy(AFTER).expect("a policy");
    type PutInForce<'a> = &'a dyn Fn(&Running, u64);
    let for_good: [PutInForce<'_>; 4] = [
        &|mmb, _| drop(mmb.apply(AFTER)),
        &|mmb, _| drop(Daemon::apply_file(&mmb.daemon, file.clone(), "SIGHUP".into()).expect("applied")),
        &|mmb, version| drop(mmb.run(&format!("rollback {version}"))),
        &|mmb, _| {
            let text =
                "flush\nset conn pickup loose\nadd tcp-dport 81 drop\nadd all accept\ndisable lan\n".into();
            assert!(mmb.ask(&Request::Batch { text, dry_run: false }).1.ok);
        },
    ];
    for (index, puts_in_force) in for_good.iter().enumerate() {
        let (mmb, version) = taken_back();
        puts_in_force(&mmb, version);
        drop(mmb);
        assert_eq!(restarted(directory.path(), AFTER), None, "{index}");
    }
    let mmb = kept(BEFORE);
    apply(&mmb, AFTER, 1000);
    mmb.run("confirm");
    drop(mmb);
    assert_eq!(restarted(directory.path(), AFTER), None, "confirmed");
}

/// What a power failure takes away is never another version.
#[test]
fn an_unconfirmed_version_that_was_not_written_stays_unconfirmed() {
    let directory = tempfile::tempdir().expect("a directory");
    let mmb = kept(directory.path(), BEFORE);
    mmb.run("history");
    let file = directory.path().join("policy-0000000001.gz");
    let first = fs::read(&file).expect("reads");
    apply(&mmb, AFTER, 1000);
    drop(mmb);
    fs::write(&file, first).expect("writes");
    let before = Some("add id 1 tcp-dport 80 drop".to_owned());
    for _ in 0..3 {
        assert_eq!(restarted(directory.path(), AFTER), before);
        drop(kept(directory.path(), BEFORE));
    }
}

#[test]
fn a_version_before_that_is_not_written_is_told() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let mmb = kept(path, BEFORE);
    mmb.run("history");
    // The segment cannot be appended to, and no other one can be created.
    let [segment, elsewhere, temporary] =
        ["policy-0000000001.gz", "elsewhere", ".policy-0000000002.gz.tmp"].map(|name| path.join(name));
    fs::rename(&segment, &elsewhere).expect("is moved");
    fs::create_dir(&temporary).expect("is made");
    mmb.run("add tcp-dport 82 drop");
    mmb.run("history");
    fs::remove_dir(&temporary).expect("is removed");
    fs::rename(&elsewhere, &segment).expect("is moved");
    let (answers, _) = apply(&mmb, AFTER, 1000);
    assert!(format!("{answers:?}").contains("version 2, the one before, is not written"), "{answers:?}");
    drop(mmb);
    assert_eq!(
        restarted(path, AFTER),
        Some("add id 1 tcp-dport 80 drop".to_owned()),
        "the last one that is written"
    );
}

/// Elements of sets have the time left that they had, and those that have expired since make no other policy of the file.
#[test]
fn timeouts_of_sets_survive_a_restart_during_the_wait() {
    let directory = tempfile::tempdir().expect("a directory");
    let mmb = kept(directory.path(), "set bad {2.2.2.2 timeout 20s, 3.3.3.3}\nadd ip-saddr @bad drop\n");
    let after = "set bad {2.2.2.2 timeout 1h, 3.3.3.3 timeout 1s}\nadd ip-saddr @bad drop\n";
    apply(&mmb, after, 1000);
    drop(mmb);
    thread::sleep(Duration::from_millis(1100));
    let history = History::open(directory.path(), HistoryLimits::DIRECTORY).expect("a directory");
    let (mut file, _) = parse_policy(after).expect("a policy");
    file.begin_timeouts(5000);
    let (policy, _) = history.instead_of(&file).expect("the file is not confirmed");
    let policy = policy.expect("is kept");
    let set = &policy.sets["bad"];
    let left_ms = set.expires_ms() - policy.now_ms;
    assert_eq!((policy.now_ms, set.len()), (5000, 2));
    assert!((1..20_000).contains(&left_ms), "{left_ms}");
}
