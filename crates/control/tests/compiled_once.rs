//! The dry run, the change and its rollback need the same patterns, which are compiled once.
//!
//! The compiler is a script that counts its runs and then runs this program again, which compiles.

#[path = "it/common/mod.rs"]
mod common;

use common::{Running, start_compiling};
use mmb_compile::{CompilerProgram, PatternCompiler, serve};
use mmb_protocol::Request;
use mmb_protocol::request::ConnectionFate;
use std::fs;

const TEXT: &str = "add-stateful tcp-dport 80 stream \"one\" alert\n";
const REGEX: &str = "add-stateful tcp-dport 80 stream /a+b/ alert\n";
const OTHER_REGEX: &str = "add-stateful tcp-dport 80 stream /a+c/ alert\n";

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let [_, word, mode, time, memory] = &words[..]
        && word == "serve"
    {
        serve(mode, time.parse().expect("seconds"), memory.parse().expect("bytes")).expect("serves");
        return;
    }
    the_same_patterns_are_compiled_once();
    println!("test the_same_patterns_are_compiled_once ... ok");
}

fn the_same_patterns_are_compiled_once() {
    let counted = tempfile::tempdir().expect("a directory");
    let script = format!("echo > {}/$$; exec $0 serve \"$@\"", counted.path().display());
    let exe = std::env::current_exe().expect("this program").display().to_string();
    let program = CompilerProgram { path: "/bin/sh".into(), words: vec!["-c".into(), script, exe] };
    let mmb = start_compiling(TEXT, PatternCompiler::with_program(program));
    let count = || fs::read_dir(counted.path()).expect("a directory").count();
    let dry_run =
        |mmb: &Running, policy: &str| mmb.ask(&Request::DryRun(policy.into(), ConnectionFate::Release)).1.ok;
    if !dry_run(&mmb, REGEX) {
        // Without Vectorscan, regexes are refused.
        return;
    }
    assert_eq!(count(), 1, "the dry run");
    assert!(mmb.apply(REGEX).1.ok);
    assert_eq!(count(), 1, "the change");
    assert!(mmb.apply(TEXT).1.ok);
    mmb.run("rollback 2");
    assert!(mmb.rules()[0].contains("/a+b/"));
    assert_eq!(count(), 1, "the rollback");
    assert!(mmb.apply(OTHER_REGEX).1.ok);
    assert_eq!(count(), 2, "other patterns");
}
