//! Commands of the program, with a daemon in this process.

#![allow(dead_code, reason = "each test program uses a part")]

use crate::common::Site;
use mmb_testkit::Udp;
use serde_json::Value;
use std::io::Write;
use std::process::{Output, Stdio};

/// A policy whose rule 1 creates connections, and a packet for it.
pub(crate) const STATEFUL: &str = "add-stateful ip-proto udp mod udp-sport 7000";

pub(crate) fn dns() -> Vec<u8> {
    Udp { sport: 4000, ..Udp::default() }.over_ip4().bytes()
}

/// The output and the exit status of a command.
pub(crate) struct CommandOutput {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for CommandOutput {
    fn from(output: Output) -> CommandOutput {
        CommandOutput {
            status: output.status.code().expect("ended by itself"),
            out: String::from_utf8(output.stdout).expect("text"),
            err: String::from_utf8(output.stderr).expect("text"),
        }
    }
}

/// Runs the program.
pub(crate) trait Talk {
    fn run(&self, words: &[&str]) -> CommandOutput;
    fn feed(&self, words: &[&str], input: &str) -> CommandOutput;
    fn good(&self, words: &[&str]) -> String;
    fn json(&self, words: &[&str]) -> Value;
    fn rules(&self) -> Vec<String>;
}

impl Talk for Site {
    fn run(&self, words: &[&str]) -> CommandOutput {
        self.command(words).stdin(Stdio::null()).output().expect("mmb runs").into()
    }

    fn feed(&self, words: &[&str], input: &str) -> CommandOutput {
        let mut command = self.command(words);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("mmb runs");
        child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("reads its input");
        child.wait_with_output().expect("ends").into()
    }

    /// Runs a command that must succeed; returns its output.
    fn good(&self, words: &[&str]) -> String {
        let said = self.run(words);
        assert_eq!((said.status, said.err.as_str()), (0, ""), "{words:?}: {}", said.out);
        said.out
    }

    fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.good(&[words, &["--json"]].concat())).expect("one object")
    }

    fn rules(&self) -> Vec<String> {
        let listed = self.json(&["list"]);
        let rule = |rule: &Value| format!("{} {}", rule["id"], rule["rule"].as_str().expect("text"));
        listed["rules"].as_array().expect("rules").iter().map(rule).collect()
    }
}
