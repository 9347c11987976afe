"""Namespaces with veth pairs between them and programs in them, which exist together and are removed together."""

import contextlib
from pathlib import Path

from .net import Namespace


class Cabled:
    """The base of all sites. `close` removes everything, programs first."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self._cleanup = contextlib.ExitStack()

    @contextlib.contextmanager
    def _undone_if_it_fails(self):
        """The callbacks that the block adds run if the block fails, otherwise when the site is closed."""
        with contextlib.ExitStack() as undo:
            yield undo
            self._cleanup = undo.pop_all()

    @staticmethod
    def _namespace(undo, role):
        namespace = Namespace(role)
        undo.callback(namespace.delete)
        return namespace

    def start(self, namespace, words, name):
        """A program that runs no longer than the site, with its output in a file of that name."""
        process = namespace.start(words, self.folder / f"{name}.log")
        self._cleanup.callback(process.close)
        return process

    def close(self):
        self._cleanup.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
