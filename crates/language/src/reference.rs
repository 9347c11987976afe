//! The reference of the language, made from its tables and from the chapters in `reference/chapters.rs`.
//!
//! [`blocks`] gives it as data, for man pages and the like; [`markdown`] as `docs/language.md`, which a test keeps
//! current.

mod block;
mod chapters;

pub use block::{Block, CodeKind};

use crate::complete::fields;
use crate::filter::{FilterTerm, TERMS, TermInfo};
use crate::target::{TARGETS, TargetInfo};
use crate::verb::COMMANDS;
use mmb_packet::key;
use mmb_policy::field::{
    BareMeaning, FIELDS, FieldGroup, FieldInfo, FieldPlace, Implies, StreamPart, ValueFormat, ValueKind,
    ValueNames, Writable,
};
use mmb_policy::filter::STATES;
use mmb_policy::http;
use mmb_policy::setting_table::Setting;
use mmb_policy::settings::Settings;
use std::fmt::Write as _;

/// The whole reference.
pub fn blocks() -> Vec<Block> {
    let mut blocks = vec![
        heading(1, "The rule language"),
        paragraph(chapters::INTRODUCTION),
        heading(2, "Commands"),
        commands(),
    ];
    chapters::push(&mut blocks, chapters::FILES);
    blocks.push(heading(2, "Rules"));
    chapters::push(&mut blocks, &chapters::RULES.replace("@TARGETS@", &target_grammar()));
    blocks.push(heading(2, "Values"));
    blocks.push(value_forms());
    chapters::push(&mut blocks, chapters::VALUES);
    chapters::push(&mut blocks, chapters::SETS);
    blocks.push(heading(2, "Fields"));
    chapters::push(&mut blocks, chapters::FIELDS);
    field_groups(&mut blocks);
    blocks.push(heading(3, "Names of values"));
    blocks.push(names());
    blocks.push(heading(2, "Targets"));
    blocks.push(targets());
    blocks.push(Block::List(TARGETS.iter().map(|target| target.reference.to_owned()).collect()));
    chapters::push(&mut blocks, chapters::SEMANTICS);
    connections(&mut blocks);
    chapters::push(&mut blocks, &chapters::STREAMS.replace("@FIXED@", &fixed_headers()));
    blocks.push(heading(2, "Settings"));
    blocks.push(settings());
    blocks.push(heading(2, "Examples"));
    chapters::push(&mut blocks, chapters::EXAMPLES);
    blocks
}

/// The reference as Markdown, the text of `docs/language.md`.
pub fn markdown() -> String {
    let mut out = String::from("<!-- Written by `make doc` from crates/language; do not edit. -->\n");
    for block in blocks() {
        out.push('\n');
        // Writing to a string does not fail.
        let _ = match block {
            Block::Heading(level, text) => writeln!(out, "{} {text}", "#".repeat(level.into())),
            Block::Paragraph(text) => writeln!(out, "{text}"),
            Block::List(items) => items.iter().try_for_each(|item| writeln!(out, "- {item}")),
            Block::Code(CodeKind::Commands, text) => writeln!(out, "```mmb\n{text}\n```"),
            Block::Code(CodeKind::Text, text) => writeln!(out, "```\n{text}\n```"),
            Block::Table(head, rows) => table(&mut out, &head, &rows),
        };
    }
    out
}

fn table(out: &mut String, head: &[&str], rows: &[Vec<String>]) -> std::fmt::Result {
    let cells = |cells: &[String]| {
        cells.iter().map(|cell| format!(" {} |", cell.replace('|', "\\|"))).collect::<String>()
    };
    let head: Vec<String> = head.iter().map(|cell| (*cell).to_owned()).collect();
    writeln!(out, "|{}", cells(&head))?;
    writeln!(out, "|{}", " --- |".repeat(head.len()))?;
    rows.iter().try_for_each(|row| writeln!(out, "|{}", cells(row)))
}

fn heading(level: u8, text: &str) -> Block {
    Block::Heading(level, text.to_owned())
}

fn paragraph(text: &str) -> Block {
    Block::Paragraph(text.to_owned())
}

fn code(text: &str) -> String {
    format!("`{text}`")
}

fn commands() -> Block {
    let row = |info: &crate::verb::CommandInfo| {
        let arguments =
            if info.arguments.is_empty() { String::new() } else { format!(" {}", info.arguments) };
        let in_file = if info.in_file { "yes" } else { "" };
        vec![code(&format!("{}{arguments}", info.name)), info.help.to_owned(), in_file.to_owned()]
    };
    Block::Table(vec!["command", "what it does", "in files"], COMMANDS.iter().map(row).collect())
}

fn value_forms() -> Block {
    let rows = chapters::VALUE_FORMS.iter().map(|(form, meaning)| vec![code(form), (*meaning).to_owned()]);
    Block::Table(vec!["form", "what it is"], rows.collect())
}

fn targets() -> Block {
    let row = |info: &TargetInfo| {
        let arguments =
            if info.arguments.is_empty() { String::new() } else { format!(" {}", info.arguments) };
        let rules = if info.stateful { "`add-stateful` only" } else { "any" };
        vec![code(&format!("{}{arguments}", info.name)), info.help.to_owned(), rules.to_owned()]
    };
    Block::Table(vec!["target", "what it does", "rules"], TARGETS.iter().map(row).collect())
}

/// The alternatives of the grammar's `TARGET`, those of stateful rules in a line of their own.
fn target_grammar() -> String {
    let line = |stateful: bool| {
        let targets = TARGETS.iter().filter(|target| target.stateful == stateful);
        let written =
            |target: &TargetInfo| format!("{} {}", target.name, target.arguments).trim_end().to_owned();
        targets.map(written).collect::<Vec<_>>().join(" | ")
    };
    format!("{}\n         | {}", line(false), line(true))
}

/// The header fields that rules do not write.
fn fixed_headers() -> String {
    let names: Vec<_> = http::fixed_headers().map(code).collect();
    names.join(", ")
}

fn settings() -> Block {
    let row = |setting: Setting| {
        let info = setting.info();
        let words = info.words().iter().map(|(word, help)| format!("; {}: {help}", code(word)));
        let help = words.fold(info.help.to_owned(), |help, word| help + &word);
        vec![code(info.name), info.values.describe(), code(&setting.value()), help]
    };
    let head = vec!["setting", "values", "default", "what it is"];
    Block::Table(head, Settings::default().all().map(row).collect())
}

/// Adds the chapters on connections and their filters.
fn connections(blocks: &mut Vec<Block>) {
    chapters::push(blocks, chapters::CONNECTIONS);
    let row = |info: &TermInfo| vec![code(info.name), term_values(info), info.help.to_owned()];
    blocks.push(Block::Table(vec!["word", "values", "what it is"], TERMS.iter().map(row).collect()));
    chapters::push(blocks, chapters::STATES);
    let row = |(name, help): &(&str, &str)| vec![code(name), (*help).to_owned()];
    blocks.push(Block::Table(vec!["state", "meaning"], STATES.iter().map(row).collect()));
}

fn term_values(term: &TermInfo) -> String {
    match (term.field, term.subject) {
        (Some(id), FilterTerm::Family | FilterTerm::Proto) => format!("one value of `{}`", id.info().name),
        (Some(_), FilterTerm::SourcePort | FilterTerm::DestinationPort) => {
            "a port, or a range of ports".to_owned()
        }
        (Some(_), _) => "an address, a prefix or a range".to_owned(),
        (None, FilterTerm::State) => "a state (see below)".to_owned(),
        (None, _) => "the id of a rule".to_owned(),
    }
}

/// The title of a group of fields.
fn title(group: FieldGroup) -> &'static str {
    match group {
        FieldGroup::Port => "Ports of mmb",
        FieldGroup::Connection => "Connections",
        FieldGroup::Link => "Link layer",
        FieldGroup::Ip => "Any IP packet",
        FieldGroup::Ip4 => "IPv4",
        FieldGroup::Ip6 => "IPv6",
        FieldGroup::Ip6Extension => "IPv6 extension headers",
        FieldGroup::Icmp => "ICMP",
        FieldGroup::Icmp6 => "ICMPv6",
        FieldGroup::Udp => "UDP",
        FieldGroup::Tcp => "TCP",
        FieldGroup::TcpOption => "TCP options",
        FieldGroup::Payload => "Payload",
        FieldGroup::Stream => "Streams",
    }
}

fn field_groups(blocks: &mut Vec<Block>) {
    // The table of fields is sorted by group.
    for group in FIELDS.chunk_by(|a, b| a.group == b.group) {
        blocks.push(heading(3, title(group[0].group)));
        let head = vec!["field", "values", "where", "about", "alone", "targets", "what it is"];
        blocks.push(Block::Table(head, group.iter().map(field_row).collect()));
    }
}

fn field_row(info: &FieldInfo) -> Vec<String> {
    vec![
        code(info.name),
        values(info),
        place(info),
        about(info.implies).to_owned(),
        alone(info),
        target_words(info),
        info.help.to_owned(),
    ]
}

fn values(info: &FieldInfo) -> String {
    match info.values {
        ValueKind::Number if matches!(info.place, FieldPlace::Stream(_)) => "100–999".to_owned(),
        ValueKind::Number => match info.max() {
            Some(max) => format!("0–{max}"),
            None => String::new(),
        },
        ValueKind::Ip4 => "IPv4 addresses".to_owned(),
        ValueKind::Ip6 => "IPv6 addresses".to_owned(),
        ValueKind::Port => "names of ports".to_owned(),
        ValueKind::OptionData(Some(0)) => "bytes (has no data)".to_owned(),
        ValueKind::OptionData(Some(n)) => {
            format!("a number of {n} byte{}, or bytes", if n == 1 { "" } else { "s" })
        }
        ValueKind::OptionData(None) => "a number of up to 8 bytes, or bytes".to_owned(),
        ValueKind::Bytes => "bytes".to_owned(),
        ValueKind::State => "states (below)".to_owned(),
        ValueKind::Nothing => "none".to_owned(),
        ValueKind::Pattern => "patterns".to_owned(),
        ValueKind::ServerName => "names".to_owned(),
        ValueKind::Method => "methods".to_owned(),
        ValueKind::Header => "a name, patterns".to_owned(),
    }
}

fn place(info: &FieldInfo) -> String {
    match info.place {
        FieldPlace::Key { bit, width } => {
            let header = |name: &str, start: usize| bytes(name, bit - start as u16 * 8, width);
            match usize::from(bit / 8) {
                at if at >= key::IP => header("IP header", key::IP),
                at if at >= key::L4 => header("transport header", key::L4),
                _ => String::new(),
            }
        }
        FieldPlace::Connection => String::new(),
        FieldPlace::AnyOption => "options area".to_owned(),
        FieldPlace::Stream(StreamPart::Both) => "both directions".to_owned(),
        FieldPlace::Stream(StreamPart::Forward) => "first packet's direction".to_owned(),
        FieldPlace::Stream(StreamPart::Reply) => "the other direction".to_owned(),
        FieldPlace::Stream(StreamPart::ServerName) => "ClientHello".to_owned(),
        FieldPlace::Stream(StreamPart::Http) => "HTTP/1.x messages".to_owned(),
        FieldPlace::Stream(StreamPart::HttpMethod | StreamPart::HttpUri) => "request line".to_owned(),
        FieldPlace::Stream(StreamPart::HttpHost) => "request target, `Host`".to_owned(),
        FieldPlace::Stream(StreamPart::HttpStatus) => "status line".to_owned(),
        FieldPlace::Stream(StreamPart::HttpHeader) => "heads, both directions".to_owned(),
        FieldPlace::Stream(StreamPart::HttpBody) => "bodies, both directions".to_owned(),
        FieldPlace::Option(kind) => format!("option {kind}"),
        FieldPlace::NamedOption => "option KIND".to_owned(),
        FieldPlace::Payload(mmb_policy::field::Payload::Ip) => "behind the IP header".to_owned(),
        FieldPlace::Payload(mmb_policy::field::Payload::Transport) => {
            "behind the transport header".to_owned()
        }
    }
}

/// `byte 8`, `bytes 12–15`, with a mask where a field has part of them.
fn bytes(header: &str, bit: u16, width: u8) -> String {
    let behind = bit + u16::from(width);
    let (first, last) = (bit / 8, (behind - 1) / 8);
    let place = if first == last { format!("byte {first}") } else { format!("bytes {first}–{last}") };
    let below = (last + 1) * 8 - behind;
    let whole = bit.is_multiple_of(8) && below == 0;
    let mask = if whole {
        String::new()
    } else {
        format!(", mask {:#04x}", mmb_policy::field::ones(width) << below)
    };
    format!("{header}, {place}{mask}")
}

fn about(implies: Implies) -> &'static str {
    match implies {
        Implies::Frame => "any frame",
        Implies::Ip => "IP",
        Implies::Ip4 => "IPv4",
        Implies::Ip6 => "IPv6",
        Implies::Icmp => "ICMP over IPv4",
        Implies::Icmp6 => "ICMPv6",
        Implies::Udp => "UDP",
        Implies::Tcp => "TCP",
        Implies::Transport => "IP, no later fragment",
        Implies::TcpOrUdp => "TCP or UDP",
    }
}

fn alone(info: &FieldInfo) -> String {
    match (info.alone, info.values) {
        (_, ValueKind::Port | ValueKind::State | ValueKind::Pattern | ValueKind::ServerName) => {
            "needs a value".to_owned()
        }
        (_, ValueKind::Method) => "needs a value".to_owned(),
        (_, ValueKind::Header) => "needs a name; with it: it is there".to_owned(),
        (_, ValueKind::Nothing) if matches!(info.place, FieldPlace::Stream(_)) => "any exchange".to_owned(),
        (_, ValueKind::Number) if matches!(info.place, FieldPlace::Stream(_)) => "needs a value".to_owned(),
        (BareMeaning::Protocol, _) => match info.implies {
            Implies::Frame => "any frame".to_owned(),
            implies => format!("any {} packet", about(implies)),
        },
        (BareMeaning::Equals(_), _) if info.group == FieldGroup::Ip6Extension => "it is there".to_owned(),
        (BareMeaning::Equals(1), _) if info.width() == Some(1) => "it is set".to_owned(),
        (BareMeaning::Equals(value), _) => format!("the bits are {value}"),
        (BareMeaning::Optional, _) => "it is there".to_owned(),
    }
}

/// The targets that take a field.
fn target_words(info: &FieldInfo) -> String {
    let as_is = if info.writable == Writable::Raw { " (as is)" } else { "" };
    let words = TARGETS.iter().filter(|target| (target.takes)(info));
    let words: Vec<String> = words.map(|target| format!("{}{as_is}", code(target.name))).collect();
    words.join(", ")
}

/// Every list of names with the fields that it belongs to, and the numbers that may stand in their place.
fn names() -> Block {
    let mut lists: Vec<(ValueNames, ValueKind, Vec<String>)> = Vec::new();
    for info in fields().filter(|info| !info.names.list.is_empty()) {
        match lists.iter_mut().find(|(names, ..)| *names == info.names) {
            Some((.., fields)) => fields.push(code(info.name)),
            None => lists.push((info.names, info.values, vec![code(info.name)])),
        }
    }
    let row = |(names, values, fields): (ValueNames, ValueKind, Vec<String>)| {
        let value = |n: u64| match names.shown {
            _ if values == ValueKind::State => String::new(),
            ValueFormat::Hex => format!(" {n:#06x}"),
            ValueFormat::Decimal | ValueFormat::Name => format!(" {n}"),
        };
        let list: Vec<_> = names.list.iter().map(|&(name, n)| format!("`{name}`{}", value(n))).collect();
        vec![fields.join(", "), list.join(", ")]
    };
    Block::Table(vec!["fields", "names"], lists.into_iter().map(row).collect())
}
