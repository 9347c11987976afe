"""The number and the order of measurements, and statistics of their runs.

The systems of a point take turns: each round runs each of them once, in a new random order, so that changes on the machine affect
all of them. A failed run stays in the results, with the reason; nothing is omitted.
"""

import random
import statistics


def rounds(systems, runs, seed):
    """For each round, the systems in the order in which they run."""
    chance = random.Random(seed)
    for _ in range(runs):
        yield chance.sample(systems, len(systems))


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
    return [run["metrics"][metric] for run in point["runs"] if run["ok"] and metric in run["metrics"]]


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
