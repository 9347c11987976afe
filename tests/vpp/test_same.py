"""Policies and captures through VPP and `mmb replay`: the same packets, byte for byte, except for the changes of VPP's routing."""

import os
import random
import struct
from pathlib import Path

import pytest
from captures import read_pcap
from generate import Policies
from model import Meta, ModVlan
from test_random import refused as refused_rules

from lab.generator import IN, Generator

from . import routing
from .packets import Routed
from .playing import expect, same_as_replay

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
# For captures in the simplest format: the places of the magic number and of the link type, Ethernet, in the file header.
MAGIC, ETHERNET = struct.pack("<I", 0xA1B2C3D4), struct.pack("<I", 1)
# VPP's features see only IP packets, without their output port.
ONLY_ON_WIRES = {"out", "vlan-id", "eth-type"}

ROUNDS = int(os.environ.get("MMB_ROUNDS", "25"))
FIRST = int(os.environ.get("MMB_SEED", "1"))
PACKETS, RULES = 300, 8


def golden_cases():
    """The cases whose capture is Ethernet in the simplest format, whose options need no wire, and with packets that VPP routes."""
    for folder in sorted(GOLDEN.iterdir()):
        capture = folder / "in.pcap"
        if not capture.exists() or (folder / "arguments").exists():
            continue
        words = set((folder / "policy.mmb").read_text().split())
        head = capture.read_bytes()[:24]
        if head[:4] != MAGIC or head[20:] != ETHERNET or words & (ONLY_ON_WIRES | {"disable"}):
            continue
        if any(routing.refused(frame) is None for _, frame in read_pcap(capture)):
            yield folder.name


@pytest.fixture(scope="module")
def generator(vpp_with_mmb):
    made = Generator(vpp_with_mmb)
    vpp_with_mmb.enable(IN)
    return made


@pytest.mark.parametrize("name", golden_cases())
def test_golden_cases(generator, vpp, mmb, tmp_path, name):
    policy = (GOLDEN / name / "policy.mmb").read_text()
    frames = [frame for _, frame in read_pcap(GOLDEN / name / "in.pcap")]
    expected = expect(mmb, tmp_path, policy, frames)
    vpp.apply(policy)
    same_as_replay(generator, expected)


def on_routed_ports(rules):
    """The rules with the same meaning in VPP, for its port."""
    for rule in rules:
        metas = {match.name: match for match in rule.matches if isinstance(match, Meta)}
        if metas.keys() & ONLY_ON_WIRES or any(isinstance(target, ModVlan) for target in rule.targets):
            continue
        if "in" in metas:
            metas["in"].value = IN
        yield rule


def random_policy(mmb, folder, rng, frames):
    """Rules that some of the frames match, without those that mmb refuses."""
    rules = [rule for rule in on_routed_ports(Policies(rng, frames).policy(2 * RULES))][:RULES]
    for number in sorted(refused_rules(mmb, folder, rules), reverse=True):
        del rules[number]
    return "".join(f"{rule}\n" for rule in rules)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + ROUNDS))
def test_random_policies(generator, vpp, mmb, tmp_path, seed):
    rng = random.Random(seed)
    frames = Routed(rng).frames(PACKETS)
    policy = random_policy(mmb, tmp_path, rng, frames)
    expected = expect(mmb, tmp_path, policy, frames)
    assert len(expected.frames) > PACKETS / 2
    vpp.apply(policy)
    same_as_replay(generator, expected, together=rng.choice([1, 3, 256]))
