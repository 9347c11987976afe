"""Fragments in any order through NAT: the test reassembles the output, and each datagram is as NAT would have sent it whole."""

import random

import pytest
from captures import replay
from pieces import checked, datagram, put_together, shuffled
from scapy.layers.inet import UDP

POOL4, POOL6 = "200.0.0.1", "2001:db8:200::1"
NAT = f"""
add-stateful in a ip-saddr 10.0.0.0/24 ip-proto udp map ip-saddr {POOL4} shuffle udp-sport
add-stateful in a ip6-saddr fd00:a::/64 ip-proto udp map ip6-saddr {POOL6}
"""


@pytest.mark.parametrize("seed", range(4))
def test_datagrams_in_shuffled_fragments_leave_whole(mmb, tmp_path, seed):
    frames, sent = shuffled(random.Random(seed), 40)
    out, summary = replay(mmb, tmp_path, NAT, frames)
    assert summary["drops"] == {} and len(out) == len(frames)
    whole = put_together(frame for _, frame in out)
    assert set(whole) == set(sent)
    for number, packet in whole.items():
        left = checked(packet)
        assert left.src in (POOL4, POOL6)
        assert left[UDP].dport == 9000 + number and bytes(left[UDP].payload) == sent[number]


def test_fragments_whose_first_one_does_not_come_are_counted(mmb, tmp_path):
    pieces, _ = datagram(random.Random(7), 1)
    out, summary = replay(mmb, tmp_path, NAT, pieces[:0:-1])
    assert out == [] and summary["drops"] == {"fragment-early": len(pieces) - 1}
