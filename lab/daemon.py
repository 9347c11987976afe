"""A running `mmb run` and its clients."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess

from .process import run, wait_until

BINARY = os.path.abspath(os.environ.get("MMB", "target/release/mmb"))

READY_TIMEOUT = 15


class DidNotStart(AssertionError):
    """`mmb run` ended, or did not report that it is ready."""


def numbered(commands):
    """The commands, with numbers for the rules that have none. The numbers are those that mmb assigns if there was no rule
    before: mmb never reuses a number."""
    last = 0
    for command in commands:
        verb = re.match(r"(?:mmb )?add\S*", command)
        given = re.match(r"(?:mmb )?add\S*(?: (?:prio|name) \S+)* id (\d+)", command)
        if given:
            last = max(last, int(given[1]))
        elif verb:
            last += 1
            command = f"{verb[0]} id {last}{command[verb.end():]}"
        yield command


class Mmb:
    """A daemon in a namespace. `start` returns when the daemon has reported that it is ready and its socket answers."""

    binary = BINARY

    def __init__(self, namespace, folder, ports, name="mmb"):
        self.namespace = namespace
        self.ports = ports
        self.socket = folder / f"{name}.sock"
        self.log = folder / f"{name}.log"
        # The control group in which it is started.
        self.group = None
        self.process = None
        self._drops_before = {}
        # The settings at the first reset.
        self._settings = None

    def start(self, *options):
        command = [BINARY, "run", "--socket", self.socket]
        for name, device in self.ports.items():
            command += ["--port", f"{name}={device}"]
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as notify:
            address = self.socket.with_suffix(".notify")
            address.unlink(missing_ok=True)
            notify.bind(str(address))
            env = {**os.environ, "NOTIFY_SOCKET": str(address)}
            self.process = self.namespace.start([*command, *options], self.log, self.group, env=env)
            ready = self.process.wait_readable(notify, READY_TIMEOUT) and b"READY=1" in notify.recv(4096)
        if not ready:
            self.process.close()
            raise DidNotStart(f"mmb run {' '.join(map(str, options))}: not ready: {self.output()}")
        self.ask("show", "version")
        return self

    def output(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def running(self):
        return self.process is not None and self.process.running()

    def stop(self):
        """Sends SIGTERM and returns the exit status."""
        return self.process.stop()

    def kill(self):
        """Sends SIGKILL."""
        self.process.signal(signal.SIGKILL)
        self.process.wait()

    def close(self):
        if self.process is not None:
            self.process.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # Clients

    def client(self, *words, check=True, timeout=20, **options):
        """Runs a one-shot command; a word may be a whole line."""
        words = [word for text in words for word in str(text).split()]
        return run([BINARY, *words, "--socket", self.socket], check=check, timeout=timeout, **options)

    def __call__(self, *words):
        return self.client(*words).stdout

    def ask(self, *words, timeout=20):
        """The answer to a one-shot command in JSON."""
        return json.loads(self.client(*words, "--json", timeout=timeout).stdout)

    def query(self, *commands):
        """The answer to commands of the language, in one request on the socket: the values of its lines by kind. For what the tests
        themselves need to know: `ask` starts the program for each question, which is what users do and takes ten times as long."""
        request = {"v": 1, "do": "run", "commands": commands}
        lines = {}
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(20)
            client.connect(str(self.socket))
            client.sendall(json.dumps(request).encode() + b"\n")
            with client.makefile("rb") as answer:
                for line in answer:
                    ((kind, value),) = json.loads(line).items()
                    lines.setdefault(kind, []).append(value)
                    if kind == "end":
                        break
        assert "end" in lines and lines["end"][0]["ok"], f"{commands}: {lines}"
        return lines

    def refused(self, *words):
        """Runs a command that must fail; returns its error message."""
        done = self.client(*words, check=False)
        assert done.returncode == 1, f"{words}: exit status {done.returncode}: {done.stdout}{done.stderr}"
        return done.stderr

    def shell(self):
        """The shell with a pipe as input, for commands."""
        return subprocess.Popen(
            [BINARY, "--socket", str(self.socket)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def apply(self, folder, *rules):
        """Puts these rules, numbered from 1, and the settings among them in force as a whole."""
        path = folder / "applied.mmb"
        path.write_text("".join(f"{rule}\n" for rule in numbered(rules)))
        return self.ask("apply", path)

    def reset(self):
        """Deletes all rules, ends all connections, enables every port, gives each setting the value that it had at the first reset, and starts
        to count drops from zero. Named sets and lists of patterns stay. A host may choose the port of a connection of the last test again, of which mmb may not know that both ends
        have lost it (docs/streams.md)."""
        found = self.query("flush", "conn kill all", "show settings", "show ports", "show errors")
        settings = {setting["name"]: setting["value"] for setting in found["setting"]}
        if self._settings is None:
            self._settings = settings
        changed = [f"set {name} {value}" for name, value in self._settings.items() if settings[name] != value]
        if changed:
            self.query(*changed)
        for port in found["port"]:
            if not port["enabled"]:
                self.query(f"enable {port['name']}")
        self._drops_before = _by_reason(found, "drop")

    def connections(self, *filters):
        """The connections that match a filter, or all."""
        return self.ask("show connections", *filters)["connections"]

    # Counters

    def drops(self):
        """Drops by reason since the last reset."""
        found = self.ask("show", "errors")["drops"]
        since = {reason: count - self._drops_before.get(reason, 0) for reason, count in found.items()}
        return {reason: count for reason, count in since.items() if count}

    def port(self, name):
        return next(port for port in self.ask("show", "ports")["ports"] if port["name"] == name)

    def rule(self, number):
        return next(rule for rule in self.ask("list")["rules"] if rule["id"] == number)

    def lost(self):
        """Packets for which the ports of mmb had no room."""
        found = self.query("show ports", "show errors")
        at_ports = sum(port[name] for port in found["port"] for name in ("rx_missed", "rx_errors", "tx_errors"))
        drops = _by_reason(found, "drop")
        return at_ports + sum(drops.get(reason, 0) for reason in ("tx-full", "no-buffer"))

    def balance(self):
        """Packets received or made and not yet accounted for: in + made - out - drops - absorbed, without the fragments that wait for their first one."""
        found = self.query("show ports", "show conn summary", "show errors")
        received = sum(port["rx"]["packets"] for port in found["port"])
        sent = sum(port["tx"]["packets"] for port in found["port"])
        (summary,) = found["summary"]
        made, drops = (sum(_by_reason(found, kind).values()) for kind in ("made", "drop"))
        return received + made - sent - drops - sum(found.get("absorbed", ())) - summary["held"]

    def wait_until_settled(self):
        """Waits for packets in flight, until in + made = out + drops."""
        wait_until(lambda: self.balance() == 0, "in + made = out + drops + absorbed")


def _by_reason(found, kind):
    """Counters of a kind in the answer to `show errors`."""
    return {line["reason"]: line["count"] for line in found.get(kind, ())}
