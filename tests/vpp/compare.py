"""Judges what left VPP beside what was to leave."""

from collections import Counter, defaultdict, deque

from dissect import Malformed, dissect


def same_packets(out, expected, frames):
    """`out`: frames that left; `expected`: (number, packet without link header), in order, for the frames that came.

    VPP's graph may send what takes another way through it later, but not within a flow.
    """
    left = [frame[14:] for frame in out]
    wanted = Counter(packet for _, packet in expected)
    missing, strange = wanted - Counter(left), Counter(left) - wanted
    if missing or strange:
        raise AssertionError("\n".join(_difference(missing, strange, expected, frames)))
    _in_order(left, expected, frames)


def _difference(missing, strange, expected, frames):
    yield f"{missing.total()} of {len(expected)} packets did not leave, {strange.total()} left that nobody expected"
    numbers = [number for number, packet in expected if packet in missing][:3]
    for number in numbers:
        yield f"packet {number}\n  in        {frames[number][14:].hex()}"
        yield f"  expected  {dict(expected)[number].hex()}"
    for packet in list(strange)[:3]:
        yield f"  left      {packet.hex()}"


def _in_order(left, expected, frames):
    """Equal packets are taken to have left in the order that they came in."""
    numbers = defaultdict(deque)
    for number, packet in expected:
        numbers[packet].append(number)
    last = {}
    for packet in left:
        number = numbers[packet].popleft()
        flow = flow_of(frames[number])
        assert last.get(flow, -1) < number, f"packet {number} left behind {last[flow]} of its flow {flow}"
        last[flow] = number


def flow_of(frame):
    """What packets have in common whose order nobody may change: addresses, protocol, ports."""
    try:
        packet = dissect(frame)
    except Malformed:
        return frame[14:]
    at, size = (12, 4) if packet.family == 4 else (8, 16)
    start = packet.ip + at
    ports = frame[packet.l4:packet.l4 + 4] if packet.kind in (6, 17) else b""
    return frame[start:start + 2 * size], packet.proto, ports
