//! Errands for a program with the daemon inside: no socket, no terminal, no standard input or output.

#[path = "../../control/tests/common/mod.rs"]
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

/// Whoever hears the errands: it keeps what it is told, and is gone after so many pieces of answers.
struct Listener {
    pieces: RefCell<Vec<String>>,
    told: RefCell<String>,
    patience: Cell<usize>,
}

impl OutputSink for Listener {
    fn out(&self, text: &str) -> Result<(), SinkClosed> {
        let left = self.patience.get().checked_sub(1).ok_or(SinkClosed)?;
        self.patience.set(left);
        self.pieces.borrow_mut().push(text.to_owned());
        Ok(())
    }

    fn err(&self, text: &str) {
        self.told.borrow_mut().push_str(text);
    }
}

impl Listener {
    fn new(patience: usize) -> Listener {
        Listener { pieces: RefCell::default(), told: RefCell::default(), patience: Cell::new(patience) }
    }

    fn hears_no_end(&self) -> bool {
        self.told.borrow().contains("watching")
    }
}

/// A program that is its own daemon's client.
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

    fn tell(&self, listener: &Listener, line: &str) -> Result<(), CommandFailed> {
        self.tell_until(listener, line, &|| listener.hears_no_end())
    }

    fn tell_until(
        &self,
        listener: &Listener,
        line: &str,
        enough: &dyn Fn() -> bool,
    ) -> Result<(), CommandFailed> {
        let runner = CommandRunner {
            connect: &|| self.connect(),
            sink: listener,
            enough,
            json: false,
            standard_streams: false,
            own_words: &[("leave", "goes away")],
            no_daemon: "turn it on\n",
            watching: "watching\n",
        };
        runner.run(&UserCommand::from_line(line).expect("can be meant"))
    }

    /// What is answered, and what is told beside, and how it ended.
    fn says(&self, line: &str) -> (String, String, bool) {
        let listener = Listener::new(usize::MAX);
        let done = self.tell(&listener, line).is_ok();
        (listener.pieces.into_inner().concat(), listener.told.into_inner(), done)
    }

    /// The answer to what must work, and raise no word beside.
    fn good(&self, line: &str) -> String {
        let (answer, told, done) = self.says(line);
        assert_eq!((told.as_str(), done), ("", true), "{line}: {answer}");
        answer
    }
}

fn is_json(text: &str) -> Value {
    serde_json::from_str(text).expect("one value")
}

#[test]
fn answers_and_errors_go_where_the_program_says() {
    let program = Program::new("");
    assert_eq!(program.good("add tcp-dport 80 drop"), "+ 1     add tcp-dport 80 drop\n");
    assert_eq!(is_json(&program.good("list --terse --json"))["rules"][0]["id"], 1);
    let (answer, told, done) = program.says("add tcp-dpotr 80 drop");
    assert_eq!((answer.as_str(), done), ("", false));
    assert!(told.contains("^^^^^^^^^") && !told.contains('\x1b'), "{told}");
    let (answer, told, done) = program.says("del 7 --json");
    assert_eq!((told.as_str(), done), ("", false));
    assert!(is_json(&answer)["error"].is_string());
    assert_eq!(UserCommand::from_line("apply"), Err(UsageError("usage: apply FILE".to_owned())));
}

#[test]
fn files_are_read_and_written() {
    let program = Program::new("add all accept");
    let _packets = program.mmb.packets();
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name).display().to_string();
    let saved = path("saved.mmb");
    assert_eq!(program.good(&format!("save {saved}")), format!("{saved}: 1 rules saved\n"));
    assert_eq!(program.good(&format!("check {saved}")), format!("{saved}: good, 1 rule\n"));
    program.good("flush");
    let applied = program.good(&format!("apply {saved} --json"));
    assert_eq!(is_json(&applied)["added"], json!([{"id": 1, "rule": "add all accept"}]));
    let state = path("state");
    assert_eq!(program.good(&format!("save-state {state}")), format!("{state}: 0 connections saved\n"));
    assert_eq!(program.good(&format!("load-state {state}")), format!("{state}: 0 connections loaded\n"));

    let wrong = path("wrong.mmb");
    std::fs::write(&wrong, "add all drop\nadd nonsense\n").expect("writes");
    for command in ["check", "apply"] {
        let (answer, told, done) = program.says(&format!("{command} {wrong}"));
        assert_eq!((answer.as_str(), done), ("", false));
        assert!(told.contains(&format!("{wrong}:2:5")), "{told}");
    }
    for command in ["check", "apply", "load-state"] {
        let (answer, told, done) = program.says(&format!("{command} {}", path("none")));
        assert_eq!((answer.as_str(), done), ("", false));
        assert_eq!(told, format!("error: {}: No such file or directory (os error 2)\n", path("none")));
    }
}

/// Devices were read for ever, and pipes were waited for.
#[test]
fn what_is_no_regular_file_is_no_state() {
    let program = Program::new("add all accept");
    let directory = tempfile::tempdir().expect("a directory");
    let path = |name: &str| directory.path().join(name);
    let _socket = std::os::unix::net::UnixListener::bind(path("socket")).expect("binds");
    rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), rustix::fs::Mode::RUSR).expect("a pipe");
    std::os::unix::fs::symlink("/dev/zero", path("link")).expect("links");
    for (path, what) in [
        (directory.path().to_owned(), "a directory"),
        (path("socket"), "a socket"),
        (path("pipe"), "a pipe"),
        (path("link"), "a device"),
        ("/dev/zero".into(), "a device"),
    ] {
        let path = path.display();
        let (answer, told, done) = program.says(&format!("load-state {path}"));
        assert_eq!((answer.as_str(), done), ("", false));
        assert_eq!(
            told,
            format!("error: {path}: it is {what}; a state is a regular file, or `-` for standard input\n")
        );
    }
}

#[test]
fn a_dash_is_no_file_where_there_are_no_standard_streams() {
    let program = Program::new("add all accept");
    for command in ["apply", "check", "save", "save-state", "load-state"] {
        let (answer, told, done) = program.says(&format!("{command} -"));
        assert_eq!((answer.as_str(), done), ("", false), "{command}");
        assert!(told.contains("name a file"), "{told}");
    }
    assert!(!Path::new("-").exists());
}

#[test]
fn a_long_answer_comes_in_pieces_and_ends_when_nobody_reads_it() {
    const RULES: usize = 8_000;
    let policy: String = (1..=RULES).map(|n| format!("add tcp-sport {n} drop\n")).collect();
    let program = Program::new(&policy);
    let whole = Listener::new(usize::MAX);
    assert_eq!(program.tell(&whole, "list"), Ok(()));
    let pieces = whole.pieces.borrow();
    assert!(pieces.len() > 3 && pieces.iter().all(|piece| piece.len() < 100_000), "{}", pieces.len());
    assert_eq!(pieces.concat().lines().count(), RULES + 2);

    for line in ["list", "list --json"] {
        let impatient = Listener::new(2);
        assert_eq!(program.tell(&impatient, line), Err(CommandFailed));
        assert_eq!((impatient.pieces.borrow().len(), impatient.told.borrow().as_str()), (2, ""));
    }
    program.good("show version");
}

#[test]
fn what_has_no_end_ends_when_the_caller_has_enough_or_is_gone() {
    let program = Program::new("add-stateful ip-proto udp accept");
    let _packets = program.mmb.packets();
    let (answer, told, done) = program.says("monitor");
    assert_eq!((answer.as_str(), told.as_str(), done), ("", "watching\n", true));

    let (deaf, sport) = (Listener::new(0), Cell::new(1));
    let more_happens = || {
        program.mmb.feed(&[Udp { sport: sport.get(), ..Udp::default() }.over_ip4()]);
        sport.set(sport.get() + 1);
        false
    };
    assert_eq!(program.tell_until(&deaf, "monitor", &more_happens), Err(CommandFailed));
}

#[test]
fn help_tells_of_the_language_the_daemon_and_the_caller() {
    let program = Program::new("add id 7 tcp-dport 80 drop");
    let all = program.good("help");
    assert!(all.contains("  add ") && all.contains("  leave ") && !all.contains("  exit "), "{all}");
    assert!(program.good("help del").contains("add tcp-dport 80 drop"));
}

#[test]
fn how_to_start_a_daemon_is_the_callers_to_say() {
    let listener = Listener::new(usize::MAX);
    let nowhere = Path::new("/nonexistent/mmb.sock");
    let mut runner = CommandRunner {
        connect: &|| Client::connect(nowhere),
        sink: &listener,
        enough: &|| true,
        json: false,
        standard_streams: false,
        own_words: &[],
        no_daemon: "turn it on\n",
        watching: "",
    };
    let list = UserCommand::from_line("list").expect("can be meant");
    assert_eq!(runner.run(&list), Err(CommandFailed));
    let told = listener.told.take();
    assert!(told.starts_with("error: no mmb answers at /nonexistent/mmb.sock: "), "{told}");
    assert!(told.ends_with("\nturn it on\n"), "{told}");
    runner.json = true;
    assert_eq!(runner.run(&list), Err(CommandFailed));
    assert_eq!(listener.told.take(), "", "in JSON there is one object and no more");
    assert!(is_json(&listener.pieces.take().concat())["error"].is_string());
}
