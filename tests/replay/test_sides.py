"""Replies arrive on the other port of a wire, with the tags of their connection: a host cannot reply to hosts of its own side."""

import struct
import subprocess

import pytest
from captures import read_pcap, replay_wire, write_pcap
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether

LAN, WAN = "10.0.0.1", "192.0.2.80"
REFLEXIVE = ["add-stateful ip-saddr 10.0.0.0/24 accept", "add all drop"]


def frame(source, destination, transport, *tags):
    packet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    for tag in tags:
        packet /= tag
    return bytes(packet / IP(src=source, dst=destination) / transport)


def conversation(proto, *tags):
    """A packet of one end, and the reply of the other."""
    if proto == "tcp":
        segment = lambda ports, flags, seq, ack: TCP(sport=ports[0], dport=ports[1], flags=flags, seq=seq, ack=ack)
        asks = [segment((5000, 80), "S", 100, 0), segment((5000, 80), "A", 101, 201)]
        answer = segment((80, 5000), "SA", 200, 101)
    elif proto == "udp":
        asks, answer = [UDP(sport=5000, dport=53) / b"ask"], UDP(sport=53, dport=5000) / b"answer"
    else:
        asks, answer = [ICMP(type=8, id=7, seq=1) / b"ask"], ICMP(type=0, id=7, seq=1) / b"ask"
    return [frame(LAN, WAN, ask, *tags) for ask in asks], frame(WAN, LAN, answer, *tags)


def passed(mmb, tmp_path, policy, lan, wan):
    """The packets that left, by number."""
    out, _ = replay_wire(mmb, tmp_path, policy, lan, wan)
    return sorted(out["lan"]) + sorted(out["wan"])


@pytest.mark.parametrize("proto", ["tcp", "udp", "icmp"])
def test_an_inside_host_does_not_answer_itself(mmb, tmp_path, proto):
    asks, answer = conversation(proto)
    alone = [(0, asks[0]), (1, answer), *((2 + at, ask) for at, ask in enumerate(asks[1:]))]
    assert 1 not in passed(mmb, tmp_path, REFLEXIVE, alone, []), "the answer is dropped"
    assert 1 in passed(mmb, tmp_path, REFLEXIVE, [(0, asks[0])], [(1, answer)])


@pytest.mark.parametrize("tags", [[Dot1Q(vlan=10)], [Dot1AD(vlan=10), Dot1Q(vlan=20)]], ids=["one tag", "two"])
@pytest.mark.parametrize("others", [[], [Dot1Q(vlan=11)], [Dot1AD(vlan=10), Dot1Q(vlan=21)]])
@pytest.mark.parametrize("zone", ["vlan", "wire"])
def test_a_reply_has_the_tags_of_its_connection(mmb, tmp_path, tags, others, zone):
    policy = [f"set conn zone {zone}", *REFLEXIVE]
    (ask,), answer = conversation("udp", *tags)
    _, stray = conversation("udp", *others)
    assert 1 in passed(mmb, tmp_path, policy, [(0, ask)], [(1, answer)])
    assert (1 in passed(mmb, tmp_path, policy, [(0, ask)], [(1, stray)])) == (zone == "wire")


def test_vlans_share_inside_addresses_and_outside_ends(mmb, tmp_path):
    """Two customers with the same inside addresses: each gets its own replies."""
    policy = ["add-stateful in lan ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.1"]
    asks = [(vlan, frame(LAN, WAN, UDP(sport=5000, dport=53), Dot1Q(vlan=vlan))) for vlan in (10, 20)]
    answers = [
        (100 + vlan, frame(WAN, "200.0.0.1", UDP(sport=53, dport=5000), Dot1Q(vlan=vlan))) for vlan in (10, 20)
    ]
    out, _ = replay_wire(mmb, tmp_path, policy, asks, answers)
    for vlan in (10, 20):
        sent, back = Ether(out["wan"][vlan]), Ether(out["lan"][100 + vlan])
        assert (sent[IP].src, sent[UDP].sport, sent[Dot1Q].vlan) == ("200.0.0.1", 5000, vlan)
        assert (back[IP].dst, back[UDP].dport, back[Dot1Q].vlan) == (LAN, 5000, vlan)
    out, _ = replay_wire(mmb, tmp_path, policy, asks[:1], answers)
    assert Ether(out["lan"][110])[IP].dst == LAN
    assert out["lan"][120] == answers[1][1], "no packet of this VLAN was sent"


HAIRPIN = ["add-stateful in lan ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.1"]
TO_SERVER = frame(LAN, WAN, UDP(sport=5000, dport=53))
FROM_NEIGHBOUR = frame("10.0.0.2", "200.0.0.1", UDP(sport=6000, dport=5000))


@pytest.mark.parametrize("linktype", [1, 101])
def test_what_goes_back_is_written_where_it_came_from(mmb, tmp_path, linktype):
    """The packet is in the other side's capture, as if it had crossed the wire. A capture without Ethernet cannot contain it."""
    policy = tmp_path / "policy.mmb"
    policy.write_text("\n".join([*HAIRPIN, ""]))
    write_pcap(tmp_path / "lan.pcap", [TO_SERVER, FROM_NEIGHBOUR], start=1)
    # In nanoseconds, and of the other byte order.
    header = struct.pack(">IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, linktype)
    (tmp_path / "wan.pcap").write_bytes(header)
    sides = [f"--port={side}={tmp_path}/{side}.pcap:{tmp_path}/{side}-out.pcap" for side in ("lan", "wan")]
    run = subprocess.run([mmb, "replay", "--rules", policy, *sides], capture_output=True, text=True)
    if linktype != 1:
        assert run.returncode == 1 and "link type" in run.stderr, run.stderr
        return
    assert run.returncode == 0, run.stderr
    back = (tmp_path / "lan-out.pcap").read_bytes()
    assert back[:16] + back[20:24] == header[:16] + header[20:], "but for its snap length"
    seconds, fraction, captured, _ = struct.unpack(">IIII", back[24:40])
    assert (seconds, fraction, captured) == (1_000_000, 2000, len(back) - 40)
    turned = Ether(back[40:])
    assert (turned[IP].src, turned[IP].dst, turned[UDP].dport) == ("200.0.0.1", LAN, 5000)
    (sent,) = [data for _, data in read_pcap(tmp_path / "wan-out.pcap")]
    assert Ether(sent)[IP].src == "200.0.0.1" and Ether(sent)[IP].dst == WAN
