"""VPP beside mmb, in memory: its classifier, its ACL plugin and its NAT44-ED, on the packets and rules of `mmb bench`.

VPP's packet generator replays a capture on its one thread; `show runtime` tells the clocks that each node of the graph took for a
packet. What is compared is the nodes of the feature, without the rest of VPP's IP path. A VPP that does not take a command is a
row that says which.
"""

import contextlib
import os
import re
import shutil
from pathlib import Path

from lab.daemon import BINARY
from lab.process import Background, CommandFailed, run, wait_until

from . import method, parse

PACKETS, REPLAYED = 16_384, 2_000_000
RULES = 100_000
STARTUP = """
unix {{ nodaemon nosyslog cli-listen {folder}/cli.sock runtime-dir {folder} }}
memory {{ main-heap-size 1G main-heap-page-size 4k }}
buffers {{ page-size 4k buffers-per-numa 32768 }}
cpu {{ main-core {core} }}
statseg {{ size 64M page-size 4k }}
api-segment {{ prefix mmb-evaluation-{pid} }}
plugins {{ plugin dpdk_plugin.so {{ disable }} }}
"""
INTERFACES = """
create packet-generator interface pg0
create packet-generator interface pg1
set interface state pg0 up
set interface state pg1 up
set interface promiscuous on pg0
set interface ip address pg0 192.0.2.1/24
set interface ip address pg1 192.0.3.1/24
set ip neighbor pg1 192.0.3.2 02:00:00:00:00:09
ip route add 0.0.0.0/0 via 192.0.3.2 pg1
"""


def _classifier(rules):
    yield "classify table mask l3 ip4 src dst proto l4 src_port dst_port buckets 65536 memory-size 512M"
    for source, destination, protocol, source_port, destination_port in rules:
        ends = f"l3 ip4 src {source} dst {destination} proto {protocol} l4 src_port {source_port} dst_port {destination_port}"
        yield f"classify session acl-hit-next deny table-index 0 match {ends}"
    yield "set interface input acl intfc pg0 ip4-table 0"


def _acl(rules):
    each = (f"deny src {s}/32 dst {d}/32 proto {protocol} sport {sp} dport {dp}" for s, d, protocol, sp, dp in rules)
    yield f"set acl-plugin acl {', '.join(each)}, permit"
    yield "set acl-plugin interface pg0 input acl 0"


def _nat(_rules):
    yield f"nat44 plugin enable sessions {4 * PACKETS}"
    yield "nat44 add address 198.51.100.1-198.51.100.254"
    yield "set interface nat44 in pg0 out pg1"


# What it is called, the set of `mmb bench`, VPP's commands, the nodes of its graph.
WORK = {
    "vpp-classifier": ("five-tuple firewall, none matching", "five-tuple", _classifier, r"inacl"),
    "vpp-acl": ("five-tuple firewall, none matching", "five-tuple", _acl, r"acl-plugin"),
    "vpp-nat44-ed": ("source NAT", "snat", _nat, r"nat|reassembly"),
}
TITLES = {"vpp-classifier": "VPP, classifier", "vpp-acl": "VPP, ACL plugin", "vpp-nat44-ed": "VPP, NAT44-ED"}


def program():
    """VPP's program: that of VPP_PREFIX, or the one in PATH; None where there is none."""
    prefix = os.environ.get("VPP_PREFIX")
    found = f"{prefix}/bin/vpp" if prefix else shutil.which("vpp")
    return Path(found) if found and os.access(found, os.X_OK) else None


def points(folder, cores, plan, seed, only=""):
    """A point for each of VPP's features; runs of them take turns."""
    if only not in "vpp":
        return []
    made = {name: _point(name, work) for name, work in WORK.items()}
    vpp = program()
    if vpp is None:
        for point in made.values():
            point["absent"] = "not installed here"
        return list(made.values())
    print("VPP's features on the same packets", flush=True)
    order = 0
    for chosen in method.rounds(list(WORK), plan.runs, f"{seed} vpp"):
        for name in chosen:
            order += 1
            made[name]["runs"].append({"order": order} | _run(vpp, Path(folder) / f"{name}-{order}", cores, name))
    return list(made.values())


def _point(name, work):
    return {
        "experiment": "vpp",
        "title": work[0],
        "paper": "beyond",
        "load": work[1],
        "load_title": work[1],
        "axis": "rules",
        "x": RULES if work[1] == "five-tuple" else 1,
        "system": name,
        "system_title": TITLES[name],
        "absent": None,
        "runs": [],
    }


def _run(vpp, folder, cores, name):
    _, workload, commands, nodes = WORK[name]
    folder.mkdir(parents=True)
    try:
        capture, rules = folder / "packets.pcap", folder / "rules.mmb"
        words = ["--workload", workload, "--packets", PACKETS, "--write-pcap", capture, "--write-rules", rules]
        run([BINARY, "bench", *words], timeout=60)
        stream = f"packet-generator new {{ name s limit {REPLAYED} node ethernet-input interface pg0 pcap {capture} }}"
        script = folder / "setup.cli"
        script.write_text(INTERFACES + "".join(f"{line}\n" for line in commands(_five_tuples(rules))) + stream + "\n")
        with _started(vpp, folder, cores) as ask:
            ask("exec", script)
            return {"ok": True, "metrics": _measured(ask, nodes)}
    except (CommandFailed, parse.Unreadable, AssertionError, OSError) as error:
        return {"ok": False, "error": " ".join(str(error).split())[:300]}


def _five_tuples(path):
    """The rules that `mmb bench` wrote, as numbers and addresses; none of a set that has others."""
    form = r"ip-saddr (\S+) ip-daddr (\S+) (tcp|udp)-sport (\d+) (?:tcp|udp)-dport (\d+) drop"
    for source, destination, protocol, source_port, destination_port in re.findall(form, path.read_text()):
        yield source, destination, 6 if protocol == "tcp" else 17, source_port, destination_port


@contextlib.contextmanager
def _started(vpp, folder, cores):
    """A VPP of its own; gives what asks it."""
    config, socket = folder / "startup.conf", folder / "cli.sock"
    config.write_text(STARTUP.format(folder=folder, core=cores.middle, pid=os.getpid()))

    def ask(*words):
        return run([vpp.with_name("vppctl"), "-s", socket, *words], timeout=300).stdout

    os.sched_setaffinity(0, [cores.middle, *cores.ends])
    try:
        process = Background([vpp, "-c", config], folder / "vpp.log")
    finally:
        os.sched_setaffinity(0, cores.ends)
    with process:
        wait_until(lambda: socket.exists() or not process.running(), "VPP listens", timeout=30)
        yield ask


def _measured(ask, nodes):
    # Once through: what makes connections is not what is measured.
    for _ in range(2):
        ask("clear", "runtime")
        ask("packet-generator", "enable-stream", "s")
        wait_until(lambda: "Yes" not in ask("show", "packet-generator"), "the packets are through", timeout=120)
    return clocks(ask("show", "runtime"), nodes)


def clocks(text, nodes):
    """`show runtime`: clocks a packet of the nodes whose names fit, for each packet that the generator sent."""
    rows = re.findall(r"^\s*(\S+)\s+(?:active|polling)\s+\d+\s+(\d+)\s+\d+\s+(\S+)\s+\S+\s*$", text, re.M)
    spent = {name: int(vectors) * float(each) for name, vectors, each in rows if int(vectors)}
    packets = next((int(vectors) for name, vectors, _ in rows if name == "pg-input"), 0)
    fitting = {name: total for name, total in spent.items() if re.search(nodes, name)}
    if not packets or not fitting:
        raise parse.Unreadable(f"show runtime has no packets of {nodes}: {' '.join(text.split())[:200]}")
    return {"cycles_per_packet": sum(fitting.values()) / packets, "packets": packets} | {
        f"{name}_cycles": total / packets for name, total in fitting.items()
    }
