"""How often and in which order things are measured, and what is made of the runs.

The systems of a point take turns: each round runs every one of them once, in an order that is drawn anew, so that what changes on
the machine meanwhile meets all of them. A run that failed is kept, with why; nothing is left out of the results.
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
    """What the runs of a point that succeeded say of a metric."""
    return [run["metrics"][metric] for run in point["runs"] if run["ok"] and metric in run["metrics"]]


def compare(ours, theirs, more_is_better=True):
    """How two sets of values stand to each other: the ratio of their medians, and `ahead`, `behind`, or `level` where the
    quartiles overlap."""
    (low, middle, high), (their_low, their_middle, their_high) = spread(ours), spread(theirs)
    ratio = middle / their_middle if their_middle else float("inf")
    if low <= their_high and their_low <= high:
        return ratio, "level"
    return ratio, "ahead" if (middle > their_middle) == more_is_better else "behind"


def knee(medians, share=0.8):
    """The first x at which a median falls below a share of the first one; None if it never does. `medians`: (x, median) by
    rising x."""
    if not medians:
        return None
    first = medians[0][1]
    return next((x for x, value in medians if value < share * first), None)
