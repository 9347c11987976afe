"""mmb explain: the rules that apply to one packet, what decides, and why a rule does not apply. Packets of captures are scapy's."""

import json
import random
import subprocess

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import wrpcap

POLICY = """\
add id 1 prio 10 ip-saddr 10.0.0.0/8 tcp-dport 443 tcp-syn drop
add id 2 prio 20 tcp-dport {80, 443} accept
add id 3 ip-ttl < 70 mod ip-dscp 10
add id 4 prio 5 in wan drop
add-stateful id 5 udp-dport 53 map ip-saddr 192.0.2.200
add id 6 prio 1 ip-proto icmp drop 50%
"""


@pytest.fixture
def explain(mmb, tmp_path):
    """Explains a packet under POLICY: what is told, or the error if `code` is that of one."""
    policy = tmp_path / "policy.mmb"
    policy.write_text(POLICY)

    def run(*words, code=0):
        command = [mmb, "explain", "--json", "--rules", policy, *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if code == 0 else done.stdout + done.stderr

    return run


def rules(told):
    return [rule["id"] for rule in told["rules"]]


def decides(told):
    return [rule["id"] for rule in told["rules"] if rule["decides"]]


def test_a_described_segment_has_the_flags_that_a_reader_expects(mmb, tmp_path):
    """Nothing said: the first segment of a connection. Otherwise what is said, and ACK if only the lack of flags is. Options may follow."""
    policy = tmp_path / "flags.mmb"
    for words, expected in [
        ("tcp-dport 22", {"S"}),
        ("tcp-syn tcp-dport 22", {"S"}),
        ("tcp-syn tcp-ack", {"S", "A"}),
        ("tcp-fin", {"F"}),
        ("tcp-syn 0", {"A"}),
        ("tcp-flags 0", set()),
    ]:
        names = {"S": "tcp-syn", "A": "tcp-ack", "F": "tcp-fin", "R": "tcp-rst", "P": "tcp-push", "U": "tcp-urg"}
        policy.write_text("".join(f"add {name} {int(flag in expected)} mod ip-dscp {n}\n" for n, (flag, name) in enumerate(names.items())))
        command = [mmb, "explain", "--rules", policy, *words.split(), "--json"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30)
        assert done.returncode == 0, done.stderr
        assert rules(json.loads(done.stdout)) == [1, 2, 3, 4, 5, 6], words


def test_a_described_packet_meets_the_rules_that_it_satisfies(explain):
    told = explain("in", "lan", "ip-saddr", "10.0.0.1", "tcp-dport", "443", "tcp-syn")
    assert rules(told) == [1, 2, 3] and decides(told) == [1]
    assert (told["verdict"], told["reason"]) == ("dropped", "rule")
    assert told["packet"]["source"]["address"] == "10.0.0.1" and told["packet"]["destination"]["port"] == 443
    told = explain("in", "lan", "ip-saddr", "11.0.0.1", "tcp-dport", "443", "tcp-syn")
    assert rules(told) == [2, 3] and decides(told) == [2] and told["verdict"] == "passes"
    assert told["rewritten"]["source"]["address"] == "11.0.0.1"
    told = explain("in", "wan", "tcp-dport", "443")
    assert decides(told) == [4] and told["verdict"] == "dropped"
    told = explain("udp-dport", "9", "ip-ttl", "100")
    assert rules(told) == [] and told["verdict"] == "passes" and told["rewritten"] is None


def test_why_a_rule_does_not_apply(explain):
    told = explain("--why-not", 1, "--why-not", 4, "ip-saddr", "10.0.0.1", "tcp-dport", "80", "tcp-syn")
    first, fourth = told["why_not"]
    holds = {asked["constraint"].split()[0]: asked["holds"] for asked in first["constraints"]}
    assert (first["applies"], holds) == (False, {"ip-saddr": True, "tcp-dport": False, "tcp-syn": True})
    assert [asked["holds"] for asked in fourth["constraints"]] == [False]
    assert "there is no rule 99" in explain("--why-not", 99, "udp-dport", 9, code=1)


def test_a_packet_of_a_capture_has_the_connection_of_those_before_it(explain, tmp_path):
    capture = tmp_path / "in.pcap"
    query = Ether() / IP(src="192.168.0.2", dst="192.0.2.53") / UDP(sport=4000, dport=53) / Raw(b"q")
    wrpcap(str(capture), [query, query, Ether() / IPv6() / TCP(dport=443)])
    first = explain("--pcap", capture)
    assert rules(first) == [3, 5] and first["number"] == 1
    assert first["rewritten"]["source"]["address"] == "192.0.2.200"
    second = explain("--pcap", capture, "--number", 2)
    made, known = first["connection"], second["connection"]
    assert (known["id"], known["reply"], known["new"]) == (made["id"], False, False) and made["new"]
    assert made["sent"]["src"] == "192.0.2.200"
    third = explain("--pcap", capture, "--number", 3)
    assert rules(third) == [2] and third["packet"]["class"] == "ip6"
    assert "it has 3 packets" in explain("--pcap", capture, "--number", 4, code=1)


def spaced(path, packets, seconds):
    """A capture of packets that come so many seconds apart."""
    for number, packet in enumerate(packets):
        packet.time = 1_700_000_000 + number * seconds
    wrpcap(str(path), packets)
    return path


def test_packets_of_a_capture_come_at_their_times(explain, tmp_path):
    """A rate has rested between them, and a connection may be over."""
    (tmp_path / "policy.mmb").write_text("add id 1 udp-dport 55 limit 6/m\nadd-stateful id 2 udp-dport 60 accept\nadd id 3 prio 200 all drop\n")
    to = Ether() / IP(src="10.0.0.1", dst="198.51.100.2")
    query = to / UDP(sport=4000, dport=55) / b"?"
    for seconds, verdict in [(10, "rule"), (1, "rule-limit")]:
        told = explain("--pcap", spaced(tmp_path / "rate.pcap", [query.copy() for _ in range(20)], seconds), "--number", 20)
        assert told["reason"] == verdict, seconds
    pair = [to / UDP(sport=4001, dport=60) / b"?", Ether() / IP(src="198.51.100.2", dst="10.0.0.1") / UDP(sport=60, dport=4001) / b"!"]
    for seconds, verdict in [(1, "passes"), (36_000, "dropped")]:
        told = explain("--pcap", spaced(tmp_path / "pair.pcap", [packet.copy() for packet in pair], seconds), "--number", 2)
        assert told["verdict"] == verdict, seconds


def test_a_packet_is_one_of_a_named_set(explain, tmp_path):
    (tmp_path / "policy.mmb").write_text(
        "set bad {10.9.0.0/16, 2001:db8::/32}\nset none {}\nset ports {8000-8999}\nadd id 1 ip-saddr @bad drop\nadd id 2 ip6-saddr @bad tcp-dport @ports accept\n"
    )
    told = explain("ip-saddr", "@bad", "tcp-dport", "@ports")
    assert decides(told) == [1] and told["packet"]["source"]["address"].startswith("10.9.")
    assert 8000 <= told["packet"]["destination"]["port"] < 9000
    assert decides(explain("ip6-saddr", "@bad", "tcp-dport", "@ports")) == [2]
    for words in (["ip-saddr", "!=", "@bad"], ["!", "ip-saddr", "@bad"]):
        assert rules(explain(*words)) == [], words
    assert "there is no set called 'nope'" in explain("ip-saddr", "@nope", code=1)
    assert "has no elements" in explain("ip-saddr", "@none", code=1)
    assert "cannot be compared" in explain("ip-saddr", "@ports", code=1)


def test_what_is_no_packet_is_said(explain):
    assert "no packet can be made" in explain("payload", '"GET"', code=1)
    assert "can never match" in explain("tcp-dport", "80", "tcp-dport", "81", code=2)
    assert "tcp-dprt" in explain("tcp-dprt", "80", code=2)
    assert "one port" in explain("in", "{lan, wan}", code=1)
    told = explain("ip-proto", "icmp")
    assert 6 in rules(told) and decides(told) == []


def test_of_very_many_rules_the_one_that_decides_is_told(explain, tmp_path):
    lines = [f"add id {n} prio 1 ip-ttl < {100 + n} mod ip-dscp {n}" for n in range(1, 25)]
    (tmp_path / "policy.mmb").write_text("\n".join([*lines, "add id 50 prio 9 udp-dport 9 accept", "add id 51 prio 9 all drop"]))
    told = explain("udp-dport", 9)
    assert rules(told) == list(range(1, 17)) and told["more_rules"] == 10
    assert (told["decisive"], told["verdict"]) == (50, "passes")


def test_what_decides_and_what_becomes_of_the_packet_agree(explain, tmp_path):
    """Of random accept and drop rules of few priorities: the reference is the language's, the lowest prio, on a tie accept."""
    draw = random.Random(7)
    for _ in range(15):
        made = [
            (number, draw.randrange(3), draw.choice(["accept", "drop", "mod ip-dscp 1"]), draw.random() < 0.7)
            for number in range(1, 9)
        ]
        lines = [f"add id {n} prio {prio} udp-dport {9 if meets else 10} {target}" for n, prio, target, meets in made]
        (tmp_path / "policy.mmb").write_text("\n".join(lines))
        told = explain("udp-dport", 9)
        decide = sorted((prio, target != "accept", n) for n, prio, target, meets in made if meets and "mod" not in target)
        assert told["decisive"] == (decide[0][2] if decide else None), lines
        dropped = bool(decide) and decide[0][1]
        assert told["verdict"] == ("dropped" if dropped else "passes"), lines


@pytest.mark.parametrize("words", [["--pcap", "nothing.pcap"], ["--number", "0", "--pcap", "x"]])
def test_wrong_input_is_refused(explain, words):
    assert explain(*words, code=1 if "nothing.pcap" in words else 2)
