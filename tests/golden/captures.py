"""Cases and the captures that contain them: pcap and pcapng, byte by byte."""

import re
import struct

ETHERNET, RAW, SLL, SLL2 = 1, 101, 113, 276

# mmb adds this to a snap length if packets may grow: the largest area of TCP options.
GROWTH = 40


class Packet:
    """One packet of a case: the input, the output, and the numbers of the rules that match it."""

    def __init__(self, data, out, rules, drop=None, interface=0):
        self.bytes, self.rules, self.drop, self.interface = data, set(rules), drop, interface
        self.out = out


def passes(packet, *rules, interface=0):
    """The packet passes unchanged."""
    return Packet(bytes(packet), bytes(packet), rules, interface=interface)


def becomes(packet, out, *rules, interface=0):
    """The packet leaves as another one."""
    assert bytes(packet) != bytes(out), "nothing changes: say passes"
    return Packet(bytes(packet), bytes(out), rules, interface=interface)


def dropped(packet, *rules, why="rule"):
    """The packet is dropped."""
    return Packet(bytes(packet), None, rules, drop=why)


def case(name, policy, packets, rules=None, not_applied=None, arguments=(), file=None):
    """A case. `rules`: (number, canonical text), if the lines of the policy do not contain them."""
    policy = policy.strip("\n")
    if rules is None:
        rules = list(enumerate(policy.splitlines(), start=1))
    return {
        "name": name,
        "policy": policy,
        "packets": packets,
        "rules": rules,
        "not_applied": not_applied or {},
        "arguments": list(arguments),
        "file": file or Pcap(),
    }


def rewrites(policy):
    """Whether some rule of the policy may change a packet."""
    return re.search(r"\s(mod|strip|add)\s", policy.replace("\nadd ", "\n")) is not None


class Pcap:
    """A pcap file of one link type, precision and byte order."""

    def __init__(self, link=ETHERNET, nano=False, big=False, snaplen=65535):
        self.link, self.nano, self.big, self.snaplen = link, nano, big, snaplen

    def render(self, packets, grown):
        order = ">" if self.big else "<"
        magic = 0xA1B23C4D if self.nano else 0xA1B2C3D4
        snaplen = self.snaplen + (GROWTH if grown else 0)
        yield struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snaplen, self.link)
        for number, (_, data) in packets:
            yield struct.pack(order + "IIII", 1_700_000_000 + number, 1000 * number, len(data), len(data)) + data


class PcapNg:
    """A pcapng file: interfaces (link type, snap length, options), a comment at each packet, a name in the middle."""

    def __init__(self, interfaces, big=False):
        self.interfaces, self.big = interfaces, big

    def block(self, kind, body):
        body += b"\0" * (-len(body) % 4)
        order = ">" if self.big else "<"
        length = struct.pack(order + "I", 12 + len(body))
        return struct.pack(order + "I", kind) + length + body + length

    def option(self, code, value):
        order = ">" if self.big else "<"
        return struct.pack(order + "HH", code, len(value)) + value + b"\0" * (-len(value) % 4)

    def render(self, packets, grown):
        order = ">" if self.big else "<"
        yield self.block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1))
        for link, snaplen, name, resolution in self.interfaces:
            if snaplen and grown:
                snaplen += GROWTH
            options = self.option(2, name.encode()) + self.option(9, bytes([resolution])) + self.option(0, b"")
            yield self.block(1, struct.pack(order + "HHI", link, 0, snaplen) + options)
        for number, (interface, data) in packets:
            if number == 1:
                yield self.block(0xBAD, b"a block that nobody knows")
            resolution = self.interfaces[interface][3]
            time = (1_700_000_000_000 + number) * 10 ** (resolution - 3)
            head = struct.pack(order + "IIIII", interface, time >> 32, time & 0xFFFFFFFF, len(data), len(data))
            comment = self.option(1, f"packet {number}".encode()) + self.option(0, b"")
            yield self.block(6, head + data + b"\0" * (-len(data) % 4) + comment)
        yield self.block(5, struct.pack(order + "III", 0, 0, 0))


def write_capture(path, case, changed):
    """The capture of the case, as input or as output."""
    numbered = enumerate(case["packets"])
    if changed:
        packets = [(n, (p.interface, p.out)) for n, p in numbered if p.out is not None]
    else:
        packets = [(n, (p.interface, p.bytes)) for n, p in numbered]
    grown = changed and rewrites(case["policy"])
    path.write_bytes(b"".join(case["file"].render(packets, grown)))
