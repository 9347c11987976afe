"""A client and a server with VPP between them, each in a namespace of its own; VPP routes, and has mmb on both interfaces.

    client [eth0] ──── [vl] VPP [vr] ──── [eth0] server
     10.0.0.1      10.0.0.254 10.0.1.254      10.0.1.1
"""

import contextlib

from lab.net import veth
from lab.site import Cabled
from lab.vpp import Node, runtime

from .plugin import WithMmb

CLIENT, SERVER = "10.0.0.1", "10.0.1.1"
NAT = "200.0.0.1"
LAN, WAN = "host-vl", "host-vr"
OFFLOADS = ("tx", "rx", "tso", "gso", "gro")


class Site(Cabled):
    """`offloads`: as the kernel sets them, or none. `host_interface`: what `create host-interface` is told besides the name."""

    def __init__(self, folder, offloads=True, host_interface="", **options):
        super().__init__(folder)
        self.host_interface = host_interface
        with self._undone_if_it_fails() as undo:
            self.client, self.middle, self.server = (self._namespace(undo, role) for role in ("client", "vpp", "server"))
            self.middle.sysctl(net__ipv6__conf__default__disable_ipv6=1)
            for near, far, namespace, network in (("vl", CLIENT, self.client, "10.0.0"), ("vr", SERVER, self.server, "10.0.1")):
                veth(self.middle, near, namespace, "eth0")
                namespace.ip("addr", "add", f"{far}/24", "dev", "eth0")
                namespace.ip("route", "add", "default", "via", f"{network}.254")
                for where, name in ((self.middle, near), (namespace, "eth0")):
                    if not offloads:
                        where.run("ethtool", "-K", name, *(word for offload in OFFLOADS for word in (offload, "off")))
            self.vpp = WithMmb(self.folder / "vpp", namespace=self.middle, **options)
            undo.callback(self.vpp.close)
            self.vpp.start()
            for name in ("vl", "vr"):
                self.create(name)
            self.vpp.enable(LAN, WAN)

    def create(self, name):
        """Has VPP drive a device of its namespace, as a router."""
        network = "10.0.0" if name == "vl" else "10.0.1"
        said = self.vpp.ask(f"create host-interface {self.host_interface} name {name}").strip()
        assert said == f"host-{name}", said
        self.vpp.tell(f"set interface state host-{name} up", f"set interface ip address host-{name} {network}.254/24")

    def delete(self, name):
        self.vpp.tell(f"delete host-interface name {name}")


@contextlib.contextmanager
def with_workers(folder, cores):
    """A site whose VPP has its main thread on the first of these cores and a worker on each other one, and follows all connections."""
    with Site(folder, offloads=False, host_interface="cksum-gso-disable", cores=cores) as site:
        site.vpp.apply("add-stateful all accept")
        # VPP drops what it has to ask for a neighbour for.
        site.client.run("ping", "-c", "5", SERVER)
        yield site
        assert site.vpp.running()


def handed(vpp):
    """Packets that came from another thread."""
    return runtime(vpp.ask("show runtime")).get("ip4-mmb-handed", Node(0, 0.0)).packets
