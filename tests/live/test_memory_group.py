"""A daemon in a control group with a limit of memory, which the kernel enforces by ending processes: what does not fit is an error or a
counted drop before that."""

import pytest

from lab import cgroup

from .programs import ping
from .topology import SERVER4

LIMIT = 320 << 20
# Less than what changes leave to others.
LITTLE = 24 << 20


@pytest.fixture
def group():
    try:
        made = cgroup.MemoryGroup(LIMIT)
    except cgroup.Unusable as why:
        pytest.skip(str(why))
    yield made
    made.close()


@pytest.fixture
def site(group, fresh):
    """Made after the group, so that its processes have ended before that is removed."""
    return fresh("af_packet")


@pytest.fixture
def mmb(site, fresh, group):
    mmb = fresh.daemon(site, group=group)
    yield mmb
    assert group.kills() == 0 and mmb.running()


def is_short_of_the_groups_memory(said):
    return "not enough memory" in said and "the control group's limit" in said


def test_a_policy_beyond_the_groups_limit_is_refused_and_traffic_flows(site, mmb):
    mmb("add id 1 icmp-type echo-request mod ip-dscp ef")
    large = site.folder / "large.mmb"
    large.write_text("".join(f"add ip-saddr 10.{n >> 16}.{n >> 8 & 255}.{n & 255} drop\n" for n in range(1_000_000)))
    said = mmb.client("apply", large, check=False, timeout=120).stderr
    assert is_short_of_the_groups_memory(said), said
    assert ping(site, SERVER4, count=3) == 3
    assert [rule["id"] for rule in mmb.ask("list")["rules"]] == [1]


def test_more_connections_than_the_groups_limit_allows_are_refused_with_the_number_that_fits(site, mmb):
    said = mmb.refused("set conn max 100000000")
    assert is_short_of_the_groups_memory(said), said
    fits = int(said.split(" would fit")[0].split()[-1])
    assert 0 < fits < LIMIT // 320
    mmb(f"set conn max {fits * 9 // 10}")
    assert ping(site, SERVER4, count=3) == 3


def test_a_state_beyond_the_groups_limit_is_refused(site, mmb, group):
    state = site.folder / "state"
    mmb("save-state", state)
    group.limit(group.used() + LITTLE)
    said = mmb.refused("load-state", state)
    assert is_short_of_the_groups_memory(said), said
    group.limit(LIMIT)
    mmb("load-state", state)
