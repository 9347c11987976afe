//! The shell at a terminal: keys and the content of the screen.

use crate::common::Site;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::{Child, Command};

/// A timeout longer than any step of the tests.
const FOREVER: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };

const TAB: &str = "\t";
const ENTER: &str = "\r";
const CTRL_C: &str = "\x03";
const CTRL_D: &str = "\x04";
const CTRL_U: &str = "\x15";
const UP: &str = "\x1b[A";

/// A shell and the terminal that it runs in.
struct Terminal {
    shell: Child,
    screen: File,
    /// The output that the test has not checked yet.
    shown: String,
}

impl Terminal {
    fn open(site: &Site) -> Terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("ours");
        unlockpt(&master).expect("open");
        let name = ptsname(&master, Vec::new()).expect("a name");
        let name = std::ffi::OsStr::from_bytes(name.as_bytes());
        let side = || OpenOptions::new().read(true).write(true).open(name).expect("opens");
        let mut command = site.command(&[]);
        command.env("TERM", "xterm").env("NO_COLOR", "1").env_remove("COLUMNS");
        let shell = command.stdin(side()).stdout(side()).stderr(side()).spawn().expect("mmb runs");
        let mut terminal = Terminal { shell, screen: File::from(master), shown: String::new() };
        terminal.is_ready();
        terminal
    }

    fn types(&mut self, keys: &[&str]) {
        self.screen.write_all(keys.concat().as_bytes()).expect("types");
    }

    /// Waits until the screen shows the text after the checked output, and returns the output before it.
    fn sees(&mut self, text: &str) -> String {
        let mut bytes = [0; 4096];
        loop {
            if let Some(at) = self.shown.find(text) {
                let rest = self.shown.split_off(at + text.len());
                return std::mem::replace(&mut self.shown, rest);
            }
            let mut fds = [PollFd::new(&self.screen, PollFlags::IN)];
            let ready = poll(&mut fds, Some(&FOREVER)).expect("polls");
            assert_eq!(ready, 1, "never shown: {text:?}; but: {:?}", self.shown);
            let read = self.screen.read(&mut bytes).expect("reads");
            self.shown.push_str(&String::from_utf8_lossy(&bytes[..read]));
        }
    }

    /// Waits for the prompt, so that no key is typed before the shell has the terminal.
    fn is_ready(&mut self) {
        self.sees("mmb> ");
    }

    /// Waits until the shell has ended, which closes the other side of the terminal.
    fn ends(mut self) {
        let mut bytes = [0; 4096];
        loop {
            let mut fds = [PollFd::new(&self.screen, PollFlags::IN)];
            assert_eq!(poll(&mut fds, Some(&FOREVER)).expect("polls"), 1, "it does not end");
            if !matches!(self.screen.read(&mut bytes), Ok(1..)) {
                break;
            }
        }
        let status = self.shell.wait().expect("ends");
        assert!(status.success(), "{status}");
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A failed test leaves the shell running.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn words_are_completed() {
    let site = Site::new("");
    let mut terminal = Terminal::open(&site);
    terminal.types(&["add tcp-dp", TAB, "443 dr", TAB, ENTER]);
    terminal.sees("+ 1     add tcp-dport 443 drop");
    terminal.types(&["dis", TAB, "w", TAB, ENTER]);
    terminal.sees("wan is disabled");
    terminal.types(&["del 1", TAB, ENTER]);
    terminal.sees("- 1     add tcp-dport 443 drop");
    let file = site.file("rules.mmb", "add all accept\n");
    terminal.types(&["apply ", file.trim_end_matches("les.mmb"), TAB, ENTER]);
    terminal.sees("1 added, 0 removed, 0 kept");
    terminal.types(&["sh", TAB, "ver", TAB, ENTER]);
    terminal.sees("protocol 1");
    terminal.is_ready();
    terminal.types(&["exit", ENTER]);
    terminal.ends();
}

#[test]
fn a_question_mark_helps_and_the_line_stays() {
    let site = Site::new("add id 7 tcp-dport 80 drop");
    let mut terminal = Terminal::open(&site);
    terminal.types(&["del ?"]);
    let help = terminal.sees("add tcp-dport 80 drop");
    assert!(help.contains("the number of a rule"), "{help:?}");
    terminal.sees("mmb> del ");
    terminal.types(&["7", ENTER]);
    terminal.sees("- 7     add tcp-dport 80 drop");
    terminal.types(&["?"]);
    terminal.sees("apply FILE");
    terminal.types(&["add payload \"what?\" drop", ENTER]);
    terminal.sees("+ 8     add payload \"what?\" drop");
    terminal.types(&["add ip-ttl ???", CTRL_U, "help show", ENTER]);
    terminal.sees("tables of the classifier");
    terminal.is_ready();
    terminal.types(&[CTRL_D]);
    terminal.ends();
}

#[test]
fn a_mistake_is_shown_and_the_next_line_works() {
    let site = Site::new("");
    let mut terminal = Terminal::open(&site);
    terminal.types(&["add tcp-dpotr 80 drop", ENTER]);
    terminal.sees("did you mean `tcp-dport`?");
    terminal.is_ready();
    terminal.types(&["something else", CTRL_C]);
    terminal.sees("something else");
    terminal.is_ready();
    terminal.types(&["list", ENTER]);
    terminal.sees("no rules: every packet passes");
}

#[test]
fn pasted_lines_are_run_one_after_the_other() {
    let site = Site::new("");
    let mut terminal = Terminal::open(&site);
    let paste = "add tcp-dport 80 drop\nadd tcp-dport \\\n  81 drop\n# what for?\nadd tcp-dport 82 drop";
    terminal.types(&["\x1b[200~", paste, "\x1b[201~", ENTER]);
    for rule in
        ["+ 1     add tcp-dport 80 drop", "+ 2     add tcp-dport 81 drop", "+ 3     add tcp-dport 82 drop"]
    {
        terminal.sees(rule);
    }
}

#[test]
fn lines_typed_ahead_of_the_prompt_are_not_lost() {
    let site = Site::new("");
    let mut terminal = Terminal::open(&site);
    let lines: Vec<String> = (1..=9).map(|port| format!("add tcp-dport {port} drop{ENTER}")).collect();
    terminal.types(&[&lines.concat()]);
    for port in 1..=9 {
        terminal.sees(&format!("+ {port}     add tcp-dport {port} drop"));
    }
}

#[test]
fn the_history_outlives_the_shell() {
    let site = Site::new("");
    let mut terminal = Terminal::open(&site);
    terminal.types(&["add tcp-dport 80 drop", ENTER]);
    terminal.sees("+ 1 ");
    terminal.is_ready();
    terminal.types(&[CTRL_D]);
    terminal.ends();
    let mut terminal = Terminal::open(&site);
    terminal.types(&[UP, ENTER]);
    terminal.sees("+ 2     add tcp-dport 80 drop");
}

#[test]
fn the_shell_reports_the_end_and_the_return_of_the_daemon() {
    let mut site = Site::new("add all accept");
    let mut terminal = Terminal::open(&site);
    drop(site.server.take());
    terminal.types(&["list", ENTER]);
    terminal.sees("no mmb answers");
    terminal.sees("mmb (no daemon)> ");
    site.listen();
    terminal.types(&[ENTER]);
    terminal.sees("mmb is back");
    terminal.is_ready();
    terminal.types(&["list", ENTER]);
    terminal.sees("add all accept");
}

#[test]
fn ctrl_c_ends_monitor_and_not_the_shell() {
    let site = Site::new("add-stateful ip-proto udp accept");
    let mut terminal = Terminal::open(&site);
    for _ in 0..2 {
        terminal.types(&["monitor", ENTER]);
        terminal.sees("watching connections");
        site.feed_packet(mmb_testkit::Udp { sport: 4000, ..Default::default() }.over_ip4().bytes());
        terminal.sees("+ udp 10.0.0.1:4000 > 10.0.0.2:53");
        // The effect of Ctrl-C at a terminal in its normal mode.
        let interrupt = format!("kill -INT {}", terminal.shell.id());
        assert!(Command::new("sh").args(["-c", &interrupt]).status().expect("a shell").success());
        terminal.is_ready();
        terminal.types(&["conn kill all", ENTER]);
        terminal.sees("1 connection ended");
        terminal.is_ready();
    }
    terminal.types(&["exit", ENTER]);
    terminal.ends();
}
