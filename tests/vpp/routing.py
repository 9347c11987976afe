"""VPP's routing: the packets that it does not route, and its changes to those that it does."""

import struct

from dissect import ones_sum

TTL, HOP_LIMIT = 8, 7
HOP_BY_HOP = 0
# The MTU of the output interface: VPP fragments or rejects longer packets.
MTU = 9000


def ip_packet(frame):
    """The frame without its link header."""
    return frame[14:]


def refused(frame):
    """The reason why an input frame does not reach the features before VPP's lookup, or None. VPP checks less than mmb: mmb
    counts packets that only mmb refuses."""
    kind = frame[12:14]
    if len(frame) < 14 + 20 or kind not in (b"\x08\x00", b"\x86\xdd"):
        return "not IP over Ethernet"
    packet = ip_packet(frame)
    return refused4(packet) if kind == b"\x08\x00" else refused6(packet)


def refused4(packet):
    if packet[0] != 0x45:
        return "options, which VPP punts, or no version 4"
    if not 20 <= struct.unpack_from("!H", packet, 2)[0] <= len(packet):
        return "length"
    if ones_sum(packet[:20]) != 0xFFFF:
        return "checksum"
    if struct.unpack_from("!H", packet, 6)[0] & 0x1FFF == 1:
        return "a fragment at 8 bytes"
    return not_routed4(packet)


def not_routed4(packet):
    if packet[TTL] <= 1:
        return "time to live"
    if packet[16] in (0, 127) or packet[16] >= 224:
        return "no unicast destination"
    return "longer than the MTU" if struct.unpack_from("!H", packet, 2)[0] > MTU else None


def refused6(packet):
    if len(packet) < 40 or packet[0] >> 4 != 6:
        return "length or version"
    if 40 + struct.unpack_from("!H", packet, 4)[0] > len(packet):
        return "length"
    if packet[6] == HOP_BY_HOP:
        return "options hop by hop, which VPP looks at"
    return not_routed6(packet)


def not_routed6(packet):
    if packet[HOP_LIMIT] <= 1:
        return "hop limit"
    if any(packet[at] == 0xFF or packet[at:at + 2] == b"\xfe\x80" for at in (8, 24)) or not any(packet[24:39]):
        return "no address to route"
    return "longer than the MTU" if 40 + struct.unpack_from("!H", packet, 4)[0] > MTU else None


def routed(frame):
    """The packet as VPP sends it, without the link header; None if VPP would not send it with its current headers."""
    packet = bytearray(ip_packet(frame))
    if frame[12:14] == b"\x86\xdd":
        if not_routed6(packet):
            return None
        packet[HOP_LIMIT] -= 1
        return bytes(packet)
    if not_routed4(packet):
        return None
    packet[TTL] -= 1
    # RFC 1141, so that a wrong checksum stays wrong; VPP writes no 0xFFFF.
    total = struct.unpack_from("!H", packet, 10)[0] + 0x0100
    struct.pack_into("!H", packet, 10, total % 0xFFFF)
    return bytes(packet)
