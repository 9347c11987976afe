"""Rules with `limit`, as programs see them: what arrives is the rate, of a rule, of an address, of connections."""

import time

import pytest

from .programs import fetch
from .topology import CLIENT4, SERVER4, SERVER6

# Measures rates, times or memory of the machine.
pytestmark = pytest.mark.alone

NEIGHBOUR4 = "10.0.0.9"
CURL_TIMEOUT = 28
# Ethernet, IPv4 and UDP headers, which iperf3 does not count.
HEADERS = 14 + 20 + 8
LENGTH = 1000


def received(site, megabits, seconds, *options):
    """Bits a second of frames that iperf3's server got of a UDP stream of so many megabits a second."""
    words = ("-u", "-b", f"{megabits}M", "-l", LENGTH, *options)
    total = site.iperf.measure(SERVER4, seconds, *words)["sum"]
    return (total["packets"] - total["lost_packets"]) * (LENGTH + HEADERS) * 8 / total["seconds"]


def replies(site, address, count, interval, *options):
    done = site.client.run("ping", "-n", "-q", "-c", count, "-i", interval, "-W", 1, *options, address, check=False)
    return int(done.stdout.split(" received")[0].split()[-1])


def test_a_stream_gets_its_bits(site, mmb):
    rate, seconds = 8_000_000, 4
    assert received(site, 16, 1) > 12_000_000
    mmb.apply(site.folder, "add in lan ip-proto udp limit 8Mbit/s burst 64kB")
    burst = 8 * 64_000 / seconds
    assert received(site, 16, seconds) == pytest.approx(rate + burst, rel=0.05)
    assert mmb.drops() == {"rule-limit": mmb.rule(1)["dropped_packets"]}
    # Beneath the rate nothing is lost.
    assert received(site, 4, 1) == pytest.approx(4_000_000 * (LENGTH + HEADERS) / LENGTH, rel=0.02)


@pytest.mark.parametrize("address", [SERVER4, SERVER6], ids=["v4", "v6"])
def test_pings_are_counted(site, mmb, address):
    kind = "icmp6-type" if address == SERVER6 else "icmp-type"
    mmb.apply(site.folder, f"add in lan {kind} echo-request limit 20/s burst 5")
    begun = time.monotonic()
    count = replies(site, address, 300, 0.01)
    # The last reply may be waited for.
    least, most = 20 * 2.5, 20 * (time.monotonic() - begun) + 5
    assert least <= count <= most


def test_each_client_has_the_rate(site, mmb):
    site.client.ip("addr", "add", f"{NEIGHBOUR4}/24", "dev", "eth0")
    try:
        mmb.apply(site.folder, "add in lan icmp-type echo-request limit 1/h burst 10 per ip-saddr")
        assert replies(site, SERVER4, 20, 0.01, "-I", CLIENT4) == 10
        assert replies(site, SERVER4, 20, 0.01, "-I", NEIGHBOUR4) == 10
        assert replies(site, SERVER4, 5, 0.01, "-I", CLIENT4) == 0
        # The rule is edited, and nobody begins anew.
        mmb("replace", "1", "icmp-type {echo-request, 13} limit 1/h burst 10 per ip-saddr")
        assert replies(site, SERVER4, 5, 0.01, "-I", NEIGHBOUR4) == 0
        mmb.apply(site.folder, "add in lan icmp-type echo-request limit 1/h burst 10 per ip-saddr/24")
        assert replies(site, SERVER4, 20, 0.01, "-I", CLIENT4) == 10
        assert replies(site, SERVER4, 5, 0.01, "-I", NEIGHBOUR4) == 0
    finally:
        site.client.ip("addr", "del", f"{NEIGHBOUR4}/24", "dev", "eth0")


def test_connections_are_counted_when_they_begin(site, mmb):
    mmb.apply(
        site.folder,
        "add-stateful prio 1 in lan tcp-dport 80 limit 2conn/h burst 2 per ip-saddr accept",
        "add prio 9 in lan tcp-dport 80 drop",
    )
    url = f"http://{SERVER4}/small"
    assert fetch(site, f"http://{SERVER4}/big")[0] == 0
    assert fetch(site, url)[0] == 0
    assert fetch(site, url, timeout=2, check=False)[0] == CURL_TIMEOUT
    assert fetch(site, f"http://{SERVER4}:8080/small")[0] == 0
    assert set(mmb.drops()) == {"rule-limit"}


def test_a_client_has_its_bits_in_both_directions(site, mmb):
    mmb.apply(site.folder, "add-stateful in lan limit 8Mbit/s burst 64kB per ip-saddr")
    rate, seconds = 8_000_000, 4
    burst = 8 * 64_000 / seconds
    down = received(site, 16, seconds, "-R")
    assert down == pytest.approx(rate + burst, rel=0.06)
