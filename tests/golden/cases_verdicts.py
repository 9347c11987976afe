"""Cases of which rules match and which of them decides."""

from captures import becomes, case, dropped, passes
from frames import A, B, ETH, icmp, ip, ip6, tcp, udp
from scapy.layers.l2 import ARP, Dot1Q
from scapy.layers.sctp import SCTP

LLDP = ETH.copy()
LLDP.type = 0x88CC
ARP_FRAME = ETH / ARP(psrc=A, pdst=B)


def priorities():
    yield case("verdict-priority", "\n".join([
        "add prio 10 udp-dport 53 accept",
        "add prio 20 ip-proto udp drop",
        "add prio 30 udp-dport 7 accept",
        "add prio 5 ip-saddr 10.0.0.9 drop",
    ]), [
        passes(ip() / udp(b"x"), 1, 2),
        dropped(ip() / udp(b"x", dport=7), 2, 3),
        dropped(ip(src="10.0.0.9") / udp(b"x"), 1, 2, 4),
        passes(ip() / tcp()),
    ])
    yield case("verdict-tie-accepts", "add all drop\nadd tcp-dport 80 accept", [
        passes(ip() / tcp(), 1, 2),
        dropped(ip() / tcp(dport=81), 1),
    ])
    yield case("verdict-all-count", "add all mod ip-ttl 9\nadd tcp-syn drop\nadd prio 1 ip-daddr 10.0.0.3 accept", [
        dropped(ip() / tcp(), 1, 2),
        becomes(ip(dst="10.0.0.3") / tcp(), ip(dst="10.0.0.3", ttl=9) / tcp(), 1, 2, 3),
        becomes(ip() / tcp(flags="A"), ip(ttl=9) / tcp(flags="A"), 1),
    ])
    yield case("rewrite-order", "\n".join([
        "add all mod ip-ttl 1 mod ip-ttl 2",
        "add prio 200 tcp-dport 80 mod ip-ttl 3",
        "add prio 50 all mod ip-id 4",
        "add prio 50 id 3000 tcp-dport 80 mod ip-id 5",
    ]), [
        becomes(ip() / tcp(), ip(ttl=3, id=5) / tcp(), 1, 2, 3, 3000),
        becomes(ip() / udp(b"x"), ip(ttl=2, id=4) / udp(b"x"), 1, 3),
    ], rules=[
        (1, "add all mod ip-ttl 1 mod ip-ttl 2"),
        (2, "add prio 200 tcp-dport 80 mod ip-ttl 3"),
        (3, "add prio 50 all mod ip-id 4"),
        (3000, "add prio 50 tcp-dport 80 mod ip-id 5"),
    ])
    yield case("matches-see-the-packet-as-received", "add tcp-dport 80 mod tcp-dport 81\nadd tcp-dport 81 drop", [
        becomes(ip() / tcp(), ip() / tcp(dport=81), 1),
        dropped(ip() / tcp(dport=81), 2),
    ])


def values():
    yield case("match-sets-and-ranges", "\n".join([
        "add tcp-dport {80, 443, 8000-8080} mod ip-ttl 1",
        "add tcp-dport != {80, 443, 8000-8080} mod ip-ttl 2",
        "add udp-sport 1000-2000 mod ip-ttl 3",
        "add udp-sport < 1000 mod ip-ttl 4",
        "add udp-sport >= 2001 mod ip-ttl 5",
    ]), [becomes(ip() / tcp(dport=port), ip(ttl=1) / tcp(dport=port), 1) for port in (80, 443, 8000, 8042, 8080)] +
        [becomes(ip() / tcp(dport=port), ip(ttl=2) / tcp(dport=port), 2) for port in (0, 79, 81, 7999, 8081, 65535)] +
        [becomes(ip() / udp(b"x", sport=port), ip(ttl=ttl) / udp(b"x", sport=port), ttl)
         for port, ttl in ((999, 4), (1000, 3), (2000, 3), (2001, 5))])
    inside, outside = ("10.1.2.3", "10.255.0.1"), ("11.0.0.1", "9.255.255.255")
    yield case("match-prefixes", "\n".join([
        "add ip-saddr 10.0.0.0/8 mod ip-ttl 1",
        "add ! ip-saddr 10.0.0.0/8 mod ip-ttl 2",
        "add ip-daddr 192.0.2.3-192.0.2.9 mod ip-id 3",
        "add ip6-saddr 2001:db8::/32 mod ip6-hop-limit 4",
        "add ip6-daddr != ::/1 mod ip6-flow-label 5",
    ]), [becomes(ip(src=a) / tcp(), ip(src=a, ttl=1) / tcp(), 1) for a in inside] +
        [becomes(ip(src=a) / tcp(), ip(src=a, ttl=2) / tcp(), 2) for a in outside] +
        [becomes(ip(dst=d) / tcp(), ip(dst=d, ttl=1, id=3) / tcp(), 1, 3) for d in ("192.0.2.3", "192.0.2.9")] +
        [becomes(ip(dst=d) / tcp(), ip(dst=d, ttl=1) / tcp(), 1) for d in ("192.0.2.2", "192.0.2.10")] +
        [becomes(ip6() / tcp(), ip6(hlim=4) / tcp(), 4), passes(ip6(src="2001:db9::1") / tcp()),
         becomes(ip6(dst="fe80::1", src="::1") / tcp(), ip6(dst="fe80::1", src="::1", fl=5) / tcp(), 5)])
    yield case("match-ports-of-mmb", "add in a mod ip-ttl 1\nadd out b mod ip-id 2\nadd in b drop\nadd in != a drop", [
        becomes(ip() / tcp(), ip(ttl=1, id=2) / tcp(), 1, 2),
        passes(ARP_FRAME),
    ])
    yield case("match-negated-tag", "\n".join([
        "add ! vlan-id 5 mod ip-ttl 1", "add vlan-id != 5 mod ip-id 2", "add ! vlan-id mod ip-dscp 3",
    ]), [
        becomes(ip() / tcp(), ip(ttl=1, tos=12) / tcp(), 1, 3),
        passes(ETH / Dot1Q(vlan=5) / ip().payload / tcp()),
        becomes(ETH / Dot1Q(vlan=6) / ip().payload / tcp(), ETH / Dot1Q(vlan=6) / ip(ttl=1, id=2).payload / tcp(), 1, 2),
    ])
    yield case("match-flags", "\n".join([
        "add tcp-syn mod ip-ttl 1", "add ! tcp-syn mod ip-ttl 2", "add tcp-ack 0 mod ip-id 3",
        "add tcp-flags syn-ack mod ip-dscp 4",
    ]), [
        becomes(ip() / tcp(flags="S"), ip(ttl=1, id=3) / tcp(flags="S"), 1, 3),
        becomes(ip() / tcp(flags="A"), ip(ttl=2) / tcp(flags="A"), 2),
        becomes(ip() / tcp(flags="SA"), ip(ttl=1, tos=16) / tcp(flags="SA"), 1, 4),
        passes(ip() / udp(b"x")),
    ])
    yield case("match-ecn-names", "\n".join(f"add ip-{name} mod ip-ttl {n}" for n, name in enumerate(
        ["non-ect", "ect0", "ect1", "ce"], start=1)), [
        becomes(ip(tos=tos) / tcp(), ip(tos=tos, ttl=ttl) / tcp(), ttl) for tos, ttl in ((4, 1), (6, 2), (5, 3), (7, 4))
    ])
    yield case("match-protocol", "\n".join([
        "add net-proto ip6 mod ip6-hop-limit 1", "add ip-proto sctp mod ip-ttl 2", "add ip-proto 47 drop",
    ]), [
        becomes(ip6() / tcp(), ip6(hlim=1) / tcp(), 1),
        becomes(ip(proto=132) / SCTP(sport=1, dport=2), ip(proto=132, ttl=2) / SCTP(sport=1, dport=2), 2),
        dropped(ip(proto=47) / b"gre", 3),
        passes(ip() / icmp()),
    ], rules=[(1, "add net-proto ip6 mod ip6-hop-limit 1"), (2, "add ip-proto sctp mod ip-ttl 2"),
              (3, "add ip-proto gre drop")])


def other_frames():
    yield case("frames-that-are-not-ip", "add all drop\nadd in a drop\nadd vlan-id 5 drop", [
        passes(ARP_FRAME),
        passes(LLDP / b"lldp"),
        passes(ETH / Dot1Q(vlan=5, type=0x88CC) / b"lldp"),
        dropped(ip() / tcp(), 1, 2),
        # 802.3: a length in place of the ether type.
        passes(bytes(ETH)[:12] + b"\x00\x04" + b"\xaa\xaa\x03\x00" + b"\0" * 42),
    ])
    yield case("frames-by-ether-type", "add eth-type arp drop\nadd eth-type ip6 mod ip6-hop-limit 1", [
        dropped(ARP_FRAME, 1),
        passes(LLDP / b"lldp"),
        becomes(ip6() / tcp(), ip6(hlim=1) / tcp(), 2),
        dropped(ETH / Dot1Q(vlan=5) / ARP(psrc=A, pdst=B), 1),
        passes(ip() / tcp()),
    ], rules=[(1, "add eth-type 0x0806 drop"), (2, "add eth-type 0x86dd mod ip6-hop-limit 1")])
    yield case("port-disabled", "add all drop\ndisable a", [
        passes(ip() / tcp()),
        passes(b"not even a frame"),
    ], rules=[(1, "add all drop")])
    yield case("mtu", "add tcp-dport 81 add tcp-opt-mss 1400", [
        passes(ip() / udp(b"x" * (100 - 28))),
        dropped(ip() / udp(b"x" * (101 - 28)), why="mtu-exceeded"),
        passes(ETH / Dot1Q(vlan=5) / ip().payload / udp(b"x" * (100 - 28))),
        passes(bytes(ip() / udp(b"x" * (100 - 28))) + b"trailer"),
        becomes(ip() / tcp(dport=81, data=b"x" * 56), ip() / tcp(bytes([2, 4, 5, 120]), b"x" * 56, dport=81), 1),
        dropped(ip() / tcp(dport=81, data=b"x" * 57), 1, why="mtu-exceeded"),
        passes(ip6() / udp(b"x" * (100 - 48))),
        dropped(ip6() / udp(b"x" * (101 - 48)), why="mtu-exceeded"),
    ], arguments=["--mtu", "100"])


def cases():
    for group in (priorities, values, other_frames):
        yield from group()
