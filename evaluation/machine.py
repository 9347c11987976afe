"""The machine, and the versions of all programs."""

import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import time
from pathlib import Path

from lab.daemon import BINARY
from lab.process import run

from . import accounting

# If a core is busier than this with other work, the figures are not reliable.
QUIET = 0.05

# The command that prints the version of each program.
VERSIONS = {
    "mmb": [BINARY, "--version"],
    "iperf3": ["iperf3", "--version"],
    "wrk": ["wrk", "-v"],
    "nginx": ["nginx", "-v"],
    "ping": ["ping", "-V"],
    "nft": ["nft", "--version"],
    "iptables": ["iptables-legacy", "--version"],
    "conntrack": ["conntrack", "--version"],
    "haproxy": ["haproxy", "-v"],
    "apache2": ["apache2", "-v"],
    "squid": ["squid", "-v"],
    "suricata": ["suricata", "-V"],
    "clang": ["clang", "--version"],
    "bpftool": ["bpftool", "version"],
    "ethtool": ["ethtool", "--version"],
    "iproute2": ["ip", "-V"],
}


def describe(cores):
    """The machine, its load, the versions."""
    cpu = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, _, value = line.partition(":")
        cpu.setdefault(name.strip(), value.strip())
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    return {
        "cpu": cpu.get("model name", platform.machine()),
        "cpu_id": " ".join(f"{key.split()[-1]} {cpu[key]}" for key in ("cpu family", "model", "stepping") if key in cpu),
        "flags": sorted(flag for flag in cpu.get("flags", "").split() if flag.startswith(("avx", "hypervisor", "constant_tsc"))),
        "cores": os.cpu_count(),
        "middle_core": cores.middle,
        "end_cores": cores.ends,
        "l3": _read("/sys/devices/system/cpu/cpu0/cache/index3/size"),
        "governor": _read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "congestion_control": _read("/proc/sys/net/ipv4/tcp_congestion_control"),
        "mitigations": _mitigations(),
        "memory_gb": round(int(memory[1]) / 2**20, 1) if memory else None,
        "kernel": platform.release(),
        "distribution": platform.freedesktop_os_release().get("PRETTY_NAME", "?"),
        "load_average": os.getloadavg()[0],
        "commit": _commit(),
        "versions": {name: version(words) for name, words in VERSIONS.items()},
    }


def _read(path):
    with contextlib.suppress(OSError):
        return Path(path).read_text().strip()
    return "?"


def _mitigations():
    """The kernel's mitigations of processor vulnerabilities slow down every system call: the active ones are listed."""
    folder = Path("/sys/devices/system/cpu/vulnerabilities")
    states = {entry.name: _read(entry) for entry in sorted(folder.glob("*"))}
    return {name: text for name, text in states.items() if text.startswith("Mitigation")}


def _commit():
    done = run(["git", "-C", Path(__file__).parent, "describe", "--always", "--dirty", "--abbrev=12"], check=False)
    return done.stdout.strip() or "?"


def version(words):
    """The first line with a number in the output of a program, or that the program is missing."""
    if shutil.which(words[0]) is None:
        return "not installed here"
    try:
        done = run(words, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return "?"
    lines = (line.strip() for line in (done.stdout + done.stderr).splitlines())
    return next((line for line in lines if re.search(r"\d", line)), "?")


def idle(cores, seconds=2.0):
    """How busy the cores are without a measurement."""
    before, start = accounting.cpu(), time.monotonic()
    time.sleep(seconds)
    after, took = accounting.cpu(), time.monotonic() - start
    return {
        "middle_busy": accounting.busy(before, after, [cores.middle], took),
        "ends_busy": accounting.busy(before, after, cores.ends, took),
    }


def clock_hz():
    """The rate of the counter that counts cycles."""
    words = [BINARY, "bench", "--json", "--workload", "empty", "--rounds", "1"]
    return json.loads(run(words, timeout=60).stdout)["tsc_hz"]
