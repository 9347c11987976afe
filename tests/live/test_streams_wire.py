"""Rules on streams over bad wires and small MTUs, through translation, and over restarts of mmb.

    client [eth0] ──── [rl] relay [rr] ──── [vl] mmb [vr] ──── [eth0] server

The relay loses 1 % of the frames, doubles 1 %, lets 5 % be overtaken, and delays all by 5 ms each way.
"""

import hashlib
import os
import random
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from lab.net import veth
from lab.process import wait_until

from .programs import Nginx, fetch
from .routed import INSIDE4, NAT4, OUTSIDE4
from .sockets import closing, listener, opened
from .test_streams import ATTACK, is_reset, received
from .topology import CLIENT4, SERVER4, WithMmb

PORT = 9100
REPOSITORY = Path(__file__).parents[2]
BAD = ("loss=0.01", "again=0.01", "overtaken=0.05", "delay=0.005", "seed=7")
OFFLOADS = ("tx", "rx", "tso", "gso", "gro")


class BadWire(WithMmb):
    """A client and a server with a relay and mmb between them."""

    def __init__(self, folder, backend="af_packet", mtu=None, relay=BAD):
        super().__init__(folder, backend)
        with self._undone_if_it_fails() as undo:
            roles = ("client", "relay", "mmb", "server")
            self.client, self.relay, self.middle, self.server = (self._namespace(undo, role) for role in roles)
            for namespace in (self.relay, self.middle):
                namespace.sysctl(net__ipv6__conf__default__disable_ipv6=1)
            veth(self.relay, "rl", self.client, "eth0", mtu)
            veth(self.relay, "rr", self.middle, "vl", mtu)
            veth(self.middle, "vr", self.server, "eth0", mtu)
            for host, address in ((self.client, CLIENT4), (self.server, SERVER4)):
                host.ip("addr", "add", f"{address}/24", "dev", "eth0")
            for namespace, name in self.links():
                words = (word for offload in OFFLOADS for word in (offload, "off"))
                namespace.run("ethtool", "-K", name, *words, check=False)
            if relay:
                words = [sys.executable, "-m", "lab.relay", "one=rl", "other=rr", *relay]
                self.bad = self.relay.start(words, self.folder / "relay.log", cwd=REPOSITORY)
                undo.callback(self.bad.close)
                wait_until(lambda: "ready" in self.bad.output(), "the relay is ready")

    def links(self):
        ends = ((self.client, "eth0"), (self.relay, "rl"), (self.relay, "rr"), (self.middle, "vl"), (self.middle, "vr"))
        return *ends, (self.server, "eth0")


@pytest.fixture(scope="module")
def wire(namespaces, tmp_path_factory):
    with BadWire(tmp_path_factory.mktemp("wire")) as made:
        made.nginx = Nginx(made)
        made.daemon = made.mmb().start()
        yield made


@pytest.fixture
def mmb(wire):
    wire.daemon.reset()
    yield wire.daemon
    assert wire.daemon.running(), "mmb ended"
    wire.daemon.wait_until_settled()


def goodput(site, count):
    """Bytes a second of a transfer from the client to the server, whose content must arrive."""
    data = os.urandom(count)
    with closing(listener(site.server, SERVER4, PORT)) as (listening,):
        near, far, _ = opened(site.client, CLIENT4, (SERVER4, PORT), listening)
        with closing(near, far):
            far.settimeout(60)
            near.settimeout(60)
            began = time.monotonic()
            sender = threading.Thread(target=near.sendall, args=(data,))
            sender.start()
            got = received(far, count)
            took = time.monotonic() - began
            sender.join(60)
    assert hashlib.sha256(got).digest() == hashlib.sha256(data).digest()
    return count / took


def test_a_guard_costs_little_goodput_under_loss(wire, mmb, record_property):
    """Alternating transfers with and without the rule. Loss makes each of them differ: the medians are compared, with a wide bound."""
    rates = {"without": [], "guard": []}
    for _ in range(5):
        for name, rules in (("without", []), ("guard", [f'add-stateful tcp-dport {PORT} stream "NOT IN THERE" close'])):
            mmb.apply(wire.folder, *rules)
            rates[name].append(goodput(wire, 3_000_000))
    without, guard = (sorted(rates[name])[2] for name in ("without", "guard"))
    record_property("ratio", guard / without)
    print(f"goodput: {without / 1e6:.1f} MB/s without, {guard / 1e6:.1f} MB/s under guard: {guard / without:.2f}")
    assert guard > 0.6 * without


@pytest.mark.parametrize("target", ["alert", "close"])
def test_files_arrive_whole_over_a_bad_wire(wire, mmb, target):
    mmb("add-stateful", 'tcp-dport 80 stream "NOT IN THERE"', target)
    assert fetch(wire, f"http://{SERVER4}/big", timeout=100)[1] == wire.nginx.digest("big")


def test_no_receiver_gets_the_text_over_a_bad_wire(wire, mmb):
    mmb("add-stateful id 1", f"tcp-dport {PORT} stream-forward", '"ATTACK"', "close")
    rng = random.Random(1)
    with closing(listener(wire.server, SERVER4, PORT)) as (listening,):
        for _ in range(10):
            near, far, _ = opened(wire.client, CLIENT4, (SERVER4, PORT), listening)
            with closing(near, far):
                near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                near.settimeout(10)
                far.settimeout(10)
                text = b"x" * rng.randrange(5000) + ATTACK + b"y" * 2000
                try:
                    while text:
                        count = rng.randrange(1, 700)
                        near.sendall(text[:count])
                        text = text[count:]
                except (ConnectionResetError, BrokenPipeError):
                    pass
                got = b""
                try:
                    while data := far.recv(65_536):
                        got += data
                except ConnectionResetError:
                    pass
                assert ATTACK not in got
    assert mmb.rule(1)["hits"] == 10


@pytest.mark.parametrize("mtu", [576, 9000])
def test_small_and_large_packets(fresh, tmp_path, namespaces, mtu):
    with BadWire(tmp_path, mtu=mtu, relay=("delay=0",)) as site:
        nginx = Nginx(site)
        mmb = site.mmb().start()
        mmb("add-stateful", 'tcp-dport 80 stream-forward "ATTACK" close')
        assert fetch(site, f"http://{SERVER4}/big", timeout=60)[1] == nginx.digest("big")
        assert fetch(site, f"http://{SERVER4}/small?q={'a' * 3000}ATTACK", check=False)[0] == 56
        mmb.wait_until_settled()


def test_streams_of_a_killed_daemon_are_unfit(fresh, tmp_path, namespaces):
    """What the next daemon sees of them is their middle: they are guarded no more, or closed if the policy says so."""
    with BadWire(tmp_path, relay=("delay=0",)) as site:
        mmb = site.mmb().start()
        rule = f'tcp-dport {PORT} stream "ATTACK" close'
        mmb("add-stateful", rule)
        with closing(listener(site.server, SERVER4, PORT)) as (listening,):
            near, far, _ = opened(site.client, CLIENT4, (SERVER4, PORT), listening)
            with closing(near, far):
                near.sendall(b"begun")
                assert received(far, 5) == b"begun"
                mmb.kill()
                mmb.start()
                mmb("set stream unfit close")
                mmb("add-stateful", rule)
                far.settimeout(10)
                # An idle worker takes the policy over with its next vector.
                wait_until(lambda: sends_until_reset(near), "the connection is closed")
                assert is_reset(far)
            near, far, _ = opened(site.client, CLIENT4, (SERVER4, PORT), listening)
            with closing(near, far):
                near.sendall(b"new")
                assert received(far, 3) == b"new"


def sends_until_reset(end):
    """Sends a little; whether the connection was reset."""
    try:
        end.sendall(b"goes on")
    except (ConnectionResetError, BrokenPipeError):
        return True
    return False


# Translation


def test_close_through_source_nat_and_balancing(of_mmb):
    """One rule translates both ends and searches: both get a RST that they believe."""
    inside, outside = INSIDE4[0], OUTSIDE4[0]
    rule = f'add-stateful ip-saddr 10.0.0.0/24 tcp-dport {PORT} stream "ATTACK" map ip-saddr {NAT4} lb ip-daddr {{{outside}}} close'
    of_mmb.tested.policy([rule], [])
    with closing(listener(of_mmb.server, outside, PORT)) as (listening,):
        near, far, seen = opened(of_mmb.client, inside, (outside, PORT), listening)
        with closing(near, far):
            assert seen[0] == NAT4
            near.sendall(b"hello")
            assert received(far, 5) == b"hello"
            far.sendall(ATTACK)
            near.settimeout(10)
            far.settimeout(10)
            assert is_reset(near) and is_reset(far)
