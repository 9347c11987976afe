//! The table of settings: what `set NAME VALUE` takes.
//!
//! The parser, completion, help, `save` and the reference are made from [`SETTINGS`].

use crate::command::Setting;
use crate::policy::{Poll, Settings};

/// One setting.
#[derive(Debug)]
pub struct SettingInfo {
    /// Its name.
    pub name: &'static str,
    /// Its values in words.
    pub values: &'static str,
    /// The values that are words.
    pub words: &'static [&'static str],
    /// One line of help.
    pub help: &'static str,
    /// Reads a value.
    pub(crate) read: fn(&str) -> Option<Setting>,
    /// What is in force.
    pub(crate) current: fn(&Settings) -> Setting,
}

/// Every setting.
pub static SETTINGS: &[SettingInfo] = &[
    SettingInfo {
        name: "ip6-max-headers",
        values: "1 to 64",
        words: &[],
        help: "the most IPv6 extension headers walked in one packet; a longer chain is dropped (ip6-chain-too-long)",
        read: |text| match text.parse() {
            Ok(n @ 1..=64) => Some(Setting::Ip6MaxHeaders(n)),
            _ => None,
        },
        current: |settings| Setting::Ip6MaxHeaders(settings.ip6_max_headers),
    },
    SettingInfo {
        name: "poll",
        values: "adaptive or spin",
        words: &["adaptive", "spin"],
        help: "how a worker with nothing to do waits: adaptive sleeps for longer and longer, spin never sleeps",
        read: |text| match text {
            "adaptive" => Some(Setting::Poll(Poll::Adaptive)),
            "spin" => Some(Setting::Poll(Poll::Spin)),
            _ => None,
        },
        current: |settings| Setting::Poll(settings.poll),
    },
];

/// The setting of that name.
pub fn named(name: &str) -> Option<&'static SettingInfo> {
    SETTINGS.iter().find(|info| info.name == name)
}

impl std::fmt::Display for Setting {
    /// As `set` takes it: `poll spin`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Setting::Ip6MaxHeaders(n) => write!(f, "ip6-max-headers {n}"),
            Setting::Poll(Poll::Adaptive) => f.write_str("poll adaptive"),
            Setting::Poll(Poll::Spin) => f.write_str("poll spin"),
        }
    }
}

impl Settings {
    /// The settings in force, in the order of the table.
    pub fn all(&self) -> impl Iterator<Item = Setting> + '_ {
        SETTINGS.iter().map(|info| (info.current)(self))
    }

    /// Those that differ from the defaults.
    pub fn changed(&self) -> impl Iterator<Item = Setting> + '_ {
        let default = Settings::default();
        self.all().filter(move |setting| {
            let mut with = default.clone();
            setting.apply(&mut with);
            with != default
        })
    }
}
