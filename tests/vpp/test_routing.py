"""VPP alone changes packets as the other tests assume."""

import random

import pytest

from lab.generator import Generator
from lab.vpp import Vpp

from .compare import same_packets
from .packets import Routed
from .playing import play
from .routing import routed


@pytest.fixture(scope="module")
def bare(started):
    """Interfaces of the packet generator in a VPP without mmb."""
    return Generator(started(Vpp))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("together", (1, 256))
def test_routing_changes_what_is_known_of_it(bare, seed, together):
    frames = Routed(random.Random(seed)).frames(300)
    out, errors = play(bare, frames, together=together)
    expected = [(number, routed(frame)) for number, frame in enumerate(frames)]
    same_packets(out, expected, frames)
    assert errors == {}
    assert together > 1 or [frame[14:] for frame in out] == [packet for _, packet in expected]
