"""Fields in place: every writable field of every header, tags, extension headers, fragments, link types."""

from captures import ETHERNET, RAW, SLL, SLL2, Pcap, PcapNg, becomes, case, passes
from frames import A, A6, B, B6, ETH, NOP, icmp, ip, ip6, mss, tcp, timestamp, udp, with_bytes
from scapy.layers.inet import IP, IPOption_LSRR, IPOption_Router_Alert
from scapy.layers.inet6 import (
    ICMPv6EchoReply, ICMPv6EchoRequest, ICMPv6ND_NS, IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment,
    IPv6ExtHdrHopByHop, IPv6ExtHdrRouting, PadN,
)
from scapy.layers.ipsec import AH
from scapy.layers.l2 import CookedLinux, Dot1AD, Dot1Q
from scapy.packet import Raw

C, C6 = "192.0.2.200", "2001:db8:ffff::99"


def ip4_fields():
    for name, value, before, after in [
        ("dscp", "ef", {"tos": 0x01}, {"tos": 0xB9}),
        ("ecn", "3", {"tos": 0xB8}, {"tos": 0xBB}),
        ("id", "4660", {"id": 1}, {"id": 4660}),
        ("flags", "2", {"flags": 0}, {"flags": "DF"}),
        ("res", "1", {"flags": 0}, {"flags": "evil"}),
        ("df", "0", {"flags": "DF"}, {"flags": 0}),
        ("ttl", "1", {"ttl": 64}, {"ttl": 1}),
        ("saddr", C, {"src": A}, {"src": C}),
        ("daddr", C, {"dst": B}, {"dst": C}),
    ]:
        yield case(f"ip4-{name}", f"add all mod ip-{name} {value}", [
            becomes(ip(**before) / tcp(mss(1460), b"odd"), ip(**after) / tcp(mss(1460), b"odd"), 1),
            becomes(ip(**before) / udp(b"even"), ip(**after) / udp(b"even"), 1),
            becomes(ip(**before) / icmp(), ip(**after) / icmp(), 1),
            becomes(ip(proto=89, **before) / b"ospf", ip(proto=89, **after) / b"ospf", 1),
            passes(ip(**after) / tcp(), 1),
            passes(ip6() / tcp(), 1),
        ])


def ip6_fields():
    for name, value, before, after in [
        ("traffic-class", "184", {"tc": 3}, {"tc": 184}),
        ("flow-label", "703710", {"fl": 1}, {"fl": 0xABCDE}),
        ("hop-limit", "255", {"hlim": 1}, {"hlim": 255}),
        ("saddr", C6, {"src": A6}, {"src": C6}),
        ("daddr", C6, {"dst": B6}, {"dst": C6}),
    ]:
        yield case(f"ip6-{name}", f"add all mod ip6-{name} {value}", [
            becomes(ip6(**before) / tcp(mss(1440), b"odd"), ip6(**after) / tcp(mss(1440), b"odd"), 1),
            becomes(ip6(**before) / udp(b"even"), ip6(**after) / udp(b"even"), 1),
            becomes(ip6(**before) / ICMPv6EchoRequest(id=1, data=b"x"),
                    ip6(**after) / ICMPv6EchoRequest(id=1, data=b"x"), 1),
            becomes(ip6(nh=89, **before) / b"ospf", ip6(nh=89, **after) / b"ospf", 1),
            passes(ip() / tcp(), 1),
        ])


def tcp_fields():
    flags = {"cwr": "C", "ece": "E", "urg": "U", "ack": "A", "push": "P", "rst": "R", "syn": "S", "fin": "F"}
    changes = [
        ("sport", "1", {"sport": 65535}, {"sport": 1}),
        ("dport", "65535", {"dport": 1}, {"dport": 65535}),
        ("seq-num", "4294967295", {"seq": 0}, {"seq": 4294967295}),
        ("ack-num", "305419896", {"ack": 1}, {"ack": 0x12345678}),
        ("reserved", "0", {"reserved": 3}, {"reserved": 0}),
        ("flags", "syn-ack", {"flags": "FPU"}, {"flags": "SA"}),
        ("win", "0", {"window": 65535}, {"window": 0}),
        ("urg-ptr", "258", {"urgptr": 0}, {"urgptr": 258}),
    ]
    changes += [(name, "1", {"flags": ""}, {"flags": letter}) for name, letter in flags.items()]
    for name, value, before, after in changes:
        yield case(f"tcp-{name}", f"add all mod tcp-{name} {value}", [
            becomes(ip() / tcp(**before), ip() / tcp(**after), 1),
            becomes(ip() / tcp(NOP * 2 + timestamp(), b"odd", **before),
                    ip() / tcp(NOP * 2 + timestamp(), b"odd", **after), 1),
            becomes(ip6() / tcp(data=b"even", **before), ip6() / tcp(data=b"even", **after), 1),
            passes(ip() / udp(b"left alone"), 1),
        ])


def other_transport_fields():
    yield case("udp-ports", "add udp-dport 53 mod udp-sport 1 mod udp-dport 5353", [
        becomes(ip() / udp(b"x", sport=9, dport=53), ip() / udp(b"x", sport=1, dport=5353), 1),
        becomes(ip6() / udp(b"xy", sport=9, dport=53), ip6() / udp(b"xy", sport=1, dport=5353), 1),
        passes(ip() / udp(b"x", dport=54)),
    ], rules=[(1, "add udp-dport 53 mod udp-sport 1 mod udp-dport 5353")])
    yield case("icmp-fields", "add icmp-type echo-request mod icmp-type 0 mod icmp-code 3", [
        becomes(ip() / icmp(type=8), ip() / icmp(type=0, code=3), 1),
        passes(ip() / icmp(type=0)),
        passes(ip6() / ICMPv6EchoRequest()),
    ], rules=[(1, "add icmp-type echo-request mod icmp-type echo-reply mod icmp-code 3")])
    yield case("icmp6-fields", "add icmp6-type echo-request mod icmp6-type echo-reply mod icmp6-code 1", [
        becomes(ip6() / ICMPv6EchoRequest(id=3, data=b"abc"), ip6() / ICMPv6EchoReply(id=3, data=b"abc", code=1), 1),
        passes(ip6() / ICMPv6ND_NS(tgt=A6)),
        passes(ip() / icmp()),
    ])
    yield case("ip6-next-of-an-unknown-protocol", "add ip6-next 89 mod ip6-next 253", [
        becomes(ip6(nh=89) / b"ospf", ip6(nh=253) / b"ospf", 1),
        passes(ip6() / tcp()),
    ], rules=[(1, "add ip6-next ospf mod ip6-next 253")])
    yield case("ip-proto-of-an-unknown-protocol", "add ip-proto 89 mod ip-proto 253", [
        becomes(ip(proto=89) / b"ospf", ip(proto=253) / b"ospf", 1),
        becomes(ip6(nh=89) / b"ospf", ip6(nh=253) / b"ospf", 1),
        becomes(ip6() / IPv6ExtHdrDestOpt(nh=89, options=[PadN(optdata=b"\0" * 4)]) / Raw(b"ospf"),
                ip6() / IPv6ExtHdrDestOpt(nh=253, options=[PadN(optdata=b"\0" * 4)]) / Raw(b"ospf"), 1),
        passes(ip() / udp(b"x")),
    ], rules=[(1, "add ip-proto ospf mod ip-proto 253")])


def tags():
    one, two = Dot1Q(vlan=100, prio=5), Dot1AD(vlan=7) / Dot1Q(vlan=100)
    inner = IP(src=A, dst=B) / tcp()
    yield case("vlan-id", "add vlan-id 100 mod vlan-id 200", [
        becomes(ETH / one / inner, ETH / Dot1Q(vlan=200, prio=5) / inner, 1),
        passes(ETH / two / inner),
        passes(ETH / inner),
        passes(ETH / Dot1Q(vlan=100, type=0x88CC) / b"not IP"),
    ])
    yield case("vlan-qinq", "add vlan-id 7 tcp-dport 80 mod vlan-id 8 mod tcp-dport 81\nadd ! vlan-id mod ip-ttl 1", [
        becomes(ETH / two / inner, ETH / Dot1AD(vlan=8) / Dot1Q(vlan=100) / IP(src=A, dst=B) / tcp(dport=81), 1),
        passes(ETH / one / inner),
        becomes(ip() / tcp(), ip(ttl=1) / tcp(), 2),
    ])
    stack = Dot1AD(vlan=1) / Dot1Q(vlan=2) / Dot1Q(vlan=3) / Dot1Q(vlan=4)
    yield case("vlan-four-tags", "add tcp-dport 80 mod tcp-dport 81", [
        becomes(ETH / stack / inner, ETH / stack / IP(src=A, dst=B) / tcp(dport=81), 1),
        becomes(with_bytes(ETH / one / inner, 12, b"\x91\x00"),
                with_bytes(ETH / one / IP(src=A, dst=B) / tcp(dport=81), 12, b"\x91\x00"), 1),
    ])


def chains():
    hop = IPv6ExtHdrHopByHop(options=[PadN(optdata=b"\0" * 4)])
    dest = IPv6ExtHdrDestOpt(options=[PadN(optdata=b"\0" * 12)])
    # Scapy computes no transport checksum after this header, so such segments are first built without it.
    ah = AH(nh=6, payloadlen=4, spi=1, seq=2, icv=b"\0" * 12)
    done = IPv6ExtHdrRouting(addresses=["2001:db8::77"], segleft=0)
    yield case("ip6-chains", "add ip6-eh tcp-dport 80 mod tcp-dport 443 mod ip6-daddr 2001:db8::aaaa", [
        becomes(ip6() / hop / tcp(), ip6(dst="2001:db8::aaaa") / hop / tcp(dport=443), 1),
        becomes(ip6() / hop / dest / tcp(data=b"odd"), ip6(dst="2001:db8::aaaa") / hop / dest / tcp(dport=443, data=b"odd"), 1),
        becomes(ip6() / dest / ah / bytes(ip6() / tcp())[54:],
                ip6(dst="2001:db8::aaaa") / dest / ah / bytes(ip6(dst="2001:db8::aaaa") / tcp(dport=443))[54:], 1),
        becomes(ip6() / done / tcp(), ip6(dst="2001:db8::aaaa") / done / tcp(dport=443), 1),
        passes(ip6() / tcp()),
    ])
    going = IPv6ExtHdrRouting(addresses=["2001:db8::77", "2001:db8::78"], segleft=2)
    yield case("ip6-routing-on-its-way", "add ip6-eh-routing mod ip6-daddr 2001:db8::aaaa mod ip6-saddr 2001:db8::bbbb", [
        # The checksum covers the last address of the routing header, not the rewritten one.
        becomes(ip6() / going / tcp(), ip6(src="2001:db8::bbbb", dst="2001:db8::aaaa") / going / tcp(), 1),
        becomes(ip6() / going / udp(b"x"), ip6(src="2001:db8::bbbb", dst="2001:db8::aaaa") / going / udp(b"x"), 1),
        passes(ip6() / udp(b"x")),
    ])
    policy = "\n".join(f"add ip6-eh-{name} mod ip6-hop-limit {n}" for n, name in enumerate(
        ["hopbyhop", "routing", "fragment", "ah", "destopt"], start=1))
    yield case("ip6-headers-by-name", policy, [
        becomes(ip6() / hop / tcp(), ip6(hlim=1) / hop / tcp(), 1),
        becomes(ip6() / done / tcp(), ip6(hlim=2) / done / tcp(), 2),
        becomes(ip6() / IPv6ExtHdrFragment(id=5) / tcp(), ip6(hlim=3) / IPv6ExtHdrFragment(id=5) / tcp(), 3),
        becomes(ip6() / ah / bytes(ip6() / tcp())[54:], ip6(hlim=4) / ah / bytes(ip6() / tcp())[54:], 4),
        becomes(ip6() / hop / dest / tcp(), ip6(hlim=5) / hop / dest / tcp(), 1, 5),
        passes(ip6() / tcp()),
    ])
    yield case("ip4-options", "add ip-ihl > 5 tcp-dport 80 mod tcp-dport 81 mod ip-daddr 192.0.2.200", [
        becomes(ip(options=[IPOption_Router_Alert()]) / tcp(data=b"x"),
                ip(dst=C, options=[IPOption_Router_Alert()]) / tcp(data=b"x", dport=81), 1),
        passes(ip() / tcp()),
    ])
    route = IPOption_LSRR(routers=["192.0.2.7"], pointer=4)
    through = IPOption_LSRR(routers=["192.0.2.7"], pointer=8)

    def summed(packet, destination):
        """The packet with its UDP checksum for a destination: the checksum is 6 bytes after the first 14 + 28 bytes."""
        return with_bytes(packet, 48, bytes(ip(dst=destination) / udp(b"x"))[40:42])

    yield case("ip4-source-route", "add all mod ip-daddr 192.0.2.200", [
        # With remaining hops the checksum covers the last address of the route, not the rewritten one.
        becomes(summed(ip(options=[route]) / udp(b"x"), "192.0.2.7"),
                summed(ip(dst=C, options=[route]) / udp(b"x"), "192.0.2.7"), 1),
        becomes(summed(ip(options=[through]) / udp(b"x"), B),
                summed(ip(dst=C, options=[through]) / udp(b"x"), C), 1),
    ])


def fragments():
    whole = bytes(ip(id=9, dst=B) / udp(b"a" * 24))[34:]
    moved = bytes(ip(id=9, dst=C) / udp(b"a" * 24, dport=54))[34:]
    first, last = {"id": 9, "flags": "MF", "proto": 17}, {"id": 9, "frag": 2, "proto": 17}
    yield case("ip4-fragments", "add udp-dport 53 mod udp-dport 54\nadd all mod ip-daddr 192.0.2.200", [
        becomes(ip(**first) / whole[:16], ip(dst=C, **first) / moved[:16], 1, 2),
        becomes(ip(**last) / whole[16:], ip(dst=C, **last) / whole[16:], 2),
    ])
    payload = bytes(ip6() / udp(b"b" * 24))[54:]
    rewritten = bytes(ip6() / udp(b"b" * 24, dport=54))[54:]
    head = IPv6ExtHdrFragment(nh=17, id=5, m=1, offset=0)
    tail = IPv6ExtHdrFragment(nh=17, id=5, m=0, offset=2)
    atomic = IPv6ExtHdrFragment(nh=17, id=5, m=0, offset=0)
    yield case("ip6-fragments", "add udp-dport 53 mod udp-dport 54\nadd ip6-eh-fragment ip-proto udp mod ip6-hop-limit 9", [
        becomes(ip6() / head / payload[:16], ip6(hlim=9) / head / rewritten[:16], 1, 2),
        becomes(ip6() / tail / payload[16:], ip6(hlim=9) / tail / payload[16:], 2),
        becomes(ip6() / atomic / payload, ip6(hlim=9) / atomic / rewritten, 1, 2),
    ])


def links():
    policy = "add tcp-dport 80 mod tcp-dport 81\nadd vlan-id mod ip-ttl 9"
    v4, v4_out = IP(src=A, dst=B) / tcp(), IP(src=A, dst=B) / tcp(dport=81)
    v6, v6_out = IPv6(src=A6, dst=B6) / tcp(), IPv6(src=A6, dst=B6) / tcp(dport=81)
    raw = [becomes(v4, v4_out, 1), becomes(v6, v6_out, 1)]
    for name, link in [("raw", RAW), ("raw-bsd", 12), ("raw-openbsd", 14), ("raw-ip4", 228), ("raw-ip6", 229)]:
        yield case(f"link-{name}", policy, raw, file=Pcap(link))
    cooked, cooked6 = CookedLinux(src=b"\x02\0\0\0\0\1\0\0"), CookedLinux(src=b"\x02\0\0\0\0\1\0\0", proto=0x86DD)
    yield case("link-cooked", policy, [
        becomes(cooked / v4, cooked / v4_out, 1),
        becomes(cooked6 / v6, cooked6 / v6_out, 1),
        passes(CookedLinux(proto=0x0806) / b"arp"),
    ], file=Pcap(SLL))

    def cooked2(proto, packet):
        return proto + b"\0\0\0\0\0\2\0\1\0\6" + b"\x02\0\0\0\0\1\0\0" + bytes(packet)

    yield case("link-cooked-2", policy, [
        becomes(cooked2(b"\x08\0", v4), cooked2(b"\x08\0", v4_out), 1),
        becomes(cooked2(b"\x86\xdd", v6), cooked2(b"\x86\xdd", v6_out), 1),
        passes(cooked2(b"\x08\x06", b"arp")),
    ], file=Pcap(SLL2))
    wire = [becomes(ip() / tcp(), ip() / tcp(dport=81), 1), passes(ip() / udp(b"x"))]
    yield case("pcap-nanoseconds", policy, wire, file=Pcap(nano=True))
    yield case("pcap-big-endian", policy, wire, file=Pcap(big=True))
    yield case("pcap-big-endian-nanoseconds", policy, wire, file=Pcap(big=True, nano=True, snaplen=262144))
    mixed = [(ETHERNET, 1514, "eth0", 6), (RAW, 0, "tun0", 9), (SLL, 96, "any", 3)]
    packets = [
        becomes(ip() / tcp(), ip() / tcp(dport=81), 1, interface=0),
        becomes(v4, v4_out, 1, interface=1),
        becomes(cooked / v4, cooked / v4_out, 1, interface=2),
        passes(v6_out, interface=1),
        passes(ip() / udp(b"odd length"), interface=0),
    ]
    yield case("pcapng", policy, packets, file=PcapNg(mixed))
    yield case("pcapng-big-endian", policy, packets, file=PcapNg(mixed, big=True))
    yield case("pcapng-untouched", "add ip-proto udp drop", [passes(v6_out, interface=1)], file=PcapNg(mixed))


def cases():
    for group in (ip4_fields, ip6_fields, tcp_fields, other_transport_fields, tags, chains, fragments, links):
        yield from group()
