"""A daemon in a control group with a memory limit, which the kernel enforces by killing processes: a change that does not fit
gives an error or a counted drop before that."""

import struct

import pytest

from lab import cgroup
from lab.process import wait_until

from . import frames
from .programs import ping
from .topology import SERVER4

# Measures rates, times or memory of the machine.
pytestmark = pytest.mark.alone

LIMIT = 320 << 20
# Less than the headroom that changes leave.
LITTLE = 24 << 20
# Twice the headroom.
TIGHT = 64 << 20
# More than the headroom by some 64 MB: a policy of `HALF` rules, at some 640 bytes each, fits in that, but not in half of it. What the
# daemon uses varies by 10 MB.
AMPLE = 96 << 20
HALF = 65_000
# Connections that take more than `TIGHT`, at 690 bytes each (unanswered, the only one of its host).
FLOOD = 100_000


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
    """Created after the group, so that its processes end before the group is removed."""
    return fresh("af_packet")


@pytest.fixture
def mmb(site, fresh, group):
    mmb = fresh.daemon(site, group=group)
    yield mmb
    assert group.kills() == 0 and mmb.running()


def is_short_of_the_groups_memory(message):
    return "not enough memory" in message and "the control group's limit" in message


def ask_for_what_fits(mmb):
    """A request is refused once, and then most of the number that fits is requested: the memory of the group varies by some MB."""
    message = mmb.refused("set conn max 100000000")
    assert is_short_of_the_groups_memory(message), message
    fits = int(message.split(" would fit")[0].split()[-1])
    mmb(f"set conn max {fits // 2}")
    return fits


def test_a_policy_beyond_the_groups_limit_is_refused_and_traffic_flows(site, mmb):
    mmb("add id 1 icmp-type echo-request mod ip-dscp ef")
    large = site.folder / "large.mmb"
    large.write_text("".join(f"add ip-saddr 10.{n >> 16}.{n >> 8 & 255}.{n & 255} drop\n" for n in range(1_000_000)))
    message = mmb.client("apply", large, check=False, timeout=120).stderr
    assert is_short_of_the_groups_memory(message), message
    assert ping(site, SERVER4, count=3) == 3
    assert [rule["id"] for rule in mmb.ask("list")["rules"]] == [1]


def test_more_connections_than_the_groups_limit_allows_are_refused_with_the_number_that_fits(site, mmb):
    assert ask_for_what_fits(mmb) < LIMIT // 1024
    assert ping(site, SERVER4, count=3) == 3


def test_a_state_beyond_the_groups_limit_is_refused(site, mmb, group):
    state = site.folder / "state"
    mmb("save-state", state)
    group.limit(group.used() + LITTLE)
    message = mmb.refused("load-state", state)
    assert is_short_of_the_groups_memory(message), message
    group.limit(LIMIT)
    mmb("load-state", state)


@pytest.fixture
def tight(site, fresh, group):
    """A daemon in a group whose limit was little above its use, from its start."""
    first = fresh.daemon(site, group=group)
    limit = group.used() + TIGHT
    assert first.stop() == 0
    group.limit(limit)
    mmb = fresh.daemon(site, group=group, name="tight")
    yield mmb
    assert group.kills() == 0 and mmb.running()


def flood(site, mmb, connections):
    """Datagrams of different hosts, until this number of connections have begun or were refused."""
    frame = bytearray(bytes(frames.ip4(src="10.128.0.0", chksum=0) / frames.udp(chksum=0)))
    unsummed = sum(struct.unpack("!10H", frame[14:34]))
    offered = iter(range(1, 1 << 20))

    def wave():
        for _, host in zip(range(1000), offered):
            total = unsummed + (host >> 16) + (host & 0xFFFF)
            frame[24:26] = struct.pack("!H", 0xFFFF - total % 0xFFFF)
            frame[26:30] = struct.pack("!I", (10 << 24) + (128 << 16) + host)
            wire.send(frame)
        dropped = sum(mmb.drops().get(reason, 0) for reason in ("conn-full", "conn-no-memory"))
        return mmb.ask("show conn summary")["created"] + dropped >= connections

    with site.client_wire() as wire:
        wait_until(wave, "the flood has come", timeout=120)


@pytest.mark.parametrize("asked", [False, True])
def test_as_many_connections_as_there_may_be_stay_within_the_groups_limit(site, tight, asked):
    tight("add-stateful in lan ip-proto udp map ip-saddr 200.0.0.0/12")
    if asked:
        ask_for_what_fits(tight)
    most = tight.ask("show conn summary")["max"]
    assert 1000 < most < FLOOD
    flood(site, tight, FLOOD)
    assert most // 2 < len(tight.connections()) <= most
    assert ping(site, SERVER4, count=3) == 3


def test_connections_that_were_asked_for_are_kept_room_for(site, mmb, group):
    group.limit(group.used() + AMPLE)
    ask_for_what_fits(mmb)
    policy = site.folder / "policy.mmb"
    mmb("save", policy)
    with open(policy, "a", encoding="ascii") as text:
        text.writelines(f"add ip-saddr 10.{n >> 16}.{n >> 8 & 255}.{n & 255} drop\n" for n in range(HALF))
    message = mmb.refused("apply", policy)
    assert is_short_of_the_groups_memory(message) and "reserved for connections" in message, message
    mmb("set conn max 1000")
    policy.write_text(policy.read_text().replace("set conn max", "set conn max 1000 #"), encoding="ascii")
    mmb("apply", policy)
