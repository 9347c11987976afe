"""`show rates` and `mmb top`: what happens in a second."""

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time

import pytest

from lab.daemon import BINARY

from .topology import SERVER4

# Measures rates, times or memory of the machine.
pytestmark = pytest.mark.alone


@contextlib.contextmanager
def pinging(site):
    """A hundred echo requests per second, or as many as the machine manages."""
    words = site.client.command(["ping", "-q", "-i", "0.01", SERVER4])
    ping = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        ping.terminate()
        ping.wait()


def test_rates_of_ports_rules_connections_and_drops_agree(site, mmb):
    # Those of earlier tests.
    mmb("conn", "kill", "all")
    mmb("add-stateful id 1 in lan accept")
    mmb("add id 2 prio 50 in lan udp-dport 9 drop")
    with pinging(site):
        told = mmb.ask("show rates")
        ports = {port["name"]: port for port in told["ports"]}
        received = sum(port["rx"]["packets_per_s"] for port in ports.values())
        (rule,) = told["rules"]
        # The readings of ports, rules and connections are not of the same instant: echoes and their replies lie between them.
        assert received > 10 and abs(rule["matched"]["packets_per_s"] - received) <= 5 + received / 5
        assert rule["id"] == 1 and rule["dropped_per_s"] == 0 and told["drops"] == []
        busiest = told["top_connections"][0]
        assert busiest["connection"]["proto"] == "icmp"
        both = busiest["forward"]["packets_per_s"] + busiest["reply"]["packets_per_s"]
        assert abs(both - received) <= 5 + received / 5
        assert told["workers"][0]["packets_per_s"] > 10 and 0 < told["workers"][0]["load"] <= 1
        assert told["connections"] == 1 and told["seconds"] >= 1
    text = mmb("show rates")
    assert "1 connection, 0 made and 0 ended per second" in text and "lan " in text
    assert "RULE" not in text, "nothing has moved"


class Screen:
    """A program at a terminal of its own."""

    def __init__(self, words):
        near, far = pty.openpty()
        fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 110, 0, 0))
        self.program = subprocess.Popen(words, stdin=far, stdout=far, stderr=far, env={**os.environ, "TERM": "xterm"})
        os.close(far)
        self.near, self.shown = near, ""

    def wait_for(self, text, timeout=20):
        deadline = time.monotonic() + timeout
        # Blanks that are on the screen already are passed over by moves of the cursor.
        while text.replace(" ", "") not in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]| ", "", self.shown):
            assert time.monotonic() < deadline, self.shown
            if select.select([self.near], [], [], 0.2)[0]:
                try:
                    self.shown += os.read(self.near, 65536).decode(errors="replace")
                except OSError:
                    raise AssertionError(f"it ended: {self.shown}") from None

    def type(self, keys):
        os.write(self.near, keys.encode())

    def close(self):
        self.program.kill()
        self.program.wait()
        os.close(self.near)


def test_top_shows_traffic_until_q(site, mmb):
    mmb("add-stateful id 1 name everything in lan accept")
    with pinging(site), contextlib.closing(Screen([BINARY, "--socket", mmb.socket, "top"])) as screen:
        for text in ("connections,", "RX PPS", "lan", "everything", "q quit"):
            screen.wait_for(text)
        screen.type("q")
        assert screen.program.wait(20) == 0


@pytest.mark.needs_no_root
def test_top_without_a_daemon_or_a_terminal(tmp_path):
    done = subprocess.run([BINARY, "--socket", tmp_path / "none", "top"], capture_output=True, text=True, timeout=20)
    assert done.returncode == 1 and "show rates" in done.stderr
    with contextlib.closing(Screen([BINARY, "--socket", tmp_path / "none", "top"])) as screen:
        screen.wait_for("no mmb answers")
        assert screen.program.wait(20) == 1
