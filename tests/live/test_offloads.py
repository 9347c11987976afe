"""Work that hosts leave to the card: unfinished checksums, segmentation. A veth has no card: mmb does it, or leaves it to the next device."""

import contextlib
import socket

import pytest
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether

from lab.process import wait_until

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


def send_train(site, family, size, count, rest):
    """One send of many datagrams, segmented by the last device. Returns them, what arrived, and the frames in which it did."""
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
    datagrams = [train[at : at + size] for at in range(0, len(train), size)]
    return datagrams, arrived, frames


FAMILIES = pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["v4", "v6"])


@FAMILIES
@pytest.mark.parametrize(("size", "count", "rest"), [(1000, 10, 0), (1400, 40, 77), (1, 60, 0), (1452, 2, 1451)])
def test_a_train_of_datagrams_is_cut(site, mmb, family, size, count, rest):
    """Their ports are rewritten, their checksums correct."""
    mmb.apply(site.folder, "add in lan udp-dport 7000 mod udp-dport 7001")
    with site.simple_devices():
        sent, arrived, frames = send_train(site, family, size, count, rest)
    assert arrived == sent
    assert len(frames) == len(arrived) and all(rebuilt(frame) == frame for frame in frames)
    assert mmb.rule(1)["packets"] == len(arrived)


def of_packet_sockets(site):
    if site.backend != "af_packet":
        pytest.skip("only AF_PACKET delivers superframes, and sends them")


@FAMILIES
def test_a_train_of_datagrams_stays_one_where_the_device_can_cut_it(site, mmb, family):
    """It is counted as the datagrams that it is."""
    of_packet_sockets(site)
    mmb.apply(site.folder, "add in lan udp-dport 7000 mod udp-dport 7001")
    sent, arrived, frames = send_train(site, family, 1400, 30, 7)
    assert arrived == sent
    headers = 14 + (20 if family == socket.AF_INET else 40) + 8
    assert [len(frame) for frame in frames] == [30 * 1400 + 7 + headers]
    assert mmb.rule(1)["packets"] == 31
    assert mmb.rule(1)["bytes"] == 30 * 1400 + 7 + 31 * headers


@FAMILIES
def test_a_rule_drops_single_datagrams_of_a_train(site, mmb, family):
    of_packet_sockets(site)
    mmb.apply(site.folder, "add in lan udp-dport 7000 drop 50")
    address = SERVER4 if family == socket.AF_INET else SERVER6
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(site.server.socket(family, socket.SOCK_DGRAM))
        sender = stack.enter_context(site.client.socket(family, socket.SOCK_DGRAM))
        receiver.bind((address, 7000))
        sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 100)
        sender.sendto(b"".join(b"%100d" % number for number in range(60)), (address, 7000))
        wait_until(lambda: mmb.rule(1)["packets"] == 60, "all have arrived")
        mmb.wait_until_settled()
        dropped = mmb.drops()["rule"]
        numbers = [int(datagram) for datagram in receive_all(receiver, 60 - dropped)]
        receiver.settimeout(0.2)
        with pytest.raises(TimeoutError):
            receiver.recv(100)
    assert 0 < dropped < 60
    assert numbers == sorted(set(numbers))


def tcp_frames(wire):
    return [frame for frame in wire.drain() if frame[12:14] == b"\x08\x00" and frame[23] == socket.IPPROTO_TCP]


def test_every_cut_segment_has_the_rewriting(site, mmb):
    """Large packets are segmented first: the rule counts segments as they are on the wire."""
    # Those that the kernel forwards are not.
    mmb.apply(site.folder, "set offload off", "add in wan ip-proto tcp mod ip-ttl 9")
    with site.simple_devices(), site.client_wire() as wire:
        _, digest = fetch(site, f"http://{SERVER4}/big")
        frames = tcp_frames(wire)
    assert digest == site.nginx.digest("big")
    assert max(map(len, frames)) <= 1514
    assert {frame[22] for frame in frames} == {9}
    assert all(rebuilt(frame) == frame for frame in frames)
    assert mmb.rule(1)["packets"] > (20 << 20) / 1448


@pytest.mark.parametrize("address", [SERVER4, SERVER6], ids=["v4", "v6"])
def test_segments_are_joined_where_the_device_can_cut_them(site, mmb, address):
    """Also those that workers rewrite one by one, by a rule on the length; counted as they are on the wire."""
    of_packet_sockets(site)
    mmb.apply(site.folder, "set offload off", "add in wan ip-proto tcp ip-len > 1000 mod ip-dscp 10", "add in wan ip6-len > 1000 mod ip6-traffic-class 40")
    with site.client_wire() as wire:
        _, digest = fetch(site, f"http://[{address}]/big" if ":" in address else f"http://{address}/big")
        longest = max(len(frame) for frame in wire.drain())
    assert digest == site.nginx.digest("big")
    assert longest > 30_000
    assert mmb.rule(2 if ":" in address else 1)["packets"] > 14_000


def test_a_wrong_checksum_is_not_mended(site, mmb):
    """A rule writes checksums that are wrong: no segment is joined, for the device would write correct ones."""
    of_packet_sockets(site)
    mmb.apply(site.folder, "set offload off", "add in lan udp-dport 7000 mod udp-checksum 0x1234")
    with site.server_wire() as wire, site.client.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 500)
        sender.sendto(bytes(5000), (SERVER4, 7000))
        wait_until(lambda: mmb.port("wan")["tx"]["packets"] >= 10, "all are sent")
        frames = [frame for frame in wire.drain() if Ether(frame).haslayer(UDP)]
    assert [len(frame) for frame in frames] == [542] * 10
    assert {frame[40:42] for frame in frames} == {b"\x12\x34"}
