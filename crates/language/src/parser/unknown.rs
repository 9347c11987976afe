//! Unknown words, and the known word that was probably meant.

use crate::nearest::nearest;
use crate::target::{self, TARGETS};
use crate::verb::COMMANDS;
use mmb_policy::field::{FIELDS, FieldId, FieldInfo, FieldPlace};

/// Words of other tools and slips for `all` and fields, with ours; those for targets are in their rows.
const SYNONYMS: &[(&str, &str)] = &[
    ("any", "all"),
    ("tcp", "ip-proto tcp"),
    ("udp", "ip-proto udp"),
    ("icmp", "ip-proto icmp"),
    ("sctp", "ip-proto sctp"),
    ("src", "ip-saddr"),
    ("dst", "ip-daddr"),
    ("ip-src", "ip-saddr"),
    ("ip-dst", "ip-daddr"),
    ("ip6-src", "ip6-saddr"),
    ("ip6-dst", "ip6-daddr"),
    ("ip6-ttl", "ip6-hop-limit"),
    ("ip6-dscp", "ip6-traffic-class"),
    ("ip6-ecn", "ip6-traffic-class"),
    ("ip6-proto", "ip-proto"),
    ("ip-tos", "ip-dscp"),
    ("tos", "ip-dscp"),
    ("hop-limit", "ip6-hop-limit"),
    ("proto", "ip-proto"),
    ("protocol", "ip-proto"),
    ("tcp-psh", "tcp-push"),
    ("psh", "tcp-push"),
    ("tcp-seq", "tcp-seq-num"),
    ("tcp-window", "tcp-win"),
    ("vlan", "vlan-id"),
    ("ethertype", "eth-type"),
];

const COMMAND_SYNONYMS: &[(&str, &str)] = &[
    ("delete", "del"),
    ("remove", "del"),
    ("rm", "del"),
    ("ls", "list"),
    ("clear", "flush"),
    ("insert", "add"),
];

const SHOW_SYNONYMS: &[(&str, &str)] =
    &[("drop", "errors"), ("drops", "errors"), ("counters", "errors"), ("interfaces", "ports")];

/// Groups of fields by the beginning of their names; a slip in the group finds the field in the first that has it.
const GROUPS: &[&str] = &["ip-", "tcp-", "udp-", "ip6-", "icmp-", "icmp6-", "tcp-opt-"];

/// Returns whether a word begins a constraint or a target, and so ends the one before it.
pub(crate) fn is_keyword(word: &str) -> bool {
    // No number and no address does.
    word.starts_with(|c: char| c.is_ascii_lowercase())
        && (word == "all" || FieldId::named(word).is_some() || target::named(word).is_some())
}

/// Returns whether a word behind a field is no value of it, since it begins a constraint or a target. Names of values come first: `http` is a
/// field, and a port behind `tcp-dport`.
pub(super) fn ends_value(info: &FieldInfo, word: &str) -> bool {
    is_keyword(word) && info.names.value(word).is_none()
}

/// The names of the fields as they are written.
pub(super) fn field_names() -> impl Iterator<Item = &'static str> {
    FIELDS.iter().filter(|info| info.place != FieldPlace::NamedOption).map(|info| info.name)
}

pub(super) fn command(word: &str) -> Option<&'static str> {
    among(COMMAND_SYNONYMS, word).or_else(|| nearest(word, COMMANDS.iter().map(|info| info.name)))
}

/// The subject of `show` that was meant, of these words.
pub(super) fn shown<'w, I: Iterator<Item = &'w str>>(word: &str, words: impl Fn() -> I) -> Option<&'w str> {
    let synonym = among(SHOW_SYNONYMS, word).and_then(|ours| words().find(|known| *known == ours));
    synonym.or_else(|| nearest(word, words()))
}

/// The field or target that was meant.
pub(super) fn keyword(word: &str) -> Option<&'static str> {
    in_lower_case(word)
        .or_else(|| synonym(word))
        .or_else(|| in_another_group(word))
        .or_else(|| nearest(word, field_names().chain(TARGETS.iter().map(|info| info.name)).chain(["all"])))
}

/// The field that was meant.
pub(super) fn field(word: &str) -> Option<&'static str> {
    synonym(word)
        .filter(|name| FieldId::named(name).is_some())
        .or_else(|| in_another_group(word))
        .or_else(|| nearest(word, field_names()))
}

/// The field, target or named value of `info` that was meant.
pub(super) fn value_or_keyword(info: &FieldInfo, word: &str) -> Option<&'static str> {
    nearest(word, info.names.list.iter().map(|(name, _)| *name)).or_else(|| keyword(word))
}

/// The field that two words name together: `tcp dport`.
pub(super) fn joined(word: &str, next: &str) -> Option<&'static str> {
    Some(FieldId::named(&format!("{word}-{next}").to_ascii_lowercase())?.info().name)
}

/// The field or target whose name was written with capitals.
fn in_lower_case(word: &str) -> Option<&'static str> {
    let lower = word.to_ascii_lowercase();
    let field = FieldId::named(&lower).map(|id| id.info().name);
    field.or_else(|| target::named(&lower).map(|target| target.name))
}

fn synonym(word: &str) -> Option<&'static str> {
    let target = TARGETS.iter().find(|target| target.synonyms.contains(&word));
    target.map(|target| target.name).or_else(|| among(SYNONYMS, word))
}

fn among(synonyms: &[(&str, &'static str)], word: &str) -> Option<&'static str> {
    synonyms.iter().find(|(theirs, _)| *theirs == word).map(|&(_, ours)| ours)
}

/// `tcp-saddr`: the field `saddr` of another group. `sport`: of any.
fn in_another_group(word: &str) -> Option<&'static str> {
    let tail = GROUPS.iter().rev().find_map(|group| word.strip_prefix(group)).unwrap_or(word);
    let id = GROUPS.iter().find_map(|group| FieldId::named(&format!("{group}{tail}")))?;
    Some(id.info().name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synonyms_are_no_words_of_the_language() {
        for (theirs, ours) in SYNONYMS {
            assert!(!is_keyword(theirs), "`{theirs}` is a word by now");
            let first = ours.split(' ').next().unwrap_or_default();
            assert!(is_keyword(first), "`{ours}` is none");
        }
    }
}
