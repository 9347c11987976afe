"""Hosts on a VLAN, whose kernel hands tags over beside the frame, as VLAN interfaces do.

`interfaces` makes VLAN interfaces. Where the kernel has none (they are a module), `push_and_pop` has the same effect on
the cable: two small BPF programs of the traffic classifier put a tag on all that leaves and take it off what comes.
"""

import pytest

from lab.net import NO_SUCH_LINK_TYPE

from . import bpf

SKB_VLAN_PUSH, SKB_VLAN_POP = 18, 19


def interfaces(site, host, addresses, vlan):
    """Moves a host's addresses to a VLAN interface on its cable."""
    words = ["link", "add", "link", "eth0", "name", "tagged", "type", "vlan", "id", str(vlan)]
    done = host.ip(*words, check=False)
    if done.returncode != 0 and any(text in done.stderr for text in NO_SUCH_LINK_TYPE):
        pytest.skip(f"the kernel has no VLAN interfaces: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    host.ip("addr", "flush", "dev", "eth0")
    host.ip("link", "set", "tagged", "up")
    for address in addresses:
        host.ip("addr", "add", address, "dev", "tagged", *(["nodad"] if ":" in address else []))


def push_and_pop(site, host, addresses, vlan):
    """Tags all frames that the host sends and untags those that it gets."""
    passes = [bpf.set_register(0, 0), bpf.EXIT]
    programs = {
        "egress": bpf.load([bpf.set_register(2, 0x0081), bpf.set_register(3, vlan), bpf.call(SKB_VLAN_PUSH), *passes]),
        "ingress": bpf.load([bpf.call(SKB_VLAN_POP), *passes]),
    }
    bpf.attach(site, host, programs)
