"""Judges of where requests end: nginx, Apache, HAProxy and squid behind mmb read the messages that mmb reads, or refuse them.

mmb adds a header field to each request that it reads. A server that reads another message, or another end of one, shows it: by a request without
the field, by a body with it, by fewer requests without a refusal, or by waiting for more.
"""

import contextlib
import re
import time
from dataclasses import dataclass

import pytest

from . import judges
from .http_ends import Origin, raw
from .test_http_borders import AMBIGUOUS, CHUNKED, head
from .topology import Site

MARK = b"X-Mmb"


def line(text, *fields):
    return head(*fields, line=text)


def request(text, *fields):
    """A head without Host."""
    return b"\r\n".join((text, *fields, b"", b""))


def field(text):
    """A message whose body is in chunks for who reads the field so, and one more message for who does not."""
    return head(text) + HELLO + LAST


def length(text):
    return head(text) + b"hello"


def chunks(body, *fields):
    return head(CHUNKED, *fields) + body


HELLO = b"5\r\nhello\r\n"
LAST = b"0\r\n\r\n"
GET = b"GET /TAG HTTP/1.1"

# What mmb must refuse, besides what it refuses on plain connections. Behind each come two requests.
REFUSED = {
    **AMBIGUOUS,
    # RFC 9112, section 6.1: `chunked`, once and alone.
    "chunked and an empty item": field(b"Transfer-Encoding: chunked,"),
    "an empty item and chunked": field(b"Transfer-Encoding: , chunked"),
    "chunked with a parameter": field(b"Transfer-Encoding: chunked;q=1"),
    "chunked behind VT": field(b"Transfer-Encoding: \x0bchunked"),
    "chunked before FF": field(b"Transfer-Encoding: chunked\x0c"),
    "chunked before a blank of Latin-1": field(b"Transfer-Encoding: chunked\xa0"),
    "chunked before DEL": field(b"Transfer-Encoding: chunked\x7f"),
    "identity": field(b"Transfer-Encoding: identity"),
    "identity and chunked": field(b"Transfer-Encoding: identity, chunked"),
    "gzip and chunked": field(b"Transfer-Encoding: gzip, chunked"),
    "identity, then chunked": field(b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked"),
    "no encoding": field(b"Transfer-Encoding:"),
    "chunk": field(b"Transfer-Encoding: chunk"),
    "chunked between blanks": field(b"Transfer-Encoding: chun ked"),
    "NUL behind chunked": field(b"Transfer-Encoding: chunked\0"),
    "NUL in the name of the encoding": field(b"Transfer-Encoding\0: chunked"),
    "VT behind the name of the encoding": field(b"Transfer-Encoding\x0b: chunked"),
    "a bare CR in front of the encoding": field(b"X: y\rTransfer-Encoding: chunked"),
    "a bare CR in front of the value": field(b"Transfer-Encoding:\rchunked"),
    "a bare LF in front of the encoding": field(b"X: y\nTransfer-Encoding: chunked"),
    "a bare LF in front of the value": field(b"Transfer-Encoding:\n chunked"),
    "a length, and chunks in capitals": head(b"Content-Length: 5", b"TRANSFER-ENCODING: CHUNKED") + LAST,
    "a length, and chunks behind a tab": head(b"Content-Length: 5", b"Transfer-Encoding:\tchunked") + LAST,
    # Section 6.3: one length of digits.
    "equal lengths": length(b"Content-Length: 5\r\nContent-Length: 5"),
    "a list of equal lengths": length(b"Content-Length: 5, 5"),
    "a length with a semicolon": length(b"Content-Length: 5;"),
    "a length with a fraction": length(b"Content-Length: 5.0"),
    "a length with an exponent": length(b"Content-Length: 5e0"),
    "a length with a separator": length(b"Content-Length: 0_5"),
    "a length with VT": length(b"Content-Length: 5\x0b"),
    "a length with FF in front": length(b"Content-Length: \x0c5"),
    "a length with a blank of Latin-1": length(b"Content-Length: 5\xa0"),
    "a length in quotes": length(b'Content-Length: "5"'),
    "a length of digits of another script": length("Content-Length: ٥".encode()),
    "a length of 2^64": length(b"Content-Length: 18446744073709551616"),
    "a length of 2^64 + 5": length(b"Content-Length: 18446744073709551621"),
    "a length of 2^32 and a sign": length(b"Content-Length: -4294967291"),
    "a folded length": length(b"Content-Length:\r\n 5"),
    "a length that is folded on": length(b"Content-Length: 5\r\n 0"),
    "a length that is folded on by nothing": length(b"Content-Length: 5\r\n "),
    # Section 7.1.
    "a chunk size and a blank": chunks(b"5 \r\nhello\r\n" + LAST),
    "a chunk size and a tab": chunks(b"5\t\r\nhello\r\n" + LAST),
    "a chunk size behind a blank": chunks(b" 5\r\nhello\r\n" + LAST),
    "a chunk size and a bad blank before an extension": chunks(b"5 ;a=b\r\nhello\r\n" + LAST),
    "a chunk size of too many digits": chunks(b"00000000000000005\r\nhello\r\n" + LAST),
    "a chunk size with a separator": chunks(b"0_5\r\nhello\r\n" + LAST),
    "a negative chunk size": chunks(b"-5\r\nhello\r\n" + LAST),
    "a chunk size and CR": chunks(b"5\r\r\nhello\r\n" + LAST),
    "a chunk size and other text": chunks(b"5x\r\nhello\r\n" + LAST),
    "a chunk size and NUL": chunks(b"5\0\r\nhello\r\n" + LAST),
    "a chunk extension with CR": chunks(b"5;a\rb\r\nhello\r\n" + LAST),
    "a chunk extension with NUL": chunks(b"5;a\0b\r\nhello\r\n" + LAST),
    "a chunk extension with a quoted line end": chunks(b'5;a="\n"\r\nhello\r\n' + LAST),
    "a chunk that ends with LF": chunks(b"5\r\nhello\n" + LAST),
    "a chunk that ends with CR": chunks(b"5\r\nhello\r" + LAST),
    "a chunk that ends with LF and CR": chunks(b"5\r\nhello\n\r" + LAST),
    "a chunk that ends with two others": chunks(b"5\r\nhelloxx" + LAST),
    "a last chunk and a line feed": chunks(HELLO + b"0\n\n"),
    "a trailer section that ends with a line feed": chunks(HELLO + b"0\r\n\n"),
    "a trailer that ends with a line feed": chunks(HELLO + b"0\r\nX-T: v\n\r\n"),
    "a trailer that is folded": chunks(HELLO + b"0\r\nX-T: v\r\n w\r\n\r\n"),
    "a trailer behind a blank": chunks(HELLO + b"0\r\n X-T: v\r\n\r\n"),
    "a trailer without a colon": chunks(HELLO + b"0\r\nGET /TAG/smuggled HTTP/1.1\r\n\r\n"),
    "a length in trailers": chunks(HELLO + b"0\r\nContent-Length: 5\r\n\r\n"),
    "an encoding in trailers": chunks(HELLO + b"0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "a host in trailers": chunks(HELLO + b"0\r\nHost: b.org\r\n\r\n"),
    "an option of the connection in trailers": chunks(HELLO + b"0\r\nConnection: close\r\n\r\n"),
    # Sections 2.2, 2.3 and 3.
    "HTTP/0.9": b"GET /TAG\r\n",
    "HTTP/0.9 with a line feed": b"GET /TAG\n",
    "HTTP/0.9 with fields": b"GET /TAG\r\nHost: a.org\r\n\r\n",
    "version 1.10": line(b"GET /TAG HTTP/1.10"),
    "version 01.1": line(b"GET /TAG HTTP/01.1"),
    "version 1.1 and a blank": line(b"GET /TAG HTTP/1.1 "),
    "version 1.1 and a tab": line(b"GET /TAG HTTP/1.1\t"),
    "version 2.0": line(b"GET /TAG HTTP/2.0"),
    "version 0.9": line(b"GET /TAG HTTP/0.9"),
    "a version in small letters": line(b"GET /TAG http/1.1"),
    "a version of another protocol": line(b"GET /TAG ICY/1.1"),
    "tabs in the line": line(b"GET\t/TAG\tHTTP/1.1"),
    "CR in the line": line(b"GET\r/TAG HTTP/1.1"),
    "a blank in front of the line": b" " + line(GET),
    "two empty lines": b"\r\n\r\n" + line(GET),
    "an empty line of LF": b"\n" + line(GET),
    "CR in front": b"\r" + line(GET),
    "NUL in front": b"\0" + line(GET),
    "NUL in the target": line(b"GET /TAG\0 HTTP/1.1"),
    "a target of other bytes": line(b"GET /TAG\xff HTTP/1.1"),
    "a target without a slash": line(b"GET TAG HTTP/1.1"),
    "the target * of GET": line(b"GET * HTTP/1.1"),
    "HEAD in small letters": line(b"head /TAG HTTP/1.1"),
    "a method in quotes": line(b'"GET" /TAG HTTP/1.1'),
    # Sections 3.2 and 3.2.2.
    "no host": request(GET),
    "equal hosts": line(GET, b"Host: a.org"),
    "two hosts in one": request(GET, b"Host: a.org, b.org"),
    "a host with a blank": request(GET, b"Host: a.org b"),
    "a host with a path": request(GET, b"Host: a.org/b"),
    "a host with a user": request(GET, b"Host: b@a.org"),
    "a host with two ports": request(GET, b"Host: a.org:80:90"),
    "a host with a bad port": request(GET, b"Host: a.org:8x"),
    "a target of another host": line(b"GET http://b.org/TAG HTTP/1.1"),
    "a target of another port": line(b"GET http://a.org:81/TAG HTTP/1.1"),
    "a target of a user of another host": line(b"GET http://a.org@b.org/TAG HTTP/1.1"),
    "a target without a host": line(b"GET http:///TAG HTTP/1.1"),
    # RFC 9110, sections 7.6.1 and 9.3.6.
    "a length of the connection": length(b"Connection: Content-Length\r\nContent-Length: 5"),
    "an encoding of the connection": field(b"Connection: close, transfer-encoding\r\nTransfer-Encoding: chunked"),
    "a host of the connection": line(GET, b"Connection: host"),
    "requests behind the last one": line(GET, b"Connection: close"),
    "requests behind one that may be the last one": line(GET, b"Connection: keep-alive", b"Connection: close"),
    "requests behind the last one by Proxy-Connection": line(GET, b"Proxy-Connection: close"),
    "requests behind an expectation of HTTP/1.0": request(
        b"POST /TAG HTTP/1.0", b"Expect: 100-continue", b"Connection: keep-alive", b"Content-Length: 5"
    )
    + b"hello",
    "a close in quotes": line(GET, b'Connection: "close"'),
    "an option that is like close": line(GET, b"Connection: xclose"),
    "close with a parameter": line(GET, b"Connection: close;x"),
    "keep-alive of HTTP/1.0 that is like it": request(b"GET /TAG HTTP/1.0", b"Connection: xkeep-alive"),
    "keep-alive of HTTP/1.0 for a proxy": request(b"GET /TAG HTTP/1.0", b"Proxy-Connection: keep-alive"),
    "requests behind one of HTTP/1.0": request(b"GET /TAG HTTP/1.0"),
    "a tunnel with a body": line(b"CONNECT a.org:80 HTTP/1.1", b"Content-Length: 5") + b"hello",
}


@dataclass
class Read:
    """What mmb reads as one message, of which more follows than the test sends if it is not complete."""

    sent: bytes
    is_complete: bool = True


READ = {
    "no body": Read(head()),
    "a length": Read(length(b"Content-Length: 5")),
    "a length with zeros": Read(length(b"Content-Length: 0000000000000000000000005")),
    "a length between blanks": Read(length(b"Content-Length: \t 5 \t ")),
    "a length behind no blank": Read(length(b"CONTENT-LENGTH:5")),
    "a length of 0": Read(head(b"Content-Length: 0")),
    "another name of a length": Read(head(b"Content_Length: 5")),
    "another name of an encoding": Read(head(b"Transfer_Encoding: chunked")),
    "names that are like others": Read(length(b"X-Content-Length: 9\r\nContent-Length-X: 9\r\nContent-Length: 5")),
    "chunks": Read(chunks(HELLO + LAST)),
    "no chunk": Read(chunks(LAST)),
    "chunks in capitals": Read(field(b"TRANSFER-ENCODING: CHUNKED")),
    "chunks between blanks": Read(field(b"Transfer-Encoding:\t chunked \t")),
    "chunks behind no blank": Read(field(b"Transfer-Encoding:chunked")),
    "a chunk size in capitals": Read(chunks(b"A\r\nhellohello\r\n" + LAST)),
    "a chunk size with zeros": Read(chunks(b"0000000000000005\r\nhello\r\n" + LAST)),
    "a last chunk of many zeros": Read(chunks(HELLO + b"0000000000\r\n\r\n")),
    "a last chunk with an extension": Read(chunks(HELLO + b"0;a=b\r\n\r\n")),
    "a chunk extension": Read(chunks(b"5;a=b\r\nhello\r\n" + LAST)),
    "a chunk extension in quotes": Read(chunks(b'5;a="b;c,5"\r\nhello\r\n' + LAST)),
    "a chunk extension that is empty": Read(chunks(b"5;\r\nhello\r\n" + LAST)),
    "a chunk extension with blanks": Read(chunks(b"5; a = b ;c\r\nhello\r\n" + LAST)),
    "a chunk extension that looks like a size": Read(chunks(b"5;5\r\nhello\r\n" + LAST)),
    "a chunk extension of other bytes": Read(chunks(b"5;a=\xe9\xff\r\nhello\r\n" + LAST)),
    "a chunk extension with open quotes": Read(chunks(b'5;a="\r\nhello\r\n' + LAST)),
    "a long chunk extension": Read(chunks(b"5;a=" + b"b" * 240 + b"\r\nhello\r\n" + LAST)),
    "many chunks of a byte": Read(chunks(b"1\r\nx\r\n" * 300 + LAST)),
    "content that looks like the end": Read(chunks(b"1d\r\n\r\n0\r\n\r\nGET /TAG/smuggled HTTP\r\n" + LAST)),
    "content that looks like a request": Read(head(b"Content-Length: 59") + b"GET /TAG/smuggled HTTP/1.1\r\nHost: a.org\r\nX-Padding: 12345\r\n\r\n"[:59]),
    "trailers": Read(chunks(HELLO + b"0\r\nX-T: v\r\nX-U:\r\n\r\n", b"Trailer: X-T")),
    "a trailer that is announced badly": Read(chunks(HELLO + LAST, b"Trailer: Content-Length, Transfer-Encoding")),
    "GET with a length": Read(line(GET, b"Content-Length: 5") + b"hello"),
    "GET with chunks": Read(line(GET, CHUNKED) + HELLO + LAST),
    "HEAD": Read(line(b"HEAD /TAG HTTP/1.1")),
    "HEAD with a length": Read(line(b"HEAD /TAG HTTP/1.1", b"Content-Length: 5") + b"hello"),
    "DELETE with a length": Read(line(b"DELETE /TAG HTTP/1.1", b"Content-Length: 5") + b"hello"),
    "OPTIONS with chunks": Read(line(b"OPTIONS /TAG HTTP/1.1", CHUNKED) + HELLO + LAST),
    "TRACE with a length": Read(line(b"TRACE /TAG HTTP/1.1", b"Content-Length: 5") + b"hello"),
    "OPTIONS of all": Read(line(b"OPTIONS * HTTP/1.1", b"Content-Length: 5") + b"hello"),
    "OPTIONS that goes no further": Read(line(b"OPTIONS /TAG HTTP/1.1", b"Max-Forwards: 0", b"Content-Length: 5") + b"hello"),
    "another method": Read(line(b"BREW /TAG HTTP/1.1", b"Content-Length: 5") + b"hello"),
    "a method in small letters": Read(line(b"get /TAG HTTP/1.1", b"Content-Length: 5") + b"hello"),
    "a method of signs": Read(line(b"M-SEARCH!#$%&'*+.^_`|~ /TAG HTTP/1.1", b"Content-Length: 5") + b"hello"),
    "the method of HTTP/2": Read(line(b"PRI /TAG HTTP/1.1")),
    "PUT with a range": Read(line(b"PUT /TAG HTTP/1.1", b"Content-Range: bytes 0-4/9", b"Content-Length: 5") + b"howdy"),
    "an empty line": Read(b"\r\n" + line(GET)),
    "an empty line behind a body": Read(length(b"Content-Length: 5") + b"\r\n"),
    "an empty line behind chunks": Read(chunks(HELLO + LAST) + b"\r\n"),
    "HTTP/1.0 that is kept alive": Read(request(b"GET /TAG HTTP/1.0", b"Connection: keep-alive")),
    "HTTP/1.0 with a body that is kept alive": Read(request(b"POST /TAG HTTP/1.0", b"Connection: keep-alive", b"Content-Length: 5") + b"hello"),
    "HTTP/1.0 without a length": Read(request(b"POST /TAG HTTP/1.0", b"Connection: keep-alive")),
    "no name of a host": Read(request(GET, b"Host:")),
    "a host with no port": Read(request(GET, b"Host: a.org:")),
    "a host with signs": Read(request(GET, b"Host: a_b-~!$&'()*+;=.org")),
    "an address": Read(request(GET, b"Host: [::1]:80")),
    "an absolute target": Read(line(b"GET http://a.org/TAG HTTP/1.1", b"Content-Length: 5") + b"hello"),
    "an absolute target in capitals": Read(line(b"GET HTTP://A.ORG:80/TAG HTTP/1.1")),
    "an absolute target with a user": Read(line(b"GET http://u:p@a.org/TAG HTTP/1.1")),
    "an absolute target of another scheme": Read(line(b"GET https://a.org/TAG HTTP/1.1", b"Content-Length: 5") + b"hello"),
    "an absolute target without a path": Read(line(b"GET http://a.org?TAG HTTP/1.1")),
    "two slashes": Read(line(b"GET //b.org/TAG HTTP/1.1")),
    "a fragment": Read(line(b"GET /TAG#a HTTP/1.1")),
    "signs in the target": Read(line(b"GET /TAG?{}|\\^`[]<>\"%00%zz HTTP/1.1")),
    "a target with dots": Read(line(b"GET /TAG/../../../x HTTP/1.1")),
    "100-continue and a length": Read(length(b"Expect: 100-continue\r\nContent-Length: 5")),
    "100-continue and chunks": Read(field(b"Expect: 100-Continue\r\nTransfer-Encoding: chunked")),
    "100-continue of GET": Read(line(GET, b"Expect: 100-continue", b"Content-Length: 5") + b"hello"),
    "100-continue and no body": Read(line(GET, b"Expect: 100-continue")),
    "another expectation": Read(length(b"Expect: y 100-continue\r\nContent-Length: 5")),
    "an upgrade with a body": Read(length(b"Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 5")),
    "an upgrade to HTTP/2 with a body": Read(length(b"Connection: upgrade, http2-settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\nContent-Length: 5")),
    "an upgrade to TLS": Read(line(GET, b"Connection: upgrade", b"Upgrade: TLS/1.0")),
    "options of the connection": Read(length(b"Connection: keep-alive, X-A, Expect\r\nX-A: b\r\nContent-Length: 5")),
    "bytes of Latin-1": Read(line(GET, b"X: \xe9\x80\xff")),
    "a name of all signs": Read(line(GET, b"!#$%&'*+-.^_`|~09azAZ: v")),
    "an empty field": Read(line(GET, b"X:", b"Y: ")),
    "an override of the method": Read(length(b"X-HTTP-Method-Override: HEAD\r\nContent-Length: 5")),
    "many fields": Read(head(*[b"X: y"] * 90, b"Content-Length: 5") + b"hello"),
    "almost as many fields as may be": Read(head(*[b"X: y"] * 124, b"Content-Length: 5") + b"hello"),
    "a head as long as may be": Read(head(*[b"X: " + b"y" * 4000] * 4, b"Content-Length: 5") + b"hello"),
    "many trailers": Read(chunks(HELLO + b"0\r\n" + b"X-T: v\r\n" * 120 + b"\r\n")),
    "a long trailer": Read(chunks(HELLO + b"0\r\nX-T: " + b"v" * 12_000 + b"\r\n\r\n")),
    "a long body": Read(head(b"Content-Length: 100000") + b"hello" * 20_000),
    "a long chunk": Read(chunks(b"186a0\r\n" + b"hello" * 20_000 + b"\r\n" + LAST)),
    "HEAD with chunks": Read(line(b"HEAD /TAG HTTP/1.1", CHUNKED) + HELLO + LAST),
    "TRACE with chunks": Read(line(b"TRACE /TAG HTTP/1.1", CHUNKED) + HELLO + LAST),
    "OPTIONS of a host": Read(line(b"OPTIONS http://a.org HTTP/1.1", CHUNKED) + HELLO + LAST),
    "a protocol in the target": Read(line(b"GET /TAG?HTTP/1.1 HTTP/1.1", b"Content-Length: 5") + b"hello"),
    "a field of a version": Read(line(GET, b"HTTP/1.1: 200", b"Content-Length: 5") + b"hello"),
    "a colon in front of a value": Read(line(GET, b"X:: Content-Length: 9", b"Content-Length: 5") + b"hello"),
    "a long field": Read(head(b"X: " + b"y" * 12_000, b"Content-Length: 5") + b"hello"),
    "a long target": Read(line(b"GET /TAG" + b"x" * 9000 + b" HTTP/1.1", b"Content-Length: 5") + b"hello"),
    # What a number of 32 or 64 bits with a sign would make of it.
    "a length of 2^32 + 5": Read(length(b"Content-Length: 4294967301"), is_complete=False),
    "a length of 2^63": Read(length(b"Content-Length: 9223372036854775808"), is_complete=False),
    "a length of 2^64 - 1": Read(length(b"Content-Length: 18446744073709551615"), is_complete=False),
    "a chunk size of 2^32 + 5": Read(chunks(b"100000005\r\nhello\r\n" + LAST), is_complete=False),
    "a chunk size of 2^63": Read(chunks(b"8000000000000000\r\nhello\r\n" + LAST), is_complete=False),
    "a chunk size of 2^64 - 1": Read(chunks(b"ffffffffffffffff\r\nhello\r\n" + LAST), is_complete=False),
    "a chunk size of 2^60 - 1": Read(chunks(b"fffffffffffffff\r\nhello\r\n" + LAST), is_complete=False),
}

BEHIND = b"GET /TAG/second HTTP/1.1\r\nHost: a.org\r\n\r\nGET /TAG/end HTTP/1.1\r\nHost: a.org\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def own(namespaces, tmp_path_factory):
    with Site(tmp_path_factory.mktemp("judges"), "af_xdp") as made, contextlib.ExitStack() as stack:
        made.daemon = made.mmb().start()
        made.origin = Origin(made)
        stack.callback(made.origin.close)
        yield made
        assert made.daemon.running(), "mmb ended"


@pytest.fixture(scope="module", params=judges.JUDGES)
def judge(own, request):
    """The port of a server."""
    process, port = judges.start(own, request.param)
    try:
        yield port
    finally:
        process.stop()


@pytest.fixture
def site(own):
    own.reset()
    own.origin.requests.clear()
    yield own
    own.daemon.wait_until_settled()


def rules(site, port, *more):
    http = f"add-stateful tcp-dport {port}"
    site.daemon.apply(site.folder, f'{http} http add http-header "{MARK.decode()}" "read"', *(f"{http} {words}" for words in more))


@dataclass
class Seen:
    """What came of a message and the two behind it: requests that mmb read, those that the origin got, the statuses of the responses."""

    read: int
    got: list
    statuses: list
    is_reset: bool
    is_over: bool

    def is_refused(self):
        return self.is_reset or (self.is_over and bool(self.statuses) and self.statuses[-1] >= 400)


def send(site, port, number, message, wait=3):
    tag = b"/%03d" % number
    # A tag has the length of its place, so that lengths of bodies are right.
    message = message.replace(b"POST / HTTP", b"POST /TAG HTTP") + BEHIND
    before = site.daemon.rule(1)["hits"]
    answers, is_reset, is_over = b"", False, True
    with raw(site, port) as end:
        end.settimeout(wait)
        try:
            end.sendall(message.replace(b"/TAG", tag))
            while more := end.recv(1 << 16):
                answers += more
        except (ConnectionResetError, BrokenPipeError):
            is_reset = True
        except TimeoutError:
            is_over = False
    statuses = [int(status) for status in re.findall(rb"HTTP/1\.[01] (\d{3}) ", answers)]
    got = [got for got in site.origin.requests if tag in got.head.split(b"\r\n")[0]]
    read = site.daemon.rule(1)["hits"] - before
    return Seen(read, got, [status for status in statuses if status >= 200], is_reset, is_over)


def faults(requests):
    """What the origin got of which mmb has read nothing, or something else."""
    for got in requests:
        if len(re.findall(rb"(?i)\r\n%s: read(?=\r\n|$)" % MARK, got.head)) != 1:
            yield f"mmb has not read {got}"
        if MARK.lower() in got.body.lower() or b"/end" in got.body:
            yield f"a body goes on: {got}"


def told(wrong):
    return "\n".join(str(fault) for fault in wrong)


# Bodies also leave in other framing than they came in: in chunks of mmb.
FRAMINGS = {"theirs": (), "of mmb": ('http-body "hello" mod http-body "good bye"',)}


@pytest.mark.parametrize("framing", FRAMINGS)
def test_servers_read_the_messages_that_mmb_reads(site, judge, framing):
    rules(site, judge, *FRAMINGS[framing])
    wrong = []
    for number, (name, case) in enumerate(READ.items()):
        seen = send(site, judge, number, case.sent, 3 if case.is_complete else 0.2)
        # Where a body may change, servers are asked to close behind responses to HTTP/1.0.
        is_last = not case.is_complete or (framing == "of mmb" and b"HTTP/1.0" in case.sent)
        expected = 1 if is_last else 3
        wrong += [(name, fault) for fault in faults(seen.got)]
        if seen.read != expected and not (seen.is_refused() and seen.read < expected):
            wrong.append((name, f"mmb has read others: {seen}"))
        if case.is_complete and not seen.is_refused() and (len(seen.statuses) != expected or not seen.is_over):
            wrong.append((name, f"another number of messages: {seen}"))
        if len(seen.got) > (expected if case.is_complete else 0):
            wrong.append((name, f"more messages: {seen}"))
        if framing == "of mmb" and any(b"hello" in got.body for got in seen.got):
            wrong.append((name, f"not edited: {seen}"))
    assert not wrong, told(wrong)
    assert len(site.origin.requests) > 2 * len(READ), "few are refused"
    time.sleep(0.2)
    assert not (late := list(faults(site.origin.requests))), told(late)


def test_servers_read_nothing_of_what_mmb_refuses(site, judge):
    """But heads of messages with bad chunks, and messages in front."""
    rules(site, judge)
    wrong = []
    for number, (name, message) in enumerate(REFUSED.items()):
        seen = send(site, judge, number, message)
        wrong += [(name, fault) for fault in faults(seen.got)]
        if not seen.is_reset:
            wrong.append((name, f"not refused: {seen}"))
    time.sleep(0.2)
    passed = [got for got in site.origin.requests if b"/second" in got.head or b"/smuggled" in got.head]
    assert not (wrong := wrong + passed + list(faults(site.origin.requests))), told(wrong)
