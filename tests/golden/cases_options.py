"""TCP options: stripped, kept, added, changed; duplicates, padding, malformed areas, fragments, trailers."""

import struct

from captures import RAW, Pcap, becomes, case, dropped, passes
from frames import (
    A, A6, B, EOL, NOP, SACKP, ip, ip6, mss, option, tcp, timestamp, udp, wscale,
)
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, PadN

SYN = mss(1460) + SACKP + timestamp() + NOP + wscale(7)


def stripping():
    yield case("option-strip-in-the-middle", "add all strip tcp-opt-timestamp", [
        becomes(ip() / tcp(SYN), ip() / tcp(mss(1460) + SACKP + wscale(7) + b"\0" * 3), 1),
        becomes(ip() / tcp(NOP * 2 + timestamp(), b"odd", flags="A"), ip() / tcp(data=b"odd", flags="A"), 1),
        becomes(ip6() / IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 4)]) / tcp(NOP * 2 + timestamp()),
                ip6() / IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 4)]) / tcp(), 1),
        passes(ip() / tcp(mss(1460) + NOP * 4), 1),
        passes(ip() / udp(b"x"), 1),
    ])
    yield case("option-strip-duplicates", "add tcp-opt-mss strip tcp-opt-mss", [
        becomes(ip() / tcp(mss(1) + wscale(7) + mss(2) + mss(3) + NOP), ip() / tcp(wscale(7) + b"\0"), 1),
    ])
    yield case("option-strip-by-number", "add tcp-opt 253 strip tcp-opt 253 strip tcp-opt-sackp", [
        becomes(ip() / tcp(option(253, b"1234") + SACKP), ip() / tcp(), 1),
        passes(ip() / tcp(SACKP + NOP * 2)),
    ])
    # After an end-of-list mark there are no options, and a rebuilt area ends at the last one.
    yield case("option-behind-the-end", "add tcp-opt strip tcp-opt-wscale", [
        passes(ip() / tcp(mss(1460) + EOL + wscale(7)), 1),
        becomes(ip() / tcp(wscale(7) + SACKP + EOL + mss(9)[:2]), ip() / tcp(SACKP + b"\0\0"), 1),
        passes(ip() / tcp(EOL + wscale(7))),
    ])
    # A malformed option ends parsing; the bytes from there on stay unchanged, after the options.
    broken, short = b"\x05\x01\xaa\xbb", b"\x05\x01"
    yield case("option-malformed-tail", "add tcp-opt-mss strip tcp-opt-mss", [
        becomes(ip() / tcp(mss(1460) + broken), ip() / tcp(broken), 1),
        becomes(ip() / tcp(mss(1460) + SACKP + short), ip() / tcp(SACKP + short), 1),
        passes(ip() / tcp(broken + mss(1460))),
    ])
    yield case("option-malformed-tail-cleared", "add tcp-opt strip all", [
        becomes(ip() / tcp(SACKP + short), ip() / tcp(), 1),
    ])
    yield case("option-strip-with-trailer", "add all strip tcp-opt-timestamp", [
        becomes(bytes(ip() / tcp(NOP * 2 + timestamp())) + b"trailer", bytes(ip() / tcp()) + b"trailer", 1),
    ])
    yield case("option-strip-raw-ip", "add all strip tcp-opt-timestamp", [
        becomes(IP(src=A, dst=B) / tcp(NOP * 2 + timestamp()), IP(src=A, dst=B) / tcp(), 1),
        becomes(IPv6(src=A6, dst=A6) / tcp(NOP * 2 + timestamp()), IPv6(src=A6, dst=A6) / tcp(), 1),
    ], file=Pcap(RAW))


def adding():
    yield case("option-add", "add tcp-syn add tcp-opt-mss 1400", [
        becomes(ip() / tcp(), ip() / tcp(mss(1400)), 1),
        becomes(ip() / tcp(data=b"odd"), ip() / tcp(mss(1400), b"odd"), 1),
        becomes(ip6() / tcp(wscale(7) + NOP), ip6() / tcp(wscale(7) + mss(1400) + b"\0"), 1),
        becomes(ip() / tcp(mss(1460)), ip() / tcp(mss(1460) + mss(1400)), 1),
        passes(ip() / tcp(flags="A")),
    ])
    yield case("option-add-each-sort", "\n".join([
        "add tcp-dport 1 add tcp-opt-sackp",
        "add tcp-dport 2 add tcp-opt-wscale 7",
        "add tcp-dport 3 add tcp-opt-timestamp 72623859790382856",
        "add tcp-dport 4 add tcp-opt 253 |de ad be ef 00|",
        "add tcp-dport 5 add tcp-opt 254",
        'add tcp-dport 6 add tcp-opt-fast-open "cookie!!"',
    ]), [
        becomes(ip() / tcp(dport=1), ip() / tcp(SACKP + b"\0\0", dport=1), 1),
        becomes(ip() / tcp(dport=2), ip() / tcp(wscale(7) + b"\0", dport=2), 2),
        becomes(ip() / tcp(dport=3), ip() / tcp(timestamp() + b"\0\0", dport=3), 3),
        becomes(ip() / tcp(dport=4), ip() / tcp(option(253, b"\xde\xad\xbe\xef\0") + b"\0", dport=4), 4),
        becomes(ip() / tcp(dport=5), ip() / tcp(option(254) + b"\0\0", dport=5), 5),
        becomes(ip() / tcp(dport=6), ip() / tcp(option(34, b"cookie!!") + b"\0\0", dport=6), 6),
    ])
    full, nearly = timestamp() * 4, timestamp() * 3 + option(253, b"1234")
    yield case("option-add-no-space", "add all add tcp-opt-mss 1400 mod tcp-win 1", [
        # The other target of the rule applies.
        becomes(ip() / tcp(full), ip() / tcp(full, window=1), 1),
        becomes(ip() / tcp(nearly), ip() / tcp(nearly + mss(1400), window=1), 1),
    ], not_applied={"option-space": 1})
    yield case("option-add-after-strip", "add all strip tcp-opt-timestamp\nadd all add tcp-opt-mss 1400", [
        becomes(ip() / tcp(full), ip() / tcp(mss(1400)), 1, 2),
        becomes(ip() / tcp(NOP * 2 + timestamp() + SACKP + NOP * 2), ip() / tcp(SACKP + mss(1400) + b"\0\0"), 1, 2),
    ])


def changing():
    yield case("option-mod-in-place", "add tcp-opt-wscale >= 8 mod tcp-opt-wscale 7", [
        becomes(ip() / tcp(NOP + wscale(14) + b"\0" * 4), ip() / tcp(NOP + wscale(7) + b"\0" * 4), 1),
        passes(ip() / tcp(NOP + wscale(7))),
    ])
    yield case("option-mod-duplicates", "add all mod tcp-opt-mss 1000", [
        becomes(ip() / tcp(mss(1) + NOP * 4 + mss(2)), ip() / tcp(mss(1000) + NOP * 4 + mss(1000)), 1),
        passes(ip() / tcp(wscale(7) + NOP), 1),
        passes(ip() / tcp(), 1),
    ])
    yield case("option-mod-width", "add all mod tcp-opt 253 258", [
        becomes(ip() / tcp(option(253, b"\0\0\0\0\0\0")), ip() / tcp(option(253, b"\0\0\0\0\x01\x02")), 1),
        becomes(ip() / tcp(option(253, b"ab")), ip() / tcp(option(253, b"\x01\x02")), 1),
        passes(ip() / tcp(option(253, b"a") + NOP), 1),
        passes(ip() / tcp(option(253) + NOP * 2), 1),
    ], not_applied={"option-width": 2})
    yield case("option-mod-bytes", "add all mod tcp-opt 253 |01 02 03|", [
        becomes(ip() / tcp(option(253, b"abc") + NOP * 3), ip() / tcp(option(253, b"\1\2\3") + NOP * 3), 1),
        becomes(ip() / tcp(NOP + option(253, b"a")), ip() / tcp(option(253, b"\1\2\3") + b"\0" * 3), 1),
        becomes(ip() / tcp(option(253, b"123456") + mss(5), b"x"),
                ip() / tcp(option(253, b"\1\2\3") + mss(5) + b"\0" * 3, b"x"), 1),
    ])


def matching():
    yield case("option-match-number", "\n".join([
        "add tcp-opt-mss 1460 mod ip-ttl 1",
        "add tcp-opt-mss != 1460 mod ip-ttl 2",
        "add ! tcp-opt-mss 1460 mod ip-id 3",
    ]), [
        becomes(ip() / tcp(mss(1460)), ip(ttl=1) / tcp(mss(1460)), 1),
        becomes(ip() / tcp(mss(1461)), ip(ttl=2, id=3) / tcp(mss(1461)), 2, 3),
        becomes(ip() / tcp(mss(1461) + mss(1460)), ip(ttl=2) / tcp(mss(1461) + mss(1460)), 1, 2),
        becomes(ip() / tcp(), ip(id=3) / tcp(), 3),
        passes(ip() / udp(b"x")),
    ])
    yield case("option-match-data", "\n".join([
        "add tcp-opt 253 |aa bb| drop",
        "add tcp-opt 254 > 5 drop",
        "add tcp-opt 255 != |aa| drop",
    ]), [
        dropped(ip() / tcp(option(253, b"\xaa\xbb")), 1),
        passes(ip() / tcp(option(253, b"\xaa\xbb\xcc") + NOP * 3)),
        passes(ip() / tcp(option(253, b"\xaa") + NOP)),
        dropped(ip() / tcp(option(254, b"\0\6")), 2),
        passes(ip() / tcp(option(254, b"\5") + NOP)),
        # Numbers have one to eight bytes.
        passes(ip() / tcp(option(254) + NOP * 2)),
        passes(ip() / tcp(option(254, b"\xff" * 9) + NOP)),
        dropped(ip() / tcp(option(254, b"\xff" * 8) + NOP * 2), 2),
        dropped(ip() / tcp(option(255) + NOP * 2), 3),
        passes(ip() / tcp(option(255, b"\xaa") + NOP)),
    ])
    yield case("option-match-any", "add tcp-opt mod ip-ttl 1\nadd ! tcp-opt mod ip-ttl 2", [
        becomes(ip() / tcp(SACKP + NOP * 2), ip(ttl=1) / tcp(SACKP + NOP * 2), 1),
        becomes(ip() / tcp(NOP * 4), ip(ttl=2) / tcp(NOP * 4), 2),
        becomes(ip() / tcp(EOL * 4), ip(ttl=2) / tcp(EOL * 4), 2),
        becomes(ip() / tcp(), ip(ttl=2) / tcp(), 2),
        passes(ip() / udp(b"x")),
    ])


def in_fragments():
    def first(options):
        """The first 64 bytes after the IP header of a longer segment."""
        whole = IP(src=A, dst=B) / tcp(options, b"p" * 200)
        return ip(id=9, flags="MF", proto=6) / bytes(whole)[20:84]

    yield case("option-in-first-fragment", "add all strip tcp-opt-timestamp", [
        becomes(first(SYN), first(mss(1460) + SACKP + wscale(7) + b"\0" * 11), 1),
    ])
    yield case("option-add-in-first-fragment", "add all add tcp-opt-mss 1400", [
        passes(first(b""), 1),
    ], not_applied={"fragment": 1})
    tail = struct.pack("!HHII", 1, 2, 3, 4) + b"later fragments have no options"
    yield case("option-in-later-fragment", "add tcp-opt-mss drop\nadd all strip all", [
        passes(ip(id=9, frag=8, proto=6) / tail, 2),
    ])


def cases():
    for group in (stripping, adding, changing, matching, in_fragments):
        yield from group()
