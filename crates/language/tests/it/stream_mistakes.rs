//! What is said about wrong constraints on streams, lists of patterns and settings of streams.

use crate::messages::assert_words;

/// Wrong commands and everything that is said about them: column and message.
const MISTAKES: &[(&str, &[&str])] = &[
    (
        "add stream \"a\" drop",
        &["5: `stream` is about the bytes of a connection: write `add-stateful` instead of `add`"],
    ),
    (
        "add tls-sni \"a.org\" drop",
        &["5: `tls-sni` is about the bytes of a connection: write `add-stateful` instead of `add`"],
    ),
    (
        "add all alert",
        &[
            "9: `alert` needs a rule that follows connections: write `add-stateful` instead of `add`",
            "9: `alert` acts on a match in a stream, and the rule searches for none; expected a constraint such as `stream \"TEXT\"`",
        ],
    ),
    (
        "add-stateful stream close",
        &["14: `stream` needs a pattern; expected a \"text\", |bytes|, a /regex/ or a @LIST"],
    ),
    (
        "add-stateful stream \"a\" accept",
        &[
            "25: `accept` is decided by a packet's header, long before `stream`; expected a rule of its own for `accept`",
        ],
    ),
    (
        "add-stateful stream \"a\" drop 5",
        &[
            "25: `stream` is found or not: its connection is dropped as a whole; expected `drop` without a percentage",
        ],
    ),
    (
        "add-stateful ! stream \"a\" close",
        &["14: `! stream` would be known only when the connection has ended; expected `stream` without `!`"],
    ),
    (
        "add-stateful stream != \"a\" close",
        &["21: `stream` is searched, not compared; expected the value right behind `stream`"],
    ),
    (
        "add-stateful tls-sni != \"a.org\" close",
        &["22: `tls-sni` is searched, not compared; expected `! tls-sni` before the value"],
    ),
    (
        "add-stateful stream > \"a\" close",
        &["21: `stream` is searched, not compared; expected the value right behind `stream`"],
    ),
    (
        "add-stateful stream \"\" close",
        &["21: an empty text is found everywhere; expected at least one byte"],
    ),
    (
        "add-stateful stream '\"x\"' close",
        &[
            "21: `'` is a quote of the shell, and has no place here; expected a \"text\", |bytes|, a /regex/ or a @LIST, a field, `!` or a target",
        ],
    ),
    ("add-stateful stream || close", &["21: an empty text is found everywhere; expected at least one byte"]),
    (
        "add-stateful stream GET close",
        &[
            "21: unknown word `GET`; expected a \"text\", |bytes|, a /regex/ or a @LIST, a field, `!` or a target; did you mean `\"GET\"`?",
        ],
    ),
    (
        "add-stateful stream {@a, GET} close",
        &["26: `GET` is no pattern; expected a \"text\", a /regex/ or a @LIST; did you mean `\"GET\"`?"],
    ),
    (
        "add-stateful stream @ close",
        &["21: `@` is no name of a list; expected at most 64 letters, digits, `-`, `_` and `.`"],
    ),
    (
        "add-stateful stream {} close",
        &["22: a member of the set is missing; expected a \"text\", |bytes|, a /regex/ or a @LIST"],
    ),
    (
        "add-stateful ip-proto icmp stream \"x\" close",
        &[
            "28: this rule can never match: `stream \"x\"` is about TCP and UDP packets, which `ip-proto icmp` excludes",
        ],
    ),
    (
        "add-stateful udp-dport 443 tls-sni \"a.org\" close",
        &[
            "28: this rule can never match: `udp-dport 443` is about UDP packets, `tls-sni \"a.org\"` about TCP packets",
        ],
    ),
    (
        "add-stateful tcp-dport 80 alert",
        &[
            "27: `alert` acts on a match in a stream, and the rule searches for none; expected a constraint such as `stream \"TEXT\"`",
        ],
    ),
    (
        "add-stateful tcp-dport 80 close",
        &[
            "27: `close` acts on a match in a stream, and the rule searches for none; expected a constraint such as `stream \"TEXT\"`",
        ],
    ),
    (
        "add-stateful stream \"a\" digest",
        &[
            "14: nothing acts on a match of `stream`; expected `alert`, `close`, `drop` or an edit of what is found in the rule",
        ],
    ),
    ("add-stateful stream \"a\" close drop", &["31: a rule drops or closes, not both"]),
    ("add-stateful stream \"a\" drop close", &["30: a rule drops or closes, not both"]),
    (
        "add-stateful stream \"a\" alert \"\"",
        &["31: an empty text says nothing; expected a short text in quotes, or `alert` alone"],
    ),
    ("add-stateful stream \"a\" alert \"x", &["31: this text has no end; expected a closing `\"`"]),
    (
        "add-stateful stream \"a\" log",
        &[
            "14: nothing acts on a match of `stream`; expected `alert`, `close`, `drop` or an edit of what is found in the rule",
            "25: `log` tells of packets, and `stream` is found in the bytes of a connection; expected `alert`, which tells of a match",
        ],
    ),
    (
        "add all log \"\"",
        &["13: an empty text says nothing; expected a short text in quotes, or `log` alone"],
    ),
    ("add all log log \"again\"", &["13: `log` is given twice"]),
    ("add all nflog", &["9: unknown word `nflog`; expected a field, `!` or a target; did you mean `log`?"]),
    ("add-stateful stream \"a\" alert alert", &["31: `alert` is given twice"]),
    ("add-stateful tcp-dport 80 digest digest", &["34: `digest` is given twice"]),
    ("add-stateful tcp-dport 21 helper", &["33: the helper of `helper` is missing; expected `ftp`"]),
    ("add-stateful tcp-dport 21 helper accept", &["34: the helper of `helper` is missing; expected `ftp`"]),
    (
        "add-stateful tcp-dport 21 helper fpt",
        &["34: `fpt` is no helper of `helper`; expected `ftp`; did you mean `ftp`?"],
    ),
    ("add-stateful tcp-dport 21 helper ftp helper ftp", &["38: `helper` is given twice"]),
    (
        "add tcp-dport 21 helper ftp",
        &["18: `helper` needs a rule that follows connections: write `add-stateful` instead of `add`"],
    ),
    (
        "add-stateful udp-dport 21 helper ftp",
        &[
            "27: this target can never apply: `udp-dport 21` is about UDP packets, `tcp-flags` about TCP packets",
        ],
    ),
    (
        "add-stateful tcp-dport 21 stream \"a\" alert helper ftp",
        &[
            "44: `helper` is for whole connections, whatever `stream` finds in them; expected a rule of its own for `helper`",
        ],
    ),
    (
        "add-stateful stream /a close",
        &["21: this regex has no end; expected a closing `/`; a slash of the regex is `\\/`"],
    ),
    (
        "add-stateful stream /a/x close",
        &[
            "24: `x` means nothing behind a regex; expected `i` (letters in either case) or nothing; a slash of the regex is `\\/`",
        ],
    ),
    (
        "add-stateful stream /a*/ close",
        &["21: this regex matches the empty string, which is everywhere; expected a regex that needs a byte"],
    ),
    (
        "add-stateful stream /(a/ close",
        &[
            "21: this regex is not understood: unclosed group; expected a regex over bytes, with `\\/` for a slash",
        ],
    ),
    (
        "add-stateful stream /a(?=b)/ close",
        &[
            "21: this regex is not understood: look-around, including look-ahead and look-behind, is not supported; expected a regex over bytes, with `\\/` for a slash",
        ],
    ),
    (
        "add-stateful stream /(a)\\1/ close",
        &[
            "21: this regex is not understood: backreferences are not supported; expected a regex over bytes, with `\\/` for a slash",
        ],
    ),
    (
        "add-stateful stream /a$/ close",
        &[
            "21: `$` asks for the end of the stream, which is known only when the connection is over; expected the regex without `$`",
        ],
    ),
    (
        "add payload /a/ drop",
        &["13: `/a/` is neither a text nor bytes; expected a \"text\" or |bytes|; did you mean `\"/a/\"`?"],
    ),
    (
        "add-stateful tls-sni \"*.a.org\" close",
        &[
            "22: `*.a.org`: a leading dot stands for the domain and all below it; expected `.example.com` for `*.example.com`",
        ],
    ),
    (
        "add-stateful tls-sni \"a.org.\" close",
        &["22: `a.org.`: server names have no dot at the end (RFC 6066); expected the name without it"],
    ),
    (
        "add-stateful tls-sni \"é.org\" close",
        &["22: `é.org`: server names are sent in ASCII (RFC 6066); expected its form with `xn--`"],
    ),
    (
        "add-stateful tls-sni \"a b\" close",
        &["22: `a b` is no host name; expected a name such as `www.example.com`, or `.example.com`"],
    ),
    (
        "patterns",
        &["9: the name of a list is missing; expected a word, by which rules name the list as @LIST"],
    ),
    (
        "patterns @bad f",
        &[
            "10: `@bad` is no name of a list; expected at most 64 letters, digits, `-`, `_` and `.`; did you mean `bad`?",
        ],
    ),
    (
        "patterns bad",
        &["13: the name of a file is missing; expected a word, or a \"text\" if the name has blanks"],
    ),
    ("patterns bad f g", &["16: nothing more follows `patterns LIST FILE`; expected the end of the command"]),
    (
        "patterns b/d f",
        &["10: `b/d` is no name of a list; expected at most 64 letters, digits, `-`, `_` and `.`"],
    ),
    ("patterns bad f", &["14: f: files of patterns are not read here"]),
    ("set stream window 5", &["19: `5` is no value of `stream window`; expected 64 to 16384 KiB"]),
    (
        "set stream memory 5 MiB",
        &["21: nothing more follows `set NAME VALUE`; expected the end of the command"],
    ),
];

#[test]
fn every_mistake_gets_its_words() {
    assert_words(MISTAKES);
}
