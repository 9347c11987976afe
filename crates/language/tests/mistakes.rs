//! Wrong commands and what is said about each.

mod messages;

use messages::assert_words;

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
            "4: a rule needs a target; expected `mod`, `add`, `strip`, `drop`, `reject`, `accept` or `log`",
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
    // Other commands.
    (
        "set pol spin",
        &[
            "5: unknown setting `pol`; expected `ip6-max-headers`, `poll`, `offload`, `flow-cache`, `answer`, `mtu-errors`, `conn`, `timeout`, `nat`, `stream`, `http` or `log`; \
        did you mean `poll`?",
        ],
    ),
    (
        "set poll spinn",
        &["10: `spinn` is no value of `poll`; expected adaptive or spin; did you mean `spin`?"],
    ),
    ("set ip6-max-headers 65", &["21: `65` is no value of `ip6-max-headers`; expected 1 to 64"]),
    (
        "set conn",
        &[
            "9: the rest of the setting's name is missing behind `conn`; expected `max`, `pickup`, `per-source`, `invalid`, `zone` or `same-port`",
        ],
    ),
    ("set conn max", &["13: the value of `conn max` is missing; expected 1 to 100000000"]),
    ("set conn max 5 6", &["16: nothing more follows `set NAME VALUE`; expected the end of the command"]),
    (
        "set conn mx 5",
        &[
            "10: unknown setting `conn mx`; expected `max`, `pickup`, `per-source`, `invalid`, `zone` or `same-port`; did you mean `max`?",
        ],
    ),
    (
        "set timeout tcp-establishd 60",
        &["13: unknown setting `timeout tcp-establishd`; expected `tcp-syn`, `tcp-established`, `tcp-fin`, \
        `tcp-time-wait`, `tcp-reset`, `udp`, `udp-unreplied`, `icmp` or `other`; did you mean `tcp-established`?"],
    ),
    ("set timeout udp 0", &["17: `0` is no value of `timeout udp`; expected 1 to 604800 seconds"]),
    (
        "show tabels",
        &[
            "6: `tabels` cannot be shown; expected `tables`, `ports`, `errors`, `runtime`, `rates`, `offload`, `log`, `sets`, `settings`, `version`, \
        `connections`, `streams`, `servers` or `conn`; \
        did you mean `tables`?",
        ],
    ),
    (
        "show drops",
        &[
            "6: `drops` cannot be shown; expected `tables`, `ports`, `errors`, `runtime`, `rates`, `offload`, `log`, `sets`, `settings`, `version`, \
        `connections`, `streams`, `servers` or `conn`; \
        did you mean `errors`?",
        ],
    ),
    ("del", &["4: a rule's id is missing; expected a number 1 to 4294967295"]),
    (
        "del 5 6",
        &[
            "7: nothing more follows `del ID|name WORD [--kill|--keep] | set NAME`; expected the end of the command",
        ],
    ),
    (
        "del 5 --kil",
        &[
            "7: nothing more follows `del ID|name WORD [--kill|--keep] | set NAME`; expected the end of the command; did you mean `--kill`?",
        ],
    ),
    ("del name", &["9: a name is missing; expected a word of at most 64 bytes"]),
    ("replace all drop", &["9: a rule's id is missing; expected a number 1 to 4294967295"]),
    ("replace 5 id 6 all drop", &["11: `id` is given twice"]),
    (
        "replace 5 all drop --keep",
        &[
            "20: connections follow the rule that replaces theirs; expected `--kill`, or another rule by `add` and `del ID --keep`",
        ],
    ),
    (
        "replace 5 draining all accept",
        &["11: a rule that replaces another one does not drain; expected `del ID --keep`"],
    ),
    (
        "replace 5 all drop --kill 6",
        &[
            "27: nothing more follows `replace ID [prio N] [name WORD] MATCH… TARGET… [--kill]`; expected the end of the command",
        ],
    ),
    // Neither a stateless rule nor a stateful one.
    (
        "replace 5 all map ip-saddr 10.0.0.1 drop 200",
        &["42: `200` is no percentage; expected 0 to 100 in steps of 0.001"],
    ),
    (
        "show",
        &[
            "5: what to show?; expected `tables`, `ports`, `errors`, `runtime`, `rates`, `offload`, `log`, `sets`, `settings`, `version`, \
        `connections`, `streams`, `servers` or `conn`",
        ],
    ),
    (
        "show ofload",
        &[
            "6: `ofload` cannot be shown; expected `tables`, `ports`, `errors`, `runtime`, `rates`, `offload`, `log`, `sets`, `settings`, `version`, \
        `connections`, `streams`, `servers` or `conn`; \
        did you mean `offload`?",
        ],
    ),
    ("show offload lan", &["14: nothing more follows what is to be shown; expected the end of the command"]),
    ("set offload on", &["13: `on` is no value of `offload`; expected auto or off"]),
    ("show conn", &["10: what to show?; expected `summary`"]),
    ("show conn sumary", &["11: `conn sumary` cannot be shown; expected `summary`; did you mean `summary`?"]),
    (
        "show connections src 10.0.0.1",
        &["18: `src` is no word of a filter of connections; expected a field of the protocol, an address \
        or a port, `state` or `rule`, or `verbose`; did you mean `ip-saddr`?"],
    ),
    (
        "show connections tcp-dprt 80 state establish",
        &["18: `tcp-dprt` is no word of a filter of connections; expected a field of the protocol, an \
        address or a port, `state` or `rule`, or `verbose`; did you mean `tcp-dport`?"],
    ),
    (
        "show connections dport 99999",
        &["24: `99999` is too large: `dport` has 2 bytes; expected a number 0 to 65535 or a name such as \
        `ftp-data` or `wireguard`"],
    ),
    (
        "conn kill sport htpp",
        &["17: `htpp` is no value of `sport`; expected a number 0 to 65535 or a name such as \
        `ftp-data` or `wireguard`; did you mean `http`?"],
    ),
    (
        "show connections verbos",
        &["18: `verbos` is no word of a filter of connections; expected a field of the protocol, an \
        address or a port, `state` or `rule`, or `verbose`; did you mean `verbose`?"],
    ),
    (
        "show connections verbose rule 3",
        &["26: nothing more follows what is to be shown; expected the end of the command"],
    ),
    (
        "show connections ip-saddr",
        &["18: a value of `ip-saddr` is missing; expected an IPv4 address, prefix or range"],
    ),
    (
        "show connections ip-saddr rule 3",
        &["27: a value of `ip-saddr` is missing; expected an IPv4 address, prefix or range"],
    ),
    (
        "show connections ip-saddr {10.0.0.1}",
        &["27: in a filter `ip-saddr` is compared for equality with one value or range; expected an IPv4 \
        address, prefix or range"],
    ),
    (
        "show connections tcp-dport > 80",
        &["28: in a filter `tcp-dport` is compared for equality with one value or range; expected a \
        number 0 to 65535 or a name such as `ftp-data` or `wireguard`"],
    ),
    (
        "show connections ! rule 3",
        &["18: this has no place in a filter of connections; expected a field of the protocol, an \
        address or a port, `state` or `rule`, or `verbose`"],
    ),
    ("show connections ip-saddr 10.0.0.1 ip-saddr 10.0.0.2", &["36: `ip-saddr`: this was said before"]),
    (
        "show connections ip-saddr 10.0.0.1 ip6-daddr ::1",
        &["36: `ip6-daddr`: no connection is of both IPv4 and IPv6"],
    ),
    ("show connections ip-proto udp tcp-dport 80", &["31: `tcp-dport`: no connection is of two protocols"]),
    ("show connections ip-proto 6-17", &["27: `ip-proto` takes one value here"]),
    (
        "show connections ip-saddr 10.0.0.256",
        &["27: `10.0.0.256` is no value of `ip-saddr`; expected an IPv4 address, prefix or range"],
    ),
    (
        "show connections state establish",
        &[
            "24: `establish` is no state; expected `syn-sent`, `syn-received`, `established`, `fin-wait`, `closing`, \
        `time-wait`, `reset`, `unreplied` or `replied`; did you mean `established`?",
        ],
    ),
    ("show connections rule 0", &["23: `0` is no number of a rule; expected a number 1 to 4294967295"]),
    ("conn", &["5: what to do with connections?; expected `kill`"]),
    ("conn kil all", &["6: `kil` cannot be done with connections; expected `kill`; did you mean `kill`?"]),
    (
        "conn kill",
        &["10: which connections?; expected `all`, a field of the protocol, an address or a port, \
        `state` or `rule`"],
    ),
    (
        "conn kill all rule 3",
        &["15: nothing more follows `conn kill FILTER…|all`; expected the end of the command"],
    ),
    ("server", &["7: what is with the server?; expected `up`, `drain`, `down`, `healthy` or `failed`"]),
    (
        "server dwon 10.0.0.1",
        &[
            "8: a server cannot be `dwon`; expected `up`, `drain`, `down`, `healthy` or `failed`; did you mean `down`?",
        ],
    ),
    ("server down", &["12: a server is missing; expected an address or a port of an `lb`"]),
    ("server down web1", &["13: `web1` is no server; expected an address or a port of an `lb`"]),
    ("server down 70000", &["13: `70000` is no server; expected an address or a port of an `lb`"]),
    ("server down ::1 in lan", &["20: `lan` is no id of a rule; expected a number 1 to 4294967295"]),
    ("server down ::1 because", &["24: a reason is missing; expected a \"text\""]),
    ("server up ::1 --kill", &["15: `up` ends no connections; expected the end of the command"]),
    (
        "server down ::1 --kill now",
        &[
            "24: nothing more follows `server up|drain|down|healthy|failed VALUE [in RULE] [because TEXT] [--kill]`; \
        expected the end of the command",
        ],
    ),
    ("show servers all", &["14: nothing more follows what is to be shown; expected the end of the command"]),
    ("clear", &["6: what to clear?; expected `counters`"]),
    ("clear counter", &["7: `counter` cannot be cleared; expected `counters`; did you mean `counters`?"]),
    ("clear counters 5", &["16: nothing more follows `clear counters`; expected the end of the command"]),
    ("monitor all", &["9: nothing follows `monitor`; expected the end of the command"]),
    // Filters of packets.
    (
        "trace tcp-dport 80 cuont 5",
        &["20: unknown word `cuont`; expected a field, `!`, `count`; did you mean `count`?"],
    ),
    (
        "trace tcp-dprt 80",
        &["7: unknown word `tcp-dprt`; expected a field, `!`, `count`; did you mean `tcp-dport`?"],
    ),
    ("trace count", &["12: the number behind `count` is missing; expected a number 1 to 1000000000"]),
    ("trace count 0", &["13: `0` is no `count`; expected a number 1 to 1000000000"]),
    (
        "trace ip-proto udp tcp-dport 80",
        &[
            "20: this filter can never match: `tcp-dport 80` is about TCP packets, which `ip-proto udp` excludes",
        ],
    ),
    (
        "trace ct new",
        &[
            "7: `ct` is about the connection of a packet: here constraints are about packets as they are received",
        ],
    ),
    (
        "capture stream \"a\"",
        &[
            "9: `stream` is about the bytes of a connection: here constraints are about packets as they are received",
        ],
    ),
    (
        "capture at rxx",
        &["12: `rxx` is no point of a packet's way; expected `rx`, `tx` or `drop`; did you mean `rx`?"],
    ),
    ("capture all snaplen 9", &["21: `9` is no `snaplen`; expected a number 14 to 16384"]),
    ("capture reason", &["15: a drop reason is missing; expected a name as `show errors` has them"]),
    ("capture count 1 count 2", &["17: `count` is given twice"]),
    (
        "capture tcp-dport 80 drop",
        &["22: unknown word `drop`; expected a field, `!`, `at`, `reason`, `count` or `snaplen`"],
    ),
    (
        "list --terze",
        &[
            "6: nothing more follows `list [--terse]`; expected the end of the command; did you mean `--terse`?",
        ],
    ),
    ("enable", &["7: a port is missing; expected the name of a port"]),
];

#[test]
fn every_mistake_gets_its_words() {
    assert_words(TABLE);
}
