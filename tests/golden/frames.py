"""Packets, built by scapy."""

import struct

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

A, B = "10.0.0.1", "10.0.0.2"
A6, B6 = "2001:db8::1", "2001:db8::2"

ETH = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")

NOP, EOL = b"\x01", b"\x00"
SACKP = b"\x04\x02"


def ip(**fields):
    """An IPv4 packet on Ethernet."""
    return ETH / IP(**({"src": A, "dst": B, "id": 1, "ttl": 61} | fields))


def ip6(**fields):
    """An IPv6 packet on Ethernet."""
    return ETH / IPv6(**({"src": A6, "dst": B6, "hlim": 61} | fields))


def option(kind, data=b""):
    return bytes([kind, 2 + len(data)]) + data


def mss(value):
    return option(2, struct.pack("!H", value))


def wscale(value):
    return option(3, bytes([value]))


def timestamp(value=0x01020304, echo=0x05060708):
    return option(8, struct.pack("!II", value, echo))


def tcp(options=b"", data=b"", **fields):
    """A TCP segment with this area of options: bytes, a multiple of four."""
    assert len(options) % 4 == 0 and len(options) <= 40, "an area of options has up to 40 bytes, in fours"
    fields = {"sport": 40000, "dport": 80, "seq": 1000, "ack": 2000, "flags": "S", "window": 8192} | fields
    segment = TCP(**({"dataofs": 5 + len(options) // 4} | fields))
    return segment / Raw(options + data) if options + data else segment


def udp(data=b"", **fields):
    datagram = UDP(**({"sport": 40000, "dport": 53} | fields))
    return datagram / Raw(data) if data else datagram


def icmp(data=b"ping", **fields):
    return ICMP(**({"type": 8, "code": 0, "id": 7, "seq": 9} | fields)) / Raw(data)


def with_bytes(packet, at, data):
    """The packet with other bytes at one place; its checksums are not updated."""
    packet = bytes(packet)
    assert at + len(data) <= len(packet)
    return packet[:at] + data + packet[at + len(data):]


def with_u16(packet, at, value):
    return with_bytes(packet, at, struct.pack("!H", value))


def u16(packet, at):
    return struct.unpack_from("!H", bytes(packet), at)[0]


def ones_sum(a, b):
    total = a + b
    return (total & 0xFFFF) + (total >> 16)


def spoiled(packet, at, by=0x1234):
    """The packet with the checksum at one place wrong by a difference, which every rewriting must preserve."""
    right = u16(packet, at)
    return with_u16(packet, at, 0xFFFF ^ ones_sum(0xFFFF ^ right, by))
