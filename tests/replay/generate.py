"""Random packets, made by scapy, and random policies that some of them match."""

import random
import struct

from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_LSRR, IPOption_NOP, IPOption_Router_Alert
from scapy.layers.inet6 import (
    ICMPv6EchoReply, ICMPv6EchoRequest, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting, PadN,
)
from scapy.layers.ipsec import AH
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from scapy.packet import Raw

from fields import EXTENSIONS, FIELDS, PAYLOADS
from model import (
    AddOption, Anything, Decide, Keep, Log, Meta, Mod, ModOption, ModPayload, ModProto, ModVlan, Number, Option, Payload,
    Rule, Strip, StripAll,
)

ADDRESSES = ["10.0.0.1", "10.0.0.2", "10.1.2.3", "192.0.2.7", "255.255.255.255"]
ADDRESSES6 = ["2001:db8::1", "2001:db8::2", "fe80::1", "ff02::1"]
PORTS = [0, 22, 53, 80, 443, 8080, 40000, 65535]
KINDS = [2, 3, 4, 5, 8, 22, 30, 34, 253]
TEXTS = [b"", b"a", b"GE", b"GET", b"GET / HTTP/1.1\r\n", bytes(range(33))]


class Packets:
    """Random frames; `extra` damages some of them."""

    def __init__(self, rng):
        self.rng = rng

    def frame(self):
        rng = self.rng
        link = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
        for _ in range(rng.choice([0] * 12 + [1, 1, 1, 2, 4, 5])):
            link = link / rng.choice([Dot1Q, Dot1AD])(vlan=rng.choice([0, 5, 6, 4095]), prio=rng.randrange(8))
        draw = rng.random()
        if draw < 0.03:
            return bytes(link / ARP(psrc="10.0.0.1", pdst="10.0.0.2"))
        network = self.ip4() if draw < 0.55 else chained(self.ip6())
        return self.spoil(bytes(link / network), link)

    def ip4(self):
        rng = self.rng
        options = rng.choice([[], [], [], [], [IPOption_Router_Alert()], [IPOption_NOP()] * 3,
                              [IPOption_LSRR(routers=["192.0.2.9"], pointer=4)]])
        header = IP(
            src=rng.choice(ADDRESSES), dst=rng.choice(ADDRESSES), tos=rng.randrange(256), id=rng.randrange(65536),
            ttl=rng.choice([0, 1, 64, 255]), flags=rng.choice([0, 0, "DF", "DF", "evil"]), options=options)
        draw = rng.random()
        if draw < 0.08:
            whole = bytes(header / self.transport(ICMP))
            return self.fragment4(header, whole)
        if draw < 0.14:
            header.proto = rng.choice([47, 50, 51, 89, 132, 58])
            return header / Raw(rng.choice(TEXTS))
        return header / self.transport(ICMP)

    def fragment4(self, header, whole):
        """The first fragment or a later fragment of a datagram."""
        body, header.proto = whole[4 * (whole[0] & 15):], whole[9]
        if self.rng.random() < 0.5:
            header.flags = "MF"
            return header / Raw(body[:max(8, len(body) // 8 * 8)])
        header.frag = self.rng.choice([2, 3, 185, 8191])
        return header / Raw(body)

    def ip6(self):
        rng = self.rng
        packet = IPv6(src=rng.choice(ADDRESSES6), dst=rng.choice(ADDRESSES6), tc=rng.randrange(256),
                      fl=rng.randrange(1 << 20), hlim=rng.choice([0, 1, 64, 255]))
        for _ in range(rng.choice([0, 0, 0, 1, 1, 2, 3])):
            packet = packet / rng.choice([
                lambda: IPv6ExtHdrHopByHop(options=[PadN(optdata=b"\0" * 4)]),
                lambda: IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * rng.choice([4, 12]))]),
                lambda: IPv6ExtHdrRouting(addresses=["2001:db8::9"], segleft=rng.randrange(2)),
                lambda: AH(payloadlen=4, spi=1, seq=2, icv=b"\0" * 12),
            ])()
        draw = rng.random()
        if draw < 0.1:
            whole = self.transport(ICMPv6EchoRequest)
            offset, more = rng.choice([(0, 1), (0, 0), (2, 0), (3, 1)])
            return packet / IPv6ExtHdrFragment(id=7, offset=offset, m=more) / whole
        if draw < 0.15:
            number = rng.choice([59, 89, 47])
            packet.lastlayer().nh = number
            return packet / Raw(rng.choice(TEXTS))
        return packet / self.transport(ICMPv6EchoRequest)

    def transport(self, ping):
        rng = self.rng
        data = rng.choice(TEXTS)
        draw = rng.random()
        if draw < 0.6:
            area = self.options()
            segment = TCP(
                sport=rng.choice(PORTS), dport=rng.choice(PORTS), seq=rng.randrange(1 << 32), ack=rng.randrange(1 << 32),
                flags=rng.randrange(256), reserved=rng.randrange(8), window=rng.randrange(65536),
                urgptr=rng.randrange(65536), dataofs=5 + len(area) // 4)
            return segment / Raw(area + data)
        if draw < 0.85:
            return UDP(sport=rng.choice(PORTS), dport=rng.choice(PORTS)) / Raw(data)
        if ping is ICMP:
            return ICMP(type=rng.choice([0, 8]), id=rng.randrange(65536), seq=1) / Raw(data)
        return rng.choice([ICMPv6EchoRequest, ICMPv6EchoReply])(id=rng.randrange(65536), data=data)

    def options(self):
        """An area of TCP options: valid ones, padding, an end in the middle, and sometimes plain bytes."""
        rng = self.rng
        area = b""
        for _ in range(rng.randrange(5)):
            kind = rng.choice(KINDS)
            size = {2: 2, 3: 1, 4: 0, 8: 8}.get(kind, rng.choice([0, 1, 2, 4, 8, 9]))
            if rng.random() < 0.1:
                size = rng.randrange(12)
            value = rng.choice([bytes(size), rng.randbytes(size), struct.pack("!H", 1460)[:size].rjust(size, b"\0")])
            area += b"\1" * rng.choice([0, 0, 0, 1, 2]) + bytes([kind, 2 + size]) + value
        if rng.random() < 0.1:
            area += b"\0" + rng.randbytes(3)
        if rng.random() < 0.1:
            area = area[:-1] + bytes([rng.randrange(256), rng.choice([0, 1, 40])])
        area = area[:40]
        return area + rng.choice([b"\0", b"\1"]) * (-len(area) % 4)

    def spoil(self, frame, link):
        """Leaves most frames unchanged; truncates, lengthens or damages the others."""
        rng = self.rng
        draw = rng.random()
        if draw < 0.03:
            return frame[:rng.randrange(len(frame))]
        if draw < 0.06 and len(frame) > len(link):
            at = rng.randrange(12, len(frame))
            return frame[:at] + rng.randbytes(1) + frame[at + 1:]
        if draw < 0.15:
            return frame + rng.randbytes(rng.randrange(1, 20))
        if draw < 0.25:
            return self.spoil_transport(frame)
        return frame

    def spoil_transport(self, frame):
        """Damages bytes after the IP header: mostly a transport header, its checksum or a payload."""
        rng = self.rng
        at = rng.randrange(len(frame) // 2, len(frame))
        return frame[:at] + rng.randbytes(len(frame[at:at + 2])) + frame[at + 2:]


def chained(packet):
    """Fills in the next header of authentication headers, which scapy leaves empty."""
    layer = packet
    while layer:
        if isinstance(layer, AH) and not layer.nh:
            layer.nh = layer.payload.overload_fields.get(IPv6, {}).get("nh", 59)
        layer = layer.payload
    return packet


class Policies:
    """Random rules whose parts go together."""

    GROUPS = {
        "ip4": ["ip-"], "ip6": ["ip6-"], "tcp": ["tcp-"], "udp": ["udp-"], "icmp": ["icmp-", "ip-"],
        "icmp6": ["icmp6-", "ip6-"], "tcp4": ["tcp-", "ip-"], "tcp6": ["tcp-", "ip6-"], "udp4": ["udp-", "ip-"],
        "udp6": ["udp-", "ip6-"],
    }

    def __init__(self, rng, frames, named=False):
        """`named`: rules may name sets, which `definitions` makes."""
        from dissect import Malformed, dissect

        self.rng, self.samples, self.named, self.sets = rng, [], named, 0
        for frame in frames:
            try:
                self.samples.append(dissect(frame))
            except Malformed:
                continue

    def policy(self, count):
        return [self.rule(number) for number in range(1, count + 1)]

    def rule(self, number):
        rng = self.rng
        group = rng.choice([*self.GROUPS, "tcp", "tcp", "tcp4", "any"])
        matches = self.matches(group)
        prio = rng.choice([100, 100, 100, 0, 50, 200])
        return Rule(number, prio, matches, self.targets(group))

    def rows(self, group):
        prefixes = self.GROUPS.get(group, [])
        return [row for row in FIELDS.values() if any(row.name.startswith(prefix) for prefix in prefixes)]

    def value(self, row):
        """A value that some packet has, or a neighbouring one, or a random one."""
        rng = self.rng
        holders = [packet for packet in self.samples if row.present(packet)]
        if holders and rng.random() < 0.8:
            value = row.read(rng.choice(holders)) + rng.choice([0, 0, 0, 1, -1])
        else:
            value = rng.randrange(1 << row.width)
        return value % (1 << row.width)

    def matches(self, group):
        rng = self.rng
        found = {}
        for _ in range(rng.choice([1, 1, 2, 2, 3])):
            match = self.match(group)
            found.setdefault(getattr(match, "name", None) or getattr(match, "kind", "all"), match)
        matches = list(found.values())
        if len(matches) > 1:
            matches = [match for match in matches if not isinstance(match, Anything)]
        return matches

    def match(self, group):
        rng = self.rng
        draw = rng.random()
        if draw < 0.08:
            return Anything()
        if draw < 0.2 or group == "any":
            return self.meta(group)
        if draw < 0.45 and group.startswith("tcp"):
            return self.option()
        if draw < 0.55:
            return self.payload(group)
        row = rng.choice(self.rows(group))
        negated = rng.random() < 0.2
        if row.value is not None:
            return Number(row.name, negated, None)
        if row.flag and rng.random() < 0.7:
            return Number(row.name, negated, None)
        return self.number(row, negated)

    def number(self, row, negated):
        rng = self.rng
        a, b = sorted([self.value(row), self.value(row)])
        form = rng.choice(["one", "one", "one", "order", "range", "set", "prefix", "named"])
        if form == "order" and not row.address:
            return Number(row.name, negated, rng.choice(["<", "<=", ">", ">="]), [(a, a)])
        condition = rng.choice(["==", "==", "!="])
        if form == "range" and a < b:
            return Number(row.name, negated, condition, [(a, b)])
        if form == "set" and a + 1 < b:
            return Number(row.name, negated, condition, [(a, a), (b, b)])
        if form == "named" and self.named:
            self.sets += 1
            # They may overlap, and stand in any order.
            ranges = [(b, b), (a, b), *([(a, a)] if rng.random() < 0.5 else [])]
            return Number(row.name, negated, condition, ranges, named=f"set-{self.sets}")
        if form == "prefix" and row.address:
            bits = rng.randrange(1, row.width)
            host = row.width - bits
            first = a >> host << host
            return Number(row.name, negated, condition, [(first, first | (1 << host) - 1)], prefix=bits)
        return Number(row.name, negated, condition, [(a, a)])

    def meta(self, group):
        rng = self.rng
        negated, condition = rng.random() < 0.2, rng.choice(["==", "==", "!="])
        draw = rng.random()
        if draw < 0.2:
            return rng.choice([Meta("vlan-id", negated, None), Meta("vlan-id", negated, condition, rng.choice([0, 5, 6]))])
        if draw < 0.3:
            return Meta("eth-type", negated, condition, rng.choice([0x0800, 0x86DD, 0x0806]))
        if draw < 0.4:
            return Meta(*rng.choice([("in", negated, condition, "a"), ("out", negated, condition, "b")]))
        if draw < 0.6 and group == "any":
            return Meta("ip-proto", negated, condition, rng.choice([6, 17, 1, 58, 89]))
        if draw < 0.7 and group == "any":
            return Meta("net-proto", negated, condition, rng.choice(["ip4", "ip6"]))
        if group == "any" or group.endswith("6"):
            return Meta(rng.choice(["ip6-eh"] + [f"ip6-eh-{name}" for name in EXTENSIONS]), negated, None)
        return Meta("in", False, "==", "a")

    def option(self):
        rng = self.rng
        negated, condition = rng.random() < 0.2, rng.choice(["==", "!=", "<", "<=", ">", ">="])
        kind = rng.choice([*KINDS, None, 2, 3, 8])
        if kind is None or kind == 4 or rng.random() < 0.4:
            return Option(kind, negated, None)
        size = {2: 2, 3: 1, 8: 8}.get(kind, 2)
        if rng.random() < 0.25:
            return Option(kind, negated, rng.choice(["==", "!="]), bytes(size))
        return Option(kind, negated, condition, rng.choice([0, 1460, 1, 255]) % 256 ** size)

    def payload(self, group):
        rng = self.rng
        names = [name for name in PAYLOADS if name == "payload" or group.startswith(PAYLOADS[name])]
        if group.endswith("4"):
            names.append("ip-payload")
        negated = rng.random() < 0.2
        name = rng.choice(names)
        if rng.random() < 0.3:
            return Payload(name, negated, None)
        return Payload(name, negated, rng.choice(["==", "!="]), rng.choice([b"G", b"GET", b"a", b"\0\1\2"]))

    def targets(self, group):
        rng = self.rng
        if rng.random() < 0.12:
            return [Decide(rng.choice(["drop", "drop", "accept"]))]
        targets = [self.target(group) for _ in range(rng.choice([1, 1, 2, 3]))]
        if any(isinstance(target, Keep) for target in targets):
            targets = [target for target in targets if not isinstance(target, (Strip, StripAll))]
        keeps = [target for target in targets if isinstance(target, Keep)]
        if len(keeps) > 1:
            targets = [target for target in targets if target not in keeps[1:]]
        if any(isinstance(target, StripAll) for target in targets):
            targets = [target for target in targets if not isinstance(target, Strip)]
        if rng.random() < 0.05:
            targets.append(Decide("accept"))
        if rng.random() < 0.05:
            targets.append(Log(rng.choice([None, "seen"])))
        return targets

    def target(self, group):
        rng = self.rng
        draw = rng.random()
        if draw < 0.4 and (group.startswith("tcp") or group == "any"):
            return self.option_target()
        if draw < 0.5:
            names = [name for name in PAYLOADS if name not in ("ip-payload", "ip6-payload")
                     and (name == "payload" or group.startswith(PAYLOADS[name]))]
            return ModPayload(rng.choice(names), rng.choice([b"x", b"PUT", b"12345"]))
        if draw < 0.55:
            return ModVlan(rng.choice([0, 5, 4095]))
        if draw < 0.6:
            return ModProto(rng.choice([6, 17, 253]))
        rows = [row for row in (self.rows(group) or FIELDS.values()) if row.write]
        row = rng.choice(rows)
        return Mod(row.name, self.value(row))

    def option_target(self):
        rng = self.rng
        kind = rng.choice(KINDS)
        draw = rng.random()
        if draw < 0.25:
            return Strip(kind)
        if draw < 0.35:
            return Keep(sorted(rng.sample(KINDS, rng.choice([1, 2]))))
        if draw < 0.4:
            return StripAll()
        size = {2: 2, 3: 1, 4: 0, 8: 8}.get(kind)
        if draw < 0.65:
            return AddOption(kind, rng.randbytes(rng.choice([0, 1, 4, 9]) if size is None else size))
        if draw < 0.85 and kind != 4:
            return ModOption(kind, rng.choice([0, 1, 255, 1460]) % 256 ** (size or 8))
        return ModOption(kind if size is None else 253, rng.randbytes(rng.choice([0, 1, 2, 4, 9])))


def packets_and_policy(seed, packets, rules):
    rng = random.Random(seed)
    maker = Packets(rng)
    frames = [maker.frame() for _ in range(packets)]
    return frames, Policies(rng, frames, named=True).policy(rules)
