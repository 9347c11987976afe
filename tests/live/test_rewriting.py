"""Rewriting of real connections, observed on the far end's wire."""

from itertools import islice

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

from .frames import rebuilt
from .programs import fetch
from .topology import SERVER4, SERVER6

MSS, WSCALE = "MSS", "WScale"
# Examined frames of a capture: dissecting all frames of a large file would take longer than the transfer.
ENOUGH = 300


def segments(wire):
    """The first segments of the connection that began on the wire. The last ones of the transfer before may come late."""
    packets = [packet for packet in map(Ether, islice(wire.drain(), ENOUGH)) if packet.haslayer(TCP)]
    ends = lambda packet: {packet[TCP].sport, packet[TCP].dport}
    first = next(packet for packet in packets if is_syn(packet))
    return [packet for packet in packets if ends(packet) == ends(first)]


def capture(site, wire, url):
    """Transfers a file, and returns the first segments of its connection on the wire, with every checksum verified, and the digest of the file."""
    with wire() as port:
        _, digest = fetch(site, url)
        packets = segments(port)
    for packet in packets:
        assert rebuilt(packet.original) == packet.original, packet.show(dump=True)
    return packets, digest


def options(packet):
    return [name for name, _ in packet[TCP].options if name not in ("NOP", "EOL")]


def is_syn(packet):
    return bool(packet[TCP].flags.S)


@pytest.mark.parametrize("host", [SERVER4, f"[{SERVER6}]"], ids=["v4", "v6"])
@pytest.mark.parametrize("name", ["small", "big"])
def test_a_port_is_redirected_and_back(site, mmb, host, name):
    """Nothing listens on 8000: the file comes from 8080, and the client sees replies from 8000."""
    mmb.apply(
        site.folder, "add in lan tcp-dport 8000 mod tcp-dport 8080", "add in wan tcp-sport 8080 mod tcp-sport 8000"
    )
    with site.server_wire() as wire:
        _, digest = fetch(site, f"http://{host}:8000/{name}")
        seen = {packet[TCP].dport for packet in segments(wire)}
    assert digest == site.nginx.digest(name)
    assert seen == {8080}
    assert mmb.rule(1)["packets"] > 3 and mmb.rule(2)["packets"] > 3


@pytest.mark.parametrize("host", [SERVER4, f"[{SERVER6}]"], ids=["v4", "v6"])
def test_the_mss_is_clamped(site, mmb, host):
    mmb.apply(site.folder, "add tcp-syn tcp-opt-mss > 1000 mod tcp-opt-mss 1000")
    packets, digest = capture(site, site.server_wire, f"http://{host}/small")
    assert [dict(p[TCP].options)[MSS] for p in packets if is_syn(p)] == [1000]
    assert digest == site.nginx.digest("small")


def test_the_server_keeps_to_the_clamped_mss(site, mmb):
    mmb.apply(site.folder, "add tcp-syn tcp-opt-mss > 1000 mod tcp-opt-mss 1000")
    with site.simple_devices(), site.client_wire() as wire:
        _, digest = fetch(site, f"http://{SERVER4}/big", timeout=20)
        lengths = [packet[IP].len for packet in segments(wire)]
    assert digest == site.nginx.digest("big")
    assert 1000 <= max(lengths) <= 1040


def test_options_are_stripped_by_name(site, mmb):
    mmb.apply(site.folder, "add tcp-opt strip tcp-opt-timestamp strip tcp-opt-sackp")
    packets, digest = capture(site, site.server_wire, f"http://{SERVER4}/small")
    assert [options(p) for p in packets if is_syn(p)] == [[MSS, WSCALE]]
    assert not any(options(p) for p in packets if not is_syn(p))
    assert digest == site.nginx.digest("small")


def test_only_named_options_are_let_through(site, mmb):
    mmb.apply(site.folder, "add tcp-syn strip ! tcp-opt-mss")
    packets, _ = capture(site, site.server_wire, f"http://[{SERVER6}]/small")
    assert [options(p) for p in packets if is_syn(p)] == [[MSS]]


def test_all_options_are_stripped(site, mmb):
    mmb.apply(site.folder, "add tcp-opt strip all")
    packets, digest = capture(site, site.server_wire, f"http://{SERVER4}/big")
    assert {p[TCP].dataofs for p in packets} == {5}
    assert digest == site.nginx.digest("big")


def test_an_option_is_added(site, mmb):
    mmb.apply(site.folder, "add in lan tcp-syn ! tcp-opt 253 add tcp-opt 253 |12 34|")
    packets, digest = capture(site, site.server_wire, f"http://{SERVER4}/small")
    assert [dict(p[TCP].options)[253] for p in packets if is_syn(p)] == [b"\x12\x34"]
    assert digest == site.nginx.digest("small")


def test_ecn_is_bleached(site, mmb):
    """Both hosts use ECN; after bleaching, no codepoint passes, and the connection continues."""
    for host in (site.client, site.server):
        host.sysctl(net__ipv4__tcp_ecn=1)
    try:
        url = f"http://{SERVER4}/big"
        with site.simple_devices():
            packets, _ = capture(site, site.client_wire, url)
            assert any(p[IP].tos & 3 for p in packets), "the hosts did not negotiate ECN"
            mmb("add all mod ip-ecn 0")
            packets, digest = capture(site, site.client_wire, url)
        assert not any(p[IP].tos & 3 for p in packets)
        assert digest == site.nginx.digest("big")
    finally:
        for host in (site.client, site.server):
            host.sysctl(net__ipv4__tcp_ecn=2)


def test_marks_are_set_in_both_families(site, mmb):
    mmb.apply(
        site.folder, "add in lan ip-proto tcp mod ip-dscp af11", "add in lan tcp-dport 80 mod ip6-traffic-class 40"
    )
    packets, _ = capture(site, site.server_wire, f"http://{SERVER4}/small")
    assert {p[IP].tos >> 2 for p in packets} == {10}
    packets, _ = capture(site, site.server_wire, f"http://[{SERVER6}]/small")
    assert {p[IPv6].tc for p in packets} == {40}


def test_a_destination_is_rewritten_and_back(site, mmb):
    """The client connects to an address that no host has; the server replies from its own."""
    virtual = "10.0.0.77"
    server_mac = site.server.run("cat", "/sys/class/net/eth0/address").stdout.strip()
    site.client.ip("neigh", "replace", virtual, "lladdr", server_mac, "dev", "eth0")
    mmb.apply(
        site.folder,
        f"add in lan ip-daddr {virtual} mod ip-daddr {SERVER4}",
        f"add in wan ip-saddr {SERVER4} mod ip-saddr {virtual}",
    )
    _, digest = fetch(site, f"http://{virtual}/big")
    assert digest == site.nginx.digest("big")
