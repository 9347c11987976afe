"""Datagrams in fragments, and their reassembly."""

from collections import defaultdict

from scapy.layers.inet import IP, UDP, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, fragment6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

LINK = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")


def datagram(rng, number):
    """The fragments of a datagram in order, each with its link header, and its payload."""
    payload = rng.randbytes(rng.randrange(1000, 6000))
    transport = UDP(sport=5000, dport=9000 + number) / Raw(payload)
    if number % 3 == 0:
        whole = IPv6(src=f"fd00:a::{1 + number % 5}", dst="2001:db8:1::1") / IPv6ExtHdrFragment(id=number) / transport
        pieces = fragment6(IPv6(bytes(whole)), rng.choice((500, 1280)))
    else:
        whole = IP(src=f"10.0.0.{1 + number % 5}", dst="198.51.100.1", id=number) / transport
        pieces = fragment(IP(bytes(whole)), rng.choice((200, 576, 1400)))
    return [bytes(LINK / piece) for piece in pieces], payload


def place(frame):
    """The fields that identify a fragment's datagram, the place of the fragment in it, and whether it is the last one."""
    ip = Ether(frame).payload
    if isinstance(ip, IPv6):
        head = ip[IPv6ExtHdrFragment]
        return (6, ip.src, head.id), head.offset * 8, not head.m, bytes(head.payload)
    return (4, ip.src, ip.id), ip.frag * 8, not ip.flags.MF, bytes(ip.payload)


def put_together(frames):
    """The datagrams of which all bytes arrived exactly once, by their identifying fields, as whole IP packets."""
    pieces = defaultdict(list)
    for frame in frames:
        key, at, last, content = place(frame)
        assert pieces[key] or at == 0, "the first one leaves first"
        pieces[key].append((at, last, content))
    whole = {}
    for (family, source, number), parts in pieces.items():
        end, content = 0, b""
        for at, last, part in sorted(parts):
            assert at == end, f"{source} {number}: bytes from {end} to {at} are missing, or there twice"
            end, content = at + len(part), content + part
        assert last
        fields = {"src": source, "nh" if family == 6 else "proto": 17}
        fields["dst"] = "2001:db8:1::1" if family == 6 else "198.51.100.1"
        whole[number] = (IPv6 if family == 6 else IP)(**fields) / Raw(content)
    return whole


def checked(packet):
    """The UDP datagram of an IP packet; its checksum must be correct."""
    parsed = type(packet)(bytes(packet))
    udp = parsed[UDP]
    given = udp.chksum
    del udp.chksum
    assert type(packet)(bytes(parsed))[UDP].chksum == given
    return parsed


def shuffled(rng, count, most=1000):
    """Fragments of a number of datagrams, in a maximum number of pieces each, in random order; and the payload of each datagram,
    by number."""
    sent, frames = {}, []
    for number in range(count):
        pieces, sent[number] = datagram(rng, number)
        while len(pieces) > most:
            pieces, sent[number] = datagram(rng, number)
        order = (lambda all: all[::-1], lambda all: all, lambda all: rng.sample(all, len(all)))[rng.randrange(3)]
        # Inserts them into the existing ones, in their order.
        places = sorted(rng.sample(range(len(frames) + len(pieces)), len(pieces)))
        for at, piece in zip(places, order(pieces)):
            frames.insert(at, piece)
    return frames, sent
