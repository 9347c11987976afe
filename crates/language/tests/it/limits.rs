//! `limit`: what it is printed as, and what is said about wrong ones.

use crate::messages::assert_words;
use mmb_language::{Command, Print as _, parse_command};

/// Rules, and their canonical text.
const CANONICAL: &[(&str, &str)] = &[
    ("all limit 100/s", "all limit 100/s"),
    ("all limit 100/second burst 5", "all limit 100/s burst 5"),
    ("all limit 1000pps", "all limit 1k/s"),
    ("all limit 2Mpps", "all limit 2M/s"),
    ("all limit 1500/m", "all limit 1500/m"),
    ("all limit 3/day", "all limit 3/d"),
    ("all limit 10000kbit/s", "all limit 10Mbit/s"),
    ("all limit 10MB/s burst 2000kB", "all limit 10MB/s burst 2MB"),
    ("all limit 1Gbit/s burst 1MB", "all limit 1Gbit/s burst 8Mbit"),
    ("all limit 1MB/s burst 80kbit", "all limit 1MB/s burst 10kB"),
    ("all limit 1GB/h burst 20000", "all limit 1GB/h burst 20kB"),
    ("all limit 5/s per ip-saddr/32", "all limit 5/s per ip-saddr"),
    ("all limit 5/s per ip-saddr/24 burst 9", "all limit 5/s burst 9 per ip-saddr/24"),
    ("all limit 5/s per ip6-daddr/64", "all limit 5/s per ip6-daddr"),
    ("all limit 5/s per ip6-daddr/128 accept", "all limit 5/s per ip6-daddr/128 accept"),
    ("tcp-syn limit 5/s log accept", "tcp-syn limit 5/s log accept"),
];

#[test]
fn rates_have_one_text() {
    for (written, canonical) in CANONICAL {
        let Ok((Command::Add(rule), _)) = parse_command(&format!("add {written}")) else {
            panic!("{written}")
        };
        assert_eq!(rule.text().to_string(), format!("add {canonical}"));
    }
    let (command, _) = parse_command("add-stateful tcp-syn limit 20conn/m per ip-saddr").expect("a rule");
    assert_eq!(command.to_string(), "add-stateful tcp-syn limit 20conn/m per ip-saddr");
}

/// Wrong commands and everything that is said about them: column and message.
const TABLE: &[(&str, &[&str])] = &[
    (
        "add all limit",
        &[
            "14: what follows `limit` is missing; expected a rate such as `100/s`, `30/m`, `10MB/s`, `50Mbit/s` or `20conn/s`",
        ],
    ),
    (
        "add all limit 100",
        &[
            "15: `100` is no rate; expected a rate such as `100/s`, `30/m`, `10MB/s`, `50Mbit/s` or `20conn/s`",
        ],
    ),
    (
        "add all limit 0/s",
        &[
            "15: `0/s` is no rate; expected a rate such as `100/s`, `30/m`, `10MB/s`, `50Mbit/s` or `20conn/s`",
        ],
    ),
    (
        "add all limit 2000G/s",
        &[
            "15: `2000G/s` is no rate; expected a rate such as `100/s`, `30/m`, `10MB/s`, `50Mbit/s` or `20conn/s`",
        ],
    ),
    (
        "add all limit 99999999999999999999999G/s",
        &[
            "15: `99999999999999999999999G/s` is no rate; expected a rate such as `100/s`, `30/m`, `10MB/s`, `50Mbit/s` or `20conn/s`",
        ],
    ),
    (
        "add all limit 5/w",
        &[
            "15: `5/w` is no rate; expected a rate such as `100/s`, `30/m`, `10MB/s`, `50Mbit/s` or `20conn/s`",
        ],
    ),
    (
        "add all limit 5MBpps",
        &[
            "15: `5MBpps` is no rate; expected a rate such as `100/s`, `30/m`, `10MB/s`, `50Mbit/s` or `20conn/s`",
        ],
    ),
    (
        "add all limit accept",
        &[
            "15: `accept` is no rate; expected a rate such as `100/s`, `30/m`, `10MB/s`, `50Mbit/s` or `20conn/s`",
        ],
    ),
    (
        "add all limit 5/s burst",
        &[
            "24: what follows `burst` is missing; expected how much may come at once, such as `200`, `1MB` or `8Mbit`",
        ],
    ),
    (
        "add all limit 5/s burst 5kB",
        &[
            "25: `5kB` is no burst of this rate; expected how much may come at once, such as `200`, `1MB` or `8Mbit`",
        ],
    ),
    ("add all limit 5/s burst 0", &["25: nothing would pass; expected at least 1"]),
    ("add all limit 1MB/s burst 1kB", &["27: a full frame would never pass; expected at least 1522B"]),
    ("add all limit 5/s burst 5 burst 6", &["27: `burst` is given twice"]),
    (
        "add all limit 5/s per tcp-sport",
        &[
            "23: `tcp-sport` is no field that a limit has keys of; expected `ip-saddr`, `ip-daddr`, `ip6-saddr` or `ip6-daddr`, with or without a `/PREFIX`",
        ],
    ),
    (
        "add all limit 5/s per ip-sadr/24",
        &[
            "23: `ip-sadr` is no field that a limit has keys of; expected `ip-saddr`, `ip-daddr`, `ip6-saddr` or `ip6-daddr`, with or without a `/PREFIX`; did you mean `ip-saddr`?",
        ],
    ),
    (
        "add all limit 5/s per ip-saddr/33",
        &["23: `33` is no prefix length of `ip-saddr`; expected a number 1 to 32"],
    ),
    (
        "add all limit 5/s per ip-saddr/0",
        &["23: `0` is no prefix length of `ip-saddr`; expected a number 1 to 32"],
    ),
    (
        "add all limit 5conn/s",
        &["9: a stateless rule makes no connections; expected `add-stateful`, or a rate of packets or bytes"],
    ),
    ("add all limit 5/s limit 6/s", &["19: `limit` is given twice"]),
    ("add all limit 5/s drop", &["19: a rule limits packets or drops all of them, not both"]),
    ("add all drop limit 5/s", &["14: a rule limits packets or drops all of them, not both"]),
    ("add all limit 5/s reject", &["19: a rule limits packets or rejects all of them, not both"]),
    (
        "add-stateful stream \"a\" alert limit 5/s",
        &[
            "31: `limit` counts packets, and `stream` is found in the bytes of a connection; expected a rule of its own for `limit`",
        ],
    ),
    (
        "add all rate 5/s",
        &["9: unknown word `rate`; expected a field, `!` or a target; did you mean `limit`?"],
    ),
    ("set limit keys 100", &["16: `100` is no value of `limit keys`; expected 1024 to 16777216"]),
];

#[test]
fn mistakes_are_explained() {
    assert_words(TABLE);
}
