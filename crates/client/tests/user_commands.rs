//! User commands in a program that contains the daemon: no socket, no terminal, no standard input or output.

#[path = "../../control/tests/it/common/mod.rs"]
mod common;

use common::{Running, start};
use mmb_client::{CommandFailed, CommandRunner, OutputSink, SinkClosed, UsageError, UserCommand};
use mmb_control::{Server, ServerLimits};
use mmb_protocol::{Client, ClientError};
use mmb_testkit::Udp;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

/// Keeps all output, and is closed after a number of pieces of answers.
struct CapturingSink {
    pieces: RefCell<Vec<String>>,
    errors: RefCell<String>,
    pieces_left: Cell<usize>,
}

impl OutputSink for CapturingSink {
    fn out(&self, text: &str) -> Result<(), SinkClosed> {
        let left = self.pieces_left.get().checked_sub(1).ok_or(SinkClosed)?;
        self.pieces_left.set(left);
        self.pieces.borrow_mut().push(text.to_owned());
        Ok(())
    }

    fn err(&self, text: &str) {
        self.errors.borrow_mut().push_str(text);
    }
}

impl CapturingSink {
    fn new(pieces: usize) -> CapturingSink {
        CapturingSink {
            pieces: RefCell::default(),
            errors: RefCell::default(),
            pieces_left: Cell::new(pieces),
        }
    }

    fn monitor_began(&self) -> bool {
        self.errors.borrow().contains("watching")
    }
}

/// A program that contains the daemon and is its client.
struct Program {
    mmb: Running,
    server: Server,
}

impl Program {
    fn new(policy: &str) -> Program {
        let mut mmb = start(policy);
        mmb.server = None;
        let server = Server::unbound(Arc::clone(&mmb.daemon), ServerLimits::default());
        Program { mmb, server }
    }

    fn connect(&self) -> Result<Client, ClientError> {
        let (theirs, ours) = UnixStream::pair()?;
        self.server.adopt(theirs);
        Ok(Client::from_stream(ours))
    }

    fn run(&self, sink: &CapturingSink, line: &str) -> Result<(), CommandFailed> {
        self.run_until(sink, line, &|| sink.monitor_began())
    }

    fn run_until(
        &self,
        sink: &CapturingSink,
        line: &str,
        is_interrupted: &dyn Fn() -> bool,
    ) -> Result<(), CommandFailed> {
        let runner = CommandRunner {
            connect: &|| self.connect(),
            sink,
            is_interrupted,
            json: false,
            compile: |_| Ok(()),
            standard_streams: false,
            program_words: &[("leave", "goes away")],
            no_daemon_hint: "turn it on\n",
            monitor_hint: "watching\n",
        };
        runner.run(&UserCommand::from_line(line).expect("a command"))
    }

    /// Runs a command; returns the answer, the error output, and whether it succeeded.
    fn output(&self, line: &str) -> (String, String, bool) {
        let sink = CapturingSink::new(usize::MAX);
        let done = self.run(&sink, line).is_ok();
        (sink.pieces.into_inner().concat(), sink.errors.into_inner(), done)
    }

    /// Runs a command that must succeed without error output; returns the answer.
    fn success(&self, line: &str) -> String {
        let (answer, errors, done) = self.output(line);
        assert_eq!((errors.as_str(), done), ("", true), "{line}: {answer}");
        answer
    }
}

fn is_json(text: &str) -> Value {
    serde_json::from_str(text).expect("one value")
}

#[test]
fn answers_and_errors_go_to_the_programs_sink() {
    let program = Program::new("");
    assert_eq!(program.success("add tcp-dport 80 drop"), "+ 1     add tcp-dport 80 drop\n");
    assert_eq!(is_json(&program.success("list --terse --json"))["rules"][0]["id"], 1);
    let (answer, errors, done) = program.output("add tcp-dpotr 80 drop");
    assert_eq!((answer.as_str(), done), ("", false));
    assert!(errors.contains("^^^^^^^^^") && !errors.contains('\x1b'), "{errors}");
    let (answer, errors, done) = program.output("del 7 --json");
    assert_eq!((errors.as_str(), done), ("", false));
    assert!(is_json(&answer)["error"].is_string());
    assert_eq!(
        UserCommand::from_line("apply"),
        Err(UsageError("usage: apply FILE [--dry-run] [--confirm SECONDS] [--keep|--kill]".to_owned()))
    );
}

#[test]
fn files_are_read_and_written() {
    let program = Program::new("add all accept");
    let _packets = program.mmb.packets();
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let saved = path("saved.mmb");
    assert_eq!(program.success(&format!("save {saved}")), format!("{saved}: 1 rules saved\n"));
    assert_eq!(program.success(&format!("check {saved}")), format!("{saved}: good, 1 rule\n"));
    program.success("flush");
    let applied = program.success(&format!("apply {saved} --json"));
    assert_eq!(is_json(&applied)["added"], json!([{"id": 1, "rule": "add all accept"}]));
    let state = path("state");
    assert_eq!(program.success(&format!("save-state {state}")), format!("{state}: 0 connections saved\n"));
    assert_eq!(program.success(&format!("load-state {state}")), format!("{state}: 0 connections loaded\n"));

    let wrong = path("wrong.mmb");
    std::fs::write(&wrong, "add all drop\nadd nonsense\n").expect("writes");
    for command in ["check", "apply"] {
        let (answer, errors, done) = program.output(&format!("{command} {wrong}"));
        assert_eq!((answer.as_str(), done), ("", false));
        assert!(errors.contains(&format!("{wrong}:2:5")), "{errors}");
    }
    for command in ["check", "apply", "load-state"] {
        let (answer, errors, done) = program.output(&format!("{command} {}", path("none")));
        assert_eq!((answer.as_str(), done), ("", false));
        assert_eq!(errors, format!("error: {}: No such file or directory (os error 2)\n", path("none")));
    }
}

/// Devices were read without end, and the opening of a pipe waited for a writer.
#[test]
fn a_state_is_read_from_regular_files_only() {
    let program = Program::new("add all accept");
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).expect("binds");
    rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), rustix::fs::Mode::RUSR).expect("a pipe");
    std::os::unix::fs::symlink("/dev/zero", path("link")).expect("links");
    for (path, kind) in [
        (directory.path().to_owned(), "a directory"),
        (path("socket"), "a socket"),
        (path("pipe"), "a pipe"),
        (path("link"), "a device"),
        ("/dev/zero".into(), "a device"),
    ] {
        let path = path.display();
        let (answer, errors, done) = program.output(&format!("load-state {path}"));
        assert_eq!((answer.as_str(), done), ("", false));
        assert_eq!(
            errors,
            format!("error: {path}: it is {kind}; a state is a regular file, or `-` for standard input\n")
        );
    }
}

#[test]
fn a_dash_is_refused_without_standard_streams() {
    let program = Program::new("add all accept");
    for command in ["apply", "check", "save", "save-state", "load-state"] {
        let (answer, errors, done) = program.output(&format!("{command} -"));
        assert_eq!((answer.as_str(), done), ("", false), "{command}");
        assert!(errors.contains("name a file"), "{errors}");
    }
    assert!(!Path::new("-").exists());
}

#[test]
fn a_long_answer_arrives_in_pieces_and_ends_when_its_reader_has_gone() {
    const RULES: usize = 8_000;
    let policy: String = (1..=RULES).map(|n| format!("add tcp-sport {n} drop\n")).collect();
    let program = Program::new(&policy);
    let whole = CapturingSink::new(usize::MAX);
    assert_eq!(program.run(&whole, "list"), Ok(()));
    let pieces = whole.pieces.borrow();
    assert!(pieces.len() > 3 && pieces.iter().all(|piece| piece.len() < 100_000), "{}", pieces.len());
    assert_eq!(pieces.concat().lines().count(), RULES + 2);

    for line in ["list", "list --json"] {
        let impatient = CapturingSink::new(2);
        assert_eq!(program.run(&impatient, line), Err(CommandFailed));
        assert_eq!((impatient.pieces.borrow().len(), impatient.errors.borrow().as_str()), (2, ""));
    }
    program.success("show version");
}

#[test]
fn monitor_ends_when_the_caller_interrupts_it_or_has_gone() {
    let program = Program::new("add-stateful ip-proto udp accept");
    let _packets = program.mmb.packets();
    let (answer, errors, done) = program.output("monitor");
    assert_eq!((answer.as_str(), errors.as_str(), done), ("", "watching\n", true));

    let (closed, sport) = (CapturingSink::new(0), Cell::new(1));
    let send_packet = || {
        program.mmb.feed(&[Udp { sport: sport.get(), ..Udp::default() }.over_ip4()]);
        sport.set(sport.get() + 1);
        false
    };
    assert_eq!(program.run_until(&closed, "monitor", &send_packet), Err(CommandFailed));
}

#[test]
fn the_flow_offload_is_shown_where_the_host_has_one() {
    let program = Program::new("");
    let none = "this host has no flow offload: every packet passes a worker\n";
    assert_eq!(program.success("show offload"), none);
    assert!(!program.success("show runtime").contains("offloaded"));
    assert_eq!(is_json(&program.success("show runtime --json")).get("offloaded"), None);

    program.mmb.offload_lan();
    program.mmb.feed(&[Udp::default().over_ip4()]);
    let shown = program.success("show offload");
    assert!(
        shown.contains("\n      0  packets that came to mmb while flows were offloaded (misses)\n"),
        "{shown}"
    );
    assert!(shown.ends_with("\nlan   tcx\nwan   none: it is no kernel interface\n"), "{shown}");
    assert_eq!(
        is_json(&program.success("show offload --json")),
        json!({
            "setting": "auto", "flows": 0, "capacity": 0, "installed": 0, "evicted": 0,
            "hits": {"packets": 0, "bytes": 0}, "misses": 0,
            "ports": [{"port": "lan", "how": "tcx"}, {"port": "wan", "reason": "it is no kernel interface"}],
            "kept": {}
        })
    );
    let runtime = program.success("show runtime");
    let line = "\noffloaded: 0 packets, 0 bytes, which passed no stage (`show offload`)\n";
    assert!(runtime.contains(line), "{runtime}");
    let nothing = json!({"packets": 0, "bytes": 0});
    assert_eq!(is_json(&program.success("show runtime --json"))["offloaded"], nothing);
}

#[test]
fn help_has_words_of_the_language_the_daemon_and_the_caller() {
    let program = Program::new("add id 7 tcp-dport 80 drop");
    let all = program.success("help");
    assert!(all.contains("  add ") && all.contains("  leave ") && !all.contains("  exit "), "{all}");
    assert!(program.success("help del").contains("add tcp-dport 80 drop"));
}

#[test]
fn the_caller_explains_how_to_start_a_daemon() {
    let sink = CapturingSink::new(usize::MAX);
    let nowhere = Path::new("/nonexistent/mmb.sock");
    let mut runner = CommandRunner {
        connect: &|| Client::connect(nowhere),
        sink: &sink,
        is_interrupted: &|| true,
        json: false,
        compile: |_| Ok(()),
        standard_streams: false,
        program_words: &[],
        no_daemon_hint: "turn it on\n",
        monitor_hint: "",
    };
    let list = UserCommand::from_line("list").expect("a command");
    assert_eq!(runner.run(&list), Err(CommandFailed));
    let errors = sink.errors.take();
    assert!(errors.starts_with("error: no mmb answers at /nonexistent/mmb.sock: "), "{errors}");
    assert!(errors.ends_with("\nturn it on\n"), "{errors}");
    runner.json = true;
    assert_eq!(runner.run(&list), Err(CommandFailed));
    assert_eq!(sink.errors.take(), "", "in JSON there is one object and no more");
    assert!(is_json(&sink.pieces.take().concat())["error"].is_string());
}
