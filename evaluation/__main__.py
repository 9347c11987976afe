"""Measures, stores each point in a file, and writes the results and the pages from the points.

/usr/bin/python3 -m evaluation run [--quick] [--only NAME,…] [--fresh] [--out DIR]   measures what is not stored yet
/usr/bin/python3 -m evaluation list [--quick] [--only NAME,…] [--out DIR]            lists experiments, points and minutes
/usr/bin/python3 -m evaluation report RESULTS [--out DIR]                            writes the pages again from results
"""

import argparse
import contextlib
import importlib.util
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from lab.daemon import BINARY
from lab.net import remove_leftovers, remove_own

from . import campaign, exclusive, experiments, machine, method, report, topology
from .store import Store, Unwritable, hash_of, probe, write_atomically, writing

FORMAT = 2
OUT = "docs/evaluation"
INTERRUPTED, FAILED = 1, 2


def main():
    try:
        command()
        sys.stdout.flush()
    except Unwritable as error:
        print(f"evaluation: {error}", file=sys.stderr)
        sys.exit(FAILED)
    except BrokenPipeError:
        # The reader of the output, such as `head`, has closed the pipe. The interpreter would flush to it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(INTERRUPTED)


def positive(kind):
    """A number above zero, as argparse reads it."""

    def number(text):
        value = kind(text)
        if not (value > 0 and math.isfinite(value)):
            raise argparse.ArgumentTypeError(f"{text} is not above zero")
        return value

    # In messages of argparse: `invalid int value: 'x'`.
    number.__name__ = kind.__name__
    return number


def command():
    parser = argparse.ArgumentParser(prog="evaluation", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure and report")
    listed = commands.add_parser("list", help="list the experiments with their points and estimated minutes")
    for command in (run, listed):
        command.add_argument("--quick", action="store_true", help="fewer points and shorter runs: some twelve minutes on two cores")
        command.add_argument("--only", default="", metavar="NAME,…", help="only these experiments")
        command.add_argument("--fresh", action="store_true", help="measure points anew that are stored")
        command.add_argument("--runs", type=positive(int), metavar="N", help="exactly N runs of each point, without a limit of time")
        command.add_argument("--seconds", type=positive(float), metavar="S", help="seconds of a run between namespaces")
        command.add_argument("--minutes", type=positive(float), metavar="M", help="the time in which the whole evaluation should fit")
        command.add_argument("--middle-core", type=int, metavar="N", help="the core of the device under test")
    run.add_argument("--list", action="store_true", help="list the experiments instead of measuring them")
    run.add_argument("--seed", type=int, default=1, metavar="N", help="seed of the order of runs")
    made = commands.add_parser("report", help="make the pages again")
    made.add_argument("results", type=Path)
    for command in (run, listed, made):
        command.add_argument("--out", type=Path, default=Path(OUT), metavar="DIR", help=f"where points and pages go ({OUT})")
    options = parser.parse_args()
    if options.command == "report":
        need_matplotlib()
        with writing(options.out):
            report.write(_results(options.results), options.out)
        return
    # sudo or a shell may omit these directories.
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    plan = experiments.plan(options.quick, options.runs, options.seconds, options.minutes)
    try:
        only = campaign.chosen(plan, options.only)
    except campaign.UnknownName as error:
        sys.exit(f"evaluation: {error}")
    if options.command == "list" or options.list:
        print_list(options, plan, only)
    else:
        measure(options, plan, only)


def need_matplotlib():
    if importlib.util.find_spec("matplotlib") is None:
        sys.exit(f"evaluation: {sys.executable} has no matplotlib, which draws the plots: install python3-matplotlib")


def _results(path):
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"evaluation: {path} cannot be read: {error}")


def print_list(options, plan, only):
    """Needs neither root nor mmb nor matplotlib; without mmb no stored point counts as measured."""
    try:
        here = machine.describe(topology.Cores.chosen(options.middle_core))
    except ValueError:
        here = None
    usable = here is not None and os.access(BINARY, os.X_OK)
    store = _store(options, plan, here) if usable else Store(options.out / "points", plan.name, "", {}, options.fresh)
    points = campaign.planned(plan, here["versions"] if here else {}, only)
    print(campaign.listing(plan, points, store, usable))
    if not os.access(BINARY, os.X_OK):
        print(f"{BINARY} is missing: no stored point is compared with it")


def _store(options, plan, here):
    """Points are comparable on the same machine and kernel, with the same cores in the same roles."""
    alike = ("cpu", "cpu_id", "cores", "middle_core", "end_cores", "governor", "congestion_control", "kernel")
    return Store(options.out / "points", plan.name, hash_of(BINARY), {key: here[key] for key in alike}, options.fresh)


def measure(options, plan, only):
    if os.geteuid() != 0:
        sys.exit("evaluation: needs root for network namespaces: sudo make evaluate")
    if not os.access(BINARY, os.X_OK):
        sys.exit(f"evaluation: {BINARY} is missing: run 'make build', or set MMB to the program's path")
    need_matplotlib()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        with exclusive.alone():
            probe(options.out)
            _measure(options, plan, only)
    except exclusive.Running as error:
        sys.exit(f"evaluation: {error}")


def _measure(options, plan, only):
    remove_leftovers()
    try:
        cores = topology.Cores.chosen(options.middle_core)
    except ValueError as error:
        sys.exit(f"evaluation: {error}")
    os.sched_setaffinity(0, cores.ends)
    folder = Path(tempfile.mkdtemp(prefix="mmb-evaluation-"))
    try:
        results, session = _measured(options, plan, only, cores, folder)
    except KeyboardInterrupt:
        kept = f"complete points are in {options.out / 'points'}; the same command goes on with the others"
        print(f"evaluation: interrupted; {kept}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    finally:
        with _undisturbed():
            remove_own()
            shutil.rmtree(folder, ignore_errors=True)
    with writing(options.out):
        write_atomically(options.out / "results.json", json.dumps(results, indent=1) + "\n")
        report.write(results, options.out)
    print(f"\n{_summary(plan, results, session)}: {options.out}/README.md, {options.out}/results.json")
    for point in session.failed:
        where = f"{point['experiment']}, {point['load']}, {point['x']}, {point['system']}"
        print(f"evaluation: no run succeeded: {where}: {point['runs'][-1]['error']}", file=sys.stderr)
    for part, why in results["broken"].items():
        print(f"evaluation: {part} ended early: {why}", file=sys.stderr)
    if session.failed or results["broken"]:
        sys.exit(FAILED)


def _summary(plan, results, session):
    minutes, seconds = divmod(round(results["seconds"]), 60)
    text = f"{len(session.measured)} points measured, {len(session.reused)} reused, in {minutes} min {seconds} s"
    if plan.minutes and results["seconds"] > plan.minutes * 60:
        text += f", more than the {plan.minutes:.0f} min of the plan: the minimum of runs takes longer on this machine"
    return text


def refuse_to_drop(options, every, only, store):
    """Ends the program if a part of the evaluation would replace results that have more."""
    path = options.out / "results.json"
    if not options.only or not path.exists():
        return
    try:
        dropped = campaign.dropped(json.loads(path.read_text()), every, only, store)
    except (ValueError, KeyError, TypeError):
        # Nothing is lost with a damaged file.
        return
    if dropped:
        sys.exit(
            f"evaluation: {path} has points of other experiments ({', '.join(dropped)}) that are not stored for this program,"
            " machine, method and length of runs: ONLY= would drop them. Write to another directory with OUT=DIR, or measure all"
            " without ONLY="
        )


@contextlib.contextmanager
def _undisturbed():
    """A second Ctrl-C must not interrupt the clean-up."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _measured(options, plan, only, cores, folder):
    begun = time.time()
    idle = machine.idle(cores)
    if max(idle.values()) > machine.QUIET:
        busy = f"{idle['middle_busy']:.0%} of the middle's core, {idle['ends_busy']:.0%} of the others"
        print(f"evaluation: this machine is busy before anything is measured ({busy}): figures will be too", file=sys.stderr)
    tsc_hz = machine.clock_hz()
    here = machine.describe(cores)
    clock = f"{tsc_hz / 1e9:.3f} GHz (TSC)"
    print(f"{here['cpu']}, {here['cores']} cores, Linux {here['kernel']}, {clock}; middle: core {cores.middle}")
    store = _store(options, plan, here)
    every = campaign.planned(plan, here["versions"])
    refuse_to_drop(options, every, only, store)
    points = [each for each in every if each.point["experiment"] in only]
    session = campaign.session(plan, points, store, options.seed)
    moment = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(begun))
    session.stamp = {"session": moment, "busy_before": idle["middle_busy"]}
    print("\n".join([campaign.reuse(points, store), *campaign.outdated(points, store)]), end="\n\n", flush=True)
    broken = campaign.run(folder, cores, tsc_hz, plan, session, points, _undisturbed)
    complete, missing = campaign.collected(every, store)
    results = {
        "format": FORMAT,
        "plan": plan.name,
        "only": options.only,
        "command": f"{sys.executable} -m evaluation {' '.join(sys.argv[1:])}",
        "seed": options.seed,
        "repetitions": plan.repeat._asdict(),
        "minutes": plan.minutes,
        "method": method.VERSION,
        "seconds_a_run": plan.seconds,
        "seconds_in_memory": plan.seconds_in_memory,
        "begun": moment,
        "seconds": time.time() - begun,
        "measured": len(session.measured),
        "reused": len(session.reused),
        "broken": broken,
        "missing": missing,
        "tsc_hz": tsc_hz,
        "binary": store.binary,
        "offloads": {"plain": f"off: {', '.join(topology.OFFLOADS)}", "offloads": "as the kernel sets them"},
        "machine": here,
        "idle": {"before": idle, "after": machine.idle(cores)},
        "points": complete,
    }
    return results, session


if __name__ == "__main__":
    main()
