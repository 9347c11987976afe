"""The number and the order of measurements, and statistics of their runs.

The systems of a comparison take turns: each round runs each of them once, in a new random order, so that changes on the machine
affect all of them. A failed run stays in the results, with the reason; nothing is omitted.

The number of runs follows the scatter. A point is complete when the 95 % confidence interval of its mean, by Student's t
distribution, is narrow relative to the mean. The rule follows the sequential procedure for relative precision of A. Law and W.
Kelton, Simulation Modeling and Analysis, section 9.4.1, with two differences: they recommend ten runs before the first test, and have
no upper limit. A. Georges, D. Buytaert and L. Eeckhout, Statistically Rigorous Java Performance
Evaluation (OOPSLA 2007), use the same interval for few runs of a program. A distribution-free interval of the median needs six
runs for 95 %, so it cannot end a point after three. Stopping at a narrow interval makes intervals look slightly narrower than they
are; with three runs, t is 4.3, and only a standard deviation below 2 % of the mean meets a target of 5 %.
"""

import random
import statistics
from typing import NamedTuple

# Raise this number when a change of the method, of a load or of a system makes values incomparable with earlier ones: stored points
# of another number are measured anew.
VERSION = 2

# Student's t for a two-sided interval of 95 %, by degrees of freedom from 1; beyond the table the last value is slightly too wide.
STUDENT_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)

# Why a point has no further run.
STEADY, MOST, TIME, FAILED = "steady", "most", "time", "failed"


class Repetitions(NamedTuple):
    """The runs of a point: at least and at most so many, and the relative half-width of the interval that ends a point earlier."""

    least: int
    most: int
    target: float

    def stop(self, runs, metric):
        """Why these runs are enough, or None."""
        values = metric_values(runs, metric)
        if len(runs) >= self.least and not values:
            return FAILED
        if len(values) >= self.least and half_width(values) <= self.target:
            return STEADY
        return MOST if len(runs) >= self.most else None


def half_width(values):
    """Half of the 95 % confidence interval of the mean, divided by the mean."""
    if len(values) < 2:
        return float("inf")
    mean, deviation = statistics.fmean(values), statistics.stdev(values)
    if not deviation:
        return 0.0
    t = STUDENT_T[min(len(values) - 1, len(STUDENT_T)) - 1]
    return t * deviation / len(values) ** 0.5 / abs(mean) if mean else float("inf")


def rounds(systems, runs, seed, done=()):
    """For each round, the systems in the order in which they run, without those that are in `done` by then."""
    chance = random.Random(seed)
    for _ in range(runs):
        left = [system for system in systems if system not in done]
        if not left:
            return
        yield chance.sample(left, len(left))


def main_metric(load):
    """The subject of a load between namespaces: the metric, its unit, whether more is better."""
    if load.startswith("ping"):
        return "rtt_p50_us", "µs", False
    if load in ("wrk-pages", "wrk-close"):
        return "requests_s", "requests/s", True
    if load == "wrk-one-page":
        return "latency_p50_us", "µs", False
    if load in ("udp", "udp-established"):
        return "mpps", "Mpps", True
    return "gbit_s", "Gbit/s", True


def spread(values):
    """The median and the quartiles around it: (first quartile, median, third quartile)."""
    if not values:
        raise ValueError("no values, no median")
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, middle, high


def values(point, metric):
    """Statistics of a metric over the successful runs of a point."""
    return metric_values(point["runs"], metric)


def repetitions(point):
    """How many runs a point took, how far they scatter, and why it has no more: `8 runs, ±12%, the most`."""
    stopped = point["stopped"]
    count = f"{stopped['runs']} run{'s' if stopped['runs'] > 1 else ''}"
    width = "" if stopped["half_width"] is None else f", ±{stopped['half_width']:.1%}"
    return count + width + {STEADY: "", MOST: ", the most", TIME: ", no time for more", FAILED: ", all failed"}[stopped["why"]]


def metric_values(runs, metric):
    return [run["metrics"][metric] for run in runs if run["ok"] and metric in run["metrics"]]


def compare(ours, theirs, more_is_better=True):
    """Compares two sets of values: the ratio of their medians, and `ahead`, `behind`, or `level` if the quartiles overlap."""
    (low, middle, high), (their_low, their_middle, their_high) = spread(ours), spread(theirs)
    ratio = middle / their_middle if their_middle else float("inf")
    if low <= their_high and their_low <= high:
        return ratio, "level"
    return ratio, "ahead" if (middle > their_middle) == more_is_better else "behind"


def knee(medians, share=0.8):
    """The first x at which a median falls below a share of the first one; None if there is none. `medians`: (x, median) with
    increasing x."""
    if not medians:
        return None
    first = medians[0][1]
    return next((x for x, value in medians if value < share * first), None)
