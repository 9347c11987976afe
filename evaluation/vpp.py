"""VPP beside mmb, in memory: its classifier, its ACL plugin and its NAT44-ED, on the packets and rules of `mmb bench`.

VPP's packet generator replays a capture on its one thread; `show runtime` reports the clocks that each node of the graph took for
a packet. The comparison covers the nodes of the feature, without the rest of VPP's IP path. If a VPP refuses a command, its row
names the command.
"""

import contextlib
import itertools
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from lab import vpp
from lab.daemon import BINARY
from lab.generator import IN, OUT, Generator
from lab.process import run

from . import figures, parse
from .session import Planned

PACKETS, REPLAYED = 16_384, 2_000_000
RULES = 100_000
# The time to generate packets, to start VPP, to load the rules and to replay.
AROUND_A_RUN = 8.0

# Packets that VPP would answer instead of forwarding them, twice.
EXPIRED = "add ip-ttl < 3 drop"


def _classifier(rules):
    yield "classify table mask l3 ip4 src dst proto l4 src_port dst_port buckets 65536 memory-size 512M"
    for source, destination, protocol, source_port, destination_port in rules:
        ends = f"l3 ip4 src {source} dst {destination} proto {protocol} l4 src_port {source_port} dst_port {destination_port}"
        yield f"classify session acl-hit-next deny table-index 0 match {ends}"
    yield f"set interface input acl intfc {IN} ip4-table 0"


def acl(rules):
    """An access list that drops the packets that those rules match."""
    each = (f"deny src {s}/32 dst {d}/32 proto {protocol} sport {sp} dport {dp}" for s, d, protocol, sp, dp in rules)
    return f"set acl-plugin acl {', '.join(each)}, permit"


def _acl(rules):
    yield acl(rules)
    yield f"set acl-plugin interface {IN} input acl 0"


def _nat(_rules):
    yield f"nat44 plugin enable sessions {4 * PACKETS}"
    yield "nat44 add address 198.51.100.1-198.51.100.254"
    yield f"set interface nat44 in {IN} out {OUT}"


class Work(NamedTuple):
    """Its name, its set of `mmb bench` and packets, VPP's commands, the nodes of its graph."""

    title: str
    workload: str
    traffic: str
    commands: Callable
    nodes: str


# NAT44-ED does not accept TCP in the middle of a connection, and most packets of mmb's set are such.
WORK = {
    "vpp-classifier": Work("five-tuple firewall, none matching", "five-tuple", "uniform", _classifier, r"inacl"),
    "vpp-acl": Work("five-tuple firewall, none matching", "five-tuple", "uniform", _acl, r"acl-plugin"),
    "vpp-nat44-ed": Work("source NAT of UDP", "snat", "udp", _nat, r"nat|reassembly"),
}
TITLES = {"vpp-classifier": "VPP, classifier", "vpp-acl": "VPP, ACL plugin", "vpp-nat44-ed": "VPP, NAT44-ED"}


def planned(plan):
    """A point for each of VPP's features."""
    return [
        Planned(
            point=_point(name, work),
            parameters={"workload": work.workload, "traffic": work.traffic, **plan.repeat._asdict()},
            group="vpp",
            metric="cycles_per_packet",
            seconds=0.0,
            around_s=AROUND_A_RUN,
            missing=vpp.program() is None,
        )
        for name, work in WORK.items()
    ]


def measure(folder, cores, session, points):
    """Measures these planned points, as far as they are not stored; their runs take turns."""
    pending = session.pending(points)
    if vpp.program() is None:
        for each in pending:
            session.absent(each, "not installed here")
        return
    print(f"VPP's features on the same packets ({figures.labels('vpp')})", flush=True)
    numbers = itertools.count(1)

    def measured(name):
        return lambda: _run(Path(folder) / f"{name}-{next(numbers)}", cores, WORK[name])

    with session.comparison("vpp"):
        session.take_turns("vpp", {each.point["system"]: session.unit(each, measured(each.point["system"])) for each in pending})


def _point(name, work):
    return {
        "experiment": "vpp",
        "title": work.title,
        "paper": figures.labels("vpp", work.workload) or figures.NO_PAPER,
        "load": work.workload,
        "load_title": work.workload,
        "axis": "rules",
        "x": RULES if work.workload == "five-tuple" else 1,
        "system": name,
        "system_title": TITLES[name],
        "absent": None,
        "runs": [],
    }


def _run(folder, cores, work):
    folder.mkdir(parents=True)
    capture, rules = packets_and_rules(folder, work)
    with contextlib.closing(vpp.Vpp(folder, cores=[cores.middle], heap="2G", buffers=32_768)) as started:
        with cores.on_middle():
            started.start()
        generator = Generator(started)
        started.configure(*work.commands(five_tuples(rules)), timeout=300)
        # The first pass creates connections and is not measured.
        generator.play(capture, PACKETS)
        started.configure("clear runtime")
        generator.play(capture, REPLAYED)
        return clocks(vpp.runtime(started.ask("show runtime")), work.nodes)


def packets_and_rules(folder, work, packets=PACKETS):
    """Files with the rules and packets that `mmb bench` would use."""
    made, rules = folder / "made.pcap", folder / "rules.mmb"
    words = ["--workload", work.workload, "--traffic", work.traffic, "--packets", packets]
    run([BINARY, "bench", *words, "--write-pcap", made, "--write-rules", rules], timeout=60)
    return forwardable(folder, made), rules


def forwardable(folder, made):
    """The packets that VPP forwards, in a new file."""
    capture, expired = folder / "packets.pcap", folder / "expired.mmb"
    expired.write_text(f"{EXPIRED}\n")
    run([BINARY, "replay", "--rules", expired, made, capture], timeout=60)
    return capture


def five_tuples(path):
    """The rules that `mmb bench` wrote, as numbers and addresses; none for a set with other rules."""
    form = r"ip-saddr (\S+) ip-daddr (\S+) (tcp|udp)-sport (\d+) (?:tcp|udp)-dport (\d+) drop"
    for source, destination, protocol, source_port, destination_port in re.findall(form, path.read_text()):
        yield source, destination, 6 if protocol == "tcp" else 17, source_port, destination_port


def clocks(nodes, which):
    """The clocks of the nodes whose names match, for each packet that the generator sent."""
    packets = nodes["pg-input"].packets if "pg-input" in nodes else 0
    spent = {name: node.packets * node.clocks for name, node in nodes.items() if node.packets and re.search(which, name)}
    if not packets or not spent:
        raise parse.Unreadable(f"show runtime has no packets of {which}: {' '.join(nodes)}")
    each = {f"{name}_cycles": total / packets for name, total in spent.items()}
    return {"cycles_per_packet": sum(each.values()), "packets": packets} | each
