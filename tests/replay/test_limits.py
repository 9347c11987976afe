"""Rates in captures, by a token bucket in exact arithmetic: each packet has the time of its record."""

import json
import subprocess
from fractions import Fraction

import pytest
from scapy.utils import rdpcap, wrpcap
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether


def passing(times_us, rate, burst):
    """The packets that a token bucket lets pass, which is full at first."""
    left, last, passed = Fraction(burst), times_us[0], []
    for number, time in enumerate(times_us):
        left = min(Fraction(burst), left + Fraction(rate * (time - last), 1_000_000))
        last = time
        if left >= 1:
            left -= 1
            passed.append(number)
    return passed


@pytest.mark.parametrize(("per_second", "rate", "burst"), [(90, 100, 5), (200, 100, 5), (1000, 100, 20), (7, 3, 1)])
def test_a_limit_counts_by_the_time_of_each_packet(mmb, tmp_path, per_second, rate, burst):
    times = [number * 1_000_000 // per_second for number in range(3 * per_second)]
    frames = []
    for number, time in enumerate(times):
        frame = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src="10.0.0.1", dst="10.0.0.2", id=number) / UDP(dport=53)
        frame.time = 1_000_000 + Fraction(time, 1_000_000)
        frames.append(frame)
    rules, source, sink = tmp_path / "policy.mmb", tmp_path / "in.pcap", tmp_path / "out.pcap"
    rules.write_text(f"add all limit {rate}/s burst {burst}\n")
    wrpcap(str(source), frames)
    run = subprocess.run([mmb, "replay", "--json", "--rules", rules, source, sink], capture_output=True, text=True, check=True)
    passed = [frame[IP].id for frame in rdpcap(str(sink))]
    assert len(passed) + json.loads(run.stdout)["drops"].get("rule-limit", 0) == len(frames)
    # mmb rounds the time of a packet to less than a billionth of a second, which may decide about one that comes when the bucket just holds it.
    assert len(set(passed) ^ set(passing(times, rate, burst))) <= 2
