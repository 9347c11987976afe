"""What `mmb replay --json` tells of edits: applied to what the senders sent, they must give what the receivers got.

The senders, the receivers and the place of each text are Python's; mmb tells rules, places, bytes and the packet that decided.
"""

import json
import random
import re
import subprocess

import pytest
from captures import read_pcap, write_numbered
from receivers import segment
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

CLIENT, SERVER, PORT, ISN = "10.0.0.1", "192.0.2.80", 80, {"forward": 1_000, "reply": 7_000}
MACS = ("02:00:00:00:00:01", "02:00:00:00:00:02")


class Talk:
    """One connection in one capture: what each end sent, and in which packet."""

    def __init__(self, sport=20_000):
        self.sport, self.frames, self.sent = sport, [], {"forward": b"", "reply": b""}
        self.segment("forward", flags="S", at=-1)
        self.segment("reply", flags="SA", at=-1)
        self.segment("forward", flags="A", at=0)

    def segment(self, direction, data=b"", flags="PA", at=None):
        """Returns the number of its packet in the capture, from 1."""
        other = "reply" if direction == "forward" else "forward"
        at = len(self.sent[direction]) if at is None else at
        ports = (self.sport, PORT) if direction == "forward" else (PORT, self.sport)
        ends, macs = ((CLIENT, SERVER), MACS) if direction == "forward" else ((SERVER, CLIENT), MACS[::-1])
        tcp = TCP(sport=ports[0], dport=ports[1], flags=flags, seq=ISN[direction] + 1 + at, window=60_000,
                  ack=ISN[other] + 1 + len(self.sent[other]) if "A" in flags else 0)
        packet = Ether(src=macs[0], dst=macs[1]) / IP(src=ends[0], dst=ends[1]) / tcp
        self.frames.append(bytes(packet / Raw(data) if data else packet))
        self.sent[direction] += data
        return len(self.frames)

    def exchange(self, direction, data, sizes):
        """Sends data in pieces, which the other end acknowledges; returns for each byte the packet with it."""
        other, packets, at = "reply" if direction == "forward" else "forward", [], 0
        while at < len(data):
            piece = data[at : at + next(sizes)]
            packets += [self.segment(direction, piece)] * len(piece)
            self.segment(other, flags="A")
            at += len(piece)
        return packets

    def finish(self):
        self.segment("forward", flags="FA")
        self.segment("reply", flags="FA")


def run(mmb, folder, policy, frames, *arguments):
    (folder / "policy.mmb").write_text("".join(f"{rule}\n" for rule in policy))
    write_numbered(folder / "in.pcap", enumerate(frames))
    command = [mmb, "replay", *arguments, "--rules", folder / "policy.mmb", folder / "in.pcap", folder / "out.pcap"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done.stdout


def left(folder, talk):
    """What each end got: first copies, in the order of their numbers."""
    received = {"forward": b"", "reply": b""}
    for _, frame in read_pcap(folder / "out.pcap"):
        each = segment(frame)
        way = {(talk.sport, PORT): "forward", (PORT, talk.sport): "reply"}.get((each.sport, each.dport))
        if way and each.data:
            assert each.is_sound
            at = (each.seq - ISN[way] - 1) % 2**32
            assert at <= len(received[way]), "nothing is missing"
            received[way] += each.data[len(received[way]) - at :]
    return received


def unescape(text):
    """Bytes of a text that is escaped as C's strings are."""
    return text.encode("ascii").decode("unicode_escape").encode("latin-1")


def applied(sent, edits):
    """What the edits make of the bytes of a direction. Each must have found what it says."""
    out, at = b"", 0
    for edit in edits:
        removed, put = unescape(edit["removed"]), unescape(edit["put"])
        assert (len(removed), len(put)) == (edit["removed_bytes"], edit["put_bytes"]), "short enough to be told whole"
        assert edit["offset"] >= at and sent[edit["offset"] :].startswith(removed)
        out += sent[at : edit["offset"]] + put
        at = edit["offset"] + len(removed)
    return out + sent[at:]


def edits_of(summary, direction, sport=20_000):
    arrived = {"src": CLIENT, "sport": sport, "dst": SERVER, "dport": PORT}
    return [edit for edit in summary["edits"] if edit["direction"] == direction and edit["arrived"] == arrived]


STREAM_RULES = [
    'add-stateful tcp-dport 80 stream-forward "ATTACK" mask stream-forward',
    'add-stateful tcp-dport 80 stream-forward /cmd\\.exe|\\x00{1,100}/ mod stream-forward "(no \\m)"',
    'add-stateful tcp-dport 80 stream-reply "secret" strip stream-reply',
]


@pytest.mark.parametrize("seed", range(4))
def test_edits_of_streams_are_told_one_by_one(mmb, tmp_path, seed):
    rng = random.Random(seed)
    talk = Talk()
    pieces = iter(lambda: rng.randrange(1, 9), 0)
    words = {"forward": [b"ATTACK", b"cmd.exe", b"\0\0", b"harmless \xff\n", b"ATT", b"cmd."], "reply": [b"secret", b"se", b"cret "]}
    bytes_of = {way: b"".join(rng.choice(words[way]) for _ in range(30)) + b"." for way in words}
    packets = {way: talk.exchange(way, bytes_of[way], pieces) for way in words}
    talk.finish()
    summary = json.loads(run(mmb, tmp_path, STREAM_RULES, talk.frames, "--json"))
    received = left(tmp_path, talk)
    # What Python finds; a run of zero bytes is known to be at its end with the byte behind it.
    found = {"forward": re.compile(rb"(ATTACK)|(cmd\.exe)|(\0{1,100})"), "reply": re.compile(rb"()()()(secret)")}
    all_of_them = 0
    for way, pattern in found.items():
        expected = []
        for match in pattern.finditer(bytes_of[way]):
            decides = match.end() if match[3] else match.end() - 1
            rule = 1 if match[1] else 3 if way == "reply" else 2
            expected.append(([rule], match.start(), match[0], packets[way][decides]))
        edits = edits_of(summary, way)
        told = [(edit["rules"], edit["offset"], unescape(edit["removed"]), edit["packet"]) for edit in edits]
        assert told == expected and len(told) > 3
        assert all(edit["input"] == str(tmp_path / "in.pcap") and edit["proto"] == "tcp" for edit in edits)
        assert received[way] == applied(talk.sent[way], edits) != talk.sent[way]
        all_of_them += len(edits)
    assert all_of_them == len(summary["edits"])
    sums = [sum(edit[f"{what}_bytes"] for edit in summary["edits"]) for what in ("removed", "put")]
    assert summary["edited"] == {"edits": all_of_them, "untold": 0, "removed_bytes": sums[0], "put_bytes": sums[1]}
    line = f"edits   {all_of_them:>12} of streams, {sums[0]} bytes became {sums[1]} (--json tells each)"
    assert line in run(mmb, tmp_path, STREAM_RULES, talk.frames).splitlines()


HTTP_RULES = [
    'add-stateful tcp-dport 80 http strip http-header "Cookie" add http-header "X-By" "mmb"',
    'add-stateful tcp-dport 80 http-uri "/old" mod http-uri "/new"',
    'add-stateful tcp-dport 80 http mod http-header "Server" "none"',
    'add-stateful tcp-dport 80 http-body "cat" mod http-body "[\\m]"',
    'add-stateful tcp-dport 80 http-status 200 add http-body "--"',
]
REQUEST = b"GET /old/a HTTP/1.1\r\nHost: a.example\r\nCookie: a=1\r\nAccept: */*\r\n\r\n"
RESPONSES = {
    "length": b"HTTP/1.1 200 OK\r\nServer: x/1.2\r\nContent-Length: 12\r\n\r\nno cat a cat",
    "chunks": b"HTTP/1.1 200 OK\r\nServer: x/1.2\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nno c\r\n8\r\nat a cat\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("framing", RESPONSES)
@pytest.mark.parametrize("size", [1, 7, 1000])
def test_edits_of_messages_are_told_with_their_rules(mmb, tmp_path, framing, size):
    talk = Talk()
    sizes = iter(lambda: size, 0)
    talk.exchange("forward", REQUEST, sizes)
    talk.exchange("reply", RESPONSES[framing], sizes)
    talk.finish()
    summary = json.loads(run(mmb, tmp_path, HTTP_RULES, talk.frames, "--json"))
    received = left(tmp_path, talk)
    requests, responses = edits_of(summary, "forward"), edits_of(summary, "reply")
    assert received["forward"] == applied(talk.sent["forward"], requests)
    assert received["reply"] == applied(talk.sent["reply"], responses)
    # Where each text is, and whose rule touches it.
    by_text = {
        unescape(edit["removed"]): (edit["rules"], unescape(edit["put"]), edit["offset"] - REQUEST.find(unescape(edit["removed"])))
        for edit in requests
    }
    assert by_text[b"/old/a"] == ([2], b"/new", 0)
    assert by_text[b"Cookie: a=1\r\n"] == ([1], b"", 0)
    added = [edit for edit in requests if b"X-By: mmb\r\n" in unescape(edit["put"])]
    assert [edit["rules"] for edit in added] == [[1]]
    server = RESPONSES[framing].find(b"x/1.2")
    assert [(edit["rules"], edit["removed"], edit["put"]) for edit in responses if edit["offset"] == server] == [([3], "x/1.2", "none")]
    edited = [rule for edit in responses for rule in edit["rules"]]
    assert edited.count(1) == 1 and 4 in edited and 5 in edited
    assert all(set(edit["rules"]) <= {4, 5} for edit in responses if edit["offset"] >= RESPONSES[framing].find(b"\r\n\r\n") + 4)
    # What mmb needs for the framing belongs to no rule.
    assert any(edit["rules"] == [] for edit in responses)


def test_an_edit_that_time_decides_has_no_packet(mmb, tmp_path):
    talk = Talk()
    talk.segment("forward", b"..\0")
    write = iter(lambda: 5, 0)
    # A capture's clock goes on: the next packet is a second later, and of another connection.
    other = Talk(sport=20_001)
    other.exchange("forward", b"x" * 5, write)
    frames = [*enumerate(talk.frames), *((2_000 + number, frame) for number, frame in enumerate(other.frames))]
    (tmp_path / "policy.mmb").write_text(f"{STREAM_RULES[1]}\n")
    write_numbered(tmp_path / "in.pcap", frames)
    done = subprocess.run([mmb, "replay", "--json", "--rules", tmp_path / "policy.mmb", tmp_path / "in.pcap", tmp_path / "out.pcap"],
                          capture_output=True, text=True, check=True)
    (edit,) = json.loads(done.stdout)["edits"]
    assert (edit["offset"], edit["removed"], "packet" in edit) == (2, "\\x00", False)


def test_only_the_first_thousand_are_told(mmb, tmp_path):
    talk = Talk()
    talk.exchange("forward", b"ATTACK." * 1_200, iter(lambda: 1_400, 0))
    talk.finish()
    summary = json.loads(run(mmb, tmp_path, STREAM_RULES, talk.frames, "--json"))
    assert [edit["offset"] for edit in summary["edits"]] == [7 * number for number in range(1_000)]
    assert summary["edited"] == {"edits": 1_200, "untold": 200, "removed_bytes": 7_200, "put_bytes": 7_200}


def test_long_edits_are_told_by_their_begin(mmb, tmp_path):
    talk = Talk()
    talk.exchange("forward", b"<" + b"a" * 1_000 + b">", iter(lambda: 500, 0))
    talk.finish()
    rules = ['add-stateful tcp-dport 80 stream-forward /<[^>]{0,2000}>/ mod stream-forward "\\m\\m"']
    (edit,) = json.loads(run(mmb, tmp_path, rules, talk.frames, "--json"))["edits"]
    assert (edit["removed_bytes"], edit["put_bytes"]) == (1_002, 2_004)
    assert edit["removed"] == edit["put"] == "<" + "a" * 127


def test_without_edits_nothing_is_told(mmb, tmp_path):
    talk = Talk()
    talk.exchange("forward", b"harmless", iter(lambda: 3, 0))
    talk.finish()
    summary = json.loads(run(mmb, tmp_path, STREAM_RULES, talk.frames, "--json"))
    assert "edits" not in summary and "edited" not in summary
    assert not any(line.startswith("edits") for line in run(mmb, tmp_path, STREAM_RULES, talk.frames).splitlines())
