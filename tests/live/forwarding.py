"""A host that forwards by netfilter, and the same packets through it and through a policy: which pass, and with which addresses."""

import select
import time

# Not of scapy.all, which knows more protocols and would finish their checksums in other tests.
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap, wrpcap

from lab import daemon, net, process

# The hosts beside the gate, as it sees them.
GATE, NEIGHBOUR = "02:00:00:00:00:01", "02:00:00:00:00:02"
# A dropped packet is waited for this long.
PATIENCE_S = 0.04


class Gate:
    """A namespace with two ports, that routes: `networks` are the addresses of the gate by port, with the networks behind the port. The
    last port has the default routes."""

    def __init__(self, **networks):
        self.near = net.Namespace("gate")
        self.ports, self.far = list(networks), []
        self.near.sysctl(net__ipv4__ip_forward=1, net__ipv6__conf__all__forwarding=1, net__ipv4__conf__all__rp_filter=0,
                         net__ipv4__conf__default__rp_filter=0, net__ipv6__conf__default__accept_dad=0)
        for port, (addresses, behind) in networks.items():
            far = net.Namespace("far")
            net.veth(self.near, port, far, "eth0")
            self.near.ip("link", "set", port, "address", GATE)
            for address in addresses:
                self.near.ip("addr", "add", address, "dev", port)
            for network in behind:
                family, via = ("-6", "fe80::2") if ":" in network else ("-4", "169.254.0.2")
                self.near.ip("neigh", "replace", via, "lladdr", NEIGHBOUR, "dev", port, "nud", "permanent")
                self.near.ip(family, "route", "replace", network, "via", via, "dev", port, "onlink")
            self.far.append((far, net.RawPort(far, "eth0")))

    def delete(self):
        for namespace, wire in self.far:
            wire.close()
            namespace.delete()
        self.near.delete()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.delete()

    def pass_on(self, steps):
        """For each step, a port and a packet, what leaves by the other port; None if nothing does."""
        return [self._step(self.ports.index(port), number, packet) for number, (port, packet, _) in enumerate(steps)]

    def answer(self, steps):
        """For each step, how its sender is answered; None if nothing comes back. The packets differ in their ports."""
        return [self._answer(self.ports.index(port), number, packet) for number, (port, packet, _) in enumerate(steps)]

    def _answer(self, entering, number, packet):
        _, wire = self.far[entering]
        list(wire.drain())
        wire.send(frame(packet, number))
        deadline = time.monotonic() + PATIENCE_S
        while (left := deadline - time.monotonic()) > 0:
            if select.select([wire.socket], [], [], left)[0]:
                for found in wire.drain():
                    if answered := answer_to(Ether(found), packet):
                        return answered
        return None

    def _step(self, entering, number, packet):
        wires = [wire for _, wire in self.far]
        for wire in wires:
            list(wire.drain())
        wires[entering].send(frame(packet, number))
        deadline = time.monotonic() + PATIENCE_S
        while (left := deadline - time.monotonic()) > 0:
            if select.select([wires[1 - entering].socket], [], [], left)[0]:
                for found in wires[1 - entering].drain():
                    if number_of(found) == number:
                        return ends(found)
        return None


def frame(packet, number):
    """A packet of the neighbour with a number in a field that nobody changes."""
    packet = packet.copy()
    if IP in packet:
        packet[IP].id = 1000 + number
    else:
        packet[IPv6].fl = 1000 + number
    return bytes(Ether(src=NEIGHBOUR, dst=GATE) / packet)


def number_of(data):
    """The number of a frame; None if it has none."""
    parsed = Ether(data)
    if IP in parsed:
        return parsed[IP].id - 1000
    return parsed[IPv6].fl - 1000 if IPv6 in parsed else None


def ends(data):
    """The addresses and ports of a frame, and its other fields that rules change."""
    parsed = Ether(data)
    header = parsed.getlayer(IP) or parsed.getlayer(IPv6)
    found = [header.src, header.dst]
    for kind in (TCP, UDP):
        if type(header.payload) is kind:
            found += [header.payload.sport, header.payload.dport]
    if type(header.payload) is TCP:
        found += [value for name, value in header.payload.options if name == "MSS"]
    if type(header.payload) is ICMP and header.payload.type in (3, 11):
        quoted = header.payload.payload
        found += [quoted.src, quoted.dst, quoted.payload.sport, quoted.payload.dport]
    found.append((header.tos if IP in parsed else header.tc) >> 2)
    return tuple(found)


def answer_to(frame, packet):
    """What a frame says if it answers a packet: a RST with its numbers, or an ICMP error with its code."""
    header, asked = frame.getlayer(IP) or frame.getlayer(IPv6), packet.payload
    if header is None or header.dst != packet.src:
        return None
    if type(header.payload) is TCP:
        reset = header.payload
        if (header.src, reset.sport, reset.dport) != (packet.dst, asked.dport, asked.sport):
            return None
        return "RST", str(reset.flags), reset.seq, reset.ack
    # The ports stand behind the header of ICMP and that of the packet.
    error = bytes(header.payload)
    length, kind = (20, 3) if IP in frame else (40, 1)
    ports = error[8 + length:12 + length]
    if error[:1] != bytes([kind]) or ports != asked.sport.to_bytes(2, "big") + asked.dport.to_bytes(2, "big"):
        return None
    return "error", error[1]


def answers_of_replay(folder, policy, ports, steps):
    """How mmb answers with a policy: as `Gate.answer`."""
    replayed(folder, policy, ports, steps)
    frames = {port: rdpcap(str(folder / f"{port}-out.pcap")) for port in ports}
    return [next((answered for found in frames[port] if (answered := answer_to(found, packet))), None) for port, packet, _ in steps]


def replayed(folder, policy, ports, steps):
    """The same with a policy in mmb."""
    (folder / "policy.mmb").write_text(policy)
    words = [daemon.BINARY, "replay", "--json", "--rules", folder / "policy.mmb"]
    for port in ports:
        frames = [Ether(frame(packet, number)) for number, (at, packet, _) in enumerate(steps) if at == port]
        for sent in frames:
            sent.time = 1_000_000 + number_of(bytes(sent))
        wrpcap(str(folder / f"{port}.pcap"), frames)
        words += ["--port", f"{port}={folder}/{port}.pcap:{folder}/{port}-out.pcap"]
    process.run(words)
    left = {}
    for port in ports:
        for found in rdpcap(str(folder / f"{port}-out.pcap")):
            number = number_of(bytes(found))
            # What leaves by the port that a packet came in by is an answer.
            if number in range(len(steps)) and steps[number][0] != port:
                left[number] = ends(bytes(found))
    return [left.get(number) for number in range(len(steps))]
