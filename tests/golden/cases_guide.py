"""The examples of the original user guide and of the papers."""

from captures import becomes, case, dropped, passes
from frames import (
    NOP, SACKP, icmp, ip, ip6, mss, option, tcp, timestamp, udp, wscale,
)
from scapy.layers.inet6 import ICMPv6EchoRequest
from scapy.layers.sctp import SCTP


def cases():
    yield case("guide-ecn-bleach", "add all mod ip-ecn 0", [
        becomes(ip(tos=0x02) / tcp(), ip(tos=0x00) / tcp(), 1),
        becomes(ip(tos=0xBB) / udp(b"voice"), ip(tos=0xB8) / udp(b"voice"), 1),
        passes(ip(tos=0xB8) / tcp(), 1),
        passes(ip6(tc=0x03) / udp(b"IPv6 has no ip-ecn"), 1),
    ])
    yield case("guide-udp-drop", "add ip-proto udp drop", [
        dropped(ip() / udp(b"x"), 1),
        passes(ip() / tcp()),
        dropped(ip6() / udp(b"x"), 1),
        passes(ip() / icmp()),
    ])
    yield case("guide-only-tcp", "add ip-proto != tcp drop", [
        dropped(ip() / udp(b"x"), 1),
        passes(ip() / tcp()),
        dropped(ip() / icmp(), 1),
        dropped(ip6() / ICMPv6EchoRequest(id=1, seq=2), 1),
        dropped(ip(proto=132) / SCTP(sport=1, dport=2), 1),
    ])
    yield case("guide-only-tcp-and-udp", "add ip-proto != udp ip-proto != tcp drop", [
        passes(ip() / udp(b"x")),
        passes(ip() / tcp()),
        dropped(ip() / icmp(), 1),
        dropped(ip(proto=47) / b"gre", 1),
    ])
    yield case("guide-port-redirect", "add tcp-dport 80 mod tcp-dport 443", [
        becomes(ip() / tcp(dport=80), ip() / tcp(dport=443), 1),
        becomes(ip6() / tcp(dport=80, data=b"GET /"), ip6() / tcp(dport=443, data=b"GET /"), 1),
        passes(ip() / tcp(dport=8080)),
        passes(ip() / tcp(sport=80, dport=40000)),
        passes(ip() / udp(b"x", dport=80)),
    ])
    yield case("guide-strip-mss", "add tcp-opt-mss strip tcp-opt-mss", [
        becomes(ip() / tcp(mss(1460) + NOP + wscale(7)), ip() / tcp(wscale(7) + b"\0"), 1),
        becomes(ip() / tcp(mss(1460), b"data"), ip() / tcp(data=b"data"), 1),
        becomes(ip6() / tcp(mss(1440)), ip6() / tcp(), 1),
        passes(ip() / tcp(NOP + wscale(7))),
        passes(ip() / tcp()),
    ])
    yield case("guide-mss-clamp", "add tcp-opt-mss > 1500 mod tcp-opt-mss 1460", [
        becomes(ip() / tcp(mss(8960) + SACKP + NOP * 2), ip() / tcp(mss(1460) + SACKP + NOP * 2), 1),
        passes(ip() / tcp(mss(1500))),
        becomes(ip() / tcp(NOP + NOP + mss(1501) + wscale(7) + NOP * 3),
                ip() / tcp(NOP + NOP + mss(1460) + wscale(7) + NOP * 3), 1),
        passes(ip() / tcp()),
    ])
    syn = mss(1460) + SACKP + timestamp() + NOP + wscale(7)
    yield case("guide-keep-mss", "add tcp-opt strip ! tcp-opt-mss", [
        becomes(ip() / tcp(syn), ip() / tcp(mss(1460)), 1),
        becomes(ip() / tcp(NOP * 2 + timestamp(), b"x"), ip() / tcp(data=b"x"), 1),
        passes(ip() / tcp(mss(1460)), 1),
        passes(ip() / tcp()),
    ])
    yield case("guide-timestamp-strip-all", "add tcp-opt-timestamp strip all", [
        becomes(ip() / tcp(syn), ip() / tcp(), 1),
        becomes(ip6() / tcp(NOP * 2 + timestamp(), b"odd"), ip6() / tcp(data=b"odd"), 1),
        passes(ip() / tcp(mss(1460))),
    ])
    yield case("guide-keep-two", "add tcp-opt-timestamp strip ! tcp-opt-mss strip ! tcp-opt-wscale", [
        becomes(ip() / tcp(syn), ip() / tcp(mss(1460) + wscale(7) + b"\0"), 1),
        becomes(ip() / tcp(NOP * 2 + timestamp()), ip() / tcp(), 1),
        passes(ip() / tcp(mss(1460) + SACKP + NOP * 2)),
    ])
    yield case("guide-strip-two", "add tcp-opt strip tcp-opt-mss strip tcp-opt-wscale", [
        becomes(ip() / tcp(syn), ip() / tcp(SACKP + timestamp()), 1),
        passes(ip() / tcp(NOP * 2 + timestamp()), 1),
        passes(ip() / tcp()),
    ])
    yield case("guide-neither-option", "add tcp-opt ! tcp-opt-mss ! tcp-opt-wscale drop", [
        passes(ip() / tcp(syn)),
        passes(ip() / tcp(mss(1460))),
        passes(ip() / tcp(wscale(7) + NOP)),
        dropped(ip() / tcp(NOP * 2 + timestamp()), 1),
        passes(ip() / tcp()),
        passes(ip() / tcp(NOP * 4)),
    ])
    yield case("guide-no-option", "add ! tcp-opt-mss ! tcp-opt-wscale drop", [
        passes(ip() / tcp(syn)),
        dropped(ip() / tcp(NOP * 2 + timestamp()), 1),
        dropped(ip() / tcp(), 1),
        passes(ip() / udp(b"no TCP")),
    ])
    yield case("guide-custom-option", "add tcp-opt 22 drop", [
        dropped(ip() / tcp(option(22, b"\x05\x06")), 1),
        dropped(ip() / tcp(NOP * 2 + option(22)), 1),
        passes(ip() / tcp(option(23, b"\x05\x06"))),
        passes(ip() / tcp()),
    ])
