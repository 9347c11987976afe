"""Rates in captures, by a token bucket in exact arithmetic: each packet has the time of its record."""

from fractions import Fraction

import pytest
from captures import replay_both
from scapy.compat import raw
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
    frames = [raw(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / IP(src="10.0.0.1", dst="10.0.0.2", id=number) / UDP(dport=53))
              for number in range(len(times))]
    left, summary = replay_both(mmb, tmp_path, [f"add all limit {rate}/s burst {burst}"], list(zip(times, frames)), [])
    expected = passing(times, rate, burst)
    # Of packets that come when the bucket is about to hold one, mmb may count a billionth of a second otherwise.
    passed = [IP(frame[14:]).id for _, frame in left["wan"]]
    assert len(passed) + summary["drops"].get("rule-limit", 0) == len(frames)
    assert len(set(passed) ^ set(expected)) <= 2, (passed, expected)
