//! The chapters of the reference that no table holds.
//!
//! A chapter is plain text: paragraphs parted by empty lines, `## ` and `### ` before headings, `- ` before points of
//! lists, fences around code as in Markdown.

use super::block::{Block, CodeKind};

/// Adds the blocks of a chapter.
pub(super) fn push(blocks: &mut Vec<Block>, chapter: &str) {
    let mut lines = chapter.lines().peekable();
    while let Some(line) = lines.next() {
        if line.is_empty() {
            continue;
        }
        if let Some(fence) = line.strip_prefix("```") {
            let kind = if fence == "mmb" { CodeKind::Commands } else { CodeKind::Text };
            let code: Vec<_> = lines.by_ref().take_while(|line| *line != "```").collect();
            blocks.push(Block::Code(kind, code.join("\n")));
        } else if let Some(title) = line.strip_prefix("### ") {
            blocks.push(Block::Heading(3, title.to_owned()));
        } else if let Some(title) = line.strip_prefix("## ") {
            blocks.push(Block::Heading(2, title.to_owned()));
        } else {
            let mut items = vec![line.strip_prefix("- ").unwrap_or(line).to_owned()];
            while let Some(more) = lines.next_if(|line| !line.is_empty()) {
                match (more.strip_prefix("- "), items.last_mut()) {
                    (Some(item), _) => items.push(item.to_owned()),
                    (None, Some(last)) => {
                        last.push(' ');
                        last.push_str(more.trim_start());
                    }
                    (None, None) => {}
                }
            }
            let is_list = line.starts_with("- ");
            blocks.push(if is_list { Block::List(items) } else { Block::Paragraph(items.join(" ")) });
        }
    }
}

pub(super) const INTRODUCTION: &str = "The same commands work on the command line (`mmb add …`), at the prompt of \
    `mmb`, in policy files and on the control socket. A rule names the packets that it is about and says what happens \
    to them; every rule that matches a packet counts, not only the first.";

pub(super) const FILES: &str = "
A leading `mmb` may stand before every command. A policy file holds one command a line; `#` starts a comment (not inside
a \"text\"), and `\\` as the last character of a line joins the next one to it. A file is taken as a whole or not at all, and
all its errors (of more than 200 the first ones) are shown at once.

```mmb
# web traffic goes to the other port, and back
add name web tcp-dport 80 mod tcp-dport 8080
add name web-back \\
    tcp-sport 8080 mod tcp-sport 80
set poll spin
```
";

pub(super) const RULES: &str = "
```
add | add-stateless  [id N] [prio N] [name WORD]             MATCH…  TARGET…
add-stateful         [id N] [prio N] [name WORD] [draining]  MATCH…  TARGET…
replace              ID     [prio N] [name WORD]             MATCH…  TARGET…  [--kill]

MATCH   := all | [!] FIELD [ [COND] VALUE ] | [!] STREAMFIELD PATTERN | http | [!] http-header NAME [PATTERN]
COND    := == | != | < | <= | > | >=          without one: ==
PATTERN := \"TEXT\" | |BYTES| | /REGEX/[i] | @LIST | {PATTERN, …}
TARGET  := @TARGETS@
FIELD   := ip-ttl | … | tcp-opt KIND | http-header NAME
```

- All constraints of a rule must hold. `all`, as the only one, is every IP packet.
- A stateful rule with `draining` matches no packets: only the connections that it has made keep it, and it is deleted with the last of them.
  `del N --keep` has a rule drain (docs/nat.md).
- A field alone means that the packet has it. A flag alone means that it is set; `tcp-syn 0` or `! tcp-syn` that it is not.
- `!` negates the constraint behind it, within the packets that the field is about: `! tcp-opt-mss` is about TCP packets
  without an MSS option, `! ip-saddr 10.0.0.0/8` about IPv4 packets from elsewhere.
- For fields that a packet may lack, `!=` asks for the field with another value: `vlan-id != 5` is a tagged frame of another
  VLAN, `! vlan-id 5` also an untagged one, `! vlan-id` only an untagged one.
- Blanks between a field, a condition and a value may be left out: `tcp-dport>1023`, `!tcp-syn`.
- `id` is the rule's number, which `del` takes; without it the rule gets the next number above all that were used. A number
  never changes. Two rules cannot have one number.
- `replace ID` puts a rule in the place of another one in one step. It keeps the number, and is stateful if the other one is: a stateful rule takes
  over the connections of the one that it replaces, which end with `--kill`. Its counters begin at zero.
- `del name WORD` deletes every rule of that name.
- `prio` is 0 (best) to 4294967295, without it 100. `name` is for people.
- A rule that can match no packet, or whose target can never apply, is refused with the reason. One whose `accept` or `drop` never
  decides, because another rule has the better verdict for all of its packets, is not; `check` and `list` name both.
";

/// Forms of values and what they are.
pub(super) const VALUE_FORMS: &[(&str, &str)] = &[
    ("443", "a number"),
    ("0x1bb", "a number in hexadecimal"),
    ("x1bb", "the same"),
    ("http", "a name of a value that has one (see below)"),
    ("10.0.0.1", "an IPv4 address"),
    ("10.0.0.0/8", "an IPv4 prefix"),
    ("2001:db8::1", "an IPv6 address"),
    ("2001:db8::/32", "an IPv6 prefix"),
    ("1000-2000", "a range, both ends included"),
    ("10.0.0.1-10.0.0.9", "a range of addresses"),
    ("{80, 443, 8000-8080}", "a set: one of these"),
    ("\"GET /\"", "a text; its escapes are `\\n`, `\\r`, `\\t`, `\\0`, `\\\\`, `\\\"` and `\\xNN`"),
    ("\"<b>\\m</b>\"", "a text that `mod` writes into streams and HTTP: `\\m` is what it replaces"),
    ("|de ad be ef|", "bytes"),
    (
        "/cmd\\.exe/i",
        "a regex, of fields of streams only; `\\/` is a slash, `i` takes letters of ASCII in either case",
    ),
    (
        "@bad",
        "the elements of a named set (`set bad {…}`); of fields of streams, the patterns of a list (`patterns bad FILE`)",
    ),
];

pub(super) const VALUES: &str = "
Sets, ranges, prefixes, texts, bytes and names of ports are compared only with `==` and `!=`. A prefix whose address has bits
set behind its length is taken without them, with a note. A set holds numbers or bytes, not both.
";

pub(super) const SETS: &str = "
## Named sets

A named set holds addresses or numbers that any number of rules ask for as `@NAME`. A change of the set holds for all of them at once, with the next vector of packets, and no rule is
made anew for it; a set of a million prefixes costs a packet one or two memory accesses more than one of ten.

```mmb
set bad {10.0.0.0/8, 192.0.2.7 timeout 1h, 198.51.100.1-198.51.100.9, 2001:db8::/32}
set web {80, 443, 8000-8080}
set bad += {203.0.113.5 timeout 90s}                   # adds elements
set bad -= {10.0.0.0/8}                                # removes them
add ip-saddr @bad drop
add ip6-saddr @bad drop
add ! ip-saddr @bad tcp-dport @web accept
add tcp-dport != @web drop
del 4
del 3
del set web
```

- `set NAME {…}` makes the set or gives it other elements, `+=` adds some and `-=` removes some. `file FILE` stands in place of the braces: each line of the file has an element,
  and behind it maybe `timeout TIME`; what stands behind `#` or `;` is a comment. The client reads the file, as those of `patterns`; it has at most 64 MiB. `save` writes the elements.
- A set has IPv4 and IPv6 addresses, prefixes and ranges of them, or numbers of at most 32 bits and ranges of them. Elements may overlap: a packet's value is in the set if it is in
  some of them. `-=` takes elements as they were given, not parts of them. All sets together have at most 16,000,000 elements.
- A set of addresses is compared with fields of addresses: those of IPv4 see its IPv4 elements, those of IPv6 the others. A set of numbers is compared with fields of numbers that are wide
  enough for all of them. TCP options, payloads, names of ports, states and fields of streams are not compared with named sets. A set stands alone, without braces.
- A set is made before the rules that name it; its name is not the first word of a setting's. It cannot be deleted, nor get elements of the other kind, while rules name it. A policy
  file holds its sets: `apply` puts those of the file in force, and removes others.
- An element with a timeout goes when its time is over, at the latest a second later. Given again, it has its new time from then on, or stays if it is given without one. A time is a number of
  seconds, or of days, hours, minutes and seconds as in `1d12h`, at most 3650 days. `save` writes the times that are left. The times of a policy file begin when it is put in force; in `replay` and
  `explain`, which have no clock, elements stay.
- `show sets` lists the sets with their elements, memory and the rules that name them, `show set NAME` the elements of one and the times that they have left.
";

pub(super) const FIELDS: &str = "
Naming a field asks for packets that have it, negated or not: `tcp-dport 80` needs no `ip-proto tcp`, and is about IPv4 and IPv6
alike. Fields of TCP, UDP and ICMP do not match later fragments, which have no transport header; nor do payload fields other
than `ip-payload` and `ip6-payload`. Frames that are not IP match only rules with `eth-type`.

\"As is\" marks fields that are written last and taken as they are: lengths and checksums are not corrected behind them.
";

pub(super) const SEMANTICS: &str = "
## What a packet gets

Constraints look at the packet as it was received, before any rewriting.

- Among the `accept`, `drop` and `reject` rules that match, the best priority decides; on a tie `accept` wins. What exceeds a `limit` is dropped as by `drop`. With `prio` as the line
  number, an ordered list where the first match decides is exact.
- A dropped packet ends here, counted under `rule`; one that is rejected under `rule-reject`, and its sender is answered; one that exceeds a limit under `rule-limit`.
- Otherwise the other targets of all rules that match are applied in the order of priority and number, within a rule in the order
  written; of two that write one field the later wins.
- A packet that no rule matches passes untouched. Every rule that matches counts the packet and the bytes of its whole frame, also
  if the packet is dropped.

## How fields are looked at

- Up to four VLAN tags are walked (0x8100, 0x88a8, 0x9100). `vlan-id` is the outermost one's, `eth-type` what is behind all.
- `ip-proto` on IPv6 is the protocol behind all extension headers. An ESP header ends the walk: nothing behind it can be seen. In a
  later fragment it is what the fragment header announces. `ip6-next` is the byte of the fixed header.
- TCP options are read up to the end-of-list option or the first malformed one. `tcp-opt` alone is any option but padding (kinds
  0 and 1). Of several options of one kind, one that satisfies the constraint is enough. Data of 1 to 8 bytes compares as one
  big-endian number; longer or empty data satisfies no comparison with a number, not even `!=`. Bytes are compared as a whole.
- Payloads are compared at their beginning: `==` means begins with, `!=` that there is one which does not. A payload ends with the
  IP packet, or with the UDP length if that is less. For protocols other than TCP, UDP, ICMP and ICMPv6, `payload` is what follows the
  IP headers.

## How packets are rewritten

- A target about a field that the packet does not have does nothing, and does not narrow the match: `add all mod tcp-dport 1`
  leaves UDP alone.
- In-place fields are written first, then options, payloads, lengths and versions, and checksum fields last.
- Checksums are updated by what changed, not computed again: a packet that came in corrupt goes out corrupt. A UDP checksum of 0
  stays 0. The checksums of IPv4, TCP, UDP, ICMP and ICMPv6 are followed; those of DCCP and UDP-Lite, which cover addresses as
  well, are not.
- If options change in size, they are packed without padding between them, and the data offset, the IP length and the
  checksums follow. Nothing else of the packet moves. In fragments the size of the options area stays.
- An edit that cannot be made (`option-space`, `option-width`, `payload-short`, `fragment`, `no-room`) is left out and counted; the others are
  made.

## What is dropped before the rules

A packet that cannot be understood is dropped under one of these reasons: `link-truncated`, `vlan-stack-too-deep`,
`ip-bad-version`, `ip4-truncated`, `ip4-bad-length`, `ip4-bad-checksum`, `ip6-truncated`, `ip6-header-truncated`, `ip6-chain-too-long`,
`l4-truncated`, `tcp-bad-offset`, `tiny-fragment`. A packet larger than the MTU of the port that it leaves by is dropped as
`mtu-exceeded`, and its sender is told the MTU (`set mtu-errors`).

## Ports

Rules apply to every port; `in` and `out` name one. A rule that names a port which does not exist is refused when it is put in
force. Packets that come in by a port after `disable PORT` pass untouched and unlooked at until `enable PORT`. `mmb replay`
calls its ports `a` (in) and `b` (out) unless told otherwise.
";

pub(super) const CONNECTIONS: &str = "
## Connections

A packet that matches stateful rules (`add-stateful`), is not dropped and is of no connection yet makes one: of TCP, UDP, SCTP, DCCP or
UDP-Lite between two ports, of an ICMP or ICMPv6 query, of GRE with its key, or between two addresses with another protocol. Its rules are the stateful rules that this packet
matched. From then on the packets of both directions get these rules, with the stateless rules that they match themselves;
stateful rules that they would match later do not join.

- `map`, `shuffle`, `lb` and, in a stateful rule, `mod` of an address, a port, an identifier or a sequence number are mappings:
  packets from the initiator get the new value, replies get it reversed, both before other edits. All other targets of
  the connection's rules apply to the packets of both directions.
- A mapping of `ip-id` is written on packets with DF only: packets that may be fragmented keep the identification by which their fragments are reassembled (RFC 6864).
- Replies are recognized by their addresses and ports after the mapping. ICMP errors belong to the connection of the packet that they quote,
  and are translated with it.
- A packet from outside to an address and port that a mapping gave to an inside one makes a connection as well, without rules, if
  `nat filtering` lets its sender in. Two inside ends reach each other by their outside addresses and ports.
- Later fragments are of the connection of their first one. Where stateful rules are in force, those that come before it wait for it
  for a while; fragments whose first one does not come, that overlap or break another rule are dropped (`fragment-…`).
- Connections of one wire, or of one VLAN of it (`set conn zone`), are not seen on another. Replies come in by the wire's other port.
- A first packet that is refused is dropped: `conn-full` (there are `conn max` already, none of which makes room), `conn-no-memory`,
  `conn-not-syn` (`conn pickup strict`, or a RST, FIN or SYN-ACK that would be mapped, or what is alike in SCTP), `conn-invalid` (flags that no end sends, a
  wrong verification tag or checksum, likewise), `nat-no-address` or `nat-no-port` (none is left to map to),
  `nat-host-limit` (`nat ports-per-host`), `conn-per-source` (`conn per-source`), `nat-clash` (the one place that the rule allows is in use).
- An ICMP error that quotes a connection's ends, but does not go to the sender of the quoted packet, is not sound, or quotes a TCP segment that
  cannot be in flight, is dropped: `icmp-unrelated`. One about no connection is for the other rules.
- A packet that matches a stateful rule that maps, but is of no connection and begins none (an ICMP answer without a query, an error about no
  connection, another type of ICMP), is dropped: `nat-unsolicited`. Neighbour discovery and listener discovery of IPv6 pass.
- A change of the policy keeps connections. One whose rule was deleted continues without the rule's targets, except its translation, which the two ends depend on; `del ID --kill` ends it.
  The next packet of a connection that was ended is a first packet.

`show connections` and `conn kill` take a filter: words with a value each, all of which must hold. Source and destination are
those of packets from the initiator, before or after translation.
";

pub(super) const STREAMS: &str = "
## Streams

A stateful rule may also look at what a connection carries: `stream` at the bytes of both directions, each by itself, `stream-forward` and
`stream-reply` at those of one, `tls-sni` at the server name that a TLS client asks for. The other constraints select connections, by their first packets as
always; constraints on streams are decided later, on the bytes in their order, wherever packets begin and end. The datagrams of UDP are a stream in the order in
which they arrive. Targets that are no stream's (`map`, `mod` and others) apply to the connection from its first packet, whatever its bytes.

```mmb
patterns bad /etc/mmb/bad.txt                                       # one pattern a line
add-stateful tcp-dport http stream \"ATTACK\" alert \"seen\"          # told, and nothing else
add-stateful tcp-dport http stream-forward {/cmd\\.exe/i, |90 90 90 90|} close
add-stateful tcp-dport http stream-reply @bad drop
add-stateful tcp-dport https tls-sni \".example.com\" close           # the domain and all below it
add-stateful tcp-dport https ! tls-sni {\"a.org\", \"b.org\"} close   # no other server
add-stateful tcp-dport http digest
```

- The name `http` right behind a field of ports is port 80, elsewhere the field `http`.
- A pattern is a text or bytes, a regex, a list, or a set of these, of which one is enough. It is found anywhere in the stream. `! stream` and conditions
  but `==` are refused, since what is not there is known only at the end.
- Several constraints on streams in a rule must all have been found, in any order and each in its own direction; the last one to be found is the match. `alert` counts every
  match, `close` and `drop` act on the first. A rule with such a constraint needs one of the three or an edit; it cannot `accept`, which a packet's header decides.
- Regexes are over bytes: `.` is any byte but a line feed, `\\xff` a byte, `\\w` and the like are those of ASCII. There is no look-around and there are no
  back-references. `^` is the beginning of the stream. A regex that matches the empty string, that has more than 4,096 bytes, or that asks for the end of the stream (`$`) is refused.
- Of `tls-sni`, a text is the whole name, or with a leading dot the domain and all below it, in either case of letters; a regex searches the name, and `$` is its end. The lines of a list
  are such texts. `! tls-sni` holds if the client asks for another name, or for none; on a connection that does not begin as TLS neither holds.
- A rule with a constraint on a stream decides nothing by headers: it is never named among the rules that never decide.

### HTTP

The fields `http…` are about the messages of HTTP/1.0 and HTTP/1.1 that a TCP connection carries, on whatever port; its initiator is the client. The constraints on HTTP of
one rule are about one request and its response, an exchange: all of them must be met within it, and the next exchange begins anew.

```mmb
add-stateful tcp-dport http http-host \".example.com\" close              # the domain and all below it
add-stateful tcp-dport http ! http-host {\"a.org\", \"b.org\"} close        # an allow-list
add-stateful tcp-dport http http-method \"POST\" http-uri /\\.php$/ alert  # a regex searches
add-stateful tcp-dport http http-status >= 500 http-header \"Server\" alert
add-stateful tcp-dport http http-header \"User-Agent\" /curl/i http-body \"VIRUS\" drop
```

- `http` is any exchange. Of `http-method`, a text is the whole method, whose case counts. Of `http-uri`, a text is the beginning of the request target, without a
  scheme and an authority before the path; nothing is decoded. `http-status` is a number, of the response that is no interim one (1xx).
- Of `http-host`, a text is the whole name, or with a leading dot the domain and all below it, in either case of letters. The host is that of the request target, else that of
  the `Host` header field; its port and a dot at its end do not count.
- `http-header NAME` alone asks whether the request or the response has such a header field, in either case of letters. With patterns, a text is the whole value, without the
  blanks around it; of several header fields of the name one is enough.
- `http-body` is the body of the request or of the response, each by itself, without what frames it; it is searched anywhere.
- A regex searches, wherever a text is a whole or a beginning. `^` and `$` are both ends of what it searches; `$` is refused of bodies.
- `!` stands before `http-method`, `http-host` and `http-uri`, which are decided with the head of the request, before `http-status`, decided with that of the response, and
  before `http-header`: `! http-header` is decided with the head of the response, and holds if neither head has what is asked for. `! http-host` also holds for a request
  without a host.
- Where a connection is not, or no longer, of HTTP/1 (TLS, an HTTP/2 preface, behind CONNECT and 101), no constraint on HTTP holds, negated or not. What happens to messages whose
  borders are not certain, `set http unfit` says.

### Edits

A stateful rule may also change what its connections carry, by any number of bytes, while the two ends go on with each other.

```mmb
patterns badwords /etc/mmb/badwords.txt
add-stateful tcp-dport http stream-reply @badwords mask stream-reply    # ******
add-stateful tcp-dport http stream \"ATTACK\" mask stream \"BLOCKED\"       # as many bytes as were found
add-stateful udp-dport 5000 stream \"ATTACK\" strip stream                # removed
add-stateful tcp-dport 8000 stream /cmd\\.exe/i mod stream \"(gone: \\m)\"  # any length; \\m is what was found
add-stateful tcp-dport http http-body \"</body>\" mod http-body \"<p>hi</p>\\m\"
add-stateful tcp-dport http http-status 200 add http-body \"tail\"
add-stateful tcp-dport http http-header \"Server\" mod http-header \"Server\" \"mmb\"
add-stateful tcp-dport http http strip http-header \"Cookie\" add http-header \"X-By\" \"mmb\"
add-stateful tcp-dport http http-host \"old.org\" mod http-host \"new.org\" mod http-uri \"/old\\m\"
```

- `mask`, `mod` and `strip` of `stream`, `stream-forward`, `stream-reply` and `http-body` act on what the rule finds in that field: it has one constraint on it, a pattern or a
  set of them. Beside an edit of `stream…` it has no other constraint on what connections carry. A rule edits plain bytes or HTTP, not both.
- What is edited: the match that begins first; of those that begin at one byte the longest; of those the one of the rule with the best priority, then with the smaller number, then
  the one that stands first in the rule. Edits do not overlap, and what an edit wrote is not searched again. `close` and `drop` beat an edit that overlaps their match.
- A match that is edited has at most 4,096 bytes: a regex such as `<[^>]*>` is refused, `<[^>]{0,200}>` is not. Bytes that may be the beginning of a match wait for the rest, as
  long as `set stream hold` says.
- A text of an edit has at most 4,096 bytes; in one of `mod`, `\\m` is what it replaces (at most 16 times). The escapes are those of all texts.
- Edits of header fields, of `http-host` and `http-uri`, and `add http-body` need a constraint on HTTP, such as `http`. They act on every head of an exchange whose
  constraints are met when that head is complete: with `http` on requests and responses, with `http-status 200` on responses. Bodies are edited, and something is added at
  their end, if all other constraints of the rule are met with the head before them.
- Header fields are edited in the order written. `mod http-header` writes the value of every header field of the name and leaves a head without one alone; `\\m` is the old value. `add
  http-header` appends one, even if there is one of the name. Several `strip ! http-header` make a list of what stays.
- These header fields are not written, and `strip !` keeps them, whatever it names: @FIXED@. They frame messages, belong to one hop, or are written
  by `mod http-host`. Names are tokens; values hold no line ends and no other control characters.
- `mod http-host` writes the host of the `Host` header field, and of a request target that has one; the port stays unless the text has one. `mod http-uri` writes the request
  target, behind a scheme and an authority if there are any; it begins with `/`. `\\m` is the whole old host or target. Both need constraints that the head of a request meets.
- `add http-body` appends to bodies; a message that has none gets none. Lengths, chunks and validators follow a body that changes.
- `mod tls-sni` is refused: TLS protects its handshake. A rule that edits does not `close` or `drop`, which would end the connection at the same match.

### Lists of patterns

`patterns LIST FILE` reads a list from a file, and reads it again each time: rules that name it as `@LIST` have the new patterns then. A list is read before the rules that name
it, and stays until a policy file without it is applied.

- Each line is a text, byte by byte; it need not be UTF-8, and its blanks count. Lines end with LF or CRLF. Empty lines and lines that begin with `#` are left out, and nothing is
  an escape; a pattern that begins with `#` stands in a rule as a text.
- A file has at most 1,000,000 lines and 64 MiB, a line at most 2,048 bytes; 65,536 different texts can be searched for at the same time, and any number of names of servers; all lists together at most 4,000,000 patterns and 256 MiB.
- A name without a leading `/` is looked for beside the policy file, or for a command in the directory where it is given. A name with blanks is quoted.
- The client reads the file, with the rights of its user, and sends the content; at its start and on SIGHUP the daemon does. It is a regular file. `save` writes its name as a
  whole path, not its content.
";

pub(super) const STATES: &str = "
```
show connections ip-saddr 10.0.0.0/8 tcp-dport 443 state established verbose
conn kill rule 3
```
";

pub(super) const EXAMPLES: &str = "
```mmb
add all mod ip-ecn 0                                   # bleach ECN
add ip-proto udp drop
add ip-proto != udp ip-proto != tcp drop               # only TCP and UDP
add tcp-dport 80 mod tcp-dport 443
add tcp-dport {80, 443, 8000-8080} ip-saddr 10.0.0.0/8 accept
add tcp-opt-mss strip tcp-opt-mss
add tcp-opt-mss > 1500 mod tcp-opt-mss 1460            # clamp the MSS
add tcp-opt strip ! tcp-opt-mss                        # keep only the MSS option
add tcp-opt-timestamp strip all
add tcp-opt-timestamp strip ! tcp-opt-mss strip ! tcp-opt-wscale
add tcp-opt strip tcp-opt-mss strip tcp-opt-wscale
add tcp-opt ! tcp-opt-mss ! tcp-opt-wscale drop        # options, but neither of these two
add ! tcp-opt-mss ! tcp-opt-wscale drop
add tcp-opt 22 drop
add prio 10 in lan udp-dport dns accept
add prio 20 udp-payload \"\\x00\\x00\" drop 12.5
add ip6-eh-routing drop
add eth-type arp vlan-id 5 drop
add-stateful ip-proto tcp ip-saddr 10.0.0.0/24 accept
add-stateful ip-saddr 10.0.0.0/24 ip-proto tcp tcp-syn shuffle tcp-sport mod ip-saddr 200.0.0.1
add-stateful tcp-dport http stream-forward \"/etc/passwd\" close
add-stateful tcp-dport http http http-header \"Server\" strip http-header \"Server\"
add-stateful ip-daddr 192.0.2.1 tcp-dport 443 lb ip-daddr {10.0.0.1, 10.0.0.2} least
set conn max 200000
set timeout tcp-established 86400                      # seconds
set nat filtering endpoint-independent                 # for applications that unknown hosts are to reach
```
";
