//! The command line: every subcommand, its options and their help. The parser, `--help`, the man page and the
//! completions of the shells are made from these types.

mod bench;
mod health;
mod import;
mod web;

pub(crate) use bench::{BenchArgs, ClassifierArg, OrderArg, TrafficArg, WorkloadArg};
pub(crate) use health::HealthArgs;
pub(crate) use import::{
    ActionArg, ClassbenchArgs, FamilyArg, FlagsArg, HookArg, HostAddress, HostArgs, ImportFiles, ImportFrom,
    IptablesArgs, NftablesArgs, PortlessArg,
};
pub(crate) use web::WebArgs;

use clap::builder::styling::{AnsiColor, Styles};
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum, ValueHint};
use mmb_language::verb::COMMANDS;
use mmb_log::SinkSpec;
use mmb_policy::printable::printable_lines;
use std::path::PathBuf;

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

const EXIT_STATUS: &str = "\
Exit status: 0 success, 1 failure (the policy, the capture, a device or the daemon reported an error), 2 wrong usage.
Without a command, mmb opens a shell on the running daemon.";

/// A userspace middlebox: matches packets against rules; drops, passes or rewrites them
#[derive(Debug, Parser)]
#[command(name = "mmb", version, styles = STYLES, after_help = EXIT_STATUS, args_conflicts_with_subcommands = false)]
pub(crate) struct Cli {
    /// Options that every command takes.
    #[command(flatten)]
    pub(crate) global: Global,
    /// The command; `None` opens a shell.
    #[command(subcommand)]
    pub(crate) command: Option<CliCommand>,
}

/// Options that every command takes, anywhere on the line.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Global {
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// The daemon's control socket; by default that of MMB_SOCKET in the environment, or /run/mmb/mmb.sock
    #[arg(long, global = true, env = "MMB_SOCKET", hide_env = true, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) socket: Option<PathBuf>,
}

/// The subcommands. The help of the commands of the rule language comes from their own table, see [`command`].
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Forwards packets between live ports and serves the control socket
    Run(RunArgs),
    /// Runs a capture through a policy and writes the packets that would have been sent
    Replay(ReplayArgs),
    /// Tells what a policy does to one packet, and why
    Explain(ExplainArgs),
    /// Serves the page, the REST API and the metrics of a running mmb
    Web(WebArgs),
    /// Shows on the terminal what happens now: rates of ports, rules, connections and drops, and the load of workers
    Top,
    /// Checks the servers of load balancers, and tells the daemon which of them answer
    Health(HealthArgs),
    /// Measures the cost of a policy, in cycles per packet
    Bench(BenchArgs),
    /// Translates filters of other programs to a policy
    #[command(subcommand)]
    Import(ImportFrom),
    /// `check`
    Check(CheckArgs),
    /// `add`
    Add(CommandWords),
    /// `add-stateless`
    AddStateless(CommandWords),
    /// `add-stateful`
    AddStateful(CommandWords),
    /// `replace`
    Replace(CommandWords),
    /// `del`
    Del(CommandWords),
    /// `list`
    List(CommandWords),
    /// `flush`
    Flush(CommandWords),
    /// `show`
    Show(CommandWords),
    /// `enable`
    Enable(CommandWords),
    /// `disable`
    Disable(CommandWords),
    /// `set`
    Set(CommandWords),
    /// `patterns`
    Patterns(CommandWords),
    /// `apply`
    Apply(ApplyArgs),
    /// `batch`
    Batch(BatchArgs),
    /// `confirm`
    Confirm(CommandWords),
    /// `rollback`
    Rollback(CommandWords),
    /// `history`
    History(CommandWords),
    /// `diff`
    Diff(CommandWords),
    /// `save`
    Save(PolicyFile),
    /// `conn`
    Conn(CommandWords),
    /// `server`
    Server(CommandWords),
    /// `monitor`
    Monitor(CommandWords),
    /// `trace`
    Trace(CommandWords),
    /// `capture`
    Capture(CommandWords),
    /// `clear`
    Clear(CommandWords),
    /// `save-state`
    SaveState(SaveStateArgs),
    /// `load-state`
    LoadState(LoadStateArgs),
    /// Prints the completions for a shell
    Completions(CompletionsArgs),
    /// Prints the words that may complete a line
    #[command(hide = true)]
    Complete(CompleteArgs),
    /// Compiles patterns for a process that started this one
    #[command(hide = true)]
    CompilePatterns(CompilePatternsArgs),
    /// Prints a man page
    #[command(hide = true)]
    Man(ManArgs),
}

/// Returns the complete definition of the command line.
pub(crate) fn command() -> clap::Command {
    COMMANDS.iter().fold(Cli::command(), |command, info| {
        command.mut_subcommand(info.name, |sub| {
            let usage = format!("mmb {} [OPTIONS] {}", info.name, info.arguments);
            sub.about(capitalised(info.help)).override_usage(usage)
        })
    })
}

/// Ends the program for a wrong usage that the definitions of the command line cannot express.
pub(crate) fn bad_usage(message: &str) -> ! {
    command().error(ErrorKind::InvalidValue, printable_lines(message)).exit()
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// The arguments of a process that compiles patterns for its parent.
#[derive(Debug, Args)]
pub(crate) struct CompilePatternsArgs {
    /// All expressions to one database, or each alone
    pub(crate) mode: String,
    /// Seconds of processor time
    pub(crate) processor_time_s: u64,
    /// Bytes of memory
    pub(crate) memory: u64,
}

/// The words of one command of the rule language, as typed.
#[derive(Debug, Args)]
pub(crate) struct CommandWords {
    /// The rest of the command, in the words of the rule language (mmb-policy(5))
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORD")]
    pub(crate) words: Vec<String>,
}

/// A policy file to read or to write.
#[derive(Debug, Args)]
pub(crate) struct PolicyFile {
    /// The policy file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: String,
}

/// A policy file to put in force.
#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// The policy file
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: String,
    /// Print what would change, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Take the change back after so many seconds, unless mmb confirm comes first
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) confirm: Option<u32>,
    /// Connections of stateful rules that the file removes keep them until they end
    #[arg(long, conflicts_with = "kill")]
    pub(crate) keep: bool,
    /// Connections of stateful rules that the file removes end
    #[arg(long)]
    pub(crate) kill: bool,
}

/// Commands to run as one change.
#[derive(Debug, Args)]
pub(crate) struct BatchArgs {
    /// The file of commands; without it, or as -, standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: Option<String>,
    /// Print what would change, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Take the change back after so many seconds, unless mmb confirm comes first
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub(crate) confirm: Option<u32>,
}

/// A file of connections to write.
#[derive(Debug, Args)]
pub(crate) struct SaveStateArgs {
    /// The file of connections; - is standard output
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: String,
}

/// A file of connections to load.
#[derive(Debug, Args)]
pub(crate) struct LoadStateArgs {
    /// The file of connections; - is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: String,
    /// Print each connection that is left out
    #[arg(long)]
    pub(crate) verbose: bool,
}

/// `mmb run`
#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    /// The policy at the start; without it, every packet passes
    #[arg(short = 'c', long = "config", value_name = "POLICY", value_hint = ValueHint::FilePath)]
    pub(crate) policy: Option<PathBuf>,
    /// The file that keeps connections and counters over a restart: loaded before the first packet, saved after the last
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) state: Option<PathBuf>,
    /// The directory that keeps the history of the policy over a restart; without it, the history is in memory
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) history: Option<PathBuf>,
    /// Report each connection of the state that is left out
    #[arg(long, requires = "state")]
    pub(crate) verbose: bool,
    #[arg(
        long = "port",
        value_name = "NAME=DEVICE",
        required = true,
        help = format!("A port: {}", mmb_io::Device::usage())
    )]
    pub(crate) ports: Vec<String>,
    /// Two ports that form a wire; without it, ports are paired in the order given
    #[arg(long = "wire", value_name = "A,B")]
    pub(crate) wires: Vec<String>,
    /// Packet threads, each pinned to a core of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) workers: u16,
    /// The group whose members may connect to the daemon, by name or number
    #[arg(long, value_name = "GROUP")]
    pub(crate) socket_group: Option<String>,
    /// The way in which an idle worker waits; a setting of the policy too
    #[arg(long, value_enum)]
    pub(crate) poll: Option<PollArg>,
    /// Where events go; give it several times for several: journald or journald:SOCKET, file:PATH (JSON lines), syslog,
    /// syslog:SOCKET or syslog:udp:HOST:PORT (RFC 5424), ipfix:udp:HOST:PORT (NAT events). Behind it, ',events=KIND+KIND' selects
    /// connections, log, streams and audit
    #[arg(long, value_name = "TARGET[,events=KIND+…]")]
    pub(crate) log: Vec<SinkSpec>,
    /// The MTU of every port; without it, that of the interface, or 1500 for devices that have none
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(68..=9216))]
    pub(crate) mtu: Option<u32>,
}

/// The way in which an idle worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PollArg {
    /// Sleeps for increasing times
    Adaptive,
    /// Never sleeps
    Spin,
}

/// `mmb replay`
#[derive(Debug, Args)]
#[command(
    override_usage = "mmb replay --rules FILE [OPTIONS] IN OUT\n       \
                      mmb replay --rules FILE [OPTIONS] --port NAME=IN:OUT --port NAME=IN:OUT",
    after_help = "\
Captures are pcap or pcapng, of Ethernet, raw IP or Linux cooked packets, not compressed; - is standard input or
output. The output has the format of the input. The same input and seed give the same bytes.
A capture that is damaged is processed up to the damage, and the exit status is 1.
With --json, 'edits' tells of the first 1,000 edits of streams which rules changed which bytes, and at which packet; 'edited' counts all."
)]
pub(crate) struct ReplayArgs {
    /// The policy file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) rules: PathBuf,
    /// The capture to read; its packets enter at port a
    #[arg(value_name = "IN", required_unless_present = "ports", conflicts_with = "ports",
          value_hint = ValueHint::FilePath)]
    pub(crate) input: Option<PathBuf>,
    /// The capture to write, of the packets that leave by port b
    #[arg(value_name = "OUT", required_unless_present = "ports", value_hint = ValueHint::FilePath)]
    pub(crate) output: Option<PathBuf>,
    /// One end of a wire, given twice: IN is a capture of the packets that enter there, OUT of those that leave there;
    /// the two inputs are merged by time
    #[arg(long = "port", value_name = "NAME=IN:OUT")]
    pub(crate) ports: Vec<String>,
    /// The seed of all random numbers: percentages of drop, ports, sequence numbers
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Drop IP packets larger than this when they leave; without it, no packet is too large
    #[arg(long, value_name = "BYTES")]
    pub(crate) mtu: Option<u32>,
}

/// `mmb explain`
#[derive(Debug, Args)]
#[command(
    override_usage = "mmb explain --rules FILE [OPTIONS] CONSTRAINT…\n       \
                      mmb explain --rules FILE [OPTIONS] --pcap CAPTURE",
    after_help = "\
The packet has what the constraints ask for (in the words of rules, mmb-policy(5)) and is otherwise one of UDP between addresses of documentation; its wire leads to the port that out PORT names, or to the first other one; \
a capture's packets before it, each at its time, make connections. Of a running mmb: mmb save - | mmb explain --rules - CONSTRAINT…
Rules that apply are listed in the order of priority and number, the first 16 of them."
)]
pub(crate) struct ExplainArgs {
    /// The policy file; - is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) rules: PathBuf,
    /// Take the packet from this capture
    #[arg(long, value_name = "CAPTURE", value_hint = ValueHint::FilePath)]
    pub(crate) pcap: Option<PathBuf>,
    /// The packet's number in the capture
    #[arg(long, value_name = "N", requires = "pcap", default_value_t = 1, value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=10_000_000))]
    pub(crate) number: usize,
    /// The port that it comes in by, as in PORT does
    #[arg(long, value_name = "PORT")]
    pub(crate) port: Option<String>,
    /// Tell also which constraints of this rule hold; can be given several times
    #[arg(long, value_name = "ID")]
    pub(crate) why_not: Vec<u32>,
    /// Constraints that the packet satisfies: in lan ip-saddr 10.0.0.1 tcp-dport 443 tcp-syn
    #[arg(value_name = "CONSTRAINT", conflicts_with = "pcap", required_unless_present = "pcap")]
    pub(crate) words: Vec<String>,
}

/// `mmb check`
#[derive(Debug, Args)]
pub(crate) struct CheckArgs {
    /// Do not check whether this machine has enough memory: for a policy that another machine will run
    #[arg(long)]
    pub(crate) any_machine: bool,

    /// The policy file; - is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) file: PathBuf,
}

/// `mmb completions`
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: ShellArg,
}

/// `mmb complete`
#[derive(Debug, Args)]
pub(crate) struct CompleteArgs {
    /// The words of the line after `mmb`, the last of which is to be completed
    #[arg(last = true, allow_hyphen_values = true, value_name = "WORD")]
    pub(crate) words: Vec<String>,
}

/// The shells with completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ShellArg {
    /// GNU bash
    Bash,
    /// Z shell
    Zsh,
    /// fish
    Fish,
}

/// `mmb man`
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The page
    #[arg(value_enum)]
    pub(crate) page: ManPage,
}

/// The man pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ManPage {
    /// mmb(1)
    Mmb,
    /// mmb-policy(5)
    MmbPolicy,
}

/// A line of the rule language, and the options among its words.
#[derive(Debug)]
pub(crate) struct LanguageLine {
    /// The command and its words.
    pub(crate) words: Vec<String>,
    /// `--json` and `--socket`, from any position.
    pub(crate) global: Global,
}

impl LanguageLine {
    /// Removes `--json` and `--socket PATH` from the words. Clap leaves them there, since a rule may contain any word. After `--` every word
    /// belongs to the language.
    ///
    /// # Errors
    /// `--socket` is the last word.
    pub(crate) fn new(
        command: &str,
        words: Vec<String>,
        mut global: Global,
    ) -> Result<LanguageLine, &'static str> {
        let mut kept = vec![command.to_owned()];
        let mut words = words.into_iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--" => {
                    kept.extend(words);
                    break;
                }
                "--json" => global.json = true,
                "--socket" => {
                    let path = words.next().ok_or("a value is required for '--socket <PATH>'")?;
                    global.socket = Some(PathBuf::from(path));
                }
                _ => match word.strip_prefix("--socket=") {
                    Some(path) => global.socket = Some(PathBuf::from(path)),
                    None => kept.push(word),
                },
            }
        }
        Ok(LanguageLine { words: kept, global })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words_of(line: &[&str]) -> LanguageLine {
        let cli = Cli::try_parse_from(line).expect("parses");
        match cli.command {
            Some(CliCommand::Add(words)) => {
                LanguageLine::new("add", words.words, cli.global).expect("a line")
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn definitions_are_consistent() {
        command().debug_assert();
    }

    #[test]
    fn words_of_the_language_reach_the_parser_unchanged() {
        let line = words_of(&[
            "mmb",
            "add",
            "tcp-opt",
            "strip",
            "!",
            "tcp-opt-mss",
            "-x",
            "--weird",
            "==",
            "{1,",
            "2}",
        ]);
        assert_eq!(
            line.words,
            ["add", "tcp-opt", "strip", "!", "tcp-opt-mss", "-x", "--weird", "==", "{1,", "2}"]
        );
        assert!(!line.global.json);
    }

    #[test]
    fn common_options_work_anywhere() {
        for line in [
            &["mmb", "--json", "--socket", "/x", "add", "all", "drop"][..],
            &["mmb", "add", "--json", "--socket=/x", "all", "drop"],
            &["mmb", "add", "all", "--socket", "/x", "drop", "--json"],
            &["mmb", "add", "all", "drop", "--json", "--socket=/x"],
        ] {
            let parsed = words_of(line);
            assert_eq!(parsed.words, ["add", "all", "drop"], "{line:?}");
            assert!(parsed.global.json, "{line:?}");
            assert_eq!(parsed.global.socket, Some(PathBuf::from("/x")), "{line:?}");
        }
    }

    #[test]
    fn a_rule_may_begin_with_a_negation_or_have_our_options_after_dashes() {
        assert_eq!(
            words_of(&["mmb", "add", "!", "tcp-opt-mss", "drop"]).words,
            ["add", "!", "tcp-opt-mss", "drop"]
        );
        let line = words_of(&["mmb", "add", "payload", "--", "--json", "drop"]);
        assert_eq!(line.words, ["add", "payload", "--json", "drop"]);
        assert!(!line.global.json);
    }

    #[test]
    fn the_socket_needs_a_path() {
        let cli = Cli::try_parse_from(["mmb", "add", "all", "--socket"]).expect("parses");
        let Some(CliCommand::Add(words)) = cli.command else { panic!() };
        assert!(LanguageLine::new("add", words.words, cli.global).is_err());
    }

    #[test]
    fn run_needs_a_worker() {
        let parse = |workers: &str| {
            Cli::try_parse_from(["mmb", "run", "--port", "a=x", "--port", "b=y", "--workers", workers])
        };
        assert!(parse("2").is_ok());
        let error = parse("0").expect_err("no worker").to_string();
        assert!(error.contains("0 is not in 1..") && error.contains("--workers"), "{error}");
    }

    #[test]
    fn replay_takes_two_files_or_two_ports() {
        let parse = |line: &[&str]| Cli::try_parse_from(["mmb", "replay", "--rules", "r"].iter().chain(line));
        assert!(parse(&["in", "out"]).is_ok());
        assert!(parse(&["--port", "a=x:y", "--port", "b=z:w"]).is_ok());
        assert!(parse(&["in"]).is_err());
        assert!(parse(&[]).is_err());
        assert!(parse(&["--port", "a=x:y", "in", "out"]).is_err());
    }
}
