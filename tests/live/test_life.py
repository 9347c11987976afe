"""The life-cycle of the daemon: start, stop, failures. Each test has a site of its own."""

import contextlib
import os
import signal
import socket
import threading
import time

import pytest

from lab.daemon import BINARY, DidNotStart, Mmb
from lab.net import RawPort, veth
from lab.process import run, wait_until

from .conftest import BACKENDS, need_backend
from .frames import of_every_kind, pass_through
from .programs import Iperf, Nginx, NumberedStream, fetch, ping
from .topology import SERVER4, SERVER6

backends = pytest.mark.parametrize("backend_name", BACKENDS)


@backends
def test_sigterm_ends_cleanly(fresh, backend_name):
    site = fresh(backend_name)
    mmb = fresh.daemon(site)
    assert ping(site, SERVER4, count=3) == 3
    assert mmb.stop() == 0
    assert not mmb.socket.exists()
    summary = mmb.output().lower()
    assert "panic" not in summary and "lan" in summary and "wan" in summary
    mmb.start()
    assert ping(site, SERVER4, count=3) == 3


def test_sigint_ends_cleanly_too(fresh):
    site = fresh()
    mmb = fresh.daemon(site)
    mmb.process.signal(signal.SIGINT)
    assert mmb.process.wait() == 0
    assert not mmb.socket.exists()


@backends
def test_after_kill_it_starts_again(fresh, backend_name):
    """The socket still exists and the interfaces were not released; neither prevents the start."""
    site = fresh(backend_name)
    mmb = fresh.daemon(site)
    nginx = Nginx(site)
    for _ in range(3):
        assert ping(site, SERVER4, count=3) == 3
        mmb.kill()
        assert mmb.socket.exists()
        mmb.start()
    assert ping(site, SERVER6, count=3) == 3
    assert fetch(site, f"http://{SERVER4}/big")[1] == nginx.digest("big")


@backends
def test_a_transfer_survives_a_restart(fresh, backend_name):
    site = fresh(backend_name)
    mmb, nginx = fresh.daemon(site), Nginx(site)
    digests = []
    transfer = threading.Thread(target=lambda: digests.append(fetch(site, f"http://{SERVER4}/big", rate="10M")[1]))
    transfer.start()
    try:
        wait_until(lambda: mmb.port("wan")["rx"]["packets"] > 500, "the transfer is under way")
        mmb.kill()
        mmb.start()
    finally:
        transfer.join(40)
    assert digests == [nginx.digest("big")]


def test_clients_that_are_connected_do_not_delay_the_end(fresh):
    site = fresh()
    mmb = fresh.daemon(site)
    with contextlib.ExitStack() as clients:
        for _ in range(20):
            client = clients.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(mmb.socket))
        mmb.process.signal(signal.SIGTERM)
        assert mmb.process.wait(timeout=3) == 0


def test_it_starts_with_a_policy(fresh):
    site = fresh()
    policy = site.folder / "policy.mmb"
    policy.write_text("add icmp-type echo-request \\\n  drop  # no ping\n")
    mmb = fresh.daemon(site, "-c", policy)
    assert ping(site, SERVER4, count=2, options=["-W", "0.2"]) == 0
    assert ping(site, SERVER6, count=2) == 2
    assert mmb.rule(1)["packets"] == 2


@pytest.mark.parametrize(
    "text", ["add tcp-dprt 80 drop\n", "add in nowhere drop\n", "add ip-proto tcp map ip-saddr 192.0.2.1\n"]
)
def test_it_does_not_start_with_a_bad_policy(fresh, text):
    site = fresh()
    policy = site.folder / "policy.mmb"
    policy.write_text(text)
    with pytest.raises(DidNotStart) as refusal:
        fresh.daemon(site, "-c", policy)
    assert any(hint in str(refusal.value) for hint in ("tcp-dport", "nowhere", "add-stateful"))


def refused(site, ports, *before, **options):
    """`mmb run` that must end with an error; returns its message."""
    words = [*(before or [BINARY]), "run", "--socket", site.folder / "refused.sock"]
    for port in ports:
        words += ["--port", port]
    done = site.middle.run(*words, check=False, **options)
    assert done.returncode == 1, f"exit status {done.returncode}: {done.stdout}{done.stderr}"
    assert "panic" not in done.stderr
    return done.stderr


def test_a_wrong_interface_name_gets_the_right_one(fresh):
    site = fresh()
    message = refused(site, ["lan=vl", "wan=v1"])
    assert "v1" in message and "did you mean" in message
    fresh.daemon(site)
    assert ping(site, SERVER4, count=2) == 2, "what failed left nothing in the way"


@pytest.mark.parametrize(
    ("ports", "word"),
    [
        (["lan=vl", "wan=vl"], "two ports"),
        (["lan=vl", "lan=vr"], "lan"),
        (["lan=vl", "wan=lo"], "lo"),
        (["lan=vl", "wan=0000:7f:1f.7"], "0000:7f:1f.7"),
        (["lan=vl", "wan=dpdk:net_nonsense0"], "net_nonsense0"),
        (["lan=vl", "wan=memif:/nonexistent/dir/x.sock,role=server"], "/nonexistent/dir"),
    ],
)
def test_a_wrong_device_is_named(fresh, ports, word):
    message = refused(fresh(), ports)
    assert word in message
    if "wan=" in ports[1]:
        assert "port wan: " in message or "two ports" in message, "the message names the port"


def test_warnings_at_the_start(fresh):
    site = fresh()
    for command in (
        "ip address add 192.0.2.77/24 dev vl",
        "ip link set vl mtu 1400",
        "ip link add br0 type bridge",
        "ip link set vr master br0",
    ):
        site.middle.run(*command.split())
    workers = len(os.sched_getaffinity(0)) + 1
    mmb = fresh.daemon(site, "--workers", workers)
    log = mmb.output()
    assert "port lan: interface vl has the address 192.0.2.77, for which the kernel answers too" in log
    assert "port wan: interface vr belongs to br0" in log
    assert "have different MTUs, 1400 and 1500" in log
    assert f"more workers ({workers}) than cores" in log


def test_a_plain_start_has_no_warnings(fresh):
    log = fresh.daemon(fresh()).output()
    assert not any(word in log for word in ("the kernel answers", "belongs to", "different MTUs", "more workers")), log


def test_without_permission_it_says_what_is_missing(fresh):
    # The open file: the user nobody may not have access to the folder of the program.
    with open(BINARY, "rb") as program:
        nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", f"/proc/self/fd/{program.fileno()}"]
        message = refused(fresh(), ["lan=vl", "wan=vr"], *nobody, pass_fds=[program.fileno()])
    assert "permission" in message and "root" in message


def test_a_second_daemon_on_the_socket_is_refused(fresh):
    site = fresh()
    mmb = fresh.daemon(site)
    words = [BINARY, "run", "--socket", mmb.socket, "--port", "a=dpdk:net_null0", "--port", "b=dpdk:net_null1"]
    done = site.middle.run(*words, check=False)
    assert done.returncode == 1 and "--socket" in done.stderr
    assert ping(site, SERVER4, count=2) == 2


@backends
def test_an_interface_belongs_to_one_daemon(fresh, backend_name):
    site = fresh(backend_name)
    fresh.daemon(site)
    assert "another mmb" in refused(site, [f"lan={backend_name}:vl", f"wan={backend_name}:vr"])
    assert ping(site, SERVER4, count=2) == 2


def test_a_client_without_a_daemon_says_so(tmp_path):
    done = run([BINARY, "list", "--socket", tmp_path / "none.sock"], check=False)
    assert done.returncode == 1 and "none.sock" in done.stderr


@backends
def test_two_daemons_at_once(fresh, backend_name):
    sites = fresh(backend_name), fresh(backend_name)
    daemons = [fresh.daemon(site) for site in sites]
    daemons[0]("add icmp-type echo-request drop")
    assert ping(sites[0], SERVER4, count=2, options=["-W", "0.2"]) == 0
    assert ping(sites[1], SERVER4, count=2) == 2
    assert daemons[0].stop() == 0
    assert ping(sites[1], SERVER4, count=2) == 2


def test_a_memif_joins_two_daemons(fresh):
    """client – [mmb] – memif – [mmb] – server; either end is started first, and one is restarted."""
    need_backend("af_xdp")
    site = fresh()
    link = site.folder / "link.sock"
    near = Mmb(site.middle, site.folder, {"lan": "vl", "link": f"memif:{link},id=0,role=server"}, "near")
    far = Mmb(site.middle, site.folder, {"link": f"memif:{link},id=0,role=client", "wan": "vr"}, "far")
    with near, far:
        near.start()
        far.start()
        nginx = Nginx(site)
        wait_until(lambda: near.port("link")["link"] == "up", "the memif is connected")
        wait_until(lambda: ping(site, SERVER4, count=1) == 1, "packets cross the memif")
        assert fetch(site, f"http://{SERVER4}/big")[1] == nginx.digest("big")
        assert fetch(site, f"http://[{SERVER6}]/big")[1] == nginx.digest("big")
        far.kill()
        far.start()
        wait_until(lambda: ping(site, SERVER4, count=1) == 1, "packets cross the memif again")
        assert near.stop() == 0 and far.stop() == 0


@pytest.mark.alone
@backends
def test_an_idle_daemon_takes_under_five_percent_of_a_core(fresh, backend_name):
    site = fresh(backend_name)
    mmb = fresh.daemon(site)
    assert ping(site, SERVER4, count=3) == 3
    started, before = time.monotonic(), mmb.process.cpu_seconds()
    # The measured time passes while the test waits for packets that do not arrive.
    with site.server_wire() as wire:
        for _ in wire.frames(timeout=3):
            pass
    used = mmb.process.cpu_seconds() - before
    assert used / (time.monotonic() - started) < 0.05


@backends
def test_two_workers_share_the_load(fresh, backend_name):
    site = fresh(backend_name, queues=2)
    mmb = fresh.daemon(site, "--workers", 2)
    nginx, iperf = Nginx(site), Iperf(site)
    assert len(mmb.ask("show runtime")["workers"]) == 2
    mmb("add tcp-opt strip tcp-opt-timestamp")
    assert fetch(site, f"http://{SERVER4}/big")[1] == nginx.digest("big")
    assert iperf.measure(SERVER4, 1, "-P", "8")["sum_received"]["bytes"] > 1e6
    with NumberedStream(site, mmb) as stream:
        for _ in range(20):
            mmb("add id 9 tcp-dport 9 drop")
            mmb("del 9")
    # The kernel puts what a worker sends into the backlog of its processor. If the scheduler moves the worker, which shares two
    # processors with another one, the next packet may overtake those that still wait there.
    stream.check(overtaken=2)
    mmb.wait_until_settled()


@backends
def test_more_workers_than_queues_do_no_harm(fresh, backend_name):
    site = fresh(backend_name)
    mmb = fresh.daemon(site, "--workers", 3)
    assert len(mmb.ask("show runtime")["workers"]) == 3
    with NumberedStream(site, mmb) as stream:
        assert ping(site, SERVER6, count=20) == 20
    stream.check()


@backends
def test_a_port_that_vanishes_is_told_and_survived(fresh, backend_name):
    site = fresh(backend_name)
    mmb = fresh.daemon(site)
    assert ping(site, SERVER4, count=2) == 2
    site.middle.ip("link", "del", "vr")
    wait_until(lambda: "vr is gone" in mmb.output(), "the log tells that the port is gone")
    assert mmb.port("wan")["link"] == "gone" and mmb.port("lan")["link"] == "up"
    assert "gone" in mmb("show ports")
    assert ping(site, SERVER4, count=3, options=["-W", "0.2"]) == 0
    assert mmb.drops().get("port-down", 0) > 0
    mmb("add udp-dport 53 drop")
    assert mmb.stop() == 0


@backends
@pytest.mark.parametrize("workers", [1, 2])
def test_an_interface_that_is_made_again_is_opened_again(fresh, backend_name, workers):
    site = fresh(backend_name)
    mmb = fresh.daemon(site, "--workers", workers)
    for turn in range(1, 4):
        assert ping(site, SERVER4, count=2) == 2
        site.middle.ip("link", "del", "vr")
        wait_until(lambda: mmb.output().count("vr is gone") == turn, "the log tells that the port is gone")
        veth(site.middle, "vr", site.server, "eth0", 1500 - 20 * turn)
        site.server.ip("addr", "add", f"{SERVER4}/24", "dev", "eth0")
        wait_until(lambda: mmb.output().count("vr is back") == turn, "the log tells that the port is back")
        assert mmb.port("wan")["mtu"] == 1500 - 20 * turn
        wait_until(lambda: mmb.port("wan")["link"] == "up", "the port is shown as up")
        site.client.ip("neigh", "flush", "all")
        wait_until(lambda: ping(site, SERVER4, count=1) == 1, "packets cross again")
    assert "panic" not in mmb.output()
    assert mmb.stop() == 0


@backends
def test_a_changed_mtu_is_taken_up(fresh, backend_name):
    site = fresh(backend_name)
    mmb = fresh.daemon(site)
    large = ["-s", "1440", "-W", "0.5", "-M", "do"]
    assert ping(site, SERVER4, count=2, options=large) == 2
    site.middle.ip("link", "set", "vr", "mtu", "1400")
    wait_until(lambda: mmb.port("wan")["mtu"] == 1400, "the port shows the MTU")
    assert "MTU 1400 now" in mmb.output()
    assert ping(site, SERVER4, count=2, options=large) == 0
    # The first error tells the client the MTU, so that it may keep the second packet.
    assert mmb.drops()["mtu-exceeded"] in (1, 2)
    site.middle.ip("link", "set", "vr", "mtu", "1500")
    wait_until(lambda: mmb.port("wan")["mtu"] == 1500, "the port shows the MTU")
    # mmb has told the client the smaller one (RFC 1191), which it remembers.
    site.client.ip("route", "flush", "cache")
    assert ping(site, SERVER4, count=2, options=large) == 2


@backends
@pytest.mark.parametrize("side", ["mmb", "server"])
def test_a_link_that_goes_down_comes_back(fresh, backend_name, side):
    site = fresh(backend_name)
    mmb = fresh.daemon(site)
    namespace, interface = (site.middle, "vr") if side == "mmb" else (site.server, "eth0")
    assert ping(site, SERVER4, count=2) == 2
    namespace.ip("link", "set", interface, "down")
    wait_until(lambda: mmb.port("wan")["link"] == "down", "the port is shown as down")
    namespace.ip("link", "set", interface, "up")
    wait_until(lambda: mmb.port("wan")["link"] == "up", "the port is shown as up")
    wait_until(lambda: ping(site, SERVER4, count=1) == 1, "packets cross again")


def test_two_wires_in_one_daemon_do_not_mix(fresh):
    site = fresh("af_xdp")
    veth(site.middle, "xl", site.client, "eth1")
    veth(site.middle, "xr", site.server, "eth1")
    ports = {"lan": "vl", "lan2": "xl", "wan": "vr", "wan2": "xr"}
    with Mmb(site.middle, site.folder, ports, "wires").start("--wire", "lan,wan", "--wire", "lan2,wan2") as mmb:
        mmb("add in lan2 udp-dport 53 drop")
        shown = mmb.ask("show ports")["ports"]
        assert {port["driver"] for port in shown} == {"af_packet"}, "whose flows the kernel forwards"
        assert {port["name"]: port["peer"] for port in shown} == {
            "lan": "wan",
            "wan": "lan",
            "lan2": "wan2",
            "wan2": "lan2",
        }
        frames = [bytes(frame) for frame in of_every_kind()]
        with site.client_wire() as one, site.server_wire() as two:
            assert pass_through(one, two, frames) == frames
        with RawPort(site.client, "eth1") as one, RawPort(site.server, "eth1") as two:
            assert len(pass_through(one, two, frames)) == len(frames) - 2
        assert mmb.rule(1)["packets"] == 2
