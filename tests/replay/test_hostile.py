"""Captures that were damaged on purpose: mmb ends with 0 or 1, and every lost packet is counted."""

import json
import random
import subprocess

import pytest
from captures import write_pcap
from generate import packets_and_policy

POLICY = "add all mod ip-ttl 1 mod ip6-hop-limit 1\nadd tcp-opt strip tcp-opt-timestamp\nadd udp-dport 53 drop\n"


def damaged(data, rng):
    data = bytearray(data)
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(data))
        kind = rng.randrange(4)
        if kind == 0:
            data[at] = rng.randrange(256)
        elif kind == 1:
            data[at:at + 4] = rng.choice([0, 1, 0xFFFFFFFF, 262145, len(data)]).to_bytes(4, "little")
        elif kind == 2:
            del data[at:at + rng.randrange(1, 100)]
        else:
            del data[at + 1:]
    return bytes(data)


def as_pcapng(path, target):
    """The same capture as pcapng, in sections and with names, if editcap is installed."""
    return subprocess.run(["editcap", "-F", "pcapng", path, target], capture_output=True).returncode == 0


@pytest.mark.parametrize("seed", range(30))
def test_damaged_captures_do_no_harm(mmb, tmp_path, seed):
    rng = random.Random(seed)
    frames, _ = packets_and_policy(seed, 60, 0)
    good, bad, rules = tmp_path / "good", tmp_path / "bad", tmp_path / "policy.mmb"
    rules.write_text(POLICY)
    write_pcap(good, frames)
    if seed % 2:
        ng = tmp_path / "good.pcapng"
        try:
            good = ng if as_pcapng(good, ng) else good
        except FileNotFoundError:
            pass  # tested with pcap alone
    for _ in range(10):
        bad.write_bytes(damaged(good.read_bytes(), rng))
        run = subprocess.run([mmb, "replay", "--json", "--rules", rules, bad, tmp_path / "out"],
                             capture_output=True, text=True, timeout=20)
        assert run.returncode in (0, 1), run
        assert "panicked" not in run.stderr, run.stderr
        answer = json.loads(run.stdout)
        assert (run.returncode == 1) == ("error" in answer)
        if "in" in answer:
            assert answer["in"]["packets"] == answer["out"]["packets"] + sum(answer["drops"].values())
