"""Malformed packets are dropped under the reason; unusual but valid packets are not."""

from captures import RAW, Pcap, case, dropped, passes
from frames import A, B, ETH, ip, ip6, tcp, udp, with_bytes, with_u16
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, PadN
from scapy.layers.l2 import Dot1Q


def link():
    four = Dot1Q(vlan=1) / Dot1Q(vlan=2) / Dot1Q(vlan=3) / Dot1Q(vlan=4)
    yield case("malformed-link", "add all mod ip-ttl 1\nadd tcp-syn drop", [
        dropped(bytes(ETH)[:13], why="link-truncated"),
        dropped(b"", why="link-truncated"),
        dropped(bytes(ETH / Dot1Q(vlan=1))[:17], why="link-truncated"),
        dropped(ETH / four / Dot1Q(vlan=5) / IP(src=A, dst=B) / tcp(), why="vlan-stack-too-deep"),
    ])


def ip4():
    good = bytes(ip() / tcp(data=b"data"))

    def header(at, data):
        """The packet with other bytes in its IPv4 header, and a correct checksum."""
        frame = bytearray(with_bytes(good, at, data))
        size = 4 * (frame[14] & 15)
        frame[24:26] = b"\0\0"
        total = sum(int.from_bytes(frame[i:i + 2], "big") for i in range(14, 14 + max(size, 20), 2))
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        frame[24:26] = (0xFFFF ^ total).to_bytes(2, "big")
        return bytes(frame)

    yield case("malformed-ip4", "add ip-ttl 61 drop", [
        dropped(good, 1),
        dropped(header(14, b"\x55"), why="ip-bad-version"),
        dropped(header(14, b"\x65"), why="ip-bad-version"),
        dropped(good[:33], why="ip4-truncated"),
        dropped(header(14, b"\x44"), why="ip4-bad-length"),
        dropped(header(16, b"\x00\x13"), why="ip4-bad-length"),
        dropped(header(16, b"\x01\x00"), why="ip4-truncated"),
        dropped(with_u16(good, 24, 0xDEAD), why="ip4-bad-checksum"),
        dropped(with_bytes(good, 22, b"\x3c"), why="ip4-bad-checksum"),
    ])
    # Bad lengths inside IPv4 options are harmless: the length of the header bounds them.
    odd = ip(options=b"\x44\x00\x07\x01")
    yield case("odd-but-good", "add ip-ttl 61 accept", [
        passes(odd / tcp(), 1),
        passes(ip() / udp(b"data", len=3), 1),
        passes(ip() / udp(b"data", len=999), 1),
        passes(bytes(ip() / udp(b"data")) + b"a trailer", 1),
        passes(ip(ttl=0) / tcp()),
        passes(ip(proto=51) / b"AH is not walked on IPv4", 1),
    ])


def ip6_headers():
    chain = IPv6ExtHdrHopByHop(options=[PadN(optdata=b"\0" * 4)])
    yield case("malformed-ip6", "add all drop", [
        dropped(bytes(ip6() / tcp())[:53], why="ip6-truncated"),
        dropped(bytes(ip6() / tcp())[:60], why="ip6-truncated"),
        dropped(ip6(nh=0) / b"\x06\x01\x01\x04\0\0\0\0", why="ip6-header-truncated"),
        dropped(ip6(nh=44) / b"\x06\0\0\0", why="ip6-header-truncated"),
        dropped(ip6() / IPv6ExtHdrHopByHop(nh=6, options=[PadN(optdata=b"\0" * 4)]) / bytes(tcp())[:19], why="l4-truncated"),
        # The chain ends: encapsulated, or no next header.
        dropped(ip6(nh=50) / b"esp", 1),
        dropped(ip6(nh=59) / b"", 1),
    ])
    long = ip6()
    for _ in range(17):
        long = long / IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 4)])
    right = ip6()
    for _ in range(16):
        right = right / IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 4)])
    yield case("ip6-long-chain", "add tcp-dport 80 accept", [
        passes(right / tcp(), 1),
        dropped(long / tcp(), why="ip6-chain-too-long"),
    ])
    yield case("ip6-chain-bound", "add tcp-dport 80 accept\nset ip6-max-headers 1", [
        passes(ip6() / chain / tcp(), 1),
        dropped(ip6() / chain / IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 4)]) / tcp(), why="ip6-chain-too-long"),
    ], rules=[(1, "add tcp-dport 80 accept")])


def transport():
    segment = bytes(ip() / tcp())
    yield case("malformed-transport", "add all accept", [
        dropped(ip(proto=6) / bytes(tcp())[:19], why="l4-truncated"),
        dropped(ip(proto=17) / b"1234567", why="l4-truncated"),
        dropped(ip(proto=1) / b"1234567", why="l4-truncated"),
        dropped(ip6(nh=58) / b"1234567", why="l4-truncated"),
        dropped(with_bytes(segment, 46, b"\x40"), why="tcp-bad-offset"),
        dropped(with_bytes(segment, 46, b"\x60"), why="tcp-bad-offset"),
        # A first fragment must contain the whole transport header.
        dropped(ip(flags="MF", proto=6) / b"12345678", why="tiny-fragment"),
        dropped(ip6() / IPv6ExtHdrFragment(nh=6, m=1, id=1) / b"12345678", why="tiny-fragment"),
        passes(ip(frag=3, proto=6) / b"12345678", 1),
    ])


def raw():
    yield case("malformed-raw-ip", "add all accept", [
        dropped(b"", why="link-truncated"),
        dropped(b"\x55" + b"\0" * 39, why="ip-bad-version"),
        dropped(bytes(IP(src=A, dst=B) / tcp())[:19], why="ip4-truncated"),
        dropped(bytes(IPv6(src="::1", dst="::2") / tcp())[:39], why="ip6-truncated"),
        passes(IP(src=A, dst=B) / tcp(), 1),
    ], file=Pcap(RAW))


def cases():
    for group in (link, ip4, ip6_headers, transport, raw):
        yield from group()
