"""Sites whose ports have the flow offload, at each place where the kernel forwards flows."""

import contextlib

import pytest

from lab.process import wait_until

from . import topology
from .conftest import need_backend

# Where the kernel forwards flows: at tc ingress, or in the driver.
PLACES = ("tc", "xdp")


class Offloading(topology.Site):
    """A site for ports of one kind: those of a user who gives only names, or those with AF_XDP."""

    def __init__(self, folder, place):
        super().__init__(folder, "af_packet" if place == "tc" else "af_xdp")
        self.place = place
        self.set_devices()

    def set_devices(self):
        """The work that the hosts leave to their devices. Drivers redirect frames to a veth only if its other end has GRO, and no program can finish
        checksums in a driver."""
        for host in (self.client, self.server):
            if self.place == "tc":
                host.run("ethtool", "-K", "eth0", "tso", "on", "gso", "on", "gro", "on", "tx", "on")
            else:
                host.run("ethtool", "-K", "eth0", "gro", "on", "tx", "off")

    def mmb(self, name="mmb"):
        daemon = super().mmb(name)
        if self.place == "tc":
            daemon.ports = {"lan": "vl", "wan": "vr"}
        return daemon


@contextlib.contextmanager
def running(folder, place):
    need_backend("af_packet" if place == "tc" else "af_xdp")
    with Offloading(folder, place) as site:
        site.daemon = site.mmb().start()
        state = site.daemon.ask("show", "offload")
        reasons = [port["reason"] for port in state["ports"] if "reason" in port]
        if any("without clang" in reason for reason in reasons):
            pytest.skip(f"no flow offload here: {reasons}")
        assert not reasons
        assert (place == "xdp") == all(port["how"] == "xdp" for port in state["ports"])
        yield site


def offload(daemon):
    return daemon.ask("show", "offload")


def hits(daemon):
    return offload(daemon)["hits"]["packets"]


def pass_until_offloaded(daemon, exchange, packets=1):
    """Repeats an exchange until the kernel has forwarded so many packets. The first ones pass by mmb: for a tenth of a second, if each follows at once."""
    before = hits(daemon)

    def is_offloaded():
        exchange()
        return hits(daemon) - before >= packets

    wait_until(is_offloaded, f"the kernel forwards {packets} packets")
