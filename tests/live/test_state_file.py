"""Connections across a restart of the daemon: `save-state` before, `load-state` after, without an effect on the ends."""

import os
import signal
import threading

import pytest

from lab.daemon import DidNotStart
from lab.process import wait_until

from . import sockets
from .programs import Nginx, fetch
from .routed import INSIDE4, NAT4, OUTSIDE4
from .sockets import closing, listener, opened, receive, refused, talk, udp

A, B = INSIDE4[:2]
WEB = OUTSIDE4[0]
# Connections of the inside, translated, and nothing else: other packets are dropped.
POLICY = [
    "add-stateful in lan ip-saddr 10.0.0.0/24 ip-proto udp map ip-saddr 200.0.0.1 shuffle udp-sport accept",
    "add-stateful in lan ip-saddr 10.0.0.0/24 ip-proto tcp tcp-syn map ip-saddr 200.0.0.1 shuffle tcp-sport accept",
    "add net-proto ip4 drop",
]


class Daemon:
    """A daemon that is restarted with its policy and its connections."""

    def __init__(self, fresh, site):
        self.mmb = fresh.daemon(site)
        self.policy = site.folder / "policy.mmb"
        self.state = site.folder / "state"
        self.policy.write_text("".join(f"{line}\n" for line in POLICY))
        self.mmb("apply", self.policy)

    def restart(self, between=lambda: None):
        self.mmb("save-state", self.state)
        assert self.mmb.stop() == 0
        between()
        self.mmb.start("-c", self.policy)
        self.mmb("load-state", self.state)


@pytest.fixture
def site(fresh):
    return fresh.routed()


@pytest.fixture
def daemon(fresh, site):
    return Daemon(fresh, site)


def test_connections_go_on_after_a_restart(site, daemon):
    with closing(udp(site.client, A), udp(site.server, WEB, 9000), listener(site.server, WEB, 9001)) as ends:
        near, far, listening = ends
        mapped = sockets.ask(near, far)
        client, server, seen = opened(site.client, A, (WEB, 9001), listening)
        with closing(client, server):
            talk(client, server)
            before = daemon.mmb.connections()
            daemon.restart()
            after = daemon.mmb.connections()
            assert sorted(map(ends_of, before)) == sorted(map(ends_of, after))
            talk(client, server)
            far.sendto(b"from outside", mapped)
            assert receive(near, b"from outside")
            assert sockets.ask(near, far) == mapped
    assert seen[0] == NAT4
    assert refused(site.server, WEB, (NAT4, 9001)) == "timeout"


def ends_of(connection):
    names = ("src", "sport", "dst", "dport")
    return str([connection["state"], *([connection[which][name] for name in names] for which in ("arrived", "sent"))])


def test_mappings_are_still_endpoint_independent_after_a_restart(site, daemon):
    """RFC 4787 REQ-1: a new destination sees the same outside port, and no other inside endpoint gets it."""
    targets = [udp(site.server, address, 9000) for address in OUTSIDE4[:2]]
    with closing(udp(site.client, A), *targets) as (near, one, two):
        mapped = sockets.ask(near, one)
        daemon.restart()
        assert sockets.ask(near, two) == mapped


def test_a_transfer_survives_a_restart(site, daemon):
    nginx = Nginx(site)
    results = []
    transfer = threading.Thread(
        target=lambda: results.append(fetch(site, f"http://{WEB}/big", 60, check=False, rate="8M", source=A))
    )
    transfer.start()
    wait_until(lambda: daemon.mmb.connections("tcp-dport 80 state established"), "the transfer has begun")
    daemon.restart()
    transfer.join(120)
    assert results == [(0, nginx.digest("big"))]


def test_without_the_state_connections_end(site, daemon):
    """The control experiment of the tests above."""
    with closing(listener(site.server, WEB, 9001)) as (listening,):
        client, server, _ = opened(site.client, A, (WEB, 9001), listening)
        with closing(client, server):
            talk(client, server)
            assert daemon.mmb.stop() == 0
            daemon.mmb.start("-c", daemon.policy)
            client.sendall(b"anybody there?")
            server.settimeout(1)
            with pytest.raises(TimeoutError):
                server.recv(100)


@pytest.mark.parametrize("damage", ["empty", "cut", "text", "flipped"])
def test_a_damaged_file_is_refused_as_a_whole(site, daemon, damage):
    with closing(*(udp(site.client, A) for _ in range(8)), udp(site.server, WEB, 9000)) as (*many, far):
        for near in many:
            sockets.ask(near, far)
        daemon.mmb("save-state", daemon.state)
    daemon.mmb("conn kill all")
    content = daemon.state.read_bytes()
    middle = len(content) // 2
    daemon.state.write_bytes(
        {
            "empty": b"",
            "cut": content[: middle + 3],
            "text": b"add tcp-dport 80 drop\n",
            "flipped": content[:middle] + bytes([content[middle] ^ 0x40]) + content[middle + 1 :],
        }[damage]
    )
    assert "state" in daemon.mmb.refused("load-state", daemon.state)
    assert daemon.mmb.connections() == []


def test_a_file_that_is_not_there_is_told(site, daemon):
    assert "nowhere" in daemon.mmb.refused("load-state", site.folder / "nowhere")
    assert "nowhere" in daemon.mmb.refused("save-state", site.folder / "nowhere" / "state")


def test_what_was_loaded_does_not_take_the_place_of_what_is_there(site, daemon):
    """Loading adds connections: those that were created since keep their ports."""
    with closing(udp(site.client, A, 5000), udp(site.server, WEB, 9000)) as (near, far):
        sockets.ask(near, far)
        daemon.mmb("save-state", daemon.state)
        daemon.mmb("conn kill all")
        now = sockets.ask(near, far)
        loaded = daemon.mmb.ask("load-state", daemon.state)
        assert loaded["connections"] == 0 and loaded["left_out"] == {"nat-clash": 1}
        assert sockets.ask(near, far) == now
        assert len(daemon.mmb.connections()) == 1


class Service(Daemon):
    """A daemon as the service manager runs it: `--state` and a policy file, no command around a restart."""

    def __init__(self, fresh, site):
        super().__init__(fresh, site)
        self.options = ("-c", self.policy, "--state", self.state)
        assert self.mmb.stop() == 0
        self.mmb.start(*self.options)

    def restart(self, between=lambda: None):
        assert self.mmb.stop() == 0
        assert self.state.stat().st_mode & 0o777 == 0o600
        between()
        self.mmb.start(*self.options)
        assert not self.state.exists(), "a crash must not bring back old connections"


@pytest.fixture
def service(fresh, site):
    return Service(fresh, site)


def edit(policy):
    """Puts a rule before the others, which have no ids."""
    policy.write_text("add in wan tcp-dport 22 drop\n" + policy.read_text())


def test_a_service_keeps_its_connections_over_a_restart(site, service):
    """Under `conn invalid drop`: segments behind the gap are valid though the windows are old."""
    service.policy.write_text("set conn invalid drop\n" + service.policy.read_text())
    service.mmb("apply", service.policy)
    with closing(udp(site.client, A), udp(site.server, WEB, 9000), listener(site.server, WEB, 9001)) as ends:
        near, far, listening = ends
        mapped = sockets.ask(near, far)
        client, server, _ = opened(site.client, A, (WEB, 9001), listening)
        with closing(client, server):
            talk(client, server)
            for between in (lambda: None, lambda: edit(service.policy)):
                before = {ends_of(connection): connection["rules"] for connection in service.mmb.connections()}
                service.restart(between)
                after = {ends_of(connection): connection["rules"] for connection in service.mmb.connections()}
                assert before == after and all(before.values())
                far.sendto(b"from outside", mapped)
                assert receive(near, b"from outside")
                for _ in range(3):
                    talk(client, server)
            assert "invalid" not in service.mmb.drops()
        ids = [rule["id"] for rule in service.mmb.ask("list")["rules"]]
        assert ids == [1, 2, 3, 4] and "tcp-dport 22" in service.mmb.rule(4)["rule"]
    assert "2 connections loaded" in service.mmb.output()


def test_a_busy_service_loses_few_packets_over_a_restart(site, service):
    service.policy.write_text("add-stateful ip-proto icmp accept\n" + service.policy.read_text())
    service.mmb("apply", service.policy)
    nginx = Nginx(site)
    results = []
    transfer = threading.Thread(
        target=lambda: results.append(fetch(site, f"http://{WEB}/big", 60, check=False, rate="8M", source=A))
    )
    transfer.start()
    wait_until(lambda: service.mmb.connections("tcp-dport 80 state established"), "the transfer has begun")
    pings = site.client.start(["ping", "-n", "-I", A, "-i", "0.01", "-c", "400", "-W", "1", WEB], site.folder / "ping")
    wait_until(lambda: service.mmb.connections("ip-proto icmp"), "pings pass")
    service.restart()
    pings.wait(timeout=20)
    received = int((site.folder / "ping").read_text().split(" received")[0].split()[-1])
    transfer.join(120)
    assert results == [(0, nginx.digest("big"))]
    assert received >= 200, f"{400 - received} pings lost"


def test_counters_go_on_after_a_restart(site, service):
    with closing(udp(site.client, A), udp(site.server, WEB, 9000)) as (near, far):
        sockets.ask(near, far)

    def counts():
        rules = service.mmb.ask("list")["rules"]
        return [(rule["packets"], rule["dropped_packets"]) for rule in rules], service.mmb.port("lan")["rx"]["packets"]

    before = counts()
    service.restart()
    (rules, received), (rules_before, received_before) = counts(), before
    assert rules[:2] == rules_before[:2] and rules[0][0] > 0
    assert received >= received_before > 0


def test_connections_of_a_crash_are_not_those_of_long_ago(site, service):
    with closing(udp(site.client, A), udp(site.server, WEB, 9000)) as (near, far):
        sockets.ask(near, far)
        service.restart()
        assert len(service.mmb.connections()) == 1
        service.mmb.kill()
        service.mmb.start(*service.options)
        assert service.mmb.connections() == []


def test_a_damaged_state_does_not_prevent_the_start(site, service):
    assert service.mmb.stop() == 0
    content = service.state.read_bytes()
    service.state.write_bytes(content[:-3])
    service.mmb.start(*service.options)
    damaged = service.state.with_name("state.damaged")
    assert f"kept as {damaged}" in service.mmb.output() and damaged.read_bytes() == content[:-3]


@pytest.mark.parametrize("name", ["nowhere/state", "link", "."])
def test_a_state_that_could_not_be_saved_prevents_the_start(fresh, site, name):
    (site.folder / "link").symlink_to(site.folder / "elsewhere")
    with pytest.raises(DidNotStart, match="--state"):
        fresh.daemon(site, "--state", site.folder / name)


def test_a_state_is_no_stream(fresh, site):
    with pytest.raises(DidNotStart, match="a regular file"):
        fresh.daemon(site, "--state", "-")


def test_connections_that_a_service_leaves_out_are_told(site, service):
    with closing(udp(site.client, A, 5000), udp(site.server, WEB, 9000)) as (near, far):
        sockets.ask(near, far)
        sockets.ask(udp(site.client, A, 5001), far)
    assert service.mmb.stop() == 0
    service.policy.write_text("set conn max 1\n" + service.policy.read_text())
    service.mmb.start(*service.options, "--verbose")
    assert "1 connection loaded, 1 left out: 1 conn-full" in service.mmb.output()


def test_sighup_applies_the_policy_file_again(site, service):
    policy = service.policy.read_text()
    service.mmb.process.signal(signal.SIGUSR1)
    service.mmb.process.signal(signal.SIGUSR2)
    service.policy.write_text("add in wan tcp-dport 22 drop\n" + policy)
    service.mmb.process.signal(signal.SIGHUP)
    wait_until(lambda: "1 added, 0 removed, 3 kept" in service.mmb.output(), "the file is in force")
    assert len(service.mmb.ask("list")["rules"]) == 4
    service.policy.write_text("add tcp-dprt 22 drop\n")
    service.mmb.process.signal(signal.SIGHUP)
    wait_until(lambda: "the policy in force stays" in service.mmb.output(), "the file is refused")
    assert "tcp-dport" in service.mmb.output(), "with a hint"
    assert len(service.mmb.ask("list")["rules"]) == 4 and service.mmb.running()
    service.policy.unlink()
    service.mmb.process.signal(signal.SIGHUP)
    wait_until(lambda: service.mmb.output().count("the policy in force stays") == 2, "there is no file")
    assert "No such file" in service.mmb.output()
    assert service.mmb.stop() == 0


def test_sighup_without_a_policy_file_changes_nothing(fresh, site):
    mmb = fresh.daemon(site)
    mmb("add", "in wan tcp-dport 22 drop")
    mmb.process.signal(signal.SIGHUP)
    wait_until(lambda: "SIGHUP" in mmb.output(), "it is told")
    assert len(mmb.ask("list")["rules"]) == 1


def test_connections_of_a_rule_that_drains_go_on_also_after_a_restart(site, service):
    """RFC 6888 REQ-11 asks that sessions survive changes; here the rule is taken out of service while its connections go on."""
    listed = lambda: {rule["id"]: rule["rule"] for rule in service.mmb.ask("list")["rules"]}
    with closing(listener(site.server, WEB, 9001)) as (listening,):
        client, server, _ = opened(site.client, A, (WEB, 9001), listening)
        with closing(client, server):
            talk(client, server)
            answer = service.mmb("del 2 --keep")
            assert "1 connection keeps a rule until it ends" in answer
            assert "draining" in listed()[2]
            talk(client, server)
            assert refused(site.client, A, (WEB, 9001)) == "timeout"
            # The policy file no longer has the rule.
            service.policy.write_text("".join(f"{line}\n" for line in POLICY if "tcp-syn" not in line))
            assert "connection" not in service.mmb("apply", service.policy)
            service.restart()
            assert "draining" in listed()[2]
            talk(client, server)
            service.mmb("conn kill tcp-dport 9001")
        wait_until(lambda: 2 not in listed(), "the rule has gone with its last connection")


def test_sighup_reads_no_pipe(fresh, site):
    """A policy from standard input would be empty the second time, and a pipe may have no writer."""
    policy = site.folder / "policy.mmb"
    policy.write_text("add in wan drop\n")
    daemon = fresh.daemon(site, "-c", policy)
    policy.unlink()
    os.mkfifo(policy)
    daemon.process.signal(signal.SIGHUP)
    wait_until(lambda: "a regular file only" in daemon.output(), "it is refused")
    assert len(daemon.ask("list")["rules"]) == 1 and daemon.stop() == 0
