"""Random packets of the replay tests, of the kinds that VPP routes."""

from generate import Packets

from .routing import refused


class Routed(Packets):
    """Frames that VPP passes to its features: frames that `refused` reports are replaced by others."""

    def ip4(self):
        packet = super().ip4()
        packet.options = []
        packet.ttl = self.rng.choice([2, 64, 255])
        packet.dst = self.rng.choice(["10.0.0.1", "10.0.0.2", "10.1.2.3", "192.0.2.7"])
        return packet

    def ip6(self):
        packet = super().ip6()
        packet.hlim = self.rng.choice([2, 64, 255])
        packet.src, packet.dst = (self.rng.choice(["2001:db8::1", "2001:db8::2"]) for _ in range(2))
        return packet

    def frame(self):
        while refused(frame := super().frame()) is not None:
            pass
        return frame

    def frames(self, count):
        return [self.frame() for _ in range(count)]
