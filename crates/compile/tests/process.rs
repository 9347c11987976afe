//! Jobs in processes of their own, and their budgets. The program of these processes is this test itself.
#![allow(missing_docs)]

use mmb_compile::{Applicant, CompileBudget, CompileError, CompilerProgram, PatternCompiler, serve};
use mmb_scan::{Pattern, PatternError, PatternSet};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use std::os::fd::AsRawFd;
use std::time::Duration;

const BUDGET: CompileBudget = CompileBudget::CHANGE;

fn main() {
    let words: Vec<String> = std::env::args().collect();
    if let [_, word, mode, time, memory] = &words[..]
        && word == "serve"
    {
        serve(mode, time.parse().expect("seconds"), memory.parse().expect("bytes")).expect("serves");
        return;
    }
    let tests: [(&str, fn()); 9] = [
        ("a_process_compiles_what_this_one_does", a_process_compiles_what_this_one_does),
        ("a_refusal_names_the_pattern", a_refusal_names_the_pattern),
        (
            "time_is_bounded_and_the_costliest_pattern_is_named",
            time_is_bounded_and_the_costliest_pattern_is_named,
        ),
        ("memory_is_bounded", memory_is_bounded),
        ("a_program_that_fails_is_an_error", a_program_that_fails_is_an_error),
        ("only_processor_time_counts", only_processor_time_counts),
        ("processor_time_that_is_used_up_is_not_extended", processor_time_that_is_used_up_is_not_extended),
        ("a_late_compilation_names_a_pattern", a_late_compilation_names_a_pattern),
        ("descriptors_are_not_inherited", descriptors_are_not_inherited),
    ];
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
}

fn compiler() -> PatternCompiler {
    let path = std::env::current_exe().expect("this program");
    PatternCompiler::with_program(CompilerProgram { path, words: vec!["serve".to_owned()] })
}

fn compile(budget: CompileBudget, patterns: Vec<Pattern>) -> Result<PatternSet, PatternError> {
    let compiled =
        compiler().run_once(budget, &|| false, move |runner| PatternSet::compile_by(&patterns, runner));
    compiled.expect("neither late nor given up")
}

/// Without Vectorscan there is nothing to compile.
fn has_library() -> bool {
    !matches!(PatternSet::compile(&[Pattern::regex(0, "a+b")]), Err(PatternError::NoLibrary))
}

fn a_process_compiles_what_this_one_does() {
    let patterns =
        vec![Pattern::regex(0, "a+b"), Pattern::text(1, "x\0y"), Pattern::regex(2, "C$").ignoring_case()];
    let (there, here) = (compile(BUDGET, patterns.clone()), PatternSet::compile(&patterns));
    match (there, here) {
        (Ok(there), Ok(here)) => {
            assert_eq!((there.digest(), there.state_bytes()), (here.digest(), here.state_bytes()));
        }
        (there, here) => assert_eq!(there.err(), here.err()),
    }
}

fn a_refusal_names_the_pattern() {
    // Texts between regexes are found without the library.
    let texts = (0..3000).map(|id| Pattern::text(id, format!("a text of {id:08}")));
    let mut patterns: Vec<_> = texts.collect();
    patterns.insert(1000, Pattern::regex(9, "[ab]c(?:^d)"));
    let refused = compile(BUDGET, patterns.clone()).expect_err("an anchor within");
    assert_eq!(Some(&refused), PatternSet::compile(&patterns).err().as_ref());
    assert!(!has_library() || refused.index() == Some(1000), "{refused}");
}

/// 199 of them take ten minutes.
fn costly(number: usize) -> Vec<Pattern> {
    let regex = |n: usize| Pattern::regex(n as u32, format!("(a|aa)+.*[^b]{{{n},{}}}x", n * 3));
    (1..=number).map(regex).collect()
}

fn time_is_bounded_and_the_costliest_pattern_is_named() {
    if !has_library() {
        return;
    }
    let budget = CompileBudget { processor_time: Duration::from_secs(1), ..BUDGET };
    let error = compile(budget, costly(199)).expect_err("it takes minutes");
    let PatternError::OverBudget { budget, index, pattern } = &error else { panic!("{error}") };
    assert_eq!(budget, "1 s of processor time");
    assert_eq!(index.map(|index| costly(199)[index].shown()).as_ref(), pattern.as_ref());
    assert!(pattern.is_some() && error.to_string().contains("of all the most for /(a|aa)+"), "{error}");
}

fn memory_is_bounded() {
    if !has_library() {
        return;
    }
    // Long texts are the library's; these take some 300 MB.
    let text = |n: usize| {
        let bytes = (0..2048).map(|at| b'a' + (n * 31 + at * at + at * n % 97) as u8 % 16);
        Pattern::text(n as u32, bytes.collect::<Vec<u8>>())
    };
    let budget = CompileBudget { memory: 64 << 20, ..BUDGET };
    let error = compile(budget, (0..1200).map(text).collect()).expect_err("it takes more");
    assert!(
        matches!(&error, PatternError::OverBudget { budget, .. } if budget == "64 MB of memory"),
        "{error}"
    );
}

fn a_program_that_fails_is_an_error() {
    let program = CompilerProgram { path: "/nonexistent".into(), words: Vec::new() };
    let compiler = PatternCompiler::with_program(program);
    let run = || compiler.run_once(BUDGET, &|| false, |runner| PatternSet::compile_by(&costly(2), runner));
    assert!(matches!(run(), Ok(Err(PatternError::Unfinished(_)))));
    compiler.stop();
    assert_eq!(run().err(), Some(CompileError::Stopping));
    assert_eq!(compiler.turn(Applicant::Trusted, BUDGET, &|| true).err(), Some(CompileError::Stopping));
}

/// A compiler whose program is a script. Its arguments are those of `serve`; `$0` is this program, and `$LOG` a file.
fn scripted(script: &str) -> (PatternCompiler, tempfile::NamedTempFile) {
    let log = tempfile::NamedTempFile::new().expect("a file");
    let exe = std::env::current_exe().expect("this program").display().to_string();
    let script = format!("LOG={}; {script}", log.path().display());
    let program = CompilerProgram { path: "/bin/sh".into(), words: vec!["-c".to_owned(), script, exe] };
    (PatternCompiler::with_program(program), log)
}

fn log_lines(log: &tempfile::NamedTempFile) -> Vec<String> {
    let text = std::fs::read_to_string(log.path()).expect("a log");
    text.lines().map(str::to_owned).collect()
}

/// Compiles sets one after another, within one budget.
fn compile_sets(
    compiler: &PatternCompiler,
    budget: CompileBudget,
    sets: Vec<Vec<Pattern>>,
) -> Vec<Result<PatternSet, PatternError>> {
    let all = compiler.run_once(budget, &|| false, move |runner| {
        sets.iter().map(|patterns| PatternSet::compile_by(patterns, runner)).collect()
    });
    all.expect("neither late nor given up")
}

/// Elapsed time counted from the second set on, so that a busy machine refused policies with several sets.
fn only_processor_time_counts() {
    if !has_library() {
        return;
    }
    let (compiler, log) = scripted("echo $2 >> $LOG; sleep 1.2; exec $0 serve \"$@\"");
    let sets = ["a+b", "a+c", "a+d"].map(|regex| vec![Pattern::regex(0, regex)]);
    let compiled = compile_sets(&compiler, BUDGET, sets.into());
    assert!(compiled.iter().all(Result::is_ok), "{compiled:?}");
    // The limit is the rest of 20 s, rounded up; three small sets use less than a second.
    assert_eq!(log_lines(&log), ["20", "20", "20"]);
}

fn processor_time_that_is_used_up_is_not_extended() {
    if !has_library() {
        return;
    }
    let busy = "echo $1 >> $LOG; [ $1 = each ] && exit 1; ulimit -S -t $2; while :; do :; done";
    let (compiler, log) = scripted(busy);
    let budget = CompileBudget { processor_time: Duration::from_secs(1), ..BUDGET };
    let sets = ["a+b", "a+c"].map(|regex| vec![Pattern::regex(0, regex)]);
    let indices: Vec<_> = compile_sets(&compiler, budget, sets.into())
        .into_iter()
        .map(|refused| match refused {
            Err(PatternError::OverBudget { budget, index, .. }) if budget == "1 s of processor time" => index,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(indices, [Some(0), None]);
    assert_eq!(log_lines(&log), ["all", "each"], "nothing is started without time that is left");
}

/// The error named no pattern and no list.
fn a_late_compilation_names_a_pattern() {
    if !has_library() {
        return;
    }
    let (compiler, _log) = scripted("[ $1 = all ] && exec sleep 1000; exec $0 serve \"$@\"");
    let budget = CompileBudget { time: Duration::from_secs(4), ..BUDGET };
    let late = compile_sets(&compiler, budget, vec![vec![Pattern::regex(0, "a+b")]]).pop().expect("a set");
    let error = late.expect_err("the program sleeps");
    assert_eq!(error.index(), Some(0));
    let text = error.to_string();
    assert!(
        text.contains("more than 4 s on this busy machine to compile, of all the most for /a+b/"),
        "{text}"
    );
}

/// Libraries in C open descriptors that programs inherit: sockets of ports, shared memory.
fn descriptors_are_not_inherited() {
    let file = tempfile::tempfile().expect("a file");
    // Shells use the first ones themselves.
    let descriptor = fcntl_dupfd_cloexec(&file, 100).expect("a descriptor");
    fcntl_setfd(&descriptor, FdFlags::empty()).expect("a descriptor that children inherit");
    let number = descriptor.as_raw_fd();
    let look = format!("if [ -e /proc/$$/fd/{number} ]; then echo open; else echo closed; fi >> $LOG");
    let (compiler, log) = scripted(&format!("{look}; exec $0 serve \"$@\""));
    let patterns = vec![Pattern::regex(0, "a+b"), Pattern::regex(1, "a+c")];
    let compiled = compile_sets(&compiler, BUDGET, vec![patterns]);
    assert!(compiled.iter().all(Result::is_ok), "{compiled:?}");
    assert_eq!(log_lines(&log), ["closed"]);
}
