"""Rules that change the bytes of connections: between real programs, and judged by what the ends receive."""

import hashlib
import re
import socket
import threading

import pytest

from lab.process import wait_until

from .programs import fetch
from .sockets import closing, udp
from .test_streams import BOTH, PORT, is_reset, monitor, pair, received
from .topology import CLIENT4, SERVER4


def sent_all(end, data):
    """Sends from a thread, and ends the direction."""

    def run():
        end.sendall(data)
        end.shutdown(socket.SHUT_WR)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def rest(end):
    data = bytearray()
    while more := end.recv(1 << 16):
        data += more
    return bytes(data)


@BOTH
def test_mask_keeps_the_length(site, mmb, addresses):
    mmb("add-stateful id 1", f"tcp-dport {PORT} stream", '"ATTACK"', "mask stream")
    with pair(site, addresses) as (near, far):
        near.sendall(b"an ATTACK begins")
        assert received(far, 16) == b"an ****** begins"
        far.sendall(b"ATTACK is the answer")
        assert received(near, 20) == b"****** is the answer"
    assert mmb.rule(1)["hits"] == 2


@BOTH
def test_strip_removes(site, mmb, addresses):
    mmb("add-stateful id 1", f"tcp-dport {PORT} stream", '"ATTACK"', "strip stream")
    with pair(site, addresses) as (near, far):
        near.sendall(b"ATTACK")
        near.sendall(b"an ATTACK begins")
        assert received(far, 10) == b"an  begins"
        near.shutdown(socket.SHUT_WR)
        assert far.recv(10) == b""
        far.sendall(b"good bye")
        far.shutdown(socket.SHUT_WR)
        assert rest(near) == b"good bye"


@BOTH
def test_mod_writes_other_bytes_of_any_length(site, mmb, addresses):
    mmb("add-stateful id 1", f"tcp-dport {PORT} stream", "/cmd\\.exe/i", "mod stream", '"(\\m is gone)"')
    with pair(site, addresses) as (near, far):
        near.sendall(b"run CMD.")
        near.sendall(b"exe now")
        assert received(far, 25) == b"run (CMD.exe is gone) now"
        far.sendall(b"what?")
        assert received(near, 5) == b"what?"
        near.sendall(b"cmd.exe" * 300)
        assert received(far, 17 * 300) == b"(cmd.exe is gone)" * 300
    assert mmb.rule(1)["hits"] == 301


def test_a_begun_match_is_let_go_in_time(site, mmb):
    mmb("add-stateful id 1", f"tcp-dport {PORT} stream", '"ATTACK"', "strip stream")
    with pair(site) as (near, far):
        near.sendall(b"an ATTA")
        assert received(far, 7) == b"an ATTA"


def test_a_begun_match_may_close_the_connection(site, mmb):
    mmb("set stream hold-over close")
    mmb("add-stateful id 1", f"tcp-dport {PORT} stream", '"ATTACK"', "strip stream")
    with pair(site) as (near, far):
        near.sendall(b"an ATTA")
        assert received(far, 3) == b"an "
        assert is_reset(near) and is_reset(far)


@pytest.mark.parametrize(
    ("target", "by"),
    [('mask stream "#"', b"#####"), ("strip stream", b""), ('mod stream "<\\m! and more>"', b"<MATCH! and more>")],
    ids=["mask", "strip", "mod"],
)
@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_long_transfer_equals_the_reference_edit(site, mmb, target, by, direction):
    mmb("add-stateful id 1", f"tcp-dport {PORT} stream", '"MATCH"', target)
    # A match in each segment, at all places.
    data = b"".join(b"%07d" % number + b"x" * (number % 997) + b"MATCH" for number in range(16_000))
    expected = hashlib.sha256(data.replace(b"MATCH", by)).hexdigest()
    with pair(site) as (near, far):
        near.settimeout(60), far.settimeout(60)
        sender, receiver = (near, far) if direction == "up" else (far, near)
        thread = sent_all(sender, data)
        got = rest(receiver)
        thread.join()
        assert hashlib.sha256(got).hexdigest() == expected, f"{len(got)} bytes"
    assert mmb.rule(1)["hits"] == 16_000


def test_a_web_page_is_edited_and_others_are_not(site, mmb):
    mmb("add-stateful id 1", "tcp-dport 80 stream-reply", '"mmb was here"', "mod stream-reply", '"mmb is here!"')
    expected = hashlib.sha256(b"mmb is here!\n").hexdigest()
    assert fetch(site, f"http://{SERVER4}/small")[1] == expected
    assert fetch(site, f"http://{SERVER4}/big")[1] == site.nginx.digest("big")


def test_datagrams_are_edited(site, mmb):
    mmb("add-stateful id 1", f"udp-dport {PORT} stream", '"ATTACK"', "strip stream")
    with closing(udp(site.client, CLIENT4, PORT), udp(site.server, SERVER4, PORT)) as (near, far):
        far.settimeout(2), near.settimeout(2)
        near.sendto(b"an ATTACK here", (SERVER4, PORT))
        assert far.recv(100) == b"an  here"
        far.sendto(b"no ATTACK", (CLIENT4, PORT))
        assert near.recv(100) == b"no "


def test_alerts_tell_of_edits(site, mmb):
    mmb("add-stateful id 1", f"tcp-dport {PORT} stream", '"ATTACK"', 'alert "seen" mask stream')
    with monitor(mmb) as events, pair(site) as (near, far):
        near.sendall(b"an ATTACK")
        assert received(far, 9) == b"an ******"
        wait_until(lambda: events, "an event")
    assert [(event["what"], event["offset"]) for event in events] == [("alert", 9)]


def test_streams_are_shown_with_their_edits(site, mmb):
    mmb("add-stateful id 1", f"tcp-dport {PORT} stream", '"ATTACK"', "strip stream")
    with pair(site) as (near, far):
        near.sendall(b"an ATTACK begins")
        received(far, 10)
        [line] = [line for line in mmb.ask("show", "streams")["streams"] if line["arrived"]["sport"] == near.getsockname()[1]]
        forward = line["stream"]["forward"]
        assert (forward["level"], forward["edits"]["edits"], forward["edits"]["delta"]) == ("edit", 1, -6)
        assert re.search(r"edit/edit .* 1/0 ", mmb("show", "streams"))


@pytest.mark.parametrize("options", [[], ["-R"], ["--bidir"]], ids=["up", "down", "both"])
def test_full_speed_without_a_match(site, mmb, options):
    mmb("add-stateful id 1", "tcp-dport 5201 stream", '"NOT IN THERE"', "strip stream")
    result = site.iperf.measure(SERVER4, 2, *options)
    assert result["sum_received"]["bits_per_second"] > 50e6
    assert mmb.rule(1)["hits"] == 0
