"""The cost of mmb without the kernel: `mmb bench` in one process, and packets over two memifs from a generator on another core.

The chain of functions on streams has a row for each function, all measured by one process, on one core and on two.

The points have the shape of the live ones; the runs of all cases take turns likewise.
"""

import json
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from lab import daemon
from lab.net import Namespace
from lab.process import CommandFailed, run

from . import accounting, method, parse

LOAD = Path(daemon.BINARY).parent / "examples/memif_load"


class Case(NamedTuple):
    """One set of `mmb bench`: the names of its points, and the words that select it."""

    load: str
    title: str
    axis: str
    x: int
    words: tuple
    quick: bool = False


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


FRAMES = (64, 128, 256, 512, 1024, 1500)
# Four bytes of a frame on a wire are its checksum, which a memif does not carry.
CHECKSUM = 4
PACKETS = 16_384


class Memory:
    def __init__(self, folder, cores, tsc_hz, plan, seed, only=""):
        self.folder, self.cores, self.tsc_hz, self.seed = Path(folder), cores, tsc_hz, seed
        self.quick, self.runs, self.seconds = plan.name == "quick", plan.runs, plan.seconds_in_memory
        self.only, self.order, self.points = only, 0, []

    def run(self):
        if self.only in "cycles":
            self._cycles()
        if self.only in "streams":
            self._streams()
        if self.only in "memif":
            self._memif()
        return self.points

    def _cycles(self):
        print("Cycles per packet in one process (figure 11)", flush=True)
        cases = {}
        for case in _cases():
            if case.quick or not self.quick:
                point = _point("cycles", f"Cycles per packet: {case.title}", case.load, case.axis, case.x, "mmb", "mmb bench")
                cases[case.load, case.x] = (point, ["--workload", case.load, *map(str, case.words)])
        self._take_turns(cases, "cycles", self._bench)

    def _bench(self, words):
        command = [daemon.BINARY, "bench", "--json", "--seconds", str(self.seconds), *words]
        with self.cores.on_middle():
            measured = json.loads(run(command, timeout=300).stdout)
        stages = {f"{stage['name']}_cycles": stage["cycles_per_packet"] for stage in measured["stages"]}
        return {key: measured[key] for key in ("cycles_per_packet", "mpps", "rules", "tables")} | stages

    def _streams(self):
        print("A chain of functions on streams (MiddleClick, figure 13)", flush=True)
        points = {}

        def point(name, cores):
            if (name, cores) not in points:
                title = f"Streams: {name.removeprefix('chain: ')}"
                points[name, cores] = _point("streams", title, name, "cores", cores, "mmb", "mmb bench", "MiddleClick, figure 13")
            return points[name, cores]

        for cores in (number for chosen in method.rounds([1, 2], self.runs, f"{self.seed} streams") for number in chosen):
            self.order += 1
            try:
                for name, metrics in self._bench_streams(cores).items():
                    point(name, cores)["runs"].append({"order": self.order, "ok": True, "metrics": metrics})
            except (CommandFailed, subprocess.TimeoutExpired, json.JSONDecodeError) as error:
                run_failed = {"order": self.order, "ok": False, "error": " ".join(str(error).split())[:300]}
                point("all", cores)["runs"].append(run_failed)
        self.points += points.values()
        for point in points.values():
            _show_streams(point)

    def _bench_streams(self, cores):
        """The metrics of each function, by name: of one worker, or of several at the same time."""
        found = {}
        for only in ("no rules", "chain"):
            words = ["bench", "--json", "--workload", "streams", "--seconds", self.seconds, "--only", only, "--workers", cores]
            with self.cores.on_middle() if cores == 1 else self.cores.on_all():
                measured = json.loads(run([daemon.BINARY, *map(str, words)], timeout=300).stdout)
            for row in measured["rows"]:
                name = "forwarding" if row["name"] == "no rules" else row["name"]
                if cores == 1:
                    found[name] = {key: row[key] for key in ("gbit_s", "cycles_per_byte", "cycles_per_packet")}
                else:
                    found[name] = {"gbit_s": sum(row["gbit_s_together"]), "scaling": row["scaling"]}
        return found

    def _memif(self):
        print("Packets over memif", flush=True)
        policies = {"none": "empty", "firewall": "five-tuple"}
        sizes = (64, 1500) if self.quick else FRAMES
        cases, wires = {}, {}
        namespace = Namespace("memif")
        try:
            for name, workload in policies.items():
                wires[name] = Wire(self, namespace, name, workload)
                for size in sizes:
                    title = "Packets over memif: " + ("no rules" if name == "none" else "100,000 five-tuple rules, none matching")
                    point = _point("memif", title, name, "bytes", size, "mmb", "mmb, memif")
                    point["absent"] = wires[name].lacking
                    cases[name, size] = (point, (wires[name], size))
            able = {key: case for key, case in cases.items() if case[0]["absent"] is None}
            self.points += [point for point, _ in cases.values() if point["absent"]]
            self._take_turns(able, "memif", lambda case: case[0].run(case[1], max(1.0, self.seconds)))
        finally:
            for wire in wires.values():
                wire.close()
            namespace.delete()

    def _take_turns(self, cases, name, measure):
        for chosen in method.rounds(list(cases), self.runs, f"{self.seed} {name}"):
            for key in chosen:
                point, how = cases[key]
                self.order += 1
                try:
                    point["runs"].append({"order": self.order, "ok": True, "metrics": measure(how)})
                except (CommandFailed, subprocess.TimeoutExpired, parse.Unreadable) as error:
                    point["runs"].append({"order": self.order, "ok": False, "error": " ".join(str(error).split())[:300]})
        for point, _ in cases.values():
            self.points.append(point)
            _show(point)


def _point(experiment, title, load, axis, x, system, system_title, paper=None):
    return {
        "experiment": experiment,
        "title": title,
        "paper": paper or ("figure 11" if experiment == "cycles" else "beyond"),
        "load": load,
        "load_title": load,
        "axis": axis,
        "x": x,
        "system": system,
        "system_title": system_title,
        "absent": None,
        "runs": [],
    }


def _show(point):
    cycles, rate = (method.values(point, metric) for metric in ("cycles_per_packet", "mpps"))
    if cycles and rate:
        shown = f"{method.spread(cycles)[1]:9.1f} cycles, {method.spread(rate)[1]:.2f} Mpps"
    else:
        shown = point["absent"] or point["runs"][-1]["error"]
    print(f"  {point['load']:12} {point['x']:>9,} {point['axis']:6}{shown}", flush=True)


def _show_streams(point):
    rate = method.values(point, "gbit_s")
    shown = f"{method.spread(rate)[1]:9.1f} Gbit/s" if rate else point["runs"][-1]["error"]
    print(f"  {point['load']:24} {point['x']:>3} {point['axis']:6}{shown}", flush=True)


class Wire:
    """mmb between two memifs, with one policy and its packets."""

    def __init__(self, memory, namespace, name, workload):
        self.cores, self.tsc_hz = memory.cores, memory.tsc_hz
        folder = memory.folder / f"memif-{name}"
        folder.mkdir(parents=True)
        self.capture, rules = folder / "packets.pcap", folder / "rules.mmb"
        self.sockets = [folder / f"{end}.sock" for end in ("near", "far")]
        self.daemon, self.lacking = None, None
        if not LOAD.exists():
            self.lacking = f"{LOAD.name} is not built: 'make evaluate' does it"
            return
        words = ["bench", "--workload", workload, "--packets", PACKETS, "--write-pcap", self.capture, "--write-rules", rules]
        run([daemon.BINARY, *words], timeout=60)
        ports = {name: f"memif:{socket},role=server" for name, socket in zip(("lan", "wan"), self.sockets, strict=True)}
        self.daemon = daemon.Mmb(namespace, folder, ports)
        try:
            with self.cores.on_middle():
                self.daemon.start()
            self.daemon.ask("apply", rules)
        except (daemon.DidNotStart, CommandFailed) as error:
            self.lacking = " ".join(str(error).split())[:300]

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
