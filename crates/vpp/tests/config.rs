//! The section `mmb` of startup.conf.

#[path = "../src/config.rs"]
mod config;

use config::{Config, ConfigError, Socket};
use std::path::PathBuf;

#[test]
fn an_absent_section_has_the_usual_socket_and_no_policy() {
    assert_eq!(Config::parse(""), Ok(Config { policy: None, socket: Socket::Usual }));
}

#[test]
fn words_may_stand_in_any_order_and_on_any_line() {
    let expected =
        Config { policy: Some(PathBuf::from("/etc/p.mmb")), socket: Socket::At(PathBuf::from("/run/s")) };
    assert_eq!(Config::parse("\n  socket /run/s\tpolicy /etc/p.mmb "), Ok(expected.clone()));
    assert_eq!(Config::parse("policy /etc/p.mmb socket /run/s"), Ok(expected));
    assert_eq!(Config::parse("no-socket").map(|config| config.socket), Ok(Socket::Off));
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
        assert_eq!(Config::parse(text), Err(error), "{text}");
    }
}
