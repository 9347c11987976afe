"""Packets that pass although invalid packets are dropped: of TCP ends of which one has lost the connection, and of tunnels without UDP checksums.

With mmb in the middle and, for reference, with nftables. The ends are made of single segments: no kernel sends all of these in order.
"""

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from .routed import NAT4, NAT6, SOURCE, SOURCE6, SOURCE6_NFT, SOURCE_NFT, UNANSWERED

# No host has these addresses: nobody else answers.
CLIENT4, CLIENT6, SERVER6 = "10.0.0.77", "fd00:a::77", "2001:db8:1::77"

FIREWALL = [
    "add prio 10 ct invalid drop",
    "add prio 20 in wan ct {established, related} accept",
    "add prio 200 in wan ip-proto tcp drop",
]
FIREWALL_NFT = [
    "filter: ct state invalid drop",
    "filter: ct state established,related accept",
    'filter: iifname "vr" meta l4proto tcp drop',
]
# Inside address, the one that the server sees, the server's, mmb's rules, the reference's.
WAYS = {
    "plain-v4": (CLIENT4, CLIENT4, UNANSWERED, ["add-stateful in lan ct new accept"], []),
    "plain-v6": (CLIENT6, CLIENT6, SERVER6, ["add-stateful in lan ct new accept"], []),
    "nat-v4": (CLIENT4, NAT4, UNANSWERED, SOURCE, SOURCE_NFT),
    "nat-v6": (CLIENT6, NAT6, SERVER6, SOURCE6, SOURCE6_NFT),
}


class Wires:
    """Both wires of the middle. Each packet is followed by a datagram that passes: what has not come before that was dropped."""

    def __init__(self, nat, inside, outside, way):
        self.nat, self.here, self.there = nat, inside, outside
        self.client, self.seen, self.server, mmb, nft = WAYS[way]
        nat.tested.policy([*FIREWALL, *mmb, "add-stateful in lan udp-dport 9 accept"], [*nft, *FIREWALL_NFT])
        self.marks = 0
        self.links = nat.from_inside(), nat.from_outside()
        self.ip = IPv6 if ":" in self.client else IP

    def _send(self, is_client, upper):
        """What leaves by the other wire; None if nothing does."""
        client, server = self.ip(src=self.client, dst=self.server), self.ip(src=self.server, dst=self.seen)
        from_inside, from_outside = self.links
        self.marks += 1
        mark = b"mark %d" % self.marks
        if is_client:
            self.here.send(from_inside / client / upper)
        else:
            self.there.send(from_outside / server / upper)
        self.here.send(from_inside / client / UDP(sport=20000 + self.marks, dport=9) / Raw(mark))
        got, marked = self._received(self.there, upper, mark)
        if is_client:
            return got
        self.there.send(from_outside / server / UDP(sport=9, dport=marked.sport) / Raw(mark))
        return self._received(self.here, upper, mark)[0]

    @staticmethod
    def _received(wire, upper, mark):
        """The packet that comes before the marked one, if any, and the marked one."""
        got, kind = None, type(upper)
        for packet in map(Ether, wire.frames()):
            if UDP in packet and bytes(packet[UDP].payload).startswith(mark):
                return got, packet[UDP]
            if kind in packet:
                got = packet[kind]
        raise AssertionError("the mark did not pass")

    def c(self, flags, seq, ack=0, sport=4000):
        return self._send(True, TCP(sport=sport, dport=80, flags=flags, seq=seq, ack=ack, window=64000))

    def s(self, flags, seq, ack=0, sport=4000):
        return self._send(False, TCP(sport=80, dport=sport, flags=flags, seq=seq, ack=ack, window=64000))

    def opens(self, first, answered, sport=4000):
        return all(
            [self.c("S", first, sport=sport), self.s("SA", answered, first + 1, sport), self.c("A", first + 1, answered + 1, sport)]
        )


@pytest.fixture(params=WAYS)
def wires(nat, request):
    with nat.inside_wire() as inside, nat.outside_wire() as outside:
        yield Wires(nat, inside, outside, request.param)


def test_a_client_that_restarted_connects_again(wires):
    """RFC 5961 section 4, RFC 9293 section 3.5.1: the challenge, the RST that answers it, a new connection."""
    assert wires.opens(1000, 5000)
    assert wires.c("S", 400000000)
    assert wires.s("A", 5001, 1001)
    assert wires.c("R", 1001)
    assert wires.opens(400000000, 888)


def test_a_server_that_still_has_a_connection_tells_the_client(wires):
    """The middle has no connection. Filters against SYN floods send such an acknowledgement too (RFC 9293 section 3.10.7.3)."""
    assert wires.c("S", 1000)
    assert not wires.c("R", 55555)
    assert wires.s("A", 777777, 3000000000)
    assert wires.c("R", 3000000000)
    assert wires.opens(1000, 5000)


@pytest.mark.parametrize("first", [0x9000_0000, 0x10, 0xF000_0000])
def test_a_port_is_used_again_with_any_number(wires, first):
    assert wires.opens(0x8000_0000, 5000)
    for done in (
        wires.c("FA", 0x8000_0001, 5001),
        wires.s("FA", 5001, 0x8000_0002),
        wires.c("A", 0x8000_0002, 5002),
        wires.opens(first, 777777),
    ):
        assert done


def test_a_tunnel_without_checksums_is_followed(wires):
    """RFC 6935, RFC 6936."""
    there = wires._send(True, UDP(sport=40000, dport=4789, chksum=0) / Raw(b"inner"))
    assert there and there.chksum == 0
    back = wires._send(False, UDP(sport=4789, dport=there.sport, chksum=0) / Raw(b"inner"))
    assert back and (back.chksum, back.dport) == (0, 40000)
