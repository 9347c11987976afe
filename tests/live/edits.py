"""What rules that edit must make of streams, in plain Python, and flows of bytes to judge by it."""

import contextlib
import hashlib
import random
import re
import socket
import threading
import time

from .sockets import closing, listener, opened
from .topology import CLIENT4, SERVER4

PORT = 9100


def edited(data, *edits):
    """The bytes as rules make them: leftmost, of those that begin at one byte the longest, then the rule that stands first; what was
    written is not searched. An edit is a pattern (bytes: a text; or a compiled regex that prefers its longest match) and what stands in
    its place: bytes, or a function of what was found."""
    searches = [(re.compile(re.escape(what)) if isinstance(what, bytes) else what, by) for what, by in edits]
    found = [search.search(data) for search, _ in searches]
    out, at = [], 0
    while any(found):
        _, _, number = min((match.start(), -match.end(), number) for number, match in enumerate(found) if match)
        match, by = found[number], searches[number][1]
        out += [data[at : match.start()], by(match[0]) if callable(by) else by]
        at = match.end()
        found = [
            search.search(data, at) if each and each.start() < at else each for (search, _), each in zip(searches, found)
        ]
    return b"".join([*out, data[at:]])


def masked(by=b"*"):
    """A mask: the text repeated or cut to what was found."""
    return lambda found: (by * len(found))[: len(found)]


# An edit by each target: the rule's words and what Python makes of the match.
TARGETS = {
    "mask": ('mask {field} "#-"', masked(b"#-")),
    "strip": ("strip {field}", b""),
    "mod": ('mod {field} "<\\m! and more>"', lambda found: b"<" + found + b"! and more>"),
}


def rule(target, text='"MATCH"', port=PORT, field="stream", proto="tcp"):
    """The words of a rule on a port, behind `add-stateful`."""
    return f"{proto}-dport {port} {field} {text} " + TARGETS[target][0].format(field=field)


def full_of(text, count, seed=1):
    """Numbered pieces of all sizes up to 1,000 bytes, each with the text: more than one in a segment."""
    rng = random.Random(seed)
    return b"".join(b"%07d" % number + rng.randbytes(rng.randrange(990)).replace(text, b"") + text for number in range(count))


class Flow:
    """Sends bytes from one socket to the other, in a thread for each, and ends the direction."""

    def __init__(self, here, there, data, expected, pieces=None, pause=0):
        self.here, self.there, self.data, self.expected = here, there, data, expected
        self.pieces, self.pause = pieces, pause
        self.got, self.error, self.seconds = bytearray(), None, None
        self.threads = [threading.Thread(target=self._send, daemon=True), threading.Thread(target=self._receive, daemon=True)]

    def _send(self):
        data = memoryview(self.data)
        try:
            while data:
                count = self.pieces() if self.pieces else len(data)
                self.here.sendall(data[:count])
                data = data[count:]
                if self.pause:
                    time.sleep(self.pause)
            self.here.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.error = f"sending: {error!r}"

    def _receive(self):
        began = time.monotonic()
        try:
            while more := self.there.recv(1 << 18):
                self.got += more
        except OSError as error:
            self.error = f"receiving: {error!r}"
        self.seconds = time.monotonic() - began

    def start(self):
        for thread in self.threads:
            thread.start()
        return self

    def join(self, deadline):
        for thread in self.threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        assert not any(thread.is_alive() for thread in self.threads), f"it stalls: {self.difference()}"

    def check(self):
        assert self.error is None and self.got == self.expected, f"{self.error}; {self.difference()}"
        assert hashlib.sha256(self.got).digest() == hashlib.sha256(self.expected).digest()

    def difference(self):
        """Where what arrived leaves what was expected."""
        got, expected = bytes(self.got), self.expected
        at = next((n for n, (one, other) in enumerate(zip(got, expected)) if one != other), min(len(got), len(expected)))
        where = slice(max(0, at - 20), at + 30)
        return f"{len(got)} of {len(expected)} bytes, alike up to {at}: {got[where]!r} for {expected[where]!r}"


def carry(flows, timeout=60):
    """Runs flows at once; what arrives must be what was expected."""
    deadline = time.monotonic() + timeout
    for flow in flows:
        flow.start()
    for flow in flows:
        flow.join(deadline)
    for flow in flows:
        flow.check()


@contextlib.contextmanager
def pairs(site, count, addresses=(CLIENT4, SERVER4), port=PORT, timeout=60):
    """TCP connections through mmb: the client's and the server's sockets."""
    client, server = addresses
    with contextlib.ExitStack() as stack, closing(listener(site.server, server, port, 512)) as (listening,):
        made = []
        for _ in range(count):
            near, far, _ = opened(site.client, client, (server, port), listening)
            stack.enter_context(closing(near, far))
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end.settimeout(timeout)
            made.append((near, far))
        yield made


def small(seed):
    """Sizes of writes that cut texts anywhere."""
    rng = random.Random(seed)
    return lambda: min(rng.choice((1, 2, 3, 4, 7, 60, 700, 3000)), rng.randrange(1, 4000))
