"""Systems between namespaces: each does its work, one tiny run of a load, and the state after an interruption."""

import contextlib
import os
import signal
import socket
from pathlib import Path

import pytest

from evaluation import store, systems, topology
from evaluation.loads import FLOWS, Established, Failed, NewConnections, OnePage, Pages, Small
from evaluation.policies import FUNCTIONS, REWRITING, TCP, Policy, Tuple
from evaluation.systems import Unable
from evaluation.topology import BALANCED, CLIENT, MIDDLE, SERVER, SERVERS, TRANSLATED
from lab.net import ip_counters
from lab.process import Background, run, wait_until

ROOT = Path(__file__).parents[2]
PORT = 80
MMB = ("mmb", "mmb-offload-off", "mmb-af_xdp", "mmb-af_packet")

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or len(os.sched_getaffinity(0)) < 2, reason="needs root for network namespaces, and two cores"
)


@pytest.fixture
def cores():
    allowed = os.sched_getaffinity(0)
    chosen = topology.Cores.chosen()
    os.sched_setaffinity(0, chosen.ends)
    yield chosen
    os.sched_setaffinity(0, allowed)


@pytest.fixture
def opened(tmp_path, cores):
    """Opens a system with a policy."""
    made = []

    def open_with(name, policy, offloads=False):
        system = systems.ALL[name](tmp_path, cores, offloads)
        made.append(system)
        try:
            system.open()
            system.need(policy)
            system.install(policy)
        except Unable as error:
            pytest.skip(f"{name}: {error}")
        return system

    yield open_with
    for system in made:
        system.close()


class Listening:
    """A server on all addresses of its namespace, and connections to it."""

    def __init__(self, site):
        self.site = site
        self.socket = site.server.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("", PORT))
        self.socket.listen()
        self.socket.settimeout(10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def got(self, sent, timeout=2):
        """What the server gets of these bytes."""
        with self.site.client.socket(socket.AF_INET, socket.SOCK_STREAM) as near:
            near.settimeout(10)
            near.connect((SERVER, PORT))
            far, _ = self.socket.accept()
            with far, contextlib.suppress(TimeoutError, ConnectionResetError):
                far.settimeout(timeout)
                near.sendall(sent)
                return far.recv(100)
            return b""

    def reached(self, address, sport=0, timeout=10):
        """A connection to an address: the peer that the server saw, and the server's own address."""
        with self.site.client.socket(socket.AF_INET, socket.SOCK_STREAM) as near:
            near.settimeout(timeout)
            near.bind((CLIENT, sport))
            near.connect((address, PORT))
            far, seen = self.socket.accept()
            with far:
                return seen[0], far.getsockname()[0]


@pytest.mark.parametrize("name", ["direct", "forward", *MMB, "nftables", "iptables", "xdp", "suricata"])
def test_without_rules_the_ends_reach_each_other(opened, name):
    with Listening(opened(name, Policy("none")).site) as server:
        assert server.reached(SERVER) == (CLIENT, SERVER)


@pytest.mark.parametrize("name", [*MMB, "nftables", "iptables", "xdp"])
def test_a_firewall_drops_the_five_tuple_that_it_names_and_no_other(opened, monkeypatch, name):
    monkeypatch.setattr(Policy, "tuples", lambda _: [Tuple(CLIENT, SERVER, TCP, 4000, PORT)])
    with Listening(opened(name, Policy("firewall", 1)).site) as server:
        assert server.reached(SERVER, 4001) == (CLIENT, SERVER)
        with pytest.raises(TimeoutError):
            server.reached(SERVER, 4000, timeout=0.5)


@pytest.mark.parametrize("name", ["mmb", "nftables", "iptables", "xdp"])
def test_rules_as_they_are_drawn_let_the_loads_pass(opened, name):
    system = opened(name, Policy("none"))
    for kind in sorted({"firewall", "stateful", "options", "masks"} & set(system.kinds)):
        system.install(Policy(kind, 100))
        with Listening(system.site) as server:
            assert server.reached(SERVER) == (CLIENT, SERVER), kind


@pytest.mark.parametrize("name", [*MMB, "nftables", "iptables"])
def test_a_nat_hides_the_client(opened, name):
    with Listening(opened(name, Policy("nat")).site) as server:
        assert server.reached(SERVER) == (TRANSLATED, SERVER)


@pytest.mark.parametrize(("name", "seen"), [("mmb", TRANSLATED), ("mmb-offload-off", TRANSLATED), ("nftables", MIDDLE["vr"])])
def test_a_masquerade_takes_an_address_of_the_middles_choice(opened, name, seen):
    with Listening(opened(name, Policy("masquerade")).site) as server:
        assert server.reached(SERVER) == (seen, SERVER)


@pytest.mark.parametrize("name", [*MMB, "nftables", "iptables", "haproxy"])
def test_a_balancer_uses_all_servers(opened, name):
    with Listening(opened(name, Policy("balance")).site) as server:
        assert {server.reached(BALANCED)[1] for _ in range(6)} == set(SERVERS)


@pytest.mark.parametrize(
    ("name", "size", "seen"),
    [
        ("forward", 0, CLIENT),
        *((name, size, TRANSLATED if size else CLIENT) for name in ("mmb", "mmb-af_xdp") for size in range(len(FUNCTIONS))),
        ("nftables", 1, TRANSLATED),
        ("haproxy", 2, MIDDLE["vr"]),
    ],
)
def test_a_chain_translates_from_its_first_function_on(opened, name, size, seen):
    with Listening(opened(name, Policy("chain", size)).site) as server:
        assert server.reached(SERVER) == (seen, SERVER)


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("mmb", Policy("chain", 3)),
        ("mmb", Policy("patterns", 100)),
        ("mmb-af_xdp", Policy("patterns", 100)),
        ("suricata", Policy("patterns", 100)),
    ],
)
def test_a_literal_does_not_arrive_and_other_bytes_do(opened, name, policy):
    with Listening(opened(name, policy).site) as server:
        assert server.got(b"something else") == b"something else"
        assert server.got(policy.literals()[-1].encode()) == b""


REWRITERS = [
    *((name, kind) for kind in REWRITING for name in ("forward", "mmb-no-rules", "mmb", "mmb-af_xdp")),
    *((name, kind) for kind in ("rewrite-body", "rewrite-mask") for name in ("nginx", "apache")),
    *((name, "rewrite-head") for name in ("haproxy-http", "squid")),
]


@pytest.mark.parametrize(("name", "kind"), REWRITERS)
def test_pages_arrive_as_the_policy_wants_them(opened, name, kind):
    site = opened(name, Policy(kind)).site
    for size_kb in Pages.pages_kb:
        load = Pages(0.2, size_kb)
        load.prepare(site)
        load.check(site)


@pytest.mark.parametrize("name", ["mmb", "nginx"])
@pytest.mark.parametrize("load", [Pages, OnePage])
def test_a_short_run_of_rewriting(opened, name, load):
    metrics = load(0.3, 8).run(opened(name, Policy("rewrite-body")).site, tsc_hz=1e9)
    assert metrics["requests_s"] > 0 and metrics["mbyte_s"] > 0 and metrics["middle_us_per_request"] > 0
    assert 0 < metrics["latency_p50_us"] <= metrics["latency_p99_us"]
    assert metrics["errors"] == 0


def test_a_page_that_is_not_rewritten_is_a_run_that_failed(opened):
    site = opened("forward", Policy("rewrite-body")).site
    load = Pages(0.2, 1)
    load.prepare(site)
    site.rewriting = Policy("rewrite-body")
    with pytest.raises(Failed, match="a wrong page: 1024 bytes instead of 1031"):
        load.check(site)
    site.rewriting = Policy("rewrite-head")
    with pytest.raises(Failed, match="a wrong head: Server is nginx"):
        load.check(site)


@pytest.mark.parametrize("name", ["forward", "mmb", "mmb-offload-off"])
def test_packets_that_a_system_forwards_are_counted(opened, name):
    metrics = Small(0.2).run(opened(name, Policy("none")).site, tsc_hz=1e9)
    assert 0 < metrics["packets"] <= metrics["blast_sent"]
    assert 0 < metrics["middle_busy"] <= 1


@pytest.mark.parametrize("name", ["mmb", "mmb-offload-off", "nftables"])
def test_flows_are_answered_before_they_are_measured(opened, name):
    system = opened(name, Policy("stateful", 10))
    load = Established(0.2)
    metrics = load.run(system.site, tsc_hz=1e9)
    # One direction is measured: the server's frames are those of the client.
    assert 0 < metrics["packets"] <= metrics["blast_sent"]
    system.forget()
    assert all(load._passed(system.site, way) for way in ("there", "back"))
    if name == "nftables":
        listed = system.site.middle.run("conntrack", "-L", "-p", "udp").stdout
        assert listed.count("dport=9 ") >= FLOWS and "UNREPLIED" not in listed
    else:
        assert len(system.daemon.connections("ip-proto udp")) == FLOWS


def test_flows_without_an_answer_are_a_run_that_failed(opened):
    site = opened("forward", Policy("none")).site
    site.middle.sysctl(net__ipv4__ip_forward=0)
    with pytest.raises(Failed, match="not all of 1024 flows were answered"):
        Established(0.2).run(site, tsc_hz=1e9)


@pytest.mark.parametrize("name", ["mmb", "nftables"])
def test_each_file_has_a_connection_of_its_own(opened, name):
    system = opened(name, Policy("masquerade"))
    metrics = NewConnections(0.3).run(system.site, tsc_hz=1e9)
    assert metrics["requests_s"] > 0
    before = ip_counters(system.site.server)["Tcp: PassiveOpens"]
    NewConnections(0.3).run(system.site, tsc_hz=1e9)
    assert ip_counters(system.site.server)["Tcp: PassiveOpens"] - before > NewConnections.connections


@pytest.mark.parametrize("offloads", [True, False])
@pytest.mark.parametrize("name", ["mmb", "nftables"])
def test_devices_keep_what_the_kernel_gives_them_or_lose_it_all(opened, name, offloads):
    site = opened(name, Policy("none"), offloads).site
    features = site.client.run("ethtool", "-k", "eth0").stdout
    # The kernel itself turns segmentation off opposite to a device with an XDP program.
    assert ("tx-checksumming: on" in features) == offloads


@pytest.mark.parametrize("name", ["forward", "mmb", "mmb-offload-off", "mmb-af_xdp", "mmb-af_packet", "nftables", "xdp"])
def test_what_arrives_at_the_middle_is_received_on_its_core(opened, name):
    system = opened(name, Policy("none"), True)
    (rps, threaded), has_xdp = receiving(system.site, "vl"), system.site._has_xdp("vl")
    assert has_xdp or name not in ("mmb-af_xdp", "xdp")
    assert (int(rps.replace(",", ""), 16), threaded) == ((0, "1") if has_xdp else (1 << system.cores.middle, "0"))


def receiving(site, device):
    """The mask of RPS of a device of the middle, and whether its NAPI has threads."""
    files = [f"/sys/class/net/{device}/{name}" for name in ("queues/rx-0/rps_cpus", "threaded")]
    return site.middle.run("cat", *files).stdout.split()


def namespaces():
    return run(["ip", "netns", "list"]).stdout


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 1), (signal.SIGTERM, 143)])
def test_an_interrupted_evaluation_leaves_no_namespaces(tmp_path, number, status):
    words = ["/usr/bin/python3", "-m", "evaluation", "run", "--quick", "--only", "forwarding", "--out", tmp_path / "out"]
    # The lock of this test is not that of the machine: an evaluation may run.
    with Background(words, tmp_path / "log", cwd=ROOT, env=os.environ | {"TMPDIR": str(tmp_path)}) as evaluation:
        ours = f"-{evaluation.pid}-"
        wait_until(lambda: ours in namespaces() or not evaluation.running(), "it is under way", timeout=30)
        evaluation.signal(number)
        assert evaluation.wait(30) == status, evaluation.output()
        assert ours not in namespaces()
    # What it leaves are whole points, and no pages.
    left = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert all(path.suffix == ".json" and store.parsed(path.read_text()) for path in left), left
    assert not (tmp_path / "out/README.md").exists()
