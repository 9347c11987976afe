"""Health checks: servers that die get no new connections, and come back. `mmb health` runs beside the servers, which it reaches directly."""

import collections
import contextlib
import json
import sys

import pytest

from lab.daemon import BINARY
from lab.process import wait_until

from .routed import INSIDE4, NAT4, OUTSIDE4
from .sockets import refused, talk
from .test_balance import SERVERS, SET, Farm

CHECKED = 8001
QUICK = ("--interval", "0.1", "--timeout", "2", "--rise", "2", "--fall", "2")


@pytest.fixture
def farm(of_mmb):
    of_mmb.tested.policy([f"add-stateful in wan ip-daddr {NAT4} tcp-dport 8000 lb ip-daddr {SET} rr"])
    made = Farm(of_mmb)
    yield made
    made.close()


@pytest.fixture
def web(of_mmb, tmp_path):
    """Starts the web server of a server, whose page /health is checked."""
    (tmp_path / "health").write_text("well\n")
    with contextlib.ExitStack() as running:

        def start(number):
            words = [sys.executable, "-m", "http.server", str(CHECKED), "--bind", SERVERS[number], "--directory", tmp_path]
            server = of_mmb.client.start(words, tmp_path / f"web-{number}.log")
            running.enter_context(server)
            here = (SERVERS[number], CHECKED)
            wait_until(lambda: refused(of_mmb.client, here[0], here) is None, f"a web server listens at {here}")
            return server

        yield start


@contextlib.contextmanager
def checker(nat, folder, *words, socket=None):
    command = [BINARY, "health", *words, "--json", "--socket", socket or nat.tested.daemon.socket]
    with nat.client.start(command, folder / "health.log") as running:
        yield running


def servers(nat):
    return nat.tested.daemon.ask("show servers")["servers"]


def states(nat):
    return [server["state"] for server in servers(nat)]


def until(nat, *expected):
    wait_until(lambda: states(nat) == list(expected), f"servers are {expected}")


def connect(farm, count):
    """The numbers of the servers that get new connections."""
    return {farm.connect(OUTSIDE4[number % 4]) for number in range(count)}


def talk_to_all(farm, *, but=None):
    for number, near, far in farm.open:
        if number != but:
            talk(near, far, b"server %d" % number)


def test_a_server_that_dies_is_taken_out_and_comes_back(of_mmb, farm, web, tmp_path):
    running = [web(number) for number in range(3)]
    with checker(of_mmb, tmp_path, "--http", "/health", "--port", CHECKED, *QUICK) as health:
        wait_until(lambda: all("checked_ms" in server for server in servers(of_mmb)), "all servers are checked")
        assert connect(farm, 6) == {0, 1, 2}
        running[1].stop()
        until(of_mmb, "up", "failed", "up")
        failed = servers(of_mmb)[1]
        assert failed["reason"] == "connect: connection refused" and not failed["open"] and failed["health"] == "failed"
        # New connections go elsewhere; those that exist go on, its own too.
        assert connect(farm, 6) == {0, 2}
        talk_to_all(farm)
        web(1)
        until(of_mmb, "up", "up", "up")
        assert connect(farm, 6) == {0, 1, 2}
        talk_to_all(farm)
        counts = [(server["connections"], server["total"]) for server in servers(of_mmb)]
        assert counts == [(farm.shares()[number],) * 2 for number in range(3)] and sum(farm.shares().values()) == 18
        # A page that is gone is a status that does not pass.
        (tmp_path / "health").unlink()
        until(of_mmb, "failed", "failed", "failed")
        assert {server["reason"] for server in servers(of_mmb)} == {"HTTP status 404"}
        assert connect(farm, 6) == {0, 1, 2}, "where none is up, the checks count for nothing"
        told = [json.loads(line) for line in health.output().splitlines()]
        assert [line["health"] for line in told if line["server"] == SERVERS[1]] == ["failed", "healthy", "failed"]
    # What was told stays.
    assert states(of_mmb) == ["failed"] * 3


def test_what_the_prober_cannot_do_says_nothing_about_servers(of_mmb, farm, tmp_path):
    """Neither a program that there is not nor a port that nobody told: the servers stay what they were, and the reason is told once."""
    rule = servers(of_mmb)[0]["rule"]
    for words, reason in [(["--exec", "/nowhere/check"], "the program cannot be run"), (["--tcp", "--address", "10.0.0.1"], "the port of this server is not known")]:
        with checker(of_mmb, tmp_path, "--rule", rule, *words, *QUICK) as health:
            wait_until(lambda: reason in health.output(), "it is told")
        assert states(of_mmb) == ["up"] * 3 and not any("checked_ms" in server for server in servers(of_mmb)), words
        assert health.output().count(reason) == 1
        once = [BINARY, "health", "--rule", rule, *words, "--once", "--json", "--socket", of_mmb.tested.daemon.socket]
        told = of_mmb.client.run(*once, check=False)
        assert told.returncode == 1 and {json.loads(line)["health"] for line in told.stdout.splitlines()} == {"unknown"}


def test_an_operator_drains_a_server_whatever_checks_say(of_mmb, farm, web, tmp_path):
    for number in range(3):
        web(number)
    daemon = of_mmb.tested.daemon
    with checker(of_mmb, tmp_path, "--rule", servers(of_mmb)[0]["rule"], "--tcp", "--port", CHECKED, *QUICK):
        wait_until(lambda: all("checked_ms" in server for server in servers(of_mmb)), "all servers are checked")
        assert connect(farm, 6) == {0, 1, 2}
        said = daemon(f"server drain {SERVERS[0]} because kernel update")
        assert said.strip().endswith("is drain: it gets no new connections")
        checked = servers(of_mmb)[0]["checked_ms"]
        wait_until(lambda: servers(of_mmb)[0]["checked_ms"] > checked, "it is checked again")
        first = servers(of_mmb)[0]
        assert (first["state"], first["reason"], first["health"]) == ("drain", "kernel update", "healthy")
        assert connect(farm, 6) == {1, 2}
        talk_to_all(farm)
        assert "2 connections ended" in daemon(f"server down {SERVERS[0]} --kill")
        talk_to_all(farm, but=0)
        daemon(f"server up {SERVERS[0]}")
        assert connect(farm, 6) == {0, 1, 2}
    for server in SERVERS:
        daemon(f"server down {server}")
    before = of_mmb.tested.drops().get("lb-no-server", 0)
    refused(of_mmb.server, OUTSIDE4[0], (NAT4, 8000))
    assert of_mmb.tested.drops()["lb-no-server"] > before
    assert "no rule balances over 10.9.9.9" in daemon.refused("server up 10.9.9.9")
    table = daemon("show servers")
    assert table.split()[:4] == ["RULE", "SERVER", "WEIGHT", "STATE"] and table.count(" down ") == 3


def test_a_program_checks_and_the_daemon_may_come_later(of_mmb, farm, tmp_path):
    """The server is the program's last argument. The checker waits for the socket, and keeps to what the daemon knows."""
    (tmp_path / SERVERS[2]).touch()
    script = f"test ! -e {tmp_path}/$1"
    probe = ("--exec", "sh", *QUICK, "--", "-c", script, "check")
    later = tmp_path / "later.sock"
    words = [BINARY, "health", "--once", "--socket", of_mmb.tested.daemon.socket, *probe]
    once = of_mmb.client.run(*words, check=False)
    assert once.returncode == 1
    results = collections.Counter(line.split(" is ")[1] for line in once.stdout.splitlines())
    assert results == {"healthy": 2, "failed: the program ended with exit status: 1": 1}
    assert states(of_mmb) == ["up"] * 3, "--once tells the daemon nothing"
    none = of_mmb.client.run(*words[:5], "--rule", "99", "--tcp", "--port", "80", check=False)
    assert (none.returncode, none.stdout) == (1, "") and "rule 99 has no servers" in none.stderr
    # Options go before the program's arguments.
    with of_mmb.client.start([BINARY, "health", "--socket", later, *probe], tmp_path / "later.log") as health:
        wait_until(lambda: "trying again" in health.output(), "it has missed the daemon")
        later.symlink_to(of_mmb.tested.daemon.socket)
        until(of_mmb, "up", "up", "failed")
        assert connect(farm, 4) == {0, 1}
        (tmp_path / SERVERS[2]).unlink()
        until(of_mmb, "up", "up", "up")
        assert connect(farm, 6) == {0, 1, 2}
        # The list is edited: the one that stays keeps its counters, the new one is checked as well.
        before = servers(of_mmb)[0]["total"]
        (tmp_path / INSIDE4[3]).touch()
        of_mmb.tested.policy(
            [f"add-stateful in wan ip-daddr {NAT4} tcp-dport 8000 lb ip-daddr {{{INSIDE4[3]}, {SERVERS[0]}}} hash"]
        )
        until(of_mmb, "up", "failed", "removed", "removed")
        assert servers(of_mmb)[0]["total"] == before
        assert connect(farm, 4) == {0}
