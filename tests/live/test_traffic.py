"""Programs through an mmb without rules, or with rules that only drop: mmb has no other effect."""

import pytest

from .frames import ip4, pass_through, udp
from .programs import BIG, fetch, ping, scan
from .topology import CLIENT4, SERVER4, SERVER6


def test_the_ports_have_the_driver_that_was_asked_for(site, mmb):
    """The tests of AF_XDP must not run on the fallback."""
    drivers = {port["driver"] for port in mmb.ask("show", "ports")["ports"]}
    assert drivers == {{"af_xdp": "net_af_xdp", "af_packet": "af_packet"}[site.backend]}


@pytest.mark.parametrize("address", [SERVER4, SERVER6], ids=["v4", "v6"])
def test_ping_is_answered(site, mmb, address):
    assert ping(site, address, count=20) == 20


@pytest.mark.parametrize("size", [0, 1, 17, 18, 19, 1472])
def test_ping_of_every_size_is_answered(site, mmb, size):
    assert ping(site, SERVER4, count=2, options=["-s", size, "-M", "do"]) == 2


def test_ping_in_fragments_is_answered(site, mmb):
    assert ping(site, SERVER4, count=3, options=["-s", 6000]) == 3


def test_ping_back_is_answered(site, mmb):
    answered = site.server.run("ping", "-n", "-l", "5", "-i", "1", "-c", "5", CLIENT4, check=False)
    assert " 5 received" in answered.stdout


@pytest.mark.parametrize("host", [SERVER4, f"[{SERVER6}]"], ids=["v4", "v6"])
@pytest.mark.parametrize("name", ["small", "big"])
def test_a_file_arrives_whole(site, mmb, host, name):
    _, digest = fetch(site, f"http://{host}/{name}")
    assert digest == site.nginx.digest(name)
    if name == "big":
        assert mmb.port("lan")["tx"]["bytes"] > BIG


@pytest.mark.parametrize("direction", [[], ["-R"]], ids=["up", "down"])
@pytest.mark.parametrize("address", [SERVER4, SERVER6], ids=["v4", "v6"])
def test_tcp_at_full_speed(site, mmb, address, direction):
    """Offloads have their defaults: the hosts send unfinished checksums and would send packets of 64 KB."""
    result = site.iperf.measure(address, 2, *direction)
    assert result["sum_received"]["bits_per_second"] > 50e6


def test_many_tcp_streams_at_once(site, mmb):
    result = site.iperf.measure(SERVER4, 2, "-P", "8", "--bidir")
    assert result["sum_received"]["bytes"] > 1e6
    assert result["sum_received_bidir_reverse"]["bytes"] > 1e6


@pytest.mark.parametrize("direction", [[], ["-R"]], ids=["up", "down"])
def test_udp_at_a_moderate_rate_loses_nothing_that_is_not_counted(site, mmb, direction):
    before = site.lost(mmb)
    result = site.iperf.measure(SERVER4, 2, "-u", "-b", "20M", *direction)
    assert result["sum"]["packets"] > 2000
    assert result["sum"]["lost_packets"] <= site.lost(mmb) - before


def test_a_scan_sees_what_the_policy_drops(site, mmb):
    mmb.apply(site.folder, "add in lan tcp-dport {80, 81} drop")
    assert scan(site, SERVER4, "79-81,8080") == {79: "closed", 80: "filtered", 81: "filtered", 8080: "open"}
    assert mmb.drops() == {"rule": mmb.rule(1)["dropped_packets"]}


def test_a_scan_sees_ports_that_were_blocked_by_a_range(site, mmb):
    mmb.apply(site.folder, "add prio 10 in lan tcp-dport 80 accept", "add prio 20 in lan tcp-dport 1-9000 drop")
    assert scan(site, SERVER4, "22,80,8080,9001") == {22: "filtered", 80: "open", 8080: "filtered", 9001: "closed"}


def test_udp_is_blocked_but_for_one_port(site, mmb):
    mmb.apply(
        site.folder,
        "add prio 10 udp-dport 5201 accept",
        "add prio 10 udp-sport 5201 accept",
        "add prio 20 ip-proto udp drop",
    )
    assert site.iperf.measure(SERVER4, 1, "-u", "-b", "5M")["sum"]["lost_percent"] < 2
    site.client.run("bash", "-c", f"echo x >/dev/udp/{SERVER4}/7777")
    assert mmb.rule(3)["packets"] > 0


def test_nothing_gets_through_when_everything_is_dropped(site, mmb):
    mmb("add all drop")
    assert ping(site, SERVER4, count=3, options=["-W", "0.2"]) == 0
    status, _ = fetch(site, f"http://{SERVER4}/small", timeout=1, check=False)
    assert status != 0
    mmb("flush")
    assert ping(site, SERVER4, count=3) == 3


def test_a_share_of_packets_is_dropped(site, mmb):
    mmb("add id 1 in lan udp-dport 53 drop 50")
    frames = [bytes(ip4(id=number) / udp()) for number in range(200)] * 5
    with site.client_wire() as client, site.server_wire() as server:
        arrived = pass_through(client, server, frames)
    assert 400 < len(arrived) < 600
    assert mmb.rule(1)["packets"] == 1000
    assert mmb.drops() == {"rule": mmb.rule(1)["dropped_packets"]} == {"rule": 1000 - len(arrived)}
