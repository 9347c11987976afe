"""Rules on the bytes of connections: alert, close, drop, digest, names of TLS servers; between real programs."""

import contextlib
import json
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest

from lab.process import wait_until

from .programs import Nginx, fetch
from .sockets import closing, listener, opened, udp
from .topology import CLIENT4, CLIENT6, SERVER4, SERVER6

PORT = 9100
ATTACK = b"ATTACK"
TCP_CLOSE = 7  # a state of linux/tcp.h; the socket module has no name for it


@contextlib.contextmanager
def monitor(mmb):
    """Events of streams while the block runs: a list that grows."""
    from lab.daemon import BINARY

    words = [BINARY, "monitor", "--json", "--socket", str(mmb.socket)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
        events = []

        def read():
            for line in program.stdout:
                event = json.loads(line)
                if "rule" in event or event.get("what", "").startswith("http-unfit"):
                    events.append(event)

        reader = threading.Thread(target=read)
        reader.start()
        time.sleep(0.5)
        try:
            yield events
        finally:
            program.terminate()
            reader.join(10)


@contextlib.contextmanager
def pair(site, addresses=(CLIENT4, SERVER4), port=PORT):
    """A TCP connection through mmb: the client's and the server's socket."""
    client, server = addresses
    with closing(listener(site.server, server, port)) as (listening,):
        near, far, _ = opened(site.client, client, (server, port), listening)
        with closing(near, far):
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                end.settimeout(5)
            yield near, far


def received(end, count):
    data = b""
    while len(data) < count:
        more = end.recv(count - len(data))
        if not more:
            break
        data += more
    return data


def is_reset(end):
    """Whether a socket was reset; it may still give bytes that came before. A write may have met the reset before: then the error is
    gone, and what tells it is the state. (An end that was not reset and has not closed is in CLOSE-WAIT.)"""
    try:
        while end.recv(1 << 16):
            pass
    except ConnectionResetError:
        return True
    return end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == TCP_CLOSE


BOTH = pytest.mark.parametrize("addresses", [(CLIENT4, SERVER4), (CLIENT6, SERVER6)], ids=["v4", "v6"])


@BOTH
def test_alert_tells_where_the_text_is_and_changes_nothing(site, mmb, addresses):
    mmb("add-stateful id 1", f"tcp-dport {PORT} stream", '"ATTACK"', "alert", '"seen"')
    with monitor(mmb) as events, pair(site, addresses) as (near, far):
        near.sendall(b"an AT")
        assert received(far, 5) == b"an AT"
        near.sendall(b"TACK begins")
        assert received(far, 11) == b"TACK begins"
        far.sendall(b"no attack, ATTACK")
        assert received(near, 17) == b"no attack, ATTACK"
        wait_until(lambda: len(events) == 2, "two events")
    told = [(event["what"], event["direction"], event["offset"], event["text"]) for event in events]
    assert told == [("alert", "forward", 9, "seen"), ("alert", "reply", 17, "seen")]
    assert events[0]["arrived"]["dport"] == PORT
    assert mmb.rule(1)["hits"] == 2


@BOTH
def test_close_resets_both_ends_before_the_text_is_whole(site, mmb, addresses):
    mmb("add-stateful id 1", f"tcp-dport {PORT} stream", '"ATTACK"', "close")
    with monitor(mmb) as events, pair(site, addresses) as (near, far):
        near.sendall(b"an ATTA")
        assert received(far, 7) == b"an ATTA"
        near.sendall(b"CK begins")
        assert is_reset(near)
        assert is_reset(far)
        wait_until(lambda: events, "an event")
    assert [(event["what"], event["offset"]) for event in events] == [("close", 9)]
    assert mmb.rule(1)["hits"] == 1
    assert mmb.ask("show", "errors")["made"]["reset"] >= 2


def test_close_at_a_text_of_the_reply(site, mmb):
    mmb("add-stateful id 1", f"tcp-dport {PORT} stream-reply", '"ATTACK"', "close")
    with pair(site) as (near, far):
        near.sendall(b"ATTACK is no reply")
        assert received(far, 18) == b"ATTACK is no reply"
        far.sendall(b"ATTACK")
        assert is_reset(near) and is_reset(far)


def test_drop_silences_a_connection(site, mmb):
    mmb("add-stateful id 1", f"tcp-dport {PORT} stream", '"ATTACK"', "drop")
    with pair(site) as (near, far):
        near.sendall(b"before")
        assert received(far, 6) == b"before"
        near.sendall(ATTACK)
        far.settimeout(1.5)
        with pytest.raises(TimeoutError):
            far.recv(100)
        far.sendall(b"after")
        near.settimeout(1)
        with pytest.raises(TimeoutError):
            near.recv(100)
        assert mmb.rule(1)["dropped_packets"] > 0
        assert mmb.drops().keys() == {"rule"}
        # Else the kernel sends again for minutes what was dropped, into other tests.
        near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_a_web_request_with_the_text_is_refused_and_others_are_not(site, mmb):
    mmb("add-stateful id 1", "tcp-dport 80 stream-forward", "/cmd\\.exe/i", "close")
    assert fetch(site, f"http://{SERVER4}/big")[1] == site.nginx.digest("big")
    status, _ = fetch(site, f"http://{SERVER4}/small?q=CMD.exe", check=False)
    assert status == 56, "curl: connection reset"
    assert fetch(site, f"http://{SERVER4}/small")[1] == site.nginx.digest("small")


@pytest.mark.parametrize("options", [[], ["-R"]], ids=["up", "down"])
@pytest.mark.parametrize("target", ["alert", "close"])
def test_full_speed_under_a_rule_that_finds_nothing(site, mmb, target, options):
    mmb("add-stateful id 1", "tcp-dport 5201 stream", '"NOT IN THERE"', target)
    result = site.iperf.measure(SERVER4, 2, *options)
    assert result["sum_received"]["bits_per_second"] > 50e6
    assert mmb.rule(1)["hits"] == 0


def test_a_list_of_patterns(site, mmb, tmp_path):
    words = tmp_path / "words"
    words.write_text("".join(f"badword{number}\n" for number in range(3000)))
    mmb("patterns", "bad", words)
    mmb("add-stateful id 1", f"tcp-dport {PORT} stream-forward @bad close")
    with pair(site) as (near, far):
        near.sendall(b"badwor badwordx")
        assert received(far, 15) == b"badwor badwordx"
        near.sendall(b"badword2999")
        assert is_reset(near) and is_reset(far)


def test_several_constraints_must_all_be_met(site, mmb):
    mmb("add-stateful id 1", f"tcp-dport {PORT} stream-forward", '"USER"', "stream-reply", '"DENIED"', "close")
    with pair(site) as (near, far):
        far.sendall(b"hello")
        assert received(near, 5) == b"hello"
        near.sendall(b"USER")
        assert received(far, 4) == b"USER"
        far.sendall(b"DENIED")
        assert is_reset(near) and is_reset(far)
    with pair(site, port=PORT) as (near, far):
        far.sendall(b"DENIED")
        assert received(near, 6) == b"DENIED"


def test_udp_datagrams_are_searched_in_the_order_of_arrival(site, mmb):
    mmb("add-stateful id 1", f"udp-dport {PORT} stream", '"ATTACK"', "drop")
    with closing(udp(site.client, CLIENT4, PORT), udp(site.server, SERVER4, PORT)) as (near, far):
        far.settimeout(1)
        near.sendto(b"ATT", (SERVER4, PORT))
        assert far.recv(100) == b"ATT"
        near.sendto(b"ACK", (SERVER4, PORT))
        with pytest.raises(TimeoutError):
            far.recv(100)


def crc32c(data):
    """The checksum of RFC 3720, bit by bit."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_digest_tells_bytes_and_checksums_at_the_end(site, mmb):
    assert crc32c(b"123456789") == 0xE3069283
    mmb("add-stateful id 1", f"tcp-dport {PORT} digest")
    mmb("conn kill all")
    asked, answered = b"question " * 500, b"answer " * 3000
    with monitor(mmb) as events:
        with pair(site) as (near, far):
            near.sendall(asked)
            assert received(far, len(asked)) == asked
            far.sendall(answered)
            assert received(near, len(answered)) == answered
            stream = mmb.ask("show", "streams")["streams"][0]["stream"]
            assert (stream["forward"]["bytes"], stream["reply"]["bytes"]) == (len(asked), len(answered))
            assert stream["forward"]["level"] == "watch"
        mmb("conn kill all")
        wait_until(lambda: events, "an event")
    assert events[0]["what"] == "digest"
    for side, data in (("forward", asked), ("reply", answered)):
        assert events[0][side] == {"bytes": len(data), "crc32c": f"{crc32c(data):08x}"}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tls")
    files = folder / "key.pem", folder / "cert.pem"
    words = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=test"]
    subprocess.run([*words, "-keyout", files[0], "-out", files[1]], check=True, capture_output=True, timeout=60)
    return files


@contextlib.contextmanager
def tls_server(site, certificate, port):
    """A TLS server that greets and closes."""
    key, cert = certificate
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    stopping = threading.Event()
    with closing(listener(site.server, SERVER4, port)) as (listening,):
        listening.settimeout(0.2)

        def serve():
            while not stopping.is_set():
                try:
                    accepted, _ = listening.accept()
                except TimeoutError:
                    continue
                accepted.settimeout(5)
                with contextlib.suppress(OSError), accepted, context.wrap_socket(accepted, server_side=True) as secure:
                    secure.sendall(b"hello")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            stopping.set()
            thread.join(10)


def tls_reply(site, name, port):
    """What a TLS client gets that asks for a name; `None` if it is reset."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    client = site.client.socket(socket.AF_INET, socket.SOCK_STREAM)
    client.settimeout(5)
    with client:
        client.connect((SERVER4, port))
        try:
            with context.wrap_socket(client, server_hostname=name) as secure:
                return secure.recv(100)
        except ConnectionResetError:
            return None


def test_names_of_tls_servers(site, mmb, certificate):
    mmb("add-stateful id 1", f"tcp-dport {PORT} tls-sni", '{".example.com",', '"bad.org"}', "close")
    with tls_server(site, certificate, PORT):
        assert tls_reply(site, "www.example.org", PORT) == b"hello"
        assert tls_reply(site, None, PORT) == b"hello"
        for name in ("example.com", "a.b.Example.com", "bad.org"):
            assert tls_reply(site, name, PORT) is None, name
        assert tls_reply(site, "www.bad.org", PORT) == b"hello"


def test_an_allow_list_of_names(site, mmb, certificate):
    mmb("add-stateful id 1", f"tcp-dport {PORT} ! tls-sni", '"good.org"', "close")
    with tls_server(site, certificate, PORT):
        assert tls_reply(site, "good.org", PORT) == b"hello"
        for name in ("www.good.org", "bad.org", None):
            assert tls_reply(site, name, PORT) is None, name


def test_rules_change_under_load(site, mmb):
    """A connection keeps what it has found of an unchanged set, and new texts are found on it. On a port of its own: what a test with `drop` leaves
    is sent again for minutes, and would be a hit."""
    port = PORT + 20
    mmb("add-stateful id 7", f"tcp-dport {port} stream", '"ATTACK"', "close")
    with pair(site, port=port) as (near, far):
        near.sendall(b"ATT")
        assert received(far, 3) == b"ATT"
        mmb("add tcp-dport 1 drop")
        near.sendall(b"ACK")
        assert is_reset(near)
    mmb("del 7")
    mmb("add-stateful id 20", f"tcp-dport {port} stream", '"ATTACK"', "alert")
    with pair(site, port=port) as (near, far):
        near.sendall(b"one ATTACK")
        assert received(far, 10) == b"one ATTACK"
        for number in range(20):
            mmb("add-stateful", "tcp-dport 2 stream", f'"other{number}"', "alert")
        near.sendall(b"another ATTACK")
        assert received(far, 14) == b"another ATTACK"
        wait_until(lambda: mmb.rule(20)["hits"] == 2, "two hits")


def test_a_connection_from_before_mmb_is_unfit(site, mmb):
    with pair(site) as (near, far):
        near.sendall(b"begun")
        assert received(far, 5) == b"begun"
        mmb("add-stateful id 1", f"tcp-dport {PORT} stream", '"ATTACK"', "close")
        near.sendall(ATTACK)
        assert received(far, 6) == ATTACK, "set stream unfit pass"
    mmb("flush")
    with pair(site) as (near, far):
        mmb("set stream unfit close")
        mmb("add-stateful id 1", f"tcp-dport {PORT} stream", '"ATTACK"', "close")
        near.sendall(b"anything")
        assert is_reset(near) and is_reset(far)
        assert mmb.drops().keys() == {"stream-unfit"}
    mmb("set stream unfit pass")


def test_many_streams_at_once_with_keep_alive(site, mmb):
    mmb("add-stateful id 1", "tcp-dport 80 stream-forward", '"ATTACK"', "close")
    words = ["wrk", "-t1", "-c50", "-d2", f"http://{SERVER4}/small"]
    done = site.client.run(*words, timeout=20)
    assert "Socket errors" not in done.stdout, done.stdout
    assert mmb.rule(1)["hits"] == 0
