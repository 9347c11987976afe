//! Jobs in processes of their own, and their budgets. The program of these processes is this test itself.
#![allow(missing_docs)]

use mmb_compile::{Applicant, CompileBudget, CompileError, CompilerProgram, PatternCompiler, serve};
use mmb_scan::{Pattern, PatternError, PatternSet};
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
    let tests: [(&str, fn()); 5] = [
        ("a_process_compiles_what_this_one_does", a_process_compiles_what_this_one_does),
        ("a_refusal_names_the_pattern", a_refusal_names_the_pattern),
        (
            "time_is_bounded_and_the_costliest_pattern_is_named",
            time_is_bounded_and_the_costliest_pattern_is_named,
        ),
        ("memory_is_bounded", memory_is_bounded),
        ("a_program_that_fails_is_an_error", a_program_that_fails_is_an_error),
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
    let compiled = compiler().run_once(budget, move |runner| PatternSet::compile_by(&patterns, runner));
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
    let run = || compiler.run_once(BUDGET, |runner| PatternSet::compile_by(&costly(2), runner));
    assert!(matches!(run(), Ok(Err(PatternError::GivenUp(_)))));
    compiler.stop();
    assert_eq!(run().err(), Some(CompileError::Stopping));
    assert_eq!(compiler.turn(Applicant::Trusted, BUDGET, &|| true).err(), Some(CompileError::Stopping));
}
