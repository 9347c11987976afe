"""Makes the pages of docs/evaluation from results, and of nothing else: every figure in them is one of the results."""

from .page import write

__all__ = ["write"]
