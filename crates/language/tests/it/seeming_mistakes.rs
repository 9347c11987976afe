//! Commands that only look wrong: they are taken, some with a note.

use mmb_language::{parse_command, parse_policy};

#[test]
fn what_might_match_is_taken() {
    for line in [
        // ICMP for IPv4 may travel in IPv6, and later fragments carry any protocol.
        "add net-proto ip6 ip-proto icmp drop",
        "add ip-frag-offset > 0 ip-proto tcp drop",
        "add ip-proto != tcp ip-frag-offset 5 drop",
        "add ip6-eh-esp ip-proto esp drop",
        "add ip-ttl >= 0 ip-ttl <= 255 drop",
        "add ip-saddr 0.0.0.0/0 drop",
        "add tcp-dport >= 80 tcp-dport <= 90 tcp-dport != 85 drop",
        "add tcp-flags syn tcp-syn ! tcp-ack drop",
        "add ip-ecn {1, 2} ! ip-ce drop",
        // Several options of one kind may be there.
        "add tcp-opt-mss 1 tcp-opt-mss 2 drop",
        "add ! tcp-opt tcp-opt 1 drop",
        "add ! tcp-opt-mss 1460 tcp-opt-mss drop",
        "add ! vlan-id 5 ! vlan-id 6 drop",
        "add eth-type != ip4 drop",
        "add ! ip6-eh drop",
        "add payload \"GET\" payload \"GET /\" drop",
        "add payload {\"GET\", \"POST\"} ! payload \"GET\" drop",
        "add in {lan, wan} in != lan drop",
        "add all mod tcp-dport 1 mod udp-dport 2 mod tcp-dport 3",
        "add ! tcp-opt-mss strip tcp-opt-mss",
        "add ! tcp-opt-mss add tcp-opt-mss 1400",
        "add eth-type arp mod vlan-id 5",
        "add ip6-next 44 tcp-dport 80 drop",
    ] {
        if let Err(errors) = parse_command(line) {
            panic!("{}", errors.iter().map(|error| error.render("", line)).collect::<String>());
        }
    }
}

/// In a shell, `add tcp-dport > 1023 drop` is `add tcp-dport drop`, and a file `1023`.
#[test]
fn a_bare_field_of_a_typed_rule_that_drops_is_noted() {
    let notes = |line: &str| {
        let (_, notes) = parse_command(line).expect("taken");
        notes.into_iter().map(|note| note.message).collect::<Vec<_>>()
    };
    let [note] = &notes("add tcp-dport drop")[..] else { panic!("one note") };
    assert_eq!(
        note,
        "`tcp-dport` alone matches every TCP packet: was a value meant? (quote `>` and `<` in a shell)"
    );
    for line in [
        "add tcp-dport 80 drop",
        "add tcp-dport accept",
        "add tcp-syn drop",
        "add payload drop",
        "add all drop",
    ] {
        assert!(notes(line).is_empty(), "{line}");
    }
    let (_, notes) = parse_policy("add tcp-dport drop").expect("taken");
    assert!(notes.is_empty(), "no shell reads a file");
}
