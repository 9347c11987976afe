//! Wrong rules and what is said about each, and words that begin no command.

use crate::messages::assert_words;

/// Wrong commands and everything that is said about them: column and message.
const TABLE: &[(&str, &[&str])] = &[
    (
        "fush",
        &[
            "1: unknown command `fush`; expected `add`, `add-stateless`, `add-stateful`, `replace`, `del`, `flush`, `list`, \
        `show`, `enable`, `disable`, `set`, `patterns`, `confirm`, `rollback`, `history`, `diff`, `conn`, `server`, `monitor`, `trace`, `capture` or `clear`; did you mean `flush`?",
        ],
    ),
    ("", &["1: nothing to do; expected a command"]),
    ("flush\nflush", &["1: one command at a time; expected the end of the text"]),
    ("apply file", &["1: `apply` is no command of a policy: give it to the shell or to mmb"]),
    // Words.
    (
        "add tcp-saddr 10.0.0.1 drop",
        &["5: unknown word `tcp-saddr`; expected a field, `!` or a target; did you mean `ip-saddr`?"],
    ),
    (
        "add ip-sport 80 drop",
        &["5: unknown word `ip-sport`; expected a field, `!` or a target; did you mean `tcp-sport`?"],
    ),
    (
        "add TCP-DPORT 80 drop",
        &["5: unknown word `TCP-DPORT`; expected a field, `!` or a target; did you mean `tcp-dport`?"],
    ),
    ("add all DROP", &["9: unknown word `DROP`; expected a field, `!` or a target; did you mean `drop`?"]),
    (
        "add tcp dport 80 drop",
        &["5: unknown word `tcp`; expected a field, `!` or a target; did you mean `tcp-dport`?"],
    ),
    (
        "add ip saddr 10.0.0.1 drop",
        &["5: unknown word `ip`; expected a field, `!` or a target; did you mean `ip-saddr`?"],
    ),
    (
        "add udp drop",
        &["5: unknown word `udp`; expected a field, `!` or a target; did you mean `ip-proto udp`?"],
    ),
    (
        "add tcp-dport 80,443 drop",
        &["17: this has no place here; expected several values in braces, as in `{80, 443}`"],
    ),
    (
        "add tcp-dport 80:443 drop",
        &[
            "15: `80:443` is no value of `tcp-dport`; expected a number 0 to 65535 or a name such as `ftp-data` or \
        `wireguard`; did you mean `80-443`?",
        ],
    ),
    ("add prio high all drop", &["10: `high` is no priority; expected a number 0 (best) to 4294967295"]),
    ("add prio all drop", &["10: a priority is missing; expected a number 0 (best) to 4294967295"]),
    (
        "add sport 80 drop",
        &["5: unknown word `sport`; expected a field, `!` or a target; did you mean `tcp-sport`?"],
    ),
    (
        "add all rewrite ip-ttl 5",
        &["9: unknown word `rewrite`; expected a field, `!` or a target; did you mean `mod`?"],
    ),
    (
        "add ip-proto tpc drop",
        &["14: unknown word `tpc`; expected a number 0 to 255 or a name such as `icmp` or `udplite`, \
        a field, `!` or a target; did you mean `tcp`?"],
    ),
    (
        "add payload GET drop",
        &["13: unknown word `GET`; expected a \"text\" or |bytes|, a field, `!` or a target; \
        did you mean `\"GET\"`?"],
    ),
    // Values.
    (
        "add tcp-dport == drop",
        &["18: a value of `tcp-dport` is missing; expected a number 0 to 65535 or a name such as \
        `ftp-data` or `wireguard`"],
    ),
    (
        "add tcp-dport = 80 drop",
        &["15: `=` is no condition; expected `==`, `!=`, `<`, `<=`, `>` or `>=`; did you mean `==`?"],
    ),
    ("add tcp-dport {80 443} drop", &["19: the set goes on or ends here; expected `,` or `}`"]),
    ("add tcp-dport > 80-90 drop", &["15: sets, ranges and prefixes are compared only with `==` and `!=`"]),
    (
        "add tcp-dport 90-80 drop",
        &["15: the range `90-80` ends before it begins; expected the smaller value first"],
    ),
    (
        "add ip-saddr ::1 drop",
        &["14: `::1` is an IPv6 address, `ip-saddr` is about IPv4; expected an IPv4 address, prefix or \
        range; did you mean `ip6-saddr`?"],
    ),
    (
        "add ip-dscp 64 drop",
        &["13: `64` is too large: `ip-dscp` has 6 bits; expected a number 0 to 63 or a name such as \
        `cs0` or `cs7`"],
    ),
    ("add tcp-opt 256 drop", &["13: option kinds are 0 to 255; expected a number 0 to 255"]),
    (
        "add tcp-opt == 22 drop",
        &["16: `tcp-opt` takes no value: it is there or not; expected the option's kind right behind \
        `tcp-opt`, as in `tcp-opt 22`"],
    ),
    (
        "add tcp-opt 1 5 drop",
        &["15: `tcp-opt 1` is padding of one byte and has no data; expected `tcp-opt 1` without a value"],
    ),
    (
        "add payload > \"a\" drop",
        &["13: payloads and bytes of options are compared only with `==` and `!=`; expected `==` \
        or `!=`"],
    ),
    (
        "add payload \"\" drop",
        &["13: nothing to compare with: every payload begins with no bytes; expected at least one byte, \
        or `payload` alone for any payload"],
    ),
    ("add payload \"a drop", &["13: this text has no end; expected a closing `\"`"]),
    (
        "add payload |dea| drop",
        &["14: `dea` is not a row of bytes; expected pairs of hexadecimal digits, as in |de ad be ef|"],
    ),
    ("add all drop 1.2345", &["14: `1.2345` is no percentage; expected 0 to 100 in steps of 0.001"]),
    // The shape of rules.
    (
        "add",
        &[
            "4: a rule needs a constraint; expected `all`, a field or `!`",
            "4: a rule needs a target; expected `mod`, `add`, `strip`, `drop`, `reject`, `limit`, `accept` or `log`",
        ],
    ),
    (
        "add drop tcp-dport 80",
        &["10: constraints stand before the targets; expected a target or the end of the command"],
    ),
    (
        "add all tcp-syn drop",
        &["5: `all` stands alone: it is every IP packet; expected either `all` or other constraints"],
    ),
    ("add id 1 id 2 all drop", &["10: `id` is given twice"]),
    ("add all id 5 drop", &["9: `id` stands before the constraints"]),
    (
        "add-stateful all lb ip-daddr {10.0.0.1 weight, 10.0.0.2}",
        &["46: a weight is missing; expected a number 0 (no new connections) to 100"],
    ),
    (
        "add-stateful all lb ip-daddr {10.0.0.1 weight 101, 10.0.0.2}",
        &["47: `101` is no weight; expected a number 0 (no new connections) to 100"],
    ),
    (
        "add-stateful all lb ip-daddr {10.0.0.1 weight 0, 10.0.0.2 weight 0}",
        &["30: no value takes connections: every weight is 0"],
    ),
    (
        "add-stateful all lb ip-daddr {10.0.0.1 weight 2, 10.0.0.0/30}",
        &["30: a value is given twice, with different weights"],
    ),
    (
        "add-stateful all lb ip-daddr {10.0.0.0/22 weight 2}",
        &["30: a list with weights has at most 1000 values"],
    ),
    (
        "add-stateful all map ip-daddr {10.0.0.1 weight 2, 10.0.0.2}",
        &["41: the set goes on or ends here; expected `,` or `}`"],
    ),
    ("add-stateful all draining accept", &["18: `draining` stands before the constraints"]),
    ("add-stateful draining draining all accept", &["23: `draining` is given twice"]),
    (
        "add draining all drop",
        &["5: `draining` is about a rule that follows connections: write `add-stateful` instead of `add`"],
    ),
    ("add ! drop", &["7: `drop` is a target, not a field; expected a field"]),
    (
        "add ! tcp-dport drop",
        &["5: `! tcp-dport` can never match: every TCP packet has `tcp-dport`, and naming it asks for \
        one; expected a value behind `tcp-dport`"],
    ),
    // Targets.
    ("add all reject drop", &["16: a rule drops or rejects, not both"]),
    ("add all drop reject", &["14: a rule drops or rejects, not both"]),
    ("add all reject accept", &["16: a rule rejects or accepts, not both"]),
    ("add all accept reject", &["16: a rule rejects or accepts, not both"]),
    ("add all reject reject", &["16: `reject` is given twice"]),
    (
        "add all reject tcp",
        &[
            "16: `tcp` is no answer of `reject`; expected `tcp-rst`, `icmp` or `icmp6`; did you mean `tcp-rst`?",
        ],
    ),
    (
        "add all reject icmp 16",
        &["21: `16` is no code of ICMP destination unreachable; expected a number 0 to 15"],
    ),
    (
        "add all reject icmp 4",
        &[
            "21: fragmentation needed (4) is about one link and its MTU; expected another code; `set mtu-errors on` answers packets that are too large",
        ],
    ),
    (
        "add all reject icmp6 9",
        &["22: `9` is no code of ICMPv6 destination unreachable; expected a number 0 to 8"],
    ),
    (
        "add all reject icmp6 no-rout",
        &[
            "22: `no-rout` is no code of `icmp6`; expected `no-route`, `admin-prohibited`, `beyond-scope`, `addr-unreachable`, `port-unreachable`, `policy-fail` or `reject-route`, or a number; did you mean `no-route`?",
        ],
    ),
    (
        "add udp-dport 53 reject tcp-rst",
        &[
            "18: this target can never apply: `udp-dport 53` is about UDP packets, `tcp-flags` about TCP packets",
        ],
    ),
    ("add all accept drop", &["16: a rule drops or accepts, not both"]),
    ("add all drop drop 5", &["14: `drop` is given twice"]),
    ("add all mod eth-type arp", &["13: `eth-type` cannot be written: a frame keeps its ether type"]),
    ("add all mod ip-ce 1", &["13: `ip-ce` cannot be written: write ip-ecn instead"]),
    (
        "add all mod tcp-dport 80-81",
        &["23: a range or prefix cannot be written; expected one value of `tcp-dport`"],
    ),
    ("add all add tcp-opt-mss", &["13: `tcp-opt-mss` has 2 bytes of data; expected a value behind it"]),
    ("add all add tcp-opt 1", &["13: `tcp-opt 1` is padding: mmb pads by itself"]),
    (
        "add all strip tcp-opt",
        &["15: `strip` needs to know which option; expected an option such as `tcp-opt-mss` or \
        `tcp-opt 22`, or `strip all`"],
    ),
    (
        "add all strip tcp-opt-mss strip ! tcp-opt-sackp",
        &["27: `strip` and `strip !` do not mix in one rule: list either what \
        goes or what stays"],
    ),
    ("add all strip all strip ! tcp-opt-mss", &["19: `strip all` leaves nothing to keep"]),
    (
        "add all shuffle tcp-sport",
        &["9: `shuffle` needs a rule that follows connections: write `add-stateful` instead of `add`"],
    ),
    (
        "add all map ip-saddr 10.0.0.1",
        &["9: `map` needs a rule that follows connections: write `add-stateful` instead of `add`"],
    ),
    (
        "add all lb ip-daddr {10.0.0.1}",
        &["9: `lb` needs a rule that follows connections: write `add-stateful` instead of `add`"],
    ),
    (
        "add-stateful all lb ip-saddr {10.0.0.1}",
        &["21: `lb` does not take `ip-saddr`; expected one of `ip-daddr`, `ip6-daddr`, \
        `udp-dport`, `tcp-dport`"],
    ),
    // What can never be.
    (
        "add net-proto ip6 ip-saddr 10.0.0.1 drop",
        &["19: this rule can never match: `ip-saddr 10.0.0.1` is about IPv4 packets, \
        which `net-proto ip6` excludes"],
    ),
    (
        "add ip-saddr 10.0.0.1 ip6-daddr ::1 drop",
        &["23: this rule can never match: `ip-saddr 10.0.0.1` is about IPv4 packets, \
        `ip6-daddr ::1` about IPv6 packets"],
    ),
    (
        "add eth-type arp ip-proto tcp drop",
        &["18: this rule can never match: `ip-proto tcp` is about IP packets, which \
        `eth-type 0x0806` excludes"],
    ),
    (
        "add ip-ttl > 255 drop",
        &["5: this rule can never match: `ip-ttl > 255` never holds, `ip-ttl` is 0 to 255"],
    ),
    ("add ip-ver 6 drop", &["5: this rule can never match: `ip-ver 6` never holds, `ip-ver` is always 4"]),
    (
        "add tcp-dport 80 tcp-dport 443 drop",
        &["18: this rule can never match: no value of `tcp-dport` satisfies both \
        `tcp-dport 80` and `tcp-dport 443`"],
    ),
    (
        "add ip-saddr 10.0.0.0/8 ip-saddr 192.168.0.0/16 drop",
        &["25: this rule can never match: no value of `ip-saddr` satisfies \
        both `ip-saddr 10.0.0.0/8` and `ip-saddr 192.168.0.0/16`"],
    ),
    (
        "add ip-ce ip-ect0 drop",
        &["11: this rule can never match: `ip-ce` and `ip-ect0` ask for different values of the same bits"],
    ),
    (
        "add ip-ecn 1 ip-ce drop",
        &["14: this rule can never match: `ip-ecn 1` and `ip-ce` ask for different values of the same bits"],
    ),
    (
        "add tcp-flags syn ! tcp-syn drop",
        &["19: this rule can never match: `tcp-flags syn` and `! tcp-syn` ask for different \
        values of the same bits"],
    ),
    (
        "add ip6-eh-routing ! ip6-eh drop",
        &["20: this rule can never match: `ip6-eh-routing` and `! ip6-eh` exclude each other"],
    ),
    (
        "add tcp-opt-mss ! tcp-opt drop",
        &["17: this rule can never match: `tcp-opt-mss` and `! tcp-opt` exclude each other"],
    ),
    (
        "add tcp-opt-mss tcp-offset 5 drop",
        &["17: this rule can never match: `tcp-offset 5` leaves no room for the option that \
        `tcp-opt-mss` asks for"],
    ),
    (
        "add payload \"GET\" payload \"POST\" drop",
        &["19: this rule can never match: `payload \"GET\"` and `payload \"POST\"` \
        exclude each other"],
    ),
    (
        "add in lan in wan drop",
        &["12: this rule can never match: no value of `in` satisfies both `in lan` and `in wan`"],
    ),
    (
        "add ip-frag-offset 5 tcp-dport 80 drop",
        &["22: this rule can never match: `ip-frag-offset 5` is about later fragments, \
        which have no transport header for `tcp-dport 80`"],
    ),
    (
        "add tcp-dport > 10 tcp-dport < 20 ! tcp-dport 11-19 drop",
        &["35: this rule can never match: `tcp-dport > 10`, \
        `tcp-dport < 20` and `! tcp-dport 11-19` cannot all hold"],
    ),
    (
        "add ip-proto udp mod tcp-dport 1",
        &["18: this target can never apply: `tcp-dport` is about TCP packets, which \
        `ip-proto udp` excludes"],
    ),
    (
        "add udp-dport 53 strip tcp-opt-mss",
        &["18: this target can never apply: `udp-dport 53` is about UDP packets, \
        `tcp-opt-mss` about TCP packets"],
    ),
    (
        "add ! vlan-id mod vlan-id 5",
        &["15: this target can never apply: `! vlan-id` and `vlan-id` exclude each other"],
    ),
];

#[test]
fn every_mistake_gets_its_words() {
    assert_words(TABLE);
}
