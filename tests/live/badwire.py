"""A client and a server with a bad wire and mmb between them.

    client [eth0] ──── [rl] relay [rr] ──── [vl] mmb [vr] ──── [eth0] server

The relay (`lab/relay.py`) stands for netem, which not every kernel has.
"""

import hashlib
import selectors
import sys
import time
from pathlib import Path

from lab.net import veth
from lab.process import wait_until

from .topology import CLIENT4, CLIENT6, SERVER4, SERVER6, WithMmb

REPOSITORY = Path(__file__).parents[2]
# 1 % of the frames are lost, 1 % come twice, 5 % are overtaken, and all need 20 ms.
BAD = {"loss": 0.01, "again": 0.01, "overtaken": 0.05, "delay": 0.02, "seed": 7}
# What a card would do with frames that a socket of type AF_PACKET can neither send nor cut.
OFFLOADS = ("tx", "tso", "gso", "gro")


class BadWire(WithMmb):
    def __init__(self, folder, backend="af_packet", relay=None):
        super().__init__(folder, backend)
        with self._undone_if_it_fails() as undo:
            roles = ("client", "relay", "mmb", "server")
            self.client, self.relayed, self.middle, self.server = (self._namespace(undo, role) for role in roles)
            for namespace in (self.relayed, self.middle):
                namespace.sysctl(net__ipv6__conf__default__disable_ipv6=1)
            veth(self.relayed, "rl", self.client, "eth0")
            veth(self.relayed, "rr", self.middle, "vl")
            veth(self.middle, "vr", self.server, "eth0")
            for namespace, name in self.links():
                words = (word for offload in OFFLOADS for word in (offload, "off"))
                namespace.run("ethtool", "-K", name, *words)
            for host, v4, v6 in ((self.client, CLIENT4, CLIENT6), (self.server, SERVER4, SERVER6)):
                host.ip_batch(f"addr add {v4}/24 dev eth0", f"addr add {v6}/64 dev eth0 nodad")
            fate = [f"{name}={value}" for name, value in (relay or BAD).items()]
            words = [sys.executable, "-m", "lab.relay", "one=rl", "other=rr", *fate]
            self.relay = self.relayed.start(words, self.folder / "relay.log", cwd=REPOSITORY)
            undo.callback(self.relay.close)
            wait_until(lambda: "ready" in self.relay.output(), "the relay is ready")

    def links(self):
        ends = ((self.client, "eth0"), (self.relayed, "rl"), (self.relayed, "rr"), (self.middle, "vl"), (self.middle, "vr"))
        return *ends, (self.server, "eth0")


def transfer(ends, data, timeout=60):
    """Sends the data from the first to the second socket of each pair, all at once. The content must arrive. Returns the seconds
    until nine of ten bytes arrived: the last ones tell of single timeouts rather than of a rate."""
    began, most = time.monotonic(), None
    hashes = {there: hashlib.sha256() for _, there in ends}
    missing = {there: len(data) for _, there in ends}
    left = {here: memoryview(data) for here, _ in ends}
    with selectors.DefaultSelector() as ready:
        for here, there in ends:
            here.setblocking(False)
            there.setblocking(False)
            ready.register(here, selectors.EVENT_WRITE)
            ready.register(there, selectors.EVENT_READ)
        while any(missing.values()):
            assert time.monotonic() - began < timeout, f"not within {timeout} s: {sum(missing.values())} bytes are missing"
            for key, _ in ready.select(1):
                end = key.fileobj
                if end in left:
                    left[end] = left[end][end.send(left[end]) :]
                    if not left[end]:
                        ready.unregister(end)
                else:
                    got = end.recv(1 << 18)
                    assert got, "the connection ended"
                    hashes[end].update(got)
                    missing[end] -= len(got)
                    if most is None and sum(missing.values()) * 10 <= len(ends) * len(data):
                        most = time.monotonic() - began
    wanted = hashlib.sha256(data).digest()
    assert all(got.digest() == wanted for got in hashes.values()), "other bytes arrived"
    return most
