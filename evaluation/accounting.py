"""The cost of a run: packets that arrived at the ends, and how busy the cores were in the meantime.

A core is busy when it is not idle, by the kernel's own measure of idle time in /proc/stat, which has a resolution of a tick (10
ms) and includes interrupts; time is not attributed to processes. Everything else that runs on the middle's core is included:
nothing else should run there, and the results contain how busy the core is without a load.
"""

import os
import time
from pathlib import Path

from . import parse

TICKS = os.sysconf("SC_CLK_TCK")


def cpu():
    """The times of all cores so far."""
    return parse.cpu_times(Path("/proc/stat").read_text())


class Snapshot:
    """The counters at one moment."""

    def __init__(self, site):
        self.cpu = cpu()
        self.at = time.monotonic()
        self.ends = [interface(namespace) for namespace in (site.client, site.server)]


def interface(namespace, name="eth0"):
    """Packets and bytes of an end's device so far."""
    with namespace.entered():
        return parse.interface(Path("/proc/thread-self/net/dev").read_text(), name)


def between(before, after, cores, tsc_hz):
    """The difference of two snapshots, as the metrics of a run."""
    seconds = after.at - before.at
    received = {
        key: sum(end[key] for end in after.ends) - sum(end[key] for end in before.ends) for key in ("rx_bytes", "rx_packets")
    }
    found = {
        "seconds": seconds,
        "packets": received["rx_packets"],
        "mpps": received["rx_packets"] / seconds / 1e6,
        "wire_gbit_s": received["rx_bytes"] * 8 / seconds / 1e9,
        "middle_busy": busy(before.cpu, after.cpu, [cores.middle], seconds),
        "ends_busy": busy(before.cpu, after.cpu, cores.ends, seconds),
        "stolen": ticks(before.cpu, after.cpu, [cores.middle, *cores.ends], "steal") / TICKS / seconds,
    }
    if received["rx_packets"]:
        spent = found["middle_busy"] * seconds * tsc_hz
        found["cycles_per_packet"] = spent / received["rx_packets"]
        found["cycles_per_kb"] = spent / received["rx_bytes"] * 1024
    return found


def busy(before, after, cores, seconds):
    """The share of their time in which cores were not idle, 0 to 1."""
    idle = ticks(before, after, cores, "idle") / TICKS / len(cores)
    return min(1.0, max(0.0, 1 - idle / seconds))


def ticks(before, after, cores, kind):
    return sum(after[core][kind] - before[core][kind] for core in cores)
