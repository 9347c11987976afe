"""Looking at packets: `mmb trace` tells what becomes of live ones, `mmb capture` writes them. What they show must be what was on the cables.

The files are read by tcpdump and scapy, and by a reader of pcapng's options below, which follows the draft (draft-ietf-opsawg-pcapng)."""

import contextlib
import json
import os
import signal
import struct
import subprocess

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import PcapNgReader, wrpcap

from lab.daemon import BINARY
from lab.net import RawPort
from lab.process import run, wait_until

from .frames import MAC, SOURCE, data, ip4, pass_through, rebuilt, tcp, udp
from .offloading import PLACES, hits, running
from .sockets import closing, listener, opened, talk
from .topology import CLIENT4, SERVER4


class Look:
    """A running `capture` or `trace`, with what it says on both streams."""

    def __init__(self, daemon, folder, *words, stdout=None, json_lines=False):
        self.out, self.err = folder / "looked.out", folder / "looked.err"
        words = [word for text in words for word in str(text).split()]
        command = [BINARY, *words, "--socket", str(daemon.socket), *(["--json"] if json_lines else [])]
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout or out,
                stderr=err,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        self.json_lines = json_lines

    def began(self):
        """Waits until the workers look: flows that concern them have been decided again by then."""
        begun = (lambda: '{"tap":' in self.out.read_text()) if self.json_lines else (lambda: "Ctrl-C" in self.err.read_text())
        wait_until(begun, "it has begun")
        return self

    def end(self, number=signal.SIGINT):
        """Interrupts it; returns what it said at the end."""
        if number and self.process.poll() is None:
            self.process.send_signal(number)
        assert self.process.wait(20) == 0, self.err.read_text()
        return self.err.read_text()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def capturing(daemon, folder, *words):
    """Captures into a file; gives its name, and the capture."""
    file = folder / "captured.pcapng"
    file.unlink(missing_ok=True)
    with Look(daemon, folder, "capture", *words, "-w", file) as look:
        yield file, look.began()


def options(body):
    """The options of a block, by code."""
    found = {}
    while len(body) >= 4:
        code, length = struct.unpack("<HH", body[:4])
        if code == 0:
            break
        found.setdefault(code, []).append(body[4 : 4 + length])
        body = body[4 + (length + 3) // 4 * 4 :]
    return found


def packets(file):
    """The packets of a capture: port, direction, seconds, comment, bytes."""
    content, ports, found = file.read_bytes(), [], []
    while content:
        kind, length = struct.unpack("<II", content[:8])
        body = content[8 : length - 4]
        assert struct.unpack("<I", content[length - 4 : length])[0] == length
        if kind == 1:
            given = options(body[8:])
            assert given[9] == [b"\x09"], "nanoseconds"
            ports.append(given[2][0].decode())
        elif kind == 6:
            interface, high, low, captured, wire = struct.unpack("<IIIII", body[:20])
            given = options(body[20 + (captured + 3) // 4 * 4 :])
            (flags,) = struct.unpack("<I", given[2][0])
            (comment,) = given[1]
            found.append(
                {
                    "port": ports[interface],
                    "way": {1: "in", 2: "out"}[flags & 3],
                    "time": ((high << 32) + low) / 1e9,
                    "comment": comment.decode().strip(),
                    "bytes": body[20 : 20 + captured],
                    "wire": wire,
                    "left_out": sum(struct.unpack("<Q", count)[0] for count in given.get(4, [])),
                }
            )
        content = content[length:]
    return found


def ours(file):
    """Those that a test made."""
    return [packet for packet in packets(file) if packet["bytes"][6:12] == SOURCE]


@pytest.fixture
def cables(site):
    with RawPort(site.client, "eth0") as client, RawPort(site.server, "eth0") as server:
        yield client, server


def test_captured_bytes_are_those_of_the_cables(site, mmb, cables):
    """At rx what was sent, at tx what arrived, with the rules, the drop reason, the connection and the translation."""
    mmb.apply(
        site.folder,
        "add id 5 udp-dport 53 mod ip-ttl 9",
        "add id 6 prio 7 udp-dport 54 drop",
        "add-stateful id 7 in lan tcp-dport 80 map ip-saddr 10.0.0.77",
    )
    passing, dropped, translated = ip4() / udp() / data(), ip4() / udp(dport=54) / data(), ip4() / tcp(flags="S")
    sent = [bytes(rebuilt(frame)) for frame in (passing, dropped, translated)]
    with capturing(mmb, site.folder, "in lan ip-saddr 10.0.0.0/24 at rx at tx at drop") as (file, look):
        arrived = pass_through(*cables, sent)
        wait_until(lambda: len(ours(file)) >= 6, "all are written")
        said = look.end()
    found = ours(file)
    at = lambda way, word: [packet for packet in found if packet["way"] == way and packet["comment"].startswith(word)]
    assert [packet["bytes"] for packet in at("in", "rx")] == sent
    assert [packet["bytes"] for packet in at("out", "tx")] == arrived and len(arrived) == 2
    assert [packet["bytes"] for packet in at("in", "drop")] == [sent[1]]
    assert {packet["port"] for packet in at("in", "rx")} == {"lan"}
    assert {packet["port"] for packet in at("out", "tx")} == {"wan"}
    comments = [packet["comment"] for packet in at("in", "rx")]
    assert "passes to wan; rules 5" in comments[0] and "decides" not in comments[0]
    assert "dropped, rule; rules 6; rule 6 decides" in comments[1]
    assert "rules 7; connection" in comments[2] and "new" in comments[2] and "10.0.0.77:40000 >" in comments[2]
    assert f"captured {len(packets(file))} packets, left out 0" in said
    assert file.stat().st_mode & 0o777 == 0o600
    # tcpdump and scapy read it.
    lines = run(["tcpdump", "-n", "-r", file]).stdout
    assert lines.count("10.0.0.1.40000 > 10.0.0.2.53") == 2 and "10.0.0.77.40000 > 10.0.0.2.80" in lines
    with PcapNgReader(str(file)) as reader:
        read = [(bytes(packet), packet.comment) for packet in reader if packet[Ether].src == MAC]
    assert [frame for frame, _ in read] == [packet["bytes"] for packet in found]
    assert all(comment and b"worker" in comment for _, comment in read)


def test_points_reasons_and_lengths_are_chosen(site, mmb, cables):
    mmb.apply(site.folder, "add id 6 udp-dport 54 drop")
    bad = bytearray(rebuilt(ip4() / udp() / data()))
    bad[24] ^= 1
    frames = [rebuilt(ip4() / udp(dport=54) / data()), bytes(bad), rebuilt(ip4() / udp() / data())]
    with capturing(mmb, site.folder, "reason ip4-bad-checksum") as (file, look):
        pass_through(*cables, frames)
        wait_until(lambda: ours(file), "it is written")
        look.end()
    (packet,) = ours(file)
    assert packet["bytes"] == frames[1] and "dropped, ip4-bad-checksum" in packet["comment"]
    with capturing(mmb, site.folder, "udp-dport {53, 54} at tx snaplen 40 count 1") as (file, look):
        pass_through(*cables, [frames[0], frames[2]])
        assert "captured 1 packet," in look.end(number=None)
    (packet,) = ours(file)
    assert packet["bytes"] == frames[2][:40] and packet["wire"] == len(frames[2])
    wrong = mmb.refused("capture at drop reason ip4-bad-cheksum -w -")
    assert "did you mean 'ip4-bad-checksum'?" in wrong
    assert "no port is called 'wam'; the ports are lan, wan" in mmb.refused("capture in wam -w -")
    assert "there is no set called 'nope'" in mmb.refused("capture ip-saddr @nope -w -")
    assert "there is no set called 'nope'" in mmb.refused("trace ip-saddr @nope")


def test_a_pipe_gets_each_packet_at_once_and_its_end_ends_the_capture(site, mmb, cables):
    tcpdump = subprocess.Popen(
        ["tcpdump", "-n", "-l", "-c", "2", "-r", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with Look(mmb, site.folder, "capture udp-dport 53 at rx -w -", stdout=tcpdump.stdin) as look:
        tcpdump.stdin.close()
        look.began()
        frame = rebuilt(ip4() / udp() / data())
        pass_through(*cables, [frame])
        assert b"10.0.0.2.53" in tcpdump.stdout.readline()
        pass_through(*cables, [frame])
        assert b"10.0.0.2.53" in tcpdump.stdout.readline()
        assert tcpdump.wait(20) == 0
        # Nothing comes any more, and the reader has gone.
        assert "left out 0" in look.end(number=None)
    tcpdump.stdout.close()
    tcpdump.stderr.close()


def test_a_reader_that_does_not_read_delays_no_packet(site, mmb, cables):
    """The pipe is full soon, traffic goes on, and what was left out is told."""
    frame = rebuilt(ip4() / udp() / data(1200))
    count = 8000
    read, write = os.pipe()
    try:
        with Look(mmb, site.folder, "capture udp-dport 53 at rx -w -", stdout=write) as look:
            look.began()
            arrived = 0
            lost_before = site.lost(mmb)
            for _ in range(count // 200):
                arrived += len(pass_through(*cables, [frame] * 200))
            assert arrived >= count - (site.lost(mmb) - lost_before)
            said = look.end()
    finally:
        for end in (read, write):
            os.close(end)
    words = said.split("captured ")[-1].replace(",", "").split()
    captured, left_out = int(words[0]), int(words[-1])
    assert left_out > 0 and captured > 0
    assert captured + left_out <= count


def test_a_trace_is_what_explain_says(site, mmb, cables):
    """The same packets, live and in a capture that `explain` reads."""
    rules = (
        "add id 1 prio 10 udp-dport 54 drop",
        "add id 2 prio 20 ip-proto udp accept",
        "add id 3 udp-dport 53 mod ip-ttl 9",
        "add-stateful id 4 in lan tcp-dport 80 map ip-saddr 10.0.0.77",
    )
    mmb.apply(site.folder, *rules)
    frames = [ip4() / udp() / data(), ip4() / udp(dport=54) / data(), ip4() / tcp(flags="S"), ip4(ttl=9) / udp() / data()]
    frames = [rebuilt(frame) for frame in frames]
    with Look(mmb, site.folder, "trace in lan ip-saddr 10.0.0.1 count 4", json_lines=True) as look:
        look.began()
        pass_through(*cables, frames)
        look.end(number=None)
    begun, *told = [json.loads(line) for line in look.out.read_text().splitlines()]
    assert begun["tap"]["ports"] == ["lan", "wan"] and begun["tap"]["count"] == 4
    capture, policy = site.folder / "explained.pcap", site.folder / "applied.mmb"
    wrpcap(str(capture), [Ether(frame) for frame in frames])
    for number, live in enumerate(told, start=1):
        words = ["explain", "--json", "--rules", policy, "--pcap", capture, "--number", number, "--port", "lan"]
        explained = json.loads(run([BINARY, *words]).stdout)
        for key in ("port", "packet", "rules", "more_rules", "decisive", "verdict", "reason", "rewritten", "edits"):
            assert live.get(key) == explained.get(key), (number, key)
        for key in ("new", "reply", "state", "arrived", "sent"):
            assert (live["connection"] or {}).get(key) == (explained["connection"] or {}).get(key), (number, key)
    assert [[rule["id"] for rule in live["rules"]] for live in told] == [[2, 3], [1, 2], [4], [2, 3]]
    assert told[0]["edits"] == [{"field": "ip-ttl", "before": "64", "after": "9"}]
    with Look(mmb, site.folder, "trace udp-dport 54 count 1") as look:
        look.began()
        pass_through(*cables, frames)
        look.end(number=None)
    text = look.out.read_text()
    assert "add id 1 prio 10 udp-dport 54 drop   <- decides" in text
    assert "it is dropped, reason rule: " in text


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("place", PLACES)
def test_offloaded_flows_are_seen_and_offloaded_again(place, tmp_path):
    """Packets that the kernel forwards come back to mmb while somebody looks at them, and those of others do not."""
    with running(tmp_path, place) as site:
        mmb = site.daemon
        site.reset()
        mmb.apply(site.folder, "add-stateful in lan accept")
        with contextlib.ExitStack() as stack:
            ends = {}
            for port in (7001, 7002):
                listening = stack.enter_context(closing(listener(site.server, SERVER4, port)))[0]
                near, far, _ = opened(site.client, CLIENT4, (SERVER4, port), listening)
                ends[port] = stack.enter_context(closing(near, far))

            def forwarded(port):
                """What the kernel forwards of some exchanges."""
                mmb.wait_until_settled()
                before = hits(mmb)
                for _ in range(8):
                    talk(*ends[port])
                mmb.wait_until_settled()
                return hits(mmb) - before

            wait_until(lambda: forwarded(7001) > 8 and forwarded(7002) > 8, "both are offloaded")
            with capturing(mmb, site.folder, "tcp-dport 7001 at rx") as (file, look):
                wait_until(lambda: forwarded(7001) == 0, "none is hidden")
                seen = lambda: sum(packet["bytes"].endswith(b"to and fro") for packet in packets(file))
                wait_until(lambda: seen() >= 8, "they are seen")
                wait_until(lambda: forwarded(7002) > 8, "a flow of no interest is offloaded again")
                kept = {row["reason"] if isinstance(row, dict) else row for row in mmb.ask("show offload")["kept"]}
                assert "tapped" in kept
                look.end()
            wait_until(lambda: forwarded(7001) > 8, "it is offloaded again, once nobody looks")
