"""The place of measurement: a client and a server in namespaces of their own, and the system between them in a third.

    client [eth0] ──── [vl] middle [vr] ──── [eth0] server
    10.0.0.1                                   10.0.1.1-3

Every system has three namespaces of its own with nothing else in them, so that systems do not affect each other. The ends reach
each other by fixed routes and fixed neighbours. The neighbour entries contain the middle's MAC address if Linux routes in the
middle, and the far end's if a bump in the wire is in the middle; that is the only difference between systems.

The work of the middle runs on one core, that of the ends on others: RPS steers packets for the middle to its core, or a NAPI
thread does where XDP needs NAPI, and processes are pinned. Devices are as the kernel makes them in all else if `offloads` says so.
"""

import contextlib
import json
import os
from pathlib import Path

from lab.net import veth
from lab.site import Cabled

CLIENT, SERVER = "10.0.0.1", "10.0.1.1"
SERVERS = [f"10.0.1.{n}" for n in (1, 2, 3)]
# The common address of the servers for balancing, and the outside address of the client behind a NAT.
BALANCED, TRANSLATED = "10.0.1.100", "200.0.0.1"
MIDDLE = {"vl": "10.0.0.254", "vr": "10.0.1.254"}

OFFLOADS = ("tx", "tso", "gso", "gro")


class Cores:
    """The cores of the middle and of the ends."""

    def __init__(self, middle, ends):
        self.middle, self.ends = middle, sorted(ends)

    @classmethod
    def chosen(cls, middle=None):
        """The middle gets the last core that the process may use (the first one handles most interrupts), the ends get the
        others."""
        allowed = sorted(os.sched_getaffinity(0))
        middle = allowed[-1] if middle is None else middle
        ends = [core for core in allowed if core != middle]
        if not ends or middle not in allowed:
            raise ValueError(f"two cores are needed, one of them {middle}; allowed are {allowed}")
        return cls(middle, ends)

    @contextlib.contextmanager
    def on_middle(self):
        """Processes that start in the meantime run on the middle's core."""
        os.sched_setaffinity(0, [self.middle])
        try:
            yield
        finally:
            os.sched_setaffinity(0, self.ends)


    @contextlib.contextmanager
    def on_all(self):
        """Processes that start in the meantime run on any of the cores."""
        os.sched_setaffinity(0, [self.middle, *self.ends])
        try:
            yield
        finally:
            os.sched_setaffinity(0, self.ends)


def mask(cores):
    """The format of RPS: hexadecimal words of 32 bits with commas."""
    bits = sum(1 << core for core in cores)
    words = []
    while bits or not words:
        words.append(f"{bits & 0xFFFFFFFF:08x}")
        bits >>= 32
    return ",".join(reversed(words))


class Site(Cabled):
    """The three namespaces of a system. `routed`: Linux routes in the middle. `offloads`: the kernel's defaults, or none. Without
    a middle (`direct`) the ends share a veth pair."""

    def __init__(self, folder, cores, routed=False, offloads=False, direct=False):
        super().__init__(folder)
        self.cores, self.direct = cores, direct
        self.folder.mkdir(parents=True, exist_ok=True)
        self._prepared = set()
        # Where the client finds the web server, and the policy that rewrites what it answers (None: it arrives as it is).
        self.entrance, self.rewriting = SERVER, None
        with self._undone_if_it_fails() as undo:
            self.client, self.middle, self.server = (self._namespace(undo, role) for role in ("client", "middle", "server"))
            self.middle.sysctl(net__ipv6__conf__default__disable_ipv6=1)
            self.links = [(self.client, "eth0"), (self.server, "eth0")]
            if direct:
                veth(self.client, "eth0", self.server, "eth0")
            else:
                veth(self.middle, "vl", self.client, "eth0")
                veth(self.middle, "vr", self.server, "eth0")
                self.links += [(self.middle, "vl"), (self.middle, "vr")]
            self._address(routed)
            self._steer()
            if not offloads:
                for namespace, name in self.links:
                    namespace.run("ethtool", "-K", name, *(word for offload in OFFLOADS for word in (offload, "off")))

    def first(self, what):
        """Whether this is the first call: programs that listen are started once."""
        new = what not in self._prepared
        self._prepared.add(what)
        return new

    @staticmethod
    def mac(namespace, device):
        (link,) = json.loads(namespace.ip("-j", "link", "show", "dev", device).stdout)
        return link["address"]

    def next_hop(self, end):
        """The MAC address to which the client or the server sends."""
        other = self.server if end is self.client else self.client
        if self.routed:
            return self.mac(self.middle, "vl" if end is self.client else "vr")
        return self.mac(other, "eth0")

    def _address(self, routed):
        self.routed = routed
        self.client.ip("addr", "add", f"{CLIENT}/24", "dev", "eth0")
        for address in SERVERS:
            self.server.ip("addr", "add", f"{address}/24", "dev", "eth0")
        far = {self.client: [*SERVERS, BALANCED, MIDDLE["vr"]], self.server: [CLIENT, TRANSLATED, MIDDLE["vl"]]}
        for end, addresses in far.items():
            for address in addresses:
                end.ip("route", "add", f"{address}/32", "dev", "eth0")
                end.ip("neigh", "replace", address, "lladdr", self.next_hop(end), "dev", "eth0", "nud", "permanent")
        if routed:
            self.middle.sysctl(net__ipv4__ip_forward=1, net__ipv4__conf__all__rp_filter=0, net__ipv4__conf__default__rp_filter=0)
            for device, address in MIDDLE.items():
                self.middle.ip("addr", "add", f"{address}/24", "dev", device)
                end = self.client if device == "vl" else self.server
                end.ip("neigh", "replace", address, "lladdr", self.mac(self.middle, device), "dev", "eth0", "nud", "permanent")
                for host in (CLIENT,) if device == "vl" else SERVERS:
                    self.middle.ip("neigh", "replace", host, "lladdr", self.mac(end, "eth0"), "dev", device, "nud", "permanent")

    def _steer(self):
        for namespace, name in self.links:
            self.steer(namespace, name, [self.cores.middle] if namespace is self.middle else self.cores.ends)

    @staticmethod
    def steer(namespace, device, cores):
        """Steers packets that arrive on the device to these cores; none: the core on which they arrived."""
        namespace.run("sh", "-c", f"echo {mask(cores)} > /sys/class/net/{device}/queues/rx-0/rps_cpus")

    @contextlib.contextmanager
    def receiving_on_middle(self):
        """What the kernel does with packets that arrive at the middle's devices runs on the middle's core, also if the devices get XDP
        programs or lose them in the meantime. RPS steers packets of a device without XDP. The NAPI of a device with XDP would run on
        the core that sent the packet; it moves to a thread, which is pinned."""
        before = _napi_threads()
        yield
        for device in MIDDLE:
            if self._has_xdp(device):
                self.middle.run("sh", "-c", f"echo 1 > /sys/class/net/{device}/threaded")
                self.steer(self.middle, device, [])
            else:
                self.steer(self.middle, device, [self.cores.middle])
        for pid in _napi_threads() - before:
            os.sched_setaffinity(pid, [self.cores.middle])
            # Under `nice` they take turns with the middle's processes as they do without.
            os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, 0))

    def _has_xdp(self, device):
        (link,) = json.loads(self.middle.ip("-j", "link", "show", "dev", device).stdout)
        return "xdp" in link


def _napi_threads():
    """Kernel threads that poll devices."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if (entry / "comm").read_text().startswith("napi/"):
                    found.add(int(entry.name))
    return found
