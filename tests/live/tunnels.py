"""Frames in tunnels as a host hands them to its device: the packet inside is not segmented yet.

Few kernels have all drivers of tunnels. A BPF program on the host's cable puts any header around a packet instead (`bpf_skb_adjust_room`), which the
kernel then treats as that of a tunnel: it hands the frame over whole, or cuts it first if the device cannot.
"""

import contextlib
import struct
from dataclasses import dataclass

from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import GRE, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw
from scapy.utils import checksum as internet_checksum

from . import bpf
from .topology import CLIENT4, CLIENT6, SERVER4, SERVER6

# The mark of packets that go into the tunnel.
MARK = 77
SO_MARK = 36
# What a device can cut, in the words of ethtool.
SEGMENTATION = ("tx-udp_tnl-segmentation", "tx-udp_tnl-csum-segmentation", "tx-gre-segmentation", "tx-ipxip4-segmentation", "tx-ipxip6-segmentation")

_ETHERNET = bytes(Ether(src="02:00:00:00:00:0a", dst="02:00:00:00:00:0b", type=0))[:12]
# GENEVE (RFC 8926) with eight bytes of options.
_GENEVE = bytes([2, 0, 0x65, 0x58, 0, 0, 5, 0, 1, 2, 3, 1, 0x45, 0, 0, 0])
_KEEP_SIZE, _IP4, _IP6, _GRE, _UDP, _ETH = 1, 2, 4, 8, 16, 64
_SKB_STORE_BYTES, _L3_CSUM_REPLACE, _ADJUST_ROOM = 9, 10, 50


@dataclass(frozen=True)
class Tunnel:
    """A tunnel's header behind the outer IP header, without lengths."""

    name: str
    six: bool
    kind: int
    ethernet: bool

    def __str__(self):
        return f"{self.name}-over-{6 if self.six else 4}"

    def headers(self, inner_six, checksum=0):
        """From the outer ether type to the inner packet. The outer checksum of UDP is the one given."""
        ether_type = 0x86DD if inner_six else 0x0800
        middle = {
            "vxlan": UDP(sport=50000, dport=4789, chksum=checksum) / VXLAN(vni=5),
            "geneve": UDP(sport=50000, dport=7777, chksum=0) / Raw(_GENEVE),
            "udp": UDP(sport=50000, dport=5555, chksum=0),
            "gre": GRE(key_present=1, key=9, proto=0x6558 if self.ethernet else ether_type),
            # The type says Ethernet, and there is none.
            "teb": GRE(key_present=1, key=9, proto=0x6558),
            "ip": Raw(b""),
        }[self.name]
        proto = 47 if self.kind == _GRE else 17 if self.kind == _UDP else 41 if inner_six else 4
        if self.six:
            outer = IPv6(src=CLIENT6, dst=SERVER6, fl=7, nh=proto, plen=0)
        else:
            outer = IP(src=CLIENT4, dst=SERVER4, id=65533, flags="DF", proto=proto, len=0)
        middle = bytes(middle).ljust(8, b"\0") if self.kind else b""
        inner = _ETHERNET + struct.pack("!H", ether_type) if self.ethernet else b""
        return struct.pack("!H", 0x86DD if self.six else 0x0800) + bytes(outer) + middle + inner

    def checksum(self, inner):
        """The outer checksum of UDP around an inner IP packet."""
        six = inner[0] >> 4 == 6
        headers = self.headers(six)
        network = 42 if self.six else 22
        datagram = headers[network:] + inner
        datagram = datagram[:4] + len(datagram).to_bytes(2, "big") + datagram[6:]
        outer = headers[2:network]
        addresses = outer[8:] if self.six else outer[12:]
        summed = internet_checksum(addresses + bytes([0, 17]) + len(datagram).to_bytes(2, "big") + datagram)
        return summed or 0xFFFF

    def program(self, inner_six, checksum=0):
        """Puts the headers around marked packets."""
        headers = self.headers(inner_six, checksum)
        flags = _KEEP_SIZE | (_IP6 if self.six else _IP4) | self.kind | ((_ETH | 14 << 56) if self.ethernet else 0)
        start = -len(headers) - -len(headers) % 8 - 8
        padded = headers.ljust(len(headers) + -len(headers) % 4, b"\0")
        words = [bpf.instruction(0x62, 10, word, offset=start + 4 * at) for at, (word,) in enumerate(struct.iter_unpack("<i", padded))]
        context, skip = bpf.instruction(0xBF, 1, source=6), []
        # The length of all that follows an offset of the frame, in network order: register 7.
        length = lambda behind: [
            bpf.instruction(0x61, 7, source=6),
            bpf.instruction(0x07, 7, -behind),
            bpf.instruction(0xDC, 7, 16),
        ]
        put = lambda place: bpf.instruction(0x6B, 10, source=7, offset=start + place)
        lengths = [*length(54), put(2 + 4)] if self.six else [*length(14), put(2 + 2), bpf.instruction(0xBF, 8, source=7)]
        if self.kind == _UDP:
            network = 40 if self.six else 20
            lengths += [*length(14 + network), put(2 + network + 4)]
        mend = [] if self.six else [context, bpf.set_register(2, 24), bpf.set_register(3, 0), bpf.instruction(0xBF, 4, source=8), bpf.set_register(5, 2), bpf.call(_L3_CSUM_REPLACE)]
        around = [
            context,
            bpf.set_register(2, len(headers) - 2),
            bpf.set_register(3, 1),
            bpf.instruction(0x18, 4, _signed(flags)),
            bpf.instruction(0, 0, flags >> 32),
            bpf.set_register(5, 0),
            bpf.call(_ADJUST_ROOM),
            *words,
            *lengths,
            context,
            bpf.set_register(2, 12),
            bpf.instruction(0xBF, 3, source=10),
            bpf.instruction(0x07, 3, start),
            bpf.set_register(4, len(headers)),
            bpf.set_register(5, 0),
            bpf.call(_SKB_STORE_BYTES),
            *mend,
        ]
        # A jump over a wide instruction counts it twice.
        skip = [bpf.instruction(0xBF, 6, source=1), bpf.instruction(0x61, 2, source=6, offset=8), bpf.instruction(0x55, 2, MARK, offset=len(around))]
        return bpf.load([*skip, *around, bpf.set_register(0, 0), bpf.EXIT])


def _signed(number):
    return struct.unpack("<i", struct.pack("<I", number & 0xFFFFFFFF))[0]


TUNNELS = [
    Tunnel("vxlan", False, _UDP, True),
    Tunnel("vxlan", True, _UDP, True),
    Tunnel("geneve", False, _UDP, True),
    Tunnel("udp", False, _UDP, False),
    Tunnel("gre", False, _GRE, True),
    Tunnel("gre", True, _GRE, False),
    Tunnel("teb", False, _GRE, False),
    Tunnel("ip", False, 0, False),
    Tunnel("ip", True, 0, False),
]


@contextlib.contextmanager
def around(site, tunnel, inner_six, checksum=0):
    """Marked packets of the client are in this tunnel."""
    try:
        bpf.attach(site, site.client, {"egress": tunnel.program(inner_six, checksum)})
        yield
    finally:
        site.client.run("tc", "qdisc", "del", "dev", "eth0", "clsact", check=False)


@contextlib.contextmanager
def cut_by_the_host(site):
    """The client's device cannot cut packets in tunnels: its kernel does."""
    switch = lambda state: site.client.run("ethtool", "-K", "eth0", *(word for each in SEGMENTATION for word in (each, state)))
    switch("off")
    try:
        yield
    finally:
        switch("on")
