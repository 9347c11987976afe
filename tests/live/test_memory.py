"""Policies and settings that exceed the memory of the daemon: they give an error, and packets continue under the old ones."""

import resource

import pytest

from .programs import ping
from .topology import SERVER4

# Measures rates, times or memory of the machine.
pytestmark = pytest.mark.alone

# Memory beyond the daemon's use after its start.
MORE = 300 << 20


def status(mmb, name):
    with open(f"/proc/{mmb.process.pid}/status", encoding="ascii") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


@pytest.fixture
def site(fresh):
    return fresh("af_packet")


@pytest.fixture
def tight(fresh, site):
    """A daemon whose address space can hardly grow."""
    mmb = fresh.daemon(site)
    limit = status(mmb, "VmSize") + MORE
    resource.prlimit(mmb.process.pid, resource.RLIMIT_AS, (limit, limit))
    return mmb


def test_a_policy_that_does_not_fit_is_refused_and_traffic_flows(site, tight):
    tight("add id 1 icmp-type echo-request mod ip-dscp ef")
    large = site.folder / "large.mmb"
    large.write_text("".join(f"add ip-saddr 10.{n >> 16}.{n >> 8 & 255}.{n & 255} drop\n" for n in range(1_000_000)))
    for _ in range(3):
        assert "not enough memory" in tight.client("apply", large, check=False, timeout=120).stderr
        assert ping(site, SERVER4, count=3) == 3
    assert [rule["id"] for rule in tight.ask("list")["rules"]] == [1]
    assert tight.rule(1)["packets"] >= 9
    tight("add tcp-dport 80 drop")


def test_more_connections_than_fit_are_refused_with_the_number_that_fits(site, tight):
    message = tight.refused("set conn max 100000000")
    assert "not enough memory" in message and "RLIMIT_AS" in message
    fits = int(message.split(" would fit")[0].split()[-1])
    tight(f"set conn max {fits * 9 // 10}")
    assert ping(site, SERVER4, count=3) == 3
