"""Runs the experiments between namespaces and collects their results."""

import subprocess
import sys

from . import method, systems
from .loads import Failed
from .systems import Unable

# Errors in a run that do not end the evaluation: programs that fail or do not answer in time.
MISHAPS = (Failed, AssertionError, OSError, subprocess.TimeoutExpired)

# The format of a point while others are measured.
FORMS = {
    "gbit_s": "{:.2f} Gbit/s",
    "mpps": "{:.3f} Mpps",
    "requests_s": "{:,.0f} requests/s",
    "rtt_p50_us": "{:.0f} µs",
    "middle_busy": "{:.0%} busy",
    "cycles_per_packet": "{:.0f} cycles",
    "cycles_per_kb": "{:.0f} cycles a KB",
}


class Live:
    """Opens each system at its first use and keeps it open: a point takes no more time than its runs. `close` ends all of them."""

    def __init__(self, folder, cores, tsc_hz, plan, seed, only=""):
        self.folder, self.cores, self.tsc_hz, self.plan, self.seed, self.only = folder, cores, tsc_hz, plan, seed, only
        self.opened, self.absent, self.points, self.order = {}, {}, [], 0

    def run(self):
        for experiment in self.plan.experiments:
            if self.only in experiment.name:
                self._experiment(experiment)
        return self.points

    def close(self):
        for system in self.opened.values():
            system.close()

    def _experiment(self, experiment):
        print(f"{experiment.title} ({experiment.paper})", flush=True)
        ready, installed = {}, None
        for x, policy, load in experiment.points(self.plan.seconds):
            if policy != installed:
                chosen = [name for name in experiment.systems if systems.takes_part(systems.ALL[name], policy)]
                ready = {name: self._installed(experiment, name, policy) for name in chosen}
                installed = policy
            here = {name: self._point(experiment, x, load, name, why) for name, why in ready.items()}
            able = [name for name, why in ready.items() if why is None]
            for chosen in method.rounds(able, self.plan.runs, f"{self.seed} {experiment.name} {x} {load.name}"):
                for name in chosen:
                    here[name]["runs"].append(self._run(self._system(experiment, name), load))
            for point in here.values():
                print(_line(point), flush=True)

    def _point(self, experiment, x, load, name, why):
        point = {
            "experiment": experiment.name,
            "title": experiment.title,
            "paper": experiment.paper,
            "load": load.name,
            "load_title": load.title,
            "axis": experiment.axis,
            "x": x,
            "offloads": experiment.offloads,
            "system": name,
            "system_title": systems.ALL[name].title,
            "absent": why,
            "runs": [],
        }
        self.points.append(point)
        return point

    def _system(self, experiment, name):
        return self.opened.get((name, experiment.offloads))

    def _installed(self, experiment, name, policy):
        """Puts the policy in force on a system; returns None, or the reason why it is impossible."""
        try:
            system = self._open(name, experiment.offloads)
            system.need(policy)
            system.install(policy)
        except Unable as error:
            return str(error)
        except MISHAPS as error:
            return f"could not be set up: {_told(error)}"
        return None

    def _open(self, name, offloads):
        key = (name, offloads)
        if key in self.absent:
            raise Unable(self.absent[key])
        if key not in self.opened:
            system = systems.ALL[name](self.folder / ("offloads" if offloads else "plain"), self.cores, offloads)
            self.opened[key] = system
            try:
                system.open()
            except (Unable, *MISHAPS) as error:
                system.close()
                del self.opened[key]
                self.absent[key] = _told(error)
                raise Unable(self.absent[key]) from error
        return self.opened[key]

    def _run(self, system, load):
        self.order += 1
        try:
            system.forget()
            return {"order": self.order, "ok": True, "metrics": load.run(system.site, self.tsc_hz)}
        except MISHAPS as error:
            print(f"  failed, and listed: {system.name}, {load.name}: {error}", file=sys.stderr)
            return {"order": self.order, "ok": False, "error": _told(error)}


def _told(error):
    """An error in one line of a table."""
    return " ".join(str(error).split())[:300]


def _line(point):
    """A point in one line, during its measurement."""
    where = f"  {point['load']:16}{point['x']:>9,} {point['axis']:10}{point['system']:16}"
    if point["absent"]:
        return f"{where} {point['absent']}"
    shown = []
    for metric, form in FORMS.items():
        if metric.startswith("cycles") and (point["load"].startswith("ping") or point["offloads"] != (metric == "cycles_per_kb")):
            continue
        if found := method.values(point, metric):
            shown.append(form.format(method.spread(found)[1]))
    failed = sum(not run["ok"] for run in point["runs"])
    return f"{where} {', '.join(shown)}" + (f", {failed} of {len(point['runs'])} runs failed" if failed else "")
