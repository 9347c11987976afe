"""Other users of the machine cannot redirect what mmb writes, nor prevent its start. A start waits for a daemon that ends slowly."""

import contextlib
import fcntl
import os
import signal
import socket

import pytest

from lab.daemon import DidNotStart
from lab.process import wait_until

from .programs import ping
from .topology import SERVER4

NOBODY = 65534


@pytest.fixture
def site(fresh):
    return fresh("af_packet")


@pytest.fixture
def theirs(site):
    """A directory of another user, which that user can reach."""
    folder = site.folder / "theirs"
    folder.mkdir()
    os.chown(folder, NOBODY, NOBODY)
    return folder


def link_of_another(target, path):
    path.symlink_to(target)
    os.lchown(path, NOBODY, NOBODY)


def test_a_log_is_not_redirected_by_a_link(fresh, site, theirs):
    victim = site.folder / "victim"
    victim.write_text("precious")
    link_of_another(victim, theirs / "mmb.json")
    with pytest.raises(DidNotStart, match="symbolic link"):
        fresh.daemon(site, "--log", f"file:{theirs}/mmb.json")
    # The same while it runs, when a log is rotated.
    (theirs / "mmb.json").unlink()
    mmb = fresh.daemon(site, "--log", f"file:{theirs}/mmb.json", name="second")
    (theirs / "mmb.json").rename(theirs / "mmb.json.1")
    link_of_another(victim, theirs / "mmb.json")
    mmb.process.signal(signal.SIGUSR1)
    mmb("add icmp-type echo-request drop")
    wait_until(lambda: "symbolic link" in mmb.output(), "the report of the link")
    assert victim.read_text() == "precious"
    # What was not written waits for a file.
    (theirs / "mmb.json").unlink()
    wait_until(lambda: "echo-request" in _text(theirs / "mmb.json"), "the line")


@pytest.mark.parametrize("kind", ["link", "hard link", "theirs"])
def test_a_capture_is_not_redirected(fresh, site, theirs, kind):
    victim, path = site.folder / "victim", theirs / "out.pcapng"
    victim.write_text("precious")
    if kind == "link":
        link_of_another(victim, path)
    elif kind == "hard link":
        path.hardlink_to(victim)
    else:
        path.write_text("precious")
        os.chown(path, NOBODY, NOBODY)
    mmb = fresh.daemon(site)
    done = mmb.client("capture", "count", "1", "-w", path, check=False)
    assert done.returncode == 1, done.stdout
    assert (path if kind == "theirs" else victim).read_text() == "precious"


def test_a_history_that_others_can_change_is_refused(fresh, site, theirs):
    with pytest.raises(DidNotStart, match="belongs to another user"):
        fresh.daemon(site, "--history", theirs)
    shared = site.folder / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(DidNotStart, match="others may write"):
        fresh.daemon(site, "--history", shared)


def test_no_lock_of_another_user_keeps_mmb_from_its_history(fresh, site):
    history = site.folder / "history"
    history.mkdir(mode=0o755)
    mmb = fresh.daemon(site, "--history", history)
    assert mmb.stop() == 0
    assert not (history / "lock").stat().st_mode & 0o077, "nobody else can open it"
    # As earlier versions made it: whoever can read it can lock it.
    (history / "lock").chmod(0o644)
    with (history / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mmb.start("--history", history)
        assert ping(site, SERVER4, count=2) == 2


def test_no_name_of_another_user_keeps_mmb_from_an_interface(fresh, site):
    with _names_of_another(site.middle, [f"\0mmb-interface-vl/{number}" for number in range(8)]):
        mmb = fresh.daemon(site)
        assert ping(site, SERVER4, count=2) == 2
        assert mmb.stop() == 0


def test_a_start_waits_for_a_daemon_that_is_ending(fresh, site):
    """`kill -9` of a daemon with much memory takes a while, until which its interfaces, its history and its socket are taken. A stopped process
    stands for that: it ends when the test decides it."""
    history = site.folder / "history"
    first = fresh.daemon(site, "--history", history)
    first.process.signal(signal.SIGSTOP)
    second = site.mmb("mmb")
    second.log = site.folder / "second.log"
    words = [second.binary, "run", "--socket", second.socket, "--history", history]
    for name, device in second.ports.items():
        words += ["--port", f"{name}={device}"]
    second.process = site.middle.start(words, second.log)
    with contextlib.closing(second):
        waits = f"which process {first.process.pid} still has"
        wait_until(lambda: "waiting" in second.output() and waits in second.output(), "the report of the wait")
        first.kill()
        wait_until(lambda: "ready" in second.output(), "the second one")
        assert ping(site, SERVER4, count=2) == 2


def _text(path):
    return path.read_text() if path.exists() else ""


@contextlib.contextmanager
def _names_of_another(namespace, names):
    """Sockets of another user that listen on these names in a namespace."""
    with contextlib.ExitStack() as stack:
        for name in names:
            with namespace.entered():
                os.seteuid(NOBODY)
                try:
                    listener = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                    listener.bind(name)
                    listener.listen()
                finally:
                    os.seteuid(0)
        yield
