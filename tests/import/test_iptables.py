"""`mmb import iptables`: the policy decides as the simple evaluation of the chains, and omissions have the reported effect.

`MMB_ROUNDS=500 pytest tests/import` runs more rounds than the default; a failure names its seed.
"""

import os
import pathlib
import random
import subprocess

import pytest
from chains import Family, dump, packet
from iptables import Rules, Seen
from running import accepted, import_policy
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap, wrpcap

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
ROUNDS = int(os.environ.get("MMB_ROUNDS", "40"))
PACKETS = 120


def verdicts(text, packets, coin=lambda: True, chain="FORWARD"):
    rules = Rules(text)
    return [rules.verdict(chain, Seen(one, "a", "b"), coin) == "ACCEPT" for one in packets]


def describe(text, imported, packets, numbers):
    lines = [f"{packets[number].summary()} {bytes(packets[number]).hex()}" for number in numbers[:3]]
    return "\n".join([*lines, text, imported.policy])


@pytest.mark.parametrize("six", [False, True], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("seed", range(1, ROUNDS + 1))
def test_chains_become_a_list(mmb, tmp_path, seed, six):
    chance, family = random.Random(seed), Family(six)
    text = dump(chance, family)
    packets = [packet(chance, family) for _ in range(PACKETS)]
    imported = import_policy(mmb, "iptables", text)
    # This test sends no packets that the language cannot distinguish.
    assert all("later fragments of IPv6" in left_out["reason"] for left_out in imported.left_out)
    expected, got = verdicts(text, packets), accepted(mmb, tmp_path, imported.policy, packets)
    wrong = [number for number in range(PACKETS) if got[number] != expected[number]]
    assert not wrong, describe(text, imported, packets, wrong)


@pytest.mark.parametrize("seed", range(1, ROUNDS + 1))
def test_what_is_left_out_does_what_is_said(mmb, tmp_path, seed):
    chance, family = random.Random(seed), Family(False)
    text = dump(chance, family, unknown=0.15)
    packets = [packet(chance, family) for _ in range(PACKETS)]
    imported = import_policy(mmb, "iptables", text)
    got = accepted(mmb, tmp_path, imported.policy, packets)
    for coin in (lambda: True, lambda: False, lambda: chance.random() < 0.5):
        expected = verdicts(text, packets, coin)
        looser = [number for number in range(PACKETS) if got[number] and not expected[number]]
        stricter = [number for number in range(PACKETS) if expected[number] and not got[number]]
        if imported.effect in ("none", "stricter"):
            assert not looser, describe(text, imported, packets, looser)
        if imported.effect in ("none", "looser"):
            assert not stricter, describe(text, imported, packets, stricter)


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.save")), ids=lambda path: path.stem)
def test_golden(mmb, path):
    """The translations of the examples, verbatim; `MMB_BLESS=1` writes them again."""
    first = path.read_text().split("\n", 1)[0]
    options = first.removeprefix("# options:").split() if first.startswith("# options:") else []
    imported = import_policy(mmb, "iptables", path.read_text(), *options)
    policy = path.with_suffix(".mmb")
    if os.environ.get("MMB_BLESS"):
        policy.write_text(imported.policy)
    assert imported.policy == policy.read_text()


def test_input_is_another_chain(mmb, tmp_path):
    text = "*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n-A INPUT -i lo -j ACCEPT\n-A INPUT -s 10.0.0.0/8 -j ACCEPT\n"
    imported = import_policy(mmb, "iptables", text, "--chain", "INPUT")
    assert not imported.left_out and " in lo" not in imported.policy
    chance, family = random.Random(1), Family(False)
    packets = [packet(chance, family) for _ in range(PACKETS)]
    assert accepted(mmb, tmp_path, imported.policy, packets) == verdicts(text, packets, chain="INPUT")


def test_both_families_go_into_one_policy(mmb, tmp_path):
    """The rules of a family match only its packets."""
    chance = random.Random(7)
    texts = {six: dump(chance, Family(six)) for six in (False, True)}
    policy = "".join(import_policy(mmb, "iptables", text).policy for text in texts.values())
    for six, text in texts.items():
        packets = [packet(chance, Family(six)) for _ in range(PACKETS)]
        assert accepted(mmb, tmp_path, policy, packets) == verdicts(text, packets)


def test_strict_writes_nothing_if_something_is_left_out(mmb, tmp_path):
    text, out = "*filter\n:FORWARD DROP [0:0]\n-A FORWARD -m mark --mark 1 -j ACCEPT\n", tmp_path / "out.mmb"
    run = subprocess.run([mmb, "import", "iptables", "--strict", "-o", out, "-"], input=text, capture_output=True,
                         text=True)
    assert run.returncode == 1 and not out.exists()
    assert "line 3: left out: -m mark" in run.stderr and "the policy is stricter" in run.stderr


@pytest.mark.parametrize("text, message", [
    ("*nat\n:PREROUTING ACCEPT [0:0]\n", "no chain FORWARD"),
    ("*filter\n:FORWARD ACCEPT [0:0]\n:a - [0:0]\n-A FORWARD -j a\n-A a -j a\n", "line 5: the chain a comes back"),
    ("nonsense\n", "line 1: this is no line of iptables-save"),
])
def test_what_is_no_dump_is_refused(mmb, text, message):
    run = subprocess.run([mmb, "import", "iptables", "-"], input=text, capture_output=True, text=True)
    assert run.returncode == 1 and message in run.stderr and not run.stdout


CLASSIC = """*filter
:FORWARD DROP [0:0]
-A FORWARD -m state --state INVALID -j DROP
-A FORWARD -m state --state ESTABLISHED,RELATED -j ACCEPT
-A FORWARD -i lan -j ACCEPT
-A FORWARD -i wan -p tcp -m tcp --dport 22 -m conntrack --ctstate NEW -j ACCEPT
COMMIT
"""


def test_the_classic_chain_of_states_lets_in_what_was_asked_for(mmb, tmp_path):
    """The behaviour of the kernel's conntrack on these packets: the table of nf_conntrack_proto_tcp.c, tcp_loose, and icmp_error."""
    inside, outside = "10.0.0.1", "192.0.2.80"
    leaves = lambda upper: Ether() / IP(src=inside, dst=outside) / upper
    enters = lambda upper: Ether() / IP(src=outside, dst=inside) / upper
    asked = IP(src=inside, dst=outside) / UDP(sport=5000, dport=53)
    other = IP(src=inside, dst=outside) / UDP(sport=5999, dport=53)
    steps = [
        ("wan", enters(UDP(sport=53, dport=5000)), False, "no query was sent"),
        ("lan", leaves(UDP(sport=5000, dport=53)), True, "from inside"),
        ("wan", enters(UDP(sport=53, dport=5000)), True, "the answer"),
        ("wan", enters(UDP(sport=54, dport=5000)), False, "another source port"),
        ("wan", enters(ICMP(type=3, code=3) / asked), True, "an error about it"),
        ("wan", enters(ICMP(type=3, code=3) / other), False, "an error about nothing"),
        ("wan", enters(TCP(sport=80, dport=6000, flags="SA", seq=9, ack=1)), False, "an answer to no SYN"),
        ("lan", leaves(TCP(sport=6000, dport=80, flags="S", seq=100)), True, "a SYN"),
        ("wan", enters(TCP(sport=80, dport=6000, flags="SA", seq=900, ack=101)), True, "its answer"),
        ("lan", leaves(TCP(sport=6000, dport=80, flags="A", seq=101, ack=901)), True, "the last step"),
        ("wan", enters(TCP(sport=7000, dport=22, flags="S", seq=100)), True, "the one service"),
        ("lan", leaves(TCP(sport=22, dport=7000, flags="SA", seq=500, ack=101)), True, "answers"),
        ("wan", enters(TCP(sport=7000, dport=22, flags="A", seq=101, ack=501)), True, "and is used"),
        ("wan", enters(TCP(sport=7001, dport=23, flags="S", seq=100)), False, "no service"),
    ]
    rules = tmp_path / "policy.mmb"
    rules.write_text(import_policy(mmb, "iptables", CLASSIC).policy)
    words = [mmb, "replay", "--rules", rules]
    for side in ("lan", "wan"):
        frames = []
        for number, (port, frame, _, _) in enumerate(steps):
            frame.time = 1000 + number
            if port == side:
                frames.append(frame)
        wrpcap(str(tmp_path / f"{side}.pcap"), frames)
        words += ["--port", f"{side}={tmp_path}/{side}.pcap:{tmp_path}/{side}-out.pcap"]
    run = subprocess.run(words, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    passed = {int(frame.time) - 1000 for side in ("lan", "wan") for frame in rdpcap(str(tmp_path / f"{side}-out.pcap"))}
    for number, (_, _, passes, what) in enumerate(steps):
        assert (number in passed) == passes, what
