"""Random conversations through NAT, checked from outside: translations are bijections, and their reversal gives the original
packets.

A capture is replayed twice: first only the packets of the inside, to learn their translations; then the same with replies, and
with errors of routers about them. mmb replay gives the same result in every run.
"""

import random
from collections import defaultdict

import pytest
from captures import replay_wire
from conversations import POLICIES, POOL4, POOL6, answer, end, ends, error, outgoing, with_source
from scapy.layers.inet import TCP
from scapy.layers.l2 import Ether

SEEDS = range(4)
# A whole vector: the time of its last packet applies to all, and initial sequence numbers depend on time (RFC 6528).
PACKETS = 256


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("name", POLICIES)
def test_translations_are_bijections_and_undone_on_answers(mmb, tmp_path, name, seed):
    rng = random.Random(seed)
    sent = list(enumerate(outgoing(rng) for _ in range(PACKETS)))
    first, summary = replay_wire(mmb, tmp_path, POLICIES[name], sent, [])
    assert summary["drops"] == {}
    outside = first["wan"]
    assert sorted(outside) == [number for number, _ in sent]

    taken, owners = defaultdict(set), defaultdict(set)
    for number, frame in sent:
        there = end(outside[number])
        taken[end(frame)].add(there)
        owners[there].add(end(frame))
        seq = Ether(outside[number])[TCP].seq if TCP in Ether(frame) else None
        assert outside[number] == with_source(frame, there[1], there[2], seq), f"packet {number}"
        assert there[1] in POOL4 + POOL6
        if name == "range" and there[0] in ("UDP", "TCP"):
            assert 30000 <= there[2] <= 30999
        if seq is not None and name != "shuffle":
            assert seq == Ether(frame)[TCP].seq
    assert all(len(each) == 1 for each in (*taken.values(), *owners.values()))
    paired = defaultdict(set)
    for (_, inside, _), there in taken.items():
        paired[inside] |= {address for _, address, _ in there}
    assert all(len(addresses) == 1 for addresses in paired.values()), "a host has one outside address"

    begin = len(sent)
    answers = [(begin + number, answer(outside[number])) for number, _ in sent]
    errors = [(2 * begin + number, error(outside[number])) for number, _ in sent]
    second, summary = replay_wire(mmb, tmp_path, POLICIES[name], sent, answers + errors)
    # A SYN that another one between the same endpoints has replaced is not in flight any more (RFC 5927).
    last = {ends(frame): number for number, frame in sent if TCP in Ether(frame)}
    replaced = {number for number, frame in sent if last.get(ends(frame), number) != number}
    assert summary["drops"] == ({"icmp-unrelated": len(replaced)} if replaced else {})
    assert second["wan"] == outside, "the same on every run"
    for number, frame in sent:
        assert second["lan"][begin + number] == answer(frame), f"the answer to packet {number}"
        delivered = second["lan"].get(2 * begin + number)
        assert delivered == (None if number in replaced else error(frame)), f"the error about packet {number}"
