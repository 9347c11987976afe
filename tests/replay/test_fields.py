"""Every field, checked with scapy: scapy reads the value that `mod` writes, every checksum is the one that scapy computes, and
nothing else has changed; every condition matches exactly if scapy's value satisfies it."""

import json
import operator
import re
from pathlib import Path

import fields
import pytest
from captures import replay
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

ETH = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
FLAGS = {"fin": 0, "syn": 1, "rst": 2, "push": 3, "ack": 4, "urg": 5, "ece": 6, "cwr": 7}


def bits(attribute, shift, width):
    """Reads and writes some bits of a scapy attribute."""
    mask = (1 << width) - 1 << shift

    def read(layer):
        return (int(getattr(layer, attribute)) & mask) >> shift

    def write(layer, value):
        setattr(layer, attribute, int(getattr(layer, attribute)) & ~mask | value << shift)

    return read, write


def whole(attribute):
    def read(layer):
        return getattr(layer, attribute)

    def write(layer, value):
        setattr(layer, attribute, value)

    return read, write


def reserved():
    """The four bits above the flags: three of scapy's reserved bits, and the ninth of its flags."""

    def read(layer):
        return int(layer.reserved) << 1 | int(layer.flags) >> 8

    def write(layer, value):
        layer.reserved = value >> 1
        layer.flags = int(layer.flags) & 0xFF | (value & 1) << 8

    return read, write


NUMBERS = (0, 1, None)  # None: the largest
FIELDS = {
    # name: (layer, (read, write), width in bits)
    "vlan-id": (Dot1Q, whole("vlan"), 12),
    "ip-dscp": (IP, bits("tos", 2, 6), 6),
    "ip-ecn": (IP, bits("tos", 0, 2), 2),
    "ip-id": (IP, whole("id"), 16),
    "ip-flags": (IP, bits("flags", 0, 3), 3),
    "ip-res": (IP, bits("flags", 2, 1), 1),
    "ip-df": (IP, bits("flags", 1, 1), 1),
    "ip-ttl": (IP, whole("ttl"), 8),
    "ip-saddr": (IP, whole("src"), ("198.51.100.1", "255.255.255.255", "0.0.0.0")),
    "ip-daddr": (IP, whole("dst"), ("198.51.100.1", "255.255.255.255", "0.0.0.0")),
    "ip6-traffic-class": (IPv6, whole("tc"), 8),
    "ip6-flow-label": (IPv6, whole("fl"), 20),
    "ip6-hop-limit": (IPv6, whole("hlim"), 8),
    "ip6-saddr": (IPv6, whole("src"), ("2001:db8:ffff::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::")),
    "ip6-daddr": (IPv6, whole("dst"), ("2001:db8:ffff::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::")),
    "icmp-type": (ICMP, whole("type"), (0, 8)),
    "icmp-code": (ICMP, whole("code"), 8),
    "icmp6-type": (ICMPv6EchoRequest, whole("type"), (128, 129)),
    "icmp6-code": (ICMPv6EchoRequest, whole("code"), 8),
    "udp-sport": (UDP, whole("sport"), 16),
    "udp-dport": (UDP, whole("dport"), 16),
    "tcp-sport": (TCP, whole("sport"), 16),
    "tcp-dport": (TCP, whole("dport"), 16),
    "tcp-seq-num": (TCP, whole("seq"), 32),
    "tcp-ack-num": (TCP, whole("ack"), 32),
    "tcp-reserved": (TCP, reserved(), 4),
    "tcp-flags": (TCP, bits("flags", 0, 8), 8),
    **{f"tcp-{name}": (TCP, bits("flags", bit, 1), 1) for name, bit in FLAGS.items()},
    "tcp-win": (TCP, whole("window"), 16),
    "tcp-urg-ptr": (TCP, whole("urgptr"), 16),
}
# Fields that are written without correction: only checksums are updated, and not even those for checksum fields.
AS_THEY_ARE = {
    "ip-ver": (IP, whole("version"), 4), "ip-ihl": (IP, whole("ihl"), 4), "ip-len": (IP, whole("len"), 16),
    "ip-checksum": (IP, whole("chksum"), 16), "ip6-ver": (IPv6, whole("version"), 4), "ip6-len": (IPv6, whole("plen"), 16),
    "icmp-checksum": (ICMP, whole("chksum"), 16), "icmp6-checksum": (ICMPv6EchoRequest, whole("cksum"), 16),
    "udp-len": (UDP, whole("len"), 16), "udp-checksum": (UDP, whole("chksum"), 16),
    "tcp-offset": (TCP, whole("dataofs"), 4), "tcp-checksum": (TCP, whole("chksum"), 16),
}
# The places of the fields that are written without correction: layer, byte, mask of the first byte or bytes.
OFFSETS = {
    "ip-ver": (14, 1, 0xF0), "ip-ihl": (14, 1, 0x0F), "ip-len": (16, 2, 0xFFFF), "ip-checksum": (24, 2, 0xFFFF),
    "ip6-ver": (14, 1, 0xF0), "ip6-len": (18, 2, 0xFFFF), "icmp-checksum": (36, 2, 0xFFFF),
    "icmp6-checksum": (56, 2, 0xFFFF), "udp-len": (38, 2, 0xFFFF), "udp-checksum": (40, 2, 0xFFFF),
    "tcp-offset": (46, 1, 0xF0), "tcp-checksum": (50, 2, 0xFFFF),
}


def frames():
    """One frame of each kind, of odd and of even length."""
    four, six = IP(src="10.0.0.1", dst="10.0.0.2", id=7, ttl=61), IPv6(src="2001:db8::1", dst="2001:db8::2", hlim=61)
    options = [("NOP", None), ("NOP", None), ("Timestamp", (1, 2))]
    for data in (b"even", b"odd"):
        segment = TCP(sport=1234, dport=80, seq=5, ack=6, flags="PA", reserved=2, options=options) / Raw(data)
        for network in (four, six):
            yield ETH / network / segment
            yield ETH / Dot1Q(vlan=100, prio=3) / network / segment
            yield ETH / network / UDP(sport=1234, dport=53) / Raw(data)
        yield ETH / four / ICMP(id=1, seq=2) / Raw(data)
        yield ETH / six / ICMPv6EchoRequest(id=1, seq=2, data=data)
    yield ETH / four / UDP(sport=1234, dport=53, chksum=0) / Raw(b"no checksum")


def rebuilt(frame):
    """The frame with every checksum computed by scapy; an absent one stays absent."""
    for layer, name in ((IP, "chksum"), (TCP, "chksum"), (UDP, "chksum"), (ICMP, "chksum"), (ICMPv6EchoRequest, "cksum")):
        if layer in frame and not (layer is UDP and frame[UDP].chksum == 0):
            delattr(frame[layer], name)
    return bytes(frame)


def values(width):
    if isinstance(width, tuple):
        return width
    return [value if value is not None else (1 << width) - 1 for value in NUMBERS]


CASES = [(name, value) for name, (_, _, width) in FIELDS.items() for value in values(width)]


@pytest.mark.parametrize("name, value", CASES)
def test_mod_writes_what_scapy_reads(mmb, tmp_path, name, value):
    layer, (read, write), _ = FIELDS[name]
    packets = [Ether(bytes(frame)) for frame in frames()]
    out, _ = replay(mmb, tmp_path, f"add all mod {name} {value}\n", [bytes(packet) for packet in packets])
    assert len(out) == len(packets)
    touched = 0
    for packet, (_, data) in zip(packets, out):
        expected = bytes(packet)
        if layer in packet:
            touched += 1
            changed = packet.copy()
            write(changed[layer], value)
            expected = rebuilt(changed)
            again = Ether(data)
            # For scapy, an ICMPv6 type is a layer of its own.
            assert read(again[layer] if layer in again else again.lastlayer()) == value
        assert data == expected, f"{packet.summary()}\n{data.hex()}\n{expected.hex()}"
    assert touched, "no packet has the field"


@pytest.mark.parametrize("name", AS_THEY_ARE)
def test_raw_fields_are_taken_as_they_are(mmb, tmp_path, name):
    layer = AS_THEY_ARE[name][0]
    at, size, mask = OFFSETS[name]
    packets = [packet for packet in (Ether(bytes(frame)) for frame in frames()) if Dot1Q not in packet]
    value = 9 if mask in (0xF0, 0x0F) else 0x1234
    out, _ = replay(mmb, tmp_path, f"add all mod {name} {value}\n", [bytes(packet) for packet in packets])
    for packet, (_, data) in zip(packets, out):
        before = bytes(packet)
        here = at + (20 if layer in (UDP, TCP) and IPv6 in packet else 0)
        if layer not in packet:
            assert data == before
            continue
        word = int.from_bytes(data[here:here + size], "big")
        shift = 4 if mask == 0xF0 else 0
        assert (word & mask) >> shift == value
        different = [i for i, (a, b) in enumerate(zip(before, data)) if a != b]
        checksums = {14 + 10, 14 + 11}
        transport = 34 if IP in packet else 54
        checksums |= {transport + n for n in {TCP: (16, 17), UDP: (6, 7), ICMP: (2, 3)}.get(
            next((kind for kind in (TCP, UDP, ICMP) if kind in packet), None), (2, 3))}
        allowed = checksums | set(range(here, here + size))
        assert set(different) <= allowed, f"{packet.summary()} {different}"
        assert len(data) == len(before)


CONDITIONS = {"==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
COMPARED = [name for name, (_, _, width) in FIELDS.items() if isinstance(width, int) and name != "vlan-id"]
# Valid headers are not shorter.
LOWEST = {"ip-ihl": 5, "tcp-offset": 5}
RAW_COMPARED = [name for name in AS_THEY_ARE if name not in ("ip-ver", "ip6-ver")]


@pytest.mark.parametrize("name", COMPARED + RAW_COMPARED)
def test_conditions_match_what_scapy_reads(mmb, tmp_path, name):
    layer, (read, _), width = FIELDS.get(name) or AS_THEY_ARE[name]
    packets = [Ether(bytes(frame)) for frame in frames()]
    seen = sorted({read(packet[layer]) for packet in packets if layer in packet})
    pivot, low, top = seen[len(seen) // 2], LOWEST.get(name, 0), (1 << width) - 1
    rules, expected = [], []
    for negated in (False, True):
        for condition, compare in CONDITIONS.items():
            if (condition, pivot) in (("<", low), (">", top), (">=", low), ("<=", top)):
                continue  # holds for none or for all: refused, or no test
            rules.append(f"add {'! ' if negated else ''}{name} {condition} {pivot} drop 0.001\n")
            expected.append(sum(compare(read(packet[layer]), pivot) != negated for packet in packets if layer in packet))
    # A percentage so small that nothing is dropped: the test reads only the counters.
    _, summary = replay(mmb, tmp_path, "".join(rules), [bytes(packet) for packet in packets], "--seed", "1")
    counted = [rule["packets"] for rule in summary["rules"]]
    assert counted == expected, json.dumps(list(zip(rules, counted, expected)), indent=1)


# Fields that the models know without a table: ports, connections, the frame, the protocol, presence of headers and options.
WITHOUT_TABLE = ("in", "out", "ct", "eth-type", "vlan-id", "net-proto", "ip-proto", "ip6-eh", "tcp-opt", "tcp-opt KIND")
# Fields of connections, not of packets.
OF_STREAMS = (
    "stream", "stream-forward", "stream-reply", "tls-sni", "http", "http-method", "http-host", "http-uri", "http-status", "http-header",
    "http-body",
)


def test_the_model_knows_every_field():
    page = (Path(__file__).parents[2] / "docs/language.md").read_text()
    tables = page[page.index("\n## Fields"):page.index("\n### Names of values")]
    known = {*fields.FIELDS, *fields.OPTIONS, *fields.PAYLOADS, *WITHOUT_TABLE, *OF_STREAMS}
    known.update(f"ip6-eh-{name}" for name in fields.EXTENSIONS)
    assert set(re.findall(r"^\| `([^`]+)` \|", tables, re.MULTILINE)) == known
