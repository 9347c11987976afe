"""One session of the evaluation: measures what is not stored yet, run after run, and stores each point as soon as it is complete."""

import contextlib
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from . import method


@dataclass
class Planned:
    """A point that is to be measured. `point` has no runs yet; `parameters` are those that must be equal for a stored point to be
    used again. `group` is the comparison whose points take turns. `absent`: why the system takes no part, if that is known without
    a try. The durations are those of a quiet machine: `seconds` is the measured time of a run, `around_s` what is around it,
    `setup_s` the time to load a policy (0: another point does so). `missing`: a program of it is not installed, so that it takes no
    time."""

    point: dict
    parameters: dict
    group: str
    metric: str
    seconds: float
    around_s: float
    setup_s: float = 0.0
    absent: str | None = None
    missing: bool = False


@dataclass
class Unit:
    """Points that one call measures: `measure` returns their metrics by name. A unit of one point has the name None."""

    points: dict
    measure: Callable
    runs: int = 0
    took_s: list = field(default_factory=list)


class Session:
    """`repeat` are the `method.Repetitions` of a point; `on_complete` is called with each complete point."""

    def __init__(self, store, repeat, seed, budget, on_complete=lambda point: None):
        self.store, self.repeat, self.seed, self.budget = store, repeat, seed, budget
        self.on_complete = on_complete
        self.order = 1 + max((run.get("order", 0) for point in store.all() for run in point["runs"]), default=0)
        self.measured, self.reused, self.failed = [], [], []
        # What each point of this session stores besides.
        self.stamp = {}

    def pending(self, planned):
        """The planned points that must be measured; of the others, the stored ones count as reused."""
        left = []
        for each in planned:
            if each.absent:
                continue
            if stored := self.store.usable(each.point, each.parameters):
                self.reused.append(stored)
            else:
                left.append(each)
        return left

    @staticmethod
    def unit(planned, measure):
        """A unit of one point."""
        return Unit({None: planned}, measure)

    @contextlib.contextmanager
    def setting_up(self, planned):
        """What happens meanwhile is the set-up for this point; its duration helps to estimate later runs."""
        begun = time.monotonic()
        yield
        planned.point["setup_s"] = round(time.monotonic() - begun, 3)

    def absent(self, planned, why):
        """A system that takes no part for a reason that only a try shows; the next session tries again."""
        planned.point["absent"] = why
        self._store(planned)
        self.on_complete(planned.point)

    @contextlib.contextmanager
    def comparison(self, group):
        """What happens meanwhile belongs to this comparison: set-ups, and units that take turns."""
        self.budget.begin(group)
        yield
        self.budget.end(group)

    def take_turns(self, group, units):
        """Measures units in rounds until each is complete. `units`: by name, with `Planned` points."""
        done = set()
        for chosen in method.rounds(list(units), self.repeat.most, f"{self.seed} {group}", done):
            for name in chosen:
                if self._turn(units[name]):
                    done.add(name)

    def _turn(self, unit):
        """One run, if it fits; returns whether the unit is complete."""
        further = unit.runs >= self.repeat.least
        if further:
            expected = sum(unit.took_s) / len(unit.took_s)
            if not self.budget.fits(expected):
                self._complete(unit, method.TIME)
                return True
        self._run(unit)
        if further:
            self.budget.spent += unit.took_s[-1]
        if any(self._reason(planned) is None for planned in unit.points.values()):
            return False
        self._complete(unit)
        return True

    def _run(self, unit):
        begun, error, found = time.monotonic(), None, {}
        try:
            found = unit.measure()
        except Exception as caught:  # noqa: BLE001: whatever goes wrong in one run must not lose the others
            error = in_a_line(caught)
        took = time.monotonic() - begun
        unit.runs += 1
        unit.took_s.append(took)
        for name, planned in unit.points.items():
            metrics = found if name is None else found.get(name)
            entry = {"order": self.order, "took_s": round(took / len(unit.points), 3)}
            if error is None and metrics is not None:
                entry |= {"ok": True, "metrics": metrics}
            else:
                entry |= {"ok": False, "error": error or "not among the results of the run"}
            planned.point["runs"].append(entry)
        self.order += 1

    def _reason(self, planned):
        return self.repeat.stop(planned.point["runs"], planned.metric)

    def _complete(self, unit, why=None):
        for planned in unit.points.values():
            point = planned.point
            width = method.half_width(method.values(point, planned.metric))
            point["stopped"] = {
                "why": self._reason(planned) or why,
                "runs": len(point["runs"]),
                "metric": planned.metric,
                "half_width": round(width, 5) if width != float("inf") else None,
            }
            self._store(planned)
            (self.measured if any(run["ok"] for run in point["runs"]) else self.failed).append(point)
            self.on_complete(point)

    def _store(self, planned):
        planned.point["measured"] = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        planned.point |= {"seconds": planned.seconds} | self.stamp
        self.store.write(planned.point, planned.parameters)


def grouped(planned):
    """Planned points by their comparison, in order."""
    for group, points in itertools.groupby(planned, key=lambda each: each.group):
        yield group, list(points)


def in_a_line(error):
    """An error in one line of a table."""
    text = " ".join(str(error).split())[:300]
    return text or type(error).__name__
