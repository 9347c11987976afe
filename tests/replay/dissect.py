"""The places of a packet's headers, by the RFCs: the first half of the model that checks mmb.

The model is independent of mmb's implementation. Its input is frames on Ethernet that scapy made (and a test perhaps truncated or
damaged).
"""

import struct
from dataclasses import dataclass, field

TAGS = (0x8100, 0x88A8, 0x9100)
HOP, ROUTING, FRAGMENT, ESP, AH, DEST = 0, 43, 44, 50, 51, 60
NAMED_HEADERS = {
    HOP: "hopbyhop", ROUTING: "routing", FRAGMENT: "fragment", ESP: "esp", AH: "ah", DEST: "destopt",
    135: "mobility", 139: "hip", 140: "shim6",
}
TCP, UDP, ICMP, ICMP6 = 6, 17, 1, 58
HEADER_SIZES = {TCP: 20, UDP: 8, ICMP: 8, ICMP6: 8}


class Malformed(Exception):
    """The packet is dropped for this reason before any rule sees it."""


@dataclass
class Packet:
    """A frame and the places of its parts; offsets count from its first byte."""

    data: bytes
    family: int = 0  # 4, 6, or 0 for frames that are not IP
    eth_type: int = 0
    vlan: int | None = None
    ip: int = 0
    proto: int | None = None
    proto_at: int = 0
    headers: set = field(default_factory=set)
    fragment: bool = False
    later: bool = False
    l4: int = 0
    kind: int = 0  # the transport header that is present, by its protocol number
    payload: int = 0
    payload_end: int = 0
    end: int = 0
    routed: bool = False

    @property
    def ip_payload(self):
        """The offset of the bytes after the IPv4 header, or after the fixed IPv6 header."""
        return self.ip + (4 * (self.data[self.ip] & 15) if self.family == 4 else 40)


def u16(data, at):
    return struct.unpack_from("!H", data, at)[0]


def ones_sum(data):
    """The ones' complement sum of 16-bit words, by RFC 1071."""
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def dissect(data):
    """The packet's parts; raises `Malformed`."""
    packet = Packet(data)
    if len(data) < 14:
        raise Malformed("link-truncated")
    at, kind = 14, u16(data, 12)
    tags = 0
    while kind in TAGS:
        tags += 1
        if tags > 4:
            raise Malformed("vlan-stack-too-deep")
        if len(data) < at + 4:
            raise Malformed("link-truncated")
        if packet.vlan is None:
            packet.vlan = u16(data, at) & 0xFFF
        kind, at = u16(data, at + 2), at + 4
    packet.eth_type, packet.ip = kind, at
    if kind == 0x0800:
        ip4(packet)
    elif kind == 0x86DD:
        ip6(packet)
    return packet


def ip4(packet):
    data, at = packet.data, packet.ip
    packet.family = 4
    if len(data) < at + 20:
        raise Malformed("ip4-truncated")
    if data[at] >> 4 != 4:
        raise Malformed("ip-bad-version")
    size, total = 4 * (data[at] & 15), u16(data, at + 2)
    if size < 20 or total < size:
        raise Malformed("ip4-bad-length")
    if at + total > len(data):
        raise Malformed("ip4-truncated")
    if ones_sum(data[at:at + size]) != 0xFFFF:
        raise Malformed("ip4-bad-checksum")
    packet.end = at + total
    packet.proto_at, packet.proto = at + 9, data[at + 9]
    flags = u16(data, at + 6)
    packet.later = flags & 0x1FFF != 0
    packet.fragment = packet.later or flags & 0x2000 != 0
    packet.routed = source_routed(data[at + 20:at + size])
    packet.l4 = at + size
    transport(packet)


def source_routed(options):
    """Whether a loose or strict source route has remaining addresses (RFC 791)."""
    at = 0
    while at < len(options):
        kind = options[at]
        if kind == 0:
            return False
        if kind == 1:
            at += 1
            continue
        if at + 1 >= len(options) or options[at + 1] < 2 or at + options[at + 1] > len(options):
            return False
        length = options[at + 1]
        if kind in (131, 137) and length >= 3:
            return options[at + 2] <= length
        at += length
    return False


def ip6(packet):
    data, at = packet.data, packet.ip
    packet.family = 6
    if len(data) < at + 40:
        raise Malformed("ip6-truncated")
    if data[at] >> 4 != 6:
        raise Malformed("ip-bad-version")
    packet.end = at + 40 + u16(data, at + 4)
    if packet.end > len(data):
        raise Malformed("ip6-truncated")
    packet.proto_at = at + 6
    at += 40
    walked = 0
    while not packet.later:
        kind = data[packet.proto_at]
        if kind not in NAMED_HEADERS:
            break
        packet.headers.add(NAMED_HEADERS[kind])
        if kind == ESP:
            break
        walked += 1
        if walked > 16:
            raise Malformed("ip6-chain-too-long")
        if at + 8 > packet.end:
            raise Malformed("ip6-header-truncated")
        size = 8 if kind == FRAGMENT else 4 * (data[at + 1] + 2) if kind == AH else 8 * (data[at + 1] + 1)
        if at + size > packet.end:
            raise Malformed("ip6-header-truncated")
        if kind == FRAGMENT:
            word = u16(data, at + 2)
            packet.later = word >> 3 != 0
            packet.fragment = packet.later or word & 1 != 0
        if kind == ROUTING and data[at + 3] > 0:
            packet.routed = True
        packet.proto_at = at
        at += size
    packet.proto = data[packet.proto_at]
    packet.l4 = at
    transport(packet)


def transport(packet):
    data, at = packet.data, packet.l4
    packet.payload, packet.payload_end = at, packet.end
    known = HEADER_SIZES if packet.family else {}
    kind = packet.proto
    if packet.later or kind not in known or kind == (ICMP6 if packet.family == 4 else ICMP):
        return
    size = known[kind]
    short = "tiny-fragment" if packet.fragment else "l4-truncated"
    if at + size > packet.end:
        raise Malformed(short)
    if kind == TCP:
        size = 4 * (data[at + 12] >> 4)
        if size < 20:
            raise Malformed("tcp-bad-offset")
        if at + size > packet.end:
            raise Malformed("tiny-fragment" if packet.fragment else "tcp-bad-offset")
    packet.kind = kind
    packet.payload = at + size
    if kind == UDP:
        packet.payload_end = max(packet.payload, min(packet.end, at + u16(data, at + 4)))


def walk_options(area):
    """The TCP options of an area: [(kind, data)], the malformed rest, and whether there is padding between them."""
    options, at = [], 0
    while at < len(area):
        kind = area[at]
        if kind == 0:
            return options, b""
        if kind == 1:
            options.append((1, b""))
            at += 1
            continue
        if at + 1 >= len(area) or area[at + 1] < 2 or at + area[at + 1] > len(area):
            return options, area[at:]
        options.append((kind, area[at + 2:at + area[at + 1]]))
        at += area[at + 1]
    return options, b""


def option_area(packet):
    return packet.data[packet.l4 + 20:packet.payload] if packet.kind == TCP else b""
