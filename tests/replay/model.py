"""A model of mmb in Python, which checks `mmb replay`.

It is written from the design and the RFCs. Rules are objects that print themselves as commands and implement their own meaning;
checksums are computed again over the whole packet, and a wrong one stays wrong by the same amount.
"""

import struct
from dataclasses import dataclass, field

from dissect import ICMP, ICMP6, TCP, UDP, Malformed, dissect, ones_sum, option_area, walk_options
from fields import FIELDS, HAS, OPTIONS, PAYLOADS, options_of, payload

COMPARE = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b, ">": lambda a, b: a > b, ">=": lambda a, b: a >= b,
}


def numeral(name, value):
    """A value in the syntax of the language."""
    if name in FIELDS and FIELDS[name].address:
        size = 4 if name.startswith("ip-") else 16
        raw = value.to_bytes(size, "big")
        if size == 4:
            return ".".join(str(byte) for byte in raw)
        return ":".join(f"{u:x}" for u in struct.unpack("!8H", raw))
    return str(value)


def quoted(data):
    return "|" + " ".join(f"{byte:02x}" for byte in data) + "|"


# --- constraints ----------------------------------------------------------------------------------------------------


@dataclass
class Anything:
    """`all`"""

    def __str__(self):
        return "all"

    def holds(self, packet, _ports):
        return packet.family != 0


@dataclass
class Number:
    """A field of bits compared with numbers: (first, last) pairs, one or several, also as the elements of a named set."""

    name: str
    negated: bool
    condition: str | None  # None: the field stands alone
    ranges: list = field(default_factory=list)
    prefix: int | None = None
    named: str | None = None

    def __str__(self):
        words = ["!"] if self.negated else []
        words.append(self.name)
        if self.condition:
            if self.condition != "==" or self.negated is None:
                words.append(self.condition)
            words.append(self.values())
        return " ".join(words)

    def values(self):
        return self.elements() if self.named is None else f"@{self.named}"

    def definition(self):
        """The command that makes the named set."""
        return f"set {self.named} {{{', '.join(self.items())}}}"

    def items(self):
        return [numeral(self.name, a) if a == b else f"{numeral(self.name, a)}-{numeral(self.name, b)}"
                for a, b in self.ranges]

    def elements(self):
        items = self.items()
        if self.prefix is not None:
            return f"{numeral(self.name, self.ranges[0][0])}/{self.prefix}"
        return items[0] if len(items) == 1 else "{" + ", ".join(items) + "}"

    def holds(self, packet, _ports):
        row = FIELDS[self.name]
        if not row.present(packet):
            return False
        value = row.read(packet)
        if self.condition is None:
            test = value == (row.value if row.value is not None else 1) if row.flag or row.value is not None else True
        elif self.condition in ("==", "!="):
            test = any(a <= value <= b for a, b in self.ranges) == (self.condition == "==")
        else:
            test = COMPARE[self.condition](value, self.ranges[0][0])
        return test != self.negated


@dataclass
class Meta:
    """Fields that are not bits of a header: ports, ether type, tag, protocol, extension headers."""

    name: str
    negated: bool
    condition: str | None
    value: object = None

    def __str__(self):
        words = (["!"] if self.negated else []) + [self.name]
        if self.condition:
            words += [self.condition] if self.condition != "==" else []
            words.append(str(self.value))
        return " ".join(words)

    def holds(self, packet, ports):
        # Only a rule with the ether type matches frames that are not IP; the rule checks that.
        if self.name == "vlan-id":
            if self.condition is None:
                test = packet.vlan is not None
            else:
                test = packet.vlan is not None and COMPARE[self.condition](packet.vlan, self.value)
            return test != self.negated
        if self.name == "eth-type":
            return COMPARE[self.condition](packet.eth_type, self.value) != self.negated
        if self.name in ("in", "out"):
            return COMPARE[self.condition](ports[self.name], self.value) != self.negated
        if self.name == "net-proto":
            wanted = {"ip4": 4, "ip6": 6}[self.value]
            return packet.family != 0 and COMPARE[self.condition](packet.family, wanted) != self.negated
        if self.name == "ip-proto":
            return packet.family != 0 and COMPARE[self.condition](packet.proto, self.value) != self.negated
        assert self.name.startswith("ip6-eh"), self.name
        there = packet.headers if self.name == "ip6-eh" else {self.name[7:]} & packet.headers
        return packet.family == 6 and bool(there) != self.negated


@dataclass
class Option:
    """A TCP option: its presence, or its data compared with a number or with bytes."""

    kind: int | None  # None: any
    negated: bool
    condition: str | None
    value: object = None

    def __str__(self):
        words = (["!"] if self.negated else []) + [option_name(self.kind)]
        if self.condition:
            words += [self.condition] if self.condition != "==" else []
            words.append(quoted(self.value) if isinstance(self.value, bytes) else str(self.value))
        return " ".join(words)

    def test(self, data):
        if self.condition is None:
            return True
        if isinstance(self.value, bytes):
            return COMPARE[self.condition](data, self.value)
        return 1 <= len(data) <= 8 and COMPARE[self.condition](int.from_bytes(data, "big"), self.value)

    def holds(self, packet, _ports):
        if not HAS["tcp"](packet):
            return False
        return any(self.test(data) for data in options_of(packet, self.kind)) != self.negated


@dataclass
class Payload:
    """A payload: its presence, or a comparison with its beginning."""

    name: str
    negated: bool
    condition: str | None
    value: bytes = b""

    def __str__(self):
        words = (["!"] if self.negated else []) + [self.name]
        if self.condition:
            words += [self.condition] if self.condition != "==" else []
            words.append(quoted(self.value))
        return " ".join(words)

    def holds(self, packet, _ports):
        if not HAS[PAYLOADS[self.name]](packet):
            return False
        first, last = payload(self.name, packet)
        data = packet.data[first:last]
        if self.condition is None:
            test = data != b""
        elif self.condition == "==":
            test = data.startswith(self.value)
        else:
            test = data != b"" and not data.startswith(self.value)
        return test != self.negated


def option_name(kind):
    names = {number: name for name, number in OPTIONS.items()}
    return "tcp-opt" if kind is None else names.get(kind, f"tcp-opt {kind}")


# --- targets --------------------------------------------------------------------------------------------------------


@dataclass
class Mod:
    name: str
    value: int

    def __str__(self):
        return f"mod {self.name} {numeral(self.name, self.value)}"


@dataclass
class ModVlan:
    value: int

    def __str__(self):
        return f"mod vlan-id {self.value}"


@dataclass
class ModProto:
    value: int

    def __str__(self):
        return f"mod ip-proto {self.value}"


@dataclass
class ModPayload:
    name: str
    value: bytes

    def __str__(self):
        return f"mod {self.name} {quoted(self.value)}"


@dataclass
class ModOption:
    kind: int
    value: object

    def __str__(self):
        value = quoted(self.value) if isinstance(self.value, bytes) else str(self.value)
        return f"mod {option_name(self.kind)} {value}"


@dataclass
class AddOption:
    kind: int
    value: bytes

    def __str__(self):
        return f"add {option_name(self.kind)} {quoted(self.value)}".replace(" ||", "")


@dataclass
class Strip:
    kind: int

    def __str__(self):
        return f"strip {option_name(self.kind)}"


@dataclass
class Keep:
    """The complete whitelist of one rule."""

    kinds: list

    def __str__(self):
        return " ".join(f"strip ! {option_name(kind)}" for kind in self.kinds)


@dataclass
class StripAll:
    def __str__(self):
        return "strip all"


@dataclass
class Decide:
    word: str  # "drop" or "accept"

    def __str__(self):
        return self.word


@dataclass
class Log:
    """Tells of the packet, which stays what it is."""

    text: str | None

    def __str__(self):
        return "log" if self.text is None else f'log "{self.text}"'


@dataclass
class Rule:
    id: int
    prio: int
    matches: list
    targets: list

    def __str__(self):
        prio = f"prio {self.prio} " if self.prio != 100 else ""
        return f"add id {self.id} {prio}" + " ".join(str(part) for part in self.matches + self.targets)

    def holds(self, packet, ports):
        if packet.family == 0 and not any(isinstance(m, Meta) and m.name == "eth-type" for m in self.matches):
            return False
        return all(match.holds(packet, ports) for match in self.matches)


# --- the packet's way -----------------------------------------------------------------------------------------------


def definitions(rules):
    """The commands that make the sets which rules name."""
    matches = [match for rule in rules for match in rule.matches]
    return [match.definition() for match in matches if getattr(match, "named", None) is not None]


@dataclass
class Outcome:
    """The result for a packet. `sums`: checksums that are zero, for which all ones is equivalent, and vice versa."""

    data: bytes | None
    reason: str | None
    matched: list
    not_applied: list


def evaluate(rules, data, ports):
    """The expected result of mmb for a frame."""
    try:
        packet = dissect(data)
    except Malformed as why:
        return Outcome(None, str(why), [], [])
    matched = sorted((r for r in rules if r.holds(packet, ports)), key=lambda r: (r.prio, r.id))
    ids = [rule.id for rule in matched]
    decisions = [(rule.prio, target.word != "accept", target.word)
                 for rule in matched for target in rule.targets if isinstance(target, Decide)]
    if decisions and min(decisions)[2] == "drop":
        return Outcome(None, "rule", ids, [])
    work = Work(packet)
    for rule in matched:
        work.targets += [target for target in rule.targets if not isinstance(target, (Decide, Log))]
    return Outcome(work.done(), None, ids, work.not_applied)


class Work:
    """Rewrites one packet."""

    def __init__(self, packet):
        self.packet, self.targets, self.not_applied = packet, [], []
        self.data = bytearray(packet.data)
        self.grown = 0  # the number of bytes by which the options area grew

    def done(self):
        for target in self.targets:
            self.in_place(target)
        self.options()
        for target in self.targets:
            if isinstance(target, ModPayload):
                self.payload(target)
        self.sums()
        checksums = ("ip-checksum", "tcp-checksum", "udp-checksum", "icmp-checksum", "icmp6-checksum")
        for last in (False, True):
            before = bytes(self.data)
            for target in self.targets:
                if isinstance(target, Mod) and FIELDS[target.name].write == "raw":
                    if (target.name in checksums) == last:
                        self.write(FIELDS[target.name], target.value)
            if not last:
                self.follow(before)
        return bytes(self.data)

    def write(self, row, value):
        if not row.present(self.packet):
            return
        at, size, shift = row.place(self.packet)
        mask = (1 << row.width) - 1 << shift
        old = int.from_bytes(self.data[at:at + size], "big")
        self.data[at:at + size] = (old & ~mask | value << shift).to_bytes(size, "big")

    def in_place(self, target):
        packet = self.packet
        if isinstance(target, Mod) and FIELDS[target.name].write == "place":
            self.write(FIELDS[target.name], target.value)
        elif isinstance(target, ModProto) and packet.family:
            self.data[packet.proto_at] = target.value
        elif isinstance(target, ModVlan) and packet.vlan is not None:
            word = struct.unpack_from("!H", self.data, 14)[0]
            struct.pack_into("!H", self.data, 14, word & 0xF000 | target.value)

    def payload(self, target):
        packet = self.packet
        if not HAS[PAYLOADS[target.name]](packet):
            return
        first, last = payload(target.name, packet)
        moved = self.grown if first >= packet.payload else 0
        if last - first < len(target.value):
            self.not_applied.append("payload-short")
            return
        self.data[first + moved:first + moved + len(target.value)] = target.value

    # TCP options: a list that the targets modify in order; it is rebuilt if anything in it changed.

    def options(self):
        packet = self.packet
        if packet.kind != TCP:
            return
        area = option_area(packet)
        walked, tail = walk_options(area)
        options = [list(option) for option in walked if option[0] != 1]
        before = [tuple(option) for option in options], tail
        room = len(area) if packet.fragment else 40
        for target in self.targets:
            tail = self.option(target, options, tail, room)
        after = [tuple(option) for option in options], tail
        cleared = area and any(isinstance(target, StripAll) for target in self.targets)
        if after == before and not cleared:
            return
        kinds = [(kind, len(data)) for kind, data in options]
        if not cleared and kinds == [(kind, len(data)) for kind, data in before[0]] and tail == before[1]:
            new = self.in_their_places(area, options)
        else:
            new = b"".join(bytes([kind, 2 + len(data)]) + data for kind, data in options) + tail
            new += b"\0" * ((len(area) if packet.fragment else len(new)) - len(new))
            new += b"\0" * (-len(new) % 4)
        self.data[packet.l4 + 20:packet.payload] = new
        self.grown = len(new) - len(area)
        if self.grown:
            self.data[packet.l4 + 12] = self.data[packet.l4 + 12] & 0x0F | (5 + len(new) // 4) << 4
            at = packet.ip + (2 if packet.family == 4 else 4)
            length = struct.unpack_from("!H", self.data, at)[0]
            struct.pack_into("!H", self.data, at, length + self.grown)

    @staticmethod
    def in_their_places(area, options):
        """The area with the data of its options written over."""
        new, at = bytearray(area), 0
        for kind, data in options:
            while new[at] == 1:
                at += 1
            assert new[at] == kind
            new[at + 2:at + 2 + len(data)] = data
            at += 2 + len(data)
        return bytes(new)

    def option(self, target, options, tail, room):
        size = sum(2 + len(data) for _, data in options) + len(tail)
        if isinstance(target, Strip):
            options[:] = [option for option in options if option[0] != target.kind]
        elif isinstance(target, Keep):
            options[:] = [option for option in options if option[0] in target.kinds]
            tail = b""
        elif isinstance(target, StripAll):
            options.clear()
            tail = b""
        elif isinstance(target, AddOption):
            why = no_room(size + 2 + len(target.value), room)
            if why:
                self.not_applied.append(why)
            else:
                options.append([target.kind, target.value])
        elif isinstance(target, ModOption):
            why = self.change([option for option in options if option[0] == target.kind], target.value, size, room)
            if why:
                self.not_applied.append(why)
        return tail

    @staticmethod
    def change(instances, value, size, room):
        """Gives every option of a kind other data; returns the reason if it cannot do so for some or for all."""
        if isinstance(value, int):
            fitting = [option for option in instances if value < 1 << 8 * len(option[1])]
            for option in fitting:
                option[1] = value.to_bytes(len(option[1]), "big")
            return "option-width" if len(fitting) < len(instances) else None
        grown = sum(len(value) - len(option[1]) for option in instances)
        why = no_room(size + grown, room) if grown > 0 else None
        if why is None:
            for option in instances:
                option[1] = value
        return why

    # Checksums.

    def sums(self):
        """Computes the checksums of changed parts again; wrong ones stay wrong by the same amount."""
        packet, new = self.packet, bytes(self.data)
        if packet.family == 4:
            header = slice(packet.ip, packet.ip_payload)
            self.patch(packet.ip + 10, ones_sum(packet.data[header]), ones_sum(new[header]),
                       without(packet.data[header], 10) == without(new[header], 10))
        at = packet.l4 + {TCP: 16, UDP: 6, ICMP: 2, ICMP6: 2}.get(packet.kind, 0)
        if not packet.kind or packet.kind == UDP and packet.data[at:at + 2] == b"\0\0":
            return
        old_part = pseudo(packet, packet.data) + packet.data[packet.l4:packet.end]
        new_part = pseudo(packet, new, self.grown) + new[packet.l4:packet.end + self.grown]
        self.patch(at, ones_sum(old_part), ones_sum(new_part), old_part == new_part)

    def follow(self, before):
        """Updates the checksums for fields that are written without correction."""
        packet, new = self.packet, bytes(self.data)
        if packet.family == 4:
            header = slice(packet.ip, packet.ip_payload)
            self.patch(packet.ip + 10, ones_sum(before[header]), ones_sum(new[header]), before[header] == new[header])
        at = packet.l4 + {TCP: 16, UDP: 6, ICMP: 2, ICMP6: 2}.get(packet.kind, 0)
        if not packet.kind or packet.kind == UDP and before[at:at + 2] == b"\0\0":
            return
        segment = slice(packet.l4, packet.end + self.grown)
        old_part = pseudo(packet, before, self.grown) + before[segment]
        new_part = pseudo(packet, new, self.grown) + new[segment]
        self.patch(at, ones_sum(old_part), ones_sum(new_part), old_part == new_part)

    def patch(self, at, old_sum, new_sum, same):
        """Sets the sum at `at` such that the total is the same as before."""
        if same:
            return
        old = struct.unpack_from("!H", self.data, at)[0]
        # Sums are numbers modulo 65535; the checksum is included already.
        new = (old + old_sum - new_sum) % 0xFFFF
        zero = 0xFFFF if self.packet.kind == UDP and at != self.packet.ip + 10 else 0
        struct.pack_into("!H", self.data, at, new or zero)


def no_room(size, room):
    """The reason why an area of options cannot have this size."""
    return "option-space" if size > 40 else "fragment" if size > room else None


def without(data, at):
    return data[:at] + data[at + 2:]


def pseudo(packet, data, grown=0):
    """The pseudo header (RFC 768, 8200), without the destination if the sender did not sum up this one."""
    if packet.kind == ICMP:
        return b""
    at, size = (packet.ip + 12, 4) if packet.family == 4 else (packet.ip + 8, 16)
    destination = b"" if packet.routed else data[at + size:at + 2 * size]
    length = packet.end + grown - packet.l4
    if packet.kind == UDP:
        length = struct.unpack_from("!H", data, packet.l4 + 4)[0]
    return data[at:at + size] + destination + struct.pack("!HH", data[packet.proto_at], length)
