"""Rules on HTTP between real programs: header fields, hosts, targets and bodies are edited, and both ends stay in step."""

import contextlib
import time

import pytest

from .edits import TARGETS, edited
from .http_ends import HUGE, LARGE, LONG_HEAD, LONG_VALUE, PAGE, PORT, SOME, WORD, Origin, Reader, ask, client, curl, raw
from .test_streams import is_reset
from .topology import SERVER4, Site


@pytest.fixture(scope="module")
def own(namespaces, tmp_path_factory):
    with Site(tmp_path_factory.mktemp("http"), "af_xdp") as made, contextlib.ExitStack() as stack:
        made.daemon = made.mmb().start()
        made.origin = Origin(made)
        stack.callback(made.origin.close)
        yield made


@pytest.fixture
def web(own):
    own.reset()
    own.origin.requests.clear()
    yield own
    assert own.daemon.running(), "mmb ended"
    own.daemon.wait_until_settled()


def rules(web, *lines):
    web.daemon.apply(web.folder, *lines)


def not_applied(web):
    return web.daemon.ask("show", "errors")["not_applied"]


HTTP = f"add-stateful tcp-dport {PORT}"


# Heads


def test_header_fields_of_requests_and_responses(web):
    rules(
        web,
        f'{HTTP} http mod http-header "User-Agent" "mmb/1" mod http-header "server" "\\m behind mmb" '
        'strip http-header "Cookie" add http-header "X-By" "mmb" add http-header "X-By" "again"',
    )
    with contextlib.closing(client(web)) as connection:
        for number in range(3):
            answer, body = ask(connection, "/length", Cookie="a=b", User_Agent="test", Accept="*/*")
            assert (answer.status, body) == (200, PAGE), number
            assert answer.getheader("Server") == "origin behind mmb"
            assert answer.headers.get_all("X-By") == ["mmb", "again"]
            got = web.origin.requests[-1]
            assert (got.all("User-Agent"), got.all("Cookie"), got.all("X-By")) == (["mmb/1"], [], ["mmb", "again"])
            assert got.all("Accept") == ["*/*"] and got.all("Server") == []
    assert len(web.origin.requests) == 3, "one connection is kept alive"


def test_a_list_of_header_fields_that_stay(web):
    """Those that frame messages stay, too."""
    rules(web, f'{HTTP} http strip ! http-header "Accept" strip ! http-header "Content-Type"')
    with contextlib.closing(client(web)) as connection:
        answer, body = ask(connection, "/length", "POST", b"body", Accept="a", X_Other="b", Cookie="c", Connection="keep-alive")
        assert (answer.status, body) == (200, PAGE)
        assert sorted(name.lower() for name in answer.headers) == ["content-length", "content-type"]
    [got] = web.origin.requests
    assert sorted(got.names()) == ["accept", "connection", "content-length", "host"]
    assert got.body == b"body"


def test_edits_that_depend_on_the_exchange(web):
    """A rule's constraints are about one request and its response, whatever the connection's others are."""
    rules(
        web,
        f'{HTTP} http-uri "/a/" http-method "GET" add http-header "X-A" "seen"',
        f'{HTTP} http-status 404 add http-header "X-Missing" "\\"yes\\""',
        f'{HTTP} http-header "X-Secret" /^s.*t$/i strip http-header "X-Secret"',
    )
    with contextlib.closing(client(web)) as connection:
        for target, method, secret in (("/a/length", "GET", "SecreT"), ("/b/404", "GET", "other"), ("/a/none", "POST", "st")):
            answer, _ = ask(connection, target, method, X_Secret=secret)
            got = web.origin.requests[-1]
            # The request and the response of an exchange of the first rule have the field.
            both = [got.all("X-A"), answer.headers.get_all("X-A")]
            assert both == ([["seen"], ["seen"]] if (target, method) == ("/a/length", "GET") else [[], None])
            assert answer.getheader("X-Missing") == ('"yes"' if answer.status == 404 else None)
            assert got.all("X-Secret") == (["other"] if secret == "other" else [])


def test_hosts_and_targets_are_rewritten(web):
    rules(
        web,
        f'{HTTP} http-host "old.org" mod http-host "new.example" mod http-uri "/prefix\\m"',
        f'{HTTP} http-host ".other.org" http-uri /\\.php$/ mod http-uri "/length"',
    )
    with contextlib.closing(client(web)) as connection:
        # The port stays.
        for host, target, seen in (
            ("old.org", "/length?q=1", ("new.example", "/prefix/length?q=1")),
            ("OLD.org:8000", "/none", ("new.example:8000", "/prefix/none")),
            ("www.other.org", "/a.php", ("www.other.org", "/length")),
            ("third.org", "/a.php", ("third.org", "/a.php")),
        ):
            answer, _ = ask(connection, target, Host=host)
            got = web.origin.requests[-1]
            assert (answer.status, got.all("Host"), got.target) == (200, [seen[0]], seen[1])


def test_an_allow_list_of_hosts(web):
    rules(web, f'{HTTP} ! http-host {{"good.org", ".fine.org"}} close')
    for host, is_good in (("good.org", True), ("GOOD.org.:8000", True), ("a.fine.org", True), ("bad.org", False), ("www.good.org", False)):
        with contextlib.closing(client(web)) as connection:
            if is_good:
                assert ask(connection, "/length", Host=host)[1] == PAGE
            else:
                with pytest.raises(ConnectionResetError):
                    ask(connection, "/length", Host=host)
    # The second request of a connection is closed as the first one would be, and is not delivered.
    with contextlib.closing(client(web)) as connection:
        assert ask(connection, "/length", Host="good.org")[1] == PAGE
        with pytest.raises(ConnectionResetError):
            ask(connection, "/never", Host="bad.org")
    with raw(web) as end:
        end.sendall(b"GET /never HTTP/1.0\r\n\r\n")
        assert is_reset(end), "without a host"
    assert not [got for got in web.origin.requests if got.target == "/never"]


# Bodies

BODIES = {name: (words.replace("{field}", "http-body"), by) for name, (words, by) in TARGETS.items()}
FRAMINGS = ["/length", "/chunked", "/close", "/close-10"]


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("target", BODIES)
def test_bodies_of_responses_in_all_framings(web, target, framing):
    words, by = BODIES[target]
    rules(web, f'{HTTP} http-body "MATCH" {words}')
    expected = edited(PAGE, (WORD, by))
    for _ in range(2):
        with contextlib.closing(client(web)) as connection:
            for _ in range(1 if "close" in framing else 3):
                answer, body = ask(connection, framing)
                assert body == expected
                if answer.getheader("Content-Length"):
                    assert int(answer.getheader("Content-Length")) == len(expected)
    assert curl(web, f"http://{SERVER4}:{PORT}{framing}")[1].encode() == expected
    texts = PAGE.count(WORD)
    assert web.daemon.rule(1)["hits"] == texts * (3 if "close" in framing else 7)


def test_validators_of_changed_bodies(web):
    rules(web, f'{HTTP} http-body "MATCH" strip http-body')
    with contextlib.closing(client(web)) as connection:
        answer, _ = ask(connection, "/length")
        assert answer.getheader("ETag") == 'W/"v1"'


def test_what_is_added_to_bodies(web):
    """In all framings, and not to messages without a body or with another status."""
    rules(web, f'{HTTP} http-status 200 add http-body "<!-- the end -->"')
    for framing in FRAMINGS:
        assert curl(web, f"http://{SERVER4}:{PORT}{framing}")[1].encode() == PAGE + b"<!-- the end -->", framing
    with contextlib.closing(client(web)) as connection:
        for target, method, expected in (
            ("/length", "HEAD", b""),
            ("/304", "GET", b""),
            ("/204", "GET", b""),
            ("/404", "GET", WORD),
            ("/length", "GET", PAGE + b"<!-- the end -->"),
        ):
            assert ask(connection, target, method)[1] == expected, (target, method)


def test_clients_of_http_1_0_get_the_right_length(web):
    """docs/streams.md: the body is held for it; longer ones than 64 KiB pass unedited, counted."""
    rules(web, f'{HTTP} http-body "MATCH" mod http-body "<\\m>"')
    _, shown = curl(web, "--http1.0", "-i", f"http://{SERVER4}:{PORT}/some")
    head, _, body = shown.encode().replace(b"\r\n", b"\n").partition(b"\n\n")
    expected = edited(SOME, (WORD, lambda found: b"<" + found + b">"))
    assert body == expected and b"Content-Length: %d" % len(expected) in head and b"hunked" not in head
    assert curl(web, "--http1.0", f"http://{SERVER4}:{PORT}/huge")[1].encode() == HUGE
    assert not_applied(web)


def test_clients_of_http_1_0_get_bodies_as_they_flow_from_servers_that_close(web):
    """The server is asked to close; then there is no length, and no limit of it."""
    before = not_applied(web)
    rules(web, f'{HTTP} http-body "MATCH" mod http-body "<\\m>"')
    _, shown = curl(web, "--http1.0", "-i", "-H", "Connection: keep-alive", f"http://{SERVER4}:{PORT}/close-huge")
    head, _, body = shown.encode().partition(b"\n\n")
    assert b"Connection: close" in head and b"ontent-Length" not in head and b"hunked" not in head
    assert body == edited(HUGE, (WORD, lambda found: b"<" + found + b">"))
    assert web.origin.requests[-1].all("Connection") == []
    assert not_applied(web) == before


def test_a_body_without_its_length_that_the_server_leaves_incomplete(web):
    """Its client must not take the end of the connection for that of the body."""
    rules(web, f'{HTTP} http-body "MATCH" mod http-body "<\\m>"')
    status, shown = curl(web, "--http1.0", f"http://{SERVER4}:{PORT}/close-early", check=False)
    assert status == 56 and shown == "<MATCH>", "CURLE_RECV_ERROR"


@pytest.mark.alone
def test_messages_that_are_held_whole_do_not_wait(web):
    """A sender may have sent no more than ten segments before the first acknowledgment (RFC 6928): what is held is acknowledged to it."""
    before = not_applied(web)
    rules(web, f'{HTTP} http-body "MATCH" mod http-body "<\\m>"', f'{HTTP} http add http-header "X-By" "mmb"')
    expected = LARGE.replace(WORD, b"<MATCH>")
    for _ in range(3):
        begun = time.monotonic()
        _, shown = curl(web, "--http1.0", f"http://{SERVER4}:{PORT}/large")
        assert shown.encode() == expected and time.monotonic() - begun < 3
        begun = time.monotonic()
        with raw(web) as end:
            end.sendall(b"POST /none HTTP/1.0\r\nContent-Length: %d\r\n\r\n" % len(LARGE) + LARGE)
            Reader(end).until(b"\r\n\r\n")
        assert web.origin.requests[-1].body == expected and time.monotonic() - begun < 3
    assert not_applied(web) == before


@pytest.mark.alone
def test_long_heads_do_not_wait(web):
    """Almost `http head` of 16 KiB, in segments so small that it is far more than a sender sends without an acknowledgment."""
    rules(web, f'{HTTP} http add http-header "X-By" "mmb"', f'{HTTP} http mod http-header "X-Long" "<\\m>"')
    for _ in range(3):
        begun = time.monotonic()
        with raw(web, mss=600) as end:
            end.sendall(b"GET /long-head HTTP/1.1\r\nHost: a.org\r\n" + LONG_HEAD + b"\r\n")
            head = Reader(end).until(b"\r\n\r\n")
        assert time.monotonic() - begun < 3
        for got in (head, web.origin.requests[-1].head):
            assert b"X-Long: <" + LONG_VALUE + b">\r\n" in got and got.endswith(b"X-By: mmb") and len(got) > 15 << 10


@pytest.mark.parametrize("target", BODIES)
def test_bodies_of_requests(web, target):
    """http.client with a length and with chunks, and curl with a large body that waits for 100 Continue."""
    words, by = BODIES[target]
    rules(web, f'{HTTP} http-method "POST" http-body "MATCH" {words}')
    expected = edited(PAGE, (WORD, by))
    with contextlib.closing(client(web)) as connection:
        for body in (PAGE, iter([PAGE[start : start + 77] for start in range(0, len(PAGE), 77)])):
            answer, echo = ask(connection, "/echo", "POST", body)
            assert web.origin.requests[-1].body == expected
            assert echo == edited(expected, (WORD, by)), "the response is edited, too"
    sent = web.folder / "huge"
    sent.write_bytes(HUGE)
    words = ["-H", "Expect: 100-continue", "--data-binary", f"@{sent}", "-o", web.folder / "got", f"http://{SERVER4}:{PORT}/none"]
    curl(web, *words)
    assert web.origin.requests[-1].body == edited(HUGE, (WORD, by))


def test_messages_without_bodies_keep_the_ends_in_step(web):
    """HEAD, 304, 204, interim responses and empty bodies on one connection, among pages that are edited."""
    rules(web, f'{HTTP} http-body "MATCH" strip http-body')
    page = PAGE.replace(WORD, b"")
    with contextlib.closing(client(web)) as connection:
        for target, method, expected in (
            ("/length", "HEAD", b""),
            ("/length", "GET", page),
            ("/304", "GET", b""),
            ("/chunked", "HEAD", b""),
            ("/204", "GET", b""),
            ("/chunked", "GET", page),
            ("/interim", "GET", b""),
            ("/none", "GET", b""),
            ("/length", "GET", page),
        ):
            assert ask(connection, target, method)[1] == expected, (target, method)
    assert len(web.origin.requests) == 9


def test_encodings_and_ranges(web):
    """They are taken from requests whose response's body is searched, so that it is plain and whole; or stay, as it is set."""
    rule = f'{HTTP} http-body "MATCH" strip http-body'
    fields = {"Accept_Encoding": "gzip", "Range": "bytes=0-9", "If_Range": '"v1"'}
    for setting, stays in (("strip", False), ("pass", True)):
        rules(web, f"set http encodings {setting}", rule)
        with contextlib.closing(client(web)) as connection:
            assert ask(connection, "/length", **fields)[1] == PAGE.replace(WORD, b"")
            assert ask(connection, "/encoded", **fields)[1] == WORD, "what is encoded passes"
        for got in web.origin.requests[-2:]:
            assert [bool(got.all(name.replace("_", "-"))) for name in fields] == [stays] * 3


def test_messages_that_forbid_changes(web):
    rule = f'{HTTP} http-body "MATCH" strip http-body'
    for setting, expected in (("obey", WORD), ("ignore", b"")):
        rules(web, f"set http no-transform {setting}", rule)
        with contextlib.closing(client(web)) as connection:
            assert ask(connection, "/final")[1] == expected


def test_pipelined_requests(web):
    """Many requests at once, whose responses are edited in their order."""
    rules(web, f'{HTTP} http-body "MATCH" mod http-body "<\\m>" add http-header "X-By" "mmb"')
    targets = ["/length", "/chunked", "/304", "/none", "/404", "/interim"] * 5
    with raw(web) as end:
        end.sendall(b"".join(b"GET %s HTTP/1.1\r\nHost: a.org\r\nX-Number: %d\r\n\r\n" % (target.encode(), number) for number, target in enumerate(targets)))
        reader = Reader(end)
        for target in targets:
            head = reader.until(b"\r\n\r\n")
            if b" 103 " in head:
                head = reader.until(b"\r\n\r\n")
            if b"chunked" in head:
                body = reader.chunked()
            elif b" 304 " in head:
                body = b""
            else:
                body = reader.exactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))
            plain = {"/length": PAGE, "/chunked": PAGE, "/404": WORD, "/interim": WORD}.get(target, b"")
            assert body == plain.replace(WORD, b"<MATCH>"), target
    assert [got.all("X-Number") for got in web.origin.requests] == [[str(number)] for number in range(len(targets))]


def test_a_large_page_is_edited_as_it_flows(web):
    """4 MB that grow: they do not wait for the end."""
    rules(web, f'{HTTP} http-body "MATCH" mod http-body "<\\m! and more>"')
    with contextlib.closing(client(web)) as connection:
        _, body = ask(connection, "/huge")
        assert body == edited(HUGE, (WORD, TARGETS["mod"][1]))
