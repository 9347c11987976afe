"""ClassBench filter sets as access lists of VPP's ACL plugin and as policies of mmb, which decide alike: the first filter that
matches, accept and drop in turn.

Both read the upper byte of the flags column as the TCP flags, which is the only reading that VPP can express, and ignore ports of
protocols that have none. VPP's lists cannot have ports for any protocol: such a filter becomes a rule for TCP and one for UDP there.
"""

import lzma
import os
import re
from pathlib import Path
from typing import NamedTuple

from lab.daemon import BINARY
from lab.process import run

TCP, UDP, ICMP = 6, 17, 1
ANY_PORT = (0, 65535)
_LINE = re.compile(r"@(\S+)\s+(\S+)\s+(\d+) : (\d+)\s+(\d+) : (\d+)\s+(\w+)/(\w+)(?:\s+(\w+)/(\w+))?")


class FilterSet(NamedTuple):
    """A file of filters, plain or compressed with xz."""

    path: Path

    @property
    def name(self):
        return self.path.name.removesuffix(".xz")

    def text(self):
        return lzma.open(self.path, "rt").read() if self.path.suffix == ".xz" else self.path.read_text()


def sets():
    """The sets of `CLASSBENCH`, or of ../shared/classbench beside the project; they are not part of it."""
    folder = Path(os.environ.get("CLASSBENCH", "../shared/classbench"))
    return [FilterSet(path) for path in sorted(folder.glob("*")) if path.is_file() and "LICENSE" not in path.name]


def acl(text):
    """The command that makes a set's access list; other packets are permitted, as mmb accepts them."""
    filters = enumerate(line for line in text.splitlines() if line.strip() and not line.startswith("#"))
    each = (f"{action} {match}" for place, line in filters for action in [("permit", "deny")[place % 2]] for match in _matches(line))
    return f"set acl-plugin acl {', '.join(each)}, permit"


def _matches(line):
    """A filter in the words of VPP: one rule, or two."""
    source, destination, *numbers = _LINE.match(line.strip()).groups("0")
    sources, destinations = tuple(map(int, numbers[:2])), tuple(map(int, numbers[2:4]))
    proto, proto_mask, flags, flags_mask = (int(number, 0) for number in numbers[4:])
    ends, has_ports = f"src {source} dst {destination}", (sources, destinations) != (ANY_PORT, ANY_PORT)
    ports = f" sport {sources[0]}-{sources[1]} dport {destinations[0]}-{destinations[1]}" if has_ports else ""
    if proto_mask == 0:
        yield from (f"{ends} proto {each}{ports}" for each in (TCP, UDP)) if has_ports else [ends]
    elif proto == TCP:
        yield f"{ends} proto {proto}{ports}" + (f" tcpflags {flags >> 8} mask {flags_mask >> 8}" if flags_mask >> 8 else "")
    elif proto == ICMP and flags_mask:
        # VPP has type and code where other protocols have ports.
        kind, code = ((value, value) if mask else (0, 255) for value, mask in _bytes(flags, flags_mask))
        yield f"{ends} proto {proto} sport {kind[0]}-{kind[1]} dport {code[0]}-{code[1]}"
    else:
        yield f"{ends} proto {proto}" + (ports if proto == UDP else "")


def _bytes(number, mask):
    return (number >> 8, mask >> 8), (number & 0xFF, mask & 0xFF)


def packets_and_policy(folder, filters, packets):
    """Files with the policy of a set, and with packets that `mmb bench` draws from its rules."""
    plain, policy, made = (folder / name for name in ("filters", "rules.mmb", "made.pcap"))
    plain.write_text(filters.text())
    reading = ["--action", "alternate", "--portless", "always", "--tcp-flags", "upper-byte", "--strict"]
    run([BINARY, "import", "classbench", *reading, "-o", policy, plain], timeout=60)
    words = ["--rules", policy, "--traffic", "uniform", "--hit", 1, "--packets", packets]
    run([BINARY, "bench", *words, "--write-pcap", made], timeout=60)
    return made, policy
