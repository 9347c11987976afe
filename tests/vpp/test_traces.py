"""Packet traces show the rules of a packet, its connection, and its verdict."""

import re

from pieces import LINK
from scapy.layers.inet import IP, TCP, UDP

from lab.generator import IN, Generator

from .playing import play

POLICY = f"""
add id 7 tcp-dport 80 mod ip-dscp 3
add id 9 udp-dport 53 drop
add-stateful id 12 in {IN} ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.1
"""


def test_a_trace_names_rules_connection_and_fate(vpp):
    generator = Generator(vpp)
    vpp.enable(IN)
    vpp.apply(POLICY)
    vpp.ask("clear trace")
    vpp.ask("trace add pg-input 10")
    inside, outside = IP(src="10.0.0.1", dst="198.51.100.1"), IP(src="192.0.2.9", dst="198.51.100.1")
    packets = [inside / TCP(sport=5000, dport=80, flags="S"), inside / UDP(dport=53), outside / UDP(dport=54)]
    play(generator, [bytes(LINK / packet) for packet in packets])
    translated, dropped, plain = re.split(r"^Packet \d+$", vpp.ask("show trace"), flags=re.M)[1:]

    assert "is rewritten" in translated and "rules 7 12" in translated and "ip4-mmb-rewrite" in translated
    assert "connection" in translated and "10.0.0.1 port 5000 to 198.51.100.1 port 80" in translated
    assert "dropped, rule" in dropped and re.search(r"rules? 9\b", dropped) and "ip4-mmb-classify: rule" in dropped
    assert "passes" in plain and "no rule" in plain and "ip4-mmb-rewrite" not in plain
