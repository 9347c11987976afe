"""Senders that try to get a text through a guard: raw frames against a real Linux receiver.

Whatever the sender does, the receiver's application never reads the whole text. Where the receiver and mmb must agree on what the
stream is (RFC 9293), the outcome is told: the connection is closed, or these bytes arrive. The receiver can be made to lose single
frames behind mmb, as with a low TTL: what mmb saw first is what the receiver gets, however it is sent again.
"""

import contextlib
import itertools
import socket
import struct
import time

import pytest
from scapy.layers.inet import TCP
from scapy.layers.l2 import Ether

from lab.net import RawPort
from lab.process import wait_until

from .sockets import closing, listener
from .test_streams import ATTACK, BOTH, is_reset, pair, received
from .topology import CLIENT4, SERVER4, Site

PORT = 9100
# A host that has no kernel.
SENDER, SENDER_MAC = "10.0.0.77", bytes.fromhex("02000000cafe")
FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32
DATA = PSH | ACK
# The receiver loses packets with this identification.
LOST = 0x4242
# What the application must read is only that it is not the text.
ANYTHING = object()
CLOSED = object()

_ports = itertools.count(20_000)


@pytest.fixture(scope="module")
def site(namespaces, tmp_path_factory):
    """A server that resolves the sender, and that loses what it is told to."""
    with Site(tmp_path_factory.mktemp("evasion"), "af_xdp") as made:
        made.server.ip("neigh", "replace", SENDER, "lladdr", "02:00:00:00:ca:fe", "dev", "eth0")
        lossy = f"add table ip lossy; add chain ip lossy in {{ type filter hook prerouting priority raw; }}; add rule ip lossy in ip id {LOST} drop"
        done = made.server.run("nft", lossy, check=False)
        if done.returncode != 0:
            pytest.skip(f"no nftables: {done.stderr}")
        words = made.server.run("cat", "/sys/class/net/eth0/address").stdout.strip()
        made.server_mac = bytes.fromhex(words.replace(":", ""))
        made.daemon = made.mmb().start()
        yield made


@pytest.fixture
def mmb(site):
    site.reset()
    site.daemon("set stream urgent clear")
    site.daemon("set stream unfit pass")
    yield site.daemon
    assert site.daemon.running(), "mmb ended"
    site.daemon.wait_until_settled()


def sum_up(data):
    """The Internet checksum (RFC 1071)."""
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - ((total & 0xFFFF) + (total >> 16))


TIMESTAMPS = struct.pack("!BBBBII", 1, 1, 8, 10, 100_000, 0)
MD5 = struct.pack("!BB16sBB", 19, 18, b"not a signature!", 1, 1)


class Sender:
    """A TCP client frame by frame: offsets count from the first byte of the stream."""

    def __init__(self, site, wire, isn=5_000, options=b""):
        self.site, self.wire = site, wire
        self.port, self.isn, self.irs = next(_ports), isn, None
        self.options = options
        self.id = 0

    def segment(self, flags, data, seq, ack, options=b"", offset=None, urgent=0, bad=False):
        tail = struct.pack("!HHIIBBHHH", self.port, PORT, seq % 2**32, ack % 2**32, 0, flags, 60_000, 0, urgent)
        words = 5 + len(options) // 4 if offset is None else offset
        tail = tail[:12] + bytes([words << 4]) + tail[13:] + options + data
        addresses = socket.inet_aton(SENDER) + socket.inet_aton(SERVER4)
        check = sum_up(addresses + struct.pack("!HH", 6, len(tail)) + tail)
        return tail[:16] + struct.pack("!H", check ^ (0x1234 if bad else 0)) + tail[18:]

    def packet(self, payload, lost=False, fragment=0, id=None, options=b"", padding=b""):
        self.id = id or (LOST if lost else self.id % 0x4000 + 1)
        head = struct.pack("!BBHHHBBH", 0x45 + len(options) // 4, 0, 20 + len(options) + len(payload), self.id, fragment, 64, 6, 0)
        head += socket.inet_aton(SENDER) + socket.inet_aton(SERVER4) + options
        head = head[:10] + struct.pack("!H", sum_up(head)) + head[12:]
        self.wire.send(self.site.server_mac + SENDER_MAC + b"\x08\x00" + head + payload + padding)

    def send(self, at, data=b"", flags=DATA, ack=0, lost=False, padding=b"", **fields):
        """A segment whose first byte is this one of the stream; its acknowledgment is off by `ack`."""
        fields.setdefault("options", self.options)
        seq, number = self.isn + 1 + at, (self.irs + 1 + ack if flags & ACK else 0)
        self.packet(self.segment(flags, data, seq, number, **fields), lost=lost, padding=padding)

    def open(self, data=b""):
        self.packet(self.segment(SYN, data, self.isn, 0, self.options))
        for frame in self.wire.frames(timeout=5):
            answer = Ether(frame)
            if TCP in answer and answer[TCP].dport == self.port and answer[TCP].flags.S:
                self.irs = answer[TCP].seq
                self.send(0, flags=ACK)
                return answer[TCP].ack
        raise AssertionError("no SYN-ACK")


@contextlib.contextmanager
def attack(site, data=b"", **fields):
    """A sender's connection, and the receiver's socket."""
    with closing(listener(site.server, SERVER4, PORT)) as (listening,), RawPort(site.client, "eth0") as wire:
        sender = Sender(site, wire, **fields)
        sender.open(data)
        far, _ = listening.accept()
        with closing(far):
            yield sender, far


def what_is_read(far, count):
    """What the application reads: until the end, until the count and a moment beyond it, or until silence."""
    got, deadline = b"", time.monotonic() + 3
    while True:
        far.settimeout(0.15 if len(got) >= count else max(0.15, deadline - time.monotonic()))
        try:
            more = far.recv(1 << 16)
        except TimeoutError:
            return got, "silence"
        except ConnectionResetError:
            return got, "reset"
        if not more:
            return got, "end"
        got += more


def bytewise(s, text=ATTACK, order=range(6)):
    for at in order:
        s.send(at, text[at : at + 1])


def holes(s):
    """More holes than mmb keeps ranges; what had no room is sent again."""
    text = b"." * 200 + ATTACK + b"." * 200
    for _ in range(4):
        for step in (1, 0):
            for at in range(step, len(text), 2):
                s.send(at, text[at : at + 1])


def fragments(s):
    segment = s.segment(DATA, b"...." + ATTACK, s.isn + 1, s.irs + 1)
    s.packet(segment[:24], fragment=0x2000, id=0x77)
    s.packet(segment[24:], fragment=3, id=0x77)


def steps(*segments):
    """Segments one after another: positional and named parts of `Sender.send`."""

    def run(s):
        for at, data, *fields in segments:
            s.send(at, data, **(fields[0] if fields else {}))

    return run


_WHOLE = (0, ATTACK)
_LOST = {"lost": True}
X6 = b"XXXXXX"

# What is sent, and what becomes of it.
EVASIONS = {
    "the text at once": (steps(_WHOLE), CLOSED),
    "in single bytes": (bytewise, CLOSED),
    "in single bytes, the last one first": (lambda s: bytewise(s, order=reversed(range(6))), CLOSED),
    "in single bytes, mixed, each twice": (lambda s: bytewise(s, order=(3, 5, 3, 1, 1, 5, 4, 0, 0, 4, 2, 2)), CLOSED),
    "out of order": (steps((4, b"CK"), (2, b"TA"), (0, b"AT")), CLOSED),
    "overlapping pieces": (steps((0, b"ATT"), (1, b"TTA"), (2, b"TACK")), CLOSED),
    "with more holes than are kept": (holes, CLOSED),
    "behind other bytes with a bad checksum": (steps((0, X6, {"bad": True}), _WHOLE), CLOSED),
    "behind other bytes with an old number": (steps((0, b"AT"), (-4, X6), (2, b"TACK")), CLOSED),
    "behind other bytes with a number beyond the window": (steps((1 << 30, X6), _WHOLE), CLOSED),
    "behind other bytes that acknowledge what was not sent": (steps((0, X6, {"ack": 100_000}), _WHOLE), CLOSED),
    "behind other bytes that acknowledge what is long ago": (steps((0, X6, {"ack": -(1 << 30)}), _WHOLE), CLOSED),
    "behind other bytes without ACK": (steps((0, X6, {"flags": PSH}), _WHOLE), CLOSED),
    "behind other bytes without flags": (steps((0, X6, {"flags": 0}), _WHOLE), CLOSED),
    "behind other bytes with a header that is too short": (steps((0, X6, {"offset": 4}), _WHOLE), CLOSED),
    "behind other bytes with a header that is too long": (steps((0, X6, {"offset": 15}), _WHOLE), CLOSED),
    "behind other bytes with a signature": (steps((0, X6, {"options": MD5}), _WHOLE), ANYTHING),
    "behind a keep-alive with a byte": (steps((0, b"AT"), (1, b"X"), (2, b"TACK")), CLOSED),
    "behind a RST that is not exact": (steps((1000, b"", {"flags": RST}), _WHOLE), CLOSED),
    "behind a RST beyond the window": (steps((1 << 30, b"", {"flags": RST | ACK}), _WHOLE), CLOSED),
    "behind a RST with a bad checksum": (steps((0, b"", {"flags": RST, "bad": True}), _WHOLE), CLOSED),
    "behind a RST that is lost": (steps((0, b"", {"flags": RST, "lost": True}), _WHOLE), ANYTHING),
    "behind a RST that is lost, in pieces": (steps((0, b"ATT"), (3, b"", {"flags": RST, "lost": True}), (3, b"ACK")), ANYTHING),
    "behind a FIN that is lost": (steps((0, b"", {"flags": FIN | ACK, "lost": True}), _WHOLE), ANYTHING),
    "behind a FIN that is lost, in pieces": (steps((0, b"ATT", {"flags": FIN | ACK, "lost": True}), _WHOLE), ANYTHING),
    "behind a FIN beyond the window": (steps((1 << 30, b"", {"flags": FIN | ACK}), _WHOLE), CLOSED),
    "behind a FIN with a bad checksum": (steps((0, b"", {"flags": FIN | ACK, "bad": True}), _WHOLE), CLOSED),
    "before a FIN that comes first": (steps((6, b"", {"flags": FIN | ACK}), _WHOLE), CLOSED),
    "around a FIN that comes first": (steps((2, b"", {"flags": FIN | ACK}), _WHOLE), ANYTHING),
    "behind a SYN in the window": (steps((3, b"", {"flags": SYN}), _WHOLE), CLOSED),
    "behind a SYN with the same number": (steps((-1, b"", {"flags": SYN}), _WHOLE), CLOSED),
    "behind a SYN that is lost": (steps((1 << 30, b"", {"flags": SYN, "lost": True}), _WHOLE), ANYTHING),
    "behind a RST and a SYN that are lost": (
        steps((0, b"", {"flags": RST, "lost": True}), (1 << 30, b"", {"flags": SYN, "lost": True}), _WHOLE),
        ANYTHING,
    ),
    "with padding behind the packet": (steps((0, b"AT", {"padding": b"XXXX"}), (2, b"TACK")), CLOSED),
    "in the padding": (steps((0, b"AT", {"padding": b"TACK"}), (2, b"xx")), b"ATxx"),
    "early, then other bytes over it": (steps((2, b"TACK"), (2, b"XXXX!!"), (0, b"AT")), CLOSED),
    "over other bytes that came early": (steps((2, b"XXXX"), (2, b"TACK"), (2, b"TACK.."), (0, b"AT")), b"ATXXXX.."),
    "over a part of other bytes that came early": (steps((3, b"X"), (2, b"TACK.."), (0, b"AT")), b"ATTXCK.."),
    "around other bytes that came early": (steps((4, b"C"), (2, b"XX"), (1, b"TTACK."), (0, b"A")), b"ATXXCK."),
    "over lost bytes": (steps((0, b"ATXXXX", _LOST), _WHOLE), b"ATXXXX"),
    "over lost bytes, cut anew": (steps((0, b"XXXXXXXX", _LOST), (0, b"AT"), (2, b"TACK.."), (8, b"!")), b"XXXXXXXX!"),
    "over a part of lost bytes": (steps((0, b"AT"), (2, b"XX", _LOST), (1, b"TTACK")), b"ATXXCK"),
    "over lost bytes that came early": (steps((2, b"XXXX", _LOST), (0, b"AT"), (2, b"TACK")), b"ATXXXX"),
    "with a lost beginning": (steps((0, b"ATT", _LOST), (3, b"ACK"), (0, b"ATT")), CLOSED),
    "with lost bytes told otherwise": (steps((0, b"ATT", _LOST), (3, b"ACX"), (0, b"ATT"), (5, b"K")), b"ATTACX"),
    "with urgent data in the middle": (
        steps((0, b"ATT!", {"flags": DATA | URG, "urgent": 4}), (4, b"ACK")),
        b"ATT!ACK",
    ),
    "with an urgent pointer to what comes later": (
        steps((0, b"AT", {"flags": DATA | URG, "urgent": 4}), (2, b"T!ACK")),
        b"ATT!ACK",
    ),
    "with urgent data of its own": (steps((0, b"ATTA", {"flags": DATA | URG, "urgent": 4}), (4, b"CK")), CLOSED),
    "with an urgent segment that is lost": (
        steps((0, b"ATT!ACK", {"flags": DATA | URG, "urgent": 4, "lost": True}), (0, b"ATT!ACK")),
        b"ATT!ACK",
    ),
    "in fragments": (fragments, ANYTHING),
}


@pytest.mark.parametrize("isn", [5_000, 2**32 - 4], ids=["", "numbers turn over"])
@pytest.mark.parametrize("name", EVASIONS)
def test_the_text_is_never_read(site, mmb, name, isn):
    run, outcome = EVASIONS[name]
    mmb.apply(site.folder, f'add-stateful id 1 tcp-dport {PORT} stream "ATTACK" close')
    with attack(site, isn=isn) as (sender, far):
        run(sender)
        got, end = what_is_read(far, len(outcome) if isinstance(outcome, bytes) else 1 << 20 if outcome is CLOSED else 0)
    assert ATTACK not in got, f"the application read the text: {got}"
    if outcome is CLOSED:
        assert end == "reset", (got, end, mmb("show errors"))
        assert mmb.rule(1)["hits"] == 1
    elif outcome is not ANYTHING:
        assert (got, end) == (outcome, "silence"), mmb("show errors")
        assert mmb.rule(1)["hits"] == 0


def test_behind_other_bytes_with_an_old_timestamp(site, mmb):
    """RFC 7323, section 5: a receiver drops them."""
    mmb.apply(site.folder, f'add-stateful id 1 tcp-dport {PORT} stream "ATTACK" close')
    old = struct.pack("!BBBBII", 1, 1, 8, 10, 50_000, 0)
    with attack(site, options=TIMESTAMPS) as (sender, far):
        sender.send(0, b"an ")
        sender.send(3, X6, options=old)
        sender.send(3, ATTACK)
        got, end = what_is_read(far, 1 << 20)
    assert (ATTACK in got, end) == (False, "reset"), got


@pytest.mark.parametrize("other", [0, 1_000_000])
def test_behind_a_signed_syn(site, mmb, other):
    """The receiver drops a SYN with a signature that it does not expect (RFC 2385), and answers the next SYN: that connection is not signed."""
    mmb.apply(site.folder, f'add-stateful id 1 tcp-dport {PORT} stream "ATTACK" close')
    with closing(listener(site.server, SERVER4, PORT)) as (listening,), RawPort(site.client, "eth0") as wire:
        sender = Sender(site, wire)
        sender.packet(sender.segment(SYN, b"", sender.isn + other, 0, MD5))
        sender.open()
        far, _ = listening.accept()
        with closing(far):
            sender.send(0, ATTACK)
            got, end = what_is_read(far, 1 << 20)
    assert (ATTACK in got, end) == (False, "reset"), got


@pytest.mark.parametrize("urgent", ["clear", "pass", "drop"])
def test_without_the_timestamps_that_were_agreed_on(site, mmb, urgent):
    """Linux takes such segments."""
    mmb.apply(site.folder, f"set stream urgent {urgent}", f'add-stateful id 1 tcp-dport {PORT} stream "ATTACK" close')
    with attack(site, options=TIMESTAMPS) as (sender, far):
        sender.send(0, b"AT")
        sender.send(2, b"TACK", options=b"")
        got, _ = what_is_read(far, 3)
    assert ATTACK not in got


@pytest.mark.parametrize("first", [X6, b"ATT", b"ATTACK", b"A"])
def test_data_in_a_syn_that_the_receiver_ignores(site, mmb, first):
    """Without fast open, the server acknowledges the SYN alone (RFC 9293, 3.10.7.2; RFC 7413)."""
    mmb.apply(site.folder, f'add-stateful id 1 tcp-dport {PORT} stream "ATTACK" close')
    if first == ATTACK:
        with closing(listener(site.server, SERVER4, PORT)), RawPort(site.client, "eth0") as wire:
            sender = Sender(site, wire)
            with contextlib.suppress(AssertionError):
                sender.open(first)
        return
    with attack(site, data=first) as (sender, far):
        sender.send(0, b"AT")
        sender.send(2, b"TACK")
        got, _ = what_is_read(far, 7)
    assert ATTACK not in got


def test_an_end_that_loses_its_reset_is_told_again_and_reads_nothing(site, mmb):
    mmb.apply(site.folder, f'add-stateful id 1 tcp-dport {PORT} stream "ATTACK" close')
    site.server.run("nft", "add chain ip lossy resets { type filter hook prerouting priority raw; }; "
                           "add rule ip lossy resets tcp flags & rst == rst drop")
    try:
        with attack(site) as (sender, far):
            sender.send(0, b"ATT")
            sender.send(3, b"ACK")
            for _ in range(3):
                sender.send(3, b"ACK")
                sender.send(4, b"CK and more")
            got, end = what_is_read(far, 4)
            assert (got, end) == (b"ATT", "silence")
            site.server.run("nft", "flush chain ip lossy resets")
            sender.send(3, b"ACK")
            assert what_is_read(far, 4) == (b"", "reset")
    finally:
        site.server.run("nft", "delete chain ip lossy resets")


# Programs


@BOTH
def test_urgent_data_of_linux(site, mmb, addresses):
    """RFC 6093: a byte with MSG_OOB in the middle. A receiver would read it elsewhere; under guard it is a part of the stream."""
    mmb.apply(site.folder, f'add-stateful id 1 tcp-dport {PORT} stream "ATTACK" close')
    with pair(site, addresses) as (near, far):
        near.sendall(b"ATT")
        near.send(b"!", socket.MSG_OOB)
        near.sendall(b"ACK")
        assert what_is_read(far, 7) == (b"ATT!ACK", "silence")
    with pair(site, addresses) as (near, far):
        near.sendall(b"ATT")
        near.send(b"A", socket.MSG_OOB)
        near.sendall(b"CK")
        got, end = what_is_read(far, 1 << 20)
        assert ATTACK not in got and end == "reset"


@pytest.mark.parametrize("way", ["pass", "drop"])
def test_urgent_data_by_settings(site, mmb, way):
    """`drop`: the segment never arrives. `pass`: the receiver takes the byte out of the stream, as docs/streams.md warns."""
    mmb.apply(site.folder, f"set stream urgent {way}", f'add-stateful id 1 tcp-dport {PORT} stream "ATTACK" close')
    with pair(site) as (near, far):
        near.sendall(b"ATT")
        assert received(far, 3) == b"ATT"
        near.send(b"!", socket.MSG_OOB)
        near.sendall(b"ACK")
        got, _ = what_is_read(far, 3)
    assert got == (b"ACK" if way == "pass" else b"")


@BOTH
@pytest.mark.parametrize("pieces", [(b"ATT", b"ACK"), (b"ATTACK", b""), (b"nothing ", b"of it")])
def test_fast_open(site, mmb, addresses, pieces):
    """RFC 7413: the server takes data in the SYN and hands them to the application before the handshake is over."""
    client, server = addresses
    first, second = pieces
    mmb.apply(site.folder, f'add-stateful id 1 tcp-dport {PORT} stream "ATTACK" close')
    for host in (site.client, site.server):
        # Data with a SYN without a cookie, and for every listening socket.
        host.sysctl(net__ipv4__tcp_fastopen=0x607)
    try:
        with closing(listener(site.server, server, PORT)) as (listening,):
            family = socket.AF_INET6 if ":" in server else socket.AF_INET
            near = site.client.socket(family, socket.SOCK_STREAM)
            with closing(near):
                near.settimeout(5)
                near.bind((client, 0))
                with contextlib.suppress(ConnectionError, TimeoutError):
                    assert near.sendto(first, socket.MSG_FASTOPEN, (server, PORT)) == len(first)
                got, end = b"", "nothing"
                listening.settimeout(2)
                with contextlib.suppress(TimeoutError):
                    far, _ = listening.accept()
                    with closing(far):
                        with contextlib.suppress(ConnectionError):
                            if second:
                                near.sendall(second)
                        got, end = what_is_read(far, len(first + second))
                if first + second == ATTACK:
                    assert ATTACK not in got and end != "silence", (got, end)
                    wait_until(lambda: mmb.rule(1)["hits"] == 1, "a hit")
                else:
                    assert (got, end) == (first + second, "silence")
    finally:
        for host in (site.client, site.server):
            host.sysctl(net__ipv4__tcp_fastopen=1)
