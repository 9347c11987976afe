//! The section `mmb` of startup.conf.

#[path = "../src/config.rs"]
mod config;

use config::{ConfigError, PluginConfig, SocketConfig};
use std::path::PathBuf;

#[test]
fn an_absent_section_has_the_usual_socket_and_no_policy() {
    assert_eq!(PluginConfig::parse(""), Ok(PluginConfig { policy: None, socket: SocketConfig::Usual }));
}

#[test]
fn words_may_stand_in_any_order_and_on_any_line() {
    let expected = PluginConfig {
        policy: Some(PathBuf::from("/etc/p.mmb")),
        socket: SocketConfig::At(PathBuf::from("/run/s")),
    };
    assert_eq!(PluginConfig::parse("\n  socket /run/s\tpolicy /etc/p.mmb "), Ok(expected.clone()));
    assert_eq!(PluginConfig::parse("policy /etc/p.mmb socket /run/s"), Ok(expected));
    assert_eq!(PluginConfig::parse("no-socket").map(|config| config.socket), Ok(SocketConfig::Off));
}

#[test]
fn what_is_wrong_is_named() {
    let cases = [
        ("polcy /etc/p.mmb", ConfigError::Unknown("polcy".to_owned())),
        ("no-socket yes", ConfigError::Unknown("yes".to_owned())),
        ("no-socket policy", ConfigError::Missing("a file", "policy")),
        ("policy /a policy /b", ConfigError::Twice("policy")),
        ("policy /etc/p.mmb seed 1", ConfigError::Seed),
        ("socket /run/s no-socket", ConfigError::Twice("no-socket")),
    ];
    for (text, error) in cases {
        assert_eq!(PluginConfig::parse(text), Err(error), "{text}");
    }
}
