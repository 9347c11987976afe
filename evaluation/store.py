"""The points that were measured, each in a file of its own, so that an evaluation can stop at any moment and go on later.

A file is written under another name, flushed to the disk and renamed: it is whole, or it does not exist. A stored point is used
again if it was measured with the same program, on the same machine, with the same parameters and by the same method; otherwise it
is measured anew. A file that cannot be read is reported and measured anew.

Layout: FOLDER/<plan>/<experiment>/<load>-<x>-<system>.json.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import sys
from pathlib import Path

from . import method

FORMAT = 1
# What identifies a point within a plan.
KEY = ("experiment", "load", "x", "system")


# What must be equal for a stored point to be used again, and what a point with another value is called.
ALIKE = {
    "binary": "of another program",
    "machine": "of another machine",
    "method": "of another method",
    "parameters": "with other parameters",
}
# A probe must have room for the results.
PROBE_BYTES = 1 << 20


class Damaged(ValueError):
    """A file that is not a whole point."""


class Unwritable(Exception):
    """The directory of the results cannot be written: nothing more can be measured."""


class Store:
    """The points of one plan. `binary` is the hash of the measured program, `machine` what describes the machine; `fresh` ignores
    all points that are stored."""

    def __init__(self, folder, plan, binary, machine, fresh=False):
        self.folder, self.binary, self.machine, self.fresh = Path(folder) / plan, binary, machine, fresh
        # Points that this session measured: `fresh` does not ignore them.
        self._written = set()
        self._warned = set()

    @property
    def out(self):
        """The directory of the results, with this store in it."""
        return self.folder.parents[1]

    def path(self, key):
        return self.folder / key["experiment"] / f"{_slug(key['load'])}-{key['x']}-{_slug(key['system'])}.json"

    def write(self, point, parameters):
        """Stores a point; returns the file. Raises `Unwritable`."""
        path = self.path(point)
        record = {
            "format": FORMAT,
            "method": method.VERSION,
            "binary": self.binary,
            "machine": self.machine,
            "parameters": parameters,
            "point": point,
        }
        with writing(self.out):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(record, indent=1) + "\n")
        self._written.add(path)
        return path

    def usable(self, template, parameters):
        """The stored point, if it was measured like this and has enough successful runs; otherwise None."""
        path = self.path(template)
        if self.fresh and path not in self._written:
            return None
        record = self._read(path)
        if record is None or not self._same(record, parameters):
            return None
        point = record["point"]
        return point if sum(run["ok"] for run in point["runs"]) >= parameters["least"] else None

    def listed(self, template, parameters):
        """The stored point like `usable`, but also one without a result, which says why."""
        record = self._read(self.path(template), warn=False)
        return record["point"] if record and self._same(record, parameters) else None

    def difference(self, template, parameters):
        """The first key of `ALIKE` in which the stored point differs; None if there is none."""
        record = None if self.fresh else self._read(self.path(template), warn=False)
        return self._difference(record, parameters) if record else None

    def all(self):
        """Every stored point of this plan, by any program and machine."""
        for path in sorted(self.folder.glob("*/*.json")):
            if record := self._read(path, warn=False):
                yield record["point"]

    def _same(self, record, parameters):
        return self._difference(record, parameters) is None

    def _difference(self, record, parameters):
        wanted = {"method": method.VERSION, "binary": self.binary, "machine": self.machine, "parameters": parameters}
        return next((key for key in ALIKE if record[key] != json.loads(json.dumps(wanted[key]))), None)

    def _read(self, path, warn=True):
        try:
            return parsed(path.read_text())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            if warn and path not in self._warned:
                self._warned.add(path)
                print(f"evaluation: {path} is damaged and is measured anew: {error}", file=sys.stderr)
            return None


def parsed(text):
    """The record in a file's text."""
    record = json.loads(text)
    wanted = {"format": int, "method": int, "binary": str, "machine": dict, "parameters": dict, "point": dict}
    if not isinstance(record, dict) or not all(isinstance(record.get(key), kind) for key, kind in wanted.items()):
        raise Damaged("not a point")
    runs = record["point"].get("runs")
    complete = all(key in record["point"] for key in KEY) and isinstance(runs, list)
    if not complete or not all(isinstance(run, dict) and "ok" in run and ("metrics" in run or "error" in run) for run in runs):
        raise Damaged("a point without its runs")
    if record["format"] != FORMAT:
        raise Damaged(f"format {record['format']} instead of {FORMAT}")
    return record


@contextlib.contextmanager
def writing(folder):
    """Writes in the directory of the results: an OSError becomes `Unwritable`."""
    try:
        yield
    except OSError as error:
        raise Unwritable(f"{folder} cannot be written: {error.strerror or error}") from error


def probe(folder):
    """Raises `Unwritable` if the directory cannot be made or written, or has no room for results. Removes temporary files of killed
    evaluations."""
    with writing(folder):
        if folder.exists() and not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        points = folder / "points"
        points.mkdir(parents=True, exist_ok=True)
        for left in points.rglob(".*.json.new"):
            left.unlink()
        for place in (folder, points):
            path = place / ".probe"
            try:
                write_atomically(path, "\0" * PROBE_BYTES)
            finally:
                path.unlink(missing_ok=True)


def write_atomically(path, text):
    """Writes a file that is complete or absent, also after a loss of power. Removes the temporary file if it cannot be written."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        with open(temporary, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def hash_of(program):
    """The SHA-256 of a file."""
    with open(program, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _slug(text):
    return re.sub(r"[^a-z0-9_]+", "-", str(text).lower()).strip("-")
