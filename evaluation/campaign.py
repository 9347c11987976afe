"""The whole evaluation: all its points, the choice among them, what they take, and their measurement one after the other."""

import collections

from . import figures, live, machine, memory, vpp
from .budget import Budget, Durations, duration
from .session import Session, grouped, in_a_line
from .store import ALIKE, Unwritable

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
    if text and not wanted:
        raise UnknownName(f"'{text}' names no experiment; there are: {', '.join(known)}")
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


def outdated(points, store):
    """Lines that count the stored points that are not used again, by the reason."""
    differing = collections.Counter(store.difference(each.point, each.parameters) for each in points if not each.absent)
    for key, text in ALIKE.items():
        if count := differing[key]:
            yield f"{count} stored {'point is' if count == 1 else 'points are'} {text}: measured anew"


def dropped(results, every, only, store):
    """The experiments that results would lose if this session replaced them: it does not measure them, and fewer of their points are
    stored for this program. `results`: those of an earlier session."""
    measured = collections.Counter(point["experiment"] for point in results["points"] if point["runs"])
    stored = collections.Counter(
        each.point["experiment"]
        for each in every
        if not each.absent and (point := store.listed(each.point, each.parameters)) and point["runs"]
    )
    return [name for name, count in measured.items() if name not in only and stored[name] < count]


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
            except Unwritable:
                raise
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


def listing(plan, points, store, compared=True):
    """A table of the experiments: points, those that are stored, and the estimated minutes of the others, with as few runs as a point
    can take and with as many. `compared`: the store knows the program and the machine."""
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
            f"Estimate: {duration(least)} with the fewest runs, {duration(most)} with the most; further runs of points that scatter"
            f" stop at {duration(plan.minutes)}: at most {duration(expected)}."
        )
    return "\n".join([*lines, *(outdated(points, store) if compared else ())])



def _row(name, values, labels):
    points, stored, least, most = values
    return f"{name:24}{points:>7}{stored:>7}{least:>8.1f} –{most:>6.1f}  {labels}".rstrip()
