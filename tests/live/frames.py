"""Crafted frames: sent at one end, checked at the other.

Every crafted frame comes from `MAC`, which distinguishes it from the hosts' own packets. A marker frame after them, which no rule
matches, shows that all frames have arrived, so that a drop is detected without waiting.
"""

import itertools
import struct

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoRequest, IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from .topology import CLIENT4, CLIENT6, SERVER4, SERVER6

MAC, OTHER_MAC = "02:00:00:00:ca:fe", "02:00:00:00:be:ef"
SOURCE, TARGET = (bytes.fromhex(mac.replace(":", "")) for mac in (MAC, OTHER_MAC))
# An ether type for experiments (IEEE 802): not IP, so only rules with eth-type match it.
MARKER_TYPE = 0x88B5

_nonce = itertools.count()


def ether(**fields):
    return Ether(src=MAC, dst=OTHER_MAC, **fields)


def ip4(**fields):
    return ether() / IP(**{"src": CLIENT4, "dst": SERVER4, **fields})


def ip6(**fields):
    return ether() / IPv6(**{"src": CLIENT6, "dst": SERVER6, **fields})


def tcp(**fields):
    return TCP(**{"sport": 40000, "dport": 80, "seq": 1000, "ack": 2000, "flags": "A", "window": 500, **fields})


def udp(**fields):
    return UDP(**{"sport": 40000, "dport": 53, **fields})


def data(size=64):
    return Raw(bytes(i & 0xFF for i in range(size)))


def of_every_kind():
    """One small frame for each header that mmb knows."""
    return [
        ip4() / tcp() / data(),
        ip4() / udp() / data(),
        ip4() / ICMP(id=7, seq=1) / data(),
        ip4(proto=132) / data(),
        ip6() / tcp() / data(),
        ip6() / udp() / data(),
        ip6() / ICMPv6EchoRequest(id=7, seq=1) / data(),
        ip6(nh=132) / data(),
    ]


def pass_through(source, target, frames):
    """Sends frames on one raw port and returns, as bytes, those that arrived at the other, in order."""
    marker = TARGET + SOURCE + struct.pack("!HQ", MARKER_TYPE, next(_nonce)).ljust(48, b"\0")
    for frame in frames:
        source.send(frame)
    source.send(marker)
    arrived = []
    for frame in target.frames():
        if frame == marker:
            return arrived
        if frame[6:12] == SOURCE:
            arrived.append(frame)
    raise AssertionError(f"the frame that marks the end did not arrive; before it came {len(arrived)} frames")


def rebuilt(frame):
    """The frame with every length and checksum computed again by scapy: equal to the frame if they were correct."""
    again = Ether(bytes(frame))
    layer = again
    while layer:
        for name in ("chksum", "cksum", "len", "plen", "dataofs", "ihl"):
            if name in layer.fields:
                delattr(layer, name)
        layer = layer.payload
    return bytes(again)


def summed_up(part):
    """Whether the Internet checksum within these bytes is correct (RFC 1071)."""
    padded = part + b"\0" * (len(part) % 2)
    return sum(struct.unpack(f"!{len(padded) // 2}H", padded)) % 0xFFFF == 0


def expect(arrived, wanted):
    """The frames must be exactly these, byte for byte; scapy's dissection shows the differences."""
    assert len(arrived) == len(wanted), f"{len(arrived)} frames came, not {len(wanted)}:\n" + "\n".join(
        Ether(frame).summary() for frame in arrived
    )
    for number, (came, want) in enumerate(zip(arrived, wanted)):
        if came != bytes(want):
            raise AssertionError(
                f"frame {number}:\ncame\n{Ether(came).show(dump=True)}\nwanted\n{Ether(bytes(want)).show(dump=True)}"
            )
