"""A soak of changes: the resident memory of the daemon stays flat over many thousands of changes of each kind.

The first changes of a kind fill what has a bound: the history, the caches of the C library, the memory of compiled patterns. What comes after them must
add nothing. SOAK_CHANGES is the number of changes of each kind, 20,000 if it is not set.
"""

import contextlib
import json
import os
import socket
import time

import pytest

from lab.daemon import Mmb
from lab.process import Background

CHANGES = int(os.environ.get("SOAK_CHANGES", "20000"))

# The changes before the first look at the memory: the history lists its last 2,000 entries, and the cache of compiled patterns keeps some 8,000.
FIRST = 9000

# What the memory may grow by, in bytes.
MOST = 1 << 20

# Seconds in which the daemon gives back memory after many changes.
SETTLING = 12


class Here:
    """Where the daemon runs: in the namespace of the test."""

    def start(self, words, log, _group=None, **options):
        return Background([str(word) for word in words], log, **options)


class Session:
    """One connection to the control socket."""

    def __init__(self, stream, path):
        stream.connect(str(path))
        self.lines = stream.makefile("rwb")

    def ask(self, do, **members):
        """Sends a request, and returns the numbers of the rules that it has added."""
        self.lines.write(json.dumps({"v": 1, "do": do, **members}).encode() + b"\n")
        self.lines.flush()
        added = []
        while True:
            line = json.loads(self.lines.readline())
            assert "error" not in line, line
            if "added" in line:
                added.append(line["added"]["id"])
            if "end" in line:
                return added

    def run(self, *commands):
        return self.ask("run", commands=commands)


@pytest.fixture
def daemon(tmp_path):
    """A daemon whose devices receive nothing."""
    devices = {name: f"dpdk:net_null{number},no-rx=1" for number, name in enumerate("ab")}
    with Mmb(Here(), tmp_path, devices) as mmb:
        yield mmb.start()


def address(number):
    return f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"


def rule(session, number):
    [added] = session.run(f"add udp-dport {number % 60000 + 1} drop")
    session.run(f"del {added}")


def element(session, number):
    session.run(f"set bad += {{{address(number)}}}")
    session.run(f"set bad -= {{{address(number)}}}")


def setting(session, number):
    session.run(f"set timeout udp {number % 600 + 1}")


def apply(line):
    """A change that replaces the whole policy by a line and a rule. `{n}` in the line is a number that no other change has, of six digits: what
    is compiled takes more memory for longer texts. `{a}` is an address."""

    def change(session, number):
        session.ask("apply", policy=f"{line.format(n=str(number).zfill(6), a=address(number))}\nadd tcp-dport 81 drop\n")

    return change


# Changes by their kind.
KINDS = {
    "rule": rule,
    "element": element,
    "setting": setting,
    "policy": apply("add ip-saddr {a} drop"),
    "limit": apply("add udp-dport 53 ip-saddr !={a} limit 10/s per ip-saddr"),
    "translation": apply("add-stateful ip-daddr {a} map ip-saddr 192.0.2.1"),
    "balancing": apply("add-stateful tcp-dport 80 ip-saddr !={a} lb ip-daddr {{192.0.2.1, 192.0.2.2}} least"),
    "text": apply('add-stateful tcp-dport 80 stream-forward "pattern {n}" alert'),
    "regex": apply("add-stateful tcp-dport 80 stream-forward /a{n}[0-9]{{1,9}}b/ alert"),
    "stream edit": apply('add-stateful tcp-dport 80 stream "secret {n}" mod stream "other {n}"'),
    "http edit": apply('add-stateful tcp-dport 80 http add http-header "X-Number" "{n}"'),
}


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_flat_over_changes(daemon, kind):
    change = KINDS[kind]
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as stream:
        session = Session(stream, daemon.socket)
        session.run("set bad {192.0.2.1}", "add ip-saddr @bad drop")
        for number in range(FIRST):
            change(session, number)
        before = lowest_memory(daemon)
        for number in range(FIRST, FIRST + CHANGES):
            change(session, number)
        grown = lowest_memory(daemon) - before
    print(f"{kind}: {grown / 1024:.0f} KiB more after {CHANGES} changes, {before >> 20} MiB before")
    assert grown <= MOST, f"{grown / 1024:.0f} KiB more after {CHANGES} changes"


def lowest_memory(daemon):
    """The lowest resident memory while the daemon gives back what it has freed."""
    end = time.monotonic() + SETTLING
    lowest = daemon.process.memory()
    while time.monotonic() < end:
        lowest = min(lowest, daemon.process.memory())
        time.sleep(0.05)
    return lowest
