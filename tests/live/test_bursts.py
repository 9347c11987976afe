"""Bursts of frames over AF_PACKET: many wait while the daemon is stopped, and pass as whole vectors when it goes on."""

import contextlib
import signal
from pathlib import Path

import pytest
from scapy.layers.inet import IP
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q

from lab import daemon
from lab.process import wait_until

from .frames import MAC, data, ether, expect, ip4, ip6, pass_through, tcp, udp
from .programs import without_programs

# Measures rates, times or memory of the machine.
pytestmark = pytest.mark.alone

# Slots of a ring at an MTU of 1,500 (crates/io/src/packet/ring.rs).
SLOTS = 2048
CLASSIFIER = 3


@pytest.fixture(params=("with programs", "without programs"))
def site_and_mmb(request, fresh, tmp_path, monkeypatch):
    site = fresh("af_packet")
    if request.param == "without programs":
        monkeypatch.setattr(daemon, "BINARY", without_programs(tmp_path))
    # Flows are not the subject, and have programs of their own.
    policy = tmp_path / "off.mmb"
    policy.write_text("set offload off\n")
    mmb = fresh.daemon(site, "--config", policy)
    assert classifiers(mmb) == (2 if request.param == "with programs" else 0), "a program for each port, or none"
    return site, mmb


def classifiers(mmb):
    """The BPF programs for sending that the daemon holds."""
    found = 0
    for descriptor in Path(f"/proc/{mmb.process.pid}/fdinfo").iterdir():
        # A client's may be closed by now.
        with contextlib.suppress(FileNotFoundError):
            found += f"prog_type:\t{CLASSIFIER}\n" in descriptor.read_text()
    return found


def taken(mmb, port):
    """Frames that arrived at a port, received or not."""
    now = mmb.port(port)
    return now["rx"]["packets"] + now["rx_missed"]


def burst(mmb, source, frames):
    """Sends the frames while the daemon is stopped."""
    mmb.process.signal(signal.SIGSTOP)
    try:
        wait_until(lambda: set(states(mmb)) == {"T"}, "every thread of the daemon is stopped")
        for frame in frames:
            source.send(frame)
    finally:
        mmb.process.signal(signal.SIGCONT)


def states(mmb):
    """The state of each thread of the daemon, as a letter."""
    for task in Path(f"/proc/{mmb.process.pid}/task").iterdir():
        yield (task / "stat").read_text().rpartition(")")[2].split()[0]


def of_many_kinds():
    """Frames whose ether types change after one, after a few and after many, up to the longest that the kernel takes."""
    full = ip4() / udp() / data(1472)
    tagged = ether() / Dot1Q(vlan=5) / IP(src="10.0.0.1", dst="10.0.0.2") / udp() / data(1472)
    other = ether() / Dot1AD(vlan=7) / IP(src="10.0.0.1", dst="10.0.0.2") / udp() / data(1400)
    arp = ether() / ARP(hwsrc=MAC, psrc="10.0.0.9", pdst="10.0.0.10")
    short = [ip4() / udp(sport=1000 + number) / data(number) for number in range(64)]
    long = [ip6() / tcp(sport=1000 + number) / data(1400 - number) for number in range(64)]
    frames = [*short, arp, *long, full, full, tagged, tagged, *[full, arp] * 8, *[tagged] * 20, *[other] * 8, *short]
    return [bytes(frame) for frame in frames]


def test_a_burst_of_many_kinds_passes_in_order(site_and_mmb):
    site, mmb = site_and_mmb
    frames = of_many_kinds()
    with site.client_wire() as client, site.server_wire() as server:
        for (source, name), target in (((client, "lan"), server), ((server, "wan"), client)):
            seen = taken(mmb, name)
            burst(mmb, source, frames)
            wait_until(lambda: taken(mmb, name) - seen >= len(frames), "all are received")
            expect(pass_through(source, target, []), frames)
    mmb.wait_until_settled()
    assert mmb.drops() == {}


def test_frames_beyond_the_ring_are_counted(site_and_mmb):
    site, mmb = site_and_mmb
    frames = [bytes(ip4() / udp(sport=1024 + number) / data(18)) for number in range(SLOTS + 300)]
    with site.client_wire() as client, site.server_wire() as server:
        seen, missed = taken(mmb, "lan"), mmb.port("lan")["rx_missed"]
        burst(mmb, client, frames)
        wait_until(lambda: taken(mmb, "lan") - seen >= len(frames), "all are received or counted")
        passed = pass_through(client, server, [])
    missed = mmb.port("lan")["rx_missed"] - missed
    # The hosts' own frames (IPv6) take slots too.
    assert SLOTS - 20 <= len(passed) <= SLOTS and missed >= len(frames) - SLOTS
    expect(passed, frames[: len(passed)])
