"""The policies in examples/: each passes `mmb check` and works as its header says.

A case is a packet, its input port, and the expected result: `same`, `DROPPED`, or a function that changes a copy; scapy then
computes lengths and checksums. `one_of` lists several acceptable results. Packets enter in the order of the cases, so that
replies follow the packets that they answer. They run through `mmb replay`, so neither root nor ports are needed.
"""

import struct
from pathlib import Path

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import (
    HBHOptUnknown,
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6MLReport2,
    ICMPv6ND_NS,
    ICMPv6PacketTooBig,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw

from lab.daemon import BINARY
from lab.process import run

from .frames import data, ether, ip4, ip6, rebuilt, tcp, udp
from .topology import CLIENT6, SERVER6

pytestmark = pytest.mark.needs_no_root

EXAMPLES = Path(__file__).parents[2] / "examples"
STREAMS = sorted(f"streams/{path.stem}" for path in EXAMPLES.glob("streams/*.mmb"))
LAN, WAN = "lan", "wan"
DROPPED = None


def same(packet):
    return packet


def change(layer, **fields):
    def apply(packet):
        for name, value in fields.items():
            setattr(packet[layer], name, value)
        return packet

    return apply


def syn(options=(), **fields):
    return tcp(**{"flags": "S", "options": list(options), **fields})


FULL = [("MSS", 1460), ("SAckOK", b""), ("Timestamp", (77, 0)), ("NOP", None), ("WScale", 7)]
UDP4, UDP6, TCP4, TCP6 = ip4() / udp() / data(), ip6() / udp() / data(), ip4() / tcp() / data(), ip6() / tcp() / data()


def tagged(vlan, inner):
    return ether() / Dot1Q(vlan=vlan, prio=2) / inner


def one_of(*changes):
    """Any of these changes."""

    def apply(packet):
        return [change(packet.copy()) for change in changes]

    return apply


def echo(kind, **fields):
    return ICMP(**{"type": kind, "id": 7, "seq": 1, **fields})


def back(packet, **fields):
    """The reply to an IPv4 packet over TCP or UDP."""
    transport = packet[TCP] if TCP in packet else packet[UDP]
    fields = {"sport": transport.dport, "dport": transport.sport, **fields}
    if TCP in packet:
        answer = tcp(**{"flags": "SA", "seq": 9000, "ack": transport.seq + 1, **fields})
    else:
        answer = udp(**fields)
    return ip4(src=packet[IP].dst, dst=packet[IP].src) / answer


def unreachable(packet):
    """A router's error about an IPv4 packet."""
    return ip4(src="203.0.113.1", dst=packet[IP].src) / ICMP(type=3, code=1) / Raw(bytes(packet[IP])[:28])


HOST, OUTSIDE = "10.0.0.7", "203.0.113.9"
OWN = "198.51.100.1"
QUERY, QUERY_OUT = (ip4(src=source, dst=OUTSIDE) / udp() / data() for source in (HOST, OWN))
OPENING, OPENING_OUT = (ip4(src=source, dst=OUTSIDE) / syn() for source in (HOST, OWN))
TO_WEB, TO_SSH = ip4(src=OUTSIDE, dst=OWN) / syn(dport=443), ip4(src=OUTSIDE, dst=OWN) / syn(dport=2222)
TO_DNS = ip4(src=OUTSIDE, dst=OWN) / udp(dport=53)
PLAIN_IP = IP(src="10.0.0.1", dst="10.0.0.2") / udp() / data()
WHO_HAS = ARP(psrc="10.0.0.1", pdst="10.0.0.2")

# Connections that only inside hosts may begin: replies and errors enter once they have.
INSIDE_BEGINS = [
    (WAN, back(OPENING), DROPPED),
    (LAN, OPENING, same),
    (WAN, back(OPENING), same),
    (WAN, unreachable(OPENING), same),
    (WAN, unreachable(QUERY), DROPPED),
    (LAN, QUERY, same),
    (WAN, back(QUERY), same),
    (WAN, unreachable(QUERY), same),
]

CASES = {
    "anti-spoofing": [
        (LAN, ip4(src="192.0.2.7") / udp(), same),
        (LAN, ip4(src="198.51.100.7") / udp(), DROPPED),
        (WAN, ip4(src="192.0.2.7") / udp(), DROPPED),
        (WAN, ip4(src="8.8.8.8", dst="192.0.2.7") / udp(), same),
        *[
            (WAN, ip4(src=source) / udp(), DROPPED)
            for source in ("10.1.1.1", "127.0.0.1", "172.31.0.1", "224.0.0.5", "255.255.255.255")
        ],
        (LAN, ip6(src="2001:db8::7") / udp(), same),
        (LAN, ip6(src="fe80::7") / udp(), same),
        (LAN, ip6(src="2001:db8:1::7") / udp(), DROPPED),
        (WAN, ip6(src="2001:db8::7") / udp(), DROPPED),
        (WAN, ip6(src="2001:db8:1::7") / udp(), same),
        *[(WAN, ip6(src=source) / udp(), DROPPED) for source in ("::1", "fd00::1", "ff02::1")],
    ],
    "ecn-bleach": [
        (LAN, ip4() / syn(FULL, flags="SEC"), change(TCP, flags="S")),
        (WAN, ip4() / tcp(flags="SAE"), change(TCP, flags="SA")),
        (LAN, ip6() / tcp(flags="SEC"), change(TCP, flags="S")),
        *[(LAN, ip4(tos=0xB8 | ecn) / udp(), change(IP, tos=0xB8)) for ecn in (1, 2, 3)],
        (LAN, ip6(tc=2) / udp(), change(IPv6, tc=0)),
        (LAN, ip6(tc=0xB9) / udp(), same),
        (LAN, ip4(tos=0xB8) / tcp(), same),
    ],
    "icmp-filter": [
        *[(port, ip4() / ICMP(type=kind, code=4) / data(28), same) for kind in (3, 11, 12) for port in (LAN, WAN)],
        (LAN, ip4() / ICMP(type=8), same),
        (WAN, ip4() / ICMP(type=0), same),
        (WAN, ip4() / ICMP(type=8), DROPPED),
        (LAN, ip4() / ICMP(type=0), DROPPED),
        (LAN, ip4() / ICMP(type=13), DROPPED),
        (WAN, ip4() / ICMP(type=5) / data(28), DROPPED),
        (WAN, ip6() / ICMPv6PacketTooBig() / data(48), same),
        (LAN, ip6() / ICMPv6EchoRequest(), same),
        (WAN, ip6() / ICMPv6EchoReply(), same),
        (WAN, ip6() / ICMPv6EchoRequest(), DROPPED),
        (WAN, ip6(hlim=255) / ICMPv6ND_NS(tgt="fd00::1"), same),
        (WAN, ip6(hlim=64) / ICMPv6ND_NS(tgt="fd00::1"), DROPPED),
        (LAN, ip6(hlim=1) / ICMPv6MLReport2(), same),
        (LAN, UDP4, same),
        (LAN, TCP6, same),
    ],
    "ip6-extension-headers": [
        (LAN, ip6() / IPv6ExtHdrHopByHop() / udp(), DROPPED),
        (LAN, ip6() / IPv6ExtHdrHopByHop(options=[HBHOptUnknown(otype=0x1E, optdata=b"abcdef")]) / udp(), DROPPED),
        (LAN, ip6(nh=139) / Raw(bytes([59, 4]) + bytes(38)), DROPPED),
        (LAN, ip6(nh=140) / Raw(bytes([59, 0]) + bytes(6)), DROPPED),
        (LAN, ip6() / IPv6ExtHdrDestOpt() / udp(), same),
        (LAN, ip6() / IPv6ExtHdrRouting(addresses=["fd00::9"]) / udp(), same),
        (LAN, ip6() / IPv6ExtHdrFragment(m=1, nh=17) / data(64), same),
        (LAN, ip6(nh=50) / data(64), same),
        (LAN, UDP6, same),
        (LAN, UDP4, same),
    ],
    "less-fingerprint": [
        (
            LAN,
            ip4(ttl=128, flags="DF", id=77) / syn([("MSS", 1460), ("Timestamp", (7, 0)), ("NOP", None), ("WScale", 7)]),
            lambda p: change(TCP, dataofs=None, options=[("MSS", 1460), ("WScale", 7), ("EOL", None)])(
                change(IP, ttl=64, id=0)(p)
            ),
        ),
        (LAN, ip4(ttl=100, id=77) / udp(), change(IP, ttl=64)),
        (LAN, ip4(ttl=255) / udp(), same),
        (LAN, ip4(ttl=1) / udp(), same),
        (LAN, ip6(hlim=128) / udp(), change(IPv6, hlim=64)),
        (LAN, ip6(hlim=255) / ICMPv6ND_NS(tgt="fd00::1"), same),
        (WAN, ip4(ttl=100, flags="DF", id=77) / syn(FULL), same),
    ],
    "load-balancer": [
        (WAN, TO_WEB, one_of(*(change(IP, dst=f"10.0.0.{n}") for n in (1, 2, 3)))),
        *[
            (LAN, back(ip4(src=OUTSIDE, dst=f"10.0.0.{n}") / syn(dport=443)), one_of(same, change(IP, src=OWN)))
            for n in (1, 2, 3)
        ],
        (WAN, TO_DNS, one_of(*(change(IP, dst=f"10.0.0.{n}") for n in (53, 54)))),
        (WAN, ip4(src=OUTSIDE, dst=OWN) / syn(dport=25), same),
    ],
    "mss-clamp": [
        (LAN, ip4() / syn(FULL), change(TCP, options=[("MSS", 1360), *FULL[1:]])),
        (WAN, ip4() / syn(FULL, flags="SA"), change(TCP, options=[("MSS", 1360), *FULL[1:]])),
        (LAN, ip6() / syn([("MSS", 1440)]), change(TCP, options=[("MSS", 1340)])),
        (LAN, ip4() / syn([("MSS", 1360)]), same),
        (LAN, ip6() / syn([("MSS", 1220)]), same),
        (LAN, ip4() / syn(), same),
    ],
    "no-multipath-no-fast-open": [
        (LAN, ip4() / syn([("MSS", 1460), (30, bytes(10))]), change(TCP, dataofs=None, options=[("MSS", 1460)])),
        (LAN, ip6() / syn([("MSS", 1460), (34, b"")]), change(TCP, dataofs=None, options=[("MSS", 1460)])),
        (LAN, ip4() / syn([("MSS", 1460)]) / data(), DROPPED),
        (LAN, ip4() / syn([("MSS", 1460)]), same),
        (LAN, TCP4, same),
    ],
    "only-dns-over-udp": [
        (LAN, ip4() / udp(dport=53) / data(), same),
        (WAN, ip4() / udp(sport=53, dport=40000) / data(), same),
        (WAN, ip6() / udp(sport=53, dport=40000) / data(), same),
        (WAN, ip4(frag=185, proto=17) / data(100), same),
        (LAN, ip4() / udp(dport=54) / data(), DROPPED),
        (WAN, ip4() / udp(sport=40000, dport=53) / data(), DROPPED),
        (LAN, ip6() / udp(dport=443) / data(), DROPPED),
        (LAN, TCP4, same),
        (LAN, ether() / WHO_HAS, same),
    ],
    "ordered-firewall": [
        (LAN, ip4() / tcp(dport=25), same),
        (LAN, ip6() / udp(dport=9), same),
        *[(WAN, ip4(dst="192.0.2.10") / syn(dport=port), same) for port in (22, 80, 443, 25, 587, 993)],
        (WAN, ip4(dst="192.0.2.10") / syn(dport=23), DROPPED),
        (WAN, ip4(dst="192.0.2.11") / syn(dport=80), DROPPED),
        (WAN, ip6() / syn(dport=80), DROPPED),
        (WAN, ip4(dst="192.0.2.11") / tcp(flags="SA", dport=40000), same),
        (WAN, ip4() / udp(sport=53, dport=40000), same),
        (WAN, ip4() / udp(sport=5353, dport=40000), DROPPED),
        (WAN, ip4() / ICMP(), same),
        (WAN, ip4(proto=47) / data(), DROPPED),
    ],
    "port-forward": [
        (WAN, TO_WEB, change(IP, dst="10.0.0.80")),
        (LAN, back(ip4(src=OUTSIDE, dst="10.0.0.80") / syn(dport=443)), change(IP, src=OWN)),
        (
            WAN,
            TO_SSH,
            lambda p: change(TCP, dport=22)(change(IP, dst="10.0.0.22")(p)),
        ),
        (
            LAN,
            back(ip4(src=OUTSIDE, dst="10.0.0.22") / syn(dport=22)),
            lambda p: change(TCP, sport=2222)(change(IP, src=OWN)(p)),
        ),
        (WAN, ip4(src=OUTSIDE, dst=OWN) / syn(dport=22), DROPPED),
        (WAN, TO_DNS, DROPPED),
        (LAN, UDP4, same),
    ],
    "port-redirect": [
        (LAN, ip4() / tcp(dport=80) / data(), change(TCP, dport=8080)),
        (WAN, ip4() / tcp(sport=8080, dport=40000) / data(), change(TCP, sport=80)),
        (LAN, ip6() / tcp(dport=80) / data(), change(TCP, dport=8080)),
        (WAN, ip4() / tcp(dport=80), same),
        (LAN, ip4() / tcp(dport=443), same),
        (LAN, ip4() / udp(dport=80), same),
    ],
    "reflexive-firewall": [
        *INSIDE_BEGINS,
        (WAN, back(QUERY, dport=40001), DROPPED),
        (LAN, ip4(src=HOST, dst=OUTSIDE) / echo(8), same),
        (WAN, ip4(src=OUTSIDE, dst=HOST) / echo(0), same),
        (WAN, ip4(src=OUTSIDE, dst=HOST) / echo(0, id=8), DROPPED),
        (WAN, ip4(src=OUTSIDE, dst=HOST) / echo(8), DROPPED),
        (WAN, ip6(src=SERVER6, dst=CLIENT6) / udp(sport=53, dport=40000), DROPPED),
        (LAN, ip6() / udp(), same),
        (WAN, ip6(src=SERVER6, dst=CLIENT6) / udp(sport=53, dport=40000), same),
        (WAN, ip6(hlim=255) / ICMPv6ND_NS(tgt="fd00::1"), same),
        (WAN, ip6(hlim=64) / ICMPv6ND_NS(tgt="fd00::1"), DROPPED),
        (WAN, ether() / WHO_HAS, same),
    ],
    "scan-shield": [
        *[(WAN, ip4() / tcp(flags=flags), DROPPED) for flags in ("", "SF", "SR", "F", "FPU", "SAFR")],
        *[(WAN, ip4() / tcp(flags=flags), same) for flags in ("S", "SA", "A", "FA", "R", "RA", "PA")],
        (WAN, ip4(flags="MF", proto=6) / Raw(bytes(tcp()) + bytes(28)), DROPPED),
        (WAN, ip4(frag=3, proto=6) / data(24), DROPPED),
        (WAN, ip4(frag=3, proto=17) / data(24), same),
    ],
    "source-nat": [
        (WAN, back(QUERY_OUT), DROPPED),
        (LAN, QUERY, change(IP, src=OWN)),
        (WAN, back(QUERY_OUT), change(IP, dst=HOST)),
        (WAN, back(QUERY_OUT, sport=54), DROPPED),
        (LAN, OPENING, change(IP, src=OWN)),
        (WAN, back(OPENING_OUT), change(IP, dst=HOST)),
        (WAN, back(OPENING_OUT, dport=9), DROPPED),
        (LAN, ip4(src=HOST, dst=OUTSIDE) / echo(8), change(IP, src=OWN)),
        (WAN, ip4(src=OUTSIDE, dst=OWN) / echo(0), change(IP, dst=HOST)),
        (WAN, ip4(src=OUTSIDE, dst=HOST) / udp(), DROPPED),
        (LAN, UDP6, same),
        (WAN, TCP6, same),
    ],
    "states": [
        *INSIDE_BEGINS,
        (LAN, ip4(dst=OUTSIDE) / tcp(flags="R"), DROPPED),
        (LAN, ip4(dst=OUTSIDE) / tcp(flags="SF"), DROPPED),
        (WAN, ip4(src=OUTSIDE, dst=HOST) / echo(8), DROPPED),
    ],
    "tcp-option-whitelist": [
        (LAN, ip4() / syn(FULL), same),
        (
            LAN,
            ip4() / syn([("MSS", 1460), (34, b"cookie12"), ("WScale", 7), ("NOP", None)]),
            change(TCP, dataofs=None, options=[("MSS", 1460), ("WScale", 7), ("EOL", None)]),
        ),
        (WAN, ip6() / tcp(options=[(254, b"\x12\x34")]) / data(), change(TCP, dataofs=None, options=[])),
        (LAN, TCP4, same),
    ],
    "vlan-translate": [
        (LAN, tagged(10, PLAIN_IP), change(Dot1Q, vlan=20)),
        (WAN, tagged(20, PLAIN_IP), change(Dot1Q, vlan=10)),
        (LAN, tagged(10, WHO_HAS), change(Dot1Q, vlan=20)),
        (WAN, tagged(20, WHO_HAS), change(Dot1Q, vlan=10)),
        (LAN, tagged(20, PLAIN_IP), DROPPED),
        (WAN, tagged(10, WHO_HAS), DROPPED),
        (LAN, UDP4, DROPPED),
        (WAN, ether() / WHO_HAS, DROPPED),
    ],
    "voice-marking": [
        (LAN, ip4(tos=0x28) / udp(dport=9), change(IP, tos=0)),
        (LAN, ip4(tos=0x29) / udp(dport=5060), change(IP, tos=(24 << 2) | 1)),
        (LAN, ip4() / udp(dport=16384), change(IP, tos=46 << 2)),
        (LAN, ip4() / udp(dport=32767), change(IP, tos=46 << 2)),
        (WAN, ip4(tos=0x28) / udp(dport=9), same),
    ],
    "lossy-link": [(LAN, ip4() / udp(dport=53), same)] * 100 + [(WAN, ip4() / udp(sport=53, dport=4), same)] * 100,
}


def test_every_example_has_cases():
    assert {path.stem for path in EXAMPLES.glob("*.mmb")} == set(CASES)


def test_every_example_is_in_the_index():
    index = (EXAMPLES / "README.md").read_text()
    assert [name for name in [*CASES, *STREAMS] if f"({name}.mmb)" not in index] == []


@pytest.mark.parametrize("name", sorted(CASES) + STREAMS)
def test_the_example_is_a_good_policy_that_says_what_it_does(name):
    path = EXAMPLES / f"{name}.mmb"
    assert path.read_text().startswith("# ")
    done = run([BINARY, "check", path])
    assert "note" not in done.stderr and "warning" not in done.stderr


def write_capture(path, frames):
    """Frames with their arrival times in milliseconds."""
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    records = (
        struct.pack("<IIII", at // 1000, at % 1000 * 1000, len(frame), len(frame)) + frame for at, frame in frames
    )
    path.write_bytes(header + b"".join(records))


def read_capture(path):
    content, at = path.read_bytes(), 24
    while at < len(content):
        size = struct.unpack_from("<I", content, at + 8)[0]
        yield content[at + 16 : at + 16 + size]
        at += 16 + size


def replay(folder, name, entering):
    """The frames that leave by each port, for the frames that enter each port; input frames have times."""
    words = [BINARY, "replay", "--rules", EXAMPLES / f"{name}.mmb"]
    for port in (LAN, WAN):
        write_capture(folder / f"{port}-in.pcap", entering[port])
        words += ["--port", f"{port}={folder}/{port}-in.pcap:{folder}/{port}-out.pcap"]
    run(words)
    return {port: list(read_capture(folder / f"{port}-out.pcap")) for port in (LAN, WAN)}


@pytest.mark.parametrize("name", sorted(CASES))
def test_the_example_does_what_its_header_says(tmp_path, name):
    """Each frame has its number in its source MAC address, which identifies it."""
    entering, wanted = {LAN: [], WAN: []}, {LAN: [], WAN: []}
    for number, (port, packet, becomes) in enumerate(CASES[name]):
        packet = Ether(bytes(packet))
        packet.src = f"02:00:00:00:{number >> 8:02x}:{number & 255:02x}"
        entering[port].append((number, bytes(packet)))
        if becomes is not DROPPED:
            result = becomes(packet.copy())
            results = result if isinstance(result, list) else [result]
            results = [bytes(packet) if each == packet else rebuilt(each) for each in results]
            wanted[WAN if port == LAN else LAN].append(results)
    left = replay(tmp_path, name, entering)
    for port in (LAN, WAN):
        for came, want in zip(left[port], wanted[port]):
            shown = "\nor\n".join(Ether(each).show(dump=True) for each in want)
            assert came in want, f"\ncame\n{Ether(came).show(dump=True)}\nwanted\n{shown}"
        assert len(left[port]) == len(wanted[port])


def test_a_lossy_link_loses_two_per_cent(tmp_path):
    packets = [(at, bytes(ip4() / udp(dport=9))) for at in range(5000)]
    left = replay(tmp_path, "lossy-link", {LAN: packets, WAN: packets})
    for port in (LAN, WAN):
        assert 40 < 5000 - len(left[port]) < 160
