"""Work that hosts leave to the card: unfinished checksums, segmentation. A veth has no card: mmb does it, or leaves it to the next device."""

import contextlib
import itertools
import socket
import struct

import pytest
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.utils import checksum

from lab.net import SOL_PACKET
from lab.process import wait_until

from .frames import MAC, OTHER_MAC, rebuilt
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


PACKET_VNET_HDR = 15
NEEDS_CSUM, GSO_TCPV4, GSO_TCPV6, GSO_UDP_L4 = 1, 1, 4, 5


def superframe(packet, size):
    """What a host hands its device to cut: a frame with an unfinished checksum behind a `virtio_net_hdr` (VIRTIO 1.2, section 5.1.6)."""
    frame = bytearray(bytes(Ether(src=MAC, dst=OTHER_MAC) / packet))
    is_ip6, is_tcp = packet.haslayer(IPv6), packet.haslayer(TCP)
    start = 14 + (40 if is_ip6 else 20)
    at = start + (16 if is_tcp else 6)
    network = packet[IPv6] if is_ip6 else packet[IP]
    addresses = b"".join(socket.inet_pton(socket.AF_INET6 if is_ip6 else socket.AF_INET, each) for each in (network.src, network.dst))
    pseudo = addresses + struct.pack("!II", len(frame) - start, socket.IPPROTO_TCP if is_tcp else socket.IPPROTO_UDP)
    struct.pack_into("!H", frame, at, ~checksum(pseudo) & 0xFFFF)
    kind = (GSO_TCPV6 if is_ip6 else GSO_TCPV4) if is_tcp else GSO_UDP_L4
    headers = start + (packet[TCP].dataofs * 4 if is_tcp else 8)
    return struct.pack("=BBHHHH", NEEDS_CSUM, kind, headers, size, start, at - start) + bytes(frame)


def pieces(packet, size):
    """The frames that it stands for (RFC 9293 section 3.4, RFC 791 section 3.2): each a packet of its own."""
    load = bytes(packet.lastlayer())
    for number, start in enumerate(range(0, len(load), size)):
        piece = packet.copy()
        piece.lastlayer().underlayer.remove_payload()
        piece = piece / Raw(load[start : start + size])
        if piece.haslayer(IP):
            piece[IP].id = (packet[IP].id + number) % 65536
        if piece.haslayer(TCP):
            piece[TCP].seq = (packet[TCP].seq + start) % (1 << 32)
            if start + size < len(load):
                piece[TCP].flags = str(packet[TCP].flags).replace("P", "").replace("F", "")
        yield bytes(Ether(src=MAC, dst=OTHER_MAC) / piece)


TRANSPORTS = {
    "tcp": TCP(sport=4000, dport=80, seq=(1 << 32) - 3000, ack=7, flags="PAF", dataofs=8, options=[("NOP", None), ("NOP", None), ("Timestamp", (1, 2))]),
    "udp": UDP(sport=4000, dport=53),
}


@FAMILIES
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_kernel_cuts_a_joined_frame_into_what_its_sender_meant(site, mmb, family, transport):
    """Cut by mmb, joined by mmb, cut by the kernel; what is expected is computed here."""
    of_packet_sockets(site)
    mmb.apply(site.folder, "set offload off", "add ip-proto tcp mod ip-ttl 9", "add net-proto ip6 mod ip6-hop-limit 9")
    network = IP(src="10.0.0.50", dst=SERVER4, id=65534, flags="DF") if family == socket.AF_INET else IPv6(src="fd00::50", dst=SERVER6, fl=77)
    packet = network / TRANSPORTS[transport] / Raw(bytes(number % 251 for number in range(20_001)))
    expected = packet.copy()
    if family == socket.AF_INET6:
        expected.hlim = 9
    elif transport == "tcp":
        expected.ttl = 9
    with site.simple_devices(), site.server_wire() as wire, site.client.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
        sender.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        sender.bind(("eth0", 0))
        sender.send(superframe(packet, 1400))
        wait_until(lambda: mmb.port("wan")["tx"]["packets"] >= 15, "all are sent")
        source = bytes.fromhex(MAC.replace(":", ""))
        frames = [frame for frame in wire.drain() if frame[6:12] == source]
    assert frames == list(pieces(expected, 1400))


def test_a_wrong_checksum_is_not_mended(site, mmb):
    """A rule writes checksums that are wrong: no segment is joined, for the device would write correct ones."""
    of_packet_sockets(site)
    mmb.apply(site.folder, "set offload off", "add in lan udp-dport 7000 mod udp-checksum 0x1234")
    with site.server_wire() as wire, site.client.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, 500)
        sender.sendto(bytes(5000), (SERVER4, 7000))
        arriving = (frame for frame in wire.frames() if Ether(frame).haslayer(UDP))
        frames = list(itertools.islice(arriving, 10))
    assert [len(frame) for frame in frames] == [542] * 10
    assert {frame[40:42] for frame in frames} == {b"\x12\x34"}
