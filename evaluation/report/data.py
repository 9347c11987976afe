"""Access to the results for the pages."""

from evaluation import method

# mmb as users have it, and with every packet through it.
OURS, OFFLOAD_OFF = "mmb", "mmb-offload-off"


class Results:
    def __init__(self, results):
        self.all = results
        self.points = results["points"]

    def find(self, **wanted):
        """Points with these entries, in their order."""
        return [point for point in self.points if all(point[key] == value for key, value in wanted.items())]

    def one(self, **wanted):
        found = self.find(**wanted)
        return found[0] if found else None

    def median(self, metric, **wanted):
        """The median of a metric at one point; None if it was not measured."""
        point = self.one(**wanted)
        return median(point, metric) if point else None

    def titles(self):
        """Experiments with their titles, in order."""
        return {point["experiment"]: point for point in self.points}

    def curve(self, metric, **wanted):
        """(x, median) of points that were measured, with increasing x."""
        pairs = [(point["x"], median(point, metric)) for point in self.find(**wanted)]
        return sorted(pair for pair in pairs if pair[1] is not None)


def median(point, metric):
    found = method.values(point, metric)
    return method.spread(found)[1] if found else None


def ratio(point, peer, metric):
    """The median of a point divided by that of a peer; None if one of them is missing."""
    ours, theirs = (each and median(each, metric) for each in (point, peer))
    return ours / theirs if ours is not None and theirs else None


def cost_metric(point):
    """The divisor of the middle's work: packets, or bytes if packets have any size up to 64 KB, or requests if what the middle sends is not
    what it receives."""
    if is_rewriting(point["load"]):
        return "middle_us_per_request", "µs of the core a request"
    return ("cycles_per_kb", "cycles a KB") if point.get("offloads") else ("cycles_per_packet", "cycles a packet")


def is_rewriting(load):
    """Whether it is a load of pages that the middle rewrites."""
    return load in ("wrk-pages", "wrk-one-page")


def in_order(found):
    """Unique values in the order of their first appearance."""
    return list(dict.fromkeys(found))


def number(value):
    """A number with three significant digits."""
    if value is None:
        return "–"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def large(value):
    """A rounded count: 100 K, 1 M."""
    for unit, name in ((10**6, " M"), (10**3, " K")):
        if value >= unit and value % unit == 0:
            return f"{value // unit}{name}"
    return f"{value:,}"
