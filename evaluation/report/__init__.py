"""Writes the pages of docs/evaluation from the results alone: every measured figure in them is one of the results.

Which figure of which paper a plot or table answers is in `evaluation.figures`, and every plot and table names it: figures 7 to 11 of
the paper on mmb, 12 and 13 of that on MiddleClick, and the two tables of the DDoS filter. `papers` writes the list of these figures,
with what is not measured and why. `repetitions` says how many runs the points took.
"""

from .page import write

__all__ = ["write"]
