"""Crafted frames through live ports: scapy checks the output, byte for byte."""

import random

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP, IPOption_Router_Alert
from scapy.layers.inet6 import (
    ICMPv6EchoRequest,
    IPv6,
    IPv6ExtHdrDestOpt,
    IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop,
    IPv6ExtHdrRouting,
)
from scapy.layers.l2 import ARP, LLC, SNAP, Dot1AD, Dot1Q, Dot3, Ether
from scapy.packet import Raw

from .frames import MAC, OTHER_MAC, data, ether, expect, ip4, ip6, of_every_kind, pass_through, rebuilt, tcp, udp

OPTIONS = [("MSS", 1460), ("SAckOK", b""), ("Timestamp", (77, 0)), ("NOP", None), ("WScale", 7)]


@pytest.fixture
def ends(site):
    """Raw ports on the client's and the server's wire."""
    with site.client_wire() as client, site.server_wire() as server:
        yield client, server


def unusual():
    """Frames that a middlebox without rules must not change."""
    return [
        ether() / ARP(hwsrc=MAC, psrc="10.0.0.9", pdst="10.0.0.10"),
        ether(type=0x88CC) / Raw(b"\x02\x07\x04lldp..\x04\x02\x05x\x06\x02\x00x\x00\x00"),
        Dot3(src=MAC, dst=OTHER_MAC) / LLC() / SNAP() / Raw(b"802.3 with a length"),
        ether() / Dot1Q(vlan=5, prio=3) / IP(src="10.0.0.1", dst="10.0.0.2") / tcp() / data(),
        ether() / Dot1AD(vlan=100) / Dot1Q(vlan=7) / IPv6(src="fd00::1", dst="fd00::2") / udp() / data(),
        ip4(options=[IPOption_Router_Alert()]) / udp() / data(),
        ip4(tos=0xB9, ttl=1, flags="DF", id=0) / udp(chksum=0) / data(),
        ip4(flags="MF", proto=17, id=9) / data(1480),
        ip4(frag=185, proto=17, id=9) / data(100),
        ip4() / tcp(options=OPTIONS, flags="S"),
        ip4() / tcp(options=[("NOP", None)] * 40),
        ip4(len=40) / tcp() / Raw(b"trailer beyond the packet"),
        ip4() / udp(chksum=0x1234) / data(),
        ip4() / tcp(chksum=0x1234) / data(),
        ip6() / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt() / udp() / data(),
        ip6() / IPv6ExtHdrRouting(addresses=["fd00::9"], segleft=1) / tcp() / data(),
        ip6() / IPv6ExtHdrFragment(offset=0, m=1, id=4, nh=17) / data(1400),
        ip6() / IPv6ExtHdrFragment(offset=175, m=0, id=4, nh=17) / data(40),
        ip6(fl=0xABCDE, tc=0xFF, hlim=255) / ICMPv6EchoRequest() / data(1),
        ip6(nh=59),
    ]


def test_without_rules_every_frame_passes_untouched(mmb, ends):
    frames = of_every_kind() + unusual()
    for source, target in (ends, ends[::-1]):
        expect(pass_through(source, target, frames), frames)
    assert mmb.drops() == {}


def test_rules_that_match_but_change_nothing_leave_every_byte(site, mmb, ends):
    mmb.apply(
        site.folder,
        "add all accept",
        "add eth-type != ip4 accept",
        "add tcp-opt strip tcp-opt 99",
        "add all mod tcp-urg-ptr 0",
    )
    frames = of_every_kind() + unusual()
    expect(pass_through(*ends, frames), frames)


def test_frames_of_every_length_pass_untouched(mmb, ends):
    frames = [ip4(id=size) / udp() / data(size) for size in (*range(100), *range(100, 1473, 7), 1472)]
    expect(pass_through(*ends, frames), frames)


def test_thousands_of_random_packets_pass_untouched_and_in_order(mmb, ends):
    rng = random.Random(1)
    frames = [bytes(ip4(id=number) / udp() / rng.randbytes(rng.randrange(1400))) for number in range(400)]
    for _ in range(20):
        rng.shuffle(frames)
        expect(pass_through(*ends, frames), frames)


def changed(frame, layer, **fields):
    """A copy in which scapy has set fields of a layer and computed lengths and checksums again."""
    copy = frame.copy()
    for name, value in fields.items():
        setattr(copy[layer], name, value)
    return rebuilt(copy)


REWRITES = [
    ("mod ip-saddr 192.0.2.9", IP, {"src": "192.0.2.9"}),
    ("mod ip-daddr 192.0.2.9", IP, {"dst": "192.0.2.9"}),
    ("mod ip-dscp ef", IP, {"tos": 46 << 2}),
    ("mod ip-ttl 3", IP, {"ttl": 3}),
    ("mod ip-id 4660", IP, {"id": 4660}),
    ("mod ip-df 1", IP, {"flags": "DF"}),
    ("mod ip6-saddr 2001:db8::9", IPv6, {"src": "2001:db8::9"}),
    ("mod ip6-daddr 2001:db8::9", IPv6, {"dst": "2001:db8::9"}),
    ("mod ip6-traffic-class 255", IPv6, {"tc": 255}),
    ("mod ip6-flow-label 0xfffff", IPv6, {"fl": 0xFFFFF}),
    ("mod ip6-hop-limit 3", IPv6, {"hlim": 3}),
    ("mod tcp-sport 1", TCP, {"sport": 1}),
    ("mod tcp-dport https", TCP, {"dport": 443}),
    ("mod tcp-seq-num 0xffffffff", TCP, {"seq": 0xFFFFFFFF}),
    ("mod tcp-ack-num 0", TCP, {"ack": 0}),
    ("mod tcp-flags rst", TCP, {"flags": "R"}),
    ("mod tcp-win 65535", TCP, {"window": 65535}),
    ("mod tcp-urg-ptr 9", TCP, {"urgptr": 9}),
    ("mod udp-sport 0", UDP, {"sport": 0}),
    ("mod udp-dport dns", UDP, {"dport": 53}),
    ("mod icmp-type 15", ICMP, {"type": 15}),
    ("mod icmp6-code 5", ICMPv6EchoRequest, {"code": 5}),
    ('mod udp-payload "hello"', Raw, {"load": b"hello" + bytes(range(5, 64))}),
]


@pytest.mark.parametrize(("target", "layer", "fields"), REWRITES, ids=[target for target, _, _ in REWRITES])
def test_a_field_is_written_and_checksums_follow(site, mmb, ends, target, layer, fields):
    mmb.apply(site.folder, f"add in lan {target}")
    frames = of_every_kind()
    wanted = [
        changed(f, layer, **fields) if f.haslayer(layer) and ("udp" not in target or UDP in f) else f for f in frames
    ]
    assert any(bytes(w) != bytes(f) for w, f in zip(wanted, frames)) or "dns" in target
    expect(pass_through(*ends, frames), wanted)
    expect(pass_through(*ends[::-1], frames), frames)


def test_a_corrupt_checksum_stays_corrupt(site, mmb, ends):
    mmb.apply(site.folder, "add all mod tcp-dport 81 mod ip-ttl 9")
    good = ip4() / tcp() / data()
    bad = Ether(bytes(good))
    bad[TCP].chksum ^= 0x0101
    (out,) = pass_through(*ends, [bad])
    assert Ether(out)[TCP].dport == 81
    assert Ether(out)[IP].chksum == Ether(rebuilt(out))[IP].chksum
    assert Ether(out)[TCP].chksum != Ether(rebuilt(out))[TCP].chksum


def test_an_absent_udp_checksum_stays_absent(site, mmb, ends):
    mmb.apply(site.folder, "add udp-dport 53 mod udp-dport 54")
    (out,) = pass_through(*ends, [ip4() / udp(chksum=0) / data()])
    assert (Ether(out)[UDP].dport, Ether(out)[UDP].chksum) == (54, 0)


def test_vlan_ids_are_matched_and_written(site, mmb, ends):
    mmb.apply(
        site.folder,
        "add in lan vlan-id 10 mod vlan-id 20",
        "add in wan vlan-id 20 mod vlan-id 10",
        "add vlan-id 66 drop",
    )

    def tagged(vlan, tag=Dot1Q):
        return ether() / tag(vlan=vlan, prio=5) / IP(src="10.0.0.1", dst="10.0.0.2") / udp() / data()

    frames = [tagged(10), tagged(11), tagged(66), tagged(10, Dot1AD), ip4() / udp()]
    expect(pass_through(*ends, frames), [tagged(20), tagged(11), tagged(20, Dot1AD), ip4() / udp()])
    expect(pass_through(*ends[::-1], [tagged(20)]), [tagged(10)])


def test_transport_behind_tags_and_extension_headers_is_rewritten(site, mmb, ends):
    mmb.apply(site.folder, "add udp-dport 53 mod udp-dport 5353", "add tcp-dport 80 mod tcp-dport 8080")
    headers = IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt()
    frames = [
        ether() / Dot1AD(vlan=100) / Dot1Q(vlan=7) / IPv6(src="fd00::1", dst="fd00::2") / udp() / data(),
        ip6() / headers / tcp() / data(),
        ip4(options=[IPOption_Router_Alert()]) / tcp() / data(),
    ]
    wanted = [changed(f, UDP, dport=5353) if UDP in f else changed(f, TCP, dport=8080) for f in frames]
    expect(pass_through(*ends, frames), wanted)


MALFORMED = [
    ("ip-bad-version", lambda: ip4(version=5) / udp()),
    ("ip4-bad-checksum", lambda: ip4(chksum=0x1234) / udp()),
    ("ip4-bad-length", lambda: ip4(len=12) / udp()),
    ("ip4-truncated", lambda: ip4(len=2000) / udp()),
    ("ip6-truncated", lambda: ether(type=0x86DD) / Raw(b"\x60" + bytes(9))),
    ("l4-truncated", lambda: ip4(proto=6) / Raw(bytes(12))),
    ("tcp-bad-offset", lambda: ip4() / tcp(dataofs=4)),
    ("tiny-fragment", lambda: ip4(proto=6, flags="MF") / Raw(bytes(16))),
    ("link-truncated", lambda: ether() / Dot1Q(vlan=5, type=0x8100) / Raw(b"\x00\x00\x00")),
]


@pytest.mark.parametrize(("reason", "make"), MALFORMED, ids=[reason for reason, _ in MALFORMED])
def test_a_malformed_packet_is_dropped_under_its_name(mmb, ends, reason, make):
    expect(pass_through(*ends, [make()]), [])
    assert mmb.drops() == {reason: 1}


def test_noise_does_no_harm(site, mmb, ends):
    """Frames of random bytes after a valid Ethernet header: dropped ones are counted, the others pass unchanged."""
    mmb.apply(site.folder, "add all mod ip-ttl 64 mod tcp-dport 1", "add tcp-opt strip all")
    rng = random.Random(7)
    for ethertype in (0x0800, 0x86DD, 0x8100, 0x1234):
        noise = [bytes(ether(type=ethertype) / rng.randbytes(rng.randrange(1, 200))) for _ in range(500)]
        arrived = pass_through(*ends, noise)
        if ethertype == 0x1234:
            assert arrived == noise
    mmb.wait_until_settled()
