"""Namespaces with cables between them and the programs in them, which are there together and are removed together."""

import contextlib
from pathlib import Path

from .net import Namespace


class Cabled:
    """What all shapes of sites share. `close` removes all of it, programs first."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self._cleanup = contextlib.ExitStack()

    @contextlib.contextmanager
    def _undone_if_it_fails(self):
        """What the block hands to the stack is undone when the block fails, and else when the site is closed."""
        with contextlib.ExitStack() as undo:
            yield undo
            self._cleanup = undo.pop_all()

    @staticmethod
    def _namespace(undo, role):
        namespace = Namespace(role)
        undo.callback(namespace.delete)
        return namespace

    def start(self, namespace, words, name):
        """A program that lives as long as the site, at most; its output in a file of that name."""
        process = namespace.start(words, self.folder / f"{name}.log")
        self._cleanup.callback(process.close)
        return process

    def close(self):
        self._cleanup.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
