"""Writes the pages of docs/evaluation from the results alone: every measured figure in them is one of the results.

`evaluation.figures` lists the figures of the papers that a plot or table corresponds to. Every plot and table names them: figures 7 to 11 of
the paper on mmb, 12 and 13 of that on MiddleClick, and the two tables of the DDoS filter. `papers` writes the list of these figures,
with what is not measured and why. `repetitions` says how many runs the points took.
"""

from .page import write

__all__ = ["write"]
