//! The table of commands: the words that a line may begin with.
//!
//! The parser, completion, help and the reference are made from [`COMMANDS`].

use crate::command::{Command, Show};
use mmb_policy::ConnectionFilter;

/// A command's first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// `add`, `add-stateless`
    Add,
    /// `add-stateful`
    AddStateful,
    /// `replace`
    Replace,
    /// `del`
    Del,
    /// `flush`
    Flush,
    /// `list`
    List,
    /// `show`
    Show,
    /// `enable`
    Enable,
    /// `disable`
    Disable,
    /// `set`
    Set,
    /// `patterns`
    Patterns,
    /// `conn`
    Conn,
    /// `server`
    Server,
    /// `monitor`
    Monitor,
    /// `trace`
    Trace,
    /// `capture`
    Capture,
    /// `clear`
    Clear,
    /// `apply`, carried out around the language by the shell and the binary.
    Apply,
    /// `batch`, likewise.
    Batch,
    /// `confirm`
    Confirm,
    /// `rollback`
    Rollback,
    /// `history`
    History,
    /// `diff`
    Diff,
    /// `save`, likewise.
    Save,
    /// `check`, likewise.
    Check,
    /// `save-state`, likewise.
    SaveState,
    /// `load-state`, likewise.
    LoadState,
}

/// The arguments of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    /// Nothing.
    None,
    /// Number, priority, name, constraints, targets.
    Rule,
    /// A rule's number, and a rule in its place.
    Replacement,
    /// A rule's number or rules' name, and `--kill`, `--keep` or nothing; or `set` and a name.
    RuleId,
    /// `--terse`, or nothing.
    Terse,
    /// One of [`SHOWS`].
    Show,
    /// An operation and the connections to which it applies.
    Conn,
    /// What is with a server, and the server.
    Server,
    /// The word `counters`.
    Counters,
    /// A port's name.
    Port,
    /// A setting and its value, or a set and its elements.
    Setting,
    /// A number of entries, or nothing.
    Entries,
    /// Up to two versions.
    Versions,
    /// A version or nothing.
    Confirm,
    /// A version or nothing, and `--kill`, `--keep` or nothing.
    Rollback,
    /// A filter of packets, and options of `trace`.
    Trace,
    /// A filter of packets, and options of `capture`.
    Capture,
    /// A file's name.
    File,
    /// A file's name, or nothing for standard input.
    OptionalFile,
    /// A list of patterns and its file.
    Patterns,
}

/// One command.
#[derive(Debug)]
pub struct CommandInfo {
    /// Its first word.
    pub name: &'static str,
    /// Its identifier.
    pub verb: Verb,
    /// Its arguments, as shown in help.
    pub arguments: &'static str,
    /// Its arguments.
    pub argument: Argument,
    /// A policy file may hold it.
    pub in_file: bool,
    /// One line of help.
    pub help: &'static str,
}

const RULE: &str = "[id N] [prio N] [name WORD] MATCH… TARGET…";
const STATEFUL_RULE: &str = "[id N] [prio N] [name WORD] [draining] MATCH… TARGET…";

/// Every command.
pub static COMMANDS: &[CommandInfo] = &[
    command("add", Verb::Add, RULE, Argument::Rule, true, "adds a rule"),
    command("add-stateless", Verb::Add, RULE, Argument::Rule, true, "the long name of add"),
    command(
        "add-stateful",
        Verb::AddStateful,
        STATEFUL_RULE,
        Argument::Rule,
        true,
        "adds a rule that applies to connections",
    ),
    command(
        "replace",
        Verb::Replace,
        "ID [prio N] [name WORD] MATCH… TARGET… [--kill]",
        Argument::Replacement,
        true,
        "puts a rule in the place of the one of that number, whose connections it takes over; with --kill they end",
    ),
    command(
        "del",
        Verb::Del,
        "ID|name WORD [--kill|--keep] | set NAME",
        Argument::RuleId,
        true,
        "deletes the rule of that number, or all of that name, or a named set; with --kill also ends its connections, with --keep they keep it until they end",
    ),
    command("flush", Verb::Flush, "", Argument::None, true, "deletes every rule"),
    command("list", Verb::List, "[--terse]", Argument::Terse, false, "lists the rules and their counters"),
    command("show", Verb::Show, SHOW_ARGUMENTS, Argument::Show, false, "shows the state of mmb"),
    command(
        "enable",
        Verb::Enable,
        "PORT",
        Argument::Port,
        true,
        "applies the rules to the packets of a port again",
    ),
    command(
        "disable",
        Verb::Disable,
        "PORT",
        Argument::Port,
        true,
        "lets the packets of a port pass untouched",
    ),
    command(
        "set",
        Verb::Set,
        "NAME VALUE | NAME [+=|-=] {ELEMENT [timeout TIME], …} | NAME [+=|-=] file FILE",
        Argument::Setting,
        true,
        "changes a setting; or gives a named set these elements, adds them, or removes them: rules name it as @NAME",
    ),
    command(
        "patterns",
        Verb::Patterns,
        "LIST FILE",
        Argument::Patterns,
        true,
        "reads a list of patterns from a file, one a line; rules name it as @LIST",
    ),
    command(
        "apply",
        Verb::Apply,
        "FILE [--dry-run] [--confirm SECONDS] [--keep|--kill]",
        Argument::File,
        false,
        "puts a policy file in force as a whole; with --dry-run only prints what would change; with --confirm the policy before is in force again after that time, unless `confirm` comes first; connections of rules that it removes end with --kill, and keep them with --keep",
    ),
    command(
        "batch",
        Verb::Batch,
        "[FILE] [--dry-run] [--confirm SECONDS]",
        Argument::OptionalFile,
        false,
        "runs the commands of a file, one a line, as one change: all of them or none; without FILE those of standard input",
    ),
    command(
        "confirm",
        Verb::Confirm,
        "[N]",
        Argument::Confirm,
        false,
        "keeps a change that waits for its confirmation, after apply or batch with --confirm; with N only if it is version N of the policy",
    ),
    command(
        "rollback",
        Verb::Rollback,
        "[N] [--kill|--keep]",
        Argument::Rollback,
        false,
        "puts version N of the policy in force again, without N the one before, also instead of a change that waits for its confirmation; --kill and --keep are those of apply",
    ),
    command(
        "history",
        Verb::History,
        "[N]",
        Argument::Entries,
        false,
        "lists the versions of the policy, who has made them and how; with N the last N entries",
    ),
    command(
        "diff",
        Verb::Diff,
        "[N [M]]",
        Argument::Versions,
        false,
        "shows what differs between two versions of the policy; without M up to the one in force, without N from the one before",
    ),
    command(
        "save",
        Verb::Save,
        "FILE",
        Argument::File,
        false,
        "writes the policy in force to a file that apply reads",
    ),
    command("check", Verb::Check, "FILE", Argument::File, false, "checks a policy file and changes nothing"),
    command("conn", Verb::Conn, "kill FILTER…|all", Argument::Conn, false, "ends connections"),
    command(
        "server",
        Verb::Server,
        "up|drain|down|healthy|failed VALUE [in RULE] [because TEXT] [--kill]",
        Argument::Server,
        false,
        "takes a server of lb out for new connections, or back; with --kill also ends its connections; `mmb health` tells healthy and failed",
    ),
    command(
        "monitor",
        Verb::Monitor,
        "",
        Argument::None,
        false,
        "reports each connection that is made or ends, and the reason, until it is stopped",
    ),
    command(
        "trace",
        Verb::Trace,
        "[CONSTRAINT…] [count N]",
        Argument::Trace,
        false,
        "shows live packets and what each stage does to them: rules, connection, edits, verdict; the constraints select packets as they were received",
    ),
    command(
        "capture",
        Verb::Capture,
        "[CONSTRAINT…] [at rx|tx|drop] [reason REASON] [count N] [snaplen N] -w FILE",
        Argument::Capture,
        false,
        "writes live packets to a pcapng file (-: standard output), with comments that tell rules, connection and drop reason",
    ),
    command(
        "clear",
        Verb::Clear,
        "counters",
        Argument::Counters,
        false,
        "lets the counters of rules, drops, ports, stages and connections begin at zero again",
    ),
    command("save-state", Verb::SaveState, "FILE", Argument::File, false, "writes the connections to a file"),
    command(
        "load-state",
        Verb::LoadState,
        "FILE [--verbose]",
        Argument::File,
        false,
        "adds the connections that save-state wrote to a file; with --verbose lists those that were left out",
    ),
];

const fn command(
    name: &'static str,
    verb: Verb,
    arguments: &'static str,
    argument: Argument,
    in_file: bool,
    help: &'static str,
) -> CommandInfo {
    CommandInfo { name, verb, arguments, argument, in_file, help }
}

/// Makes [`SHOWS`] and [`SHOW_ARGUMENTS`]. A row has the words, what follows them in the usage line of `show`, the
/// meaning, and one line of help.
macro_rules! shows {
    (
        ($word:literal, $usage:literal, $show:expr, $help:literal)
        $(, ($words:literal, $usages:literal, $shows:expr, $helps:literal))* $(,)?
    ) => {
        /// The subjects of `show`: words, meaning, help. Rows with the same first word stand together.
        pub static SHOWS: &[(&str, Show, &str)] = &[($word, $show, $help), $(($words, $shows, $helps)),*];

        /// The arguments of `show` in its usage line.
        const SHOW_ARGUMENTS: &str = concat!($word, $usage, $("|", $words, $usages),*);
    };
}

shows! {
    ("tables", "", Show::Tables, "tables of the classifier: masks, rules, load"),
    ("ports", "", Show::Ports, "ports, their devices and counters"),
    ("errors", "", Show::Errors, "drops by reason, and edits that were not applied"),
    ("runtime", "", Show::Runtime, "calls, vectors, packets and cycles of each stage"),
    (
        "rates",
        "",
        Show::Rates,
        "packets and bytes per second of ports, workers, rules, connections and drops, measured for a second"
    ),
    (
        "offload",
        "",
        Show::Offload,
        "flows that the kernel forwards by itself, ports with the offload, and why other flows stay with mmb"
    ),
    ("log", "", Show::Log, "where `mmb run --log` sends events: events written, waiting and lost"),
    (
        "sets",
        "|set NAME",
        Show::Sets,
        "named sets: elements, memory, and rules that name them; `set NAME`: the elements of one"
    ),
    ("settings", "", Show::Settings, "settings in force"),
    ("version", "", Show::Version, "version and build"),
    (
        "connections",
        " [FILTER…] [verbose]",
        Show::Connections { filter: ConnectionFilter::ALL, verbose: false },
        "connections; with a filter, those that satisfy all of its conditions"
    ),
    (
        "streams",
        " [FILTER…] [verbose]|streams summary",
        Show::Streams { filter: ConnectionFilter::ALL, verbose: false },
        "streams that rules follow; with a filter, those of connections that satisfy all of its conditions; `summary`: their numbers, memory and limits"
    ),
    (
        "servers",
        " [--terse]",
        Show::Servers { terse: false },
        "servers of rules with lb: their states and counters; with --terse without packets and bytes"
    ),
    ("conn summary", "", Show::ConnSummary, "numbers of connections that exist, were made and were refused"),
}

impl Command {
    /// The command's row in the table of commands.
    pub fn info(&self) -> &'static CommandInfo {
        named(self.name()).expect("the table has every command, a test checks it")
    }
}

/// The command of that name.
pub fn named(name: &str) -> Option<&'static CommandInfo> {
    COMMANDS.iter().find(|info| info.name == name)
}
