"""What mmb tells: packets of rules with `log`, and connections, to clients, files, syslog and IPFIX collectors."""

import contextlib
import datetime
import json
import re
import signal
import socket
import subprocess
import time

import pytest
from scapy.layers.netflow import NetflowDataflowsetV9, NetflowFlowsetV9, NetflowHeader, NetflowHeaderV10

from lab.daemon import BINARY
from lab.process import wait_until

from . import sockets
from .sockets import closing, udp
from .topology import CLIENT4, SERVER4

RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
PORT = 9200


def age(stamp):
    """Seconds since a time of RFC 3339."""
    assert RFC3339.fullmatch(stamp), stamp
    return time.time() - datetime.datetime.fromisoformat(stamp).timestamp()


@contextlib.contextmanager
def monitored(mmb, folder, *words):
    """The lines that `mmb monitor` has printed until now, while the block runs."""
    path = folder / "monitor.out"
    command = [BINARY, "monitor", *words, "--socket", str(mmb.socket)]
    with path.open("w") as out, subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL) as program:
        time.sleep(0.5)
        try:
            yield lambda: path.read_text().splitlines()
        finally:
            program.terminate()


@pytest.fixture
def fixed(fresh):
    """A site with a daemon of its own."""
    site = fresh("af_packet")
    site.daemon = fresh.daemon(site)
    return site


def test_packets_are_told_with_times_and_a_limit(fixed, tmp_path):
    mmb = fixed.daemon
    mmb.apply(
        tmp_path,
        "set log rate 1",
        "set log burst 5",
        f'add name asked in lan udp-dport {PORT} log "a question"',
        f"add in wan udp-sport {PORT} drop log",
    )

    def events(**wanted):
        found = [json.loads(line) for line in lines()]
        return [event for event in found if wanted.items() <= event.items()]

    with monitored(mmb, tmp_path, "--json") as lines, closing(udp(fixed.server, SERVER4, PORT)) as (far,):
        with closing(udp(fixed.client, CLIENT4)) as (near,):
            sport = near.getsockname()[1]
            for number in range(30):
                near.sendto(b"%d" % number, (SERVER4, PORT))
                sockets.receive(far, b"%d" % number)
            far.sendto(b"an answer", (CLIENT4, sport))
            wait_until(lambda: events(what="suppressed"), "the number of the others is told")
        told = events(what="log", rule=1)
        assert 5 <= len(told) < 30
        # The rest, but for packets that the rate let through in the meantime.
        assert len(told) + sum(event["packets"] for event in events(what="suppressed", rule=1)) == 30
        arrived = {"src": CLIENT4, "sport": sport, "dst": SERVER4, "dport": PORT}
        expected = {"name": "asked", "text": "a question", "in": "lan", "verdict": "pass", "out": "wan",
                    "proto": "udp", "arrived": arrived, "len": 14 + 20 + 8 + 1}
        assert expected.items() <= told[0].items()
        assert 0 <= age(told[0]["time"]) < 60
        (dropped,) = wait_until(lambda: events(what="log", rule=2), "the dropped packet is told")
        assert {"verdict": "drop", "reason": "rule", "in": "wan"}.items() <= dropped.items() and "out" not in dropped


def test_a_monitor_shows_lines_with_times(fixed, tmp_path):
    mmb = fixed.daemon
    mmb.apply(tmp_path, 'add-stateful udp-dport 9201 log "new" accept')
    with monitored(mmb, tmp_path) as lines, closing(udp(fixed.client, CLIENT4, 9202)) as (near,):
        for _ in range(3):
            near.sendto(b"hello", (SERVER4, 9201))
        made, told = wait_until(lambda: len(lines()) > 1 and lines(), "two lines")[:2]
        time.sleep(0.3)
        assert len(lines()) == 2, "a stateful rule tells of the first packet of a connection"
    tuple_ = rf"{CLIENT4}:9202 > {SERVER4}:9201"
    assert re.fullmatch(rf"{RFC3339.pattern} \+ udp {tuple_}, rules 1", made), made
    assert re.fullmatch(rf"{RFC3339.pattern} \* udp {tuple_}, rule 1, in lan, out wan, 47 bytes: new", told), told


# Sinks


def json_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def sent_to_server(site, count, first):
    """Sends a datagram each from as many ports of the client on, and waits until the server has them."""
    with closing(udp(site.server, SERVER4, PORT)) as (far,):
        for sport in range(first, first + count):
            with closing(udp(site.client, CLIENT4, sport)) as (near,):
                near.sendto(b"%d" % sport, (SERVER4, PORT))
                sockets.receive(far, b"%d" % sport)


def ends(connection, which="arrived"):
    return tuple(connection[which][part] for part in ("src", "sport", "dst", "dport"))


def test_a_file_has_every_connection_and_is_opened_again_on_signals(fresh, tmp_path):
    site = fresh("af_packet")
    path, first, second = (tmp_path / name for name in ("log.json", "log.json.1", "log.json.2"))
    mmb = fresh.daemon(site, "--log", f"file:{path},events=connections")
    mmb.apply(tmp_path, "set timeout udp-unreplied 1", "add-stateful in lan ip-proto udp map udp-sport 20000-29999")
    sent_to_server(site, 100, 10000)
    wait_until(lambda: len(json_lines(path)) >= 100, "the connections are told")
    path.rename(first)
    mmb.process.signal(signal.SIGUSR1)
    wait_until(path.exists, "the file is opened again")
    sent_to_server(site, 100, 11000)
    wait_until(lambda: not mmb.connections(), "all connections are over")
    made = mmb.ask("show conn summary")["created"]
    wait_until(lambda: sum(len(json_lines(each)) for each in (first, path)) == 2 * made, "all ends are told")
    path.rename(second)
    mmb.process.signal(signal.SIGHUP)
    wait_until(path.exists, "SIGHUP opens it too")
    events = [event for each in (first, second, path) for event in json_lines(each)]
    created = {ends(event["connection"]): event for event in events if event["what"] == "created"}
    closed = {ends(event["connection"]): event for event in events if event["what"] == "closed"}
    assert made == 200 and set(created) == set(closed) == {
        (CLIENT4, sport, SERVER4, PORT) for first in (10000, 11000) for sport in range(first, first + 100)}
    for tuple_, event in closed.items():
        was, is_ = created[tuple_]["connection"], event["connection"]
        source, sport, *to = ends(is_, "sent")
        assert (source, to) == (CLIENT4, [SERVER4, PORT]) and 20000 <= sport < 30000
        assert ends(was, "sent") == ends(is_, "sent") and event["reason"] == "timeout" and is_["rules"] == [1]
        assert is_["forward"] == {"packets": 1, "bytes": 14 + 20 + 8 + 5} and is_["age_ms"] >= 1000
        assert 0 <= age(created[tuple_]["time"]) - age(event["time"]) < 60
    (sink,) = mmb.ask("show log")["log"]
    assert (sink["written"], sink["lost"], sink["errors"]) == (400, 0, 0)
    assert mmb.stop() == 0


SYSLOG = re.compile(
    r"<(?P<priority>\d{1,3})>1 (?P<time>\S+) (?P<host>[!-~]{1,255}) (?P<app>[!-~]{1,48}) (?P<process>[!-~]{1,128}) "
    r"(?P<what>[!-~]{1,32}) \[(?P<id>[!-~]{1,32})(?P<parameters>( [!-~]{1,32}=\"([^\"\\\]]|\\[\"\\\]])*\")*)\] (?P<text>.*)")
PARAMETER = re.compile(r' ([!-~]{1,32})="((?:[^"\\\]]|\\["\\\]])*)"')


def test_syslog_and_ipfix_get_nat_sessions_by_udp(fresh, tmp_path):
    site = fresh("af_packet")
    with closing(*(udp(site.middle, "127.0.0.1") for _ in range(2))) as (syslog, collector):
        to_syslog, to_collector = (f"127.0.0.1:{bound.getsockname()[1]}" for bound in (syslog, collector))
        mmb = fresh.daemon(site, "--log", f"syslog:udp:{to_syslog}", "--log", f"ipfix:udp:{to_collector}")
        mmb.apply(tmp_path, "set timeout udp-unreplied 1",
                  'add-stateful name n1 in lan ip-proto udp map udp-sport 21000 log "to the ]outside["')
        sent_to_server(site, 1, 12000)
        messages = {}
        while not {"log", "created", "closed"} <= set(messages):
            message = SYSLOG.fullmatch(syslog.recv(65536).decode())
            parameters = dict(PARAMETER.findall(message["parameters"]))
            messages.setdefault(message["what"], (message, parameters))
        for what, (message, parameters) in messages.items():
            facility, severity = divmod(int(message["priority"]), 8)
            assert (facility, message["app"], message["id"]) == (3, "mmb", "mmb@32473") and severity in (4, 5, 6)
            assert 0 <= age(message["time"]) < 60, what
        logged, closed = messages["log"][1], messages["closed"][1]
        assert (logged["name"], logged["text"], logged["sport"]) == ("n1", r"to the \]outside[", "12000")
        expected = {"src": CLIENT4, "sport": "12000", "nat_src": CLIENT4, "nat_sport": "21000", "nat_dst": SERVER4,
                    "packets": "1", "reply_packets": "0", "reason": "timeout", "proto": "udp"}
        assert expected.items() <= closed.items()
        records = []
        templates = {}
        while len(records) < 2:
            records += ipfix_records(collector.recv(65536), templates)
        made, ended = records
        address = socket.inet_aton
        for record, event in ((made, 4), (ended, 5)):  # NAT44 session create and delete
            assert record[0, 230] == bytes([event]) and record[0, 4] == bytes([socket.IPPROTO_UDP])
            assert (record[0, 8], record[0, 12], record[0, 225]) == (address(CLIENT4), address(SERVER4), address(CLIENT4))
            assert [int.from_bytes(record[0, element]) for element in (7, 11, 227, 228)] == [12000, PORT, 21000, PORT]
            assert abs(int.from_bytes(record[0, 323]) / 1000 - time.time()) < 60
        assert int.from_bytes(ended[0, 86]) == 1 and (0, 86) not in made
        assert mmb.stop() == 0


def ipfix_records(message, templates):
    """The records of a message, as scapy reads it: dictionaries by enterprise and element."""
    header = NetflowHeader(message)
    assert header.version == 10 and header[NetflowHeaderV10].length == len(message)
    for flowset in flowsets(header, NetflowFlowsetV9):
        for template in flowset.templates:
            fields = [(f.enterpriseNumber or 0, f.fieldType, f.fieldLength) for f in template.template_fields]
            templates[template.templateID] = fields
    records = []
    for flowset in flowsets(header, NetflowDataflowsetV9):
        data = b"".join(bytes(part) for part in flowset.records)
        fields = templates[flowset.templateID]
        while len(data) >= sum(length for _, _, length in fields):
            record = {}
            for enterprise, element, length in fields:
                record[enterprise, element], data = data[:length], data[length:]
            records.append(record)
    return records


def flowsets(packet, kind):
    while packet := packet.payload.getlayer(kind):
        yield packet


def test_sinks_that_fail_stop_no_traffic_and_are_counted(fresh, tmp_path):
    site = fresh("af_packet")
    path = tmp_path / "log.json"
    mmb = fresh.daemon(site, "--log", "file:/dev/full", "--log", f"syslog:{tmp_path}/nobody", "--log", f"file:{path}")
    mmb.apply(tmp_path, "add-stateful in lan ip-proto udp accept")
    sent_to_server(site, 50, 13000)
    wait_until(lambda: len(json_lines(path)) >= 50, "the other sink works")

    def state():
        full, nobody, works = mmb.ask("show log")["log"]
        return full["errors"] > 0 and nobody["errors"] > 0 and (full, nobody, works)

    full, nobody, works = wait_until(state, "attempts have failed")
    assert "No space left" in full["error"] and "No such file" in nobody["error"] and "error" not in works
    assert (full["written"], nobody["written"], works["lost"]) == (0, 0, 0)
    text = mmb("show log")
    assert "file:/dev/full" in text and "works" in text
    assert mmb.stop() == 0
    assert "events are not written" in mmb.output()


def test_a_log_that_cannot_be_opened_is_an_error_at_the_start(fixed, tmp_path):
    for target, part in (("file:/nonexistent/log.json", "No such file"), ("jornald", "write journald, file:PATH")):
        words = [BINARY, "run", "--port", "a=af_packet:x", "--port", "b=af_packet:y", "--log", target]
        done = fixed.middle.run(*map(str, words), "--socket", str(tmp_path / "other.sock"), check=False)
        assert done.returncode != 0 and part in done.stderr
