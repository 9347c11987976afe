"""Fragments through NAT (RFC 4787 REQ-14): datagrams of hosts that fragment, and crafted ones with contradictions."""

import itertools

import pytest
from lab.process import wait_until
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment
from scapy.packet import Raw

from . import sockets
from .programs import ping
from .routed import BOTH_FAMILIES, INSIDE4, INSIDE6, NAT4, NAT6, UNANSWERED, OUTSIDE4, OUTSIDE6
from .sockets import closing, receive, udp

A, B = INSIDE4[:2]
WEB = OUTSIDE4[0]
families = pytest.mark.parametrize(
    ("inside", "outside", "stands_for"), [(A, WEB, NAT4), (INSIDE6[0], OUTSIDE6[0], NAT6)], ids=["v4", "v6"]
)

_ids = itertools.count(1000)


@families
@pytest.mark.parametrize("size", [1473, 4000, 20000, 60000])
def test_a_datagram_in_fragments_goes_out_and_its_answer_comes_in(nat, inside, outside, stands_for, size):
    nat.tested.policy(*BOTH_FAMILIES)
    with closing(udp(nat.client, inside), udp(nat.server, outside, 9000)) as (near, far):
        assert sockets.ask(near, far, text=bytes(n % 251 for n in range(size)))[0] == stands_for


@families
def test_a_ping_in_fragments_is_answered(nat, inside, outside, stands_for):
    nat.tested.policy(*BOTH_FAMILIES)
    assert ping(nat, outside, count=3, options=["-s", "6000", "-I", inside]) == 3


def test_datagrams_of_two_hosts_in_fragments_do_not_mix(nat):
    nat.tested.policy(*BOTH_FAMILIES)
    with closing(udp(nat.client, A), udp(nat.client, B), udp(nat.server, WEB, 9000)) as (one, two, far):
        for text in (bytes([n]) * 4000 for n in range(8)):
            one.sendto(b"1" + text, (WEB, 9000))
            two.sendto(b"2" + text, (WEB, 9000))
            seen = {far.recvfrom(65536)[0][:1] for _ in range(2)}
            assert seen == {b"1", b"2"}


class Datagram:
    """A UDP datagram from the inside in fragments, with lengths and checksum of the whole datagram."""

    def __init__(self, nat, size=3000, sport=5000, source=A):
        self.head = nat.from_inside()
        self.ident, self.source = next(_ids), source
        self.text = bytes((n * 7 + self.ident) % 251 for n in range(size))
        packet = IP(src=source, dst=WEB, id=self.ident) / UDP(sport=sport, dport=9000) / Raw(self.text)
        self.whole = bytes(packet)[20:]

    def piece(self, start, end, lie=b""):
        """Bytes of the UDP datagram from `start` to `end`; `lie` replaces them if it is given."""
        more = end < len(self.whole)
        content = (lie or self.whole[start:end]).ljust(end - start, b"!")
        fields = {"flags": "MF" if more else 0, "frag": start // 8}
        return self.head / IP(src=self.source, dst=WEB, id=self.ident, proto=17, **fields) / Raw(content)

    def pieces(self, step=1000):
        return [self.piece(at, min(at + step, len(self.whole))) for at in range(0, len(self.whole), step)]


def send(nat, *frames):
    with nat.inside_wire() as wire:
        for frame in frames:
            wire.send(frame)


def test_pieces_in_order_arrive(nat):
    nat.tested.policy(*BOTH_FAMILIES)
    datagram = Datagram(nat)
    with closing(udp(nat.server, WEB, 9000)) as (far,):
        send(nat, *datagram.pieces())
        assert receive(far, datagram.text)[0] == NAT4


def test_pieces_arrive_in_any_order(nat):
    """RFC 4787 REQ-14."""
    nat.tested.policy(*BOTH_FAMILIES)
    with closing(udp(nat.server, WEB, 9000)) as (far,):
        for order in itertools.permutations(range(4)):
            datagram = Datagram(nat)
            pieces = datagram.pieces(800)
            send(nat, *(pieces[at] for at in order))
            assert receive(far, datagram.text)[0] == NAT4, order
    if nat.tested.kind == "mmb":
        assert nat.tested.drops() == {}


@pytest.mark.parametrize("backend", ["af_xdp", "af_packet"])
def test_two_workers_put_pieces_in_order_as_one_does(fresh, backend):
    """Fragments arrive at the worker that the card selects, assemble at one, and continue to the worker of their connection."""
    site = fresh.routed(backend, queues=2)
    mmb = fresh.daemon(site, "--workers", 2)
    mmb.apply(site.folder, *BOTH_FAMILIES[0])
    with closing(udp(site.server, WEB, 9000)) as (far,):
        for number, order in enumerate(itertools.permutations(range(4))):
            datagram = Datagram(site, sport=5000 + number, source=INSIDE4[number % 4])
            pieces = datagram.pieces(800)
            send(site, *(pieces[at] for at in order))
            assert receive(far, datagram.text)[0] == NAT4, order
    mmb.wait_until_settled()
    summary = mmb.ask("show conn summary")
    assert summary["handed"] > 0 and (summary["held"], summary["refused"]) == (0, {})


def test_an_answer_in_fragments_comes_in_in_any_order(nat):
    """The same towards the inside, with fragments that have the outside address."""
    nat.tested.policy(*BOTH_FAMILIES)
    with closing(udp(nat.client, A), udp(nat.server, WEB, 9000)) as (near, far):
        near.sendto(b"hello", (WEB, 9000))
        _, port = receive(far, b"hello")
        head, text = nat.from_outside(), bytes(n % 251 for n in range(3000))
        whole = bytes(IP(src=WEB, dst=NAT4) / UDP(sport=9000, dport=port) / Raw(text))[20:]
        ident = next(_ids)

        def piece(start):
            fields = {"id": ident, "proto": 17, "frag": start // 8, "flags": "MF" if start + 1000 < len(whole) else 0}
            return head / IP(src=WEB, dst=NAT4, **fields) / Raw(whole[start : start + 1000])

        with nat.outside_wire() as wire:
            for start in (3000, 1000, 2000, 0):
                wire.send(piece(start))
        assert receive(near, text)[0] == WEB


def test_a_piece_waits_for_its_first_one(of_mmb):
    of_mmb.tested.policy(*BOTH_FAMILIES)
    datagram = Datagram(of_mmb)
    first, *rest = datagram.pieces()
    daemon = of_mmb.tested.daemon
    with closing(udp(of_mmb.server, WEB, 9000)) as (far,):
        send(of_mmb, *rest)
        assert not sockets.heard(far)
        assert daemon.ask("show conn summary")["held"] == len(rest)
        send(of_mmb, first)
        assert receive(far, datagram.text)[0] == NAT4
    assert daemon.ask("show conn summary")["held"] == 0 and of_mmb.tested.drops() == {}


def test_overlapping_pieces_end_their_datagram(nat):
    """RFC 5722, RFC 3128: no byte may be sent twice."""
    nat.tested.policy(*BOTH_FAMILIES)
    datagram = Datagram(nat)
    first, second, *rest, last = datagram.pieces(800)
    with closing(udp(nat.server, WEB, 9000)) as (far,):
        send(nat, first, second, datagram.piece(1200, 2000, lie=b"lie"), *rest, last)
        assert not sockets.heard(far)
    if nat.tested.kind == "mmb":
        assert nat.tested.drops()["fragment-overlap"] >= 1


def test_a_second_first_piece_does_not_change_the_ports(nat):
    """Linux keeps the first of two; mmb gives up the datagram, as for overlapping fragments."""
    nat.tested.policy(*BOTH_FAMILIES)
    datagram, other = Datagram(nat), Datagram(nat, sport=6000)
    other.ident = datagram.ident
    first, *rest = datagram.pieces()
    with closing(udp(nat.server, WEB, 9000)) as (far,):
        send(nat, first, other.pieces()[0], *rest)
        if nat.tested.kind == "mmb":
            assert not sockets.heard(far)
        else:
            assert receive(far, datagram.text) == (NAT4, 5000)


def test_a_flood_of_first_pieces_keeps_nothing_from_others(of_mmb):
    """Bounded memory: unfinished datagrams are evicted. Linux stops all fragments until its datagrams time out."""
    of_mmb.tested.policy(*BOTH_FAMILIES)
    with closing(udp(of_mmb.client, INSIDE4[2]), udp(of_mmb.server, WEB, 9000)) as (near, far):
        head = of_mmb.from_inside()
        first = UDP(sport=5001, dport=9001, len=4000) / Raw(bytes(64))
        frames = [bytes(head / IP(src=B, dst=UNANSWERED, id=n, proto=17, flags="MF") / first) for n in range(5000)]
        with of_mmb.inside_wire() as wire:
            for at in range(0, len(frames), 500):
                for frame in frames[at : at + 500]:
                    wire.send(frame)
                sockets.ask(near, far, text=b"in between %d" % at)
        assert sockets.ask(near, far, text=bytes(5000))[0] == NAT4


def test_a_flood_of_stray_pieces_keeps_nothing_from_others(of_mmb):
    """Bounded memory: the fragments that have waited longest are evicted."""
    of_mmb.tested.policy(*BOTH_FAMILIES)
    head, size = of_mmb.from_inside(), 5000
    frames = [bytes(head / IP(src=INSIDE4[3], dst=UNANSWERED, id=n, proto=17, frag=100) / Raw(bytes(64))) for n in range(size)]
    with closing(udp(of_mmb.server, WEB, 9000)) as (far,), of_mmb.inside_wire() as wire:
        for at in range(0, size, 500):
            datagram = Datagram(of_mmb)
            first, *rest = datagram.pieces()
            for frame in (*rest, *frames[at : at + 500], first):
                wire.send(frame)
            assert receive(far, datagram.text)[0] == NAT4
    of_mmb.tested.wait_until_settled()
    held = of_mmb.tested.daemon.ask("show conn summary")["held"]
    assert held <= 4096 and of_mmb.tested.drops() == {"fragment-no-room": size - held}
    # Without rules no fragment waits, and none is left to time out during the next test.
    of_mmb.tested.reset()
    wait_until(lambda: of_mmb.tested.daemon.ask("show conn summary")["held"] == 0, "nothing waits")


def test_tiny_first_pieces_of_tcp_are_dropped(of_mmb):
    """RFC 1858 and RFC 3128: a first fragment without the flags, and a second one that starts in the header."""
    of_mmb.tested.policy(*BOTH_FAMILIES)
    head = of_mmb.from_inside()
    segment = bytes(5000)
    tiny = head / IP(src=A, dst=WEB, id=next(_ids), proto=6, flags="MF") / Raw(b"\x13\x88\x23\x28" + segment[:4])
    inside_the_header = head / IP(src=A, dst=WEB, id=next(_ids), proto=6, frag=1) / Raw(segment[:64])
    send(of_mmb, tiny, inside_the_header)
    of_mmb.tested.wait_until_settled()
    assert of_mmb.tested.drops() == {"tiny-fragment": 2}


def pieces6(nat, *bounds):
    """The text of a datagram over IPv6, and its fragments between these bounds."""
    head, ident = nat.from_inside(), next(_ids)
    ends, text = {"src": INSIDE6[0], "dst": OUTSIDE6[0]}, bytes(ident % 251 for _ in range(2000))
    whole = bytes(IPv6(bytes(IPv6(**ends) / UDP(sport=5000, dport=9000) / Raw(text))))[40:]

    def piece(start, end):
        fragment = IPv6ExtHdrFragment(nh=17, id=ident, offset=start // 8, m=int(end < len(whole)))
        return head / IPv6(**ends) / fragment / Raw(whole[start:end])

    return text, [piece(*each) for each in bounds]


def test_ipv6_pieces_arrive_in_any_order(nat):
    nat.tested.policy(*BOTH_FAMILIES)
    with closing(udp(nat.server, OUTSIDE6[0], 9000)) as (far,):
        for order in itertools.permutations([(0, 800), (800, 1600), (1600, 2008)]):
            text, pieces = pieces6(nat, *order)
            send(nat, *pieces)
            assert receive(far, text)[0] == NAT6, order


def test_ipv6_pieces_of_an_overlapping_datagram_are_dropped(nat):
    """RFC 5722: the whole datagram."""
    nat.tested.policy(*BOTH_FAMILIES)
    _, pieces = pieces6(nat, (0, 800), (400, 1600), (800, 1600), (1600, 2008))
    with closing(udp(nat.server, OUTSIDE6[0], 9000)) as (far,):
        send(nat, *pieces)
        assert not sockets.heard(far)
