"""The packets of an interface that rules see, and the effects of VPP's changes to the interface."""

import pytest
from pieces import LINK
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from lab.generator import IN, OUT, Generator
from lab.process import wait_until

from .playing import play
from .plugin import WithMmb

NAMES = 4096
OTHER = [
    bytes(Ether(src=LINK.src, dst="01:00:5e:00:00:05") / IP(src="10.0.0.1", dst="224.0.0.5") / UDP() / Raw(b"x")),
    bytes(Ether(src=LINK.src, dst="33:33:00:00:00:05") / IPv6(src="2001:db8::1", dst="ff05::5") / UDP() / Raw(b"x")),
]


@pytest.fixture
def generator(tmp_path):
    with WithMmb(tmp_path / "vpp", section="") as vpp:
        yield Generator(vpp)
        assert vpp.running()


def test_rules_see_multicast(generator):
    vpp = generator.vpp
    vpp.enable(IN)
    vpp.apply("add all drop")
    out, errors = play(generator, OTHER)
    assert out == [] and vpp.drops() == {"rule": len(OTHER)}
    assert errors == {("ip4-mmb-classify", "rule"): 1, ("ip6-mmb-classify", "rule"): 1}


def test_an_interface_in_a_bridge_is_not_enabled(generator):
    vpp = generator.vpp
    vpp.ask("create bridge-domain 5")
    vpp.configure(f"set interface l2 bridge {IN} 5")
    output = vpp.mmb(f"enable {IN}")
    assert output.startswith("mmb enable: ") and "bridged" in output and "BVI" in output
    vpp.configure(f"set interface l3 {IN}")
    vpp.enable(IN)


def test_an_enabled_interface_that_is_bridged_says_so(generator):
    vpp = generator.vpp
    vpp.enable(IN)
    vpp.ask("create bridge-domain 5")
    vpp.configure(f"set interface l2 bridge {IN} 5")
    assert "bridged: no rule sees it" in vpp.mmb("show ports")
    wait_until(lambda: f"{IN} is enabled, but" in vpp.ask("show logging"), "it is logged")


def test_rules_see_an_interface_that_was_renamed(generator):
    vpp = generator.vpp
    vpp.enable(IN)
    vpp.apply(f"add in {IN} ip-proto udp drop")
    frames = [bytes(LINK / IP(src="10.0.0.1", dst="198.51.100.1") / UDP() / Raw(b"x"))]
    vpp.configure(f"set interface name {IN} lan")
    wait_until(lambda: f"{IN} is called lan" in vpp.ask("show logging"), "it is logged")
    # The generator uses the number in its own name.
    out, _ = play(generator, frames)
    assert out == [] and vpp.drops() == {"rule": 1}
    assert "lan in VPP" in vpp.mmb("show ports")


def test_names_that_nobody_uses_make_room(generator):
    vpp = generator.vpp
    vpp.enable(OUT)
    vpp.apply(f"add in {OUT} drop")
    for first in range(0, NAMES + 64, 64):
        vpp.configure(*(f"create loopback interface instance {first + n}" for n in range(64)))
        vpp.configure(*(f"delete loopback interface intfc loop{first + n}" for n in range(64)))
    vpp.configure("create loopback interface instance 9000")
    wait_until(lambda: vpp.mmb("add id 9 in loop9000 drop").startswith("+ 9"), "it has a number")
    assert set(vpp.rules()) == {1, 9}
