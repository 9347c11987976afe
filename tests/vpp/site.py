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
# The addresses of VPP's interface on each device.
ROUTER = {"vl": "10.0.0.254", "vr": "10.0.1.254"}
ROUTER_MAC = {"vl": "02:fe:00:00:00:01", "vr": "02:fe:00:00:00:02"}
OFFLOADS = ("tx", "rx", "tso", "gso", "gro")


class Site(Cabled):
    """`offloads`: the kernel's defaults, or none. `host_interface`: further words of `create host-interface` after the name."""

    def __init__(self, folder, offloads=True, host_interface="", **options):
        super().__init__(folder)
        self.host_interface = host_interface
        with self._undone_if_it_fails() as undo:
            self.client, self.middle, self.server = (self._namespace(undo, role) for role in ("client", "vpp", "server"))
            self.middle.sysctl(net__ipv6__conf__default__disable_ipv6=1)
            for near, far, namespace in (("vl", CLIENT, self.client), ("vr", SERVER, self.server)):
                veth(self.middle, near, namespace, "eth0")
                namespace.ip("addr", "add", f"{far}/24", "dev", "eth0")
                namespace.ip("route", "add", "default", "via", ROUTER[near])
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
        """Makes VPP drive a device of its namespace, as a router.

        Its MAC address is always the same: by default VPP takes a random one and does not announce it, and neighbours that know
        the device's previous interface would continue to send to the old one.
        """
        words = f"{self.host_interface} name {name} hw-addr {ROUTER_MAC[name]}"
        output = self.vpp.ask(f"create host-interface {words}").strip()
        assert output == f"host-{name}", output
        self.vpp.configure(f"set interface state host-{name} up", f"set interface ip address host-{name} {ROUTER[name]}/24")

    def delete(self, name):
        self.vpp.configure(f"delete host-interface name {name}")


@contextlib.contextmanager
def with_workers(folder, cores):
    """A site whose VPP has its main thread on the first of these cores and a worker on each other one, and tracks all
    connections."""
    with Site(folder, offloads=False, host_interface="cksum-gso-disable", cores=cores) as site:
        site.vpp.apply("add-stateful all accept")
        # VPP drops packets while it resolves a neighbour.
        site.client.run("ping", "-c", "5", SERVER)
        yield site
        assert site.vpp.running()


def handed(vpp):
    """Packets that came from another thread."""
    return runtime(vpp.ask("show runtime")).get("ip4-mmb-handed", Node(0, 0.0)).packets
