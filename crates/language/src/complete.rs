//! Completion: the words that may stand at a place of an unfinished command.

use crate::filter::TERMS;
use crate::parser::look::option_help;
use crate::phrase;
use crate::position;
use crate::position::Expect;
use crate::setting;
use crate::target::{self, TargetInfo};
use crate::verb::{COMMANDS, SHOWS};
use mmb_policy::LimitKey;
use mmb_policy::field::{FIELDS, FieldId, FieldInfo, FieldPlace, ValueKind};
use mmb_policy::filter::STATES;

/// The states of `ct`, with their help.
pub(crate) const CT_HELP: [(&str, &str); 5] = [
    (
        "new",
        "of no connection, and may begin one; or from the initiator of a connection that has no answer yet",
    ),
    ("established", "of a connection of which both ends have sent packets"),
    ("related", "an ICMP error about a connection"),
    ("reply", "goes to the initiator of the connection"),
    ("invalid", "not allowed by the state of its connection, or of no connection and cannot begin one"),
];

/// The names that only a running mmb knows.
#[derive(Clone, Debug, Default)]
pub struct CompletionContext {
    /// Numbers of the rules in force.
    pub ids: Vec<u32>,
    /// Names of the ports.
    pub ports: Vec<String>,
    /// Names of the lists of patterns.
    pub lists: Vec<String>,
    /// Names of the sets.
    pub sets: Vec<String>,
}

/// A word that may stand at the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The first byte of the word that it replaces; that word ends at the cursor.
    pub start: usize,
    /// The word.
    pub text: String,
    /// Its line of help.
    pub help: String,
    /// Its kind.
    pub kind: CompletionKind,
}

/// The kind of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompletionKind {
    /// A word of the language, a number, a name.
    Word,
    /// A file name, of which the text is the typed part: the caller completes it.
    File,
}

/// The words that may stand at `cursor` (in bytes) of an unfinished command and begin with what is there of the word
/// under it; sorted as the tables are.
pub fn complete(line: &str, cursor: usize, context: &CompletionContext) -> Vec<Completion> {
    let position = position::at(line, cursor);
    let mut candidates = Vec::new();
    for expect in &position.expects {
        if let Expect::File = expect {
            candidates.push(Completion {
                start: position.start,
                text: position.word.to_owned(),
                help: "a file".to_owned(),
                kind: CompletionKind::File,
            });
            continue;
        }
        words(*expect, context, &mut |text, help| {
            if text.starts_with(position.word) {
                candidates.push(Completion {
                    start: position.start,
                    text: text.to_owned(),
                    help: help.to_owned(),
                    kind: CompletionKind::Word,
                });
            }
        });
    }
    candidates
}

/// The fields that may stand in a constraint.
pub(crate) fn fields() -> impl Iterator<Item = &'static FieldInfo> {
    FIELDS.iter().filter(|info| info.place != FieldPlace::NamedOption)
}

/// The fields that may stand in a constraint of a stateful rule, or of another.
pub(crate) fn fields_of(stateful: bool) -> impl Iterator<Item = &'static FieldInfo> {
    fields().filter(move |info| stateful || !matches!(info.place, FieldPlace::Stream(_)))
}

/// The fields that a target of a stateful rule, or of another, takes; `tcp-opt` stands for the options that are named by their kind.
pub(crate) fn target_fields(target: &TargetInfo, stateful: bool) -> impl Iterator<Item = &'static FieldInfo> {
    fields_of(stateful).filter(|info| {
        let of_any = info.place == FieldPlace::AnyOption;
        (target.takes)(if of_any { FieldId::TcpOptKind.info() } else { info })
    })
}

/// The fields that limits may have a key of, with their help.
pub(crate) fn limit_keys() -> impl Iterator<Item = (&'static str, &'static str)> {
    LimitKey::FIELDS.into_iter().map(|field| (field.info().name, field.info().help))
}

/// Calls `give` with each word that is expected, and its help.
fn words(expect: Expect, context: &CompletionContext, give: &mut dyn FnMut(&str, &str)) {
    match expect {
        Expect::Command => COMMANDS.iter().for_each(|info| give(info.name, info.help)),
        Expect::RuleId => context.ids.iter().for_each(|id| give(&id.to_string(), "a rule")),
        Expect::Word(word, help) => give(word, help),
        Expect::Show(begun) => shows(begun).for_each(|(word, help)| give(word, help)),
        Expect::Term => TERMS.iter().for_each(|info| give(info.name, info.help)),
        Expect::State => STATES.iter().for_each(|(name, help)| give(name, help)),
        Expect::Port => context.ports.iter().for_each(|port| give(port, "a port")),
        Expect::Setting(begun) => setting::next_words(begun).for_each(|(word, help)| give(word, help)),
        Expect::SettingValue(info) => info.words().iter().for_each(|(word, help)| give(word, help)),
        Expect::Attribute(word) => give(word, attribute_help(word)),
        Expect::All => give("all", "every IP packet"),
        Expect::Field(stateful) => fields_of(stateful).for_each(|info| give(info.name, info.help)),
        Expect::TargetField(target, stateful) => {
            target_fields(target, stateful).for_each(|info| give(info.name, info.help));
        }
        Expect::Value(info) if info.values == ValueKind::Port => {
            context.ports.iter().for_each(|port| give(port, "a port"));
        }
        Expect::Value(info) if info.values == ValueKind::State => {
            CT_HELP.iter().for_each(|(name, help)| give(name, help));
        }
        Expect::Value(info) if info.values.has_patterns() => {
            context.lists.iter().for_each(|list| give(&format!("@{list}"), "a list of patterns"));
        }
        Expect::List => context.lists.iter().for_each(|list| give(list, "a list of patterns")),
        Expect::SetValue => context.sets.iter().for_each(|set| give(&format!("@{set}"), "a named set")),
        Expect::Set => context.sets.iter().for_each(|set| give(set, "a named set")),
        Expect::Value(info) => {
            info.names.list.iter().for_each(|(name, value)| give(name, &value.to_string()));
        }
        Expect::Target(stateful) => {
            target::allowed(stateful).for_each(|info| give(info.name, info.help));
        }
        Expect::SelectAll => give("all", "removes every option"),
        Expect::Choice(words) | Expect::Code(words) => words.iter().for_each(|(word, help)| give(word, help)),
        Expect::LimitKey => limit_keys().for_each(|(name, help)| give(name, help)),
        Expect::File
        | Expect::Number(_)
        | Expect::Element
        | Expect::Duration
        | Expect::AttributeValue(_)
        | Expect::Bang(_)
        | Expect::Cond(_)
        | Expect::OptionKind
        | Expect::HeaderName
        | Expect::Written(_)
        | Expect::InSet
        | Expect::Weight
        | Expect::Percentage
        | Expect::Rate
        | Expect::Argument(_)
        | Expect::Text
        | Expect::Server
        | Expect::End => {}
    }
}

/// The words that may follow the beginning of what `show` shows, with their help.
pub(crate) fn shows(begun: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let names = SHOWS.iter().map(|(name, ..)| *name);
    phrase::next_words(names, begun).filter_map(|(next, name)| {
        let (_, _, help) = SHOWS.iter().find(|(known, ..)| *known == name)?;
        Some((next, *help))
    })
}

pub(crate) fn attribute_help(word: &str) -> &'static str {
    match word {
        "id" => "the rule's number, 1 to 4294967295; without it the next one",
        "prio" => "the rule's priority, 0 (best) to 4294967295; without it 100",
        "count" | "snaplen" | "reason" => option_help(word),
        "draining" => "matches no packets: only the connections that the rule has made keep it",
        _ => "a name for people",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        let context = CompletionContext {
            ids: vec![3, 34],
            ports: vec!["lan".into(), "wan".into()],
            lists: vec!["bad".into()],
            sets: vec!["net".into()],
        };
        complete(line, line.len(), &context).into_iter().map(|c| c.text).collect()
    }

    #[test]
    fn lists_of_patterns_are_known() {
        assert_eq!(texts("add-stateful tcp-dport 80 stream-forward @"), ["@bad"]);
        assert_eq!(texts("patterns "), ["bad"]);
    }

    #[test]
    fn values_are_told_with_what_they_stand_for() {
        let help = |line: &str, text: &str| {
            let found = complete(line, line.len(), &CompletionContext::default());
            found.into_iter().find(|candidate| candidate.text == text).map(|candidate| candidate.help)
        };
        assert_eq!(help("add ip-proto ", "udp").as_deref(), Some("17"));
        assert_eq!(help("add ct ", "reply").as_deref(), Some(CT_HELP[3].1));
    }

    #[test]
    fn words_of_each_place() {
        assert_eq!(texts("ad"), ["add", "add-stateless", "add-stateful"]);
        assert_eq!(texts("mmb fl"), ["flush"]);
        assert_eq!(texts("del 3"), ["3", "34"]);
        assert_eq!(texts("disable "), ["lan", "wan"]);
        assert_eq!(texts("show ru"), ["runtime"]);
        assert_eq!(texts("show o"), ["offload"]);
        assert_eq!(texts("show offload "), [""; 0]);
        assert_eq!(texts("show con"), ["connections", "conn"]);
        assert_eq!(texts("show conn "), ["summary"]);
        assert_eq!(texts("show conn summary "), [""; 0]);
        assert_eq!(texts("show connections s"), ["sport", "state"]);
        assert_eq!(texts("show streams su"), ["summary"]);
        assert_eq!(texts("show streams summary "), [""; 0]);
        assert!(!texts("show streams state established ").contains(&"summary".to_owned()));
        assert_eq!(texts("show connections ip-proto udp v"), ["verbose"]);
        assert_eq!(texts("show connections verbose "), [""; 0]);
        assert_eq!(texts("show connections state tcp-dport 80 state fin"), ["fin-wait"]);
        assert_eq!(texts("show connections ip-proto ud"), ["udp", "udplite"]);
        assert_eq!(texts("conn "), ["kill"]);
        assert_eq!(texts("server "), ["up", "drain", "down", "healthy", "failed"]);
        assert_eq!(texts("server down "), [""; 0]);
        assert_eq!(texts("server down 10.0.0.1 "), ["in", "because", "--kill"]);
        assert_eq!(texts("server down 10.0.0.1 in "), ["3", "34"]);
        assert_eq!(texts("server down 10.0.0.1 in 3 "), ["because", "--kill"]);
        assert_eq!(texts("server down 10.0.0.1 because \"it burns\" "), ["--kill"]);
        assert_eq!(texts("show se"), ["sets", "settings", "servers", "set"]);
        assert_eq!(texts("show servers "), ["--terse"]);
        assert_eq!(texts("show servers --terse "), [""; 0]);
        assert_eq!(texts("clear "), ["counters"]);
        assert_eq!(texts("clear counters "), [""; 0]);
        assert_eq!(texts("conn kill a"), ["all"]);
        assert_eq!(texts("conn kill all "), [""; 0]);
        assert_eq!(texts("conn kill rule 3 a"), [""; 0]);
        assert_eq!(texts("conn kill rule "), ["3", "34"]);
        assert_eq!(texts("del 3 "), ["--kill", "--keep"]);
        assert_eq!(texts("mon"), ["monitor"]);
        assert_eq!(texts("trace tcp-dport 80 c"), ["ct", "count"]);
        assert_eq!(texts("trace in "), ["lan", "wan"]);
        assert_eq!(texts("trace all count "), [""; 0]);
        assert_eq!(texts("capture tcp-syn at "), ["rx", "tx", "drop"]);
        assert_eq!(texts("capture at rx sn"), ["snaplen"]);
        assert_eq!(
            texts("set "),
            [
                "ip6-max-headers",
                "poll",
                "offload",
                "flow-cache",
                "answer",
                "mtu-errors",
                "conn",
                "timeout",
                "nat",
                "stream",
                "http",
                "log",
                "limit",
                "net"
            ]
        );
        assert_eq!(texts("set net "), ["{", "file", "+=", "-="]);
        assert_eq!(texts("set net += "), ["{", "file"]);
        assert_eq!(texts("set net {10.0.0.1 t"), ["timeout"]);
        assert_eq!(texts("set net {10.0.0.1} "), [""; 0]);
        assert_eq!(texts("del set "), ["net"]);
        assert_eq!(texts("del set net "), [""; 0]);
        assert_eq!(texts("show set "), ["net"]);
        assert_eq!(texts("show se"), ["sets", "settings", "servers", "set"]);
        assert_eq!(texts("add ip-saddr ")[..1], ["@net"]);
        assert!(!texts("add ip-ttl 3 mod ip-saddr ").contains(&"@net".to_owned()));
        assert_eq!(texts("add ip-saddr != @"), ["@net"]);
        assert_eq!(texts("add tcp-opt-mss @"), [""; 0]);

        assert_eq!(texts("set poll "), ["adaptive", "spin"]);
        assert_eq!(texts("set poll spin "), [""; 0]);
        assert_eq!(texts("set offload "), ["auto", "off"]);
        assert_eq!(texts("set conn "), ["max", "pickup", "per-source", "invalid", "zone", "same-port"]);
        assert_eq!(texts("set nat ports-per-host "), ["share"]);
        assert_eq!(texts("set conn pickup s"), ["strict"]);
        assert_eq!(texts("set conn max "), [""; 0]);
        assert_eq!(texts("set timeout ud"), ["udp", "udp-unreplied"]);
        assert_eq!(texts("set timeout nonsense "), [""; 0]);
        assert_eq!(texts("set nat "), ["filtering", "ports-per-host", "parity", "contiguity"]);
        assert_eq!(texts("set nat filtering e"), ["endpoint-independent"]);
        assert_eq!(texts("list "), ["--terse"]);
        assert_eq!(texts("add tcp-dp"), ["tcp-dport"]);
        assert_eq!(texts("add in "), ["lan", "wan"]);
        assert_eq!(texts("add out {lan, w"), ["wan"]);
        assert_eq!(
            texts("add ip-proto ud"),
            ["udp", "udplite", "udp-sport", "udp-dport", "udp-len", "udp-checksum", "udp-payload"]
        );
        assert_eq!(texts("add ip-proto == ud"), ["udp", "udplite"]);
        assert_eq!(texts("add ip-proto!=ud"), ["udp", "udplite"]);
        assert_eq!(
            texts("add tcp-dport 80 "),
            fields_of(false)
                .map(|f| f.name)
                .chain(["mod", "add", "strip", "drop", "reject", "limit", "accept", "log"])
                .collect::<Vec<_>>()
        );
        assert_eq!(texts("add-stateful tcp-dport 80 sh"), ["shuffle"]);
        assert_eq!(texts("add-stateful str"), ["stream", "stream-forward", "stream-reply"]);
        assert_eq!(texts("add-stateful stream /ab/i al"), ["alert"]);
        assert_eq!(texts("add-stateful stream /ab/i cl"), ["close"]);
        assert_eq!(texts("add-stateful tcp-dport 21 helper "), ["ftp"]);
        assert_eq!(texts("add-stateful stream {\"a\", @b} alert \"c\" d"), ["drop", "digest"]);
        assert_eq!(texts("add-stateful stream /a"), [""; 0]);
        assert_eq!(texts("pat"), ["patterns"]);
        assert_eq!(texts("patterns "), ["bad"]);
        assert_eq!(texts("set stream u"), ["unfit", "urgent"]);
        assert_eq!(texts("set stream hold"), ["hold", "hold-over"]);
        assert_eq!(texts("set stream hold-over "), ["pass", "close"]);
        assert_eq!(texts("set http "), ["head", "unfit", "encodings", "no-transform"]);
        assert_eq!(
            texts("add all reject "),
            ["tcp-rst", "icmp", "icmp6", "mod", "add", "strip", "drop", "reject", "limit", "accept", "log"]
        );
        assert_eq!(texts("add all limit "), [""; 0]);
        assert_eq!(texts("add all limit 10/s b"), ["burst"]);
        assert_eq!(texts("add all limit 10/s burst 5 pe"), ["per"]);
        assert_eq!(texts("add all limit 10/s per "), ["ip-saddr", "ip-daddr", "ip6-saddr", "ip6-daddr"]);
        assert_eq!(texts("add all limit 10/s per ip-saddr/24 a"), ["add", "accept"]);
        assert_eq!(texts("add all reject icmp ad"), ["admin-prohibited", "add"]);
        assert_eq!(texts("add all reject icmp6 no"), ["no-route"]);
        assert_eq!(texts("add all reject tcp-rst po"), [""; 0]);
        assert_eq!(texts("add tcp-dport 80 sh"), [""; 0]);
        assert_eq!(texts("add-stateful all shuffle tcp-d"), ["tcp-dport"]);
        assert_eq!(texts("add-stateful all lb ip-daddr {10.0.0.1} h"), ["hash", "helper"]);
        assert_eq!(texts("add-stateful all lb ip-daddr {10.0.0.1 w"), ["weight"]);
        assert_eq!(texts("add-stateful all map ip-daddr {10.0.0.1 w"), [""; 0]);
        assert_eq!(texts("add-stateful all lb ip-daddr {10.0.0.1 weight 2, 10.0.0.2} h"), ["hash", "helper"]);
        assert_eq!(texts("add all strip tcp-opt-m"), ["tcp-opt-mss", "tcp-opt-mptcp"]);
        assert_eq!(texts("add all strip al"), ["all"]);
        assert_eq!(texts("add all strip ! tcp-opt-sackp"), ["tcp-opt-sackp"]);
        assert_eq!(texts("add all mod eth"), [""; 0]);
        assert_eq!(texts("add all mod str"), [""; 0]);
        assert_eq!(texts("add id 5 na"), ["name"]);
        assert_eq!(texts("add-stateful id 5 dra"), ["draining"]);
        assert_eq!(texts("add id 5 dra"), [""; 0]);
        assert_eq!(texts("add payload \"tcp"), [""; 0]);
        assert_eq!(texts("flush "), [""; 0]);
    }

    #[test]
    fn words_of_edits() {
        let streams = ["stream", "stream-forward", "stream-reply"];
        assert_eq!(texts("add-stateful stream \"a\" ma"), ["map", "mask"]);
        assert_eq!(texts("add-stateful stream \"a\" mask "), [&streams[..], &["http-body"]].concat());
        assert_eq!(texts("add-stateful stream \"a\" mask stream al"), ["alert"]);
        assert_eq!(texts("add-stateful stream \"a\" mask stream \"b\" al"), ["alert"]);
        assert_eq!(texts("add-stateful stream \"a\" mod stream-"), ["stream-forward", "stream-reply"]);
        assert_eq!(texts("add-stateful stream \"a\" mod stream "), [""; 0]);
        assert_eq!(texts("add-stateful stream \"a\" mod stream \"b\\m\" al"), ["alert"]);
        assert_eq!(texts("add-stateful stream \"a\" strip str"), streams);
        assert_eq!(texts("add-stateful http mod h"), ["http-host", "http-uri", "http-header", "http-body"]);
        assert_eq!(texts("add-stateful http add h"), ["http-header", "http-body"]);
        assert_eq!(texts("add-stateful http add http-body "), [""; 0]);
        assert_eq!(texts("add-stateful http strip ! http-h"), ["http-header"]);
        for value in ["", "\"Server\"", "Server"] {
            // A name, or a value: neither is known.
            let line = format!("add-stateful http mod http-header {value} ");
            assert_eq!(texts(&line), [""; 0], "{line}");
        }
        assert_eq!(texts("add-stateful http mod http-header \"Server\" \"mmb\" dig"), ["digest"]);
        assert_eq!(texts("add-stateful http strip http-header Server dig"), ["digest"]);
        assert_eq!(texts("add-stateful http-header "), [""; 0]);
        assert_eq!(texts("add-stateful http-header accept "), texts("add-stateful http-header \"a\" "));
        assert_eq!(texts("add-stateful http-header Server @"), ["@bad"]);
        assert_eq!(texts("add-stateful http-header Server /a/ {\"a\", @"), [""; 0]);
        assert_eq!(texts("add-stateful http-header Server {\"a\", @"), ["@bad"]);
        assert_eq!(texts("add-stateful http-header \"Server\" clo"), ["close"]);
        // A value behind a field of ports, else a field.
        assert_eq!(texts("add-stateful tcp-dport http http http-st"), ["http-status"]);
        assert_eq!(texts("add-stateful tcp-dport http clo"), ["close"]);
        assert_eq!(texts("add-stateful tcp-dport {http, https} http-m"), ["http-method"]);
        assert_eq!(texts("add all mod tcp-dport http dr"), ["drop"]);
    }

    #[test]
    fn files_are_left_to_the_shell() {
        let candidates = complete("apply poli", 10, &CompletionContext::default());
        assert_eq!(candidates.len(), 1);
        assert_eq!((candidates[0].kind, candidates[0].start), (CompletionKind::File, 6));
    }

    #[test]
    fn the_cursor_may_stand_anywhere() {
        let line = "add tcp-dport 80 drop\nadd ü ip-s";
        for cursor in 0..=line.len() + 2 {
            complete(line, cursor, &CompletionContext::default());
        }
        assert_eq!(complete("add tcp-dpxyz", 9, &CompletionContext::default())[0].text, "tcp-dport");
    }
}
