"""Responses that the grammar of HTTP forbids and that clients read: nginx, HAProxy, curl and Chromium are the judges, and Apache and squid read nothing else.

A server behind mmb sends them; the judges are in front of mmb. Without rules on HTTP each judge reads the one message or refuses it. Through rules that look
it is the same. Where a rule edits, the response leaves as RFC 9112 has it, and all judges read it.
"""

import contextlib
import re
import threading

import pytest

from . import judges
from .browser import Browser
from .http_ends import PORT, Reader, response
from .sockets import closing, connected, listener
from .topology import CLIENT4, SERVER4, Site

CHUNKED = b"Transfer-Encoding: chunked"
LENGTH = b"Content-Length: 5"
HELLO, LAST = b"5\r\nhello\r\n", b"0\r\n\r\n"


def chunks(body, *fields):
    return response(b"200 OK", body, CHUNKED, *fields)


def length(*fields):
    return response(b"200 OK", b"hello", *fields, LENGTH)


def http10(*fields):
    return length(*fields).replace(b"HTTP/1.1", b"HTTP/1.0")


ODD = {
    # RFC 9112, section 7.1.
    "a chunk size and a blank": chunks(b"5 \r\nhello\r\n0 \r\n\r\n"),
    "a chunk size and blanks": chunks(b"0005  \r\nhello\r\n0000  \r\n\r\n"),
    "a chunk size and many blanks": chunks(b"5" + b" " * 300 + b"\r\nhello\r\n" + LAST),
    "a blank before a chunk extension": chunks(b"5 ;a=b\r\nhello\r\n" + LAST),
    "control bytes in a chunk extension": chunks(b"5;a\x01\x7fb\r\nhello\r\n" + LAST),
    "a long chunk extension": chunks(b"5;a=" + b"b" * 1000 + b"\r\nhello\r\n" + LAST),
    # Section 2.2.
    "lines of the head that end with LF": length(b"X-A: b").replace(b"\r\n", b"\n"),
    "a head that ends with LF": length().replace(b"\r\n\r\n", b"\r\n\n"),
    "chunks that end with LF": chunks(b"5\nhello\n0\n\n"),
    "data of a chunk that ends with LF": chunks(b"5\r\nhello\n" + LAST),
    "a trailer that ends with LF": chunks(HELLO + b"0\r\nX-T: v\n\n"),
    # RFC 9110, section 5.5.
    "control bytes in a value": length(b"X-A: b\x01\x1b\x7fc"),
    # RFC 9110, section 8.6; RFC 9112, sections 6.1 to 6.3.
    "equal lengths": length(LENGTH),
    "a length before chunks": chunks(HELLO + LAST).replace(CHUNKED, b"Content-Length: 9\r\n" + CHUNKED),
    "a length after chunks": chunks(HELLO + LAST, b"Content-Length: 15"),
    # RFC 9110, sections 6.5.1 and 7.6.1.
    "trailers of the framing": chunks(HELLO + b"0\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\nHost: a\r\nConnection: close\r\n\r\n"),
    "a folded trailer": chunks(HELLO + b"0\r\nX-T: v\r\n w\r\n\r\n"),
    "two hosts": length(b"Host: a.org", b"Host: b.org"),
    "close with a parameter": length(b"Connection: close;x"),
    "bytes after the last response": response(b"200 OK", b"hello\r\n", LENGTH, b"Connection: close"),
}
# Some judges refuse these, and the others read them alike (RFC 9112, sections 5.1 and 5.2).
REFUSED_BY_SOME = {
    "a folded value": length(b"X-A: b\r\n c"),
    "a value that is folded by a tab": length(b"X-A: b\r\n\tc\r\n d"),
    "a value in the next line": length(b"X-A:\r\n b"),
    "a blank before the colon": length(b"X-A : b"),
    "a tab before the colon": length(b"X-A\t: b"),
    "a blank before the colon of a trailer": chunks(HELLO + b"0\r\nX-T : v\r\n\r\n"),
}
# The judges differ in what they read here, or refuse it.
UNCLEAR = {
    "a folded length": length().replace(LENGTH, b"Content-Length:\r\n 5"),
    "a folded encoding": chunks(HELLO + LAST).replace(CHUNKED, b"Transfer-Encoding:\r\n chunked"),
    "a blank before the colon of the length": length().replace(LENGTH, b"Content-Length : 5"),
    "a blank before the colon of the encoding": chunks(HELLO + LAST).replace(CHUNKED, b"Transfer-Encoding : chunked"),
    "different lengths": length(b"Content-Length: 3"),
    "an encoding in quotes": chunks(HELLO + LAST).replace(b"chunked", b'"chunked"'),
    "chunks of HTTP/1.0": chunks(HELLO + LAST).replace(b"HTTP/1.1", b"HTTP/1.0"),
    "a chunk size and a tab": chunks(b"5\t\r\nhello\r\n" + LAST),
    "a chunk size and text": chunks(b"5x\r\nhello\r\n" + LAST),
    "a chunk without an end": chunks(b"5\r\nhello0\r\n\r\n"),
    "a line without a colon": length(b"X-A"),
    "NUL in a value": length(b"X-A: b\0c"),
}
# Heads after which some of the judges close and others ask again on the same connection: those that do.
KEPT = {
    "keep-alive before close": (length(b"Connection: keep-alive, close"), {"chromium"}),
    "keep-alive in a field before close": (length(b"Connection: keep-alive", b"Connection: close"), {"chromium"}),
    "both in HTTP/1.0": (http10(b"Connection: keep-alive, close"), {"chromium", "curl"}),
    "keep-alive of a proxy in HTTP/1.0": (http10(b"Proxy-Connection: keep-alive"), {"chromium"}),
    "keep-alive with a parameter in HTTP/1.0": (http10(b"Connection: keep-alive;x"), {"curl"}),
    "keep-alive in quotes in HTTP/1.0": (http10(b'Connection: "keep-alive"'), {"curl"}),
}
ALIKE = {**ODD, **REFUSED_BY_SOME}
CASES = [*ALIKE.items(), *UNCLEAR.items(), *((case, answer) for case, (answer, _) in KEPT.items())]


class OddServer:
    """Answers GET /N with the case of that number, and other requests with a page."""

    def __init__(self, site):
        self.listening = listener(site.server, SERVER4, PORT, 512)
        self.listening.settimeout(0.1)
        self.stopping = threading.Event()
        # The connection and the target of each request.
        self.asked = []
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self):
        while not self.stopping.is_set():
            with contextlib.suppress(TimeoutError):
                end, _ = self.listening.accept()
                end.settimeout(5)
                self.threads.append(threading.Thread(target=self._serve, args=(end,)))
                self.threads[-1].start()

    def _serve(self, end):
        reader = Reader(end)
        with end, contextlib.suppress(EOFError, OSError):
            while True:
                target = reader.request().target
                self.asked.append((end, target))
                number = re.fullmatch(r"/(\d+)", target)
                answer = CASES[int(number[1])][1] if number else response(b"200 OK", b"page!", b"Content-Type: text/html", LENGTH)
                end.sendall(answer)
                if b"Connection: close\r\n" in answer and b"keep-alive" not in answer:
                    return

    def close(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(10)
        self.listening.close()


@pytest.fixture(scope="module")
def own(namespaces, tmp_path_factory):
    with Site(tmp_path_factory.mktemp("odd"), "af_packet") as made, contextlib.ExitStack() as stack:
        made.daemon = made.mmb().start()
        made.odd = OddServer(made)
        stack.callback(made.odd.close)
        yield made
        assert made.daemon.running(), "mmb ended"


@pytest.fixture
def site(own):
    own.reset()
    yield own
    own.daemon.wait_until_settled()


def proxied(site, port, number):
    """The status and the body that a proxy in the client's namespace makes of a case; `None` if it refuses it."""
    data = b""
    with site.client.entered(), contextlib.suppress(OSError), closing(connected((CLIENT4, 0), (CLIENT4, port), 5)) as (end,):
        end.sendall(b"GET /%d HTTP/1.1\r\nHost: a.org\r\nConnection: close\r\n\r\n" % number)
        while more := end.recv(1 << 16):
            data += more
    head, _, body = data.partition(b"\r\n\r\n")
    status = re.match(rb"HTTP/1\.[01] (\d+)", head)
    if not status or int(status[1]) >= 500:
        return None
    if re.search(rb"(?i)\ntransfer-encoding: *chunked", head):
        whole = re.fullmatch(rb"((?:[0-9a-fA-F]+\r\n.*?\r\n)*?)0+\r\n(?:[^\r]+\r\n)*\r\n", body, re.S)
        if not whole:
            return None
        rest, body = whole[1], b""
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            body, rest = body + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    announced = re.search(rb"(?i)\ncontent-length: *(\d+)", head)
    return None if announced and len(body) < int(announced[1]) else body


def asked_by_curl(site, *numbers):
    urls = [f"http://{SERVER4}:{PORT}/{number}" for number in numbers]
    done = site.client.run("curl", "-sS", "--http1.1", "--max-time", "5", *urls, check=False)
    return done.stdout.encode() if done.returncode == 0 else None


@pytest.fixture(scope="module", params=[*judges.JUDGES, "curl", "chromium"])
def judge(own, request):
    """A name, and what reads the case of a number."""
    name = request.param
    with contextlib.ExitStack() as stack:
        if name == "curl":
            yield name, lambda *numbers: asked_by_curl(own, *numbers)
        elif name == "chromium":
            folder = own.folder / "chromium"
            folder.mkdir(exist_ok=True)
            with own.client.entered():
                browser = stack.enter_context(Browser(folder))
            browser.open(f"http://{SERVER4}:{PORT}/page")
            browser.wait("document.body && document.body.innerText === 'page!'")
            script = "fetch('/{}', {{signal: AbortSignal.timeout(5000)}}).then((answer) => answer.text()).catch(() => null)"
            yield name, lambda *numbers: "".join(browser.run(script.format(number)) or "" for number in numbers).encode() or None
        else:
            process, port = judges.start(own, name, own.client)
            stack.callback(process.stop)
            yield name, lambda number: proxied(own, port, number)


def unfit(site):
    """How many packets were dropped, and how many connections passed, since a message was not read."""
    errors = site.daemon.ask("show", "errors")
    return tuple(errors[kind].get("http-unfit", 0) for kind in ("drops", "not_applied"))


HTTP = f"add-stateful tcp-dport {PORT}"
LOOKS = [f'{HTTP} http-body "VIRUS" alert', f'{HTTP} http-uri "/admin" alert']
ENDS = [f'{HTTP} http-body "VIRUS" close']
EDITS = {
    "heads": ([f'{HTTP} http add http-header "X-By" "mmb"'], b"hello"),
    "bodies": ([f'{HTTP} http-body "hello" mod http-body "good bye"'], b"good bye"),
    "bodies in place": ([f'{HTTP} http-body "hello" mask http-body'], b"*****"),
}
# Those by which it was decided what is read.
FIRST = ("nginx", "haproxy", "curl", "chromium")


@pytest.mark.parametrize("lines", [[], LOOKS, ENDS], ids=["no rule", "looks", "ends"])
def test_clients_read_odd_responses_alike_or_refuse_them(site, judge, lines):
    name, read = judge
    site.daemon.apply(site.folder, *lines)
    before, wrong = unfit(site), []
    for number, case in enumerate(ALIKE):
        got = read(number)
        may_refuse = case in REFUSED_BY_SOME or name not in FIRST
        if got != b"hello" and not (got is None and may_refuse):
            wrong.append((case, got))
    assert wrong == []
    assert unfit(site) == before


@pytest.mark.parametrize("edits", EDITS)
def test_what_is_odd_is_mended_where_a_rule_edits(site, judge, edits):
    """So that those read it as well which refuse it as it is."""
    name, read = judge
    lines, expected = EDITS[edits]
    site.daemon.apply(site.folder, *lines)
    wrong = []
    for number, case in enumerate(ALIKE):
        if (got := read(number)) != expected and not (got is None and name not in FIRST):
            wrong.append((case, got))
    assert wrong == []


def test_what_clients_read_differently_is_closed_where_a_rule_edits(site):
    site.daemon.apply(site.folder, *EDITS["heads"][0])
    for number, (case, _) in enumerate(CASES):
        if case in UNCLEAR:
            before, _ = unfit(site)
            asked_by_curl(site, number)
            assert unfit(site)[0] > before, case


def test_rules_that_only_look_stop_looking(site):
    """The connection goes on as if there were no rule, and that is counted."""
    alone = [asked_by_curl(site, number) for number in range(len(CASES))]
    site.daemon.apply(site.folder, *LOOKS)
    dropped, passed = unfit(site)
    assert [asked_by_curl(site, number) for number in range(len(CASES))] == alone
    assert unfit(site) == (dropped, passed + len(UNCLEAR))


@pytest.mark.parametrize("judge", ["curl", "chromium"], indirect=True)
def test_clients_differ_in_whether_a_connection_goes_on(site, judge):
    """RFC 9112, section 9.3. The judges that are proxies close after each of these."""
    name, read = judge
    site.daemon.apply(site.folder)
    kept = set()
    for number, (case, _) in enumerate(CASES):
        if case in KEPT:
            site.odd.asked.clear()
            read(number, 0)
            (first, _), (second, _) = [asked for asked in site.odd.asked if asked[1] in (f"/{number}", "/0")]
            kept |= {case} if first is second else set()
    assert kept == {case for case, (_, judges_that_keep) in KEPT.items() if name in judges_that_keep}


def asked_twice(site, number):
    """What a client that keeps the connection gets for two requests."""
    got = b""
    with site.client.entered(), contextlib.suppress(ConnectionError), closing(connected((CLIENT4, 0), (SERVER4, PORT), 5)) as (end,):
        for target in (b"%d" % number, b"page"):
            end.sendall(b"GET /%s HTTP/1.1\r\nHost: a.org\r\n\r\n" % target)
            while not got.endswith((b"hello", b"page!")[target == b"page"]):
                if not (more := end.recv(1 << 16)):
                    return got
                got += more
    return got


@pytest.mark.parametrize("lines", [LOOKS, ENDS, EDITS["heads"][0]], ids=["looks", "ends", "edits"])
def test_responses_that_only_some_clients_read_are_unfit(site, lines):
    """The connection is closed, or goes on unread; either way that is counted."""
    for number, (case, _) in enumerate(CASES):
        if case not in KEPT:
            continue
        for treatment in ("close", "pass"):
            site.daemon.apply(site.folder, *lines, f"set http unfit {treatment}")
            dropped, passed = unfit(site)
            got = asked_twice(site, number)
            closes = treatment == "close" and lines != LOOKS
            assert b"hello" in got and got.endswith(b"page!") != closes, case
            now = unfit(site)
            assert (now[0] > dropped, now[1] - passed) == (closes, int(not closes)), case


@pytest.mark.parametrize("lines", [LOOKS, ENDS, EDITS["heads"][0]], ids=["looks", "ends", "edits"])
def test_bytes_after_the_last_response_are_counted(site, lines):
    site.daemon.apply(site.folder, *lines)
    number = list(ODD).index("bytes after the last response")

    def surplus():
        return site.daemon.ask("show", "errors")["not_applied"].get("http-surplus", 0)

    before = surplus()
    assert asked_by_curl(site, number) == b"hello"
    assert surplus() == before + 1
