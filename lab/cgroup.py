"""Control groups with a memory limit, of both versions."""

import os
from pathlib import Path

from .process import run, wait_until

_ROOT = Path("/sys/fs/cgroup")


class Unusable(Exception):
    """No group with a memory limit can be created here; the text gives the reason."""


class MemoryGroup:
    """A new group, below this process's group or beside it. Its limit applies to everything that `command` starts in it."""

    def __init__(self, limit):
        parent, self._version = _parent()
        self.path = parent / f"mmbt-{os.getpid()}"
        try:
            self.path.mkdir()
            self.limit(limit)
        except OSError as error:
            if self.path.exists():
                self.path.rmdir()
            raise Unusable(f"a control group cannot be made: {error}") from None

    def limit(self, limit):
        name = "memory.max" if self._version == 2 else "memory.limit_in_bytes"
        (self.path / name).write_text(str(limit), encoding="ascii")

    def command(self, words):
        """The command that starts these words in the group, under the same process id. It enters the group first, because it may
        change to a place where the files of the group are not visible."""
        join = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(self.path / "cgroup.procs")]
        return [*join, *(str(word) for word in words)]

    def used(self):
        """Bytes that count against the limit."""
        name = "memory.current" if self._version == 2 else "memory.usage_in_bytes"
        return int((self.path / name).read_text(encoding="ascii"))

    def kills(self):
        """The number of processes that the kernel killed because of the limit."""
        name = "memory.events" if self._version == 2 else "memory.oom_control"
        lines = (self.path / name).read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))

    def close(self):
        """Removes the group; its processes must have ended."""
        wait_until(lambda: not (self.path / "cgroup.procs").read_text(encoding="ascii"), "the control group is empty")
        self.path.rmdir()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def _parent():
    """The place where a group with a memory limit can be created, and the version of the hierarchy."""
    own = Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    for _, controllers, path in (line.split(":", 2) for line in own):
        if "memory" in controllers.split(","):
            root = _ROOT / "memory"
            below = root / path.lstrip("/")
            # In a container the group may be visible as the root.
            return (below if below.is_dir() else root), 1
    for _, controllers, path in (line.split(":", 2) for line in own):
        if not controllers:
            below = _ROOT / path.lstrip("/")
            for group in (below, *below.parents):
                # In version 2, a group with processes gives no controllers to groups below it, so the search continues above.
                given = group / "cgroup.subtree_control"
                if given.is_file() and "memory" in given.read_text(encoding="ascii").split():
                    return group, 2
    mounted = run(["findmnt", "-n", "-o", "TARGET", "-t", "cgroup,cgroup2"], check=False).stdout.split()
    raise Unusable(f"no control group has a controller of memory to give; mounted are {mounted or 'none'}")
