"""Large frames: jumbo MTUs, oversized packets, segments that offloads leave to the card."""

import pytest

from .conftest import BACKENDS
from .frames import data, ip4, ip6, pass_through, udp
from .programs import Iperf, Nginx, fetch, ping
from .topology import SERVER4, SERVER6


@pytest.mark.parametrize("backend_name", BACKENDS)
def test_an_mtu_of_9000_is_used_to_the_last_byte(fresh, backend_name):
    site = fresh(backend_name, mtu=9000)
    mmb = fresh.daemon(site)
    nginx, iperf = Nginx(site), Iperf(site)
    assert mmb.port("lan")["mtu"] == 9000
    if backend_name == "af_xdp":
        assert "AF_PACKET" in mmb.output(), "frames that AF_XDP cannot hold are reported"
    assert ping(site, SERVER4, count=3, options=["-s", 8972, "-M", "do"]) == 3
    assert ping(site, SERVER6, count=3, options=["-s", 8952, "-M", "do"]) == 3
    _, digest = fetch(site, f"http://{SERVER4}/big")
    assert digest == nginx.digest("big")
    with site.client_wire() as client, site.server_wire() as server:
        frames = [ip4(id=size) / udp() / data(size - 28) for size in (8999, 9000)]
        assert pass_through(client, server, frames) == [bytes(frame) for frame in frames]
    for direction in ([], ["-R"]):
        assert iperf.measure(SERVER4, 1, *direction)["sum_received"]["bytes"] > 1e6
    mmb.wait_until_settled()


@pytest.mark.parametrize("backend_name", BACKENDS)
def test_packets_larger_than_the_far_mtu_are_dropped_and_counted(fresh, backend_name):
    site = fresh(backend_name)
    site.client.ip("link", "set", "eth0", "mtu", "3000")
    site.middle.ip("link", "set", "vl", "mtu", "3000")
    mmb = fresh.daemon(site)
    with site.client_wire() as client, site.server_wire() as server:
        frames = [
            make(size) / udp() / data(size - header)
            for size in (1500, 1501, 3000)
            for make, header in ((ip4_id, 28), (ip6_fl, 48))
        ]
        assert pass_through(client, server, frames) == [bytes(frame) for frame in frames[:2]]
    assert mmb.drops() == {"mtu-exceeded": 4}
    mmb.wait_until_settled()


def ip4_id(number):
    return ip4(id=number)


def ip6_fl(number):
    return ip6(fl=number)
