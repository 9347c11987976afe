//! The program: parses the command line and calls the module of the command.
//!
//! `run` and `client` know DPDK and the daemon's socket; `replay`, `bench`, `import` and `check` need neither. Only this
//! crate ends the program and sets the exit status: 0 success, 1 failure, 2 wrong usage.
#![forbid(unsafe_code)]

mod bench;
mod cli;
mod client;
mod compile;
mod completions;
mod explain;
mod health;
mod import;
mod man;
mod output;
mod replay;
mod run;
mod top;
mod trial_engine;
mod tsc;
mod web;

use clap::FromArgMatches;
use clap::builder::Styles;
use cli::{ApplyArgs, BatchArgs, CheckArgs, Cli, CliCommand, Global, LanguageLine, LoadStateArgs};
use client::ClientOptions;
use mmb_policy::printable::{is_hidden, printable_lines};
use std::process::ExitCode;

fn main() -> ExitCode {
    let matches = cli::command().try_get_matches().unwrap_or_else(|error| refuse_command_line(&error));
    let Cli { global, command } = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let json = global.json;
    let done = match command {
        None => Ok(client::shell(client_options(global))),
        Some(command) => dispatch(command, global),
    };
    done.unwrap_or_else(|error| {
        let message = format!("{error:#}");
        if json {
            output::print_json(&serde_json::json!({ "error": message }));
        } else {
            output::report_error(&message);
        }
        ExitCode::FAILURE
    })
}

fn dispatch(command: CliCommand, global: Global) -> anyhow::Result<ExitCode> {
    let (name, words) = match command {
        CliCommand::Run(args) => return run::main(&args, &global),
        CliCommand::Completions(args) => return Ok(completions::script(&args)),
        CliCommand::Complete(args) => return Ok(completions::main(&args)),
        CliCommand::CompilePatterns(args) => return compile::serve(&args),
        CliCommand::Replay(args) => return replay::main(&args, &global),
        CliCommand::Check(args) => return check(&args, &global),
        CliCommand::Import(from) => return import::main(&from, &global),
        CliCommand::Explain(args) => return explain::main(&args, &global),
        CliCommand::Web(args) => return web::main(args, global),
        CliCommand::Top => return top::main(&client_options(global)),
        CliCommand::Health(args) => return health::main(&args, &global),
        CliCommand::Bench(args) => return bench::main(&args, &global),
        CliCommand::Man(args) => return man::main(&args),
        CliCommand::Add(words) => ("add", words.words),
        CliCommand::AddStateless(words) => ("add-stateless", words.words),
        CliCommand::AddStateful(words) => ("add-stateful", words.words),
        CliCommand::Replace(words) => ("replace", words.words),
        CliCommand::Del(words) => ("del", words.words),
        CliCommand::List(words) => ("list", words.words),
        CliCommand::Flush(words) => ("flush", words.words),
        CliCommand::Show(words) => ("show", words.words),
        CliCommand::Enable(words) => ("enable", words.words),
        CliCommand::Disable(words) => ("disable", words.words),
        CliCommand::Set(words) => ("set", words.words),
        CliCommand::Patterns(words) => ("patterns", words.words),
        CliCommand::Apply(ApplyArgs { file, dry_run, confirm, keep, kill }) => {
            let options = [(dry_run, "--dry-run"), (keep, "--keep"), (kill, "--kill")];
            let given = options.into_iter().filter(|(is_given, _)| *is_given);
            let given = given.map(|(_, option)| option.to_owned());
            ("apply", std::iter::once(file).chain(given).chain(confirm_words(confirm)).collect())
        }
        CliCommand::Batch(BatchArgs { file, dry_run, confirm }) => {
            let options = dry_run.then(|| "--dry-run".to_owned());
            ("batch", file.into_iter().chain(options).chain(confirm_words(confirm)).collect())
        }
        CliCommand::Confirm(words) => ("confirm", words.words),
        CliCommand::Rollback(words) => ("rollback", words.words),
        CliCommand::History(words) => ("history", words.words),
        CliCommand::Diff(words) => ("diff", words.words),
        CliCommand::Save(policy) => ("save", vec![policy.file]),
        CliCommand::Conn(words) => ("conn", words.words),
        CliCommand::Server(words) => ("server", words.words),
        CliCommand::Clear(words) => ("clear", words.words),
        CliCommand::Monitor(words) => ("monitor", words.words),
        CliCommand::Trace(words) => ("trace", words.words),
        CliCommand::Capture(words) => ("capture", words.words),
        CliCommand::SaveState(state) => ("save-state", vec![state.file]),
        CliCommand::LoadState(LoadStateArgs { file, verbose: false }) => ("load-state", vec![file]),
        CliCommand::LoadState(LoadStateArgs { file, verbose: true }) => {
            ("load-state", vec![file, "--verbose".to_owned()])
        }
    };
    let line = LanguageLine::new(name, words, global).unwrap_or_else(|message| cli::bad_usage(message));
    Ok(client::main(line.words, client_options(line.global)))
}

/// The option that a change has to be confirmed, as it was typed.
fn confirm_words(seconds: Option<u32>) -> impl Iterator<Item = String> {
    seconds.into_iter().flat_map(|seconds| ["--confirm".to_owned(), seconds.to_string()])
}

/// Ends the program for a wrong command line, or prints the help that the command line asks for.
fn refuse_command_line(error: &clap::Error) -> ! {
    let has_hidden = |word: std::ffi::OsString| word.to_string_lossy().contains(is_hidden);
    // Without styles, all hidden characters of the error are those of the arguments.
    if error.use_stderr()
        && std::env::args_os().any(has_hidden)
        && let Err(plain) = cli::command().styles(Styles::plain()).try_get_matches()
    {
        output::print_error(&printable_lines(&plain.render().ansi().to_string()));
        std::process::exit(plain.exit_code());
    }
    error.exit()
}

fn client_options(global: Global) -> ClientOptions {
    ClientOptions { socket: global.socket, json: global.json }
}

fn check(args: &CheckArgs, global: &Global) -> anyhow::Result<ExitCode> {
    let compile = if args.any_machine { compile::check_patterns } else { compile::check };
    let good = mmb_client::policy_file::check(&args.file, global.json, compile, &output::Terminal)?;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
