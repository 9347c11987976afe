"""Receivers of TCP, as plain as can be: one byte at a time, with the ways in which real ones resolve overlaps."""

import functools
from typing import NamedTuple

from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

# Which of two copies of a byte that is not delivered yet stays: of the segment that came first, from an offset to an end, or of another.
OVERLAPS = {
    "first": lambda old, new: True,
    "last": lambda old, new: False,
    "bsd": lambda old, new: old[0] <= new[0],
    "linux": lambda old, new: old[0] < new[0],
    "windows": lambda old, new: not (new[0] < old[0] and new[1] > old[1]),
}


class Segment(NamedTuple):
    """What a receiver reads in a frame."""

    source: str
    sport: int
    dport: int
    seq: int
    ack: int
    flags: str
    time: tuple | None
    urgptr: int
    data: bytes
    # Its TCP checksum is what scapy computes.
    is_sound: bool


@functools.lru_cache(maxsize=None)
def segment(frame):
    packet = Ether(frame)
    tcp, again = packet[TCP], packet[IP].copy()
    del again[TCP].chksum
    is_sound = IP(bytes(again))[TCP].chksum == tcp.chksum
    time = dict(tcp.options).get("Timestamp")
    return Segment(packet.src, tcp.sport, tcp.dport, tcp.seq, tcp.ack, str(tcp.flags), time, tcp.urgptr, bytes(tcp.payload), is_sound)


class Receiver:
    """The server's end of a connection whose client begins with a number; its own next number is `own`, as it sends no data. It never
    advertises another window than its first."""

    def __init__(self, isn, own, overlap="first", window=65_535, has_inline_urgent=True):
        self.isn, self.own, self.overlap, self.window = isn, own, OVERLAPS[overlap], window
        self.has_inline_urgent = has_inline_urgent
        self.early, self.next, self.delivered = {}, 0, b""
        self.urgent, self.is_reset, self.last_time = set(), False, None

    def take(self, frame):
        tcp = segment(frame)
        if self.is_reset or not tcp.is_sound:
            return
        at = (tcp.seq - self.isn - 1 + 2**31) % 2**32 - 2**31
        if "R" in tcp.flags:
            # RFC 5961: others are answered, and change nothing.
            self.is_reset = at == self.next
            return
        if "S" in tcp.flags or "A" not in tcp.flags or not 0 <= (self.own - tcp.ack) % 2**32 <= self.window:
            return
        time, data = tcp.time, tcp.data
        if time and self.last_time is not None and (time[0] - self.last_time) % 2**32 >= 2**31:
            return
        if time and at <= self.next < at + len(data):
            self.last_time = time[0]
        if "U" in tcp.flags and not self.has_inline_urgent:
            self.urgent.add(at + tcp.urgptr - 1)
        span = (at, at + len(data))
        for offset, byte in enumerate(data, start=at):
            if not self.next <= offset < self.next + self.window:
                continue
            there = self.early.get(offset)
            if there is None or not self.overlap(there[1], span):
                self.early[offset] = (byte, span)
        while self.next in self.early:
            byte, _ = self.early.pop(self.next)
            if self.next not in self.urgent:
                self.delivered += bytes([byte])
            self.next += 1
