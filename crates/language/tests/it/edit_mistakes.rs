//! What is said about wrong edits of streams and of messages of HTTP.

use crate::messages::{assert_remedies_taken, assert_words};
use mmb_language::parse_policy;

#[test]
fn the_place_of_a_mistake_is_shown() {
    let policy = "add-stateful http-host \"a.org\" close\nadd-stateful stream /<[^>]*>/ strip stream\n";
    let errors = parse_policy(policy).expect_err("a regex without a bound");
    let rendered: String = errors.iter().map(|error| error.render("file", policy)).collect();
    assert_eq!(
        rendered,
        "\
error: a match of this regex may have any length, and an edit waits for its end: at most 4096 bytes
 --> file:2:21
  |
2 | add-stateful stream /<[^>]*>/ strip stream
  |                     ^^^^^^^^^
  = expected bounds in place of `*` and `+`, as in `[^>]{0,200}` for `[^>]*`
"
    );
}

/// Wrong commands and everything that is said about them: column and message.
const MISTAKES: &[(&str, &[&str])] = &[
    (
        "add-stateful tcp-dport 80 mod stream \"a\"",
        &[
            "27: `mod stream` acts on what `stream` finds, and the rule searches for nothing; expected a constraint such as `stream \"TEXT\"`",
        ],
    ),
    (
        "add-stateful tcp-dport 80 add http-header \"A\" \"b\"",
        &[
            "27: `add http-header` acts on messages of HTTP, and the rule asks for none; expected a constraint such as `http`",
        ],
    ),
    (
        "add-stateful tcp-dport 80 mask stream",
        &[
            "27: `mask stream` acts on what `stream` finds, and the rule searches for nothing; expected a constraint such as `stream \"TEXT\"`",
        ],
    ),
    (
        "add all mask stream",
        &[
            "9: `mask` needs a rule that follows connections: write `add-stateful` instead of `add`",
            "9: `mask stream` acts on what `stream` finds, and the rule searches for nothing; expected a constraint such as `stream \"TEXT\"`",
        ],
    ),
    (
        "add all mod http-host \"a.org\"",
        &[
            "9: `mod http-host` needs a rule that follows connections: write `add-stateful` instead of `add`",
            "9: `mod http-host` acts on messages of HTTP, and the rule asks for none; expected a constraint such as `http`",
        ],
    ),
    (
        "add-stateful stream \"a\" mod stream \"\"",
        &["36: an empty text removes what was found; expected `strip stream`, or at least one byte"],
    ),
    (
        "add-stateful stream \"a\" mod stream /b/",
        &["36: a regex is searched for, not written; expected a \"text\" or |bytes|"],
    ),
    (
        "add-stateful stream \"a\" mod stream @b",
        &["36: `@b` is neither a text nor bytes; expected a \"text\" or |bytes|"],
    ),
    (
        "add-stateful stream \"a\" mod stream b",
        &["36: `b` is neither a text nor bytes; expected a \"text\" or |bytes|; did you mean `\"b\"`?"],
    ),
    (
        "add-stateful stream \"a\" mod stream {\"a\", \"b\"}",
        &["36: a set cannot be written; expected one value of `stream`"],
    ),
    (
        "add-stateful stream \"a\" mod stream",
        &["29: a value of `stream` is missing; expected a \"text\" or |bytes|"],
    ),
    (
        "add-stateful stream \"a\" mask stream \"\"",
        &["37: an empty text covers nothing; expected at least one byte, or `mask` without a text for `*`"],
    ),
    (
        "add-stateful stream \"a\" mask stream \"b\\m\"",
        &[
            "37: `\\m` stands for what `mod` replaces, and nothing is replaced here; expected a text without `\\m`; a backslash is `\\\\`",
        ],
    ),
    (
        "add-stateful stream \"a\" mask stream-reply",
        &[
            "14: a rule that edits `stream-reply` searches nothing else; expected `stream-reply` in the place of `stream`, or the other way round",
        ],
    ),
    (
        "add-stateful stream \"a\" stream-reply \"b\" mask stream-reply",
        &["14: a rule that edits `stream-reply` searches nothing else; expected the rule without `stream`"],
    ),
    (
        "add-stateful stream \"a\" stream \"b\" strip stream",
        &[
            "25: a rule that edits `stream` has one constraint on it, whose matches it edits; expected a set: `stream {\"A\", \"B\"}`",
        ],
    ),
    ("add-stateful stream \"a\" strip stream mask stream", &["38: what `stream` finds is edited already"]),
    (
        "add-stateful stream \"a\" strip ! stream",
        &["33: `strip ! stream` would remove all but what is found; expected `strip stream`"],
    ),
    (
        "add-stateful stream \"a\" add stream \"b\"",
        &["29: `stream` has no end that `add` could append to; expected `mod`, or `add http-body`"],
    ),
    (
        "add-stateful stream \"a\" map stream 5",
        &[
            "29: `map` does not take `stream`; expected one of `ip-id`, `ip-saddr`, `ip-daddr`, `ip6-flow-label`, `ip6-saddr`, `ip6-daddr`, `udp-sport`, `udp-dport`, `tcp-sport`, `tcp-dport`",
        ],
    ),
    (
        "add-stateful stream \"a\" mask tls-sni",
        &["30: `tls-sni` cannot be written: TLS protects its handshake, and another name would break it"],
    ),
    (
        "add-stateful tls-sni \"a.org\" mod tls-sni \"b.org\"",
        &["34: `tls-sni` cannot be written: TLS protects its handshake, and another name would break it"],
    ),
    (
        "add-stateful stream \"a\" mask tcp-dport \"b\"",
        &[
            "30: `mask` does not take `tcp-dport`; expected one of `stream`, `stream-forward`, `stream-reply`, `http-body`",
        ],
    ),
    (
        "add-stateful http mask http-host",
        &["24: `mask` does not take `http-host`, which is replaced as a whole; expected `mod`"],
    ),
    (
        "add-stateful http strip http-host",
        &["25: `strip` does not take `http-host`, which is replaced as a whole; expected `mod`"],
    ),
    (
        "add-stateful http add http-host \"a\"",
        &["23: `add` does not take `http-host`, which is replaced as a whole; expected `mod`"],
    ),
    (
        "add-stateful http mod http \"a\"",
        &[
            "23: `http` cannot be written: name the part that changes, such as `http-header \"Server\"` or `http-body`",
        ],
    ),
    (
        "add-stateful http mod http-method \"a\"",
        &["23: `http-method` cannot be written: a request keeps its method"],
    ),
    (
        "add-stateful http mod http-status 5",
        &["23: `http-status` cannot be written: a response keeps its status"],
    ),
    (
        "add-stateful stream \"a\" strip stream close",
        &[
            "25: `strip stream` can never apply: at the same match `close` ends the connection; expected either of the two",
        ],
    ),
    (
        "add-stateful stream \"a\" drop mod stream \"b\"",
        &[
            "30: `mod stream` can never apply: at the same match `drop` ends the connection; expected either of the two",
        ],
    ),
    (
        "add-stateful stream /<[^>]*>/ strip stream",
        &[
            "21: a match of this regex may have any length, and an edit waits for its end: at most 4096 bytes; expected bounds in place of `*` and `+`, as in `[^>]{0,200}` for `[^>]*`",
        ],
    ),
    (
        "add-stateful stream {\"a\", /b{1,5000}/} strip stream",
        &[
            "27: a match of this regex has up to 5000 bytes, and an edit waits for its end: at most 4096 bytes; expected smaller bounds, such as `{0,200}`",
        ],
    ),
    (
        "add-stateful http http-body /a.*b/ mod http-body \"x\"",
        &[
            "29: a match of this regex may have any length, and an edit waits for its end: at most 4096 bytes; expected bounds in place of `*` and `+`, as in `[^>]{0,200}` for `[^>]*`",
        ],
    ),
    (
        "add-stateful http mod http-body \"x\"",
        &[
            "19: `mod http-body` acts on what `http-body` finds, and the rule has no such constraint; expected `http-body \"TEXT\"` in the rule",
        ],
    ),
    (
        "add-stateful http strip http-body",
        &[
            "19: `strip http-body` acts on what `http-body` finds, and the rule has no such constraint; expected `http-body \"TEXT\"` in the rule",
        ],
    ),
    (
        "add-stateful http mask http-body",
        &[
            "19: `mask http-body` acts on what `http-body` finds, and the rule has no such constraint; expected `http-body \"TEXT\"` in the rule",
        ],
    ),
    (
        "add-stateful http-body \"a\" http-body \"b\" mask http-body",
        &[
            "28: a rule that edits `http-body` has one constraint on it, whose matches it edits; expected a set: `http-body {\"A\", \"B\"}`",
        ],
    ),
    (
        "add-stateful http-body \"a\" mask http-body mod http-body \"b\"",
        &["43: what `http-body` finds is edited already"],
    ),
    ("add-stateful http add http-body \"\"", &["33: nothing to add; expected at least one byte"]),
    (
        "add-stateful http add http-body \"a\\m\"",
        &[
            "33: `\\m` stands for what `mod` replaces, and nothing is replaced here; expected a text without `\\m`; a backslash is `\\\\`",
        ],
    ),
    (
        "add-stateful http add http-body",
        &["23: what is added to `http-body` is missing; expected a \"text\" or |bytes|"],
    ),
    (
        "add-stateful http add http-body \"a\" add http-body \"b\"",
        &["37: `add http-body` is given twice: write one text"],
    ),
    (
        "add-stateful http stream \"a\" add http-body \"b\"",
        &[
            "19: `add http-body` acts on messages of HTTP, and `stream` is about the whole connection; expected constraints `http…` only",
        ],
    ),
    (
        "add-stateful http stream \"a\" mod stream \"b\"",
        &["14: a rule that edits `stream` searches nothing else; expected the rule without `http`"],
    ),
    (
        "add-stateful http-body \"a\" stream \"b\" strip http-body strip stream",
        &[
            "55: `strip http-body` and `strip stream`: one connection is edited as bytes or as messages; expected two rules, for different connections",
        ],
    ),
    (
        "add-stateful http mod http-header \"A\" \"b\" mod http-header \"a\" \"c\"",
        &["43: the header field `a` is edited already"],
    ),
    (
        "add-stateful http strip http-header \"A\" mod http-header \"a\" \"c\"",
        &["41: the header field `a` is edited already"],
    ),
    (
        "add-stateful http strip http-header \"A\" strip ! http-header \"B\"",
        &["41: `strip` and `strip !` do not mix in one rule: list either what goes or what stays"],
    ),
    (
        "add-stateful http strip ! http-header \"B\" strip http-header \"A\"",
        &["43: `strip` and `strip !` do not mix in one rule: list either what goes or what stays"],
    ),
    (
        "add-stateful http mod http-header \"Content-Length\" \"5\"",
        &[
            "35: `mod` does not take `Content-Length`: it says where a message ends, and mmb writes it where a body changes",
        ],
    ),
    (
        "add-stateful http add http-header \"transfer-encoding\" \"chunked\"",
        &[
            "35: `add` does not take `transfer-encoding`: it says where a message ends, and mmb writes it where a body changes",
        ],
    ),
    (
        "add-stateful http strip http-header \"Connection\"",
        &[
            "37: `strip` does not take `Connection`: it is about one connection (RFC 9110, section 7.6.1), which mmb does not end",
        ],
    ),
    (
        "add-stateful http strip http-header \"TE\"",
        &[
            "37: `strip` does not take `TE`: it is about one connection (RFC 9110, section 7.6.1), which mmb does not end",
        ],
    ),
    (
        "add-stateful http mod http-header \"Trailer\" \"x\"",
        &[
            "35: `mod` does not take `Trailer`: it says where a message ends, and mmb writes it where a body changes",
        ],
    ),
    (
        "add-stateful http add http-header \"Host\" \"a.org\"",
        &[
            "35: `add` does not take `Host`: a request has exactly one (RFC 9112, section 3.2), which `mod http-host` writes",
        ],
    ),
    (
        "add-stateful http add http-header \"A\" \"b\\r\\nC: d\"",
        &[
            "39: the value of a header field holds no line ends and no other control characters; expected a text without them; several header fields are several targets",
        ],
    ),
    (
        "add-stateful http mod http-header \"A\" \"b\\0\\m\"",
        &[
            "39: the value of a header field holds no line ends and no other control characters; expected a text without them; several header fields are several targets",
        ],
    ),
    (
        "add-stateful http add http-header \"A\" \"\\m\"",
        &[
            "39: `\\m` stands for what `mod` replaces, and nothing is replaced here; expected a text without `\\m`; a backslash is `\\\\`",
        ],
    ),
    (
        "add-stateful http add http-header \"A\"",
        &["23: what is added to `http-header` is missing; expected a \"text\" or |bytes|"],
    ),
    (
        "add-stateful http mod http-header \"A\"",
        &["23: a value of `http-header` is missing; expected a \"text\" or |bytes|"],
    ),
    (
        "add-stateful http mod http-header \"mmb\"",
        &["23: a value of `http-header` is missing; expected a \"text\" or |bytes|"],
    ),
    (
        "add-stateful http mod http-header \"A:\" \"b\"",
        &["35: name and value of a header field are two texts; expected `http-header \"A\"`"],
    ),
    (
        "add-stateful http mod http-host \"\"",
        &["33: a request needs its `http-host`; expected at least one byte"],
    ),
    (
        "add-stateful http mod http-host \"a b\"",
        &["33: `http-host` is a name or an address; expected a host, with or without a port"],
    ),
    (
        "add-stateful http mod http-uri \"/a b\"",
        &[
            "32: `http-uri` holds neither blanks nor control characters, and only ASCII; expected an encoded text, such as `%20` for a blank",
        ],
    ),
    (
        "add-stateful http mod http-uri \"/\\m\\n\"",
        &[
            "32: `http-uri` holds neither blanks nor control characters, and only ASCII; expected an encoded text, such as `%20` for a blank",
        ],
    ),
    ("add-stateful http mod http-uri \"/a\" mod http-uri \"/b\"", &["37: `http-uri` is written already"]),
    (
        "add-stateful http-status 200 mod http-host \"a.org\"",
        &[
            "30: `mod http-host` can never apply: the head of the request has passed when the response is there for `http-status`; expected constraints on the request's head only",
        ],
    ),
    (
        "add-stateful http-body \"a\" mod http-uri \"/b\"",
        &[
            "28: `mod http-uri` can never apply: the head of the request has passed when a body is there for `http-body`; expected constraints on the request's head only",
        ],
    ),
    ("add all mod ip-ttl \"a\\m\"", &["20: `ip-ttl` takes no bytes; expected a number 0 to 255"]),
    (
        "add tcp-payload \"a\\m\" drop",
        &[
            "17: `\\m` stands for what `mod` replaces, and nothing is replaced here; expected a text without `\\m`; a backslash is `\\\\`",
        ],
    ),
    (
        "add-stateful stream \"\\q\" alert",
        &[
            "22: unknown escape; expected one of \\n \\r \\t \\0 \\\\ \\\", \\xNN with two hexadecimal digits, and \\m in what `mod` writes",
        ],
    ),
    ("add-stateful http close mask", &["29: a field is missing; expected a field of streams or `http-body`"]),
    (
        "add-stateful http remove http-header \"A\"",
        &["19: unknown word `remove`; expected a field, `!` or a target; did you mean `strip`?"],
    ),
    (
        "add-stateful tcp-dport {https, http} add http-header \"X-By\" \"mmb\"",
        &[
            "38: `add http-header` acts on messages of HTTP, and the rule asks for none; expected `http` once more: behind `tcp-dport` it is the number of a port",
        ],
    ),
    (
        "add-stateful tcp-dport 80 add http-header \"X-By\" \"mmb\"",
        &[
            "27: `add http-header` acts on messages of HTTP, and the rule asks for none; expected a constraint such as `http`",
        ],
    ),
    (
        "add-stateful stream /a{1,5000}/ mask stream",
        &[
            "21: a match of this regex has up to 5000 bytes, and an edit waits for its end: at most 4096 bytes; expected smaller bounds, such as `{0,200}`",
        ],
    ),
    (
        "add-stateful http mask stream",
        &[
            "14: a rule that edits `stream` searches nothing else; expected `stream \"TEXT\"` in the place of `http`, or `http-body \"TEXT\" mask http-body`",
        ],
    ),
    (
        "add-stateful tls-sni \"a.org\" mod stream \"b\"",
        &[
            "14: a rule that edits `stream` searches nothing else; expected `stream \"TEXT\"` in the place of `tls-sni`",
        ],
    ),
    (
        "add-stateful mask \"ATTACK\"",
        &[
            "19: what `mask` acts on is found by a constraint, and `mask` names its field; expected `stream \"ATTACK\" mask stream`, or the same with `http-body`",
        ],
    ),
    (
        "add-stateful mod \"ATTACK\" \"x\"",
        &[
            "18: what `mod` acts on is found by a constraint, and `mod` names its field; expected `stream \"ATTACK\" mod stream \"NEW\"`, or the same with `http-body`",
        ],
    ),
    (
        "add-stateful strip \"a\\\"b\"",
        &[
            "20: what `strip` acts on is found by a constraint, and `strip` names its field; expected `stream \"TEXT\" strip stream`, or the same with `http-body`",
        ],
    ),
    (
        "add-stateful http add http-header \"X-By: mmb\"",
        &["35: name and value of a header field are two texts; expected `http-header \"X-By\" \"mmb\"`"],
    ),
    ("set stream hold 10001", &["17: `10001` is no value of `stream hold`; expected 0 to 10000 ms"]),
    ("set stream hold-over drop", &["22: `drop` is no value of `stream hold-over`; expected pass or close"]),
];

#[test]
fn every_mistake_gets_its_words() {
    assert_words(MISTAKES);
}

/// Whoever copies a remedy must not get the next error.
#[test]
fn rules_in_remedies_are_taken() {
    let shown = assert_remedies_taken(MISTAKES);
    assert!(shown > 15, "{shown} remedies show rules");
}
