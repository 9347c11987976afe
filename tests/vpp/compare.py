"""Compares the packets that left VPP with the expected ones."""

from collections import Counter, defaultdict, deque

from dissect import Malformed, dissect


def same_packets(out, expected, frames):
    """`out`: frames that left; `expected`: (number, packet without link header), in order, for the input frames. Any order is
    accepted here: packets that take different paths through VPP's graph may overtake each other."""
    left = [frame[14:] for frame in out]
    wanted = Counter(packet for _, packet in expected)
    missing, strange = wanted - Counter(left), Counter(left) - wanted
    if missing or strange:
        raise AssertionError("\n".join(_difference(missing, strange, expected, frames)))


def _difference(missing, strange, expected, frames):
    yield f"{missing.total()} of {len(expected)} packets did not leave, {strange.total()} left unexpectedly"
    numbers = [number for number, packet in expected if packet in missing][:3]
    for number in numbers:
        yield f"packet {number}\n  in        {frames[number][14:].hex()}"
        yield f"  expected  {dict(expected)[number].hex()}"
    for packet in list(strange)[:3]:
        yield f"  left      {packet.hex()}"


def in_order(out, expected, frames):
    """Within a flow no packet overtook another. Equal packets count as having left in the order of their arrival."""
    numbers = defaultdict(deque)
    for number, packet in expected:
        numbers[packet].append(number)
    last = {}
    for frame in out:
        number = numbers[frame[14:]].popleft()
        flow = flow_of(frames[number])
        assert last.get(flow, -1) < number, f"packet {number} left behind {last[flow]} of its flow {flow}"
        last[flow] = number


def flow_of(frame):
    """The common fields of packets whose order must be kept: addresses, protocol, ports."""
    try:
        packet = dissect(frame)
    except Malformed:
        return frame[14:]
    at, size = (12, 4) if packet.family == 4 else (8, 16)
    start = packet.ip + at
    ports = frame[packet.l4:packet.l4 + 4] if packet.kind in (6, 17) else b""
    return frame[start:start + 2 * size], packet.proto, ports
