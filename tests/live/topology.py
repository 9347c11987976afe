"""A client and a server with mmb between them, each in a namespace of its own.

    client [eth0] ──── [vl] mmb [vr] ──── [eth0] server
     10.0.0.1                               10.0.0.2
     fd00::1                                fd00::2

mmb's ports are called `lan` (to the client) and `wan` (to the server).
"""

import contextlib

from lab.daemon import Mmb
from lab.net import RawPort, ip_counters, link_drops, veth
from lab.site import Cabled

CLIENT4, SERVER4 = "10.0.0.1", "10.0.0.2"
CLIENT6, SERVER6 = "fd00::1", "fd00::2"


class WithMmb(Cabled):
    """One of the namespaces (`middle`) is for mmb, which is not started by the site."""

    def __init__(self, folder, backend):
        super().__init__(folder)
        self.backend = backend

    def links(self):
        """The ends of all cables: namespaces and names."""
        raise NotImplementedError

    def mmb(self, name="mmb"):
        """The daemon between the cables, not started yet."""
        ports = {"lan": f"{self.backend}:vl", "wan": f"{self.backend}:vr"}
        daemon = Mmb(self.middle, self.folder, ports, name)
        self._cleanup.callback(daemon.close)
        return daemon

    def end_connections(self):
        """Nothing of a test before is sent any more."""
        for host in (self.client, self.server):
            host.end_connections()

    def reset(self):
        """For the next test: the hosts have no connections, and the daemon no rules."""
        self.end_connections()
        self.daemon.reset()

    def lost(self, daemon):
        """Packets that any queue on the way had to give up so far, by the counters of those who did: on a busy machine a
        program that is kept waiting loses packets before mmb, in mmb or behind it, but never without a counter."""
        at_links = sum(link_drops(namespace, name) for namespace, name in self.links())
        at_sockets = sum(ip_counters(namespace)["Udp: RcvbufErrors"] for namespace in (self.client, self.server))
        return at_links + at_sockets + daemon.lost()


class Site(WithMmb):
    """A client and a server."""

    def __init__(self, folder, backend, mtu=None, queues=None):
        super().__init__(folder, backend)
        with self._undone_if_it_fails() as undo:
            self.client = self._namespace(undo, "client")
            self.middle = self._namespace(undo, "mmb")
            self.server = self._namespace(undo, "server")
            # Prevents packets of the kernel in the middle (router solicitations, multicast reports).
            self.middle.sysctl(net__ipv6__conf__default__disable_ipv6=1)
            veth(self.middle, "vl", self.client, "eth0", mtu, queues)
            veth(self.middle, "vr", self.server, "eth0", mtu, queues)
            for host, v4, v6 in ((self.client, CLIENT4, CLIENT6), (self.server, SERVER4, SERVER6)):
                host.ip_batch(f"addr add {v4}/24 dev eth0", f"addr add {v6}/64 dev eth0 nodad")

    def links(self):
        return (self.client, "eth0"), (self.middle, "vl"), (self.middle, "vr"), (self.server, "eth0")

    def sent_again(self):
        """TCP segments that the client had to send again so far: without those that the server had already, which a
        sender that is kept waiting sends to make sure (RFC 8985) and the server tells about (RFC 2883)."""
        client, server = ip_counters(self.client), ip_counters(self.server)
        known = server["TcpExt: TCPDSACKOldSent"] + server["TcpExt: TCPDSACKOfoSent"]
        return client["Tcp: RetransSegs"] - known

    @contextlib.contextmanager
    def simple_devices(self):
        """The devices behind mmb can neither segment nor compute checksums: the kernel does so before it hands them frames."""
        ports = ("vl", "vr")
        for port in ports:
            self.middle.run("ethtool", "-K", port, "tx", "off", "tx-udp-segmentation", "off")
        try:
            yield
        finally:
            for port in ports:
                self.middle.run("ethtool", "-K", port, "tx", "on", "tso", "on", "tx-udp-segmentation", "on")

    def client_wire(self):
        return RawPort(self.client, "eth0")

    def server_wire(self):
        return RawPort(self.server, "eth0")
