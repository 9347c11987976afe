//! The program: reads the command line and hands over to the module that does the work.
//!
//! `run` and `client` know DPDK and the daemon's socket; `replay`, `bench`, `import` and `check` need neither. Only this
//! crate ends the program, and knows exit statuses: 0 done, 1 refused, 2 bad usage.
#![forbid(unsafe_code)]

mod bench;
mod cli;
mod client;
mod import;
mod man;
mod output;
mod replay;
mod run;
mod tsc;

use clap::FromArgMatches;
use clap::error::ErrorKind;
use cli::{CheckArgs, Cli, Command, CompletionsArgs, Global, Line, ShellArg};
use client::ClientOptions;
use std::process::ExitCode;

fn main() -> ExitCode {
    let matches = cli::command().get_matches();
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
            output::complain(&message);
        }
        ExitCode::FAILURE
    })
}

fn dispatch(command: Command, global: Global) -> anyhow::Result<ExitCode> {
    let (name, words) = match command {
        Command::Run(args) => return run::main(&args, &global),
        Command::Completions(args) => return completions(&args),
        Command::Replay(args) => return replay::main(&args, &global),
        Command::Check(args) => return check(&args, &global),
        Command::Import(from) => return import::main(&from, &global),
        Command::Bench(args) => return bench::main(&args, &global),
        Command::Man(args) => return man::main(&args),
        Command::Add(words) => ("add", words.words),
        Command::AddStateless(words) => ("add-stateless", words.words),
        Command::AddStateful(words) => ("add-stateful", words.words),
        Command::Del(words) => ("del", words.words),
        Command::List(words) => ("list", words.words),
        Command::Flush(words) => ("flush", words.words),
        Command::Show(words) => ("show", words.words),
        Command::Enable(words) => ("enable", words.words),
        Command::Disable(words) => ("disable", words.words),
        Command::Set(words) => ("set", words.words),
        Command::Apply(policy) => ("apply", vec![policy.file]),
        Command::Save(policy) => ("save", vec![policy.file]),
        Command::Conn(words) => ("conn", words.words),
        Command::Monitor(words) => ("monitor", words.words),
        Command::SaveState(state) => ("save-state", vec![state.file]),
        Command::LoadState(state) => ("load-state", vec![state.file]),
    };
    let line = Line::new(name, words, global).unwrap_or_else(|message| bad_usage(message));
    Ok(client::main(line.words, client_options(line.global)))
}

/// Ends the program for a bad usage that the definitions of the command line cannot rule out.
pub(crate) fn bad_usage(message: &str) -> ! {
    cli::command().error(ErrorKind::InvalidValue, message).exit()
}

fn client_options(global: Global) -> ClientOptions {
    ClientOptions { socket: global.socket, json: global.json }
}

fn check(args: &CheckArgs, global: &Global) -> anyhow::Result<ExitCode> {
    let good = mmb_client::policy_file::check(&args.file, global.json, &output::Terminal)?;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn completions(args: &CompletionsArgs) -> anyhow::Result<ExitCode> {
    let shell = match args.shell {
        ShellArg::Bash => clap_complete::Shell::Bash,
        ShellArg::Zsh => clap_complete::Shell::Zsh,
        ShellArg::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::command(), "mmb", &mut script);
    output::print(&String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}
