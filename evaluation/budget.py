"""The time of an evaluation: what its points take, and which further runs fit.

Every point gets its minimum of runs, whatever that takes. The rest of the time goes to further runs of points that scatter. Each
comparison may use a share of it in proportion to its own minimum, and leaves the unused part to those after it, so that the first
experiments do not use up the time of the last ones.
"""

import statistics
import time

# Only after so many seconds is the ratio of real and expected durations used.
PACE_AFTER_S = 60


class Durations:
    """The expected seconds of a run and of a set-up: those of stored points, or those that the planned point gives."""

    def __init__(self, stored=()):
        self._around, self._setup = {}, {}
        for point in stored:
            took = [run["took_s"] - point["seconds"] for run in point["runs"] if "took_s" in run and "seconds" in point]
            for key in _keys(point):
                self._around.setdefault(key, []).extend(took)
                if point.get("setup_s"):
                    self._setup.setdefault(key, []).append(point["setup_s"])

    def run(self, planned):
        """A run: the measured time, and the time to start and end programs around it."""
        return planned.seconds + self._known(self._around, planned.point, planned.around_s)

    def setup(self, planned):
        """Opening the system and loading its policy, if this is the point that does so."""
        return self._known(self._setup, planned.point, planned.setup_s) if planned.setup_s else 0.0

    @staticmethod
    def _known(table, point, default):
        found = next((table[key] for key in _keys(point) if table.get(key)), None)
        return max(0.0, statistics.median(found)) if found else default


def _keys(point):
    """The same point, then similar ones."""
    yield point["experiment"], point["load"], point["x"], point["system"]
    yield point["experiment"], point["load"], point["system"]
    yield point["experiment"], point["load"]


def duration(minutes):
    """Minutes in words; below two, in seconds."""
    return f"{minutes * 60:.0f} seconds" if minutes < 2 else f"{minutes:.0f} minutes"


class Budget:
    """`expected` is the minimum of each comparison in seconds, in the order of measurement. Without `minutes` all further runs fit."""

    def __init__(self, minutes, expected, clock=time.monotonic):
        self.clock, self.left = clock, dict(expected)
        self.ends = clock() + minutes * 60 if minutes else None
        self.pace, self._expected_s, self._took_s = 1.0, 0.0, 0.0
        self.extra = self.spent = 0.0

    def begin(self, name):
        """The comparison begins."""
        self.begun, self.spent = self.clock(), 0.0
        if self.ends is None:
            self.extra = float("inf")
            return
        reserved = sum(self.left.values()) * self.pace
        free = max(0.0, self.ends - self.begun - reserved)
        self.extra = free * self.left.get(name, 0.0) * self.pace / reserved if reserved else free

    def fits(self, seconds):
        """Whether a further run of so many seconds fits."""
        return self.spent + seconds <= self.extra

    def end(self, name):
        """The comparison is over."""
        expected = self.left.pop(name, 0.0)
        self._expected_s += expected
        self._took_s += max(0.0, self.clock() - self.begun - self.spent)
        if self._expected_s and self._took_s >= PACE_AFTER_S:
            self.pace = self._took_s / self._expected_s
