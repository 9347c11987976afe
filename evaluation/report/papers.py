"""The figures of the papers: which plot or table corresponds to which, and what is not measured."""

import re

from evaluation import figures

from . import tables

# Experiments whose section has another title than their points.
SECTIONS = {
    "cycles": "Cycles of a packet",
    "streams": "A chain of functions on streams",
    "memif": "Packets over memif",
    "vpp": "VPP",
}


def caption(results, experiment):
    """The line below a plot, or above a table without one."""
    every = figures.corresponding(experiment)
    if not every:
        return "*In no paper.*"
    found = [
        figure
        for figure in every
        if any(_measured(results, experiment, load) for name, load in figure.experiments if name == experiment)
    ]
    if not found:
        return f"*Corresponds to {figures.labels(experiment)}, but was not measured here.*"
    return f"*Corresponds to {'; '.join(f'{figure.label} ({figure.shows})' for figure in found)}.*"


def section(results):
    """The list of all figures, with the sections that measure them."""
    body = [[figure.label, figure.shows, _links(results, figure), _lacking(results, figure)] for figure in figures.FIGURES]
    papers = "\n".join(f"- {name}: {title}" for name, title in figures.PAPERS.items())
    head = ["figure", "what it shows", "measured in", "not measured, and why"]
    return f"## The papers' figures\n\n{papers}\n\n{tables.rows(head, body)}"


def _links(results, figure):
    links = []
    for experiment, load in figure.experiments:
        if _measured(results, experiment, load):
            title = SECTIONS.get(experiment) or results.one(experiment=experiment)["title"]
            link = f"[{title}](#{anchor(title)})"
            if link not in links:
                links.append(link)
    return ", ".join(links) or "–"


def _lacking(results, figure):
    """What no experiment measures, and experiments that these results do not have."""
    lines = [figure.lacking] if figure.lacking else []
    for experiment, load in figure.experiments:
        if not _measured(results, experiment, load):
            points = results.find(experiment=experiment) if load is None else results.find(experiment=experiment, load=load)
            why = next((point["absent"] for point in points if point["absent"]), None)
            what = f"`{experiment}`" + (f" under {load}" if load else "")
            lines.append(f"{what}: {why or ('no run succeeded' if points else 'not in these results')}")
    return "; ".join(lines) or "–"


def _measured(results, experiment, load):
    points = results.find(experiment=experiment) if load is None else results.find(experiment=experiment, load=load)
    return any(run["ok"] for point in points for run in point["runs"])


def anchor(title):
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
