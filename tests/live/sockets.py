"""Plain sockets in the namespaces of a site. The other end of an exchange reports the peer that it saw: this shows tests the
effect of a translation. Every wait has a timeout."""

import contextlib
import socket
import struct

TIMEOUT = 10
# The time that a test waits for packets that must not arrive.
SILENCE = 0.4


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def udp(namespace, address, port=0):
    bound = namespace.socket(family_of(address), socket.SOCK_DGRAM)
    bound.bind((address, port))
    bound.settimeout(TIMEOUT)
    return bound


def _share(made):
    """One port may listen, connect and linger."""
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)


def listener(namespace, address, port, backlog=64):
    bound = namespace.socket(family_of(address), socket.SOCK_STREAM)
    _share(bound)
    bound.bind((address, port))
    bound.listen(backlog)
    bound.settimeout(TIMEOUT)
    return bound


def tcp(namespace, source, target, sport=0, timeout=TIMEOUT):
    """A connection from the address `source` to `target`, an address and a port; raises the kernel's error."""
    with namespace.entered():
        return connected((source, sport), target, timeout)


def connected(source, target, timeout=TIMEOUT):
    """The same in the namespace of the current thread."""
    made = socket.socket(family_of(source[0]), socket.SOCK_STREAM)
    _share(made)
    made.settimeout(timeout)
    try:
        made.bind(source)
        made.connect(target)
    except OSError:
        made.close()
        raise
    made.settimeout(TIMEOUT)
    return made


def ask(here, there, text=b"hello"):
    """Sends a datagram from one bound socket to the other's own address, which replies; returns the peer that the other socket
    saw."""
    return ask_at(here, there, there.getsockname()[:2], text)


def ask_at(here, there, target, text=b"hello"):
    """The same, to an address that is translated to the other's."""
    here.sendto(text, target)
    seen = receive(there, text)
    there.sendto(b"re " + text, seen)
    assert receive(here, b"re " + text) == tuple(target), "the answer comes from the target"
    return seen


def receive(there, text):
    """Waits for this datagram, ignores earlier ones, and returns its sender."""
    while True:
        data, seen = there.recvfrom(65536)
        if data == text:
            return seen[:2]


def heard(there):
    """Whether any datagram arrives."""
    there.settimeout(SILENCE)
    try:
        return bool(there.recv(65536))
    except (TimeoutError, ConnectionError):
        return False
    finally:
        there.settimeout(TIMEOUT)


def opened(here, source, target, listening, sport=0):
    """A TCP connection and its other end: both sockets, and the peer that the other end saw."""
    near = tcp(here, source, target, sport)
    try:
        far, seen = listening.accept()
    except OSError:
        near.close()
        raise
    far.settimeout(TIMEOUT)
    return near, far, seen[:2]


def talk(near, far, text=b"to and fro"):
    """Transfers bytes in both directions of a connection."""
    for source, target in ((near, far), (far, near)):
        source.sendall(text)
        got = b""
        while len(got) < len(text):
            got += target.recv(65536) or _ended()
        assert got == text


def _ended():
    raise AssertionError("the connection ended")


def refused(namespace, source, target, timeout=1):
    """Why a TCP connection cannot be opened: the name of the error, `timeout` without a reply; None if it opens."""
    try:
        tcp(namespace, source, target, timeout=timeout).close()
    except TimeoutError:
        return "timeout"
    except OSError as error:
        return type(error).__name__
    return None


@contextlib.contextmanager
def closing(*sockets):
    try:
        yield sockets
    finally:
        for each in sockets:
            each.close()


@contextlib.contextmanager
def resetting(*sockets):
    """Ends TCP connections by a RST: nothing of them is sent again later, where a test has dropped what they sent."""
    with closing(*sockets):
        yield sockets
        for each in sockets:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
