//! Patterns are compiled before the daemon is locked: while the patterns of one client take for ever, the others are answered. A job whose client
//! disconnects is given up.
//!
//! The compiler of these tests is a program that writes its number to a file and never answers.

use crate::common::{FOREVER, Running, ask, errors, start_compiling};
use mmb_compile::{CompilerProgram, PatternCompiler};
use mmb_control::{Daemon, Housekeeper};
use mmb_language::parse_policy;
use mmb_protocol::request::{ChangeOptions, ConnectionFate};
use mmb_protocol::{Request, VERSION};
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A policy whose pattern is compiled by the program.
const REGEX: &str = "add-stateful tcp-dport 80 stream /a+b/ alert\n";
/// Policies whose patterns need no program.
const TEXT: &str = "add-stateful tcp-dport 80 stream \"one\" alert\n";
const OTHER_TEXT: &str = "add-stateful tcp-dport 80 stream \"another\" alert\n";

struct Hanging {
    mmb: Running,
    pids: TempDir,
}

impl Hanging {
    fn start(policy: &str) -> Hanging {
        let pids = tempfile::tempdir().expect("a directory");
        let script = format!("echo $$ > {}/$$; exec sleep 1000", pids.path().display());
        let program = CompilerProgram { path: "/bin/sh".into(), words: vec!["-c".into(), script] };
        Hanging { mmb: start_compiling(policy, PatternCompiler::with_program(program)), pids }
    }

    /// Waits until a process compiles, other than those of before; returns its number.
    fn compiling(&self, before: &[u32]) -> u32 {
        until(|| {
            let names = fs::read_dir(self.pids.path()).expect("a directory").flatten();
            let numbers = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            numbers.into_iter().find(|number| !before.contains(number))
        })
    }
}

/// Calls `look` until it returns a value.
fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < FOREVER, "nothing happened");
        thread::sleep(Duration::from_millis(10));
    }
}

fn has_ended(pid: u32) -> Option<()> {
    (!Path::new(&format!("/proc/{pid}")).exists()).then_some(())
}

/// The line of a request, for a client that does not wait for the answer.
fn line(verb: &str, policy: &str) -> Vec<u8> {
    let request = serde_json::json!({ "v": VERSION, "do": verb, "policy": policy });
    format!("{request}\n").into_bytes()
}

/// 120 regexes stopped root's `show version` for 20 s, and 199 for ten minutes.
#[test]
fn patterns_that_take_for_ever_delay_no_other_client() {
    let test = Hanging::start(TEXT);
    let dry_run = test.mmb.stream();
    (&dry_run).write_all(&line("dry-run", REGEX)).expect("sends");
    let pid = test.compiling(&[]);
    test.mmb.assert_alive();
    assert_eq!(test.mmb.rules().len(), 1);
    test.mmb.run("add tcp-dport 81 drop");
    assert!(has_ended(pid).is_none(), "it still compiles");
}

#[test]
fn a_client_that_disconnects_has_its_patterns_given_up() {
    let test = Hanging::start("");
    for verb in ["apply", "dry-run"] {
        let client = test.mmb.stream();
        let before: Vec<u32> = fs::read_dir(test.pids.path())
            .expect("a directory")
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect();
        (&client).write_all(&line(verb, REGEX)).expect("sends");
        let pid = test.compiling(&before);
        drop(client);
        until(|| has_ended(pid));
    }
    assert!(test.mmb.rules().is_empty(), "nothing was committed for it");
}

#[test]
fn a_stop_gives_up_what_is_compiled() {
    let mut test = Hanging::start("");
    let client = test.mmb.stream();
    (&client).write_all(&line("apply", REGEX)).expect("sends");
    let pid = test.compiling(&[]);
    drop(test.mmb.server.take());
    until(|| has_ended(pid));
}

/// The policy before is known, so that its return waits for no compiler.
#[test]
fn a_change_is_taken_back_while_other_patterns_are_compiled() {
    let test = Hanging::start(TEXT);
    let options = ChangeOptions { confirm: Some(1), ..ChangeOptions::default() };
    let change = Request::Apply(OTHER_TEXT.into(), ConnectionFate::Release);
    assert!(test.mmb.ask(&Request::WithOptions(options, Box::new(change))).1.ok);
    let client = test.mmb.stream();
    (&client).write_all(&line("dry-run", REGEX)).expect("sends");
    let pid = test.compiling(&[]);
    until(|| {
        Housekeeper::new(&test.mmb.daemon).look();
        test.mmb.rules()[0].contains("\"one\"").then_some(())
    });
    assert!(has_ended(pid).is_none(), "it still compiles");
}

/// A reload compiled on the thread that takes changes back, which then came two minutes late.
#[test]
fn a_change_is_taken_back_while_a_reload_is_compiled() {
    let test = Hanging::start(TEXT);
    let mmb = &test.mmb;
    // Both are known now, so that the change that follows waits for no turn.
    assert!(mmb.apply(OTHER_TEXT).1.ok && mmb.apply(TEXT).1.ok);
    let mut housekeeper = Housekeeper::new(&mmb.daemon);
    let (sender, reloaded) = channel();
    let (file, _) = parse_policy(REGEX).expect("a policy");
    let reload = move |daemon: &Mutex<Daemon>| {
        let outcome = Daemon::apply_file(daemon, file, "SIGHUP".into());
        sender.send(outcome.map(drop)).expect("the test waits");
    };
    assert!(housekeeper.start(reload));
    let pid = test.compiling(&[]);
    assert!(!housekeeper.start(|_| ()), "one at a time");
    let options = ChangeOptions { confirm: Some(1), ..ChangeOptions::default() };
    let change = Request::Apply(OTHER_TEXT.into(), ConnectionFate::Release);
    assert!(mmb.ask(&Request::WithOptions(options, Box::new(change))).1.ok);
    assert!(mmb.rules()[0].contains("\"another\""));
    until(|| {
        housekeeper.look();
        mmb.rules()[0].contains("\"one\"").then_some(())
    });
    assert!(has_ended(pid).is_none() && reloaded.try_recv().is_err(), "it still compiles");
    assert!(Command::new("kill").arg(pid.to_string()).status().is_ok_and(|status| status.success()));
    let outcome = reloaded.recv_timeout(FOREVER).expect("the reload ends");
    assert!(outcome.expect_err("no patterns").to_string().contains("the process that compiles patterns"));
    until(|| housekeeper.start(|_| ()).then_some(()));
}

/// A dry run with `checked` compiles no patterns at the daemon, and reports everything else.
#[test]
fn a_dry_run_with_checked_patterns_compiles_none() {
    let test = Hanging::start("");
    let checked = |policy: &str| {
        let options = ChangeOptions { checked: true, ..ChangeOptions::default() };
        let dry_run = Request::DryRun(policy.into(), ConnectionFate::Release);
        ask(&mut test.mmb.client(), &Request::WithOptions(options, Box::new(dry_run)))
    };
    let (_, end) = checked(REGEX);
    assert_eq!(end.change.map(|change| (change.added, change.dry_run)), Some((1, true)));
    let (answers, end) = checked("add in nowhere drop\n");
    assert!(!end.ok && errors(answers)[0].message.contains("no port is called 'nowhere'"));
    assert_eq!(fs::read_dir(test.pids.path()).expect("a directory").count(), 0);
}

/// The refusal named the last rule with streams, and the first one with HTTP.
#[test]
fn a_compiler_that_fails_blames_no_rule() {
    let program = CompilerProgram { path: "/bin/sh".into(), words: vec!["-c".into(), "exit 1".into()] };
    let mmb = start_compiling("", PatternCompiler::with_program(program));
    for field in ["stream", "http-uri"] {
        let rule = |number: u8| format!("add-stateful tcp-dport {number} {field} /a+{number}/ alert\n");
        let (answers, end) = mmb.apply(&[rule(1), rule(2), rule(3)].concat());
        assert!(!end.ok);
        let message = &errors(answers)[0].message;
        assert!(message.starts_with("the patterns were not compiled: the process"), "{field}: {message}");
    }
}

/// Changes of one request that follow one that has to be compiled come after it, and see it.
#[test]
fn changes_stay_in_order() {
    let mmb = crate::common::start("");
    let commands =
        ["add-stateful id 1 tcp-dport 80 stream \"a\" alert", "del 1", "add id 1 tcp-dport 81 drop"];
    let mut client = mmb.stream();
    let lines = commands.map(|command| {
        let request = serde_json::json!({ "v": VERSION, "do": "run", "commands": [command] });
        format!("{request}\n")
    });
    client.write_all(lines.concat().as_bytes()).expect("sends");
    let answers =
        BufReader::new(&client).lines().map_while(Result::ok).filter(|line| line.contains("\"end\""));
    for (command, end) in commands.iter().zip(answers) {
        assert!(end.contains("\"ok\":true"), "{command}: {end}");
    }
    assert_eq!(mmb.rules(), ["1 add tcp-dport 81 drop"]);
}
