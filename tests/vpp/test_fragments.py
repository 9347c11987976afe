"""Fragments through NAT in VPP, without VPP's reassembly and behind it."""

import random

import pytest
from captures import replay
from pieces import checked, put_together, shuffled
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether

from lab.generator import IN, Generator

from .playing import drops_of_nodes, play
from .plugin import WithMmb
from .routing import routed

POOL4, POOL6 = "200.0.0.1", "2001:db8:200::1"
NAT = f"""
add-stateful in {IN} ip-saddr 10.0.0.0/24 ip-proto udp map ip-saddr {POOL4}
add-stateful in {IN} ip6-saddr fd00:a::/64 ip-proto udp map ip6-saddr {POOL6}
"""
DATAGRAMS = 40
# The number of fragments of a datagram that VPP's full reassembly accepts, unless its API sets another.
MOST = 3


@pytest.fixture
def generator(tmp_path):
    with WithMmb(tmp_path / "vpp") as vpp:
        made = Generator(vpp)
        vpp.enable(IN)
        vpp.apply(NAT)
        yield made
        assert vpp.running() and vpp.buffers_used() == 0


def without_port(packet):
    """An IP packet with zeros for the source port and the checksum of a first fragment: if the port is taken, the new one is
    random."""
    six = packet[0] >> 4 == 6
    at, offset = (48, packet[42:44]) if six else (20, bytes((packet[6] & 0x1F, packet[7])))
    if int.from_bytes(offset) & (0xFFF8 if six else 0x1FFF):
        return packet
    return packet[:at] + bytes(2) + packet[at + 2:at + 6] + bytes(2) + packet[at + 8:]


def test_fragments_leave_as_from_replay(generator, mmb, tmp_path):
    frames, _ = shuffled(random.Random(1), DATAGRAMS)
    wanted, summary = replay(mmb, tmp_path, NAT.replace(IN, "a"), frames)
    assert summary["drops"] == {}
    # One by one, because VPP separates IPv4 and IPv6 of a vector.
    out, errors = play(generator, frames, together=1)
    assert errors == {}
    assert sorted(without_port(frame[14:]) for frame in out) == sorted(without_port(routed(frame)) for _, frame in wanted)
    assert set(put_together(out)) == set(range(DATAGRAMS))


def test_fragments_in_vectors_leave_whole(generator):
    frames, sent = shuffled(random.Random(2), DATAGRAMS)
    out, errors = play(generator, frames)
    assert errors == {}
    check(put_together(out), sent)


@pytest.mark.parametrize("feature", ("ip4-sv-reassembly-feature", "ip6-sv-reassembly-feature"))
def test_fragments_leave_whole_where_vpp_looks_at_them_too(generator, feature):
    generator.vpp.configure(f"set interface feature {IN} {feature} arc {feature[:3]}-unicast")
    frames, sent = shuffled(random.Random(feature), DATAGRAMS)
    out, errors = play(generator, frames)
    assert drops_of_nodes({key: count for key, count in errors.items() if "reassembl" not in key[0]}) == {}
    check(put_together(out), sent)


def check(whole, sent):
    assert set(whole) == set(sent)
    for number, packet in whole.items():
        left = checked(packet)
        assert left.src in (POOL4, POOL6)
        assert left[UDP].dport == 9000 + number and bytes(left[UDP].payload) == sent[number]


def test_what_vpp_put_together_is_translated_whole(generator, mmb, tmp_path):
    generator.vpp.configure(
        f"set interface feature {IN} ip4-full-reassembly-feature arc ip4-unicast",
        f"set interface feature {IN} ip6-full-reassembly-feature arc ip6-unicast",
    )
    frames, sent = shuffled(random.Random(5), DATAGRAMS, MOST)
    out, _ = play(generator, frames)
    assert generator.vpp.drops() == {}
    packets = [Ether(frame).payload for frame in out]
    assert not any(packet.payload.name.startswith("IPv6 Extension") for packet in packets)
    check({packet[UDP].dport - 9000: packet for packet in packets}, sent)
