"""VPP with two workers: those that have receive queues share the new connections, and existing connections stay where they are."""

import os

import pytest

from lab.process import wait_until

from .site import CLIENT, LAN, SERVER, WAN, handed, with_workers

CORES = sorted(os.sched_getaffinity(0))
# Connections at once: the probability that all of them belong to one worker by chance is 10⁻⁹.
SOME = 30

pytestmark = pytest.mark.skipif(len(CORES) < 3, reason="needs three cores")


@pytest.fixture
def site(tmp_path):
    with with_workers(tmp_path / "site", CORES[:3]) as made:
        yield made


def place(vpp, lan, wan):
    vpp.configure(f"set interface rx-placement {LAN} queue 0 worker {lan}", f"set interface rx-placement {WAN} queue 0 worker {wan}")


def ping(site, numbers):
    """Sends a ping for each of these identifiers; returns the worker of each connection."""
    for number in numbers:
        site.client.run("ping", "-c", "1", "-e", str(number), SERVER)
    return workers(site, numbers)


def workers(site, numbers):
    connections = site.vpp.json("show connections verbose")["connections"]
    of_client = [one for one in connections if one["sent"]["src"] == CLIENT and one["sent"]["sport"] in numbers]
    found = {one["sent"]["sport"]: one["worker"] for one in of_client}
    assert len(of_client) == len(found) == len(numbers)
    return found


def test_workers_with_queues_share_the_connections_and_those_that_are_there_stay(site):
    place(site.vpp, 0, 1)
    rounds = (range(first, first + SOME) for first in range(1, 60_000, SOME))

    def come_to_be_shared_by(sharing):
        return wait_until(lambda: set((found := ping(site, next(rounds))).values()) == sharing and found, f"{sharing} share them")

    come_to_be_shared_by({0, 1})
    site.vpp.configure("clear runtime")
    there = ping(site, next(rounds))
    assert set(there.values()) == {0, 1}
    # Requests arrive on one worker, replies on the other: one of both is handed over.
    assert handed(site.vpp) == SOME
    place(site.vpp, 1, 1)
    come_to_be_shared_by({1})
    site.vpp.configure("clear runtime")
    assert set(ping(site, next(rounds)).values()) == {1}
    assert handed(site.vpp) == 0
    assert ping(site, list(there)) == there
    of_the_other = 2 * sum(worker == 0 for worker in there.values())
    assert handed(site.vpp) == of_the_other
    place(site.vpp, 0, 1)
    come_to_be_shared_by({0, 1})
    assert ping(site, list(there)) == there
    assert "handover-full" not in site.vpp.drops()
