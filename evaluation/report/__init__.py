"""Writes the pages of docs/evaluation from the results alone: every figure in them is one of the results."""

from .page import write

__all__ = ["write"]
