"""Programs through VPP's host interfaces, while policies and interfaces change."""

import json
import os

import pytest
from live.programs import Iperf, Nginx, fetch, report

from lab.process import wait_until
from lab.vpp import Node, runtime

from .site import LAN, NAT, ROUTER, ROUTER_MAC, SERVER, WAN, Site

CORES = sorted(os.sched_getaffinity(0))
# VPP's driver of the devices and its number of threads.
SHAPES = {
    "as the kernel does": {},
    "without offloads": {"offloads": False, "host_interface": "cksum-gso-disable"},
    "version 2": {"offloads": False, "host_interface": "v2 cksum-gso-disable"},
    "two threads": {"cores": CORES[:2]},
}
SOURCE_NAT = f"add-stateful id 1 in {LAN} ip-saddr 10.0.0.0/24 map ip-saddr {NAT}\n"
CHANGES = 300
# The maximum number of buffers that VPP's host interfaces keep for further packets: of 16,384, while hundreds of thousands of
# packets arrive.
AT_REST = 1024


@pytest.fixture(scope="module", params=SHAPES)
def shared(request, tmp_path_factory):
    shape = SHAPES[request.param]
    if len(shape.get("cores", CORES)) < 2:
        pytest.skip("needs two cores")
    with Site(tmp_path_factory.mktemp("site"), **shape) as made:
        made.nginx, made.iperf, made.threads = Nginx(made), Iperf(made), len(shape.get("cores", [0]))
        if "cores" in shape:
            # Packets of one direction arrive on the main thread, those of the other on the worker.
            made.vpp.configure(f"set interface rx-placement {LAN} queue 0 main", f"set interface rx-placement {WAN} queue 0 worker 0")
        yield made


@pytest.fixture
def site(shared):
    """Without rules. Afterwards VPP must still run, with all its buffers."""
    shared.vpp.apply("")
    yield shared
    assert shared.vpp.running() and "26" in shared.vpp.ask("show version")
    wait_until(lambda: shared.vpp.buffers_used() <= AT_REST, "buffers are free again")


def fetch_big(site):
    assert fetch(site, f"http://{SERVER}/big") == (0, site.nginx.digest("big"))


def test_curl_through_nat(site):
    site.vpp.apply(SOURCE_NAT)
    fetch_big(site)
    connections = site.vpp.json("show connections")["connections"]
    assert {connection["sent"]["src"] for connection in connections if connection["sent"]["dport"] == 80} == {NAT}
    # Replies arrive on another thread than the one that owns the connection.
    handed = runtime(site.vpp.ask("show runtime")).get("ip4-mmb-handed", Node(0, 0.0))
    assert (handed.packets > 0) == (site.threads > 1)


def test_a_stream_with_the_text_is_reset_through_nat(site):
    """Both RSTs are VPP's own buffers; that to the server has the outside address."""
    site.vpp.apply(f'add-stateful id 1 in {LAN} ip-saddr 10.0.0.0/24 stream-forward "ATTACK" map ip-saddr {NAT} close\n')
    fetch_big(site)
    for _ in range(5):
        assert fetch(site, f"http://{SERVER}/small?q=ATTACK", check=False)[0] == 56, "curl: connection reset"
    made = site.vpp.json("show errors")["made"]["reset"]
    assert made >= 10
    assert site.vpp.rules()[1]["hits"] >= 5
    fetch_big(site)


@pytest.mark.parametrize("direction", ([], ["-R"]), ids=("up", "down"))
def test_iperf_under_a_guard_that_finds_nothing(site, direction):
    site.vpp.apply('add-stateful id 1 tcp-dport 5201 stream "NOT IN THERE" close\n')
    done = site.client.run(*site.iperf.command(SERVER, 2, *direction), timeout=30)
    assert json.loads(done.stdout)["end"]["sum_received"]["bytes"] > 1_000_000
    assert site.vpp.rules()[1]["hits"] == 0


@pytest.mark.parametrize("direction", ([], ["-R"]), ids=("up", "down"))
def test_iperf_with_a_clamp_and_a_ttl(site, direction):
    site.vpp.apply("add id 1 tcp-syn tcp-opt-mss > 1200 mod tcp-opt-mss 1200\nadd id 2 ip-proto tcp mod ip-ttl 33\n")
    done = site.client.run(*site.iperf.command(SERVER, 2, *direction), timeout=30)
    result = json.loads(done.stdout)
    assert result["end"]["sum_received"]["bytes"] > 1_000_000
    assert result["start"]["tcp_mss_default"] <= 1200
    rules = site.vpp.rules()
    assert rules[1]["packets"] >= 4 and rules[2]["bytes"] > result["end"]["sum_received"]["bytes"]


def test_policies_change_under_load_and_no_connection_is_lost(site):
    site.vpp.apply(SOURCE_NAT)
    load = site.iperf.start(SERVER, 8)
    wait_until(lambda: len(site.vpp.json("show connections")["connections"]) >= 2, "the load has begun")
    for change in range(CHANGES):
        site.vpp.mmb(f"add id {1000 + change} udp-dport {change + 1} drop")
        if change % 3 == 0:
            site.vpp.mmb(f"del {1000 + change}")
    file = site.folder / "again.mmb"
    for change in range(10):
        file.write_text(SOURCE_NAT + "".join(f"add id {n} tcp-dport {n} ip-id {change} mod ip-dscp 1\n" for n in range(2, 3000)))
        site.vpp.client(f"apply {file}")
    assert len(site.vpp.rules()) == 2999
    assert load.wait(30) == 0
    assert report(load.output())["sum_received"]["bytes"] > 1_000_000
    load.close()


def test_enabled_and_disabled_under_load(site):
    site.vpp.apply(f"add id 1 in {LAN} ip-proto tcp mod ip-ttl 33\n")
    # Longer than the commands take on a busy machine.
    with site.iperf.start(SERVER, 20) as load:
        for _ in range(50):
            site.vpp.mmb(f"disable {LAN}")
            site.vpp.mmb(f"enable {LAN}")
        before = site.vpp.rules()[1]["packets"]
        wait_until(lambda: site.vpp.rules()[1]["packets"] > before + 100, "the rule sees packets again")
        assert load.wait(30) == 0


def test_an_interface_goes_and_comes_back_under_load(site):
    site.vpp.apply(f"add id 1 in {LAN} ip-proto icmp mod ip-ttl 33\n")
    # The kernel deletes learned neighbours when the device loses its carrier, as it does whenever its interface is removed, and
    # retries ARP
    # once a second: no packets would arrive in the meantime.
    site.client.ip("neigh", "replace", ROUTER["vl"], "lladdr", ROUTER_MAC["vl"], "dev", "eth0", "nud", "permanent")
    # No deadline (-w): with one, ping ends at the first packet that the kernel cannot deliver.
    with site.client.start(["ping", "-f", SERVER], site.folder / "flood.log") as flood:
        for _ in range(5):
            wait_for_packets(site)
            site.delete("vl")
            assert LAN not in site.vpp.ask("show interface")
            site.create("vl")
        wait_for_packets(site)
        assert flood.running()


def wait_for_packets(site):
    """Waits until the rule has seen more packets, which shows that they arrive on the current interface."""
    before = site.vpp.rules()[1]["packets"]
    wait_until(lambda: site.vpp.rules()[1]["packets"] > before + 100, "the rule sees packets of the interface")
