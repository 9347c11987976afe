//! The tables of the language are sound.

use mmb_language::verb::{COMMANDS, TARGETS};
use mmb_language::{Command, parse_command};
use mmb_policy::field::{BareMeaning, FieldGroup, FieldPlace, Implies, StatefulUses, ValueKind, Writable};
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
            assert!(!keywords.contains(name) && !fields.contains(name), "{}: {name}", info.name);
        }
    }
}

#[test]
fn values_fit_their_fields() {
    for info in FIELDS {
        if let FieldPlace::Key { bit, width } = info.place {
            assert!((1..=128).contains(&width), "{}", info.name);
            let key_bits = if info.implies == Implies::Ip6 { 80 * 8 } else { 64 * 8 };
            assert!(bit + u16::from(width) <= key_bits, "{}", info.name);
        }
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
        let width = match info.values {
            ValueKind::Ip4 => Some(32),
            ValueKind::Ip6 => Some(128),
            _ => info.width(),
        };
        assert_eq!(width, info.width(), "{}", info.name);
    }
}

#[test]
fn what_is_bound_can_be_written() {
    for info in FIELDS.iter().filter(|info| info.bindings != StatefulUses::default()) {
        assert_eq!(info.writable, Writable::InPlace, "{}", info.name);
        assert!(info.max().is_some(), "{}", info.name);
    }
}

#[test]
fn every_field_can_stand_in_a_rule() {
    for info in FIELDS {
        let constraint = match info.values {
            ValueKind::Port => format!("{} lan", info.name),
            ValueKind::State => format!("{} new", info.name),
            _ => info.name.replace("KIND", "22"),
        };
        let line = format!("add {constraint} drop");
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
        "show connections",
        "show connections verbose",
        "show connections ip-proto tcp state established verbose",
        "show conn summary",
        "conn kill all",
        "conn kill rule 3",
        "monitor",
    ] {
        let (command, _) = parse_command(line).expect("parses");
        assert!(line.starts_with(command.info().name));
        assert_eq!(command.to_string(), line);
    }
    let names: HashSet<_> = COMMANDS.iter().map(|info| info.name).collect();
    assert_eq!(names.len(), COMMANDS.len());
    assert!(matches!(parse_command("list --terse"), Ok((Command::List { terse: true }, _))));
}
