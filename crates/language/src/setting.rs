//! Settings as text: reading the value of a setting, and the words of their names.

use crate::phrase;
use crate::value;
use mmb_policy::setting_table::{SETTINGS, Setting, SettingInfo, Values, named};

/// The help of each first word with which several names begin.
static SUBJECTS: &[(&str, &str)] = &[
    ("conn", "limits of connections, and the way they begin"),
    ("timeout", "lifetimes of connections without packets"),
    ("nat", "translation of addresses and ports"),
    ("stream", "the bytes of connections: how many are followed, and the memory for them"),
    ("http", "messages of HTTP/1.x: heads, and messages that are not understood or not to be changed"),
    ("log", "how many packets rules with `log` report"),
];

/// Reads a value of a setting.
pub(crate) fn read(info: &'static SettingInfo, text: &str) -> Option<Setting> {
    let word = info.words().iter().position(|(word, _)| *word == text);
    match (word, info.values) {
        (Some(place), _) => info.set_to(place as u32),
        (None, Values::Words(_)) => None,
        // What stands for 0 is the word.
        (None, Values::WordOr(..)) => info.set_to(number(text).filter(|n| *n > 0)?),
        (None, Values::Number(..) | Values::Seconds(..) | Values::Milliseconds(..)) => {
            info.set_to(number(text)?)
        }
        (None, Values::Kibibytes(..) | Values::Mebibytes(..)) => info.set_to(number(text)?),
    }
}

fn number(text: &str) -> Option<u32> {
    u32::try_from(value::number(text).ok()?).ok()
}

/// The names, in the order of the table.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|info| info.name)
}

/// The words that may follow the beginning of a name, with their help.
pub(crate) fn next_words(begun: &str) -> impl Iterator<Item = (&'static str, &'static str)> {
    phrase::next_words(names(), begun).filter_map(|(next, name)| {
        let subject = SUBJECTS.iter().find(|(word, _)| *word == next && name != next);
        Some((next, subject.map_or(named(name)?.help, |(_, help)| help)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Command, Print, parse_command, parse_policy};
    use mmb_policy::Settings;
    use mmb_policy::settings::Timeouts;

    /// The least, the greatest and, of words, every value.
    fn values(info: &'static SettingInfo) -> Vec<Setting> {
        let text = match info.values {
            Values::Number(min, max)
            | Values::Seconds(min, max)
            | Values::Milliseconds(min, max)
            | Values::Kibibytes(min, max)
            | Values::Mebibytes(min, max) => {
                vec![min.to_string(), max.to_string()]
            }
            Values::Words(words) => words.iter().map(|(word, _)| (*word).to_owned()).collect(),
            Values::WordOr([(word, _)], max) => vec![(*word).to_owned(), 1.to_string(), max.to_string()],
        };
        text.iter().map(|text| read(info, text).expect("one of its values")).collect()
    }

    #[test]
    fn each_value_of_each_setting_is_set_printed_and_saved() {
        for info in SETTINGS {
            for setting in values(info) {
                let line = format!("set {setting}");
                let (command, _) = parse_command(&line).expect("parses");
                assert_eq!(command, Command::Set(setting));
                assert_eq!(command.to_string(), line);
                let (policy, _) = parse_policy(&line).expect("parses");
                assert!(policy.settings.all().any(|now| now == setting), "{line} is in force");
                let others = policy.settings.changed().filter(|now| now.info().name != info.name);
                assert_eq!(others.count(), 0, "{line} sets nothing else");
                let (saved, _) = parse_policy(&policy.text().to_string()).expect("parses");
                assert_eq!(saved.settings, policy.settings);
            }
        }
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for info in SETTINGS {
            assert_eq!(read(info, ""), None);
            assert_eq!(read(info, "4294967296"), None);
            if let Values::Number(min, max) | Values::Seconds(min, max) = info.values {
                assert_eq!(read(info, &(min - 1).to_string()), None);
                assert_eq!(read(info, &(max + 1).to_string()), None);
                assert_eq!(read(info, &format!("{max:#x}")), read(info, &max.to_string()));
            }
            if let Values::WordOr(_, max) = info.values {
                assert_eq!(read(info, "0"), None, "the word stands for it");
                assert_eq!(read(info, &(max + 1).to_string()), None);
            }
        }
    }

    #[test]
    fn the_default_is_a_value_and_nothing_is_changed_by_it() {
        let default = Settings::default();
        assert_eq!(default.changed().count(), 0);
        for setting in default.all() {
            assert_eq!(read(setting.info(), &setting.value()), Some(setting));
        }
        // What RFC 5382 REQ-5, RFC 4787 REQ-5 and RFC 5508 REQ-2 allow at least.
        let Timeouts { tcp_syn, tcp_established, tcp_fin, tcp_time_wait, udp, udp_unreplied, icmp, .. } =
            default.connections.timeouts;
        assert!(tcp_established >= 2 * 3600 + 4 * 60);
        assert!([tcp_syn, tcp_fin, tcp_time_wait].iter().all(|seconds| *seconds >= 4 * 60));
        assert!(udp >= 5 * 60 && udp_unreplied >= 2 * 60 && icmp >= 60);
    }

    #[test]
    fn each_first_word_of_several_names_has_its_help() {
        for (word, _) in phrase::next_words(names(), "") {
            let sharing = names().filter(|name| name.split(' ').next() == Some(word)).count();
            assert_eq!(SUBJECTS.iter().any(|(subject, _)| *subject == word), sharing > 1, "{word}");
        }
    }

    #[test]
    fn each_word_of_a_name_has_its_help() {
        let words: Vec<_> = next_words("").collect();
        assert!(words.contains(&("conn", "limits of connections, and the way they begin")), "{words:?}");
        for begun in words.iter().map(|(word, _)| *word).chain([""]) {
            assert!(next_words(begun).all(|(_, help)| !help.is_empty()), "{begun}");
        }
    }
}
