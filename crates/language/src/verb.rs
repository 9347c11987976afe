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
    /// `monitor`
    Monitor,
    /// `clear`
    Clear,
    /// `apply`, carried out around the language by the shell and the binary.
    Apply,
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
    /// A rule's number, and `--kill` or nothing; or `set` and a name.
    RuleId,
    /// `--terse`, or nothing.
    Terse,
    /// One of [`SHOWS`].
    Show,
    /// An operation and the connections to which it applies.
    Conn,
    /// The word `counters`.
    Counters,
    /// A port's name.
    Port,
    /// A setting and its value, or a set and its elements.
    Setting,
    /// A file's name.
    File,
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
        "del",
        Verb::Del,
        "ID [--kill|--keep] | set NAME",
        Argument::RuleId,
        true,
        "deletes the rule of that number, or a named set; with --kill also ends its connections, with --keep they keep it until they end",
    ),
    command("flush", Verb::Flush, "", Argument::None, true, "deletes every rule"),
    command("list", Verb::List, "[--terse]", Argument::Terse, false, "lists the rules and their counters"),
    command(
        "show",
        Verb::Show,
        "tables|ports|errors|runtime|rates|offload|sets|set NAME|settings|version|connections [FILTER…] [verbose]|streams [FILTER…] [verbose]|streams summary|conn summary",
        Argument::Show,
        false,
        "shows the state of mmb",
    ),
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
        "FILE [--dry-run] [--keep|--kill]",
        Argument::File,
        false,
        "puts a policy file in force as a whole; with --dry-run only prints what would change; connections of rules that it removes end with --kill, and keep them with --keep",
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
        "monitor",
        Verb::Monitor,
        "",
        Argument::None,
        false,
        "reports each connection that is made or ends, and the reason, until it is stopped",
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

/// The subjects of `show`: word, meaning, help.
pub static SHOWS: &[(&str, Show, &str)] = {
    &[
        ("tables", Show::Tables, "tables of the classifier: masks, rules, load"),
        ("ports", Show::Ports, "ports, their devices and counters"),
        ("errors", Show::Errors, "drops by reason, and edits that were not applied"),
        ("runtime", Show::Runtime, "calls, vectors, packets and cycles of each stage"),
        (
            "rates",
            Show::Rates,
            "packets and bytes per second of ports, workers, rules, connections and drops, measured for a second",
        ),
        (
            "offload",
            Show::Offload,
            "flows that the kernel forwards by itself, ports with the offload, and why other flows stay with mmb",
        ),
        (
            "sets",
            Show::Sets,
            "named sets: elements, memory, and rules that name them; `set NAME`: the elements of one",
        ),
        ("settings", Show::Settings, "settings in force"),
        ("version", Show::Version, "version and build"),
        (
            "connections",
            Show::Connections { filter: ConnectionFilter::ALL, verbose: false },
            "connections; with a filter, those that satisfy all of its conditions",
        ),
        (
            "streams",
            Show::Streams { filter: ConnectionFilter::ALL, verbose: false },
            "streams that rules follow; with a filter, those of connections that satisfy all of its conditions; `summary`: their numbers, memory and limits",
        ),
        ("conn summary", Show::ConnSummary, "numbers of connections that exist, were made and were refused"),
    ]
};

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
