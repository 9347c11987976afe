"""Hosts on a VLAN, whose kernel hands tags over beside the frame, as VLAN interfaces do.

`interfaces` makes VLAN interfaces. Where the kernel has none (they are a module), `push_and_pop` has the same effect on
the cable: two small BPF programs of the traffic classifier put a tag on all that leaves and take it off what comes.
"""

import contextlib
import ctypes
import os
import struct

import pytest

from lab.net import NO_SUCH_LINK_TYPE
from lab.process import run

SYS_BPF = 321
PROG_LOAD, OBJ_PIN = 5, 6
SCHED_CLS = 3
SKB_VLAN_PUSH, SKB_VLAN_POP = 18, 19

_libc = ctypes.CDLL(None, use_errno=True)


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
    programs = {
        "egress": _load([_set(2, 0x0081), _set(3, vlan), _call(SKB_VLAN_PUSH), _set(0, 0), _EXIT]),
        "ingress": _load([_call(SKB_VLAN_POP), _set(0, 0), _EXIT]),
    }
    with _bpf_filesystem(site.folder / "bpf") as folder:
        done = host.run("tc", "qdisc", "add", "dev", "eth0", "clsact", check=False)
        if done.returncode != 0:
            pytest.skip(f"the kernel classifies no traffic on its way out: {done.stderr.strip()}")
        for direction, program in programs.items():
            path = folder / direction
            _pin(program, path)
            os.close(program)
            host.run("tc", "filter", "add", "dev", "eth0", direction, "bpf", "da", "object-pinned", path)


@contextlib.contextmanager
def _bpf_filesystem(folder):
    """tc finds programs by their place there; once attached, they stay without it."""
    folder.mkdir(exist_ok=True)
    run(["mount", "-t", "bpf", "bpf", folder])
    try:
        yield folder
    finally:
        run(["umount", folder])


def _instruction(code, register=0, value=0):
    return struct.pack("<BBhi", code, register, 0, value)


def _set(register, value):
    return _instruction(0xB7, register, value)


def _call(helper):
    return _instruction(0x85, value=helper)


_EXIT = _instruction(0x95)


def _bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes, 128)
    result = _libc.syscall(SYS_BPF, command, buffer, len(buffer))
    if result < 0:
        pytest.skip(f"the kernel takes no BPF programs: {os.strerror(ctypes.get_errno())}")
    return result


def _address(data):
    return ctypes.cast(data, ctypes.c_void_p).value


def _load(instructions):
    code = ctypes.create_string_buffer(b"".join(instructions))
    licence = ctypes.create_string_buffer(b"Apache-2.0")
    attributes = struct.pack("=IIQQ", SCHED_CLS, len(instructions), _address(code), _address(licence))
    return _bpf(PROG_LOAD, attributes)


def _pin(program, path):
    name = ctypes.create_string_buffer(os.fsencode(path))
    _bpf(OBJ_PIN, struct.pack("=QI", _address(name), program))
