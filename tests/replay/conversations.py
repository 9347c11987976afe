"""Random conversations through NAT: first packets from the inside, replies of the other end, errors of routers on the path."""

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6EchoReply, ICMPv6EchoRequest, ICMPv6TimeExceeded, IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

POOL4, POOL6 = [f"200.0.0.{n}" for n in range(1, 6)], [f"2001:db8:200::{n:x}" for n in range(1, 6)]
HOSTS4, HOSTS6 = [f"10.0.0.{n}" for n in range(1, 21)], [f"fd00:a::{n:x}" for n in range(1, 21)]
ROUTER4, ROUTER6 = "192.0.2.77", "2001:db8:77::1"

IN4, IN6 = "add-stateful in lan ip-saddr 10.0.0.0/24", "add-stateful in lan ip6-saddr fd00:a::/64"
POLICIES = {
    "one-address": [f"{IN4} map ip-saddr {POOL4[0]}", f"{IN6} map ip6-saddr {POOL6[0]}"],
    "pool": [f"{IN4} map ip-saddr {POOL4[0]}-{POOL4[-1]}", f"{IN6} map ip6-saddr {POOL6[0]}-{POOL6[-1]}"],
    "range": [
        *(f"{rule} ip-proto {proto} map {field} {address} map {proto}-sport 30000-30999"
          for proto in ("udp", "tcp")
          for rule, field, address in ((IN4, "ip-saddr", POOL4[0]), (IN6, "ip6-saddr", POOL6[0]))),
        f"{IN4} ip-proto icmp map ip-saddr {POOL4[0]}",
        f"{IN6} ip-proto icmp6 map ip6-saddr {POOL6[0]}",
    ],
    "shuffle": [
        f"{IN4} ip-proto udp map ip-saddr {POOL4[0]} shuffle udp-sport",
        f"{IN4} ip-proto tcp map ip-saddr {POOL4[0]} shuffle tcp-sport shuffle tcp-seq-num",
        f"{IN4} ip-proto icmp map ip-saddr {POOL4[0]}",
        f"{IN6} map ip6-saddr {POOL6[0]}",
    ],
}


def outgoing(rng):
    """A first packet from the inside; ports repeat among hosts, so that they collide."""
    six = rng.random() < 0.4
    host, other = rng.choice(HOSTS6 if six else HOSTS4), rng.randrange(1, 9)
    if six:
        ip = IPv6(src=host, dst=f"2001:db8:1::{other:x}")
    else:
        ip = IP(src=host, dst=f"198.51.100.{other}", id=rng.randrange(65536))
    kind = rng.choice(("udp", "udp", "tcp", "echo"))
    port = rng.choice((53, 700, 5000, 5001, 40000, rng.randrange(1024, 65536)))
    if kind == "udp":
        transport = UDP(sport=port, dport=rng.choice((53, 443, 9000)))
        if not six and rng.random() < 0.2:
            transport.chksum = 0
    elif kind == "tcp":
        transport = TCP(sport=port, dport=rng.choice((80, 443)), flags="S", seq=rng.randrange(1 << 32))
    else:
        transport = ICMPv6EchoRequest(id=port, seq=1) if six else ICMP(type=8, id=port, seq=1)
    payload = b"" if kind == "tcp" else rng.randbytes(rng.randrange(0, 40))
    return bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / ip / transport / Raw(payload))


def answer(frame):
    """The reply of the other end to a packet as it arrived there."""
    packet = Ether(frame)
    ip, transport = packet.payload, packet.payload.payload
    back = type(ip)(src=ip.dst, dst=ip.src)
    if isinstance(transport, UDP):
        back /= UDP(sport=transport.dport, dport=transport.sport) / Raw(b"answer")
    elif isinstance(transport, TCP):
        ack = (transport.seq + 1) % (1 << 32)
        back /= TCP(sport=transport.dport, dport=transport.sport, flags="SA", seq=7, ack=ack)
    elif isinstance(ip, IPv6):
        back /= ICMPv6EchoReply(id=transport.id, seq=1)
    else:
        back /= ICMP(type=0, id=transport.id, seq=1)
    return bytes(Ether(src=packet.dst, dst=packet.src) / back)


def error(frame):
    """The error of a router on the path: time exceeded."""
    packet = Ether(frame)
    ip = packet.payload
    if isinstance(ip, IPv6):
        reply = IPv6(src=ROUTER6, dst=ip.src) / ICMPv6TimeExceeded() / Raw(bytes(ip)[:100])
    else:
        reply = IP(src=ROUTER4, dst=ip.src) / ICMP(type=11) / Raw(bytes(ip)[:28])
    return bytes(Ether(src=packet.dst, dst=packet.src) / reply)


def end(frame):
    """The protocol and the source's address and port, or identifier."""
    ip = Ether(frame).payload
    transport = ip.payload
    port = transport.sport if isinstance(transport, (UDP, TCP)) else transport.id
    return type(transport).__name__, ip.src, port


def ends(frame):
    """The protocol, and both endpoints of a packet."""
    ip = Ether(frame).payload
    return *end(frame), ip.dst, getattr(ip.payload, "dport", None)


def with_source(frame, address, port, seq=None):
    """The packet with another source, with all checksums computed again; a UDP checksum of 0 stays."""
    packet = Ether(frame)
    ip, transport = packet.payload, packet.payload.payload
    ip.src = address
    if isinstance(transport, (UDP, TCP)):
        transport.sport = port
    else:
        transport.id = port
    if seq is not None:
        transport.seq = seq
    for layer, name in ((ip, "chksum"), (transport, "chksum"), (transport, "cksum")):
        if name in layer.fields and not (isinstance(transport, UDP) and layer is transport and layer.chksum == 0):
            delattr(layer, name)
    return bytes(packet)
