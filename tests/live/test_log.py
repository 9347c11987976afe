"""What mmb tells: packets of rules with `log`."""

import contextlib
import datetime
import json
import re
import subprocess
import time

import pytest

from lab.daemon import BINARY
from lab.process import wait_until

from . import sockets
from .sockets import closing, udp
from .topology import CLIENT4, SERVER4

RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
PORT = 9200


def age(stamp):
    """Seconds since a time of RFC 3339."""
    assert RFC3339.fullmatch(stamp), stamp
    return time.time() - datetime.datetime.fromisoformat(stamp).timestamp()


@contextlib.contextmanager
def monitored(mmb, folder, *words):
    """The lines that `mmb monitor` has printed until now, while the block runs."""
    path = folder / "monitor.out"
    command = [BINARY, "monitor", *words, "--socket", str(mmb.socket)]
    with path.open("w") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL) as program:
        time.sleep(0.5)
        try:
            yield lambda: path.read_text().splitlines()
        finally:
            program.terminate()


@pytest.fixture
def fixed(fresh):
    """A site with a daemon of its own."""
    site = fresh("af_packet")
    site.daemon = fresh.daemon(site)
    return site


def test_packets_are_told_with_times_and_a_limit(fixed, tmp_path):
    mmb = fixed.daemon
    mmb.apply(
        tmp_path,
        "set log rate 1",
        "set log burst 5",
        f'add name asked in lan udp-dport {PORT} log "a question"',
        f"add in wan udp-sport {PORT} drop log",
    )

    def events(**wanted):
        found = [json.loads(line) for line in lines()]
        return [event for event in found if wanted.items() <= event.items()]

    with monitored(mmb, tmp_path, "--json") as lines, closing(udp(fixed.server, SERVER4, PORT)) as (far,):
        with closing(udp(fixed.client, CLIENT4)) as (near,):
            sport = near.getsockname()[1]
            for number in range(30):
                near.sendto(b"%d" % number, (SERVER4, PORT))
                sockets.receive(far, b"%d" % number)
            far.sendto(b"an answer", (CLIENT4, sport))
            wait_until(lambda: events(what="suppressed"), "the number of the others is told")
        told = events(what="log", rule=1)
        assert 5 <= len(told) < 30
        # The rest, but for packets that the rate let through in the meantime.
        assert len(told) + sum(event["packets"] for event in events(what="suppressed", rule=1)) == 30
        arrived = {"src": CLIENT4, "sport": sport, "dst": SERVER4, "dport": PORT}
        expected = {"name": "asked", "text": "a question", "in": "lan", "verdict": "pass", "out": "wan",
                    "proto": "udp", "arrived": arrived, "len": 14 + 20 + 8 + 1}
        assert expected.items() <= told[0].items()
        assert 0 <= age(told[0]["time"]) < 60
        (dropped,) = wait_until(lambda: events(what="log", rule=2), "the dropped packet is told")
        assert {"verdict": "drop", "reason": "rule", "in": "wan"}.items() <= dropped.items() and "out" not in dropped


def test_a_monitor_shows_lines_with_times(fixed, tmp_path):
    mmb = fixed.daemon
    mmb.apply(tmp_path, 'add-stateful udp-dport 9201 log "new" accept')
    with monitored(mmb, tmp_path) as lines, closing(udp(fixed.client, CLIENT4, 9202)) as (near,):
        for _ in range(3):
            near.sendto(b"hello", (SERVER4, 9201))
        made, told = wait_until(lambda: len(lines()) > 1 and lines(), "two lines")[:2]
        time.sleep(0.3)
        assert len(lines()) == 2, "a stateful rule tells of the first packet of a connection"
    tuple_ = rf"{CLIENT4}:9202 > {SERVER4}:9201"
    assert re.fullmatch(rf"{RFC3339.pattern} \+ udp {tuple_}, rules 1", made), made
    assert re.fullmatch(rf"{RFC3339.pattern} \* udp {tuple_}, rule 1, in lan, out wan, 47 bytes: new", told), told
