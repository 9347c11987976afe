"""The targets of kernel interfaces: how far mmb is from the kernel's own forwarding and filters.

Each row is a ratio of medians: mmb's divided by a peer's. Rates must not be less than their target, round trips and cycles not more.
"""

from typing import NamedTuple

from evaluation.method import main_metric

from . import tables
from .data import OFFLOAD_OFF, OURS, cost_metric, large, number, ratio

# Sizes of a firewall that have a target.
FEWEST_RULES, MOST_RULES = 100, 100_000
PAIRS = "7 × iperf3"
# The peer whose cycles count, and the target for them.
CHEAPEST, MOST_CYCLES = "nftables", 1.0


class Target(NamedTuple):
    """What is measured: experiments under one load, with the ratio to reach for each peer."""

    work: str
    load: str
    # Each with a name for its part of the work, if there are several.
    experiments: dict
    peers: dict


def _four(prefix=""):
    names = {"forwarding": "forwarding", "firewall": "five-tuple firewall", "nat": "source NAT", "stateful": "stateful"}
    return {f"{prefix}{name}": title for name, title in names.items()}


TARGETS = (
    Target(f"{PAIRS}, offloads at defaults", "iperf", _four("default-"), {"forward": 0.95, "nftables": 1.0}),
    Target(f"{PAIRS}, offloads off", "iperf", _four(), {"forward": 1.0, "nftables": 1.0}),
    Target("64-byte UDP, established flows", "udp-established", {"established": ""}, {"forward": 1.0}),
    Target("wrk, 128 KB files, balancing", "wrk-balanced", {"balance": ""}, {"haproxy": 1.5, "nftables": 1.0}),
    Target("ping alone", "ping", {"rtt": ""}, {"nftables": 1.1}),
    Target(f"ping beside {PAIRS}", "ping-iperf", {"rtt": ""}, {"nftables": 1.5}),
)
# A target without a row of its own in the table.
CONNECTIONS = {"experiment": "connections", "load": "wrk-close"}


def table(results):
    """A row for each work and peer, then the cycles; without points of a work it has no rows."""
    rates, costs = [], []
    for target in TARGETS:
        metric, _, more = main_metric(target.load)
        for point, work in _points(results, target):
            for peer, bound in target.peers.items():
                rates += _row(results, point, work, peer, metric, bound, more)
            if not target.load.startswith("ping"):
                metric_of_cost, unit = cost_metric(point)
                costs += _row(results, point, f"{unit} of the middle's core: {work}", CHEAPEST, metric_of_cost, MOST_CYCLES, False)
    if not rates:
        return ""
    head = ["work", "peer", "mmb's / the peer's", "target", "reached", "the same with offload off"]
    return tables.rows(head, rates + costs) + _new_connections(results)


def _points(results, target):
    """The points of mmb that have this target, each with a name."""
    for experiment, part in target.experiments.items():
        for point in results.find(experiment=experiment, load=target.load, system=OURS):
            many = point["axis"] == "rules" and part
            if many and not FEWEST_RULES <= point["x"] <= MOST_RULES:
                continue
            size = f", {large(point['x'])} rules" if many else ""
            yield point, f"{target.work}: {part}{size}" if part else target.work


def _row(results, point, work, peer, metric, bound, more):
    """A row in a list, or nothing if the peer takes no part."""
    at = {key: point[key] for key in ("experiment", "load", "x")}
    theirs = results.one(system=peer, **at)
    if theirs is None:
        return []
    found, without = (ratio(ours, theirs, metric) for ours in (point, results.one(system=OFFLOAD_OFF, **at)))
    reached = "–" if found is None else "yes" if (found >= bound if more else found <= bound) else "no"
    sign = "≥" if more else "≤"
    return [[work, theirs["system_title"], number(found), f"{sign} {bound}", reached, number(without)]]


def _new_connections(results):
    ours, theirs = (results.one(system=system, **CONNECTIONS) for system in (OURS, "nftables"))
    found = ratio(ours, theirs, "requests_s")
    return "" if found is None else f"\nNew connections through a source NAT, requests/s: {number(found)} of nftables', target ≥ 1.0.\n"
