"""Compares mmb in VPP with VPP's own features and with `mmb bench`: `/usr/bin/python3 -m evaluation.plugin`, as `make vpp-bench` runs it.

One VPP runs all rows: the packet generator sends the same packets through each feature in turn, while it is the only one on the
interface, and `show runtime` reports the cost of a packet in its nodes. In the same rounds `mmb bench` processes the same packets
with the same rules, on the same core, while VPP is stopped.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from lab import vpp
from lab.daemon import BINARY
from lab.generator import IN, OUT, OUT_MAC, Generator
from lab.process import run

from . import exclusive, filters, machine, method
from .answers import write as write_answers
from .topology import Cores
from .vpp import PACKETS, Work, acl, clocks, five_tuples, forwardable, packets_and_rules

# Short pieces, of which the minimum counts: interruptions of VPP's thread make its nodes look slower, never faster.
PIECES, REPLAYED = 9, 131_072
# Packets of the rows with connections: one connection each.
SESSIONS = 10_000
MMB = r"^ip4-mmb-(classify|rewrite)$"
BEGIN, END = "<!-- make vpp-bench writes from here -->\n", "<!-- to here -->\n"

# The packets, as `mmb bench` generates them.
FIREWALL = Work("100,000 five-tuples, none matching", "five-tuple", "uniform", None, MMB)
REWRITE = Work("one rule that rewrites every packet", "rewrite", "udp", None, MMB)
NAT = Work("source NAT, 10,000 UDP sessions", "snat", "udp", None, MMB)


class Row(NamedTuple):
    """A feature and its packets. `on` and `off`: VPP's commands. `rules`: mmb's rules, if the feature is mmb."""

    title: str
    load: Work | filters.FilterSet
    nodes: str
    on: tuple = ()
    off: tuple = ()
    rules: Callable | None = None

    @property
    def answered(self):
        """Whether each packet is answered once before the measurement, as in `mmb bench`."""
        return self.load is NAT and self.rules is not None


def rows():
    yield Row("VPP's routing itself", FIREWALL, r"^ip4-(input|input-no-checksum|lookup|rewrite|load-balance)$")
    for number, size in enumerate(ACLS):
        yield of_mmb(f"mmb: {size:,} five-tuples, none matching", FIREWALL, first(size))
        yield Row(f"ACL plugin: {size:,} five-tuples, none matching", FIREWALL, r"^acl-plugin", *bound(number))
    for number, chosen in enumerate(filters.sets(), start=len(ACLS) + 1):
        yield of_mmb(f"mmb: ClassBench {chosen.name}", chosen)
        yield Row(f"ACL plugin: ClassBench {chosen.name}", chosen, r"^acl-plugin", *bound(number))
    yield of_mmb("mmb: one rule that rewrites every packet", REWRITE)
    yield of_mmb("mmb: source NAT, 10,000 UDP sessions", NAT)
    nat = (f"set interface nat44 in {IN} out {OUT}", f"set interface nat44 in {IN} out {OUT} del")
    yield Row("NAT44-ED: source NAT, 10,000 UDP sessions", NAT, r"^nat|^ip4-sv-reassembly", nat[:1], nat[1:])
    yield of_mmb("mmb: 10,000 established connections", NAT, lambda _: "add-stateful all accept\n")
    yield Row("ACL plugin: 10,000 established connections", NAT, r"^acl-plugin", *bound(len(ACLS)))


def of_mmb(title, load, rules=Path.read_text):
    return Row(title, load, MMB, rules=rules)


def first(size):
    """A policy of the first rules of a file."""
    return lambda path: "".join(path.read_text().splitlines(keepends=True)[:size])


# The number of rules of the first access lists. The rule after them creates connections of all packets, and then come the filter sets.
ACLS = (1000, 10_000, 100_000)


def bound(number):
    words = f"set acl-plugin interface {IN} input acl {number}"
    return (words,), (f"{words} del",)


class Bench:
    """A running VPP with everything that the rows need, and files of packets and rules."""

    def __init__(self, folder, cores, started):
        self.folder, self.cores, self.vpp = folder, cores, started
        self.generator = Generator(started)
        self.files = {}
        for load, packets in ((FIREWALL, PACKETS), (REWRITE, PACKETS), (NAT, SESSIONS)):
            place = folder / load.workload
            place.mkdir()
            self.files[load] = packets_and_rules(place, load, packets)
        for chosen in filters.sets():
            place = folder / chosen.name
            place.mkdir()
            made, policy = filters.packets_and_policy(place, chosen, PACKETS)
            self.files[chosen] = forwardable(place, made), policy
        rules = list(five_tuples(self.files[FIREWALL][1]))
        lists = [*(acl(rules[:size]) for size in ACLS), "set acl-plugin acl permit+reflect"]
        lists += [filters.acl(chosen.text()) for chosen in filters.sets()]
        started.configure(*lists, timeout=300)
        started.configure(f"nat44 plugin enable sessions {4 * SESSIONS}", "nat44 add address 198.51.100.1-198.51.100.254")

    def cycles(self, row):
        """The cost of a packet in the row's nodes."""
        capture, made = self.files[row.load]
        if row.rules:
            policy = self.folder / "policy.mmb"
            policy.write_text(row.rules(made))
            self.vpp.ask(f"mmb apply {policy}", timeout=120)
            self._each("mmb enable", IN, OUT)
        self.vpp.configure(*row.on)
        try:
            # The first pass creates connections and is not measured.
            left, answers = self.folder / "left.pcap", self.folder / "answers.pcap"
            with self.generator.captured(left):
                self.generator.play(capture)
            if row.answered:
                write_answers(left, answers, OUT_MAC)
                self.generator.play(answers, source=OUT)
            return min(self._piece(capture, row) for _ in range(PIECES))
        finally:
            self.vpp.configure(*row.off)
            if row.rules:
                self._each("mmb disable", IN, OUT)
                self._each("mmb", "flush", "conn kill all")

    def _each(self, command, *words):
        for word in words:
            self.vpp.ask(f"{command} {word}")

    def _piece(self, capture, row):
        self.vpp.configure("clear runtime")
        self.generator.play(capture, REPLAYED)
        return clocks(vpp.runtime(self.vpp.ask("show runtime")), row.nodes)["cycles_per_packet"]

    def bench(self, row):
        """The result of `mmb bench` for the same rules and packets, without forwarding, which VPP does."""
        capture, made = self.files[row.load]
        policy = self.folder / "bench.mmb"
        policy.write_text(row.rules(made))
        self.vpp.process.signal(signal.SIGSTOP)
        try:
            with self.cores.on_middle():
                measured = json.loads(run([BINARY, "bench", "--json", "--rules", policy, "--pcap", capture], timeout=120).stdout)
        finally:
            self.vpp.process.signal(signal.SIGCONT)
        return sum(stage["cycles_per_packet"] for stage in measured["stages"] if stage["name"] != "forward")


def measure(bench, runs, seed):
    """For each row: cycles in VPP and in `mmb bench`, run by run."""
    found = {row: ([], []) for row in rows()}
    for number, order in enumerate(method.rounds(list(found), runs, f"{seed} plugin"), start=1):
        print(f"round {number} of {runs}", file=sys.stderr, flush=True)
        for row in order:
            in_vpp, in_bench = found[row]
            in_vpp.append(bench.cycles(row))
            if row.rules:
                in_bench.append(bench.bench(row))
    return found


def table(found, here, command):
    """The rows in Markdown."""
    yield f"`{command}` on {here['cpu']}, {here['cores']} cores, Linux {here['kernel']}: cycles a packet, medians (quartiles).\n\n"
    yield "| packets through | in VPP | `mmb bench` | ratio |\n| --- | ---: | ---: | ---: |\n"
    for row, (in_vpp, in_bench) in found.items():
        middle = method.spread(in_vpp)[1]
        ratio = f"{middle / method.spread(in_bench)[1]:.2f}" if in_bench else ""
        yield f"| {row.title} | {shown(in_vpp)} | {shown(in_bench) if in_bench else ''} | {ratio} |\n"


def shown(values):
    low, middle, high = method.spread(values)
    return f"{middle:.0f} ({low:.0f}-{high:.0f})"


def put_into(path, text):
    """Writes the text between the two marks of a file."""
    before, mark, rest = path.read_text().partition(BEGIN)
    _, end, behind = rest.partition(END)
    if not mark or not end:
        sys.exit(f"{path}: no place for the table: it has to have the lines {BEGIN.strip()} and {END.strip()}")
    path.write_text(before + mark + text + end + behind)


def main():
    parser = argparse.ArgumentParser(prog="python3 -m evaluation.plugin", description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5, metavar="N", help="rounds, in each of which every row is measured once")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the order within rounds")
    parser.add_argument("--into", type=Path, metavar="FILE", help="put the table between the marks of this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every value")
    options = parser.parse_args()
    if vpp.program() is None:
        sys.exit("VPP not installed: name its prefix with VPP_PREFIX")
    if not vpp.PLUGIN.exists():
        sys.exit(f"{vpp.PLUGIN} is not built: 'make vpp' does it")
    try:
        with exclusive.alone():
            compare(options)
    except exclusive.Running as error:
        sys.exit(str(error))


def compare(options):
    cores = Cores.chosen()
    with tempfile.TemporaryDirectory(prefix="mmb-plugin-") as folder, contextlib.ExitStack() as stack:
        sections = "mmb { no-socket }"
        started = vpp.Vpp(Path(folder), vpp.PLUGIN, [cores.middle], sections, buffers=32_768, heap="2G")
        stack.callback(started.close)
        with cores.on_middle():
            started.start()
        os.sched_setaffinity(0, cores.ends)
        found = measure(Bench(Path(folder), cores, started), options.runs, options.seed)
    command = f"make vpp-bench{'' if options.runs == 5 else f' RUNS={options.runs}'}"
    text = "".join(table(found, machine.describe(cores), command))
    print(text)
    if options.into:
        put_into(options.into, text)
    if options.json:
        values = {row.title: {"vpp": in_vpp, "bench": in_bench} for row, (in_vpp, in_bench) in found.items()}
        options.json.write_text(json.dumps(values, indent=1) + "\n")


if __name__ == "__main__":
    main()
