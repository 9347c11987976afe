//! The tables of the language are sound.

use mmb_language::target::TARGETS;
use mmb_language::verb::COMMANDS;
use mmb_language::{Command, parse_command};
use mmb_policy::field::{BareMeaning, FieldGroup, FieldPlace, Implies, StreamPart, ValueKind, Writable};
use mmb_policy::{FIELDS, Field, FieldId};
use std::collections::{BTreeSet, HashSet};

#[test]
fn every_field_is_at_its_place_in_the_table() {
    for (i, info) in FIELDS.iter().enumerate() {
        assert_eq!(info.id as usize, i, "{}", info.name);
        if info.place != FieldPlace::NamedOption {
            assert_eq!(FieldId::named(info.name), Some(info.id));
            assert_eq!(Field::new(info.id).to_string(), info.name);
        }
    }
    let groups: Vec<FieldGroup> =
        FIELDS.chunk_by(|a, b| a.group == b.group).map(|chunk| chunk[0].group).collect();
    assert_eq!(groups.iter().collect::<BTreeSet<_>>().len(), groups.len(), "groups are in one piece");
}

#[test]
fn words_mean_one_thing() {
    let fields: HashSet<_> = FIELDS.iter().map(|info| info.name).collect();
    assert_eq!(fields.len(), FIELDS.len());
    let mut keywords: HashSet<_> = ["all", "id", "prio", "name"].into();
    keywords.extend(TARGETS.iter().map(|info| info.name));
    assert!(keywords.is_disjoint(&fields));
    for info in FIELDS {
        for (name, _) in info.names.list {
            // A port's name right behind a field of ports, else a field.
            let is_field = *name != "http" && fields.contains(name);
            assert!(!keywords.contains(name) && !is_field, "{}: {name}", info.name);
        }
    }
}

#[test]
fn values_fit_their_fields() {
    for info in FIELDS {
        let max = info.max();
        for (name, value) in info.names.list {
            assert!(max.is_some_and(|max| u128::from(*value) <= max), "{}: {name}", info.name);
            assert!(
                name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{name}"
            );
        }
        let distinct: HashSet<_> = info.names.list.iter().map(|(name, _)| name).collect();
        assert_eq!(distinct.len(), info.names.list.len(), "{}", info.name);
        if let (BareMeaning::Equals(value), FieldPlace::Key { width, .. }) = (info.alone, info.place) {
            assert!(u128::from(value) <= mmb_policy::field::ones(width), "{}", info.name);
        }
    }
}

/// What the rooms that read the table take for granted of a row.
#[test]
fn the_columns_of_a_row_agree() {
    for info in FIELDS {
        let name = info.name;
        let raw_or_in_place = matches!(info.writable, Writable::No(_) | Writable::InPlace | Writable::Raw);
        match info.place {
            FieldPlace::Key { width, .. } => {
                assert!(raw_or_in_place, "{name}");
                match info.values {
                    ValueKind::Number | ValueKind::Port => {}
                    ValueKind::Ip4 => assert_eq!(width, 32, "{name}"),
                    ValueKind::Ip6 => assert_eq!(width, 128, "{name}"),
                    ValueKind::Nothing => assert!(matches!(info.alone, BareMeaning::Equals(_)), "{name}"),
                    ValueKind::OptionData(_) | ValueKind::Bytes | ValueKind::State => panic!("{name}"),
                    ValueKind::Pattern | ValueKind::ServerName | ValueKind::Method | ValueKind::Header => {
                        panic!("{name}")
                    }
                }
            }
            FieldPlace::AnyOption => {
                assert_eq!((info.implies, info.values), (Implies::Tcp, ValueKind::Nothing), "{name}");
                assert!(matches!(info.writable, Writable::No(_)), "{name}");
            }
            FieldPlace::Option(_) | FieldPlace::NamedOption => {
                assert_eq!((info.implies, info.writable), (Implies::Tcp, Writable::Option), "{name}");
                assert!(matches!(info.values, ValueKind::OptionData(_)), "{name}");
            }
            FieldPlace::Payload(_) => {
                assert_eq!((info.values, info.writable), (ValueKind::Bytes, Writable::Payload), "{name}");
            }
            FieldPlace::Connection => {
                assert_eq!((info.id, info.values), (FieldId::Ct, ValueKind::State), "{name}");
                assert!(matches!(info.writable, Writable::No(_)), "{name}");
            }
            FieldPlace::Stream(part) => {
                let implies = if part.is_bytes() { Implies::TcpOrUdp } else { Implies::Tcp };
                let values = match part {
                    StreamPart::Both | StreamPart::Forward | StreamPart::Reply => ValueKind::Pattern,
                    StreamPart::HttpUri | StreamPart::HttpBody => ValueKind::Pattern,
                    StreamPart::ServerName | StreamPart::HttpHost => ValueKind::ServerName,
                    StreamPart::Http => ValueKind::Nothing,
                    StreamPart::HttpMethod => ValueKind::Method,
                    StreamPart::HttpStatus => ValueKind::Number,
                    StreamPart::HttpHeader => ValueKind::Header,
                };
                assert_eq!(
                    (info.values, info.implies, info.group),
                    (values, implies, FieldGroup::Stream),
                    "{name}"
                );
                let is_edited = part.is_bytes() || part == StreamPart::HttpBody;
                assert_eq!(info.writable == Writable::Stream, is_edited, "{name}");
                assert!(!matches!(info.writable, Writable::InPlace | Writable::Raw), "{name}");
                assert!(!matches!(info.writable, Writable::Option | Writable::Payload), "{name}");
                assert_eq!(info.writable == Writable::Header, part == StreamPart::HttpHeader, "{name}");
            }
        }
        let is_in_packet = !matches!(info.place, FieldPlace::Connection | FieldPlace::Stream(_));
        let may_be_absent = info.place.key_bits().is_none() && is_in_packet;
        let is_optional = info.alone == BareMeaning::Optional;
        // Of the fields of the key only that of the VLAN tag may be absent: classifier and rewriter know it.
        assert_eq!(is_optional, may_be_absent || info.id == FieldId::VlanId, "{name}");
    }
    let kinds: Vec<_> = FIELDS.iter().filter_map(|info| Field::new(info.id).option_kind()).collect();
    assert_eq!(kinds.iter().collect::<HashSet<_>>().len(), kinds.len(), "each kind has one row");
}

/// A header field of the key is behind bytes that say that the packet has the header.
#[test]
fn fields_are_implied_by_the_header_that_they_are_in() {
    use mmb_packet::key::{IP, L4};
    for info in FIELDS {
        let Some((bit, _)) = info.place.key_bits() else { continue };
        let transport = matches!(info.implies, Implies::Icmp | Implies::Icmp6 | Implies::Udp | Implies::Tcp);
        let ip =
            matches!(info.implies, Implies::Ip4 | Implies::Ip6) && info.group != FieldGroup::Ip6Extension;
        match usize::from(bit / 8) {
            byte if byte >= IP => assert!(ip, "{}", info.name),
            byte if byte >= L4 => assert!(transport, "{}", info.name),
            _ => assert!(!transport && !ip, "{}", info.name),
        }
    }
}

#[test]
fn a_part_of_a_mapping_is_a_number() {
    for info in FIELDS.iter().filter(|info| info.bindings.part.is_some()) {
        assert!(info.max().is_some(), "{}", info.name);
    }
}

#[test]
fn every_field_can_stand_in_a_rule() {
    for info in FIELDS {
        let constraint = match info.values {
            ValueKind::Port => format!("{} lan", info.name),
            ValueKind::State => format!("{} new", info.name),
            ValueKind::Number if info.group == FieldGroup::Stream => format!("{} 200", info.name),
            _ if info.values.has_patterns() => format!("{} \"a\"", info.name),
            _ => info.name.replace("KIND", "22"),
        };
        let command = if info.group == FieldGroup::Stream { "add-stateful" } else { "add" };
        let line = format!("{command} {constraint} drop");
        assert!(parse_command(&line).is_ok(), "{line}");
    }
}

#[test]
fn names_do_not_look_like_numbers() {
    for (name, _) in FIELDS.iter().flat_map(|info| info.names.list) {
        assert!(name.starts_with(|c: char| c.is_ascii_lowercase()), "{name}");
    }
    for info in FIELDS {
        assert_eq!(FieldId::named(info.name), Some(info.id));
        assert!(info.name.starts_with(|c: char| c.is_ascii_lowercase()), "{}", info.name);
    }
}

#[test]
fn every_field_is_explained() {
    for info in FIELDS {
        assert!(!info.help.is_empty() && !info.help.ends_with('.'), "{}", info.name);
    }
}

#[test]
fn every_command_has_its_row() {
    for line in [
        "add all drop",
        "add-stateful all drop",
        "del 1",
        "flush",
        "list",
        "show ports",
        "enable a",
        "disable a",
        "set poll spin",
        "del 1 --kill",
        "del name web --keep",
        "replace 3 prio 5 name web tcp-dport 80 accept",
        "replace 3 ip-saddr 10.0.0.0/8 map ip-saddr 192.0.2.1 --kill",
        "show offload",
        "set offload off",
        "show connections",
        "show connections verbose",
        "show connections ip-proto tcp state established verbose",
        "show streams",
        "show streams tcp-dport 80 verbose",
        "show streams summary",
        "show conn summary",
        "conn kill all",
        "conn kill rule 3",
        "monitor",
        "confirm",
        "rollback",
        "rollback 7 --keep",
        "history",
        "history 20",
        "diff",
        "diff 3",
        "diff 3 7",
    ] {
        let (command, _) = parse_command(line).expect("parses");
        assert!(line.starts_with(command.info().name));
        assert_eq!(command.to_string(), line);
    }
    let names: HashSet<_> = COMMANDS.iter().map(|info| info.name).collect();
    assert_eq!(names.len(), COMMANDS.len());
    assert!(matches!(parse_command("list --terse"), Ok((Command::List { terse: true }, _))));
}
