"""iptables in the simplest implementation: it evaluates chains rule by rule on a packet as scapy parses it.

It is written from iptables(8) and iptables-extensions(8) and shares nothing with mmb. `Unknown` matches are those that the
translation omits; here they have a random result for each rule and packet.
"""

import ipaddress
import shlex

from scapy.all import ICMP, IP, TCP, UDP, IPv6

FLAGS = {"FIN": 1, "SYN": 2, "RST": 4, "PSH": 8, "ACK": 16, "URG": 32, "ECE": 64, "CWR": 128, "ALL": 63, "NONE": 0}
NUMBERS = {"icmp": 1, "tcp": 6, "udp": 17, "gre": 47, "ipv6-icmp": 58, "ospf": 89}
UNKNOWN = {"time", "mark", "set"}


class Seen:
    """A packet with all fields that matches use."""

    def __init__(self, packet, entering, leaving):
        self.entering, self.leaving = entering, leaving
        header = packet.getlayer(IP) or packet.getlayer(IPv6)
        self.source, self.destination = ipaddress.ip_address(header.src), ipaddress.ip_address(header.dst)
        if header.version == 4:
            self.proto, self.ttl, self.tos, self.length = header.proto, header.ttl, header.tos, header.len
            self.later = header.frag > 0
        else:
            self.proto, self.ttl, self.tos, self.length = header.nh, header.hlim, header.tc, header.plen + 40
            self.later = False
        self.tcp = None if self.later else packet.getlayer(TCP)
        self.udp = None if self.later else packet.getlayer(UDP)
        self.icmp = None
        if not self.later and self.proto == 1:
            self.icmp = packet[ICMP].type, packet[ICMP].code
        elif not self.later and self.proto == 58:
            self.icmp = tuple(bytes(header.payload)[:2])


class Rules:
    """The filter table of a dump."""

    def __init__(self, text):
        self.policies, self.chains, table = {}, {}, None
        for line in text.splitlines():
            if line.startswith("*"):
                table = line[1:]
            elif table == "filter" and line.startswith(":"):
                name, policy = line[1:].split()[:2]
                self.chains[name], self.policies[name] = [], policy
            elif table == "filter" and line.startswith("-A "):
                words = shlex.split(line)
                self.chains[words[1]].append(words[2:])

    def verdict(self, chain, seen, coin):
        """ACCEPT or DROP for a packet in a built-in chain. `coin` determines the results of unknown matches."""
        verdict = self.walk(chain, seen, coin)
        return verdict if verdict in ("ACCEPT", "DROP") else self.policies[chain]

    def walk(self, chain, seen, coin):
        """The verdict of a chain; None: the packet reached its end or returned."""
        for words in self.chains[chain]:
            matched, jump, goto = matches(words, seen, coin)
            if not matched or jump is goto is None:
                continue
            if goto:
                return self.walk(goto, seen, coin)
            if jump in ("ACCEPT", "DROP"):
                return jump
            if jump == "REJECT":
                return "DROP"
            if jump == "RETURN":
                return None
            if jump in self.chains:
                verdict = self.walk(jump, seen, coin)
                if verdict:
                    return verdict
        return None


def matches(words, seen, coin):
    """Whether a rule matches, and its target."""
    words, matched, jump, goto, negated = list(words), True, None, None, False
    while words:
        word = words.pop(0)
        if word == "!":
            negated = True
            continue
        if word in ("-j", "-g"):
            name = words.pop(0)
            jump, goto = (name, goto) if word == "-j" else (jump, name)
            if name == "REJECT":
                words.clear()
            continue
        if word == "-m":
            result = module(words.pop(0), seen, coin)
        else:
            values = []
            while words and words[0] != "!" and not words[0].startswith("-"):
                values.append(words.pop(0))
            # A match on a missing header fails, negated or not.
            result = option(word, values, seen)
            if result is not None and negated:
                result = not result
        negated = False
        matched = matched and bool(result)
    return matched, jump, goto


def module(name, seen, coin):
    if name in UNKNOWN:
        return coin()
    return {"tcp": seen.tcp, "udp": seen.udp, "icmp": seen.icmp, "icmp6": seen.icmp}.get(name, True) is not None


def in_range(number, text):
    low, _, high = text.partition(":")
    high = high if ":" in text else low
    return int(low or 0) <= number <= int(high or 65535)


def option(word, values, seen):
    """Whether an option matches; None: the packet lacks the field."""
    ports = seen.tcp or seen.udp
    first = values[0] if values else ""
    if word in ("-s", "-d"):
        return (seen.source if word == "-s" else seen.destination) in ipaddress.ip_network(first, strict=False)
    if word in ("--src-range", "--dst-range"):
        low, high = (ipaddress.ip_address(end) for end in first.split("-"))
        return low <= (seen.source if word == "--src-range" else seen.destination) <= high
    if word in ("-i", "-o"):
        return (seen.entering if word == "-i" else seen.leaving) == first
    if word == "-p":
        return seen.proto == (NUMBERS[first] if first in NUMBERS else int(first))
    if word == "-f":
        return seen.later
    if word in ("--sport", "--dport"):
        return ports and in_range(ports.sport if word == "--sport" else ports.dport, first)
    if word in ("--sports", "--dports", "--ports"):
        mine = ports and {"--sports": [ports.sport], "--dports": [ports.dport]}.get(word, [ports.sport, ports.dport])
        return mine and any(in_range(port, item) for port in mine for item in first.split(","))
    if word in ("--tcp-flags", "--syn"):
        mask, value = ("SYN,RST,ACK,FIN", "SYN") if word == "--syn" else values
        mask, value = (sum({FLAGS[name] for name in names.split(",")}) for names in (mask, value))
        return seen.tcp and int(seen.tcp.flags) & mask == value
    if word in ("--icmp-type", "--icmpv6-type"):
        kind, _, code = first.partition("/")
        return seen.icmp and seen.icmp[0] == int(kind) and (not code or seen.icmp[1] == int(code))
    if word == "--length":
        return in_range(seen.length, first)
    if word in ("--ttl-eq", "--hl-eq"):
        return seen.ttl == int(first)
    if word in ("--ttl-lt", "--hl-lt"):
        return seen.ttl < int(first)
    if word in ("--ttl-gt", "--hl-gt"):
        return seen.ttl > int(first)
    if word == "--dscp":
        return seen.tos >> 2 == int(first, 0)
    if word == "--tos":
        value, mask = (int(number, 0) for number in first.split("/"))
        return seen.tos & mask == value
    if word == "--ecn-ip-ect":
        return seen.tos & 3 == int(first)
    if word in ("--comment", "--timestart", "--mark", "--match-set"):
        return True
    # No test exceeds a rate.
    if word == "--hashlimit-above":
        return False
    if word == "--limit" or word.startswith(("--limit-", "--hashlimit-")):
        return True
    raise AssertionError(f"the model does not know {word}")
