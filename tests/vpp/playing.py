"""Frames through VPP, and through `mmb replay`."""

from captures import read_pcap, write_pcap


def play(generator, frames, **how):
    """The frames that leave VPP for these, and what its nodes counted meanwhile."""
    came, left = generator.vpp.folder / "in.pcap", generator.vpp.folder / "out.pcap"
    write_pcap(came, frames)
    generator.vpp.tell("clear errors")
    with generator.captured(left):
        generator.play(came, **how)
    return [frame for _, frame in read_pcap(left)] if left.exists() else [], generator.vpp.errors()
