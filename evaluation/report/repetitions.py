"""How many runs the points took, and why no more."""

import statistics

from evaluation import method

from . import tables

WHY = {
    method.STEADY: "the interval is narrow enough",
    method.MOST: "the most runs that a point gets; the interval is wider",
    method.TIME: "no time for more; the interval is wider",
    method.FAILED: "no run succeeded",
}


def head(results):
    """What a point is."""
    repeat = results.get("repetitions")
    if repeat is None:
        # Results of format 1 have the same number of runs everywhere.
        return f"""- A point is {results["runs"]} runs in turn with the other systems', between namespaces of {results["seconds_a_run"]} s each. Tables have the
  median and, behind it, the quartiles."""
    count = f"{repeat['least']} runs"
    if repeat["least"] < repeat["most"]:
        count = (
            f"{repeat['least']} to {repeat['most']} runs: it has enough when the 95 % confidence interval of its mean is within"
            f" ±{repeat['target']:.0%}.\n  The notes of each row have the number of runs, this interval, and why a point with a wider one"
            " has no more runs"
        )
    return f"""- A point is {count}.
  Its runs take turns with those of the other systems; between namespaces they last {results["seconds_a_run"]} s each. Tables have the
  median and, behind it, the quartiles."""


def section(results):
    """How many points stopped for which reason."""
    stopped = [point["stopped"] for point in results["points"] if "stopped" in point]
    if not stopped:
        return ""
    body = []
    for why, text in WHY.items():
        found = [each for each in stopped if each["why"] == why]
        if found:
            counts = [each["runs"] for each in found]
            widths = [each["half_width"] for each in found if each["half_width"] is not None]
            width = f"±{statistics.median(widths):.1%}" if widths else "–"
            body.append([text, str(len(found)), f"{min(counts)}–{max(counts)}", str(sum(counts)), width])
    sessions = sorted({point["session"] for point in results["points"] if "session" in point})
    several = f" The points were measured in {len(sessions)} sessions, begun {', '.join(sessions)}." if len(sessions) > 1 else ""
    about = f"{len(stopped)} points took {sum(each['runs'] for each in stopped)} runs.{several}"
    columns = ["why a point has no more runs", "points", "runs of a point", "all runs", "median interval"]
    return f"## Runs\n\n{about}\n\n{tables.rows(columns, body)}"
