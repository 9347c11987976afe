"""Packets in tunnels that are still to be cut, as every host with containers sends them: a veth takes them whole, and mmb cuts them."""

import contextlib
import hashlib
import os
import socket

import pytest
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.packet import Raw

from lab.net import SOL_PACKET, RawPort
from lab.process import wait_until

from . import bpf, sockets, tunnels
from .frames import SOURCE, summed_up
from .offloading import PLACES, hits, running
from .test_offloads import PACKET_VNET_HDR, TRANSPORTS, UDP_SEGMENT, pieces, receive_all, superframe
from .topology import CLIENT4, CLIENT6, SERVER4, SERVER6

SIZE = 1300
# An address that no host has.
ALIAS = "10.0.0.9"
INNER = {
    "tcp4": IP(src="10.55.0.1", dst="10.55.0.2", id=65530, flags="DF") / TRANSPORTS["tcp"],
    "tcp6": IPv6(src="fd55::1", dst="fd55::2", fl=77) / TRANSPORTS["tcp"],
    "udp4": IP(src="10.55.0.1", dst="10.55.0.2", id=9) / TRANSPORTS["udp"],
}


def send_whole(site, device, packet, mark=0):
    """Hands a device a frame to cut."""
    with site.client.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
        sender.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        sender.setsockopt(socket.SOL_SOCKET, tunnels.SO_MARK, mark)
        sender.bind((device, 0))
        sender.send(superframe(packet, SIZE))


def sent_through(site, mmb, device, packet, count, mark=0):
    """The frames that arrive at the server, and the longest one that came to mmb."""
    before = mmb.port("wan")["tx"]["packets"]
    with site.server_wire() as wire, RawPort(site.middle, "vl") as tap:
        send_whole(site, device, packet, mark)
        wait_until(lambda: mmb.port("wan")["tx"]["packets"] >= before + count, "all are sent")
        is_ours = lambda frame: SOURCE in (frame[6:12], *(frame[at : at + 6] for at in range(40, 90)))
        frames = []
        wait_until(lambda: frames.extend(filter(is_ours, wire.drain())) or len(frames) >= count, "all have arrived")
        longest = max((len(frame) for frame in tap.drain()), default=0)
    return frames, longest


@pytest.mark.parametrize("inner", INNER)
@pytest.mark.parametrize("tunnel", tunnels.TUNNELS, ids=str)
def test_a_packet_in_a_tunnel_is_cut_as_the_kernel_cuts_it(site, mmb, tunnel, inner):
    """The same frame is sent twice: the host's kernel cuts it, then mmb does."""
    mmb.apply(site.folder, "set offload off")
    packet = INNER[inner] / Raw(bytes(number % 251 for number in range(20_001)))
    count = len(range(0, 20_001, SIZE))
    with tunnels.around(site, tunnel, packet.haslayer(IPv6)), site.simple_devices():
        with tunnels.cut_by_the_host(site):
            expected, longest = sent_through(site, mmb, "eth0", packet, count, tunnels.MARK)
            assert longest <= 1514
        arrived, longest = sent_through(site, mmb, "eth0", packet, count, tunnels.MARK)
        # With XDP on the other end, the kernel cuts before the veth.
        assert longest > 20_000 or site.backend == "af_xdp"
    assert len(expected) == count and arrived == expected
    gap = len(tunnel.headers(packet.haslayer(IPv6))) - 2
    assert [frame[14 + gap :] for frame in arrived] == [piece[14:] for piece in pieces(packet, SIZE)]


@pytest.fixture
def joining(site):
    """Skips where mmb cannot send superframes in tunnels."""
    if site.backend != "af_packet":
        pytest.skip("only AF_PACKET sends superframes")
    bpf.need_tcx(site.middle)


@pytest.mark.parametrize("inner", ["tcp4", "tcp6"])
@pytest.mark.parametrize("tunnel", tunnels.TUNNELS, ids=str)
def test_a_packet_in_a_tunnel_leaves_whole_as_it_came(site, mmb, joining, tunnel, inner):
    """What mmb cuts and joins again is the frame of the sender, with its unfinished checksum, for a device that takes such frames."""
    mmb.apply(site.folder, "set offload off")
    packet = INNER[inner] / Raw(bytes(number % 251 for number in range(20_001)))
    count = len(range(0, 20_001, SIZE))
    before = mmb.port("wan")["tx"]["packets"]
    with tunnels.around(site, tunnel, packet.haslayer(IPv6)), site.server_wire() as wire, RawPort(site.middle, "vl") as tap:
        send_whole(site, "eth0", packet, tunnels.MARK)
        wait_until(lambda: mmb.port("wan")["tx"]["packets"] >= before + count, "all are sent")
        longest = lambda port: max(port.drain(), key=len, default=b"")
        sent, arrived = longest(tap), longest(wire)
    assert len(sent) > 20_000 and arrived == sent


@pytest.mark.parametrize("inner", ["tcp4", "tcp6"])
@pytest.mark.parametrize("tunnel", tunnels.TUNNELS[:2], ids=str)
def test_the_kernel_copies_the_right_outer_checksum(site, mmb, joining, tunnel, inner):
    """Segments of one length have one outer checksum: it is right in each one that the next device's kernel cuts."""
    mmb.apply(site.folder, "set offload off")
    packet = INNER[inner] / Raw(bytes(number % 251 for number in range(15 * SIZE)))
    checksum = tunnel.checksum(next(pieces(packet, SIZE))[14:])
    with tunnels.around(site, tunnel, packet.haslayer(IPv6), checksum), site.simple_devices():
        arrived, longest = sent_through(site, mmb, "eth0", packet, 15, tunnels.MARK)
    assert longest > 15 * SIZE and len(arrived) == 15
    for frame in arrived:
        network, udp = (frame[14:54], frame[54:]) if tunnel.six else (frame[14:34], frame[34:])
        assert udp[6:8] == checksum.to_bytes(2, "big")
        addresses = network[8:] if tunnel.six else network[12:]
        assert summed_up(addresses + bytes([0, 17]) + len(udp).to_bytes(2, "big") + udp)


def test_datagrams_of_a_program_arrive_one_by_one_whatever_is_in_them(site, mmb):
    """A tunnel between two programs, whose datagrams no kernel takes for a tunnel: a superframe in one would arrive as one datagram."""
    mmb.apply(site.folder, "set offload off")
    packets = [piece[14:] for piece in pieces(INNER["tcp4"] / Raw(os.urandom(20 * 1000)), 1000)]
    assert len({len(packet) for packet in packets}) == 1
    with site.server.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver, site.client.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        receiver.bind((SERVER4, 5555))
        sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, len(packets[0]))
        sender.sendto(b"".join(packets), (SERVER4, 5555))
        assert receive_all(receiver, len(packets)) == packets


@pytest.mark.parametrize("checksum", [True, False], ids=["checksum", "none"])
@pytest.mark.parametrize("six", [False, True], ids=["over4", "over6"])
def test_the_outer_checksum_of_every_piece_is_right(site, mmb, six, checksum):
    """VXLAN by the kernel's own driver, whose outer checksum covers the inner packet."""
    mmb.apply(site.folder, "set offload off", "add ip-ttl 64 mod ip-ttl 9", "add ip6-hop-limit 64 mod ip6-hop-limit 9")
    packet = INNER["tcp4"] / Raw(bytes(number % 251 for number in range(20_001)))
    count = len(range(0, 20_001, SIZE))
    with vxlan(site, six, checksum=checksum), site.simple_devices():
        arrived, _ = sent_through(site, mmb, "vx0", packet, count)
    headers = 14 + (40 if six else 20)
    for frame in arrived:
        network, udp = frame[14:headers], frame[headers:]
        assert network[7 if six else 8] == 9
        assert six or summed_up(network)
        assert int.from_bytes(udp[4:6]) == len(udp)
        addresses = network[8:] if six else network[12:]
        assert (udp[6:8] != bytes(2)) == checksum
        assert not checksum or summed_up(addresses + len(udp).to_bytes(4) + bytes([0, 0, 0, 17]) + udp)
    assert [frame[headers + 16 :][14:] for frame in arrived] == [piece[14:] for piece in pieces(packet, SIZE)]
    if not six:
        first = int.from_bytes(arrived[0][18:20])
        assert [int.from_bytes(frame[18:20]) for frame in arrived] == [(first + number) % 65536 for number in range(count)]


@contextlib.contextmanager
def vxlan(site, six, port=4789, checksum=None, remote=None):
    """Client and server have addresses in a VXLAN: 10.55.0.1 and 10.55.0.2. The client knows the server by `remote`, if that is given."""
    client, server = (CLIENT6, SERVER6) if six else (CLIENT4, SERVER4)
    words = {None: [], True: ["udpcsum", "noudp6zerocsumtx"], False: ["noudpcsum", "udp6zerocsumtx", "udp6zerocsumrx"]}[checksum]
    hosts = (site.client, site.server)
    try:
        for host, local, peer, last in zip(hosts, (client, server), (remote or server, client), "12"):
            words_of_link = ["type", "vxlan", "id", 5, "dstport", port, "local", local, "remote", peer, "dev", "eth0", *words]
            done = host.ip("link", "add", "vx0", *map(str, words_of_link), check=False)
            if done.returncode != 0:
                pytest.skip(f"the kernel has no VXLAN: {done.stderr.strip()}")
            host.ip("addr", "add", f"10.55.0.{last}/24", "dev", "vx0")
            host.ip("link", "set", "vx0", "up")
        yield
    finally:
        for host in hosts:
            host.ip("link", "del", "vx0", check=False)


def transfer(site, size=4 << 20):
    """Bytes over TCP in the tunnel; whether those that arrive are those that were sent."""
    data = os.urandom(size)
    with sockets.listener(site.server, "10.55.0.2", 41000) as listening:
        near, far, _ = sockets.opened(site.client, "10.55.0.1", ("10.55.0.2", 41000), listening)
    with sockets.closing(near, far):
        near.setblocking(False)
        arrived, sent = hashlib.sha256(), 0
        left = size
        while left:
            with contextlib.suppress(BlockingIOError):
                sent += near.send(data[sent : sent + (1 << 18)])
            chunk = far.recv(1 << 18) if sent > size - left else b""
            arrived.update(chunk)
            left -= len(chunk)
    return arrived.digest() == hashlib.sha256(data).digest()


VARIANTS = pytest.mark.parametrize(("six", "port", "checksum"), [(False, 4789, None), (True, 4789, None), (False, 5999, True)], ids=["over4", "over6", "other-port"])


@VARIANTS
@pytest.mark.parametrize("offload", ["auto", "off"])
def test_what_tcp_carries_in_a_vxlan_arrives(site, mmb, six, port, checksum, offload):
    mmb.apply(site.folder, f"set offload {offload}")
    before = mmb.drops()
    with vxlan(site, six, port, checksum):
        assert transfer(site)
    assert mmb.drops() == before


@VARIANTS
@pytest.mark.parametrize("place", PLACES)
def test_the_kernel_forwards_a_vxlan_whole(namespaces, tmp_path, place, six, port, checksum):
    """Packets that it cannot tell from others go to mmb; what arrives is the same."""
    with running(tmp_path, place) as site, vxlan(site, six, port, checksum):
        assert transfer(site, 1 << 20)
        before = hits(site.daemon)
        enough = before + (1000 if place == "tc" else 0)

        def is_forwarded():
            assert transfer(site, 8 << 20)
            return hits(site.daemon) > enough

        wait_until(is_forwarded, "the kernel forwards it", 60)
        site.daemon.wait_until_settled()


@pytest.mark.parametrize("port", [4789, 5999])
@pytest.mark.parametrize("place", PLACES)
def test_a_tunnel_whose_address_is_rewritten_keeps_its_checksums(namespaces, tmp_path, place, port):
    """The outer checksum of a frame is finished, the one inside is not: the kernel must not take the first for the second."""
    with running(tmp_path, place) as site:
        for host in (site.client, site.server):
            host.run("ethtool", "-K", "eth0", "tx", "on")
        lladdr = (site.server.run("cat", "/sys/class/net/eth0/address").stdout).strip()
        site.client.ip("neigh", "add", ALIAS, "lladdr", lladdr, "dev", "eth0")
        site.daemon.apply(site.folder, f"add in lan ip-daddr {ALIAS} udp-dport {port} mod ip-daddr {SERVER4}")
        with vxlan(site, False, port, True, remote=ALIAS):
            assert transfer(site)
