"""Network namespaces, the veth pairs between them, and raw sockets inside them."""

import contextlib
import ctypes
import itertools
import json
import os
import re
import select
import signal
import socket
import struct
import time
from pathlib import Path

from . import sock_diag
from .process import Background, run

# The errors of a kernel that lacks a type of link.
NO_SUCH_LINK_TYPE = ("Unknown device type", "Operation not supported", "not supported")

_PREFIX = "mmbt"
_serial = itertools.count()
# The ports that the kernel chooses from. A test's own ports lie outside: another test's closed connection may linger on a chosen one.
_LOCAL_PORTS = "32768 39999"
_libc = ctypes.CDLL(None, use_errno=True)

CLONE_NEWNET = 0x40000000
SOL_PACKET = 263
PACKET_AUXDATA = 8
PACKET_OUTGOING = 4
ETH_P_ALL = 3
SO_RCVBUFFORCE = 33
TP_STATUS_VLAN_VALID = 1 << 4
TP_STATUS_VLAN_TPID_VALID = 1 << 6


def remove_leftovers():
    """Removes namespaces of killed runs, those whose process no longer exists, with everything that runs in them."""
    for name in run(["ip", "netns", "list"]).stdout.split("\n"):
        match = re.match(rf"{_PREFIX}-(\d+)-", name)
        if match and not Path(f"/proc/{match[1]}").exists():
            _remove(name.split()[0])


def remove_own():
    """Removes this process's namespaces with everything that runs in them: an interruption may leave some."""
    for name in run(["ip", "netns", "list"]).stdout.split():
        if name.startswith(f"{_PREFIX}-{os.getpid()}-"):
            _remove(name)


def _remove(name):
    """Removes a namespace, and ends what runs in it."""
    for pid in run(["ip", "netns", "pids", name], check=False).stdout.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    run(["ip", "netns", "del", name], check=False)


class Namespace:
    """A network namespace with a name that no other process uses."""

    def __init__(self, role):
        self.name = f"{_PREFIX}-{os.getpid()}-{next(_serial)}-{role}"
        run(["ip", "netns", "add", self.name])
        self.ip("link", "set", "lo", "up")
        self.sysctl(net__ipv4__ip_local_port_range=_LOCAL_PORTS)

    def delete(self):
        run(["ip", "netns", "del", self.name], check=False)

    def ip(self, *words, check=True):
        return run(["ip", "-n", self.name, *words], check=check)

    def ip_batch(self, *lines):
        """Runs commands of `ip`, each a line, in one process, until one fails."""
        run(["ip", "-n", self.name, "-batch", "-"], input="".join(f"{line}\n" for line in lines))

    def command(self, words):
        return ["ip", "netns", "exec", self.name, *words]

    def run(self, *words, **options):
        """Runs a command inside, until it ends."""
        return run(self.command(words), **options)

    def start(self, words, log, group=None, **options):
        """Starts a command inside, in a control group if one is given. `ip netns exec` becomes the command: the process id is the
        command's."""
        command = self.command(words)
        return Background(group.command(command) if group else command, log, **options)

    def end_connections(self):
        """Ends all TCP connections inside, also those that ended programs have left to the kernel, which would send for them again."""
        with self.entered():
            sock_diag.destroy_connections()

    def sysctl(self, **values):
        with self.entered():
            for key, value in values.items():
                Path("/proc/sys", *key.split("__")).write_text(f"{value}\n", encoding="ascii")

    @contextlib.contextmanager
    def entered(self):
        """This thread is inside; sockets that it creates stay there."""
        with open("/proc/thread-self/ns/net", "rb") as home, open(f"/run/netns/{self.name}", "rb") as there:
            _setns(there)
            try:
                yield
            finally:
                _setns(home)

    def socket(self, *kind):
        with self.entered():
            return socket.socket(*kind)


def _setns(file):
    if _libc.setns(file.fileno(), CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def veth(one, one_name, other, other_name, mtu=None, queues=None):
    """A veth pair between two namespaces, up, with the kernel's default offloads."""
    shape = [] if queues is None else ["numtxqueues", queues, "numrxqueues", queues]
    peer = ["type", "veth", "peer", "name", other_name, "netns", other.name]
    one.ip("link", "add", one_name, *shape, *peer, *shape)
    size = ["mtu", mtu] if mtu else []
    for namespace, name in ((one, one_name), (other, other_name)):
        namespace.ip("link", "set", name, *size, "up")


def link_drops(namespace, interface):
    """Packets for which the interface's own queues had no room."""
    (link,) = json.loads(namespace.run("ip", "-j", "-s", "link", "show", "dev", interface).stdout)
    return sum(link["stats64"][direction]["dropped"] for direction in ("rx", "tx"))


def ip_counters(namespace):
    """The protocol counters of the namespace, for example `Tcp: RetransSegs`."""
    counters = {}
    lines = namespace.run("cat", "/proc/net/snmp", "/proc/net/netstat").stdout.splitlines()
    for names, values in zip(lines[::2], lines[1::2]):
        (protocol, *names), (_, *values) = names.split(), values.split()
        counters.update({f"{protocol} {name}": int(value) for name, value in zip(names, values)})
    return counters


class RawPort:
    """The wire of one interface: sends frames unchanged, and receives the frames that arrive (not those that its own host sends)."""

    def __init__(self, namespace, interface):
        self.socket = namespace.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        self.socket.bind((interface, ETH_P_ALL))
        self.socket.setblocking(False)

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send(self, frame):
        self.socket.send(bytes(frame))

    def frames(self, timeout=10):
        """Frames as they arrive, until the timeout."""
        deadline = time.monotonic() + timeout
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self.socket], [], [], left)[0]:
                yield from self.drain()

    def drain(self):
        """Frames that have already arrived."""
        with contextlib.suppress(BlockingIOError):
            while True:
                data, ancillary, _, address = self.socket.recvmsg(1 << 17, 256)
                if address[2] != PACKET_OUTGOING:
                    yield _with_tag(data, ancillary)


def _with_tag(data, ancillary):
    """The frame with its outer VLAN tag, which the kernel delivers outside of the frame."""
    for level, kind, value in ancillary:
        if level == SOL_PACKET and kind == PACKET_AUXDATA:
            status, _, _, _, _, tci, tpid = struct.unpack("IIIHHHH", value[:20])
            if status & TP_STATUS_VLAN_VALID:
                tpid = tpid if status & TP_STATUS_VLAN_TPID_VALID else 0x8100
                return data[:12] + struct.pack("!HH", tpid, tci) + data[12:]
    return data
