//! `?`: the words that may stand at a place of a command, with one line for each.

use crate::complete::{CT_HELP, attribute_help, fields_of, limit_keys, shows, target_fields};
use crate::element::{DURATION, ELEMENT};
use crate::filter::TERMS;
use crate::position;
use crate::position::Expect;
use crate::setting;
use crate::target;
use crate::target::limit;
use crate::value;
use crate::verb::COMMANDS;
use mmb_policy::field::{FieldInfo, ValueKind};
use mmb_policy::filter::STATES;
use mmb_policy::setting_table::Values;

/// A line of help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelpLine {
    /// The word, or a description of it in angle brackets.
    pub word: String,
    /// Its meaning.
    pub help: String,
}

/// The words that may stand at `cursor` (in bytes) of a command and begin with the part of the word that is before it. Empty if
/// nothing is known to fit.
pub fn help_at(line: &str, cursor: usize) -> Vec<HelpLine> {
    let position = position::at(line, cursor);
    let mut lines = Vec::new();
    for expect in &position.expects {
        possibilities(*expect, &mut |word, help| {
            // A description stands for words that cannot be listed.
            if word.starts_with(position.word) || word.starts_with('<') {
                lines.push(HelpLine { word: word.to_owned(), help: help.to_owned() });
            }
        });
    }
    let named = lines.iter().any(|line| !line.word.starts_with('<'));
    if named && !position.word.is_empty() {
        lines.retain(|line| !line.word.starts_with('<'));
    }
    lines
}

fn joined(word: &str, arguments: &str) -> String {
    if arguments.is_empty() { word.to_owned() } else { format!("{word} {arguments}") }
}

/// Calls `give` with each possibility and its help.
fn possibilities(expect: Expect, give: &mut dyn FnMut(&str, &str)) {
    match expect {
        Expect::Command => {
            COMMANDS.iter().for_each(|info| give(&joined(info.name, info.arguments), info.help))
        }
        Expect::RuleId => give("<ID>", "the number of a rule, as `list` shows it"),
        Expect::Word(word, help) => give(word, help),
        Expect::Number(help) => give("<N>", help),
        Expect::Show(begun) => shows(begun).for_each(|(word, help)| give(word, help)),
        Expect::Term => TERMS.iter().for_each(|info| give(info.name, info.help)),
        Expect::State => STATES.iter().for_each(|(name, help)| give(name, help)),
        Expect::Port => give("<PORT>", "the name of a port"),
        Expect::Setting(begun) => setting::next_words(begun).for_each(|(word, help)| give(word, help)),
        Expect::SettingValue(info) => {
            info.words().iter().for_each(|(word, help)| give(word, help));
            if !matches!(info.values, Values::Words(_)) {
                give("<VALUE>", &info.values.describe());
            }
        }
        Expect::List => give("<LIST>", "a word, by which rules name the list as @LIST"),
        Expect::Set => give("<NAME>", "a word, by which rules name the set as @NAME"),
        Expect::SetValue => {}
        Expect::Element => give("<ELEMENT>", ELEMENT),
        Expect::Duration => give("<TIME>", DURATION),
        Expect::File => give("<FILE>", "the name of a file"),
        Expect::Attribute(word) => give(word, attribute_help(word)),
        Expect::AttributeValue("name") => give("<WORD>", "a name of at most 64 bytes"),
        Expect::AttributeValue("reason") => give("<REASON>", attribute_help("reason")),
        Expect::AttributeValue(word) => give("<N>", attribute_help(word)),
        Expect::All => give("all", "every IP packet"),
        Expect::Bang(help) => give("!", help),
        Expect::Field(stateful) => fields_of(stateful).for_each(|info| give(info.name, info.help)),
        Expect::TargetField(target, stateful) => {
            target_fields(target, stateful).for_each(|info| give(info.name, info.help));
        }
        Expect::Cond(info) => conditions(info, give),
        Expect::OptionKind => give("<KIND>", "a number 0 to 255: the option of that kind"),
        Expect::Value(info) => {
            give("<VALUE>", &value::expectation(info));
            match info.values {
                ValueKind::State => CT_HELP.iter().for_each(|(name, help)| give(name, help)),
                ValueKind::Number
                | ValueKind::Ip4
                | ValueKind::Ip6
                | ValueKind::Port
                | ValueKind::OptionData(_)
                | ValueKind::Bytes
                | ValueKind::Pattern
                | ValueKind::ServerName
                | ValueKind::Method
                | ValueKind::Header
                | ValueKind::Nothing => {
                    info.names.list.iter().for_each(|(name, value)| give(name, &value.to_string()));
                }
            }
        }
        Expect::HeaderName => give("\"NAME\"", "the name of a header field, in either case of letters"),
        Expect::Written(false) => give("\"TEXT\"", "what is written, a text or |bytes|"),
        Expect::Written(true) => {
            give("\"TEXT\"", "what is written, a text or |bytes|; `\\m` is what it replaces")
        }
        Expect::Weight => give("<N>", "a weight, 0 to 100; 0: no new connections"),
        Expect::InSet => {
            give(",", "another member of the set");
            give("}", "the end of the set");
        }
        Expect::Target(stateful) => {
            target::allowed(stateful).for_each(|info| give(&joined(info.name, info.arguments), info.help))
        }
        Expect::SelectAll => give("all", "removes every option"),
        Expect::Text => give("\"TEXT\"", "a text of at most 256 bytes"),
        Expect::Percentage => give("<PERCENT>", "0 to 100 in steps of 0.001; without it every packet"),
        Expect::Rate => give("<RATE>", limit::RATE),
        Expect::Argument(form) => give("<N>", form),
        Expect::LimitKey => limit_keys().for_each(|(name, help)| give(name, help)),
        Expect::Server => give("<VALUE>", "an address or a port that `show servers` shows"),
        Expect::Choice(words) => words.iter().for_each(|(word, help)| give(word, help)),
        Expect::Code(words) => {
            words.iter().for_each(|(word, help)| give(word, help));
            give("<CODE>", "the number of a code");
        }
        Expect::End => give("<end>", "the command is complete"),
    }
}

fn conditions(info: &FieldInfo, give: &mut dyn FnMut(&str, &str)) {
    give("==", "is, or is one of; this is also meant where no condition stands");
    give("!=", "is not, or is none of");
    if !matches!(info.values, ValueKind::Port | ValueKind::Bytes | ValueKind::State) {
        give("<", "is below");
        give("<=", "is at most");
        give(">", "is above");
        give(">=", "is at least");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        help_at(line, line.len()).into_iter().map(|line| line.word).collect()
    }

    #[test]
    fn help_of_each_place() {
        assert_eq!(words("").len(), COMMANDS.len());
        assert_eq!(
            words("set "),
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
                "<NAME>"
            ]
        );
        assert_eq!(words("set net -= {"), ["<ELEMENT>"]);
        assert_eq!(words("set net {1 timeout "), ["<TIME>"]);
        assert_eq!(words("set net {1 timeout 1h "), ["timeout", ",", "}"]);
        assert_eq!(words("set net file "), ["<FILE>"]);
        assert_eq!(words("set net file x "), ["<end>"]);

        assert_eq!(words("set conn "), ["max", "pickup", "per-source", "invalid", "zone", "same-port"]);
        assert_eq!(words("set conn per-source "), ["off", "<VALUE>"]);
        assert_eq!(words("set timeout tcp-syn "), ["<VALUE>"]);
        assert_eq!(words("set ip6-max-headers "), ["<VALUE>"]);
        assert_eq!(words("del "), ["<ID>", "name", "set"]);
        assert_eq!(words("del name web "), ["--kill", "--keep", "<end>"]);
        assert_eq!(words("replace 3 all acc"), ["accept"]);
        assert!(words("replace 3 all accept ").contains(&"--kill".to_owned()));
        assert_eq!(words("del 3 "), ["--kill", "--keep", "<end>"]);
        assert_eq!(words("show connections ip-saddr "), ["<VALUE>"]);
        assert_eq!(words("rollback "), ["<N>", "--kill", "--keep", "<end>"]);
        assert_eq!(words("rollback 3 "), ["--kill", "--keep", "<end>"]);
        assert_eq!(words("rollback --kill "), ["<end>"]);
        assert_eq!(words("history "), ["<N>", "<end>"]);
        assert_eq!(words("diff 3 "), ["<N>", "<end>"]);
        assert_eq!(words("diff 3 4 "), ["<end>"]);
        assert_eq!(words("show connections rule 3 v"), ["verbose"]);
        assert_eq!(words("conn kill rule 3 ")[..2], ["net-proto", "ip-proto"]);
        assert_eq!(words("flush "), ["<end>"]);
        assert_eq!(words("add ip-ttl > "), ["<VALUE>"]);
        assert_eq!(words("add net-proto == "), ["<VALUE>", "ip4", "ip6", "ip"]);
        assert_eq!(words("add in "), ["<VALUE>", "==", "!="]);
        assert_eq!(words("add tcp-dport {80"), ["<VALUE>"]);
        assert_eq!(words("add tcp-dport {80 "), [",", "}"]);
        assert_eq!(
            words("add all drop "),
            [
                "<PERCENT>",
                "mod FIELD VALUE",
                "add FIELD [VALUE]",
                "strip [!] FIELD|all",
                "drop [PERCENT]",
                "reject [tcp-rst|icmp [CODE]|icmp6 [CODE]]",
                "limit RATE [burst N] [per FIELD[/PREFIX]]",
                "accept",
                "log [\"TEXT\"]",
                "<end>"
            ]
        );
        assert_eq!(words("add all limit "), ["<RATE>"]);
        assert_eq!(words("add all limit 10/s ")[..2], ["burst", "per"]);
        assert_eq!(words("add all limit 10/s burst "), ["<N>"]);
        assert_eq!(words("add all limit 10/s per ip-saddr ")[..2], ["burst", "per"]);
        assert_eq!(words("add prio "), ["<N>"]);
        assert_eq!(words("add-stateful stream "), ["<VALUE>"]);
        assert_eq!(words("add-stateful stream \"a\" alert ")[0], "\"TEXT\"");
        assert_eq!(words("add-stateful stream \"a\" mask stream ")[0], "\"TEXT\"");
        assert_eq!(words("add-stateful http mod http-header "), ["\"NAME\""]);
        assert_eq!(words("add-stateful http mod http-header \"a\" "), ["\"TEXT\""]);
        assert_eq!(words("add-stateful http-header "), ["\"NAME\""]);
        assert_eq!(words("add-stateful http-header \"a\" ")[0], "<VALUE>");
        assert_eq!(words("add-stateful http-status ")[..2], ["<VALUE>", "=="]);
        assert_eq!(words("set stream hold "), ["<VALUE>"]);
        assert_eq!(words("patterns "), ["<LIST>"]);
        assert_eq!(words("patterns a "), ["<FILE>"]);
        assert_eq!(words("patterns a b "), ["<end>"]);
        assert_eq!(words("add tcp-dp"), ["tcp-dport"]);
        assert_eq!(words("add all strip ")[..2], ["tcp-opt", "tcp-opt-mss"]);
        assert_eq!(words("nonsense "), [""; 0]);
    }

    #[test]
    fn every_word_has_a_line() {
        for place in [
            "",
            "add tcp-dport 80 ",
            "set ",
            "set timeout ",
            "set nat filtering ",
            "set poll ",
            "set offload ",
            "show ",
            "conn ",
            "conn kill ",
            "conn kill state ",
        ] {
            for line in help_at(place, place.len()) {
                assert!(!line.help.is_empty(), "{line:?}");
            }
        }
    }
}
