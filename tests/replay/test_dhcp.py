"""DHCP through reflexive rules and through the sample policy: docs/nat.md says which rules it needs."""

import pathlib

import pytest
from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.l2 import Ether

from captures import replay_wire

REFLEXIVE = ["add-stateful in lan accept", "add in wan drop"]
FROM_SERVER = "add in wan udp-sport 67 udp-dport 68 accept"
SAMPLE = pathlib.Path(__file__).resolve().parents[2] / "dist" / "policy.mmb"


def message(source, destination, sport, dport, kind):
    ip = IP(src=source, dst=destination) / UDP(sport=sport, dport=dport)
    return bytes(Ether(dst="ff:ff:ff:ff:ff:ff") / ip / BOOTP(xid=7) / DHCP(options=[("message-type", kind), "end"]))


DISCOVER = message("0.0.0.0", "255.255.255.255", 68, 67, "discover")
OFFERS = [message("192.0.2.1", to, 67, 68, "offer") for to in ("255.255.255.255", "192.0.2.50")]


def through(mmb, folder, policy):
    """The numbers of the frames that each side gets."""
    out, _ = replay_wire(mmb, folder, policy, [(1, DISCOVER)], list(enumerate(OFFERS, start=2)))
    return sorted(out["wan"]), sorted(out["lan"])


def test_reflexive_rules_take_the_answer_for_no_reply(mmb, tmp_path):
    assert through(mmb, tmp_path, REFLEXIVE) == ([1], [])


@pytest.mark.parametrize("prio", ["", "prio 30 "])
def test_a_rule_for_the_server_admits_it(mmb, tmp_path, prio):
    assert through(mmb, tmp_path, [*REFLEXIVE, FROM_SERVER.replace("add ", f"add {prio}")]) == ([1], [2, 3])


def test_the_sample_policy_admits_dhcp_and_replies_and_nothing_else(mmb, tmp_path):
    text = SAMPLE.read_text().replace("in inside", "in lan").replace("in outside", "in wan")
    policy = text.splitlines()
    assert through(mmb, tmp_path, policy) == ([1], [2, 3])
    ask = Ether() / IP(src="10.0.0.1", dst="192.0.2.9") / TCP(sport=4000, dport=80, flags="S")
    answer = Ether() / IP(src="192.0.2.9", dst="10.0.0.1") / TCP(sport=80, dport=4000, flags="SA", seq=5, ack=1)
    strange = Ether() / IP(src="192.0.2.9", dst="10.0.0.1") / TCP(sport=4000, dport=22, flags="S")
    out, _ = replay_wire(mmb, tmp_path, policy, [(1, bytes(ask))], [(2, bytes(answer)), (3, bytes(strange))])
    assert sorted(out["lan"]) == [2]
