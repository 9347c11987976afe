"""Runs the experiments between namespaces."""

import shutil
import sys

from . import figures, method, systems
from .loads import SETTLING
from .session import Planned, grouped, in_a_line
from .systems import Unable

# The time to start and end the programs of a run, on a machine that runs nothing else.
AROUND_A_RUN = 0.75
# The time to open a system or to replace its policy, and the rules of it that a system loads in a second.
SETUP_S, RULES_A_SECOND = 0.3, 60_000

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


class LivePlanned(Planned):
    """A planned point with the experiment, policy and load that it is made of."""

    def __init__(self, experiment, policy, load, *rest, **more):
        super().__init__(*rest, **more)
        self.experiment, self.policy, self.load = experiment, policy, load


def planned(plan, versions=None):
    """The points of all experiments, in the order of measurement. `versions`: of the programs of this machine."""
    made = []
    for experiment in plan.experiments:
        loaded = set()
        for x, policy, load in experiment.points(plan.seconds):
            for name in experiment.systems:
                if systems.takes_part(systems.ALL[name], policy):
                    first = (name, policy) not in loaded
                    loaded.add((name, policy))
                    made.append(_planned(plan, experiment, x, policy, load, name, first, versions or {}))
    return made


def _planned(plan, experiment, x, policy, load, name, first, versions):
    system = systems.ALL[name]
    point = {
        "experiment": experiment.name,
        "title": experiment.title,
        "paper": figures.labels(experiment.name, load.name) or figures.NO_PAPER,
        "load": load.name,
        "load_title": load.title,
        "axis": experiment.axis,
        "x": x,
        "offloads": experiment.offloads,
        "system": name,
        "system_title": system.title,
        "absent": None,
        "runs": [],
    }
    parameters = {
        "policy": [policy.kind, policy.size, policy.seed],
        "load": load.title,
        "offloads": experiment.offloads,
        "seconds": plan.seconds,
        "programs": {program: versions[program] for program in getattr(system, "programs", ()) if program in versions},
        **plan.repeat._asdict(),
    }
    why = None
    try:
        system("", None, experiment.offloads).need(policy)
    except Unable as error:
        why = str(error)
        point["absent"] = why
    return LivePlanned(
        experiment,
        policy,
        load,
        point=point,
        parameters=parameters,
        group=f"{experiment.name} {x} {load.name}",
        metric=method.main_metric(load.name)[0],
        seconds=plan.seconds,
        around_s=SETTLING + AROUND_A_RUN,
        setup_s=SETUP_S + policy.size / RULES_A_SECOND if first else 0.0,
        absent=why,
        missing=any(shutil.which(program) is None for program in getattr(system, "programs", ())),
    )


class Live:
    """Opens each system at its first use and keeps it open: a point takes no more time than its runs. A system that could not be set up,
    or of which every run of a point failed, is closed and opened again for the next point: it may have ended. `close` ends all."""

    def __init__(self, folder, cores, tsc_hz, session):
        self.folder, self.cores, self.tsc_hz, self.session = folder, cores, tsc_hz, session
        self.opened, self.absent = {}, {}
        # The experiment and policy in force on each open system, and why it could not be put in force (None: it is).
        self._installed = {}

    def run(self, points):
        """Measures these planned points, as far as they are not stored."""
        shown = None
        for group, chosen in grouped(points):
            experiment = chosen[0].experiment
            if experiment is not shown:
                print(f"{experiment.title} ({chosen[0].point['paper']})", flush=True)
                shown = experiment
            for each in chosen:
                if each.absent:
                    print(line(each.point), flush=True)
            self._group(group, self.session.pending(chosen))

    def close(self):
        for system in self.opened.values():
            system.close()

    def _group(self, group, pending):
        if not pending:
            return
        units = {}
        with self.session.comparison(group):
            for planned in pending:
                if why := self._install(planned):
                    self.session.absent(planned, why)
                else:
                    units[planned.point["system"]] = self.session.unit(planned, self._measure(planned))
            self.session.take_turns(group, units)
            for planned in pending:
                if planned.point["runs"] and not any(run["ok"] for run in planned.point["runs"]):
                    self._discard(planned)
                    self._installed.pop((planned.point["system"], planned.experiment.offloads), None)

    def _measure(self, planned):
        system = self.opened[planned.point["system"], planned.experiment.offloads]

        def measure():
            system.forget()
            return planned.load.run(system.site, self.tsc_hz)

        return measure

    def _install(self, planned):
        """Puts the policy in force on a system; returns None, or the reason why it is impossible."""
        name, offloads = planned.point["system"], planned.experiment.offloads
        wanted = (planned.experiment.name, planned.policy)
        before = self._installed.get((name, offloads))
        if before is None or before[0] != wanted:
            with self.session.setting_up(planned):
                self._installed[name, offloads] = (wanted, self._tried(name, offloads, planned.policy))
            if self._installed[name, offloads][1]:
                self._discard(planned)
        return self._installed[name, offloads][1]

    def _discard(self, planned):
        """Closes the system of a point, if it is open."""
        if system := self.opened.pop((planned.point["system"], planned.experiment.offloads), None):
            try:
                system.close()
            except Exception as error:  # noqa: BLE001: what is left of it is removed at the end
                print(f"evaluation: {system.name}: {in_a_line(error)}", file=sys.stderr)

    def _tried(self, name, offloads, policy):
        try:
            system = self._open(name, offloads)
            system.need(policy)
            system.install(policy)
        except Unable as error:
            return str(error)
        except Exception as error:  # noqa: BLE001: one system must not lose the others
            return f"could not be set up: {in_a_line(error)}"
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
            except Exception as error:  # noqa: BLE001: what it has opened must be closed
                system.close()
                del self.opened[key]
                self.absent[key] = in_a_line(error)
                raise Unable(self.absent[key]) from error
        return self.opened[key]


def line(point):
    """A point in one line, during the measurement."""
    where = f"  {point['load']:16}{point['x']:>9,} {point['axis']:10}{point['system']:16}"
    if point["absent"]:
        return f"{where} {point['absent']}"
    shown = []
    for metric, form in FORMS.items():
        if metric.startswith("cycles") and (point["load"].startswith("ping") or point["offloads"] != (metric == "cycles_per_kb")):
            continue
        if found := method.values(point, metric):
            shown.append(form.format(method.spread(found)[1]))
    failed = [run["error"] for run in point["runs"] if not run["ok"]]
    failures = f", {len(failed)} of {len(point['runs'])} runs failed: {failed[-1]}" if failed else ""
    return f"{where} {', '.join(shown)}; {method.repetitions(point)}{failures}"
