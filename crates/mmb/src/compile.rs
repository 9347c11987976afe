//! Compiles patterns in child processes that run this program as `mmb compile-patterns` (see [`mmb_compile`]).

use crate::cli::CompilePatternsArgs;
use crate::trial_engine::{engine, named_ports};
use anyhow::Context;
use mmb_compile::{CompileBudget, CompilerProgram, PatternCompiler};
use mmb_control::{Daemon, memory};
use mmb_engine::{CompiledPatterns, Engine, SetCache, SetSource, compile_patterns};
use mmb_policy::Policy;
use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::Arc;

/// The compiler of this program.
pub(crate) fn compiler() -> PatternCompiler {
    PatternCompiler::with_program(CompilerProgram {
        path: "/proc/self/exe".into(),
        words: vec!["compile-patterns".to_owned()],
    })
}

/// Compiles patterns for the process that started this one.
///
/// # Errors
/// It was not started by this program.
pub(crate) fn serve(args: &CompilePatternsArgs) -> anyhow::Result<ExitCode> {
    let CompilePatternsArgs { mode, processor_time_s, memory } = args;
    mmb_compile::serve(mode, *processor_time_s, *memory).context("this command is not for users")?;
    Ok(ExitCode::SUCCESS)
}

/// Checks that a policy can be put in force on this machine: its patterns with the budget of a change, and the memory
/// that it takes.
pub(crate) fn check(policy: &Policy) -> Result<(), String> {
    if let Err(short) = memory::check_space(Engine::start_bytes(1)) {
        // An error about the patterns helps more than one about this machine.
        check_patterns(policy)?;
        return Err(format!(
            "mmb cannot start on this machine: {short}; `--any-machine` leaves this check out"
        ));
    }
    let fits = || -> anyhow::Result<()> {
        let ports: BTreeSet<_> = named_ports(policy).collect();
        let (engine, _worker) = engine(&ports.into_iter().collect::<Vec<_>>())?;
        // Keeps the patterns in the cache until the check is over.
        let _patterns = compiled(policy, Arc::clone(engine.pattern_sets()), &|| false)?;
        Ok(Daemon::check_start(engine, policy)?)
    };
    fits().map_err(|error| format!("{error:#}"))
}

/// Checks that the patterns of a policy can be put in force.
pub(crate) fn check_patterns(policy: &Policy) -> Result<(), String> {
    check_for(policy, &|| false)
}

/// As [`check_patterns`], but gives up when `is_gone` returns true.
pub(crate) fn check_for(policy: &Policy, is_gone: &dyn Fn() -> bool) -> Result<(), String> {
    compiled(policy, Arc::default(), is_gone).map(drop).map_err(|error| format!("{error:#}"))
}

/// Publishes the policy of a program without a daemon, with patterns that are compiled within the budget of a change.
///
/// # Errors
/// The policy is impossible, or its patterns take more than the budget.
pub(crate) fn publish(engine: &mut Engine, policy: &Policy) -> anyhow::Result<()> {
    let _patterns = compiled(policy, Arc::clone(engine.pattern_sets()), &|| false)?;
    Ok(engine.publish(policy)?)
}

fn compiled(
    policy: &Policy,
    sets: Arc<SetCache>,
    is_gone: &dyn Fn() -> bool,
) -> anyhow::Result<CompiledPatterns> {
    let policy = policy.clone();
    let compiled = compiler().run_once(CompileBudget::CHANGE, is_gone, move |runner| {
        compile_patterns(&policy, SetSource::compiling(&sets, runner))
    })?;
    Ok(compiled?)
}
