//! The states that words of `ct` stand for, and constraints on them.

use mmb_language::{Command, parse_command};
use mmb_policy::CtState;

fn states(constraints: &str) -> Vec<CtState> {
    let (command, _) = parse_command(&format!("add {constraints} drop")).expect("a rule");
    let Command::Add(rule) = command else { panic!("{command:?}") };
    CtState::ALL.into_iter().filter(|state| rule.ct_states().has(*state)).collect()
}

#[test]
fn words_mean_states() {
    use CtState::*;
    assert_eq!(states("ip-ttl 3"), CtState::ALL);
    assert_eq!(states("ct new"), [New]);
    assert_eq!(states("ct {established, related}"), [Established, EstablishedReply, Related, RelatedReply]);
    assert_eq!(states("ct established ct reply"), [EstablishedReply]);
    assert_eq!(states("ct established ! ct reply"), [Established]);
    assert_eq!(states("ct != invalid"), states("! ct invalid"));
    assert_eq!(states("ct != invalid").len(), 6);
    assert_eq!(states("! ct != invalid"), [Invalid]);
}

#[test]
fn what_no_packet_is_cannot_be_asked() {
    for line in
        ["add ct new ct reply drop", "add ct invalid ! ct invalid drop", "add-stateful ct established accept"]
    {
        let errors = parse_command(line).expect_err(line);
        assert!(errors[0].to_string().contains("can never match"), "{line}: {errors:?}");
    }
    for line in
        ["add ct drop", "add ct 1 drop", "add ct new-reply drop", "add ct > new drop", "add ct open drop"]
    {
        assert!(parse_command(line).is_err(), "{line}");
    }
    assert!(parse_command("add-stateful ct new tcp-dport 80 accept").is_ok());
}
