"""Conversations through NAT: VPP's packets compared with those of `mmb replay`, in both directions, with errors about them."""

import random

import pytest
from conversations import POLICIES, POOL4, answer, end, error, outgoing, with_source
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from .inside_and_outside import Sides, expected
from .plugin import WithMmb
from .routing import routed

PACKETS = 150
LINK = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
# IPv4 and IPv6 pass through different nodes, so with several packets in a vector only one of them arrives in order.
SHAPES = {"both": (None, 1), "ip4": (b"\x08\x00", 256), "ip6": (b"\x86\xdd", 256)}


@pytest.fixture
def sides(tmp_path):
    """A VPP for one test: the outside ports that are kept depend on all previous ones."""
    with WithMmb(tmp_path / "vpp") as vpp:
        yield lambda policy: Sides(vpp, policy)
        assert vpp.running() and vpp.buffers_used() == 0


def sent(rng, kind):
    """The packets of the inside, of one ether type or of any."""
    frames = []
    while len(frames) < PACKETS:
        frame = outgoing(rng)
        if kind in (None, frame[12:14]):
            frames.append(frame)
    return frames


def with_link(frame, packet):
    return frame[:14] + packet


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", POLICIES)
def test_conversations_are_translated_and_translated_back(sides, name, shape):
    kind, together = SHAPES[shape]
    frames = sent(random.Random(shape), kind)
    generator = sides(POLICIES[name])
    outside, counted = generator.send("lan", frames, together)
    assert counted == {} and len(outside) == len(frames)
    # The chosen outside endpoints are random where an endpoint's own port is taken: no `mmb replay` gives the same ones.
    check_sources(frames, outside)

    as_frames = [with_link(frame, packet) for frame, packet in zip(frames, outside, strict=True)]
    for reply in (answer, error):
        inside, counted = generator.send("wan", [reply(frame) for frame in as_frames], together)
        assert counted == {}
        assert inside == [routed(reply(hop(frame, packet))) for frame, packet in zip(frames, outside, strict=True)]
    assert generator.vpp.drops() == {}


def hop(frame, packet):
    """The frame one hop further, as an error quotes it, translated back."""
    return with_link(frame, routed(frame))


def check_sources(frames, outside):
    """Each packet has another source and is otherwise unchanged; no two endpoints have the same outside one."""
    owners = {}
    for frame, packet in zip(frames, outside, strict=True):
        left = with_link(frame, packet)
        _, address, port = there = end(left)
        seq = Ether(left)[TCP].seq if TCP in Ether(left) else None
        assert packet == routed(with_source(frame, address, port, seq))
        assert owners.setdefault(there, end(frame)) == end(frame)


def udp(source, destination):
    """A datagram from an address and port to another."""
    ip = IP(src=source[0], dst=destination[0], id=1)
    return bytes(LINK / ip / UDP(sport=source[1], dport=destination[1]) / Raw(b"hello"))


def test_inside_hosts_meet_by_their_outside_ends(sides):
    policy = ["set nat filtering endpoint-independent", *POLICIES["one-address"]]
    # A whole vector: an outside endpoint that was assigned in the same vector cannot be found yet.
    hosts = [(f"10.0.0.{number}", 5000 + port) for number in range(1, 9) for port in range(32)]
    first = [udp(host, ("198.51.100.1", 9000)) for host in hosts]
    generator = sides(policy)
    left, counted = generator.send("lan", first)
    assert counted == {}
    check_sources(first, left)
    outside = [end(with_link(frame, packet))[1:] for frame, packet in zip(first, left, strict=True)]
    # Each packet goes to an endpoint of the next host: none is translated to its own sender.
    second = [udp(host, mapped) for host, mapped in zip(hosts, [*outside[32:], *outside[:32]], strict=True)]
    met = [routed(udp(source, host)) for source, host in zip(outside, [*hosts[32:], *hosts[:32]], strict=True)]
    assert generator.send("lan", second, leave="lan") == (met, {})


def test_a_forwarded_port_is_reached_from_outside(sides, mmb, tmp_path):
    policy = [f"add-stateful in wan ip-daddr {POOL4[0]} udp-dport 8080 map ip-daddr 10.0.0.1 map udp-dport 80"]
    came = [(number, udp((f"198.51.100.{number + 1}", 7000), (POOL4[0], 8080))) for number in range(5)]
    _, inside = expected(mmb, tmp_path, policy, [], came)
    answers = [(10 + number, answer(inside["lan"][number])) for number, _ in came]
    wanted, _ = expected(mmb, tmp_path, policy, answers, came)

    generator = sides(policy)
    assert generator.send("wan", [frame for _, frame in came]) == (list(wanted["lan"].values()), {})
    assert generator.send("lan", [frame for _, frame in answers]) == (list(wanted["wan"].values()), {})
    assert len(wanted["wan"]) == len(came)
