//! Rules that no packet in VPP can match, and settings that VPP decides about, are refused with the reason.

#[path = "../src/unsupported.rs"]
mod unsupported;

use mmb_language::parse_policy;
use mmb_policy::Policy;

fn policy(text: &str) -> Policy {
    parse_policy(text).expect("the policy is good").0
}

/// The word that a rule is refused for.
fn blamed(text: &str) -> Option<&'static str> {
    policy(text).rules.iter().find_map(|rule| unsupported::rule(&rule)).map(|(_, word)| word)
}

#[test]
fn rules_that_can_never_match_are_refused() {
    let refused = [
        ("add out host-wan drop", "out"),
        ("add out != host-wan tcp-dport 80 drop", "out"),
        ("add vlan-id 7 drop", "vlan-id"),
        ("add vlan-id udp-dport 53 drop", "vlan-id"),
        ("add all mod vlan-id 7", "vlan-id"),
        ("add eth-type arp drop", "eth-type"),
        ("add eth-type {arp, 0x88cc} drop", "eth-type"),
        ("add eth-type > 0x86dd drop", "eth-type"),
    ];
    for (text, word) in refused {
        assert_eq!(blamed(text), Some(word), "{text}");
    }
}

#[test]
fn rules_that_some_packet_matches_are_taken() {
    for text in [
        "add all drop",
        "add in host-lan tcp-dport 80 mod tcp-dport 8080",
        "add eth-type 0x0800 drop",
        "add eth-type {arp, 0x86dd} drop",
        "add eth-type != arp drop",
        "add eth-type < 0x86dd drop",
    ] {
        assert_eq!(blamed(text), None, "{text}");
    }
}

#[test]
fn settings_that_vpp_decides_about_are_refused_when_they_are_changed() {
    let default = policy("").settings;
    let spin = policy("set poll spin").settings;
    assert_eq!(unsupported::setting(&default, &spin).map(|(_, word)| word), Some("poll"));
    assert_eq!(unsupported::setting(&default, &policy("set conn max 7").settings), None);
    assert_eq!(unsupported::setting(&default, &policy("set poll adaptive").settings), None, "as it is");
}
