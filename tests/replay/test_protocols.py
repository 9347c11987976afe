"""UDP-Lite, DCCP, SCTP and GRE through NAT: the output is what the inside would have sent from the outside address, including
checksums.
"""

import socket
import struct

import pytest
from captures import replay_wire
from scapy.layers.inet import IP
from scapy.layers.l2 import GRE, Ether
from scapy.layers.sctp import SCTP, SCTPChunkData, SCTPChunkInit, SCTPChunkInitAck
from scapy.packet import Raw
from scapy.utils import checksum

NAT = "add-stateful in lan ip-saddr 10.0.0.0/24 map ip-saddr 200.0.0.1"
INSIDE, OTHER, OUTSIDE, SERVER = "10.0.0.1", "10.0.0.2", "200.0.0.1", "192.0.2.80"
UDP_LITE, DCCP = 136, 33


def frame(src, dst, upper, **fields):
    return bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src=src, dst=dst, **fields) / upper)


def summed(src, dst, proto, header, payload, covered):
    """A packet whose checksum, at offset 6, covers a pseudo header of its whole length and its first bytes."""
    whole = header + payload
    pseudo = socket.inet_aton(src) + socket.inet_aton(dst) + struct.pack("!HH", proto, len(whole))
    total = checksum(pseudo + whole[:covered])
    whole = whole[:6] + struct.pack("!H", total or (0xFFFF if proto == UDP_LITE else 0)) + whole[8:]
    return frame(src, dst, Raw(whole), proto=proto)


def udp_lite(src, dst, sport, dport):
    header = struct.pack("!HHHH", sport, dport, 11, 0)
    return summed(src, dst, UDP_LITE, header, b"partly covered", 11)


def dccp(src, dst, sport, dport):
    # A request with a long sequence number and a service code; all headers and 4 bytes of data are covered.
    header = struct.pack("!HHBBHBBHII", sport, dport, 5, 2, 0, 1, 0, 0, 7, 42)
    return summed(src, dst, DCCP, header, b"partly covered", 24)


def sctp(src, dst, sport, dport):
    data = SCTPChunkData(data=b"some data", beginning=1, ending=1)
    return frame(src, dst, SCTP(sport=sport, dport=dport, tag=7) / data)


def gre(src, dst, sport, dport):
    return frame(src, dst, GRE(key_present=1, key=max(sport, dport)) / IP(src="1.1.1.1", dst="2.2.2.2"))


@pytest.mark.parametrize("build", [udp_lite, dccp, sctp, gre])
def test_flows_are_told_apart_and_their_checksums_follow(mmb, tmp_path, build):
    ports = [5000, 5001]
    sent = [(number, build(INSIDE, SERVER, port, 80)) for number, port in enumerate(ports)]
    answers = [(10 + number, build(SERVER, OUTSIDE, 80, port)) for number, port in enumerate([*ports, 5002])]
    left, summary = replay_wire(mmb, tmp_path, [f"{NAT} accept", "add in wan drop"], sent, answers)
    assert summary["drops"] == {"rule": 1}, "the last one is unrequested"
    for number, port in enumerate(ports):
        assert left["wan"][number] == build(OUTSIDE, SERVER, port, 80)
        assert left["lan"][10 + number] == build(SERVER, INSIDE, 80, port)


@pytest.mark.parametrize("build", [udp_lite, dccp])
def test_the_port_that_is_chosen_is_summed_up_too(mmb, tmp_path, build):
    sent = [(0, build(INSIDE, SERVER, 5000, 80)), (1, build(OTHER, SERVER, 5000, 80))]
    left, summary = replay_wire(mmb, tmp_path, [NAT], sent, [])
    assert summary["drops"] == {}
    (port,) = struct.unpack_from("!H", left["wan"][1], 34)
    assert port != 5000
    assert left["wan"][1] == build(OUTSIDE, SERVER, port, 80)


@pytest.mark.parametrize("build", [sctp, gre])
def test_what_keeps_its_port_or_key_cannot_share_an_address(mmb, tmp_path, build):
    sent = [(0, build(INSIDE, SERVER, 5000, 80)), (1, build(OTHER, SERVER, 5000, 80))]
    left, summary = replay_wire(mmb, tmp_path, [NAT], sent, [])
    assert summary["drops"] == {"nat-clash": 1}
    assert sorted(left["wan"]) == [0]


def test_an_association_answers_under_its_tags(mmb, tmp_path):
    def packet(forward, tag, chunk):
        ends = (INSIDE, SERVER, 5000, 80) if forward else (SERVER, OUTSIDE, 80, 5000)
        return frame(*ends[:2], SCTP(sport=ends[2], dport=ends[3], tag=tag) / chunk)

    data = SCTPChunkData(data=b"some data", beginning=1, ending=1)
    policy = ["set conn pickup strict", "set conn invalid drop", NAT]
    sent = [(0, packet(True, 0, SCTPChunkInit(init_tag=0x11)))]
    back = [(10, packet(False, 0x11, SCTPChunkInitAck(init_tag=0x22)))]
    back += [(11, packet(False, 0x12, data)), (12, packet(False, 0x11, data))]
    sent += [(20, packet(True, 0x23, data)), (21, packet(True, 0x22, data))]
    left, summary = replay_wire(mmb, tmp_path, policy, sent, back)
    assert summary["drops"] == {"conn-invalid": 2}
    assert (sorted(left["wan"]), sorted(left["lan"])) == ([0, 21], [10, 12])
