"""BPF programs of the traffic classifier, made of single instructions."""

import contextlib
import ctypes
import errno
import os
import socket
import struct

import pytest

from lab.process import run

SYS_BPF = 321
PROG_LOAD, OBJ_PIN, LINK_CREATE = 5, 6, 28
SCHED_CLS = 3
TCX_INGRESS, TCX_EGRESS = 46, 47
# The verdict of a program of a tcx hook (Linux 6.6) that leaves the packet to the next one.
TCX_NEXT = -1

_libc = ctypes.CDLL(None, use_errno=True)


def instruction(code, register=0, value=0, source=0, offset=0):
    return struct.pack("<BBhi", code, source << 4 | register, offset, value)


def set_register(register, value):
    return instruction(0xB7, register, value)


def call(helper):
    return instruction(0x85, value=helper)


EXIT = instruction(0x95)


def _bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes, 128)
    result = _libc.syscall(SYS_BPF, command, buffer, len(buffer))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _address(data):
    return ctypes.cast(data, ctypes.c_void_p).value


def load(instructions):
    """Loads a program; returns its descriptor."""
    code = ctypes.create_string_buffer(b"".join(instructions))
    licence = ctypes.create_string_buffer(b"Apache-2.0")
    attributes = struct.pack("=IIQQ", SCHED_CLS, len(instructions), _address(code), _address(licence))
    try:
        return _bpf(PROG_LOAD, attributes)
    except OSError as why:
        pytest.skip(f"the kernel takes no BPF programs: {why.strerror}")


def pin(program, path):
    name = ctypes.create_string_buffer(os.fsencode(path))
    _bpf(OBJ_PIN, struct.pack("=QI", _address(name), program))


def attach(site, host, programs):
    """Attaches programs at the egress and the ingress of a host's cable, and closes their descriptors. They go with the clsact queueing discipline."""
    with _filesystem(site.folder / "bpf") as folder:
        done = host.run("tc", "qdisc", "add", "dev", "eth0", "clsact", check=False)
        if done.returncode != 0:
            pytest.skip(f"the kernel classifies no traffic on its way out: {done.stderr.strip()}")
        for direction, program in programs.items():
            path = folder / direction
            pin(program, path)
            os.close(program)
            host.run("tc", "filter", "add", "dev", "eth0", direction, "bpf", "da", "object-pinned", path)


@contextlib.contextmanager
def _filesystem(folder):
    """tc finds programs by their place there; once attached, they stay without it."""
    folder.mkdir(exist_ok=True)
    run(["mount", "-t", "bpf", "bpf", folder])
    try:
        yield folder
    finally:
        run(["umount", folder])


@contextlib.contextmanager
def filled_tcx(host, interface):
    """The tcx hook of an interface has all the programs that it may have, which do nothing. A kernel before 6.6 has no such hook."""
    held = []
    try:
        with host.entered():
            index = socket.if_nametoindex(interface)
            try:
                while True:
                    program = load([set_register(0, TCX_NEXT), EXIT])
                    held.append(program)
                    held.append(_bpf(LINK_CREATE, struct.pack("=IIII", program, index, TCX_INGRESS, 0)))
            except OSError as why:
                if why.errno != errno.ERANGE:
                    pytest.skip(f"the kernel has no tcx hooks: {why.strerror}")
        yield
    finally:
        for descriptor in held:
            os.close(descriptor)


def need_tcx(host):
    """Skips the test where the kernel has no tcx hooks."""
    with host.entered():
        program = load([set_register(0, TCX_NEXT), EXIT])
        try:
            os.close(_bpf(LINK_CREATE, struct.pack("=IIII", program, socket.if_nametoindex("lo"), TCX_EGRESS, 0)))
        except OSError as why:
            pytest.skip(f"the kernel has no tcx hooks: {why.strerror}")
        finally:
            os.close(program)
