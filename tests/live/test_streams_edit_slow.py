"""Rules that edit streams beside ends that are slow, that stop, or that end: receivers without a window, senders that take their time, half-closed
connections, resets."""

import contextlib
import socket
import struct
import time

import pytest

from lab.process import wait_until

from .edits import PORT, TARGETS, Flow, carry, edited, full_of, masked, pairs, rule
from .sockets import closing
from .test_streams import is_reset, pair, received
from .test_streams_edit import rest, sent_all
from .test_streams_edit_sizes import duplex, grown, long_rule
from .topology import CLIENT4, SERVER4, Site

# Measures rates, times or memory of the machine.
pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def own(namespaces, tmp_path_factory):
    with Site(tmp_path_factory.mktemp("slow"), "af_xdp") as made:
        made.daemon = made.mmb().start()
        yield made


@pytest.fixture
def mmb(own):
    own.daemon.apply(own.folder)
    own.reset()
    yield own.daemon
    assert own.daemon.running(), "mmb ended"
    own.daemon.wait_until_settled()
    own.daemon.apply(own.folder)


@contextlib.contextmanager
def narrow_pair(site, direction, space=4096):
    """A connection whose receiver has this little space: its sending and its receiving end."""
    with closing(site.server.socket(socket.AF_INET, socket.SOCK_STREAM)) as (listening,):
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if direction == "up":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, space)
        listening.bind((SERVER4, PORT))
        listening.listen(1)
        near = site.client.socket(socket.AF_INET, socket.SOCK_STREAM)
        if direction == "down":
            near.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, space)
        near.bind((CLIENT4, 0))
        near.connect((SERVER4, PORT))
        far, _ = listening.accept()
        with closing(near, far):
            for end in (near, far):
                end.settimeout(20)
            yield (near, far) if direction == "up" else (far, near)


def waits(mmb):
    """Bytes of output that wait for room in a receiver's window."""
    sides = [listed["stream"][side] for listed in mmb.ask("show streams")["streams"] for side in ("forward", "reply") if side in listed["stream"]]
    return sum(side["edits"]["unsent"] for side in sides if "edits" in side)


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_receiver_that_stops_reading_for_seconds(own, mmb, direction):
    """100 KB become 2.6 MB. The sender soon may send no more; when the receiver reads again, all arrives, at no great delay."""
    mmb("add-stateful id 1", long_rule())
    data = b"".join(b"%05d" % number + b"x" * 100 + b"MATCH" for number in range(900))
    with narrow_pair(own, direction) as (here, there):
        thread = sent_all(here, data)
        wait_until(lambda: waits(mmb) > 0, "output waits")
        time.sleep(2.5)
        assert mmb.running()
        began = time.monotonic()
        assert rest(there) == edited(data, (b"MATCH", grown))
        print(f"{direction}: {time.monotonic() - began:.2f} s")
        thread.join()
    assert mmb.drops() == {}


def test_a_receiver_that_stops_again_and_again(own, mmb):
    mmb("add-stateful id 1", long_rule())
    data = full_of(b"MATCH", 60)
    expected, got = edited(data, (b"MATCH", grown)), b""
    with narrow_pair(own, "down") as (here, there):
        thread = sent_all(here, data)
        for _ in range(6):
            got += received(there, 7000)
            time.sleep(0.4)
        got += rest(there)
        thread.join()
    assert got == expected


# Slow senders: a byte at a time. `stream hold` is the time for which what may be the beginning of a match is held back.


def dribble(end, data, seconds):
    for byte in data:
        end.sendall(bytes([byte]))
        time.sleep(seconds)


def test_a_sender_that_is_faster_than_the_hold(own, mmb):
    """A byte each 20 ms: the text of six bytes takes less than the hold."""
    mmb("set stream hold 2000")
    mmb("add-stateful id 1", f'tcp-dport {PORT} stream "ATTACK" mod stream "<\\m>"')
    with pair(own) as (near, far):
        dribble(near, b"an ATTACK, ATTATTACK!", 0.02)
        assert received(far, 25) == b"an <ATTACK>, ATT<ATTACK>!"
    assert mmb.rule(1)["hits"] == 2


def test_the_hold_counts_for_each_beginning(own, mmb):
    """Each byte is the beginning of a text until the next one comes: all of them together take longer than the hold."""
    mmb("set stream hold 300")
    mmb("add-stateful id 1", f'tcp-dport {PORT} stream "ATTACK" strip stream')
    with pair(own) as (near, far):
        dribble(near, b"A" * 40, 0.02)
        near.sendall(b"TTACK.")
        assert received(far, 40) == b"A" * 39 + b"."


def test_a_sender_that_is_slower_than_the_hold_passes(own, mmb):
    """docs/streams.md: with `hold-over pass` the match passes unedited, and nothing is held for longer than that."""
    mmb("add-stateful id 1", f'tcp-dport {PORT} stream "ATTACK" strip stream')
    with pair(own) as (near, far):
        for number, byte in enumerate(b"ATTACK"):
            near.sendall(bytes([byte]))
            began = time.monotonic()
            assert received(far, 1) == bytes([byte])
            # On an idle machine 100 ms, and nothing for the bytes behind those that have passed.
            assert time.monotonic() - began < (1.1 if number == 0 else 1), number
            time.sleep(0.2)
        near.sendall(b"ATTACK.")
        assert received(far, 1) == b"."
    assert mmb.rule(1)["hits"] == 1


def test_a_hold_of_zero_holds_nothing(own, mmb):
    mmb("set stream hold 0")
    mmb("add-stateful id 1", f'tcp-dport {PORT} stream "ATTACK" strip stream')
    with pair(own) as (near, far):
        near.sendall(b"an ATTA")
        assert received(far, 7) == b"an ATTA"
        near.sendall(b"CK, ATTACK.")
        assert received(far, 5) == b"CK, ."
    assert mmb.rule(1)["hits"] == 1


def test_a_slow_sender_may_be_closed(own, mmb):
    mmb("set stream hold-over close")
    mmb("add-stateful id 1", f'tcp-dport {PORT} stream "ATTACK" strip stream')
    with pair(own) as (near, far):
        near.sendall(b"an ATTACK, no ATTAC")
        assert received(far, 8) == b"an , no "
        assert is_reset(near) and is_reset(far)
    assert set(mmb.drops()) <= {"stream-held"}
    with pair(own, port=PORT) as (near, far):
        near.sendall(b"an ATTACK")
        assert received(far, 3) == b"an ", "what is not begun is not closed"
        time.sleep(0.3)
        far.sendall(b"still there")
        assert received(near, 11) == b"still there"


# Ends


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("first", ["up", "down"])
def test_half_closed_connections(own, mmb, target, first):
    """One end says all and ends its direction; the other one hears the end, and has much to say for a while."""
    mmb("add-stateful id 1", rule(target))
    asked, answered = full_of(b"MATCH", 50, 1) + b"MA", full_of(b"MATCH", 500, 2) + b"MATC"
    edit = (b"MATCH", TARGETS[target][1])
    with pair(own) as ends:
        here, there = ends if first == "up" else ends[::-1]
        thread = sent_all(here, asked)
        began = time.monotonic()
        assert rest(there) == edited(asked, edit)
        assert time.monotonic() - began < 2, "the end decides what is begun"
        thread.join()
        there.sendall(answered[:20_000])
        time.sleep(0.4)
        thread = sent_all(there, answered[20_000:])
        assert rest(here) == edited(answered, edit)
        thread.join()
    wait_until(lambda: all(each["state"] == "time-wait" for each in mmb.connections()), "both ends are closed")


def test_an_end_of_removed_bytes(own, mmb):
    """All that is sent goes, and so does the FIN behind it."""
    mmb("add-stateful id 1", rule("strip"))
    with pair(own) as (near, far):
        near.sendall(b"MATCH" * 1000)
        near.shutdown(socket.SHUT_WR)
        assert far.recv(1) == b""
        far.sendall(b"MATCH")
        far.close()
        assert near.recv(1) == b""
    wait_until(lambda: all(each["state"] == "time-wait" for each in mmb.connections()), "both ends are closed")


def reset(end):
    """Closes with a RST."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()


@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("target", ["strip", "mod"])
def test_a_reset_in_the_middle(own, mmb, target, direction):
    """The sender resets with bytes in flight and held: the receiver believes it, and has a beginning of what it should get."""
    mmb("set stream hold 5000")
    mmb("add-stateful id 1", rule(target))
    data = full_of(b"MATCH", 300) + b"MATC"
    with pair(own) as ends:
        here, there = ends if direction == "up" else ends[::-1]
        here.sendall(data)
        got = received(there, 10_000)
        reset(here)
        with pytest.raises(ConnectionResetError):
            while more := there.recv(1 << 16):
                got += more
        assert edited(data, (b"MATCH", TARGETS[target][1])).startswith(got)
    wait_until(lambda: all(each["state"] == "reset" for each in mmb.connections()), "it was reset")


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_receiver_resets(own, mmb, direction):
    mmb("add-stateful id 1", long_rule())
    with pair(own) as ends:
        here, there = ends if direction == "up" else ends[::-1]
        here.sendall(b"MATCH" * 20)
        received(there, 100)
        # It has bytes that it has not read.
        there.close()
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            for _ in range(200):
                here.sendall(b"MATCH" * 100)
                time.sleep(0.01)
    wait_until(lambda: all(each["state"] == "reset" for each in mmb.connections()), "it was reset")


def test_the_least_memory_and_many_connections(own):
    """`set stream memory` 1: what is more than that finds no room and comes again; no byte is wrong, and no connection stalls."""
    mmb = own.daemon
    mmb.apply(own.folder)
    mmb.stop()
    policy = own.folder / "least.mmb"
    policy.write_text(f"set stream memory 1\nset stream window 64\nset stream reorder 16\nadd-stateful {rule('mod')}\n")
    mmb.start("-c", policy)
    try:
        with pairs(own, 40) as ends:
            carry(duplex(ends, 100, TARGETS["mod"][1]), 40)
        print(mmb.drops(), mmb.ask("show", "errors")["made"])
        assert mmb.rule(1)["hits"] == 40 * 2 * 100
        mmb.wait_until_settled()
    finally:
        mmb.stop()
        mmb.start()
