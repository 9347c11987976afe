"""An inside and an outside network at the two packet generator interfaces of VPP, for the conversations of the replay tests; `mmb
replay` calls the ports `lan` and `wan`."""

import re

from captures import replay_wire

from lab.generator import IN, MAC, OUT, OUT_MAC, Generator

from .playing import play
from .routing import refused, routed

INSIDE = f"""
set ip neighbor {IN} 203.0.113.2 02:00:00:00:00:01
set ip neighbor {IN} fd6d:6d62:1::2 02:00:00:00:00:01
ip route add 10.0.0.0/24 via 203.0.113.2 {IN}
ip route add fd00:a::/64 via fd6d:6d62:1::2 {IN}
"""
SIDES = {"lan": (IN, MAC), "wan": (OUT, OUT_MAC)}


class Sides(Generator):
    """Both interfaces of a VPP with mmb, with a policy about `lan` and `wan`."""

    def __init__(self, vpp, policy):
        super().__init__(vpp)
        vpp.configure(*INSIDE.strip().splitlines())
        vpp.enable(IN, OUT)
        vpp.apply("".join(f"{re.sub(r' in (lan|wan) ', lambda side: f' in {SIDES[side[1]][0]} ', rule)}\n" for rule in policy))

    def send(self, side, frames, together=256, leave=None):
        """Sends frames into one side: returns the packets that leave by the other (or by `leave`), and the counters of VPP's
        nodes."""
        interface, mac = SIDES[side]
        addressed = [bytes.fromhex(mac.replace(":", "")) + frame[6:] for frame in frames]
        assert [frame for frame in addressed if refused(frame)] == []
        leave = leave or next(other for other in SIDES if other != side)
        out, errors = play(self, addressed, source=interface, leave=SIDES[leave][0], together=together)
        return [frame[14:] for frame in out], errors


def expected(mmb, folder, policy, lan, wan):
    """The packets that `mmb replay` sends by each side, in VPP's form: by the number of the input, for (number, frame) pairs."""
    left, summary = replay_wire(mmb, folder, policy, lan, wan)
    assert summary["drops"] == {}
    return {side: {number: routed(frame) for number, frame in packets.items()} for side, packets in left.items()}, left
