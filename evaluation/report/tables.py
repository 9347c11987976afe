"""Tables in Markdown."""

from evaluation import method
from evaluation.method import main_metric

from .data import cost_metric, in_order, is_rewriting, large, median, number


# The titles of loads whose size is that of a file.
WEB = {"wrk-one-page": "wrk with one connection, and nginx"}


def rows(head, body):
    lines = [f"| {' | '.join(head)} |", f"| {' | '.join('---' for _ in head)} |"]
    return "\n".join(lines + [f"| {' | '.join(line)} |" for line in body]) + "\n"


def with_spread(point, metric, scale=1.0):
    """The median with its quartiles: `3.21 (3.10–3.30)`."""
    found = [value * scale for value in method.values(point, metric)]
    if not found:
        return "–"
    low, middle, high = method.spread(found)
    return f"**{number(middle)}** ({number(low)}–{number(high)})"


def notes(point):
    """The notes of a row besides numbers: how many runs, why no more, and what went wrong."""
    failed = [run["error"] for run in point["runs"] if not run["ok"]]
    lines = [method.repetitions(point)] if "stopped" in point else []
    lines += [f"{len(failed)} of {len(point['runs'])} runs failed"] if failed else []
    for metric, what in (("sent_again", "segments sent again"), ("unanswered", "pings unanswered"), ("errors", "errors")):
        value = median(point, metric)
        if value:
            lines.append(f"{value:,.0f} {what}")
    return "; ".join(lines)


def live(points):
    """The points of one experiment under one load: a row for each size and system."""
    if is_rewriting(points[0]["load"]):
        return rewriting(points)
    metric, unit, _ = main_metric(points[0]["load"])
    axis = points[0]["axis"]
    rtt = points[0]["load"].startswith("ping")
    head = [*([axis] if axis else []), "system", f"median {unit}" if rtt else unit, *(["99th percentile µs"] if rtt else [])]
    cost, cost_unit = cost_metric(points[0])
    head += ["middle's core busy", cost_unit, "notes"]
    body = []
    for point in sorted(points, key=lambda point: point["x"]):
        start = [*([large(point["x"])] if axis else []), point["system_title"]]
        if point["absent"]:
            body.append([*start, *["–"] * (4 if rtt else 3), point["absent"]])
            continue
        busy = median(point, "middle_busy")
        body.append(
            [
                *start,
                with_spread(point, metric),
                *([with_spread(point, "rtt_p99_us")] if rtt else []),
                "–" if busy is None else f"{busy:.0%}",
                "–" if rtt or point["system"] == "direct" else with_spread(point, cost),
                notes(point),
            ]
        )
    return rows(head, body)


def rewriting(points):
    """Pages that are rewritten: a row for each size and system."""
    metrics = {
        "requests/s": "requests_s",
        "MB/s": "mbyte_s",
        "median µs": "latency_p50_us",
        "99th percentile µs": "latency_p99_us",
    }
    head = ["KB", "system", *metrics, "middle's core busy", "µs of the core a request", "notes"]
    body = []
    for point in sorted(points, key=lambda point: point["x"]):
        start = [large(point["x"]), point["system_title"]]
        if point["absent"]:
            body.append([*start, *["–"] * (len(metrics) + 2), point["absent"]])
            continue
        busy = median(point, "middle_busy")
        body.append(
            [
                *start,
                *(with_spread(point, metric) for metric in metrics.values()),
                "–" if busy is None else f"{busy:.0%}",
                with_spread(point, "middle_us_per_request"),
                notes(point),
            ]
        )
    return rows(head, body)


def cycles(points):
    """`mmb bench`: a row for each set, by stage."""
    stages = ("parse", "classify", "connections", "rewrite")
    head = ["set", "size", "cycles a packet", *stages, "Mpps a core", "notes"]
    body = []
    for point in points:
        parts = [median(point, f"{stage}_cycles") for stage in stages]
        body.append(
            [
                point["title"].removeprefix("Cycles per packet: "),
                f"{large(point['x'])} {point['axis']}" if point["axis"] else "",
                with_spread(point, "cycles_per_packet"),
                *(number(part) if part else "" for part in parts),
                number(median(point, "mpps")),
                notes(point),
            ]
        )
    return rows(head, body)


def streams(points):
    """The chain of functions in memory: a row for each function, on one core and on two."""
    by_name = {}
    for point in points:
        by_name.setdefault(point["load"], {})[point["x"]] = point
    body = []
    for name, by_cores in by_name.items():
        one, two = by_cores.get(1), by_cores.get(2)
        remarks = "; ".join(found for found in (notes(point) for point in by_cores.values()) if found)
        body.append(
            [
                name.removeprefix("chain: "),
                *([with_spread(one, "cycles_per_byte"), with_spread(one, "gbit_s")] if one else ["–", "–"]),
                *([with_spread(two, "gbit_s"), number(median(two, "scaling"))] if two else ["–", "–"]),
                remarks,
            ]
        )
    return rows(["function", "cycles a byte", "Gbit/s, one core", "Gbit/s, two cores", "two cores / one", "notes"], body)


def memif(points):
    head = ["policy", "frame", "Mpps", "Gbit/s", "mmb's core busy", "cycles a packet", "notes"]
    body = []
    for point in points:
        start = [point["title"].removeprefix("Packets over memif: "), f"{point['x']} B"]
        if point["absent"]:
            body.append([*start, "–", "–", "–", "–", point["absent"]])
            continue
        busy = median(point, "middle_busy")
        body.append(
            [
                *start,
                with_spread(point, "mpps"),
                number(median(point, "gbit_s")),
                "–" if busy is None else f"{busy:.0%}",
                with_spread(point, "cycles_per_packet"),
                notes(point),
            ]
        )
    return rows(head, body)


def vpp(points):
    body = []
    for point in points:
        start = [point["system_title"], point["title"]]
        body.append(
            [*start, "–", point["absent"]] if point["absent"] else [*start, with_spread(point, "cycles_per_packet"), notes(point)]
        )
    return rows(["feature", "work", "cycles a packet", "notes"], body)


def failures(points):
    """Every run that failed."""
    body = []
    for point in points:
        where = [point["experiment"], point["load"], large(point["x"]), point["system_title"]]
        body += [[*where, str(run["order"]), run["error"].replace("|", "\\|")] for run in point["runs"] if not run["ok"]]
    return rows(["experiment", "load", "size", "system", "run", "why"], body) if body else ""


def versions(machine):
    return rows(["program", "version"], [[name, text] for name, text in machine["versions"].items()])


def by_load(points):
    """The points of an experiment, load by load."""
    return {load: [point for point in points if point["load"] == load] for load in in_order(point["load"] for point in points)}
