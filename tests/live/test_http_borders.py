"""Where HTTP messages end: what two readers may understand differently, upgrades and tunnels, other protocols, slow and long heads, and
programs that send many messages over each connection."""

import contextlib
import os
import re
import shutil
import signal
import socket
import time

import pytest

from .http_ends import PAGE, WORD, Reader, curl, raw
from .programs import Nginx
from .sockets import closing, listener
from .test_streams import is_reset, monitor, received
from .topology import SERVER4, Site

PORT = 8001
HTTP = f"add-stateful tcp-dport {PORT}"
# A rule that finds nothing, and one that would.
WATCHES = f'{HTTP} http-host "nobody.example" close'
EDITS = [f'{HTTP} http-body "MATCH" mod http-body "(edited)"', f'{HTTP} http add http-header "X-By" "mmb"']


@pytest.fixture(scope="module")
def own(namespaces, tmp_path_factory):
    with Site(tmp_path_factory.mktemp("borders"), "af_xdp") as made:
        page = b"<html><body><p id='p'>" + PAGE[: 20 * 300] + b"</p></body></html>"
        files = {"page.html": page, "long.html": PAGE * 5, "browsed.html": BROWSED, "app.js": SCRIPT}
        made.nginx = Nginx(made, files, "types { text/html html; text/javascript js; } gzip on; gzip_types text/javascript; gzip_min_length 1;")
        made.daemon = made.mmb().start()
        yield made


@pytest.fixture
def site(own):
    own.reset()
    yield own
    assert own.daemon.running(), "mmb ended"
    own.daemon.wait_until_settled()


def rules(site, *lines):
    site.daemon.apply(site.folder, *lines)


@contextlib.contextmanager
def ends(site):
    """Both ends of a connection that begins with whatever the test sends."""
    with closing(listener(site.server, SERVER4, PORT)) as (listening,), raw(site, PORT) as near:
        far, _ = listening.accept()
        far.settimeout(8)
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with closing(far):
            yield near, far


def before_reset(end):
    """What an end reads before the RST."""
    got = b""
    with contextlib.suppress(ConnectionResetError):
        while more := end.recv(1 << 16):
            got += more
        raise AssertionError(f"no RST behind {got!r}")
    return got


def all_of(end, name):
    got = b""
    try:
        while more := end.recv(1 << 16):
            got += more
    except ConnectionResetError:
        raise AssertionError(f"{name}: a RST behind {got!r}") from None
    return got


def head(*fields, line=b"POST / HTTP/1.1"):
    return b"\r\n".join((line, b"Host: a.org", *fields, b"", b""))


CHUNKED = b"Transfer-Encoding: chunked"
SECOND = b"GET /smuggled HTTP/1.1\r\nHost: a.org\r\n\r\n"
# Messages that readers understand differently (RFC 9112, sections 2.2, 5, 6.3, 7.1 and 11.2); the second request may be content or not.
AMBIGUOUS = {
    "length and chunks": head(b"Content-Length: 5", CHUNKED) + b"0\r\n\r\n",
    "chunks and length": head(CHUNKED, b"Content-Length: 44") + b"0\r\n\r\n",
    "two lengths": head(b"Content-Length: 0", b"Content-Length: 38"),
    "a list of lengths": head(b"Content-Length: 0, 38"),
    "a length with a sign": head(b"Content-Length: +38"),
    "a negative length": head(b"Content-Length: -1"),
    "a hexadecimal length": head(b"Content-Length: 0x26"),
    "a length with a blank": head(b"Content-Length: 3 8"),
    "an empty length": head(b"Content-Length: "),
    "a length beyond all": head(b"Content-Length: 99999999999999999999999"),
    "a blank before the colon": head(b"Transfer-Encoding : chunked"),
    "a tab before the colon": head(b"Content-Length\t: 38"),
    "a blank in a name": head(b"Content Length: 38"),
    "a folded field": head(b"X: a", b" b", b"Content-Length: 0"),
    "a folded encoding": head(b"Transfer-Encoding:", b" chunked") + b"0\r\n\r\n",
    "a line that begins with a blank": b"POST / HTTP/1.1\r\n Content-Length: 38\r\nHost: a.org\r\n\r\n",
    "bare line feeds": b"POST / HTTP/1.1\nHost: a.org\nContent-Length: 0\n\n",
    "one bare line feed": b"POST / HTTP/1.1\r\nHost: a.org\nContent-Length: 38\r\n\r\n",
    "a bare carriage return": head(b"X: a\rContent-Length: 38"),
    "a NUL": head(b"X: a\0b", b"Content-Length: 0"),
    "a field without a colon": head(b"Content-Length"),
    "an empty name": head(b": 38"),
    "another encoding": head(b"Transfer-Encoding: xchunked"),
    "an encoding behind chunks": head(b"Transfer-Encoding: chunked, identity") + b"0\r\n\r\n",
    "chunks twice": head(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "an encoding in quotes": head(b'Transfer-Encoding: "chunked"') + b"0\r\n\r\n",
    "chunks in HTTP/1.0": head(CHUNKED, line=b"POST / HTTP/1.0") + b"0\r\n\r\n",
    "two hosts": head(b"Host: b.org", b"Content-Length: 0"),
    "two blanks in the line": head(b"Content-Length: 0", line=b"POST  / HTTP/1.1"),
    "a blank in the target": head(b"Content-Length: 0", line=b"POST /a b HTTP/1.1"),
    "another version": head(b"Content-Length: 0", line=b"POST / HTTP/1.9"),
    "a chunk without a size": head(CHUNKED) + b"\r\n\r\n0\r\n\r\n",
    "a chunk size with a sign": head(CHUNKED) + b"+5\r\nabcde\r\n0\r\n\r\n",
    "a chunk size with 0x": head(CHUNKED) + b"0x5\r\nabcde\r\n0\r\n\r\n",
    "a chunk size beyond all": head(CHUNKED) + b"fffffffffffffffff\r\nabcde\r\n0\r\n\r\n",
    "a chunk that ends late": head(CHUNKED) + b"5\r\nabcdefg\r\n0\r\n\r\n",
    "a chunk size with a line feed": head(CHUNKED) + b"5\nabcde\r\n0\r\n\r\n",
    "a line feed in a chunk extension": head(CHUNKED) + b"5;a\nb\r\nabcde\r\n0\r\n\r\n",
    "chunk data without an end": head(CHUNKED) + b"5\r\nabcde0\r\n\r\n",
}


@pytest.mark.parametrize("lines", [[WATCHES], EDITS], ids=["watches", "edits"])
def test_requests_that_are_ambiguous_are_closed(site, lines):
    rules(site, *lines)
    passed = []
    for name, message in AMBIGUOUS.items():
        with ends(site) as (near, far):
            near.sendall(message + SECOND)
            try:
                got = before_reset(far)
                assert is_reset(near), name
                # The head of a message with bad chunks has passed, as far as it was certain.
                assert b"smuggled" not in got, (name, got)
            except TimeoutError:
                passed.append(name)
    assert passed == []


def test_requests_that_are_ambiguous_may_pass(site):
    """As they are, as all that comes behind them. A body that leaves in other framing could not: here only heads are edited."""
    rules(site, "set http unfit pass", EDITS[1])
    for name, message in AMBIGUOUS.items():
        with ends(site) as (near, far):
            sent = message + SECOND + b"MATCH"
            near.sendall(sent)
            near.shutdown(socket.SHUT_WR)
            got = all_of(far, name)
            # Bad chunks are found when the head has passed, edited.
            assert got.replace(b"X-By: mmb\r\n", b"") == sent, name
            far.sendall(b"anything, MATCH")
            assert received(near, 15) == b"anything, MATCH", name
    assert any("unfit" in reason for reason in site.daemon.ask("show", "errors")["not_applied"])


RESPONSES = {
    name: message.replace(b"POST / HTTP/1.1", b"HTTP/1.1 200 OK").replace(b"Host: a.org\r\n", b"")
    for name, message in AMBIGUOUS.items()
    # What only ends a line with LF is read in responses: test_http_odd.py.
    if b"POST / HTTP/1.1\r\n" in message and "hosts" not in name and name != "one bare line feed"
} | {
    "no status": b"HTTP/1.1 OK\r\n\r\n",
    "a long status": b"HTTP/1.1 2000 OK\r\n\r\n",
    "no request for it": b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nMATCH",
}


def test_responses_that_are_ambiguous_are_closed(site):
    rules(site, *EDITS)
    passed = []
    for name, message in RESPONSES.items():
        with ends(site) as (near, far):
            near.sendall(b"GET / HTTP/1.1\r\nHost: a.org\r\n\r\n")
            Reader(far).until(b"\r\n\r\n")
            far.sendall(message + b"HTTP/1.1 200 OK\r\nX-Smuggled: yes\r\n\r\n")
            near.settimeout(2)
            try:
                assert b"Smuggled" not in before_reset(near), name
            except TimeoutError:
                passed.append(name)
    assert passed == []


# What is no HTTP, and no HTTP any more


def test_a_websocket_passes_untouched_behind_its_upgrade(site):
    rules(site, *EDITS, f'{HTTP} ! http-host "a.org" close')
    with ends(site) as (near, far):
        near.sendall(b"GET /chat HTTP/1.1\r\nHost: a.org\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n\r\n")
        asked = Reader(far).until(b"\r\n\r\n")
        assert b"Upgrade: websocket" in asked and b"Connection: Upgrade" in asked and asked.endswith(b"X-By: mmb")
        frames = b"\x82\x05MATCH\x81\x05MATCH" + bytes(range(256)) + b"GET /x HTTP/1.1\r\nHost: b.org\r\n\r\n"
        far.sendall(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n" + frames)
        reader = Reader(near)
        assert reader.until(b"\r\n\r\n").startswith(b"HTTP/1.1 101")
        assert reader.exactly(len(frames)) == frames
        for here, there in ((near, far), (far, near)):
            here.sendall(frames * 50)
            assert received(there, len(frames) * 50) == frames * 50


def test_an_upgrade_that_the_server_refuses(site):
    rules(site, *EDITS)
    with ends(site) as (near, far):
        near.sendall(b"GET /chat HTTP/1.1\r\nHost: a.org\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        Reader(far).until(b"\r\n\r\n")
        far.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nMATCH")
        reader = Reader(near)
        reader.until(b"\r\n\r\n")
        assert reader.chunked() == b"(edited)"


def test_a_tunnel_passes_untouched(site):
    rules(site, *EDITS)
    with ends(site) as (near, far):
        near.sendall(b"CONNECT a.org:443 HTTP/1.1\r\nHost: a.org:443\r\n\r\n")
        Reader(far).until(b"\r\n\r\n")
        far.sendall(b"HTTP/1.1 200 Connected\r\n\r\n")
        Reader(near).until(b"\r\n\r\n")
        for here, there in ((near, far), (far, near)):
            here.sendall(b"MATCH\0\xff" * 1000)
            assert received(there, 7000) == b"MATCH\0\xff" * 1000


OTHERS = {
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0MATCH",
    "TLS": b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03MATCH" + bytes(100),
}


@pytest.mark.parametrize("protocol", OTHERS)
def test_other_protocols_pass(site, protocol):
    """No constraint on HTTP holds for them, negated or not."""
    rules(site, *EDITS, f'{HTTP} ! http-host "a.org" close')
    with ends(site) as (near, far):
        near.sendall(OTHERS[protocol])
        assert received(far, len(OTHERS[protocol])) == OTHERS[protocol]
        far.sendall(b"MATCH" * 100)
        assert received(near, 500) == b"MATCH" * 100


def test_the_upgrade_to_http_2_is_not_offered(site):
    rules(site, *EDITS)
    with ends(site) as (near, far):
        near.sendall(b"GET / HTTP/1.1\r\nHost: a.org\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n")
        assert b"h2c" not in Reader(far).until(b"\r\n\r\n")


# Slow and long heads


def in_pieces(end, data, count):
    """Sends data in so many pieces, one behind the other."""
    for number in range(count):
        end.sendall(data[len(data) * number // count : len(data) * (number + 1) // count])
        time.sleep(0.01)


def test_messages_in_pieces(site):
    rules(site, "set stream hold 5000", *EDITS)
    with ends(site) as (near, far):
        for _ in range(3):
            in_pieces(near, b"GET / HTTP/1.1\r\nHost: a.org\r\n\r\n", 8)
            assert Reader(far).until(b"\r\n\r\n") == b"GET / HTTP/1.1\r\nHost: a.org\r\nX-By: mmb"
            in_pieces(far, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", 8)
            in_pieces(far, b"<a>MATCH.", 4)
            reader = Reader(near)
            assert b"X-By: mmb" in reader.until(b"\r\n\r\n")
            assert reader.chunked() == b"<a>(edited)."


@pytest.mark.parametrize("unfit", ["close", "pass"])
def test_a_head_that_takes_too_long(site, unfit):
    rules(site, f"set http unfit {unfit}", *EDITS)
    began = b"GET / HTTP/1.1\r\nHost: a.o"
    with ends(site) as (near, far):
        near.sendall(began)
        time.sleep(4)
        far.settimeout(0.1)
        with pytest.raises(TimeoutError):
            far.recv(1)
        far.settimeout(5)
        if unfit == "close":
            assert is_reset(far) and is_reset(near)
        else:
            assert received(far, len(began)) == began
            near.sendall(b"rg\r\n\r\n")
            assert received(far, 6) == b"rg\r\n\r\n", "it passes from there on"


def test_a_byte_a_second(site):
    """What closes has no limit of time, what edits has (docs/streams.md): a body that is slower than `stream hold` passes; a head is refused."""
    rules(site, EDITS[0], f'{HTTP} http-body "EVIL" close')
    post = b"POST / HTTP/1.1\r\nHost: a.org\r\nContent-Length: 7\r\n\r\n"
    with contextlib.ExitStack() as stack:
        [listening] = stack.enter_context(closing(listener(site.server, SERVER4, PORT)))
        nears, fars = [], []
        for _ in range(3):
            nears.append(stack.enter_context(raw(site, PORT)))
            fars += stack.enter_context(closing(listening.accept()[0]))
        readers = [Reader(far) for far in fars[:2]]
        for near, reader in zip(nears, readers):
            near.sendall(post)
            assert reader.until(b"\r\n\r\n").startswith(b"POST / HTTP/1.1")
        for number in range(7):
            for near, text in zip(nears, (b"xMATCHy", b"xEVILyz", b"GET /sl")):
                # An end that was reset takes no more.
                with contextlib.suppress(ConnectionResetError, BrokenPipeError):
                    near.sendall(text[number : number + 1])
            time.sleep(1)
        assert readers[0].chunked() == b"xMATCHy"
        seen = readers[1].data + before_reset(fars[1])
        assert b"I\r\n" in seen and b"L\r\n" not in seen
        assert before_reset(fars[2]) == b""
        assert (site.daemon.rule(1)["hits"], site.daemon.rule(2)["hits"]) == (0, 1)


def test_heads_as_long_as_allowed(site):
    """`http head` is 16 KiB by default. One that is longer is closed at the byte that is too many, not after the 5 s that slow ones have, whether its end
    comes or not."""
    rules(site, *EDITS)
    for size, end, fits in ((10_000, b"\r\n\r\n", True), (17_000, b"\r\n\r\n", False), (17_000, b"", False), (100_000, b"", False)):
        with ends(site) as (near, far):
            began, is_closed = time.monotonic(), False
            try:
                near.sendall(b"GET / HTTP/1.1\r\nHost: a.org\r\nX: " + b"x" * size + end)
            except ConnectionResetError:
                # Before all was sent.
                is_closed = True
            if fits:
                assert Reader(far).until(b"\r\n\r\n").endswith(b"x" * 100 + b"\r\nX-By: mmb")
            else:
                assert is_reset(far) and (is_closed or is_reset(near))
                assert time.monotonic() - began < 3


@pytest.mark.parametrize("unfit, what", [("close", "http-unfit-closed"), ("pass", "http-unfit-passed")])
def test_what_is_not_read_is_told_with_the_reason(site, unfit, what):
    rules(site, f"set http unfit {unfit}", *EDITS)
    bad = b"GET / HTTP/1.1\r\nHost: a.org\nX: y\r\n\r\n"
    with monitor(site.daemon) as events, ends(site) as (near, far):
        near.sendall(bad)
        assert is_reset(far) if unfit == "close" else received(far, len(bad)) == bad
        time.sleep(0.5)
    [event] = events
    assert (event["what"], event["reason"], event["direction"], event["offset"]) == (what, "http-bare-lf", "forward", len(bad))
    assert event["arrived"]["dport"] == PORT and "LF" in event["text"]


# Programs with many messages

PIPELINE = """
-- %d requests at once on each connection; each response must be the edited page.
bad, seen = 0, 0
local threads = {}
function setup(thread) table.insert(threads, thread) end
function init(args)
  bad, seen = 0, 0
  local all = {}
  for i = 1, %d do all[i] = wrk.format("GET", "/page.html") end
  requests = table.concat(all)
end
function request() return requests end
function response(status, headers, body)
  seen = seen + 1
  if status ~= 200 or body:find("MATCH", 1, true) or not body:find("(edited)", 1, true) or #body ~= %d then bad = bad + 1 end
end
function done()
  for _, thread in ipairs(threads) do print("seen " .. thread:get("seen") .. " bad " .. thread:get("bad")) end
end
"""


@pytest.mark.parametrize("pipelined", [1, 16])
def test_wrk_gets_edited_pages(site, pipelined):
    """Fifty connections that are kept alive. On a busy machine nginx may wait longer with the rest of a text than `stream hold` does."""
    rules(site, "set stream hold 10000", 'add-stateful tcp-dport 80 http-body "MATCH" mod http-body "(edited)" mod http-header "Server" "mmb"')
    size = len(site.nginx.files["page.html"].replace(WORD, b"(edited)"))
    script = site.folder / "pipeline.lua"
    script.write_text(PIPELINE % (pipelined, pipelined, size))
    done = site.client.run("wrk", "-t1", "-c50", "-d2", "--timeout", "5", "-s", script, f"http://{SERVER4}/page.html", timeout=20)
    assert "Socket errors" not in done.stdout and "Non-2xx" not in done.stdout, done.stdout
    seen, bad = map(int, re.search(r"seen (\d+) bad (\d+)", done.stdout).groups())
    assert seen > 100 and bad == 0, done.stdout
    print(done.stdout)


def test_nginx_sends_long_pages_to_clients_of_http_1_0(site):
    """Longer than what is held; with and without the wish that the connection stays."""
    rules(site, 'add-stateful tcp-dport 80 http-body "MATCH" mod http-body "(edited)"')
    expected = site.nginx.files["long.html"].replace(WORD, b"(edited)")
    for fields in ([], ["-H", "Connection: keep-alive"], ["-H", "Connection: close"]):
        _, shown = curl(site, "--http1.0", "-i", *fields, f"http://{SERVER4}/long.html")
        head, _, body = shown.encode().partition(b"\n\n")
        assert body == expected and b"ontent-Length" not in head and b"hunked" not in head


BROWSER = "chromium-headless-shell"
# A page whose script writes a part of it.
BROWSED = b"<!DOCTYPE html><html><head><title>MATCH</title></head><body>" + PAGE[:6000] + b"<p id='by'></p><script src='app.js'></script></body></html>"
SCRIPT = b"/* " + b"x" * 5000 + b" */ document.getElementById('by').textContent = 'MATCH' + ' by ' + document.title;"


def test_chromium_shows_an_edited_page(site):
    """Both the page and its script are edited, and the browser runs the script."""
    assert shutil.which(BROWSER), f"{BROWSER} is not installed: scripts/setup installs it"
    rules(site, 'add-stateful tcp-dport 80 http-body "MATCH" mod http-body "(edited)"')
    log, profile = site.folder / "chromium.log", site.folder / "chromium"
    log.unlink(missing_ok=True)
    words = [BROWSER, "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}", "--timeout=20000", "--dump-dom"]
    # It starts processes, which are in its session.
    with site.client.start([*words, f"http://{SERVER4}/browsed.html"], log, start_new_session=True) as browser:
        try:
            assert browser.wait(40) == 0, log.read_text(errors="replace")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(browser.pid, signal.SIGKILL)
    shown = log.read_text(errors="replace")
    assert "<p id=\"by\">(edited) by (edited)</p>" in shown and "MATCH" not in shown, shown
    assert shown.count("(edited)") == BROWSED.count(WORD) + 2
    assert site.daemon.rule(1)["hits"] == BROWSED.count(WORD) + SCRIPT.count(WORD)




def test_encoded_and_partial_bodies_by_the_setting_in_force(site):
    """nginx compresses and cuts. A setting alone comes into force, for new connections: no rule changes."""
    page = site.nginx.files["page.html"]
    rules(site, 'add-stateful tcp-dport 80 http-body "MATCH" mod http-body "(edited)"')
    url = f"http://{SERVER4}/page.html"

    def compressed():
        """Whether the body is encoded on the wire, and what curl makes of it."""
        head = curl(site, "-D", "-", "-o", "/dev/null", "--compressed", url)[1].lower()
        return "content-encoding: gzip" in head, curl(site, "--compressed", url)[1].encode()

    def part():
        # As text, whose lines end with LF.
        head, _, body = curl(site, "-i", "-r", "0-99", url)[1].encode().partition(b"\n\n")
        return head.split(b" ", 2)[1], body

    edited = page.replace(WORD, b"(edited)")
    assert edited != page
    for setting, is_plain in (("strip", True), ("pass", False), ("strip", True)):
        site.daemon(f"set http encodings {setting}")
        assert compressed() == ((False, edited) if is_plain else (True, page)), setting
        assert part() == ((b"200", edited) if is_plain else (b"206", page[:100])), setting
    counted = site.daemon.ask("show errors")["not_applied"]
    assert counted["http-encoded-body"] == 2 and counted["http-partial-body"] == 1
