"""A capture of UDP over IPv4 with the replies of the other end."""

import struct

FILE_HEADER, RECORD_HEADER = 24, 16
# Offsets in an Ethernet frame with an IPv4 header without options.
ADDRESSES, PORTS = 14 + 12, 14 + 20


def write(sent, answers, mac):
    """Writes a reply to each packet of a capture, to a MAC address."""
    data = sent.read_bytes()
    at, out = FILE_HEADER, [data[:FILE_HEADER]]
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at + 8)
        frame = bytearray(data[at + RECORD_HEADER:at + RECORD_HEADER + size])
        frame[:6] = bytes.fromhex(mac.replace(":", ""))
        _swap(frame, ADDRESSES, 4)
        _swap(frame, PORTS, 2)
        out += [data[at:at + RECORD_HEADER], bytes(frame)]
        at += RECORD_HEADER + size
    answers.write_bytes(b"".join(out))


def _swap(frame, at, size):
    """Exchanges two adjacent fields, which leaves checksums unchanged."""
    frame[at:at + 2 * size] = frame[at + size:at + 2 * size] + frame[at:at + size]
