"""The programs at both ends: nginx and curl, iperf3, ping, and a UDP stream of numbered packets."""

import hashlib
import json
import os
import socket
import struct
import threading
import time

from lab import daemon

from .topology import SERVER4

BIG = 20 << 20
# The capabilities by which a process may load BPF programs.
OF_PROGRAMS = "-bpf,-sys_admin,-perfmon"


def without_programs(folder):
    """A program that runs mmb as a process that may not load BPF programs."""
    wrapper = folder / "without"
    words = f"setpriv --bounding-set={OF_PROGRAMS} --inh-caps={OF_PROGRAMS} {daemon.BINARY}"
    wrapper.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    wrapper.chmod(0o755)
    return str(wrapper)


class Nginx:
    """A web server in a site's server namespace, on ports 80 and 8080 of both families; with more files and settings, if some are given."""

    PORTS = (80, 8080)

    def __init__(self, site, files=None, settings=""):
        self.root = site.folder / "www"
        self.root.mkdir(exist_ok=True)
        self.files = {"small": b"mmb was here\n", "big": os.urandom(1 << 20) * (BIG >> 20), **(files or {})}
        for name, content in self.files.items():
            (self.root / name).write_bytes(content)
        config = site.folder / "nginx.conf"
        listen = "".join(f"listen {port}; listen [::]:{port}; " for port in self.PORTS)
        config.write_text(
            f"daemon off; master_process off; pid {site.folder}/nginx.pid; error_log stderr;\n"
            f"events {{ worker_connections 12000; }}\n"
            f"http {{ access_log off; {settings} server {{ {listen} root {self.root}; }} }}\n"
        )
        words = ["nginx", "-p", site.folder, "-e", "stderr", "-c", config]
        self.process = site.start(site.server, words, "nginx")
        for port in self.PORTS:
            self.process.wait_listening(port)

    def digest(self, name):
        return hashlib.sha256(self.files[name]).hexdigest()


def fetch(site, url, timeout=30, check=True, rate=None, source=None):
    """curl in the client's namespace: exit status and SHA-256 of the received data."""
    target = site.folder / f"fetched-{threading.get_ident()}"
    target.unlink(missing_ok=True)
    options = [*(["--limit-rate", rate] if rate else []), *(["--interface", source] if source else [])]
    words = ["curl", "-gsS", "--max-time", timeout, *options, "-o", target, url]
    done = site.client.run(*words, timeout=timeout + 5, check=check)
    content = target.read_bytes() if target.exists() else b""
    return done.returncode, hashlib.sha256(content).hexdigest()


class Iperf:
    """An iperf3 server in the server's namespace, and runs against it."""

    PORT = 5201

    def __init__(self, site):
        self.site = site
        self.process = site.start(site.server, ["iperf3", "-s"], "iperf3")
        self.process.wait_listening(self.PORT)

    def command(self, address, seconds, *options):
        return ["iperf3", "-c", address, "-t", seconds, "-J", *options]

    def measure(self, address, seconds, *options):
        """Runs until its end; returns the `end` of iperf3's report."""
        done = self.site.client.run(*self.command(address, seconds, *options), timeout=seconds + 20, check=False)
        return report(done.stdout)

    def start(self, address, seconds, *options):
        """Runs beside the test; `report` reads its output after the end."""
        log = self.site.folder / "iperf3-client.json"
        log.unlink(missing_ok=True)
        return self.site.client.start(self.command(address, seconds, *options), log)


def report(text):
    """The `end` of an iperf3 report in JSON."""
    result = json.loads(text)
    assert "error" not in result, f"iperf3: {result['error']}"
    return result["end"]


def ping(site, address, count=5, options=()):
    """Replies to `count` pings, sent at once if ping is fast enough; waits for late replies as long as an interval."""
    words = ["ping", "-n", "-l", count, "-i", "0.3", "-c", count, "-W", "2", *options, address]
    done = site.client.run(*words, timeout=count + 10, check=False)
    for line in done.stdout.split("\n"):
        if " received" in line:
            return int(line.split(", ")[1].split()[0])
    raise AssertionError(f"ping: {done.stdout}{done.stderr}")


class NumberedStream:
    """Sends UDP packets numbered from 0 through a daemon at a steady rate until it is stopped, and records those that arrive."""

    PORT = 9999

    def __init__(self, site, daemon, target=SERVER4, rate=2000):
        self.site = site
        self.daemon = daemon
        self.lost_before = site.lost(daemon)
        self.interval = 1 / rate
        self.receiver = site.server.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        self.receiver.bind((target, self.PORT))
        self.receiver.settimeout(5)
        self.sender = site.client.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.sender.connect((target, self.PORT))
        self.stopping = threading.Event()
        self.sent = 0
        self.received = []
        self.threads = [threading.Thread(target=self._send), threading.Thread(target=self._receive)]

    def _send(self):
        number, due = 0, time.monotonic()
        while not self.stopping.wait(max(0.0, due - time.monotonic())):
            self.sender.send(struct.pack("!Q", number).ljust(200, b"."))
            self.sent = number = number + 1
            due += self.interval
        self.sender.send(b"the end")

    def _receive(self):
        while True:
            try:
                data = self.receiver.recv(2048)
            except TimeoutError:
                return
            if data == b"the end":
                return
            self.received.append(struct.unpack("!Q", data[:8])[0])

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        for thread in self.threads:
            thread.join(30)
        self.receiver.close()
        self.sender.close()

    def check(self, overtaken=0):
        """All packets arrived, in order but for `overtaken` times, except those that a queue on the path dropped and counted.
        Use it after the `with` block."""
        missing = sorted(set(range(self.sent)) - set(self.received))
        lost = self.site.lost(self.daemon) - self.lost_before
        assert len(missing) <= lost, f"of {self.sent} packets these are missing, and only {lost} are counted: {missing}"
        times = sum(earlier > later for earlier, later in zip(self.received, self.received[1:]))
        assert times <= overtaken, f"packets overtook each other {times} times"


def scan(site, address, ports, options=()):
    """The result of nmap for TCP ports: port to `open`, `closed` or `filtered`."""
    words = ["nmap", "-n", "-Pn", "--max-retries", "1", "-oG", "-", "-p", ports, *options, address]
    states = {}
    for line in site.client.run(*words, timeout=60).stdout.split("\n"):
        _, marker, listed = line.partition("Ports: ")
        if marker:
            for entry in listed.split("\t")[0].split(", "):
                number, state = entry.strip().split("/")[:2]
                states[int(number)] = state
    return states
