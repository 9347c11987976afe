"""Checksums are updated by the difference: an absent one stays absent, a wrong one stays wrong by the same amount; payloads;
fields without correction."""

from captures import becomes, case, dropped, passes
from frames import (
    NOP, icmp, ip, ip6, mss, spoiled, tcp, timestamp, u16, udp, with_bytes, with_u16, wscale,
)
from scapy.layers.inet6 import ICMPv6EchoRequest

# Offsets in an Ethernet frame without tags.
IP_SUM, UDP_SUM, TCP_SUM, ICMP_SUM = 14 + 10, 34 + 6, 34 + 16, 34 + 2
UDP6_SUM, TCP6_SUM, ICMP6_SUM = 54 + 6, 54 + 16, 54 + 2


def wrong_stays_wrong():
    redirect = "add tcp-dport 80 mod tcp-dport 8080 mod ip-saddr 192.0.2.9\nadd udp-dport 53 mod udp-dport 54 mod ip-saddr 192.0.2.9"
    moved = {"src": "192.0.2.9"}
    yield case("checksum-wrong-stays-wrong", redirect, [
        becomes(spoiled(ip() / tcp(data=b"odd"), TCP_SUM), spoiled(ip(**moved) / tcp(data=b"odd", dport=8080), TCP_SUM), 1),
        becomes(spoiled(ip() / udp(b"odd"), UDP_SUM), spoiled(ip(**moved) / udp(b"odd", dport=54), UDP_SUM), 2),
        becomes(spoiled(ip6() / tcp(), TCP6_SUM), spoiled(ip6() / tcp(dport=8080), TCP6_SUM), 1),
        becomes(spoiled(ip6() / udp(b"even"), UDP6_SUM, 1), spoiled(ip6() / udp(b"even", dport=54), UDP6_SUM, 1), 2),
    ])
    yield case("checksum-wrong-stays-wrong-icmp", "add icmp-type 8 mod icmp-code 1\nadd icmp6-type 128 mod icmp6-code 1", [
        becomes(spoiled(ip() / icmp(), ICMP_SUM), spoiled(ip() / icmp(code=1), ICMP_SUM), 1),
        becomes(spoiled(ip6() / ICMPv6EchoRequest(data=b"x"), ICMP6_SUM),
                spoiled(ip6() / ICMPv6EchoRequest(data=b"x", code=1), ICMP6_SUM), 2),
    ], rules=[(1, "add icmp-type echo-request mod icmp-code 1"), (2, "add icmp6-type echo-request mod icmp6-code 1")])
    yield case("checksum-wrong-stays-wrong-options", "add all strip tcp-opt-timestamp", [
        becomes(spoiled(ip() / tcp(mss(1460) + NOP * 2 + timestamp(), b"odd"), TCP_SUM),
                spoiled(ip() / tcp(mss(1460), b"odd"), TCP_SUM), 1),
    ])
    # The rule writes the value that is there: nothing changes, not even a checksum with two representations.
    odd_zero = with_u16(ip() / tcp(), TCP_SUM, 0xFFFF)
    yield case("checksum-untouched", "add all mod ip-ttl 61 mod tcp-dport 80 mod udp-dport 53", [
        passes(odd_zero, 1),
        passes(with_u16(ip() / udp(b"x"), UDP_SUM, 0xFFFF), 1),
        passes(spoiled(ip() / tcp(), TCP_SUM), 1),
    ])


def udp_without():
    def none(packet, at=UDP_SUM):
        return with_u16(packet, at, 0)

    yield case("udp-checksum-none", "add udp-dport 53 mod udp-dport 54 mod ip-saddr 192.0.2.9 mod udp-payload |00|", [
        becomes(none(ip() / udp(b"xy")), none(ip(src="192.0.2.9") / udp(b"\0y", dport=54)), 1),
        becomes(none(ip6() / udp(b"xy"), UDP6_SUM), none(ip6() / udp(b"\0y", dport=54), UDP6_SUM), 1),
    ])
    # The port that makes the sum zero, which UDP writes as all ones.
    base = ip() / udp(b"xy", dport=0)
    port = u16(base, UDP_SUM)
    zero = with_u16(with_u16(base, 36, port), UDP_SUM, 0xFFFF)
    yield case("udp-checksum-zero-is-all-ones", f"add all mod udp-dport {port}", [
        becomes(ip() / udp(b"xy", dport=7), zero, 1),
    ])


def payloads():
    yield case("payload-mod", 'add udp-payload "GET" mod udp-payload "PUT"\nadd tcp-payload "abc" mod payload |00 01|', [
        becomes(ip() / udp(b"GET /"), ip() / udp(b"PUT /"), 1),
        becomes(ip6() / udp(b"GET"), ip6() / udp(b"PUT"), 1),
        passes(ip() / udp(b"GE")),
        passes(ip() / udp(b"get /")),
        becomes(ip() / tcp(NOP * 2 + timestamp(), b"abcde"), ip() / tcp(NOP * 2 + timestamp(), b"\0\1cde"), 2),
        passes(ip() / tcp(data=b"ab")),
    ])
    yield case("payload-short", 'add all mod payload "four"', [
        becomes(ip() / udp(b"12345"), ip() / udp(b"four5"), 1),
        becomes(ip() / icmp(b"1234"), ip() / icmp(b"four"), 1),
        becomes(ip6() / ICMPv6EchoRequest(data=b"1234"), ip6() / ICMPv6EchoRequest(data=b"four"), 1),
        becomes(ip(proto=89) / b"12345", ip(proto=89) / b"four5", 1),
        passes(ip() / udp(b"123"), 1),
        passes(ip() / tcp(), 1),
    ], not_applied={"payload-short": 2})
    yield case("payload-match", "\n".join([
        "add tcp-payload mod ip-ttl 1",
        "add ! tcp-payload mod ip-ttl 2",
        'add udp-payload != "GET" mod ip-ttl 3',
        'add ! udp-payload "GET" mod ip-id 4',
    ]), [
        becomes(ip() / tcp(data=b"x"), ip(ttl=1) / tcp(data=b"x"), 1),
        becomes(ip() / tcp(), ip(ttl=2) / tcp(), 2),
        # A trailer does not belong to the payload.
        becomes(bytes(ip() / tcp()) + b"\0" * 6, bytes(ip(ttl=2) / tcp()) + b"\0" * 6, 2),
        passes(ip() / udp(b"GET /")),
        becomes(ip() / udp(b"PUT /"), ip(ttl=3, id=4) / udp(b"PUT /"), 3, 4),
        becomes(ip() / udp(b"GE"), ip(ttl=3, id=4) / udp(b"GE"), 3, 4),
        becomes(ip() / udp(), ip(id=4) / udp(), 4),
        # The UDP length ends the payload before the packet does.
        becomes(ip() / udp(b"GET", len=10), ip(ttl=3, id=4) / udp(b"GET", len=10), 3, 4),
    ])
    yield case("ip-payload", "add ip-payload |00 35| drop\nadd ip6-payload |06| mod ip6-hop-limit 1", [
        dropped(ip() / udp(b"x", sport=53), 1),
        passes(ip() / udp(b"x")),
        passes(ip6() / udp(b"x")),
        becomes(ip6(nh=0) / b"\x06\x00\x01\x04\0\0\0\0" / bytes(ip6() / tcp())[54:],
                ip6(nh=0, hlim=1) / b"\x06\x00\x01\x04\0\0\0\0" / bytes(ip6() / tcp())[54:], 2),
        # A later fragment has no transport header, but an IP payload.
        dropped(ip(frag=3, proto=17) / b"\x00\x35abc", 1),
    ])


def as_they_are():
    def ip_field(packet, at, new):
        """IP header bytes, written without changes; the checksum is updated."""
        changed = with_bytes(packet, at, new)
        return with_u16(changed, IP_SUM, header_sum(changed))

    def header_sum(frame):
        words = sum(u16(frame, at) for at in range(14, 34, 2) if at != IP_SUM)
        while words >> 16:
            words = (words & 0xFFFF) + (words >> 16)
        return 0xFFFF ^ words

    plain = bytes(ip() / tcp(data=b"data"))
    yield case("raw-checksums", "\n".join([
        "add tcp-dport 80 mod tcp-checksum 0x1234 mod ip-checksum 0x5678 mod tcp-win 1",
        "add udp-dport 53 mod udp-checksum 0 mod ip-ttl 3",
        "add icmp-type 8 mod icmp-checksum 1",
        "add icmp6-type 128 mod icmp6-checksum 65535",
    ]), [
        becomes(plain, with_u16(with_u16(ip() / tcp(data=b"data", window=1), TCP_SUM, 0x1234), IP_SUM, 0x5678), 1),
        becomes(ip() / udp(b"x"), with_u16(ip(ttl=3) / udp(b"x"), UDP_SUM, 0), 2),
        becomes(ip() / icmp(), with_u16(ip() / icmp(), ICMP_SUM, 1), 3),
        becomes(ip6() / ICMPv6EchoRequest(), with_u16(ip6() / ICMPv6EchoRequest(), ICMP6_SUM, 65535), 4),
    ], rules=[
        (1, "add tcp-dport 80 mod tcp-checksum 0x1234 mod ip-checksum 0x5678 mod tcp-win 1"),
        (2, "add udp-dport 53 mod udp-checksum 0x0000 mod ip-ttl 3"),
        (3, "add icmp-type echo-request mod icmp-checksum 0x0001"),
        (4, "add icmp6-type echo-request mod icmp6-checksum 0xffff"),
    ])
    yield case("raw-ip-len", "add all mod ip-len 1000", [becomes(plain, ip_field(plain, 16, b"\x03\xe8"), 1)])
    yield case("raw-ip-ver", "add all mod ip-ver 15", [becomes(plain, ip_field(plain, 14, b"\xf5"), 1)])
    yield case("raw-ip-ihl", "add all mod ip-ihl 15", [becomes(plain, ip_field(plain, 14, b"\x4f"), 1)])
    six = bytes(ip6() / tcp())
    yield case("raw-ip6", "add all mod ip6-ver 5 mod ip6-len 9", [
        becomes(six, with_u16(with_bytes(six, 14, bytes([0x50 | six[14] & 0x0F])), 18, 9), 1),
    ])
    longer = with_u16(ip() / udp(b"abcd"), 38, 9)
    # The length is in the sum twice: in the header and in the pseudo header.
    yield case("raw-udp-len", "add all mod udp-len 9", [
        becomes(ip() / udp(b"abcd"), with_u16(longer, UDP_SUM, minus(u16(ip() / udp(b"abcd"), UDP_SUM), 0xFFFF - 2 * 3)), 1),
    ])
    shorter = with_bytes(plain, 34 + 12, b"\xf0")
    # Data offset and flags are one word: 0x5002 becomes 0xf002.
    yield case("raw-tcp-offset", "add all mod tcp-offset 15", [
        becomes(plain, with_u16(shorter, TCP_SUM, minus(u16(plain, TCP_SUM), 0xA000)), 1),
    ])
    # Options are edited at their place, even if the offset is changed afterwards.
    edited = bytes(ip() / tcp(wscale(7) + NOP))
    stripped = bytes(ip() / tcp())
    yield case("raw-tcp-offset-after-options", "add all strip tcp-opt-wscale mod tcp-offset 6", [
        becomes(edited, with_u16(with_bytes(stripped, 46, b"\x60"), TCP_SUM, minus(u16(stripped, TCP_SUM), 0x1000)), 1),
    ])


def minus(checksum, growth):
    """The checksum of data that has increased by a number (in ones' complement)."""
    total = (0xFFFF ^ checksum) + growth
    total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF ^ total


def cases():
    for group in (wrong_stays_wrong, udp_without, payloads, as_they_are):
        yield from group()
