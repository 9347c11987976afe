"""One evaluation at a time on a machine: two at once would measure each other.

The lock is `flock` on a file, which the kernel releases when the process ends, however it ends. The file stays, with the process id
of its last owner.
"""

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path

PATH = Path(tempfile.gettempdir()) / "mmb-evaluation.lock"


class Running(Exception):
    """Another evaluation runs."""


@contextlib.contextmanager
def alone(path=PATH):
    """Holds the lock; raises `Running` if another process holds it."""
    descriptor = _opened(path)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
            raise Running(f"another evaluation (process {owner}) is running") from None
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _opened(path):
    """The file, which every user may open. Only O_EXCL creates it: with O_CREAT alone the kernel refuses a file of another user in a
    directory like /tmp (`fs.protected_regular`)."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    while True:
        with contextlib.suppress(FileNotFoundError):
            return os.open(path, flags)
        with contextlib.suppress(FileExistsError):
            descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            # The umask does not apply to this.
            os.fchmod(descriptor, 0o666)
            return descriptor
