"""The whole evaluation: all its points, the choice among them, what they take, and their measurement one after the other."""

from . import figures, live, machine, memory, vpp
from .budget import Budget, Durations
from .session import Session, grouped, in_a_line

IN_MEMORY = (*memory.NAMES, "vpp")


class UnknownName(ValueError):
    """An experiment that the evaluation does not have."""


def names(plan):
    """The experiments of a plan."""
    return [*(experiment.name for experiment in plan.experiments), *IN_MEMORY]


def chosen(plan, text):
    """The experiments that a list of names chooses; all without a list."""
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    known = names(plan)
    unknown = [name for name in wanted if name not in known]
    if unknown:
        kind = "the quick evaluation" if plan.name == "quick" else "the evaluation"
        raise UnknownName(f"{kind} has no {' and no '.join(unknown)}; it has: {', '.join(known)}")
    return [name for name in known if not wanted or name in wanted]


def planned(plan, versions=None, only=None):
    """The points of these experiments (None: all), in the order of measurement."""
    every = [*live.planned(plan, versions), *memory.planned(plan), *vpp.planned(plan)]
    return [each for each in every if only is None or each.point["experiment"] in only]


def session(plan, points, store, seed):
    """A session with the budget of what is not stored of these points."""
    durations = Durations(store.all())
    expected = {}
    for group, each in grouped(points):
        left = [one for one in each if not one.absent and store.usable(one.point, one.parameters) is None]
        if left:
            expected[group] = expected.get(group, 0.0) + minimum(left, plan.repeat.least, durations)
    return Session(store, plan.repeat, seed, Budget(plan.minutes, expected), _print_point)


def minimum(points, runs, durations):
    """The seconds that so many runs of each point take."""
    return sum(durations.setup(each) + runs * durations.run(each) for each in points if not each.missing)


def _print_point(point):
    show = memory.line if point["experiment"] in IN_MEMORY else live.line
    print(show(point), flush=True)


def reuse(points, store):
    """How many points are stored already."""
    able = [each for each in points if not each.absent]
    stored = [point for each in able if (point := store.usable(each.point, each.parameters))]
    busy = sum(point.get("busy_before", 0.0) > machine.QUIET for point in stored)
    text = f"{len(stored)} of {len(able)} points are reused from {store.folder}, {len(able) - len(stored)} are to be measured"
    return text + (f"; {busy} of those that are reused are of a busy machine (FRESH=1 measures anew)" if busy else "")


def run(folder, cores, tsc_hz, plan, session, points, undisturbed):
    """Measures the points. An error that ends one part does not end the others; returns these errors by part."""
    of = {"memory": memory.NAMES, "vpp": ("vpp",), "namespaces": [each.name for each in plan.experiments]}
    parts = {part: [each for each in points if each.point["experiment"] in names] for part, names in of.items()}
    broken = {}

    def between_namespaces():
        between = live.Live(folder / "live", cores, tsc_hz, session)
        try:
            between.run(parts["namespaces"])
        finally:
            with undisturbed():
                between.close()

    measures = {
        "namespaces": between_namespaces,
        "memory": lambda: memory.Memory(folder / "memory", cores, tsc_hz, plan, session).run(parts["memory"]),
        "vpp": lambda: vpp.measure(folder / "vpp", cores, session, parts["vpp"]),
    }
    for part, measure in measures.items():
        if parts[part]:
            try:
                measure()
            except Exception as error:  # noqa: BLE001: the other parts and the stored points must not be lost
                broken[part] = in_a_line(error)
    return broken


def collected(every, store):
    """The points of the results, and how many each experiment lacks. Points of experiments that this session did not choose are those
    that are stored, measured by the same program in the same way."""
    found, missing = [], {}
    for each in every:
        point = each.point if each.absent else store.listed(each.point, each.parameters)
        if point is None:
            missing[each.point["experiment"]] = missing.get(each.point["experiment"], 0) + 1
        else:
            found.append(point)
    # What a system does not do is only worth a row beside something that was measured.
    measured = {point["experiment"] for point in found if point["runs"] or point.get("measured")}
    return [point for point in found if point["experiment"] in measured], missing


def listing(plan, points, store):
    """A table of the experiments: points, those that are stored, and the estimated minutes of the others, with as few runs as a point
    can take and with as many."""
    durations = Durations(store.all())
    rows, totals = [], [0, 0, 0.0, 0.0]
    by_name = {}
    for each in points:
        by_name.setdefault(each.point["experiment"], []).append(each)
    for name, all_of_it in by_name.items():
        able = [each for each in all_of_it if not each.absent]
        left = [each for each in able if store.usable(each.point, each.parameters) is None]
        minutes = [minimum(left, runs, durations) / 60 for runs in (plan.repeat.least, plan.repeat.most)]
        row = [len(able), len(able) - len(left), *minutes]
        totals = [total + value for total, value in zip(totals, row)]
        rows.append(_row(name, row, figures.labels(name) or figures.NO_PAPER))
    least, most = totals[2:]
    repeat = plan.repeat
    lines = [
        f"{'experiment':24}{'points':>7}{'stored':>7}{'minutes':>16}  corresponds to",
        *rows,
        _row("all", totals, ""),
        "",
        f"A point takes {repeat.least} to {repeat.most} runs, until the 95 % interval of its mean is within ±{repeat.target:.0%};"
        f" a run lasts {plan.seconds:g} s between namespaces, {plan.seconds_in_memory:g} s in memory.",
    ]
    if plan.minutes:
        expected = max(least, min(most, plan.minutes))
        lines.append(
            f"Estimate: {least:.0f} minutes with the fewest runs, {most:.0f} with the most; further runs of points that scatter stop"
            f" at {plan.minutes:.0f} minutes: at most {expected:.0f} minutes."
        )
    return "\n".join(lines)


def _row(name, values, labels):
    points, stored, least, most = values
    return f"{name:24}{points:>7}{stored:>7}{least:>8.1f} –{most:>6.1f}  {labels}".rstrip()
