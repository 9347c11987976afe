"""Plots, drawn by matplotlib. The same results give the same bytes. Only drawing imports matplotlib."""

from evaluation import method
from evaluation.method import main_metric

from .data import cost_metric, in_order
from .tables import by_load

# One colour for each system, in every plot that has it. The colours are distinguishable with colour blindness (Okabe and Ito), and so are the
# marks.
LOOKS = {
    "direct": ("#999999", "x"),
    "forward": ("#000000", "s"),
    "mmb": ("#D55E00", "o"),
    "mmb-offload-off": ("#E69F00", "D"),
    "mmb-af_xdp": ("#A0522D", "X"),
    "mmb-af_packet": ("#D4C24A", "d"),
    "nftables": ("#0072B2", "^"),
    "iptables": ("#56B4E9", "v"),
    "xdp": ("#009E73", "P"),
    "haproxy": ("#CC79A7", "*"),
    "suricata": ("#8C6BB1", "h"),
    "mmb-no-rules": ("#F0B7A0", "p"),
    "nginx": ("#0072B2", "^"),
    "apache": ("#56B4E9", "v"),
    "haproxy-http": ("#CC79A7", "*"),
    "squid": ("#8C6BB1", "h"),
}
STYLE = {
    "svg.hashsalt": "mmb",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
}
LOAD_NAMES = {
    "iperf": "iperf3",
    "wrk": "wrk",
    "wrk-8k": "wrk, 8 KB",
    "wrk-balanced": "wrk",
    "wrk-pages": "wrk",
    "wrk-one-page": "wrk, one connection",
    "wrk-close": "wrk, new connections",
    "udp": "64-byte UDP",
    "udp-established": "64-byte UDP, established",
}


def draw(path, shape, fill):
    """A figure with rows and columns of panels, filled by a function. The legend is above all panels, unless panels have their
    own."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    rows, columns = shape
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(rows, columns, figsize=(4.2 * columns, 3.0 * rows), squeeze=False)
        fill(panels)
        figure.tight_layout()
        handles, labels = panels[0][0].get_legend_handles_labels()
        if handles and not panels[0][0].get_legend():
            figure.legend(handles, labels, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncol=4, fontsize=8)
        figure.savefig(path, metadata={"Date": None, "Creator": None}, bbox_inches="tight")
        plt.close(figure)


def _error(point, metric):
    low, middle, high = method.spread(method.values(point, metric))
    return middle, [[middle - low], [high - middle]]


def _measured(points, metric):
    return [point for point in points if method.values(point, metric)]


def lines(path, points):
    """An experiment over sizes: throughput, and the cycles of a packet; each load with several sizes is a row."""
    several = {load: chosen for load, chosen in by_load(points).items() if len({point["x"] for point in chosen}) > 1}

    def fill(panels):
        for (through, cost), (load, chosen) in zip(panels, several.items()):
            metric, unit, _ = main_metric(load)
            name = LOAD_NAMES.get(load, load)
            _curves(through, chosen, metric, f"{unit}, {name}")
            through.set_ylim(bottom=0)
            cost.set_yscale("log")
            _curves(cost, chosen, *_cost(chosen[0], name))

    draw(path, (len(several), 2), fill)


def _cost(point, name):
    metric, unit = cost_metric(point)
    return metric, f"{unit}, {name}"


def _curves(axes, points, metric, title):
    # Functions are one more each; other sizes grow by factors.
    counts = points[0]["axis"] == "functions"
    for system in in_order(point["system"] for point in points):
        colour, mark = LOOKS[system]
        chosen = sorted(_measured([point for point in points if point["system"] == system], metric), key=lambda point: point["x"])
        if not chosen:
            continue
        spreads = [method.spread(method.values(point, metric)) for point in chosen]
        middles = [middle for _, middle, _ in spreads]
        bars = [[middle - low for low, middle, _ in spreads], [high - middle for _, middle, high in spreads]]
        xs = [point["x"] if counts else max(point["x"], 1) for point in chosen]
        axes.errorbar(xs, middles, yerr=bars, color=colour, marker=mark, markersize=4, capsize=2, label=chosen[0]["system_title"])
    if counts:
        axes.set_xticks(sorted({point["x"] for point in points}))
    else:
        axes.set_xscale("log")
    axes.set_xlabel(points[0]["axis"])
    axes.set_title(title, fontsize=9)


def bars(path, points):
    """An experiment of one size: a bar for each system; each load is a row."""
    loads = by_load(points)

    def fill(panels):
        for (through, cost), (load, chosen) in zip(panels, loads.items()):
            metric, unit, _ = main_metric(load)
            name = LOAD_NAMES.get(load, load)
            _bars(through, chosen, metric, f"{unit}, {name}")
            _bars(cost, [point for point in chosen if point["system"] != "direct"], *_cost(chosen[0], name))

    draw(path, (len(loads), 2), fill)


def _bars(axes, points, metric, title):
    chosen = _measured(points, metric)
    for place, point in enumerate(chosen):
        middle, error = _error(point, metric)
        axes.barh(place, middle, xerr=error, color=LOOKS[point["system"]][0], capsize=2)
    axes.set_yticks(range(len(chosen)), [point["system_title"] for point in chosen])
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_title(title, fontsize=9)


def round_trips(path, points):
    """The distribution of round trips, over all runs; a panel for each load."""
    loads = by_load(points)

    def fill(panels):
        for axes, chosen in zip(panels[0], loads.values()):
            for point in _measured(chosen, "rtt_quantiles_s"):
                runs = method.values(point, "rtt_quantiles_s")
                quantiles = [method.spread(values)[1] * 1e6 for values in zip(*runs)]
                axes.plot(quantiles, range(101), color=LOOKS[point["system"]][0], label=point["system_title"])
            axes.set_xscale("log")
            axes.set_xlabel("round trip, µs")
            axes.set_ylabel("% of pings")
            axes.set_title(chosen[0]["load_title"], fontsize=9)

    draw(path, (1, len(loads)), fill)


def cycles(path, points):
    """`mmb bench`: cycles over rules, masks and connections."""
    axes_names = [axis for axis in in_order(point["axis"] for point in points) if axis]
    marks = "osD^vP"

    def fill(panels):
        for panel, axis in zip(panels[0], axes_names):
            chosen = [point for point in points if point["axis"] == axis]
            for number, load in enumerate(in_order(point["load"] for point in chosen)):
                curve = _measured([point for point in chosen if point["load"] == load], "cycles_per_packet")
                middles = [method.spread(method.values(point, "cycles_per_packet"))[1] for point in curve]
                panel.plot([point["x"] for point in curve], middles, marker=marks[number], markersize=4, label=load)
            panel.set_xscale("log")
            panel.set_ylim(bottom=0)
            panel.set_xlabel(axis)
            panel.set_title("cycles a packet", fontsize=9)
            panel.legend(fontsize=8)

    draw(path, (1, len(axes_names)), fill)
