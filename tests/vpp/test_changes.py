"""The features of an interface change while fragments wait in mmb for their first one."""

import pytest
from pieces import LINK
from scapy.layers.inet import IP, UDP, fragment
from scapy.packet import Raw

from lab.generator import IN, Generator
from lab.process import wait_until

from .playing import play
from .plugin import WithMmb

BIND, UNBIND = f"set acl-plugin interface {IN} input acl 0", f"set acl-plugin interface {IN} input acl 0 del"
# Features that can be switched while packets wait, and commands that run once before.
FEATURES = {
    "acl": (["set acl-plugin acl permit src 192.0.2.1/32, permit"], [BIND], [UNBIND]),
    "nat44": (
        ["nat44 plugin enable sessions 1024", "nat44 add address 203.0.113.5"],
        [f"set interface nat44 in {IN}"],
        [f"set interface nat44 in {IN} del"],
    ),
}


def pieces(number):
    """A datagram's fragments, the first one last."""
    whole = IP(src="10.0.0.1", dst="198.51.100.1", id=number) / UDP(sport=5000) / Raw(bytes(600))
    return [bytes(LINK / piece) for piece in fragment(whole, 200)][::-1]


@pytest.fixture
def one_thread(tmp_path):
    with WithMmb(tmp_path / "vpp", section="") as vpp:
        yield Generator(vpp)
        assert vpp.running() and vpp.buffers_used() == 0


@pytest.mark.parametrize("feature", FEATURES)
def test_fragments_are_held_while_a_feature_goes(one_thread, feature):
    prepare, on, off = FEATURES[feature]
    vpp = one_thread.vpp
    vpp.enable(IN)
    vpp.apply("add-stateful ip-proto udp accept")
    vpp.ask("show version")
    for command in [*prepare, *on]:
        vpp.ask(command)
    *early, first = pieces(7)
    out, _ = play(one_thread, early)
    assert out == []
    for command in off:
        vpp.ask(command)
    # Another feature is now at the place of the earlier ones.
    vpp.ask(f"set interface feature {IN} ip4-full-reassembly-feature arc ip4-unicast")
    vpp.ask(f"set interface feature {IN} ip4-full-reassembly-feature arc ip4-unicast disable")
    out, errors = play(one_thread, [first])
    assert len(out) == len(early) + 1
    assert errors == {} and vpp.drops() == {}


def test_fragments_are_dropped_that_are_held_while_mmb_is_disabled(one_thread):
    vpp = one_thread.vpp
    vpp.enable(IN)
    vpp.apply("add-stateful ip-proto udp accept")
    *early, _ = pieces(8)
    assert play(one_thread, early)[0] == []
    vpp.mmb(f"disable {IN}")
    # No rule is stateful any more, so that no fragment is held.
    vpp.mmb("flush")
    wait_until(lambda: vpp.drops() == {"port-down": len(early)}, "they are counted")
