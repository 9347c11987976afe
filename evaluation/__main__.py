"""Measures, and writes the results.

python3 -m evaluation run [--quick] [--out DIR]       measures, writes results.json and the pages from it
python3 -m evaluation report RESULTS [--out DIR]      writes the pages again from results
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from lab.daemon import BINARY
from lab.net import remove_leftovers, remove_own

from . import experiments, live, machine, memory, report, topology, vpp

FORMAT = 1
OUT = "docs/evaluation"


def main():
    parser = argparse.ArgumentParser(prog="evaluation", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure and report")
    run.add_argument("--quick", action="store_true", help="fewer points and shorter runs: some twelve minutes on two cores")
    run.add_argument("--only", default="", metavar="TEXT", help="only experiments with TEXT in their name")
    run.add_argument("--runs", type=int, metavar="N", help="runs of each point")
    run.add_argument("--seconds", type=float, metavar="S", help="seconds of a run between namespaces")
    run.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the order of runs")
    run.add_argument("--middle-core", type=int, metavar="N", help="the core of the device under test")
    made = commands.add_parser("report", help="make the pages again")
    made.add_argument("results", type=Path)
    for command in (run, made):
        command.add_argument("--out", type=Path, default=Path(OUT), metavar="DIR", help=f"where the pages go ({OUT})")
    options = parser.parse_args()
    if options.command == "report":
        report.write(json.loads(options.results.read_text()), options.out)
    else:
        measure(options)


def measure(options):
    if os.geteuid() != 0:
        sys.exit("evaluation: needs root for network namespaces: sudo make evaluate")
    if not os.access(BINARY, os.X_OK):
        sys.exit(f"evaluation: {BINARY} is missing: run 'make build', or set MMB to the program's path")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # sudo or a shell may omit these directories.
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    remove_leftovers()
    try:
        cores = topology.Cores.chosen(options.middle_core)
    except ValueError as error:
        sys.exit(f"evaluation: {error}")
    os.sched_setaffinity(0, cores.ends)
    folder = Path(tempfile.mkdtemp(prefix="mmb-evaluation-"))
    try:
        results = _measured(options, cores, folder)
    except KeyboardInterrupt:
        sys.exit("evaluation: interrupted; nothing was written")
    finally:
        with _undisturbed():
            remove_own()
            shutil.rmtree(folder, ignore_errors=True)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    report.write(results, options.out)
    minutes, seconds = divmod(round(results["seconds"]), 60)
    print(f"\n{len(results['points'])} points in {minutes} min {seconds} s: {options.out}/README.md, {options.out}/results.json")


@contextlib.contextmanager
def _undisturbed():
    """A second Ctrl-C must not interrupt the clean-up."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _measured(options, cores, folder):
    begun = time.time()
    plan = experiments.plan(options.quick, options.runs, options.seconds)
    idle = machine.idle(cores)
    if max(idle.values()) > machine.QUIET:
        busy = f"{idle['middle_busy']:.0%} of the middle's core, {idle['ends_busy']:.0%} of the others"
        print(f"evaluation: this machine is busy before anything is measured ({busy}): figures will be too", file=sys.stderr)
    tsc_hz = machine.clock_hz()
    here = machine.describe(cores)
    clock = f"{tsc_hz / 1e9:.3f} GHz (TSC)"
    print(f"{here['cpu']}, {here['cores']} cores, Linux {here['kernel']}, {clock}; middle: core {cores.middle}\n")
    between = live.Live(folder / "live", cores, tsc_hz, plan, options.seed, options.only)
    try:
        points = between.run()
    finally:
        with _undisturbed():
            between.close()
    points += memory.Memory(folder / "memory", cores, tsc_hz, plan, options.seed, options.only).run()
    points += vpp.points(folder / "vpp", cores, plan, options.seed, options.only)
    return {
        "format": FORMAT,
        "plan": plan.name,
        "only": options.only,
        "command": f"python3 -m evaluation {' '.join(sys.argv[1:])}",
        "seed": options.seed,
        "runs": plan.runs,
        "seconds_a_run": plan.seconds,
        "begun": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(begun)),
        "seconds": time.time() - begun,
        "tsc_hz": tsc_hz,
        "offloads": {"plain": f"off: {', '.join(topology.OFFLOADS)}", "offloads": "as the kernel sets them"},
        "machine": here,
        "idle": {"before": idle, "after": machine.idle(cores)},
        "points": points,
    }


if __name__ == "__main__":
    main()
