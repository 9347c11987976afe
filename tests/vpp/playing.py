"""Frames through VPP and through `mmb replay`: a comparison of the results."""

import re
from dataclasses import dataclass

from captures import read_pcap, replay, write_pcap

from lab.generator import IN, OUT

from .compare import in_order, same_packets
from .routing import refused, routed


def play(generator, frames, leave=OUT, **how):
    """The frames that leave VPP by an interface for this input, and the changes of its nodes' counters."""
    came, left = generator.vpp.folder / "in.pcap", generator.vpp.folder / "out.pcap"
    write_pcap(came, frames)
    generator.vpp.configure("clear errors")
    with generator.captured(left, leave):
        generator.play(came, **how)
    out = [frame for _, frame in read_pcap(left)] if left.exists() else []
    return [frame for frame in out if not said_by_vpp(frame)], generator.vpp.errors()


def said_by_vpp(frame):
    """Whether the frame is VPP's own announcement to its neighbours, which it sends now and then: from a link-local address, which
    no routed packet has."""
    return frame[12:14] == b"\x86\xdd" and frame[22:24] == b"\xfe\x80"


@dataclass
class Expected:
    """The expected results for frames."""

    frames: list
    out: list  # (number, packet as VPP sends it, without link header)
    drops: dict
    rules: dict  # packets by rule


def expect(mmb, folder, policy, frames):
    """The results of `mmb replay` for the frames that VPP routes before and after."""
    frames = [frame for frame in frames if refused(frame) is None]
    there = re.sub(rf"\b(in\s+(?:[!=]=\s+)?){IN}\b", r"\1a", policy)
    out, _ = replay(mmb, folder, there, frames)
    unroutable = {number for number, frame in out if routed(frame) is None}
    frames = [frame for number, frame in enumerate(frames) if number not in unroutable]
    out, summary = replay(mmb, folder, there, frames)
    rules = {rule["id"]: rule["packets"] for rule in summary["rules"]}
    return Expected(frames, [(number, routed(frame)) for number, frame in out], summary["drops"], rules)


def drops_of_nodes(errors):
    """`show errors` of mmb's nodes, by reason. No other node may have counted anything."""
    drops, others = {}, {}
    for (node, reason), count in errors.items():
        if "mmb" in node:
            drops[reason] = drops.get(reason, 0) + count
        else:
            others[node, reason] = count
    assert others == {}
    return drops


def same_as_replay(generator, expected, **how):
    """VPP, with the policy in force, gives the expected results for the frames, and counts them."""
    vpp = generator.vpp
    before = vpp.drops()
    out, errors = play(generator, expected.frames, **how)
    same_packets(out, expected.out, expected.frames)
    in_order(out, expected.out, expected.frames)
    since = {reason: count - before.get(reason, 0) for reason, count in vpp.drops().items()}
    assert {reason: count for reason, count in since.items() if count} == expected.drops
    assert drops_of_nodes(errors) == expected.drops
    assert {number: rule["packets"] for number, rule in vpp.rules().items()} == expected.rules
    assert len(expected.frames) == len(out) + sum(expected.drops.values())
