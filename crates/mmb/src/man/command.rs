//! mmb(1).

use super::page::{begin, code, finish, inline, option_name, see_also, term};
use crate::cli;
use clap::{Arg, Command};
use clap_mangen::roff::{Roff, bold, italic, roman};
use mmb_language::verb::COMMANDS;
use std::path::PathBuf;

const DESCRIPTION: [&str; 3] = [
    "mmb forwards packets between two network ports, or from one capture to another. It matches every packet against the rules of a \
     policy, and drops, passes or rewrites it. Rules are commands of a small language; `mmb-policy`(5) describes it.",
    "`mmb run` works on live ports, and listens on a unix socket. The other commands connect to this socket: as one-shot \
     commands (`mmb add` and so on), or from the shell that `mmb` without a command opens. `mmb replay` works on \
     captures, `mmb bench` measures, `mmb import` makes policies from the filters of other programs, and `mmb check` \
     checks a policy without using it: these need no daemon.",
    "In one-shot commands, characters that are special to your shell need quotes: `'>'`, `'!'`, `'{80, 443}'`, \
     `'\"text\"'`, `'|0d 0a|'`.",
];

const EXAMPLES: &str = "\
mmb check edge.mmb
iptables-save | mmb import iptables - -o edge.mmb
mmb replay --rules edge.mmb in.pcap out.pcap
mmb run -c edge.mmb --port lan=eth1 --port wan=eth2
mmb add tcp-opt-mss '>' 1400 mod tcp-opt-mss 1400
mmb list --json
mmb show errors
mmb show connections ip-saddr 10.0.0.0/8 state established
mmb monitor --json";

const FILES: [(&str, &str); 6] = [
    ("/run/mmb/mmb.sock", "The control socket of the daemon, without `--socket`."),
    ("/etc/mmb/policy.mmb", "The policy of the systemd unit."),
    (
        "/etc/mmb/mmb.env",
        "The environment of the systemd unit: `MMB_OPTIONS` has the ports and further options of `mmb run`.",
    ),
    ("/var/lib/mmb/state", "The state of the systemd unit while the daemon does not run: `--state`."),
    ("PREFIX/share/mmb", "Samples of the policy and of the environment."),
    ("$XDG_STATE_HOME/mmb/history", "The history of the shell; by default in `~/.local/state`."),
];

const STATUS: [(&str, &str); 3] = [
    ("0", "Success."),
    (
        "1",
        "Failure: the policy, the capture, a device or the daemon reported an error. A damaged capture is a failure too, although \
         mmb processes it up to the damage.",
    ),
    ("2", "Wrong usage."),
];

/// Returns the page.
pub(super) fn page() -> anyhow::Result<String> {
    let mut command = cli::command();
    command.build();
    let mut page = begin("mmb", "1", "userspace middlebox");
    page.control("SH", ["SYNOPSIS"]);
    for words in ["run", "replay", "bench", "import", "check", "COMMAND"] {
        page.text([bold("mmb"), roman(" ["), italic("OPTIONS"), roman("] "), bold(words), roman(" ...")]);
        page.control("br", []);
    }
    page.text([bold("mmb")]);
    page.control("SH", ["DESCRIPTION"]);
    for paragraph in DESCRIPTION {
        page.control("PP", []);
        page.text(inline(paragraph));
    }
    page.control("SH", ["OPTIONS"]);
    page.text([roman("Every command takes these, anywhere on its line.")]);
    command.get_arguments().for_each(|argument| describe(&mut page, argument));
    page.control("SH", ["COMMANDS"]);
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        // A subcommand that only groups others has no section of its own.
        if sub.has_subcommands() {
            sub.get_subcommands()
                .filter(|own| own.get_name() != "help")
                .for_each(|own| subcommand(&mut page, own));
        } else {
            subcommand(&mut page, sub);
        }
    }
    page.control("SH", ["EXIT STATUS"]);
    for (status, meaning) in STATUS {
        term(&mut page, vec![bold(status)], vec![roman(meaning)]);
    }
    page.control("SH", ["ENVIRONMENT"]);
    term(&mut page, vec![bold("NO_COLOR")], vec![roman("If set to anything, no colours are used.")]);
    page.control("SH", ["FILES"]);
    for (path, meaning) in FILES {
        term(&mut page, vec![italic(path)], inline(meaning));
    }
    page.control("SH", ["EXAMPLES"]);
    code(&mut page, EXAMPLES);
    see_also(&mut page, "mmb-policy", "5");
    Ok(finish(&page))
}

/// Writes a subcommand: its usage, its description and its own options.
fn subcommand(page: &mut Roff, sub: &Command) {
    page.control("SS", [usage(sub).as_str()]);
    if let Some(about) = sub.get_about() {
        page.text(inline(&sentence(&about.to_string())));
    }
    sub.get_arguments()
        .filter(|argument| !argument.is_global_set())
        .for_each(|argument| describe(page, argument));
    if let Some(more) = sub.get_after_help() {
        page.control("PP", []);
        page.text(inline(&more.to_string().replace('\n', " ")));
    }
}

/// Returns the heading of a subcommand: its name and its arguments.
fn usage(sub: &Command) -> String {
    if let Some(info) = COMMANDS.iter().find(|info| info.name == sub.get_name()) {
        return format!("mmb {} {}", info.name, info.arguments).trim_end().to_owned();
    }
    let usage = sub.clone().render_usage().to_string().replace(['<', '>'], "");
    let ways = usage.trim_start_matches("Usage:").lines().map(str::trim);
    ways.collect::<Vec<_>>().join(", or ")
}

/// Writes an option or a positional argument, except help and version.
fn describe(page: &mut Roff, argument: &Arg) {
    let id = argument.get_id().as_str();
    if argument.is_hide_set() || id == "help" || id == "version" || id == "words" {
        return;
    }
    let value = value(argument);
    let long = argument.get_long().map(|long| format!("--{long}"));
    let short = argument.get_short().map(|short| format!("-{short}"));
    let name = match (short, long) {
        (Some(short), Some(long)) => option_name(&format!("{short}, {long}"), value.as_deref()),
        (Some(name), None) | (None, Some(name)) => option_name(&name, value.as_deref()),
        (None, None) => vec![italic(value.unwrap_or_default())],
    };
    let mut text = argument.get_help().map(|help| sentence(&help.to_string())).unwrap_or_default();
    let values: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|value| argument.get_action().takes_values() && !value.is_hide_set())
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({help})", value.get_name()),
            None => format!("`{}`", value.get_name()),
        })
        .collect();
    if !values.is_empty() {
        text += &format!(" One of {}.", values.join(", "));
    }
    let default: Vec<PathBuf> = argument.get_default_values().iter().map(PathBuf::from).collect();
    if let [default] = &default[..]
        && argument.get_action().takes_values()
    {
        text += &format!(" Without it: {}.", default.display());
    }
    term(page, name, inline(&text));
}

fn value(argument: &Arg) -> Option<String> {
    let takes = argument.get_action().takes_values();
    let names = argument.get_value_names().filter(|_| takes)?;
    Some(names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" "))
}

/// Adds the full stop that help texts do not have.
fn sentence(text: &str) -> String {
    let text = text.replace('\n', " ");
    if text.ends_with('.') { text } else { text + "." }
}
