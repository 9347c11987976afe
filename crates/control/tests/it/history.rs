//! The history of the policy over a real socket: versions, differences, the way back, and what a restart finds again.

use crate::common::{Running, start};
use mmb_control::{History, HistoryLimits};
use mmb_protocol::Request;
use mmb_protocol::answer::{Answer, DifferenceSign, HistoryLine};
use mmb_protocol::request::{ChangeOptions, ConnectionFate};
use std::io::Write as _;
use std::path::Path;

fn entries(mmb: &Running) -> Vec<HistoryLine> {
    let lines = mmb.run("history").into_iter().filter_map(|answer| match answer {
        Answer::HistoryEntry(line) => Some(line),
        _ => None,
    });
    lines.collect()
}

/// The lines of `diff`, each behind its sign.
fn diff(mmb: &Running, command: &str) -> Vec<String> {
    let lines = mmb.run(command).into_iter().filter_map(|answer| match answer {
        Answer::Difference(line) if line.sign == DifferenceSign::Added => Some(format!("+ {}", line.line)),
        Answer::Difference(line) => Some(format!("- {}", line.line)),
        _ => None,
    });
    lines.collect()
}

fn keep(mmb: &Running, directory: &Path) {
    let history = History::open(directory, HistoryLimits::DIRECTORY).expect("a directory");
    mmb.daemon.lock().expect("not poisoned").keep_history(history, "start".into());
}

#[test]
fn every_change_is_a_version_that_can_be_compared_and_restored() {
    let mmb = start("add id 1 tcp-dport 80 drop");
    mmb.run("add udp-dport 53 accept");
    mmb.run("set poll spin");
    mmb.run("set poll spin");
    mmb.run("disable lan");
    let file = "add id 1 tcp-dport 81 drop\n";
    let apply = Request::Apply(file.into(), ConnectionFate::Release);
    let options = ChangeOptions { source: Some("edge.mmb".into()), ..ChangeOptions::default() };
    let (_, end) = mmb.ask(&Request::WithOptions(options, Box::new(apply)));
    assert_eq!(end.version, Some(5));

    let listed = entries(&mmb);
    let shown: Vec<_> =
        listed.iter().map(|line| (line.version, line.command.as_str(), line.added, line.removed)).collect();
    let expected = [
        (Some(1), "start", 0, 0),
        (Some(2), "add udp-dport 53 accept", 1, 0),
        (Some(3), "set poll spin", 0, 0),
        (None, "set poll spin", 0, 0),
        (Some(4), "disable lan", 0, 0),
        (Some(5), "apply edge.mmb", 1, 2),
    ];
    assert_eq!(shown, expected);
    assert!(
        listed.iter().all(|line| line.pid == Some(std::process::id()) && line.uid.is_some()),
        "{listed:?}"
    );
    assert!(
        listed
            .iter()
            .all(|line| line.kept == line.version.is_some() && line.in_force == (line.version == Some(5)))
    );
    assert_eq!(mmb.run("history 2").len(), 3, "begin and two entries");

    assert_eq!(
        diff(&mmb, "diff"),
        [
            "- set poll spin",
            "+ set poll adaptive",
            "- disable lan",
            "- add id 1 tcp-dport 80 drop",
            "+ add id 1 tcp-dport 81 drop",
            "- add id 2 udp-dport 53 accept"
        ]
    );
    assert_eq!(
        diff(&mmb, "diff 1 3"),
        ["- set poll adaptive", "+ set poll spin", "+ add id 2 udp-dport 53 accept"]
    );
    assert_eq!(diff(&mmb, "diff 5"), [""; 0]);
    assert!(mmb.refused(&["diff 9"])[0].message.contains("version 9 of the policy is not kept"));

    let (answers, end) = mmb.ask(&Request::Run(vec!["rollback 3".into()]));
    assert!(answers.contains(&Answer::Disabled("lan".into())) || end.ok, "{answers:?}");
    assert_eq!(
        (end.version, end.change.map(|change| (change.added, change.removed))),
        (Some(6), Some((2, 1)))
    );
    assert_eq!(mmb.rules(), ["1 add tcp-dport 80 drop", "2 add udp-dport 53 accept"]);
    assert_eq!(diff(&mmb, "diff 3"), [""; 0]);
    mmb.run("rollback");
    assert_eq!(mmb.rules(), ["1 add tcp-dport 81 drop"], "a rollback is undone by another one");
    assert!(mmb.refused(&["rollback 77"])[0].message.contains("not kept"));
    let last = entries(&mmb).pop().expect("entries");
    assert_eq!(
        (last.version, last.action.as_str(), last.command.as_str()),
        (Some(7), "rollback", "rollback 5")
    );
}

#[test]
fn sets_are_compared_by_their_elements() {
    let many: Vec<String> = (1..=500).map(|number| number.to_string()).collect();
    let mmb =
        start(&format!("set many {{{}}}\nset few {{1, 2}}\nset timed {{1 timeout 1h}}\n", many.join(", ")));
    mmb.run("set many += {1000}");
    mmb.run("set many -= {7}");
    mmb.run("set few += {3 timeout 90s}");
    mmb.run("set timed += {1 timeout 2h}");
    assert_eq!(
        diff(&mmb, "diff 1"),
        [
            "- set few {1, 2}",
            "+ set few {1, 2, 3 timeout 1m30s}",
            "- set many += {7}",
            "+ set many += {1000}",
        ]
    );
    mmb.run("set many -= {1, 1000}");
    assert_eq!(diff(&mmb, "diff"), ["- set many += {1, 1000}"]);
    mmb.run("set many {1001-2000}");
    assert_eq!(diff(&mmb, "diff"), ["- set many {…} # 498 elements", "+ set many {1001-2000}"]);
}

#[test]
fn a_change_may_take_away_what_has_expired() {
    let mmb = start("");
    mmb.run("set s {1.1.1.1, 2.2.2.2 timeout 1s}");
    std::thread::sleep(std::time::Duration::from_millis(1020));
    mmb.run("set s {1.1.1.1}");
    mmb.run("add id 1 ip-saddr @s drop");
    mmb.run("add id 2 tcp-dport 1 drop");
    assert_eq!(diff(&mmb, "diff"), ["+ add id 2 tcp-dport 1 drop"]);
    mmb.run("rollback");
    assert_eq!(diff(&mmb, "diff"), ["- add id 2 tcp-dport 1 drop"]);
}

#[test]
fn refused_changes_kills_and_cleared_counters_are_entries_too() {
    let mmb = start("add id 1 tcp-dport 80 drop");
    let _packets = mmb.packets();
    mmb.refused(&["del 9"]);
    mmb.run("conn kill all");
    mmb.run("clear counters");
    let listed = entries(&mmb);
    assert_eq!(listed[1].refused.as_deref(), Some("there is no rule 9"));
    assert_eq!(
        (listed[2].action.as_str(), listed[2].command.as_str(), listed[2].connections),
        ("kill", "conn kill all", Some(0))
    );
    assert_eq!((listed[3].action.as_str(), listed[3].version), ("clear", None));
}

#[test]
fn versions_are_found_again_and_what_is_broken_is_left_out() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("history");
    let first = start("add id 1 tcp-dport 80 drop");
    keep(&first, &path);
    for port in 0..50 {
        first.run(&format!("add udp-dport {port} drop"));
    }
    first.run("flush");
    let in_use = History::open(&path, HistoryLimits::DIRECTORY).expect_err("is used");
    let holder = format!("another mmb (process {}) keeps its history here", std::process::id());
    assert!(in_use.to_string().contains(&holder), "{in_use}");
    drop(first);

    // The same policy again is the same version under another number; it is not stored twice.
    let second = start("");
    keep(&second, &path);
    second.run("add all accept");
    assert_eq!(second.daemon.lock().expect("not poisoned").version(), 54);
    assert_eq!(diff(&second, "diff 51 54").len(), 52);
    second.run("rollback 51");
    assert_eq!(second.rules().len(), 51);
    drop(second);

    // Foreign files stay, a file without its end loses what is behind the break.
    std::fs::write(path.join("policy-0000000099.gz"), "no history").expect("writes");
    std::fs::write(path.join("notes.txt"), "mine").expect("writes");
    let newest = std::fs::read_dir(&path).expect("reads").filter_map(Result::ok).map(|file| file.path());
    let mut files: Vec<_> = newest.filter(|path| path.extension().is_some_and(|end| end == "gz")).collect();
    files.sort();
    let torn = &files[files.len() - 2];
    let content = std::fs::read(torn).expect("reads");
    std::fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(torn)
        .expect("opens")
        .write_all(&content[..content.len() - 3])
        .expect("writes");
    let third = start("add id 1 tcp-dport 80 drop");
    keep(&third, &path);
    third.run("rollback 20");
    assert_eq!(third.rules().len(), 20);
    assert!(path.join("notes.txt").exists() && path.join("policy-0000000099.gz").exists());
    assert!(third.daemon.lock().expect("not poisoned").version() > 99, "no number is used twice");
}

#[test]
fn what_is_kept_is_bounded() {
    let mmb = start("");
    let limits = HistoryLimits { bytes: 20_000, versions: 100, entries: 150 };
    let history = History::in_memory(limits);
    mmb.daemon.lock().expect("not poisoned").keep_history(history, "start".into());
    let rules: String = (0..2000)
        .map(|n| format!("add ip-saddr 10.{}.{}.7 tcp-dport {n} drop\n", n % 251, n * 7 % 256))
        .collect();
    mmb.ask(&Request::Apply(rules, ConnectionFate::Release));
    for _ in 0..400 {
        mmb.run("add tcp-dport 99 accept");
    }
    mmb.run("flush");
    mmb.run("add all accept");
    let listed = entries(&mmb);
    assert_eq!(listed.len(), 150);
    let kept: Vec<_> = listed.iter().filter(|line| line.kept).filter_map(|line| line.version).collect();
    assert!(kept.ends_with(&[403, 404]), "{kept:?}");
    mmb.run("rollback 403");
    assert_eq!(mmb.rules(), [""; 0]);
    assert!(mmb.refused(&["rollback 2"])[0].message.contains("not kept"));
}
