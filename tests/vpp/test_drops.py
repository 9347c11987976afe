"""Every drop reason that packets can have in VPP appears in `show errors` under its name, and in = out + drops."""

import pytest
from pieces import LINK
from scapy.layers.inet import IP, TCP, UDP, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, PadN
from scapy.packet import Raw

from lab.generator import IN, Generator
from lab.process import wait_until

from .playing import drops_of_nodes, expect, play, same_as_replay

HOST, FAR = "10.0.0.1", "198.51.100.1"
NAT = f"add-stateful in {IN} ip-saddr 10.0.0.0/24"
POOL = f"{NAT} map ip-saddr 200.0.0.1"


def ip4(**fields):
    return LINK / IP(**({"src": HOST, "dst": FAR, "id": 1} | fields))


def ip6(**fields):
    return LINK / IPv6(src="2001:db8::1", dst="2001:db8::2", **fields)


def udp(sport=5000, dport=9000, **fields):
    return ip4(**fields) / UDP(sport=sport, dport=dport) / Raw(b"hello")


def pieces(number):
    """The datagram with that number in six fragments."""
    return [LINK / piece for piece in fragment(IP(src=HOST, dst=FAR, id=number) / UDP(sport=5000) / Raw(bytes(1000)), 200)]


def piece(number, at, size):
    """A later fragment of the datagram, with more fragments to follow, at this multiple of 8 bytes."""
    return ip4(id=number, flags="MF", frag=at, proto=17) / Raw(bytes(size))


def chain(headers):
    packet = ip6()
    for _ in range(headers):
        packet = packet / IPv6ExtHdrDestOpt(options=[PadN(optdata=bytes(4))])
    return packet / UDP(sport=1, dport=2)


def long_header():
    """An extension header that is longer than its packet."""
    frame = bytearray(bytes(ip6() / IPv6ExtHdrDestOpt(options=[PadN(optdata=bytes(4))]) / UDP()))
    frame[14 + 41] = 200
    return bytes(frame)


# By reason: the policy, frames, and the number of them that are dropped for it. Reasons of packets that VPP drops before mmb are
# omitted, and those of ports, which belong to VPP.
REASONS = {
    "rule": ("add udp-dport 53 drop", [udp(dport=53), udp(dport=54)], 1),
    "ip6-header-truncated": ("", [long_header(), chain(1)], 1),
    "ip6-chain-too-long": ("", [chain(16), chain(17)], 1),
    "l4-truncated": ("", [ip4(proto=6) / Raw(bytes(19)), ip4(proto=17) / Raw(bytes(7)), udp()], 2),
    "tcp-bad-offset": ("", [ip4() / TCP(dataofs=4), ip4() / TCP(dataofs=6), ip4() / TCP()], 2),
    "tiny-fragment": ("", [ip4(proto=6, flags="MF") / Raw(bytes(16)), udp()], 1),
    "conn-full": (
        "set conn max 2\nset conn same-port on\nadd-stateful all accept",
        [udp(1), udp(9000, 1, src=FAR, dst=HOST), udp(2), udp(9000, 2, src=FAR, dst=HOST), udp(3)],
        1,
    ),
    "conn-not-syn": ("set conn pickup strict\nadd-stateful all accept", [ip4() / TCP(flags="A"), ip4() / TCP(flags="S")], 1),
    "nat-no-port": (
        # Only connections that both endpoints use keep their ports.
        f"set conn same-port on\n{NAT} ip-proto udp map ip-saddr 200.0.0.1 map udp-sport 30000-30001",
        [
            packet
            for n in range(1, 6)
            for packet in (udp(29999 + n, src=f"10.0.0.{n}"), udp(9000, 29999 + n, src=FAR, dst="200.0.0.1"))
        ],
        3,
    ),
    "nat-clash": (
        f"{NAT} ip-proto udp map ip-saddr 200.0.0.1 map udp-sport 30000",
        [udp(src=f"10.0.0.{n}") for n in range(1, 6)],
        4,
    ),
    "fragment-overlap": (POOL, [pieces(7)[0], piece(7, 10, 160), udp()], 1),
    "fragment-duplicate": (POOL, [*pieces(8)[:3], *pieces(8)[2:]], 1),
    "fragment-bad-length": (POOL, [pieces(9)[0], piece(9, 25, 9)], 1),
    "fragment-too-many": (POOL, [pieces(10)[0], *(piece(10, 25 + 3 * n, 24) for n in range(130))], 3),
    "fragment-refused": (f"{POOL}\nadd udp-dport 53 drop", [*pieces(11), *pieces(12)[::-1]], 10),
}
# The time that fragments wait for the first one of their datagram.
PATIENCE = 30


@pytest.fixture(scope="module")
def generator(vpp_with_mmb):
    made = Generator(vpp_with_mmb)
    vpp_with_mmb.enable(IN)
    return made


@pytest.mark.parametrize("reason", REASONS)
def test_a_reason_is_counted_under_its_name(generator, vpp, mmb, tmp_path, reason):
    policy, packets, count = REASONS[reason]
    frames = [bytes(packet) for packet in packets]
    expected = expect(mmb, tmp_path, policy, frames)
    assert len(expected.frames) == len(frames) and expected.drops.get(reason) == count, expected.drops
    vpp.apply(policy)
    same_as_replay(generator, expected)
    counters = vpp.counters(IN)
    assert counters["drops"] >= count


def test_fragments_that_wait_in_vain_are_counted(generator, vpp):
    vpp.apply(POOL)
    before = vpp.drops()
    out, _ = play(generator, [bytes(piece(13, 25 + 3 * n, 24)) for n in range(130)])
    assert out == []

    def lost():
        since = {reason: count - before.get(reason, 0) for reason, count in vpp.drops().items()}
        return {reason: count for reason, count in since.items() if count}

    wait_until(lambda: lost() == {"fragment-too-many": 2, "fragment-early": 128}, "all are given up", PATIENCE)
    assert drops_of_nodes(vpp.errors()) == lost()
