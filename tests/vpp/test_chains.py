"""Packets in several of VPP's buffers, and packets that fill their buffers to the last byte."""

import random

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, PadN
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from lab.generator import IN, Generator

from .packets import Routed
from .playing import expect, same_as_replay
from .plugin import WithMmb
from .test_same import FIRST, random_policy

PACKETS, ROUNDS = 200, 6
SIZES = (0, 100, 230, 300, 700, 1500, 4000, 8000)
LINK = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
OPTIONS = [("MSS", 1460), ("Timestamp", (1, 2)), ("NOP", None), ("NOP", None)]
# Rules that make headers shorter, and longer.
SHRINK = "add tcp-opt strip all mod ip-dscp 3"
GROW = "add ip-proto tcp add tcp-opt 253 |01 02 03 04 05 06 07 08| add tcp-opt-mss 1200 mod payload |78|"


class Large(Routed):
    """With payloads up to the MTU of VPP's interfaces."""

    def transport(self, ping):
        return super().transport(ping) / Raw(self.rng.randbytes(self.rng.choice(SIZES)))


@pytest.fixture(scope="module", params=(256, 512))
def generator(request, started):
    """In a VPP whose buffers have this size."""
    made = Generator(started(WithMmb, data_size=request.param))
    made.vpp.enable(IN)
    return made


@pytest.fixture
def vpp(generator):
    generator.vpp.apply("")
    yield generator.vpp
    assert generator.vpp.running() and generator.vpp.buffers_used() == 0


@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS))
def test_random_policies_on_large_packets(generator, vpp, mmb, tmp_path, seed):
    rng = random.Random(seed)
    frames = Large(rng).frames(PACKETS)
    policy = random_policy(mmb, tmp_path, rng, frames)
    expected = expect(mmb, tmp_path, policy, frames)
    assert sum(len(frame) > 1024 for frame in expected.frames) > PACKETS / 10
    vpp.apply(policy)
    same_as_replay(generator, expected)


def test_headers_that_lie_in_several_buffers(generator, vpp, mmb, tmp_path):
    """IPv6 extension headers of all lengths from nothing to three buffers, so that the TCP header begins anywhere."""
    policy = f"{GROW}\nadd tcp-dport 80 mod tcp-dport 8080\nadd ip6-eh-destopt tcp-sport < 40 strip tcp-opt-timestamp\n"
    frames = []
    for eights in range(1, 96):
        padding = [PadN(optdata=bytes(6)) for _ in range(eights)]
        chain = IPv6(src="2001:db8::1", dst="2001:db8::2") / IPv6ExtHdrDestOpt(options=padding)
        frames.append(bytes(LINK / chain / TCP(sport=eights, flags="S", options=OPTIONS) / Raw(b"hello")))
    assert {len(frame) // 256 for frame in frames} == {0, 1, 2, 3}
    expected = expect(mmb, tmp_path, policy, frames)
    assert expected.rules[1] == expected.rules[2] == len(expected.out) == len(frames)
    vpp.apply(policy)
    same_as_replay(generator, expected)


@pytest.mark.parametrize("policy", (SHRINK, GROW), ids=("shorter", "longer"))
def test_buffers_filled_to_the_last_byte(generator, vpp, mmb, tmp_path, policy):
    """Frames of every size around one, two and three buffers, whose headers become shorter or longer."""
    frames = []
    for ip in (IP(src="10.0.0.1", dst="10.0.0.2"), IPv6(src="2001:db8::1", dst="2001:db8::2")):
        shortest = len(LINK / ip / TCP(options=OPTIONS))
        for full in (256, 512, 768):
            for size in range(full - 45, full + 45):
                frames.append(bytes(LINK / ip / TCP(sport=size, flags="S", options=OPTIONS) / Raw(bytes(size - shortest))))
    expected = expect(mmb, tmp_path, policy, frames)
    assert len(expected.out) == len(frames) and expected.rules == {1: len(frames)}
    vpp.apply(policy)
    same_as_replay(generator, expected)
