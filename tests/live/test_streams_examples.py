"""The policies in examples/streams on traffic between real programs: each does what its header says."""

import contextlib
import json
import socket
import ssl
import threading
from pathlib import Path

import pytest

from lab.process import run, wait_until

from .http_ends import ANSWERS, Origin, ask, client, response
from .sockets import closing, connected, listener, opened, tcp, udp
from .test_balance import accepted
from .test_examples import EXAMPLES, STREAMS
from .test_streams import is_reset, monitor, received
from .topology import CLIENT4, SERVER4, Site

FOLDER = EXAMPLES / "streams"
SIGNATURES = [line for line in (FOLDER / "signatures.txt").read_bytes().split(b"\n") if line and not line.startswith(b"#")]
BADWORDS = [line for line in (FOLDER / "badwords.txt").read_bytes().split(b"\n") if line and not line.startswith(b"#")]
WEB = 80


@pytest.fixture(scope="module")
def own(namespaces, tmp_path_factory):
    with Site(tmp_path_factory.mktemp("examples"), "af_xdp") as made:
        made.daemon = made.mmb().start()
        yield made


@pytest.fixture
def example(own):
    """Puts an example in force."""

    def force(name):
        own.daemon("apply", FOLDER / f"{name}.mmb")
        own.daemon("set stream hold 5000")
        return own, own.daemon

    own.reset()
    yield force
    assert own.daemon.running(), "mmb ended"
    own.daemon.wait_until_settled()


def hits(mmb, place=0):
    """The hits of the rule at a place of the example."""
    return mmb.ask("list")["rules"][place]["hits"]


@contextlib.contextmanager
def pair(site, port):
    with closing(listener(site.server, SERVER4, port)) as (listening,):
        near, far, _ = opened(site.client, CLIENT4, (SERVER4, port), listening)
        with closing(near, far):
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield near, far


def passes(here, there, data, becomes=None):
    """The bytes arrive, as they are or as something else, though they are sent in two pieces."""
    becomes = data if becomes is None else becomes
    here.sendall(data[: len(data) // 2])
    here.sendall(data[len(data) // 2 :])
    assert received(there, len(becomes)) == becomes


def test_every_example_of_streams_is_run_here():
    text = Path(__file__).read_text()
    assert [name for name in STREAMS if f'"{name.removeprefix("streams/")}' not in text.replace("service-chain.mmb", "service-chain")] == []


def test_ips_alert(example):
    """Each match is told, and nothing changes."""
    site, mmb = example("ips-alert")
    with monitor(mmb) as events, pair(site, WEB) as (near, far):
        for signature in SIGNATURES:
            passes(near, far, b"a " + signature + b" .")
        passes(far, near, b"user=a&password=12345678&x")
        passes(far, near, SIGNATURES[0])
        wait_until(lambda: len(events) >= len(SIGNATURES) + 1, "events")
    assert {event["text"] for event in events} == {"signature", "a password in a page"}
    assert hits(mmb) == len(SIGNATURES) and hits(mmb, 1) >= 1


def test_ips_close(example):
    """Both ends get a RST, and the receiver never has the whole match; a connection from before is closed, too."""
    site, mmb = example("ips-close")
    for signature in SIGNATURES:
        with pair(site, WEB) as (near, far):
            passes(near, far, b"hello")
            passes(far, near, signature)
            near.sendall(b"a " + signature)
            assert is_reset(near)
            with contextlib.suppress(ConnectionResetError):
                got = b""
                while more := far.recv(1000):
                    got += more
                assert signature not in got
    mmb("flush")
    with pair(site, WEB) as (near, far):
        passes(near, far, b"begun without rules")
        mmb("apply", FOLDER / "ips-close.mmb")
        near.sendall(b"anything")
        assert is_reset(near) and is_reset(far)


def test_ips_mask(example):
    site, mmb = example("ips-mask")
    with monitor(mmb) as events, pair(site, WEB) as (near, far):
        for word in BADWORDS:
            passes(far, near, b"a " + word + b" .", b"a " + b"*" * len(word) + b" .")
        passes(near, far, b"to the server: " + BADWORDS[0])
        wait_until(lambda: len(events) == len(BADWORDS), "events")
    assert {event["text"] for event in events} == {"masked"}


def test_ips_remove(example):
    site, mmb = example("ips-remove")
    with pair(site, WEB) as (near, far):
        for signature in SIGNATURES:
            passes(near, far, b"a " + signature + b" .", b"a  .")
        passes(far, near, b"to the client: " + SIGNATURES[0])
    assert hits(mmb) == len(SIGNATURES)


def test_ips_replace(example):
    site, _ = example("ips-replace")
    with pair(site, WEB) as (near, far):
        for here, there in ((near, far), (far, near)):
            passes(here, there, b"an ATTACK, ATTACKATTACK.", b"an BLOCKE, BLOCKEBLOCKE.")


def test_ips_full(example):
    site, _ = example("ips-full")
    with pair(site, 7000) as (near, far):
        passes(near, far, b"run CMD.exe or PowerShell now", b"run (blocked: CMD.exe) or (blocked: PowerShell) now")
        passes(near, far, b"powershell.EXE;", b"(blocked: powershell.EXE);")
        passes(far, near, b"cmd.exe")


def test_udp_filter(example):
    site, mmb = example("udp-filter")
    with closing(udp(site.client, CLIENT4, 5001), udp(site.server, SERVER4, 5000)) as (near, far):
        for text, becomes in ((b"an ATTACK here", b"an  here"), (b"ATTACK", b""), (b"ATTACKATTACK!", b"!"), (b"none", b"none")):
            near.sendto(text, (SERVER4, 5000))
            assert far.recv(100) == becomes
            far.sendto(text, (CLIENT4, 5001))
            assert near.recv(100) == becomes
    assert hits(mmb) == 8


@pytest.fixture
def origin(own):
    made = Origin(own, WEB)
    yield made
    made.close()


PAGES = {
    "/page": (b"text/html; charset=utf-8", b"<html><body>hello</BODY></html>"),
    "/plain": (b"text/plain", b"<html><body>hello</body></html>"),
}


@pytest.fixture(autouse=True)
def pages():
    answers = {
        name: response(b"200 OK", body, b"Content-Type: " + kind, b"Content-Length: %d" % len(body))
        for name, (kind, body) in PAGES.items()
    }
    ANSWERS.update(answers)
    yield
    for name in answers:
        del ANSWERS[name]


def test_http_insert(example, origin):
    """A notice before the end of each page, with the right length, and of no other file."""
    site, _ = example("http-insert")
    with contextlib.closing(client(site, WEB)) as connection:
        for _ in range(3):
            answer, body = ask(connection, "/page", Accept_Encoding="gzip")
            assert body == b"<html><body>hello<p>This page came through mmb.</p></BODY></html>"
            assert (answer.getheader("Server"), answer.getheader("Via")) == ("mmb", "1.1 mmb")
            assert not origin.requests[-1].all("Accept-Encoding")
            assert ask(connection, "/plain")[1] == PAGES["/plain"][1]
    assert run(site.client.command(["curl", "-sS", f"http://{SERVER4}/page"])).stdout.count("came through mmb") == 1


def test_http_filter(example, origin, tmp_path):
    """An allow-list of hosts, no uploads, no programs, no cookies, and TLS servers by their names."""
    site, mmb = example("http-filter")
    good = {"Host": "www.example.com"}

    def asked(target, method="GET", **fields):
        with contextlib.closing(client(site, WEB)) as connection:
            try:
                return ask(connection, target, method, **{**good, **fields})[0]
            except ConnectionError:
                return None

    answer = asked("/page", Cookie="a=b")
    assert answer.status == 200 and answer.getheader("Server") is None
    assert not origin.requests[-1].all("Cookie")
    count = len(origin.requests)
    assert asked("/page", Host="www.example.org") is None
    assert asked("/page", Host="example.com.evil.org") is None
    for method in ("PUT", "DELETE", "PATCH"):
        assert asked("/page", method) is None, method
    assert asked("/setup.EXE?x=1") is None and asked("/a.scr") is None
    assert len(origin.requests) == count, "nothing of these was delivered"
    assert asked("/a.exe.html").status == 200 and asked("/page", "POST", Host="deb.debian.org").status == 200
    with tls_names(site) as names:
        for name, passes_on in (("www.example.com", True), ("deb.debian.org", True), ("evil.org", False), (None, False)):
            assert hello(site, name) == passes_on, name
    assert set(names) <= {"www.example.com", "deb.debian.org"}


@contextlib.contextmanager
def tls_names(site):
    """A server that reads a TLS hello, says something, and remembers the names."""
    names, stopping = [], threading.Event()
    with closing(listener(site.server, SERVER4, 443)) as (listening,):
        listening.settimeout(0.1)

        def serve():
            while not stopping.is_set():
                with contextlib.suppress(OSError):
                    end, _ = listening.accept()
                    end.settimeout(2)
                    with end:
                        if got := end.recv(4096):
                            names.extend(name for name in ("www.example.com", "deb.debian.org", "evil.org") if name.encode() in got)
                            end.sendall(b"\x15\x03\x03\0\x02\x02\x28")

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield names
        finally:
            stopping.set()
            thread.join(10)


def hello(site, name):
    """Whether the server answers a client that asks for a name."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with tcp(site.client, CLIENT4, (SERVER4, 443)) as end:
        try:
            context.wrap_socket(end, server_hostname=name)
        except ssl.SSLError:
            return True
        except ConnectionError:
            return False
    raise AssertionError("no server says yes")


CONNECTIONS = 40


def test_service_chain(fresh):
    """A load balancer, source NAT, statistics and an intrusion prevention system in one policy."""
    site = fresh()
    servers = ["10.0.0.11", "10.0.0.12", "10.0.0.13"]
    mmb = fresh.daemon(site)
    # The example's addresses: the balanced one is outside of the link, the servers and the clients that they see are on it.
    policy = (FOLDER / "service-chain.mmb").read_text()
    for number, server in enumerate(servers, 1):
        policy = policy.replace(f"10.0.0.{number},", f"{server},").replace(f"10.0.0.{number}}}", f"{server}}}")
        site.server.ip("addr", "add", f"{server}/24", "dev", "eth0")
    site.client.ip("route", "add", "198.51.100.1/32", "dev", "eth0")
    answers_for(site)
    (site.folder / "chain.mmb").write_text(policy)
    for name in ("signatures.txt", "badwords.txt"):
        (site.folder / name).write_bytes((FOLDER / name).read_bytes())
    mmb("apply", site.folder / "chain.mmb")
    mmb("set stream hold 5000")
    seen_servers, seen_clients = set(), set()
    with closing(*(listener(site.server, server, WEB) for server in servers)) as listening:
        # As many as make it unlikely that a server gets none: less than one run in a million.
        for number in range(CONNECTIONS):
            with site.client.entered():
                near = connected((CLIENT4, 0), ("198.51.100.1", WEB))
            server, far, client_seen = accepted(listening)
            seen_servers.add(server)
            seen_clients.add(client_seen[0])
            with closing(near, far):
                for end in (near, far):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                passes(near, far, b"a request")
                passes(far, near, b"an " + BADWORDS[0] + b"!", b"an " + b"*" * len(BADWORDS[0]) + b"!")
                if number == 8:
                    near.sendall(SIGNATURES[0])
                    assert is_reset(near) and is_reset(far)
    assert seen_servers == {0, 1, 2}
    assert seen_clients <= {f"10.0.0.{last}" for last in range(100, 104)}
    assert (hits(mmb, 2), hits(mmb, 3)) == (1, CONNECTIONS)
    mmb.wait_until_settled()


def answers_for(site):
    """The server answers for the addresses of the pool: mmb is a bump in the wire and has none. And the client takes the balanced
    address for the server's."""
    (link,) = json.loads(site.client.ip("-j", "link", "show", "dev", "eth0").stdout)
    for last in range(100, 104):
        site.server.ip("neigh", "add", f"10.0.0.{last}", "lladdr", link["address"], "dev", "eth0")
    (link,) = json.loads(site.server.ip("-j", "link", "show", "dev", "eth0").stdout)
    site.client.ip("neigh", "add", "198.51.100.1", "lladdr", link["address"], "dev", "eth0")
