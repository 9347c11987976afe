"""Work that hosts leave to the card: unfinished checksums, segmentation. A veth has no card; mmb does it."""

import contextlib
import socket

import pytest
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether

from .frames import rebuilt
from .programs import fetch
from .topology import SERVER4, SERVER6

UDP_SEGMENT = 103


def features(host):
    lines = host.run("ethtool", "-k", "eth0").stdout.splitlines()
    return {name.strip(): value.split()[0] for name, _, value in (line.partition(":") for line in lines) if value}


def test_the_hosts_offload_as_they_do_by_default(site, mmb):
    """Otherwise the other tests would not see unfinished checksums and unsegmented packets."""
    for host in (site.client, site.server):
        on = features(host)
        assert on["tx-checksumming"] == "on" and on["scatter-gather"] == "on"
        # With XDP on the other end, the kernel itself segments packets before they enter the veth.
        assert on["tcp-segmentation-offload"] == "on" or site.backend == "af_xdp"


def receive_all(receiver, count):
    receiver.settimeout(5)
    return [receiver.recv(65536) for _ in range(count)]


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["v4", "v6"])
@pytest.mark.parametrize(("size", "count", "rest"), [(1000, 10, 0), (1400, 40, 77), (1, 60, 0), (1452, 2, 1451)])
def test_a_train_of_datagrams_is_cut(site, mmb, family, size, count, rest):
    """One send of many datagrams, segmented by the last device; their ports are rewritten, their checksums correct."""
    mmb.apply(site.folder, "add in lan udp-dport 7000 mod udp-dport 7001")
    address = SERVER4 if family == socket.AF_INET else SERVER6
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(site.server.socket(family, socket.SOCK_DGRAM))
        sender = stack.enter_context(site.client.socket(family, socket.SOCK_DGRAM))
        wire = stack.enter_context(site.server_wire())
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        receiver.bind((address, 7001))
        sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, size)
        train = bytes(number % 251 for number in range(size * count + rest))
        sender.sendto(train, (address, 7000))
        arrived = receive_all(receiver, count + bool(rest))
        frames = [frame for frame in wire.drain() if Ether(frame).haslayer(UDP)]
    assert b"".join(arrived) == train
    assert [len(datagram) for datagram in arrived] == [size] * count + [rest] * bool(rest)
    assert len(frames) == len(arrived) and all(rebuilt(frame) == frame for frame in frames)
    assert mmb.rule(1)["packets"] == len(arrived)


def test_every_cut_segment_has_the_rewriting(site, mmb):
    """Large packets are segmented first: the rule counts segments as they are on the wire."""
    # Those that the kernel forwards are not.
    mmb.apply(site.folder, "set offload off", "add in wan ip-proto tcp mod ip-ttl 9")
    with site.client_wire() as wire:
        _, digest = fetch(site, f"http://{SERVER4}/big")
        lengths, lives = set(), set()
        for frame in wire.drain():
            if frame[12:14] == b"\x08\x00" and frame[23] == socket.IPPROTO_TCP:
                lengths.add(len(frame))
                lives.add(frame[22])
    assert digest == site.nginx.digest("big")
    assert max(lengths) <= 1514
    assert lives == {9}
    assert mmb.rule(1)["packets"] > (20 << 20) / 1448
