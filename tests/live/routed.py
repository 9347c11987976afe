"""Two networks with mmb between their routers, for tests of NAT: each of the five is a namespace of its own.

    inside ──── inner router ──── [vl] mmb [vr] ──── outer router ──── outside
    10.0.0.1-4     192.0.2.1                            192.0.2.2      198.51.100.1-4
    fd00:a::1-4    2001:db8::1                       2001:db8::2       2001:db8:1::1-4

The outer router routes 200.0.0.0/24 and 2001:db8:200::/64 to the inner one: replies to every outside address that mmb assigns
return there. A packet that mmb does not translate back ends at the inner router.

With `middle="nftables"`, Linux routes and translates in mmb's place, as the reference. Tests of common behaviour run with both.
"""

import contextlib
import json
import subprocess

from scapy.layers.l2 import Ether

from lab.net import RawPort, veth
from lab.process import CommandFailed

from .frames import MAC
from .topology import WithMmb

INSIDE4 = [f"10.0.0.{n}" for n in (1, 2, 3, 4)]
INSIDE6 = [f"fd00:a::{n}" for n in (1, 2, 3, 4)]
OUTSIDE4 = [f"198.51.100.{n}" for n in (1, 2, 3, 4)]
OUTSIDE6 = [f"2001:db8:1::{n}" for n in (1, 2, 3, 4)]
INNER4, OUTER4 = "192.0.2.1", "192.0.2.2"
INNER6, OUTER6 = "2001:db8::1", "2001:db8::2"
# The outside addresses of the inside hosts.
NAT4, NAT6 = "200.0.0.1", "2001:db8:200::1"
# Policies of source NAT, mmb's and the reference's.
SOURCE = [f"add-stateful in lan ip-saddr 10.0.0.0/24 map ip-saddr {NAT4}"]
SOURCE_NFT = [f"behind: oif vr ip saddr 10.0.0.0/24 snat to {NAT4}"]
SOURCE6 = [f"add-stateful in lan ip6-saddr fd00:a::/64 map ip6-saddr {NAT6}"]
SOURCE6_NFT = [f"behind: oif vr ip6 saddr fd00:a::/64 snat to {NAT6}"]
BOTH_FAMILIES = SOURCE + SOURCE6, SOURCE_NFT + SOURCE6_NFT
# Packets to these addresses are never answered.
UNANSWERED = "203.0.113.9"

# The reference is a router on the link, with one address for each end.
_REFERENCE = {"vl": ("192.0.2.9", "2001:db8::9"), "vr": ("192.0.2.17", "2001:db8::11")}


class Routed(WithMmb):
    """The namespaces, veth pairs and routes; it starts neither mmb nor a ruleset."""

    def __init__(self, folder, backend, middle="mmb", queues=None):
        super().__init__(folder, backend)
        with self._undone_if_it_fails() as undo:
            self.client = self._namespace(undo, "inside")
            self.inner = self._namespace(undo, "inner")
            self.middle = self._namespace(undo, "mmb")
            self.outer = self._namespace(undo, "outer")
            self.server = self._namespace(undo, "outside")
            if middle == "mmb":
                self.middle.sysctl(net__ipv6__conf__default__disable_ipv6=1)
            for router in (self.inner, self.outer):
                _forwards(router)
            veth(self.inner, "near", self.client, "eth0")
            veth(self.middle, "vl", self.inner, "mid", queues=queues)
            veth(self.middle, "vr", self.outer, "mid", queues=queues)
            veth(self.outer, "far", self.server, "eth0")
            self._give_addresses()
            self.reference = middle == "nftables"
            self._route(*(_REFERENCE["vl"] if self.reference else (OUTER4, OUTER6)), self.inner, "default", "default")
            back = _REFERENCE["vr"] if self.reference else (INNER4, INNER6)
            self._route(*back, self.outer, "200.0.0.0/24", "2001:db8:200::/64")
            self._route(*back, self.outer, "10.0.0.0/24", "fd00:a::/64")
            if self.reference:
                self._make_the_middle_a_router()

    def _give_addresses(self):
        for host, v4, v6 in (
            (self.client, INSIDE4, INSIDE6),
            (self.server, OUTSIDE4, OUTSIDE6),
        ):
            host.ip_batch(
                *(f"addr add {address}/24 dev eth0" for address in v4),
                # The kernel prefers the one that was added last.
                *(f"addr add {address}/64 dev eth0 nodad" for address in reversed(v6)),
            )
        for router, device, v4, v6 in (
            (self.inner, "near", "10.0.0.254", "fd00:a::fe"),
            (self.inner, "mid", INNER4, INNER6),
            (self.outer, "mid", OUTER4, OUTER6),
            (self.outer, "far", "198.51.100.254", "2001:db8:1::fe"),
        ):
            router.ip_batch(f"addr add {v4}/24 dev {device}", f"addr add {v6}/64 dev {device} nodad")
        self._route("10.0.0.254", "fd00:a::fe", self.client, "default", "default")
        self._route("198.51.100.254", "2001:db8:1::fe", self.server, "default", "default")
        # A packet that mmb does not translate would circulate between the routers until its time to live is over.
        for family, prefix in (("-4", "200.0.0.0/24"), ("-6", "2001:db8:200::/64")):
            self.inner.ip(family, "route", "add", "blackhole", prefix, "table", "100")
            self.inner.ip(family, "rule", "add", "iif", "mid", "lookup", "100")
        # No host has this address, and the router sends no error.
        self.outer.ip("route", "add", "blackhole", "203.0.113.0/24")

    @staticmethod
    def _route(via4, via6, host, prefix4, prefix6):
        host.ip("-4", "route", "add", prefix4, "via", via4)
        host.ip("-6", "route", "add", prefix6, "via", via6)

    def _make_the_middle_a_router(self):
        _forwards(self.middle)
        for device, (v4, v6) in _REFERENCE.items():
            self.middle.ip("addr", "add", f"{v4}/32", "dev", device)
            self.middle.ip("addr", "add", f"{v6}/128", "dev", device, "nodad")
        for device, v4, v6 in (("vl", INNER4, INNER6), ("vr", OUTER4, OUTER6)):
            self.middle.ip("-4", "route", "add", f"{v4}/32", "dev", device)
            self.middle.ip("-6", "route", "add", f"{v6}/128", "dev", device)
        self._route(OUTER4, OUTER6, self.middle, "default", "default")
        self._route(INNER4, INNER6, self.middle, "10.0.0.0/24", "fd00:a::/64")
        self.middle.ip("route", "add", "blackhole", "200.0.0.0/24")
        self.middle.ip("-6", "route", "add", "blackhole", "2001:db8:200::/64")

    def links(self):
        return (
            (self.client, "eth0"),
            *((self.inner, name) for name in ("near", "mid")),
            *((self.middle, name) for name in ("vl", "vr")),
            *((self.outer, name) for name in ("mid", "far")),
            (self.server, "eth0"),
        )

    def inside_wire(self):
        """The inner router's end of the veth pair to the middle."""
        return RawPort(self.inner, "mid")

    def outside_wire(self):
        """The outer router's end of the veth pair to the middle."""
        return RawPort(self.outer, "mid")

    def from_inside(self):
        """The link header of a crafted frame that enters on the inside."""
        return self._link_header(self.outer, "vl")

    def from_outside(self):
        """The link header of a crafted frame that enters on the outside."""
        return self._link_header(self.inner, "vr")

    def _link_header(self, beyond, device):
        """A link header to the router beyond a bump in the wire, or to Linux in the middle, at its device."""
        namespace, device = (self.middle, device) if self.reference else (beyond, "mid")
        (link,) = json.loads(namespace.ip("-j", "link", "show", "dev", device).stdout)
        return Ether(src=MAC, dst=link["address"])

    @contextlib.contextmanager
    def narrow(self, router, prefix, mtu):
        """In the meantime the router forwards no larger packets to the prefix, which is on one of its links."""
        family = "-6" if ":" in prefix else "-4"
        (route,) = json.loads(router.ip(family, "-j", "route", "show", prefix).stdout)
        words = [prefix, "dev", route["dev"], "proto", route["protocol"]]
        if "metric" in route:
            words += ["metric", route["metric"]]
        if "prefsrc" in route:
            words += ["src", route["prefsrc"]]
        router.ip(family, "route", "change", *words, "mtu", "lock", str(mtu))
        try:
            yield
        finally:
            router.ip(family, "route", "change", *words, "mtu", "0")
            for host in (self.client, self.server, self.inner, self.outer, self.middle):
                host.ip(family, "route", "flush", "cache")


def _forwards(namespace):
    namespace.sysctl(
        net__ipv4__ip_forward=1,
        net__ipv6__conf__all__forwarding=1,
        # Packets between inside hosts are hairpinned here, and their outside address is the router's own.
        net__ipv4__conf__all__send_redirects=0,
        net__ipv4__conf__default__send_redirects=0,
        net__ipv4__conf__all__rp_filter=0,
        net__ipv4__conf__default__rp_filter=0,
        # Traceroute causes many errors at once.
        net__ipv4__icmp_ratelimit=0,
        net__ipv6__icmp__ratelimit=0,
    )


class TestedMmb:
    """mmb in the middle, with the interface of tests of both middles."""

    kind = "mmb"

    def __init__(self, site):
        self.daemon = site.mmb()
        self.folder = site.folder

    def reset(self):
        if not self.daemon.running():
            self.daemon.start()
        self.daemon.reset()

    def policy(self, mmb, nftables=None):
        self.daemon.apply(self.folder, *mmb)

    def wait_until_settled(self):
        assert self.daemon.running(), "mmb ended"
        self.daemon.wait_until_settled()

    def drops(self):
        return self.daemon.drops()


class Nftables:
    """Linux in the middle. A policy is a list of lines `chain: rule`, the chains being those of `_TABLE`."""

    kind = "nftables"

    _TABLE = {
        "before": "type nat hook prerouting priority dstnat;",
        "filter": "type filter hook forward priority filter;",
        "behind": "type nat hook postrouting priority srcnat;",
    }

    def __init__(self, site):
        self.namespace = site.middle

    def reset(self):
        self._load("flush ruleset\n")
        self.namespace.run("conntrack", "-F")

    def policy(self, mmb, nftables=()):
        lines = {name: [head] for name, head in self._TABLE.items()}
        for line in nftables:
            chain, _, rule = line.partition(": ")
            lines[chain].append(rule)
        chains = "".join(f"chain {name} {{ {chr(10).join(body)}\n}}\n" for name, body in lines.items())
        self._load(f"flush ruleset\ntable inet nat {{\n{chains}}}\n")

    def wait_until_settled(self):
        pass

    def _load(self, ruleset):
        words = self.namespace.command(["nft", "-f", "-"])
        done = subprocess.run(words, input=ruleset, capture_output=True, text=True, timeout=20)
        if done.returncode != 0:
            raise CommandFailed(f"nft: {done.stderr}\n{ruleset}")
