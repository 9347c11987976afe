"""Rules on streams, on captures made with scapy: overlaps, evasions, urgent data, resets.

What must happen is told by a model of a receiver that shares nothing with mmb (`receivers.py`): whatever the sender does, no receiver
behind a rule with `close` gets the text, and receivers that resolve overlaps differently get the same bytes. Where all segments are
sound, the receiver that keeps the first copy of each byte tells exactly which connections must be closed.
"""

import random

import pytest
from captures import replay_both
from receivers import OVERLAPS, Receiver, segment
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

ATTACK = b"ATTACK"
CLIENT, SERVER, PORT = "10.0.0.1", "192.0.2.80", 80
MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")
CLOSE = 'add-stateful tcp-dport 80 stream-forward "ATTACK" close'
ALERT = 'add-stateful tcp-dport 80 stream-forward "ATTACK" alert "seen"'
SERVER_ISN = 7_000


class Capture:
    """Frames of several connections in one order."""

    def __init__(self):
        self.lan, self.wan, self.number = [], [], 0

    def add(self, frames, packet):
        frames.append((self.number, bytes(packet)))
        self.number += 1

    def replay(self, mmb, folder, *policy):
        left, summary = replay_both(mmb, folder, policy, self.lan, self.wan)
        return Outcome(self, left, summary)


class Client:
    """A client whose stream is written by offsets; the server only answers its SYN, if it `shakes` hands."""

    def __init__(self, capture, port=20_000, isn=1_000, time=None, syn=b"", shakes=True):
        self.capture, self.port, self.isn, self.time = capture, port, isn, time
        self.send(-1, syn, "S")
        if shakes:
            self.answer()
            self.send(0, b"", "A")

    def answer(self):
        options = [("Timestamp", (1, self.time))] if self.time is not None else []
        tcp = TCP(sport=PORT, dport=self.port, flags="SA", seq=SERVER_ISN, ack=self.isn + 1, window=65_535, options=options)
        self.capture.add(self.capture.wan, Ether(src=MACS[1], dst=MACS[0]) / IP(src=SERVER, dst=CLIENT) / tcp)

    def send(self, at, data, flags="PA", ack=0, time=0, **fields):
        """Bytes from an offset on. `time` is added to the clock of its timestamps, if it has one."""
        options = [("Timestamp", (self.time + time, 1))] if self.time is not None else []
        acked = SERVER_ISN + 1 + ack if "A" in flags else 0
        seq = (self.isn + 1 + at) % 2**32
        tcp = TCP(sport=self.port, dport=PORT, flags=flags, seq=seq, ack=acked, window=60_000, options=options, **fields)
        packet = Ether(src=MACS[0], dst=MACS[1]) / IP(src=CLIENT, dst=SERVER) / tcp
        self.capture.add(self.capture.lan, packet / Raw(data) if data else packet)

    def frames(self, frames):
        """Those of its connection among numbered frames."""
        return [frame for _, frame in frames if self.port in (segment(frame).sport, segment(frame).dport)]

    def resets(self, frames):
        """The resets among them."""
        return [segment(frame) for frame in self.frames(frames) if "R" in segment(frame).flags]


class Outcome:
    """What left, and what receivers make of it."""

    def __init__(self, capture, left, summary):
        self.capture, self.left, self.summary = capture, left, summary

    def hits(self):
        return sum(rule["hits"] for rule in self.summary["rules"])

    def received(self, client, **manner):
        return self._fed(client, self.left["wan"], **manner)

    def sent(self, client, **manner):
        """What a receiver would get without mmb."""
        return self._fed(client, self.capture.lan, **manner)

    @staticmethod
    def _fed(client, frames, **manner):
        receiver = Receiver(client.isn, SERVER_ISN + 1, **manner)
        for frame in client.frames(frames):
            receiver.take(frame)
        return receiver

    def delivered(self, client):
        """What receivers get, which must be the same but for where it ends."""
        all_of_them = [self.received(client, overlap=overlap) for overlap in OVERLAPS]
        longest = max((receiver.delivered for receiver in all_of_them), key=len)
        assert all(longest.startswith(receiver.delivered) for receiver in all_of_them)
        return longest

    def assert_closed(self, client):
        """Both ends got a RST that they accept, with right checksums, and no receiver got the text."""
        assert ATTACK not in self.delivered(client)
        server = self.received(client)
        assert server.is_reset
        resets = client.resets(self.left["lan"])
        assert resets and all(reset.is_sound for reset in resets)
        assert (resets[0].seq, resets[0].source) == (SERVER_ISN + 1, MACS[1])

    def assert_open(self, client):
        assert not self.received(client).is_reset
        assert not client.resets(self.left["lan"])


def scripted(rng, client):
    """Sends a text in overlapping pieces in any order, some with other bytes, and at the end in order what may be missing."""
    text = bytes(rng.choice(b"abcdef") for _ in range(rng.randrange(8, 20)))
    place = rng.randrange(len(text))
    text = text[:place] + (ATTACK if rng.random() < 0.7 else b"attack") + text[place:]
    for _ in range(rng.randrange(2, 9)):
        at = rng.randrange(len(text))
        piece = text[at : at + rng.randrange(1, 9)]
        if rng.random() < 0.4:
            piece = bytes(rng.choice(b"xATCK") for _ in piece)
        client.send(at, piece)
    for at in range(0, len(text), 5):
        client.send(at, text[at : at + 5])


def conversations(seed, count=25):
    rng, capture = random.Random(seed), Capture()
    clients = []
    for number in range(count):
        client = Client(capture, 20_000 + number, rng.choice([1_000, 2**32 - 5]))
        scripted(rng, client)
        clients.append(client)
    return capture, clients


@pytest.mark.parametrize("seed", range(6))
def test_overlaps_are_closed_exactly_where_the_first_copies_have_the_text(mmb, tmp_path, seed):
    capture, clients = conversations(seed)
    # All connections of the capture end within a millisecond.
    outcome = capture.replay(mmb, tmp_path, "set answer rate 1000000", CLOSE)
    fates = []
    for client in clients:
        must_close = ATTACK in outcome.sent(client, overlap="first").delivered
        fates.append(must_close)
        if must_close:
            outcome.assert_closed(client)
        else:
            outcome.assert_open(client)
            assert outcome.delivered(client) == outcome.sent(client, overlap="first").delivered
    assert outcome.hits() == sum(fates)
    assert 2 < sum(fates) < len(fates) - 2, "both happen"
    # Without mmb, receivers differ.
    differ = [len({outcome.sent(client, overlap=overlap).delivered for overlap in OVERLAPS}) > 1 for client in clients]
    assert sum(differ) > 5


@pytest.mark.parametrize("seed", range(6))
def test_an_alert_changes_no_byte_and_counts_what_the_first_copies_have(mmb, tmp_path, seed):
    capture, clients = conversations(seed)
    outcome = capture.replay(mmb, tmp_path, ALERT)
    assert outcome.left["wan"] == capture.lan and outcome.left["lan"] == capture.wan
    assert outcome.hits() == sum(ATTACK in outcome.sent(client, overlap="first").delivered for client in clients)
    assert outcome.summary.get("made", {}) == {} and outcome.summary["drops"] == {}


def decoy_bad_checksum(client):
    client.send(3, b"xxx", chksum=0x1234)


def decoy_without_ack(client):
    client.send(3, b"xxx", flags="P")


def decoy_of_an_old_time(client):
    client.send(3, b"xxx", time=-500)


def decoy_that_acknowledges_too_much(client):
    client.send(3, b"xxx", ack=5_000)


def reset_of_another_number(client):
    client.send(40, b"", flags="R")


def reset_with_a_bad_checksum(client):
    client.send(3, b"", flags="R", chksum=0x1234)


def fin_with_a_bad_checksum(client):
    client.send(3, b"", flags="FA", chksum=0x1234)


def syn_within(client):
    client.send(500, b"", flags="S")


def early_copy_of_the_same(client):
    client.send(4, b"CK")


DECOYS = [value for name, value in globals().items() if name.startswith(("decoy_", "reset_", "fin_", "syn_", "early_"))]


@pytest.mark.parametrize("decoy", DECOYS, ids=lambda decoy: decoy.__name__)
def test_what_no_receiver_takes_hides_nothing(mmb, tmp_path, decoy):
    capture = Capture()
    client = Client(capture, time=100_000)
    client.send(0, b"ATT")
    decoy(client)
    client.send(3, b"ACK", time=1)
    client.send(6, b" and more", time=2)
    outcome = capture.replay(mmb, tmp_path, CLOSE)
    assert ATTACK in outcome.sent(client).delivered, "it would arrive"
    outcome.assert_closed(client)
    assert outcome.hits() == 1


@pytest.mark.parametrize("order", [range(6), range(5, -1, -1), [3, 0, 5, 1, 4, 2]], ids=["forward", "backward", "mixed"])
def test_a_text_byte_by_byte_in_any_order(mmb, tmp_path, order):
    capture = Capture()
    client = Client(capture)
    for at in order:
        client.send(at, ATTACK[at : at + 1])
    outcome = capture.replay(mmb, tmp_path, CLOSE)
    outcome.assert_closed(client)
    # All but the packet that completes the text went on, and it made a RST for each end.
    assert outcome.summary["made"] == {"reset": 2}
    assert sum(outcome.summary["drops"].values()) == 1


def test_bytes_sent_again_are_those_of_the_first_copy(mmb, tmp_path):
    capture = Capture()
    client = Client(capture)
    client.send(0, b"xxxACK")
    client.send(0, b"ATTACK")
    client.send(9, b"later")
    client.send(6, b"ATTOTHERS")
    client.send(6, b"...OTHERS")
    outcome = capture.replay(mmb, tmp_path, CLOSE)
    outcome.assert_open(client)
    assert outcome.delivered(client) == b"xxxACKATTlater"[:9] + b"laterS"
    segments = [segment(frame) for frame in client.frames(outcome.left["wan"])]
    assert segments[3].data == b"xxxACK", "the second copy has the bytes of the first one"
    assert all(each.is_sound for each in segments)


def urgent(capture):
    client = Client(capture)
    client.send(0, b"ATT")
    client.send(3, b"x", flags="PAU", urgptr=1)
    client.send(4, b"ACK")
    return client


def test_urgent_data_become_part_of_the_stream(mmb, tmp_path):
    capture = Capture()
    client = urgent(capture)
    outcome = capture.replay(mmb, tmp_path, CLOSE)
    assert outcome.sent(client, has_inline_urgent=False).delivered == ATTACK, "it would arrive at some"
    outcome.assert_open(client)
    for is_inline in (False, True):
        assert outcome.received(client, has_inline_urgent=is_inline).delivered == b"ATTxACK"
    # With the urgent byte in the text, both are the text.
    capture = Capture()
    client = Client(capture)
    client.send(0, b"ATT")
    client.send(3, b"ACK", flags="PAU", urgptr=1)
    capture.replay(mmb, tmp_path, CLOSE).assert_closed(client)


def test_urgent_data_can_be_refused(mmb, tmp_path):
    capture = Capture()
    client = urgent(capture)
    outcome = capture.replay(mmb, tmp_path, "set stream urgent drop", CLOSE)
    assert outcome.summary["drops"] == {"stream-urgent": 1}
    assert outcome.received(client, has_inline_urgent=False).delivered == b"ATT"


def test_behind_a_reset_the_search_goes_on(mmb, tmp_path):
    """The server believes it, if it arrives."""
    capture = Capture()
    client = Client(capture)
    client.send(0, b"ATT")
    client.send(3, b"", flags="R")
    client.send(3, b"ACK")
    outcome = capture.replay(mmb, tmp_path, CLOSE)
    assert outcome.received(client).is_reset and outcome.delivered(client) == b"ATT"
    assert outcome.hits() == 1 and outcome.summary["made"] == {"reset": 2}
    assert not any(b"ACK" in segment(frame).data for frame in client.frames(outcome.left["wan"]))


def test_later_packets_of_a_closed_connection_are_answered(mmb, tmp_path):
    capture = Capture()
    client = Client(capture)
    client.send(0, b"..ATTACK")
    client.send(8, b"more", ack=0)
    client.send(8, b"more", ack=0)
    outcome = capture.replay(mmb, tmp_path, CLOSE)
    outcome.assert_closed(client)
    assert [reset.seq for reset in client.resets(outcome.left["lan"])] == [SERVER_ISN + 1] * 3
    assert outcome.summary["drops"] == {"rule": 3}
    assert outcome.received(client).delivered == b""


def test_data_of_a_syn_are_searched(mmb, tmp_path):
    capture = Capture()
    client = Client(capture, syn=b"..ATTACK..")
    outcome = capture.replay(mmb, tmp_path, CLOSE)
    assert outcome.hits() == 1 and client.frames(outcome.left["wan"])[:1] != client.frames(capture.lan)[:1]
    assert not any(ATTACK in frame for frame in client.frames(outcome.left["wan"]))


def test_a_syn_behind_the_data_of_another_one_hides_no_begin(mmb, tmp_path):
    """The first SYN, with data, does not arrive (a low TTL); the second one begins behind them."""
    capture = Capture()
    client = Client(capture, syn=b"junk", shakes=False)
    client.send(3, b"", "S")
    outcome = capture.replay(mmb, tmp_path, 'add-stateful tcp-dport 80 tls-sni "a.example" close')
    assert len(outcome.left["wan"]) == 1
    assert outcome.summary["drops"] == {"stream-out-of-window": 1}
