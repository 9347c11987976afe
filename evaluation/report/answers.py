"""Answers to the questions of an operator, with figures of the results. A sentence that the results do not support is omitted."""

from evaluation import method
from evaluation.method import main_metric

from . import tables
from .data import OFFLOAD_OFF, OURS, cost_metric, in_order, large, median, number, ratio

# From this share on, a core counts as fully used.
FULL = 0.95

# The reasons why mmb is behind or ahead, by peer and work.
BEHIND = {
    "crossing": (
        "over a kernel interface, a packet that the kernel does not forward by itself (`show offload` tells why) leaves the kernel for mmb"
        " and comes back: it is copied out of a socket buffer and into a new one, and the kernel's receiving and mmb take turns on the core."
        " The kernel's own filters work where the packet is already. Over a memif or a device with a DPDK driver there is no such crossing: what is left then is in the section"
        " *In memory*."
    ),
    "waiting": "with the core full, packets wait in the rings before mmb, and pings with them.",
    "xdp": "its program runs in the kernel's receiving, and has one table of one shape to look into.",
}
AHEAD = {
    "iptables": "iptables holds a packet against one rule after the other; mmb finds all rules that match by few lookups.",
    "nftables": "what no set can hold (options of several kinds, differing masks) nftables tries rule after rule; mmb looks it up.",
    "suricata": "Suricata decodes each packet, keeps a flow and a stream for it and searches each stream when enough bytes are there; mmb"
    " searches each packet once, where it lies.",
    "haproxy": "HAProxy ends each connection and begins another: two passages of TCP, every byte copied; mmb rewrites addresses.",
    "nginx": "a reverse proxy ends each connection and begins another, and copies every byte out of one and into the other; mmb changes"
    " what it finds, where it lies, and leaves TCP to the ends.",
    "xdp": "the XDP filter stands before the kernel's forwarding, and packets pay for both.",
}


# The forms of a kernel interface, and what users call them.
FORMS = {OURS: "`eth1`", OFFLOAD_OFF: "`eth1`, offload off", "mmb-af_xdp": "`af_xdp:eth1`", "mmb-af_packet": "`af_packet:eth1`"}
# What the advice on devices rests on: a title, and the points.
ADVISING = (
    ("64-byte UDP, established flows", {"experiment": "established", "load": "udp-established"}),
    ("TCP, 7 streams", {"experiment": "forwarding", "load": "iperf"}),
    ("HTTP, 128 KB", {"experiment": "forwarding", "load": "wrk"}),
)


def devices(results):
    """The form of a device to use."""
    found, wins = {}, []
    for title, wanted in ADVISING:
        metric, unit, _ = main_metric(wanted["load"])
        medians = {system: results.median(metric, system=system, **wanted) for system in (*FORMS, "forward")}
        if medians[OURS] is not None:
            found[title] = {system: f"{number(value)} {unit}" for system, value in medians.items() if value is not None}
            wins.append((title, _better_form(results, metric, wanted)))
    if not found:
        return ""
    titles = FORMS | {"forward": "kernel forwarding, for comparison"}
    columns = [system for system in titles if any(system in values for values in found.values())]
    body = [[title, *(values.get(system, "–") for system in columns)] for title, values in found.items()]
    text = tables.rows(["one core", *(titles[system] for system in columns)], body)
    best = in_order(form for _, form in wins if form)
    if len(best) == 1:
        text += f"\nOn kernel interfaces use {best[0]}: it was ahead of the other here, or level."
    elif best:
        won = ", ".join(f"{form} for {title}" for title, form in wins if form)
        text += f"\nOn kernel interfaces neither is ahead throughout: {won}. Elsewhere their spreads overlap."
    else:
        text += "\nThe spreads of `eth1` and `af_xdp:eth1` overlap, or were not compared here."
    small, large_frames = (results.median("mpps", experiment="memif", load="none", x=size) for size in (64, 1500))
    if small and large_frames:
        text += (
            f" Between programs on one machine use memif: {number(small)} Mpps of 64-byte and {number(large_frames)} Mpps of"
            " 1,500-byte frames on a core. For a network card use its DPDK driver (a PCI address); no card was measured here."
        )
    return text + "\n"


def _better_form(results, metric, wanted):
    """The plain form or that of AF_XDP, whichever is ahead."""
    pair = [results.one(system=system, **wanted) for system in (OURS, "mmb-af_xdp")]
    if not all(point and method.values(point, metric) for point in pair):
        return None
    stands = method.compare(*(method.values(point, metric) for point in pair))[1]
    return {"ahead": FORMS[OURS], "behind": FORMS["mmb-af_xdp"], "level": None}[stands]


def per_core(results):
    """The throughput to expect of a core."""
    lines = []
    for load, what in (
        ("empty", "forwarding without rules"),
        ("five-tuple", "a five-tuple firewall"),
        ("options", "TCP-option rules"),
        ("stateful", "established connections with a stateful rule each"),
        ("snat", "source NAT of established connections"),
    ):
        found = [point for point in results.find(experiment="cycles", load=load) if method.values(point, "cycles_per_packet")]
        if not found:
            continue
        points = sorted(found, key=lambda point: point["x"])[:: max(1, len(found) - 1)]
        sizes = "; ".join(
            f"{number(median(point, 'cycles_per_packet'))} cycles, {number(median(point, 'mpps'))} Mpps"
            + (f" at {large(point['x'])} {point['axis']}" if point["axis"] else "")
            for point in points
        )
        lines.append(f"- {what}: {sizes}")
    note = "The engine alone, packets in memory; devices come on top (tables further down show what they add):\n\n"
    return note + "\n".join(lines) + "\n" if lines else ""


def knees(results):
    """The size from which on a core does less than 80 % of its work at the first size."""
    body = []
    for load, what in (("five-tuple", "five-tuple rules"), ("options", "TCP-option rules"), ("masks", "masks, one rule each"),
                       ("stateful", "connections, stateful rules"), ("snat", "connections, source NAT")):  # fmt: skip
        curve = results.curve("mpps", experiment="cycles", load=load)
        if len(curve) > 1:
            body.append([what, "in memory, packets a second", *_knee(curve)])
    for experiment, what in (
        ("firewall", "five-tuple rules"),
        ("options", "TCP-option rules"),
        ("masks", "masks, one rule each"),
    ):
        for system in in_order(point["system"] for point in results.find(experiment=experiment, load="iperf")):
            curve = results.curve("gbit_s", experiment=experiment, load="iperf", system=system)
            if len(curve) > 1:
                title = results.one(experiment=experiment, system=system)["system_title"]
                body.append([what, f"{title}, iperf3", *_knee(curve)])
    return tables.rows(["what grows", "where", "first → last", "below 80 % of the first from"], body) if body else ""


def _knee(curve):
    (first_x, first), (last_x, last) = curve[0], curve[-1]
    found = method.knee(curve)
    return (
        f"{number(first)} at {large(first_x)} → {number(last)} at {large(last_x)}",
        f"{large(found)} on" if found else "not reached",
    )


def comparison(results):
    """The comparison of mmb with each peer on each work: a row for each work, load and peer that were measured."""
    lines, stands = {}, set()
    for point in results.find(system=OURS):
        metric, _, more = main_metric(point["load"])
        for peer in _peers(results, point):
            ours, theirs = method.values(point, metric), method.values(peer, metric)
            if not ours or not theirs:
                continue
            times, how = method.compare(ours, theirs, more)
            stands.add((peer["system"], how))
            size = f"{large(point['x'])}: " if point["axis"] else ""
            stand = how if how == "level" else f"**{how}**"
            # Files differ by their load, which is the size in this case.
            load = tables.WEB.get(point["load"], "wrk and nginx") if point["axis"] == "KB" else point["load_title"]
            work = point["title"] + (f", by {point['axis']}" if point["axis"] else "")
            rates, costs = lines.setdefault((work, load, peer["system_title"]), ([], []))
            rates.append(f"{size}{stand} {number(times)}")
            costs.append(f"{size}{_ratio_of_costs(point, peer)}")
    if not lines:
        return ""
    head = ["work", "load", "peer", "mmb is, and mmb's / the peer's", "cost, mmb's / the peer's"]
    body = [[*key, "; ".join(rates), "; ".join(costs)] for key, (rates, costs) in lines.items()]
    waiting = [
        median(point, "middle_busy") for point in results.find(system=OURS, load="ping-iperf") if median(point, "middle_busy")
    ]
    return tables.rows(head, body) + "\n" + _why(stands, bool(waiting) and max(waiting) > FULL)


def rewriting(results):
    """Rewriting beside nginx: requests per second, the work of a request, and the time that it adds to one."""
    body = []
    for point in results.find(system=OURS, experiment="rewrite-http-body"):
        at = {"experiment": "rewrite-http-body", "load": point["load"], "x": point["x"]}
        nginx = results.one(system="nginx", **at)
        ratios = [ratio(point, nginx, metric) for metric in ("requests_s", "middle_us_per_request")]
        if ratios[0] is None:
            continue
        one = {"experiment": "rewrite-http-latency", "load": "wrk-one-page", "x": point["x"]}
        with_it, without = (results.median("latency_p50_us", system=system, **one) for system in (OURS, "mmb-no-rules"))
        added = "–" if with_it is None or without is None else f"{with_it - without:+.0f} µs"
        body.append([f"{large(point['x'])} KB", *map(number, ratios), added])
    head = [
        "pages",
        "requests/s, mmb's / nginx's",
        "work of the core a request, mmb's / nginx's",
        "median latency that the rule adds to mmb, one connection",
    ]
    return tables.rows(head, body) if body else ""


def _peers(results, point):
    """The other systems that were measured at a point."""
    there = results.find(experiment=point["experiment"], load=point["load"], x=point["x"])
    return [peer for peer in there if not peer["system"].startswith("mmb") and peer["system"] != "direct"]


def _ratio_of_costs(point, peer):
    cost, _ = cost_metric(point)
    ours, theirs = median(point, cost), median(peer, cost)
    if not ours or not theirs or point["load"].startswith("ping"):
        return "–"
    return number(ours / theirs)


def _why(stands, full):
    behind = {system for system, how in stands if how == "behind"}
    ahead = sorted(system for system, how in stands if how == "ahead")
    lines = [f"- Behind: {BEHIND['crossing']}"] if behind else []
    lines += [f"- Round trips under load: {BEHIND['waiting']}"] if behind and full else []
    lines += [f"- Behind XDP: {BEHIND['xdp']}"] if "xdp" in behind else []
    lines += [f"- Ahead: {AHEAD[system]}" for system in ahead if system in AHEAD]
    return "\n".join(lines) + "\n"
