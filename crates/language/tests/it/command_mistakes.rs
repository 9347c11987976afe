//! What is said about wrong commands that are no rules.

use crate::messages::assert_words;

/// Wrong commands and everything that is said about them: column and message.
const MISTAKES: &[(&str, &[&str])] = &[
    (
        "set pol spin",
        &[
            "5: unknown setting `pol`; expected `ip6-max-headers`, `poll`, `offload`, `flow-cache`, `answer`, `mtu-errors`, `conn`, `timeout`, `nat`, `stream`, `http`, `log` or `limit`; \
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
        `connections`, `streams`, `servers`, `conn` or `set`; \
        did you mean `tables`?",
        ],
    ),
    (
        "show drops",
        &[
            "6: `drops` cannot be shown; expected `tables`, `ports`, `errors`, `runtime`, `rates`, `offload`, `log`, `sets`, `settings`, `version`, \
        `connections`, `streams`, `servers`, `conn` or `set`; \
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
        "rollback --kill --keep",
        &["17: connections either end or keep their rules; expected one of `--kill` and `--keep`"],
    ),
    ("del 3 --keep --keep", &["14: `--keep` is given twice; expected one of `--kill` and `--keep`"]),
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
        `connections`, `streams`, `servers`, `conn` or `set`",
        ],
    ),
    (
        "show ofload",
        &[
            "6: `ofload` cannot be shown; expected `tables`, `ports`, `errors`, `runtime`, `rates`, `offload`, `log`, `sets`, `settings`, `version`, \
        `connections`, `streams`, `servers`, `conn` or `set`; \
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
    assert_words(MISTAKES);
}
