"""An HTTP server and clients in plain Python that see every byte: requests as they arrived, responses in any framing."""

import contextlib
import http.client
import re
import socket
import threading

from .sockets import closing, listener
from .topology import CLIENT4, SERVER4

PORT = 8000
WORD = b"MATCH"
# A page with the text in many places, also at both ends and cut by chunks of any size.
PAGE = WORD + b"".join(b"<p>%04d" % number + b"x" * (number * 37 % 300) + WORD + b"</p>" for number in range(200)) + WORD
SOME = PAGE[:8000]
# As much as is held, more than a sender sends without an acknowledgment.
LARGE = b"".join(b"%05d" % number + b"y" * 45 for number in range(1250)) + WORD
HUGE = b"".join(b"%06d" % number + b"y" * 200 + WORD for number in range(20_000))


class Request:
    """What a server got: the request line, header fields in order, the body."""

    def __init__(self, head, body):
        line, *fields = head.decode("latin-1").split("\r\n")
        self.method, self.target, self.version = line.split(" ")
        self.fields = [tuple(field.split(": ", 1)) for field in fields]
        self.body = body
        self.head = head

    def __repr__(self):
        return f"Request({self.head}, {self.body})"

    def all(self, name):
        return [value for field, value in self.fields if field.lower() == name.lower()]

    def names(self):
        return [field.lower() for field, _ in self.fields]


class Reader:
    """Reads messages from a socket."""

    def __init__(self, end):
        self.end, self.data = end, b""

    def more(self):
        got = self.end.recv(1 << 16)
        if not got:
            raise EOFError
        self.data += got

    def until(self, mark):
        while mark not in self.data:
            self.more()
        text, _, self.data = self.data.partition(mark)
        return text

    def exactly(self, count):
        while len(self.data) < count:
            self.more()
        text, self.data = self.data[:count], self.data[count:]
        return text

    def chunked(self):
        body = b""
        while count := int(self.until(b"\r\n").split(b";")[0], 16):
            body += self.exactly(count)
            assert self.exactly(2) == b"\r\n"
        while self.until(b"\r\n"):
            pass
        return body

    def request(self, before_body=lambda head: None):
        head = self.until(b"\r\n\r\n")
        before_body(head)
        if re.search(rb"\ntransfer-encoding: *chunked", head.lower()):
            return Request(head, self.chunked())
        length = re.search(rb"\ncontent-length: *(\d+)", head.lower())
        return Request(head, self.exactly(int(length[1])) if length else b"")


def chunks(body, size=100):
    """A body in chunks whose borders cut texts anywhere, with a chunk extension and trailers."""
    out, number = b"", 0
    while body:
        count = 1 + (number * 53 + 7) % size
        out += b"%x%s\r\n" % (len(body[:count]), b";a=b" if number == 3 else b"") + body[:count] + b"\r\n"
        body, number = body[count:], number + 1
    return out + b"0\r\nX-Trailer: MATCH\r\n\r\n"


def response(status=b"200 OK", body=b"", *fields, version=b"1.1"):
    head = b"".join(b"%s\r\n" % field for field in (b"Server: origin", *fields))
    return b"HTTP/%s %s\r\n%s\r\n" % (version, status, head) + body


LONG_VALUE = b"x" * (15 << 10)
LONG_HEAD = b"X-Long: " + LONG_VALUE + b"\r\n"
HTML = b"Content-Type: text/html"
# What the server answers for each target. Those whose name begins with `close` end the connection.
ANSWERS = {
    "/length": response(b"200 OK", PAGE, HTML, b"Content-Length: %d" % len(PAGE), b'ETag: "v1"'),
    "/chunked": response(b"200 OK", chunks(PAGE), HTML, b"Transfer-Encoding: chunked"),
    "/close": response(b"200 OK", PAGE, HTML, b"Connection: close"),
    "/close-early": response(b"200 OK", WORD, HTML, b"Content-Length: 9000", b"Connection: close"),
    "/close-10": response(b"200 OK", PAGE, HTML, version=b"1.0"),
    "/close-huge": response(b"200 OK", HUGE, b"Content-Length: %d" % len(HUGE), b"Connection: close"),
    "/huge": response(b"200 OK", HUGE, b"Content-Length: %d" % len(HUGE)),
    "/large": response(b"200 OK", LARGE, HTML, b"Content-Length: %d" % len(LARGE)),
    "/long-head": response(b"200 OK", b"", LONG_HEAD[:-2], b"Content-Length: 0"),
    "/some": response(b"200 OK", SOME, HTML, b"Content-Length: %d" % len(SOME)),
    "/none": response(b"200 OK", b"", b"Content-Length: 0"),
    "/304": response(b"304 Not Modified", b"", b"Content-Length: 5", b'ETag: "v1"'),
    "/204": response(b"204 No Content", b""),
    "/interim": response(b"103 Early Hints", b"", b"Link: </MATCH>") + response(b"200 OK", WORD, b"Content-Length: 5"),
    "/encoded": response(b"200 OK", WORD, b"Content-Encoding: gzip", b"Content-Length: 5"),
    "/final": response(b"200 OK", WORD, b"Cache-Control: no-transform", b"Content-Length: 5"),
    "/404": response(b"404 Not Found", WORD, b"Content-Length: 5"),
}


class Origin:
    """The server: keeps connections alive, answers HEAD without a body, and remembers what it got."""

    def __init__(self, site, port=PORT):
        self.requests, self.raw = [], []
        self.listening = listener(site.server, SERVER4, port, 512)
        self.listening.settimeout(0.1)
        self.stopping = threading.Event()
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def _accept(self):
        while not self.stopping.is_set():
            with contextlib.suppress(TimeoutError):
                end, _ = self.listening.accept()
                end.settimeout(8)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                thread = threading.Thread(target=self._serve, args=(end,))
                self.threads.append(thread)
                thread.start()

    def _serve(self, end):
        reader = Reader(end)
        with end, contextlib.suppress(EOFError, OSError):
            while True:
                request = reader.request(lambda head: self._continue(end, head))
                self.requests.append(request)
                target = "/" + request.target.split("?")[0].split("/")[-1]
                answer = ANSWERS.get(target) or response(b"200 OK", request.body, b"Content-Length: %d" % len(request.body))
                if request.method == "HEAD":
                    answer = answer[: answer.index(b"\r\n\r\n") + 4]
                end.sendall(answer)
                if target.startswith("/close"):
                    return

    @staticmethod
    def _continue(end, head):
        if b"100-continue" in head.lower():
            end.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")

    def close(self):
        self.stopping.set()
        for thread in self.threads:
            thread.join(10)
        self.listening.close()


def client(site, port=PORT):
    """A connection of http.client in the client's namespace."""
    made = http.client.HTTPConnection(SERVER4, port, timeout=8)
    with site.client.entered():
        made.connect()
    return made


def ask(connection, target, method="GET", body=None, **fields):
    """A request and its response: the response, and its body."""
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    connection.request(method, target, body, headers)
    answer = connection.getresponse()
    return answer, answer.read()


@contextlib.contextmanager
def raw(site, port=PORT, mss=None):
    """A connection for bytes of any kind, in segments of the usual size or of that size at most, both ways."""
    with site.client.entered():
        end = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    end.settimeout(8)
    if mss:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, mss)
    end.bind((CLIENT4, 0))
    end.connect((SERVER4, port))
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with closing(end):
        yield end


def curl(site, *words, check=True, timeout=20):
    """curl in the client's namespace: the exit status and its output."""
    done = site.client.run("curl", "-gsS", "--max-time", "15", *words, check=check, timeout=timeout)
    return done.returncode, done.stdout
