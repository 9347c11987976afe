"""The loads on systems. A load runs between the ends of a site; `accounting` counts the packets that the middle forwards in the
meantime, and the output of the programs themselves is added."""

import contextlib
import signal
import subprocess
import time
from pathlib import Path

from lab.net import ip_counters
from lab.process import run, wait_until

from . import parse
from .accounting import Snapshot, between, interface
from .policies import SERVER_NAME, WORD, page, text
from .topology import BALANCED, CLIENT, SERVER

NATIVE = Path(__file__).parent / "native"
FIRST_PORT = 5201
# Time until the first packets of a program; it is not measured.
SETTLING = 0.25
# The time that a program may take to end, and the time that it would run without a signal.
END_TIMEOUT_S = 15
LASTING = 600
FLOWS = 1024
# Flows are answered again if a frame of them did not arrive, so many times.
ATTEMPTS = 5


class Failed(Exception):
    """A run that does not count; the text gives the reason. The page lists it with the others."""


class Load:
    """Programs that run until they are stopped: `seconds` of it are measured, after a settling time."""

    name = ""
    title = ""

    def __init__(self, seconds):
        self.seconds = seconds

    def prepare(self, site):
        """Starts the programs that listen, once per site."""

    def start(self, site):
        """Starts the load; returns its processes."""
        raise NotImplementedError

    def result(self, processes):
        """The output of the programs at their end."""
        raise NotImplementedError

    def begun(self, site):
        """Waits until the whole load runs."""

    def mark(self, site):
        """Further counters at the beginning and the end of the measured time."""

    def meanwhile(self, before, after):
        """Metrics from two sets of these counters."""
        return {}

    def wait_until_settled(self, site):
        """Waits after the end until the servers are ready for another run."""

    def run(self, site, tsc_hz):
        """One run; returns the metrics."""
        self.prepare(site)
        processes = self.start(site)
        try:
            self.begun(site)
            time.sleep(SETTLING)
            before, marked = Snapshot(site), self.mark(site)
            time.sleep(self.seconds)
            after, marked_again = Snapshot(site), self.mark(site)
            self._end(processes)
        finally:
            for process in processes:
                process.close()
        self.wait_until_settled(site)
        try:
            measured = self.result(processes)
        except parse.Unreadable as error:
            raise Failed(str(error)) from error
        return between(before, after, site.cores, tsc_hz) | self.meanwhile(marked, marked_again) | measured

    def _end(self, processes):
        for process in processes:
            if not process.running():
                raise Failed(f"{self.name} ended by itself: {' '.join(process.output().split())[-200:]}")
        for process in processes:
            process.signal(signal.SIGINT)
        for process in processes:
            try:
                process.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired as error:
                raise Failed(f"{self.name} did not end") from error


class Iperf(Load):
    """TCP at full speed: seven pairs, as in the paper; the client sends."""

    name = "iperf"
    title = "7 pairs of iperf3"
    pairs = 7

    def prepare(self, site):
        if site.first(self.name):
            for number in range(self.pairs):
                port = FIRST_PORT + number
                site.start(site.server, ["iperf3", "-s", "-p", port], f"iperf3-{port}").wait_listening(port)

    def start(self, site):
        started = []
        for number in range(self.pairs):
            words = ["iperf3", "-c", SERVER, "-p", FIRST_PORT + number, "-t", LASTING]
            started.append(site.client.start(words, site.folder / f"iperf3-client-{number}.log"))
        return started

    def begun(self, site):
        # A pair has a control connection and a data connection. A handshake that meets a full queue is repeated a second later.
        wait_until(lambda: self._connected(site) == 2 * self.pairs, "all pairs of iperf3 are connected", END_TIMEOUT_S)

    def _connected(self, site):
        return parse.received(self._sockets(site))[0]

    def mark(self, site):
        """The data that the servers' applications could read, and the segments that the client retransmitted."""
        at = time.monotonic()
        sockets, received = parse.received(self._sockets(site))
        return {"at": at, "sockets": sockets, "received": received, "again": ip_counters(site.client)["Tcp: RetransSegs"]}

    def _sockets(self, site):
        ports = f"( sport >= :{FIRST_PORT} and sport < :{FIRST_PORT + self.pairs} )"
        return site.server.run("ss", "-tinH", "state", "established", ports).stdout

    def meanwhile(self, before, after):
        if after["sockets"] != before["sockets"]:
            raise Failed(f"of {before['sockets']} connections {after['sockets']} are left")
        bits = (after["received"] - before["received"]) * 8
        return {"gbit_s": bits / (after["at"] - before["at"]) / 1e9, "sent_again": after["again"] - before["again"]}

    def wait_until_settled(self, site):
        wait_until(lambda: not self._sockets(site), "iperf3's servers are free again")

    def result(self, processes):
        return {}


class Web(Load):
    """wrk requests one file from nginx repeatedly, over a bounded number of connections that stay open."""

    connections = 64
    sizes_kb = (1, 2, 4, 8, 16, 32, 64, 128, 256)
    large_kb = (1024,)
    pages_kb = (1, 8, 64, 1024)

    def __init__(self, seconds, size_kb=128, address=SERVER):
        super().__init__(seconds)
        self.size_kb, self.address = size_kb, address
        self.name = "wrk" if address == SERVER else "wrk-balanced"
        self.title = f"wrk and nginx, files of {size_kb} KB"

    def prepare(self, site):
        if not site.first("nginx"):
            return
        root = site.folder / "www"
        root.mkdir(exist_ok=True)
        payload = text(max(self.sizes_kb) << 10)
        for size in (*self.sizes_kb, *self.large_kb):
            times = -(-(size << 10) // len(payload))
            (root / f"{size}k").write_bytes((payload * times)[: size << 10])
        for size in self.pages_kb:
            (root / f"{size}k.html").write_bytes(page(size))
        config = site.folder / "nginx.conf"
        config.write_text(
            f"daemon off; master_process off; pid {site.folder}/nginx.pid; error_log stderr;\n"
            f"events {{ worker_connections 4096; }}\n"
            f"http {{ access_log off; types {{ text/html html; }} keepalive_requests 1000000000; sendfile on;\n"
            f"server {{ listen 80 backlog=4096; root {root}; }} }}\n"
        )
        words = ["nginx", "-p", site.folder, "-e", "stderr", "-c", config]
        site.start(site.server, words, "nginx").wait_listening(80)

    def start(self, site):
        log = site.folder / "wrk.log"
        log.unlink(missing_ok=True)
        return [site.client.start(self.words(site), log)]

    def words(self, site):
        return ["wrk", "-t", 1, "-c", self.connections, "-d", f"{LASTING}s", "--latency", self.url(site)]

    def url(self, site):
        return f"http://{self.address}/{self.size_kb}k"

    def result(self, processes):
        measured = parse.wrk(processes[0].output())
        if not measured["requests_s"]:
            raise Failed("wrk: nothing was answered")
        return measured


class Balanced(Web):
    """The same, by the common address of three servers."""

    def __init__(self, seconds, size_kb=128):
        super().__init__(seconds, size_kb, BALANCED)


class Requests(Web):
    """Small files, as the paper on MiddleClick has them."""

    connections = 128

    def __init__(self, seconds, size_kb=8):
        super().__init__(seconds, size_kb)
        self.name = "wrk-8k"


class NewConnections(Web):
    """A new connection for each file, which the server closes."""

    def __init__(self, seconds, size_kb=1):
        super().__init__(seconds, size_kb)
        self.name = "wrk-close"
        self.title = f"wrk and nginx, a new connection for each file of {size_kb} KB"

    def prepare(self, site):
        super().prepare(site)
        if site.first(self.name):
            # Where the client closes first, its port stays taken for a minute: it has as many as there are, and takes them again.
            site.client.sysctl(net__ipv4__ip_local_port_range="1024 65535", net__ipv4__tcp_tw_reuse=1)

    def words(self, site):
        return [*super().words(site), "-H", "Connection: close"]


class BalancedFiles(Balanced):
    """Files of several sizes over as many connections as that paper has."""

    connections = 128


class Pages(Web):
    """Pages with a word that the middle rewrites, over 128 connections that stay open. Each run begins with a page that is compared with
    what must arrive, byte for byte."""

    connections = 128

    def __init__(self, seconds, size_kb=8):
        super().__init__(seconds, size_kb)
        self.name = "wrk-pages"
        self.title = f"wrk and nginx, pages of {size_kb} KB"

    def url(self, site):
        return f"http://{site.entrance}/{self.size_kb}k.html"

    def start(self, site):
        self.check(site)
        return super().start(site)

    def check(self, site):
        """Raises `Failed` if a page does not arrive as the policy wants it. squid answers its first requests with 502: a 5xx is asked for
        again, a wrong page is not."""
        body, head = site.folder / "page", site.folder / "page.head"
        words = ["curl", "-sS", "--fail", "--retry", "8", "--retry-max-time", END_TIMEOUT_S, "--max-time", END_TIMEOUT_S]
        done = site.client.run(*words, "-D", head, "-o", body, self.url(site), check=False, timeout=3 * END_TIMEOUT_S)
        if done.returncode != 0:
            raise Failed(f"no page: {' '.join(done.stderr.split())[-200:]}")
        wanted = page(self.size_kb)
        if site.rewriting:
            wanted = rewritten(wanted, site.rewriting)
        got = body.read_bytes()
        if got != wanted:
            same = next((at for at, pair in enumerate(zip(got, wanted)) if pair[0] != pair[1]), min(len(got), len(wanted)))
            raise Failed(f"a wrong page: {len(got)} bytes instead of {len(wanted)}, another one at {same}")
        # Of the head behind those of answers that were asked for again.
        server = parse.header(head.read_bytes().decode(errors="replace").strip().split("\r\n\r\n")[-1], "Server")
        if site.rewriting and site.rewriting.kind == "rewrite-head" and server != SERVER_NAME:
            raise Failed(f"a wrong head: Server is {server}")

    def result(self, processes):
        measured = super().result(processes)
        measured["mbyte_s"] = measured["gbit_s"] * 1000 / 8
        for quantile in (50, 99):
            measured[f"latency_p{quantile}_us"] = measured[f"latency_p{quantile}_s"] * 1e6
        return measured

    def run(self, site, tsc_hz):
        measured = super().run(site, tsc_hz)
        measured["middle_us_per_request"] = measured["middle_busy"] / measured["requests_s"] * 1e6
        return measured


class OnePage(Pages):
    """The same with one connection: a request at a time."""

    connections = 1

    def __init__(self, seconds, size_kb=8):
        super().__init__(seconds, size_kb)
        self.name = "wrk-one-page"
        self.title = f"wrk with one connection, pages of {size_kb} KB"


def rewritten(body, policy):
    """What must arrive of a page."""
    return body.replace(WORD.encode(), policy.replacement().encode())


class Small(Load):
    """The smallest UDP frames of many flows, as fast as one core sends them, in one direction. The server drops them at its
    device, so that receiving takes little of the ends' cores."""

    name = "udp"
    title = "64-byte UDP frames"

    def __init__(self, seconds, frame=60):
        super().__init__(seconds)
        self.frame = frame

    def prepare(self, site):
        if site.first("door"):
            self._closed(site.server, "dport")

    @staticmethod
    def _closed(end, port):
        """Drops the frames at the end's device."""
        rules = "add table netdev door; add chain netdev door in { type filter hook ingress device eth0 priority 0; }; "
        end.run("nft", rules + f"add rule netdev door in udp {port} 9 drop")

    def start(self, site):
        log = site.folder / "blast.log"
        log.unlink(missing_ok=True)
        return [site.client.start(self._words(site, site.client), log)]

    def _words(self, site, end):
        program = site.folder.parent / "blast"
        if not program.exists():
            run(["cc", "-O2", "-o", program, NATIVE / "blast.c"], timeout=60)
        addresses = [CLIENT, SERVER] if end is site.client else [SERVER, CLIENT]
        return [program, "eth0", site.next_hop(end), site.mac(end, "eth0"), *addresses, FLOWS, self.frame]

    def result(self, processes):
        return {f"blast_{key}": value for key, value in parse.blast(processes[0].output()).items()}


class Established(Small):
    """The same, after each flow was answered once, as a conversation would be: what a system remembers of flows, it remembers by then."""

    def __init__(self, seconds, frame=60):
        super().__init__(seconds, frame)
        self.name = "udp-established"
        self.title = "64-byte UDP frames of established flows"

    def prepare(self, site):
        super().prepare(site)
        if site.first("door of the client"):
            self._closed(site.client, "sport")

    def start(self, site):
        if not any(all(self._passed(site, way) for way in ("there", "back", "there")) for _ in range(ATTEMPTS)):
            raise Failed(f"not all of {FLOWS} flows were answered")
        return super().start(site)

    def _passed(self, site, way):
        """Sends one frame of each flow; returns whether all arrived."""
        near, far = (site.client, site.server) if way == "there" else (site.server, site.client)
        before = interface(far)["rx_packets"]
        near.run(*self._words(site, near), way)
        with contextlib.suppress(AssertionError):
            return wait_until(lambda: interface(far)["rx_packets"] - before >= FLOWS, "all flows arrive", timeout=1)
        return False


class Ping(Load):
    """Round trips of consecutive pings, a millisecond apart; with `under`, beside that load."""

    def __init__(self, seconds, under=None):
        super().__init__(seconds)
        self.under = under
        self.name = "ping" if under is None else f"ping-{under.name}"
        self.title = "ping" if under is None else f"ping beside {under.title}"

    def prepare(self, site):
        if self.under:
            self.under.prepare(site)

    def begun(self, site):
        if self.under:
            self.under.begun(site)

    def wait_until_settled(self, site):
        if self.under:
            self.under.wait_until_settled(site)

    def start(self, site):
        log = site.folder / "ping.log"
        log.unlink(missing_ok=True)
        beside = self.under.start(site) if self.under else []
        words = ["ping", "-n", "-i", "0.001", "-w", LASTING, SERVER]
        return [site.client.start(words, log), *beside]

    def result(self, processes):
        measured = parse.ping(processes[0].output())
        if not measured["times_s"]:
            raise Failed("ping: nothing was answered")
        times = sorted(measured["times_s"])
        quantiles = [times[min(len(times) - 1, n * len(times) // 100)] for n in range(101)]
        return {
            "pings": measured["sent"],
            "unanswered": measured["sent"] - len(times),
            "rtt_p50_us": quantiles[50] * 1e6,
            "rtt_p99_us": quantiles[99] * 1e6,
            "rtt_quantiles_s": quantiles,
        }
