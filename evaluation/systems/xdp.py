"""Our five-tuple filter in XDP before the kernel's forwarding: a minimal program for that purpose only."""

import os
import shutil
import struct
from pathlib import Path

from evaluation.policies import Policy
from evaluation.topology import MIDDLE
from lab.process import CommandFailed, run

from .base import System, Unable

SOURCE = Path(__file__).parents[1] / "native/filter.bpf.c"
PINS = Path("/sys/fs/bpf")


class Xdp(System):
    """The filter on both of the middle's devices; the kernel routes the packets that it passes."""

    name = "xdp"
    title = "XDP five-tuple filter"
    programs = ("clang", "bpftool")
    routed = True
    kinds = ("none", "firewall")
    # The directory in which its program and its map are pinned.
    pins = None

    def why_not(self, kind):
        return f"our XDP filter knows five-tuples only, no {kind}"

    def open(self):
        super().open()
        self.object = self.folder / "filter.bpf.o"
        self.pins = PINS / f"mmb-evaluation-{os.getpid()}"
        triplet = run(["clang", "-print-target-triple"]).stdout.strip().replace("-pc-", "-")
        words = ["clang", "-O2", "-g", "-target", "bpf", f"-I/usr/include/{triplet}", "-c", SOURCE, "-o", self.object]
        try:
            run(words, timeout=60)
            self.install(Policy("none"))
        except CommandFailed as error:
            raise Unable(f"the kernel or the compiler takes no XDP program: {' '.join(str(error).split())[-300:]}") from error

    def install(self, policy):
        self._unload()
        run(["bpftool", "prog", "loadall", self.object, self.pins, "type", "xdp", "pinmaps", self.pins], timeout=60)
        with self.site.receiving_on_middle():
            for device in MIDDLE:
                self._link(device, "pinned", self.pins / "filter")
        if policy.kind == "firewall":
            orders = self.folder / "rules.batch"
            update = f"map update pinned {self.pins}/rules key hex {{}} value hex {'00 ' * 8}\n"
            orders.write_text("".join(update.format(key(rule)) for rule in policy.tuples()))
            run(["bpftool", "batch", "file", orders], timeout=600)

    def _unload(self):
        for device in MIDDLE:
            self._link(device, "off", check=False)
        shutil.rmtree(self.pins, ignore_errors=True)

    def _link(self, device, *words, check=True):
        """Sets a device's program. `ip -n` would hide the pinned objects."""
        with self.site.middle.entered():
            run(["ip", "link", "set", "dev", device, "xdpdrv", *words], check=check)

    def close(self):
        if self.pins is not None:
            self._unload()
        super().close()


def key(rule):
    """The key of a rule in bpftool's format."""
    ends = bytes(int(octet) for address in (rule.source, rule.destination) for octet in address.split("."))
    packed = ends + struct.pack("!HHB3x", rule.source_port, rule.destination_port, rule.protocol)
    return packed.hex(" ")
