"""ClassBench filters in the simplest implementation: each column is compared with a packet as scapy parses it."""

import ipaddress
import random

from scapy.all import ICMP, IP, TCP, UDP, Ether, Raw

TCP_NUMBER, UDP_NUMBER, ICMP_NUMBER = 6, 17, 1
ANY_PORT = (0, 65535)


class Seen:
    """The fields that filters match, of a packet as scapy parses it."""

    def __init__(self, packet):
        header, later = packet[IP], bool(packet[IP].frag)
        transport = None if later else packet.getlayer(TCP) or packet.getlayer(UDP)
        self.source, self.destination = (int(ipaddress.ip_address(address)) for address in (header.src, header.dst))
        self.proto, self.flags = header.proto, None
        self.ports = transport and (transport.sport, transport.dport)
        if later:
            return
        if TCP in packet:
            tcp = packet[TCP]
            self.flags = tcp.dataofs << 12 | tcp.reserved << 9 | int(tcp.flags)
        elif ICMP in packet:
            self.flags = packet[ICMP].type << 8 | packet[ICMP].code


class Filter:
    """A line of a filter set."""

    def __init__(self, line):
        columns = line.strip().lstrip("@").replace(" : ", ":").split()
        self.source, self.destination = (ipaddress.ip_network(column, strict=False) for column in columns[:2])
        self.addresses = [(int(one.network_address), int(one.netmask)) for one in (self.source, self.destination)]
        self.source_ports, self.destination_ports = (
            tuple(int(port) for port in column.split(":")) for column in columns[2:4])
        self.proto, self.proto_mask = (int(number, 0) for number in columns[4].split("/"))
        flags = columns[5] if len(columns) > 5 else "0/0"
        self.flags, self.flags_mask = (int(number, 0) for number in flags.split("/"))

    def matches(self, seen, portless=False, upper=False):
        """Whether a packet matches. `portless`: filters ignore the ports of packets without ports; `upper`: the upper byte of the
        flags column contains the TCP flags."""
        for address, (network, mask) in zip((seen.source, seen.destination), self.addresses):
            if address & mask != network:
                return False
        if (seen.proto ^ self.proto) & self.proto_mask:
            return False
        return self.ports_match(seen, portless) and self.flags_match(seen, upper)

    def ports_match(self, seen, portless):
        if (self.source_ports, self.destination_ports) == (ANY_PORT, ANY_PORT):
            return True
        if seen.proto not in (TCP_NUMBER, UDP_NUMBER):
            return portless
        return seen.ports is not None and all(
            low <= port <= high for port, (low, high) in zip(seen.ports, (self.source_ports, self.destination_ports)))

    def flags_match(self, seen, upper):
        if not self.flags_mask:
            return True
        if seen.flags is None:
            return False
        swapped = seen.flags >> 8 | (seen.flags & 0xff) << 8
        flags = swapped if upper and seen.proto == TCP_NUMBER else seen.flags
        return not (flags ^ self.flags) & self.flags_mask


def read(text):
    """The filters of a file."""
    return [Filter(line) for line in text.splitlines() if line.strip()]


def first_match(filters, packet, **reading):
    """The index of the first filter that matches; None: there is none."""
    seen = Seen(packet)
    return next((place for place, one in enumerate(filters) if one.matches(seen, **reading)), None)


def address_in(network, chance):
    if chance.random() < 0.1:
        return str(ipaddress.ip_address(chance.getrandbits(network.max_prefixlen)))
    return str(network[chance.randrange(network.num_addresses)])


def port_in(ports, chance):
    low, high = ports
    return chance.choice([low, high, chance.randint(low, high), max(low - 1, 0), chance.randrange(65536)])


def packet_near(one, chance):
    """A packet that matches a filter, or nearly matches it."""
    proto = one.proto & one.proto_mask | chance.getrandbits(8) & ~one.proto_mask & 0xff
    if one.proto_mask == 0 or chance.random() < 0.15:
        proto = chance.choice([TCP_NUMBER, TCP_NUMBER, UDP_NUMBER, ICMP_NUMBER, 2, 47, 89])
    header = IP(src=address_in(one.source, chance), dst=address_in(one.destination, chance), proto=proto)
    sport, dport = port_in(one.source_ports, chance), port_in(one.destination_ports, chance)
    # Both interpretations of the flags column may match.
    flags = chance.getrandbits(16) & ~one.flags_mask | one.flags & one.flags_mask
    if chance.random() < 0.5:
        flags = flags >> 8 | (flags & 0xff) << 8
    if proto == TCP_NUMBER:
        offset = max(5, flags >> 12)
        transport = TCP(sport=sport, dport=dport, dataofs=offset, reserved=flags >> 9 & 7, flags=flags & 0x1ff,
                        options=[("NOP", None)] * (4 * offset - 20))
    elif proto == UDP_NUMBER:
        transport = UDP(sport=sport, dport=dport)
    elif proto == ICMP_NUMBER:
        transport = ICMP(type=one.flags >> 8 if chance.random() < 0.7 else chance.randrange(256),
                         code=chance.choice([one.flags & 0xff, 0, chance.randrange(256)]))
    else:
        transport = Raw(chance.randbytes(24))
    if chance.random() < 0.08:
        header.frag, transport = 200, Raw(bytes(transport) + bytes(8))
    return Ether(bytes(Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / header / transport / Raw(b"data")))


def random_filter(chance):
    """A line with few distinct addresses and ports, so that filters overlap."""
    def prefix():
        return f"10.{chance.randrange(2)}.0.{chance.choice([1, 2, 200])}/{chance.choice([0, 8, 16, 24, 31, 32])}"

    def ports():
        low, high = sorted(chance.choice([0, 22, 53, 80, 1023, 1024, 65535]) for _ in range(2))
        return "0 : 65535" if chance.random() < 0.4 else f"{low} : {high}"
    proto = chance.choice(["0x06/0xFF", "0x06/0xFF", "0x11/0xFF", "0x01/0xFF", "0x00/0x00", "0x2F/0xFF", "0x01/0xE9"])
    mask = chance.choice([0, 0, 0x0002, 0x0012, 0x1000, 0xF000, 0x0200, 0x1200, 0xFF00, 0xFFFF, 0x0F00])
    flags = "" if chance.random() < 0.2 else f"\t{chance.getrandbits(16) & mask:#06x}/{mask:#06x}\t"
    return f"@{prefix()}\t{prefix()}\t{ports()}\t{ports()}\t{proto}{flags}"
