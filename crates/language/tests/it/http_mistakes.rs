//! What is said about wrong constraints on HTTP and wrong settings of HTTP.

use crate::messages::{assert_remedies_taken, assert_words};

/// Wrong commands and everything that is said about them: column and message.
const MISTAKES: &[(&str, &[&str])] = &[
    (
        "add-stateful http accept",
        &[
            "19: `accept` is decided by a packet's header, long before `http`; expected a rule of its own for `accept`",
        ],
    ),
    (
        "add http close",
        &[
            "5: `http` is about the bytes of a connection: write `add-stateful` instead of `add`",
            "10: `close` needs a rule that follows connections: write `add-stateful` instead of `add`",
        ],
    ),
    (
        "add-stateful ! http close",
        &[
            "14: `! http` would be about connections without messages, on which nothing decides; expected `http` without `!`",
        ],
    ),
    (
        "add-stateful ! http-body \"a\" close",
        &["14: `! http-body` would be known only when the body has ended; expected `http-body` without `!`"],
    ),
    (
        "add-stateful http-method close",
        &["14: `http-method` needs a method; expected a \"METHOD\", a /regex/ or a @LIST"],
    ),
    (
        "add-stateful http-host close",
        &["14: `http-host` needs a name; expected a \"name\", a \".domain\", a /regex/ or a @LIST"],
    ),
    ("add-stateful http-status alert", &["14: `http-status` needs a number; expected a number 100 to 999"]),
    (
        "add-stateful http-status 1000 alert",
        &["26: `1000` is too large for `http-status`; expected a number 100 to 999"],
    ),
    (
        "add-stateful http-status < 100 alert",
        &["14: this rule can never match: no response has such a status; expected numbers of 100 to 999"],
    ),
    (
        "add-stateful http-status 200 ! http-status 200-299 alert",
        &["30: this rule can never match: no response has such a status; expected numbers of 100 to 999"],
    ),
    (
        "add-stateful http-status \"200\" alert",
        &["26: `http-status` takes no bytes; expected a number 100 to 999"],
    ),
    (
        "add-stateful http-header alert",
        &[
            "26: the name of a header field is missing; expected a name right behind `http-header`, as in `http-header \"Server\"`",
        ],
    ),
    (
        "add-stateful http-header {\"a\", \"b\"} alert",
        &[
            "26: the name of a header field is missing; expected a name right behind `http-header`, as in `http-header \"Server\"`",
        ],
    ),
    (
        "add-stateful http-header \"a b\" alert",
        &[
            "26: `a b` is no name of a header field; expected at most 256 letters, digits and !#$%&'*+-.^_`|~ (RFC 9110, section 5.1)",
        ],
    ),
    (
        "add-stateful http-header \"\" alert",
        &[
            "26: `` is no name of a header field; expected at most 256 letters, digits and !#$%&'*+-.^_`|~ (RFC 9110, section 5.1)",
        ],
    ),
    (
        "add-stateful http-header \"A\" \"\" alert",
        &[
            "30: an empty text says nothing about a header field; expected at least one byte, or the name alone for any value",
        ],
    ),
    (
        "add-stateful http-header \"A\" \" b\" alert",
        &["30: ` b`: blanks around a header field's value are no part of it; expected the text without them"],
    ),
    (
        "add-stateful http-header \"A\" \"a\\r\\nb\" alert",
        &["30: `a\\r\\nb`: values of header fields hold no control characters; expected a text without them"],
    ),
    (
        "add-stateful http-header \"A\" != \"b\" alert",
        &["30: `http-header` is searched, not compared; expected `! http-header` before the value"],
    ),
    (
        "add-stateful http-body != \"b\" alert",
        &["24: `http-body` is searched, not compared; expected the value right behind `http-body`"],
    ),
    (
        "add-stateful http-method \"a b\" alert",
        &["26: `a b` is no method; expected a method such as `GET`; patterns are a /regex/"],
    ),
    (
        "add-stateful http-method \"\" alert",
        &["26: methods compare as a whole, and an empty text is no method; expected a method such as `GET`"],
    ),
    (
        "add-stateful http-uri \"/a b\" alert",
        &[
            "23: `/a b`: request targets hold neither blanks nor control characters; expected `%20` for a blank",
        ],
    ),
    (
        "add-stateful http-host \"a.org:80\" close",
        &["24: `a.org:80`: neither scheme nor port of a request counts; expected the name of the host alone"],
    ),
    (
        "add-stateful http-host \"http://a.org\" close",
        &[
            "24: `http://a.org`: neither scheme nor port of a request counts; expected the name of the host alone",
        ],
    ),
    (
        "add-stateful http-host \"a.org.\" close",
        &["24: `a.org.`: a dot at the end of a host's name does not count; expected the name without it"],
    ),
    (
        "add-stateful http-host \"::1\" close",
        &["24: `::1`: requests have IPv6 addresses in brackets; expected \"[::1]\""],
    ),
    (
        "add-stateful http-host \"*.a.org\" close",
        &[
            "24: `*.a.org`: a leading dot stands for the domain and all below it; expected `.example.com` for `*.example.com`",
        ],
    ),
    (
        "add-stateful http-host \"münchen.de\" close",
        &["24: `münchen.de`: hosts are sent in ASCII; expected its form with `xn--`"],
    ),
    (
        "add-stateful tls-sni \"a.org.\" close",
        &["22: `a.org.`: server names have no dot at the end (RFC 6066); expected the name without it"],
    ),
    (
        "add-stateful http-host \"a_b!\" close",
        &["24: `a_b!` is no host name; expected a name such as `www.example.com`, or `.example.com`"],
    ),
    (
        "add-stateful http-body /a$/ close",
        &[
            "24: `$` asks for the end of the body, which is known only when the body has passed; expected the regex without `$`",
        ],
    ),
    (
        "add-stateful http-body \"a\\m\" close",
        &[
            "24: `\\m` stands for what `mod` replaces, and nothing is replaced here; expected a text without `\\m`; a backslash is `\\\\`",
        ],
    ),
    (
        "add-stateful http \"x\" alert",
        &[
            "19: `http` takes no value: it is there or not; expected `http` alone, or a field of its parts such as `http-host`",
        ],
    ),
    (
        "add-stateful udp-dport 53 http-host \"a.org\" close",
        &[
            "27: this rule can never match: `udp-dport 53` is about UDP packets, `http-host \"a.org\"` about TCP packets",
        ],
    ),
    (
        "add-stateful http-host \"a.org\" ! http-host \"a.org\" close",
        &[
            "32: this rule can never match: no value of `http-host` satisfies both `http-host \"a.org\"` and `! http-host \"a.org\"`",
        ],
    ),
    (
        "add-stateful http tls-sni \"a.org\" close",
        &[
            "19: this rule can never match: a connection of TLS (`tls-sni`) shows no messages of HTTP (`http`)",
        ],
    ),
    (
        "add-stateful http alert \"\\m\"",
        &[
            "25: `\\m` stands for what `mod` replaces, and nothing is replaced here; expected a text without `\\m`; a backslash is `\\\\`",
        ],
    ),
    (
        "add-stateful tcp-dport http close",
        &[
            "29: `close` acts on a match in a stream, and the rule searches for none; expected a constraint such as `stream \"TEXT\"`, or `http` once more: behind `tcp-dport` it is the number of a port",
        ],
    ),
    ("add-stateful http-header \"A\" \"x", &["30: this text has no end; expected a closing `\"`"]),
    (
        "add-stateful http-status abc alert",
        &["26: unknown word `abc`; expected a number 100 to 999, a field, `!` or a target"],
    ),
    (
        "add-stateful http-header \"X-By:\" alert",
        &["26: name and value of a header field are two texts; expected `http-header \"X-By\"`"],
    ),
    (
        "add-stateful http-header \"a b: c\" alert",
        &["26: name and value of a header field are two texts; expected `http-header \"NAME\" \"VALUE\"`"],
    ),
    ("set http head 0", &["15: `0` is no value of `http head`; expected 1 to 64 KiB"]),
    ("set http unfit drop", &["16: `drop` is no value of `http unfit`; expected close or pass"]),
    (
        "set http nothing 5",
        &["10: unknown setting `http nothing`; expected `head`, `unfit`, `encodings` or `no-transform`"],
    ),
];

#[test]
fn every_mistake_gets_its_words() {
    assert_words(MISTAKES);
}

/// Whoever copies a remedy must not get the next error.
#[test]
fn rules_in_remedies_are_taken() {
    let shown = assert_remedies_taken(MISTAKES);
    assert!(shown > 4, "{shown} remedies show rules");
}
