"""The fields of the rule language by the design: name, width, place, packets that have them, targets that may write them."""

from dataclasses import dataclass

from dissect import ICMP, ICMP6, TCP, UDP, option_area, walk_options

OPTIONS = {
    "tcp-opt-mss": 2, "tcp-opt-wscale": 3, "tcp-opt-sackp": 4, "tcp-opt-sack": 5, "tcp-opt-timestamp": 8,
    "tcp-opt-mptcp": 30, "tcp-opt-fast-open": 34,
}
HAS = {
    "ip": lambda p: p.family != 0,
    "ip4": lambda p: p.family == 4,
    "ip6": lambda p: p.family == 6,
    "icmp": lambda p: p.kind == ICMP,
    "icmp6": lambda p: p.kind == ICMP6,
    "udp": lambda p: p.kind == UDP,
    "tcp": lambda p: p.kind == TCP,
    "frame": lambda p: True,
    "transport": lambda p: p.family != 0 and not p.later,
}


@dataclass
class Field:
    """A field of bits in a header."""

    name: str
    has: str
    base: str  # "ip" or "l4"
    bit: int
    width: int
    write: str = "place"  # "place", "raw", or "" if it cannot be written
    flag: bool = False  # alone it matches 1
    value: int | None = None  # a name for one value: it takes no value
    address: bool = False

    def present(self, packet):
        return HAS[self.has](packet)

    def place(self, packet):
        """First byte, number of bytes, and the shift of the value in them."""
        start = (packet.ip if self.base == "ip" else packet.l4) * 8 + self.bit
        first, last = start // 8, (start + self.width - 1) // 8
        return first, last - first + 1, (last + 1) * 8 - start - self.width

    def read(self, packet):
        at, size, shift = self.place(packet)
        return int.from_bytes(packet.data[at:at + size], "big") >> shift & (1 << self.width) - 1


def header(has, base, rows):
    """Fields of one header, one after the other; a row is name, width and further attributes."""
    bit = 0
    for name, width, *rest in rows:
        if name:
            yield Field(f"{has}-{name}", has, base, bit, width, **(rest[0] if rest else {}))
        bit += width


RAW, FLAG, ADDRESS = {"write": "raw"}, {"flag": True}, {"address": True}
TABLE = [
    *header("ip4", "ip", [
        ("ver", 4, RAW), ("ihl", 4, RAW), ("dscp", 6), ("ecn", 2), ("len", 16, RAW), ("id", 16), ("res", 1, FLAG),
        ("df", 1, FLAG), ("mf", 1, FLAG), ("frag-offset", 13), ("ttl", 8), ("", 8), ("checksum", 16, RAW),
        ("saddr", 32, ADDRESS), ("daddr", 32, ADDRESS),
    ]),
    Field("ip4-flags", "ip4", "ip", 48, 3),
    *[Field(f"ip4-{name}", "ip4", "ip", 14, 2, write="", value=value)
      for name, value in [("non-ect", 0), ("ect1", 1), ("ect0", 2), ("ce", 3)]],
    *header("ip6", "ip", [
        ("ver", 4, RAW), ("traffic-class", 8), ("flow-label", 20), ("len", 16, RAW), ("next", 8), ("hop-limit", 8),
        ("saddr", 128, ADDRESS), ("daddr", 128, ADDRESS),
    ]),
    *header("icmp", "l4", [("type", 8), ("code", 8), ("checksum", 16, RAW)]),
    *header("icmp6", "l4", [("type", 8), ("code", 8), ("checksum", 16, RAW)]),
    *header("udp", "l4", [("sport", 16), ("dport", 16), ("len", 16, RAW), ("checksum", 16, RAW)]),
    *header("tcp", "l4", [
        ("sport", 16), ("dport", 16), ("seq-num", 32), ("ack-num", 32), ("offset", 4, RAW), ("reserved", 4),
        *[(name, 1, FLAG) for name in ("cwr", "ece", "urg", "ack", "push", "rst", "syn", "fin")],
        ("win", 16), ("checksum", 16, RAW), ("urg-ptr", 16),
    ]),
    Field("tcp-flags", "tcp", "l4", 104, 8),
]
for row in TABLE:
    # The language says ip- for IPv4.
    row.name = row.name.replace("ip4-", "ip-", 1)
FIELDS = {row.name: row for row in TABLE}

EXTENSIONS = ["hopbyhop", "routing", "fragment", "esp", "ah", "destopt", "mobility", "hip", "shim6"]
PAYLOADS = {
    "payload": "transport", "tcp-payload": "tcp", "udp-payload": "udp", "icmp-payload": "icmp",
    "icmp6-payload": "icmp6", "ip-payload": "ip4", "ip6-payload": "ip6",
}


def payload(name, packet):
    """First and last offset of the bytes that a payload field matches."""
    if name in ("ip-payload", "ip6-payload"):
        return packet.ip_payload, packet.end
    return packet.payload, packet.payload_end


def options_of(packet, kind):
    """The data of every option of a kind, in order; `None`: of any kind but padding."""
    options, _ = walk_options(option_area(packet))
    return [data for found, data in options if (found == kind if kind is not None else found > 1)]
