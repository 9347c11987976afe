"""Patterns that take long to compile delay no other client and no packet, and are given up when their client disconnects.

The regexes overlap: 199 of them take Vectorscan ten minutes, so that they exceed every budget on any machine of today.
"""

import contextlib
import random
import signal
import subprocess
from pathlib import Path

import pytest

from lab.daemon import BINARY
from lab.process import wait_until

from .programs import ping
from .topology import SERVER4

REGEXES = ", ".join(f"/(a|aa)+.*[^b]{{{n},{3 * n}}}x/" for n in range(1, 200))
COSTLY = f"add-stateful tcp-dport 80 stream {{{REGEXES}}} alert\n"
BEFORE = "add-stateful tcp-dport 80 stream {/a+b/, \"x\"} alert\n"


def rules(mmb):
    return [rule["id"] for rule in mmb.ask("list")["rules"]]


def compilers(mmb):
    """The processes that compile for a daemon."""
    found = set()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            words = (entry / "cmdline").read_bytes().split(b"\0")
            parent = (entry / "stat").read_text().rsplit(")", 1)[1].split()[1]
            if b"compile-patterns" in words and int(parent) == mmb.process.pid:
                found.add(int(entry.name))
    return found


def client(mmb, *words):
    """A client that is not waited for."""
    command = [mmb.binary, "--socket", str(mmb.socket), *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_patterns_that_take_long_delay_nobody(fresh):
    site = fresh()
    mmb = fresh.daemon(site)
    for name, text in (("costly", COSTLY), ("before", BEFORE)):
        (site.folder / f"{name}.mmb").write_text(text)
    mmb("apply", site.folder / "before.mmb")
    dry_run = client(mmb, "apply", site.folder / "costly.mmb", "--dry-run")
    wait_until(lambda: compilers(mmb), "a process that compiles")
    (compiler,) = (Path("/proc") / str(pid) for pid in compilers(mmb))
    # The nice value is the field 19 of proc_pid_stat(5).
    wait_until(lambda: (compiler / "stat").read_text().rsplit(")", 1)[1].split()[16] == "10", "its priority is low")
    assert {entry.name for entry in (compiler / "fd").iterdir()} == {"0", "1", "2"}
    mmb("show version")
    mmb("add id 7 udp-dport 7 drop")
    mmb("apply", site.folder / "before.mmb", "--confirm", "1")
    wait_until(lambda: "rollback" in mmb("history"), "the policy before is in force again")
    assert ping(site, SERVER4, count=3) == 3
    assert dry_run.poll() is None and compilers(mmb), "it still compiles"
    # A client that ends has its patterns given up.
    dry_run.kill()
    dry_run.wait()
    wait_until(lambda: not compilers(mmb), "no process compiles")
    # So has one that is there when the daemon ends.
    client(mmb, "apply", site.folder / "costly.mmb")
    wait_until(lambda: compilers(mmb), "a process that compiles")
    assert mmb.stop() == 0
    assert not compilers(mmb)


def test_a_change_is_taken_back_during_a_reload(fresh):
    """The reload compiles its patterns on a thread of its own, so that the control thread has time for the return."""
    site = fresh()
    mmb = fresh.daemon(site)
    mmb.stop()
    policy = site.folder / "policy.mmb"
    policy.write_text(BEFORE)
    mmb.start("-c", policy)
    policy.write_text(COSTLY)
    mmb.process.signal(signal.SIGHUP)
    wait_until(lambda: compilers(mmb), "a process that compiles")
    other = site.folder / "other.mmb"
    other.write_text(BEFORE + "add id 70 udp-dport 7 drop\n")
    mmb("apply", other, "--confirm", 1)
    assert 70 in rules(mmb)
    wait_until(lambda: 70 not in rules(mmb), "the policy before is in force again")
    assert compilers(mmb), "the reload still compiles"
    assert mmb.stop() == 0


def test_patterns_of_the_start_and_of_a_reload_are_given_up(fresh):
    site = fresh()
    mmb = fresh.daemon(site)
    mmb.stop()
    policy = site.folder / "policy.mmb"
    policy.write_text(BEFORE)
    mmb.start("-c", policy)
    policy.write_text(COSTLY)
    mmb.process.signal(signal.SIGHUP)
    wait_until(lambda: compilers(mmb), "a process that compiles")
    mmb("show version")
    assert mmb.stop() == 0


@pytest.mark.needs_no_root
@pytest.mark.alone
def test_the_budget_names_the_costliest_pattern(tmp_path):
    """Long texts take some 300 MB. The budget of `mmb check` is not more than its own limit."""
    draw = random.Random(1)
    texts = ["".join(draw.choices("abcdefghijklmnop", k=2048)) for _ in range(1200)]
    (tmp_path / "texts").write_text("\n".join(texts))
    (tmp_path / "policy.mmb").write_text('patterns long "texts"\nadd-stateful tcp-dport 80 stream @long alert\n')
    command = ["prlimit", f"--data={128 << 20}", BINARY, "check", tmp_path / "policy.mmb"]
    checked = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert checked.returncode == 1, checked
    assert "MB of memory to compile, of all the most for" in checked.stderr, checked
