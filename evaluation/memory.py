"""The cost of mmb without the kernel: `mmb bench` in one process, and packets over two memifs from a generator on another core.

The chain of functions on streams has a row for each function, all measured by one process, on one core and on two.

The points have the shape of the live ones, and the runs of a curve take turns likewise.
"""

import json
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from lab import daemon
from lab.net import Namespace
from lab.process import run

from . import accounting, figures, method, parse
from .session import Planned, Unit, grouped, in_a_line

LOAD = Path(daemon.BINARY).parent / "examples/memif_load"


class Case(NamedTuple):
    """One set of `mmb bench`: the names of its points, and the words that select it."""

    load: str
    title: str
    axis: str
    x: int
    words: tuple
    quick: bool = False
    # The set's name, if it is not that of the points.
    workload: str = ""


def _cases():
    yield Case("empty", "no rules", "", 0, (), True)
    for size in (100, 1000, 10_000, 100_000, 1_000_000):
        yield Case("five-tuple", "five-tuple firewall, none matching", "rules", size, ("--size", size), size in (100, 100_000))
    for size in (100, 1000, 10_000):
        yield Case("options", "TCP-option rules", "rules", size, ("--size", size), size in (100, 10_000))
    for masks in (1, 2, 4, 8, 16, 26, 40, 64, 128, 256):
        yield Case("masks", "one rule per mask, none matching", "masks", masks, ("--tuples", masks), masks in (1, 26, 256))
    for number in (65_536, 262_144, 1_048_576):
        quick = number != 262_144
        yield Case("stateful", "a stateful rule for each five-tuple", "connections", number, ("--packets", number), quick)
        yield Case("snat", "source NAT", "connections", number, ("--packets", number), quick)
    title = f"{FILTER_RULES:,} rules over mask shapes, each packet matches about one"
    for shapes in SHAPES:
        words = ("--size", FILTER_RULES, "--tuples", shapes, "--hit", 1)
        yield Case("filter", title, "mask shapes", shapes, words, workload="tuples")


# The DDoS filter's table of mask shapes: a million rules, and packets that match.
SHAPES, FILTER_RULES = (1, 2, 4, 8, 16, 32, 64), 1_000_000
FRAMES = (64, 128, 256, 512, 1024, 1500)
# Four bytes of a frame on a wire are its checksum, which a memif does not carry.
CHECKSUM = 4
PACKETS = 16_384
POLICIES = {"none": "empty", "firewall": "five-tuple"}
# The rows of `mmb bench --workload streams` that the evaluation has.
FUNCTIONS = ("forwarding", "chain: NAT", "chain: + reassembly", "chain: + balancing", "chain: + digest", "chain: + 100 literals")
# What a run takes besides its measured time, on a machine that runs nothing else: `mmb bench` generates rules and packets first, so
# many of them in a second.
AROUND_A_BENCH, GENERATED_A_SECOND = 0.6, 300_000
AROUND_A_STREAM, AROUND_A_MEMIF = 0.4, 0.3
NAMES = ("cycles", "streams", "memif")


def planned(plan, only=NAMES):
    """The points of these experiments, in the order of measurement."""
    quick, made = plan.name == "quick", []
    if "cycles" in only:
        made += [_planned_cycles(plan, case) for case in _cases() if case.quick or not quick]
    if "streams" in only:
        made += [_planned_stream(plan, name, cores) for cores in (1, 2) for name in FUNCTIONS]
    if "memif" in only:
        sizes = (64, 1500) if quick else FRAMES
        made += [_planned_memif(plan, name, size) for name in POLICIES for size in sizes]
    return made


def _planned_cycles(plan, case):
    title = f"Cycles per packet: {case.title}"
    words = ["--workload", case.workload or case.load, *map(str, case.words)]
    generated = max((int(word) for word in words if word.isdigit()), default=0)
    return Planned(
        point=_point("cycles", title, case.load, case.axis, case.x, "mmb bench"),
        parameters={"words": words, "seconds": plan.seconds_in_memory, **plan.repeat._asdict()},
        group=f"cycles {case.load}",
        metric="cycles_per_packet",
        seconds=plan.seconds_in_memory,
        around_s=AROUND_A_BENCH + generated / GENERATED_A_SECOND,
    )


def _planned_stream(plan, name, cores):
    return Planned(
        point=_point("streams", f"Streams: {name.removeprefix('chain: ')}", name, "cores", cores, "mmb bench"),
        parameters={"seconds": plan.seconds_in_memory, **plan.repeat._asdict()},
        group="streams",
        metric="gbit_s",
        # Several workers are measured one by one, and then together.
        seconds=plan.seconds_in_memory * (1 if cores == 1 else cores + 1),
        around_s=AROUND_A_STREAM,
    )


def _planned_memif(plan, name, size):
    title = "Packets over memif: " + ("no rules" if name == "none" else "100,000 five-tuple rules, none matching")
    return Planned(
        point=_point("memif", title, name, "bytes", size, "mmb, memif"),
        parameters={"workload": POLICIES[name], "seconds": _memif_seconds(plan), **plan.repeat._asdict()},
        group="memif",
        metric="mpps",
        seconds=_memif_seconds(plan),
        around_s=AROUND_A_MEMIF,
        missing=not LOAD.exists(),
    )


def _memif_seconds(plan):
    return max(1.0, plan.seconds_in_memory)


class Memory:
    def __init__(self, folder, cores, tsc_hz, plan, session):
        self.folder, self.cores, self.tsc_hz, self.plan, self.session = Path(folder), cores, tsc_hz, plan, session

    def run(self, points):
        """Measures these planned points, as far as they are not stored."""
        titles = {
            "cycles": "Cycles per packet in one process",
            "streams": "A chain of functions on streams",
            "memif": "Packets over memif",
        }
        shown = None
        for group, chosen in grouped(points):
            name = chosen[0].point["experiment"]
            if name != shown:
                print(f"{titles[name]} ({figures.labels(name) or figures.NO_PAPER})", flush=True)
                shown = name
            if pending := self.session.pending(chosen):
                with self.session.comparison(group):
                    getattr(self, f"_{name}")(group, pending)

    def _cycles(self, group, pending):
        units = {each.point["x"]: self.session.unit(each, lambda each=each: self._bench(each.parameters["words"])) for each in pending}
        self.session.take_turns(group, units)

    def _bench(self, words):
        command = [daemon.BINARY, "bench", "--json", "--seconds", str(self.plan.seconds_in_memory), *words]
        with self.cores.on_middle():
            measured = json.loads(run(command, timeout=300).stdout)
        stages = {f"{stage['name']}_cycles": stage["cycles_per_packet"] for stage in measured["stages"]}
        return {key: measured[key] for key in ("cycles_per_packet", "mpps", "rules", "tables")} | stages

    def _streams(self, group, pending):
        units = {}
        for cores in sorted({each.point["x"] for each in pending}):
            points = {each.point["load"]: each for each in pending if each.point["x"] == cores}
            units[cores] = Unit(points, lambda cores=cores: self._bench_streams(cores))
        self.session.take_turns(group, units)

    def _bench_streams(self, cores):
        """The metrics of each function, by name: of one worker, or of several at the same time."""
        found = {}
        for only in ("no rules", "chain"):
            words = ["bench", "--json", "--workload", "streams", "--seconds", self.plan.seconds_in_memory, "--only", only]
            with self.cores.on_middle() if cores == 1 else self.cores.on_all():
                measured = json.loads(run([daemon.BINARY, *map(str, words), "--workers", str(cores)], timeout=300).stdout)
            for row in measured["rows"]:
                name = "forwarding" if row["name"] == "no rules" else row["name"]
                if cores == 1:
                    found[name] = {key: row[key] for key in ("gbit_s", "cycles_per_byte", "cycles_per_packet")}
                else:
                    found[name] = {"gbit_s": sum(row["gbit_s_together"]), "scaling": row["scaling"]}
        return found

    def _memif(self, group, pending):
        wires, units = {}, {}
        namespace = Namespace("memif")
        try:
            for each in pending:
                name, size = each.point["load"], each.point["x"]
                if name not in wires:
                    wires[name] = Wire(self, name, POLICIES[name])
                    wires[name].open(namespace)
                if wires[name].lacking:
                    self.session.absent(each, wires[name].lacking)
                else:
                    units[name, size] = self.session.unit(each, lambda wire=wires[name], each=each: wire.run(each.point["x"], each.seconds))
            self.session.take_turns(group, units)
        finally:
            for wire in wires.values():
                wire.close()
            namespace.delete()


def _point(experiment, title, load, axis, x, system_title):
    return {
        "experiment": experiment,
        "title": title,
        "paper": figures.labels(experiment, load) or figures.NO_PAPER,
        "load": load,
        "load_title": load,
        "axis": axis,
        "x": x,
        "system": "mmb",
        "system_title": system_title,
        "absent": None,
        "runs": [],
    }


def line(point):
    """A point in one line, during the measurement."""
    where = f"  {point['load']:24} {point['x']:>9,} {point['axis']:12}"
    if point["absent"]:
        return f"{where}{point['absent']}"
    forms = {"cycles_per_packet": "{:.1f} cycles", "mpps": "{:.2f} Mpps", "gbit_s": "{:.1f} Gbit/s"}
    medians = {metric: method.values(point, metric) for metric in forms}
    shown = [forms[metric].format(method.spread(found)[1]) for metric, found in medians.items() if found]
    failed = [run["error"] for run in point["runs"] if not run["ok"]]
    return f"{where}{', '.join(shown)}; {method.repetitions(point)}{f', {failed[-1]}' if failed else ''}"


class Wire:
    """mmb between two memifs, with one policy and its packets."""

    def __init__(self, memory, name, workload):
        self.cores, self.tsc_hz, self.workload = memory.cores, memory.tsc_hz, workload
        self.folder = memory.folder / f"memif-{name}"
        self.sockets = [self.folder / f"{end}.sock" for end in ("near", "far")]
        # `lacking`: why it is not open.
        self.capture, self.daemon, self.lacking = self.folder / "packets.pcap", None, None

    def open(self, namespace):
        if not LOAD.exists():
            self.lacking = f"{LOAD.name} is not built: 'make evaluate' does it"
            return
        self.folder.mkdir(parents=True)
        rules = self.folder / "rules.mmb"
        words = ["--workload", self.workload, "--packets", PACKETS, "--write-pcap", self.capture, "--write-rules", rules]
        ports = {name: f"memif:{socket},role=server" for name, socket in zip(("lan", "wan"), self.sockets, strict=True)}
        try:
            run([daemon.BINARY, "bench", *words], timeout=60)
            self.daemon = daemon.Mmb(namespace, self.folder, ports)
            with self.cores.on_middle():
                self.daemon.start()
            self.daemon.ask("apply", rules)
        except Exception as error:  # noqa: BLE001: one policy must not lose the other
            self.lacking = in_a_line(error)

    def run(self, size, seconds):
        """Frames of this size on a wire."""
        words = [LOAD, *self.sockets, self.capture, size - CHECKSUM, seconds]
        with subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as load:
            try:
                first = load.stdout.readline()
                before, begun = accounting.cpu(), time.monotonic()
                last = load.stdout.readline()
                after, took = accounting.cpu(), time.monotonic() - begun
            finally:
                load.kill()
        if not last:
            raise parse.Unreadable(f"{LOAD.name}: {first}")
        measured = json.loads(last)
        if not measured["received"]:
            raise parse.Unreadable("nothing came back over the memif")
        rate = measured["received"] / measured["seconds"]
        busy = accounting.busy(before, after, [self.cores.middle], took)
        return {
            "mpps": rate / 1e6,
            "gbit_s": rate * size * 8 / 1e9,
            "middle_busy": busy,
            "cycles_per_packet": busy * self.tsc_hz / rate,
            "offered_mpps": measured["sent"] / measured["seconds"] / 1e6,
        }

    def close(self):
        if self.daemon is not None:
            self.daemon.close()
